//! Options of a packet socket that receives.

use crate::error::Error;
use crate::filter::{Instruction, everything};
use std::time::Duration;

/// How to receive. [`Options::default`] suits a capture: both directions, 8 MiB of memory, frames at most 10 ms late.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a block, which the receiver gets as a whole: a multiple of 4 KiB, and at least [`BLOCK_BYTES_MIN`], so
    /// that the largest frame fits.
    pub block_bytes: usize,
    /// Blocks in the ring. Together they are how far the receiver may be behind.
    pub block_count: usize,
    /// The receiver gets a block that is not full after this time: how late a frame may be.
    pub block_timeout: Duration,
    /// Gives each frame as soon as it has come, up to 64 with a system call, instead of in blocks of a ring. The kernel
    /// keeps as many bytes as all blocks have.
    pub at_once: bool,
    /// Direction of the frames.
    pub direction: Direction,
    /// Makes the device receive frames for other hosts too, as long as the receiver is open.
    pub promiscuous: bool,
    /// Makes the device receive frames for every multicast group, as long as the receiver is open.
    pub all_groups: bool,
    /// The filter program.
    pub filter: Vec<Instruction>,
    /// Shares the device's frames with other receivers of the same group.
    pub fanout: Option<Fanout>,
    /// The clock of the frames' times.
    pub timestamps: Timestamps,
    /// Makes the kernel compute a hash of each frame's flow.
    pub flow_hash: bool,
    /// Makes the kernel give the segment length of super-frames. It then refuses the few kinds of super-frames that it
    /// cannot describe, and counts them as dropped.
    pub segment_sizes: bool,
}

/// Fewest bytes of a block: a frame of 64 KiB with everything before it.
pub const BLOCK_BYTES_MIN: usize = 128 << 10;

/// Most bytes of a ring.
pub const RING_BYTES_MAX: usize = 2 << 30;

/// Bytes kept of a frame, unless a filter says otherwise.
const SNAP_BYTES: u32 = 1 << 18;

const PAGE_BYTES: usize = 4096;

impl Default for Options {
    fn default() -> Options {
        Options {
            block_bytes: 256 << 10,
            block_count: 32,
            block_timeout: Duration::from_millis(10),
            at_once: false,
            direction: Direction::Both,
            promiscuous: false,
            all_groups: false,
            filter: everything(SNAP_BYTES),
            fanout: None,
            timestamps: Timestamps::Kernel,
            flow_hash: false,
            segment_sizes: false,
        }
    }
}

/// Direction of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received and sent. On a loopback device each frame is both, and comes once, as received.
    Both,
    /// Received.
    In,
    /// Sent by this host.
    Out,
}

/// The clock of frames' times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timestamps {
    /// The kernel's, at the time when it first sees the frame.
    Kernel,
    /// The device's, if it has one; the kernel stamps all other frames. Each frame tells its clock.
    HardwareIfThere,
}

/// A group of receivers that share a device's frames; each frame goes to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout {
    /// The group's number in the network namespace; other programs that know it, and have the right, can join.
    pub group: u16,
    /// The rule that chooses the member for a frame.
    pub by: FanoutBy,
    /// Reassembles IP fragments first, so that they go where their flow goes.
    pub defragment: bool,
}

/// Chooses the member of a group that gets a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanoutBy {
    /// By flow; both directions go to the same member.
    Hash,
    /// By the processor that handled it.
    Cpu,
    /// One after the other.
    RoundRobin,
    /// By the device's queue.
    Queue,
}

impl Fanout {
    pub(super) fn word(self) -> u32 {
        let by = match self.by {
            FanoutBy::Hash => libc::PACKET_FANOUT_HASH,
            FanoutBy::Cpu => libc::PACKET_FANOUT_CPU,
            FanoutBy::RoundRobin => libc::PACKET_FANOUT_LB,
            FanoutBy::Queue => libc::PACKET_FANOUT_QM,
        };
        let flags = if self.defragment { libc::PACKET_FANOUT_FLAG_DEFRAG } else { 0 };
        u32::from(self.group) | (by | flags) << 16
    }
}

impl Options {
    pub(super) fn ring(&self) -> Result<libc::tpacket_req3, Error> {
        let bytes = self.block_bytes.checked_mul(self.block_count).filter(|&bytes| bytes <= RING_BYTES_MAX);
        let sound = self.block_bytes.is_multiple_of(PAGE_BYTES) && self.block_bytes >= BLOCK_BYTES_MIN;
        if bytes.is_none() || !sound || self.block_count < 2 {
            return Err(Error::Invalid(format!(
                "a ring of {} blocks of {} bytes: it takes two or more, each a multiple of {PAGE_BYTES} and at least \
                 {BLOCK_BYTES_MIN}, all of them at most {RING_BYTES_MAX}",
                self.block_count, self.block_bytes
            )));
        }
        let timeout_ms = self.block_timeout.as_millis().clamp(1, 10_000) as u32;
        // Frames follow each other directly; the kernel wants their size, but does not use it.
        let frame_bytes = PAGE_BYTES;
        Ok(libc::tpacket_req3 {
            tp_block_size: self.block_bytes as u32,
            tp_block_nr: self.block_count as u32,
            tp_frame_size: frame_bytes as u32,
            tp_frame_nr: (self.block_bytes / frame_bytes * self.block_count) as u32,
            tp_retire_blk_tov: timeout_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: if self.flow_hash { libc::TP_FT_REQ_FILL_RXHASH } else { 0 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_that_cannot_be_are_refused() {
        let check = |block_bytes, block_count, expected: bool| {
            let options = Options { block_bytes, block_count, ..Options::default() };
            assert_eq!(options.ring().is_ok(), expected, "{block_bytes} * {block_count}");
        };
        check(BLOCK_BYTES_MIN, 2, true);
        check(BLOCK_BYTES_MIN, 1, false);
        check(BLOCK_BYTES_MIN - PAGE_BYTES, 2, false);
        check(BLOCK_BYTES_MIN + 1, 2, false);
        check(RING_BYTES_MAX / 2, 2, true);
        check(RING_BYTES_MAX, 2, false);
        check(usize::MAX & !(PAGE_BYTES - 1), 2, false);
    }
}
