//! Anomalies above IP: TCP options, ICMP, GRE, IP in IP. The frame parser reports headers that are too short.

use super::Events;
use packet::frame::{Frame, protocol};

const ESP: u8 = 50;
const OF_ICMP: u32 = 8;

/// Adds the events of an IP payload. `hops`: the IPv6 hop limit.
pub(super) fn events(frame: &Frame, payload: &[u8], hops: u8, to: &mut Events) {
    match (frame.protocol, frame.version) {
        (protocol::TCP, _) => tcp(payload, frame.payload_wire_len, to),
        (protocol::ICMP, 4) => icmp(payload, frame.payload_wire_len, to),
        (protocol::ICMPV6, 6) => icmp6(payload, frame.payload_wire_len, hops, to),
        (protocol::GRE, _) => gre(payload, to),
        (ESP, _) => to.add_if(frame.payload_wire_len < 8, "esp.pkt_too_small"),
        (protocol::IPV4, 6) => {
            inner(payload, (20, 4), "ipv6.ipv4_in_ipv6_too_small", "ipv6.ipv4_in_ipv6_wrong_version", to)
        }
        (protocol::IPV6, 6) => {
            inner(payload, (40, 6), "ipv6.ipv6_in_ipv6_too_small", "ipv6.ipv6_in_ipv6_wrong_version", to)
        }
        _ => {}
    }
}

/// Checks an inner IP packet for its least size and its version.
fn inner(bytes: &[u8], (least, version): (usize, u8), small: &'static str, wrong: &'static str, to: &mut Events) {
    to.add_if(bytes.len() < least, small);
    to.add_if(bytes.len() >= least && bytes[0] >> 4 != version, wrong);
}

/// TCP options; each may occur once.
fn tcp(segment: &[u8], wire_len: u32, to: &mut Events) {
    let Some(offset) = segment.get(12) else { return };
    let header = usize::from(offset >> 4) * 4;
    to.add_if(header > 20 && header as u32 > wire_len, "tcp.invalid_optlen");
    let mut rest = segment.get(20..header).unwrap_or_default();
    let mut seen = [false; 256];
    loop {
        match *rest {
            [] | [0, ..] | [_] => return,
            [1, ref behind @ ..] => rest = behind,
            [kind, length, ..] => {
                let Some((option, behind)) = rest.split_at_checked(usize::from(length)).filter(|_| length >= 2) else {
                    return to.add("tcp.opt_invalid_len");
                };
                let fits = match (kind, option.len()) {
                    (2, length) => length == 4,
                    (3, length) => length == 3,
                    (4, length) => length == 2,
                    (5, length) => length == 2 || (10..=34).contains(&length) && length % 8 == 2,
                    (8, length) => length == 10,
                    (19, length) => length == 18,
                    (29, length) => length >= 4,
                    // A Fast Open cookie has an even length from 4 to 16 bytes (RFC 7413, 4.1.1).
                    (34, length) => length == 2 || (6..=18).contains(&length) && length.is_multiple_of(2),
                    _ => true,
                };
                to.add_if(!fits, "tcp.opt_invalid_len");
                let known = matches!(kind, 2..=5 | 8 | 34);
                to.add_if(known && fits && std::mem::replace(&mut seen[usize::from(kind)], true), "tcp.opt_duplicate");
                rest = behind;
            }
        }
    }
}

/// ICMP (RFC 792, RFC 950, RFC 1256).
fn icmp(message: &[u8], wire_len: u32, to: &mut Events) {
    let &[kind, code, ..] = message else { return };
    if wire_len < OF_ICMP {
        return;
    }
    let most = match kind {
        3 => 15,
        5 => 3,
        9 => 16,
        11 => 1,
        12 => 2,
        0 | 4 | 8 | 10 | 13..=18 => 0,
        _ => return to.add("icmpv4.unknown_type"),
    };
    to.add_if(code > most || kind == 9 && !matches!(code, 0 | 16), "icmpv4.unknown_code");
    if matches!(kind, 3 | 4 | 5 | 11 | 12) {
        let packet = message.get(8..).unwrap_or_default();
        to.add_if(packet.len() < 20, "icmpv4.ipv4_trunc_pkt");
        to.add_if(packet.len() >= 20 && packet[0] >> 4 != 4, "icmpv4.ipv4_unknown_ver");
    }
}

/// ICMPv6 (RFC 4443, RFC 2710, RFC 4861 and others; IANA, ICMPv6 parameters).
fn icmp6(message: &[u8], wire_len: u32, hops: u8, to: &mut Events) {
    let &[kind, code, ..] = message else { return };
    if wire_len < OF_ICMP {
        return;
    }
    let most = match kind {
        1 => 8,
        3 => 1,
        4 => 2,
        2 | 128..=137 | 143..=154 => 0,
        // Router renumbering, and node information queries.
        138 => 255,
        139..=142 => 2,
        155..=161 => 255,
        100 | 101 | 200 | 201 => {
            return to.add("icmpv6.experimentation_type");
        }
        5..=99 | 102..=126 | 162..=199 | 202..=254 => {
            return to.add("icmpv6.unassigned_type");
        }
        _ => return to.add("icmpv6.unknown_type"),
    };
    to.add_if(code > most, "icmpv6.unknown_code");
    to.add_if(matches!(kind, 130..=132 | 143) && hops != 1, "icmpv6.mld_message_with_invalid_hl");
    if kind < 5 {
        let packet = message.get(8..).unwrap_or_default();
        to.add_if(packet.len() < 40, "icmpv6.ipv6_trunc_pkt");
        to.add_if(packet.len() >= 40 && packet[0] >> 4 != 6, "icmpv6.ipv6_unknown_version");
    }
}

/// GRE (RFC 1701, RFC 2637).
fn gre(bytes: &[u8], to: &mut Events) {
    let &[flags, more, high, low, ..] = bytes else { return to.add("gre.pkt_too_small") };
    let has = |bit: u8| usize::from(flags & bit != 0);
    let (checksum, routing, key, sequence) = (has(0x80), has(0x40), has(0x20), has(0x10));
    match more & 7 {
        0 => {
            to.add_if(flags & 7 != 0, "gre.version0_recur");
            to.add_if(more & 0xf8 != 0, "gre.version0_flags");
            let header = 4 + 4 * ((checksum | routing) + key + sequence);
            match bytes.get(header..) {
                None => to.add("gre.version0_hdr_too_big"),
                Some(routes) if routing == 1 => source_routes(routes, to),
                Some(_) => {}
            }
        }
        1 => {
            to.add_if(checksum == 1, "gre.version1_chksum");
            to.add_if(routing == 1, "gre.version1_route");
            to.add_if(flags & 8 != 0, "gre.version1_ssr");
            to.add_if(flags & 7 != 0, "gre.version1_recur");
            to.add_if(more & 0x78 != 0, "gre.version1_flags");
            to.add_if((high, low) != (0x88, 0x0b), "gre.version1_wrong_protocol");
            to.add_if(key == 0, "gre.version1_no_key");
            let header = 8 + 4 * (sequence + usize::from(more & 0x80 != 0));
            to.add_if(bytes.len() < header, "gre.version1_hdr_too_big");
        }
        _ => to.add("gre.wrong_version"),
    }
}

/// Source route entries; an empty one ends the list.
fn source_routes(mut rest: &[u8], to: &mut Events) {
    while let Some((&[a, b, _, length], behind)) = rest.split_first_chunk::<4>() {
        if [a, b, length] == [0; 3] {
            return;
        }
        match behind.get(usize::from(length)..) {
            Some(more) => rest = more,
            None => break,
        }
    }
    to.add("gre.version0_malformed_sre_hdr");
}

#[cfg(test)]
mod tests {
    use super::super::tests::{of_packet, v4, v6};

    #[test]
    fn options_of_tcp() {
        let check = |options: &[u8], expected: &[&str]| {
            let mut segment =
                vec![0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, (5 + options.len() as u8 / 4) << 4, 2, 0, 0, 0, 0, 0, 0];
            segment.extend_from_slice(options);
            assert_eq!(of_packet(&v4(6, &[], &segment)), expected, "{options:x?}");
        };
        check(&[2, 4, 5, 0xb4], &[]);
        check(&[2, 4, 5, 0xb4, 2, 4, 5, 0xb4], &["tcp.opt_duplicate"]);
        check(&[3, 4, 5, 0], &["tcp.opt_invalid_len"]);
        check(&[8, 99, 5, 0], &["tcp.opt_invalid_len"]);
        check(&[34, 5, 1, 1, 1, 0, 0, 0], &["tcp.opt_invalid_len"]);
        check(&[34, 2, 1, 1], &[]);
        check(&[99, 4, 0, 0], &[]);
    }

    #[test]
    fn messages_of_icmp() {
        let check = |message: &[u8], expected: &[&str]| assert_eq!(of_packet(&v4(1, &[], message)), expected);
        check(&[8, 0, 0, 0, 0, 0, 0, 0], &[]);
        check(&[8, 1, 0, 0, 0, 0, 0, 0], &["icmpv4.unknown_code"]);
        check(&[99, 0, 0, 0, 0, 0, 0, 0], &["icmpv4.unknown_type"]);
        check(&[3, 0, 0, 0, 0, 0, 0, 0, 0x45], &["icmpv4.ipv4_trunc_pkt"]);
        check(&[&[3, 0, 0, 0, 0, 0, 0, 0, 0x65][..], &[0; 20]].concat(), &["icmpv4.ipv4_unknown_ver"]);
        let check =
            |hops: u8, message: &[u8], expected: &[&str]| assert_eq!(of_packet(&v6(58, hops, message)), expected);
        check(64, &[128, 0, 0, 0, 0, 0, 0, 0], &[]);
        check(64, &[128, 1, 0, 0, 0, 0, 0, 0], &["icmpv6.unknown_code"]);
        check(64, &[131, 0, 0, 0, 0, 0, 0, 0], &["icmpv6.mld_message_with_invalid_hl"]);
        check(1, &[131, 0, 0, 0, 0, 0, 0, 0], &[]);
        check(64, &[170, 0, 0, 0, 0, 0, 0, 0], &["icmpv6.unassigned_type"]);
        check(64, &[200, 0, 0, 0, 0, 0, 0, 0], &["icmpv6.experimentation_type"]);
        check(64, &[255, 0, 0, 0, 0, 0, 0, 0], &["icmpv6.unknown_type"]);
        check(64, &[1, 0, 0, 0, 0, 0, 0, 0, 0x60], &["icmpv6.ipv6_trunc_pkt"]);
    }

    #[test]
    fn headers_of_gre() {
        let check =
            |bytes: &[u8], expected: &[&str]| assert_eq!(of_packet(&v4(47, &[], bytes)), expected, "{bytes:x?}");
        check(&[0, 0, 8], &["gre.pkt_too_small"]);
        check(&[0, 0, 8, 0], &[]);
        check(&[0x20, 0, 8, 0], &["gre.version0_hdr_too_big"]);
        check(&[1, 0, 8, 0], &["gre.version0_recur"]);
        check(&[0, 8, 8, 0], &["gre.version0_flags"]);
        check(&[0, 2, 8, 0], &["gre.wrong_version"]);
        check(&[0x40, 0, 8, 0, 0, 0, 0, 0, 8, 0, 0, 9, 1], &["gre.version0_malformed_sre_hdr"]);
        check(&[0x40, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]);
        check(&[0x20, 1, 0x88, 0x0b, 0, 0, 0, 1], &[]);
        check(&[0x20, 1, 0x88, 0x0b, 0, 0, 0], &["gre.version1_hdr_too_big"]);
        check(&[0, 1, 8, 0, 0, 0, 0, 1], &["gre.version1_wrong_protocol", "gre.version1_no_key"]);
        check(
            &[0xeb, 9, 0x88, 0x0b, 0, 0, 0, 1],
            &[
                "gre.version1_chksum",
                "gre.version1_route",
                "gre.version1_ssr",
                "gre.version1_recur",
                "gre.version1_flags",
            ],
        );
    }

    #[test]
    fn packets_in_packets() {
        assert_eq!(of_packet(&v6(4, 64, &[0x45])), ["ipv6.ipv4_in_ipv6_too_small"]);
        assert_eq!(of_packet(&v6(4, 64, &[0x65; 20])), ["ipv6.ipv4_in_ipv6_wrong_version"]);
        assert_eq!(of_packet(&v6(41, 64, &[0x65])), ["ipv6.ipv6_in_ipv6_too_small"]);
        assert_eq!(of_packet(&v4(50, &[], &[1])), ["esp.pkt_too_small"]);
    }
}
