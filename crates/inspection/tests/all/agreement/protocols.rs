//! What a filter and an alert say of the same protocol, and by which names.

use super::made;
use super::variants::Capture;
use filter::Kind;
use filters::conversations::{self, ftp, sip, ssh};
use filters::{dns, http, http2, smb, smtp, tcp, tls, udp, websocket};
use protocols::conversation::{self, Over};
use std::collections::BTreeSet;

/// A protocol with a filter and with rules.
pub struct Protocol {
    /// Its name in rules.
    pub name: &'static str,
    pub kind: &'static Kind,
    /// The filter's parameters.
    pub params: &'static [(&'static str, &'static str)],
    /// The filters that make its blocks out of frames.
    pub makers: &'static [&'static Kind],
    /// The options of rules that alert on it. An alert has what is known at its time, so several times are needed.
    pub rules: &'static [&'static str],
    /// Bundled captures, and every how many packets a variant is made.
    pub captures: &'static [(&'static str, usize)],
    /// Captures made by hand.
    pub made: &'static [fn() -> Capture],
    pub values: &'static [Value],
}

/// A value that both give.
pub struct Value {
    /// Its names in alerts.
    pub alert: &'static [&'static str],
    /// Its names in records.
    pub record: &'static [&'static str],
    /// Only records that have this text in this field have the value.
    pub only: Option<(&'static str, &'static str)>,
}

/// A value that has the same name in both.
const fn same(name: &'static [&'static str]) -> Value {
    Value { alert: name, record: name, only: None }
}

const fn named(alert: &'static [&'static str], record: &'static [&'static str]) -> Value {
    Value { alert, record, only: None }
}

const fn only(name: &'static [&'static str], field: &'static str, text: &'static str) -> Value {
    Value { only: Some((field, text)), ..same(name) }
}

const STREAMS: &[&Kind] = &[&tcp::KIND];
const DATAGRAMS: &[&Kind] = &[&udp::KIND];
const BOTH: &[&Kind] = &[&udp::KIND, &tcp::KIND];

pub const PROTOCOLS: &[Protocol] = &[
    Protocol {
        name: "dns",
        kind: &dns::KIND,
        // Rules look for it on every port.
        params: &[("ports", "1:5354,5356:65535")],
        makers: BOTH,
        rules: &["dns.opcode:<16;", "app-layer-event:dns.not_a_request;", "app-layer-event:dns.not_a_response;"],
        captures: &[("dns.pcap", 1)],
        made: &[made::dns_over_udp, made::dns_over_tcp, made::dns_behind_junk, made::dns_elsewhere, made::netbios],
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
        name: "llmnr",
        kind: &dns::KIND,
        params: &[("ports", "5355")],
        makers: BOTH,
        rules: &[""],
        captures: &[],
        made: &[made::llmnr],
        values: &[
            named(&["llmnr.type"], &["dns.type"]),
            named(&["llmnr.id"], &["dns.id"]),
            named(&["llmnr.flags"], &["dns.flags"]),
            named(&["llmnr.opcode"], &["dns.opcode"]),
            named(&["llmnr.rcode"], &["dns.rcode"]),
            named(&["llmnr.queries.rrname"], &["dns.rrname", "dns.queries.rrname"]),
            named(&["llmnr.queries.rrtype"], &["dns.rrtype", "dns.queries.rrtype"]),
            named(&["llmnr.answers.rrname"], &["dns.answers.name"]),
            named(&["llmnr.answers.rrtype"], &["dns.answers.rrtype"]),
            named(&["llmnr.answers.ttl"], &["dns.answers.ttl"]),
            named(&["llmnr.answers.a", "llmnr.answers.aaaa", "llmnr.answers.rdata"], &["dns.answers.rdata"]),
        ],
    },
    Protocol {
        name: "tls",
        kind: &tls::KIND,
        params: &[],
        makers: STREAMS,
        rules: &["ja3.hash; bsize:>0;", "ja3s.hash; bsize:>0;", "tls.certs; bsize:>0;"],
        captures: &[("tls.pcap", 1)],
        made: &[
            made::tls_behind_starttls,
            made::tls_behind_an_unknown_protocol,
            made::tls_through_a_proxy,
            made::tls_of_an_unknown_version,
        ],
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
        params: &[],
        makers: &[&udp::KIND],
        rules: &["ja3.hash; bsize:>0;", "quic.cyu.hash; bsize:>0;"],
        captures: &[("quic.pcap", 2)],
        made: &[made::quic_of_two_connections, made::quic_of_google],
        values: &[
            same(&["quic.version"]),
            same(&["quic.sni"]),
            same(&["quic.ja3.hash"]),
            same(&["quic.ja3.string"]),
            same(&["quic.ja4"]),
            same(&["quic.ua"]),
            same(&["quic.cyu.hash"]),
            same(&["quic.cyu.string"]),
        ],
    },
    Protocol {
        name: "ssh",
        kind: &ssh::KIND,
        params: &[],
        makers: STREAMS,
        rules: &["ssh.software; bsize:>0;", "ssh.hassh; bsize:>0;", "ssh.hassh.server; bsize:>0;"],
        captures: &[("ssh.pcap", 3)],
        made: &[],
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
        params: &[],
        makers: STREAMS,
        rules: &["smtp.mail_from; bsize:>0;", "smtp.rcpt_to; bsize:>0;", "file.data; bsize:>0;"],
        captures: &[("smtp.pcap", 3)],
        made: &[],
        values: &[
            same(&["smtp.helo"]),
            same(&["smtp.mail_from"]),
            same(&["smtp.rcpt_to"]),
            same(&["email.from"]),
            same(&["email.subject"]),
            same(&["email.date"]),
            same(&["email.message_id"]),
            same(&["email.x_mailer"]),
        ],
    },
    Protocol {
        name: "smb",
        kind: &smb::KIND,
        params: &[],
        makers: STREAMS,
        rules: &["smb.version:1;", "smb.version:2;", "file.name; bsize:>0;", "file.data; content:\"data\";"],
        captures: &[],
        made: &[made::smb],
        values: &[
            Value { only: Some(("smb.access", "write")), ..named(&["files.filename"], &["smb.filename"]) },
            same(&["smb.command"]),
            same(&["smb.status"]),
            same(&["smb.status_code"]),
            same(&["smb.session_id"]),
            same(&["smb.tree_id"]),
            same(&["smb.filename"]),
            same(&["smb.share"]),
            same(&["smb.named_pipe"]),
        ],
    },
    Protocol {
        name: "ftp",
        kind: &ftp::KIND,
        params: &[],
        makers: STREAMS,
        rules: &["", "ftp.reply_received:yes;", "ftp.completion_code; content:\"22\"; startswith;"],
        captures: &[("ftp.pcap", 7)],
        made: &[],
        values: &[
            same(&["ftp.command"]),
            same(&["ftp.command_data"]),
            same(&["ftp.reply"]),
            same(&["ftp.completion_code"]),
            same(&["ftp.dynamic_port"]),
            same(&["ftp.mode"]),
        ],
    },
    Protocol {
        name: "sip",
        kind: &sip::KIND,
        params: &[],
        makers: BOTH,
        rules: &[""],
        captures: &[("sip.pcap", 1)],
        made: &[],
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
        params: &[],
        makers: STREAMS,
        rules: &["http.method; bsize:>0;", "http.stat_code; bsize:>0;"],
        captures: &[("brotli.pcap", 2)],
        made: &[],
        values: HTTP,
    },
    Protocol {
        name: "http2",
        kind: &http2::KIND,
        params: &[],
        makers: STREAMS,
        rules: &["http.method; bsize:>0;", "http.stat_code; bsize:>0;"],
        captures: &[("http2.pcap", 3)],
        made: &[made::http2_behind_an_upgrade],
        values: HTTP,
    },
    Protocol {
        name: "websocket",
        kind: &websocket::KIND,
        params: &[],
        makers: STREAMS,
        // Later frames of a message are no records.
        rules: &["websocket.opcode:>0;"],
        captures: &[("websocket.pcap", 1)],
        made: &[made::websocket_through_a_proxy],
        values: &[same(&["websocket.opcode"]), same(&["websocket.mask"])],
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

/// The protocols that rules and filters read by nothing but their tables of facts: each fact is a value, and has a rule.
pub fn of_facts() -> Vec<Protocol> {
    let talks = protocols::TALKS.iter().zip(conversations::KINDS);
    let others = talks.filter(|(talk, _)| PROTOCOLS.iter().all(|protocol| protocol.name != talk.app.name()));
    others.map(|(talk, kind)| of_talk(talk, kind)).collect()
}

fn of_talk(talk: &conversation::Protocol, kind: &'static Kind) -> Protocol {
    let fields = talk.facts.iter().flat_map(|about| about.field.into_iter().zip(about.buffer));
    let fields = fields.filter(|(field, buffer)| !field.is_empty() && !buffer.is_empty());
    let rules = talk.facts.iter().flat_map(|about| about.buffer.map(|name| (name, about.kind)));
    let rules = rules.filter(|(name, _)| !name.is_empty()).flat_map(|(name, kind)| match kind.is_number() {
        // An exchange may have each of the numbers at another time.
        true => {
            let each = kind.words().iter().map(|(_, number)| format!("{name}:{number};"));
            each.chain([format!("{name}:>=0;")]).collect()
        }
        false => vec![format!("{name}; bsize:<70000;")],
    });
    Protocol {
        name: talk.app.name(),
        kind,
        params: &[],
        makers: match talk.over {
            Over::Streams => STREAMS,
            Over::Datagrams => DATAGRAMS,
            Over::Both => BOTH,
        },
        rules: rules.map(|rule| &*rule.leak()).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().leak(),
        // The connections of talks.pcap.
        captures: &[],
        made: &[],
        values: fields.map(|(field, _)| same(vec![field].leak())).collect::<Vec<_>>().leak(),
    }
}
