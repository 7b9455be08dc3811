//! Reads the link header of a frame: one step per link type, from the first byte to the next header. `encapsulation.rs`
//! reads the headers between that and IP.
//!
//! A link type that puts its own header in front of another link's frame (PPI, PKTAP) continues with that link's step,
//! once: such a header never leads to another one like it.

use crate::bytes::{chunk_at, u16_at};
use crate::layer::{Layer, Step};
use crate::link::LinkType;
use crate::malformed::Malformed;
use crate::{arcnet, ethernet, nflog, ppp, sll, wlan};

const CUT: Malformed = Malformed::TruncatedLink;

/// Whether frames of this link type can be read.
pub(crate) fn is_read(link: LinkType) -> bool {
    // A known link type fails on empty input with another error.
    !matches!(first(link, &[]), Err(Malformed::UnsupportedLink))
}

/// Finds the header behind the link header.
pub(crate) fn first(link: LinkType, bytes: &[u8]) -> Step {
    match link.canonical() {
        LinkType::PPI => {
            // Version, flags, total header length, and the link type of the inner frame; little-endian.
            let [_, _, low, high, link @ ..] = *bytes.first_chunk::<8>().ok_or(CUT)?;
            behind(bytes, usize::from(u16::from_le_bytes([low, high])).max(8), u32::from_le_bytes(link))
        }
        LinkType::PKTAP => {
            // Total header length, record type, and the link type of the inner frame; in the byte order of the Mac.
            let header = bytes.first_chunk::<12>().ok_or(CUT)?;
            let [length, _, link] = [0, 4, 8].map(|at| word_at(header, at));
            behind(bytes, (length as usize).max(12), link)
        }
        link => plain(link, bytes),
    }
}

fn word_at(header: &[u8; 12], at: usize) -> u32 {
    header.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}

/// The step of the inner link, whose frame begins at `offset`.
fn behind(bytes: &[u8], offset: usize, link: u32) -> Step {
    let rest = bytes.get(offset..).ok_or(CUT)?;
    let link = u16::try_from(link).map_err(|_| Malformed::UnsupportedLink)?;
    let (further, layer) = plain(LinkType(link).canonical(), rest)?;
    Ok((offset + further, layer))
}

fn plain(link: LinkType, bytes: &[u8]) -> Step {
    Ok(match link {
        LinkType::ETHERNET => (0, Layer::Ethernet),
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => (0, Layer::Ip),
        LinkType::NULL | LinkType::LOOP => (4, family_layer(*bytes.first_chunk().ok_or(CUT)?)),
        // The address family, and two words about IPsec.
        LinkType::ENC => (12, family_layer(*bytes.first_chunk().ok_or(CUT)?)),
        LinkType::LINUX_SLL => (sll::HEADER_BYTES, sll::next(*bytes.first_chunk().ok_or(CUT)?)),
        LinkType::LINUX_SLL2 => (sll::HEADER_BYTES_2, sll::next_2(*bytes.first_chunk().ok_or(CUT)?)),
        LinkType::PPP | LinkType::PPP_SERIAL => ppp::framing(bytes, 0)?,
        LinkType::PPP_WITH_DIRECTION => ppp::framing(bytes, 1)?,
        LinkType::PPP_PPPD => (2, Layer::Ppp),
        LinkType::PPP_ETHER => (0, Layer::Pppoe),
        LinkType::C_HDLC => (4, Layer::EtherType(u16_at(bytes, 2).ok_or(CUT)?)),
        LinkType::C_HDLC_WITH_DIRECTION => (5, Layer::EtherType(u16_at(bytes, 3).ok_or(CUT)?)),
        LinkType::FRELAY => frame_relay(bytes, 0)?,
        LinkType::FRELAY_WITH_DIRECTION => frame_relay(bytes, 1)?,
        // A direction byte, and the header before or after compression.
        LinkType::SLIP => (16, Layer::Ip),
        LinkType::SLIP_BSDOS => (24, Layer::Ip),
        // Access control, frame control and two addresses; FDDI has no access control.
        LinkType::IEEE802 => (14, Layer::Llc),
        LinkType::FDDI => (13, Layer::Llc),
        LinkType::ARCNET => arcnet::next(bytes)?,
        LinkType::ARCNET_LINUX => arcnet::next_linux(bytes)?,
        LinkType::ATM_RFC1483 => (0, Layer::Llc),
        LinkType::SUNATM => match bytes.first().ok_or(CUT)? & 0x0f {
            // LLC-multiplexed traffic.
            2 => (4, Layer::Llc),
            _ => (4, Layer::Other),
        },
        LinkType::IP_OVER_FC => (16, Layer::Llc),
        LinkType::APPLE_IP_OVER_IEEE1394 => (18, Layer::EtherType(u16_at(bytes, 16).ok_or(CUT)?)),
        LinkType::IEEE802_11 => wlan::next(bytes, 0, wlan::Padding::None)?,
        LinkType::IEEE802_11_RADIO => wlan::next_radiotap(bytes)?,
        LinkType::IEEE802_11_RADIO_AVS => wlan::next_avs(bytes)?,
        LinkType::PRISM_HEADER => wlan::next_prism(bytes)?,
        LinkType::NFLOG => nflog::next(bytes)?,
        // Hardware addresses of destination and source, a type and two reserved bytes (RFC 4391, 6).
        LinkType::IPOIB => (44, Layer::EtherType(u16_at(bytes, 40).ok_or(CUT)?)),
        // A status before the frame; the second also has the preamble.
        LinkType::NETANALYZER => (4, Layer::Ethernet),
        LinkType::NETANALYZER_TRANSPARENT => (12, Layer::Ethernet),
        LinkType::ETHERNET_MPACKET | LinkType::EPON => (8, Layer::Ethernet),
        LinkType::PFLOG => {
            // The header length, not padded to a word, and the family.
            let [length, ..] = *bytes.first_chunk::<2>().ok_or(CUT)?;
            (usize::from(length).next_multiple_of(4), Layer::Ip)
        }
        LinkType::MPLS => (0, Layer::Mpls),
        _ => return Err(Malformed::UnsupportedLink),
    })
}

/// Address families of the BSD loopback header. The number and its byte order are the capturing host's, so both byte
/// orders and every system's value for IPv6 are accepted.
fn family_layer(family: [u8; 4]) -> Layer {
    let number = u32::from_le_bytes(family);
    match number.min(number.swap_bytes()) {
        2 => Layer::EtherType(ethernet::IPV4),
        // Linux, NetBSD and OpenBSD, FreeBSD, macOS.
        10 | 24 | 28 | 30 => Layer::EtherType(ethernet::IPV6),
        _ => Layer::Other,
    }
}

/// RFC 2427: an address whose last byte has its low bit set, control 0x03, optional padding, NLPID.
fn frame_relay(bytes: &[u8], start: usize) -> Step {
    const ADDRESS_LIMIT: usize = 4;
    let rest = bytes.get(start..).ok_or(CUT)?;
    let last = rest.iter().take(ADDRESS_LIMIT).position(|byte| byte & 1 == 1).ok_or(CUT)?;
    let after = rest.get(last + 1..).ok_or(CUT)?;
    let (nlpid, bytes_before) = match *after {
        [0x03, 0x00, nlpid, ..] => (nlpid, 3),
        [0x03, nlpid, ..] => (nlpid, 2),
        [_, _, ..] => return Ok((start + last + 1, Layer::Other)),
        _ => return Err(CUT),
    };
    let offset = start + last + 1 + bytes_before;
    match nlpid {
        0xcc => Ok((offset, Layer::EtherType(ethernet::IPV4))),
        0x8e => Ok((offset, Layer::EtherType(ethernet::IPV6))),
        // SNAP: organisation code, then an ether type.
        0x80 => match chunk_at(bytes, offset) {
            Some(&[0, 0, 0, high, low]) => Ok((offset + 5, Layer::EtherType(u16::from_be_bytes([high, low])))),
            Some(_) => Ok((offset, Layer::Other)),
            None => Err(CUT),
        },
        _ => Ok((offset, Layer::Other)),
    }
}
