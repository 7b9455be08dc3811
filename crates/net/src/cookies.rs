//! Sequence numbers that a stranger cannot guess: SYN cookies (RFC 4987 3.6), by which the driver remembers a SYN's
//! options without keeping state, and initial sequence numbers of connecting flows (RFC 6528).
//!
//! A cookie has 24 bits of a keyed hash, and 8 bits for the SYN's options: 3 for the segment size, 1 for SACK, 4 for
//! the window shift. The hash also covers the 8 bits, and another hash hides them.

use crate::limits::COOKIE_TIME;
use packet::tcp::{Options, TcpOption};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, RandomState};
use std::net::SocketAddr;

/// The segment sizes that a cookie can encode. The first is the least that Linux accepts; 536 is that of a SYN without
/// the option (RFC 9293 3.7.1), 1460 that of Ethernet, 8960 that of its long frames, the others those of tunnels.
const SEGMENTS: [u16; 8] = [88, 536, 1024, 1220, 1360, 1440, 1460, 8960];

const NO_SEGMENT_OPTION: u16 = 536;

/// The greatest shift (RFC 7323 2.3), and the code for no shift.
const LARGEST_SHIFT: u8 = 14;
const NO_SHIFT: u8 = 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SynOptions {
    /// The longest segment that the sender accepts, bytes.
    pub(crate) segment: u16,
    /// Whether the sender understands selective acknowledgements (RFC 2018).
    pub(crate) has_sack: bool,
    /// The shift of the sender's windows. `None`: it does not shift.
    pub(crate) shift: Option<u8>,
}

impl SynOptions {
    /// Reads the options of a SYN.
    pub(crate) fn read(options: Options<'_>) -> SynOptions {
        let mut said = SynOptions { segment: NO_SEGMENT_OPTION, has_sack: false, shift: None };
        for option in options {
            match option {
                TcpOption::MaximumSegmentSize(bytes) => said.segment = bytes,
                TcpOption::SackPermitted => said.has_sack = true,
                // A larger one counts as 14 (RFC 7323 2.3).
                TcpOption::WindowScale(shift) => said.shift = Some(shift.min(LARGEST_SHIFT)),
                _ => (),
            }
        }
        said
    }

    fn byte(self) -> u8 {
        // A size below all others counts as the smallest.
        let segment = SEGMENTS.iter().rposition(|bytes| *bytes <= self.segment).unwrap_or(0) as u8;
        segment << 5 | u8::from(self.has_sack) << 4 | self.shift.unwrap_or(NO_SHIFT)
    }

    fn of_byte(byte: u8) -> SynOptions {
        SynOptions {
            segment: SEGMENTS[usize::from(byte >> 5)],
            has_sack: byte & 0x10 != 0,
            shift: Some(byte & 0x0f).filter(|shift| *shift != NO_SHIFT),
        }
    }

    /// The options of an answer in Linux's order: the segment size; SACK behind two bytes of padding; the shift behind one.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let [high, low] = self.segment.to_be_bytes();
        let mut bytes = vec![2, 4, high, low];
        if self.has_sack {
            bytes.extend([1, 1, 4, 2]);
        }
        if let Some(shift) = self.shift {
            bytes.extend([1, 3, 3, shift]);
        }
        bytes
    }
}

/// The uses of the key.
#[derive(Hash)]
enum Use {
    Number,
    Mask,
    Cookie(u8),
}

/// The secret of an interface. The next process keeps it, so that earlier cookies stay valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) u64, pub(crate) u64);

impl Default for Secret {
    /// A new one, at random: the system chose the hasher's keys.
    fn default() -> Secret {
        let random = RandomState::new();
        Secret(random.hash_one(0), random.hash_one(1))
    }
}

impl Secret {
    /// The hash begins with the secret: an attacker without it cannot compute the state from which the hash continues.
    fn hash(self, what: impl Hash) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one((self.0, self.1, what))
    }

    /// The first number of a connecting flow (RFC 6528 3): a clock of 4 us, plus a hash of the connection's name.
    pub(crate) fn number(&self, local: SocketAddr, remote: SocketAddr, now: u64) -> u32 {
        let hash = self.hash((Use::Number, local, remote)) as u32;
        hash.wrapping_add((now / 4000) as u32)
    }

    /// The cookie that answers a SYN with this number and these options.
    pub(crate) fn cookie(&self, [local, remote]: [SocketAddr; 2], sequence: u32, options: SynOptions, now: u64) -> u32 {
        self.bake([local, remote], sequence, options.byte(), now / COOKIE_TIME)
    }

    fn bake(&self, names: [SocketAddr; 2], sequence: u32, byte: u8, time: u64) -> u32 {
        let mask = self.hash((Use::Mask, names, sequence, time)) as u8;
        let hash = self.hash((Use::Cookie(byte), names, sequence, time)) as u32;
        hash & 0xffff_ff00 | u32::from(byte ^ mask)
    }

    /// The options of the SYN with this number. `None`: the cookie is forged, or not of this or the last minute.
    pub(crate) fn open(&self, names: [SocketAddr; 2], sequence: u32, cookie: u32, now: u64) -> Option<SynOptions> {
        let time = now / COOKIE_TIME;
        [Some(time), time.checked_sub(1)].into_iter().flatten().find_map(|time| {
            let mask = self.hash((Use::Mask, names, sequence, time)) as u8;
            let byte = cookie as u8 ^ mask;
            (self.bake(names, sequence, byte, time) == cookie).then(|| SynOptions::of_byte(byte))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SECOND;
    use std::collections::HashSet;
    use testkit::random::Random;

    fn at(last: u8, port: u16) -> SocketAddr {
        ([10, 0, 0, last], port).into()
    }

    fn six(last: u8, port: u16) -> SocketAddr {
        ([0xfd00, 0, 0, 0, 0, 0, 0, last.into()], port).into()
    }

    const FAMILIES: [fn(u8, u16) -> SocketAddr; 2] = [at, six];

    const NOW: u64 = 1000 * COOKIE_TIME + COOKIE_TIME / 2;

    #[test]
    fn a_cookie_gives_back_what_the_syn_said_for_a_minute_at_least() {
        let secret = Secret::default();
        let segments =
            [(0, 88), (88, 88), (535, 88), (536, 536), (1400, 1360), (1440, 1440), (1460, 1460), (u16::MAX, 8960)];
        for (at, (segment, kept)) in FAMILIES.into_iter().flat_map(|at| segments.map(|segment| (at, segment))) {
            let names = [at(1, 80), at(2, 5000)];
            for has_sack in [false, true] {
                for shift in [None, Some(0), Some(7), Some(14)] {
                    let options = SynOptions { segment, has_sack, shift };
                    let cookie = secret.cookie(names, 77, options, NOW);
                    let expected = Some(SynOptions { segment: kept, ..options });
                    assert_eq!(secret.open(names, 77, cookie, NOW), expected);
                    assert_eq!(secret.open(names, 77, cookie, NOW + COOKIE_TIME), expected);
                    assert_eq!(secret.open(names, 77, cookie, NOW + 2 * COOKIE_TIME), None);
                    assert_eq!(secret.open(names, 77, cookie, NOW - COOKIE_TIME), None);
                }
            }
        }
    }

    #[test]
    fn a_cookie_of_something_else_is_none() {
        let secret = Secret::default();
        for at in FAMILIES {
            let (names, options) =
                ([at(1, 80), at(2, 5000)], SynOptions { segment: 1440, has_sack: true, shift: Some(7) });
            let cookie = secret.cookie(names, 77, options, NOW);
            let mut opened = 0;
            for bit in 0..32 {
                opened += usize::from(secret.open(names, 77, cookie ^ 1 << bit, NOW).is_some());
            }
            for (names, sequence) in [
                ([at(1, 81), at(2, 5000)], 77),
                ([at(1, 80), at(2, 5001)], 77),
                ([at(1, 80), at(3, 5000)], 77),
                ([at(9, 80), at(2, 5000)], 77),
                (names, 78),
            ] {
                opened += usize::from(secret.open(names, sequence, cookie, NOW).is_some());
            }
            opened += usize::from(Secret::default().open(names, 77, cookie, NOW).is_some());
            let mut random = Random(0xc00c);
            opened += (0..50_000).filter(|_| secret.open(names, 77, random.number() as u32, NOW).is_some()).count();
            // One of 2^23 guesses is right.
            assert!(opened <= 1, "{opened}");
        }
    }

    #[test]
    fn options_are_read_and_written_in_order() {
        let read = |bytes: &[u8]| {
            let len = (20 + bytes.len()) as u8;
            let segment = [&[0; 12][..], &[(len / 4) << 4, 2, 0, 0, 0, 0, 0, 0], bytes].concat();
            SynOptions::read(packet::tcp::Packet::new_checked(&segment, len.into()).expect("a header").options())
        };
        let linux = [2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, 7];
        let options = SynOptions { segment: 1460, has_sack: true, shift: Some(7) };
        assert_eq!((read(&linux), options.bytes()), (options, linux.to_vec()));
        assert_eq!(read(&[]), SynOptions { segment: 536, has_sack: false, shift: None });
        assert_eq!(read(&[3, 3, 200, 0]).shift, Some(14));
        assert_eq!(read(&[2, 4, 5, 180, 3, 3]), read(&[2, 4, 5, 180]));
    }

    #[test]
    fn first_numbers_go_forward_with_time_and_differ_by_name() {
        let secret = Secret::default();
        for at in FAMILIES {
            let number = |port, now| secret.number(at(1, port), at(2, 80), now);
            assert_eq!(number(5000, NOW + SECOND).wrapping_sub(number(5000, NOW)), 250_000);
            let all: HashSet<_> = (1..1000).map(|port| number(port, NOW)).collect();
            assert!(all.len() > 990);
        }
    }
}
