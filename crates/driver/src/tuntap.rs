//! Devices that this program makes: it receives what the host sends on one, and the host receives what it sends.
//!
//! A tap carries Ethernet frames, a tun bare IP packets. Frames are whole, because no offloads are promised to the
//! host, and each takes one system call. Unlike a packet socket this makes no copies: a frame has no other reader, and
//! without room in the queue it is lost. The kernel chooses a frame's queue by its flow.

use crate::change::Change;
use crate::contract::{Receive, ReceiveStatistics, Transmit, TransmitStatistics, Turn};
use crate::counters::{Counter, LinkCounters};
use crate::error::Error;
use crate::filter::Instruction;
use crate::frame::{Batch, Frame, FrameArray};
use crate::link::{self, Link};
use crate::namespace::Namespace;
use crate::netlink::Netlink;
use crate::sys::{self, check, ioctl, name_bytes};
use base::limits::BATCH_BLOCKS;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DOOR: &str = "/dev/net/tun";

/// Most queues of one device (`MAX_CAPTURE_QUEUES`).
const QUEUES_MAX: usize = 256;

/// Bytes of the longest frame: the largest IP packet, its Ethernet header and a tag.
const FRAME_BYTES: usize = 65_535 + 14 + 4;

const BATCH_BYTES: usize = 4 * FRAME_BYTES;

/// Most frames that the kernel keeps for one queue, whatever the device's queue length says.
const KEPT_FRAMES: usize = 1 << 16;

/// Time between two looks at a device that is down.
const DOWN_LOOK: Duration = Duration::from_millis(100);

/// The frames of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Ethernet frames.
    Tap,
    /// IP packets.
    Tun,
}

/// Options of a device.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its name; a `%d` in it becomes a free number.
    pub name: String,
    /// Kind of its frames.
    pub layer: Layer,
    /// Number of its queues, each for one thread.
    pub queues: usize,
    /// Most frames that the kernel keeps for each queue until they are received.
    pub queue_frames: u32,
    /// Whether it stays when it is closed, until it is removed in another way.
    pub persistent: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { name: "tap%d".into(), layer: Layer::Tap, queues: 1, queue_frames: 4096, persistent: false }
    }
}

/// An open device.
#[derive(Debug)]
pub struct TunTap {
    /// The kernel's description. The device is down at first.
    pub device: Link,
    /// Its queues, each with both directions.
    pub queues: Vec<(Receiver, Sender)>,
}

impl TunTap {
    /// Makes the device in `namespace`, or attaches to an existing persistent one.
    pub fn open(namespace: &Namespace, options: &Options) -> Result<TunTap, Error> {
        let opened = namespace.enter(|| TunTap::open_here(namespace, options));
        opened.map_err(Error::doing(format!("enter the network namespace of `{}`", options.name)))?
    }

    fn open_here(namespace: &Namespace, options: &Options) -> Result<TunTap, Error> {
        if !(1..=QUEUES_MAX).contains(&options.queues) {
            return Err(Error::Invalid(format!("{} queues; a device has 1 to {QUEUES_MAX}", options.queues)));
        }
        let doing = || format!("make the device `{}`", options.name);
        let mut name = options.name.clone();
        let mut queues = Vec::new();
        for _ in 0..options.queues {
            queues.push(attach(door()?, &mut name, options).map_err(Error::doing(doing()))?);
        }
        if options.persistent {
            // SAFETY: takes no pointer.
            let set = unsafe { libc::ioctl(queues[0].as_raw_fd(), libc::TUNSETPERSIST, 1) };
            check(set).map_err(Error::doing(doing()))?;
        }
        let tap = TunTap::of_queues(namespace, &name, queues)?;
        let change = Change { queue_frames: Some(options.queue_frames), ..Change::default() };
        let changed = Netlink::route(0).and_then(|mut netlink| netlink.change(tap.device.index, &change));
        changed.map_err(Error::doing(doing()))?;
        Ok(tap)
    }

    /// Takes over the device of a process that ended, with [a copy of the file descriptor](Receiver::file) of its only
    /// queue: a device stays as long as some process has it open.
    pub fn of_file(namespace: &Namespace, name: &str, file: OwnedFd) -> Result<TunTap, Error> {
        let opened = namespace.enter(|| TunTap::of_queues(namespace, name, vec![file]));
        opened.map_err(Error::doing(format!("enter the network namespace of `{name}`")))?
    }

    fn of_queues(namespace: &Namespace, name: &str, queues: Vec<OwnedFd>) -> Result<TunTap, Error> {
        let doing = || format!("use the device `{name}`");
        let device = link::find(name).map_err(Error::doing(doing()))?.ok_or_else(|| Error::Removed(name.into()))?;
        let queues = queues.into_iter().map(|fd| {
            let socket = sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)?;
            let queue = Arc::new(Queue { fd, socket, device: device.clone(), namespace: namespace.clone() });
            Ok((Receiver::new(Arc::clone(&queue)), Sender { queue, statistics: TransmitStatistics::default() }))
        });
        let queues = queues.collect::<io::Result<_>>().map_err(Error::doing(doing()))?;
        Ok(TunTap { device, queues })
    }
}

/// The file that makes devices. Its mode decides which users may; not every system lets all users (udev does).
fn door() -> Result<File, Error> {
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DOOR);
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Error::NotPermitted {
            doing: format!("open {DOOR}"),
            help: "let this user read and write it: chmod 666 /dev/net/tun",
        },
        _ => Error::of(format!("open {DOOR}"), error),
    })
}

/// Opens one queue of the device; fills in the name that the kernel chose.
fn attach(file: File, name: &mut String, options: &Options) -> io::Result<OwnedFd> {
    // SAFETY: integers; zeroes are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name = name_bytes(name).ok_or(io::ErrorKind::InvalidInput)?;
    let layer = if options.layer == Layer::Tap { libc::IFF_TAP } else { libc::IFF_TUN };
    let several = if options.queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
    request.ifr_ifru.ifru_flags = (layer | libc::IFF_NO_PI | several) as i16;
    // SAFETY: takes an ifreq.
    unsafe { ioctl(file.as_fd(), libc::TUNSETIFF as libc::c_ulong, &mut request)? };
    let given: Vec<u8> = request.ifr_name.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    *name = String::from_utf8_lossy(&given).into_owned();
    Ok(file.into())
}

/// The state that both directions of a queue share.
#[derive(Debug)]
struct Queue {
    fd: OwnedFd,
    /// For asking about the device.
    socket: OwnedFd,
    device: Link,
    namespace: Namespace,
}

impl Queue {
    fn failed(&self, doing: &str, error: io::Error) -> Error {
        match error.raw_os_error() {
            // The device was removed while its file descriptor was open.
            Some(libc::EBADFD) => Error::Removed(self.device.name.clone()),
            _ => Error::of(format!("{doing} `{}`", self.device.name), error),
        }
    }

    fn is_up(&self) -> io::Result<bool> {
        // SAFETY: integers; zeroes are a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The device may have another name by now.
        // SAFETY: takes an ifreq.
        unsafe { ioctl(self.fd.as_fd(), libc::TUNGETIFF as libc::c_ulong, &mut request)? };
        // SAFETY: as above.
        unsafe { ioctl(self.socket.as_fd(), libc::SIOCGIFFLAGS as libc::c_ulong, &mut request)? };
        // SAFETY: the command filled this field in.
        Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }) & libc::IFF_UP != 0)
    }

    fn counters(&self) -> Option<LinkCounters> {
        let links = self.namespace.enter(link::list).and_then(|links| links).ok()?;
        links.into_iter().find(|link| link.index == self.device.index).map(|link| link.counters)
    }

    fn read(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        // SAFETY: as many bytes as there is room for.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len()) };
        match usize::try_from(read) {
            Ok(read) => Ok(Some(read)),
            Err(_) => match io::Error::last_os_error() {
                error if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
                error => Err(error),
            },
        }
    }
}

/// Receives what the host sends through one queue of the device.
///
/// Frames get their time when they are read. The kernel counts frames lost for want of room for all queues together.
#[derive(Debug)]
pub struct Receiver {
    queue: Arc<Queue>,
    buffer: Vec<u8>,
    /// Once stopped: the frames that were there then.
    stopped: Option<VecDeque<Vec<u8>>>,
    statistics: ReceiveStatistics,
    before: LinkCounters,
    was_down: bool,
}

impl Receiver {
    fn new(queue: Arc<Queue>) -> Receiver {
        Receiver {
            before: queue.device.counters,
            queue,
            buffer: vec![0; BATCH_BYTES],
            stopped: None,
            statistics: ReceiveStatistics::default(),
            was_down: true,
        }
    }

    /// The file descriptor for reading and writing the queue.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.queue.fd.as_fd()
    }

    fn give(&mut self, take: &mut dyn FnMut(Batch<'_>)) -> Result<Option<usize>, Error> {
        let mut lens = [0; BATCH_BLOCKS];
        let (mut count, mut end) = (0, 0);
        while count < BATCH_BLOCKS && self.buffer.len() - end >= FRAME_BYTES {
            let room = &mut self.buffer[end..];
            let read = match &mut self.stopped {
                None => self.queue.read(room),
                Some(kept) => Ok(kept.pop_front().map(|frame| {
                    room[..frame.len()].copy_from_slice(&frame);
                    frame.len()
                })),
            };
            match read {
                Ok(Some(len)) => {
                    (lens[count], end) = (len, end + len);
                    count += 1;
                }
                Ok(None) => break,
                // The frames read so far come before the error.
                Err(_) if count > 0 => break,
                Err(error) => return Err(self.queue.failed("read from", error)),
            }
        }
        if count == 0 {
            return Ok(None);
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let (mut frames, mut rest) = (FrameArray::new(), &self.buffer[..end]);
        for len in &lens[..count] {
            let bytes;
            (bytes, rest) = rest.split_at(*len);
            let mut frame = Frame::new(bytes);
            (frame.time, frame.interface) = (time, self.queue.device.index);
            frames.push(frame);
        }
        take(Batch { first_number: self.statistics.given, frames: frames.as_slice() });
        if self.stopped.is_none() {
            self.statistics.seen += count as u64;
        }
        self.statistics.given += count as u64;
        self.statistics.given_bytes += end as u64;
        Ok(Some(count))
    }
}

impl Receive for Receiver {
    fn receive(&mut self, wait: Duration, take: &mut dyn FnMut(Batch<'_>)) -> Result<Turn, Error> {
        if let Some(given) = self.give(take)? {
            return Ok(Turn::Frames(given));
        }
        let wait = if self.was_down { wait.min(DOWN_LOOK) } else { wait };
        // Once stopped, frames that the queue still gets are not for this receiver.
        let events = if self.stopped.is_some() { 0 } else { libc::POLLIN };
        sys::wait(self.queue.fd.as_fd(), events, wait).map_err(|error| self.queue.failed("wait for", error))?;
        if let Some(given) = self.give(take)? {
            return Ok(Turn::Frames(given));
        }
        self.was_down = !self.queue.is_up().map_err(|error| self.queue.failed("look at", error))?;
        Ok(if self.was_down { Turn::Down } else { Turn::Nothing })
    }

    fn set_filter(&mut self, _program: &[Instruction]) -> Result<u64, Error> {
        Err(Error::Unsupported(format!(
            "filter `{}`: what is not wanted would be lost to everybody",
            self.queue.device.name
        )))
    }

    fn stop(&mut self) -> Result<(), Error> {
        if self.stopped.is_some() {
            return Ok(());
        }
        // The kernel cannot close a queue for new frames and leave the old ones in it, so they are fetched here.
        let mut kept = VecDeque::new();
        while kept.len() < KEPT_FRAMES {
            match self.queue.read(&mut self.buffer) {
                Ok(Some(len)) => kept.push_back(self.buffer[..len].to_vec()),
                Ok(None) => break,
                Err(error) => return Err(self.queue.failed("read from", error)),
            }
        }
        self.statistics.seen += kept.len() as u64;
        self.stopped = Some(kept);
        Ok(())
    }

    fn statistics(&mut self) -> Result<ReceiveStatistics, Error> {
        if self.stopped.is_none()
            && let Some(now) = self.queue.counters()
        {
            let dropped = now.since(&self.before).get("tx_dropped").unwrap_or(0);
            self.statistics.seen += dropped.saturating_sub(self.statistics.dropped);
            self.statistics.dropped = self.statistics.dropped.max(dropped);
        }
        Ok(self.statistics)
    }

    fn counters(&mut self) -> Result<Vec<Counter>, Error> {
        let mut counters = self.statistics()?.all().to_vec();
        counters.extend(self.queue.counters().iter().flat_map(|now| now.since(&self.before).all().collect::<Vec<_>>()));
        Ok(counters)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.queue.fd.as_fd()
    }
}

/// Sends to the host through one queue of the device.
#[derive(Debug)]
pub struct Sender {
    queue: Arc<Queue>,
    statistics: TransmitStatistics,
}

impl Transmit for Sender {
    fn transmit(&mut self, frames: &[&[u8]]) -> Result<Turn, Error> {
        let (mut taken, statistics) = (0, &mut self.statistics);
        for frame in frames {
            // SAFETY: as many bytes as the frame has.
            let written = unsafe { libc::write(self.queue.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len()) };
            if written >= 0 {
                statistics.sent += 1;
                statistics.sent_bytes += frame.len() as u64;
            } else {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EINVAL) => statistics.malformed += 1,
                    Some(libc::EMSGSIZE) => statistics.too_long += 1,
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                        statistics.full += 1;
                        break;
                    }
                    Some(libc::EINTR) => break,
                    Some(libc::EIO | libc::EBADFD) if taken > 0 => break,
                    Some(libc::EIO) => return Ok(Turn::Down),
                    Some(libc::EBADFD) => return Err(self.queue.failed("write to", error)),
                    _ => statistics.refused += 1,
                }
            }
            statistics.taken += 1;
            taken += 1;
        }
        Ok(if taken > 0 { Turn::Frames(taken) } else { Turn::Nothing })
    }

    fn wait_for_room(&mut self, wait: Duration) -> Result<bool, Error> {
        let seen = sys::wait(self.queue.fd.as_fd(), libc::POLLOUT, wait);
        Ok(seen.map_err(|error| self.queue.failed("wait for room on", error))? & libc::POLLOUT != 0)
    }

    fn statistics(&mut self) -> Result<TransmitStatistics, Error> {
        Ok(self.statistics)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.queue.fd.as_fd()
    }
}
