//! The state of conversations: the time since the last packet and, of TCP, the analysis.
//!
//! Entries are made only where a filter reads these fields. When there are too many, the longest silent one goes.

use crate::parts::eve::NAME;
use crate::parts::flow_table::{FlowTable, Slot, Way};
use crate::parts::tcp_analysis::{Connection, Event, Room, Segment, Verdict};
use base::limits::PACKETS_CONVERSATIONS;
use filter::Counters;
use filter::prelude::*;
use filter::record::list_push;
use packet::Flow;
use packet::frame::{Frame, protocol};

/// The fields that a filter reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wants {
    pub delta: bool,
    pub analysis: bool,
}

/// A conversation.
#[derive(Default)]
struct Known {
    /// When its last packet came.
    last: u64,
    /// The number of the TCP connection.
    number: u64,
    tcp: Option<Box<Connection>>,
}

/// The result for a packet.
#[derive(Default)]
pub(super) struct Told {
    /// Since the last packet of the conversation, ns.
    pub delta: Option<u64>,
    /// Of TCP: the number of its connection, and the analysis.
    pub tcp: Option<(u64, Verdict)>,
}

/// The conversations that are known.
#[derive(Default)]
pub(super) struct Conversations {
    table: FlowTable<Known, 1>,
    room: Room,
    /// TCP connections so far.
    connections: u64,
}

impl Conversations {
    /// Adds a packet: the `number`th one.
    pub fn add(
        &mut self,
        frame: &Frame,
        bytes: &[u8],
        scope: u64,
        (time, number): (u64, u64),
        wants: Wants,
        counters: &mut Counters,
    ) -> Told {
        let is_tcp = wants.analysis && frame.protocol == protocol::TCP && frame.fragment.is_none();
        if !is_tcp && !wants.delta {
            return Told::default();
        }
        let segment = is_tcp.then(|| frame.tcp(bytes).ok()).flatten();
        let segment = segment.map(|packet| Segment::of(&packet, time, number));
        let flow = Flow::of(frame, bytes);
        let (found, way) = match self.table.find(&flow, scope) {
            Some((slot, way)) => (Some(slot), way),
            None => (None, Way::Forward),
        };
        let slot = found.unwrap_or_else(|| self.begin(flow, scope, counters));
        self.table.touch(slot);
        let Conversations { table, room, connections } = self;
        let Some(known) = table.get_mut(slot) else { return Told::default() };
        let delta = found.map(|_| time.saturating_sub(known.last));
        known.last = time;
        let way = usize::from(way == Way::Back);
        let tcp = segment.and_then(|segment| {
            let is_another = known.tcp.as_ref().is_some_and(|tcp| tcp.is_another(way, &segment));
            if is_another && let Some(gone) = known.tcp.take() {
                room.end(&gone);
            }
            if known.tcp.is_none() {
                known.tcp = room.begin();
                if known.tcp.is_none() {
                    counters.events.add("tcp connections not analysed", 1);
                }
                known.number = *connections;
                *connections += 1;
            }
            let mut verdict = known.tcp.as_mut()?.add(way, &segment, room);
            if is_another {
                verdict.events.add(Event::ReusedPorts);
            }
            Some((known.number, verdict))
        });
        let left_out = room.take_left_out();
        if left_out > 0 {
            counters.events.add("tcp segments not kept for analysis", left_out);
        }
        Told { delta, tcp }
    }

    #[cold]
    fn begin(&mut self, flow: Flow, scope: u64, counters: &mut Counters) -> Slot {
        if self.table.count() >= PACKETS_CONVERSATIONS
            && let Some(oldest) = self.table.oldest(0)
        {
            counters.events.add("conversations forgotten", 1);
            if let Some(tcp) = self.table.remove(oldest).and_then(|known| known.tcp) {
                self.room.end(&tcp);
            }
        }
        self.table.insert(flow, scope, 0, Known::default())
    }
}

/// Sets the fields of the analysis, which stand behind those of the header.
pub(super) fn set_analysis(row: &mut RowWriter, connection: u64, verdict: &Verdict) {
    const US: u64 = 1000;
    let Verdict { events, relative: (sequence, acknowledgment), .. } = *verdict;
    row.number("tcp.window_size", verdict.window.into());
    row.number("tcp.stream", connection).number("tcp.seq_relative", sequence.into());
    if let Some(acknowledgment) = acknowledgment {
        row.number("tcp.ack_relative", acknowledgment.into());
    }
    if !events.is_none() {
        set_events(row, verdict);
    }
    if let Some((frame, ns)) = verdict.acknowledges {
        row.number("tcp.analysis.acks_frame", frame).number("tcp.analysis.ack_rtt_us", ns / US);
    }
    let numbers = [
        ("tcp.analysis.initial_rtt_us", verdict.initial_round_trip.map(|ns| ns / US)),
        ("tcp.analysis.rto_us", verdict.timeout.map(|ns| ns / US)),
        ("tcp.analysis.bytes_in_flight", verdict.in_flight.map(u64::from)),
        ("tcp.analysis.push_bytes_sent", verdict.pushed.map(u64::from)),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            row.number(name, number);
        }
    }
}

/// Sets the fields of the events that a segment has.
#[cold]
fn set_events(row: &mut RowWriter, verdict: &Verdict) {
    let events = verdict.events;
    if row.wants("tcp.analysis.flags") {
        let (mut list, mut name) = (Vec::new(), RowWriter::new(&NAME));
        for event in events.names() {
            name.begin();
            list_push(&mut list, name.text("", event.rsplit('.').next().unwrap_or(event)).row());
        }
        row.rows("tcp.analysis.flags", &list);
    }
    for field in events.names() {
        row.flag(field, true);
    }
    if events.has(Event::DuplicateAck) {
        row.number("tcp.analysis.duplicate_ack_num", verdict.duplicate_number.into());
    }
}
