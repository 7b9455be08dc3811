//! The side that runs a request: a thread that listens, one more thread for each question, and orders to the worker.
//!
//! The worker takes orders between batches. Nothing here makes it wait: it looks now and then whether there is an
//! order.

use super::edges::{EdgeNames, Found, Giver};
use super::protocol::{
    Answer, Asked, ChannelLine, Doing, EdgeLine, NewRequest, PROTOCOL, Question, RingPlace, StageLine, StageLines,
    ThreadLine,
};
use super::rings::{WatchRings, without_loss};
use super::{on_one_line, place};
use crate::error::Error;
use crate::session::{Job, PreparedChange, RunningPlan, Session};
use base::atomic::StopFlag;
use buffer::control;
use buffer::control::name::{Claimed, remove_name};
use engine::{Gauges, Replacement, Watch, Worker};
use filter::{Type, Types};
use rustix::event::{PollFd, PollFlags};
use rustix::net::SocketFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const ASKING: usize = 32;

/// How long a client may take to ask, and to read the answer.
const ASK: Duration = Duration::from_secs(5);

/// How long a worker takes to look at an order, unless it is stopped or one batch takes longer.
const ORDER: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(10) };

/// Most tries to watch a request that is being replaced; after each failed try the name is looked up in the new plan.
const WATCH_TRIES: u32 = 100;

/// Longest label of a filter in an answer, in characters.
const LABEL: usize = 200;

/// Longest text of a request in an answer, in characters.
const REQUEST: usize = 4096;

const EDGES_BYTES: usize = 64 << 10;

const STAGES_BYTES: usize = 24 << 10;

/// A running request, open for other processes.
pub struct Running {
    shared: Arc<Shared>,
    path: PathBuf,
    /// Shows that the process of this socket lives.
    _lock: OwnedFd,
    going_on: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    session: Arc<Session>,
    runs: Mutex<Runs>,
    /// Sources of the worker that have ended, and the number of requests replaced before the plan they belong to.
    ended: Mutex<(u64, Vec<usize>)>,
    stop: StopFlag,
    /// Locked by the thread that replaces the request.
    replacing: Mutex<()>,
    rings: WatchRings,
    orders: Mutex<Orders>,
    asking: AtomicUsize,
}

#[derive(Clone)]
struct Runs {
    request: String,
    edges: EdgeNames,
    plan: RunningPlan,
    /// How many requests ran before it.
    replaced: u64,
    /// What its threads do. `None`: it runs on one thread.
    gauges: Option<Arc<Gauges>>,
}

#[derive(Default)]
struct Orders {
    over: bool,
    last: u64,
    waiting: Vec<(u64, Order)>,
}

/// An order to the worker, with the channel for its answer.
enum Order {
    /// Add a watcher. The edges are those of the plan that runs after this number of replacements.
    Watch(Box<Watch>, u64, SyncSender<Done>),
    Replace(Replacement),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Yes,
    /// There are as many watchers as there can be.
    Full,
    /// Another plan runs by now.
    Replaced,
}

impl Shared {
    fn runs(&self) -> Runs {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn ended(&self) -> MutexGuard<'_, (u64, Vec<usize>)> {
        // No panic under this lock leaves a half-made value.
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        // No panic under this lock leaves a half-made value.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// Listens for clients that want to look at a job's edges, replace the job by another request of this session, or
    /// end it by `stop`. If this fails, the job can run all the same.
    pub fn listen(session: Arc<Session>, request: &str, job: &Job, stop: &StopFlag) -> io::Result<Running> {
        let (edges, plan) = (job.edges.clone(), job.running.clone());
        let gauges = job.worker.gauges();
        let runs = Runs { request: on_one_line(&session.purpose(request)), edges, plan, replaced: 0, gauges };
        Running::listen_in(&place::folder(), session, runs, stop.clone())
    }

    fn listen_in(folder: &Path, session: Arc<Session>, runs: Runs, stop: StopFlag) -> io::Result<Running> {
        place::make_folder(folder)?;
        let path = place::socket_in(folder, std::process::id() as i32);
        let shared = Arc::new(Shared {
            session,
            runs: Mutex::new(runs),
            ended: Mutex::default(),
            stop,
            replacing: Mutex::default(),
            rings: WatchRings::new(folder)?,
            orders: Mutex::default(),
            asking: AtomicUsize::new(0),
        });
        let (ending, going_on) = io::pipe()?;
        let Claimed { listener, lock } = place::claim(&path)?;
        let theirs = Arc::clone(&shared);
        let mut running = Running { shared, path, _lock: lock, going_on: Some(going_on.into()), thread: None };
        let asked = std::thread::Builder::new().name("asked".into());
        running.thread = Some(asked.spawn(move || accept(&theirs, &listener, &ending.into()))?);
        Ok(running)
    }

    /// Carries out the waiting orders. Call it between batches.
    pub fn look(&self, worker: &mut Worker) {
        let waiting = std::mem::take(&mut self.shared.orders().waiting);
        for (_, order) in waiting {
            match order {
                Order::Watch(_, replaced, done) if replaced != worker.replaced() => {
                    let _ = done.send(Done::Replaced);
                }
                Order::Watch(watch, _, done) => {
                    // The asker may have given up just now. Then the ring has no reader, and is removed.
                    let _ = done.send(if worker.watch(*watch) { Done::Yes } else { Done::Full });
                }
                Order::Replace(replacement) => worker.replace(replacement),
            }
        }
        worker.tend_watches();
        *self.shared.ended() = (worker.replaced(), worker.ended());
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
            let _ = thread.join();
        }
        remove_name(&self.path);
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
        match control::accept(listener, SocketFlags::empty()) {
            Ok((socket, peer)) => admit(shared, socket, peer.user),
            Err(error) if control::packets::is_short(&error) => std::thread::sleep(Duration::from_millis(100)),
            Err(_) => {}
        }
    }
}

/// Starts a thread for a client's question, if the client may ask.
fn admit(shared: &Arc<Shared>, socket: OwnedFd, user: u32) {
    let is_own = user == rustix::process::geteuid().as_raw();
    let may = user == 0 || is_own;
    let timeouts = [Timeout::Recv, Timeout::Send].map(|which| set_socket_timeout(&socket, which, Some(ASK)));
    // Relaxed: only a limit, which orders no other memory.
    if !may || timeouts.iter().any(Result::is_err) || shared.asking.load(Ordering::Relaxed) >= ASKING {
        let text =
            if may { "too many ask at a time" } else { "only its user and root may look at a request, or end it" };
        return control::send_last(&socket, &Answer::Failed(text.into()));
    }
    shared.asking.fetch_add(1, Ordering::Relaxed);
    let theirs = Arc::clone(shared);
    let answering = std::thread::Builder::new().name("answers".into()).spawn(move || {
        attend(&theirs, &socket, is_own);
        theirs.asking.fetch_sub(1, Ordering::Relaxed);
    });
    if answering.is_err() {
        shared.asking.fetch_sub(1, Ordering::Relaxed);
    }
}

fn attend(shared: &Shared, socket: &OwnedFd, is_own: bool) {
    // A client that closes, stays silent or sends something else gets no answer.
    let Ok(Some((asked, _no_fds_are_expected))) = control::receive(socket) else { return };
    let answer = match asked {
        Asked::Question(Question::Edges) => {
            let runs = shared.runs();
            Answer::Edges(shortened(&runs.request, REQUEST), lines(&runs.edges), stage_lines(runs.gauges.as_deref()))
        }
        Asked::Question(Question::Watch(_, true)) if !is_own => {
            Answer::Failed("only its user may have a request wait: watch it without --lossless".into())
        }
        Asked::Question(Question::Watch(edge, lossless)) => watch(shared, &edge, lossless),
        Asked::Question(Question::Stop) => {
            shared.stop.stop();
            Answer::Stopping
        }
        Asked::Question(Question::Replace(NewRequest { source, name, variables })) => {
            replace(shared, socket, &source, &name, &variables)
        }
        Asked::OtherVersion(other) => {
            Answer::Failed(format!("the request runs in a program that speaks version {PROTOCOL}, not {other}"))
        }
    };
    let _ = control::send(socket, &answer, &[]);
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most { text.into() } else { text.chars().take(most).chain(['…']).collect() }
}

fn lines(edges: &EdgeNames) -> Vec<EdgeLine> {
    let of_giver = |giver: &Giver| {
        let label = shortened(&giver.label, LABEL);
        let (name, number) = (edges.name(giver), giver.number.to_string());
        let all = EdgeLine { name, number, types: giver.types, label: label.clone() };
        let rejects = edges.rejects(giver).map(|(name, number, types)| EdgeLine {
            name,
            number,
            types,
            label: format!("{label} |!"),
        });
        std::iter::once(all).chain(rejects).collect::<Vec<_>>()
    };
    let mut bytes = 0;
    let lines = edges.givers().flat_map(of_giver).take_while(|line| {
        bytes += line.label.len() + line.name.len() + 64;
        bytes <= EDGES_BYTES
    });
    lines.collect()
}

fn stage_lines(gauges: Option<&Gauges>) -> StageLines {
    let Some(gauges) = gauges else { return StageLines::default() };
    let channel =
        |state: &engine::ChannelState| ChannelLine { from: state.from as u32 + 1, full: state.full, room: state.room };
    let thread = |state: &engine::ThreadState| ThreadLine {
        doing: match state.doing {
            engine::Doing::Awake => Doing::Awake,
            engine::Doing::Asleep => Doing::Asleep,
            engine::Doing::Waiting => Doing::Waiting,
            engine::Doing::Ended => Doing::Ended,
        },
        blocks: state.blocks,
        channels: state.channels.iter().map(channel).collect(),
    };
    let stage = |stage: engine::StageState| StageLine {
        filters: shortened(&stage.filters.join(", "), LABEL),
        threads: stage.threads.iter().map(thread).collect(),
    };
    let all = gauges.read().into_iter().map(stage).collect();
    let (stages, left_out) = that_fit(all, STAGES_BYTES);
    StageLines { age: gauges.age(), stages, left_out }
}

/// Gives the first stages that fit into `most` bytes, and the number of threads of the stages left out.
fn that_fit(mut stages: Vec<StageLine>, most: usize) -> (Vec<StageLine>, u32) {
    let mut bytes = 0;
    let fit = stages.iter().take_while(|stage| {
        bytes += control::codec::len(*stage);
        bytes <= most
    });
    let others = stages.split_off(fit.count());
    let threads: usize = others.iter().map(|stage| stage.threads.len()).sum();
    (stages, threads as u32)
}

/// Gives a ring with an edge's blocks, and has the worker write it.
fn watch(shared: &Shared, edge: &str, lossless: bool) -> Answer {
    // If the request is replaced meanwhile, the name may mean another edge, or none: look it up again.
    for _ in 0..WATCH_TRIES {
        let runs = shared.runs();
        let found = match runs.edges.find(edge) {
            Ok(found) => found,
            Err(text) => return Answer::Wrong(text),
        };
        match watch_found(shared, &found, runs.replaced, lossless) {
            Ok(Some(ring)) => return Answer::Ring(ring),
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Err(text) => return Answer::Failed(text),
        }
    }
    Answer::Failed("it is replaced again and again".into())
}

/// Watches an edge of the plan that runs after `replaced` replacements. `None`: another plan runs by now.
fn watch_found(shared: &Shared, found: &Found, replaced: u64, lossless: bool) -> Result<Option<RingPlace>, String> {
    let name = if lossless { without_loss(&found.name) } else { found.name.clone() };
    let (path, new) = shared.rings.open(&name).map_err(|error| format!("no ring can be made: {error}"))?;
    if let Some(writer) = new {
        let frames = Types::of(&[Type::Frame, Type::Packet]).has_all(found.types);
        let (done, is_done) = sync_channel(1);
        let watch = Watch::new(found.edges.clone(), frames, writer);
        let watch = Box::new(if lossless { watch.without_loss() } else { watch });
        let outcome = order(shared, Order::Watch(watch, replaced, done)).and_then(|number| {
            match is_done.recv_timeout(ORDER) {
                // The asker stops waiting. Do not keep the ring for a worker that may never look.
                Err(RecvTimeoutError::Timeout) if withdraw(shared, number) => Err(stopped()),
                Err(RecvTimeoutError::Timeout) => is_done.recv().map_err(|_| ENDED.to_string()),
                Err(RecvTimeoutError::Disconnected) => Err(ENDED.into()),
                Ok(done) => Ok(done),
            }
        });
        if outcome != Ok(Done::Yes) {
            shared.rings.forget(&name);
        }
        match outcome? {
            Done::Yes => {}
            Done::Full => return Err("as many edges of the request are watched as can be".into()),
            Done::Replaced => return Ok(None),
        }
    }
    let path = path.to_str().ok_or("the folder's name is not text")?.to_string();
    let (types, number, label) = (found.types, found.name.clone(), shortened(&found.label, LABEL));
    Ok(Some(RingPlace { path, types, number, label }))
}

fn replace(shared: &Shared, asker: &OwnedFd, source: &str, name: &str, variables: &BTreeMap<String, String>) -> Answer {
    let Ok(_one_at_a_time) = shared.replacing.try_lock() else {
        return Answer::Failed("it is being replaced already".into());
    };
    let running = shared.runs();
    // Right after a replacement the worker may be one plan ahead, or may not have looked yet.
    let (of, ended) = shared.ended().clone();
    let ended = if of == running.replaced { ended } else { Vec::new() };
    let prepared = match shared.session.prepare_change(source, variables, &running.plan, &ended) {
        Ok(prepared) => prepared,
        Err(Error::Request(diagnostic)) => return Answer::Wrong(diagnostic.render(source, name)),
        Err(Error::Input(text)) => return Answer::Wrong(format!("error: {text}\n")),
        Err(Error::System(text)) => return Answer::Failed(text),
    };
    let PreparedChange { running: plan, joined, edges, rest, parts, copies, hand_overs } = prepared;
    if is_gone(asker) {
        // The client was told that there is no answer (perhaps this process was stopped), so the request must stay as
        // it is.
        return Answer::Failed("the client that asked is gone".into());
    }
    let (done, is_done) = sync_channel(1);
    let replacement = Replacement { plan: rest, parts, copies, hand_overs, done };
    let number = match order(shared, Order::Replace(replacement)) {
        Ok(number) => number,
        Err(text) => return Answer::Failed(text),
    };
    let outcome = is_done.recv_timeout(ORDER);
    if matches!(outcome, Err(RecvTimeoutError::Timeout)) && withdraw(shared, number) {
        return Answer::Failed(stopped());
    }
    // Once the worker has the order, it carries it out, unless the run ends first.
    let gauges = match outcome.or_else(|_| is_done.recv()) {
        Ok(Ok(gauges)) => gauges,
        Ok(Err(text)) => return Answer::Failed(text),
        Err(_) => return Answer::Failed(ENDED.into()),
    };
    let request = on_one_line(&shared.session.purpose(source));
    *shared.runs.lock().unwrap_or_else(PoisonError::into_inner) =
        Runs { request, edges, plan, replaced: running.replaced + 1, gauges };
    shared.rings.forget_all();
    shared.session.changed(source, joined);
    Answer::Replaced
}

fn is_gone(socket: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::empty())];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}

const ENDED: &str = "the request has ended, or a part of it that runs on a thread of its own";

fn stopped() -> String {
    format!("the request does nothing for {} s: is it stopped?", ORDER.as_secs())
}

/// Queues an order for the worker, and gives the order's number.
fn order(shared: &Shared, order: Order) -> Result<u64, String> {
    let mut orders = shared.orders();
    if orders.over {
        return Err(ENDED.into());
    }
    orders.last += 1;
    let number = orders.last;
    orders.waiting.push((number, order));
    Ok(number)
}

/// Withdraws an order. `false`: the worker has it already.
fn withdraw(shared: &Shared, number: u64) -> bool {
    let mut orders = shared.orders();
    let before = orders.waiting.len();
    orders.waiting.retain(|(known, _)| *known != number);
    orders.waiting.len() < before
}

#[cfg(test)]
mod tests {
    use super::*;
    use filter::Output;

    #[test]
    fn threads_of_stages_that_have_no_room_are_counted() {
        let thread = ThreadLine { doing: Doing::Awake, blocks: 0, channels: Vec::new() };
        let stage = |threads: usize| StageLine { filters: "count".into(), threads: vec![thread.clone(); threads] };
        let all: Vec<StageLine> = [1, 2, 3].map(stage).into();
        let bytes = |stages: &[StageLine]| stages.iter().map(control::codec::len).sum::<usize>();
        assert_eq!(that_fit(all.clone(), bytes(&all)), (all.clone(), 0));
        assert_eq!(that_fit(all.clone(), bytes(&all) - 1), (all[..2].to_vec(), 3));
        assert_eq!(that_fit(all, 0), (Vec::new(), 6));
    }

    #[test]
    fn what_a_worker_is_asked_in_vain_is_not_kept_for_it() {
        let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../captures/brotli.pcap");
        let session = Arc::new(Session::with_output(Output::new(Box::new(io::sink()), false)));
        let job = session.prepare(&format!("pcap {capture} | count"), &BTreeMap::new()).unwrap();
        let (edges, plan) = (job.edges.clone(), job.running.clone());
        let runs = Runs { request: "x".into(), edges, plan, replaced: 0, gauges: None };
        let folder = tempfile::tempdir().unwrap();
        let running = Running::listen_in(&folder.path().join("requests"), session, runs, StopFlag::new()).unwrap();
        for _ in 0..3 {
            assert_eq!(watch(&running.shared, "pcap", false), Answer::Failed(stopped()));
        }
        assert_eq!(running.shared.orders().waiting.len(), 0);
    }
}
