//! Captures that are read once and then given any number of times: `pcap ... memory=yes`, `generate file=...`.
//!
//! The frames are copied into memory of this process, one after the other, and mapped. From then on giving a frame is
//! writing a descriptor: no file, page fault or copy disturbs a measurement.

use super::Pcap;
use crate::parts::pace::{Cost, Pacer};
use crate::parts::system::reason;
use base::limits::PULL_BLOCKS;
use buffer::{Interface, MappedFile, SegmentId};
use capture::clock;
use filter::Progress;
use filter::param::Value;
use filter::prelude::*;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

/// After this many bytes read, check again whether enough memory is left.
const LOOK_BYTES: u64 = 64 << 20;

/// A source of frames in memory.
pub(crate) struct Replay {
    /// `Some` until all frames are in memory.
    reading: Option<Reading>,
    frames: Vec<Descriptor>,
    /// Total bytes of all frames.
    bytes: u64,
    segment: Option<SegmentId>,
    /// Why some input could not be read; reported after the frames that could.
    failure: Option<Box<Failure>>,
    at: usize,
    /// Rounds given so far, and rounds to give (0 = no end).
    round: u64,
    rounds: u64,
    /// Added to the frames' own times, ns.
    later: u64,
    /// Length of one round, ns.
    round_ns: u64,
    live: Option<Live>,
}

/// State of a source that stands for a device.
struct Live {
    pacer: Pacer,
    clock: clock::Offset,
    limits: Limits,
}

/// Limits at which a source ends by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Number of frames still to be given.
    pub(crate) left: u64,
    /// How long to give frames, ns; `None` = no limit.
    duration: Option<u64>,
    /// The end of `duration` on the monotonic clock. `None` until the first call of [`by`](Limits::by).
    until: Option<u64>,
}

impl Limits {
    /// Reads the parameters `count` and `duration`.
    pub(crate) fn of_params(params: &Params) -> Limits {
        let left = params.number("count").filter(|count| *count > 0).unwrap_or(u64::MAX);
        Limits { left, duration: params.number("duration").filter(|ns| *ns > 0), until: None }
    }

    /// Frames due by the returned time may be given: `now`, or the last ns before the end. Also returns whether the end
    /// is reached. `now` is of the monotonic clock.
    pub(crate) fn by(&mut self, now: u64) -> (u64, bool) {
        let until = self.until.or(self.duration.map(|ns| now.saturating_add(ns)));
        self.until = until;
        match until {
            Some(until) if now >= until => (until - 1, true),
            _ => (now, false),
        }
    }
}

impl Replay {
    /// Gives what `pcap` reads `rounds` times (0 = no end). Frame times continue from round to round.
    pub(super) fn new(pcap: Pcap, rounds: u64) -> Result<Replay, ParamError> {
        if let (Some(bytes), Some(available)) = (pcap.bytes_all, base::memory::available())
            && bytes > available
        {
            return Err(
                ParamError::system(short_of(bytes, available)).with_help("without memory=yes a file stays where it is")
            );
        }
        let reading = Reading::new(pcap).map_err(|error| ParamError::system(no_memory(&error)))?;
        Ok(Replay {
            reading: Some(reading),
            frames: Vec::new(),
            bytes: 0,
            segment: None,
            failure: None,
            at: 0,
            round: 0,
            rounds,
            later: 0,
            round_ns: 0,
            live: None,
        })
    }

    /// Gives the frames at a pace, by default that of the capture. Frames get the time at which they are given.
    pub(crate) fn paced(params: &Params, wait: filter::Wait) -> Result<Replay, ParamError> {
        let mut files = Params::new();
        let name = params.text("file").unwrap_or_default();
        files.set("file", Value::List(vec![name.to_string()]));
        files.set("map", Value::Flag(true));
        let pacer = Pacer::of_params(params, wait)?;
        let pacer = pacer.unwrap_or_else(|| Pacer::new(Cost::Gap, base::limits::SECOND_NS, 1, wait));
        let live = Live { pacer, clock: clock::Offset::now(), limits: Limits::of_params(params) };
        let replay = Replay::new(Pcap::new(&files)?, params.number("loop").unwrap_or(1))?;
        Ok(Replay { live: Some(live), ..replay })
    }

    /// Reads on. Once everything is in memory, prepares the descriptors.
    fn read(&mut self, mut reading: Reading, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        self.failure = match reading.read(cx)? {
            Ok(Pull::End) => None,
            Err(failure) => Some(failure),
            Ok(pulled) => {
                self.reading = Some(reading);
                return Ok(pulled);
            }
        };
        self.bytes = reading.len;
        (self.segment, self.frames) = reading.finish(cx)?;
        let times = || self.frames.iter().map(|frame| frame.time);
        let span = times().max().unwrap_or(0) - times().min().unwrap_or(0);
        // The gap between two rounds is the average gap between frames.
        self.round_ns = span + span / (self.frames.len() as u64).saturating_sub(1).max(1);
        Ok(Pull::Ready)
    }

    /// The cost of a frame for the pacer.
    fn cost(&self, cost: Cost, at: usize) -> u64 {
        let frame = &self.frames[at];
        match cost {
            Cost::Frame => 1,
            Cost::Bits => u64::from(frame.len) * 8,
            Cost::Gap => match self.frames.get(at + 1) {
                Some(next) => next.time.saturating_sub(frame.time),
                None => self.round_ns / self.frames.len() as u64,
            },
        }
    }

    /// After the last frame: begins the next round. False: all rounds were given.
    fn begins_again(&mut self) -> bool {
        self.round += 1;
        self.later = self.later.saturating_add(self.round_ns);
        self.at = 0;
        self.round != self.rounds
    }

    /// Gives as many frames as one pull may, with their own times.
    fn give_all(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        while cx.out.len() < PULL_BLOCKS {
            let frames = &self.frames[self.at..];
            let frames = &frames[..frames.len().min(PULL_BLOCKS - cx.out.len())];
            let later = |frame: &Descriptor| Descriptor { time: frame.time.saturating_add(self.later), ..*frame };
            cx.out.extend(frames.iter().map(later));
            self.at += frames.len();
            if self.at == self.frames.len() && !self.begins_again() {
                return self.end();
            }
        }
        Ok(Pull::Ready)
    }

    fn end(&mut self) -> Result<Pull, Box<Failure>> {
        self.failure.take().map_or(Ok(Pull::End), Err)
    }
}

impl Source for Replay {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        if let Some(reading) = self.reading.take() {
            return self.read(reading, cx);
        }
        if self.frames.is_empty() {
            return self.end();
        }
        let Some(mut live) = self.live.take() else { return self.give_all(cx) };
        let now = clock::monotonic();
        let (time, cost) = (live.clock.real(now), live.pacer.cost());
        let (by, is_late) = live.limits.by(now);
        live.pacer.at(by);
        let mut over = false;
        while !over && cx.out.len() < PULL_BLOCKS && live.pacer.is_due() {
            live.pacer.spend(self.cost(cost, self.at));
            cx.out.push(Descriptor { time, ..self.frames[self.at] });
            live.limits.left -= 1;
            self.at += 1;
            over = live.limits.left == 0 || self.at == self.frames.len() && !self.begins_again();
        }
        let rest = live.pacer.rest(now);
        self.live = Some(live);
        match cx.out.is_empty() {
            _ if over => self.end(),
            true if is_late => self.end(),
            true => Ok(rest),
            false => Ok(Pull::Ready),
        }
    }

    fn progress(&self) -> Option<Progress> {
        if let Some(reading) = &self.reading {
            return reading.pcap.progress();
        }
        let all = self.bytes.checked_mul(self.rounds).filter(|all| *all > 0)?;
        let fraction = self.at as f64 / self.frames.len().max(1) as f64;
        Some(Progress { done: self.round * self.bytes + (self.bytes as f64 * fraction) as u64, all: Some(all) })
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        if let Some(segment) = self.segment.take() {
            cx.rings.retire(segment);
        }
        if let Some(reading) = &mut self.reading {
            reading.pcap.finish(cx);
        }
        if let Some(note) = self.live.as_ref().and_then(|live| live.pacer.note("generate")) {
            cx.notice(note);
        }
    }
}

/// Frames being copied into memory.
struct Reading {
    pcap: Pcap,
    memory: BufWriter<File>,
    len: u64,
    /// Number of bytes at which to check again for free memory.
    look_at: u64,
    frames: Vec<Descriptor>,
    /// The interfaces found, and the interface number for each view of the input.
    interfaces: Vec<Arc<Interface>>,
    known: BTreeMap<(u16, u16), u16>,
}

impl Reading {
    fn new(pcap: Pcap) -> io::Result<Reading> {
        let memory = rustix::fs::memfd_create("streamline-replay", rustix::fs::MemfdFlags::CLOEXEC)?;
        Ok(Reading {
            pcap,
            memory: BufWriter::with_capacity(1 << 20, File::from(memory)),
            len: 0,
            look_at: LOOK_BYTES,
            frames: Vec::new(),
            interfaces: Vec::new(),
            known: BTreeMap::new(),
        })
    }

    /// Takes the frames of one pull and returns its outcome. Error: out of memory.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<Result<Pull, Box<Failure>>, Box<Failure>> {
        let pulled = self.pcap.pull(cx);
        let mut read = std::mem::take(cx.out);
        let kept = read.iter().try_for_each(|frame| self.keep(frame, cx));
        read.clear();
        *cx.out = read;
        kept.map_err(|error| failure(no_memory(&error)))?;
        if self.len >= self.look_at {
            self.look_at = self.len + LOOK_BYTES;
            if let Some(available) = base::memory::available().filter(|available| *available < LOOK_BYTES) {
                return Err(failure(short_of(self.len + LOOK_BYTES, self.len + available)));
            }
        }
        Ok(pulled)
    }

    fn keep(&mut self, frame: &Descriptor, cx: &Context<'_>) -> io::Result<()> {
        let view = (frame.ring.0, frame.generation.0);
        let number = match self.known.get(&view) {
            Some(number) => *number,
            None => {
                let interface = cx.rings.interface(frame).cloned().unwrap_or_default();
                let known = self.interfaces.iter().position(|known| *known == interface);
                let number = known.unwrap_or_else(|| {
                    self.interfaces.push(interface);
                    self.interfaces.len() - 1
                });
                // There are no more interfaces than views, and view numbers are `u16`.
                *self.known.entry(view).or_insert(number as u16)
            }
        };
        self.memory.write_all(cx.rings.bytes(frame))?;
        self.frames.push(Descriptor { pos: self.len, ring: base::id::RingId(number), ..*frame });
        self.len += u64::from(frame.len);
        Ok(())
    }

    /// Returns the segment with all frames, and their descriptors.
    fn finish(self, cx: &mut Context<'_>) -> Result<(Option<SegmentId>, Vec<Descriptor>), Box<Failure>> {
        let Reading { memory, mut frames, interfaces, .. } = self;
        let mapped = memory.into_inner().map_err(io::IntoInnerError::into_error).and_then(MappedFile::new);
        let mapped = mapped.map_err(|error| failure(no_memory(&error)))?;
        mapped.populate(0, mapped.len());
        mapped.lock();
        let segment = cx.rings.add_file(mapped);
        let views = interfaces.into_iter().map(|interface| cx.rings.add_view(segment, Arc::unwrap_or_clone(interface)));
        let views: Option<Vec<_>> = views.collect();
        let views = views.ok_or_else(|| failure("there are more interfaces than views".into()))?;
        for frame in &mut frames {
            let view = views[usize::from(frame.ring.0)];
            (frame.ring, frame.generation) = (view.ring, view.generation);
        }
        Ok((Some(segment), frames))
    }
}

fn failure(text: String) -> Box<Failure> {
    Box::new(Failure::System(text))
}

fn no_memory(error: &io::Error) -> String {
    format!("the frames cannot be kept in memory: {}", reason(error))
}

fn short_of(bytes: u64, available: u64) -> String {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    format!("the frames take {} MiB or more, and {} MiB of memory are free", mib(bytes), mib(available))
}
