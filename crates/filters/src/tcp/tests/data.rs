//! Data in and out of order, repeated and missing; frames without data. One row per behaviour.

use super::*;
use packet::encapsulation::Vlans;

#[test]
fn a_whole_connection() {
    let mut c = opened(100);
    c.send(0, b"GET ").send(0, b"/").send(1, b"200 ").send(1, b"OK");
    close(&mut c);
    let outcome = check(&c, &["GET /$", "200 OK$"]);
    let facts = outcome.blocks[0].stream.as_ref().unwrap();
    let expected = Flow {
        source: CLIENT.0.into(),
        target: SERVER.0.into(),
        source_port: CLIENT.1,
        target_port: SERVER.1,
        protocol: 6,
    };
    assert_eq!((facts.flow, facts.start, facts.reuse, facts.vlans), (expected, 0, 0, Vlans::default()));
    assert_eq!(outcome.blocks.last().unwrap().stream.as_ref().unwrap().state, StreamState::Closed);
    // Blocks leave as soon as they are next, not at the end of the connection.
    let order: Vec<_> = outcome.blocks.iter().map(|block| block.descriptor.class.0).collect();
    assert_eq!(order, [0, 0, 1, 1, 0, 1]);
    assert_eq!(outcome.blocks[1].descriptor.time, 4 * MILLISECOND);
}

#[test]
fn segments_out_of_order_are_put_in_order() {
    let orders: [&[usize]; 4] = [&[1, 0], &[2, 1, 0], &[1, 2, 0], &[3, 1, 0, 2]];
    for order in orders {
        let mut c = opened(u32::MAX - 3);
        let mut places: Vec<_> = order.iter().map(|place| (*place as i64 * 3, [b'a' + *place as u8; 3])).collect();
        for (offset, payload) in &places {
            out_of_turn(&mut c, 0, *offset, payload);
        }
        places.sort_unstable();
        let expected: String = places.iter().map(|(_, payload)| String::from_utf8_lossy(payload)).collect();
        let outcome = check(&c, &[&format!("{expected}~"), "~"]);
        assert_eq!((event(&outcome, "gaps"), event(&outcome, "repeated bytes")), (0, 0));
    }
}

/// Each block lies in its frame and has the frame's time, whenever it leaves and however it was cropped.
#[test]
fn each_range_knows_its_packet_and_time() {
    let mut c = opened(u32::MAX - 3);
    for (offset, payload) in [(6, "ghi"), (3, "DEF"), (8, "ijkl"), (0, "abcd")] {
        out_of_turn(&mut c, 0, offset, payload.as_bytes());
    }
    let outcome = check(&c, &["abcDEFghijkl~", "~"]);
    let given: Vec<_> = outcome.blocks.iter().filter(|block| !block.bytes.is_empty()).collect();
    let told: Vec<_> =
        given.iter().map(|it| (it.descriptor.time / MILLISECOND, String::from_utf8_lossy(&it.bytes))).collect();
    let expected = [(6, "abc"), (4, "DEF"), (3, "ghi"), (5, "jkl")];
    assert_eq!(told, expected.map(|(frame, bytes)| (frame, bytes.into())));
    // Frames are contiguous in the source's ring.
    let begin = |frame: usize| c.frames[..frame].iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
    for block in given {
        let frame = (block.descriptor.time / MILLISECOND) as usize;
        let range = begin(frame)..begin(frame + 1);
        assert!(range.contains(&block.descriptor.pos) && block.descriptor.pos + 3 <= range.end, "{block:?}");
    }
}

/// Rows: segments of the client as (position, bytes), and the stream.
#[test]
fn the_first_copy_of_a_byte_wins() {
    let rows: [(&[(i64, &str)], &str); 12] = [
        // suricata-verify, eve-overlap-payload 01 and 04.
        (&[(0, "GOOD"), (0, "EVIL")], "GOOD"),
        (&[(0, "GOOD"), (1, "ZZZ")], "GOOD"),
        (&[(0, "GOOD"), (0, "EVILMORE")], "GOODMORE"),
        (&[(0, "abc"), (1, "ZZdef")], "abcdef"),
        // Against held data.
        (&[(4, "GOOD"), (4, "EVIL"), (0, "1234")], "1234GOOD"),
        (&[(4, "GOOD"), (2, "ZZZZZZ"), (0, "12")], "12ZZGOOD"),
        (&[(4, "GOOD"), (6, "ZZZZ"), (0, "1234")], "1234GOODZZ"),
        (&[(4, "ab"), (8, "cd"), (0, "ZZZZZZZZZZZZ")], "ZZZZabZZcdZZ"),
        (&[(4, "ab"), (8, "cd"), (2, "ZZZZZZZZZZ"), (0, "YYYY")], "YYZZabZZcdZZ"),
        (&[(4, "ab"), (6, "cd"), (10, "ef"), (1, "ZZZZZZZZZ"), (0, "Y")], "YZZZabcdZZef"),
        (&[(2, "ab"), (0, "ZZZ")], "ZZab"),
        (&[(2, "ab"), (0, "ZZ"), (0, "YYYYYYY")], "ZZabYYY"),
    ];
    for (segments, expected) in rows {
        for isn in [0, u32::MAX - 5] {
            let mut c = opened(isn);
            for (offset, payload) in segments {
                out_of_turn(&mut c, 0, *offset, payload.as_bytes());
            }
            check(&c, &[&format!("{expected}~"), "~"]);
        }
    }
}

#[test]
fn lost_bytes_are_a_gap() {
    // Never seen, and the client never acknowledges: given up in the end.
    let mut c = opened(5);
    c.send(1, b"VERY").lose(1, 4).send(1, b"DATA").fin(1);
    check(&c, &["~", "VERY[4]DATA$"]);
    let mut c = opened(5);
    c.lose(1, 4).send(1, b"GOODDATA");
    check(&c, &["~", "[4]GOODDATA~"]);
    // After all captured bytes, but before the FIN.
    let mut c = opened(5);
    c.send(0, b"ab").lose(0, 3);
    close(&mut c);
    check(&c, &["ab[3]$", "$"]);
    // After all captured bytes: the server acknowledges them.
    let mut c = opened(5);
    c.send(0, b"ab").lose(0, 3).send(1, b"ok");
    check(&c, &["ab[3]~", "ok~"]);
    let mut c = opened(5);
    c.lose(0, 9);
    close(&mut c);
    check(&c, &["[9]$", "$"]);
}

/// Data waits for the bytes that it acknowledges, at most for a second, and missing bytes are told in their turn.
#[test]
fn both_directions_come_in_the_order_of_their_acknowledgements() {
    let order = |c: &Conversation| -> Vec<String> {
        let outcome = run(c);
        streams(&outcome);
        outcome.blocks.iter().map(|block| text(&block.descriptor, &block.bytes)).collect()
    };
    // The answer was captured first.
    let mut c = opened(5);
    c.send(0, b"question").send(1, b"answer").send(0, b"next");
    let frames = c.frames.len();
    c.frames.swap(frames - 3, frames - 2);
    assert_eq!(order(&c), ["question", "answer", "next", "~", "~"]);
    // An answer is lost.
    let mut c = opened(5);
    c.send(0, b"one").send(1, b"1").send(0, b"two").lose(1, 1).send(0, b"three").send(1, b"3").send(0, b"four");
    assert_eq!(order(&c), ["one", "1", "two", "[1]", "three", "3", "four", "~", "~"]);
    // A question is lost: its answer waits for a second.
    let mut c = opened(5);
    c.send(0, b"one").send(1, b"1").lose(0, 3).send(1, b"2");
    wait(&mut c, 3);
    c.send(1, b"more");
    let found = order(&c);
    assert_eq!(found[..4], ["one", "1", "2", "more"]);
    let outcome = run(&c);
    let counts = ["segments before what they acknowledge", "segments given before what they acknowledge"];
    assert_eq!(counts.map(|name| event(&outcome, name)), [1, 1], "and what comes then does not wait again");
}

#[test]
fn acknowledged_bytes_are_given_up_on_after_a_second() {
    let mut c = opened(5);
    c.send(1, b"ab").lose(1, 2).send(1, b"cd");
    out_of_turn(&mut c, 0, 0, b"got it");
    c.send(1, b"ef");
    wait(&mut c, 3);
    out_of_turn(&mut c, 0, 6, b"later");
    let outcome = check(&c, &["got itlater~", "ab[2]cdef~"]);
    let order: Vec<_> = outcome.blocks.iter().map(|block| text(&block.descriptor, &block.bytes)).collect();
    assert_eq!(order, ["ab", "[2]cd", "ef", "got it", "later", "~", "~"]);
    assert_eq!((event(&outcome, "gaps"), event(&outcome, "gap bytes")), (1, 2));

    // Not too early: the missing bytes still come.
    let mut c = opened(5);
    c.send(1, b"ab").lose(1, 2).send(1, b"cd");
    out_of_turn(&mut c, 0, 0, b"got it");
    out_of_turn(&mut c, 1, -4, b"xy");
    check(&c, &["got it~", "abxycd~"]);

    // Never while the receiver also waits for the bytes.
    let mut c = opened(5);
    c.send(1, b"ab");
    let acknowledgement = c.segment(0, 0, flag::ACK, b"");
    c.lose(1, 2).send(1, b"cd");
    then(&mut c, acknowledgement.clone());
    wait(&mut c, 20);
    then(&mut c, acknowledgement);
    out_of_turn(&mut c, 1, -4, b"xy");
    check(&c, &["~", "abxycd~"]);
}

#[test]
fn gap_wait_can_be_set() {
    let mut c = opened(5);
    c.send(1, b"ab").lose(1, 2).send(1, b"cd");
    out_of_turn(&mut c, 0, 0, b"got it");
    wait(&mut c, 5);
    out_of_turn(&mut c, 1, -4, b"xy");
    let chain = |wait| Chain::frames(ETHERNET, &c.frames).then(&KIND, &[("gap-wait", wait)]).run();
    assert_eq!(streams(&chain("10s"))[&FROM_SERVER], "abxycd~");
    assert_eq!(streams(&chain("0"))[&FROM_SERVER], "ab[2]cd~");
}

#[test]
fn a_gap_longer_than_a_block_can_say_is_several_blocks() {
    let mut c = opened(7);
    c.send(0, b"a").lose(0, 40_000_000);
    let acknowledgement = c.segment(1, 0, flag::ACK, b"");
    then(&mut c, acknowledgement);
    c.send(0, b"b");
    let outcome = check(&c, &["a[16777215][16777215][6445570]b~", "~"]);
    let gap: u32 = outcome.blocks.iter().map(|block| block.descriptor.gap()).sum();
    assert_eq!(gap, 40_000_000);
}

#[test]
fn probes_and_keep_alives_add_nothing() {
    let mut c = opened(u32::MAX);
    c.send(0, b"ab").send(1, b"cd");
    out_of_turn(&mut c, 0, -1, b"");
    out_of_turn(&mut c, 0, -1, b"?");
    out_of_turn(&mut c, 1, -1, b"\0");
    // A probe of a zero window carries the next byte, which is sent again once the window opens.
    out_of_turn(&mut c, 0, 0, b"e");
    out_of_turn(&mut c, 0, 0, b"ef");
    let outcome = check(&c, &["abef~", "cd~"]);
    assert_eq!(event(&outcome, "repeated bytes"), 3);
}

/// Runs frames, with this many bytes cut off the end of each.
fn run_cut(frames: &[(u64, Vec<u8>)], cut: &[usize]) -> Outcome {
    let pieces = frames.iter().zip(cut.iter().chain(std::iter::repeat(&0))).map(|((time, bytes), cut)| {
        let mut block = Descriptor { time: *time, ..Descriptor::default() };
        block.set_wire(bytes.len() as u32);
        (block, bytes[..bytes.len() - cut].to_vec())
    });
    Chain::pieces(Type::Frame, Some(ETHERNET), pieces.collect()).then(&KIND, &[]).run()
}

#[test]
fn what_the_snap_length_cut_is_a_gap() {
    let mut c = opened(9);
    c.send(0, b"0123456789").send(0, b"abc").send(0, b"xyz");
    assert_eq!(streams(&run_cut(&c.frames, &[0, 0, 0, 4]))[&FROM_CLIENT], "012345[4]abcxyz~");
    assert_eq!(streams(&run_cut(&c.frames, &[0, 0, 0, 10, 1]))[&FROM_CLIENT], "[10]ab[1]xyz~");
    assert_eq!(streams(&run_cut(&c.frames, &[0, 0, 0, 0, 0, 3]))[&FROM_CLIENT], "0123456789abc[3]~");
    // Cut inside its options or earlier: only its length is known.
    let mut early = opened(9);
    out_of_turn(&mut early, 0, 10, b"abc");
    out_of_turn(&mut early, 0, 0, b"0123456789");
    assert_eq!(streams(&run_cut(&early.frames, &[0, 0, 0, 2, 3]))[&FROM_CLIENT], "0123456[3]a[2]~");
}

#[test]
fn a_length_beyond_the_frame_is_not_believed() {
    let mut c = opened(9);
    let mut lying = c.segment(0, 0, flag::ACK, b"ab");
    lying[16..18].copy_from_slice(&60_000_u16.to_be_bytes());
    c.lose(0, 2);
    then(&mut c, lying);
    c.send(0, b"cd");
    check(&c, &["abcd~", "~"]);
}

#[test]
fn sequence_numbers_wrap() {
    for isn in (u32::MAX - 12)..=u32::MAX {
        let mut c = opened(isn.wrapping_sub(1_000_000));
        c.send(1, b"0123");
        out_of_turn(&mut c, 1, 4, b"89");
        c.send(1, b"4567").lose(1, 2).send(1, b"ab");
        c.send(0, b"x");
        close(&mut c);
        check(&c, &["x$", "0123456789ab$"]);
    }
}

#[test]
fn frames_that_are_not_for_it() {
    let mut c = opened(1);
    c.send(0, b"ab");
    let segment = c.frames[3].1.clone();
    let mut quoting = vec![3, 1, 0, 0, 0, 0, 0, 0];
    quoting.extend_from_slice(&segment[14..]);
    for other in [ipv4(SERVER.0, CLIENT.0, 1, &quoting), udp(CLIENT, SERVER, b"datagram"), vec![0xff; 60]] {
        then(&mut c, other);
    }
    for (place, bit) in [(20, 0x20), (21, 0x01)] {
        let mut fragment = segment.clone();
        fragment[place] |= bit;
        then(&mut c, fragment);
    }
    let mut malformed = segment.clone();
    malformed[46] = 0x40;
    then(&mut c, malformed);
    then(&mut c, segment[..40].to_vec());
    let outcome = check(&c, &["ab~", "~"]);
    let counters = outcome.counters("tcp");
    assert_eq!(counters.blocks_rejected, 3);
    let drops: Vec<_> = counters.drops.iter().collect();
    assert_eq!(drops, [("fragment", 2), ("tcp header length out of bounds", 1), ("truncated tcp header", 1)]);
}

#[test]
fn vlan_tags_are_facts_and_keep_connections_apart_unless_they_are_ignored() {
    let mut c = opened(1);
    c.send(0, b"ab").send(0, b"cd");
    for (index, (_, frame)) in c.frames.iter_mut().enumerate() {
        let tag = [0x81, 0, 0, 7 + index as u8 % 2];
        frame.splice(12..12, tag);
    }
    let outcome = check(&c, &["[2]cd~", "~", "ab~", "~"]);
    let vlans = |outcome: &Outcome| outcome.blocks[0].stream.as_ref().unwrap().vlans;
    assert_eq!(vlans(&outcome).ids(), [8]);
    let outcome = Chain::frames(1, &c.frames).then(&KIND, &[("vlan", "ignore")]).run();
    assert_eq!(streams(&outcome).into_values().collect::<Vec<_>>(), ["abcd~", "~"]);
    assert_eq!(vlans(&outcome).ids(), [7]);
}

#[test]
fn tunnels_are_facts_and_keep_connections_apart_unless_they_are_ignored() {
    let mut c = opened(1);
    c.send(0, b"ab").send(0, b"cd");
    let networks = [5, 6, 5, 6, 5];
    for ((_, frame), network) in c.frames.iter_mut().zip(networks) {
        let vxlan = [&[8, 0, 0, 0, 0, 0, network, 0], &frame[..]].concat();
        *frame = udp((SERVER.0, 50_000), (CLIENT.0, 4789), &vxlan);
    }
    let of = |given: &[(&str, &str)]| {
        let outcome = Chain::frames(1, &c.frames).then(&crate::decap::KIND, &[]).then(&KIND, given).run();
        let layer = outcome.blocks[0].stream.as_ref().unwrap().tunnels.as_ref().unwrap().layers().next().unwrap();
        assert_eq!(layer.kind, packet::tunnel::Kind::Vxlan);
        (streams(&outcome).into_values().collect::<Vec<_>>().join(" "), layer.id)
    };
    assert_eq!(of(&[]), ("[2]cd~ ~ ab~ ~".into(), Some(6)));
    assert_eq!(of(&[("tunnel", "ignore")]), ("abcd~ ~".into(), Some(5)));
}

#[test]
fn raw_packets_will_do() {
    let mut c = opened(1);
    c.send(0, b"ab");
    let packets: Vec<_> = c.frames.iter().map(|(time, frame)| (*time, frame[14..].to_vec())).collect();
    let outcome = Chain::frames(101, &packets).then(&KIND, &[]).run();
    assert_eq!(streams(&outcome)[&FROM_CLIENT], "ab~");
}
