//! Gives a record for each frame: time, addresses, facts from headers, and a line of text.
//!
//! `parts/frame_line.rs` writes the line, for `inspect` too. `packets/headers.rs` sets what headers hold,
//! `packets/conversations.rs` what earlier packets tell, and `packets/application.rs` describes the payload.
//!
//! Tiers: each part runs only if a filter behind reads its fields. Headers cost a parse; the analysis of TCP also a lookup.

mod application;
mod conversations;
mod headers;

use crate::parts::eve::{NAME, TUNNEL, VLAN, set_tunnels, set_vlans};
use crate::parts::frame_line::describe;
use crate::parts::origin::{Origins, facts_of};
use base::limits::{PACKETS_CONVERSATIONS, TCP_ANALYSED, TCP_ANALYSED_IN_FLIGHT, TCP_ANALYSED_SEGMENTS};
use buffer::BlockTable;
use conversations::{Conversations, Told, Wants, set_analysis};
use filter::Counters;
use filter::kind::Example;
use filter::prelude::*;
use filter::record::Unit;
use packet::encapsulation::{self, Vlans};
use packet::frame::{self, Frame, protocol};
use packet::malformed::Malformed;
use packet::{Flow, LinkType};

static SCHEMA: Schema = Schema::new(
    "packets",
    &[
        Field::new("timestamp", FieldType::Time),
        Field::new("frame.number", FieldType::Number),
        Field::new("frame.len", FieldType::Number),
        Field::new("frame.captured", FieldType::Number),
        Field::new("frame.time_delta_us", FieldType::Duration(Unit::Microseconds)),
        Field::new("frame.time_relative_us", FieldType::Duration(Unit::Microseconds)),
        Field::new("in_iface", FieldType::Text),
        Field::new("flow.time_delta_us", FieldType::Duration(Unit::Microseconds)),
        Field::new("ether.src_mac", FieldType::Text),
        Field::new("ether.dest_mac", FieldType::Text),
        Field::new("vlan", FieldType::Rows(&VLAN)),
        Field::new("arp.opcode", FieldType::Text),
        Field::new("arp.src_mac", FieldType::Text),
        Field::new("arp.src_ip", FieldType::Address),
        Field::new("arp.dest_mac", FieldType::Text),
        Field::new("arp.dest_ip", FieldType::Address),
        Field::new("src_ip", FieldType::Address),
        Field::new("src_port", FieldType::Number),
        Field::new("dest_ip", FieldType::Address),
        Field::new("dest_port", FieldType::Number),
        Field::new("proto", FieldType::Text),
        Field::new("ip.id", FieldType::Number),
        Field::new("ip.dont_fragment", FieldType::Flag),
        Field::new("ip.more_fragments", FieldType::Flag),
        Field::new("ip.fragment_offset", FieldType::Number),
        Field::new("ip.ttl", FieldType::Number),
        Field::new("ip.dscp", FieldType::Number),
        Field::new("ip.ecn", FieldType::Number),
        Field::new("icmp_type", FieldType::Number),
        Field::new("icmp_code", FieldType::Number),
        Field::new("payload_len", FieldType::Number),
        Field::new("tcp.flags", FieldType::Text),
        Field::new("tcp.seq", FieldType::Number),
        Field::new("tcp.ack", FieldType::Number),
        Field::new("tcp.window", FieldType::Number),
        Field::new("tcp.window_size", FieldType::Number),
        Field::new("tcp.stream", FieldType::Number),
        Field::new("tcp.seq_relative", FieldType::Number),
        Field::new("tcp.ack_relative", FieldType::Number),
        Field::new("tcp.analysis.flags", FieldType::Rows(&NAME)),
        Field::new("tcp.analysis.retransmission", FieldType::Flag),
        Field::new("tcp.analysis.fast_retransmission", FieldType::Flag),
        Field::new("tcp.analysis.spurious_retransmission", FieldType::Flag),
        Field::new("tcp.analysis.out_of_order", FieldType::Flag),
        Field::new("tcp.analysis.lost_segment", FieldType::Flag),
        Field::new("tcp.analysis.ack_lost_segment", FieldType::Flag),
        Field::new("tcp.analysis.duplicate_ack", FieldType::Flag),
        Field::new("tcp.analysis.window_update", FieldType::Flag),
        Field::new("tcp.analysis.window_full", FieldType::Flag),
        Field::new("tcp.analysis.zero_window", FieldType::Flag),
        Field::new("tcp.analysis.zero_window_probe", FieldType::Flag),
        Field::new("tcp.analysis.zero_window_probe_ack", FieldType::Flag),
        Field::new("tcp.analysis.keep_alive", FieldType::Flag),
        Field::new("tcp.analysis.keep_alive_ack", FieldType::Flag),
        Field::new("tcp.analysis.reused_ports", FieldType::Flag),
        Field::new("tcp.analysis.duplicate_ack_num", FieldType::Number),
        Field::new("tcp.analysis.acks_frame", FieldType::Number),
        Field::new("tcp.analysis.ack_rtt_us", FieldType::Duration(Unit::Microseconds)),
        Field::new("tcp.analysis.initial_rtt_us", FieldType::Duration(Unit::Microseconds)),
        Field::new("tcp.analysis.rto_us", FieldType::Duration(Unit::Microseconds)),
        Field::new("tcp.analysis.bytes_in_flight", FieldType::Number),
        Field::new("tcp.analysis.push_bytes_sent", FieldType::Number),
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
        "Gives one record for each frame or packet. A record has the fields that its frame has and that a later filter \
         reads.\n\n\
         The frame: `timestamp`, `frame.number` (the first is 1), `frame.len` (bytes on the wire), `frame.captured`, \
         `frame.time_delta_us` (since the frame before), `frame.time_relative_us` (since the first), `in_iface` (the device, if the capture names it), `flow.time_delta_us` (since \
         the last one of the same flow), `ether.src_mac`, `ether.dest_mac`, `vlan`. Times are whole microseconds; a time that \
         goes back counts as 0. ARP: `arp.opcode`, `arp.src_mac`, `arp.src_ip`, `arp.dest_mac`, `arp.dest_ip`.\n\n\
         IP: `src_ip`, `src_port`, `dest_ip`, `dest_port`, `proto`, `ip.id`, `ip.dont_fragment`, `ip.ttl` (the hop limit of IPv6), \
         `ip.dscp`, `ip.ecn`, of fragments `ip.more_fragments` and `ip.fragment_offset` in bytes. The transport header: \
         `tcp.flags`, `tcp.seq`, `tcp.ack`, `tcp.window` (not scaled), `icmp_type`, `icmp_code`, `payload_len` (bytes behind \
         that header on the wire).\n\n\
         `info` is a line about the frame. It names DNS messages, requests and answers of HTTP/1, and TLS hellos, as far as they begin \
         in the frame. All of it is printable ASCII. Put `decap` before to see the packets inside tunnels.\n\n\
         TCP, by the segments before it and the rules of Wireshark's TCP analysis: `tcp.window_size` (scaled), `tcp.stream` (connections \
         count from 0), `tcp.seq_relative`, `tcp.ack_relative`, and under `tcp.analysis.`: \
         `retransmission`, `fast_retransmission`, `spurious_retransmission`, `out_of_order`, `lost_segment`, `ack_lost_segment`, `duplicate_ack`, \
         `window_update`, `window_full`, `zero_window`, `zero_window_probe`, `zero_window_probe_ack`, `keep_alive`, `keep_alive_ack`, \
         `reused_ports`. The list `flags` names those of them that hold. Numbers are `duplicate_ack_num`, `acks_frame`, `ack_rtt_us`, \
         `initial_rtt_us` (of the handshake), `rto_us`, `bytes_in_flight`, `push_bytes_sent`. Fragments are not analysed.\n\n\
         At most 262144 conversations are kept: then the longest silent one is forgotten and counted. Segments that wait for their \
         acknowledgement are kept too, 1024 of a direction and a million in all; further ones are counted.",
    )
    .takes(&[Type::Frame, Type::Packet])
    .gives_records(&SCHEMA)
    .mode(Mode::Serial)
    .touches(Parts::DATA.with(Parts::METADATA), Parts::NONE)
    .parses_payload()
    .examples(&[Example { request: "pcap dns.pcap | proto udp | packets | fields src_ip dest_port info", output: FIELDS }]);

const FIELDS: &str = "src_ip\tdest_port\tinfo\n10.16.1.11\t53\tUDP len 52, DNS query A suricata.io\n8.8.8.8\t38550\tUDP len 56, DNS response A suricata.io\n";

const _: () = assert!(
    PACKETS_CONVERSATIONS == 262_144 && TCP_ANALYSED >= PACKETS_CONVERSATIONS,
    "the manual says so, and each may be of TCP"
);
const _: () = assert!(TCP_ANALYSED_IN_FLIGHT == 1024 && TCP_ANALYSED_SEGMENTS == 1 << 20, "the manual says so");

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let row = RowWriter::new(&SCHEMA);
    Ok(Instance::filter(Packets {
        read: Read::of(&row),
        row,
        text: Vec::new(),
        number: 0,
        first: None,
        last: 0,
        origins: Origins::new(&Params::new()),
        conversations: Conversations::default(),
    }))
}

/// The parts of records that a filter reads.
#[derive(Clone, Copy)]
struct Read {
    device: bool,
    link: bool,
    /// VLANs and tunnels.
    facts: bool,
    arp: bool,
    ip: bool,
    transport: bool,
    conversations: Wants,
    info: bool,
}

impl Read {
    fn of(row: &RowWriter) -> Read {
        let any = |prefixes: &[&str]| {
            let is_named = |field: &Field| prefixes.iter().any(|prefix| field.name.starts_with(prefix));
            SCHEMA.fields.iter().any(|field| is_named(field) && row.wants(field.name))
        };
        let analysed = ["tcp.window_size", "tcp.stream", "tcp.seq_relative", "tcp.ack_relative", "tcp.analysis."];
        Read {
            device: any(&["in_iface"]),
            link: any(&["ether."]),
            facts: any(&["vlan", "tunnel"]),
            arp: any(&["arp."]),
            ip: any(&["ip."]),
            transport: any(&["tcp.", "icmp_", "payload_len"]),
            conversations: Wants { delta: any(&["flow.time_delta_us"]), analysis: any(&analysed) },
            info: any(&["info"]),
        }
    }
}

struct Packets {
    row: RowWriter,
    text: Vec<u8>,
    read: Read,
    /// Frames seen.
    number: u64,
    /// Times of the first frame and the latest.
    first: Option<u64>,
    last: u64,
    origins: Origins,
    conversations: Conversations,
}

impl Filter for Packets {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        if self.row.want(cx.wanted) {
            self.read = Read::of(&self.row);
        }
        self.origins.begin_batch();
        for (_, block) in batch.iter() {
            self.number += 1;
            self.describe(block, cx);
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
    fn describe(&mut self, block: &Descriptor, cx: &mut Context<'_>) {
        let rings = &*cx.rings;
        let (link, bytes) = (rings.link_type(block).map_or(LinkType::RAW, LinkType), rings.bytes(block));
        let parsed = frame::parse(link, bytes, block.wire());
        let told = match &parsed {
            Ok(frame) => self.told(frame, bytes, block, rings, cx.counters),
            Err(_) => Told::default(),
        };
        self.begin_row(block, &told, cx.rings);
        let Packets { row, text, read, .. } = self;
        if read.link {
            headers::set_link(row, text, link, bytes);
        }
        if read.facts {
            let vlans = match &parsed {
                Ok(frame) => frame.vlans(),
                Err(_) => encapsulation::parse(link, bytes)
                    .map_or(Vlans::default(), |below| Vlans::new(below.vlan_count, below.vlan_ids)),
            };
            let (vlans, tunnels) = facts_of(cx.rings, block, vlans);
            if vlans.count() > 0 {
                set_vlans(row, vlans);
            }
            if let Some(tunnels) = &tunnels {
                set_tunnels(row, tunnels);
            }
        }
        if let Ok(frame) = &parsed {
            headers::set_flow(row, frame, &Flow::of(frame, bytes));
            if read.ip {
                headers::set_ip(row, frame, bytes);
            }
            if read.transport {
                headers::set_transport(row, text, frame, bytes);
            }
            if let Some((connection, verdict)) = &told.tcp {
                set_analysis(row, *connection, verdict);
            }
        } else if read.arp {
            headers::set_arp(row, text, link, bytes);
        }
        if read.info {
            info(row, text, link, bytes, &parsed);
        }
    }

    /// What earlier packets tell about this one.
    fn told(
        &mut self,
        frame: &Frame,
        bytes: &[u8],
        block: &Descriptor,
        rings: &BlockTable,
        counters: &mut Counters,
    ) -> Told {
        let wants = self.read.conversations;
        if !(wants.delta || wants.analysis && frame.protocol == protocol::TCP) {
            return Told::default();
        }
        let Some(origin) = self.origins.of(rings, block) else { return Told::default() };
        let scope = self.origins.scope(origin, frame.vlans());
        self.conversations.add(frame, bytes, scope, (block.time, self.number), wants, counters)
    }

    /// Begins the row with times and lengths.
    fn begin_row(&mut self, block: &Descriptor, told: &Told, rings: &BlockTable) {
        const US: u64 = 1000;
        let row = &mut self.row;
        row.begin();
        row.time("timestamp", block.time).number("frame.number", self.number);
        row.number("frame.len", block.wire().into()).number("frame.captured", block.len.into());
        if self.number > 1 {
            row.number("frame.time_delta_us", block.time.saturating_sub(self.last) / US);
        }
        self.last = block.time;
        let first = *self.first.get_or_insert(block.time);
        row.number("frame.time_relative_us", block.time.saturating_sub(first) / US);
        if self.read.device
            && let Some(name) = rings.interface(block).and_then(|interface| interface.name.as_deref())
        {
            row.text("in_iface", name);
        }
        if let Some(delta) = told.delta {
            row.number("flow.time_delta_us", delta / US);
        }
    }
}

/// Sets the line of text.
fn info(row: &mut RowWriter, text: &mut Vec<u8>, link: LinkType, bytes: &[u8], parsed: &Result<Frame, Malformed>) {
    text.clear();
    let payload = describe(text, link, bytes, parsed);
    if text.last() == Some(&b',') {
        text.pop();
    }
    if let Ok(frame) = parsed
        && !frame.is_later_fragment()
    {
        application::append(text, frame, bytes, payload);
    }
    row.text("info", &*text);
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
        check(
            arp.concat(),
            &[("ip.ttl", None)],
            &[
                ("info", Some("ARP who-has 10.0.0.2 tell 10.0.0.1")),
                ("ether.src_mac", Some("02:02:02:02:02:02")),
                ("arp.opcode", Some("request")),
                ("arp.src_mac", Some("01:02:03:04:05:06")),
                ("arp.dest_mac", Some("00:00:00:00:00:00")),
            ],
        );
    }

    #[test]
    fn what_the_header_of_ip_says() {
        let mut frame = udp(CLIENT, SERVER, b"abc");
        // Class, identification, flags with offset, time to live.
        frame[15] = 0xb9;
        frame[18..23].copy_from_slice(&[0x12, 0x34, 0x20, 0, 63]);
        let numbers = [("ip.ttl", 63), ("ip.id", 0x1234), ("ip.dscp", 46), ("ip.ecn", 1), ("ip.fragment_offset", 0)];
        check(
            frame,
            &numbers.map(|(name, number)| (name, Some(number))),
            &[("ether.dest_mac", Some("02:00:00:00:00:02"))],
        );
    }

    #[test]
    fn what_earlier_frames_tell() {
        let back = |seq, ack, bytes: &[u8]| tcp(SERVER, CLIENT, seq, ack, flag::ACK, bytes);
        let frames = [
            (5_000, tcp(CLIENT, SERVER, 7, 9, flag::ACK, b"abc")),
            (9_000, udp(CLIENT, SERVER, b"x")),
            (12_000, back(9, 10, b"")),
            (90_000_000, tcp(CLIENT, SERVER, 7, 9, flag::ACK, b"abc")),
        ];
        let outcome = Chain::frames(1, &frames).then(&KIND, &[]).run();
        let rows: Vec<_> = outcome.blocks.iter().map(|block| Row::new(&SCHEMA, &block.bytes).unwrap()).collect();
        let numbers = |name: &str| rows.iter().map(|row| row.number(name)).collect::<Vec<_>>();
        assert_eq!(numbers("frame.time_delta_us"), [None, Some(4), Some(3), Some(89_988)]);
        assert_eq!(numbers("flow.time_delta_us"), [None, None, Some(7), Some(89_988)]);
        assert_eq!(numbers("frame.time_relative_us"), [Some(0), Some(4), Some(7), Some(89_995)]);
        assert_eq!(numbers("tcp.stream"), [Some(0), None, Some(0), Some(0)]);
        assert_eq!(numbers("tcp.analysis.ack_rtt_us"), [None, None, Some(7), None]);
        assert!(rows[3].named("tcp.analysis.spurious_retransmission").is_some());
        assert!(rows[2].named("tcp.analysis.retransmission").is_none());
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
