//! A request in the place of a device: the engine runs it in a thread of this process and writes the frames of its last
//! chain to a live ring. The ring is read like any device's. [`frames`](crate::frames) makes packets of the frames.
//!
//! ```text
//!   request ─▶ engine ─▶ save - ─▶ Frames ─▶ live ring ─▶ Tap ─▶ callback
//!   └──────── a thread of this process ─────────┘         └─ the program's ─┘
//! ```
//!
//! It differs from a device in two ways:
//!
//! - The writer thread waits for the program, since packets of files would otherwise be lost for no reason. So this
//!   ring loses nothing. A device in the request may lose packets where it is read, and they are counted as lost there.
//! - It ends.
//!
//! With `STREAMLINE_SHARE`, or `set share=yes` in the request, the parsing filters of other branches may run in the
//! user's parser process, if there is one already. This library does not start one: it would be a child that the
//! program did not make, with whatever rights the program has at the time.
//!
//! A program that forks into the background loses the thread, and the thread has the rights of the program. So a daemon
//! serves requests with devices better.

#[cfg(test)]
mod tests;

use crate::cooked::Form;
use crate::frames::Frames;
use crate::host;
use crate::shared::Shared;
use buffer::live::LiveMemory;
use buffer::shared::segment::Access;
use capture::copying::{self, Copied, Copier, Ring};
use capture::writer::Opened;
use capture::{By, CaptureError, CaptureErrorKind, CaptureRegistry, Device, ETHERNET, Mode, Writer};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use streamline::devices::Place;
use streamline::{Output, Session, StopFlag, Worker};

/// Bytes of the ring if the program does not ask for more: enough that reader and writer rarely wait for each other.
const RING_BYTES: u64 = 4 << 20;

/// The least bytes of the ring: a quarter holds several of the longest packets.
const RING_BYTES_MIN: u64 = 1 << 20;

/// How long the thread has to end with the handle. After that, it is left running.
const ENDING: Duration = Duration::from_secs(1);

/// The request in the place of libpcap's device `any`.
pub const ANY: &str = "ethernet any";

/// A running request.
pub struct Request {
    /// The ring's owner. Its own thread wakes sleeping readers.
    registry: CaptureRegistry,
    shared: Arc<Shared>,
}

impl Request {
    /// Starts a request, and waits until its link type is known and its devices are open. Publishes no packets before [`want`](Self::want).
    pub fn start(source: &str, form: Form, ring_bytes: u64) -> Result<Request, CaptureError> {
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
        let (frames, theirs) = (Frames::new(copying, memory, form, Arc::clone(&shared)), Arc::clone(&shared));
        // Frames of several devices have one link type, which is known before the first of them.
        shared.lock().link_type = form.link_type();
        let text = source.to_string();
        // The program's threads must get its signals.
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

    /// Lets packets be published from now on.
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

    /// Whether all packets are published.
    pub fn has_ended(&self) -> bool {
        self.shared.lock().end.is_some()
    }

    /// The error with which it ended, if any.
    pub fn failure(&self) -> Option<String> {
        self.shared.lock().end.clone()?.err()
    }

    /// Counts the packets that devices in the request have lost.
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
        // The thread may be in a read that never returns, of a pipe perhaps. The program must be able to end even so.
        while state.end.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.shared.wait(state, Some(left));
        }
    }
}

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

/// Reports the end even after a panic.
struct Over<'a>(&'a Shared);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.finish(Err("the engine has failed".into()));
        }
    }
}

/// Gives the only ring to the only reader.
struct Opener {
    made: Mutex<Option<(Ring, Arc<Shared>)>>,
    name: String,
}

impl Opened for Opener {
    fn index(&self, _device: &str) -> Result<u32, CaptureError> {
        // The index of the only ring.
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

/// The request as a source that the ring's owner copies from.
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
        // Until packets are wanted, the reader has yet to set its expression.
        state.wanted && state.end.is_some()
    }
}
