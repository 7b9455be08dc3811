//! Extension headers and fragments of IPv6 (RFC 8200 4), from honest senders and attackers.

use super::bed::{Bed, FAR, NEAR, datagram, icmp_frame, received, six, udp};
use crate::limits::{EXTENSION_BYTES, EXTENSION_HEADERS, FRAGMENT_SOURCE_DATAGRAMS, FRAGMENT_TIME};
use flow::Flow;

const WIRE: [[u8; 6]; 2] = [FAR, NEAR];

// Next headers.
const HOPS: u8 = 0;
const UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const ICMP: u8 = 58;
const NONE: u8 = 59;
const OPTIONS: u8 = 60;

/// A datagram for port 4000.
fn plain() -> Vec<u8> {
    datagram(WIRE, six(2, 7), six(1, 4000), &[7; 100])
}

/// An extension header with these bytes behind its first two. `next` is the following header.
fn header(next: u8, rest: &[u8]) -> Vec<u8> {
    assert_eq!((rest.len() + 2) % 8, 0);
    [&[next, ((rest.len() + 2) / 8 - 1) as u8], rest].concat()
}

/// A header of this number of bytes with padding options only.
fn padding(next: u8, bytes: usize) -> Vec<u8> {
    header(next, &[&[1, (bytes - 4) as u8][..], &vec![0; bytes - 4]].concat())
}

/// A frame with these bytes between the IPv6 header and the next one. `first` is the first of them.
fn with(mut frame: Vec<u8>, first: u8, between: &[u8]) -> Vec<u8> {
    let len = (frame.len() - 54 + between.len()) as u16;
    frame[18..20].copy_from_slice(&len.to_be_bytes());
    frame[20] = first;
    frame.splice(54..54, between.iter().copied());
    frame
}

/// A fragment, with `bytes` of the fragmentable part.
fn piece(id: u8, protocol: u8, offset: usize, more: bool, bytes: &[u8]) -> Vec<u8> {
    let [high, low] = (offset as u16 | u16::from(more)).to_be_bytes();
    let frame = [&plain()[..54], bytes].concat();
    with(frame, FRAGMENT, &[protocol, 0, high, low, 0, 0, 0, id])
}

/// A bed with a flow on port 4000.
fn bed() -> (Bed, Flow) {
    let mut bed = Bed::new();
    let flow = bed.open(5, &udp(six(1, 4000), None));
    (bed, flow)
}

/// Receives frames. The last must end this way, or reach the flow as if it had no extension headers.
fn check(name: &str, frames: &[Vec<u8>], expected: Result<Vec<u8>, &str>) {
    let (mut bed, mut flow) = bed();
    for frame in frames {
        bed.give(frame);
    }
    let end = expected.as_ref().err().copied().unwrap_or("delivered");
    assert_eq!(bed.counter(&format!("ended.{end}")), 1, "{name}: {:?}", bed.ends());
    assert_eq!(received(&mut flow), Vec::from_iter(expected.ok()), "{name}");
    bed.ends();
}

#[test]
fn options_are_skipped_within_limits_and_the_flow_sees_none_of_them() {
    let pass = |name: &str, first: u8, between: &[u8]| check(name, &[with(plain(), first, between)], Ok(plain()));
    pass("hop by hop", HOPS, &padding(UDP, 8));
    pass("for the destination", OPTIONS, &padding(UDP, 16));
    pass("both", HOPS, &[padding(OPTIONS, 8), padding(UDP, 8)].concat());
    pass("as many as may be", OPTIONS, &[padding(OPTIONS, 8), padding(OPTIONS, 8), padding(UDP, 8)].concat());
    pass("as long as may be", OPTIONS, &padding(UDP, EXTENSION_BYTES));
    pass("padding of single bytes", OPTIONS, &header(UDP, &[0; 6]));
    // An option that may be skipped: its first two bits are 0 (RFC 8200 4.2).
    pass("an option that nobody knows", HOPS, &header(UDP, &[0x3e, 4, 1, 2, 3, 4]));

    let drop = |name: &str, first: u8, between: &[u8], end| check(name, &[with(plain(), first, between)], Err(end));
    let many: Vec<u8> = (0..=EXTENSION_HEADERS).flat_map(|at| padding(if at < 3 { OPTIONS } else { UDP }, 8)).collect();
    drop("too many", OPTIONS, &many, "ipv6_extension_header");
    drop("too long", OPTIONS, &padding(UDP, EXTENSION_BYTES + 8), "ipv6_extension_header");
    drop("hop by hop behind another", OPTIONS, &[padding(HOPS, 8), padding(UDP, 8)].concat(), "ipv6_extension_header");
    drop("hop by hop twice", HOPS, &[padding(HOPS, 8), padding(UDP, 8)].concat(), "ipv6_extension_header");
    drop("longer than the packet", OPTIONS, &[UDP, 31, 0, 0, 0, 0, 0, 0], "ipv6_extension_header");
    drop("an option beyond the end", OPTIONS, &header(UDP, &[5, 9, 0, 0, 0, 0]), "ipv6_extension_header");
    drop("an option without a length", OPTIONS, &header(UDP, &[0, 0, 0, 0, 0, 5]), "ipv6_extension_header");
    drop("an option to drop for", OPTIONS, &header(UDP, &[0x7e, 4, 1, 2, 3, 4]), "ipv6_option");
    drop("a jumbogram", HOPS, &header(UDP, &[0xc2, 4, 0, 1, 0, 0]), "ipv6_option");
    drop("a route", ROUTING, &header(UDP, &[0, 1, 0, 0, 0, 0]), "ipv6_routing_header");
    drop("a route of segments", ROUTING, &header(UDP, &[4, 0, 0, 0, 0, 0]), "ipv6_routing_header");
    drop(
        "a route behind options",
        OPTIONS,
        &[padding(ROUTING, 8), header(UDP, &[0; 6])].concat(),
        "ipv6_routing_header",
    );
    drop("nothing behind", OPTIONS, &padding(NONE, 8), "other_transport");
    drop("IPsec", 51, &header(UDP, &[0; 6]), "other_transport");
    check("cut", &[with(plain()[..54].to_vec(), OPTIONS, &[UDP])], Err("ipv6_extension_header"));
}

#[test]
fn pieces_are_put_together_however_they_are_cut_and_whatever_is_before() {
    let payload = plain()[54..].to_vec();
    let pass = |name: &str, frames: &[Vec<u8>]| check(name, frames, Ok(plain()));
    pass("the only piece (RFC 6946)", &[piece(1, UDP, 0, false, &payload)]);
    let cut = |id, at: usize| [piece(id, UDP, 0, true, &payload[..at]), piece(id, UDP, at, false, &payload[at..])];
    pass("two", &cut(1, 64));
    let [first, second] = cut(1, 64);
    pass("the second one first", &[second, first]);
    pass("others are not mixed in", &[&cut(1, 64)[..1], &cut(2, 32)[1..], &cut(1, 64)[1..]].concat());
    // A lone fragment is a whole packet, even while others with its number wait (RFC 6946 4).
    pass("the only piece between", &[cut(1, 64)[0].clone(), piece(1, UDP, 0, false, &payload)]);
    let options = [padding(UDP, 8), payload.clone()].concat();
    let behind = [piece(1, OPTIONS, 0, true, &options[..64]), piece(1, OPTIONS, 64, false, &options[64..])];
    pass("options in the pieces", &behind);
    // The options before the fragment header do not matter, and may differ.
    let before: Vec<u8> = padding(FRAGMENT, 8);
    let before = cut(1, 64).map(|piece| with(piece.clone(), HOPS, &before));
    pass("options before", &before);
}

#[test]
fn pieces_that_overlap_or_hide_something_are_dropped_with_their_datagram() {
    let payload = plain()[54..].to_vec();
    let first = || piece(1, UDP, 0, true, &payload[..64]);
    let rest = || piece(1, UDP, 64, false, &payload[64..]);
    let drop = |name: &str, frames: &[Vec<u8>], end| check(name, frames, Err(end));
    let overlapping = piece(1, UDP, 56, false, &payload[56..]);
    drop("they overlap (RFC 5722)", &[first(), overlapping.clone()], "fragment_overlap");
    drop("and what comes then", &[first(), overlapping, rest()], "fragment_of_dropped_datagram");
    // A repetition may come from the network, so it is not held against the sender (RFC 8200 4.5).
    drop("one comes twice", &[first(), first()], "fragment_repeated");
    drop("no transport header (RFC 7112)", &[piece(1, UDP, 0, true, &payload[..0])], "fragment_tiny");
    drop("half a header", &[piece(1, OPTIONS, 0, true, &padding(UDP, 8))], "fragment_tiny");
    let tcp = piece(1, 6, 0, true, &[0; 16]);
    drop("half a header of TCP", &[tcp], "fragment_tiny");
    drop("no whole words", &[piece(1, UDP, 0, true, &payload[..63])], "fragment_malformed");
    drop("beyond the end", &[piece(1, UDP, 65_528, false, &payload[..16])], "fragment_malformed");
    let nested = [&[UDP, 0, 0, 0, 0, 0, 0, 9], &payload[..]].concat();
    drop("a piece in a piece", &[piece(1, FRAGMENT, 0, false, &nested)], "fragment_malformed");
    drop("a piece in the first one", &[piece(1, FRAGMENT, 0, true, &nested[..64])], "fragment_malformed");
    drop("a route in a piece", &[piece(1, ROUTING, 0, true, &header(UDP, &[0; 62]))], "ipv6_routing_header");
    drop("hop by hop in a piece", &[piece(1, HOPS, 0, false, &padding(UDP, 8))], "ipv6_extension_header");
    check("cut", &[with(plain()[..54].to_vec(), FRAGMENT, &[UDP, 0, 0, 0, 0, 0, 0])], Err("ipv6_extension_header"));
}

#[test]
fn a_sender_of_pieces_has_a_quota_and_no_other_sender_suffers() {
    let (mut bed, mut flow) = bed();
    let payload = plain()[54..].to_vec();
    for id in 0..=FRAGMENT_SOURCE_DATAGRAMS {
        bed.give(&piece(id as u8, UDP, 0, true, &payload[..64]));
    }
    assert_eq!(bed.counter("fragments.dropped_datagrams") + bed.counter("ended.fragment_over_quota"), 1);
    let other = |offset, more, bytes: &[u8]| {
        let mut frame = piece(1, UDP, offset, more, bytes);
        frame[37] = 3;
        frame
    };
    let whole = datagram(WIRE, six(3, 7), six(1, 4000), &[7; 100]);
    bed.give(&other(0, true, &whole[54..118]));
    bed.give(&other(64, false, &whole[118..]));
    assert_eq!(received(&mut flow), [whole]);
    bed.now += FRAGMENT_TIME;
    assert_eq!(bed.settle(), None, "all are given up");
    bed.ends();
}

#[test]
fn an_echo_request_in_pieces_is_answered_whole() {
    let (mut bed, _flow) = bed();
    let message = icmp_frame(WIRE, [six(2, 0).ip(), six(1, 0).ip()], 128, 0, &[9; 100])[54..].to_vec();
    bed.give(&piece(1, ICMP, 0, true, &message[..64]));
    bed.give(&piece(1, ICMP, 64, false, &message[64..]));
    let sent = bed.sent();
    assert_eq!((sent.len(), sent[0].len(), sent[0][20], sent[0][54]), (1, 54 + message.len(), ICMP, 129));
    assert_eq!(sent[0][58..], message[4..]);
}
