//! NTP messages as records: the client that asks for the time, and the server's distance from a clock.

use crate::parts::eve::{begin_row, eve_fields};
use crate::parts::numbers::{Meaning, Numbers};
use crate::parts::outlet::Outlet;
use filter::prelude::*;
use protocols::ntp::Packet;
use std::io::Write;
use std::net::Ipv4Addr;

static SCHEMA: Schema = Schema::new(
    "ntp",
    &eve_fields![
        Field::new("ntp.version", FieldType::Number),
        Field::new("ntp.mode", FieldType::Number),
        Field::new("ntp.stratum", FieldType::Number),
        Field::new("ntp.reference_id", FieldType::Number),
        Field::new("ntp.reference", FieldType::Text),
    ],
)
.summary(&["ntp.version", "ntp.mode", "ntp.stratum", "ntp.reference"]);

/// What `ntp` is.
pub static KIND: Kind = Kind::new("ntp", "reads NTP messages and gives a record of each", make)
    .help(
        "Reads what goes from or to UDP port 123, or others if `ports` says so, and gives a record of each message: \
         `ntp.version`, `ntp.mode` (3 is a client, 4 a server), `ntp.stratum`, and `ntp.reference_id`, the source of the \
         speaker's own time, as EVE's number; `ntp.reference` has it as letters of a clock, or as an address. Control messages are \
         passed over.",
    )
    .params(&[Param::new("ports", ParamType::Text, "a port, a range, or a list in quotes").default("123")])
    .takes(&[Type::Message])
    .rejects()
    .gives_records(&SCHEMA)
    .wants(&[(Type::Frame, "udp"), (Type::Packet, "udp")])
    .parses_payload()
    .examples(&[Example { request: "pcap ntp.pcap | ntp", output: ASK_AND_ANSWER }]);

const ASK_AND_ANSWER: &str = r#"{"timestamp":"2026-04-15T21:29:25.592867000Z","flow_id":7362197319147589,"event_type":"ntp","src_ip":"192.0.2.1","src_port":49152,"dest_ip":"192.0.2.123","dest_port":123,"proto":"UDP","ntp":{"version":4,"mode":3,"stratum":0,"reference_id":0}}
{"timestamp":"2026-04-15T21:29:25.593120000Z","flow_id":7362197319147589,"event_type":"ntp","src_ip":"192.0.2.123","src_port":123,"dest_ip":"192.0.2.1","dest_port":49152,"proto":"UDP","ntp":{"version":4,"mode":4,"stratum":2,"reference_id":1280262988,"reference":"76.79.67.76"}}
{"timestamp":"2026-04-15T21:29:25.593278000Z","flow_id":5250145186525460,"event_type":"ntp","src_ip":"192.0.2.2","src_port":49153,"dest_ip":"192.0.2.124","dest_port":123,"proto":"UDP","ntp":{"version":3,"mode":3,"stratum":0,"reference_id":0}}
{"timestamp":"2026-04-15T21:29:25.593432000Z","flow_id":5250145186525460,"event_type":"ntp","src_ip":"192.0.2.124","src_port":123,"dest_ip":"192.0.2.2","dest_port":49153,"proto":"UDP","ntp":{"version":3,"mode":4,"stratum":2,"reference_id":1280262988,"reference":"76.79.67.76"}}
"#;

const PORT: Meaning = Meaning { what: "a port", max: 65_535, names: &[] };

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let ports = Numbers::from_param(params, "ports", PORT)?;
    Ok(Instance::filter(Ntp { ports, row: RowWriter::new(&SCHEMA), text: Vec::new() }))
}

struct Ntp {
    ports: Option<Numbers>,
    row: RowWriter,
    text: Vec<u8>,
}

impl Filter for Ntp {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.row.want(cx.wanted);
        let mut outlet = Outlet::new(cx);
        for (place, block) in batch.iter() {
            outlet.place = place;
            let facts = outlet.facts(block.class);
            let wanted = |port: u16| self.ports.as_ref().is_none_or(|ports| ports.has(port.into()));
            let is_wanted = facts.is_some_and(|facts| wanted(facts.flow.source_port) || wanted(facts.flow.target_port));
            let Some(packet) = Packet::new_checked(outlet.bytes(block)).ok().filter(|_| is_wanted) else {
                outlet.reject_block();
                continue;
            };
            begin_row(&mut self.row, block.time, block.class, facts);
            self.row.number("ntp.version", packet.version().into()).number("ntp.mode", packet.mode().into());
            self.row.number("ntp.stratum", packet.stratum().into());
            self.row.number("ntp.reference_id", u32::from_be_bytes(packet.reference()).into());
            self.text.clear();
            match (packet.stratum(), packet.reference()) {
                // RFC 5905, 7.3: letters up to stratum 1, then an address of the source.
                (0 | 1, letters) => {
                    let end = letters.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                    protocols::tls::append_name(&mut self.text, &letters[..end]);
                }
                // Writing to a Vec cannot fail.
                (_, bytes) => write!(self.text, "{}", Ipv4Addr::from(bytes)).unwrap_or_default(),
            }
            if !self.text.is_empty() {
                self.row.text("ntp.reference", &self.text);
            }
            outlet.record(&self.row, block.time, block.class);
        }
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::parts::handmade::{block, facts};
    use packet::Flow;
    use serde_json::{Value, json};
    use testkit::Chain;

    fn check(message: &[u8], port: u16, expected: &[Value]) {
        let mut facts = facts(4000, 17, 0);
        facts.flow = Flow { target_port: port, ..facts.flow };
        let pieces = vec![block(1, Flags::FIRST.with(Flags::LAST), message, 0)];
        let chain = Chain::pieces(Type::Message, None, pieces).streams(&[facts]);
        let outcome = chain.then(&KIND, &[]).then(&json::KIND, &[]).run();
        let record = |line| serde_json::from_str::<Value>(line).unwrap()["ntp"].take();
        assert_eq!(outcome.stdout.lines().map(record).collect::<Vec<_>>(), expected);
        assert_eq!(outcome.counters("ntp").blocks_rejected, 1 - expected.len() as u64);
    }

    #[test]
    fn messages() {
        let message = |first: u8, stratum: u8, reference: &[u8; 4]| {
            let mut bytes = [0; 48];
            (bytes[0], bytes[1]) = (first, stratum);
            bytes[12..16].copy_from_slice(reference);
            bytes
        };
        let clock = json!({"version": 4, "mode": 4, "stratum": 1, "reference_id": 0x4750_5300, "reference": "GPS"});
        check(&message(0x24, 1, b"GPS\0"), 123, &[clock]);
        let address =
            json!({"version": 3, "mode": 4, "stratum": 2, "reference_id": 0xc000_0201_u32, "reference": "192.0.2.1"});
        check(&message(0x1c, 2, &[192, 0, 2, 1]), 123, &[address]);
        check(&message(0x23, 0, &[0; 4]), 123, &[json!({"version": 4, "mode": 3, "stratum": 0, "reference_id": 0})]);
        check(&message(0x23, 0, &[0; 4]), 124, &[]);
        check(&message(0x26, 0, &[0; 4]), 123, &[]);
        check(&[0x23; 20], 123, &[]);
    }
}
