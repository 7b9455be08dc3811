//! Reads a live device. Which way its packets come (by the kernel's program, by a packet socket; from a daemon or in this
//! process) is decided behind [`filter::device::Devices`]; what a device gives is in `parts/live.rs`.

use crate::parts::landing;
use crate::parts::live::Live;
use capture::{By, Direction, Mode as CaptureMode, Share, Tap, Wish, writer::TroubleKind};
use filter::prelude::*;

/// What `ethernet` is.
pub static KIND: Kind = Kind::new("ethernet", "captures packets of a network device", make)
    .help(
        "The device is captured once for everybody who asks for it: each reader gets what its own request wants, and a \
         slow one loses only its own. What follows runs where the packets are, if it can (`bpf`, then `sample`, then `count`), so that what nobody wants \
         is never copied. `eth0@1/4` is the second of four parts of the traffic by flow.\n\
         \n\
         mode=tap takes a copy; the host sees every packet as before. mode=consume takes what is wanted away from the \
         host. Stripped VLAN tags are put back. The run ends with Ctrl-C.\n\
         \n\
         last=30s begins with what the device's ring still holds of that time; keep=yes lets the ring stay when the last \
         reader goes, so that later ones can look back.",
    )
    .params(&[
        Param::new("device", ParamType::Text, "the device, as `streamline devices` lists it").required().main(),
        Param::new("mode", ParamType::Choice(&["tap", "consume"]), "a copy, or take the packets away").default("tap"),
        Param::new("direction", ParamType::Choice(&["both", "in", "out"]), "which packets, by where they go")
            .default("both"),
        Param::new(
            "by",
            ParamType::Choice(&["best", "kernel", "socket"]),
            "who copies, if this request is the first for the device: a program in the kernel, or a packet socket",
        )
        .default("best"),
        Param::new("promisc", ParamType::Flag, "packets for others, too").default("yes"),
        Param::new("snaplen", ParamType::Size, "bytes kept of each packet; 0 = all").default("0"),
        Param::new("buffer", ParamType::Size, "bytes of ring, if this request is the first for the device; a daemon gives 32M at least").default("32M"),
        Param::new("last", ParamType::Duration, "begin so long ago, with what is still there").default("0"),
        Param::new("keep", ParamType::Flag, "the ring stays when its last reader goes").default("no"),
    ])
    .source(Type::Frame)
    .runs_in(Spaces::APP.with(Spaces::DAEMON).with(Spaces::KERNEL));

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let (wish, share) = wish(params)?;
    let tap = env.devices.open(&wish, share).map_err(refusal)?;
    Ok(source(tap, params))
}

/// What the parameters ask for, before any selector that follows.
pub fn wish(params: &Params) -> Result<(Wish, Option<Share>), ParamError> {
    let name = params.text("device").unwrap_or_default();
    let (device, share) = match name.split_once('@') {
        None => (name, None),
        Some((device, part)) => (device, Some(share(part)?)),
    };
    if device.is_empty() {
        return Err(ParamError::new("device", "the device has no name").with_help("`streamline devices` lists them"));
    }
    let wish = Wish {
        device: device.into(),
        mode: if params.text("mode") == Some("consume") { CaptureMode::Consume } else { CaptureMode::Tap },
        by: match params.text("by") {
            Some("kernel") => By::Kernel,
            Some("socket") => By::PacketSocket,
            _ => By::WhatIsBest,
        },
        direction: match params.text("direction") {
            Some("in") => Direction::In,
            Some("out") => Direction::Out,
            _ => Direction::Both,
        },
        program: Vec::new(),
        sample: 1,
        counts: None,
        promiscuous: params.flag("promisc"),
        ring_bytes: params.number("buffer").unwrap_or(0),
        last_ns: params.number("last").unwrap_or(0),
        keep: params.flag("keep"),
    };
    Ok((wish, share))
}

/// Bytes kept of each packet; 0 for all.
pub fn snap_len(params: &Params) -> u32 {
    landing::snap_len(params)
}

fn share(text: &str) -> Result<Share, ParamError> {
    text.parse().map_err(|trouble: capture::Trouble| {
        ParamError::new("device", trouble.text).with_help("`eth0@0/4` is the first of four parts, `eth0@3/4` the last")
    })
}

/// A source of what a tap gives.
pub fn source(tap: Tap, params: &Params) -> Instance {
    Instance::source(Live::new(tap, landing::snap_len(params)))
}

/// Whose fault it is that a device could not be opened.
pub fn refusal(trouble: capture::Trouble) -> ParamError {
    let system = trouble.kind != TroubleKind::Wish;
    ParamError { system, ..ParamError::new("device", trouble.text) }
}
