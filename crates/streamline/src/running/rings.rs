//! Rings for copies of an edge's blocks. A thread keeps each ring while it has readers, or may soon have some.
//!
//! No reader can hold such a ring: holding is reserved to a process that does not exist. Root could still hold it, but
//! then the engine leaves out blocks that find no room. The exception is a ring without loss: the request's user may
//! hold it, for up to [`HOLD`] at a time.

use base::limits::WATCH_RING;
use buffer::keeper::client::{Named, NamedWriter};
use buffer::keeper::policy::{Policy, Reach};
use buffer::keeper::server::{Keeper, RingOptions};
use buffer::ring::memory::Geometry;
use buffer::ring::{RingKind, Signalling};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a ring without readers stays: a reader that was told of it may be on its way.
const LINGER: Duration = Duration::from_secs(2);

const LOOK: Duration = Duration::from_millis(100);

/// How long a reader that wants everything may make the request wait; then it is overtaken.
const HOLD: Duration = Duration::from_secs(1);

pub(super) struct WatchRings {
    folder: PathBuf,
    all: Arc<Mutex<Known>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Becomes readable when the keepers have to end, because its other end is closed.
    ending: Arc<OwnedFd>,
    going_on: Option<OwnedFd>,
}

#[derive(Default)]
struct Known {
    serial: u64,
    by_edge: BTreeMap<String, Entry>,
}

struct Entry {
    serial: u64,
    path: PathBuf,
    asked: Instant,
}

pub(super) fn without_loss(edge: &str) -> String {
    format!("{edge}!")
}

fn is_without_loss(name: &str) -> bool {
    name.ends_with('!')
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No panic under these locks leaves a half-made value.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WatchRings {
    pub(super) fn new(folder: &Path) -> io::Result<WatchRings> {
        let (ending, going_on) = io::pipe()?;
        Ok(WatchRings {
            folder: folder.to_path_buf(),
            all: Arc::default(),
            threads: Mutex::default(),
            ending: Arc::new(ending.into()),
            going_on: Some(going_on.into()),
        })
    }

    /// Gives the path of this edge's ring; makes the ring if it is missing, and then gives its writer as well. A ring
    /// without loss is a separate one, with [`without_loss`] as its key.
    pub(super) fn open(&self, edge: &str) -> io::Result<(PathBuf, Option<NamedWriter>)> {
        let (serial, path) = {
            let mut known = locked(&self.all);
            if let Some(entry) = known.by_edge.get_mut(edge) {
                entry.asked = Instant::now();
                return Ok((entry.path.clone(), None));
            }
            known.serial += 1;
            let path = self.folder.join(format!("{}.{}.sock", std::process::id(), known.serial));
            let entry = Entry { serial: known.serial, path: path.clone(), asked: Instant::now() };
            known.by_edge.insert(edge.to_string(), entry);
            (known.serial, path)
        };
        let made = self.keep(edge, serial, &path);
        if made.is_err() {
            self.forget(edge);
        }
        made.map(|ring| (path, Some(ring)))
    }

    /// Drops the ring of this edge from the list; the next asker gets another ring.
    pub(super) fn forget(&self, edge: &str) {
        locked(&self.all).by_edge.remove(edge);
    }

    /// Drops all rings from the list, since the edges' names have changed their meaning. Present readers go on.
    pub(super) fn forget_all(&self) {
        locked(&self.all).by_edge.clear();
    }

    fn keep(&self, edge: &str, serial: u64, path: &Path) -> io::Result<NamedWriter> {
        let (bytes, slots) = WATCH_RING;
        let (holds, hold) = if is_without_loss(edge) { (Reach::User, HOLD) } else { (Reach::Process, Duration::ZERO) };
        let options = RingOptions {
            policy: Policy { read: Reach::User, hold: holds, write: Reach::User },
            hold: Some(hold),
            ..RingOptions::new(Geometry::new(RingKind::D, bytes, slots))
        };
        let mut keeper = Keeper::create(path, options)?;
        keeper.set_owner_process(0);
        let keeping =
            Keeping { edge: edge.to_string(), serial, all: Arc::clone(&self.all), ending: Arc::clone(&self.ending) };
        let thread = std::thread::Builder::new().name("watched".into()).spawn(move || keeping.run(keeper))?;
        let mut threads = locked(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        drop(threads);
        let name = path.to_str().ok_or_else(|| io::Error::other("the folder's name is not text"))?;
        Named::at(name)?.open_writer(Signalling::default())
    }
}

impl Drop for WatchRings {
    fn drop(&mut self) {
        drop(self.going_on.take());
        for thread in std::mem::take(&mut *locked(&self.threads)) {
            let _ = thread.join();
        }
    }
}

struct Keeping {
    edge: String,
    serial: u64,
    all: Arc<Mutex<Known>>,
    ending: Arc<OwnedFd>,
}

impl Keeping {
    fn run(self, mut keeper: Keeper) {
        let mut read = Instant::now();
        let mut written = false;
        let mut looked = Instant::now();
        loop {
            if keeper.turn(Some(LOOK.as_millis() as u32), Some(self.ending.as_fd())).unwrap_or(true) {
                break;
            }
            if looked.elapsed() < LOOK {
                continue;
            }
            looked = Instant::now();
            let state = keeper.state();
            if !state.readers.is_empty() {
                read = Instant::now();
            }
            let abandoned = written && !state.writing;
            written |= state.writing;
            if abandoned || (read.elapsed() > LINGER && self.gives_up()) {
                break;
            }
        }
        self.forget();
        keeper.remove();
    }

    /// Removes the ring from the list, unless it has readers or a reader was told of it lately. Once removed, it gets
    /// no more.
    fn gives_up(&self) -> bool {
        let mut known = locked(&self.all);
        let mine = known.by_edge.get(&self.edge).filter(|entry| entry.serial == self.serial);
        if mine.is_some_and(|entry| entry.asked.elapsed() < LINGER) {
            return false;
        }
        if mine.is_some() {
            known.by_edge.remove(&self.edge);
        }
        true
    }

    fn forget(&self) {
        let mut known = locked(&self.all);
        if known.by_edge.get(&self.edge).is_some_and(|entry| entry.serial == self.serial) {
            known.by_edge.remove(&self.edge);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use buffer::ring::{From, OnFull};

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20), "{what}: it did not come to that");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_ring_is_there_as_long_as_somebody_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let rings = WatchRings::new(folder.path()).unwrap();
        let (path, new) = rings.open("1").unwrap();
        let mut writer = new.expect("the first makes it");
        assert!(rings.open("1").unwrap().1.is_none(), "the second finds it");
        assert_ne!(rings.open("2").unwrap().0, path);
        let named = Named::at(path.to_str().unwrap()).unwrap();
        let reader = named.open_reader(OnFull::Overwrite, From::Next, None).unwrap();
        until("the writer knows", || writer.writer().readers() == 1);
        std::thread::sleep(LINGER + 2 * LOOK);
        assert!(!writer.writer().is_removed());
        drop(reader);
        until("the ring goes with its last reader", || writer.writer().is_removed() && !path.exists());
        assert!(rings.open("1").unwrap().1.is_some(), "a new one");
    }

    #[test]
    fn rings_go_with_the_request_and_are_left_by_a_writer() {
        let folder = tempfile::tempdir().unwrap();
        let rings = WatchRings::new(folder.path()).unwrap();
        let (path, new) = rings.open("1").unwrap();
        until("it is kept", || path.exists());
        let named = Named::at(path.to_str().unwrap()).unwrap();
        let reader = named.open_reader(OnFull::Overwrite, From::Next, None).unwrap();
        std::thread::sleep(2 * LOOK);
        drop(new);
        until("a ring that nobody writes goes", || !path.exists());
        drop(reader);
        let (_, new) = rings.open("1").unwrap();
        assert!(new.is_some());
        drop(rings);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    }
}
