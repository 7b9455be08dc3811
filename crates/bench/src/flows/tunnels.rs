//! TCP from a namespace to its host, with an MTU of 1,500 bytes: by flows, and by slirp4netns, which makes a network
//! from a TUN device and a TCP of its own. The peer's client uses kernel sockets in the namespace. pasta is no peer:
//! that of Debian 12 (March 2023) ends a connection when its sender finishes, before the answer comes.

use super::bed::{Bed, NEAR_IP, Whose, tool};
use super::bulk::{self, FAR, PORT};
use super::part::{Killed, failed, spawn};
use super::{blocks, in_turns, numbers, row};
use crate::case::{Case, CaseError, Numbers};
use crate::machine::{IP, SLIRP};
use crate::setting::Setting;
use crate::table::Goal;
use driver::namespace::Namespace;
use driver::pair::End;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const READY: Duration = Duration::from_secs(10);

/// The rows.
pub static CASES: &[Case] =
    &[row("bulk TCP from a namespace to its host", "slirp4netns", Goal::AtLeast(1.5, 2.5), compared)];

/// The host's address behind slirp4netns.
const HOST: &str = "10.0.2.2";

/// The namespace's name, and its path.
const GUEST: &str = "streamline-bench";
const GUEST_PATH: &str = "/run/netns/streamline-bench";

/// A namespace whose only way out is a program; removed when this is dropped.
struct Guest(End);

impl Guest {
    fn make() -> Result<Guest, CaseError> {
        // A killed run may have left one.
        let _ = netns(&["delete", GUEST]);
        netns(&["add", GUEST])?;
        let namespace = Namespace::at(GUEST_PATH).map_err(failed)?;
        Ok(Guest(End { namespace, name: String::new(), index: 0 }))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = netns(&["delete", GUEST]);
    }
}

fn netns(words: &[&str]) -> Result<(), CaseError> {
    let mut ip = Command::new(IP.find().map_err(CaseError::Missing)?);
    let output = ip.arg("netns").args(words).stdin(Stdio::null()).output().map_err(failed)?;
    if output.status.success() { Ok(()) } else { Err(failed(String::from_utf8_lossy(&output.stderr))) }
}

fn compared(setting: &Setting) -> Result<Numbers, CaseError> {
    SLIRP.find().map_err(CaseError::Missing)?;
    let bed = Bed::new(setting, None)?;
    let host = bed.far(Whose::Kernel);
    tool(host, IP, "link set lo up")?;
    tool(host, IP, "route change table local local 127.0.0.1 dev lo congctl cubic")?;
    tool(host, IP, &format!("route add default via {}", NEAR_IP))?;
    let guest = Guest::make()?;
    let guest = &guest.0;
    let _network = start(host, guest)?;
    let to = format!("{HOST}:{PORT}");
    let [ours, theirs] = in_turns(blocks(setting), |whose| match whose {
        Whose::Ours => bulk::run(&bed, (bed.near(whose), whose), (bed.far(whose), FAR), "send"),
        Whose::Kernel => bulk::run(&bed, (guest, whose), (host, &to), "send"),
    })?;
    let rates = |runs: Vec<bulk::Run>| runs.iter().map(|run| run.rate).collect();
    Ok(numbers(rates(ours), Some(rates(theirs)), "Gb/s"))
}

/// Starts slirp4netns on the host, and waits until the namespace has a way out.
fn start(host: &End, guest: &End) -> Result<Killed, CaseError> {
    let mut command = Command::new(SLIRP.find().map_err(CaseError::Missing)?);
    command
        .args(["--configure", "--mtu", "1500", "--netns-type=path", GUEST_PATH, "tap0"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let network = Killed(spawn(host, command, None)?);
    let until = Instant::now() + READY;
    loop {
        let routes = || std::fs::read_to_string("/proc/thread-self/net/route");
        let routes = guest.namespace.enter(routes).and_then(|routes| routes).map_err(failed)?;
        // Device, destination, gateway.
        let default = routes.lines().map(|line| line.split('\t')).find_map(|mut words| {
            let device = words.next()?;
            (words.next() == Some("00000000")).then_some(device)
        });
        if let Some(device) = default {
            // As on the other devices.
            tool(guest, IP, &format!("route change default via {} dev {device} congctl cubic", HOST))?;
            return Ok(network);
        }
        if Instant::now() > until {
            return Err(failed(format!("{} does not come up", SLIRP.program)));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
