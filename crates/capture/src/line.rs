//! What a reader and the owner of its ring say on the reader's line, a few bytes at a time.

/// Bytes of a word on a reader's line.
pub const LINE_BYTES: usize = 8;

/// What a reader says on its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// It sleeps, and the packet of this number is the next it would look at.
    Asleep(u64),
}

impl Line {
    /// As bytes.
    pub fn to_bytes(self) -> [u8; LINE_BYTES] {
        let Line::Asleep(position) = self;
        position.to_le_bytes()
    }

    /// From bytes; any are a position.
    pub fn from_bytes(bytes: [u8; LINE_BYTES]) -> Line {
        Line::Asleep(u64::from_le_bytes(bytes))
    }
}

/// Longest of the owner's words on a line.
const WORD_BYTES: usize = 5;

/// What the owner says on a reader's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// There is something to read.
    Wake,
    /// Nothing comes any more: the last word.
    CloseReason(CloseReason),
}

/// Why an owner lets a reader go. Whoever dies says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The device is there no more.
    DeviceGone,
    /// This user ended the reader's client.
    Stopped(u32),
}

impl Word {
    /// As bytes, the first so many of them.
    pub fn to_bytes(self) -> ([u8; WORD_BYTES], usize) {
        match self {
            Word::Wake => ([1, 0, 0, 0, 0], 1),
            Word::CloseReason(CloseReason::DeviceGone) => ([2, 0, 0, 0, 0], 1),
            Word::CloseReason(CloseReason::Stopped(user)) => {
                let [a, b, c, d] = user.to_le_bytes();
                ([3, a, b, c, d], WORD_BYTES)
            }
        }
    }

    /// From bytes; what is no close reason wakes.
    pub fn from_bytes(bytes: &[u8]) -> Word {
        match *bytes {
            [2] => Word::CloseReason(CloseReason::DeviceGone),
            [3, a, b, c, d] => Word::CloseReason(CloseReason::Stopped(u32::from_le_bytes([a, b, c, d]))),
            _ => Word::Wake,
        }
    }
}
