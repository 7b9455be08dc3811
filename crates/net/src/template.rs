//! The template of a flow's headers: a mask and a value over the first bytes, made when the flow is opened.
//!
//! The driver copies the header once, checks the copy and sends the copy. So an application that changes its memory
//! meanwhile cannot change it. The application may choose these fields:
//!
//! - the hardware addresses (the driver writes them: the interface's may change meanwhile), and the transport checksum
//! - IPv4: the type of service, the identification, the bit that prohibits fragments, and the header checksum (the
//!   driver computes it); a time to live above 0
//! - IPv6: the traffic class and the flow label; a hop limit above 0
//!
//! IPv4 options, IPv6 extension headers and fragments are not allowed.

use crate::answer::TCP;
use packet::checksum::Sum;
use packet::ethernet;
use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// Protocol number of UDP.
pub(crate) const UDP: u8 = 17;

/// Bytes of the transport headers that a template covers: UDP whole, TCP without options.
const UDP_HEADER: usize = 8;
const TCP_HEADER: usize = 20;

/// The most bytes of a template: Ethernet, IPv6, TCP.
const HEADER: usize = 14 + 40 + TCP_HEADER;

/// Offsets of the fields that both families have at the same place.
const ETHER_TYPE: usize = 12;
const IP: usize = 14;

/// Offsets of the fields of one family, including the Ethernet header.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// The offset of the packet's length, and the byte from which it counts.
    length: usize,
    counted_from: usize,
    protocol: usize,
    hops: usize,
    source: usize,
    destination: usize,
    transport: usize,
}

const IPV4: Layout =
    Layout { length: 16, counted_from: IP, protocol: 23, hops: 22, source: 26, destination: 30, transport: 34 };
const IPV6: Layout =
    Layout { length: 18, counted_from: 54, protocol: 20, hops: 21, source: 22, destination: 38, transport: 54 };

/// IPv4: flags and fragment offset, and the header checksum.
const FLAGS: usize = 20;
const CHECKSUM: usize = 24;

/// Offsets in the transport header: the ports, the length of UDP, the data offset of TCP.
const DESTINATION_PORT: usize = 2;
const UDP_LENGTH: usize = 4;
const DATA_OFFSET: usize = 12;

/// A copy of a packet's first bytes, as many as the template covers, followed by zeroes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    bytes: [u8; HEADER],
    len: usize,
    layout: &'static Layout,
}

impl Header {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Mutable, for the copy.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The TCP header without options. `None`: another protocol.
    pub(crate) fn tcp(&self) -> Option<&[u8]> {
        let transport = &self.bytes()[self.layout.transport..];
        (transport.len() == TCP_HEADER).then_some(transport)
    }
}

/// A flow's template.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    mask: [u8; HEADER],
    value: [u8; HEADER],
    len: usize,
    layout: &'static Layout,
}

impl Template {
    /// The template of a UDP or TCP flow.
    pub(crate) fn new(protocol: u8, local: SocketAddr, remote: Option<SocketAddr>) -> Template {
        let layout = if local.is_ipv4() { &IPV4 } else { &IPV6 };
        let transport = layout.transport;
        let len = transport + if protocol == TCP { TCP_HEADER } else { UDP_HEADER };
        let mut template = Template { mask: [0; HEADER], value: [0; HEADER], len, layout };
        if local.is_ipv4() {
            template.fix(ETHER_TYPE, &ethernet::IPV4.to_be_bytes());
            template.fix(IP, &[0x45]);
            // The reserved bit, "more fragments" and the offset must be 0.
            (template.mask[FLAGS], template.mask[FLAGS + 1]) = (0xbf, 0xff);
        } else {
            template.fix(ETHER_TYPE, &ethernet::IPV6.to_be_bytes());
            (template.mask[IP], template.value[IP]) = (0xf0, 0x60);
        }
        // Exactly this protocol: for IPv6, no extension header in between.
        template.fix(layout.protocol, &[protocol]);
        template.fix_address(layout.source, local.ip());
        template.fix(transport, &local.port().to_be_bytes());
        if let Some(remote) = remote {
            template.fix_address(layout.destination, remote.ip());
            template.fix(transport + DESTINATION_PORT, &remote.port().to_be_bytes());
        }
        template
    }

    fn fix(&mut self, at: usize, bytes: &[u8]) {
        self.value[at..at + bytes.len()].copy_from_slice(bytes);
        self.mask[at..at + bytes.len()].fill(0xff);
    }

    fn fix_address(&mut self, at: usize, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.fix(at, &address.octets()),
            IpAddr::V6(address) => self.fix(at, &address.octets()),
        }
    }

    /// An empty header for the copy.
    pub(crate) fn header(&self) -> Header {
        Header { bytes: [0; HEADER], len: self.len, layout: self.layout }
    }

    /// Whether this is the header of a packet of this flow, with `len` bytes including the Ethernet header.
    pub(crate) fn fits(&self, header: &Header, len: usize) -> bool {
        let header = &header.bytes;
        let differs = header
            .iter()
            .zip(&self.mask)
            .zip(&self.value)
            .fold(0, |differs, ((byte, mask), value)| differs | (byte & mask ^ value));
        let word = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
        let Layout { length, counted_from, hops, transport, .. } = *self.layout;
        differs == 0
            && word(length) + counted_from == len
            && match self.len - transport {
                TCP_HEADER => (20..=len - transport).contains(&(usize::from(header[transport + DATA_OFFSET] >> 4) * 4)),
                _ => word(transport + UDP_LENGTH) + transport == len,
            }
            && header[hops] >= 1
    }
}

/// The destination of a packet.
pub(crate) fn destination(header: &Header) -> IpAddr {
    let (bytes, at) = (&header.bytes, header.layout.destination);
    // Both layouts have room for the address at its offset.
    match header.layout.transport - at {
        4 => IpAddr::from(*bytes[at..].first_chunk::<4>().unwrap_or(&[0; 4])),
        _ => IpAddr::from(*bytes[at..].first_chunk::<16>().unwrap_or(&[0; 16])),
    }
}

/// Writes the hardware addresses of the next hop and of this interface, and the IPv4 header checksum.
pub(crate) fn finish(header: &mut Header, next_hop: [u8; 6], own: [u8; 6]) {
    let (transport, is_ipv4) = (header.layout.transport, header.layout.transport == IPV4.transport);
    let header = &mut header.bytes;
    header[..6].copy_from_slice(&next_hop);
    header[6..ETHER_TYPE].copy_from_slice(&own);
    if is_ipv4 {
        header[CHECKSUM..CHECKSUM + 2].fill(0);
        let checksum = Sum::of(&header[IP..transport]).checksum();
        header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The cost of the check: ns for one valid header, over `rounds` of them. For measurements.
pub fn check_ns(rounds: u64) -> f64 {
    let at = |last, port| SocketAddr::from(([10, 0, 0, last], port));
    let len = 60;
    let template = Template::new(UDP, at(1, 4000), Some(at(2, 4000)));
    // A valid header has the template's values, and lengths and a time to live.
    let mut header = Header { bytes: template.value, ..template.header() };
    header.bytes[IPV4.length..][..2].copy_from_slice(&((len - IP) as u16).to_be_bytes());
    let udp_length = IPV4.transport + UDP_LENGTH;
    header.bytes[udp_length..][..2].copy_from_slice(&((len - IPV4.transport) as u16).to_be_bytes());
    header.bytes[IPV4.hops] = 64;
    let begun = Instant::now();
    let fitting = (0..rounds).filter(|_| black_box(&template).fits(black_box(&header), black_box(len))).count();
    let ns = begun.elapsed().as_nanos() as f64;
    ns / fitting as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    /// A packet of a flow, the bits of its header that the application may choose, and those that it may choose without a peer.
    struct Row {
        header: Vec<u8>,
        free: fn(usize) -> bool,
        of_peer: fn(usize) -> bool,
    }

    const LEN: usize = 142;

    /// Headers of a packet of [`LEN`] bytes from port 0x1000 of host 1 to port 0x2000 of host 2.
    fn udp_over_ipv4() -> Row {
        let mut header = [&[0; 6][..], &MAC, &[8, 0, 0x45, 0, 0, 128, 0, 0, 0, 0, 65, 17, 0, 0]].concat();
        header.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x10, 0, 0x20, 0, 0, 108, 0, 0]);
        let free = |bit: usize| matches!(bit / 8, 0..12 | 15 | 18 | 19 | 22 | 24 | 25 | 40 | 41) || bit == 20 * 8 + 1;
        Row { header, free, of_peer: |bit| (30..34).contains(&(bit / 8)) || (36..38).contains(&(bit / 8)) }
    }

    fn tcp_over_ipv4() -> Row {
        let mut row = udp_over_ipv4();
        row.header[23] = 6;
        row.header.splice(38.., [0, 0, 0, 0, 0, 0, 0, 0, 0x60, 0, 0, 0, 0, 0, 0, 0]);
        // An offset of 6 becomes 14, 2, 4 and 7.
        row.free = |bit| match bit / 8 {
            0..12 | 15 | 18 | 19 | 22 | 24 | 25 => true,
            20 => bit % 8 == 1,
            46 => bit % 8 != 1 && bit % 8 != 2,
            byte => byte >= 38,
        };
        row
    }

    fn udp_over_ipv6() -> Row {
        let mut header = [&[0; 6][..], &MAC, &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 88, 17, 65]].concat();
        for last in [1, 2] {
            header.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        header.extend([0x10, 0, 0x20, 0, 0, 88, 0, 0]);
        let free = |bit: usize| matches!(bit / 8, 0..12 | 15..18 | 21 | 60 | 61) || bit / 4 == 29;
        Row { header, free, of_peer: |bit| (38..54).contains(&(bit / 8)) || (56..58).contains(&(bit / 8)) }
    }

    fn tcp_over_ipv6() -> Row {
        let mut row = udp_over_ipv6();
        row.header[20] = 6;
        row.header.splice(58.., [0, 0, 0, 0, 0, 0, 0, 0, 0x60, 0, 0, 0, 0, 0, 0, 0]);
        row.free = |bit| match bit / 8 {
            0..12 | 15..18 | 21 => true,
            14 => bit % 8 >= 4,
            66 => bit % 8 != 1 && bit % 8 != 2,
            byte => byte >= 58,
        };
        row
    }

    fn address(is_ipv4: bool, last: u8, port: u16) -> SocketAddr {
        match is_ipv4 {
            true => ([10, 0, 0, last], port).into(),
            false => ([0xfd00, 0, 0, 0, 0, 0, 0, last.into()], port).into(),
        }
    }

    fn template(is_ipv4: bool, protocol: u8, is_connected: bool) -> Template {
        let peer = is_connected.then(|| address(is_ipv4, 2, 0x2000));
        Template::new(protocol, address(is_ipv4, 1, 0x1000), peer)
    }

    fn header(template: &Template, bytes: &[u8]) -> Header {
        let mut header = template.header();
        header.bytes_mut().copy_from_slice(bytes);
        header
    }

    #[test]
    fn each_bit_that_the_template_covers_counts_and_no_other() {
        let rows = [(true, UDP, udp_over_ipv4()), (true, TCP, tcp_over_ipv4())];
        let rows = rows.into_iter().chain([(false, UDP, udp_over_ipv6()), (false, TCP, tcp_over_ipv6())]);
        for (is_ipv4, protocol, Row { header: sound, free, of_peer }) in rows {
            let (connected, any) = (template(is_ipv4, protocol, true), template(is_ipv4, protocol, false));
            for template in [&connected, &any] {
                let fits = [LEN - 1, LEN, LEN + 1].map(|len| template.fits(&header(template, &sound), len));
                assert_eq!(fits, [false, true, false], "IPv4: {is_ipv4}, protocol {protocol}");
            }
            for bit in 0..sound.len() * 8 {
                let mut flipped = sound.clone();
                flipped[bit / 8] ^= 0x80 >> (bit % 8);
                let flipped = header(&connected, &flipped);
                assert_eq!(connected.fits(&flipped, LEN), free(bit), "IPv4: {is_ipv4}, protocol {protocol}, bit {bit}");
                assert_eq!(any.fits(&flipped, LEN), free(bit) || of_peer(bit), "unconnected, {protocol}, bit {bit}");
            }
            let mut dead = sound.clone();
            dead[connected.layout.hops] = 0;
            assert!(!any.fits(&header(&any, &dead), LEN));
        }
    }

    #[test]
    fn the_offset_of_tcp_stays_in_its_packet() {
        for (is_ipv4, Row { header: sound, .. }) in [(true, tcp_over_ipv4()), (false, tcp_over_ipv6())] {
            let template = template(is_ipv4, TCP, true);
            let Layout { length, counted_from, transport, .. } = *template.layout;
            for (offset, segment, fits) in
                [(4, 40, false), (5, 20, true), (6, 20, false), (15, 60, true), (15, 59, false)]
            {
                let (mut bytes, len) = (sound.clone(), transport + segment);
                bytes[transport + DATA_OFFSET] = offset << 4;
                bytes[length..length + 2].copy_from_slice(&((len - counted_from) as u16).to_be_bytes());
                let fitted = template.fits(&header(&template, &bytes), len);
                assert_eq!(fitted, fits, "offset {offset} in {segment} bytes");
            }
        }
    }

    #[test]
    fn the_headers_that_are_timed_fit() {
        // Otherwise it is infinite: no header was valid.
        assert!(check_ns(1000).is_finite());
    }

    #[test]
    fn the_finished_header_has_a_checksum_and_hardware_addresses() {
        let mut four = header(&template(true, UDP, false), &udp_over_ipv4().header);
        four.bytes[24..26].copy_from_slice(&[0xba, 0xad]);
        finish(&mut four, [2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 7]);
        assert_eq!(four.bytes()[..12], [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 7]);
        assert_eq!(Sum::of(&four.bytes()[14..34]).folded(), 0xffff);
        assert_eq!(destination(&four), address(true, 2, 0).ip());
        let sound = udp_over_ipv6().header;
        let mut six = header(&template(false, UDP, false), &sound);
        finish(&mut six, [2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 7]);
        assert_eq!((&six.bytes()[..12], &six.bytes()[12..]), (&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 7][..], &sound[12..]));
        assert_eq!(destination(&six), address(false, 2, 0).ip());
    }
}
