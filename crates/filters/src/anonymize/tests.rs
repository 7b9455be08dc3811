//! Anonymized frames name no station, have right checksums, and still suit an analysis.

use super::*;
use packet::frame;
use testkit::Chain;
use testkit::chain::Outcome;
use testkit::packets::{self, CLIENT, SERVER, wrong_checksums};
use testkit::random::Random;

const KEY_TEXT: &str = "a key that nobody knows";
const ETHERNET: LinkType = LinkType::ETHERNET;

fn run_on(link: LinkType, frames: &[Vec<u8>], payload: &str) -> Outcome {
    let frames: Vec<_> = frames.iter().map(|frame| (0, frame.clone())).collect();
    Chain::frames(link.0, &frames).then(&KIND, &[("key", KEY_TEXT), ("payload", payload)]).run()
}

fn anonymized(frame: &[u8], payload: &str) -> Vec<u8> {
    run_on(ETHERNET, &[frame.to_vec()], payload).blocks.remove(0).bytes
}

fn wrong(frame: &[u8]) -> Option<Vec<&'static str>> {
    wrong_checksums(ETHERNET, frame, frame.len() as u32)
}

/// Makes the checksums of a frame right.
fn summed(mut frame: Vec<u8>) -> Vec<u8> {
    let read = frame::parse(ETHERNET, &frame, frame.len() as u32).unwrap();
    if read.protocol == protocol::UDP {
        let at = read.transport_offset as usize + 6;
        frame[at..at + 2].copy_from_slice(&[1, 1]);
    }
    edit::sum_up(&mut frame, &read);
    frame
}

/// Bytes that must not be found afterwards: an address, and a name.
const MARK: [u8; 4] = [203, 0, 113, 77];
const NAME: &[u8] = b"alice.example";
const MAC_MARK: [u8; 6] = [0, 0xaa, 0xbb, 0xcc, 0xdd, 0xee];

fn check_no_trace(frame: &[u8], what: &str) {
    let marks = [&MARK[..], NAME, &MAC_MARK];
    let is_marked = |mark: &&[u8]| frame[12..].windows(mark.len()).any(|here| here == *mark);
    assert!(marks.iter().any(is_marked), "{what}: there is something to be found");
    let with_mac = [&[2, 0, 0, 0, 0, 1], &MAC_MARK[..], &frame[12..]].concat();
    for payload in ["zero", "cut"] {
        let outcome = run_on(ETHERNET, std::slice::from_ref(&with_mac), payload);
        let [block] = &outcome.blocks[..] else { panic!("{what}") };
        let has = |needle: &[u8]| block.bytes.windows(needle.len()).any(|here| here == needle);
        for needle in [&MARK[..], NAME, &NAME[..5], &MAC_MARK, &MAC_MARK[2..]] {
            assert!(!has(needle), "{what}, payload={payload}: {needle:x?} in {:x?}", block.bytes);
        }
        assert_eq!(block.descriptor.wire() as usize, frame.len(), "{what}");
        if payload == "zero" {
            assert_eq!(block.bytes.len(), frame.len(), "{what}");
            assert_eq!(wrong(&block.bytes).unwrap_or_default(), Vec::<&str>::new(), "{what}");
        }
        assert_eq!(block.bytes.len() < frame.len(), block.descriptor.has(Flags::TRUNCATED), "{what}");
    }
}

#[test]
fn no_trace_is_left_wherever_it_was() {
    let mark = std::net::Ipv4Addr::from(MARK);
    let long = [NAME, &[7; 40]].concat();
    let inner = summed(packets::udp((mark, 9), SERVER, &long));
    let error = |kind: u8, rest: &[u8]| [&[kind, 0, 0, 0], &MARK[..], rest].concat();
    let ipv4 = |protocol, payload: &[u8]| summed(packets::ipv4(mark, SERVER.0, protocol, payload));
    check_no_trace(&summed(packets::udp((mark, 9), SERVER, &long)), "udp");
    check_no_trace(&summed(packets::tcp(CLIENT, (mark, 9), 1, 1, 16, &long)), "tcp");
    check_no_trace(&ipv4(1, &error(5, &inner[14..])), "a redirect");
    check_no_trace(&ipv4(1, &[&[3, 1, 0, 0, 0, 0, 0, 0], &inner[14..]].concat()), "unreachable");
    check_no_trace(&ipv4(1, &[&[9, 0, 0, 0, 1, 2, 0, 9], &MARK[..], &[0; 4]].concat()), "a router's advertisement");
    check_no_trace(&ipv4(1, &[&[8, 0, 0, 0, 0, 1, 0, 1], NAME].concat()), "an echo");
    check_no_trace(&ipv4(2, &[&[0x16, 0, 0, 0], &MARK[..]].concat()), "igmp");
    check_no_trace(&ipv4(47, &[&[0, 0, 8, 0], &inner[14..]].concat()), "gre");
    check_no_trace(&ipv4(4, &inner[14..]), "ip in ip");
    check_no_trace(&ipv4(132, &[&[0, 9, 0, 9][..], &[0; 8], NAME].concat()), "sctp");
    check_no_trace(&ipv4(51, &[&[17, 4, 0, 0][..], &[0; 20], &inner[34..]].concat()), "authentication");
    // Options: a recorded route, and a TCP option that carries an address (RFC 8684).
    let mut routed =
        packets::ipv4(mark, SERVER.0, 17, &[&[7, 7, 8], &MARK[..], &[0], &[0, 9, 0, 9, 0, 8, 0, 0]].concat());
    routed[14] = 0x47;
    check_no_trace(&summed(routed), "a recorded route");
    let mut option =
        packets::tcp(CLIENT, SERVER, 1, 1, 16, &[&[30, 8, 0x30, 1], &MARK[..], &[2, 4, 5, 0xb4], NAME].concat());
    option[34 + 12] = 0x80;
    check_no_trace(&summed(option), "an option of tcp");
    // Frames without IP.
    let arp = [&[0xff; 12][..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &MAC_MARK, &MARK, &[0; 6], &MARK, NAME].concat();
    check_no_trace(&arp, "arp");
    check_no_trace(&[&[1; 12][..], &[0x88, 0xcc], NAME, &MARK].concat(), "lldp");
    check_no_trace(&[&[1; 12][..], &[0, 30, 0x42, 0x42, 3], &MAC_MARK, NAME].concat(), "spanning tree");
    check_no_trace(&[&inner[..12], &[0x81, 0, 0, 7, 0x88, 0xcc], NAME].concat(), "tagged lldp");
    let label = [0, 1, 0x11, 64];
    check_no_trace(&[&inner[..12], &[0x88, 0x47], &label, &inner[14..]].concat(), "mpls");
    check_no_trace(
        &[&inner[..12], &[0x88, 0x47], &label, &[0; 4], &MAC_MARK, &MAC_MARK, &inner[12..]].concat(),
        "a pseudowire",
    );
    let session = [0x88, 0x64, 0x11, 0, 0, 1, 0, inner.len() as u8 - 12, 0, 0x21];
    check_no_trace(&[&inner[..12], &session, &inner[14..]].concat(), "pppoe");
    check_no_trace(&[&inner[..12], &[0x88, 0x64, 0x11, 9, 0, 1, 0, 20], NAME].concat(), "pppoe of another code");
    check_no_trace(&inner[..40], "cut in the middle of a header");
    check_no_trace(&[&inner[..12], &[8, 0, 0x41], NAME].concat(), "no header");
}

#[test]
fn no_trace_is_left_in_version_6() {
    let wide = |last: &[u8]| [&[0x20, 1, 0x0d, 0xb8], &[0; 8][..], last].concat();
    let packet = |next: u8, extensions: &[u8], payload: &[u8]| {
        let len = ((extensions.len() + payload.len()) as u16).to_be_bytes();
        let head =
            [&[0u8; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0], &len, &[next, 64], &wide(&MARK), &wide(&[0, 0, 0, 9])]
                .concat();
        summed([&head[..], extensions, payload].concat())
    };
    let udp = [&[0, 9, 0, 9, 0, 21, 1, 1][..], NAME].concat();
    check_no_trace(&packet(17, &[], &udp), "udp");
    let target = wide(&MARK);
    check_no_trace(
        &packet(58, &[], &[&[135, 0, 0, 0, 0, 0, 0, 0], &target[..], &[1, 1], &MAC_MARK].concat()),
        "a solicitation",
    );
    check_no_trace(&packet(58, &[], &[&[137, 0, 0, 0, 0, 0, 0, 0], &target[..], &target[..]].concat()), "a redirect");
    check_no_trace(&packet(58, &[], &[&[131, 0, 0, 0, 0, 0, 0, 0], &target[..]].concat()), "a report");
    let inner = packet(17, &[], &udp);
    check_no_trace(&packet(58, &[], &[&[1, 0, 0, 0, 0, 0, 0, 0], &inner[14..]].concat()), "unreachable");
    check_no_trace(&packet(0, &[&[17, 0, 0x3e, 4], &MARK[..]].concat(), &udp), "an option");
    check_no_trace(&packet(60, &[&[17, 2, 0xc9, 16], &target[..], &[1, 2, 0, 0]].concat(), &udp), "a home address");
    check_no_trace(&packet(43, &[&[17, 2, 0, 1, 0, 0, 0, 0], &target[..]].concat(), &udp), "a routing header");
    check_no_trace(&packet(44, &[17, 0, 0, 8, 1, 2, 3, 4], &udp), "a later fragment");
}

#[test]
fn cooked_raw_and_loopback_links() {
    let packet = summed(packets::udp(CLIENT, SERVER, NAME))[14..].to_vec();
    let cooked = [&[0, 0, 0, 1, 0, 6], &MAC_MARK[..], &MARK[..2], &[8, 0], &packet].concat();
    let cooked_2 = [&[8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6], &MAC_MARK[..], &MARK[..2], &packet].concat();
    for (link, frame) in [
        (LinkType::RAW, packet.clone()),
        (LinkType::NULL, [&[2, 0, 0, 0], &packet[..]].concat()),
        (LinkType::LINUX_SLL, cooked),
        (LinkType::LINUX_SLL2, cooked_2),
    ] {
        let outcome = run_on(link, std::slice::from_ref(&frame), "zero");
        let bytes = &outcome.blocks[0].bytes;
        assert_eq!(wrong_checksums(link, bytes, bytes.len() as u32), Some(vec![]), "{link}");
        let found = [&MAC_MARK[..], NAME, &CLIENT.0.octets(), &MARK[..2]]
            .map(|mark| bytes.windows(mark.len()).any(|here| here == mark));
        assert_eq!(found, [false; 4], "{link} {bytes:x?}");
        assert_eq!(outcome.blocks[0].interface.as_ref().unwrap().link_type, Some(link.0));
    }
    let dropped = run_on(LinkType(105), &[vec![1; 60]], "zero");
    assert_eq!((dropped.blocks.len(), dropped.counters("anonymize").drops.total()), (0, 1));
}

/// Real, damaged and random frames: a right checksum stays right, and the filter loses no frame.
#[test]
fn whatever_comes_checksums_that_were_right_are_right() {
    let mut random = Random(21);
    let mut frames = testkit::frames::real_and_damaged(800, &mut random);
    frames.extend((0..4000).map(|_| testkit::frames::shaped(&mut random).bytes));
    let right: Vec<Vec<u8>> =
        frames.into_iter().filter(|frame| wrong(frame).is_none_or(|wrong| wrong.is_empty())).collect();
    assert!(right.len() > 500, "{}", right.len());
    for payload in ["zero", "keep"] {
        let outcome = run_on(ETHERNET, &right, payload);
        assert_eq!(outcome.blocks.len(), right.len());
        for (before, block) in right.iter().zip(&outcome.blocks) {
            assert_eq!(before.len(), block.bytes.len());
            let wrong = wrong(&block.bytes).unwrap_or_default();
            assert_eq!(wrong, Vec::<&str>::new(), "{payload}\n{before:x?}\n{:x?}", block.bytes);
        }
    }
    assert_eq!(run_on(ETHERNET, &right, "cut").blocks.len(), right.len());
}

#[test]
fn the_same_key_gives_the_same_in_another_capture_and_another_key_does_not() {
    let frames = [packets::udp(CLIENT, SERVER, b"one"), packets::udp(SERVER, CLIENT, b"other")];
    let addresses = |frame: &[u8]| {
        let read = frame::parse(ETHERNET, frame, frame.len() as u32).unwrap();
        [read.source, read.target]
    };
    let [there, back] = frames.clone().map(|frame| addresses(&anonymized(&frame, "zero")));
    assert_eq!(there, [back[1], back[0]]);
    let other = Chain::frames(1, &[(0, frames[0].clone())]).then(&KIND, &[("key", "some other key than that")]).run();
    assert_ne!(addresses(&other.blocks[0].bytes), there);
}

/// An analysis still finds connections, their lengths and their ends.
#[test]
fn streams_are_what_they_were() {
    let mut conversation = packets::Conversation::open(CLIENT, SERVER, 7);
    conversation.send(0, b"a question").send(1, &[9; 3000]).fin(0).fin(1);
    let streams = |chain: Chain| {
        let outcome = chain.then(&crate::tcp::KIND, &[]).run();
        outcome.by_class().into_values().map(|bytes| bytes.len()).collect::<Vec<_>>()
    };
    let key = &[("key", KEY_TEXT)];
    let before = streams(Chain::frames(1, &conversation.frames));
    assert_eq!(streams(Chain::frames(1, &conversation.frames).then(&KIND, key)), before);
    assert_eq!(before, [10, 3000]);
}

#[test]
fn keys() {
    let refusal = |given: &[(&str, &str)]| Chain::frames(1, &[]).then(&KIND, given).refusal();
    assert_eq!(refusal(&[]).unwrap().message, "there is no key");
    assert_eq!(refusal(&[("key", "short")]).unwrap().message, "a key of fewer than 16 letters can be guessed");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let path = path.to_str().unwrap();
    assert!(refusal(&[("key-file", path)]).unwrap().system);
    for (bytes, fine) in
        [(&[200; 32][..], true), (&[200; 31], false), (b"sixteen letters!\n", true), (b"short\n", false)]
    {
        std::fs::write(path, bytes).unwrap();
        assert_eq!(refusal(&[("key-file", path)]).is_none(), fine, "{bytes:?}");
    }
    assert_eq!(refusal(&[("key", KEY_TEXT), ("key-file", path)]).unwrap().key, Some("key-file"));
    let frame = (0, packets::udp(CLIENT, SERVER, b"one"));
    std::fs::write(path, format!("{KEY_TEXT}\n")).unwrap();
    let [by_text, by_file] = [("key", KEY_TEXT), ("key-file", path)]
        .map(|given| Chain::frames(1, std::slice::from_ref(&frame)).then(&KIND, &[given]).run().blocks.remove(0).bytes);
    assert_eq!(by_text, by_file);
}

/// `cut` keeps only the headers, `zero` zeroes the payload, `keep` keeps it.
#[test]
fn what_is_zeroed_or_cut_is_not_copied() {
    let frame = summed(packets::udp(CLIENT, SERVER, &[7; 1400]));
    let cut = anonymized(&frame, "cut");
    assert_eq!((cut.len(), &anonymized(&frame, "zero")[42..]), (42, &[0; 1400][..]));
    assert_eq!(anonymized(&frame, "keep")[42..], frame[42..]);
}
