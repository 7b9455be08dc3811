//! Every maximum in the system, in one file, as sums of named terms; relations between them are checked when it compiles.
//!
//! A limit that is met is counted or reported where it is met; none of them is silent.

/// Blocks in one batch: one bit each in a batch's `live` word.
pub const BATCH_BLOCKS: usize = 64;

/// Views a table of rings can name at once: all values of a descriptor's ring field.
pub const RINGS: usize = 1 << 16;

/// Bytes of one block at most: what the descriptor's 24-bit wire length can say.
pub const BLOCK_BYTES: usize = (1 << 24) - 1;

/// An append ring grows and shrinks by regions of this size.
pub const APPEND_REGION_BYTES: usize = 1 << 20;

/// Regions of one append ring that held blocks may keep from being used again; further holds are copied.
pub const PINNED_REGIONS: usize = 64;

/// Empty regions an append ring keeps for its next bytes.
pub const SPARE_REGIONS: usize = 4;

/// Files mapped at the same time whose cutting under the map is caught; further files are read instead.
pub const MAPPED_FILES: usize = 256;

/// Streams (connections and flows) known at a time; the one longest silent makes room.
pub const STREAMS: usize = 1 << 20;

/// Sessions one filter keeps at a time; the one longest silent makes room.
pub const SESSIONS: usize = STREAMS;

/// A session without a block for this long (packet time) is closed.
pub const SESSION_IDLE_NS: u64 = 600 * SECOND_NS;

/// One second of packet time.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Nodes of one plan: filters of all requests together.
pub const PLAN_NODES: usize = 4096;

/// Notices (warnings for people) kept of one run; more are counted.
pub const NOTICES: usize = 64;

const _: () = assert!(BATCH_BLOCKS == u64::BITS as usize);
const _: () = assert!(APPEND_REGION_BYTES.is_power_of_two());
const _: () = assert!(SESSIONS >= STREAMS, "a filter can follow every stream there is");
const _: () = assert!(STREAMS < (u32::MAX / 2) as usize, "a class is connection * 2 + direction");
