//! Flows on a device that the host keeps, with its addresses, ARP, routes and ports.
//!
//! ```text
//!  device ─▶ XDP program ─▶ packets of flows ─▶ AF_XDP socket ─▶ receive
//!                     └──▶ everything else ──▶ the host's stack
//! ```
//!
//! - here — the interface's thread: an entry in the program's maps for each flow, and the host's answers
//! - [`gate`] — the daemon, before a flow is opened: takes the port, and checks the host's route
//! - `resolver.rs` — the daemon's thread that asks the host for next hops; [`keeper`] — the process that holds ports
//!
//! The interface answers no packets itself. Packets without a flow, because it was closed meanwhile, are counted. There
//! are only IPv4 flows: the program passes every IPv6 packet to the host.
//!
//! The daemon has a copy of the link that holds the program on the device. So the program stays when the interface's process
//! ends. It drops the packets of flows until the next process takes them, because the host would answer them with resets.

pub(crate) mod gate;
pub(crate) mod keeper;
pub(crate) mod resolver;

use crate::error::{NetError, NetErrorKind};
use crate::flows::Name;
use crate::interface::Core;
use crate::limits::SHARE_QUESTIONS;
use crate::neighbours::Woken;
use crate::process::letters::{Letter, Letters};
use crate::process::message::Word;
use driver::af_xdp;
use kernel::share_program::{FLOWS, REASONS};
use kernel::{FlowKey, ShareProgram};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The properties of an open device that the host keeps.
#[derive(Debug)]
pub(crate) struct SharedDevice {
    pub(crate) program: ShareProgram,
    /// The device's interface index.
    pub(crate) index: u32,
    /// The host's addresses on it.
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    /// Whether the program is on the device. Otherwise an earlier process's program is, until the flows are restored.
    pub(crate) is_attached: bool,
}

/// The interface's connection to the host, on its thread.
#[derive(Debug)]
pub(crate) struct Sharing {
    program: ShareProgram,
    /// Holds an earlier process's program on the device. `None`: this program is there.
    link: Option<Arc<OwnedFd>>,
    letters: Letters,
    /// Questions that the daemon has not answered yet.
    questions: usize,
    /// There is no daemon.
    is_alone: bool,
}

impl Sharing {
    /// `link` holds a program on the device. `letters` reach the daemon, which asks the host for next hops.
    pub(crate) fn new(device: SharedDevice, link: Option<Arc<OwnedFd>>, letters: Letters) -> Sharing {
        let link = link.filter(|_| !device.is_attached);
        Sharing { program: device.program, link, letters, questions: 0, is_alone: false }
    }

    /// Replaces an earlier process's program by this one.
    pub(crate) fn attach(&mut self) -> Result<(), NetError> {
        let Some(link) = self.link.take() else { return Ok(()) };
        af_xdp::replace(link.as_fd(), self.program.program())
            .map_err(|error| NetError::system("put a program on the device", error))
    }

    /// Asks for the next hop of this address. Without room, it is asked again later.
    fn ask(&mut self, to: IpAddr) {
        if self.questions < SHARE_QUESTIONS {
            self.questions += 1;
            self.letters.send(Letter::word(0, Word::AskHop(to)));
        }
    }

    /// From now on there is a daemon, or none. Earlier questions are void.
    pub(crate) fn set_alone(&mut self, is_alone: bool) {
        (self.is_alone, self.questions) = (is_alone, 0);
    }

    /// Takes the packets of a flow from the device from now on.
    pub(crate) fn insert(&self, name: &Name) -> Result<(), NetError> {
        let refused = || NetError::new(NetErrorKind::Request, "a shared device has flows of IPv4 only");
        self.program.insert(&key(name).ok_or_else(refused)?).map_err(|error| match error.kind() {
            std::io::ErrorKind::ArgumentListTooLong => {
                let text = format!("a shared device has {FLOWS} flows of a kind at most; close some");
                NetError::new(NetErrorKind::Full, text)
            }
            _ => NetError::system("have packets of a flow from the kernel", error),
        })
    }

    /// Leaves these packets to the host from now on.
    pub(crate) fn remove(&self, name: &Name) {
        // The kernel does not fail to delete a key. If it did, packets would come without a flow, and be counted.
        let _ = key(name).map(|key| self.program.remove(&key));
    }

    /// The program's counters.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (String, u64)> {
        REASONS.iter().zip(self.program.counted()).map(|(name, count)| (format!("xdp.{name}"), count))
    }
}

/// The name in the program's form. `None`: it is an IPv6 name.
fn key(name: &Name) -> Option<FlowKey> {
    let of_ipv4 = |address: SocketAddr| match address {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(_) => None,
    };
    let remote = match name.remote {
        Some(remote) => Some(of_ipv4(remote)?),
        None => None,
    };
    Some(FlowKey { protocol: name.protocol, local: of_ipv4(name.local)?, remote })
}

/// Copies of a program's handles, for the device that attaches it.
pub(crate) fn handles(program: &ShareProgram) -> std::io::Result<[OwnedFd; 2]> {
    Ok([program.program().try_clone_to_owned()?, program.sockets().try_clone_to_owned()?])
}

impl Core {
    /// Asks the host for the next hop of this address. Without a daemon, which asks the host, the last answer stays valid.
    pub(crate) fn ask_host(&mut self, address: IpAddr, now: u64) {
        let known = self.neighbours.known(address);
        match &mut self.sharing {
            Some(sharing) if !sharing.is_alone => sharing.ask(address),
            Some(_) if known.is_some() => self.next_hop(address, known, now),
            _ => {}
        }
    }

    /// The host's next hop for this address. `None`: the host cannot reach it by this device.
    pub(crate) fn next_hop(&mut self, address: IpAddr, mac: Option<[u8; 6]>, now: u64) {
        if let Some(sharing) = &mut self.sharing {
            sharing.questions = sharing.questions.saturating_sub(1);
        }
        let mut woken = Woken::default();
        self.neighbours.decide(address, mac, now, &mut woken);
        self.wake(woken, mac, now);
    }
}
