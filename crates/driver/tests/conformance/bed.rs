//! What a device is tried in: how frames get to it, how those it sends are seen, and the device itself to be switched off.

use driver::{Error, Instruction, Receive, Transmit, Turn};
use std::time::{Duration, Instant};
use testkit::network::End;

/// How long anything may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What a device may be able to do beside giving and taking frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// See what the host sends.
    Outgoing,
    /// Let through what a filter wants.
    Filter,
    /// Give frames of 64 KiB.
    LargestFrames,
    /// Be switched off, on and away.
    Link,
    /// Receive what is for others only while that is wanted.
    Promiscuity,
    /// Refuse frames that are too long or too short.
    Limits,
    /// Stamp frames with the time.
    Times,
    /// Drop what there is no room for.
    Overload,
    /// Give what was there before the device was removed.
    LastFrames,
}

/// A receiver's options, as far as the checks want some.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// What is let through.
    pub filter: Option<Vec<Instruction>>,
    /// As little memory as there can be.
    pub small: bool,
    /// What is for others, too.
    pub promiscuous: bool,
    /// The device is down when it is opened.
    pub down: bool,
    /// Bytes of the largest packet.
    pub mtu: Option<u32>,
}

/// Sends a frame.
pub type Inject = Box<dyn FnMut(&[u8])>;

/// A device under test.
pub struct Bed {
    /// Frames from it.
    pub receiver: Box<dyn Receive>,
    /// Frames to it.
    pub sender: Box<dyn Transmit>,
    /// Sends a frame that the receiver then has.
    pub inject: Inject,
    /// Frames that the sender sent, as somebody else sees them.
    pub observer: Box<dyn Receive>,
    /// The device, where it is one of the kernel's.
    pub device: Option<End>,
    /// Is a frame there as soon as it was injected? Else the kernel may deliver it later, on the side.
    pub prompt: bool,
}

impl Bed {
    /// Waits until the receiver has been shown so many frames in all.
    pub fn await_seen(&mut self, count: u64) {
        let end = Instant::now() + PATIENCE;
        while !self.prompt && self.receiver.statistics().expect("it is there").seen < count {
            assert!(Instant::now() < end, "they do not come; {:?}", self.receiver.counters());
            std::thread::yield_now();
        }
    }
}

/// A device, and what it cannot do.
pub struct Subject {
    /// Makes it.
    pub open: fn(&Wanted) -> Bed,
    /// Why not.
    pub cannot: &'static [(Ability, &'static str)],
    /// Why it cannot be tried here at all.
    pub absent: Option<String>,
    /// Bytes of the largest packet it can be set to.
    pub mtu_max: u32,
}

impl Subject {
    /// Can it? If not, says on standard error why this check is skipped.
    pub fn can(&self, ability: Ability) -> bool {
        let reason = self.cannot.iter().find(|(cannot, _)| *cannot == ability);
        if let Some((_, reason)) = reason {
            eprintln!("skipped: {reason}");
        }
        reason.is_none()
    }

    /// The same, where a check can do with less.
    pub fn has(&self, ability: Ability) -> bool {
        self.cannot.iter().all(|(cannot, _)| *cannot != ability)
    }

    /// Opens it with nothing said.
    pub fn open(&self) -> Bed {
        (self.open)(&Wanted::default())
    }

    /// Opens it as it is wanted.
    pub fn open_with(&self, wanted: Wanted) -> Bed {
        (self.open)(&wanted)
    }
}

/// Runs a check on a device.
pub fn run(device: fn() -> Subject, check: fn(&Subject)) {
    let subject = device();
    match &subject.absent {
        Some(reason) => eprintln!("skipped (rights): {reason}"),
        None => check(&subject),
    }
}

/// A frame as it came out, with what was said of it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub bytes: Vec<u8>,
    pub number: u64,
    pub wire: usize,
    pub time: u64,
    pub outbound: bool,
    pub truncated: bool,
}

/// One batch, if there is one within `wait`.
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

/// The next `count` frames.
///
/// # Panics
///
/// Where they do not come.
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

/// Stops once so many frames have been seen in all, and gives what is left of them.
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

/// Are these the frames that were sent, in order?
pub fn check(seen: &[Seen], sent: &[Vec<u8>]) {
    for (at, (seen, sent)) in seen.iter().zip(sent).enumerate() {
        assert_eq!((seen.wire, seen.truncated), (sent.len(), false), "frame {at}");
        assert!(seen.bytes == *sent, "frame {at}: {:x?} is not {sent:x?}", seen.bytes);
    }
    assert_eq!(seen.len(), sent.len());
}
