//! The control socket: the kernel identifies each client; the client asks, and the daemon answers.
//!
//! Each client has a thread, up to a limit. A client that sends nonsense is dropped; a silent one costs a sleeping
//! thread. A client's readers end with its connection, and by their own lines; its flows end with the connection.

use crate::account::Account;
use crate::flows::Flows;
use crate::interfaces::InterfaceStarter;
use crate::journal::{Cause, Journal};
use crate::maps;
use crate::policy::{Peer, Policy};
use crate::standing::Standing;
use buffer::control::name::{self, Claimed};
use buffer::control::{self, packets};
use capture::CaptureErrorKind;
use capture::line::CloseReason;
use capture::protocol::{Answer, ClientState, Code, DaemonState, PROTOCOL, Question};
use capture::{Attachment, By, CaptureError, CaptureRegistry, CaptureRequest, Device, Mode, Permission};
use net::{Networks, PortKeeper};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{SocketAddrUnix, SocketFlags};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use streamline::devices::copied_from_socket;

/// Most clients at a time, without root's: an administrator is let in even if all places are taken.
const CLIENTS: usize = 1024;

const CLIENTS_OF_USER: usize = 256;

/// Line for the administrator when the process that holds ports has ended.
const KEEPER_WENT: &str = "the process that holds ports of the host ended: shared devices take no new flows, and the host may take \
                           the ports of those that are open; start the daemon again";

/// Line for the administrator when the starter of interface processes has ended.
const STARTER_WENT: &str = "the process that starts interface processes ended: devices become no interfaces, and an interface whose process \
                            ends goes down; start the daemon again";

/// Processes that do what the daemon has no rights for any more.
#[derive(Clone, Debug)]
pub struct Helpers {
    /// Holds ports of the host for flows on shared devices.
    pub ports: Arc<PortKeeper>,
    /// Starts the processes of interfaces.
    pub interfaces: Arc<InterfaceStarter>,
    /// The daemon's socket, so that interface processes find the next daemon.
    pub control: PathBuf,
}

/// The users that the socket's mode lets in; the policy says what they may do then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayConnect {
    /// Root, and the daemon's own user.
    Root,
    /// Also this group.
    Group(u32),
    /// All users.
    Everybody,
}

/// A listening socket, with its path if this process has to remove it.
#[derive(Debug)]
pub struct Listening {
    socket: OwnedFd,
    path: Option<PathBuf>,
    /// Shows that the path is in use.
    _lock: Option<OwnedFd>,
}

impl Listening {
    /// Listens at a path, replacing a daemon that was killed there.
    pub fn at(path: &Path, who: MayConnect) -> io::Result<Listening> {
        if let Some(folder) = path.parent() {
            // This folder does not follow the umask: a user that can write to it can replace the socket.
            std::fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
        }
        let (mode, group) = match who {
            // Interface processes connect to the next daemon as the daemon's user. Its group is let in only if that
            // user runs nothing but the daemon.
            MayConnect::Root => match Account::of_daemon() {
                account if account.is_own() && rustix::process::geteuid().is_root() => (0o660, Some(account.group)),
                _ => (0o600, None),
            },
            MayConnect::Group(group) => (0o660, Some(group)),
            MayConnect::Everybody => (0o666, None),
        };
        let Claimed { listener, lock } = name::claim(path, mode, group)?;
        Ok(Listening { socket: listener, path: Some(path.to_path_buf()), _lock: Some(lock) })
    }

    /// Takes a socket that the starter of the daemon made, and that listens already.
    pub fn inherited(socket: OwnedFd) -> Listening {
        Listening { socket, path: None, _lock: None }
    }
}

impl Listening {
    /// The folder of its socket, if this process has to remove the socket.
    pub fn folder(&self) -> Option<&Path> {
        let folder = self.path.as_deref()?.parent()?;
        Some(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
    }

    /// The absolute path where it listens. `None`: it has no path.
    pub fn path(&self) -> Option<PathBuf> {
        let address = SocketAddrUnix::try_from(rustix::net::getsockname(&self.socket).ok()?).ok()?;
        std::path::absolute(OsStr::from_bytes(address.path_bytes()?)).ok()
    }

    /// Leaves the socket's removal to another process.
    pub fn leave_socket(&mut self) {
        self.path = None;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            name::remove_name(path);
        }
    }
}

/// The daemon.
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    registry: CaptureRegistry,
    networks: Arc<Networks>,
    /// `None`: there are no interfaces.
    helpers: Option<Helpers>,
    policy: Policy,
    confined: String,
    device: fn(&str) -> Result<capture::Device, CaptureError>,
    clients: Mutex<Clients>,
    /// Becomes readable when the daemon has to stop, after a write to `stopper`.
    stop: UnixStream,
    stopper: UnixStream,
}

#[derive(Default)]
struct Clients {
    last: u64,
    all: BTreeMap<u64, Connected>,
}

struct Connected {
    peer: Peer,
    purpose: String,
    since: u64,
    readers: Vec<(u64, String)>,
    /// Another reader is being opened for it.
    opening: bool,
    /// Its socket, to end the client.
    socket: Arc<OwnedFd>,
}

impl Helpers {
    /// For each helper process: a file descriptor that hangs up when it ends, and the line for that case.
    fn lines(&self) -> [(BorrowedFd<'_>, &'static str); 2] {
        [(self.ports.as_fd(), KEEPER_WENT), (self.interfaces.as_fd(), STARTER_WENT)]
    }
}

impl Shared {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        // A thread that panicked under this lock left a usable list.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clients of these peers, and all rings.
    fn state(&self, is_wanted: impl Fn(&Peer) -> bool) -> DaemonState {
        let clients = self.clients();
        let wanted = clients.all.iter().filter(|(_, client)| is_wanted(&client.peer));
        let clients = wanted
            .map(|(id, client)| ClientState {
                id: *id,
                process: client.peer.process,
                user: client.peer.user,
                purpose: client.purpose.clone(),
                since: client.since,
                readers: client.readers.clone(),
            })
            .collect();
        DaemonState { confined: self.confined.clone(), clients, rings: self.registry.states() }
    }
}

impl Server {
    /// A daemon with these rings. `confined` describes for people how this process is confined; `device` finds facts
    /// about a device. Without `helpers` there are no interfaces.
    pub fn new(
        registry: CaptureRegistry,
        policy: Policy,
        confined: String,
        device: fn(&str) -> Result<capture::Device, CaptureError>,
        helpers: Option<Helpers>,
    ) -> io::Result<Server> {
        let (stop, stopper) = UnixStream::pair()?;
        policy.instructions.inspect(|instructions| registry.limit(*instructions));
        let networks = helpers.clone().map_or_else(Networks::new, |helpers| {
            Networks::with(helpers.interfaces, Some(helpers.ports), &helpers.control)
        });
        let (networks, clients) = (Arc::new(networks), Mutex::default());
        let shared = Shared { registry, networks, helpers, policy, confined, device, clients, stop, stopper };
        Ok(Server { shared: Arc::new(shared) })
    }

    /// The whole state: what root may know.
    pub fn state(&self) -> DaemonState {
        self.shared.state(|_| true)
    }

    /// A stream that ends [`run`](Self::run) when written to, for signal handlers.
    pub fn stopper(&self) -> io::Result<UnixStream> {
        self.shared.stopper.try_clone()
    }

    /// Serves clients until it is stopped. `tell` takes lines for the administrator.
    pub fn run(&self, listening: &Listening, tell: &dyn Fn(&str)) -> io::Result<()> {
        let mut journal = Journal::new(tell);
        let Shared { policy, registry, networks, helpers, .. } = self.shared.as_ref();
        let mut standing = Standing::new(policy).map_err(|error| io::Error::other(error.text))?;
        if let Some(standing) = &mut standing {
            standing.see_to(policy, registry, &mut journal);
        }
        // The helpers send nothing unasked, but hang up when they end.
        let mut lines: Vec<(BorrowedFd<'_>, &str)> = helpers.iter().flat_map(Helpers::lines).collect();
        loop {
            let mut fds =
                vec![PollFd::new(&listening.socket, PollFlags::IN), PollFd::new(&self.shared.stop, PollFlags::IN)];
            fds.extend(networks.news_fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            let first_line = fds.len();
            fds.extend(lines.iter().map(|(line, _)| PollFd::from_borrowed_fd(*line, PollFlags::empty())));
            fds.extend(standing.as_ref().map(|standing| PollFd::new(standing, PollFlags::IN)));
            let now = Instant::now();
            // At most a minute, so it fits.
            let timeout = journal.catch_up(now).and_then(|due| Timespec::try_from(due - now).ok());
            match rustix::event::poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !fds[1].revents().is_empty() {
                break;
            }
            let is_ready = |at: usize| fds.get(at).is_some_and(|fd: &PollFd<'_>| !fd.revents().is_empty());
            let comes = is_ready(0);
            let changed = standing.is_some() && is_ready(first_line + lines.len());
            let ended: Vec<bool> = (0..lines.len()).map(|at| is_ready(first_line + at)).collect();
            drop(fds);
            let mut ended = ended.into_iter();
            for (_, text) in lines.extract_if(.., |_| ended.next() == Some(true)) {
                tell(text);
            }
            for line in networks.news() {
                match line {
                    net::Line::Interface(line) => tell(&line),
                    net::Line::Flow(line) => journal.tell(Cause::Flows, now, line),
                }
            }
            if let Some(standing) = standing.as_mut().filter(|_| changed) {
                standing.see_to(policy, registry, &mut journal);
            }
            if !comes {
                continue;
            }
            match control::accept(&listening.socket, SocketFlags::empty()) {
                Ok((socket, peer)) => {
                    self.admit(socket, peer, &mut |line| journal.tell(Cause::Refusal, Instant::now(), line));
                }
                // Out of files or memory for a moment: present clients go on.
                Err(error) if packets::is_short(&error) => {
                    let line = format!("clients cannot be let in: {error}");
                    journal.tell(Cause::Accepting, Instant::now(), line);
                    std::thread::sleep(Duration::from_millis(100));
                }
                // The client has gone again.
                Err(_) => {}
            }
        }
        for client in self.shared.clients().all.values() {
            let _ = rustix::net::shutdown(&client.socket, rustix::net::Shutdown::Both);
        }
        // Interfaces stay: their processes look for the next daemon for a while.
        Ok(())
    }

    /// Serves one connected client in this thread, until it goes.
    pub fn attend(&self, socket: &OwnedFd) -> io::Result<()> {
        let peer = control::peer::of(socket.as_fd())?;
        let socket = Arc::new(socket.try_clone()?);
        match self.register(&socket, peer) {
            Ok(session) => session.run(&socket),
            Err(full) => refuse(&socket, &full),
        }
        Ok(())
    }

    fn admit(&self, socket: OwnedFd, peer: Peer, tell: &mut dyn FnMut(String)) {
        let socket = Arc::new(socket);
        let session = match self.register(&socket, peer) {
            Ok(session) => session,
            Err(full) => {
                refuse(&socket, &full);
                return tell(format!("a client was not let in: {full}"));
            }
        };
        let (id, theirs) = (session.id, Arc::clone(&socket));
        let started = std::thread::Builder::new().name(format!("client-{id}")).spawn(move || session.run(&theirs));
        if let Err(error) = started {
            // The session went with its thread, and removed the client from the list.
            refuse(&socket, "the daemon has no thread left for you");
            tell(format!("a client was not let in: no thread can be made: {error}"));
        }
    }

    /// Registers a process as a client. The error says which limit it met.
    fn register(&self, socket: &Arc<OwnedFd>, peer: Peer) -> Result<Session, String> {
        let mut clients = self.shared.clients();
        place_for(&self.shared.policy, clients.all.values().map(|client| &client.peer), &peer)?;
        clients.last += 1;
        let id = clients.last;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let socket = Arc::clone(socket);
        let connected =
            Connected { peer: peer.clone(), purpose: String::new(), since, readers: vec![], opening: false, socket };
        clients.all.insert(id, connected);
        Ok(Session { shared: Arc::clone(&self.shared), id, peer, flows: Flows::default() })
    }
}

/// Checks that there is a place for one more client. The error says which limit was met, and the remedy. Clients
/// without any permission may ask for the state, but take no place from clients with one.
fn place_for<'a>(
    policy: &Policy,
    connected: impl Iterator<Item = &'a Peer> + Clone,
    peer: &Peer,
) -> Result<(), String> {
    let count = |which: &dyn Fn(&Peer) -> bool| connected.clone().filter(|other| which(other)).count();
    let (limit, whose) = if count(&|other| other.user == peer.user) >= CLIENTS_OF_USER {
        (CLIENTS_OF_USER, format!("clients of user {}, as many as one user may have", peer.user))
    } else if peer.user != 0 && count(&|other| other.user != 0) >= CLIENTS {
        (CLIENTS, "clients that are not root's, as many as there can be".to_string())
    } else if !policy.knows(peer) && count(&|other| !policy.knows(other)) >= CLIENTS_OF_USER {
        (CLIENTS_OF_USER, "clients that its policy allows nothing, as many as there can be".to_string())
    } else {
        return Ok(());
    };
    Err(format!("the daemon has {limit} {whose}: a place is free when one of them ends (`streamline ps`)"))
}

fn refuse(socket: &OwnedFd, text: &str) {
    let answer = Answer::Refused(CaptureErrorKind::Full, text.into());
    control::send_last(socket, &answer);
}

struct Session {
    shared: Arc<Shared>,
    id: u64,
    peer: Peer,
    flows: Flows,
}

impl Session {
    fn run(mut self, socket: &OwnedFd) {
        loop {
            let (question, fds) = match control::receive(socket) {
                Ok(Some(asked)) => asked,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // It has closed, or sent something that no client sends.
                Ok(None) | Err(_) => break,
            };
            // One question and its answer at a time. A client that keeps asking without taking its answers would pile
            // up file descriptors, which are counted for all clients together.
            if !packets::all_taken(socket).unwrap_or(false) {
                break;
            }
            if question == Question::Flows(flow::Question::Adopt) && self.adopts(socket) {
                return self.adopt(socket);
            }
            if self.answer(socket, question, fds).is_err() {
                break;
            }
        }
    }

    /// Whether this is the process of an interface that lost its daemon. If not, it is refused.
    fn adopts(&self, socket: &OwnedFd) -> bool {
        if self.peer.user != rustix::process::geteuid().as_raw() {
            return false;
        }
        packets::take_files(socket);
        control::send(socket, &Answer::Flows(flow::Answer::Done), &[]).is_ok()
    }

    /// Turns the client into an interface process.
    fn adopt(self, socket: &OwnedFd) {
        let (networks, own) = (Arc::clone(&self.shared.networks), socket.try_clone());
        drop(self);
        if let Ok(own) = own {
            networks.adopt(own);
        }
    }

    fn answer(&mut self, socket: &OwnedFd, question: Question, fds: Vec<OwnedFd>) -> io::Result<()> {
        let send = |answer: Answer| control::send(socket, &answer, &[]);
        match question {
            Question::Hello(_, purpose) => {
                let purpose = base::terminal::line(&purpose.chars().take(500).collect::<String>()).into_owned();
                if let Some(client) = self.shared.clients().all.get_mut(&self.id) {
                    client.purpose = purpose;
                }
                send(Answer::Hello(PROTOCOL))
            }
            Question::Device(name) => {
                // A client that may read the device in any mode.
                let allows = |mode| self.shared.policy.allows(&self.peer, &name, mode);
                let allowed = allows(Mode::Tap).or_else(|denied| allows(Mode::Consume).map_err(|_| denied));
                let allowed = allowed.map_err(|text| CaptureError::new(CaptureErrorKind::Denied, text));
                let answer = || {
                    let (right, mut device) = (allowed?, (self.shared.device)(&name)?);
                    let budget = self.shared.registry.budget(device.index, self.peer.user);
                    if let Some(why) = self.why_no_maps(socket, &right).filter(|_| !device.copied) {
                        device = Device { how: copied_from_socket(&why), copied: true, ..device };
                    }
                    Ok(Answer::Device(device, budget))
                };
                send(answer().unwrap_or_else(CaptureError::into))
            }
            Question::Open(asked) => match self.open(socket, asked) {
                Ok(attachment) => {
                    let Attachment { granted, fds } = attachment;
                    let id = granted.id;
                    let sent = control::send(socket, &Answer::Granted(granted), &fds.all());
                    sent.or_else(|error| {
                        // Perhaps too many file descriptors are on their way. An answer without one may still get
                        // through.
                        self.release(id);
                        send(CaptureError::system("what a reader needs cannot be handed out", &error).into())
                    })
                }
                Err(error) => send(error.into()),
            },
            Question::Exchange(id, Code(program)) => send(match self.mine(id) {
                Ok(()) => match self.shared.registry.exchange(id, &program) {
                    Ok(exchange) => Answer::Exchanged(exchange),
                    Err(error) => error.into(),
                },
                Err(error) => error.into(),
            }),
            Question::Close(id) => send(match self.mine(id) {
                Ok(()) => {
                    self.release(id);
                    Answer::Done
                }
                Err(error) => error.into(),
            }),
            Question::State => send(Answer::State(self.state())),
            Question::Stop(id) => send(self.stop(id)),
            Question::Forget(device) => send(self.forget(&device)),
            Question::Flows(question) => self.answer_about_flows(socket, &question, fds),
        }
    }

    fn answer_about_flows(&mut self, socket: &OwnedFd, question: &flow::Question, fds: Vec<OwnedFd>) -> io::Result<()> {
        let Shared { networks, policy, .. } = self.shared.as_ref();
        match question {
            // `Reclaim` comes with a file. Closing it may take a while, which only delays this client's thread.
            flow::Question::Reclaim => packets::take_files(socket),
            flow::Question::Claim(_) => packets::take_no_files(socket),
            _ => {}
        }
        let send = |error: CaptureError| control::send(socket, &Answer::from(error), &[]);
        let (answer, fds) = match self.flows.answer(networks, policy, &self.peer, question, fds) {
            Ok(answered) => answered,
            Err(error) => return send(error),
        };
        let beside: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let answer = Answer::Flows(answer);
        control::send(socket, &answer, &beside).or_else(|error| {
            let Answer::Flows(answer) = &answer else { return Err(error) };
            if !self.flows.take_back(answer) {
                return Err(error);
            }
            // As with a reader: an answer without file descriptors may still get through.
            send(CaptureError::system("what a flow needs cannot be handed out", &error))
        })
    }

    fn release(&self, id: u64) {
        self.shared.registry.close(&[id]);
        if let Some(client) = self.shared.clients().all.get_mut(&self.id) {
            client.readers.retain(|(known, _)| *known != id);
        }
    }

    fn mine(&self, id: u64) -> Result<(), CaptureError> {
        let clients = self.shared.clients();
        let mine = clients.all.get(&self.id).is_some_and(|client| client.readers.iter().any(|(known, _)| *known == id));
        if mine {
            Ok(())
        } else {
            Err(CaptureError::new(CaptureErrorKind::Request, "that is no reader of this client"))
        }
    }

    /// Why this client gets no kernel maps for a reader with this permission. `None`: it may have them.
    fn why_no_maps(&self, socket: &OwnedFd, right: &Permission) -> Option<String> {
        if self.shared.policy.shares(right) { maps::why_no_maps(socket.as_fd(), self.peer.user) } else { None }
    }

    fn open(&self, socket: &OwnedFd, mut asked: CaptureRequest) -> Result<Attachment, CaptureError> {
        let denied = |text| CaptureError::new(CaptureErrorKind::Denied, text);
        let Policy { ring_bytes, readers, .. } = self.shared.policy;
        let right = self.shared.policy.allows(&self.peer, &asked.device, asked.mode).map_err(denied)?;
        // The first reader decides for later ones: a smaller ring than usual would make them lose packets.
        let wanted = asked.ring_bytes.max(capture::registry::RING_BYTES);
        asked.ring_bytes = capture::registry::ring_bytes(wanted, ring_bytes);
        if asked.keep && !self.shared.policy.may_manage(&self.peer) {
            return Err(denied(
                "only root, or the daemon's policy (`keep`), may have packets kept for readers that look back; `last=` \
                 looks back without it"
                    .into(),
            ));
        }
        let why = if asked.mode == Mode::Tap { self.why_no_maps(socket, &right) } else { None };
        let by = asked.by;
        match &why {
            Some(why) if by == By::Kernel => return Err(denied(format!("{why}: read it without `by=kernel`"))),
            Some(_) => asked.by = By::PacketSocket,
            None => {}
        }
        self.book(readers)?;
        let mut opened = self.shared.registry.open_for(self.peer.user, &asked, right);
        if let (Ok(attachment), Some(why)) = (&mut opened, why.filter(|_| by != By::PacketSocket)) {
            let separator = if attachment.granted.note.is_empty() { "" } else { "; " };
            let how = copied_from_socket(&why);
            attachment.granted.note =
                format!("{}{separator}packets of `{}` are {how}", attachment.granted.note, asked.device);
        }
        if asked.keep
            && wanted > asked.ring_bytes
            && let Ok(attachment) = &mut opened
            && attachment.granted.note.is_empty()
        {
            let kibibytes = asked.ring_bytes >> 10;
            attachment.granted.note =
                format!("the daemon's policy lets a ring have {kibibytes} KiB: no more than that is kept");
        }
        if let Some(client) = self.shared.clients().all.get_mut(&self.id) {
            client.opening = false;
            client.readers.extend(opened.as_ref().ok().map(|attachment| (attachment.granted.id, asked.device)));
        }
        opened
    }

    /// Books one more reader for this client's user; `most` is the user's limit.
    fn book(&self, most: usize) -> Result<(), CaptureError> {
        // Readers also end by their own lines, which only their owner learns of. Look for ended ones without the lock,
        // since the registry may be loading programs.
        let of_user = |client: &Connected| client.peer.user == self.peer.user;
        let known: Vec<u64> = {
            let clients = self.shared.clients();
            let mine = clients.all.values().filter(|client| of_user(client));
            mine.flat_map(|client| client.readers.iter().map(|(id, _)| *id)).collect()
        };
        let gone = self.shared.registry.gone(&known);
        let mut clients = self.shared.clients();
        for client in clients.all.values_mut().filter(|client| of_user(client)) {
            client.readers.retain(|(id, _)| !gone.contains(id));
        }
        let mine = clients.all.values().filter(|client| of_user(client));
        let count: usize = mine.map(|client| client.readers.len() + usize::from(client.opening)).sum();
        if count >= most && self.peer.user != 0 {
            let text = format!(
                "user {} has {count} readers already, as many as the daemon's policy lets one user have (`[limits] \
                 readers`): a place is free when one of them ends (`streamline ps`, `streamline stop`)",
                self.peer.user
            );
            return Err(CaptureError::new(CaptureErrorKind::Full, text));
        }
        if let Some(client) = clients.all.get_mut(&self.id) {
            client.opening = true;
        }
        Ok(())
    }

    /// The state, as far as this client may know it: the clients of its own user, and the rings they read.
    fn state(&self) -> DaemonState {
        let all = self.shared.policy.may_manage(&self.peer);
        let mut state = self.shared.state(|peer| all || peer.user == self.peer.user);
        if !all {
            let DaemonState { clients, rings, .. } = &mut state;
            let mine = |id: u64| clients.iter().any(|client| client.readers.iter().any(|(known, _)| *known == id));
            rings.iter_mut().for_each(|ring| ring.readers.retain(|reader| mine(reader.id)));
            rings.retain(|ring| !ring.readers.is_empty());
        }
        state
    }

    fn forget(&self, device: &str) -> Answer {
        if !self.shared.policy.may_manage(&self.peer) {
            return Answer::Refused(CaptureErrorKind::Denied, "only root may take back what is kept".into());
        }
        match self.shared.registry.forget(device) {
            true => Answer::Done,
            false => Answer::Refused(CaptureErrorKind::Absent, format!("no packets of `{device}` are kept")),
        }
    }

    fn stop(&self, id: u64) -> Answer {
        let may_end =
            |client: &Connected| client.peer.user == self.peer.user || self.shared.policy.may_manage(&self.peer);
        let (readers, socket): (Vec<u64>, _) = {
            let clients = self.shared.clients();
            let Some(client) = clients.all.get(&id).filter(|client| may_end(client)) else {
                return Answer::Refused(CaptureErrorKind::Absent, format!("there is no client {id} of yours"));
            };
            (client.readers.iter().map(|(reader, _)| *reader).collect(), Arc::clone(&client.socket))
        };
        // Dismiss first: the client's thread closes its readers without a reason once its socket is closed.
        self.shared.registry.dismiss(&readers, CloseReason::Stopped(self.peer.user));
        let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
        Answer::Done
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let client = self.shared.clients().all.remove(&self.id);
        let readers: Vec<u64> = client.into_iter().flat_map(|client| client.readers).map(|(id, _)| id).collect();
        self.shared.registry.close(&readers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a policy file only root and one group, if it exists, may do anything.
    #[test]
    fn strangers_leave_places_for_those_who_may_do_something() {
        let peer = |user: u32| Peer { process: 1, user, groups: vec![] };
        let policy = Policy::without_file();
        let strangers: Vec<Peer> = (0..CLIENTS_OF_USER as u32).map(|at| peer(10_000 + at)).collect();
        let place = |policy: &Policy, connected: &[Peer], user| place_for(policy, connected.iter(), &peer(user));
        assert_eq!(place(&policy, &strangers[1..], 7), Ok(()));
        assert!(place(&policy, &strangers, 7).unwrap_err().contains("256 clients that its policy allows nothing"));
        assert_eq!(place(&policy, &strangers, 0), Ok(()));
        let all = Policy::for_one();
        assert_eq!(place(&all, &strangers, 7), Ok(()), "here everybody may do something");
        let crowd = vec![peer(7); CLIENTS_OF_USER];
        assert!(place(&all, &crowd, 7).unwrap_err().contains("256 clients of user 7"));
        assert_eq!(place(&all, &crowd, 8), Ok(()));
    }
}
