//! Appends digests of a peer's offer as text. JA3, JA4 and HASSH identify programs by such digests.

use md5::{Digest, Md5};
use protocols::fingerprint::Ja4;
use sha1::Sha1;
use sha2::Sha256;

/// Appends an MD5 digest in hexadecimal: JA3, HASSH.
pub fn append_md5(out: &mut Vec<u8>, bytes: &[u8]) {
    packet::text::append_hex(out, &Md5::digest(bytes));
}

/// Appends a SHA-1 digest in hexadecimal with colons: the usual name of a certificate.
pub fn append_sha1(out: &mut Vec<u8>, bytes: &[u8]) {
    append_with_colons(out, &Sha1::digest(bytes));
}

/// Appends bytes in hexadecimal with colons.
pub fn append_with_colons(out: &mut Vec<u8>, bytes: &[u8]) {
    for (index, byte) in bytes.iter().enumerate() {
        if index > 0 {
            out.push(b':');
        }
        packet::text::append_hex(out, &[*byte]);
    }
}

/// Appends a JA4 fingerprint, made from its parts.
pub fn append_ja4(out: &mut Vec<u8>, ja4: &Ja4) {
    out.extend_from_slice(&ja4.head);
    for part in [&ja4.cipher_suites, &ja4.extensions] {
        out.push(b'_');
        match part.is_empty() {
            true => out.extend_from_slice(&[b'0'; 12]),
            false => packet::text::append_hex(out, &Sha256::digest(part)[..6]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn md5() {
        let mut out = Vec::new();
        append_md5(&mut out, b"abc");
        assert_eq!(out, b"900150983cd24fb0d6963f7d28e17f72");
    }

    #[test]
    fn ja4() {
        let check = |cipher_suites: &[u8], expected: &str| {
            let mut out = Vec::new();
            let ja4 = Ja4 { head: b"t12i0000".to_vec(), cipher_suites: cipher_suites.to_vec(), extensions: Vec::new() };
            append_ja4(&mut out, &ja4);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check(b"", "t12i0000_000000000000_000000000000");
        check(b"abc", "t12i0000_ba7816bf8f01_000000000000");
    }

    #[test]
    fn colons() {
        let mut out = Vec::new();
        append_with_colons(&mut out, &[0, 0xab, 1]);
        assert_eq!(out, b"00:ab:01");
    }
}
