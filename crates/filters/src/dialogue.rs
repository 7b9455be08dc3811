//! Prints conversations for people: what each side said, in order, as Wireshark's "Follow Stream" and `ngrep -W byline` do.
//!
//! `dialogue/speech.rs` turns payload into lines: text as it is, as far as it is fit for a terminal, anything else as a hex
//! dump. This file decides who speaks. Not a reader of protocols: bytes are those that `tcp` and `udp` give.

mod speech;

use crate::flows::community;
use crate::parts::ending;
use crate::parts::eve::protocol_name;
use crate::parts::frame_line::say;
use crate::parts::lines::Lines;
use crate::parts::room::Room;
use filter::prelude::*;
use speech::Speech;

/// What `dialogue` is.
pub static KIND: Kind = Kind::new("dialogue", "prints what each side of a conversation says, for people to read", make)
    .also(&["follow", "conversation", "ngrep", "byline", "talk", "payload"])
    .help(
        "Prints the payload of both sides in the order in which it was said. Whenever the other side speaks, and before each \
         datagram of `udp`, a line says when (UTC), which conversation (#3), which side, and the addresses. A side is the client \
         or the server as `tcp` decides; of `udp` the client is who sent the first datagram. Bytes that are missing have a line, too.\n\n\
         stream=3 prints the conversation that `inspect` calls #3: they have numbers from 0, in the order of their first \
         packets. community=1:... prints those with this Community ID, which `flows` and other tools give. Without them all \
         conversations are printed, as they come. side=client leaves out what the server says.\n\n\
         Text is printed as it is; of control characters and bytes that are not UTF-8 the escapes are. From the first line on that \
         looks like no text, up to the end of the piece, bytes are shown in lines of hexadecimal digits; hex=yes shows all of \
         them so. The form may change from version to version; `files` writes the bytes themselves.\n\n\
         A `file` that exists is refused unless overwrite=yes.",
    )
    .params(&[
        Param::new("stream", ParamType::Number, "print the conversation with this number").main(),
        Param::new("community", ParamType::Text, "print conversations with this Community ID"),
        Param::new("side", ParamType::Choice(&["both", "client", "server"]), "whose words to print").default("both"),
        Param::new("hex", ParamType::Flag, "print all bytes in lines of hexadecimal digits and text").default("no"),
        Param::new("file", ParamType::Path, "file to write to; standard output if not given, or if it is -"),
        Lines::OVERWRITE,
        Room::MAX_BYTES,
        Room::MIN_FREE,
    ])
    .takes(&[Type::Bytes, Type::Message])
    .wants(&[(Type::Frame, "tcp"), (Type::Packet, "tcp")])
    .sink()
    .parses_payload()
    .completes(|params| ending::check(params, "file", &[]))
    .examples(&[Example { request: "pcap web.pcap | tcp | dialogue 3", output: POSTED }]);

const POSTED: &str = "\
2009-02-13T23:31:30.124777000Z #3 client 192.0.2.42:24681 > 192.88.99.42:80 TCP
POST /abcd HTTP/1.1
Host: 192.88.99.42
User-Agent: Crafted/1.0 (HTTP)
Accept: text/plain,*/*;q=0.9
Accept-Encoding: identity
Content-Type: text/plain
Content-Length: 4
Connection: keep-alive

ABCD

2009-02-13T23:31:30.526934000Z #3 server 192.88.99.42:80 > 192.0.2.42:24681 TCP
HTTP/1.1 200 OK
Date: Fri, 13 Feb 2009 23:31:30 GMT
Server:  Crafted/1.0 (HTTP)
Content-Length: 4
Keep-Alive: timeout=5, max=99
Connection: Keep-Alive
Content-Type: text/plain

CDEF
";

/// The conversations to print.
enum Which {
    All,
    Stream(u64),
    Community(String),
}

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let which = match (params.number("stream"), params.text("community")) {
        (Some(_), Some(_)) => {
            return Err(ParamError::new("community", "`stream` names the conversation already"));
        }
        (Some(number), None) => Which::Stream(number),
        (None, Some(id)) if !id.starts_with("1:") => {
            let error = ParamError::new("community", format!("`{id}` is no Community ID of version 1"));
            return Err(error.with_help("such as 1:LQU9qZlK+B5F3KDmev6m5PMibrg=; `flows` gives it"));
        }
        (None, Some(id)) => Which::Community(id.to_string()),
        (None, None) => Which::All,
    };
    let side = match params.text("side") {
        Some("client") => Some(0),
        Some("server") => Some(1),
        _ => None,
    };
    Ok(Instance::filter(Dialogue {
        lines: Lines::new(params, env)?,
        which,
        side,
        speaker: None,
        chosen: None,
        has_spoken: false,
        speech: Speech::new(params.flag("hex")),
    }))
}

struct Dialogue {
    lines: Lines,
    which: Which,
    /// The direction to print. `None`: both.
    side: Option<u8>,
    /// The class of the last words.
    speaker: Option<Class>,
    /// The last connection that was looked at, and whether it is printed.
    chosen: Option<(u32, bool)>,
    /// A conversation that was asked for has been seen.
    has_spoken: bool,
    speech: Speech,
}

impl Dialogue {
    fn is_chosen(&mut self, class: Class, streams: &StreamTable) -> bool {
        let connection = class.connection();
        match (&self.which, self.chosen) {
            (Which::All, _) => true,
            (Which::Stream(number), _) => u64::from(connection) == *number,
            (Which::Community(_), Some((last, is_chosen))) if last == connection => is_chosen,
            (Which::Community(id), _) => {
                let mut text = Vec::new();
                streams.get(class).into_iter().for_each(|facts| community::append(&mut text, &facts.flow, None));
                let is_chosen = text == id.as_bytes();
                self.chosen = Some((connection, is_chosen));
                is_chosen
            }
        }
    }

    fn hear(&mut self, block: &Descriptor, cx: &Context<'_>) -> Made {
        self.has_spoken = true;
        let direction = block.class.direction();
        let is_payload = !block.has(Flags::META);
        if self.side.is_none_or(|side| side == direction) && is_payload && (block.len > 0 || block.gap() > 0) {
            let is_next = block.has(Flags::FIRST) && is_datagram(block.class, cx);
            if self.speaker != Some(block.class) || is_next {
                self.head(block, cx)?;
            }
            if block.gap() > 0 {
                self.speech.pause(&mut self.lines)?;
                say(self.lines.buffer(), format_args!("[{} bytes are missing]", block.gap()));
                self.lines.line_done()?;
            }
            self.speech.say(&mut self.lines, cx.rings.bytes(block))?;
        }
        if block.has(Flags::LAST) {
            // The number may be given to another connection now.
            self.chosen = None;
        }
        Ok(Status::Done)
    }

    /// A line for a new speaker, behind an empty one.
    fn head(&mut self, block: &Descriptor, cx: &Context<'_>) -> Made {
        self.speech.pause(&mut self.lines)?;
        if self.speaker.replace(block.class).is_some() {
            self.lines.line_done()?;
        }
        let out = self.lines.buffer();
        out.extend_from_slice(&packet::time::rfc3339(block.time));
        let side = if block.class.direction() == 0 { "client" } else { "server" };
        say(out, format_args!(" #{} {side}", block.class.connection()));
        if let Some(facts) = cx.streams.get(block.class) {
            say(out, format_args!(" {}", facts.directed(block.class)));
            protocol_name(facts.flow.protocol).into_iter().for_each(|name| say(out, format_args!(" {name}")));
        }
        self.lines.line_done()
    }
}

/// Whether the blocks of this class are datagrams, which begin and end one by one.
fn is_datagram(class: Class, cx: &Context<'_>) -> bool {
    cx.streams.get(class).is_some_and(|facts| facts.flow.protocol == packet::frame::protocol::UDP)
}

impl Filter for Dialogue {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            if self.is_chosen(block.class, cx.streams) {
                self.hear(block, cx)?;
            }
        }
        self.lines.batch_done(cx)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        self.lines.flush(cx)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.speech.pause(&mut self.lines)?;
        if !std::mem::replace(&mut self.has_spoken, true) {
            match &self.which {
                Which::All => {}
                Which::Stream(number) => cx.notice(format!("there was no conversation #{number}")),
                Which::Community(id) => {
                    cx.notice(format!("there was no conversation with the Community ID {}", base::terminal::line(id)));
                }
            }
        }
        self.lines.flush(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::handmade::{Piece, block, facts};
    use testkit::Chain;

    const TCP: u8 = packet::frame::protocol::TCP;
    const UDP: u8 = packet::frame::protocol::UDP;

    fn check(of: Type, pieces: Vec<Piece>, protocol: u8, given: &[(&str, &str)], expected: &[&str]) {
        let streams = [facts(1000, protocol, 0), facts(1001, protocol, 0)];
        let outcome = Chain::pieces(of, None, pieces).streams(&streams).then(&KIND, given).run();
        assert_eq!(outcome.stdout.lines().collect::<Vec<_>>(), expected, "{given:?}");
    }

    const CLIENT: &str = "1970-01-01T00:00:00.000000000Z #0 client 10.0.0.1:1000 > 10.0.0.2:80 TCP";
    const SERVER: &str = "1970-01-01T00:00:00.000000000Z #0 server 10.0.0.2:80 > 10.0.0.1:1000 TCP";
    const OTHER: &str = "1970-01-01T00:00:00.000000000Z #1 client 10.0.0.1:1001 > 10.0.0.2:80 TCP";

    fn talk() -> Vec<Piece> {
        vec![
            block(0, Flags::FIRST, b"hel", 0),
            block(0, Flags::NONE, b"lo\r\nyou", 0),
            block(1, Flags::FIRST, b"yes\n", 0),
            block(2, Flags::FIRST, b"else", 0),
            block(0, Flags::LAST.with(Flags::GAP_BEFORE), b"bye", 5),
            block(1, Flags::LAST, b"", 0),
        ]
    }

    #[test]
    fn sides_speak_in_turn() {
        let gap = "[5 bytes are missing]";
        let all = [CLIENT, "hello", "you", "", SERVER, "yes", "", OTHER, "else", "", CLIENT, gap, "bye"];
        check(Type::Bytes, talk(), TCP, &[], &all);
        check(Type::Bytes, talk(), TCP, &[("stream", "1")], &[OTHER, "else"]);
        check(Type::Bytes, talk(), TCP, &[("side", "server")], &[SERVER, "yes"]);
        let one = [CLIENT, "hello", "you", "", SERVER, "yes", "", CLIENT, gap, "bye"];
        check(Type::Bytes, talk(), TCP, &[("stream", "0")], &one);
        check(Type::Bytes, talk(), TCP, &[("community", &id(0))], &one);
        check(Type::Bytes, talk(), TCP, &[("community", "1:none")], &[]);
    }

    fn id(number: u16) -> String {
        let mut text = Vec::new();
        community::append(&mut text, &facts(1000 + number, TCP, 0).flow, None);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_conversation_that_was_not_there_is_said() {
        let said = |given| {
            let streams = [facts(1000, TCP, 0), facts(1001, TCP, 0)];
            Chain::pieces(Type::Bytes, None, talk()).streams(&streams).then(&KIND, &[given]).run().notices
        };
        assert_eq!(said(("stream", "7")), ["there was no conversation #7"]);
        assert_eq!(said(("stream", "1")), [""; 0]);
    }

    #[test]
    fn each_datagram_has_a_head() {
        let pieces = vec![
            block(0, Flags::FIRST.with(Flags::LAST), b"one", 0),
            block(0, Flags::FIRST.with(Flags::LAST), b"two", 0),
        ];
        let head = CLIENT.replace("TCP", "UDP");
        check(Type::Message, pieces, UDP, &[("stream", "0")], &[&head, "one", "", &head, "two"]);
    }

    #[test]
    fn what_is_no_text_is_dumped_and_nothing_reaches_the_terminal() {
        let say = |bytes: &[u8], given, expected: &[&str]| {
            let lines = [&[CLIENT][..], expected].concat();
            check(Type::Bytes, vec![block(0, Flags::FIRST, bytes, 0)], TCP, given, &lines);
        };
        say(
            "gr\u{fc}\u{df}e, \u{1b}[31m\u{202e}red in a line of text\tx\n".as_bytes(),
            &[],
            &["gr\u{fc}\u{df}e, \\x1b[31m\\xe2\\x80\\xaered in a line of text\tx"],
        );
        let zero = "    00000004  00 01                                             ..";
        say(b"GET\n\0\x01", &[], &["GET", zero]);
        let hex = "    00000000  61 62                                             ab";
        say(b"ab", &[("hex", "yes")], &[hex]);
    }
}
