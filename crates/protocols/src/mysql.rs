//! Logins of MySQL (protocol 10): the server's greeting, who logs in to which database, and how it went. A connection is one
//! exchange; commands are not read.

use crate::app::App;
use crate::carry::Carried;
use crate::conversation::{self, About, Ear, Fed, How, Id, Kind, Over, Protocol, Run, Side, Talk, Words};
use crate::fit::Fit;
use crate::prefixed::{Length, Prefixed, Shape};
use crate::probe::First;
use packet::Flow;

const PACKETS: Shape = Shape { most: 4096, length, lost: "mysql packets cut or given up" };

/// What a client may do.
const CONNECT_WITH_DATABASE: u32 = 1 << 3;
const LONG_HEAD: u32 = 1 << 9;
const TLS: u32 = 1 << 11;
const LENGTH_OF_PASSWORD: u32 = 1 << 15 | 1 << 21;

/// The bytes of a login in front of the name; before version 4.1 these were fewer.
const LONG_HEAD_BYTES: usize = 32;
const SHORT_HEAD_BYTES: usize = 5;
const SHORT_CAPABILITIES: u32 = 0x7fff;

/// How a login went.
const RESULTS: Words = &[("OK", 0), ("ERR", 0xff)];

/// A fact about a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The server's version.
    Version,
    /// Who logs in.
    User,
    /// The database.
    Database,
    /// How it went.
    Result,
    /// The number of an error.
    Code,
    /// Its text.
    Error,
}

impl conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About::server("mysql.version", "mysql.version", Kind::Name),
        About::client("mysql.user", "mysql.user", Kind::Name),
        About::client("mysql.database", "mysql.database", Kind::Name),
        About::server("mysql.result", "mysql.result", Kind::Word(RESULTS)),
        About::server("mysql.error_code", "mysql.error_code", Kind::Number),
        About::server("mysql.error", "mysql.error", Kind::Name),
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
    is_greeted: bool,
    has_login: bool,
}

impl Talk for Conversation {
    type Fact = Fact;

    const PROTOCOL: Protocol = Protocol {
        probe: Some(probe),
        summary: &["mysql.user", "mysql.database", "mysql.result", "mysql.error"],
        does: "reads logins of MySQL and gives a record of each",
        help: "Finds MySQL and MariaDB by the server's greeting on any port, and gives a record of a connection when its login is \
               over: the server's `mysql.version`, `mysql.user`, `mysql.database`, `mysql.result` (OK or ERR), and of an error \
               `mysql.error_code` and `mysql.error`. Passwords and commands are passed over. Where the client asks for TLS, the \
               record has the greeting alone, and `tls` reads the rest.\n\n\
               A login ends at a gap behind a side's first bytes, and of a packet 4 KiB are read.",
        example: ("pcap talks.pcap | mysql", EXAMPLE),
        ..Protocol::of(App::Mysql, Over::Streams, <Fact as conversation::Fact>::ALL)
    };

    fn new(_flow: &Flow) -> Conversation {
        Conversation::default()
    }

    fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        let mut packets = std::mem::take(&mut self.sides[side.index()]);
        let fed = if packets.is_over { Fed::NotMine } else { Fed::Mine };
        let id = Id { exchange: 0, side };
        let mut is_over = false;
        packets.feed(id, run.bytes, &PACKETS, kept, ear, |packet, ear| {
            if !std::mem::replace(&mut self.has_begun, true) {
                ear.begin(id);
            }
            let body = packet.get(4..).unwrap_or_default();
            is_over = match side {
                Side::Client => self.client(body, id, ear),
                Side::Server => self.server(body, id, ear),
            };
            !is_over
        });
        self.sides[side.index()] = packets;
        if is_over {
            self.finish(How::Complete, kept, ear);
        }
        fed
    }

    fn gap(&mut self, side: Side, _missing: u32, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.sides[side.index()].gap("mysql logins whose rest is missing", kept, ear);
    }

    fn end(&mut self, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.finish(How::Cut, kept, ear);
    }
}

impl Conversation {
    /// Returns whether the login is over.
    fn client(&mut self, body: &[u8], id: Id, ear: &mut dyn Ear<Fact>) -> bool {
        if std::mem::replace(&mut self.has_login, true) {
            return false;
        }
        let capabilities = body.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let (capabilities, head) = match capabilities & LONG_HEAD {
            0 => (capabilities & SHORT_CAPABILITIES, SHORT_HEAD_BYTES),
            _ => (capabilities, LONG_HEAD_BYTES),
        };
        let Some(rest) = body.get(head..).filter(|rest| !rest.is_empty()) else {
            return capabilities & TLS != 0;
        };
        let (user, rest) = text(rest);
        ear.fact(id, Fact::User, user);
        let behind_password = match rest {
            // Up to 250 a byte is the length.
            [length @ ..=250, rest @ ..] if capabilities & LENGTH_OF_PASSWORD != 0 => rest.get(usize::from(*length)..),
            rest => Some(text(rest).1),
        };
        let database = behind_password.map(|rest| text(rest).0).filter(|name| !name.is_empty());
        if let Some(database) = database.filter(|_| capabilities & CONNECT_WITH_DATABASE != 0) {
            ear.fact(id, Fact::Database, database);
        }
        false
    }

    /// Returns whether the login is over.
    fn server(&mut self, body: &[u8], id: Id, ear: &mut dyn Ear<Fact>) -> bool {
        match *body {
            [10, ref rest @ ..] if !std::mem::replace(&mut self.is_greeted, true) => {
                ear.fact(id, Fact::Version, text(rest).0);
            }
            [0, ..] => {
                ear.number(id, Fact::Result, 0);
                return true;
            }
            [0xff, low, high, ref rest @ ..] => {
                ear.number(id, Fact::Result, 0xff);
                ear.number(id, Fact::Code, u16::from_le_bytes([low, high]).into());
                // Behind the SQL state, if the client knows it.
                let message = if rest.first() == Some(&b'#') { rest.get(6..).unwrap_or_default() } else { rest };
                ear.fact(id, Fact::Error, message);
                return true;
            }
            // More of the login follows.
            _ => {}
        }
        false
    }

    /// Ends the exchange, unless it has ended.
    fn finish(&mut self, how: How, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.sides.iter_mut().for_each(|side| side.stop(kept));
        if std::mem::take(&mut self.has_begun) {
            [Side::Client, Side::Server].into_iter().for_each(|side| ear.end(Id { exchange: 0, side }, how));
            ear.over(0);
        }
    }
}

/// Three bytes of length, and the number of the packet.
fn length(bytes: &[u8]) -> Length {
    match *bytes {
        [a, b, c, _, ..] => Length::Is(4 + u32::from_le_bytes([a, b, c, 0]) as usize),
        _ => Length::More,
    }
}

/// The bytes in front of a zero, and what is behind it.
fn text(bytes: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(0, bytes) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[]),
    }
}

/// A greeting: number 0, version 10 of the protocol, and a version of the server in digits and dots.
fn probe(first: &First<'_>) -> Fit {
    let fits = |(at, byte): (usize, &u8)| match at {
        0 => *byte > 0,
        1..=3 => *byte == 0,
        4 => *byte == 10,
        5 => byte.is_ascii_digit(),
        _ => *byte == b'.' || byte.is_ascii_digit(),
    };
    let head = &first.bytes[..first.bytes.len().min(7)];
    match !first.to_server && head.iter().enumerate().all(fits) {
        true if head.len() < 7 => Fit::More,
        fits => Fit::of(fits),
    }
}

const EXAMPLE: &str = r#"{"timestamp":"2026-05-28T20:26:40.939999000Z","flow_id":7003202801543442,"event_type":"mysql","src_ip":"192.0.2.1","src_port":40007,"dest_ip":"192.0.2.2","dest_port":3306,"proto":"TCP","mysql":{"version":"8.0.36","user":"bob","database":"shop","result":"OK"}}
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::check_talk;
    use crate::probe::Says;
    use crate::probe::tests::check_first;
    use Side::{Client, Server};

    const GREETING: &[u8] = b"\x08\0\0\0\x0a8.0.36\0";

    fn login(capabilities: u32, rest: &[u8]) -> Vec<u8> {
        let head = [&(LONG_HEAD | capabilities).to_le_bytes()[..], &[0; 28]].concat();
        [&[(head.len() + rest.len()) as u8, 0, 0, 1], &head[..], rest].concat()
    }

    #[test]
    fn logins() {
        let by_name = login(CONNECT_WITH_DATABASE | LENGTH_OF_PASSWORD, b"bob\0\x02\0\0shop\0x\0");
        let refused = b"\x0f\0\0\x02\xff\x15\x04#28000Denied";
        let said = ["Version=8.0.36", "User=bob"];
        let ends = ["Complete", "Complete"];
        check_talk::<Conversation>(
            &[(Server, GREETING), (Client, &by_name), (Server, refused)],
            &[&said[..], &["Database=shop", "Result=255", "Code=1045", "Error=Denied"], &ends].concat(),
        );
        let runs: &[(Side, &[u8])] = &[
            (Server, GREETING),
            (Client, b"\x10\0\0\x01\x05\0\0\0\0bob\0secret\0"),
            (Server, b"\x01\0\0\x02\xfe"),
            (Client, b"\x04\0\0\x03abcd"),
            (Server, b"\x01\0\0\x04\0"),
            (Client, b"\x01\0\0\0\x0e"),
        ];
        check_talk::<Conversation>(runs, &[&said[..], &["Result=0"], &ends].concat());
        check_talk::<Conversation>(
            &[(Server, GREETING), (Client, &login(TLS, b"")), (Client, &by_name)],
            &[&said[..1], &ends].concat(),
        );
        check_first(&[
            (GREETING, false, 9, Says::Is(App::Mysql)),
            (&GREETING[..4], false, 9, Says::More),
            (GREETING, true, 9, Says::No),
        ]);
    }
}
