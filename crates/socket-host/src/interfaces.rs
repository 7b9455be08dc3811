//! Which addresses are for flows: what the daemon says of its interfaces, asked for again now and then.

use crate::policy::{Act, Policy, Protocol};
use capture::client::Client;
use flow::{Answer, InterfaceState, Question};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What the daemon said is believed for so long.
const FRESH: Duration = Duration::from_secs(1);

/// Interfaces of a daemon that ended are believed for so long: as long as they wait for the next one, and a little longer.
const LAST: Duration = Duration::from_secs(7);

/// The daemon's interfaces.
#[derive(Debug)]
pub(crate) struct Interfaces {
    daemon: PathBuf,
    /// Only this one.
    device: Option<String>,
    /// Which sockets may become flows.
    policy: Policy,
    client: Option<Client>,
    known: Vec<InterfaceState>,
    asked: Option<Instant>,
    /// When the daemon last answered.
    heard: Option<Instant>,
}

impl Interfaces {
    /// Those of a daemon, or the one of this name, for the sockets that the policy permits.
    pub(crate) fn new(daemon: &Path, device: Option<String>, policy: Policy) -> Interfaces {
        Interfaces {
            daemon: daemon.to_path_buf(),
            device,
            policy,
            client: None,
            known: Vec::new(),
            asked: None,
            heard: None,
        }
    }

    /// The one that routes to this address, by the most specific route; none for a socket that stays the kernel's. A device that
    /// stays the host's may route there: the daemon says so when a flow is opened.
    pub(crate) fn route(&mut self, protocol: Protocol, to: SocketAddrV4) -> Option<String> {
        if !self.policy.permits(Act::Connect, protocol, to.into()) {
            return None;
        }
        let to = *to.ip();
        let holds = |(network, bits): (Ipv4Addr, u8)| {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            u32::from(network) & mask == u32::from(to) & mask
        };
        let routes = |interface: &InterfaceState| {
            let best =
                interface.routes.iter().map(|route| route.to).filter(|to| holds(*to)).map(|(_, bits)| bits).max();
            best.or(interface.is_shared.then_some(0))
        };
        let all = self.all().iter().filter_map(|interface| Some((routes(interface)?, interface)));
        all.max_by_key(|(bits, _)| *bits).map(|(_, interface)| interface.device.clone())
    }

    /// Is it an address of one of them, or any address while there are some, and does the policy permit a flow there?
    pub(crate) fn have(&mut self, protocol: Protocol, local: SocketAddrV4) -> bool {
        if !self.policy.permits(Act::Bind, protocol, local.into()) {
            return false;
        }
        let address = *local.ip();
        let own = |interface: &InterfaceState| interface.addresses.iter().any(|(own, _)| *own == address);
        self.all().iter().any(|interface| address.is_unspecified() || own(interface))
    }

    fn all(&mut self) -> &[InterfaceState] {
        if self.asked.is_none_or(|asked| asked.elapsed() >= FRESH) {
            self.asked = Some(Instant::now());
            // A daemon that says nothing has no interfaces for new sockets; a later look connects again.
            match self.ask() {
                Ok(interfaces) => (self.known, self.heard) = (interfaces, self.asked),
                // Its interfaces outlive it for a while: their addresses are not the kernel's meanwhile.
                Err(_) if self.heard.is_some_and(|heard| heard.elapsed() < LAST) => self.client = None,
                Err(_) => (self.client, self.known) = (None, Vec::new()),
            }
            if let Some(device) = &self.device {
                self.known.retain(|interface| interface.device == *device);
            }
        }
        &self.known
    }

    fn ask(&mut self) -> io::Result<Vec<InterfaceState>> {
        if self.client.is_none() {
            self.client = Some(Client::connect(&self.daemon, "streamline net run")?);
        }
        let client = self.client.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        match client.flows(Question::State) {
            Ok((Answer::State(interfaces), _)) => Ok(interfaces),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
