//! Header fields of HTTP/2 as buffers.

use crate::rules::dns;
use crate::rules::http::{put_host, put_pairs};
use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use protocols::http::uri;
use rules::Transaction;
use rules::names::{App, Buffer};

/// Adds the fields as for HTTP/1, and the pseudo-header fields. Returns the file name of the body.
pub(super) fn put_head(one: &mut Transaction, to_server: bool, fields: &[(Vec<u8>, Vec<u8>)]) -> Option<Vec<u8>> {
    let value = |wanted: &[u8]| fields.iter().find(|field| field.0 == wanted).map(|field| &field.1[..]);
    let mut line = Vec::new();
    if let Some(path) = value(b":path") {
        one.put_copy(Buffer::HTTP_URI_RAW, to_server, path);
        one.put_copy(Buffer::HTTP_URI, to_server, &uri::normal(path));
    }
    if let Some(method) = value(b":method") {
        one.put_copy(Buffer::HTTP_METHOD, to_server, method);
        line = [method, b" ", value(b":path").unwrap_or(b"*"), b" HTTP/2\r\n"].concat();
        one.put_copy(Buffer::HTTP_REQUEST_LINE, to_server, &line);
    }
    if let Some(status) = value(b":status") {
        one.put_copy(Buffer::HTTP_STAT_CODE, to_server, status);
        one.put_copy(Buffer::HTTP_STAT_MSG, to_server, b"");
        line = [b"HTTP/2 ", status, b"\r\n"].concat();
        one.put_copy(Buffer::HTTP_RESPONSE_LINE, to_server, &line);
    }
    one.put_copy(Buffer::HTTP_PROTOCOL, to_server, b"HTTP/2");
    let pairs = fields.iter().map(|(name, value)| (&name[..], value.clone()));
    let (file, _) = put_pairs(one, to_server, pairs);
    let mut raw = Vec::new();
    for (name, value) in fields {
        let from = raw.len();
        for part in [&name[..], b": ", value, b"\r\n"] {
            raw.extend_from_slice(part);
        }
        one.put_copy(Buffer::HTTP2_HEADER_NAME, to_server, name);
        one.put_copy(Buffer::HTTP2_HEADER, to_server, &raw[from..raw.len() - 2]);
    }
    one.put_copy(Buffer::HTTP_HEADER_RAW, to_server, &raw);
    line.extend_from_slice(&raw);
    one.put_copy(Buffer::HTTP_START, to_server, &line);
    let (authority, host) = (value(b":authority"), value(b"host"));
    if let Some(name) = authority.or(host)
        && to_server
    {
        put_host(one, name);
    }
    if let Some((authority, host)) = authority.zip(host)
        && !authority.eq_ignore_ascii_case(host)
    {
        one.events.push(("http2.authority_host_mismatch", to_server));
    }
    if authority.is_some_and(|authority| authority.contains(&b'@')) {
        one.events.push(("http2.userinfo_in_uri", to_server));
    }
    let says_dns = |name: &[u8]| value(name).is_some_and(|value| value.starts_with(b"application/dns-message"));
    if says_dns(b"accept") || says_dns(b"content-type") {
        one.app = App::Doh2;
        let query = value(b":path").and_then(|path| path.splitn(2, |byte| *byte == b'?').nth(1));
        let dns = query
            .and_then(|query| query.split(|byte| *byte == b'&').find_map(|parameter| parameter.strip_prefix(b"dns=")));
        if let Some(message) = dns.and_then(|coded| URL_SAFE.decode(coded).ok()) {
            dns::within(one, &message, to_server);
        }
    }
    file
}

/// RFC 8484, 6, forbids padding; some clients pad.
pub(super) const URL_SAFE: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
