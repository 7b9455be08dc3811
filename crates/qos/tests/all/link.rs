//! Schedulers on simulated links: shares, delays and what is left over, at 100 Mb/s and 1 Gb/s, with long and short frames.

use qos::{Choice, Class, How, Options, Scheduler, User, Wire};
use std::collections::HashMap;
use std::num::NonZeroU64;

const MS: u64 = 1_000_000;
const SPEEDS: [u64; 2] = [100_000_000, 1_000_000_000];
const FRAMES: [usize; 2] = [1514, 64];

fn guaranteed(text: &str) -> Class {
    Class::Guaranteed(text.parse().unwrap())
}

/// A link and its flows. All are backlogged, except those with arrivals.
struct Link {
    scheduler: Scheduler,
    wire: Wire,
    frame_bytes: usize,
    now: u64,
    /// Wire time of each flow since the last look.
    sent: HashMap<u32, u64>,
}

impl Link {
    fn new(bits_per_second: u64, frame_bytes: usize) -> Link {
        let wire = Wire::ethernet(NonZeroU64::new(bits_per_second).unwrap());
        Link { scheduler: Scheduler::new(Options::default()), wire, frame_bytes, now: 0, sent: HashMap::new() }
    }

    fn frame_ns(&self) -> u64 {
        self.wire.clone().time_ns(self.frame_bytes) + 1
    }

    fn join(&mut self, flow: u32, class: Class) {
        self.join_of(User::default(), flow, class);
    }

    fn join_of(&mut self, user: User, flow: u32, class: Class) {
        self.scheduler.admit(flow, class, user, self.now).unwrap();
        self.scheduler.ready(flow, self.now);
    }

    /// One frame, or a wait that ends at `end` at the latest. Gives the flow that sent.
    fn step(&mut self, end: u64) -> Option<u32> {
        match self.scheduler.next(self.now) {
            Choice::Send(flow, how) => {
                let wire_ns = self.wire.time_ns(self.frame_bytes);
                self.scheduler.charge(flow, wire_ns, how, self.now);
                *self.sent.entry(flow).or_default() += wire_ns;
                self.now += wire_ns;
                Some(flow)
            }
            Choice::Wait(until) => {
                assert!(until > self.now);
                self.now = until.min(end);
                None
            }
            Choice::Nothing => {
                self.now = end;
                None
            }
        }
    }

    /// Runs until `end`, and gives the wire time of each flow meanwhile.
    fn run(&mut self, end: u64) -> HashMap<u32, u64> {
        while self.now < end {
            self.step(end);
        }
        std::mem::take(&mut self.sent)
    }
}

/// Runs a check at both speeds with both lengths.
fn on_each_link(check: impl Fn(Link)) {
    for speed in SPEEDS {
        for bytes in FRAMES {
            check(Link::new(speed, bytes));
        }
    }
}

fn assert_near(found: u64, expected: u64, most: u64, place: &str) {
    assert!(found.abs_diff(expected) <= most, "{place}: {found} ns for {expected} ns, {most} ns off at most");
}

#[test]
fn six_senders_get_their_slices() {
    on_each_link(|mut link| {
        let frame = link.frame_ns();
        for flow in 1..=6 {
            link.join(flow, guaranteed(&format!("{}ms/100ms", 4 * flow)));
        }
        let mut sums = HashMap::<u32, u64>::new();
        for window in 1..=100 {
            let sent = link.run(window * 100 * MS);
            for flow in 1..=6 {
                let slice = u64::from(flow) * 4 * MS;
                assert_near(sent[&flow], slice, frame + slice / 50, "a window");
                *sums.entry(flow).or_default() += sent[&flow];
            }
        }
        for (flow, sum) in sums {
            // Debts carry over, and the sum is off by a frame.
            assert_near(sum, u64::from(flow) * 400 * MS, frame, "ten seconds");
            assert_eq!(link.scheduler.usage(flow).unwrap().periods_missed, 0);
        }
    });
}

#[test]
fn control_frames_wait_less_than_a_period() {
    const CONTROL: u32 = 100;
    on_each_link(|mut link| {
        for flow in 1..=6 {
            link.join(flow, guaranteed(&format!("{}ms/100ms+slack", 4 * flow)));
        }
        link.join(7, Class::Fair { weight: 1000 });
        link.scheduler.admit(CONTROL, guaranteed("200us/10ms"), User::default(), 0).unwrap();
        let (mut random, mut due, mut waiting) = (1_u64, 5 * MS, None);
        let (mut frames, mut most) = (0, 0);
        while link.now < 5_000 * MS {
            if link.now >= due && waiting.is_none() {
                waiting = Some(due);
                link.scheduler.ready(CONTROL, link.now);
            }
            if link.step(u64::MAX) == Some(CONTROL) {
                most = most.max(link.now - waiting.take().unwrap());
                link.scheduler.idle(CONTROL);
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                due = link.now + 8 * MS + (random >> 33) % (20 * MS);
                frames += 1;
            }
        }
        assert!(frames > 100 && most <= 10 * MS + 2 * link.frame_ns(), "{frames} frames, {most} ns at most");
    });
}

#[test]
fn guaranteed_flows_join_and_best_effort_gets_the_rest() {
    for best_effort in [Class::Fair { weight: 1 }, guaranteed("1ms/100ms+slack")] {
        on_each_link(|mut link| {
            let own = if matches!(best_effort, Class::Fair { .. }) { 0 } else { 1 };
            link.join(0, best_effort);
            for round in 1..=4_u64 {
                // Two seconds instead of five: twenty periods.
                let length = 2_000 * MS;
                let sent = link.run(link.now + length);
                let mut taken = 0;
                for flow in 1..round {
                    let slice = (5 + flow) * length / 100;
                    let got = sent[&(flow as u32)];
                    assert!(got + link.frame_ns() >= slice - slice / 200, "flow {flow}: {got} of {slice}");
                    taken += slice;
                }
                let (got, rest) = (sent[&0], length - taken);
                assert!(got * 100 >= rest * 97, "best effort got {got} of {rest}");
                assert!(own == 0 || link.scheduler.usage(0).unwrap().slice_ns >= round * length / 100 - MS);
                link.join(round as u32, guaranteed(&format!("{}ms/100ms", 5 + round)));
            }
        });
    }
}

#[test]
fn best_effort_senders_share_by_weight() {
    for weights in [[1, 1], [1, 3]] {
        on_each_link(|mut link| {
            let most = 3 * link.frame_ns();
            link.join(9, guaranteed("20ms/100ms"));
            for (flow, weight) in (0..).zip(weights) {
                link.join(flow, Class::Fair { weight });
            }
            for window in 1..=30 {
                let sent = link.run(window * 100 * MS);
                let each = (sent[&0] + sent[&1]) / u64::from(weights[0] + weights[1]);
                for (flow, weight) in (0..).zip(weights) {
                    assert_near(sent[&flow], each * u64::from(weight), most, "a fair share");
                }
            }
        });
    }
}

/// A user with one flow and a user with 200, all of this class. Gives the wire time of each user.
fn one_against_many(link: &mut Link, class: Class, weights: [u32; 2]) -> [u64; 2] {
    for flow in 0..=200 {
        let number = u32::from(flow > 0);
        link.join_of(User { number, weight: weights[number as usize] }, flow, class);
    }
    times_of_users(link)
}

/// The wire time of flow 0, and of all others, in the time of a thousand frames.
fn times_of_users(link: &mut Link) -> [u64; 2] {
    let sent = link.run(link.now + 1000 * link.frame_ns());
    let one = sent.get(&0).copied().unwrap_or_default();
    [one, sent.values().sum::<u64>() - one]
}

#[test]
fn users_share_equally_however_many_flows_each_has() {
    for class in [Class::Fair { weight: 1 }, Class::Fair { weight: 1000 }, Class::Background] {
        on_each_link(|mut link| {
            let [one, many] = one_against_many(&mut link, class, [1, 1]);
            assert_near(one, many, 2 * link.frame_ns(), "a user");
        });
    }
}

#[test]
fn users_share_by_their_weights_and_flows_within_a_user_by_theirs() {
    on_each_link(|mut link| {
        let [one, many] = one_against_many(&mut link, Class::Fair { weight: 1 }, [1, 3]);
        assert_near(3 * one, many, 6 * link.frame_ns(), "a weighted user");
    });
    let mut link = Link::new(SPEEDS[1], FRAMES[1]);
    for (flow, weight, number) in [(0, 1, 0), (1, 3, 0), (2, 10, 1)] {
        link.join_of(User { number, weight: 1 }, flow, Class::Fair { weight });
    }
    let sent = link.run(8 * MS);
    for (flow, ms) in [(0, 1), (1, 3), (2, 4)] {
        assert_near(sent[&flow], ms * MS, 4 * link.frame_ns(), "a flow of a user");
    }
}

#[test]
fn a_user_neither_gains_nor_loses_by_going_idle() {
    on_each_link(|mut link| {
        one_against_many(&mut link, Class::Fair { weight: 1 }, [1, 1]);
        link.scheduler.idle(0);
        assert_eq!(times_of_users(&mut link)[0], 0);
        link.scheduler.ready(0, link.now);
        let [one, many] = times_of_users(&mut link);
        assert_near(one, many, 2 * link.frame_ns(), "after a pause");
        // Its flow rests, or is closed and opened anew, after each of its frames: its turns are the same.
        for is_closed in [false, true] {
            let (begin, mut one, mut many) = (link.now, 0, 0);
            while link.now < begin + 1000 * link.frame_ns() {
                let flow = link.step(u64::MAX).unwrap();
                *if flow == 0 { &mut one } else { &mut many } += 1;
                if flow == 0 {
                    if is_closed {
                        link.scheduler.remove(0);
                        link.scheduler.admit(0, Class::Fair { weight: 1 }, User::default(), link.now).unwrap();
                    }
                    link.scheduler.idle(0);
                    link.scheduler.ready(0, link.now);
                }
            }
            assert_near(one, many, 2, "frames of a user that rests for no time");
        }
    });
}

#[test]
fn a_slice_is_its_flows_own_however_its_user_shares() {
    on_each_link(|mut link| {
        let (frame, many_of) = (link.frame_ns(), User { number: 1, weight: 1 });
        link.join_of(many_of, 500, guaranteed(&format!("{}ns/{}ns", 30 * frame, 100 * frame)));
        let [one, many] = one_against_many(&mut link, Class::Fair { weight: 1 }, [1, 1]);
        // The slice is not charged to its user's part of the rest.
        let slice = link.scheduler.usage(500).unwrap().slice_ns;
        assert_near(slice, 300 * frame, 2 * frame, "the slice");
        assert_near(one, many - slice, 2 * frame, "the rest");
    });
}

#[test]
fn background_gets_only_idle_time() {
    let mut link = Link::new(SPEEDS[0], FRAMES[0]);
    link.join(1, guaranteed("10ms/100ms"));
    link.join(2, Class::Fair { weight: 1 });
    link.join(3, Class::Background);
    assert!(!link.run(1_000 * MS).contains_key(&3));
    link.scheduler.idle(2);
    let sent = link.run(2_000 * MS);
    assert_near(sent[&3], 900 * MS, 2 * link.frame_ns(), "background");
    assert_eq!(link.scheduler.usage(3).unwrap().background_ns, sent[&3]);
}

#[test]
fn a_live_change_takes_effect() {
    let mut link = Link::new(SPEEDS[1], FRAMES[0]);
    link.join(1, guaranteed("10ms/100ms"));
    for (slice, begin) in [(40, 1_030), (5, 3_070), (25, 5_001)] {
        link.run(begin * MS);
        link.scheduler.change(1, guaranteed(&format!("{slice}ms/100ms")), link.now).unwrap();
        let sent = link.run((begin + 1_500) * MS);
        // The debt or the last period may cost or give one slice.
        assert_near(sent[&1], slice * 15 * MS, 40 * MS, "after a change");
    }
}

#[test]
fn a_ring_that_empties_for_a_moment_costs_nothing() {
    let mut link = Link::new(SPEEDS[0], FRAMES[0]);
    link.join(1, guaranteed("20ms/100ms"));
    link.join(2, guaranteed("70ms/100ms"));
    while link.now < 2_000 * MS {
        if let Some(flow) = link.step(u64::MAX) {
            link.scheduler.idle(flow);
            link.scheduler.ready(flow, link.now);
        }
    }
    for (flow, expected) in [(1, 400 * MS), (2, 1_400 * MS)] {
        assert_near(link.sent[&flow], expected, 2 * link.frame_ns(), "toggling");
        let usage = link.scheduler.usage(flow).unwrap();
        assert_eq!((usage.slice_ns, usage.slack_ns), (link.sent[&flow], 0));
    }
}

#[test]
fn slack_is_charged_as_slack() {
    let mut link = Link::new(SPEEDS[1], FRAMES[1]);
    link.join(1, guaranteed("10ms/100ms+slack"));
    link.join(2, guaranteed("30ms/100ms"));
    link.run(1_000 * MS);
    let usage = link.scheduler.usage(1).unwrap();
    assert_near(usage.slice_ns, 100 * MS, 2 * link.frame_ns(), "slice");
    assert_near(usage.slack_ns, 600 * MS, 4 * link.frame_ns(), "slack");
    assert_eq!(link.scheduler.next(link.now), Choice::Send(1, How::Slice));
}
