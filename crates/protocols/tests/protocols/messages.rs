//! Compares DNS messages and TLS hellos that fit one frame with tshark's output.

use std::collections::BTreeMap;

use packet::frame;
use protocols::dns::{self, Data, Message};
use protocols::tls::{self, Hello, Stop};
use serde_json::Value;

use crate::shared::{Capture, captures};
use testkit::shared::is_whole;

/// tshark's rows for a protocol, by frame number (from 1).
fn rows(capture: &Capture, protocol: &str) -> BTreeMap<usize, Vec<Value>> {
    let mut rows: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
    for row in capture.expected["tshark_app"][protocol].as_array().into_iter().flatten() {
        rows.entry(row[0].as_u64().unwrap() as usize).or_default().push(row.clone());
    }
    rows
}

fn column(rows: &[Value], index: usize) -> Vec<&str> {
    rows.iter().map(|row| row[index].as_str().unwrap()).collect()
}

/// All whole datagrams on a DNS port are plausible. Of the rest only NetBIOS names (137) are, which have that format.
#[test]
fn dns_plausibility() {
    for capture in captures().filter(|capture| capture.feature("gtpu") == 0) {
        for (index, packet) in capture.packets.iter().enumerate() {
            let data = capture.data(packet);
            let Ok(frame) = frame::parse(packet.link, data, packet.record.wire_len) else { continue };
            let Ok(udp) = frame.udp(data) else { continue };
            let ports = [udp.source_port(), udp.target_port()];
            let expected = ports.iter().any(|port| dns::PORTS.contains(port) || *port == 137);
            if frame.fragment.is_none() {
                let is_plausible = dns::is_plausible(udp.payload(), udp.payload_wire_len());
                assert_eq!(is_plausible, expected, "{} frame {} {ports:?}", capture.name, index + 1);
            }
        }
    }
}

/// The DNS message in a frame, if it is a whole datagram on a DNS port.
fn message(capture: &Capture, frame_number: usize) -> Option<&[u8]> {
    let packet = &capture.packets[frame_number - 1];
    let data = capture.data(packet);
    let frame = frame::parse(packet.link, data, packet.record.wire_len).ok()?;
    let udp = frame.udp(data).ok().filter(|_| frame.fragment.is_none())?;
    let is_dns = dns::PORTS.contains(&udp.source_port()) || dns::PORTS.contains(&udp.target_port());
    is_dns.then_some(udp.payload())
}

#[test]
fn dns_messages() {
    let mut checked = 0;
    for capture in captures() {
        // tshark also reads DNS inside GTP, which is not on a DNS port.
        for (number, rows) in rows(&capture, "dns").into_iter().filter(|_| capture.feature("gtpu") == 0) {
            let Some(payload) = message(&capture, number) else { continue };
            let place = format!("{} frame {number}", capture.name);
            let message = Message::new_checked(payload).unwrap();
            assert_eq!(if message.is_response() { "R" } else { "Q" }, rows[0][1], "{place}");
            let (mut names, mut kinds) = (Vec::new(), Vec::new());
            for question in message.questions().flatten() {
                let mut name = Vec::new();
                question.name.append_to(&mut name).unwrap();
                names.push(String::from_utf8(name).unwrap());
                kinds.push(question.kind.to_string());
            }
            if !names.is_empty() {
                assert_eq!((names, kinds), (owned(column(&rows, 2)), owned(column(&rows, 3))), "{place}");
            }
            let (mut v4, mut v6) = (Vec::new(), Vec::new());
            for record in message.records().flatten() {
                match record.data {
                    Data::A(address) => v4.push(address.to_string()),
                    Data::Aaaa(address) => v6.push(address.to_string()),
                    _ => {}
                }
            }
            // The first row of a frame has the addresses.
            assert_eq!([v4.join("|"), v6.join("|")], [4, 5].map(|index| rows[0][index].as_str().unwrap()), "{place}");
            checked += 1;
        }
    }
    assert!(checked > if is_whole() { 3_500 } else { 5 }, "only {checked} messages");
}

fn owned(texts: Vec<&str>) -> Vec<String> {
    // tshark's name for the root.
    texts.into_iter().map(|text| text.replace("<Root>", ".")).collect()
}

/// What a frame contains if its hello cannot be parsed alone: the hello continues in the next segment, or is of QUIC or
/// SSL 2.
#[derive(Debug, PartialEq)]
enum Seen {
    ServerName(String),
    Continues,
    NotTcp,
    OldFormat,
    Other,
}

fn look(capture: &Capture, frame_number: usize) -> Seen {
    let packet = &capture.packets[frame_number - 1];
    let data = capture.data(packet);
    let Ok(frame) = frame::parse(packet.link, data, packet.record.wire_len) else { return Seen::Other };
    let Ok(tcp) = frame.tcp(data) else { return Seen::NotTcp };
    let mut scratch = Vec::new();
    match tls::hello(tcp.payload(), &mut scratch) {
        Ok(Hello::Client(client)) => {
            let mut name = Vec::new();
            tls::append_name(&mut name, client.server_name().unwrap_or_default());
            Seen::ServerName(String::from_utf8(name).unwrap())
        }
        Err(Stop::Incomplete { need }) if need > tcp.payload().len() => Seen::Continues,
        // Two bytes of length with the top bit set, then type 1.
        Err(Stop::NotTls) if matches!(tcp.payload(), [0x80..=0xff, _, 1, ..]) => Seen::OldFormat,
        _ => Seen::Other,
    }
}

#[test]
fn client_hellos() {
    let mut checked = 0;
    for capture in captures() {
        for (number, rows) in rows(&capture, "tls_client_hello") {
            match look(&capture, number) {
                Seen::ServerName(name) => {
                    assert_eq!(name, rows[0][1], "{} frame {number}", capture.name);
                    checked += 1;
                }
                // tshark gives the frame in which a hello ends.
                Seen::Other => {
                    let continues =
                        (number.saturating_sub(10).max(1)..number).any(|one| look(&capture, one) == Seen::Continues);
                    assert!(continues, "{} frame {number}: no hello", capture.name);
                }
                Seen::Continues | Seen::NotTcp | Seen::OldFormat => {}
            }
        }
    }
    assert!(checked > if is_whole() { 300 } else { 2 }, "only {checked} hellos");
}

/// Captures to compare. The rest have hellos in QUIC, in tunnels, behind other records, or twice (tshark counts one).
const SERVER_HELLOS: [&str; 8] = [
    "arkime__https-connect.pcap",
    "mercury__data__test_decrypt.pcap",
    "mercury__data__top_100_fingerprints.pcap",
    "mercury__pcaps__quic_reordered_frames.pcap",
    "mercury__pcaps__tls_sgt.pcap",
    "pcapplusplus__many-protocols.pcap",
    "pcapplusplus__pcapng-example.pcapng",
    "retina__traces__tls_ciphers.pcap",
];

/// Compares the number of frames that begin with a server hello with tshark's count.
#[test]
fn server_hellos() {
    for capture in captures().filter(|capture| SERVER_HELLOS.contains(&capture.name.as_str())) {
        let mut count = 0;
        for packet in &capture.packets {
            let data = capture.data(packet);
            let Ok(frame) = frame::parse(packet.link, data, packet.record.wire_len) else { continue };
            let Ok(tcp) = frame.tcp(data) else { continue };
            if let Ok(Hello::Server(server)) = tls::hello(tcp.payload(), &mut Vec::new()) {
                assert!((0x0300..=0x0304).contains(&server.version()), "{}: {server:?}", capture.name);
                count += 1;
            }
        }
        let known = &capture.expected["tshark_app_counts"]["tls_server_hello"];
        assert_eq!(*known, count, "{}", capture.name);
    }
}
