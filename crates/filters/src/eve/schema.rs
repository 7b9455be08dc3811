//! Events as Suricata's EVE has them: names and types are those of `etc/schema.json` in Suricata 9. `crates/cli/tests/eve.rs`
//! compares what is written with that file.

use filter::{Field, FieldType, Schema};

/// What every event begins with, and its own fields. Times are texts: EVE writes them otherwise than `json`.
macro_rules! event {
    ($name:literal, $($field:expr),* $(,)?) => {
        Schema::new(
            $name,
            &[
                Field::new("timestamp", FieldType::Text),
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

/// All of them.
pub(super) static ALL: [&Schema; 5] = [&FLOW, &HTTP, &FILEINFO, &DNS, &TLS];

/// A flow that ended.
pub(super) static FLOW: Schema = event!(
    "flow",
    Field::new("icmp_type", FieldType::Number),
    Field::new("icmp_code", FieldType::Number),
    Field::new("app_proto", FieldType::Text),
    Field::new("community_id", FieldType::Text),
    Field::new("flow.pkts_toserver", FieldType::Number),
    Field::new("flow.pkts_toclient", FieldType::Number),
    Field::new("flow.bytes_toserver", FieldType::Number),
    Field::new("flow.bytes_toclient", FieldType::Number),
    Field::new("flow.start", FieldType::Text),
    Field::new("flow.end", FieldType::Text),
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
pub(super) static HTTP: Schema = event!(
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

/// A body of HTTP, with what was asked for.
pub(super) static FILEINFO: Schema = event!(
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

/// A DNS message: version 3 of these events.
pub(super) static DNS: Schema = event!(
    "dns",
    Field::new("dns.version", FieldType::Number),
    Field::new("dns.type", FieldType::Text),
    Field::new("dns.id", FieldType::Number),
    Field::new("dns.flags", FieldType::Text),
    Field::new("dns.qr", FieldType::Flag),
    Field::new("dns.aa", FieldType::Flag),
    Field::new("dns.tc", FieldType::Flag),
    Field::new("dns.rd", FieldType::Flag),
    Field::new("dns.ra", FieldType::Flag),
    Field::new("dns.opcode", FieldType::Number),
    Field::new("dns.rcode", FieldType::Text),
    Field::new("dns.queries", FieldType::Rows(&QUERY)),
    Field::new("dns.answers", FieldType::Rows(&ANSWER)),
    Field::new("dns.authorities", FieldType::Rows(&ANSWER)),
);

pub(super) static QUERY: Schema =
    Schema::new("query", &[Field::new("rrname", FieldType::Text), Field::new("rrtype", FieldType::Text)]);

pub(super) static ANSWER: Schema = Schema::new(
    "answer",
    &[
        Field::new("rrname", FieldType::Text),
        Field::new("rrtype", FieldType::Text),
        Field::new("ttl", FieldType::Number),
        Field::new("rdata", FieldType::Text),
    ],
);

/// A TLS handshake.
pub(super) static TLS: Schema = event!(
    "tls",
    Field::new("tls.subject", FieldType::Text),
    Field::new("tls.issuerdn", FieldType::Text),
    Field::new("tls.serial", FieldType::Text),
    Field::new("tls.fingerprint", FieldType::Text),
    Field::new("tls.sni", FieldType::Text),
    Field::new("tls.version", FieldType::Text),
    Field::new("tls.notbefore", FieldType::Text),
    Field::new("tls.notafter", FieldType::Text),
    Field::new("tls.ja3.hash", FieldType::Text),
    Field::new("tls.ja3.string", FieldType::Text),
    Field::new("tls.ja3s.hash", FieldType::Text),
    Field::new("tls.ja3s.string", FieldType::Text),
    Field::new("tls.ja4", FieldType::Text),
    Field::new("tls.client_alpns", FieldType::Rows(&NAME)),
    Field::new("tls.server_alpns", FieldType::Rows(&NAME)),
);

/// A list of these is a list of plain texts.
static NAME: Schema = Schema::new("name", &[Field::new("", FieldType::Text)]);
