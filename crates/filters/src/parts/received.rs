//! A device that this process has opened itself, as a source: what `af_packet`, `af_xdp` and `tuntap` have in common.
//!
//! In: receivers of crate `driver`, one for each of the device's queues. Out: blocks, copied, and counters that say where
//! frames were lost. Such a device has no other reader; `ethernet` is the one that shares.

use super::landing::{self, Known, Landing};
use base::limits::PULL_BLOCKS;
use driver::counters::Meaning;
use driver::{Error, Frame, Receive, Turn};
use filter::prelude::*;
use rustix::event::epoll;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A device that is down is looked at this often.
const DOWN_LOOK: Duration = Duration::from_millis(100);

/// What a program on the device or the socket did not choose: a word for it, and how many packets that are up to now.
pub type Left = (&'static str, Box<dyn Fn() -> u64 + Send>);

/// The network namespace this process is in.
pub fn namespace() -> Result<driver::namespace::Namespace, ParamError> {
    driver::namespace::Namespace::current()
        .map_err(|error| ParamError::system(format!("this process's network namespace cannot be found: {error}")))
}

/// What is known of the device that a request names.
pub fn look_up(params: &Params) -> Result<driver::link::Link, ParamError> {
    let name = params.text("device").unwrap_or_default();
    let link = namespace()?.enter(|| driver::link::find(name));
    let link = link.and_then(|found| found).map_err(|error| ParamError::system(format!("{name}: {error}")))?;
    link.ok_or_else(|| refusal(Error::Absent(name.into())))
}

/// Whose fault it is that a device could not be opened.
pub fn refusal(error: Error) -> ParamError {
    let system = !matches!(error, Error::Absent(_) | Error::Invalid(_));
    ParamError { system, ..ParamError::new("device", error.to_string()) }
}

/// Why a device can be used no longer.
pub fn failure(error: Error) -> Box<Failure> {
    Box::new(Failure::System(error.to_string()))
}

/// LINKTYPE number of a device's frames.
pub fn link_type(link: &driver::link::Link) -> Result<u16, ParamError> {
    link.link_type().ok_or_else(|| {
        ParamError::new(
            "device",
            format!("frames of `{}` are of a kind that no capture file has a number for", link.name),
        )
    })
}

/// A source of what these receivers receive.
pub fn source(
    device: &driver::link::Link,
    receivers: Vec<Box<dyn Receive>>,
    snap_len: u32,
    left: Option<Left>,
) -> Result<Instance, ParamError> {
    let landing = Landing::new(&device.name, link_type(device)?, snap_len);
    let bells = bells(&receivers).map_err(|error| ParamError::system(format!("epoll: {error}")))?;
    let receivers = receivers.into_iter().map(|receiver| Queue { receiver, ended: false }).collect();
    Ok(Instance::source(Received { receivers, bells, landing, left, stopping: false }))
}

/// One descriptor that can be read where any of the receivers' can.
fn bells(receivers: &[Box<dyn Receive>]) -> rustix::io::Result<OwnedFd> {
    let bells = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for receiver in receivers {
        epoll::add(&bells, receiver.fd(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(bells)
}

struct Received {
    receivers: Vec<Queue>,
    bells: OwnedFd,
    landing: Landing,
    left: Option<Left>,
    stopping: bool,
}

struct Queue {
    receiver: Box<dyn Receive>,
    /// Nothing comes from it any more.
    ended: bool,
}

impl Source for Received {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        let view = self.landing.view(cx)?;
        let landing = &self.landing;
        let (mut given, mut down) = (0, false);
        for queue in &mut self.receivers {
            while !queue.ended && given < PULL_BLOCKS {
                let turn = queue.receiver.receive(Duration::ZERO, &mut |batch| {
                    for frame in batch.frames {
                        let Frame { time, wire, flags, .. } = *frame;
                        let known = Known { time, len: frame.len() as u32, wire, flags, class: Class(0) };
                        landing.give(view, cx, known, |space| Some(frame.copy_into(space)));
                    }
                });
                match turn.map_err(failure)? {
                    Turn::Frames(count) => given += count,
                    Turn::Nothing => {
                        queue.ended = self.stopping;
                        break;
                    }
                    Turn::Down => {
                        down = true;
                        queue.ended = self.stopping;
                        break;
                    }
                }
            }
        }
        Ok(match given {
            0 if self.receivers.iter().all(|queue| queue.ended) => Pull::End,
            0 => Pull::Idle(if down { DOWN_LOOK } else { Duration::MAX }),
            _ => Pull::Ready,
        })
    }

    fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        Some(self.bells.as_fd())
    }

    fn clock(&self) -> Option<u64> {
        Some(landing::clock())
    }

    fn stop(&mut self) -> bool {
        self.stopping = true;
        // One that cannot be stopped gives what it has until it finds nothing.
        self.receivers.iter_mut().for_each(|queue| drop(queue.receiver.stop()));
        true
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        self.landing.leave(cx);
        if let Some((word, left)) = &self.left {
            cx.count(word, left());
        }
        for queue in &mut self.receivers {
            if let Ok(statistics) = queue.receiver.statistics() {
                cx.counters.blocks_in += statistics.given + statistics.dropped + statistics.damaged;
                cx.counters.blocks_taken += statistics.given;
                for (why, count) in [("no room in its ring", statistics.dropped), ("damaged", statistics.damaged)] {
                    if count > 0 {
                        cx.counters.drops.add(why, count);
                    }
                }
            }
            for counter in queue.receiver.counters().unwrap_or_default() {
                // What the receiver itself counts was said above.
                if counter.meaning == Meaning::Lost && counter.value > 0 && !counter.name.starts_with("receiver.") {
                    cx.count(counter.name, counter.value);
                }
            }
        }
    }
}
