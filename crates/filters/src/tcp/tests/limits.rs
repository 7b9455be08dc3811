//! Limits that are reached, and traffic designed to be expensive.

use super::*;
use crate::parts::origin::Origins;

pub(super) static SMALL: Kind = Kind::new("tcp", "with room for little", |params, _| {
    let settings =
        Settings { connections: 8, remembered: 2, held_per_direction: 4, held: 6, memory: 100, ..Settings::default() };
    Ok(with(settings, Origins::new(params)))
})
.gives(Type::Bytes)
.touches(Parts::DATA.with(Parts::METADATA), Parts::STREAMS);

fn run_small(conversation: &Conversation) -> Outcome {
    Chain::frames(ETHERNET, &conversation.frames).then(&SMALL, &[]).run()
}

#[test]
fn limits_can_be_set() {
    let mut all = opened(1);
    for number in 1..50 {
        then(&mut all, tcp((CLIENT.0, CLIENT.1 + number), SERVER, 1, 0, flag::SYN, b""));
    }
    for offset in [2, 4, 6, 8] {
        out_of_turn(&mut all, 0, offset, b"x");
    }
    let given = [("connections", "8"), ("segments", "2")];
    let outcome = Chain::frames(ETHERNET, &all.frames).then(&KIND, &given).run();
    assert_eq!(event(&outcome, "connections evicted"), 42);
    assert_eq!(event(&outcome, "held segments dropped to make room"), 2);
    for (key, most) in [("connections", "1048576"), ("segments", "262144")] {
        for value in ["0", "1048577"] {
            let error = Chain::frames(ETHERNET, &[]).then(&KIND, &[(key, value)]).refusal().unwrap();
            assert_eq!((error.key, error.message), (Some(key), format!("it is 1 to {most}")));
        }
    }
}

#[test]
fn a_connection_takes_little() {
    let size = size_of::<crate::tcp::connection::Connection>();
    assert!(size <= 248, "{size}");
}

#[test]
fn connections_make_room_for_others() {
    let client = |number: u16| (CLIENT.0, CLIENT.1 + number);
    let mut all = Conversation::midstream(CLIENT, SERVER, 0);
    let mut add = |number: u16, count: usize| {
        let mut c = Conversation::open(client(number), SERVER, 1);
        c.send(0, number.to_string().as_bytes());
        c.frames
            .into_iter()
            .skip(if count == 1 { 3 } else { 0 })
            .take(count)
            .for_each(|(_, frame)| then(&mut all, frame));
    };
    // Two connections with data, then a flood of SYNs, then one of the two goes on.
    add(0, 4);
    add(1, 4);
    (2..40).for_each(|number| add(number, 1 + usize::from(number > 100)));
    let flood: Vec<_> = (40..80).map(|number| tcp(client(number), SERVER, 1, 0, flag::SYN, b"")).collect();
    flood.into_iter().for_each(|frame| then(&mut all, frame));
    let outcome = run_small(&all);
    let streams = streams(&outcome);
    assert_eq!((streams.len(), streams[&0].as_str(), streams[&2].as_str()), (160, "0~", "1~"));
    assert_eq!(event(&outcome, "connections evicted"), 72);
    assert_eq!(event(&outcome, "connections unfinished"), 8);
}

#[test]
fn half_open_connections_make_room_before_others() {
    let client = |number: u16| (CLIENT.0, CLIENT.1 + number);
    let mut all = opened(1);
    all.send(0, b"ab");
    for number in 1..50 {
        then(&mut all, tcp(client(number), SERVER, 1, 0, flag::SYN, b""));
    }
    all.send(0, b"cd").send(1, b"ef");
    let outcome = run_small(&all);
    assert_eq!((streams(&outcome)[&0].as_str(), streams(&outcome)[&1].as_str()), ("abcd~", "ef~"));
    assert_eq!(event(&outcome, "connections evicted"), 42);
}

#[test]
fn few_ended_connections_are_remembered() {
    let mut all = Conversation::midstream(CLIENT, SERVER, 0);
    let mut conversations = Vec::new();
    for number in 0..5 {
        let mut c = Conversation::open((CLIENT.0, CLIENT.1 + number), SERVER, 1);
        c.send(0, b"x");
        close(&mut c);
        c.frames.iter().for_each(|(_, frame)| then(&mut all, frame.clone()));
        conversations.push(c);
    }
    for c in &conversations {
        then(&mut all, c.frames[3].1.clone());
    }
    let outcome = run_small(&all);
    // The first data of all must be new data: its sender was forgotten.
    assert_eq!(event(&outcome, "segments after the end"), 2);
    assert_eq!(streams(&outcome).len(), 16);
}

#[test]
fn too_much_held_is_a_gap_where_nobody_acknowledges() {
    let mut c = Conversation::midstream(CLIENT, SERVER, 1);
    then(&mut c, tcp(CLIENT, SERVER, 1, 0, flag::SYN, b""));
    c.lose(0, 1);
    for offset in [1, 3, 5, 7, 9, 11] {
        out_of_turn(&mut c, 0, offset, b"x");
    }
    let outcome = run_small(&c);
    assert_eq!(streams(&outcome)[&FROM_CLIENT], "[1]x[1]x[1]x[1]x[1]x[1]x~");
    assert_eq!((event(&outcome, "gaps to make room"), event(&outcome, "gaps")), (2, 6));
}

#[test]
fn too_much_held_goes_from_its_far_end_where_the_other_side_waits() {
    let mut c = opened(1);
    for offset in [900, 800, 700, 10, 8, 6, 4, 2] {
        out_of_turn(&mut c, 0, offset, b"x");
    }
    c.send(0, b"01").send(0, b"x3").send(0, b"x5").send(0, b"x7");
    let outcome = run_small(&c);
    assert_eq!(streams(&outcome)[&FROM_CLIENT], "01x3x5x7x~");
    assert_eq!(event(&outcome, "held segments dropped to make room"), 4);
    assert_eq!(event(&outcome, "gaps"), 0);
}

#[test]
fn held_bytes_and_blocks_of_all_connections_are_bounded() {
    for (payload, count) in [(vec![b'x'; 60], 2), (b"x".to_vec(), 10)] {
        let mut all = Conversation::midstream(CLIENT, SERVER, 0);
        for number in 0..count {
            let from = (CLIENT.0, CLIENT.1 + number % 4);
            if number < 4 {
                then(&mut all, tcp(from, SERVER, 0, 0, flag::SYN, b""));
            }
            then(&mut all, tcp(from, SERVER, 101 + u32::from(number) * 100, 0, flag::ACK, &payload));
        }
        let outcome = run_small(&all);
        assert!(event(&outcome, "gaps to make room") >= 1);
        let bytes: usize = outcome.blocks.iter().map(|block| block.bytes.len()).sum();
        assert_eq!(bytes, payload.len() * usize::from(count), "nothing is lost that was there");
    }
}

/// One connection misses one segment while another sends hundreds out of order: the other makes room.
#[test]
fn who_holds_most_makes_room() {
    let (victim, attacker) = (CLIENT, (CLIENT.0, CLIENT.1 + 1));
    for attacker_first in [false, true] {
        let mut all = Conversation::midstream(CLIENT, SERVER, 0);
        let ends = if attacker_first { [attacker, victim] } else { [victim, attacker] };
        for end in ends {
            then(&mut all, tcp(end, SERVER, 0, 0, flag::SYN, b""));
            then(&mut all, tcp(SERVER, end, 0, 1, flag::SYN | flag::ACK, b""));
            then(&mut all, tcp(end, SERVER, 1, 1, flag::ACK, b""));
        }
        then(&mut all, tcp(victim, SERVER, 6, 1, flag::ACK, b"WORLD"));
        then(&mut all, tcp(SERVER, victim, 1, 1, flag::ACK, b""));
        for number in 0..200 {
            then(&mut all, tcp(attacker, SERVER, 1000 + number * 200, 1, flag::ACK, &[b'x'; 100]));
        }
        then(&mut all, tcp(victim, SERVER, 1, 1, flag::ACK, b"HELLO"));
        then(&mut all, tcp(victim, SERVER, 11, 1, flag::ACK, b"!"));
        then(&mut all, tcp(SERVER, victim, 1, 12, flag::ACK, b""));
        let outcome = Chain::frames(ETHERNET, &all.frames).then(&KIND, &[("memory", "10k")]).run();
        let class = if attacker_first { 2 } else { 0 };
        assert_eq!(streams(&outcome)[&class], "HELLOWORLD!~");
        assert_eq!(event(&outcome, "held segments dropped to make room"), 98);
    }
}

/// Many tiny segments in the worst orders, and segments that cover them all, repeatedly.
#[test]
fn floods_of_segments_out_of_order_end() {
    let count = 8_000_i64;
    let descending = (1..count).rev().map(|place| place * 2);
    let spread = (1..count).map(|place| (place * 4_001) % count * 2);
    let orders: [Vec<i64>; 2] = [descending.collect(), spread.collect()];
    for order in orders {
        let mut c = opened(3);
        for offset in order {
            out_of_turn(&mut c, 0, offset, b"x");
        }
        for _ in 0..200 {
            out_of_turn(&mut c, 0, 1, &[b'y'; 16_000]);
        }
        out_of_turn(&mut c, 0, 0, b"z");
        let outcome = run(&c);
        let stream = &streams(&outcome)[&FROM_CLIENT];
        assert!(stream.starts_with("zyxyxyx") && stream.len() == 16_002, "{}", stream.len());
        assert_eq!(event(&outcome, "gaps"), 0);
    }
}

#[test]
fn a_finish_of_many_connections_comes_in_parts() {
    let mut all = Conversation::midstream(CLIENT, SERVER, 0);
    for number in 0..3_000 {
        then(&mut all, tcp((CLIENT.0, 1 + number), SERVER, 5, 0, flag::ACK, b"x"));
    }
    let outcome = run(&all);
    assert_eq!((streams(&outcome).len(), event(&outcome, "connections unfinished")), (6_000, 3_000));
}

static INLINE: Kind = Kind::new("tcp", "with room for little, between the two ends", |params, _| {
    let settings = Settings { held_per_direction: 4, held: 6, memory: 100, doubts: false, ..Settings::default() };
    Ok(with(settings, Origins::new(params)))
})
.gives(Type::Bytes)
.touches(Parts::DATA.with(Parts::METADATA), Parts::STREAMS);

/// Between the two ends held data has already passed, so the new piece is dropped.
#[test]
fn newcomers_are_dropped_where_what_is_held_has_passed() {
    let mut all = opened(1);
    for offset in [2, 4, 6, 8, 10, 12] {
        out_of_turn(&mut all, 0, offset, b"x");
    }
    out_of_turn(&mut all, 0, 12, &[b'y'; 200]);
    all.send(0, b"abcdefghijk");
    let outcome = Chain::frames(ETHERNET, &all.frames).then(&INLINE, &[]).run();
    assert_eq!(outcome.counters("tcp").drops.get("no room ahead of a hole"), 3);
    assert_eq!(streams(&outcome)[&0], "abxdxfxhxjk~");
    assert_eq!(event(&outcome, "gaps to make room"), 0);
}
