//! The values of one field, one for each frame: fixed, counting, or random.

use crate::parts::mac;
use crate::parts::networks::first_of;
use filter::prelude::*;
use std::net::IpAddr;

/// A random number generator that repeats its numbers for the same seed (splitmix64: Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", 2014). Not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    #[inline]
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// A range of values, and the order in which frames get them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Values {
    first: u128,
    /// The number of values. 0: all values of 128 bits.
    count: u128,
    by_chance: bool,
    /// The offset of the next value, where values count up.
    next: u128,
}

/// The values that a field permits.
#[derive(Clone, Copy)]
pub(super) enum Meaning {
    /// Numbers up to the second member. The first names such a number with its article: "a port".
    Number(&'static str, u32),
    /// Ethernet addresses.
    Mac,
    /// IP addresses. `true`: of version 6.
    Address(bool),
}

impl Values {
    /// Reads a parameter: `80`, `1000..1999` (counts up and begins again), `random:1000..1999`. Addresses also permit a
    /// network. `key` is the parameter's name.
    pub(super) fn parse(text: &str, key: &'static str, meaning: Meaning) -> Result<Values, ParamError> {
        let (by_chance, set) = match text.strip_prefix("random:") {
            Some(set) => (true, set),
            None => (false, text),
        };
        let wrong = |text: &str| {
            let (what, help) = match meaning {
                Meaning::Number(what, most) => (what, format!("up to {most}: 80, 1000..1999 or random:1000..1999")),
                Meaning::Mac => ("an Ethernet address", "02:00:00:00:00:01, or two with .. between them".into()),
                Meaning::Address(false) => ("an IPv4 address", "198.18.0.1, 10.0.0.1..10.0.0.9 or 10.0.0.0/24".into()),
                Meaning::Address(true) => {
                    ("an IPv6 address", "2001:db8::1, 2001:db8::1..2001:db8::9 or 2001:db8::/64".into())
                }
            };
            ParamError::new(key, format!("`{text}` is not {what}")).with_help(help)
        };
        let value = |text: &str| meaning.value(text).ok_or_else(|| wrong(text));
        let (first, count) = match (set.split_once(".."), set.split_once('/')) {
            (Some((first, last)), _) => {
                let (first, last) = (value(first)?, value(last)?);
                if last < first {
                    return Err(ParamError::new(key, format!("`{set}` ends before it begins")));
                }
                (first, (last - first).wrapping_add(1))
            }
            (None, Some((address, bits))) => meaning.network(address, bits).ok_or_else(|| wrong(set))?,
            (None, None) => (value(set)?, 1),
        };
        if by_chance && count == 1 {
            return Err(ParamError::new(key, format!("`{text}` is one value, so it cannot be random"))
                .with_help("a range is written with two points: random:1000..1999"));
        }
        if by_chance && count > u128::from(u64::MAX) && !count.is_power_of_two() {
            return Err(ParamError::new(key, "the range is too large to choose from")
                .with_help("a network is not: random:2001:db8::/32"));
        }
        Ok(Values { first, count, by_chance, next: 0 })
    }

    /// The only value, if there is only one.
    pub(super) fn fixed(&self) -> Option<u128> {
        (self.count == 1).then_some(self.first)
    }

    /// The smallest and the largest value.
    pub(super) fn bounds(&self) -> (u128, u128) {
        (self.first, self.first.wrapping_add(self.count).wrapping_sub(1))
    }

    #[inline]
    pub(super) fn next(&mut self, random: &mut Random) -> u128 {
        if !self.by_chance {
            let next = self.next;
            self.next = if next + 1 == self.count { 0 } else { next + 1 };
            return self.first.wrapping_add(next);
        }
        // Scales a random number of 64 bits to the range. The values are equally likely up to one part in 2^64 / `count`.
        // Larger ranges are powers of two.
        let offset = match u64::try_from(self.count) {
            Ok(count) if count > 0 => (u128::from(random.number()) * u128::from(count)) >> 64,
            _ => (u128::from(random.number()) << 64 | u128::from(random.number())) & self.count.wrapping_sub(1),
        };
        self.first.wrapping_add(offset)
    }
}

impl Meaning {
    fn value(self, text: &str) -> Option<u128> {
        match self {
            Meaning::Number(_, most) => {
                let number: u32 = text.parse().ok().filter(|_| !text.starts_with('+'))?;
                (number <= most).then_some(number.into())
            }
            Meaning::Mac => {
                let mut wide = [0; 16];
                wide[10..].copy_from_slice(&mac::parse(text)?);
                Some(u128::from_be_bytes(wide))
            }
            Meaning::Address(six) => number_of(text.parse().ok()?, six),
        }
    }

    /// First address of a network, and the number of its addresses.
    fn network(self, address: &str, bits: &str) -> Option<(u128, u128)> {
        let (Meaning::Address(six), Ok(address), Ok(bits)) = (self, address.parse::<IpAddr>(), bits.parse::<u8>())
        else {
            return None;
        };
        let most = if six { 128 } else { 32 };
        let first = number_of(address, six)?;
        (bits <= most && first_of(address, bits) == address)
            .then(|| (first, 1u128.checked_shl((most - bits).into()).unwrap_or(0)))
    }
}

/// An address as a number. `None`: it is of the other version.
fn number_of(address: IpAddr, six: bool) -> Option<u128> {
    match address {
        IpAddr::V4(address) if !six => Some(address.to_bits().into()),
        IpAddr::V6(address) if six => Some(address.to_bits()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: Meaning = Meaning::Number("a port", 65_535);

    fn check(text: &str, meaning: Meaning, expected: &[u128]) {
        let mut values = Values::parse(text, "x", meaning).unwrap();
        let mut random = Random(1);
        assert_eq!(expected.iter().map(|_| values.next(&mut random)).collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn in_a_row() {
        check("80", PORT, &[80, 80]);
        check("10..12", PORT, &[10, 11, 12, 10, 11]);
        check("0..65535", PORT, &[0, 1]);
        check("10.0.0.255..10.0.1.0", Meaning::Address(false), &[0x0a00_00ff, 0x0a00_0100, 0x0a00_00ff]);
        check("10.0.0.0/31", Meaning::Address(false), &[0x0a00_0000, 0x0a00_0001, 0x0a00_0000]);
        check("0.0.0.0/0", Meaning::Address(false), &[0, 1]);
        check("::/0", Meaning::Address(true), &[0, 1]);
        check("2001:db8::9", Meaning::Address(true), &[0x2001_0db8 << 96 | 9; 2]);
        check(
            "02:00:00:00:00:ff..02:00:00:00:01:00",
            Meaning::Mac,
            &[0x0200_0000_00ff, 0x0200_0000_0100, 0x0200_0000_00ff],
        );
    }

    #[test]
    fn by_chance_all_of_a_range_and_nothing_else_comes_up() {
        let mut random = Random(7);
        for (text, meaning, first, count) in [
            ("random:1000..1009", PORT, 1000, 10usize),
            ("random:10.0.0.0/28", Meaning::Address(false), 0x0a00_0000, 16),
        ] {
            let mut values = Values::parse(text, "x", meaning).unwrap();
            let mut seen = vec![0; count];
            (0..count * 1000).for_each(|_| seen[usize::try_from(values.next(&mut random) - first).unwrap()] += 1);
            assert!(seen.iter().all(|times| (800..1200).contains(times)), "{text}: {seen:?}");
        }
        let mut wide = Values::parse("random:2001:db8::/32", "x", Meaning::Address(true)).unwrap();
        let (one, other) = (wide.next(&mut random), wide.next(&mut random));
        assert_ne!(one, other);
        assert!([one, other].iter().all(|value| value >> 96 == 0x2001_0db8 && *value as u64 != 0));
        let (mut once, mut again) = (Random(5), Random(5));
        assert!((0..100).all(|_| once.number() == again.number()), "the same for the same seed");
    }

    #[test]
    fn refusals() {
        for (text, meaning, message) in [
            ("65536", PORT, "`65536` is not a port"),
            ("x", PORT, "`x` is not a port"),
            ("9..1", PORT, "`9..1` ends before it begins"),
            ("1..70000", PORT, "`70000` is not a port"),
            ("random:5", PORT, "`random:5` is one value, so it cannot be random"),
            ("1/2", PORT, "`1/2` is not a port"),
            ("10.0.0.1/24", Meaning::Address(false), "`10.0.0.1/24` is not an IPv4 address"),
            ("::1", Meaning::Address(false), "`::1` is not an IPv4 address"),
            ("random:::1..::ffff:ffff:ffff:ffff:ffff", Meaning::Address(true), "the range is too large to choose from"),
            ("02:00", Meaning::Mac, "`02:00` is not an Ethernet address"),
        ] {
            assert_eq!(Values::parse(text, "x", meaning).unwrap_err().message, message);
        }
    }
}
