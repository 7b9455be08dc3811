//! The names that rules may use: buffers and numbers of packets and application transactions, one line each, and those
//! that the facts of [`protocols::TALKS`] have. Rules with other names are unsupported.

pub use protocols::app::App;

use protocols::conversation;

/// Where a buffer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Any packet.
    Packet,
    /// Transactions of this protocol.
    App(App),
    /// Transactions of either protocol.
    Either(App, App),
    /// Transactions of any protocol.
    AnyApp,
}

/// The side that has a buffer or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the server.
    Request,
    /// To the client.
    Response,
    /// Both sides.
    Both,
}

/// A buffer: an index into [`BUFFERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Buffer(pub u16);

/// The properties of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name in rules.
    pub name: &'static str,
    /// Its name as a modifier behind a content, in older rules; empty: none.
    pub modifier: &'static str,
    /// Where it comes from.
    pub origin: Origin,
    /// The side that has it.
    pub way: Way,
}

/// Declares a constant for each buffer, and their table.
macro_rules! buffers {
    ($($id:ident $name:literal $modifier:literal $origin:expr, $way:ident;)*) => {
        const NAMED: &[About] = &[
            $(About { name: $name, modifier: $modifier, origin: $origin, way: Way::$way },)*
        ];
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Index { $($id),* }
        impl Buffer {
            $(#[doc = concat!("`", $name, "`.")] pub const $id: Buffer = Buffer(Index::$id as u16);)*
        }
    };
}

/// The buffers of a protocol's facts, by the number of the fact: what its client says, and what its server says. A name
/// that no buffer has is a mistake in the program.
pub const fn of_facts<const N: usize>(facts: &[conversation::About]) -> [[Option<Buffer>; 2]; N] {
    let mut buffers = [[None; 2]; N];
    let mut at = 0;
    while at < 2 * N && at < 2 * facts.len() {
        let about = &facts[at / 2];
        let name = about.buffer[at % 2];
        if !name.is_empty() && !about.kind.is_number() {
            buffers[at / 2][at % 2] = Some(buffer(name));
        }
        at += 1;
    }
    buffers
}

const fn buffer(name: &str) -> Buffer {
    match find(&ALL_BUFFERS.0, ALL_BUFFERS.1, name) {
        Some(number) => Buffer(number as u16),
        None => panic!("no buffer has this name"),
    }
}

const fn find(buffers: &[About; MOST], count: usize, name: &str) -> Option<usize> {
    let mut number = 0;
    while number < count {
        if is_same(buffers[number].name.as_bytes(), name.as_bytes()) {
            return Some(number);
        }
        number += 1;
    }
    None
}

/// Most buffers, and most numbers.
const MOST: usize = 320;

/// All buffers, and how many there are.
static ALL_BUFFERS: ([About; MOST], usize) = all_buffers();

/// All buffers.
pub static BUFFERS: &[About] = ALL_BUFFERS.0.split_at(ALL_BUFFERS.1).0;

/// The buffers of `NAMED`, and those that only facts of conversations name.
const fn all_buffers() -> ([About; MOST], usize) {
    let (mut all, mut count) = ([NAMED[0]; MOST], 0);
    while count < NAMED.len() {
        all[count] = NAMED[count];
        count += 1;
    }
    let mut at = 0;
    while at < protocols::TALKS.len() {
        let conversation::Protocol { app, facts, .. } = protocols::TALKS[at];
        let mut fact = 0;
        while fact < 2 * facts.len() {
            let conversation::About { buffer, kind, .. } = facts[fact / 2];
            let name = buffer[fact % 2];
            if !name.is_empty() && !kind.is_number() && find(&all, count, name).is_none() {
                all[count] = About { name, modifier: "", origin: Of(app), way: way(buffer) };
                count += 1;
            }
            fact += 1;
        }
        at += 1;
    }
    (all, count)
}

/// The sides that say a fact, by its names.
const fn way([client, server]: [&str; 2]) -> Way {
    match (client.is_empty(), server.is_empty()) {
        (false, true) => Way::Request,
        (true, false) => Way::Response,
        _ if is_same(client.as_bytes(), server.as_bytes()) => Way::Both,
        _ => Way::Request,
    }
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

use Origin::{AnyApp, App as Of, Either, Packet};

buffers! {
    IPV4_HDR "ipv4.hdr" "" Packet, Both;
    IPV6_HDR "ipv6.hdr" "" Packet, Both;
    TCP_HDR "tcp.hdr" "" Packet, Both;
    UDP_HDR "udp.hdr" "" Packet, Both;
    ICMPV4_HDR "icmpv4.hdr" "" Packet, Both;
    ICMPV6_HDR "icmpv6.hdr" "" Packet, Both;
    IGMP_HDR "igmp.hdr" "" Packet, Both;
    SCTP_HDR "sctp.hdr" "" Packet, Both;
    SCTP_CHUNK_DATA "sctp.chunk_data" "" Packet, Both;
    IP_SRC "ip.src" "" Packet, Both;
    IP_DST "ip.dst" "" Packet, Both;
    ETHER_HDR "ether.hdr" "" Packet, Both;
    HTTP_URI "http.uri" "http_uri" Of(App::Http), Request;
    HTTP_URI_RAW "http.uri.raw" "http_raw_uri" Of(App::Http), Request;
    HTTP_METHOD "http.method" "http_method" Of(App::Http), Request;
    HTTP_USER_AGENT "http.user_agent" "http_user_agent" Of(App::Http), Request;
    HTTP_HOST "http.host" "http_host" Of(App::Http), Request;
    HTTP_HOST_RAW "http.host.raw" "http_raw_host" Of(App::Http), Request;
    HTTP_REQUEST_BODY "http.request_body" "http_client_body" Of(App::Http), Request;
    HTTP_REQUEST_LINE "http.request_line" "http_request_line" Of(App::Http), Request;
    HTTP_REQUEST_HEADER "http.request_header" "" Of(App::Http), Request;
    HTTP_REFERER "http.referer" "http_referer" Of(App::Http), Request;
    HTTP_ACCEPT "http.accept" "http_accept" Of(App::Http), Request;
    HTTP_ACCEPT_LANG "http.accept_lang" "http_accept_lang" Of(App::Http), Request;
    HTTP_ACCEPT_ENC "http.accept_enc" "http_accept_enc" Of(App::Http), Request;
    HTTP_HEADER "http.header" "http_header" Of(App::Http), Both;
    HTTP_HEADER_RAW "http.header.raw" "http_raw_header" Of(App::Http), Both;
    HTTP_HEADER_NAMES "http.header_names" "http_header_names" Of(App::Http), Both;
    HTTP_COOKIE "http.cookie" "http_cookie" Of(App::Http), Both;
    HTTP_PROTOCOL "http.protocol" "http_protocol" Of(App::Http), Both;
    HTTP_START "http.start" "http_start" Of(App::Http), Both;
    HTTP_CONTENT_TYPE "http.content_type" "http_content_type" Of(App::Http), Both;
    HTTP_CONTENT_LEN "http.content_len" "http_content_len" Of(App::Http), Both;
    HTTP_CONNECTION "http.connection" "http_connection" Of(App::Http), Both;
    HTTP_STAT_CODE "http.stat_code" "http_stat_code" Of(App::Http), Response;
    HTTP_STAT_MSG "http.stat_msg" "http_stat_msg" Of(App::Http), Response;
    HTTP_RESPONSE_LINE "http.response_line" "http_response_line" Of(App::Http), Response;
    HTTP_RESPONSE_BODY "http.response_body" "http_server_body" Of(App::Http), Response;
    HTTP_RESPONSE_HEADER "http.response_header" "" Of(App::Http), Response;
    HTTP_SERVER "http.server" "http_server" Of(App::Http), Response;
    HTTP_LOCATION "http.location" "http_location" Of(App::Http), Response;
    FILE_DATA "file.data" "" AnyApp, Both;
    FILE_NAME "file.name" "" AnyApp, Both;
    FILE_MD5 "file md5" "" AnyApp, Both;
    FILE_SHA1 "file sha1" "" AnyApp, Both;
    FILE_SHA256 "file sha256" "" AnyApp, Both;
    FILE_SIZE "file size" "" AnyApp, Both;
    DNS_QUERY "dns.query" "" Of(App::Dns), Request;
    DNS_QUERIES_RRNAME "dns.queries.rrname" "" Of(App::Dns), Both;
    DNS_ANSWERS_RRNAME "dns.answers.rrname" "" Of(App::Dns), Response;
    DNS_AUTHORITIES_RRNAME "dns.authorities.rrname" "" Of(App::Dns), Response;
    DNS_ADDITIONALS_RRNAME "dns.additionals.rrname" "" Of(App::Dns), Response;
    DNS_RESPONSE_RRNAME "dns.response.rrname" "" Of(App::Dns), Response;
    LLMNR_QUERIES_RRNAME "llmnr.queries.rrname" "" Of(App::Llmnr), Both;
    LLMNR_ANSWERS_RRNAME "llmnr.answers.rrname" "" Of(App::Llmnr), Response;
    LLMNR_AUTHORITIES_RRNAME "llmnr.authorities.rrname" "" Of(App::Llmnr), Response;
    LLMNR_ADDITIONALS_RRNAME "llmnr.additionals.rrname" "" Of(App::Llmnr), Response;
    LLMNR_RESPONSE_RRNAME "llmnr.response.rrname" "" Of(App::Llmnr), Response;
    TLS_SNI "tls.sni" "" Of(App::Tls), Request;
    TLS_CERT_SUBJECT "tls.cert_subject" "" Of(App::Tls), Both;
    TLS_CERT_ISSUER "tls.cert_issuer" "" Of(App::Tls), Both;
    TLS_CERT_SERIAL "tls.cert_serial" "" Of(App::Tls), Both;
    TLS_CERT_FINGERPRINT "tls.cert_fingerprint" "" Of(App::Tls), Both;
    TLS_CERTS "tls.certs" "" Of(App::Tls), Both;
    TLS_SUBJECTALTNAME "tls.subjectaltname" "" Of(App::Tls), Both;
    TLS_ALPN "tls.alpn" "" Of(App::Tls), Both;
    TLS_VERSION "tls.version" "" Of(App::Tls), Both;
    TLS_RANDOM "tls.random" "" Of(App::Tls), Both;
    TLS_RANDOM_TIME "tls.random_time" "" Of(App::Tls), Both;
    TLS_RANDOM_BYTES "tls.random_bytes" "" Of(App::Tls), Both;
    JA3_HASH "ja3.hash" "" Either(App::Tls, App::Quic), Request;
    JA3_STRING "ja3.string" "" Either(App::Tls, App::Quic), Request;
    JA3S_HASH "ja3s.hash" "" Either(App::Tls, App::Quic), Response;
    JA3S_STRING "ja3s.string" "" Either(App::Tls, App::Quic), Response;
    JA4_HASH "ja4.hash" "" Either(App::Tls, App::Quic), Request;
    SSH_SOFTWARE "ssh.software" "" Of(App::Ssh), Both;
    SSH_HASSH_SERVER "ssh.hassh.server" "" Of(App::Ssh), Response;
    SSH_HASSH_SERVER_STRING "ssh.hassh.server.string" "" Of(App::Ssh), Response;
    SMTP_HELO "smtp.helo" "" Of(App::Smtp), Request;
    SMTP_MAIL_FROM "smtp.mail_from" "" Of(App::Smtp), Request;
    SMTP_RCPT_TO "smtp.rcpt_to" "" Of(App::Smtp), Request;
    EMAIL_FROM "email.from" "" Of(App::Smtp), Request;
    EMAIL_TO "email.to" "" Of(App::Smtp), Request;
    EMAIL_CC "email.cc" "" Of(App::Smtp), Request;
    EMAIL_SUBJECT "email.subject" "" Of(App::Smtp), Request;
    EMAIL_DATE "email.date" "" Of(App::Smtp), Request;
    EMAIL_MESSAGE_ID "email.message_id" "" Of(App::Smtp), Request;
    EMAIL_X_MAILER "email.x_mailer" "" Of(App::Smtp), Request;
    FTP_COMMAND "ftp.command" "" Of(App::Ftp), Request;
    FTP_REPLY "ftp.reply" "" Of(App::Ftp), Response;
    FTP_COMPLETION_CODE "ftp.completion_code" "" Of(App::Ftp), Response;
    RFB_NAME "rfb.name" "" Of(App::Rfb), Both;
    NTP_REFERENCE_ID "ntp.reference_id" "" Of(App::Ntp), Both;
    HTTP2_HEADER_NAME "http2.header_name" "" Of(App::Http2), Both;
    HTTP2_HEADER "http2.header" "" Of(App::Http2), Both;
    HTTP2_ERROR_NAME "http2 error name" "" Of(App::Http2), Both;
    WEBSOCKET_PAYLOAD "websocket.payload" "" Of(App::WebSocket), Both;
    QUIC_VERSION "quic.version" "" Of(App::Quic), Both;
    QUIC_SNI "quic.sni" "" Of(App::Quic), Request;
    QUIC_UA "quic.ua" "" Of(App::Quic), Request;
    QUIC_CYU_HASH "quic.cyu.hash" "" Of(App::Quic), Request;
    QUIC_CYU_STRING "quic.cyu.string" "" Of(App::Quic), Request;
    DCERPC_STUB_DATA "dcerpc.stub_data" "" Of(App::Dcerpc), Both;
    DCERPC_INTERFACE "dcerpc interface" "" Of(App::Dcerpc), Both;
    SMB_NAMED_PIPE "smb.named_pipe" "" Of(App::Smb), Request;
    SMB_SHARE "smb.share" "" Of(App::Smb), Request;
    FRAME_HTTP2_HDR "frame http2.hdr" "" Of(App::Http2), Both;
    FRAME_HTTP2_DATA "frame http2.data" "" Of(App::Http2), Both;
    FRAME_HTTP2_PDU "frame http2.pdu" "" Of(App::Http2), Both;
    FRAME_WEBSOCKET_HEADER "frame websocket.header" "" Of(App::WebSocket), Both;
    FRAME_WEBSOCKET_DATA "frame websocket.data" "" Of(App::WebSocket), Both;
    FRAME_WEBSOCKET_PDU "frame websocket.pdu" "" Of(App::WebSocket), Both;
    FRAME_SSH_HDR "frame ssh.record.hdr" "" Of(App::Ssh), Both;
    FRAME_SSH_DATA "frame ssh.record.data" "" Of(App::Ssh), Both;
    FRAME_SSH_PDU "frame ssh.record.pdu" "" Of(App::Ssh), Both;
    FRAME_DCERPC_HDR "frame dcerpc.hdr" "" Of(App::Dcerpc), Both;
    FRAME_DCERPC_DATA "frame dcerpc.data" "" Of(App::Dcerpc), Both;
    FRAME_DCERPC_PDU "frame dcerpc.pdu" "" Of(App::Dcerpc), Both;
}

const ALIASES: &[(&str, &str)] = &[
    ("file_data", "file.data"),
    ("dns_query", "dns.query"),
    ("filename", "file.name"),
    ("tls_sni", "tls.sni"),
    ("ja3_hash", "ja3.hash"),
    ("ja3_string", "ja3.string"),
    ("tls_cert_subject", "tls.cert_subject"),
    ("tls_cert_issuer", "tls.cert_issuer"),
    ("tls_cert_serial", "tls.cert_serial"),
    ("tls_cert_fingerprint", "tls.cert_fingerprint"),
    ("ssh_proto", "ssh.proto"),
    ("ssh_software", "ssh.software"),
    ("http_header_names", "http.header_names"),
    ("dce_stub_data", "dcerpc.stub_data"),
    ("smb_named_pipe", "smb.named_pipe"),
    ("smb_share", "smb.share"),
];

impl Buffer {
    /// The buffer's properties.
    pub fn about(self) -> &'static About {
        &BUFFERS[usize::from(self.0)]
    }

    /// The buffer that a keyword before contents names.
    pub fn of_name(name: &str) -> Option<Buffer> {
        let name = ALIASES.iter().find(|alias| alias.0 == name).map_or(name, |alias| alias.1);
        BUFFERS.iter().position(|about| about.name == name).map(|at| Buffer(at as u16))
    }

    /// The buffer that a modifier behind a content names.
    pub fn of_modifier(name: &str) -> Option<Buffer> {
        BUFFERS.iter().position(|about| !name.is_empty() && about.modifier == name).map(|at| Buffer(at as u16))
    }
}

/// A number of a transaction: an index into [`NUMBERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Number(pub u8);

/// The properties of a number.
#[derive(Clone, Copy, Debug)]
pub struct AboutNumber {
    /// Its name in rules.
    pub name: &'static str,
    /// The protocol that has it.
    pub app: App,
    /// The side that has it.
    pub way: Way,
    /// Its width in bits.
    pub bits: u32,
    /// Names for some of its values.
    pub words: &'static [(&'static str, u64)],
}

/// Declares a constant for each number, and their table.
macro_rules! numbers {
    ($($id:ident $name:literal $app:ident, $way:ident, $bits:literal, $words:expr;)*) => {
        const NAMED_NUMBERS: &[AboutNumber] = &[
            $(AboutNumber { name: $name, app: App::$app, way: Way::$way, bits: $bits, words: $words },)*
        ];
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum NumberPlace { $($id),* }
        impl Number {
            $(#[doc = concat!("`", $name, "`.")] pub const $id: Number = Number(NumberPlace::$id as u8);)*
        }
    };
}

const RR_TYPES: &[(&str, u64)] =
    &[("A", 1), ("NS", 2), ("CNAME", 5), ("SOA", 6), ("PTR", 12), ("MX", 15), ("TXT", 16), ("AAAA", 28), ("SRV", 33)];
const RFB_RESULTS: &[(&str, u64)] = &[("ok", 0), ("fail", 1), ("toomany", 2), ("unknown", 3)];
const HTTP2_FRAMES: &[(&str, u64)] = &[
    ("DATA", 0),
    ("HEADERS", 1),
    ("PRIORITY", 2),
    ("RSTSTREAM", 3),
    ("RST_STREAM", 3),
    ("SETTINGS", 4),
    ("PUSHPROMISE", 5),
    ("PUSH_PROMISE", 5),
    ("PING", 6),
    ("GOAWAY", 7),
    ("WINDOWUPDATE", 8),
    ("WINDOW_UPDATE", 8),
    ("CONTINUATION", 9),
];
/// HTTP/2 error codes (RFC 9113, 7).
pub const HTTP2_ERRORS: &[(&str, u64)] = &[
    ("NO_ERROR", 0),
    ("PROTOCOL_ERROR", 1),
    ("INTERNAL_ERROR", 2),
    ("FLOW_CONTROL_ERROR", 3),
    ("SETTINGS_TIMEOUT", 4),
    ("STREAM_CLOSED", 5),
    ("FRAME_SIZE_ERROR", 6),
    ("REFUSED_STREAM", 7),
    ("CANCEL", 8),
    ("COMPRESSION_ERROR", 9),
    ("CONNECT_ERROR", 10),
    ("ENHANCE_YOUR_CALM", 11),
    ("INADEQUATE_SECURITY", 12),
    ("HTTP_1_1_REQUIRED", 13),
    ("HTTP11_REQUIRED", 13),
];
const WEBSOCKET_FLAGS: &[(&str, u64)] = &[("fin", 0x80), ("comp", 0x40)];
const YES_NO: &[(&str, u64)] = &[("yes", 1), ("on", 1), ("true", 1), ("no", 0), ("off", 0), ("false", 0)];

numbers! {
    DNS_OPCODE "dns.opcode" Dns, Both, 8, &[];
    DNS_RCODE "dns.rcode" Dns, Response, 16, &[];
    DNS_RRTYPE "dns.rrtype" Dns, Both, 16, RR_TYPES;
    TLS_CERT_CHAIN_LEN "tls.cert_chain_len" Tls, Both, 32, &[];
    SNMP_VERSION "snmp.version" Snmp, Both, 32, &[];
    SNMP_PDU_TYPE "snmp.pdu_type" Snmp, Both, 32, protocols::snmp::TYPES;
    SNMP_TRAP_TYPE "snmp.trap_type" Snmp, Both, 32, protocols::snmp::TRAPS;
    MQTT_TYPE "mqtt.type" Mqtt, Both, 8, protocols::mqtt::TYPES;
    MQTT_REASON_CODE "mqtt.reason_code" Mqtt, Both, 8, &[];
    MQTT_PROTOCOL_VERSION "mqtt.protocol_version" Mqtt, Both, 8, &[];
    RFB_SECTYPE "rfb.sectype" Rfb, Both, 32, &[];
    RFB_SECRESULT "rfb.secresult" Rfb, Both, 32, RFB_RESULTS;
    DHCP_LEASETIME "dhcp.leasetime" Dhcp, Both, 64, &[];
    DHCP_REBINDING_TIME "dhcp.rebinding_time" Dhcp, Both, 64, &[];
    DHCP_RENEWAL_TIME "dhcp.renewal_time" Dhcp, Both, 64, &[];
    KRB5_MSG_TYPE "krb5_msg_type" Krb5, Both, 32, &[];
    FTP_REPLY_RECEIVED "ftp.reply_received" Ftp, Both, 8, YES_NO;
    NTP_VERSION "ntp.version" Ntp, Both, 8, &[];
    NTP_MODE "ntp.mode" Ntp, Both, 8, &[];
    NTP_STRATUM "ntp.stratum" Ntp, Both, 8, &[];
    FTP_DYNAMIC_PORT "ftp.dynamic_port" Ftp, Both, 16, &[];
    HTTP2_FRAMETYPE "http2.frametype" Http2, Both, 8, HTTP2_FRAMES;
    HTTP2_ERRORCODE "http2.errorcode" Http2, Both, 32, HTTP2_ERRORS;
    HTTP2_PRIORITY "http2.priority" Http2, Both, 8, &[];
    HTTP2_WINDOW "http2.window" Http2, Both, 32, &[];
    HTTP2_SIZE_UPDATE "http2.size_update" Http2, Both, 64, &[];
    HTTP2_SETTING_1 "http2 settings_header_table_size" Http2, Both, 32, &[];
    HTTP2_SETTING_2 "http2 settings_enable_push" Http2, Both, 32, &[];
    HTTP2_SETTING_3 "http2 settings_max_concurrent_streams" Http2, Both, 32, &[];
    HTTP2_SETTING_4 "http2 settings_initial_window_size" Http2, Both, 32, &[];
    HTTP2_SETTING_5 "http2 settings_max_frame_size" Http2, Both, 32, &[];
    HTTP2_SETTING_6 "http2 settings_max_header_list_size" Http2, Both, 32, &[];
    WEBSOCKET_OPCODE "websocket.opcode" WebSocket, Both, 8, protocols::websocket::OPCODES;
    WEBSOCKET_MASK "websocket.mask" WebSocket, Both, 32, &[];
    WEBSOCKET_FLAGS "websocket.flags" WebSocket, Both, 8, WEBSOCKET_FLAGS;
    DCERPC_OPNUM "dcerpc.opnum" Dcerpc, Both, 16, &[];
    IKE_EXCHTYPE "ike.exchtype" Ike, Both, 8, &[];
    IKE_NOTIFY_TYPE "ike.notify_type" Ike, Both, 16, &[];
    IKE_KEY_EXCHANGE_PAYLOAD_LENGTH "ike.key_exchange_payload_length" Ike, Both, 32, &[];
    IKE_NONCE_PAYLOAD_LENGTH "ike.nonce_payload_length" Ike, Both, 32, &[];
    SMB_VERSION "smb.version" Smb, Both, 8, &[];
    FTPDATA_COMMAND "ftpdata_command" FtpData, Both, 8, &[("retr", 1), ("stor", 2)];
}

/// All numbers, and how many there are.
static ALL_NUMBERS: ([AboutNumber; MOST], usize) = all_numbers();

/// All numbers.
pub static NUMBERS: &[AboutNumber] = ALL_NUMBERS.0.split_at(ALL_NUMBERS.1).0;

/// The numbers of `NAMED_NUMBERS`, and those that only facts of conversations name.
const fn all_numbers() -> ([AboutNumber; MOST], usize) {
    let (mut all, mut count) = ([NAMED_NUMBERS[0]; MOST], 0);
    while count < NAMED_NUMBERS.len() {
        all[count] = NAMED_NUMBERS[count];
        count += 1;
    }
    let mut at = 0;
    while at < protocols::TALKS.len() {
        let conversation::Protocol { app, facts, .. } = protocols::TALKS[at];
        let mut fact = 0;
        while fact < 2 * facts.len() {
            let conversation::About { buffer, kind, .. } = facts[fact / 2];
            let name = buffer[fact % 2];
            if !name.is_empty() && kind.is_number() && find_number(&all, count, name).is_none() {
                all[count] = AboutNumber { name, app, way: way(buffer), bits: 64, words: kind.words() };
                count += 1;
            }
            fact += 1;
        }
        at += 1;
    }
    (all, count)
}

const fn find_number(numbers: &[AboutNumber; MOST], count: usize, name: &str) -> Option<usize> {
    let mut number = 0;
    while number < count {
        if is_same(numbers[number].name.as_bytes(), name.as_bytes()) {
            return Some(number);
        }
        number += 1;
    }
    None
}

/// The numbers of a protocol's facts, as [`of_facts`] gives the buffers.
pub const fn numbers_of_facts<const N: usize>(facts: &[conversation::About]) -> [[Option<Number>; 2]; N] {
    let mut numbers = [[None; 2]; N];
    let mut at = 0;
    while at < 2 * N && at < 2 * facts.len() {
        let about = &facts[at / 2];
        let name = about.buffer[at % 2];
        if !name.is_empty() && about.kind.is_number() {
            numbers[at / 2][at % 2] = match find_number(&ALL_NUMBERS.0, ALL_NUMBERS.1, name) {
                Some(number) => Some(Number(number as u8)),
                None => panic!("no number has this name"),
            };
        }
        at += 1;
    }
    numbers
}

impl Number {
    /// The number's properties.
    pub fn about(self) -> &'static AboutNumber {
        &NUMBERS[usize::from(self.0)]
    }

    /// The number with this name.
    pub fn of_name(name: &str) -> Option<Number> {
        let name = if name == "dce_opnum" { "dcerpc.opnum" } else { name };
        NUMBERS.iter().position(|about| about.name == name).map(|at| Number(at as u8))
    }
}

/// Events that the caller may report, by the option that names them. A rule on any other event is rejected: it could
/// never match.
pub const EVENTS: &[(&str, &[&str])] = &[
    ("decode-event", crate::events::DECODE),
    ("stream-event", crate::events::STREAM),
    (
        "app-layer-event",
        &[
            "dns.malformed_data",
            "dns.not_a_request",
            "dns.not_a_response",
            "dns.z_flag_set",
            "dns.invalid_opcode",
            "dns.invalid_additionals",
            "dns.invalid_authorities",
            "llmnr.invalid_opcode",
            "http2.authority_host_mismatch",
            "http2.userinfo_in_uri",
            "smb.file_overlap",
            "applayer_detect_protocol_only_one_direction",
            "applayer_mismatch_protocol_both_directions",
            "applayer_no_tls_after_starttls",
            "applayer_proto_detection_skipped",
            "applayer_wrong_direction_first_data",
            "dhcp.malformed_options",
            "dhcp.truncated_options",
            "ftp.request_command_too_long",
            "ftp.response_command_too_long",
            "ftp.too_many_transactions",
            "http.100_continue_already_seen",
            "http.abnormal_ce_header",
            "http.double_encoded_uri",
            "http.duplicate_content_length_field_in_request",
            "http.duplicate_content_length_field_in_response",
            "http.host_header_ambiguous",
            "http.invalid_content_length_field_in_request",
            "http.invalid_content_length_field_in_response",
            "http.invalid_request_field_folding",
            "http.invalid_response_field_folding",
            "http.invalid_transfer_encoding_value_in_request",
            "http.invalid_transfer_encoding_value_in_response",
            "http.method_delim_non_compliant",
            "http.missing_host_header",
            "http.range_invalid",
            "http.request_auth_unrecognized",
            "http.request_field_missing_colon",
            "http.request_field_too_long",
            "http.request_header_host_invalid",
            "http.request_header_invalid",
            "http.request_header_repetition",
            "http.request_line_leading_whitespace",
            "http.request_uri_host_invalid",
            "http.response_abnormal_transfer_encoding",
            "http.response_chunked_old_proto",
            "http.response_field_missing_colon",
            "http.response_field_too_long",
            "http.response_header_invalid",
            "http.response_header_repetition",
            "http.response_invalid_protocol",
            "http.response_invalid_status",
            "http.too_many_encoding_layers",
            "http.unable_to_match_response_to_request",
            "http.uri_delim_non_compliant",
            "mqtt.double_connect",
            "mqtt.invalid_qos_level",
            "mqtt.malformed_traffic",
            "mqtt.missing_connect",
            "mqtt.missing_msg_id",
            "mqtt.missing_publish",
            "mqtt.missing_subscribe",
            "mqtt.missing_unsubscribe",
            "mqtt.unassigned_msg_type",
            "mqtt.unintroduced_message",
            "rfb.unimplemented_security_type",
            "rfb.unknown_security_result",
            "smtp.bdat_chunk_len_exceeded",
            "smtp.data_command_rejected",
            "smtp.invalid_reply",
            "smtp.max_command_line_len_exceeded",
            "smtp.max_reply_line_len_exceeded",
            "smtp.no_server_welcome_message",
            "smtp.tls_rejected",
            "smtp.unable_to_match_reply_with_request",
            "ssh.invalid_banner",
            "ssh.invalid_record",
            "ssh.long_banner",
            "tls.certificate_invalid_length",
            "tls.certificate_invalid_string",
            "tls.certificate_missing_element",
            "tls.certificate_unknown_element",
            "tls.dataleak_heartbeat_mismatch",
            "tls.error_message_encountered",
            "tls.handshake_invalid_length",
            "tls.heartbeat_message",
            "tls.invalid_certificate",
            "tls.invalid_handshake_message",
            "tls.invalid_heartbeat_message",
            "tls.invalid_record_type",
            "tls.invalid_record_version",
            "tls.invalid_sni_length",
            "tls.invalid_sni_type",
            "tls.invalid_ssl_record",
            "tls.invalid_sslv2_header",
            "tls.invalid_tls_header",
            "tls.multiple_sni_extensions",
            "tls.overflow_heartbeat_message",
            "tls.too_many_records_in_packet",
        ],
    ),
];

const BODIES: [Buffer; 4] =
    [Buffer::HTTP_REQUEST_BODY, Buffer::HTTP_RESPONSE_BODY, Buffer::FILE_DATA, Buffer::DCERPC_STUB_DATA];

pub(crate) fn is_body(buffer: Buffer) -> bool {
    BODIES.contains(&buffer)
}
