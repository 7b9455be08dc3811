//! Segments that the receiver would drop: wrong checksums, old timestamps, data beyond the window, unfit resets. Also
//! urgent data, and data with a SYN.

use super::*;
use packet::checksum::Sum;
use packet::pseudo;

const OFFSET: usize = 14 + 20;

/// The frame with these options in its TCP header; their length is a multiple of four.
fn with_options(mut frame: Vec<u8>, options: &[u8]) -> Vec<u8> {
    frame.splice(OFFSET + 20..OFFSET + 20, options.iter().copied());
    frame[OFFSET + 12] += (options.len() as u8 / 4) << 4;
    let total = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame
}

/// The options of a segment with timestamps.
fn stamp(value: u32, echo: u32) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat()
}

/// The frame with a checksum that is `wrong_by` too large.
fn summed(mut frame: Vec<u8>, wrong_by: u16) -> Vec<u8> {
    let address = |at: usize| std::net::IpAddr::from([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let (source, target) = (address(26), address(30));
    frame[OFFSET + 16..OFFSET + 18].fill(0);
    let pseudo = pseudo::sum(source, target, 6, (frame.len() - OFFSET) as u16);
    let field = pseudo.and(Sum::of(&frame[OFFSET..])).checksum().wrapping_add(wrong_by);
    frame[OFFSET + 16..OFFSET + 18].copy_from_slice(&field.to_be_bytes());
    frame
}

/// The frame with the sum of the pseudo header alone, which a device would finish.
fn unfinished(frame: Vec<u8>) -> Vec<u8> {
    let pseudo = pseudo::sum(CLIENT.0.into(), SERVER.0.into(), 6, (frame.len() - OFFSET) as u16);
    let mut frame = frame;
    frame[OFFSET + 16..OFFSET + 18].copy_from_slice(&pseudo.folded().to_be_bytes());
    frame
}

/// A conversation with right checksums.
fn opened_with_sums(isn: u32) -> Conversation {
    let mut c = opened(isn);
    c.frames.iter_mut().for_each(|(_, frame)| *frame = summed(std::mem::take(frame), 0));
    c
}

fn client(c: &Conversation, given: &[(&str, &str)]) -> (String, Outcome) {
    let outcome = Chain::frames(ETHERNET, &c.frames).then(&KIND, given).run();
    (streams(&outcome)[&FROM_CLIENT].clone(), outcome)
}

#[test]
fn wrong_checksums() {
    // A forged copy comes first, and is not acknowledged before the right one.
    let forged = |c: &Conversation| summed(c.segment(0, 0, flag::ACK, b"EVIL"), 1);
    let good = |c: &Conversation| summed(c.segment(0, 0, flag::ACK, b"GOOD"), 0);
    for (checksum, expected) in [("auto", "GOOD~"), ("yes", "GOOD~"), ("no", "EVIL~")] {
        let mut c = opened_with_sums(9);
        let both = [forged(&c), good(&c)];
        both.into_iter().for_each(|frame| then(&mut c, frame));
        let (found, outcome) = client(&c, &[("checksum", checksum)]);
        assert_eq!(found, expected);
        let drops = outcome.counters("tcp").drops.get("wrong checksum") + event(&outcome, "wrong checksum");
        assert_eq!(drops, u64::from(checksum != "no"), "{checksum}");
    }
    // The capture has only this copy of acknowledged bytes, so it was sound at the receiver.
    let mut c = opened_with_sums(9);
    let frames = [
        forged(&c),
        summed(tcp(SERVER, CLIENT, 1_000_010, 14, flag::ACK, b""), 0),
        summed(c.segment(0, 4, flag::ACK, b" and more"), 1),
    ];
    frames.into_iter().for_each(|frame| then(&mut c, frame));
    let (found, outcome) = client(&c, &[]);
    assert_eq!((found.as_str(), event(&outcome, "bytes in doubt given")), ("EVIL and more~", 4));
    assert_eq!(client(&c, &[("checksum", "yes")]).0, "[4]~");
    // Not acknowledged.
    let mut c = opened_with_sums(9);
    let frame = forged(&c);
    then(&mut c, frame);
    assert_eq!(client(&c, &[]).0, "~");
}

#[test]
fn checksums_that_a_device_was_to_finish() {
    let mut c = opened_with_sums(9);
    let frame = unfinished(c.segment(0, 0, flag::ACK, b"GOOD"));
    then(&mut c, frame);
    assert_eq!(client(&c, &[]).0, "GOOD~");
    assert_eq!(client(&c, &[("checksum", "yes")]).0, "~");
    // A sender with only wrong checksums was captured before a device finished them.
    let mut c = opened(9);
    c.frames.iter_mut().for_each(|(_, frame)| *frame = summed(std::mem::take(frame), 7));
    let frame = summed(c.segment(0, 0, flag::ACK, b"GOOD"), 7);
    then(&mut c, frame);
    assert_eq!(client(&c, &[]).0, "GOOD~");
    let outcome = Chain::frames(ETHERNET, &c.frames).then(&KIND, &[("checksum", "yes")]).run();
    assert_eq!(outcome.counters("tcp").drops.get("wrong checksum"), 4);
    // The source marks the checksum as open: then even a sum unlike the pseudo header's does not count.
    let mut c = opened_with_sums(9);
    let frame = summed(c.segment(0, 0, flag::ACK, b"GOOD"), 7);
    then(&mut c, frame);
    for (flags, checksum, expected) in
        [(Flags::CHECKSUM_OPEN, "auto", "GOOD~"), (Flags::NONE, "auto", "~"), (Flags::CHECKSUM_OPEN, "yes", "~")]
    {
        let pieces = c.frames.iter().map(|(time, bytes)| {
            let mut block = Descriptor { time: *time, ..Descriptor::default() };
            block.set_wire(bytes.len() as u32);
            block.add_flags(flags);
            (block, bytes.clone())
        });
        let chain = Chain::pieces(Type::Frame, Some(ETHERNET), pieces.collect());
        let outcome = chain.then(&KIND, &[("checksum", checksum)]).run();
        assert_eq!(streams(&outcome)[&FROM_CLIENT], expected, "{flags:?} {checksum}");
    }
    // The checksum of a frame that was cut is unknown.
    let mut c = opened_with_sums(9);
    let mut frame = summed(c.segment(0, 0, flag::ACK, b"GOOD"), 7);
    frame.truncate(frame.len() - 2);
    then(&mut c, frame);
    assert_eq!(client(&c, &[("checksum", "no")]).0, "GO~");
}

/// A conversation with timestamps: the client's clock says 1000, the server's 5000.
fn opened_with_stamps() -> Conversation {
    let mut c = opened(9);
    let stamps = [stamp(1000, 0), stamp(5000, 1000), stamp(1001, 5000)];
    for ((_, frame), stamp) in c.frames.iter_mut().zip(stamps) {
        *frame = with_options(std::mem::take(frame), &stamp);
    }
    c
}

#[test]
fn old_timestamps() {
    // Rows: the timestamps of two segments for one place, the first with EVIL, and the bytes that count.
    let rows = [
        (900, 1002, "GOOD~"),
        (999, 1002, "GOOD~"),
        (1000, 1002, "EVIL~"),
        (1002, 1001, "EVIL~"),
        (1001 ^ 0x8000_0000, 1002, "GOOD~"),
    ];
    for (forged, good, expected) in rows {
        // In the order of nearly all stacks, and in another.
        for turned in [false, true] {
            let of = |c: &Conversation, value, payload: &[u8]| {
                let mut options = stamp(value, 5000);
                options.rotate_left(if turned { 2 } else { 0 });
                with_options(c.segment(0, 0, flag::ACK, payload), &options)
            };
            let mut c = opened_with_stamps();
            let both = [of(&c, forged, b"EVIL"), of(&c, good, b"GOOD")];
            both.into_iter().for_each(|frame| then(&mut c, frame));
            assert_eq!(client(&c, &[]).0, expected, "{forged} {good}");
            assert_eq!(client(&c, &[("check", "no")]).0, "EVIL~");
        }
    }
    // The clock wraps.
    let mut c = opened(9);
    for ((_, frame), stamp) in c.frames.iter_mut().zip([stamp(u32::MAX, 0), stamp(7, u32::MAX), stamp(1, 7)]) {
        *frame = with_options(std::mem::take(frame), &stamp);
    }
    for (value, payload) in [(2, "ab"), (u32::MAX - 5, "XX"), (3, "cd")] {
        let offset = if payload == "cd" { 2 } else { 0 };
        let frame = with_options(c.segment(0, offset, flag::ACK, payload.as_bytes()), &stamp(value, 7));
        then(&mut c, frame);
    }
    assert_eq!(client(&c, &[]).0, "abcd~");
}

/// suricata-verify, bug-3286: forged reset and FIN, before the server's answer and during it.
#[test]
fn forged_ends_with_wrong_timestamps() {
    let mut c = Conversation::midstream(CLIENT, SERVER, 0);
    let of = |frame, value, echo| with_options(frame, &stamp(value, echo));
    let frames = [
        of(tcp(CLIENT, SERVER, 9, 0, flag::SYN, b""), 1_821_165_629, 0),
        of(tcp(SERVER, CLIENT, 0, 10, flag::RST | flag::ACK, b""), 100, 100),
        of(tcp(SERVER, CLIENT, 0, 10, flag::FIN | flag::ACK, b""), 100, 100),
        of(tcp(SERVER, CLIENT, 70, 10, flag::SYN | flag::ACK, b""), 50_000, 1_821_165_629),
        of(tcp(CLIENT, SERVER, 10, 71, flag::ACK, b"GET"), 1_821_165_693, 50_000),
        of(tcp(SERVER, CLIENT, 71, 13, flag::RST, b""), 49_000, 0),
        of(tcp(SERVER, CLIENT, 71, 13, flag::FIN | flag::ACK, b""), 49_000, 1_821_165_693),
    ];
    frames.into_iter().for_each(|frame| then(&mut c, frame));
    wait(&mut c, 20);
    then(&mut c, of(tcp(SERVER, CLIENT, 71, 13, flag::ACK, b"200"), 70_000, 1_821_165_693));
    let outcome = check(&c, &["GET~", "200~"]);
    let drops: Vec<_> = outcome.counters("tcp").drops.iter().collect();
    assert_eq!(drops, [("old timestamp", 2), ("timestamp never sent", 2)]);
}

#[test]
fn what_is_beyond_the_window() {
    // The server shifts its windows by 2 if the client supports shifts: 65535 << 2 bytes.
    for (both, room) in [(true, 4 * 65535), (false, 65535)] {
        let mut c = opened(9);
        let shift = [3, 3, 2, 1];
        for (place, (_, frame)) in c.frames.iter_mut().enumerate().take(2) {
            if both || place == 1 {
                *frame = with_options(std::mem::take(frame), &shift);
            }
        }
        let acknowledgement = c.segment(1, 0, flag::ACK, b"");
        then(&mut c, acknowledgement);
        out_of_turn(&mut c, 0, room - 3, b"EVIL");
        out_of_turn(&mut c, 0, room - 4, b"IN");
        let (found, outcome) = client(&c, &[]);
        assert_eq!(found.trim_start_matches(|c| c != ']'), "]IN~", "{found}");
        assert_eq!(event(&outcome, "beyond the window"), 1);
    }
    // A capture that lost more than a window goes on where the receiver does.
    let mut c = opened(9);
    c.lose(0, 1_000_000).send(0, b"ab");
    let acknowledgement = c.segment(1, 0, flag::ACK, b"");
    then(&mut c, acknowledgement);
    c.send(0, b"cd");
    assert_eq!(client(&c, &[]).0, "[1000000]abcd~");
}

#[test]
fn data_without_ack() {
    let mut c = opened(9);
    let frame = c.segment(0, 0, 0, b"EVIL");
    then(&mut c, frame);
    c.send(0, b"GOOD");
    assert_eq!(client(&c, &[]).0, "GOOD~");
    assert_eq!(client(&c, &[("check", "no")]).0, "EVIL~");
}

/// RFC 5961, 3.2: a reset must match the receiver's next byte.
#[test]
fn resets_that_do_not_fit() {
    for (offset, is_taken) in [(0, true), (-2, false), (5, false), (60_000, false), (-1, false)] {
        let mut c = opened(9);
        c.send(0, b"ab").send(1, b"ok");
        let reset = c.segment(0, offset, flag::RST, b"");
        then(&mut c, reset);
        wait(&mut c, 8);
        c.send(0, b"cd");
        let outcome = run(&c);
        let connections = if is_taken { 2 } else { 1 };
        assert_eq!(event(&outcome, "connections"), connections, "{offset}");
        assert_eq!(event(&outcome, "resets ignored"), u64::from(!is_taken));
    }
    // An answer to a SYN acknowledges it.
    for (acknowledgment, is_taken) in [(10, true), (9, false), (11, false)] {
        let mut c = Conversation::midstream(CLIENT, SERVER, 9);
        then(&mut c, tcp(CLIENT, SERVER, 9, 0, flag::SYN, b""));
        then(&mut c, tcp(SERVER, CLIENT, 0, acknowledgment, flag::RST | flag::ACK, b""));
        assert_eq!(event(&run(&c), "resets ignored"), u64::from(!is_taken));
    }
}

/// A frame with an urgent pointer.
fn urgent(c: &Conversation, offset: i64, pointer: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = c.segment(0, offset, flag::ACK | 0x20, payload);
    frame[OFFSET + 18..OFFSET + 20].copy_from_slice(&pointer.to_be_bytes());
    frame
}

/// What a program reads on Linux 6.18 that reads at once, found by raw segments between two network namespaces.
#[test]
fn urgent_bytes_are_those_that_linux_leaves_out() {
    // Segments: offset, urgent pointer, bytes. Then what is read, and the number of pointers that counted.
    type Row<'a> = (&'a [(i64, Option<u16>, &'a str)], &'a str, u64);
    let rows: [Row<'_>; 21] = [
        (&[(0, Some(3), "abXcd")], "abcd", 1),
        (&[(0, Some(1), "Xab")], "ab", 1),
        (&[(0, Some(0), "Xabcd")], "abcd", 1),
        (&[(0, None, "ab"), (2, Some(0), "Xcd")], "abcd", 1),
        (&[(0, Some(3), "abX"), (3, None, "cd")], "abcd", 1),
        // suricata-verify, tcp-urgp-01.
        (&[(0, None, "GET /malic"), (10, Some(1), "X"), (11, None, "ious")], "GET /malicious", 1),
        // The byte is in a later segment.
        (&[(0, Some(5), "ab"), (2, None, "cdXe")], "abcde", 1),
        (&[(0, Some(5), "ab"), (2, Some(3), "cdXe")], "abcde", 1),
        (&[(0, Some(3), ""), (0, None, "abXcd")], "abcd", 1),
        (&[(0, Some(0), ""), (0, None, "Xabcd")], "abcd", 1),
        (&[(0, Some(60_000), "abcd"), (4, None, "ef")], "abcdef", 1),
        (&[(0, None, "abc"), (0, Some(5), "abc"), (3, None, "deXfg")], "abcdXfg", 1),
        // It was read before.
        (&[(0, None, "abX"), (0, Some(3), "abXcd")], "abXcd", 0),
        (&[(0, Some(3), "abX"), (0, None, "abXcd")], "abcd", 1),
        (&[(0, Some(3), "abX"), (3, Some(3), "cdY"), (6, None, "ef")], "abcdef", 2),
        (&[(0, Some(3), "abX"), (3, Some(1), "Y"), (4, None, "ef")], "abef", 2),
        // A later pointer counts, whichever comes first.
        (&[(0, Some(5), "ab"), (2, Some(9), "cdXef"), (7, None, "ghijkl")], "abcdXefghikl", 2),
        (&[(0, Some(9), "ab"), (2, Some(3), "cdXef"), (7, None, "ghijkl")], "abcdXefgijkl", 1),
        // Segments out of order.
        (&[(3, Some(2), "cXd"), (0, Some(3), "abX")], "abXcd", 1),
        (&[(3, Some(2), "cXd"), (0, None, "abX")], "abXcd", 1),
        (&[(3, None, "cXd"), (0, Some(5), "abX")], "abXcd", 1),
    ];
    for (segments, expected, count) in rows {
        for isn in [9, u32::MAX - 3] {
            let mut c = opened(isn);
            for (at, pointer, payload) in segments {
                let frame = match *pointer {
                    None => c.segment(0, *at, flag::ACK, payload.as_bytes()),
                    Some(pointer) => urgent(&c, *at, pointer, payload.as_bytes()),
                };
                then(&mut c, frame);
            }
            let (found, outcome) = client(&c, &[("urgent", "oob")]);
            assert_eq!(found, format!("{expected}~"), "{segments:?}");
            assert_eq!((event(&outcome, "urgent bytes"), event(&outcome, "gaps")), (count, 0), "{segments:?}");
            let all: usize = segments.iter().map(|(at, _, payload)| *at as usize + payload.len()).max().unwrap_or(0);
            assert_eq!(client(&c, &[]).0.len(), all + 1, "inline");
        }
    }
}

#[test]
fn data_of_a_syn() {
    let syn = |payload: &[u8]| tcp(CLIENT, SERVER, 9, 0, flag::SYN, payload);
    let answer = |to: u32| tcp(SERVER, CLIENT, 70, to, flag::SYN | flag::ACK, b"");
    let data = |sequence: u32, payload: &[u8]| tcp(CLIENT, SERVER, sequence, 71, flag::ACK, payload);
    let rows: [(&[Vec<u8>], &str); 8] = [
        // Taken, with more data after it.
        (&[syn(b"early"), answer(15), data(15, b" late")], "early late~"),
        // Not taken: sent again, or replaced.
        (&[syn(b"early"), answer(10), data(10, b"early late")], "early late~"),
        (&[syn(b"EVIL"), answer(10), data(10, b"GOOD")], "GOOD~"),
        // The answer was not seen: the sender's next data decides.
        (&[syn(b"EVIL"), data(10, b"GOOD")], "GOOD~"),
        (&[syn(b"early"), data(15, b" late")], "early late~"),
        // No other data.
        (&[syn(b"early")], "early~"),
        (&[syn(b"early"), answer(10)], "~"),
        (&[syn(b"early"), syn(b"early"), answer(15)], "early~"),
    ];
    for (frames, expected) in rows {
        let mut c = Conversation::midstream(CLIENT, SERVER, 9);
        frames.iter().for_each(|frame| then(&mut c, frame.clone()));
        assert_eq!(client(&c, &[]).0, expected);
    }
}

/// More bytes than sequence numbers, in frames that were cut behind their headers.
#[test]
fn a_stream_of_more_than_four_gib() {
    const SPAN: u32 = 65_495;
    let count = (1_u64 << 32) / u64::from(SPAN) + 2;
    let mut pieces = Vec::new();
    let mut add = |frame: Vec<u8>, wire: usize| {
        let mut block = Descriptor::default();
        block.set_wire(wire as u32);
        pieces.push((block, frame));
    };
    let first = 4_000_000_000_u32;
    add(tcp(CLIENT, SERVER, first, 0, flag::SYN, b""), 54);
    for place in 0..count {
        let sequence = first.wrapping_add(1).wrapping_add((place * u64::from(SPAN)) as u32);
        let mut frame = tcp(CLIENT, SERVER, sequence, 1, flag::ACK, b"");
        frame[16..18].copy_from_slice(&u16::MAX.to_be_bytes());
        add(frame, 14 + 65_535);
    }
    let end = first.wrapping_add(1).wrapping_add((count * u64::from(SPAN)) as u32);
    add(tcp(CLIENT, SERVER, end, 1, flag::ACK, b"end"), 57);
    let outcome = Chain::pieces(Type::Frame, Some(ETHERNET), pieces).then(&KIND, &[]).run();
    let of_client = outcome.blocks.iter().filter(|block| block.descriptor.class.0 == FROM_CLIENT);
    let bytes: u64 = of_client.clone().map(|block| u64::from(block.descriptor.wire())).sum();
    assert_eq!(bytes, count * u64::from(SPAN) + 3);
    assert!(of_client.clone().any(|block| block.bytes == b"end"));
}
