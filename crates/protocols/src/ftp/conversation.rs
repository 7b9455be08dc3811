//! Both sides of a control connection of FTP. An exchange is a command and its reply, in the order of the commands; a reply
//! that nothing asked for, as the greeting, is an exchange of its own.

use super::{Command, Endpoint, Fact, command, endpoint, extended_endpoint, is_of_another};
use crate::app::App;
use crate::carry::Carried;
use crate::conversation::{self, Ear, Fed, How, Id, Over, Protocol, Run, Side, Talk};
use crate::reply;
use crate::text_lines::TextLines;
use base::limits::TEXT_LINE_BYTES;
use packet::Flow;
use std::net::{IpAddr, SocketAddr};

/// Most bytes kept of one connection.
pub const KEPT_BYTES: usize = 2 * TEXT_LINE_BYTES;

/// Most commands that usually wait for a reply.
const USUAL_COMMANDS: u64 = 1024;

/// Reply code: TLS follows (RFC 4217).
const TLS_FOLLOWS: u16 = 234;

/// Verbs of commands. Behind a gap a line counts if it begins with one.
const VERBS: &str = "ABOR ACCT ALLO APPE AUTH CDUP CLNT CWD DELE EPRT EPSV FEAT HELP LIST MDTM MKD MLSD MODE NLST NOOP \
    OPTS PASS PASV PBSZ PORT PROT PWD QUIT REST RETR RMD RNFR RNTO SIZE STOR STRU SYST TYPE USER";

const HELP: &str = "Finds FTP on any port but those of POP3 (110) and IRC (6667), by the client's first command, and gives a record of each command when its reply has come: \
         `ftp.command`, `ftp.command_data`, the lines of `ftp.reply`, and their codes in `ftp.completion_code`. The greeting of \
         the server is a reply without a command. Where a data connection is agreed on, `ftp.dynamic_port` is its port, and \
         `ftp.mode` active or passive. `ftp.reply_received` is yes or no.\n\n\
         Behind AUTH nothing more is read: `tls` reads what comes there. Up to 64 commands may wait for their replies, and \
         of a reply 64 lines are listed.";

const EXAMPLE: &str = r#"{"timestamp":"2026-06-10T21:20:51.277686000Z","flow_id":5020198744909461,"event_type":"ftp","src_ip":"172.23.0.3","src_port":58252,"dest_ip":"172.23.0.2","dest_port":21,"proto":"TCP","ftp":{"reply":["FTP Sandbox Ready."],"completion_code":["220"],"reply_received":"yes"}}
{"timestamp":"2026-06-10T21:20:51.277788000Z","flow_id":5020198744909461,"event_type":"ftp","src_ip":"172.23.0.3","src_port":58252,"dest_ip":"172.23.0.2","dest_port":21,"proto":"TCP","ftp":{"command":"USER","command_data":"bob","reply":["Please specify the password."],"completion_code":["331"],"reply_received":"yes"}}
{"timestamp":"2026-06-10T21:20:51.305075000Z","flow_id":5020198744909461,"event_type":"ftp","src_ip":"172.23.0.3","src_port":58252,"dest_ip":"172.23.0.2","dest_port":21,"proto":"TCP","ftp":{"command":"PASS","command_data":"password","reply":["Login successful."],"completion_code":["230"],"reply_received":"yes"}}
"#;

/// A control connection.
#[derive(Debug, Default)]
pub struct Conversation {
    lines: [TextLines; 2],
    /// It is FTP for sure.
    is_confirmed: bool,
    /// The rest is not FTP, or it is encrypted.
    is_over: bool,
    /// The client's address and the server's, if known.
    peers: Option<[IpAddr; 2]>,
    /// Where the next transfer's connection may go.
    places: Vec<SocketAddr>,
    /// The first exchange without a whole reply, and the next new one.
    oldest: u64,
    next: u64,
    /// The first exchange is a reply that nothing asked for.
    is_unasked: bool,
    /// It ended, and counts if the client speaks FTP.
    greeting: Option<u64>,
    /// The reply of the first exchange has begun.
    is_answered: bool,
    /// The code of an unfinished reply of several lines.
    open: Option<u16>,
    /// Lines of the reply are missing, so the last line of another reply may end it.
    has_gap: bool,
}

impl Conversation {
    /// A connection that is FTP for sure, if the client's first command need not say so (`is_confirmed`). The ear hears of
    /// its data connections.
    pub fn between(client: IpAddr, server: IpAddr, is_confirmed: bool) -> Conversation {
        Conversation { is_confirmed, peers: Some([client, server]), ..Conversation::default() }
    }

    /// Whether nothing more is read.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Says the port of a data connection, and where it goes: to who says it, or to the host that the client names.
    fn data_port(&mut self, id: Id, endpoint: Endpoint, mode: &[u8], ear: &mut dyn Ear<Fact>) {
        ear.number(id, Fact::DynamicPort, endpoint.port.into());
        ear.fact(id, Fact::Mode, mode);
        let Some(peers) = self.peers else { return };
        let own = peers[id.side.index()];
        let other = endpoint.address.filter(|other| id.side.is_client() && *other != own);
        let places = [Some(own), other].into_iter().flatten().map(|address| SocketAddr::new(address, endpoint.port));
        self.places = places.collect();
        self.places.iter().for_each(|place| ear.address(id, *place));
        // The client names another host for the data (RFC 2577, 2).
        if other.is_some() {
            ear.odd(id, "ftp.bounce");
        }
    }
}

impl Talk for Conversation {
    type Fact = Fact;

    const PROTOCOL: Protocol = Protocol {
        summary: &["ftp.command", "ftp.command_data", "ftp.completion_code", "ftp.reply"],
        does: "reads FTP commands and replies and gives a record of each",
        help: HELP,
        example: ("pcap ftp.pcap | ftp | head 3", EXAMPLE),
        ..Protocol::of(App::Ftp, Over::Streams, <Fact as conversation::Fact>::ALL)
    };

    fn new(flow: &Flow) -> Conversation {
        Conversation { is_over: is_of_another(flow), ..Conversation::default() }
    }

    /// Replies begin with digits, commands do not.
    fn sender(bytes: &[u8]) -> Option<Side> {
        bytes.first().map(|first| Side::to_server(!first.is_ascii_digit()))
    }

    fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        if self.is_over || run.bytes.is_empty() {
            return Fed::NotMine;
        }
        let mut lines = std::mem::take(&mut self.lines[side.index()]);
        let is_line = if side.is_client() { is_command } else { |line: &[u8]| reply::line(line).code.is_some() };
        lines.feed(run.bytes, is_line, kept, |line| {
            match side {
                Side::Client => self.command(line, ear),
                Side::Server => self.reply(line, ear),
            }
            !self.is_over
        });
        self.lines[side.index()] = lines;
        if self.is_over {
            // The rest is not FTP, or it is encrypted.
            self.lines.iter_mut().for_each(|lines| lines.clear(kept));
            self.greeting.take().into_iter().chain(self.oldest..self.next).for_each(|exchange| ear.forget(exchange));
            self.oldest = self.next;
        }
        let says_so = || run.bytes.windows(3).any(|word| word.eq_ignore_ascii_case(b"FTP"));
        let is_mine = !self.is_over && (self.is_confirmed || !side.is_client() && says_so());
        if is_mine { Fed::Mine } else { Fed::NotMine }
    }

    /// Bytes of a side are missing. A client usually waits for a reply before its next command, so the server's next
    /// reply belongs to the last command, and the earlier ones have none.
    fn gap(&mut self, side: Side, _missing: u32, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.lines[side.index()].lose(kept);
        if side.is_client() || self.is_over {
            return;
        }
        while self.next - self.oldest > 1 {
            self.end_reply(How::Gap, ear);
        }
        self.has_gap = true;
    }

    fn end(&mut self, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        while self.oldest < self.next {
            self.end_reply(How::Cut, ear);
        }
        self.is_over = true;
        self.lines.iter_mut().for_each(|lines| lines.clear(kept));
    }
}

impl Conversation {
    /// Takes any word as a command: the server decides which commands exist, and replies to each.
    fn command(&mut self, line: &[u8], ear: &mut dyn Ear<Fact>) {
        let (name, argument) = line.split_at(memchr::memchr(b' ', line).unwrap_or(line.len()));
        let argument = argument.trim_ascii();
        self.is_confirmed |= command(line).is_some_and(|command| command.may_be_first());
        if !self.is_confirmed {
            self.is_over = true;
            return;
        }
        if name.is_empty() {
            return;
        }
        if self.is_unasked {
            // The greeting has ended, whatever it said.
            self.end_reply(How::Cut, ear);
        }
        if let Some(greeting) = self.greeting.take() {
            ear.over(greeting);
        }
        let id = Id { exchange: self.next, side: Side::Client };
        self.next += 1;
        ear.begin(id);
        ear.fact(id, Fact::Command, name);
        if !argument.is_empty() {
            ear.fact(id, Fact::Argument, argument);
        }
        if line.len() >= TEXT_LINE_BYTES {
            ear.odd(id, "ftp.request_command_too_long");
        }
        if self.next - self.oldest == USUAL_COMMANDS + 1 {
            ear.odd(id, "ftp.too_many_transactions");
        }
        let is = |verb: &str| name.eq_ignore_ascii_case(verb.as_bytes());
        let endpoint = match () {
            () if is("PORT") => endpoint(argument),
            () if is("EPRT") => extended_endpoint(argument),
            () => None,
        };
        if let Some(endpoint) = endpoint {
            self.data_port(id, endpoint, b"active", ear);
        }
        if (Command { name, argument }).transfers() {
            self.places.drain(..).for_each(|place| ear.address(id, place));
        }
        ear.end(id, How::Complete);
    }

    fn reply(&mut self, line: &[u8], ear: &mut dyn Ear<Fact>) {
        let said = reply::line(line);
        if said.code.is_none() && self.open.is_none() && (!self.is_confirmed || self.oldest == self.next) {
            self.is_over = !self.is_confirmed;
            return;
        }
        let id = Id { exchange: self.oldest, side: Side::Server };
        if self.oldest == self.next {
            self.next += 1;
            self.is_unasked = true;
            // The last greeting counts.
            if let Some(greeting) = self.greeting.take() {
                ear.forget(greeting);
            }
            ear.begin(id);
        }
        if !std::mem::replace(&mut self.is_answered, true) {
            ear.fact(id, Fact::IsAnswered, b"yes");
        }
        ear.fact(id, Fact::Reply, said.text);
        if said.code.is_some() {
            ear.fact(id, Fact::Code, &line[..3]);
        }
        if line.len() >= TEXT_LINE_BYTES {
            ear.odd(id, "ftp.response_command_too_long");
        }
        let endpoint = match said.code.or(self.open) {
            Some(227) => endpoint(said.text),
            Some(229) => extended_endpoint(said.text),
            _ => None,
        };
        if let Some(endpoint) = endpoint {
            self.data_port(id, endpoint, b"passive", ear);
        }
        let ends = |code: u16| said.is_last && self.open.is_none_or(|open| open == code || self.has_gap);
        match said.code {
            Some(code) if ends(code) => {
                self.open = None;
                // A code below 200 is preliminary: another reply follows.
                if code >= 200 {
                    self.end_reply(How::Complete, ear);
                    self.is_over = code == TLS_FOLLOWS;
                }
            }
            code => self.open = self.open.or(code),
        }
    }

    fn end_reply(&mut self, how: How, ear: &mut dyn Ear<Fact>) {
        let id = Id { exchange: self.oldest, side: Side::Server };
        if !std::mem::take(&mut self.is_answered) {
            ear.fact(id, Fact::IsAnswered, b"no");
        }
        if how == How::Gap {
            ear.count("ftp replies missing", 1);
        }
        ear.end(id, how);
        match self.is_confirmed {
            true => ear.over(id.exchange),
            false => self.greeting = Some(id.exchange),
        }
        self.oldest += 1;
        (self.open, self.has_gap, self.is_unasked) = (None, false, false);
    }
}

fn is_command(line: &[u8]) -> bool {
    let verb = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    VERBS.split(' ').any(|known| verb.eq_ignore_ascii_case(known.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::Heard;

    fn talk(runs: &[&str]) -> Vec<String> {
        let (mut conversation, kept, mut ear) = (
            Conversation::between([1, 1, 1, 2].into(), [1, 1, 1, 3].into(), true),
            Carried::new(KEPT_BYTES),
            Heard::default(),
        );
        for run in runs {
            let (side, text) = run.split_at(1);
            let bytes = text.replace('\n', "\r\n").into_bytes();
            let run = Run { bytes: &bytes, time: 0 };
            match side {
                "c" => conversation.gap(Side::Client, 1, &kept, &mut ear),
                "s" => conversation.gap(Side::Server, 1, &kept, &mut ear),
                side => _ = conversation.feed(Side::to_server(side == "C"), run, &kept, &mut ear),
            }
        }
        conversation.end(&kept, &mut ear);
        assert_eq!(kept.bytes(), 0);
        ear.said.retain(|said| !said.starts_with("IsAnswered="));
        ear.said
    }

    /// See docs/decisions/protocols.md.
    #[test]
    fn where_record_and_alert_disagreed() {
        let check = |runs: &[&str], expected: &[&str]| assert_eq!(talk(runs), expected, "{runs:?}");
        let hello = ["Reply=hi", "Code=220", "Complete"];
        check(&["S220 hi\n"], &hello);
        // Replies come in the order of the commands.
        let both = ["Command=A", "Complete", "Command=B", "Complete", "Reply=a", "Code=200", "Complete"];
        check(&["CA\nB\n", "S200 a\n"], &[&both[..], &["Cut"]].concat());
        check(&["CA\nB\n", "s", "S200 a\n"], &[&both[..4], &["1 ftp replies missing", "Gap"], &both[4..]].concat());
        // Any word is a command, and has a reply. An empty line is none.
        check(&["CX-1 y\n\n"], &["Command=X-1", "Argument=y", "Complete", "Cut"]);
        // A line within a reply says a code only if it has one, and ends the reply only with the first one's.
        let lines = ["Reply=a", "Code=200", "Reply= b", "Reply=c", "Code=300", "Reply=d", "Code=200", "Complete"];
        check(&["S200-a\n b\n300 c\n200 d\n"], &lines);
        // Behind 234 all is encrypted.
        check(&["S234 go\n", "CUSER x\n"], &["Reply=go", "Code=234", "Complete"]);
        // The first line behind a gap.
        check(&["CUS", "c", "CPASS x\n"], &["Command=PASS", "Argument=x", "Complete", "Cut"]);
        check(&["CUS", "c", "Cbob\n"], &[]);
    }

    #[test]
    fn another_host_for_the_data() {
        let check = |line: &str, expected: bool| {
            let said = talk(&[&format!("C{line}\n")]);
            assert_eq!(said.contains(&"ftp.bounce".to_string()), expected, "{line}");
        };
        check("PORT 1,1,1,2,232,157", false);
        check("port 2,2,2,3,0,80", true);
        check("EPRT |1|2.2.2.3|80|", true);
        check("EPRT |1|1.1.1.2|80|", false);
        check("PORT 2,2", false);
        check("USER 2,2,2,3,0,80", false);
    }

    /// Before the command that uses them, and with it.
    #[test]
    fn a_data_connection_to_another_host_was_expected_at_one_of_both() {
        let said = talk(&["CPORT 2,2,2,3,0,80\nSTOR x\n"]);
        let addresses: Vec<_> = said.iter().filter_map(|said| said.strip_prefix("address ")).collect();
        assert_eq!(addresses, ["1.1.1.2:80", "2.2.2.3:80"].repeat(2));
        let said = talk(&["CPASV\n", "S227 (9,9,9,9,0,80)\n", "CNOOP\n"]);
        assert!(said.contains(&"address 1.1.1.3:80".into()), "of a passive server its own: {said:?}");
    }

    #[test]
    fn ports_of_others() {
        let [source, target] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(Into::into);
        for (target_port, expected) in [(110, Fed::NotMine), (6667, Fed::NotMine), (2121, Fed::Mine)] {
            let mut conversation =
                Conversation::new(&Flow { source, target, source_port: 40000, target_port, protocol: 6 });
            let (run, kept) = (Run { bytes: b"USER bob\r\n", time: 0 }, Carried::new(KEPT_BYTES));
            assert_eq!(conversation.feed(Side::Client, run, &kept, &mut Heard::default()), expected);
        }
    }

    #[test]
    fn commands_beyond_those_that_are_usual() {
        let said = talk(&vec!["CNOOP\n"; USUAL_COMMANDS as usize + 2]);
        assert_eq!(said.iter().filter(|said| *said == "ftp.too_many_transactions").count(), 1);
    }
}
