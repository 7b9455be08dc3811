//! Puts IPv4 datagrams together again that came in pieces (RFC 791 3.2), within quotas.
//!
//! A piece that overlaps another ends its datagram, and what comes of it later is dropped until its time is over: what RFC 5722
//! asks for IPv6, for the same attacks. A piece that repeats another exactly is only dropped.

use crate::counters::End;
use crate::limits::{
    FIRST_FRAGMENT_BYTES, FRAGMENT_BYTES, FRAGMENT_DATAGRAMS, FRAGMENT_OVERHEAD, FRAGMENT_PIECES,
    FRAGMENT_SOURCE_BYTES, FRAGMENT_SOURCE_DATAGRAMS, FRAGMENT_TIME,
};
use packet::checksum::Sum;
use packet::ipv4;
use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;

const ETHERNET: usize = 14;

/// The facts that the pieces of one datagram share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    source: Ipv4Addr,
    target: Ipv4Addr,
    identification: u16,
    protocol: u8,
}

#[derive(Debug)]
struct Datagram {
    /// Tells it from an earlier one with the same key.
    number: u64,
    /// Ethernet and IPv4 header of the first piece.
    header: Vec<u8>,
    /// Pieces with their offsets, in order, without overlaps.
    pieces: Vec<(usize, Vec<u8>)>,
    /// Where the last piece ends, once it came.
    end: Option<usize>,
    bytes: usize,
    /// The interface gave it up and keeps nothing of it.
    dropped: bool,
}

#[derive(Debug, Default)]
struct Source {
    bytes: usize,
    datagrams: usize,
}

/// All datagrams in pieces.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    datagrams: HashMap<Key, Datagram>,
    sources: HashMap<Ipv4Addr, Source>,
    /// In the order of their ends: keys with numbers.
    deadlines: VecDeque<(u64, Key, u64)>,
    bytes: usize,
    numbers: u64,
    /// Datagrams given up because their pieces overlap.
    pub(crate) dropped: u64,
}

/// What became of a piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// It completes its datagram: an Ethernet frame with an IPv4 packet that is whole.
    Whole(Vec<u8>),
    /// It ended so.
    Ended(End),
}

impl Fragments {
    /// Takes a piece: `frame` from its Ethernet header on, without padding; `packet` is its IPv4 header.
    pub(crate) fn add(&mut self, frame: &[u8], packet: &ipv4::Packet<'_>, now: u64) -> Added {
        let header = (ETHERNET + usize::from(packet.header_len())).min(frame.len());
        let (head, payload) = frame.split_at(header);
        let (offset, more) = (usize::from(packet.fragment_offset()), packet.more_fragments());
        let past_end = offset + payload.len() + head.len() - ETHERNET > usize::from(u16::MAX);
        if payload.is_empty() || past_end || more && !payload.len().is_multiple_of(8) {
            return Added::Ended(End::FragmentMalformed);
        }
        if offset == 0 && frame.len() < ETHERNET + FIRST_FRAGMENT_BYTES {
            return Added::Ended(End::FragmentTiny);
        }
        let (source, target) = (packet.source(), packet.target());
        let key = Key { source, target, identification: packet.identification(), protocol: packet.protocol() };
        let cost = payload.len() + FRAGMENT_OVERHEAD;
        if !self.admit(key, cost, now) {
            return Added::Ended(End::FragmentQuota);
        }
        let Some(datagram) = self.datagrams.get_mut(&key) else { return Added::Ended(End::FragmentQuota) };
        if datagram.dropped {
            return Added::Ended(End::FragmentLate);
        }
        let end = offset + payload.len();
        let at = datagram.pieces.partition_point(|(other, _)| *other < offset);
        if datagram.pieces.get(at).is_some_and(|(other, bytes)| *other == offset && bytes == payload) {
            return Added::Ended(End::FragmentRepeated);
        }
        let before = at.checked_sub(1).and_then(|before| datagram.pieces.get(before));
        let overlaps = before.is_some_and(|(other, bytes)| other + bytes.len() > offset)
            || datagram.pieces.get(at).is_some_and(|(other, _)| *other < end);
        let last = datagram.pieces.last().map_or(0, |(other, bytes)| other + bytes.len());
        let contradicts = match (datagram.end, more) {
            (Some(known), true) => end > known,
            (Some(_), false) => true,
            (None, true) => false,
            (None, false) => last > end,
        };
        if overlaps || contradicts || datagram.pieces.len() >= FRAGMENT_PIECES {
            self.give_up(key);
            return Added::Ended(End::FragmentOverlap);
        }
        if offset == 0 {
            datagram.header = head.to_vec();
        }
        if !more {
            datagram.end = Some(end);
        }
        datagram.pieces.insert(at, (offset, payload.to_vec()));
        datagram.bytes += cost;
        let complete = datagram.end.is_some_and(|end| {
            let held: usize = datagram.pieces.iter().map(|(_, bytes)| bytes.len()).sum();
            held == end
        });
        self.bytes += cost;
        if let Some(source) = self.sources.get_mut(&source) {
            source.bytes += cost;
        }
        if !complete {
            return Added::Ended(End::FragmentKept);
        }
        match self.remove(key) {
            Some(datagram) => join(datagram),
            None => Added::Ended(End::FragmentMalformed),
        }
    }

    /// Is there room for so many bytes of this datagram? Makes an entry for a new one.
    fn admit(&mut self, key: Key, cost: usize, now: u64) -> bool {
        let new = !self.datagrams.contains_key(&key);
        let source = self.sources.get(&key.source);
        let (bytes, datagrams) = source.map_or((0, 0), |source| (source.bytes, source.datagrams));
        if bytes + cost > FRAGMENT_SOURCE_BYTES || self.bytes + cost > FRAGMENT_BYTES {
            return false;
        }
        if !new {
            return true;
        }
        if datagrams >= FRAGMENT_SOURCE_DATAGRAMS || self.datagrams.len() >= FRAGMENT_DATAGRAMS {
            return false;
        }
        self.numbers += 1;
        let number = self.numbers;
        let datagram = Datagram { number, header: Vec::new(), pieces: Vec::new(), end: None, bytes: 0, dropped: false };
        self.datagrams.insert(key, datagram);
        self.sources.entry(key.source).or_default().datagrams += 1;
        // A datagram that was completed or given up leaves its deadline behind; there are no more of them than this.
        if self.deadlines.len() >= 4 * FRAGMENT_DATAGRAMS {
            let datagrams = &self.datagrams;
            self.deadlines.retain(|(_, key, number)| datagrams.get(key).is_some_and(|one| one.number == *number));
        }
        self.deadlines.push_back((now + FRAGMENT_TIME, key, number));
        true
    }

    /// Drops what is kept of a datagram, and what comes of it until its time is over.
    fn give_up(&mut self, key: Key) {
        let Some(datagram) = self.datagrams.get_mut(&key) else { return };
        datagram.dropped = true;
        (datagram.pieces, datagram.header) = (Vec::new(), Vec::new());
        let bytes = std::mem::take(&mut datagram.bytes);
        self.bytes -= bytes;
        if let Some(source) = self.sources.get_mut(&key.source) {
            source.bytes -= bytes;
        }
        self.dropped += 1;
    }

    fn remove(&mut self, key: Key) -> Option<Datagram> {
        let datagram = self.datagrams.remove(&key)?;
        self.bytes -= datagram.bytes;
        if let Some(source) = self.sources.get_mut(&key.source) {
            source.bytes -= datagram.bytes;
            source.datagrams -= 1;
            if source.datagrams == 0 {
                self.sources.remove(&key.source);
            }
        }
        Some(datagram)
    }

    /// When the next datagram is given up; none: there is none.
    pub(crate) fn next(&mut self) -> Option<u64> {
        while let Some((due, key, number)) = self.deadlines.front() {
            if self.datagrams.get(key).is_some_and(|datagram| datagram.number == *number) {
                return Some(*due);
            }
            self.deadlines.pop_front();
        }
        None
    }

    /// Gives up what is too old. Says how many datagrams were not complete.
    pub(crate) fn tick(&mut self, now: u64) -> u64 {
        let mut expired = 0;
        while self.next().is_some_and(|due| due <= now) {
            if let Some((_, key, _)) = self.deadlines.pop_front() {
                expired += u64::from(self.remove(key).is_some_and(|datagram| !datagram.dropped));
            }
        }
        expired
    }

    /// Bytes and datagrams that are kept.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> (usize, usize, usize) {
        (self.bytes, self.datagrams.len(), self.sources.len())
    }
}

/// One packet of all pieces: the first one's header without the fields of fragments, with length and checksum of the whole.
fn join(datagram: Datagram) -> Added {
    let mut frame = datagram.header;
    let header = frame.len();
    for (_, bytes) in &datagram.pieces {
        frame.extend_from_slice(bytes);
    }
    let length = u16::try_from(frame.len().saturating_sub(ETHERNET)).ok().filter(|_| header >= ETHERNET + 20);
    let Some(length) = length else { return Added::Ended(End::FragmentMalformed) };
    frame[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&length.to_be_bytes());
    frame[ETHERNET + 6..ETHERNET + 8].fill(0);
    frame[ETHERNET + 10..ETHERNET + 12].fill(0);
    let checksum = Sum::of(&frame[ETHERNET..header]).checksum();
    frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&checksum.to_be_bytes());
    Added::Whole(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SECOND;

    /// A piece of the datagram `id` from 10.0.`source`.1: bytes `range` of `of`.
    fn piece(source: u8, id: u16, of: &[u8], range: std::ops::Range<usize>, more: bool) -> Vec<u8> {
        let mut frame = vec![0; 34];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        let length = (20 + range.len()) as u16;
        frame[16..18].copy_from_slice(&length.to_be_bytes());
        frame[18..20].copy_from_slice(&id.to_be_bytes());
        let word = (range.start / 8) as u16 | if more { 0x2000 } else { 0 };
        frame[20..22].copy_from_slice(&word.to_be_bytes());
        frame[22..24].copy_from_slice(&[64, 17]);
        frame[26..34].copy_from_slice(&[10, 0, source, 1, 10, 0, 0, 2]);
        frame.extend_from_slice(&of[range]);
        frame
    }

    fn add(fragments: &mut Fragments, frame: &[u8], now: u64) -> Added {
        fragments.add(frame, &ipv4::Packet::new_checked(&frame[14..]).expect("it is sound"), now)
    }

    fn payload() -> Vec<u8> {
        (0..400_u32).map(|at| (at * 7 % 251) as u8).collect()
    }

    #[test]
    fn pieces_in_each_order_give_the_same_packet() {
        let bytes = payload();
        let pieces: Vec<_> = [0..96, 96..192, 192..304, 304..400]
            .into_iter()
            .map(|range| piece(0, 1, &bytes, range.clone(), range.end < 400))
            .collect();
        let mut orders = vec![vec![]];
        for _ in 0..4 {
            let longer = |order: &Vec<usize>| {
                (0..4).filter(|at| !order.contains(at)).map(|at| [order.clone(), vec![at]].concat()).collect::<Vec<_>>()
            };
            orders = orders.iter().flat_map(longer).collect();
        }
        assert_eq!(orders.len(), 24);
        let whole = piece(0, 1, &bytes, 0..400, false);
        for order in orders {
            let mut fragments = Fragments::default();
            for at in &order[..3] {
                assert_eq!(add(&mut fragments, &pieces[*at], 0), Added::Ended(End::FragmentKept));
            }
            let Added::Whole(frame) = add(&mut fragments, &pieces[order[3]], 0) else { panic!("{order:?}: not whole") };
            assert_eq!(Sum::of(&frame[14..34]).folded(), 0xffff);
            assert_eq!((&frame[..24], &frame[26..]), (&whole[..24], &whole[26..]));
            assert_eq!((fragments.kept(), fragments.next()), ((0, 0, 0), None));
        }
    }

    #[test]
    fn an_overlap_ends_the_datagram_for_as_long_as_it_could_live() {
        let bytes = payload();
        let check = |ranges: &[(usize, usize, bool)]| {
            let mut fragments = Fragments::default();
            for &(from, to, more) in &ranges[..ranges.len() - 1] {
                assert_eq!(
                    add(&mut fragments, &piece(0, 1, &bytes, from..to, more), 0),
                    Added::Ended(End::FragmentKept)
                );
            }
            let &(from, to, more) = ranges.last().expect("there are some");
            let last = add(&mut fragments, &piece(0, 1, &bytes, from..to, more), 0);
            assert_eq!(last, Added::Ended(End::FragmentOverlap), "{ranges:?}");
            let later = add(&mut fragments, &piece(0, 1, &bytes, 0..400, true), SECOND);
            assert_eq!((later, fragments.kept().0), (Added::Ended(End::FragmentLate), 0));
            assert_eq!(fragments.tick(FRAGMENT_TIME), 0);
            assert_eq!(fragments.kept(), (0, 0, 0));
        };
        check(&[(0, 96, true), (88, 192, true)]);
        check(&[(96, 192, true), (0, 104, true)]);
        check(&[(96, 192, true), (0, 400, true)]);
        check(&[(0, 400, true), (96, 192, true)]);
        // Behind the end, and a second end.
        check(&[(304, 400, false), (0, 96, true), (392, 400, true)]);
        check(&[(96, 192, false), (192, 200, true)]);
        check(&[(96, 192, false), (200, 208, false)]);
        check(&[(192, 304, true), (96, 192, false)]);
    }

    #[test]
    fn hostile_pieces_end_alone() {
        let (bytes, mut fragments) = (payload(), Fragments::default());
        let mut check = |range: std::ops::Range<usize>, more, end| {
            assert_eq!(add(&mut fragments, &piece(0, 1, &bytes, range, more), 0), Added::Ended(end));
        };
        check(0..40, true, End::FragmentTiny);
        check(0..99, true, End::FragmentMalformed);
        check(96..96, true, End::FragmentMalformed);
        check(96..192, true, End::FragmentKept);
        check(96..192, true, End::FragmentRepeated);
        let mut far = piece(0, 2, &bytes, 0..100, false);
        far[20..22].copy_from_slice(&0x1fff_u16.to_be_bytes());
        assert_eq!(add(&mut fragments, &far, 0), Added::Ended(End::FragmentMalformed));
        assert_eq!(fragments.kept().1, 1);
    }

    #[test]
    fn each_source_and_all_of_them_have_quotas() {
        let (bytes, mut fragments) = (vec![0; 1480], Fragments::default());
        let mut kept = 0;
        for id in 0..10_000 {
            let added = add(&mut fragments, &piece((id % 64) as u8, id, &bytes, 0..1480, true), 0);
            kept += usize::from(added == Added::Ended(End::FragmentKept));
        }
        let (held, datagrams, sources) = fragments.kept();
        assert!(held <= FRAGMENT_BYTES && datagrams <= FRAGMENT_DATAGRAMS, "{held} {datagrams}");
        assert_eq!((kept, sources), (datagrams, 64));
        // A source that fills its own quota takes nothing from others.
        let mut fragments = Fragments::default();
        for id in 0..1000 {
            add(&mut fragments, &piece(1, id, &bytes, 0..1480, true), 0);
        }
        assert!(fragments.kept().1 <= FRAGMENT_SOURCE_DATAGRAMS && fragments.kept().0 <= FRAGMENT_SOURCE_BYTES);
        let other = add(&mut fragments, &piece(2, 1, &bytes, 0..1480, true), 0);
        assert_eq!(other, Added::Ended(End::FragmentKept));
    }

    #[test]
    fn time_ends_what_is_not_complete() {
        let (bytes, mut fragments) = (payload(), Fragments::default());
        for at in 0..5 {
            add(&mut fragments, &piece(0, at, &bytes, 0..96, true), u64::from(at) * SECOND);
        }
        assert_eq!(fragments.next(), Some(FRAGMENT_TIME));
        assert_eq!(fragments.tick(FRAGMENT_TIME - 1), 0);
        assert_eq!(fragments.tick(FRAGMENT_TIME + 2 * SECOND), 3);
        assert_eq!((fragments.tick(u64::MAX), fragments.kept(), fragments.next()), (2, (0, 0, 0), None));
    }
}
