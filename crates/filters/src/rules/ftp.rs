//! FTP for rules: a transaction for each command, with the replies to it.

use super::lines::Lines;
use super::transactions::Transactions;
use rules::names::{App, Buffer, Number};

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Stream {
    lines: [Lines; 2],
    current: Option<u64>,
}

impl Stream {
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
        }
        self.current = Some(id);
        to.complete(id, true);
    }

    fn reply(&mut self, line: &[u8], to: &mut Transactions) {
        let Some(id) = self.current else { return };
        let Some(one) = to.get(id) else { return };
        let code = line.get(..3).filter(|code| code.iter().all(u8::is_ascii_digit));
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
            }
        }
        let known = to.find(id).is_some_and(|one| one.numbers(Number::FTP_REPLY_RECEIVED, false).next().is_some());
        if let Some(one) = to.get(id).filter(|_| !known) {
            one.put_number(Number::FTP_REPLY_RECEIVED, false, 1);
        }
        let last = code.is_some() && line.get(3) != Some(&b'-') && code.is_some_and(|code| code[0] != b'1');
        if last {
            to.complete(id, false);
        } else {
            to.change(id, false);
        }
    }
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
