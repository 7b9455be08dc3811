//! Describes the beginning of a payload: messages of DNS, requests and responses of HTTP/1, hellos of TLS. The bytes tell
//! the protocol, for DNS with the port. Messages that span packets belong to other filters.

use crate::parts::frame_line::say;
use crate::parts::printable::word;
use packet::Flow;
use packet::frame::{Frame, protocol};
use protocols::dns::{Message, is_plausible, type_name};
use protocols::tls::{Hello, hello};

/// Ports of DNS, multicast DNS and LLMNR.
const DNS_PORTS: [u16; 3] = [53, 5353, 5355];

/// Longest part of an HTTP line that is shown, in bytes.
const LINE_BYTES: usize = 120;

/// Appends a comma and a description of the payload. Appends nothing for other payload.
pub(super) fn append(out: &mut Vec<u8>, frame: &Frame, bytes: &[u8], payload: &[u8]) {
    match frame.protocol {
        protocol::UDP => {
            let Flow { source_port, target_port, .. } = Flow::of(frame, bytes);
            if DNS_PORTS.contains(&source_port) || DNS_PORTS.contains(&target_port) {
                dns(out, payload);
            }
        }
        protocol::TCP if !http(out, payload) => tls(out, payload),
        _ => {}
    }
}

fn dns(out: &mut Vec<u8>, payload: &[u8]) {
    let message = match Message::new_checked(payload) {
        Ok(message) if is_plausible(payload, payload.len() as u32) => message,
        _ => return,
    };
    say(out, format_args!(", DNS {}", if message.is_response() { "response" } else { "query" }));
    if message.is_response() && message.response_code() != 0 {
        say(out, format_args!(" code {}", message.response_code()));
    }
    let Some(Ok(question)) = message.questions().next() else { return };
    let mut name = Vec::new();
    if question.name.append_to(&mut name).is_ok() {
        say(out, format_args!(" {} ", type_name(question.kind)));
        word(out, if name.is_empty() { b"." } else { &name });
    }
}

/// Describes a payload of HTTP. `false`: the payload is not HTTP.
fn http(out: &mut Vec<u8>, payload: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 10] =
        [b"HTTP/1.", b"GET ", b"POST ", b"HEAD ", b"PUT ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"PATCH ", b"TRACE "];
    if !BEGINNINGS.iter().any(|beginning| payload.starts_with(beginning)) {
        return false;
    }
    let end = payload.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(payload.len());
    out.extend_from_slice(b", ");
    out.extend(
        payload[..end.min(LINE_BYTES)].iter().map(|byte| if matches!(byte, 0x20..=0x7e) { *byte } else { b'.' }),
    );
    if end > LINE_BYTES {
        out.extend_from_slice(b"...");
    }
    true
}

fn tls(out: &mut Vec<u8>, payload: &[u8]) {
    let mut scratch = Vec::new();
    match hello(payload, &mut scratch) {
        Ok(Hello::Client(client)) => {
            out.extend_from_slice(b", TLS client hello");
            if let Some(name) = client.server_name() {
                out.push(b' ');
                word(out, name);
            }
        }
        Ok(Hello::Server(_)) => out.extend_from_slice(b", TLS server hello"),
        Err(_) => {}
    }
}
