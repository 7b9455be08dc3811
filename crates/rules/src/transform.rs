//! Transforms: they convert a buffer before contents inspect it.

use crate::mistake::Read;
use crate::pcre::Pcre;
use crate::text::{Opt, Word, number};
use base::limits::RULES_INFLATED_BYTES;
use base64::Engine as _;
use md5::Digest as _;

#[derive(Clone, Debug)]
pub(crate) enum Transform {
    StripWhitespace,
    CompressWhitespace,
    Lower,
    Upper,
    Md5,
    Sha1,
    Sha256,
    DotPrefix,
    UrlDecode,
    StripPseudoHeaders,
    HeaderLowercase,
    Xor(Vec<u8>),
    /// The XOR key is in the buffer at `key_at`; decoding starts at `offset`.
    XorExtract {
        key_at: usize,
        key_len: usize,
        offset: usize,
    },
    FromBase64 {
        offset: usize,
        bytes: usize,
        mode: Mode64,
    },
    /// A range beyond the buffer yields an empty buffer; `truncate`: yields the part inside the buffer.
    Subslice {
        offset: i64,
        bytes: Option<i64>,
        truncate: bool,
    },
    /// Yields the first group; without a match there is no buffer to inspect.
    Pcre(Box<Pcre>),
    /// Decompresses, up to this many bytes.
    Gunzip(usize),
    Zlib(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode64 {
    Strict,
    /// Skips characters outside base64.
    Rfc2045,
    /// Stops at the first character outside base64.
    Rfc4648,
}

impl Transform {
    /// Reads an option; `None`: not a transform.
    pub fn read(option: &Opt<'_>) -> Read<Option<Transform>> {
        let plain = |transform| option.bare().map(|()| Some(transform));
        match option.name.text {
            "strip_whitespace" => plain(Transform::StripWhitespace),
            "compress_whitespace" => plain(Transform::CompressWhitespace),
            "to_lowercase" => plain(Transform::Lower),
            "to_uppercase" => plain(Transform::Upper),
            "to_md5" => plain(Transform::Md5),
            "to_sha1" => plain(Transform::Sha1),
            "to_sha256" => plain(Transform::Sha256),
            "dotprefix" => plain(Transform::DotPrefix),
            "url_decode" => plain(Transform::UrlDecode),
            "strip_pseudo_headers" => plain(Transform::StripPseudoHeaders),
            "header_lowercase" => plain(Transform::HeaderLowercase),
            "xor" => {
                let value = option.needed()?;
                if !value.text.starts_with('"') {
                    return xor_extract(value).map(Some);
                }
                let text = value.text.trim_matches('"').trim_start_matches("0x");
                let digits: Option<Vec<u8>> =
                    text.chars().map(|letter| letter.to_digit(16).map(|it| it as u8)).collect();
                match digits {
                    Some(digits) if !digits.is_empty() && digits.len() % 2 == 0 && digits.len() <= 512 => {
                        let key = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
                        Ok(Some(Transform::Xor(key)))
                    }
                    _ => value.wrong("the key is pairs of hexadecimal digits, 256 bytes at most"),
                }
            }
            "from_base64" => from_base64(option).map(Some),
            "gunzip" => inflated_most(option).map(|most| Some(Transform::Gunzip(most))),
            "zlib_deflate" => inflated_most(option).map(|most| Some(Transform::Zlib(most))),
            "subslice" => {
                let value = option.needed()?;
                let words = value.split(',');
                let offset = number(words[0])?;
                let (mut bytes, mut truncate) = (None, false);
                for word in &words[1..] {
                    match word.text {
                        "truncate" => truncate = true,
                        _ => bytes = Some(number(*word)?),
                    }
                }
                Ok(Some(Transform::Subslice { offset, bytes, truncate }))
            }
            "pcrexform" => {
                let value = option.needed()?;
                let (text, _) = crate::text::quoted(value)?;
                let with_slashes = format!("\"/{}/\"", text.text);
                let read = crate::pcre::read(Word::new(&with_slashes, 0));
                match read {
                    Ok((pcre, None)) if pcre.groups() == 1 => Ok(Some(Transform::Pcre(Box::new(pcre)))),
                    Ok((_, None)) => value.wrong("the expression of pcrexform has one group, which is what it gives"),
                    Ok(_) => value.wrong("the expression of pcrexform takes no flags"),
                    Err(wrong) => value.wrong(wrong.reason),
                }
            }
            _ => Ok(None),
        }
    }

    /// Budget steps besides those for the input bytes.
    pub fn steps(&self, bytes: usize) -> u32 {
        match self {
            Transform::Pcre(pcre) => pcre.steps(bytes),
            // Charges for the largest possible output: one step per 16 bytes.
            Transform::Gunzip(most) | Transform::Zlib(most) => u32::try_from(most / 16).unwrap_or(u32::MAX),
            _ => 0,
        }
    }

    /// Converts `from` to `to`. `false`: the transform gives no buffer to inspect.
    pub fn apply(&self, from: &[u8], to: &mut Vec<u8>) -> bool {
        to.clear();
        match self {
            Transform::StripWhitespace => to.extend(from.iter().filter(|byte| !is_space(**byte))),
            Transform::CompressWhitespace => {
                let mut space = false;
                for byte in from {
                    if !(is_space(*byte) && space) {
                        to.push(*byte);
                    }
                    space = is_space(*byte);
                }
            }
            Transform::Lower => to.extend(from.iter().map(u8::to_ascii_lowercase)),
            Transform::Upper => to.extend(from.iter().map(u8::to_ascii_uppercase)),
            Transform::Md5 => to.extend_from_slice(&md5::Md5::digest(from)),
            Transform::Sha1 => to.extend_from_slice(&sha1::Sha1::digest(from)),
            Transform::Sha256 => to.extend_from_slice(&sha2::Sha256::digest(from)),
            Transform::DotPrefix => {
                to.push(b'.');
                to.extend_from_slice(from);
            }
            Transform::UrlDecode => url_decode(from, to),
            Transform::StripPseudoHeaders => {
                for line in from.split_inclusive(|byte| *byte == b'\n').filter(|line| line.first() != Some(&b':')) {
                    to.extend_from_slice(line);
                }
            }
            Transform::HeaderLowercase => {
                for line in from.split_inclusive(|byte| *byte == b'\n') {
                    let name = line.iter().skip(1).position(|byte| *byte == b':').map_or(line.len(), |at| at + 1);
                    to.extend(line[..name].iter().map(u8::to_ascii_lowercase));
                    to.extend_from_slice(&line[name..]);
                }
            }
            Transform::Xor(key) => to.extend(from.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key)),
            Transform::XorExtract { key_at, key_len, offset } => {
                let key = from.get(*key_at..key_at + key_len).unwrap_or_default();
                if key.is_empty() {
                    to.extend_from_slice(from);
                } else {
                    let coded = from.get(*offset..).unwrap_or_default();
                    to.extend(coded.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
                }
            }
            Transform::FromBase64 { offset, bytes, mode } => {
                let from = from.get(*offset..).unwrap_or_default();
                let from = if *bytes == 0 { from } else { &from[..from.len().min(*bytes)] };
                decode64(from, *mode, to);
            }
            Transform::Subslice { offset, bytes, truncate } => {
                to.extend_from_slice(subslice(from, *offset, *bytes, *truncate).unwrap_or_default());
            }
            Transform::Gunzip(most) => inflate(flate2::read::MultiGzDecoder::new(from), *most, to),
            Transform::Zlib(most) => inflate(flate2::read::ZlibDecoder::new(from), *most, to),
            Transform::Pcre(pcre) => match pcre.first_group(from) {
                Some(group) => to.extend_from_slice(group),
                None => return false,
            },
        }
        true
    }
}

/// Reads `max-size N`.
fn inflated_most(option: &Opt<'_>) -> Read<usize> {
    const USUAL: usize = 1024;
    let Some(value) = option.value else { return Ok(USUAL) };
    let Some(size) = value.text.strip_prefix("max-size ") else {
        return value.wrong("max-size and a number are needed");
    };
    let size = Word::new(size, value.at + "max-size ".len()).trim();
    match crate::text::unsigned(size, 32)? as usize {
        most @ 1..=RULES_INFLATED_BYTES => Ok(most),
        _ => size.wrong(format!("max-size is from 1 to {RULES_INFLATED_BYTES}")),
    }
}

/// Decompresses as far as the input is valid.
fn inflate(from: impl std::io::Read, most: usize, to: &mut Vec<u8>) {
    use std::io::Read as _;
    // On an error `to` keeps the bytes before it.
    let _ = from.take(most as u64).read_to_end(to);
}

/// Reads `offset N,extract LENGTH PLACE`.
fn xor_extract(value: Word<'_>) -> Read<Transform> {
    let (mut offset, mut key) = (0, None);
    for word in value.split(',') {
        let parts: Vec<&str> = word.text.split_ascii_whitespace().collect();
        let small = |text: &str| crate::text::unsigned(Word::new(text, word.at), 16).map(|number| number as usize);
        match parts[..] {
            ["offset", number] => offset = small(number)?,
            ["extract", length, place] => key = Some((small(place)?, small(length)?)),
            _ => return word.wrong("xor takes a key in quotes, or offset and extract"),
        }
    }
    match key {
        Some((key_at, key_len)) if key_len > 0 => Ok(Transform::XorExtract { key_at, key_len, offset }),
        _ => value.wrong("extract with the length and the place of the key is missing"),
    }
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// `None`: the range is not within the buffer. An end before the start is the start (Suricata's manual, "subslice").
fn subslice(from: &[u8], offset: i64, bytes: Option<i64>, truncate: bool) -> Option<&[u8]> {
    let len = from.len() as i64;
    let within = |place: i64| (truncate || (0..=len).contains(&place)).then(|| place.clamp(0, len) as usize);
    let start = within(if offset < 0 { len.saturating_add(offset) } else { offset })?;
    let end = within(match bytes {
        None => len,
        Some(bytes) if bytes < 0 => len.saturating_add(bytes),
        Some(bytes) => (start as i64).saturating_add(bytes),
    })?;
    from.get(start.min(end)..start.max(end))
}

fn from_base64(option: &Opt<'_>) -> Read<Transform> {
    let (mut offset, mut bytes, mut mode) = (0, 0, Mode64::Rfc4648);
    for word in option.value.map(|value| value.split(',')).unwrap_or_default() {
        let (name, rest) = word.text.split_once(' ').unwrap_or((word.text, ""));
        let rest = Word::new(rest, word.at + name.len() + 1).trim();
        match name {
            "offset" => offset = crate::text::unsigned(rest, 16)? as usize,
            "bytes" => bytes = crate::text::unsigned(rest, 16)? as usize,
            "mode" => {
                mode = match rest.text {
                    "strict" => Mode64::Strict,
                    "rfc2045" => Mode64::Rfc2045,
                    "rfc4648" => Mode64::Rfc4648,
                    other => return rest.wrong(format!("\u{201c}{other}\u{201d} is no mode of base64")),
                }
            }
            "" => {}
            other => return word.wrong(format!("from_base64 does not know \u{201c}{other}\u{201d}")),
        }
    }
    Ok(Transform::FromBase64 { offset, bytes, mode })
}

/// Decodes base64 as far as possible. `Strict`: yields nothing if any of it is invalid.
pub(crate) fn decode64(from: &[u8], mode: Mode64, to: &mut Vec<u8>) {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let mut letters: Vec<u8> = match mode {
        Mode64::Rfc2045 => {
            from.iter().copied().take_while(|byte| *byte != b'=').filter(|byte| is_letter(byte)).collect()
        }
        _ => from.iter().copied().take_while(is_letter).collect(),
    };
    if mode == Mode64::Strict {
        let padding = &from[letters.len()..];
        let fits = from.len().is_multiple_of(4) && padding.len() <= 2 && padding.iter().all(|byte| *byte == b'=');
        if !fits {
            return;
        }
    }
    // A single leftover character does not make a byte.
    if letters.len() % 4 == 1 {
        letters.pop();
    }
    let loose = base64::engine::GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent);
    let engine = base64::engine::GeneralPurpose::new(&base64::alphabet::STANDARD, loose);
    if let Ok(bytes) = engine.decode(&letters) {
        to.extend_from_slice(&bytes);
    }
}

/// Decodes percent encoding, and `+` as a blank.
pub(crate) fn url_decode(from: &[u8], to: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(byte) = from.get(at) {
        let digit = |at: usize| from.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                to.push((high << 4 | low) as u8);
                at += 2;
            }
            (b'+', ..) => to.push(b' '),
            (byte, ..) => to.push(*byte),
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms() {
        let check = |name: &str, value: Option<&str>, from: &[u8], expected: &[u8]| {
            let option = Opt { name: Word::new(name, 0), value: value.map(|value| Word::new(value, 0)) };
            let transform = Transform::read(&option).unwrap().unwrap();
            let mut to = b"old".to_vec();
            transform.apply(from, &mut to);
            assert_eq!(to, expected, "{name}");
        };
        check("strip_whitespace", None, b"a b\tc\n", b"abc");
        check("compress_whitespace", None, b"a  \t b c", b"a b c");
        check("to_lowercase", None, b"AbC", b"abc");
        check("to_uppercase", None, b"AbC", b"ABC");
        check("dotprefix", None, b"a.b", b".a.b");
        check("url_decode", None, b"a%20b+%zz", b"a b %zz");
        check("xor", Some("\"0d0a\""), b"ABC", &[0x41 ^ 0x0d, 0x42 ^ 0x0a, 0x43 ^ 0x0d]);
        check("xor", Some("offset 1,extract 1 0"), b"\x02@A", b"BC");
        check("from_base64", None, b"aGVsbG8=", b"hello");
        check("from_base64", Some("offset 1, mode strict"), b"xaGVsbG8=", b"hello");
        check("subslice", Some("-3,2"), b"abcdef", b"de");
        check("subslice", Some("-9"), b"abcdef", b"");
        check("subslice", Some("-9, truncate"), b"abcdef", b"abcdef");
        check("subslice", Some("2,9"), b"abcdef", b"");
        check("subslice", Some("2,9,truncate"), b"abcdef", b"cdef");
        check("subslice", Some("4,-4"), b"abcdef", b"cd");
        check("pcrexform", Some("\"b(.)\""), b"abcd", b"c");
        check("pcrexform", Some("\"b(?=c)(.)\""), b"\xe4abcd", b"c");
        check("header_lowercase", None, b"A-B: C\r\nD: E\r\n", b"a-b: C\r\nd: E\r\n");
        let packed: &[u8] =
            &[31, 139, 8, 0, 0, 0, 0, 0, 0, 3, 75, 76, 74, 78, 76, 74, 6, 0, 76, 153, 110, 114, 6, 0, 0, 0];
        check("gunzip", None, packed, b"abcabc");
        check("gunzip", Some("max-size 4"), packed, b"abca");
        check("gunzip", None, &packed[..18], b"abcabc");
        check("gunzip", None, b"abc", b"");
        let packed: &[u8] = &[120, 156, 75, 76, 74, 78, 76, 74, 6, 0, 8, 12, 2, 77];
        check("zlib_deflate", Some("max-size 9"), packed, b"abcabc");
        check("strip_pseudo_headers", None, b":path: x\r\na: b\r\n", b"a: b\r\n");
    }
}
