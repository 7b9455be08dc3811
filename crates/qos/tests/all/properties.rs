//! Arbitrary sequences of operations keep the promises of the scheduler.

use proptest::prelude::*;
use qos::{Choice, Class, Guarantee, How, Options, Scheduler, User};
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;
const LONGEST_FRAME_NS: u64 = 123_040;

#[derive(Clone, Debug)]
enum Step {
    Admit(u32, Class),
    Change(u32, Class),
    Remove(u32),
    Ready(u32),
    Idle(u32),
    Pass(u64),
    Leap(u64),
    Send(u64),
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![
        4 => (1..40 * MS, 1..200 * MS, any::<bool>())
            .prop_map(|(slice_ns, period_ns, slack)| Class::Guaranteed(Guarantee { slice_ns, period_ns, slack })),
        2 => (0..9_u32).prop_map(|weight| Class::Fair { weight }),
        1 => Just(Class::Background),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let flow = 0..12_u32;
    prop_oneof![
        2 => (flow.clone(), class()).prop_map(|(flow, class)| Step::Admit(flow, class)),
        1 => (flow.clone(), class()).prop_map(|(flow, class)| Step::Change(flow, class)),
        1 => flow.clone().prop_map(Step::Remove),
        4 => flow.clone().prop_map(Step::Ready),
        2 => flow.prop_map(Step::Idle),
        4 => (0..20 * MS).prop_map(Step::Pass),
        1 => any::<u64>().prop_map(Step::Leap),
        20 => (1..=LONGEST_FRAME_NS).prop_map(Step::Send),
    ]
}

/// Three users have the flows.
fn user(flow: u32) -> User {
    User { number: flow % 3, weight: 1 + flow % 2 }
}

/// A flow as the test sees it.
struct Flow {
    class: Class,
    ready: bool,
    /// While it is guaranteed: what its rate gave until `since`, what it got, and its longest slice.
    given: f64,
    since: f64,
    got: f64,
    longest: f64,
}

impl Flow {
    fn new(class: Class, since: f64) -> Flow {
        let longest = if let Class::Guaranteed(one) = class { one.slice_ns as f64 } else { 0.0 };
        Flow { class, ready: false, given: 0.0, since, got: 0.0, longest }
    }

    fn entitled_to(&self, now: f64) -> f64 {
        let rate =
            if let Class::Guaranteed(one) = self.class { one.slice_ns as f64 / one.period_ns as f64 } else { 0.0 };
        self.given + rate * (now - self.since)
    }

    fn change(&mut self, class: Class, now: f64) {
        let both = matches!((self.class, class), (Class::Guaranteed(_), Class::Guaranteed(_)));
        let (given, old) = (self.entitled_to(now), std::mem::replace(self, Flow::new(class, now)));
        self.ready = old.ready;
        if both {
            (self.given, self.got, self.longest) = (given, old.got, self.longest.max(old.longest));
        }
    }

    fn may_use_slack(&self) -> bool {
        !matches!(self.class, Class::Guaranteed(Guarantee { slack: false, .. }) | Class::Background)
    }
}

fn check_choice(choice: Choice, flows: &BTreeMap<u32, Flow>, now: u64) {
    let ready = || flows.values().filter(|flow| flow.ready);
    match choice {
        Choice::Send(flow, how) => {
            let flow = &flows[&flow];
            assert!(flow.ready);
            let fits = match how {
                How::Slice => matches!(flow.class, Class::Guaranteed(_)),
                How::Slack => matches!(flow.class, Class::Guaranteed(Guarantee { slack: true, .. })),
                How::Fair => matches!(flow.class, Class::Fair { .. }),
                How::Background => flow.class == Class::Background && !ready().any(Flow::may_use_slack),
            };
            assert!(fits, "{how:?} for {:?}", flow.class);
        }
        Choice::Wait(until) => {
            assert!(until > now || now == u64::MAX);
            assert!(ready().next().is_some());
            assert!(ready().all(|flow| matches!(flow.class, Class::Guaranteed(Guarantee { slack: false, .. }))));
        }
        Choice::Nothing => assert!(ready().next().is_none()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn promises_hold_in_any_order(steps in prop::collection::vec(step(), 1..500)) {
        let mut scheduler = Scheduler::new(Options { most_flows: 8, ..Options::default() });
        let mut flows = BTreeMap::<u32, Flow>::new();
        // The caller's time, and the sum of its steps forward.
        let (mut now, mut passed) = (0_u64, 0.0);
        scheduler.next(now);
        for step in steps {
            match step {
                Step::Admit(flow, class) => {
                    if scheduler.admit(flow, class, user(flow), now).is_ok() {
                        prop_assert!(flows.insert(flow, Flow::new(class, passed)).is_none());
                    }
                }
                Step::Change(flow, class) => match scheduler.change(flow, class, now) {
                    Ok(()) => flows.get_mut(&flow).unwrap().change(class, passed),
                    Err(_) => prop_assert_eq!(scheduler.class(flow), flows.get(&flow).map(|flow| flow.class)),
                },
                Step::Remove(flow) => {
                    scheduler.remove(flow);
                    flows.remove(&flow);
                }
                Step::Ready(flow) => {
                    scheduler.ready(flow, now);
                    flows.entry(flow).and_modify(|flow| flow.ready = true);
                }
                Step::Idle(flow) => {
                    scheduler.idle(flow);
                    flows.entry(flow).and_modify(|flow| flow.ready = false);
                }
                Step::Pass(ns) => {
                    let later = now.saturating_add(ns);
                    passed += (later - now) as f64;
                    now = later;
                }
                Step::Leap(to) => {
                    passed += to.saturating_sub(now) as f64;
                    now = to;
                    // The scheduler has to see each leap to add up the same time.
                    scheduler.next(now);
                }
                Step::Send(wire_ns) => if let Choice::Send(flow, how) = scheduler.next(now) {
                    scheduler.charge(flow, wire_ns, how, now);
                    if how == How::Slice {
                        let flow = flows.get_mut(&flow).unwrap();
                        flow.got += wire_ns as f64;
                        // Leaps are long, and f64 has 53 bits.
                        let most = flow.entitled_to(passed) * (1.0 + 1e-9) + flow.longest + LONGEST_FRAME_NS as f64;
                        prop_assert!(flow.got <= most + passed * 1e-12, "{} of {most}", flow.got);
                    }
                },
            }
            let choice = scheduler.next(now);
            check_choice(choice, &flows, now);
            prop_assert_eq!(scheduler.next(now), choice);
            prop_assert!(scheduler.taken_ppm() <= 950_000);
        }
    }

    #[test]
    fn backlogged_guarantees_get_their_slice_in_each_period(
        shares in prop::collection::vec((1..40_u64, 20..200_u64, any::<bool>()), 1..8),
        frames in prop::collection::vec(700..12_305_u64, 1..20),
    ) {
        let mut scheduler = Scheduler::new(Options::default());
        let mut slices = Vec::new();
        for (flow, (percent, period_ms, slack)) in (0..).zip(shares) {
            let guarantee = Guarantee { slice_ns: percent * period_ms * MS / 100, period_ns: period_ms * MS, slack };
            if scheduler.admit(flow, Class::Guaranteed(guarantee), user(flow), 0).is_ok() {
                scheduler.ready(flow, 0);
                slices.push((flow, guarantee, 0, 0));
            }
        }
        scheduler.admit(100, Class::Fair { weight: 1000 }, user(100), 0).unwrap();
        scheduler.ready(100, 0);
        let (mut now, mut lengths) = (0, frames.iter().cycle());
        while now < 600 * MS {
            for (flow, guarantee, end, before) in &mut slices {
                if now >= *end {
                    let got = scheduler.usage(*flow).unwrap().slice_ns;
                    // The debt of the period before, and the frame that runs over.
                    let off = (got - *before).abs_diff(guarantee.slice_ns);
                    prop_assert!(*end == 0 || off <= 12_305, "{guarantee}: {off} ns off");
                    (*end, *before) = (*end + guarantee.period_ns, got);
                }
            }
            let choice = scheduler.next(now);
            let Choice::Send(flow, how) = choice else { panic!("{choice:?} although a fair flow has frames") };
            let wire_ns = *lengths.next().unwrap();
            scheduler.charge(flow, wire_ns, how, now);
            now += wire_ns;
        }
        for (flow, ..) in slices {
            prop_assert_eq!(scheduler.usage(flow).unwrap().periods_missed, 0);
        }
    }
}
