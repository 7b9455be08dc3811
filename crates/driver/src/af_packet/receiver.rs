//! Receiving by a packet socket with a TPACKET_V3 ring: blocks of frames that the kernel fills and gives over whole.
//!
//! Tiers of [`Receiver::receive`]: most calls find a block that is theirs already, read its headers and give up to 64
//! frames, without a system call. Where there is no block, one `ppoll`; where the device is said to be down, a few calls
//! more. A frame is never copied here: whoever keeps it does. With [`Options::at_once`] there is no ring: see `queue.rs`.

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

/// While a device is down, it is looked at this often.
const DOWN_LOOK: Duration = Duration::from_millis(100);

/// Blocks given back between two looks at the kernel's counters, which are 32 bits wide and begin anew with each look.
const BLOCKS_PER_LOOK: u32 = 1 << 10;

/// Frames of one device, by a ring that the kernel fills.
///
/// The packet socket is more than a way to read: whoever holds it can bind it to another device, send, and write to the
/// ring. It stays in this process.
#[derive(Debug)]
pub struct Receiver {
    memory: Memory,
    socket: PacketSocket,
    device: Link,
    namespace: Namespace,
    shape: Shape,
    direction: Direction,
    block_timeout: Duration,
    /// Place in the block that is being given.
    walk: Option<Walk>,
    blocks_since_look: u32,
    statistics: ReceiveStatistics,
    state: State,
    hardware_clock: Option<HardwareClock>,
    before: LinkCounters,
    softnet_before: SoftnetCounters,
}

/// Where the kernel puts frames.
#[derive(Debug)]
enum Memory {
    Ring(Blocks),
    Queue(Box<Queue>),
}

/// What was last known of the device, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    Down(Instant),
    Removed(Instant),
}

impl Receiver {
    /// Opens the device of this name in `namespace`. Frames are let in from now on.
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
        // On a loopback device every frame is sent and received; libpcap, too, gives it once.
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
            state: State::Up,
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

    /// The order matters: nothing comes before the filter stands, nor alone what is meant for all of a group.
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

    /// Its device, as it was when it was opened.
    pub fn device(&self) -> &Link {
        &self.device
    }

    /// LINKTYPE number of its frames; `None` where there is no number that fits.
    pub fn link_type(&self) -> Option<u16> {
        self.device.link_type()
    }

    /// What another thread can change its filter by.
    pub fn socket_filter(&self) -> Result<SocketFilter, Error> {
        let socket = self.socket.as_fd().try_clone_to_owned();
        let socket = socket.map_err(|error| self.failed("change the filter", error))?;
        Ok(SocketFilter { socket, direction: self.direction })
    }

    /// Whose clock stamps its frames, as far as that could be had.
    pub fn clock(&self) -> Clock {
        if self.hardware_clock.is_some() { Clock::Hardware } else { Clock::Realtime }
    }

    /// Gives what is there, if something is.
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
                // A super-frame of a sort that the kernel has no words for: it is gone.
                Some(libc::EINVAL) => {
                    self.statistics.damaged += 1;
                    Ok(None)
                }
                // What was said about the device: said once.
                _ => self.look_at_device().map(|()| None).map_err(|error| self.failed("look at the state", error)),
            },
        }
    }

    /// Gives what is in the ring, if something is.
    fn give_block(&mut self, take: &mut dyn FnMut(Batch<'_>)) -> Option<usize> {
        let Memory::Ring(blocks) = &mut self.memory else { return None };
        // No more blocks than there are; one without frames is passed over.
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

    /// Reads the kernel's counters, which begins them anew, and adds them up.
    fn look_at_counters(&mut self) -> io::Result<()> {
        let counted: libc::tpacket_stats_v3 = option(self.socket.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        self.statistics.seen += u64::from(counted.tp_packets);
        self.statistics.dropped += u64::from(counted.tp_drops);
        self.statistics.stalls += u64::from(counted.tp_freeze_q_cnt);
        self.blocks_since_look = 0;
        Ok(())
    }

    /// Something was said about the device, or it was down: is it up, down or removed?
    fn look_at_device(&mut self) -> io::Result<()> {
        // Clears it; what it says is asked for below.
        sys::take_error(self.socket.as_fd())?;
        let is_up = |(_, flags)| flags & libc::IFF_UP != 0;
        self.state = match self.state {
            _ if !self.socket.device_is_there()? => State::Removed(Instant::now()),
            _ if self.socket.look_up()?.is_some_and(is_up) => State::Up,
            State::Down(since) => State::Down(since),
            _ => State::Down(Instant::now()),
        };
        Ok(())
    }

    /// Frames of a device that went away which the kernel has not given over yet: they come before that is said.
    fn give_last(&mut self, since: Instant, take: &mut dyn FnMut(Batch<'_>)) -> Result<Option<usize>, Error> {
        // A block that is not full is given over after one to two of its timeouts.
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
        if !matches!(self.state, State::Removed(_)) {
            let is_up = self.state == State::Up;
            let seen = self.wait(if is_up { wait } else { wait.min(DOWN_LOOK) })?;
            if let Some(given) = self.give(take)? {
                return Ok(Turn::Frames(given));
            }
            if !is_up || seen & libc::POLLERR != 0 {
                self.look_at_device().map_err(|error| self.failed("look at the state", error))?;
            }
        }
        let (State::Down(since) | State::Removed(since)) = self.state else { return Ok(Turn::Nothing) };
        match (self.give_last(since, take)?, self.state) {
            (Some(given), _) => Ok(Turn::Frames(given)),
            (None, State::Removed(_)) => Err(Error::Removed(self.device.name.clone())),
            (None, _) => Ok(Turn::Down),
        }
    }

    fn set_filter(&mut self, program: &[Instruction]) -> Result<u64, Error> {
        let program = self::program(self.direction, program)?;
        let attached = attach_filter(self.socket.as_fd(), &program).and_then(|()| sys::grace_period());
        attached.map_err(|error| self.failed("change the filter", error))?;
        self.look_at_counters().map_err(|error| self.failed("read the counters", error))?;
        // Counted while the ring is locked: whatever the old filter let through is among these.
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
        // A process that gave up its rights may not ask: these are left out then.
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

/// A receiver's filter, for who does not have the receiver.
#[derive(Debug)]
pub struct SocketFilter {
    socket: OwnedFd,
    direction: Direction,
}

impl SocketFilter {
    /// From now on only what `program` wants is let in. Frames that are on their way through the filter before, or behind it,
    /// still come. On an error the filter is what it was.
    pub fn set(&self, program: &[Instruction]) -> Result<(), Error> {
        let program = self::program(self.direction, program)?;
        attach_filter(self.socket.as_fd(), &program).map_err(Error::doing("attach a filter"))
    }

    /// The same of a program that is loaded already, of the kind for sockets.
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

/// A filter as the kernel takes it, with the direction in it where only a filter can tell it.
fn program(direction: Direction, program: &[Instruction]) -> Result<Vec<libc::sock_filter>, Error> {
    match direction {
        Direction::Out => filter::for_kernel(&filter::outgoing_only(program)),
        Direction::Both | Direction::In => filter::for_kernel(program),
    }
}

/// The ring: blocks in a row, each the kernel's or ours.
#[derive(Debug)]
struct Blocks {
    map: Map,
    block_bytes: usize,
    count: usize,
    /// The block that is, or will be, ours next.
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

    /// The next block, if it is ours.
    fn ready(&self) -> Option<&[u8]> {
        // Acquire: with the kernel's barrier before it gives a block over.
        if self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let block = self.map.at(self.next * self.block_bytes, self.block_bytes)?;
        // SAFETY: inside the map; the kernel does not write to a block that is ours until `give_back`, which needs this
        // borrow to be over.
        Some(unsafe { std::slice::from_raw_parts(block.as_ptr(), self.block_bytes) })
    }

    /// The kernel may fill the block again.
    fn give_back(&mut self) {
        // Release: everything that was read in it.
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.count;
    }
}
