//! A request read as a device: the engine runs it in a thread of this process, and what its last path gives is written to
//! a live ring, which is read like any device's. Where frames become packets of the ring: [`frames`](crate::frames).
//!
//! ```text
//!   request ─▶ engine ─▶ save - ─▶ Frames ─▶ live ring ─▶ Tap ─▶ callback
//!   └──────── a thread of this process ─────────┘         └─ the program's ─┘
//! ```
//!
//! Two things differ from a device. The thread waits for the program: nothing is lost in this ring, for what comes from
//! files would be lost for nothing; a device in the request loses packets where it is read, which is counted as lost there.
//! And it ends.
//!
//! What parses packets beside the frames that the program gets may run where other requests of the user share it
//! (`STREAMLINE_SHARE`, or `set share=yes` in the request), if anything runs there: none is started from here, for it would be
//! a child that the program did not make, of whatever rights it has at the time.
//!
//! The thread is gone in a process that forks to go on in the background, and it has what rights the program has: requests
//! with devices are better served by a daemon.

#[cfg(test)]
mod tests;

use crate::frames::Frames;
use crate::host;
use buffer::live::LiveMemory;
use buffer::shared::segment::Access;
use capture::copying::{self, Copied, Copier, Ring};
use capture::writer::Opened;
use capture::{By, CaptureError, CaptureErrorKind, CaptureRegistry, Device, ETHERNET, Mode, Writer};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use streamline::devices::Place;
use streamline::{Output, Report, Session, StopFlag, Worker};

/// Bytes of the ring where the program does not ask for more: what a reader and a writer need not to wait for each other.
const RING_BYTES: u64 = 4 << 20;

/// A quarter of it holds several of the longest packets.
const RING_BYTES_MIN: u64 = 1 << 20;

/// So long a request that runs has until its first frame, which tells the link type; then it is taken for Ethernet.
const FIRST_FRAME: Duration = Duration::from_millis(500);

/// The thread has so long to end with the handle; then it is left to itself.
const ENDING: Duration = Duration::from_secs(1);

/// A request that runs.
pub struct Request {
    /// The ring's owner. In its own thread it wakes who sleeps.
    registry: CaptureRegistry,
    shared: Arc<Shared>,
}

/// What both threads look at.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Tells the engine.
    stop: StopFlag,
    /// Makes the ring's owner look whether it has ended.
    bell: OwnedFd,
    /// Packets that devices in the request lost.
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Everything it needs is open.
    prepared: bool,
    /// Of its frames, once known.
    link_type: Option<u16>,
    /// The program wants packets.
    wanted: bool,
    /// The program has closed its handle.
    closed: bool,
    /// Number of the packet that the program reads next.
    position: u64,
    /// Why a frame could not be published.
    refused: Option<String>,
    /// It has ended: as it should, or why not.
    end: Option<Result<(), String>>,
}

impl Request {
    /// Runs a request, and waits until it is known what its frames are. Nothing is published before
    /// [`want`](Self::want).
    pub fn start(source: &str, ring_bytes: u64) -> Result<Request, CaptureError> {
        let ring_bytes = if ring_bytes == 0 { RING_BYTES } else { ring_bytes.max(RING_BYTES_MIN) };
        let (ring, copying) = copying::ring("request", ring_bytes)?;
        let system = |what: &str, error: std::io::Error| CaptureError::system(what, &error);
        let memory = LiveMemory::map(ring.areas(), ring.geometry(), Access::Read)
            .map_err(|error| system("the ring cannot be mapped", error))?;
        let bell = ring.bell().try_clone_to_owned().map_err(|error| system("no event can be made", error))?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            stop: StopFlag::new(),
            bell,
            lost: AtomicU64::new(0),
        });
        let (frames, theirs) = (Frames::new(copying, memory, Arc::clone(&shared)), Arc::clone(&shared));
        let text = source.to_string();
        // The program's signals are for the program's threads.
        let registry = host::without_signals(|| {
            let engine = std::thread::Builder::new().name("streamline-run".into());
            engine
                .spawn(move || {
                    let over = Over(&theirs);
                    theirs.finish(run(&text, frames, &theirs));
                    drop(over);
                })
                .map_err(|error| system("no thread can be made", error))?;
            let opener = Opener { made: Mutex::new(Some((ring, Arc::clone(&shared)))), name: source.into() };
            CaptureRegistry::new(Box::new(opener))
        });
        let request =
            Request { registry: registry.map_err(|error| system("signals cannot be blocked", error))??, shared };
        request.shared.await_first_frame()?;
        Ok(request)
    }

    /// The ring's owner.
    pub fn registry(&self) -> &CaptureRegistry {
        &self.registry
    }

    /// From now on packets are published.
    pub fn want(&self) {
        let mut state = self.shared.lock();
        state.wanted = true;
        self.shared.changed.notify_all();
        if state.end.is_some() {
            self.shared.ring();
        }
    }

    /// The program has read all packets before this number.
    pub fn has_read(&self, position: u64) {
        let mut state = self.shared.lock();
        if state.position != position {
            state.position = position;
            self.shared.changed.notify_all();
        }
    }

    /// Was all there is published?
    pub fn has_ended(&self) -> bool {
        self.shared.lock().end.is_some()
    }

    /// Why it ended, if not as it should.
    pub fn failure(&self) -> Option<String> {
        self.shared.lock().end.clone()?.err()
    }

    /// Who knows what devices in the request lost.
    pub fn losses(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        self.shared.stop.stop();
        self.shared.changed.notify_all();
        let until = Instant::now() + ENDING;
        // It may sit in a read that nothing ends, of a pipe perhaps: that is no reason for the program not to end.
        while state.end.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.shared.wait(state, Some(left));
        }
    }
}

/// The thread's work.
fn run(source: &str, frames: Frames, shared: &Shared) -> Result<(), String> {
    let told = |error: streamline::Error| error.to_string();
    let text = streamline::frames::to_output(source, None).map_err(|diagnostic| told(diagnostic.into()))?;
    let place = match host::named_daemon() {
        Some(path) => Place::Daemon(path.into()),
        None => Place::Anywhere,
    };
    let session = Session::with_output(Output::new(Box::new(frames), false)).devices_at(place).share(host::shares());
    let mut job = session.prepare(&text, &BTreeMap::new()).map_err(told)?;
    shared.lock().prepared = true;
    shared.changed.notify_all();
    let (outcome, report) = job.run_to_end(&shared.stop, &mut |worker: &mut Worker| {
        worker.take_notices().iter().for_each(|notice| eprintln!("warning: {}", base::terminal::text(notice)));
        shared.count_losses(&worker.report());
    });
    shared.count_losses(&report);
    match shared.lock().refused.take() {
        Some(why) => Err(why),
        None => outcome.map(|_| ()).map_err(told),
    }
}

/// Says that it ended also where it panicked.
struct Over<'a>(&'a Shared);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.finish(Err("the engine has failed".into()));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change under it is one store.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Option<Duration>) -> MutexGuard<'a, State> {
        match time {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(time) => self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0,
        }
    }

    /// Makes the ring's owner look.
    fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn finish(&self, end: Result<(), String>) {
        let mut state = self.lock();
        // What was said first is why.
        state.end.get_or_insert(end);
        self.changed.notify_all();
        if state.wanted {
            self.ring();
        }
    }

    fn await_first_frame(&self) -> Result<(), CaptureError> {
        let mut state = self.lock();
        let mut until = None;
        while state.link_type.is_none() {
            if let Some(end) = &state.end {
                if let Err(why) = end {
                    return Err(CaptureError::new(CaptureErrorKind::Cannot, why.clone()));
                }
                // It gave nothing at all, which has no link type either.
                break;
            }
            let left = state.prepared.then(|| {
                let until = *until.get_or_insert_with(|| Instant::now() + FIRST_FRAME);
                until.saturating_duration_since(Instant::now())
            });
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            state = self.wait(state, left);
        }
        state.link_type.get_or_insert(ETHERNET);
        Ok(())
    }

    /// Says what the link type of a frame is; waits until the program wants packets. False where it never will, or where
    /// the first frames had another link type.
    pub(crate) fn admit(&self, link_type: u16) -> bool {
        let mut state = self.lock();
        let first = *state.link_type.get_or_insert(link_type);
        if first != link_type {
            state.refused =
                Some(format!("frames of link type {link_type} came, on a device that has link type {first}"));
            return false;
        }
        self.changed.notify_all();
        while !state.wanted && !state.closed {
            state = self.wait(state, None);
        }
        !state.closed
    }

    /// Waits until the program has read the packets before this number. False where it never will.
    pub(crate) fn await_reader(&self, number: u64) -> bool {
        let mut state = self.lock();
        while state.position < number && !state.closed {
            state = self.wait(state, None);
        }
        !state.closed
    }

    fn count_losses(&self, report: &Report) {
        let sources = report.nodes.iter().filter(|node| node.source);
        let lost = sources.map(|node| node.counters.drops.total()).sum();
        self.lost.store(lost, Ordering::Relaxed);
    }

    /// Packets that devices in the request lost. For signal handlers, too.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Gives the one ring there is, to the one reader there is.
struct Opener {
    made: Mutex<Option<(Ring, Arc<Shared>)>>,
    name: String,
}

impl Opened for Opener {
    fn index(&self, _device: &str) -> Result<u32, CaptureError> {
        // As it is said of the ring: there is no other.
        Ok(0)
    }

    fn open(&self, _device: &str, _ring_bytes: u64, _mode: Mode, _by: By) -> Result<Box<dyn Writer>, CaptureError> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (ring, shared) =
            made.ok_or_else(|| CaptureError::new(CaptureErrorKind::Cannot, "a request is read by one reader"))?;
        let link_type = shared.lock().link_type.unwrap_or(ETHERNET);
        let how = "a request, run by this process".into();
        let device = Device { name: self.name.clone(), index: 0, link_type, mtu: 0, how, copied: false };
        Ok(Box::new(Copied::new(Owner { shared, device }, ring)))
    }
}

/// The request, as the owner of its ring sees it.
struct Owner {
    shared: Arc<Shared>,
    device: Device,
}

impl Copier for Owner {
    fn device(&self) -> Device {
        self.device.clone()
    }

    fn promiscuous(&self, _wanted: bool) -> Result<(), CaptureError> {
        Ok(())
    }

    fn gone(&self) -> bool {
        let state = self.shared.lock();
        // Before it is wanted, its reader has yet to say what of it.
        state.wanted && state.end.is_some()
    }
}
