//! The keys of Initial packets (RFC 9001, 5), and decryption with them. They protect against errors, not against
//! readers: anyone who sees the packets can derive them.

use super::{Initial, Version};
use crate::conversation::Side;
use aes::Aes128;
use aes_gcm::aead::generic_array::GenericArray;
use aes_gcm::aead::{AeadInPlace, KeyInit};
use aes_gcm::aes::cipher::BlockEncrypt;
use aes_gcm::{Aes128Gcm, Tag};
use hkdf::Hkdf;
use sha2::Sha256;

/// The authentication tag behind the contents.
const TAG_BYTES: usize = 16;

/// Keys of one direction, without what ciphers make of them: that has 1.4 KiB, and few packets come.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    packet: [u8; 16],
    nonce: [u8; 12],
    header: [u8; 16],
}

impl Keys {
    /// The keys of a side. `target`: the server's identifier in the client's first packet.
    pub fn of(version: Version, target: &[u8], side: Side) -> Option<Keys> {
        let initial = Hkdf::<Sha256>::new(Some(version.salt), target);
        let secret: [u8; 32] = expand(&initial, if side.is_client() { "client in" } else { "server in" })?;
        let own = Hkdf::<Sha256>::from_prk(&secret).ok()?;
        let label = |name: &str| format!("{} {name}", version.label);
        Some(Keys {
            packet: expand(&own, &label("key"))?,
            nonce: expand(&own, &label("iv"))?,
            header: expand(&own, &label("hp"))?,
        })
    }

    fn packet(&self) -> Aes128Gcm {
        Aes128Gcm::new(&self.packet.into())
    }

    fn header(&self) -> Aes128 {
        Aes128::new(&self.header.into())
    }

    /// Decrypts a packet's frames into `out`; `false` if the keys are not the packet's.
    pub fn decrypt(&self, initial: &Initial<'_>, out: &mut Vec<u8>) -> bool {
        out.clear();
        out.extend_from_slice(initial.packet);
        let mut mask = GenericArray::from(initial.sample());
        self.header().encrypt_block(&mut mask);
        let Some(first) = out.first_mut() else { return false };
        *first ^= mask[0] & 0x0f;
        let number_len = usize::from(*first & 3) + 1;
        let contents_at = initial.number_at + number_len;
        let Some(number) = out.get_mut(initial.number_at..contents_at) else { return false };
        let mut nonce = self.nonce;
        let places = nonce.iter_mut().skip(12 - number_len);
        for ((byte, mask), place) in number.iter_mut().zip(&mask[1..]).zip(places) {
            *byte ^= mask;
            *place ^= *byte;
        }
        let Some(contents) = out.len().checked_sub(TAG_BYTES).filter(|end| *end >= contents_at) else { return false };
        let tag = Tag::clone_from_slice(&out[contents..]);
        out.truncate(contents);
        let (header, contents) = out.split_at_mut(contents_at);
        if self.packet().decrypt_in_place_detached(&nonce.into(), header, contents, &tag).is_err() {
            return false;
        }
        out.drain(..contents_at);
        true
    }
}

/// HKDF-Expand-Label of TLS 1.3 (RFC 8446, 7.1), without a context.
fn expand<const N: usize>(secret: &Hkdf<Sha256>, label: &str) -> Option<[u8; N]> {
    let mut out = [0; N];
    let length = [(N >> 8) as u8, N as u8];
    let label_len = [("tls13 ".len() + label.len()) as u8];
    secret.expand_multi_info(&[&length, &label_len, b"tls13 ", label.as_bytes(), &[0]], &mut out).ok()?;
    Some(out)
}

/// Encrypts frames like the client of RFC 9001, A.2, in a packet with the number 2: for tests.
#[cfg(test)]
pub(super) fn encrypt(target: &[u8], frames: &[u8]) -> Vec<u8> {
    let version = Version::of(1).expect("a client's first packet");
    let keys = Keys::of(version, target, Side::Client).expect("a client's first packet");
    let length = frames.len() + 4 + TAG_BYTES;
    let prefix = [&[0xc3, 0, 0, 0, 1, target.len() as u8][..], target, &[0, 0]].concat();
    let length = [0x40 | (length >> 8) as u8, length as u8];
    let mut packet = [&prefix[..], &length, &[0, 0, 0, 2], frames].concat();
    let number_at = prefix.len() + 2;
    let mut nonce = keys.nonce;
    nonce[11] ^= 2;
    let (header, contents) = packet.split_at_mut(number_at + 4);
    let tag =
        keys.packet().encrypt_in_place_detached(&nonce.into(), header, contents).expect("a client's first packet");
    packet.extend_from_slice(&tag);
    let mut mask = GenericArray::clone_from_slice(&packet[number_at + 4..number_at + 20]);
    keys.header().encrypt_block(&mut mask);
    packet[0] ^= mask[0] & 0x0f;
    packet[number_at..number_at + 4].iter_mut().zip(&mask[1..]).for_each(|(byte, mask)| *byte ^= mask);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The packet of RFC 9001, A.2: its first and last bytes.
    #[test]
    fn as_the_rfc_has_it() {
        let hello = "060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47f06a2b69484c00000413011302010000c0\
            00000010000e00000b6578616d706c652e636f6dff01000100000a00080006001d0017001800100007000504616c706e0005000501000000\
            0000330026002400 1d00209370b2c9caa47fbabaf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b0003020304000d0010000e04\
            03050306030203080408050806002d00020101001c00024001003900320408ffffffffffffffff05048000ffff0704800 0ffff0801100104\
            8000 75300901100f088394c8f03e51570806048000ffff";
        let digits: Vec<u8> = hello.bytes().filter(u8::is_ascii_hexdigit).collect();
        let mut frames: Vec<u8> =
            digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
        frames.resize(1162, 0);
        let target = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
        let packet = encrypt(&target, &frames);
        assert_eq!(packet[..18], [0xc0, 0, 0, 0, 1, 8, 0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 8, 0, 0, 0x44, 0x9e]);
        assert_eq!(packet[18..26], [0x7b, 0x9a, 0xec, 0x34, 0xd1, 0xb1, 0xc9, 0x8d]);
        assert_eq!(
            packet[1184..],
            [0xe2, 0x21, 0xaf, 0x44, 0x86, 0x00, 0x18, 0xab, 0x08, 0x56, 0x97, 0x2e, 0x19, 0x4c, 0xd9, 0x34]
        );
        let (initial, end) = Initial::parse(&packet).unwrap();
        let keys = Keys::of(initial.version, initial.target, Side::Client).unwrap();
        let mut out = Vec::new();
        assert!(keys.decrypt(&initial, &mut out));
        assert_eq!((out, end), (frames, 1200));
        let mut damaged = packet.clone();
        damaged[600] ^= 1;
        assert!(!keys.decrypt(&Initial::parse(&damaged).unwrap().0, &mut Vec::new()));
    }
}
