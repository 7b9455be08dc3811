//! Network namespaces: this thread's, those of other processes, and new ones that live as long as they are held.
//!
//! A socket stays in the namespace in which it was made. So a caller [`enter`](Namespace::enter)s another namespace
//! only while it opens a device there, on a separate thread.

use crate::sys::check;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

const THIS_THREAD: &str = "/proc/thread-self/ns/net";

/// A network namespace. It exists while this value or a socket in it does.
#[derive(Clone, Debug)]
pub struct Namespace {
    file: Arc<File>,
    id: u64,
}

impl Namespace {
    /// This thread's namespace.
    pub fn current() -> io::Result<Namespace> {
        Namespace::at(THIS_THREAD)
    }

    /// A process's namespace.
    pub fn of_process(process: u32) -> io::Result<Namespace> {
        Namespace::at(&format!("/proc/{process}/ns/net"))
    }

    /// The namespace of a file, such as `ip netns` leaves in `/run/netns`.
    pub fn at(path: &str) -> io::Result<Namespace> {
        let file = File::open(path)?;
        let id = file.metadata()?.ino();
        Ok(Namespace { file: Arc::new(file), id })
    }

    /// Makes a namespace with only a loopback device that is down. Takes CAP_SYS_ADMIN.
    pub fn create() -> io::Result<Namespace> {
        on_a_thread(|| {
            // SAFETY: takes no pointers, and concerns this thread alone.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
            Namespace::current()
        })
    }

    /// Its number, as `/proc` shows it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Does `work` inside it. Takes CAP_SYS_ADMIN, unless the thread is there already.
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

/// Namespaces belong to threads: a thread that changes its own must end afterwards.
fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("namespace".into()).spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
