//! Divides blocks among shares: batches in turn, streams by number, frames by flow. Both directions of a flow go to one
//! share.

use crate::kind::{Kind, Mode, Parts, Type};
use buffer::{BlockTable, Descriptor};
use packet::flow::{Flow, FlowHasher};
use packet::frame;
use packet::link::LinkType;

/// Divides blocks among shares.
#[derive(Debug)]
pub struct Shares {
    division: Division,
    count: u64,
    hasher: FlowHasher,
    /// The share of the last batch.
    turn: u64,
}

/// The same in every run. An attacker who picks addresses so that all flows meet in one share only costs speed.
const SEED: u64 = 2;

impl Shares {
    /// Makes `count` shares; 0 counts as 1.
    pub fn new(division: Division, count: usize) -> Shares {
        Shares { division, count: count.max(1) as u64, hasher: FlowHasher::new(SEED), turn: 0 }
    }

    /// Call this before dividing a batch.
    #[inline]
    pub fn begin_batch(&mut self) {
        self.turn = (self.turn + 1) % self.count;
    }

    /// The share of a block of the present batch.
    #[inline]
    pub fn of(&self, rings: &BlockTable, block: &Descriptor) -> usize {
        match self.division {
            Division::Batches => self.turn as usize,
            Division::Streams => (u64::from(block.class.connection()) % self.count) as usize,
            Division::Flows => (flow_hash(&self.hasher, rings, block) % self.count) as usize,
        }
    }
}

/// A hash of a frame's flow, the same for both directions; 0 for a frame without a flow.
#[inline]
fn flow_hash(hasher: &FlowHasher, rings: &BlockTable, block: &Descriptor) -> u64 {
    let Some(link) = rings.link_type(block).map(LinkType) else { return 0 };
    let bytes = rings.bytes(block);
    let Ok(frame) = frame::parse(link, bytes, block.wire()) else { return 0 };
    let flow = Flow::of(&frame, bytes);
    // Later fragments do not know their ports, so the ports of the first do not count either.
    let flow = match frame.fragment {
        Some(_) => Flow { source_port: 0, target_port: 0, ..flow },
        None => flow,
    };
    hasher.hash(&flow)
}

/// How a splitter divides blocks. Each division keeps together all blocks that the divisions before it keep together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Division {
    /// Each batch goes to one share, in turn.
    Batches,
    /// All blocks of a stream go to one share, both directions.
    Streams,
    /// All frames of a flow go to one share, both directions.
    #[default]
    Flows,
}

impl Division {
    /// The share's part of the blocks, for people.
    pub const fn words(self) -> &'static str {
        match self {
            Division::Batches => "each a batch in turn",
            Division::Streams => "each its share of the streams",
            Division::Flows => "each its share of the flows",
        }
    }
}

/// The role of a filter when flows are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// It makes streams from frames, each flow by itself: shares begin here.
    Begins,
    /// It handles each block or stream by itself: each share has a copy.
    Copied,
    /// It sees all blocks: there is only one.
    Single,
}

impl Sharing {
    /// The role of a kind.
    pub fn of(kind: &Kind) -> Sharing {
        let makes_streams = kind.writes.has(Parts::STREAMS) && kind.takes.has(Type::Frame) && !kind.is_source();
        match kind.mode {
            Mode::Serial if makes_streams => Sharing::Begins,
            Mode::Serial => Sharing::Single,
            Mode::Stateless | Mode::Session(_) => Sharing::Copied,
        }
    }
}
