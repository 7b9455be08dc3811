//! Messages between a daemon and its clients. A client says hello, then asks; every question has one answer.

use crate::attachment::{Device, Exchange, Granted, Past};
use crate::budget::{Budget, Part};
pub use crate::capture_request::Code;
use crate::capture_request::{CaptureError, CaptureErrorKind, CaptureRequest};
use crate::registry::{ReaderState, RingState};
use buffer::control::Message;
use buffer::control::codec::{self, In, Out, Wire};
use buffer::{wire_enum, wire_struct};

/// Version of these messages.
pub const PROTOCOL: u32 = 10;

/// The daemon's socket, unless another one is chosen.
pub const SOCKET: &str = "/run/streamline/control";

/// Longest packet in bytes: a capture request with the longest program.
pub const MESSAGE_BYTES: usize = 192 << 10;

/// A client's question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// First message: the client's protocol version, and for users the purpose of its readers.
    Hello(u32, String),
    /// Asks what is known of this device.
    Device(String),
    /// Asks for a reader.
    Open(CaptureRequest),
    /// Asks for another expression for this reader of the client.
    Exchange(u64, Code),
    /// Closes this reader of the client.
    Close(u64),
    /// Asks for the daemon's state.
    State,
    /// Ends the client with this number, and its readers.
    Stop(u64),
    /// The rings of this device no longer need to stay without readers.
    Forget(String),
    /// A question about interfaces and flows.
    Flows(flow::Question),
}

/// A client, as other clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientState {
    /// Its number.
    pub id: u64,
    /// Its process when it connected.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// Its purpose.
    pub purpose: String,
    /// When it connected, ns since 1970 UTC.
    pub since: u64,
    /// Its readers: number and device.
    pub readers: Vec<(u64, String)>,
}

/// The daemon's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonState {
    /// What confines the daemon's process, for users.
    pub confined: String,
    /// Its clients.
    pub clients: Vec<ClientState>,
    /// Its rings.
    pub rings: Vec<RingState>,
}

/// A daemon's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a hello: the daemon's protocol version.
    Hello(u32),
    /// About a device; and how much of its budget the client's user may take, if it has one.
    Device(Device, Option<Budget>),
    /// A reader's place (5 fds: words, slots, data, line, progress).
    Granted(Granted),
    /// The reader's new expression is in force.
    Exchanged(Exchange),
    /// Done as asked.
    Done,
    /// The daemon's state.
    State(DaemonState),
    /// About interfaces and flows. With it come fds: 2 or 5 for an opened flow (see [`flow::Granted`]), 0 or 3 for a
    /// listener (see [`flow::Listening`]), 2 for each accepted connection.
    Flows(flow::Answer),
    /// Not done, and why.
    Refused(CaptureErrorKind, String),
}

wire_struct!(Device { name, index, link_type, mtu, how, copied });
wire_struct!(Part { taken, of });
wire_struct!(Budget { user, all });
wire_struct!(Past { reaches_ns, whole });
wire_struct!(Exchange { bit, matched_before, first } if |exchange| exchange.bit < 64);
wire_struct!(Granted {
    id,
    device,
    geometry,
    bit,
    matched_before,
    kept_before,
    seen_before,
    first,
    decided,
    past,
    note,
} if |granted| granted.bit < 64);
wire_struct!(ClientState { id, process, user, purpose, since, readers });
wire_struct!(ReaderState { id, bit, matched, lost, asleep });
wire_struct!(RingState { device, group, ring_bytes, seen, written, kept, readers, statistics });
wire_enum!(Question {
    1 = Hello(version, purpose),
    2 = Device(name),
    3 = Open(asked),
    4 = Exchange(id, program),
    5 = Close(id),
    6 = State,
    7 = Stop(id),
    8 = Forget(device),
    9 = Flows(question),
});
wire_enum!(Answer {
    1 = Hello(version),
    2 = Device(device, budget),
    3 = Granted(granted),
    4 = Exchanged(exchange),
    5 = Done,
    6 = State(state),
    7 = Refused(kind, text),
    8 = Flows(answer),
});

impl Message for Question {
    const BYTES: usize = MESSAGE_BYTES;
}

impl Message for Answer {
    const BYTES: usize = MESSAGE_BYTES;
}

const READERS_LISTED: usize = 64;

impl Wire for DaemonState {
    /// Rings come first: there are at most as many as devices and trust groups. Then come clients, of which users may
    /// make any number. Each gets as much room for its purpose as is left, so that a long one does not hide other
    /// clients. What does not fit is left out.
    fn put(&self, out: &mut Out) {
        let client = |client: &ClientState, purpose_bytes: usize| ClientState {
            purpose: client.purpose[..client.purpose.floor_char_boundary(purpose_bytes)].into(),
            readers: client.readers.iter().take(READERS_LISTED).cloned().collect(),
            ..client.clone()
        };
        let clients_count = size_of::<u32>();
        self.confined.put(out);
        codec::put_fitting(out, self.rings.iter().cloned(), MESSAGE_BYTES - clients_count);
        let without: usize = self.clients.iter().map(|one| codec::len(&client(one, 0))).sum();
        let room = MESSAGE_BYTES.saturating_sub(out.0.len() + clients_count + without) / self.clients.len().max(1);
        codec::put_fitting(out, self.clients.iter().map(|one| client(one, room)), MESSAGE_BYTES);
    }

    fn get(fields: &mut In<'_>) -> Option<DaemonState> {
        let (confined, rings) = Wire::get(fields)?;
        Some(DaemonState { confined, rings, clients: Wire::get(fields)? })
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
    use buffer::live::Geometry;

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
            Question::Exchange(3, Code(vec![program::cbpf::Instruction { code: 6, jt: 0, jf: 0, k: 1 }])),
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
