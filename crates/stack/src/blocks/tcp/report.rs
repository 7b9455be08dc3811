//! Maps ICMP errors to Linux error numbers and to a smaller MTU.

use std::net::IpAddr;

use crate::packets::ProblemKind;
use crate::stream::errno;

/// The least MTU that an ICMP error can set, in bytes: Linux's `min_pmtu`. An attacker could otherwise go down to 68
/// and make a connection all headers (RFC 5927, section 7.2).
pub(super) const LEAST_MTU: u16 = 552;

/// The same for IPv6: every link carries this much (RFC 8200, section 5).
pub(super) const LEAST_MTU_V6: u16 = 1280;

/// The plateaus of RFC 1191, section 7.1, for routers that do not report the next link's MTU.
const PLATEAUS: [u16; 9] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296];

/// The errno of Linux's table (`icmp_err_convert` in net/ipv4/icmp.c), and the MTU if it is EMSGSIZE.
pub(super) fn errno_of(kind: ProblemKind) -> (i32, u16) {
    match kind {
        ProblemKind::TooBig(mtu) => (errno::EMSGSIZE, mtu),
        ProblemKind::Unreachable(code) => (errno_of_code(code), 0),
        ProblemKind::TimeExceeded => (errno::EHOSTUNREACH, 0),
        ProblemKind::Parameter => (errno::EPROTO, 0),
    }
}

/// The errno for a code of "destination unreachable" (RFC 792; RFC 1122, section 3.2.2.1; RFC 1812, section 5.2.7.1).
fn errno_of_code(code: u8) -> i32 {
    match code {
        0 | 6 | 9 | 11 => errno::ENETUNREACH,
        2 => errno::ENOPROTOOPT,
        3 => errno::ECONNREFUSED,
        5 => errno::EOPNOTSUPP,
        7 => errno::EHOSTDOWN,
        8 => errno::ENONET,
        _ => errno::EHOSTUNREACH,
    }
}

/// The path MTU after a report, if it is smaller than `mtu`: reports never raise it. `own` is this side's address.
pub(super) fn smaller_mtu(mtu: u16, reported: u16, own: IpAddr) -> Option<u16> {
    let least = if own.is_ipv4() { LEAST_MTU } else { LEAST_MTU_V6 };
    let reported = match reported {
        0 => PLATEAUS.into_iter().find(|plateau| *plateau < mtu).unwrap_or(least),
        reported => reported,
    };
    Some(reported.max(least)).filter(|smaller| *smaller < mtu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_makes_the_mtu_smaller_and_not_too_small() {
        let rows = [
            (1_500, 1_400, Some(1_400)),
            (1_500, 1_500, None),
            (1_500, 9_000, None),
            (1_500, 68, Some(552)),
            (1_500, 0, Some(1_492)),
            (1_492, 0, Some(1_006)),
            (1_006, 0, Some(552)),
            (552, 0, None),
            (300, 68, None),
            (65_535, 0, Some(32_000)),
        ];
        for (mtu, reported, expected) in rows {
            assert_eq!(smaller_mtu(mtu, reported, [10, 0, 0, 1].into()), expected, "{mtu} {reported}");
        }
        for (mtu, reported, expected) in [(1_500, 1_400, Some(1_400)), (1_500, 68, Some(1_280)), (1_280, 68, None)] {
            assert_eq!(smaller_mtu(mtu, reported, [0; 16].into()), expected, "{mtu} {reported}");
        }
    }
}
