//! How unfinished connections end when the process exits: a child goes on with them, for at most a minute, and the exit
//! does not wait. So written bytes arrive, as with the kernel's sockets.
//!
//! An exit is a call of `exit`, or a return from `main`. This code does not run when a signal ends the process: the
//! daemon then resets its connections.

use super::hub::{Hub, Member, sleep_on};
use super::hubs;
use super::tcp::{Inner, LINGER, Tcp};
use crate::connection::Held;
use crate::error::ENETDOWN;
use guard::linger::{self, Side};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Is the exit prepared? A child made by `fork` inherits this, too.
static IS_PREPARED: Mutex<bool> = Mutex::new(false);

/// How long the exit waits for calls of other threads to release a connection. After that, the connection is reset.
const PATIENCE: Duration = Duration::from_millis(500);

/// Prepares for the exit of this process, once.
pub(super) fn prepare() -> io::Result<()> {
    let mut is_prepared = IS_PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*is_prepared {
        linger::at_exit(at_exit)?;
        *is_prepared = true;
    }
    Ok(())
}

fn at_exit() {
    let hubs = hubs().clone().into_iter().map(|(_, hub)| hub);
    let hubs: Vec<Arc<Hub>> = hubs.filter(|hub| hub.is_own() && !hub.is_gone()).collect();
    let deadline = Instant::now() + PATIENCE;
    for hub in &hubs {
        // If a leader does not leave in time, the locks below keep it out.
        hub.close_seat(deadline.saturating_duration_since(Instant::now()));
    }
    let members: Vec<Vec<Member>> = hubs.iter().map(|hub| hub.all()).collect();
    let mut held = Vec::new();
    for (hub, members) in hubs.iter().zip(&members) {
        for member in members {
            match member {
                Member::Tcp(tcp) => held.extend(hold(tcp, deadline).map(|inner| (&**hub, inner))),
                Member::Listening(listening) => hub.connection.close(listening.channel),
            }
        }
    }
    for (hub, inner) in &mut held {
        if inner.dropped_until.is_none() {
            inner.give_up(hub.now(), false);
        }
        inner.turn(hub.now());
    }
    held.retain_mut(|(_, inner)| !inner.is_done());
    if held.is_empty() {
        return;
    }
    let mut lines: Vec<Option<Held<'_>>> = hubs.iter().map(|hub| hub.connection.hold(deadline)).collect();
    let kept = lines.iter().flatten().filter_map(|line| line.hangs_up());
    let kept: Vec<_> = hubs.iter().flat_map(|hub| hub.fds()).chain(kept).collect();
    match linger::fork(&kept) {
        Ok(Side::Parent) => {
            // The child has them now.
            for (_, inner) in &mut held {
                inner.down = Some(ENETDOWN);
            }
        }
        Ok(Side::Child) => {
            finish(&hubs, held, &mut lines);
            linger::leave();
        }
        Err(_) => finish(&hubs, held, &mut lines),
    }
}

/// Takes the lock of a connection, unless a call keeps it for too long.
fn hold(tcp: &Tcp, deadline: Instant) -> Option<MutexGuard<'_, Inner>> {
    loop {
        match tcp.try_lock() {
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            inner => return inner,
        }
    }
}

/// Works for the connections until the last one is over, the minute is over, or no daemon is there. Takes no lock: each
/// connection is locked already, and so are the `lines` to daemons. In a child, other locks may never be released.
fn finish(hubs: &[Arc<Hub>], mut held: Vec<(&Hub, MutexGuard<'_, Inner>)>, lines: &mut [Option<Held<'_>>]) {
    let end = Instant::now() + LINGER + Duration::from_secs(1);
    while !held.is_empty() && Instant::now() < end {
        let mut due = end;
        held.retain_mut(|(hub, inner)| {
            let next = inner.turn(hub.now());
            if let Some(next) = next.into_iter().chain(inner.dropped_until).min() {
                due = due.min(Instant::now() + Duration::from_nanos(next.saturating_sub(hub.now())));
            }
            !inner.is_done()
        });
        if !held.is_empty() {
            sleep_on(hubs, lines, due);
            held.retain(|(hub, _)| !hub.is_gone());
        }
    }
}
