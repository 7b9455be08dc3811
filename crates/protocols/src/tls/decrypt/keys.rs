//! The keys of TLS records: suites, derivation and decryption (RFC 5246, 6.3; RFC 8446, 7.3; RFC 5288; RFC 7905).

use super::Secret;
use crate::conversation::Side;
use aes_gcm::{Aes128Gcm, Aes256Gcm};
use chacha20poly1305::ChaCha20Poly1305;
use chacha20poly1305::aead::generic_array::GenericArray;
use chacha20poly1305::aead::{AeadInPlace, KeyInit};
use hkdf::Hkdf;
use hkdf::hmac::{Hmac, Mac};
use sha2::{Sha256, Sha384};

/// The authentication tag behind the contents of a record.
pub(super) const TAG_BYTES: usize = 16;

/// The part of a nonce that stands in each record of TLS 1.2 with AES-GCM.
const EXPLICIT_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cipher {
    Aes128,
    Aes256,
    ChaCha20,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    Sha256,
    Sha384,
}

/// A cipher suite whose records can be decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suite {
    cipher: Cipher,
    hash: Hash,
    is_new: bool,
}

impl Suite {
    /// The suite with this number, of TLS 1.3 (`is_new`) or 1.2.
    pub(super) fn of(number: u16, is_new: bool) -> Option<Suite> {
        let (cipher, hash) = match (number, is_new) {
            (0x1301, true) => (Cipher::Aes128, Hash::Sha256),
            (0x1302, true) => (Cipher::Aes256, Hash::Sha384),
            (0x1303, true) => (Cipher::ChaCha20, Hash::Sha256),
            // RFC 5288, 5487, 5289, 8442: RSA, DHE, PSK, ECDHE.
            (
                0x009c | 0x009e | 0x00a0 | 0x00a8 | 0x00aa | 0x00ac | 0xc02b | 0xc02d | 0xc02f | 0xc031 | 0xd001,
                false,
            ) => (Cipher::Aes128, Hash::Sha256),
            (
                0x009d | 0x009f | 0x00a1 | 0x00a9 | 0x00ab | 0x00ad | 0xc02c | 0xc02e | 0xc030 | 0xc032 | 0xd002,
                false,
            ) => (Cipher::Aes256, Hash::Sha384),
            // RFC 7905.
            (0xcca8..=0xccae, false) => (Cipher::ChaCha20, Hash::Sha256),
            _ => return None,
        };
        Some(Suite { cipher, hash, is_new })
    }

    pub(super) fn is_new(self) -> bool {
        self.is_new
    }

    fn key_bytes(self) -> usize {
        match self.cipher {
            Cipher::Aes128 => 16,
            Cipher::Aes256 | Cipher::ChaCha20 => 32,
        }
    }

    /// Bytes of the nonce that the keys have.
    fn fixed_bytes(self) -> usize {
        12 - self.explicit_bytes()
    }

    fn explicit_bytes(self) -> usize {
        if self.is_new || self.cipher == Cipher::ChaCha20 { 0 } else { EXPLICIT_BYTES }
    }

    /// Bytes of a record that are not contents.
    pub(super) fn overhead(self) -> usize {
        self.explicit_bytes() + TAG_BYTES + usize::from(self.is_new)
    }
}

/// The cipher of one direction, and the number of its next record.
pub(super) struct Keys {
    suite: Suite,
    cipher: Ready,
    nonce: [u8; 12],
    sequence: u64,
}

enum Ready {
    Aes128(Box<Aes128Gcm>),
    Aes256(Box<Aes256Gcm>),
    ChaCha20(ChaCha20Poly1305),
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("suite", &self.suite).field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl Keys {
    fn new(suite: Suite, key: &[u8], fixed: &[u8]) -> Option<Keys> {
        let cipher = match suite.cipher {
            Cipher::Aes128 => Ready::Aes128(Box::new(Aes128Gcm::new_from_slice(key).ok()?)),
            Cipher::Aes256 => Ready::Aes256(Box::new(Aes256Gcm::new_from_slice(key).ok()?)),
            Cipher::ChaCha20 => Ready::ChaCha20(ChaCha20Poly1305::new_from_slice(key).ok()?),
        };
        let mut nonce = [0; 12];
        nonce[..fixed.len()].copy_from_slice(fixed);
        Some(Keys { suite, cipher, nonce, sequence: 0 })
    }

    /// Those of a traffic secret of TLS 1.3.
    pub(super) fn of_traffic(suite: Suite, secret: &Secret) -> Option<Keys> {
        let (mut key, mut nonce) = ([0; 32], [0; 12]);
        let key = key.get_mut(..suite.key_bytes())?;
        expand(suite, secret, "key", key)?;
        expand(suite, secret, "iv", &mut nonce)?;
        Keys::new(suite, key, &nonce)
    }

    /// Those of a master secret of TLS 1.2.
    pub(super) fn of_master(
        suite: Suite,
        secret: &Secret,
        client: &[u8; 32],
        server: &[u8; 32],
        side: Side,
    ) -> Option<Keys> {
        let (key_bytes, fixed) = (suite.key_bytes(), suite.fixed_bytes());
        // Keys of client and server, then their nonces.
        let mut block = [0; 2 * (32 + 12)];
        let block = block.get_mut(..2 * (key_bytes + fixed))?;
        let seed = [&b"key expansion"[..], server, client].concat();
        match suite.hash {
            Hash::Sha256 => pseudo_random::<Hmac<Sha256>>(secret.bytes(), &seed, block)?,
            Hash::Sha384 => pseudo_random::<Hmac<Sha384>>(secret.bytes(), &seed, block)?,
        }
        let (keys, nonces) = block.split_at(2 * key_bytes);
        let half = side.index();
        Keys::new(suite, &keys[half * key_bytes..][..key_bytes], &nonces[half * fixed..][..fixed])
    }

    pub(super) fn suite(&self) -> Suite {
        self.suite
    }

    pub(super) fn is_unused(&self) -> bool {
        self.sequence == 0
    }

    /// A record passes that is not decrypted.
    pub(super) fn pass(&mut self) {
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Decrypts the body of the next record into `out`; `false` if it is not of these keys. Then it is still the next one.
    pub(super) fn decrypt(&mut self, header: [u8; 5], body: &[u8], out: &mut Vec<u8>) -> bool {
        out.clear();
        let explicit = self.suite.explicit_bytes();
        let Some(len) = body.len().checked_sub(explicit + TAG_BYTES) else { return false };
        let (prefix, rest) = body.split_at(explicit);
        let (contents, tag) = rest.split_at(len);
        let mut nonce = self.nonce;
        let number = self.sequence.to_be_bytes();
        match explicit {
            0 => nonce[4..].iter_mut().zip(number).for_each(|(byte, number)| *byte ^= number),
            _ => nonce[4..].copy_from_slice(prefix),
        }
        out.extend_from_slice(contents);
        let old = [&number[..], &header[..3], &(len as u16).to_be_bytes()].concat();
        let about: &[u8] = if self.suite.is_new { &header } else { &old };
        let (nonce, tag) = (GenericArray::from_slice(&nonce), GenericArray::from_slice(tag));
        let is_ours = match &self.cipher {
            Ready::Aes128(cipher) => cipher.decrypt_in_place_detached(nonce, about, out, tag),
            Ready::Aes256(cipher) => cipher.decrypt_in_place_detached(nonce, about, out, tag),
            Ready::ChaCha20(cipher) => cipher.decrypt_in_place_detached(nonce, about, out, tag),
        };
        if is_ours.is_ok() {
            self.pass();
        }
        is_ours.is_ok()
    }
}

/// The traffic secret behind a KeyUpdate (RFC 8446, 7.2).
pub(super) fn updated(suite: Suite, secret: &Secret) -> Option<Secret> {
    let mut next = [0; 48];
    let next = next.get_mut(..secret.bytes().len())?;
    expand(suite, secret, "traffic upd", next)?;
    Secret::new(next)
}

/// HKDF-Expand-Label (RFC 8446, 7.1), without a context.
fn expand(suite: Suite, secret: &Secret, label: &str, out: &mut [u8]) -> Option<()> {
    let length = (out.len() as u16).to_be_bytes();
    let label_len = [("tls13 ".len() + label.len()) as u8];
    let info: [&[u8]; 5] = [&length, &label_len, b"tls13 ", label.as_bytes(), &[0]];
    match suite.hash {
        Hash::Sha256 => Hkdf::<Sha256>::from_prk(secret.bytes()).ok()?.expand_multi_info(&info, out).ok(),
        Hash::Sha384 => Hkdf::<Sha384>::from_prk(secret.bytes()).ok()?.expand_multi_info(&info, out).ok(),
    }
}

/// P_hash (RFC 5246, 5). `seed` begins with the label.
fn pseudo_random<M: Mac + hkdf::hmac::digest::KeyInit>(secret: &[u8], seed: &[u8], out: &mut [u8]) -> Option<()> {
    let hash = |parts: &[&[u8]]| {
        let mut mac = <M as Mac>::new_from_slice(secret).ok()?;
        parts.iter().for_each(|part| mac.update(part));
        Some(mac.finalize().into_bytes())
    };
    let mut step = hash(&[seed])?;
    for piece in out.chunks_mut(step.len()) {
        piece.copy_from_slice(&hash(&[&step, seed])?[..piece.len()]);
        step = hash(&[&step])?;
    }
    Some(())
}
