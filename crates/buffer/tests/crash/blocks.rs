//! Blocks whose bytes follow from their number, and a reader that checks that they come whole, in order and once.

use base::id::{Class, RingId};
use buffer::Descriptor;
use buffer::ring::memory::Geometry;
use buffer::ring::{From, Hold, NotWritten, Nothing, OnFull, Reader, Ring, RingKind, Seen, Signalling, Writer};
use buffer::shared::segment::Pages;
use std::time::Instant;

/// Payload and slots of the rings of these tests: a few blocks make a lap.
pub const BYTES: u64 = 4096;
pub const SLOTS: u64 = 16;

/// Fills blocks that are never published.
#[cfg(feature = "kill-points")]
pub const JUNK: u8 = 0xee;

pub fn ring(kind: RingKind, signalling: Signalling) -> (Ring, Writer) {
    Ring::create(Geometry::new(kind, BYTES, SLOTS), Pages::Normal, signalling).expect("a small ring can be made")
}

/// Bytes of block `n`. A long one now and then makes bytes run out before slots do.
pub fn len(kind: RingKind, n: u64) -> usize {
    if kind != RingKind::P && n % 11 == 7 { 1500 } else { 1 + (n * 37 % 200) as usize }
}

fn byte(n: u64, at: u64) -> u8 {
    ((n.wrapping_mul(0x9e37_79b9) >> 7).wrapping_add(at.wrapping_mul(7)) % 0xee) as u8
}

fn stream_byte(position: u64) -> u8 {
    ((position.wrapping_mul(0x9e37_79b9) >> 9) % 0xee) as u8
}

pub fn bytes(kind: RingKind, n: u64, head: u64) -> Vec<u8> {
    let len = len(kind, n) as u64;
    match kind {
        RingKind::C => (head..head + len).map(stream_byte).collect(),
        _ => (0..len).map(|at| byte(n, at)).collect(),
    }
}

pub fn about(n: u64) -> Descriptor {
    Descriptor { time: n, class: Class(n as u32 ^ 0x5555), ..Descriptor::default() }
}

pub fn elsewhere(n: u64) -> Descriptor {
    Descriptor { pos: n.wrapping_mul(0x1_0001), len: n as u32 | 1, ring: RingId(9), ..about(n) }
}

pub fn try_write(writer: &mut Writer, n: u64) -> Result<(), NotWritten> {
    use buffer::ring::layout::Layout;
    let kind = writer.layout().kind();
    let bytes = bytes(kind, n, writer.head());
    writer.try_write(about(n), &bytes)
}

pub fn write(writer: &mut Writer, n: u64, deadline: Instant) -> Result<(), NotWritten> {
    use buffer::ring::layout::Layout;
    let bytes = bytes(writer.layout().kind(), n, writer.head());
    writer.write(about(n), &bytes, Some(deadline))
}

/// Blocks seen so far, and the next one to expect.
#[derive(Debug)]
pub struct Seeing {
    kind: RingKind,
    /// Number (in a stream: position) of the first block, once it came.
    first: Option<u64>,
    /// Number of blocks (in a stream: bytes) seen.
    pub got: u64,
    /// Number after the last block seen (in a stream: position).
    pub next: u64,
}

impl Seeing {
    /// For a reader that sees everything from block `first` on (`None`: from any block on).
    pub fn new(kind: RingKind, first: Option<u64>) -> Seeing {
        Seeing { kind, first, got: 0, next: first.unwrap_or(0) }
    }

    pub fn is_right(&self, seen: &Seen, bytes: &[u8]) -> bool {
        let n = seen.block.time;
        let class = match self.kind {
            RingKind::P | RingKind::D => about(n).class,
            RingKind::C | RingKind::V => Class::default(),
        };
        if self.kind == RingKind::C {
            return bytes.iter().zip(seen.position..).all(|(found, position)| *found == stream_byte(position));
        }
        if seen.elsewhere {
            return elsewhere(n) == seen.block;
        }
        seen.block.class == class
            && bytes.len() == len(self.kind, n)
            && bytes.iter().enumerate().all(|(at, found)| *found == byte(n, at as u64))
    }

    pub fn step(&mut self, reader: &mut Reader) -> Result<(), Nothing> {
        let seen = reader.peek()?;
        let seen = reader.first(seen, 300);
        let bytes = if seen.elsewhere { Vec::new() } else { reader.bytes(&seen).copy_to_vec() };
        if reader.take(&seen).is_err() {
            return Ok(());
        }
        assert!(self.is_right(&seen, &bytes), "{self:?}, {reader:?}: {seen:?} is torn: {bytes:?}");
        let (n, units) = match self.kind {
            RingKind::C => (seen.position, bytes.len() as u64),
            _ => (seen.block.time, 1),
        };
        assert!(self.got == 0 || n >= self.next, "{self:?}, {reader:?}: {n} comes too late");
        let lost = reader.counters().lost;
        if let Some(first) = self.first {
            assert_eq!(first + self.got + lost, n, "{self:?}, {reader:?}: what is seen and lost is not all there was");
        }
        self.first.get_or_insert(n - lost);
        self.got += units;
        self.next = n + units;
        Ok(())
    }

    /// Reads until the writer is gone, sleeping in between.
    pub fn read_to_the_end(&mut self, reader: &mut Reader, deadline: Instant) -> Nothing {
        loop {
            let outcome = reader.wait(Some(deadline)).and_then(|()| self.step(reader));
            match outcome {
                // Perhaps it was overtaken after it was woken.
                Err(Nothing::Yet) if Instant::now() < deadline => {}
                Err(nothing) => return nothing,
                Ok(()) => {}
            }
        }
    }
}

#[derive(Debug)]
pub struct Checker {
    pub reader: Reader,
    pub seeing: Seeing,
}

impl Checker {
    /// A reader that is attached before the first block.
    pub fn attach(ring: &mut Ring, kind: RingKind, contract: OnFull, hold: Hold) -> Checker {
        let reader = ring.attach(contract, hold, From::Next).expect("there is room for readers");
        Checker { reader, seeing: Seeing::new(kind, Some(0)) }
    }

    #[cfg(feature = "kill-points")]
    pub fn attach_late(ring: &mut Ring, kind: RingKind, from: From) -> Checker {
        let reader = ring.attach(OnFull::Overwrite, None, from).expect("there is room for readers");
        Checker { reader, seeing: Seeing::new(kind, None) }
    }

    pub fn lost(&self) -> u64 {
        self.reader.counters().lost
    }

    pub fn step(&mut self) -> Result<(), Nothing> {
        self.seeing.step(&mut self.reader)
    }

    pub fn drain(&mut self) -> Nothing {
        for _ in 0..100_000 {
            match self.step() {
                Ok(()) => {}
                // An overtaken reader may give up for now; here no writer goes on.
                Err(Nothing::Yet) if self.reader.peek().is_ok() => {}
                Err(nothing) => return nothing,
            }
        }
        panic!("{self:?} does not come to an end");
    }

    pub fn read_to_the_end(&mut self, deadline: Instant) -> Nothing {
        self.seeing.read_to_the_end(&mut self.reader, deadline)
    }
}
