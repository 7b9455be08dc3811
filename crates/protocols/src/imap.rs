//! Commands and replies of IMAP (RFC 9051, RFC 3501). An exchange is a command with the reply that has its tag; the greeting is
//! an exchange of its own. Mails and other data are passed over.

use crate::app::App;
use crate::carry::Carried;
use crate::conversation::{self, About, Ear, Fed, How, Id, Kind, Over, Protocol, Run, Side, Talk};
use crate::fit::Fit;
use crate::probe::First;
use crate::text_lines::TextLines;
use packet::Flow;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Most commands that wait for their replies.
const COMMANDS: usize = 64;

/// A fact about an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The command, such as `SELECT`.
    Command,
    /// Its arguments; of a login who logs in, or how.
    Argument,
    /// `OK`, `NO`, `BAD`, or of a greeting `PREAUTH` or `BYE`.
    Status,
    /// The text behind the status.
    Text,
}

impl conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About::client("imap.command", "imap.command", Kind::Name),
        About::client("imap.argument", "imap.argument", Kind::Name),
        About::server("imap.status", "imap.status", Kind::Name),
        About::server("imap.text", "imap.text", Kind::Name),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// A connection.
#[derive(Debug, Default)]
pub struct Conversation {
    sides: [Reader; 2],
    next: u64,
    asked: Vec<Asked>,
    /// The client waits until the server wants its literal.
    is_literal_held: bool,
    /// TLS or compressed bytes follow.
    is_over: bool,
}

/// The lines of a side, and the literals between their parts (RFC 9051, 4.3).
#[derive(Debug, Default)]
struct Reader {
    lines: TextLines,
    /// Bytes of a literal left to skip.
    literal: usize,
    /// The next line is the rest of the one before.
    is_rest: bool,
}

/// A command that waits for its reply.
#[derive(Debug)]
struct Asked {
    /// The hash of its tag, whose length has no bound.
    tag: u64,
    exchange: u64,
    /// A reply without an error ends the protocol.
    is_last: bool,
}

impl Talk for Conversation {
    type Fact = Fact;

    const PROTOCOL: Protocol = Protocol {
        probe: Some(probe),
        summary: &["imap.command", "imap.argument", "imap.status", "imap.text"],
        does: "reads IMAP commands and replies and gives a record of each",
        help: "Finds IMAP on any port by a greeting of the server that names it, and on port 143 by any command or reply. A record \
               has a command with the reply that has its tag: `imap.command`, `imap.argument`, `imap.status` (OK, NO or BAD) and \
               `imap.text`, the text behind it. Of LOGIN the argument is the user, of AUTHENTICATE the mechanism. The greeting is a \
               reply without a command. The filter passes passwords, literals and mails over, and reads no byte behind STARTTLS and \
               COMPRESS: `tls` reads it.\n\n\
               Up to 64 commands wait for their replies.",
        example: ("pcap talks.pcap | imap | head 3", EXAMPLE),
        ..Protocol::of(App::Imap, Over::Streams, <Fact as conversation::Fact>::ALL)
    };

    fn new(_flow: &Flow) -> Conversation {
        Conversation::default()
    }

    fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        if self.is_over {
            return Fed::NotMine;
        }
        let (mut rest, mut whole) = (run.bytes, Vec::new());
        let mut lines = std::mem::take(&mut self.sides[side.index()].lines);
        lines.begin(rest, if side.is_client() { is_command } else { is_reply });
        while !self.is_over {
            let reader = &mut self.sides[side.index()];
            let skipped = reader.literal.min(rest.len());
            reader.literal -= skipped;
            rest = &rest[skipped..];
            let Some(line) = lines.next(&mut rest, &mut whole, kept) else { break };
            match side {
                Side::Client => self.client_line(line, ear),
                Side::Server => self.server_line(line, ear),
            }
        }
        self.sides[side.index()].lines = lines;
        if self.is_over {
            self.end(kept, ear);
        }
        Fed::Mine
    }

    fn gap(&mut self, side: Side, missing: u32, kept: &Carried, _ear: &mut dyn Ear<Fact>) {
        let reader = &mut self.sides[side.index()];
        let missing = missing as usize;
        if reader.literal >= missing {
            reader.literal -= missing;
        } else {
            (reader.literal, reader.is_rest) = (0, false);
            reader.lines.lose(kept);
        }
    }

    fn end(&mut self, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.is_over = true;
        self.sides.iter_mut().for_each(|side| side.lines.clear(kept));
        while !self.asked.is_empty() {
            self.end_reply(0, How::Cut, ear);
        }
    }
}

impl Reader {
    /// Takes the literal that a line ends with. Returns whether the line begins a message.
    fn begins(&mut self, literal: Option<usize>) -> bool {
        self.literal = literal.unwrap_or(0);
        !std::mem::replace(&mut self.is_rest, literal.is_some())
    }
}

impl Conversation {
    fn client_line(&mut self, line: &[u8], ear: &mut dyn Ear<Fact>) {
        let literal = literal(line);
        self.is_literal_held = literal.is_some() && !line.ends_with(b"+}");
        if self.sides[0].begins(literal) {
            self.command(line, ear);
        }
    }

    fn command(&mut self, line: &[u8], ear: &mut dyn Ear<Fact>) {
        let Some((tag, name, argument)) = words(line) else { return };
        if self.asked.len() == COMMANDS {
            ear.count("imap replies no longer awaited", 1);
            self.end_reply(0, How::Cut, ear);
        }
        let id = Id { exchange: self.next, side: Side::Client };
        self.next += 1;
        let name_is = |it: &str| name.eq_ignore_ascii_case(it.as_bytes());
        let is_last = name_is("STARTTLS") || name_is("COMPRESS");
        self.asked.push(Asked { tag: hash(tag), exchange: id.exchange, is_last });
        ear.begin(id);
        ear.fact(id, Fact::Command, name);
        let is_login = name_is("LOGIN") || name_is("AUTHENTICATE");
        let told = if is_login { first_string(argument) } else { Some(argument) };
        if let Some(told) = told.filter(|told| !told.is_empty()) {
            ear.fact(id, Fact::Argument, told);
        }
        ear.end(id, How::Complete);
    }

    fn server_line(&mut self, line: &[u8], ear: &mut dyn Ear<Fact>) {
        self.is_literal_held &= !line.starts_with(b"+");
        let status = status(line);
        // The text behind a status has no literals.
        let literal = if status.is_some() { None } else { literal(line) };
        if self.sides[1].begins(literal)
            && let Some((tag, status, text)) = status
        {
            self.reply(tag, status, text, ear);
        }
    }

    fn reply(&mut self, tag: &[u8], status: &[u8], text: &[u8], ear: &mut dyn Ear<Fact>) {
        if tag == b"*" && self.next == 0 {
            // The greeting.
            self.asked.push(Asked { tag: hash(tag), exchange: 0, is_last: false });
            self.next = 1;
            ear.begin(Id { exchange: 0, side: Side::Server });
        }
        let Some(at) = self.asked.iter().position(|asked| asked.tag == hash(tag)) else { return };
        let Asked { exchange, is_last, .. } = self.asked[at];
        let id = Id { exchange, side: Side::Server };
        ear.fact(id, Fact::Status, status);
        if !text.is_empty() {
            ear.fact(id, Fact::Text, text);
        }
        if self.is_literal_held && exchange + 1 == self.next {
            // The server does not want the literal of this command, and the client does not send it.
            self.is_literal_held = false;
            self.sides[0].begins(None);
        }
        self.is_over = is_last && status.eq_ignore_ascii_case(b"OK");
        self.end_reply(at, How::Complete, ear);
    }

    fn end_reply(&mut self, at: usize, how: How, ear: &mut dyn Ear<Fact>) {
        let Asked { exchange, .. } = self.asked.remove(at);
        ear.end(Id { exchange, side: Side::Server }, how);
        ear.over(exchange);
    }
}

fn hash(tag: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    tag.hash(&mut hasher);
    hasher.finish()
}

/// The tag of a line, the word behind it, and the rest.
fn words(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let (tag, word) = (words.next()?, words.next()?);
    (!tag.is_empty() && !word.is_empty()).then(|| (tag, word, words.next().unwrap_or_default().trim_ascii()))
}

/// The same of a line with a status.
fn status(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    const STATUSES: [&str; 5] = ["OK", "NO", "BAD", "PREAUTH", "BYE"];
    words(line).filter(|(_, word, _)| STATUSES.iter().any(|it| word.eq_ignore_ascii_case(it.as_bytes())))
}

/// The length of the literal that follows a line: `{12}`, or `{12+}` if the client does not wait (RFC 7888).
fn literal(line: &[u8]) -> Option<usize> {
    let line = line.strip_suffix(b"}")?;
    let digits = &line[memchr::memrchr(b'{', line)? + 1..];
    let digits = digits.strip_suffix(b"+").unwrap_or(digits);
    str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?.parse().ok()
}

/// The first one of a command's arguments, without quotes; `None`: it is a literal, or has no end.
fn first_string(argument: &[u8]) -> Option<&[u8]> {
    let Some(quoted) = argument.strip_prefix(b"\"") else {
        return argument.split(|byte| *byte == b' ').next().filter(|word| !word.starts_with(b"{"));
    };
    let mut is_escaped = false;
    let end = quoted.iter().position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    })?;
    Some(&quoted[..end])
}

fn probe(first: &First<'_>) -> Fit {
    let end = first.bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    let line = &first.bytes[..end.unwrap_or(first.bytes.len())];
    let is_line = if first.to_server { is_command } else { is_reply };
    if first.has_port(143) {
        return if end.is_none() { Fit::More } else { Fit::of(is_line(line)) };
    }
    let names_it = || line.windows(4).any(|word| word.eq_ignore_ascii_case(b"imap"));
    match first.begins(&[b"* OK ", b"* PREAUTH "]) {
        _ if first.to_server => Fit::No,
        Fit::Is if names_it() => Fit::Is,
        Fit::Is if end.is_some() => Fit::No,
        Fit::Is => Fit::More,
        fit => fit,
    }
}

/// Whether a line is a command that clients send first, or behind a gap.
fn is_command(line: &[u8]) -> bool {
    const NAMES: &str = "CAPABILITY ID LOGIN AUTHENTICATE STARTTLS COMPRESS ENABLE SELECT EXAMINE LIST LSUB STATUS NAMESPACE FETCH \
        STORE SEARCH UID COPY MOVE APPEND EXPUNGE CHECK CLOSE UNSELECT NOOP IDLE LOGOUT";
    words(line).is_some_and(|(_, name, _)| NAMES.split(' ').any(|it| name.eq_ignore_ascii_case(it.as_bytes())))
}

fn is_reply(line: &[u8]) -> bool {
    line.starts_with(b"* ") || line.starts_with(b"+ ") || status(line).is_some()
}

const EXAMPLE: &str = r#"{"timestamp":"2026-05-28T20:26:40.539999000Z","flow_id":5023593739180476,"event_type":"imap","src_ip":"192.0.2.1","src_port":40004,"dest_ip":"192.0.2.2","dest_port":143,"proto":"TCP","imap":{"status":"OK","text":"IMAP4rev1 ready"}}
{"timestamp":"2026-05-28T20:26:40.559999000Z","flow_id":5023593739180476,"event_type":"imap","src_ip":"192.0.2.1","src_port":40004,"dest_ip":"192.0.2.2","dest_port":143,"proto":"TCP","imap":{"command":"LOGIN","argument":"bob","status":"OK","text":"done"}}
{"timestamp":"2026-05-28T20:26:40.579999000Z","flow_id":5023593739180476,"event_type":"imap","src_ip":"192.0.2.1","src_port":40004,"dest_ip":"192.0.2.2","dest_port":143,"proto":"TCP","imap":{"command":"SELECT","argument":"INBOX","status":"OK","text":"[READ-WRITE] done"}}
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::check_talk;
    use crate::probe::Says;
    use crate::probe::tests::check_first;
    use Side::{Client, Server};

    fn check(runs: &[(Side, &[u8])], expected: &[&str]) {
        let expected: Vec<&str> = expected.iter().flat_map(|said| said.split(',')).collect();
        check_talk::<Conversation>(runs, &expected);
    }

    #[test]
    fn first_bytes() {
        check_first(&[
            (b"* OK IMAP4 ready", false, 9, Says::Is(App::Imap)),
            (b"* OK rea", false, 9, Says::More),
            (b"* OK ready\r\nimap", false, 9, Says::No),
            (b"a3 NO\r\n", false, 143, Says::Is(App::Imap)),
            (b"a1 log", true, 143, Says::More),
            (b"a1 login x y\r\n", true, 143, Says::Is(App::Imap)),
        ]);
    }

    #[test]
    fn commands_and_replies() {
        check(
            &[
                (Server, b"* OK ready\r\n"),
                (Client, b"a SELECT \"my mail\"\r\nb NOOP\r\n"),
                (Server, b"* OK still\r\n* 1 EXISTS\r\nb OK in\r\na NO none\r\n"),
            ],
            &[
                "Status=OK,Text=ready,Complete",
                "Command=SELECT,Argument=\"my mail\",Complete,Command=NOOP,Complete",
                "Status=OK,Text=in,Complete,Status=NO,Text=none,Complete",
            ],
        );
        // What follows is TLS if the server says so.
        check(
            &[
                (Client, b"a STARTTLS\r\n"),
                (Server, b"a NO\r\n"),
                (Client, b"b STARTTLS\r\n"),
                (Server, b"b OK\r\n"),
                (Client, b"c NOOP\r\n"),
            ],
            &["Command=STARTTLS,Complete,Status=NO,Complete", "Command=STARTTLS,Complete,Status=OK,Complete"],
        );
    }

    #[test]
    fn passwords_are_passed_over() {
        for (login, said) in [
            ("LOGIN bob secret", ",Argument=bob"),
            ("LOGIN \"b\\\"ob m\" \"secret\"", ",Argument=b\\\"ob m"),
            ("LOGIN \"secret", ""),
            ("LOGIN {3+}\r\nbob {6+}\r\nsecret", ""),
            ("AUTHENTICATE PLAIN AGJvYgBzZWNyZXQ=", ",Argument=PLAIN"),
            ("AUTHENTICATE PLAIN\r\nAGJvYgBzZWNyZXQ=", ",Argument=PLAIN"),
        ] {
            let name = login.split(' ').next().unwrap();
            let said = format!("Command={name}{said},Complete,Status=OK,Complete");
            check(&[(Client, format!("a {login}\r\n").as_bytes()), (Server, b"a OK\r\n")], &[&said]);
        }
    }

    #[test]
    fn literals_are_no_commands_and_replies() {
        check(
            &[
                (Client, b"a APPEND x {9}\r\n"),
                (Server, b"+ go\r\n"),
                (Client, b"b NOOP\r\n \r\nc FETCH 1\r\n"),
                (Server, b"a OK x {9}\r\n* 1 FETCH ({8}\r\nc OK in\n)\r\nc OK y\r\n"),
            ],
            &[
                "Command=APPEND,Argument=x {9},Complete,Command=FETCH,Argument=1,Complete",
                "Status=OK,Text=x {9},Complete,Status=OK,Text=y,Complete",
            ],
        );
        let refused = "Command=APPEND,Argument=x {8},Complete,Status=NO,Text=big,Complete,Command=NOOP,Complete,Cut";
        check(&[(Client, b"a APPEND x {8}\r\n"), (Server, b"a NO big\r\n"), (Client, b"b NOOP\r\n")], &[refused]);
        // A client that does not wait sends what the server refuses.
        let refused = "Command=APPEND,Argument=x {8+},Complete,Status=NO,Text=big,Complete";
        check(&[(Client, b"a APPEND x {8+}\r\n"), (Server, b"a NO big\r\n"), (Client, b"b NOOP\r\n")], &[refused]);
    }

    #[test]
    fn lengths_of_literals() {
        for (line, expected) in [
            ("x {12}", Some(12)),
            ("~{12+}", Some(12)),
            ("{+12}", None),
            ("{12++}", None),
            ("{}", None),
            ("{99999999999999999999}", None),
            ("12}", None),
        ] {
            assert_eq!(literal(line.as_bytes()), expected, "{line}");
        }
    }
}
