//! An active handle: a reader of a live ring, and a handle of libpcap's with the same link type.
//!
//! Tiers: [`next`](Live::next) runs for each packet, without system call, allocation or lock. It copies the packet
//! found before, verifies the copy, finds the next packet and prefetches its bytes while the callback works.
//! [`wait`](Live::wait) runs when the ring is empty. Everything else runs when a setting changes.
//!
//! A handle wants no packets before its program sets a filter or reads: a program that only looks at a device costs no
//! copies. The rights are checked at opening, so that setting the filter later needs none.

use crate::abi::{DOCSIS, ETHERNET, PacketHeader, Pcap, status};
use crate::expression::Expression;
use crate::meter::Meter;
use crate::names::Target;
use crate::real::real;
use crate::selectable::Selectable;
use crate::settings::Settings;
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

/// The longest time that packets wait to be delivered together, even if the program permits more: the ring must not fill.
const LATENCY_MAX: Duration = Duration::from_millis(10);

/// How often a non-blocking read checks whether the capturing process is alive.
const LOOK_FOR_OWNER: Duration = Duration::from_millis(100);

/// The result of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// There is a packet.
    Found,
    /// The program stopped the loop.
    Stopped,
    /// Time is up.
    TimeIsUp,
    /// All packets have come, as the request ended normally.
    Ended,
    /// No more packets will come, because of a failure.
    Gone,
}

/// The direction of wanted packets, numbered as in libpcap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// PCAP_D_INOUT.
    Both = 0,
    /// PCAP_D_IN.
    In = 1,
    /// PCAP_D_OUT.
    Out = 2,
}

/// The source of an active handle's packets.
pub struct Live {
    reader: CaptureReader,
    source: Source,
    dead: Dead,
    expression: Expression,
    /// Whether the program has set a filter or read packets.
    wanted: bool,
    /// An earlier expression may have selected packets before this one: the filter needs all of their bytes.
    decided_from: u64,
    way: Way,
    snap_bytes: usize,
    precise: bool,
    timeout: Option<Duration>,
    /// A packet that was found and prefetched, and not handed over yet.
    ahead: Option<Packet>,
    buffer: Box<[u8]>,
    sender: Option<PacketSocket>,
    selectable: Option<Selectable>,
    looked_for_owner: Instant,
    /// Whether this process saw the device. The daemon may be in another network namespace.
    was_here: bool,
}

impl Live {
    /// Opens a device, and wants no packets yet.
    pub fn open(target: &Target, settings: &Settings, meter: &Meter) -> Result<Live, (c_int, String)> {
        let partition = target.partition().map_err(of_error)?;
        let (source, mut reader) = Source::open(target, settings, partition).map_err(of_error)?;
        let link = source.device(&reader);
        if link.as_ref().is_some_and(|link| !link.is_up()) {
            return Err((status::NOT_UP, String::new()));
        }
        let timeout = u64::try_from(settings.timeout_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis);
        let company = if settings.immediate { Duration::ZERO } else { timeout.unwrap_or(LATENCY_MAX) };
        reader.set_latency(company.min(LATENCY_MAX));
        let data_link = data_link(reader.device().link_type);
        // As in libpcap: no DOCSIS over radio links, and a loopback device is no Ethernet.
        let docsis =
            data_link == ETHERNET && link.as_ref().is_some_and(|link| link.hardware == 1 && !is_wireless(&link.name));
        let dead = Dead::new(data_link, docsis, settings)?;
        // Open the sender now: the program may give up its rights before it sends.
        let sender = link.as_ref().and_then(|link| {
            let socket = PacketSocket::new(link.index).ok()?;
            socket.bind_to_send().is_ok().then_some(socket)
        });
        // As in libpcap: only in promiscuous mode.
        let counted = link.as_ref().filter(|_| settings.promiscuous).map(|link| link.name.as_str());
        meter.begin(&reader, partition, counted, source.losses());
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

    /// libpcap's handle, to set another link type.
    pub fn dead_mut(&mut self) -> &mut Dead {
        &mut self.dead
    }

    /// Only packets of this direction, from the next one on.
    pub fn set_way(&mut self, way: Way) {
        self.way = way;
    }

    /// Sets a filter, also for packets that were already found.
    pub fn set_filter(&mut self, program: &[Instruction], meter: &Meter) -> Result<(), String> {
        let expression = Expression::new(program, self.reader.device().index)?;
        self.exchange(expression, meter)
    }

    /// Starts reading: if there is no filter, all packets are wanted.
    pub fn start(&mut self, meter: &Meter) -> Result<(), String> {
        if self.wanted {
            return Ok(());
        }
        self.exchange(Expression { keep: Some(u32::MAX), ..Expression::default() }, meter)
    }

    fn exchange(&mut self, expression: Expression, meter: &Meter) -> Result<(), String> {
        let (expression, exchange) = match self.source.exchange(self.reader.id(), &expression.pushed) {
            Ok(exchange) => (expression, exchange),
            // The expression exceeds what the capturing process can do. It gives all packets, and the filter runs here.
            Err(error) if error.kind == CaptureErrorKind::Cannot && !expression.pushed.is_empty() => {
                eprintln!("Warning: Kernel filter failed: {}", base::terminal::text(&error.to_string()));
                let expression = expression.all_here();
                let exchange = self.source.exchange(self.reader.id(), &[]).map_err(|error| error.text)?;
                (expression, exchange)
            }
            // No more packets come than the ring has. The filter runs here.
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
        // The previous expression found it.
        self.ahead = None;
        self.expression = expression;
        self.wanted = true;
        self.settle();
        Ok(())
    }

    /// The number after the last present packet. A call for the packets buffered now stops there.
    pub fn limit(&self) -> u64 {
        self.reader.memory().next()
    }

    /// Hands over the next packet before `limit`. Writes its header to `header`; its bytes stay in place until the next
    /// call. (The header is not a return value: writing it by fields and copying it as a whole right afterwards stalls
    /// the processor for 20 ns, where a packet takes 40.)
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

    /// Fills in the header of a packet whose bytes were copied. Returns whether the handle wants the packet.
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

    /// The time until which a read that begins now waits.
    pub fn deadline(&self) -> Option<Instant> {
        self.timeout.map(|timeout| Instant::now() + timeout)
    }

    /// Whether there is a packet. Does not wait.
    #[inline]
    fn look(&mut self) -> bool {
        if self.ahead.is_none()
            && let Found::Packet(packet) = self.reader.look()
        {
            self.ahead = Some(packet);
        }
        self.ahead.is_some()
    }

    /// Looks for a packet, without waiting.
    pub fn poll(&mut self) -> Waited {
        self.source.has_read(self.reader.position());
        if self.look() {
            return Waited::Found;
        }
        // Checks the owner only now and then: a polling program calls this often, and the check is a system call.
        if self.looked_for_owner.elapsed() > LOOK_FOR_OWNER {
            self.looked_for_owner = Instant::now();
            self.reader.announce();
        }
        if self.reader.is_hung_up() { self.why_gone() } else { Waited::TimeIsUp }
    }

    /// Waits for a packet until `deadline`; `None`: without limit.
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

    /// The error text, in libpcap's words if it has some.
    pub fn gone_text(&self) -> String {
        if let Some(why) = self.source.failure() {
            return why;
        }
        let is_gone = self.reader.close_reason() == Some(CloseReason::DeviceGone);
        if is_gone || (self.was_here && self.source.device(&self.reader).is_none()) {
            return "The interface disappeared".into();
        }
        // Programs recognise libpcap's text by its beginning. dumpcap takes any other text for a bug.
        format!("The interface disappeared from here: {}", self.reader.why_gone())
    }

    /// A descriptor that is readable while there are packets.
    pub fn selectable(&mut self) -> std::io::Result<c_int> {
        if self.selectable.is_none() {
            self.selectable = Some(Selectable::new(self.reader.line())?);
            self.settle();
        }
        Ok(self.selectable.as_ref().map_or(-1, Selectable::number))
    }

    /// Makes the descriptor, if there is one, readable or not, as the ring requires.
    pub fn settle(&mut self) {
        if self.selectable.is_none() {
            return;
        }
        // If no packet is found now, the writer will wake this reader. If one comes in between, `announce` refuses.
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

fn sleep(fds: &mut [PollFd<'_>], time: Option<Duration>) {
    let time = time.map(|time| Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    });
    let _ = rustix::event::poll(fds, time.as_ref());
}

/// libpcap's status and the text for an error.
fn of_error(error: CaptureError) -> (c_int, String) {
    let number = match error.kind {
        CaptureErrorKind::Request | CaptureErrorKind::Absent => status::NO_SUCH_DEVICE,
        CaptureErrorKind::Denied => status::NOT_PERMITTED,
        CaptureErrorKind::Cannot | CaptureErrorKind::System | CaptureErrorKind::Full => status::ERROR,
    };
    (number, error.text)
}

fn is_wireless(name: &str) -> bool {
    std::path::Path::new("/sys/class/net").join(name).join("wireless").exists()
}

/// The DLT_ number of processes for a LINKTYPE_ number of files: five differ on Linux.
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

/// A handle of libpcap's that reads no packets. It compiles filters and opens output files for our link type.
pub struct Dead {
    handle: *mut Pcap,
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
        // SAFETY: passes only numbers.
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
            // SAFETY: libpcap made it, and it is not used afterwards.
            unsafe { close(self.handle) };
        }
    }

    /// For calls of libpcap's functions, which must not keep it.
    pub fn handle(&self) -> *mut Pcap {
        self.handle
    }

    /// Link types that it can be set to.
    pub fn links(&self) -> &[c_int] {
        &self.links
    }

    /// Sets another link type.
    pub fn set_link(&mut self, link: c_int) -> bool {
        self.links.contains(&link) && self.open(link)
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        self.close();
    }
}
