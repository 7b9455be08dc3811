//! MQTT (3.1.1 and 5.0). An exchange is a packet with its answers: CONNECT with CONNACK, PUBLISH with its confirmations,
//! SUBSCRIBE and UNSUBSCRIBE with theirs. Any other packet is an exchange by itself.

use crate::app::App;
use crate::carry::Carried;
use crate::conversation::{About, Ear, Fed, How, Id, Kind, Over, Protocol, Run, Side, Talk, Words};
use crate::fit::Fit;
use crate::prefixed::{Length, Prefixed, Shape};
use packet::Flow;

/// Packets. Rules do not see what follows.
const PACKETS: Shape = Shape { most: 256 << 10, length, lost: "mqtt packets cut or given up" };

/// Most packets that may wait for an answer.
const WAITING_PACKETS: usize = 32;

/// Most topics of a packet that are told.
const TOPICS: usize = 64;

const CONNECT: u8 = 1;
const CONNACK: u8 = 2;
const PUBLISH: u8 = 3;
const PUBCOMP: u8 = 7;
const SUBSCRIBE: u8 = 8;
const SUBACK: u8 = 9;
const UNSUBSCRIBE: u8 = 10;
const UNSUBACK: u8 = 11;
const DISCONNECT: u8 = 14;

/// The names of packets, by their numbers.
pub const TYPES: Words = &[
    ("CONNECT", 1),
    ("CONNACK", 2),
    ("PUBLISH", 3),
    ("PUBACK", 4),
    ("PUBREC", 5),
    ("PUBREL", 6),
    ("PUBCOMP", 7),
    ("SUBSCRIBE", 8),
    ("SUBACK", 9),
    ("UNSUBSCRIBE", 10),
    ("UNSUBACK", 11),
    ("PINGREQ", 12),
    ("PINGRESP", 13),
    ("DISCONNECT", 14),
    ("AUTH", 15),
];

/// A fact about an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The type of each packet.
    Type,
    /// CONNECT: the name of the protocol.
    ProtocolString,
    /// CONNECT: 3, 4 (3.1.1) or 5.
    ProtocolVersion,
    /// CONNECT: the client's name.
    ClientId,
    /// CONNECT: who logs in.
    Username,
    /// PUBLISH: where to.
    Topic,
    /// PUBLISH: the message.
    Message,
    /// SUBSCRIBE: topics.
    Subscribed,
    /// UNSUBSCRIBE: topics.
    Unsubscribed,
    /// CONNACK and DISCONNECT: 0 is success.
    Reason,
}

impl crate::conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About::both("mqtt.type", "mqtt.type", Kind::WordItem(TYPES)),
        About::both("mqtt.connect.protocol_string", "mqtt.connect.protocol_string", Kind::Text),
        About::both("mqtt.connect.protocol_version", "mqtt.protocol_version", Kind::Number),
        About::both("mqtt.connect.client_id", "mqtt.connect.clientid", Kind::Text),
        About::both("mqtt.connect.username", "mqtt.connect.username", Kind::Text),
        About::both("mqtt.publish.topic", "mqtt.publish.topic", Kind::Text),
        About::both("mqtt.publish.message", "mqtt.publish.message", Kind::Text),
        About::both("mqtt.subscribe.topics", "mqtt.subscribe.topic", Kind::Item),
        About::both("mqtt.unsubscribe.topics", "mqtt.unsubscribe.topic", Kind::Item),
        About::both("mqtt.reason_code", "mqtt.reason_code", Kind::Number),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// A connection.
#[derive(Debug, Default)]
pub struct Conversation {
    sides: [Prefixed; 2],
    /// The number of the next exchange.
    next: u64,
    version: u8,
    asked: Vec<Asked>,
    /// A CONNACK answered a CONNECT.
    is_connected: bool,
}

/// A packet that waits for an answer.
#[derive(Debug)]
struct Asked {
    kind: u8,
    number: u16,
    side: Side,
    exchange: u64,
}

impl Talk for Conversation {
    type Fact = Fact;

    const PROTOCOL: Protocol = Protocol {
        is_one: true,
        probe: Some(|first| {
            let answers = !first.to_server && first.has_port(1883) && is_answer(first.bytes);
            Fit::of(first.to_server && is_connect(first.bytes) || answers)
        }),
        summary: &["mqtt.type", "mqtt.connect.client_id", "mqtt.publish.topic", "mqtt.publish.message"],
        does: "reads MQTT packets and gives a record of each with its answers",
        help: "Finds MQTT by the client's CONNECT on any port, and on port 1883 by the server's CONNACK. A record has a packet \
               with what confirms it: `mqtt.type` lists the packets (CONNECT and CONNACK, PUBLISH and PUBACK, and so on). Of \
               CONNECT it has `mqtt.connect.protocol_string`, `protocol_version`, `client_id` and `username`, of PUBLISH \
               `mqtt.publish.topic` and `message`, of SUBSCRIBE and UNSUBSCRIBE \
               `mqtt.subscribe.topics` and `mqtt.unsubscribe.topics`, and of CONNACK and DISCONNECT `mqtt.reason_code`. Passwords are passed over.\n\n\
               Up to 32 packets wait for an answer, of a packet 256 KiB are read, and of a text 64 KiB are in a record. A side \
               is read up to a gap behind its first bytes.",
        example: ("pcap talks.pcap | mqtt | head 2", EXAMPLE),
        ..Protocol::of(App::Mqtt, Over::Streams, <Fact as crate::conversation::Fact>::ALL)
    };

    fn new(_flow: &Flow) -> Conversation {
        Conversation::default()
    }

    fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        let mut packets = std::mem::take(&mut self.sides[side.index()]);
        let fed = if packets.is_over { Fed::NotMine } else { Fed::Mine };
        let id = Id { exchange: self.next, side };
        packets.feed(id, run.bytes, &PACKETS, kept, ear, |packet, ear| {
            if let Some((_, body)) = packet.get(1..).and_then(variable) {
                self.packet(packet[0], body, side, ear);
            }
            true
        });
        self.sides[side.index()] = packets;
        fed
    }

    fn gap(&mut self, side: Side, _missing: u32, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.sides[side.index()].gap("mqtt streams whose rest is not read", kept, ear);
    }

    fn end(&mut self, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.sides.iter_mut().for_each(|side| side.stop(kept));
        while !self.asked.is_empty() {
            self.give_up_oldest(How::Cut, ear);
        }
    }
}

impl Conversation {
    fn give_up_oldest(&mut self, how: How, ear: &mut dyn Ear<Fact>) {
        let Asked { exchange, side, .. } = self.asked.remove(0);
        ear.end(Id { exchange, side: side.other() }, how);
        ear.over(exchange);
    }

    /// Returns the identifier of a packet, and the packet type that it answers.
    fn place(first: u8, body: &[u8]) -> (Option<u16>, Option<u8>) {
        let number = |at: usize| body.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
        match first >> 4 {
            CONNECT => (Some(0), None),
            CONNACK => (None, Some(CONNECT)),
            PUBLISH if first & 6 != 0 => (text(body).and_then(|(topic, _)| number(2 + topic.len())), None),
            PUBLISH => (None, None),
            SUBSCRIBE | UNSUBSCRIBE => (number(0), None),
            4..=PUBCOMP => (number(0), Some(PUBLISH)),
            SUBACK => (number(0), Some(SUBSCRIBE)),
            UNSUBACK => (number(0), Some(UNSUBSCRIBE)),
            _ => (None, None),
        }
    }

    fn packet(&mut self, first: u8, body: &[u8], side: Side, ear: &mut dyn Ear<Fact>) {
        let kind = first >> 4;
        let (number, answers) = Conversation::place(first, body);
        let number = number.unwrap_or(0);
        let at = self.asked.iter().position(|asked| {
            // Both sides send parts of a delivery.
            Some(asked.kind) == answers && asked.number == number && (asked.side != side || kind == 6)
        });
        let known = at.map(|at| self.asked[at].exchange);
        // PUBREC and PUBREL do not end a delivery.
        let ends = !matches!(kind, 5 | 6);
        if let Some(at) = at.filter(|_| ends) {
            self.asked.remove(at);
        }
        let asks = matches!(kind, CONNECT | SUBSCRIBE | UNSUBSCRIBE) || kind == PUBLISH && first & 6 != 0;
        let again = kind == CONNECT && (self.is_connected || self.asked.iter().any(|asked| asked.kind == CONNECT));
        let exchange = known.unwrap_or(self.next);
        let id = Id { exchange, side };
        if known.is_none() {
            self.next += 1;
            ear.begin(id);
            if asks {
                if self.asked.len() >= WAITING_PACKETS {
                    self.give_up_oldest(How::Cut, ear);
                }
                self.asked.push(Asked { kind, number, side, exchange });
            }
        }
        // The packet that this one answers may be among the bytes that were lost.
        let is_alone = known.is_none() && !self.sides.iter().any(|side| side.is_over);
        let is_introduced = self.is_connected || matches!(kind, CONNECT | CONNACK | 15);
        self.is_connected |= kind == CONNACK && known.is_some();
        let mut odd = |holds: bool, event| {
            if holds {
                ear.odd(id, event);
            }
        };
        odd(again, "mqtt.double_connect");
        odd(!is_introduced, "mqtt.unintroduced_message");
        odd(kind == PUBLISH && first & 6 == 6, "mqtt.invalid_qos_level");
        odd(kind == 0, "mqtt.unassigned_msg_type");
        odd(asks && kind != CONNECT && number == 0, "mqtt.missing_msg_id");
        odd(answers == Some(CONNECT) && is_alone, "mqtt.missing_connect");
        odd(answers == Some(PUBLISH) && is_alone, "mqtt.missing_publish");
        odd(answers == Some(SUBSCRIBE) && is_alone, "mqtt.missing_subscribe");
        odd(answers == Some(UNSUBSCRIBE) && is_alone, "mqtt.missing_unsubscribe");
        ear.number(id, Fact::Type, kind.into());
        if self.contents(first, body, id, ear).is_none() {
            ear.odd(id, "mqtt.malformed_traffic");
        }
        if !asks && (known.is_none() || ends) {
            ear.end(id, How::Complete);
            ear.over(exchange);
        }
    }

    /// Tells what is in a packet; `None` if it is malformed.
    fn contents(&mut self, first: u8, body: &[u8], id: Id, ear: &mut dyn Ear<Fact>) -> Option<()> {
        match first >> 4 {
            CONNECT => {
                let (name, rest) = text(body)?;
                let (version, flags, rest) = (*rest.first()?, rest.get(1).copied().unwrap_or(0), rest.get(4..)?);
                ear.fact(id, Fact::ProtocolString, name);
                self.version = version;
                ear.number(id, Fact::ProtocolVersion, version.into());
                let rest = if version < 5 { rest } else { behind_properties(rest)? };
                self.login(flags, rest, id, ear);
            }
            CONNACK => ear.number(id, Fact::Reason, (*body.get(1)?).into()),
            PUBLISH => {
                let (topic, rest) = text(body)?;
                ear.fact(id, Fact::Topic, topic);
                let rest = if first & 6 == 0 { rest } else { rest.get(2..).unwrap_or_default() };
                ear.fact(id, Fact::Message, if self.version < 5 { rest } else { behind_properties(rest)? });
            }
            kind @ 4..=UNSUBACK => {
                let rest = body.get(2..)?;
                if matches!(kind, SUBSCRIBE | UNSUBSCRIBE) {
                    let rest = if self.version < 5 { rest } else { behind_properties(rest)? };
                    topics(kind, rest, id, ear);
                }
            }
            // A DISCONNECT without a body means success.
            DISCONNECT => ear.number(id, Fact::Reason, body.first().copied().unwrap_or(0).into()),
            _ => {}
        }
        Some(())
    }

    /// Tells who the client is, as far as it is there.
    fn login(&self, flags: u8, rest: &[u8], id: Id, ear: &mut dyn Ear<Fact>) -> Option<()> {
        let (name, mut rest) = text(rest)?;
        ear.fact(id, Fact::ClientId, name);
        // A last will: properties, topic, message.
        if flags & 4 != 0 {
            rest = if self.version < 5 { rest } else { behind_properties(rest)? };
            rest = text(text(rest)?.1)?.1;
        }
        if flags & 0x80 != 0 {
            ear.fact(id, Fact::Username, text(rest)?.0);
        }
        Some(())
    }
}

fn topics(kind: u8, mut rest: &[u8], id: Id, ear: &mut dyn Ear<Fact>) {
    for _ in 0..TOPICS {
        let Some((topic, behind)) = text(rest) else { return };
        ear.fact(id, if kind == SUBSCRIBE { Fact::Subscribed } else { Fact::Unsubscribed }, topic);
        // The quality of service that the client wishes follows each.
        rest = if kind == SUBSCRIBE { behind.get(1..).unwrap_or_default() } else { behind };
    }
    if !rest.is_empty() {
        ear.lost(id, "mqtt topics not read");
    }
}

/// Reads the length of a packet. It has at most four bytes.
fn length(bytes: &[u8]) -> Length {
    match bytes.get(1..).and_then(variable) {
        Some((length, rest)) => Length::Is(bytes.len() - rest.len() + length),
        None if bytes.len() > 4 => Length::No,
        None => Length::More,
    }
}

fn behind_properties(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = variable(bytes)?;
    rest.get(length..)
}

/// Whether it is a CONNECT packet that names the protocol.
fn is_connect(bytes: &[u8]) -> bool {
    packet(bytes).is_some_and(|(first, body)| {
        first == 0x10 && text(body).is_some_and(|(name, _)| name == b"MQTT" || name == b"MQIsdp")
    })
}

/// Whether it is a CONNACK packet.
fn is_answer(bytes: &[u8]) -> bool {
    packet(bytes).is_some_and(|(first, body)| first == 0x20 && matches!(body, [0 | 1, ..]))
}

/// Reads a variable-length integer; returns it, and the bytes behind it.
fn variable(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(4) {
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

/// Reads a packet; returns its first byte, and its body.
fn packet(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (length, rest) = variable(bytes.get(1..)?)?;
    Some((bytes[0], rest.get(..length)?))
}

/// Reads a length and a text; returns the text, and the bytes behind it.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

const EXAMPLE: &str = r#"{"timestamp":"2026-05-28T20:26:40.050000000Z","flow_id":8535639930090730,"event_type":"mqtt","src_ip":"192.0.2.1","src_port":40001,"dest_ip":"192.0.2.2","dest_port":1883,"proto":"TCP","mqtt":{"type":["CONNECT","CONNACK"],"connect":{"protocol_string":"MQTT","protocol_version":4,"client_id":"sensor-1","username":"bob"},"reason_code":0}}
{"timestamp":"2026-05-28T20:26:40.070000000Z","flow_id":8535639930090730,"event_type":"mqtt","src_ip":"192.0.2.1","src_port":40001,"dest_ip":"192.0.2.2","dest_port":1883,"proto":"TCP","mqtt":{"type":["SUBSCRIBE","SUBACK"],"subscribe":{"topics":["home/#"]}}}
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::check_talk;

    const HELLO: &[u8] = b"\x10\x14\0\x04MQTT\x04\x80\0\x3c\0\x03one\0\x03bob";

    #[test]
    fn packets_and_their_answers() {
        let connected = [
            "Type=1",
            "ProtocolString=MQTT",
            "ProtocolVersion=4",
            "ClientId=one",
            "Username=bob",
            "Type=2",
            "Reason=0",
        ];
        let check = |rest: &[(Side, &[u8])], expected: &[&str]| {
            let runs = [&[(Side::Client, HELLO), (Side::Server, b"\x20\x02\0\0")], rest].concat();
            check_talk::<Conversation>(&runs, &[&connected[..], &["Complete"], expected].concat());
        };
        check(&[(Side::Client, b"\x30\x05\0\x01thi")], &["Type=3", "Topic=t", "Message=hi", "Complete"]);
        // Both sides send parts of a delivery, and an answer that comes again is odd.
        let delivery: &[(Side, &[u8])] = &[
            (Side::Client, b"\x34\x06\0\x01t\0\x01x"),
            (Side::Server, b"\x50\x02\0\x01"),
            (Side::Client, b"\x62\x02\0\x01"),
            (Side::Server, b"\x70\x02\0\x01\x70\x02\0\x01"),
        ];
        let said = ["Type=3", "Topic=t", "Message=x", "Type=5", "Type=6", "Type=7", "Complete"];
        check(delivery, &[&said[..], &["mqtt.missing_publish", "Type=7", "Complete"]].concat());
        let topics = b"\x82\x0b\0\x01\0\x01a\0\0\x02bc\x01";
        check(&[(Side::Client, topics)], &["Type=8", "Subscribed=a", "Subscribed=bc", "Cut"]);
        check(&[(Side::Client, b"\x30\x01\0")], &["Type=3", "mqtt.malformed_traffic", "Complete"]);
    }
}
