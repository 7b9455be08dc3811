//! Passes packets from or to an address in a network.

use crate::parts::addresses::AddressTest;
use crate::parts::networks::Networks;
use crate::parts::select::{of_frames_or_streams, on_device};
use filter::prelude::*;

/// What `net` is.
pub static KIND: Kind = Kind::new("net", "passes packets from or to a network", make)
    .help(
        "Either address of the packet must be in the network: `net 10.0.0.0/8`, `net 2001:db8::/32`, or in one of a \
         list: `net \"10.0.0.0/8,192.168.0.0/16\"`. Otherwise as `host`.",
    )
    .params(&[Param::new("network", ParamType::Text, "ADDRESS/BITS, or a list as \"a/8,b/16\"").required().main()])
    .takes(&[Type::Frame, Type::Packet, Type::Bytes, Type::Message])
    .selects()
    .lowers(Lower::Selects(|params| Ok(on_device(test(params)?))))
    .pre_filter(|params| Some(Networks::of_networks(params.text("network")?).ok()?.pre_filter()))
    .examples(&[Example {
        request: "pcap browse.pcap | net 216.0.0.0/8 | count",
        output: "{\"blocks\":7,\"bytes\":4119,\"wire_bytes\":4119}\n",
    }]);

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    of_frames_or_streams(test(params)?, env)
}

fn test(params: &Params) -> Result<AddressTest, ParamError> {
    let wanted = Networks::of_networks(params.text("network").unwrap_or_default())
        .map_err(|wrong| ParamError { key: Some("network"), ..wrong })?;
    Ok(AddressTest { wanted })
}
