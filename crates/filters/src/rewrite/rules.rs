//! Sets or maps addresses and ports. Rules for one end take precedence over rules for both.

use crate::parts::edit::End;
use crate::parts::mac;
use crate::parts::networks::network;
use filter::prelude::*;
use std::net::IpAddr;

/// Rules for one type of field.
pub(super) trait Rules: Sized + Default {
    /// The value of a field.
    type Field: Copy + PartialEq;

    /// The new value; `None`: no rule applies.
    fn of(&self, field: Self::Field) -> Option<Self::Field>;

    fn is_empty(&self) -> bool;
}

/// Rules for the source, the target, and both.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends<R> {
    source: R,
    target: R,
    both: R,
}

impl<R: Rules> Ends<R> {
    /// Reads three parameters: for the source, the target, and both.
    pub(super) fn of_params(
        params: &Params,
        keys: [&'static str; 3],
        parse: fn(&str, bool) -> Result<R, ParamError>,
    ) -> Result<Ends<R>, ParamError> {
        let rules = |key: &'static str, may_set| {
            let rules = params.text(key).map(|text| parse(text, may_set));
            let rules = rules.transpose().map_err(|wrong| ParamError { key: Some(key), ..wrong });
            rules.map(Option::unwrap_or_default)
        };
        Ok(Ends { source: rules(keys[0], true)?, target: rules(keys[1], true)?, both: rules(keys[2], false)? })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.source.is_empty() && self.target.is_empty() && self.both.is_empty()
    }

    /// The value of `field` at `end` after the rules.
    #[inline]
    pub(super) fn changed(&self, field: R::Field, end: End) -> R::Field {
        let own = match end {
            End::Source => &self.source,
            End::Target => &self.target,
        };
        own.of(field).or_else(|| self.both.of(field)).unwrap_or(field)
    }
}

/// The two sides of each map in a list. The left side is `None` for a value that is set.
fn maps(text: &str, may_set: bool) -> Result<Vec<(Option<&str>, &str)>, ParamError> {
    let parts = text.split(',').map(str::trim);
    parts
        .map(|part| match part.split_once("->").or_else(|| part.split_once('=')) {
            Some((from, to)) => Ok((Some(from.trim()), to.trim())),
            None if may_set => Ok((None, part)),
            None => Err(wrong(format!("`{part}` does not say what becomes what")).with_help("as in a->b")),
        })
        .collect()
}

fn wrong(message: String) -> ParamError {
    ParamError::of_request(message)
}

/// Maps of networks to networks.
#[derive(Clone, Debug, Default)]
pub(super) struct Networks(Vec<NetworkMap>);

#[derive(Clone, Copy, Debug)]
struct NetworkMap {
    six: bool,
    from: u128,
    /// The bits in which an address must equal `from`.
    mask: u128,
    to: u128,
    /// The bits that do not change.
    stays: u128,
}

impl Networks {
    pub(super) fn parse(text: &str, may_set: bool) -> Result<Networks, ParamError> {
        let mut all = Vec::new();
        for (from, to) in maps(text, may_set)? {
            let (to, to_bits) = network(to)?;
            let width: u32 = if to.is_ipv6() { 128 } else { 32 };
            let (from, from_bits) = match from {
                Some(from) => network(from)?,
                None if u32::from(to_bits) < width => {
                    return Err(wrong(format!("`{to}/{to_bits}` is a network: which address of it?"))
                        .with_help(format!("a map moves another network there: 10.0.0.0/8->{to}/{to_bits}")));
                }
                None => (to, 0),
            };
            if from.is_ipv6() != to.is_ipv6() {
                return Err(wrong(format!("`{from}` and `{to}` are of different versions")));
            }
            // A mask of all bits of an address after the first `bits`.
            let behind = |bits: u8| u128::MAX.checked_shr(u32::from(bits) + 128 - width).unwrap_or(0);
            let mask = behind(0) & !behind(from_bits);
            let (from, to, stays) = (number(from) & mask, number(to), behind(to_bits));
            all.push(NetworkMap { six: width == 128, from, mask, to, stays });
        }
        // Longest prefix first.
        all.sort_by_key(|map| std::cmp::Reverse(map.mask.count_ones()));
        Ok(Networks(all))
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl Rules for Networks {
    type Field = IpAddr;

    #[inline]
    fn of(&self, address: IpAddr) -> Option<IpAddr> {
        if self.0.is_empty() {
            return None;
        }
        let (value, six) = (number(address), address.is_ipv6());
        let map = self.0.iter().find(|map| map.six == six && value & map.mask == map.from)?;
        let value = map.to | value & map.stays;
        Some(if six { IpAddr::V6(value.into()) } else { IpAddr::V4((value as u32).into()) })
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Maps of single values.
#[derive(Clone, Debug)]
pub(super) struct Single<T> {
    all: Option<T>,
    maps: Vec<(T, T)>,
}

impl<T> Default for Single<T> {
    fn default() -> Single<T> {
        Single { all: None, maps: Vec::new() }
    }
}

pub(super) type Ports = Single<u16>;
pub(super) type Macs = Single<[u8; 6]>;

impl<T> Single<T> {
    fn parse_as(
        text: &str,
        may_set: bool,
        one: impl Fn(&str) -> Result<T, ParamError>,
    ) -> Result<Single<T>, ParamError> {
        let mut rules = Single::default();
        for (from, to) in maps(text, may_set)? {
            match from {
                Some(from) => rules.maps.push((one(from)?, one(to)?)),
                None => rules.all = Some(one(to)?),
            }
        }
        Ok(rules)
    }
}

impl Ports {
    pub(super) fn parse(text: &str, may_set: bool) -> Result<Ports, ParamError> {
        Single::parse_as(text, may_set, |text| {
            let port = text.parse().ok().filter(|_| !text.starts_with('+'));
            port.ok_or_else(|| wrong(format!("`{text}` is not a port")).with_help("0 to 65535"))
        })
    }
}

impl Macs {
    pub(super) fn parse(text: &str, may_set: bool) -> Result<Macs, ParamError> {
        Single::parse_as(text, may_set, |text| {
            let help = "six bytes in hexadecimal, as 02:00:00:00:00:01";
            mac::parse(text).ok_or_else(|| wrong(format!("`{text}` is not an Ethernet address")).with_help(help))
        })
    }
}

impl<T: Copy + PartialEq> Rules for Single<T> {
    type Field = T;

    #[inline]
    fn of(&self, field: T) -> Option<T> {
        self.maps.iter().find(|(from, _)| *from == field).map(|(_, to)| *to).or(self.all)
    }

    fn is_empty(&self) -> bool {
        self.maps.is_empty() && self.all.is_none()
    }
}
