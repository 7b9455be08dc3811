//! The data streams of a test: one thread each, which writes or reads until it is stopped, and counts.

use super::super::tcp::{Stream, is_timeout};
use super::protocol::{Parameters, Results};
use base::atomic::StopFlag;
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a write or read waits before it checks for the stop.
const LOOK: Duration = Duration::from_millis(200);

pub(super) struct Data<S> {
    counts: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<S>>,
    stop: StopFlag,
    began: Instant,
    processor: [f64; 2],
    /// Bytes and time at the end of the seconds that do not count.
    omitted: Option<(Vec<u64>, Instant)>,
}

impl<S: Stream> Data<S> {
    /// Starts a thread for each stream. `sends`: the threads write.
    pub(super) fn start(streams: Vec<S>, parameters: &Parameters, sends: bool) -> io::Result<Data<S>> {
        let (counts, threads, stop) = (Vec::new(), Vec::new(), StopFlag::new());
        let began = Instant::now();
        let mut data = Data { counts, threads, stop, began, processor: processor(), omitted: None };
        for mut stream in streams {
            stream.set_read_timeout(Some(LOOK))?;
            stream.set_write_timeout(Some(LOOK))?;
            let (count, stop, block) = (Arc::<AtomicU64>::default(), data.stop.clone(), parameters.block);
            let counted = Arc::clone(&count);
            let work = move || {
                move_bytes(&mut stream, block, sends, &counted, &stop);
                stream
            };
            data.threads.push(std::thread::Builder::new().name("stream".into()).spawn(work)?);
            data.counts.push(count);
        }
        Ok(data)
    }

    fn raw(&self) -> Vec<u64> {
        // Relaxed: a count carries no other data.
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    pub(super) fn total(&self) -> u64 {
        self.raw().iter().sum()
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Leaves all bytes up to now out of the results.
    pub(super) fn omit_until_now(&mut self) {
        self.omitted = Some((self.raw(), Instant::now()));
    }

    pub(super) fn has_omitted(&self) -> bool {
        self.omitted.is_some()
    }

    pub(super) fn results(&self) -> Results {
        let mut bytes = self.raw();
        let mut counted = self.began;
        if let Some((before, moment)) = &self.omitted {
            bytes.iter_mut().zip(before).for_each(|(bytes, before)| *bytes -= before);
            counted = *moment;
        }
        let wall = self.began.elapsed().as_secs_f64().max(1e-6);
        let [user, system] = processor();
        let percent = |now: f64, then: f64| (now - then).max(0.0) * 100.0 / wall;
        let (user, system) = (percent(user, self.processor[0]), percent(system, self.processor[1]));
        Results { bytes, seconds: counted.elapsed().as_secs_f64(), processor: [user + system, user, system] }
    }

    /// Whether all streams have ended by themselves, because the other side closed them.
    pub(super) fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Stops the streams, waits for their threads, and returns the streams still open.
    pub(super) fn stop(mut self) -> Vec<S> {
        self.stop.stop();
        std::mem::take(&mut self.threads)
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    }
}

impl<S> Drop for Data<S> {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

fn move_bytes<S: Stream>(stream: &mut S, block: usize, sends: bool, count: &AtomicU64, stop: &StopFlag) {
    let mut bytes = vec![0x55; block];
    while !stop.is_set() {
        let moved = if sends { stream.write(&bytes) } else { stream.read(&mut bytes) };
        match moved {
            Ok(0) => return,
            Ok(len) => drop(count.fetch_add(len as u64, Ordering::Relaxed)),
            Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => {}
            // The control connection tells the cause, or that all is well.
            Err(_) => return,
        }
    }
}

/// Seconds of processor time of this process: in the program, in the system. 0 if the system does not say.
fn processor() -> [f64; 2] {
    let read = || {
        let text = std::fs::read_to_string("/proc/self/stat").ok()?;
        // Fields start behind the name, which may hold any character. User and system time are fields 14 and 15 of proc(5).
        let mut fields = text.rsplit_once(") ")?.1.split(' ').skip(11);
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let mut next = || Some(fields.next()?.parse::<f64>().ok()? / ticks);
        Some([next()?, next()?])
    };
    read().unwrap_or_default()
}
