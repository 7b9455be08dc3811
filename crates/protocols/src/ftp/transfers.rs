//! The data connections that control connections announce (RFC 959, RFC 2428), with the commands that use them. The
//! oldest announcement is evicted first.

use super::{Command, Fact};
use crate::conversation::{Ear, How, Id};
use base::limits::FTP_EXPECTED;
use packet::Flow;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

/// A command that uses a data connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Its name, as it was sent; empty: it has not come yet.
    pub command: Vec<u8>,
    /// Its argument.
    pub file: Vec<u8>,
}

/// Hears the announcements of a control connection.
#[derive(Debug, Default)]
pub struct Announced {
    /// The last command.
    last: Transfer,
    /// What was announced, oldest first.
    pub list: Vec<(SocketAddr, Transfer)>,
}

impl Ear<Fact> for Announced {
    fn fact(&mut self, _id: Id, fact: Fact, value: &[u8]) {
        match fact {
            Fact::Command => self.last = Transfer { command: value.into(), file: Vec::new() },
            Fact::Argument => self.last.file = value.into(),
            _ => {}
        }
    }

    fn address(&mut self, _id: Id, address: SocketAddr) {
        let transfers = Command { name: &self.last.command, argument: &self.last.file }.transfers();
        let transfer = if transfers { self.last.clone() } else { Transfer::default() };
        self.list.push((address, transfer));
    }

    fn end(&mut self, _id: Id, _how: How) {}
}

/// Announced addresses that no connection used yet.
#[derive(Debug, Default)]
pub struct Transfers {
    expected: HashMap<SocketAddr, Transfer>,
    order: VecDeque<SocketAddr>,
}

impl Transfers {
    /// Expects a connection. Returns whether another one makes room.
    pub fn announce(&mut self, address: SocketAddr, transfer: Transfer) -> bool {
        if self.expected.insert(address, transfer).is_none() {
            self.order.push_back(address);
        }
        let is_full = self.order.len() > FTP_EXPECTED;
        if is_full && let Some(oldest) = self.order.pop_front() {
            self.expected.remove(&oldest);
        }
        is_full
    }

    /// Takes the announcement for a connection to the flow's target.
    pub fn take(&mut self, flow: &Flow) -> Option<Transfer> {
        if self.expected.is_empty() {
            return None;
        }
        let address = SocketAddr::new(flow.target, flow.target_port);
        let transfer = self.expected.remove(&address)?;
        self.order.retain(|known| *known != address);
        Some(transfer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    #[test]
    fn places_are_used_once_and_bounded() {
        let host = |number: u32| IpAddr::V4(Ipv4Addr::from(number));
        let at = |number: u32| SocketAddr::new(host(number), 1);
        let flow =
            |number: u32| Flow { source: host(9), target: host(number), source_port: 20, target_port: 1, protocol: 6 };
        let retr = Transfer { command: b"RETR".to_vec(), file: b"a".to_vec() };
        let mut transfers = Transfers::default();
        transfers.announce(at(1), Transfer::default());
        transfers.announce(at(1), retr.clone());
        assert_eq!((transfers.take(&flow(1)), transfers.take(&flow(1))), (Some(retr.clone()), None));
        for number in 0..=FTP_EXPECTED as u32 {
            assert_eq!(transfers.announce(at(number), retr.clone()), number == FTP_EXPECTED as u32);
        }
        assert_eq!((transfers.take(&flow(0)), transfers.take(&flow(1))), (None, Some(retr)));
    }
}
