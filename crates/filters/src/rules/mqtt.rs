//! MQTT for rules (versions 3.1 to 5): each packet is a transaction of its own side.

use super::transactions::Transactions;
use rules::names::{App, Buffer, Number};

/// Bytes of one side that wait for the rest of a packet.
const WAITING_BYTES: usize = 256 << 10;

/// A connection: what waits on either side.
#[derive(Debug, Default)]
pub(super) struct Stream {
    waiting: [Vec<u8>; 2],
    version: u8,
}

impl Stream {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, to: &mut Transactions) {
        let mut waiting = std::mem::take(&mut self.waiting[usize::from(!to_server)]);
        waiting.extend_from_slice(bytes);
        let mut from = 0;
        while let Some((first, body, end)) = packet(&waiting[from..]) {
            self.packet(first, body, to_server, to);
            from += end;
        }
        waiting.drain(..from);
        if waiting.len() > WAITING_BYTES {
            waiting.clear();
        }
        self.waiting[usize::from(!to_server)] = waiting;
    }

    /// Bytes that it keeps.
    pub fn kept_bytes(&self) -> usize {
        self.waiting.iter().map(Vec::capacity).sum()
    }

    fn packet(&mut self, first: u8, body: &[u8], to_server: bool, to: &mut Transactions) {
        let one = to.begin(App::Mqtt);
        let id = one.id;
        one.complete = [true; 2];
        let kind = first >> 4;
        one.put_number(Number::MQTT_TYPE, to_server, kind.into());
        match kind {
            1 => {
                if let Some((name, rest)) = text(body) {
                    one.put_copy(Buffer::MQTT_CONNECT_PROTOCOL_STRING, to_server, name);
                    self.version = rest.first().copied().unwrap_or(0);
                    one.put_number(Number::MQTT_PROTOCOL_VERSION, to_server, self.version.into());
                }
            }
            2 => {
                if let Some(code) = body.get(1) {
                    one.put_number(Number::MQTT_REASON_CODE, to_server, u64::from(*code));
                }
            }
            3 => {
                if let Some((topic, rest)) = text(body) {
                    one.put_copy(Buffer::MQTT_PUBLISH_TOPIC, to_server, topic);
                    let rest = if first & 6 == 0 { rest } else { rest.get(2..).unwrap_or_default() };
                    let message = if self.version < 5 { Some(rest) } else { behind_properties(rest) };
                    if let Some(message) = message {
                        one.put_copy(Buffer::MQTT_PUBLISH_MESSAGE, to_server, message);
                    }
                }
            }
            // Nothing behind the header of the end means that all is well.
            14 => one.put_number(Number::MQTT_REASON_CODE, to_server, body.first().copied().unwrap_or(0).into()),
            _ => {}
        }
        to.change(id, to_server);
    }
}

/// Does a connection begin with this? The packet that connects names the protocol.
pub(super) fn is_connect(bytes: &[u8]) -> bool {
    packet(bytes).is_some_and(|(first, body, _)| {
        first == 0x10 && text(body).is_some_and(|(name, _)| name == b"MQTT" || name == b"MQIsdp")
    })
}

/// A number in groups of seven bits, and what is behind it.
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

/// The first byte of a packet, what is behind its length, and where it ends.
fn packet(bytes: &[u8]) -> Option<(u8, &[u8], usize)> {
    let (length, rest) = variable(bytes.get(1..)?)?;
    let body = rest.get(..length)?;
    Some((bytes[0], body, bytes.len() - rest.len() + length))
}

/// A text behind its length, and what is behind it.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

fn behind_properties(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = variable(bytes)?;
    rest.get(length..)
}
