//! One prefix that runs in the parser process: a thread, and an outlet at each place where a request may go on by
//! itself.
//!
//! In: the prefix as a request, and perhaps another prefix that it goes on from. Out: rings. A ring is made for its
//! first reader, and removed when it has had none for a while.

use super::bases::{Base, Bases, LastWord};
use crate::error::Error;
use crate::kept_ring::KeptRing;
use crate::session::{Prepared, Session};
use base::atomic::{AtomicU64, Ordering, StopFlag};
use buffer::keeper::client::Named;
use buffer::keeper::policy::{Policy, Reach};
use buffer::keeper::server::RingOptions;
use buffer::ring::memory::Geometry;
use buffer::ring::{RingKind, Signalling};
use engine::Worker;
use filters::parser::outlet::Slot;
use filters::parser::{Continuity, WITH_HEADERS};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes of a ring, which is how far a reader may be behind before it loses blocks. The same as the smallest ring of a
/// device.
const RING_BYTES: u64 = 32 << 20;

/// Blocks of a ring; it has room for this number of short blocks, such as datagrams.
const RING_BLOCKS: u64 = 1 << 16;

/// How long root may hold a ring; then root is overtaken like any reader.
const HOLD: Duration = Duration::from_millis(1);

const COUNT_LOST: Duration = Duration::from_millis(500);

pub(crate) struct Outlet {
    pub(crate) text: String,
    pub(crate) continuity: Continuity,
    slot: Arc<Slot>,
    ring: Option<KeptRing>,
    /// Since when it has had no readers. `None`: it has some.
    pub(crate) unused: Option<Instant>,
}

impl Outlet {
    /// Gives the socket of its ring's keeper. Makes the ring at `path` if there is none.
    pub(crate) fn open(&mut self, path: impl FnOnce() -> PathBuf) -> io::Result<&Path> {
        let ring = match self.ring.take() {
            Some(ring) => ring,
            None => {
                let path = path();
                let ring = make_ring(path)?;
                let name = ring.path().to_str().ok_or_else(|| io::Error::other("the folder's path is not text"))?;
                self.slot.open(Named::at(name)?.open_writer_of(WITH_HEADERS, Signalling::default())?);
                ring
            }
        };
        Ok(self.ring.insert(ring).path())
    }

    /// The socket of its ring's keeper. `None`: there is no ring.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.ring.as_ref().map(KeptRing::path)
    }

    /// Ends its ring; readers can still take what is in it.
    pub(crate) fn close(&mut self) {
        self.slot.close();
        self.ring = None;
    }

    /// Blocks given, and their bytes.
    pub(crate) fn given(&self) -> (u64, u64) {
        self.slot.written()
    }
}

/// Makes a ring that only this process writes, and whose readers hold up no one.
fn make_ring(path: PathBuf) -> io::Result<KeptRing> {
    let options = RingOptions {
        // A holding reader makes others wait. Only this process has the right to hold, and does not use it.
        policy: Policy { read: Reach::User, hold: Reach::Process, write: Reach::Process },
        hold: Some(HOLD),
        ..RingOptions::new(Geometry::new(RingKind::D, RING_BYTES, RING_BLOCKS))
    };
    KeptRing::make(path, options)
}

pub(crate) struct Stage {
    pub(crate) text: String,
    pub(crate) bases: Vec<String>,
    /// In order, from the source down.
    pub(crate) outlets: Vec<Outlet>,
    /// When it started, ns since 1970 UTC.
    pub(crate) since: u64,
    /// Packets or blocks that its sources have lost.
    lost: Arc<AtomicU64>,
    stop: StopFlag,
    /// Returns why it ended.
    thread: Option<JoinHandle<()>>,
    /// Set once it has ended: why.
    last_word: LastWord,
}

impl Stage {
    /// Prepares a prefix, and runs it.
    pub(crate) fn start(session: &Session, text: &str, bases: Vec<Base>) -> Result<Stage, Error> {
        let base_texts = bases.iter().map(|base| base.text.clone()).collect();
        let Prepared { mut job, outlets } = session.prepare_prefix(text, Bases(bases))?;
        let stop = StopFlag::new();
        let asked = stop.clone();
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        let last_word = LastWord::default();
        let (says, what) = (Arc::clone(&last_word), text.to_string());
        let run = move || {
            let mut counted_at = Instant::now();
            let mut look = |worker: &mut Worker| {
                drop(worker.take_notices());
                if counted_at.elapsed() >= COUNT_LOST {
                    counted_at = Instant::now();
                    let sources = worker.report().nodes.into_iter().filter(|node| node.source);
                    counted.store(sources.map(|node| node.counters.drops.total()).sum(), Ordering::Relaxed);
                }
            };
            let why = match job.run_to_end(&asked, &mut look).0 {
                Ok(_) => format!("`{what}` was stopped"),
                Err(error) => error.to_string(),
            };
            let _ = says.set(why);
        };
        let thread = std::thread::Builder::new().name("shared-prefix".into()).spawn(run);
        let thread = thread.map_err(|error| Error::System(format!("no thread can be started: {error}")))?;
        let outlet = |(text, continuity, slot)| Outlet { text, continuity, slot, ring: None, unused: None };
        Ok(Stage {
            text: text.into(),
            bases: base_texts,
            outlets: outlets.into_iter().map(outlet).collect(),
            since: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64),
            lost,
            stop,
            thread: Some(thread),
            last_word,
        })
    }

    /// Where it will write why it ended.
    pub(crate) fn last_word(&self) -> LastWord {
        Arc::clone(&self.last_word)
    }

    /// Packets lost before a filter saw them, or lost blocks of the prefixes that it goes on from.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Why it ended by itself. `None`: it runs.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let thread = self.thread.take_if(|thread| thread.is_finished())?;
        let panicked = || format!("the thread that ran `{}` has panicked", self.text);
        // The thread has finished: joining does not wait, and its panic has been reported.
        let _ = thread.join();
        Some(self.last_word.get().cloned().unwrap_or_else(panicked))
    }

    /// Ends the source first, then the rings.
    pub(crate) fn end(mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // The reason is no longer needed.
            let _ = thread.join();
        }
        self.outlets.iter_mut().for_each(Outlet::close);
    }
}
