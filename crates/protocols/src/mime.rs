//! Parses a mail or a form (RFC 5322, RFC 2045, RFC 2046, RFC 7578) into header fields and decoded files. Bytes may
//! arrive in pieces of any length. Nested parts and nested mails are parsed too.

mod parameter;
#[cfg(test)]
mod tests;

pub use parameter::parameter;

use crate::how::How;
use base::limits::RULES_BODY_BYTES;
use base64::Engine as _;

/// Most nested multipart levels.
const BOUNDARIES: usize = 8;

/// Most nested mails.
const DEPTH: u8 = 8;

/// Longest header field, or line that may be a boundary.
const LINE_BYTES: usize = 16 << 10;

/// Most bytes of the outermost head's fields, each with the memory that a rule's buffer takes.
const HEAD_BYTES: usize = 256 << 10;

/// Memory of a field besides its bytes.
const FIELD_BYTES: usize = 64;

/// Most bytes of a media type (RFC 6838, 4.2).
const KIND_BYTES: usize = 255;

/// Most bytes that a parser keeps: lines and names of each nested mail, and the starts of those with names.
pub const KEPT_BYTES: usize =
    (DEPTH as usize + 1) * (BOUNDARIES + 8) * LINE_BYTES + DEPTH as usize * 2 * RULES_BODY_BYTES;

/// A result of the parser.
#[derive(Debug)]
pub enum Found<'a> {
    /// A field of the outermost head: name in lower case, and value.
    Field(&'a [u8], &'a [u8]),
    /// The outermost head has more fields than are reported. Reported once.
    More,
    /// The outermost head has ended, with the name of the mail itself.
    Head(Option<&'a [u8]>),
    /// A file begins.
    File {
        /// Its name.
        name: Option<&'a [u8]>,
        /// Its media type, without parameters; empty: its head names none.
        kind: &'a [u8],
    },
    /// Bytes of the file.
    Data(&'a [u8]),
    /// This number of bytes of the file, as it was sent, is missing here.
    Missing(u32),
    /// The file ends.
    End(How),
}

type See<'a> = &'a mut dyn FnMut(Found<'_>);

/// A parser of a mail or form.
#[derive(Debug, Default)]
pub struct Mime {
    depth: u8,
    /// The head has ended.
    in_body: bool,
    /// The outermost head has ended, or there is none.
    is_begun: bool,
    /// The current field.
    field: Vec<u8>,
    /// Bytes of the outermost head's fields.
    head_bytes: usize,
    /// The current line: of a head, or perhaps a boundary.
    line: Vec<u8>,
    /// In a body: the next byte begins a line.
    at_start: bool,
    /// The start of the current line is missing.
    is_torn: bool,
    /// The previous line end. It belongs to the boundary if one follows.
    end: &'static [u8],
    boundaries: Vec<Vec<u8>>,
    /// Parts are files as they are: heads of parts say nothing about a coding (RFC 7578, 4.7), and no part is a mail.
    is_plain: bool,
    part: Part,
}

#[derive(Debug, Default)]
struct Part {
    coding: Coding,
    is_file: bool,
    name: Option<Vec<u8>>,
    kind: Vec<u8>,
    /// Bytes of the file were reported.
    is_open: bool,
    /// The parser of a part that is a mail.
    mail: Option<Box<Mime>>,
    /// In a form: the boundary of parts within the part.
    nested: Option<Vec<u8>>,
    /// The start of a named mail, up to the inspection limit. A mail without files counts as a file itself.
    raw: Vec<u8>,
    /// More of it came.
    is_raw_cut: bool,
    has_files: bool,
    /// A mail must not be encoded (RFC 2046, 5.2.1). If the head says it is, the first line decides.
    is_doubtful: bool,
    /// Bytes of an incomplete group.
    waiting: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Coding {
    #[default]
    None,
    Base64,
    Quoted,
}

impl Mime {
    /// Creates a parser for the parts between these boundaries.
    pub fn parts(boundary: Vec<u8>) -> Mime {
        let boundaries = vec![boundary];
        Mime { in_body: true, is_begun: true, at_start: true, boundaries, ..Mime::default() }
    }

    /// Creates a parser for a form with this boundary.
    pub fn form(boundary: Vec<u8>) -> Mime {
        Mime { is_plain: true, ..Mime::parts(boundary) }
    }

    /// Reads the next bytes.
    pub fn feed(&mut self, bytes: &[u8], see: See<'_>) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_whole = piece.ends_with(b"\n");
            if !self.in_body {
                if self.is_torn {
                    self.is_torn = !is_whole;
                    continue;
                }
                let room = LINE_BYTES - self.line.len().min(LINE_BYTES);
                self.line.extend_from_slice(&piece[..piece.len().min(room)]);
                if is_whole {
                    let line = std::mem::take(&mut self.line);
                    self.head_line(line.trim_ascii_end(), see);
                }
                continue;
            }
            let at_start = std::mem::replace(&mut self.at_start, is_whole);
            if !at_start && self.line.is_empty() {
                self.body(piece, see);
                continue;
            }
            self.line.extend_from_slice(piece);
            let may_be_boundary = self.line.starts_with(b"--") || self.line == b"-";
            if (may_be_boundary || self.part.is_doubtful) && !is_whole && self.line.len() < LINE_BYTES {
                continue;
            }
            let line = std::mem::take(&mut self.line);
            if !self.boundary(&line, see) {
                self.body(&line, see);
            }
        }
    }

    /// `missing` bytes are missing here. A field or a coded line with a gap in it does not count.
    pub fn gap(&mut self, missing: u32, see: See<'_>) {
        let line = std::mem::take(&mut self.line);
        if self.in_body {
            self.body(&line, see);
            let end = std::mem::take(&mut self.end);
            self.part.decode(end, see);
        } else if line.first().is_some_and(|first| !matches!(first, b' ' | b'\t')) {
            // The field before this line is whole.
            self.end_field(see);
        }
        self.field.clear();
        (self.is_torn, self.at_start) = (true, true);
        self.part.gap(missing, see);
    }

    /// Nothing more comes.
    pub fn end(&mut self, see: See<'_>) {
        self.cut(How::Complete, see);
    }

    /// Nothing more comes, and the mail ended so.
    pub fn cut(&mut self, how: How, see: See<'_>) {
        let line = std::mem::take(&mut self.line);
        if !self.in_body {
            self.head_line(&line, see);
            self.end_field(see);
        } else if !self.boundary(&line, see) {
            self.body(&line, see);
        }
        let end = std::mem::take(&mut self.end);
        self.part.decode(end, see);
        self.end_part(how, see);
    }

    /// Bytes that are kept, of this mail and those within it.
    pub fn kept_bytes(&self) -> usize {
        let lists = [&self.field, &self.line, &self.part.kind, &self.part.waiting, &self.part.raw]
            .into_iter()
            .chain(&self.boundaries);
        let lists = lists.chain(&self.part.name).chain(&self.part.nested);
        lists.map(Vec::capacity).sum::<usize>() + self.part.mail.as_ref().map_or(0, |mail| mail.kept_bytes())
    }

    /// Handles a boundary line; returns whether it was one. A line that starts with a boundary counts (RFC 2046,
    /// 5.1.1).
    fn boundary(&mut self, line: &[u8], see: See<'_>) -> bool {
        let Some(name) = line.strip_prefix(b"--") else { return false };
        let known = self.boundaries.iter().enumerate().filter(|(_, known)| name.starts_with(known));
        let Some((at, known)) = known.max_by_key(|(_, known)| known.len()) else { return false };
        let is_last = name[known.len()..].starts_with(b"--");
        self.boundaries.truncate(if is_last { at } else { at + 1 });
        (self.end, self.is_torn) = (b"", false);
        self.end_part(How::Complete, see);
        (self.in_body, self.at_start) = (is_last, true);
        true
    }

    fn end_part(&mut self, how: How, see: See<'_>) {
        let mut part = std::mem::take(&mut self.part);
        if part.coding == Coding::Base64 {
            part.base64(b"=", see);
        }
        if let Some(mut mail) = part.mail.take() {
            mail.cut(how, &mut part.noting(see));
            part.is_file = part.name.is_some() && !part.has_files;
        }
        if part.is_file {
            // A file may be empty.
            let raw = std::mem::take(&mut part.raw);
            part.give_file(&raw, see);
            see(Found::End(if part.is_raw_cut { How::Cut } else { how }));
        }
    }

    fn head_line(&mut self, line: &[u8], see: See<'_>) {
        if line.first().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
            let room = LINE_BYTES - self.field.len().min(LINE_BYTES);
            self.field.extend([b' '].iter().chain(line.trim_ascii()).take(room));
            return;
        }
        self.end_field(see);
        if self.boundary(line, see) {
            return;
        }
        if !line.is_empty() {
            self.field.extend_from_slice(line);
            return;
        }
        (self.in_body, self.at_start) = (true, true);
        if !std::mem::replace(&mut self.is_begun, true) && self.depth == 0 {
            see(Found::Head(self.part.name.as_deref()));
        }
        let part = &mut self.part;
        // A file may look like parts.
        self.boundaries.extend(part.nested.take().filter(|_| !part.is_file));
        part.is_doubtful = part.mail.is_some() && part.coding == Coding::Base64;
        part.is_file |= part.coding == Coding::Base64;
    }

    fn end_field(&mut self, see: See<'_>) {
        let field = std::mem::take(&mut self.field);
        let Some(colon) = memchr::memchr(b':', &field) else { return };
        let (name, value) = (field[..colon].trim_ascii().to_ascii_lowercase(), field[colon + 1..].trim_ascii());
        if !self.is_begun && self.depth == 0 {
            let before = self.head_bytes;
            self.head_bytes = before.saturating_add(field.len() + FIELD_BYTES);
            match (before <= HEAD_BYTES, self.head_bytes <= HEAD_BYTES) {
                (_, true) => see(Found::Field(&name, value)),
                (true, false) => see(Found::More),
                (false, false) => {}
            }
        }
        let part = &mut self.part;
        match &name[..] {
            b"content-type" => {
                let kind = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
                let is_mail =
                    [&b"message/rfc822"[..], b"message/global"].iter().any(|it| kind.eq_ignore_ascii_case(it));
                if is_mail && self.depth < DEPTH && !self.is_plain {
                    part.mail = Some(Box::new(Mime { depth: self.depth + 1, ..Mime::default() }));
                }
                part.kind = kind[..kind.len().min(KIND_BYTES)].to_vec();
                let boundary = parameter(value, b"boundary").filter(|boundary| !boundary.is_empty());
                if let Some(boundary) = boundary.filter(|_| self.boundaries.len() < BOUNDARIES) {
                    match self.is_plain {
                        true => part.nested = Some(boundary),
                        false => self.boundaries.push(boundary),
                    }
                }
                part.name_it(parameter(value, b"name"));
            }
            b"content-disposition" => part.name_it(parameter(value, b"filename")),
            b"content-transfer-encoding" if !self.is_plain => {
                part.coding = match &value.to_ascii_lowercase()[..] {
                    b"base64" => Coding::Base64,
                    b"quoted-printable" => Coding::Quoted,
                    _ => Coding::None,
                }
            }
            _ => {}
        }
    }

    /// Handles bytes of a body, at most one line.
    fn body(&mut self, mut bytes: &[u8], see: See<'_>) {
        if self.is_torn && !bytes.is_empty() {
            self.is_torn = !bytes.ends_with(b"\n") && self.part.coding != Coding::None;
            if self.part.coding != Coding::None {
                return;
            }
        }
        if std::mem::take(&mut self.part.is_doubtful) && bytes.contains(&b':') {
            self.part.coding = Coding::None;
        }
        if self.end == b"\r" && bytes == b"\n" {
            (self.end, bytes) = (b"\r\n", b"");
        }
        if bytes.is_empty() {
            return;
        }
        let end: &'static [u8] = match bytes {
            [.., b'\r', b'\n'] => b"\r\n",
            [.., b'\n'] => b"\n",
            [.., b'\r'] => b"\r",
            _ => b"",
        };
        let before = std::mem::replace(&mut self.end, end);
        self.part.decode(before, see);
        self.part.decode(&bytes[..bytes.len() - end.len()], see);
    }
}

impl Part {
    /// The first name counts.
    fn name_it(&mut self, name: Option<Vec<u8>>) {
        self.is_file |= name.is_some();
        self.name = self.name.take().or(name);
    }

    fn decode(&mut self, bytes: &[u8], see: See<'_>) {
        if bytes.is_empty() || !self.is_file && self.mail.is_none() {
            return;
        }
        match self.coding {
            Coding::None => self.give(bytes, see),
            Coding::Base64 => self.base64(bytes, see),
            Coding::Quoted => self.quoted(bytes, see),
        }
    }

    /// Coded bytes go on behind the line in which some are missing.
    fn gap(&mut self, missing: u32, see: See<'_>) {
        self.waiting.clear();
        if let Some(mut mail) = self.mail.take() {
            self.is_raw_cut = self.name.is_some();
            mail.gap(missing, &mut self.noting(see));
            self.mail = Some(mail);
        } else if self.is_file {
            self.give_file(b"", see);
            see(Found::Missing(missing));
        }
    }

    fn give(&mut self, bytes: &[u8], see: See<'_>) {
        if bytes.is_empty() {
            return;
        }
        let Some(mut mail) = self.mail.take() else { return self.give_file(bytes, see) };
        if self.name.is_some() {
            let room = RULES_BODY_BYTES - self.raw.len();
            self.is_raw_cut |= bytes.len() > room;
            self.raw.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        mail.feed(bytes, &mut self.noting(see));
        self.mail = Some(mail);
    }

    fn give_file(&mut self, bytes: &[u8], see: See<'_>) {
        if !std::mem::replace(&mut self.is_open, true) {
            see(Found::File { name: self.name.as_deref(), kind: &self.kind });
        }
        see(Found::Data(bytes));
    }

    /// Notes whether the mail contains files.
    fn noting<'a>(&'a mut self, see: See<'a>) -> impl FnMut(Found<'_>) + use<'a> {
        |found| {
            self.has_files |= matches!(found, Found::File { .. });
            see(found);
        }
    }

    /// Base64 skips other characters (RFC 2045, 6.8). Padding ends a group, and more groups may follow.
    fn base64(&mut self, bytes: &[u8], see: See<'_>) {
        let mut decoded = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'=') {
            let letters = piece.iter().filter(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
            self.waiting.extend(letters);
            let is_end = piece.ends_with(b"=");
            let count = if is_end { self.waiting.len() } else { self.waiting.len() / 4 * 4 };
            let loose = base64::engine::GeneralPurposeConfig::new()
                .with_decode_allow_trailing_bits(true)
                .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent);
            let engine = base64::engine::GeneralPurpose::new(&base64::alphabet::STANDARD, loose);
            // A single leftover character does not make a byte.
            let whole = if count % 4 == 1 { count - 1 } else { count };
            let _ = engine.decode_vec(&self.waiting[..whole], &mut decoded);
            self.waiting.drain(..count);
        }
        self.give(&decoded, see);
    }

    /// Quoted-printable (RFC 2045, 6.7); `=` at the end of a line joins the next one.
    fn quoted(&mut self, bytes: &[u8], see: See<'_>) {
        let bytes = [&std::mem::take(&mut self.waiting)[..], bytes].concat();
        let mut decoded = Vec::with_capacity(bytes.len());
        let mut rest = &bytes[..];
        let digit = |byte: u8| char::from(byte).to_digit(16);
        while let Some((first, behind)) = rest.split_first() {
            rest = match behind {
                _ if *first != b'=' => {
                    decoded.push(*first);
                    behind
                }
                [b'\r', b'\n', behind @ ..] | [b'\n', behind @ ..] => behind,
                [high, low, behind @ ..] if digit(*high).is_some() && digit(*low).is_some() => {
                    decoded.push((digit(*high).unwrap_or(0) << 4 | digit(*low).unwrap_or(0)) as u8);
                    behind
                }
                [] | [_] => {
                    self.waiting = rest.to_vec();
                    break;
                }
                _ => {
                    decoded.push(b'=');
                    behind
                }
            };
        }
        self.give(&decoded, see);
    }
}
