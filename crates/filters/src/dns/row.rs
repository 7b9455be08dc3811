//! The record of a DNS message. Field names are those of Suricata's EVE, version 3.

use crate::parts::eve::{begin_row, eve_fields};
use base::limits::{DNS_RDATA_BYTES, DNS_ROWS};
use filter::prelude::*;
use filter::record::list_push;
use protocols::dns::{Data, Fault, Message, Name, Section, response_code_name, type_name};
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A record of a message.
pub static SCHEMA: Schema = Schema::new(
    "dns",
    &eve_fields![
        Field::new("dns.type", FieldType::Text),
        Field::new("dns.id", FieldType::Number),
        Field::new("dns.flags", FieldType::Text),
        Field::new("dns.aa", FieldType::Flag),
        Field::new("dns.tc", FieldType::Flag),
        Field::new("dns.rd", FieldType::Flag),
        Field::new("dns.ra", FieldType::Flag),
        Field::new("dns.z", FieldType::Flag),
        Field::new("dns.opcode", FieldType::Number),
        Field::new("dns.rcode", FieldType::Text),
        Field::new("dns.rrname", FieldType::Text),
        Field::new("dns.rrtype", FieldType::Text),
        Field::new("dns.queries", FieldType::Rows(&QUERY)),
        Field::new("dns.answers", FieldType::Rows(&ANSWER)),
        Field::new("dns.authorities", FieldType::Rows(&ANSWER)),
    ],
)
.summary(&["dns.rrtype", "dns.rrname", "dns.rcode", "dns.answers.rdata"]);

/// A question.
pub static QUERY: Schema =
    Schema::new("query", &[Field::new("rrname", FieldType::Text), Field::new("rrtype", FieldType::Text)]);

/// The field is `name` and not `rrname`, so that every value under `rrname` is a name that a client asked for.
static ANSWER: Schema = Schema::new(
    "answer",
    &[
        Field::new("name", FieldType::Text),
        Field::new("rrtype", FieldType::Text),
        Field::new("ttl", FieldType::Duration(Unit::Seconds)),
        Field::new("rdata", FieldType::Text),
    ],
);

/// Writes records; its buffers are reused.
pub struct MessageRow {
    row: RowWriter,
    query: RowWriter,
    answer: RowWriter,
    queries: Vec<u8>,
    /// Rows of the answers and of the authorities.
    sections: [Vec<u8>; 2],
    text: Vec<u8>,
}

impl Default for MessageRow {
    fn default() -> Self {
        Self {
            row: RowWriter::new(&SCHEMA),
            query: RowWriter::new(&QUERY),
            answer: RowWriter::new(&ANSWER),
            queries: Vec::new(),
            sections: Default::default(),
            text: Vec::new(),
        }
    }
}

impl MessageRow {
    /// Makes the record of a message that ends in `block`. Also returns the first fault, and how many questions and
    /// records are not listed.
    pub(crate) fn fill(
        &mut self,
        message: &[u8],
        block: &Descriptor,
        facts: Option<&StreamFacts>,
    ) -> (Option<Fault>, u64) {
        begin_row(&mut self.row, block.time, block.class, facts);
        self.put(message)
    }

    /// Like `fill`, but adds to the current row.
    pub fn put(&mut self, message: &[u8]) -> (Option<Fault>, u64) {
        let flags = message.get(2..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u16::from_be_bytes(*bytes));
        let message = match Message::new_checked(message) {
            Ok(message) => message,
            Err(fault) => return (Some(fault), 0),
        };
        self.header(&message, flags);
        let (query_fault, queries_left_out) = self.questions(&message);
        let (record_fault, records_left_out) = self.records(&message);
        (query_fault.or(record_fault), queries_left_out + records_left_out)
    }

    /// Leaves out fields that no filter behind this one reads.
    pub(crate) fn want(&mut self, wanted: &filter::Wanted) {
        self.row.want(wanted);
    }

    /// The record written last.
    pub fn row(&self) -> &RowWriter {
        &self.row
    }

    fn header(&mut self, message: &Message<'_>, flags: u16) {
        self.row.text("dns.type", if message.is_response() { "response" } else { "request" });
        self.row.number("dns.id", u64::from(message.id()));
        self.text.clear();
        print(&mut self.text, format_args!("{flags:x}"));
        self.row.text("dns.flags", &self.text);
        // As in EVE: a flag that is not set has no field.
        for (name, is_set) in [
            ("dns.aa", message.is_authoritative()),
            ("dns.tc", message.is_truncated()),
            ("dns.rd", message.recursion_desired()),
            ("dns.ra", message.recursion_available()),
            ("dns.z", flags & 0x40 != 0),
        ] {
            if is_set {
                self.row.flag(name, true);
            }
        }
        self.row.number("dns.opcode", u64::from(message.opcode()));
        if message.is_response() {
            let code = message.response_code();
            match response_code_name(code) {
                Some(name) => self.row.text("dns.rcode", name),
                None => self.row.text("dns.rcode", itoa::Buffer::new().format(code)),
            };
        }
    }

    fn questions(&mut self, message: &Message<'_>) -> (Option<Fault>, u64) {
        let mut found = None;
        let mut list = List::new(&mut self.queries);
        for question in message.questions() {
            let question = match question {
                Ok(question) => question,
                Err(fault) => {
                    found = Some(fault);
                    break;
                }
            };
            if !list.has_room() {
                continue;
            }
            self.query.begin();
            self.text.clear();
            found = found.or(append_name(&mut self.text, question.name).err());
            // A name that could not be read at all has no field.
            if !self.text.is_empty() {
                self.query.text("rrname", &self.text);
                if list.count == 0 {
                    self.row.text("dns.rrname", &self.text);
                }
            }
            let first = list.count == 0;
            self.text.clear();
            print(&mut self.text, format_args!("{}", type_name(question.kind)));
            self.query.text("rrtype", &self.text);
            if first {
                self.row.text("dns.rrtype", &self.text);
            }
            list.push(self.query.row());
        }
        let (count, left_out) = (list.count, list.left_out);
        if count > 1 {
            self.row.rows("dns.queries", &self.queries);
        }
        (found, left_out)
    }

    fn records(&mut self, message: &Message<'_>) -> (Option<Fault>, u64) {
        let mut found = None;
        let [answers, authorities] = &mut self.sections;
        let (mut answers, mut authorities) = (List::new(answers), List::new(authorities));
        for record in message.records() {
            let record = match record {
                Ok(record) => record,
                Err(fault) => {
                    found = Some(fault);
                    break;
                }
            };
            let list = match record.section {
                Section::Answer => &mut answers,
                Section::Authority => &mut authorities,
                Section::Additional => break,
            };
            if !list.has_room() {
                continue;
            }
            self.answer.begin();
            self.text.clear();
            found = found.or(append_name(&mut self.text, record.name).err());
            if !self.text.is_empty() {
                self.answer.text("name", &self.text);
            }
            self.text.clear();
            print(&mut self.text, format_args!("{}", type_name(record.kind)));
            self.answer.text("rrtype", &self.text).number("ttl", u64::from(record.time_to_live_s));
            self.text.clear();
            found = found.or(append_data(&mut self.text, record.data).err());
            self.answer.text("rdata", &self.text);
            list.push(self.answer.row());
        }
        let left_out = answers.left_out + authorities.left_out;
        let some = [answers.count, authorities.count].map(|count| count > 0);
        for ((name, list), some) in ["dns.answers", "dns.authorities"].into_iter().zip(&self.sections).zip(some) {
            if some {
                self.row.rows(name, list);
            }
        }
        (found, left_out)
    }
}

struct List<'a> {
    bytes: &'a mut Vec<u8>,
    count: usize,
    left_out: u64,
}

impl List<'_> {
    fn new(bytes: &mut Vec<u8>) -> List<'_> {
        bytes.clear();
        List { bytes, count: 0, left_out: 0 }
    }

    /// Whether there is room for another row. If not, counts it as left out.
    fn has_room(&mut self) -> bool {
        let room = self.count < DNS_ROWS;
        self.left_out += u64::from(!room);
        room
    }

    fn push(&mut self, row: &[u8]) {
        list_push(self.bytes, row);
        self.count += 1;
    }
}

/// Appends formatted text; writing to a `Vec` cannot fail.
fn print(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).unwrap_or_default();
}

/// Appends a name with dots between labels; the root is `.`. A dot inside a label gets no backslash: service names
/// have such dots (RFC 6763, 4.3), and Suricata and tshark print them plainly.
fn append_name(out: &mut Vec<u8>, name: Name<'_>) -> Result<(), Fault> {
    let start = out.len();
    for label in name.labels() {
        let label = label?;
        if out.len() > start {
            out.push(b'.');
        }
        protocols::tls::append_name(out, label);
    }
    if out.len() == start {
        out.push(b'.');
    }
    Ok(())
}

/// Appends the data of a record in the format of zone files (RFC 1035, 5.1; RFC 3597, 5).
fn append_data(out: &mut Vec<u8>, data: Data<'_>) -> Result<(), Fault> {
    match data {
        Data::A(address) => print(out, format_args!("{address}")),
        Data::Aaaa(address) => print(out, format_args!("{address}")),
        Data::Name(name) => append_name(out, name)?,
        Data::Mx { preference, exchange } => {
            print(out, format_args!("{preference} "));
            append_name(out, exchange)?;
        }
        // The strings of a TXT record are one text, cut every 255 bytes (RFC 7208, 3.3).
        Data::Txt(strings) => strings.for_each(|string| out.extend_from_slice(string)),
        Data::Soa { server, mailbox, serial, minimum_s: _ } => {
            append_name(out, server)?;
            out.push(b' ');
            append_name(out, mailbox)?;
            print(out, format_args!(" {serial}"));
        }
        Data::Srv { priority, weight, port, target } => {
            print(out, format_args!("{priority} {weight} {port} "));
            append_name(out, target)?;
        }
        Data::Digest { numbers, count, bytes } => {
            for number in &numbers[..count.min(numbers.len())] {
                print(out, format_args!("{number} "));
            }
            packet::text::append_hex(out, &bytes[..bytes.len().min(DNS_RDATA_BYTES)]);
        }
        Data::Caa { flags, tag, value } => {
            print(out, format_args!("{flags} "));
            protocols::tls::append_name(out, tag);
            append_quoted(out, value);
        }
        Data::Service { priority, target, params } => {
            print(out, format_args!("{priority} "));
            append_name(out, target)?;
            params.for_each(|(key, value)| append_service_param(out, key, value));
        }
        Data::Naptr { numbers: [order, preference], texts, replacement } => {
            print(out, format_args!("{order} {preference}"));
            texts.into_iter().for_each(|text| append_quoted(out, text));
            out.push(b' ');
            append_name(out, replacement)?;
        }
        Data::Other(bytes) => {
            print(out, format_args!("\\# {}", bytes.len()));
            if !bytes.is_empty() {
                out.push(b' ');
                packet::text::append_hex(out, &bytes[..bytes.len().min(DNS_RDATA_BYTES)]);
            }
        }
    }
    Ok(())
}

/// Appends a space and a quoted text.
fn append_quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(b" \"");
    protocols::tls::append_name(out, text);
    out.push(b'"');
}

/// Appends a space and a service parameter (RFC 9460, 7 and 14.3).
fn append_service_param(out: &mut Vec<u8>, key: u16, value: &[u8]) {
    let name = match key {
        0 => "mandatory",
        1 => "alpn",
        2 => "no-default-alpn",
        3 => "port",
        4 => "ipv4hint",
        5 => "ech",
        6 => "ipv6hint",
        7 => "dohpath",
        _ => "",
    };
    match name {
        "" => print(out, format_args!(" key{key}")),
        _ => print(out, format_args!(" {name}")),
    }
    if value.is_empty() {
        return;
    }
    out.push(b'=');
    let start = out.len();
    let item = |out: &mut Vec<u8>, text: std::fmt::Arguments<'_>| {
        if out.len() > start {
            out.push(b',');
        }
        print(out, text);
    };
    match key {
        1 => {
            let mut rest = value;
            while let Some((length, behind)) = rest.split_first() {
                let (name, behind) = behind.split_at_checked(usize::from(*length)).unwrap_or((behind, &[]));
                item(out, format_args!(""));
                protocols::tls::append_name(out, name);
                rest = behind;
            }
        }
        3 if value.len() == 2 => item(out, format_args!("{}", u16::from_be_bytes([value[0], value[1]]))),
        4 => value.chunks_exact(4).for_each(|four| {
            item(out, format_args!("{}", Ipv4Addr::new(four[0], four[1], four[2], four[3])));
        }),
        6 => {
            value.as_chunks::<16>().0.iter().for_each(|sixteen| item(out, format_args!("{}", Ipv6Addr::from(*sixteen))))
        }
        7 => protocols::tls::append_name(out, value),
        _ => packet::text::append_hex(out, &value[..value.len().min(DNS_RDATA_BYTES)]),
    }
}
