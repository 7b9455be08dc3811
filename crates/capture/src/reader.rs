//! The reader's half: follows a device's ring for one reader, sleeps while it is empty, and keeps the books.
//!
//! It takes an [`Attachment`], and gives copied and verified packets and a [`Ledger`] that adds up.
//!
//! | since its last rest the reader found | it then |
//! |---|---|
//! | packets, and more than `NAP_LAG` of the ring is waiting | looks again at once |
//! | packets, and less is waiting | naps for a time that keeps its lag small; no process has to wake it |
//! | no packets | says on its line that it sleeps, and sleeps until the next packet it wants wakes it |
//!
//! Neither a busy nor an idle reader costs a signal. A reader must not sleep unannounced: no packet would wake it.

use crate::attachment::{Attachment, Device, Exchange, Past};
use crate::capture_request::Partition;
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

const NAP_MIN: Duration = Duration::from_micros(200);

const NAP_MAX: Duration = Duration::from_millis(10);

/// The fraction of a ring (in 256ths) that may fill during a nap.
const NAP_LAG: u32 = 32;

/// A reader of a device's packets.
#[derive(Debug)]
pub struct CaptureReader {
    id: u64,
    device: Device,
    reader: LiveReader,
    /// The page on which it publishes how far it is.
    progress: Progress,
    line: OwnedFd,
    offset: Offset,
    partition: Option<Partition>,
    /// First packet that this reader may look at.
    permission: u64,
    past: Past,
    note: String,
    books: Books,
    /// Set after an exchange of its expression: earlier packets have only the old bit.
    exchanged: Option<Exchanged>,
    /// It has said that it sleeps, and has not been woken since.
    announced: bool,
    nap: Duration,
    nap_max: Duration,
    lag_after_nap: u32,
    napping: bool,
    found: bool,
    hung_up: bool,
    /// The owner's reason; `None` if it gave none.
    close_reason: Option<CloseReason>,
    /// Packets from this number on are not handed over.
    end: u64,
    /// Its packets are counted and never written.
    counts: bool,
    /// Packets outside this range belong to the readers before and after this one.
    right_to: std::ops::Range<u64>,
    /// Something that must live as long as this reader.
    kept: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

#[derive(Debug)]
struct Exchanged {
    first: u64,
    program: Option<Interpreter>,
    /// Packets before `first` are from before this reader came.
    past: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Books {
    /// The bit in force. The three fields after it are that bit's counts at the beginning.
    bit: u8,
    matched_before: (u64, u64),
    kept_before: u64,
    seen_before: u64,
    /// Packets matched by bits that are no longer in force.
    matched_earlier: u64,
    /// Packets handed over; then those left out because of another partition or of their slots.
    taken: u64,
    others: u64,
    /// Packets of the reader before this one.
    elsewhere: u64,
    /// Packets of an earlier expression that the new one refused.
    refiltered: u64,
    /// Packets handed over from before this reader came.
    past: u64,
}

impl Books {
    /// Packets reached so far, minus those matched by expressions that are no longer in force.
    #[inline]
    fn of_bit(&self) -> u64 {
        (self.taken + self.others + self.elsewhere + self.refiltered).wrapping_sub(self.matched_earlier)
    }
}

/// What became of a reader's packets. `seen = matched + filtered`, and `matched = delivered + others + lost + waiting +
/// elsewhere`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Packets that the device's writer saw since this reader came. If a packet socket filters and cannot count, only
    /// the packets that it let in.
    pub seen: u64,
    /// Packets that the reader's expression wanted.
    pub matched: u64,
    /// Packets that it did not want.
    pub filtered: u64,
    /// Packets handed over.
    pub delivered: u64,
    /// Packets left out because they belong to another partition of the flows, or because of their slots.
    pub others: u64,
    /// Packets overwritten before this reader got to them.
    pub lost: u64,
    /// Packets still in the ring.
    pub waiting: u64,
    /// Packets of the readers from which this one took over, or which took over from it.
    pub elsewhere: u64,
    /// Additional packets handed over, from before this reader came.
    pub past: u64,
}

/// Counts of a reader's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Number of packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub wire_bytes: u64,
    /// Bytes that would have been kept; 0 for a reader whose packets are written.
    pub kept_bytes: u64,
}

/// Packets that a reader has reached, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Packets handed over.
    pub delivered: u64,
    /// Packets left out because they belong to another partition of the flows, or because of their slots.
    pub others: u64,
    /// Packets found by an earlier expression and refused by the one that replaced it.
    pub refused: u64,
}

/// Result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A packet.
    Packet(Packet),
    /// No packet now.
    Nothing,
}

/// What to do when no packet was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Look again at once.
    Look,
    /// Look again after this time: no signal will come.
    Nap(Duration),
    /// Sleep until the line becomes readable.
    Sleep,
}

impl CaptureReader {
    /// Makes a reader of an attachment. `program` is the capture request's, `None` if all packets pass; it decides on
    /// packets of the past.
    pub fn new(
        attachment: Attachment,
        program: Option<Interpreter>,
        partition: Option<Partition>,
    ) -> io::Result<CaptureReader> {
        let memory = attachment.map()?;
        let Attachment { granted, fds } = attachment;
        let looks_back = granted.decided > granted.first;
        let bits = if looks_back { u64::MAX } else { 1u64 << (granted.bit & 63) };
        let progress = Progress::open(fds.progress.as_fd())?;
        let mut reader = LiveReader::new(memory, bits);
        reader.begin_at(granted.first);
        let books = Books {
            bit: granted.bit & 63,
            matched_before: granted.matched_before,
            kept_before: granted.kept_before,
            seen_before: granted.seen_before,
            ..Books::default()
        };
        Ok(CaptureReader {
            id: granted.id,
            device: granted.device,
            permission: granted.first,
            past: granted.past,
            note: granted.note,
            reader,
            progress,
            line: fds.line,
            offset: Offset::now(),
            partition,
            books,
            exchanged: looks_back.then_some(Exchanged { first: granted.decided, program, past: true }),
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

    /// The owner's number for this reader.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Keeps a value, for example a connection, for as long as this reader lives.
    pub fn keep(&mut self, kept: Arc<dyn std::any::Any + Send + Sync>) {
        self.kept = Some(kept);
    }

    /// Makes it a reader that only counts: it finds no packet, and all matching packets count as delivered.
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

    /// A note for the reader's user; empty if there is none.
    pub fn note(&self) -> &str {
        &self.note
    }

    /// Sets the longest nap: packets may be found this much later than they came.
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
        // Packets before this one are settled, whatever happens to this process now.
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
        self.partition.is_some_and(|partition| !partition.has(packet.facts.hash))
    }

    /// Takes over from another reader of the same ring, which has the packets before `number`.
    pub fn begin_at(&mut self, number: u64) {
        self.right_to.start = number;
    }

    /// Another reader of the same ring takes over, and gets the packets from `number` on.
    pub fn end_before(&mut self, number: u64) {
        self.right_to.end = self.right_to.end.min(number);
        self.end = self.end.min(number);
    }

    /// Copies a packet's bytes into `to`, as many as fit, and steps past the packet. `None` if there is nothing to hand
    /// over: it was overwritten meanwhile, or an exchanged expression does not want it.
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

    /// Steps past the found packet because its slot shows that it is not wanted. `false`: nothing was done, because
    /// only the packet's bytes tell whether it is this reader's.
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

    /// Decides on a packet while the ring may still have some on which the present expression has not decided.
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
            // There are no more earlier packets.
            self.reader.set_bits(bit);
            self.exchanged = None;
        }
        match pass {
            true => self.books.taken += 1,
            // The earlier expression matched it, or another reader's.
            false if !past => self.books.refiltered += 1,
            false => {}
        }
        pass
    }

    /// Goes on with another expression, as the owner granted it. `program`, the new one (`None`: all pass), decides on
    /// packets that the old one found and that are still in the ring.
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

    /// The ring, for a caller that keeps its own books, perhaps in a signal handler.
    pub fn memory(&self) -> &LiveMemory {
        self.reader.memory()
    }

    /// Number of the next packet to look at.
    #[inline]
    pub fn position(&self) -> u64 {
        self.reader.position()
    }

    /// Packets passed over because the writer was faster, of any expression: this reader's losses are among them.
    #[inline]
    pub fn overtaken(&self) -> u64 {
        self.reader.overtaken()
    }

    /// Packets that this reader has reached.
    #[inline]
    pub fn settled(&self) -> Settled {
        let Books { taken, others, refiltered, .. } = self.books;
        Settled { delivered: taken, others, refused: refiltered }
    }

    /// Packets with the bit in force since it is this reader's.
    fn matched(&self) -> u64 {
        let count = self.reader.memory().matched(usize::from(self.books.bit));
        count.packets.wrapping_sub(self.books.matched_before.0)
    }

    /// The same with bytes, for a reader that only counts.
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

    /// The books by now. Exact while no packets come, otherwise as of some moment during the call. Takes time for
    /// each waiting packet; changes nothing.
    pub fn ledger(&self) -> Ledger {
        let books = &self.books;
        let mut ledger = Ledger::default();
        // At most twice: a count taken while packets come is as good as any.
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
                // A packet is counted a moment before it can be read: until then it is missing here, but not lost.
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

    /// Whether the packet is seen only because this reader looks back, or because another reader wants it.
    fn is_past(&self, packet: &Packet) -> bool {
        self.exchanged.as_ref().is_some_and(|exchanged| exchanged.past)
            && packet.facts.wanted & 1 << self.books.bit == 0
    }

    /// The first packet to which this reader has a right.
    pub fn permission(&self) -> u64 {
        self.permission
    }

    /// Hands over only packets that are in the ring by now.
    pub fn stop(&mut self) {
        self.end = self.end.min(self.reader.memory().next());
    }

    /// Whether it has reached the place where it was [stopped](Self::stop).
    pub fn has_ended(&mut self) -> bool {
        self.end < u64::MAX && (self.look() == Found::Nothing && self.reader.position() >= self.end)
    }

    /// The owner is gone, or has dropped this reader: packets in the ring can still be read, and no more come.
    pub fn is_hung_up(&self) -> bool {
        self.hung_up
    }

    /// Why the owner dropped it; `None` if it did not say, as an owner that died.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.close_reason
    }

    /// The reason in words, once it [is hung up](Self::is_hung_up).
    pub fn why_gone(&self) -> String {
        match self.close_reason {
            Some(CloseReason::DeviceGone) => "the device has gone".into(),
            Some(CloseReason::Stopped(user)) => format!("stopped by `streamline stop` (user {user})"),
            // A capture in the reader's own process cannot end before the reader.
            None => "the daemon has ended".into(),
        }
    }

    /// For polling, after [`announce`](Self::announce) said that there is no packet now.
    pub fn line(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }

    /// Tells the owner that this reader sleeps until its [`line`](Self::line) becomes readable. `false`: there is a
    /// packet already.
    pub fn announce(&mut self) -> bool {
        self.hear();
        if self.look() != Found::Nothing {
            return false;
        }
        if !self.announced && !self.hung_up {
            let word = Line::Asleep(self.reader.position()).to_bytes();
            match rustix::net::send(&self.line, &word, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) => self.announced = true,
                // The owner has not read earlier messages: it will wake this reader for those.
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(_) => {
                    self.hung_up = true;
                    // The owner's last message may be there all the same.
                    self.hear();
                }
            }
        }
        true
    }

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
                // The owner closed its end with unread messages. The kernel reports that once, before waiting messages.
                Err(rustix::io::Errno::CONNRESET) if !self.hung_up => self.hung_up = true,
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => {
                    self.hung_up = true;
                    return;
                }
            }
        }
    }

    /// Whether the owner knows that this reader sleeps, so that its [`line`](Self::line) will become readable.
    pub fn announced(&self) -> bool {
        self.announced
    }

    /// Chooses what to do until the next look, after no packet was found.
    pub fn rest(&mut self) -> Rest {
        if !self.found {
            return if self.announce() { Rest::Sleep } else { Rest::Look };
        }
        if self.announced {
            // It was woken, perhaps by a poll of the line outside this function: the wake-up was for the packets found.
            self.hear();
        }
        self.found = false;
        let lag = self.reader.lag();
        if lag > NAP_LAG {
            self.nap = (self.nap / 2).max(NAP_MIN);
            return Rest::Look;
        }
        // While naps leave the ring nearly empty, the next one may be longer.
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
            // No more packets come, and no signal would say so.
            Rest::Sleep if self.hung_up => std::thread::sleep(left(Some(self.nap_max)).unwrap_or(NAP_MIN)),
            Rest::Sleep => {
                self.poll(left(None));
                self.hear();
            }
        }
    }

    /// Ends a nap: how full the ring became meanwhile decides on the next one.
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
