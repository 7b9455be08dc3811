//! Targets of requests (RFC 9112 3.2): splits them into names, and encodes names for links and pages.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStringExt;

#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Target {
    /// The names from the root on. No name is empty, `.` or `..`, or contains `/` or a zero byte.
    pub(in super::super) names: Vec<OsString>,
    /// Whether it ends with `/`, or is the root.
    pub(in super::super) is_folder: bool,
    /// The query with its `?`. Empty if there is none.
    pub(in super::super) query: String,
}

/// Reads a target. `None`: it is no path, leads above the root, or has a character that no name can have.
pub(in super::super) fn target(text: &str) -> Option<Target> {
    // RFC 9112 3.2.2: a server accepts the absolute form, too.
    let rest = match text.get(..7) {
        Some(scheme) if scheme.eq_ignore_ascii_case("http://") => {
            text[7..].find(['/', '?']).map_or("/", |at| &text[7 + at..])
        }
        _ => text,
    };
    let (path, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    let path = match path.strip_prefix('/') {
        Some(path) => path,
        None if path.is_empty() && rest.len() != text.len() => "",
        None => return None,
    };
    let mut names = Vec::new();
    let mut is_folder = true;
    for part in path.split('/') {
        let name = decoded(part)?;
        is_folder = matches!(&name[..], b"" | b"." | b"..");
        match &name[..] {
            b"" | b"." => {}
            b".." => drop(names.pop()?),
            name if name.contains(&b'/') || name.contains(&0) => return None,
            _ => names.push(OsString::from_vec(name)),
        }
    }
    Some(Target { names, is_folder, query: query.into() })
}

/// Decodes `%41` to the byte it stands for.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let [high, low, more @ ..] = rest else { return None };
        bytes.push((digit(*high)? * 16 + digit(*low)?) as u8);
        rest = more;
    }
    Some(bytes)
}

/// A name for a link: every byte except letters, digits and `-._~` becomes `%41` (RFC 3986 2.3).
pub(in super::super) fn encoded(name: &[u8]) -> String {
    let mut text = String::new();
    for byte in name {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// A text for an HTML page.
pub(in super::super) fn escaped(text: &str) -> String {
    let mut page = String::new();
    for letter in text.chars() {
        match letter {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            _ => page.push(letter),
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_names_below_the_root_or_none() {
        let check = |text: &str, expected: Option<(&[&str], bool, &str)>| {
            let expected = expected.map(|(names, is_folder, query)| Target {
                names: names.iter().map(OsString::from).collect(),
                is_folder,
                query: query.into(),
            });
            assert_eq!(target(text), expected, "{text}");
        };
        check("/", Some((&[], true, "")));
        check("/a", Some((&["a"], false, "")));
        check("/a/", Some((&["a"], true, "")));
        check("//a//b", Some((&["a", "b"], false, "")));
        check("/a/b/../c?q=/..", Some((&["a", "c"], false, "?q=/..")));
        check("/a/..", Some((&[], true, "")));
        check("/a/%2e%2E/b", Some((&["b"], false, "")));
        check("/a%20b%C3%A4", Some((&["a bä"], false, "")));
        check("/...", Some((&["..."], false, "")));
        check("/%", None);
        check("/%4", None);
        check("/%zz", None);
        check("/%+1", None);
        check("/a%00b", None);
        check("/a%2fb", None);
        check("/..", None);
        check("/../etc/passwd", None);
        check("/a/../../etc/passwd", None);
        check("/%2e%2e/etc/passwd", None);
        check("/%2e%2e%2fetc/passwd", None);
        check("/.%2e/etc/passwd", None);
        check("a", None);
        check("", None);
        check("*", None);
        check("?a", None);
        check("https://h/a", None);
        check("http://h", Some((&[], true, "")));
        check("HTTP://h:80/a?b", Some((&["a"], false, "?b")));
        check("http://h?b", Some((&[], true, "?b")));
        check("http://h/../a", None);
    }

    #[test]
    fn names_are_quoted_for_links_and_pages() {
        assert_eq!(encoded("a b<ä:/%".as_bytes()), "a%20b%3C%C3%A4%3A%2F%25");
        assert_eq!(escaped("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
    }
}
