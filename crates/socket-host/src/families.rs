//! Addresses of both families: those that a program has, and those that its flows have.
//!
//! A socket of IPv6 reaches IPv4, too, unless it is one of IPv6 alone (RFC 3493 3.7, 5.3): the program has the addresses of IPv4
//! written as ones of IPv6 there, and behind `::` is one flow for each family, on the same port.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Ports that are tried, where one that is free for one family may be taken for the other.
const TRIES: u32 = 16;

/// What a program's socket was bound to, or 0.0.0.0 or `::`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    /// As the program has it.
    pub(crate) address: SocketAddr,
    /// It reaches nothing but IPv6.
    pub(crate) is_v6_only: bool,
}

impl Own {
    /// That of a socket which has no address of its own and whose other side is `peer`.
    pub(crate) fn towards(peer: SocketAddr) -> Own {
        Own { address: any(peer), is_v6_only: false }
    }

    /// An address of a flow as the program has it.
    pub(crate) fn form(&self, address: SocketAddr) -> SocketAddr {
        match (self.address, address.ip()) {
            (SocketAddr::V6(_), IpAddr::V4(ip)) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
            _ => address,
        }
    }

    /// Is it bound to all of IPv6, and with that to all of IPv4?
    pub(crate) fn reaches_both(&self) -> bool {
        self.address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && !self.is_v6_only
    }

    /// The addresses of the flows behind it, of those that `have` knows.
    pub(crate) fn behind(&self, have: &dyn Fn(IpAddr) -> bool) -> Vec<SocketAddr> {
        let own = plain(self.address);
        let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), own.port());
        [Some(own), self.reaches_both().then_some(v4)]
            .into_iter()
            .flatten()
            .filter(|address| have(address.ip()))
            .collect()
    }

    /// The address of a flow to `peer`; `None`: it reaches none there.
    pub(crate) fn facing(&self, peer: SocketAddr) -> Option<SocketAddr> {
        let (own, peer) = (plain(self.address), plain(peer));
        match own.is_ipv4() == peer.is_ipv4() {
            true => Some(own),
            false if !self.reaches_both() => None,
            false => Some(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), own.port())),
        }
    }
}

/// An address as flows have it.
pub(crate) fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Any address and port, of the family that this one is written in.
pub(crate) fn any(like: SocketAddr) -> SocketAddr {
    match like {
        SocketAddr::V4(_) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        SocketAddr::V6(_) => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
    }
}

/// Opens something at each address, all on the port that the first one gets. `local`: the address that something got.
///
/// # Errors
///
/// The first error; `AddrInUse` where no port was free for all.
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
