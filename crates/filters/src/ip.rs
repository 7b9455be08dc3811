//! Passes IPv4 packets, and classifies them by protocol number.

use crate::parts::select::{of_frames, on_device};
use crate::parts::version::VersionTest;
use filter::prelude::*;
use program::Predicate;

/// What `ip` is.
pub static KIND: Kind = Kind::new("ip", "passes IPv4 packets; class = protocol number", make)
    .help(
        "The class is the number of the protocol that the packet carries, so that `ip |6 x` leads TCP over IPv4 to \
         x. VLAN tags, MPLS labels and PPPoE are looked through.",
    )
    .takes(&[Type::Frame, Type::Packet])
    .class(ClassUse::Sets("protocol number"))
    .selects()
    .lowers(Lower::Selects(|_| Ok(on_device(VersionTest(4)))))
    .pre_filter(|_| Some(Predicate::Version(4)))
    .examples(&[Example {
        request: "pcap browse.pcap | ip |17 count",
        output: "{\"blocks\":2,\"bytes\":277,\"wire_bytes\":277}\n",
    }]);

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(of_frames(VersionTest(4)))
}
