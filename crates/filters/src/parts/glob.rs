//! Patterns of names with `*` and `?`.

/// Whether a name is a pattern.
pub fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// Whether the pattern with `*` and `?` matches the whole name. Tries again only from the last `*`, so the time is at most
/// the product of both lengths.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[n] => (p, n) = (p + 1, n + 1),
            _ => {
                let Some((after, taken)) = star else { return false };
                star = Some((after, taken + 1));
                (p, n) = (after, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let rows = [
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("*.pcap", "a.pcap", true),
            ("*.pcap", "a.pcapng", false),
            ("?.pcap", "ab.pcap", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("**", "", true),
            ("a?", "a", false),
            ("[a]", "[a]", true),
        ];
        for (pattern, name, expected) in rows {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
        let (stars, long) = ("*a".repeat(200), "a".repeat(199) + "b");
        assert!(!matches(stars.as_bytes(), long.as_bytes()), "in time");
    }
}
