//! Community ID, version 1: the text on which all tools agree for a flow (<https://github.com/corelight/community-id-spec>).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use packet::frame::{Frame, protocol};
use packet::{Flow, icmp};
use sha1::{Digest, Sha1};
use std::net::IpAddr;

/// Type and code of an ICMP packet, in place of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Icmp {
    pub kind: u8,
    pub code: u8,
    version: u8,
}

impl Icmp {
    /// Reads an ICMP packet. `None`: it is cut.
    pub fn of(frame: &Frame, bytes: &[u8]) -> Option<Icmp> {
        let packet = icmp::Packet::new_checked(frame.payload_of(bytes)).ok()?;
        Some(Icmp { kind: packet.kind(), code: packet.code(), version: frame.version })
    }

    /// The type of the answer to this type, or of its request.
    fn counterpart(self) -> Option<u8> {
        const V4: [(u8, u8); 5] = [(8, 0), (13, 14), (15, 16), (17, 18), (10, 9)];
        const V6: [(u8, u8); 6] = [(128, 129), (133, 134), (135, 136), (130, 131), (144, 145), (139, 140)];
        let pairs: &[(u8, u8)] = if self.version == 4 { &V4 } else { &V6 };
        pairs.iter().find_map(|(one, other)| match self.kind {
            kind if kind == *one => Some(*other),
            kind if kind == *other => Some(*one),
            _ => None,
        })
    }
}

/// Appends the Community ID of a flow.
pub(crate) fn append(out: &mut Vec<u8>, flow: &Flow, icmp: Option<Icmp>) {
    let mut ends = [(flow.source, flow.source_port), (flow.target, flow.target_port)];
    let mut has_ports = matches!(flow.protocol, protocol::TCP | protocol::UDP | protocol::SCTP)
        && (flow.source_port, flow.target_port) != (0, 0);
    let mut is_one_way = false;
    if let Some(icmp) = icmp {
        let counterpart = icmp.counterpart();
        (ends[0].1, ends[1].1) = (icmp.kind.into(), counterpart.unwrap_or(icmp.code).into());
        (has_ports, is_one_way) = (true, counterpart.is_none());
    }
    let key = |(address, port): (IpAddr, u16)| match address {
        IpAddr::V4(address) => (address.octets().to_vec(), port),
        IpAddr::V6(address) => (address.octets().to_vec(), port),
    };
    let mut ends = ends.map(key);
    if !is_one_way && ends[0] > ends[1] {
        ends.swap(0, 1);
    }
    let mut hash = Sha1::new();
    hash.update([0, 0]);
    ends.iter().for_each(|(address, _)| hash.update(address));
    hash.update([flow.protocol, 0]);
    if has_ports {
        ends.iter().for_each(|(_, port)| hash.update(port.to_be_bytes()));
    }
    out.extend_from_slice(b"1:");
    out.extend_from_slice(STANDARD.encode(hash.finalize()).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(protocol: u8, [source, target]: [(&str, u16); 2], icmp: Option<(u8, u8)>, expected: &str) {
        let [from, to] = [source, target].map(|(address, _)| address.parse::<IpAddr>().unwrap());
        let flow = Flow { source: from, target: to, source_port: source.1, target_port: target.1, protocol };
        let icmp = icmp.map(|(kind, code)| Icmp { kind, code, version: if from.is_ipv4() { 4 } else { 6 } });
        let mut out = Vec::new();
        append(&mut out, &flow, icmp);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    /// The samples from the specification.
    #[test]
    fn samples() {
        let tcp = [("128.232.110.120", 34_855), ("66.35.250.204", 80)];
        check(6, tcp, None, "1:LQU9qZlK+B5F3KDmev6m5PMibrg=");
        check(6, [tcp[1], tcp[0]], None, "1:LQU9qZlK+B5F3KDmev6m5PMibrg=");
        check(17, [("192.168.1.52", 54_585), ("8.8.8.8", 53)], None, "1:d/FP5EW3wiY1vCndhwleRRKHowQ=");
        check(1, [("192.168.0.89", 0), ("192.168.0.1", 0)], Some((8, 0)), "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=");
        check(1, [("192.168.0.1", 0), ("192.168.0.89", 0)], Some((0, 0)), "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=");
    }
}
