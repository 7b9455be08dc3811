//! Describes one frame or packet in a line, for `inspect` and for the field `info` of `packets`.

use super::json_text;
use buffer::Descriptor;
use packet::encapsulation::{self, Encapsulation};
use packet::frame::{self, Frame, protocol};
use packet::malformed::Malformed;
use packet::tcp::Flags;
use packet::{Flow, LinkType, arp, ethernet, icmp};
use std::fmt;
use std::io::Write;

/// Appends formatted text. Writing to a Vec cannot fail.
pub(crate) fn say(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    out.write_fmt(text).unwrap_or_default();
}

/// Appends the description of a frame, without its time. Returns its payload.
pub(crate) fn append<'a>(out: &mut Vec<u8>, link: LinkType, bytes: &'a [u8], block: &Descriptor) -> &'a [u8] {
    let parsed = frame::parse(link, bytes, block.wire());
    match &parsed {
        Ok(frame) => {
            vlans(out, frame.vlan_count, frame.vlan_ids);
            let flow = Flow::of(frame, bytes);
            match (flow.source_port, flow.target_port) {
                // Cut, a later fragment, or a protocol without ports.
                (0, 0) => say(out, format_args!("{} > {} ", flow.source, flow.target)),
                _ => say(out, format_args!("{flow} ")),
            }
        }
        Err(Malformed::NotIp) => {
            let below = encapsulation::parse(link, bytes).unwrap_or_default();
            vlans(out, below.vlan_count, below.vlan_ids);
        }
        Err(_) => {}
    }
    let payload = describe(out, link, bytes, &parsed);
    say(out, format_args!(" {} bytes", block.wire()));
    if block.len < block.wire() {
        say(out, format_args!(", {} captured", block.len));
    }
    payload
}

/// Appends the description of a parsed frame without its addresses, and a comma. Returns its payload.
pub(crate) fn describe<'a>(
    out: &mut Vec<u8>,
    link: LinkType,
    bytes: &'a [u8],
    parsed: &Result<Frame, Malformed>,
) -> &'a [u8] {
    match parsed {
        Ok(frame) => transport(out, frame, bytes),
        Err(Malformed::NotIp) => {
            let below = encapsulation::parse(link, bytes).unwrap_or_default();
            not_ip(out, link, &below, bytes)
        }
        Err(Malformed::UnsupportedLink) => {
            link_name(out, link);
            bytes
        }
        Err(malformed) => {
            say(out, format_args!("{malformed},"));
            bytes
        }
    }
}

fn vlans(out: &mut Vec<u8>, count: u8, ids: [u16; 2]) {
    match count {
        0 => {}
        1 => say(out, format_args!("vlan {} ", ids[0])),
        2 => say(out, format_args!("vlan {},{} ", ids[0], ids[1])),
        _ => say(out, format_args!("vlan {},{},... ", ids[0], ids[1])),
    }
}

fn link_name(out: &mut Vec<u8>, link: LinkType) {
    match link.name() {
        Some(name) => say(out, format_args!("link {name},")),
        None => say(out, format_args!("link type {},", link.0)),
    }
}

/// Appends the facts of the transport header. Returns the bytes behind it.
fn transport<'a>(out: &mut Vec<u8>, frame: &Frame, bytes: &'a [u8]) -> &'a [u8] {
    let rest = frame.payload_of(bytes);
    if let Some(fragment) = frame.fragment {
        let more = if fragment.more { "+" } else { "" };
        say(out, format_args!("fragment {}{more} of {} ", fragment.offset, fragment.identification));
    }
    let payload = match frame.protocol {
        _ if frame.is_later_fragment() => Err(Malformed::LaterFragment),
        protocol::TCP => frame.tcp(bytes).map(|tcp| {
            out.extend_from_slice(b"TCP ");
            flag_names(out, tcp.flags());
            number(out, b" seq ", tcp.sequence_number().into());
            if tcp.flags().ack() {
                number(out, b" ack ", tcp.acknowledgment_number().into());
            }
            number(out, b" win ", tcp.window().into());
            number(out, b" len ", tcp.payload_wire_len().into());
            out.push(b',');
            tcp.payload()
        }),
        protocol::UDP => frame.udp(bytes).map(|udp| {
            number(out, b"UDP len ", udp.payload_wire_len().into());
            out.push(b',');
            udp.payload()
        }),
        protocol::ICMP | protocol::ICMPV6 => icmp::Packet::new_checked(rest).map(|icmp| {
            let name = if frame.protocol == protocol::ICMP { "ICMP" } else { "ICMPv6" };
            match (icmp.echo(frame.version), icmp.kind()) {
                (Some((id, sequence)), kind) => {
                    let what =
                        if matches!(kind, icmp::ECHO_REQUEST | icmp::ECHO_REQUEST_V6) { "request" } else { "reply" };
                    say(out, format_args!("{name} echo {what} id {id} seq {sequence},"));
                }
                (None, kind) => say(out, format_args!("{name} type {kind} code {},", icmp.code())),
            }
            rest.get(8..).unwrap_or_default()
        }),
        _ => Err(Malformed::OtherProtocol),
    };
    payload.unwrap_or_else(|malformed| {
        match (malformed, protocol_name(frame.protocol)) {
            (Malformed::OtherProtocol | Malformed::LaterFragment, Some(name)) => say(out, format_args!("{name},")),
            (Malformed::OtherProtocol | Malformed::LaterFragment, None) => {
                say(out, format_args!("protocol {},", frame.protocol));
            }
            _ => say(out, format_args!("{malformed},")),
        }
        rest
    })
}

const fn protocol_name(number: u8) -> Option<&'static str> {
    Some(match number {
        protocol::TCP => "TCP",
        protocol::UDP => "UDP",
        protocol::ICMP => "ICMP",
        protocol::ICMPV6 => "ICMPv6",
        protocol::SCTP => "SCTP",
        protocol::GRE => "GRE",
        protocol::IPV4 => "IPv4 in IP",
        protocol::IPV6 => "IPv6 in IP",
        protocol::DCCP => "DCCP",
        protocol::UDP_LITE => "UDP-Lite",
        2 => "IGMP",
        50 => "ESP",
        51 => "AH",
        59 => "no next header",
        88 => "EIGRP",
        89 => "OSPF",
        103 => "PIM",
        112 => "VRRP",
        115 => "L2TP",
        _ => return None,
    })
}

/// Appends the description of a frame that is neither IPv4 nor IPv6. Returns the bytes behind the link header.
fn not_ip<'a>(out: &mut Vec<u8>, link: LinkType, below: &Encapsulation, bytes: &'a [u8]) -> &'a [u8] {
    let payload = bytes.get(below.network_offset as usize..).unwrap_or_default();
    if below.ether_type == ethernet::ARP
        && let Ok(packet) = arp::Packet::new_checked(payload)
    {
        let ((mac, sender), (_, target)) = (packet.sender(), packet.target());
        match packet.operation() {
            arp::REQUEST => say(out, format_args!("ARP who-has {target} tell {sender},")),
            arp::REPLY => say(out, format_args!("ARP {sender} is-at {},", Mac(mac))),
            other => say(out, format_args!("ARP operation {other},")),
        }
        return &[];
    }
    match (ether_type_name(below.ether_type), below.ether_type) {
        (Some(name), _) => say(out, format_args!("{name},")),
        (None, 0) if link == LinkType::ETHERNET => out.extend_from_slice(b"LLC,"),
        (None, 0) => link_name(out, link),
        (None, number) => say(out, format_args!("ether type 0x{number:04x},")),
    }
    payload
}

const fn ether_type_name(number: u16) -> Option<&'static str> {
    Some(match number {
        ethernet::ARP => "ARP",
        0x8035 => "RARP",
        0x809b => "AppleTalk",
        0x8137 => "IPX",
        ethernet::PPPOE_DISCOVERY => "PPPoE discovery",
        0x888e => "EAPOL",
        0x8892 => "PROFINET",
        0x88a4 => "EtherCAT",
        0x88cc => "LLDP",
        0x88e5 => "MACsec",
        0x88f7 => "PTP",
        0x8902 => "CFM",
        0x9000 => "loopback",
        _ => return None,
    })
}

struct Mac([u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

fn number(out: &mut Vec<u8>, name: &[u8], value: u64) {
    out.extend_from_slice(name);
    json_text::number(out, value);
}

/// Appends the names of the flags that are set, or `-`.
pub(crate) fn flag_names(out: &mut Vec<u8>, flags: Flags) {
    let names: [(Flags, &[u8]); 6] = [
        (Flags::SYN, b"SYN,"),
        (Flags::FIN, b"FIN,"),
        (Flags::RST, b"RST,"),
        (Flags::PSH, b"PSH,"),
        (Flags::ACK, b"ACK,"),
        (Flags::URG, b"URG,"),
    ];
    let begin = out.len();
    for (_, name) in names.into_iter().filter(|(flag, _)| flags.intersects(*flag)) {
        out.extend_from_slice(name);
    }
    match out.len() == begin {
        true => out.push(b'-'),
        false => drop(out.pop()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::packets::{CLIENT, SERVER, flag, ipv4, tcp, udp};

    fn check(link: LinkType, bytes: &[u8], wire: u32, expected: &str, payload: &[u8]) {
        let mut block = Descriptor { len: bytes.len() as u32, ..Descriptor::default() };
        block.set_wire(wire.max(block.len));
        let mut out = Vec::new();
        assert_eq!(append(&mut out, link, bytes, &block), payload);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn frames() {
        let check =
            |bytes: Vec<u8>, expected: &str, payload: &[u8]| check(LinkType::ETHERNET, &bytes, 0, expected, payload);
        check(
            tcp(CLIENT, SERVER, 7, 0, flag::SYN, b""),
            "10.0.0.1:40000 > 10.0.0.2:80 TCP SYN seq 7 win 65535 len 0, 54 bytes",
            b"",
        );
        check(
            tcp(SERVER, CLIENT, 7, 9, flag::PSH | flag::ACK, b"abc"),
            "10.0.0.2:80 > 10.0.0.1:40000 TCP PSH,ACK seq 7 ack 9 win 65535 len 3, 57 bytes",
            b"abc",
        );
        check(udp(CLIENT, SERVER, b"abc"), "10.0.0.1:40000 > 10.0.0.2:80 UDP len 3, 45 bytes", b"abc");
        let mut tagged = udp(CLIENT, SERVER, b"abc");
        tagged.splice(12..12, [0x81, 0, 0, 6, 0x81, 0, 0, 10]);
        check(tagged, "vlan 6,10 10.0.0.1:40000 > 10.0.0.2:80 UDP len 3, 53 bytes", b"abc");
        let ip = |protocol: u8, bytes: &[u8]| ipv4(CLIENT.0, SERVER.0, protocol, bytes);
        check(ip(1, &[8, 0, 0, 0, 0, 1, 0, 2, 9]), "10.0.0.1 > 10.0.0.2 ICMP echo request id 1 seq 2, 43 bytes", &[9]);
        check(ip(1, &[3, 1, 0, 0, 0, 0, 0, 0]), "10.0.0.1 > 10.0.0.2 ICMP type 3 code 1, 42 bytes", b"");
        check(ip(89, b"x"), "10.0.0.1 > 10.0.0.2 OSPF, 35 bytes", b"x");
        check(ip(200, b"x"), "10.0.0.1 > 10.0.0.2 protocol 200, 35 bytes", b"x");
        check(ip(6, b"x"), "10.0.0.1 > 10.0.0.2 truncated tcp header, 35 bytes", b"x");
        let mut fragment = udp(CLIENT, SERVER, b"abc");
        fragment[20..22].copy_from_slice(&[0x20, 2]);
        check(
            fragment,
            "10.0.0.1 > 10.0.0.2 fragment 16+ of 0 UDP, 45 bytes",
            &[156, 64, 0, 80, 0, 11, 0, 0, 97, 98, 99],
        );
    }

    #[test]
    fn what_is_not_ip() {
        let frame = |ether_type: u16, bytes: &[u8]| [&[2; 12][..], &ether_type.to_be_bytes(), bytes].concat();
        let arp = |operation: u8| {
            frame(
                0x806,
                &[0, 1, 8, 0, 6, 4, 0, operation, 1, 2, 3, 4, 5, 6, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2],
            )
        };
        let check = |link: u16, bytes: Vec<u8>, expected: &str, payload: &[u8]| {
            check(LinkType(link), &bytes, 60, expected, payload)
        };
        check(1, arp(1), "ARP who-has 10.0.0.2 tell 10.0.0.1, 60 bytes, 42 captured", b"");
        check(1, arp(2), "ARP 10.0.0.1 is-at 01:02:03:04:05:06, 60 bytes, 42 captured", b"");
        check(1, frame(0x88cc, b"x"), "LLDP, 60 bytes, 15 captured", b"x");
        check(1, frame(0x1234 + 0x1000, b"x"), "ether type 0x2234, 60 bytes, 15 captured", b"x");
        check(1, vec![1, 2], "truncated link header, 60 bytes, 2 captured", &[1, 2]);
        check(165, vec![1, 2], "link BACNET_MS_TP, 60 bytes, 2 captured", &[1, 2]);
        check(147, vec![1, 2], "link type 147, 60 bytes, 2 captured", &[1, 2]);
    }
}
