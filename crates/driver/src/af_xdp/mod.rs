//! AF_XDP sockets: frames go from the device's driver straight into memory of this process, and back. Received frames
//! are *taken*: the host's own stack does not see them (`mode=consume`).
//!
//! - [`Device::open`] — puts a program on the device, and opens a socket for each of its queues. Start reading here.
//! - [`Receiver`], [`Sender`] — the two directions of a queue; `rings.rs` — their rings, shared with the kernel.
//! - `memory.rs` — memory for frames; `redirect.rs` — the program; `lookout.rs` — changes of the device.
//! - [`foreign`] — names of other owners' programs that are in the way.
//!
//! A frame is in one chunk. A device with longer packets cannot be opened in native mode; in generic mode it loses the
//! longer packets, counted. XDP sees what a device receives, never what the host sends through it.

pub mod foreign;
mod lookout;
mod memory;
mod receiver;
mod redirect;
mod rings;
mod sender;

pub use receiver::Receiver;
pub use redirect::{Program, check_free, replace};
pub use sender::Sender;

use crate::af_packet::PacketSocket;
use crate::error::Error;
use crate::ethtool::Ethtool;
use crate::link::{self, Link, XdpMode};
use crate::namespace::Namespace;
use crate::sys::{self, check};
use lookout::Lookout;
use memory::Memory;
use redirect::Redirect;
use rings::{Ring, Which};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CHUNKS_MAX: u32 = 1 << 20;

/// Entries of a ring that is not used.
const UNUSED_ENTRIES: u32 = 64;

/// How long the kernel may take to free a queue after its last socket was closed; it does that in the background.
const RELEASE: Duration = Duration::from_millis(500);

const RELEASE_LOOK: Duration = Duration::from_millis(2);

/// How to open a device.
#[derive(Debug)]
pub struct Options {
    /// Numbers of its queues; an empty list stands for all.
    pub queues: Vec<u32>,
    /// Chunks for receiving, for each queue: a power of two. The receiver may be as many frames behind.
    pub receive_chunks: u32,
    /// Chunks for sending, for each queue: a power of two.
    pub transmit_chunks: u32,
    /// Bytes of a chunk, 2,048 or 4,096; a frame has up to 256 fewer.
    pub chunk_bytes: u32,
    /// Where the program should attach.
    pub attach: Attach,
    /// Whether frames may be copied.
    pub copying: Copying,
    /// Makes the device receive frames for other hosts too, as long as it is open.
    pub promiscuous: bool,
    /// Makes the device receive frames for every multicast group, as long as it is open.
    pub all_groups: bool,
    /// A program to use instead of the one that takes every frame.
    pub program: Option<Program>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            queues: Vec::new(),
            receive_chunks: 4096,
            transmit_chunks: 2048,
            chunk_bytes: 4096,
            attach: Attach::NativeIfThere,
            copying: Copying::NoneIfThere,
            promiscuous: false,
            all_groups: false,
            program: None,
        }
    }
}

/// Where the program should attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// In the device's driver if possible, otherwise after it.
    NativeIfThere,
    /// In the device's driver.
    Native,
    /// After the driver, which works for every device.
    Generic,
}

/// Whether frames are copied between the device's memory and this process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// Only if the driver cannot avoid it.
    NoneIfThere,
    /// Never: an error if the driver cannot avoid it.
    None,
    /// Always.
    Always,
}

/// An open device.
#[derive(Debug)]
pub struct Device {
    /// The kernel's description.
    pub link: Link,
    /// Where the program runs.
    pub mode: XdpMode,
    /// Its queues.
    pub queues: Vec<Queue>,
    redirect: Arc<Redirect>,
}

/// A queue of a device, with both directions.
#[derive(Debug)]
pub struct Queue {
    /// Its number.
    pub number: u32,
    /// Whether frames travel without being copied.
    pub zero_copy: bool,
    /// Receives through the queue.
    pub receiver: Receiver,
    /// Sends through the queue.
    pub sender: Sender,
}

impl Device {
    /// Opens the device with this name in `namespace`. Frames received by the queues come here from now on.
    pub fn open(namespace: &Namespace, name: &str, options: Options) -> Result<Device, Error> {
        let opened = namespace.enter(|| Device::open_here(namespace, name, options));
        opened.map_err(Error::doing(format!("enter the network namespace of `{name}`")))?
    }

    fn open_here(namespace: &Namespace, name: &str, mut options: Options) -> Result<Device, Error> {
        let link = link::find(name).map_err(Error::doing(format!("look for `{name}`")))?;
        let link = link.ok_or_else(|| Error::Absent(name.into()))?;
        options.check()?;
        let queues = match options.queues.as_slice() {
            [] => (0..receiving_queues(&link)).collect(),
            queues => queues.to_vec(),
        };
        // The program first: if it is refused, no frame has been taken.
        let modes: &[XdpMode] = match options.attach {
            Attach::NativeIfThere => &[XdpMode::Native, XdpMode::Generic],
            Attach::Native => &[XdpMode::Native],
            Attach::Generic => &[XdpMode::Generic],
        };
        let redirect = Arc::new(Redirect::attach(&link, options.program.take(), modes)?);
        let open = |&number: &u32| Queue::open(namespace, &link, number, &options, &redirect);
        let queues = queues.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Device { mode: redirect.mode(), link, queues, redirect })
    }

    /// Replaces the program by another one that redirects with the same map of sockets. The change happens between two
    /// frames and loses none. An error leaves the earlier program in place.
    pub fn exchange(&self, program: BorrowedFd<'_>) -> Result<(), Error> {
        let exchanged = self.redirect.exchange(program);
        exchanged.map_err(Error::doing(format!("exchange the XDP program of `{}`", self.link.name)))
    }

    /// The link that holds the program on the device as long as it is open, also in another process.
    pub fn attachment(&self) -> BorrowedFd<'_> {
        self.redirect.link()
    }
}

impl Sender {
    /// Sends through one queue of a device without receiving: the host keeps receiving, and no program is attached.
    /// Frames are copied. `chunks` is a power of two: as many frames may be under way.
    pub fn open(namespace: &Namespace, name: &str, queue: u32, chunks: u32) -> Result<Sender, Error> {
        let opened = namespace.enter(|| {
            let link = link::find(name).map_err(Error::doing(format!("look for `{name}`")))?;
            let link = link.ok_or_else(|| Error::Absent(name.into()))?;
            Sender::open_here(namespace, link, queue, chunks)
        });
        opened.map_err(Error::doing(format!("enter the network namespace of `{name}`")))?
    }

    fn open_here(namespace: &Namespace, device: Link, number: u32, chunks: u32) -> Result<Sender, Error> {
        let options = Options { receive_chunks: UNUSED_ENTRIES, transmit_chunks: chunks, ..Options::default() };
        options.check()?;
        let doing = |what: &str| Error::doing(format!("{what} for queue {number} of `{}`", device.name));
        let (fd, memory) = register(chunks, options.chunk_bytes, &device.name, number)?;
        // The kernel demands a ring of chunks for receiving, even if it is not used.
        let sizes = [(Which::Fill, UNUSED_ENTRIES), (Which::Completion, chunks), (Which::Transmit, chunks)];
        for (which, entries) in sizes {
            rings::ask_for(fd.as_fd(), which, entries).map_err(doing("have rings"))?;
        }
        let completion = map_ring(&fd, Which::Completion, chunks).map_err(doing("map rings"))?;
        let transmit = map_ring(&fd, Which::Transmit, chunks).map_err(doing("map rings"))?;
        bind(fd.as_fd(), device.index, number, Copying::Always).map_err(doing("bind a socket"))?;
        let lookout = PacketSocket::new(device.index)?;
        let lookout = Lookout::new(lookout).map_err(doing("watch for events"))?;
        let socket = Socket { fd, memory, device, namespace: namespace.clone(), queue: number };
        Ok(Sender::new(Arc::new(socket), lookout, completion, transmit, 0))
    }
}

/// Number of queues with which the device receives now; it may have been made with more.
fn receiving_queues(link: &Link) -> u32 {
    let [receiving, _, both] = Ethtool::new().and_then(|tool| tool.channels(&link.name)).unwrap_or_default().in_use;
    // Not every driver tells.
    let queues = if receiving + both > 0 { receiving + both } else { link.receive_queues };
    queues.clamp(1, link.receive_queues.max(1))
}

impl Options {
    fn check(&self) -> Result<(), Error> {
        let sound = |chunks: u32| chunks.is_power_of_two() && chunks <= CHUNKS_MAX;
        if sound(self.receive_chunks) && sound(self.transmit_chunks) && [2048, 4096].contains(&self.chunk_bytes) {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "{} and {} chunks of {} bytes: their number is a power of two up to {CHUNKS_MAX}, their size 2048 or 4096",
            self.receive_chunks, self.transmit_chunks, self.chunk_bytes
        )))
    }
}

/// The state that both directions of a queue share.
#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    memory: Memory,
    device: Link,
    namespace: Namespace,
    queue: u32,
}

impl Socket {
    fn failed(&self, doing: &str, error: io::Error) -> Error {
        Error::of(format!("{doing} `{}`", self.device.name), error)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Queue {
    fn open(
        namespace: &Namespace,
        device: &Link,
        number: u32,
        options: &Options,
        redirect: &Arc<Redirect>,
    ) -> Result<Queue, Error> {
        let doing = |what: &str| Error::doing(format!("{what} for queue {number} of `{}`", device.name));
        let chunks = options.receive_chunks + options.transmit_chunks;
        let (fd, memory) = register(chunks, options.chunk_bytes, &device.name, number)?;
        let sizes = [
            (Which::Fill, options.receive_chunks),
            (Which::Receive, options.receive_chunks),
            (Which::Completion, options.transmit_chunks),
            (Which::Transmit, options.transmit_chunks),
        ];
        for (which, entries) in sizes {
            rings::ask_for(fd.as_fd(), which, entries).map_err(doing("have rings"))?;
        }
        let (receiving, sending) = (options.receive_chunks, options.transmit_chunks);
        let fill = map_ring(&fd, Which::Fill, receiving).map_err(doing("map rings"))?;
        let receive = map_ring(&fd, Which::Receive, receiving).map_err(doing("map rings"))?;
        let completion = map_ring(&fd, Which::Completion, sending).map_err(doing("map rings"))?;
        let transmit = map_ring(&fd, Which::Transmit, sending).map_err(doing("map rings"))?;
        let zero_copy = bind(fd.as_fd(), device.index, number, options.copying)
            .map_err(doing(if options.copying == Copying::None { "do without copying" } else { "bind a socket" }))?;
        let lookout = |socket| Lookout::new(socket).map_err(doing("watch for events"));
        let look = PacketSocket::new(device.index)?;
        if options.promiscuous {
            look.become_promiscuous().map_err(doing("receive what is for others"))?;
        }
        if options.all_groups {
            look.join_all_groups().map_err(doing("receive what is for groups"))?;
        }
        let (of_receiver, of_sender) = (lookout(look)?, lookout(PacketSocket::new(device.index)?)?);
        let (device, namespace) = (device.clone(), namespace.clone());
        let socket = Arc::new(Socket { fd, memory, device, namespace, queue: number });
        let receiver = Receiver::start(Arc::clone(&socket), Arc::clone(redirect), of_receiver, fill, receive)?;
        let sender = Sender::new(socket, of_sender, completion, transmit, options.receive_chunks);
        Ok(Queue { number, zero_copy, receiver, sender })
    }
}

/// A socket, and memory for its frames that is registered with the kernel.
fn register(chunks: u32, chunk_bytes: u32, device: &str, queue: u32) -> Result<(OwnedFd, Memory), Error> {
    let doing = |what: &str| Error::doing(format!("{what} for queue {queue} of `{device}`"));
    let fd = sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(doing("open an AF_XDP socket"))?;
    let memory = Memory::create("streamline-frames", chunks, chunk_bytes);
    let memory = memory.map_err(doing("have memory for frames"))?;
    let registered = sys::set_option(fd.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &memory.registration());
    registered.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOBUFS) => Error::NotPermitted {
            doing: format!("lock {} KiB of memory", (chunks as usize * chunk_bytes as usize) >> 10),
            help: "it takes CAP_IPC_LOCK, a larger limit of locked memory (`ulimit -l`), or fewer chunks",
        },
        _ => doing("show memory for frames to the kernel")(error),
    })?;
    Ok((fd, memory))
}

fn map_ring<E: rings::Entry>(fd: &OwnedFd, which: Which, entries: u32) -> io::Result<Ring<E>> {
    Ring::map(fd.as_fd(), which, entries, &rings::offsets(fd.as_fd())?)
}

#[repr(C)]
struct Address {
    family: u16,
    flags: u16,
    device: u32,
    queue: u32,
    shared: u32,
}

/// Binds a socket to a queue; says whether frames travel without being copied.
fn bind(fd: BorrowedFd<'_>, device: u32, queue: u32, copying: Copying) -> io::Result<bool> {
    // With neither flag the kernel avoids copying if it can.
    let copying = match copying {
        Copying::NoneIfThere => 0,
        Copying::None => libc::XDP_ZEROCOPY,
        Copying::Always => libc::XDP_COPY,
    };
    let flags = copying | libc::XDP_USE_NEED_WAKEUP;
    let address = Address { family: libc::AF_XDP as u16, flags, device, queue, shared: 0 };
    let bytes = size_of::<Address>() as u32;
    let end = Instant::now() + RELEASE;
    // SAFETY: an address of that many bytes.
    while let Err(error) = check(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), bytes) }) {
        if error.raw_os_error() != Some(libc::EBUSY) || Instant::now() >= end {
            return Err(error);
        }
        std::thread::sleep(RELEASE_LOOK);
    }
    let options: u32 = sys::option(fd, libc::SOL_XDP, libc::XDP_OPTIONS)?;
    Ok(options & libc::XDP_OPTIONS_ZEROCOPY != 0)
}
