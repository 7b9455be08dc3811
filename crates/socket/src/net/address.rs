//! Addresses as `std::net` takes them.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// Resolves a text or value.
pub(super) fn of(addresses: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    let addresses: Vec<SocketAddr> = addresses.to_socket_addrs()?.collect();
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses"));
    }
    Ok(addresses)
}

/// Tries the addresses in order until one succeeds. Returns the last error otherwise.
pub(super) fn try_each<T>(
    addresses: impl ToSocketAddrs,
    attempt: &mut dyn FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = Err(io::ErrorKind::InvalidInput.into());
    for address in of(addresses)? {
        last = attempt(plain(address));
        if last.is_ok() {
            return last;
        }
    }
    last
}

/// The address as flows use it: IPv4-mapped ones (RFC 4291 2.5.5.2) become IPv4, and the scope is dropped.
pub(crate) fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_tried_in_its_plain_form() {
        let [first, second, mapped, scoped] =
            ["10.0.0.1:1", "[fd00::1]:2", "[::ffff:10.0.0.2]:3", "[fe80::1%3]:4"].map(|text| text.parse().unwrap());
        let mut tried = Vec::new();
        let mut attempt = |address: SocketAddr| {
            tried.push(address.to_string());
            if address.port() == 2 { Ok(()) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
        };
        assert!(try_each(&[first, mapped, scoped, second, first][..], &mut attempt).is_ok());
        assert_eq!(try_each(&[first][..], &mut attempt).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(try_each(&[][..], &mut attempt).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(tried, ["10.0.0.1:1", "10.0.0.2:3", "[fe80::1]:4", "[fd00::1]:2", "10.0.0.1:1"]);
    }
}
