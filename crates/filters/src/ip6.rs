//! Passes IPv6 packets, and classifies them by protocol number.

use crate::parts::select::{of_frames, on_device};
use crate::parts::version::VersionTest;
use filter::prelude::*;
use program::Predicate;

/// What `ip6` is.
pub static KIND: Kind = Kind::new("ip6", "passes IPv6 packets; class = protocol number", make)
    .help(
        "The class is the number of the first protocol behind extension headers, so that `ip6 |6 x` leads TCP over \
         IPv6 to x. VLAN tags, MPLS labels and PPPoE are looked through.",
    )
    .takes(&[Type::Frame, Type::Packet])
    .class(ClassUse::Sets("protocol number"))
    .selects()
    .lowers(Lower::Selects(|_| Ok(on_device(VersionTest(6)))))
    .pre_filter(|_| Some(Predicate::Version(6)))
    .examples(&[Example {
        request: "pcap browse.pcap | not ip6 | count",
        output: "{\"blocks\":43,\"bytes\":25091,\"wire_bytes\":25091}\n",
    }]);

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(of_frames(VersionTest(6)))
}
