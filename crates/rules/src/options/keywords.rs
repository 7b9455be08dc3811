//! Keywords that need more than a table entry: DCE/RPC, HTTP/2, WebSocket, protocol frames, whole files.

use super::Reader;
use crate::bytes::{ByteTest, Source, Test};
use crate::content::{Content, Num};
use crate::dataset::{Kind, Verb, size};
use crate::inspect::Step;
use crate::mistake::Read;
use crate::names::{App, Buffer, Number};
use crate::number::{Among, Compare};
use crate::pcre;
use crate::rule::{FRAME, List, Target};
use crate::text::{Opt, Word, unsigned};

impl Reader<'_> {
    /// Reads keywords of one protocol, and of whole files, that are no table entries. `None`: it is another keyword.
    pub(super) fn of_protocol(&mut self, option: &Opt<'_>) -> Option<Read<()>> {
        Some(match option.name.text {
            "ftpbounce" => self.ftp_bounce(option),
            "urilen" => self.uri_length(option),
            "filemd5" => self.file_digest(option, Buffer::FILE_MD5, Kind::Md5),
            "filesha1" => self.file_digest(option, Buffer::FILE_SHA1, Kind::Sha1),
            "filesha256" => self.file_digest(option, Buffer::FILE_SHA256, Kind::Sha256),
            "filesize" => self.file_size(option),
            "fileext" => self.file_name(option, true),
            "frame" => self.frame(option),
            "dce_iface" | "dcerpc.iface" => self.dce_interface(option),
            "dce_opnum" | "dcerpc.opnum" => self.dce_operation(option),
            "http2.settings" => self.http2_setting(option),
            "websocket.flags" => self.websocket_flags(option),
            "tls.version" if option.value.is_some() => self.tls_version(option),
            "ssl_version" => self.ssl_version(option),
            "tls.fingerprint" => self.tls_text(option, Buffer::TLS_CERT_FINGERPRINT, true),
            "tls.subject" => self.tls_text(option, Buffer::TLS_CERT_SUBJECT, false),
            "tls.issuerdn" => self.tls_text(option, Buffer::TLS_CERT_ISSUER, false),
            _ => return None,
        })
    }

    fn ftp_bounce(&mut self, option: &Opt<'_>) -> Read<()> {
        option.bare()?;
        self.set_app(option.name, App::Ftp)?;
        self.rule.events.push("ftp.bounce");
        Ok(())
    }

    fn uri_length(&mut self, option: &Opt<'_>) -> Read<()> {
        let words = option.needed()?.split(',');
        let buffer = match words.get(1).map(|word| word.text) {
            Some("raw") => Buffer::HTTP_URI_RAW,
            None | Some("norm") => Buffer::HTTP_URI,
            Some(_) => return words[1].wrong("urilen is raw or norm"),
        };
        let steps = vec![Step::Size(Compare::read(words[0], 16, |_| None)?)];
        let target = Target::Buffer(buffer);
        self.rule.lists.push(List { target, transforms: Vec::new(), steps, to_server: None, absent: None });
        Ok(())
    }

    /// Makes contents look into frames of a protocol.
    fn frame(&mut self, option: &Opt<'_>) -> Read<()> {
        let value = option.needed()?;
        let name = match (value.text.contains('.'), self.rule.app) {
            (false, Some(app)) => format!("{FRAME}{}.{}", app.name(), value.text),
            _ => format!("{FRAME}{}", value.text),
        };
        match Buffer::of_name(&name) {
            Some(buffer) => self.stick(&Opt { name: option.name, value: None }, buffer),
            None => value.wrong(format!("the frame {} is not supported", value.text)),
        }
    }

    /// Reads a DCE/RPC interface: UUID, and optionally a comparison with its version.
    fn dce_interface(&mut self, option: &Opt<'_>) -> Read<()> {
        let words = option.needed()?.split(',');
        let digits: String = words[0].text.chars().filter(|letter| *letter != '-').collect();
        if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return words[0].wrong(format!("\u{201c}{}\u{201d} is no UUID", words[0].text));
        }
        let mut content = Content::read(Word::new(&format!("\"|{digits}|\""), words[0].at))?;
        (content.offset, content.depth) = (Some(Num::Value(0)), Some(Num::Value(16)));
        let mut steps = vec![Step::Content(Box::new(content))];
        for word in &words[1..] {
            let test = match word.text.as_bytes().first() {
                // Ignored: a request is inspected once, with all its fragments.
                _ if word.text == "any_frag" => continue,
                Some(b'<') => Test::Less,
                Some(b'>') => Test::More,
                Some(b'=' | b'!') => Test::Equal,
                _ => return word.wrong("a version stands behind <, >, = or !"),
            };
            let value = unsigned(Word::new(&word.text[1..], word.at + 1).trim(), 16)?;
            let source = Source { count: 2, offset: Some(Num::Value(16)), ..Source::default() };
            let negated = word.text.starts_with('!');
            let value = Num::Value(value as i64);
            steps.push(Step::Test(Box::new(ByteTest { source, test, negated, value, count: None })));
        }
        self.push_buffer_list(option.name, Buffer::DCERPC_INTERFACE, steps)
    }

    /// Reads a DCE/RPC operation: a comparison, or several numbers and ranges.
    fn dce_operation(&mut self, option: &Opt<'_>) -> Read<()> {
        let words = option.needed()?.split(',');
        if words.len() == 1 {
            return self.named(option);
        }
        let mut ranges = Vec::new();
        for word in words {
            let (low, high) = word.text.split_once('-').unwrap_or((word.text, word.text));
            let low = unsigned(Word::new(low, word.at), 16)?;
            let high = unsigned(Word::new(high, word.at + word.text.len() - high.len()), 16)?;
            if low > high {
                return word.wrong(format!("no number lies between {low} and {high}"));
            }
            ranges.push((low, high));
        }
        self.set_app(option.name, App::Dcerpc)?;
        self.rule.numbers.push((Number::DCERPC_OPNUM, Compare::AtLeast(0), Among::Any));
        self.rule.among.push((Number::DCERPC_OPNUM, ranges));
        Ok(())
    }

    /// Reads an HTTP/2 setting, optionally with a comparison of its value.
    fn http2_setting(&mut self, option: &Opt<'_>) -> Read<()> {
        let value = option.needed()?;
        let end = value.text.find(|letter: char| !letter.is_ascii_alphabetic() && letter != '_');
        let (name, rest) = value.text.split_at(end.unwrap_or(value.text.len()));
        let Some(number) = Number::of_name(&format!("http2 {}", name.to_ascii_lowercase())) else {
            return value.wrong(format!("the setting {name} is not known"));
        };
        let compare = match rest.trim() {
            "" => Compare::AtLeast(0),
            _ => Compare::read(Word::new(rest, value.at + name.len()), 32, |_| None)?,
        };
        self.set_app(option.name, App::Http2)?;
        self.rule.numbers.push((number, compare, Among::Any));
        Ok(())
    }

    /// Reads flags of a WebSocket frame, as a number or by name.
    fn websocket_flags(&mut self, option: &Opt<'_>) -> Read<()> {
        let value = option.needed()?;
        let by_name = value.text.trim_start_matches('!').starts_with(|letter: char| letter.is_ascii_alphabetic());
        if !by_name {
            return self.named(option);
        }
        self.set_app(option.name, App::WebSocket)?;
        for word in value.split(',') {
            let (negated, name) = word.text.strip_prefix('!').map_or((false, word.text), |name| (true, name.trim()));
            let Some((_, mask)) = Number::WEBSOCKET_FLAGS.about().words.iter().find(|known| known.0 == name) else {
                return word.wrong(format!("a frame of a WebSocket has no flag {name}"));
            };
            let compare = Compare::Bits { mask: *mask, value: *mask, negated };
            self.rule.numbers.push((Number::WEBSOCKET_FLAGS, compare, Among::Any));
        }
        Ok(())
    }

    /// Reads a test whether a whole file's digest is in a list, or is not.
    fn file_digest(&mut self, option: &Opt<'_>, buffer: Buffer, kind: Kind) -> Read<()> {
        let value = option.needed()?;
        let (negated, name) = value.text.strip_prefix('!').map_or((0, value.text), |name| (1, name));
        let list = self.datasets.list(Word::new(name, value.at + negated).trim(), kind)?;
        let verb = if negated == 1 { Verb::IsNotSet } else { Verb::IsSet };
        self.push_buffer_list(option.name, buffer, vec![Step::Member(list, verb)])
    }

    /// Reads a comparison of a whole file's size, with optional units.
    fn file_size(&mut self, option: &Opt<'_>) -> Read<()> {
        let value = option.needed()?;
        let mut text = String::new();
        for part in value.text.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()) {
            let end = part.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
            if !end.is_empty() {
                text.push_str(&size(Word::new(end, value.at))?.to_string());
            }
            text.push_str(&part[end.len()..]);
        }
        let compare = Compare::read(Word::new(&text, value.at), 64, |_| None)?;
        self.push_buffer_list(option.name, Buffer::FILE_SIZE, vec![Step::Value(compare)])
    }

    /// Reads a version of TLS, which the sender's hello has.
    fn tls_version(&mut self, option: &Opt<'_>) -> Read<()> {
        let value = option.needed()?;
        let version = value.text.trim_matches('"');
        if !matches!(version, "1.0" | "1.1" | "1.2" | "1.3") {
            return value.wrong("a version of TLS is 1.0, 1.1, 1.2 or 1.3");
        }
        let content = Content::read(Word::new(&format!("\"{version}\""), value.at))?;
        self.push_buffer_list(option.name, Buffer::TLS_VERSION, vec![Step::Content(Box::new(content))])
    }

    /// Reads versions, one of which the sender's hello has: `tls1.0,sslv3`. Suricata takes a negated one out of the list, so
    /// without others the rule would match nothing.
    fn ssl_version(&mut self, option: &Opt<'_>) -> Read<()> {
        let value = option.needed()?;
        let mut wanted = Vec::new();
        for word in value.split(',') {
            let name = word.text.trim_matches('"').to_ascii_lowercase();
            match (name.strip_prefix("tls"), &name[..]) {
                (Some(version @ ("1.0" | "1.1" | "1.2" | "1.3")), _) => wanted.push(version.replace('.', "\\.")),
                (_, "sslv3") => wanted.push("SSLv3".to_string()),
                (_, "!sslv2" | "!sslv3" | "!tls1.0" | "!tls1.1" | "!tls1.2" | "!tls1.3") => {}
                (_, "sslv2") => return word.wrong("SSLv2 is not read"),
                _ => return word.wrong("a version is sslv3, tls1.0, tls1.1, tls1.2 or tls1.3"),
            }
        }
        if wanted.is_empty() {
            return value.wrong("negated versions alone match nothing: name those that are meant");
        }
        let (pcre, _) = pcre::read(Word::new(&format!("\"/^({})$/\"", wanted.join("|")), value.at))?;
        self.push_buffer_list(option.name, Buffer::TLS_VERSION, vec![Step::Pcre(Box::new(pcre))])
    }

    /// Reads a text that a certificate has, or has not: as the `whole` buffer, or anywhere in it.
    fn tls_text(&mut self, option: &Opt<'_>, buffer: Buffer, whole: bool) -> Read<()> {
        let value = option.needed()?;
        let mut content = Content::read(value)?;
        let length = Num::Value(content.bytes.len() as i64);
        if whole {
            (content.offset, content.depth, content.ends) = (Some(Num::Value(0)), Some(length), true);
        }
        self.push_buffer_list(option.name, buffer, vec![Step::Content(Box::new(content))])
    }

    /// Adds steps over a buffer without changing where later contents look.
    fn push_buffer_list(&mut self, word: Word<'_>, buffer: Buffer, steps: Vec<Step>) -> Read<()> {
        self.needs_app(word, buffer)?;
        let target = Target::Buffer(buffer);
        self.rule.lists.push(List { target, transforms: Vec::new(), steps, to_server: None, absent: None });
        Ok(())
    }
}
