//! The streams of data of a test: a thread for each, which writes or reads until it is told to stop, and counts.

use super::super::tcp::{Stream, is_timeout};
use super::protocol::{Parameters, Results};
use base::atomic::StopFlag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a write or read waits before it looks whether to stop.
const LOOK: Duration = Duration::from_millis(200);

/// Streams that run.
pub(super) struct Data<S> {
    counts: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<S>>,
    stop: StopFlag,
    began: Instant,
    processor: [f64; 2],
    /// Bytes and moment at the end of the seconds that do not count.
    omitted: Option<(Vec<u64>, Instant)>,
}

impl<S: Stream> Data<S> {
    /// Starts a thread for each stream; `sends`: they write.
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

    /// What each stream has moved so far.
    fn raw(&self) -> Vec<u64> {
        // Relaxed: a count carries no other data.
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// What all have moved.
    pub(super) fn total(&self) -> u64 {
        self.raw().iter().sum()
    }

    /// How long they run.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// What was moved before this moment does not count.
    pub(super) fn omit_until_now(&mut self) {
        self.omitted = Some((self.raw(), Instant::now()));
    }

    /// Was [`Data::omit_until_now`] called?
    pub(super) fn has_omitted(&self) -> bool {
        self.omitted.is_some()
    }

    /// What counts of it, up to now.
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

    /// Has each stream ended by itself: did the other side close them all?
    pub(super) fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Tells the streams to end, waits until they have, and gives them back open.
    pub(super) fn stop(mut self) -> Vec<S> {
        self.stop.stop();
        std::mem::take(&mut self.threads).into_iter().filter_map(|thread| thread.join().ok()).collect()
    }
}

impl<S> Drop for Data<S> {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

/// Moves bytes until the end of the stream, or until it is told to stop.
fn move_bytes<S: Stream>(stream: &mut S, block: usize, sends: bool, count: &AtomicU64, stop: &StopFlag) {
    let mut bytes = vec![0x55; block];
    while !stop.is_set() {
        let moved = if sends { stream.write(&bytes) } else { stream.read(&mut bytes) };
        match moved {
            Ok(0) => return,
            Ok(len) => drop(count.fetch_add(len as u64, Ordering::Relaxed)),
            Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => {}
            // The other side tells on the control connection what is wrong, or that all is well.
            Err(_) => return,
        }
    }
}

/// Seconds that this process has spent on processors: in the program, in the system. 0 where the system does not say.
fn processor() -> [f64; 2] {
    let read = || {
        let text = std::fs::read_to_string("/proc/self/stat").ok()?;
        // Behind the name, which may hold anything; proc(5) has user and system time as fields 14 and 15.
        let mut fields = text.rsplit_once(") ")?.1.split(' ').skip(11);
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let mut next = || Some(fields.next()?.parse::<f64>().ok()? / ticks);
        Some([next()?, next()?])
    };
    read().unwrap_or_default()
}
