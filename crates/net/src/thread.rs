//! The thread of an interface: turns while there is work, sleep when there is none, commands in between.

use crate::accept::{Accepted, OpeningListener};
use crate::counters::Event;
use crate::error::NetError;
use crate::interface::{Interface, Next};
use crate::limits::{LAST_RESETS, NO_ROOM, SECOND};
use crate::manager::Opening;
use crate::share::ShareLimits;
use crate::trace::Tracing;
use flow::{Granted, InterfaceState, Listening};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

/// Where the answer to a command goes.
pub(crate) type Reply<T> = SyncSender<T>;

/// What an interface's thread is told.
pub(crate) enum Command {
    Open(Box<Opening>, Reply<Result<Granted, NetError>>),
    Listen(Box<OpeningListener>, Reply<Result<Listening, NetError>>),
    Accept { client: u64, channel: u32, most: u32, reply: Reply<Result<Accepted, NetError>> },
    Close { client: u64, channel: u32, reply: Reply<Result<(), NetError>> },
    Leave { client: u64, reply: Reply<()> },
    Share { user: Option<u32>, flow: u64, share: String, limits: ShareLimits, reply: Reply<Result<(), NetError>> },
    Trace(Box<Tracing>, Reply<Result<Granted, NetError>>),
    State { user: Option<u32>, reply: Reply<InterfaceState> },
    NextHop { address: Ipv4Addr, mac: Option<[u8; 6]> },
    Down,
}

/// The way to an interface's thread.
#[derive(Clone)]
pub(crate) struct Line {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
}

impl Line {
    /// Gives a command; none: the thread has ended.
    pub(crate) fn tell(&self, command: Command) -> Option<()> {
        self.commands.send(command).ok()?;
        // Full is as good as written.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        Some(())
    }

    /// Gives a command and waits for its answer; none: the thread has ended.
    pub(crate) fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Option<T> {
        let (reply, answer) = sync_channel(1);
        self.tell(command(reply))?;
        answer.recv().ok()
    }
}

/// The thread's end of the line.
pub(crate) struct Desk {
    commands: Receiver<Command>,
    wake: Arc<OwnedFd>,
}

/// A line, both ends.
pub(crate) fn line() -> io::Result<(Line, Desk)> {
    let wake = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, commands) = channel();
    Ok((Line { commands: sender, wake: Arc::clone(&wake) }, Desk { commands, wake }))
}

/// Commands between two turns: a client that asks on and on does not keep packets from moving.
const COMMANDS: usize = 4;

/// Runs an interface until it is told to go down.
pub(crate) fn run(mut interface: Interface, desk: &Desk) {
    let begun = Instant::now();
    // Not 0: limits look back from here.
    let clock = || SECOND + u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX / 2);
    loop {
        let mut left = COMMANDS;
        while left > 0
            && let Ok(command) = desk.commands.try_recv()
        {
            left -= 1;
            if !obey(&mut interface, command, clock()) {
                let last = clock() + LAST_RESETS;
                while let Some(next) = interface.end(clock()).filter(|next| *next < last && clock() < last) {
                    std::thread::sleep(Duration::from_nanos(next.saturating_sub(clock()).max(NO_ROOM)));
                }
                return;
            }
        }
        // With none left, the queue may hold more, whose wake-ups a sleep would swallow.
        if let Next::Sleep(until) = interface.turn(clock())
            && left > 0
        {
            sleep(&mut interface, desk, until, clock());
        }
    }
}

/// Carries a command out; `false`: the interface is to go down. Who asked may be gone.
fn obey(interface: &mut Interface, command: Command, now: u64) -> bool {
    match command {
        Command::Open(opening, reply) => drop(reply.send(interface.core.open(*opening, now))),
        Command::Listen(opening, reply) => drop(reply.send(interface.core.listen_at(*opening))),
        Command::Accept { client, channel, most, reply } => {
            drop(reply.send(interface.core.accept(client, channel, most)));
        }
        Command::Close { client, channel, reply } => {
            drop(reply.send(interface.close_channel(client, channel, now)));
        }
        Command::Leave { client, reply } => {
            interface.leave(client, now);
            let _ = reply.send(());
        }
        Command::Share { user, flow, share, limits, reply } => {
            drop(reply.send(interface.core.change_share(user, flow, &share, limits, now)));
        }
        Command::Trace(tracing, reply) => drop(reply.send(interface.core.trace(*tracing))),
        Command::State { user, reply } => drop(reply.send(interface.state(user, now))),
        Command::NextHop { address, mac } => interface.core.next_hop(address, mac, now),
        Command::Down => return false,
    }
    true
}

/// Sleeps until the device, an application, a command or the time wakes it.
fn sleep(interface: &mut Interface, desk: &Desk, until: Option<u64>, now: u64) {
    let core = &mut interface.core;
    let quiet = core.clients.values().all(|client| client.bells.fall_asleep());
    if quiet {
        core.counters.event(Event::Sleeps);
        let mut fds = vec![PollFd::new(&*desk.wake, PollFlags::IN)];
        let device = interface.device.receive.fd();
        // A device that is down or gone says so without end.
        if core.listens(now) {
            fds.push(PollFd::from_borrowed_fd(device, PollFlags::IN));
        }
        fds.extend(core.clients.values().map(|client| PollFd::from_borrowed_fd(client.bells.fd(), PollFlags::IN)));
        let wait = until.map(|until| until.saturating_sub(now));
        let wait = wait
            .map(|ns| Timespec { tv_sec: i64::try_from(ns / SECOND).unwrap_or(i64::MAX), tv_nsec: (ns % SECOND) as _ });
        // A signal is no reason to end; neither is anything else that `poll` says.
        let _ = rustix::event::poll(&mut fds, wait.as_ref());
    }
    for client in interface.core.clients.values() {
        client.bells.awake();
    }
    let _ = rustix::io::read(desk.wake.as_fd(), &mut [0_u8; 8]);
}
