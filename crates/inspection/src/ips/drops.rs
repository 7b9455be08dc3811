//! The record of a dropped frame, with the field names of Suricata's EVE. Later frames of a stopped flow have no
//! record, because a sender that goes on would fill the log.

use crate::rules::inspector::Inspector;
use filter::prelude::*;
use filters::parts::eve::{eve_fields, flow_number, set_protocol, set_vlans};
use packet::frame;
use packet::link::LinkType;
use packet::{Flow, flow};

pub(super) static SCHEMA: Schema = Schema::new(
    "drop",
    &eve_fields![EveTime; Field::new("drop.len", FieldType::Number), Field::new("drop.reason", FieldType::Text)],
)
.summary(&["proto", "drop.len", "drop.reason"]);

/// Gives the record of a frame. `inspector` knows its flow if it inspected the frame.
#[cold]
pub(super) fn tell(
    row: &mut RowWriter,
    block: &Descriptor,
    link: LinkType,
    why: &'static str,
    inspector: &Inspector,
    cx: &mut Context<'_>,
) {
    let bytes = cx.rings.bytes(block);
    row.begin();
    row.time("timestamp", block.time);
    if let Ok(read) = frame::parse(link, bytes, block.wire()) {
        let flow = Flow::of(&read, bytes);
        let known = inspector.last_flow().filter(|(known, _)| *known == flow || *known == flow.reversed());
        if let Some((known, start)) = known {
            row.number("flow_id", flow_number(&known, start, read.vlans(), None));
        }
        if read.vlan_count > 0 {
            set_vlans(row, read.vlans());
        }
        let ports = flow::has_ports(flow.protocol) && !read.is_later_fragment();
        row.address("src_ip", flow.source);
        if ports {
            row.number("src_port", flow.source_port.into());
        }
        row.address("dest_ip", flow.target);
        if ports {
            row.number("dest_port", flow.target_port.into());
        }
        set_protocol(row, flow.protocol);
    }
    row.number("drop.len", block.wire().into()).text("drop.reason", why);
    if let Some(mut record) = cx.rings.append_copy(cx.own, &[row.row()]) {
        record.time = block.time;
        record.set_flags(Flags::FIRST.with(Flags::LAST));
        cx.emit(record);
    }
}
