//! Compares the packets of capture files with the counts of tcpdump, tshark, capinfos and an independent reader.

use crate::shared::{Packet, captures, read};
use packet::capture::Cause;
use serde_json::Value;

/// libpcap stops early at a second link type or snap length in one file. The other tools and this crate read on.
const LIBPCAP_STOPS: [&str; 5] = [
    "pcapplusplus__BgpPackets.pcap",
    "pcapplusplus__gtpv2.pcap",
    "pcapplusplus__ldap.pcapng",
    "pcapplusplus__pcapng-example.pcapng",
    "zeek__ldap__gap-data-missing.pcapng",
];

#[test]
fn counts() {
    for capture in captures() {
        let peers = &capture.expected["packets"];
        let count = capture.packets.len() as u64;
        let agreed = match peers["tcpdump"].as_u64() {
            Some(_) if LIBPCAP_STOPS.contains(&capture.name.as_str()) => peers["tshark"].as_u64().unwrap(),
            Some(agreed) => agreed,
            // Refused by tcpdump for an undefined version, no interface, or damage. No packet precedes it.
            None => 0,
        };
        assert_eq!(count, agreed, "{}: {:?}", capture.name, capture.damage);
    }
}

/// Records longer than the snap length in the file header: cut to it, as in libpcap.
const CUT: [&str; 2] = ["libpcap__filter__slip-compressed_sl_print-oobr.pcap", "tcpdump__vrrp-vrrp_print-oobr-2.pcap"];

#[test]
fn contents() {
    for capture in captures().filter(|capture| !capture.packets.is_empty()) {
        let format = &capture.expected["format"];
        let captured: u64 = capture.packets.iter().map(|packet| u64::from(packet.record.captured_len)).sum();
        let known = format["bytes"].as_u64().unwrap();
        let is_cut = CUT.contains(&capture.name.as_str());
        assert!(if is_cut { captured < known } else { captured == known }, "{}: {captured} {known}", capture.name);
        let ends = [capture.packets.first(), capture.packets.last()].map(|packet| packet.unwrap().record.time_ns);
        // A time beyond 2554 does not fit. One file claims microseconds and has nanoseconds.
        let known = ["first_ts_ns", "last_ts_ns"].map(|end| format[end].as_u64().unwrap_or(u64::MAX));
        assert_eq!(ends, known, "{}", capture.name);
        let mut links: Vec<u64> = capture.packets.iter().map(|packet| u64::from(packet.link.0)).collect();
        links.sort_unstable();
        links.dedup();
        let known: Vec<u64> = format["linktypes"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
        assert!(links.iter().all(|link| known.contains(link)), "{}: {links:?}", capture.name);
        for packet in &capture.packets {
            assert_eq!(capture.data(packet).len(), packet.record.captured_len as usize, "{}", capture.name);
        }
    }
}

/// Maps the reference reader's words to [`Cause`].
#[test]
fn damage() {
    for capture in captures() {
        let said = capture.expected["format"]["errors"].as_array().unwrap();
        let Some((words, offset)) = said.first().and_then(Value::as_str).and_then(|error| error.rsplit_once(" at "))
        else {
            let refused = capture.expected["packets"]["tcpdump"].as_u64().is_none();
            assert!(refused || capture.damage.is_none(), "{}: {:?}", capture.name, capture.damage);
            continue;
        };
        let damage = capture.damage.unwrap_or_else(|| panic!("{}: {words} went unnoticed", capture.name));
        assert_eq!(damage.offset.to_string(), offset, "{}: {damage}", capture.name);
        let agreed = match damage.cause {
            Cause::EndsInRecord { .. } => words.starts_with("truncated record"),
            Cause::BlockTrailer { .. } => words == "trailer mismatch",
            Cause::BlockLength { .. } => words.starts_with("bad block length"),
            _ => false,
        };
        assert!(agreed, "{}: {damage}, expected {words}", capture.name);
    }
}

#[test]
fn windows_of_any_size_give_the_same() {
    for capture in captures().filter(|capture| capture.file.len() < 40_000) {
        for window_bytes in [1, 7, 100] {
            let (packets, damage) = read(&capture.file, window_bytes);
            assert_eq!(damage, capture.damage, "{}", capture.name);
            let times = |packets: &[Packet]| {
                packets.iter().map(|one| (one.record.time_ns, one.record.wire_len)).collect::<Vec<_>>()
            };
            assert_eq!(times(&packets), times(&capture.packets), "{}", capture.name);
            for (one, other) in packets.iter().zip(&capture.packets) {
                assert_eq!(capture.data(one), capture.data(other), "{}", capture.name);
            }
        }
    }
}
