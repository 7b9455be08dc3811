//! Creates a network device and receives the frames that the host sends on it.

use crate::parts::received;
use driver::Receive;
use driver::change::Change;
use driver::netlink::Netlink;
use driver::tuntap::{Layer, Options, TunTap};
use filter::device::snap_len;
use filter::prelude::*;

/// The kind `tuntap`.
pub static KIND: Kind = Kind::new("tuntap", "makes a device, and receives what the host sends on it", make)
    .help(
        "The device is up while the request runs, and gone afterwards unless it is persistent; addresses and routes are \
         given to it by the usual means (`ip address add ... dev NAME`). layer=tap carries Ethernet frames, layer=tun \
         bare IP packets. What is received here no other program receives. The other way, for what the host is to receive, is \
         `send NAME by=tap`. Needs CAP_NET_ADMIN.",
    )
    .params(&[
        Param::new("device", ParamType::Text, "its name; %d in it is a number that is free").required().main(),
        Param::new("layer", ParamType::Choice(&["tap", "tun"]), "Ethernet frames, or IP packets").default("tap"),
        Param::new("queue", ParamType::Number, "packets that wait at most").default("4096"),
        Param::new("persistent", ParamType::Flag, "the device stays").default("no"),
        Param::new("snaplen", ParamType::Size, "bytes kept of each packet; 0 = all").default("0"),
    ])
    .device(DeviceAccess::Made);

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let options = Options {
        name: params.text("device").unwrap_or_default().into(),
        layer: if params.text("layer") == Some("tun") { Layer::Tun } else { Layer::Tap },
        queues: 1,
        queue_frames: u32::try_from(params.number("queue").unwrap_or_default())
            .map_err(|_| ParamError::new("queue", "it is too large"))?,
        persistent: params.flag("persistent"),
    };
    let TunTap { device, queues } = open(&options)?;
    let receivers = queues.into_iter().map(|(receiver, _)| Box::new(receiver) as Box<dyn Receive>).collect();
    received::source(&device, receivers, snap_len(params), None)
}

/// Creates the device and brings it up.
pub(crate) fn open(options: &Options) -> Result<TunTap, ParamError> {
    let made = TunTap::open(&received::namespace()?, options).map_err(received::refusal)?;
    let change = Change { up: Some(true), ..Change::default() };
    let up = Netlink::route(0).and_then(|mut netlink| netlink.change(made.device.index, &change));
    up.map_err(|error| ParamError::system(format!("`{}` cannot be switched on: {error}", made.device.name)))?;
    Ok(made)
}
