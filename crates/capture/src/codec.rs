//! How requests and attachments are written down: little-endian fields one after the other, texts behind their length. What
//! is read was written by another process: every field is checked, and what does not fit is nothing.

use crate::attachment::{Device, Exchange};
use crate::budget::{Budget, Part};
use crate::request::{By, CaptureRequest, Direction, Mode, PROGRAM_INSTRUCTIONS};
use buffer::live::Geometry;
use program::cbpf::Instruction;

/// Bytes of a word on a reader's line.
pub const LINE_BYTES: usize = 8;

/// What a reader says on its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// It sleeps, and the packet of this number is the next it would look at.
    Asleep(u64),
}

impl Line {
    /// As bytes.
    pub fn to_bytes(self) -> [u8; LINE_BYTES] {
        let Line::Asleep(position) = self;
        position.to_le_bytes()
    }

    /// From bytes; any are a position.
    pub fn from_bytes(bytes: [u8; LINE_BYTES]) -> Line {
        Line::Asleep(u64::from_le_bytes(bytes))
    }
}

/// Longest of the owner's words on a line.
const WORD_BYTES: usize = 5;

/// What the owner says on a reader's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// There is something to read.
    Wake,
    /// Nothing comes any more: the last word.
    CloseReason(CloseReason),
}

/// Why an owner lets a reader go. Whoever dies says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The device is there no more.
    DeviceGone,
    /// This user ended the reader's client.
    Stopped(u32),
}

impl Word {
    /// As bytes, the first so many of them.
    pub fn to_bytes(self) -> ([u8; WORD_BYTES], usize) {
        match self {
            Word::Wake => ([1, 0, 0, 0, 0], 1),
            Word::CloseReason(CloseReason::DeviceGone) => ([2, 0, 0, 0, 0], 1),
            Word::CloseReason(CloseReason::Stopped(user)) => {
                let [a, b, c, d] = user.to_le_bytes();
                ([3, a, b, c, d], WORD_BYTES)
            }
        }
    }

    /// From bytes; what is no close reason wakes.
    pub fn from_bytes(bytes: &[u8]) -> Word {
        match *bytes {
            [2] => Word::CloseReason(CloseReason::DeviceGone),
            [3, a, b, c, d] => Word::CloseReason(CloseReason::Stopped(u32::from_le_bytes([a, b, c, d]))),
            _ => Word::Wake,
        }
    }
}

/// Longest text.
const TEXT_BYTES: usize = 4096;

/// Fields being written.
#[derive(Debug, Default)]
pub struct Out(pub Vec<u8>);

impl Out {
    /// A byte.
    pub fn u8(&mut self, value: u8) -> &mut Out {
        self.0.push(value);
        self
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) -> &mut Out {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Out {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Out {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A text; what is too long is cut.
    pub fn text(&mut self, value: &str) -> &mut Out {
        let mut end = value.len().min(TEXT_BYTES);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        self.u16(end as u16);
        self.0.extend(&value.as_bytes()[..end]);
        self
    }

    /// A program.
    pub fn program(&mut self, program: &[Instruction]) -> &mut Out {
        self.u32(program.len() as u32);
        for &Instruction { code, jt, jf, k } in program {
            self.u16(code).u8(jt).u8(jf).u32(k);
        }
        self
    }

    /// A capture request.
    pub fn capture_request(&mut self, asked: &CaptureRequest) -> &mut Out {
        self.text(&asked.device)
            .u8(asked.mode as u8)
            .u8(asked.by as u8)
            .u8(asked.direction as u8)
            .program(&asked.program)
            .u32(asked.sample)
            .u8(asked.counts.is_some().into())
            .u32(asked.counts.unwrap_or(0))
            .u8(asked.promiscuous.into())
            .u64(asked.ring_bytes)
            .u64(asked.last_ns)
            .u8(asked.keep.into())
    }

    /// A device.
    pub fn device(&mut self, device: &Device) -> &mut Out {
        self.text(&device.name)
            .u32(device.index)
            .u16(device.link_type)
            .u32(device.mtu)
            .text(&device.how)
            .u8(device.copied.into())
    }

    /// A device's budget, if it has one.
    pub fn budget(&mut self, budget: Option<&Budget>) -> &mut Out {
        self.u8(budget.is_some().into());
        let parts = budget.into_iter().flat_map(|budget| [budget.user, budget.all]);
        parts.fold(self, |out, part| out.u32(part.taken).u32(part.of))
    }

    /// Size of a ring.
    pub fn geometry(&mut self, geometry: &Geometry) -> &mut Out {
        self.u32(geometry.slots).u64(geometry.ring_bytes).u32(geometry.cpus)
    }

    /// An exchange.
    pub fn exchange(&mut self, exchange: &Exchange) -> &mut Out {
        let (packets, bytes) = exchange.matched_before;
        self.u8(exchange.bit).u64(packets).u64(bytes).u64(exchange.first)
    }
}

/// Fields being read: each step is `None` where what is there cannot be.
#[derive(Debug)]
pub struct In<'a>(pub &'a [u8]);

impl In<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// A byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    /// Yes or no.
    pub fn bool(&mut self) -> Option<bool> {
        self.u8().filter(|byte| *byte < 2).map(|byte| byte == 1)
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A text.
    pub fn text(&mut self) -> Option<String> {
        let len = usize::from(self.u16()?);
        let (text, rest) = self.0.split_at_checked(len).filter(|_| len <= TEXT_BYTES)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    /// A program, not looked into.
    pub fn program(&mut self) -> Option<Vec<Instruction>> {
        let count = self.u32()? as usize;
        if count > PROGRAM_INSTRUCTIONS || count * 8 > self.0.len() {
            return None;
        }
        (0..count)
            .map(|_| Some(Instruction { code: self.u16()?, jt: self.u8()?, jf: self.u8()?, k: self.u32()? }))
            .collect()
    }

    /// A capture request.
    pub fn capture_request(&mut self) -> Option<CaptureRequest> {
        Some(CaptureRequest {
            device: self.text()?,
            mode: *[Mode::Tap, Mode::Consume].get(usize::from(self.u8()?))?,
            by: *[By::WhatIsBest, By::Kernel, By::PacketSocket].get(usize::from(self.u8()?))?,
            direction: *[Direction::Both, Direction::In, Direction::Out].get(usize::from(self.u8()?))?,
            program: self.program()?,
            sample: self.u32()?,
            counts: {
                let (counts, snap_len) = (self.bool()?, self.u32()?);
                if !counts && snap_len != 0 {
                    return None;
                }
                counts.then_some(snap_len)
            },
            promiscuous: self.bool()?,
            ring_bytes: self.u64()?,
            last_ns: self.u64()?,
            keep: self.bool()?,
        })
    }

    /// A device.
    pub fn device(&mut self) -> Option<Device> {
        let (name, index, link_type, mtu) = (self.text()?, self.u32()?, self.u16()?, self.u32()?);
        Some(Device { name, index, link_type, mtu, how: self.text()?, copied: self.bool()? })
    }

    /// A device's budget, if it has one.
    pub fn budget(&mut self) -> Option<Option<Budget>> {
        if !self.bool()? {
            return Some(None);
        }
        let mut part = || Some(Part { taken: self.u32()?, of: self.u32()? });
        Some(Some(Budget { user: part()?, all: part()? }))
    }

    /// Size of a ring, if a ring can have it.
    pub fn geometry(&mut self) -> Option<Geometry> {
        let geometry = Geometry { slots: self.u32()?, ring_bytes: self.u64()?, cpus: self.u32()? };
        Some(geometry).filter(Geometry::is_sound)
    }

    /// An exchange.
    pub fn exchange(&mut self) -> Option<Exchange> {
        let bit = self.u8().filter(|bit| *bit < 64)?;
        Some(Exchange { bit, matched_before: (self.u64()?, self.u64()?), first: self.u64()? })
    }

    /// Is everything read?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_nothing() {
        let asked = CaptureRequest {
            device: "eth0".into(),
            mode: Mode::Consume,
            by: By::PacketSocket,
            direction: Direction::Out,
            program: vec![Instruction { code: 6, jt: 1, jf: 2, k: 0xffff_ffff }; 3],
            sample: 10,
            counts: Some(96),
            promiscuous: true,
            ring_bytes: 1 << 30,
            last_ns: 5,
            keep: true,
        };
        let device =
            Device { name: "a".into(), index: 3, link_type: 1, mtu: 1500, how: "by the kernel".into(), copied: true };
        let geometry = Geometry::new(1 << 20, 2);
        let exchange = Exchange { bit: 63, matched_before: (1, 2), first: 3 };
        let budget = Budget { user: Part { taken: 1, of: 2 }, all: Part { taken: 3, of: 4 } };
        let mut out = Out::default();
        out.capture_request(&asked)
            .device(&device)
            .geometry(&geometry)
            .budget(None)
            .budget(Some(&budget))
            .exchange(&exchange);
        let read = |bytes| {
            let mut fields = In(bytes);
            let what = (fields.capture_request()?, fields.device()?, fields.geometry()?);
            let all = (what, fields.budget()?, fields.budget()?, fields.exchange()?);
            fields.is_empty().then_some(all)
        };
        assert_eq!(read(&out.0), Some(((asked, device, geometry), None, Some(budget), exchange)));
        assert!((0..out.0.len()).all(|cut| read(&out.0[..cut]).is_none()));
    }
}
