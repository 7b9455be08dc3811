//! Where the data connections of FTP go that control connections announced (RFC 959, RFC 2428), and the commands that use them.
//! What was announced first makes room.

use super::ftp::Announced;
use base::limits::FTP_EXPECTED;
use packet::Flow;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// A place that a data connection goes to.
pub(super) type Place = (IpAddr, u16);

/// What a data connection is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Transfer {
    /// The command in capitals; empty where none came yet.
    pub command: Vec<u8>,
    pub file: Vec<u8>,
}

/// Places that are announced and not used yet.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    expected: HashMap<Place, Transfer>,
    order: VecDeque<Place>,
}

impl Transfers {
    /// Takes what a control connection said.
    pub fn announce(&mut self, Announced { place, transfer }: Announced) {
        if self.expected.insert(place, transfer).is_none() {
            self.order.push_back(place);
        }
        while self.order.len() > FTP_EXPECTED {
            if let Some(oldest) = self.order.pop_front() {
                self.expected.remove(&oldest);
            }
        }
    }

    /// What a connection is for whose client this flow names, where it was announced.
    pub fn take(&mut self, flow: &Flow) -> Option<Transfer> {
        if self.expected.is_empty() {
            return None;
        }
        let place = (flow.target, flow.target_port);
        let transfer = self.expected.remove(&place)?;
        self.order.retain(|known| *known != place);
        Some(transfer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn places_are_used_once_and_bounded() {
        let host = |number: u32| IpAddr::V4(Ipv4Addr::from(number));
        let flow =
            |number: u32| Flow { source: host(9), target: host(number), source_port: 20, target_port: 1, protocol: 6 };
        let retr = Transfer { command: b"RETR".to_vec(), file: b"a".to_vec() };
        let mut transfers = Transfers::default();
        transfers.announce(Announced { place: (host(1), 1), transfer: Transfer::default() });
        transfers.announce(Announced { place: (host(1), 1), transfer: retr.clone() });
        assert_eq!((transfers.take(&flow(1)), transfers.take(&flow(1))), (Some(retr.clone()), None));
        for number in 0..=FTP_EXPECTED as u32 {
            transfers.announce(Announced { place: (host(number), 1), transfer: retr.clone() });
        }
        assert_eq!((transfers.take(&flow(0)), transfers.take(&flow(1))), (None, Some(retr)));
    }
}
