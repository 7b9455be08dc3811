//! Writes frames with correct lengths, sequence numbers and checksums into a capture file, one after the other. Not a
//! protocol stack: no side reacts. [`captures`](crate::captures) has the conversations.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::Ipv4Addr;

/// TCP flags, with their values on the wire.
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 1;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 2;
    /// Push.
    pub const PSH: u8 = 8;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 16;
}

/// Payload of a full segment: 1500 bytes less an IPv4 header and a TCP header with time stamps.
pub const SEGMENT_BYTES: usize = 1448;

/// Address and port.
pub type End = (Ipv4Addr, u16);

const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
/// 2026-01-01T00:00:00Z.
const START_NS: u64 = 1_767_225_600_000_000_000;

/// A capture file being written: classic pcap, microseconds, Ethernet.
pub struct PcapWriter {
    out: BufWriter<File>,
    now_ns: u64,
    /// Frames written.
    pub frames: u64,
    /// Bytes of those frames, without record headers.
    pub bytes: u64,
    frame: Vec<u8>,
}

impl PcapWriter {
    /// Writes the file header.
    pub fn new(file: File) -> io::Result<PcapWriter> {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let words: [u32; 6] = [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 262_144, 1];
        for word in words {
            out.write_all(&word.to_le_bytes())?;
        }
        Ok(PcapWriter { out, now_ns: START_NS, frames: 0, bytes: 0, frame: Vec::new() })
    }

    /// Writes a TCP segment: sequence and acknowledgement number, flags, payload; with time stamps, or without options.
    pub fn tcp(
        &mut self,
        ends: [End; 2],
        numbers: [u32; 2],
        flags: u8,
        stamps: bool,
        payload: &[u8],
    ) -> io::Result<()> {
        let header_bytes = if stamps { 32 } else { 20 };
        let [(source, source_port), (target, target_port)] = ends;
        self.begin(source, target, PROTOCOL_TCP, header_bytes + payload.len());
        let segment = self.frame.len();
        self.frame.extend_from_slice(&source_port.to_be_bytes());
        self.frame.extend_from_slice(&target_port.to_be_bytes());
        self.frame.extend_from_slice(&numbers[0].to_be_bytes());
        self.frame.extend_from_slice(&numbers[1].to_be_bytes());
        self.frame.extend_from_slice(&[(header_bytes as u8 / 4) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        if stamps {
            // RFC 7323 section 3.2, with two NOPs in front as usual.
            let clock_ms = (self.now_ns / 1_000_000) as u32;
            self.frame.extend_from_slice(&[1, 1, 8, 10]);
            self.frame.extend_from_slice(&clock_ms.to_be_bytes());
            self.frame.extend_from_slice(&clock_ms.to_be_bytes());
        }
        self.frame.extend_from_slice(payload);
        self.transport_checksum(source, target, PROTOCOL_TCP, segment, segment + 16);
        self.end()
    }

    /// Writes a UDP datagram.
    pub fn udp(&mut self, ends: [End; 2], payload: &[u8]) -> io::Result<()> {
        let [(source, source_port), (target, target_port)] = ends;
        let length = 8 + payload.len();
        self.begin(source, target, PROTOCOL_UDP, length);
        let datagram = self.frame.len();
        for field in [source_port, target_port, length as u16, 0] {
            self.frame.extend_from_slice(&field.to_be_bytes());
        }
        self.frame.extend_from_slice(payload);
        self.transport_checksum(source, target, PROTOCOL_UDP, datagram, datagram + 6);
        self.end()
    }

    /// A fragment of an IPv4 packet: the number of its packet, where it lies in it in units of 8 bytes, and whether others follow.
    pub fn fragment(
        &mut self,
        ends: [Ipv4Addr; 2],
        number: u16,
        (at, is_followed): (u16, bool),
        payload: &[u8],
    ) -> io::Result<()> {
        let field = (at & 0x1fff) | u16::from(is_followed) << 13;
        self.begin_with(ends, PROTOCOL_UDP, number, field, payload.len());
        self.frame.extend_from_slice(payload);
        self.end()
    }

    /// Writes the rest to the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn begin(&mut self, source: Ipv4Addr, target: Ipv4Addr, protocol: u8, length: usize) {
        const NO_FRAGMENTS: u16 = 0x4000;
        self.begin_with([source, target], protocol, self.frames as u16, NO_FRAGMENTS, length);
    }

    fn begin_with(&mut self, ends: [Ipv4Addr; 2], protocol: u8, number: u16, fragment: u16, length: usize) {
        self.frame.clear();
        self.frame.extend_from_slice(&ETHERNET);
        let header = self.frame.len();
        self.frame.extend_from_slice(&[0x45, 0]);
        self.frame.extend_from_slice(&((20 + length) as u16).to_be_bytes());
        self.frame.extend_from_slice(&number.to_be_bytes());
        self.frame.extend_from_slice(&fragment.to_be_bytes());
        self.frame.extend_from_slice(&[64, protocol, 0, 0]);
        self.frame.extend_from_slice(&ends[0].octets());
        self.frame.extend_from_slice(&ends[1].octets());
        let sum = checksum(&[&self.frame[header..]]);
        self.frame[header + 10..header + 12].copy_from_slice(&sum.to_be_bytes());
    }

    fn transport_checksum(&mut self, source: Ipv4Addr, target: Ipv4Addr, protocol: u8, start: usize, field: usize) {
        let length = (self.frame.len() - start) as u16;
        let [high, low] = length.to_be_bytes();
        let pseudo = [&source.octets()[..], &target.octets(), &[0, protocol, high, low]].concat();
        let sum = checksum(&[&pseudo, &self.frame[start..]]);
        self.frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }

    fn end(&mut self) -> io::Result<()> {
        let length = self.frame.len() as u32;
        // 1 Gbit/s, including preamble, check sequence and gap.
        self.now_ns += (u64::from(length) + 24) * 8;
        let second = (self.now_ns / 1_000_000_000) as u32;
        let micro = (self.now_ns % 1_000_000_000 / 1000) as u32;
        for word in [second, micro, length, length] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.frames += 1;
        self.bytes += u64::from(length);
        self.out.write_all(&self.frame)
    }
}

/// The Internet checksum (RFC 1071) over parts; all except the last have an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for part in parts {
        let (words, rest) = part.as_chunks::<2>();
        sum += words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
        sum += rest.first().map_or(0, |byte| u64::from(*byte) << 8);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Two ends that talk over TCP, with the next sequence number of each.
#[derive(Clone, Debug)]
pub struct Conversation {
    ends: [End; 2],
    next: [u32; 2],
    stamps: bool,
}

impl Conversation {
    /// A conversation before its first segment.
    pub fn new(client: End, server: End, first: [u32; 2]) -> Conversation {
        Conversation { ends: [client, server], next: first, stamps: true }
    }

    /// The same conversation without options in its segments.
    #[must_use]
    pub fn without_stamps(self) -> Conversation {
        Conversation { stamps: false, ..self }
    }

    /// Sends one segment; `from`: 0 = the client.
    pub fn send(&mut self, to: &mut PcapWriter, from: usize, flags: u8, payload: &[u8]) -> io::Result<()> {
        let ends = if from == 0 { self.ends } else { [self.ends[1], self.ends[0]] };
        let acknowledged = if flags & flag::ACK == 0 { 0 } else { self.next[1 - from] };
        to.tcp(ends, [self.next[from], acknowledged], flags, self.stamps, payload)?;
        let counted = u32::from(flags & (flag::SYN | flag::FIN) != 0);
        self.next[from] = self.next[from].wrapping_add(payload.len() as u32 + counted);
        Ok(())
    }

    /// Continues as if side `from` had sent `bytes` more bytes: they come later, or never.
    pub fn pass_over(&mut self, from: usize, bytes: u32) {
        self.next[from] = self.next[from].wrapping_add(bytes);
    }

    /// Sends SYN, SYN with ACK, and ACK.
    pub fn open(&mut self, to: &mut PcapWriter) -> io::Result<()> {
        self.send(to, 0, flag::SYN, &[])?;
        self.send(to, 1, flag::SYN | flag::ACK, &[])?;
        self.send(to, 0, flag::ACK, &[])
    }

    /// Sends FIN from both sides, and the last ACK.
    pub fn close(&mut self, to: &mut PcapWriter) -> io::Result<()> {
        self.send(to, 0, flag::FIN | flag::ACK, &[])?;
        self.send(to, 1, flag::FIN | flag::ACK, &[])?;
        self.send(to, 0, flag::ACK, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums() {
        // RFC 1071 section 3 (whose sum is ddf2), and an odd length.
        assert_eq!(checksum(&[&[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7]]), !0xddf2);
        assert_eq!(checksum(&[&[0xff, 0xff], &[1]]), !0x0100);
    }

    #[test]
    fn a_frame_is_laid_out_as_the_rfcs_say() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = PcapWriter::new(file.reopen().unwrap()).unwrap();
        let ends = [(Ipv4Addr::new(10, 0, 0, 1), 1), (Ipv4Addr::new(10, 0, 0, 2), 80)];
        let mut talk = Conversation::new(ends[0], ends[1], [7, 9]);
        talk.open(&mut writer).unwrap();
        talk.send(&mut writer, 0, flag::PSH | flag::ACK, b"hello").unwrap();
        writer.udp(ends, b"hi").unwrap();
        writer.finish().unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        let data = &bytes[24 + 3 * (16 + 66)..];
        assert_eq!(data[8..12], 71u32.to_le_bytes(), "66 and 5 bytes");
        let packet = &data[16 + 14..16 + 71];
        assert_eq!(checksum(&[&packet[..20]]), 0, "the sum over a correct header is all ones");
        assert_eq!(packet[24..28], 8u32.to_be_bytes(), "the SYN took one number");
        assert_eq!(packet[28..32], 10u32.to_be_bytes());
        let pseudo = [&packet[12..20], &[0, 6, 0, 37]].concat();
        assert_eq!(checksum(&[&pseudo, &packet[20..]]), 0);
        let datagram = &data[16 + 71 + 16 + 14..];
        assert_eq!(datagram.len(), 20 + 8 + 2);
        let pseudo = [&datagram[12..20], &[0, 17, 0, 10]].concat();
        assert_eq!(checksum(&[&pseudo, &datagram[20..]]), 0);
    }
}
