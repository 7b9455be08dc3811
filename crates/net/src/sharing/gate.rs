//! Before a flow on a shared device is opened, in its client's thread: the host's route and address for it, and its port, which
//! the port keeper holds from then on.

use crate::error::{NetError, NetErrorKind};
use crate::ports;
use crate::routes::{Hop, Routes};
use crate::sharing::keeper::{PortKeeper, Reservation};
use driver::netlink::Netlink;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};

/// What clients' threads need of a shared device.
pub(crate) struct Gate {
    device: String,
    index: u32,
    keeper: Arc<PortKeeper>,
    netlink: Mutex<Netlink>,
}

impl Gate {
    /// In this thread's network namespace.
    pub(crate) fn new(device: &str, index: u32, keeper: Arc<PortKeeper>) -> Result<Gate, NetError> {
        let netlink = Netlink::route(0).map_err(|error| NetError::system("ask the host for routes", error))?;
        Ok(Gate { device: device.into(), index, keeper, netlink: Mutex::new(netlink) })
    }

    /// Takes the port of a flow or listener, and gives address and port as they will be. A flow that the interface will refuse
    /// anyway takes none.
    pub(crate) fn admit(
        &self,
        protocol: u8,
        mut local: SocketAddrV4,
        remote: Option<SocketAddrV4>,
        routes: &Routes,
        user: u32,
    ) -> Result<(SocketAddrV4, Option<Arc<Reservation>>), NetError> {
        if let Some(remote) = remote {
            let source = match routes.hop(*remote.ip()) {
                Hop::Refused | Hop::None => return Ok((local, None)),
                Hop::Own | Hop::Broadcast => None,
                Hop::Neighbour(to) => self.source_to(to)?,
            };
            if local.ip().is_unspecified() {
                let source = source.filter(|source| routes.is_own(*source));
                local.set_ip(source.unwrap_or_else(|| routes.source(Some(*remote.ip())).0));
            }
        } else if local.ip().is_unspecified() {
            local.set_ip(routes.source(None).0);
        }
        if !routes.is_own(*local.ip()) {
            return Ok((local, None));
        }
        ports::check_user(local.port(), user)?;
        let reservation = self.keeper.take(protocol, local)?;
        Ok((reservation.local, Some(reservation)))
    }

    /// Holds the port of a flow that is there already.
    pub(crate) fn hold(&self, protocol: u8, local: SocketAddrV4) -> Result<Arc<Reservation>, NetError> {
        self.keeper.take(protocol, local)
    }

    /// The address that the host sends from to this one, which it must reach by this device.
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
