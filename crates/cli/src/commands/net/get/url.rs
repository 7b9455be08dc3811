//! Addresses of pages: `http://host:port/path`, and links relative to one (RFC 3986 5.2).

use std::fmt;
use std::net::Ipv6Addr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    /// A name or an address. IPv6 without its brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// From `/` on, with the query, without the fragment.
    pub(super) target: String,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.target)
    }
}

impl Url {
    /// Reads an absolute address. The error says what is wrong.
    pub(super) fn parse(text: &str) -> Result<Url, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(format!("`{text}` is no URL, as http://10.0.0.2/a.txt"));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "http" => {}
            "https" => return Err("https needs TLS, which `net get` does not have; it reads http only".into()),
            _ => return Err(format!("`{scheme}` is another protocol; `net get` reads http only")),
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err("a URL with a user or a password is not read".into());
        }
        // RFC 3986 3.2.2: an IPv6 address is in brackets.
        let (host, port, is_literal) = match authority.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((host, port))) => (host, port, true),
            Some(None) => return Err(format!("`{authority}` has no `]`; an address of IPv6 is written as [fd00::2]")),
            None => {
                let (host, port) = authority.split_at(authority.rfind(':').unwrap_or(authority.len()));
                (host, port, false)
            }
        };
        let port = match port.strip_prefix(':').unwrap_or(port) {
            // RFC 3986 3.2.3: the port may be empty.
            "" => 80,
            text => {
                let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && port.starts_with(':');
                let number = text.parse().ok().filter(|port| is_number && *port > 0);
                number.ok_or_else(|| format!("`{text}` is no port; a port is a number from 1 to 65535"))?
            }
        };
        if is_literal && host.parse::<Ipv6Addr>().is_err() {
            return Err(format!("`{host}` is no address of IPv6, as fd00::2"));
        }
        let is_host = |one: char| one.is_ascii_alphanumeric() || matches!(one, '-' | '.' | '_');
        if !is_literal && (host.is_empty() || !host.chars().all(is_host)) {
            return Err(format!("`{host}` is no name of a host, as example.org, 10.0.0.2 or [fd00::2]"));
        }
        Ok(Url { host: host.into(), port, target: target(path)? })
    }

    /// The address to which a link on the page at this address leads.
    pub(super) fn join(&self, link: &str) -> Result<Url, String> {
        let link = link.split('#').next().unwrap_or_default();
        let scheme = link.split_once(':').map(|(scheme, _)| scheme);
        let is_scheme = |text: &str| {
            text.starts_with(|first: char| first.is_ascii_alphabetic())
                && text.chars().all(|one| one.is_ascii_alphanumeric() || matches!(one, '+' | '-' | '.'))
        };
        if scheme.is_some_and(is_scheme) {
            return Url::parse(link);
        }
        if let Some(rest) = link.strip_prefix("//") {
            return Url::parse(&format!("http://{rest}"));
        }
        let path = self.target.split('?').next().unwrap_or_default();
        let text = match link.chars().next() {
            None => self.target.clone(),
            Some('/') => link.to_string(),
            Some('?') => format!("{path}{link}"),
            Some(_) => format!("{}/{link}", path.rsplit_once('/').map_or("", |(before, _)| before)),
        };
        Ok(Url { target: target(&text)?, ..self.clone() })
    }

    /// Host and port in the form of the field `Host`.
    pub(super) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == 80 { host } else { format!("{host}:{}", self.port) }
    }
}

/// A path and its query in the form of a request: no dot segments, and `%41` for characters that may not stand in it.
fn target(text: &str) -> Result<String, String> {
    let text = text.split('#').next().unwrap_or_default();
    if let Some(control) = text.chars().find(|one| one.is_control()) {
        return Err(format!("a URL holds no {control:?}"));
    }
    let (path, query) = text.split_at(text.find('?').unwrap_or(text.len()));
    let mut names: Vec<&str> = Vec::new();
    let parts: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    for (at, part) in parts.iter().enumerate() {
        let is_last = at + 1 == parts.len();
        match *part {
            ".." => drop(names.pop()),
            "." => {}
            name => names.push(name),
        }
        if is_last && matches!(*part, "." | "..") {
            names.push("");
        }
    }
    let mut target = String::from("/");
    for one in names.join("/").chars().chain(query.chars()) {
        if one.is_ascii_graphic() && !matches!(one, '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}') {
            target.push(one);
        } else {
            let mut bytes = [0; 4];
            target.push_str(&super::super::http::target::encoded(one.encode_utf8(&mut bytes).as_bytes()));
        }
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(read: Result<Url, String>, expected: Result<&str, &str>, what: &str) {
        match (read.map(|url| url.to_string()), expected) {
            (Ok(url), Ok(expected)) => assert_eq!(url, expected, "{what}"),
            (Err(told), Err(expected)) => assert!(told.contains(expected), "{what}: {told}"),
            (read, expected) => panic!("{what}: {read:?}, not {expected:?}"),
        }
    }

    #[test]
    fn addresses_are_read_or_told_what_is_wrong() {
        for (text, expected) in [
            ("http://h", Ok("http://h/")),
            ("HTTP://h:8080/a/b?c#d", Ok("http://h:8080/a/b?c")),
            ("http://h:/", Ok("http://h/")),
            ("http://h?q", Ok("http://h/?q")),
            ("http://h/a b/ä", Ok("http://h/a%20b/%C3%A4")),
            ("http://h/a%20b", Ok("http://h/a%20b")),
            ("http://h/../a/./b/..", Ok("http://h/a/")),
            ("https://h/", Err("https needs TLS")),
            ("ftp://h/", Err("`ftp` is another protocol")),
            ("h/a", Err("is no URL")),
            ("", Err("is no URL")),
            ("http://", Err("is no name of a host")),
            ("http://h:0/", Err("is no port")),
            ("http://h:+1/", Err("is no port")),
            ("http://h:65536/", Err("is no port")),
            ("http://u:p@h/", Err("user or a password")),
            ("http://[fd00::2]", Ok("http://[fd00::2]/")),
            ("http://[fd00::2]:8080/a", Ok("http://[fd00::2]:8080/a")),
            ("http://[fd00::2]:/a", Ok("http://[fd00::2]/a")),
            ("http://[fd00::2/", Err("has no `]`")),
            ("http://[fd00::2]80/", Err("`80` is no port")),
            ("http://[fd00::2]:0/", Err("is no port")),
            ("http://[10.0.0.2]/", Err("is no address of IPv6")),
            ("http://[fe80::1%25eth0]/", Err("is no address of IPv6")),
            ("http://fd00::2/", Err("is no name of a host")),
            ("http://h\r\nX/", Err("is no name of a host")),
            ("http://h/a\r\nX: y", Err("holds no '\\r'")),
        ] {
            check(Url::parse(text), expected, text);
        }
    }

    #[test]
    fn links_are_followed() {
        let page = Url::parse("http://h:81/a/b?c").unwrap();
        for (link, expected) in [
            ("d", Ok("http://h:81/a/d")),
            ("../d", Ok("http://h:81/d")),
            ("./", Ok("http://h:81/a/")),
            ("/d", Ok("http://h:81/d")),
            ("?d", Ok("http://h:81/a/b?d")),
            ("", Ok("http://h:81/a/b?c")),
            ("#x", Ok("http://h:81/a/b?c")),
            ("//i/d", Ok("http://i/d")),
            ("http://i/d", Ok("http://i/d")),
            ("d/e:f", Ok("http://h:81/a/d/e:f")),
            ("https://i/", Err("https needs TLS")),
            ("d\n", Err("holds no")),
        ] {
            check(page.join(link), expected, link);
        }
    }
}
