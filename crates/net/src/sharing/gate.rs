//! The checks before a flow on a shared device is opened, on its client's thread: the host's route and address for it,
//! and its port, which the port keeper then holds.

use crate::error::{NetError, NetErrorKind};
use crate::ports;
use crate::routes::{Hop, Routes};
use crate::sharing::keeper::{PortKeeper, Reservation};
use driver::netlink::Netlink;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

/// The parts of a shared device that clients' threads need.
pub(crate) struct Gate {
    device: String,
    index: u32,
    keeper: Arc<PortKeeper>,
    netlink: Mutex<Netlink>,
}

impl Gate {
    /// For this thread's network namespace.
    pub(crate) fn new(device: &str, index: u32, keeper: Arc<PortKeeper>) -> Result<Gate, NetError> {
        let netlink = Netlink::route(0).map_err(|error| NetError::system("ask the host for routes", error))?;
        Ok(Gate { device: device.into(), index, keeper, netlink: Mutex::new(netlink) })
    }

    /// Takes a flow's or listener's port, and returns address and port. A flow that will be refused takes none.
    pub(crate) fn admit(
        &self,
        protocol: u8,
        mut local: SocketAddr,
        remote: Option<SocketAddr>,
        routes: &Routes,
        user: u32,
    ) -> Result<(SocketAddr, Option<Arc<Reservation>>), NetError> {
        if local.is_ipv6() || remote.is_some_and(|remote| remote.is_ipv6()) {
            return Err(no_ipv6(&self.device));
        }
        if let Some(remote) = remote {
            let source = match routes.hop(remote.ip()) {
                Hop::Refused | Hop::None => return Ok((local, None)),
                Hop::Own | Hop::Broadcast => None,
                Hop::Neighbour(IpAddr::V4(to)) => self.source_to(to)?.map(IpAddr::V4),
                Hop::Neighbour(IpAddr::V6(_)) => None,
            };
            if local.ip().is_unspecified() {
                let source = source.filter(|source| routes.is_own(*source)).or_else(|| routes.source(remote.ip()));
                local.set_ip(source.unwrap_or(local.ip()));
            }
        } else if local.ip().is_unspecified() {
            local.set_ip(routes.first(local.ip()).unwrap_or(local.ip()));
        }
        let SocketAddr::V4(own) = local else { return Ok((local, None)) };
        if !routes.is_own(local.ip()) {
            return Ok((local, None));
        }
        ports::check_user(local.port(), user)?;
        let reservation = self.keeper.take(protocol, own)?;
        Ok((reservation.local.into(), Some(reservation)))
    }

    /// Holds the port of an existing flow.
    pub(crate) fn hold(&self, protocol: u8, local: SocketAddr) -> Result<Arc<Reservation>, NetError> {
        match local {
            SocketAddr::V4(local) => self.keeper.take(protocol, local),
            SocketAddr::V6(_) => Err(no_ipv6(&self.device)),
        }
    }

    /// The address from which the host sends to this one. The host must reach it by this device.
    fn source_to(&self, to: Ipv4Addr) -> Result<Option<Ipv4Addr>, NetError> {
        let mut netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
        let route = netlink.route_to(to).map_err(|error| NetError::system("ask the host for a route", error))?;
        match route {
            Some(route) if route.is_unicast && route.device == self.index => Ok(route.source),
            _ => {
                let text = format!("the host does not reach {to} by `{}`; look at: ip route get {to}", self.device);
                Err(NetError::new(NetErrorKind::Absent, text))
            }
        }
    }
}

/// Why a shared device has no IPv6 flows.
pub(crate) fn no_ipv6(device: &str) -> NetError {
    let text = format!(
        "`{device}` is shared with the host, and a shared device has flows of IPv4 only; IPv6 stays the host's: use its sockets, or a \
         device that Streamline has alone"
    );
    NetError::new(NetErrorKind::Request, text)
}
