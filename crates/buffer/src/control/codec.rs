//! Encoding of messages: little-endian fields one after the other; a `u32` with the length comes before a text or list.
//!
//! Another process wrote what is decoded here. Every field is checked, and bytes that are no valid value give `None`.
//!
//! A message declares its fields once, with [`wire_struct!`](crate::wire_struct), [`wire_enum!`](crate::wire_enum) or
//! [`wire_codes!`](crate::wire_codes); these make the encoder and the decoder.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// A packet that is being written.
#[derive(Debug, Default)]
pub struct Out(pub Vec<u8>);

/// The unread rest of a packet.
#[derive(Debug)]
pub struct In<'a>(pub &'a [u8]);

impl In<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }
}

/// A value that a message can carry.
pub trait Wire: Sized {
    /// Appends the value's fields to a packet.
    fn put(&self, out: &mut Out);

    /// Reads the value's fields. `None`: the bytes are no such value.
    fn get(fields: &mut In<'_>) -> Option<Self>;
}

/// Length of a value in a packet, in bytes.
pub fn len(of: &impl Wire) -> usize {
    let mut out = Out::default();
    of.put(&mut out);
    out.0.len()
}

/// Encodes as much of a list as fits: leaves out entries that would make the packet longer than `most` bytes.
pub fn put_fitting<T: Wire>(out: &mut Out, entries: impl Iterator<Item = T>, most: usize) {
    let (at, mut count) = (out.0.len(), 0u32);
    count.put(out);
    for entry in entries {
        let before = out.0.len();
        entry.put(out);
        if out.0.len() > most {
            out.0.truncate(before);
        } else {
            count += 1;
        }
    }
    out.0[at..][..size_of::<u32>()].copy_from_slice(&count.to_le_bytes());
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            fn put(&self, out: &mut Out) {
                out.0.extend(self.to_le_bytes());
            }

            fn get(fields: &mut In<'_>) -> Option<$number> {
                fields.take().map(<$number>::from_le_bytes)
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, i32);

impl Wire for bool {
    fn put(&self, out: &mut Out) {
        u8::from(*self).put(out);
    }

    fn get(fields: &mut In<'_>) -> Option<bool> {
        u8::get(fields).filter(|byte| *byte < 2).map(|byte| byte == 1)
    }
}

impl Wire for String {
    fn put(&self, out: &mut Out) {
        (self.len() as u32).put(out);
        out.0.extend(self.as_bytes());
    }

    fn get(fields: &mut In<'_>) -> Option<String> {
        let (text, rest) = fields
            .0
            .split_first_chunk()
            .and_then(|(len, rest)| rest.split_at_checked(u32::from_le_bytes(*len) as usize))?;
        fields.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Out) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn get(fields: &mut In<'_>) -> Option<Option<T>> {
        if bool::get(fields)? { T::get(fields).map(Some) } else { Some(None) }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Out) {
        (self.len() as u32).put(out);
        self.iter().for_each(|entry| entry.put(out));
    }

    // Every entry takes at least a byte: whatever the count says, the list is no longer than its packet.
    fn get(fields: &mut In<'_>) -> Option<Vec<T>> {
        (0..u32::get(fields)?).map(|_| T::get(fields)).collect()
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Out) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(fields: &mut In<'_>) -> Option<(A, B)> {
        Some((A::get(fields)?, B::get(fields)?))
    }
}

impl Wire for BTreeMap<String, String> {
    fn put(&self, out: &mut Out) {
        (self.len() as u32).put(out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }

    fn get(fields: &mut In<'_>) -> Option<BTreeMap<String, String>> {
        let pairs = Vec::get(fields)?;
        pairs.is_sorted_by(|(a, _): &(String, String), (b, _)| a < b).then(|| pairs.into_iter().collect())
    }
}

impl Wire for Duration {
    fn put(&self, out: &mut Out) {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX).put(out);
    }

    fn get(fields: &mut In<'_>) -> Option<Duration> {
        u64::get(fields).map(Duration::from_nanos)
    }
}

impl Wire for [u8; 6] {
    fn put(&self, out: &mut Out) {
        out.0.extend(self);
    }

    fn get(fields: &mut In<'_>) -> Option<[u8; 6]> {
        fields.take()
    }
}

/// Comes after the number of its family, 4 or 6.
impl Wire for Ipv4Addr {
    fn put(&self, out: &mut Out) {
        out.0.extend(self.octets());
    }

    fn get(fields: &mut In<'_>) -> Option<Ipv4Addr> {
        fields.take::<4>().map(Ipv4Addr::from)
    }
}

impl Wire for IpAddr {
    fn put(&self, out: &mut Out) {
        match self {
            IpAddr::V4(address) => {
                4u8.put(out);
                out.0.extend(address.octets());
            }
            IpAddr::V6(address) => {
                6u8.put(out);
                out.0.extend(address.octets());
            }
        }
    }

    fn get(fields: &mut In<'_>) -> Option<IpAddr> {
        match u8::get(fields)? {
            4 => fields.take::<4>().map(IpAddr::from),
            6 => fields.take::<16>().map(IpAddr::from),
            _ => None,
        }
    }
}

/// Address and port only: an IPv6 scope is a device of one namespace, unknown to another process.
impl Wire for SocketAddr {
    fn put(&self, out: &mut Out) {
        self.ip().put(out);
        self.port().put(out);
    }

    fn get(fields: &mut In<'_>) -> Option<SocketAddr> {
        Some(SocketAddr::new(Wire::get(fields)?, Wire::get(fields)?))
    }
}

/// `wire_struct!(Place { id, ring })`: the fields one after the other. `if EXPRESSION` refuses some decoded values.
#[macro_export]
macro_rules! wire_struct {
    ($name:ident { $($field:ident),* $(,)? } $(if $check:expr)?) => {
        impl $crate::control::codec::Wire for $name {
            fn put(&self, out: &mut $crate::control::codec::Out) {
                $($crate::control::codec::Wire::put(&self.$field, out);)*
            }

            fn get(fields: &mut $crate::control::codec::In<'_>) -> Option<$name> {
                let value = $name { $($field: $crate::control::codec::Wire::get(fields)?),* };
                $(
                    let check: fn(&$name) -> bool = $check;
                    if !check(&value) {
                        return None;
                    }
                )?
                Some(value)
            }
        }
    };
}

/// `wire_enum!(Question { 1 = Hello(version, purpose), 2 = State })`: one byte for the variant, then its fields.
#[macro_export]
macro_rules! wire_enum {
    ($name:ident { $($code:literal = $variant:ident $(($($field:ident),*))?),* $(,)? }) => {
        impl $crate::control::codec::Wire for $name {
            fn put(&self, out: &mut $crate::control::codec::Out) {
                match self {
                    $($name::$variant $(($($field),*))? => {
                        out.0.push($code);
                        $($($crate::control::codec::Wire::put($field, out);)*)?
                    })*
                }
            }

            fn get(fields: &mut $crate::control::codec::In<'_>) -> Option<$name> {
                Some(match <u8 as $crate::control::codec::Wire>::get(fields)? {
                    $($code => $name::$variant $(($({
                        let $field = $crate::control::codec::Wire::get(fields)?;
                        $field
                    }),*))?,)*
                    _ => return None,
                })
            }
        }
    };
}

/// `wire_codes!(Mode { Tap = 0, Consume = 1 })`: an enum without fields, as a byte.
#[macro_export]
macro_rules! wire_codes {
    ($name:ident { $($variant:ident = $code:literal),* $(,)? }) => {
        $crate::wire_enum!($name { $($code = $variant),* });
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Small {
        number: u8,
        list: Vec<(u32, String)>,
    }

    wire_struct!(Small { number, list } if |small| small.number < 64);

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_nothing() {
        let small = Small { number: 63, list: vec![(1, "a".into()), (2, String::new())] };
        let value = ((small, Some(Duration::from_secs(2))), (None::<u16>, BTreeMap::from([("a".into(), "b".into())])));
        let mut out = Out::default();
        value.put(&mut out);
        type Value = ((Small, Option<Duration>), (Option<u16>, BTreeMap<String, String>));
        fn read<T: Wire>(bytes: &[u8]) -> Option<T> {
            let mut fields = In(bytes);
            T::get(&mut fields).filter(|_| fields.0.is_empty())
        }
        assert_eq!(read(&out.0), Some(value));
        assert!((0..out.0.len()).all(|cut| read::<Value>(&out.0[..cut]).is_none()));
        out.0[0] = 64;
        assert_eq!(read::<Value>(&out.0), None);
    }

    #[test]
    fn addresses_of_both_families_travel_without_their_scope() {
        let read = |text: &str| {
            let mut out = Out::default();
            text.parse::<SocketAddr>().unwrap().put(&mut out);
            SocketAddr::get(&mut In(&out.0)).map(|address| (address.to_string(), out.0.len()))
        };
        for (text, expected, len) in
            [("10.0.0.1:7", "10.0.0.1:7", 7), ("[fd00::1]:7", "[fd00::1]:7", 19), ("[fe80::1%3]:7", "[fe80::1]:7", 19)]
        {
            assert_eq!(read(text), Some((expected.to_string(), len)));
        }
        assert_eq!(IpAddr::get(&mut In(&[5; 17])), None);
    }

    #[test]
    fn a_list_that_says_more_than_there_is_takes_no_memory() {
        assert_eq!(Vec::<u8>::get(&mut In(&[0xff; 6])), None);
        assert_eq!(String::get(&mut In(&[0xff; 6])), None);
    }
}
