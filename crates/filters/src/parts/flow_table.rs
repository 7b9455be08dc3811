//! A bounded table of conversations. The key is the addresses and ports of either direction plus a *scope* (see
//! `origin`). Lists order conversations from the longest silent to the latest. The caller owns the state of each, and
//! decides when it ends.
//!
//! Filters that make streams of packets (`tcp`, `udp`) use it. To find a conversation takes one hash, one probe and
//! one comparison, without allocation. To add one allocates only while the table grows. To touch one moves it to the
//! end of its list: three writes to a separate array, so that neighbours' states stay out of the cache.
//!
//! Hostile traffic: the hash has a random key per table, so attackers cannot choose colliding addresses. The caller
//! bounds the number of entries, and asks [`FlowTable::oldest`] to make room.

use packet::flow::{Flow, FlowHasher};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// A conversation's slot in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// The direction of a packet, relative to the flow that its conversation was added under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As in the flow.
    Forward,
    /// Reversed.
    Back,
}

/// No entry, neighbour or slot.
const NONE: u32 = u32::MAX;

/// Minimum buckets per entry, to keep probes short.
const SPARSE: usize = 2;

const SMALLEST_INDEX: usize = 64;

struct Entry<T> {
    flow: Flow,
    scope: u64,
    hash: u64,
    list: u8,
    state: T,
}

/// A bucket of the open-addressed index: a slot, and hash bits that are compared before the entry itself.
#[derive(Clone, Copy)]
struct Bucket {
    tag: u32,
    slot: u32,
}

const EMPTY: Bucket = Bucket { tag: 0, slot: NONE };

#[derive(Clone, Copy)]
struct Link {
    older: u32,
    newer: u32,
}

#[derive(Clone, Copy)]
struct List {
    oldest: u32,
    latest: u32,
    len: usize,
}

/// Entries by flow, each in one of several lists in the order of their use.
pub struct FlowTable<T, const LISTS: usize> {
    hasher: FlowHasher,
    /// Its length is a power of two; probed linearly from the low bits of the hash.
    index: Vec<Bucket>,
    entries: Vec<Option<Entry<T>>>,
    links: Vec<Link>,
    lists: [List; LISTS],
    free: Vec<u32>,
    len: usize,
}

impl<T, const LISTS: usize> Default for FlowTable<T, LISTS> {
    fn default() -> Self {
        Self {
            hasher: FlowHasher::new(RandomState::new().build_hasher().finish()),
            index: vec![EMPTY; SMALLEST_INDEX],
            entries: Vec::new(),
            links: Vec::new(),
            lists: [List { oldest: NONE, latest: NONE, len: 0 }; LISTS],
            free: Vec::new(),
            len: 0,
        }
    }
}

impl<T, const LISTS: usize> FlowTable<T, LISTS> {
    /// Maximum bytes per conversation in a large table. The index may be twice its minimum.
    #[cfg(test)]
    pub const BYTES_EACH: usize =
        size_of::<Option<Entry<T>>>() + size_of::<Link>() + 2 * SPARSE * size_of::<Bucket>() + size_of::<u32>();

    /// The number of entries.
    pub fn count(&self) -> usize {
        self.len
    }

    /// The number of entries in one list.
    pub fn list_len(&self, list: usize) -> usize {
        self.lists[list].len
    }

    /// Scopes are few, or attackers cannot choose them, so a sum spreads them well enough.
    #[inline(always)]
    fn hash(&self, flow: &Flow, scope: u64) -> u64 {
        self.hasher.hash(flow).wrapping_add(scope)
    }

    /// The conversation of a packet of this flow.
    #[inline(always)]
    pub fn find(&self, flow: &Flow, scope: u64) -> Option<(Slot, Way)> {
        let hash = self.hash(flow, scope);
        let mask = self.index.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let Bucket { tag, slot } = self.index[at];
            if slot == NONE {
                return None;
            }
            if tag == tag_of(hash)
                && let Some(entry) = &self.entries[slot as usize]
                && entry.scope == scope
            {
                if entry.flow == *flow {
                    return Some((Slot(slot), Way::Forward));
                }
                if entry.flow == flow.reversed() {
                    return Some((Slot(slot), Way::Back));
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a conversation at the end of `list`. The caller has checked that its flow is new.
    pub fn insert(&mut self, flow: Flow, scope: u64, list: usize, state: T) -> Slot {
        if (self.len + 1) * SPARSE > self.index.len() {
            self.grow();
        }
        let hash = self.hash(&flow, scope);
        let entry = Some(Entry { flow, scope, hash, list: list as u8, state });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                self.links.push(Link { older: NONE, newer: NONE });
                (self.entries.len() - 1) as u32
            }
        };
        self.place(hash, slot);
        self.append(slot, list);
        self.len += 1;
        Slot(slot)
    }

    /// Takes an entry out.
    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        let entry = self.entries.get_mut(slot.0 as usize)?.take()?;
        self.unlink(slot.0, usize::from(entry.list));
        self.free.push(slot.0);
        self.len -= 1;
        self.unplace(entry.hash, slot.0);
        Some(entry.state)
    }

    /// The entry in this slot.
    #[inline]
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.entries.get_mut(slot.0 as usize)?.as_mut().map(|entry| &mut entry.state)
    }

    /// The entry in this slot.
    #[inline]
    pub fn get(&self, slot: Slot) -> Option<&T> {
        self.entries.get(slot.0 as usize)?.as_ref().map(|entry| &entry.state)
    }

    /// The flow that a conversation was added under.
    pub fn flow(&self, slot: Slot) -> Option<&Flow> {
        self.entries.get(slot.0 as usize)?.as_ref().map(|entry| &entry.flow)
    }

    /// The conversation of a list that was touched longest ago.
    #[inline]
    pub fn oldest(&self, list: usize) -> Option<Slot> {
        Some(self.lists[list].oldest).filter(|slot| *slot != NONE).map(Slot)
    }

    /// Moves a conversation to the end of its list.
    #[inline(always)]
    pub fn touch(&mut self, slot: Slot) {
        if self.links[slot.0 as usize].newer == NONE {
            return;
        }
        if let Some(list) = self.entries[slot.0 as usize].as_ref().map(|entry| usize::from(entry.list)) {
            self.unlink(slot.0, list);
            self.append(slot.0, list);
        }
    }

    /// Moves a conversation to the end of `list`.
    pub fn move_to(&mut self, slot: Slot, list: usize) {
        if let Some(Some(entry)) = self.entries.get_mut(slot.0 as usize) {
            let from = usize::from(std::mem::replace(&mut entry.list, list as u8));
            self.unlink(slot.0, from);
            self.append(slot.0, list);
        }
    }

    // --- lists ------------------------------------------------------------------------------------------------------

    #[inline(always)]
    fn append(&mut self, slot: u32, list: usize) {
        let ends = &mut self.lists[list];
        self.links[slot as usize] = Link { older: ends.latest, newer: NONE };
        if ends.latest == NONE {
            ends.oldest = slot;
        } else {
            self.links[ends.latest as usize].newer = slot;
        }
        ends.latest = slot;
        ends.len += 1;
    }

    #[inline(always)]
    fn unlink(&mut self, slot: u32, list: usize) {
        let Link { older, newer } = self.links[slot as usize];
        let ends = &mut self.lists[list];
        if older == NONE {
            ends.oldest = newer;
        } else {
            self.links[older as usize].newer = newer;
        }
        if newer == NONE {
            ends.latest = older;
        } else {
            self.links[newer as usize].older = older;
        }
        ends.len -= 1;
    }

    // --- index ------------------------------------------------------------------------------------------------------

    fn place(&mut self, hash: u64, slot: u32) {
        let mask = self.index.len() - 1;
        let mut at = hash as usize & mask;
        while self.index[at].slot != NONE {
            at = (at + 1) & mask;
        }
        self.index[at] = Bucket { tag: tag_of(hash), slot };
    }

    /// Removes a slot from the index and closes the gap, to waste no buckets (Knuth, vol. 3, 6.4, algorithm R).
    fn unplace(&mut self, hash: u64, slot: u32) {
        let mask = self.index.len() - 1;
        let mut hole = hash as usize & mask;
        while self.index[hole].slot != slot {
            hole = (hole + 1) & mask;
        }
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let Bucket { slot: other, .. } = self.index[at];
            let Some(entry) = self.entries.get(other as usize).and_then(Option::as_ref) else { break };
            let home = entry.hash as usize & mask;
            // It may move to the hole unless its home lies behind the hole.
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.index[hole] = self.index[at];
                hole = at;
            }
        }
        self.index[hole] = EMPTY;
    }

    #[cold]
    fn grow(&mut self) {
        let buckets = self.index.len() * 2;
        self.index.clear();
        self.index.resize(buckets, EMPTY);
        for slot in 0..self.entries.len() as u32 {
            if let Some(hash) = self.entries[slot as usize].as_ref().map(|entry| entry.hash) {
                self.place(hash, slot);
            }
        }
    }
}

#[inline]
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::net::{IpAddr, Ipv4Addr};

    fn flow(number: u16) -> Flow {
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        Flow { source: address(1), target: address(2), source_port: number, target_port: 80, protocol: 6 }
    }

    fn in_order<const LISTS: usize>(table: &mut FlowTable<u16, LISTS>, list: usize) -> Vec<u16> {
        let mut found = Vec::new();
        while let Some(slot) = table.oldest(list) {
            found.extend(table.remove(slot));
        }
        found
    }

    #[test]
    fn both_directions_are_one_conversation() {
        let mut table = FlowTable::<u16, 1>::default();
        let slot = table.insert(flow(1), 7, 0, 11);
        assert_eq!(table.find(&flow(1), 7), Some((slot, Way::Forward)));
        assert_eq!(table.find(&flow(1).reversed(), 7), Some((slot, Way::Back)));
        assert_eq!((table.find(&flow(2), 7), table.find(&flow(1), 0)), (None, None));
        assert_eq!((table.get(slot), table.flow(slot)), (Some(&11), Some(&flow(1))));
    }

    #[test]
    fn lists_are_from_the_longest_silent_to_the_latest() {
        let mut table = FlowTable::<u16, 2>::default();
        let slots: Vec<Slot> = (0..6).map(|number| table.insert(flow(number), 0, 0, number)).collect();
        table.touch(slots[0]);
        table.touch(slots[3]);
        table.touch(slots[3]);
        table.move_to(slots[2], 1);
        table.move_to(slots[5], 1);
        table.touch(slots[2]);
        assert_eq!((table.list_len(0), table.list_len(1), table.count()), (4, 2, 6));
        assert_eq!(in_order(&mut table, 0), [1, 4, 0, 3]);
        assert_eq!(in_order(&mut table, 1), [5, 2]);
        assert_eq!(table.count(), 0);
    }

    proptest! {
        /// Against a map: exactly the entries that were added and not removed are found.
        #[test]
        fn behaves_as_a_map(steps in proptest::collection::vec((0u8..3, 0u16..300), 1..2000)) {
            let mut table = FlowTable::<u16, 1>::default();
            let mut model = HashMap::new();
            for (step, number) in steps {
                match (step, model.get(&number)) {
                    (0 | 1, None) => { model.insert(number, table.insert(flow(number), u64::from(number % 3), 0, number)); }
                    (2, Some(&slot)) => {
                        prop_assert_eq!(table.remove(slot), Some(number));
                        model.remove(&number);
                    }
                    _ => {}
                }
            }
            for number in 0..300 {
                let found = table.find(&flow(number).reversed(), u64::from(number % 3)).map(|(slot, _)| slot);
                prop_assert_eq!(found, model.get(&number).copied());
            }
            prop_assert_eq!(table.count(), model.len());
            prop_assert_eq!(table.list_len(0), model.len());
        }
    }
}
