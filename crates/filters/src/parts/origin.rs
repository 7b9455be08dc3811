//! Keeps flows apart that have the same addresses and ports, by their tunnels (from their view) and VLANs.

use super::select::{Links, ViewKey};
use buffer::BlockTable;
use filter::prelude::*;
use packet::Flow;
use packet::encapsulation::Vlans;
use packet::link::LinkType;
use packet::tunnel::stack::{self, Tunnels};
use std::hash::{BuildHasher, RandomState};

/// The words of both parameters.
pub(crate) const WORDS: [&str; 2] = ["apart", "ignore"];

/// Whether flows in different tunnels are kept apart.
pub const TUNNEL: Param =
    Param::new("tunnel", ParamType::Choice(&WORDS), "keep flows apart that are in different tunnels, or ignore that")
        .default("apart");

/// Whether flows in different VLANs are kept apart.
pub const VLAN: Param =
    Param::new("vlan", ParamType::Choice(&WORDS), "keep flows apart that are in different VLANs, or ignore that")
        .default("apart");

/// The facts about a view.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The link type of its packets.
    pub link: LinkType,
    /// A number for the tunnels around its packets, the same for both directions; 0 = none.
    tunnel: u64,
    /// The VLANs around the outermost tunnel.
    around: Vlans,
    /// Whether its packets came by the first of two devices. `None`: not asked for.
    came_by_first: Option<bool>,
}

impl Origin {
    /// Separates flows by the devices of their directions: packets come by one device, answers by the other. A host
    /// that sends both directions by one device gets a separate flow, so it cannot pose as the other side.
    #[inline]
    pub fn crossing(self, flow: &Flow) -> u64 {
        const OTHER_WAY: u64 = 0xc2b2_ae3d_27d4_eb4f;
        let is_up = (flow.source, flow.source_port) < (flow.target, flow.target_port);
        if self.came_by_first.is_some_and(|first| first != is_up) { OTHER_WAY } else { 0 }
    }
}

/// Finds the origin of blocks.
pub struct Origins {
    tunnels: bool,
    vlans: bool,
    /// A secret key, so that attackers cannot choose tunnels whose numbers collide.
    hasher: RandomState,
    last: Option<(ViewKey, Origin)>,
    key: Vec<u8>,
    /// The name of the first of two devices.
    first: Option<String>,
}

impl Origins {
    /// As the parameters [`TUNNEL`] and [`VLAN`] say.
    pub fn new(params: &Params) -> Origins {
        let apart = |key| params.text(key) != Some(WORDS[1]);
        Origins {
            tunnels: apart(TUNNEL.key),
            vlans: apart(VLAN.key),
            hasher: RandomState::new(),
            last: None,
            key: Vec::new(),
            first: None,
        }
    }

    /// With two devices, also tells which of them packets came by.
    pub fn between(mut self, devices: &[String]) -> Origins {
        if let [first, _] = devices {
            self.first = Some(first.clone());
        }
        self
    }

    /// Forgets the last view: in another batch its name may mean another one.
    #[inline]
    pub fn begin_batch(&mut self) {
        self.last = None;
    }

    /// The origin of a block; `None` if its view holds no frames.
    #[inline]
    pub fn of(&mut self, rings: &BlockTable, block: &Descriptor) -> Option<Origin> {
        match self.last {
            Some((known, origin)) if known == Links::key_of(block) => Some(origin),
            _ => self.find(rings, block),
        }
    }

    #[inline(never)]
    fn find(&mut self, rings: &BlockTable, block: &Descriptor) -> Option<Origin> {
        let interface = rings.interface(block)?;
        let tunnel = match &interface.tunnels {
            Some(tunnels) if self.tunnels => {
                self.key.clear();
                stack::append_key(tunnels, &mut self.key);
                // 0 means no tunnel.
                self.hasher.hash_one(&self.key) | 1
            }
            _ => 0,
        };
        let came_by_first = self.first.as_ref().map(|first| interface.name.as_deref() == Some(first));
        let layers = interface.tunnels.as_deref().map(stack::Layers::of);
        let around = layers.and_then(|mut layers| layers.next()).map_or(Vlans::default(), |layer| layer.vlans);
        let origin = Origin { link: LinkType(interface.link_type?), tunnel, around, came_by_first };
        self.last = Some((Links::key_of(block), origin));
        Some(origin)
    }

    /// The scope that a flow in a tunnel had outside of it; `None`: it is in none.
    pub fn scope_outside(&self, origin: Origin) -> Option<u64> {
        (origin.tunnel != 0).then(|| self.scope(Origin { tunnel: 0, ..origin }, origin.around))
    }

    /// The scope of a flow: a number that tells flows of the same addresses and ports apart; 0: no tunnel and VLAN.
    #[inline]
    pub fn scope(&self, origin: Origin, vlans: Vlans) -> u64 {
        let vlans = vlans.named();
        if vlans.count() == 0 || !self.vlans {
            return origin.tunnel;
        }
        let [first, second] = [0, 1].map(|at| u64::from(vlans.ids().get(at).copied().unwrap_or(0)));
        let tags = u64::from(vlans.count()) << 24 | first << 12 | second;
        // Different tags give different results: the product with an odd number and the xor of its halves are
        // reversible.
        let product = tags.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        origin.tunnel ^ product ^ product >> 32
    }
}

/// The VLANs and tunnels of a packet, for records. A tunnel below IP carries no frame with tags of its own, so the
/// tags outside of it count.
pub fn facts_of(rings: &BlockTable, block: &Descriptor, vlans: Vlans) -> (Vlans, Option<Tunnels>) {
    let tunnels = rings.interface(block).and_then(|interface| Tunnels::new(interface.tunnels.clone()?));
    let below = tunnels.as_ref().and_then(|tunnels| tunnels.layers().last()).filter(|layer| layer.addresses.is_none());
    (below.filter(|_| vlans.count() == 0).map_or(vlans, |layer| layer.vlans), tunnels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use buffer::Interface;
    use packet::tunnel::Kind;
    use packet::tunnel::stack::Layer;
    use std::net::{IpAddr, Ipv4Addr};

    fn origins(given: &[(&str, &str)]) -> Origins {
        static KIND: filter::Kind =
            filter::Kind::new("any", "any", |_, _| Err(ParamError::system("none"))).params(&[TUNNEL, VLAN]);
        Origins::new(&testkit::chain::params(&KIND, given))
    }

    fn layer(last: u8, id: u32) -> Layer {
        let addresses = Some((IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9))));
        Layer { kind: Kind::Vxlan, vlans: Vlans::default(), addresses, id: Some(id) }
    }

    #[test]
    fn flows_are_apart_by_tunnel_and_vlan() {
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let mut view = |layers: &[Layer]| {
            let mut stack = Vec::new();
            layers.iter().for_each(|layer| layer.append_to(&mut stack));
            let tunnels = (!stack.is_empty()).then(|| stack.into());
            rings.add_view(segment, Interface { link_type: Some(101), tunnels, ..Interface::default() }).unwrap()
        };
        let back = Layer { addresses: layer(1, 5).addresses.map(|(one, other)| (other, one)), ..layer(1, 5) };
        let views = [view(&[]), view(&[layer(1, 5)]), view(&[back]), view(&[layer(1, 6)]), view(&[layer(1, 5); 2])];
        let scopes = |origins: &mut Origins, vlans: Vlans| {
            views.map(|view| {
                let origin = origins.of(&rings, &view.block(0, 0)).unwrap();
                origins.scope(origin, vlans)
            })
        };
        let mut apart = origins(&[]);
        let [none, one, same, other, twice] = scopes(&mut apart, Vlans::default());
        assert_eq!((none, one), (0, same));
        assert!(one != 0 && other != one && twice != one && twice != other);
        let tagged = scopes(&mut apart, Vlans::new(1, [7, 0]));
        assert!(tagged.iter().all(|scope| ![none, one, other, twice].contains(scope)));
        assert_ne!(tagged, scopes(&mut apart, Vlans::new(2, [7, 0])));
        assert_eq!(scopes(&mut apart, Vlans::new(1, [0, 0])), [none, one, same, other, twice], "a priority is no VLAN");
        let mut joined = origins(&[("tunnel", "ignore"), ("vlan", "ignore")]);
        assert_eq!(scopes(&mut joined, Vlans::new(1, [7, 0])), [0; 5]);
    }

    #[test]
    fn packets_that_come_from_the_wrong_side_are_of_another_flow() {
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let [a, b] = ["a", "b"].map(|name| {
            let interface = Interface { link_type: Some(1), name: Some(name.into()), ..Interface::default() };
            rings.add_view(segment, interface).unwrap().block(0, 0)
        });
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let there = Flow { source: address(1), target: address(2), source_port: 9, target_port: 5, protocol: 6 };
        let mut sides = origins(&[]).between(&["a".into(), "b".into()]);
        let mut crossing = |block: &Descriptor, flow: &Flow| sides.of(&rings, block).unwrap().crossing(flow);
        let (there, back) = (there, there.reversed());
        assert_eq!(crossing(&a, &there), crossing(&b, &back));
        assert_eq!(crossing(&b, &there), crossing(&a, &back));
        assert_ne!(crossing(&a, &there), crossing(&a, &back));
        assert_eq!(origins(&[]).of(&rings, &a).unwrap().crossing(&there), 0);
        assert_eq!(origins(&[]).of(&rings, &a).unwrap().crossing(&back), 0);
    }

    #[test]
    fn the_vlan_in_front_of_a_tunnel_below_ip_is_its_packets_vlan() {
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let outer = Vlans::new(2, [1, 10]);
        let session = Layer { kind: Kind::Pppoe, vlans: outer, addresses: None, id: Some(4) };
        for (layer, expected) in [(session, outer), (Layer { vlans: outer, ..layer(1, 2) }, Vlans::default())] {
            let mut stack = Vec::new();
            layer.append_to(&mut stack);
            let interface = Interface { link_type: Some(101), tunnels: Some(stack.into()), ..Interface::default() };
            let block = rings.add_view(segment, interface).unwrap().block(0, 0);
            let (vlans, tunnels) = facts_of(&rings, &block, Vlans::default());
            assert_eq!((vlans, tunnels.unwrap().layers().next()), (expected, Some(layer)));
            assert_eq!(facts_of(&rings, &block, Vlans::new(1, [3, 0])).0, Vlans::new(1, [3, 0]));
        }
    }
}
