//! Flows on a device that stays the host's: its addresses, ARP, routes and ports.
//!
//! ```text
//!  device ─▶ XDP program ─▶ packets of flows ─▶ AF_XDP socket ─▶ receive
//!                     └──▶ everything else ──▶ the host's stack
//! ```
//!
//! - here — what the interface's thread does: an entry of the program's maps for each flow, and the host's answers.
//! - [`gate`] — what the daemon does before: the port is held, the host's route is looked at.
//! - `resolver.rs` — the daemon's thread that asks the host for next hops; [`keeper`] — the process that holds ports.
//!
//! The interface answers nothing itself: what comes for no flow, because one was closed meanwhile, is counted. Flows are of IPv4
//! only: the program lets every packet of IPv6 go on to the host.
//!
//! The daemon has a copy of the link that holds the program on the device. So the program stays when the interface's process ends, and
//! drops the packets of flows until the next process takes them: the host would answer them with resets.

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

/// A device that is open and stays the host's: what is known of it besides.
#[derive(Debug)]
pub(crate) struct SharedDevice {
    pub(crate) program: ShareProgram,
    /// Number of the device.
    pub(crate) index: u32,
    /// The host's addresses on it.
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    /// Is the program on the device? Else that of an earlier process is, until the flows are restored.
    pub(crate) is_attached: bool,
}

/// The host's share of an interface, as its thread has it.
#[derive(Debug)]
pub(crate) struct Sharing {
    program: ShareProgram,
    /// Holds the program of an earlier process on the device; none: this one is there.
    link: Option<Arc<OwnedFd>>,
    letters: Letters,
    /// Questions that the daemon has not answered.
    questions: usize,
    /// There is no daemon.
    is_alone: bool,
}

impl Sharing {
    /// `link` holds a program on the device; the daemon, which asks the host for next hops, is reached by `letters`.
    pub(crate) fn new(device: SharedDevice, link: Option<Arc<OwnedFd>>, letters: Letters) -> Sharing {
        let link = link.filter(|_| !device.is_attached);
        Sharing { program: device.program, link, letters, questions: 0, is_alone: false }
    }

    /// Puts the program in the place of that of an earlier process.
    pub(crate) fn attach(&mut self) -> Result<(), NetError> {
        let Some(link) = self.link.take() else { return Ok(()) };
        af_xdp::replace(link.as_fd(), self.program.program())
            .map_err(|error| NetError::system("put a program on the device", error))
    }

    /// Asks where packets to this address go. What there is no room for is asked again later.
    fn ask(&mut self, to: IpAddr) {
        if self.questions < SHARE_QUESTIONS {
            self.questions += 1;
            self.letters.send(Letter::word(0, Word::AskHop(to)));
        }
    }

    /// There is a daemon from now on, or none. It was asked nothing.
    pub(crate) fn set_alone(&mut self, is_alone: bool) {
        (self.is_alone, self.questions) = (is_alone, 0);
    }

    /// The device's packets for a flow come here from now on.
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

    /// They are the host's from now on.
    pub(crate) fn remove(&self, name: &Name) {
        // The kernel does not fail to forget a key. If it did, packets would come for no flow, which is counted.
        let _ = key(name).map(|key| self.program.remove(&key));
    }

    /// What the program counted.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (String, u64)> {
        REASONS.iter().zip(self.program.counted()).map(|(name, count)| (format!("xdp.{name}"), count))
    }
}

/// The name as the program has it; none: it is one of IPv6.
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
    /// Asks the host where packets to this address go. Without a daemon, which asks the host, what it said last holds on.
    pub(crate) fn ask_host(&mut self, address: IpAddr, now: u64) {
        let known = self.neighbours.known(address);
        match &mut self.sharing {
            Some(sharing) if !sharing.is_alone => sharing.ask(address),
            Some(_) if known.is_some() => self.next_hop(address, known, now),
            _ => {}
        }
    }

    /// The host said where packets to this address go; none: it does not reach it by this device.
    pub(crate) fn next_hop(&mut self, address: IpAddr, mac: Option<[u8; 6]>, now: u64) {
        if let Some(sharing) = &mut self.sharing {
            sharing.questions = sharing.questions.saturating_sub(1);
        }
        let mut woken = Woken::default();
        self.neighbours.decide(address, mac, now, &mut woken);
        self.wake(woken, mac, now);
    }
}
