//! What a reader asks of a device's owner, and the errors. Plain data that can be sent to another process.

use crate::param::ParamError;
use buffer::control::codec::{In, Out, Wire};
use buffer::wire_codes;
use program::cbpf::Instruction;

/// The direction of the packets that are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Incoming and outgoing packets.
    #[default]
    Both,
    /// Incoming packets.
    In,
    /// Outgoing packets.
    Out,
}

/// Whether the host still gets the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Copy packets; the host still gets them.
    #[default]
    Tap,
    /// Take wanted incoming packets away from the host. All readers are of one trust group.
    Consume,
}

/// The writer of a device's ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// The kernel's program if it sees the same as a packet socket would, else a packet socket.
    #[default]
    WhatIsBest,
    /// The kernel's program, on the device's TCX hooks.
    Kernel,
    /// A thread that copies from a packet socket.
    PacketSocket,
}

/// A part of a device's flows, chosen by hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The number of this part, from 0.
    pub number: u32,
    /// The number of parts, at least 1.
    pub of: u32,
}

impl Partition {
    /// Whether a flow with this hash belongs to this part.
    #[inline]
    pub fn has(&self, hash: u32) -> bool {
        // Use the hash's upper bits; this needs no division. The parts differ in size by at most 1 in 2^32.
        (u64::from(hash) * u64::from(self.of)) >> 32 == u64::from(self.number)
    }
}

impl std::str::FromStr for Partition {
    type Err = CaptureError;

    /// Parses `1/4`, for example, as the second of four parts.
    fn from_str(text: &str) -> Result<Partition, CaptureError> {
        let numbers = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((number, of)) if number < of => Ok(Partition { number, of }),
            _ => Err(CaptureError::new(CaptureErrorKind::Request, format!("`{text}` is no part of the traffic"))),
        }
    }
}

/// A reader's request for packets of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureRequest {
    /// The device's name.
    pub device: String,
    /// Whether the host still gets the packets.
    pub mode: Mode,
    /// The ring's writer, if this reader is the first.
    pub by: By,
    /// Which direction of packets.
    pub direction: Direction,
    /// Packets that this classic BPF program matches, in file mode over the bytes on the wire (VLAN tags in place).
    /// Empty: all packets.
    pub program: Vec<Instruction>,
    /// Of the matching packets, the first of each `sample`; at least 1.
    pub sample: u32,
    /// `Some(n)`: count packets only, as if `n` bytes of each were kept (0 = whole). `None`: write packets.
    pub counts: Option<u32>,
    /// Include packets for other hosts.
    pub promiscuous: bool,
    /// Wanted bytes of the ring; the first reader's wish decides. 0 = no wish.
    pub ring_bytes: u64,
    /// Begin with packets seen up to this long ago, in ns, if the ring still has them.
    pub last_ns: u64,
    /// From now on the ring takes every packet that its readers may see. It stays when they go, for readers that look
    /// back.
    pub keep: bool,
}

/// Most instructions of one program. The kernel takes fewer in one socket filter.
pub const PROGRAM_INSTRUCTIONS: usize = 16_384;

/// Why a request cannot be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureError {
    /// Whose fault it is.
    pub kind: CaptureErrorKind,
    /// The error and, where it helps, the remedy.
    pub text: String,
}

/// Whose fault a [`CaptureError`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CaptureErrorKind {
    /// The request is wrong, such as an invalid expression.
    Request = 1,
    /// Not allowed.
    Denied = 2,
    /// This writer cannot do it; another one might.
    Cannot = 3,
    /// The system failed.
    System = 4,
    /// There are as many readers as there can be.
    Full = 5,
    /// The device, client or reader does not exist.
    Absent = 6,
}

impl CaptureError {
    /// An error of this kind.
    pub fn new(kind: CaptureErrorKind, text: impl Into<String>) -> CaptureError {
        CaptureError { kind, text: text.into() }
    }

    /// A failed system call.
    pub fn system(what: &str, error: &std::io::Error) -> CaptureError {
        let kind = match error.kind() {
            std::io::ErrorKind::PermissionDenied => CaptureErrorKind::Denied,
            _ => CaptureErrorKind::System,
        };
        CaptureError::new(kind, format!("{what}: {error}"))
    }
}

impl std::fmt::Display for CaptureError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for CaptureError {}

impl From<CaptureError> for ParamError {
    /// Sorts a device's error by whose fault it is.
    fn from(error: CaptureError) -> ParamError {
        let system = error.kind != CaptureErrorKind::Request;
        let refused = ParamError { system, ..ParamError::new("device", error.text) };
        match error.kind {
            CaptureErrorKind::Absent => refused.with_help("`streamline devices` lists them"),
            _ => refused,
        }
    }
}

/// A program, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code(pub Vec<Instruction>);

impl Wire for Code {
    fn put(&self, out: &mut Out) {
        (self.0.len() as u32).put(out);
        for Instruction { code, jt, jf, k } in &self.0 {
            ((*code, *jt), (*jf, *k)).put(out);
        }
    }

    fn get(fields: &mut In<'_>) -> Option<Code> {
        let count = u32::get(fields).filter(|count| *count as usize <= PROGRAM_INSTRUCTIONS)?;
        let instruction = |_| {
            let ((code, jt), (jf, k)) = Wire::get(fields)?;
            Some(Instruction { code, jt, jf, k })
        };
        (0..count).map(instruction).collect::<Option<_>>().map(Code)
    }
}

impl Wire for CaptureRequest {
    fn put(&self, out: &mut Out) {
        let CaptureRequest { device, mode, by, direction, program, sample, counts, promiscuous, .. } = self;
        device.put(out);
        mode.put(out);
        by.put(out);
        direction.put(out);
        Code(program.clone()).put(out);
        sample.put(out);
        counts.put(out);
        promiscuous.put(out);
        ((self.ring_bytes, self.last_ns), self.keep).put(out);
    }

    fn get(fields: &mut In<'_>) -> Option<CaptureRequest> {
        Some(CaptureRequest {
            device: Wire::get(fields)?,
            mode: Wire::get(fields)?,
            by: Wire::get(fields)?,
            direction: Wire::get(fields)?,
            program: Code::get(fields)?.0,
            sample: Wire::get(fields)?,
            counts: Wire::get(fields)?,
            promiscuous: Wire::get(fields)?,
            ring_bytes: Wire::get(fields)?,
            last_ns: Wire::get(fields)?,
            keep: Wire::get(fields)?,
        })
    }
}

wire_codes!(Mode { Tap = 0, Consume = 1 });
wire_codes!(By { WhatIsBest = 0, Kernel = 1, PacketSocket = 2 });
wire_codes!(Direction { Both = 0, In = 1, Out = 2 });
wire_codes!(CaptureErrorKind { Request = 1, Denied = 2, Cannot = 3, System = 4, Full = 5, Absent = 6 });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_written_as_one_of_so_many() {
        assert_eq!("1/4".parse(), Ok(Partition { number: 1, of: 4 }));
        for wrong in ["", "1", "4/4", "-1/4", "1/4/2", "a/b", "1/", "0/0"] {
            assert!(wrong.parse::<Partition>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn partitions_take_every_flow_once() {
        for of in 1..9 {
            for hash in [0, 1, 77, u32::MAX / 2, u32::MAX - 1, u32::MAX, 0xdead_beef] {
                assert_eq!((0..of).filter(|&number| Partition { number, of }.has(hash)).count(), 1);
            }
        }
    }
}
