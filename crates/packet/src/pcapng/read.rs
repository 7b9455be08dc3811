//! Reads pcapng: blocks in, records out. `pcapng.rs` says which deviations it accepts.

use super::{BLOCK_FRAME_BYTES, BLOCK_LIMIT, BYTE_ORDER_MARK, Options, SECTION_HEADER_LIMIT, option};
use crate::capture::{ByteOrder, Cause, Damage, INTERFACE_LIMIT, Interface, Record, Stop, block};
use crate::link::LinkType;

/// Reads packets one after the other; see [`crate::capture`] for the loop.
#[derive(Clone, Debug)]
pub struct Reader {
    order: ByteOrder,
    /// The interfaces of the current section.
    interfaces: Vec<Described>,
    /// Grows when an interface is described whose link has larger packets.
    block_limit: u32,
    /// Offset of the next window in the file.
    offset: u64,
    /// Number of sections begun.
    sections: u64,
}

/// An interface and how to read its timestamps.
#[derive(Clone, Debug)]
struct Described {
    interface: Interface,
    unit: TimeUnit,
    offset_seconds: i64,
}

/// The unit of timestamps, in a form that converts quickly to nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeUnit {
    /// 10^-9 s or coarser: nanoseconds per tick.
    Nanoseconds(u64),
    /// Finer powers of ten: ticks per nanosecond.
    PerNanosecond(u64),
    /// 2 to the minus this many seconds.
    Binary(u32),
}

impl TimeUnit {
    fn from_option(value: u8) -> Option<Self> {
        match value {
            0..=9 => Some(Self::Nanoseconds(10_u64.pow(9 - u32::from(value)))),
            10..=19 => Some(Self::PerNanosecond(10_u64.pow(u32::from(value) - 9))),
            0x80..=0xbf => Some(Self::Binary(u32::from(value & 0x7f))),
            // So fine that the ticks of one second do not fit 64 bits.
            _ => None,
        }
    }

    fn is_below_microseconds(self) -> bool {
        match self {
            Self::Nanoseconds(each) => each < 1_000,
            Self::PerNanosecond(_) => true,
            Self::Binary(shift) => shift >= 20,
        }
    }

    #[inline]
    fn nanoseconds(self, ticks: u64) -> u64 {
        match self {
            Self::Nanoseconds(each) => ticks.saturating_mul(each),
            Self::PerNanosecond(count) => ticks / count,
            Self::Binary(shift) => {
                let nanoseconds = (u128::from(ticks) * 1_000_000_000) >> shift;
                u64::try_from(nanoseconds).unwrap_or(u64::MAX)
            }
        }
    }
}

impl Described {
    #[inline]
    fn time_ns(&self, ticks: u64) -> u64 {
        let since = self.unit.nanoseconds(ticks);
        match self.offset_seconds {
            0 => since,
            later @ 1.. => since.saturating_add(later.unsigned_abs().saturating_mul(1_000_000_000)),
            earlier => since.saturating_sub(earlier.unsigned_abs().saturating_mul(1_000_000_000)),
        }
    }
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// A reader at the start of a file.
    pub const fn new() -> Self {
        Self { order: ByteOrder::Little, interfaces: Vec::new(), block_limit: BLOCK_LIMIT, offset: 0, sections: 0 }
    }

    /// An interface of the section with the last packet.
    pub fn interface(&self, index: u32) -> Option<&Interface> {
        self.interfaces.get(index as usize).map(|described| &described.interface)
    }

    /// Offset of the next window in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Number of sections begun. When it grows, interface numbers begin at 0 again.
    #[inline]
    pub fn sections(&self) -> u64 {
        self.sections
    }

    /// Byte order of the section with the last packet, for [`Options`].
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// Finds the next packet. `window` must start where the last one ended. Allocates only for interface descriptions.
    #[inline]
    pub fn next(&mut self, window: &[u8]) -> Result<Record, Stop> {
        let mut at = 0;
        loop {
            let rest = window.get(at..).unwrap_or_default();
            let (kind, body) = match self.block(rest) {
                Ok(found) => found,
                Err(Stop::More { need, .. }) => return Err(Stop::More { consumed: at, need }),
                Err(damaged) => return Err(damaged),
            };
            let block_bytes = body.len() + BLOCK_FRAME_BYTES as usize;
            let found = match kind {
                block::ENHANCED_PACKET => self.enhanced_packet(body)?,
                block::SIMPLE_PACKET => self.simple_packet(body)?,
                block::OBSOLETE_PACKET => self.obsolete_packet(body)?,
                other => {
                    self.other_block(other, body)?;
                    self.offset += block_bytes as u64;
                    at += block_bytes;
                    continue;
                }
            };
            self.offset += block_bytes as u64;
            let base = at + 8;
            return Ok(Record {
                data_offset: base + found.data_offset,
                options_offset: base + found.options_offset,
                consumed: at + block_bytes,
                ..found
            });
        }
    }

    /// Checks that the file may end with `rest` left over.
    pub fn finish(&self, rest: &[u8]) -> Result<(), Damage> {
        if rest.is_empty() {
            return if self.offset == 0 { self.damaged(Cause::EndsInHeader) } else { Ok(()) };
        }
        let expected = match rest.get(4..8) {
            Some(&[a, b, c, d]) => u64::from(self.order.u32([a, b, c, d])),
            _ => u64::from(BLOCK_FRAME_BYTES),
        };
        self.damaged(Cause::EndsInRecord { present: rest.len() as u64, expected })
    }

    fn damaged<T>(&self, cause: Cause) -> Result<T, Damage> {
        Err(Damage { offset: self.offset, cause })
    }

    fn stop<T>(&self, cause: Cause) -> Result<T, Stop> {
        Err(Stop::Damaged(Damage { offset: self.offset, cause }))
    }

    /// Type and body of the block at the start of `bytes`. Takes the byte order from a section header.
    #[inline]
    fn block<'a>(&mut self, bytes: &'a [u8]) -> Result<(u32, &'a [u8]), Stop> {
        let Some(&[a, b, c, d, e, f, g, h, i, j, k, l]) = bytes.first_chunk() else {
            return Err(Stop::More { consumed: 0, need: BLOCK_FRAME_BYTES as usize });
        };
        let mut limit = self.block_limit;
        let mut least = BLOCK_FRAME_BYTES;
        if [a, b, c, d] == block::SECTION_HEADER.to_be_bytes() {
            let mark = u32::from_be_bytes([i, j, k, l]);
            self.order = match mark {
                BYTE_ORDER_MARK => ByteOrder::Big,
                _ if mark == BYTE_ORDER_MARK.swap_bytes() => ByteOrder::Little,
                _ => return self.stop(Cause::ByteOrderMark(mark)),
            };
            (least, limit) = (28, SECTION_HEADER_LIMIT);
        } else if self.offset == 0 {
            return self.stop(Cause::NotACapture(None));
        }
        let kind = self.order.u32([a, b, c, d]);
        let length = self.order.u32([e, f, g, h]);
        if !(least..=limit).contains(&length) || !length.is_multiple_of(4) {
            return self.stop(Cause::BlockLength { kind, length, least, most: limit });
        }
        let Some((body, &trailer)) = bytes.get(8..length as usize).and_then(<[u8]>::split_last_chunk) else {
            return Err(Stop::More { consumed: 0, need: length as usize });
        };
        let end = self.order.u32(trailer);
        if length != end {
            return self.stop(Cause::BlockTrailer { start: length, end });
        }
        Ok((kind, body))
    }

    /// Interface, timestamp (two words), captured length, wire length, data, options.
    #[inline]
    fn enhanced_packet(&self, body: &[u8]) -> Result<Record, Stop> {
        let Some((&[a, b, c, d, times @ ..], _)) = body.split_first_chunk::<20>() else {
            return self.too_short(block::ENHANCED_PACKET, body, 20);
        };
        self.packet(self.order.u32([a, b, c, d]), times, body)
    }

    /// Like an enhanced packet, but with 16 bits of interface and 16 bits of drop count in front.
    fn obsolete_packet(&self, body: &[u8]) -> Result<Record, Stop> {
        let Some((&[a, b, _, _, times @ ..], _)) = body.split_first_chunk::<20>() else {
            return self.too_short(block::OBSOLETE_PACKET, body, 20);
        };
        self.packet(u32::from(self.order.u16([a, b])), times, body)
    }

    #[inline]
    fn packet(&self, interface: u32, fields: [u8; 16], body: &[u8]) -> Result<Record, Stop> {
        const DATA_OFFSET: usize = 20;
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = fields;
        let ticks = u64::from(self.order.u32([a, b, c, d])) << 32 | u64::from(self.order.u32([e, f, g, h]));
        let (captured_len, wire_len) = (self.order.u32([i, j, k, l]), self.order.u32([m, n, o, p]));
        let Some(described) = self.interfaces.get(interface as usize) else {
            return self.unknown(interface);
        };
        let data_end = DATA_OFFSET + captured_len as usize;
        if data_end > body.len() {
            let limit = (body.len() - DATA_OFFSET) as u32;
            return self.stop(Cause::CapturedLength { length: captured_len, limit });
        }
        // The body's length is a multiple of four, so the padding is inside it.
        let options_offset = data_end.next_multiple_of(4);
        Ok(Record {
            time_ns: described.time_ns(ticks),
            data_offset: DATA_OFFSET,
            captured_len,
            wire_len,
            interface,
            options_offset,
            options_len: body.len().saturating_sub(options_offset),
            consumed: 0,
        })
    }

    /// Wire length and data. The packet belongs to the section's first interface and has no time.
    fn simple_packet(&self, body: &[u8]) -> Result<Record, Stop> {
        let Some((&wire_len, data)) = body.split_first_chunk() else {
            return self.too_short(block::SIMPLE_PACKET, body, 4);
        };
        let wire_len = self.order.u32(wire_len);
        let Some(described) = self.interfaces.first() else { return self.unknown(0) };
        let captured_len = match described.interface.snap_len {
            0 => wire_len,
            snap_len => wire_len.min(snap_len),
        };
        if captured_len as usize > data.len() {
            return self.stop(Cause::CapturedLength { length: captured_len, limit: data.len() as u32 });
        }
        Ok(Record {
            time_ns: 0,
            data_offset: 4,
            captured_len,
            wire_len,
            interface: 0,
            options_offset: 0,
            options_len: 0,
            consumed: 0,
        })
    }

    fn unknown<T>(&self, interface: u32) -> Result<T, Stop> {
        self.stop(Cause::UnknownInterface { interface, described: self.interfaces.len() as u32 })
    }

    /// The error for a block without space for `fields`, the bytes that every block of its type has.
    fn too_short<T>(&self, kind: u32, body: &[u8], fields: u32) -> Result<T, Stop> {
        let [length, least] = [body.len() as u32, fields].map(|bytes| bytes + BLOCK_FRAME_BYTES);
        self.stop(Cause::BlockLength { kind, length, least, most: self.block_limit })
    }

    #[cold]
    fn other_block(&mut self, kind: u32, body: &[u8]) -> Result<(), Stop> {
        match kind {
            block::SECTION_HEADER => {
                // The length could only be read after the byte order mark was checked.
                let Some(&[_, _, _, _, a, b, c, d]) = body.first_chunk() else {
                    return self.too_short(kind, body, 16);
                };
                match (self.order.u16([a, b]), self.order.u16([c, d])) {
                    // 1.2 was written by mistake and means 1.0.
                    (1, 0 | 2) => {
                        self.interfaces.clear();
                        self.sections += 1;
                    }
                    (major, minor) => return self.stop(Cause::UnsupportedVersion { major, minor }),
                }
            }
            block::INTERFACE_DESCRIPTION => {
                let described = self.interface_description(body)?;
                if self.interfaces.len() == INTERFACE_LIMIT {
                    return self.stop(Cause::TooManyInterfaces);
                }
                let largest_packet = described.interface.link.maximum_snap_len();
                // As in libpcap: 128 KiB for everything in the block except the packet.
                self.block_limit = self.block_limit.max(largest_packet.saturating_add(131_072));
                self.interfaces.push(described);
            }
            _ => {}
        }
        Ok(())
    }

    fn interface_description(&self, body: &[u8]) -> Result<Described, Stop> {
        let Some((&[a, b, _, _, c, d, e, f], options)) = body.split_first_chunk() else {
            return self.too_short(block::INTERFACE_DESCRIPTION, body, 8);
        };
        let mut described = Described {
            interface: Interface {
                link: LinkType(self.order.u16([a, b])),
                snap_len: self.order.u32([c, d, e, f]),
                fcs_bytes: None,
                name: None,
                description: None,
                nanoseconds: false,
            },
            unit: TimeUnit::Nanoseconds(1_000),
            offset_seconds: 0,
        };
        let mut options = Options::new(options, self.order);
        for (code, value) in options.by_ref() {
            let bad = || Stop::Damaged(Damage { offset: self.offset, cause: Cause::InterfaceOption(code) });
            match (code, value) {
                (option::INTERFACE_NAME, name) => {
                    described.interface.name = Some(String::from_utf8_lossy(name).into_owned());
                }
                (option::INTERFACE_DESCRIPTION, text) => {
                    described.interface.description = Some(String::from_utf8_lossy(text).into_owned());
                }
                (option::INTERFACE_TIME_RESOLUTION, &[value]) => {
                    described.unit = TimeUnit::from_option(value).ok_or_else(bad)?;
                    described.interface.nanoseconds = described.unit.is_below_microseconds();
                }
                (option::INTERFACE_TIME_OFFSET, value) => {
                    let value: [u8; 8] = value.try_into().map_err(|_| bad())?;
                    described.offset_seconds = match self.order {
                        ByteOrder::Little => i64::from_le_bytes(value),
                        ByteOrder::Big => i64::from_be_bytes(value),
                    };
                }
                (option::INTERFACE_TIME_RESOLUTION, _) => return Err(bad()),
                (option::INTERFACE_FCS_LENGTH, &[bytes]) => described.interface.fcs_bytes = Some(bytes),
                _ => {}
            }
        }
        match options.cut {
            Some(code) => self.stop(Cause::InterfaceOption(code)),
            None => Ok(described),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sniff::{FileKind, sniff};

    /// A block with correct lengths, in this byte order.
    fn block(order: ByteOrder, kind: u32, body: &[u8]) -> Vec<u8> {
        let length = body.len() as u32 + BLOCK_FRAME_BYTES;
        let word = |number: u32| match order {
            ByteOrder::Little => number.to_le_bytes(),
            ByteOrder::Big => number.to_be_bytes(),
        };
        [&word(kind), &word(length), body, &word(length)].concat()
    }

    fn words(order: ByteOrder, numbers: &[u32]) -> Vec<u8> {
        match order {
            ByteOrder::Little => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
            ByteOrder::Big => numbers.iter().flat_map(|number| number.to_be_bytes()).collect(),
        }
    }

    fn option(order: ByteOrder, code: u16, value: &[u8]) -> Vec<u8> {
        let half = |number: u16| match order {
            ByteOrder::Little => number.to_le_bytes(),
            ByteOrder::Big => number.to_be_bytes(),
        };
        let mut bytes = [&half(code)[..], &half(value.len() as u16), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn section(order: ByteOrder) -> Vec<u8> {
        let version = match order {
            ByteOrder::Little => [1, 0, 0, 0],
            ByteOrder::Big => [0, 1, 0, 0],
        };
        let body = [&words(order, &[BYTE_ORDER_MARK])[..], &version, &[0xff; 8]].concat();
        block(order, block::SECTION_HEADER, &body)
    }

    fn interface(order: ByteOrder, link: u16, snap_len: u32, options: &[u8]) -> Vec<u8> {
        let link = match order {
            ByteOrder::Little => link.to_le_bytes(),
            ByteOrder::Big => link.to_be_bytes(),
        };
        block(order, block::INTERFACE_DESCRIPTION, &[&link[..], &[0, 0], &words(order, &[snap_len]), options].concat())
    }

    /// Interface, time, wire length and data.
    type Packet = (u32, u64, u32, Vec<u8>);

    /// Reads a whole file at once: its packets, and how it ended.
    fn read(file: &[u8]) -> (Vec<Packet>, Result<(), Damage>) {
        let (mut reader, mut at, mut packets) = (Reader::new(), 0, Vec::new());
        loop {
            match reader.next(&file[at..]) {
                Ok(record) => {
                    let data = record.data(&file[at..]).to_vec();
                    packets.push((record.interface, record.time_ns, record.wire_len, data));
                    at += record.consumed;
                }
                Err(Stop::More { consumed, .. }) => return (packets, reader.finish(&file[at + consumed..])),
                Err(Stop::Damaged(damage)) => return (packets, Err(damage)),
            }
        }
    }

    #[test]
    fn packets_of_all_kinds_in_either_order() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let obsolete = match order {
                ByteOrder::Little => [0, 0, 9, 0],
                ByteOrder::Big => [0, 0, 0, 9],
            };
            let file = [
                section(order),
                interface(order, 1, 4, &[]),
                block(order, block::ENHANCED_PACKET, &[&words(order, &[0, 1, 2, 3, 60])[..], b"abc\0"].concat()),
                block(order, 0x0bad, &[1, 2, 3, 4]),
                block(order, block::SIMPLE_PACKET, &[&words(order, &[60])[..], b"wxyz"].concat()),
                block(
                    order,
                    block::OBSOLETE_PACKET,
                    &[&obsolete[..], &words(order, &[0, 7, 2, 60]), b"pq\0\0"].concat(),
                ),
            ]
            .concat();
            let microseconds = (1 << 32 | 2) * 1_000;
            let expected =
                [(0, microseconds, 60, b"abc".to_vec()), (0, 0, 60, b"wxyz".to_vec()), (0, 7_000, 60, b"pq".to_vec())];
            assert_eq!(read(&file), (expected.to_vec(), Ok(())));
            assert_eq!(sniff(&file), Some(FileKind::Pcapng));
        }
    }

    #[test]
    fn sections_have_their_own_order_and_interfaces() {
        let packet = |order, interface| {
            block(order, block::ENHANCED_PACKET, &[&words(order, &[interface, 0, 1, 1, 1])[..], b"a\0\0\0"].concat())
        };
        let one = [section(ByteOrder::Little), interface(ByteOrder::Little, 1, 0, &[]), packet(ByteOrder::Little, 0)]
            .concat();
        let two = [section(ByteOrder::Big), interface(ByteOrder::Big, 101, 0, &[]), packet(ByteOrder::Big, 0)].concat();
        let (packets, end) = read(&[&one[..], &two, &one].concat());
        assert_eq!((packets.len(), end), (3, Ok(())));
        // The second section has no interface 1, although the first one could have had it.
        let offset = (one.len() + two.len()) as u64;
        let (packets, end) = read(&[&one[..], &two, &packet(ByteOrder::Big, 1)].concat());
        assert_eq!(
            (packets.len(), end),
            (2, Err(Damage { offset, cause: Cause::UnknownInterface { interface: 1, described: 1 } }))
        );
        let mut reader = Reader::new();
        let first = reader.next(&one).unwrap();
        assert_eq!((first.consumed, reader.sections()), (one.len(), 1));
        assert_eq!((reader.next(&two).is_ok(), reader.sections()), (true, 2));
    }

    /// Rows: an interface's options, ticks, and the resulting nanoseconds.
    #[test]
    fn times() {
        let check = |options: &[(u16, &[u8])], ticks: u64, expected: u64| {
            let order = ByteOrder::Little;
            let options: Vec<u8> = options.iter().flat_map(|(code, value)| option(order, *code, value)).collect();
            let numbers = [0, (ticks >> 32) as u32, ticks as u32, 0, 0];
            let packet = block(order, block::ENHANCED_PACKET, &words(order, &numbers));
            let (packets, end) = read(&[section(order), interface(order, 1, 0, &options), packet].concat());
            assert_eq!((packets.len(), packets[0].1, end), (1, expected, Ok(())));
        };
        check(&[], 5, 5_000);
        check(&[(9, &[6])], 5, 5_000);
        check(&[(9, &[9])], u64::MAX, u64::MAX);
        check(&[(9, &[6])], u64::MAX, u64::MAX);
        check(&[(9, &[0])], 5, 5_000_000_000);
        check(&[(9, &[12])], 5_999, 5);
        check(&[(9, &[19])], u64::MAX, 1_844_674_407);
        check(&[(9, &[0x80])], 5, 5_000_000_000);
        check(&[(9, &[0x80 | 10])], 1_536, 1_500_000_000);
        check(&[(9, &[0x80 | 32])], 3 << 31, 1_500_000_000);
        check(&[(9, &[9]), (14, &7_i64.to_le_bytes())], 5, 7_000_000_005);
        check(&[(9, &[0]), (14, &(-3_i64).to_le_bytes())], 5, 2_000_000_000);
        check(&[(9, &[9]), (14, &i64::MIN.to_le_bytes())], 5, 0);
        check(&[(9, &[9]), (14, &i64::MAX.to_le_bytes())], 5, u64::MAX);
        check(&[(0, &[]), (9, &[9])], 5, 5_000);
    }

    #[test]
    fn interface_options() {
        let order = ByteOrder::Big;
        let options = [
            option(order, 2, b"eth0"),
            option(order, 3, b"uplink"),
            option(order, 13, &[4]),
            option(order, 77, b"unknown"),
        ]
        .concat();
        let packet = block(order, block::ENHANCED_PACKET, &words(order, &[0, 0, 0, 0, 0]));
        let file = [section(order), interface(order, 113, 96, &options), packet].concat();
        let mut reader = Reader::new();
        let record = reader.next(&file).unwrap();
        let expected = Interface {
            link: LinkType::LINUX_SLL,
            snap_len: 96,
            fcs_bytes: Some(4),
            name: Some("eth0".into()),
            description: Some("uplink".into()),
            nanoseconds: false,
        };
        assert_eq!(reader.interface(record.interface), Some(&expected));
        assert_eq!((reader.interface(1), reader.order()), (None, order));
    }

    /// Appends bytes to a valid section header and interface, and checks for damage at their start.
    #[test]
    fn damage() {
        let order = ByteOrder::Little;
        let start = [section(order), interface(order, 1, 0, &[])].concat();
        let check = |bytes: &[u8], expected: Cause| {
            let (packets, end) = read(&[&start[..], bytes].concat());
            assert_eq!((packets.len(), end), (0, Err(Damage { offset: start.len() as u64, cause: expected })));
        };
        let numbers = |numbers: &[u32]| words(order, numbers);
        let length = |kind, length, least| Cause::BlockLength { kind, length, least, most: BLOCK_LIMIT };
        check(&numbers(&[6, 8, 0, 0]), length(6, 8, 12));
        check(&numbers(&[6, 34, 0, 0]), length(6, 34, 12));
        check(&numbers(&[6, BLOCK_LIMIT + 4, 0]), length(6, BLOCK_LIMIT + 4, 12));
        check(&numbers(&[9, 12, 16]), Cause::BlockTrailer { start: 12, end: 16 });
        check(&numbers(&[9, 16, 0]), Cause::EndsInRecord { present: 12, expected: 16 });
        check(&numbers(&[9]), Cause::EndsInRecord { present: 4, expected: 12 });
        check(&block(order, 6, &numbers(&[0, 0, 0, 0])), length(6, 28, 32));
        check(&block(order, 3, &[]), length(3, 12, 16));
        check(&block(order, 2, &[0; 16]), length(2, 28, 32));
        check(&block(order, 6, &numbers(&[0, 0, 0, 5, 5, 0])), Cause::CapturedLength { length: 5, limit: 4 });
        check(&block(order, 3, &numbers(&[5, 0])), Cause::CapturedLength { length: 5, limit: 4 });
        check(&block(order, 6, &numbers(&[7, 0, 0, 0, 0])), Cause::UnknownInterface { interface: 7, described: 1 });
        check(&interface(order, 1, 0, &option(order, 9, &[20])), Cause::InterfaceOption(9));
        check(&interface(order, 1, 0, &option(order, 9, &[0xc0])), Cause::InterfaceOption(9));
        check(&interface(order, 1, 0, &option(order, 9, &[6, 6])), Cause::InterfaceOption(9));
        check(&interface(order, 1, 0, &option(order, 14, &[1])), Cause::InterfaceOption(14));
        check(&interface(order, 1, 0, &[2, 0, 5, 0, 1, 1, 1, 1]), Cause::InterfaceOption(2));
        check(&block(order, 1, &[1, 0, 0, 0]), length(1, 16, 20));
        let sections = [numbers(&[block::SECTION_HEADER, 28]), vec![1, 2, 3, 4]].concat();
        check(&sections, Cause::ByteOrderMark(0x0102_0304));
        let mut version = section(order);
        version[12] = 2;
        check(&version, Cause::UnsupportedVersion { major: 2, minor: 0 });
    }

    #[test]
    fn files_that_do_not_begin() {
        assert_eq!(read(b"").1, Err(Damage { offset: 0, cause: Cause::EndsInHeader }));
        assert_eq!(read(&[6; 12]).1, Err(Damage { offset: 0, cause: Cause::NotACapture(None) }));
        let huge = words(ByteOrder::Little, &[block::SECTION_HEADER, SECTION_HEADER_LIMIT + 4, BYTE_ORDER_MARK]);
        let (kind, length) = (block::SECTION_HEADER, SECTION_HEADER_LIMIT + 4);
        let cause = Cause::BlockLength { kind, length, least: 28, most: SECTION_HEADER_LIMIT };
        assert_eq!(read(&huge).1, Err(Damage { offset: 0, cause }));
    }

    #[test]
    fn too_many_interfaces() {
        let one = interface(ByteOrder::Little, 1, 0, &[]);
        let file = [section(ByteOrder::Little), one.repeat(INTERFACE_LIMIT + 1)].concat();
        let offset = (file.len() - one.len()) as u64;
        assert_eq!(read(&file).1, Err(Damage { offset, cause: Cause::TooManyInterfaces }));
    }
}
