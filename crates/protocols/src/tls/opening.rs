//! The unencrypted opening of one side of TLS: its hello, and its certificates if it shows them.
//!
//! The hello is looked for where a piece of the stream begins, up to [`TLS_PREAMBLE_BYTES`] behind its start: so it is
//! found behind STARTTLS of any protocol, behind what a client says to a proxy, and behind missing bytes.

use super::facts::{self, Fact};
use super::{Hello, Stop, behind_hello, certificates, hello, is_too_long};
use crate::carry::Carried;
use crate::conversation::{Ear, Fed, How, Id, Side};
use base::limits::TLS_PREAMBLE_BYTES;

const CUT: &str = "tls hellos whose rest is missing";
const NO_ROOM_FOR_HELLO: &str = "tls hellos given up for want of memory";
const NO_ROOM_FOR_CERTIFICATES: &str = "tls certificates given up for want of memory";

/// The opening of a side.
#[derive(Debug)]
pub struct Opening {
    phase: Phase,
    /// Copied bytes: the beginning of a possible hello, or the records from the one in which the hello ends.
    part: Vec<u8>,
    /// The next message that is told: each is an exchange, of the role that its hello has.
    id: Id,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A piece may begin or continue a hello. `passed`: bytes of the stream before it.
    Looking { passed: u64 },
    /// The hello was found; certificates may follow. `skip`: bytes of messages at the start of `part` that belong to the
    /// hello. `need`: the length that `part` needs before it can be read on.
    Behind { skip: usize, need: usize },
    /// Everything was found, or will not come.
    Over,
}

impl Default for Opening {
    fn default() -> Opening {
        let id = Id { exchange: 0, side: Side::Client };
        Opening { phase: Phase::Looking { passed: 0 }, part: Vec::new(), id }
    }
}

impl Opening {
    /// Reads the next bytes. `wire_len`: their number with those missing before them. `scratch`: buffer for a message
    /// that is spread over records.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        wire_len: u32,
        kept: &Carried,
        scratch: &mut Vec<u8>,
        ear: &mut dyn Ear<Fact>,
    ) -> Fed {
        let fed = match self.phase {
            Phase::Looking { passed } => {
                let passed = passed + u64::from(wire_len);
                self.phase = Phase::Looking { passed };
                let fed = self.look(bytes, kept, scratch, ear);
                if self.phase == (Phase::Looking { passed }) && self.part.is_empty() && passed > TLS_PREAMBLE_BYTES {
                    self.phase = Phase::Over;
                }
                fed
            }
            Phase::Behind { .. } => self.behind(bytes, kept, scratch, ear),
            Phase::Over => Fed::NotMine,
        };
        if self.is_over() {
            kept.clear(&mut self.part);
        }
        fed
    }

    /// Bytes are missing before those that come next. Behind the hello nothing more is read.
    pub fn gap(&mut self, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        match self.phase {
            Phase::Looking { .. } => self.forget(kept, ear),
            Phase::Behind { .. } => {
                self.phase = Phase::Over;
                kept.clear(&mut self.part);
            }
            Phase::Over => {}
        }
    }

    /// The stream is over.
    pub fn end(&mut self, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.gap(kept, ear);
        self.phase = Phase::Over;
    }

    /// Whether later bytes are passed over.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Drops an unfinished hello whose rest will not come.
    fn forget(&mut self, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        if !self.part.is_empty() {
            ear.count(CUT, 1);
        }
        kept.clear(&mut self.part);
    }

    /// Looks for a hello.
    fn look(&mut self, bytes: &[u8], kept: &Carried, scratch: &mut Vec<u8>, ear: &mut dyn Ear<Fact>) -> Fed {
        let mut rest = bytes;
        let mut is_part = !self.part.is_empty();
        while !rest.is_empty() || is_part {
            let stream = if is_part { &self.part[..] } else { rest };
            let need = match hello(stream, scratch) {
                Ok(hello) => {
                    // TLS 1.3 encrypts the server's messages behind its hello.
                    let is_plain = !matches!(hello, Hello::Server(server) if server.version() > 0x0303);
                    self.id.side = Side::to_server(matches!(hello, Hello::Client(_)));
                    facts::hello(&hello, self.id, ear);
                    ear.end(self.id, How::Complete);
                    self.id.exchange += 1;
                    let after = if is_part { rest } else { &[] };
                    match behind_hello(stream).filter(|_| is_plain) {
                        Some(place) => {
                            let in_stream = stream.get(place.record..).unwrap_or_default().to_vec();
                            self.phase = Phase::Behind { skip: place.skip, need: 0 };
                            kept.clear(&mut self.part);
                            for bytes in [&in_stream[..], after] {
                                if !bytes.is_empty() && !self.is_over() {
                                    self.behind(bytes, kept, scratch, ear);
                                }
                            }
                        }
                        None => self.phase = Phase::Over,
                    }
                    return Fed::Mine;
                }
                Err(Stop::Incomplete { need }) => need,
                Err(Stop::NotTls) => {
                    kept.clear(&mut self.part);
                    return Fed::NotMine;
                }
                Err(stop) => {
                    if stop == Stop::Malformed {
                        ear.odd(self.id, "tls.invalid_handshake_message");
                        ear.count("malformed tls hellos", 1);
                    }
                    self.phase = Phase::Over;
                    return Fed::NotMine;
                }
            };
            let (more, behind) = rest.split_at(need.saturating_sub(self.part.len()).min(rest.len()));
            if more.is_empty() {
                break;
            }
            if !kept.keep(&mut self.part, more) {
                ear.lost(self.id, NO_ROOM_FOR_HELLO);
                self.phase = Phase::Over;
                return Fed::NotMine;
            }
            (rest, is_part) = (behind, true);
        }
        Fed::Mine
    }

    /// Looks for certificates, with `bytes` more.
    fn behind(&mut self, bytes: &[u8], kept: &Carried, scratch: &mut Vec<u8>, ear: &mut dyn Ear<Fact>) -> Fed {
        let Phase::Behind { skip, need } = self.phase else { return Fed::NotMine };
        if !kept.keep(&mut self.part, bytes) {
            ear.lost(self.id, NO_ROOM_FOR_CERTIFICATES);
            self.phase = Phase::Over;
            return Fed::NotMine;
        }
        if self.part.len() < need {
            return Fed::Mine;
        }
        scratch.clear();
        match certificates(&self.part, skip, scratch) {
            Ok(body) => {
                facts::certificates(body, self.id, ear);
                ear.end(self.id, How::Complete);
            }
            Err(Stop::Incomplete { need }) => {
                self.phase = Phase::Behind { skip, need };
                return Fed::Mine;
            }
            Err(_) => {
                // Where the message was not read, the copy ends with its header.
                if is_too_long(scratch.get(skip..).unwrap_or_default()) {
                    ear.odd(self.id, "tls.handshake_invalid_length");
                }
                self.phase = Phase::Over;
                return Fed::NotMine;
            }
        }
        self.phase = Phase::Over;
        Fed::Mine
    }
}
