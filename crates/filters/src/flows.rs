//! A record of each flow when it ends: addresses, duration, amounts in both directions, and the course of TCP.
//!
//! - `state` — the state of a flow, and how a packet changes it.
//! - `analysed` — the analysis of TCP, and the protocol inside.
//! - `row` — the record; `community` — Community ID.
//!
//! Tiers: a packet of a known flow costs one parse, one lookup and some counters. A flow's first packet makes an entry. Only
//! counters are kept, so all flows have one size.

mod analysed;
pub(crate) mod community;
mod row;
mod state;

use crate::parts::client;
use crate::parts::flow_table::{FlowTable, Slot, Way};
use crate::parts::origin::{self, Origin, Origins, facts_of};
use crate::parts::tcp_analysis::{self, Room};
use analysed::{Analysed, Wants};
use base::limits::{FLOWS, TCP_CLOSING_IDLE_NS};
use community::Icmp;
use filter::kind::Example;
use filter::prelude::*;
use packet::Flow;
use packet::frame::{self, Frame, protocol};
use packet::malformed::Malformed;
use row::FlowRow;
use state::{Segment, Side, State};

/// What `flows` is.
pub static KIND: Kind = Kind::new("flows", "gives a record of each flow: counters, states, times", make)
    .also(&["netflow", "conn", "conversations"])
    .beside("flow", "opens one")
    .help(
        "Takes frames or packets and gives one record for each flow when it ends: `src_ip` is who sent its first packet (of TCP: who \
         connected; where no SYN was seen, the side that has no server's port, or the higher one), and `flow.` has packets, bytes of frames, of IP and of payload each way, `start`, `end`, `age` in \
         seconds, `state` (new, established, closed) and `reason` (why the record was given: closed, timeout, reuse of the ports, evicted \
         for room, end of the input). `flow.repeated_toserver` and `flow.repeated_toclient` are bytes of TCP's payload that had come before, \
         `flow.missed_toserver` and `flow.missed_toclient` are those that later ones passed over, and that were never seen. \
         `flow.rtt_us` is the round trip of TCP's handshake. `flow.retransmissions_toserver`, `flow.out_of_order_toserver`, \
         `flow.zero_windows_toserver`, and the same `_toclient`, count segments by the rules of `packets`. `flow.age_us` is the age in \
         microseconds, `flow.app_proto` the protocol that the first payloads tell. `flow.history` has a letter for what happened first, capital for the side that began: S a SYN, H a SYN with ACK, A an \
         ACK without data, D data, F a FIN, R a reset, T bytes that came again, G bytes that are missing, and ^ in front where the first packet \
         came from the other side. `community_id` is as other tools have it (version 1, seed 0).\n\n\
         A flow ends `timeout` after its last packet, of TCP that was answered `established`; TCP ends 5 s after both sides have finished or \
         one has reset. At most `limit` flows are kept, in 350 bytes each: beyond them unanswered TCP goes first, then what is ended already, then the \
         longest silent; these are counted as evicted. Packets that are not IP are rejected. To open a flow of Streamline's own, use `flow`.",
    )
    .params(&[
        Param::new("timeout", ParamType::Duration, "end a flow after this long without a packet").default("60s"),
        Param::new("established", ParamType::Duration, "the same for TCP that was answered").default("5min"),
        Param::new("limit", ParamType::Number, "flows kept at once, at most").default("10000000"),
        origin::TUNNEL,
        origin::VLAN,
    ])
    .takes(&[Type::Frame, Type::Packet])
    .rejects()
    .gives_records(&row::SCHEMA)
    .mode(Mode::Serial)
    .touches(Parts::DATA.with(Parts::METADATA), Parts::NONE)
    .parses_payload()
    .behind("decap")
    .examples(&[Example { request: "pcap dns.pcap | flows | fields src_ip dest_port proto flow.pkts_toserver", output: ROWS }]);

const ROWS: &str = "src_ip\tdest_port\tproto\tflow.pkts_toserver\n10.16.1.11\t53\tTCP\t6\n10.16.1.11\t53\tUDP\t1\n";

const _: () = assert!(FLOWS == 10_000_000, "the default says so");

/// Lists of flows. The first list with a flow makes room for a new one.
const OPENING: usize = 0;
const CLOSING: usize = 1;
const OTHER: usize = 2;
const ESTABLISHED: usize = 3;
const LISTS: usize = 4;

/// Records given in one call. The records of a million flows that end together would take more room than the flows.
const ENOUGH: usize = 64;

/// Why a record was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Closed,
    Timeout,
    Reuse,
    Evicted,
    End,
}

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let timeout = params.number("timeout").unwrap_or_default();
    let established = params.number("established").unwrap_or_default();
    let limit = params.number("limit").unwrap_or(FLOWS as u64);
    if limit == 0 || limit > FLOWS as u64 {
        return Err(ParamError::new("limit", format!("flows are kept 1 to {FLOWS} at once")));
    }
    let mut idle = [timeout; LISTS];
    (idle[CLOSING], idle[ESTABLISHED]) = (TCP_CLOSING_IDLE_NS.min(timeout), established);
    Ok(Instance::filter(Flows {
        table: FlowTable::default(),
        idle,
        limit: limit as usize,
        origins: Origins::new(params),
        row: FlowRow::new(),
        room: Room::default(),
        latest: 0,
    }))
}

struct Flows {
    table: FlowTable<State, LISTS>,
    /// Silence that ends a flow, by list, ns.
    idle: [u64; LISTS],
    limit: usize,
    origins: Origins,
    row: FlowRow,
    room: Room,
    /// The latest time of any packet.
    latest: u64,
}

/// A packet, as its flow counts it.
struct Packet {
    flow: Flow,
    frame: Frame,
    tcp: Option<Segment>,
    icmp: Option<Icmp>,
    /// Bytes of payload on the wire, behind the transport header.
    payload: u32,
}

impl Packet {
    /// Bytes of the IP packet on the wire.
    fn ip_bytes(&self) -> u32 {
        self.frame.payload_wire_len.saturating_add(self.frame.transport_offset - self.frame.network_offset)
    }
}

fn read(origin: Origin, bytes: &[u8], wire: u32) -> Result<Packet, Malformed> {
    let frame = frame::parse(origin.link, bytes, wire)?;
    let flow = Flow::of(&frame, bytes);
    let mut packet = Packet { flow, frame, tcp: None, icmp: None, payload: frame.payload_wire_len };
    if !frame.is_later_fragment() {
        match frame.protocol {
            protocol::TCP => {
                let segment = Segment::of(&frame.tcp(bytes)?);
                (packet.payload, packet.tcp) = (segment.payload, Some(segment));
            }
            protocol::UDP => packet.payload = frame.udp(bytes)?.payload_wire_len(),
            protocol::ICMP | protocol::ICMPV6 => packet.icmp = Icmp::of(&frame, bytes),
            _ => {}
        }
    }
    Ok(packet)
}

impl Flows {
    /// Adds a packet to its flow.
    fn add(&mut self, packet: &Packet, scope: u64, block: &Descriptor, cx: &mut Context<'_>) {
        let (slot, way) = match self.table.find(&packet.flow, scope) {
            Some((slot, way)) => match self.why_another(slot, way, packet, block.time) {
                None => (slot, way),
                Some(reason) => {
                    self.end(slot, reason, cx);
                    self.begin(packet, scope, block, cx)
                }
            },
            None => self.begin(packet, scope, block, cx),
        };
        let Some(state) = self.table.get_mut(slot) else { return };
        let side = side_of(way);
        state.last = block.time;
        state.seen = cx.now;
        self.latest = self.latest.max(block.time);
        state.count(side, block.wire(), packet.ip_bytes(), packet.payload);
        if self.row.wants.analysis || self.row.wants.app {
            look_inside(state, side, packet, block, cx, (self.row.wants, &mut self.room));
        }
        match packet.tcp {
            Some(segment) => state.tcp(side, segment),
            None => state.datagram(side, packet.payload),
        }
        let list = list_of(&packet.flow, state);
        self.table.move_to(slot, list);
    }

    /// Why a packet begins a new flow with the same addresses and ports. `None`: it belongs to the old flow.
    fn why_another(&self, slot: Slot, way: Way, packet: &Packet, time: u64) -> Option<Reason> {
        let state = self.table.get(slot)?;
        if time.saturating_sub(state.last) > self.idle[list_of(&packet.flow, state)] {
            return Some(why_ended(state));
        }
        // A SYN after the end of a connection.
        let syn = packet.tcp.filter(|segment| segment.flags.syn() && !segment.flags.ack())?;
        (state.is_closed() && state.is_other_beginning(side_of(way), syn.sequence)).then_some(Reason::Reuse)
    }

    #[cold]
    fn begin(&mut self, packet: &Packet, scope: u64, block: &Descriptor, cx: &mut Context<'_>) -> (Slot, Way) {
        if self.table.count() >= self.limit
            && let Some(oldest) = (0..LISTS).find_map(|list| self.table.oldest(list))
        {
            cx.count("flows evicted", 1);
            self.end(oldest, Reason::Evicted, cx);
        }
        let bytes = cx.rings.bytes(block);
        let flow = packet.tcp.map_or(packet.flow, |segment| {
            let payload = || packet.frame.tcp(bytes).map_or(&[][..], |tcp| tcp.payload());
            client::of_client(packet.flow, segment.flags, payload)
        });
        let is_answer = flow != packet.flow;
        let (vlans, tunnels) = facts_of(cx.rings, block, packet.frame.vlans());
        let state = State::new(block.time, is_answer, packet.icmp, vlans, tunnels);
        (self.table.insert(flow, scope, OTHER, state), if is_answer { Way::Back } else { Way::Forward })
    }

    fn end(&mut self, slot: Slot, reason: Reason, cx: &mut Context<'_>) {
        let Some(flow) = self.table.flow(slot).copied() else { return };
        let Some(state) = self.table.remove(slot) else { return };
        if let Some(analysed) = &state.analysed {
            analysed.end(&mut self.room);
        }
        let row = self.row.make(&flow, &state, reason);
        if let Some(mut record) = cx.rings.append_copy(cx.own, &[row]) {
            record.time = state.last;
            cx.emit(record);
        }
    }

    /// The flow whose silence ends it next, and when.
    fn next_due(&self) -> Option<(u64, Slot)> {
        let due = |list: usize| {
            let slot = self.table.oldest(list)?;
            let seen = self.table.get(slot)?.seen;
            Some((seen.saturating_add(self.idle[list]).saturating_add(1), slot))
        };
        (0..LISTS).filter_map(due).min_by_key(|(due, _)| *due)
    }

    /// Ends silent flows until enough records were given. `Status::More`: there are more.
    fn end_silent(&mut self, cx: &mut Context<'_>) -> Status {
        while let Some((_, slot)) = self.next_due().filter(|(due, _)| *due <= cx.now) {
            if cx.out.len() >= ENOUGH {
                return Status::More;
            }
            let Some(reason) = self.table.get(slot).map(why_ended) else { break };
            self.end(slot, reason, cx);
        }
        self.wake(cx);
        Status::Done
    }

    fn wake(&self, cx: &mut Context<'_>) {
        cx.wake_at(self.next_due().map_or(u64::MAX, |(due, _)| due));
    }
}

/// Adds a packet to the analysis of its flow, and looks for the protocol.
fn look_inside(
    state: &mut State,
    side: Side,
    packet: &Packet,
    block: &Descriptor,
    cx: &mut Context<'_>,
    (wants, room): (Wants, &mut Room),
) {
    let (frame, bytes) = (&packet.frame, cx.rings.bytes(block));
    if frame.fragment.is_some() {
        return;
    }
    let flow = if side == Side::Client { packet.flow } else { packet.flow.reversed() };
    let payload = match frame.protocol {
        protocol::TCP => frame.tcp(bytes).map_or(&[][..], |tcp| tcp.payload()),
        protocol::UDP => frame.udp(bytes).map_or(&[][..], |udp| udp.payload()),
        _ => return,
    };
    if wants.app {
        state.inside.look(side as usize, &flow, payload, packet.payload);
    }
    let Some(tcp) = packet.tcp.filter(|_| wants.analysis).and_then(|_| frame.tcp(bytes).ok()) else { return };
    if state.analysed.is_none() {
        state.analysed = Analysed::begin(room);
    }
    match &mut state.analysed {
        Some(analysed) => analysed.add(side as usize, &tcp_analysis::Segment::of(&tcp, block.time, 0), room),
        None => cx.count("tcp segments not analysed", 1),
    }
    let left_out = room.take_left_out();
    if left_out > 0 {
        cx.count("tcp segments not kept for analysis", left_out);
    }
}

fn side_of(way: Way) -> Side {
    if way == Way::Back { Side::Server } else { Side::Client }
}

/// The list that a flow belongs in now.
fn list_of(flow: &Flow, state: &State) -> usize {
    match flow.protocol {
        protocol::TCP if state.is_closed() => CLOSING,
        protocol::TCP if state.is_established() => ESTABLISHED,
        protocol::TCP => OPENING,
        _ => OTHER,
    }
}

/// Why a silent flow has ended.
fn why_ended(state: &State) -> Reason {
    if state.is_closed() { Reason::Closed } else { Reason::Timeout }
}

impl Filter for Flows {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.row.want(cx.wanted);
        self.origins.begin_batch();
        for (place, block) in batch.iter() {
            let Some(origin) = self.origins.of(cx.rings, block) else {
                cx.drop(1, Malformed::UnsupportedLink.reason());
                continue;
            };
            match read(origin, cx.rings.bytes(block), block.wire()) {
                Ok(packet) => {
                    let scope = self.origins.scope(origin, packet.frame.vlans());
                    self.add(&packet, scope, block, cx);
                }
                Err(Malformed::NotIp) => cx.reject(place),
                Err(malformed) => cx.drop(1, malformed.reason()),
            }
        }
        self.wake(cx);
        Ok(Status::Done)
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        Ok(self.end_silent(cx))
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        for list in 0..LISTS {
            while let Some(oldest) = self.table.oldest(list) {
                if cx.out.len() >= ENOUGH {
                    return Ok(Status::More);
                }
                let was_silent = |state: &State| self.latest.saturating_sub(state.last) > self.idle[list];
                let silent = self.table.get(oldest).filter(|state| list == CLOSING || was_silent(state));
                self.end(oldest, silent.map_or(Reason::End, why_ended), cx);
            }
        }
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests;
