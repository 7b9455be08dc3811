//! The record of an alert, under the names that Suricata's EVE has.

use super::connection::Connection;
use super::frame::Parsed;
use crate::parts::eve::{eve_fields, flow_number, set_protocol, set_tunnels, set_vlans};
use filter::prelude::*;
use filter::record::list_push;
use packet::Flow;
use packet::encapsulation::Vlans;
use packet::tunnel::Kind;
use packet::tunnel::stack::Tunnels;
use rules::engine::{Found, Verdict};
use rules::names::{App, Buffer, Number, WEBSOCKET_OPCODES};
use rules::{Action, Rule, Transaction};

pub(crate) static SCHEMA: Schema = Schema::new(
    "alert",
    &eve_fields![
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
        Field::new("tx_id", FieldType::Number),
        Field::new("app_proto", FieldType::Text),
        Field::new("direction", FieldType::Text),
        Field::new("pkt_src", FieldType::Text),
        Field::new("packet_info.linktype_name", FieldType::Text),
        Field::new("http.hostname", FieldType::Text),
        Field::new("http.url", FieldType::Text),
        Field::new("http.http_method", FieldType::Text),
        Field::new("http.http_user_agent", FieldType::Text),
        Field::new("http.status", FieldType::Number),
        Field::new("http.http2.request.error_code", FieldType::Text),
        Field::new("http.http2.request.priority", FieldType::Number),
        Field::new("websocket.opcode", FieldType::Text),
        Field::new("tls.sni", FieldType::Text),
        Field::new("tls.ja3.hash", FieldType::Text),
        Field::new("tls.ja4", FieldType::Text),
        Field::new("quic.sni", FieldType::Text),
        Field::new("quic.ja4", FieldType::Text),
        Field::new("ssh.client.proto_version", FieldType::Text),
        Field::new("ssh.client.software_version", FieldType::Text),
        Field::new("ssh.server.proto_version", FieldType::Text),
        Field::new("ssh.server.software_version", FieldType::Text),
        Field::new("smtp.helo", FieldType::Text),
        Field::new("smtp.mail_from", FieldType::Text),
        Field::new("ftp_data.command", FieldType::Text),
        Field::new("ftp_data.filename", FieldType::Text),
        Field::new("igmp.version", FieldType::Number),
        Field::new("igmp.type", FieldType::Number),
        Field::new("ftp.command", FieldType::Text),
        Field::new("ftp.dynamic_port", FieldType::Number),
        Field::new("ftp.reply_received", FieldType::Text),
        Field::new("email.from", FieldType::Text),
        Field::new("email.subject", FieldType::Text),
        Field::new("flow.pkts_toserver", FieldType::Number),
        Field::new("flow.pkts_toclient", FieldType::Number),
        Field::new("flow.bytes_toserver", FieldType::Number),
        Field::new("flow.bytes_toclient", FieldType::Number),
        Field::new("flow.start", FieldType::Time),
        Field::new("flow.src_ip", FieldType::Address),
        Field::new("flow.src_port", FieldType::Number),
        Field::new("flow.dest_ip", FieldType::Address),
        Field::new("flow.dest_port", FieldType::Number),
        Field::new("verdict.action", FieldType::Text),
        Field::new("verdict.reject-target", FieldType::Text),
        Field::new("verdict.reject", FieldType::Rows(&REJECT)),
    ],
);

/// How the ends of a rejected packet are told.
static REJECT: Schema = Schema::new("reject", &[Field::new("", FieldType::Text)]);

/// What the record of an alert is made of.
pub(super) struct Alert<'a> {
    pub rule: &'a Rule,
    pub found: &'a Found,
    pub time: u64,
    /// In the direction of the packet.
    pub flow: Option<Flow>,
    pub vlans: Vlans,
    pub tunnels: Option<&'a Tunnels>,
    pub parsed: Option<&'a Parsed>,
    pub connection: Option<&'a Connection>,
    pub transaction: Option<&'a Transaction>,
    /// What a rule drops does not pass.
    pub is_inline: bool,
}

/// Writes the record.
pub(super) fn write(row: &mut RowWriter, alert: &Alert<'_>) {
    let Alert { rule, found, .. } = alert;
    row.begin();
    row.time("timestamp", alert.time);
    if let Some(connection) = alert.connection {
        let number = flow_number(&connection.flow, connection.state.start, alert.vlans, alert.tunnels);
        row.number("flow_id", number);
    }
    if alert.vlans.count() > 0 {
        set_vlans(row, alert.vlans);
    }
    if let Some(flow) = alert.flow {
        let ports = packet::flow::has_ports(flow.protocol);
        row.address("src_ip", flow.source);
        if ports {
            row.number("src_port", u64::from(flow.source_port));
        }
        row.address("dest_ip", flow.target);
        if ports {
            row.number("dest_port", u64::from(flow.target_port));
        }
        set_protocol(row, flow.protocol);
        row.number("ip_v", if flow.source.is_ipv4() { 4 } else { 6 });
    }
    if let Some(tunnels) = alert.tunnels {
        set_tunnels(row, tunnels);
    }
    if let Some(icmp) = alert.parsed.and_then(Parsed::icmp) {
        row.number("icmp_type", icmp.kind.into()).number("icmp_code", icmp.code.into());
    }
    let action = if rule.action.blocks() && alert.is_inline { "blocked" } else { "allowed" };
    row.text("alert.action", action);
    row.number("alert.gid", rule.gid.into()).number("alert.signature_id", rule.sid.into());
    row.number("alert.rev", rule.rev.into());
    row.text("alert.signature", &rule.message).text("alert.category", rule.category);
    row.number("alert.severity", rule.priority.into());
    if let Some(id) = found.transaction {
        row.number("tx_id", id);
    }
    if let Some(connection) = alert.connection {
        let state = &connection.state;
        if state.app != App::Unknown {
            row.text("app_proto", state.app.name());
        }
        row.text("direction", if found.to_server { "to_server" } else { "to_client" });
        row.number("flow.pkts_toserver", state.packets[0]).number("flow.pkts_toclient", state.packets[1]);
        row.number("flow.bytes_toserver", state.bytes[0]).number("flow.bytes_toclient", state.bytes[1]);
        row.time("flow.start", state.start);
        let flow = &connection.flow;
        row.address("flow.src_ip", flow.source).address("flow.dest_ip", flow.target);
        if packet::flow::has_ports(flow.protocol) {
            row.number("flow.src_port", flow.source_port.into()).number("flow.dest_port", flow.target_port.into());
        }
    }
    let source = match (alert.parsed, alert.tunnels) {
        (None, _) => "stream (flow timeout)",
        (Some(_), None) => "wire/pcap",
        (Some(_), Some(tunnels)) => match tunnels.layers().last().map(|layer| (layer.kind, layer.addresses)) {
            Some((Kind::Vxlan, _)) => "vxlan encapsulation",
            Some((Kind::Geneve, _)) => "geneve encapsulation",
            Some((Kind::Gre | Kind::Pptp | Kind::Erspan, _)) => "gre tunnel",
            Some((Kind::Teredo, _)) => "teredo tunnel",
            Some((Kind::Mpls | Kind::Pppoe, None)) => "wire/pcap",
            Some((_, Some((address, _)))) if address.is_ipv6() => "ipv6 tunnel",
            _ => "ipv4 tunnel",
        },
    };
    row.text("pkt_src", source);
    if let Some(name) = alert.parsed.and_then(Parsed::link_name) {
        row.text("packet_info.linktype_name", name);
    }
    if let Some((version, kind)) = alert.parsed.and_then(|parsed| parsed.igmp) {
        row.number("igmp.version", version.into()).number("igmp.type", kind.into());
    }
    write_verdict(row, alert);
    if let Some(one) = alert.transaction {
        write_transaction(row, one);
    }
}

/// What becomes of the packet, all its rules together.
fn write_verdict(row: &mut RowWriter, alert: &Alert<'_>) {
    let action = match alert.found.verdict {
        Verdict::Pass if alert.rule.action == Action::Pass => "pass",
        Verdict::Pass => "alert",
        Verdict::Drop | Verdict::Reject { .. } => "drop",
    };
    row.text("verdict.action", action);
    if let Verdict::Reject { source, target } = alert.found.verdict {
        row.text(
            "verdict.reject-target",
            match (source == alert.found.to_server, source && target) {
                (_, true) => "both",
                (true, _) => "to_client",
                (false, _) => "to_server",
            },
        );
        let is_tcp = alert.flow.is_some_and(|flow| flow.protocol == packet::frame::protocol::TCP);
        let (mut list, mut one) = (Vec::new(), RowWriter::new(&REJECT));
        one.begin();
        list_push(&mut list, one.text("", if is_tcp { "tcp-reset" } else { "icmp-prohib" }).row());
        row.rows("verdict.reject", &list);
    }
}

fn write_transaction(row: &mut RowWriter, one: &Transaction) {
    const TEXTS: &[(&str, Buffer, bool)] = &[
        ("http.hostname", Buffer::HTTP_HOST, true),
        ("http.url", Buffer::HTTP_URI_RAW, true),
        ("http.http_method", Buffer::HTTP_METHOD, true),
        ("http.http_user_agent", Buffer::HTTP_USER_AGENT, true),
        ("http.http2.request.error_code", Buffer::HTTP2_ERROR_NAME, true),
        ("tls.sni", Buffer::TLS_SNI, true),
        ("quic.sni", Buffer::QUIC_SNI, true),
        ("ssh.client.proto_version", Buffer::SSH_PROTO, true),
        ("ssh.client.software_version", Buffer::SSH_SOFTWARE, true),
        ("ssh.server.proto_version", Buffer::SSH_PROTO, false),
        ("ssh.server.software_version", Buffer::SSH_SOFTWARE, false),
        ("smtp.helo", Buffer::SMTP_HELO, true),
        ("smtp.mail_from", Buffer::SMTP_MAIL_FROM, true),
        ("ftp.command", Buffer::FTP_COMMAND, true),
        ("email.from", Buffer::EMAIL_FROM, true),
        ("email.subject", Buffer::EMAIL_SUBJECT, true),
    ];
    for (name, buffer, to_server) in TEXTS {
        if let Some(text) = one.first(*buffer, *to_server) {
            row.text(name, text);
        }
    }
    let (ja3, ja4) = (one.first(Buffer::JA3_HASH, true), one.first(Buffer::JA4_HASH, true));
    let names = if one.app == App::Quic { (None, "quic.ja4") } else { (Some("tls.ja3.hash"), "tls.ja4") };
    if let Some((name, text)) = names.0.zip(ja3) {
        row.text(name, text);
    }
    if let Some(text) = ja4 {
        row.text(names.1, text);
    }
    if let Some(command) = one.numbers(Number::FTPDATA_COMMAND, true).next() {
        row.text("ftp_data.command", if command == 1 { "RETR" } else { "STOR" });
        if let Some(file) = one.first(Buffer::FILE_NAME, true) {
            row.text("ftp_data.filename", file);
        }
    }
    if one.numbers(Number::FTP_REPLY_RECEIVED, false).next().is_some() {
        row.text("ftp.reply_received", "yes");
    }
    if let Some(priority) = one.numbers(Number::HTTP2_PRIORITY, true).next() {
        row.number("http.http2.request.priority", priority);
    }
    let mut opcodes = [true, false].into_iter().flat_map(|side| one.numbers(Number::WEBSOCKET_OPCODE, side));
    if let Some(opcode) = opcodes.next() {
        let known = WEBSOCKET_OPCODES.iter().find(|known| known.1 == opcode);
        row.text("websocket.opcode", known.map_or("unknown", |known| known.0));
    }
    if let Some(port) = one.numbers(Number::FTP_DYNAMIC_PORT, true).next() {
        row.number("ftp.dynamic_port", port);
    }
    let status = one.first(Buffer::HTTP_STAT_CODE, false);
    if let Some(status) = status.and_then(|text| std::str::from_utf8(text).ok()).and_then(|text| text.parse().ok()) {
        row.number("http.status", status);
    }
}
