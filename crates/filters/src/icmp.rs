//! Passes ICMP and ICMPv6 packets and classifies them by their type.

use crate::parts::numbers::{Meaning, Numbers};
use crate::parts::select::{FrameTest, View, of_frames, on_device};
use filter::prelude::*;
use packet::frame::protocol;
use packet::icmp::Packet;
use packet::malformed::Malformed;
use program::Predicate;

/// What `icmp` is.
pub static KIND: Kind = Kind::new("icmp", "passes ICMP and ICMPv6 packets, or those of a type; class = type", make)
    .help(
        "The types of ICMP and ICMPv6 are numbered differently: an echo request is 8 in IPv4 and 128 in IPv6. `icmp \
         \"8,128\"` passes both; `ip | icmp 8` those of IPv4 alone. Later fragments have no type and do not pass.",
    )
    .params(&[Param::new("type", ParamType::Text, "a type, a range as 0:127, or a list as \"8,128\"").main()])
    .takes(&[Type::Frame, Type::Packet])
    .class(ClassUse::Sets("ICMP type"))
    .selects()
    .lowers(Lower::Selects(|params| Ok(on_device(test(params)?))))
    .pre_filter(pre_filter)
    .examples(&[Example {
        request: "pcap browse.pcap | not icmp | count",
        output: "{\"blocks\":43,\"bytes\":25091,\"wire_bytes\":25091}\n",
    }]);

const TYPE: Meaning = Meaning { what: "an ICMP type", max: 255, names: &[] };

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(of_frames(test(params)?))
}

fn test(params: &Params) -> Result<IcmpTest, ParamError> {
    Ok(IcmpTest { wanted: Numbers::from_param(params, "type", TYPE)? })
}

fn pre_filter(params: &Params) -> Option<Predicate> {
    Some(Predicate::Icmp(Numbers::ranges_of(params, "type", TYPE)?))
}

struct IcmpTest {
    wanted: Option<Numbers>,
}

impl FrameTest for IcmpTest {
    #[inline]
    fn frame(&self, view: View<'_>, class: &mut Class) -> Result<bool, Malformed> {
        let packet = view.packet()?;
        let carries = matches!((packet.version, packet.protocol), (4, protocol::ICMP) | (6, protocol::ICMPV6));
        if !carries || packet.later_fragment {
            return Ok(false);
        }
        let kind = u32::from(Packet::new_checked(packet.payload)?.kind());
        *class = Class(kind);
        Ok(self.wanted.as_ref().is_none_or(|wanted| wanted.has(kind)))
    }
}
