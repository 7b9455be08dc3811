//! Messages of IKE, versions 1 (RFC 2408) and 2 (RFC 7296): their headers, and the types and bytes of payloads that
//! are not encrypted. Each message is an exchange of the conversation.

use crate::app::App;
use crate::carry::Carried;
use crate::conversation::{self, About, Ear, Fed, Kind, Over, Protocol, Run, Side, Talk};
use crate::fit::Fit;
use packet::Flow;
use packet::bytes::u32_at;
use packet::text::append_hex;

/// Most payloads of a message that are told.
const PAYLOADS: usize = 64;

/// A fact about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// 1 or 2.
    Version,
    /// The number that the initiator chose, of its messages.
    Initiator,
    /// The number that the responder chose, of its messages.
    Responder,
    /// The type of exchange.
    Exchange,
    /// Programs and features of the initiator.
    Vendor,
    /// A Diffie-Hellman public value.
    KeyExchange,
    /// Its length.
    KeyExchangeLength,
    /// Random bytes.
    Nonce,
    /// Their number.
    NonceLength,
    /// Types of notifications.
    Notify,
}

impl conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About::both("ike.version_major", "ike.version_major", Kind::Number),
        About::client("ike.init_spi", "ike.init_spi", Kind::Text),
        About::server("ike.resp_spi", "ike.resp_spi", Kind::Text),
        About::both("ike.exchange_type", "ike.exchtype", Kind::Number),
        About::client("ike.vendor_ids", "ike.vendor", Kind::Item),
        About::both("ike.key_exchange_payload", "ike.key_exchange_payload", Kind::Shown(append_hex)),
        About::both("ike.key_exchange_payload_length", "ike.key_exchange_payload_length", Kind::Number),
        About::both("ike.nonce_payload", "ike.nonce_payload", Kind::Shown(append_hex)),
        About::both("ike.nonce_payload_length", "ike.nonce_payload_length", Kind::Number),
        About::both("ike.notify_type", "ike.notify_type", Kind::Number),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// A flow of datagrams.
#[derive(Debug, Default)]
pub struct Conversation {
    next: u64,
}

impl Talk for Conversation {
    type Fact = Fact;

    const PROTOCOL: Protocol = Protocol {
        probe: Some(|first| {
            let is_ike = (first.has_port(500) || first.has_port(4500)) && Message::parse(first.bytes).is_some();
            Fit::of(is_ike)
        }),
        summary: &["ike.version_major", "ike.exchange_type", "ike.init_spi", "ike.resp_spi"],
        does: "reads IKE messages (IPsec) and gives a record of each",
        help: "Gives a record of each message from or to port 500 or 4500: `ike.version_major`, `ike.exchange_type`, the number of \
               its sender (`ike.init_spi` or `ike.resp_spi`), and of payloads that are not encrypted `ike.vendor_ids` of the \
               initiator, `ike.key_exchange_payload` and `ike.nonce_payload` in hexadecimal with their lengths, and the first \
               `ike.notify_type`. Up to 64 payloads of a message are read.",
        example: ("pcap talks.pcap | udp | ike | head 1", EXAMPLE),
        is_of_sender: true,
        ..Protocol::of(App::Ike, Over::Datagrams, <Fact as conversation::Fact>::ALL)
    };

    fn new(_flow: &Flow) -> Conversation {
        Conversation::default()
    }

    fn feed(&mut self, side: Side, run: Run<'_>, _kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        let Some(message) = Message::parse(run.bytes) else { return Fed::NotMine };
        conversation::message(&mut self.next, side, ear, |id, ear| {
            ear.number(id, Fact::Version, message.version.into());
            match side {
                Side::Client => ear.fact(id, Fact::Initiator, &hex(&message.initiator)),
                Side::Server => ear.fact(id, Fact::Responder, &hex(&message.responder)),
            }
            ear.number(id, Fact::Exchange, message.exchange.into());
            for (at, (kind, contents)) in message.payloads.enumerate() {
                if at == PAYLOADS {
                    return ear.lost(id, "ike payloads not read");
                }
                if kind::VENDOR.contains(&kind) {
                    ear.fact(id, Fact::Vendor, &hex(contents));
                } else if kind::KEY_EXCHANGE.contains(&kind) {
                    // In version 2 a group and two bytes precede the value (RFC 7296, 3.4).
                    let value = contents.get(4..).filter(|_| message.version == 2).unwrap_or(contents);
                    ear.fact(id, Fact::KeyExchange, value);
                    ear.number(id, Fact::KeyExchangeLength, value.len() as u64);
                } else if kind::NONCE.contains(&kind) {
                    ear.fact(id, Fact::Nonce, contents);
                    ear.number(id, Fact::NonceLength, contents.len() as u64);
                } else if kind::NOTIFY.contains(&kind) {
                    // In version 1 a domain comes first (RFC 2408, 3.14).
                    let at = if message.version == 1 { 6 } else { 2 };
                    if let Some([high, low]) = contents.get(at..).and_then(|rest| rest.first_chunk()).copied() {
                        ear.number(id, Fact::Notify, u16::from_be_bytes([high, low]).into());
                    }
                }
            }
        });
        Fed::Mine
    }
}

/// The bytes in hexadecimal: rules compare with it.
fn hex(bytes: &[u8]) -> Vec<u8> {
    let mut digits = Vec::new();
    append_hex(&mut digits, bytes);
    digits
}

const EXAMPLE: &str = r#"{"timestamp":"2026-05-28T20:26:40.340000000Z","flow_id":2066847296690590,"event_type":"ike","src_ip":"192.0.2.1","src_port":500,"dest_ip":"192.0.2.2","dest_port":500,"proto":"UDP","ike":{"version_major":2,"init_spi":"0102030405060708","exchange_type":34,"vendor_ids":["6578616d706c652076656e646f722e2e"],"key_exchange_payload":"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f","key_exchange_payload_length":32,"nonce_payload":"6465666768696a6b6c6d6e6f70717273","nonce_payload_length":16}}
"#;

/// Types of payloads, in version 1 and in version 2.
mod kind {
    /// A Diffie-Hellman public value.
    pub const KEY_EXCHANGE: [u8; 2] = [4, 34];
    /// Random bytes.
    pub const NONCE: [u8; 2] = [10, 40];
    /// A notification for the other side.
    pub const NOTIFY: [u8; 2] = [11, 41];
    /// The program, or one of its features.
    pub const VENDOR: [u8; 2] = [13, 43];
    /// An encrypted payload of version 2.
    pub const ENCRYPTED: u8 = 46;
}

/// A message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The number that the initiator chose.
    pub initiator: [u8; 8],
    /// The number that the responder chose; zeros before that.
    pub responder: [u8; 8],
    /// 1 or 2.
    pub version: u8,
    /// The type of exchange.
    pub exchange: u8,
    /// Its payloads.
    pub payloads: Payloads<'a>,
}

/// Payloads of a message.
#[derive(Clone, Copy, Debug)]
pub struct Payloads<'a> {
    next: u8,
    rest: &'a [u8],
}

const HEADER: usize = 28;

impl<'a> Message<'a> {
    /// Reads a datagram; `None` if it is not IKE. On the port for NAT four zeros precede it (RFC 3948, 2.2).
    pub fn parse(datagram: &'a [u8]) -> Option<Message<'a>> {
        let bytes = datagram.strip_prefix(&[0; 4]).unwrap_or(datagram);
        let header: &[u8; HEADER] = bytes.first_chunk()?;
        let [next, version, exchange, flags] = *header[16..].first_chunk()?;
        let length = u32_at(header, 24)? as usize;
        let version = version >> 4;
        let initiator: [u8; 8] = *header.first_chunk()?;
        if !matches!(version, 1 | 2) || length < HEADER || length > bytes.len() || initiator == [0; 8] {
            return None;
        }
        // Version 1 encrypts all payloads or none.
        let rest = if version == 1 && flags & 1 != 0 { &[] } else { &bytes[HEADER..length] };
        let responder = *header[8..].first_chunk()?;
        Some(Message { initiator, responder, version, exchange, payloads: Payloads { next, rest } })
    }
}

impl<'a> Iterator for Payloads<'a> {
    /// The payload's type and bytes.
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == 0 || self.next == kind::ENCRYPTED {
            return None;
        }
        let &[next, _, high, low] = self.rest.first_chunk()?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let contents = self.rest.get(4..length)?;
        let kind = std::mem::replace(&mut self.next, next);
        self.rest = &self.rest[length..];
        Some((kind, contents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::check_datagrams;
    use proptest::prelude::*;

    fn message(first: u8, version: u8, flags: u8, payloads: &[u8]) -> Vec<u8> {
        let length = (HEADER + payloads.len()) as u32;
        [&[1; 8][..], &[2; 8], &[first, version, 2, flags], &[0; 4], &length.to_be_bytes(), payloads].concat()
    }

    #[test]
    fn messages() {
        let bytes = message(4, 0x10, 0, b"\x0a\0\0\x06ke\0\0\0\x05n");
        let found = Message::parse(&bytes).unwrap();
        assert_eq!((found.initiator, found.responder, found.version, found.exchange), ([1; 8], [2; 8], 1, 2));
        assert_eq!(found.payloads.collect::<Vec<_>>(), [(4, &b"ke"[..]), (10, b"n")]);
        assert!(Message::parse(&[&[0; 4], &bytes[..]].concat()).is_some());
        assert_eq!(Message::parse(&message(4, 0x10, 1, b"\0\0\0\x05x")).unwrap().payloads.count(), 0);
        assert_eq!(Message::parse(&message(46, 0x20, 0, b"\0\0\0\x05x")).unwrap().payloads.count(), 0);
        assert_eq!(Message::parse(&message(4, 0x10, 0, b"\0\0\0\x09x")).unwrap().payloads.count(), 0);
        for wrong in [&bytes[..30], &message(4, 0x30, 0, b""), &[0; 40]] {
            assert!(Message::parse(wrong).is_none());
        }
    }

    #[test]
    fn what_a_message_tells() {
        let check = |bytes: &[u8], side: Side, expected: &[&str]| {
            check_datagrams::<Conversation>(&[(side, bytes)], expected);
        };
        let (one, two) = ("01".repeat(8), "02".repeat(8));
        let said = ["KeyExchange=ke", "KeyExchangeLength=2", "Nonce=n", "NonceLength=1", "Complete"];
        let said = |first: &[&str]| [first, &said].concat().iter().map(|it| it.to_string()).collect::<Vec<_>>();
        let bytes = message(4, 0x10, 0, b"\x0a\0\0\x06ke\0\0\0\x05n");
        let initiator = said(&["Version=1", &format!("Initiator={one}"), "Exchange=2"]);
        check(&bytes, Side::Client, &initiator.iter().map(String::as_str).collect::<Vec<_>>());
        let responder = said(&["Version=1", &format!("Responder={two}"), "Exchange=2"]);
        check(&bytes, Side::Server, &responder.iter().map(String::as_str).collect::<Vec<_>>());
        // Version 2: a group comes before the value, and a vendor and a notification behind it.
        let bytes = message(34, 0x20, 0, b"\x2b\0\0\x0a\0\x1f\0\0ke\x29\0\0\x05v\0\0\0\x08\0\0\x40\x04");
        let initiator = format!("Initiator={one}");
        let said = ["KeyExchange=ke", "KeyExchangeLength=2", "Vendor=76", "Notify=16388", "Complete"];
        check(&bytes, Side::Client, &[&["Version=2", &initiator, "Exchange=2"], &said[..]].concat());
        check(b"x", Side::Client, &[]);
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..80), first: u8) {
            let bytes = message(first, 0x20, 0, &bytes);
            prop_assert!(Message::parse(&bytes).unwrap().payloads.count() <= bytes.len());
        }
    }
}
