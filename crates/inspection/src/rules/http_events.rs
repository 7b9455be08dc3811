//! Anomalies in the head of an HTTP/1.x message (RFC 9110, RFC 9112), named as in `app-layer-event`. Anomalies of
//! bodies are found elsewhere.

use protocols::http::{trim, uri, without_end};
use rules::Transaction;

/// Longest line without an event.
const LINE_BYTES: usize = 18_000;
/// Most repetitions of a field without an event.
const REPETITIONS: usize = 64;
/// Most nested codings without an event.
const CODINGS: usize = 2;

/// Adds the events of a head. `line` and `block` include their line ends.
pub(super) fn head(one: &mut Transaction, to_server: bool, line: &[u8], block: &[u8]) {
    let mut odd = Odd { one, to_server };
    if to_server {
        odd.request(line, block);
    } else {
        odd.response(line);
    }
    odd.fields(line, block);
}

struct Odd<'a> {
    one: &'a mut Transaction,
    to_server: bool,
}

impl Odd<'_> {
    fn add_if(&mut self, holds: bool, event: &'static str) {
        if holds {
            self.one.put_event(event, self.to_server);
        }
    }

    /// Adds the event of this side.
    fn sided(&mut self, holds: bool, request: &'static str, response: &'static str) {
        self.add_if(holds, if self.to_server { request } else { response });
    }

    fn request(&mut self, line: &[u8], block: &[u8]) {
        let text = without_end(line);
        self.add_if(
            text.first().is_some_and(|byte| byte.is_ascii_whitespace()),
            "http.request_line_leading_whitespace",
        );
        let mut blanks = text.iter().filter(|byte| byte.is_ascii_whitespace());
        self.add_if(blanks.next().is_some_and(|blank| *blank != b' '), "http.method_delim_non_compliant");
        self.add_if(blanks.next().is_some_and(|blank| *blank != b' '), "http.uri_delim_non_compliant");
        let mut words = text.split(|byte| *byte == b' ' || *byte == b'\t').filter(|word| !word.is_empty());
        let (target, version) = (words.nth(1).unwrap_or_default(), words.next_back().unwrap_or_default());
        self.add_if(is_coded_twice(target), "http.double_encoded_uri");
        let mut hosts = values(block, b"host");
        let host = hosts.next();
        self.add_if(host.is_none() && version.eq_ignore_ascii_case(b"HTTP/1.1"), "http.missing_host_header");
        self.add_if(host.is_some_and(|host| !is_host(host)), "http.request_header_host_invalid");
        if let Some(of_target) = uri::host(target) {
            let name = uri::without_port;
            self.add_if(!is_host(of_target), "http.request_uri_host_invalid");
            let differs = |host: &[u8]| !name(host).eq_ignore_ascii_case(name(of_target));
            self.add_if(host.is_some_and(differs), "http.host_header_ambiguous");
        }
        const SCHEMES: &[&[u8]] = &[b"basic", b"digest", b"bearer", b"negotiate", b"ntlm"];
        let scheme = |value: &[u8]| value.split(|byte| *byte == b' ').next().unwrap_or_default().to_ascii_lowercase();
        let unknown = values(block, b"authorization").any(|value| !SCHEMES.contains(&&scheme(value)[..]));
        self.add_if(unknown, "http.request_auth_unrecognized");
        let range = values(block, b"range").any(|value| !is_range(value));
        self.add_if(range, "http.range_invalid");
    }

    fn response(&mut self, line: &[u8]) {
        let text = without_end(line);
        let mut words = text.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let version = words.next().unwrap_or_default();
        let known = matches!(version, b"HTTP/0.9" | b"HTTP/1.0" | b"HTTP/1.1");
        self.add_if(!known, "http.response_invalid_protocol");
        let status = words.next().and_then(|word| std::str::from_utf8(word).ok()).and_then(|word| word.parse().ok());
        self.add_if(!matches!(status, Some(100..=999_u16)), "http.response_invalid_status");
    }

    fn fields(&mut self, line: &[u8], block: &[u8]) {
        let lines = || block.split(|byte| *byte == b'\n').map(without_end).filter(|line| !line.is_empty());
        let folded = |line: &[u8]| matches!(line.first(), Some(b' ' | b'\t'));
        let is_long = line.len() > LINE_BYTES || lines().any(|line| line.len() > LINE_BYTES);
        self.sided(is_long, "http.request_field_too_long", "http.response_field_too_long");
        let no_colon = lines().any(|line| !folded(line) && memchr::memchr(b':', line).is_none());
        self.sided(no_colon, "http.request_field_missing_colon", "http.response_field_missing_colon");
        let invalid = lines().filter(|line| !folded(line)).any(|line| {
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            name.is_empty() || name.iter().any(|byte| !byte.is_ascii_graphic() || b"()<>@,;\\\"/[]?={}".contains(byte))
        });
        self.sided(invalid && !no_colon, "http.request_header_invalid", "http.response_header_invalid");
        // The first field line is a continuation line.
        let first_folded = lines().next().is_some_and(folded);
        self.sided(first_folded, "http.invalid_request_field_folding", "http.invalid_response_field_folding");
        let lengths: Vec<&[u8]> = values(block, b"content-length").collect();
        let bad = lengths.iter().any(|value| value.is_empty() || !value.iter().all(u8::is_ascii_digit));
        self.sided(
            bad,
            "http.invalid_content_length_field_in_request",
            "http.invalid_content_length_field_in_response",
        );
        self.sided(
            lengths.len() > 1,
            "http.duplicate_content_length_field_in_request",
            "http.duplicate_content_length_field_in_response",
        );
        let coded = |value: &[u8], word: &[u8]| {
            value.split(|byte| *byte == b',').any(|part| trim(part).eq_ignore_ascii_case(word))
        };
        let unknown = values(block, b"transfer-encoding").any(|value| {
            value.split(|byte| *byte == b',').map(|part| trim(part).to_ascii_lowercase()).any(|part| {
                !matches!(&part[..], b"chunked" | b"gzip" | b"deflate" | b"compress" | b"x-gzip" | b"identity")
            })
        });
        self.sided(
            unknown,
            "http.invalid_transfer_encoding_value_in_request",
            "http.invalid_transfer_encoding_value_in_response",
        );
        if !self.to_server {
            let chunked = values(block, b"transfer-encoding").any(|value| coded(value, b"chunked"));
            self.add_if(
                chunked && (line.starts_with(b"HTTP/1.0") || line.starts_with(b"HTTP/0.9")),
                "http.response_chunked_old_proto",
            );
            self.add_if(chunked && unknown, "http.response_abnormal_transfer_encoding");
            let codings: Vec<&[u8]> = values(block, b"content-encoding")
                .flat_map(|value| value.split(|byte| *byte == b','))
                .map(trim)
                .collect();
            self.add_if(codings.len() > CODINGS, "http.too_many_encoding_layers");
            let known = |coding: &&[u8]| {
                matches!(
                    &coding.to_ascii_lowercase()[..],
                    b"" | b"gzip"
                        | b"x-gzip"
                        | b"deflate"
                        | b"x-deflate"
                        | b"br"
                        | b"zstd"
                        | b"lzma"
                        | b"compress"
                        | b"identity"
                        | b"inflate"
                )
            };
            self.add_if(!codings.iter().all(known), "http.abnormal_ce_header");
        }
        let mut counts: Vec<(Vec<u8>, usize)> = Vec::new();
        for line in lines().filter(|line| !folded(line)) {
            let name = trim(line.split(|byte| *byte == b':').next().unwrap_or_default()).to_ascii_lowercase();
            match counts.iter().position(|count| count.0 == name) {
                Some(at) => counts[at].1 += 1,
                // Comparing more names would take too long.
                None if counts.len() < REPETITIONS => counts.push((name, 1)),
                None => {}
            }
        }
        let repeated = counts.iter().any(|count| count.1 > REPETITIONS);
        self.sided(repeated, "http.request_header_repetition", "http.response_header_repetition");
    }
}

fn values<'a>(block: &'a [u8], wanted: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    block.split(|byte| *byte == b'\n').filter_map(move |line| {
        let colon = memchr::memchr(b':', line)?;
        trim(&line[..colon]).eq_ignore_ascii_case(wanted).then(|| trim(&line[colon + 1..]))
    })
}

/// Whether part of the target is percent-encoded twice.
fn is_coded_twice(target: &[u8]) -> bool {
    let digits = |at: usize| target.get(at..at + 2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    memchr::memmem::find_iter(target, b"%25").any(|at| digits(at + 3))
}

/// Whether it is a name or an address, with an optional port (RFC 3986, 3.2.2).
fn is_host(host: &[u8]) -> bool {
    let host = memchr::memrchr(b'@', host).map_or(host, |at| &host[at + 1..]);
    let name = uri::without_port(host);
    let port = host.get(name.len()..).unwrap_or_default();
    let port = port.strip_prefix(b":").unwrap_or(port);
    let inner = name.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    let fits = match inner {
        Some(address) => address.iter().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.')),
        None => {
            name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(byte) || *byte >= 128)
        }
    };
    !name.is_empty() && fits && port.iter().all(u8::is_ascii_digit)
}

/// Whether it is a list of byte ranges (RFC 9110, 14.1.2).
fn is_range(value: &[u8]) -> bool {
    let Some(rest) = value.strip_prefix(b"bytes=") else { return false };
    rest.split(|byte| *byte == b',').map(trim).all(|part| {
        let Some(dash) = memchr::memchr(b'-', part) else { return false };
        let (from, to) = (&part[..dash], &part[dash + 1..]);
        let digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
        digits(from) && digits(to) && !(from.is_empty() && to.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::names::App;

    fn events(to_server: bool, line: &str, block: &str) -> Vec<&'static str> {
        let mut one = Transaction::new(App::Http1, 0);
        head(&mut one, to_server, line.as_bytes(), block.as_bytes());
        one.events.iter().map(|event| event.0).collect()
    }

    #[test]
    fn requests() {
        let check = |line: &str, block: &str, expected: &[&str]| {
            assert_eq!(events(true, line, block), expected, "{line:?} {:?}", &block[..block.len().min(80)]);
        };
        let host = "Host: a.example\r\n";
        check("GET / HTTP/1.1\r\n", host, &[]);
        check("GET / HTTP/1.0\r\n", "", &[]);
        check("GET / HTTP/1.1\r\n", "", &["http.missing_host_header"]);
        check("GET\t/ HTTP/1.1\r\n", host, &["http.method_delim_non_compliant"]);
        check("GET /\tHTTP/1.1\r\n", host, &["http.uri_delim_non_compliant"]);
        check(" GET / HTTP/1.0\r\n", "", &["http.request_line_leading_whitespace"]);
        check("GET /a%2527 HTTP/1.1\r\n", host, &["http.double_encoded_uri"]);
        check("GET /a%25zz HTTP/1.1\r\n", host, &[]);
        check("GET http://b.example/ HTTP/1.1\r\n", host, &["http.host_header_ambiguous"]);
        check("GET http://a.example:80/ HTTP/1.1\r\n", host, &[]);
        check("GET / HTTP/1.1\r\n", "Host: a b\r\n", &["http.request_header_host_invalid"]);
        check("GET / HTTP/1.1\r\n", "Host: [::1]:8080\r\n", &[]);
        check("GET / HTTP/1.0\r\n", "Content-Length: x\r\n", &["http.invalid_content_length_field_in_request"]);
        let twice = "Content-Length: 1\r\nContent-Length: 1\r\n";
        check("GET / HTTP/1.0\r\n", twice, &["http.duplicate_content_length_field_in_request"]);
        check("GET / HTTP/1.0\r\n", "nothing\r\n", &["http.request_field_missing_colon"]);
        check("GET / HTTP/1.0\r\n", "a b: c\r\n", &["http.request_header_invalid"]);
        check("GET / HTTP/1.0\r\n", " a\r\nb: c\r\n", &["http.invalid_request_field_folding"]);
        check("GET / HTTP/1.0\r\n", "Transfer-Encoding: odd\r\n", &["http.invalid_transfer_encoding_value_in_request"]);
        check("GET / HTTP/1.0\r\n", "Authorization: Odd x\r\n", &["http.request_auth_unrecognized"]);
        check("GET / HTTP/1.0\r\n", "Range: bytes=0-1,5-\r\n", &[]);
        check("GET / HTTP/1.0\r\n", "Range: bytes=-\r\n", &["http.range_invalid"]);
        check("GET / HTTP/1.0\r\n", &format!("A: {}\r\n", "x".repeat(LINE_BYTES)), &["http.request_field_too_long"]);
        check("GET / HTTP/1.0\r\n", &"A: x\r\n".repeat(65), &["http.request_header_repetition"]);
    }

    #[test]
    fn responses() {
        let check =
            |line: &str, block: &str, expected: &[&str]| assert_eq!(events(false, line, block), expected, "{line}");
        check("HTTP/1.1 200 OK\r\n", "", &[]);
        check("HTTP/1.9 200 OK\r\n", "", &["http.response_invalid_protocol"]);
        check("HTTP/1.1 x OK\r\n", "", &["http.response_invalid_status"]);
        check("HTTP/1.0 200 OK\r\n", "Transfer-Encoding: chunked\r\n", &["http.response_chunked_old_proto"]);
        check("HTTP/1.1 200 OK\r\n", "Content-Encoding: odd\r\n", &["http.abnormal_ce_header"]);
        check("HTTP/1.1 200 OK\r\n", "Content-Encoding: gzip, gzip, gzip\r\n", &["http.too_many_encoding_layers"]);
    }
}
