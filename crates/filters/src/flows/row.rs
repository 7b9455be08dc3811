//! The record of a flow. Fields have the names of Suricata's EVE, where EVE has them.

use super::analysed::Wants;
use super::state::{Sent, State};
use super::{Reason, community};
use crate::parts::eve::{TUNNEL, VLAN, flow_number, set_protocol, set_tunnels, set_vlans};
use crate::parts::frame_line::flag_names;
use filter::prelude::*;
use packet::Flow;
use packet::frame::protocol;
use packet::tcp;

pub(super) static SCHEMA: Schema = Schema::new(
    "flow",
    &[
        Field::new("timestamp", FieldType::Time),
        Field::new("flow_id", FieldType::Number),
        Field::new("vlan", FieldType::Rows(&VLAN)),
        Field::new("src_ip", FieldType::Address),
        Field::new("src_port", FieldType::Number),
        Field::new("dest_ip", FieldType::Address),
        Field::new("dest_port", FieldType::Number),
        Field::new("proto", FieldType::Text),
        Field::new("icmp_type", FieldType::Number),
        Field::new("icmp_code", FieldType::Number),
        Field::new("community_id", FieldType::Text),
        Field::new("tunnel", FieldType::Rows(&TUNNEL)),
        Field::new("flow.pkts_toserver", FieldType::Number),
        Field::new("flow.pkts_toclient", FieldType::Number),
        Field::new("flow.bytes_toserver", FieldType::Number),
        Field::new("flow.bytes_toclient", FieldType::Number),
        Field::new("flow.ip_bytes_toserver", FieldType::Number),
        Field::new("flow.ip_bytes_toclient", FieldType::Number),
        Field::new("flow.payload_toserver", FieldType::Number),
        Field::new("flow.payload_toclient", FieldType::Number),
        Field::new("flow.repeated_toserver", FieldType::Number),
        Field::new("flow.repeated_toclient", FieldType::Number),
        Field::new("flow.missed_toserver", FieldType::Number),
        Field::new("flow.missed_toclient", FieldType::Number),
        Field::new("flow.start", FieldType::Time),
        Field::new("flow.end", FieldType::Time),
        Field::new("flow.age", FieldType::Duration(Unit::Seconds)),
        Field::new("flow.age_us", FieldType::Duration(Unit::Microseconds)),
        Field::new("flow.rtt_us", FieldType::Duration(Unit::Microseconds)),
        Field::new("flow.retransmissions_toserver", FieldType::Number),
        Field::new("flow.retransmissions_toclient", FieldType::Number),
        Field::new("flow.out_of_order_toserver", FieldType::Number),
        Field::new("flow.out_of_order_toclient", FieldType::Number),
        Field::new("flow.zero_windows_toserver", FieldType::Number),
        Field::new("flow.zero_windows_toclient", FieldType::Number),
        Field::new("flow.app_proto", FieldType::Text),
        Field::new("flow.state", FieldType::Text),
        Field::new("flow.reason", FieldType::Text),
        Field::new("flow.history", FieldType::Text),
        Field::new("tcp.flags_toserver", FieldType::Text),
        Field::new("tcp.flags_toclient", FieldType::Text),
    ],
)
.summary(&["proto", "flow.bytes_toserver", "flow.bytes_toclient", "flow.age", "flow.state"]);

const SECOND: u64 = 1_000_000_000;
const US: u64 = 1_000;

pub(super) struct FlowRow {
    row: RowWriter,
    text: Vec<u8>,
    pub wants: Wants,
}

impl FlowRow {
    pub fn new() -> FlowRow {
        let row = RowWriter::new(&SCHEMA);
        FlowRow { wants: Wants::of(&row), row, text: Vec::new() }
    }

    /// Leaves out fields that no filter behind this one reads.
    pub fn want(&mut self, wanted: &filter::Wanted) {
        if self.row.want(wanted) {
            self.wants = Wants::of(&self.row);
        }
    }

    /// The row of a flow that ended.
    pub fn make(&mut self, flow: &Flow, state: &State, reason: Reason) -> &[u8] {
        let FlowRow { row, text, .. } = self;
        let State { client, server, .. } = state;
        row.begin();
        row.time("timestamp", state.last);
        row.number("flow_id", flow_number(flow, state.begun(), state.vlans, state.tunnels.as_deref()));
        if state.vlans.count() > 0 {
            set_vlans(row, state.vlans);
        }
        if let Some(tunnels) = &state.tunnels {
            set_tunnels(row, tunnels);
        }
        row.address("src_ip", flow.source).address("dest_ip", flow.target);
        match state.icmp {
            Some(icmp) => {
                row.number("icmp_type", icmp.kind.into()).number("icmp_code", icmp.code.into());
            }
            None if (flow.source_port, flow.target_port) == (0, 0) => {}
            None => {
                row.number("src_port", flow.source_port.into()).number("dest_port", flow.target_port.into());
            }
        }
        set_protocol(row, flow.protocol);
        if row.wants("community_id") {
            text.clear();
            community::append(text, flow, state.icmp);
            row.text("community_id", &*text);
        }
        row.number("flow.pkts_toserver", client.packets).number("flow.pkts_toclient", server.packets);
        row.number("flow.bytes_toserver", client.bytes).number("flow.bytes_toclient", server.bytes);
        row.number("flow.ip_bytes_toserver", client.ip_bytes).number("flow.ip_bytes_toclient", server.ip_bytes);
        row.number("flow.payload_toserver", client.payload).number("flow.payload_toclient", server.payload);
        row.time("flow.start", state.start).time("flow.end", state.last);
        let age = state.last.saturating_sub(state.start);
        row.number("flow.age", age / SECOND).number("flow.age_us", age / US);
        if let Some(analysed) = &state.analysed {
            analysed.set(row);
        }
        if let Some(name) = state.inside.name() {
            row.text("flow.app_proto", name);
        }
        let is_tcp = flow.protocol == protocol::TCP;
        let name = match () {
            () if is_tcp && state.is_closed() => "closed",
            () if is_tcp && state.is_established() || !is_tcp && server.packets > 0 => "established",
            () => "new",
        };
        row.text("flow.state", name);
        let why = match reason {
            Reason::Closed => "closed",
            Reason::Timeout => "timeout",
            Reason::Reuse => "reuse",
            Reason::Evicted => "evicted",
            Reason::End => "end",
        };
        row.text("flow.reason", why);
        row.text("flow.history", state.history());
        if is_tcp {
            row.number("flow.repeated_toserver", client.repeated).number("flow.repeated_toclient", server.repeated);
            row.number("flow.missed_toserver", client.missed()).number("flow.missed_toclient", server.missed());
            flags(row, text, "tcp.flags_toserver", client);
            flags(row, text, "tcp.flags_toclient", server);
        }
        row.row()
    }
}

/// Sets a field to all flags that a side sent.
fn flags(row: &mut RowWriter, text: &mut Vec<u8>, name: &'static str, sent: &Sent) {
    if sent.packets > 0 {
        text.clear();
        flag_names(text, tcp::Flags(sent.flags));
        row.text(name, &*text);
    }
}
