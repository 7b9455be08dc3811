//! Whose bytes count where two pieces of one packet or stream overlap: what the target's system would take, chosen by
//! network. The words and what they mean are Novak's ("Target-Based Fragmentation Reassembly", 2005).

use super::networks::network;
use filter::prelude::*;
use std::net::IpAddr;

/// Which piece's bytes are taken where an earlier one and a later one overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The earlier one's, always.
    First,
    /// The later one's, always.
    Last,
    /// The later one's, where it begins further in front.
    Bsd,
    /// The later one's, where it does not begin further behind.
    Linux,
    /// The later one's, where it begins further in front and does not end before the earlier one.
    Solaris,
    /// The later one's, where it begins further in front and ends further behind.
    Windows,
}

/// Words of the policies.
pub(crate) const WORDS: [&str; 6] = ["first", "last", "bsd", "linux", "solaris", "windows"];

const ALL: [Policy; 6] = [Policy::First, Policy::Last, Policy::Bsd, Policy::Linux, Policy::Solaris, Policy::Windows];

impl Policy {
    fn of(word: &str) -> Option<Policy> {
        WORDS.iter().position(|known| *known == word).map(|at| ALL[at])
    }

    /// Are the later piece's bytes taken? Each is given by where it begins and ends.
    #[inline]
    pub fn takes_later(self, earlier: (u64, u64), later: (u64, u64)) -> bool {
        match self {
            Policy::First => false,
            Policy::Last => true,
            Policy::Bsd => later.0 < earlier.0,
            Policy::Linux => later.0 <= earlier.0,
            Policy::Solaris => later.0 < earlier.0 && later.1 >= earlier.1,
            Policy::Windows => later.0 < earlier.0 && later.1 > earlier.1,
        }
    }
}

/// The policy of all targets that no network is given for.
pub(crate) const POLICY: Param = Param::new(
    "policy",
    ParamType::Choice(&WORDS),
    "whose bytes count where two overlap: the first's, the last's, or as this system would have it",
)
.default("first");

/// The policy of the targets in a network.
pub(crate) const OF_NETWORK: Param =
    Param::new("policy.", ParamType::List, "the same for targets in a network: policy.10.0.0.0/8=windows");

/// The policy of each target.
#[derive(Clone, Debug)]
pub(crate) struct Policies {
    otherwise: Policy,
    /// The longest prefixes first.
    networks: Vec<(IpAddr, u8, Policy)>,
}

impl Policies {
    /// As the parameters [`POLICY`] and [`OF_NETWORK`] say.
    pub fn new(params: &Params) -> Result<Policies, ParamError> {
        let otherwise = params.text(POLICY.key).and_then(Policy::of).unwrap_or(Policy::First);
        let mut networks = Vec::new();
        for given in params.list(OF_NETWORK.key) {
            let (text, word) = given.split_once('=').unwrap_or((given, ""));
            let (address, bits) = network(text).map_err(|wrong| ParamError { key: Some(OF_NETWORK.key), ..wrong })?;
            let policy = Policy::of(word).ok_or_else(|| {
                ParamError::new(OF_NETWORK.key, format!("`{word}` is not one of {}", WORDS.join(", ")))
            })?;
            networks.push((address, bits, policy));
        }
        networks.sort_by_key(|(_, bits, _)| std::cmp::Reverse(*bits));
        Ok(Policies { otherwise, networks })
    }

    /// The policy of a target.
    pub fn of(&self, target: IpAddr) -> Policy {
        let holds = |(network, bits, _): &&(IpAddr, u8, Policy)| match (network, target) {
            (IpAddr::V4(network), IpAddr::V4(target)) => {
                let differ = network.to_bits() ^ target.to_bits();
                differ.checked_shr(32 - u32::from(*bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(target)) => {
                let differ = network.to_bits() ^ target.to_bits();
                differ.checked_shr(128 - u32::from(*bits)).unwrap_or(0) == 0
            }
            _ => false,
        };
        self.networks.iter().find(holds).map_or(self.otherwise, |(_, _, policy)| *policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static KIND: Kind = Kind::new("any", "any", |_, _| Err(ParamError::system("none"))).params(&[POLICY, OF_NETWORK]);

    fn policies(given: &[(&str, &str)]) -> Result<Policies, ParamError> {
        Policies::new(&testkit::chain::params(&KIND, given))
    }

    #[test]
    fn the_longest_prefix_decides() {
        let given = [
            ("policy", "bsd"),
            ("policy.", "10.0.0.0/8=windows"),
            ("policy.", "10.1.0.0/16=linux"),
            ("policy.", "10.1.2.3=last"),
            ("policy.", "2001:db8::/32=solaris"),
        ];
        let policies = policies(&given).unwrap();
        let rows = [
            ("10.1.2.3", Policy::Last),
            ("10.1.2.4", Policy::Linux),
            ("10.2.0.0", Policy::Windows),
            ("11.0.0.0", Policy::Bsd),
            ("2001:db8:ffff::", Policy::Solaris),
            ("2001:db9::", Policy::Bsd),
        ];
        for (target, expected) in rows {
            assert_eq!(policies.of(target.parse().unwrap()), expected, "{target}");
        }
        let all = self::policies(&[("policy.", "0.0.0.0/0=last"), ("policy.", "::/0=bsd")]).unwrap();
        assert_eq!((all.of("1.2.3.4".parse().unwrap()), all.of("::1".parse().unwrap())), (Policy::Last, Policy::Bsd));
    }

    #[test]
    fn refusals() {
        let rows = [
            ("10.0.0.0/8=winows", "`winows` is not one of first, last, bsd, linux, solaris, windows"),
            ("10.0.0.0/33=linux", "`/33` is not a prefix length"),
            ("10.0.0.1/8=linux", "`10.0.0.1/8` has bits set behind its prefix"),
            ("nonsense=linux", "`nonsense` is not an address"),
            ("10.0.0.0/8", "`` is not one of first, last, bsd, linux, solaris, windows"),
        ];
        for (given, expected) in rows {
            let error = policies(&[("policy.", given)]).unwrap_err();
            assert_eq!((error.key, error.message.as_str()), (Some("policy."), expected));
        }
    }
}
