//! The devices that benches use: devices that the user named, or virtual pairs in namespaces of their own; and the sender.

use super::jobs;
use super::options::Size;
use crate::exit::CommandError;
use driver::ethtool::Offloads;
use driver::namespace::Namespace;
use driver::pair::{End, Pair, quiet_namespace};
use std::io;
use std::time::Duration;
use streamline::language::FilterCall;
use streamline::{Error, StopFlag};

/// Frames are sent on one device and counted at another.
pub(super) struct Way {
    pub(super) from: End,
    pub(super) to: End,
    /// The devices by which this machine forwards: in and out. None where another machine forwards, or nothing does.
    pub(super) through: Option<(End, End)>,
    /// The bench made it: nothing but its own frames moves there.
    pub(super) own: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Pace {
    Full,
    Rate(u64),
}

#[derive(Clone, Copy)]
pub(super) struct Sent {
    /// Frames that the sender was to send; at [`Pace::Full`] those that it sent.
    pub(super) wanted: u64,
    /// Frames that the device took.
    pub(super) frames: u64,
    pub(super) took: Duration,
}

impl Sent {
    pub(super) fn rate(&self) -> u64 {
        per_second(self.frames, self.took)
    }
}

pub(super) fn per_second(frames: u64, took: Duration) -> u64 {
    (frames as f64 / took.as_secs_f64().max(1e-9)) as u64
}

impl Way {
    pub(super) fn pair() -> Result<Way, CommandError> {
        let make = || {
            let (here, there) = (quiet_namespace()?, quiet_namespace()?);
            Pair::named([(&here, "sender"), (&there, "receiver")], 1)
        };
        let Pair { near, far } = make().map_err(no_pair)?;
        Ok(Way { from: near, to: far, through: None, own: true })
    }

    /// Two pairs of its own, for a request that forwards between them.
    pub(super) fn two_pairs() -> Result<Way, CommandError> {
        let make = || {
            let between = quiet_namespace()?;
            let pair = |near: &str, far: &str| Pair::named([(&between, near), (&quiet_namespace()?, far)], 1);
            let (first, second) = (pair("in", "sender")?, pair("out", "receiver")?);
            // A program elsewhere redirects into a virtual pair only while the other end works by NAPI.
            second.far.set_offloads(Offloads { gro: true, ..Offloads::NONE })?;
            Ok((first, second))
        };
        let (first, second) = make().map_err(no_pair)?;
        Ok(Way { from: first.far, to: second.far, through: Some((first.near, second.near)), own: true })
    }

    /// Frames that the device where they arrive has seen since it was made.
    pub(super) fn arrived(&self) -> Result<u64, CommandError> {
        counter(&self.to, "rx_packets")
    }

    /// Sends for this time; `by` is the parameter of `send`.
    pub(super) fn send(
        &self,
        size: Size,
        pace: Pace,
        time: Duration,
        by: Option<&str>,
        stop: &StopFlag,
    ) -> Result<Sent, CommandError> {
        let mut generate = format!("generate size={}", size.param());
        let wanted = match pace {
            Pace::Full => {
                generate += &format!(" duration={}ns", time.as_nanos());
                None
            }
            Pace::Rate(rate) => {
                let count = ((rate as f64 * time.as_secs_f64()) as u64).max(1);
                generate += &format!(" rate={rate} count={count}");
                Some(count)
            }
        };
        let request = format!("{generate} | {}", send(&self.from.name, by));
        let ran = jobs::run(&self.from.namespace, &request, stop).map_err(|error| about(&request, error))?;
        let frames = ran.report.nodes.last().map_or(0, |node| node.counters.blocks_taken);
        Ok(Sent { wanted: wanted.unwrap_or(frames), frames, took: ran.took })
    }
}

pub(super) fn counter(end: &End, name: &str) -> Result<u64, CommandError> {
    Ok(end.link()?.counters.get(name).unwrap_or(0))
}

pub(super) fn send(device: &str, by: Option<&str>) -> String {
    let by = by.map(|by| format!(" by={by}")).unwrap_or_default();
    format!("{}{by}", FilterCall::new("send", [device.to_string()]))
}

/// Says which request failed.
pub(super) fn about(request: &str, error: Error) -> CommandError {
    CommandError::from(error).about(&format!("`{request}`"))
}

pub(super) fn named(name: &str) -> Result<End, CommandError> {
    let here = Namespace::current()?;
    let end = End::find(&here, name).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CommandError::Failed(format!("there is no device `{name}`"))
            .with_help("`streamline devices` lists those of this machine"),
        _ => CommandError::from(error).about(name),
    })?;
    match end.link()?.is_up() {
        true => Ok(end),
        false => Err(CommandError::Failed(format!("`{name}` is down"))
            .with_help(&format!("`ip link set {name} up` switches it on"))),
    }
}

fn no_pair(error: io::Error) -> CommandError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            CommandError::Failed("a bench makes network namespaces with virtual devices, which takes root".into())
        }
        _ => CommandError::Failed(format!("virtual devices cannot be made: {error}")),
    }
    .with_help("run it as root, or name devices: `streamline bench --help`")
}
