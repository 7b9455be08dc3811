//! Receives through a packet socket with a TPACKET_V3 ring: the kernel fills blocks with frames and hands them over.
//!
//! Tiers of [`Receiver::receive`]: most calls find a block that was handed over, read its headers and give up to 64
//! frames, without a system call. Without a block they make one `ppoll`; if the device may be down, a few more calls.
//! This module never copies a frame: a caller that keeps one does. With [`Options::at_once`] there is no ring: see
//! `queue.rs`.

use super::block::{BLOCK_HEADER_BYTES, STATUS_OFFSET, Shape, Walk};
use super::hardware_clock::HardwareClock;
use super::options::{Direction, Options, Timestamps};
use super::queue::Queue;
use super::socket::{ALL, PacketSocket, attach_filter};
use crate::contract::{Receive, ReceiveStatistics, Turn};
use crate::counters::{Counter, LinkCounters, SoftnetCounters};
use crate::error::Error;
use crate::filter::{self, Instruction};
use crate::frame::{Batch, Clock, FrameArray};
use crate::link::{self, Link};
use crate::namespace::Namespace;
use crate::sys::{self, Map, option, set_option};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Time between two looks at a device that is down.
const DOWN_LOOK: Duration = Duration::from_millis(100);

/// Blocks given back between two looks at the kernel's counters, which have 32 bits and start again with each look.
const BLOCKS_PER_LOOK: u32 = 1 << 10;

/// Receives frames of one device from a ring that the kernel fills.
///
/// The packet socket gives more rights than reading: its holder can bind it to another device, send, and write to the
/// ring. So it stays in this process.
#[derive(Debug)]
pub struct Receiver {
    memory: Memory,
    socket: PacketSocket,
    device: Link,
    namespace: Namespace,
    shape: Shape,
    direction: Direction,
    block_timeout: Duration,
    walk: Option<Walk>,
    blocks_since_look: u32,
    statistics: ReceiveStatistics,
    presence: Presence,
    hardware_clock: Option<HardwareClock>,
    before: LinkCounters,
    softnet_before: SoftnetCounters,
}

#[derive(Debug)]
enum Memory {
    Ring(Blocks),
    Queue(Box<Queue>),
}

/// The device's last known presence, and since when.
///
/// | from | to | when |
/// |---|---|---|
/// | `Up` | `Down` | the socket reported an error, and the device is switched off |
/// | `Down` | `Up` | a look, at least every `DOWN_LOOK` of a call, finds it switched on |
/// | `Up`, `Down` | `Removed` | a look finds the device gone |
///
/// `Removed` is final: a device of the same name is another one, and the socket is not bound to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Up,
    Down(Instant),
    Removed(Instant),
}

impl Receiver {
    /// Opens the device with this name in `namespace`. Frames are let in from now on.
    pub fn open(namespace: &Namespace, name: &str, options: &Options) -> Result<Receiver, Error> {
        let opened = namespace.enter(|| Receiver::open_here(namespace, name, options));
        opened.map_err(Error::doing(format!("enter the network namespace of `{name}`")))?
    }

    fn open_here(namespace: &Namespace, name: &str, options: &Options) -> Result<Receiver, Error> {
        let device = link::find(name).map_err(Error::doing(format!("look for `{name}`")))?;
        let device = device.ok_or_else(|| Error::Absent(name.into()))?;
        let ring = options.ring()?;
        let wanted = program(options.direction, &options.filter)?;
        let socket = PacketSocket::new(device.index)?;
        let set = |option, value: i32| set_option(socket.as_fd(), libc::SOL_PACKET, option, &value);
        let system = |what: &str| Error::doing(format!("{what} for `{name}`"));
        if !options.at_once {
            set(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as i32)
                .map_err(system("choose a ring's version"))?;
        }
        if options.segment_sizes {
            set(libc::PACKET_VNET_HDR, 1).map_err(system("have offloads described"))?;
        }
        let memory = if options.at_once {
            let queue = Queue::new(socket.as_fd(), options.block_bytes * options.block_count);
            Memory::Queue(Box::new(queue.map_err(system("have frames kept"))?))
        } else {
            set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, &ring)
                .map_err(system("have a ring of frames"))?;
            Memory::Ring(Blocks::map(&socket, options).map_err(system("map a ring of frames"))?)
        };
        // On a loopback device every frame is sent and received; libpcap too gives it once.
        if options.direction == Direction::In || (device.is_loopback() && options.direction == Direction::Both) {
            set(libc::PACKET_IGNORE_OUTGOING, 1).map_err(system("leave sent frames out"))?;
        }
        let hardware_clock = match options.timestamps {
            Timestamps::Kernel => None,
            Timestamps::HardwareIfThere => HardwareClock::start(&socket, name).ok(),
        };
        let mut receiver = Receiver {
            memory,
            shape: Shape { ethernet: device.header_bytes() > 0, offloads: options.segment_sizes },
            direction: options.direction,
            block_timeout: options.block_timeout,
            walk: None,
            blocks_since_look: 0,
            statistics: ReceiveStatistics::default(),
            presence: Presence::Up,
            hardware_clock,
            before: device.counters,
            softnet_before: SoftnetCounters::read().unwrap_or_default(),
            namespace: namespace.clone(),
            device,
            socket,
        };
        receiver.let_frames_in(options, &wanted)?;
        Ok(receiver)
    }

    /// The order matters: no frame may come before the filter is in place, nor before this receiver is in its group.
    fn let_frames_in(&mut self, options: &Options, wanted: &[libc::sock_filter]) -> Result<(), Error> {
        let (socket, name) = (&self.socket, &self.device.name);
        let system = |what: &str| Error::doing(format!("{what} for `{name}`"));
        if options.promiscuous {
            socket.become_promiscuous().map_err(system("receive what is for others"))?;
        }
        if options.all_groups {
            socket.join_all_groups().map_err(system("receive what is for groups"))?;
        }
        match options.fanout {
            None => {
                attach_filter(socket.as_fd(), wanted).map_err(system("attach a filter"))?;
                socket.bind(ALL).map_err(system("bind a packet socket"))
            }
            Some(fanout) => {
                let nothing = filter::for_kernel(&filter::nothing())?;
                attach_filter(socket.as_fd(), &nothing).map_err(system("attach a filter"))?;
                socket.bind(ALL).map_err(system("bind a packet socket"))?;
                set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, &fanout.word())
                    .map_err(system(&format!("join group {}", fanout.group)))?;
                attach_filter(socket.as_fd(), wanted).map_err(system("attach a filter"))
            }
        }
    }

    /// Its device, as it was when the receiver was opened.
    pub fn device(&self) -> &Link {
        &self.device
    }

    /// LINKTYPE number of its frames; `None` if no number fits.
    pub fn link_type(&self) -> Option<u16> {
        self.device.link_type()
    }

    /// A handle with which another thread can change its filter.
    pub fn socket_filter(&self) -> Result<SocketFilter, Error> {
        let socket = self.socket.as_fd().try_clone_to_owned();
        let socket = socket.map_err(|error| self.failed("change the filter", error))?;
        Ok(SocketFilter { socket, direction: self.direction })
    }

    /// The clock of its frames' times, as far as the wanted one was available.
    pub fn clock(&self) -> Clock {
        if self.hardware_clock.is_some() { Clock::Hardware } else { Clock::Realtime }
    }

    /// Gives the frames that are there; `None` if there are none.
    fn give(&mut self, take: &mut dyn FnMut(Batch<'_>)) -> Result<Option<usize>, Error> {
        match self.memory {
            Memory::Ring(_) => Ok(self.give_block(take)),
            Memory::Queue(_) => self.give_queued(take),
        }
    }

    fn give_queued(&mut self, take: &mut dyn FnMut(Batch<'_>)) -> Result<Option<usize>, Error> {
        let Memory::Queue(queue) = &mut self.memory else { return Ok(None) };
        self.blocks_since_look += 1;
        let received = queue.receive(self.socket.as_fd(), self.shape);
        match received {
            Ok(count) => {
                let (mut frames, mut bytes) = (FrameArray::new(), 0);
                for index in 0..count {
                    let frame = queue.frame(index, self.shape, self.device.index);
                    bytes += u64::from(frame.wire);
                    frames.push(frame);
                }
                let first_number = self.statistics.given + self.statistics.damaged;
                if count > 0 {
                    take(Batch { first_number, frames: frames.as_slice() });
                }
                self.statistics.given += count as u64;
                self.statistics.given_bytes += bytes;
                Ok((count > 0).then_some(count))
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                // A kind of super-frame that the kernel cannot describe: it is lost.
                Some(libc::EINVAL) => {
                    self.statistics.damaged += 1;
                    Ok(None)
                }
                // An error report about the device, which comes once.
                _ => self.look_at_device().map(|()| None).map_err(|error| self.failed("look at the state", error)),
            },
        }
    }

    fn give_block(&mut self, take: &mut dyn FnMut(Batch<'_>)) -> Option<usize> {
        let Memory::Ring(blocks) = &mut self.memory else { return None };
        // At most as many blocks as there are; those without frames are skipped.
        for _ in 0..blocks.count {
            let block = blocks.ready()?;
            let mut walk = self.walk.unwrap_or_else(|| Walk::begin(block));
            let (mut frames, mut bytes) = (FrameArray::new(), 0);
            while !frames.is_full() {
                let Some(frame) = walk.next(block, self.shape) else { break };
                bytes += u64::from(frame.wire);
                frames.push(frame);
            }
            let (given, ended) = (frames.as_slice().len(), walk.left() == 0 || !frames.is_full());
            if given > 0 {
                let first_number = self.statistics.given + self.statistics.damaged;
                take(Batch { first_number, frames: frames.as_slice() });
            }
            self.statistics.given += given as u64;
            self.statistics.given_bytes += bytes;
            if ended {
                self.statistics.damaged += u64::from(walk.left());
                self.walk = None;
                blocks.give_back();
                self.blocks_since_look += 1;
            } else {
                self.walk = Some(walk);
            }
            if given > 0 {
                return Some(given);
            }
        }
        None
    }

    /// Reads the kernel's counters, which resets them, and adds them up.
    fn look_at_counters(&mut self) -> io::Result<()> {
        let counted: libc::tpacket_stats_v3 = option(self.socket.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        self.statistics.seen += u64::from(counted.tp_packets);
        self.statistics.dropped += u64::from(counted.tp_drops);
        self.statistics.stalls += u64::from(counted.tp_freeze_q_cnt);
        self.blocks_since_look = 0;
        Ok(())
    }

    /// Finds out, after an error report or while the device is down, whether it is up, down or removed.
    fn look_at_device(&mut self) -> io::Result<()> {
        // Clears the report; the calls below find out what happened.
        sys::take_error(self.socket.as_fd())?;
        let is_up = |(_, flags)| flags & libc::IFF_UP != 0;
        self.presence = match self.presence {
            _ if !self.socket.device_is_there()? => Presence::Removed(Instant::now()),
            _ if self.socket.look_up()?.is_some_and(is_up) => Presence::Up,
            Presence::Down(since) => Presence::Down(since),
            _ => Presence::Down(Instant::now()),
        };
        Ok(())
    }

    /// Gives frames of a device that went away and that the kernel has not handed over yet: they come before the error.
    fn give_last(&mut self, since: Instant, take: &mut dyn FnMut(Batch<'_>)) -> Result<Option<usize>, Error> {
        // The kernel hands over a block that is not full after one to two of its timeouts.
        let end = since + 4 * self.block_timeout + DOWN_LOOK;
        loop {
            if let Some(given) = self.give(take)? {
                return Ok(Some(given));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.statistics()?.waiting() == 0 {
                return Ok(None);
            }
            self.wait(left.min(self.block_timeout))?;
        }
    }

    fn wait(&self, wait: Duration) -> Result<i16, Error> {
        sys::wait(self.socket.as_fd(), libc::POLLIN, wait).map_err(|error| self.failed("wait for frames", error))
    }

    fn failed(&self, doing: &str, error: io::Error) -> Error {
        Error::of(format!("{doing} of `{}`", self.device.name), error)
    }
}

impl Receive for Receiver {
    fn receive(&mut self, wait: Duration, take: &mut dyn FnMut(Batch<'_>)) -> Result<Turn, Error> {
        if self.blocks_since_look >= BLOCKS_PER_LOOK {
            self.look_at_counters().map_err(|error| self.failed("read the counters", error))?;
        }
        if let Some(given) = self.give(take)? {
            return Ok(Turn::Frames(given));
        }
        if !matches!(self.presence, Presence::Removed(_)) {
            let is_up = self.presence == Presence::Up;
            let seen = self.wait(if is_up { wait } else { wait.min(DOWN_LOOK) })?;
            if let Some(given) = self.give(take)? {
                return Ok(Turn::Frames(given));
            }
            if !is_up || seen & libc::POLLERR != 0 {
                self.look_at_device().map_err(|error| self.failed("look at the state", error))?;
            }
        }
        let (Presence::Down(since) | Presence::Removed(since)) = self.presence else { return Ok(Turn::Nothing) };
        match (self.give_last(since, take)?, self.presence) {
            (Some(given), _) => Ok(Turn::Frames(given)),
            (None, Presence::Removed(_)) => Err(Error::Removed(self.device.name.clone())),
            (None, _) => Ok(Turn::Down),
        }
    }

    fn set_filter(&mut self, program: &[Instruction]) -> Result<u64, Error> {
        let program = self::program(self.direction, program)?;
        let attached = attach_filter(self.socket.as_fd(), &program).and_then(|()| sys::grace_period());
        attached.map_err(|error| self.failed("change the filter", error))?;
        self.look_at_counters().map_err(|error| self.failed("read the counters", error))?;
        // Counted while the ring is locked: it includes every frame that the old filter passed.
        Ok(self.statistics.seen - self.statistics.dropped)
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.set_filter(&filter::nothing()).map(|_| ())
    }

    fn statistics(&mut self) -> Result<ReceiveStatistics, Error> {
        self.look_at_counters().map_err(|error| self.failed("read the counters", error))?;
        Ok(self.statistics)
    }

    fn counters(&mut self) -> Result<Vec<Counter>, Error> {
        let mut counters = self.statistics()?.all().to_vec();
        // A process that gave up its rights may not ask: then these counters are missing.
        let links = self.namespace.enter(link::list).and_then(|links| links).unwrap_or_default();
        if let Some(now) = links.into_iter().find(|link| link.index == self.device.index) {
            counters.extend(now.counters.since(&self.before).all());
        }
        if let Ok(now) = SoftnetCounters::read() {
            counters.extend(now.since(&self.softnet_before).all());
        }
        Ok(counters)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A receiver's filter, for a thread that does not have the receiver.
#[derive(Debug)]
pub struct SocketFilter {
    socket: OwnedFd,
    direction: Direction,
}

impl SocketFilter {
    /// Lets in only frames that `program` wants from now on. Frames that are passing the earlier filter, or have passed
    /// it, still come. An error leaves the earlier filter in place.
    pub fn set(&self, program: &[Instruction]) -> Result<(), Error> {
        let program = self::program(self.direction, program)?;
        attach_filter(self.socket.as_fd(), &program).map_err(Error::doing("attach a filter"))
    }

    /// The same with a loaded program, of the kind for sockets.
    pub fn set_loaded(&self, program: BorrowedFd<'_>) -> Result<(), Error> {
        let attached = set_option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &program.as_raw_fd());
        attached.map_err(Error::doing("attach a filter"))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(clock) = self.hardware_clock.take() {
            clock.stop(&self.socket);
        }
    }
}

/// A filter for the kernel; it checks the direction if only a filter can.
fn program(direction: Direction, program: &[Instruction]) -> Result<Vec<libc::sock_filter>, Error> {
    match direction {
        Direction::Out => filter::for_kernel(&filter::outgoing_only(program)),
        Direction::Both | Direction::In => filter::for_kernel(program),
    }
}

/// The ring: consecutive blocks, each of which belongs to the kernel or to this process.
#[derive(Debug)]
struct Blocks {
    map: Map,
    block_bytes: usize,
    count: usize,
    /// The block that this process gets next, or has.
    next: usize,
}

impl Blocks {
    fn map(socket: &PacketSocket, options: &Options) -> io::Result<Blocks> {
        let (block_bytes, count) = (options.block_bytes, options.block_count);
        let map = Map::new(socket.as_fd(), 0, block_bytes * count)?;
        Ok(Blocks { map, block_bytes, count, next: 0 })
    }

    fn status(&self) -> &AtomicU32 {
        let start = self.next * self.block_bytes;
        let block = self.map.at(start, BLOCK_HEADER_BYTES).expect("`next` is one of the blocks that were mapped");
        // SAFETY: inside the map, which lives as long as this borrow, and aligned: blocks are whole pages. The kernel
        // accesses the word as a whole, as this does.
        unsafe { AtomicU32::from_ptr(block.add(STATUS_OFFSET).cast().as_ptr()) }
    }

    /// The next block, if it belongs to this process.
    fn ready(&self) -> Option<&[u8]> {
        // Acquire: pairs with the kernel's barrier before it hands over a block.
        if self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let block = self.map.at(self.next * self.block_bytes, self.block_bytes)?;
        // SAFETY: inside the map; the kernel does not write to a block of this process until `give_back`, which needs
        // this borrow to be over.
        Some(unsafe { std::slice::from_raw_parts(block.as_ptr(), self.block_bytes) })
    }

    fn give_back(&mut self) {
        // Release: orders everything that was read in the block before this store.
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.count;
    }
}
