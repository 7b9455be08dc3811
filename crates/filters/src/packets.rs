//! Gives a record for each frame: time, addresses, facts from headers, and a line of text.
//!
//! `parts/frame_line.rs` writes the line, for `inspect` too. `packets/application.rs` describes the payload.

mod application;

use crate::parts::eve::{TUNNEL, VLAN, set_protocol, set_tunnels, set_vlans};
use crate::parts::frame_line::{describe, flag_names};
use crate::parts::origin::facts_of;
use buffer::BlockTable;
use filter::kind::Example;
use filter::prelude::*;
use packet::encapsulation::{self, Vlans};
use packet::frame::{self, Frame, protocol};
use packet::{Flow, LinkType, icmp};

static SCHEMA: Schema = Schema::new(
    "packets",
    &[
        Field::new("timestamp", FieldType::Time),
        Field::new("frame.number", FieldType::Number),
        Field::new("frame.len", FieldType::Number),
        Field::new("frame.captured", FieldType::Number),
        Field::new("in_iface", FieldType::Text),
        Field::new("vlan", FieldType::Rows(&VLAN)),
        Field::new("src_ip", FieldType::Address),
        Field::new("src_port", FieldType::Number),
        Field::new("dest_ip", FieldType::Address),
        Field::new("dest_port", FieldType::Number),
        Field::new("proto", FieldType::Text),
        Field::new("tcp.flags", FieldType::Text),
        Field::new("tcp.seq", FieldType::Number),
        Field::new("tcp.ack", FieldType::Number),
        Field::new("tcp.window", FieldType::Number),
        Field::new("icmp_type", FieldType::Number),
        Field::new("icmp_code", FieldType::Number),
        Field::new("payload_len", FieldType::Number),
        Field::new("tunnel", FieldType::Rows(&TUNNEL)),
        Field::new("info", FieldType::Text),
    ],
)
.summary(&["proto", "frame.len", "info"])
.from_first();

/// What `packets` is.
pub static KIND: Kind = Kind::new("packets", "gives a record of each frame: times, addresses, ports, flags, lengths", make)
    .also(&["frames", "list", "summary"])
    .help(
        "Gives one record for each frame or packet: `timestamp`, `frame.number` (from 1, as they come here), `frame.len` (bytes on \
         the wire) and `frame.captured`, `in_iface` (the device, if the capture names it), `vlan`, `src_ip`, `src_port`, `dest_ip`, `dest_port`, `proto`, what the transport header \
         says (`tcp.flags`, `tcp.seq`, `tcp.ack`, `tcp.window`, `icmp_type`, `icmp_code`), `payload_len` (bytes behind the \
         transport header on the wire), and `info`, a line about it. Fields that a frame does not have are not set. \
         `info` also names DNS messages, requests and answers of HTTP/1, and TLS hellos, as far as they begin in the frame. Nothing from the \
         traffic is in it that is not printable ASCII. What a frame carries in a tunnel is shown behind `decap`.",
    )
    .takes(&[Type::Frame, Type::Packet])
    .gives_records(&SCHEMA)
    .mode(Mode::Serial)
    .touches(Parts::DATA.with(Parts::METADATA), Parts::NONE)
    .parses_payload()
    .examples(&[Example { request: "pcap dns.pcap | proto udp | packets | fields src_ip dest_port info", output: FIELDS }]);

const FIELDS: &str = "src_ip\tdest_port\tinfo\n10.16.1.11\t53\tUDP len 52, DNS query A suricata.io\n8.8.8.8\t38550\tUDP len 56, DNS response A suricata.io\n";

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(Instance::filter(Packets { row: RowWriter::new(&SCHEMA), text: Vec::new(), number: 0, gives_info: true }))
}

struct Packets {
    row: RowWriter,
    text: Vec<u8>,
    /// Frames seen.
    number: u64,
    /// A filter reads `info`.
    gives_info: bool,
}

impl Filter for Packets {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.row.want(cx.wanted);
        self.gives_info = self.row.wants("info");
        for (_, block) in batch.iter() {
            self.number += 1;
            self.describe(block, cx.rings);
            if let Some(mut record) = cx.rings.append_copy(cx.own, &[self.row.row()]) {
                record.time = block.time;
                cx.emit(record);
            }
        }
        Ok(Status::Done)
    }
}

impl Packets {
    /// Fills the row of a frame.
    fn describe(&mut self, block: &Descriptor, rings: &BlockTable) {
        let Packets { row, text, number, gives_info } = self;
        let (link, bytes) = (rings.link_type(block).map_or(LinkType::RAW, LinkType), rings.bytes(block));
        let parsed = frame::parse(link, bytes, block.wire());
        row.begin();
        row.time("timestamp", block.time).number("frame.number", *number);
        row.number("frame.len", block.wire().into()).number("frame.captured", block.len.into());
        if let Some(name) = rings.interface(block).and_then(|interface| interface.name.as_deref()) {
            row.text("in_iface", name);
        }
        let vlans = match &parsed {
            Ok(frame) => frame.vlans(),
            Err(_) => encapsulation::parse(link, bytes)
                .map_or(Vlans::default(), |below| Vlans::new(below.vlan_count, below.vlan_ids)),
        };
        let (vlans, tunnels) = facts_of(rings, block, vlans);
        if vlans.count() > 0 {
            set_vlans(row, vlans);
        }
        if let Some(tunnels) = &tunnels {
            set_tunnels(row, tunnels);
        }
        text.clear();
        if let Ok(frame) = &parsed {
            set_headers(row, text, frame, bytes);
        }
        if !*gives_info {
            return;
        }
        text.clear();
        let payload = describe(text, link, bytes, &parsed);
        if text.last() == Some(&b',') {
            text.pop();
        }
        if let Ok(frame) = &parsed
            && !frame.is_later_fragment()
        {
            application::append(text, frame, bytes, payload);
        }
        row.text("info", &*text);
    }
}

/// Sets the fields of the headers from IP upwards.
fn set_headers(row: &mut RowWriter, text: &mut Vec<u8>, frame: &Frame, bytes: &[u8]) {
    let flow = Flow::of(frame, bytes);
    row.address("src_ip", frame.source).address("dest_ip", frame.target);
    set_protocol(row, frame.protocol);
    if (flow.source_port, flow.target_port) != (0, 0) {
        row.number("src_port", flow.source_port.into()).number("dest_port", flow.target_port.into());
    }
    if frame.is_later_fragment() {
        return;
    }
    match frame.protocol {
        protocol::TCP => {
            let Ok(tcp) = frame.tcp(bytes) else { return };
            flag_names(text, tcp.flags());
            row.text("tcp.flags", &*text).number("tcp.seq", tcp.sequence_number().into());
            if tcp.flags().ack() {
                row.number("tcp.ack", tcp.acknowledgment_number().into());
            }
            row.number("tcp.window", tcp.window().into()).number("payload_len", tcp.payload_wire_len().into());
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

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::packets::{CLIENT, SERVER, flag, ipv4, tcp, udp};
    use testkit::{Chain, Outcome};

    fn run(frames: &[Vec<u8>]) -> Outcome {
        let frames: Vec<_> = frames.iter().map(|frame| (7, frame.clone())).collect();
        Chain::frames(1, &frames).then(&KIND, &[]).run()
    }

    /// Compares the row of a single frame.
    fn check(frame: Vec<u8>, numbers: &[(&str, Option<u64>)], texts: &[(&str, Option<&str>)]) {
        let outcome = run(&[frame]);
        let row = Row::new(&SCHEMA, &outcome.blocks[0].bytes).unwrap();
        for (name, expected) in numbers {
            assert_eq!(row.number(name), *expected, "{name}");
        }
        for (name, expected) in texts {
            let found = row.text(name).map(String::from_utf8_lossy);
            assert_eq!(found.as_deref(), *expected, "{name}");
        }
    }

    #[test]
    fn what_headers_say() {
        check(
            tcp(CLIENT, SERVER, 7, 9, flag::ACK | flag::PSH, b"abc"),
            &[
                ("timestamp", Some(7)),
                ("frame.number", Some(1)),
                ("frame.len", Some(57)),
                ("frame.captured", Some(57)),
                ("src_port", Some(40_000)),
                ("dest_port", Some(80)),
                ("tcp.seq", Some(7)),
                ("tcp.ack", Some(9)),
                ("tcp.window", Some(65_535)),
                ("payload_len", Some(3)),
                ("icmp_type", None),
            ],
            &[
                ("proto", Some("TCP")),
                ("tcp.flags", Some("PSH,ACK")),
                ("info", Some("TCP PSH,ACK seq 7 ack 9 win 65535 len 3")),
            ],
        );
        check(
            udp(CLIENT, SERVER, b"abc"),
            &[("payload_len", Some(3)), ("tcp.seq", None)],
            &[("proto", Some("UDP")), ("tcp.flags", None), ("info", Some("UDP len 3"))],
        );
        check(
            ipv4(CLIENT.0, SERVER.0, 1, &[3, 1, 0, 0, 0, 0, 0, 0]),
            &[("icmp_type", Some(3)), ("icmp_code", Some(1)), ("src_port", None), ("payload_len", None)],
            &[("proto", Some("ICMP")), ("info", Some("ICMP type 3 code 1"))],
        );
        check(ipv4(CLIENT.0, SERVER.0, 200, b"x"), &[("src_port", None)], &[("proto", Some("200"))]);
        let mut later = udp(CLIENT, SERVER, b"abc");
        later[21] = 2;
        check(later, &[("src_port", None), ("payload_len", None)], &[("info", Some("fragment 16 of 0 UDP"))]);
    }

    #[test]
    fn frames_that_make_no_sense_have_records_too() {
        check(
            vec![2; 11],
            &[("frame.len", Some(11)), ("src_port", None)],
            &[("proto", None), ("info", Some("truncated link header"))],
        );
        let arp =
            [&[2; 12][..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 1, 2, 3, 4, 5, 6, 10, 0, 0, 1], &[0; 6], &[10, 0, 0, 2]];
        check(arp.concat(), &[], &[("info", Some("ARP who-has 10.0.0.2 tell 10.0.0.1"))]);
    }

    #[test]
    fn frames_are_numbered_as_they_come() {
        let frames: Vec<_> = (0..150).map(|number| udp(CLIENT, SERVER, &[number])).collect();
        let outcome = run(&frames);
        let numbers =
            outcome.blocks.iter().map(|block| Row::new(&SCHEMA, &block.bytes).unwrap().number("frame.number"));
        assert!(numbers.eq((1..=150).map(Some)));
    }
}
