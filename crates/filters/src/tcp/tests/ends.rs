//! The beginning and end of connections, and the next connection between the same ports. One row per behaviour.

use super::*;

#[test]
fn fins() {
    // With data, out of order, repeated; in one direction while the other goes on.
    let mut c = opened(9);
    c.fin(0);
    c.send(1, b"still").send(1, b" here");
    let last = c.segment(1, 0, flag::FIN | flag::ACK, b"!");
    then(&mut c, last.clone());
    then(&mut c, last);
    check(&c, &["$", "still here!$"]);

    let mut c = opened(9);
    let early = c.segment(0, 6, flag::FIN | flag::ACK, b"");
    then(&mut c, early.clone());
    out_of_turn(&mut c, 0, 3, b"def");
    out_of_turn(&mut c, 0, 0, b"abc");
    then(&mut c, early);
    check(&c, &["abcdef$", "~"]);

    // Forged: its sender goes on.
    let mut c = opened(9);
    let forged = c.segment(0, 2, flag::FIN | flag::ACK, b"");
    c.send(0, b"ab");
    then(&mut c, forged);
    c.send(0, b"cd").send(1, b"ok").fin(0);
    let outcome = check(&c, &["abcd$", "ok~"]);
    assert_eq!(event(&outcome, "fins ignored"), 1);

    // No data follows an acknowledged FIN.
    let mut c = opened(9);
    c.send(0, b"ab").fin(0).send(1, b"ok");
    out_of_turn(&mut c, 0, 0, b"more");
    let outcome = check(&c, &["ab$", "ok~"]);
    assert_eq!(event(&outcome, "bytes after the end"), 4);
    let mut c = opened(9);
    out_of_turn(&mut c, 0, 5, b"beyond");
    c.send(0, b"ab").fin(0).send(1, b"ok");
    check(&c, &["ab$", "ok~"]);
}

#[test]
fn the_last_block_of_a_direction_comes_when_its_fin_is_acknowledged() {
    let mut c = opened(9);
    c.send(0, b"ab").fin(0).send(1, b"cd");
    wait(&mut c, 2);
    c.send(1, b"ef");
    let outcome = check(&c, &["ab$", "cdef~"]);
    let order: Vec<_> = outcome.blocks.iter().map(|block| text(&block.descriptor, &block.bytes)).collect();
    assert_eq!(order, ["ab", "cd", "$", "ef", "~"]);
}

#[test]
fn resets() {
    let reset = |c: &mut Conversation, side, offset| {
        let frame = c.segment(side, offset, flag::RST | flag::ACK, b"reason");
        then(c, frame);
    };
    // It ends the connection after a while; its payload is not data.
    let mut c = opened(9);
    c.send(0, b"ab").send(1, b"cd");
    reset(&mut c, 1, 0);
    wait(&mut c, 8);
    let outcome = check(&c, &["ab~", "cd~"]);
    assert_eq!(outcome.blocks.last().unwrap().stream.as_ref().unwrap().state, StreamState::Reset);
    assert_eq!(event(&outcome, "connections unfinished"), 0);
    // Later data shows that it was forged.
    let mut c = opened(9);
    c.send(0, b"ab");
    reset(&mut c, 1, 0);
    c.send(0, b"cd").send(1, b"ok");
    wait(&mut c, 8);
    c.send(0, b"ef");
    let outcome = check(&c, &["abcdef~", "ok~"]);
    assert_eq!(event(&outcome, "connections"), 1);
    // Data from before the reset still counts.
    let mut c = opened(9);
    c.send(0, b"ab");
    reset(&mut c, 0, 4);
    out_of_turn(&mut c, 0, 2, b"ef");
    out_of_turn(&mut c, 0, 0, b"cd");
    check(&c, &["abcdef~", "~"]);
    // Far away: forged.
    let mut c = opened(9);
    c.send(0, b"ab");
    reset(&mut c, 0, 1 << 31);
    wait(&mut c, 8);
    c.send(0, b"cd");
    let outcome = check(&c, &["abcd~", "~"]);
    assert_eq!(event(&outcome, "resets ignored"), 1);
    // A closed port.
    let mut c = Conversation::midstream(CLIENT, SERVER, 9);
    then(&mut c, tcp(CLIENT, SERVER, 9, 0, flag::SYN, b""));
    then(&mut c, tcp(SERVER, CLIENT, 0, 10, flag::RST | flag::ACK, b""));
    check(&c, &["~", "~"]);
}

#[test]
fn syns() {
    let syn = |isn: u32, payload: &[u8]| tcp(CLIENT, SERVER, isn, 0, flag::SYN, payload);
    let answer = |isn: u32, to: u32| tcp(SERVER, CLIENT, isn, to, flag::SYN | flag::ACK, b"");
    let data = |sequence: u32, acknowledgment: u32, payload: &[u8]| {
        tcp(CLIENT, SERVER, sequence, acknowledgment, flag::ACK, payload)
    };
    let reply = |sequence: u32, acknowledgment: u32, payload: &[u8]| {
        tcp(SERVER, CLIENT, sequence, acknowledgment, flag::ACK, payload)
    };
    let check = |frames: &[Vec<u8>], expected: &[&str]| {
        let mut c = Conversation::midstream(CLIENT, SERVER, 0);
        frames.iter().for_each(|frame| then(&mut c, frame.clone()));
        check(&c, expected)
    };
    // Data in it (RFC 7413), sent again if the server did not take it.
    check(&[syn(9, b"early"), answer(70, 15), data(15, 71, b" late")], &["early late~", "~"]);
    check(&[syn(9, b"early"), answer(70, 10), data(10, 71, b"early late")], &["early late~", "~"]);
    // Sent again with the same number and with others: the answered one counts.
    check(&[syn(9, b""), syn(9, b""), answer(70, 10), answer(70, 10), data(10, 71, b"a")], &["a~", "~"]);
    check(&[syn(9, b""), syn(500_000, b""), answer(70, 500_001), data(500_001, 71, b"a")], &["a~", "~"]);
    check(&[syn(500_000, b""), syn(9, b""), answer(70, 500_001), data(500_001, 71, b"a")], &["a~", "~"]);
    check(
        &[
            syn(9, b""),
            answer(70, 10),
            answer(900_000, 10),
            data(10, 900_001, b"a"),
            answer(70, 10),
            reply(900_001, 11, b"b"),
        ],
        &["a~", "b~"],
    );
    check(&[syn(9, b""), answer(70, 10), data(10, 71, b"a"), answer(900_000, 10), reply(71, 11, b"b")], &["a~", "b~"]);
    // The answer comes first; its sender is still the server.
    let outcome = check(&[answer(70, 10), syn(9, b""), data(10, 71, b"a"), reply(71, 11, b"b")], &["a~", "b~"]);
    assert_eq!(outcome.blocks[0].stream.as_ref().unwrap().flow.source_port, CLIENT.1);
    check(&[answer(70, 10), data(13, 71, b"d"), data(10, 71, b"abc")], &["abcd~", "~"]);
    // From both sides at once (RFC 9293, 3.5), and the split handshakes of suricata-verify.
    let other = |isn: u32| tcp(SERVER, CLIENT, isn, 0, flag::SYN, b"");
    let both = |isn: u32, to: u32| tcp(CLIENT, SERVER, isn, to, flag::SYN | flag::ACK, b"");
    check(
        &[syn(9, b""), other(70), both(9, 71), answer(70, 10), data(10, 71, b"a"), reply(71, 11, b"b")],
        &["a~", "b~"],
    );
    check(&[syn(9, b""), other(70), both(9, 71), reply(71, 10, b"b"), data(10, 72, b"a")], &["a~", "b~"]);
    check(&[syn(9, b""), reply(3, 10, b""), other(70), both(9, 71), reply(71, 10, b"b")], &["~", "b~"]);
    // After the data, and after a forged reset.
    check(&[data(10, 71, b"a"), syn(9, b""), answer(70, 10), data(11, 71, b"b")], &["ab~", "~"]);
    let forged = tcp(SERVER, CLIENT, 0, 10, flag::RST | flag::ACK, b"");
    check(&[syn(9, b""), forged, answer(70, 10), data(10, 71, b"a"), reply(71, 11, b"b")], &["a~", "b~"]);
}

#[test]
fn connections_without_a_handshake_begin_with_the_first_data() {
    let mut c = Conversation::midstream(CLIENT, SERVER, u32::MAX - 1);
    c.send(0, b"abcd").send(1, b"ok").send(0, b"ef");
    let outcome = check(&c, &["abcdef~", "ok~"]);
    assert_eq!(outcome.blocks[0].stream.as_ref().unwrap().state, StreamState::Midstream);
    let mut c = Conversation::midstream(CLIENT, SERVER, 1);
    c.send(1, b"only").send(1, b" this");
    let outcome = check(&c, &["~", "only this~"]);
    let client = outcome.blocks[0].stream.as_ref().unwrap().flow.source_port;
    assert_eq!(client, CLIENT.1, "the known port is the server's, although it is heard first");
    let ends = [(CLIENT.0, 7000), (SERVER.0, 7000)];
    let mut c = Conversation::midstream(ends[0], ends[1], 1);
    c.send(1, b"first");
    let outcome = check(&c, &["first~", "~"]);
    let client = outcome.blocks[0].stream.as_ref().unwrap().flow.source;
    assert_eq!(client, ends[1].0, "of equal ports, the client's is heard first");
    // The other side's acknowledgement tells the first byte, so early data is held and missing data is known.
    let mut c = Conversation::midstream(CLIENT, SERVER, 1);
    c.send(0, b"get");
    out_of_turn(&mut c, 1, 3, b"def");
    c.send(1, b"abc");
    check(&c, &["get~", "abcdef~"]);
    let mut c = Conversation::midstream(CLIENT, SERVER, 1);
    c.send(0, b"get").lose(1, 3).send(1, b"def");
    check(&c, &["get~", "[3]def~"]);
    let mut c = Conversation::midstream(CLIENT, SERVER, 1);
    c.send(0, b"get").lose(1, 3).send(0, b"more").send(1, b"def");
    check(&c, &["getmore~", "[3]def~"]);
    // The acknowledgement is no lower bound: earlier data may be captured later.
    let mut c = Conversation::midstream(CLIENT, SERVER, 1);
    c.send(0, b"get");
    out_of_turn(&mut c, 1, -2, b"..abc");
    check(&c, &["get~", "..abc~"]);
    // Acknowledgements, FINs and resets alone are no connection.
    let mut c = Conversation::midstream(CLIENT, SERVER, 1);
    for flags in [flag::ACK, flag::FIN | flag::ACK, flag::RST] {
        let frame = c.segment(0, 0, flags, b"");
        then(&mut c, frame);
    }
    let outcome = check(&c, &[]);
    assert_eq!(event(&outcome, "segments of no connection"), 3);
}

#[test]
fn ports_are_used_again() {
    let again = |c: &mut Conversation, isn: u32| {
        let mut next = opened(isn);
        next.send(0, b"second").send(1, b"2");
        next.frames.into_iter().for_each(|(_, frame)| then(c, frame));
    };
    // After FINs (also without the last acknowledgement) and after a reset; with any sequence number.
    for isn in [100, 101, 5_000_000, u32::MAX] {
        let mut c = opened(100);
        c.send(0, b"first").send(1, b"1");
        close(&mut c);
        again(&mut c, isn);
        let outcome = check(&c, &["first$", "1$", "second~", "2~"]);
        assert_eq!(outcome.blocks.last().unwrap().stream.as_ref().unwrap().reuse, 1);
        assert_eq!(event(&outcome, "connections on reused ports"), 1);

        let mut c = opened(100);
        c.send(0, b"first").send(1, b"1").fin(0).fin(1);
        again(&mut c, isn);
        check(&c, &["first$", "1$", "second~", "2~"]);

        let mut c = opened(100);
        c.send(0, b"first");
        let reset = c.segment(0, 0, flag::RST, b"");
        then(&mut c, reset);
        again(&mut c, isn);
        check(&c, &["first~", "~", "second~", "2~"]);
    }
    // While the last connection still seems open: the answer confirms the SYN.
    let mut c = opened(100);
    c.send(0, b"first").send(1, b"1");
    again(&mut c, 7_000_000);
    let outcome = check(&c, &["first~", "1~", "second~", "2~"]);
    assert_eq!(event(&outcome, "connections replaced"), 1);
    // If only one side is seen, its next data confirms the SYN.
    let mut c = Conversation::midstream(CLIENT, SERVER, 100);
    c.send(0, b"first");
    then(&mut c, tcp(CLIENT, SERVER, 7_000_000, 0, flag::SYN, b""));
    then(&mut c, tcp(CLIENT, SERVER, 7_000_001, 1, flag::ACK, b""));
    then(&mut c, tcp(CLIENT, SERVER, 7_000_001, 1, flag::ACK, b"second"));
    check(&c, &["first~", "~", "second~", "~"]);
    // A forged SYN is ignored.
    let mut c = opened(100);
    c.send(0, b"first").send(1, b"1");
    then(&mut c, tcp(CLIENT, SERVER, 7_000_000, 0, flag::SYN, b""));
    then(&mut c, tcp(CLIENT, SERVER, 7_000_001, 1, flag::ACK, b"forged"));
    c.send(0, b" goes on").send(1, b"23");
    let outcome = check(&c, &["first goes on~", "123~"]);
    assert_eq!((event(&outcome, "doubtful syns"), event(&outcome, "connections")), (1, 1));
    assert_eq!(outcome.counters("tcp").drops.get("after a doubtful syn"), 1);
    // Far from the expected number, without a SYN: dropped until the other side answers.
    let mut c = opened(100);
    c.send(0, b"first").send(1, b"1");
    let far = 100 + (1 << 31);
    then(&mut c, tcp(CLIENT, SERVER, far, 55, flag::ACK, b"lost"));
    then(&mut c, tcp(SERVER, CLIENT, 55, far + 4, flag::ACK, b"2"));
    then(&mut c, tcp(CLIENT, SERVER, far + 4, 56, flag::ACK, b"second"));
    let outcome = check(&c, &["first~", "1~", "second~", "2~"]);
    assert_eq!(outcome.counters("tcp").drops.get("out of window"), 1);
}

#[test]
fn what_comes_late_opens_nothing() {
    let mut c = opened(100);
    c.send(0, b"first").send(1, b"1");
    close(&mut c);
    out_of_turn(&mut c, 0, -6, b"first");
    out_of_turn(&mut c, 1, -1, b"");
    let late = c.segment(1, -2, flag::FIN | flag::ACK, b"1");
    then(&mut c, late);
    let outcome = check(&c, &["first$", "1$"]);
    assert_eq!((event(&outcome, "connections"), event(&outcome, "segments after the end")), (1, 3));
    // Data that continues from there is another connection, whose SYN was missed.
    out_of_turn(&mut c, 0, 1000, b"second");
    check(&c, &["first$", "1$", "second~", "~"]);
}

#[test]
fn silence_ends_a_connection() {
    let mut c = opened(100);
    c.send(0, b"ab");
    wait(&mut c, 590);
    c.send(0, b"cd");
    wait(&mut c, 590);
    c.send(0, b"ef");
    wait(&mut c, 620);
    c.send(0, b"gh");
    let outcome = check(&c, &["abcdef~", "~", "gh~", "~"]);
    assert_eq!(event(&outcome, "connections idle"), 1);
    let outcome = Chain::frames(ETHERNET, &c.frames).then(&KIND, &[("timeout", "1h")]).run();
    assert_eq!(streams(&outcome).into_values().collect::<Vec<_>>(), ["abcdefgh~", "~"]);
    // A connection with only a SYN ends sooner.
    let mut c = Conversation::midstream(CLIENT, SERVER, 100);
    then(&mut c, tcp(CLIENT, SERVER, 100, 0, flag::SYN, b""));
    wait(&mut c, 140);
    assert_eq!(event(&check(&c, &["~", "~"]), "connections idle"), 1);
    // A connection whose FIN is not answered ends soon.
    let mut c = opened(100);
    c.send(0, b"ab").fin(0).fin(1);
    wait(&mut c, 10);
    let outcome = check(&c, &["ab$", "$"]);
    assert_eq!((event(&outcome, "connections idle"), event(&outcome, "connections unfinished")), (0, 0));
}

#[test]
fn a_leap_in_time_ends_nothing() {
    let mut c = opened(100);
    for index in 0..500_u64 {
        c.send(0, b"x");
        let (time, _) = c.frames.last_mut().unwrap();
        *time = if index % 3 == 0 { u64::MAX } else { index };
    }
    let outcome = check(&c, &[&("x".repeat(500) + "~"), "~"]);
    assert_eq!(event(&outcome, "connections"), 1);
}

/// Data held behind a sure end has a hole with a scheduled check. The check must not act after the connection ended
/// and its stream number belongs to another.
#[test]
fn an_ended_connection_does_not_close_its_number_again() {
    let mut all = opened(1000);
    out_of_turn(&mut all, 0, 200, b"beyond");
    let fin = all.segment(0, 100, flag::FIN | flag::ACK, b"");
    then(&mut all, fin);
    then(&mut all, tcp(SERVER, CLIENT, 1_001_001, 1001 + 101, flag::ACK, b""));
    then(&mut all, tcp(SERVER, CLIENT, 1_001_001, 1001 + 101, flag::ACK | flag::FIN, b""));
    wait(&mut all, 8);
    // All at once, so that the hole's check is still to come.
    let now = all.frames.last().map_or(0, |(time, _)| *time);
    let mut add = |frame: Vec<u8>| all.frames.push((now, frame));
    // Enough short connections for the number to be reused.
    for number in 0..4108_u32 {
        let end = (std::net::Ipv4Addr::new(10, 1, (number >> 8) as u8, number as u8), 5000);
        add(tcp(end, SERVER, 0, 0, flag::SYN, b""));
        add(tcp(SERVER, end, 0, 1, flag::SYN | flag::ACK, b""));
        add(tcp(end, SERVER, 1, 1, flag::ACK | flag::FIN, b""));
        add(tcp(SERVER, end, 1, 2, flag::ACK | flag::FIN, b""));
        add(tcp(end, SERVER, 2, 2, flag::ACK, b""));
    }
    let stay: Vec<_> = (0..6).map(|number| (std::net::Ipv4Addr::new(10, 3, 0, number), 5000)).collect();
    for end in &stay {
        add(tcp(*end, SERVER, 0, 0, flag::SYN, b""));
        add(tcp(SERVER, *end, 0, 1, flag::SYN | flag::ACK, b""));
        add(tcp(*end, SERVER, 1, 1, flag::ACK, b"one"));
    }
    wait(&mut all, 20);
    for end in &stay {
        then(&mut all, tcp(*end, SERVER, 4, 1, flag::ACK, b"two"));
    }
    wait(&mut all, 10);
    let outcome = Chain::frames(ETHERNET, &all.frames).then(&KIND, &[("gap-wait", "20s")]).run();
    let payload = outcome.blocks.iter().filter(|block| !block.bytes.is_empty());
    let found: Vec<_> = payload
        .map(|block| (block.bytes.clone(), block.stream.as_ref().map(|facts| (facts.flow.source, facts.state))))
        .collect();
    let facts = |end: &(std::net::Ipv4Addr, u16)| Some((end.0.into(), StreamState::Established));
    let expected: Vec<_> =
        [b"one", b"two"].iter().flat_map(|bytes| stay.iter().map(move |end| (bytes.to_vec(), facts(end)))).collect();
    assert_eq!(found, expected);
    assert!(
        outcome.blocks.iter().any(|block| block.descriptor.class == Class(0) && block.bytes == b"one"),
        "0 came back"
    );
}
