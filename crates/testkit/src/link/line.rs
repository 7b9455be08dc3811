//! One direction of a link. The caller gives the time, counted from the link's start.

use crate::random::Random;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Most frames that one direction holds, queued and on their way. Further ones are counted as overflowed.
pub const HELD_FRAMES_MAX: usize = 1 << 16;

const MILLION: u64 = 1_000_000;

/// Conditions on a link. The default is a perfect link.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Delay in one direction.
    pub delay: Duration,
    /// A frame takes up to this much longer. Frames stay in order.
    pub jitter: Duration,
    /// Of a million frames, lost on average.
    pub lost: u32,
    /// Of a million frames, doubled on average.
    pub doubled: u32,
    /// Of a million frames, sent [`reordered_by`](Conditions::reordered_by) later, on average.
    pub reordered: u32,
    /// How much later a reordered frame is. Other frames do not wait for it.
    pub reordered_by: Duration,
    /// Bits per second, for whole frames. `None`: no limit.
    pub rate: Option<u64>,
    /// Most frames that wait for the rate. A frame that finds the queue full is lost, and counted as overflowed.
    pub queue_frames: usize,
    /// Seed of the random numbers. The same seed and the same number of frames give the same losses, copies and delays.
    pub seed: u64,
}

impl Default for Conditions {
    fn default() -> Conditions {
        Conditions {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            lost: 0,
            doubled: 0,
            reordered: 0,
            reordered_by: Duration::ZERO,
            rate: None,
            queue_frames: 1_000,
            seed: 1,
        }
    }
}

/// The counts of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that came.
    pub taken: u64,
    /// Frames lost by chance.
    pub lost: u64,
    /// Frames lost because the queue was full.
    pub overflowed: u64,
    /// Frames that got a second copy.
    pub doubled: u64,
    /// Frames that were sent later than their place.
    pub reordered: u64,
    /// Frames and copies sent.
    pub sent: u64,
    /// Frames and copies that the device did not take.
    pub refused: u64,
    /// Frames and copies on their way.
    pub waiting: u64,
    /// Frames that the emulator did not see, because it was too slow. A test of exact counts wants 0.
    pub missed: u64,
}

impl Counts {
    /// Whether every frame is accounted for.
    pub fn add_up(&self) -> bool {
        self.taken + self.doubled == self.lost + self.overflowed + self.sent + self.refused + self.waiting
    }
}

/// One direction.
#[derive(Debug)]
pub(super) struct Line {
    conditions: Conditions,
    random: Random,
    /// For each frame in the queue: when its sending begins, by the rate.
    queue: VecDeque<Duration>,
    /// When the rate allows the next frame.
    free: Duration,
    /// When the latest frame in its place leaves.
    latest: Duration,
    /// Frames on their way, by the time when they leave, and a number.
    held: BTreeMap<(Duration, u64), Vec<u8>>,
    number: u64,
    counts: Counts,
}

impl Line {
    pub(super) fn new(conditions: Conditions) -> Line {
        // A xorshift with a small seed gives small numbers for a while, and never leaves 0.
        let seed = conditions.seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).max(1);
        let mut random = Random(seed);
        for _ in 0..8 {
            random.number();
        }
        Line {
            conditions,
            random,
            queue: VecDeque::new(),
            free: Duration::ZERO,
            latest: Duration::ZERO,
            held: BTreeMap::new(),
            number: 0,
            counts: Counts::default(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts { waiting: self.held.len() as u64, ..self.counts }
    }

    /// When the next frame leaves.
    pub(super) fn next(&self) -> Option<Duration> {
        self.held.first_key_value().map(|((time, _), _)| *time)
    }

    /// True with a probability of `of_a_million` in a million.
    fn chance(&mut self, of_a_million: u32) -> bool {
        (self.random.number() >> 20) % MILLION < of_a_million.into()
    }

    /// Takes a frame that came at `now`.
    pub(super) fn take(&mut self, now: Duration, frame: Vec<u8>) {
        let conditions = self.conditions;
        self.counts.taken += 1;
        // Each frame draws four numbers, so that no frame affects the next.
        let [is_lost, is_doubled, is_reordered] =
            [conditions.lost, conditions.doubled, conditions.reordered].map(|rate| self.chance(rate));
        let fraction = (self.random.number() >> 32) as f64 / f64::from(u32::MAX);
        while self.queue.front().is_some_and(|begins| *begins <= now) {
            self.queue.pop_front();
        }
        let is_full = conditions.rate.is_some() && self.queue.len() >= conditions.queue_frames && self.free > now;
        if is_full || self.held.len() + 1 >= HELD_FRAMES_MAX {
            self.counts.overflowed += 1;
            return;
        }
        let mut leaves = now;
        if let Some(rate) = conditions.rate {
            let begins = self.free.max(now);
            if begins > now {
                self.queue.push_back(begins);
            }
            self.free = begins + Duration::from_secs_f64(frame.len() as f64 * 8.0 / rate.max(1) as f64);
            leaves = self.free;
        }
        // A frame lost behind the queue has used its part of the rate.
        if is_lost {
            self.counts.lost += 1;
            return;
        }
        leaves += conditions.delay + conditions.jitter.mul_f64(fraction);
        if is_reordered {
            self.counts.reordered += 1;
            leaves += conditions.reordered_by;
        } else {
            leaves = leaves.max(self.latest);
            self.latest = leaves;
        }
        if is_doubled {
            self.counts.doubled += 1;
            self.hold(leaves, frame.clone());
        }
        self.hold(leaves, frame);
    }

    fn hold(&mut self, leaves: Duration, frame: Vec<u8>) {
        self.number += 1;
        self.held.insert((leaves, self.number), frame);
    }

    /// Frames that leave by `now`, at most `count`. The caller reports the result by [`left`](Line::left).
    pub(super) fn due(&mut self, now: Duration, count: usize) -> Vec<Vec<u8>> {
        let mut due = Vec::new();
        while due.len() < count
            && let Some(entry) = self.held.first_entry().filter(|entry| entry.key().0 <= now)
        {
            due.push(entry.remove());
        }
        due
    }

    /// Of the frames that were due, `sent` were sent and `refused` were not taken.
    pub(super) fn left(&mut self, sent: usize, refused: usize) {
        self.counts.sent += sent as u64;
        self.counts.refused += refused as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Sends `count` frames of 1,000 bytes, one every `interval`. Gives when each left, and the counts.
    fn run(conditions: Conditions, count: u16, interval: Duration) -> (Vec<(Duration, u16)>, Counts) {
        let mut line = Line::new(conditions);
        let mut left = Vec::new();
        for number in 0..count {
            let mut frame = vec![0; 1_000];
            frame[..2].copy_from_slice(&number.to_be_bytes());
            line.take(interval * number.into(), frame);
            assert!(line.counts().add_up(), "{:?}", line.counts());
        }
        while let Some(next) = line.next() {
            let before = next.saturating_sub(Duration::from_nanos(1));
            assert!(before == next || line.due(before, 9).is_empty());
            let due = line.due(next, 9);
            line.left(due.len(), 0);
            left.extend(due.iter().map(|frame| (next, u16::from_be_bytes([frame[0], frame[1]]))));
            assert!(line.counts().add_up(), "{:?}", line.counts());
        }
        (left, line.counts())
    }

    #[test]
    fn frames_leave_after_the_delay_and_jitter_keeps_their_order() {
        let conditions = Conditions { delay: 5 * MS, ..Conditions::default() };
        let (left, counts) = run(conditions, 100, MS);
        assert!(left.iter().all(|(time, number)| *time == 5 * MS + MS * u32::from(*number)));
        assert_eq!((counts.taken, counts.sent), (100, 100));
        let (left, _) = run(Conditions { jitter: 20 * MS, ..conditions }, 1_000, MS);
        assert_eq!(left.len(), 1_000);
        let on_time = |(time, number): &(Duration, u16)| {
            let late = *time - MS * u32::from(*number) - 5 * MS;
            (Duration::ZERO..=20 * MS).contains(&late)
        };
        assert!(left.iter().all(on_time) && left.is_sorted_by_key(|(_, number)| *number));
        assert!(left.windows(2).any(|two| two[1].0 - two[0].0 > 2 * MS), "there is jitter");
    }

    #[test]
    fn losses_and_doubles_come_as_often_as_asked_for_and_the_same_every_time() {
        let conditions = Conditions { lost: 10_000, doubled: 20_000, ..Conditions::default() };
        let (left, counts) = run(conditions, 60_000, MS / 100);
        assert!((450..750).contains(&counts.lost) && (1_000..1_400).contains(&counts.doubled), "{counts:?}");
        assert_eq!(left.len() as u64, 60_000 - counts.lost + counts.doubled);
        assert_eq!(run(conditions, 60_000, MS / 100), (left.clone(), counts));
        assert_ne!(run(Conditions { seed: 2, ..conditions }, 60_000, MS / 100).0, left);
    }

    #[test]
    fn a_reordered_frame_is_overtaken() {
        let conditions = Conditions { reordered: 100_000, reordered_by: 5 * MS, ..Conditions::default() };
        let (left, counts) = run(conditions, 1_000, MS);
        assert!((60..150).contains(&counts.reordered), "{counts:?}");
        let late = left.iter().filter(|(time, number)| *time == MS * u32::from(*number) + 5 * MS).count();
        assert_eq!((late as u64, left.len()), (counts.reordered, 1_000));
        assert!(!left.is_sorted_by_key(|(_, number)| *number));
    }

    #[test]
    fn a_rate_spaces_frames_and_a_full_queue_loses_the_last() {
        // 1,000 bytes at 8 Mbit/s take a millisecond.
        let conditions = Conditions { rate: Some(8_000_000), queue_frames: 10, ..Conditions::default() };
        let (left, counts) = run(conditions, 100, Duration::ZERO);
        assert_eq!((counts.overflowed, counts.sent), (89, 11), "one on the wire and ten behind it");
        let expected: Vec<_> = (0..11).map(|number| (MS * u32::from(number + 1), number)).collect();
        assert_eq!(left, expected);
        let (left, counts) = run(conditions, 100, 2 * MS);
        assert_eq!((counts.overflowed, left[99].0), (0, 2 * MS * 99 + MS));
    }
}
