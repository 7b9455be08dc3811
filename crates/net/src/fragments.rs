//! Reassembles fragmented datagrams (RFC 791 3.2, RFC 8200 4.5), within quotas.
//!
//! A fragment that overlaps another one ends its datagram, and later fragments of it are dropped until its time is over. RFC
//! 5722 requires that for IPv6, and the attacks on IPv4 are the same. An exact repetition of a fragment is just dropped.

use crate::counters::End;
use crate::limits::{
    FRAGMENT_BYTES, FRAGMENT_DATAGRAMS, FRAGMENT_OVERHEAD, FRAGMENT_PIECES, FRAGMENT_SOURCE_BYTES,
    FRAGMENT_SOURCE_DATAGRAMS, FRAGMENT_TIME,
};
use packet::checksum::Sum;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

const ETHERNET: usize = 14;

/// The fields that all fragments of a datagram share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) source: IpAddr,
    pub(crate) target: IpAddr,
    pub(crate) identification: u32,
    /// For IPv4. 0 for IPv6, whose fragments need not agree in it (RFC 8200 4.5).
    pub(crate) protocol: u8,
}

/// A received fragment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) key: Key,
    /// The headers of the whole packet, from the first fragment. Lengths, checksum and fragment fields are set later.
    pub(crate) head: &'a [u8],
    pub(crate) payload: &'a [u8],
    /// Its offset in the datagram.
    pub(crate) offset: usize,
    /// More fragments follow.
    pub(crate) more: bool,
}

#[derive(Debug)]
struct Datagram {
    /// Distinguishes it from an earlier datagram with the same key.
    number: u64,
    /// The header of the first fragment.
    header: Vec<u8>,
    /// Fragments with their offsets, in order, without overlaps.
    pieces: Vec<(usize, Vec<u8>)>,
    /// The end of the last fragment, once it came.
    end: Option<usize>,
    bytes: usize,
    /// The interface gave it up, and has dropped its bytes.
    dropped: bool,
}

#[derive(Debug, Default)]
struct Source {
    bytes: usize,
    datagrams: usize,
}

/// All fragmented datagrams.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    datagrams: HashMap<Key, Datagram>,
    sources: HashMap<IpAddr, Source>,
    /// In order of time: keys with numbers.
    deadlines: VecDeque<(u64, Key, u64)>,
    bytes: usize,
    numbers: u64,
    /// Datagrams that were given up because their fragments overlap.
    pub(crate) dropped: u64,
}

/// The result of adding a fragment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// It completes its datagram: an Ethernet frame with a whole IP packet.
    Whole(Vec<u8>),
    /// It ended this way.
    Ended(End),
}

impl Fragments {
    /// Adds a fragment.
    pub(crate) fn add(&mut self, piece: &Piece<'_>, now: u64) -> Added {
        let Piece { key, head, payload, offset, more } = *piece;
        // IPv4's length includes its header, IPv6's does not.
        let counted = if key.source.is_ipv4() { head.len().saturating_sub(ETHERNET) } else { 0 };
        let past_end = offset + payload.len() + counted > usize::from(u16::MAX);
        if payload.is_empty() || past_end || more && !payload.len().is_multiple_of(8) {
            return Added::Ended(End::FragmentMalformed);
        }
        let source = key.source;
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

    /// Whether there is room for `cost` more bytes of this datagram. Makes an entry for a new one.
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
        // Completed and abandoned datagrams leave their deadlines behind. This limits their number.
        if self.deadlines.len() >= 4 * FRAGMENT_DATAGRAMS {
            let datagrams = &self.datagrams;
            self.deadlines.retain(|(_, key, number)| datagrams.get(key).is_some_and(|one| one.number == *number));
        }
        self.deadlines.push_back((now + FRAGMENT_TIME, key, number));
        true
    }

    /// Drops the kept bytes of a datagram, and all later fragments until its time is over.
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

    /// When the next datagram is given up. `None`: there is none.
    pub(crate) fn next(&mut self) -> Option<u64> {
        while let Some((due, key, number)) = self.deadlines.front() {
            if self.datagrams.get(key).is_some_and(|datagram| datagram.number == *number) {
                return Some(*due);
            }
            self.deadlines.pop_front();
        }
        None
    }

    /// Gives up old datagrams. Returns how many were incomplete.
    pub(crate) fn tick(&mut self, now: u64) -> u64 {
        let mut expired = 0;
        while self.next().is_some_and(|due| due <= now) {
            if let Some((_, key, _)) = self.deadlines.pop_front() {
                expired += u64::from(self.remove(key).is_some_and(|datagram| !datagram.dropped));
            }
        }
        expired
    }

    /// The kept bytes, datagrams and sources.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> (usize, usize, usize) {
        (self.bytes, self.datagrams.len(), self.sources.len())
    }
}

/// Joins all fragments to one packet. Sets its length; for IPv4 also the checksum, and clears the fragment fields.
fn join(datagram: Datagram) -> Added {
    let mut frame = datagram.header;
    let header = frame.len();
    for (_, bytes) in &datagram.pieces {
        frame.extend_from_slice(bytes);
    }
    let is_ipv4 = frame.get(ETHERNET).is_some_and(|first| first >> 4 == 4);
    let (least, counted_from) = if is_ipv4 { (20, ETHERNET) } else { (40, header) };
    let length = u16::try_from(frame.len().saturating_sub(counted_from)).ok();
    let Some(length) = length.filter(|_| header >= ETHERNET + least) else {
        return Added::Ended(End::FragmentMalformed);
    };
    if is_ipv4 {
        frame[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&length.to_be_bytes());
        frame[ETHERNET + 6..ETHERNET + 8].fill(0);
        frame[ETHERNET + 10..ETHERNET + 12].fill(0);
        let checksum = Sum::of(&frame[ETHERNET..header]).checksum();
        frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&checksum.to_be_bytes());
    } else {
        frame[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&length.to_be_bytes());
    }
    Added::Whole(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SECOND;

    /// A fragment of the datagram `id` from source `source` of this family: the bytes `range` of `of`.
    struct Made {
        key: Key,
        head: Vec<u8>,
        payload: Vec<u8>,
        offset: usize,
        more: bool,
    }

    impl Made {
        fn add(&self, fragments: &mut Fragments, now: u64) -> Added {
            let Made { key, head, payload, offset, more } = self;
            fragments.add(&Piece { key: *key, head, payload, offset: *offset, more: *more }, now)
        }
    }

    fn piece(is_ipv4: bool, source: u8, id: u32, of: &[u8], range: std::ops::Range<usize>, more: bool) -> Made {
        let mut head = vec![0; if is_ipv4 { 34 } else { 54 }];
        let at = |first: u8, last: u8| match is_ipv4 {
            true => IpAddr::from([10, 0, first, last]),
            false => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, first.into(), last.into()]),
        };
        head[14] = if is_ipv4 { 0x45 } else { 0x60 };
        let key = Key { source: at(source, 1), target: at(0, 2), identification: id, protocol: 17 };
        Made { key, head, payload: of[range.clone()].to_vec(), offset: range.start, more }
    }

    fn payload() -> Vec<u8> {
        (0..400_u32).map(|at| (at * 7 % 251) as u8).collect()
    }

    #[test]
    fn pieces_in_each_order_give_the_same_packet() {
        let bytes = payload();
        let mut orders = vec![vec![]];
        for _ in 0..4 {
            let longer = |order: &Vec<usize>| {
                (0..4).filter(|at| !order.contains(at)).map(|at| [order.clone(), vec![at]].concat()).collect::<Vec<_>>()
            };
            orders = orders.iter().flat_map(longer).collect();
        }
        assert_eq!(orders.len(), 24);
        for (is_ipv4, order) in
            [true, false].into_iter().flat_map(|is_ipv4| orders.iter().map(move |order| (is_ipv4, order)))
        {
            let pieces = [0..96, 96..192, 192..304, 304..400]
                .map(|range| piece(is_ipv4, 0, 1, &bytes, range.clone(), range.end < 400));
            let mut fragments = Fragments::default();
            for at in &order[..3] {
                assert_eq!(pieces[*at].add(&mut fragments, 0), Added::Ended(End::FragmentKept));
            }
            let Added::Whole(frame) = pieces[order[3]].add(&mut fragments, 0) else { panic!("{order:?}: not whole") };
            let mut head = pieces[0].head.clone();
            if is_ipv4 {
                assert_eq!(Sum::of(&frame[14..34]).folded(), 0xffff);
                head[16..18].copy_from_slice(&420_u16.to_be_bytes());
                head[24..26].copy_from_slice(&frame[24..26]);
            } else {
                head[18..20].copy_from_slice(&400_u16.to_be_bytes());
            }
            assert_eq!(frame, [head, bytes.clone()].concat());
            assert_eq!((fragments.kept(), fragments.next()), ((0, 0, 0), None));
        }
    }

    /// RFC 5722, for both families.
    #[test]
    fn an_overlap_ends_the_datagram_for_as_long_as_it_could_live() {
        let bytes = payload();
        let check = |ranges: &[(usize, usize, bool)]| {
            for is_ipv4 in [true, false] {
                let mut fragments = Fragments::default();
                let made = |&(from, to, more): &(usize, usize, bool)| piece(is_ipv4, 0, 1, &bytes, from..to, more);
                let (last, before) = ranges.split_last().expect("there are some");
                for range in before {
                    assert_eq!(made(range).add(&mut fragments, 0), Added::Ended(End::FragmentKept));
                }
                let ended = made(last).add(&mut fragments, 0);
                assert_eq!(ended, Added::Ended(End::FragmentOverlap), "{ranges:?}");
                let later = made(&(0, 400, true)).add(&mut fragments, SECOND);
                assert_eq!((later, fragments.kept().0), (Added::Ended(End::FragmentLate), 0));
                assert_eq!(fragments.tick(FRAGMENT_TIME), 0);
                assert_eq!(fragments.kept(), (0, 0, 0));
            }
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
        for is_ipv4 in [true, false] {
            let (bytes, mut fragments) = (payload(), Fragments::default());
            let mut check = |range: std::ops::Range<usize>, more, end| {
                assert_eq!(piece(is_ipv4, 0, 1, &bytes, range, more).add(&mut fragments, 0), Added::Ended(end));
            };
            check(0..99, true, End::FragmentMalformed);
            check(96..96, true, End::FragmentMalformed);
            check(96..192, true, End::FragmentKept);
            check(96..192, true, End::FragmentRepeated);
            // An offset has 13 bits, in units of 8 bytes. The length of IPv4 counts its header.
            for (offset, len, is_kept) in [(65_528, 7, !is_ipv4), (65_528, 8, false), (65_512, 3, true)] {
                let mut far = piece(is_ipv4, 0, 2 + len, &bytes, 0..len as usize, false);
                far.offset = offset;
                let end = if is_kept { End::FragmentKept } else { End::FragmentMalformed };
                assert_eq!(far.add(&mut fragments, 0), Added::Ended(end), "{offset} {len}");
            }
        }
    }

    #[test]
    fn each_source_and_all_of_them_have_quotas() {
        let (bytes, mut fragments) = (vec![0; 1480], Fragments::default());
        let mut kept = 0;
        for id in 0..10_000 {
            // Half of the sources have IPv6.
            let added = piece(id % 2 == 0, (id % 64) as u8, id, &bytes, 0..1480, true).add(&mut fragments, 0);
            kept += usize::from(added == Added::Ended(End::FragmentKept));
        }
        let (held, datagrams, sources) = fragments.kept();
        assert!(held <= FRAGMENT_BYTES && datagrams <= FRAGMENT_DATAGRAMS, "{held} {datagrams}");
        assert_eq!((kept, sources), (datagrams, 64));
        // A source that fills its own quota leaves other sources theirs.
        for is_ipv4 in [true, false] {
            let mut fragments = Fragments::default();
            for id in 0..1000 {
                piece(is_ipv4, 1, id, &bytes, 0..1480, true).add(&mut fragments, 0);
            }
            assert!(fragments.kept().1 <= FRAGMENT_SOURCE_DATAGRAMS && fragments.kept().0 <= FRAGMENT_SOURCE_BYTES);
            let other = piece(is_ipv4, 2, 1, &bytes, 0..1480, true).add(&mut fragments, 0);
            assert_eq!(other, Added::Ended(End::FragmentKept));
        }
    }

    #[test]
    fn time_ends_what_is_not_complete() {
        let (bytes, mut fragments) = (payload(), Fragments::default());
        for at in 0..5 {
            piece(at % 2 == 0, 0, at, &bytes, 0..96, true).add(&mut fragments, u64::from(at) * SECOND);
        }
        assert_eq!(fragments.next(), Some(FRAGMENT_TIME));
        assert_eq!(fragments.tick(FRAGMENT_TIME - 1), 0);
        assert_eq!(fragments.tick(FRAGMENT_TIME + 2 * SECOND), 3);
        assert_eq!((fragments.tick(u64::MAX), fragments.kept(), fragments.next()), (2, (0, 0, 0), None));
    }
}
