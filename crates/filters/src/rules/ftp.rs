//! FTP for rules: a transaction for each command, with the replies to it.

use super::lines::Lines;
use super::transactions::Transactions;
use super::transfers::{Place, Transfer};
use rules::names::{App, Buffer, Number};
use std::net::{IpAddr, Ipv4Addr};

/// Commands that may wait for their replies.
const TRANSACTIONS: u64 = 1024;
/// Bytes of a line that are usual.
const LINE_BYTES: usize = 4096;

/// A connection.
#[derive(Debug)]
pub(super) struct Stream {
    lines: [Lines; 2],
    current: Option<u64>,
    client: IpAddr,
    server: IpAddr,
    /// Commands that wait for their replies.
    commands: u64,
    /// The place that the next transfer uses.
    place: Option<Place>,
    /// What data connections are to be expected.
    pub announced: Vec<Announced>,
}

/// A data connection to come.
#[derive(Clone, Debug)]
pub(super) struct Announced {
    pub place: Place,
    pub transfer: Transfer,
}

impl Stream {
    /// Between these two.
    pub fn new(client: IpAddr, server: IpAddr) -> Stream {
        let (lines, announced) = (Default::default(), Vec::new());
        Stream { lines, current: None, client, server, commands: 0, place: None, announced }
    }

    /// A data connection goes to this place, for a command that may be still to come.
    fn announce(&mut self, place: Place, transfer: Transfer) {
        self.place = Some(place);
        self.announced.push(Announced { place, transfer });
    }

    pub fn feed(&mut self, bytes: &[u8], to_server: bool, to: &mut Transactions) {
        let mut lines = std::mem::take(&mut self.lines[usize::from(!to_server)]);
        lines.each(bytes, |line| if to_server { self.command(line, to) } else { self.reply(line, to) });
        self.lines[usize::from(!to_server)] = lines;
    }

    fn command(&mut self, line: &[u8], to: &mut Transactions) {
        if let Some(id) = self.current.take() {
            to.complete(id, false);
        }
        let word = line.split(|byte| *byte == b' ').next().unwrap_or_default();
        let rest = line.get(word.len()..).unwrap_or_default().trim_ascii();
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
        if bounces(word, rest, self.client) {
            one.events.push(("ftp.bounce", true));
        }
        if !rest.is_empty() {
            one.put_copy(Buffer::FTP_COMMAND_DATA, true, rest);
        }
        let port = match &word.to_ascii_uppercase()[..] {
            b"PORT" => six_numbers(rest),
            b"EPRT" => between_bars(rest),
            _ => None,
        };
        if let Some(port) = port {
            one.put_number(Number::FTP_DYNAMIC_PORT, true, port.into());
            // Rules see data connections to the client itself.
            self.announce((self.client, port), Transfer::default());
        }
        const TRANSFERS: &[&[u8]] = &[b"RETR", b"STOR", b"STOU", b"APPE", b"LIST", b"NLST", b"MLSD"];
        let command = word.to_ascii_uppercase();
        if let Some(place) = self.place.filter(|_| TRANSFERS.contains(&&command[..])) {
            self.announce(place, Transfer { command, file: rest.to_vec() });
            self.place = None;
        }
        self.current = Some(id);
        to.complete(id, true);
    }

    fn reply(&mut self, line: &[u8], to: &mut Transactions) {
        let Some(id) = self.current else { return };
        let Some(one) = to.get(id) else { return };
        let code = line.get(..3).filter(|code| code.iter().all(u8::is_ascii_digit));
        if line.len() >= LINE_BYTES {
            one.events.push(("ftp.response_command_too_long", false));
        }
        let text = if code.is_some() { line.get(4..).unwrap_or_default() } else { line };
        one.put_copy(Buffer::FTP_REPLY, false, text);
        if let Some(code) = code {
            one.put_copy(Buffer::FTP_COMPLETION_CODE, false, code);
            let port = match code {
                b"227" => six_numbers(text),
                b"229" => between_bars(text),
                _ => None,
            };
            if let Some(port) = port {
                // It belongs to the command as well.
                one.put_number(Number::FTP_DYNAMIC_PORT, false, port.into());
                one.put_number(Number::FTP_DYNAMIC_PORT, true, port.into());
                to.change(id, true);
                self.announce((self.server, port), Transfer::default());
            }
        }
        let known = to.find(id).is_some_and(|one| one.numbers(Number::FTP_REPLY_RECEIVED, false).next().is_some());
        if let Some(one) = to.get(id).filter(|_| !known) {
            one.put_number(Number::FTP_REPLY_RECEIVED, false, 1);
        }
        if code.is_some_and(|code| code[0] != b'1') && line.get(3) != Some(&b'-') {
            self.commands = self.commands.saturating_sub(1);
        }
        let last = code.is_some() && line.get(3) != Some(&b'-') && code.is_some_and(|code| code[0] != b'1');
        if last {
            to.complete(id, false);
        } else {
            to.change(id, false);
        }
    }
}

/// Does the command name another host than the client for the data (RFC 2577, 2)?
fn bounces(word: &[u8], rest: &[u8], client: IpAddr) -> bool {
    let text = std::str::from_utf8(rest).unwrap_or_default();
    let address = if word.eq_ignore_ascii_case(b"PORT") {
        let numbers: Vec<u8> = text.split(',').map_while(|part| part.trim().parse().ok()).collect();
        let Some(&[a, b, c, d, _, _]) = numbers.first_chunk::<6>() else { return false };
        Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
    } else if word.eq_ignore_ascii_case(b"EPRT") {
        text.split('|').nth(2).and_then(|address| address.parse().ok())
    } else {
        None
    };
    address.is_some_and(|address| address != client)
}

/// The port in `h1,h2,h3,h4,p1,p2` (RFC 959).
fn six_numbers(text: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(text).ok()?;
    let from = text.find('(').map_or(0, |at| at + 1);
    let numbers: Vec<u8> = text[from..].split([',', ')']).map_while(|part| part.trim().parse().ok()).collect();
    let [_, _, _, _, high, low] = numbers[..] else { return None };
    Some(u16::from_be_bytes([high, low]))
}

/// The port in `|1|address|port|` and `(|||port|)` (RFC 2428).
fn between_bars(text: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(text).ok()?;
    let inner = text.split(['(', ')']).find(|part| part.contains('|')).unwrap_or(text);
    inner.split('|').nth(3)?.parse().ok()
}

/// A data connection begins, which is one transaction.
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

    #[test]
    fn another_host_for_the_data() {
        let client = IpAddr::V4(Ipv4Addr::new(1, 1, 1, 2));
        let check = |word: &str, rest: &str, expected: bool| {
            assert_eq!(bounces(word.as_bytes(), rest.as_bytes(), client), expected, "{word} {rest}");
        };
        check("PORT", "1,1,1,2,232,157", false);
        check("port", "2,2,2,3,0,80", true);
        check("EPRT", "|1|2.2.2.3|80|", true);
        check("EPRT", "|1|1.1.1.2|80|", false);
        check("PORT", "2,2", false);
        check("USER", "2,2,2,3,0,80", false);
    }

    #[test]
    fn commands_beyond_those_that_are_usual() {
        let (mut stream, mut to) =
            (Stream::new(IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST)), Transactions::default());
        let mut found = 0;
        for _ in 0..=TRANSACTIONS + 1 {
            stream.feed(b"NOOP\r\n", true, &mut to);
            let id = to.changed.last().map_or(0, |changed| changed.0);
            found += to.find(id).map_or(0, |one| one.events.len());
            to.changed.clear();
            to.sweep();
        }
        assert_eq!(found, 1);
    }
}
