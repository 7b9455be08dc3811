//! The alert record, with the field names of Suricata's EVE.

mod objects;
#[cfg(test)]
mod tests;

use super::connection::Connection;
use super::frame::Parsed;
use base64::Engine as _;
use filter::prelude::*;
use filter::record::list_push;
use filters::conversations::OBJECTS;
use filters::eve::schema::{DNS_OBJECT, EVENT, FTP_OBJECT, SMB_OBJECT, SMTP_OBJECT, TLS_OBJECT};
use filters::parts::eve::{NAME, flow_number, set_protocol, set_vlans};
use filters::parts::fact_fields::FactFields;
use packet::Flow;
use packet::encapsulation::Vlans;
use packet::tunnel::Kind as Tunnel;
use packet::tunnel::stack::{Layer, Tunnels};
use rules::engine::{Found, Verdict};
use rules::names::App;
use rules::{Packet, Rule, Transaction};

pub(crate) static SCHEMA: Schema = const { &all_fields() }.schema("alert").summary(&[
    "proto",
    "alert.action",
    "alert.severity",
    "alert.signature_id",
    "alert.signature",
]);

/// The fields of every event, `FIELDS`, and the objects of conversations that are not among them.
const fn all_fields() -> FactFields {
    let (mut fields, mut at) = (EVENT.and(FIELDS), 0);
    while at < OBJECTS.len() {
        let (app, schema) = OBJECTS[at];
        if !matches!(app, App::Ftp) {
            fields = fields.and(&[Field::new(schema.name, FieldType::Rows(schema))]);
        }
        at += 1;
    }
    fields
}

/// The fields that events lack.
const FIELDS: &[Field] = &[
    Field::new("tunnel.pkt_src", FieldType::Text),
    Field::new("icmp_type", FieldType::Number),
    Field::new("icmp_code", FieldType::Number),
    Field::new("ip_v", FieldType::Number),
    Field::new("alert.action", FieldType::Text),
    Field::new("alert.gid", FieldType::Number),
    Field::new("alert.signature_id", FieldType::Number),
    Field::new("alert.rev", FieldType::Number),
    Field::new("alert.signature", FieldType::Text),
    Field::new("alert.category", FieldType::Text),
    Field::new("alert.severity", FieldType::Number),
    Field::new("alert.metadata", FieldType::Rows(&METADATA)),
    Field::new("traffic.id", FieldType::Rows(&NAME)),
    Field::new("traffic.label", FieldType::Rows(&NAME)),
    Field::new("tx_id", FieldType::Number),
    Field::new("app_proto", FieldType::Text),
    Field::new("direction", FieldType::Text),
    Field::new("pkt_src", FieldType::Text),
    Field::new("packet_info.linktype", FieldType::Number),
    Field::new("packet_info.linktype_name", FieldType::Text),
    Field::new("verdict", FieldType::Rows(&objects::VERDICT)),
    Field::new("igmp", FieldType::Rows(&objects::IGMP)),
    Field::new("rgmp", FieldType::Rows(&objects::RGMP)),
    Field::new("sctp", FieldType::Rows(&objects::SCTP)),
    Field::new("http", FieldType::Rows(&objects::HTTP)),
    Field::new("websocket", FieldType::Rows(&objects::WEBSOCKET)),
    #[cfg(feature = "quic")]
    Field::new("quic", FieldType::Rows(&objects::QUIC)),
    Field::new("dns", FieldType::Rows(&DNS_OBJECT)),
    Field::new("llmnr", FieldType::Rows(&objects::LLMNR)),
    Field::new("tls", FieldType::Rows(&TLS_OBJECT)),
    Field::new("smb", FieldType::Rows(&SMB_OBJECT)),
    Field::new("smtp", FieldType::Rows(&SMTP_OBJECT)),
    Field::new("email", FieldType::Rows(&objects::EMAIL)),
    Field::new("ftp", FieldType::Rows(&FTP_OBJECT)),
    Field::new("ftp_data", FieldType::Rows(&objects::FTP_DATA)),
    Field::new("dhcp", FieldType::Rows(&objects::DHCP)),
    Field::new("files", FieldType::Rows(&objects::FILE)),
    Field::new("flow.pkts_toserver", FieldType::Number),
    Field::new("flow.pkts_toclient", FieldType::Number),
    Field::new("flow.bytes_toserver", FieldType::Number),
    Field::new("flow.bytes_toclient", FieldType::Number),
    Field::new("flow.start", FieldType::EveTime),
    Field::new("flow.src_ip", FieldType::Address),
    Field::new("flow.dest_ip", FieldType::Address),
    Field::new("flow.src_port", FieldType::Number),
    Field::new("flow.dest_port", FieldType::Number),
    Field::new("payload", FieldType::Text),
    Field::new("payload_printable", FieldType::Text),
    Field::new("stream", FieldType::Number),
    Field::new("packet", FieldType::Text),
];

/// The `metadata` of a rule.
static METADATA: Schema =
    Schema::map("metadata", &[Field::new("key", FieldType::Text), Field::new("values", FieldType::Rows(&NAME))]);

/// The bytes that an alert shows to people.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    /// The frame; empty: none.
    pub frame: &'a [u8],
    pub payload: &'a [u8],
}

/// The data for an alert record.
pub(super) struct Alert<'a> {
    pub rule: &'a Rule,
    pub found: &'a Found,
    pub time: u64,
    /// In the direction of the packet.
    pub flow: Option<Flow>,
    pub vlans: Vlans,
    pub tunnels: Option<&'a Tunnels>,
    pub parsed: Option<&'a Parsed>,
    /// The packet itself.
    pub packet: Option<&'a Packet<'a>>,
    pub connection: Option<&'a Connection>,
    pub transaction: Option<&'a Transaction>,
    /// Dropped packets are really blocked.
    pub is_inline: bool,
    /// Traffic types that rules assigned to the flow: `id/NAME`, `label/NAME`.
    pub traffic: &'a [String],
    /// `None`: the request did not ask for it.
    pub seen: Option<Seen<'a>>,
}

pub(super) fn write(row: &mut RowWriter, alert: &Alert<'_>) {
    row.begin();
    row.time("timestamp", alert.time);
    set_flow(row, alert);
    if let Some(tunnels) = alert.tunnels {
        set_tunnel(row, tunnels, alert.flow);
    }
    if let Some(icmp) = alert.parsed.and_then(Parsed::icmp) {
        row.number("icmp_type", icmp.kind.into()).number("icmp_code", icmp.code.into());
    }
    set_rule(row, alert);
    if let Some(connection) = alert.connection {
        set_connection(row, connection, alert.found.to_server);
    }
    set_packet(row, alert);
    objects::object(row, "verdict", &objects::VERDICT, |it| set_verdict(it, alert));
    if let Some(one) = alert.transaction {
        objects::put(row, one, alert.connection.is_some_and(|connection| connection.has_gaps));
    }
    if let Some(seen) = alert.seen {
        set_bytes(row, seen, alert.found.stream);
    }
}

/// The flow, its tags and its addresses.
fn set_flow(row: &mut RowWriter, alert: &Alert<'_>) {
    if let Some(connection) = alert.connection {
        let number = flow_number(&connection.flow, connection.state.start, alert.vlans, alert.tunnels);
        row.number("flow_id", number);
    }
    // A tunnelled packet has the VLAN tags of its own frame, or else of an outer one.
    let outer = alert.tunnels.into_iter().flat_map(Tunnels::layers).map(|layer| layer.vlans);
    if let Some(vlans) = [alert.vlans].into_iter().chain(outer).find(|vlans| vlans.count() > 0) {
        set_vlans(row, vlans);
    }
    let Some(flow) = alert.flow else { return };
    let ports = packet::flow::has_ports(flow.protocol);
    row.address("src_ip", flow.source);
    if ports {
        row.number("src_port", u64::from(flow.source_port));
    }
    row.address("dest_ip", flow.target);
    if ports {
        row.number("dest_port", u64::from(flow.target_port));
    }
    match carried_name(flow.protocol) {
        Some(name) => _ = row.text("proto", name),
        None => set_protocol(row, flow.protocol),
    }
    row.number("ip_v", if flow.source.is_ipv4() { 4 } else { 6 });
}

/// The rule, and what it says of the flow.
fn set_rule(row: &mut RowWriter, alert: &Alert<'_>) {
    let Alert { rule, found, .. } = alert;
    let action = if found.action.blocks() && alert.is_inline { "blocked" } else { "allowed" };
    row.text("alert.action", action);
    row.number("alert.gid", rule.gid.into()).number("alert.signature_id", rule.sid.into());
    row.number("alert.rev", rule.rev.into());
    row.text("alert.signature", &rule.message).text("alert.category", rule.category);
    row.number("alert.severity", rule.priority.into());
    if !rule.metadata.is_empty() {
        set_metadata(row, rule);
    }
    for (field, start) in [("traffic.id", "id/"), ("traffic.label", "label/")] {
        let names = alert.traffic.iter().filter_map(|name| name.strip_prefix(start));
        objects::list(row, field, names.map(str::as_bytes));
    }
    if let Some(id) = found.transaction {
        row.number("tx_id", id);
    }
}

fn set_connection(row: &mut RowWriter, connection: &Connection, to_server: bool) {
    let state = &connection.state;
    if state.app != App::Unknown {
        row.text("app_proto", state.app.name());
    }
    row.text("direction", if to_server { "to_server" } else { "to_client" });
    row.number("flow.pkts_toserver", state.packets[0]).number("flow.pkts_toclient", state.packets[1]);
    row.number("flow.bytes_toserver", state.bytes[0]).number("flow.bytes_toclient", state.bytes[1]);
    row.time("flow.start", state.start);
    let flow = &connection.flow;
    row.address("flow.src_ip", flow.source).address("flow.dest_ip", flow.target);
    if packet::flow::has_ports(flow.protocol) {
        row.number("flow.src_port", flow.source_port.into()).number("flow.dest_port", flow.target_port.into());
    }
}

/// Where the packet comes from, and what its headers say.
fn set_packet(row: &mut RowWriter, alert: &Alert<'_>) {
    let layer = alert.tunnels.and_then(|tunnels| tunnels.layers().filter(|layer| layer.addresses.is_some()).last());
    let source = match (alert.parsed, layer) {
        (None, _) => "stream (flow timeout)",
        (Some(_), None) => "wire/pcap",
        (Some(_), Some(layer)) => out_of(&layer),
    };
    row.text("pkt_src", source);
    if let Some((number, name)) = alert.parsed.and_then(Parsed::link) {
        row.number("packet_info.linktype", number).text("packet_info.linktype_name", name);
    }
    if let Some((version, kind)) = alert.parsed.and_then(|parsed| parsed.igmp) {
        // RGMP has no version.
        match version {
            0 => objects::object(row, "rgmp", &objects::RGMP, |it| _ = it.number("type", kind.into())),
            _ => objects::object(row, "igmp", &objects::IGMP, |it| {
                it.number("version", version.into()).number("type", kind.into());
            }),
        }
    }
    if let Some(packet) = alert.packet {
        objects::sctp(row, packet);
    }
}

/// The bytes, for people. `is_stream`: the rule matched a stream.
fn set_bytes(row: &mut RowWriter, Seen { frame, payload }: Seen<'_>, is_stream: bool) {
    let base64 = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let printable = |byte: &u8| if matches!(byte, b' '..=b'~' | b'\r' | b'\n' | b'\t') { *byte } else { b'.' };
    row.text("payload", base64(payload));
    row.text("payload_printable", payload.iter().map(printable).collect::<Vec<u8>>());
    row.number("stream", u64::from(is_stream || frame.is_empty()));
    if !frame.is_empty() {
        row.text("packet", base64(frame));
    }
}

/// The name that Suricata writes for a protocol without ports.
fn carried_name(number: u8) -> Option<&'static str> {
    use packet::frame::protocol;
    Some(match number {
        protocol::IPV4 => "IP-in-IP",
        protocol::IPV6 => "IPv6",
        protocol::GRE => "GRE",
        50 => "ESP",
        51 => "AH",
        97 => "ETHERIP",
        103 => "PIM",
        112 => "VRRP",
        115 => "L2TP",
        137 => "MPLS-in-IP",
        _ => return None,
    })
}

fn set_verdict(verdict: &mut RowWriter, alert: &Alert<'_>) {
    let action = match alert.found.verdict {
        Verdict::Pass if alert.found.passes => "pass",
        Verdict::Pass => "alert",
        Verdict::Drop | Verdict::Reject { .. } => "drop",
    };
    verdict.text("action", action);
    if let Verdict::Reject { source, target } = alert.found.verdict {
        let told = match (source == alert.found.to_server, source && target) {
            (_, true) => "both",
            (true, _) => "to_client",
            (false, _) => "to_server",
        };
        verdict.text("reject-target", told);
        let is_tcp = alert.flow.is_some_and(|flow| flow.protocol == packet::frame::protocol::TCP);
        let how: &[u8] = if is_tcp { b"tcp-reset" } else { b"icmp-prohib" };
        objects::list(verdict, "reject", std::iter::once(how));
    }
}

/// Sets `tunnel` to the outermost packet.
fn set_tunnel(row: &mut RowWriter, tunnels: &Tunnels, inner: Option<Flow>) {
    let mut layers = tunnels.layers().filter(|layer| layer.addresses.is_some());
    let Some(outer) = layers.next() else { return };
    let next = layers.next();
    let Some((source, target)) = outer.addresses else { return };
    row.address("tunnel.src_ip", source).address("tunnel.dest_ip", target);
    // The next layer is the payload of the outermost packet.
    let inside = next.and_then(|layer| layer.addresses).map(|(source, _)| source).or(inner.map(|flow| flow.source));
    let name = match outer.kind {
        Tunnel::Ip if inside.is_some_and(|address| address.is_ipv6()) => "IPv6",
        Tunnel::Ip => "IP-in-IP",
        Tunnel::Gre | Tunnel::Erspan | Tunnel::Pptp => "GRE",
        Tunnel::EtherIp => "ETHERIP",
        Tunnel::Mpls => "MPLS-in-IP",
        Tunnel::L2tp | Tunnel::Vxlan | Tunnel::Geneve | Tunnel::Gtp | Tunnel::Teredo | Tunnel::Pppoe => "UDP",
    };
    row.text("tunnel.proto", name);
    row.number("tunnel.depth", 1 + u64::from(next.is_some()) + layers.count() as u64);
    row.text("tunnel.pkt_src", "wire/pcap");
}

/// The `pkt_src` value of a packet from this tunnel.
fn out_of(layer: &Layer) -> &'static str {
    match layer.kind {
        Tunnel::Gre | Tunnel::Erspan | Tunnel::Pptp => "gre tunnel",
        Tunnel::Teredo => "teredo tunnel",
        Tunnel::Vxlan => "vxlan encapsulation",
        Tunnel::Geneve => "geneve encapsulation",
        _ if layer.addresses.is_some_and(|(source, _)| source.is_ipv6()) => "ipv6 tunnel",
        _ => "ipv4 tunnel",
    }
}

fn set_metadata(row: &mut RowWriter, rule: &Rule) {
    let (mut one, mut list) = (RowWriter::new(&METADATA), Vec::new());
    for (key, values) in &rule.metadata {
        one.begin();
        one.text("key", key);
        objects::list(&mut one, "values", values.iter().map(String::as_bytes));
        list_push(&mut list, one.row());
    }
    row.rows("alert.metadata", &list);
}
