//! Network namespaces: which one this is, those of others, and new ones that live as long as somebody holds them.
//!
//! A socket stays in the namespace it was made in. So whoever wants a device of another one [`enter`](Namespace::enter)s it
//! for as long as opening takes, on a thread of its own.

use crate::sys::check;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

const THIS_THREAD: &str = "/proc/thread-self/ns/net";

/// A network namespace. While somebody holds one (or a socket in it), it exists.
#[derive(Clone, Debug)]
pub struct Namespace {
    file: Arc<File>,
    id: u64,
}

impl Namespace {
    /// The one this thread is in.
    pub fn current() -> io::Result<Namespace> {
        Namespace::at(THIS_THREAD)
    }

    /// The one a process is in.
    pub fn of_process(process: u32) -> io::Result<Namespace> {
        Namespace::at(&format!("/proc/{process}/ns/net"))
    }

    /// The one a file stands for, as `ip netns` leaves them in `/run/netns`.
    pub fn at(path: &str) -> io::Result<Namespace> {
        let file = File::open(path)?;
        let id = file.metadata()?.ino();
        Ok(Namespace { file: Arc::new(file), id })
    }

    /// A new one, with nothing in it but a loopback device that is down. Takes CAP_SYS_ADMIN.
    pub fn create() -> io::Result<Namespace> {
        on_a_thread(|| {
            // SAFETY: takes no pointers, and concerns this thread alone.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
            Namespace::current()
        })
    }

    /// Its number, by which people and `/proc` name it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Does `work` inside it. Takes CAP_SYS_ADMIN, unless this is where the thread is anyway.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        if Namespace::current()?.id == self.id {
            return Ok(work());
        }
        on_a_thread(|| {
            // SAFETY: takes no pointers, and concerns this thread alone, which ends afterwards.
            check(unsafe { libc::setns(self.file.as_raw_fd(), libc::CLONE_NEWNET) })?;
            Ok(work())
        })
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Namespace) -> bool {
        self.id == other.id
    }
}

/// Namespaces belong to threads: what changes one is done on a thread that ends with it.
fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("namespace".into()).spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
