//! The attendant: one thread that watches all of this process's connections to daemons. It sleeps until a daemon ends,
//! then looks for the next one. Calls and the flows' own threads move packets meanwhile.

use crate::line::{AGAIN, Attended, Line};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The watched connections. `nudge` announces new ones; `process` is the thread's process, since `fork` copies no
/// thread.
struct Attendant {
    process: u32,
    nudge: Option<Arc<OwnedFd>>,
    connections: Vec<Weak<Line>>,
}

static ATTENDANT: Mutex<Attendant> = Mutex::new(Attendant { process: 0, nudge: None, connections: Vec::new() });

/// Watches a connection while it exists.
///
/// # Errors
///
/// The thread cannot be started.
pub(crate) fn look_after(connection: &Arc<Line>) -> io::Result<()> {
    let mut attendant = ATTENDANT.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if attendant.process != process {
        let nudge = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let woken = Arc::clone(&nudge);
        std::thread::Builder::new().name("streamline line".into()).spawn(move || attend(&woken))?;
        *attendant = Attendant { process, nudge: Some(nudge), connections: Vec::new() };
    }
    attendant.connections.push(Arc::downgrade(connection));
    if let Some(nudge) = &attendant.nudge {
        // A full eventfd wakes the thread as well.
        let _ = rustix::io::write(nudge, &1_u64.to_ne_bytes());
    }
    Ok(())
}

fn attend(nudge: &OwnedFd) {
    loop {
        let connections = {
            let mut attendant = ATTENDANT.lock().unwrap_or_else(PoisonError::into_inner);
            attendant.connections.retain(|connection| connection.strong_count() > 0);
            attendant.connections.clone()
        };
        let (mut lines, mut is_looking) = (Vec::new(), false);
        for connection in connections.iter().filter_map(Weak::upgrade) {
            match connection.attend() {
                Attended::There => lines.extend(connection.hangs_up()),
                Attended::Away => is_looking = true,
                Attended::Over => {}
            }
        }
        let mut fds = vec![PollFd::new(nudge, PollFlags::IN)];
        fds.extend(lines.iter().map(|line| PollFd::new(line, PollFlags::RDHUP)));
        let timeout = is_looking.then(|| Timespec::try_from(AGAIN).ok()).flatten();
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        let _ = rustix::io::read(nudge, &mut [0; 8]);
    }
}
