//! Inspects growing bodies piece by piece, for callers that block traffic: a piece that completes a match of a blocking
//! rule must not pass. Inspecting a whole transaction takes time in proportion to its bodies, so the engine searches
//! only new bytes.
//!
//! Three things bound the work:
//! - The engine searches the new bytes and as many bytes before them as the longest pattern has.
//! - A rule whose pattern was found waits if it can still block. While one of its contents is missing from the body,
//!   the engine searches for that content only. Afterwards it retries the rule only if new bytes may complete the rule:
//!   they complete a content, or the rule has a step that is not a content.
//! - The tries of one transaction may take [`RULES_BODY_STEPS`]. Beyond that, a rule due for a try counts as cut short.

use super::{Engine, may_match};
use crate::engine::Piece;
use crate::event::{Packet, Transaction, Waiting};
use crate::inspect::{Budget, Step, has_new};
use crate::names::is_body;
use crate::rule::{List, Rule, Target};
use crate::set::RuleSet;
use crate::state::FlowState;
use base::limits::{RULES_BODY_STEPS, RULES_WAITING};
use std::sync::Arc;

impl Rule {
    /// Whether an early match can change what passes. Other rules can wait for the next full inspection. Rules that require
    /// bytes to be absent can match only at the end of the body.
    fn is_urgent(&self) -> bool {
        let of_body = |list: &&List| matches!(list.target, Target::Buffer(buffer) if is_body(buffer));
        self.changes_what_passes()
            && !self.lists.iter().filter(of_body).flat_map(|list| &list.steps).any(Step::waits_for_the_end)
    }
}

impl Engine {
    /// Turns on piecewise inspection: see [`body`](Engine::body).
    pub fn look_at_each_piece(&mut self) {
        self.each_piece = true;
    }

    /// Inspects a transaction in which only the body of one side grew. `raw`: the side's newest stream piece.
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
            patterns.each(&bytes[from..], from as u64, budget, |rule, _| {
                if marks[rule as usize] != mark && set.rules[rule as usize].is_urgent() {
                    marks[rule as usize] = mark;
                    candidates.push(rule);
                }
            });
        }
        self.searched(&set);
        let packet = Packet { to_server, ..*packet };
        if !self.candidates.is_empty() {
            let before = self.budget.steps;
            if transaction.body_steps >= RULES_BODY_STEPS {
                self.budget.spent = true;
                self.undecided |= self.candidates.iter().any(|rule| set.is_decisive(&set.rules[*rule as usize]));
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

    /// After a full inspection: keeps rules waiting that more bytes may complete.
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

    /// Keeps candidates waiting that did not match but that more bytes may complete.
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
            if set.is_decisive(rule) {
                self.give_up();
            }
        }
        self.candidates = candidates;
    }

    /// Whether the rule inspects a body, and all its other, settled conditions hold.
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
        // Conditions on the other side, on the stream, or on a variable from the body may still become true.
        let is_decided = |list: &&List| {
            list.target != Target::Payload
                && !of_body(list)
                && !rule.header.whole
                && !list.needs_earlier()
                && list.to_server.is_none_or(|to| to == packet.to_server)
        };
        let mut lists = rule.lists.iter().filter(is_decided);
        let holds = lists.all(|list| self.list_holds(rule, list, packet, raw, Some(transaction)));
        self.changes.clear();
        holds
    }
}

/// Whether the body, with its new bytes, still lacks a content of the rule. `missing`: the content it lacked before.
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

/// Finds a content that the body lacks and without which the rule cannot match.
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

/// Whether the new bytes may complete a rule that did not match before.
fn may_complete(rule: &Rule, transaction: &Transaction, to_server: bool, budget: &mut Budget) -> bool {
    // Bits and numbers that the rule tests may have changed.
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
