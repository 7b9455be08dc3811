//! Sends frames on a device through a packet socket or an AF_XDP socket. `send/forwarded.rs` stands for a kernel
//! program that sends them.

pub mod forwarded;

use crate::parts::received;
use crate::parts::select::Links;
use crate::parts::sending::{self, Patience};
use base::limits::BATCH_BLOCKS;
use driver::Transmit;
use driver::af_packet::{Sender, SenderOptions};
use driver::af_xdp;
use driver::tuntap::{self, Layer};
use filter::prelude::*;
use packet::link::LinkType;
use std::time::Duration;

/// The kind `send`.
pub static KIND: Kind = Kind::new("send", "sends frames on a device", make)
    .help(
        "Frames are sent as they are, one after the other, as fast as the device takes them; the input waits while there \
         is no room. What cannot be sent is counted by its reason: cut frames, frames of another link type, frames longer \
         than the device takes, and all while it is down. To send what was captured on the same device gives it back for \
         ever: use direction=in there.\n\
         \n\
         `ethernet a mode=consume everything=yes | send b`, and `bpf` between the two, runs in the kernel (`explain` says so, or why not): a \
         program on `a` has frames go out by `b`, and neither queues nor capture readers of `b` see them. It takes root without a daemon, and \
         a driver of `b` that takes such frames; a virtual pair does while its other end works by NAPI (`ethtool -K PEER gro on`, \
         or an XDP program there). When it begins, three frames of ether type 0x88b5 go out by `b`, to see that they do. Frames \
         that the two devices dropped meanwhile count as lost there.\n\
         \n\
         by=socket sends through the host's queues, where capture readers see it (CAP_NET_RAW), and so does by=best where frames do not stay \
         in the kernel; by=direct goes round the queues; by=xdp uses an AF_XDP socket on the first queue, which receives nothing. \
         by=tap and by=tun make the device, for Ethernet frames or IP packets: the host receives by it what is sent here.",
    )
    .params(&[
        Param::new("device", ParamType::Text, "the device, as `streamline devices` lists it").required().main(),
        Param::new("by", ParamType::Choice(&["best", "socket", "direct", "xdp", "tap", "tun"]), "which way").default("best"),
    ])
    .takes(&[Type::Frame, Type::Packet])
    .mode(Mode::Serial)
    .sink()
    .lowers(Lower::Forwards(target))
    .runs_in(Spaces::APP.with(Spaces::KERNEL));

/// The device, if frames can reach it without leaving the kernel.
fn target(params: &Params) -> Result<String, String> {
    match params.text("by") {
        Some("best") | None => Ok(params.text("device").unwrap_or_default().into()),
        Some(by) => Err(format!("by={by} was asked for")),
    }
}

/// While waiting for room, check this often whether the run must end.
const ROOM: Duration = Duration::from_millis(50);

/// Frames of an AF_XDP socket that may be in flight.
const CHUNKS: u32 = 2048;

/// Frames that find no room for this long are dropped.
const PATIENCE: Duration = Duration::from_secs(5);

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    // A busy-waiting thread does not sleep: it tries again at once.
    let room = if env.wait == filter::Wait::Busy { Duration::ZERO } else { ROOM };
    let name = params.text("device").unwrap_or_default();
    let made = match params.text("by") {
        Some("tap") => Some(Layer::Tap),
        Some("tun") => Some(Layer::Tun),
        _ => None,
    };
    if let Some(layer) = made {
        let options = tuntap::Options { name: name.into(), layer, ..tuntap::Options::default() };
        let mut device = crate::tuntap::open(&options)?;
        let link = LinkType(received::link_type(&device.device)?);
        let (_, sender) = device.queues.pop().ok_or_else(|| ParamError::new("device", "it has no queue to send by"))?;
        return Ok(Instance::filter(Send { sender: Box::new(sender), link, room }));
    }
    let namespace = received::namespace()?;
    let found = driver::device::find(&namespace, name).map_err(received::refusal)?;
    let link = received::link_type(&found.link)?;
    let sender: Box<dyn Transmit> = match params.text("by") {
        Some("xdp") => Box::new(af_xdp::Sender::open(&namespace, name, 0, CHUNKS).map_err(received::refusal)?),
        by => {
            let options = SenderOptions { bypass_queues: by == Some("direct") };
            Box::new(Sender::open(&namespace, name, options).map_err(received::refusal)?)
        }
    };
    Ok(Instance::filter(Send { sender, link: LinkType(link), room }))
}

struct Send {
    sender: Box<dyn Transmit>,
    link: LinkType,
    /// Length of one wait for room.
    room: Duration,
}

impl Filter for Send {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let rings = &*cx.rings;
        let mut links = Links::default();
        let mut frames = [&[][..]; BATCH_BLOCKS];
        let (mut count, mut cut, mut other) = (0, 0, 0);
        for (_, block) in batch.iter() {
            let bytes = rings.bytes(block);
            if links.of(rings, block) != Some(self.link) {
                other += 1;
            } else if block.len < block.wire() {
                cut += 1;
            } else {
                frames[count] = bytes;
                count += 1;
            }
        }
        let patience = Patience { room: self.room, all: PATIENCE };
        let left = sending::send(self.sender.as_mut(), &frames[..count], patience)?;
        let refused = [Some(("another link type", other)), Some(("cut when they were captured", cut)), left];
        for (why, count) in refused.into_iter().flatten().filter(|(_, count)| *count > 0) {
            cx.counters.drops.add(why, count as u64);
        }
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        sending::account(self.sender.as_mut(), PATIENCE, cx)?;
        Ok(Status::Done)
    }
}
