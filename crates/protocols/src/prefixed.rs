//! Splits a stream into messages whose length is known from their start.

use crate::carry::Carried;
use crate::conversation::{Ear, Id};

/// One side of a connection.
#[derive(Debug, Default)]
pub struct Prefixed {
    /// The start of an incomplete message.
    waiting: Vec<u8>,
    /// Bytes of a long message left to skip.
    skip: usize,
    /// Bytes of this side came.
    is_begun: bool,
    /// Where the next message begins is unknown, or the protocol is over: nothing more is read.
    pub is_over: bool,
}

/// The length of a message, with its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// At least 1.
    Is(usize),
    /// More bytes may decide.
    More,
    /// No message begins like this.
    No,
}

/// The messages of a protocol.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Most bytes read of a message. The rest of it is passed over.
    pub most: usize,
    /// Reads the length of the message that begins here.
    pub length: fn(&[u8]) -> Length,
    /// Names what is lost where a message is longer, or where there is no room for it.
    pub lost: &'static str,
}

impl Prefixed {
    /// Takes the next bytes, and calls `each` for each message until it returns `false`: then nothing more is read.
    pub fn feed<F>(
        &mut self,
        id: Id,
        mut rest: &[u8],
        shape: &Shape,
        kept: &Carried,
        ear: &mut dyn Ear<F>,
        mut each: impl FnMut(&[u8], &mut dyn Ear<F>) -> bool,
    ) {
        self.is_begun |= !rest.is_empty();
        while !self.is_over {
            let skipped = self.skip.min(rest.len());
            self.skip -= skipped;
            rest = &rest[skipped..];
            let is_new = self.waiting.is_empty();
            let begun = if is_new { rest } else { &self.waiting[..] };
            let all = match (shape.length)(begun) {
                Length::Is(all) => all.max(1),
                Length::More if begun.len() < shape.most => {
                    // The few bytes of a head come one by one.
                    let next = if is_new { rest } else { &rest[..rest.len().min(1)] };
                    if next.is_empty() {
                        return;
                    }
                    rest = &rest[next.len()..];
                    self.keep(id, next, shape, kept, ear);
                    continue;
                }
                Length::More | Length::No => {
                    ear.lost(id, shape.lost);
                    return self.stop(kept);
                }
            };
            let most = all.min(shape.most);
            if is_new && let Some(message) = rest.get(..most) {
                self.is_over = !each(message, ear);
                rest = &rest[most..];
            } else {
                let (next, behind) = rest.split_at(rest.len().min(most.saturating_sub(self.waiting.len())));
                rest = behind;
                self.keep(id, next, shape, kept, ear);
                if self.waiting.len() < most {
                    return;
                }
                self.is_over |= !each(&self.waiting, ear);
                kept.clear(&mut self.waiting);
            }
            self.skip = all - most;
            if self.skip > 0 {
                ear.lost(id, shape.lost);
            }
        }
    }

    fn keep<F>(&mut self, id: Id, bytes: &[u8], shape: &Shape, kept: &Carried, ear: &mut dyn Ear<F>) {
        if !kept.keep(&mut self.waiting, bytes) {
            ear.lost(id, shape.lost);
            self.stop(kept);
        }
    }

    /// Bytes are missing. A side that has not begun begins behind them: captures lack whole segments, and these end with a
    /// message most of the time. Of another one nothing more is read; `what` names that.
    pub fn gap<F>(&mut self, what: &'static str, kept: &Carried, ear: &mut dyn Ear<F>) {
        if self.is_begun && !self.is_over {
            ear.count(what, 1);
            self.stop(kept);
        }
    }

    /// Reads nothing more.
    pub fn stop(&mut self, kept: &Carried) {
        kept.clear(&mut self.waiting);
        self.is_over = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Side;
    use crate::conversation::heard::Heard;

    const SHAPE: Shape = Shape {
        most: 4,
        length: |bytes| match bytes.first() {
            Some(0xff) => Length::No,
            Some(length) => Length::Is(1 + usize::from(*length)),
            None => Length::More,
        },
        lost: "lost",
    };

    /// Messages of one byte for the length, and the bytes that follow. `0xff`: no message. At `.` reading ends.
    fn check(stream: &[u8], gap_at: usize, expected: &[&[u8]]) {
        let id = Id { exchange: 0, side: Side::Client };
        for size in [1, 3, stream.len()] {
            let (mut side, mut ear, kept) = (Prefixed::default(), Heard::default(), Carried::new(4));
            let ear: &mut dyn Ear<usize> = &mut ear;
            let mut found: Vec<Vec<u8>> = Vec::new();
            for (at, piece) in stream.chunks(size).enumerate() {
                if (at * size..at * size + piece.len()).contains(&gap_at) {
                    side.gap("gap", &kept, ear);
                }
                side.feed(id, piece, &SHAPE, &kept, ear, |message, _| {
                    found.push(message.to_vec());
                    message != b"\x01."
                });
            }
            side.stop(&kept);
            assert_eq!((&found[..], kept.bytes()), (&expected.iter().map(|it| it.to_vec()).collect::<Vec<_>>()[..], 0));
        }
    }

    #[test]
    fn a_gap_behind_the_first_bytes_ends_a_side() {
        let (mut side, mut ear, kept) = (Prefixed::default(), Heard::default(), Carried::new(4));
        let ear: &mut dyn Ear<usize> = &mut ear;
        for (missing, bytes, count) in [(true, b"\x01a", 1), (false, b"\x01b", 1), (true, b"\x01c", 0)] {
            if missing {
                side.gap("gap", &kept, ear);
            }
            let mut found = 0;
            side.feed(Id { exchange: 0, side: Side::Client }, bytes, &SHAPE, &kept, ear, |_, _| {
                found += 1;
                true
            });
            assert_eq!((found, side.is_over), (count, count == 0));
        }
    }

    #[test]
    fn messages() {
        check(b"\x01a\0\x02bc", 99, &[b"\x01a", b"\0", b"\x02bc"]);
        check(b"\x08abcdefgh\x01i\x02j", 99, &[b"\x08abc", b"\x01i"]);
        check(b"\x01a\xff\x01b", 99, &[b"\x01a"]);
        check(b"\x01a\x01b", 0, &[b"\x01a", b"\x01b"]);
        check(b"\x01.\x01b", 99, &[b"\x01."]);
    }
}
