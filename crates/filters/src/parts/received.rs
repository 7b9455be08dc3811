//! Devices that this process has opened itself, as a source. Shared by `af_packet`, `af_xdp`, `tuntap` and `bridge`.
//!
//! In: receivers of crate `driver`, one for each queue of a device. Out: copied blocks, and counters that say where
//! frames were lost. No other reader shares such a device; `ethernet` is the source that shares.

use super::landing::{self, Known, Landing};
use super::on_wire::OnWire;
use base::limits::PULL_BLOCKS;
use driver::counters::Meaning;
use driver::link::Link;
use driver::{Error, Frame, Receive, Turn};
use filter::device::Left;
use filter::prelude::*;
use rustix::event::epoll;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// At the end of a run, how long to wait for frames in the kernel: several timeouts of a packet socket's block.
const LAST_FRAMES: Duration = Duration::from_millis(200);

/// A device that is down is checked this often.
const DOWN_LOOK: Duration = Duration::from_millis(100);

/// The network namespace of this process.
pub fn namespace() -> Result<driver::namespace::Namespace, ParamError> {
    driver::namespace::Namespace::current()
        .map_err(|error| ParamError::system(format!("this process's network namespace cannot be found: {error}")))
}

/// The link of the device that the request names.
pub fn look_up(params: &Params) -> Result<Link, ParamError> {
    let name = params.text("device").unwrap_or_default();
    let link = namespace()?.enter(|| driver::link::find(name));
    let link = link.and_then(|found| found).map_err(|error| ParamError::system(format!("{name}: {error}")))?;
    link.ok_or_else(|| refusal(Error::Absent(name.into())))
}

/// Turns an error of opening a device into one of the request or of the system.
pub fn refusal(error: Error) -> ParamError {
    let system = !matches!(error, Error::Invalid(_));
    ParamError { system, ..ParamError::new("device", error.to_string()) }
}

/// The failure when an open device can no longer be used.
pub fn failure(error: Error) -> Box<Failure> {
    Box::new(Failure::System(error.to_string()))
}

/// LINKTYPE of a device's frames.
pub fn link_type(link: &Link) -> Result<u16, ParamError> {
    link.link_type().ok_or_else(|| {
        ParamError::new(
            "device",
            format!("frames of `{}` are of a kind that no capture file has a number for", link.name),
        )
    })
}

/// LINKTYPE of the device that a request names.
pub fn link_type_of(params: &Params) -> Result<u16, ParamError> {
    link_type(&look_up(params)?)
}

/// A source of the frames that `receivers` receive.
pub fn source(
    device: &Link,
    receivers: Vec<Box<dyn Receive>>,
    snap_len: u32,
    left: Option<Left>,
) -> Result<Instance, ParamError> {
    source_of(vec![Port::new(device, receivers, snap_len)?], None, left)
}

/// A source of the frames of several devices, as nearly as possible in order of arrival. A frame's class is the index
/// of its device in `ports`. `on_wire` changes the frames to their form on the wire.
pub fn source_of(ports: Vec<Port>, on_wire: Option<OnWire>, left: Option<Left>) -> Result<Instance, ParamError> {
    let bells = bells(ports.iter().flat_map(|port| &port.queues));
    let bells = bells.map_err(|error| ParamError::system(format!("epoll: {error}")))?;
    Ok(Instance::source(Received { ports, on_wire, bells, left, stopped: None }))
}

/// One epoll descriptor that is readable when any receiver is.
fn bells<'a>(queues: impl Iterator<Item = &'a Queue>) -> rustix::io::Result<OwnedFd> {
    let bells = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for queue in queues {
        epoll::add(&bells, queue.receiver.fd(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(bells)
}

struct Received {
    ports: Vec<Port>,
    on_wire: Option<OnWire>,
    bells: OwnedFd,
    left: Option<Left>,
    /// When the run was told to stop.
    stopped: Option<Instant>,
}

/// A device and its queues.
pub struct Port {
    queues: Vec<Queue>,
    landing: Landing,
}

struct Queue {
    receiver: Box<dyn Receive>,
    /// The queue gives no more frames.
    ended: bool,
}

impl Port {
    /// A device with its receivers. Keeps at most `snap_len` bytes of each frame; 0 = all.
    pub fn new(device: &Link, receivers: Vec<Box<dyn Receive>>, snap_len: u32) -> Result<Port, ParamError> {
        let landing = Landing::new(&device.name, link_type(device)?, snap_len);
        Ok(Port { queues: receivers.into_iter().map(|receiver| Queue { receiver, ended: false }).collect(), landing })
    }

    /// Gives `most` frames or a few more. Returns the number given and whether the device is down.
    fn pull(
        &mut self,
        most: usize,
        class: Class,
        stopped: Option<Instant>,
        mut on_wire: Option<&mut OnWire>,
        cx: &mut Context<'_>,
    ) -> Result<(usize, bool), Box<Failure>> {
        let view = self.landing.view(cx)?;
        let landing = &self.landing;
        let (mut given, mut down) = (0, false);
        for queue in &mut self.queues {
            while !queue.ended && given < most {
                let turn = queue.receiver.receive(Duration::ZERO, &mut |batch| match &mut on_wire {
                    Some(on_wire) => {
                        batch.frames.iter().for_each(|frame| on_wire.give(frame, landing, view, class, cx))
                    }
                    None => {
                        for frame in batch.frames {
                            let Frame { time, wire, flags, .. } = *frame;
                            let known = Known { time, len: frame.len() as u32, wire, flags };
                            landing.give(view, cx, known, |space| Some((frame.copy_into(space), class)));
                        }
                    }
                });
                match turn.map_err(failure)? {
                    Turn::Frames(count) => given += count,
                    Turn::Nothing => {
                        // The kernel hands a block over when it is full or times out, so frames may still be waiting.
                        let is_all = |receiver: &mut dyn Receive| {
                            receiver.statistics().map_or(true, |statistics| statistics.waiting() == 0)
                        };
                        queue.ended = stopped
                            .is_some_and(|since| since.elapsed() > LAST_FRAMES || is_all(queue.receiver.as_mut()));
                        break;
                    }
                    Turn::Down => {
                        down = true;
                        queue.ended = stopped.is_some();
                        break;
                    }
                }
            }
        }
        Ok((given, down))
    }
}

impl Received {
    fn queues(&mut self) -> impl Iterator<Item = &mut Queue> {
        self.ports.iter_mut().flat_map(|port| &mut port.queues)
    }
}

impl Source for Received {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        let (first, most) = (cx.out.len(), PULL_BLOCKS / self.ports.len().max(1));
        let (mut given, mut down, mut sides) = (0, false, 0);
        for (place, port) in self.ports.iter_mut().enumerate() {
            let (count, is_down) = port.pull(most, Class(place as u32), self.stopped, self.on_wire.as_mut(), cx)?;
            given += count;
            down |= is_down;
            sides += usize::from(count > 0);
        }
        if sides > 1 {
            // A stable sort: frames of one device are in order already and stay so.
            cx.out[first..].sort_by_key(|block| block.time);
        }
        Ok(match given {
            0 if self.queues().all(|queue| queue.ended) => Pull::End,
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
        // A receiver that cannot be stopped gives frames until no more are waiting.
        self.queues().for_each(|queue| drop(queue.receiver.stop()));
        self.stopped = Some(Instant::now());
        true
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        self.ports.iter_mut().for_each(|port| port.landing.leave(cx));
        if let Some((word, left)) = &self.left {
            cx.count(word, left());
        }
        for queue in self.queues() {
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
                // Losses that the receiver itself counts were reported above.
                if counter.meaning == Meaning::Lost && counter.value > 0 && !counter.name.starts_with("receiver.") {
                    cx.count(counter.name, counter.value);
                }
            }
        }
        if let Some(on_wire) = &self.on_wire {
            on_wire.account(cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use buffer::{BlockTable, Interface};
    use driver::counters::Counter;
    use driver::filter::Instruction;
    use driver::{Batch, ReceiveStatistics};
    use filter::Counters;
    use std::os::unix::net::UnixStream;

    /// A receiver that has a frame but hands it over only on the second call.
    struct Late {
        fd: UnixStream,
        asked: u64,
        given: u64,
    }

    impl Receive for Late {
        fn receive(&mut self, _wait: Duration, take: &mut dyn FnMut(Batch<'_>)) -> Result<Turn, Error> {
            self.asked += 1;
            if self.asked < 3 || self.given > 0 {
                return Ok(Turn::Nothing);
            }
            self.given = 1;
            take(Batch { first_number: 0, frames: &[Frame::new(&[7; 60])] });
            Ok(Turn::Frames(1))
        }

        fn set_filter(&mut self, _program: &[Instruction]) -> Result<u64, Error> {
            Ok(0)
        }

        fn stop(&mut self) -> Result<(), Error> {
            Ok(())
        }

        fn statistics(&mut self) -> Result<ReceiveStatistics, Error> {
            Ok(ReceiveStatistics { seen: 1, given: self.given, ..ReceiveStatistics::default() })
        }

        fn counters(&mut self) -> Result<Vec<Counter>, Error> {
            Ok(Vec::new())
        }

        fn fd(&self) -> BorrowedFd<'_> {
            self.fd.as_fd()
        }
    }

    #[test]
    fn frames_that_are_given_over_late_come_before_the_end() {
        let (fd, _other) = UnixStream::pair().unwrap();
        let queues = vec![Queue { receiver: Box::new(Late { fd, asked: 0, given: 0 }), ended: false }];
        let bells = bells(queues.iter()).unwrap();
        let ports = vec![Port { queues, landing: Landing::new("late0", 1, 0) }];
        let mut source = Received { ports, on_wire: None, bells, left: None, stopped: None };
        let mut rings = BlockTable::new();
        let own = rings.add_append_ring();
        let own = rings.add_view(own, Interface::default()).unwrap();
        let (mut counters, mut out, mut notices, mut wake) = (Counters::default(), Vec::new(), Vec::new(), u64::MAX);
        let mut streams = StreamTable::new();
        let mut pull = |source: &mut Received| {
            let mut context = Context {
                rings: &mut rings,
                streams: &mut streams,
                out: &mut out,
                counters: &mut counters,
                marks: &mut filter::Marks::default(),
                own,
                now: 0,
                exclusive: true,
                wanted: filter::Wanted::ALL,
                wake: &mut wake,
                notices: &mut notices,
                order: &mut filter::Order::default(),
                stop: &base::atomic::StopFlag::new(),
            };
            let pulled = source.pull(&mut context).unwrap();
            (matches!(pulled, Pull::End), out.len())
        };
        assert_eq!(pull(&mut source), (false, 0));
        assert!(source.stop());
        assert_eq!(pull(&mut source), (false, 0), "the kernel has a frame");
        assert_eq!(pull(&mut source), (false, 1));
        assert_eq!(pull(&mut source), (true, 1));
    }
}
