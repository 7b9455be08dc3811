//! The part of DER (X.690) that certificates, SNMP and Kerberos need: values in sequence, without types and long tags.

/// Tags.
pub mod tag {
    #![allow(missing_docs)]
    pub const BOOLEAN: u8 = 0x01;
    pub const INTEGER: u8 = 0x02;
    pub const OCTETS: u8 = 0x04;
    pub const OBJECT: u8 = 0x06;
    pub const SEQUENCE: u8 = 0x30;

    /// The tag of a field with this number.
    pub const fn context(number: u8) -> u8 {
        0xa0 | number
    }
}

/// A sequence of values: tag, length, contents. Ends at the first truncated value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Der<'a>(pub &'a [u8]);

impl<'a> Iterator for Der<'a> {
    type Item = (u8, &'a [u8]);

    /// The next value: its tag and contents.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, short], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match short {
            0..=0x7f => (usize::from(short), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, contents))
    }
}

impl<'a> Der<'a> {
    /// The contents of the next value, if it has this tag.
    pub fn expect(&mut self, wanted: u8) -> Option<&'a [u8]> {
        let (found, contents) = self.next()?;
        (found == wanted).then_some(contents)
    }

    /// Like `expect`, but leaves a value with another tag in place.
    pub fn take_tag(&mut self, wanted: u8) -> Option<&'a [u8]> {
        if self.0.first() == Some(&wanted) { self.expect(wanted) } else { None }
    }
}

/// Appends an object identifier as numbers with dots (X.690, 8.19).
pub fn append_object(out: &mut Vec<u8>, object: &[u8]) {
    let mut number = 0u64;
    let mut is_first = true;
    for byte in object {
        number = number.wrapping_shl(7) | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if is_first {
            let root = (number / 40).min(2);
            out.push(b'0' + root as u8);
            number -= root * 40;
        }
        is_first = false;
        out.push(b'.');
        out.extend_from_slice(number.to_string().as_bytes());
        number = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let mut der = Der(&[2, 1, 7, 0x30, 0x81, 2, 4, 0, 5, 3, 1]);
        assert_eq!((der.take_tag(tag::OCTETS), der.expect(tag::INTEGER)), (None, Some(&[7][..])));
        assert_eq!(der.next(), Some((tag::SEQUENCE, &[4, 0][..])));
        assert_eq!((der.next(), Der(&[2, 0x80]).next(), Der(&[2, 0x82, 1]).next()), (None, None, None));
    }
}
