//! The tunnels around a packet, outermost first, as bytes: one form to keep, compare and send.
//!
//! A layer is its kind, a byte of flags, VLAN identifiers, two addresses and an id, in network byte order. It has no
//! ports: in most tunnels over UDP the source port depends on the inner flow. The bytes may come from another process,
//! so reading ends at an impossible value.

use super::Kind;
use crate::encapsulation::Vlans;
use std::net::IpAddr;
use std::sync::Arc;

/// Most layers of a stack.
pub const LAYERS: usize = 8;

/// Most bytes of a layer.
pub const LAYER_BYTES: usize = 2 + 4 + 32 + 4;

// Bits of the flags byte.
const V4: u8 = 1;
const V6: u8 = 2;
const FAMILY: u8 = 3;
const ID: u8 = 8;
/// Number of VLAN tags, 0 to 3. Only the first two have identifiers.
const TAGS_SHIFT: u32 = 4;
const TAGS: u8 = 3;

/// A tunnel around a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Kind of the tunnel.
    pub kind: Kind,
    /// VLAN tags of the outer frame, and behind them the VLAN of the inner frame that ERSPAN names.
    pub vlans: Vlans,
    /// Source and target of the outer packet; `None` below IP.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// The number of the tunnel: key, session, network, endpoint or label.
    pub id: Option<u32>,
}

impl Layer {
    /// Appends the bytes of the layer.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        let (mut has, families) = (0, self.addresses.map(|(source, target)| (source.is_ipv4(), target.is_ipv4())));
        has |= match families {
            None => 0,
            Some((true, true)) => V4,
            Some(_) => V6,
        };
        has |= if self.id.is_some() { ID } else { 0 };
        has |= self.vlans.count().min(TAGS) << TAGS_SHIFT;
        out.extend([self.kind as u8, has]);
        self.vlans.ids().iter().for_each(|id| out.extend(id.to_be_bytes()));
        for address in self.addresses.into_iter().flat_map(|(source, target)| [source, target]) {
            match address {
                IpAddr::V4(address) if has & FAMILY == V4 => out.extend(address.octets()),
                IpAddr::V4(address) => out.extend(address.to_ipv6_mapped().octets()),
                IpAddr::V6(address) => out.extend(address.octets()),
            }
        }
        out.extend(self.id.into_iter().flat_map(u32::to_be_bytes));
    }

    /// The part of the layer that both directions share.
    fn undirected(self) -> Layer {
        let addresses = self.addresses.map(|(one, other)| if one <= other { (one, other) } else { (other, one) });
        let id = self.id.filter(|_| self.kind.has_one_id());
        Layer { addresses, id, vlans: self.vlans.named(), ..self }
    }
}

/// The layers of a stack's bytes, in order.
#[derive(Clone, Debug)]
pub struct Layers<'a>(&'a [u8]);

impl<'a> Layers<'a> {
    /// The layers in these bytes.
    pub fn of(bytes: &'a [u8]) -> Layers<'a> {
        Layers(bytes)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn read(&mut self) -> Option<Layer> {
        let [kind, has] = self.take()?;
        let kind = *Kind::ALL.get(usize::from(kind).checked_sub(1)?)?;
        let count = has >> TAGS_SHIFT & TAGS;
        let mut ids = [0; 2];
        for id in ids.iter_mut().take(count.into()) {
            *id = u16::from_be_bytes(self.take()?);
        }
        let addresses = match has & FAMILY {
            0 => None,
            V4 => Some((IpAddr::from(self.take::<4>()?), IpAddr::from(self.take::<4>()?))),
            V6 => Some((IpAddr::from(self.take::<16>()?), IpAddr::from(self.take::<16>()?))),
            _ => return None,
        };
        let id = if has & ID == 0 { None } else { Some(u32::from_be_bytes(self.take()?)) };
        Some(Layer { kind, vlans: Vlans::new(count, ids), addresses, id })
    }
}

impl Iterator for Layers<'_> {
    type Item = Layer;

    fn next(&mut self) -> Option<Layer> {
        let layer = self.read();
        if layer.is_none() {
            self.0 = &[];
        }
        layer
    }
}

/// Appends the part of a stack that both directions share. It differs between stacks.
pub fn append_key(stack: &[u8], out: &mut Vec<u8>) {
    Layers::of(stack).for_each(|layer| layer.undirected().append_to(out));
}

/// Appends a stack without the tunnels' numbers; with the outer addresses only if `ends`.
pub fn append_reduced(stack: &[u8], ends: bool, out: &mut Vec<u8>) {
    for layer in Layers::of(stack) {
        Layer { id: None, addresses: layer.addresses.filter(|_| ends), ..layer }.append_to(out);
    }
}

/// The tunnels around a stream's packets. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tunnels(Arc<[u8]>);

impl Tunnels {
    /// From a stack's bytes; `None`: they contain no layer.
    pub fn new(stack: Arc<[u8]>) -> Option<Tunnels> {
        let tunnels = Tunnels(stack);
        tunnels.layers().next().is_some().then_some(tunnels)
    }

    /// From the layers at the start of `bytes`; zeroes are not layers.
    pub fn of_prefix(bytes: &[u8]) -> Option<Tunnels> {
        let mut layers = Layers::of(bytes);
        let mut end = 0;
        while layers.next().is_some() {
            end = bytes.len() - layers.0.len();
        }
        Tunnels::new(bytes[..end].into())
    }

    /// The layers, outermost first.
    pub fn layers(&self) -> Layers<'_> {
        Layers::of(&self.0)
    }

    /// The bytes of the stack.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The outermost layers that fit into `most` bytes.
    pub fn prefix(&self, most: usize) -> &[u8] {
        let mut layers = self.layers();
        let mut end = 0;
        while layers.next().is_some() && self.0.len() - layers.0.len() <= most {
            end = self.0.len() - layers.0.len();
        }
        &self.0[..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn layers() -> Vec<Layer> {
        let v4 = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let v6 = |last| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
        vec![
            Layer { kind: Kind::Vxlan, vlans: Vlans::new(2, [7, 9]), addresses: Some((v4(2), v4(1))), id: Some(77) },
            Layer { kind: Kind::Gtp, vlans: Vlans::default(), addresses: Some((v6(1), v6(2))), id: Some(5) },
            Layer { kind: Kind::Pppoe, vlans: Vlans::new(1, [3, 0]), addresses: None, id: Some(0xffff) },
            Layer { kind: Kind::Ip, vlans: Vlans::default(), addresses: Some((v4(1), v4(2))), id: None },
        ]
    }

    fn written(layers: &[Layer]) -> Vec<u8> {
        let mut out = Vec::new();
        layers.iter().for_each(|layer| layer.append_to(&mut out));
        out
    }

    #[test]
    fn what_is_written_is_read() {
        let all = layers();
        let bytes = written(&all);
        assert_eq!(Layers::of(&bytes).collect::<Vec<_>>(), all);
        assert!(all.iter().all(|layer| written(&[*layer]).len() <= LAYER_BYTES));
        let tunnels = Tunnels::new(bytes.clone().into()).unwrap();
        for most in 0..=bytes.len() {
            let prefix = tunnels.prefix(most);
            let count = Layers::of(prefix).count();
            assert_eq!(prefix, written(&all[..count]));
            let next = written(&all[..all.len().min(count + 1)]).len();
            assert!(prefix.len() <= most && (next > most || count == all.len()));
        }
        assert_eq!(Tunnels::new(Arc::new([])), None);
    }

    #[test]
    fn both_directions_have_one_key() {
        let key = |layers: &[Layer]| {
            let mut out = Vec::new();
            append_key(&written(layers), &mut out);
            out
        };
        for layer in layers() {
            let back = Layer { addresses: layer.addresses.map(|(source, target)| (target, source)), ..layer };
            assert_eq!(key(&[layer]), key(&[back]));
            let other = key(&[Layer { id: Some(1000), ..layer }]);
            assert_eq!(key(&[layer]) == other, matches!(layer.kind, Kind::Gtp | Kind::Ip), "{layer:?}");
            assert_ne!(key(&[layer]), key(&[Layer { vlans: Vlans::new(1, [999, 0]), ..layer }]));
            let tagged = |count| key(&[Layer { vlans: Vlans::new(count, [0, 0]), ..layer }]);
            assert_eq!(tagged(0), tagged(1));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_layers_and_no_more(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let layers: Vec<_> = Layers::of(&bytes).collect();
            let again = written(&layers);
            prop_assert!(again.len() <= bytes.len());
            prop_assert_eq!(Layers::of(&again).collect::<Vec<_>>(), layers);
        }
    }
}
