//! The objects of an alert record that describe the transaction, as in the events of `eve`.

use crate::rules::exchanges::Names;
#[cfg(feature = "quic")]
use crate::rules::quic;
use crate::rules::{ftp, smb, smtp, talks, tls, websocket};
use base::limits::RULES_BODY_BYTES;
use filter::prelude::*;
use filter::record::{FieldValue, list_push};
use filters::conversations::OBJECTS;
use filters::dhcp::{self, Dhcp};
use filters::dns::row::{MessageRow, QUERY, SCHEMA as DNS_RECORD};
use filters::eve::events;
use filters::eve::schema::{ANSWER, DNS, DNS_OBJECT, FTP_OBJECT, HTTP_OBJECT, SMB_OBJECT, SMTP_OBJECT, TLS_OBJECT};
use filters::parts::eve::NAME;
use filters::parts::fact_fields::FactFields;
use protocols::conversation::{About, Fact as _, Kind, Side};
#[cfg(feature = "quic")]
use protocols::quic::conversation::Fact as QuicFact;
use protocols::smtp::Fact as SmtpFact;
use protocols::websocket::Fact as WebSocketFact;
use rules::names::{App, Buffer, Number};
use rules::{Packet, SCTP_CHUNKS, Transaction, sctp_chunks, sctp_tag};

const CLIENT_FIRST: [Side; 2] = [Side::Client, Side::Server];

/// The verdict of all rules on the packet.
pub(crate) static VERDICT: Schema = Schema::object(
    "verdict",
    &[
        Field::new("action", FieldType::Text),
        Field::new("reject-target", FieldType::Text),
        Field::new("reject", FieldType::Rows(&NAME)),
    ],
);

/// An IGMP message.
pub(crate) static IGMP: Schema =
    Schema::object("igmp", &[Field::new("version", FieldType::Number), Field::new("type", FieldType::Number)]);

/// An RGMP message.
pub(crate) static RGMP: Schema = Schema::object("rgmp", &[Field::new("type", FieldType::Number)]);

/// An SCTP packet.
pub(crate) static SCTP: Schema = Schema::object(
    "sctp",
    &[
        Field::new("vtag", FieldType::Number),
        Field::new("chunk_cnt", FieldType::Number),
        Field::new("chunk_types", FieldType::Rows(&NAME)),
        Field::new("has_init", FieldType::Flag),
        Field::new("has_init_ack", FieldType::Flag),
        Field::new("has_data", FieldType::Flag),
        Field::new("has_abort", FieldType::Flag),
    ],
);

/// An HTTP exchange.
pub(crate) static HTTP: Schema = const {
    &FactFields::new(HTTP_OBJECT.fields).and(&[
        Field::new("http2.request.error_code", FieldType::Text),
        Field::new("http2.request.priority", FieldType::Number),
    ])
}
.object("http");

/// A WebSocket frame.
pub(crate) static WEBSOCKET: Schema =
    const { &FactFields::new(&[]).facts(WebSocketFact::ALL).within("websocket") }.object("websocket");

/// The first messages of QUIC.
#[cfg(feature = "quic")]
pub(crate) static QUIC: Schema = const { &FactFields::new(&[]).facts(QuicFact::ALL).within("quic") }.object("quic");

/// An FTP data connection.
pub(crate) static FTP_DATA: Schema =
    Schema::object("ftp_data", &[Field::new("command", FieldType::Text), Field::new("filename", FieldType::Text)]);

/// The head of a mail.
pub(crate) static EMAIL: Schema = const {
    let own = FactFields::new(&[]).facts(SmtpFact::ALL).within("email");
    &own.and(&[
        Field::new("status", FieldType::Text),
        Field::new("to", FieldType::Rows(&NAME)),
        Field::new("cc", FieldType::Rows(&NAME)),
    ])
}
.object("email");

/// A DHCP message.
pub(crate) static DHCP: Schema = Schema::object(
    "dhcp",
    &[
        Field::new("type", FieldType::Text),
        Field::new("id", FieldType::Number),
        Field::new("client_mac", FieldType::Text),
        Field::new("assigned_ip", FieldType::Address),
        Field::new("client_ip", FieldType::Address),
        Field::new("next_server_ip", FieldType::Address),
        Field::new("relay_ip", FieldType::Address),
        Field::new("client_id", FieldType::Text),
        Field::new("hostname", FieldType::Text),
        Field::new("requested_ip", FieldType::Address),
        Field::new("params", FieldType::Rows(&NAME)),
        Field::new("dhcp_type", FieldType::Text),
        Field::new("subnet_mask", FieldType::Address),
        Field::new("routers", FieldType::Rows(&dhcp::ADDRESS)),
        Field::new("dns_servers", FieldType::Rows(&dhcp::ADDRESS)),
        Field::new("lease_time", FieldType::Number),
        Field::new("renewal_time", FieldType::Number),
        Field::new("rebinding_time", FieldType::Number),
    ],
);

/// An LLMNR message.
pub(crate) static LLMNR: Schema = Schema::object(
    "llmnr",
    &[
        Field::new("type", FieldType::Text),
        Field::new("id", FieldType::Number),
        Field::new("flags", FieldType::Text),
        Field::new("opcode", FieldType::Number),
        Field::new("rcode", FieldType::Text),
        Field::new("queries", FieldType::Rows(&QUERY)),
        Field::new("answers", FieldType::Rows(&LLMNR_ANSWER)),
    ],
);

/// The data of an LLMNR record; the record type names the field.
static LLMNR_ANSWER: Schema = Schema::new(
    "answer",
    &[
        Field::new("rrname", FieldType::Text),
        Field::new("rrtype", FieldType::Text),
        Field::new("ttl", FieldType::Number),
        Field::new("a", FieldType::Text),
        Field::new("aaaa", FieldType::Text),
        Field::new("rdata", FieldType::Text),
    ],
);

/// A file in a transaction.
pub(crate) static FILE: Schema = Schema::new(
    "file",
    &[
        Field::new("filename", FieldType::Text),
        Field::new("gaps", FieldType::Flag),
        Field::new("state", FieldType::Text),
        Field::new("stored", FieldType::Flag),
        Field::new("size", FieldType::Number),
        Field::new("tx_id", FieldType::Number),
    ],
);

/// Adds the objects for the transaction's application.
pub(super) fn put(row: &mut RowWriter, one: &Transaction, gaps: bool) {
    match one.app {
        App::Http1 => object(row, "http", &HTTP, |it| http(it, one)),
        App::Http2 => http2(row, one),
        App::Doh2 => {
            http2(row, one);
            // Its message may be damaged, or not have come yet.
            if !one.message.is_empty() {
                dns(row, one);
            }
        }
        App::WebSocket => {
            object(row, "websocket", &WEBSOCKET, |it| facts(it, &WEBSOCKET, one, websocket::NAMES, CLIENT_FIRST));
        }
        #[cfg(feature = "quic")]
        App::Quic => object(row, "quic", &QUIC, |it| facts(it, &QUIC, one, quic::NAMES, CLIENT_FIRST)),
        App::FtpData => object(row, "ftp_data", &FTP_DATA, |it| {
            if let Some(command) = one.numbers(Number::FTPDATA_COMMAND, true).next() {
                it.text("command", if command == 1 { "RETR" } else { "STOR" });
            }
            texts(it, one, &[("filename", Buffer::FILE_NAME, true)]);
        }),
        // The server says what was chosen, and usually has the certificate.
        App::Tls => object(row, "tls", &TLS_OBJECT, |it| {
            facts(it, &TLS_OBJECT, one, tls::NAMES, [Side::Server, Side::Client]);
        }),
        App::Smb => object(row, "smb", &SMB_OBJECT, |it| facts(it, &SMB_OBJECT, one, smb::NAMES, CLIENT_FIRST)),
        App::Smtp => {
            object(row, "smtp", &SMTP_OBJECT, |it| {
                facts(it, &SMTP_OBJECT, one, smtp::NAMES, CLIENT_FIRST);
            });
            object(row, "email", &EMAIL, |it| email(it, one));
        }
        App::Ftp => object(row, "ftp", &FTP_OBJECT, |it| ftp(it, one)),
        App::Dns => dns(row, one),
        App::Llmnr => llmnr(row, one),
        App::Dhcp => {
            if let Ok(packet) = packet::dhcp::Packet::new_checked(&one.message) {
                let mut record = Dhcp::default();
                record.put(&packet);
                copy(row, "dhcp", &DHCP, &dhcp::SCHEMA, record.row.row());
            }
        }
        app => talk(row, app, one),
    }
    files(row, one, gaps);
}

/// Adds `sctp`, if the packet is one of SCTP.
pub(super) fn sctp(row: &mut RowWriter, packet: &Packet<'_>) {
    let Some(tag) = sctp_tag(packet) else { return };
    let kinds = || sctp_chunks(packet).filter_map(|chunk| chunk.first().map(|kind| u64::from(*kind)));
    let name = |kind: u64| SCTP_CHUNKS.iter().find(|known| known.1 == kind).map_or("unknown", |known| known.0);
    object(row, "sctp", &SCTP, |it| {
        it.number("vtag", tag.into()).number("chunk_cnt", kinds().count() as u64);
        list(it, "chunk_types", kinds().map(|kind| name(kind).as_bytes()));
        for (field, name) in
            [("has_init", "init"), ("has_init_ack", "init_ack"), ("has_data", "data"), ("has_abort", "abort")]
        {
            it.flag(field, kinds().any(|kind| SCTP_CHUNKS.contains(&(name, kind))));
        }
    });
}

/// Adds an object that `fill` fills in.
pub(super) fn object(
    row: &mut RowWriter,
    name: &'static str,
    schema: &'static Schema,
    fill: impl FnOnce(&mut RowWriter),
) {
    let (mut one, mut list) = (RowWriter::new(schema), Vec::new());
    fill(&mut one);
    list_push(&mut list, one.row());
    row.rows(name, &list);
}

/// Adds an object from the fields of `record` that have its name as prefix.
fn copy(row: &mut RowWriter, name: &'static str, schema: &'static Schema, of: &'static Schema, record: &[u8]) {
    let Some(record) = Row::new(of, record) else { return };
    object(row, name, schema, |it| {
        for (place, field) in of.fields.iter().enumerate() {
            let Some(inner) = field.name.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')) else { continue };
            if let Some(value) = record.get(place).filter(|_| schema.field(inner).is_some()) {
                it.copy(inner, &value);
            }
        }
    });
}

/// Adds a list of texts, unless it is empty.
pub(super) fn list<'a>(row: &mut RowWriter, name: &'static str, texts: impl Iterator<Item = &'a [u8]>) {
    let (mut one, mut list) = (RowWriter::new(&NAME), Vec::new());
    for text in texts {
        one.begin();
        list_push(&mut list, one.text("", text).row());
    }
    if !list.is_empty() {
        row.rows(name, &list);
    }
}

fn texts(row: &mut RowWriter, one: &Transaction, names: &[(&'static str, Buffer, bool)]) {
    for (name, buffer, to_server) in names {
        if let Some(text) = one.first(*buffer, *to_server) {
            row.text(name, text);
        }
    }
}

/// Adds the facts of a protocol that have a field in this object. Of a field that both sides may say and that is no list,
/// the side in front counts.
fn facts(row: &mut RowWriter, object: &Schema, one: &Transaction, names: &Names, sides: [Side; 2]) {
    for (number, About { field, kind, .. }) in names.facts.iter().enumerate() {
        for name in if field[0] == field[1] { &field[..1] } else { &field[..] } {
            let Some((of, inner)) = name.split_once('.') else { continue };
            if of != object.name || object.field(inner).is_none() {
                continue;
            }
            let sides = sides.into_iter().filter(|side| field[side.index()] == *name);
            if kind.is_number() {
                put_numbers(row, inner, *kind, sides.flat_map(|side| names.numbers(one, number, side)));
            } else {
                put_fact(row, inner, *kind, sides.flat_map(|side| names.texts(one, number, side)));
            }
        }
    }
}

fn put_fact<'a>(row: &mut RowWriter, name: &'static str, kind: Kind, mut values: impl Iterator<Item = &'a [u8]>) {
    if kind.is_item() {
        let values: Vec<_> = values.map(|value| kind.shown(value)).collect();
        list(row, name, values.iter().map(|value| &**value));
    } else if let Some(value) = values.next() {
        row.text(name, kind.shown(value));
    }
}

/// Adds the object of a protocol that rules read by its table of facts.
fn talk(row: &mut RowWriter, app: App, one: &Transaction) {
    let known = OBJECTS.iter().find(|known| known.0 == app);
    let (Some((_, schema)), Some(names)) = (known, talks::names(app)) else { return };
    object(row, app.name(), schema, |it| facts(it, schema, one, names, CLIENT_FIRST));
}

fn put_numbers(row: &mut RowWriter, name: &'static str, kind: Kind, mut values: impl Iterator<Item = u64>) {
    match kind {
        Kind::WordItem(_) => {
            let words: Vec<String> = values.map(|value| kind.word(value)).collect();
            list(row, name, words.iter().map(String::as_bytes));
        }
        Kind::Word(_) => values.next().into_iter().for_each(|value| _ = row.text(name, kind.word(value))),
        _ => values.next().into_iter().for_each(|value| _ = row.number(name, value)),
    }
}

fn http(row: &mut RowWriter, one: &Transaction) {
    texts(
        row,
        one,
        &[
            ("hostname", Buffer::HTTP_HOST, true),
            ("url", Buffer::HTTP_URI_RAW, true),
            ("http_user_agent", Buffer::HTTP_USER_AGENT, true),
            ("http_refer", Buffer::HTTP_REFERER, true),
            ("http_method", Buffer::HTTP_METHOD, true),
            ("protocol", Buffer::HTTP_PROTOCOL, true),
        ],
    );
    // Remove the parameters of the type.
    let kind = one.first(Buffer::HTTP_CONTENT_TYPE, false).and_then(|kind| kind.split(|byte| *byte == b';').next());
    if let Some(kind) = kind {
        row.text("http_content_type", kind.trim_ascii_end());
    }
    let status = one.first(Buffer::HTTP_STAT_CODE, false).and_then(|text| std::str::from_utf8(text).ok());
    if let Some(status) = status.and_then(|text| text.parse().ok()) {
        row.number("status", status);
    }
    row.number("length", one.body_bytes[1]);
}

fn http2(row: &mut RowWriter, one: &Transaction) {
    object(row, "http", &HTTP, |it| {
        http(it, one);
        texts(it, one, &[("http2.request.error_code", Buffer::HTTP2_ERROR_NAME, true)]);
        if let Some(priority) = one.numbers(Number::HTTP2_PRIORITY, true).next() {
            it.number("http2.request.priority", priority);
        }
    });
}

fn ftp(row: &mut RowWriter, one: &Transaction) {
    facts(row, &FTP_OBJECT, one, ftp::NAMES, CLIENT_FIRST);
    if one.first(Buffer::FTP_REPLY, false).is_none() {
        row.text("reply_received", "no");
    }
}

fn email(row: &mut RowWriter, one: &Transaction) {
    row.text("status", if one.complete[0] { "PARSE_DONE" } else { "PARSE_STARTED" });
    facts(row, &EMAIL, one, smtp::NAMES, CLIENT_FIRST);
    for (name, buffer) in [("to", Buffer::EMAIL_TO), ("cc", Buffer::EMAIL_CC)] {
        let addresses = one.all(buffer, true).flat_map(|text| text.split(|byte| *byte == b','));
        list(row, name, addresses.map(<[u8]>::trim_ascii));
    }
    list(row, "attachment", one.all(Buffer::FILE_NAME, true));
}

/// Converts a DNS message to the event that `eve` would write.
fn dns_event(message: &[u8]) -> RowWriter {
    let (mut record, mut event) = (MessageRow::default(), RowWriter::new(&DNS));
    record.put(message);
    if let Some(row) = Row::new(&DNS_RECORD, record.row().row()) {
        events::common(&mut event, &DNS, &row);
        let (mut query, mut answer) = (RowWriter::new(&QUERY), RowWriter::new(&ANSWER));
        events::dns(&mut event, &row, &mut query, &mut answer, &mut Vec::new());
    }
    event
}

fn dns(row: &mut RowWriter, one: &Transaction) {
    let mut event = dns_event(&one.message);
    event.number("dns.tx_id", one.id);
    copy(row, "dns", &DNS_OBJECT, &DNS, event.row());
}

fn llmnr(row: &mut RowWriter, one: &Transaction) {
    let event = dns_event(&one.message);
    let Some(event) = Row::new(&DNS, event.row()) else { return };
    object(row, "llmnr", &LLMNR, |it| {
        for name in ["type", "id", "flags", "opcode", "rcode", "queries"] {
            let from = DNS.fields.iter().position(|field| field.name.strip_prefix("dns.") == Some(name));
            if let Some(value) = from.and_then(|place| event.get(place)) {
                it.copy(name, &value);
            }
        }
        let Some(FieldValue::Rows(answers)) = event.named("dns.answers") else { return };
        let (mut item, mut list) = (RowWriter::new(&LLMNR_ANSWER), Vec::new());
        for answer in answers {
            item.begin();
            let data = match answer.text("rrtype") {
                Some(b"A") => "a",
                Some(b"AAAA") => "aaaa",
                _ => "rdata",
            };
            for (from, to) in [("rrname", "rrname"), ("rrtype", "rrtype"), ("ttl", "ttl"), ("rdata", data)] {
                if let Some(value) = answer.named(from) {
                    item.copy(to, &value);
                }
            }
            list_push(&mut list, item.row());
        }
        it.rows("answers", &list);
    });
}

/// Adds the files of both sides, as far as rules see them.
fn files(row: &mut RowWriter, one: &Transaction, gaps: bool) {
    let (mut file, mut list) = (RowWriter::new(&FILE), Vec::new());
    for (side, to_server) in [(0, true), (1, false)] {
        let (mut name, mut number) = (None, 0);
        for (buffer, bytes) in one.buffers(to_server) {
            match buffer {
                Buffer::FILE_NAME => name = Some(bytes),
                Buffer::FILE_DATA => {
                    file.begin();
                    if let Some(name) = name.take() {
                        file.text("filename", name);
                    }
                    number += 1;
                    let is_last = number == one.files(to_server);
                    let state = match () {
                        () if bytes.len() >= RULES_BODY_BYTES => "TRUNCATED",
                        () if one.complete[side] || !is_last => "CLOSED",
                        () => "UNKNOWN",
                    };
                    file.flag("gaps", gaps).text("state", state).flag("stored", false);
                    list_push(&mut list, file.number("size", bytes.len() as u64).number("tx_id", one.id).row());
                }
                _ => {}
            }
        }
    }
    if !list.is_empty() {
        row.rows("files", &list);
    }
}
