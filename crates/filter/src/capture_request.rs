//! What a reader of a device asks its owner for, and why that is refused: data, fit to be sent to another process.

use crate::param::ParamError;
use buffer::control::codec::{In, Out, Wire};
use buffer::wire_codes;
use program::cbpf::Instruction;

/// Which packets of a device, by where they go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Those that come and those that go.
    #[default]
    Both,
    /// Those that come.
    In,
    /// Those that go.
    Out,
}

/// What becomes of the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// A copy is taken; the host sees them as before.
    #[default]
    Tap,
    /// What is wanted of what the device receives is taken away from the host, by readers of one group.
    Consume,
}

/// Who writes a device's packets into its ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// The kernel's program where it sees what a packet socket would, else a packet socket.
    #[default]
    WhatIsBest,
    /// The kernel's program, on the device's TCX hooks.
    Kernel,
    /// A thread that copies from a packet socket.
    PacketSocket,
}

/// A part of a device's flows: those whose hash leaves this rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// From 0.
    pub number: u32,
    /// Parts there are, at least 1.
    pub of: u32,
}

impl Share {
    /// Is a flow of this hash in it?
    #[inline]
    pub fn has(&self, hash: u32) -> bool {
        // The hash's upper bits, without a division: all parts are equally large but for 1 in 2^32.
        (u64::from(hash) * u64::from(self.of)) >> 32 == u64::from(self.number)
    }
}

impl std::str::FromStr for Share {
    type Err = CaptureError;

    /// `1/4`: the second of four.
    fn from_str(text: &str) -> Result<Share, CaptureError> {
        let numbers = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((number, of)) if number < of => Ok(Share { number, of }),
            _ => Err(CaptureError::new(CaptureErrorKind::Request, format!("`{text}` is no part of the traffic"))),
        }
    }
}

/// What a reader asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureRequest {
    /// The device's name.
    pub device: String,
    /// What becomes of the packets.
    pub mode: Mode,
    /// Who writes them, if this reader is the first.
    pub by: By,
    /// Which, by where they go.
    pub direction: Direction,
    /// Which, by a classic BPF program in file mode over the wire's bytes (tags in place); none = all.
    pub program: Vec<Instruction>,
    /// One in so many of those, from 1.
    pub sample: u32,
    /// They are counted, each as if so many bytes of it were kept (0: all), and none is written; none: they are written.
    pub counts: Option<u32>,
    /// Packets for others, too.
    pub promiscuous: bool,
    /// Bytes of ring this reader would like; that of the first reader decides. 0 = does not matter.
    pub ring_bytes: u64,
    /// Begin with packets that were seen up to so many nanoseconds ago, where they are still there.
    pub last_ns: u64,
    /// From now on the ring takes every packet that its readers may see, and it stays when they go, for readers that look
    /// back.
    pub keep: bool,
}

/// Instructions of one program at most: what the kernel takes in one socket filter, and more than that.
pub const PROGRAM_INSTRUCTIONS: usize = 16_384;

/// Why something cannot be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureError {
    /// Whose fault it is.
    pub kind: CaptureErrorKind,
    /// What is wrong and, where it helps, what to do.
    pub text: String,
}

/// Whose fault a [`CaptureError`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CaptureErrorKind {
    /// The capture request is wrong: an expression that is none, say.
    Request = 1,
    /// Not allowed.
    Denied = 2,
    /// This writer cannot do it; another might.
    Cannot = 3,
    /// The system failed.
    System = 4,
    /// There are as many readers as there can be.
    Full = 5,
    /// What is asked for is not there: a device, a client, a reader.
    Absent = 6,
}

impl CaptureError {
    /// An error of this kind.
    pub fn new(kind: CaptureErrorKind, text: impl Into<String>) -> CaptureError {
        CaptureError { kind, text: text.into() }
    }

    /// A call of the system that failed.
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
    /// Whose fault it is that a device could not be opened.
    fn from(error: CaptureError) -> ParamError {
        let system = error.kind != CaptureErrorKind::Request;
        let refused = ParamError { system, ..ParamError::new("device", error.text) };
        match error.kind {
            CaptureErrorKind::Absent => refused.with_help("`streamline devices` lists them"),
            _ => refused,
        }
    }
}

/// A program, not looked into.
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
    fn shares_are_written_as_one_of_so_many() {
        assert_eq!("1/4".parse(), Ok(Share { number: 1, of: 4 }));
        for wrong in ["", "1", "4/4", "-1/4", "1/4/2", "a/b", "1/", "0/0"] {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_take_every_flow_once() {
        for of in 1..9 {
            for hash in [0, 1, 77, u32::MAX / 2, u32::MAX - 1, u32::MAX, 0xdead_beef] {
                assert_eq!((0..of).filter(|&number| Share { number, of }.has(hash)).count(), 1);
            }
        }
    }
}
