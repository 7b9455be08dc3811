//! Sets of addresses and networks as requests write them: `10.0.0.1`, `10.0.0.0/8`, `"192.0.2.0/24,2001:db8::/32"`.

use filter::prelude::*;
use program::predicate::{Addresses, Predicate};
use std::net::IpAddr;

/// Networks of both IP versions. A single address is a network with all bits set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Networks {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

/// First and last address of each range, sorted, without overlap.
type Ranges<T> = Vec<(T, T)>;

impl Networks {
    /// Reads single addresses.
    pub fn of_addresses(text: &str) -> Result<Networks, ParamError> {
        let one = |part: &str| match part.parse::<IpAddr>() {
            Ok(address) => Ok((address, bits_of(address))),
            Err(_) if part.contains('/') => {
                Err(wrong(format!("`{part}` is a network, not an address")).with_help(format!("write: net {part}")))
            }
            Err(_) => Err(not_an_address(part)),
        };
        Networks::parse(text, one)
    }

    /// Reads networks, `address/bits`. An address without bits means itself only.
    pub fn of_networks(text: &str) -> Result<Networks, ParamError> {
        Networks::parse(text, network)
    }

    fn parse(text: &str, one: impl Fn(&str) -> Result<(IpAddr, u8), ParamError>) -> Result<Networks, ParamError> {
        let mut networks = Networks::default();
        for part in text.split(',') {
            // `network` has checked that the address is the first of its network.
            match one(part.trim())? {
                (IpAddr::V4(first), bits) => {
                    let first = first.to_bits();
                    networks.v4.push((first, first | u32::MAX.checked_shr(bits.into()).unwrap_or(0)));
                }
                (IpAddr::V6(first), bits) => {
                    let first = first.to_bits();
                    networks.v6.push((first, first | u128::MAX.checked_shr(bits.into()).unwrap_or(0)));
                }
            }
        }
        without_overlap(&mut networks.v4);
        without_overlap(&mut networks.v6);
        Ok(networks)
    }

    /// The pre-filter for packets from or to one of the networks.
    pub fn pre_filter(&self) -> Predicate {
        Predicate::Addresses(Addresses { v4: self.v4.clone(), v6: self.v6.clone() })
    }

    #[inline]
    pub fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => among(&self.v4, address.to_bits()),
            IpAddr::V6(address) => among(&self.v6, address.to_bits()),
        }
    }
}

/// Reads a network, `address/bits`; an address alone has all its bits.
pub(crate) fn network(text: &str) -> Result<(IpAddr, u8), ParamError> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address = address.parse::<IpAddr>().map_err(|_| not_an_address(address))?;
    let most = bits_of(address);
    let bits = match bits {
        None => most,
        Some(bits) => bits
            .parse()
            .ok()
            .filter(|bits| *bits <= most)
            .ok_or_else(|| wrong(format!("`/{bits}` is not a prefix length")).with_help(format!("0 to {most}")))?,
    };
    let first = first_of(address, bits);
    if first != address {
        return Err(wrong(format!("`{text}` has bits set behind its prefix"))
            .with_help(format!("the network is {first}/{bits}")));
    }
    Ok((address, bits))
}

/// Sorts the ranges and drops those inside another. Two networks are nested or disjoint, so no range overlaps partly.
fn without_overlap<T: Ord + Copy>(ranges: &mut Ranges<T>) {
    ranges.sort_unstable_by(|one, other| one.0.cmp(&other.0).then(other.1.cmp(&one.1)));
    ranges.dedup_by(|next, kept| next.0 <= kept.1);
}

#[inline]
fn among<T: Ord + Copy>(ranges: &[(T, T)], address: T) -> bool {
    match *ranges {
        [] => false,
        [(first, last)] => first <= address && address <= last,
        _ => {
            let after = ranges.partition_point(|(first, _)| *first <= address);
            after.checked_sub(1).is_some_and(|at| address <= ranges[at].1)
        }
    }
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The first address of the network with prefix length `bits` that contains `address`.
pub(crate) fn first_of(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4((address.to_bits() & !u32::MAX.checked_shr(bits.into()).unwrap_or(0)).into()),
        IpAddr::V6(address) => {
            IpAddr::V6((address.to_bits() & !u128::MAX.checked_shr(bits.into()).unwrap_or(0)).into())
        }
    }
}

fn not_an_address(text: &str) -> ParamError {
    wrong(format!("`{text}` is not an address"))
        .with_help("an IPv4 or IPv6 address such as 192.0.2.1 or 2001:db8::1; names are not looked up")
}

fn wrong(message: String) -> ParamError {
    ParamError::of_request(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members() {
        let check = |text: &str, inside: &[&str], outside: &[&str]| {
            let networks = Networks::of_networks(text).unwrap();
            let has = |address: &&str| networks.has(address.parse().unwrap());
            assert!(inside.iter().all(has), "{text}");
            assert!(!outside.iter().any(has), "{text}");
        };
        check("10.0.0.0/8", &["10.0.0.0", "10.255.255.255"], &["9.255.255.255", "11.0.0.0", "::a00:1"]);
        check("192.0.2.1", &["192.0.2.1"], &["192.0.2.0", "192.0.2.2"]);
        check("0.0.0.0/0", &["0.0.0.0", "255.255.255.255"], &["::"]);
        check("::/0", &["::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"], &["0.0.0.0"]);
        check("2001:db8::/32", &["2001:db8::1", "2001:db8:ffff::"], &["2001:db9::", "2001:db7:ffff::"]);
        check(
            "10.1.0.0/16, 10.0.0.0/8,192.168.0.0/16,::1",
            &["10.1.2.3", "10.2.0.0", "192.168.9.9", "::1"],
            &["11.0.0.0", "192.167.255.255", "::2"],
        );
    }

    #[test]
    fn refusals() {
        let check = |outcome: Result<Networks, ParamError>, message: &str, help: &str| {
            let error = outcome.unwrap_err();
            assert_eq!(error.message, message);
            assert!(error.help.as_deref().unwrap_or_default().contains(help), "{error:?}");
        };
        check(Networks::of_addresses("999.1.1.1"), "`999.1.1.1` is not an address", "192.0.2.1");
        check(Networks::of_addresses(""), "`` is not an address", "");
        check(Networks::of_addresses("10.0.0.0/8"), "`10.0.0.0/8` is a network, not an address", "net 10.0.0.0/8");
        check(Networks::of_networks("10.0.0.0/33"), "`/33` is not a prefix length", "0 to 32");
        check(Networks::of_networks("::/129"), "`/129` is not a prefix length", "0 to 128");
        check(Networks::of_networks("10.1.0.0/8"), "`10.1.0.0/8` has bits set behind its prefix", "10.0.0.0/8");
        check(Networks::of_networks("10/8"), "`10` is not an address", "");
    }
}
