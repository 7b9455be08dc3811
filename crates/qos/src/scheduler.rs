//! The scheduler: flows, the queues they stand in, and the decision. The crate's head explains the tiers.

use crate::admission::{Admission, Refusal};
use crate::clock::{Clock, Moment};
use crate::edf::Account;
use crate::fair::Tag;
use crate::guarantee::Class;
use crate::heap::Heap;
use crate::users::{Seat, User, UserQueue, Users};
use std::collections::HashMap;

/// The limits of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The part of the wire that guarantees may take together, in millionths; more than a million count as a million.
    /// The rest is always left for the other flows.
    pub utilisation_ppm: u32,
    /// The weight of a guaranteed flow among fair flows once its slice is used up and it has slack. 0 counts as 1.
    pub slack_weight: u32,
    /// The largest number of flows.
    pub most_flows: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { utilisation_ppm: 950_000, slack_weight: 1, most_flows: 65_536 }
    }
}

/// The tier that pays for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// The flow's own slice.
    Slice,
    /// Time that is left over, for a guaranteed flow with slack.
    Slack,
    /// Time that is left over, for a fair flow.
    Fair,
    /// Time that no other flow wants.
    Background,
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This flow sends a frame, charged to this tier.
    Send(u32, How),
    /// Flows wait, but no flow may send before this time of the caller's clock in ns.
    Wait(u64),
    /// No flow has frames.
    Nothing,
}

/// The wire time that a flow has got since it was admitted, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// By its guarantee.
    pub slice_ns: u64,
    /// By slack.
    pub slack_ns: u64,
    /// As a fair flow.
    pub fair_ns: u64,
    /// As a background flow.
    pub background_ns: u64,
    /// Time used beyond its slice, which later periods pay for. 0: none.
    pub deficit_ns: u64,
    /// Periods that ended while the flow had frames waiting.
    pub periods: u64,
    /// Those that ended before the flow got its slice: the driver was late, or slower than the wire it charges for.
    pub periods_missed: u64,
}

/// Decides which flow sends. Times are ns of any clock of the caller; a clock that goes back or leaps does no harm.
#[derive(Clone, Debug)]
pub struct Scheduler {
    options: Options,
    admission: Admission,
    clock: Clock,
    slots: HashMap<u32, u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Guaranteed flows with frames and time left, by the end of the period.
    entitled: Heap<(Moment, u32)>,
    /// Guaranteed flows with frames that used their slices up, by the end of the period.
    spent: Heap<(Moment, u32)>,
    users: Users,
    /// Fair flows, and spent flows with slack.
    fair: UserQueue,
    background: UserQueue,
}

#[derive(Clone, Debug)]
struct Entry {
    flow: u32,
    seat: Seat,
    class: Class,
    ready: bool,
    /// None unless the class is guaranteed.
    account: Option<Account>,
    tag: Tag,
    usage: Usage,
}

impl Scheduler {
    /// A scheduler without flows.
    pub fn new(options: Options) -> Scheduler {
        Scheduler {
            options,
            admission: Admission::new(options.utilisation_ppm),
            clock: Clock::default(),
            slots: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            entitled: Heap::default(),
            spent: Heap::default(),
            users: Users::default(),
            fair: UserQueue::default(),
            background: UserQueue::default(),
        }
    }

    /// Admits a flow of a user, which is idle at first. The weight of `user` counts for all flows of that user from now on.
    /// Allocates.
    ///
    /// # Errors
    /// [`Refusal`] if the flow is known, the class cannot be, guarantees would take too much, or there are too many flows.
    pub fn admit(&mut self, flow: u32, class: Class, user: User, now: u64) -> Result<(), Refusal> {
        let now = self.clock.advance(now);
        if self.slots.contains_key(&flow) {
            return Err(Refusal::Known(flow));
        }
        if self.slots.len() >= self.options.most_flows as usize {
            return Err(Refusal::Flows { most: self.options.most_flows });
        }
        self.admission.take(&class, None)?;
        let (seat, is_new) = self.users.join(user);
        for queue in [&mut self.fair, &mut self.background] {
            queue.make_room(seat, is_new);
        }
        let (tag, usage) = (Tag::default(), Usage::default());
        let entry = Entry { flow, seat, class, ready: false, account: account(&class, now), tag, usage };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                self.grow();
                // `most_flows` has 32 bits.
                (self.entries.len() - 1) as u32
            }
        };
        self.slots.insert(flow, slot);
        Ok(())
    }

    /// Changes the class of a flow, with or without waiting frames. The flow keeps as debt the time by which it is
    /// ahead of its guarantee, and a new period begins. The same class again changes nothing.
    ///
    /// # Errors
    /// [`Refusal`] as for [`Scheduler::admit`], or if the flow is unknown; the flow keeps its class.
    pub fn change(&mut self, flow: u32, class: Class, now: u64) -> Result<(), Refusal> {
        let now = self.clock.advance(now);
        let slot = self.slot(flow).ok_or(Refusal::Unknown(flow))?;
        let entry = &mut self.entries[slot as usize];
        if entry.class == class {
            return Ok(());
        }
        self.admission.take(&class, Some(&entry.class))?;
        match (&mut entry.account, &class) {
            (Some(account), Class::Guaranteed(guarantee)) => account.change(*guarantee, now),
            (place, _) => *place = account(&class, now),
        }
        let shared = |class: &Class| !matches!(class, Class::Background);
        if shared(&class) != shared(&entry.class) {
            // Another queue has another virtual time.
            entry.tag = Tag::default();
        }
        entry.class = class;
        self.leave(slot);
        self.enter(slot);
        Ok(())
    }

    /// Forgets a flow; an unknown one is no error. The share it took is free at once.
    pub fn remove(&mut self, flow: u32) {
        if let Some(slot) = self.slots.remove(&flow) {
            self.leave(slot);
            let entry = &mut self.entries[slot as usize];
            entry.ready = false;
            self.users.part(entry.seat);
            self.admission.give_back(&entry.class);
            self.free.push(slot);
        }
    }

    /// The flow has frames waiting. Nothing changes if it had some before, or is unknown.
    pub fn ready(&mut self, flow: u32, now: u64) {
        let now = self.clock.advance(now);
        let Some(slot) = self.slot(flow) else { return };
        let entry = &mut self.entries[slot as usize];
        if !entry.ready {
            entry.ready = true;
            if let Some(account) = &mut entry.account {
                account.wake(now);
            }
            self.enter(slot);
        }
    }

    /// The flow has no frames waiting. Nothing changes if it had none before, or is unknown. Its idle time begins at the last
    /// time that the scheduler was told, or at the end of its last frame.
    pub fn idle(&mut self, flow: u32) {
        let Some(slot) = self.slot(flow) else { return };
        let entry = &mut self.entries[slot as usize];
        if entry.ready {
            entry.ready = false;
            if let Some(account) = &mut entry.account {
                account.sleep(self.clock.now());
            }
            self.leave(slot);
        }
    }

    /// Decides which flow sends now. The answer stays the same until the scheduler learns of a change, or time passes.
    pub fn next(&mut self, now: u64) -> Choice {
        let now = self.clock.advance(now);
        self.renew(now);
        if let Some((_, slot)) = self.entitled.first() {
            return Choice::Send(self.entries[slot as usize].flow, How::Slice);
        }
        if let Some(slot) = self.fair.choose() {
            let entry = &self.entries[slot as usize];
            return Choice::Send(entry.flow, if entry.account.is_some() { How::Slack } else { How::Fair });
        }
        if let Some(slot) = self.background.choose() {
            return Choice::Send(self.entries[slot as usize].flow, How::Background);
        }
        match self.spent.first() {
            Some(((deadline, _), _)) => Choice::Wait(self.clock.outside(deadline)),
            None => Choice::Nothing,
        }
    }

    /// A frame of the flow goes on the wire at `now` and takes `wire_ns`; `how` comes from [`Scheduler::next`]. A flow
    /// that was removed or changed meanwhile is charged as far as possible.
    ///
    /// `now` must not be before the time of the last call. A step back counts as no time, and the way forward counts
    /// again. So times that go to and fro make the scheduler's clock run fast.
    pub fn charge(&mut self, flow: u32, wire_ns: u64, how: How, now: u64) {
        let now = self.clock.advance(now);
        let Some(slot) = self.slot(flow) else { return };
        let entry = &mut self.entries[slot as usize];
        let sum = match how {
            How::Slice => &mut entry.usage.slice_ns,
            How::Slack => &mut entry.usage.slack_ns,
            How::Fair => &mut entry.usage.fair_ns,
            How::Background => &mut entry.usage.background_ns,
        };
        *sum = sum.saturating_add(wire_ns);
        let of_users = self.users.user(entry.seat).weight;
        match (how, entry.class, &mut entry.account) {
            (How::Slice, _, Some(account)) => {
                let had_time = account.has_time();
                account.charge(wire_ns, now);
                if had_time && !account.has_time() {
                    self.leave(slot);
                    self.enter(slot);
                }
            }
            (How::Slack | How::Fair, Class::Guaranteed(_), _) => {
                let weights = [self.options.slack_weight, of_users];
                self.fair.charge(entry.seat, slot, &mut entry.tag, wire_ns, weights);
            }
            (How::Slack | How::Fair, Class::Fair { weight }, _) => {
                self.fair.charge(entry.seat, slot, &mut entry.tag, wire_ns, [weight, of_users]);
            }
            (How::Background, Class::Background, _) => {
                self.background.charge(entry.seat, slot, &mut entry.tag, wire_ns, [1, of_users]);
            }
            // The flow has another class now, and nothing there to charge.
            (How::Slice, _, None) | (How::Slack | How::Fair, Class::Background, _) | (How::Background, _, _) => {}
        }
    }

    /// The time that a flow got. None: the flow is unknown.
    pub fn usage(&self, flow: u32) -> Option<Usage> {
        let entry = &self.entries[self.slot(flow)? as usize];
        Some(Usage { deficit_ns: entry.account.as_ref().map_or(0, Account::debt_ns), ..entry.usage })
    }

    /// The class of a flow. None: the flow is unknown.
    pub fn class(&self, flow: u32) -> Option<Class> {
        Some(self.entries[self.slot(flow)? as usize].class)
    }

    /// The user of a flow, with the weight that counts now. None: the flow is unknown.
    pub fn user(&self, flow: u32) -> Option<User> {
        Some(self.users.user(self.entries[self.slot(flow)? as usize].seat))
    }

    /// The part of the wire that guarantees have taken, in millionths.
    pub fn taken_ppm(&self) -> u32 {
        self.admission.taken_ppm()
    }

    fn slot(&self, flow: u32) -> Option<u32> {
        self.slots.get(&flow).copied()
    }

    fn grow(&mut self) {
        // Doubling, so that admitting n flows takes O(n).
        let slots = self.entries.len().next_power_of_two();
        for heap in [&mut self.entitled, &mut self.spent] {
            heap.grow(slots);
        }
        self.free.reserve(self.entries.len());
    }

    /// Begins all periods that are due.
    fn renew(&mut self, now: Moment) {
        let due = |heap: &Heap<(Moment, u32)>| heap.first().filter(|((deadline, _), _)| *deadline <= now);
        while let Some((_, slot)) = due(&self.entitled).or_else(|| due(&self.spent)) {
            let entry = &mut self.entries[slot as usize];
            if let Some(account) = &mut entry.account {
                let ended = account.renew(now);
                entry.usage.periods = entry.usage.periods.saturating_add(ended.periods);
                entry.usage.periods_missed = entry.usage.periods_missed.saturating_add(ended.missed);
            }
            self.leave(slot);
            self.enter(slot);
        }
    }

    /// Puts a flow with frames into its queues.
    fn enter(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        if !entry.ready {
            return;
        }
        match (&entry.account, entry.class) {
            (Some(account), _) => {
                let key = (account.deadline(), entry.flow);
                if account.has_time() {
                    self.entitled.set(slot, key);
                    return;
                }
                self.spent.set(slot, key);
                if account.slack() {
                    self.fair.enter(entry.seat, slot, &mut entry.tag);
                }
            }
            (None, Class::Background) => self.background.enter(entry.seat, slot, &mut entry.tag),
            (None, _) => self.fair.enter(entry.seat, slot, &mut entry.tag),
        }
    }

    fn leave(&mut self, slot: u32) {
        self.entitled.remove(slot);
        self.spent.remove(slot);
        let seat = self.entries[slot as usize].seat;
        self.fair.leave(seat);
        self.background.leave(seat);
    }
}

fn account(class: &Class, now: Moment) -> Option<Account> {
    match class {
        Class::Guaranteed(guarantee) => Some(Account::new(*guarantee, now)),
        Class::Fair { .. } | Class::Background => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparisons(scheduler: &Scheduler) -> u64 {
        let guarantees = scheduler.entitled.comparisons + scheduler.spent.comparisons;
        guarantees + scheduler.fair.comparisons() + scheduler.background.comparisons()
    }

    /// The mean and the largest number of comparisons in a decision, with `flows` guaranteed and as many fair flows, of
    /// `users` users.
    fn cost(flows: u32, users: u32) -> (u64, u64) {
        const DECISIONS: u64 = 50_000;
        let mut scheduler = Scheduler::new(Options::default());
        for flow in 0..flows {
            // Flows come one after the other, and so do their periods.
            let now = u64::from(flow) * (100_000_000 / u64::from(flows));
            let guarantee = format!("{}ns/100ms+slack", 50_000_000 / flows).parse().unwrap();
            let user = User { number: flow % users, weight: flow % users + 1 };
            scheduler.admit(flow, Class::Guaranteed(guarantee), user, now).unwrap();
            scheduler.admit(flow + flows, Class::Fair { weight: flow % 9 + 1 }, user, now).unwrap();
            scheduler.ready(flow, now);
            scheduler.ready(flow + flows, now);
        }
        // A frame is the larger part of a slice, however many slices there are.
        let wire_ns = u64::from(40_000_000 / flows);
        let (mut now, mut most, begin) = (100_000_000, 0, comparisons(&scheduler));
        for _ in 0..DECISIONS {
            let before = comparisons(&scheduler);
            let Choice::Send(flow, how) = scheduler.next(now) else { panic!("flows wait") };
            scheduler.charge(flow, wire_ns, how, now);
            now += wire_ns;
            most = most.max(comparisons(&scheduler) - before);
        }
        ((comparisons(&scheduler) - begin) / DECISIONS, most)
    }

    #[test]
    fn a_decision_takes_a_logarithmic_number_of_comparisons() {
        for users in [1, 100] {
            let (small, large) = (cost(100, users), cost(10_000, users));
            // 20,000 flows are 15 levels, two comparisons each, in at most three heaps for the frame and for a period that begins.
            // The heap of users and those of their flows have as many levels together.
            assert!(large.0 <= 100 && large.1 <= 400, "{large:?}");
            assert!(large.0 <= 3 * small.0, "{small:?} {large:?}");
        }
    }

    #[test]
    fn changes_are_live_and_all_or_nothing() {
        let class = |text: &str| Class::Guaranteed(text.parse().unwrap());
        let user = User::default();
        let mut scheduler = Scheduler::new(Options { most_flows: 3, ..Options::default() });
        scheduler.admit(1, class("50ms/100ms"), user, 0).unwrap();
        scheduler.admit(2, class("40ms/100ms"), user, 0).unwrap();
        assert_eq!(scheduler.admit(2, Class::Background, user, 0), Err(Refusal::Known(2)));
        assert_eq!(scheduler.change(9, Class::Background, 0), Err(Refusal::Unknown(9)));
        assert_eq!(scheduler.change(1, Class::Fair { weight: 0 }, 0), Err(Refusal::NoWeight));
        let refusal = scheduler.change(1, class("60ms/100ms"), 0).unwrap_err().to_string();
        assert!(refusal.ends_with("55 % is left: 55ms/100ms would fit"), "{refusal}");
        assert_eq!(scheduler.class(1), Some(class("50ms/100ms")));
        scheduler.change(2, class("10ms/100ms"), 0).unwrap();
        scheduler.change(1, class("60ms/100ms"), 0).unwrap();
        scheduler.admit(3, Class::Background, user, 0).unwrap();
        assert_eq!(scheduler.admit(4, Class::Background, user, 0), Err(Refusal::Flows { most: 3 }));
        scheduler.remove(1);
        assert_eq!(scheduler.taken_ppm(), 100_000);
        assert_eq!((scheduler.usage(1), scheduler.next(0)), (None, Choice::Nothing));
    }
}
