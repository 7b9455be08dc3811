//! Passes frames with a wanted source port; class = that port.

use crate::parts::ports::{self, Which};
use filter::prelude::*;

/// The kind `sourceport`.
pub static KIND: Kind = Kind::new("sourceport", "passes packets by source port; class = that port", make)
    .help(
        "As `port`, for the source port alone, which is also the class. Of streams and messages the source is who \
         sent the piece: the client in one direction, the server in the other.",
    )
    .params(&[Param::new("port", ParamType::Text, "a port, a range as 80:90, or a list as \"80,443\"").main()])
    .takes(&[Type::Frame, Type::Packet, Type::Bytes, Type::Message])
    .class(ClassUse::Sets("source port"))
    .selects()
    .lowers(Lower::Selects(|params| ports::on_device(Which::Source, params)))
    .pre_filter(|params| ports::pre_filter(Which::Source, params))
    .examples(&[Example {
        request: "pcap web.pcap | sourceport 80 | count",
        output: "{\"blocks\":98,\"bytes\":8543,\"wire_bytes\":8543}\n",
    }]);

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    ports::make(Which::Source, params, env)
}
