//! Inspects frames: finds the matching rules and returns a verdict. TCP streams are reassembled by the code of the
//! filter `tcp`. Everything that a frame completes is inspected before the verdict.

use super::application::is_answer;
use super::connection::Connection;
use super::decode::Events;
use super::frame::Parsed;
use super::http::HttpShared;
use super::midstream::Midstream;
use super::row::SCHEMA;
use filters::decap::{self, Decap, Fate};

use base::limits::{RULES_FLOWS, RULES_MEMORY_BYTES};
use filter::prelude::*;
use filters::parts::flow_table::{FlowTable, Slot, Way};
use filters::parts::origin::{Origin, Origins};
use filters::tcp::assembler::Assembler;
use filters::tcp::segment::Segment;
use filters::tcp::settings::{Checksums, Settings, Urgent};
use packet::Flow;
use packet::encapsulation::Vlans;
use packet::frame::protocol;
use packet::malformed::Malformed;
use protocols::ftp::Transfers;
use rules::engine::Verdict;
use rules::{Engine, RuleSet};
use std::collections::HashMap;
use std::sync::Arc;

/// Lists of flows, in order of eviction: only one side was heard (an attacker can create any number), both sides were
/// heard, a rule stopped the flow.
const OTHERS: usize = 0;
const ANSWERED: usize = 1;
const STOPPED: usize = 2;

/// Idle time after which a flow other than TCP is forgotten, ns.
const IDLE_NS: u64 = 300_000_000_000;

/// Data of one direction came in a tunnel and outside of it, or in two. A receiver that ends both has one stream.
pub(crate) const SPLIT: &str = "data of one stream in and out of a tunnel";

/// Rules of the packet that may stop it cost more steps than a packet may.
pub(crate) const TOO_MUCH: &str = "its rules took too much work";

/// The frame brought part of a message that no buffer of the rules has.
pub(crate) const UNREAD: &str = "rules saw its message in part";

/// What besides rules may decide whether a frame passes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Met {
    /// Why the segment was rejected: its receiver would reject it.
    pub refused: Option<&'static str>,
    /// The segment's bytes differ from earlier bytes at the same stream position.
    pub contradicts: bool,
    /// Why not all rules were evaluated: [`TOO_MUCH`] or [`UNREAD`].
    pub cut_short: Option<&'static str>,
    /// A rule dropped the flow earlier.
    pub flow_dropped: bool,
    /// The segment's stream is in a tunnel in part: see [`SPLIT`].
    pub split: bool,
}

/// Runs rules over frames.
pub(crate) struct Inspector {
    met: Met,
    /// What becomes of connections joined midway.
    pub midstream: Midstream,
    /// The caller blocks frames by the verdict.
    pub(super) is_inline: bool,
    /// Alerts include payloads and packets.
    pub(super) shows_bytes: bool,
    /// The flow of the newest frame.
    last: Option<Slot>,
    pub(super) engine: Engine,
    assembler: Assembler,
    origins: Origins,
    /// Stopped flows have their own list: other flows are evicted first, or a flood would release them.
    pub(super) flows: FlowTable<Box<Connection>, 3>,
    /// Of TCP flows in tunnels with data: flow and scope as they were outside, and the scope.
    tunnelled: HashMap<(Flow, u64), u64>,
    /// By stream number: the flow.
    by_number: Vec<Option<Slot>>,
    /// Flows that began.
    begun: u64,
    http: HttpShared,
    /// Expected FTP data connections.
    transfers: Transfers,
    parsed: Parsed,
    /// Stream blocks that the frame completed.
    blocks: Vec<Descriptor>,
    touched: Vec<Slot>,
    /// Events of the current segment.
    pub(super) odd: Events,
    /// Set while the next frame is known to be a fragment: its event, if any.
    of_fragment: Option<Option<FragmentEvent>>,
    /// Set while the next frame is known to hold tunnels that are not opened.
    too_deep: bool,
    /// Memory of all flows, in bytes.
    kept_bytes: usize,
    pub(super) row: RowWriter,
}

impl Inspector {
    pub fn new(set: Arc<RuleSet>, origins: Origins, urgent: Urgent) -> Inspector {
        // Do not check checksums: captures often have packets from before the network card computed them.
        Inspector::with(set, origins, Settings { checksums: Checksums::No, urgent, ..Settings::default() })
    }

    pub fn with(set: Arc<RuleSet>, origins: Origins, settings: Settings) -> Inspector {
        let mut engine = Engine::new(set);
        let is_inline = !settings.doubts;
        if is_inline {
            engine.look_at_each_piece();
        }
        let mut http = HttpShared::new();
        http.asks = engine.asks_for_app_events();
        Inspector {
            midstream: Midstream::default(),
            is_inline,
            shows_bytes: false,
            engine,
            assembler: Assembler::new(settings),
            origins,
            flows: FlowTable::default(),
            tunnelled: HashMap::new(),
            by_number: Vec::new(),
            begun: 0,
            http,
            transfers: Transfers::default(),
            parsed: Parsed::default(),
            blocks: Vec::new(),
            touched: Vec::new(),
            odd: Events::default(),
            of_fragment: None,
            too_deep: false,
            kept_bytes: 0,
            row: RowWriter::new(&SCHEMA),
            met: Met::default(),
            last: None,
        }
    }

    /// Adds packets and payloads to alerts.
    pub fn show_bytes(&mut self) {
        self.shows_bytes = true;
    }

    /// The flow of the newest frame, in the client's direction, and its start.
    pub fn last_flow(&self) -> Option<(Flow, u64)> {
        self.last.and_then(|slot| self.flows.get(slot)).map(|connection| (connection.flow, connection.state.start))
    }

    /// Stops the flow of the newest frame. The reader has taken its bytes, so a retransmission cannot be inspected
    /// again.
    pub fn stop_last(&mut self, cx: &mut Context<'_>) {
        let Some(slot) = self.last else { return };
        if let Some(connection) = self.flows.get_mut(slot) {
            connection.state.dropped = true;
        }
        // Gives the flow's memory back.
        self.settle(slot, cx);
    }

    /// Events of the newest frame besides rules.
    pub fn met(&self) -> Met {
        self.met
    }

    /// Switches to another rule set.
    pub fn replace(&mut self, set: Arc<RuleSet>) {
        self.engine.replace(set);
        self.http.asks = self.engine.asks_for_app_events();
    }

    pub fn begin_batch(&mut self) {
        self.origins.begin_batch();
    }

    /// Inspects a frame. Alert records go to `cx.out`.
    pub fn frame(&mut self, frame: &Descriptor, cx: &mut Context<'_>) -> Verdict {
        (self.met, self.last) = (Met::default(), None);
        let Some(origin) = self.origins.of(cx.rings, frame) else {
            cx.count(Malformed::UnsupportedLink.reason(), 1);
            return Verdict::Pass;
        };
        let mut parsed = std::mem::take(&mut self.parsed);
        let asks = self.engine.asks_for_decode_events();
        parsed.read(origin.link, cx.rings.bytes(frame), frame.wire(), asks);
        if let Some(event) = self.of_fragment.take() {
            parsed.hide_payload();
            parsed.events.extend(event.map(|event| event.name(parsed.version)));
        }
        if std::mem::take(&mut self.too_deep) {
            parsed.events.push("too_many_layers");
        }
        self.odd.0.clear();
        self.met.refused = parsed.refused;
        parsed.refused.into_iter().for_each(|reason| cx.count(reason, 1));
        let verdict = self.parsed_frame(&parsed, frame, origin, cx);
        self.parsed = parsed;
        let bounds = self.engine.take_bounds();
        if bounds.undecided > 0 {
            self.met.cut_short = Some(TOO_MUCH);
        }
        for (name, count) in [
            ("packets whose rules were cut short", bounds.steps),
            ("alerts beyond those of one packet", bounds.alerts),
            ("state of rules without room", bounds.state),
        ] {
            if count > 0 {
                cx.count(name, count);
            }
        }
        verdict
    }

    /// Announces that the next frame is a fragment. The reassembled packet is shown by itself.
    pub fn expect_fragment(&mut self, event: Option<FragmentEvent>) {
        self.of_fragment = Some(event);
    }

    /// Announces that the next frame holds tunnels that are not opened.
    pub fn expect_unread(&mut self) {
        self.too_deep = true;
    }

    fn parsed_frame(&mut self, parsed: &Parsed, frame: &Descriptor, origin: Origin, cx: &mut Context<'_>) -> Verdict {
        let crossing = parsed.flow.as_ref().map_or(0, |flow| origin.crossing(flow));
        let scope = self.origins.scope(origin, parsed.vlans) ^ crossing;
        let mut in_stream = false;
        let mut slot = None;
        if let Some(flow) = parsed.flow.filter(|_| !parsed.fragment) {
            if flow.protocol == protocol::TCP {
                (slot, in_stream) = self.segment(parsed, &flow, scope, frame, cx);
            } else {
                slot = Some(self.find_or_begin(flow, scope, frame.time, cx).0);
            }
        }
        self.last = slot;
        let bytes = cx.rings.bytes(frame);
        let mut packet = parsed.packet(bytes, frame.time);
        let mut dropped = false;
        if let Some((slot, flow)) = slot.zip(parsed.flow)
            && let Some(connection) = self.flows.get_mut(slot)
        {
            // If the flow begins with an answer, its first packet goes to the client.
            if connection.state.packets == [0; 2] && is_answer(packet.payload, &flow) {
                connection.flow = flow.reversed();
            }
            packet.to_server = connection.flow == flow;
            let side = usize::from(!packet.to_server);
            packet.established = established(connection, parsed, side);
            packet.in_stream = in_stream && !packet.payload.is_empty();
            connection.heard[side] = true;
            connection.last_seen = cx.now;
            connection.state.packets[side] += 1;
            connection.state.bytes[side] += u64::from(frame.wire());
            if flow.protocol == protocol::UDP {
                connection.datagram(packet.payload, packet.payload_len, packet.to_server);
            }
            // The rule that passed the flow may belong to an older rule set.
            self.engine.meet(&mut connection.state);
            if connection.state.passed {
                connection.touched = false;
                self.others(slot, cx);
                return Verdict::Pass;
            }
            dropped = connection.state.dropped;
        }
        self.met.flow_dropped = dropped;
        if dropped {
            self.others(slot.unwrap_or(Slot(u32::MAX)), cx);
            return Verdict::Drop;
        }
        let way = Way3 { to_server: packet.to_server, established: packet.established, in_stream: packet.in_stream };
        let is_data = !packet.payload.is_empty();
        if let Some((slot, flow)) = slot.zip(parsed.flow)
            && is_data
            && flow.protocol == protocol::TCP
            && self.is_split(slot, flow, scope, crossing, origin)
        {
            cx.count(SPLIT, 1);
            self.odd.add("split_by_tunnel");
            self.met.split = true;
        }
        let verdict = self.evaluate(slot, Some((parsed, way)), frame, parsed.vlans, cx);
        if let Some(slot) = slot {
            self.settle(slot, cx);
        }
        self.others(slot.unwrap_or(Slot(u32::MAX)), cx);
        verdict
    }

    /// Whether the data of a segment goes on with a stream that began in another tunnel, or outside of this one. Flows that
    /// both have their own answers are two.
    fn is_split(&mut self, slot: Slot, flow: Flow, scope: u64, crossing: u64, origin: Origin) -> bool {
        let outside = self.origins.scope_outside(origin).map(|scope| scope ^ crossing);
        let Inspector { flows, tunnelled, .. } = self;
        let known = flow.min(flow.reversed());
        let others = match outside {
            None => [tunnelled.get(&(known, scope)).copied(), None],
            Some(outside) => {
                if tunnelled.len() > 2 * RULES_FLOWS {
                    tunnelled.retain(|(flow, _), scope| flows.find(flow, *scope).is_some());
                }
                let last = tunnelled.insert((known, outside), scope);
                [Some(outside), last.filter(|last| *last != scope)]
            }
        };
        let Some(own) = flows.get(slot) else { return false };
        others.into_iter().flatten().any(|other| {
            let other = flows.find(&flow, other).and_then(|(slot, _)| flows.get(slot));
            other.is_some_and(|other| {
                let side = usize::from(other.flow != flow);
                let are_answered = own.heard == [true; 2] && other.heard == [true; 2];
                other.heard[side] && other.serial < own.serial && !are_answered
            })
        })
    }

    /// Adds a segment to its stream, and feeds the bytes it completes to the application. Returns the flow, and whether
    /// the payload is part of a stream.
    fn segment(
        &mut self,
        parsed: &Parsed,
        flow: &Flow,
        scope: u64,
        frame: &Descriptor,
        cx: &mut Context<'_>,
    ) -> (Option<Slot>, bool) {
        let mut segment = match parsed.segment {
            Some(Ok(segment)) => segment,
            Some(Err(reason)) => {
                self.met.refused = Some(reason);
                cx.count(reason, 1);
                return (None, false);
            }
            None => return (None, false),
        };
        self.assembler.check(&mut segment, frame, cx.rings.bytes(frame));
        segment.scope = scope;
        if self.midstream != Midstream::Read
            && let Some(slot) = self.joined_midway(&segment, scope, frame, cx)
        {
            // Its bytes are of a stream that is not read.
            return (Some(slot), true);
        }
        let taken = self.assemble(cx, |assembler, cx| assembler.segment(&segment, frame, cx));
        match taken {
            Ok(differs) => {
                self.met.contradicts = differs.held || differs.given;
                if self.met.contradicts {
                    self.odd.add("reassembly_overlap_different_data");
                }
            }
            Err(reason) => {
                self.met.refused = Some(reason);
                cx.count(reason, 1);
            }
        }
        let number = self.assembler.stream_of(flow, scope);
        let slot = match number {
            Some((number, way)) => {
                let client = if way == Way::Forward { *flow } else { flow.reversed() };
                let known = self.flows.find(flow, scope).map(|(slot, _)| slot).filter(|slot| {
                    let connection = self.flows.get(*slot);
                    connection.is_some_and(|it| it.number == Some(number) || it.number.is_none() && it.flow == client)
                });
                let slot = match known {
                    Some(slot) => slot,
                    None => {
                        let mut events = None;
                        if let Some((old, _)) = self.flows.find(flow, scope) {
                            // Events from the start of a connection also depend on earlier attempts.
                            if let Some(connection) = self.flows.get_mut(old) {
                                events = connection.events.take();
                                events
                                    .iter_mut()
                                    .filter(|_| connection.flow != client)
                                    .for_each(|events| events.turn());
                            }
                            self.forget(old);
                        }
                        let slot = self.find_or_begin(client, scope, frame.time, cx).0;
                        if let Some(connection) = self.flows.get_mut(slot) {
                            connection.events = events;
                        }
                        slot
                    }
                };
                self.flows.touch(slot);
                if let Some(connection) = self.flows.get_mut(slot) {
                    connection.number = Some(number);
                }
                let at = number as usize;
                if self.by_number.len() <= at {
                    self.by_number.resize((at + 1).next_power_of_two(), None);
                }
                self.by_number[at] = Some(slot);
                Some(slot)
            }
            None => match self.flows.find(flow, scope) {
                Some((slot, _)) => Some(slot),
                None => Some(self.find_or_begin(segment.client(frame, cx), scope, frame.time, cx).0),
            },
        };
        if self.engine.asks_for_stream_events()
            && let Some(connection) = slot.and_then(|slot| self.flows.get_mut(slot))
        {
            let bytes = cx.rings.bytes(frame);
            let options = bytes.get(segment.header as usize + 20..segment.offset as usize).unwrap_or_default();
            let side = usize::from(connection.flow != *flow);
            connection.events.get_or_insert_default().segment(&segment, side, options, &mut self.odd);
        }
        self.drain(cx);
        // Data of a SYN waits for the answer. If the frame needs a verdict now, rules also inspect the data in the
        // packet.
        let waits = self.is_inline && segment.flags.syn();
        (slot, taken.is_ok() && number.is_some() && !waits)
    }

    /// The flow of a segment whose connection was joined midway; `None`: it was seen from its SYN.
    #[cold]
    fn joined_midway(
        &mut self,
        segment: &Segment,
        scope: u64,
        frame: &Descriptor,
        cx: &mut Context<'_>,
    ) -> Option<Slot> {
        let known = self.flows.find(&segment.flow, scope).map(|(slot, _)| slot);
        if segment.is_first_syn() {
            // Another connection begins.
            let joined = known.filter(|slot| self.flows.get(*slot).is_some_and(|it| it.midstream));
            joined.into_iter().for_each(|slot| self.forget(slot));
            return None;
        }
        if self.assembler.stream_of(&segment.flow, scope).is_some() {
            return None;
        }
        let slot = self.find_or_begin(segment.client(frame, cx), scope, frame.time, cx).0;
        let connection = self.flows.get_mut(slot)?;
        if !std::mem::replace(&mut connection.midstream, true) {
            cx.count("connections joined midway", 1);
        }
        connection.state.passed |= self.midstream == Midstream::Pass;
        connection.state.dropped |= self.midstream == Midstream::Drop;
        Some(slot)
    }

    /// Feeds stream blocks to their flows.
    fn drain(&mut self, cx: &mut Context<'_>) {
        let mut blocks = std::mem::take(&mut self.blocks);
        let keep = self.engine.looks_at_streams();
        for block in blocks.drain(..) {
            let Some(slot) = self.by_number.get(block.class.connection() as usize).copied().flatten() else { continue };
            let Some(connection) = self.flows.get_mut(slot) else { continue };
            connection.transactions.frames = self.engine.looks_at_frames();
            connection.transactions.whole_files = self.engine.looks_at_whole_files();
            self.engine.meet(&mut connection.state);
            if connection.application.is_new()
                && let Some(transfer) = self.transfers.take(&connection.flow)
            {
                connection.begin_transfer(&transfer);
            }
            connection.feed(&block, keep, &mut self.http, cx);
            for (address, transfer) in connection.application.announced() {
                self.transfers.announce(address, transfer);
            }
            connection.odd.drain(..).for_each(|event| self.odd.add(event));
            if !connection.touched {
                connection.touched = true;
                self.touched.push(slot);
            }
        }
        self.blocks = blocks;
    }

    fn find_or_begin(&mut self, flow: Flow, scope: u64, time: u64, cx: &mut Context<'_>) -> (Slot, Way) {
        let now = cx.now;
        if let Some((slot, way)) = self.flows.find(&flow, scope) {
            let silent = |it: &Connection| it.number.is_none() && now.saturating_sub(it.last_seen) > IDLE_NS;
            if !self.flows.get(slot).is_some_and(|it| silent(it)) {
                self.flows.touch(slot);
                return (slot, way);
            }
            self.forget(slot);
        }
        while self.flows.count() >= RULES_FLOWS
            && let Some(oldest) = self.least_missed()
        {
            cx.count("flows of rules evicted", 1);
            self.forget(oldest);
        }
        let mut connection = Connection::new(flow, time);
        (connection.last_seen, connection.serial) = (now, self.begun);
        self.begun += 1;
        (self.flows.insert(flow, scope, OTHERS, Box::new(connection)), Way::Forward)
    }

    /// The flow to evict.
    fn least_missed(&self) -> Option<Slot> {
        [OTHERS, ANSWERED, STOPPED].into_iter().find_map(|list| self.flows.oldest(list))
    }

    /// Updates the memory count of a flow. Over the limit, evicts the flows that were idle longest.
    fn settle(&mut self, slot: Slot, cx: &mut Context<'_>) {
        let Some(connection) = self.flows.get_mut(slot) else { return };
        let forgotten = std::mem::take(&mut connection.transactions.forgotten);
        if forgotten > 0 {
            cx.count("transactions of rules forgotten", forgotten);
        }
        let given_up = std::mem::take(&mut connection.transactions.given_up);
        if given_up > 0 {
            cx.count("messages of rules given up", given_up);
        }
        if std::mem::take(&mut connection.transactions.unseen) {
            cx.count("frames with messages that rules did not see", 1);
            self.met.cut_short = Some(UNREAD);
        }
        let is_stopped = connection.state.dropped;
        let list = if is_stopped { STOPPED } else { usize::from(connection.heard == [true; 2]) };
        let moves = std::mem::replace(&mut connection.list, list) != list;
        if is_stopped && moves {
            connection.begin_anew(&mut self.http);
        }
        let bytes = connection.kept_bytes();
        self.kept_bytes = self.kept_bytes - std::mem::replace(&mut connection.charged, bytes) + bytes;
        if moves {
            self.flows.move_to(slot, list);
        }
        while self.kept_bytes > RULES_MEMORY_BYTES
            && let Some(oldest) = self.least_missed()
        {
            cx.count("flows of rules forgotten for want of memory", 1);
            self.forget(oldest);
        }
    }

    fn forget(&mut self, slot: Slot) {
        let Some(connection) = self.flows.remove(slot) else { return };
        self.kept_bytes -= connection.charged;
        if let Some(number) = connection.number {
            if let Some(place) = self.by_number.get_mut(number as usize)
                && *place == Some(slot)
            {
                *place = None;
            }
            connection.application.close(&mut self.http);
        }
    }

    /// Inspects flows other than the frame's own that have news.
    fn others(&mut self, own: Slot, cx: &mut Context<'_>) {
        let mut touched = std::mem::take(&mut self.touched);
        for slot in touched.drain(..) {
            if slot == own {
                if let Some(connection) = self.flows.get_mut(slot) {
                    connection.touched = false;
                }
                continue;
            }
            let Some(connection) = self.flows.get_mut(slot) else { continue };
            connection.touched = false;
            if connection.state.passed || connection.state.dropped {
                continue;
            }
            let like = Descriptor { time: cx.now, ..cx.own.block(0, 0) };
            self.evaluate(Some(slot), None, &like, Vlans::default(), cx);
            self.settle(slot, cx);
        }
        self.touched = touched;
    }

    /// Calls the assembler, and keeps the blocks that it gives apart from the records.
    fn assemble<T>(&mut self, cx: &mut Context<'_>, call: impl FnOnce(&mut Assembler, &mut Context<'_>) -> T) -> T {
        let records = std::mem::replace(cx.out, std::mem::take(&mut self.blocks));
        let result = call(&mut self.assembler, cx);
        self.blocks = std::mem::replace(cx.out, records);
        result
    }

    /// When the next timer is due.
    pub fn next_due(&self) -> u64 {
        self.assembler.next_due()
    }

    /// Handles timers. Returns whether there is more to do.
    pub fn expire(&mut self, enough: usize, cx: &mut Context<'_>) -> Status {
        let status = self.assemble(cx, |assembler, cx| assembler.expire(enough, cx));
        self.drain(cx);
        self.others(Slot(u32::MAX), cx);
        status
    }

    /// Handles the end of the input. Returns whether there is more to do.
    pub fn finish(&mut self, enough: usize, cx: &mut Context<'_>) -> Status {
        let status = self.assemble(cx, |assembler, cx| assembler.finish(enough, cx));
        self.drain(cx);
        self.others(Slot(u32::MAX), cx);
        status
    }
}

/// An anomaly of a fragment that depends on other fragments of its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FragmentEvent {
    Overlap,
    Length,
    TooLarge,
    Ignored,
    Split,
}

impl FragmentEvent {
    /// The event for a fragment's fate.
    pub fn of(fate: &Fate, decap: &Decap) -> Option<FragmentEvent> {
        match fate {
            Fate::Dropped(decap::NO_UNIT) => Some(FragmentEvent::Length),
            Fate::Dropped(decap::TOO_LARGE) => Some(FragmentEvent::TooLarge),
            Fate::Dropped(decap::DISAGREE) => Some(FragmentEvent::Overlap),
            Fate::Dropped(_) => Some(FragmentEvent::Ignored),
            _ if decap.unread() == Some(decap::SPLIT) => Some(FragmentEvent::Split),
            _ => decap.is_overlapping().then_some(FragmentEvent::Overlap),
        }
    }

    fn name(self, version: u8) -> &'static str {
        match (self, version) {
            (FragmentEvent::Overlap, 6) => "ipv6.frag_overlap",
            (FragmentEvent::Overlap, _) => "ipv4.frag_overlap",
            (FragmentEvent::Length, _) => "ipv6.frag_invalid_length",
            (FragmentEvent::TooLarge, 6) => "ipv6.frag_pkt_too_large",
            (FragmentEvent::TooLarge, _) => "ipv4.frag_pkt_too_large",
            (FragmentEvent::Split, 6) => "ipv6.frag_split_by_tunnel",
            (FragmentEvent::Split, _) => "ipv4.frag_split_by_tunnel",
            (FragmentEvent::Ignored, 6) => "ipv6.frag_ignored",
            (FragmentEvent::Ignored, _) => "ipv4.frag_ignored",
        }
    }
}

/// Facts about a packet that its flow provides.
#[derive(Clone, Copy)]
pub(super) struct Way3 {
    pub to_server: bool,
    pub established: bool,
    pub in_stream: bool,
}

/// Whether both sides had sent packets before this one; for TCP: whether the handshake was complete.
fn established(connection: &mut Connection, parsed: &Parsed, side: usize) -> bool {
    let Some(flags) = parsed.tcp_flags() else {
        return connection.heard[1 - side];
    };
    let before = connection.handshake >= 3;
    if connection.midstream {
        return false;
    }
    connection.handshake = match (connection.handshake, flags.syn(), flags.ack()) {
        (0, true, false) => 1,
        (0 | 1, true, true) => 2,
        (2, false, true) => 3,
        // The capture began midway.
        (0, false, true) => 3,
        (step, ..) => step,
    };
    before
}

#[cfg(test)]
impl Inspector {
    /// Memory of all flows, in bytes.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }
}
