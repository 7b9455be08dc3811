//! Whose bytes count where two fragments or segments overlap: those that the target's system would take, by network.
//! The policy names are those of Novak, "Target-Based Fragmentation Reassembly", 2005.

use super::networks::network;
use filter::prelude::*;
use std::net::IpAddr;

/// Which piece wins an overlap. A rule holds for fragments, and for streams unless the line has a stream rule. "Its
/// start" and "its end" are those of the later piece (by arrival), compared with the earlier one's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The earlier piece, always.
    #[default]
    First,
    /// The later piece, always.
    Last,
    /// The later piece if its start is lower.
    Bsd,
    /// The later piece if its start is lower or equal. Streams: if its start is lower, or equal with a higher end.
    Linux,
    /// Linux before 2.2. As `Linux`; in streams, the later piece also wins with the same start and end.
    OldLinux,
    /// The later piece if its start is lower and its end not lower. Streams: if its end is higher, or equal with a
    /// start that is not higher.
    Solaris,
    /// The later piece if its start is lower and its end higher. Streams: if its start is lower.
    Windows,
    /// Windows since Vista. As `Windows` for fragments, as `First` for streams.
    Vista,
}

/// Policy names in requests.
pub(crate) const WORDS: [&str; 8] = ["first", "last", "bsd", "linux", "old-linux", "solaris", "windows", "vista"];

/// The policies in the order of [`WORDS`].
pub(crate) const ALL: [Policy; 8] = [
    Policy::First,
    Policy::Last,
    Policy::Bsd,
    Policy::Linux,
    Policy::OldLinux,
    Policy::Solaris,
    Policy::Windows,
    Policy::Vista,
];

impl Policy {
    fn of(word: &str) -> Option<Policy> {
        WORDS.iter().position(|known| *known == word).map(|at| ALL[at])
    }

    /// Whether the later fragments win. Each is given as (start, end).
    #[inline]
    pub fn takes_later(self, earlier: (u64, u64), later: (u64, u64)) -> bool {
        match self {
            Policy::First => false,
            Policy::Last => true,
            Policy::Bsd => later.0 < earlier.0,
            Policy::Linux | Policy::OldLinux => later.0 <= earlier.0,
            Policy::Solaris => later.0 < earlier.0 && later.1 >= earlier.1,
            Policy::Windows | Policy::Vista => later.0 < earlier.0 && later.1 > earlier.1,
        }
    }

    /// Whether the later segments win, when both wait for a gap before them to be filled. From Novak and Sturges,
    /// "Target-Based TCP Stream Reassembly", 2007.
    pub fn takes_later_in_stream(self, earlier: (u64, u64), later: (u64, u64)) -> bool {
        match self {
            Policy::First | Policy::Vista => false,
            Policy::Last => true,
            Policy::Bsd | Policy::Windows => later.0 < earlier.0,
            Policy::Linux => later.0 < earlier.0 || (later.0 == earlier.0 && later.1 > earlier.1),
            Policy::OldLinux => later.0 < earlier.0 || (later.0 == earlier.0 && later.1 >= earlier.1),
            Policy::Solaris => later.1 > earlier.1 || (later.1 == earlier.1 && later.0 <= earlier.0),
        }
    }
}

/// The parameter for the policy of targets outside all given networks.
pub(crate) const POLICY: Param = Param::new(
    "policy",
    ParamType::Choice(&WORDS),
    "whose bytes count where two overlap: the first's, the last's, or as this system would have it",
)
.default("first");

/// The parameter for the policy of targets in a network.
pub(crate) const OF_NETWORK: Param =
    Param::new("policy.", ParamType::List, "the same for targets in a network: policy.10.0.0.0/8=windows");

#[derive(Clone, Debug, Default)]
pub struct Policies {
    otherwise: Policy,
    /// Longest prefix first.
    networks: Vec<(IpAddr, u8, Policy)>,
}

impl Policies {
    /// Reads the parameters [`POLICY`] and [`OF_NETWORK`].
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
            ("10.0.0.0/8=winows", "`winows` is not one of first, last, bsd, linux, old-linux, solaris, windows, vista"),
            ("10.0.0.0/33=linux", "`/33` is not a prefix length"),
            ("10.0.0.1/8=linux", "`10.0.0.1/8` has bits set behind its prefix"),
            ("nonsense=linux", "`nonsense` is not an address"),
            ("10.0.0.0/8", "`` is not one of first, last, bsd, linux, old-linux, solaris, windows, vista"),
        ];
        for (given, expected) in rows {
            let error = policies(&[("policy.", given)]).unwrap_err();
            assert_eq!((error.key, error.message.as_str()), (Some("policy."), expected));
        }
    }
}
