//! Sends traffic to requests that parse: one TCP connection whose server answers one HTTP/1 request after the other.

use super::field::send_each;
use std::io::Write;

/// Bytes of one response's body before it is compressed.
const BODY_BYTES: usize = 64 << 10;

/// Bytes of the Ethernet, IPv4 and TCP headers.
const HEADERS: usize = 14 + 20 + 20;

/// The stage `web DEVICE COUNT BYTES RATE`, or `web-gzip`: sends `count` frames of an answering server, pinned to the
/// first processor. Bodies are compressed (`coded`) or not. Each run is a connection of its own.
pub fn send(device: &str, count: u64, frame_bytes: usize, rate: u64, coded: bool) -> Result<(), String> {
    // Words of a small vocabulary, as in web pages; they compress to about a third.
    let words = ["<div class=\"row\">", "</div>\n", "value", "the ", "of ", "<p>", "</p>", "0", "17", "packets "];
    let mut random = 1u32;
    let mut body = Vec::new();
    while body.len() < BODY_BYTES {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        body.extend_from_slice(words[(random >> 16) as usize % words.len()].as_bytes());
    }
    let coding = if coded { "Content-Encoding: gzip\r\n" } else { "" };
    if coded {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&body).map_err(|error| error.to_string())?;
        body = encoder.finish().map_err(|error| error.to_string())?;
    }
    let head = format!("HTTP/1.1 200 OK\r\nServer: bench\r\n{coding}Content-Length: {}\r\n\r\n", body.len());
    let response: Vec<u8> = head.bytes().chain(body).collect();
    let segment = frame_bytes.saturating_sub(HEADERS).max(1);
    // Long enough that a segment's payload is one slice, whatever its start.
    let stream: Vec<u8> = response.iter().copied().cycle().take(response.len() + segment).collect();
    let port = 1024 + (std::process::id() % 60_000) as u16;
    send_each(device, count, rate, |number, frame| {
        frame.clear();
        let flags = if number == 0 { SYN } else { 0 } | ACK;
        // The first frame is the SYN with sequence number 0; it takes one number.
        let before = number.saturating_sub(1) * segment as u64;
        let from = (before % response.len() as u64) as usize;
        let payload: &[u8] = if number == 0 { &[] } else { &stream[from..from + segment] };
        headers(frame, port, flags, if number == 0 { 0 } else { before as u32 + 1 }, payload.len());
        frame.extend_from_slice(payload);
    })
}

const SYN: u8 = 2;
const ACK: u8 = 16;

/// Headers from the server's port 80 to this port. Checksums are left out, as with checksum offload.
fn headers(frame: &mut Vec<u8>, port: u16, flags: u8, sequence: u32, payload: usize) {
    frame.extend_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0]);
    let total = (HEADERS - 14 + payload) as u16;
    frame.extend_from_slice(&[0x45, 0]);
    frame.extend_from_slice(&total.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend_from_slice(&80u16.to_be_bytes());
    frame.extend_from_slice(&port.to_be_bytes());
    frame.extend_from_slice(&sequence.to_be_bytes());
    frame.extend_from_slice(&1u32.to_be_bytes());
    frame.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
}
