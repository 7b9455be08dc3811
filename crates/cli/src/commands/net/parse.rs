//! Parses addresses and rates of the command line. Each error names the wrong part and the right form.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A time in seconds: `20`, `0.5`.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "a number of seconds, 0 or more".into())
}

/// An address and its prefix length in bits: `10.0.0.2/24`, `fd00::2/64`.
pub(super) fn prefix(text: &str) -> Result<(IpAddr, u8), String> {
    let usual = |address: IpAddr| if address.is_ipv4() { 24 } else { 64 };
    let Some((address, bits)) = text.split_once('/') else {
        let bits = usual(self::address(text)?);
        return Err(format!("the prefix is missing: `{text}/{bits}` says that the first {bits} bits name the network"));
    };
    let address = self::address(address)?;
    let most = flow::bits(address);
    let bits = bits.parse().ok().filter(|bits| *bits <= most && is_number(text.rsplit('/').next().unwrap_or_default()));
    let bits = bits.ok_or_else(|| format!("a prefix has 0 to {most} bits, as in `{address}/{}`", usual(address)))?;
    Ok((address, bits))
}

const NO_ZONE: &str = "an address has no zone here: the interface says it";

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Address and port of a peer: `10.0.0.1:7`, `[fd00::1]:7`.
pub(super) fn endpoint(text: &str) -> Result<SocketAddr, String> {
    let endpoint = text.parse::<SocketAddr>().ok().filter(|_| !text.contains('%'));
    if let Some(endpoint) = endpoint {
        return Ok(endpoint);
    }
    Err(match text.parse::<IpAddr>() {
        // `fd00::1:7` is also an address.
        Ok(IpAddr::V6(address)) => {
            format!("an address of IPv6 stands in brackets, and the port behind it: [{address}]:7")
        }
        Ok(IpAddr::V4(address)) => format!("the port is missing, as in {address}:7"),
        Err(_) if text.contains('%') => NO_ZONE.into(),
        Err(_) => "an address and a port are written as 10.0.0.1:7 or [fd00::1]:7".into(),
    })
}

pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if text.contains('%') {
        return Err(NO_ZONE.into());
    }
    if text.contains(':') {
        return Err("an address of IPv6 is up to 8 groups of 4 hexadecimal digits, as fd00::2".into());
    }
    let parts: Vec<&str> = text.split('.').collect();
    // No part may begin with 0, as in Rust's library and the RFCs: some programs read such a part as octal.
    let is_part = |part: &str| is_number(part) && part.parse::<u8>().is_ok() && (part == "0" || !part.starts_with('0'));
    Err(match parts.iter().find(|part| !is_part(part)) {
        Some(part) if is_number(part) && part.starts_with('0') => {
            format!("`{part}` begins with 0, and could be meant as octal; an address is 4 numbers, as 10.0.0.2")
        }
        Some(part) if is_number(part) => format!("`{part}` is more than 255; an address is 4 numbers from 0 to 255"),
        Some(part) => format!("`{part}` is no number; an address is 4 numbers from 0 to 255, as 10.0.0.2"),
        None => format!("an address is 4 numbers, as 10.0.0.2; here are {}", parts.len()),
    })
}

/// Letters that multiply a rate.
const FACTORS: [(char, u64); 4] = [('k', 1_000), ('M', 1_000_000), ('G', 1_000_000_000), ('T', 1_000_000_000_000)];

/// Bits a second: `100M`, `2.5M`. Units are decimal, as those of links are.
pub(super) fn rate(text: &str) -> Result<u64, String> {
    let wrong = || "a rate is a number of bits a second, as 100M, 2.5G or 64000".to_string();
    let found = FACTORS.iter().find(|(letter, _)| text.ends_with(*letter));
    let (number, factor) = found.map_or((text, 1), |(letter, factor)| (text.trim_end_matches(*letter), *factor));
    if found.is_some() && number.len() + 1 != text.len() {
        return Err(wrong());
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if !is_number(whole) || !is_number(fraction) {
        return Err(wrong());
    }
    let too_much = |_| "that is more than 64 bits hold".to_string();
    let whole: u128 = whole.parse().map_err(too_much)?;
    // A rate is a whole number of bits a second, so the digits of the fraction beyond that must be 0.
    let fraction = fraction.trim_end_matches('0');
    let scale = 10u64.checked_pow(fraction.len() as u32).filter(|scale| factor.is_multiple_of(*scale));
    let Some(scale) = scale else { return Err("that is no whole number of bits a second".into()) };
    let part = fraction.parse::<u64>().unwrap_or(0) * (factor / scale);
    let bits = whole.checked_mul(factor.into()).and_then(|bits| bits.checked_add(part.into()));
    match bits.and_then(|bits| u64::try_from(bits).ok()) {
        Some(0) => Err("a rate of 0 carries nothing; without --rate there is no limit".into()),
        Some(bits) => Ok(bits),
        None => Err("that is more than 64 bits hold".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_or_told_what_is_wrong() {
        let (address, six) = (IpAddr::from([10, 0, 0, 2]), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]));
        for (text, expected) in [
            ("10.0.0.2/24", Ok((address, 24))),
            ("10.0.0.2/0", Ok((address, 0))),
            ("10.0.0.2/32", Ok((address, 32))),
            ("10.0.0.2", Err("the prefix is missing: `10.0.0.2/24`")),
            ("10.0.0.2/33", Err("a prefix has 0 to 32 bits, as in `10.0.0.2/24`")),
            ("10.0.0.2/", Err("a prefix has 0 to 32 bits")),
            ("10.0.0.2/+8", Err("a prefix has 0 to 32 bits")),
            ("10.0.0.2/24/8", Err("a prefix has 0 to 32 bits")),
            ("10.0.0.300/24", Err("`300` is more than 255")),
            ("10.0.0.300", Err("`300` is more than 255")),
            ("10.0.0/24", Err("an address is 4 numbers, as 10.0.0.2; here are 3")),
            ("10.0.0.0.2/24", Err("here are 5")),
            ("10.0.x.2/24", Err("`x` is no number")),
            ("10.0..2/24", Err("`` is no number")),
            ("10.0.0.010/24", Err("`010` begins with 0")),
            ("/24", Err("`` is no number")),
            ("", Err("`` is no number")),
            ("2001:db8::1/64", Ok((six, 64))),
            ("2001:DB8:0::1/128", Ok((six, 128))),
            ("2001:db8::1/129", Err("a prefix has 0 to 128 bits, as in `2001:db8::1/64`")),
            ("2001:db8::1", Err("the prefix is missing: `2001:db8::1/64`")),
            ("2001:db8::1::/64", Err("up to 8 groups")),
            ("[2001:db8::1]/64", Err("up to 8 groups")),
            ("fe80::1%eth0/64", Err("no zone")),
        ] {
            match (prefix(text), expected) {
                (Ok(read), Ok(expected)) => assert_eq!(read, expected, "{text}"),
                (Err(told), Err(expected)) => assert!(told.contains(expected), "{text}: {told}"),
                (read, expected) => panic!("{text}: {read:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn endpoints_are_read_or_told_what_is_wrong() {
        for (text, expected) in [
            ("10.0.0.1:7", Ok("10.0.0.1:7")),
            ("[fd00::1]:7", Ok("[fd00::1]:7")),
            ("fd00::1:7", Err("stands in brackets, and the port behind it: [fd00::1:7]:7")),
            ("fd00::1", Err("[fd00::1]:7")),
            ("10.0.0.1", Err("the port is missing, as in 10.0.0.1:7")),
            ("[fd00::1]", Err("10.0.0.1:7 or [fd00::1]:7")),
            ("host:7", Err("10.0.0.1:7 or [fd00::1]:7")),
            ("[fe80::1%eth0]:7", Err("no zone")),
            ("[fe80::1%3]:7", Err("no zone")),
            ("10.0.0.1:70000", Err("10.0.0.1:7 or [fd00::1]:7")),
        ] {
            match (endpoint(text), expected) {
                (Ok(read), Ok(expected)) => assert_eq!(read.to_string(), expected, "{text}"),
                (Err(told), Err(expected)) => assert!(told.contains(expected), "{text}: {told}"),
                (read, expected) => panic!("{text}: {read:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn rates_are_decimal_and_whole() {
        for (text, expected) in [
            ("100M", Ok(100_000_000)),
            ("1G", Ok(1_000_000_000)),
            ("2.5M", Ok(2_500_000)),
            ("2.50G", Ok(2_500_000_000)),
            ("64000", Ok(64_000)),
            ("64k", Ok(64_000)),
            ("1.0", Ok(1)),
            ("18446744073709551615", Ok(u64::MAX)),
            ("0", Err("a rate of 0")),
            ("0.0G", Err("a rate of 0")),
            ("", Err("a rate is a number")),
            ("M", Err("a rate is a number")),
            ("1MM", Err("a rate is a number")),
            ("1m", Err("a rate is a number")),
            ("100Mbit", Err("a rate is a number")),
            ("-1M", Err("a rate is a number")),
            (".5M", Err("a rate is a number")),
            ("1.", Err("a rate is a number")),
            ("1.5", Err("no whole number")),
            ("1.0005k", Err("no whole number")),
            ("1.00000000000000000000000000000001T", Err("no whole number")),
            ("18446744073709551616", Err("more than 64 bits")),
            ("18446745T", Err("more than 64 bits")),
            ("999999999999999999999999999999999999999999", Err("more than 64 bits")),
        ] {
            match (rate(text), expected) {
                (Ok(read), Ok(expected)) => assert_eq!(read, expected, "{text}"),
                (Err(told), Err(expected)) => assert!(told.contains(expected), "{text}: {told}"),
                (read, expected) => panic!("{text}: {read:?}, not {expected:?}"),
            }
        }
    }
}
