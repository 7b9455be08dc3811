//! A link between two devices that delays, loses, doubles and reorders frames, as long links do.
//!
//! - `link/line.rs` — one direction: which frames leave when. It has no clock and no device of its own.
//! - Here — a thread for each direction, between two [`Side`]s.
//!
//! Not a router: frames leave as they came, and the stations on both sides answer each other's ARP requests.
//!
//! The kernel stamps frames of a packet socket, and the delay counts from the stamp. The kernel gives such frames over
//! after up to 2 ms, so a shorter delay cannot be had between packet sockets. A tap device has no such lower limit.

mod line;

pub use line::{Conditions, Counts, HELD_FRAMES_MAX};

use crate::network::End;
use base::limits::BATCH_BLOCKS;
use driver::tuntap::TunTap;
use driver::{Receive, Transmit, Turn, af_packet};
use line::Line;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long the kernel may keep a frame from a packet socket: the shortest time that it takes.
const GIVEN_AFTER: Duration = Duration::from_millis(1);

/// Blocks of a packet socket's ring: 32 MiB in all. A thread that does not run for a tenth of a second loses no frame.
const BLOCK_COUNT: usize = 128;

/// How often a thread checks whether it has to end.
const LOOK: Duration = Duration::from_millis(20);

/// The oldest stamp that counts as a delay; an older one means that the clock was set.
const OLDEST: Duration = Duration::from_secs(1);

/// Most nanoseconds that the kernel may add to a thread's sleep; the usual value is 50,000.
const TIMER_SLACK: &str = "1";

/// A device at one end of the link. Its received frames are forwarded, and it sends frames from the other end.
pub struct Side {
    receive: Box<dyn Receive>,
    transmit: Box<dyn Transmit>,
}

impl Side {
    /// A device by packet sockets, such as the end of a veth pair whose other end belongs to a station.
    pub fn of_end(end: &End) -> Side {
        let options = af_packet::Options {
            block_timeout: GIVEN_AFTER,
            block_count: BLOCK_COUNT,
            direction: af_packet::Direction::In,
            promiscuous: true,
            ..af_packet::Options::default()
        };
        let receive = af_packet::Receiver::open(&end.namespace, &end.name, &options).expect("root may open devices");
        let sender = af_packet::SenderOptions::default();
        let transmit = af_packet::Sender::open(&end.namespace, &end.name, sender).expect("root may open devices");
        Side { receive: Box::new(receive), transmit: Box::new(transmit) }
    }

    /// A tap device with one queue, whose station is the host.
    pub fn of_tap(tap: TunTap) -> Side {
        let (receive, transmit) = tap.queues.into_iter().next().expect("a tap device has a queue");
        Side { receive: Box::new(receive), transmit: Box::new(transmit) }
    }
}

/// A link that forwards until it is dropped.
pub struct Link {
    stop: Arc<AtomicBool>,
    ways: [Way; 2],
}

struct Way {
    counts: Arc<Mutex<Counts>>,
    thread: Option<JoinHandle<Result<(), driver::Error>>>,
}

impl Link {
    /// Forwards between two sides. The first conditions hold from `left` to `right`, the second ones back.
    pub fn between(left: Side, right: Side, [there, back]: [Conditions; 2]) -> Link {
        let stop = Arc::new(AtomicBool::new(false));
        let ways = [(left.receive, right.transmit, there), (right.receive, left.transmit, back)];
        let ways = ways.map(|(receive, transmit, conditions)| {
            let counts = Arc::new(Mutex::new(Counts::default()));
            let forwarding = Forwarding { receive, transmit, line: Line::new(conditions), counts: Arc::clone(&counts) };
            let stop = Arc::clone(&stop);
            let thread = std::thread::Builder::new().name("link".into()).spawn(move || forwarding.run(&stop));
            Way { counts, thread: Some(thread.expect("a thread can be had")) }
        });
        Link { stop, ways }
    }

    /// The counts so far, there and back.
    pub fn counts(&self) -> [Counts; 2] {
        self.ways.each_ref().map(|way| *way.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends both threads. Frames on their way are lost, and count as waiting. Fails the test if a device has failed.
    pub fn stop(mut self) -> [Counts; 2] {
        for ended in self.end() {
            ended.expect("a thread of the link does not panic").expect("the devices of a link stay");
        }
        self.counts()
    }

    fn end(&mut self) -> Vec<std::thread::Result<Result<(), driver::Error>>> {
        self.stop.store(true, Ordering::Relaxed);
        self.ways.iter_mut().filter_map(|way| way.thread.take()).map(JoinHandle::join).collect()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // `stop` reports failures; here a test may be failing already.
        _ = self.end();
    }
}

/// One direction.
struct Forwarding {
    receive: Box<dyn Receive>,
    transmit: Box<dyn Transmit>,
    line: Line,
    counts: Arc<Mutex<Counts>>,
}

impl Forwarding {
    fn run(mut self, stop: &AtomicBool) -> Result<(), driver::Error> {
        sharpen_timers();
        let began = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let wait = self.line.next().map_or(LOOK, |next| next.saturating_sub(began.elapsed()).min(LOOK));
            let Forwarding { receive, line, .. } = &mut self;
            let turn = receive.receive(wait, &mut |batch| {
                let (now, stamp_now) = (began.elapsed(), realtime());
                for frame in batch.frames {
                    let stamp = Duration::from_nanos(frame.time);
                    let age = stamp_now.saturating_sub(stamp).min(OLDEST);
                    line.take(now.saturating_sub(age), frame.parts().concat());
                }
            })?;
            if turn == Turn::Down {
                std::thread::sleep(GIVEN_AFTER);
            }
            self.send(began)?;
            self.publish()?;
        }
        Ok(())
    }

    /// Sends the frames that are due.
    fn send(&mut self, began: Instant) -> Result<(), driver::Error> {
        loop {
            let due = self.line.due(began.elapsed(), BATCH_BLOCKS);
            if due.is_empty() {
                return Ok(());
            }
            let frames: Vec<&[u8]> = due.iter().map(Vec::as_slice).collect();
            let mut rest = &frames[..];
            while !rest.is_empty() {
                match self.transmit.transmit(rest)? {
                    Turn::Frames(taken) => rest = &rest[taken..],
                    Turn::Nothing if self.transmit.wait_for_room(LOOK)? => {}
                    // There was no room for a whole interval, or the device is down.
                    Turn::Nothing | Turn::Down => break,
                }
            }
            self.line.left(frames.len() - rest.len(), rest.len());
        }
    }

    fn publish(&mut self) -> Result<(), driver::Error> {
        let mut counts = self.line.counts();
        counts.missed = self.receive.statistics()?.dropped;
        let not_sent = self.transmit.statistics()?.refused_for_good();
        counts.sent -= not_sent;
        counts.refused += not_sent;
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
        Ok(())
    }
}

fn realtime() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Asks the kernel to end this thread's sleeps in time. Without the right to do so, delays are 50 µs longer.
fn sharpen_timers() {
    let Ok(this) = std::fs::read_link("/proc/thread-self") else { return };
    if let Some(thread) = this.file_name() {
        _ = std::fs::write(std::path::Path::new("/proc").join(thread).join("timerslack_ns"), TIMER_SLACK);
    }
}
