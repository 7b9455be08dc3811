//! Which protocol a flow speaks, by the first bytes of a side. Ports decide only between protocols that look alike.

pub use crate::first::First;

use crate::app::App;
use crate::conversation::Over;
use crate::first::{begins, has_port};
use crate::fit::Fit;
use crate::{TALKS, dns, ftp, http2, quic, sip, smb};
use packet::Flow;

/// The answer of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// They are of this protocol.
    Is(App),
    /// More bytes may decide.
    More,
    /// They are of none that is known.
    No,
}

type Probe = fn(&First<'_>) -> Fit;

/// The first one that fits decides, before those that protocols of [`TALKS`] bring. HTTP has methods of SIP, which looks at
/// the whole line.
const STREAMS: &[(App, Probe)] = &[
    (App::Sip, |first| match sip::probe(first.bytes) {
        Fit::More => Fit::No,
        fit => fit,
    }),
    (App::Http1, http1),
    (App::Http2, |first| match first.to_server {
        true => first.begins(&[http2::PREFACE]),
        false => Fit::of(http2::is_settings(first.bytes)),
    }),
    (App::Smb, |first| smb::probe(first.bytes, first.has_port(139))),
    (App::Tls, |first| hello(first.bytes)),
    (App::Ssh, |first| first.begins(&[b"SSH-"])),
    (App::Smtp, smtp),
    (App::Ftp, ftp),
    (App::Sip, |first| sip::probe(first.bytes)),
    (App::Dns, |first| dns_stream(first, App::Dns)),
    (App::Llmnr, |first| dns_stream(first, App::Llmnr)),
];

/// Which protocol a stream speaks.
pub fn stream(first: &First<'_>) -> Says {
    let mut says = Says::No;
    for (app, probe) in STREAMS.iter().copied().chain(talks(Over::Datagrams)) {
        match probe(first) {
            Fit::Is => return Says::Is(app),
            Fit::More => says = Says::More,
            Fit::No => {}
        }
    }
    says
}

/// Which protocol a datagram is of. `wire_len`: its length before a capture cut it.
pub fn datagram(payload: &[u8], wire_len: u32, flow: &Flow) -> App {
    let port = |port: u16| has_port(flow, port);
    let rows: [(App, &dyn Fn() -> bool); 5] = [
        (App::Quic, &|| quic::begins(payload)),
        (dns::of_ports(flow).unwrap_or(App::Dns), &|| {
            dns::is_datagram([flow.source_port, flow.target_port], payload, wire_len)
        }),
        (App::Sip, &|| sip::head(payload).is_some()),
        (App::Dhcp, &|| (port(67) || port(68)) && payload.get(236..240) == Some(&[0x63, 0x82, 0x53, 0x63])),
        (App::Ntp, &|| port(123) && payload.len() >= 48),
    ];
    let first = First { bytes: payload, to_server: true, flow };
    let known = rows.into_iter().find(|(_, fits)| fits()).map(|(app, _)| app);
    known
        .or_else(|| talks(Over::Streams).find(|(_, probe)| probe(&first) == Fit::Is).map(|(app, _)| app))
        .unwrap_or_default()
}

/// The protocols that have a probe of their own, except those that are only over this.
fn talks(but: Over) -> impl Iterator<Item = (App, Probe)> {
    TALKS.iter().filter(move |talk| talk.over != but).filter_map(|talk| Some((talk.app, talk.probe?)))
}

/// The side that first bytes like these come from; 0 is the client. `None`: they do not tell.
pub fn sender(bytes: &[u8]) -> Option<u8> {
    let begins_with = |words| begins(bytes, words, <[u8]>::eq_ignore_ascii_case) == Fit::Is;
    if hello(bytes) == Fit::Is {
        return Some(bytes[5] - 1);
    }
    if begins_with(&[b"HTTP/1.", b"220 ", b"220-"]) {
        return Some(1);
    }
    let is_request = request(bytes) == Fit::Is || begins(bytes, &[http2::PREFACE], <[u8]>::eq) == Fit::Is;
    (is_request || begins_with(&[b"EHLO ", b"HELO "])).then_some(0)
}

/// Methods that name HTTP without the version behind them.
pub const METHODS: &[&[u8]] = &[
    b"GET",
    b"POST",
    b"HEAD",
    b"PUT",
    b"DELETE",
    b"OPTIONS",
    b"TRACE",
    b"CONNECT",
    b"PATCH",
    b"PROPFIND",
    b"SEARCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"REPORT",
    b"MERGE",
    b"LINK",
    b"UNLINK",
    b"PURGE",
    b"DEBUG",
    b"RPC_IN_DATA",
    b"BCOPY",
    b"PROPPATCH",
];

/// Whether the bytes begin with a method of HTTP and a blank.
fn request(bytes: &[u8]) -> Fit {
    match bytes.iter().position(|byte| matches!(byte, b' ' | b'\t')) {
        Some(end) => Fit::of(METHODS.contains(&&bytes[..end])),
        None if METHODS.iter().any(|method| method.starts_with(bytes)) => Fit::More,
        None => Fit::No,
    }
}

fn http1(first: &First<'_>) -> Fit {
    if !first.to_server {
        return first.begins(&[b"HTTP/"]);
    }
    // Servers ignore empty lines before a request (RFC 9112, 2.2).
    let empty = first.bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    request(&first.bytes[empty..])
}

fn smtp(first: &First<'_>) -> Fit {
    let mail_port = first.has_port(25) || first.has_port(587);
    match first.begins_nocase(&[b"EHLO", b"HELO"]) {
        _ if !first.to_server => Fit::No,
        Fit::No if mail_port => first.begins_nocase(&[b"QUIT", b"MAIL ", b"RSET", b"NOOP", b"HELP"]),
        fit => fit,
    }
}

fn ftp(first: &First<'_>) -> Fit {
    const COMMANDS: &[&[u8]] = &[b"USER ", b"PASS ", b"PORT ", b"EPRT ", b"AUTH TLS", b"AUTH SSL", b"FEAT", b"PASV"];
    match first.begins_nocase(COMMANDS) {
        _ if !first.to_server || ftp::is_of_another(first.flow) => Fit::No,
        Fit::No if first.has_port(21) => first.begins_nocase(&[b"SYST", b"OPTS ", b"HELP", b"CLNT "]),
        fit => fit,
    }
}

/// Whether it is a TLS handshake record with a hello.
fn hello(bytes: &[u8]) -> Fit {
    let fits = |at: usize, fits: fn(u8) -> bool| bytes.get(at).is_none_or(|byte| fits(*byte));
    let header = fits(0, |byte| byte == 22) && fits(1, |byte| byte == 3) && fits(2, |byte| byte <= 4);
    match header && fits(5, |byte| matches!(byte, 1 | 2)) {
        true if bytes.len() < 6 => Fit::More,
        fits => Fit::of(fits),
    }
}

fn dns_stream(first: &First<'_>, app: App) -> Fit {
    if dns::of_ports(first.flow) == Some(app) { dns::probe(first.bytes) } else { Fit::No }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Checks what first bytes say: from the client or not, with the server at this port.
    pub(crate) fn check_first(rows: &[(&[u8], bool, u16, Says)]) {
        let [source, target] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(Into::into);
        for (bytes, to_server, target_port, says) in rows {
            let flow = &Flow { source, target, source_port: 40000, target_port: *target_port, protocol: 6 };
            let first = First { bytes, to_server: *to_server, flow };
            assert_eq!(stream(&first), *says, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn first_bytes_tell_the_protocol() {
        let rows: &[(&[u8], bool, u16, Says)] = &[
            (b"", true, 80, Says::More),
            (b"GE", true, 9, Says::More),
            (b"GET /", true, 9, Says::Is(App::Http1)),
            (b"\r\n\r\nGET\t/", true, 9, Says::Is(App::Http1)),
            (b"GET /", false, 9, Says::More),
            (b"HTTP/1.1 200", false, 9, Says::Is(App::Http1)),
            (http2::PREFACE, true, 9, Says::Is(App::Http2)),
            (b"OPTIONS sip:a SIP/2.0\r\n", true, 9, Says::Is(App::Sip)),
            (b"\x16\x03\x01\0\x05\x01", true, 9, Says::Is(App::Tls)),
            (b"\x16\x03\x01\0\x05", true, 9, Says::More),
            (b"SSH-2.0-x", false, 9, Says::Is(App::Ssh)),
            (b"ehlo x", true, 9, Says::Is(App::Smtp)),
            (b"QUIT\r\n", true, 25, Says::Is(App::Smtp)),
            (b"quit\r\n", true, 9, Says::No),
            (b"user x", true, 9, Says::Is(App::Ftp)),
            (b"SYST\r\n", true, 21, Says::Is(App::Ftp)),
            (b"\x81\0", true, 139, Says::Is(App::Smb)),
            (b"\0\0\0\x40\xfeSMB", true, 9, Says::Is(App::Smb)),
            (b"RFB 003.", false, 9, Says::Is(App::Rfb)),
            (b"\0\x0c\0\x01\x01\0\0\x01\0\0\0\0\0\0", true, 53, Says::Is(App::Dns)),
            (b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c\0\0", true, 9, Says::Is(App::Mqtt)),
        ];
        check_first(rows);
    }

    #[test]
    fn first_bytes_tell_who_sends() {
        let rows: &[(&[u8], Option<u8>)] = &[
            (b"\x16\x03\x01\0\x05\x02", Some(1)),
            (b"\x16\x03\x01\0\x05\x01", Some(0)),
            (b"HTTP/1.1 200", Some(1)),
            (b"220 x", Some(1)),
            (b"GET /", Some(0)),
            (http2::PREFACE, Some(0)),
            (b"EHLO x", Some(0)),
            (b"x", None),
        ];
        for (bytes, side) in rows {
            assert_eq!(sender(bytes), *side, "{}", bytes.escape_ascii());
        }
    }
}
