//! What a filter and an alert say of the same protocol, and by which names.

use filter::Kind;
use filters::{dns, ftp, http, http2, sip, smtp, ssh, tcp, tls, udp};

/// A protocol with a filter and with rules.
pub struct Protocol {
    /// Its name in rules.
    pub name: &'static str,
    pub kind: &'static Kind,
    /// The filters that make its blocks out of frames.
    pub makers: &'static [&'static Kind],
    /// The options of rules that alert on it. An alert has what is known at its time, so several times are needed.
    pub rules: &'static [&'static str],
    /// Bundled captures, and every how many packets a variant is made.
    pub captures: &'static [(&'static str, usize)],
    pub values: &'static [Value],
}

/// A value that both give.
pub struct Value {
    /// Its name in alerts.
    pub alert: &'static [&'static str; 1],
    /// Its names in records.
    pub record: &'static [&'static str],
    /// Only records that have this text in this field have the value.
    pub only: Option<(&'static str, &'static str)>,
}

/// A value that has the same name in both.
const fn same(name: &'static [&'static str; 1]) -> Value {
    Value { alert: name, record: name, only: None }
}

const fn named(alert: &'static [&'static str; 1], record: &'static [&'static str]) -> Value {
    Value { alert, record, only: None }
}

const fn only(name: &'static [&'static str; 1], field: &'static str, text: &'static str) -> Value {
    Value { only: Some((field, text)), ..same(name) }
}

const STREAMS: &[&Kind] = &[&tcp::KIND];
const BOTH: &[&Kind] = &[&udp::KIND, &tcp::KIND];

pub const PROTOCOLS: &[Protocol] = &[
    Protocol {
        name: "dns",
        kind: &dns::KIND,
        makers: BOTH,
        rules: &[""],
        captures: &[("dns.pcap", 1)],
        values: &[
            same(&["dns.type"]),
            same(&["dns.id"]),
            same(&["dns.flags"]),
            same(&["dns.aa"]),
            same(&["dns.tc"]),
            same(&["dns.rd"]),
            same(&["dns.ra"]),
            same(&["dns.z"]),
            same(&["dns.opcode"]),
            same(&["dns.rcode"]),
            named(&["dns.queries.rrname"], &["dns.rrname", "dns.queries.rrname"]),
            named(&["dns.queries.rrtype"], &["dns.rrtype", "dns.queries.rrtype"]),
            named(&["dns.answers.rrname"], &["dns.answers.name"]),
            same(&["dns.answers.rrtype"]),
            same(&["dns.answers.ttl"]),
            same(&["dns.answers.rdata"]),
            named(&["dns.authorities.rrname"], &["dns.authorities.name"]),
            same(&["dns.authorities.rrtype"]),
            same(&["dns.authorities.ttl"]),
            same(&["dns.authorities.rdata"]),
        ],
    },
    Protocol {
        name: "tls",
        kind: &tls::KIND,
        makers: STREAMS,
        rules: &["ja3.hash; bsize:>0;", "ja3s.hash; bsize:>0;", "tls.certs; bsize:>0;"],
        captures: &[("tls.pcap", 1)],
        values: &[
            same(&["tls.sni"]),
            same(&["tls.version"]),
            same(&["tls.client_alpns"]),
            same(&["tls.server_alpns"]),
            same(&["tls.ja3.hash"]),
            same(&["tls.ja3.string"]),
            same(&["tls.ja3s.hash"]),
            same(&["tls.ja3s.string"]),
            same(&["tls.ja4"]),
            same(&["tls.subject"]),
            same(&["tls.issuerdn"]),
            same(&["tls.serial"]),
            same(&["tls.fingerprint"]),
            same(&["tls.notbefore"]),
            same(&["tls.notafter"]),
        ],
    },
    #[cfg(feature = "quic")]
    Protocol {
        name: "quic",
        kind: &filters::quic::KIND,
        makers: &[&udp::KIND],
        rules: &["ja3.hash; bsize:>0;"],
        captures: &[("quic.pcap", 2)],
        values: &[same(&["quic.version"]), same(&["quic.sni"]), same(&["quic.ja4"])],
    },
    Protocol {
        name: "ssh",
        kind: &ssh::KIND,
        makers: STREAMS,
        rules: &["ssh.software; bsize:>0;", "ssh.hassh; bsize:>0;", "ssh.hassh.server; bsize:>0;"],
        captures: &[("ssh.pcap", 3)],
        values: &[
            same(&["ssh.client.proto_version"]),
            same(&["ssh.client.software_version"]),
            same(&["ssh.client.hassh.hash"]),
            same(&["ssh.client.hassh.string"]),
            same(&["ssh.server.proto_version"]),
            same(&["ssh.server.software_version"]),
            same(&["ssh.server.hassh.hash"]),
            same(&["ssh.server.hassh.string"]),
        ],
    },
    Protocol {
        name: "smtp",
        kind: &smtp::KIND,
        makers: STREAMS,
        rules: &["smtp.mail_from; bsize:>0;", "smtp.rcpt_to; bsize:>0;", "file.data; bsize:>0;"],
        captures: &[("smtp.pcap", 3)],
        values: &[same(&["smtp.helo"]), same(&["smtp.mail_from"]), same(&["smtp.rcpt_to"])],
    },
    Protocol {
        name: "ftp",
        kind: &ftp::KIND,
        makers: STREAMS,
        rules: &["", "ftp.reply_received:yes;", "ftp.completion_code; content:\"22\"; startswith;"],
        captures: &[("ftp.pcap", 7)],
        values: &[
            same(&["ftp.command"]),
            same(&["ftp.command_data"]),
            same(&["ftp.reply"]),
            same(&["ftp.completion_code"]),
            same(&["ftp.dynamic_port"]),
        ],
    },
    Protocol {
        name: "sip",
        kind: &sip::KIND,
        makers: BOTH,
        rules: &[""],
        captures: &[("sip.pcap", 1)],
        values: &[
            same(&["sip.method"]),
            same(&["sip.uri"]),
            same(&["sip.version"]),
            same(&["sip.request_line"]),
            same(&["sip.code"]),
            same(&["sip.reason"]),
            same(&["sip.response_line"]),
        ],
    },
    Protocol {
        name: "http1",
        kind: &http::KIND,
        makers: STREAMS,
        rules: &["http.method; bsize:>0;", "http.stat_code; bsize:>0;"],
        captures: &[("brotli.pcap", 2)],
        values: HTTP,
    },
    Protocol {
        name: "http2",
        kind: &http2::KIND,
        makers: STREAMS,
        rules: &["http.method; bsize:>0;", "http.stat_code; bsize:>0;"],
        captures: &[("http2.pcap", 3)],
        values: HTTP,
    },
];

const HTTP: &[Value] = &[
    same(&["http.hostname"]),
    same(&["http.url"]),
    same(&["http.http_user_agent"]),
    only(&["http.http_content_type"], "http.direction", "response"),
    same(&["http.http_refer"]),
    same(&["http.http_method"]),
    only(&["http.protocol"], "http.direction", "request"),
    same(&["http.status"]),
];
