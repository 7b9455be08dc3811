//! What may be said when a packet socket is opened for receiving.

use crate::error::Error;
use crate::filter::{Instruction, everything};
use std::time::Duration;

/// How to receive. [`Options::default`] suits a tap: everything both ways, 8 MiB of memory, given after 10 ms at the latest.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of one block, which is given over to the receiver as a whole: a multiple of 4 KiB, at least
    /// [`BLOCK_BYTES_MIN`], so that the largest frame fits.
    pub block_bytes: usize,
    /// Blocks in the ring. All of them together are what the receiver may be late.
    pub block_count: usize,
    /// A block that is not full is given over after this long: how late a frame may be.
    pub block_timeout: Duration,
    /// Gives each frame as soon as it has come, by a system call for up to 64, and not in blocks of a ring. The kernel keeps as many bytes
    /// as all blocks have.
    pub at_once: bool,
    /// Which way the frames go.
    pub direction: Direction,
    /// Has the device receive what is for others, too, as long as the receiver is open.
    pub promiscuous: bool,
    /// Has the device receive what is for any group, as long as the receiver is open.
    pub all_groups: bool,
    /// What is let through.
    pub filter: Vec<Instruction>,
    /// Shares the device's frames with other receivers of the same group.
    pub fanout: Option<Fanout>,
    /// Whose clock stamps the frames.
    pub timestamps: Timestamps,
    /// Has the kernel compute a hash of each frame's flow.
    pub flow_hash: bool,
    /// Has the kernel say how long the segments of a super-frame are. It then refuses, counted as dropped, the few sorts of
    /// super-frames it has no words for.
    pub segment_sizes: bool,
}

/// Bytes of a block at least: a frame of 64 KiB with all that stands before it.
pub const BLOCK_BYTES_MIN: usize = 128 << 10;

/// Bytes of a ring at most.
pub const RING_BYTES_MAX: usize = 2 << 30;

/// Bytes of a frame that are kept, if no filter says otherwise.
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

/// Which way frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received and sent. On a loopback device each frame is both, and given once, as received.
    Both,
    /// Received.
    In,
    /// Sent by this host.
    Out,
}

/// Whose clock stamps the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timestamps {
    /// The kernel's, when it first sees the frame.
    Kernel,
    /// The device's where it has one; what it does not stamp, the kernel does. Each frame says which.
    HardwareIfThere,
}

/// A group of receivers that share a device's frames, each of which goes to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout {
    /// The group's number in the network namespace; others that know it and may, can join.
    pub group: u16,
    /// To which member a frame goes.
    pub by: FanoutBy,
    /// Puts IP fragments together first, so that they go where their flow goes.
    pub defragment: bool,
}

/// To which member of a group a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanoutBy {
    /// By its flow: both directions to the same.
    Hash,
    /// By the processor it came by.
    Cpu,
    /// To one after the other.
    RoundRobin,
    /// By the device's queue it came by.
    Queue,
}

impl Fanout {
    /// As the kernel takes it.
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
    /// The ring as the kernel is asked for it.
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
        // Frames lie one after the other; their size is asked for, and used for nothing.
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
