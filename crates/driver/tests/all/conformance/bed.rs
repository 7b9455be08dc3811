//! The setting of a check: sends frames to a device, observes the frames that it sends, and controls the device.

use driver::{Error, Instruction, Receive, Transmit, Turn};
use std::time::{Duration, Instant};
use testkit::network::End;

/// Longest time for anything before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// See frames that the host sends.
    Outgoing,
    Filter,
    /// Give frames of 64 KiB.
    LargestFrames,
    /// Be switched off and on, and be removed.
    Link,
    Promiscuity,
    Limits,
    Times,
    /// Drop frames without room.
    Overload,
    /// Give the frames from before the device was removed.
    LastFrames,
}

#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub filter: Option<Vec<Instruction>>,
    pub small: bool,
    /// Frames for other hosts too.
    pub promiscuous: bool,
    pub down: bool,
    pub mtu: Option<u32>,
}

pub type Inject = Box<dyn FnMut(&[u8])>;

/// A device under test.
pub struct Bed {
    pub receiver: Box<dyn Receive>,
    pub sender: Box<dyn Transmit>,
    pub inject: Inject,
    /// Receives the frames that the sender sent.
    pub observer: Box<dyn Receive>,
    pub device: Option<End>,
    /// Whether a frame is there as soon as it was injected. Otherwise the kernel may deliver it later, in the background.
    pub prompt: bool,
}

impl Bed {
    /// Waits until the receiver has seen `count` frames in all.
    pub fn await_seen(&mut self, count: u64) {
        let end = Instant::now() + PATIENCE;
        while !self.prompt && self.receiver.statistics().expect("it is there").seen < count {
            assert!(Instant::now() < end, "they do not come; {:?}", self.receiver.counters());
            std::thread::yield_now();
        }
    }
}

pub struct Subject {
    pub open: fn(&Wanted) -> Bed,
    /// Missing abilities, each with the reason.
    pub cannot: &'static [(Ability, &'static str)],
    /// The reason why it cannot be tested here at all.
    pub absent: Option<String>,
    /// Most bytes of the largest packet that can be set.
    pub mtu_max: u32,
}

impl Subject {
    /// Whether it has this ability. If not, prints why this check is skipped.
    pub fn can(&self, ability: Ability) -> bool {
        let reason = self.cannot.iter().find(|(cannot, _)| *cannot == ability);
        if let Some((_, reason)) = reason {
            eprintln!("skipped: {reason}");
        }
        reason.is_none()
    }

    /// The same without printing, for a check that can do with less.
    pub fn has(&self, ability: Ability) -> bool {
        self.cannot.iter().all(|(cannot, _)| *cannot != ability)
    }

    pub fn open(&self) -> Bed {
        (self.open)(&Wanted::default())
    }

    pub fn open_with(&self, wanted: Wanted) -> Bed {
        (self.open)(&wanted)
    }
}

pub fn run(device: fn() -> Subject, check: fn(&Subject)) {
    let subject = device();
    match &subject.absent {
        Some(reason) => eprintln!("skipped (rights): {reason}"),
        None => check(&subject),
    }
}

#[derive(Clone, Debug)]
pub struct Seen {
    pub bytes: Vec<u8>,
    pub number: u64,
    pub wire: usize,
    pub time: u64,
    pub outbound: bool,
    pub truncated: bool,
}

/// Receives one batch, if there is one within `wait`.
pub fn receive_once(receiver: &mut dyn Receive, wait: Duration, seen: &mut Vec<Seen>) -> Result<Turn, Error> {
    receiver.receive(wait, &mut |batch| {
        for (frame, number) in batch.frames.iter().zip(batch.first_number..) {
            let bytes = frame.parts().concat();
            assert_eq!(frame.len(), bytes.len());
            let truncated = frame.flags.has(buffer::live::SlotFlags::TRUNCATED);
            assert_eq!(truncated, bytes.len() < frame.wire as usize);
            let outbound = frame.is_outbound();
            seen.push(Seen { bytes, number, wire: frame.wire as usize, time: frame.time, outbound, truncated });
        }
    })
}

/// Receives the next `count` frames.
///
/// # Panics
///
/// If they do not come.
pub fn receive(receiver: &mut dyn Receive, count: usize) -> Vec<Seen> {
    let (mut seen, end) = (Vec::new(), Instant::now() + PATIENCE);
    while seen.len() < count {
        let left = end.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "{} of {count} frames came; {:?}", seen.len(), receiver.counters());
        receive_once(receiver, left, &mut seen).expect("the device is there");
    }
    assert_eq!(seen.len(), count, "more than that came");
    seen
}

/// Stops once `count` frames have been seen in all, and gives the frames that are left.
pub fn receive_rest(bed: &mut Bed, count: u64) -> Vec<Seen> {
    bed.await_seen(count);
    let receiver = &mut *bed.receiver;
    receiver.stop().expect("anything can be stopped");
    let (mut seen, end) = (Vec::new(), Instant::now() + PATIENCE);
    while receiver.statistics().expect("it is there").waiting() > 0 {
        assert!(Instant::now() < end, "what is there does not come; {:?}", receiver.counters());
        receive_once(receiver, Duration::from_millis(100), &mut seen).expect("the device is there");
    }
    seen
}

pub fn check(seen: &[Seen], sent: &[Vec<u8>]) {
    for (at, (seen, sent)) in seen.iter().zip(sent).enumerate() {
        assert_eq!((seen.wire, seen.truncated), (sent.len(), false), "frame {at}");
        assert!(seen.bytes == *sent, "frame {at}: {:x?} is not {sent:x?}", seen.bytes);
    }
    assert_eq!(seen.len(), sent.len());
}
