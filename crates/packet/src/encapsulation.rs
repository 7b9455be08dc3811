//! From the first byte of a frame to its network header: link headers, VLAN tags, MPLS labels, PPPoE, LLC/SNAP and
//! their kin. Not what is behind the network header (`frame.rs`), and not tunnels, which are above IP.
//!
//! A loop over small steps: a step stands at `offset`, knows what is there (`Layer`), and says what is next. Each
//! step, and each MPLS label, counts towards [`ENCAPSULATION_LIMIT`], so the loop ends on any input.

use crate::bytes::{chunk_at, u16_at, u32_at};
use crate::ethernet;
use crate::link::LinkType;
use crate::malformed::Malformed;
use crate::{ppp, sll};

/// Most headers between the start of a frame and IP. Real stacks have two to six.
pub const ENCAPSULATION_LIMIT: u32 = 32;

/// What lies in front of the network header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encapsulation {
    /// Where the network header starts, from the start of the frame.
    pub network_offset: u32,
    /// Its ether type: 0x0800, 0x86dd, 0x0806 ... Links that number protocols in another way are translated; 0 if the
    /// protocol has no ether type (spanning tree, PPP control ...).
    pub ether_type: u16,
    /// VLAN tags on the way.
    pub vlan_count: u8,
    /// MPLS labels on the way.
    pub mpls_count: u8,
    /// VLAN identifiers of the two outermost tags, outermost first; 0 where there is none.
    pub vlan_ids: [u16; 2],
    /// One past the last byte of the network packet, where a header in front of it says (PPPoE): what is behind is
    /// padding, whatever the packet itself says.
    pub limit: Option<u32>,
}

/// What stands at the current offset.
#[derive(Clone, Copy)]
pub(crate) enum Layer {
    /// The payload of something that named its ether type.
    EtherType(u16),
    Ethernet,
    /// IEEE 802.2 header.
    Llc,
    /// PPPoE header.
    Pppoe,
    /// PPP protocol number.
    Ppp,
    /// MPLS label.
    Mpls,
    /// IPv4 or IPv6.
    Ip,
    /// Something without an ether type.
    Other,
}

/// Walks from the start of the frame to the network header.
///
/// `Ok` also for network protocols other than IP: `ether_type` says which.
#[inline]
pub fn parse(link: LinkType, bytes: &[u8]) -> Result<Encapsulation, Malformed> {
    // Ethernet straight to IP is nearly all traffic: no loop, no state.
    if link == LinkType::ETHERNET {
        let ether_type = ethernet::Packet::new_checked(bytes)?.ether_type();
        if ether_type == ethernet::IPV4 || ether_type == ethernet::IPV6 {
            return Ok(Encapsulation { network_offset: 14, ether_type, ..Encapsulation::default() });
        }
        return walk(bytes, 14, Layer::EtherType(ether_type));
    }
    let (offset, layer) = first_layer(link, bytes)?;
    walk(bytes, offset, layer)
}

/// Are frames of this link type read at all?
pub fn is_read(link: LinkType) -> bool {
    // What is known wants bytes.
    link == LinkType::ETHERNET || !matches!(first_layer(link, &[]), Err(Malformed::UnsupportedLink))
}

/// What the link header leads to, and where.
fn first_layer(link: LinkType, bytes: &[u8]) -> Result<(usize, Layer), Malformed> {
    const CUT: Malformed = Malformed::TruncatedLink;
    Ok(match link.canonical() {
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => (0, Layer::Ip),
        LinkType::NULL | LinkType::LOOP => {
            let family: [u8; 4] = *bytes.first_chunk().ok_or(CUT)?;
            (4, family_layer(family))
        }
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
        // Frame control and two addresses.
        LinkType::FDDI => (13, Layer::Llc),
        LinkType::ATM_RFC1483 => (0, Layer::Llc),
        LinkType::MPLS => (0, Layer::Mpls),
        _ => return Err(Malformed::UnsupportedLink),
    })
}

/// Address families of the BSD loopback header. The number is the capturing host's, in its byte order, so both orders
/// and every system's value for IPv6 are taken.
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
fn frame_relay(bytes: &[u8], start: usize) -> Result<(usize, Layer), Malformed> {
    const ADDRESS_LIMIT: usize = 4;
    let rest = bytes.get(start..).ok_or(Malformed::TruncatedLink)?;
    let last = rest.iter().take(ADDRESS_LIMIT).position(|byte| byte & 1 == 1).ok_or(Malformed::TruncatedLink)?;
    let after = rest.get(last + 1..).ok_or(Malformed::TruncatedLink)?;
    let (nlpid, bytes_before) = match *after {
        [0x03, 0x00, nlpid, ..] => (nlpid, 3),
        [0x03, nlpid, ..] => (nlpid, 2),
        [_, _, ..] => return Ok((start + last + 1, Layer::Other)),
        _ => return Err(Malformed::TruncatedLink),
    };
    let offset = start + last + 1 + bytes_before;
    match nlpid {
        0xcc => Ok((offset, Layer::EtherType(ethernet::IPV4))),
        0x8e => Ok((offset, Layer::EtherType(ethernet::IPV6))),
        // SNAP: organisation code, then a type.
        0x80 => match chunk_at(bytes, offset) {
            Some(&[0, 0, 0, high, low]) => Ok((offset + 5, Layer::EtherType(u16::from_be_bytes([high, low])))),
            Some(_) => Ok((offset, Layer::Other)),
            None => Err(Malformed::TruncatedLink),
        },
        _ => Ok((offset, Layer::Other)),
    }
}

fn walk(bytes: &[u8], mut offset: usize, mut layer: Layer) -> Result<Encapsulation, Malformed> {
    const CUT: Malformed = Malformed::TruncatedEncapsulation;
    let mut found = Encapsulation::default();
    for _ in 0..ENCAPSULATION_LIMIT {
        layer = match layer {
            Layer::EtherType(ether_type) => match ether_type {
                ethernet::VLAN
                | ethernet::SERVICE_VLAN
                | ethernet::OLD_VLAN
                | ethernet::OLD_VLAN_2
                | ethernet::OLD_VLAN_3 => {
                    let [control, inner] = pair_at(bytes, offset).ok_or(CUT)?;
                    if let Some(id) = found.vlan_ids.get_mut(usize::from(found.vlan_count)) {
                        *id = control & 0x0fff;
                    }
                    found.vlan_count += 1;
                    offset += 4;
                    Layer::EtherType(inner)
                }
                ethernet::MPLS | ethernet::MPLS_UPSTREAM => Layer::Mpls,
                ethernet::PPPOE_SESSION => Layer::Pppoe,
                ethernet::CISCO_METADATA => {
                    // Version, count of 4-byte options, the options, then a type.
                    let [_, count] = *chunk_at(bytes, offset).ok_or(CUT)?;
                    let end = offset + 2 + 4 * usize::from(count);
                    offset = end + 2;
                    Layer::EtherType(u16_at(bytes, end).ok_or(CUT)?)
                }
                ethernet::VN_TAG => {
                    offset += 6;
                    Layer::EtherType(u16_at(bytes, offset - 2).ok_or(CUT)?)
                }
                ethernet::E_TAG => {
                    offset += 8;
                    Layer::EtherType(u16_at(bytes, offset - 2).ok_or(CUT)?)
                }
                ethernet::PROVIDER_BACKBONE => {
                    offset += 4;
                    Layer::Ethernet
                }
                0..=ethernet::LENGTH_LIMIT => Layer::Llc,
                _ => return finish(found, offset, ether_type),
            },
            Layer::Ethernet => {
                offset += 14;
                Layer::EtherType(u16_at(bytes, offset - 2).ok_or(CUT)?)
            }
            Layer::Llc => match bytes.get(offset..).ok_or(CUT)? {
                // SNAP with the Ethernet organisation code, or 802.1H's bridge tunnel.
                [0xaa, 0xaa, 0x03, 0, 0, 0 | 0xf8, high, low, ..] => {
                    offset += 8;
                    match u16::from_be_bytes([*high, *low]) {
                        // A length here would lead to LLC in LLC, which nothing sends.
                        0..=ethernet::LENGTH_LIMIT => Layer::Other,
                        ether_type => Layer::EtherType(ether_type),
                    }
                }
                // The service access point of IP itself.
                [0x06, 0x06, 0x03, ..] => {
                    offset += 3;
                    Layer::Ip
                }
                [_, _, _, ..] => Layer::Other,
                _ => return Err(CUT),
            },
            Layer::Pppoe => {
                // RFC 2516, 4: version and type 1, code 0 for session data, session, length.
                let [version_type, code, _, _, high, low] = *chunk_at(bytes, offset).ok_or(CUT)?;
                offset += 6;
                found.limit = Some((offset as u32).saturating_add(u32::from(u16::from_be_bytes([high, low]))));
                if (version_type, code) == (0x11, 0) { Layer::Ppp } else { Layer::Other }
            }
            Layer::Ppp => {
                let (step, next) = ppp::protocol(bytes, offset)?;
                offset += step;
                next
            }
            Layer::Mpls => {
                let label = u32_at(bytes, offset).ok_or(CUT)?;
                found.mpls_count += 1;
                offset += 4;
                const BOTTOM_OF_STACK: u32 = 0x100;
                if label & BOTTOM_OF_STACK == 0 {
                    Layer::Mpls
                } else {
                    match bytes.get(offset).ok_or(CUT)? >> 4 {
                        4 => Layer::EtherType(ethernet::IPV4),
                        6 => Layer::EtherType(ethernet::IPV6),
                        // RFC 4385, 3: a pseudowire's control word begins with a zero nibble. Pseudowires carry most
                        // often Ethernet; without a control word they cannot be told from IP and are not looked for.
                        0 => {
                            offset += 4;
                            Layer::Ethernet
                        }
                        _ => Layer::Other,
                    }
                }
            }
            Layer::Other => return finish(found, offset, 0),
            Layer::Ip => match bytes.get(offset).ok_or(CUT)? >> 4 {
                4 => return finish(found, offset, ethernet::IPV4),
                6 => return finish(found, offset, ethernet::IPV6),
                _ => return Err(Malformed::IpVersion),
            },
        };
    }
    Err(Malformed::TooManyEncapsulations)
}

#[inline]
fn finish(mut found: Encapsulation, offset: usize, ether_type: u16) -> Result<Encapsulation, Malformed> {
    found.network_offset = u32::try_from(offset).map_err(|_| Malformed::TruncatedEncapsulation)?;
    found.ether_type = ether_type;
    Ok(found)
}

#[inline]
fn pair_at(bytes: &[u8], offset: usize) -> Option<[u16; 2]> {
    let [a, b, c, d] = *chunk_at(bytes, offset)?;
    Some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_is_not_refused() {
        for number in 0..=u16::MAX {
            let refused = parse(LinkType(number), &[0; 64]) == Err(Malformed::UnsupportedLink);
            assert_eq!(is_read(LinkType(number)), !refused, "{number}");
        }
    }
}
