//! Messages and streams made by hand, for the tests of several sinks.

use crate::parts::eve::eve_fields;
use filter::prelude::*;
use packet::Flow;
use std::net::{IpAddr, Ipv4Addr};

/// A block for a chain's source, with its bytes.
pub(crate) type Piece = (Descriptor, Vec<u8>);

static HTTP: Schema = Schema::new(
    "http",
    &eve_fields![
        Field::new("http.direction", FieldType::Text),
        Field::new("http.url", FieldType::Text),
        Field::new("http.status", FieldType::Number),
        Field::new("http.http_content_type", FieldType::Text),
    ],
);

/// Passes messages whose metadata has the schema above.
pub(crate) static MESSAGES: Kind =
    Kind::new("messages", "hands messages on", |_, _| Ok(Instance::filter(Pass))).gives_messages(&HTTP);

struct Pass;

impl Filter for Pass {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        batch.iter().for_each(|(_, block)| cx.out.push(*block));
        Ok(Status::Done)
    }
}

/// The metadata of a response.
pub(crate) fn meta(url: &str, content_type: &str) -> Vec<u8> {
    let mut row = RowWriter::new(&HTTP);
    row.time("timestamp", 0).text("http.direction", "response").text("http.url", url).number("http.status", 200);
    row.text("http.http_content_type", content_type);
    row.row().to_vec()
}

/// A block with `gap` bytes missing before it.
pub(crate) fn block(class: u32, flags: Flags, bytes: &[u8], gap: u32) -> Piece {
    let mut block = Descriptor { class: Class(class), ..Descriptor::default() };
    block.set_wire(bytes.len() as u32 + gap);
    block.set_flags(flags);
    (block, bytes.to_vec())
}

/// A connection or flow from 10.0.0.1, port `source_port`, to 10.0.0.2, port 80.
pub(crate) fn facts(source_port: u16, protocol: u8, reuse: u32) -> StreamFacts {
    let [source, target] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
    let flow = Flow { source, target, source_port, target_port: 80, protocol };
    StreamFacts { reuse, ..StreamFacts::new(flow, 0, StreamState::Established) }
}
