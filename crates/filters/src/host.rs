//! Passes packets from or to an address.

use crate::parts::addresses::AddressTest;
use crate::parts::networks::Networks;
use crate::parts::select::{of_frames_or_streams, on_device};
use filter::prelude::*;

/// What `host` is.
pub static KIND: Kind = Kind::new("host", "passes packets from or to an address", make)
    .also(&["addr", "address", "ip.addr", "ip.src", "ip.dst", "src", "dst"])
    .help(
        "Either address of the packet must be wanted: `host 192.0.2.1`, `host 2001:db8::1`, or one of a list: `host \
         \"192.0.2.1,192.0.2.7\"`. ARP packets pass by the IPv4 addresses they speak of. Addresses of tunnels' inner \
         packets are not looked at. Names are not looked up: that could not be done before the run begins. Pieces of \
         streams and messages pass by the addresses of their stream.",
    )
    .params(&[Param::new("address", ParamType::Text, "an IPv4 or IPv6 address, or a list as \"a,b\"")
        .required()
        .main()])
    .takes(&[Type::Frame, Type::Packet, Type::Bytes, Type::Message])
    .selects()
    .lowers(Lower::Selects(|params| Ok(on_device(test(params)?))))
    .pre_filter(|params| Some(Networks::of_addresses(params.text("address")?).ok()?.pre_filter()))
    .examples(&[Example {
        request: "pcap browse.pcap | host 65.208.228.223 | count",
        output: "{\"blocks\":34,\"bytes\":20695,\"wire_bytes\":20695}\n",
    }]);

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    of_frames_or_streams(test(params)?, env)
}

fn test(params: &Params) -> Result<AddressTest, ParamError> {
    let wanted = Networks::of_addresses(params.text("address").unwrap_or_default())
        .map_err(|wrong| ParamError { key: Some("address"), ..wrong })?;
    Ok(AddressTest { wanted })
}
