//! Sets the fields that the headers of a frame hold, from the link layer upwards.

use crate::parts::eve::set_protocol;
use crate::parts::frame_line::flag_names;
use filter::prelude::*;
use packet::frame::{Frame, protocol};
use packet::text::append_with_colons;
use packet::{Flow, LinkType, arp, encapsulation, ethernet, icmp};

/// The type of Ethernet for RARP (RFC 903).
const RARP: u16 = 0x8035;

/// Sets a field to an Ethernet address.
fn mac(row: &mut RowWriter, text: &mut Vec<u8>, name: &'static str, address: [u8; 6]) {
    text.clear();
    append_with_colons(text, &address);
    row.text(name, &*text);
}

/// Sets the addresses of Ethernet.
pub(super) fn set_link(row: &mut RowWriter, text: &mut Vec<u8>, link: LinkType, bytes: &[u8]) {
    if link == LinkType::ETHERNET
        && let Ok(header) = ethernet::Packet::new_checked(bytes)
    {
        mac(row, text, "ether.src_mac", header.source());
        mac(row, text, "ether.dest_mac", header.destination());
    }
}

/// Sets the fields of ARP and RARP.
pub(super) fn set_arp(row: &mut RowWriter, text: &mut Vec<u8>, link: LinkType, bytes: &[u8]) {
    let Ok(below) = encapsulation::parse(link, bytes) else { return };
    if ![ethernet::ARP, RARP].contains(&below.ether_type) {
        return;
    }
    let payload = bytes.get(below.network_offset as usize..).unwrap_or_default();
    let Ok(packet) = arp::Packet::new_checked(payload) else { return };
    match packet.operation() {
        arp::REQUEST => row.text("arp.opcode", "request"),
        arp::REPLY => row.text("arp.opcode", "reply"),
        other => row.text("arp.opcode", itoa::Buffer::new().format(other)),
    };
    let ((source_mac, source), (target_mac, target)) = (packet.sender(), packet.target());
    mac(row, text, "arp.src_mac", source_mac);
    row.address("arp.src_ip", source.into());
    mac(row, text, "arp.dest_mac", target_mac);
    row.address("arp.dest_ip", target.into());
}

/// Sets the fields of the IP header.
pub(super) fn set_ip(row: &mut RowWriter, frame: &Frame, bytes: &[u8]) {
    let header = bytes.get(frame.network_offset as usize..).unwrap_or_default();
    let (traffic_class, ttl) = match (frame.version, header) {
        (4, &[_, class, _, _, _, _, flags, _, ttl, ..]) => {
            row.number("ip.id", u16::from_be_bytes([header[4], header[5]]).into());
            row.flag("ip.dont_fragment", flags & 0x40 != 0);
            (class, ttl)
        }
        (6, &[first, second, _, _, _, _, _, ttl, ..]) => {
            if let Some(fragment) = frame.fragment {
                row.number("ip.id", fragment.identification.into());
            }
            (first << 4 | second >> 4, ttl)
        }
        _ => return,
    };
    if let Some(fragment) = frame.fragment {
        row.flag("ip.more_fragments", fragment.more).number("ip.fragment_offset", fragment.offset.into());
    }
    row.number("ip.ttl", ttl.into());
    row.number("ip.dscp", (traffic_class >> 2).into()).number("ip.ecn", (traffic_class & 3).into());
}

/// Sets addresses, ports and protocol.
pub(super) fn set_flow(row: &mut RowWriter, frame: &Frame, flow: &Flow) {
    row.address("src_ip", frame.source);
    if (flow.source_port, flow.target_port) != (0, 0) {
        row.number("src_port", flow.source_port.into());
    }
    row.address("dest_ip", frame.target);
    if (flow.source_port, flow.target_port) != (0, 0) {
        row.number("dest_port", flow.target_port.into());
    }
    set_protocol(row, frame.protocol);
}

/// Sets the fields of the transport header.
pub(super) fn set_transport(row: &mut RowWriter, text: &mut Vec<u8>, frame: &Frame, bytes: &[u8]) {
    if frame.is_later_fragment() {
        return;
    }
    match frame.protocol {
        protocol::TCP => {
            let Ok(tcp) = frame.tcp(bytes) else { return };
            row.number("payload_len", tcp.payload_wire_len().into());
            text.clear();
            flag_names(text, tcp.flags());
            row.text("tcp.flags", &*text).number("tcp.seq", tcp.sequence_number().into());
            if tcp.flags().ack() {
                row.number("tcp.ack", tcp.acknowledgment_number().into());
            }
            row.number("tcp.window", tcp.window().into());
        }
        protocol::UDP => {
            let Ok(udp) = frame.udp(bytes) else { return };
            row.number("payload_len", udp.payload_wire_len().into());
        }
        protocol::ICMP | protocol::ICMPV6 => {
            let Ok(icmp) = icmp::Packet::new_checked(frame.payload_of(bytes)) else { return };
            row.number("icmp_type", icmp.kind().into()).number("icmp_code", icmp.code().into());
        }
        _ => {}
    }
}
