//! The template of a flow's headers: a mask and a value over the first bytes, made once when the flow is opened.
//!
//! The check runs on a private copy that the driver made once, and the driver sends this copy: an application that changes its
//! memory meanwhile changes nothing of it. Free to the application are the destination's hardware address (the driver writes
//! it), type of service, identification, the bit that prohibits fragments, a time to live above 0, the header checksum (the
//! driver computes it) and the UDP checksum.

use packet::checksum::Sum;
use packet::ethernet;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Bytes that the template covers: Ethernet, IPv4 without options, UDP.
pub(crate) const HEADER: usize = 14 + 20 + 8;

/// Protocol number of UDP.
pub(crate) const UDP: u8 = 17;

/// Where the fields lie.
const ETHERNET_SOURCE: usize = 6;
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

/// The copied first bytes of a packet.
pub(crate) type Header = [u8; HEADER];

/// A flow's template.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    mask: Header,
    value: Header,
}

impl Template {
    /// Of a UDP flow on the interface with this hardware address.
    pub(crate) fn udp(mac: [u8; 6], local: SocketAddrV4, remote: Option<SocketAddrV4>) -> Template {
        let mut template = Template { mask: [0; HEADER], value: [0; HEADER] };
        template.fix(ETHERNET_SOURCE, &mac);
        template.fix(ETHER_TYPE, &ethernet::IPV4.to_be_bytes());
        template.fix(VERSION, &[0x45]);
        // More fragments, the reserved bit and the offset are 0.
        (template.mask[FLAGS], template.mask[FLAGS + 1]) = (0xbf, 0xff);
        template.fix(PROTOCOL, &[UDP]);
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

    /// Is this the header of a packet of this flow, of `len` bytes from the Ethernet header on?
    pub(crate) fn fits(&self, header: &Header, len: usize) -> bool {
        let differs = header
            .iter()
            .zip(&self.mask)
            .zip(&self.value)
            .fold(0, |differs, ((byte, mask), value)| differs | (byte & mask ^ value));
        let word = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
        differs == 0
            && word(TOTAL_LENGTH) + VERSION == len
            && word(UDP_LENGTH) + SOURCE_PORT == len
            && header[TIME_TO_LIVE] >= 1
    }
}

/// Where a packet goes.
pub(crate) fn destination(header: &Header) -> Ipv4Addr {
    Ipv4Addr::new(header[DESTINATION], header[DESTINATION + 1], header[DESTINATION + 2], header[DESTINATION + 3])
}

/// Writes the hardware address of the next hop, and the checksum of the IPv4 header.
pub(crate) fn finish(header: &mut Header, next_hop: [u8; 6]) {
    header[..6].copy_from_slice(&next_hop);
    header[CHECKSUM..CHECKSUM + 2].fill(0);
    let checksum = Sum::of(&header[VERSION..SOURCE_PORT]).checksum();
    header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn header(len: usize) -> Header {
        let mut header = [0; HEADER];
        header[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 8, 0]);
        header[14] = 0x45;
        header[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
        header[22..24].copy_from_slice(&[65, 17]);
        header[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        header[34..38].copy_from_slice(&[0x10, 0, 0x20, 0]);
        header[38..40].copy_from_slice(&((len - 34) as u16).to_be_bytes());
        header
    }

    #[test]
    fn each_bit_that_the_template_covers_counts_and_no_other() {
        let address = |last, port| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port);
        let connected = Template::udp(MAC, address(1, 0x1000), Some(address(2, 0x2000)));
        let any = Template::udp(MAC, address(1, 0x1000), None);
        assert!(connected.fits(&header(142), 142) && any.fits(&header(142), 142));
        assert!(!connected.fits(&header(142), 141) && !connected.fits(&header(142), 143));
        for bit in 0..HEADER * 8 {
            let (byte, mut flipped) = (bit / 8, header(142));
            flipped[byte] ^= 0x80 >> (bit % 8);
            let free = match byte {
                0..6 | 15 | 18 | 19 | 22 | 24 | 25 | 40 | 41 => true,
                20 => bit % 8 == 1,
                _ => false,
            };
            assert_eq!(connected.fits(&flipped, 142), free, "bit {bit}");
            let free_to_any = free || (30..34).contains(&byte) || (36..38).contains(&byte);
            assert_eq!(any.fits(&flipped, 142), free_to_any, "bit {bit}, unconnected");
        }
        let mut dead = header(142);
        dead[22] = 0;
        assert!(!any.fits(&dead, 142));
    }

    #[test]
    fn the_finished_header_has_a_checksum_and_a_next_hop() {
        let mut whole = header(100);
        whole[24..26].copy_from_slice(&[0xba, 0xad]);
        finish(&mut whole, [2, 0, 0, 0, 0, 9]);
        assert_eq!(whole[..6], [2, 0, 0, 0, 0, 9]);
        assert_eq!(Sum::of(&whole[14..34]).folded(), 0xffff);
        assert_eq!(destination(&whole), Ipv4Addr::new(10, 0, 0, 2));
    }
}
