//! The thread of an interface: takes turns while there is work, sleeps otherwise, and obeys commands in between. It
//! answers by letters to the daemon (`process/letters.rs`).

use crate::accept::OpeningListener;
use crate::counters::Event;
use crate::error::NetError;
use crate::interface::{Interface, Next};
use crate::limits::{LAST_RESETS, NO_ROOM, SECOND};
use crate::manager::Opening;
use crate::process::letters::{Letter, Letters};
use crate::process::message::{Act, BYTES, Start, Word};
use crate::trace::Tracing;
use flow::Answer;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A command for an interface's thread.
pub(crate) enum Command {
    /// These file descriptors go beside the answer.
    Open(Box<Opening>, Vec<OwnedFd>),
    Listen(Box<OpeningListener>, Vec<OwnedFd>),
    Trace(Box<Tracing>, Vec<OwnedFd>),
    /// As the daemon ordered.
    Act(Act),
    /// There is no daemon: notice applications that end.
    Alone,
    /// A daemon is at the end of this socket: report how the interface began, its device, and everything else.
    Tell {
        daemon: Arc<OwnedFd>,
        start: Box<Start>,
        opened: Letter,
    },
    End(Ending),
}

/// How an interface's thread ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// The interface goes down: its flows end.
    Down,
    /// Another process continues with everything.
    HandOver,
}

/// The connection to an interface's thread.
#[derive(Clone)]
pub(crate) struct Line {
    commands: Sender<(u64, Command)>,
    wake: Arc<OwnedFd>,
}

impl Line {
    /// Gives a command whose answer has this number. `None`: the thread has ended.
    pub(crate) fn tell(&self, number: u64, command: Command) -> Option<()> {
        self.commands.send((number, command)).ok()?;
        // A full descriptor wakes the thread, too.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        Some(())
    }
}

/// The thread's end of the line, and its way to the daemon.
pub(crate) struct Desk {
    commands: Receiver<(u64, Command)>,
    wake: Arc<OwnedFd>,
    letters: Letters,
}

/// A line, both ends.
pub(crate) fn line(letters: Letters) -> io::Result<(Line, Desk)> {
    let wake = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, commands) = channel();
    Ok((Line { commands: sender, wake: Arc::clone(&wake) }, Desk { commands, wake, letters }))
}

/// Commands between two turns: a client that asks all the time must not stop packets.
const COMMANDS: usize = 4;

/// ns on the common clock of all interfaces. The clock continues in the next process, so cookies and sequence numbers
/// stay valid. It is never 0: limits look back from here.
pub(crate) fn clock() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    SECOND + seconds.saturating_mul(SECOND) + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Runs an interface until it must go down.
pub(crate) fn run(mut interface: Interface, desk: &Desk) {
    loop {
        let mut left = COMMANDS;
        while left > 0
            && let Ok((number, command)) = desk.commands.try_recv()
        {
            left -= 1;
            match obey(&mut interface, number, command, desk) {
                None => (),
                Some(Ending::HandOver) => return interface.hand_over(clock()),
                Some(Ending::Down) => return go_down(&mut interface, desk),
            }
        }
        // If `left` is 0, the queue may hold more commands, whose wake-ups a sleep would swallow.
        let next = interface.turn(clock());
        report(&mut interface, &desk.letters);
        if let Next::Sleep(until) = next
            && left > 0
        {
            sleep(&mut interface, desk, until, clock());
        }
    }
}

/// Ends all flows, and sends their last packets.
fn go_down(interface: &mut Interface, desk: &Desk) {
    let last = clock() + LAST_RESETS;
    while let Some(next) = interface.end(clock()).filter(|next| *next < last && clock() < last) {
        std::thread::sleep(Duration::from_nanos(next.saturating_sub(clock()).max(NO_ROOM)));
    }
    report(interface, &desk.letters);
}

/// Reports ended flows to the daemon, and addresses and routes after a change.
fn report(interface: &mut Interface, letters: &Letters) {
    let core = &mut interface.core;
    if std::mem::take(&mut core.routes_changed) {
        letters.send(Letter::word(0, Word::Routes(core.table())));
    }
    for number in core.ended.drain(..).chain(core.traces.ended.drain(..)) {
        letters.send(Letter::word(0, Word::Ended(number)));
    }
    for client in core.left.drain(..) {
        letters.send(Letter::word(0, Word::Left(client)));
    }
}

/// Carries out a command, and answers; or returns how the thread should end.
fn obey(interface: &mut Interface, number: u64, command: Command, desk: &Desk) -> Option<Ending> {
    let (now, core) = (clock(), &mut interface.core);
    // First close what the application has closed: it may want the port, the channel or the quota permit.
    core.collect_news(now);
    let answer = match command {
        Command::Open(opening, fds) => core.open(*opening, now).map(|granted| {
            let records = core.records_of(granted.flow, granted.has_bells);
            Letter::with(number, Word::Answer(Answer::Granted(granted)), shared(fds), records)
        }),
        Command::Listen(opening, fds) => core.listen_at(*opening).map(|listening| {
            let records = core.records_of(listening.listener, listening.has_bells);
            Letter::with(number, Word::Answer(Answer::Listening(listening)), shared(fds), records)
        }),
        Command::Trace(tracing, fds) => {
            let trace = tracing.number;
            core.trace(*tracing).map(|granted| {
                let records = core.records_of(trace, false);
                Letter::with(number, Word::Tracing(granted, trace), shared(fds), records)
            })
        }
        Command::Act(order) => act(interface, number, order, now),
        Command::Alone => {
            core.sharing.iter_mut().for_each(|sharing| sharing.set_alone(true));
            let gone = hung_up(interface);
            gone.into_iter().for_each(|client| interface.leave(client, now));
            return None;
        }
        Command::Tell { daemon, start, opened } => {
            core.sharing.iter_mut().for_each(|sharing| sharing.set_alone(false));
            desk.letters.send(Letter::To(daemon));
            desk.letters.send(Letter::word(0, Word::Began(Start { table: core.table(), ..*start })));
            desk.letters.send(opened);
            core.tell_everything(&desk.letters);
            return None;
        }
        Command::End(ending) => return Some(ending),
    };
    // Report flows that ended by this command before the answer: the client may reuse the permit.
    report(interface, &desk.letters);
    desk.letters.send(answer.unwrap_or_else(|error| Letter::word(number, Word::Refused(error.kind, error.text))));
    None
}

fn shared(fds: Vec<OwnedFd>) -> Vec<Arc<OwnedFd>> {
    fds.into_iter().map(Arc::new).collect()
}

/// Does what the daemon orders for an application that has everything it needs. Returns the answer.
fn act(interface: &mut Interface, number: u64, act: Act, now: u64) -> Result<Letter, NetError> {
    let core = &mut interface.core;
    let answer = match act {
        Act::Accept(client, channel, most) => {
            let (granted, segments): (Vec<_>, Vec<_>) = core.accept(client, channel, most)?.into_iter().unzip();
            let records = granted.iter().flat_map(|granted| core.records_of(granted.flow, false)).collect();
            let fds = shared(segments.into_iter().flatten().collect());
            return Ok(Letter::with(number, Word::Answer(Answer::Accepted(granted)), fds, records));
        }
        Act::Share(user, flow, share, limits) => {
            core.change_share(user, flow, &share, limits, now)?;
            return Ok(Letter::with(number, Word::Answer(Answer::Done), Vec::new(), core.records_of(flow, false)));
        }
        Act::State(user) => {
            let mut state = vec![interface.state(user, now)];
            // A message has more than the state.
            flow::fit(&mut state, BYTES - 64);
            Answer::State(state)
        }
        Act::NextHop(address, mac) => {
            core.next_hop(address, mac, now);
            Answer::Done
        }
        Act::Close(client, channel) => {
            interface.close_channel(client, channel, now)?;
            Answer::Done
        }
        Act::Leave(client) => {
            interface.leave(client, now);
            Answer::Done
        }
        Act::Change(change) => {
            core.change(&change, now)?;
            Answer::Done
        }
        Act::Settle => Answer::Done,
    };
    Ok(Letter::word(number, Word::Answer(answer)))
}

/// Clients whose applications have gone: the other side of their doorbells is closed.
fn hung_up(interface: &Interface) -> Vec<u64> {
    let clients = &interface.core.clients;
    let ends = clients.values().map(|client| client.bells.fd());
    let mut fds: Vec<PollFd<'_>> = ends.map(|end| PollFd::from_borrowed_fd(end, PollFlags::empty())).collect();
    let _ = rustix::event::poll(&mut fds, Some(&Timespec::default()));
    clients.keys().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty()).map(|(client, _)| *client).collect()
}

/// Sleeps until the device, an application, a command or the time wakes it.
fn sleep(interface: &mut Interface, desk: &Desk, until: Option<u64>, now: u64) {
    let core = &mut interface.core;
    let quiet = core.clients.values().all(|client| client.bells.fall_asleep());
    let mut gone = Vec::new();
    if quiet {
        core.counters.event(Event::Sleeps);
        let mut fds = vec![PollFd::new(&*desk.wake, PollFlags::IN)];
        let device = interface.device.receive.fd();
        // A device that is down or gone would wake the thread forever.
        if core.listens(now) {
            fds.push(PollFd::from_borrowed_fd(device, PollFlags::IN));
        }
        let watch = fds.len();
        fds.extend(interface.watch.as_ref().map(|watch| PollFd::from_borrowed_fd(watch.fd(), PollFlags::IN)));
        let others = fds.len();
        fds.extend(core.clients.values().map(|client| PollFd::from_borrowed_fd(client.bells.fd(), PollFlags::IN)));
        let wait = until.map(|until| until.saturating_sub(now));
        let wait = wait
            .map(|ns| Timespec { tv_sec: i64::try_from(ns / SECOND).unwrap_or(i64::MAX), tv_nsec: (ns % SECOND) as _ });
        // A signal is no reason to end; nor is any other result of `poll`.
        let _ = rustix::event::poll(&mut fds, wait.as_ref());
        let ends = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let ended = fds[others..].iter().map(|fd| fd.revents().intersects(ends));
        gone.extend(core.clients.keys().zip(ended).filter(|(_, ended)| *ended).map(|(client, _)| *client));
        let happened = others > watch && !fds[watch].revents().is_empty();
        drop(fds);
        if let Some(watch) = interface.watch.as_mut().filter(|_| happened) {
            watch.hurry();
        }
    }
    for client in interface.core.clients.values() {
        client.bells.awake();
    }
    let _ = rustix::io::read(desk.wake.as_fd(), &mut [0_u8; 8]);
    for client in gone {
        interface.leave(client, clock());
    }
}
