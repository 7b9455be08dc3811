//! Anomalies below IP: Ethernet and its tags, MPLS, PPPoE, PPP, ARP, and link types without Ethernet.

use super::Events;
use packet::link::LinkType;

/// Most headers read.
const HEADERS: usize = 32;
/// Most VLAN tags without an event.
const TAGS: usize = 2;

pub(super) fn events(link: LinkType, bytes: &[u8], to: &mut Events) {
    match link {
        LinkType::ETHERNET => match bytes.split_first_chunk::<14>() {
            Some((header, rest)) => behind(u16::from_be_bytes([header[12], header[13]]), rest, to),
            None => to.add("ethernet.pkt_too_small"),
        },
        LinkType::LINUX_SLL => to.add_if(bytes.len() < 16, "sll.pkt_too_small"),
        LinkType::LINUX_SLL2 => to.add_if(bytes.len() < 20, "sll2.pkt_too_small"),
        LinkType::C_HDLC => to.add_if(bytes.len() < 4, "chdlc.pkt_too_small"),
        LinkType::PPP | LinkType::PPP_SERIAL => match bytes {
            [_, _, _, _, ..] => ppp(bytes.strip_prefix(&[0xff, 3]).unwrap_or(bytes), to),
            _ => to.add("ppp.pkt_too_small"),
        },
        LinkType::PPP_ETHER => session(bytes, to),
        LinkType::NULL => match bytes.first_chunk::<4>() {
            None => to.add("ltnull.pkt_too_small"),
            Some(family) => {
                let family = u32::from_le_bytes(*family);
                let known = |family: u32| matches!(family, 2 | 10 | 24 | 28 | 30);
                to.add_if(!known(family) && !known(family.swap_bytes()), "ltnull.unsupported_type");
            }
        },
        LinkType::RAW => {
            let version = bytes.first().map(|byte| byte >> 4);
            to.add_if(version.is_some_and(|version| version != 4 && version != 6), "ipraw.invalid_ip_version");
        }
        _ => {}
    }
}

/// Reads the headers behind an EtherType.
fn behind(mut kind: u16, mut rest: &[u8], to: &mut Events) {
    let (mut tags, mut unknown) = (0, "ethernet.unknown_ethertype");
    for _ in 0..HEADERS {
        let (length, small, next_unknown) = match kind {
            0x8100 | 0x88a8 | 0x9100 => (4, "vlan.header_too_small", "vlan.unknown_type"),
            0x8926 => (6, "vntag.header_too_small", "vntag.unknown_type"),
            0x88e7 => (18, "ieee8021ah.header_too_small", "ethernet.unknown_ethertype"),
            0x8847 | 0x8848 => return labels(rest, to),
            0x8863 => return discovery(rest, to),
            0x8864 => return session(rest, to),
            0x0806 => return arp(rest, to),
            0x0800 | 0x86dd | 0x6558 | 0x894f | 0x8903 => return,
            // Smaller values are lengths (IEEE 802.3).
            0..0x600 if tags == 0 => return,
            _ => return to.add(unknown),
        };
        if small.starts_with("vlan") {
            tags += 1;
            to.add_if(tags > TAGS, "vlan.too_many_layers");
        }
        let Some((header, more)) = rest.split_at_checked(length) else { return to.add(small) };
        kind = u16::from_be_bytes([header[length - 2], header[length - 1]]);
        (rest, unknown) = (more, next_unknown);
    }
}

/// MPLS labels (RFC 3032).
fn labels(mut rest: &[u8], to: &mut Events) {
    for _ in 0..HEADERS {
        let Some((&[high, middle, low, _], behind)) = rest.split_first_chunk::<4>() else {
            return to.add("mpls.header_too_small");
        };
        let (label, last) = (u32::from_be_bytes([0, high, middle, low]) >> 4, low & 1 != 0);
        rest = behind;
        to.add_if(label == 1 && last, "mpls.bad_label_router_alert");
        to.add_if(label == 3, "mpls.bad_label_implicit_null");
        to.add_if((4..16).contains(&label), "mpls.bad_label_reserved");
        if !last {
            continue;
        }
        let version = match label {
            0 => Some(4),
            2 => Some(6),
            _ => rest.first().map(|byte| byte >> 4),
        };
        return match version {
            Some(4) => to.add_if(rest.len() < 20, "mpls.pkt_too_small"),
            Some(6) => to.add_if(rest.len() < 40, "mpls.pkt_too_small"),
            Some(0) => {}
            Some(_) => to.add("mpls.unknown_payload_type"),
            None => to.add("mpls.pkt_too_small"),
        };
    }
}

/// PPPoE discovery (RFC 2516, 5).
fn discovery(rest: &[u8], to: &mut Events) {
    let Some((&[_, code, _, _, high, low], tags)) = rest.split_first_chunk::<6>() else {
        return to.add("pppoe.pkt_too_small");
    };
    to.add_if(!matches!(code, 0x07 | 0x09 | 0x19 | 0x65 | 0xa7), "pppoe.wrong_code");
    let length = usize::from(u16::from_be_bytes([high, low]));
    let Some(mut tags) = tags.get(..length) else { return to.add("pppoe.malformed_tags") };
    while let Some((&[a, b, c, d], behind)) = tags.split_first_chunk::<4>() {
        if (a, b) == (0, 0) {
            return;
        }
        match behind.get(usize::from(u16::from_be_bytes([c, d]))..) {
            Some(more) => tags = more,
            None => return to.add("pppoe.malformed_tags"),
        }
    }
    to.add_if(!tags.is_empty(), "pppoe.malformed_tags");
}

/// PPP in a PPPoE session (RFC 2516, 6).
fn session(rest: &[u8], to: &mut Events) {
    match rest.split_first_chunk::<6>() {
        Some((header, behind)) if !behind.is_empty() => {
            to.add_if(header[1] != 0, "pppoe.wrong_code");
            ppp(behind, to);
        }
        _ => to.add("pppoe.pkt_too_small"),
    }
}

/// The PPP protocol field has one or two bytes (RFC 1661, 2).
fn ppp(rest: &[u8], to: &mut Events) {
    let (number, behind) = match *rest {
        [one, ref behind @ ..] if one & 1 == 1 => (u16::from(one), behind),
        [high, low, ref behind @ ..] => (u16::from_be_bytes([high, low]), behind),
        _ => return to.add("ppp.pkt_too_small"),
    };
    match number {
        0x21 => to.add_if(behind.len() < 20, "ppp.ip4_pkt_too_small"),
        0x2f => to.add_if(behind.len() < 20, "ppp.vju_pkt_too_small"),
        0x57 => to.add_if(behind.len() < 40, "ppp.ip6_pkt_too_small"),
        0x0281 | 0x0283 => {}
        0x23 | 0x25 | 0x27 | 0x29 | 0x2b | 0x2d | 0x31 | 0x33 | 0x35 | 0x0201 | 0x0231 | 0x0233 => {
            to.add("ppp.unsup_proto");
        }
        // Network and link control protocols.
        0x8000.. if number & 0x0101 == 1 => {}
        _ => to.add("ppp.wrong_type"),
    }
}

/// ARP (RFC 826) over Ethernet for IPv4.
fn arp(rest: &[u8], to: &mut Events) {
    let Some((&[hard_high, hard_low, type_high, type_low, hard_len, len, high, low], _)) =
        rest.split_first_chunk::<8>()
    else {
        return to.add("arp.pkt_too_small");
    };
    to.add_if((hard_high, hard_low) != (0, 1), "arp.unsupported_hardware");
    to.add_if((type_high, type_low) != (8, 0), "arp.unsupported_protocol");
    to.add_if(hard_len != 6, "arp.invalid_hardware_size");
    to.add_if(len != 4, "arp.invalid_protocol_size");
    to.add_if(rest.len() < 28, "arp.pkt_too_small");
    // Requests and replies, including reverse and inverse ones (RFC 903, RFC 2390).
    to.add_if(!matches!((high, low), (0, 1..=4 | 8..=10)), "arp.unsupported_opcode");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(link: LinkType, bytes: &[&[u8]], expected: &[&str]) {
        let mut to = Events::default();
        events(link, &bytes.concat(), &mut to);
        assert_eq!(to.0, expected, "{link} {bytes:x?}");
    }

    #[test]
    fn below_ip() {
        const MAC: &[u8] = &[1; 12];
        let ethernet =
            |rest: &[&[u8]], expected: &[&str]| check(LinkType::ETHERNET, &[&[MAC], rest].concat(), expected);
        ethernet(&[&[8]], &["ethernet.pkt_too_small"]);
        ethernet(&[&[8, 0]], &[]);
        ethernet(&[&[0x12, 0x34]], &["ethernet.unknown_ethertype"]);
        ethernet(&[&[0, 40], &[0xaa; 40]], &[]);
        ethernet(&[&[0x81, 0, 0]], &["vlan.header_too_small"]);
        ethernet(&[&[0x81, 0, 0, 1, 0x12, 0x34]], &["vlan.unknown_type"]);
        let tag: &[u8] = &[0x81, 0, 0, 1];
        ethernet(&[tag, tag, &[8, 0]], &[]);
        ethernet(&[tag, tag, tag, &[8, 0]], &["vlan.too_many_layers"]);
        ethernet(&[&[0x89, 0x26, 1]], &["vntag.header_too_small"]);
        ethernet(&[&[0x88, 0xe7, 1]], &["ieee8021ah.header_too_small"]);
        ethernet(&[&[0x88, 0x47, 0]], &["mpls.header_too_small"]);
        ethernet(&[&[0x88, 0x47, 0, 1, 1, 64, 0x45]], &["mpls.pkt_too_small"]);
        ethernet(&[&[0x88, 0x47, 0, 1, 1, 64, 0x95]], &["mpls.unknown_payload_type"]);
        ethernet(&[&[0x88, 0x47, 0, 0, 0x71, 64], &[0x45; 20]], &["mpls.bad_label_reserved"]);
        ethernet(&[&[0x88, 0x63, 0x11]], &["pppoe.pkt_too_small"]);
        ethernet(&[&[0x88, 0x63, 0x11, 3, 0, 0, 0, 0]], &["pppoe.wrong_code"]);
        ethernet(&[&[0x88, 0x63, 0x11, 9, 0, 0, 0, 4, 1, 1, 0, 9]], &["pppoe.malformed_tags"]);
        ethernet(&[&[0x88, 0x63, 0x11, 9, 0, 0, 0, 4, 1, 1, 0, 0]], &[]);
        ethernet(&[&[0x88, 0x64, 0x11, 0, 0, 1, 0, 3, 0, 0x21, 0x45]], &["ppp.ip4_pkt_too_small"]);
        ethernet(&[&[0x88, 0x64, 0x11, 0, 0, 1, 0, 2, 0xc0, 0x21]], &[]);
        ethernet(&[&[0x88, 0x64, 0x11, 0, 0, 1, 0, 2, 0, 0x2b]], &["ppp.unsup_proto"]);
        ethernet(&[&[0x88, 0x64, 0x11, 0, 0, 1, 0, 2, 0x44, 0x44]], &["ppp.wrong_type"]);
        ethernet(&[&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &[0; 20]], &[]);
        ethernet(
            &[&[8, 6, 0, 7, 8, 0, 6, 4, 0, 99], &[0; 20]],
            &["arp.unsupported_hardware", "arp.unsupported_opcode"],
        );
        check(LinkType::RAW, &[&[0x50]], &["ipraw.invalid_ip_version"]);
        check(LinkType::NULL, &[&[9, 0, 0, 0]], &["ltnull.unsupported_type"]);
        check(LinkType::NULL, &[&[0, 0, 0, 2]], &[]);
        check(LinkType::LINUX_SLL, &[&[0; 15]], &["sll.pkt_too_small"]);
        check(LinkType::PPP, &[&[0xff, 3]], &["ppp.pkt_too_small"]);
    }
}
