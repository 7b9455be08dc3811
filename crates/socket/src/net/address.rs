//! Addresses as `std::net` takes them.

use std::io;
use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs};

/// The addresses that a text or value stands for.
pub(super) fn of(addresses: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    let addresses: Vec<SocketAddr> = addresses.to_socket_addrs()?.collect();
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses"));
    }
    Ok(addresses)
}

/// Tries one address after the other until one succeeds; else the last error.
pub(super) fn try_each<T>(
    addresses: impl ToSocketAddrs,
    attempt: &mut dyn FnMut(SocketAddrV4) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = Err(io::ErrorKind::InvalidInput.into());
    for address in of(addresses)? {
        last = v4(address).and_then(&mut *attempt);
        if last.is_ok() {
            return last;
        }
    }
    last
}

/// The address, if it is one of IPv4.
pub(super) fn v4(address: SocketAddr) -> io::Result<SocketAddrV4> {
    match address {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(address) => {
            let text = format!("{address} is an address of IPv6; flows have IPv4 only");
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_tried_and_ipv6_is_refused_with_a_word() {
        let [first, second, six] = ["10.0.0.1:1", "10.0.0.2:2", "[::1]:3"].map(|text| text.parse().unwrap());
        let mut tried = Vec::new();
        let mut attempt = |address: SocketAddrV4| {
            tried.push(address.port());
            if address.port() == 2 { Ok(()) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
        };
        assert!(try_each(&[first, six, second, first][..], &mut attempt).is_ok());
        let refused = try_each(&[second, six][1..], &mut attempt).unwrap_err();
        assert_eq!((refused.kind(), refused.to_string().contains("[::1]:3")), (io::ErrorKind::Unsupported, true));
        let refused = try_each(&[six, first][..], &mut attempt).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(try_each(&[][..], &mut attempt).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(tried, [1, 2, 1]);
    }
}
