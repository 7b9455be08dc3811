//! Messages of Kerberos 5 (RFC 4120), over UDP and, behind their lengths, over TCP. Each message is an exchange.
//! Encrypted parts are not read.

use crate::app::App;
use crate::carry::Carried;
use crate::conversation::{self, About, Ear, Fed, Id, Kind, Over, Protocol, Run, Side, Talk, Words};
use crate::der::{Der, tag};
use crate::fit::Fit;
use crate::prefixed::{Length, Prefixed, Shape};
use packet::Flow;
use packet::frame::protocol;

/// Messages over TCP.
const MESSAGES: Shape = Shape { most: 64 << 10, length, lost: "krb5 messages cut or given up" };

const TYPES: Words = &[
    ("KRB_AS_REQ", 10),
    ("KRB_AS_REP", 11),
    ("KRB_TGS_REQ", 12),
    ("KRB_TGS_REP", 13),
    ("KRB_AP_REQ", 14),
    ("KRB_AP_REP", 15),
    ("KRB_ERROR", 30),
];

/// Errors that a key distribution centre gives most often (RFC 4120, 7.5.9).
const ERRORS: Words = &[
    ("KDC_ERR_C_PRINCIPAL_UNKNOWN", 6),
    ("KDC_ERR_S_PRINCIPAL_UNKNOWN", 7),
    ("KDC_ERR_POLICY", 12),
    ("KDC_ERR_ETYPE_NOSUPP", 14),
    ("KDC_ERR_CLIENT_REVOKED", 18),
    ("KDC_ERR_KEY_EXPIRED", 23),
    ("KDC_ERR_PREAUTH_FAILED", 24),
    ("KDC_ERR_PREAUTH_REQUIRED", 25),
    ("KRB_AP_ERR_TKT_EXPIRED", 32),
    ("KRB_AP_ERR_SKEW", 37),
    ("KRB_AP_ERR_MODIFIED", 41),
    ("KRB_ERR_RESPONSE_TOO_BIG", 52),
    ("KDC_ERR_WRONG_REALM", 68),
];

/// A fact about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The type.
    Type,
    /// The client, such as `bob`.
    Client,
    /// Its realm, or that of the server in a request.
    Realm,
    /// The server, such as `krbtgt/EXAMPLE.COM`.
    Server,
    /// The reason of an error.
    Error,
}

impl conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About::both("krb5.msg_type", "krb5_msg_type", Kind::Word(TYPES)),
        About::both("krb5.cname", "krb5_cname", Kind::Name),
        About::both("krb5.realm", "krb5.realm", Kind::Name),
        About::both("krb5.sname", "krb5_sname", Kind::Name),
        About::both("krb5.error_code", "krb5_err_code", Kind::Word(ERRORS)),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// A connection, or a flow of datagrams.
#[derive(Debug, Default)]
pub struct Conversation {
    sides: [Prefixed; 2],
    is_datagrams: bool,
    next: u64,
}

impl Talk for Conversation {
    type Fact = Fact;

    const PROTOCOL: Protocol = Protocol {
        probe: Some(|first| {
            let fits = match first.flow.protocol {
                protocol::UDP => is_message(first.bytes),
                _ => first.bytes.get(4..).is_some_and(is_start),
            };
            Fit::of(first.has_port(88) && fits)
        }),
        summary: &["krb5.msg_type", "krb5.cname", "krb5.sname", "krb5.error_code"],
        does: "reads Kerberos messages and gives a record of each",
        help: "Gives a record of each message from or to port 88, over UDP and TCP: `krb5.msg_type` such as KRB_AS_REQ, the client \
               `krb5.cname`, its `krb5.realm`, the server `krb5.sname`, and of an error `krb5.error_code`, such as \
               KDC_ERR_PREAUTH_REQUIRED. Encrypted parts are not read.\n\n\
               Of a message over TCP 64 KiB are read; a side is read up to a gap behind its first bytes.",
        example: ("pcap talks.pcap | udp | krb5", EXAMPLE),
        is_of_sender: true,
        ..Protocol::of(App::Krb5, Over::Both, <Fact as conversation::Fact>::ALL)
    };

    fn new(flow: &Flow) -> Conversation {
        Conversation { is_datagrams: flow.protocol == protocol::UDP, ..Conversation::default() }
    }

    fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        let Conversation { sides, next, .. } = self;
        if self.is_datagrams {
            return if tell(run.bytes, side, next, ear) { Fed::Mine } else { Fed::NotMine };
        }
        let messages = &mut sides[side.index()];
        let fed = if messages.is_over { Fed::NotMine } else { Fed::Mine };
        messages.feed(Id { exchange: *next, side }, run.bytes, &MESSAGES, kept, ear, |message, ear| {
            tell(message.get(4..).unwrap_or_default(), side, next, ear);
            true
        });
        fed
    }

    fn gap(&mut self, side: Side, _missing: u32, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.sides[side.index()].gap("krb5 streams whose rest is not read", kept, ear);
    }

    fn end(&mut self, kept: &Carried, _ear: &mut dyn Ear<Fact>) {
        self.sides.iter_mut().for_each(|side| side.stop(kept));
    }
}

/// Over TCP. The first bit of the length is reserved (RFC 4120, 7.2.2).
fn length(bytes: &[u8]) -> Length {
    match bytes.first_chunk::<4>() {
        Some([0x80..=0xff, ..]) => Length::No,
        Some(length) => Length::Is((u32::from_be_bytes(*length) as usize).saturating_add(4)),
        None => Length::More,
    }
}

/// Tells a message; `false` if it is none.
fn tell(bytes: &[u8], side: Side, next: &mut u64, ear: &mut dyn Ear<Fact>) -> bool {
    let Some((kind, message)) = Der(bytes).next().filter(|_| is_message(bytes)) else { return false };
    let kind = kind & 0x1f;
    conversation::message(next, side, ear, |id, ear| {
        ear.number(id, Fact::Type, kind.into());
        let message = Der(message).expect(tag::SEQUENCE).unwrap_or_default();
        // The numbers of the fields: client, realm, server (5.4, 5.9).
        let (fields, numbers) = match kind {
            10 | 12 => {
                (field(message, 4).and_then(|body| Der(body).expect(tag::SEQUENCE)).unwrap_or_default(), [1, 2, 3])
            }
            11 | 13 => (message, [4, 3, NONE]),
            30 => (message, [8, 9, 10]),
            _ => (message, [NONE; 3]),
        };
        for (fact, number) in [Fact::Client, Fact::Realm, Fact::Server].into_iter().zip(numbers) {
            let value = field(fields, number).and_then(|value| match fact {
                Fact::Realm => Der(value).next().map(|(_, realm)| realm.to_vec()),
                _ => name(value),
            });
            if let Some(value) = value {
                ear.fact(id, fact, &value);
            }
        }
        // The ticket of a reply names its server.
        let ticket = field(message, 5).filter(|_| matches!(kind, 11 | 13)).and_then(|ticket| Der(ticket).next());
        let ticket = ticket.and_then(|(_, ticket)| Der(ticket).expect(tag::SEQUENCE));
        if let Some(server) = ticket.and_then(|ticket| field(ticket, 2)).and_then(name) {
            ear.fact(id, Fact::Server, &server);
        }
        let error = field(message, 6).filter(|_| kind == 30).and_then(|error| Der(error).expect(tag::INTEGER));
        if let Some(&[code]) = error {
            ear.number(id, Fact::Error, code.into());
        }
    });
    true
}

/// No field has this number.
const NONE: u8 = 0x1f;

/// The contents of the field with this number.
fn field(fields: &[u8], number: u8) -> Option<&[u8]> {
    Der(fields).find(|(found, _)| *found == tag::context(number)).map(|(_, contents)| contents)
}

/// A principal's name: its parts with `/` between them (5.2.2).
fn name(value: &[u8]) -> Option<Vec<u8>> {
    let parts = Der(field(Der(value).expect(tag::SEQUENCE)?, 1)?).expect(tag::SEQUENCE)?;
    Some(Der(parts).map(|(_, part)| part).collect::<Vec<_>>().join(&b'/'))
}

/// Whether it is a message. Its tag is the type.
fn is_message(payload: &[u8]) -> bool {
    Der(payload).next().is_some_and(|(tag, inner)| matches!(tag, 0x6a..=0x6f | 0x7e) && inner.first() == Some(&0x30))
}

/// Whether it is the start of a message.
fn is_start(bytes: &[u8]) -> bool {
    matches!(bytes, [0x6a..=0x6f | 0x7e, 0x81..=0x83, ..])
}

const EXAMPLE: &str = r#"{"timestamp":"2026-05-28T20:26:40.320000000Z","flow_id":2279953218929628,"event_type":"krb5","src_ip":"192.0.2.1","src_port":40102,"dest_ip":"192.0.2.2","dest_port":88,"proto":"UDP","krb5":{"msg_type":"KRB_AS_REQ","cname":"bob","realm":"EXAMPLE.COM","sname":"krbtgt/EXAMPLE.COM"}}
{"timestamp":"2026-05-28T20:26:40.330000000Z","flow_id":2279953218929628,"event_type":"krb5","src_ip":"192.0.2.2","src_port":88,"dest_ip":"192.0.2.1","dest_port":40102,"proto":"UDP","krb5":{"msg_type":"KRB_ERROR","realm":"EXAMPLE.COM","sname":"krbtgt/EXAMPLE.COM","error_code":"KDC_ERR_PREAUTH_REQUIRED"}}
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::{check_datagrams, check_talk};

    fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
        [&[tag, contents.len() as u8], contents].concat()
    }

    fn principal(parts: &[&str]) -> Vec<u8> {
        let parts: Vec<u8> = parts.iter().flat_map(|part| der(0x1b, part.as_bytes())).collect();
        der(tag::SEQUENCE, &[der(0xa0, &der(2, &[1])), der(0xa1, &der(tag::SEQUENCE, &parts))].concat())
    }

    fn request() -> Vec<u8> {
        let body = [
            der(0xa1, &principal(&["bob"])),
            der(0xa2, &der(0x1b, b"EXAMPLE.COM")),
            der(0xa3, &principal(&["krbtgt", "EXAMPLE.COM"])),
        ];
        der(0x6a, &der(tag::SEQUENCE, &der(0xa4, &der(tag::SEQUENCE, &body.concat()))))
    }

    const SAID: [&str; 5] = ["Type=10", "Client=bob", "Realm=EXAMPLE.COM", "Server=krbtgt/EXAMPLE.COM", "Complete"];

    #[test]
    fn messages() {
        let check =
            |bytes: &[u8], expected: &[&str]| check_datagrams::<Conversation>(&[(Side::Client, bytes)], expected);
        check(&request(), &SAID);
        let ticket = der(0x61, &der(tag::SEQUENCE, &der(0xa2, &principal(&["cifs", "fs"]))));
        let reply = [der(0xa3, &der(0x1b, b"R")), der(0xa4, &principal(&["bob"])), der(0xa5, &ticket)].concat();
        let said = ["Type=13", "Client=bob", "Realm=R", "Server=cifs/fs", "Complete"];
        check(&der(0x6d, &der(tag::SEQUENCE, &reply)), &said);
        let error = der(0x7e, &der(tag::SEQUENCE, &der(0xa6, &der(2, &[25]))));
        check(&error, &["Type=30", "Error=25", "Complete"]);
        check(b"\x6a\x02\x04\0", &[]);
    }

    #[test]
    fn messages_of_a_stream_behind_a_long_one() {
        let long = [&100_000u32.to_be_bytes()[..], &b"\0\0\0\x04".repeat(25_000)].concat();
        let one = [&(request().len() as u32).to_be_bytes()[..], &request()].concat();
        let said = [&["lost krb5 messages cut or given up"][..], &SAID].concat();
        check_talk::<Conversation>(&[(Side::Client, &[&long[..], &one].concat())], &said);
    }
}
