//! What every record of a stream begins with, under the names Suricata's EVE has for it: when, which flow, who to whom.

use filter::prelude::*;
use packet::flow::FlowHasher;
use packet::frame::protocol;

/// The fields of a schema, with the common ones in front: `&eve_fields![Field::new("dns.id", FieldType::Number)]`.
macro_rules! eve_fields {
    ($($field:expr),* $(,)?) => {
        [
            filter::Field::new("timestamp", filter::FieldType::Time),
            filter::Field::new("flow_id", filter::FieldType::Number),
            filter::Field::new("src_ip", filter::FieldType::Address),
            filter::Field::new("src_port", filter::FieldType::Number),
            filter::Field::new("dest_ip", filter::FieldType::Address),
            filter::Field::new("dest_port", filter::FieldType::Number),
            filter::Field::new("proto", filter::FieldType::Text),
            $($field),*
        ]
    };
}
pub(crate) use eve_fields;

/// Begins a row whose schema has the common fields, and sets them: `src_*` is who sent the block of this class.
pub(crate) fn begin_row(row: &mut RowWriter, time: u64, class: Class, facts: Option<&StreamFacts>) {
    row.begin();
    row.time("timestamp", time);
    let Some(facts) = facts else { return };
    let flow = facts.directed(class);
    row.number("flow_id", flow_id(facts));
    row.address("src_ip", flow.source).number("src_port", u64::from(flow.source_port));
    row.address("dest_ip", flow.target).number("dest_port", u64::from(flow.target_port));
    match protocol_name(flow.protocol) {
        Some(name) => row.text("proto", name),
        None => row.text("proto", itoa::Buffer::new().format(flow.protocol)),
    };
}

/// A number for a connection that is the same in every record of every run over the same packets. 53 bits, as
/// readers of JSON that know only floating point keep those exactly.
pub(crate) fn flow_id(facts: &StreamFacts) -> u64 {
    // The start keeps connections apart that use the same addresses and ports one after the other.
    FlowHasher::new(facts.start).hash(&facts.flow) >> 11
}

/// The protocol's name in EVE; `None` where the number says it.
pub(crate) const fn protocol_name(number: u8) -> Option<&'static str> {
    match number {
        protocol::TCP => Some("TCP"),
        protocol::UDP => Some("UDP"),
        protocol::ICMP => Some("ICMP"),
        protocol::ICMPV6 => Some("IPv6-ICMP"),
        protocol::SCTP => Some("SCTP"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::Flow;
    use std::net::{IpAddr, Ipv4Addr};

    static SCHEMA: Schema = Schema::new("sample", &eve_fields![Field::new("sample.id", FieldType::Number)]);

    fn facts(protocol: u8, start: u64) -> StreamFacts {
        let [source, target] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        let flow = Flow { source, target, source_port: 4000, target_port: 53, protocol };
        StreamFacts { flow, start, reuse: 0, vlan: None, state: StreamState::Opening }
    }

    #[test]
    fn the_sender_of_the_class_is_the_source() {
        let check = |class: u32, protocol: u8, src_port: u64, proto: &[u8]| {
            let mut writer = RowWriter::new(&SCHEMA);
            begin_row(&mut writer, 7, Class(class), Some(&facts(protocol, 5)));
            let row = Row::new(&SCHEMA, writer.row()).unwrap();
            assert_eq!((row.number("timestamp"), row.number("src_port")), (Some(7), Some(src_port)));
            assert_eq!(row.text("proto"), Some(proto));
        };
        check(8, 17, 4000, b"UDP");
        check(9, 6, 53, b"TCP");
        check(9, 99, 53, b"99");
    }

    #[test]
    fn flow_ids() {
        let one = flow_id(&facts(6, 5));
        let turned = StreamFacts { flow: facts(6, 5).flow.reversed(), ..facts(6, 5) };
        assert_eq!(one, flow_id(&turned));
        assert_ne!(one, flow_id(&facts(6, 6)));
        assert!(one < 1 << 53);
    }
}
