//! The fields of a certificate (RFC 5280): subject, issuer and validity. Keys and signatures are not read.

use crate::der::{Der, append_object, tag};
use packet::text::append_escaped;
use std::net::IpAddr;

/// A certificate.
#[derive(Clone, Copy, Debug)]
pub struct Certificate<'a> {
    /// Its number, as the bytes of an integer.
    pub serial: &'a [u8],
    /// The issuer.
    pub issuer: Name<'a>,
    /// The subject.
    pub subject: Name<'a>,
    /// The first moment of its validity.
    pub not_before: Time<'a>,
    /// The last moment of its validity.
    pub not_after: Time<'a>,
    extensions: &'a [u8],
}

impl<'a> Certificate<'a> {
    /// Reads a certificate; `None` if it is not one.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut whole = Der(Der(bytes).expect(tag::SEQUENCE)?);
        let mut fields = Der(whole.expect(tag::SEQUENCE)?);
        let _version = fields.take_tag(tag::context(0));
        let serial = fields.expect(tag::INTEGER)?;
        let _algorithm = fields.expect(tag::SEQUENCE)?;
        let issuer = Name(fields.expect(tag::SEQUENCE)?);
        let mut validity = Der(fields.expect(tag::SEQUENCE)?);
        let (not_before, not_after) = (Time::parse(&mut validity)?, Time::parse(&mut validity)?);
        let subject = Name(fields.expect(tag::SEQUENCE)?);
        let _key = fields.expect(tag::SEQUENCE)?;
        let extensions = fields.find(|(found, _)| *found == tag::context(3));
        let extensions = extensions.and_then(|(_, bytes)| Der(bytes).expect(tag::SEQUENCE)).unwrap_or_default();
        Some(Self { serial, issuer, subject, not_before, not_after, extensions })
    }

    /// Other names of the subject (RFC 5280, 4.2.1.6): texts and addresses.
    pub fn alternative_names(&self) -> impl Iterator<Item = AlternativeName<'a>> + use<'a> {
        const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
        let found = Der(self.extensions).find_map(|(_, bytes)| {
            let mut extension = Der(bytes);
            let is_it = extension.expect(tag::OBJECT)? == SUBJECT_ALT_NAME;
            let _critical = extension.take_tag(tag::BOOLEAN);
            is_it.then_some(extension.expect(tag::OCTETS)?)
        });
        let names = Der(found.and_then(|value| Der(value).expect(tag::SEQUENCE)).unwrap_or_default());
        names.filter_map(|(kind, bytes)| match (kind, bytes.len()) {
            (0x81 | 0x82 | 0x86, _) => Some(AlternativeName::Text(bytes)),
            (0x87, 4) => Some(AlternativeName::Address(<[u8; 4]>::try_from(bytes).ok()?.into())),
            (0x87, 16) => Some(AlternativeName::Address(<[u8; 16]>::try_from(bytes).ok()?.into())),
            _ => None,
        })
    }
}

/// Another name of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlternativeName<'a> {
    /// A host, a mail address, or a URI.
    Text(&'a [u8]),
    /// An IP address.
    Address(IpAddr),
}

/// The chain of a TLS Certificate message, the sender's own certificate first (RFC 5246, 7.4.2).
#[derive(Clone, Debug)]
pub struct Chain<'a>(&'a [u8]);

impl<'a> Chain<'a> {
    /// `body`: the body of the message.
    pub fn new(body: &'a [u8]) -> Self {
        Self(split_u24_prefixed(body).map_or(&[], |(list, _)| list))
    }
}

impl<'a> Iterator for Chain<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (certificate, rest) = split_u24_prefixed(self.0)?;
        self.0 = rest;
        Some(certificate)
    }
}

fn split_u24_prefixed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[high, middle, low], rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_be_bytes([0, high, middle, low]) as usize)
}

/// A distinguished name.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a>(&'a [u8]);

impl Name<'_> {
    /// Appends the name as `C=US, O=Example, CN=example.org`, in the order of the certificate. Control characters and
    /// backslashes are escaped as `\DDD` and `\\`.
    pub fn append(&self, out: &mut Vec<u8>) {
        self.write(out, append_value);
    }

    /// Appends the name without escapes.
    pub fn append_raw(&self, out: &mut Vec<u8>) {
        self.write(out, |out, encoding, value| match encoding {
            BMP_STRING => {
                characters(value).for_each(|it| out.extend_from_slice(it.encode_utf8(&mut [0; 4]).as_bytes()))
            }
            _ => out.extend_from_slice(value),
        });
    }

    fn write(&self, out: &mut Vec<u8>, append_value: impl Fn(&mut Vec<u8>, u8, &[u8])) {
        let start = out.len();
        for (_, set) in Der(self.0) {
            let mut separator: &[u8] = b", ";
            for (_, attribute) in Der(set) {
                let mut attribute = Der(attribute);
                let Some(kind) = attribute.expect(tag::OBJECT) else { continue };
                let Some((encoding, value)) = attribute.next() else { continue };
                if out.len() > start {
                    out.extend_from_slice(separator);
                }
                separator = b" + ";
                append_kind(out, kind);
                out.push(b'=');
                append_value(out, encoding, value);
            }
        }
    }
}

/// The name of an attribute type, or its number with dots.
fn append_kind(out: &mut Vec<u8>, object: &[u8]) {
    let name = match object {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 4] => "SN",
        [0x55, 4, 5] => "serialNumber",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "STREET",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x55, 4, 12] => "title",
        [0x55, 4, 17] => "postalCode",
        [0x55, 4, 42] => "GN",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "emailAddress",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "UID",
        _ => return append_object(out, object),
    };
    out.extend_from_slice(name.as_bytes());
}

/// A string of 16-bit characters.
const BMP_STRING: u8 = 0x1e;

fn characters(value: &[u8]) -> impl Iterator<Item = char> {
    let units = value.chunks_exact(2).map(|unit| u16::from_be_bytes([unit[0], unit[1]]));
    char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
}

/// A string, in UTF-8 if its encoding is one of Unicode.
fn append_value(out: &mut Vec<u8>, encoding: u8, value: &[u8]) {
    let push = |character: char| match u8::try_from(character) {
        Ok(byte) if byte < 0x80 => append_escaped(out, byte),
        _ if character.is_control() => out.push(b'?'),
        _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
    };
    if encoding == BMP_STRING {
        return characters(value).for_each(push);
    }
    match std::str::from_utf8(value) {
        Ok(text) => text.chars().for_each(push),
        Err(_) => value.iter().for_each(|byte| append_escaped(out, *byte)),
    }
}

/// A time, as its digits: year, month, day, hour, minute, second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time<'a> {
    century: &'static [u8],
    digits: &'a [u8; 12],
}

impl<'a> Time<'a> {
    /// The next field, which is a time in one of two forms (RFC 5280, 4.1.2.5).
    fn parse(der: &mut Der<'a>) -> Option<Self> {
        const UTC_TIME: u8 = 0x17;
        const GENERALIZED_TIME: u8 = 0x18;
        let (kind, text) = der.next()?;
        let (century, rest): (&[u8], _) = match (kind, text) {
            // Two digits of a year from 1950 to 2049.
            (UTC_TIME, [b'5'..=b'9', ..]) => (b"19", text),
            (UTC_TIME, _) => (b"20", text),
            (GENERALIZED_TIME, [b'1', b'9', rest @ ..]) => (b"19", rest),
            (GENERALIZED_TIME, [b'2', b'0', rest @ ..]) => (b"20", rest),
            (GENERALIZED_TIME, [b'2', b'1', rest @ ..]) => (b"21", rest),
            (GENERALIZED_TIME, [b'9', b'9', rest @ ..]) => (b"99", rest),
            _ => return None,
        };
        let digits: &[u8; 12] = rest.first_chunk()?;
        digits.iter().all(u8::is_ascii_digit).then_some(Self { century, digits })
    }

    /// Appends the time as `2026-01-31T23:59:59`.
    pub fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.century);
        for (index, two) in self.digits.chunks_exact(2).enumerate() {
            let before: &[u8] = [&b""[..], b"-", b"-", b"T", b":", b":"][index];
            out.extend_from_slice(before);
            out.extend_from_slice(two);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
        let length = contents.len();
        match length {
            0..0x80 => [&[tag, length as u8][..], contents].concat(),
            _ => [&[tag, 0x82, (length >> 8) as u8, length as u8][..], contents].concat(),
        }
    }

    fn name(attributes: &[(&[u8], u8, &[u8])]) -> Vec<u8> {
        let set = |(kind, encoding, value): &(&[u8], u8, &[u8])| {
            der(0x31, &der(0x30, &[der(6, kind), der(*encoding, value)].concat()))
        };
        der(0x30, &attributes.iter().flat_map(set).collect::<Vec<_>>())
    }

    /// A certificate without a key or a signature.
    pub(crate) fn certificate() -> Vec<u8> {
        let names = der(0x30, &[der(0x82, b"a.example"), der(0x81, b"mail"), der(0x87, &[192, 0, 2, 1])].concat());
        let alternative = der(0x30, &[der(6, &[0x55, 0x1d, 0x11]), der(1, &[0xff]), der(4, &names)].concat());
        let other = der(0x30, &[der(6, &[0x55, 0x1d, 0x0e]), der(4, &[1])].concat());
        let fields = [
            der(0xa0, &der(2, &[2])),
            der(2, &[0, 0xab, 1]),
            der(0x30, b""),
            name(&[(&[0x55, 4, 6], 0x13, b"DE"), (&[0x2a, 3, 0x81, 4], 0x0c, "Ä\x1b\\".as_bytes())]),
            der(0x30, &[der(0x17, b"991231235959Z"), der(0x18, b"20500102030405Z")].concat()),
            name(&[(&[0x55, 4, 3], 0x1e, &[0, b'x', 0x20, 0xac])]),
            der(0x30, &[0; 300]),
            der(0xa3, &der(0x30, &[other, alternative].concat())),
        ];
        der(0x30, &[der(0x30, &fields.concat()), der(0x30, b""), der(3, &[0])].concat())
    }

    #[test]
    fn what_a_certificate_says() {
        let bytes = certificate();
        let certificate = Certificate::parse(&bytes).unwrap();
        let text = |append: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            append(&mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(certificate.serial, [0, 0xab, 1]);
        assert_eq!(text(&|out| certificate.issuer.append(out)), "C=DE, 1.2.3.132=Ä\\027\\\\");
        assert_eq!(text(&|out| certificate.subject.append(out)), "CN=x€");
        assert_eq!(text(&|out| certificate.not_before.append(out)), "1999-12-31T23:59:59");
        assert_eq!(text(&|out| certificate.not_after.append(out)), "2050-01-02T03:04:05");
        let names: Vec<_> = certificate.alternative_names().collect();
        let address = AlternativeName::Address(IpAddr::from([192, 0, 2, 1]));
        assert_eq!(names, [AlternativeName::Text(b"a.example"), AlternativeName::Text(b"mail"), address]);
        let mut raw = Vec::new();
        certificate.issuer.append_raw(&mut raw);
        assert_eq!(raw, "C=DE, 1.2.3.132=Ä\x1b\\".as_bytes());
    }

    #[test]
    fn chains() {
        let check = |body: &[u8], expected: &[&[u8]]| assert_eq!(Chain::new(body).collect::<Vec<_>>(), expected);
        check(&[0, 0, 9, 0, 0, 2, 1, 2, 0, 0, 1, 3], &[&[1, 2], &[3]]);
        check(&[0, 0, 4, 0, 0, 2, 1], &[]);
        check(&[0, 0, 4, 0, 0, 2, 1, 2], &[]);
        check(&[], &[]);
    }

    proptest! {
        #[test]
        fn any_bytes(at in 0usize..600, value: u8, cut in 0usize..700) {
            let mut bytes = certificate();
            if let Some(byte) = bytes.get_mut(at) { *byte = value; }
            bytes.truncate(cut);
            if let Some(certificate) = Certificate::parse(&bytes) {
                let mut out = Vec::new();
                certificate.issuer.append(&mut out);
                certificate.subject.append(&mut out);
                prop_assert!(certificate.alternative_names().count() < 700 && out.len() < 8000);
            }
        }
    }
}
