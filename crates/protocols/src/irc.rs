//! Messages of IRC (RFC 2812). Each is an exchange by itself.

use crate::app::App;
use crate::carry::Carried;
use crate::conversation::{self, About, Ear, Fed, Kind, Over, Protocol, Run, Side, Talk};
use crate::fit::Fit;
use crate::probe::First;
use crate::text_lines::TextLines;
use packet::Flow;

/// The server's reply to STARTTLS: TLS follows.
const TLS_FOLLOWS: &[u8] = b"670";

/// Commands that clients send first, or behind a gap.
const COMMANDS: &str = "AUTHENTICATE AWAY CAP INVITE JOIN KICK LIST MODE NAMES NICK NOTICE OPER PART PASS PING PONG PRIVMSG QUIT \
    TOPIC USER WHO WHOIS";

/// A fact about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Who sent it, where a server passes it on.
    Source,
    /// The command, or the number of a reply.
    Command,
    /// Its parameters, without passwords.
    Parameter,
}

impl conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About::both("irc.source", "irc.source", Kind::Name),
        About::both("irc.command", "irc.command", Kind::Name),
        About::both("irc.params", "irc.params", Kind::NameItem),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// A connection.
#[derive(Debug, Default)]
pub struct Conversation {
    lines: [TextLines; 2],
    next: u64,
    /// TLS follows.
    is_over: bool,
}

/// A message.
struct Message<'a> {
    source: Option<&'a [u8]>,
    command: &'a [u8],
    parameters: &'a [u8],
}

impl Talk for Conversation {
    type Fact = Fact;

    const PROTOCOL: Protocol = Protocol {
        probe: Some(probe),
        summary: &["irc.source", "irc.command", "irc.params"],
        does: "reads IRC messages and gives a record of each",
        help: "Finds IRC on any port by NICK or CAP of the client or the server's welcome, and on port 6667 by any usual command. \
               A record has a message: `irc.source`, the sender as the server names it, `irc.command`, which of a reply is a \
               number, and `irc.params` (none of PASS and AUTHENTICATE, the first one of OPER). The filter reads no byte behind \
               STARTTLS: `tls` reads it.",
        example: ("pcap talks.pcap | irc | head 3", EXAMPLE),
        is_of_sender: true,
        ..Protocol::of(App::Irc, Over::Streams, <Fact as conversation::Fact>::ALL)
    };

    fn new(_flow: &Flow) -> Conversation {
        Conversation::default()
    }

    fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        if self.is_over {
            return Fed::NotMine;
        }
        let mut lines = std::mem::take(&mut self.lines[side.index()]);
        lines.feed(run.bytes, is_start, kept, |line| {
            if let Some(message) = message(line) {
                self.is_over = !side.is_client() && message.command == TLS_FOLLOWS;
                self.tell(&message, side, ear);
            }
            !self.is_over
        });
        self.lines[side.index()] = lines;
        if self.is_over {
            self.end(kept, ear);
        }
        Fed::Mine
    }

    fn gap(&mut self, side: Side, _missing: u32, kept: &Carried, _ear: &mut dyn Ear<Fact>) {
        self.lines[side.index()].lose(kept);
    }

    fn end(&mut self, kept: &Carried, _ear: &mut dyn Ear<Fact>) {
        self.lines.iter_mut().for_each(|lines| lines.clear(kept));
    }
}

impl Conversation {
    fn tell(&mut self, message: &Message<'_>, side: Side, ear: &mut dyn Ear<Fact>) {
        let told = match message.command.to_ascii_uppercase().as_slice() {
            b"PASS" | b"AUTHENTICATE" => 0,
            b"OPER" => 1,
            _ => usize::MAX,
        };
        conversation::message(&mut self.next, side, ear, |id, ear| {
            if let Some(source) = message.source {
                ear.fact(id, Fact::Source, source);
            }
            ear.fact(id, Fact::Command, message.command);
            parameters(message.parameters).take(told).for_each(|it| ear.fact(id, Fact::Parameter, it));
        });
    }
}

/// Reads a line: tags behind `@`, the source behind `:`, the command, parameters. `None`: no command is letters alone, or
/// three digits.
fn message(line: &[u8]) -> Option<Message<'_>> {
    let (_, rest) = behind(line, b'@').unwrap_or((&[], line));
    let (source, rest) = behind(rest, b':').map_or((None, rest), |(source, rest)| (Some(source), rest));
    let (command, parameters) = word(rest);
    let is_number = command.len() == 3 && command.iter().all(u8::is_ascii_digit);
    let is_command = is_number || !command.is_empty() && command.iter().all(u8::is_ascii_alphabetic);
    is_command.then_some(Message { source, command, parameters })
}

/// The first word without this byte in front, and what is behind it.
fn behind(line: &[u8], first: u8) -> Option<(&[u8], &[u8])> {
    line.strip_prefix(&[first]).map(word)
}

/// The first word, and what is behind it and blanks.
fn word(line: &[u8]) -> (&[u8], &[u8]) {
    let (word, rest) = line.split_at(memchr::memchr(b' ', line).unwrap_or(line.len()));
    (word, rest.trim_ascii_start())
}

/// The parameters; the last one may begin with a colon and have blanks.
fn parameters(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (next, behind) = match rest.strip_prefix(b":") {
            Some(last) => (last, &[][..]),
            None if rest.is_empty() => return None,
            None => word(rest),
        };
        rest = behind;
        Some(next)
    })
}

/// Whether a line begins a side, or goes on behind a gap, for sure.
fn is_start(line: &[u8]) -> bool {
    message(line).is_some_and(|Message { source, command, .. }| match source {
        Some(source) => is_welcome(command) || source.iter().any(|byte| matches!(byte, b'.' | b'!')),
        None => COMMANDS.split(' ').any(|it| command.eq_ignore_ascii_case(it.as_bytes())),
    })
}

fn is_welcome(command: &[u8]) -> bool {
    matches!(command, b"001" | b"NOTICE")
}

fn probe(first: &First<'_>) -> Fit {
    let end = first.bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    let line = &first.bytes[..end.unwrap_or(first.bytes.len())];
    match (first.has_port(6667), first.to_server) {
        (true, _) if end.is_none() => Fit::More,
        (true, _) => Fit::of(is_start(line)),
        (false, true) => first.begins_nocase(&[b"NICK ", b"CAP LS", b"CAP REQ"]),
        (false, false) if first.begins(&[b":"]) != Fit::Is => first.begins(&[b"NOTICE AUTH :"]),
        (false, false) if end.is_none() => Fit::More,
        (false, false) => Fit::of(message(line).is_some_and(|message| is_welcome(message.command))),
    }
}

const EXAMPLE: &str = r#"{"timestamp":"2026-05-28T20:26:40.669999000Z","flow_id":7170714566475986,"event_type":"irc","src_ip":"192.0.2.1","src_port":40005,"dest_ip":"192.0.2.2","dest_port":6667,"proto":"TCP","irc":{"command":"NICK","params":["bob"]}}
{"timestamp":"2026-05-28T20:26:40.669999000Z","flow_id":7170714566475986,"event_type":"irc","src_ip":"192.0.2.1","src_port":40005,"dest_ip":"192.0.2.2","dest_port":6667,"proto":"TCP","irc":{"command":"USER","params":["bob","0","*","Bob"]}}
{"timestamp":"2026-05-28T20:26:40.679999000Z","flow_id":7170714566475986,"event_type":"irc","src_ip":"192.0.2.2","src_port":6667,"dest_ip":"192.0.2.1","dest_port":40005,"proto":"TCP","irc":{"source":"irc.example","command":"001","params":["bob","Welcome"]}}
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::check_talk;
    use crate::probe::Says;
    use crate::probe::tests::check_first;
    use Side::{Client, Server};

    #[test]
    fn messages() {
        check_talk::<Conversation>(
            &[
                (Client, b"PASS secret\r\nNICK bob\n\r\nOPER bob secret\r\n"),
                (Server, b"@time=x :me!me@host PRIVMSG  #rust :hi all\r\n-\r\n:x 670 bob\r\n"),
                (Client, b"NICK eve\r\n"),
            ],
            &[
                "Command=PASS",
                "Complete",
                "Command=NICK",
                "Parameter=bob",
                "Complete",
                "Command=OPER",
                "Parameter=bob",
                "Complete",
                "Source=me!me@host",
                "Command=PRIVMSG",
                "Parameter=#rust",
                "Parameter=hi all",
                "Complete",
                "Source=x",
                "Command=670",
                "Parameter=bob",
                "Complete",
            ],
        );
    }

    #[test]
    fn first_bytes() {
        check_first(&[
            (b"CAP LS 302\r\n", true, 9, Says::Is(App::Irc)),
            (b"pass x\r\n", true, 6667, Says::Is(App::Irc)),
            (b"pass x\r\n", true, 9, Says::Is(App::Ftp)),
            (b":x NOT", false, 9, Says::More),
            (b":x NOTICE * :hi\r\n", false, 9, Says::Is(App::Irc)),
            (b":x y\r\n", false, 9, Says::No),
            (b"220 x\r\n", false, 6667, Says::No),
        ]);
    }
}
