//! Walks from the first byte of a frame to its network header, over VLAN tags, MPLS labels, PPPoE, LLC/SNAP and similar
//! headers. The link header itself is read by `link_layer.rs`, what follows the network header by `frame.rs`, and
//! tunnels above IP by `tunnel.rs`.
//!
//! A loop of small steps: each step is at an offset, knows the type of the header there (`Layer`), and finds the next.
//! Each step and each MPLS label counts towards [`ENCAPSULATION_LIMIT`], so the loop ends on any input.

use crate::bytes::{chunk_at, u16_at, u32_at};
use crate::layer::Layer;
use crate::link::LinkType;
use crate::malformed::Malformed;
use crate::{ethernet, link_layer, ppp};

/// Most headers between the start of a frame and IP. Real stacks have two to six.
pub const ENCAPSULATION_LIMIT: u32 = 32;

/// The headers in front of the network header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encapsulation {
    /// Offset of the network header in the frame.
    pub network_offset: u32,
    /// Its ether type: 0x0800, 0x86dd, 0x0806 ... Other numberings are translated. 0: the protocol has no ether type
    /// (spanning tree, PPP control ...).
    pub ether_type: u16,
    /// Number of VLANs. A tag with identifier 0 names none (IEEE 802.1Q, 9.6); it counts only where no tag names one.
    pub vlan_count: u8,
    /// Number of MPLS labels.
    pub mpls_count: u8,
    /// Identifiers of the two outermost VLANs, outermost first; 0 without a VLAN.
    pub vlan_ids: [u16; 2],
    /// End of the network packet if a header in front of it gives its length (PPPoE). Bytes behind it are padding,
    /// whatever the packet itself says.
    pub limit: Option<u32>,
}

impl Encapsulation {
    #[inline]
    fn add_vlan(&mut self, id: u16) {
        // Priority tags alone count as one, which the first VLAN replaces.
        let before = if self.vlan_ids[0] == 0 { 0 } else { self.vlan_count };
        self.vlan_count = if id == 0 { self.vlan_count.max(1) } else { before + 1 };
        if id != 0
            && let Some(place) = self.vlan_ids.get_mut(usize::from(before))
        {
            *place = id;
        }
    }
}

/// The VLAN identifiers of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Vlans {
    count: u8,
    ids: [u16; 2],
}

impl Vlans {
    /// `count` VLANs, with the identifiers of the two outermost, outermost first. A single 0 is a priority tag.
    #[inline]
    pub const fn new(count: u8, [first, second]: [u16; 2]) -> Vlans {
        let ids = match count {
            0 => [0, 0],
            1 => [first, 0],
            _ => [first, second],
        };
        Vlans { count, ids }
    }

    /// Number of VLANs, or 1 for priority tags alone.
    #[inline]
    pub const fn count(self) -> u8 {
        self.count
    }

    /// The identifiers of the two outermost, outermost first.
    #[inline]
    pub fn ids(&self) -> &[u16] {
        &self.ids[..usize::from(self.count).min(self.ids.len())]
    }

    /// The VLANs that a receiver tells apart: none for priority tags alone, which say a priority and no VLAN.
    #[inline]
    pub fn named(self) -> Vlans {
        if self.ids[0] == 0 { Vlans::default() } else { self }
    }

    /// The named ones and another one behind them, which is left out behind two.
    pub fn and(self, vlan: u16) -> Vlans {
        let named = self.named();
        match named.count {
            0 => Vlans::new(1, [vlan, 0]),
            1 => Vlans::new(2, [named.ids[0], vlan]),
            _ => named,
        }
    }

    /// The outermost identifier.
    #[inline]
    pub fn outermost(self) -> Option<u16> {
        self.ids().first().copied()
    }
}

/// Walks from the start of the frame to the network header.
///
/// Also `Ok` for network protocols other than IP: see `ether_type`.
#[inline]
pub fn parse(link: LinkType, bytes: &[u8]) -> Result<Encapsulation, Malformed> {
    // Nearly all traffic is IP directly after Ethernet: no loop, no state.
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

/// Whether frames of this link type can be read.
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

/// PPPoE or MPLS, which carry a foreign packet below IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Below {
    /// The PPPoE session; `None`: MPLS.
    pub session: Option<u16>,
    /// The last MPLS label.
    pub label: u32,
    /// VLAN tags in front of it.
    pub vlans: Vlans,
    /// Offset and type of the carried packet.
    pub offset: usize,
    pub next: Layer,
    /// See [`Encapsulation::limit`].
    pub limit: Option<u32>,
}

/// Walks over the first PPPoE or MPLS header. `None`: the frame has none before its network header.
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

/// The error for a header that the frame cuts.
const CUT: Malformed = Malformed::TruncatedEncapsulation;

struct Walk<'a> {
    bytes: &'a [u8],
    offset: usize,
    layer: Layer,
    found: Encapsulation,
}

impl Walk<'_> {
    /// Makes one step. `Some(ether_type)`: at the network header; 0 if it has no ether type.
    #[inline]
    fn step(&mut self) -> Result<Option<u16>, Malformed> {
        self.layer = match self.layer {
            Layer::EtherType(ether_type) => match self.behind(ether_type)? {
                Some(layer) => layer,
                None => return Ok(Some(ether_type)),
            },
            Layer::Ethernet => self.ether_type_behind(14)?,
            Layer::Llc => self.llc()?,
            Layer::Pppoe => self.pppoe()?,
            Layer::Ppp => {
                let (step, next) = ppp::protocol(self.bytes, self.offset)?;
                self.offset += step;
                next
            }
            Layer::Mpls => self.mpls()?,
            Layer::Other => return Ok(Some(0)),
            Layer::Ip => match self.bytes.get(self.offset).ok_or(CUT)? >> 4 {
                4 => return Ok(Some(ethernet::IPV4)),
                6 => return Ok(Some(ethernet::IPV6)),
                _ => return Err(Malformed::IpVersion),
            },
        };
        Ok(None)
    }

    /// Goes behind a header of this many bytes, which ends with an ether type.
    #[inline]
    fn ether_type_behind(&mut self, bytes: usize) -> Result<Layer, Malformed> {
        self.offset += bytes;
        Ok(Layer::EtherType(u16_at(self.bytes, self.offset - 2).ok_or(CUT)?))
    }

    /// Goes behind the header of this ether type. `None`: it is a network header.
    #[inline]
    fn behind(&mut self, ether_type: u16) -> Result<Option<Layer>, Malformed> {
        Ok(Some(match ether_type {
            ethernet::VLAN
            | ethernet::SERVICE_VLAN
            | ethernet::OLD_VLAN
            | ethernet::OLD_VLAN_2
            | ethernet::OLD_VLAN_3 => {
                let [control, inner] = pair_at(self.bytes, self.offset).ok_or(CUT)?;
                self.found.add_vlan(control & 0x0fff);
                self.offset += 4;
                Layer::EtherType(inner)
            }
            ethernet::MPLS | ethernet::MPLS_UPSTREAM => Layer::Mpls,
            ethernet::PPPOE_SESSION => Layer::Pppoe,
            ethernet::CISCO_METADATA => {
                // Version, number of 4-byte options, the options, then an ether type.
                let [_, count] = *chunk_at(self.bytes, self.offset).ok_or(CUT)?;
                self.ether_type_behind(4 + 4 * usize::from(count))?
            }
            ethernet::VN_TAG => self.ether_type_behind(6)?,
            ethernet::E_TAG => self.ether_type_behind(8)?,
            ethernet::PROVIDER_BACKBONE => {
                self.offset += 4;
                Layer::Ethernet
            }
            ethernet::SERVICE_FUNCTIONS => self.service_functions()?,
            0..=ethernet::LENGTH_LIMIT => Layer::Llc,
            _ => return Ok(None),
        }))
    }

    /// RFC 8300, 2.2: flags, total length in words, type of metadata, next protocol.
    fn service_functions(&mut self) -> Result<Layer, Malformed> {
        let [_, length, _, next] = *chunk_at(self.bytes, self.offset).ok_or(CUT)?;
        self.offset += usize::from(length & 0x3f) * 4;
        Ok(match (length & 0x3f, next) {
            // Too short for the service path, which is part of the header.
            (0 | 1, _) => Layer::Other,
            (_, 1) => Layer::EtherType(ethernet::IPV4),
            (_, 2) => Layer::EtherType(ethernet::IPV6),
            (_, 3) => Layer::Ethernet,
            (_, 4) => Layer::EtherType(ethernet::SERVICE_FUNCTIONS),
            (_, 5) => Layer::Mpls,
            _ => Layer::Other,
        })
    }

    #[inline]
    fn llc(&mut self) -> Result<Layer, Malformed> {
        Ok(match self.bytes.get(self.offset..).ok_or(CUT)? {
            // SNAP with the Ethernet organisation code, or with 802.1H's for bridge tunnels.
            [0xaa, 0xaa, 0x03, 0, 0, 0 | 0xf8, high, low, ..] => {
                self.offset += 8;
                match u16::from_be_bytes([*high, *low]) {
                    // A length here would mean LLC in LLC, which is not used.
                    0..=ethernet::LENGTH_LIMIT => Layer::Other,
                    ether_type => Layer::EtherType(ether_type),
                }
            }
            // The service access point of IP.
            [0x06, 0x06, 0x03, ..] => {
                self.offset += 3;
                Layer::Ip
            }
            [_, _, _, ..] => Layer::Other,
            _ => return Err(CUT),
        })
    }

    /// RFC 2516, 4: version and type 1, code 0 for session data, session, length.
    fn pppoe(&mut self) -> Result<Layer, Malformed> {
        let [version_type, code, _, _, high, low] = *chunk_at(self.bytes, self.offset).ok_or(CUT)?;
        self.offset += 6;
        let length = u32::from(u16::from_be_bytes([high, low]));
        self.found.limit = Some((self.offset as u32).saturating_add(length));
        Ok(if (version_type, code) == (0x11, 0) { Layer::Ppp } else { Layer::Other })
    }

    fn mpls(&mut self) -> Result<Layer, Malformed> {
        const BOTTOM_OF_STACK: u32 = 0x100;
        let label = u32_at(self.bytes, self.offset).ok_or(CUT)?;
        self.found.mpls_count += 1;
        self.offset += 4;
        if label & BOTTOM_OF_STACK == 0 {
            return Ok(Layer::Mpls);
        }
        Ok(match self.bytes.get(self.offset).ok_or(CUT)? >> 4 {
            4 => Layer::EtherType(ethernet::IPV4),
            6 => Layer::EtherType(ethernet::IPV6),
            // RFC 4385, 3: a pseudowire's control word begins with a zero nibble; most pseudowires carry
            // Ethernet. Without a control word a pseudowire cannot be told from IP, so it is not detected.
            0 => {
                self.offset += 4;
                Layer::Ethernet
            }
            _ => Layer::Other,
        })
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
