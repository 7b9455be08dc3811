//! FTP for rules: a transaction for each command, with its replies.

use super::transactions::Transactions;
use super::transfers::{self, Transfer};
use base::limits::{RULES_BODY_BYTES, TEXT_LINE_BYTES};
use protocols::carry::Carried;
use protocols::ftp::{extended_place, place};
use protocols::reply;
use protocols::text_lines::TextLines;
use rules::names::{App, Buffer, Number};
use std::net::IpAddr;

/// Most commands that may wait for a reply.
const TRANSACTIONS: u64 = 1024;
/// Longest line without an event.
const LINE_BYTES: usize = 4096;
/// Bytes of a command's replies beyond which those that rules have seen are forgotten.
const SEEN_REPLY_BYTES: usize = RULES_BODY_BYTES;
/// Most bytes kept of a command's replies.
const REPLY_BYTES: usize = 4 * RULES_BODY_BYTES;
/// Bytes that a reply counts beside its text.
const REPLY_ENTRY_BYTES: usize = 64;
/// Most ports of data connections kept of a command.
const PORTS: usize = 16;
/// Commands that use a data connection.
const TRANSFERS: [&[u8]; 7] = [b"RETR", b"STOR", b"STOU", b"APPE", b"LIST", b"NLST", b"MLSD"];

#[derive(Debug)]
pub(super) struct Stream {
    lines: [TextLines; 2],
    carried: Carried,
    current: Option<u64>,
    /// Bytes of the current command's replies.
    reply_bytes: usize,
    client: IpAddr,
    server: IpAddr,
    /// Commands waiting for a reply.
    commands: u64,
    /// Address of the next data connection.
    place: Option<transfers::Place>,
    /// Data connections to expect.
    pub announced: Vec<Announced>,
}

#[derive(Clone, Debug)]
pub(super) struct Announced {
    pub place: transfers::Place,
    pub transfer: Transfer,
}

impl Stream {
    pub fn new(client: IpAddr, server: IpAddr) -> Stream {
        let (lines, carried) = (Default::default(), Carried::new(2 * TEXT_LINE_BYTES));
        Stream {
            lines,
            carried,
            current: None,
            reply_bytes: 0,
            client,
            server,
            commands: 0,
            place: None,
            announced: Vec::new(),
        }
    }

    /// Announces a data connection. Its command may follow later.
    fn announce(&mut self, place: transfers::Place, transfer: Transfer) {
        self.place = Some(place);
        self.announced.push(Announced { place, transfer });
    }

    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: bool, to: &mut Transactions) {
        let mut lines = std::mem::take(&mut self.lines[usize::from(!to_server)]);
        if gap {
            lines.lose(&self.carried);
        }
        let (mut rest, mut whole) = (bytes, Vec::new());
        while let Some(line) = lines.next(&mut rest, &mut whole, &self.carried) {
            if to_server { self.command(line, to) } else { self.reply(line, to) }
        }
        self.lines[usize::from(!to_server)] = lines;
    }

    pub fn kept_bytes(&self) -> usize {
        self.carried.bytes()
    }

    /// Takes any word as a command: the server decides which commands exist.
    fn command(&mut self, line: &[u8], to: &mut Transactions) {
        if let Some(id) = self.current.take() {
            to.complete(id, false);
        }
        let (word, rest) = line.split_at(memchr::memchr(b' ', line).unwrap_or(line.len()));
        let rest = rest.trim_ascii();
        let one = to.begin(App::Ftp);
        let id = one.id;
        one.put_copy(Buffer::FTP_COMMAND, true, word);
        self.commands += 1;
        if line.len() >= LINE_BYTES {
            one.events.push(("ftp.request_command_too_long", true));
        }
        if self.commands == TRANSACTIONS + 1 {
            one.events.push(("ftp.too_many_transactions", true));
        }
        if !rest.is_empty() {
            one.put_copy(Buffer::FTP_COMMAND_DATA, true, rest);
        }
        let command = word.to_ascii_uppercase();
        let place = match &command[..] {
            b"PORT" => place(rest),
            b"EPRT" => extended_place(rest),
            _ => None,
        };
        if let Some(place) = place {
            one.put_number(Number::FTP_DYNAMIC_PORT, true, place.port.into());
            // The client names another host for the data (RFC 2577, 2).
            if place.address.is_some_and(|address| address != self.client) {
                one.events.push(("ftp.bounce", true));
            }
            // Expect the data connection at the client, whatever address it names.
            self.announce((self.client, place.port), Transfer::default());
        }
        if let Some(place) = self.place.take_if(|_| TRANSFERS.contains(&&command[..])) {
            self.announced.push(Announced { place, transfer: Transfer { command, file: rest.to_vec() } });
        }
        (self.current, self.reply_bytes) = (Some(id), 0);
        to.complete(id, true);
    }

    fn reply(&mut self, line: &[u8], to: &mut Transactions) {
        let Some(id) = self.current else { return };
        let replies = [Buffer::FTP_REPLY, Buffer::FTP_COMPLETION_CODE];
        if self.reply_bytes >= SEEN_REPLY_BYTES && to.forget_shown(id, false, &replies) {
            self.reply_bytes = 0;
        }
        let Some(one) = to.get(id) else { return };
        let reply = reply::line(line);
        if line.len() >= LINE_BYTES {
            one.put_event("ftp.response_command_too_long", false);
        }
        let mut is_left_out = self.reply_bytes >= REPLY_BYTES;
        if !is_left_out {
            self.reply_bytes += line.len() + REPLY_ENTRY_BYTES;
            one.put_copy(Buffer::FTP_REPLY, false, reply.text);
            if reply.code.is_some() {
                one.put_copy(Buffer::FTP_COMPLETION_CODE, false, &line[..3]);
            }
        }
        let place = match reply.code {
            Some(227) => place(reply.text),
            Some(229) => extended_place(reply.text),
            _ => None,
        };
        if one.numbers(Number::FTP_REPLY_RECEIVED, false).next().is_none() {
            one.put_number(Number::FTP_REPLY_RECEIVED, false, 1);
        }
        if let Some(place) = place {
            if one.numbers(Number::FTP_DYNAMIC_PORT, false).count() < PORTS {
                // The port belongs to the command's side too.
                one.put_number_once(Number::FTP_DYNAMIC_PORT, false, place.port.into());
                one.put_number_once(Number::FTP_DYNAMIC_PORT, true, place.port.into());
            } else {
                is_left_out = true;
            }
            to.change(id, true);
            self.announce((self.server, place.port), Transfer::default());
        }
        if is_left_out {
            to.given_up += 1;
            to.unseen = true;
        }
        // Replies that begin with 1 are preliminary.
        if reply.is_last && reply.code.is_some_and(|code| code >= 200) {
            self.commands = self.commands.saturating_sub(1);
            to.complete(id, false);
        } else {
            to.change(id, false);
        }
    }
}

/// Begins the only transaction of a data connection.
pub(super) fn data(transfer: &Transfer, to: &mut Transactions) -> u64 {
    let one = to.begin(App::FtpData);
    let id = one.id;
    one.is_one = true;
    let command = match &transfer.command[..] {
        b"RETR" => Some(1),
        b"STOR" => Some(2),
        _ => None,
    };
    for side in [true, false] {
        if let Some(command) = command {
            one.put_number(Number::FTPDATA_COMMAND, side, command);
        }
        if !transfer.file.is_empty() {
            one.put_copy(Buffer::FILE_NAME, side, &transfer.file);
        }
    }
    [true, false].into_iter().for_each(|side| to.change(id, side));
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn another_host_for_the_data() {
        let client = IpAddr::V4(Ipv4Addr::new(1, 1, 1, 2));
        let check = |line: &str, expected: bool| {
            let (mut stream, mut to) = (Stream::new(client, IpAddr::V4(Ipv4Addr::LOCALHOST)), Transactions::default());
            stream.feed(format!("{line}\r\n").as_bytes(), true, false, &mut to);
            let events = &to.last().unwrap().events;
            assert_eq!(events.contains(&("ftp.bounce", true)), expected, "{line}");
        };
        check("PORT 1,1,1,2,232,157", false);
        check("port 2,2,2,3,0,80", true);
        check("EPRT |1|2.2.2.3|80|", true);
        check("EPRT |1|1.1.1.2|80|", false);
        check("PORT 2,2", false);
        check("USER 2,2,2,3,0,80", false);
    }

    #[test]
    fn replies_of_one_command_are_bounded() {
        let place = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (mut stream, mut to) = (Stream::new(place, place), Transactions::default());
        stream.feed(b"USER a\r\n", true, false, &mut to);
        let bound = 2 * REPLY_BYTES;
        for _ in 0..500 {
            stream.feed(&[b'\n'; 1400], false, false, &mut to);
            assert!(to.kept_bytes() < bound, "{} bytes", to.kept_bytes());
            to.changed.clear();
        }
        assert_eq!((to.given_up, to.unseen), (0, false), "rules saw all replies");
        stream.feed(&[b'\n'; 10_000], false, false, &mut to);
        assert!(to.kept_bytes() < bound && to.given_up > 0 && to.unseen);
        to.changed.clear();
        to.given_up = 0;
        for port in 0..100 {
            stream.feed(format!("227 (1,1,1,1,9,{port})\r\n").as_bytes(), false, false, &mut to);
            assert!(to.last().unwrap().numbers(Number::FTP_DYNAMIC_PORT, true).count() <= PORTS);
        }
        assert_eq!(to.given_up, 100 - PORTS as u64);
    }

    #[test]
    fn commands_beyond_those_that_are_usual() {
        let (mut stream, mut to) =
            (Stream::new(IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST)), Transactions::default());
        let mut found = 0;
        for _ in 0..=TRANSACTIONS + 1 {
            stream.feed(b"NOOP\r\n", true, false, &mut to);
            let id = to.changed.last().map_or(0, |changed| changed.0);
            found += to.find(id).map_or(0, |one| one.events.len());
            to.changed.clear();
            to.sweep();
        }
        assert_eq!(found, 1);
    }
}
