//! MQTT for rules (versions 3.1 to 5). A transaction is a packet with its answers: CONNECT with CONNACK, PUBLISH with
//! its confirmations, SUBSCRIBE and UNSUBSCRIBE with theirs. Any other packet is a transaction by itself.

use super::prefixed::{Length, Prefixed};
use super::transactions::Transactions;
use protocols::mqtt::{text, variable};
use rules::names::{App, Buffer, Number};

/// Most bytes kept of a packet. Rules do not see what follows.
const WAITING_BYTES: usize = 256 << 10;
/// Most packets that may wait for an answer.
const WAITING_PACKETS: usize = 32;

const CONNECT: u8 = 1;
const CONNACK: u8 = 2;
const PUBLISH: u8 = 3;
const PUBCOMP: u8 = 7;
const SUBSCRIBE: u8 = 8;
const SUBACK: u8 = 9;
const UNSUBSCRIBE: u8 = 10;
const UNSUBACK: u8 = 11;
const DISCONNECT: u8 = 14;

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Stream {
    sides: [Prefixed; 2],
    version: u8,
    /// Packets waiting for an answer: type, identifier, side that sent it, transaction.
    asked: Vec<(u8, u16, bool, u64)>,
    /// A CONNACK answered a CONNECT.
    connected: bool,
}

impl Stream {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: bool, to: &mut Transactions) {
        let mut side = std::mem::take(&mut self.sides[usize::from(!to_server)]);
        side.feed(bytes, gap, WAITING_BYTES, length, to, |packet, to| {
            if let Some((_, body)) = packet.get(1..).and_then(variable) {
                self.packet(packet[0], body, to_server, to);
            }
        });
        self.sides[usize::from(!to_server)] = side;
    }

    /// Returns the identifier of a packet, and the packet type that it answers.
    fn place(&self, first: u8, body: &[u8]) -> (Option<u16>, Option<u8>) {
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

    pub fn kept_bytes(&self) -> usize {
        self.sides.iter().map(Prefixed::kept_bytes).sum()
    }

    fn packet(&mut self, first: u8, body: &[u8], to_server: bool, to: &mut Transactions) {
        let kind = first >> 4;
        let (number, answers) = self.place(first, body);
        let number = number.unwrap_or(0);
        let at = self.asked.iter().position(|asked| {
            // Both sides send parts of a delivery.
            Some(asked.0) == answers && asked.1 == number && (asked.2 != to_server || kind == 6)
        });
        let known = at.map(|at| self.asked[at].3).filter(|id| to.find(*id).is_some());
        // PUBREC and PUBREL do not end a delivery.
        if let Some(at) = at.filter(|_| !matches!(kind, 5 | 6)) {
            self.asked.remove(at);
        }
        let asks = matches!(kind, CONNECT | SUBSCRIBE | UNSUBSCRIBE) || kind == PUBLISH && first & 6 != 0;
        let again = kind == CONNECT && (self.connected || self.asked.iter().any(|asked| asked.0 == CONNECT));
        let id = match known {
            Some(id) => id,
            None => {
                let one = to.begin(App::Mqtt);
                (one.is_one, one.complete) = (true, [!asks; 2]);
                let id = one.id;
                if asks {
                    if self.asked.len() >= WAITING_PACKETS {
                        let (.., oldest) = self.asked.remove(0);
                        to.complete(oldest, true);
                        to.complete(oldest, false);
                    }
                    self.asked.push((kind, number, to_server, id));
                }
                id
            }
        };
        // The packet that this one answers may be among the bytes that were lost.
        let is_alone = known.is_none() && !self.sides.iter().any(|side| side.lost);
        let introduced = self.connected || matches!(kind, CONNECT | CONNACK | 15);
        self.connected |= kind == CONNACK && known.is_some();
        let Some(one) = to.get(id) else { return };
        let mut odd = |holds: bool, event| {
            if holds {
                one.put_event(event, to_server);
            }
        };
        odd(again, "mqtt.double_connect");
        odd(!introduced, "mqtt.unintroduced_message");
        odd(kind == PUBLISH && first & 6 == 6, "mqtt.invalid_qos_level");
        odd(kind == 0, "mqtt.unassigned_msg_type");
        odd(asks && kind != CONNECT && number == 0, "mqtt.missing_msg_id");
        odd(answers == Some(CONNECT) && is_alone, "mqtt.missing_connect");
        odd(answers == Some(PUBLISH) && is_alone, "mqtt.missing_publish");
        odd(answers == Some(SUBSCRIBE) && is_alone, "mqtt.missing_subscribe");
        odd(answers == Some(UNSUBSCRIBE) && is_alone, "mqtt.missing_unsubscribe");
        // PUBREC and PUBREL may come again and again.
        one.put_number_once(Number::MQTT_TYPE, to_server, kind.into());
        let mut is_malformed = false;
        match kind {
            CONNECT => {
                let read = text(body).and_then(|(name, rest)| Some((name, *rest.first()?, rest.get(4..)?)));
                is_malformed = read.is_none();
                if let Some((name, version, rest)) = read {
                    one.put_copy(Buffer::MQTT_CONNECT_PROTOCOL_STRING, to_server, name);
                    self.version = version;
                    one.put_number(Number::MQTT_PROTOCOL_VERSION, to_server, version.into());
                    is_malformed = version >= 5 && behind_properties(rest).is_none();
                }
            }
            CONNACK => match body.get(1) {
                Some(code) => one.put_number(Number::MQTT_REASON_CODE, to_server, u64::from(*code)),
                None => is_malformed = true,
            },
            PUBLISH => match text(body) {
                Some((topic, rest)) => {
                    one.put_copy(Buffer::MQTT_PUBLISH_TOPIC, to_server, topic);
                    let rest = if first & 6 == 0 { rest } else { rest.get(2..).unwrap_or_default() };
                    let message = if self.version < 5 { Some(rest) } else { behind_properties(rest) };
                    match message {
                        Some(message) => one.put_copy(Buffer::MQTT_PUBLISH_MESSAGE, to_server, message),
                        None => is_malformed = true,
                    }
                }
                None => is_malformed = true,
            },
            4..=UNSUBACK if body.len() < 2 => is_malformed = true,
            // A DISCONNECT without a body means success.
            DISCONNECT => {
                one.put_number(Number::MQTT_REASON_CODE, to_server, body.first().copied().unwrap_or(0).into());
            }
            _ => {}
        }
        if is_malformed {
            one.put_event("mqtt.malformed_traffic", to_server);
        }
        to.change(id, to_server);
        if known.is_some() && !matches!(kind, 5 | 6) {
            to.complete(id, true);
            to.complete(id, false);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_comes_again_adds_nothing() {
        let (mut stream, mut to) = (Stream::default(), Transactions::default());
        stream.feed(b"\x34\x06\0\x01t\0\x01x", true, false, &mut to);
        for _ in 0..100 {
            stream.feed(b"\x62\x02\0\x01", true, false, &mut to);
        }
        let one = to.find(0).unwrap();
        assert_eq!(one.numbers(Number::MQTT_TYPE, true).collect::<Vec<_>>(), [3, 6]);
        assert_eq!(one.events, [("mqtt.unintroduced_message", true)]);
    }
}
