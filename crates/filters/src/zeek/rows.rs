//! Which value of a record goes into which column of a log.

use super::log::{Line, Log};
use super::state::connection_state;
use super::values::Values;
use std::net::IpAddr;

/// The columns that all logs of connections begin with, followed by a log's own.
macro_rules! columns {
    ($($column:expr),* $(,)?) => {
        &[
            ("ts", "time"),
            ("uid", "string"),
            ("id.orig_h", "addr"),
            ("id.orig_p", "port"),
            ("id.resp_h", "addr"),
            ("id.resp_p", "port"),
            $($column),*
        ]
    };
}

pub(super) static CONN: Log = Log {
    path: "conn",
    columns: columns![
        ("proto", "enum"),
        ("service", "string"),
        ("duration", "interval"),
        ("orig_bytes", "count"),
        ("resp_bytes", "count"),
        ("conn_state", "string"),
        ("local_orig", "bool"),
        ("local_resp", "bool"),
        ("missed_bytes", "count"),
        ("history", "string"),
        ("orig_pkts", "count"),
        ("orig_ip_bytes", "count"),
        ("resp_pkts", "count"),
        ("resp_ip_bytes", "count"),
        ("tunnel_parents", "set[string]"),
        ("ip_proto", "count"),
    ],
};

pub(super) static DNS: Log = Log {
    path: "dns",
    columns: columns![
        ("proto", "enum"),
        ("trans_id", "count"),
        ("rtt", "interval"),
        ("query", "string"),
        ("qclass", "count"),
        ("qclass_name", "string"),
        ("qtype", "count"),
        ("qtype_name", "string"),
        ("rcode", "count"),
        ("rcode_name", "string"),
        ("AA", "bool"),
        ("TC", "bool"),
        ("RD", "bool"),
        ("RA", "bool"),
        ("Z", "count"),
        ("answers", "vector[string]"),
        ("TTLs", "vector[interval]"),
        ("rejected", "bool"),
    ],
};

pub(super) static HTTP: Log = Log {
    path: "http",
    columns: columns![
        ("trans_depth", "count"),
        ("method", "string"),
        ("host", "string"),
        ("uri", "string"),
        ("referrer", "string"),
        ("version", "string"),
        ("user_agent", "string"),
        ("origin", "string"),
        ("request_body_len", "count"),
        ("response_body_len", "count"),
        ("status_code", "count"),
        ("status_msg", "string"),
        ("info_code", "count"),
        ("info_msg", "string"),
        ("tags", "set[enum]"),
        ("username", "string"),
        ("password", "string"),
        ("proxied", "set[string]"),
        ("orig_fuids", "vector[string]"),
        ("orig_filenames", "vector[string]"),
        ("orig_mime_types", "vector[string]"),
        ("resp_fuids", "vector[string]"),
        ("resp_filenames", "vector[string]"),
        ("resp_mime_types", "vector[string]"),
    ],
};

pub(super) static SSL: Log = Log {
    path: "ssl",
    columns: columns![
        ("version", "string"),
        ("cipher", "string"),
        ("curve", "string"),
        ("server_name", "string"),
        ("resumed", "bool"),
        ("last_alert", "string"),
        ("next_protocol", "string"),
        ("established", "bool"),
        ("ssl_history", "string"),
        ("cert_chain_fps", "vector[string]"),
        ("client_cert_chain_fps", "vector[string]"),
        ("sni_matches_cert", "bool"),
    ],
};

pub(super) static FILES: Log = Log {
    path: "files",
    columns: &[
        ("ts", "time"),
        ("fuid", "string"),
        ("uid", "string"),
        ("id.orig_h", "addr"),
        ("id.orig_p", "port"),
        ("id.resp_h", "addr"),
        ("id.resp_p", "port"),
        ("source", "string"),
        ("depth", "count"),
        ("analyzers", "set[string]"),
        ("mime_type", "string"),
        ("filename", "string"),
        ("duration", "interval"),
        ("local_orig", "bool"),
        ("is_orig", "bool"),
        ("seen_bytes", "count"),
        ("total_bytes", "count"),
        ("missing_bytes", "count"),
        ("overflow_bytes", "count"),
        ("timedout", "bool"),
        ("parent_fuid", "string"),
        ("md5", "string"),
        ("sha1", "string"),
        ("sha256", "string"),
        ("extracted", "string"),
        ("extracted_cutoff", "bool"),
        ("extracted_size", "count"),
    ],
};

/// Digits for a flow's number, which has 53 bits.
const UID_DIGITS: usize = 9;

/// The identifier of a connection (begins with C) or of a file (begins with F).
type Uid = [u8; 1 + UID_DIGITS];

fn identifier(letter: u8, mut number: u64) -> Uid {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut text = [letter; 1 + UID_DIGITS];
    for digit in text[1..].iter_mut().rev() {
        *digit = DIGITS[(number % 62) as usize];
        number /= 62;
    }
    text
}

fn uid(flow_id: u64) -> Uid {
    identifier(b'C', flow_id)
}

/// The identifier of the file that one side sent in transaction number `depth` of a connection.
fn fuid(flow_id: u64, depth: u32, is_orig: bool) -> Uid {
    // Flow numbers are hashes already. An odd multiplier spreads the files of one flow over all numbers.
    let file = u64::from(depth) * 2 + u64::from(is_orig);
    identifier(b'F', (flow_id ^ file.wrapping_mul(0x9e37_79b9_7f4a_7c15)) & ((1 << 53) - 1))
}

fn if_some<T>(value: Option<T>, set: impl FnOnce(T)) {
    if let Some(value) = value {
        set(value);
    }
}

/// Sets time, identifier, addresses and ports.
fn begin(line: &mut Line<'_>, values: Values<'_>, time: u64, fuid: Option<&[u8]>) {
    line.seconds("ts", time);
    if_some(fuid, |fuid| line.text("fuid", fuid));
    line.text("uid", &uid(values.flow_id()));
    if_some(values.address("src_ip"), |address| line.address("id.orig_h", address));
    // For ICMP Zeek writes type and code as ports.
    let source = values.number("src_port").or(values.number("icmp_type"));
    let target = values.number("dest_port").or(values.number("icmp_code"));
    line.count("id.orig_p", source.unwrap_or(0));
    if_some(values.address("dest_ip"), |address| line.address("id.resp_h", address));
    line.count("id.resp_p", target.unwrap_or(0));
}

/// Whether the address is in a private network. Zeek counts those as local.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || first == 100 && second & 0xc0 == 64
        }
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local() || address.is_unique_local(),
    }
}

/// The protocol number, and Zeek's name for the protocol.
fn protocol(name: &[u8]) -> (Option<u64>, &'static str) {
    match name {
        b"TCP" => (Some(6), "tcp"),
        b"UDP" => (Some(17), "udp"),
        b"ICMP" => (Some(1), "icmp"),
        b"IPv6-ICMP" => (Some(58), "icmp"),
        b"SCTP" => (Some(132), "unknown_transport"),
        other => (str::from_utf8(other).ok().and_then(|text| text.parse().ok()), "unknown_transport"),
    }
}

/// Writes the `conn.log` line of a flow.
pub(super) fn conn(line: &mut Line<'_>, values: Values<'_>, services: &[&str]) {
    let start = values.number("flow.start").unwrap_or(0);
    let of = |name: &str| values.number(name).unwrap_or(0);
    begin(line, values, start, None);
    let (number, name) = protocol(values.text("proto").unwrap_or_default());
    line.text("proto", name.as_bytes());
    if !services.is_empty() {
        line.text("service", services.join(",").as_bytes());
    }
    // For one packet Zeek gives neither duration nor bytes.
    let duration = of("flow.end").saturating_sub(start);
    if duration > 0 {
        line.seconds("duration", duration);
        line.count("orig_bytes", of("flow.payload_toserver").saturating_sub(of("flow.repeated_toserver")));
        line.count("resp_bytes", of("flow.payload_toclient").saturating_sub(of("flow.repeated_toclient")));
    }
    line.text("conn_state", connection_state(values).as_bytes());
    for (name, of) in [("local_orig", "src_ip"), ("local_resp", "dest_ip")] {
        if_some(values.address(of), |address| line.flag(name, is_local(address)));
    }
    line.count("missed_bytes", of("flow.missed_toserver") + of("flow.missed_toclient"));
    if_some(values.text("flow.history").filter(|text| !text.is_empty()), |text| line.text("history", text));
    line.count("orig_pkts", of("flow.pkts_toserver"));
    line.count("orig_ip_bytes", of("flow.ip_bytes_toserver"));
    line.count("resp_pkts", of("flow.pkts_toclient"));
    line.count("resp_ip_bytes", of("flow.ip_bytes_toclient"));
    if_some(number, |number| line.count("ip_proto", number));
}

/// Writes the `dns.log` line of a query and its response.
pub(super) fn dns(line: &mut Line<'_>, values: Values<'_>) {
    begin(line, values, values.number("timestamp").unwrap_or(0), None);
    line.text("proto", protocol(values.text("proto").unwrap_or_default()).1.as_bytes());
    if_some(values.number("dns.id"), |id| line.count("trans_id", id));
    if_some(values.number("latency_us"), |us| line.seconds("rtt", us.saturating_mul(1000)));
    if_some(values.text("dns.rrname"), |name| line.text("query", name));
    if let Some(name) = values.text("dns.rrtype") {
        let number = str::from_utf8(name).ok().and_then(protocols::dns::type_number);
        if_some(number, |number| line.count("qtype", number.into()));
        line.text("qtype_name", name);
    }
    let code = values.text("dns.rcode");
    if let Some(name) = code {
        let known = (0..16)
            .find(|code| protocols::dns::response_code_name(*code).is_some_and(|known| known.as_bytes() == name));
        let number = known.or_else(|| str::from_utf8(name).ok()?.parse().ok());
        if_some(number, |number| line.count("rcode", number.into()));
        line.text("rcode_name", name);
    }
    for (name, of) in [("AA", "dns.aa"), ("TC", "dns.tc"), ("RD", "dns.rd"), ("RA", "dns.ra")] {
        line.flag(name, values.is(of));
    }
    let flags = values.text("dns.flags").and_then(|text| u64::from_str_radix(str::from_utf8(text).ok()?, 16).ok());
    line.count("Z", flags.unwrap_or(0) >> 4 & 7);
    let answers = values.rows("dns.answers");
    if answers.clone().next().is_some() {
        line.list("answers", answers.clone().map(|answer| answer.text("rdata").unwrap_or_default()));
        line.intervals("TTLs", answers.map(|answer| answer.number("ttl").unwrap_or(0).saturating_mul(1_000_000_000)));
    }
    line.flag("rejected", code.is_some_and(|code| code != b"NOERROR") && values.text("dns.rrname").is_none());
}

/// Writes the `ssl.log` line of a handshake.
pub(super) fn ssl(line: &mut Line<'_>, values: Values<'_>) {
    begin(line, values, values.number("timestamp").unwrap_or(0), None);
    let is_answered = values.is("answered");
    if let Some(version) = values.text("tls.version").filter(|_| is_answered) {
        // `TLS 1.2` becomes `TLSv12`.
        let plain = version.iter().filter(|byte| !matches!(byte, b' ' | b'.'));
        let mut name: Vec<u8> = plain.copied().collect();
        name.insert(3.min(name.len()), b'v');
        line.text("version", &name);
    }
    if_some(values.text("tls.cipher"), |cipher| line.text("cipher", cipher));
    if_some(values.text("tls.sni"), |name| line.text("server_name", name));
    if_some(values.rows("tls.server_alpns").next().and_then(|one| one.text("")), |name| {
        line.text("next_protocol", name)
    });
    line.text("ssl_history", if is_answered { b"Cs" } else { b"C" });
}

/// Writes the `http.log` line of a request and its response.
pub(super) fn http(line: &mut Line<'_>, values: Values<'_>, depth: Option<u32>) {
    begin(line, values, values.number("timestamp").unwrap_or(0), None);
    if_some(depth, |depth| line.count("trans_depth", depth.into()));
    for (name, of) in [
        ("method", "http.http_method"),
        ("host", "http.hostname"),
        ("uri", "http.url"),
        ("referrer", "http.http_refer"),
    ] {
        if_some(values.text(of), |text| line.text(name, text));
    }
    let protocol = values.text("http.protocol").unwrap_or_default();
    if_some(protocol.strip_prefix(b"HTTP/"), |version| line.text("version", version));
    if_some(values.text("http.http_user_agent"), |text| line.text("user_agent", text));
    line.count("request_body_len", values.number("http.request_length").unwrap_or(0));
    line.count("response_body_len", values.number("http.length").unwrap_or(0));
    if_some(values.number("http.status"), |status| line.count("status_code", status));
    line.list("tags", std::iter::empty());
    for (is_orig, fuids, names, types) in [
        (true, "orig_fuids", "orig_filenames", "orig_mime_types"),
        (false, "resp_fuids", "resp_filenames", "resp_mime_types"),
    ] {
        let Some(file) = values.rows("files").find(|file| is_of_originator(*file) == is_orig) else { continue };
        line.list(fuids, std::iter::once(&fuid(values.flow_id(), depth.unwrap_or(0), is_orig)[..]));
        if_some(file.text("filename"), |text| line.list(names, std::iter::once(text)));
        if_some(file.text("content_type"), |text| line.list(types, std::iter::once(text)));
    }
}

fn is_of_originator(file: Values<'_>) -> bool {
    file.text("direction") == Some(b"to_server")
}

/// Writes the `files.log` line of a body.
pub(super) fn file(line: &mut Line<'_>, values: Values<'_>, file: Values<'_>, depth: Option<u32>) {
    let of = |name: &str| file.number(name).unwrap_or(0);
    let is_orig = is_of_originator(file);
    begin(line, values, of("start"), Some(&fuid(values.flow_id(), depth.unwrap_or(0), is_orig)));
    line.text("source", b"HTTP");
    line.count("depth", 0);
    let hash = file.text("sha256");
    line.list("analyzers", hash.map(|_| &b"SHA256"[..]).into_iter());
    if_some(file.text("content_type"), |text| line.text("mime_type", text));
    if_some(file.text("filename"), |text| line.text("filename", text));
    line.seconds("duration", of("end").saturating_sub(of("start")));
    let sender = values.address(if is_orig { "src_ip" } else { "dest_ip" });
    if_some(sender, |address| line.flag("local_orig", is_local(address)));
    line.flag("is_orig", is_orig);
    line.count("seen_bytes", of("size"));
    line.count("missing_bytes", of("missing"));
    line.count("overflow_bytes", 0);
    line.flag("timedout", false);
    if_some(hash, |hash| line.text("sha256", hash));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers() {
        assert_eq!((&uid(0), &uid(62), &uid((1 << 53) - 1)), (b"C000000000", b"C000000010", b"CfFgnDxSe7"));
        let files: std::collections::HashSet<_> =
            (1..1000).flat_map(|depth| [true, false].map(|is_orig| fuid(62, depth, is_orig))).collect();
        assert_eq!(files.len(), 2 * 999);
    }

    #[test]
    fn local_addresses() {
        for (text, expected) in [
            ("10.1.2.3", true),
            ("100.64.0.1", true),
            ("100.128.0.1", false),
            ("172.31.0.1", true),
            ("8.8.8.8", false),
            ("fe80::1", true),
            ("fd00::1", true),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_local(text.parse().unwrap()), expected, "{text}");
        }
    }
}
