//! Packets of a shared device capture as a source: what `ethernet` and similar filters have in common.

use super::landing::{self, Known, Landing};
use super::select::refused;
use base::limits::PULL_BLOCKS;
use buffer::ViewId;
use buffer::live::{Packet, SlotFlags};
use capture::reader::{Found, Rest};
use capture::{CaptureReader, Ledger, Past};
use filter::device::snap_len;
use filter::prelude::*;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// While packets come, the ring's counters are read at most this often.
const LOOK_AT_BOOKS: Duration = Duration::from_millis(500);

/// One pull looks at this many packets at most, wanted or not, before other filters get their turn.
const LOOKS: usize = 16 * PULL_BLOCKS;

/// At the end of a run, how long to wait for a packet that has a number but is not written completely.
const LAST_PACKET: Duration = Duration::from_millis(20);

/// A source of packets from a capture. With `decides`, only the packets it passes.
pub fn source(reader: CaptureReader, params: &Params, decides: Option<Box<dyn Decides>>) -> Instance {
    let live = Live::new(reader, snap_len(params), params.number("last").unwrap_or(0));
    Instance::source(live.deciding(decides))
}

pub struct Live {
    reader: CaptureReader,
    landing: Landing,
    booked: Ledger,
    looked: Instant,
    /// Notices to give on the first pull.
    notices: Vec<String>,
    /// When the run was told to stop. From then on only packets that are already in the ring are given.
    stopped: Option<Instant>,
    /// Selectors that choose the packets and their class. `None`: all packets.
    decides: Option<Box<dyn Decides>>,
    /// Packets that `decides` refused and that are not counted yet.
    unwanted: u64,
}

impl Live {
    /// At most `snap_len` bytes of each packet; 0 = whole. `last_ns`: how far back in time the reader asked to begin.
    pub fn new(reader: CaptureReader, snap_len: u32, last_ns: u64) -> Live {
        let landing = Landing::new(&reader.device().name, reader.device().link_type, snap_len);
        let notices = missing(&reader.device().name, reader.past(), last_ns).into_iter().chain(note(&reader)).collect();
        Live {
            reader,
            landing,
            booked: Ledger::default(),
            looked: Instant::now(),
            notices,
            stopped: None,
            decides: None,
            unwanted: 0,
        }
    }

    /// Adds selectors: only packets that they pass are given, with the class they set.
    #[must_use]
    pub fn deciding(mut self, decides: Option<Box<dyn Decides>>) -> Live {
        self.decides = decides;
        self
    }

    /// Gives one packet. False: it was overwritten, or not wanted.
    #[inline]
    fn give(&mut self, view: ViewId, cx: &mut Context<'_>, packet: &Packet) -> bool {
        let facts = packet.facts;
        // Decide by the ports noted in the slot where possible, before the packet is copied.
        let known = match &self.decides {
            None => Some(Some(Class(0))),
            Some(decides) if facts.flags.has(SlotFlags::PORTS) => decides.by_ports(facts.class),
            Some(_) => None,
        };
        if known == Some(None) && self.reader.pass_over() {
            return false;
        }
        let (is_known, mut class) = (known.is_some(), known.flatten());
        let known = Known { time: self.reader.time(packet), len: facts.len, wire: facts.wire, flags: facts.flags };
        let (reader, decides, link_type) = (&mut self.reader, &self.decides, self.landing.link_type());
        let (mut taken, mut unreadable) = (false, None);
        let given = self.landing.give(view, cx, known, |space| {
            let len = reader.take_copy(packet, space)?;
            taken = true;
            if let Some(decides) = decides.as_deref().filter(|_| !is_known) {
                class = decides.read(link_type, &space[..len], facts.wire, Class(0)).unwrap_or_else(|why| {
                    unreadable = Some(why);
                    None
                });
            }
            Some((len, class?))
        });
        self.unwanted += u64::from(taken && class.is_none());
        if let Some(why) = unreadable {
            refused(cx.counters, why);
        }
        given
    }

    /// Adds what the ring has counted to this filter's counters.
    fn book(&mut self, cx: &mut Context<'_>) {
        self.looked = Instant::now();
        let ledger = self.reader.ledger();
        let more = |now: u64, before: u64| now.saturating_sub(before);
        let lost = more(ledger.lost, self.booked.lost);
        let (delivered, others) =
            (more(ledger.delivered, self.booked.delivered), more(ledger.others, self.booked.others));
        let past = more(ledger.past, self.booked.past);
        let unwanted = std::mem::take(&mut self.unwanted);
        cx.counters.blocks_in += delivered + others + lost + past;
        cx.counters.blocks_taken += delivered + past - unwanted;
        cx.counters.blocks_rejected += others + unwanted;
        if lost > 0 {
            cx.counters.drops.add("overwritten before they were read", lost);
        }
        cx.count("seen on the device", more(ledger.seen, self.booked.seen));
        if past > 0 {
            cx.count("seen before it began", past);
        }
        self.booked = Ledger { waiting: 0, ..ledger };
    }
}

/// A notice if less than the wanted `wanted_ns` of the past is available.
fn missing(device: &str, past: Past, wanted_ns: u64) -> Option<String> {
    if wanted_ns == 0 {
        return None;
    }
    let seconds = |ns: u64| format!("{:.1} s", ns as f64 / 1e9);
    let reaches = match past.reaches_ns < wanted_ns {
        true => format!("the ring reaches back {} of {}", seconds(past.reaches_ns), seconds(wanted_ns)),
        false => format!("the ring reaches back {}", seconds(wanted_ns)),
    };
    match (past.whole, past.reaches_ns < wanted_ns) {
        (true, false) => None,
        (true, true) => Some(format!("{device}: {reaches}; nothing from before was kept")),
        (false, _) => {
            Some(format!("{device}: {reaches}, and holds what others wanted of that (`keep=64M` holds everything)"))
        }
    }
}

/// A note about the device for its readers, if there is one.
pub fn note(reader: &CaptureReader) -> Option<String> {
    Some(reader.note().to_string()).filter(|note| !note.is_empty())
}

/// The failure that a source reports when its capture has ended.
pub fn has_ended(reader: &CaptureReader) -> Box<Failure> {
    let text = format!("the capture of `{}` has ended: {}", reader.device().name, reader.why_gone());
    Box::new(Failure::System(text))
}

impl Source for Live {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        self.notices.drain(..).for_each(|notice| cx.notice(notice));
        let view = self.landing.view(cx)?;
        let (mut given, mut looks) = (0, 0);
        while given < PULL_BLOCKS && looks < LOOKS {
            let Found::Packet(packet) = self.reader.look() else { break };
            looks += 1;
            given += usize::from(self.give(view, cx, &packet));
        }
        if given > 0 || looks == LOOKS {
            if self.looked.elapsed() > LOOK_AT_BOOKS {
                self.book(cx);
            }
            return Ok(Pull::Ready);
        }
        if self.looked.elapsed() > LOOK_AT_BOOKS {
            self.book(cx);
        }
        if let Some(stopped) = self.stopped {
            let is_all = self.reader.has_ended() || stopped.elapsed() > LAST_PACKET;
            return Ok(if is_all { Pull::End } else { Pull::Idle(LAST_PACKET / 20) });
        }
        if self.reader.is_hung_up() {
            return Err(has_ended(&self.reader));
        }
        Ok(match self.reader.rest() {
            Rest::Look => Pull::Ready,
            Rest::Nap(nap) => Pull::Idle(nap),
            Rest::Sleep => Pull::Idle(Duration::MAX),
        })
    }

    fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        self.reader.announced().then(|| self.reader.line())
    }

    fn clock(&self) -> Option<u64> {
        Some(landing::clock())
    }

    fn stop(&mut self) -> bool {
        self.reader.stop();
        self.stopped = Some(Instant::now());
        true
    }

    fn position(&self) -> Option<u64> {
        Some(self.reader.position())
    }

    fn begin_at(&mut self, number: u64) {
        self.reader.begin_at(number);
    }

    fn end_before(&mut self, number: u64) -> bool {
        self.reader.end_before(number);
        self.stopped = Some(Instant::now());
        true
    }

    fn account(&mut self, cx: &mut Context<'_>) {
        self.book(cx);
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        self.landing.leave(cx);
        self.book(cx);
        let waiting = self.reader.ledger().waiting;
        if waiting > 0 {
            cx.count("not read before the end", waiting);
        }
    }
}
