//! The process of an interface. It holds only device and channels: an error in parsing harms this interface alone.
//!
//! ```text
//!  daemon                                   interface process
//!  Networks ─▶ Process ══ orders, words ══▶ serve ─▶ thread ─▶ Interface ── device
//!              ledger                        ◀─ letters ─┘         ║
//!                                                              channels ══ applications
//! ```
//!
//! - here, [`serve`] — the process: opens the device, gives up its rights, and carries out orders
//! - [`message`] — orders and answers; [`letters`] — how messages leave
//! - [`handle`] — the daemon's end: sends orders, restarts an ended process; [`ledger`] — its records
//! - [`talk`] — sending and receiving; [`news`] — lines for the administrator
//!
//! When the daemon ends, the process continues for [`ORPHAN`] and looks for another one, to which it reports everything.

pub(crate) mod handle;
pub(crate) mod ledger;
pub(crate) mod letters;
pub(crate) mod message;
pub(crate) mod news;
pub(crate) mod talk;

use crate::accept::OpeningListener;
use crate::changes::DeviceWatch;
use crate::cookies::Secret;
use crate::dhcp::Dhcp;
use crate::error::{NetError, NetErrorKind};
use crate::interface::Interface;
use crate::limits::{LONELY_LOOK, MTU, ORPHAN, PATH_MTU_V6, REOPEN};
use crate::manager::Opening;
use crate::numbers::Numbers;
use crate::open::{self, Left, Opened};
use crate::routes::Routes;
use crate::sharing::Sharing;
use crate::thread::{self, Command, Ending, Line};
use crate::trace::Tracing;
use crate::users::Users;
use buffer::control;
use buffer::flow::{Bells, Driver};
use flow::{OpenFlow, OpenListener};
use letters::{Letter, Letters};
use message::{Asked, Facts, Order, Owner, Said, Start, Word};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// The functions that an interface process needs from its program.
pub trait Surroundings {
    /// Gives up all rights except the use of open files. `uses_maps`: the process changes maps of a loaded program.
    ///
    /// # Errors
    ///
    /// Rights could not be given up.
    fn confine(&self, uses_maps: bool) -> io::Result<()>;

    /// Connects to the daemon at this path, if that daemon accepts this process.
    ///
    /// # Errors
    ///
    /// There is no daemon, or it does not accept this process.
    fn find_daemon(&self, control: &Path) -> io::Result<OwnedFd>;
}

/// The process: obeys the daemon at the end of this socket until an order ends it, or no daemon is left.
///
/// # Errors
///
/// The daemon ended before the interface was up, or sent an invalid message.
pub fn serve(socket: OwnedFd, surroundings: &dyn Surroundings) -> io::Result<()> {
    let last_words = socket.try_clone()?;
    *LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner) = Some(last_words);
    std::panic::set_hook(Box::new(|panic| {
        let fails = Said { number: 0, word: Word::Fails(panic.to_string()), records: Vec::new() };
        if let Ok(socket) = LAST_WORDS.try_lock()
            && let Some(socket) = socket.as_ref()
        {
            let _ = control::send(socket, &fails, &[]);
        }
        // Not only the thread: the interface would stand still.
        std::process::abort();
    }));
    serve_device(socket, surroundings, &open::open)
}

/// Where to report a panic.
static LAST_WORDS: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Opens a device, perhaps one that an ended process had.
pub(crate) type OpenDevice<'a> = &'a dyn Fn(&flow::OpenInterface, Option<Left>) -> Result<Opened, NetError>;

/// Like [`serve`], with a device that `open` opens.
pub(crate) fn serve_device(socket: OwnedFd, surroundings: &dyn Surroundings, open: OpenDevice<'_>) -> io::Result<()> {
    let mut socket = Arc::new(socket);
    let (letters, to_send) = letters::queue();
    let (to, (number, start, mut interface, told)) = match begin(&socket, surroundings, open, &letters)? {
        Ok(begun) => (Arc::clone(&socket), begun),
        Err((number, error)) => {
            let said = Said { number, word: Word::Refused(error.kind, error.text), records: Vec::new() };
            return control::send(&socket, &said, &[]);
        }
    };
    let numbers = Arc::new(Numbers::of(start.block));
    let users = Users::default();
    let carrier = std::thread::Builder::new().name("net letters".into());
    let carrier = carrier.spawn(move || letters::carry(&to_send, to))?;
    letters.send(told.letter(number));
    restore(&socket, &mut interface, &users, &numbers, &letters)?;
    interface.core.wait_for_addresses(thread::clock());
    // The device may be another one, or the previous process may have ended while it told the flows.
    interface.core.tell_flows(None);
    let (line, desk) = thread::line(letters.clone())?;
    // Names of threads have 15 bytes.
    let thread = std::thread::Builder::new().name(format!("net {}", start.open.device).chars().take(15).collect());
    let thread = thread.spawn(move || thread::run(interface, &desk))?;
    let clerk = Clerk { line, users, numbers };
    let last = loop {
        match control::receive::<Asked>(&socket) {
            Ok(Some((Asked(number, Order::Down), _))) => break Some(number),
            Ok(Some((Asked(_, Order::HandOver), _))) => {
                let _ = clerk.line.tell(0, Command::End(Ending::HandOver));
                let _ = thread.join();
                // Do not close the channels: the next process has them.
                return Ok(());
            }
            Ok(Some((Asked(number, order), _))) => match clerk.carry_out(number, order) {
                Ok(()) => {}
                Err(error) => letters.send(Letter::word(number, Word::Refused(error.kind, error.text))),
            },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The daemon ended, or sent an invalid message.
            Ok(None) | Err(_) => match clerk.find_daemon(&start, surroundings) {
                None => break None,
                Some(daemon) => {
                    if let Ok(copy) = daemon.try_clone() {
                        *LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner) = Some(copy);
                    }
                    socket = Arc::new(daemon);
                    let (start, opened) = (Box::new(start.clone()), told.letter(0));
                    let _ = clerk.line.tell(0, Command::Tell { daemon: Arc::clone(&socket), start, opened });
                }
            },
        }
    };
    end(clerk, thread, last, letters, carrier);
    Ok(())
}

/// Takes the interface down: its flows end, and the daemon is told last.
fn end(clerk: Clerk, thread: JoinHandle<()>, number: Option<u64>, letters: Letters, carrier: JoinHandle<()>) {
    let _ = clerk.line.tell(0, Command::End(Ending::Down));
    // After a panic in a test, no cleanup is needed.
    let _ = thread.join();
    if let Some(number) = number {
        letters.send(Letter::word(number, Word::Answer(flow::Answer::Done)));
    }
    drop((clerk, letters));
    let _ = carrier.join();
}

/// The facts about the device for a daemon.
#[derive(Debug)]
struct Told {
    facts: Facts,
    handle: Option<Arc<OwnedFd>>,
}

impl Told {
    fn letter(&self, number: u64) -> Letter {
        Letter::with(number, Word::Opened(self.facts.clone()), self.handle.iter().cloned().collect(), Vec::new())
    }
}

/// An open interface, and the number of the order for it.
type Begun = (u64, Start, Interface, Told);

/// Opens the device by the first order, and gives up the rights that this needed.
fn begin(
    socket: &OwnedFd,
    surroundings: &dyn Surroundings,
    open: OpenDevice<'_>,
    letters: &Letters,
) -> io::Result<Result<Begun, (u64, NetError)>> {
    let (number, mut start, mut fds) = match control::receive(socket)? {
        Some((Asked(number, Order::Up(start)), fds)) => (number, start, fds),
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    let mut begun = || {
        let mut device = open_device(&start, fds.pop(), open)?;
        if !MTU.contains(&device.mtu) || device.mac[0] & 1 != 0 || device.mac == [0; 6] {
            let device = &start.open.device;
            let text = format!("`{device}` has no MTU from 68 to 65535, or no hardware address of a host");
            return Err(NetError::new(NetErrorKind::Request, text));
        }
        let shared = device.share.take();
        let watch = (device.via != open::LOOPBACK).then(|| DeviceWatch::new(device.mtu)).transpose()?;
        let routes = match &shared {
            Some(shared) => Routes::of_host(&shared.addresses),
            None => Routes::of_table(&start.table).on_device(device.mac),
        };
        if routes.has_ipv6() && device.mtu < PATH_MTU_V6 {
            let text = format!(
                "`{0}` takes packets of {1} bytes, and IPv6 needs {PATH_MTU_V6}; set it: ip link set {0} mtu {PATH_MTU_V6}",
                start.open.device, device.mtu
            );
            return Err(NetError::new(NetErrorKind::Request, text));
        }
        surroundings.confine(shared.is_some()).map_err(|error| NetError::system("give up rights", error))?;
        let facts = Facts {
            mac: device.mac,
            mtu: device.mtu,
            via: device.via.into(),
            shared: shared.as_ref().map(|shared| (shared.index, shared.addresses.clone())),
        };
        let told = Told { facts, handle: device.handle.take() };
        let sharing = shared.map(|shared| Sharing::new(shared, told.handle.clone(), letters.clone()));
        let mut interface = Interface::new(&start.open, routes, device, sharing);
        interface.core.secret = Secret(start.secret.0, start.secret.1);
        interface.watch = watch;
        if let Some(lease) = start.table.lease {
            interface.core.dhcp = Some(Dhcp::resume(interface.core.mac, lease, thread::clock()));
            interface.core.fit_mtu();
        }
        Ok((interface, told))
    };
    let begun = begun();
    Ok(match begun {
        Ok((interface, told)) => {
            // As the next process will find it.
            start.open.how = Some(told.facts.via.clone());
            start.mac = Some(told.facts.mac);
            Ok((number, start, interface, told))
        }
        Err(error) => Err((number, error)),
    })
}

/// Opens the device. After an earlier process the kernel may take a moment to free it, so this tries for a while.
fn open_device(start: &Start, mut handle: Option<OwnedFd>, open: OpenDevice<'_>) -> Result<Opened, NetError> {
    let end = Instant::now() + REOPEN;
    loop {
        let copy = handle.as_ref().map(OwnedFd::try_clone).transpose();
        let copy = copy.map_err(|error| NetError::system("have a copy of a file descriptor", error))?;
        match open(&start.open, start.mac.map(|mac| Left { mac, handle: copy })) {
            Err(error) if start.mac.is_some() && error.kind != NetErrorKind::Absent && Instant::now() < end => {
                std::thread::sleep(LONELY_LOOK);
            }
            opened => {
                drop(handle.take());
                return opened;
            }
        }
    }
}

/// Restores flows, listeners and traces of an earlier process, until the daemon orders to begin.
fn restore(
    socket: &OwnedFd,
    interface: &mut Interface,
    users: &Users,
    numbers: &Arc<Numbers>,
    letters: &Letters,
) -> io::Result<()> {
    loop {
        let (number, done) = match control::receive(socket)? {
            Some((Asked(number, Order::Restore(record)), fds)) => {
                (number, interface.core.restore(record, fds, users, numbers, thread::clock()))
            }
            Some((Asked(number, Order::Begin), _)) => {
                let attached = interface.core.sharing.as_mut().map_or(Ok(()), Sharing::attach);
                let is_done = attached.is_ok();
                letters.send(answer(number, attached));
                if is_done {
                    return Ok(());
                }
                continue;
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        letters.send(answer(number, done));
    }
}

fn answer(number: u64, done: Result<(), NetError>) -> Letter {
    let word = done.map_or_else(|error| Word::Refused(error.kind, error.text), |()| Word::Answer(flow::Answer::Done));
    Letter::word(number, word)
}

/// Carries out orders: makes the system calls for them, so that the interface's thread need not.
struct Clerk {
    line: Line,
    users: Users,
    numbers: Arc<Numbers>,
}

impl Clerk {
    /// Carries out an order. The interface's thread answers, unless this fails.
    fn carry_out(&self, number: u64, order: Order) -> Result<(), NetError> {
        let command = match order {
            Order::Open(owner, open) => self.open(owner, open)?,
            Order::Listen(owner, open) => self.listen(owner, open)?,
            Order::Trace(owner, user, flow, snap) => self.trace(owner, user, flow, snap)?,
            Order::Act(act) => Command::Act(act),
            Order::Up(_) | Order::Restore(_) | Order::Begin | Order::HandOver | Order::Down => {
                return Err(NetError::new(NetErrorKind::Request, "the interface is up already"));
            }
        };
        let ended = || NetError::new(NetErrorKind::Absent, "the interface goes down");
        self.line.tell(number, command).ok_or_else(ended)
    }

    fn open(&self, owner: Owner, open: OpenFlow) -> Result<Command, NetError> {
        let (into, out) = open.geometry().bytes();
        let permit = self.users.take(owner.user, into + out)?;
        let (driver, segments) =
            Driver::create(open.geometry()).map_err(|error| NetError::system("make a channel", error))?;
        let (bells, handles) = doorbells(owner.is_first)?;
        let number = self.numbers.take();
        let opening = Opening { open, owner, number, driver, bells, permit };
        Ok(Command::Open(Box::new(opening), segments.into_iter().chain(handles).collect()))
    }

    fn listen(&self, owner: Owner, open: OpenListener) -> Result<Command, NetError> {
        let permit = self.users.take(owner.user, 0)?;
        let (bells, handles) = doorbells(owner.is_first)?;
        let (number, users, numbers) = (self.numbers.take(), self.users.clone(), Arc::clone(&self.numbers));
        let opening = OpeningListener { open, owner, number, bells, permit, users, numbers };
        Ok(Command::Listen(Box::new(opening), handles))
    }

    fn trace(&self, owner: Owner, user: Option<u32>, flow: u64, snap: u32) -> Result<Command, NetError> {
        let geometry = flow::TRACE_GEOMETRY;
        let (into, out) = geometry.bytes();
        let permit = self.users.take(owner.user, into + out)?;
        let (driver, segments) = Driver::create(geometry).map_err(|error| NetError::system("make a channel", error))?;
        let (bells, handles) = Bells::create().map_err(|error| NetError::system("make doorbells", error))?;
        let (number, snap) = (self.numbers.take(), snap as usize);
        let tracing = Tracing { number, flow, user, owner, snap, driver, bells, permit };
        Ok(Command::Trace(Box::new(tracing), segments.into_iter().chain(handles).collect()))
    }

    /// Looks for another daemon for a while. Meanwhile packets move, and ended applications are noticed.
    fn find_daemon(&self, start: &Start, surroundings: &dyn Surroundings) -> Option<OwnedFd> {
        let end = Instant::now() + ORPHAN;
        while Instant::now() < end {
            self.line.tell(0, Command::Alone)?;
            if !start.control.is_empty()
                && let Ok(daemon) = surroundings.find_daemon(Path::new(&start.control))
            {
                return Some(daemon);
            }
            std::thread::sleep(LONELY_LOOK.min(end.saturating_duration_since(Instant::now())));
        }
        None
    }
}

/// Doorbells for the first flow or listener of a client, and the application's handles of them.
fn doorbells(is_first: bool) -> Result<(Option<Bells>, Vec<OwnedFd>), NetError> {
    if !is_first {
        return Ok((None, Vec::new()));
    }
    let (bells, handles) = Bells::create().map_err(|error| NetError::system("make doorbells", error))?;
    Ok((Some(bells), Vec::from(handles)))
}
