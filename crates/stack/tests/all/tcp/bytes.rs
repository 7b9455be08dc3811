//! Segments on the wire.

use stack::{SendError, StreamState, TCP_WINDOW, TCP_WINDOW_SHIFT, TcpFacts};

use super::wire::*;
use crate::support::*;

#[test]
fn a_syn_is_that_of_linux_with_the_given_number() {
    for at in 0..5_000_u32 {
        let isn = at.wrapping_mul(0x9e37_79b9);
        let mut facts = tcp_facts(0, false);
        facts.tcp = TcpFacts { isn, ..TcpFacts::default() };
        if at > 50 {
            // Many stacks with large buffers are slow to build.
            (facts.tcp.receive_bytes, facts.tcp.send_bytes) = (8_192, 8_192);
        }
        let mut stack = build_with(TEXTS[0], &facts);
        assert_eq!(stack.next(), Some(0));
        let frames = turn(&mut stack, 9 * S, 1);
        let [frame] = &frames[..] else { panic!("{} frames", frames.len()) };
        let (window, shift) = if at > 50 { (8_192, 0) } else { (TCP_WINDOW, TCP_WINDOW_SHIFT) };
        let options = [2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, shift];
        assert_eq!(read(frame), (isn, 0, 2, window, &options[..], &[][..]), "{isn}");
        let mut mended = frame.clone();
        mend_tcp(&mut mended);
        assert_eq!(&mended, frame, "the checksum is right");
    }
}

#[test]
fn a_syn_over_ipv6_has_the_longer_header_off_its_mss() {
    let mut stack = build_with(TEXTS_V6[0], &tcp_facts_v6(0, false));
    let frame = turn(&mut stack, 9 * S, 1).remove(0);
    // Version 6; 32 bytes of TCP; protocol 6; hop limit 64.
    assert_eq!(frame[12..22], [0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 6, 64]);
    let options = [2, 4, 5, 160, 1, 1, 4, 2, 1, 3, 3, TCP_WINDOW_SHIFT];
    assert_eq!(read(&frame), (ISNS[0], 0, 2, TCP_WINDOW, &options[..], &[][..]));
    let mut mended = frame.clone();
    mend_tcp(&mut mended);
    assert_eq!(mended, frame, "the checksum is right");
    // Segments fill the MTU exactly.
    let mut pair = Pair::open_between(ends_v6(), Link::default(), 1);
    stream(&mut pair.hosts[0]).write(pair.now, &[7; 20_000]);
    pair.pass(S);
    let longest = pair.sent.iter().map(|(_, frame)| frame.len()).max();
    assert_eq!(longest, Some(1514));
}

#[test]
fn an_accepted_connection_begins_with_its_number_and_sends_no_syn() {
    let [mut connecting, mut accepted] = ends();
    let mut syn = turn(&mut connecting, S, 1).remove(0);
    assert_eq!(accepted.next(), Some(0));
    assert_eq!(turn(&mut accepted, S, 0), Vec::<Vec<u8>>::new());
    assert_eq!(accepted.next(), Some(61 * S), "only the handshake's end is waited for");
    receive(&mut accepted, S, &syn);
    receive(&mut connecting, S, &syn_ack(&syn));
    let acknowledgement = turn(&mut connecting, S, 1).remove(0);
    assert_eq!(read(&acknowledgement).1, ISNS[1].wrapping_add(1));
    receive(&mut accepted, S, &acknowledgement);
    assert_eq!(turn(&mut accepted, S, 0), Vec::<Vec<u8>>::new());
    assert_eq!(stream(&mut accepted).state(), StreamState::Open);
    assert_eq!(stream(&mut accepted).write(S, b"hello"), 5);
    let hello = turn(&mut accepted, S, 0).remove(0);
    assert_eq!(read(&hello).0, ISNS[1].wrapping_add(1));
    // The first round-trip time is assumed: a lost segment is sent again after a second.
    assert_eq!(accepted.next().map(|next| (next - S).div_ceil(100 * MS)), Some(10));

    // Linux's options with timestamps, but without window scale.
    let mut other = build_with(TEXTS[1], &tcp_facts(1, true));
    syn.truncate(54);
    let syn = segment(0, 5, 0, 2, 60_000, &[2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0], &[]);
    receive(&mut other, S, &syn);
    assert_eq!(turn(&mut other, S, 0), Vec::<Vec<u8>>::new());
    receive(&mut other, S, &segment(0, 6, ISNS[1] + 1, 0x10, 60_000, &[], b"data"));
    turn(&mut other, S, 0);
    assert_eq!((stream(&mut other).state(), stream(&mut other).readable()), (StreamState::Open, 4));
}

#[test]
fn a_stack_with_tcp_is_written_as_a_stream() {
    let mut stack = build_with(TEXTS[0], &tcp_facts(0, false));
    assert_eq!(sent(&mut stack, None, b"x"), Err(SendError::IsStream));
    assert_eq!(stack.header_bytes(), 60 + 20 + 14);
    assert!(build("udp 53", 0).stream().is_none());
    assert_eq!(stack.export(), Err(stack::Unsupported::NotExported));
    assert_eq!((stream(&mut stack).write(S, b"x"), stream(&mut stack).writable()), (0, 0), "not open");
}

#[test]
fn without_room_nothing_is_sent_and_nothing_lost() {
    let mut pair = Pair::open(Link::default(), 1);
    let bytes: Vec<u8> = (0..60_000_u32).map(|at| at as u8).collect();
    let mut fill = |room: &mut [u8]| {
        room[..bytes.len()].copy_from_slice(&bytes);
        bytes.len()
    };
    assert_eq!(stream(&mut pair.hosts[0]).write_with(pair.now, &mut fill), bytes.len());
    let mut received = Vec::new();
    for _ in 0..10_000 {
        for host in [0, 1] {
            // Room for one frame at a time, and often for none.
            for size in [0, 1] {
                let mut room = Room(size, Vec::new());
                pair.hosts[host].tend(pair.now, &mut room, &mut |_| {});
                for frame in room.1 {
                    receive(&mut pair.hosts[1 - host], pair.now, &to_station(frame, MACS[1 - host]));
                }
            }
        }
        pair.now += MS / 2;
        let mut take = |bytes: &[u8]| {
            let len = bytes.len().min(2_000);
            received.extend_from_slice(&bytes[..len]);
            len
        };
        stream(&mut pair.hosts[1]).read_with(pair.now, &mut take);
    }
    assert!(received == bytes);
    assert_eq!(stream(&mut pair.hosts[0]).unacknowledged(), 0);
    // Neither closure runs without bytes to read or room to write.
    assert_eq!(stream(&mut pair.hosts[1]).read_with(pair.now, &mut |_| panic!("nothing is there")), 0);
    let whole = vec![7; 1 << 20];
    stream(&mut pair.hosts[0]).write(pair.now, &whole);
    assert_eq!(stream(&mut pair.hosts[0]).write_with(pair.now, &mut |_| panic!("there is no room")), 0);
}
