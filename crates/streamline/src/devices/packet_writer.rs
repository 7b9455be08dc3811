//! A device's ring, written by a thread that copies from a packet socket. It serves devices and kernels that run no
//! program of ours, or whose programs would see other packets than a packet socket does.
//!
//! All readers' expressions together are the socket's filter, so unwanted packets are not copied. There are two kinds
//! of filter:
//! - Where programs may be loaded, a program that lets in exactly what is wanted and counts the rest
//!   ([`kernel::SocketFilter`]).
//! - Else cBPF, which needs no right beyond having the socket ([`program::any_of`]). It may let in more but never less,
//!   and counts nothing.
//!
//! Either way the copying thread asks the expressions one by one for each packet that came in.

use super::Promiscuous;
use super::error::capture_error;
use super::kernel_writer::to_kernel;
use buffer::live::memory::Count;
use capture::copying::{self, Copied, Copier, Copying};
use capture::{CaptureError, Device, Direction, ETHERNET, Expression};
use driver::af_packet::{Options, Receiver, SocketFilter};
use driver::device::Device as DriverDevice;
use driver::namespace::Namespace;
use driver::{Receive, filter};
use program::Program;
use program::ir::WHOLE;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(100);

const PACKET_BYTES: usize = buffer::live::words::PACKET_BYTES;

pub(crate) struct PacketWriter {
    device: Device,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    promiscuous: Promiscuous,
    socket_filter: SocketFilter,
    /// The expressions that the filter lets in; locked while the filter is exchanged.
    filtered: Mutex<Vec<Expression>>,
    /// The filter's counters. `None`: programs may not be loaded.
    counting: Option<Arc<kernel::SocketFilter>>,
    how: Mutex<How>,
}

/// Says for people that a packet socket is copied from, and why.
pub fn how(why: &str) -> String {
    format!("copied from a packet socket (TPACKET_V3): {why}")
}

/// The kind of the socket's filter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Loaded,
    /// A cBPF program with this number of instructions.
    Classic(usize),
    /// No filter: every packet comes in.
    None,
}

#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    gone: AtomicBool,
    statistics: Mutex<Vec<(String, u64)>>,
}

impl PacketWriter {
    /// Opens a device; `why` says why this writer serves it.
    pub(crate) fn open(
        namespace: &Namespace,
        device: &DriverDevice,
        link_type: u16,
        ring_bytes: u64,
        why: &str,
    ) -> Result<Copied<PacketWriter>, CaptureError> {
        let link = &device.link;
        let options = Options { filter: filter::nothing(), ..Options::default() };
        let receiver = Receiver::open(namespace, &link.name, &options).map_err(capture_error)?;
        let socket_filter = receiver.socket_filter().map_err(capture_error)?;
        let (ring, copying) = copying::ring(&link.name, ring_bytes)?;
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        // Without the right to load programs, or the memory for one, use cBPF.
        let counting = kernel::SocketFilter::new(link_type == ETHERNET).ok().map(Arc::new);
        let counted = counting.clone();
        let thread = std::thread::Builder::new()
            .name(format!("copy-{}", link.name))
            .spawn(move || copy(receiver, link_type == ETHERNET, copying, &theirs, counted.as_deref()))
            .map_err(|error| CaptureError::system("no thread can be made", &error))?;
        let device = Device {
            name: link.name.clone(),
            index: link.index,
            link_type,
            mtu: link.mtu,
            how: how(why),
            copied: true,
        };
        Ok(Copied::new(
            PacketWriter {
                device,
                shared,
                thread: Some(thread),
                promiscuous: Promiscuous::default(),
                socket_filter,
                filtered: Mutex::default(),
                counting,
                how: Mutex::new(How::Classic(1)),
            },
            ring,
        ))
    }
}

fn copy(
    mut receiver: Receiver,
    ethernet: bool,
    mut copying: Copying,
    shared: &Shared,
    counting: Option<&kernel::SocketFilter>,
) {
    let mut scratch = vec![0; PACKET_BYTES];
    let mut kept_out = Count::default();
    while !shared.ended.load(Ordering::Acquire) {
        let turn = receiver.receive(LOOK, &mut |batch| {
            copying.batch(|publisher| {
                for frame in batch.frames {
                    let bytes = match frame.tag() {
                        None => frame.bytes_without_tag(),
                        Some(_) => {
                            let len = frame.copy_into(&mut scratch);
                            &scratch[..len]
                        }
                    };
                    let flow = kernel::flow::of(bytes, frame.wire, ethernet);
                    publisher.publish(flow.add_to(frame.facts(0)), bytes);
                }
            });
        });
        if let Some(counting) = counting {
            let now = counting.kept_out();
            let more = now.since(kept_out);
            copying.kept_out(more.packets, more.wire_bytes);
            kept_out = now;
        }
        match turn {
            Ok(driver::Turn::Frames(_)) => {}
            Ok(driver::Turn::Nothing | driver::Turn::Down) => {
                if let Ok(statistics) = receiver.statistics() {
                    let all = statistics.all().map(|counter| (counter.name.to_string(), counter.value));
                    *shared.statistics.lock().unwrap_or_else(PoisonError::into_inner) = all.to_vec();
                }
            }
            Err(_) => {
                // The device is gone, or the socket is unusable. The readers' owner tells them.
                shared.gone.store(true, Ordering::Release);
                copying.ring();
                return;
            }
        }
    }
}

impl Drop for PacketWriter {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Copier for PacketWriter {
    fn device(&self) -> Device {
        self.device.clone()
    }

    fn promiscuous(&self, wanted: bool) -> Result<(), CaptureError> {
        self.promiscuous.set(self.device.index, wanted)
    }

    fn sift(&self, expressions: &[&Expression]) -> Result<(), CaptureError> {
        // A thread that panicked under this lock had not changed the value yet.
        let mut filtered = self.filtered.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted: Vec<Expression> = Vec::new();
        for expression in expressions {
            if !wanted.iter().any(|known| is_same(known, expression)) {
                wanted.push((*expression).clone());
            }
        }
        let is_there = |one: &Expression| filtered.iter().any(|known| is_same(known, one));
        if wanted.len() == filtered.len() && wanted.iter().all(is_there) {
            return Ok(());
        }
        let how = self.attach(&wanted)?;
        *self.how.lock().unwrap_or_else(PoisonError::into_inner) = how;
        *filtered = wanted;
        Ok(())
    }

    fn gone(&self) -> bool {
        self.shared.gone.load(Ordering::Acquire)
    }

    fn statistics(&self) -> Vec<(String, u64)> {
        let mut statistics = self.shared.statistics.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let how = *self.how.lock().unwrap_or_else(PoisonError::into_inner);
        match (how, &self.counting) {
            (How::Loaded, Some(counting)) => {
                statistics.push(("socket.kept_out".into(), counting.kept_out().packets));
            }
            (How::Classic(length), _) => statistics.push(("socket.filter_instructions".into(), length as u64)),
            (How::Loaded | How::None, _) => {}
        }
        statistics
    }
}

impl PacketWriter {
    /// Attaches the best filter that lets in all packets these expressions want.
    fn attach(&self, wanted: &[Expression]) -> Result<How, CaptureError> {
        if let Some(counting) = &self.counting
            && let Ok(program) = counting.program(&wanted.iter().map(to_kernel).collect::<Vec<_>>())
            && self.socket_filter.set_loaded(program.as_fd()).is_ok()
        {
            return Ok(How::Loaded);
        }
        if let Some(program) = socket_filter(wanted)
            && self.socket_filter.set(&program).is_ok()
        {
            return Ok(How::Classic(program.len()));
        }
        // The expressions are too long together, or one of them can only be asked by this process.
        self.socket_filter.set(&filter::everything(WHOLE)).map_err(capture_error)?;
        Ok(How::None)
    }
}

/// Whether these two let in the same packets.
fn is_same(one: &Expression, other: &Expression) -> bool {
    let same_program = match (&one.program, &other.program) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    };
    same_program && (one.bit, one.direction) == (other.bit, other.direction)
}

/// The cBPF program that lets in all packets these expressions want. `None`: one program cannot express it, or no
/// filter is needed.
fn socket_filter(expressions: &[Expression]) -> Option<Vec<filter::Instruction>> {
    let all = Program::constant(WHOLE);
    let of = |way: Direction| -> Option<Vec<filter::Instruction>> {
        let asked = expressions.iter().filter(|expression| [Direction::Both, way].contains(&expression.direction));
        let programs: Vec<&Program> = asked.map(|expression| expression.program.as_deref().unwrap_or(&all)).collect();
        let turn = |one: program::cbpf::Instruction| filter::Instruction {
            code: one.code,
            jump_true: one.jt,
            jump_false: one.jf,
            k: one.k,
        };
        Some(program::to_cbpf(&program::any_of(&programs)?).into_iter().map(turn).collect())
    };
    let (incoming, outgoing) = (of(Direction::In)?, of(Direction::Out)?);
    let both = |program: &[filter::Instruction]| incoming == program && outgoing == program;
    match () {
        () if both(&filter::everything(WHOLE)) => None,
        () if both(&filter::nothing()) => Some(filter::nothing()),
        () => Some(filter::by_way(&incoming, &outgoing, WHOLE)),
    }
}
