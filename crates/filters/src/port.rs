//! Passes frames with a wanted port; class = both ports. `sourceport` and `destport` test one of the two.

use crate::parts::ports::{self, Which};
use filter::prelude::*;

/// The kind `port`.
pub static KIND: Kind = Kind::new("port", "passes packets with ports, or with a wanted one; class = both ports", make)
    .help(
        "Without a value it passes every packet that has ports (TCP, UDP, SCTP, DCCP, UDP-Lite) and sets the class \
         to source << 16 | destination: `port |80 x` leads packets whose source or destination port is 80 to x, and \
         `port |!80 x` exactly the others. With a value it passes packets of which either port is wanted: `port 80`, \
         `port 6000:6063`, `port \"80,443\"`. Later fragments have no ports and do not pass. VLAN tags, MPLS labels \
         and PPPoE are looked through. Pieces of streams and messages pass by the ports of their stream and keep \
         their class.",
    )
    .params(&[Param::new("port", ParamType::Text, "a port, a range as 80:90, or a list as \"80,443\"").main()])
    .takes(&[Type::Frame, Type::Packet, Type::Bytes, Type::Message])
    .class(ClassUse::SetsHalves("source port, destination port"))
    .selects()
    .lowers(Lower::Selects(|params| ports::on_device(Which::Either, params)))
    .pre_filter(|params| ports::pre_filter(Which::Either, params))
    .examples(&[
        Example {
            request: "pcap web.pcap | port 80 | count",
            output: "{\"blocks\":207,\"bytes\":18287,\"wire_bytes\":18287}\n",
        },
        Example {
            request: "pcap browse.pcap | port |53 count",
            output: "{\"blocks\":2,\"bytes\":277,\"wire_bytes\":277}\n",
        },
    ]);

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    ports::make(Which::Either, params, env)
}
