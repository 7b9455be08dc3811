//! The daemon's end of an interface's process: sends orders, keeps records, and starts another process when one ends.
//!
//! A thread receives the process's messages. A question that a process did not answer goes to the next process: the
//! daemon keeps a record only after an answer.

use super::ledger::{Entry, Ledger};
use super::message::{Act, Facts, Order, Said, Start, Word};
use super::news::News;
use super::talk::{BEGIN, Running, hear, open_device, order, send, unheard};
use crate::error::{NetError, NetErrorKind};
use crate::limits::{ANSWER, END, RESTARTS, SHARE_QUESTIONS};
use crate::routes::Routes;
use crate::sharing::resolver;
use buffer::control;
use driver::netlink::Netlink;
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The pause between two attempts to start a process.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts interface processes.
pub trait Starter: Send + Sync + fmt::Debug {
    /// Starts a process for this device.
    ///
    /// # Errors
    ///
    /// The process could not be made.
    fn start(&self, device: &str) -> io::Result<Running>;

    /// Ends a process that does not answer.
    ///
    /// # Errors
    ///
    /// This process may not end it.
    fn kill(&self, process: BorrowedFd<'_>) -> io::Result<()>;
}

#[derive(Debug)]
enum Lifecycle {
    Runs(Arc<Running>),
    /// Another process is being started.
    Starts,
    /// The interface must go down.
    Ends(Option<Arc<Running>>),
    /// The interface is down.
    Ended,
}

/// An answer, and the file descriptors for the application.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) word: Word,
    pub(crate) fds: Vec<OwnedFd>,
}

/// A process that has opened another device.
#[derive(Debug)]
struct Next {
    running: Running,
    handle: Option<OwnedFd>,
    start: Start,
}

/// The process of an interface, whichever one runs.
#[derive(Debug)]
pub(crate) struct Process {
    /// Number and addresses of a device that the host shares. `None`: only Streamline uses it.
    pub(crate) shared: Option<(u32, Vec<(IpAddr, u8)>)>,
    routes: Mutex<Routes>,
    /// Keeps the device's state between two processes. `None`: the device needs no such descriptor, or the interface is down.
    handle: Mutex<Option<OwnedFd>>,
    start: Mutex<Start>,
    starter: Arc<dyn Starter>,
    lifecycle: Mutex<Lifecycle>,
    /// A process on another device, which continues after the running one.
    next: Mutex<Option<Next>>,
    changed: Condvar,
    /// Unanswered questions, by number.
    waiting: Mutex<HashMap<u64, SyncSender<Answer>>>,
    numbers: AtomicU64,
    pub(crate) ledger: Mutex<Ledger>,
    /// On a shared device: the thread that asks the host.
    questions: Option<SyncSender<IpAddr>>,
    news: Arc<News>,
    /// The next process takes its block of flow numbers from here.
    blocks: Arc<AtomicU64>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is complete before a panic can happen.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ended(device: &str) -> NetError {
    NetError::new(NetErrorKind::Absent, format!("the interface `{device}` went down; it takes a new `up`"))
}

impl Next {
    /// Starts a process, which opens its device.
    fn start(starter: &Arc<dyn Starter>, start: Start) -> Result<(Next, Facts), NetError> {
        let running = starter.start(&start.open.device).map_err(|error| unheard("start", error))?;
        let (facts, handle) = open_device(&running, &start, None)?;
        let open = flow::OpenInterface { how: Some(facts.via.clone()), ..start.open };
        let start = Start { open, mac: Some(facts.mac), ..start };
        Ok((Next { running, handle, start }, facts))
    }
}

impl Process {
    /// Brings an interface up, in a new process.
    pub(crate) fn start(
        starter: &Arc<dyn Starter>,
        start: Start,
        news: &Arc<News>,
        blocks: &Arc<AtomicU64>,
    ) -> Result<Arc<Process>, NetError> {
        let (next, facts) = Next::start(starter, start)?;
        order(&next.running, &Order::Begin, &[])?;
        Process::new(next, facts, Ledger::default(), starter, news, blocks)
    }

    /// Takes over an interface whose process lost its daemon. The process first reports everything.
    pub(crate) fn adopt(
        running: Running,
        starter: &Arc<dyn Starter>,
        control: &str,
        news: &Arc<News>,
        blocks: &Arc<AtomicU64>,
    ) -> Result<Arc<Process>, NetError> {
        let deadline = Instant::now() + BEGIN;
        let (mut start, mut opened, mut ledger) = (None, None, Ledger::default());
        loop {
            let (Said { word, records, .. }, mut fds) =
                hear(&running, deadline).map_err(|error| unheard("hear", error))?;
            keep(&mut ledger, records, &mut fds, &mut Vec::new());
            match word {
                Word::Began(began) => start = Some(began),
                Word::Opened(facts) => opened = Some((facts, fds.pop())),
                Word::Ready => break,
                Word::Ended(number) => drop(ledger.ended(number)),
                Word::Left(client) => drop(ledger.left(client)),
                _ => {}
            }
        }
        let (Some(start), Some((facts, handle))) = (start, opened) else {
            return Err(unheard("hear", "it did not describe its device"));
        };
        ledger.nobody_came();
        let start = Start { control: control.into(), ..start };
        Process::new(Next { running, handle, start }, facts, ledger, starter, news, blocks)
    }

    fn new(
        Next { running, handle, start }: Next,
        Facts { shared, .. }: Facts,
        ledger: Ledger,
        starter: &Arc<dyn Starter>,
        news: &Arc<News>,
        blocks: &Arc<AtomicU64>,
    ) -> Result<Arc<Process>, NetError> {
        let system = |error| NetError::system("start a thread", error);
        let (questions, asked) = sync_channel(SHARE_QUESTIONS);
        let index = shared.as_ref().map(|(index, _)| *index);
        let routes = match &shared {
            Some((_, addresses)) => Routes::of_host(addresses),
            None => start.routes(),
        };
        let process = Arc::new(Process {
            shared,
            routes: Mutex::new(routes),
            handle: Mutex::new(handle),
            start: Mutex::new(start),
            starter: Arc::clone(starter),
            lifecycle: Mutex::new(Lifecycle::Runs(Arc::new(running))),
            next: Mutex::default(),
            changed: Condvar::new(),
            waiting: Mutex::default(),
            numbers: AtomicU64::new(1),
            ledger: Mutex::new(ledger),
            questions: index.map(|_| questions),
            news: Arc::clone(news),
            blocks: Arc::clone(blocks),
        });
        if let Some(index) = index {
            let netlink = Netlink::route(0).map_err(|error| NetError::system("ask the host for next hops", error))?;
            // It ends with the process, since it does not hold the process's end of the questions.
            let interface = Arc::downgrade(&process);
            let tell = move |address, mac| {
                if let Some(process) = interface.upgrade() {
                    process.tell(&Order::Act(Act::NextHop(address, mac)));
                }
            };
            let thread = std::thread::Builder::new().name("net next hops".into());
            thread.spawn(move || resolver::run(netlink, index, &asked, &tell)).map_err(system)?;
        }
        let kept = Arc::clone(&process);
        let thread = std::thread::Builder::new();
        let thread = thread.name(format!("net {}", process.device()).chars().take(15).collect());
        thread.spawn(move || kept.keep()).map_err(system)?;
        Ok(process)
    }

    /// The present device of the interface.
    pub(crate) fn device(&self) -> String {
        lock(&self.start).open.device.clone()
    }

    /// Its present addresses and routes.
    pub(crate) fn routes(&self) -> MutexGuard<'_, Routes> {
        lock(&self.routes)
    }

    /// Moves the interface to another device, in another process, which opens it as the first one was opened.
    ///
    /// # Errors
    ///
    /// The device cannot be opened; the interface is unchanged. `Absent`: the interface is down.
    pub(crate) fn move_to(&self, device: &str) -> Result<(), NetError> {
        let start = lock(&self.start).clone();
        let open = flow::OpenInterface { device: device.into(), ..start.open.clone() };
        let block = self.blocks.fetch_add(1, Ordering::Relaxed);
        let (next, _) = Next::start(&self.starter, Start { open, mac: None, block, ..start })?;
        let running = self.running().ok_or_else(|| ended(&self.device()))?;
        *lock(&self.next) = Some(next);
        if send(&running, 0, &Order::HandOver, &[]).is_err() {
            self.end(&running);
        }
        let goes_on = |lifecycle: &mut Lifecycle| match lifecycle {
            Lifecycle::Runs(now) => Arc::ptr_eq(now, &running),
            Lifecycle::Starts => true,
            Lifecycle::Ends(_) | Lifecycle::Ended => false,
        };
        let wait = || self.changed.wait_timeout_while(lock(&self.lifecycle), ANSWER, goes_on).map(|(_, time)| time);
        if wait().is_ok_and(|time| time.timed_out()) {
            self.end(&running);
            let _ = wait();
        }
        if self.is_over() { Err(ended(device)) } else { Ok(()) }
    }

    /// The interface, with its options and its present device.
    pub(crate) fn open(&self) -> flow::OpenInterface {
        lock(&self.start).open.clone()
    }

    /// A client has gone: its flows end.
    pub(crate) fn forget(&self, client: u64) {
        // If the interface is down, the flows have already ended.
        let _ = self.ask(&Order::Act(Act::Leave(client)));
        // If the process has just ended, the next one must not continue these flows.
        drop(take(&self.ledger, |ledger| ledger.left(client)));
    }

    /// The hardware address of its device, once a process has opened it.
    pub(crate) fn mac(&self) -> Option<[u8; 6]> {
        lock(&self.start).mac
    }

    /// The block of flow numbers of this process.
    pub(crate) fn block(&self) -> u64 {
        lock(&self.start).block
    }

    /// The number of ended processes of this interface.
    pub(crate) fn restarts(&self) -> u64 {
        lock(&self.start).restarts
    }

    /// Whether the interface is down.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*lock(&self.lifecycle), Lifecycle::Ends(_) | Lifecycle::Ended)
    }

    /// The running process. Waits for one that is being started. `None`: the interface is down.
    fn running(&self) -> Option<Arc<Running>> {
        let mut lifecycle = lock(&self.lifecycle);
        loop {
            match &*lifecycle {
                Lifecycle::Runs(running) => return Some(Arc::clone(running)),
                Lifecycle::Ends(_) | Lifecycle::Ended => return None,
                Lifecycle::Starts => lifecycle = self.changed.wait(lifecycle).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Gives an order, without waiting for the answer.
    pub(crate) fn tell(&self, order: &Order) {
        let running = match &*lock(&self.lifecycle) {
            Lifecycle::Runs(running) => Arc::clone(running),
            _ => return,
        };
        // A process that is ending needs no order.
        let _ = send(&running, 0, order, &[]);
    }

    /// Asks, and waits for the answer until this time. `None`: there is none, and the process goes on.
    pub(crate) fn ask_until(&self, order: &Order, deadline: Instant) -> Option<Answer> {
        let running = match &*lock(&self.lifecycle) {
            Lifecycle::Runs(running) => Arc::clone(running),
            Lifecycle::Starts | Lifecycle::Ends(_) | Lifecycle::Ended => return None,
        };
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = sync_channel(1);
        lock(&self.waiting).insert(number, reply);
        let answer = send(&running, number, order, &[])
            .ok()
            .and_then(|()| answer.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok());
        lock(&self.waiting).remove(&number);
        answer
    }

    /// Asks, and waits for the answer. If the process ends meanwhile, the next one answers.
    ///
    /// # Errors
    ///
    /// The process refuses. `Absent`: the interface is down. `System`: the process did not answer, and was ended.
    pub(crate) fn ask(&self, order: &Order) -> Result<Answer, NetError> {
        loop {
            let running = self.running().ok_or_else(|| ended(&self.device()))?;
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let (reply, answer) = sync_channel(1);
            lock(&self.waiting).insert(number, reply);
            if let Err(error) = send(&running, number, order, &[]) {
                lock(&self.waiting).remove(&number);
                match error.kind() {
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => self.await_end_of(&running),
                    io::ErrorKind::InvalidInput => return Err(unheard("speak to", error)),
                    _ => return Err(self.give_up_on(&running)),
                }
                continue;
            }
            match answer.recv_timeout(ANSWER) {
                Ok(Answer { word: Word::Refused(kind, text), .. }) => return Err(NetError::new(kind, text)),
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => {}
                Err(RecvTimeoutError::Timeout) => {
                    lock(&self.waiting).remove(&number);
                    return Err(self.give_up_on(&running));
                }
            }
        }
    }

    /// Waits until the thread has noticed the end of a process.
    fn await_end_of(&self, running: &Arc<Running>) {
        let is_it = |lifecycle: &mut Lifecycle| matches!(lifecycle, Lifecycle::Runs(now) if Arc::ptr_eq(now, running));
        let lifecycle = lock(&self.lifecycle);
        let _ = self.changed.wait_timeout_while(lifecycle, ANSWER, is_it);
    }

    /// Ends a process that does not answer. Another one continues.
    fn give_up_on(&self, running: &Running) -> NetError {
        self.end(running);
        unheard("hear", "it did not answer in time, and was ended; another one goes on")
    }

    fn end(&self, running: &Running) {
        let killed = running.process.as_ref().map(|process| self.starter.kill(process.as_fd()));
        if !matches!(killed, Some(Ok(()))) {
            self.news.tell(format!(
                "{}: the interface's process does not answer, and cannot be ended from here",
                self.device()
            ));
        }
        let _ = rustix::net::shutdown(&running.socket, rustix::net::Shutdown::Both);
    }

    /// Takes the interface down. Returns once the device is free.
    pub(crate) fn down(&self) {
        let mut lifecycle = lock(&self.lifecycle);
        let running = match &*lifecycle {
            Lifecycle::Runs(running) => Some(Arc::clone(running)),
            Lifecycle::Starts => None,
            Lifecycle::Ends(running) => running.clone(),
            Lifecycle::Ended => return,
        };
        *lifecycle = Lifecycle::Ends(running.clone());
        self.changed.notify_all();
        drop(lifecycle);
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let is_told = running.as_ref().is_none_or(|running| send(running, number, &Order::Down, &[]).is_ok());
        let ends = |lifecycle: &mut Lifecycle| !matches!(lifecycle, Lifecycle::Ended);
        let wait = |time| {
            let waited = self.changed.wait_timeout_while(lock(&self.lifecycle), time, ends);
            !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
        };
        let time = if is_told { END } else { Duration::ZERO };
        if !wait(time) {
            running.iter().for_each(|running| self.end(running));
            let _ = wait(END);
        }
    }

    /// The thread: receives messages of one process after the other, until the interface is down.
    fn keep(&self) {
        let mut ends = VecDeque::new();
        loop {
            let running = match &*lock(&self.lifecycle) {
                Lifecycle::Runs(running) | Lifecycle::Ends(Some(running)) => Arc::clone(running),
                Lifecycle::Starts | Lifecycle::Ends(None) | Lifecycle::Ended => break,
            };
            let why = self.listen(&running);
            // Waiting calls ask the next process.
            lock(&self.waiting).clear();
            if !self.change(Lifecycle::Starts) {
                break;
            }
            if let Err(why) = self.follow(&mut ends, why) {
                self.news.tell(format!("{}: the interface went down: {why}", self.device()));
                break;
            }
        }
        let (entries, failed) = lock(&self.ledger).close_all(Errno::NETDOWN);
        if failed > 0 {
            self.news.tell(format!("{}: {failed} flows could not be told of it", self.device()));
        }
        drop((entries, lock(&self.handle).take()));
        *lock(&self.lifecycle) = Lifecycle::Ended;
        self.changed.notify_all();
        lock(&self.waiting).clear();
    }

    /// Changes the lifecycle, unless the interface must go down.
    fn change(&self, to: Lifecycle) -> bool {
        let mut lifecycle = lock(&self.lifecycle);
        let changes = !matches!(*lifecycle, Lifecycle::Ends(_) | Lifecycle::Ended);
        if changes {
            *lifecycle = to;
        }
        self.changed.notify_all();
        changes
    }

    /// Starts another process after one ended for this reason, unless too many have ended.
    fn follow(&self, ends: &mut VecDeque<Instant>, mut why: String) -> Result<(), String> {
        let next = lock(&self.next).take();
        if let Some(Next { running, handle, start }) = next {
            *lock(&self.routes) = start.routes();
            drop(std::mem::replace(&mut *lock(&self.handle), handle));
            *lock(&self.start) = start;
            match self.restore(running) {
                Ok(running) => {
                    self.go_on(running);
                    return Ok(());
                }
                Err(error) => why = error.text,
            }
        }
        loop {
            let now = Instant::now();
            let (most, window) = RESTARTS;
            ends.retain(|end| now.saturating_duration_since(*end) < window);
            if ends.len() >= most {
                return Err(format!(
                    "its process ended {} times within {} s, at last because {why}; bring it up again: streamline net up {}",
                    most + 1,
                    window.as_secs(),
                    self.device()
                ));
            }
            ends.push_back(now);
            self.news.tell(format!("{}: the interface's process ended ({why}); another one goes on", self.device()));
            match self.again() {
                Ok(running) => {
                    self.go_on(running);
                    return Ok(());
                }
                Err(error) => why = error.text,
            }
            if self.is_over() {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Makes this the running process, unless the interface went down meanwhile.
    fn go_on(&self, running: Arc<Running>) {
        if !self.change(Lifecycle::Runs(Arc::clone(&running))) {
            let _ = send(&running, 0, &Order::Down, &[]);
            let _ = self.listen(&running);
        }
    }

    /// Starts a process that continues with all records.
    fn again(&self) -> Result<Arc<Running>, NetError> {
        let start = {
            let mut start = lock(&self.start);
            start.restarts += 1;
            start.block = self.blocks.fetch_add(1, Ordering::Relaxed);
            start.clone()
        };
        let running = self.starter.start(&self.device()).map_err(|error| unheard("start", error))?;
        open_device(&running, &start, lock(&self.handle).as_ref().map(AsFd::as_fd))?;
        self.restore(running)
    }

    /// Passes all records to a process that has the device.
    fn restore(&self, running: Running) -> Result<Arc<Running>, NetError> {
        let mut lost = Vec::new();
        {
            let ledger = lock(&self.ledger);
            for (record, fds) in ledger.all() {
                let number = record.number;
                if let Err(error) = order(&running, &Order::Restore(record), &fds) {
                    lost.push((number, error));
                }
            }
        }
        for (number, error) in lost {
            let entry = lock(&self.ledger).ended(number);
            drop(entry);
            self.news.tell_of_flow(format!("{}: flow {number} ended: {}", self.device(), error.text));
        }
        order(&running, &Order::Begin, &[])?;
        Ok(Arc::new(running))
    }

    /// Receives a process's messages until it ends. Returns the reason, as far as it is known.
    fn listen(&self, running: &Running) -> String {
        let mut why = String::from("it was killed, or crashed");
        loop {
            match control::receive::<Said>(&running.socket) {
                Ok(Some((said, fds))) => self.heard(said, fds, &mut why),
                Ok(None) => return why,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return why,
                Err(error) => {
                    self.end(running);
                    return format!("it says what cannot be understood: {error}");
                }
            }
        }
    }

    fn heard(&self, said: Said, mut fds: Vec<OwnedFd>, why: &mut String) {
        let Said { number, mut word, records } = said;
        // Dropped after the lock is released.
        let mut replaced = Vec::new();
        let channels: Vec<_> = records.iter().map(|record| (record.client, record.channel)).collect();
        let is_whole = keep(&mut lock(&self.ledger), records, &mut fds, &mut replaced);
        if !is_whole && number != 0 {
            for (client, channel) in channels {
                self.tell(&Order::Act(Act::Close(client, channel)));
            }
            word = Word::Refused(NetErrorKind::System, "the daemon has no file descriptors left for a flow".into());
        }
        match word {
            Word::Ended(number) => drop(take(&self.ledger, |ledger| ledger.ended(number))),
            Word::Left(client) => drop(take(&self.ledger, |ledger| ledger.left(client))),
            Word::Routes(table) => {
                let mut start = lock(&self.start);
                start.table = table;
                *lock(&self.routes) = start.routes();
            }
            Word::AskHop(address) => {
                // If there is no room, the process asks again later.
                let _ = self.questions.as_ref().map(|questions| questions.try_send(address));
            }
            Word::Fails(text) => *why = base::terminal::line(&text).into_owned(),
            word => {
                let reply = lock(&self.waiting).remove(&number);
                // The asking thread may be gone.
                let _ = reply.map(|reply| reply.send(Answer { word, fds }).is_ok());
            }
        }
    }
}

fn take<T>(ledger: &Mutex<Ledger>, change: impl FnOnce(&mut Ledger) -> T) -> T {
    change(&mut lock(ledger))
}

/// Keeps these records with the last of `fds`. `false`: some are missing. Replaced records go to `replaced`.
fn keep(
    ledger: &mut Ledger,
    records: Vec<super::message::Record>,
    fds: &mut Vec<OwnedFd>,
    replaced: &mut Vec<Entry>,
) -> bool {
    let count = records.iter().map(super::message::Record::fds).sum::<usize>();
    let Some(first) = fds.len().checked_sub(count) else { return false };
    let mut kept = fds.split_off(first).into_iter();
    for record in records {
        let fds = kept.by_ref().take(record.fds()).collect();
        replaced.extend(ledger.keep(record, fds));
    }
    true
}
