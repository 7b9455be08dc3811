//! The first messages of RDP (MS-RDPBCGR, 2.2.1.1 and 2.2.1.2): a connection request with a cookie, and the protocols that both
//! sides offer and choose. A connection is one exchange; what follows is encrypted most of the time, and not read.

use crate::app::App;
use crate::carry::Carried;
use crate::conversation::{self, About, Ear, Fed, How, Id, Kind, Over, Protocol, Run, Side, Talk, Words};
use crate::fit::Fit;
use crate::prefixed::{Length, Prefixed, Shape};
use packet::Flow;

const MESSAGES: Shape = Shape { most: 4096, length, lost: "rdp requests cut or given up" };

/// A connection request, and its confirmation (X.224).
const REQUEST: u8 = 0xe0;
const CONFIRM: u8 = 0xd0;

/// Security protocols that a server chooses.
const PROTOCOLS: Words = &[("rdp", 0), ("ssl", 1), ("hybrid", 2), ("rdstls", 4), ("hybrid_ex", 8), ("rdsaad", 16)];

/// Why it refuses.
const FAILURES: Words = &[
    ("ssl_required", 1),
    ("ssl_not_allowed", 2),
    ("ssl_cert_missing", 3),
    ("inconsistent_flags", 4),
    ("hybrid_required", 5),
    ("ssl_with_user_auth_required", 6),
];

/// A fact about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The name in the client's cookie, or a token for balancing.
    Cookie,
    /// The protocols that it offers, added.
    Requested,
    /// The one that the server chooses.
    Protocol,
    /// Why it refuses.
    Failure,
}

impl conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About::client("rdp.cookie", "rdp.cookie", Kind::Name),
        About::client("rdp.requested", "rdp.requested", Kind::Number),
        About::server("rdp.protocol", "rdp.protocol", Kind::Word(PROTOCOLS)),
        About::server("rdp.failure", "rdp.failure", Kind::Word(FAILURES)),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// A connection.
#[derive(Debug, Default)]
pub struct Conversation {
    sides: [Prefixed; 2],
    has_begun: bool,
}

impl Talk for Conversation {
    type Fact = Fact;

    const PROTOCOL: Protocol = Protocol {
        probe: Some(|first| match *first.bytes {
            [3, 0, _, _, _, kind, ..] => Fit::of(kind == if first.to_server { REQUEST } else { CONFIRM }),
            [] | [3] | [3, 0, ..] if first.bytes.len() < 6 => Fit::More,
            _ => Fit::No,
        }),
        summary: &["rdp.cookie", "rdp.protocol", "rdp.failure"],
        does: "reads requests of RDP connections and gives a record of each",
        help: "Finds RDP by its first bytes on any port, and gives a record of a connection when the server has confirmed it. \
               `rdp.cookie` is the name in the client's cookie, `rdp.requested` the sum of the security protocols that it offers. \
               `rdp.protocol` is the one that the server chooses: rdp, ssl, hybrid, rdstls, hybrid_ex or rdsaad. If the server \
               refuses, `rdp.failure` says why. The filter passes the rest over; `tls` reads it, except of the protocol rdp.",
        example: ("pcap talks.pcap | rdp", EXAMPLE),
        ..Protocol::of(App::Rdp, Over::Streams, <Fact as conversation::Fact>::ALL)
    };

    fn new(_flow: &Flow) -> Conversation {
        Conversation::default()
    }

    fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        let Conversation { sides, has_begun } = self;
        let messages = &mut sides[side.index()];
        let fed = if messages.is_over { Fed::NotMine } else { Fed::Mine };
        let id = Id { exchange: 0, side };
        messages.feed(id, run.bytes, &MESSAGES, kept, ear, |message, ear| {
            if !std::mem::replace(has_begun, true) {
                ear.begin(id);
            }
            tell(message, id, ear);
            false
        });
        if messages.is_over && !side.is_client() {
            self.finish(How::Complete, kept, ear);
        }
        fed
    }

    fn gap(&mut self, side: Side, _missing: u32, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.sides[side.index()].gap("rdp requests that are missing", kept, ear);
    }

    fn end(&mut self, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.finish(How::Cut, kept, ear);
    }
}

impl Conversation {
    /// Ends the exchange, unless it has ended.
    fn finish(&mut self, how: How, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.sides.iter_mut().for_each(|side| side.stop(kept));
        if std::mem::take(&mut self.has_begun) {
            [Side::Client, Side::Server].into_iter().for_each(|side| ear.end(Id { exchange: 0, side }, how));
            ear.over(0);
        }
    }
}

/// Tells what is behind the header: a cookie, and what the side offers or answers.
fn tell(message: &[u8], id: Id, ear: &mut dyn Ear<Fact>) {
    let mut rest = message.get(11..).unwrap_or_default();
    if let Some(cookie) = rest.strip_prefix(b"Cookie: ")
        && let Some(end) = memchr::memchr(b'\r', cookie)
    {
        let name = &cookie[..end];
        ear.fact(id, Fact::Cookie, name.strip_prefix(b"mstshash=").unwrap_or(name));
        rest = cookie.get(end + 2..).unwrap_or_default();
    }
    let [kind, _, 8, 0, number @ ..] = rest else { return };
    let fact = match (kind, id.side) {
        (1, Side::Client) => Fact::Requested,
        (2, Side::Server) => Fact::Protocol,
        (3, Side::Server) => Fact::Failure,
        _ => return,
    };
    if let Some(number) = number.first_chunk() {
        ear.number(id, fact, u32::from_le_bytes(*number).into());
    }
}

/// A header of four bytes has the length of all.
fn length(bytes: &[u8]) -> Length {
    match *bytes {
        [3, 0, high, low, ..] => Length::Is(u16::from_be_bytes([high, low]).into()),
        [] | [3] | [3, 0] | [3, 0, _] => Length::More,
        _ => Length::No,
    }
}

const EXAMPLE: &str = r#"{"timestamp":"2026-05-28T20:26:41.159999000Z","flow_id":2935057601058126,"event_type":"rdp","src_ip":"192.0.2.1","src_port":40009,"dest_ip":"192.0.2.2","dest_port":3389,"proto":"TCP","rdp":{"cookie":"bob","requested":3,"protocol":"ssl"}}
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::check_talk;
    use crate::probe::Says;
    use crate::probe::tests::check_first;
    use Side::{Client, Server};

    #[test]
    fn requests_and_confirmations() {
        let request = b"\x03\0\0\x27\x22\xe0\0\0\0\0\0Cookie: mstshash=b\r\n\x01\0\x08\0\x03\0\0\0";
        let said = ["Cookie=b", "Requested=3"];
        for (answer, expected) in [
            (&b"\x03\0\0\x13\x0e\xd0\0\0\x12\x34\0\x02\0\x08\0\x02\0\0\0\x16\x03"[..], Some("Protocol=2")),
            (b"\x03\0\0\x13\x0e\xd0\0\0\x12\x34\0\x03\0\x08\0\x05\0\0\0", Some("Failure=5")),
            (b"\x03\0\0\x0b\x06\xd0\0\0\x12\x34\0", None),
        ] {
            let expected: Vec<_> = said.into_iter().chain(expected).chain(["Complete", "Complete"]).collect();
            check_talk::<Conversation>(&[(Client, request), (Server, answer), (Client, b"\x16\x03\x01")], &expected);
        }
        check_first(&[
            (request, true, 9, Says::Is(App::Rdp)),
            (&request[..5], true, 9, Says::More),
            (request, false, 9, Says::No),
        ]);
    }
}
