//! Sockets that a program hands to `epoll` before it connects them (nginx does): where such a socket becomes an end of the host's,
//! the kernel has forgotten it, and this says it again.

use crate::ends::{self, End};
use crate::kernel::{call, inode, quietly};
use libc::{c_int, epoll_event};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// What a program told `epoll` about a socket that may become another.
struct Entry {
    /// Inode of the socket; 0: the entry is free.
    inode: AtomicU64,
    fd: AtomicI32,
    epoll: AtomicI32,
    events: AtomicU32,
    data: AtomicU64,
}

/// The last sockets that were told; older ones are overwritten.
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

/// Held while the table is read or written. Who finds it held (another thread, or the code below a signal handler) goes on without.
static BUSY: AtomicBool = AtomicBool::new(false);

fn with_table(act: impl FnOnce(&[Entry; ENTRIES])) {
    if BUSY.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        act(&TABLE);
        BUSY.store(false, Ordering::Release);
    }
}

/// The program told `epoll` this about `fd`, with success.
pub(crate) fn told(epoll: c_int, operation: c_int, fd: c_int, event: Option<epoll_event>) {
    // Those that may become other ends: a UDP socket does with each peer.
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

/// `fd`, which was the socket of inode `before`, is another one now: tells `epoll` again.
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
