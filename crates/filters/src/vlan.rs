//! Passes frames with VLAN tags; class = the outermost VLAN id.

use crate::parts::numbers::{Meaning, Numbers};
use crate::parts::select::{FrameTest, View, of_frames, on_device};
use filter::prelude::*;
use packet::encapsulation;
use packet::malformed::Malformed;
use program::Predicate;

/// The kind `vlan`.
pub static KIND: Kind = Kind::new("vlan", "passes frames with VLAN tags, or of a VLAN; class = outermost id", make)
    .help(
        "Tags are those of IEEE 802.1Q and 802.1ad and their forerunners (types 0x8100, 0x88a8, 0x9100, 0x9200, \
         0x9300). Where a frame has several, the outermost counts. What stands behind `vlan` sees the whole frame: \
         no filter needs to be told that there are tags, unlike in tcpdump's expressions.",
    )
    .params(&[Param::new("id", ParamType::Text, "a VLAN id, a range as 100:199, or a list as \"10,20\"").main()])
    .takes(&[Type::Frame, Type::Packet])
    .class(ClassUse::Sets("outermost VLAN id"))
    .selects()
    .lowers(Lower::Selects(|params| Ok(on_device(test(params)?))))
    .pre_filter(|params| Some(Predicate::Vlan(Numbers::ranges_of(params, "id", ID)?)))
    .examples(&[Example {
        request: "pcap browse.pcap | not vlan | count",
        output: "{\"blocks\":43,\"bytes\":25091,\"wire_bytes\":25091}\n",
    }]);

const ID: Meaning = Meaning { what: "a VLAN id", max: 4095, names: &[] };

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(of_frames(test(params)?))
}

fn test(params: &Params) -> Result<VlanTest, ParamError> {
    Ok(VlanTest { wanted: Numbers::from_param(params, "id", ID)? })
}

struct VlanTest {
    wanted: Option<Numbers>,
}

impl FrameTest for VlanTest {
    #[inline]
    fn frame(&self, view: View<'_>, class: &mut Class) -> Result<bool, Malformed> {
        let found = encapsulation::parse(view.link, view.bytes)?;
        if found.vlan_count == 0 {
            return Ok(false);
        }
        let id = u32::from(found.vlan_ids[0]);
        *class = Class(id);
        Ok(self.wanted.as_ref().is_none_or(|wanted| wanted.has(id)))
    }
}
