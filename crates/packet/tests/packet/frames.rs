//! Compares the frames of the shared captures with the packet counts of an independent reference reader.

use std::collections::BTreeMap;

use crate::shared::{Capture, captures};
use packet::frame::{self, protocol};
use packet::tunnel::ports::Ports;
use packet::tunnel::{Carries, look};
use packet::{Malformed, encapsulation, ethernet};

/// Features for which the reference count is only an upper bound: the reference reader opens tunnels and reassembles
/// fragments.
const BEYOND_FRAMES: [&str; 9] = ["gre", "ipip", "vxlan", "geneve", "gtpu", "teredo", "erspan", "defrag4", "defrag6"];

/// Versions 1.4 and 2.5 are refused, as by tcpdump. 32 nested pseudowires exceed the limit. The reference reader does
/// not know ARCNET.
const NOT_READ: [&str; 4] = [
    "libpcap__filter__arcnet-rfc1201-arp-icmp-http.pcap",
    "libpcap__pcap-invalid-version-1.pcap",
    "libpcap__pcap-invalid-version-2.pcap",
    "suricata-verify__decode-too-many-layers.pcap",
];

const FEATURES: [&str; 14] =
    ["ip4", "ip6", "frag4", "frag6", "tcp", "bad_tcp", "udp", "icmp", "icmp6", "sctp", "vlan1", "vlan2", "mpls", "arp"];

fn counts(capture: &Capture) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for packet in &capture.packets {
        let data = capture.data(packet);
        let mut count = |name| *counts.entry(name).or_default() += 1;
        if let Ok(below) = encapsulation::parse(packet.link, data) {
            ["vlan1", "vlan2"].into_iter().take(usize::from(below.vlan_count)).for_each(&mut count);
            if below.mpls_count > 0 {
                count("mpls");
            }
            if below.ether_type == ethernet::ARP {
                count("arp");
            }
        }
        let Ok(frame) = frame::parse(packet.link, data, packet.record.wire_len) else { continue };
        count(if frame.version == 4 { "ip4" } else { "ip6" });
        match (frame.fragment, frame.protocol) {
            (Some(_), _) => count(if frame.version == 4 { "frag4" } else { "frag6" }),
            (None, protocol::TCP) => {
                count("tcp");
                if frame.tcp(data).is_err() {
                    count("bad_tcp");
                }
            }
            (None, protocol::UDP) => count("udp"),
            (None, protocol::ICMP) => count("icmp"),
            (None, protocol::ICMPV6) => count("icmp6"),
            (None, protocol::SCTP) => count("sctp"),
            _ => {}
        }
    }
    counts
}

#[test]
fn features() {
    for capture in captures().filter(|capture| !NOT_READ.contains(&capture.name.as_str())) {
        let counts = counts(&capture);
        let is_bound = BEYOND_FRAMES.iter().any(|name| capture.feature(name) > 0);
        for name in FEATURES {
            let (count, known) = (counts.get(name).copied().unwrap_or(0), capture.feature(name));
            assert!(count == known || is_bound && count < known, "{}: {name} {count}, known {known}", capture.name);
        }
    }
}

/// Reads whole captures: packets read and packets refused must add up.
#[test]
fn refused() {
    let check = |name: &str, expected: &[(&str, u64)]| {
        let Some(capture) = captures().find(|capture| capture.name == name) else { return };
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        for packet in &capture.packets {
            let read = frame::parse(packet.link, capture.data(packet), packet.record.wire_len);
            *reasons.entry(read.map_or_else(Malformed::reason, |_| "read")).or_default() += 1;
        }
        assert_eq!(reasons.into_iter().collect::<Vec<_>>(), expected, "{name}");
    };
    check("mercury__pcaps__tls_sgt.pcap", &[("read", 2431)]);
    check("zeek__pppoe-over-qinq.pcap", &[("read", 86)]);
    check("zeek__llc.pcap", &[("read", 1333)]);
    check("zeek__vntag.pcap", &[("read", 3)]);
    check("arkime__mpls-basic.pcap", &[("not ip", 6), ("read", 52)]);
    check("pcapplusplus__CiscoHDLC.pcap", &[("not ip", 1), ("read", 2)]);
    check("libpcap__filter__pppoes.pcap", &[("not ip", 2)]);
    check("suricata-verify__decode-too-many-layers.pcap", &[("too many headers below ip", 1)]);
    check("libpcap__filter__wpa-Induction.pcap", &[("not ip", 10)]);
    check("libpcap__filter__http_PPI.pcap", &[("not ip", 2), ("read", 3)]);
    check("libpcap__filter__arcnet-rfc1201-arp-icmp-http.pcap", &[("not ip", 4), ("read", 11)]);
}

/// Counts packets by their tunnels, outermost first. Leaves out packets inside fragments.
#[test]
fn tunnels() {
    let ports = Ports::default();
    let check = |name: &str, expected: &[(&str, u64)]| {
        let Some(capture) = captures().find(|capture| capture.name == name) else { return };
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for packet in &capture.packets {
            let (mut link, mut bytes, mut wire_len) = (packet.link, capture.data(packet), packet.record.wire_len);
            let mut stack = Vec::new();
            while let Ok(Carries::Inner(inner)) = look(link, bytes, wire_len, &ports) {
                stack.push(inner.layer.kind.name());
                bytes = &bytes[inner.offset as usize..][..inner.len as usize];
                (link, wire_len) = (inner.link, inner.wire_len);
            }
            *found.entry(stack.join(" ")).or_default() += 1;
        }
        found.remove("");
        let expected: BTreeMap<String, u64> =
            expected.iter().map(|(stack, count)| (stack.to_string(), *count)).collect();
        assert_eq!(found, expected, "{name}");
    };
    check("arkime__gtp-iphone.pcap", &[("gtp", 106)]);
    check("arkime__ipv6-gtp6.pcap", &[("gtp", 1)]);
    check("arkime__mpls-basic.pcap", &[("mpls", 17)]);
    check("libpcap__filter__AH-IPcomp-IPv4.pcap", &[("ip", 6)]);
    check("mercury__pcaps__emix.pcap", &[("teredo", 1)]);
    check("snabb__lwaftr__tests__data__recap-ipv6-n64.pcap", &[("ip", 64)]);
    check("suricata-verify__bug-5437-02.pcap", &[("erspan", 60)]);
    check("suricata-verify__output-eve-ftp-data.pcap", &[("teredo", 6)]);
    check("suricata-verify__vxlan-decoder-02__vxlan.pcap", &[("vxlan", 10)]);
    check("zeek__erspanI.pcap", &[("erspan", 10)]);
    check("zeek__mixed-vlan-mpls.pcap", &[("mpls", 11)]);
    check("zeek__pppoe-over-qinq.pcap", &[("pppoe", 86)]);
    check("zeek__tunnels__geneve-47101.pcap", &[("geneve", 24)]);
    check("zeek__tunnels__geneve-many-options.pcap", &[("geneve", 10)]);
    check("zeek__tunnels__vxlan-encapsulated-http.pcap", &[("vxlan", 12)]);
    check("zeek__vxlan-overlapping-http-get.pcap", &[("vxlan", 28)]);
    // The inner packet is not IP but a message of the link control protocol.
    check("tcpdump__pptp.pcap", &[]);
}

#[test]
fn offsets_are_in_order() {
    for capture in captures() {
        for packet in &capture.packets {
            let data = capture.data(packet);
            let Ok(frame) = frame::parse(packet.link, data, packet.record.wire_len) else { continue };
            assert!(frame.network_offset < frame.transport_offset, "{}: {frame:?}", capture.name);
            assert!(frame.transport_offset <= frame.payload_end, "{}: {frame:?}", capture.name);
            assert!(frame.payload_end as usize <= data.len(), "{}: {frame:?}", capture.name);
            assert!(frame.payload().len() <= frame.payload_wire_len as usize, "{}: {frame:?}", capture.name);
            // `parse_ip` does not know a packet length from a header below IP.
            if encapsulation::parse(packet.link, data).is_ok_and(|below| below.limit.is_some()) {
                continue;
            }
            let again = frame::parse_ip(data, frame.network_offset, packet.record.wire_len).unwrap();
            let below = frame::Frame { vlan_count: 0, vlan_ids: [0; 2], mpls_count: 0, ..frame };
            assert_eq!(again, below, "{}", capture.name);
        }
    }
}
