//! Tests which bytes `rewrite` changes, and that every correct checksum stays correct.

use super::*;
use packet::checksum::Sum;
use testkit::Chain;
use testkit::chain::Outcome;
use testkit::packets::{self, CLIENT, SERVER, wrong_checksums};
use testkit::random::Random;

const ETHERNET: u16 = 1;

fn run(frames: &[Vec<u8>], given: &[(&str, &str)]) -> Outcome {
    let frames: Vec<_> = frames.iter().map(|frame| (0, frame.clone())).collect();
    let outcome = Chain::frames(ETHERNET, &frames).then(&KIND, given).run();
    assert_eq!(outcome.failure, None);
    outcome
}

fn rewritten(frame: &[u8], given: &[(&str, &str)]) -> Vec<u8> {
    run(&[frame.to_vec()], given).blocks.remove(0).bytes
}

/// The frame with correct checksums.
fn summed(mut frame: Vec<u8>) -> Vec<u8> {
    let read = frame::parse(LinkType::ETHERNET, &frame, frame.len() as u32).unwrap();
    let transport = read.transport_offset as usize;
    if read.protocol == 17 && frame.len() >= transport + 8 {
        frame[transport + 6..transport + 8].copy_from_slice(&[1, 1]);
    }
    edit::sum_up(&mut frame, &read);
    assert_eq!(wrong(&frame), Some(vec![]));
    frame
}

fn wrong(frame: &[u8]) -> Option<Vec<&'static str>> {
    wrong_checksums(LinkType::ETHERNET, frame, frame.len() as u32)
}

fn addresses(frame: &[u8]) -> [String; 2] {
    let read = frame::parse(LinkType::ETHERNET, frame, frame.len() as u32).unwrap();
    [read.source, read.target].map(|address| address.to_string())
}

fn ports(frame: &[u8]) -> [u16; 2] {
    let read = frame::parse(LinkType::ETHERNET, frame, frame.len() as u32).unwrap();
    let transport = read.payload_of(frame);
    [[transport[0], transport[1]], [transport[2], transport[3]]].map(u16::from_be_bytes)
}

#[test]
fn addresses_are_set_or_moved() {
    let frame = summed(packets::udp(CLIENT, SERVER, b"hello"));
    let check = |given: &[(&str, &str)], expected: [&str; 2]| {
        let after = rewritten(&frame, given);
        assert_eq!((addresses(&after), wrong(&after)), (expected.map(String::from), Some(vec![])), "{given:?}");
    };
    check(&[("src", "192.0.2.7")], ["192.0.2.7", "10.0.0.2"]);
    check(&[("dst", "10.0.0.0/24->192.0.2.0/24")], ["10.0.0.1", "192.0.2.2"]);
    check(&[("net", "10.0.0.0/8=172.16.0.0/12")], ["172.16.0.1", "172.16.0.2"]);
    check(
        &[("net", "10.0.0.2/31->198.18.0.0/16,10.0.0.0/8->11.0.0.0/8,10.0.0.0/16->12.0.0.0/8")],
        ["12.0.0.1", "198.18.0.2"],
    );
    check(&[("net", "10.0.0.0/8->11.0.0.0/8"), ("src", "10.0.0.1->1.2.3.4")], ["1.2.3.4", "11.0.0.2"]);
    check(&[("net", "0.0.0.0/0->192.0.2.1")], ["192.0.2.1", "192.0.2.1"]);
    // Rules for the other IP version or another network change nothing.
    for given in
        [&[("src", "2001:db8::1")][..], &[("net", "11.0.0.0/8->1.0.0.0/8")], &[("port", "9->10")], &[("vlan", "7")]]
    {
        let outcome = run(std::slice::from_ref(&frame), given);
        assert_eq!(outcome.blocks[0].bytes, frame, "{given:?}");
        assert_eq!(outcome.report.traffic.edits_in_place + outcome.report.traffic.edit_copies, 0, "{given:?}");
    }
}

#[test]
fn ports_hops_and_ethernet_addresses() {
    let frame = summed(packets::tcp(CLIENT, SERVER, 1, 1, 16, b"hello"));
    let check = |given: &[(&str, &str)], expected: [u16; 2]| {
        let after = rewritten(&frame, given);
        assert_eq!((ports(&after), wrong(&after)), (expected, Some(vec![])), "{given:?}");
    };
    check(&[("dst-port", "80->8080,443->8443")], [40_000, 8080]);
    check(&[("src-port", "1")], [1, 80]);
    check(&[("port", "40000->80,80->40000")], [80, 40_000]);
    for (ttl, expected) in [("9", Some(9)), ("-1", Some(63)), ("-63", Some(1)), ("-64", None), ("-255", None)] {
        let outcome = run(std::slice::from_ref(&frame), &[("ttl", ttl)]);
        assert_eq!(outcome.blocks.first().map(|block| block.bytes[22]), expected);
        assert_eq!(outcome.counters("rewrite").drops.get(NO_HOPS_LEFT), u64::from(expected.is_none()));
        assert!(outcome.blocks.iter().all(|block| wrong(&block.bytes) == Some(vec![])));
    }
    let after = rewritten(&frame, &[("dst-mac", "02:00:00:00:00:99"), ("mac", "02:00:00:00:00:01->06:00:00:00:00:01")]);
    assert_eq!(&after[..12], [2, 0, 0, 0, 0, 0x99, 6, 0, 0, 0, 0, 1]);
    assert_eq!(after[12..], frame[12..]);
}

#[test]
fn tags_are_set_pushed_and_taken_off() {
    let frame = summed(packets::udp(CLIENT, SERVER, b"hello"));
    let tagged = |tags: &[&[u8]]| [&frame[..12], &tags.concat(), &frame[12..]].concat();
    let (one, two) = (tagged(&[&[0x81, 0, 0xa0, 7]]), tagged(&[&[0x88, 0xa8, 0, 3], &[0x81, 0, 0xa0, 7]]));
    let check = |before: &[u8], vlan: &str, expected: &[u8]| {
        let outcome = run(&[before.to_vec()], &[("vlan", vlan)]);
        let block = &outcome.blocks[0];
        assert_eq!(block.bytes, expected, "{vlan}");
        assert_eq!(block.descriptor.wire() as usize, expected.len());
        assert_eq!(block.interface.as_ref().and_then(|interface| interface.link_type), Some(ETHERNET));
    };
    check(&one, "9", &tagged(&[&[0x81, 0, 0xa0, 9]]));
    check(&two, "4095", &tagged(&[&[0x88, 0xa8, 0x0f, 0xff], &[0x81, 0, 0xa0, 7]]));
    check(&one, "strip", &frame);
    check(&two, "strip", &one);
    check(&frame, "strip", &frame);
    check(&frame, "push:9", &tagged(&[&[0x81, 0, 0, 9]]));
    check(&one, "push:1", &tagged(&[&[0x81, 0, 0, 1], &[0x81, 0, 0xa0, 7]]));
    // The fields behind stripped tags are changed in the same step.
    let after = rewritten(&two, &[("vlan", "strip"), ("src", "192.0.2.1"), ("src-mac", "02:00:00:00:00:77")]);
    assert_eq!((addresses(&after), wrong(&after)), (["192.0.2.1", "10.0.0.2"].map(String::from), Some(vec![])));
    assert_eq!(after[6..12], [2, 0, 0, 0, 0, 0x77]);
}

#[test]
fn udp_without_a_checksum_stays_without_and_one_that_comes_to_0_is_all_ones() {
    let without = packets::udp(CLIENT, SERVER, b"hello");
    assert_eq!(without[40..42], [0, 0]);
    assert_eq!(rewritten(&without, &[("src", "192.0.2.1")])[40..42], [0, 0]);
    // Try every port: for some the sum becomes all ones.
    let frame = summed(without);
    let all_ones = (0..=u16::MAX).step_by(1).filter(|port| {
        let mut after = frame.clone();
        let read = frame::parse(LinkType::ETHERNET, &after, after.len() as u32).unwrap();
        let ports = Ends::of_params(
            &testkit::chain::params(&KIND, &[("src-port", &port.to_string())]),
            ["src-port", "dst-port", "port"],
            Ports::parse,
        );
        let mut change = Rewrite { ports: ports.unwrap(), ..nothing() };
        edit::change_ip(&mut after, &read, &mut change);
        assert_eq!(wrong(&after), Some(vec![]), "{port}");
        after[40..42] == [0xff, 0xff]
    });
    assert!(all_ones.count() >= 1);
}

fn nothing() -> Rewrite {
    let (networks, ports, macs) = Default::default();
    Rewrite { networks, ports, macs, vlan: Vlan::Keep, hops: Hops::Keep, fix: false }
}

/// Rewriting and then reversing gives back every frame of the captures, and correct checksums stay correct.
#[test]
fn there_and_back_nothing_is_lost() {
    let mut random = Random(11);
    let mut frames = testkit::frames::real_and_damaged(600, &mut random);
    frames.extend((0..2000).map(|_| testkit::frames::shaped(&mut random).bytes));
    let there = [
        ("net", "0.0.0.0/1->128.0.0.0/1,128.0.0.0/1->0.0.0.0/1,::/1->8000::/1,8000::/1->::/1"),
        ("port", "80->81,81->80,53->54,54->53,443->444,444->443"),
        ("mac", "02:00:00:00:00:01->02:00:00:00:00:02,02:00:00:00:00:02->02:00:00:00:00:01"),
    ];
    let changed = run(&frames, &there);
    let back: Vec<Vec<u8>> = changed.blocks.iter().map(|block| block.bytes.clone()).collect();
    let mut changes = 0;
    for (before, after) in frames.iter().zip(&back) {
        assert_eq!(
            wrong(before).map(|wrong| wrong.len()),
            wrong(after).map(|wrong| wrong.len()),
            "{before:x?}\n{after:x?}"
        );
        changes += usize::from(before != after);
    }
    assert!(changes > frames.len() / 2, "{changes} of {}", frames.len());
    for (before, after) in frames.iter().zip(run(&back, &there).blocks) {
        // Ones' complement has two forms of zero: only those bytes may differ.
        let differ = before.iter().zip(&after.bytes).filter(|(before, after)| before != after);
        assert!(
            before.len() == after.bytes.len() && differ.clone().all(|pair| matches!(pair, (0, 0xff) | (0xff, 0))),
            "{before:x?}\n{:x?}",
            after.bytes
        );
        assert!(differ.count() <= 6);
    }
}

/// An ICMP error about a packet that was sent from a translated address.
#[test]
fn the_packet_inside_an_error_is_changed_as_it_was_itself() {
    let inner = summed(packets::udp(CLIENT, SERVER, b"datagram"));
    let mut message = vec![3, 1, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&inner[14..42]);
    let error = |message: &[u8]| summed(packets::ipv4(SERVER.0, CLIENT.0, 1, message));
    let given = [("net", "10.0.0.1->192.0.2.1"), ("port", "40000->50000")];
    let after = rewritten(&error(&message), &given);
    assert_eq!((addresses(&after), wrong(&after)), (["10.0.0.2", "192.0.2.1"].map(String::from), Some(vec![])));
    let expected = rewritten(&inner, &given);
    assert_eq!(after[14 + 20 + 8..], expected[14..42], "addresses, port and both checksums");
    // A redirect also contains a router's address. An echo may contain anything.
    message[0] = 5;
    message[4..8].copy_from_slice(&[10, 0, 0, 1]);
    assert_eq!(rewritten(&error(&message), &given)[38..42], [192, 0, 2, 1]);
    message[0] = 8;
    let echo = error(&message);
    assert_eq!(rewritten(&echo, &given)[34..], echo[34..]);
    // An error cut at any length is handled; the bytes that are there are changed.
    message[0] = 3;
    for len in 0..error(&message).len() {
        let whole = error(&message);
        let outcome = Chain::pieces(Type::Frame, Some(ETHERNET), vec![(cut(whole.len()), whole[..len].to_vec())]);
        assert_eq!(outcome.then(&KIND, &given).run().blocks.len(), 1);
    }
}

fn cut(wire: usize) -> Descriptor {
    let mut block = Descriptor::default();
    block.set_wire(wire as u32);
    block.set_flags(Flags::TRUNCATED);
    block
}

#[test]
fn a_frame_that_was_cut_has_the_checksum_of_the_whole() {
    let whole = summed(packets::tcp(CLIENT, SERVER, 1, 1, 16, &[9; 500]));
    let given = [("src", "192.0.2.1"), ("dst-port", "81")];
    let expected = rewritten(&whole, &given);
    let chain = Chain::pieces(Type::Frame, Some(ETHERNET), vec![(cut(whole.len()), whole[..60].to_vec())]);
    let outcome = chain.then(&KIND, &given).run();
    assert_eq!(outcome.blocks[0].bytes, expected[..60]);
    assert_eq!(outcome.blocks[0].descriptor.wire() as usize, whole.len());
}

#[test]
fn fragments_and_stations_on_the_way() {
    // The first fragment has the packet's checksum. A later fragment begins with bytes that only look like ports.
    let mut first = summed(packets::udp(CLIENT, SERVER, &[3; 64]));
    let whole = rewritten(&first, &[("src", "192.0.2.1"), ("dst-port", "81")]);
    let mut later = first.clone();
    (first[20], later[21]) = (0x20, 8);
    let outcome = run(&[first, later.clone()], &[("src", "192.0.2.1"), ("dst-port", "81")]);
    assert_eq!(outcome.blocks[0].bytes[34..], whole[34..]);
    assert_eq!(outcome.blocks[1].bytes[34..], later[34..]);
    // RFC 8200, 8.1: with segments left, the checksum covers the last address of the route, not the header's target.
    let addresses = [1u128, 2, 3].map(|number| (0x2001_0db8 << 96 | number).to_be_bytes());
    let udp = [0u8, 9, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4];
    let pseudo = [&addresses[0][..], &addresses[2], &[0, 0, 0, 12, 0, 0, 0, 17]].concat();
    let check = Sum::of(&pseudo).and(Sum::of(&udp)).checksum().to_be_bytes();
    let packet = |left: u8| {
        let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 36, 43, 64];
        packet.extend([&addresses[0][..], &addresses[1], &[17, 2, 0, left, 0, 0, 0, 0], &addresses[2], &udp].concat());
        packet[14 + 40 + 24 + 6..][..2].copy_from_slice(&check);
        packet
    };
    let after = rewritten(&packet(1), &[("dst", "2001:db8::99")]);
    assert_eq!(after[84..86], check, "its target is not covered");
    assert_ne!(rewritten(&packet(0), &[("dst", "2001:db8::99")])[84..86], check);
    let after = rewritten(&packet(1), &[("src", "2001:db8::98")]);
    let pseudo = [&after[22..38], &addresses[2], &[0, 0, 0, 12, 0, 0, 0, 17]].concat();
    assert_eq!(Sum::of(&pseudo).and(Sum::of(&after[78..])).checksum(), 0);
}

#[test]
fn arp_is_changed_and_other_frames_are_left_alone() {
    let mut arp = vec![0xff; 6];
    arp.extend([
        2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2,
    ]);
    let given = [("net", "10.0.0.0/8->192.0.2.0/24"), ("mac", "02:00:00:00:00:01->06:00:00:00:00:01")];
    let after = rewritten(&arp, &given);
    assert_eq!(
        (&after[22..28], &after[28..32], &after[38..42]),
        (&[6, 0, 0, 0, 0, 1][..], &[192, 0, 2, 1][..], &[192, 0, 2, 2][..])
    );
    let (mut other, mut lldp) = (arp.clone(), vec![2; 60]);
    other[18] = 8;
    lldp[12..14].copy_from_slice(&[0x88, 0xcc]);
    for frame in [other, lldp, arp[..41].to_vec(), vec![], vec![1; 13]] {
        assert_eq!(rewritten(&frame, &[("net", "10.0.0.0/8->192.0.2.0/24")]), frame);
    }
}

#[test]
fn fix_sums_up_what_the_device_was_to_sum_up() {
    let (udp, tcp) = (packets::udp(CLIENT, SERVER, b"hello"), packets::tcp(CLIENT, SERVER, 1, 1, 16, b"hello"));
    for (mut unfinished, check) in [(udp, 6), (tcp, 16)] {
        unfinished[34 + check] = 0x12;
        assert_ne!(wrong(&unfinished), Some(vec![]));
        assert_eq!(wrong(&rewritten(&unfinished, &[("fix", "yes")])), Some(vec![]));
    }
    let mut random = Random(5);
    let mut frames = testkit::frames::real_and_damaged(300, &mut random);
    frames.extend((0..1000).map(|_| testkit::frames::shaped(&mut random).bytes));
    for block in run(&frames, &[("fix", "yes")]).blocks {
        // UDP over IPv6 that had no checksum has one now.
        let wrong = wrong(&block.bytes).unwrap_or_default();
        assert!(
            wrong.is_empty() || wrong == ["UDP"] && has_an_odd_length(&block.bytes),
            "{wrong:?} {:x?}",
            block.bytes
        );
    }
}

/// Whether the datagram's length field is longer than its packet or shorter than its header. Then it has no valid checksum.
fn has_an_odd_length(frame: &[u8]) -> bool {
    let read = frame::parse(LinkType::ETHERNET, frame, frame.len() as u32).unwrap();
    let transport = read.payload_of(frame);
    let len = usize::from(u16::from_be_bytes([transport[4], transport[5]]));
    len < 8 || len > transport.len()
}

#[test]
fn refusals() {
    let check = |given: &[(&str, &str)], key: Option<&str>, message: &str| {
        let error = Chain::frames(ETHERNET, &[]).then(&KIND, given).refusal().unwrap();
        assert_eq!((error.key, error.message.as_str()), (key, message), "{given:?}");
    };
    check(&[], None, "there is nothing to change");
    check(&[("src", "10.0.0.0/8")], Some("src"), "`10.0.0.0/8` is a network: which address of it?");
    check(&[("net", "10.0.0.0/8")], Some("net"), "`10.0.0.0/8` does not say what becomes what");
    check(&[("net", "10.0.0.0/8->192.168.0.0/8")], Some("net"), "`192.168.0.0/8` has bits set behind its prefix");
    check(&[("net", "10.0.0.0/8->::/8")], Some("net"), "`10.0.0.0` and `::` are of different versions");
    check(&[("port", "80")], Some("port"), "`80` does not say what becomes what");
    check(&[("dst-port", "80->x")], Some("dst-port"), "`x` is not a port");
    check(&[("mac", "1->2")], Some("mac"), "`1` is not an Ethernet address");
    check(&[("vlan", "4096")], Some("vlan"), "`4096` is not a VLAN");
    check(&[("vlan", "push:x")], Some("vlan"), "`x` is not a VLAN");
    check(&[("ttl", "0")], Some("ttl"), "`0` is no time to live");
}
