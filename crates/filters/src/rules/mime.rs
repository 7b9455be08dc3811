//! A mail (RFC 5322, RFC 2045): the fields of its head, and what is attached, decoded. It comes line by line.

use super::transactions::Transactions;
use base64::Engine as _;
use rules::names::Buffer;

/// Parts within parts that are followed.
const BOUNDARIES: usize = 8;

/// A mail under way.
#[derive(Debug)]
pub(super) struct Mime {
    /// In a head: of the mail or of a part.
    head: bool,
    /// The head of the mail itself.
    first: bool,
    field: Vec<u8>,
    boundaries: Vec<Vec<u8>>,
    coding: Coding,
    /// The part under way is a file.
    file: bool,
    /// Base64 that waits for its group of four.
    waiting: Vec<u8>,
    /// A part of the file was given.
    began: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    None,
    Base64,
    Quoted,
}

impl Default for Mime {
    fn default() -> Mime {
        Mime {
            head: true,
            first: true,
            field: Vec::new(),
            boundaries: Vec::new(),
            coding: Coding::None,
            file: false,
            waiting: Vec::new(),
            began: false,
        }
    }
}

impl Mime {
    /// Takes a line.
    pub fn line(&mut self, line: &[u8], id: u64, to: &mut Transactions) {
        if let Some(name) = line.strip_prefix(b"--")
            && let Some(at) = self.boundaries.iter().position(|known| name.starts_with(known))
        {
            self.end_part(id, to);
            let last = name[self.boundaries[at].len()..].starts_with(b"--");
            self.boundaries.truncate(if last { at } else { at + 1 });
            (self.head, self.coding, self.file, self.began) = (!last, Coding::None, false, false);
            return;
        }
        if !self.head {
            return self.body(line, id, to);
        }
        if line.first().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
            self.field.push(b' ');
            self.field.extend_from_slice(line.trim_ascii());
            return;
        }
        self.end_field(id, to);
        if line.is_empty() {
            (self.head, self.first) = (false, false);
            to.change(id, true);
        } else {
            self.field.extend_from_slice(line);
        }
    }

    fn end_field(&mut self, id: u64, to: &mut Transactions) {
        let field = std::mem::take(&mut self.field);
        let Some(colon) = memchr::memchr(b':', &field) else { return };
        let (name, value) = (field[..colon].trim_ascii().to_ascii_lowercase(), field[colon + 1..].trim_ascii());
        let buffer = match &name[..] {
            b"from" => Some(Buffer::EMAIL_FROM),
            b"to" => Some(Buffer::EMAIL_TO),
            b"cc" => Some(Buffer::EMAIL_CC),
            b"subject" => Some(Buffer::EMAIL_SUBJECT),
            b"date" => Some(Buffer::EMAIL_DATE),
            b"message-id" => Some(Buffer::EMAIL_MESSAGE_ID),
            b"x-mailer" => Some(Buffer::EMAIL_X_MAILER),
            _ => None,
        };
        if let (Some(buffer), true, Some(one)) = (buffer, self.first, to.get(id)) {
            one.put_copy(buffer, true, value);
        }
        match &name[..] {
            b"content-type" => {
                if let Some(boundary) = parameter(value, b"boundary").filter(|_| self.boundaries.len() < BOUNDARIES) {
                    self.boundaries.push(boundary.to_vec());
                }
                self.named(value, b"name", id, to);
            }
            b"content-disposition" => self.named(value, b"filename", id, to),
            b"content-transfer-encoding" => {
                self.coding = match &value.to_ascii_lowercase()[..] {
                    b"base64" => Coding::Base64,
                    b"quoted-printable" => Coding::Quoted,
                    _ => Coding::None,
                }
            }
            _ => {}
        }
    }

    fn named(&mut self, value: &[u8], key: &[u8], id: u64, to: &mut Transactions) {
        if let Some(name) = parameter(value, key).filter(|_| !self.file)
            && let Some(one) = to.get(id)
        {
            one.put_copy(Buffer::FILE_NAME, true, name);
            self.file = true;
        }
    }

    fn body(&mut self, line: &[u8], id: u64, to: &mut Transactions) {
        if !self.file && self.coding != Coding::Base64 {
            return;
        }
        let mut decoded = Vec::new();
        match self.coding {
            Coding::Base64 => {
                self.waiting
                    .extend(line.iter().filter(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')));
                let whole = self.waiting.len() / 4 * 4;
                let letters: Vec<u8> = self.waiting.drain(..whole).collect();
                decode(&letters, &mut decoded);
            }
            Coding::Quoted => quoted(line, &mut decoded),
            Coding::None => {
                decoded.extend_from_slice(line);
                decoded.extend_from_slice(b"\r\n");
            }
        }
        self.give(&decoded, id, to);
    }

    fn give(&mut self, bytes: &[u8], id: u64, to: &mut Transactions) {
        if bytes.is_empty() {
            return;
        }
        if !self.began {
            self.began = true;
            if let Some(one) = to.get(id) {
                one.put_copy(Buffer::FILE_DATA, true, b"");
            }
        }
        to.append_body(id, Buffer::FILE_DATA, true, bytes);
    }

    fn end_part(&mut self, id: u64, to: &mut Transactions) {
        let letters = std::mem::take(&mut self.waiting);
        let mut decoded = Vec::new();
        if letters.len() > 1 {
            decode(&letters, &mut decoded);
        }
        self.give(&decoded, id, to);
        to.end_file(id, true);
        to.change(id, true);
    }

    /// The mail is over.
    pub fn end(&mut self, id: u64, to: &mut Transactions) {
        self.end_field(id, to);
        self.end_part(id, to);
    }
}

fn decode(letters: &[u8], to: &mut Vec<u8>) {
    let loose = base64::engine::GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent);
    let engine = base64::engine::GeneralPurpose::new(&base64::alphabet::STANDARD, loose);
    if let Ok(bytes) = engine.decode(letters) {
        to.extend_from_slice(&bytes);
    }
}

/// A line in quoted-printable (RFC 2045, 6.7).
fn quoted(line: &[u8], to: &mut Vec<u8>) {
    let mut at = 0;
    let digit = |at: usize| line.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    while let Some(byte) = line.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'=', Some(high), Some(low)) => {
                to.push((high << 4 | low) as u8);
                at += 2;
            }
            (b'=', ..) if at + 1 == line.len() => return,
            (byte, ..) => to.push(*byte),
        }
        at += 1;
    }
    to.extend_from_slice(b"\r\n");
}

/// The value of a parameter, without quotes.
pub(super) fn parameter<'a>(value: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    value.split(|byte| *byte == b';').skip(1).find_map(|part| {
        let at = memchr::memchr(b'=', part)?;
        let text = part[at + 1..].trim_ascii();
        let text = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text);
        part[..at].trim_ascii().eq_ignore_ascii_case(key).then_some(text)
    })
}
