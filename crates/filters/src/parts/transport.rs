//! From a frame to its transport header, for filters that take one protocol: what is theirs, what is another's, and what
//! is broken. Not the protocol itself.
//!
//! The seam for fragments is here: a stage that puts packets together from them stands above this one.

use packet::frame::{self, Frame, protocol};
use packet::link::LinkType;
use packet::malformed::Malformed;

/// Where UDP datagrams go that carry other packets (IANA's service names and port numbers; 8472 is Linux's for VXLAN).
const TUNNEL_PORTS: [(u16, Malformed); 4] = [
    (4789, Malformed::VxlanTunnel),
    (8472, Malformed::VxlanTunnel),
    (6081, Malformed::GeneveTunnel),
    (2152, Malformed::GtpTunnel),
];

/// Why a frame is not for a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It carries something else: no loss.
    Other,
    /// It carries something else in a tunnel of this sort, and what is in there is not looked for.
    Tunnel(&'static str),
    /// It is broken or a fragment, for this reason.
    Dropped(&'static str),
}

impl From<Malformed> for Refusal {
    fn from(why: Malformed) -> Refusal {
        match why {
            Malformed::NotIp | Malformed::OtherProtocol => Refusal::Other,
            why => Refusal::Dropped(why.reason()),
        }
    }
}

/// Reads a frame up to its transport header, which is of this protocol and whole.
#[inline]
pub(crate) fn read(link: LinkType, bytes: &[u8], wire_len: u32, wanted: u8) -> Result<Frame, Refusal> {
    let frame = frame::parse(link, bytes, wire_len)?;
    match frame.fragment {
        None if frame.protocol == wanted => Ok(frame),
        Some(fragment) if frame.protocol == wanted || fragment.protocol == wanted => Err(Refusal::Dropped("fragment")),
        _ => Err(tunnel(&frame, bytes).map_or(Refusal::Other, |tunnel| Refusal::Tunnel(tunnel.reason()))),
    }
}

/// The tunnel that a packet belongs to, where it is one that is known.
fn tunnel(frame: &Frame, bytes: &[u8]) -> Option<Malformed> {
    match of_protocol(frame.protocol) {
        None if frame.protocol == protocol::UDP => {
            let port = frame.udp(bytes).ok()?.target_port();
            TUNNEL_PORTS.iter().find(|(known, _)| *known == port).map(|(_, tunnel)| *tunnel)
        }
        tunnel => tunnel,
    }
}

/// The tunnel that an IP protocol is.
pub(crate) fn of_protocol(number: u8) -> Option<Malformed> {
    match number {
        protocol::GRE => Some(Malformed::GreTunnel),
        protocol::IPV4 | protocol::IPV6 => Some(Malformed::IpTunnel),
        _ => None,
    }
}

/// The outermost VLAN identifier of a frame.
pub(crate) fn vlan_of(frame: &Frame) -> Option<u16> {
    (frame.vlan_count > 0).then_some(frame.vlan_ids[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, IPv4 with this protocol, and what it carries.
    fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 34];
        (frame[12], frame[14]) = (8, 0x45);
        frame[16..18].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        (frame[22], frame[23]) = (64, protocol);
        frame.extend(payload);
        frame
    }

    fn datagram(port: u16) -> Vec<u8> {
        let mut datagram = vec![0; 16];
        datagram[2..4].copy_from_slice(&port.to_be_bytes());
        datagram[5] = 16;
        packet(protocol::UDP, &datagram)
    }

    #[test]
    fn tunnels_are_told_from_other_protocols() {
        let rows = [
            (packet(protocol::GRE, &[0; 40]), Refusal::Tunnel("gre tunnel")),
            (packet(protocol::IPV4, &[0; 40]), Refusal::Tunnel("ip in ip tunnel")),
            (packet(protocol::IPV6, &[0; 60]), Refusal::Tunnel("ip in ip tunnel")),
            (packet(protocol::ICMP, &[0; 40]), Refusal::Other),
            (datagram(4789), Refusal::Tunnel("vxlan tunnel")),
            (datagram(8472), Refusal::Tunnel("vxlan tunnel")),
            (datagram(6081), Refusal::Tunnel("geneve tunnel")),
            (datagram(2152), Refusal::Tunnel("gtp tunnel")),
            (datagram(53), Refusal::Other),
            // Cut before its ports.
            (datagram(4789)[..36].to_vec(), Refusal::Other),
        ];
        for (bytes, expected) in rows {
            let read = read(LinkType::ETHERNET, &bytes, bytes.len() as u32, protocol::TCP);
            assert_eq!(read.map(|_| ()), Err(expected), "{bytes:?}");
        }
        let vxlan = datagram(4789);
        assert!(read(LinkType::ETHERNET, &vxlan, vxlan.len() as u32, protocol::UDP).is_ok(), "it is UDP all the same");
    }
}
