//! FTP for rules: a transaction for each command, with the replies to it.

use super::transactions::Transactions;
use crate::parts::carry::Carried;
use crate::parts::text_lines::TextLines;
use base::limits::TEXT_LINE_BYTES;
use packet::ftp::{extended_place, place};
use packet::reply;
use rules::names::{App, Buffer, Number};

/// A connection.
#[derive(Debug)]
pub(super) struct Stream {
    lines: [TextLines; 2],
    carried: Carried,
    current: Option<u64>,
}

impl Default for Stream {
    fn default() -> Stream {
        Stream { lines: Default::default(), carried: Carried::new(2 * TEXT_LINE_BYTES), current: None }
    }
}

impl Stream {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: bool, to: &mut Transactions) {
        let mut lines = std::mem::take(&mut self.lines[usize::from(!to_server)]);
        if gap {
            lines.lose(&mut self.carried);
        }
        let (mut rest, mut whole) = (bytes, Vec::new());
        while let Some(line) = lines.next(&mut rest, &mut whole, &mut self.carried) {
            if to_server { self.command(line, to) } else { self.reply(line, to) }
        }
        self.lines[usize::from(!to_server)] = lines;
    }

    /// Bytes that it keeps.
    pub fn kept_bytes(&self) -> usize {
        self.carried.bytes()
    }

    /// What a server knows of commands decides it, not what is known of them here.
    fn command(&mut self, line: &[u8], to: &mut Transactions) {
        if let Some(id) = self.current.take() {
            to.complete(id, false);
        }
        let (word, rest) = line.split_at(memchr::memchr(b' ', line).unwrap_or(line.len()));
        let rest = rest.trim_ascii();
        let one = to.begin(App::Ftp);
        let id = one.id;
        one.put_copy(Buffer::FTP_COMMAND, true, word);
        if !rest.is_empty() {
            one.put_copy(Buffer::FTP_COMMAND_DATA, true, rest);
        }
        let place = match &word.to_ascii_uppercase()[..] {
            b"PORT" => place(rest),
            b"EPRT" => extended_place(rest),
            _ => None,
        };
        if let Some(place) = place {
            one.put_number(Number::FTP_DYNAMIC_PORT, true, place.port.into());
        }
        self.current = Some(id);
        to.complete(id, true);
    }

    fn reply(&mut self, line: &[u8], to: &mut Transactions) {
        let Some(id) = self.current else { return };
        let Some(one) = to.get(id) else { return };
        let reply = reply::line(line);
        one.put_copy(Buffer::FTP_REPLY, false, reply.text);
        if reply.code.is_some() {
            one.put_copy(Buffer::FTP_COMPLETION_CODE, false, &line[..3]);
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
            // It belongs to the command as well.
            one.put_number(Number::FTP_DYNAMIC_PORT, false, place.port.into());
            one.put_number(Number::FTP_DYNAMIC_PORT, true, place.port.into());
            to.change(id, true);
        }
        // A reply that begins with 1 is not the last one.
        if reply.is_last && reply.code.is_some_and(|code| code >= 200) {
            to.complete(id, false);
        } else {
            to.change(id, false);
        }
    }
}
