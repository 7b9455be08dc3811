//! HTTP request targets in normal form: percent-decoded, without detours in the path.

/// The path and query of a target: percent-decoded once, backslashes replaced, empty and dotted segments resolved.
pub fn normal(target: &[u8]) -> Vec<u8> {
    let target = if let Some(host) = host(target) {
        let start = scheme_len(target).unwrap_or(0) + host.len();
        &target[start.min(target.len())..]
    } else {
        target
    };
    let fragment = memchr::memchr(b'#', target).unwrap_or(target.len());
    let (target, fragment) = target.split_at(fragment);
    let query = memchr::memchr(b'?', target).unwrap_or(target.len());
    let (path, query) = target.split_at(query);
    let mut out = without_dots(&decoded(path));
    out.extend_from_slice(&unescaped(query));
    out.extend_from_slice(fragment);
    out
}

/// Length of the scheme of an absolute target, with `://`.
fn scheme_len(target: &[u8]) -> Option<usize> {
    let at = memchr::memmem::find(target, b"://")?;
    let is_scheme = at > 0 && target[..at].iter().all(u8::is_ascii_alphanumeric);
    is_scheme.then_some(at + 3)
}

/// The authority of an absolute target.
pub fn host(target: &[u8]) -> Option<&[u8]> {
    let rest = &target[scheme_len(target)?..];
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// An authority without user and port.
pub fn without_port(host: &[u8]) -> &[u8] {
    let host = memchr::memrchr(b'@', host).map_or(host, |at| &host[at + 1..]);
    let from = memchr::memchr(b']', host).unwrap_or(0);
    memchr::memchr(b':', &host[from..]).map_or(host, |at| &host[..from + at])
}

/// Decodes percent encoding once.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let digit = |at: usize| path.get(at).and_then(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8);
    let mut at = 0;
    while let Some(byte) = path.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                at += 2;
            }
            (b'%', ..) if path.get(at + 1).is_some_and(|next| matches!(next, b'u' | b'U')) => {
                let digits = [2, 3, 4, 5].map(|skip| digit(at + skip));
                match digits {
                    [Some(a), Some(b), Some(c), Some(d)] => {
                        let (high, low) = (a << 4 | b, c << 4 | d);
                        out.push(if high == 0 || high == 0xff { low } else { b'?' });
                        at += 5;
                    }
                    _ => out.push(b'%'),
                }
            }
            (byte, ..) => out.push(*byte),
        }
        at += 1;
    }
    out
}

/// Decodes percent encoding, and turns backslashes into slashes.
fn decoded(path: &[u8]) -> Vec<u8> {
    let mut out = unescaped(path);
    out.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    out
}

/// Removes empty and dotted segments.
fn without_dots(path: &[u8]) -> Vec<u8> {
    if path.first() != Some(&b'/') {
        return path.to_vec();
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut segments = path[1..].split(|byte| *byte == b'/').peekable();
    let mut ends_open = false;
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        ends_open = last && matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let mut out = Vec::with_capacity(path.len());
    for segment in &kept {
        out.push(b'/');
        out.extend_from_slice(segment);
    }
    if ends_open || out.is_empty() {
        out.push(b'/');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let rows = [
            ("/a/b", "/a/b"),
            ("/a/./b/../c", "/a/c"),
            ("/../../x", "/x"),
            ("//a///b", "/a/b"),
            ("/a%20b?c%20d", "/a b?c d"),
            ("/a\\b", "/a/b"),
            ("http://h.example:80/a/?b", "/a/?b"),
            ("*", "*"),
            ("/%u0041", "/A"),
            ("/a/..", "/"),
            ("/%2e%2e/a%", "/a%"),
        ];
        for (target, expected) in rows {
            assert_eq!(String::from_utf8_lossy(&normal(target.as_bytes())), expected, "{target}");
        }
        assert_eq!(without_port(b"u@[::1]:80"), b"[::1]");
        assert_eq!(host(b"http://a.example/x"), Some(&b"a.example"[..]));
    }
}
