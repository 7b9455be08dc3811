//! Lines of one of Zeek's logs: tab-separated values behind a head that names and types them, or JSON objects. Names,
//! types and order of columns are those of Zeek 7 with its default scripts. `zeek/rows.rs` sets the values.

use crate::parts::json_text;
use std::io::Write;
use std::net::IpAddr;

#[derive(Debug)]
pub(super) struct Log {
    pub path: &'static str,
    pub columns: &'static [(&'static str, &'static str)],
}

/// The format of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Tsv,
    Json,
}

/// A line being written. Columns are set in order; a skipped column is unset.
pub(super) struct Line<'a> {
    out: &'a mut Vec<u8>,
    log: &'static Log,
    format: Format,
    at: usize,
}

const NANOSECONDS: u64 = 1_000_000_000;

pub(super) fn append_head(out: &mut Vec<u8>, log: &Log, open: u64) {
    out.extend_from_slice(b"#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\t");
    out.extend_from_slice(log.path.as_bytes());
    out.extend_from_slice(b"\n#open\t");
    append_date(out, open);
    out.extend_from_slice(b"\n#fields");
    for (name, _) in log.columns {
        out.push(b'\t');
        out.extend_from_slice(name.as_bytes());
    }
    out.extend_from_slice(b"\n#types");
    for (_, kind) in log.columns {
        out.push(b'\t');
        out.extend_from_slice(kind.as_bytes());
    }
}

pub(super) fn append_end(out: &mut Vec<u8>, close: u64) {
    out.extend_from_slice(b"#close\t");
    append_date(out, close);
}

/// A time as `2026-01-02-03-04-05`.
fn append_date(out: &mut Vec<u8>, ns: u64) {
    let text = packet::time::rfc3339(ns);
    out.extend(text[..19].iter().map(|byte| if byte.is_ascii_digit() { *byte } else { b'-' }));
}

impl<'a> Line<'a> {
    pub(super) fn begin(out: &'a mut Vec<u8>, log: &'static Log, format: Format) -> Line<'a> {
        if format == Format::Json {
            out.push(b'{');
        }
        Line { out, log, format, at: 0 }
    }

    /// Ends the line, without a line break.
    pub(super) fn end(mut self) {
        match self.format {
            Format::Tsv => self.skip(self.log.columns.len()),
            Format::Json => self.out.push(b'}'),
        }
    }

    /// Marks the columns before `to` as unset.
    fn skip(&mut self, to: usize) {
        while self.at < to {
            if self.format == Format::Tsv {
                self.out.extend_from_slice(if self.at == 0 { b"-" } else { b"\t-" });
            }
            self.at += 1;
        }
    }

    /// The buffer for the value of a column.
    fn column(&mut self, name: &str) -> &mut Vec<u8> {
        let rest = self.log.columns[self.at..].iter();
        let place = rest.clone().position(|(known, _)| *known == name).map(|place| self.at + place);
        debug_assert!(place.is_some(), "{name} stands before others in {}", self.log.path);
        self.skip(place.unwrap_or(self.at));
        self.at += 1;
        match self.format {
            Format::Tsv if self.at > 1 => self.out.push(b'\t'),
            Format::Tsv => {}
            Format::Json => json_text::key(self.out, name),
        }
        self.out
    }

    pub(super) fn count(&mut self, name: &str, value: u64) {
        json_text::number(self.column(name), value);
    }

    pub(super) fn flag(&mut self, name: &str, value: bool) {
        let text: &[u8] = match (self.format, value) {
            (Format::Tsv, true) => b"T",
            (Format::Tsv, false) => b"F",
            (Format::Json, true) => b"true",
            (Format::Json, false) => b"false",
        };
        self.column(name).extend_from_slice(text);
    }

    /// Sets a time since 1970, or an interval, in seconds.
    pub(super) fn seconds(&mut self, name: &str, ns: u64) {
        append_seconds(self.column(name), ns);
    }

    pub(super) fn address(&mut self, name: &str, value: IpAddr) {
        let is_tsv = self.format == Format::Tsv;
        let out = self.column(name);
        // Writing to memory does not fail.
        match is_tsv {
            true => drop(write!(out, "{value}")),
            false => json_text::address(out, value),
        }
    }

    pub(super) fn text(&mut self, name: &str, value: &[u8]) {
        let format = self.format;
        append_text(self.column(name), value, format, false);
    }

    /// Sets a set or a vector of texts.
    pub(super) fn list<'t>(&mut self, name: &str, values: impl Iterator<Item = &'t [u8]>) {
        self.each(name, values, |out, value, format| append_text(out, value, format, true));
    }

    /// Sets a vector of intervals.
    pub(super) fn intervals(&mut self, name: &str, values: impl Iterator<Item = u64>) {
        self.each(name, values, |out, ns, _| append_seconds(out, ns));
    }

    fn each<T>(&mut self, name: &str, values: impl Iterator<Item = T>, append: impl Fn(&mut Vec<u8>, T, Format)) {
        let format = self.format;
        let out = self.column(name);
        if format == Format::Json {
            out.push(b'[');
        }
        let mut is_empty = true;
        for value in values {
            if !is_empty {
                out.push(b',');
            }
            append(out, value, format);
            is_empty = false;
        }
        match format {
            Format::Tsv if is_empty => out.extend_from_slice(b"(empty)"),
            Format::Tsv => {}
            Format::Json => out.push(b']'),
        }
    }
}

fn append_seconds(out: &mut Vec<u8>, ns: u64) {
    let _ = write!(out, "{}.{:06}", ns / NANOSECONDS, ns % NANOSECONDS / 1000);
}

/// Appends a text. In tab-separated lines, bytes with another meaning become `\xHH`, as in Zeek.
fn append_text(out: &mut Vec<u8>, text: &[u8], format: Format, is_item: bool) {
    if format == Format::Json {
        return json_text::text(out, text);
    }
    match text {
        b"" => return out.extend_from_slice(b"(empty)"),
        // Zeek writes these for a missing value, so escape them.
        b"-" => return out.extend_from_slice(b"\\x2d"),
        b"(empty)" => return out.extend_from_slice(b"\\x28empty)"),
        _ => {}
    }
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut room = [0; 4];
            let bytes = character.encode_utf8(&mut room).as_bytes();
            if character.is_control() || character == '\\' || is_item && character == ',' {
                bytes.iter().for_each(|byte| append_escape(out, *byte));
            } else {
                out.extend_from_slice(bytes);
            }
        }
        chunk.invalid().iter().for_each(|byte| append_escape(out, *byte));
    }
}

fn append_escape(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(b"\\x");
    packet::text::append_hex(out, &[byte]);
}

#[cfg(test)]
mod tests {
    use super::*;

    static SAMPLE: Log = Log {
        path: "sample",
        columns: &[("ts", "time"), ("name", "string"), ("n", "count"), ("all", "vector[string]"), ("yes", "bool")],
    };

    fn check(fill: impl Fn(&mut Line<'_>), tsv: &str, json: &str) {
        for (format, expected) in [(Format::Tsv, tsv), (Format::Json, json)] {
            let mut out = Vec::new();
            let mut line = Line::begin(&mut out, &SAMPLE, format);
            fill(&mut line);
            line.end();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn lines() {
        check(|_| {}, "-\t-\t-\t-\t-", "{}");
        check(
            |line| {
                line.seconds("ts", 1_084_443_427_311_224_999);
                line.count("n", 7);
                line.flag("yes", true);
            },
            "1084443427.311224\t-\t7\t-\tT",
            r#"{"ts":1084443427.311224,"n":7,"yes":true}"#,
        );
        check(
            |line| {
                line.text("name", b"a\tb\\,\xff\xc3\xa9");
                line.list("all", [&b"x,y"[..], b"", b"-"].into_iter());
            },
            "-\ta\\x09b\\x5c,\\xff\u{e9}\t-\tx\\x2cy,(empty),\\x2d\t-",
            r#"{"name":"a\tb\\,\\xff","all":["x,y","","-"]}"#.replace("xff", "xff\u{e9}").as_str(),
        );
        check(|line| line.list("all", std::iter::empty()), "-\t-\t-\t(empty)\t-", r#"{"all":[]}"#);
    }

    #[test]
    fn a_head_names_and_types_the_columns() {
        let mut out = Vec::new();
        append_head(&mut out, &SAMPLE, 1_084_443_427_311_224_000);
        out.push(b'\n');
        append_end(&mut out, 1_084_443_457_000_000_000);
        let expected = "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\tsample\n\
                        #open\t2004-05-13-10-17-07\n#fields\tts\tname\tn\tall\tyes\n\
                        #types\ttime\tstring\tcount\tvector[string]\tbool\n#close\t2004-05-13-10-17-37";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
