//! The common first fields of records, with EVE's names: time, flow, source and destination.

use filter::prelude::*;
use filter::record::list_push;
use packet::encapsulation::Vlans;
use packet::flow::{Flow, FlowHasher};
use packet::frame::protocol;
use packet::tunnel::stack::Tunnels;

/// The fields of a schema behind the common ones: `&eve_fields![Field::new("dns.id", FieldType::Number)]`. `EveTime;`
/// before them: the time is written as EVE has it.
#[macro_export]
macro_rules! eve_fields {
    ($time:ident; $($field:expr),* $(,)?) => {
        [
            filter::Field::new("timestamp", filter::FieldType::$time),
            filter::Field::new("flow_id", filter::FieldType::Number),
            filter::Field::new("vlan", filter::FieldType::Rows(&$crate::parts::eve::VLAN)),
            filter::Field::new("src_ip", filter::FieldType::Address),
            filter::Field::new("src_port", filter::FieldType::Number),
            filter::Field::new("dest_ip", filter::FieldType::Address),
            filter::Field::new("dest_port", filter::FieldType::Number),
            filter::Field::new("proto", filter::FieldType::Text),
            filter::Field::new("tunnel", filter::FieldType::Rows(&$crate::parts::eve::TUNNEL)),
            $($field),*
        ]
    };
    ($($field:expr),* $(,)?) => { $crate::parts::eve::eve_fields![Time; $($field),*] };
}
pub use crate::eve_fields;

/// Identifiers of VLANs, outermost first.
pub static VLAN: Schema = Schema::new("vlan", &[Field::new("", FieldType::Number)]);

/// The item of a list of texts.
pub static NAME: Schema = Schema::new("name", &[Field::new("", FieldType::Text)]);

/// The tunnels of a flow's first packet, outermost first.
pub static TUNNEL: Schema = Schema::new(
    "tunnel",
    &[
        Field::new("type", FieldType::Text),
        Field::new("vlan", FieldType::Rows(&VLAN)),
        Field::new("src_ip", FieldType::Address),
        Field::new("dest_ip", FieldType::Address),
        Field::new("id", FieldType::Number),
    ],
);

/// Begins a row and sets its common fields; `src_*` is the sender of this class.
pub(crate) fn begin_row(row: &mut RowWriter, time: u64, class: Class, facts: Option<&StreamFacts>) {
    row.begin();
    row.time("timestamp", time);
    let Some(facts) = facts else { return };
    let flow = facts.directed(class);
    row.number("flow_id", flow_id(facts));
    if facts.vlans.count() > 0 {
        set_vlans(row, facts.vlans);
    }
    row.address("src_ip", flow.source).number("src_port", u64::from(flow.source_port));
    row.address("dest_ip", flow.target).number("dest_port", u64::from(flow.target_port));
    set_protocol(row, flow.protocol);
    if let Some(tunnels) = &facts.tunnels {
        set_tunnels(row, tunnels);
    }
}

/// Writes the IP protocol `number` by its name.
pub fn set_protocol(row: &mut RowWriter, number: u8) {
    match protocol_name(number) {
        Some(name) => row.text("proto", name),
        None => row.text("proto", itoa::Buffer::new().format(number)),
    };
}

/// Writes the identifiers of VLANs, outermost first.
#[cold]
pub fn set_vlans(row: &mut RowWriter, vlans: Vlans) {
    let (mut list, mut id) = (Vec::new(), RowWriter::new(&VLAN));
    for number in vlans.ids() {
        id.begin();
        list_push(&mut list, id.number("", u64::from(*number)).row());
    }
    row.rows("vlan", &list);
}

#[cold]
pub(crate) fn set_tunnels(row: &mut RowWriter, tunnels: &Tunnels) {
    let (mut list, mut one) = (Vec::new(), RowWriter::new(&TUNNEL));
    for layer in tunnels.layers() {
        one.begin();
        one.text("type", layer.kind.name());
        if layer.vlans.count() > 0 {
            set_vlans(&mut one, layer.vlans);
        }
        if let Some((source, target)) = layer.addresses {
            one.address("src_ip", source).address("dest_ip", target);
        }
        if let Some(id) = layer.id {
            one.number("id", u64::from(id));
        }
        list_push(&mut list, one.row());
    }
    row.rows("tunnel", &list);
}

/// A number for a connection: the same in every record of every run over the same packets. It has 53 bits, which JSON
/// readers with floating point keep exactly.
pub(crate) fn flow_id(facts: &StreamFacts) -> u64 {
    flow_number(&facts.flow, facts.start, facts.vlans, facts.tunnels.as_ref())
}

/// The same for a flow that began at `start` and is not a stream.
pub fn flow_number(flow: &Flow, start: u64, vlans: Vlans, tunnels: Option<&Tunnels>) -> u64 {
    // The start tells successive connections with the same addresses and ports apart; VLANs and tunnels tell
    // simultaneous ones apart.
    let vlans = vlans.named();
    let vlans = vlans.ids().iter().map(|id| 1 + u64::from(*id));
    let tunnels = tunnels.map_or(0, |tunnels| {
        let bytes = tunnels.bytes().iter();
        bytes.fold(0u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
    });
    let place = vlans.fold(tunnels, |hash, id| hash.rotate_left(13) ^ id << 32);
    FlowHasher::new(start ^ place).hash(flow) >> 11
}

/// The protocol's name in EVE; `None` if EVE writes the number.
pub(crate) const fn protocol_name(number: u8) -> Option<&'static str> {
    match number {
        protocol::TCP => Some("TCP"),
        protocol::UDP => Some("UDP"),
        protocol::ICMP => Some("ICMP"),
        protocol::ICMPV6 => Some("IPv6-ICMP"),
        protocol::SCTP => Some("SCTP"),
        protocol::IGMP => Some("IGMP"),
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
        StreamFacts::new(flow, start, StreamState::Opening)
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
        assert_ne!(one, flow_id(&StreamFacts { vlans: Vlans::new(1, [1, 0]), ..facts(6, 5) }));
        assert_eq!(one, flow_id(&StreamFacts { vlans: Vlans::new(1, [0, 0]), ..facts(6, 5) }));
        assert!(one < 1 << 53);
    }
}
