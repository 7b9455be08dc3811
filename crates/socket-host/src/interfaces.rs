//! The addresses for flows: the daemon's interfaces, which are asked for again now and then.

use crate::families::{Own, plain};
use crate::policy::{Act, Policy, Protocol};
use capture::client::Client;
use flow::{Answer, InterfaceState, Question};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the daemon's answer is valid.
const FRESH: Duration = Duration::from_millis(300);

/// How long the interfaces of an ended daemon stay valid: a little longer than they wait for the next daemon.
const LAST: Duration = Duration::from_secs(7);

fn is_of_link(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// The daemon's interfaces.
#[derive(Debug)]
pub(crate) struct Interfaces {
    daemon: PathBuf,
    /// Use only this interface.
    device: Option<String>,
    /// Selects the sockets that may become flows.
    policy: Policy,
    client: Option<Client>,
    known: Vec<InterfaceState>,
    asked: Option<Instant>,
    /// When the daemon last answered.
    heard: Option<Instant>,
}

impl Interfaces {
    /// The interfaces of a daemon, or the one of this name, for sockets that the policy permits.
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

    /// The interface that routes to this address, by the most specific route. `None`: the socket stays the kernel's.
    /// The route may be on a device that the host keeps; the daemon reports that when a flow is opened.
    pub(crate) fn route(&mut self, protocol: Protocol, to: SocketAddr) -> Option<String> {
        let to = plain(to);
        if !self.policy.permits(Act::Connect, protocol, to) {
            return None;
        }
        let to = to.ip();
        let routes = |interface: &InterfaceState| {
            let held = interface.routes.iter().map(|route| route.to).filter(|network| flow::holds(*network, to));
            held.map(|(_, bits)| bits).max().or((interface.is_shared && to.is_ipv4()).then_some(0))
        };
        let all = self.all().iter().filter_map(|interface| Some((routes(interface)?, interface)));
        all.max_by_key(|(bits, _)| *bits).map(|(_, interface)| interface.device.clone())
    }

    /// Whether an interface has this socket's address, and the policy permits a flow there.
    pub(crate) fn have(&mut self, protocol: Protocol, own: Own) -> bool {
        self.policy.permits(Act::Bind, protocol, plain(own.address)) && !self.behind(own, None).is_empty()
    }

    /// The flows' addresses for a socket's own address, at this interface or at any. Empty: no interface has them.
    ///
    /// A device that the host keeps leaves IPv6 to the host: with an IPv4 flow, a server for both would miss one.
    pub(crate) fn behind(&mut self, own: Own, device: Option<&str>) -> Vec<SocketAddr> {
        let is_asked = |interface: &&InterfaceState| device.is_none_or(|device| interface.device == device);
        let all: Vec<&InterfaceState> = self.all().iter().filter(is_asked).collect();
        own.behind(&|address| {
            let is_it = |(own, _): &(IpAddr, u8)| match address.is_unspecified() {
                true => own.is_ipv4() == address.is_ipv4(),
                false => *own == address,
            };
            let is_open = address.is_ipv4() && (device.is_some() || !own.reaches_both());
            let mut some = all.iter().filter(|interface| !interface.is_shared || is_open);
            some.any(|interface| interface.addresses.iter().any(is_it))
        })
    }

    /// The addresses at which a socket listens: its own, or for all addresses those of every interface. Not the link-local
    /// ones of IPv6: a program cannot name their interface.
    ///
    /// A device that the host keeps leaves IPv6 to the host, so a socket for both families is not there.
    pub(crate) fn endpoints(&mut self, own: Own) -> Vec<Endpoint> {
        let port = own.address.port();
        let is_own = |interface: &&InterfaceState| !interface.is_shared || !own.reaches_both();
        let endpoints = self.all().iter().filter(is_own).flat_map(|interface| {
            let addresses = interface.addresses.iter().map(|(address, _)| *address);
            addresses
                .filter(|address| own.covers(*address) && !is_of_link(*address))
                .map(|address| Endpoint { device: interface.device.clone(), address: SocketAddr::new(address, port) })
        });
        endpoints.collect()
    }

    fn all(&mut self) -> &[InterfaceState] {
        if self.asked.is_none_or(|asked| asked.elapsed() >= FRESH) {
            self.asked = Some(Instant::now());
            // A daemon that does not answer has no interfaces for new sockets. A later call connects again.
            match self.ask() {
                Ok(interfaces) => (self.known, self.heard) = (interfaces, self.asked),
                // Its interfaces outlive it for a while, so their addresses are not the kernel's yet.
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

/// The address of an interface, at which a socket listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) device: String,
    pub(crate) address: SocketAddr,
}
