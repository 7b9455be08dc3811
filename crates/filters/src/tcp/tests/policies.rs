//! Whose bytes count where waiting segments overlap, for each policy.

use super::*;
use crate::parts::policy::WORDS;

/// Novak's pieces for streams, one byte per letter, from Suricata's tests: (letter, count, start).
const NOVAK: [(u8, usize, i64); 17] = [
    (b'A', 3, 1),
    (b'B', 2, 5),
    (b'C', 3, 7),
    (b'D', 1, 11),
    (b'E', 2, 14),
    (b'F', 3, 16),
    (b'G', 2, 19),
    (b'H', 2, 21),
    (b'I', 1, 23),
    (b'J', 4, 2),
    (b'K', 3, 7),
    (b'L', 3, 10),
    (b'M', 3, 13),
    (b'N', 1, 17),
    (b'O', 1, 20),
    (b'P', 1, 21),
    (b'Q', 2, 23),
];

/// The stream that each policy gives.
const ROWS: [(&str, &str); 8] = [
    ("first", "0AAAJBBCCCLDLMEEFFFGGHHIQ"),
    ("vista", "0AAAJBBCCCLDLMEEFFFGGHHIQ"),
    ("windows", "0AAAJJBCCCLLLMMMFFFGGHHIQ"),
    ("bsd", "0AAAJJBCCCLLLMMMFFFGGHHIQ"),
    ("linux", "0AAAJJBCCCLLLMMMFFFGGHHQQ"),
    ("old-linux", "0AAAJJBKKKLLLMMMFFFGGHHQQ"),
    ("solaris", "0AJJJBBKKKLLLMMMFFFGGHHQQ"),
    ("last", "0AJJJJBKKKLLLMMMFNFGOPHQQ"),
];

fn run_with(conversation: &Conversation, given: &[(&str, &str)]) -> Outcome {
    Chain::frames(ETHERNET, &conversation.frames).then(&KIND, given).run()
}

#[test]
fn the_novak_pattern_letter_by_letter() {
    assert_eq!(ROWS.map(|(policy, _)| policy).iter().filter(|policy| WORDS.contains(policy)).count(), WORDS.len());
    for (policy, expected) in ROWS {
        for scale in [1, 7] {
            for isn in [0, u32::MAX - 30, u32::MAX - 12, u32::MAX - 1] {
                let mut c = opened(isn);
                for (letter, count, at) in NOVAK {
                    out_of_turn(&mut c, 0, at * scale, &vec![letter; count * scale as usize]);
                }
                out_of_turn(&mut c, 0, 0, &vec![b'0'; scale as usize]);
                let expected: String =
                    expected.chars().flat_map(|letter| std::iter::repeat_n(letter, scale as usize)).collect();
                let found = &streams(&run_with(&c, &[("policy", policy)]))[&FROM_CLIENT];
                assert_eq!(*found, format!("{expected}~"), "{policy} {scale} {isn}");
            }
        }
    }
}

/// A later segment begins before, at or after the start of an earlier one, and ends before, at or after its end.
#[test]
fn before_same_and_after() {
    // The later segment, and the policies that prefer it. The earlier one is 4..8.
    let rows: [((i64, usize), &str); 9] = [
        ((2, 4), "bsd linux old-linux windows last"),
        ((2, 6), "bsd linux old-linux windows solaris last"),
        ((2, 8), "bsd linux old-linux windows solaris last"),
        ((4, 2), "last"),
        ((4, 4), "old-linux solaris last"),
        ((4, 6), "linux old-linux solaris last"),
        ((5, 2), "last"),
        ((5, 3), "last"),
        ((5, 5), "solaris last"),
    ];
    for ((at, len), takers) in rows {
        for policy in WORDS {
            for isn in [0, u32::MAX - 6] {
                let mut c = opened(isn);
                out_of_turn(&mut c, 0, 4, b"oooo");
                out_of_turn(&mut c, 0, at, &b"nnnnnnnn"[..len]);
                out_of_turn(&mut c, 0, 0, b"....");
                let found = &streams(&run_with(&c, &[("policy", policy)]))[&FROM_CLIENT];
                let takes = takers.split(' ').any(|word| word == policy);
                // The first common byte.
                let both = found.as_bytes()[at.max(4) as usize];
                assert_eq!(char::from(both), if takes { 'n' } else { 'o' }, "{policy} {at} {len}: {found}");
            }
        }
    }
}

#[test]
fn the_target_says_which_policy() {
    let given = [("policy", "first"), ("policy.", "10.0.0.2/32=last")];
    for (side, expected) in [(0, "12nn~"), (1, "12oo~")] {
        let mut c = opened(5);
        out_of_turn(&mut c, side, 2, b"oo");
        out_of_turn(&mut c, side, 2, b"nn");
        out_of_turn(&mut c, side, 0, b"12");
        assert_eq!(streams(&run_with(&c, &given))[&(side as u32)], expected);
    }
}

/// Bytes that were given do not change under any policy.
#[test]
fn what_was_given_stays() {
    for policy in WORDS {
        let mut c = opened(5);
        c.send(0, b"GOOD");
        out_of_turn(&mut c, 0, -4, b"EVIL");
        let outcome = run_with(&c, &[("policy", policy), ("recall", "1k")]);
        assert_eq!(streams(&outcome)[&FROM_CLIENT], "GOOD~");
        assert_eq!((event(&outcome, "conflicting bytes"), event(&outcome, "repeated bytes")), (4, 4));
    }
}

#[test]
fn conflicts_are_counted() {
    // Number of differing bytes: compared with waiting data always, with given data on request.
    type Row<'a> = (&'a [(i64, &'a str)], &'a str, u64);
    let rows: [Row<'_>; 5] = [
        (&[(4, "GOOD"), (4, "GOOD"), (4, "GOAD")], "0", 1),
        (&[(4, "GOOD"), (2, "..EVIL.."), (0, "..")], "0", 4),
        (&[(4, "GOOD"), (0, "....EVIL..")], "0", 4),
        (&[(0, "GOOD"), (0, "EVIL")], "0", 0),
        (&[(0, "GOOD"), (2, "AD"), (0, "GOOD")], "1M", 1),
    ];
    for (segments, recall, expected) in rows {
        let mut c = opened(7);
        segments.iter().for_each(|(at, payload)| out_of_turn(&mut c, 0, *at, payload.as_bytes()));
        let outcome = run_with(&c, &[("recall", recall)]);
        assert_eq!(event(&outcome, "conflicting bytes"), expected, "{segments:?}");
    }
}

/// A segment over more pieces than the comparison limit is counted.
#[test]
fn comparing_has_an_end() {
    let mut c = opened(7);
    for place in 1..=(base::limits::TCP_COMPARED_PIECES as i64 + 1) {
        out_of_turn(&mut c, 0, place * 2, b"x");
    }
    out_of_turn(&mut c, 0, 1, &[b'y'; 1400]);
    let outcome = run(&c);
    assert_eq!(event(&outcome, "segments not compared with all"), 1);
    assert_eq!(event(&outcome, "conflicting bytes"), base::limits::TCP_COMPARED_PIECES as u64);
}
