//! The handshake of RFB (RFC 6143, remote desktops) for rules: authentication, and the name of the desktop. One
//! transaction per connection.

use super::transactions::Transactions;
use rules::names::{App, Buffer, Number};

/// Most bytes kept of an incomplete message.
const WAITING_BYTES: usize = 4096;

/// The server message that comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Version,
    Security,
    Challenge,
    Result,
    Desktop,
    Over,
}

#[derive(Debug, Default)]
pub(super) struct Stream {
    step: Step,
    server: Vec<u8>,
    client: Vec<u8>,
    /// The client's minor version: below 7 the server chooses the security type.
    minor: u8,
    kind: Option<u8>,
}

impl Stream {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, to: &mut Transactions) {
        if self.step == Step::Over {
            return;
        }
        if to_server {
            let room = WAITING_BYTES.saturating_sub(self.client.len());
            self.client.extend_from_slice(&bytes[..bytes.len().min(room)]);
            if let Some([minor]) = self.client.get(10..11) {
                self.minor = minor.wrapping_sub(b'0');
            }
            if self.minor >= 7 {
                self.kind = self.kind.or(self.client.get(12).copied());
            }
        } else {
            self.server.extend_from_slice(bytes);
        }
        while self.advance(to) {}
        if self.server.len() > WAITING_BYTES {
            self.step = Step::Over;
        }
    }

    pub fn kept_bytes(&self) -> usize {
        self.server.capacity() + self.client.capacity()
    }

    /// Handles one server message; returns whether another may follow.
    fn advance(&mut self, to: &mut Transactions) -> bool {
        let (used, next) = match self.step {
            Step::Version if self.server.len() >= 12 => (12, Step::Security),
            Step::Security if self.minor == 0 => return false,
            Step::Security if self.minor >= 7 => {
                let Some(count) = self.server.first() else { return false };
                let used = 1 + usize::from(*count);
                if self.server.len() < used || self.kind.is_none() {
                    return false;
                }
                (used, Step::Challenge)
            }
            Step::Security => {
                let Some(kind) = self.server.get(3) else { return false };
                self.kind = Some(*kind);
                (4, Step::Challenge)
            }
            Step::Challenge => {
                let kind = self.kind.unwrap_or(0);
                let one = to.only(App::Rfb);
                let id = one.id;
                if one.numbers(Number::RFB_SECTYPE, false).next().is_none() {
                    one.put_number(Number::RFB_SECTYPE, true, kind.into());
                    to.change(id, true);
                }
                match kind {
                    1 => (0, if self.minor >= 8 { Step::Result } else { Step::Desktop }),
                    2 if self.server.len() >= 16 => (16, Step::Result),
                    2 => return false,
                    _ => {
                        if let Some(one) = to.get(id) {
                            one.events.push(("rfb.unimplemented_security_type", true));
                        }
                        to.change(id, true);
                        (0, Step::Over)
                    }
                }
            }
            Step::Result => {
                let Some(result) = self.server.get(3) else { return false };
                let one = to.only(App::Rfb);
                let id = one.id;
                // Results above 2 are unknown; all are stored as 3.
                one.put_number(Number::RFB_SECRESULT, false, u64::from(*result).min(3));
                if *result > 2 {
                    one.events.push(("rfb.unknown_security_result", false));
                }
                to.change(id, false);
                (4, if *result == 0 { Step::Desktop } else { Step::Over })
            }
            Step::Desktop => {
                let Some(length) = self.server.get(20..24) else { return false };
                let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
                let Some(name) = self.server.get(24..24usize.saturating_add(length)) else { return false };
                let one = to.only(App::Rfb);
                let id = one.id;
                one.put_copy(Buffer::RFB_NAME, false, name);
                to.change(id, false);
                (24 + length, Step::Over)
            }
            Step::Version | Step::Over => return false,
        };
        self.server.drain(..used);
        self.step = next;
        next != Step::Over
    }
}
