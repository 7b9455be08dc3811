//! Sends frames from one device to another without their leaving the kernel: an XDP program on the first device
//! redirects them to the second. [`check`] decides what can be done by what is known; [`open`] opens it.
//!
//! A driver may claim that it takes such frames and then drop all of them, without an error from the kernel. So some
//! test frames go that way before the program takes any of the host's.

use super::known::Known;
use super::lowering::is_own;
use super::ports::{found, name_of};
use capture::ETHERNET;
use control::Before;
use driver::af_packet::PacketSocket;
use driver::link::{Link, XdpMode};
use driver::watch::{Watch, What};
use filter::device::snap_len;
use filter::run::Instance;
use filter::{Lower, Params};
use filters::send::forwarded::{self, Forwarded, Forwards};
use kernel::sys::{self, Hook};
use kernel::{ConsumeProgram, To, Wanted};
use program::Program;
use std::time::{Duration, Instant};

const TEST_FRAMES: u32 = 3;

/// How long to wait until a device has counted what it sent. A virtual device counts at once, hardware when its driver
/// is asked.
const COUNTED: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(3)];

const LOOK: Duration = Duration::from_millis(1);

/// A frame of the EtherType for experiments (IEEE 802, table of ether types), with locally administered addresses that
/// no host has.
const TEST_FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    (frame[0], frame[6], frame[7], frame[12], frame[13]) = (2, 2, 1, 0x88, 0xb5);
    frame
};

/// Bytes of a VLAN tag, which do not count towards a device's limit.
const TAG_BYTES: u32 = 4;

/// Checks that frames that come by these filters can go out by this device. The error says why not.
pub(super) fn check(to: &str, before: &[Before<'_>], known: &Known) -> Result<(), String> {
    let [(device, params), rest @ ..] = before else { return Err("no device is in front of it here".into()) };
    if !device.takes_away(params) {
        return Err("frames are taken from the host by mode=consume alone".into());
    }
    if let Some((kind, _)) = rest.iter().find(|(kind, _)| !matches!(kind.lower, Some(Lower::Program(_)))) {
        return Err(format!("between two devices it has no program for `{}`", kind.name));
    }
    let from = name_of(params);
    if from.contains('@') || params.text("queues").is_some() {
        return Err("its program takes all packets of a device, not a part".into());
    }
    if snap_len(params) > 0 {
        return Err("frames that are cut are not sent".into());
    }
    if from == to {
        return Err("frames would go back where they came from".into());
    }
    let (from, to) = (known.port(from)?, known.port(to)?);
    if [&from, &to].iter().any(|port| port.link.link_type() != Some(ETHERNET)) {
        return Err("both devices must be Ethernet's".into());
    }
    if let Some(down) = [&from, &to].into_iter().find(|port| !port.link.is_up()) {
        return Err(format!("`{}` is down", down.link.name));
    }
    // Where the kernel does not say, the test frames will show it.
    if from.features.is_some_and(|features| !features.redirects()) {
        return Err(format!("the driver of `{}` redirects nothing", from.link.name));
    }
    match to.features {
        Some(features) if !features.takes_redirected() => Err(takes_nothing(&to.link)),
        _ => Ok(()),
    }
}

fn takes_nothing(to: &Link) -> String {
    let name = &to.name;
    match to.kind.as_deref() {
        Some("veth") => format!(
            "`{name}` takes no redirected frames while its other end does not work by NAPI: switch GRO on there (`ethtool -K PEER gro on`), or attach an XDP program"
        ),
        _ => format!("the driver of `{name}` takes no redirected frames"),
    }
}

/// Redirects what a device receives, and `wanted` matches, to another device. The error says what cannot be done.
pub(super) fn open(from: &Params, to: &str, wanted: Option<&Program>) -> Result<Instance, String> {
    let (input, output) = (found(name_of(from))?, found(to)?);
    driver::af_xdp::check_free(&input).map_err(|error| error.to_string())?;
    let way = To::Device { index: output.index, longest: output.mtu + output.header_bytes() + TAG_BYTES };
    let load = |wanted: Wanted<'_>| ConsumeProgram::to(way, wanted).map_err(|error| error.to_string());
    try_out(&load(Wanted::All)?, &output)?;
    let consume_program = match wanted {
        Some(program) => load(Wanted::Any(&[program]))?,
        None => load(Wanted::All)?,
    };
    let socket = from.flag("promisc").then(|| promiscuous(&input)).transpose()?;
    let namespace = driver::namespace::Namespace::current().map_err(|error| error.to_string())?;
    let watch = Watch::new(&namespace).map_err(|error| error.to_string())?;
    let attached = sys::Link::attach(consume_program.program(), input.index, Hook::Xdp);
    let link = attached.map_err(|error| format!("an XDP program cannot be attached to `{}`: {error}", input.name))?;
    if found(&input.name)?.xdp.is_none_or(|attached| attached.mode != XdpMode::Native) {
        return Err(format!("the driver of `{}` runs no XDP programs", input.name));
    }
    let before = [input.clone(), output.clone()];
    let forward = Forward { link: Some(link), consume_program, _promiscuous: socket, watch, before, dropped: 0 };
    Ok(forwarded::source(Box::new(forward)))
}

fn promiscuous(device: &Link) -> Result<PacketSocket, String> {
    let socket = PacketSocket::new(device.index).map_err(|error| error.to_string())?;
    socket
        .become_promiscuous()
        .map_err(|error| format!("`{}` cannot receive what is for others: {error}", device.name))?;
    Ok(socket)
}

/// Sends some frames the way all will go, and checks that the device sends them.
fn try_out(consume_program: &ConsumeProgram, output: &Link) -> Result<(), String> {
    let sent = || found(&output.name).map(|link| link.counters.get("tx_packets").unwrap_or(0));
    let before = sent()?;
    sys::live_run(consume_program.program(), &TEST_FRAME, TEST_FRAMES)
        .map_err(|error| format!("a frame cannot be sent by a program to try it out: {error}"))?;
    let patience = COUNTED[usize::from(output.kind.is_none())];
    let began = Instant::now();
    while sent()? < before + u64::from(TEST_FRAMES) {
        if began.elapsed() > patience {
            return Err(takes_nothing(output));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

struct Forward {
    /// `None` once it has stopped.
    link: Option<sys::Link>,
    consume_program: ConsumeProgram,
    _promiscuous: Option<PacketSocket>,
    watch: Watch,
    before: [Link; 2],
    /// How many frames the devices had dropped when they were last present.
    dropped: u64,
}

impl Forwards for Forward {
    fn counted(&mut self) -> Forwarded {
        let counted = self.consume_program.counted();
        let [input, output] = &self.before;
        let more = |before: &Link, names: &[&str]| {
            let now = found(&before.name).ok().filter(|now| now.index == before.index)?;
            let since = now.counters.since(&before.counters);
            Some(names.iter().filter_map(|name| since.get(name)).sum::<u64>())
        };
        if let (Some(there), Some(here)) = (more(output, &["tx_dropped", "tx_errors"]), more(input, &["rx_dropped"])) {
            self.dropped = there + here;
        }
        let Forward { dropped, .. } = *self;
        // The first device may or may not count what the program itself dropped.
        let own = counted.too_long + counted.nowhere;
        Forwarded {
            seen: counted.seen,
            wanted: counted.wanted,
            too_long: counted.too_long,
            nowhere: counted.nowhere,
            dropped: dropped.saturating_sub(own),
        }
    }

    fn stop(&mut self) {
        if self.link.take().is_some() {
            sys::wait_for_runs();
        }
    }

    fn failure(&mut self) -> Option<String> {
        while let Ok(Some(event)) = self.watch.next(Duration::ZERO) {
            if event.what == What::Removed && self.before.iter().any(|link| link.index == event.index) {
                return Some(format!("the device `{}` was removed", event.name));
            }
        }
        None
    }
}

/// Whether this process can take the device's frames from the host by a program of its own.
pub(super) fn is_here(before: &[Before<'_>], is_elsewhere: bool) -> bool {
    !is_elsewhere || before.first().is_some_and(|(kind, _)| is_own(kind))
}
