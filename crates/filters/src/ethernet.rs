//! Reads a live device. The device's owner decides how packets come: by the kernel's program or a packet socket, from a
//! daemon or in this process. `parts/live.rs` has the source.

use filter::capture_request::{By, CaptureError, CaptureRequest, Direction, Mode as CaptureMode, Partition};
use filter::device::{Shared, opened_by_owner};
use filter::prelude::*;

/// What `ethernet` is.
pub static KIND: Kind = Kind::new("ethernet", "captures packets of a network device", opened_by_owner)
    .also(&["capture", "sniff", "interface", "device", "live", "eth", "listen"])
    .help(
        "The device is captured once for all its readers: each reader gets what its own request wants, and a \
         slow one loses only its own. What follows runs where the packets are, if it can: `bpf`, `host`, `port` and the other selectors, \
         also joined by `and`, `or` and `not`; then `sample`; then `count`. So packets that no reader wants are never copied. `eth0@1/4` is the second of four parts of the traffic by flow. `any` stands for all devices, and \
         `eth*` or `veth?` for those whose names match: a source for each one that is there when the request begins, with a ring \
         each. `packets` says which device a packet came by (`in_iface`). A device that comes later is not captured; if one goes, the \
         others go on, and the run fails at its end.\n\
         \n\
         mode=tap takes a copy; the host sees every packet as before. mode=consume takes packets away that the device \
         receives: neither the host nor who copies sees them. With selectors right behind it, or on each of its branches, that is \
         what those pass, decided in the kernel, and the host keeps the rest (`explain` says so); without one it is everything, and that wants everything=yes. Packets \
         that a selector's program cannot tell about (MPLS, PPPoE, two VLAN tags, IP options) are taken away as well. \
         Through a daemon it is for users whom its policy lets, and those whom one entry of it lets take together, each what it \
         wants; other users are refused while they do. Stripped VLAN tags are put back (of what is taken away, where the \
         device leaves them in). The run ends with Ctrl-C.\n\
         \n\
         last=30s begins with what the device's ring still holds of that time, and says where that is less. It holds what \
         others wanted; with keep=64M everything, from then on, in a ring of that size (a power of two, 256M at most) if this \
         request is the first for the device, which stays when its last reader goes. Through a daemon that is for root, or for its policy \
         (`streamline daemon --help`); `streamline stop --kept eth0` takes it back.",
    )
    .params(&[
        Param::new("device", ParamType::Text, "the device, as `streamline devices` lists it; `any`, or a pattern with * and ?").required().main(),
        Param::new("mode", ParamType::Choice(&["tap", "consume"]), "a copy, or take the packets away").default("tap"),
        Param::new("everything", ParamType::Flag, "with mode=consume: take away all packets, where no `bpf` stands behind it")
            .default("no"),
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
        Param::new("buffer", ParamType::Size, "bytes of ring, if this request is the first for the device; a daemon gives 32M at least, if its policy lets it").default("32M"),
        Param::new("last", ParamType::Duration, "begin this long ago, with the packets that are still kept").default("0"),
        Param::new("keep", ParamType::Size, "bytes of ring that hold every packet from now on, and stay; 0 = none").default("0"),
    ])
    .completes(check_partition)
    .device(DeviceAccess::Shared(Shared { asked: capture_request, permits: takes_everything }));

/// Refuses a wrong partition of a device (`device@partition`) before the run begins.
fn check_partition(params: &mut Params) -> Result<(), ParamError> {
    let part = params.text("device").and_then(|name| Some(name.split_once('@')?.1));
    part.map_or(Ok(()), |part| partition(part).map(drop))
}

fn capture_request(params: &Params) -> Result<(CaptureRequest, Option<Partition>), ParamError> {
    let name = params.text("device").unwrap_or_default();
    let (device, partition) = match name.split_once('@') {
        None => (name, None),
        Some((device, part)) => (device, Some(partition(part)?)),
    };
    if device.is_empty() {
        return Err(ParamError::new("device", "the device has no name").with_help("`streamline devices` lists them"));
    }
    let kept = params.number("keep").unwrap_or(0);
    let asked = CaptureRequest {
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
        ring_bytes: params.number("buffer").unwrap_or(0).max(kept),
        last_ns: params.number("last").unwrap_or(0),
        keep: kept > 0,
    };
    Ok((asked, partition))
}

/// Refuses a request that takes every packet of a device away from the host, unless it says `everything=yes`.
fn takes_everything(asked: &CaptureRequest, params: &Params) -> Result<(), ParamError> {
    let chooses =
        || program::from_cbpf(&asked.program).is_ok_and(|program| program.always().is_none_or(|length| length == 0));
    if asked.mode != CaptureMode::Consume || params.flag("everything") || (!asked.program.is_empty() && chooses()) {
        return Ok(());
    }
    let name = &asked.device;
    let text = format!("this takes away everything `{name}` receives: this host loses its network there");
    let help = "to take a part, put a selector right behind it: mode=consume | bpf \"udp port 53\"; to take everything, \
                say mode=consume everything=yes";
    Err(ParamError::new("mode", text).with_help(help))
}

fn partition(text: &str) -> Result<Partition, ParamError> {
    text.parse().map_err(|error: CaptureError| {
        ParamError::new("device", error.text).with_help("`eth0@0/4` is the first of four parts, `eth0@3/4` the last")
    })
}
