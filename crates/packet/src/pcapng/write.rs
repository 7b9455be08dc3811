//! Writes pcapng: each function appends one block to a buffer, little-endian, with times in nanoseconds. The caller
//! writes the buffer to a file and begins each file with a section.

use super::{BLOCK_LIMIT, BYTE_ORDER_MARK, Direction, option};
use crate::capture::block;
use crate::link::LinkType;

/// Facts about the capture, for a section header. Empty texts are left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Section<'a> {
    /// The machine.
    pub hardware: &'a str,
    /// The operating system.
    pub system: &'a str,
    /// The program that captured.
    pub application: &'a str,
}

/// Appends a section header, little-endian, of unknown length. Every file begins with one.
pub fn write_section(out: &mut Vec<u8>, section: &Section<'_>) {
    let start = begin_block(out, block::SECTION_HEADER);
    out.extend_from_slice(&BYTE_ORDER_MARK.to_le_bytes());
    out.extend_from_slice(&[1, 0, 0, 0]);
    out.extend_from_slice(&u64::MAX.to_le_bytes());
    let options = out.len();
    write_text(out, option::SECTION_HARDWARE, section.hardware);
    write_text(out, option::SECTION_SYSTEM, section.system);
    write_text(out, option::SECTION_APPLICATION, section.application);
    end_block(out, start, options);
}

/// Facts about an interface. Empty texts are left out.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// Link type of its packets.
    pub link: LinkType,
    /// Bytes kept of each packet; 0 = whole.
    pub snap_len: u32,
    /// Its name.
    pub name: &'a str,
    /// Its description.
    pub description: &'a str,
    /// The filter that packets passed, as a tcpdump expression.
    pub filter: &'a str,
}

/// Appends an interface description. Interfaces are numbered in the order written; timestamps are in nanoseconds.
pub fn write_interface(out: &mut Vec<u8>, interface: &Description<'_>) {
    let start = begin_block(out, block::INTERFACE_DESCRIPTION);
    out.extend_from_slice(&interface.link.canonical().0.to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&interface.snap_len.to_le_bytes());
    let options = out.len();
    write_text(out, option::INTERFACE_NAME, interface.name);
    write_text(out, option::INTERFACE_DESCRIPTION, interface.description);
    write_option(out, option::INTERFACE_TIME_RESOLUTION, &[9]);
    if !interface.filter.is_empty() {
        // The first byte gives the filter's language; 0 is libpcap's.
        let text = &interface.filter.as_bytes()[..interface.filter.len().min(OPTION_LIMIT - 1)];
        write_option(out, option::INTERFACE_FILTER, &[&[0], text].concat());
    }
    end_block(out, start, options);
}

/// A packet to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketBlock<'a> {
    /// Number of its interface.
    pub interface: u32,
    /// Nanoseconds since 1970-01-01 UTC.
    pub time_ns: u64,
    /// Bytes on the wire.
    pub wire_len: u32,
    /// The captured bytes. Bytes beyond [`PACKET_LIMIT`] are left out.
    pub data: &'a [u8],
    /// The packet's direction, if known.
    pub direction: Option<Direction>,
    /// Packets lost since the last one of this interface; 0 is not written.
    pub drop_count: u64,
    /// A comment; not written if empty.
    pub comment: &'a str,
}

/// Longest packet in a block that every reader accepts: half of [`BLOCK_LIMIT`].
pub const PACKET_LIMIT: usize = BLOCK_LIMIT as usize / 2;

/// Appends an enhanced packet.
#[inline]
pub fn write_packet(out: &mut Vec<u8>, packet: &PacketBlock<'_>) {
    let data = &packet.data[..packet.data.len().min(PACKET_LIMIT)];
    out.reserve(data.len() + 64);
    let start = begin_block(out, block::ENHANCED_PACKET);
    let mut fields = [0; 20];
    let (high, low) = ((packet.time_ns >> 32) as u32, packet.time_ns as u32);
    let words = [packet.interface, high, low, data.len() as u32, packet.wire_len];
    for (place, word) in fields.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&fields);
    out.extend_from_slice(data);
    pad(out, data.len());
    let options = out.len();
    if let Some(direction) = packet.direction {
        let flags: u32 = match direction {
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        write_option(out, option::PACKET_FLAGS, &flags.to_le_bytes());
    }
    if packet.drop_count != 0 {
        write_option(out, option::PACKET_DROP_COUNT, &packet.drop_count.to_le_bytes());
    }
    write_text(out, option::COMMENT, packet.comment);
    end_block(out, start, options);
}

/// Counters of an interface; `None` is not written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Number of the interface.
    pub interface: u32,
    /// When the counters were read, in nanoseconds since 1970-01-01 UTC.
    pub time_ns: u64,
    /// Packets received.
    pub received: Option<u64>,
    /// Packets dropped by the interface.
    pub dropped: Option<u64>,
    /// Packets that passed the filter.
    pub accepted: Option<u64>,
    /// Packets dropped by the operating system.
    pub system_dropped: Option<u64>,
    /// Packets that reached the user.
    pub delivered: Option<u64>,
}

/// Appends interface statistics.
pub fn write_statistics(out: &mut Vec<u8>, statistics: &Statistics) {
    let start = begin_block(out, block::INTERFACE_STATISTICS);
    let (high, low) = ((statistics.time_ns >> 32) as u32, statistics.time_ns as u32);
    for word in [statistics.interface, high, low] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    let options = out.len();
    let counters = [
        (option::STATISTICS_RECEIVED, statistics.received),
        (option::STATISTICS_DROPPED, statistics.dropped),
        (option::STATISTICS_ACCEPTED, statistics.accepted),
        (option::STATISTICS_SYSTEM_DROPPED, statistics.system_dropped),
        (option::STATISTICS_DELIVERED, statistics.delivered),
    ];
    for (code, count) in counters {
        if let Some(count) = count {
            write_option(out, code, &count.to_le_bytes());
        }
    }
    end_block(out, start, options);
}

/// Longest value of an option.
const OPTION_LIMIT: usize = u16::MAX as usize;

/// Begins a block: type, and room for the length. Returns the start of the block.
#[inline]
fn begin_block(out: &mut Vec<u8>, kind: u32) -> usize {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    start
}

/// Ends the options, if any were written from offset `options` on, and fills in both lengths.
#[inline]
fn end_block(out: &mut Vec<u8>, start: usize, options: usize) {
    if out.len() > options {
        out.extend_from_slice(&[0; 4]);
    }
    // Fits `u32`: packets are cut, and there are at most a dozen options of up to 64 KiB.
    let length = (out.len() - start + 4) as u32;
    out.extend_from_slice(&length.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
}

#[inline]
fn pad(out: &mut Vec<u8>, written: usize) {
    out.extend_from_slice(&[0; 3][..written.next_multiple_of(4) - written]);
}

fn write_text(out: &mut Vec<u8>, code: u16, text: &str) {
    if !text.is_empty() {
        let end = text.floor_char_boundary(OPTION_LIMIT);
        write_option(out, code, &text.as_bytes()[..end]);
    }
}

fn write_option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(OPTION_LIMIT)];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, value.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{ByteOrder, Stop};
    use crate::pcapng::{Options, Reader, direction};

    #[test]
    fn written_and_read() {
        let mut file = Vec::new();
        write_section(&mut file, &Section { hardware: "machine", system: "Linux", application: "" });
        let description =
            Description { link: LinkType(12), snap_len: 96, name: "tun0", description: "", filter: "tcp" };
        write_interface(&mut file, &description);
        let packet = PacketBlock {
            interface: 0,
            time_ns: 1_700_000_000_123_456_789,
            wire_len: 1500,
            data: b"abcde",
            direction: Some(Direction::Outbound),
            drop_count: 7,
            comment: "hm",
        };
        write_packet(&mut file, &packet);
        write_packet(&mut file, &PacketBlock { direction: None, drop_count: 0, comment: "", ..packet });
        write_statistics(&mut file, &Statistics { received: Some(2), dropped: Some(0), ..Statistics::default() });

        let mut reader = Reader::new();
        let record = reader.next(&file).unwrap();
        let options = record.options(&file);
        assert_eq!((record.time_ns, record.wire_len, record.data(&file)), (packet.time_ns, 1500, &b"abcde"[..]));
        assert_eq!(direction(options, ByteOrder::Little), Some(Direction::Outbound));
        let expected: [(u16, &[u8]); 3] = [(2, &[2, 0, 0, 0]), (4, &[7, 0, 0, 0, 0, 0, 0, 0]), (1, b"hm")];
        assert_eq!(Options::new(options, ByteOrder::Little).collect::<Vec<_>>(), expected);
        let interface = reader.interface(0).unwrap();
        assert_eq!((interface.link, interface.name.as_deref()), (LinkType::RAW, Some("tun0")));
        let rest = &file[record.consumed..];
        let record = reader.next(rest).unwrap();
        assert_eq!((record.data(rest), record.options(rest)), (&b"abcde"[..], &[][..]));
        let rest = &rest[record.consumed..];
        assert_eq!(reader.next(rest), Err(Stop::More { consumed: rest.len(), need: 12 }));
        assert_eq!(reader.finish(&[]), Ok(()));
    }
}
