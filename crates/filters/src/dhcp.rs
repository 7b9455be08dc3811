//! DHCP messages as records: the client that asks for an address, and what the server gives it.
//!
//! `packet::dhcp` reads the message. DHCPv6 and BOOTP without options are not read.

use crate::parts::eve::{NAME, begin_row, eve_fields};
use crate::parts::outlet::Outlet;
use base::limits::DHCP_LISTED;
use filter::prelude::*;
use filter::record::list_push;
use packet::dhcp::{self, Packet, code};
use packet::text::append_with_colons;
use std::net::{IpAddr, Ipv4Addr};

/// A record of a message.
pub static SCHEMA: Schema = Schema::new(
    "dhcp",
    &eve_fields![
        Field::new("dhcp.type", FieldType::Text),
        Field::new("dhcp.id", FieldType::Number),
        Field::new("dhcp.client_mac", FieldType::Text),
        Field::new("dhcp.assigned_ip", FieldType::Address),
        Field::new("dhcp.client_ip", FieldType::Address),
        Field::new("dhcp.next_server_ip", FieldType::Address),
        Field::new("dhcp.relay_ip", FieldType::Address),
        Field::new("dhcp.client_id", FieldType::Text),
        Field::new("dhcp.hostname", FieldType::Text),
        Field::new("dhcp.domain_name", FieldType::Text),
        Field::new("dhcp.vendor_class_identifier", FieldType::Text),
        Field::new("dhcp.requested_ip", FieldType::Address),
        Field::new("dhcp.params", FieldType::Rows(&NAME)),
        Field::new("dhcp.dhcp_type", FieldType::Text),
        Field::new("dhcp.subnet_mask", FieldType::Address),
        Field::new("dhcp.routers", FieldType::Rows(&ADDRESS)),
        Field::new("dhcp.dns_servers", FieldType::Rows(&ADDRESS)),
        Field::new("dhcp.lease_time", FieldType::Duration(Unit::Seconds)),
        Field::new("dhcp.renewal_time", FieldType::Duration(Unit::Seconds)),
        Field::new("dhcp.rebinding_time", FieldType::Duration(Unit::Seconds)),
    ],
)
.summary(&["dhcp.dhcp_type", "dhcp.client_mac", "dhcp.assigned_ip", "dhcp.hostname"]);

/// The item of a list of addresses.
pub static ADDRESS: Schema = Schema::new("address", &[Field::new("", FieldType::Address)]);

/// What `dhcp` is.
pub static KIND: Kind = Kind::new("dhcp", "reads DHCP messages and gives a record of each", make)
    .help(
        "Finds DHCP in UDP on any port, by its cookie, and gives a record of each message: `dhcp.type` (request or reply), \
         `dhcp.dhcp_type` (discover, offer, request, ack ...), `dhcp.client_mac`, `dhcp.hostname`, `dhcp.assigned_ip`, \
         `dhcp.lease_time` in seconds, and what else EVE has of it. Of a list 64 items are shown.",
    )
    .takes(&[Type::Message])
    .rejects()
    .gives_records(&SCHEMA)
    .wants(&[(Type::Frame, "udp"), (Type::Packet, "udp")])
    .parses_payload()
    .examples(&[Example { request: "pcap dhcp.pcap | dhcp", output: A_LEASE }]);

const A_LEASE: &str = r#"{"timestamp":"2020-04-29T19:58:19.728133000Z","flow_id":7428980905371111,"event_type":"dhcp","src_ip":"10.16.1.4","src_port":68,"dest_ip":"10.16.1.1","dest_port":67,"proto":"UDP","dhcp":{"type":"request","id":4016330564,"client_mac":"00:11:32:17:49:f0","assigned_ip":"0.0.0.0","client_ip":"10.16.1.4","client_id":"00:11:32:17:49:f0","hostname":"nas1","params":["subnet_mask","router","domain","dns_server"],"dhcp_type":"request"}}
{"timestamp":"2020-04-29T19:58:19.731693000Z","flow_id":7428980905371111,"event_type":"dhcp","src_ip":"10.16.1.1","src_port":67,"dest_ip":"10.16.1.4","dest_port":68,"proto":"UDP","dhcp":{"type":"reply","id":4016330564,"client_mac":"00:11:32:17:49:f0","assigned_ip":"10.16.1.4","client_ip":"10.16.1.4","next_server_ip":"10.16.1.1","relay_ip":"0.0.0.0","hostname":"nas1","domain_name":"unx.ca","dhcp_type":"ack","subnet_mask":"255.255.0.0","routers":["10.16.1.1"],"dns_servers":["10.16.1.1"],"lease_time":3600,"renewal_time":1681,"rebinding_time":3031}}
"#;

const _: () = assert!(DHCP_LISTED == 64, "the manual says so");

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(Instance::filter(Dhcp::default()))
}

/// Writes records; its buffers are reused.
pub struct Dhcp {
    /// The record of the last message.
    pub row: RowWriter,
    word: RowWriter,
    address: RowWriter,
    list: Vec<u8>,
    text: Vec<u8>,
}

impl Filter for Dhcp {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.row.want(cx.wanted);
        let mut outlet = Outlet::new(cx);
        for (place, block) in batch.iter() {
            outlet.place = place;
            match Packet::new_checked(outlet.bytes(block)) {
                Ok(packet) => {
                    begin_row(&mut self.row, block.time, block.class, outlet.facts(block.class));
                    let left_out = self.put(&packet);
                    if left_out > 0 {
                        outlet.count("dhcp options not listed", left_out);
                    }
                    outlet.record(&self.row, block.time, block.class);
                }
                Err(_) => outlet.reject_block(),
            }
        }
        Ok(Status::Done)
    }
}

impl Default for Dhcp {
    fn default() -> Self {
        Self {
            row: RowWriter::new(&SCHEMA),
            word: RowWriter::new(&NAME),
            address: RowWriter::new(&ADDRESS),
            list: Vec::new(),
            text: Vec::new(),
        }
    }
}

impl Dhcp {
    /// Adds the fields of a message to the current row; returns how many options are not listed.
    pub fn put(&mut self, packet: &Packet<'_>) -> u64 {
        self.fields(packet);
        self.options(packet)
    }

    fn fields(&mut self, packet: &Packet<'_>) {
        let kind = match packet.operation() {
            dhcp::REQUEST => "request",
            dhcp::REPLY => "reply",
            _ => "<unknown>",
        };
        self.row.text("dhcp.type", kind);
        self.row.number("dhcp.id", packet.exchange().into());
        if let Some(address) = packet.hardware() {
            self.text.clear();
            append_with_colons(&mut self.text, &address);
            self.row.text("dhcp.client_mac", &self.text);
        }
        self.row.address("dhcp.assigned_ip", packet.given().into()).address("dhcp.client_ip", packet.client().into());
        if packet.operation() == dhcp::REPLY {
            self.row.address("dhcp.next_server_ip", packet.next_server().into());
            self.row.address("dhcp.relay_ip", packet.relay().into());
        }
    }

    /// Of repeated options the first counts.
    fn options(&mut self, packet: &Packet<'_>) -> u64 {
        for (field, code) in [
            ("dhcp.client_id", code::CLIENT),
            ("dhcp.hostname", code::HOST_NAME),
            ("dhcp.domain_name", code::DOMAIN_NAME),
            ("dhcp.vendor_class_identifier", code::VENDOR_CLASS),
        ] {
            let Some(bytes) = packet.option(code) else { continue };
            self.text.clear();
            match (code, bytes) {
                (code::CLIENT, [_kind, id @ ..]) => append_with_colons(&mut self.text, id),
                // Some clients end their texts with zeros.
                _ => {
                    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                    protocols::tls::append_name(&mut self.text, &bytes[..end]);
                }
            }
            self.row.text(field, &self.text);
        }
        for (field, code) in [("dhcp.requested_ip", code::REQUESTED_ADDRESS), ("dhcp.subnet_mask", code::SUBNET_MASK)] {
            if let Some(address) = packet.option(code).and_then(|bytes| bytes.first_chunk::<4>()) {
                self.row.address(field, IpAddr::from(*address));
            }
        }
        for (field, code) in [("dhcp.routers", code::ROUTERS), ("dhcp.dns_servers", code::NAME_SERVERS)] {
            let Some(bytes) = packet.option(code) else { continue };
            self.list.clear();
            for address in bytes.chunks_exact(4).take(DHCP_LISTED) {
                let address = Ipv4Addr::new(address[0], address[1], address[2], address[3]);
                self.address.begin();
                list_push(&mut self.list, self.address.address("", address.into()).row());
            }
            self.row.rows(field, &self.list);
        }
        for (field, code) in [
            ("dhcp.lease_time", code::LEASE_TIME),
            ("dhcp.renewal_time", code::RENEWAL_TIME),
            ("dhcp.rebinding_time", code::REBINDING_TIME),
        ] {
            if let Some(seconds) = packet.option(code).and_then(|bytes| bytes.first_chunk()) {
                self.row.number(field, u32::from_be_bytes(*seconds).into());
            }
        }
        if let Some([kind, ..]) = packet.option(code::MESSAGE_TYPE) {
            self.row.text("dhcp.dhcp_type", kind_name(*kind));
        }
        if let Some(codes) = packet.option(code::PARAMETERS) {
            self.list.clear();
            for name in codes.iter().take(DHCP_LISTED).filter_map(|code| parameter_name(*code)) {
                self.word.begin();
                list_push(&mut self.list, self.word.text("", name).row());
            }
            self.row.rows("dhcp.params", &self.list);
            return codes.len().saturating_sub(DHCP_LISTED) as u64;
        }
        0
    }
}

/// EVE's names of message types.
const fn kind_name(kind: u8) -> &'static str {
    match kind {
        dhcp::kind::DISCOVER => "discover",
        dhcp::kind::OFFER => "offer",
        dhcp::kind::REQUEST => "request",
        dhcp::kind::DECLINE => "decline",
        dhcp::kind::ACK => "ack",
        dhcp::kind::NAK => "nak",
        dhcp::kind::RELEASE => "release",
        8 => "inform",
        _ => "unknown",
    }
}

/// EVE's names of the options that clients ask for; EVE leaves out the others.
const fn parameter_name(number: u8) -> Option<&'static str> {
    Some(match number {
        code::SUBNET_MASK => "subnet_mask",
        code::ROUTERS => "router",
        code::NAME_SERVERS => "dns_server",
        code::DOMAIN_NAME => "domain",
        35 => "arp_timeout",
        42 => "ntp_server",
        66 => "tftp_server_name",
        150 => "tftp_server_ip",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::parts::handmade::{block, facts};
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use testkit::{Chain, Outcome};

    fn message(options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; Packet::FIXED_BYTES];
        bytes[..8].copy_from_slice(&[2, 1, 6, 0, 0, 0, 0, 9]);
        bytes[16..28].copy_from_slice(&[10, 0, 0, 9, 10, 0, 0, 2, 10, 0, 0, 3]);
        bytes[28..34].copy_from_slice(&[2, 0, 0, 0, 0, 5]);
        bytes[236..].copy_from_slice(&dhcp::COOKIE);
        bytes.extend_from_slice(options);
        bytes
    }

    fn run(bytes: &[u8]) -> Outcome {
        let pieces = vec![block(0, Flags::FIRST.with(Flags::LAST), bytes, 0)];
        let chain = Chain::pieces(Type::Message, None, pieces).streams(&[facts(67, 17, 0)]);
        chain.then(&KIND, &[]).then(&json::KIND, &[]).run()
    }

    #[test]
    fn messages() {
        let options = [
            &[53, 1, 5, 1, 4, 255, 255, 255, 0, 3, 8, 10, 0, 0, 1, 10, 0, 0, 2, 6, 4, 9, 9, 9, 9, 51, 4, 0, 0, 1, 0][..],
            &[12, 5, b'h', b'o', 7, b't', 0, 61, 3, 1, 0xab, 2, 55, 3, 1, 6, 200, 50, 4, 10, 0, 0, 7, 60, 1, b'v', 255],
        ];
        let outcome = run(&message(&options.concat()));
        let record = serde_json::from_str::<Value>(outcome.stdout.trim()).unwrap()["dhcp"].take();
        let expected = json!({
            "type": "reply", "id": 9, "client_mac": "02:00:00:00:00:05", "assigned_ip": "10.0.0.9", "client_ip": "0.0.0.0",
            "next_server_ip": "10.0.0.2", "relay_ip": "10.0.0.3", "client_id": "ab:02", "hostname": "ho\\007t",
            "vendor_class_identifier": "v", "requested_ip": "10.0.0.7", "params": ["subnet_mask", "dns_server"],
            "dhcp_type": "ack", "subnet_mask": "255.255.255.0", "routers": ["10.0.0.1", "10.0.0.2"],
            "dns_servers": ["9.9.9.9"], "lease_time": 256,
        });
        assert_eq!(record, expected);
    }

    #[test]
    fn requests_say_nothing_of_servers() {
        for (operation, kind, expected) in [(1, 9, ["request", "unknown"]), (3, 8, ["<unknown>", "inform"])] {
            let mut bytes = message(&[53, 1, kind]);
            bytes[0] = operation;
            let record = serde_json::from_str::<Value>(run(&bytes).stdout.trim()).unwrap()["dhcp"].take();
            assert_eq!([&record["type"], &record["dhcp_type"]], expected);
            assert_eq!((record.get("relay_ip"), record.get("next_server_ip")), (None, None));
        }
    }

    #[test]
    fn what_is_not_dhcp_is_rejected() {
        for bytes in [&b""[..], &[0; 300], &message(&[])[..239]] {
            assert_eq!(run(bytes).counters("dhcp").blocks_rejected, 1);
        }
        let many = message(&[&[55, 200][..], &[1; 200]].concat());
        assert_eq!(run(&many).counters("dhcp").events.get("dhcp options not listed"), 136);
    }

    proptest! {
        #[test]
        fn any_options(options in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(run(&message(&options)).stdout.lines().count(), 1);
        }
    }
}
