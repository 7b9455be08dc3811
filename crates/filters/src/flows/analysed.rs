//! The analysis of a flow's TCP, and the protocol inside, where a filter reads these fields.

use crate::parts::tcp_analysis::{Connection, Event, Room, Segment};
use filter::prelude::*;
use packet::Flow;
use packet::frame::protocol;
use protocols::app::App;
use protocols::probe::{First, Says, datagram, stream};

/// Payloads of a side that may tell the protocol.
const TRIES: u8 = 3;

/// The fields that a filter reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wants {
    pub analysis: bool,
    pub app: bool,
}

impl Wants {
    pub fn of(row: &RowWriter) -> Wants {
        let any = |names: &[&str]| names.iter().any(|name| row.wants(name));
        let is_counted = COUNTS.iter().any(|(_, names)| any(names));
        Wants { analysis: is_counted || any(&["flow.rtt_us"]), app: any(&["flow.app_proto"]) }
    }
}

/// Events that are counted, each with the fields of both directions.
pub(super) const COUNTS: [(Event, [&str; 2]); 3] = [
    (Event::Retransmission, ["flow.retransmissions_toserver", "flow.retransmissions_toclient"]),
    (Event::OutOfOrder, ["flow.out_of_order_toserver", "flow.out_of_order_toclient"]),
    (Event::ZeroWindow, ["flow.zero_windows_toserver", "flow.zero_windows_toclient"]),
];

/// The analysis of one flow.
#[derive(Debug)]
pub(super) struct Analysed {
    connection: Box<Connection>,
    /// Of each side: how often the events of [`COUNTS`] happened.
    counts: [[u32; COUNTS.len()]; 2],
    /// Round trip of the handshake, ns.
    round_trip: Option<u64>,
}

impl Analysed {
    /// `None`: too many connections are analysed.
    pub fn begin(room: &mut Room) -> Option<Box<Analysed>> {
        let connection = room.begin()?;
        Some(Box::new(Analysed { connection, counts: Default::default(), round_trip: None }))
    }

    pub fn end(&self, room: &mut Room) {
        room.end(&self.connection);
    }

    /// Adds a segment of this side: the client is 0, the server 1.
    pub fn add(&mut self, side: usize, segment: &Segment, room: &mut Room) {
        let verdict = self.connection.add(side, segment, room);
        for ((event, _), count) in COUNTS.iter().zip(&mut self.counts[side]) {
            *count = count.saturating_add(verdict.events.has(*event).into());
        }
        self.round_trip = verdict.initial_round_trip;
    }

    /// Sets its fields.
    pub fn set(&self, row: &mut RowWriter) {
        if let Some(ns) = self.round_trip {
            row.number("flow.rtt_us", ns / 1000);
        }
        for (at, (_, names)) in COUNTS.iter().enumerate() {
            for (name, counts) in names.iter().zip(&self.counts) {
                row.number(name, counts[at].into());
            }
        }
    }
}

/// The protocol inside a flow, as far as the first payloads tell it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inside {
    app: App,
    tries: [u8; 2],
}

impl Inside {
    /// The name of the protocol. `None`: not known.
    pub fn name(self) -> Option<&'static str> {
        (self.app != App::default()).then(|| self.app.name())
    }

    /// Looks at a payload that this side sends in the flow from the client.
    pub fn look(&mut self, side: usize, flow: &Flow, payload: &[u8], wire_len: u32) {
        let tries = &mut self.tries[side];
        if payload.is_empty() || *tries >= TRIES || self.app != App::default() {
            return;
        }
        *tries += 1;
        self.app = match flow.protocol {
            protocol::TCP => match stream(&First { bytes: payload, to_server: side == 0, flow }) {
                Says::Is(app) => app,
                Says::More | Says::No => App::default(),
            },
            protocol::UDP => datagram(payload, wire_len, flow),
            _ => App::default(),
        };
    }
}
