//! What is said on a daemon's control socket: one packet for each message, file descriptors beside it.
//!
//! A client says hello, then asks; every question has one answer. What comes from the other side is checked field by field.

use crate::attachment::{Attachment, Device, Exchange, Past};
use crate::budget::Budget;
use crate::codec::{In, Out};
use crate::registry::{ReaderState, RingState};
use crate::request::CaptureRequest;
use crate::writer::{CaptureError, CaptureErrorKind};
use buffer::live::{Areas, Geometry};
use buffer::shared::packets;
use program::cbpf::Instruction;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Version of these messages.
pub const PROTOCOL: u32 = 5;

/// Where a daemon listens if nothing else is said.
pub const SOCKET: &str = "/run/streamline/control";

/// Longest packet in bytes: a capture request with the longest program.
pub const MESSAGE_BYTES: usize = 192 << 10;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// First word: the version it speaks, and what its readers are for, for people.
    Hello(u32, String),
    /// What is known of this device?
    Device(String),
    /// Let me read.
    Open(CaptureRequest),
    /// Another expression for this reader of mine.
    Exchange(u64, Vec<Instruction>),
    /// I need this reader of mine no more.
    Close(u64),
    /// What is going on?
    State,
    /// End this client, and its readers with it.
    Stop(u64),
    /// The rings of this device need not stay without readers any more.
    Forget(String),
}

/// What a reader gets, without the file descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// See [`Attachment`].
    pub id: u64,
    /// See [`Attachment`].
    pub device: Device,
    /// See [`Attachment`].
    pub geometry: Geometry,
    /// See [`Attachment`].
    pub bit: u8,
    /// See [`Attachment`].
    pub matched_before: (u64, u64),
    /// See [`Attachment`].
    pub kept_before: u64,
    /// See [`Attachment`].
    pub seen_before: u64,
    /// See [`Attachment`].
    pub first: u64,
    /// See [`Attachment`].
    pub decided: u64,
    /// See [`Attachment`].
    pub past: Past,
    /// See [`Attachment`].
    pub note: String,
}

/// A client, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientState {
    /// Its number.
    pub id: u64,
    /// Its process when it connected.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// What it is for.
    pub purpose: String,
    /// When it came, ns since 1970 UTC.
    pub since: u64,
    /// Its readers: number and device.
    pub readers: Vec<(u64, String)>,
}

/// What is going on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonState {
    /// What the daemon's process is confined by, for people.
    pub confined: String,
    /// Clients there are.
    pub clients: Vec<ClientState>,
    /// Rings there are.
    pub rings: Vec<RingState>,
}

/// What a daemon answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a hello: the version it speaks.
    Hello(u32),
    /// Of a device: what it is, and what the client's user may take of its budget, where it has one.
    Device(Device, Option<Budget>),
    /// A reader's place (5 fds: words, slots, data, line, progress).
    Granted(Granted),
    /// Another expression is in force.
    Exchanged(Exchange),
    /// Done as asked.
    Done,
    /// What is going on.
    State(DaemonState),
    /// Not done, and why.
    Refused(CaptureErrorKind, String),
}

impl Question {
    /// As a packet.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        match self {
            Question::Hello(version, purpose) => out.u8(1).u32(*version).text(purpose),
            Question::Device(name) => out.u8(2).text(name),
            Question::Open(asked) => out.u8(3).capture_request(asked),
            Question::Exchange(id, program) => out.u8(4).u64(*id).program(program),
            Question::Close(id) => out.u8(5).u64(*id),
            Question::State => out.u8(6),
            Question::Stop(id) => out.u8(7).u64(*id),
            Question::Forget(device) => out.u8(8).text(device),
        };
        out.0
    }

    /// From a packet; `None` where it says nothing that can be said.
    pub fn decode(packet: &[u8]) -> Option<Question> {
        let mut fields = In(packet);
        let question = match fields.u8()? {
            1 => Question::Hello(fields.u32()?, fields.text()?),
            2 => Question::Device(fields.text()?),
            3 => Question::Open(fields.capture_request()?),
            4 => Question::Exchange(fields.u64()?, fields.program()?),
            5 => Question::Close(fields.u64()?),
            6 => Question::State,
            7 => Question::Stop(fields.u64()?),
            8 => Question::Forget(fields.text()?),
            _ => return None,
        };
        fields.is_empty().then_some(question)
    }
}

impl Answer {
    /// As a packet. Of a state that is too long for one, what does not fit is left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        match self {
            Answer::Hello(version) => out.u8(1).u32(*version),
            Answer::Device(device, budget) => out.u8(2).device(device).budget(budget.as_ref()),
            Answer::Granted(granted) => {
                let (packets, bytes) = granted.matched_before;
                out.u8(3).u64(granted.id).device(&granted.device).geometry(&granted.geometry).u8(granted.bit);
                out.u64(packets).u64(bytes).u64(granted.kept_before).u64(granted.seen_before);
                out.u64(granted.first).u64(granted.decided);
                out.u64(granted.past.reaches_ns).u8(granted.past.whole.into()).text(&granted.note)
            }
            Answer::Exchanged(exchange) => out.u8(4).exchange(exchange),
            Answer::Done => out.u8(5),
            Answer::State(state) => {
                out.u8(6);
                return encode_state(out, state);
            }
            Answer::Refused(kind, text) => out.u8(7).u8(*kind as u8).text(text),
        };
        out.0
    }

    /// From a packet; `None` where it says nothing that can be said.
    pub fn decode(packet: &[u8]) -> Option<Answer> {
        let mut fields = In(packet);
        let answer = match fields.u8()? {
            1 => Answer::Hello(fields.u32()?),
            2 => Answer::Device(fields.device()?, fields.budget()?),
            3 => Answer::Granted(Granted {
                id: fields.u64()?,
                device: fields.device()?,
                geometry: fields.geometry()?,
                bit: fields.u8().filter(|bit| *bit < 64)?,
                matched_before: (fields.u64()?, fields.u64()?),
                kept_before: fields.u64()?,
                seen_before: fields.u64()?,
                first: fields.u64()?,
                decided: fields.u64()?,
                past: Past { reaches_ns: fields.u64()?, whole: fields.bool()? },
                note: fields.text()?,
            }),
            4 => Answer::Exchanged(fields.exchange()?),
            5 => Answer::Done,
            6 => Answer::State(decode_state(&mut fields)?),
            7 => Answer::Refused(CaptureErrorKind::from_code(fields.u8()?)?, fields.text()?),
            _ => return None,
        };
        fields.is_empty().then_some(answer)
    }
}

/// Rings first, for there are no more than devices and trust groups; then clients, which are as many as users like, each with
/// as much of its purpose as there is room for: none that says much hides others. Entries are else whole or left out.
fn encode_state(mut out: Out, state: &DaemonState) -> Vec<u8> {
    out.text(&state.confined);
    let add = |out: &mut Out, entry: Out| {
        if out.0.len() + entry.0.len() <= MESSAGE_BYTES {
            out.0.extend(entry.0);
        }
    };
    state.rings.iter().for_each(|ring| add(&mut out, encode_ring(ring)));
    let used = out.0.len();
    let without: usize = state.clients.iter().map(|client| encode_client(client, 0).0.len()).sum();
    let room = MESSAGE_BYTES.saturating_sub(used + without) / state.clients.len().max(1);
    state.clients.iter().for_each(|client| add(&mut out, encode_client(client, room)));
    out.0
}

/// With so many bytes of its purpose at most.
fn encode_client(client: &ClientState, purpose_bytes: usize) -> Out {
    let purpose = &client.purpose[..client.purpose.floor_char_boundary(purpose_bytes)];
    let mut out = Out::default();
    out.u8(1).u64(client.id).u32(client.process as u32).u32(client.user).text(purpose).u64(client.since);
    let readers = &client.readers[..client.readers.len().min(64)];
    out.u8(readers.len() as u8);
    for (id, device) in readers {
        out.u64(*id).text(device);
    }
    out
}

fn encode_ring(ring: &RingState) -> Out {
    let mut out = Out::default();
    let (packets, bytes) = ring.seen;
    out.u8(2).device(&ring.device).u32(ring.group).u64(ring.ring_bytes).u64(packets).u64(bytes).u64(ring.written);
    out.u8(ring.kept.into());
    let readers = &ring.readers[..ring.readers.len().min(64)];
    out.u8(readers.len() as u8);
    for reader in readers {
        out.u64(reader.id).u8(reader.bit).u64(reader.matched).u64(reader.lost).u8(reader.asleep.into());
    }
    let statistics = &ring.statistics[..ring.statistics.len().min(100)];
    out.u8(statistics.len() as u8);
    for (name, number) in statistics {
        out.text(name).u64(*number);
    }
    out
}

fn decode_state(fields: &mut In<'_>) -> Option<DaemonState> {
    let mut state = DaemonState { confined: fields.text()?, ..DaemonState::default() };
    while !fields.is_empty() {
        match fields.u8()? {
            1 => {
                let (id, process, user) = (fields.u64()?, fields.u32()? as i32, fields.u32()?);
                let (purpose, since) = (fields.text()?, fields.u64()?);
                let readers = (0..fields.u8()?).map(|_| Some((fields.u64()?, fields.text()?)));
                let readers = readers.collect::<Option<Vec<_>>>()?;
                state.clients.push(ClientState { id, process, user, purpose, since, readers });
            }
            2 => {
                let (device, group, ring_bytes) = (fields.device()?, fields.u32()?, fields.u64()?);
                let (seen, written) = ((fields.u64()?, fields.u64()?), fields.u64()?);
                let kept = fields.bool()?;
                let readers = (0..fields.u8()?).map(|_| {
                    let (id, bit) = (fields.u64()?, fields.u8()?);
                    Some(ReaderState { id, bit, matched: fields.u64()?, lost: fields.u64()?, asleep: fields.bool()? })
                });
                let readers = readers.collect::<Option<Vec<_>>>()?;
                let statistics = (0..fields.u8()?).map(|_| Some((fields.text()?, fields.u64()?)));
                let statistics = statistics.collect::<Option<Vec<_>>>()?;
                state.rings.push(RingState { device, group, ring_bytes, seen, written, kept, readers, statistics });
            }
            _ => return None,
        }
    }
    Some(state)
}

impl Granted {
    /// Of an attachment, without what cannot be written down.
    pub fn of(attachment: &Attachment) -> Granted {
        Granted {
            id: attachment.id,
            device: attachment.device.clone(),
            geometry: attachment.geometry,
            bit: attachment.bit,
            matched_before: attachment.matched_before,
            kept_before: attachment.kept_before,
            seen_before: attachment.seen_before,
            first: attachment.first,
            decided: attachment.decided,
            past: attachment.past,
            note: attachment.note.clone(),
        }
    }

    /// The attachment again, with the file descriptors that came beside it.
    pub fn with(self, fds: Vec<OwnedFd>) -> Option<Attachment> {
        let [words, slots, data, line, progress] = <[OwnedFd; 5]>::try_from(fds).ok()?;
        let Granted { id, device, geometry, bit, matched_before, kept_before, seen_before, first, decided, past, note } =
            self;
        let areas = Areas { words, slots, data };
        Some(Attachment {
            id,
            device,
            geometry,
            progress,
            areas,
            bit,
            matched_before,
            kept_before,
            seen_before,
            first,
            decided,
            past,
            note,
            line,
        })
    }
}

/// The file descriptors of an attachment, as they go beside it.
pub fn fds_of(attachment: &Attachment) -> [BorrowedFd<'_>; 5] {
    let Areas { words, slots, data } = &attachment.areas;
    [words.as_fd(), slots.as_fd(), data.as_fd(), attachment.line.as_fd(), attachment.progress.as_fd()]
}

/// Receives a packet and reads it. `None` where the other side closed.
pub fn receive<T>(socket: impl AsFd, decode: impl FnOnce(&[u8]) -> Option<T>) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut packet = vec![0; MESSAGE_BYTES];
    let Some((len, fds)) = packets::receive(socket, &mut packet)? else { return Ok(None) };
    match decode(&packet[..len]) {
        Some(message) => Ok(Some((message, fds))),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "the other side says what cannot be understood")),
    }
}

impl From<CaptureError> for Answer {
    fn from(error: CaptureError) -> Answer {
        Answer::Refused(error.kind, error.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_said_is_heard_and_what_is_cut_is_not() {
        let device = Device { name: "eth0".into(), index: 2, link_type: 1, mtu: 1500, how: "x".into(), copied: false };
        let granted = Granted {
            id: 7,
            device: device.clone(),
            geometry: Geometry::new(1 << 20, 4),
            bit: 5,
            matched_before: (1, 2),
            kept_before: 6,
            seen_before: 3,
            first: 4,
            decided: 5,
            past: Past { reaches_ns: 6, whole: true },
            note: "alone".into(),
        };
        let client = ClientState {
            id: 1,
            process: -1,
            user: 1000,
            purpose: "ethernet eth0 | count".into(),
            since: 9,
            readers: vec![(7, "eth0".into()), (8, "eth1".into())],
        };
        let ring = RingState {
            device: device.clone(),
            group: 1,
            ring_bytes: 1 << 20,
            seen: (10, 11),
            written: 12,
            kept: true,
            readers: vec![ReaderState { id: 7, bit: 5, matched: 3, lost: 2, asleep: true }],
            statistics: vec![("rx_missed".into(), 4)],
        };
        let answers = [
            Answer::Hello(1),
            Answer::Device(device.clone(), None),
            Answer::Device(device, Some(Budget::new(100, 7))),
            Answer::Granted(granted),
            Answer::Exchanged(Exchange { bit: 1, matched_before: (2, 3), first: 4 }),
            Answer::Done,
            Answer::State(DaemonState { confined: "seccomp".into(), clients: vec![client], rings: vec![ring] }),
            Answer::Refused(CaptureErrorKind::Denied, "no".into()),
        ];
        for answer in answers {
            let packet = answer.encode();
            assert_eq!(Answer::decode(&packet).as_ref(), Some(&answer));
            for cut in 0..packet.len() {
                assert_ne!(Answer::decode(&packet[..cut]).as_ref(), Some(&answer));
            }
        }
        let questions = [
            Question::Hello(1, "me".into()),
            Question::Device("eth0".into()),
            Question::Open(CaptureRequest::default()),
            Question::Exchange(3, vec![Instruction { code: 6, jt: 0, jf: 0, k: 1 }]),
            Question::Close(3),
            Question::State,
            Question::Stop(4),
            Question::Forget("eth0".into()),
        ];
        for question in questions {
            let packet = question.encode();
            assert_eq!(Question::decode(&packet).as_ref(), Some(&question));
            assert!((0..packet.len()).all(|cut| Question::decode(&packet[..cut]).is_none()));
        }
    }

    #[test]
    fn clients_with_much_to_say_hide_neither_rings_nor_other_clients() {
        let client = |id| ClientState {
            id,
            process: 1,
            user: 1000,
            purpose: "\u{1f980}".repeat(500),
            since: 9,
            readers: vec![(7, "eth0".into())],
        };
        let ring = RingState {
            device: Device { name: "eth0".into(), index: 2, link_type: 1, mtu: 1500, how: "x".into(), copied: false },
            group: 1,
            ring_bytes: 1 << 20,
            seen: (10, 11),
            written: 12,
            kept: false,
            readers: vec![],
            statistics: vec![],
        };
        let state =
            DaemonState { confined: String::new(), clients: (0..1280).map(client).collect(), rings: vec![ring] };
        let packet = Answer::State(state.clone()).encode();
        assert!(packet.len() <= MESSAGE_BYTES);
        let Some(Answer::State(heard)) = Answer::decode(&packet) else { panic!("a state") };
        assert_eq!(heard.rings, state.rings);
        assert!(heard.clients.iter().map(|client| client.id).eq(0..1280));
        assert!(heard.clients.iter().all(|client| client.purpose.len() > 80));
    }
}
