//! Messages between a reader and the owner of its ring, on the reader's line.

/// Bytes of a reader's message.
pub const LINE_BYTES: usize = 8;

/// A reader's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// The reader sleeps; it would look next at the packet with this number.
    Asleep(u64),
}

impl Line {
    /// Encodes the message.
    pub fn to_bytes(self) -> [u8; LINE_BYTES] {
        let Line::Asleep(position) = self;
        position.to_le_bytes()
    }

    /// Decodes a message; any bytes are a position.
    pub fn from_bytes(bytes: [u8; LINE_BYTES]) -> Line {
        Line::Asleep(u64::from_le_bytes(bytes))
    }
}

const WORD_BYTES: usize = 5;

/// An owner's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// There is something to read.
    Wake,
    /// No more packets come. This is the last message.
    CloseReason(CloseReason),
}

/// Why an owner drops a reader. An owner that dies sends no reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The device is gone.
    DeviceGone,
    /// This user ended the reader's client.
    Stopped(u32),
}

impl Word {
    /// Encodes the message: bytes, and how many of them to send.
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

    /// Decodes a message; anything but a close reason wakes.
    pub fn from_bytes(bytes: &[u8]) -> Word {
        match *bytes {
            [2] => Word::CloseReason(CloseReason::DeviceGone),
            [3, a, b, c, d] => Word::CloseReason(CloseReason::Stopped(u32::from_le_bytes([a, b, c, d]))),
            _ => Word::Wake,
        }
    }
}
