//! FTP data connections announced by control connections (RFC 959, RFC 2428), with the commands that use them. The
//! oldest announcement is evicted first.

use super::ftp::Announced;
use base::limits::FTP_EXPECTED;
use packet::Flow;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// Address and port of a data connection.
pub(super) type Place = (IpAddr, u16);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Transfer {
    /// The command in capitals; empty: not seen yet.
    pub command: Vec<u8>,
    pub file: Vec<u8>,
}

/// Announced addresses not used yet.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    expected: HashMap<Place, Transfer>,
    order: VecDeque<Place>,
}

impl Transfers {
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

    /// Takes the announcement for a connection to the flow's target.
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
