//! A ring that threads of this process write: they copy packets of packet sockets, AF_XDP sockets or requests.
//!
//! It has two halves: [`Ring`] answers for a [`Writer`], and [`Copying`] is the thread's. [`Copied`] is a whole writer,
//! of a ring and its owner's device.

use crate::attachment::Device;
use crate::capture_request::{CaptureError, Direction};
use crate::writer::{Expression, Writer};
use base::atomic::{AtomicU64, Ordering};
use buffer::live::words::PACKET_BYTES;
use buffer::live::{Areas, Facts, Geometry, LiveMemory, LiveWriter, SlotFlags};
use buffer::shared::segment::{Access, Segment};
use program::Interpreter;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The owner's half.
#[derive(Debug)]
pub struct Ring {
    areas: Areas<Segment>,
    geometry: Geometry,
    shared: Arc<Shared>,
}

/// The thread's half.
#[derive(Debug)]
pub struct Copying {
    writer: LiveWriter,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    ready: Mutex<Vec<Ready>>,
    armed: AtomicU64,
    rung: AtomicU64,
    bell: OwnedFd,
}

#[derive(Debug)]
struct Ready {
    bit: u64,
    program: Option<Interpreter>,
    direction: Direction,
    sample: u32,
    since: u32,
    counts: Option<u32>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<Ready>> {
        // No panic can interrupt a change of the list.
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a ring of about `ring_bytes` bytes, which only this process can write.
pub fn ring(name: &str, ring_bytes: u64) -> Result<(Ring, Copying), CaptureError> {
    let system = |error: std::io::Error| CaptureError::system("no ring can be made", &error);
    let geometry = Geometry::new(ring_bytes, 1);
    let areas = Areas::create(name, geometry).map_err(system)?;
    let memory = LiveMemory::map(areas.fds(), geometry, Access::Write).map_err(system)?;
    areas.seal_for_readers().map_err(system)?;
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| system(error.into()))?;
    let shared = Shared { ready: Mutex::default(), armed: AtomicU64::new(0), rung: AtomicU64::new(0), bell };
    let shared = Arc::new(shared);
    let ring = Ring { areas, geometry, shared: Arc::clone(&shared) };
    Ok((ring, Copying { writer: LiveWriter::new(memory), shared }))
}

impl Ring {
    /// Size.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The areas, for readers.
    pub fn areas(&self) -> Areas<BorrowedFd<'_>> {
        self.areas.fds()
    }

    /// See [`Writer::set`].
    pub fn set(&self, expressions: &[Expression]) {
        let ready = expressions.iter().map(|expression| Ready {
            bit: 1 << expression.bit,
            program: expression.program.as_deref().map(Interpreter::new),
            direction: expression.direction,
            sample: expression.sample.max(1),
            since: 0,
            counts: expression.counts,
        });
        let mut ready: Vec<Ready> = ready.collect();
        let mut before = self.shared.lock();
        for new in &mut ready {
            // Expressions that stay keep their sampling counts.
            let same = before.iter().find(|old| (old.bit, old.sample) == (new.bit, new.sample));
            new.since = same.map_or(0, |old| old.since);
        }
        *before = ready;
    }

    /// See [`Writer::arm`].
    pub fn arm(&self, bits: u64) {
        // Sequentially consistent on both sides: either the thread sees the bit, or the arming side sees the packet.
        self.shared.armed.fetch_or(bits, Ordering::SeqCst);
    }

    /// See [`Writer::bell`].
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    /// See [`Writer::rung`].
    pub fn rung(&self) -> u64 {
        let _ = rustix::io::read(&self.shared.bell, &mut [0u8; 8]);
        self.shared.rung.swap(0, Ordering::SeqCst)
    }
}

impl Copying {
    /// Makes the bell readable without a packet, for news about the device.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.shared.bell, &1u64.to_ne_bytes());
    }

    /// Counts packets that were filtered out before they got here, because no expression wants them.
    pub fn kept_out(&mut self, packets: u64, wire_bytes: u64) {
        self.writer.kept_out(packets, wire_bytes);
    }

    /// Lets `each` publish packets. The expressions cannot change meanwhile, so keep it to one batch.
    pub fn batch<R>(&mut self, each: impl FnOnce(&mut Publisher<'_>) -> R) -> R {
        let shared = Arc::clone(&self.shared);
        let mut ready = shared.lock();
        let mut publisher = Publisher { writer: &mut self.writer, ready: &mut ready, wanted: 0 };
        let result = each(&mut publisher);
        let wanted = publisher.wanted;
        drop(ready);
        base::atomic::fence(Ordering::SeqCst);
        let hit = wanted & shared.armed.load(Ordering::SeqCst);
        if hit != 0 {
            let hit = hit & shared.armed.fetch_and(!hit, Ordering::SeqCst);
            shared.rung.fetch_or(hit, Ordering::SeqCst);
            // A full eventfd is readable as well.
            let _ = rustix::io::write(&shared.bell, &1u64.to_ne_bytes());
        }
        result
    }
}

/// The owner of a copying thread: the part of a [`Writer`] that its ring cannot answer.
pub trait Copier: Send + Sync {
    /// The device.
    fn device(&self) -> Device;

    /// Switches promiscuous mode: packets for other hosts too.
    fn promiscuous(&self, wanted: bool) -> Result<(), CaptureError>;

    /// The thread must publish every packet that any of these wants, and may leave out the rest; all or nothing.
    fn sift(&self, _expressions: &[&Expression]) -> Result<(), CaptureError> {
        Ok(())
    }

    /// Whether the device is gone.
    fn gone(&self) -> bool;

    /// Counts of other packets that did not arrive, by name.
    fn statistics(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// A ring, and the owner of the thread that copies packets into it. The copier is dropped first.
#[derive(Debug)]
pub struct Copied<C> {
    copier: C,
    ring: Ring,
    /// Expressions in force; locked while they are being replaced.
    expressions: Mutex<Vec<Expression>>,
}

impl<C: Copier> Copied<C> {
    /// Joins a copier and the owner's half of its ring.
    pub fn new(copier: C, ring: Ring) -> Copied<C> {
        Copied { copier, ring, expressions: Mutex::default() }
    }
}

impl<C: Copier> Writer for Copied<C> {
    fn device(&self) -> Device {
        self.copier.device()
    }

    fn geometry(&self) -> Geometry {
        self.ring.geometry()
    }

    fn areas(&self) -> Areas<BorrowedFd<'_>> {
        self.ring.areas()
    }

    fn set(&self, expressions: &[Expression]) -> Result<(), CaptureError> {
        // A panic under the lock left the list unchanged.
        let mut before = self.expressions.lock().unwrap_or_else(PoisonError::into_inner);
        // A new expression must be in place before its first packet comes: of packets taken from the host there is no
        // other copy. So new expressions are set before the copier lets their packets through, and old ones stay until
        // it stops.
        let goes = |old: &&Expression| expressions.iter().all(|new| new.bit != old.bit);
        let both: Vec<Expression> = expressions.iter().chain(before.iter().filter(goes)).cloned().collect();
        self.ring.set(&both);
        if let Err(error) = self.copier.sift(&expressions.iter().collect::<Vec<_>>()) {
            self.ring.set(&before);
            return Err(error);
        }
        self.ring.set(expressions);
        *before = expressions.to_vec();
        Ok(())
    }

    fn promiscuous(&self, wanted: bool) -> Result<(), CaptureError> {
        self.copier.promiscuous(wanted)
    }

    fn arm(&self, bits: u64) {
        self.ring.arm(bits);
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.ring.bell()
    }

    fn rung(&self) -> u64 {
        self.ring.rung()
    }

    fn now(&self) -> u64 {
        crate::clock::real()
    }

    fn gone(&self) -> bool {
        self.copier.gone()
    }

    fn statistics(&self) -> Vec<(String, u64)> {
        self.copier.statistics()
    }
}

/// Bytes that would be kept of a packet of `len` bytes.
fn kept(len: usize, snap_len: u32) -> u32 {
    let len = len.min(PACKET_BYTES) as u32;
    if snap_len > 0 { len.min(snap_len) } else { len }
}

/// Publishes the packets of one batch.
#[derive(Debug)]
pub struct Publisher<'a> {
    writer: &'a mut LiveWriter,
    ready: &'a mut Vec<Ready>,
    wanted: u64,
}

impl Publisher<'_> {
    /// Decides which expressions want a packet, counts it, and copies it if one does. `bytes` is the whole packet with
    /// its tags in place. This sets `facts.wanted` and `facts.len`.
    pub fn publish(&mut self, mut facts: Facts, bytes: &[u8]) {
        let outbound = facts.flags.has(SlotFlags::OUTBOUND);
        facts.wanted = 0;
        for expression in self.ready.iter_mut() {
            let goes = match expression.direction {
                Direction::Both => true,
                Direction::In => !outbound,
                Direction::Out => outbound,
            };
            let passes = || expression.program.as_ref().is_none_or(|program| program.run(bytes, facts.wire) != 0);
            if goes && passes() {
                match expression.counts {
                    _ if expression.since > 0 => {}
                    None => facts.wanted |= expression.bit,
                    Some(snap_len) => {
                        let kept = kept(bytes.len(), snap_len);
                        self.writer.count(expression.bit.trailing_zeros() as u8, facts.wire, kept);
                    }
                }
                expression.since = (expression.since + 1) % expression.sample;
            }
        }
        self.wanted |= facts.wanted;
        facts.len = bytes.len() as u32;
        self.writer.publish(facts, &[bytes]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture_request::CaptureErrorKind;
    use program::cbpf::Instruction;
    use std::sync::atomic::AtomicBool;

    /// Publishes packets as soon as it hears that they are wanted.
    struct Played {
        copying: Mutex<Copying>,
        fails: AtomicBool,
    }

    impl Copier for Played {
        fn device(&self) -> Device {
            Device { name: "played0".into(), index: 1, link_type: 1, mtu: 1500, how: "by a test".into(), copied: true }
        }

        fn promiscuous(&self, _wanted: bool) -> Result<(), CaptureError> {
            Ok(())
        }

        fn sift(&self, expressions: &[&Expression]) -> Result<(), CaptureError> {
            if self.fails.load(Ordering::Relaxed) {
                return Err(CaptureError::new(CaptureErrorKind::System, "as was asked for"));
            }
            for expression in expressions {
                let bytes = [expression.bit; 60];
                let mut copying = self.copying.lock().unwrap();
                copying.batch(|publisher| publisher.publish(Facts { wire: 60, ..Facts::default() }, &bytes));
            }
            Ok(())
        }

        fn gone(&self) -> bool {
            false
        }
    }

    /// Wants packets whose first byte is the bit's number.
    fn expression(bit: u8) -> Expression {
        let at = |code, jt, jf, k| Instruction { code, jt, jf, k };
        let program = [at(0x30, 0, 0, 0), at(0x15, 0, 1, bit.into()), at(6, 0, 0, 1), at(6, 0, 0, 0)];
        let program = Some(Arc::new(program::from_cbpf(&program).unwrap()));
        Expression { bit, program, direction: Direction::Both, sample: 1, counts: None }
    }

    #[test]
    fn what_comes_as_soon_as_it_is_wanted_finds_who_wants_it() {
        let (ring, copying) = ring("played0", 1 << 20).unwrap();
        let played = Played { copying: Mutex::new(copying), fails: AtomicBool::new(false) };
        let writer = Copied::new(played, ring);
        let memory = LiveMemory::map(writer.areas(), writer.geometry(), Access::Read).unwrap();
        let matched = || [0, 1, 2].map(|bit| memory.matched(bit).packets);
        writer.set(&[expression(0)]).unwrap();
        assert_eq!(matched(), [1, 0, 0]);
        writer.set(&[expression(0), expression(1)]).unwrap();
        assert_eq!(matched(), [2, 1, 0]);
        // A refused set changes nothing.
        writer.copier.fails.store(true, Ordering::Relaxed);
        assert!(writer.set(&[expression(2)]).is_err());
        let all = [0, 1, 2].map(expression);
        writer.copier.fails.store(false, Ordering::Relaxed);
        writer.copier.sift(&all.each_ref()).unwrap();
        assert_eq!(matched(), [3, 2, 0]);
    }
}
