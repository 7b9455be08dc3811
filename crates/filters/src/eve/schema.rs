//! The events of Suricata's EVE: names and types are those of `etc/schema.json` in Suricata 9.
//! `crates/cli/tests/all/eve.rs` checks the output against that file.

use crate::dns::row::QUERY;
use crate::parts::eve::NAME;
use filter::{Field, FieldType, Schema};

/// The common fields of all events, then the event's own.
macro_rules! event {
    ($name:literal, $($field:expr),* $(,)?) => {
        Schema::new(
            $name,
            &[
                Field::new("timestamp", FieldType::EveTime),
                Field::new("flow_id", FieldType::Number),
                Field::new("vlan", FieldType::Rows(&crate::parts::eve::VLAN)),
                Field::new("src_ip", FieldType::Address),
                Field::new("src_port", FieldType::Number),
                Field::new("dest_ip", FieldType::Address),
                Field::new("dest_port", FieldType::Number),
                Field::new("proto", FieldType::Text),
                Field::new("tunnel.src_ip", FieldType::Address),
                Field::new("tunnel.dest_ip", FieldType::Address),
                Field::new("tunnel.proto", FieldType::Text),
                Field::new("tunnel.depth", FieldType::Number),
                $($field),*
            ],
        )
    };
}

/// An event, and the object of the same name in it: alerts contain such objects, too.
macro_rules! object {
    ($event:ident, $object:ident, $name:literal { $($field:literal: $kind:expr),* $(,)? }) => {
        #[doc = concat!("An event about ", $name, ".")]
        pub static $event: Schema = event!($name, $(Field::new(concat!($name, ".", $field), $kind)),*);
        #[doc = concat!("The object `", $name, "` of other events.")]
        pub static $object: Schema = Schema::object($name, &[$(Field::new($field, $kind)),*]);
    };
}

pub(crate) static ALL: [&Schema; 9] = [&FLOW, &HTTP, &FILEINFO, &DNS, &TLS, &SSH, &SMTP, &FTP, &SIP];

/// A flow that ended.
pub(crate) static FLOW: Schema = event!(
    "flow",
    Field::new("icmp_type", FieldType::Number),
    Field::new("icmp_code", FieldType::Number),
    Field::new("app_proto", FieldType::Text),
    Field::new("community_id", FieldType::Text),
    Field::new("flow.pkts_toserver", FieldType::Number),
    Field::new("flow.pkts_toclient", FieldType::Number),
    Field::new("flow.bytes_toserver", FieldType::Number),
    Field::new("flow.bytes_toclient", FieldType::Number),
    Field::new("flow.start", FieldType::EveTime),
    Field::new("flow.end", FieldType::EveTime),
    Field::new("flow.age", FieldType::Number),
    Field::new("flow.state", FieldType::Text),
    Field::new("flow.reason", FieldType::Text),
    Field::new("tcp.tcp_flags", FieldType::Text),
    Field::new("tcp.tcp_flags_ts", FieldType::Text),
    Field::new("tcp.tcp_flags_tc", FieldType::Text),
    Field::new("tcp.ts_gap", FieldType::Flag),
    Field::new("tcp.tc_gap", FieldType::Flag),
);

/// An HTTP request with its response.
pub(crate) static HTTP: Schema = event!(
    "http",
    Field::new("http.hostname", FieldType::Text),
    Field::new("http.url", FieldType::Text),
    Field::new("http.http_user_agent", FieldType::Text),
    Field::new("http.http_content_type", FieldType::Text),
    Field::new("http.http_refer", FieldType::Text),
    Field::new("http.http_method", FieldType::Text),
    Field::new("http.protocol", FieldType::Text),
    Field::new("http.status", FieldType::Number),
    Field::new("http.length", FieldType::Number),
);

/// A body of HTTP, with the request for it.
pub(crate) static FILEINFO: Schema = event!(
    "fileinfo",
    Field::new("http.hostname", FieldType::Text),
    Field::new("http.url", FieldType::Text),
    Field::new("http.http_user_agent", FieldType::Text),
    Field::new("http.http_content_type", FieldType::Text),
    Field::new("http.http_refer", FieldType::Text),
    Field::new("http.http_method", FieldType::Text),
    Field::new("http.protocol", FieldType::Text),
    Field::new("http.status", FieldType::Number),
    Field::new("http.length", FieldType::Number),
    Field::new("app_proto", FieldType::Text),
    Field::new("fileinfo.filename", FieldType::Text),
    Field::new("fileinfo.gaps", FieldType::Flag),
    Field::new("fileinfo.state", FieldType::Text),
    Field::new("fileinfo.sha256", FieldType::Text),
    Field::new("fileinfo.stored", FieldType::Flag),
    Field::new("fileinfo.size", FieldType::Number),
);

// A DNS message: version 3 of these events.
object!(DNS, DNS_OBJECT, "dns" {
    "version": FieldType::Number,
    "type": FieldType::Text,
    "tx_id": FieldType::Number,
    "id": FieldType::Number,
    "flags": FieldType::Text,
    "qr": FieldType::Flag,
    "aa": FieldType::Flag,
    "tc": FieldType::Flag,
    "rd": FieldType::Flag,
    "ra": FieldType::Flag,
    "z": FieldType::Flag,
    "opcode": FieldType::Number,
    "rcode": FieldType::Text,
    "queries": FieldType::Rows(&QUERY),
    "answers": FieldType::Rows(&ANSWER),
    "authorities": FieldType::Rows(&ANSWER),
});

/// A resource record of an answer.
pub static ANSWER: Schema = Schema::new(
    "answer",
    &[
        Field::new("rrname", FieldType::Text),
        Field::new("rrtype", FieldType::Text),
        Field::new("ttl", FieldType::Number),
        Field::new("rdata", FieldType::Text),
    ],
);

// A TLS handshake.
object!(TLS, TLS_OBJECT, "tls" {
    "subject": FieldType::Text,
    "issuerdn": FieldType::Text,
    "serial": FieldType::Text,
    "fingerprint": FieldType::Text,
    "sni": FieldType::Text,
    "version": FieldType::Text,
    "notbefore": FieldType::Text,
    "notafter": FieldType::Text,
    "ja3.hash": FieldType::Text,
    "ja3.string": FieldType::Text,
    "ja3s.hash": FieldType::Text,
    "ja3s.string": FieldType::Text,
    "ja4": FieldType::Text,
    "client_alpns": FieldType::Rows(&NAME),
    "server_alpns": FieldType::Rows(&NAME),
});

// The version strings and key exchanges of both sides of SSH, which are sent in the clear.
object!(SSH, SSH_OBJECT, "ssh" {
    "client.proto_version": FieldType::Text,
    "client.software_version": FieldType::Text,
    "client.hassh.hash": FieldType::Text,
    "client.hassh.string": FieldType::Text,
    "server.proto_version": FieldType::Text,
    "server.software_version": FieldType::Text,
    "server.hassh.hash": FieldType::Text,
    "server.hassh.string": FieldType::Text,
});

// A mail.
object!(SMTP, SMTP_OBJECT, "smtp" {
    "helo": FieldType::Text,
    "mail_from": FieldType::Text,
    "rcpt_to": FieldType::Rows(&NAME),
});

// A command of FTP, with the replies to it.
object!(FTP, FTP_OBJECT, "ftp" {
    "command": FieldType::Text,
    "command_data": FieldType::Text,
    "reply": FieldType::Rows(&NAME),
    "completion_code": FieldType::Rows(&NAME),
    "dynamic_port": FieldType::Number,
    "mode": FieldType::Text,
    "reply_received": FieldType::Text,
});

// A message of SIP.
pub(crate) static SIP: Schema = event!(
    "sip",
    Field::new("sip.method", FieldType::Text),
    Field::new("sip.uri", FieldType::Text),
    Field::new("sip.version", FieldType::Text),
    Field::new("sip.request_line", FieldType::Text),
    Field::new("sip.code", FieldType::Text),
    Field::new("sip.reason", FieldType::Text),
    Field::new("sip.response_line", FieldType::Text),
);
