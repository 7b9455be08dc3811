//! The matching engine. For each packet the caller calls `begin`, shows the packet, new stream bytes and changed
//! transactions, and calls `finish` to get alerts and a verdict.
//!
//! Tiers: the engine searches for the patterns of all rules at once. It compares the header of each rule whose pattern
//! it found, and then runs that rule's steps. A budget bounds the work per packet; the engine counts packets that
//! exhaust it.
//!
//! - `engine/body.rs` — growing bodies, inspected piece by piece.

mod body;
#[cfg(test)]
mod tests;

use crate::bytes::LITTLE;
use crate::dataset::Change;
use crate::event::{Packet, Transaction};
use crate::header::Action;
use crate::inspect::{Budget, Look};
use crate::names::{App, Buffer, Number, Origin, Way};
use crate::packet_test::{PacketTest, sctp_chunks};
use crate::rule::{List, Rule, Scope, Target};
use crate::set::RuleSet;
use crate::state::{Context, FlowState, HostBits};
use crate::threshold::{Counts, Effect, Kind};
use base::limits::{RULES_ALERTS, RULES_STEPS, RULES_WAITING};
use std::sync::Arc;

/// A rule that matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Index of the rule in the set.
    pub rule: u32,
    /// The transaction, if the rule matched one.
    pub transaction: Option<u64>,
    /// The match was in a stream, not in a single packet.
    pub stream: bool,
    /// The side that matched.
    pub to_server: bool,
    /// The verdict of all rules on the packet; set when the packet ends.
    pub verdict: Verdict,
    /// A rule that passes is among those of the packet; set when the packet ends.
    pub passes: bool,
    /// The rule's action, or the one that a `rate_filter` gives it.
    pub action: Action,
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Forward the packet.
    #[default]
    Pass,
    /// Drop the packet.
    Drop,
    /// Drop the packet and notify endpoints.
    Reject {
        /// Notify the sender.
        source: bool,
        /// Notify the receiver.
        target: bool,
    },
}

/// A piece of a stream for inspection.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Stream offset of the first byte.
    pub start: u64,
    /// Rules have seen the first `seen` bytes before.
    pub seen: usize,
    /// More bytes will follow.
    pub grows: bool,
}

/// How often each limit was reached since the last call of `take_bounds`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Packets whose inspection exhausted the budget.
    pub steps: u64,
    /// Of these, packets that a rule may stop that was not evaluated to the end.
    pub undecided: u64,
    /// Alerts beyond the limit per packet.
    pub alerts: u64,
    /// Bits, numbers and counts rejected for lack of room.
    pub state: u64,
}

/// The engine with its rules and state.
#[derive(Debug)]
pub struct Engine {
    set: Arc<RuleSet>,
    /// Number of rule sets used before this one.
    set_number: u64,
    hosts: HostBits,
    counts: Counts,
    budget: Budget,
    found: Vec<Found>,
    /// Indexes into `found` of the matches to report.
    told: Vec<u32>,
    /// Rules to try; `marks[rule] == mark` for each.
    candidates: Vec<u32>,
    /// Candidates whose pattern is in the current piece.
    hits: Vec<u32>,
    /// By rule in `hits`: stream offset of its last pattern.
    offsets: Vec<u64>,
    marks: Vec<u32>,
    mark: u32,
    scratch: [Vec<u8>; 2],
    /// Variables of the rule being tried; later buffers use what earlier buffers set.
    variables: [u64; LITTLE + 1],
    /// Changes of data sets that the rule being tried makes if it matches.
    changes: Vec<Change>,
    bounds: Bounds,
    /// A rule that may change what passes was not evaluated to the end.
    undecided: bool,
    /// Inspect bodies piece by piece.
    each_piece: bool,
}

impl Engine {
    /// Creates an engine for a rule set.
    pub fn new(set: Arc<RuleSet>) -> Engine {
        let (marks, offsets) = (vec![0; set.len()], vec![0; set.len()]);
        Engine {
            set,
            set_number: 0,
            hosts: HostBits::default(),
            counts: Counts::default(),
            budget: Budget { steps: RULES_STEPS, spent: false },
            found: Vec::new(),
            told: Vec::new(),
            candidates: Vec::new(),
            hits: Vec::new(),
            offsets,
            marks,
            mark: 0,
            scratch: Default::default(),
            variables: [0; LITTLE + 1],
            changes: Vec::new(),
            bounds: Bounds::default(),
            undecided: false,
            each_piece: false,
        }
    }

    /// Switches to another rule set and discards the current packet. Bits, numbers and counts stay. Flows and
    /// transactions drop state keyed by rule index when they are next shown.
    pub fn replace(&mut self, set: Arc<RuleSet>) {
        (self.marks, self.offsets, self.mark) = (vec![0; set.len()], vec![0; set.len()], 0);
        self.found.clear();
        set.datasets.adopt(&self.set.datasets);
        self.set = set;
        self.set_number += 1;
    }

    /// Clears flow state that came from an older rule set, for example that the flow passes.
    pub fn meet(&self, flow: &mut FlowState) {
        flow.meet_set(self.set_number);
    }

    /// Begins a packet.
    pub fn begin(&mut self) {
        self.found.clear();
        self.budget = Budget { steps: RULES_STEPS, spent: false };
        self.undecided = false;
    }

    /// Whether any rule inspects streams.
    pub fn looks_at_streams(&self) -> bool {
        self.set.streams
    }

    /// Whether any rule inspects protocol frames.
    pub fn looks_at_frames(&self) -> bool {
        self.set.frames
    }

    /// Whether any rule inspects whole files.
    pub fn looks_at_whole_files(&self) -> bool {
        self.set.whole_files
    }

    /// Whether any rule uses decoder events.
    pub fn asks_for_decode_events(&self) -> bool {
        self.set.events[0]
    }

    /// Whether any rule uses TCP stream events.
    pub fn asks_for_stream_events(&self) -> bool {
        self.set.events[1]
    }

    /// Whether any rule uses application events.
    pub fn asks_for_app_events(&self) -> bool {
        self.set.events[2]
    }

    /// Traffic types that rules assigned to the flow with bits: `id/NAME` or `label/NAME`.
    pub fn traffic(&self, flow: &FlowState) -> impl Iterator<Item = &str> {
        let known = self.set.traffic.iter().filter(|(bit, _)| flow.has_bit(*bit));
        known.filter_map(|(_, name)| name.strip_prefix("traffic/"))
    }

    fn next_mark(&mut self) -> u32 {
        self.candidates.clear();
        self.mark = self.mark.wrapping_add(1);
        if self.mark == 0 {
            self.marks.fill(0);
            self.mark = 1;
        }
        self.mark
    }

    /// Inspects a packet and the new piece of its own stream.
    pub fn packet(&mut self, packet: &Packet<'_>, mut flow: Option<&mut FlowState>, stream: Option<Piece<'_>>) {
        let set = Arc::clone(&self.set);
        if let Some(flow) = &mut flow {
            flow.meet_set(self.set_number);
        }
        if !set.by_address.is_empty() {
            let side = usize::from(!packet.to_server);
            let seen = flow.as_mut().is_some_and(|flow| std::mem::replace(&mut flow.addresses_seen[side], true));
            if !seen {
                for at in &set.by_address {
                    self.try_rule(&set, *at, packet, flow.as_deref_mut(), None, None);
                }
            }
        }
        let mark = self.next_mark();
        self.candidates.extend_from_slice(&set.each_packet);
        let Engine { candidates, marks, budget, .. } = self;
        let mut add = |rule: u32| {
            if marks[rule as usize] != mark {
                marks[rule as usize] = mark;
                candidates.push(rule);
            }
        };
        if !packet.payload.is_empty() {
            set.packets.each(packet.payload, 0, budget, |rule, _| add(rule));
            if !packet.in_stream {
                set.payloads.each(packet.payload, 0, budget, |rule, _| add(rule));
                candidates.extend_from_slice(&set.each_payload);
            }
        }
        match (flow.as_deref_mut(), stream) {
            (Some(flow), Some(piece)) => self.waiting(&set, mark, packet, flow, piece),
            (flow, _) => self.try_candidates(&set, packet, flow, None, None),
        }
        if packet.in_stream && !packet.payload.is_empty() {
            self.segment(&set, packet, flow);
        }
    }

    /// Tries rules of streams on the packet alone that did not match in the stream. Suricata does so in this order.
    fn segment(&mut self, set: &RuleSet, packet: &Packet<'_>, flow: Option<&mut FlowState>) {
        let mark = self.next_mark();
        let Engine { candidates, marks, budget, found, .. } = self;
        let has_matched = |rule: u32| found.iter().any(|found| found.rule == rule);
        candidates.extend(set.each_segment.iter().filter(|rule| !has_matched(**rule)));
        set.segments.each(packet.payload, 0, budget, |rule, _| {
            if std::mem::replace(&mut marks[rule as usize], mark) != mark && !has_matched(rule) {
                candidates.push(rule);
            }
        });
        self.searched(set);
        if !self.candidates.is_empty() {
            self.try_candidates(set, &Packet { in_stream: false, ..*packet }, flow, None, None);
        }
    }

    /// A search for candidates has ended. One that was cut short may have missed any rule.
    fn searched(&mut self, set: &RuleSet) {
        self.undecided |= self.budget.spent && set.blocks;
    }

    /// Inspects a piece of a stream. The engine searches the new bytes for patterns. It retries a rule with each piece
    /// while the piece contains the rule's pattern.
    pub fn stream(&mut self, packet: &Packet<'_>, flow: &mut FlowState, piece: Piece<'_>) {
        let set = Arc::clone(&self.set);
        flow.meet_set(self.set_number);
        let mark = self.next_mark();
        self.waiting(&set, mark, packet, flow, piece);
    }

    /// Collects the rules that the piece calls for, and tries all candidates.
    fn waiting(&mut self, set: &RuleSet, mark: u32, packet: &Packet<'_>, flow: &mut FlowState, piece: Piece<'_>) {
        self.candidates.extend_from_slice(&set.each_payload);
        let side = usize::from(!packet.to_server);
        let mut waiting = std::mem::take(&mut flow.waiting[side]);
        waiting.retain(|(rule, at)| *at >= piece.start && (*rule as usize) < set.rules.len());
        let mut hits = std::mem::take(&mut self.hits);
        hits.clear();
        let Engine { candidates, marks, offsets, budget, .. } = self;
        let mut add = |rule: u32| {
            let new = marks[rule as usize] != mark;
            if new {
                marks[rule as usize] = mark;
                candidates.push(rule);
            }
            new
        };
        let from = piece.seen.saturating_sub(set.payloads.longest.saturating_sub(1));
        set.payloads.each(&piece.bytes[from..], piece.start + from as u64, budget, |rule, at| {
            let at = piece.start + (from + at) as u64;
            let offset = &mut offsets[rule as usize];
            if add(rule) {
                hits.push(rule);
                *offset = at;
            } else {
                *offset = at.max(*offset);
            }
        });
        for (rule, _) in &waiting {
            add(*rule);
        }
        let packet = Packet { in_stream: true, ..*packet };
        let found = self.found.len();
        self.try_candidates(set, &packet, Some(flow), Some(piece), None);
        let matched = |rule: u32| self.found[found..].iter().any(|found| found.rule == rule);
        waiting.retain(|(rule, _)| !matched(*rule));
        hits.retain(|rule| !matched(*rule) && may_match(&set.rules[*rule as usize], &packet));
        for rule in &hits {
            self.wait(set, &mut waiting, *rule, self.offsets[*rule as usize]);
        }
        self.hits = hits;
        flow.waiting[side] = waiting;
    }

    /// Keeps a rule waiting for bytes behind its pattern. If the list is full, a drop rule replaces a rule that does
    /// not drop.
    fn wait(&mut self, set: &RuleSet, waiting: &mut Vec<(u32, u64)>, rule: u32, at: u64) {
        if let Some(entry) = waiting.iter_mut().find(|entry| entry.0 == rule) {
            entry.1 = at;
            return;
        }
        if waiting.len() < RULES_WAITING {
            waiting.push((rule, at));
            return;
        }
        let drops = |rule: u32| set.rules[rule as usize].action.blocks();
        self.bounds.state += 1;
        if drops(rule) {
            match waiting.iter_mut().find(|entry| !drops(entry.0)) {
                Some(entry) => *entry = (rule, at),
                None => self.give_up(),
            }
        }
    }

    /// Inspects a transaction after one side changed. `raw`: the side's newest stream piece.
    pub fn transaction(
        &mut self,
        packet: &Packet<'_>,
        mut flow: Option<&mut FlowState>,
        transaction: &mut Transaction,
        to_server: bool,
        raw: Option<Piece<'_>>,
    ) {
        let set = Arc::clone(&self.set);
        if let Some(flow) = &mut flow {
            flow.meet_set(self.set_number);
        }
        transaction.meet_set(self.set_number);
        let mark = self.next_mark();
        if let Some(rules) = set.each_transaction.get(&transaction.app) {
            self.candidates.extend_from_slice(rules);
        }
        self.candidates.extend_from_slice(&set.any_transaction);
        let Engine { candidates, marks, budget, .. } = self;
        let sides = [to_server, !to_server];
        for side in sides.into_iter().take(if set.whole { 2 } else { 1 }) {
            for (buffer, bytes) in transaction.buffers(side) {
                set.buffers[usize::from(buffer.0)].each(bytes, 0, budget, |rule, _| {
                    let whole = set.rules[rule as usize].header.whole;
                    if (side == to_server || whole) && marks[rule as usize] != mark {
                        marks[rule as usize] = mark;
                        candidates.push(rule);
                    }
                });
            }
        }
        let packet = Packet { to_server, ..*packet };
        self.try_candidates(&set, &packet, flow, raw, Some(&mut *transaction));
        if self.each_piece {
            self.begin_to_wait(&set, &packet, transaction, raw);
        }
    }

    fn try_candidates(
        &mut self,
        set: &RuleSet,
        packet: &Packet<'_>,
        mut flow: Option<&mut FlowState>,
        piece: Option<Piece<'_>>,
        mut transaction: Option<&mut Transaction>,
    ) {
        let mut candidates = std::mem::take(&mut self.candidates);
        // Rule indexes are in evaluation order.
        candidates.sort_unstable();
        self.searched(set);
        for at in &candidates {
            let rule = &set.rules[*at as usize];
            if !rule.is_of_files() {
                self.try_rule(set, *at, packet, flow.as_deref_mut(), piece, transaction.as_deref_mut());
                self.undecided |= self.budget.spent && set.is_decisive(rule);
                continue;
            }
            // All conditions of a rule on files must hold for the same file.
            let count = transaction.as_ref().map_or(0, |transaction| transaction.files(packet.to_server));
            for file in 0..count.max(1) {
                transaction.iter_mut().for_each(|transaction| transaction.file = Some(file));
                self.try_rule(set, *at, packet, flow.as_deref_mut(), piece, transaction.as_deref_mut());
            }
            transaction.iter_mut().for_each(|transaction| transaction.file = None);
            self.undecided |= self.budget.spent && set.is_decisive(rule);
        }
        self.candidates = candidates;
    }

    fn try_rule(
        &mut self,
        set: &RuleSet,
        at: u32,
        packet: &Packet<'_>,
        flow: Option<&mut FlowState>,
        piece: Option<Piece<'_>>,
        mut transaction: Option<&mut Transaction>,
    ) {
        let rule = &set.rules[at as usize];
        if !rule.header.fits(packet) || !fits_flow(rule, packet, flow.as_deref(), transaction.is_some()) {
            return;
        }
        if let Some(transaction) = &transaction
            && (transaction.has_matched(at, packet.to_server)
                || (rule.header.whole || transaction.is_one)
                    && transaction.matched.iter().any(|matched| matched.0 == at)
                || rule.app.is_some_and(|app| !app.includes(transaction.app)))
        {
            return;
        }
        if !rule.packet.iter().all(|test| test.holds(packet, flow.as_deref())) {
            return;
        }
        let alone = !rule.packet.is_empty() && rule.asks_app_alone();
        if alone && flow.as_ref().is_some_and(|flow| flow.app_matched.contains(&at)) {
            return;
        }
        self.variables = [0; LITTLE + 1];
        self.changes.clear();
        if !rule.lists.iter().all(|list| self.list_holds(rule, list, packet, piece, transaction.as_deref())) {
            return;
        }
        if let Some(transaction) = &transaction
            && !numbers_hold(rule, transaction, packet.to_server)
        {
            return;
        }
        let side = packet.to_server;
        let has = |event: &&str| transaction.as_ref().is_some_and(|one| one.events.contains(&(*event, side)));
        if !rule.events.iter().all(has) {
            return;
        }
        let addresses = packet.flow.map(|flow| (flow.source, flow.target));
        let mut context = Context { flow, hosts: &mut self.hosts, addresses, now: packet.time };
        if !rule.tests.iter().all(|test| context.holds(test)) {
            return;
        }
        // Before the counts: a value counts once.
        self.changes.drain(..).for_each(|change| change.apply());
        let passes = rule.thresholds.iter().filter(|threshold| threshold.kind == Kind::Filter).all(|threshold| {
            let (addresses, flow) = (packet.flow.as_ref(), context.flow.as_deref_mut());
            self.counts.count(threshold, rule.key(), addresses, flow, packet.time) == Effect::Alert
        });
        if !passes {
            return;
        }
        rule.changes.iter().for_each(|change| context.change(change));
        if let Some(flow) = context.flow {
            if alone && flow.app_matched.len() < RULES_WAITING {
                flow.app_matched.push(at);
            }
            self.bounds.state += u64::from(std::mem::take(&mut flow.full));
        }
        let id = transaction.as_ref().map(|transaction| transaction.id);
        let stream = packet.in_stream && rule.scope == Scope::Payload;
        let (verdict, action) = (Verdict::Pass, rule.action);
        let found =
            Found { rule: at, transaction: id, stream, to_server: packet.to_server, verdict, passes: false, action };
        if self.record(set, found)
            && let Some(transaction) = &mut transaction
        {
            transaction.note_match(at, packet.to_server);
        }
    }

    /// Records a match; returns false if the list was full. In a full list, a match that drops or passes the packet
    /// replaces one that only alerts.
    fn record(&mut self, set: &RuleSet, found: Found) -> bool {
        if self.found.len() < RULES_ALERTS {
            self.found.push(found);
            return true;
        }
        self.bounds.alerts += 1;
        let alerts_alone = |rule: u32| set.rules[rule as usize].action == Action::Alert;
        if alerts_alone(found.rule) {
            return false;
        }
        match self.found.iter_mut().rfind(|old| alerts_alone(old.rule)) {
            Some(old) => *old = found,
            None => self.give_up(),
        }
        true
    }

    fn list_holds(
        &mut self,
        rule: &Rule,
        list: &List,
        packet: &Packet<'_>,
        piece: Option<Piece<'_>>,
        transaction: Option<&Transaction>,
    ) -> bool {
        let buffer = match list.target {
            Target::Payload => {
                let own = Piece { bytes: packet.payload, start: 0, seen: 0, grows: false };
                let piece = match (rule.scope, piece) {
                    (Scope::Packet, _) | (_, None) => own,
                    (_, Some(piece)) => piece,
                };
                let mut look = Look::new(piece.bytes, piece.start, piece.grows, &mut self.budget);
                // A match within bytes seen before has alerted before.
                look.seen = if rule.scope == Scope::Transaction { 0 } else { piece.seen };
                look.variables = self.variables;
                let holds = look.holds(&list.steps, 0);
                self.variables = look.variables;
                self.changes.append(&mut look.changes);
                return holds;
            }
            Target::Buffer(buffer) => buffer,
        };
        let about = buffer.about();
        if about.origin == Origin::Packet {
            let mut there = false;
            for bytes in packet_buffers(buffer, packet) {
                there = true;
                if self.steps_hold(list, bytes, false, false) {
                    return true;
                }
            }
            return !there && list.absent.is_some();
        }
        let Some(transaction) = transaction else { return false };
        let sides: &[bool] = match about.way {
            _ if !rule.header.whole => &[packet.to_server],
            Way::Request => &[true],
            Way::Response => &[false],
            Way::Both => &[true, false],
        };
        let sides = match list.to_server {
            Some(true) => &[true][..],
            Some(false) => &[false],
            None => sides,
        };
        let mut there = false;
        for side in sides {
            for bytes in transaction.all(buffer, *side) {
                there = true;
                if list.absent != Some(false)
                    && self.steps_hold(list, bytes, transaction.grows(buffer, *side), transaction.little_endian)
                {
                    return true;
                }
            }
        }
        let done = transaction.complete[usize::from(!packet.to_server)];
        list.absent.is_some() && !there && done
    }

    /// Ends the inspection of the packet, which stays undecided.
    fn give_up(&mut self) {
        (self.undecided, self.budget.spent) = (true, true);
    }

    fn steps_hold(&mut self, list: &List, bytes: &[u8], grows: bool, little_endian: bool) -> bool {
        let Engine { budget, scratch: [from, to], variables, changes, .. } = self;
        variables[LITTLE] = u64::from(little_endian);
        let mut look = |bytes: &[u8], budget: &mut Budget| {
            let mut look = Look::new(bytes, 0, grows, budget);
            look.variables = *variables;
            let holds = look.holds(&list.steps, 0);
            *variables = look.variables;
            changes.append(&mut look.changes);
            holds
        };
        if list.transforms.is_empty() {
            return look(bytes, budget);
        }
        if budget.spent {
            return false;
        }
        from.clear();
        from.extend_from_slice(bytes);
        for transform in &list.transforms {
            if !budget.take_bytes(from.len()) || !budget.take_many(transform.steps(from.len())) {
                return false;
            }
            if !transform.apply(from, to) {
                return false;
            }
            std::mem::swap(from, to);
        }
        look(from, budget)
    }

    /// Whether any rule has matched the current packet. If not, [`finish`](Engine::finish) need not be called.
    pub fn has_found(&mut self) -> bool {
        let undecided = std::mem::take(&mut self.undecided);
        self.bounds.undecided += u64::from(undecided);
        self.bounds.steps += u64::from(std::mem::take(&mut self.budget.spent) || undecided);
        !self.found.is_empty()
    }

    /// Ends the packet: calls `alert` for each match to report, in order, and returns the packet's verdict. Rules that
    /// pass or drop the flow mark its state.
    pub fn finish(
        &mut self,
        packet: &Packet<'_>,
        mut flow: Option<&mut FlowState>,
        mut alert: impl FnMut(&Rule, &Found),
    ) -> Verdict {
        if !self.has_found() {
            return Verdict::Pass;
        }
        let set = Arc::clone(&self.set);
        let mut found = std::mem::take(&mut self.found);
        // Stable sort: matches of one rule stay in order of their transactions.
        found.sort_by_key(|found| found.rule);
        let (mut verdict, mut passes) = (Verdict::Pass, false);
        let mut told = std::mem::take(&mut self.told);
        for (at, one) in (0u32..).zip(&mut found) {
            let rule = &set.rules[one.rule as usize];
            let addresses = packet.flow.as_ref();
            if let Some(rate) = &rule.rate {
                let flow = flow.as_deref_mut();
                if self.counts.count(&rate.threshold, rule.key(), addresses, flow, packet.time) == Effect::Alert {
                    one.action = rate.action;
                }
            }
            let limits = rule.thresholds.iter().filter(|threshold| threshold.kind != Kind::Filter);
            let is_suppressed = addresses.is_some_and(|flow| rule.suppressed.iter().any(|hosts| hosts.has(flow)));
            // A rule that passes by its rate is as quiet as one that passes by its action.
            let is_quiet = rule.quiet || is_suppressed || one.action == Action::Pass && rule.action != Action::Pass;
            let mut effect = if is_quiet { Effect::Action } else { Effect::Alert };
            for threshold in limits {
                let flow = flow.as_deref_mut();
                effect = effect.min(self.counts.count(threshold, rule.key(), addresses, flow, packet.time));
            }
            match effect {
                Effect::Nothing => continue,
                Effect::Action => {}
                Effect::Alert => told.push(at),
            }
            let of_flow =
                one.stream || one.transaction.is_some() || rule.scope == Scope::Addresses || rule.is_of_app_only();
            match one.action {
                Action::Pass => {
                    passes = true;
                    if of_flow && let Some(flow) = flow.as_deref_mut() {
                        flow.passed = true;
                    }
                    break;
                }
                // Of a drop and a reject the ends are notified.
                Action::Drop if verdict == Verdict::Pass => verdict = Verdict::Drop,
                Action::Reject { source, target } if !matches!(verdict, Verdict::Reject { .. }) => {
                    verdict = Verdict::Reject { source, target };
                }
                _ => {}
            }
            if one.action.blocks()
                && of_flow
                && let Some(flow) = flow.as_deref_mut()
            {
                flow.dropped = true;
            }
        }
        for at in told.drain(..) {
            let one = &mut found[at as usize];
            (one.verdict, one.passes) = (verdict, passes);
            alert(&set.rules[one.rule as usize], one);
        }
        self.told = told;
        found.clear();
        self.found = found;
        verdict
    }

    /// Returns and resets the counts of limits reached.
    pub fn take_bounds(&mut self) -> Bounds {
        let full = u64::from(std::mem::take(&mut self.hosts.full)) + u64::from(std::mem::take(&mut self.counts.full));
        self.bounds.state += full + self.set.datasets.take_full();
        std::mem::take(&mut self.bounds)
    }
}

/// Whether the rule can match this side of the flow at all.
fn may_match(rule: &Rule, packet: &Packet<'_>) -> bool {
    rule.header.fits(packet) && rule.flow.to_server.is_none_or(|to_server| to_server == packet.to_server)
}

/// `of_transaction`: use the transaction's application; the flow may have changed to another.
fn fits_flow(rule: &Rule, packet: &Packet<'_>, flow: Option<&FlowState>, of_transaction: bool) -> bool {
    let test = &rule.flow;
    let is = |wanted: Option<bool>, there: bool| wanted.is_none_or(|wanted| wanted == there);
    if test.to_server.is_some() || test.established.is_some() {
        let Some(_) = flow else { return false };
        if !rule.header.whole && !is(test.to_server, packet.to_server) || !is(test.established, packet.established) {
            return false;
        }
    }
    let stream_only = rule.header.protocol == crate::header::Protocol::TcpStream || test.stream == Some(true);
    if stream_only && !packet.in_stream || !is(test.fragment, packet.fragment) {
        return false;
    }
    let asks = rule.packet.iter().any(|test| matches!(test, PacketTest::App { .. }));
    match rule.app {
        Some(_) if of_transaction => flow.is_some(),
        Some(app) => flow.is_some_and(|flow| app.includes(flow.app) && app != App::Unknown),
        None => !asks || flow.is_some(),
    }
}

fn numbers_hold(rule: &Rule, transaction: &Transaction, to_server: bool) -> bool {
    let both = rule.header.whole || transaction.is_one;
    let values = |number: Number| {
        let sides = [true, false].into_iter().filter(move |side| both || *side == to_server);
        sides.flat_map(move |side| transaction.numbers(number, side))
    };
    rule.numbers.iter().all(|(number, compare, among)| among.holds(compare, values(*number)))
        && rule.among.iter().all(|(number, ranges)| {
            values(*number).any(|value| ranges.iter().any(|(low, high)| (*low..=*high).contains(&value)))
        })
}

fn packet_buffers<'a>(buffer: Buffer, packet: &Packet<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let chunks = (buffer == Buffer::SCTP_CHUNK_DATA).then(|| sctp_chunks(packet));
    // The user's data of each chunk that has some, behind numbers of chunk, stream and protocol (RFC 9260, 3.3.1).
    let data =
        chunks.into_iter().flatten().filter(|chunk| chunk.first() == Some(&0)).filter_map(|chunk| chunk.get(16..));
    packet_buffer(buffer, packet).into_iter().chain(data)
}

fn packet_buffer<'a>(buffer: Buffer, packet: &Packet<'a>) -> Option<&'a [u8]> {
    use packet::frame::protocol;
    let number = packet.flow.map(|flow| flow.protocol);
    let transport = |wanted: u8| (number == Some(wanted) && !packet.transport.is_empty()).then_some(packet.transport);
    match buffer {
        Buffer::IPV4_HDR => (packet.version == 4).then_some(packet.network),
        Buffer::IPV6_HDR => (packet.version == 6).then_some(packet.network),
        Buffer::TCP_HDR => transport(protocol::TCP),
        Buffer::UDP_HDR => transport(protocol::UDP),
        Buffer::ICMPV4_HDR => transport(protocol::ICMP),
        Buffer::ICMPV6_HDR => transport(protocol::ICMPV6),
        Buffer::IGMP_HDR => transport(protocol::IGMP),
        Buffer::SCTP_HDR => transport(protocol::SCTP),
        Buffer::IP_SRC => packet.network.get(if packet.version == 4 { 12..16 } else { 8..24 }),
        Buffer::IP_DST => packet.network.get(if packet.version == 4 { 16..20 } else { 24..40 }),
        Buffer::ETHER_HDR => (!packet.link.is_empty()).then_some(packet.link),
        _ => None,
    }
}
