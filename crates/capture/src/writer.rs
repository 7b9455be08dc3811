//! The trait of a device ring's writer: the kernel's program is one, a copying thread another.

use crate::attachment::Device;
use crate::capture_request::{By, CaptureError, Direction, Mode};
use buffer::live::{Areas, Geometry};
use program::ir::Program;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Selects the packets that get a bit.
#[derive(Clone, Debug)]
pub struct Expression {
    /// The bit.
    pub bit: u8,
    /// The deciding program; `None`: all packets pass.
    pub program: Option<Arc<Program>>,
    /// Direction of the packets.
    pub direction: Direction,
    /// Takes one in this number of packets.
    pub sample: u32,
    /// `Some(n)`: count packets only, as if `n` bytes of each were kept (0: whole). `None`: write packets.
    pub counts: Option<u32>,
}

/// The writer of one device's ring. Dropping it takes it off the device.
///
/// One thread at a time calls [`set`](Writer::set) and [`promiscuous`](Writer::promiscuous), which may take seconds.
/// Other threads call everything else meanwhile, and it does not wait for them.
pub trait Writer: Send + Sync {
    /// The device.
    fn device(&self) -> Device;

    /// Size of the ring.
    fn geometry(&self) -> Geometry;

    /// The ring's areas, which readers map read-only.
    fn areas(&self) -> Areas<BorrowedFd<'_>>;

    /// Makes these expressions set bits from now on, and no others; all or nothing. The earlier ones may still decide
    /// on packets under way, until [`grace`](Writer::grace) is over.
    fn set(&self, expressions: &[Expression]) -> Result<(), CaptureError>;

    /// Returns a function that returns when no packet is under way any more. For a caller that must know the earlier
    /// expressions' last packet after [`set`](Writer::set). Call it without a lock: it may take some ten milliseconds.
    fn grace(&self) -> fn() {
        || ()
    }

    /// Switches promiscuous mode: packets for other hosts too.
    fn promiscuous(&self, wanted: bool) -> Result<(), CaptureError>;

    /// The next packet with one of these bits makes [`bell`](Writer::bell) readable, once for each bit.
    fn arm(&self, bits: u64);

    /// Readable when an armed bit was set.
    fn bell(&self) -> BorrowedFd<'_>;

    /// The armed bits that were set since the last call.
    fn rung(&self) -> u64;

    /// The clock of its packets' times.
    fn now(&self) -> u64 {
        crate::clock::monotonic()
    }

    /// Readable when there may be news about the device.
    fn events(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether the device is gone. No more packets will come.
    fn gone(&self) -> bool {
        false
    }

    /// Counts of other packets that did not arrive, by name.
    fn statistics(&self) -> Vec<(String, u64)>;
}

/// Opens devices: makes their rings and writers.
pub trait Opened: Send + Sync {
    /// The index of the device that has this name now.
    fn index(&self, device: &str) -> Result<u32, CaptureError>;

    /// Makes the writer for a device, with a ring of about `ring_bytes` bytes, without expressions.
    fn open(&self, device: &str, ring_bytes: u64, mode: Mode, by: By) -> Result<Box<dyn Writer>, CaptureError>;

    /// Most instructions that an expression costs each packet of a device; `u32::MAX` if it cannot run there. `None` as
    /// program passes all packets; `sample` takes one in this number of them.
    fn cost(&self, _program: Option<&Program>, _sample: u32) -> u32 {
        0
    }
}

/// A duplicate of a file descriptor.
pub fn own(fd: BorrowedFd<'_>) -> Result<OwnedFd, CaptureError> {
    fd.try_clone_to_owned().map_err(|error| CaptureError::system("a file descriptor cannot be handed out", &error))
}
