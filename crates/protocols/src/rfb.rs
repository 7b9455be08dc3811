//! The handshake of RFB (RFC 6143, remote desktops): versions, authentication, and the size and name of the desktop. A
//! connection is one exchange; later messages are not read.

use crate::app::App;
use crate::carry::Carried;
use crate::conversation::{About, Ear, Fed, How, Id, Kind, Over, Protocol, Run, Side, Talk, Words};
use packet::Flow;
use packet::bytes::{u16_at, u32_at};
use packet::text::append_hex;

/// Most bytes kept of a side's unfinished message.
const WAITING_BYTES: usize = 4096;

const LOST: &str = "rfb handshakes given up";

/// Results above 2 are unknown; all are told as 3.
const RESULTS: Words = &[("OK", 0), ("FAIL", 1), ("TOOMANY", 2), ("UNKNOWN", 3)];

/// A fact about a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The first part of the version.
    Major,
    /// The second one.
    Minor,
    /// 1: none, 2: a password.
    SecurityType,
    /// The server's random bytes.
    Challenge,
    /// These, encrypted with the password.
    Response,
    /// Whether the client is accepted.
    Result,
    /// Width of the desktop.
    Width,
    /// Its height.
    Height,
    /// Its name.
    Name,
}

impl crate::conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About {
            field: ["rfb.client_protocol_version.major", "rfb.server_protocol_version.major"],
            buffer: ["rfb.client_protocol_version.major", "rfb.server_protocol_version.major"],
            kind: Kind::Name,
        },
        About {
            field: ["rfb.client_protocol_version.minor", "rfb.server_protocol_version.minor"],
            buffer: ["rfb.client_protocol_version.minor", "rfb.server_protocol_version.minor"],
            kind: Kind::Name,
        },
        About::client("rfb.authentication.security_type", "rfb.sectype", Kind::Number),
        About::server("rfb.authentication.vnc.challenge", "rfb.authentication.vnc.challenge", Kind::Shown(append_hex)),
        About::client("rfb.authentication.vnc.response", "rfb.authentication.vnc.response", Kind::Shown(append_hex)),
        About::server("rfb.authentication.security_result", "rfb.secresult", Kind::Word(RESULTS)),
        About::server("rfb.framebuffer.width", "rfb.framebuffer.width", Kind::Number),
        About::server("rfb.framebuffer.height", "rfb.framebuffer.height", Kind::Number),
        About::server("rfb.framebuffer.name", "rfb.name", Kind::Text),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// The message that comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    ServerVersion,
    ClientVersion,
    Security,
    Choice,
    Challenge,
    Response,
    Result,
    Desktop,
    Over,
}

/// A connection.
#[derive(Debug, Default)]
pub struct Conversation {
    step: Step,
    /// What the sides sent of messages that were not read.
    sides: [Vec<u8>; 2],
    /// The client's minor version: below 7 the server chooses the security type.
    minor: u8,
    has_begun: bool,
}

const CLIENT: Id = Id { exchange: 0, side: Side::Client };
const SERVER: Id = Id { exchange: 0, side: Side::Server };

impl Talk for Conversation {
    type Fact = Fact;

    const PROTOCOL: Protocol = Protocol {
        probe: Some(|first| first.begins(&[b"RFB 003."])),
        summary: &["rfb.server_protocol_version.minor", "rfb.authentication.security_result", "rfb.framebuffer.name"],
        does: "reads handshakes of RFB (VNC) and gives a record of each",
        help: "Finds RFB by its first bytes on any port, and gives a record of a connection when the server has named its desktop, \
               when it refuses the client, or when the rest is not known: `rfb.server_protocol_version` and \
               `rfb.client_protocol_version` with `major` and `minor`; under `rfb.authentication` the `security_type`, the \
               `vnc.challenge` and `vnc.response` of a password in hexadecimal, and the `security_result` (OK, FAIL, TOOMANY, \
               UNKNOWN); under `rfb.framebuffer` `width`, `height` and `name`. The rest of a connection is passed over.\n\n\
               A handshake ends at a gap, and with a message of more than 4 KiB.",
        example: ("pcap talks.pcap | rfb", EXAMPLE),
        ..Protocol::of(App::Rfb, Over::Streams, <Fact as crate::conversation::Fact>::ALL)
    };

    fn new(_flow: &Flow) -> Conversation {
        Conversation::default()
    }

    fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        if self.step == Step::Over {
            return Fed::NotMine;
        }
        let part = &mut self.sides[side.index()];
        let room = WAITING_BYTES.saturating_sub(part.len());
        let taken = run.bytes.len().min(room);
        let fits = kept.keep(part, &run.bytes[..taken]);
        while self.step != Step::Over && self.advance(kept, ear).is_some() {}
        // A client that says more than its handshake may do so; a server may not.
        if self.step != Step::Over && (!fits || !side.is_client() && self.sides[1].len() >= WAITING_BYTES) {
            ear.lost(Id { exchange: 0, side }, LOST);
            self.step = Step::Over;
        }
        if self.step == Step::Over {
            self.finish(How::Complete, kept, ear);
        }
        Fed::Mine
    }

    fn gap(&mut self, _side: Side, _missing: u32, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        if self.step != Step::Over {
            ear.count("rfb handshakes whose rest is missing", 1);
            self.finish(How::Gap, kept, ear);
        }
    }

    fn end(&mut self, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.finish(How::Cut, kept, ear);
    }
}

impl Conversation {
    /// Ends the exchange, unless it has ended.
    fn finish(&mut self, how: How, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.step = Step::Over;
        self.sides.iter_mut().for_each(|part| kept.clear(part));
        if std::mem::take(&mut self.has_begun) {
            ear.end(CLIENT, how);
            ear.end(SERVER, how);
            ear.over(0);
        }
    }

    /// Reads a message; `None` if its bytes have not come.
    fn advance(&mut self, kept: &Carried, ear: &mut dyn Ear<Fact>) -> Option<()> {
        let [client, server] = &self.sides;
        let (side, used, next) = match self.step {
            Step::ServerVersion => (Side::Server, version(server)?, Step::ClientVersion),
            Step::ClientVersion => (Side::Client, version(client)?, Step::Security),
            // Version 3.3 has a type of four bytes, later ones have a list.
            Step::Security if self.minor >= 7 => {
                let used = 1 + usize::from(*server.first()?);
                (Side::Server, server.get(..used)?.len(), Step::Choice)
            }
            Step::Security => (Side::Server, server.get(..4)?.len(), self.chosen(*server.get(3)?, ear)),
            Step::Choice => (Side::Client, 1, self.chosen(*client.first()?, ear)),
            Step::Challenge => {
                ear.fact(SERVER, Fact::Challenge, server.get(..16)?);
                (Side::Server, 16, Step::Response)
            }
            Step::Response => {
                ear.fact(CLIENT, Fact::Response, client.get(..16)?);
                (Side::Client, 16, Step::Result)
            }
            Step::Result => {
                let result = u32_at(server, 0)?;
                ear.number(SERVER, Fact::Result, u64::from(result).min(3));
                if result > 2 {
                    ear.odd(SERVER, "rfb.unknown_security_result");
                }
                (Side::Server, 4, if result == 0 { Step::Desktop } else { Step::Over })
            }
            Step::Desktop => {
                let length = u32_at(server, 20)? as usize;
                let name = server.get(24..24usize.saturating_add(length))?;
                ear.number(SERVER, Fact::Width, u16_at(server, 0)?.into());
                ear.number(SERVER, Fact::Height, u16_at(server, 2)?.into());
                ear.fact(SERVER, Fact::Name, name);
                (Side::Server, 24 + length, Step::Over)
            }
            Step::Over => return None,
        };
        if matches!(self.step, Step::ServerVersion | Step::ClientVersion) {
            let line = &self.sides[side.index()];
            let id = Id { exchange: 0, side };
            if !std::mem::replace(&mut self.has_begun, true) {
                ear.begin(id);
            }
            ear.fact(id, Fact::Major, &line[4..7]);
            ear.fact(id, Fact::Minor, &line[8..11]);
            if side.is_client() {
                self.minor = line[10].wrapping_sub(b'0');
            }
        }
        kept.pass(&mut self.sides[side.index()], used);
        self.step = next;
        Some(())
    }

    /// The step behind the choice of a security type.
    fn chosen(&self, kind: u8, ear: &mut dyn Ear<Fact>) -> Step {
        ear.number(CLIENT, Fact::SecurityType, kind.into());
        match kind {
            1 if self.minor >= 8 => Step::Result,
            1 => Step::Desktop,
            2 => Step::Challenge,
            _ => {
                ear.odd(CLIENT, "rfb.unimplemented_security_type");
                Step::Over
            }
        }
    }
}

/// The length of a version, such as `RFB 003.008`, with its line end.
fn version(bytes: &[u8]) -> Option<usize> {
    bytes.get(..12).map(<[u8]>::len)
}

const EXAMPLE: &str = r#"{"timestamp":"2026-05-28T20:26:40.250000000Z","flow_id":3887331154809539,"event_type":"rfb","src_ip":"192.0.2.1","src_port":40002,"dest_ip":"192.0.2.2","dest_port":5900,"proto":"TCP","rfb":{"client_protocol_version":{"major":"003","minor":"008"},"server_protocol_version":{"major":"003","minor":"008"},"authentication":{"security_type":2,"vnc":{"challenge":"000102030405060708090a0b0c0d0e0f","response":"101112131415161718191a1b1c1d1e1f"},"security_result":"OK"},"framebuffer":{"width":1024,"height":768,"name":"office"}}}
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::check_talk;

    #[test]
    fn handshakes() {
        let versions = |minor: &str| [("Major", "003"), ("Minor", minor)].map(|(name, it)| format!("{name}={it}"));
        let check = |minor: &str, rest: &[(Side, &[u8])], expected: &[&str]| {
            let line = format!("RFB 003.{minor}\n").into_bytes();
            let runs = [&[(Side::Server, &line[..]), (Side::Client, &line)], rest].concat();
            let said = [versions(minor), versions(minor)].concat();
            let said: Vec<&str> = said.iter().map(String::as_str).chain(expected.iter().copied()).collect();
            check_talk::<Conversation>(&runs, &said);
        };
        let desktop = [&[4, 0, 3, 0][..], &[0; 16], b"\0\0\0\x02me"].concat();
        let of_desktop = ["Width=1024", "Height=768", "Name=me", "Complete", "Complete"];
        let bytes = |name: &str, byte: &str| format!("{name}={}", byte.repeat(16));
        let (challenge, response) = (bytes("Challenge", "\x07"), bytes("Response", "\x08"));
        check(
            "008",
            &[
                (Side::Server, b"\x02\x01\x02"),
                (Side::Client, b"\x02"),
                (Side::Server, &[7; 16]),
                (Side::Client, &[8; 16]),
                (Side::Server, &[&[0; 4][..], &desktop].concat()),
            ],
            &[&["SecurityType=2", &challenge, &response, "Result=0"], &of_desktop[..]].concat(),
        );
        check(
            "003",
            &[(Side::Server, &[&[0, 0, 0, 1][..], &desktop].concat())],
            &[&["SecurityType=1"], &of_desktop[..]].concat(),
        );
        let odd = ["SecurityType=16", "rfb.unimplemented_security_type", "Complete", "Complete"];
        check("007", &[(Side::Server, b"\x01\x10"), (Side::Client, b"\x10")], &odd);
        let refused = ["SecurityType=1", "Result=3", "rfb.unknown_security_result", "Complete", "Complete"];
        check("008", &[(Side::Server, b"\x01\x01\0\0\0\x09"), (Side::Client, b"\x01")], &refused);
        check("008", &[(Side::Server, b"\x01")], &["Cut", "Cut"]);
    }
}
