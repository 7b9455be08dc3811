//! What is said between a keeper and its clients: one packet for each message (SOCK_SEQPACKET), file descriptors beside it.
//!
//! Fields are little-endian, one after the other, texts last. What comes from the other side is checked field by field; a
//! packet that says something else is an error, not a guess.

use crate::ring::memory::Geometry;
use crate::ring::{OnFull, RingKind};
use crate::shared::packets;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Version of these messages.
pub const PROTOCOL: u32 = 3;

/// Longest packet in bytes.
pub const MESSAGE_BYTES: usize = 8192;

/// Most file descriptors beside one message.
pub const FDS: usize = 4;

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
    OpenWriter,
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
}

impl Refusal {
    fn from_code(code: u8) -> Option<Refusal> {
        use Refusal::*;
        [Denied, Busy, Full, Nothing, Wrong, Removed, Failed, Ended].into_iter().find(|refusal| *refusal as u8 == code)
    }

    /// As an error of the system.
    pub fn to_error(self, text: String) -> io::Error {
        let kind = match self {
            Refusal::Denied => io::ErrorKind::PermissionDenied,
            Refusal::Busy => io::ErrorKind::ResourceBusy,
            Refusal::Full => io::ErrorKind::QuotaExceeded,
            Refusal::Nothing => io::ErrorKind::WouldBlock,
            Refusal::Removed => io::ErrorKind::NotConnected,
            Refusal::Ended => io::ErrorKind::UnexpectedEof,
            Refusal::Wrong | Refusal::Failed => io::ErrorKind::Other,
        };
        io::Error::new(kind, text)
    }
}

/// A packet in the making.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn of(code: u8) -> Out {
        Out(vec![code])
    }

    fn u8(mut self, value: u8) -> Out {
        self.0.push(value);
        self
    }

    fn u16(mut self, value: u16) -> Out {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Out {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Out {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn text(mut self, value: &str) -> Out {
        self.0.extend(value.as_bytes());
        self
    }

    fn geometry(self, geometry: &Geometry) -> Out {
        self.u32(geometry.kind.code()).u64(geometry.payload_bytes).u64(geometry.slots)
    }
}

/// A packet being read: each step is `None` where it says something it cannot.
struct In<'a>(&'a [u8]);

impl In<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn bool(&mut self) -> Option<bool> {
        self.u8().filter(|byte| *byte < 2).map(|byte| byte == 1)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(std::mem::take(&mut self.0).to_vec()).ok()
    }

    fn contract(&mut self) -> Option<OnFull> {
        OnFull::from_code(self.u32()?)
    }

    fn geometry(&mut self) -> Option<Geometry> {
        let kind = RingKind::from_code(self.u32()?)?;
        Some(Geometry { kind, payload_bytes: self.u64()?, slots: self.u64()? }).filter(Geometry::is_sound)
    }
}

impl Message {
    /// As a packet.
    pub fn encode(&self) -> Vec<u8> {
        use Message::*;
        match self {
            Hello(version) => Out::of(1).u32(*version),
            OpenWriter => Out::of(2),
            Writer(geometry, generation) => Out::of(3).geometry(geometry).u32(*generation),
            Mapped => Out::of(4),
            Sealed => Out::of(5),
            OpenReader(wanted) => {
                Out::of(6).u32(wanted.contract.code()).u8(wanted.oldest.into()).u32(wanted.after).u8(wanted.wait.into())
            }
            Reader(given) => {
                Out::of(7).geometry(&given.geometry).u32(given.generation).u32(given.slot).u32(given.serial)
            }
            Joined(joined) => {
                let hold = joined.hold.map_or(0, |hold| u64::try_from(hold.as_nanos()).unwrap_or(u64::MAX).max(1));
                Out::of(8).u32(joined.slot).u32(joined.serial).u32(joined.contract.code()).u64(hold)
            }
            Left(serial) => Out::of(9).u32(*serial),
            AskState => Out::of(10),
            State(state) => {
                let mut out = Out::of(11)
                    .geometry(&state.geometry)
                    .u32(state.generation)
                    .u8(state.writing.into())
                    .u8(state.keep_open.into())
                    .u64(state.head)
                    .u64(state.blocks)
                    .u64(state.bytes)
                    .u64(state.dropped)
                    .u64(state.window);
                for reader in &state.readers {
                    out = out
                        .u32(reader.process as u32)
                        .u32(reader.user)
                        .u32(reader.granted.code())
                        .u32(reader.in_force.map_or(0, OnFull::code))
                        .u64(reader.position)
                        .u64(reader.lost);
                }
                out
            }
            Remove => Out::of(12),
            Map(generation) => Out::of(13).u32(*generation),
            Mapping(geometry, generation) => Out::of(14).geometry(geometry).u32(*generation),
            Register(generation, path) => Out::of(15).u32(*generation).text(path),
            Registered(ring) => Out::of(16).u16(*ring),
            Where(ring) => Out::of(17).u16(*ring),
            Elsewhere(generation, path) => Out::of(18).u32(*generation).text(path),
            Done => Out::of(19),
            Resize(geometry) => Out::of(21).geometry(geometry),
            Refused(refusal, text) => Out::of(20).u8(*refusal as u8).text(text),
        }
        .0
    }

    /// From a packet; `None` where it says nothing that can be said.
    pub fn decode(packet: &[u8]) -> Option<Message> {
        use Message::*;
        let mut p = In(packet);
        let message = match p.u8()? {
            1 => Hello(p.u32()?),
            2 => OpenWriter,
            3 => Writer(p.geometry()?, p.u32()?),
            4 => Mapped,
            5 => Sealed,
            6 => OpenReader(WantedReader {
                contract: p.contract()?,
                oldest: p.bool()?,
                after: p.u32()?,
                wait: p.bool()?,
            }),
            7 => {
                Reader(GivenReader { geometry: p.geometry()?, generation: p.u32()?, slot: p.u32()?, serial: p.u32()? })
            }
            8 => Joined(JoinedReader {
                slot: p.u32()?,
                serial: p.u32()?,
                contract: p.contract()?,
                hold: Some(p.u64()?).filter(|hold| *hold > 0).map(Duration::from_nanos),
            }),
            9 => Left(p.u32()?),
            10 => AskState,
            11 => {
                let mut state = RingState {
                    geometry: p.geometry()?,
                    generation: p.u32()?,
                    writing: p.bool()?,
                    keep_open: p.bool()?,
                    head: p.u64()?,
                    blocks: p.u64()?,
                    bytes: p.u64()?,
                    dropped: p.u64()?,
                    window: p.u64()?,
                    readers: Vec::new(),
                };
                while !p.0.is_empty() {
                    state.readers.push(ReaderState {
                        process: p.u32()? as i32,
                        user: p.u32()?,
                        granted: p.contract()?,
                        in_force: OnFull::from_code(p.u32()?),
                        position: p.u64()?,
                        lost: p.u64()?,
                    });
                }
                State(state)
            }
            12 => Remove,
            13 => Map(p.u32()?),
            14 => Mapping(p.geometry()?, p.u32()?),
            15 => Register(p.u32()?, p.text()?),
            16 => Registered(p.u16()?),
            17 => Where(p.u16()?),
            18 => Elsewhere(p.u32()?, p.text()?),
            19 => Done,
            20 => Refused(Refusal::from_code(p.u8()?)?, p.text()?),
            21 => Resize(p.geometry()?),
            _ => return None,
        };
        p.0.is_empty().then_some(message)
    }
}

/// Sends one message. A socket that does not block says [`io::ErrorKind::WouldBlock`] where there is no room.
pub fn send(socket: impl AsFd, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    packets::send(socket, &message.encode(), fds)
}

/// Receives one message and what file descriptors came with it: none where not all of them could come, and it is for who needs
/// them to say that there are none. `None` where the other side closed.
pub fn receive(socket: impl AsFd) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
    let mut packet = vec![0; MESSAGE_BYTES];
    let Some(packets::Received { len, fds, .. }) = packets::receive_cut(socket, &mut packet)? else { return Ok(None) };
    match Message::decode(&packet[..len]).filter(|_| fds.len() <= FDS) {
        Some(message) => Ok(Some((message, fds))),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "the other side says what cannot be understood")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            head: 1,
            blocks: 2,
            bytes: 3,
            dropped: 4,
            window: 5,
            readers: vec![reader, ReaderState { in_force: None, ..reader }],
        };
        let wanted = WantedReader { contract: OnFull::Shared, oldest: true, after: 9, wait: false };
        let joined = JoinedReader { slot: 1, serial: 2, contract: OnFull::Wait, hold: Some(Duration::from_millis(5)) };
        for message in [
            Message::Hello(PROTOCOL),
            Message::OpenWriter,
            Message::Writer(geometry, 5),
            Message::Mapped,
            Message::Sealed,
            Message::OpenReader(wanted),
            Message::Reader(GivenReader { geometry, generation: 1, slot: 2, serial: 3 }),
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
                // A cut text is a shorter text; anything else cut is nothing.
                if let Some(other) = Message::decode(&packet[..cut]) {
                    assert_eq!(
                        std::mem::discriminant(&other),
                        std::mem::discriminant(&message),
                        "{message:?} at {cut}"
                    );
                }
            }
        }
        assert_eq!(Message::decode(&[99]), None);
    }
}
