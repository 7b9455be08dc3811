//! Splits a stream into messages whose length is known from their start, for parsers that read a message whole.

use super::transactions::Transactions;

/// One side of a connection.
#[derive(Debug, Default)]
pub(super) struct Prefixed {
    /// The start of an incomplete message.
    waiting: Vec<u8>,
    /// Bytes of a long message left to skip.
    skip: usize,
    /// Where the next message begins is unknown.
    pub lost: bool,
}

/// The length of a message, with its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// At least 1.
    Is(usize),
    /// More bytes may decide.
    More,
    /// No message begins like this.
    No,
}

impl Prefixed {
    /// Takes the next bytes, and calls `each` for each message. A message longer than `most` is cut, and counts as given
    /// up. `length` reads the length of the message that begins here.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        gap: bool,
        most: usize,
        length: fn(&[u8]) -> Length,
        to: &mut Transactions,
        mut each: impl FnMut(&[u8], &mut Transactions),
    ) {
        if gap {
            self.lose(to);
        }
        if self.lost {
            return;
        }
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        self.waiting.extend_from_slice(&bytes[skipped..]);
        let mut used = 0;
        loop {
            let rest = &self.waiting[used..];
            let all = match length(rest) {
                Length::Is(all) => all.max(1),
                Length::More => break,
                Length::No => {
                    to.unseen = true;
                    return self.lose(to);
                }
            };
            let kept = all.min(most);
            let Some(message) = rest.get(..kept) else { break };
            each(message, to);
            let is_cut = kept < all;
            to.given_up += u64::from(is_cut);
            to.unseen |= is_cut;
            let taken = all.min(rest.len());
            self.skip = all - taken;
            used += taken;
        }
        self.waiting.drain(..used);
    }

    fn lose(&mut self, to: &mut Transactions) {
        if !self.lost {
            to.given_up += 1;
            *self = Prefixed { lost: true, ..Prefixed::default() };
        }
    }

    pub fn kept_bytes(&self) -> usize {
        self.waiting.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of one byte for the length, and the bytes that follow. `0xff`: no message.
    fn check(stream: &[u8], gap_at: usize, expected: &[&[u8]], given_up: u64) {
        let length = |bytes: &[u8]| match bytes.first() {
            Some(0xff) => Length::No,
            Some(length) => Length::Is(1 + usize::from(*length)),
            None => Length::More,
        };
        for size in [1, 3, stream.len()] {
            let (mut side, mut to) = (Prefixed::default(), Transactions::default());
            let mut found: Vec<Vec<u8>> = Vec::new();
            for (at, piece) in stream.chunks(size).enumerate() {
                let gap = (at * size..at * size + piece.len()).contains(&gap_at);
                side.feed(piece, gap, 4, length, &mut to, |message, _| found.push(message.to_vec()));
                assert!(side.waiting.len() <= 4);
            }
            assert_eq!(found, expected, "{stream:?} by {size}");
            assert_eq!(to.given_up, given_up);
        }
    }

    #[test]
    fn messages() {
        check(b"\x01a\0\x02bc", 99, &[b"\x01a", b"\0", b"\x02bc"], 0);
        check(b"\x08abcdefgh\x01i\x02j", 99, &[b"\x08abc", b"\x01i"], 1);
        check(b"\x01a\xff\x01b", 99, &[b"\x01a"], 1);
        check(b"\x01a\x01b", 0, &[], 1);
    }
}
