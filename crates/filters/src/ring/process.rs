//! Filters in a process of their own, as seen by the request that started it. A sink writes the ring that the process
//! reads; a source reads the ring that the process writes. Writers of both rings wait, so no block is lost.
//!
//! The source detects that the process has ended, reports how, and may start another. It passes the next ring to the
//! sink through a `Link`. The source checks the blocks of the process like those of any other writer.

use super::link::Link;
use super::sink;
use super::{content_of, continuity_of};
use crate::parser::reading::{Found, Reading};
use buffer::keeper::client::{AskedReader, Named, NamedWriter};
use buffer::keeper::message::WantedWriter;
use buffer::pipe::{End, PipeReader};
use buffer::ring::{From, OnFull};
use filter::Moment;
use filter::Progress;
use filter::prelude::*;
use filter::ring_header::HEADER_BYTES;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the process may continue after the request was told to stop.
const GRACE: Duration = Duration::from_secs(2);

/// The source sleeps at most this long before it checks again whether the process is alive.
const NAP: Duration = Duration::from_millis(50);

/// If this many processes die within [`STORM`], the request ends.
const DEATHS: usize = 5;

/// See [`DEATHS`].
const STORM: Duration = Duration::from_secs(10);

/// What a process reported when it ended normally.
#[derive(Debug, Default)]
pub struct Said {
    /// Lines for the user.
    pub notes: Vec<String>,
    /// Counters of its filters, by name.
    pub counts: Vec<(String, u64)>,
}

/// A process that reads one ring and writes another.
pub trait Process: Send {
    /// Waits a short time for the process to end, then kills it. `Ok`: it ended normally.
    fn end(&mut self) -> Result<Said, String>;

    /// Whether it is alive.
    fn lives(&mut self) -> bool;

    /// Kills it.
    fn kill(&mut self);

    /// Starts another process in its place, with new rings.
    fn again(&mut self) -> Result<Rings, String>;
}

/// The rings of a process. The process reads `into` and writes `from`.
#[derive(Debug)]
pub struct Rings {
    into: NamedWriter,
    from: AskedReader,
    named: Named,
}

impl Rings {
    /// Opens rings that the process has opened already. `into` carries blocks of one type and `from` of another.
    pub fn open(
        into: &Named,
        input: Type,
        from: Named,
        output: Type,
        latency: Option<Duration>,
    ) -> std::io::Result<Rings> {
        let asked = from.ask_to_read(OnFull::Wait, From::Next, Some(content_of(output)))?;
        let wanted = WantedWriter { content: Some(content_of(input)), header_bytes: HEADER_BYTES as u32 };
        let writer = into.open_writer_of(wanted, sink::signalling(u64::MAX, latency))?;
        Ok(Rings { into: writer, from: asked, named: from })
    }
}

/// Makes the sink and the source of a process. `what` names its filters in messages.
pub fn ends(
    rings: Rings,
    (input, output): (Type, Type),
    what: &str,
    process: Box<dyn Process>,
    latency: Option<Duration>,
    restarts: bool,
) -> (Instance, Instance) {
    let Rings { into, from, named } = rings;
    let link = Arc::new(Link::new(restarts));
    let what = format!("the process of `{what}`");
    let source = FromProcess {
        process,
        link: Arc::clone(&link),
        output,
        what: what.clone(),
        latency,
        phase: Phase::Asking(from, named),
        stopped: None,
        deaths: Vec::new(),
    };
    (sink::of_process(into, input, what, link), Instance::source(source))
}

/// The source.
struct FromProcess {
    process: Box<dyn Process>,
    link: Arc<Link>,
    output: Type,
    what: String,
    latency: Option<Duration>,
    phase: Phase,
    /// When the request was told to stop. `None`: not yet.
    stopped: Option<Instant>,
    /// Recent deaths of processes.
    deaths: Vec<Instant>,
}

enum Phase {
    /// The process has not begun to write.
    Asking(AskedReader, Named),
    Reading(Box<Reading>),
    Over,
}

impl FromProcess {
    fn failed<T>(&self, why: impl std::fmt::Display) -> Result<T, Box<Failure>> {
        Err(Box::new(Failure::System(format!("{} {why}", self.what))))
    }

    /// Kills the process if it is still alive [`GRACE`] after the request was told to stop.
    fn look_at_stop(&mut self, cx: &mut Context<'_>) {
        if self.stopped.is_some_and(|since| since.elapsed() > GRACE) && self.process.lives() {
            self.process.kill();
            cx.notice(format!(
                "{} did not end within {} s: it was killed, and what it had is lost",
                self.what,
                GRACE.as_secs()
            ));
        }
    }

    /// The ring has ended: starts another process, or tells the sink that there is none.
    #[cold]
    fn ended(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        let ended = self.end_or_restart(cx);
        if !matches!(ended, Ok(Pull::Ready)) {
            self.link.set(|state| state.is_over = true);
        }
        ended
    }

    fn end_or_restart(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        if let Phase::Reading(mut reading) = phase {
            // Open streams and messages end here: the next process does not know them.
            reading.finish(cx);
        }
        let mut how = match self.process.end() {
            Ok(said) => {
                said.notes.into_iter().for_each(|line| cx.notice(line));
                // Leak the names of counters, which must be static. This happens once for a request.
                said.counts.into_iter().for_each(|(name, count)| cx.count(name.leak(), count));
                return Ok(Pull::End);
            }
            Err(how) => how,
        };
        if self.stopped.is_some_and(|since| since.elapsed() > GRACE) {
            return Ok(Pull::End);
        }
        if !self.link.restarts() {
            return self.failed(how);
        }
        loop {
            cx.count("processes that died", 1);
            self.deaths.retain(|death| death.elapsed() < STORM);
            self.deaths.push(Instant::now());
            if self.deaths.len() > DEATHS {
                let times = self.deaths.len();
                return self.failed(format!("{how}; that makes {times} within {} s", STORM.as_secs()));
            }
            if self.stopped.is_some() || self.link.state().is_finished {
                cx.notice(format!("{} {how}, at the end of the input", self.what));
                return Ok(Pull::End);
            }
            cx.notice(format!("{} {how}; another one goes on", self.what));
            match self.process.again() {
                Ok(Rings { into, from, named }) => {
                    self.phase = Phase::Asking(from, named);
                    // If the sink is finished, dropping the writer ends the ring, and so the process.
                    self.link.set(|state| state.next = Some(into).filter(|_| !state.is_finished));
                    return Ok(Pull::Ready);
                }
                Err(why) => how = format!("cannot be started: {why}"),
            }
        }
    }
}

impl Source for FromProcess {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        self.look_at_stop(cx);
        let nap = if self.stopped.is_some() { NAP } else { Duration::MAX };
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Over => Ok(Pull::End),
            Phase::Asking(asked, named) => match asked.answer(Some(Instant::now())) {
                Ok(Ok(reader)) => {
                    let ring = PipeReader::new(named, reader);
                    let reading = Reading::new(ring, continuity_of(self.output), self.what.clone(), self.latency);
                    self.phase = Phase::Reading(Box::new(reading));
                    Ok(Pull::Ready)
                }
                Ok(Err(asked)) if self.process.lives() => {
                    self.phase = Phase::Asking(asked, named);
                    Ok(Pull::Idle(NAP))
                }
                Ok(Err(_)) | Err(_) => self.ended(cx),
            },
            Phase::Reading(mut reading) => {
                let found = reading.pull(cx).inspect_err(|_| self.link.set(|state| state.is_over = true));
                self.phase = Phase::Reading(reading);
                match found? {
                    Found::Blocks => Ok(Pull::Ready),
                    Found::Nothing(wait) => Ok(Pull::Idle(wait.min(nap))),
                    Found::End(None | Some(End::Closed | End::Unkept | End::WriterDied | End::Removed)) => {
                        self.ended(cx)
                    }
                }
            }
        }
    }

    fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        match &mut self.phase {
            Phase::Asking(asked, _) => Some(asked.answer_fd()),
            Phase::Reading(reading) => reading.bell(),
            Phase::Over => None,
        }
    }

    fn follows(&self) -> Option<Moment> {
        match &self.phase {
            Phase::Reading(reading) => reading.moment(),
            Phase::Asking(..) | Phase::Over => None,
        }
    }

    /// No progress of its own: the source of the request has counted these bytes already.
    fn progress(&self) -> Option<Progress> {
        Some(Progress::NOTHING)
    }

    /// The process passes on its remaining blocks when its own input ends.
    fn stop(&mut self) -> bool {
        self.stopped.get_or_insert_with(Instant::now);
        true
    }

    fn account(&mut self, cx: &mut Context<'_>) {
        if let Phase::Reading(reading) = &mut self.phase {
            reading.book(cx);
        }
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        self.link.set(|state| state.is_over = true);
        if let Phase::Reading(mut reading) = std::mem::replace(&mut self.phase, Phase::Over) {
            reading.finish(cx);
            // The request wants no more blocks from the process.
            self.process.kill();
        }
    }
}

impl Drop for FromProcess {
    fn drop(&mut self) {
        self.link.set(|state| state.is_over = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::tests::Side;
    use crate::ring::link::GONE;
    use base::atomic::{AtomicBool, Ordering};
    use buffer::keeper::server::{Keeper, RingOptions};
    use buffer::ring::memory::Geometry;
    use buffer::ring::{RingKind, Signalling};
    use std::os::fd::AsFd;

    /// A process that never ends by itself.
    struct Endless(Arc<AtomicBool>);

    impl Process for Endless {
        fn end(&mut self) -> Result<Said, String> {
            self.kill();
            Err("was killed".into())
        }

        fn lives(&mut self) -> bool {
            !self.0.load(Ordering::Relaxed)
        }

        fn kill(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }

        fn again(&mut self) -> Result<Rings, String> {
            Err("there is one only".into())
        }
    }

    /// The rings of a process, called `into` and `from`.
    struct Kept {
        named: [Named; 2],
        _folder: tempfile::TempDir,
        _asks: Vec<std::io::PipeWriter>,
    }

    impl Kept {
        fn new() -> Kept {
            let folder = tempfile::tempdir().unwrap();
            let mut asks = Vec::new();
            let named = ["into", "from"].map(|name| {
                let path = folder.path().join(name);
                let options = RingOptions::new(Geometry::new(RingKind::D, 4096, 16));
                let mut keeper = Keeper::create(&path, options).unwrap();
                let (asked, ask) = std::io::pipe().unwrap();
                asks.push(ask);
                std::thread::spawn(move || keeper.run_until(asked.as_fd()).unwrap());
                Named::at(path.to_str().unwrap()).unwrap()
            });
            Kept { named, _folder: folder, _asks: asks }
        }

        fn rings(&self) -> Rings {
            Rings::open(&self.named[0], Type::Bytes, self.named[1].clone(), Type::Bytes, None).unwrap()
        }
    }

    /// Writes `blocks`, whose bytes take the place of a header, into the ring of a process.
    /// Returns the failure that the source reports, and whether it killed the process.
    fn heard(blocks: &[&[u8]]) -> (String, bool) {
        let kept = Kept::new();
        let rings = kept.rings();
        let killed = Arc::new(AtomicBool::new(false));
        let process = Box::new(Endless(Arc::clone(&killed)));
        let (_sink, source) = ends(rings, (Type::Bytes, Type::Bytes), "x", process, None, false);
        let Instance::Source(mut source) = source else { panic!("a source") };
        let wanted = WantedWriter { content: Some(content_of(Type::Bytes)), header_bytes: HEADER_BYTES as u32 };
        let mut writer = kept.named[1].open_writer_of(wanted, Signalling::default()).unwrap();
        assert!(writer.wait_for_reader(Some(Instant::now() + Duration::from_secs(20))).unwrap());
        for block in blocks {
            writer.writer().try_write(Descriptor::default(), block).unwrap();
        }
        writer.writer().flush();
        let mut here = Side::new();
        let began = Instant::now();
        let failure = loop {
            assert!(began.elapsed() < Duration::from_secs(20), "it says nothing");
            match source.pull(&mut here.context()) {
                Err(failure) => break failure,
                Ok(Pull::End) => panic!("it ends"),
                Ok(_) => {}
            }
        };
        source.finish(&mut here.context());
        let Failure::System(text) = *failure else { panic!("not a fault of the request") };
        (text, killed.load(Ordering::Relaxed))
    }

    #[test]
    fn what_makes_no_sense_ends_the_process() {
        let mut header = [0; HEADER_BYTES];
        // The first stream of its number, with an unknown address family.
        (header[8], header[12], header[16]) = (1, 1, 7);
        let too_short = &header[..HEADER_BYTES - 1];
        for blocks in [&[&header[..]][..], &[too_short], &[&[]]] {
            let expected = "the process of `x`: its answer is malformed".to_string();
            assert_eq!(heard(blocks), (expected, true), "{blocks:?}");
        }
    }

    #[test]
    fn blocks_of_the_last_process_of_all_are_either_taken_or_lost() {
        let kept = Kept::new();
        let rings = kept.rings();
        let asked = kept.named[0].ask_to_read(OnFull::Wait, From::Next, Some(content_of(Type::Bytes))).unwrap();
        let process = Box::new(Endless(Arc::default()));
        let (sink, source) = ends(rings, (Type::Bytes, Type::Bytes), "x", process, None, true);
        let (Instance::Filter(mut sink), Instance::Source(source)) = (sink, source) else {
            panic!("a filter, a source")
        };
        let Ok(Ok(reader)) = asked.answer(Some(Instant::now() + Duration::from_secs(20))) else { panic!("no reader") };
        let mut here = Side::new();
        let cx = here.context();
        let mut blocks = [(); 3].map(|()| cx.rings.append_copy(cx.own, &[b"abc"]).unwrap());
        let made = sink.run(&mut Batch::new(&mut blocks), &mut here.context());
        assert_eq!(made, Ok(Status::Done));
        let counters = here.context().counters;
        (counters.blocks_in, counters.blocks_taken) = (3, 3);
        // The process dies and has read none of them. With the source gone, no other process follows.
        drop((reader, source));
        sink.finish(&mut here.context()).unwrap();
        let counters = here.context().counters.clone();
        assert_eq!(counters.drops.iter().collect::<Vec<_>>(), [(GONE, 3)]);
        assert!(counters.adds_up(), "{counters:?}");
    }
}
