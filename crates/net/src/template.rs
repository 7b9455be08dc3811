//! The template of a flow's headers: a mask and a value over the first bytes, made once when the flow is opened.
//!
//! The check runs on a private copy that the driver made once, and the driver sends this copy: an application that changes its
//! memory meanwhile changes nothing of it. Free to the application are the hardware addresses (the driver writes them, and the
//! interface's may change while packets wait), type of service, identification, the bit that prohibits fragments, a time to live above
//! 0, the header checksum (the driver computes it) and the UDP checksum.

use crate::answer::TCP;
use packet::checksum::Sum;
use packet::ethernet;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Instant;

/// Bytes that a template covers at most: Ethernet, IPv4 without options, TCP without options.
const HEADER: usize = 14 + 20 + 20;

/// Bytes that the template of UDP covers.
const UDP_HEADER: usize = 14 + 20 + 8;

/// Protocol number of UDP.
pub(crate) const UDP: u8 = 17;

/// Where the fields lie.
const ETHER_TYPE: usize = 12;
const VERSION: usize = 14;
const TOTAL_LENGTH: usize = 16;
const FLAGS: usize = 20;
const TIME_TO_LIVE: usize = 22;
const PROTOCOL: usize = 23;
const CHECKSUM: usize = 24;
const SOURCE: usize = 26;
const DESTINATION: usize = 30;
const SOURCE_PORT: usize = 34;
const DESTINATION_PORT: usize = 36;
const UDP_LENGTH: usize = 38;
const DATA_OFFSET: usize = 46;

/// The copied first bytes of a packet, as many as its flow's template covers; zeroes behind them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    bytes: [u8; HEADER],
    len: usize,
}

impl Header {
    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// As [`bytes`](Self::bytes), to copy them in.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The TCP header without options; none: it is another protocol's.
    pub(crate) fn tcp(&self) -> Option<&[u8]> {
        (self.len == HEADER).then(|| &self.bytes[SOURCE_PORT..])
    }
}

/// A flow's template.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    mask: [u8; HEADER],
    value: [u8; HEADER],
    len: usize,
}

impl Template {
    /// Of a flow of UDP or TCP.
    pub(crate) fn new(protocol: u8, local: SocketAddrV4, remote: Option<SocketAddrV4>) -> Template {
        let len = if protocol == TCP { HEADER } else { UDP_HEADER };
        let mut template = Template { mask: [0; HEADER], value: [0; HEADER], len };
        template.fix(ETHER_TYPE, &ethernet::IPV4.to_be_bytes());
        template.fix(VERSION, &[0x45]);
        // More fragments, the reserved bit and the offset are 0.
        (template.mask[FLAGS], template.mask[FLAGS + 1]) = (0xbf, 0xff);
        template.fix(PROTOCOL, &[protocol]);
        template.fix(SOURCE, &local.ip().octets());
        template.fix(SOURCE_PORT, &local.port().to_be_bytes());
        if let Some(remote) = remote {
            template.fix(DESTINATION, &remote.ip().octets());
            template.fix(DESTINATION_PORT, &remote.port().to_be_bytes());
        }
        template
    }

    fn fix(&mut self, at: usize, bytes: &[u8]) {
        self.value[at..at + bytes.len()].copy_from_slice(bytes);
        self.mask[at..at + bytes.len()].fill(0xff);
    }

    /// A header to be copied in.
    pub(crate) fn header(&self) -> Header {
        Header { bytes: [0; HEADER], len: self.len }
    }

    /// Is this the header of a packet of this flow, of `len` bytes from the Ethernet header on?
    pub(crate) fn fits(&self, header: &Header, len: usize) -> bool {
        let header = &header.bytes;
        let differs = header
            .iter()
            .zip(&self.mask)
            .zip(&self.value)
            .fold(0, |differs, ((byte, mask), value)| differs | (byte & mask ^ value));
        let word = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
        differs == 0
            && word(TOTAL_LENGTH) + VERSION == len
            && match self.len {
                HEADER => (20..=len - SOURCE_PORT).contains(&(usize::from(header[DATA_OFFSET] >> 4) * 4)),
                _ => word(UDP_LENGTH) + SOURCE_PORT == len,
            }
            && header[TIME_TO_LIVE] >= 1
    }
}

/// Where a packet goes.
pub(crate) fn destination(header: &Header) -> Ipv4Addr {
    let header = &header.bytes;
    Ipv4Addr::new(header[DESTINATION], header[DESTINATION + 1], header[DESTINATION + 2], header[DESTINATION + 3])
}

/// Writes the hardware addresses of the next hop and of this interface, and the checksum of the IPv4 header.
pub(crate) fn finish(header: &mut Header, next_hop: [u8; 6], own: [u8; 6]) {
    let header = &mut header.bytes;
    header[..6].copy_from_slice(&next_hop);
    header[6..ETHER_TYPE].copy_from_slice(&own);
    header[CHECKSUM..CHECKSUM + 2].fill(0);
    let checksum = Sum::of(&header[VERSION..SOURCE_PORT]).checksum();
    header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// What the check costs: ns for one header that fits, over `rounds` of them. For measurements.
pub fn check_ns(rounds: u64) -> f64 {
    let at = |last, port| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port);
    let len = 60;
    let template = Template::new(UDP, at(1, 4000), Some(at(2, 4000)));
    // A header that fits has what the template says, and lengths and a time to live besides.
    let mut header = Header { bytes: template.value, len: template.len };
    header.bytes[TOTAL_LENGTH..][..2].copy_from_slice(&((len - VERSION) as u16).to_be_bytes());
    header.bytes[UDP_LENGTH..][..2].copy_from_slice(&((len - SOURCE_PORT) as u16).to_be_bytes());
    header.bytes[TIME_TO_LIVE] = 64;
    let begun = Instant::now();
    let fitting = (0..rounds).filter(|_| black_box(&template).fits(black_box(&header), black_box(len))).count();
    let ns = begun.elapsed().as_nanos() as f64;
    ns / fitting as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(len: usize) -> Header {
        let mut header = [0; HEADER];
        header[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 8, 0]);
        header[14] = 0x45;
        header[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
        header[22..24].copy_from_slice(&[65, 17]);
        header[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        header[34..38].copy_from_slice(&[0x10, 0, 0x20, 0]);
        header[38..40].copy_from_slice(&((len - 34) as u16).to_be_bytes());
        Header { bytes: header, len: UDP_HEADER }
    }

    fn tcp(len: usize) -> Header {
        let mut header = udp(len);
        (header.bytes[23], header.bytes[46], header.len) = (6, 0x60, HEADER);
        header
    }

    fn address(last: u8, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port)
    }

    #[test]
    fn each_bit_that_the_template_covers_counts_and_no_other() {
        let connected = Template::new(UDP, address(1, 0x1000), Some(address(2, 0x2000)));
        let any = Template::new(UDP, address(1, 0x1000), None);
        assert!(connected.fits(&udp(142), 142) && any.fits(&udp(142), 142));
        assert!(!connected.fits(&udp(142), 141) && !connected.fits(&udp(142), 143));
        for bit in 0..UDP_HEADER * 8 {
            let (byte, mut flipped) = (bit / 8, udp(142));
            flipped.bytes[byte] ^= 0x80 >> (bit % 8);
            let free = match byte {
                0..12 | 15 | 18 | 19 | 22 | 24 | 25 | 40 | 41 => true,
                20 => bit % 8 == 1,
                _ => false,
            };
            assert_eq!(connected.fits(&flipped, 142), free, "bit {bit}");
            let free_to_any = free || (30..34).contains(&byte) || (36..38).contains(&byte);
            assert_eq!(any.fits(&flipped, 142), free_to_any, "bit {bit}, unconnected");
        }
        let mut dead = udp(142);
        dead.bytes[22] = 0;
        assert!(!any.fits(&dead, 142));
    }

    #[test]
    fn each_bit_of_tcp_that_the_template_covers_counts_and_no_other() {
        let template = Template::new(TCP, address(1, 0x1000), Some(address(2, 0x2000)));
        assert!(template.fits(&tcp(142), 142) && !template.fits(&tcp(142), 141) && !template.fits(&tcp(142), 143));
        for bit in 0..HEADER * 8 {
            let (byte, mut flipped) = (bit / 8, tcp(142));
            flipped.bytes[byte] ^= 0x80 >> (bit % 8);
            let free = match byte {
                0..12 | 15 | 18 | 19 | 22 | 24 | 25 | 38.. if byte != 46 => true,
                20 => bit % 8 == 1,
                // An offset of 6 becomes 14, 2, 4 and 7.
                46 => bit % 8 != 1 && bit % 8 != 2,
                _ => false,
            };
            assert_eq!(template.fits(&flipped, 142), free, "bit {bit}");
        }
        for (offset, len, fits) in [(4, 74, false), (5, 54, true), (6, 54, false), (15, 94, true), (15, 93, false)] {
            let mut header = tcp(len);
            header.bytes[46] = offset << 4;
            assert_eq!(template.fits(&header, len), fits, "offset {offset} in {len} bytes");
        }
    }

    #[test]
    fn the_headers_that_are_timed_fit() {
        // Else it is infinite: no header fitted.
        assert!(check_ns(1000).is_finite());
    }

    #[test]
    fn the_finished_header_has_a_checksum_and_hardware_addresses() {
        let mut whole = udp(100);
        whole.bytes[24..26].copy_from_slice(&[0xba, 0xad]);
        finish(&mut whole, [2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 7]);
        assert_eq!(whole.bytes()[..12], [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 7]);
        assert_eq!(Sum::of(&whole.bytes()[14..34]).folded(), 0xffff);
        assert_eq!(destination(&whole), Ipv4Addr::new(10, 0, 0, 2));
    }
}
