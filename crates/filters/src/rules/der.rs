//! What rules look at of an X.509 certificate (RFC 5280), out of its DER.

/// Nodes of one certificate that are looked at, at most.
const NODES: usize = 4096;

/// Parts of a certificate.
pub(super) struct Certificate<'a> {
    pub serial: &'a [u8],
    pub issuer: &'a [u8],
    pub subject: &'a [u8],
    /// Key and extensions.
    pub rest: &'a [u8],
}

/// The first node: its tag, what is in it, and what is behind it.
pub(super) fn node(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (inner, behind) = rest.split_at_checked(length)?;
    Some((tag, inner, behind))
}

pub(super) fn certificate(bytes: &[u8]) -> Option<Certificate<'_>> {
    let (_, outer, _) = node(bytes)?;
    let (_, mut rest, _) = node(outer)?;
    if rest.first() == Some(&0xa0) {
        rest = node(rest)?.2;
    }
    let (_, serial, rest) = node(rest)?;
    let (_, _algorithm, rest) = node(rest)?;
    let (_, issuer, rest) = node(rest)?;
    let (_, _validity, rest) = node(rest)?;
    let (_, subject, rest) = node(rest)?;
    Some(Certificate { serial, issuer, subject, rest })
}

/// A name as text: `C=US, O=Example, CN=example.org`.
pub(super) fn name(mut sets: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..NODES {
        let Some((_, set, behind)) = node(sets) else { break };
        sets = behind;
        let Some((_, pair, _)) = node(set) else { continue };
        let Some((_, kind, value)) = node(pair) else { continue };
        let Some((_, value, _)) = node(value) else { continue };
        let label: &[u8] = match kind {
            [0x55, 4, 3] => b"CN",
            [0x55, 4, 5] => b"serialNumber",
            [0x55, 4, 6] => b"C",
            [0x55, 4, 7] => b"L",
            [0x55, 4, 8] => b"ST",
            [0x55, 4, 10] => b"O",
            [0x55, 4, 11] => b"OU",
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => b"emailAddress",
            [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 0x19] => b"DC",
            _ => b"UNKNOWN",
        };
        if !out.is_empty() {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(label);
        out.push(b'=');
        out.extend_from_slice(value);
    }
    out
}

/// The names of the extension for alternative names (RFC 5280, 4.2.1.6).
pub(super) fn alternative_names(mut rest: &[u8]) -> Vec<&[u8]> {
    let mut names = Vec::new();
    while let Some((tag, inner, behind)) = node(rest) {
        rest = behind;
        if tag != 0xa3 {
            continue;
        }
        let Some((_, mut list, _)) = node(inner) else { break };
        for _ in 0..NODES {
            let Some((_, extension, behind)) = node(list) else { break };
            list = behind;
            let Some((_, kind, mut value)) = node(extension) else { continue };
            if kind != [0x55, 0x1d, 0x11] {
                continue;
            }
            if let Some((1, _, behind)) = node(value) {
                value = behind;
            }
            let Some((_, octets, _)) = node(value) else { continue };
            let Some((_, mut general, _)) = node(octets) else { continue };
            while let Some((_, name, behind)) = node(general) {
                general = behind;
                names.push(name);
                if names.len() >= NODES {
                    return names;
                }
            }
        }
    }
    names
}
