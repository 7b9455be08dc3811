//! Unfinished connections at process exit: a child continues them for up to a minute, and the exit does not wait.
//! Written bytes thus arrive, as with the kernel's sockets.
//!
//! An exit is a call of `exit`, or the return of `main`. A fatal signal skips this: the daemon resets the connections.

use super::hub::{Hub, Member, sleep_on};
use super::hubs;
use super::tcp::{Inner, LINGER, Tcp};
use crate::connection::Held;
use crate::error::ENETDOWN;
use guard::linger::{self, Side};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Whether the exit is prepared. A child made by `fork` inherits this.
static IS_PREPARED: Mutex<bool> = Mutex::new(false);

/// How long the exit waits for other threads to release a connection; then it resets the connection.
const PATIENCE: Duration = Duration::from_millis(500);

/// Registers the exit handler of this process, once.
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
            // The child continues these connections.
            for (_, inner) in &mut held {
                inner.down = Some(ENETDOWN);
            }
        }
        Ok(Side::Child) => {
            finish(&hubs, held, &mut lines);
            linger::leave(0);
        }
        Err(_) => finish(&hubs, held, &mut lines),
    }
}

/// Locks a connection; `None` if a call holds the lock until `deadline`.
fn hold(tcp: &Tcp, deadline: Instant) -> Option<MutexGuard<'_, Inner>> {
    loop {
        match tcp.try_lock() {
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            inner => return inner,
        }
    }
}

/// Works for the connections until all are over, the minute has passed, or no daemon is left. Takes no lock, because
/// in a child other locks may be held for ever. The caller holds the connections' locks and those of `lines`.
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
