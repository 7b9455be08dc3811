//! Maps addresses to others: the same for the same key, with the structure that analyses need.
//!
//! - IP addresses: two that share exactly their first n bits share exactly n afterwards. This is Crypto-PAn with AES-128
//!   (Xu, Fan, Ammar, Moon: "Prefix-preserving IP address anonymization", ICNP 2002). A pseudorandom function of the bits
//!   before a bit decides whether to turn it.
//! - Ethernet addresses: a pseudorandom function. The bits "group" and "locally administered" stay.

use aes::cipher::{BlockEncrypt, KeyInit};
use aes::{Aes128, Block};
use sha2::{Digest, Sha256};
use std::net::IpAddr;

/// Entries of each table of remembered addresses: a power of two.
const REMEMBERED: usize = 4096;

/// Blocks that the cipher encrypts in one call.
const TOGETHER: usize = 32;

/// A key, and the addresses that it mapped lately.
pub(super) struct Keyed {
    addresses: Aes128,
    /// Crypto-PAn's pad: fills a cipher block from the current bit on.
    pad: u128,
    macs: Aes128,
    v4: Vec<Option<(u32, u32)>>,
    v6: Vec<Option<(u128, u128)>>,
}

impl Keyed {
    /// Splits a key as Crypto-PAn does: 16 bytes for the cipher, 16 for the pad.
    pub(super) fn new(key: [u8; 32]) -> Keyed {
        let (cipher, pad) = key.split_at(16);
        let addresses = Aes128::new(cipher.into());
        let mut pad = *Block::from_slice(pad);
        addresses.encrypt_block(&mut pad);
        // Ethernet addresses have a key of their own: an attacker who finds one key does not know the other.
        let macs = Sha256::new().chain_update("Ethernet addresses").chain_update(key).finalize();
        Keyed {
            addresses,
            pad: u128::from_be_bytes(pad.into()),
            macs: Aes128::new(macs[..16].into()),
            v4: vec![None; REMEMBERED],
            v6: vec![None; REMEMBERED],
        }
    }

    /// Takes the key from `text`: 64 hexadecimal digits are the key itself; any other text is hashed.
    pub(super) fn of_text(text: &str) -> Keyed {
        Keyed::new(hexadecimal(text).unwrap_or_else(|| Sha256::digest(text).into()))
    }

    /// The address that stands for `address`.
    pub(super) fn address(&mut self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(address) => IpAddr::V4(self.v4(address.to_bits()).into()),
            IpAddr::V6(address) => IpAddr::V6(self.v6(address.to_bits()).into()),
        }
    }

    fn v4(&mut self, address: u32) -> u32 {
        let at = spread(address.into());
        match self.v4[at] {
            Some((known, mapped)) if known == address => mapped,
            _ => {
                let mapped = (self.mapped::<32>(u128::from(address) << 96) >> 96) as u32;
                self.v4[at] = Some((address, mapped));
                mapped
            }
        }
    }

    fn v6(&mut self, address: u128) -> u128 {
        let at = spread(address as u64 ^ (address >> 64) as u64);
        match self.v6[at] {
            Some((known, mapped)) if known == address => mapped,
            _ => {
                let mapped = self.mapped::<128>(address);
                self.v6[at] = Some((address, mapped));
                mapped
            }
        }
    }

    /// Maps the first `BITS` bits.
    fn mapped<const BITS: usize>(&self, address: u128) -> u128 {
        let mut turned = 0;
        let mut blocks = [Block::default(); TOGETHER];
        for first in (0..BITS).step_by(TOGETHER) {
            for (at, block) in blocks.iter_mut().enumerate() {
                // The address up to this bit, and the pad from this bit on.
                let unknown = u128::MAX >> (first + at);
                *block = (address & !unknown | self.pad & unknown).to_be_bytes().into();
            }
            self.addresses.encrypt_blocks(&mut blocks);
            for (at, block) in blocks.iter().enumerate() {
                turned |= u128::from(block[0] >> 7) << (127 - first - at);
            }
        }
        address ^ turned
    }

    /// The Ethernet address that stands for `mac`. All ones and all zeroes stay: no station has them.
    pub(super) fn mac(&self, mac: [u8; 6]) -> [u8; 6] {
        /// The bits "group" and "locally administered".
        const KEPT: u8 = 0b11;
        if mac == [0xff; 6] || mac == [0; 6] {
            return mac;
        }
        let mut block = Block::default();
        block[..6].copy_from_slice(&mac);
        self.macs.encrypt_block(&mut block);
        let mut mapped: [u8; 6] = block[..6].try_into().unwrap_or_default();
        mapped[0] = mapped[0] & !KEPT | mac[0] & KEPT;
        mapped
    }
}

/// The index of an address in the table of remembered addresses.
fn spread(address: u64) -> usize {
    // Fibonacci hashing: the high bits of the product.
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize % REMEMBERED
}

/// A key of 64 hexadecimal digits.
fn hexadecimal(text: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of the sample in Crypto-PAn's distribution.
    const KEY: [u8; 32] = [
        21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16, 216, 152, 143, 131, 121, 121, 101, 39,
        98, 87, 76, 45, 42, 132, 34, 2,
    ];

    /// Rows of the sample's two traces. The IPv6 rows are those on which other implementations agree.
    #[test]
    fn as_the_authors_and_others_have_it() {
        let mut keyed = Keyed::new(KEY);
        for (address, expected) in [
            ("128.11.68.132", "135.242.180.132"),
            ("129.118.74.4", "134.136.186.123"),
            ("130.132.252.244", "133.68.164.234"),
            ("141.223.7.43", "141.167.8.160"),
            ("141.233.145.108", "141.129.237.235"),
            ("152.163.225.39", "151.140.114.167"),
            ("192.102.249.13", "252.138.62.131"),
            ("24.0.250.221", "100.15.198.226"),
            ("4.3.88.225", "124.60.155.63"),
            ("63.14.55.111", "95.9.215.7"),
            ("64.39.15.238", "0.219.7.41"),
            ("10.185.25.118", "117.161.29.118"),
            ("::1", "78ff:f001:9fc0:20df:8380:b1f1:704:ed"),
            ("::ffff", "78ff:f001:9fc0:20df:8380:b1f1:704:f838"),
            ("2001:db8::1", "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e"),
            ("2001:db8::2", "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1c"),
        ] {
            let (address, expected): (IpAddr, IpAddr) = (address.parse().unwrap(), expected.parse().unwrap());
            assert_eq!((keyed.address(address), keyed.address(address)), (expected, expected), "{address}");
        }
    }

    #[test]
    fn what_is_common_stays_common_and_no_two_become_one() {
        let mut keyed = Keyed::of_text("a key that nobody knows");
        let mut random = testkit::random::Random(9);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..3000 {
            let base = random.number() as u32;
            let other = base ^ (random.number() as u32).checked_shr(random.below(33) as u32).unwrap_or(0);
            let [one, two] = [base, other].map(|address| keyed.v4(address));
            assert_eq!((one ^ two).leading_zeros(), (base ^ other).leading_zeros());
            for (address, mapped) in [(base, one), (other, two)] {
                assert_eq!(*seen.entry(mapped).or_insert(address), address);
            }
            let (base, other) = (u128::from(base) << 64 | 7, u128::from(other) << 64 | 9);
            let [one, two] = [base, other].map(|address| keyed.v6(address));
            assert_eq!((one ^ two).leading_zeros(), (base ^ other).leading_zeros());
        }
    }

    #[test]
    fn ethernet_addresses_keep_what_they_are() {
        let keyed = Keyed::of_text("a key that nobody knows");
        for (mac, kept) in [
            ([0, 1, 2, 3, 4, 5], 0),
            ([1, 0, 0x5e, 0, 0, 1], 1),
            ([2, 0, 0, 0, 0, 1], 2),
            ([0x33, 0x33, 0, 0, 0, 1], 3),
        ] {
            let mapped = keyed.mac(mac);
            assert_eq!((mapped[0] & 3, mapped == mac), (kept, false));
            assert_eq!(mapped, keyed.mac(mac));
            assert_ne!(mapped, Keyed::of_text("another key that nobody knows").mac(mac));
        }
        for mac in [[0xff; 6], [0; 6]] {
            assert_eq!(keyed.mac(mac), mac);
        }
    }

    #[test]
    fn keys_in_hexadecimal_are_themselves() {
        let text: String = KEY.iter().map(|byte| format!("{byte:02x}")).collect();
        let address = "128.11.68.132".parse().unwrap();
        assert_eq!(Keyed::of_text(&text).address(address).to_string(), "135.242.180.132");
        assert_ne!(Keyed::of_text(&text[1..]).address(address).to_string(), "135.242.180.132");
    }
}
