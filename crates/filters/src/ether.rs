//! Classifies frames by ether type, and passes those with a wanted ether type or Ethernet address.

use crate::parts::mac;
use crate::parts::numbers::{Meaning, Numbers};
use crate::parts::select::{FrameTest, View, of_frames, on_device};
use filter::prelude::*;
use packet::link::LinkType;
use packet::malformed::Malformed;
use packet::{encapsulation, ethernet};
use program::Predicate;

/// What `ether` is.
pub static KIND: Kind = Kind::new("ether", "passes frames by ether type or address; class = ether type", make)
    .help(
        "Without a value it passes every frame that has an ether type and sets the class to it. It is the type of \
         what lies behind VLAN tags, MPLS labels and PPPoE; links that number protocols in another way are \
         translated, so that `ether 0x800` passes IPv4 over any link. With a type, as a number or one of the names \
         arp, ip, ip6, mpls, pppoe, rarp and vlan, it passes frames with that type there or in the Ethernet header \
         itself: `ether vlan`. With an address, `ether 02:00:00:00:00:01`, it passes Ethernet frames from or to \
         it.",
    )
    .params(&[Param::new("value", ParamType::Text, "an ether type such as 0x806 or arp, or an address").main()])
    .takes(&[Type::Frame, Type::Packet])
    .class(ClassUse::Sets("ether type"))
    .selects()
    .lowers(Lower::Selects(|params| Ok(on_device(test(params)?))))
    .pre_filter(pre_filter)
    .examples(&[Example {
        request: "pcap browse.pcap | ether fe:ff:20:00:01:00 | count",
        output: "{\"blocks\":43,\"bytes\":25091,\"wire_bytes\":25091}\n",
    }]);

const TYPE: Meaning = Meaning {
    what: "an ether type or an Ethernet address",
    max: 0xffff,
    names: &[
        ("arp", ethernet::ARP as u32),
        ("ip", ethernet::IPV4 as u32),
        ("ip6", ethernet::IPV6 as u32),
        ("mpls", ethernet::MPLS as u32),
        ("pppoe", ethernet::PPPOE_SESSION as u32),
        ("rarp", 0x8035),
        ("vlan", ethernet::VLAN as u32),
    ],
};

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(of_frames(test(params)?))
}

fn pre_filter(params: &Params) -> Option<Predicate> {
    Some(match test(params).ok()?.wanted {
        Wanted::Address(address) => Predicate::EtherAddress(address),
        Wanted::All | Wanted::Types(_) => Predicate::EtherType(Numbers::ranges_of(params, "value", TYPE)?),
    })
}

fn test(params: &Params) -> Result<EtherTest, ParamError> {
    let wanted = match params.text("value").map(|text| (text, mac::parse(text))) {
        None => Wanted::All,
        Some((_, Some(address))) => Wanted::Address(address),
        Some((text, None)) if text.matches([':', '-']).count() > 1 && !text.contains(',') => {
            return Err(ParamError::new("value", format!("`{text}` is not an Ethernet address"))
                .with_help("six bytes in hexadecimal, as 02:00:00:00:00:01"));
        }
        Some(_) => Numbers::from_param(params, "value", TYPE)?.map_or(Wanted::All, Wanted::Types),
    };
    Ok(EtherTest { wanted })
}

const LENGTH_LIMIT: u32 = ethernet::LENGTH_LIMIT as u32;

struct EtherTest {
    wanted: Wanted,
}

enum Wanted {
    All,
    Types(Numbers),
    Address([u8; 6]),
}

impl FrameTest for EtherTest {
    #[inline]
    fn frame(&self, view: View<'_>, class: &mut Class) -> Result<bool, Malformed> {
        let header = match view.link {
            LinkType::ETHERNET => Some(ethernet::Packet::new_checked(view.bytes)?),
            _ => None,
        };
        let inner = encapsulation::parse(view.link, view.bytes).map(|below| u32::from(below.ether_type));
        let outer = header.map(|header| u32::from(header.ether_type())).filter(|kind| *kind > LENGTH_LIMIT);
        *class = Class(inner.ok().or(outer).unwrap_or(0));
        Ok(match &self.wanted {
            Wanted::All => inner? != 0,
            Wanted::Types(types) => {
                outer.is_some_and(|kind| types.has(kind)) || inner.map(|kind| kind != 0 && types.has(kind))?
            }
            Wanted::Address(address) => {
                header.is_some_and(|header| header.source() == *address || header.destination() == *address)
            }
        })
    }
}
