//! An active handle: a reader of a live ring, and the handle of libpcap's that knows its link type.
//!
//! Tiers: [`next`](Live::next) runs for each packet and takes no system call, no allocation and no lock: copy the packet
//! that was found, verify, find the next and have its bytes fetched while the callback is busy with this one.
//! [`wait`](Live::wait) runs when the ring is empty, everything else when something is set.
//!
//! Nothing is wanted of the device before a filter is set or packets are asked for: a program that opens a device only to
//! look at it costs nobody a copy. But opening asks for the right to, so that setting the filter later needs none.

use crate::abi::{DOCSIS, ETHERNET, PacketHeader, Pcap, status};
use crate::expression::Expression;
use crate::inner::Settings;
use crate::meter::Meter;
use crate::names::Target;
use crate::real::real;
use crate::selectable::Selectable;
use crate::source::Source;
use crate::stop::Stop;
use buffer::live::words::PACKET_BYTES;
use buffer::live::{Packet, SlotFlags};
use capture::CaptureErrorKind;
use capture::line::CloseReason;
use capture::reader::{Found, Rest};
use capture::{CaptureError, CaptureReader};
use driver::af_packet::PacketSocket;
use program::cbpf::Instruction;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::ffi::c_int;
use std::time::{Duration, Instant};

/// Packets may wait so long for company, however much longer a program would let them: a ring must not fill meanwhile.
const LATENCY_MAX: Duration = Duration::from_millis(10);

/// How often a read that does not wait asks whether who captures is still there.
const LOOK_FOR_OWNER: Duration = Duration::from_millis(100);

/// What came of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// There is a packet.
    Found,
    /// It was told to stop.
    Stopped,
    /// Time is up.
    TimeIsUp,
    /// Nothing will come any more, and that is as it should be.
    Ended,
    /// Nothing will come any more.
    Gone,
}

/// Which packets, by where they go. libpcap numbers them so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// PCAP_D_INOUT.
    Both = 0,
    /// PCAP_D_IN.
    In = 1,
    /// PCAP_D_OUT.
    Out = 2,
}

/// What an active handle reads from.
pub struct Live {
    reader: CaptureReader,
    source: Source,
    dead: Dead,
    expression: Expression,
    /// Was it set, by a filter or by asking for packets?
    wanted: bool,
    /// Packets before this one may have been found by an earlier expression: all of their bytes are needed to decide.
    decided_from: u64,
    way: Way,
    snap_bytes: usize,
    precise: bool,
    timeout: Option<Duration>,
    /// Found, its bytes being fetched, and not handed over yet.
    ahead: Option<Packet>,
    buffer: Box<[u8]>,
    sender: Option<PacketSocket>,
    selectable: Option<Selectable>,
    looked_for_owner: Instant,
    /// Was the device seen by this process? The daemon may be in another network namespace.
    was_here: bool,
}

impl Live {
    /// Opens a device, and wants nothing of it yet.
    pub fn open(target: &Target, settings: &Settings, meter: &Meter) -> Result<Live, (c_int, String)> {
        let share = target.share().map_err(of_error)?;
        let (source, mut reader) = Source::open(target, settings, share).map_err(of_error)?;
        let link = source.device(&reader);
        if link.as_ref().is_some_and(|link| !link.is_up()) {
            return Err((status::NOT_UP, String::new()));
        }
        let timeout = u64::try_from(settings.timeout_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis);
        let company = if settings.immediate { Duration::ZERO } else { timeout.unwrap_or(LATENCY_MAX) };
        reader.set_latency(company.min(LATENCY_MAX));
        let data_link = data_link(reader.device().link_type);
        // Nobody sends DOCSIS over a radio link, and a loopback device is no Ethernet: as libpcap has it.
        let docsis =
            data_link == ETHERNET && link.as_ref().is_some_and(|link| link.hardware == 1 && !is_wireless(&link.name));
        let dead = Dead::new(data_link, docsis, settings)?;
        // A program that may send while it opens a device may do so later, too, when it has given up its rights.
        let sender = link.as_ref().and_then(|link| {
            let socket = PacketSocket::new(link.index).ok()?;
            socket.bind_to_send().is_ok().then_some(socket)
        });
        // As libpcap: only where packets for others are wanted, too.
        let counted = link.as_ref().filter(|_| settings.promiscuous).map(|link| link.name.as_str());
        meter.begin(&reader, share, counted, source.losses());
        let snap_bytes = settings.snap_bytes();
        Ok(Live {
            reader,
            source,
            dead,
            expression: Expression { keep: Some(u32::MAX), ..Expression::default() },
            wanted: false,
            decided_from: 0,
            way: Way::Both,
            snap_bytes,
            precise: settings.is_precise(),
            timeout,
            ahead: None,
            buffer: vec![0; PACKET_BYTES].into_boxed_slice(),
            sender,
            selectable: None,
            looked_for_owner: Instant::now(),
            was_here: link.is_some(),
        })
    }

    /// libpcap's handle.
    pub fn dead(&self) -> &Dead {
        &self.dead
    }

    /// The same, to give it another link type.
    pub fn dead_mut(&mut self) -> &mut Dead {
        &mut self.dead
    }

    /// Packets of these ways only, from the next on.
    pub fn set_way(&mut self, way: Way) {
        self.way = way;
    }

    /// Sets a filter. Packets that were found already are decided on by it, too.
    pub fn set_filter(&mut self, program: &[Instruction], meter: &Meter) -> Result<(), String> {
        let expression = Expression::new(program, self.reader.device().index)?;
        self.exchange(expression, meter)
    }

    /// Packets are asked for: without a filter, all are wanted.
    pub fn start(&mut self, meter: &Meter) -> Result<(), String> {
        if self.wanted {
            return Ok(());
        }
        self.exchange(Expression { keep: Some(u32::MAX), ..Expression::default() }, meter)
    }

    fn exchange(&mut self, expression: Expression, meter: &Meter) -> Result<(), String> {
        let (expression, exchange) = match self.source.exchange(self.reader.id(), &expression.pushed) {
            Ok(exchange) => (expression, exchange),
            // Too much for whoever captures: it gives all packets, and they are decided on here.
            Err(error) if error.kind == CaptureErrorKind::Cannot && !expression.pushed.is_empty() => {
                eprintln!("Warning: Kernel filter failed: {}", base::terminal::text(&error.to_string()));
                let expression = expression.all_here();
                let exchange = self.source.exchange(self.reader.id(), &[]).map_err(|error| error.text)?;
                (expression, exchange)
            }
            // What is in the ring is all there is: it is decided on here.
            Err(_) if self.wanted && self.source.has_ended() => {
                self.expression = expression.all_here();
                self.ahead = None;
                return Ok(());
            }
            Err(error) => return Err(error.text),
        };
        meter.exchange(exchange.bit, exchange.first, exchange.matched_before.0);
        self.reader.exchange(exchange, expression.pushed_here.clone());
        self.decided_from = self.decided_from.max(exchange.first);
        // It was found by the expression before.
        self.ahead = None;
        self.expression = expression;
        self.wanted = true;
        self.settle();
        Ok(())
    }

    /// The number behind the last packet there is: who is to hand over what is buffered now stops there.
    pub fn limit(&self) -> u64 {
        self.reader.memory().next()
    }

    /// Hands over the next packet before `limit`: its header is written to `header`, its bytes stay where they are until the
    /// next call. (Into a place and not as a result: a header written by fields and copied whole right afterwards stalls
    /// the processor, for 20 ns where a packet takes 40.)
    #[inline]
    pub fn next(&mut self, limit: u64, meter: &Meter, header: &mut PacketHeader) -> Option<*const u8> {
        loop {
            let packet = match self.ahead.take() {
                Some(packet) => packet,
                None => match self.reader.look() {
                    Found::Packet(packet) => packet,
                    Found::Nothing => return None,
                },
            };
            if packet.number >= limit {
                self.ahead = Some(packet);
                return None;
            }
            let decided = self.expression.rest.is_none() && packet.number >= self.decided_from;
            let room = if decided { self.snap_bytes.min(PACKET_BYTES) } else { PACKET_BYTES };
            let copied = self.reader.take_copy(&packet, &mut self.buffer[..room]);
            if let Found::Packet(next) = self.reader.look() {
                self.reader.prefetch(&next);
                self.ahead = Some(next);
            }
            meter.advance(&self.reader);
            if copied.is_some_and(|copied| self.describe(&packet, copied, header)) {
                return Some(self.buffer.as_ptr());
            }
        }
    }

    /// What is said of a packet whose bytes were copied. Is it wanted after all?
    #[inline]
    fn describe(&mut self, packet: &Packet, copied: usize, header: &mut PacketHeader) -> bool {
        let facts = &packet.facts;
        let outgoing = facts.flags.has(SlotFlags::OUTBOUND);
        match self.way {
            Way::Both => {}
            Way::In if outgoing => return false,
            Way::Out if !outgoing => return false,
            Way::In | Way::Out => {}
        }
        let mut captured = copied.min(self.snap_bytes) as u32;
        if let Some(keep) = self.expression.keep {
            captured = captured.min(keep);
        }
        if let Some(rest) = &self.expression.rest {
            let keep = rest[usize::from(outgoing)].run(&self.buffer[..copied], facts.wire);
            if keep == 0 {
                return false;
            }
            captured = captured.min(keep);
        }
        let time = self.reader.time(packet);
        let (seconds, nanoseconds) = (time / 1_000_000_000, time % 1_000_000_000);
        let part = if self.precise { nanoseconds } else { nanoseconds / 1000 };
        header.time.tv_sec = seconds as libc::time_t;
        header.time.tv_usec = part as libc::suseconds_t;
        header.captured = captured;
        header.wire = facts.wire;
        true
    }

    /// Until when a read that begins now waits.
    pub fn deadline(&self) -> Option<Instant> {
        self.timeout.map(|timeout| Instant::now() + timeout)
    }

    /// Is there a packet, without waiting?
    #[inline]
    fn look(&mut self) -> bool {
        if self.ahead.is_none()
            && let Found::Packet(packet) = self.reader.look()
        {
            self.ahead = Some(packet);
        }
        self.ahead.is_some()
    }

    /// Looks, and does not wait.
    pub fn poll(&mut self) -> Waited {
        self.source.has_read(self.reader.position());
        if self.look() {
            return Waited::Found;
        }
        // Whoever reads so does it often, and asking takes a system call.
        if self.looked_for_owner.elapsed() > LOOK_FOR_OWNER {
            self.looked_for_owner = Instant::now();
            self.reader.announce();
        }
        if self.reader.is_hung_up() { self.why_gone() } else { Waited::TimeIsUp }
    }

    /// Waits for a packet, until `deadline` or for ever.
    pub fn wait(&mut self, deadline: Option<Instant>, stop: &Stop) -> Waited {
        loop {
            if stop.take() {
                return Waited::Stopped;
            }
            self.source.has_read(self.reader.position());
            if self.look() {
                return Waited::Found;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Waited::TimeIsUp;
            }
            match self.reader.rest() {
                Rest::Look => continue,
                Rest::Sleep if self.reader.is_hung_up() => return self.why_gone(),
                Rest::Nap(nap) => {
                    sleep(
                        &mut [PollFd::from_borrowed_fd(stop.bell(), PollFlags::IN)],
                        left.map_or(Some(nap), |left| Some(left.min(nap))),
                    );
                }
                Rest::Sleep => {
                    let line = PollFd::from_borrowed_fd(self.reader.line(), PollFlags::IN);
                    sleep(&mut [PollFd::from_borrowed_fd(stop.bell(), PollFlags::IN), line], left);
                }
            }
            if stop.is_wanted() {
                stop.hush();
            }
        }
    }

    fn why_gone(&self) -> Waited {
        if self.source.has_ended() && self.source.failure().is_none() { Waited::Ended } else { Waited::Gone }
    }

    /// In libpcap's words where it has some.
    pub fn gone_text(&self) -> String {
        if let Some(why) = self.source.failure() {
            return why;
        }
        let is_gone = self.reader.close_reason() == Some(CloseReason::DeviceGone);
        if is_gone || (self.was_here && self.source.device(&self.reader).is_none()) {
            return "The interface disappeared".into();
        }
        // Programs know libpcap's words by how they begin; dumpcap takes everything else for a bug.
        format!("The interface disappeared from here: {}", self.reader.why_gone())
    }

    /// A file descriptor that is readable while there are packets to read.
    pub fn selectable(&mut self) -> std::io::Result<c_int> {
        if self.selectable.is_none() {
            self.selectable = Some(Selectable::new(self.reader.line())?);
            self.settle();
        }
        Ok(self.selectable.as_ref().map_or(-1, Selectable::number))
    }

    /// Makes the file descriptor, if it was asked for, readable or not as it should be.
    pub fn settle(&mut self) {
        if self.selectable.is_none() {
            return;
        }
        // What is not found now will be announced; should it come in between, the announcement is refused.
        let readable = self.look() || !self.reader.announce();
        if let Some(selectable) = &mut self.selectable {
            selectable.set(readable);
        }
    }

    /// Sends a frame.
    pub fn send(&self, frame: &[u8]) -> Result<(), String> {
        let Some(sender) = &self.sender else {
            return Err(format!(
                "send: no packet socket could be opened for {} when it was activated (that takes CAP_NET_RAW, and the \
                 device in this network namespace)",
                self.reader.device().name
            ));
        };
        sender.send(frame).map_err(|error| format!("send: {error}"))
    }
}

/// Sleeps until one of `fds` is readable, a signal comes or time is up: every outcome means the same, look again.
fn sleep(fds: &mut [PollFd<'_>], time: Option<Duration>) {
    let time = time.map(|time| Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    });
    let _ = rustix::event::poll(fds, time.as_ref());
}

/// libpcap's status for an error, and the text.
fn of_error(error: CaptureError) -> (c_int, String) {
    let number = match error.kind {
        CaptureErrorKind::Request | CaptureErrorKind::Absent => status::NO_SUCH_DEVICE,
        CaptureErrorKind::Denied => status::NOT_PERMITTED,
        CaptureErrorKind::Cannot | CaptureErrorKind::System | CaptureErrorKind::Full => status::ERROR,
    };
    (number, error.text)
}

/// Is it a radio's device?
fn is_wireless(name: &str) -> bool {
    std::path::Path::new("/sys/class/net").join(name).join("wireless").exists()
}

/// The DLT_ number, as processes have it, of a LINKTYPE_ number, as files have it: five differ on Linux.
fn data_link(link_type: u16) -> c_int {
    match link_type {
        100 => 11,
        101 => 12,
        102 => 15,
        103 => 16,
        106 => 19,
        other => c_int::from(other),
    }
}

/// A handle of libpcap's that reads nothing: compiles filters, and opens files to write, for our link type.
pub struct Dead {
    handle: *mut Pcap,
    /// Link types it may be given.
    links: Vec<c_int>,
    snaplen: c_int,
    precision: c_int,
}

impl Dead {
    fn new(link: c_int, docsis: bool, settings: &Settings) -> Result<Dead, (c_int, String)> {
        let links = if docsis { vec![link, DOCSIS] } else { vec![link] };
        let snaplen = settings.snap_bytes() as c_int;
        let mut dead = Dead { handle: std::ptr::null_mut(), links, snaplen, precision: settings.precision };
        match dead.open(link) {
            true => Ok(dead),
            false => Err((status::ERROR, "libpcap itself is not there; it compiles filters and writes files".into())),
        }
    }

    fn open(&mut self, link: c_int) -> bool {
        let Some(open) = real().pcap_open_dead_with_tstamp_precision else { return false };
        // SAFETY: numbers only.
        let handle = unsafe { open(link, self.snaplen, self.precision as u32) };
        if handle.is_null() {
            return false;
        }
        self.close();
        self.handle = handle;
        true
    }

    fn close(&mut self) {
        if let (false, Some(close)) = (self.handle.is_null(), real().pcap_close) {
            // SAFETY: it came from libpcap and is used no more.
            unsafe { close(self.handle) };
        }
    }

    /// To be handed to libpcap's functions, not to be kept.
    pub fn handle(&self) -> *mut Pcap {
        self.handle
    }

    /// Link types it may be given.
    pub fn links(&self) -> &[c_int] {
        &self.links
    }

    /// Gives it another link type.
    pub fn set_link(&mut self, link: c_int) -> bool {
        self.links.contains(&link) && self.open(link)
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        self.close();
    }
}
