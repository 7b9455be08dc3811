//! A file's name, and its index fields except those about its bytes. Names consist of fixed words, numbers, addresses and
//! ports. Text from a peer appears only in the index, escaped.

use crate::parts::json_text;
use crate::parts::kept::{Budget, Charge, append_text};
use base::limits::META_KEPT_BYTES;
use buffer::BlockTable;
use filter::Counters;
use filter::prelude::*;
use filter::record::{FieldValue, schema_id};
use packet::Flow;
use packet::encapsulation::Vlans;
use packet::tunnel::stack::Tunnels;
use std::fmt::Write;
use std::sync::Arc;

/// The facts of a file that are known before its bytes.
#[derive(Debug, Default)]
pub(super) struct Title {
    /// `stream`, `datagram`, `frame`, `http` ...
    kind: &'static str,
    /// Time of the file's first block.
    time: u64,
    /// From its sender to its receiver.
    flow: Option<Flow>,
    vlans: Vlans,
    tunnels: Option<Tunnels>,
    /// Earlier connections with the same addresses and ports.
    reuse: u32,
    /// `request` or `response`. Empty: neither.
    direction: &'static str,
    extension: &'static str,
    meta: Meta,
}

impl Title {
    /// The title of a stream or message that begins with this block.
    pub(super) fn of_stream(kind: &'static str, block: &Descriptor, facts: Option<&StreamFacts>) -> Title {
        Title {
            kind,
            time: block.time,
            flow: facts.map(|facts| facts.directed(block.class)),
            vlans: facts.map_or(Vlans::default(), |facts| facts.vlans),
            tunnels: facts.and_then(|facts| facts.tunnels.clone()),
            reuse: facts.map_or(0, |facts| facts.reuse),
            ..Title::default()
        }
    }

    /// The title of a file with only this block.
    pub(super) fn of_block(kind: &'static str, extension: &'static str, block: &Descriptor) -> Title {
        Title { kind, extension, time: block.time, ..Title::default() }
    }

    /// Time of the first block, s since 1970 UTC.
    pub(super) fn seconds(&self) -> u64 {
        self.time / 1_000_000_000
    }

    /// Whether the flow alone names the file.
    pub(super) fn is_named_by_flow(&self) -> bool {
        self.kind == "stream" && self.flow.is_some()
    }

    /// The file's name. `None`: the name has no number.
    pub(super) fn name(&self, number: Option<u64>) -> String {
        let mut name = String::with_capacity(96);
        // Writing to a String cannot fail.
        self.write_name(number, &mut name).unwrap_or_default();
        name
    }

    fn write_name(&self, number: Option<u64>, name: &mut String) -> std::fmt::Result {
        if let (true, Some(flow)) = (self.is_named_by_flow(), self.flow) {
            write!(name, "{}", flow.tcpflow_name())?;
            for vlan in self.vlans.ids() {
                write!(name, "--{vlan}")?;
            }
            if self.reuse > 0 {
                write!(name, "c{}", self.reuse)?;
            }
            return number.map_or(Ok(()), |number| write!(name, "-{number:08}"));
        }
        write!(name, "{}-{:08}", self.kind, number.unwrap_or(0))?;
        if !self.direction.is_empty() {
            write!(name, "-{}", self.direction)?;
        }
        if let Some(flow) = self.flow {
            write!(name, "-{}", flow.tcpflow_name())?;
        }
        if !self.extension.is_empty() {
            write!(name, ".{}", self.extension)?;
        }
        Ok(())
    }

    /// Appends the opening brace and the first fields of the file's index line. The name comes first: there a later run
    /// finds the files that it may remove.
    pub(super) fn append_head(&self, out: &mut Vec<u8>, file: &str) {
        out.push(b'{');
        json_text::key(out, "file");
        json_text::text(out, file.as_bytes());
        json_text::key(out, "kind");
        json_text::text(out, self.kind.as_bytes());
        json_text::key(out, "timestamp");
        packet::time::append_json(out, self.time);
        let Some(flow) = self.flow else { return };
        json_text::key(out, "src_ip");
        json_text::address(out, flow.source);
        json_text::key(out, "src_port");
        json_text::number(out, u64::from(flow.source_port));
        json_text::key(out, "dest_ip");
        json_text::address(out, flow.target);
        json_text::key(out, "dest_port");
        json_text::number(out, u64::from(flow.target_port));
        if self.vlans.count() > 0 {
            append_vlans(out, self.vlans);
        }
        if let Some(tunnels) = &self.tunnels {
            append_tunnels(out, tunnels);
        }
    }

    /// Appends the last fields of the index line and the closing brace.
    pub(super) fn append_tail(&self, out: &mut Vec<u8>) {
        if !self.direction.is_empty() {
            json_text::key(out, "direction");
            json_text::text(out, self.direction.as_bytes());
        }
        self.meta.append(out);
        out.push(b'}');
    }
}

fn append_vlans(out: &mut Vec<u8>, vlans: Vlans) {
    json_text::key(out, "vlan");
    out.push(b'[');
    for id in vlans.ids() {
        json_text::comma(out);
        json_text::number(out, u64::from(*id));
    }
    out.push(b']');
}

/// Appends tunnels in the form that records have.
fn append_tunnels(out: &mut Vec<u8>, tunnels: &Tunnels) {
    json_text::key(out, "tunnel");
    out.push(b'[');
    for layer in tunnels.layers() {
        json_text::comma(out);
        out.push(b'{');
        json_text::key(out, "type");
        json_text::text(out, layer.kind.name().as_bytes());
        if layer.vlans.count() > 0 {
            append_vlans(out, layer.vlans);
        }
        if let Some((source, target)) = layer.addresses {
            json_text::key(out, "src_ip");
            json_text::address(out, source);
            json_text::key(out, "dest_ip");
            json_text::address(out, target);
        }
        if let Some(id) = layer.id {
            json_text::key(out, "id");
            json_text::number(out, u64::from(id));
        }
        out.push(b'}');
    }
    out.push(b']');
}

/// Index fields from metadata, not escaped yet: escapes can make them six times as long. Each field: its place in
/// [`META_FIELDS`], whether it is a number, its length (u32), its bytes.
#[derive(Debug, Default)]
struct Meta {
    fields: Box<[u8]>,
    /// The share of the budget for all titles.
    _charge: Option<Charge>,
}

impl Meta {
    fn append(&self, out: &mut Vec<u8>) {
        let mut rest = &self.fields[..];
        while let Some((&[place, is_number, a, b, c, d], behind)) = rest.split_first_chunk() {
            let Some((value, behind)) = behind.split_at_checked(u32::from_le_bytes([a, b, c, d]) as usize) else {
                return;
            };
            rest = behind;
            json_text::key(out, META_FIELDS[usize::from(place)]);
            if is_number == 1 { out.extend_from_slice(value) } else { json_text::text(out, value) }
        }
    }
}

/// Fields of a message's metadata that the index has, by the same names.
const META_FIELDS: [&str; 8] =
    ["http_method", "hostname", "url", "status", "http_content_type", "content_encoding", "filename", "content_type"];

/// Places of the direction and of [`META_FIELDS`] in a schema.
type Places = (Option<usize>, [Option<usize>; META_FIELDS.len()]);

/// Reads metadata rows into titles.
#[derive(Debug)]
pub(super) struct MetaFields {
    schemas: Arc<[&'static Schema]>,
    /// The schema met last, with its places.
    last: Option<(&'static Schema, Places)>,
    /// Bounds the fields of all titles.
    budget: Budget,
    /// The fields of the current title.
    fields: Vec<u8>,
}

impl MetaFields {
    pub(super) fn new(env: &Env) -> MetaFields {
        MetaFields {
            schemas: Arc::clone(&env.schemas),
            last: None,
            budget: Budget::new(META_KEPT_BYTES),
            fields: Vec::new(),
        }
    }

    /// Reads a META block into the title of its message. Ignores any other block.
    pub(super) fn read_into(
        &mut self,
        title: &mut Title,
        block: &Descriptor,
        rings: &BlockTable,
        counters: &mut Counters,
    ) {
        if !block.has(Flags::META) {
            return;
        }
        let bytes = rings.bytes(block);
        let Some((schema, (direction, places))) = schema_id(bytes).and_then(|id| self.places(id)) else { return };
        let Some(row) = Row::new(schema, bytes) else { return };
        title.kind = schema.name;
        title.extension = if schema.name == "smtp" { "eml" } else { "body" };
        title.direction = match direction.and_then(|place| row.get(place)) {
            Some(FieldValue::Text(b"request")) => "request",
            Some(FieldValue::Text(b"response")) => "response",
            _ => "",
        };
        self.fields.clear();
        for (number, (field, place)) in META_FIELDS.iter().zip(places).enumerate() {
            let value = place.and_then(|place| row.get(place));
            let is_number = matches!(value, Some(FieldValue::Number(_)));
            let begin = self.fields.len();
            self.fields.extend_from_slice(&[number as u8, u8::from(is_number), 0, 0, 0, 0]);
            let value_begin = self.fields.len();
            match value {
                Some(FieldValue::Text(text)) => {
                    if matches!(*field, "http_content_type" | "content_type") {
                        title.extension = extension(text);
                    }
                    append_text(&mut self.fields, text, counters);
                }
                Some(FieldValue::Number(number)) => json_text::number(&mut self.fields, number),
                _ => {
                    self.fields.truncate(begin);
                    continue;
                }
            }
            let len = (self.fields.len() - value_begin) as u32;
            self.fields[value_begin - 4..value_begin].copy_from_slice(&len.to_le_bytes());
        }
        // Free the share of an earlier META block first.
        title.meta = Meta::default();
        if let Some(charge) = self.budget.take(self.fields.len(), counters) {
            title.meta = Meta { fields: self.fields.as_slice().into(), _charge: Some(charge) };
        }
    }

    fn places(&mut self, id: u32) -> Option<(&'static Schema, Places)> {
        if self.last.is_none_or(|(schema, _)| schema.id() != id) {
            let schema = *self.schemas.iter().find(|schema| schema.id() == id)?;
            let place = |field: &str| schema.field(&format!("{}.{field}", schema.name));
            self.last = Some((schema, (place("direction"), META_FIELDS.map(place))));
        }
        self.last
    }
}

/// The file name's ending for a content type. Empty: the type is unknown.
fn extension(content_type: &[u8]) -> &'static str {
    const KNOWN: [(&str, &str); 39] = [
        ("text/html", "html"),
        ("text/plain", "txt"),
        ("text/css", "css"),
        ("text/csv", "csv"),
        ("text/xml", "xml"),
        ("text/javascript", "js"),
        ("application/javascript", "js"),
        ("application/x-javascript", "js"),
        ("application/json", "json"),
        ("application/xml", "xml"),
        ("application/xhtml+xml", "html"),
        ("application/rss+xml", "xml"),
        ("application/soap+xml", "xml"),
        ("application/pdf", "pdf"),
        ("application/zip", "zip"),
        ("application/gzip", "gz"),
        ("application/x-gzip", "gz"),
        ("application/x-tar", "tar"),
        ("application/octet-stream", "bin"),
        ("application/x-msdownload", "bin"),
        ("application/x-shockwave-flash", "swf"),
        ("application/vnd.ms-cab-compressed", "cab"),
        ("application/wasm", "wasm"),
        ("application/ocsp-request", "ocsp"),
        ("application/ocsp-response", "ocsp"),
        ("application/x-www-form-urlencoded", "form"),
        ("image/jpeg", "jpg"),
        ("image/png", "png"),
        ("image/gif", "gif"),
        ("image/webp", "webp"),
        ("image/svg+xml", "svg"),
        ("image/x-icon", "ico"),
        ("image/vnd.microsoft.icon", "ico"),
        ("font/woff", "woff"),
        ("font/woff2", "woff2"),
        ("audio/mpeg", "mp3"),
        ("message/rfc822", "eml"),
        ("video/mp4", "mp4"),
        ("video/webm", "webm"),
    ];
    let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
    let essence = content_type[..end].trim_ascii();
    let known = KNOWN.iter().find(|(name, _)| essence.eq_ignore_ascii_case(name.as_bytes()));
    known.map_or("body", |(_, extension)| extension)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn flow() -> Flow {
        let [source, target]: [IpAddr; 2] = ["10.0.0.1", "2001:db8::7"].map(|text| text.parse().unwrap());
        Flow { source, target, source_port: 80, target_port: 40_000, protocol: 6 }
    }

    #[test]
    fn names() {
        let check = |title: Title, number: Option<u64>, expected: &str| assert_eq!(title.name(number), expected);
        let named = "010.000.000.001.00080-2001.0db8.0000.0000.0000.0000.0000.0007.40000";
        let stream = || Title { kind: "stream", flow: Some(flow()), ..Title::default() };
        check(stream(), None, named);
        check(Title { reuse: 2, ..stream() }, None, &format!("{named}c2"));
        check(Title { vlans: Vlans::new(1, [6, 0]), reuse: 1, ..stream() }, None, &format!("{named}--6c1"));
        check(stream(), Some(12), &format!("{named}-00000012"));
        check(Title { flow: None, ..stream() }, Some(12), "stream-00000012");
        let body = Title { kind: "http", direction: "response", extension: "html", ..stream() };
        check(body, Some(3), &format!("http-00000003-response-{named}.html"));
        check(Title { kind: "frame", ..Title::default() }, Some(1), "frame-00000001");
    }

    #[test]
    fn extensions_come_from_a_list() {
        for (content_type, expected) in [
            ("text/html; charset=utf-8", "html"),
            (" Image/PNG ", "png"),
            ("", "body"),
            ("../../etc/passwd", "body"),
            ("text/html/../x", "body"),
            (";text/html", "body"),
        ] {
            assert_eq!(extension(content_type.as_bytes()), expected);
        }
    }
}
