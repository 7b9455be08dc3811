//! Header anomalies of a frame, named as in `decode-event`. If rules use such events, this second pass reads the parsed
//! frame again. Fragments that overlap with other bytes are reported by `decap`.
//!
//! - `decode/link.rs` — layers below IP; `decode/transport.rs` — layers above IP.

mod link;
mod transport;

use packet::frame::{Frame, protocol};
use packet::ipv6;
use packet::link::LinkType;

/// Events of one frame, without duplicates.
#[derive(Default)]
pub(super) struct Events(pub Vec<&'static str>);

impl Events {
    pub fn add(&mut self, event: &'static str) {
        if !self.0.contains(&event) {
            self.0.push(event);
        }
    }

    fn add_if(&mut self, holds: bool, event: &'static str) {
        if holds {
            self.add(event);
        }
    }
}

/// Adds the events of a frame. `frame`: its parsed headers, if they could be parsed.
pub(super) fn events(link: LinkType, bytes: &[u8], frame: Option<&Frame>, to: &mut Events) {
    link::events(link, bytes, to);
    let Some(frame) = frame else { return };
    let network = bytes.get(frame.network_offset as usize..frame.payload_end as usize).unwrap_or_default();
    let payload = frame.payload_of(bytes);
    let more = frame.fragment.is_some_and(|fragment| fragment.more);
    if frame.version == 4 {
        let header = usize::from(network.first().copied().unwrap_or(0) & 15) * 4;
        options(network.get(20..header).unwrap_or_default(), to);
        // Higher protocol numbers are unassigned (IANA, protocol numbers).
        to.add_if(frame.protocol > 147, "ipv4.unknown_protocol");
        to.add_if(frame.protocol == protocol::ICMPV6, "ipv4.icmpv6");
    } else {
        extensions(network, to);
        to.add_if(frame.protocol == protocol::ICMP, "ipv6.icmpv4");
        to.add_if(frame.protocol == ipv6::NO_NEXT_HEADER && frame.payload_wire_len > 0, "ipv6.data_after_none_header");
        to.add_if(frame.protocol > 147, "ipv6.unknown_next_header");
    }
    if !frame.is_later_fragment() && !more {
        transport::events(frame, payload, network.get(7).copied().unwrap_or(0), to);
    }
}

/// IPv4 options (RFC 791, 3.1).
fn options(mut rest: &[u8], to: &mut Events) {
    to.add_if(!rest.len().is_multiple_of(8), "ipv4.opt_pad_required");
    let mut seen = [false; 256];
    loop {
        match *rest {
            [] | [0, ..] => return,
            [1, ref behind @ ..] => rest = behind,
            [_] => return to.add("ipv4.opt_eol_required"),
            [kind, length, ..] => {
                let Some((option, behind)) = rest.split_at_checked(usize::from(length)).filter(|_| length >= 2) else {
                    return to.add("ipv4.opt_invalid_len");
                };
                if std::mem::replace(&mut seen[usize::from(kind)], true) {
                    to.add("ipv4.opt_duplicate");
                } else {
                    option_of(kind, option, to);
                }
                rest = behind;
            }
        }
    }
}

/// Checks one option; `option` has its full length.
fn option_of(kind: u8, option: &[u8], to: &mut Events) {
    let (length, third) = (option.len(), option.get(2).copied().unwrap_or(0));
    let (fits, pointer) = match kind {
        // Route options: addresses, and a pointer that counts from 1 and starts at 4.
        7 | 131 | 137 => (length >= 3 && length % 4 == 3, third >= 4 && third % 4 == 0),
        // Timestamps: a pointer that starts at 5, and an overflow count.
        68 => (length >= 4 && length.is_multiple_of(4), third >= 5),
        130 => (length >= 3, true),
        133 => (length >= 3, true),
        136 => (length == 4, true),
        148 => (length == 4, true),
        // CIPSO: a domain of interpretation, and tags.
        134 => (length >= 8, true),
        _ => {
            to.add("ipv4.opt_unknown");
            return to.add("ipv4.opt_invalid");
        }
    };
    to.add_if(!fits, "ipv4.opt_invalid_len");
    to.add_if(fits && !pointer, "ipv4.opt_malformed");
}

/// IPv6 extension headers (RFC 8200, 4); `network` begins with the fixed header.
fn extensions(network: &[u8], to: &mut Events) {
    const ESP: u8 = 50;
    let Some((fixed, mut rest)) = network.split_first_chunk::<40>() else { return };
    let mut kind = fixed[6];
    let mut seen = [0u8; 6];
    for _ in 0..=ipv6::EXTENSION_LIMIT {
        let (at, twice, most) = match kind {
            ipv6::HOP_BY_HOP => (0, "ipv6.exthdr_dupl_hh", 1),
            ipv6::ROUTING => (1, "ipv6.exthdr_dupl_rh", 1),
            ipv6::FRAGMENT => (2, "ipv6.exthdr_dupl_fh", 1),
            // One may precede a routing header, another may come last (RFC 8200, 4.1).
            ipv6::DESTINATION_OPTIONS => (3, "ipv6.exthdr_dupl_dh", 2),
            ipv6::AUTHENTICATION => (4, "ipv6.exthdr_dupl_ah", 1),
            ESP => (5, "ipv6.exthdr_dupl_eh", 1),
            _ => return,
        };
        seen[at] += 1;
        to.add_if(seen[at] > most, twice);
        let Some(&[next, length, ..]) = rest.first_chunk::<8>().map(|head| &head[..]) else { return };
        let bytes = match kind {
            ESP => return,
            ipv6::FRAGMENT => 8,
            ipv6::AUTHENTICATION => 8 + usize::from(length) * 4,
            _ => 8 + usize::from(length) * 8,
        };
        let Some((header, behind)) = rest.split_at_checked(bytes) else { return };
        match kind {
            ipv6::HOP_BY_HOP | ipv6::DESTINATION_OPTIONS => extension_options(kind, &header[2..], to),
            ipv6::ROUTING => to.add_if(header[2] == 0, "ipv6.rh_type_0"),
            ipv6::AUTHENTICATION => to.add_if(header[2..4] != [0, 0], "ipv6.exthdr_ah_res_not_null"),
            _ => {
                to.add_if(length != 0, "ipv6.fh_non_zero_reserved_field");
                let field = u16::from_be_bytes([header[2], header[3]]);
                to.add_if(field & 0xfff9 == 0, "ipv6.exthdr_useless_fh");
                if field & 0xfff8 != 0 {
                    return;
                }
                // Suricata looks for the next header where the packet is no fragment.
                to.add_if(field & 1 == 0 && behind.len() < 2, "ipv6.trunc_exthdr");
            }
        }
        (kind, rest) = (next, behind);
    }
}

/// Hop-by-hop and destination options.
fn extension_options(kind: u8, mut rest: &[u8], to: &mut Events) {
    let hop = kind == ipv6::HOP_BY_HOP;
    let mut only_padding = true;
    while let Some(&option) = rest.first() {
        if option == 0 {
            rest = &rest[1..];
            continue;
        }
        let Some(&length) = rest.get(1) else { return to.add("ipv6.exthdr_invalid_optlen") };
        let Some(behind) = rest.get(2 + usize::from(length)..) else {
            return to.add("ipv6.exthdr_invalid_optlen");
        };
        let expected = match option {
            1 => {
                to.add_if(length == 0, "ipv6.zero_len_padn");
                None
            }
            // Router alert, jumbo payload length, home address.
            5 if hop => Some(2),
            0xc2 if hop => Some(4),
            0xc9 if !hop => Some(16),
            _ => {
                to.add(if hop { "ipv6.hopopts_unknown_opt" } else { "ipv6.dstopts_unknown_opt" });
                None
            }
        };
        only_padding &= option == 1;
        to.add_if(expected.is_some_and(|expected| expected != length), "ipv6.exthdr_invalid_optlen");
        rest = behind;
    }
    to.add_if(only_padding, if hop { "ipv6.hopopts_only_padding" } else { "ipv6.dstopts_only_padding" });
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn of_packet(bytes: &[u8]) -> Vec<&'static str> {
        let mut to = Events::default();
        let frame = packet::frame::parse(LinkType::RAW, bytes, bytes.len() as u32).ok();
        events(LinkType::RAW, bytes, frame.as_ref(), &mut to);
        to.0
    }

    /// Builds an IPv4 packet. The caller pads `options`.
    pub(super) fn v4(protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let header = 20 + options.len();
        let total = (header + payload.len()) as u16;
        let mut bytes = vec![0x40 | (header / 4) as u8, 0, (total >> 8) as u8, total as u8, 0, 1, 0, 0, 64, protocol];
        bytes.extend_from_slice(&[0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        [&bytes, options, payload].concat()
    }

    pub(super) fn v6(next: u8, hops: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x60, 0, 0, 0, (payload.len() >> 8) as u8, payload.len() as u8, next, hops];
        bytes.extend_from_slice(&1u128.to_be_bytes());
        bytes.extend_from_slice(&2u128.to_be_bytes());
        [&bytes, payload].concat()
    }

    #[test]
    fn options_of_ipv4() {
        let check = |options: &[u8], expected: &[&str]| {
            let found: Vec<_> =
                of_packet(&v4(253, options, &[])).into_iter().filter(|event| event.starts_with("ipv4.opt")).collect();
            assert_eq!(found, expected, "{options:x?}");
        };
        check(&[], &[]);
        check(&[148, 4, 0, 0, 1, 1, 1, 1], &[]);
        check(&[1, 1, 1, 148], &["ipv4.opt_pad_required", "ipv4.opt_eol_required"]);
        check(&[148, 9, 0, 0, 0, 0, 0, 0], &["ipv4.opt_invalid_len"]);
        check(&[148, 1, 0, 0, 0, 0, 0, 0], &["ipv4.opt_invalid_len"]);
        check(&[148, 4, 0, 0, 148, 4, 0, 0], &["ipv4.opt_duplicate"]);
        check(&[99, 4, 0, 0, 0, 0, 0, 0], &["ipv4.opt_unknown", "ipv4.opt_invalid"]);
        check(&[7, 7, 5, 0, 0, 0, 0, 0], &["ipv4.opt_malformed"]);
    }

    #[test]
    fn headers_behind_that_of_ipv6() {
        let check = |next: u8, payload: &[u8], expected: &[&str]| {
            assert_eq!(of_packet(&v6(next, 64, payload)), expected, "{next} {payload:x?}");
        };
        check(60, &[59, 0, 1, 4, 0, 0, 0, 0], &["ipv6.dstopts_only_padding"]);
        check(0, &[59, 0, 5, 2, 0, 0, 1, 0], &["ipv6.zero_len_padn"]);
        check(0, &[59, 0, 5, 3, 0, 0, 0, 0], &["ipv6.exthdr_invalid_optlen"]);
        check(0, &[59, 0, 5, 2, 0, 0, 1, 9], &["ipv6.exthdr_invalid_optlen"]);
        check(0, &[59, 0, 99, 4, 0, 0, 0, 0], &["ipv6.hopopts_unknown_opt"]);
        check(44, &[59, 0, 0, 0, 0, 0, 0, 1], &["ipv6.exthdr_useless_fh", "ipv6.trunc_exthdr"]);
        check(44, &[59, 7, 0, 1, 0, 0, 0, 1], &["ipv6.fh_non_zero_reserved_field"]);
        check(43, &[59, 0, 0, 0, 0, 0, 0, 0], &["ipv6.rh_type_0"]);
        check(59, &[1], &["ipv6.data_after_none_header"]);
        check(253, &[1], &["ipv6.unknown_next_header"]);
        let twice = [43, 0, 2, 0, 0, 0, 0, 0, 59, 0, 2, 0, 0, 0, 0, 0];
        check(43, &twice, &["ipv6.exthdr_dupl_rh"]);
        check(51, &[59, 0, 0, 1, 0, 0, 0, 1], &["ipv6.exthdr_ah_res_not_null"]);
    }

    #[test]
    fn protocols_that_are_not_assigned() {
        assert_eq!(of_packet(&v4(253, &[], &[])), ["ipv4.unknown_protocol"]);
        assert!(of_packet(&v4(6, &[], &[])).iter().all(|event| !event.starts_with("ipv4")));
    }
}
