//! Which share of the flows a frame belongs to: both directions of a flow to the same one, whoever asks.

use crate::kind::{Kind, Mode, Parts, Type};
use buffer::{BlockTable, Descriptor};
use packet::flow::{Flow, FlowHasher};
use packet::frame;
use packet::link::LinkType;

/// Divides frames among shares by the hash of their flows.
#[derive(Debug)]
pub struct Shares {
    count: u64,
    hasher: FlowHasher,
}

/// The same for every run: who chooses addresses so that all flows meet in one share costs speed, and nothing else.
const SEED: u64 = 2;

impl Shares {
    /// Of so many shares, 1 at least.
    pub fn new(count: usize) -> Shares {
        Shares { count: count.max(1) as u64, hasher: FlowHasher::new(SEED) }
    }

    /// The share of a frame; the first of what has no flow.
    #[inline]
    pub fn of(&self, rings: &BlockTable, block: &Descriptor) -> usize {
        let Some(link) = rings.link_type(block).map(LinkType) else { return 0 };
        let bytes = rings.bytes(block);
        let Ok(frame) = frame::parse(link, bytes, block.wire()) else { return 0 };
        let flow = Flow::of(&frame, bytes);
        // Later fragments do not know their ports; the first must not stand apart from them.
        let flow = match frame.fragment {
            Some(_) => Flow { source_port: 0, target_port: 0, ..flow },
            None => flow,
        };
        (self.hasher.hash(&flow) % self.count) as usize
    }
}

/// What a filter is to shares of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// It makes streams of frames, each flow by itself: shares begin here.
    Begins,
    /// It looks at each block, or each stream, by itself: a share has a copy of it.
    Copied,
    /// It sees all blocks: there is one.
    Single,
}

impl Sharing {
    /// Of a kind.
    pub fn of(kind: &Kind) -> Sharing {
        let makes_streams = kind.writes.has(Parts::STREAMS) && kind.takes.has(Type::Frame) && !kind.is_source();
        match kind.mode {
            Mode::Serial if makes_streams => Sharing::Begins,
            Mode::Serial => Sharing::Single,
            Mode::Stateless | Mode::Session(_) => Sharing::Copied,
        }
    }
}
