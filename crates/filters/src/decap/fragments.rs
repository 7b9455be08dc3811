//! Reassembles packets from fragments (RFC 791, 3.2; RFC 8200, 4.5): which fragments belong together, when a packet is
//! complete, when to give up, and what is counted. `pieces.rs` settles overlaps.
//!
//! Fragments are held in place. When the packet is complete its bytes are copied once, into the filter's append ring,
//! behind the first fragment's headers without the marks of a fragment.
//!
//! Two limits: packets being reassembled, and bytes held. At a limit the packet that began first is given up, or the
//! new fragment is refused if earlier ones have already passed. Then a complete packet is remembered as well, so that
//! no fragment that comes again replaces what was judged; such packets make room first. A packet times out counted from its first fragment, as
//! in its receiver.

use super::pieces::Pieces;
use crate::parts::policy::Policies;
use base::limits::{DECAP_PACKETS, DECAP_PIECES};
use buffer::{BlockTable, Descriptor};
use filter::Context;
use packet::checksum::Sum;
use packet::encapsulation::Vlans;
use packet::frame::{Frame, protocol};
use packet::ipv6;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::ops::Range;

/// Maximum bytes of an IP packet behind its first header.
const PACKET_BYTES: u32 = 65_535;

/// Why a fragment is dropped: its length, its end beyond the packet, or an end that contradicts others.
pub const NO_UNIT: &str = "fragment length not a multiple of 8";
/// The reason of a drop: the packet would be larger than IP allows.
pub const TOO_LARGE: &str = "fragment beyond 65535 bytes";
/// The reason of a drop: two fragments disagree about where the packet ends.
pub const DISAGREE: &str = "fragments disagree about the end";

/// Why a fragment is dropped, rather than one given up that passed.
const NO_ROOM: &str = "no room for fragments";

/// The fields that fragments of one packet share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// A hash of the tunnels around them.
    scope: u64,
    vlans: Vlans,
    source: IpAddr,
    target: IpAddr,
    identification: u32,
    /// `Some` for IPv4, where the protocol is part of a packet's identity.
    protocol: Option<u8>,
}

/// A packet being reassembled.
#[derive(Debug)]
struct Packet {
    pieces: Pieces,
    /// Bytes of its payload; known when the last fragment came.
    len: Option<u32>,
    /// The headers before the first fragment's payload, held, and the layout of that fragment.
    head: Option<(Descriptor, Frame)>,
    /// Tells this packet from an earlier one with the same key.
    serial: u64,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Fragments are missing.
    Open,
    /// It was complete and passed; its pieces are kept, to compare further fragments with.
    Passed,
    /// It was complete and was dropped; its pieces are gone.
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    Kept,
    /// The reason.
    Dropped(&'static str),
    /// The packet is complete; it begins with the link header of its first fragment.
    Whole(Descriptor),
}

/// All packets being reassembled.
pub(super) struct Fragments {
    packets: HashMap<Key, Packet>,
    /// (time to give up, key, serial), in the order in which packets began. Entries of finished packets may remain.
    due: VecDeque<(u64, Key, u64)>,
    policies: Policies,
    /// Time that a packet has to become complete, ns.
    timeout: u64,
    /// Maximum bytes held.
    memory: u64,
    held: u64,
    pieces: usize,
    serials: u64,
    /// Packets that became complete, and packets given up.
    whole: u64,
    given_up: u64,
    /// Fragments pass at once: when full, refuse the new fragment instead of giving up a packet, and remember complete
    /// packets.
    pub(super) refuses: bool,
    /// (time to forget, key) of complete packets that passed and that were stopped, in the order in which they became
    /// complete.
    passed: VecDeque<(u64, Key)>,
    stopped: VecDeque<(u64, Key)>,
    /// How many packets the last frame completed: the last ones of `passed`.
    completed: usize,
    /// Why the last frame must not pass.
    pub(super) refusal: Option<&'static str>,
    /// A fragment in the last frame overlaps an earlier one.
    pub(super) overlaps: bool,
    /// Of packets in tunnels: their key as it were outside, and their own.
    tunnelled: HashMap<Key, Key>,
    /// A fragment in the last frame has the fields of a packet under way that is in another tunnel, or in none.
    pub(super) is_split: bool,
}

impl Fragments {
    pub fn new(policies: Policies, timeout: u64, memory: u64) -> Fragments {
        Fragments {
            packets: HashMap::new(),
            due: VecDeque::new(),
            policies,
            timeout,
            memory,
            held: 0,
            pieces: 0,
            serials: 0,
            whole: 0,
            given_up: 0,
            refuses: false,
            passed: VecDeque::new(),
            stopped: VecDeque::new(),
            completed: 0,
            refusal: None,
            overlaps: false,
            tunnelled: HashMap::new(),
            is_split: false,
        }
    }

    /// Forgets the findings of the last frame, which may have held fragments in fragments.
    #[inline]
    pub fn begin_frame(&mut self) {
        (self.refusal, self.completed, self.overlaps, self.is_split) = (None, 0, false, false);
    }

    /// Adds a fragment: `frame` is its layout in `block`, `scope` a hash of its tunnels, `outside` the VLANs around
    /// them.
    pub fn add(
        &mut self,
        block: &Descriptor,
        frame: &Frame,
        scope: u64,
        outside: Option<Vlans>,
        cx: &mut Context<'_>,
    ) -> Added {
        let Some(fragment) = frame.fragment else { return Added::Dropped("not a fragment") };
        let start = u32::from(fragment.offset);
        let captured = frame.payload_end.saturating_sub(fragment.start);
        let mut len = frame.payload_wire_len + (frame.transport_offset - fragment.start);
        if fragment.more && !len.is_multiple_of(8) {
            // RFC 8200, 4.5 discards such fragments. IPv4 receivers ignore the bytes beyond the last whole unit.
            match frame.version {
                6 => return Added::Dropped(NO_UNIT),
                _ => len -= len % 8,
            }
        }
        if len == 0 {
            return Added::Dropped("empty fragment");
        }
        if start + len > PACKET_BYTES {
            return Added::Dropped(TOO_LARGE);
        }
        self.count_oddities(block, frame, cx);
        let key = Key {
            scope,
            vlans: frame.vlans().named(),
            source: frame.source,
            target: frame.target,
            identification: fragment.identification,
            protocol: (frame.version == 4).then_some(fragment.protocol),
        };
        if self.meets_split(key, outside) {
            cx.count(super::SPLIT, 1);
            self.is_split = true;
        }
        let end = start + len;
        let part = block.part(fragment.start, captured.min(len));
        if self.refuses
            && let Some(added) = self.meet_passed(&key, start..end, !fragment.more, &part, cx)
        {
            return added;
        }
        if !self.packets.contains_key(&key) {
            self.begin(key, cx);
        }
        let Some(packet) = self.packets.get_mut(&key) else { return Added::Dropped(NO_ROOM) };
        if packet.disagrees(end, !fragment.more) {
            return Added::Dropped(DISAGREE);
        }
        cx.count("fragments", 1);
        let (held, count) = (packet.pieces.held(), packet.pieces.count());
        let policy = self.policies.of(frame.target);
        let met = packet.pieces.add(start..end, part, policy, cx.rings);
        if met.overlaps {
            cx.count("fragments overlap", 1);
        }
        self.overlaps |= met.overlaps;
        if met.differs {
            cx.count("fragments overlap with other bytes", 1);
        }
        if !fragment.more {
            packet.len = Some(end);
        }
        if start == 0 && packet.head.is_none() {
            let head = block.part(0, fragment.start);
            packet.head = cx.rings.hold(&head).map(|head| (head, *frame));
        }
        let is_whole = packet.len.is_some_and(|len| packet.pieces.covered() == len);
        self.held = self.held + packet.pieces.held() - held;
        self.pieces = self.pieces + packet.pieces.count() - count;
        if is_whole {
            return self.end(&key, block, cx);
        }
        while !self.refuses && (self.held > self.memory || self.pieces > DECAP_PIECES) {
            if !self.give_up_oldest("fragmented packets given up to make room", cx) {
                break;
            }
        }
        Added::Kept
    }

    /// Whether a packet with the same fields is under way in another tunnel, or outside of this one. A receiver that ends both
    /// puts their fragments together.
    fn meets_split(&mut self, key: Key, outside: Option<Vlans>) -> bool {
        let is_open = |key: &Key| self.packets.get(key).is_some_and(|packet| packet.phase == Phase::Open);
        let Some(vlans) = outside else { return self.tunnelled.get(&key).is_some_and(is_open) };
        let bare = Key { scope: 0, vlans, ..key };
        let other = self.tunnelled.get(&bare).filter(|other| **other != key && is_open(other));
        let is_split = is_open(&bare) || other.is_some();
        if self.tunnelled.len() > 2 * DECAP_PACKETS {
            self.tunnelled.retain(|_, key| self.packets.contains_key(key));
        }
        self.tunnelled.insert(bare, key);
        is_split
    }

    /// Compares a fragment with those of its packet that passed, and makes room for it. `Some`: it is not added.
    fn meet_passed(
        &mut self,
        key: &Key,
        range: Range<u32>,
        is_last: bool,
        part: &Descriptor,
        cx: &mut Context<'_>,
    ) -> Option<Added> {
        let mut refuse = |reason| {
            self.refusal = Some(reason);
            Some(Added::Dropped(reason))
        };
        // It may lie between and beside all those that it overlaps.
        let (mut packets, mut pieces) = (1, 1);
        if let Some(packet) = self.packets.get(key) {
            if packet.phase == Phase::Stopped {
                return refuse("of a stopped packet");
            }
            let (met, differs) = packet.pieces.meet(range.clone(), *part, cx.rings);
            let is_whole = packet.phase == Phase::Passed;
            if differs || is_whole && packet.disagrees(range.end, is_last) {
                cx.count("fragments overlap with other bytes", 1);
                return refuse("a fragment contradicts one that passed");
            }
            if is_whole {
                cx.count("fragments of whole packets again", 1);
                return Some(Added::Kept);
            }
            (packets, pieces) = (0, met + 1);
        }
        while self.packets.len() + packets > DECAP_PACKETS
            || self.pieces + pieces > DECAP_PIECES
            || self.held + u64::from(part.len) > self.memory
        {
            if self.passed.len() <= self.completed {
                return Some(Added::Dropped(NO_ROOM));
            }
            self.forget_passed(cx.rings);
            cx.count("whole packets forgotten to make room", 1);
        }
        None
    }

    /// Forgets the packet that passed first.
    fn forget_passed(&mut self, rings: &BlockTable) {
        if let Some((_, key)) = self.passed.pop_front() {
            self.forget(&key, rings);
        }
    }

    fn forget(&mut self, key: &Key, rings: &BlockTable) {
        if let Some(mut packet) = self.packets.remove(key) {
            self.let_go(&mut packet, rings);
        }
    }

    /// Drops later fragments of the packets that the last frame completed, until their timeout.
    pub fn stop_last(&mut self, rings: &BlockTable) {
        for _ in 0..std::mem::take(&mut self.completed) {
            let Some((due, key)) = self.passed.pop_back() else { return };
            let Some(mut packet) = self.packets.remove(&key) else { continue };
            self.let_go(&mut packet, rings);
            packet.phase = Phase::Stopped;
            self.packets.insert(key, packet);
            self.stopped.push_back((due, key));
        }
    }

    /// Counts oddities of a single fragment.
    fn count_oddities(&self, block: &Descriptor, frame: &Frame, cx: &mut Context<'_>) {
        const MUST_NOT_FRAGMENT: u8 = 0x40;
        let flags = cx.rings.bytes(block).get(frame.network_offset as usize + 6).copied().unwrap_or(0);
        if frame.version == 4 && flags & MUST_NOT_FRAGMENT != 0 {
            cx.count("fragments that must not be", 1);
        }
        let least = match frame.protocol {
            protocol::TCP => 20,
            protocol::UDP | protocol::ICMP | protocol::ICMPV6 => 8,
            _ => 0,
        };
        if !frame.is_later_fragment() && frame.payload_wire_len < least {
            cx.count("first fragments without a whole header", 1);
        }
    }

    fn begin(&mut self, key: Key, cx: &mut Context<'_>) {
        while self.packets.len() >= DECAP_PACKETS {
            if !self.give_up_oldest("fragmented packets given up to make room", cx) {
                break;
            }
        }
        // Entries of complete packets pile up behind one of a packet that is not complete.
        if self.due.len() > 2 * DECAP_PACKETS {
            let packets = &self.packets;
            self.due.retain(|(_, key, serial)| is_under_way(packets, key, *serial));
        }
        self.serials += 1;
        let packet =
            Packet { pieces: Pieces::default(), len: None, head: None, serial: self.serials, phase: Phase::Open };
        self.packets.insert(key, packet);
        self.due.push_back((cx.now.saturating_add(self.timeout), key, self.serials));
    }

    /// Gives the packet, which has all its bytes.
    fn end(&mut self, key: &Key, last: &Descriptor, cx: &mut Context<'_>) -> Added {
        let Some(mut packet) = self.packets.remove(key) else { return Added::Kept };
        let whole = packet.copy(last, cx);
        if self.refuses {
            if let Some((head, _)) = packet.head.take() {
                cx.rings.release(&head);
            }
            packet.phase = Phase::Passed;
            self.packets.insert(*key, packet);
            self.passed.push_back((cx.now.saturating_add(self.timeout), *key));
            self.completed += 1;
        } else {
            self.let_go(&mut packet, cx.rings);
        }
        // Remove the entries of complete packets, which few timeouts and evictions reach.
        while self.due.front().is_some_and(|(_, key, serial)| !is_under_way(&self.packets, key, *serial)) {
            self.due.pop_front();
        }
        match whole {
            Ok(block) => {
                self.whole += 1;
                cx.count("packets put together", 1);
                Added::Whole(block)
            }
            Err(reason) => Added::Dropped(reason),
        }
    }

    fn let_go(&mut self, packet: &mut Packet, rings: &BlockTable) {
        self.held -= packet.pieces.held();
        self.pieces -= packet.pieces.count();
        packet.pieces.release(rings);
        if let Some((head, _)) = packet.head.take() {
            rings.release(&head);
        }
    }

    /// Gives up on the packet that began first; `false` if there is none.
    fn give_up_oldest(&mut self, event: &'static str, cx: &mut Context<'_>) -> bool {
        while let Some((_, key, serial)) = self.due.pop_front() {
            if !is_under_way(&self.packets, &key, serial) {
                continue;
            }
            if let Some(mut packet) = self.packets.remove(&key) {
                self.let_go(&mut packet, cx.rings);
                self.given_up += 1;
                cx.count(event, 1);
                return true;
            }
        }
        false
    }

    /// When to give up on the first packet, or to forget one.
    pub fn next_due(&self) -> u64 {
        let due = self.due.front().map(|(due, _, _)| *due);
        let complete = [self.passed.front(), self.stopped.front()].into_iter().flatten().map(|(due, _)| *due);
        complete.chain(due).min().unwrap_or(u64::MAX)
    }

    pub fn expire(&mut self, cx: &mut Context<'_>) {
        self.forget_until(cx.now, cx.rings);
        while let Some((due, key, serial)) = self.due.front().copied() {
            if is_under_way(&self.packets, &key, serial) {
                if due > cx.now {
                    break;
                }
                self.give_up_oldest("fragmented packets given up after a time", cx);
            } else {
                self.due.pop_front();
            }
        }
    }

    /// Forgets complete packets whose time is over.
    fn forget_until(&mut self, now: u64, rings: &BlockTable) {
        while self.passed.front().is_some_and(|(due, _)| *due <= now) {
            self.forget_passed(rings);
        }
        while let Some((_, key)) = self.stopped.pop_front_if(|(due, _)| *due <= now) {
            self.forget(&key, rings);
        }
    }

    /// Gives up on all packets, and warns where they were many.
    pub fn finish(&mut self, cx: &mut Context<'_>) {
        /// Fewer unfinished packets than one in this many need no warning.
        const ONE_IN: u64 = 10;
        while self.give_up_oldest("fragmented packets unfinished", cx) {}
        self.forget_until(u64::MAX, cx.rings);
        let (lost, all) = (self.given_up, self.given_up + self.whole);
        if lost * ONE_IN > all {
            cx.notice(format!("{lost} of {all} fragmented packets are left out, for fragments are missing"));
        }
    }
}

fn is_under_way(packets: &HashMap<Key, Packet>, key: &Key, serial: u64) -> bool {
    packets.get(key).is_some_and(|packet| packet.serial == serial && packet.phase == Phase::Open)
}

impl Packet {
    /// Whether a fragment up to `end` contradicts the packet's length.
    fn disagrees(&self, end: u32, is_last: bool) -> bool {
        self.len.is_some_and(|len| end > len || is_last && end != len) || is_last && self.pieces.end() > end
    }

    /// Copies the whole packet to one place, or says why that is impossible.
    fn copy(&self, last: &Descriptor, cx: &mut Context<'_>) -> Result<Descriptor, &'static str> {
        const GONE: &str = "bytes of fragments are gone";
        let (head, first) = self.head.as_ref().ok_or(GONE)?;
        let len = self.len.ok_or(GONE)?;
        let captured = self.pieces.captured().ok_or("fragments cut by the capture")?;
        let own = cx.rings.view_like(last, cx.own).ok_or("no view for a whole packet")?;
        let headers = Headers::of(cx.rings.bytes(head), first, len)?;
        let (at, most) = (headers.bytes.len(), headers.bytes.len() + captured as usize);
        let rings = &*cx.rings;
        let whole = rings.append(own, most, |space| {
            let (front, payload) = space.split_at_mut(at);
            front.copy_from_slice(&headers.bytes);
            self.pieces.copy_to(payload, rings);
            (most, ())
        });
        let (mut block, ()) = whole.ok_or(GONE)?;
        (block.time, block.class) = (last.time, last.class);
        block.set_flags(last.flags());
        block.set_wire(at as u32 + len);
        Ok(block)
    }
}

/// The headers of a whole packet.
struct Headers {
    bytes: Vec<u8>,
}

impl Headers {
    /// `head`: the headers of the first fragment from its link header on; `len`: the payload's length.
    fn of(head: &[u8], first: &Frame, len: u32) -> Result<Headers, &'static str> {
        const GONE: &str = "bytes of fragments are gone";
        const TOO_LONG: &str = "fragments of more than 65535 bytes";
        let network = first.network_offset as usize;
        let mut bytes = head.to_vec();
        let put = |bytes: &mut Vec<u8>, at: usize, number: u16| {
            let field = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>);
            field.map(|field| *field = number.to_be_bytes()).ok_or(GONE)
        };
        if first.version == 4 {
            let header = (bytes.len() - network.min(bytes.len())) as u32;
            let total = u16::try_from(header + len).map_err(|_| TOO_LONG)?;
            put(&mut bytes, network + 2, total)?;
            // Clear the offset and the more-fragments flag; the other flags stay.
            let flags = bytes.get(network + 6).ok_or(GONE)? & 0xc0;
            put(&mut bytes, network + 6, u16::from(flags) << 8)?;
            put(&mut bytes, network + 10, 0)?;
            let sum = Sum::of(bytes.get(network..).ok_or(GONE)?).checksum();
            put(&mut bytes, network + 10, sum)?;
            return Ok(Headers { bytes });
        }
        // The fragment header is the last header; the header that named it now names what follows it.
        let fragment = bytes.len().checked_sub(8).ok_or(GONE)?;
        let next = *bytes.get(fragment).ok_or(GONE)?;
        bytes.truncate(fragment);
        let mut named = network + 6;
        let mut at = network + ipv6::Packet::HEADER_BYTES;
        while at < fragment {
            let unit = if bytes.get(named) == Some(&ipv6::AUTHENTICATION) { 4 } else { 8 };
            named = at;
            at += 8 + usize::from(*bytes.get(at + 1).ok_or(GONE)?) * unit;
        }
        *bytes.get_mut(named).ok_or(GONE)? = next;
        let between = (fragment - network).checked_sub(ipv6::Packet::HEADER_BYTES).ok_or(GONE)? as u32;
        put(&mut bytes, network + 4, u16::try_from(between + len).map_err(|_| TOO_LONG)?)?;
        Ok(Headers { bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::frame;
    use packet::link::LinkType;

    /// The first fragment's other headers are valid in these rows.
    #[test]
    fn headers_of_whole_packets_say_what_there_is() {
        let v4 = [0x46, 0, 0, 32, 0, 7, 0x60, 0, 64, 17, 9, 9, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 0];
        let link = [2; 14];
        let frame = [&[2; 12][..], &[8, 0], &v4, &[3; 8]].concat();
        let first = frame::parse(LinkType::ETHERNET, &frame, frame.len() as u32).unwrap();
        let head = [&link[..], &v4].concat();
        let headers = Headers::of(&head, &first, 1000).unwrap().bytes;
        assert_eq!((&headers[..14], &headers[16..18], &headers[20..22]), (&link[..], &[4, 0][..], &[0x40, 0][..]));
        assert_eq!(Sum::of(&headers[14..]).checksum(), 0);
        assert_eq!(Headers::of(&head, &first, 65_512).err(), Some("fragments of more than 65535 bytes"));
        assert!(Headers::of(&head[..20], &first, 1000).is_err());
    }

    #[test]
    fn what_named_the_fragment_header_names_what_follows_it() {
        let check = |before: &[u8], first_next: u8, named: usize| {
            let mut packet = vec![0x60, 0, 0, 0, 0, (before.len() + 16) as u8, first_next, 64];
            packet.extend([1; 32]);
            packet.extend(before);
            packet.extend([17, 0, 0, 1, 0, 0, 0, 9]);
            let head = packet.clone();
            packet.extend([3; 8]);
            let first = frame::parse(LinkType::RAW, &packet, packet.len() as u32).unwrap();
            let headers = Headers::of(&head, &first, 100).unwrap().bytes;
            assert_eq!(headers.len(), 40 + before.len());
            assert_eq!(headers[named], 17);
            assert_eq!(u16::from_be_bytes([headers[4], headers[5]]) as usize, before.len() + 100);
        };
        check(&[], 44, 6);
        check(&[44, 0, 1, 4, 0, 0, 0, 0], 0, 40);
        check(&[60, 0, 1, 4, 0, 0, 0, 0, 44, 1, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0, 48);
        check(&[44, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2], 51, 40);
    }
}
