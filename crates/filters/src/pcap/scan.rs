//! Turns the bytes of a capture into descriptors, up to a batch at a time. Does no I/O: `mapped.rs` and `streamed.rs`
//! show it a window of the capture.
//!
//! Tiers, by how often they run:
//! 1. *plain records*: classic pcap 2.4 of either byte order and resolution. One loop for each variant. It decides only
//!    "is the record odd" and "is it whole", and writes only the descriptor.
//! 2. *any records*: pcapng, Kuznetzov's pcap and old versions of pcap. One call of `packet`'s reader per record.
//! 3. *oddities*: empty frames, frames longer than a descriptor can express, absurd lengths. Out of line.

use base::limits::{BATCH_BLOCKS, BLOCK_BYTES, RINGS};
use buffer::{BlockTable, Descriptor, Flags, Interface, SegmentId, ViewId, WIRE_MAX};
use filter::Counters;
use packet::LinkType;
use packet::capture::{ByteOrder, Cause, Damage, Record, Stop};
use packet::capture_file::Reader;
use packet::pcap_file::{Header, RecordHeader, Resolution};
use packet::pcapng::{Direction, direction};
use packet::sniff::{FileKind, sniff};

#[derive(Debug)]
pub(super) enum Next {
    /// The batch is full.
    Enough,
    /// More input is needed: the window must hold this many bytes from where the scan ended.
    More(usize),
    /// The interface of this frame has no view yet: see [`Scanner::name`].
    Unnamed(Descriptor, u32),
    /// The rest of the capture cannot be read.
    Damaged(Damage),
    /// The capture cannot be read on here because another one begins at this offset.
    Another(u64),
}

/// The result of a scan.
#[derive(Debug)]
pub(super) struct Scanned {
    /// Bytes of the window that are used up.
    pub(super) consumed: usize,
    /// At least one frame was empty. In a truncated mapped file all are.
    pub(super) empties: bool,
    pub(super) next: Next,
}

/// Scans one capture.
#[derive(Debug)]
pub(super) struct Scanner {
    reader: Reader,
    /// The header if all records are plain (the first tier).
    plain: Option<Header>,
    /// Offset of the next window in the capture. Used for plain records only; the other readers keep their own.
    offset: u64,
    /// The view of each interface, by interface number.
    views: Vec<Option<Named>>,
}

/// An interface with its view.
#[derive(Clone, Debug)]
struct Named {
    view: ViewId,
    interface: Interface,
    /// The last section that described it.
    section: u64,
}

impl Scanner {
    /// Reads the header of a capture. Returns also its length.
    pub(super) fn open(window: &[u8]) -> Result<(Scanner, usize), Stop> {
        let (reader, consumed) = Reader::open(window)?;
        let plain = match &reader {
            Reader::Pcap(reader) => Some(*reader.header()).filter(Header::is_plain),
            Reader::Pcapng(_) => None,
        };
        Ok((Scanner { reader, plain, offset: consumed as u64, views: Vec::new() }, consumed))
    }

    /// Appends the frames in `window` to `out` until the batch is full. The window begins where the last scan ended;
    /// that is position `base` of the ring.
    pub(super) fn scan(
        &mut self,
        window: &[u8],
        base: u64,
        out: &mut Vec<Descriptor>,
        counters: &mut Counters,
    ) -> Scanned {
        let named = self.views.first().and_then(Option::as_ref).map(|named| named.view);
        let (Some(header), Some(view)) = (self.plain, named) else {
            return self.scan_any(window, base, out, counters);
        };
        let mut plain = PlainScan { window, base, view, header, offset: self.offset, counters };
        let scanned = match (header.order, header.resolution) {
            (ByteOrder::Little, Resolution::Microseconds) => plain.scan::<false, 1_000>(out),
            (ByteOrder::Little, Resolution::Nanoseconds) => plain.scan::<false, 1>(out),
            (ByteOrder::Big, Resolution::Microseconds) => plain.scan::<true, 1_000>(out),
            (ByteOrder::Big, Resolution::Nanoseconds) => plain.scan::<true, 1>(out),
        };
        self.offset += scanned.consumed as u64;
        scanned
    }

    /// The second tier. Also reads the first record of every capture, because its interface has no view yet.
    fn scan_any(&mut self, window: &[u8], base: u64, out: &mut Vec<Descriptor>, counters: &mut Counters) -> Scanned {
        let (mut at, mut empties) = (0, false);
        let next = loop {
            if out.len() >= BATCH_BLOCKS {
                break Next::Enough;
            }
            let rest = window.get(at..).unwrap_or_default();
            if self.plain.is_some() && begins_another(rest) {
                break Next::Another(self.offset + at as u64);
            }
            let here = self.position(at);
            let record = match self.reader.next(rest) {
                Ok(record) => record,
                Err(Stop::More { consumed, need }) => {
                    at += consumed;
                    break Next::More(need);
                }
                Err(Stop::Damaged(damage))
                    if let Some(behind) = rest.get((damage.offset - here) as usize..)
                        && self.is_followed(behind) =>
                {
                    break Next::Another(damage.offset);
                }
                Err(Stop::Damaged(damage)) => break Next::Damaged(damage),
            };
            let outbound = self.is_outbound(&record, rest);
            let pos = base + (at + record.data_offset) as u64;
            let Record { time_ns, captured_len, wire_len, interface, .. } = record;
            at += record.consumed;
            empties |= captured_len == 0;
            let mut block = describe(pos, time_ns, captured_len, wire_len, counters);
            if outbound {
                block.add_flags(Flags::OUTBOUND);
            }
            match self.view(interface) {
                Some(view) => out.push(in_view(block, view)),
                None => break Next::Unnamed(block, interface),
            }
        };
        if self.plain.is_some() {
            self.offset += at as u64;
        }
        Scanned { consumed: at, empties, next }
    }

    /// The offset in the capture of position `at` in the window.
    #[inline]
    fn position(&self, at: usize) -> u64 {
        match &self.reader {
            Reader::Pcap(_) => self.offset + at as u64,
            Reader::Pcapng(reader) => reader.offset(),
        }
    }

    /// Whether another capture begins where this one cannot be read on. A further section of pcapng does not count.
    #[cold]
    fn is_followed(&self, bytes: &[u8]) -> bool {
        match &self.reader {
            Reader::Pcap(_) => begins_another(bytes),
            Reader::Pcapng(_) => sniff(bytes) == Some(FileKind::Pcap) && begins_another(bytes),
        }
    }

    /// The view of an interface of the current section; `None` if it has none yet.
    #[inline]
    fn view(&self, interface: u32) -> Option<ViewId> {
        let named = self.views.get(interface as usize)?.as_ref()?;
        (named.section == self.section()).then_some(named.view)
    }

    #[inline]
    fn section(&self) -> u64 {
        match &self.reader {
            Reader::Pcap(_) => 0,
            Reader::Pcapng(reader) => reader.sections(),
        }
    }

    #[inline]
    fn is_outbound(&self, record: &Record, rest: &[u8]) -> bool {
        match &self.reader {
            Reader::Pcapng(reader) if record.options_len > 0 => {
                direction(record.options(rest), reader.order()) == Some(Direction::Outbound)
            }
            _ => false,
        }
    }

    /// Puts the frame of [`Next::Unnamed`] into the view of its interface. Adds a view unless the previous section had
    /// the same interface under the same number. `None`: no views are left.
    #[cold]
    pub(super) fn name(
        &mut self,
        block: Descriptor,
        interface: u32,
        segment: SegmentId,
        rings: &mut BlockTable,
    ) -> Option<Descriptor> {
        let section = self.section();
        let order = match &self.reader {
            Reader::Pcap(reader) => reader.header().order,
            Reader::Pcapng(reader) => reader.order(),
        };
        let interface_of_block = describe_interface(self.reader.interface(interface)?, order);
        let place = interface as usize;
        if self.views.len() <= place {
            self.views.resize(place + 1, None);
        }
        let slot = &mut self.views[place];
        let view = match slot.as_mut().filter(|named| named.interface == interface_of_block) {
            Some(named) => {
                named.section = section;
                named.view
            }
            None => {
                let view = rings.add_view(segment, interface_of_block.clone())?;
                *slot = Some(Named { view, interface: interface_of_block, section });
                view
            }
        };
        Some(in_view(block, view))
    }

    /// The error when [`name`](Scanner::name) returns `None`.
    #[cold]
    pub(super) fn too_many_interfaces(&self) -> String {
        format!(
            "byte {}: its packets are of more interfaces than one run can tell apart ({RINGS} with all that it reads); what \
             precedes it was read (split the file, for instance with `editcap -c 10000`)",
            self.position(0)
        )
    }

    /// Checks that the capture may end with `rest` left over.
    pub(super) fn finish(&self, rest: &[u8]) -> Result<(), Damage> {
        let Some(header) = self.plain.filter(|_| !rest.is_empty()) else { return self.reader.finish(rest) };
        let record = rest.first_chunk().and_then(|bytes| header.record(bytes).ok());
        let expected = header.record_header_bytes() as u64 + record.map_or(0, |record| u64::from(record.stored_len));
        let cause = Cause::EndsInRecord { present: rest.len() as u64, expected };
        Err(Damage { offset: self.offset, cause })
    }
}

fn describe_interface(interface: &packet::capture::Interface, order: ByteOrder) -> Interface {
    let link = match (interface.link.canonical(), order) {
        // The 4-byte header of BSD loopback is in the writer's byte order. In big-endian it equals OpenBSD's LOOP, so
        // map it to that: code further down does not know the byte order.
        (LinkType::NULL, ByteOrder::Big) => LinkType::LOOP,
        (link, _) => link,
    };
    Interface {
        link_type: Some(link.0),
        name: interface.name.clone(),
        description: interface.description.clone(),
        snap_len: interface.snap_len,
        nanoseconds: interface.nanoseconds,
        tunnels: None,
    }
}

/// Whether a capture begins where a record should. Read as a record, a classic header is an empty frame: it has two zeroes
/// where the lengths would be.
#[cold]
fn begins_another(bytes: &[u8]) -> bool {
    match sniff(bytes) {
        Some(FileKind::Pcap) => bytes.get(8..16) == Some(&[0; 8]),
        kind => kind == Some(FileKind::Pcapng),
    }
}

/// The descriptor of a frame, without a view. Lengths that a descriptor cannot express are cut and counted.
#[inline]
fn describe(pos: u64, time: u64, captured_len: u32, wire_len: u32, counters: &mut Counters) -> Descriptor {
    let len = captured_len.min(BLOCK_BYTES as u32);
    let mut block = Descriptor { pos, time, len, ..Descriptor::default() };
    block.set_wire(wire_len);
    if len < wire_len {
        block.add_flags(Flags::TRUNCATED);
    }
    if captured_len > len {
        counters.events.add("frames cut to 16 MiB", 1);
    }
    if wire_len > WIRE_MAX {
        counters.events.add("lengths on the wire over 16 MiB", 1);
    }
    block
}

#[inline]
fn in_view(block: Descriptor, view: ViewId) -> Descriptor {
    Descriptor { ring: view.ring, generation: view.generation, ..block }
}

/// The first tier, with all its state in one place.
struct PlainScan<'a> {
    window: &'a [u8],
    base: u64,
    view: ViewId,
    header: Header,
    offset: u64,
    counters: &'a mut Counters,
}

impl PlainScan<'_> {
    fn scan<const BIG_ENDIAN: bool, const FRACTION_NS: u64>(&mut self, out: &mut Vec<Descriptor>) -> Scanned {
        const HEADER: usize = 16;
        let PlainScan { window, base, view, header, .. } = *self;
        let longest = header.link.maximum_snap_len().min(BLOCK_BYTES as u32);
        let (mut at, mut empties, mut next) = (0, false, Next::Enough);
        // Resize first and fill slots: pushes would check the capacity for each frame (5 to 8 % of all time).
        let mut filled = out.len();
        out.resize(BATCH_BLOCKS.max(filled), Descriptor::default());
        for slot in &mut out[filled..] {
            let Some(bytes) = window.get(at..).and_then(<[u8]>::first_chunk::<HEADER>) else {
                next = Next::More(HEADER);
                break;
            };
            let word = |place: usize| {
                let word = [bytes[place], bytes[place + 1], bytes[place + 2], bytes[place + 3]];
                if BIG_ENDIAN { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
            };
            let (stored_len, wire_len) = (word(8), word(12));
            // One comparison for both limits: the length of an empty frame wraps around.
            if stored_len.wrapping_sub(1) >= longest || wire_len > WIRE_MAX {
                match self.odd(at, bytes) {
                    Ok((block, consumed)) => {
                        (*slot, at, filled) = (block, at + consumed, filled + 1);
                        empties |= block.len == 0;
                        continue;
                    }
                    Err(stop) => {
                        next = stop;
                        break;
                    }
                }
            }
            let data = at + HEADER;
            let end = data + stored_len as usize;
            if end > window.len() {
                next = Next::More(end - at);
                break;
            }
            let len = stored_len.min(header.snap_len);
            let flags = if len < wire_len { Flags::TRUNCATED } else { Flags::NONE };
            *slot = Descriptor {
                pos: base + data as u64,
                time: u64::from(word(0)) * 1_000_000_000 + u64::from(word(4)) * FRACTION_NS,
                len,
                wire_and_flags: wire_len | u32::from(flags.0) << 24,
                ring: view.ring,
                generation: view.generation,
                ..Descriptor::default()
            };
            (at, filled) = (end, filled + 1);
        }
        out.truncate(filled);
        Scanned { consumed: at, empties, next }
    }

    /// Handles a record that is empty, longer than a descriptor can express, or absurd.
    #[cold]
    fn odd(&mut self, at: usize, bytes: &[u8; 16]) -> Result<(Descriptor, usize), Next> {
        if begins_another(bytes) {
            return Err(Next::Another(self.offset + at as u64));
        }
        let record = self.header.record(bytes);
        let RecordHeader { time_ns, stored_len, captured_len, wire_len } =
            record.map_err(|cause| Next::Damaged(Damage { offset: self.offset + at as u64, cause }))?;
        let consumed = bytes.len() + stored_len as usize;
        if self.window.len() - at < consumed {
            return Err(Next::More(consumed));
        }
        let pos = self.base + (at + bytes.len()) as u64;
        let block = describe(pos, time_ns, captured_len, wire_len, self.counters);
        Ok((in_view(block, self.view), consumed))
    }
}
