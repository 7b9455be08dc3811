//! Sockets that a program adds to `epoll` before it connects them, as nginx does. When such a socket is replaced by an
//! end of the host, the kernel forgets it, and this file adds it again.

use crate::ends::{self, End};
use crate::kernel::{call, inode, quietly};
use libc::{c_int, epoll_event};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// A program's call of `epoll` for a socket that may be replaced.
struct Entry {
    /// Inode of the socket. 0: the entry is free.
    inode: AtomicU64,
    fd: AtomicI32,
    epoll: AtomicI32,
    events: AtomicU32,
    data: AtomicU64,
}

/// The most recent calls. Older ones are overwritten.
const ENTRIES: usize = 256;

static TABLE: [Entry; ENTRIES] = [const {
    Entry {
        inode: AtomicU64::new(0),
        fd: AtomicI32::new(0),
        epoll: AtomicI32::new(0),
        events: AtomicU32::new(0),
        data: AtomicU64::new(0),
    }
}; ENTRIES];

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Held while the table is used. Code that finds it held (a thread, or a signal handler) goes on without the table.
static BUSY: AtomicBool = AtomicBool::new(false);

fn with_table(act: impl FnOnce(&[Entry; ENTRIES])) {
    if BUSY.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        act(&TABLE);
        BUSY.store(false, Ordering::Release);
    }
}

/// The program called `epoll_ctl` with these arguments, successfully.
pub(crate) fn told(epoll: c_int, operation: c_int, fd: c_int, event: Option<epoll_event>) {
    // Sockets that may be replaced: a UDP socket is with each new peer.
    if !matches!(ends::of(fd), End::Kernel { .. } | End::Envelopes | End::Datagrams) {
        return;
    }
    let inode = quietly(|| inode(fd));
    with_table(|table| {
        let is_it = |entry: &&Entry| {
            entry.inode.load(Ordering::Relaxed) == inode && entry.epoll.load(Ordering::Relaxed) == epoll
        };
        let known = table.iter().find(is_it);
        match (operation, event) {
            (libc::EPOLL_CTL_DEL, _) => known.iter().for_each(|entry| entry.inode.store(0, Ordering::Relaxed)),
            (_, Some(event)) => {
                let next = || table.get(NEXT.fetch_add(1, Ordering::Relaxed) % ENTRIES);
                let Some(entry) = known.or_else(next) else { return };
                entry.inode.store(inode, Ordering::Relaxed);
                entry.fd.store(fd, Ordering::Relaxed);
                entry.epoll.store(epoll, Ordering::Relaxed);
                entry.events.store(event.events, Ordering::Relaxed);
                entry.data.store(event.u64, Ordering::Relaxed);
            }
            _ => {}
        }
    });
}

/// `fd`, which was the socket of inode `before`, has been replaced: calls `epoll_ctl` again.
pub(crate) fn carry_over(fd: c_int, before: u64) {
    with_table(|table| {
        for entry in table.iter().filter(|entry| entry.inode.load(Ordering::Relaxed) == before) {
            if entry.fd.load(Ordering::Relaxed) == fd {
                let (events, data) = (entry.events.load(Ordering::Relaxed), entry.data.load(Ordering::Relaxed));
                let event = epoll_event { events, u64: data };
                let epoll = entry.epoll.load(Ordering::Relaxed) as usize;
                let event_at = &raw const event as usize;
                call(libc::SYS_epoll_ctl, [epoll, libc::EPOLL_CTL_ADD as usize, fd as usize, event_at]);
            }
            entry.inode.store(0, Ordering::Relaxed);
        }
    });
}
