//! DNS over TCP (RFC 1035, 4.2.2): each message stands behind its length. Reads one direction, also behind missing bytes.

use super::{HEADER_BYTES, is_message, is_plausible, split_tcp};
use crate::carry::Carried;

const LENGTH_BYTES: usize = 2;

/// What a direction says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// A message.
    Message(&'a [u8]),
    /// Something else behind the length of a message.
    Other(&'a [u8]),
    /// The beginning of a message whose rest is missing.
    Cut,
}

/// Whose bytes a piece had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fed {
    /// All of them belong to messages.
    Mine,
    /// The rest belongs to no message.
    NotMine,
    /// There was no room to keep the beginning of a message.
    NoRoom,
}

/// One direction of a stream.
#[derive(Debug)]
pub struct Stream {
    /// A copy of the beginning of an unfinished message, from its length on.
    part: Vec<u8>,
    /// Where messages begin is unknown; a piece may begin with one.
    is_lost: bool,
}

impl Stream {
    /// A stream from its beginning. On ports of DNS it begins with a message; on others one has to look like it.
    pub const fn new(is_port_of_dns: bool) -> Stream {
        Stream { part: Vec::new(), is_lost: !is_port_of_dns }
    }

    /// Reads the next bytes.
    pub fn feed(&mut self, bytes: &[u8], kept: &mut Carried, ear: &mut dyn FnMut(Heard<'_>)) -> Fed {
        let mut rest = bytes;
        while !self.part.is_empty() && !rest.is_empty() {
            // The part is incomplete, or it would not have been kept.
            let need = split_tcp(&self.part).err().unwrap_or(0);
            let (more, behind) = rest.split_at(need.saturating_sub(self.part.len()).min(rest.len()));
            if !self.keep_copy(more, kept) {
                return Fed::NoRoom;
            }
            rest = behind;
            match split_tcp(&self.part) {
                Err(need) if self.may_begin(&self.part, need) => {}
                whole => {
                    self.is_lost = !whole.is_ok_and(|(message, _)| self.hear(message, ear));
                    kept.clear(&mut self.part);
                }
            }
        }
        while !rest.is_empty() {
            match split_tcp(rest) {
                Ok((message, behind)) if self.hear(message, ear) => {
                    self.is_lost = false;
                    rest = behind;
                }
                Err(need) if self.may_begin(rest, need) => {
                    return if self.keep_copy(rest, kept) { Fed::Mine } else { Fed::NoRoom };
                }
                _ => {
                    self.is_lost = true;
                    return Fed::NotMine;
                }
            }
        }
        Fed::Mine
    }

    /// Bytes are missing before those that come next.
    pub fn gap(&mut self, kept: &mut Carried, ear: &mut dyn FnMut(Heard<'_>)) {
        self.end(kept, ear);
        self.is_lost = true;
    }

    /// The stream is over.
    pub fn end(&mut self, kept: &mut Carried, ear: &mut dyn FnMut(Heard<'_>)) {
        if !self.part.is_empty() {
            ear(Heard::Cut);
        }
        kept.clear(&mut self.part);
    }

    /// Says what stands behind a length. `false`: it may be the length of nothing. Where messages begin is known
    /// behind something else, too.
    fn hear(&self, message: &[u8], ear: &mut dyn FnMut(Heard<'_>)) -> bool {
        let fits = match self.is_lost {
            true => is_plausible(message, message.len() as u32),
            false => is_message(message),
        };
        if fits {
            ear(Heard::Message(message));
        } else if !self.is_lost {
            ear(Heard::Other(message));
        }
        fits || !self.is_lost
    }

    /// Whether a message that announces `need - 2` bytes can begin with `bytes`. Where messages begin is unknown, only a
    /// whole header that is plausible counts. Else something too short for a header is waited for: the next message
    /// follows.
    fn may_begin(&self, bytes: &[u8], need: usize) -> bool {
        match bytes.get(LENGTH_BYTES..) {
            Some(message) if message.len() >= HEADER_BYTES && self.is_lost => {
                is_plausible(message, (need - LENGTH_BYTES) as u32)
            }
            Some(message) if message.len() >= HEADER_BYTES => is_message(message),
            _ => !self.is_lost,
        }
    }

    /// Appends a copy of `bytes` to the unfinished message; `false` when the limit of all streams is reached.
    fn keep_copy(&mut self, bytes: &[u8], kept: &mut Carried) -> bool {
        let is_kept = kept.keep(&mut self.part, bytes);
        if !is_kept {
            kept.clear(&mut self.part);
            self.is_lost = true;
        }
        is_kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(flags: u8, id: u8) -> Vec<u8> {
        [&[0, 17, 0, id, flags, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &[0, 0, 1, 0, 1]].concat()
    }

    /// The identifiers of messages, or a word for what else is heard.
    fn heard(stream: &mut Stream, pieces: &[&[u8]]) -> Vec<String> {
        let (mut kept, mut heard) = (Carried::new(1000), Vec::new());
        let mut ear = |what: Heard<'_>| {
            heard.push(match what {
                Heard::Message(message) => message[1].to_string(),
                other => format!("{other:?}"),
            });
        };
        for piece in pieces {
            match *piece {
                b"gap" => stream.gap(&mut kept, &mut ear),
                bytes => _ = stream.feed(bytes, &mut kept, &mut ear),
            }
        }
        stream.end(&mut kept, &mut ear);
        assert_eq!(kept.bytes(), 0);
        heard
    }

    /// On a port of DNS a message may be odd; elsewhere, and behind a gap, it has to be plausible.
    #[test]
    fn odd_messages_are_heard_where_messages_begin_is_known() {
        const ODD: u8 = 0x38;
        let (odd, usual) = (query(ODD, 1), query(0, 2));
        let check = |is_port: bool, pieces: &[&[u8]], expected: &[&str]| {
            assert_eq!(heard(&mut Stream::new(is_port), pieces), expected, "{is_port}");
        };
        check(true, &[&odd, &usual], &["1", "2"]);
        check(false, &[&odd, &usual, &odd], &["2", "1"]);
        check(true, &[&usual, b"gap", &odd, &usual], &["2", "2"]);
        check(true, &[&usual[..9], b"gap", &odd, &usual, &odd], &["Cut", "2", "1"]);
        check(true, &[&odd[..5], &odd[5..], &[0, 2, 7, 7], &usual[..3], &usual[3..]], &["1", "Other([7, 7])", "2"]);
    }

    #[test]
    fn what_has_no_room_is_lost() {
        let (mut stream, mut kept) = (Stream::new(true), Carried::new(4));
        assert_eq!(stream.feed(&query(0, 1)[..10], &mut kept, &mut |_| panic!("nothing is whole")), Fed::NoRoom);
        assert_eq!(stream.feed(&query(0, 1), &mut kept, &mut |_| {}), Fed::Mine);
    }
}
