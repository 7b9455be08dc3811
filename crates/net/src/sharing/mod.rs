//! Flows on a device that stays the host's: its addresses, ARP, routes and ports.
//!
//! ```text
//!  device ─▶ XDP program ─▶ packets of flows ─▶ AF_XDP socket ─▶ receive
//!                     └──▶ everything else ──▶ the host's stack
//! ```
//!
//! - here — what the interface's thread does: an entry of the program's maps for each flow, and the host's answers.
//! - [`gate`] — what a client's thread does before: the port is held, the host's route is looked at.
//! - `resolver.rs` — the thread that asks the host for next hops; [`keeper`] — the process that holds ports.
//!
//! The interface answers nothing itself: what comes for no flow, because one was closed meanwhile, is counted.

pub(crate) mod gate;
pub(crate) mod keeper;
mod resolver;

use crate::error::{NetError, NetErrorKind};
use crate::flows::Name;
use crate::interface::Core;
use crate::limits::SHARE_QUESTIONS;
use crate::neighbours::Woken;
use crate::thread::Line;
use driver::netlink::Netlink;
use kernel::share_program::{FLOWS, REASONS};
use kernel::{FlowKey, ShareProgram};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{SyncSender, sync_channel};

/// A device that is open and stays the host's: what is known of it besides.
#[derive(Debug)]
pub struct SharedDevice {
    pub(crate) program: ShareProgram,
    /// Number of the device.
    pub(crate) index: u32,
    /// The host's addresses on it.
    pub(crate) addresses: Vec<(Ipv4Addr, u8)>,
}

/// The host's share of an interface, as its thread has it.
#[derive(Debug)]
pub(crate) struct Sharing {
    program: ShareProgram,
    questions: SyncSender<Ipv4Addr>,
}

impl Sharing {
    /// Starts the thread that asks the host, in this thread's network namespace.
    pub(crate) fn start(device: SharedDevice, line: Line) -> Result<Sharing, NetError> {
        let system = |error| NetError::system("ask the host for next hops", error);
        let netlink = Netlink::route(0).map_err(system)?;
        let (questions, asked) = sync_channel(SHARE_QUESTIONS);
        let index = device.index;
        let thread = std::thread::Builder::new().name("net next hops".into());
        thread.spawn(move || resolver::run(netlink, index, &asked, &line)).map_err(system)?;
        Ok(Sharing { program: device.program, questions })
    }

    /// Asks where packets to this address go. What there is no room for is asked again later.
    pub(crate) fn ask(&self, to: Ipv4Addr) {
        let _ = self.questions.try_send(to);
    }

    /// The device's packets for a flow come here from now on.
    pub(crate) fn insert(&self, name: &Name) -> Result<(), NetError> {
        self.program.insert(&key(name)).map_err(|error| match error.kind() {
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
        let _ = self.program.remove(&key(name));
    }

    /// What the program counted.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (String, u64)> {
        REASONS.iter().zip(self.program.counted()).map(|(name, count)| (format!("xdp.{name}"), count))
    }
}

fn key(name: &Name) -> FlowKey {
    FlowKey { protocol: name.protocol, local: name.local, remote: name.remote }
}

/// Copies of a program's handles, for the device that attaches it.
pub(crate) fn handles(program: &ShareProgram) -> std::io::Result<[OwnedFd; 2]> {
    Ok([program.program().try_clone_to_owned()?, program.sockets().try_clone_to_owned()?])
}

impl Core {
    /// The host said where packets to this address go; none: it does not reach it by this device.
    pub(crate) fn next_hop(&mut self, address: Ipv4Addr, mac: Option<[u8; 6]>, now: u64) {
        let mut woken = Woken::default();
        self.neighbours.decide(address, mac, now, &mut woken);
        for number in woken.flows {
            self.activate_number(number, now);
        }
        if let Some(mac) = mac {
            for mut frame in woken.frames {
                frame[..6].copy_from_slice(&mac);
                self.queue(frame);
            }
        }
    }
}
