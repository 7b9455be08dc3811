//! What the writer of a device's ring must be able to do. The kernel's program is one, a thread that copies another.

use crate::attachment::Device;
use crate::capture_request::{By, CaptureError, Direction, Mode};
use buffer::live::{Areas, Geometry};
use program::ir::Program;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Which packets set a bit.
#[derive(Clone, Debug)]
pub struct Expression {
    /// The bit.
    pub bit: u8,
    /// What decides; none passes all.
    pub program: Option<Arc<Program>>,
    /// Where they go.
    pub direction: Direction,
    /// One in so many.
    pub sample: u32,
    /// Packets are counted and not written, each as if so many bytes of it were kept (0: all).
    pub counts: Option<u32>,
}

/// The writer of one device's ring. Dropping it takes it off the device.
///
/// [`set`](Writer::set) and [`promiscuous`](Writer::promiscuous) may take seconds, and are called by one thread at a time.
/// Everything else is called meanwhile, and does not wait for them.
pub trait Writer: Send + Sync {
    /// The device.
    fn device(&self) -> Device;

    /// Size of the ring.
    fn geometry(&self) -> Geometry;

    /// The ring's areas, which readers map for reading.
    fn areas(&self) -> Areas<BorrowedFd<'_>>;

    /// From now on these expressions set bits, and no others; all or nothing. Packets that are under way may still be decided
    /// on by the earlier ones, until [`grace`](Writer::grace) is over.
    fn set(&self, expressions: &[Expression]) -> Result<(), CaptureError>;

    /// To be called after [`set`](Writer::set), by who must know where the earlier expressions' last packet is, and without a
    /// lock, for it may take some ten milliseconds: when it returns, none is under way.
    fn grace(&self) -> fn() {
        || ()
    }

    /// Packets for others, too, or no more.
    fn promiscuous(&self, wanted: bool) -> Result<(), CaptureError>;

    /// The next packet that has one of these bits set makes [`bell`](Writer::bell) readable, once for each bit.
    fn arm(&self, bits: u64);

    /// Readable when an armed bit was set.
    fn bell(&self) -> BorrowedFd<'_>;

    /// The armed bits that were set since the last call.
    fn rung(&self) -> u64;

    /// The clock by which its packets are stamped.
    fn now(&self) -> u64 {
        crate::clock::monotonic()
    }

    /// Readable when there may be something to say about the device.
    fn events(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Is the device gone? Nothing will come from it any more.
    fn gone(&self) -> bool {
        false
    }

    /// What else is known of packets that did not arrive: by name.
    fn statistics(&self) -> Vec<(String, u64)>;
}

/// Opens devices: makes their rings and writers.
pub trait Opened: Send + Sync {
    /// The index of the device that has this name now.
    fn index(&self, device: &str) -> Result<u32, CaptureError>;

    /// The writer for a device, with a ring of about so many bytes, before any expression.
    fn open(&self, device: &str, ring_bytes: u64, mode: Mode, by: By) -> Result<Box<dyn Writer>, CaptureError>;

    /// What an expression costs each packet of a device at most, in instructions; `u32::MAX` where it cannot run there. No
    /// program passes all packets; `sample` takes one in so many of them.
    fn cost(&self, _program: Option<&Program>, _sample: u32) -> u32 {
        0
    }
}

/// A file descriptor of one's own.
pub fn own(fd: BorrowedFd<'_>) -> Result<OwnedFd, CaptureError> {
    fd.try_clone_to_owned().map_err(|error| CaptureError::system("a file descriptor cannot be handed out", &error))
}
