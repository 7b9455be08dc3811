//! Anomalies in the unencrypted part of TLS (RFC 8446, 5.1; RFC 6520; RFC 5280), named as in `app-layer-event`:
//! records, heartbeats, server names, certificates.

use super::ClientHello;
use crate::der::{Der, tag};

/// Record types.
const CHANGE_CIPHER: u8 = 20;
const ALERT: u8 = 21;
const HEARTBEAT: u8 = 24;
/// Largest record (RFC 5246, 6.2.3).
const RECORD_BYTES: usize = (1 << 14) + 2048;
/// Most records in one block without an event.
const RECORDS: usize = 255;

/// The record layer of a connection.
#[derive(Debug, Default)]
pub struct Records {
    sides: [Side; 2],
    /// Length of the heartbeat request that waits for its answer.
    asked: Option<usize>,
}

#[derive(Debug, Default)]
struct Side {
    /// The current record header, and the first bytes of the record.
    head: Vec<u8>,
    /// Record bytes still to come.
    left: usize,
    /// The rest is encrypted or unreadable.
    over: bool,
}

impl Records {
    /// Takes bytes of a side and adds their events to `odd`. `lost`: bytes before them are missing.
    pub fn feed(&mut self, mut bytes: &[u8], to_server: bool, lost: bool, odd: &mut Vec<&'static str>) {
        const HEADER: usize = 5;
        /// Type and length of a heartbeat.
        const BEHIND: usize = 3;
        let side = &mut self.sides[usize::from(!to_server)];
        side.over |= lost;
        let mut records = 0;
        while !bytes.is_empty() && !side.over {
            if side.left > 0 {
                let take = side.left.min(bytes.len());
                let keep = take.min((HEADER + BEHIND).saturating_sub(side.head.len()));
                side.head.extend_from_slice(&bytes[..keep]);
                (side.left, bytes) = (side.left - take, &bytes[take..]);
            } else {
                let take = HEADER.saturating_sub(side.head.len()).min(bytes.len());
                side.head.extend_from_slice(&bytes[..take]);
                bytes = &bytes[take..];
                let &[kind, major, minor, high, low] = &side.head[..] else { return };
                let length = usize::from(u16::from_be_bytes([high, low]));
                let wrong = match (kind, major) {
                    (128.., _) if minor == 0 => Some("tls.error_message_encountered"),
                    (128.., _) => Some("tls.invalid_sslv2_header"),
                    (CHANGE_CIPHER..=HEARTBEAT, 3) if minor <= 4 => {
                        (length > RECORD_BYTES).then_some("tls.invalid_tls_header")
                    }
                    (CHANGE_CIPHER..=HEARTBEAT, _) => Some("tls.invalid_record_version"),
                    _ => Some("tls.invalid_record_type"),
                };
                if let Some(wrong) = wrong {
                    odd.push(wrong);
                    side.over = true;
                    return;
                }
                // A ChangeCipherSpec has 1 byte and an alert 2; longer alerts are encrypted.
                if kind == CHANGE_CIPHER && length != 1 || kind == ALERT && length < 2 {
                    odd.push("tls.invalid_ssl_record");
                }
                side.left = length;
            }
            if side.left == 0 && side.head.len() >= HEADER {
                records += 1;
                side.over |= side.head[0] == CHANGE_CIPHER || side.head[0] == CHANGE_CIPHER + 3;
                let head = std::mem::take(&mut side.head);
                if head[0] == HEARTBEAT {
                    heartbeat(&head, &mut self.asked, odd);
                }
            }
        }
        if records > RECORDS {
            odd.push("tls.too_many_records_in_packet");
        }
    }

    /// Bytes kept of both sides.
    pub fn kept_bytes(&self) -> usize {
        self.sides.iter().map(|side| side.head.capacity()).sum()
    }
}

/// Checks an unencrypted heartbeat. `head`: record header, heartbeat type, and stated length.
fn heartbeat(head: &[u8], asked: &mut Option<usize>, odd: &mut Vec<&'static str>) {
    let record = usize::from(u16::from_be_bytes([head[3], head[4]]));
    odd.push("tls.heartbeat_message");
    let Some(&[kind, high, low]) = head.get(5..8) else { return odd.push("tls.invalid_heartbeat_message") };
    let length = usize::from(u16::from_be_bytes([high, low]));
    match kind {
        // At least 16 bytes of padding are required (RFC 6520, 4).
        1 => {
            if length + 3 > record {
                odd.push("tls.overflow_heartbeat_message");
            }
            if length == 0 {
                odd.push("tls.invalid_heartbeat_message");
            }
            *asked = Some(record);
        }
        2 => {
            if asked.take().is_some_and(|asked| record != asked) {
                odd.push("tls.dataleak_heartbeat_mismatch");
            }
        }
        _ => odd.push("tls.invalid_heartbeat_message"),
    }
}

/// Checks the server name that a client requests (RFC 6066, 3).
pub(super) fn server_name(client: &ClientHello<'_>, odd: &mut Vec<&'static str>) {
    let mut names = client.extensions().filter(|(kind, _)| *kind == 0).map(|(_, data)| data);
    let Some(data) = names.next() else { return };
    if names.next().is_some() {
        odd.push("tls.multiple_sni_extensions");
    }
    // Only servers may send an empty extension, but some clients do.
    match *data {
        [] => {}
        [high, low, kind, name_high, name_low, ref name @ ..] => {
            if kind != 0 {
                odd.push("tls.invalid_sni_type");
            }
            let said = |high, low| usize::from(u16::from_be_bytes([high, low]));
            if said(high, low) != data.len() - 2 || said(name_high, name_low) > name.len() {
                odd.push("tls.invalid_sni_length");
            }
        }
        _ => odd.push("tls.invalid_sni_length"),
    }
}

/// Returns issuer and subject of a certificate, each as its sets of attributes. The error names the best matching
/// event.
pub(super) fn certificate(bytes: &[u8]) -> Result<[&[u8]; 2], &'static str> {
    fn step<'a>(der: &mut Der<'a>, wanted: u8) -> Result<&'a [u8], &'static str> {
        if der.0.is_empty() {
            return Err("tls.certificate_missing_element");
        }
        match der.next() {
            None => Err("tls.certificate_invalid_length"),
            Some((found, _)) if found != wanted => Err("tls.certificate_unknown_element"),
            Some((_, contents)) => Ok(contents),
        }
    }
    const VERSION: u8 = tag::context(0);
    let mut whole = Der(step(&mut Der(bytes), tag::SEQUENCE)?);
    let mut fields = Der(step(&mut whole, tag::SEQUENCE)?);
    if fields.0.first() == Some(&VERSION) {
        step(&mut fields, VERSION)?;
    }
    let _serial = step(&mut fields, tag::INTEGER)?;
    let _algorithm = step(&mut fields, tag::SEQUENCE)?;
    let issuer = step(&mut fields, tag::SEQUENCE)?;
    let _validity = step(&mut fields, tag::SEQUENCE)?;
    let subject = step(&mut fields, tag::SEQUENCE)?;
    let _key = step(&mut fields, tag::SEQUENCE)?;
    Ok([issuer, subject])
}

/// Whether a UTF8String in a name contains invalid UTF-8 (RFC 5280, 4.1.2.4).
pub(super) fn has_wrong_text(sets: &[u8]) -> bool {
    const UTF8: u8 = 12;
    let attributes = Der(sets).flat_map(|(_, set)| Der(set));
    let mut values = attributes.filter_map(|(_, attribute)| Der(attribute).nth(1));
    values.any(|(tag, text)| tag == UTF8 && std::str::from_utf8(text).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn odd(pieces: &[(&[u8], bool)]) -> Vec<&'static str> {
        let (mut records, mut odd) = (Records::default(), Vec::new());
        pieces.iter().for_each(|(bytes, to_server)| records.feed(bytes, *to_server, false, &mut odd));
        odd
    }

    #[test]
    fn records() {
        let check = |bytes: &[u8], expected: &[&str]| {
            let single: Vec<(&[u8], bool)> = bytes.chunks(1).map(|byte| (byte, true)).collect();
            assert_eq!(odd(&[(bytes, true)]), expected, "{bytes:x?}");
            assert_eq!(odd(&single), expected, "{bytes:x?} byte by byte");
        };
        check(&[22, 3, 1, 0, 1, 9, 20, 3, 3, 0, 1, 1, 99], &[]);
        check(&[99, 3, 1, 0, 1, 9], &["tls.invalid_record_type"]);
        check(&[22, 2, 1, 0, 1, 9], &["tls.invalid_record_version"]);
        check(&[22, 3, 1, 0xff, 0, 9], &["tls.invalid_tls_header"]);
        check(&[21, 3, 1, 0, 1, 9], &["tls.invalid_ssl_record"]);
        check(&[0x80, 3, 9, 0, 1, 9], &["tls.invalid_sslv2_header"]);
        check(&[24, 3, 1, 0, 3, 1, 0x40, 0], &["tls.heartbeat_message", "tls.overflow_heartbeat_message"]);
        check(&[24, 3, 1, 0, 1, 1], &["tls.heartbeat_message", "tls.invalid_heartbeat_message"]);
    }

    #[test]
    fn an_answer_that_is_longer_than_the_question() {
        let (question, answer) = ([24, 3, 1, 0, 4, 1, 0, 1, 0], [24, 3, 1, 0, 5, 2, 0, 2, 0, 0]);
        let found = odd(&[(&question, true), (&answer, false)]);
        assert_eq!(found, ["tls.heartbeat_message", "tls.heartbeat_message", "tls.dataleak_heartbeat_mismatch"]);
    }

    #[test]
    fn certificates() {
        let of = |body: &[&[u8]]| {
            let body = body.concat();
            let inner = [&[0x30, body.len() as u8], &body[..]].concat();
            [&[0x30, inner.len() as u8], &inner[..]].concat()
        };
        let empty: &[u8] = &[0x30, 0];
        let named = of(&[&[0xa0, 0], &[2, 1, 1], empty, &[0x30, 1, 7], empty, &[0x30, 1, 8], empty]);
        assert_eq!(certificate(&of(&[&[2, 1, 1], empty, empty, empty, empty, empty])), Ok([&[][..]; 2]));
        assert_eq!(certificate(&named), Ok([&[7][..], &[8]]));
        assert_eq!(certificate(&of(&[&[2, 1, 1], empty])), Err("tls.certificate_missing_element"));
        assert_eq!(certificate(&of(&[&[4, 1, 1], empty])), Err("tls.certificate_unknown_element"));
        assert_eq!(certificate(&of(&[&[2, 9, 1]])), Err("tls.certificate_invalid_length"));
        assert!(has_wrong_text(&[0x31, 9, 0x30, 7, 6, 2, 1, 1, 12, 1, 0xff]));
        assert!(!has_wrong_text(&[0x31, 9, 0x30, 7, 6, 2, 1, 1, 12, 1, b'a']));
        let second = [0x31, 14, 0x30, 5, 6, 0, 12, 1, b'a', 0x30, 5, 6, 0, 12, 1, 0xff];
        assert!(has_wrong_text(&second), "a set may have several attributes");
    }
}
