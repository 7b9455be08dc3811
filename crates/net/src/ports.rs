//! Local ports: the ports in use, their users, and free ports for flows that do not choose one.

use crate::error::{NetError, NetErrorKind};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};

/// Ports for flows that do not choose one (RFC 6335 6).
const DYNAMIC: std::ops::RangeInclusive<u16> = 49152..=65535;

/// Ports below this are for user 0.
const FREE_FROM: u16 = 1024;

/// Whether this user may have this port. 0 stands for any free port.
pub(crate) fn check_user(port: u16, user: u32) -> Result<(), NetError> {
    if port == 0 || port >= FREE_FROM || user == 0 {
        return Ok(());
    }
    let text = format!("port {port} is for root; choose one from {FREE_FROM} on, or 0 for any");
    Err(NetError::new(NetErrorKind::Denied, text))
}

#[derive(Debug)]
struct Use {
    user: u32,
    flows: usize,
}

/// Taken ports, by protocol and address.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    taken: HashMap<(u8, SocketAddr), Use>,
    random: RandomState,
    draws: u64,
}

impl Ports {
    /// Reserves `local` for a flow of this user; port 0 stands for any free port. The caller checks that flows on one
    /// port have different remotes. `may`: whether a free port may be chosen.
    pub(crate) fn take(
        &mut self,
        protocol: u8,
        local: SocketAddr,
        user: u32,
        may: impl Fn(SocketAddr) -> bool,
    ) -> Result<SocketAddr, NetError> {
        let local = match local.port() {
            0 => self.free(protocol, local.ip(), may)?,
            _ => local,
        };
        let port = local.port();
        check_user(port, user)?;
        let found = self.taken.entry((protocol, local)).or_insert(Use { user, flows: 0 });
        if found.user != user {
            let text = format!("address in use: port {port} of {} belongs to another user; choose another", local.ip());
            return Err(NetError::new(NetErrorKind::InUse, text));
        }
        found.flows += 1;
        Ok(local)
    }

    /// Releases a flow's port.
    pub(crate) fn release(&mut self, protocol: u8, local: SocketAddr) {
        if let Some(found) = self.taken.get_mut(&(protocol, local)) {
            found.flows -= 1;
            if found.flows == 0 {
                self.taken.remove(&(protocol, local));
            }
        }
    }

    /// A free port, searched from a random one on (RFC 6056 3.3.1).
    fn free(
        &mut self,
        protocol: u8,
        address: IpAddr,
        may: impl Fn(SocketAddr) -> bool,
    ) -> Result<SocketAddr, NetError> {
        // The hasher's keys are random: without them an attacker cannot compute the next output from earlier ones.
        self.draws += 1;
        let count = u64::from(DYNAMIC.end() - DYNAMIC.start()) + 1;
        let start = self.random.hash_one(self.draws) % count;
        let port = |at: u64| SocketAddr::new(address, DYNAMIC.start() + ((start + at) % count) as u16);
        let found = (0..count).map(port).find(|local| !self.taken.contains_key(&(protocol, *local)) && may(*local));
        found.ok_or_else(|| {
            let text = format!("all {count} dynamic ports of {address} are in use; close flows, or name a port");
            NetError::new(NetErrorKind::Full, text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        ([10, 0, 0, 1], port).into()
    }

    #[test]
    fn a_port_belongs_to_a_user_until_its_last_flow_ends() {
        let mut ports = Ports::default();
        assert_eq!(ports.take(17, at(4000), 5, |_| true), Ok(at(4000)));
        assert_eq!(ports.take(17, at(4000), 5, |_| true), Ok(at(4000)));
        let error = ports.take(17, at(4000), 6, |_| true).expect_err("it is taken");
        assert_eq!(error.kind, NetErrorKind::InUse);
        assert!(error.text.contains("address in use: port 4000"), "{error}");
        let six = ([0xfd00, 0, 0, 0, 0, 0, 0, 1], 4000).into();
        for (protocol, other) in [(6, at(4000)), (17, six)] {
            assert_eq!(ports.take(protocol, other, 6, |_| true), Ok(other), "another protocol, another address");
        }
        ports.release(17, at(4000));
        assert!(ports.take(17, at(4000), 6, |_| true).is_err());
        ports.release(17, at(4000));
        assert_eq!(ports.take(17, at(4000), 6, |_| true), Ok(at(4000)));
        assert_eq!(ports.take(17, at(1023), 6, |_| true).expect_err("not root").kind, NetErrorKind::Denied);
        assert_eq!(ports.take(17, at(1023), 0, |_| true), Ok(at(1023)));
    }

    #[test]
    fn free_ports_are_all_found_in_an_order_that_differs() {
        let mut ports = Ports::default();
        let mut drawn: Vec<u16> =
            (0..16384).map(|_| ports.take(17, at(0), 1, |_| true).expect("there are some").port()).collect();
        let rising = drawn.windows(2).filter(|two| two[1] == two[0].wrapping_add(1)).count();
        assert!(rising < drawn.len() * 9 / 10, "{rising} neighbours in a row");
        assert_eq!(ports.take(17, at(0), 1, |_| true).expect_err("all taken").kind, NetErrorKind::Full);
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!((drawn.len(), drawn[0], drawn[16383]), (16384, 49152, 65535));
    }
}
