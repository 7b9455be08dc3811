//! The side of who runs a request: a thread that listens, one more for each question, and orders to the worker, which takes
//! them between batches.
//!
//! Nothing here keeps the worker waiting: it looks now and then whether there is an order.

use super::edges::{EdgeNames, Found};
use super::place;
use super::protocol::{Answer, EdgeLine, Question, RingPlace, receive};
use super::rings::WatchRings;
use crate::session::Job;
use buffer::keeper::server::{lock, remove_socket};
use buffer::shared::{packets, peer};
use engine::{Watch, Worker};
use filter::{Type, Types};
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Questions that are answered at a time.
const ASKING: usize = 32;

/// Who connects has so long to ask, and to take the answer.
const ASK: Duration = Duration::from_secs(5);

/// A worker takes orders within this time, unless it is stopped or one batch takes that long.
const ORDER: Duration = Duration::from_secs(10);

/// Longest label of a filter that is told, in characters.
const LABEL: usize = 200;

/// Bytes of a list of edges that are told at most.
const EDGES_BYTES: usize = 64 << 10;

/// A request that runs, as others see it.
pub struct Running {
    shared: Arc<Shared>,
    path: PathBuf,
    /// Says that the socket is somebody's who lives.
    _lock: OwnedFd,
    going_on: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    request: String,
    edges: EdgeNames,
    rings: WatchRings,
    orders: Mutex<Orders>,
    asking: AtomicUsize,
}

#[derive(Default)]
struct Orders {
    /// The run is over: nobody takes them any more.
    over: bool,
    waiting: Vec<Order>,
}

/// What a worker is asked to do, and where it says whether it did.
struct Order {
    watch: Watch,
    done: SyncSender<bool>,
}

impl Shared {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        // Nothing that panics under it leaves it half made.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// Listens for who wants to look at the edges of a job. Where that cannot be, the job runs all the same.
    pub fn listen(request: &str, job: &Job) -> io::Result<Running> {
        Running::listen_in(&place::folder(), request, &job.edges)
    }

    fn listen_in(folder: &Path, request: &str, edges: &EdgeNames) -> io::Result<Running> {
        place::make_folder(folder)?;
        let path = place::socket_in(folder, std::process::id() as i32);
        let lock = lock(&path)?;
        remove_socket(&path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path)?)?;
        // It does not listen yet: nobody has connected before it was said who may.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        rustix::net::listen(&listener, 64)?;
        let shared = Arc::new(Shared {
            request: request.split_whitespace().collect::<Vec<_>>().join(" "),
            edges: edges.clone(),
            rings: WatchRings::new(folder)?,
            orders: Mutex::default(),
            asking: AtomicUsize::new(0),
        });
        let (ending, going_on) = io::pipe()?;
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("asked".into())
            .spawn(move || accept(&theirs, &listener, &ending.into()))?;
        Ok(Running { shared, path, _lock: lock, going_on: Some(going_on.into()), thread: Some(thread) })
    }

    /// Lets the worker do what it was asked to. To be called between batches.
    pub fn look(&self, worker: &mut Worker) {
        let waiting = std::mem::take(&mut self.shared.orders().waiting);
        for Order { watch, done } in waiting {
            // Who asked may have given up: then nobody reads the ring, and it goes.
            let _ = done.send(worker.watch(watch));
        }
        worker.tend_watches();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let waiting = {
            let mut orders = self.shared.orders();
            orders.over = true;
            std::mem::take(&mut orders.waiting)
        };
        drop(waiting);
        drop(self.going_on.take());
        if let Some(thread) = self.thread.take() {
            // It has no way to panic that could be mended here.
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(self.path.with_extension("lock"));
    }
}

fn accept(shared: &Arc<Shared>, listener: &OwnedFd, ending: &OwnedFd) {
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(ending, PollFlags::IN)];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => admit(shared, socket),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
            // Out of files or memory for a moment.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Lets somebody ask, if it may.
fn admit(shared: &Arc<Shared>, socket: OwnedFd) {
    let may =
        peer::of(socket.as_fd()).is_ok_and(|peer| peer.user == 0 || peer.user == rustix::process::geteuid().as_raw());
    let timeouts = [Timeout::Recv, Timeout::Send].map(|which| set_socket_timeout(&socket, which, Some(ASK)));
    // Relaxed: a limit, and nothing that is ordered by it.
    if !may || timeouts.iter().any(Result::is_err) || shared.asking.load(Ordering::Relaxed) >= ASKING {
        let text = if may { "too many ask at a time" } else { "only its user and root may look at a request" };
        let _ = packets::send(&socket, &Answer::Failed(text.into()).encode(), &[]);
        return;
    }
    shared.asking.fetch_add(1, Ordering::Relaxed);
    let theirs = Arc::clone(shared);
    let answering = std::thread::Builder::new().name("answers".into()).spawn(move || {
        attend(&theirs, &socket);
        theirs.asking.fetch_sub(1, Ordering::Relaxed);
    });
    if answering.is_err() {
        shared.asking.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One question and its answer.
fn attend(shared: &Shared, socket: &OwnedFd) {
    // It closed, is silent, or says more than anybody asks.
    let Ok(Some(packet)) = receive(socket) else { return };
    let answer = match Question::decode(&packet) {
        Ok(Question::Edges) => Answer::Edges(shared.request.clone(), lines(&shared.edges)),
        Ok(Question::Watch(edge)) => match shared.edges.find(&edge) {
            Ok(found) => watch(shared, &found).unwrap_or_else(Answer::Failed),
            Err(text) => Answer::Wrong(text),
        },
        Err(text) => Answer::Failed(text),
    };
    let _ = packets::send(socket, &answer.encode(), &[]);
}

fn shortened(label: &str) -> String {
    if label.chars().count() <= LABEL { label.into() } else { label.chars().take(LABEL).chain(['…']).collect() }
}

fn lines(edges: &EdgeNames) -> Vec<EdgeLine> {
    let line = |giver| -> EdgeLine {
        let giver: &super::edges::Giver = giver;
        let (name, number) = (edges.name(giver), giver.number.to_string());
        EdgeLine { name, number, types: giver.types, label: shortened(&giver.label) }
    };
    let mut bytes = 0;
    let lines = edges.givers().map(line).take_while(|line| {
        bytes += line.label.len() + line.name.len() + 64;
        bytes <= EDGES_BYTES
    });
    lines.collect()
}

/// A ring of what goes along an edge, and a worker that writes it.
fn watch(shared: &Shared, found: &Found) -> Result<Answer, String> {
    let (path, new) = shared.rings.open(&found.name).map_err(|error| format!("no ring can be made: {error}"))?;
    if let Some(writer) = new {
        let frames = Types::of(&[Type::Frame, Type::Packet]).has_all(found.types);
        let watch = Watch::new(found.edges.clone(), frames, writer);
        let done = order(shared, watch);
        if done.is_err() {
            shared.rings.forget(&found.name);
        }
        done?;
    }
    let path = path.to_str().ok_or("the folder's name is not text")?.to_string();
    let (types, number, label) = (found.types, found.name.clone(), shortened(&found.label));
    Ok(Answer::Ring(RingPlace { path, types, number, label }))
}

/// Has the worker do something, and waits until it has.
fn order(shared: &Shared, watch: Watch) -> Result<(), String> {
    let (done, is_done) = sync_channel(1);
    {
        let mut orders = shared.orders();
        if orders.over {
            return Err("the request has ended".into());
        }
        orders.waiting.push(Order { watch, done });
    }
    match is_done.recv_timeout(ORDER) {
        Ok(true) => Ok(()),
        Ok(false) => Err("as many edges of the request are watched as can be".into()),
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => Err("the request has ended".into()),
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
            Err(format!("the request does nothing for {} s: is it stopped?", ORDER.as_secs()))
        }
    }
}
