//! Addresses of both families: in the program's form, and in the form of its flows.
//!
//! An IPv6 socket also reaches IPv4, unless it is for IPv6 only (RFC 3493 3.7, 5.3). The program sees IPv4 addresses in
//! IPv6 form there. A socket on `::` has a flow for each family, on the same port.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// How many ports are tried: a port that is free for one family may be taken for the other.
const TRIES: u32 = 16;

/// The address to which a program's socket was bound, or 0.0.0.0 or `::`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    /// In the program's form.
    pub(crate) address: SocketAddr,
    /// It only reaches IPv6.
    pub(crate) is_v6_only: bool,
}

impl Own {
    /// For a socket with the peer `peer` and without an address of its own.
    pub(crate) fn towards(peer: SocketAddr) -> Own {
        Own { address: any(peer), is_v6_only: false }
    }

    /// An address of a flow, in the program's form.
    pub(crate) fn form(&self, address: SocketAddr) -> SocketAddr {
        match (self.address, address.ip()) {
            (SocketAddr::V6(_), IpAddr::V4(ip)) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
            _ => address,
        }
    }

    /// Whether it is bound to all IPv6 addresses, and so to all IPv4 addresses.
    pub(crate) fn reaches_both(&self) -> bool {
        self.address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && !self.is_v6_only
    }

    /// Whether it is bound to all addresses of its family.
    pub(crate) fn is_any(&self) -> bool {
        self.address.ip().to_canonical().is_unspecified()
    }

    /// Whether it receives what comes to this address of an interface.
    pub(crate) fn covers(&self, address: IpAddr) -> bool {
        let own = self.address.ip().to_canonical();
        own == address || own.is_unspecified() && (own.is_ipv4() == address.is_ipv4() || self.reaches_both())
    }

    /// The addresses of its flows, as far as `have` knows them.
    pub(crate) fn behind(&self, have: &dyn Fn(IpAddr) -> bool) -> Vec<SocketAddr> {
        let own = plain(self.address);
        let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), own.port());
        [Some(own), self.reaches_both().then_some(v4)]
            .into_iter()
            .flatten()
            .filter(|address| have(address.ip()))
            .collect()
    }

    /// The address of a flow to `peer`. `None`: it cannot reach that peer.
    pub(crate) fn facing(&self, peer: SocketAddr) -> Option<SocketAddr> {
        let (own, peer) = (plain(self.address), plain(peer));
        match own.is_ipv4() == peer.is_ipv4() {
            true => Some(own),
            false if !self.reaches_both() => None,
            false => Some(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), own.port())),
        }
    }
}

/// An address in the form of flows.
pub(crate) fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The unspecified address and port, in the family and form of this one.
pub(crate) fn any(like: SocketAddr) -> SocketAddr {
    match like {
        SocketAddr::V4(_) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        SocketAddr::V6(_) => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
    }
}

/// Opens something at each address, all on the port that the first one gets. `local`: returns the address of an opened one.
///
/// # Errors
///
/// The first error. `AddrInUse`: no port was free for all.
pub(crate) fn at_one_port<T>(
    addresses: &[SocketAddr],
    open: &mut dyn FnMut(SocketAddr) -> io::Result<T>,
    local: &dyn Fn(&T) -> SocketAddr,
) -> io::Result<Vec<T>> {
    let (first, others) = addresses.split_first().ok_or(ErrorKind::AddrNotAvailable)?;
    let mut tries = if first.port() == 0 && !others.is_empty() { TRIES } else { 1 };
    loop {
        tries -= 1;
        let mut opened = vec![open(*first)?];
        let port = opened.first().map_or(0, |first| local(first).port());
        let rest: io::Result<Vec<T>> = others.iter().map(|address| open(SocketAddr::new(address.ip(), port))).collect();
        match rest {
            Ok(rest) => {
                opened.extend(rest);
                return Ok(opened);
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse && tries > 0 => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(text: &str, is_v6_only: bool) -> Own {
        Own { address: text.parse().unwrap(), is_v6_only }
    }

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn all_of_ipv6_is_all_of_ipv4_too_unless_the_program_or_the_interfaces_say_no() {
        let check = |text: &str, is_v6_only: bool, have: &[&str], expected: &[&str]| {
            let have: Vec<IpAddr> = have.iter().map(|text| text.parse().unwrap()).collect();
            let behind = own(text, is_v6_only).behind(&|address| have.contains(&address));
            assert_eq!(behind, addresses(expected), "{text} {is_v6_only}");
        };
        let both = ["::", "0.0.0.0"];
        check("[::]:80", false, &both, &["[::]:80", "0.0.0.0:80"]);
        check("[::]:80", true, &both, &["[::]:80"]);
        check("[::]:80", false, &both[..1], &["[::]:80"]);
        check("[::]:80", false, &both[1..], &["0.0.0.0:80"]);
        check("[::]:80", true, &both[1..], &[]);
        check("0.0.0.0:80", false, &both, &["0.0.0.0:80"]);
        check("[::ffff:0.0.0.0]:80", false, &both, &["0.0.0.0:80"]);
        check("[fd00::1]:80", false, &["fd00::1", "0.0.0.0"], &["[fd00::1]:80"]);
        check("[::ffff:10.0.0.1]:80", false, &["10.0.0.1"], &["10.0.0.1:80"]);
        check("[fd00::1]:80", false, &both, &[]);
    }

    #[test]
    fn a_flow_faces_its_peer_with_an_address_of_the_same_family() {
        let check = |text: &str, is_v6_only: bool, peer: &str, expected: Option<&str>| {
            let facing = own(text, is_v6_only).facing(peer.parse().unwrap());
            assert_eq!(facing, expected.map(|text| text.parse().unwrap()), "{text} {is_v6_only} {peer}");
        };
        check("[::]:5", false, "[fd00::2]:7", Some("[::]:5"));
        check("[::]:5", false, "[::ffff:10.0.0.2]:7", Some("0.0.0.0:5"));
        check("[::]:5", true, "[::ffff:10.0.0.2]:7", None);
        check("[fd00::1]:5", false, "[::ffff:10.0.0.2]:7", None);
        check("[::ffff:10.0.0.1]:5", false, "[::ffff:10.0.0.2]:7", Some("10.0.0.1:5"));
        check("0.0.0.0:5", false, "10.0.0.2:7", Some("0.0.0.0:5"));
        check("0.0.0.0:5", false, "[fd00::2]:7", None);
        for (text, flow, expected) in [
            ("[::]:5", "10.0.0.2:7", "[::ffff:10.0.0.2]:7"),
            ("[::]:5", "[fd00::2]:7", "[fd00::2]:7"),
            ("0.0.0.0:5", "10.0.0.2:7", "10.0.0.2:7"),
        ] {
            assert_eq!(own(text, false).form(flow.parse().unwrap()).to_string(), expected);
        }
    }

    #[test]
    fn both_families_get_one_port() {
        let check = |wanted: &[&str], taken: &[&str], expected: Result<&[&str], ErrorKind>| {
            let (taken, mut next) = (addresses(taken), 0);
            let mut open = |address: SocketAddr| {
                let port = if address.port() == 0 { 1000 + next } else { address.port() };
                next += u16::from(address.port() == 0);
                let address = SocketAddr::new(address.ip(), port);
                if taken.contains(&address) { Err(ErrorKind::AddrInUse.into()) } else { Ok(address) }
            };
            let opened = at_one_port(&addresses(wanted), &mut open, &|address| *address);
            assert_eq!(opened.map_err(|error| error.kind()), expected.map(addresses), "{wanted:?}");
        };
        check(&["[::]:80", "0.0.0.0:80"], &[], Ok(&["[::]:80", "0.0.0.0:80"]));
        check(&["[::]:80", "0.0.0.0:80"], &["0.0.0.0:80"], Err(ErrorKind::AddrInUse));
        check(&["[::]:0", "0.0.0.0:0"], &["0.0.0.0:1000"], Ok(&["[::]:1001", "0.0.0.0:1001"]));
        check(&["0.0.0.0:0"], &["0.0.0.0:1000"], Err(ErrorKind::AddrInUse));
        check(&[], &[], Err(ErrorKind::AddrNotAvailable));
        let all: Vec<String> = (0..TRIES as u16).map(|port| format!("0.0.0.0:{}", 1000 + port)).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        check(&["[::]:0", "0.0.0.0:0"], &all, Err(ErrorKind::AddrInUse));
    }
}
