//! One batch on its way through the graph, depth first: it goes through all nodes below before the next batch is taken.
//!
//! Tiers, by how often they run:
//! 1. *straight chains of filters that work in place* — a loop without recursion: one direct call, two counters and one
//!    word of live bits for each filter and batch; the engine does not touch blocks;
//! 2. *filters that give new blocks* — their blocks are cut into batches and walked on before the filter is called
//!    again (recursion, one level for each such filter);
//! 3. *several edges, choices, sessions* — the batch's descriptors are copied for all edges but the last;
//! 4. *filters whose rejects another filter wants* — the batch's descriptors are copied before the filter sees them.
//!
//! In: `worker` hands over a source's blocks. Out: sinks.

use crate::node::{Arrow, Runner};
use crate::plan::Choice;
use crate::session::Sessions;
use crate::shared::context;
use crate::witness::Witness;
use crate::worker::Worker;
use base::id::Class;
use base::limits::BATCH_BLOCKS;
use buffer::{Descriptor, Flags};
use filter::batch::places;
use filter::marks::LEAST_LOADED;
use filter::run::AnySessionFilter;
use filter::{Batch, Closed, Context, Failure, Marks, Status};
use std::sync::Arc;

/// Why blocks end at a filter that cannot go on.
const FAILED: &str = "the filter failed";

impl Worker {
    /// Takes the live blocks into node `at` and through all nodes below. A filter that fails ends the run after this
    /// batch, but the blocks under way still go everywhere else.
    pub(crate) fn walk(&mut self, mut at: usize, batch: &mut Batch<'_>) {
        loop {
            let node = &mut self.nodes[at];
            let count = u64::from(batch.count());
            node.counters.blocks_in += count;
            node.counters.bytes_in += batch.bytes();
            if !node.simple {
                return self.walk_sorting(at, batch);
            }
            if !node.in_place {
                return self.run_maker(at, batch);
            }
            self.run_in_place(at, batch);
            if self.nodes[at].watches != 0 {
                self.show(at, batch, false);
            }
            let node = &mut self.nodes[at];
            match &mut node.edges[..] {
                _ if batch.is_empty() => return,
                [edge] => {
                    edge.admit(batch);
                    if batch.is_empty() {
                        return;
                    }
                    at = edge.to;
                }
                _ => return self.pass_on(at, batch),
            }
        }
    }

    /// Walks on from a node that wants no blocks, or whose rejects another node wants.
    #[cold]
    #[inline(never)]
    fn walk_sorting(&mut self, at: usize, batch: &mut Batch<'_>) {
        let before = batch.live();
        if self.nodes[at].rejects.is_empty() {
            let loses = self.loses(at);
            self.nodes[at].counters.come_late(u64::from(batch.count()), loses);
            return;
        }
        // A copy of the blocks as they came, before the filter changes them.
        let mut spare = self.spares.pop().unwrap_or_else(|| Box::new([Descriptor::default(); BATCH_BLOCKS]));
        let mut came = batch.copied_to(&mut spare);
        let node = &mut self.nodes[at];
        node.marks = Marks::default();
        let rejected = if node.finished || !node.wanted {
            let loses = self.loses(at);
            self.nodes[at].counters.come_late(u64::from(batch.count()), loses);
            if loses.is_none() { before } else { 0 }
        } else if node.in_place {
            self.run_in_place(at, batch);
            if self.nodes[at].watches != 0 {
                self.show(at, batch, false);
            }
            let rejected = before & !batch.live() & !self.nodes[at].marks.ended;
            self.pass_on(at, batch);
            rejected
        } else {
            self.run_maker(at, batch);
            before & self.nodes[at].marks.rejected
        };
        came.keep(rejected);
        self.reject_on(at, &mut came);
        self.spares.push(spare);
    }

    /// The drop reason for blocks at a node that takes no more. The node itself gives it, or the only node behind it.
    fn loses(&self, at: usize) -> Option<&'static str> {
        let node = &self.nodes[at];
        if node.finished {
            return node.counters.loses;
        }
        node.edges.iter().filter(|edge| !self.nodes[edge.to].wanted).find_map(|edge| self.loses(edge.to))
    }

    fn reject_on(&mut self, from: usize, batch: &mut Batch<'_>) {
        if batch.is_empty() {
            return;
        }
        if self.nodes[from].watches != 0 {
            self.show(from, batch, true);
        }
        for index in 0..self.nodes[from].rejects.len() {
            let edge = &mut self.nodes[from].rejects[index];
            let mut part = batch.narrowed(u64::MAX);
            edge.admit(&mut part);
            let to = edge.to;
            if part.is_empty() {
                continue;
            }
            let mut spare = self.spares.pop().unwrap_or_else(|| Box::new([Descriptor::default(); BATCH_BLOCKS]));
            self.walk(to, &mut part.copied_to(&mut spare));
            self.spares.push(spare);
        }
    }

    /// Sends blocks along all edges of a node; a splitting node sends each block along one edge.
    fn pass_on(&mut self, from: usize, batch: &mut Batch<'_>) {
        if self.nodes[from].splits {
            return self.pass_split(from, batch);
        }
        let last = self.nodes[from].edges.len().saturating_sub(1);
        for index in 0..self.nodes[from].edges.len() {
            let edge = &mut self.nodes[from].edges[index];
            let mut part = batch.narrowed(u64::MAX);
            edge.admit(&mut part);
            let to = edge.to;
            if part.is_empty() {
                continue;
            }
            if index == last {
                return self.walk(to, &mut part);
            }
            let mut spare = self.spares.pop().unwrap_or_else(|| Box::new([Descriptor::default(); BATCH_BLOCKS]));
            self.walk(to, &mut part.copied_to(&mut spare));
            self.spares.push(spare);
        }
    }

    /// Sends each block along the edge that its node marked. Neighbouring blocks for the same edge go together, so that
    /// blocks are in order where the branches meet.
    #[cold]
    #[inline(never)]
    fn pass_split(&mut self, from: usize, batch: &mut Batch<'_>) {
        let count = self.nodes[from].edges.len();
        let mut ways = self.nodes[from].marks.branches;
        if ways.contains(&LEAST_LOADED) {
            let least = self.least_loaded(from) as u16;
            ways.iter_mut().filter(|way| **way == LEAST_LOADED).for_each(|way| *way = least);
        }
        let way = |place: usize| usize::from(ways[place]) % count.max(1);
        let mut left = batch.live();
        while left != 0 && count != 0 {
            let edge = way(left.trailing_zeros() as usize);
            let next = places(left).find(|place| way(*place) != edge);
            let run = left & next.map_or(u64::MAX, filter::batch::full);
            left &= !run;
            let mut part = batch.narrowed(run);
            let blocks = u64::from(part.count());
            for (index, arrow) in self.nodes[from].edges.iter_mut().enumerate() {
                if index == edge { arrow.blocks += blocks } else { arrow.refused += blocks }
            }
            let to = self.nodes[from].edges[edge].to;
            self.walk(to, &mut part);
        }
    }

    /// The edge with the shortest backlog; among equals the one with the fewest blocks so far.
    fn least_loaded(&self, from: usize) -> usize {
        let load = |arrow: &Arrow| match &self.nodes[arrow.to].runner {
            Runner::Filter(filter) => (filter.backlog(), arrow.blocks),
            _ => (0, arrow.blocks),
        };
        let edges = self.nodes[from].edges.iter().enumerate();
        edges.min_by_key(|(_, arrow)| load(arrow)).map_or(0, |(index, _)| index)
    }

    pub(crate) fn drain(&mut self, from: usize) {
        let node = &mut self.nodes[from];
        if node.out.is_empty() {
            // Other nodes cannot name bytes that the filter wrote for itself.
            for segment in &node.recycles {
                self.shared.rings.recycle(*segment);
            }
            return;
        }
        let mut out = std::mem::take(&mut node.out);
        node.counters.blocks_made += out.len() as u64;
        let before = self.shared.order.is_partition.then_some((self.sequences, self.shared.order.sequence));
        for first in (0..out.len()).step_by(BATCH_BLOCKS) {
            let blocks = &mut out[first..];
            let mut batch = Batch::of_first(blocks.len().min(BATCH_BLOCKS), blocks);
            self.nodes[from].counters.bytes_made += batch.bytes();
            if let Some((_, sequence)) = before {
                self.find_sequences(from, first, sequence);
            }
            if self.nodes[from].watches != 0 {
                self.show(from, &batch, false);
            }
            self.pass_on(from, &mut batch);
        }
        out.clear();
        if let Some(before) = before {
            self.restore_sequences(from, before);
        }
        let node = &mut self.nodes[from];
        node.out = out;
        // All nodes below have returned. So only holds refer to the blocks of this node, or to the blocks that filters in
        // place made of them. (No such filter lies above a node that is still at work: that would be a cycle.)
        for segment in &node.recycles {
            self.shared.rings.recycle(*segment);
        }
    }

    pub(crate) fn drain_along(&mut self, from: usize, edge: usize) {
        let node = &mut self.nodes[from];
        let mut out = std::mem::take(&mut node.out);
        node.counters.blocks_made += out.len() as u64;
        let before = (self.sequences, self.shared.order.sequence);
        for first in (0..out.len()).step_by(BATCH_BLOCKS) {
            let blocks = &mut out[first..];
            let mut batch = Batch::of_first(blocks.len().min(BATCH_BLOCKS), blocks);
            self.find_sequences(from, first, before.1);
            let edge = &mut self.nodes[from].edges[edge];
            edge.admit(&mut batch);
            let to = edge.to;
            if !batch.is_empty() {
                self.walk(to, &mut batch);
            }
        }
        out.clear();
        self.restore_sequences(from, before);
        let node = &mut self.nodes[from];
        node.out = out;
        // As in `drain`.
        for segment in &node.recycles {
            self.shared.rings.recycle(*segment);
        }
    }

    /// Finds the run of the input from which each block of a batch came. The batch begins at block `first` of node
    /// `from`'s output. A block without a named run gets `otherwise`.
    fn find_sequences(&mut self, from: usize, first: usize, otherwise: u64) {
        let runs = &self.nodes[from].runs;
        let mut at = runs.partition_point(|(end, _)| *end <= first);
        for (place, sequence) in self.sequences.iter_mut().enumerate() {
            while runs.get(at).is_some_and(|(end, _)| *end <= first + place) {
                at += 1;
            }
            *sequence = runs.get(at).map_or(otherwise, |(_, sequence)| *sequence);
        }
    }

    /// A node's blocks have gone through: goes on with the batch from which the node made them.
    fn restore_sequences(&mut self, from: usize, before: ([u64; BATCH_BLOCKS], u64)) {
        (self.sequences, self.shared.order.sequence) = before;
        self.nodes[from].runs.clear();
    }

    /// The first of these blocks, up to the end of their run of the input.
    fn first_run(&mut self, live: u64) -> u64 {
        let sequence = self.sequences[live.trailing_zeros() as usize & (BATCH_BLOCKS - 1)];
        self.shared.order.sequence = sequence;
        let next = places(live).find(|place| self.sequences[*place] != sequence);
        live & next.map_or(u64::MAX, filter::batch::full)
    }

    /// Calls a filter that gives new blocks once for each run of a partition's input, so that the run of each new block is
    /// known. All new blocks go on at once. Gives the filter's last status.
    #[cold]
    #[inline(never)]
    fn run_runs(&mut self, at: usize, batch: &mut Batch<'_>) -> Result<Status, Box<Failure>> {
        let sequence = self.shared.order.sequence;
        let mut left = batch.live();
        let status = loop {
            if left == 0 {
                break Ok(Status::Done);
            }
            let run = self.first_run(left);
            left &= !run;
            let mut place = SessionPlace::new(run);
            let status = loop {
                let status = self.call_maker(at, &mut batch.narrowed(run), &mut place);
                let node = &mut self.nodes[at];
                node.runs.push((node.out.len(), self.shared.order.sequence));
                if status == Ok(Status::More) || node.out.len() >= OUT_ENOUGH {
                    self.drain(at);
                }
                if status != Ok(Status::More) {
                    break status;
                }
            };
            if status != Ok(Status::Done) {
                break status;
            }
        };
        self.shared.order.sequence = sequence;
        self.drain(at);
        self.nodes[at].runs.clear();
        status
    }

    #[inline(always)]
    fn call_maker(
        &mut self,
        at: usize,
        batch: &mut Batch<'_>,
        place: &mut SessionPlace,
    ) -> Result<Status, Box<Failure>> {
        let Worker { nodes, shared, .. } = self;
        let node = &mut nodes[at];
        let witness = Witness::of(batch, shared);
        let status = match &mut node.runner {
            Runner::Filter(filter) => filter.run(batch, &mut context!(node, shared)),
            Runner::Session(filter, sessions) => {
                place.advance(filter.as_mut(), sessions, batch, &mut context!(node, shared))
            }
            Runner::Source(_) | Runner::Choice(_) => Ok(Status::Done),
        };
        self.nodes[at].check(witness, batch, &self.shared);
        self.note_wake(at);
        status
    }

    /// Runs a sink, or a filter that gives new blocks, while it has more to give. Inlined: its second caller is cold.
    #[inline(always)]
    fn run_maker(&mut self, at: usize, batch: &mut Batch<'_>) {
        let count = u64::from(batch.count());
        let before = self.nodes[at].ended_otherwise();
        let mut place = SessionPlace::new(batch.live());
        let status = if self.shared.order.is_partition {
            self.run_runs(at, batch)
        } else {
            loop {
                let status = self.call_maker(at, batch, &mut place);
                // Blocks given before a failure still go on.
                self.drain(at);
                if status != Ok(Status::More) {
                    break status;
                }
            }
        };
        let node = &mut self.nodes[at];
        let left = count.saturating_sub(node.ended_otherwise() - before);
        if status.is_ok() {
            node.counters.blocks_taken += left;
        } else {
            node.counters.drops.add(FAILED, left);
        }
        self.settle(at, status);
    }

    #[inline]
    fn run_in_place(&mut self, at: usize, batch: &mut Batch<'_>) {
        let count = u64::from(batch.count());
        let sequence = self.shared.order.sequence;
        let Worker { nodes, shared, sequences, .. } = self;
        let node = &mut nodes[at];
        let before = node.counters.drops.total() + node.counters.blocks_taken;
        let witness = Witness::of(batch, shared);
        let status = match &mut node.runner {
            Runner::Filter(filter) => filter.run(batch, &mut context!(node, shared)),
            Runner::Session(filter, sessions) => {
                let mut place = SessionPlace::new(batch.live());
                let status = loop {
                    if shared.order.is_partition && place.left != 0 {
                        // The run of the input says when each session was last touched.
                        place.end_at_run(sequences);
                        shared.order.sequence = sequences[place.left.trailing_zeros() as usize];
                    }
                    match place.advance(filter.as_mut(), sessions, batch, &mut context!(node, shared)) {
                        Ok(Status::More) => {}
                        Ok(Status::Done) if place.next_run() => {}
                        status => break status,
                    }
                };
                batch.keep(place.kept);
                status
            }
            Runner::Choice(choice) => {
                let choice = Arc::clone(choice);
                let live = self.choose(&choice, batch);
                batch.keep(live);
                Ok(Status::Done)
            }
            Runner::Source(_) => Ok(Status::Done),
        };
        self.shared.order.sequence = sequence;
        self.note_wake(at);
        self.nodes[at].check(witness, batch, &self.shared);
        let node = &mut self.nodes[at];
        let passed = u64::from(batch.count());
        let ended = node.counters.drops.total() + node.counters.blocks_taken - before;
        node.counters.blocks_rejected += count - passed - ended;
        if status.is_ok() {
            node.counters.blocks_passed += passed;
            node.counters.bytes_passed += batch.bytes();
        } else {
            node.counters.drops.add(FAILED, passed);
            node.marks.ended |= batch.live();
            batch.keep(0);
        }
        self.settle(at, status);
    }

    /// Acts on a filter's status: a filter that failed or wants no more gets no more, and a failure ends the run.
    #[inline]
    pub(crate) fn settle(&mut self, at: usize, status: Result<Status, Box<Failure>>) {
        match status {
            Ok(Status::Done | Status::More) => {}
            Ok(Status::Finished) => self.finished(at),
            Err(failure) => {
                self.failure.get_or_insert(failure);
                self.nodes[at].counters.loses = Some(FAILED);
                self.finished(at);
            }
        }
    }

    /// The live blocks of the batch that a choice passes.
    fn choose(&mut self, choice: &Choice, batch: &mut Batch<'_>) -> u64 {
        match choice {
            Choice::Filter(id) => {
                let node = &mut self.nodes[id.index()];
                node.counters.blocks_in += u64::from(batch.count());
                node.counters.bytes_in += batch.bytes();
                let live = batch.live();
                let mut part = batch.narrowed(live);
                self.run_in_place(id.index(), &mut part);
                part.live()
            }
            Choice::Class(select) => {
                let mut part = batch.narrowed(batch.live());
                part.keep_if(|block| select.accepts(block.class));
                part.live()
            }
            Choice::All(parts) => {
                let mut live = batch.live();
                for part in parts {
                    if live == 0 {
                        break;
                    }
                    live = self.choose(part, &mut batch.narrowed(live));
                }
                live
            }
            Choice::Any(parts) => {
                let mut live = 0;
                for part in parts {
                    let left = batch.live() & !live;
                    if left == 0 {
                        break;
                    }
                    live |= self.choose(part, &mut batch.narrowed(left));
                }
                live
            }
            Choice::Not(part) => {
                let all = batch.live();
                all & !self.choose(part, &mut batch.narrowed(all))
            }
            Choice::KeepClass(part) => {
                let mut classes = [Class::default(); BATCH_BLOCKS];
                classes.iter_mut().zip(batch.blocks()).for_each(|(class, block)| *class = block.class);
                let live = self.choose(part, batch);
                batch.blocks_mut().iter_mut().zip(classes).for_each(|(block, class)| block.class = class);
                live
            }
        }
    }

    /// Remembers when the next timer is due.
    #[inline]
    fn note_wake(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if let Runner::Session(_, sessions) = &node.runner {
            node.wake = sessions.next_expiry();
        }
        self.next_wake = self.next_wake.min(node.wake);
    }
}

/// How far a batch has got through a session filter: blocks are handed over in runs of one session each.
struct SessionPlace {
    left: u64,
    /// Later blocks, of later runs of a partition's input.
    later: u64,
    /// Blocks that the filter keeps alive, if it works in place.
    kept: u64,
    /// The session whose run was not finished in the last call.
    again: Option<filter::Slot>,
}

/// Number of new blocks after which a batch is interrupted to send them on.
const OUT_ENOUGH: usize = 4 * BATCH_BLOCKS;

impl SessionPlace {
    fn new(live: u64) -> SessionPlace {
        SessionPlace { left: live, later: 0, kept: 0, again: None }
    }

    /// Puts off the blocks of all runs of a partition's input except the first.
    fn end_at_run(&mut self, sequences: &[u64; BATCH_BLOCKS]) {
        let sequence = sequences[self.left.trailing_zeros() as usize];
        if let Some(next) = places(self.left).find(|place| sequences[*place] != sequence) {
            self.later |= self.left & !filter::batch::full(next);
            self.left &= filter::batch::full(next);
        }
    }

    /// Goes on with the blocks that were put off. `false`: there are none.
    fn next_run(&mut self) -> bool {
        self.left |= std::mem::take(&mut self.later);
        self.left != 0
    }

    /// Goes on until the batch is through, the filter has more to give, or there are enough new blocks to send on.
    fn advance(
        &mut self,
        filter: &mut dyn AnySessionFilter,
        sessions: &mut Sessions,
        batch: &mut Batch<'_>,
        cx: &mut Context<'_>,
    ) -> Result<Status, Box<Failure>> {
        while self.left != 0 {
            if cx.out.len() >= OUT_ENOUGH {
                return Ok(Status::More);
            }
            let run = self.run_of_one_session(sessions, batch);
            let first = *batch.block(run.trailing_zeros() as usize);
            if !sessions.is_stream(first.class) {
                cx.drop_of(&mut batch.narrowed(run), u64::MAX, "no stream class");
                self.left &= !run;
                continue;
            }
            let slot = match self.again.take() {
                Some(slot) => slot,
                None => sessions.enter(&first, filter, cx)?,
            };
            let mut part = batch.narrowed(run);
            let status = filter.run(slot, &mut part, cx)?;
            let kept = part.live();
            if status == Status::More {
                self.again = Some(slot);
                return Ok(Status::More);
            }
            self.left &= !run;
            self.kept |= kept;
            let last = *batch.block(63 - run.leading_zeros() as usize);
            if last.has(Flags::LAST) && sessions.ends_with(slot, &last) {
                sessions.close(slot.0, Closed::Ended, filter, cx)?;
            }
            if status == Status::Finished {
                return Ok(status);
            }
        }
        Ok(Status::Done)
    }

    /// The next blocks that belong to one session, up to a LAST or before a FIRST.
    fn run_of_one_session(&self, sessions: &Sessions, batch: &Batch<'_>) -> u64 {
        let mut run = 0;
        let mut number = None;
        for place in places(self.left) {
            let block = batch.block(place);
            let begins_anew = run != 0 && block.has(Flags::FIRST);
            if *number.get_or_insert(sessions.number(block.class)) != sessions.number(block.class) || begins_anew {
                break;
            }
            run |= 1 << place;
            if block.has(Flags::LAST) {
                break;
            }
        }
        run
    }
}
