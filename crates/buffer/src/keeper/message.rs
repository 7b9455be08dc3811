//! Messages between a keeper and its clients.

use super::content::Content;
use crate::control::{
    self,
    codec::{In, Out, Wire},
};
use crate::ring::memory::Geometry;
use crate::ring::{OnFull, RingKind};
use crate::{wire_codes, wire_enum, wire_struct};
use std::io;
use std::time::Duration;

/// Version of these messages.
pub const PROTOCOL: u32 = 5;

/// A writer's declaration when it opens a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedWriter {
    /// The content that it writes; `None`: not declared.
    pub content: Option<Content>,
    /// Bytes of header before each block, which describe the block and are not part of it.
    pub header_bytes: u32,
}

/// A reader's wishes when it opens a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedReader {
    /// Its contract.
    pub contract: OnFull,
    /// Whether to begin at the oldest block in the ring.
    pub oldest: bool,
    /// Accept only a generation after this one; 0 = any.
    pub after: u32,
    /// Whether to wait for a writer, however long that takes. Otherwise the keeper refuses at once.
    pub wait: bool,
    /// The content that the ring must have; `None`: any.
    pub content: Option<Content>,
}

/// A reader's place, as the keeper grants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenReader {
    /// Size and kind of the ring.
    pub geometry: Geometry,
    /// The generation.
    pub generation: u32,
    /// Index among the ring's readers.
    pub slot: u32,
    /// The reader's number.
    pub serial: u32,
    /// Content and header, as the writer declared them.
    pub written: WantedWriter,
}

/// A reader, as the keeper announces it to the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinedReader {
    /// Index among the ring's readers.
    pub slot: u32,
    /// The reader's number.
    pub serial: u32,
    /// Its contract.
    pub contract: OnFull,
    /// How long it may hold a full ring.
    pub hold: Option<Duration>,
}

/// One reader in a ring's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderState {
    /// Its process when it connected.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// The granted contract.
    pub granted: OnFull,
    /// The contract in force; `None` while the writer has not met the reader.
    pub in_force: Option<OnFull>,
    /// Units it took.
    pub position: u64,
    /// Blocks lost (in a stream: bytes).
    pub lost: u64,
}

/// A ring's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingState {
    /// Size and kind.
    pub geometry: Geometry,
    /// Number of the generation: how many writers there were so far, this one included.
    pub generation: u32,
    /// Whether there is a writer now.
    pub writing: bool,
    /// Whether readers wait for the next writer when one closes.
    pub keep_open: bool,
    /// Content and header, as its users declared them.
    pub written: WantedWriter,
    /// Units published.
    pub head: u64,
    /// Blocks written, as last published by the writer.
    pub blocks: u64,
    /// Bytes written, as last published by the writer.
    pub bytes: u64,
    /// Blocks dropped for DropNewest readers (in a stream: bytes).
    pub dropped: u64,
    /// Bytes of payload in use, where the writer goes round in a part of it; 0 = all.
    pub window: u64,
    /// The readers.
    pub readers: Vec<ReaderState>,
}

/// All messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// To the keeper: a client's first message, with its protocol version.
    Hello(u32),
    /// To the keeper: open the ring for writing.
    OpenWriter(WantedWriter),
    /// To a writer: the segment and the line to hold (2 fds).
    Writer(Geometry, u32),
    /// To the keeper: the writer has mapped the segment.
    Mapped,
    /// To a writer: no other process can map the segment for writing any more.
    Sealed,
    /// To the keeper: open the ring for reading.
    OpenReader(WantedReader),
    /// To a reader: the segment, its page, the writer's line, and the line to hold (4 fds).
    Reader(GivenReader),
    /// To a writer: a reader joined; its page and its line (2 fds).
    Joined(JoinedReader),
    /// To a writer: the reader with this number left.
    Left(u32),
    /// To the keeper: ask for the ring's state.
    AskState,
    /// The answer.
    State(RingState),
    /// To the keeper: remove the ring for good.
    Remove,
    /// To the keeper: map this generation's bytes, for a forwarded block.
    Map(u32),
    /// The answer (1 fd).
    Mapping(Geometry, u32),
    /// To the keeper, from its writer: descriptors will name that ring (generation, path of its keeper's socket).
    Register(u32, String),
    /// The answer: the number that stands for it.
    Registered(u16),
    /// To the keeper: ask which ring this number means.
    Where(u16),
    /// The answer: the ring's generation and its keeper's socket.
    Elsewhere(u32, String),
    /// To the keeper, from its writer: go on in a ring of this size. Answered like [`OpenWriter`](Message::OpenWriter).
    Resize(Geometry),
    /// Done as asked.
    Done,
    /// Not done, and why.
    Refused(Refusal, String),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The policy does not allow it.
    Denied = 1,
    /// The ring has a writer already.
    Busy = 2,
    /// The ring has as many readers as it can have.
    Full = 3,
    /// There is no writer, no such generation or no such ring, and the client does not want to wait.
    Nothing = 4,
    /// The message is not allowed in this situation.
    Wrong = 5,
    /// The ring is being removed.
    Removed = 6,
    /// The system failed.
    Failed = 7,
    /// The client has read the whole ring, and there will be no other.
    Ended = 8,
    /// The ring has another content.
    Other = 9,
}

impl Refusal {
    /// As a system error.
    pub fn to_error(self, text: String) -> io::Error {
        let kind = match self {
            Refusal::Denied => io::ErrorKind::PermissionDenied,
            Refusal::Busy => io::ErrorKind::ResourceBusy,
            Refusal::Full => io::ErrorKind::QuotaExceeded,
            Refusal::Nothing => io::ErrorKind::WouldBlock,
            Refusal::Removed => io::ErrorKind::NotConnected,
            Refusal::Ended => io::ErrorKind::UnexpectedEof,
            Refusal::Other => io::ErrorKind::InvalidInput,
            Refusal::Wrong | Refusal::Failed => io::ErrorKind::Other,
        };
        io::Error::new(kind, text)
    }
}

impl Wire for OnFull {
    fn put(&self, out: &mut Out) {
        self.code().put(out);
    }

    fn get(fields: &mut In<'_>) -> Option<OnFull> {
        OnFull::from_code(Wire::get(fields)?)
    }
}

impl Wire for RingKind {
    fn put(&self, out: &mut Out) {
        self.code().put(out);
    }

    fn get(fields: &mut In<'_>) -> Option<RingKind> {
        RingKind::from_code(Wire::get(fields)?)
    }
}

wire_struct!(Geometry { kind, payload_bytes, slots } if Geometry::is_sound);
wire_struct!(WantedReader { contract, oldest, after, wait, content });
wire_struct!(WantedWriter { content, header_bytes });
wire_struct!(GivenReader { geometry, generation, slot, serial, written });
wire_struct!(JoinedReader { slot, serial, contract, hold });
wire_struct!(ReaderState { process, user, granted, in_force, position, lost });
wire_struct!(RingState {
    geometry,
    generation,
    writing,
    keep_open,
    written,
    head,
    blocks,
    bytes,
    dropped,
    window,
    readers
});
wire_codes!(Refusal { Denied = 1, Busy = 2, Full = 3, Nothing = 4, Wrong = 5, Removed = 6, Failed = 7, Ended = 8, Other = 9 });
wire_enum!(Message {
    1 = Hello(version),
    2 = OpenWriter(wanted),
    3 = Writer(geometry, generation),
    4 = Mapped,
    5 = Sealed,
    6 = OpenReader(wanted),
    7 = Reader(given),
    8 = Joined(joined),
    9 = Left(serial),
    10 = AskState,
    11 = State(state),
    12 = Remove,
    13 = Map(generation),
    14 = Mapping(geometry, generation),
    15 = Register(generation, path),
    16 = Registered(ring),
    17 = Where(ring),
    18 = Elsewhere(generation, path),
    19 = Done,
    20 = Refused(refusal, text),
    21 = Resize(geometry),
});

impl control::Message for Message {
    const BYTES: usize = 8192;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Message as _;

    #[test]
    fn every_message_comes_back_and_none_is_taken_for_another() {
        let geometry = Geometry::new(RingKind::D, 1 << 20, 0);
        let reader = ReaderState {
            process: -1,
            user: 7,
            granted: OnFull::Wait,
            in_force: Some(OnFull::Overwrite),
            position: 9,
            lost: 10,
        };
        let state = RingState {
            geometry,
            generation: 3,
            writing: true,
            keep_open: false,
            written: WantedWriter { content: Some(Content::Record), header_bytes: 72 },
            head: 1,
            blocks: 2,
            bytes: 3,
            dropped: 4,
            window: 5,
            readers: vec![reader, ReaderState { in_force: None, ..reader }],
        };
        let wanted = WantedReader {
            contract: OnFull::Shared,
            oldest: true,
            after: 9,
            wait: false,
            content: Some(Content::Frame),
        };
        let written = WantedWriter { content: None, header_bytes: 0 };
        let joined = JoinedReader { slot: 1, serial: 2, contract: OnFull::Wait, hold: Some(Duration::from_millis(5)) };
        for message in [
            Message::Hello(PROTOCOL),
            Message::OpenWriter(WantedWriter { content: Some(Content::Bytes), header_bytes: 80 }),
            Message::Writer(geometry, 5),
            Message::Mapped,
            Message::Sealed,
            Message::OpenReader(wanted),
            Message::Reader(GivenReader { geometry, generation: 1, slot: 2, serial: 3, written }),
            Message::Joined(joined),
            Message::Joined(JoinedReader { hold: None, ..joined }),
            Message::Left(77),
            Message::AskState,
            Message::State(state),
            Message::Remove,
            Message::Map(4),
            Message::Mapping(geometry, 4),
            Message::Register(5, "/run/x.sock".into()),
            Message::Registered(6),
            Message::Where(7),
            Message::Elsewhere(8, "/run/y.sock".into()),
            Message::Resize(geometry),
            Message::Done,
            Message::Refused(Refusal::Busy, "there is a writer already".into()),
        ] {
            let packet = message.encode();
            assert_eq!(Message::decode(&packet).as_ref(), Some(&message));
            for cut in 0..packet.len() {
                assert_eq!(Message::decode(&packet[..cut]), None, "{message:?} at {cut}");
            }
        }
        assert_eq!(Message::decode(&[99]), None);
    }
}
