//! The events of Suricata's EVE: names and types are those of `etc/schema.json` in Suricata 9.
//! `crates/cli/tests/all/eve.rs` checks the output against that file.

use crate::dns::row::QUERY;
use crate::parts::eve::VLAN;
use crate::parts::fact_fields::FactFields;
use filter::{Field, FieldType, Schema, Unit};
use protocols::conversation::Fact as _;
use protocols::{ftp, http, sip, smb, smtp, ssh, tls};

/// The common fields of all events, alerts too.
pub const EVENT: FactFields = FactFields::new(&[
    Field::new("timestamp", FieldType::EveTime),
    Field::new("flow_id", FieldType::Number),
    Field::new("vlan", FieldType::Rows(&VLAN)),
    Field::new("src_ip", FieldType::Address),
    Field::new("src_port", FieldType::Number),
    Field::new("dest_ip", FieldType::Address),
    Field::new("dest_port", FieldType::Number),
    Field::new("proto", FieldType::Text),
    Field::new("tunnel.src_ip", FieldType::Address),
    Field::new("tunnel.dest_ip", FieldType::Address),
    Field::new("tunnel.proto", FieldType::Text),
    Field::new("tunnel.depth", FieldType::Number),
]);

/// An event about a protocol, from the facts that EVE has.
macro_rules! event {
    ($event:ident, $object:ident, $name:literal, $fields:expr) => {
        #[doc = concat!("An event about ", $name, ".")]
        pub static $event: Schema = const { &$fields }.schema($name);
        #[doc = concat!("The object `", $name, "` of other events.")]
        pub static $object: Schema = const { &$fields.within($name) }.object($name);
    };
}

pub(crate) static ALL: [&Schema; 10] = [&FLOW, &HTTP, &FILEINFO, &DNS, &TLS, &SSH, &SMB, &SMTP, &FTP, &SIP];

/// A flow that ended.
pub(crate) static FLOW: Schema = const {
    &EVENT.and(&[
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
        Field::new("flow.age", FieldType::Duration(Unit::Seconds)),
        Field::new("flow.state", FieldType::Text),
        Field::new("flow.reason", FieldType::Text),
        Field::new("tcp.tcp_flags", FieldType::Text),
        Field::new("tcp.tcp_flags_ts", FieldType::Text),
        Field::new("tcp.tcp_flags_tc", FieldType::Text),
        Field::new("tcp.ts_gap", FieldType::Flag),
        Field::new("tcp.tc_gap", FieldType::Flag),
    ])
}
.schema("flow");

/// EVE names a body as a file, and says nothing of what clients disagree about.
const HTTP_FIELDS: FactFields = EVENT
    .facts(http::Fact::ALL)
    .without(&["http.direction", "http.content_encoding", "http.filename", "http.ambiguous", "http.cut"])
    .and(&[Field::new("http.length", FieldType::Number)]);

// An HTTP request with its response.
event!(HTTP, HTTP_OBJECT, "http", HTTP_FIELDS);

/// A body of HTTP, with the request for it.
pub(crate) static FILEINFO: Schema = const {
    &HTTP_FIELDS.and(&[
        Field::new("app_proto", FieldType::Text),
        Field::new("fileinfo.filename", FieldType::Text),
        Field::new("fileinfo.gaps", FieldType::Flag),
        Field::new("fileinfo.state", FieldType::Text),
        Field::new("fileinfo.sha256", FieldType::Text),
        Field::new("fileinfo.stored", FieldType::Flag),
        Field::new("fileinfo.size", FieldType::Number),
    ])
}
.schema("fileinfo");

// A DNS message: version 3 of these events.
event!(
    DNS,
    DNS_OBJECT,
    "dns",
    EVENT.and(&[
        Field::new("dns.version", FieldType::Number),
        Field::new("dns.type", FieldType::Text),
        Field::new("dns.tx_id", FieldType::Number),
        Field::new("dns.id", FieldType::Number),
        Field::new("dns.flags", FieldType::Text),
        Field::new("dns.qr", FieldType::Flag),
        Field::new("dns.aa", FieldType::Flag),
        Field::new("dns.tc", FieldType::Flag),
        Field::new("dns.rd", FieldType::Flag),
        Field::new("dns.ra", FieldType::Flag),
        Field::new("dns.z", FieldType::Flag),
        Field::new("dns.opcode", FieldType::Number),
        Field::new("dns.rcode", FieldType::Text),
        Field::new("dns.queries", FieldType::Rows(&QUERY)),
        Field::new("dns.answers", FieldType::Rows(&ANSWER)),
        Field::new("dns.authorities", FieldType::Rows(&ANSWER)),
    ])
);

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

event!(
    TLS,
    TLS_OBJECT,
    "tls",
    EVENT.facts(tls::facts::Fact::ALL).without(&["tls.type", "tls.cipher", "tls.subjectaltname"])
);
event!(SMTP, SMTP_OBJECT, "smtp", EVENT.facts(smtp::Fact::ALL).without(&["email"]));
event!(SMB, SMB_OBJECT, "smb", EVENT.facts(smb::Fact::ALL));
event!(FTP, FTP_OBJECT, "ftp", EVENT.facts(ftp::Fact::ALL));

/// What the peers of an SSH connection say of themselves.
pub(crate) static SSH: Schema = const { &EVENT.facts(ssh::Fact::ALL) }.schema("ssh");

/// A message of SIP.
pub(crate) static SIP: Schema = const {
    let other = ["sip.from", "sip.to", "sip.call_id", "sip.user_agent", "sip.content_type"];
    &EVENT.facts(sip::Fact::ALL).without(&other)
}
.schema("sip");
