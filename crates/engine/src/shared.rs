//! What all nodes of a thread share, and the context of a call into one of them.

use base::atomic::StopFlag;
use buffer::BlockTable;
use filter::{Order, StreamTable};

pub(crate) struct Shared {
    pub(crate) rings: BlockTable,
    pub(crate) streams: StreamTable,
    pub(crate) now: u64,
    /// Time of the first block of the run.
    pub(crate) began: Option<u64>,
    pub(crate) notices: Vec<String>,
    pub(crate) order: Order,
    pub(crate) stop: StopFlag,
}

/// The context of a call into a node. The parts are borrowed one by one, so that the node's filter stays free.
macro_rules! context {
    ($node:expr, $shared:expr) => {
        Context {
            rings: &mut $shared.rings,
            streams: &mut $shared.streams,
            out: &mut $node.out,
            counters: &mut $node.counters,
            marks: &mut $node.marks,
            own: $node.own,
            now: $shared.now,
            exclusive: $node.exclusive,
            wanted: if $node.watches == 0 { &$node.read_behind } else { &$node.read_watched },
            wake: &mut $node.wake,
            notices: &mut $shared.notices,
            order: &mut $shared.order,
            stop: &$shared.stop,
        }
    };
}
pub(crate) use context;
