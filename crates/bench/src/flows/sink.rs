//! Records the frames that arrive at the far end: time by the kernel's clock, port and length, from a packet socket.
//! The socket keeps only headers, so that it does not lose frames; a run with lost frames is void.

use super::bed::{Bed, Whose, mac};
use super::frames;
use super::part::failed;
use crate::case::CaseError;
use driver::Receive;
use driver::af_packet::{Direction, Options, Receiver};
use driver::filter::Instruction;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use testkit::network;

/// Bytes of a frame that are kept: its headers.
const KEPT: u32 = 64;

/// Length of the windows in which shares are measured, in ns.
pub const WINDOW: u64 = 100_000_000;

/// A datagram that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its time, ns since 1970 UTC.
    pub time: u64,
    /// Its target port.
    pub port: u16,
    /// Bytes of its frame.
    pub bytes: u32,
}

/// All frames that arrived.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Datagrams, in order of arrival.
    pub datagrams: Vec<Arrival>,
    /// Answers to pings: number and time.
    pings: Vec<(u16, u64)>,
    arps: Vec<u64>,
    /// Frames that the packet socket had no room for.
    pub lost: u64,
}

/// A listener at the far end.
pub struct Sink {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Arrivals, String>>,
}

/// ns since 1970 UTC.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl Sink {
    /// Starts to listen.
    pub fn listen(bed: &Bed, whose: Whose) -> Result<Sink, CaseError> {
        let options = Options {
            block_bytes: 1 << 20,
            block_count: 64,
            direction: Direction::In,
            filter: vec![Instruction { code: 6, jump_true: 0, jump_false: 0, k: KEPT }],
            ..Options::default()
        };
        let far = bed.far(whose);
        let mut receiver = Receiver::open(&far.namespace, &far.name, &options).map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let listen = move || {
            let mut arrivals = Arrivals::default();
            let mut turn = driver::Turn::Nothing;
            // Frames that are there when the sink has to end still count.
            while turn != driver::Turn::Nothing || !stopped.load(Ordering::Relaxed) {
                let take = &mut |batch: driver::Batch<'_>| batch.frames.iter().for_each(|frame| arrivals.take(frame));
                turn = receiver.receive(Duration::from_millis(20), take).map_err(|error| error.to_string())?;
            }
            arrivals.lost = receiver.statistics().map_err(|error| error.to_string())?.dropped;
            Ok(arrivals)
        };
        Ok(Sink { stop, thread: std::thread::spawn(listen) })
    }

    /// Ends, and gives the frames that arrived.
    pub fn end(self) -> Result<Arrivals, CaseError> {
        // The kernel hands over a partly filled block after 10 ms.
        std::thread::sleep(Duration::from_millis(30));
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| failed("the sink's thread failed"))?.map_err(failed)
    }
}

impl Arrivals {
    fn take(&mut self, frame: &driver::Frame<'_>) {
        let bytes = frame.bytes_without_tag();
        if let Some(port) = frames::port(bytes) {
            self.datagrams.push(Arrival { time: frame.time, port, bytes: frame.wire });
        } else if let Some(number) = frames::ping_answered(bytes) {
            self.pings.push((number, frame.time));
        } else if frames::is_at(bytes) {
            self.arps.push(frame.time);
        }
    }

    /// Bytes to a port between two times.
    pub fn bytes(&self, port: u16, from: u64, until: u64) -> u64 {
        let wanted = |one: &&Arrival| one.port == port && (from..until).contains(&one.time);
        self.datagrams.iter().filter(wanted).map(|one| u64::from(one.bytes)).sum()
    }

    /// Bytes to a port in each [`WINDOW`] between two times.
    pub fn windows(&self, port: u16, from: u64, until: u64) -> Vec<f64> {
        let mut windows = vec![0.0; (until.saturating_sub(from) / WINDOW) as usize];
        for one in self.datagrams.iter().filter(|one| one.port == port && one.time >= from) {
            if let Some(window) = windows.get_mut(((one.time - from) / WINDOW) as usize) {
                *window += f64::from(one.bytes);
            }
        }
        windows
    }

    /// The longest time until a question was answered, in ms; infinite if one was not.
    pub fn slowest_answer(&self, asked: &[Asked]) -> f64 {
        let answer = |asked: &Asked| -> [Option<u64>; 2] {
            let ping = self.pings.iter().find(|(number, _)| *number == asked.number).map(|(_, time)| *time);
            let arp = self.arps.iter().find(|time| **time >= asked.arp).copied();
            [ping.map(|time| time.saturating_sub(asked.ping)), arp.map(|time| time - asked.arp)]
        };
        let times = asked.iter().flat_map(answer);
        times.map(|time| time.map_or(f64::INFINITY, |ns| ns as f64 * 1e-6)).fold(0.0, f64::max)
    }
}

/// A ping and an ARP request.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    number: u16,
    ping: u64,
    arp: u64,
}

/// Asks `count` times within `time`, evenly: a ping, and an ARP request.
pub fn ask(bed: &Bed, whose: Whose, count: u16, time: Duration) -> Result<Vec<Asked>, CaseError> {
    let (near, far) = (mac(bed.near(whose))?, bed.far(whose));
    let own = mac(far)?;
    let mut sender = network::End::new(&far.namespace, &far.name, far.index).sender();
    let (began, mut asked) = (Instant::now(), Vec::new());
    for number in 0..count {
        let ping = now();
        sender.send(&frames::ping(own, near, number)).map_err(failed)?;
        let arp = now();
        sender.send(&frames::who_has(own)).map_err(failed)?;
        asked.push(Asked { number, ping, arp });
        let due = time.mul_f64(f64::from(number + 1) / f64::from(count));
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_answers_are_counted_by_time() {
        let at = |time, port| Arrival { time, port, bytes: 100 };
        let datagrams =
            vec![at(5, 1), at(WINDOW + 4, 1), at(WINDOW + 5, 2), at(2 * WINDOW + 4, 1), at(2 * WINDOW + 5, 1)];
        let arrivals = Arrivals { datagrams, pings: vec![(0, 3_000_000)], arps: vec![1_000_000], lost: 0 };
        assert_eq!(arrivals.windows(1, 5, 2 * WINDOW + 5), [200.0, 100.0]);
        assert_eq!(arrivals.bytes(1, 5, 2 * WINDOW + 5), 300);
        let asked = Asked { number: 0, ping: 1_000_000, arp: 500_000 };
        assert_eq!(arrivals.slowest_answer(&[asked]), 2.0);
        assert!(arrivals.slowest_answer(&[asked, Asked { number: 1, ..asked }]).is_infinite());
    }
}
