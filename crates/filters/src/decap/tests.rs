//! Tunnels and fragments through the engine: the output, where it lies, and what is counted.

use super::*;
use base::limits::{BATCH_BLOCKS, DECAP_PACKETS, DECAP_TUNNELS};
use packet::checksum::Sum;
use packet::tunnel::Kind as Tunnel;
use packet::tunnel::stack::Layers;
use std::net::Ipv4Addr;
use testkit::packets::{CLIENT, SERVER, flag, ipv4, tcp, udp};
use testkit::random::Random;
use testkit::{Chain, Outcome};

const SECOND: u64 = 1_000_000_000;
const ETHERNET: u16 = 1;
const RAW: u16 = 101;

fn run(frames: &[Vec<u8>], given: &[(&str, &str)]) -> Outcome {
    let frames: Vec<_> = frames.iter().map(|frame| (SECOND, frame.clone())).collect();
    Chain::frames(ETHERNET, &frames).then(&KIND, given).run()
}

/// An Ethernet frame that carries `frame` in VXLAN.
fn vxlan(network: u32, frame: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = network.to_be_bytes();
    udp(
        (Ipv4Addr::new(172, 16, 0, 1), 50_000),
        (Ipv4Addr::new(172, 16, 0, 2), 4789),
        &[&[8, 0, 0, 0, a, b, c, 0], frame].concat(),
    )
}

fn ip_in_ip(frame: &[u8]) -> Vec<u8> {
    ipv4(Ipv4Addr::new(172, 16, 0, 3), Ipv4Addr::new(172, 16, 0, 4), 4, &frame[14..])
}

fn segment(text: &[u8]) -> Vec<u8> {
    tcp(CLIENT, SERVER, 1, 1, flag::ACK, text)
}

fn tunnels(block: &testkit::chain::Block) -> Vec<&'static str> {
    let tunnels = block.interface.as_ref().and_then(|interface| interface.tunnels.clone()).unwrap_or_default();
    Layers::of(&tunnels).map(|layer| layer.kind.name()).collect()
}

fn event(outcome: &Outcome, name: &str) -> u64 {
    outcome.counters("decap").events.get(name)
}

#[test]
fn what_carries_nothing_passes_as_it_came() {
    let frames = [
        segment(b"a"),
        udp(CLIENT, SERVER, b"b"),
        [&[2; 12][..], &[8, 6], &[0; 28]].concat(),
        udp(CLIENT, (SERVER.0, 4789), b"not vxlan"),
        ipv4(CLIENT.0, SERVER.0, 47, &[0, 0, 0x20, 0, 1, 2, 3]),
        vec![1, 2, 3],
        Vec::new(),
    ];
    let outcome = run(&frames, &[]);
    let bytes: Vec<_> = outcome.blocks.iter().map(|block| block.bytes.clone()).collect();
    assert_eq!(bytes, frames);
    assert!(outcome.blocks.iter().all(|block| tunnels(block).is_empty()));
    assert_eq!(outcome.counters("decap").events.iter().count(), 0);
}

#[test]
fn a_packet_out_of_a_tunnel_is_the_same_bytes_in_a_view_of_its_own() {
    let inner = segment(b"hello");
    let check = |outer: Vec<u8>, given: &[(&str, &str)], expected: &[u8], link: u16, stack: &[&str]| {
        let place = (outer.len() - expected.len()) as u64;
        let outcome = run(&[outer], given);
        let [block] = &outcome.blocks[..] else { panic!("one block") };
        assert_eq!(block.bytes, expected);
        assert_eq!((block.descriptor.pos, block.descriptor.wire()), (place, expected.len() as u32));
        assert_eq!((block.descriptor.time, block.interface.as_ref().unwrap().link_type), (SECOND, Some(link)));
        assert_eq!(tunnels(block), stack);
        outcome
    };
    check(vxlan(7, &inner), &[], &inner, ETHERNET, &["vxlan"]);
    check(ip_in_ip(&inner), &[], &inner[14..], RAW, &["ip"]);
    let nested = vxlan(7, &ip_in_ip(&vxlan(8, &ip_in_ip(&inner))));
    check(nested.clone(), &[], &inner[14..], RAW, &["vxlan", "ip", "vxlan", "ip"]);
    let outcome = check(nested.clone(), &[("depth", "2")], &vxlan(8, &ip_in_ip(&inner))[14..], RAW, &["vxlan", "ip"]);
    assert_eq!(event(&outcome, "tunnels too deep"), 1);
    let outcome = check(nested, &[("depth", "0")], &vxlan(7, &ip_in_ip(&vxlan(8, &ip_in_ip(&inner)))), ETHERNET, &[]);
    assert_eq!(event(&outcome, "tunnels too deep"), 1);
    // Other ports than the defaults, and none.
    let mut other = vxlan(7, &inner);
    other[36..38].copy_from_slice(&5555u16.to_be_bytes());
    check(other.clone(), &[("vxlan", "4789,5555")], &inner, ETHERNET, &["vxlan"]);
    check(other.clone(), &[], &other, ETHERNET, &[]);
    let usual = vxlan(7, &inner);
    check(usual.clone(), &[("vxlan", "none")], &usual, ETHERNET, &[]);
}

#[test]
fn opening_twice_is_opening_once_and_tells_all_tunnels() {
    let frames = [(SECOND, vxlan(7, &ip_in_ip(&segment(b"x"))))];
    let outcome = Chain::frames(ETHERNET, &frames).then(&KIND, &[("depth", "1")]).then(&KIND, &[]).run();
    assert_eq!(tunnels(&outcome.blocks[0]), ["vxlan", "ip"]);
    assert_eq!(outcome.blocks[0].bytes, segment(b"x")[14..]);
}

#[test]
fn what_a_tunnel_cuts_is_cut_inside_of_it() {
    let inner = segment(b"0123456789");
    let mut outer = vxlan(7, &inner);
    let mut block = Descriptor::default();
    block.set_wire(outer.len() as u32);
    block.set_flags(Flags::TRUNCATED.with(Flags::OUTBOUND));
    outer.truncate(outer.len() - 4);
    let outcome = Chain::pieces(Type::Frame, Some(ETHERNET), vec![(block, outer)]).then(&KIND, &[]).run();
    let block = &outcome.blocks[0];
    assert_eq!((block.bytes.len(), block.descriptor.wire() as usize), (inner.len() - 4, inner.len()));
    assert!(block.descriptor.has(Flags::TRUNCATED.with(Flags::OUTBOUND)));
}

#[test]
fn a_broken_header_is_counted_and_its_packet_passes() {
    let frames = [ipv4(CLIENT.0, SERVER.0, 47, &[0, 7, 8, 0]), ipv4(CLIENT.0, SERVER.0, 47, &[0, 0])];
    let outcome = run(&frames, &[]);
    assert_eq!(outcome.blocks.len(), 2);
    assert_eq!((event(&outcome, "malformed tunnel header"), event(&outcome, "truncated tunnel header")), (1, 1));
}

/// More tunnels than views: packets still come out, and the loss of detail is counted.
#[test]
fn more_tunnels_than_can_be_told_apart() {
    let count = DECAP_TUNNELS as u32 + 100;
    let mut frames: Vec<_> = (0..count).map(|network| vxlan(network, &segment(b"x"))).collect();
    frames.push(vxlan(3, &segment(b"x")));
    let outcome = run(&frames, &[]);
    assert_eq!(outcome.blocks.len(), frames.len());
    assert!(outcome.blocks.iter().all(|block| block.bytes == segment(b"x") && tunnels(block) == ["vxlan"]));
    assert_eq!(event(&outcome, "packets whose tunnels are not told apart"), 100);
    let layer = |at: usize| {
        let interface = outcome.blocks[at].interface.clone().unwrap();
        Layers::of(interface.tunnels.as_ref().unwrap()).next().unwrap()
    };
    let (told, less, known) = (layer(5), layer(count as usize - 1), layer(count as usize));
    assert_eq!((told.id, less.id, known.id), (Some(5), None, Some(3)));
    assert_eq!((less.kind, less.addresses), (Tunnel::Vxlan, told.addresses));
}

// --- fragments ----------------------------------------------------------------------------------------------------------

/// Fragments of the IPv4 packet in `frame`, cut at these places of its payload.
fn pieces(frame: &[u8], identification: u16, cuts: &[usize]) -> Vec<Vec<u8>> {
    let payload = &frame[34..];
    let ends = cuts.iter().skip(1).copied().chain([payload.len()]);
    cuts.iter()
        .zip(ends)
        .map(|(start, end)| piece(frame, identification, *start, &payload[*start..end], end < payload.len()))
        .collect()
}

/// One fragment with any bytes.
fn piece(frame: &[u8], identification: u16, start: usize, bytes: &[u8], more: bool) -> Vec<u8> {
    let mut fragment = [&frame[..34], bytes].concat();
    fragment[16..18].copy_from_slice(&(20 + bytes.len() as u16).to_be_bytes());
    fragment[18..20].copy_from_slice(&identification.to_be_bytes());
    let place = (start / 8) as u16 | if more { 0x2000 } else { 0 };
    fragment[20..22].copy_from_slice(&place.to_be_bytes());
    fragment
}

/// A datagram of `len` bytes, each unlike its neighbours.
fn datagram(len: usize) -> Vec<u8> {
    udp(CLIENT, SERVER, &(0..len).map(|at| (at * 7 + at / 256) as u8).collect::<Vec<_>>())
}

/// The block is this frame, except for the header fields that fragments change.
fn assert_whole(block: &testkit::chain::Block, frame: &[u8]) {
    assert_eq!((&block.bytes[..14], &block.bytes[34..]), (&frame[..14], &frame[34..]));
    assert_eq!((&block.bytes[16..18], block.bytes[20] & 0x3f, block.bytes[21]), (&frame[16..18], 0, 0));
    assert_eq!(Sum::of(&block.bytes[14..34]).checksum(), 0);
    assert_eq!(block.descriptor.wire() as usize, frame.len());
}

#[test]
fn fragments_make_a_packet_in_any_order() {
    let whole = datagram(100);
    let orders: [&[usize]; 5] = [&[0, 1, 2], &[2, 1, 0], &[1, 0, 2], &[0, 0, 1, 1, 2], &[2, 0, 2, 1]];
    for order in orders {
        let all = pieces(&whole, 7, &[0, 24, 64]);
        let frames: Vec<_> = order.iter().map(|at| all[*at].clone()).collect();
        let outcome = run(&frames, &[]);
        let [block] = &outcome.blocks[..] else { panic!("{order:?}: {} blocks", outcome.blocks.len()) };
        assert_whole(block, &whole);
        let counters = outcome.counters("decap");
        assert_eq!((counters.blocks_passed, counters.blocks_taken), (1, order.len() as u64 - 1));
        assert_eq!(event(&outcome, "packets put together"), 1);
        assert_eq!(event(&outcome, "fragments overlap"), order.len() as u64 - 3);
        assert_eq!(event(&outcome, "fragments overlap with other bytes"), 0);
    }
}

#[test]
fn packets_between_others_keep_their_place() {
    let whole = datagram(64);
    let [first, last] = <[_; 2]>::try_from(pieces(&whole, 7, &[0, 40])).unwrap();
    let outcome = run(&[segment(b"1"), first, segment(b"2"), last, segment(b"3")], &[]);
    let bytes: Vec<_> = outcome.blocks.iter().map(|block| block.bytes.len()).collect();
    assert_eq!(bytes, [55, 55, whole.len(), 55]);
}

#[test]
fn what_keeps_fragments_apart() {
    let whole = datagram(64);
    let [first, last] = <[_; 2]>::try_from(pieces(&whole, 7, &[0, 40])).unwrap();
    let change = |at: usize, value: u8| {
        let mut changed = last.clone();
        changed[at] = value;
        changed
    };
    let tagged = |id: u8, frame: &[u8]| [&frame[..12], &[0x81, 0, 0, id], &frame[12..]].concat();
    let check = |other: Vec<u8>, what: &str| {
        let outcome = run(&[first.clone(), other], &[]);
        assert!(outcome.blocks.is_empty(), "{what}");
        assert_eq!(event(&outcome, "fragmented packets unfinished"), 2, "{what}");
    };
    check(change(19, 8), "another identification");
    check(change(23, 6), "another protocol");
    check(change(29, 9), "another source");
    check(change(33, 9), "another target");
    check(tagged(3, &last), "a VLAN");
    check(ip_in_ip(&last), "a tunnel");
    let in_vlan = run(&[tagged(3, &first), tagged(3, &last)], &[]);
    assert_eq!(in_vlan.blocks[0].bytes.len(), whole.len() + 4);
    assert!(run(&[tagged(3, &first), tagged(4, &last)], &[]).blocks.is_empty());
    // A priority tag names no VLAN.
    assert_eq!(run(&[first.clone(), tagged(0, &last)], &[]).blocks.len(), 1);
    assert_eq!(run(&[tagged(3, &first), tagged(0, &tagged(3, &last))], &[]).blocks.len(), 1);
    assert!(run(&[vxlan(3, &first), vxlan(4, &last)], &[]).blocks.is_empty());
}

#[test]
fn fragments_in_tunnels_and_tunnels_in_fragments() {
    let whole = datagram(100);
    let frames: Vec<_> = pieces(&whole, 7, &[0, 40]).iter().map(|piece| vxlan(9, piece)).collect();
    let outcome = run(&frames, &[]);
    assert_eq!((outcome.blocks.len(), tunnels(&outcome.blocks[0])), (1, vec!["vxlan"]));
    assert_whole(&outcome.blocks[0], &whole);
    let outer = vxlan(9, &ip_in_ip(&whole));
    let outcome = run(&pieces(&outer, 8, &[0, 48, 96]), &[]);
    assert_eq!((outcome.blocks.len(), tunnels(&outcome.blocks[0])), (1, vec!["vxlan", "ip"]));
    assert_eq!(outcome.blocks[0].bytes, whole[14..]);
    // Both at once: a fragmented inner packet, each fragment in a tunnel whose packets are fragmented.
    let inner: Vec<_> = pieces(&whole, 7, &[0, 40]).iter().map(|piece| vxlan(9, piece)).collect();
    let frames: Vec<_> = inner.iter().zip(20..).flat_map(|(frame, id)| pieces(frame, id, &[0, 56])).collect();
    let outcome = run(&frames, &[]);
    assert_eq!(outcome.blocks.len(), 1);
    assert_whole(&outcome.blocks[0], &whole);
}

#[test]
fn fragments_of_ipv6() {
    let payload: Vec<u8> = (0..100).collect();
    let packet = |offset: u16, more: bool, bytes: &[u8], before: &[u8], next: u8| {
        let len = (before.len() + 8 + bytes.len()) as u16;
        let fragment = [17, 0, (offset >> 8) as u8, offset as u8 | u8::from(more), 0, 0, 0, 9];
        [
            &[2; 12][..],
            &[0x86, 0xdd, 0x60, 0, 0, 0],
            &len.to_be_bytes(),
            &[next, 64],
            &[1; 32],
            before,
            &fragment,
            bytes,
        ]
        .concat()
    };
    let hop: &[u8] = &[44, 0, 1, 4, 0, 0, 0, 0];
    for (before, next, named) in [(&[][..], 44, 20), (hop, 0, 54)] {
        let frames = [packet(64, false, &payload[64..], before, next), packet(0, true, &payload[..64], before, next)];
        let outcome = run(&frames, &[]);
        let [block] = &outcome.blocks[..] else { panic!("{} blocks", outcome.blocks.len()) };
        assert_eq!((block.bytes.len(), block.bytes[named]), (54 + before.len() + 100, 17));
        assert_eq!(block.bytes[54 + before.len()..], payload);
        assert_eq!(u16::from_be_bytes([block.bytes[18], block.bytes[19]]) as usize, before.len() + 100);
    }
    // An atomic fragment passes unchanged.
    let atomic = packet(0, false, &payload, &[], 44);
    assert_eq!(run(std::slice::from_ref(&atomic), &[]).blocks[0].bytes, atomic);
    let odd = run(&[packet(0, true, &payload[..63], &[], 44)], &[]);
    assert_eq!(odd.counters("decap").drops.get("fragment length not a multiple of 8"), 1);
}

#[test]
fn overlaps_go_by_the_targets_policy() {
    let whole = datagram(40);
    let payload = &whole[34..];
    let frames = [
        piece(&whole, 7, 0, &payload[..24], true),
        piece(&whole, 7, 16, &[0xee; 16], true),
        piece(&whole, 7, 32, &payload[32..], false),
    ];
    let check = |given: &[(&str, &str)], expected: u8| {
        let outcome = run(&frames, given);
        assert_eq!(outcome.blocks[0].bytes[34 + 16], expected, "{given:?}");
        assert_eq!(event(&outcome, "fragments overlap with other bytes"), 1);
    };
    check(&[], payload[16]);
    check(&[("policy", "last")], 0xee);
    check(&[("policy.", "10.0.0.2=last")], 0xee);
    check(&[("policy", "last"), ("policy.", "10.0.0.0/24=first")], payload[16]);
}

/// A model of the output, byte by byte. `is_last`: the later byte counts.
fn by_hand(fragments: &[(usize, Vec<u8>, bool)], is_last: bool) -> Vec<Vec<u8>> {
    let (mut packets, mut bytes, mut end) = (vec![], vec![None; 512], None);
    for (start, part, more) in fragments {
        if *start == 0 && !more {
            // Not a fragment.
            packets.push(part.clone());
            continue;
        }
        for (at, byte) in part.iter().enumerate() {
            let place = &mut bytes[start + at];
            *place = if is_last { Some(*byte) } else { place.or(Some(*byte)) };
        }
        if !more {
            end = Some(start + part.len());
        }
        if let Some(whole) = end.and_then(|end| bytes[..end].iter().copied().collect::<Option<Vec<u8>>>()) {
            packets.push(whole);
            (bytes, end) = (vec![None; 512], None);
        }
    }
    packets
}

#[test]
fn fragments_of_any_places_and_bytes_make_what_they_make_by_hand() {
    let mut random = Random(20);
    let mut made = 0;
    for round in 0..500 {
        let units = 2 + random.below(40);
        let fragments: Vec<_> = (0..8 + random.below(40))
            .map(|_| {
                let start = random.below(units);
                let end = (start + 1 + random.below(8)).min(units);
                let bytes = (0..(end - start) * 8).map(|_| random.below(3) as u8).collect::<Vec<u8>>();
                (start * 8, bytes, end < units)
            })
            .collect();
        let frame = datagram(units * 8 - 8);
        let frames: Vec<_> =
            fragments.iter().map(|(start, bytes, more)| piece(&frame, 7, *start, bytes, *more)).collect();
        for policy in ["first", "last"] {
            let outcome = run(&frames, &[("policy", policy)]);
            let found: Vec<_> = outcome.blocks.iter().map(|block| block.bytes[34..].to_vec()).collect();
            assert_eq!(found, by_hand(&fragments, policy == "last"), "round {round}, {policy}");
            made += found.len();
        }
    }
    assert!(made > 100, "{made}");
}

#[test]
fn oddities_are_counted_by_name() {
    let whole = datagram(100);
    let payload = &whole[34..];
    let drops: [(Vec<Vec<u8>>, &str); 5] = [
        (vec![piece(&whole, 7, 8, &[], true)], "empty fragment"),
        (vec![piece(&whole, 7, 65_528, &payload[..16], false)], "fragment beyond 65535 bytes"),
        (
            vec![piece(&whole, 7, 64, &payload[64..80], false), piece(&whole, 7, 80, &payload[80..88], true)],
            "fragments disagree about the end",
        ),
        (
            vec![piece(&whole, 7, 64, &payload[64..80], false), piece(&whole, 7, 48, &payload[48..64], false)],
            "fragments disagree about the end",
        ),
        (
            vec![piece(&whole, 7, 64, &payload[64..80], true), piece(&whole, 7, 48, &payload[48..64], false)],
            "fragments disagree about the end",
        ),
    ];
    for (frames, reason) in drops {
        let outcome = run(&frames, &[]);
        assert_eq!((outcome.counters("decap").drops.get(reason), outcome.blocks.len()), (1, 0), "{reason}");
    }
    // IPv4 ignores bytes beyond the last whole unit: the next fragment brings them.
    let odd = [piece(&whole, 7, 0, &payload[..45], true), piece(&whole, 7, 40, &payload[40..], false)];
    assert_whole(&run(&odd, &[]).blocks[0], &whole);
    let mut forbidden = pieces(&whole, 7, &[0, 40]);
    forbidden.iter_mut().for_each(|fragment| fragment[20] |= 0x40);
    let outcome = run(&forbidden, &[]);
    assert_eq!((event(&outcome, "fragments that must not be"), outcome.blocks.len()), (2, 1));
    let tiny = segment(&[7; 100]);
    let outcome = run(&pieces(&tiny, 7, &[0, 8, 16]), &[]);
    assert_eq!((event(&outcome, "first fragments without a whole header"), outcome.blocks.len()), (1, 1));
    // The payload fits, but not behind the header.
    let long = [piece(&whole, 7, 0, &[1; 32_768], true), piece(&whole, 7, 32_768, &[2; 32_760], false)];
    assert_eq!(run(&long, &[]).counters("decap").drops.get("fragments of more than 65535 bytes"), 1);
}

#[test]
fn a_fragment_that_the_capture_cut_is_whole_at_the_end_alone() {
    let whole = datagram(100);
    let run = |cut: usize| {
        let pieces = pieces(&whole, 7, &[0, 48]).into_iter().enumerate().map(|(at, mut bytes)| {
            let mut block = Descriptor::default();
            block.set_wire(bytes.len() as u32);
            bytes.truncate(bytes.len() - if at == cut { 4 } else { 0 });
            (block, bytes)
        });
        Chain::pieces(Type::Frame, Some(ETHERNET), pieces.collect()).then(&KIND, &[]).run()
    };
    let outcome = run(1);
    let block = &outcome.blocks[0];
    assert_eq!((block.bytes.len(), block.descriptor.wire() as usize), (whole.len() - 4, whole.len()));
    assert_eq!(run(0).counters("decap").drops.get("fragments cut by the capture"), 1);
}

#[test]
fn a_packet_is_given_up_on_in_time() {
    let whole = datagram(100);
    let all = pieces(&whole, 7, &[0, 40]);
    // One batch of other frames each second, so that time passes.
    let frames = |seconds: u64| {
        let mut frames = vec![(SECOND, all[0].clone())];
        frames
            .extend((0..seconds * BATCH_BLOCKS as u64).map(|n| ((1 + n / BATCH_BLOCKS as u64) * SECOND, segment(b""))));
        frames.push(((1 + seconds) * SECOND, all[1].clone()));
        frames
    };
    for (seconds, given, whole) in [(59, "60s", true), (63, "60s", false), (4, "5s", true), (8, "5s", false)] {
        let outcome = Chain::frames(ETHERNET, &frames(seconds)).then(&KIND, &[("timeout", given)]).run();
        assert_eq!(event(&outcome, "packets put together"), u64::from(whole), "{seconds} {given}");
        assert_eq!(event(&outcome, "fragmented packets given up after a time"), u64::from(!whole));
    }
}

#[test]
fn the_oldest_makes_room() {
    let whole = datagram(1000);
    let all: Vec<_> = (0..4).map(|id| pieces(&whole, id, &[0, 960])).collect();
    let firsts = all.iter().map(|pieces| pieces[0].clone());
    let frames: Vec<_> = firsts.chain(all.iter().map(|pieces| pieces[1].clone())).collect();
    // Three first fragments of 960 bytes fit. Another one replaces the oldest, whose rest then waits in vain.
    let outcome = run(&frames, &[("memory", "3000")]);
    assert_eq!(event(&outcome, "fragmented packets given up to make room"), 1);
    assert_eq!(event(&outcome, "fragmented packets unfinished"), 1);
    assert!(outcome.blocks.len() == 3 && outcome.blocks.iter().all(|block| block.bytes[34..] == whole[34..]));
    // A flood of first fragments: the table stays full, and the latest packets become complete in the end.
    let flood = (0..2 * DECAP_PACKETS as u32).map(|n| {
        let mut frame = pieces(&datagram(24), n as u16, &[0, 16])[0].clone();
        frame[27] = (n >> 16) as u8;
        frame
    });
    let number = 2 * DECAP_PACKETS as u32 - 1;
    let mut last = pieces(&datagram(24), number as u16, &[0, 16])[1].clone();
    last[27] = (number >> 16) as u8;
    let frames: Vec<_> = flood.chain([last]).collect();
    let outcome = run(&frames, &[]);
    assert_eq!(
        (outcome.blocks.len(), event(&outcome, "fragmented packets given up to make room")),
        (1, DECAP_PACKETS as u64)
    );
}

#[test]
fn a_flood_of_whole_packets_leaves_nothing_behind() {
    let whole = datagram(64);
    // One packet that never becomes complete stands before all others.
    let mut frames = vec![pieces(&datagram(200), 0xffff, &[0, 16])[0].clone()];
    for n in 0..40_000u16 {
        frames.extend(pieces(&whole, n, &[0, 40]));
    }
    let outcome = run(&frames, &[]);
    assert_eq!((outcome.blocks.len(), event(&outcome, "fragmented packets unfinished")), (40_000, 1));
    assert_eq!(outcome.report.traffic.hold_copies, 0);
}

#[test]
fn refusals() {
    let check = |key: &str, value: &str, message: &str| {
        let error = Chain::frames(ETHERNET, &[]).then(&KIND, &[(key, value)]).refusal().unwrap();
        assert_eq!((error.key, error.message.as_str()), (Some(key), message));
    };
    check("depth", "9", "8 tunnels at most are opened one inside of the other");
    check("vxlan", "70000", "`70000` is not a port");
    check("gtp", "nonsense", "`nonsense` is not a port");
    check("policy.", "10.0.0.0/8=xp", "`xp` is not one of first, last, bsd, linux, old-linux, solaris, windows, vista");
}
