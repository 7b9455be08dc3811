//! From the first byte of a frame to its network header: VLAN tags, MPLS labels, PPPoE, LLC/SNAP and their kin. Not the
//! link header's own step (`link_layer.rs`), not what is behind the network header (`frame.rs`), and not tunnels above IP
//! (`tunnel.rs`).
//!
//! A loop over small steps: a step stands at an offset, knows what is there (`Layer`), and says what is next. Each step,
//! and each MPLS label, counts towards [`ENCAPSULATION_LIMIT`], so the loop ends on any input.

use crate::bytes::{chunk_at, u16_at, u32_at};
use crate::ethernet;
use crate::link::LinkType;
use crate::malformed::Malformed;
use crate::{link_layer, ppp};

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

/// The VLAN identifiers of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Vlans {
    count: u8,
    ids: [u16; 2],
}

impl Vlans {
    /// So many tags, with the identifiers of the two outermost, outermost first.
    #[inline]
    pub const fn new(count: u8, [first, second]: [u16; 2]) -> Vlans {
        let ids = match count {
            0 => [0, 0],
            1 => [first, 0],
            _ => [first, second],
        };
        Vlans { count, ids }
    }

    /// How many tags there were.
    #[inline]
    pub const fn count(self) -> u8 {
        self.count
    }

    /// The identifiers of the two outermost, outermost first.
    #[inline]
    pub fn ids(&self) -> &[u16] {
        &self.ids[..usize::from(self.count).min(self.ids.len())]
    }

    /// The outermost identifier.
    #[inline]
    pub fn outermost(self) -> Option<u16> {
        self.ids().first().copied()
    }
}

/// What stands at the current offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    let (offset, layer) = link_layer::first(link, bytes)?;
    walk(bytes, offset, layer)
}

/// Are frames of this link type read at all?
pub fn is_read(link: LinkType) -> bool {
    link_layer::is_read(link)
}

fn walk(bytes: &[u8], offset: usize, layer: Layer) -> Result<Encapsulation, Malformed> {
    let mut walk = Walk { bytes, offset, layer, found: Encapsulation::default() };
    for _ in 0..ENCAPSULATION_LIMIT {
        if let Some(ether_type) = walk.step()? {
            return walk.end(ether_type);
        }
    }
    Err(Malformed::TooManyEncapsulations)
}

/// PPPoE or MPLS, which carry a packet of somebody else's below IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Below {
    /// The session of PPPoE; `None`: it is MPLS.
    pub session: Option<u16>,
    /// The last label of MPLS.
    pub label: u32,
    /// VLAN tags in front of it.
    pub vlans: Vlans,
    /// Where what it carries begins, and what that is.
    pub offset: usize,
    pub next: Layer,
    /// See [`Encapsulation::limit`].
    pub limit: Option<u32>,
}

/// Walks to the first PPPoE or MPLS header and over it, where a frame has one in front of its network header.
pub(crate) fn below(link: LinkType, bytes: &[u8]) -> Result<Option<Below>, Malformed> {
    let (offset, layer) = link_layer::first(link, bytes)?;
    let mut walk = Walk { bytes, offset, layer, found: Encapsulation::default() };
    let mut left = ENCAPSULATION_LIMIT;
    let mut below: Option<Below> = None;
    loop {
        let vlans = Vlans::new(walk.found.vlan_count, walk.found.vlan_ids);
        let begun = Below { session: None, label: 0, vlans, offset: 0, next: Layer::Other, limit: None };
        match (walk.layer, &mut below) {
            (Layer::Pppoe, None) => {
                below = Some(Below { session: u16_at(bytes, walk.offset + 2), ..begun });
            }
            (Layer::Ppp, Some(_)) => {}
            (Layer::Mpls, found @ (None | Some(Below { session: None, .. }))) => {
                found.get_or_insert(begun).label = u32_at(bytes, walk.offset).unwrap_or(0) >> 12;
            }
            (next, Some(found)) => {
                (found.offset, found.next, found.limit) = (walk.offset, next, walk.found.limit);
                return Ok(below);
            }
            (_, None) => {}
        }
        left = left.checked_sub(1).ok_or(Malformed::TooManyEncapsulations)?;
        if walk.step()?.is_some() {
            return Ok(None);
        }
    }
}

/// A walk under way.
struct Walk<'a> {
    bytes: &'a [u8],
    offset: usize,
    layer: Layer,
    found: Encapsulation,
}

impl Walk<'_> {
    /// One step on; gives the ether type where it stands at the network header, 0 where that has none.
    #[inline]
    fn step(&mut self) -> Result<Option<u16>, Malformed> {
        const CUT: Malformed = Malformed::TruncatedEncapsulation;
        let Walk { bytes, offset, layer, found } = self;
        *layer = match *layer {
            Layer::EtherType(ether_type) => match ether_type {
                ethernet::VLAN
                | ethernet::SERVICE_VLAN
                | ethernet::OLD_VLAN
                | ethernet::OLD_VLAN_2
                | ethernet::OLD_VLAN_3 => {
                    let [control, inner] = pair_at(bytes, *offset).ok_or(CUT)?;
                    if let Some(id) = found.vlan_ids.get_mut(usize::from(found.vlan_count)) {
                        *id = control & 0x0fff;
                    }
                    found.vlan_count += 1;
                    *offset += 4;
                    Layer::EtherType(inner)
                }
                ethernet::MPLS | ethernet::MPLS_UPSTREAM => Layer::Mpls,
                ethernet::PPPOE_SESSION => Layer::Pppoe,
                ethernet::CISCO_METADATA => {
                    // Version, count of 4-byte options, the options, then a type.
                    let [_, count] = *chunk_at(bytes, *offset).ok_or(CUT)?;
                    let end = *offset + 2 + 4 * usize::from(count);
                    *offset = end + 2;
                    Layer::EtherType(u16_at(bytes, end).ok_or(CUT)?)
                }
                ethernet::VN_TAG => {
                    *offset += 6;
                    Layer::EtherType(u16_at(bytes, *offset - 2).ok_or(CUT)?)
                }
                ethernet::E_TAG => {
                    *offset += 8;
                    Layer::EtherType(u16_at(bytes, *offset - 2).ok_or(CUT)?)
                }
                ethernet::PROVIDER_BACKBONE => {
                    *offset += 4;
                    Layer::Ethernet
                }
                ethernet::SERVICE_FUNCTIONS => {
                    // RFC 8300, 2.2: flags and the length of it all in words, a type of metadata, what follows.
                    let [_, length, _, next] = *chunk_at(bytes, *offset).ok_or(CUT)?;
                    *offset += usize::from(length & 0x3f) * 4;
                    match (length & 0x3f, next) {
                        // Not even the service path, which is part of it.
                        (0 | 1, _) => Layer::Other,
                        (_, 1) => Layer::EtherType(ethernet::IPV4),
                        (_, 2) => Layer::EtherType(ethernet::IPV6),
                        (_, 3) => Layer::Ethernet,
                        (_, 4) => Layer::EtherType(ethernet::SERVICE_FUNCTIONS),
                        (_, 5) => Layer::Mpls,
                        _ => Layer::Other,
                    }
                }
                0..=ethernet::LENGTH_LIMIT => Layer::Llc,
                _ => return Ok(Some(ether_type)),
            },
            Layer::Ethernet => {
                *offset += 14;
                Layer::EtherType(u16_at(bytes, *offset - 2).ok_or(CUT)?)
            }
            Layer::Llc => match bytes.get(*offset..).ok_or(CUT)? {
                // SNAP with the Ethernet organisation code, or 802.1H's bridge tunnel.
                [0xaa, 0xaa, 0x03, 0, 0, 0 | 0xf8, high, low, ..] => {
                    *offset += 8;
                    match u16::from_be_bytes([*high, *low]) {
                        // A length here would lead to LLC in LLC, which nothing sends.
                        0..=ethernet::LENGTH_LIMIT => Layer::Other,
                        ether_type => Layer::EtherType(ether_type),
                    }
                }
                // The service access point of IP itself.
                [0x06, 0x06, 0x03, ..] => {
                    *offset += 3;
                    Layer::Ip
                }
                [_, _, _, ..] => Layer::Other,
                _ => return Err(CUT),
            },
            Layer::Pppoe => {
                // RFC 2516, 4: version and type 1, code 0 for session data, session, length.
                let [version_type, code, _, _, high, low] = *chunk_at(bytes, *offset).ok_or(CUT)?;
                *offset += 6;
                found.limit = Some((*offset as u32).saturating_add(u32::from(u16::from_be_bytes([high, low]))));
                if (version_type, code) == (0x11, 0) { Layer::Ppp } else { Layer::Other }
            }
            Layer::Ppp => {
                let (step, next) = ppp::protocol(bytes, *offset)?;
                *offset += step;
                next
            }
            Layer::Mpls => {
                let label = u32_at(bytes, *offset).ok_or(CUT)?;
                found.mpls_count += 1;
                *offset += 4;
                const BOTTOM_OF_STACK: u32 = 0x100;
                if label & BOTTOM_OF_STACK == 0 {
                    Layer::Mpls
                } else {
                    match bytes.get(*offset).ok_or(CUT)? >> 4 {
                        4 => Layer::EtherType(ethernet::IPV4),
                        6 => Layer::EtherType(ethernet::IPV6),
                        // RFC 4385, 3: a pseudowire's control word begins with a zero nibble. Pseudowires carry most
                        // often Ethernet; without a control word they cannot be told from IP and are not looked for.
                        0 => {
                            *offset += 4;
                            Layer::Ethernet
                        }
                        _ => Layer::Other,
                    }
                }
            }
            Layer::Other => return Ok(Some(0)),
            Layer::Ip => match bytes.get(*offset).ok_or(CUT)? >> 4 {
                4 => return Ok(Some(ethernet::IPV4)),
                6 => return Ok(Some(ethernet::IPV6)),
                _ => return Err(Malformed::IpVersion),
            },
        };
        Ok(None)
    }

    fn end(mut self, ether_type: u16) -> Result<Encapsulation, Malformed> {
        self.found.network_offset = u32::try_from(self.offset).map_err(|_| Malformed::TruncatedEncapsulation)?;
        self.found.ether_type = ether_type;
        Ok(self.found)
    }
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
