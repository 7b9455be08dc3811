//! What an assembler is told: its limits, which checksums count, and where urgent bytes go.

use super::segment::Checksum;
use crate::parts::policy::Policies;
use base::limits::{
    TCP_CONNECTIONS, TCP_GAP_WAIT_NS, TCP_HELD_BLOCKS, TCP_HELD_BLOCKS_PER_DIRECTION, TCP_HELD_BYTES, TCP_IDLE_NS,
    TCP_REMEMBERED,
};

/// Settings and limits.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Maximum connections in the table.
    pub connections: usize,
    /// Maximum ended connections among them.
    pub remembered: usize,
    /// Maximum pieces held of one direction.
    pub held_per_direction: usize,
    /// Maximum pieces held in all.
    pub held: usize,
    /// Silence after which a connection ends, ns.
    pub idle: u64,
    /// Time after which acknowledged missing bytes are given up, ns.
    pub gap_wait: u64,
    /// Maximum bytes held.
    pub memory: u64,
    /// Whose bytes count where two waiting segments overlap.
    pub policies: Policies,
    /// Which checksums must be right.
    pub checksums: Checksums,
    /// Leave out segments that the receiver would drop; `checksums` is separate.
    pub check: bool,
    /// Where urgent bytes go.
    pub urgent: Urgent,
    /// `true`: data that its receiver should have dropped waits in doubt until the receiver shows that it took it.
    /// `false`, for a filter between the two ends (`ips`): such data is dropped at once. That filter also drops data
    /// that finds no room, and retransmissions of forgotten data, because making room would forget bytes that passed.
    pub doubts: bool,
    /// Maximum bytes of given data kept to compare retransmissions with; 0 = none.
    pub keep_given: u64,
    /// Note each conflict, for [`Assembler::take_conflicts`](super::assembler::Assembler::take_conflicts).
    pub conflicts: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            connections: TCP_CONNECTIONS,
            remembered: TCP_REMEMBERED,
            held_per_direction: TCP_HELD_BLOCKS_PER_DIRECTION,
            held: TCP_HELD_BLOCKS,
            idle: TCP_IDLE_NS,
            gap_wait: TCP_GAP_WAIT_NS,
            memory: TCP_HELD_BYTES,
            policies: Policies::default(),
            checksums: Checksums::default(),
            check: true,
            urgent: Urgent::default(),
            doubts: true,
            keep_given: 0,
            conflicts: false,
        }
    }
}

/// How checksums are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksums {
    /// Segments with a wrong checksum are left out once their sender has shown a right one. Until then the capture may
    /// be from before a device finished them, or was changed later.
    #[default]
    Auto,
    /// Segments with a wrong checksum are left out, and unfinished ones as well.
    Yes,
    /// Checksums are not verified.
    No,
}

pub(crate) const CHECKSUMS: [&str; 3] = ["auto", "yes", "no"];

impl Checksums {
    /// The handling that `word` names.
    pub fn of(word: Option<&str>) -> Checksums {
        match word {
            Some("yes") => Checksums::Yes,
            Some("no") => Checksums::No,
            _ => Checksums::Auto,
        }
    }

    /// Whether this checksum excludes a segment. `has_shown_right`: its sender has shown a right one.
    pub fn refuse(self, checksum: Checksum, has_shown_right: bool) -> bool {
        checksum == Checksum::Wrong && (self == Checksums::Yes || has_shown_right)
    }
}

/// What becomes of urgent bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgent {
    /// They stay in the stream.
    #[default]
    Inline,
    /// They are left out.
    Out,
    /// They are left out; segments are dropped whose result depends on when the receiver's program reads, or on which
    /// segments are lost behind this filter. So a direction has one urgent byte, and each segment with it says so.
    Sure,
}

impl Urgent {
    /// The handling that the parameter's `word` names; `is_sure` says which one of those that leave bytes out.
    pub fn of(word: Option<&str>, is_sure: bool) -> Urgent {
        match (word, is_sure) {
            (Some("oob"), false) => Urgent::Out,
            (Some("oob"), true) => Urgent::Sure,
            _ => Urgent::Inline,
        }
    }
}
