//! Divides blocks among partitions: batches in turn, streams by number, frames by flow or by the two hosts. Both directions have one
//! partition.

use crate::kind::{Kind, Mode, Parts};
use crate::types::Type;
use buffer::{BlockTable, Descriptor};
use packet::flow::{Flow, FlowHasher};
use packet::frame;
use packet::link::LinkType;

/// Divides blocks among partitions.
#[derive(Debug)]
pub struct Partitioner {
    division: Division,
    count: u64,
    hasher: FlowHasher,
    /// The partition of the last batch.
    turn: u64,
}

/// The same in every run. An attacker who picks addresses so that all flows meet in one partition only costs speed.
const SEED: u64 = 2;

impl Partitioner {
    /// Makes `count` partitions; 0 counts as 1.
    pub fn new(division: Division, count: usize) -> Partitioner {
        Partitioner { division, count: count.max(1) as u64, hasher: FlowHasher::new(SEED), turn: 0 }
    }

    /// Call this before dividing a batch.
    #[inline]
    pub fn begin_batch(&mut self) {
        self.turn = (self.turn + 1) % self.count;
    }

    /// The partition of a block of the present batch.
    #[inline]
    pub fn of(&self, rings: &BlockTable, block: &Descriptor) -> usize {
        match self.division {
            Division::Batches => self.turn as usize,
            Division::Streams => (u64::from(block.class.connection()) % self.count) as usize,
            Division::Flows => (flow_hash(&self.hasher, rings, block, true) % self.count) as usize,
            Division::Hosts => (flow_hash(&self.hasher, rings, block, false) % self.count) as usize,
        }
    }
}

/// A hash of the flow of a frame, or of its two addresses alone, the same for both directions; 0 for a frame without a flow.
#[inline]
fn flow_hash(hasher: &FlowHasher, rings: &BlockTable, block: &Descriptor, has_ports: bool) -> u64 {
    let Some(link) = rings.link_type(block).map(LinkType) else { return 0 };
    let bytes = rings.bytes(block);
    let Ok(frame) = frame::parse(link, bytes, block.wire()) else { return 0 };
    let flow = Flow::of(&frame, bytes);
    // Later fragments do not know their ports, so the ports of the first do not count either.
    let flow = match frame.fragment {
        _ if !has_ports => Flow { source_port: 0, target_port: 0, protocol: 0, ..flow },
        Some(_) => Flow { source_port: 0, target_port: 0, ..flow },
        None => flow,
    };
    hasher.hash(&flow)
}

/// How a splitter divides blocks. Each division keeps together all blocks that the divisions before it keep together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Division {
    /// Each batch goes to one partition, in turn.
    Batches,
    /// All blocks of a stream go to one partition, both directions.
    Streams,
    /// All frames of a flow go to one partition, both directions.
    #[default]
    Flows,
    /// All frames between two hosts do, by the outermost addresses: what fragments and tunnels between them hold meets there.
    Hosts,
}

impl Division {
    /// The partition's part of the blocks, for people.
    pub const fn words(self) -> &'static str {
        match self {
            Division::Batches => "each a batch in turn",
            Division::Streams => "each its share of the streams",
            Division::Flows => "each its share of the flows",
            Division::Hosts => "each its share of the pairs of hosts",
        }
    }
}

/// The role of a filter when flows are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitioning {
    /// It makes streams from frames, each flow by itself: partitions begin here.
    Begins,
    /// It makes packets of frames between the same hosts: partitions of flows begin behind it, those of pairs of hosts may before.
    Opens,
    /// It handles each block or stream by itself: each partition has a copy.
    Copied,
    /// It sees all blocks: there is only one.
    Single,
}

impl Partitioning {
    /// The role of a kind.
    pub fn of(kind: &Kind) -> Partitioning {
        let makes_streams = kind.writes.has(Parts::STREAMS) && kind.takes.has(Type::Frame) && !kind.is_source();
        match kind.mode {
            Mode::Serial if kind.sees_all => Partitioning::Single,
            Mode::Serial if makes_streams => Partitioning::Begins,
            Mode::Serial if kind.opens.is_some() => Partitioning::Opens,
            Mode::Serial => Partitioning::Single,
            Mode::Stateless | Mode::Session(_) => Partitioning::Copied,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use buffer::Interface;

    /// Ethernet, IPv4 between two hosts of these numbers, and the first bytes behind it.
    fn frame(hosts: [u8; 2], fragment: u16, behind: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 34];
        (bytes[12], bytes[14], bytes[22], bytes[23]) = (8, 0x45, 64, 17);
        bytes[16..18].copy_from_slice(&(20 + behind.len() as u16).to_be_bytes());
        bytes[20..22].copy_from_slice(&fragment.to_be_bytes());
        bytes[26..34].copy_from_slice(&[10, 0, 0, hosts[0], 10, 0, 0, hosts[1]]);
        bytes.extend(behind);
        bytes
    }

    fn datagram(port: u16) -> Vec<u8> {
        let [high, low] = port.to_be_bytes();
        vec![high, low, 0, 53, 0, 8, 0, 0]
    }

    /// The partition that each frame has, of four.
    fn partitions(division: Division, frames: &[Vec<u8>]) -> Vec<usize> {
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let view = rings.add_view(segment, Interface { link_type: Some(1), ..Interface::default() }).unwrap();
        let partitions = Partitioner::new(division, 4);
        let of = |bytes: &Vec<u8>| {
            let mut block = rings.append_copy(view, &[bytes]).unwrap();
            block.set_wire(bytes.len() as u32);
            partitions.of(&rings, &block)
        };
        frames.iter().map(of).collect()
    }

    #[test]
    fn hosts_meet_in_one_share() {
        const FIRST: u16 = 0x2000;
        let between = |hosts: [u8; 2]| {
            let ports = (0..8).map(|port| frame(hosts, 0, &datagram(port)));
            ports.chain([frame(hosts, FIRST, &datagram(9)), frame(hosts, 1, b"behind it")]).collect::<Vec<_>>()
        };
        let there = between([1, 2]);
        let all = [there.clone(), between([2, 1])].concat();
        let found = partitions(Division::Hosts, &all);
        assert!(found.iter().all(|partition| *partition == found[0]), "{found:?}");
        // The ports divide the others; fragments of one packet have no ports.
        let found = partitions(Division::Flows, &there);
        assert!(found[..8].iter().any(|partition| *partition != found[0]) && found[8] == found[9], "{found:?}");
        let others: Vec<_> = (1..20).map(|host| frame([host, 100], 0, &datagram(1))).collect();
        let found = partitions(Division::Hosts, &others);
        assert!((0..4).all(|partition| found.contains(&partition)), "{found:?}");
    }
}
