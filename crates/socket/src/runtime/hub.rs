//! The flows of one connection to a daemon, and the threads that work for them.
//!
//! All flows and listeners of a connection share its doorbells. The leader ([`seat`](super::seat)) sleeps on them,
//! collects the bits that rang and the due timers, and works for these flows alone. Idle flows cost nothing.
//!
//! Lock order: the table of members, a flow, the timers. A thread that holds one neither asks the daemon nor sleeps.

use super::listening::Listening;
use super::seat::{Lead, Seat};
use super::tcp::Tcp;
use super::timers::Timers;
use super::waiters::{Waiters, eventfd};
use crate::connection::{Connection, Held};
use crate::error::{ENETDOWN, SocketError};
use crate::line::{AGAIN, Attended};
use buffer::flow::Bells;
use buffer::flow::bells::CHANNELS;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Gets the news of a channel.
#[derive(Clone, Debug)]
pub(crate) enum Member {
    Tcp(Arc<Tcp>),
    Listening(Arc<Listening>),
}

impl Member {
    fn channel(&self) -> u32 {
        match self {
            Member::Tcp(tcp) => tcp.channel,
            Member::Listening(listening) => listening.channel,
        }
    }

    fn is(&self, other: &Member) -> bool {
        match (self, other) {
            (Member::Tcp(one), Member::Tcp(other)) => Arc::ptr_eq(one, other),
            (Member::Listening(one), Member::Listening(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

#[derive(Debug, Default)]
struct Table {
    /// By channel.
    members: Vec<Option<Member>>,
    has_keeper: bool,
}

/// Flows and listeners of one connection.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) connection: Connection,
    /// The number of found daemons that listeners know of.
    found: AtomicU32,
    bells: OnceLock<Arc<Bells>>,
    table: Mutex<Table>,
    count: AtomicU32,
    timers: Mutex<Timers>,
    seat: Seat,
    /// Wakes the leader.
    nudge: OwnedFd,
    /// Always readable. Replaces a descriptor that could not be made: a polling program must check, not sleep for
    /// ever.
    always: OwnedFd,
    began: Instant,
    is_gone: AtomicBool,
    /// The process that connected. A forked copy leaves everything alone.
    process: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The deadline of a wait passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedOut;

impl Hub {
    /// Connects to the daemon.
    pub(crate) fn open(daemon: &Path, purpose: &str) -> Result<Arc<Hub>, SocketError> {
        let (connection, nudge) = (Connection::open(daemon, purpose)?, eventfd(false).map_err(SocketError::Daemon)?);
        connection.wake_by(nudge.try_clone().map_err(SocketError::Daemon)?);
        Ok(Arc::new(Hub {
            connection,
            found: AtomicU32::new(0),
            bells: OnceLock::new(),
            table: Mutex::default(),
            count: AtomicU32::new(0),
            timers: Mutex::default(),
            seat: Seat::default(),
            nudge,
            always: eventfd(true).map_err(SocketError::Daemon)?,
            began: Instant::now(),
            is_gone: AtomicBool::new(false),
            process: std::process::id(),
        }))
    }

    /// Time in ns on the clock of stacks and timers.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Number of flows and listeners.
    pub(crate) fn members(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn listens(&self) -> bool {
        lock(&self.table).members.iter().flatten().any(|member| matches!(member, Member::Listening(_)))
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Whether this process owns the flows, rather than a forked copy.
    pub(crate) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// An always readable descriptor.
    pub(crate) fn always(&self) -> BorrowedFd<'_> {
        self.always.as_fd()
    }

    /// Adds a flow or listener, and gives it a first turn: its channel may already have rung.
    ///
    /// # Errors
    ///
    /// The connection's thread cannot be started.
    pub(crate) fn add(self: &Arc<Self>, member: Member) -> io::Result<()> {
        let mut table = lock(&self.table);
        if self.bells.get().is_none() {
            let _ = self.bells.set(self.connection.bells().ok_or(io::ErrorKind::InvalidData)?);
        }
        if !table.has_keeper {
            let hub = Arc::clone(self);
            std::thread::Builder::new().name("streamline tcp".into()).spawn(move || hub.keep())?;
            table.has_keeper = true;
        }
        let at = member.channel() as usize;
        if at >= CHANNELS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if table.members.len() <= at {
            table.members.resize(at + 1, None);
        }
        if table.members[at].replace(member.clone()).is_none() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        drop(table);
        self.give_turn(&member, false);
        Ok(())
    }

    /// Removes a flow or listener, and closes it at the daemon.
    pub(crate) fn remove(&self, member: &Member) {
        let channel = member.channel();
        let mut table = lock(&self.table);
        let found = table.members.get_mut(channel as usize);
        // Another call may have removed it, and another flow may use its channel now.
        let found = found.filter(|found| found.as_ref().is_some_and(|found| found.is(member))).and_then(Option::take);
        drop(table);
        if found.is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
            // No thread uses this channel any more; the next flow may get it.
            match member {
                Member::Tcp(tcp) => self.connection.close_flow(tcp.lock().flow()),
                Member::Listening(_) if !self.is_gone() => self.connection.close(channel),
                Member::Listening(_) => {}
            }
        }
    }

    fn member(&self, channel: u32) -> Option<Member> {
        lock(&self.table).members.get(channel as usize).cloned().flatten()
    }

    pub(crate) fn all(&self) -> Vec<Member> {
        lock(&self.table).members.iter().flatten().cloned().collect()
    }

    pub(crate) fn set_timer(&self, channel: u32, before: Option<u64>, time: u64) {
        if lock(&self.timers).set(channel, before, time) {
            self.wake();
        }
    }

    pub(crate) fn clear_timer(&self, channel: u32, before: u64) {
        lock(&self.timers).clear(channel, Some(before));
    }

    /// Wakes the leader, if it sleeps.
    pub(crate) fn wake(&self) {
        // A full eventfd wakes it as well.
        let _ = rustix::io::write(&self.nudge, &1_u64.to_ne_bytes());
    }

    /// Waits until `ready` returns something, at most until `deadline`. Works for all flows meanwhile, if no other
    /// call does. Threads that make something ready must tell `waiters`.
    pub(crate) fn wait<T>(
        &self,
        waiters: &Waiters,
        deadline: Option<Instant>,
        ready: &mut dyn FnMut() -> Option<T>,
    ) -> Result<T, TimedOut> {
        let is_over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if let Some(done) = ready() {
            return Ok(done);
        }
        let mut lead = self.seat.take();
        let registration = lead.is_none().then(|| waiters.add());
        loop {
            if let Some(lead) = lead.take() {
                let led = self.lead(&lead, deadline, ready);
                if led.is_some() || is_over() {
                    return led.ok_or(TimedOut);
                }
            }
            // A leader that must go on: another thread closed the seat.
            let own;
            let registration = match &registration {
                Some(registration) => registration,
                None => {
                    own = waiters.add();
                    &own
                }
            };
            let (joined, wakes_leader) = self.seat.follow(&registration.waiter);
            lead = match joined {
                Ok(lead) => Some(lead),
                Err(follower) => {
                    // The call has joined: news from now on wakes it.
                    if let Some(done) = ready() {
                        drop(follower.leave());
                        return Ok(done);
                    }
                    if is_over() {
                        drop(follower.leave());
                        return Err(TimedOut);
                    }
                    if wakes_leader {
                        self.wake();
                    }
                    follower.sleep(deadline)
                }
            };
        }
    }

    /// Works until `ready` returns something, `deadline` passes, or another thread closes the seat.
    fn lead<T>(&self, _lead: &Lead<'_>, deadline: Option<Instant>, ready: &mut dyn FnMut() -> Option<T>) -> Option<T> {
        loop {
            self.work();
            if let Some(done) = ready() {
                return Some(done);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) || self.seat.is_wanted() {
                return None;
            }
            self.sleep(deadline);
        }
    }

    /// The connection's own thread: it leads while no call does.
    fn keep(&self) {
        while let Some(lead) = self.seat.keep() {
            while !self.seat.is_wanted() {
                self.work();
                if self.is_gone() {
                    return;
                }
                self.sleep(None);
            }
            drop(lead);
        }
    }

    /// Works for channels that rang or whose timer is due.
    fn work(&self) {
        let found = self.connection.found();
        if self.found.swap(found, Ordering::Relaxed) != found {
            // They may have rung while there was no daemon to ask.
            for member in self.all() {
                if let Member::Listening(listening) = member {
                    listening.rang();
                }
            }
        }
        if let Some(bells) = self.bells.get() {
            bells.news(|channel| {
                if let Some(member) = self.member(channel as u32) {
                    self.give_turn(&member, false);
                }
            });
        }
        let now = self.now();
        loop {
            let next = lock(&self.timers).pop(now);
            let Some(channel) = next else { break };
            if let Some(member) = self.member(channel) {
                self.give_turn(&member, true);
            }
        }
    }

    fn give_turn(&self, member: &Member, timer_fired: bool) {
        match member {
            Member::Tcp(tcp) => {
                let is_done = tcp.work(self, &mut tcp.lock(), timer_fired);
                if is_done {
                    self.remove(member);
                }
            }
            Member::Listening(listening) => listening.rang(),
        }
    }

    /// Sleeps until the driver rings, a timer is due, another thread [wakes](Self::wake) the leader, or `deadline`
    /// passes.
    fn sleep(&self, deadline: Option<Instant>) {
        let due = lock(&self.timers).fall_asleep();
        let due = due.map(|due| Duration::from_nanos(due.saturating_sub(self.now())));
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = [due, left].into_iter().flatten().min();
        if timeout != Some(Duration::ZERO) {
            self.poll(timeout);
        }
        lock(&self.timers).awake();
    }

    fn poll(&self, timeout: Option<Duration>) {
        let Some(bells) = self.bells.get() else { return };
        if !bells.fall_asleep() {
            return;
        }
        let mut fds = [
            PollFd::from_borrowed_fd(bells.fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.nudge.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.connection.line(), PollFlags::IN),
        ];
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // A signal ends the sleep too: the leader looks.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        let [_, nudged, is_over] = fds.each_ref().map(|fd| !fd.revents().is_empty());
        // Daemon and driver have gone for good.
        let hung_up = fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        bells.awake();
        if nudged {
            let _ = rustix::io::read(&self.nudge, &mut [0_u8; 8]);
        }
        if is_over || hung_up {
            self.go();
        }
    }

    /// Ends this connection: the daemon has gone, and the search for another has failed.
    fn go(&self) {
        if self.is_gone.swap(true, Ordering::Relaxed) {
            return;
        }
        // Packets that came before are read first.
        for member in self.all() {
            self.give_turn(&member, false);
        }
        self.end_all(ENETDOWN);
    }

    /// Ends all flows and listeners for the application.
    pub(crate) fn end_all(&self, errno: i32) {
        for member in self.all() {
            match member {
                Member::Tcp(tcp) => tcp.end(&mut tcp.lock(), errno),
                Member::Listening(listening) => listening.end(errno),
            }
        }
    }

    /// Closes the seat, and waits up to `time` for its leader to leave.
    pub(crate) fn close_seat(&self, time: Duration) -> bool {
        self.wake();
        self.seat.close(time)
    }

    /// File descriptors that the work for flows needs.
    pub(crate) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let bells = self.bells.get().into_iter().flat_map(|bells| bells.handles()).map(|handle| handle.as_fd());
        bells.chain([self.nudge.as_fd()]).collect()
    }
}

/// Sleeps on the doorbells of several connections until `deadline`, holding only the locks of `lines`. Looks for
/// successors of daemons that ended, and marks a connection gone if there is none.
pub(crate) fn sleep_on(hubs: &[Arc<Hub>], lines: &mut [Option<Held<'_>>], mut deadline: Instant) {
    let there = || hubs.iter().filter(|hub| !hub.is_gone());
    for (hub, line) in hubs.iter().zip(&mut *lines) {
        match line.as_mut().map(Held::attend) {
            Some(Attended::There) => {}
            Some(Attended::Away) => deadline = deadline.min(Instant::now() + AGAIN),
            Some(Attended::Over) | None => hub.is_gone.store(true, Ordering::Relaxed),
        }
    }
    let bells: Vec<&Bells> = there().filter_map(|hub| hub.bells.get().map(|bells| &**bells)).collect();
    // `fall_asleep` must run for every connection, so no short circuit.
    let are_quiet = bells.iter().filter(|bells| bells.fall_asleep()).count() == bells.len();
    if are_quiet {
        let doors = bells.iter().map(|bells| PollFd::from_borrowed_fd(bells.fd(), PollFlags::IN));
        let lines = lines.iter().flatten().filter_map(|line| line.hangs_up());
        let lines = lines.map(|line| PollFd::from_borrowed_fd(line, PollFlags::RDHUP));
        let mut fds: Vec<PollFd<'_>> = doors.chain(lines).collect();
        let timeout = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
    }
    for bells in bells {
        bells.awake();
        bells.news(|_| {});
    }
}
