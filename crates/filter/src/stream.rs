//! Facts about connections and flows, by class: addresses, ports, start and state.
//!
//! All filters that make streams (`tcp`, `udp`) share one table, so that a class means the same in all filters behind
//! them. A number is reused only after all others. So a late reader finds no facts before it could find those of
//! another connection.

use base::id::Class;
use base::limits::STREAMS;
use packet::encapsulation::Vlans;
use packet::flow::Flow;
use packet::tunnel::stack::Tunnels;
use std::collections::VecDeque;

/// The state of a connection, as its transport protocol shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamState {
    /// Its beginning is not in the capture.
    #[default]
    Midstream,
    /// A SYN was seen.
    Opening,
    /// Both sides have sent.
    Established,
    /// Both directions ended with FIN.
    Closed,
    /// It ended with RST.
    Reset,
    /// It was cut: idle for too long, to make room, or at the end of the capture.
    Cut,
}

impl StreamState {
    /// Its word in records.
    pub const fn name(self) -> &'static str {
        match self {
            StreamState::Midstream => "midstream",
            StreamState::Opening => "opening",
            StreamState::Established => "established",
            StreamState::Closed => "closed",
            StreamState::Reset => "reset",
            StreamState::Cut => "cut",
        }
    }
}

/// Facts about one connection or flow. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamFacts {
    /// Addresses and ports, from the client to the server.
    pub flow: Flow,
    /// Time of its first block, ns since 1970 UTC.
    pub start: u64,
    /// How many connections with the same addresses and ports came before it.
    pub reuse: u32,
    /// VLAN tags of its packets.
    pub vlans: Vlans,
    /// The tunnels around its packets.
    pub tunnels: Option<Tunnels>,
    /// Its state.
    pub state: StreamState,
}

impl StreamFacts {
    /// Facts about a flow that began at this time and is in this state. It is the first with its addresses and ports,
    /// in no VLAN and in no tunnel.
    pub fn new(flow: Flow, start: u64, state: StreamState) -> StreamFacts {
        StreamFacts { flow, start, reuse: 0, vlans: Vlans::default(), tunnels: None, state }
    }

    /// Addresses and ports in this class's direction.
    pub fn directed(&self, class: Class) -> Flow {
        if class.direction() == 0 { self.flow } else { self.flow.reversed() }
    }
}

/// The table of connections and flows.
#[derive(Debug, Default)]
pub struct StreamTable {
    slots: Vec<Option<StreamFacts>>,
    /// For each number: how many connections have had it.
    epochs: Vec<u32>,
    free: VecDeque<u32>,
    /// Closed connections, which blocks on their way may still name.
    ending: Vec<u32>,
    open: usize,
    changes: u64,
}

/// Number of freed numbers that wait, so that a number is not reused at once.
const REUSE_DELAY: usize = 4096;

impl StreamTable {
    /// An empty table.
    pub fn new() -> StreamTable {
        StreamTable::default()
    }

    /// Gives a number to a new connection. `None`: all [`STREAMS`] are in use, so end an old one first.
    pub fn open(&mut self, facts: StreamFacts) -> Option<u32> {
        self.changes += 1;
        let number = if self.free.len() > REUSE_DELAY || self.slots.len() >= STREAMS {
            self.free.pop_front()?
        } else {
            self.slots.push(None);
            self.epochs.push(0);
            (self.slots.len() - 1) as u32
        };
        self.slots[number as usize] = Some(facts);
        self.epochs[number as usize] = self.epochs[number as usize].wrapping_add(1);
        self.open += 1;
        Some(number)
    }

    /// Copies facts from another table, for a reader of copied blocks. The numbers are those of the other table, so do
    /// not [open](StreamTable::open) connections in this one.
    pub fn mirror(&mut self, class: Class, facts: StreamFacts, epoch: u32) {
        self.changes += 1;
        let number = class.connection() as usize;
        if number >= STREAMS {
            return;
        }
        if self.slots.len() <= number {
            self.slots.resize(number + 1, None);
            self.epochs.resize(number + 1, 0);
        }
        self.open += usize::from(self.slots[number].is_none());
        (self.slots[number], self.epochs[number]) = (Some(facts), epoch);
    }

    /// How often a filter has changed the table.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Ends a connection after its last block was given. Its facts stay until the next [`sweep`](StreamTable::sweep).
    pub fn close(&mut self, connection: u32) {
        self.changes += 1;
        self.ending.push(connection);
    }

    /// Forgets closed connections; blocks that name them must have gone through.
    pub fn sweep(&mut self) {
        for connection in self.ending.drain(..) {
            if self.slots.get_mut(connection as usize).is_some_and(|slot| slot.take().is_some()) {
                self.free.push_back(connection);
                self.open -= 1;
            }
        }
    }

    /// The facts about this class's stream.
    #[inline]
    pub fn get(&self, class: Class) -> Option<&StreamFacts> {
        self.slots.get(class.connection() as usize)?.as_ref()
    }

    /// How many connections have had this class's number; 0 if there was none. Tells a connection from the one before
    /// it, even if the end of that was not seen.
    #[inline]
    pub fn epoch(&self, class: Class) -> u32 {
        self.epochs.get(class.connection() as usize).copied().unwrap_or(0)
    }

    /// The facts about this class's stream, for the filter that makes the stream.
    #[inline]
    pub fn get_mut(&mut self, class: Class) -> Option<&mut StreamFacts> {
        self.changes += 1;
        self.slots.get_mut(class.connection() as usize)?.as_mut()
    }

    /// Connections open now.
    pub fn len(&self) -> usize {
        self.open
    }

    /// Whether there are no open connections.
    pub fn is_empty(&self) -> bool {
        self.open == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn facts(port: u16) -> StreamFacts {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let flow = Flow { source: address, target: address, source_port: port, target_port: 80, protocol: 6 };
        StreamFacts::new(flow, 0, StreamState::Opening)
    }

    #[test]
    fn a_number_does_not_come_back_at_once() {
        let mut table = StreamTable::new();
        let first = table.open(facts(1)).unwrap();
        let class = Class::of_stream(first, 1);
        assert_eq!(table.get(class).unwrap().directed(class).source_port, 80);
        table.close(first);
        table.close(first);
        assert!(table.get(class).is_some(), "blocks may be on their way");
        table.sweep();
        assert!(table.get(class).is_none() && table.is_empty());
        assert_ne!(table.open(facts(2)).unwrap(), first);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_mirror_says_what_the_other_table_says() {
        let mut table = StreamTable::new();
        let class = Class::of_stream(70, 1);
        table.mirror(class, facts(1), 5);
        table.mirror(class, facts(2), 6);
        table.mirror(Class::of_stream(STREAMS as u32, 0), facts(3), 1);
        assert_eq!((table.get(class), table.epoch(class), table.len()), (Some(&facts(2)), 6, 1));
        assert_eq!(table.get(Class::of_stream(69, 0)), None);
    }

    #[test]
    fn the_table_is_bounded() {
        let mut table = StreamTable::new();
        for _ in 0..STREAMS {
            table.open(facts(1)).unwrap();
        }
        assert_eq!(table.open(facts(1)), None);
        table.close(7);
        table.sweep();
        let class = Class::of_stream(7, 0);
        assert_eq!((table.open(facts(1)), table.epoch(class)), (Some(7), 2));
    }
}
