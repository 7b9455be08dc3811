//! Receives by AF_XDP sockets: takes frames away from the host before its stack sees them.

use crate::parts::numbers::{Meaning, Numbers};
use crate::parts::{landing, received};
use driver::Receive;
use driver::af_xdp::{Copying, Device, Options, Place};
use filter::prelude::*;

/// What `af_xdp` is.
pub static KIND: Kind = Kind::new("af_xdp", "takes frames from a device before the host sees them", make)
    .help(
        "What arrives on the device, or on some of its queues, comes here and nowhere else (AF_XDP): connections of the \
         host by this device stand still meanwhile. What the host sends is not seen. The program that does this is the \
         device's only one: where another is attached, the request is refused and the other stays. Frames come without \
         the VLAN tags that the device takes off. Needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.\n\
         \n\
         place=driver wants the program in the device's driver, place=generic behind it, where every device can; \
         copy=never refuses drivers that cannot give their memory away.",
    )
    .params(&[
        Param::new("device", ParamType::Text, "the device, as `streamline devices` lists it").required().main(),
        Param::new("queues", ParamType::Text, "a queue, a range as 0:3, or a list as \"0,2\"; all if not given"),
        Param::new("place", ParamType::Choice(&["best", "driver", "generic"]), "where the program runs").default("best"),
        Param::new("copy", ParamType::Choice(&["best", "always", "never"]), "are frames copied by the kernel?")
            .default("best"),
        Param::new("promisc", ParamType::Flag, "packets for others, too").default("no"),
        Param::new("snaplen", ParamType::Size, "bytes kept of each packet; 0 = all").default("0"),
    ])
    .source(Type::Frame);

/// More queues than any device has.
const QUEUE: Meaning = Meaning { what: "a queue", max: 4095, names: &[] };

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let wanted = Numbers::from_param(params, "queues", QUEUE)?;
    let queues = wanted.map_or(Vec::new(), |wanted| (0..=QUEUE.max).filter(|queue| wanted.has(*queue)).collect());
    let options = Options {
        queues,
        place: match params.text("place") {
            Some("driver") => Place::Native,
            Some("generic") => Place::Generic,
            _ => Place::NativeIfThere,
        },
        copying: match params.text("copy") {
            Some("always") => Copying::Always,
            Some("never") => Copying::None,
            _ => Copying::NoneIfThere,
        },
        promiscuous: params.flag("promisc"),
        ..Options::default()
    };
    let name = params.text("device").unwrap_or_default();
    let device = Device::open(&received::namespace()?, name, options).map_err(received::refusal)?;
    let receivers = device.queues.into_iter().map(|queue| Box::new(queue.receiver) as Box<dyn Receive>).collect();
    received::source(&device.link, receivers, landing::snap_len(params))
}
