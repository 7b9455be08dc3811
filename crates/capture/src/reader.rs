//! The reader's half: follows a device's ring for one reader, sleeps while there is nothing, and keeps the books.
//!
//! In: a [`Attachment`]. Out: packets, copied and verified, and a [`Ledger`] that adds up.
//!
//! Sleeping has three depths. While packets come, a reader that found nothing naps: it looks again after a time that keeps
//! its lag small beside the ring, and nobody has to wake it. After a nap in which nothing came it says so on its line and
//! sleeps without end; the next packet it wants wakes it. So neither a busy nor an idle reader costs anybody a signal.

use crate::attachment::{Attachment, Device, Exchange, Past};
use crate::capture_request::Share;
use crate::clock::Offset;
use crate::line::{CloseReason, Line, Word};
use buffer::live::{LiveMemory, LiveReader, Look, Packet, Progress, SlotFlags};
use program::Interpreter;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvFlags, SendFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Shortest nap.
const NAP_MIN: Duration = Duration::from_micros(200);

/// Longest nap, if the reader does not say how long.
const NAP_MAX: Duration = Duration::from_millis(10);

/// The share of a ring (in 256ths) that may fill during a nap.
const NAP_LAG: u32 = 32;

/// A reader of a device's packets.
#[derive(Debug)]
pub struct CaptureReader {
    id: u64,
    device: Device,
    reader: LiveReader,
    /// Where it says how far it is.
    progress: Progress,
    line: OwnedFd,
    offset: Offset,
    share: Option<Share>,
    /// The packets this reader may look at begin here.
    permission: u64,
    past: Past,
    note: String,
    books: Books,
    /// An expression that was exchanged: earlier packets carry the old bit only.
    exchanged: Option<Exchanged>,
    /// Said that it sleeps, and has not been woken since.
    announced: bool,
    nap: Duration,
    nap_max: Duration,
    lag_after_nap: u32,
    napping: bool,
    /// Has anything come since the last sleep?
    found: bool,
    hung_up: bool,
    /// Why, where the owner said so.
    close_reason: Option<CloseReason>,
    /// Packets from this number on are not handed over.
    end: u64,
    /// Its packets are counted and never written.
    counts: bool,
    /// Nor those before the first of these and from the second on: the readers before and after this one have them.
    right_to: std::ops::Range<u64>,
    /// What must live as long as this reader.
    kept: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

#[derive(Debug)]
struct Exchanged {
    first: u64,
    program: Option<Interpreter>,
    /// The packets before `first` are from before this reader came.
    past: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Books {
    /// Of the bit in force.
    bit: u8,
    matched_before: (u64, u64),
    kept_before: u64,
    seen_before: u64,
    /// Matched by bits that are in force no more.
    matched_earlier: u64,
    /// Packets that were handed over, or left out as another share's or for what their slots say.
    taken: u64,
    others: u64,
    /// Packets that the reader before this one had.
    elsewhere: u64,
    /// Looked at anew by a new expression, and refused.
    refiltered: u64,
    /// Handed over from before this reader came.
    past: u64,
}

impl Books {
    /// Packets that have been come to, without what expressions that are in force no more have matched.
    #[inline]
    fn of_bit(&self) -> u64 {
        (self.taken + self.others + self.elsewhere + self.refiltered).wrapping_sub(self.matched_earlier)
    }
}

/// Where a reader's packets went: `seen = matched + filtered`, `matched = delivered + others + lost + waiting +
/// elsewhere`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Packets the device's writer was shown since this reader came: of a packet socket that has a
    /// filter which does not count, those it let in.
    pub seen: u64,
    /// Those its expression wanted.
    pub matched: u64,
    /// Those it did not.
    pub filtered: u64,
    /// Handed over.
    pub delivered: u64,
    /// Left out, for they belong to another share of the flows, or were passed over for what their slots say.
    pub others: u64,
    /// Overwritten before this reader came to them.
    pub lost: u64,
    /// Still in the ring.
    pub waiting: u64,
    /// Of the readers that this one took over from, or that took over from it.
    pub elsewhere: u64,
    /// Handed over besides: from before this reader came.
    pub past: u64,
}

/// What was counted of a reader's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// How many.
    pub packets: u64,
    /// Bytes on the wire.
    pub wire_bytes: u64,
    /// Bytes that would have been kept; 0 where packets are written.
    pub kept_bytes: u64,
}

/// Packets a reader has come to, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Handed over.
    pub delivered: u64,
    /// Left out, for they belong to another share of the flows, or were passed over for what their slots say.
    pub others: u64,
    /// Found by an earlier expression, and refused by the one it was exchanged for.
    pub refused: u64,
}

/// What a reader found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A packet.
    Packet(Packet),
    /// None now.
    Nothing,
}

/// What to do where nothing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Look again at once.
    Look,
    /// Look again after so long: nobody will say that something came.
    Nap(Duration),
    /// Sleep until the line becomes readable.
    Sleep,
}

impl CaptureReader {
    /// Takes an attachment. `program` is that of the capture request, none where all packets pass: it decides on packets of the past.
    pub fn new(
        attachment: Attachment,
        program: Option<Interpreter>,
        share: Option<Share>,
    ) -> io::Result<CaptureReader> {
        let memory = attachment.map()?;
        let looks_back = attachment.decided > attachment.first;
        let bits = if looks_back { u64::MAX } else { 1u64 << (attachment.bit & 63) };
        let progress = Progress::open(attachment.progress.as_fd())?;
        let mut reader = LiveReader::new(memory, bits);
        reader.begin_at(attachment.first);
        let books = Books {
            bit: attachment.bit & 63,
            matched_before: attachment.matched_before,
            kept_before: attachment.kept_before,
            seen_before: attachment.seen_before,
            ..Books::default()
        };
        Ok(CaptureReader {
            id: attachment.id,
            device: attachment.device,
            permission: attachment.first,
            past: attachment.past,
            note: attachment.note,
            reader,
            progress,
            line: attachment.line,
            offset: Offset::now(),
            share,
            books,
            exchanged: looks_back.then_some(Exchanged { first: attachment.decided, program, past: true }),
            announced: false,
            nap: NAP_MIN,
            nap_max: NAP_MAX,
            lag_after_nap: 0,
            napping: false,
            found: true,
            hung_up: false,
            close_reason: None,
            end: u64::MAX,
            counts: false,
            right_to: 0..u64::MAX,
            kept: None,
        })
    }

    /// Number by which the owner knows this reader.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Keeps something, a connection perhaps, for as long as this reader lives.
    pub fn keep(&mut self, kept: Arc<dyn std::any::Any + Send + Sync>) {
        self.kept = Some(kept);
    }

    /// It asked for numbers: no packet is ever found, and all that match count as delivered.
    #[must_use]
    pub fn that_counts(mut self) -> CaptureReader {
        self.counts = true;
        self
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// How far back the ring reached when this reader came.
    pub fn past(&self) -> Past {
        self.past
    }

    /// What its user should know; empty if nothing.
    pub fn note(&self) -> &str {
        &self.note
    }

    /// Packets may be found this much later than they came: the longest nap.
    pub fn set_latency(&mut self, latency: Duration) {
        self.nap_max = latency.clamp(NAP_MIN, Duration::from_secs(1));
        self.nap = self.nap.min(self.nap_max);
    }

    /// The next packet.
    #[inline]
    pub fn look(&mut self) -> Found {
        if self.napping {
            self.woke();
        }
        // What lies before is settled, whatever becomes of this process now.
        self.progress.say(&self.reader, self.books.of_bit());
        loop {
            match self.reader.look() {
                Look::Nothing => return Found::Nothing,
                Look::More => {}
                Look::Packet(packet) if packet.number >= self.end => return Found::Nothing,
                Look::Packet(packet) => {
                    self.found = true;
                    if packet.number < self.right_to.start {
                        self.books.elsewhere += 1;
                        self.reader.advance();
                        continue;
                    }
                    if self.is_of_others(&packet) {
                        self.books.others += 1;
                        self.reader.advance();
                        continue;
                    }
                    return Found::Packet(packet);
                }
            }
        }
    }

    #[inline]
    fn is_of_others(&self, packet: &Packet) -> bool {
        self.share.is_some_and(|share| !share.has(packet.facts.hash))
    }

    /// Takes over from another reader of the same ring: packets before this number are that one's.
    pub fn begin_at(&mut self, number: u64) {
        self.right_to.start = number;
    }

    /// Another reader of the same ring takes over: packets from this number on are that one's.
    pub fn end_before(&mut self, number: u64) {
        self.right_to.end = self.right_to.end.min(number);
        self.end = self.end.min(number);
    }

    /// Copies a packet's bytes into `to`, as many as fit, and goes on behind it. `None` where there is nothing to hand over:
    /// it was overwritten meanwhile, or an expression that was exchanged does not want it.
    #[inline]
    pub fn take_copy(&mut self, packet: &Packet, to: &mut [u8]) -> Option<usize> {
        let len = self.reader.copy_out(packet, to)?;
        self.reader.advance();
        if self.exchanged.is_some() {
            return self.decide(packet, &to[..len]).then_some(len);
        }
        self.books.taken += 1;
        Some(len)
    }

    /// Goes on behind the packet that was found, which is not wanted for what its slot says. False, and nothing done, where
    /// it takes the packet's bytes to tell whether it is this reader's at all.
    #[inline]
    pub fn pass_over(&mut self) -> bool {
        if self.exchanged.is_some() {
            return false;
        }
        self.books.others += 1;
        self.reader.advance();
        true
    }

    /// Asks the processor to fetch the packet's first bytes.
    #[inline]
    pub fn prefetch(&self, packet: &Packet) {
        self.reader.prefetch(packet);
    }

    /// Decides on a packet while the ring still has some that the expression in force has not decided on.
    #[cold]
    fn decide(&mut self, packet: &Packet, bytes: &[u8]) -> bool {
        let bit = 1u64 << self.books.bit;
        let Some(exchanged) = &self.exchanged else { return true };
        let earlier = packet.number < exchanged.first;
        let mut pass = packet.facts.wanted & bit != 0;
        if earlier && !pass {
            pass = exchanged.program.as_ref().is_none_or(|program| program.run(bytes, packet.facts.wire) != 0);
            if exchanged.past {
                self.books.past += u64::from(pass);
                return pass;
            }
        }
        let past = exchanged.past;
        if !earlier {
            // All there is of earlier ones is through.
            self.reader.set_bits(bit);
            self.exchanged = None;
        }
        match pass {
            true => self.books.taken += 1,
            // Matched by the earlier expression, or by somebody else's.
            false if !past => self.books.refiltered += 1,
            false => {}
        }
        pass
    }

    /// Goes on with another expression, as its owner gave it: packets that were found by the old one and are still in the
    /// ring are looked at by `program`, the new one, which is none where all pass.
    pub fn exchange(&mut self, exchange: Exchange, program: Option<Interpreter>) {
        self.books.matched_earlier += self.matched();
        (self.books.bit, self.books.matched_before) = (exchange.bit & 63, exchange.matched_before);
        self.reader.set_bits(self.reader.bits() | 1 << self.books.bit);
        self.exchanged = Some(Exchanged { first: exchange.first, program, past: false });
    }

    /// When a packet was seen, ns since 1970 UTC.
    #[inline]
    pub fn time(&mut self, packet: &Packet) -> u64 {
        if packet.facts.flags.has(SlotFlags::MONOTONIC) {
            self.offset.real(packet.facts.time)
        } else {
            packet.facts.time
        }
    }

    /// The ring, for who keeps books of its own, from a signal handler perhaps.
    pub fn memory(&self) -> &LiveMemory {
        self.reader.memory()
    }

    /// Number of the packet looked at next.
    #[inline]
    pub fn position(&self) -> u64 {
        self.reader.position()
    }

    /// Packets passed over because the writer was faster, whoever wanted them: what this reader lost is among them.
    #[inline]
    pub fn overtaken(&self) -> u64 {
        self.reader.overtaken()
    }

    /// Packets this reader has come to.
    #[inline]
    pub fn settled(&self) -> Settled {
        let Books { taken, others, refiltered, .. } = self.books;
        Settled { delivered: taken, others, refused: refiltered }
    }

    /// Packets the bit in force was set on since it is this reader's.
    fn matched(&self) -> u64 {
        let count = self.reader.memory().matched(usize::from(self.books.bit));
        count.packets.wrapping_sub(self.books.matched_before.0)
    }

    /// The same with bytes, for who only counts.
    pub fn counted(&self) -> Counted {
        let bit = usize::from(self.books.bit);
        let count = self.reader.memory().matched(bit);
        let (packets, bytes) = self.books.matched_before;
        Counted {
            packets: count.packets.wrapping_sub(packets),
            wire_bytes: count.wire_bytes.wrapping_sub(bytes),
            kept_bytes: self.reader.memory().kept_bytes(bit).wrapping_sub(self.books.kept_before),
        }
    }

    /// Where the packets went. Exact while none comes; else as of some moment during the call. Takes time for each packet
    /// that waits; changes nothing.
    pub fn ledger(&self) -> Ledger {
        let books = &self.books;
        let mut ledger = Ledger::default();
        // Twice at most: a count taken while packets come is as good as any.
        for _ in 0..2 {
            let before = self.matched();
            let seen = self.reader.memory().seen().packets.wrapping_sub(books.seen_before);
            let mut ahead = self.reader.clone();
            let (mut waiting, mut others, mut elsewhere) = (0, books.others, books.elsewhere);
            while let Some(packet) = next(&mut ahead) {
                ahead.advance();
                if self.is_past(&packet) {
                    continue;
                }
                if !self.right_to.contains(&packet.number) {
                    elsewhere += 1;
                } else if self.is_of_others(&packet) {
                    others += 1;
                } else {
                    waiting += 1;
                }
            }
            let matched = before + books.matched_earlier;
            let delivered = if self.counts { matched } else { books.taken };
            let accounted = delivered + books.refiltered + others + waiting + elsewhere;
            ledger = Ledger {
                seen: seen.max(matched),
                matched,
                filtered: seen.saturating_sub(matched),
                delivered,
                others: others + books.refiltered,
                // A packet is counted a moment before it can be read: what is under way is missing, and was not lost.
                lost: matched.saturating_sub(accounted).min(ahead.overtaken()),
                waiting,
                elsewhere,
                past: books.past,
            };
            if self.matched() == before {
                break;
            }
        }
        ledger
    }

    /// Is it only there because this reader looks back, or because others want it?
    fn is_past(&self, packet: &Packet) -> bool {
        self.exchanged.as_ref().is_some_and(|exchanged| exchanged.past)
            && packet.facts.wanted & 1 << self.books.bit == 0
    }

    /// Packets written before this reader's right began are none of its business; the first that is.
    pub fn permission(&self) -> u64 {
        self.permission
    }

    /// From now on only what is in the ring already is handed over.
    pub fn stop(&mut self) {
        self.end = self.end.min(self.reader.memory().next());
    }

    /// Has it come to where it was [stopped](Self::stop)?
    pub fn has_ended(&mut self) -> bool {
        self.end < u64::MAX && (self.look() == Found::Nothing && self.reader.position() >= self.end)
    }

    /// Its owner is gone, or has let it go: what is in the ring can still be read, and nothing comes.
    pub fn is_hung_up(&self) -> bool {
        self.hung_up
    }

    /// Why the owner let it go, where it said so; an owner that died did not.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.close_reason
    }

    /// The same for people, once it [is hung up](Self::is_hung_up).
    pub fn why_gone(&self) -> String {
        match self.close_reason {
            Some(CloseReason::DeviceGone) => "the device has gone".into(),
            Some(CloseReason::Stopped(user)) => format!("stopped by `streamline stop` (user {user})"),
            // Who captures in its own process cannot outlive it.
            None => "the daemon has ended".into(),
        }
    }

    /// To be polled for reading, after [`announce`](Self::announce) said that there is nothing now.
    pub fn line(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }

    /// Says that this reader sleeps until its [`line`](Self::line) becomes readable. False where there is something
    /// already.
    pub fn announce(&mut self) -> bool {
        self.hear();
        if self.look() != Found::Nothing {
            return false;
        }
        if !self.announced && !self.hung_up {
            let word = Line::Asleep(self.reader.position()).to_bytes();
            match rustix::net::send(&self.line, &word, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) => self.announced = true,
                // The owner has not read the words before: then it will wake us for those.
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(_) => {
                    self.hung_up = true;
                    // Its last word may be there all the same.
                    self.hear();
                }
            }
        }
        true
    }

    /// Reads the owner's words on the line.
    fn hear(&mut self) {
        let mut words = [0; 64];
        loop {
            match rustix::net::recv(&self.line, &mut words, RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    self.hung_up = true;
                    return;
                }
                Ok((len, _)) => {
                    self.announced = false;
                    if let Word::CloseReason(close_reason) = Word::from_bytes(&words[..len]) {
                        self.close_reason = Some(close_reason);
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                // It closed without having read what this reader said last. The kernel says so once, before what lies there.
                Err(rustix::io::Errno::CONNRESET) if !self.hung_up => self.hung_up = true,
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => {
                    self.hung_up = true;
                    return;
                }
            }
        }
    }

    /// Has it been said that this reader sleeps, so that its [`line`](Self::line) will become readable?
    pub fn announced(&self) -> bool {
        self.announced
    }

    /// Nothing was found: what to do until the next look.
    pub fn rest(&mut self) -> Rest {
        if !self.found {
            return if self.announce() { Rest::Sleep } else { Rest::Look };
        }
        if self.announced {
            // It was woken, perhaps by who only saw the line become readable: that was for what was found.
            self.hear();
        }
        self.found = false;
        let lag = self.reader.lag();
        if lag > NAP_LAG {
            self.nap = (self.nap / 2).max(NAP_MIN);
            return Rest::Look;
        }
        // While naps leave the ring nearly empty, the next may be longer.
        if lag == 0 && self.lag_after_nap < NAP_LAG / 2 {
            self.nap = (self.nap * 2).min(self.nap_max);
        }
        self.napping = true;
        Rest::Nap(self.nap)
    }

    /// Sleeps until there may be a packet, at most until `deadline`; a signal ends it early.
    pub fn wait(&mut self, deadline: Option<Instant>) {
        let left = |most: Option<Duration>| {
            let left = deadline.map(|until| until.saturating_duration_since(Instant::now()));
            most.into_iter().chain(left).min()
        };
        match self.rest() {
            Rest::Look => {}
            Rest::Nap(nap) => {
                self.poll(left(Some(nap)));
            }
            // Nothing comes any more, and nobody would say so.
            Rest::Sleep if self.hung_up => std::thread::sleep(left(Some(self.nap_max)).unwrap_or(NAP_MIN)),
            Rest::Sleep => {
                self.poll(left(None));
                self.hear();
            }
        }
    }

    /// A nap is over: how full the ring became meanwhile decides on the next one.
    fn woke(&mut self) {
        self.napping = false;
        self.lag_after_nap = self.reader.lag();
        if self.lag_after_nap > NAP_LAG {
            self.nap = (self.nap / 2).max(NAP_MIN);
        }
    }

    fn poll(&self, timeout: Option<Duration>) {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let mut fds = [PollFd::new(&self.line, PollFlags::IN)];
        // Every outcome means the same: look again.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
    }
}

fn next(reader: &mut LiveReader) -> Option<Packet> {
    loop {
        match reader.look() {
            Look::Packet(packet) => return Some(packet),
            Look::More => {}
            Look::Nothing => return None,
        }
    }
}
