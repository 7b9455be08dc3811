//! Bodies that grow, looked at with each piece, for a caller that lets bytes pass or not: no piece may pass that completes a match
//! of a rule that stops it. A look at a whole transaction takes as long as its bodies are; so with each piece the engine
//! searches the new bytes alone.
//!
//! Three things bound the work:
//! - The engine looks for patterns in the new bytes, and in as many before them as the longest pattern has.
//! - A rule whose pattern came waits, where it may still stop something. For as long as one of its contents is nowhere in the body,
//!   the engine looks for that one alone. Then it tries the rule again only when new bytes may complete it: one of its contents
//!   ends in them, or one of its steps is no content.
//! - The tries of one transaction have [`RULES_BODY_STEPS`]. Where these are spent, a rule that would be tried counts as cut short.

use super::{Engine, may_match};
use crate::engine::Piece;
use crate::event::{Packet, Transaction};
use crate::inspect::{Budget, Step, has_new};
use crate::names::Buffer;
use crate::rule::{Action, List, Rule, Target};
use crate::set::RuleSet;
use crate::state::FlowState;
use base::limits::{RULES_BODY_STEPS, RULES_WAITING};
use std::sync::Arc;

/// Buffers that grow.
const BODIES: [Buffer; 4] =
    [Buffer::HTTP_REQUEST_BODY, Buffer::HTTP_RESPONSE_BODY, Buffer::FILE_DATA, Buffer::DCERPC_STUB_DATA];

/// A rule that more of a body may complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    rule: u32,
    /// A content that is nowhere in the body so far: its list and its step.
    missing: Option<(usize, usize)>,
}

/// Is it a buffer that grows?
pub(crate) fn is_body(buffer: Buffer) -> bool {
    BODIES.contains(&buffer)
}

impl Rule {
    /// Does a later look change what passes? A rule that only alerts may do so when the body has grown further, and one that asks
    /// for what is not in a body can do so at its end alone.
    fn is_urgent(&self) -> bool {
        let of_body = |list: &&List| matches!(list.target, Target::Buffer(buffer) if is_body(buffer));
        (self.action != Action::Alert || !self.changes.is_empty())
            && !self.lists.iter().filter(of_body).flat_map(|list| &list.steps).any(Step::waits_for_the_end)
    }
}

impl Engine {
    /// Looks at bodies with each piece: see [`body`](Engine::body).
    pub fn look_at_each_piece(&mut self) {
        self.each_piece = true;
    }

    /// Shows a transaction of which a body has grown on one side, and nothing else. `raw` is what the stream had last there.
    pub fn body(
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
        if transaction.meet_set(self.set_number) {
            return self.transaction(packet, flow, transaction, to_server, raw);
        }
        let mark = self.next_mark();
        let Engine { candidates, marks, budget, .. } = self;
        let side = usize::from(!to_server);
        let mut waiting = std::mem::take(&mut transaction.waiting[side]);
        for Waiting { rule, missing } in &mut waiting {
            marks[*rule as usize] = mark;
            let compiled = &set.rules[*rule as usize];
            if !misses(compiled, missing, transaction, to_server, budget)
                && may_complete(compiled, transaction, to_server, budget)
            {
                candidates.push(*rule);
            }
        }
        for (buffer, bytes, seen) in transaction.grown(to_server) {
            let patterns = &set.buffers[usize::from(buffer.0)];
            let from = seen.saturating_sub(patterns.longest.saturating_sub(1));
            patterns.each(&bytes[from..], budget, |rule, _| {
                if marks[rule as usize] != mark && set.rules[rule as usize].is_urgent() {
                    marks[rule as usize] = mark;
                    candidates.push(rule);
                }
            });
        }
        let packet = Packet { to_server, ..*packet };
        if !self.candidates.is_empty() {
            let before = self.budget.steps;
            if transaction.body_steps >= RULES_BODY_STEPS {
                self.budget.spent = true;
            } else {
                self.try_candidates(&set, &packet, flow, raw, Some(&mut *transaction));
            }
            waiting.retain(|one| !transaction.has_matched_last(one.rule, to_server));
            self.wait_for_body(&set, &packet, transaction, &mut waiting, raw);
            transaction.body_steps = transaction.body_steps.saturating_add(before.saturating_sub(self.budget.steps));
        }
        transaction.waiting[side] = waiting;
        transaction.see_bodies(to_server);
    }

    /// After a look at all of a transaction: has rules wait that more of a body may complete.
    pub(super) fn begin_to_wait(
        &mut self,
        set: &RuleSet,
        packet: &Packet<'_>,
        transaction: &mut Transaction,
        raw: Option<Piece<'_>>,
    ) {
        let side = usize::from(!packet.to_server);
        let mut waiting = std::mem::take(&mut transaction.waiting[side]);
        waiting.clear();
        if !transaction.complete[side] {
            self.wait_for_body(set, packet, transaction, &mut waiting, raw);
        }
        transaction.waiting[side] = waiting;
        transaction.see_bodies(packet.to_server);
    }

    /// Has those candidates wait that did not match, and that more of a body may complete.
    fn wait_for_body(
        &mut self,
        set: &RuleSet,
        packet: &Packet<'_>,
        transaction: &Transaction,
        waiting: &mut Vec<Waiting>,
        raw: Option<Piece<'_>>,
    ) {
        let candidates = std::mem::take(&mut self.candidates);
        for at in &candidates {
            let rule = &set.rules[*at as usize];
            if !rule.is_urgent()
                || waiting.iter().any(|one| one.rule == *at)
                || transaction.has_matched_last(*at, packet.to_server)
                || rule.app.is_some_and(|app| !app.includes(transaction.app))
                || !may_match(rule, packet)
                || !self.rest_holds(rule, packet, transaction, raw)
            {
                continue;
            }
            if waiting.len() < RULES_WAITING {
                let missing = missing_of(rule, transaction, packet.to_server, &mut self.budget);
                waiting.push(Waiting { rule: *at, missing });
                continue;
            }
            self.bounds.state += 1;
            self.budget.spent |= rule.action.blocks();
        }
        self.candidates = candidates;
    }

    /// Does a rule look at a body, and does all hold that no body decides?
    fn rest_holds(
        &mut self,
        rule: &Rule,
        packet: &Packet<'_>,
        transaction: &Transaction,
        raw: Option<Piece<'_>>,
    ) -> bool {
        let of_body = |list: &List| matches!(list.target, Target::Buffer(buffer) if is_body(buffer));
        if !rule.lists.iter().any(of_body) {
            return false;
        }
        // What it asks of the other side, or of the stream, may still come.
        let is_decided = |list: &&List| {
            list.target != Target::Payload
                && !of_body(list)
                && !rule.header.whole
                && list.to_server.is_none_or(|to| to == packet.to_server)
        };
        rule.lists.iter().filter(is_decided).all(|list| self.list_holds(rule, list, packet, raw, Some(transaction)))
    }
}

/// Is a content of a rule nowhere in the body, also with the new bytes? `missing`: the one that was not there before them.
fn misses(
    rule: &Rule,
    missing: &mut Option<(usize, usize)>,
    transaction: &Transaction,
    to_server: bool,
    budget: &mut Budget,
) -> bool {
    let Some((list, step)) = *missing else { return false };
    let list = &rule.lists[list];
    let mut new = transaction.grown(to_server).filter(|(buffer, ..)| list.target == Target::Buffer(*buffer));
    if !new.any(|(_, bytes, seen)| has_new(&list.steps[step], bytes, seen, budget)) {
        return true;
    }
    *missing = missing_of(rule, transaction, to_server, budget);
    missing.is_some()
}

/// Which content of a rule is nowhere in the body: one whose absence is enough that the rule does not match.
fn missing_of(rule: &Rule, transaction: &Transaction, to_server: bool, budget: &mut Budget) -> Option<(usize, usize)> {
    let is_simple = |list: &List| list.transforms.is_empty() && list.absent.is_none();
    let lists = rule.lists.iter().enumerate().filter(|(_, list)| !rule.header.whole && is_simple(list));
    for (number, list) in lists {
        let Target::Buffer(buffer) = list.target else { continue };
        if !is_body(buffer) {
            continue;
        }
        let contents = list.steps.iter().enumerate();
        for (at, step) in contents.filter(|(_, step)| step.is_plain_content()) {
            if !transaction.all(buffer, to_server).any(|bytes| has_new(step, bytes, 0, budget)) {
                return Some((number, at));
            }
        }
    }
    None
}

/// May the new bytes of bodies complete a rule that did not match without them?
fn may_complete(rule: &Rule, transaction: &Transaction, to_server: bool, budget: &mut Budget) -> bool {
    // Bits and numbers that it asks for may have changed.
    let mut may = !rule.tests.is_empty() || rule.header.whole;
    for list in &rule.lists {
        let Target::Buffer(buffer) = list.target else {
            may = true;
            continue;
        };
        if !is_body(buffer) {
            continue;
        }
        if !list.transforms.is_empty() || list.absent.is_some() {
            may = true;
            continue;
        }
        for (of, bytes, seen) in transaction.grown(to_server) {
            if of == buffer && !may {
                may = list.steps.iter().any(|step| !step.is_plain_content() || has_new(step, bytes, seen, budget));
            }
        }
    }
    may
}
