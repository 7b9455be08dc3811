//! Bytes over good and bad links, windows, and idle time.

use stack::{End, StreamState};
use std::time::Duration;

use super::wire::*;

/// The byte that `host` writes at offset `at`.
fn byte(host: usize, at: usize) -> u8 {
    (at ^ at >> 8 ^ at >> 16) as u8 ^ host as u8
}

/// Both hosts write `bytes` bytes, read the other's, and finish. Returns the time that it took, in ns.
fn exchange(ends: [stack::Stack; 2], link: Link, seed: u64, bytes: usize) -> u64 {
    let mut pair = Pair::open_between(ends, link, seed);
    let began = pair.now;
    let (mut written, mut read) = ([0; 2], [0; 2]);
    let mut room = vec![0; 40_000];
    pair.run(4_000 * S, |pair| {
        pair.sent.clear();
        for host in [0, 1] {
            let now = pair.now;
            let end = stream(&mut pair.hosts[host]);
            if written[host] < bytes && end.writable() > 0 {
                let piece: Vec<u8> =
                    (written[host]..bytes.min(written[host] + end.writable())).map(|at| byte(host, at)).collect();
                written[host] += end.write(now, &piece);
                if written[host] == bytes {
                    end.finish(now);
                }
            }
            let len = end.read(now, &mut room);
            let expected = (read[host]..read[host] + len).map(|at| byte(1 - host, at));
            assert!(room[..len].iter().copied().eq(expected), "from byte {} of {host}", read[host]);
            read[host] += len;
        }
        read == [bytes; 2] && (0..2).all(|host| stream(&mut pair.hosts[host]).is_at_end())
    });
    // If the last acknowledgement is lost and TIME-WAIT over, a repeated FIN gets a reset.
    let is_closed = |state: &StreamState| matches!(state, StreamState::Closed(Some(End::Finished | End::Reset)));
    pair.run(100 * S, |pair| pair.states().iter().all(is_closed));
    assert!(pair.states().contains(&StreamState::Closed(Some(End::Finished))));
    pair.now - began
}

#[test]
fn four_mebibytes_go_both_ways_byte_by_byte_whatever_the_link_does() {
    for (lost, doubled, delayed) in [(0, 0, 0), (0, 10, 10), (10, 0, 0), (10, 10, 10), (30, 0, 0), (30, 20, 30)] {
        let link = Link { lost, doubled, delayed, delay: MS };
        let times = [ends(), ends_v6()].map(|ends| exchange(ends, link, 3 + lost, 4 << 20) / MS);
        println!("{lost} {doubled} {delayed}: {times:?} ms");
    }
}

#[test]
fn short_exchanges_end_on_any_bad_link() {
    for seed in 1..150 {
        let ends = if seed % 2 == 0 { ends() } else { ends_v6() };
        exchange(ends, Link { lost: 150, doubled: 200, delayed: 200, delay: MS }, seed * 977, 5_000);
    }
}

#[test]
fn a_lost_segment_is_sent_again_after_200_ms() {
    let mut pair = Pair::open(Link::default(), 1);
    let mut lost = 0;
    pair.lose = Box::new(move |from, frame| {
        let is_first = from == 0 && !read(frame).5.is_empty() && lost == 0;
        lost += usize::from(is_first);
        is_first
    });
    stream(&mut pair.hosts[0]).write(pair.now, b"tail");
    let began = pair.now;
    pair.run(S, |pair| stream(&mut pair.hosts[1]).readable() == 4);
    assert!((200 * MS..230 * MS).contains(&(pair.now - began)), "{}", pair.now - began);
}

#[test]
fn a_long_path_does_not_look_like_a_loss() {
    let mut pair = Pair::open(Link { delay: 150 * MS, ..Link::default() }, 1);
    stream(&mut pair.hosts[0]).write(pair.now, b"x");
    stream(&mut pair.hosts[1]).write(pair.now, b"y");
    pair.pass(2 * S);
    let data = pair.sent.iter().filter(|(_, frame)| !read(frame).5.is_empty()).count();
    assert_eq!(data, 2, "each once");
}

#[test]
fn small_writes_wait_for_each_other_unless_told_not_to() {
    for (no_delay, expected) in [(false, 2), (true, 5)] {
        let mut pair = Pair::open(Link::default(), 1);
        stream(&mut pair.hosts[0]).set_no_delay(no_delay);
        for _ in 0..5 {
            stream(&mut pair.hosts[0]).write(pair.now, b"x");
            pair.pass(1_000);
        }
        pair.pass(S);
        assert_eq!(pair.sent.iter().filter(|(from, frame)| *from == 0 && !read(frame).5.is_empty()).count(), expected);
    }
}

#[test]
fn a_window_of_zero_is_probed_and_reading_opens_it() {
    let mut pair = Pair::open(Link::default(), 1);
    let mut written = 0;
    pair.run(100 * S, |pair| {
        written += stream(&mut pair.hosts[0]).write(pair.now, &[7; 9_000]);
        stream(&mut pair.hosts[0]).writable() == 0 && stream(&mut pair.hosts[1]).readable() > 250 << 10
    });
    pair.pass(20 * S);
    // A scaled window cannot express the last few bytes.
    assert!(((512 << 10) - 8..=512 << 10).contains(&written), "{written}");
    let window = |pair: &Pair| pair.sent.iter().rev().find(|(from, _)| *from == 1).map(|(_, frame)| read(frame).3);
    assert_eq!(window(&pair), Some(0));
    // One hour: every probe is answered, and there is no timeout.
    (pair.sent, pair.turn_count) = (Vec::new(), 0);
    pair.pass(3_600 * S);
    let probes = pair.sent.iter().filter(|(from, _)| *from == 0).count();
    assert!((280..400).contains(&probes), "{probes}");
    // Turns to probe, to answer, and to take the answer.
    assert!(pair.turn_count <= 3 * probes, "{}", pair.turn_count);
    assert_eq!(pair.states(), [StreamState::Open; 2]);
    // The window update is lost; a probe finds the window open.
    let mut lost = 0;
    pair.lose = Box::new(move |from, _| {
        lost += usize::from(from == 1);
        from == 1 && lost == 1
    });
    let mut room = vec![0; 1 << 20];
    let mut count = stream(&mut pair.hosts[1]).read(pair.now, &mut room);
    assert!(pair.hosts[1].next().is_some_and(|next| next <= pair.now), "the update is due");
    pair.run(60 * S, |pair| {
        count += stream(&mut pair.hosts[1]).read(pair.now, &mut room);
        count == written
    });
}

#[test]
fn peeking_leaves_the_bytes() {
    let mut pair = Pair::open(Link::default(), 1);
    stream(&mut pair.hosts[0]).write(pair.now, b"abcdef");
    pair.pass(S);
    let end = stream(&mut pair.hosts[1]);
    let mut to = [0; 4];
    assert_eq!((end.peek(&mut to), &to), (4, b"abcd"));
    assert_eq!((end.read(pair.now, &mut to), end.readable(), &to), (4, 2, b"abcd"));
    assert_eq!((end.peek(&mut to), &to[..2]), (2, &b"ef"[..]));
}

#[test]
fn an_idle_connection_takes_no_turns_and_does_not_end() {
    let mut pair = Pair::open(Link::default(), 1);
    pair.pass(S);
    (pair.sent, pair.turn_count) = (Vec::new(), 0);
    assert_eq!(pair.hosts.each_ref().map(stack::Stack::next), [None; 2]);
    pair.pass(10_000 * S);
    assert_eq!((pair.turn_count, pair.sent.len()), (0, 0));
    assert_eq!(pair.states(), [StreamState::Open; 2]);
    stream(&mut pair.hosts[0]).set_keep_alive(Some(Duration::from_secs(60)));
    pair.pass(1_000 * S);
    let probes = pair.sent.iter().filter(|(from, _)| *from == 0).count();
    assert!((16..=18).contains(&probes), "{probes}");
    assert!(pair.turn_count < 6 * probes, "{}", pair.turn_count);
    pair.lose = Box::new(|_, _| true);
    let began = pair.now;
    pair.run(2_000 * S, |pair| pair.states()[0] == StreamState::Closed(Some(stack::End::TimedOut)));
    assert!((540 * S..=600 * S).contains(&(pair.now - began)), "{}", (pair.now - began) / S);
}

/// Segments that `host` sends in a turn with data: offset and bytes.
fn data_of(host: &mut stack::Stack, now: u64) -> Vec<(u32, Vec<u8>)> {
    let frames = turn(host, now, 1);
    let data = frames.iter().map(|frame| (read(frame).0.wrapping_sub(ISNS[0].wrapping_add(1)), read(frame).5.to_vec()));
    data.filter(|(_, bytes)| !bytes.is_empty()).collect()
}

#[test]
fn what_is_lost_while_a_window_shuts_and_opens_is_sent_again_as_it_was() {
    let ([mut host, _], now) = {
        let pair = Pair::open(Link::default(), 1);
        (pair.hosts, pair.now)
    };
    stream(&mut host).set_no_delay(true);
    let said = |host: &mut stack::Stack, acknowledged: u32, window: u16| {
        receive(host, now, &segment(1, ISNS[1] + 1, ISNS[0].wrapping_add(1 + acknowledged), 0x10, window, &[], &[]));
        data_of(host, now)
    };
    for len in [1_000, 500] {
        stream(&mut host).write(now, &vec![7; len]);
        assert_eq!(data_of(&mut host, now).len(), 1);
    }
    // The second segment is lost. The window shuts behind the first one, and opens: smoltcp has no timer.
    assert_eq!(said(&mut host, 1_000, 0), []);
    assert_eq!(said(&mut host, 1_000, 100), [(1_000, vec![7; 500])]);
}

#[test]
fn who_finishes_last_hears_that_a_shut_window_opens() {
    let ([mut host, _], now) = {
        let pair = Pair::open(Link::default(), 1);
        (pair.hosts, pair.now)
    };
    let said = |host: &mut stack::Stack, sequence: u32, acknowledged: u32, flags: u8, window: u16| {
        let number = ISNS[0].wrapping_add(1 + acknowledged);
        receive(host, now, &segment(1, ISNS[1] + 1 + sequence, number, flags, window, &[], &[]));
        data_of(host, now)
    };
    said(&mut host, 0, 0, 0x11, 300);
    stream(&mut host).write(now, &[7; 5_000]);
    stream(&mut host).finish(now);
    assert_eq!(stream(&mut host).state(), StreamState::Ending);
    let sent: usize = data_of(&mut host, now).iter().map(|(_, bytes)| bytes.len()).sum();
    assert!((1..5_000).contains(&sent), "{sent}");
    // The last byte went beyond a window that moved back, and the window says nothing else than that it opens.
    assert_eq!(said(&mut host, 1, sent as u32 - 1, 0x10, 0), []);
    let more = said(&mut host, 1, sent as u32 - 1, 0x10, 300);
    assert!(!more.is_empty());
}

#[test]
fn all_bytes_up_to_every_window_that_was_announced_find_room() {
    let ([mut host, _], now) = {
        let pair = Pair::open(Link::default(), 1);
        (pair.hosts, pair.now)
    };
    let (mut sent, mut end) = (0, 60_000);
    while sent < end {
        let len = (end - sent).min(1_001);
        let data = segment(1, ISNS[1] + 1 + sent, ISNS[0].wrapping_add(1), 0x10, 60_000, &[], &vec![7; len as usize]);
        receive(&mut host, now, &data);
        sent += len;
        for frame in turn(&mut host, now, 1) {
            let (_, acknowledged, _, window, ..) = read(&frame);
            end = end.max(acknowledged - (ISNS[1] + 1) + (u32::from(window) << stack::TCP_WINDOW_SHIFT));
        }
    }
    assert!(sent > 200_000);
    assert_eq!(stream(&mut host).readable(), sent as usize);
}
