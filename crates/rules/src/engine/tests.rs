//! Bodies that arrive piece by piece.

use super::*;
use crate::Options;
use crate::names::App;

const HEADER: &str = "http any any -> any any";

/// A transaction with a growing response body.
struct Growing {
    engine: Engine,
    flow: FlowState,
    one: Transaction,
}

impl Growing {
    fn new(rules: &str) -> Growing {
        let set = RuleSet::read(rules, &Options::default()).unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
        let mut engine = Engine::new(Arc::new(set));
        engine.look_at_each_piece();
        let mut flow = FlowState::new(0);
        flow.app = App::Http1;
        let mut one = Transaction::new(App::Http1, 0);
        one.put_copy(Buffer::HTTP_URI, true, b"/here");
        one.put_copy(Buffer::HTTP_STAT_CODE, false, b"200");
        let mut growing = Growing { engine, flow, one };
        growing.look(true);
        growing
    }

    fn add(&mut self, bytes: &[u8]) {
        self.one.append_copy(Buffer::HTTP_RESPONSE_BODY, false, bytes);
        self.one.alias(Buffer::FILE_DATA, false, Buffer::HTTP_RESPONSE_BODY);
        (self.one.growing[1], self.one.file_growing[1]) = (true, true);
    }

    /// Inspects the transaction (`is_all`) or its new bytes. Returns the steps spent, and whether a rule drops the
    /// packet.
    fn look(&mut self, is_all: bool) -> (u32, bool) {
        let packet = Packet {
            flow: Some(packet::Flow {
                source: [10, 0, 0, 2].into(),
                target: [10, 0, 0, 1].into(),
                source_port: 80,
                target_port: 4000,
                protocol: 6,
            }),
            version: 4,
            time: 0,
            link: &[],
            network: &[],
            transport: &[],
            payload: &[],
            payload_len: 0,
            tcp: None,
            icmp: None,
            to_server: false,
            established: true,
            in_stream: true,
            fragment: false,
            events: &[],
        };
        let Growing { engine, flow, one } = self;
        engine.begin();
        match is_all {
            true => engine.transaction(&packet, Some(flow), one, false, None),
            false => engine.body(&packet, Some(flow), one, false, None),
        }
        let steps = RULES_STEPS - engine.budget.steps;
        (steps, engine.finish(&packet, Some(flow), |_, _| {}) != Verdict::Pass)
    }
}

fn rule(options: &str) -> String {
    format!("drop {HEADER} (msg:\"x\"; {options} sid:1;)")
}

/// Whether a set has a body is known only at its end.
#[test]
fn a_rule_on_a_set_of_bodies_does_not_wait() {
    let mut growing = Growing::new(&rule("file.data; content:\"first\"; dataset:isnotset,seen,type string;"));
    for byte in b"..first.." {
        growing.add(&[*byte]);
        assert!(!growing.look(false).1);
        assert!(growing.one.waiting[1].is_empty());
    }
    (growing.one.growing[1], growing.one.file_growing[1]) = (false, false);
    growing.one.complete[1] = true;
    assert!(growing.look(true).1);
}

/// Feeds a body byte by byte. `expected`: the length at which a rule drops it; `None`: never before the end.
fn check(options: &str, body: &[u8], expected: Option<usize>) {
    let mut growing = Growing::new(&rule(options));
    let stops = (1..=body.len()).find(|end| {
        growing.add(&body[end - 1..*end]);
        growing.look(false).1
    });
    assert_eq!(stops, expected, "{options}");
}

#[test]
fn the_piece_that_completes_a_match_is_stopped() {
    let body = b"....first....second....end";
    check("file.data; content:\"second\";", body, Some(19));
    check("http.response_body; content:\"SECOND\"; nocase;", body, Some(19));
    check("file.data; content:\"first\"; content:\"end\";", body, Some(26));
    check("file.data; content:\"second\"; content:\"f\"; content:\"d.\";", body, Some(20));
    check("file.data; content:\"first\"; content:\"se\"; distance:4; within:2;", body, Some(15));
    check("file.data; content:\"first\"; pcre:\"/s.c/R\";", body, Some(16));
    check("file.data; pcre:\"/f[a-z]+\\.+s/\";", body, Some(14));
    check("file.data; content:\"first\"; isdataat:5,relative;", body, Some(14));
    check("file.data; content:\"first\"; byte_test:1,=,46,1,relative;", body, Some(11));
    check("file.data; content:\"first\"; content:!\"x\"; within:3;", body, Some(13));
    check("file.data; to_uppercase; content:\"SECOND\";", body, Some(19));
    check("http.stat_code; content:\"200\"; file.data; content:\"en\";", body, Some(17 + 8));
    check("http.stat_code; content:\"404\"; file.data; content:\"en\";", body, None);
    // Absence is known only at the end.
    check("file.data; content:\"first\"; content:!\"x\";", body, None);
    check("file.data; content:\"first\"; content:!\"x\"; offset:40;", body, None);
    check("file.data; content:\"end\"; endswith;", body, None);
    check("file.data; content:\"first\"; bsize:26;", body, None);
}

#[test]
fn what_is_known_at_the_end_alone_is_looked_at_then() {
    for (options, stops) in [
        ("content:\"first\"; content:!\"x\";", true),
        ("content:\"first\"; content:!\".\";", false),
        ("bsize:7;", true),
    ] {
        let mut growing = Growing::new(&rule(&format!("file.data; {options}")));
        for byte in b"first.." {
            growing.add(&[*byte]);
            assert!(!growing.look(false).1);
        }
        let one = &mut growing.one;
        (one.growing[1], one.file_growing[1], one.complete[1]) = (false, false, true);
        assert_eq!(growing.look(true).1, stops, "{options}");
        assert!(growing.one.waiting[1].is_empty());
    }
}

/// Piecewise inspection finds the same as full inspection after each piece.
#[test]
fn pieces_show_what_the_whole_shows() {
    let steps = [
        "content:\"ab\";",
        "content:\"b\"; nocase;",
        "content:\"ba\"; distance:1;",
        "content:\"a\"; within:3;",
        "content:\"cc\"; distance:0; within:4;",
        "content:!\"c\"; within:2;",
        "pcre:\"/a.b/\";",
        "pcre:\"/b+c/R\";",
        "isdataat:2,relative;",
        "content:!\"cab\";",
        "content:\"c\"; offset:3; depth:4;",
    ];
    let (mut state, mut stopped, mut rules) = (1_u64, 0, 0);
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for _ in 0..1500 {
        let chosen: String = (0..1 + next(3)).map(|_| steps[next(steps.len())]).collect();
        let text = rule(&format!("file.data; {chosen}"));
        if RuleSet::read(&text, &Options::default()).is_err() {
            continue;
        }
        rules += 1;
        let (mut pieces, mut whole) = (Growing::new(&text), Growing::new(&text));
        for _ in 0..12 {
            let piece: Vec<u8> = (0..1 + next(3)).map(|_| b"abcB"[next(4)]).collect();
            pieces.add(&piece);
            whole.add(&piece);
            let (got, expected) = (pieces.look(false).1, whole.look(true).1);
            assert_eq!(got, expected, "{chosen} {:?}", pieces.one.first(Buffer::FILE_DATA, false));
            if got {
                stopped += 1;
                break;
            }
        }
    }
    assert!(rules > 500 && stopped > 100 && stopped < rules, "{stopped} of {rules}");
}

/// 100 KiB in single bytes have a bounded cost per byte, whatever rules wait for; or they count as cut short.
#[test]
fn single_bytes_are_cheap() {
    for (options, byte, is_cut) in [
        ("content:\"never there at all\";", b'x', false),
        ("content:\"aa\"; fast_pattern; content:\"never\";", b'a', false),
        ("content:\"aa\"; fast_pattern; content:\"aaaaa\"; content:!\"a\"; distance:0; within:1;", b'a', true),
        ("content:\"aaaaaaaaaa\"; nocase; content:\"b\"; distance:0;", b'a', false),
        ("content:\"xa\"; content:\"never\";", b'x', false),
        ("content:\"x\"; pcre:\"/y+z/\";", b'x', true),
    ] {
        let mut growing = Growing::new(&rule(&format!("file.data; {options}")));
        let mut all = 0_u64;
        for _ in 0..100 << 10 {
            growing.add(&[byte]);
            all += u64::from(growing.look(false).0);
        }
        assert_eq!(growing.engine.take_bounds().steps > 0, is_cut, "{options}");
        // Each inspection takes a few steps. Tries share one budget; the last may exceed it by the budget of one
        // packet.
        let most = (100 << 10) * 16 + u64::from(base::limits::RULES_BODY_STEPS + RULES_STEPS);
        assert!(all < most, "{options}: {all}");
    }
}

/// Rules that only alert leave a packet decided when they are cut short, unless a rule that drops tests their state.
#[test]
fn a_cut_in_a_rule_that_only_alerts_leaves_the_packet_decided() {
    const COSTLY: &str = "file.data; content:\"aa\"; content:\"aa\"; distance:0; content:!\"a\"; distance:0; within:1;";
    let alert = |options: &str, sid: u32| format!("alert {HEADER} (msg:\"x\"; {COSTLY} {options} sid:{sid};)\n");
    let drop = format!("drop {HEADER} (msg:\"x\"; flowbits:isset,a; http.uri; content:\"/here\"; sid:3;)\n");
    for (rules, is_undecided) in [
        (alert("", 1), false),
        (alert("flowbits:set,a;", 1), false),
        (alert("", 1) + &drop, false),
        (alert("flowbits:set,a;", 1) + &drop, true),
        (rule(COSTLY), true),
        (alert("", 2) + &rule("file.data; content:\"aab\";"), false),
    ] {
        let mut growing = Growing::new(&rules);
        growing.add(&vec![b'a'; 100 << 10]);
        growing.look(true);
        let bounds = growing.engine.take_bounds();
        assert!(bounds.steps > 0, "{rules}");
        assert_eq!(bounds.undecided > 0, is_undecided, "{rules}");
    }
}
