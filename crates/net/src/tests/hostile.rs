//! Forged frames and broken channels: the interface counts each one, and no other flow notices.

use super::bed::{
    At, Bed, FAMILIES, FAR, NEAR, arp, at, datagram, icmp_frame, ndp_frame, outgoing, owner, protocol, received,
    seal_transport, six, udp,
};
use buffer::flow::{Bells, Driver, Drop, State};
use buffer::shared::payload::Span;
use buffer::shared::segment::{Access, Segment};
use flow::{Flow, Host, OpenFlow};
use packet::checksum::Sum;
use packet::ndp;
use rustix::io::Errno;
use testkit::random::Random;

const WIRE: [[u8; 6]; 2] = [FAR, NEAR];

#[test]
fn frames_that_are_not_for_this_host_end_by_their_names() {
    let mut bed = Bed::new();
    let sound = datagram(WIRE, at(2, 7), at(1, 4000), b"payload");
    let mut check = |end: &str, change: &dyn Fn(&mut Vec<u8>), seals: bool| {
        let mut frame = sound.clone();
        change(&mut frame);
        if seals {
            super::bed::seal(&mut frame);
        }
        let name = format!("ended.{end}");
        let before = bed.counter(&name);
        bed.give(&frame);
        assert_eq!(bed.counter(&name), before + 1, "{end}: {:?}", bed.ends());
    };
    let to =
        |at: usize, bytes: &'static [u8]| move |frame: &mut Vec<u8>| frame[at..at + bytes.len()].copy_from_slice(bytes);
    check("short", &|frame| frame.truncate(13), false);
    check("other_host", &to(5, &[9]), false);
    check("multicast", &to(0, &[1]), false);
    check("bad_hardware_source", &to(6, &[3]), false);
    check("bad_hardware_source", &to(6, &NEAR), false);
    check("vlan", &to(12, &[0x81, 0]), false);
    check("vlan", &to(12, &[0x88, 0xa8]), false);
    check("other_ether_type", &to(12, &[0x88, 0xcc]), false);
    check("ipv4_malformed", &|frame| frame.truncate(33), false);
    check("ipv4_malformed", &to(14, &[0x65]), true);
    check("ipv4_malformed", &to(14, &[0x44]), true);
    check("ipv4_malformed", &to(16, &[0xff]), true);
    check("ipv4_malformed", &to(16, &[0, 0]), true);
    check("ipv4_checksum", &to(24, &[0x12, 0x34]), false);
    check("ipv4_bad_source", &to(26, &[224, 0, 0, 1]), true);
    check("ipv4_bad_source", &to(26, &[127, 0, 0, 1]), true);
    check("ipv4_bad_source", &to(26, &[0, 0, 0, 0]), true);
    check("ipv4_bad_source", &to(26, &[10, 0, 0, 255]), true);
    check("ipv4_bad_source", &to(26, &[255, 255, 255, 255]), true);
    check("ipv4_own_source", &to(26, &[10, 0, 0, 1]), true);
    check("ipv4_other_address", &to(30, &[10, 0, 0, 9]), true);
    check("ipv4_false_broadcast", &to(0, &[0xff; 6]), false);
    check("other_transport", &to(23, &[132]), true);
    check("udp_malformed", &to(38, &[0, 7]), false);
    check("udp_malformed", &to(38, &[0, 0]), false);
    check("udp_malformed", &to(38, &[1, 0]), false);
    check("udp_closed_port_answered", &|_| (), false);
    let ends = bed.ends();
    assert!(ends.iter().all(|(_, count)| *count > 0) && bed.counter("received") == 27);
    // A tag that the kernel removed from the bytes counts, too.
    let tagged = driver::Frame::new(&sound).tagged(0x8100, 5);
    assert_eq!(bed.interface.core.sort(&tagged, bed.now), crate::counters::End::Vlan);
}

#[test]
fn packets_of_ipv6_that_are_not_for_this_host_end_by_their_names() {
    let mut bed = Bed::new();
    let sound = datagram(WIRE, six(2, 7), six(1, 4000), b"payload");
    let mut check = |end: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = sound.clone();
        change(&mut frame);
        let name = format!("ended.{end}");
        let before = bed.counter(&name);
        bed.give(&frame);
        assert_eq!(bed.counter(&name), before + 1, "{end}: {:?}", bed.ends());
    };
    let ip = |at: usize, text: &'static str| {
        let octets = text.parse::<std::net::Ipv6Addr>().expect("an address").octets();
        move |frame: &mut Vec<u8>| frame[at..at + 16].copy_from_slice(&octets)
    };
    let to =
        |at: usize, bytes: &'static [u8]| move |frame: &mut Vec<u8>| frame[at..at + bytes.len()].copy_from_slice(bytes);
    check("ipv6_malformed", &|frame| frame.truncate(53));
    check("ipv6_malformed", &|frame| frame.truncate(68));
    check("ipv6_malformed", &to(14, &[0x45]));
    check("ipv6_malformed", &to(18, &[0, 16]));
    for source in ["::", "::1", "::10.0.0.2", "::ffff:10.0.0.2", "ff02::1"] {
        check("ipv6_bad_source", &ip(22, source));
    }
    check("ipv6_own_source", &ip(22, "fd00::1"));
    check("ipv6_own_source", &ip(22, "fe80::ff:fe00:1"));
    for target in ["fd00::9", "::1", "::ffff:10.0.0.1"] {
        check("ipv6_other_address", &ip(38, target));
    }
    for group in ["ff02::2", "ff02::1:ff00:2", "ff0e::1", "ff01::1"] {
        check("multicast", &ip(38, group));
    }
    check("ipv6_false_multicast", &to(0, &[0x33, 0x33, 0, 0, 0, 1]));
    check("ipv6_false_multicast", &to(0, &[0xff; 6]));
    // To all nodes, which flows do not receive.
    check("udp_closed_port", &ip(38, "ff02::1"));
    for protocol in [1, 50, 51, 59, 132] {
        check("other_transport", &move |frame| frame[20] = protocol);
    }
    check("udp_malformed", &to(58, &[0, 7]));
    check("udp_malformed", &to(58, &[1, 0]));
    check("udp_closed_port_answered", &|_| ());
    // An interface without an IPv6 address ignores all of them.
    let addresses = vec![(at(1, 0).ip(), 24)];
    let open = flow::OpenInterface { addresses, ..super::bed::interface("near", 1) };
    let mut bed = Bed::with(&open, driver::loopback::Capacity::default());
    bed.give(&sound);
    let mut to_all = sound.clone();
    to_all[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    bed.give(&to_all);
    assert_eq!(bed.ends(), [("multicast".to_string(), 1), ("other_ether_type".to_string(), 1)]);
}

#[test]
fn mutated_frames_never_panic_and_each_ends_once() {
    let mut bed = Bed::new();
    let flows = FAMILIES.map(|at| [udp(at(1, 4000), None), udp(at(1, 4001), Some(at(2, 7)))]);
    let _flows: Vec<_> = flows.iter().flatten().map(|open| bed.open(5, open)).collect();
    let mut seeds = vec![arp(1, FAR, 2, 1, [0xff; 6])];
    for (at, request, unreachable, code) in [(at as At, 8, 3, 3), (six, 128, 1, 4)] {
        let quoted = datagram([NEAR, FAR], at(1, 4001), at(2, 7), b"")[14..].to_vec();
        let ips = [at(2, 0).ip(), at(1, 0).ip()];
        seeds.extend([
            datagram(WIRE, at(2, 7), at(1, 4000), &[7; 200]),
            datagram(WIRE, at(2, 7), at(1, 4001), b""),
            icmp_frame(WIRE, ips, request, 0, &[0; 60]),
            icmp_frame(WIRE, ips, unreachable, code, &[&[0; 4][..], &quoted].concat()),
        ]);
    }
    let target = "fd00::1".parse().expect("an address");
    seeds.extend([
        ndp_frame(WIRE, "fd00::2", "fd00::1", &ndp::solicitation(target, FAR)),
        ndp_frame(WIRE, "fd00::2", "fd00::1", &ndp::advertisement(ndp::SOLICITED, target, FAR)),
        ndp_frame([FAR, [0x33, 0x33, 0xff, 0, 0, 1]], "::", "ff02::1:ff00:1", &ndp::probe(target)),
    ]);
    // Destination options; a fragment with options inside.
    let behind = |protocol: u8, headers: &[u8]| {
        let mut frame = datagram(WIRE, six(2, 7), six(1, 4000), &[7; 100]);
        frame.splice(54..54, headers.iter().copied());
        frame[18..20].copy_from_slice(&(108 + headers.len() as u16).to_be_bytes());
        frame[20] = protocol;
        frame
    };
    seeds.push(behind(60, &[60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 5, 2, 0, 0, 0, 0]));
    seeds.push(behind(44, &[60, 0, 0, 0, 0, 0, 0, 9, 17, 0, 1, 4, 0, 0, 0, 0]));
    let mut random = Random(0x5eed);
    let count = 60_000;
    for _ in 0..count {
        let mut frame = seeds[random.below(seeds.len())].clone();
        for _ in 0..random.below(6) {
            let at = random.below(frame.len());
            frame[at] = random.number() as u8;
        }
        if random.below(4) == 0 {
            frame.truncate(random.below(frame.len() + 1));
        }
        if random.below(3) > 0 && frame.len() > 34 && frame[12..14] == [8, 0] {
            // With the checksums that let it get further.
            frame[24..26].fill(0);
            let header = (14 + usize::from(frame[14] & 15) * 4).clamp(15, frame.len());
            let checksum = Sum::of(&frame[14..header]).checksum();
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        }
        if random.below(3) > 0 && frame.len() > 58 && frame[12..14] == [0x86, 0xdd] && frame[20] == 58 {
            seal_transport(&mut frame);
        }
        bed.interface.core.take(&driver::Frame::new(&frame), bed.now);
        bed.now += 10_000;
        if random.below(64) == 0 {
            bed.sent();
        }
    }
    bed.sent();
    let ends = bed.ends();
    assert_eq!(bed.counter("received"), count);
    assert!(ends.len() > 35, "{ends:?}");
    // Kept fragments expire.
    bed.now += 100 * crate::limits::SECOND;
    assert_eq!(bed.settle(), None);
    assert_eq!(bed.interface.core.fragments.kept(), (0, 0, 0));
}

#[test]
fn a_stopped_application_loses_its_own_packets_only() {
    let mut bed = Bed::new();
    let (stopped, mut other) = (bed.open(5, &udp(at(1, 4000), None)), bed.open(6, &udp(at(1, 4001), None)));
    let mut seen = 0;
    for _ in 0..1000 {
        bed.give(&datagram(WIRE, at(2, 7), at(1, 4000), b"nobody reads this"));
        bed.give(&datagram(WIRE, at(2, 7), at(1, 4001), b"this is read"));
        seen += received(&mut other).len();
    }
    assert_eq!((seen, stopped.channel.dropped(Drop::NoBuffer)), (1000, 1000 - 256));
    assert_eq!(bed.counter("ended.dropped_by_flow"), 1000 - 256);
    bed.give(&datagram(WIRE, at(2, 7), at(1, 4001), &[0; 2048]));
    assert_eq!(received(&mut other).iter().map(Vec::len).collect::<Vec<_>>(), [2048 + 42], "in two buffers");
    let mut small = bed.open(7, &OpenFlow { receive_buffers: 1, ..udp(at(1, 4002), None) });
    bed.give(&datagram(WIRE, at(2, 7), at(1, 4002), &[0; 2048]));
    assert_eq!((small.channel.dropped(Drop::TooLong), received(&mut small).len()), (1, 0));
    bed.ends();
}

/// A flow whose shared words the test may write.
struct Hostile {
    flow: Flow,
    words: Span,
    empties: usize,
}

fn hostile(bed: &mut Bed, client: u64, open: &OpenFlow) -> Hostile {
    let (driver, segments) = Driver::create(open.geometry()).expect("a little memory");
    let (bells, handles) = Bells::create().expect("as above");
    let copy = segments[0].try_clone().expect("a file descriptor");
    let mut fds = Vec::from(segments);
    fds.extend(handles);
    let permit = bed.users.take(client as u32, 0).expect("there is room");
    let (owner, number, bells) = (owner(client), 1000 + client, Some(bells));
    let opening = crate::manager::Opening { open: open.clone(), owner, number, driver, bells, permit };
    let granted = bed.interface.core.open(opening, bed.now).expect("nothing is in its way");
    let flow = Host::default().adopt(granted, open.geometry(), fds).expect("as above");
    let bytes = open.geometry().bytes().0;
    let segment = Segment::receive(copy, bytes, Access::Write).expect("it is the channel's");
    let words = Span::new(segment.map(0, bytes, Access::Write).expect("as above"));
    let records = (open.send_records as usize * 32).next_multiple_of(4096);
    Hostile { flow, words, empties: 4096 + records }
}

/// Writes invalid words.
type Lie<'a> = &'a dyn Fn(&Hostile);

impl Hostile {
    fn write(&self, at: usize, word: u64) {
        self.words.copy_in(at, &word.to_ne_bytes());
    }
}

#[test]
fn a_channel_that_makes_no_sense_closes_its_flow_alone() {
    let sent = |index: u64| move |channel: &Hostile| channel.write(0, index);
    let record = |count: u64, piece: u64| {
        move |channel: &Hostile| {
            channel.write(4096, count);
            channel.write(4096 + 8, piece);
            channel.write(0, 1);
        }
    };
    let empty = |index: u64, buffer: u64| {
        move |channel: &Hostile| {
            channel.write(channel.empties, buffer);
            channel.write(128, index);
        }
    };
    let lies: [(&str, Lie<'_>); 10] = [
        ("more records than there are", &sent(257)),
        ("an index that goes back", &sent(u64::MAX)),
        ("no pieces", &record(0, 100 << 32)),
        ("too many pieces", &record(4, 100 << 32)),
        ("a piece behind the end", &record(1, 100 << 32 | 512 << 10)),
        ("a piece that is too long", &record(1, (512 << 10 | 1) << 32)),
        ("both", &record(1, u64::MAX)),
        ("more buffers than there are", &empty(257, 0)),
        ("a buffer that is none", &empty(256, 256)),
        ("a buffer twice", &empty(2, 0)),
    ];
    for (name, lie) in lies {
        let mut bed = Bed::new();
        let mut honest = bed.open(5, &udp(at(1, 4001), Some(at(2, 4001))));
        bed.introduce(&mut honest);
        let liar = hostile(&mut bed, 6, &udp(at(1, 4000), None));
        lie(&liar);
        liar.flow.ring();
        bed.settle();
        // Empty buffers are checked when a packet finds none.
        for _ in 0..257 {
            bed.give(&datagram(WIRE, at(2, 7), at(1, 4000), b"for the liar"));
        }
        assert_eq!(liar.flow.channel.state(), State::Closed(Errno::PROTO.raw_os_error()), "{name}");
        assert_eq!(bed.counter("flows.faults"), 1, "{name}");
        honest.send(&[&outgoing(at(1, 4001), at(2, 4001), b"goes on")]).expect("there is room");
        assert_eq!(bed.sent().iter().filter(|frame| protocol(frame) == 17).count(), 1, "{name}");
        bed.give(&datagram(WIRE, at(2, 4001), at(1, 4001), b"goes on"));
        assert_eq!(received(&mut honest).len(), 1, "{name}");
        bed.ends();
    }
}

#[test]
fn any_words_at_all_do_no_more_than_close_the_flow() {
    let mut random = Random(0xf10e);
    for round in 0..60 {
        let mut bed = Bed::new();
        let mut honest = bed.open(5, &udp(at(1, 4001), Some(at(2, 4001))));
        bed.introduce(&mut honest);
        let liar = hostile(&mut bed, 6, &udp(at(1, 4000), None));
        for _ in 0..50 {
            let places = [0, 128, 4096 + 8 * random.below(64), liar.empties + 8 * random.below(64)];
            let words = [random.number(), random.below(300) as u64, 1, random.number() >> 40 | 60 << 32];
            liar.write(places[random.below(4)], words[random.below(4)]);
            liar.flow.ring();
            bed.give(&datagram(WIRE, at(2, 7), at(1, 4000), b"for the liar"));
            let sent = bed.sent();
            assert!(sent.iter().all(|frame| matches!(protocol(frame), 0 | 1)), "round {round}: a forged frame");
        }
        honest.send(&[&outgoing(at(1, 4001), at(2, 4001), b"goes on")]).expect("there is room");
        assert_eq!(bed.sent().iter().filter(|frame| protocol(frame) == 17).count(), 1);
        bed.ends();
    }
}

#[test]
fn clients_that_leave_take_everything_along() {
    let mut bed = Bed::new();
    for client in 0..20 {
        for _ in 0..20 {
            let mut flow = bed.open(100 + client, &udp(at(1, 0), None));
            // It waits for a neighbour that never answers.
            let frame = outgoing(flow.granted.local, at(9, 9), b"anybody?");
            flow.send(&[&frame]).expect("there is room");
        }
        bed.settle();
    }
    assert_eq!((bed.users.flows(), bed.interface.core.clients.len()), (400, 20));
    for client in 0..20 {
        bed.interface.leave(100 + client, bed.now);
    }
    assert_eq!((bed.users.flows(), bed.interface.core.clients.len()), (0, 0));
    assert!(bed.interface.core.ready == 0 && bed.interface.core.flows.all().next().is_none());
    for _ in 0..4 {
        bed.now += crate::limits::SECOND;
        bed.settle();
    }
    assert_eq!(bed.settle(), None);
}
