//! Turns records into EVE events: which event, and which fields of the record.

use super::schema::{ANSWER, DNS, FILEINFO, FLOW, FTP, HTTP, SIP, SMB, SMTP, SSH, TLS};
use crate::dns::row::QUERY;
use crate::parts::fields::Names;
use crate::parts::services::Services;
use crate::parts::services::late::{LateFlow, LateFlows};
use filter::prelude::*;
use filter::record::{FieldValue, list_push};

/// Makes events; its buffers are reused.
pub(super) struct Events {
    rows: Names,
    kinds: [Event; 9],
    file: RowWriter,
    item: RowWriter,
    answer: RowWriter,
    list: Vec<u8>,
    services: Services,
    late: LateFlows,
}

/// An event with the name of the records that become it.
struct Event {
    schema: &'static Schema,
    writer: RowWriter,
}

impl Event {
    fn new(schema: &'static Schema) -> Event {
        Event { schema, writer: RowWriter::new(schema) }
    }
}

impl Events {
    pub(super) fn new(params: &Params, env: &Env) -> Events {
        Events {
            rows: Names::new(Vec::new(), env),
            kinds: [&FLOW, &HTTP, &DNS, &TLS, &SSH, &SMB, &SMTP, &FTP, &SIP].map(Event::new),
            file: RowWriter::new(&FILEINFO),
            item: RowWriter::new(&QUERY),
            answer: RowWriter::new(&ANSWER),
            list: Vec::new(),
            services: Services::default(),
            late: LateFlows::of(params, &env.schemas),
        }
    }

    /// Calls `see` with each event of a record, as a row: none for a flow that waits for its protocol. `false`: EVE has no event
    /// for such records.
    pub(super) fn make(&mut self, block: &Descriptor, cx: &mut Context<'_>, mut see: impl FnMut(&[u8])) -> bool {
        let bytes = cx.rings.bytes(block);
        let Some((row, _)) = self.rows.row(bytes) else { return false };
        let name = row.schema().name;
        let Some(at) = self.kinds.iter().position(|event| event.schema.name == name) else { return false };
        // Measurements and unrelated records of the same name have no time.
        let Some(FieldValue::Time(_)) = row.named("timestamp") else { return false };
        let Event { schema, writer } = &mut self.kinds[at];
        common(writer, schema, &row);
        let flow_id = row.number("flow_id").unwrap_or(0);
        match name {
            "flow" => {
                let services = self.services.take(flow_id);
                if services.is_empty() {
                    let late = self.late.keep(&row, bytes, block.time, cx.now, cx.counters);
                    late.into_iter().for_each(|late| self.late_flow(&late, &mut see));
                    return true;
                }
                flow(writer, &row, services.first());
            }
            "dns" => {
                self.services.note(flow_id, "dns", cx.counters);
                dns(writer, &row, &mut self.item, &mut self.answer, &mut self.list);
            }
            _ => drop(self.services.note(flow_id, schema.name, cx.counters)),
        }
        // Files of SMB have records of their own.
        if name != SMB.name || row.text("smb.command").is_some() {
            see(writer.row());
        }
        // A mail is not a file, but its attachments may be.
        let files = row.named("files").filter(|_| name != SMTP.name);
        if let Some(FieldValue::Rows(files)) = files {
            for file in files {
                common(&mut self.file, &FILEINFO, &row);
                fileinfo(&mut self.file, &row, &file);
                see(self.file.row());
            }
        }
        true
    }

    /// Calls `see` with the events of flows that waited long enough.
    pub(super) fn late_flows(&mut self, now: u64, mut see: impl FnMut(&[u8])) {
        while let Some(late) = self.late.due(now) {
            self.late_flow(&late, &mut see);
        }
    }

    fn late_flow(&mut self, late: &LateFlow, see: &mut impl FnMut(&[u8])) {
        let services = late.services(&mut self.services);
        let Some((row, _)) = self.rows.row(&late.row) else { return };
        let Some(Event { schema, writer }) = self.kinds.iter_mut().find(|event| event.schema.name == FLOW.name) else {
            return;
        };
        common(writer, schema, &row);
        flow(writer, &row, services.first());
        see(writer.row());
    }

    /// When the next flow will have waited long enough.
    pub(super) fn next_due(&self) -> u64 {
        self.late.next_due()
    }
}

/// Begins an event and copies the fields of the same name and type.
pub fn common(writer: &mut RowWriter, event: &'static Schema, row: &Row<'_>) {
    writer.begin();
    for field in event.fields {
        let Some(place) = row.schema().field(field.name) else { continue };
        let is_same = row.schema().fields[place].kind.is(&field.kind);
        // Lists of plain values are alike, whatever schema they have.
        match row.get(place) {
            Some(FieldValue::Time(ns)) if matches!(field.kind, FieldType::EveTime) => {
                writer.time(field.name, ns);
            }
            Some(value) if is_same || matches!(value, FieldValue::Rows(_)) && is_bare(field.kind) => {
                writer.copy(field.name, &value);
            }
            _ => {}
        }
    }
    if let Some(FieldValue::Rows(layers)) = row.named("tunnel") {
        let depth = layers.clone().count() as u64;
        if let Some(inner) = layers.last() {
            for (from, to) in [("src_ip", "tunnel.src_ip"), ("dest_ip", "tunnel.dest_ip"), ("type", "tunnel.proto")] {
                if let Some(value) = inner.named(from) {
                    writer.copy(to, &value);
                }
            }
            writer.number("tunnel.depth", depth);
        }
    }
}

/// Whether it is a list of plain values.
fn is_bare(kind: FieldType) -> bool {
    matches!(kind, FieldType::Rows(schema) if matches!(schema.fields, [field] if field.name.is_empty()))
}

/// Reasons for a flow's end, and EVE's words for them.
const REASONS: [(&[u8], &str); 5] = [
    (b"closed", "timeout"),
    (b"timeout", "timeout"),
    (b"reuse", "tcp_reuse"),
    (b"evicted", "forced"),
    (b"end", "shutdown"),
];

/// Fills the event of a flow. `service`: the first protocol that was read in it.
fn flow(writer: &mut RowWriter, row: &Row<'_>, service: Option<&&str>) {
    if let Some(service) = service {
        writer.text("app_proto", service);
    }
    let reason = row.text("flow.reason").unwrap_or_default();
    if let Some((_, word)) = REASONS.iter().find(|(ours, _)| *ours == reason) {
        writer.text("flow.reason", word);
    }
    let mut all = 0;
    for (from, to) in [("tcp.flags_toserver", "tcp.tcp_flags_ts"), ("tcp.flags_toclient", "tcp.tcp_flags_tc")] {
        if let Some(names) = row.text(from) {
            let flags = flags(names);
            all |= flags;
            writer.text(to, hex(flags));
        }
    }
    if all > 0 {
        writer.text("tcp.tcp_flags", hex(all));
    }
    for (from, to) in [("flow.missed_toserver", "tcp.ts_gap"), ("flow.missed_toclient", "tcp.tc_gap")] {
        if row.number(from).is_some_and(|missed| missed > 0) {
            writer.flag(to, true);
        }
    }
}

fn hex(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 0xf].map(|digit| b"0123456789abcdef"[usize::from(digit)])
}

/// TCP flags from their names.
fn flags(names: &[u8]) -> u8 {
    const NAMES: [&[u8]; 8] = [b"FIN", b"SYN", b"RST", b"PSH", b"ACK", b"URG", b"ECE", b"CWR"];
    let bit = |name: &[u8]| NAMES.iter().position(|known| *known == name).map_or(0, |place| 1 << place);
    names.split(|byte| *byte == b',').fold(0, |flags, name| flags | bit(name))
}

/// Fills the event of a `dns` record.
pub fn dns(writer: &mut RowWriter, row: &Row<'_>, query: &mut RowWriter, answer: &mut RowWriter, list: &mut Vec<u8>) {
    writer.number("dns.version", 3);
    if row.text("dns.type") == Some(b"response") {
        writer.flag("dns.qr", true);
    }
    // A record with one question has no list of questions.
    list.clear();
    match row.named("dns.queries") {
        Some(FieldValue::Rows(queries)) => queries.for_each(|item| add(list, query, &item, &[])),
        _ => {
            query.begin();
            for (from, to) in [("dns.rrname", "rrname"), ("dns.rrtype", "rrtype")] {
                if let Some(value) = row.named(from) {
                    query.copy(to, &value);
                }
            }
            if row.text("dns.rrname").is_some() {
                list_push(list, query.row());
            }
        }
    }
    if !list.is_empty() {
        writer.rows("dns.queries", list);
    }
    for name in ["dns.answers", "dns.authorities"] {
        let Some(FieldValue::Rows(records)) = row.named(name) else { continue };
        list.clear();
        records.for_each(|item| add(list, answer, &item, &[("name", "rrname")]));
        writer.rows(name, list);
    }
}

/// Adds an item to a list: fields of the same name, and fields in `renamed` under another name.
fn add(list: &mut Vec<u8>, writer: &mut RowWriter, item: &Row<'_>, renamed: &[(&str, &str)]) {
    writer.begin();
    for name in ["rrname", "rrtype", "ttl", "rdata"] {
        let from = renamed.iter().find(|(_, to)| *to == name).map_or(name, |(from, _)| *from);
        if let Some(value) = item.named(from) {
            writer.copy(name, &value);
        }
    }
    list_push(list, writer.row());
}

/// The source of a file event is the side that sent the file.
fn fileinfo(writer: &mut RowWriter, row: &Row<'_>, file: &Row<'_>) {
    if file.text("direction") == Some(b"to_client") {
        for (from, to) in
            [("src_ip", "dest_ip"), ("dest_ip", "src_ip"), ("src_port", "dest_port"), ("dest_port", "src_port")]
        {
            if let Some(value) = row.named(from) {
                writer.copy(to, &value);
            }
        }
    }
    writer.text("app_proto", row.schema().name);
    // The name that the message gives its body, else the path that was asked for.
    let path = || row.text("http.url")?.split(|byte| matches!(byte, b'?' | b'#')).next();
    if let Some(name) =
        file.text("filename").or_else(|| row.text("smb.filename")).or_else(path).filter(|name| !name.is_empty())
    {
        writer.text("fileinfo.filename", name);
    }
    writer.flag("fileinfo.gaps", file.number("missing").is_some_and(|missing| missing > 0));
    let is_truncated = file.text("state") == Some(b"truncated");
    writer.text("fileinfo.state", if is_truncated { "TRUNCATED" } else { "CLOSED" });
    if let Some(hash) = file.text("sha256") {
        writer.text("fileinfo.sha256", hash);
    }
    writer.flag("fileinfo.stored", false).number("fileinfo.size", file.number("size").unwrap_or(0));
    if let Some(FieldValue::Time(end)) = file.named("end") {
        writer.time("timestamp", end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::handmade::{block, facts};
    use testkit::Chain;

    /// The name of a response's file, for a request of this path and a field of the response's head.
    fn name_of(path: &str, field: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = format!("HTTP/1.1 200 OK\r\n{field}Content-Length: 2\r\n\r\nok");
        let pieces = [(0, request), (1, response)].map(|(class, bytes)| block(class, Flags::NONE, bytes.as_bytes(), 0));
        let chain = Chain::pieces(Type::Bytes, None, pieces.into()).streams(&[facts(4000, 6, 0)]);
        let chain = chain.then(&crate::http::KIND, &[]).then(&crate::transactions::KIND, &[]);
        let stdout = chain.then(&crate::eve::KIND, &[]).run().stdout;
        let mut events = stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let file = events.rfind(|event| event["event_type"] == "fileinfo").unwrap();
        file["fileinfo"]["filename"].to_string()
    }

    #[test]
    fn a_file_had_the_path_for_a_name_though_its_message_gave_one() {
        for (path, field, expected) in [
            ("/get?id=1", "", r#""/get""#),
            ("/get?id=1", "Content-Disposition: attachment; filename=\"invoice.exe\"\r\n", r#""invoice.exe""#),
            ("/get", "content-disposition: attachment; filename*=UTF-8''c%20d.exe\r\n", r#""c d.exe""#),
            ("/get", "Content-Disposition: inline\r\n", r#""/get""#),
            ("/get", "Content-Disposition: attachment; filename=\"\"\r\n", r#""/get""#),
        ] {
            assert_eq!(name_of(path, field), expected, "{path} {field}");
        }
    }

    #[test]
    fn flags_are_read() {
        assert_eq!((hex(0x1b), hex(0)), (*b"1b", *b"00"));
        assert_eq!((flags(b"SYN,ACK"), flags(b"FIN,PSH,ACK"), flags(b"none")), (0x12, 0x19, 0));
    }
}
