//! What a keeper and its clients say to each other.

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

/// What is asked for when a writer opens a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedWriter {
    /// What it writes; none: it does not say.
    pub content: Option<Content>,
    /// Bytes in front of each block that tell readers what the block is, and are none of its own.
    pub header_bytes: u32,
}

/// What is asked for when a reader opens a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedReader {
    /// Its contract.
    pub contract: OnFull,
    /// Begin at the oldest block that is there?
    pub oldest: bool,
    /// Only a generation after this one will do; 0 = any.
    pub after: u32,
    /// Answer when there is one, however long that takes; else refuse at once.
    pub wait: bool,
    /// The ring has to have this content; none: any will do.
    pub content: Option<Content>,
}

/// What a reader gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenReader {
    /// The ring.
    pub geometry: Geometry,
    /// Which of its generations.
    pub generation: u32,
    /// Its place among the readers.
    pub slot: u32,
    /// Its number.
    pub serial: u32,
    /// Its content and header, as its writer said.
    pub written: WantedWriter,
}

/// A reader, as the keeper tells the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinedReader {
    /// Its place among the readers.
    pub slot: u32,
    /// Its number.
    pub serial: u32,
    /// Its contract.
    pub contract: OnFull,
    /// How long it may hold a full ring.
    pub hold: Option<Duration>,
}

/// One reader, in a ring's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderState {
    /// Its process when it connected.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// What was granted.
    pub granted: OnFull,
    /// What is in force; `None` while the writer has not met it.
    pub in_force: Option<OnFull>,
    /// Units it took.
    pub position: u64,
    /// Blocks it lost (bytes, of a stream).
    pub lost: u64,
}

/// A ring's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingState {
    /// Size and kind.
    pub geometry: Geometry,
    /// Writers there have been, the one there is included.
    pub generation: u32,
    /// Is there a writer now?
    pub writing: bool,
    /// Do readers wait for the next writer when one closes?
    pub keep_open: bool,
    /// Its content and header, as its users said.
    pub written: WantedWriter,
    /// Units published.
    pub head: u64,
    /// Blocks written, as of the writer's last word on it.
    pub blocks: u64,
    /// Bytes written, likewise.
    pub bytes: u64,
    /// Blocks dropped for DropNewest readers (bytes, of a stream).
    pub dropped: u64,
    /// Bytes of payload in use, where the writer goes round in a part of it; 0 = all.
    pub window: u64,
    /// Readers there are.
    pub readers: Vec<ReaderState>,
}

/// Everything that can be said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// To the keeper: first word of a client.
    Hello(u32),
    /// To the keeper: let me write.
    OpenWriter(WantedWriter),
    /// To a writer: here are the segment and the line to hold (2 fds).
    Writer(Geometry, u32),
    /// To the keeper: I have mapped it.
    Mapped,
    /// To a writer: nobody else can map it for writing any more.
    Sealed,
    /// To the keeper: let me read.
    OpenReader(WantedReader),
    /// To a reader: here are the segment, your page, the writer's line and the one to hold (4 fds).
    Reader(GivenReader),
    /// To a writer: a reader came; here are its page and its line (2 fds).
    Joined(JoinedReader),
    /// To a writer: the reader with this number is gone.
    Left(u32),
    /// To the keeper: how is the ring?
    AskState,
    /// The answer.
    State(RingState),
    /// To the keeper: close the ring for good.
    Remove,
    /// To the keeper: let me look at the bytes of this generation, for a block that was forwarded.
    Map(u32),
    /// The answer (1 fd).
    Mapping(Geometry, u32),
    /// To the keeper, from its writer: descriptors of mine will name that ring (its keeper's socket, its generation).
    Register(u32, String),
    /// The answer: name it by this number.
    Registered(u16),
    /// To the keeper: which ring does this number mean?
    Where(u16),
    /// The answer: that keeper's socket and the ring's generation.
    Elsewhere(u32, String),
    /// To the keeper, from its writer: let me go on in a ring of this size. Answered as [`OpenWriter`](Message::OpenWriter) is.
    Resize(Geometry),
    /// Done as asked.
    Done,
    /// Not done, and why.
    Refused(Refusal, String),
}

/// Why something is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The policy does not allow it.
    Denied = 1,
    /// There is a writer already.
    Busy = 2,
    /// There are as many readers as there can be.
    Full = 3,
    /// There is nothing (no writer, no such generation, no such ring) and waiting was not asked for.
    Nothing = 4,
    /// The message makes no sense here.
    Wrong = 5,
    /// The ring is being removed.
    Removed = 6,
    /// The system failed.
    Failed = 7,
    /// There was a ring, all of it was read, and there will be no other.
    Ended = 8,
    /// The ring carries something else.
    Other = 9,
}

impl Refusal {
    /// As an error of the system.
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
