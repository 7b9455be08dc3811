//! Classifies frames by destination port, and passes those with a wanted port.

use crate::parts::ports::{self, Which};
use filter::prelude::*;

/// What `destport` is.
pub static KIND: Kind = Kind::new("destport", "passes packets by destination port; class = that port", make)
    .help(
        "As `port`, for the destination port alone, which is also the class. Of streams and messages the destination \
         is who the piece was sent to: the server in one direction, the client in the other.",
    )
    .params(&[Param::new("port", ParamType::Text, "a port, a range as 80:90, or a list as \"80,443\"").main()])
    .takes(&[Type::Frame, Type::Packet, Type::Bytes, Type::Message])
    .class(ClassUse::Sets("destination port"))
    .selects()
    .lowers(Lower::Selects(|params| ports::on_device(Which::Destination, params)))
    .pre_filter(|params| ports::pre_filter(Which::Destination, params))
    .examples(&[Example {
        request: "pcap browse.pcap | destport 53 | count",
        output: "{\"blocks\":1,\"bytes\":89,\"wire_bytes\":89}\n",
    }]);

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    ports::make(Which::Destination, params, env)
}
