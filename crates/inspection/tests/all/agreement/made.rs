//! Captures made by hand: no bundled one has their messages.

use super::variants::Capture;
use packet::LinkType;
use std::net::Ipv4Addr;
use testkit::packets::{CLIENT, Conversation, End, udp};

const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn capture(frames: &[(u64, Vec<u8>)]) -> Capture {
    Capture::of(LinkType::ETHERNET, frames)
}

/// A message about `x`, with this identifier and these flags; a response has an answer.
fn message(id: u8, flags: u16) -> Vec<u8> {
    const QUESTION: &[u8] = b"\x01x\0\0\x01\0\x01";
    const ANSWER: &[u8] = b"\xc0\x0c\0\x01\0\x01\0\0\0\x09\0\x04\xc0\0\x02\x01";
    let is_response = flags & 0x8000 != 0;
    let header = [&[0, id], &flags.to_be_bytes()[..], &[0, 1, 0, u8::from(is_response), 0, 0, 0, 0]].concat();
    [&header[..], QUESTION, if is_response { ANSWER } else { b"" }].concat()
}

const QUERY: u16 = 0x0100;
const RESPONSE: u16 = 0x8180;
/// The reserved bit is set.
const RESERVED: u16 = 0x0040;
/// An operation that nobody has assigned.
const UNKNOWN: u16 = 0x7800;

fn behind_length(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

/// Several messages of each side, odd ones and junk among them, in segments that begin anywhere.
pub fn dns_over_tcp() -> Capture {
    let mut connection = Conversation::open(CLIENT, (HOST, 53), 1000);
    for (side, flags) in [(0, QUERY), (1, RESPONSE)] {
        let messages = [message(1, flags), message(2, flags | RESERVED), b"junk".to_vec(), message(3, flags | UNKNOWN)];
        let stream: Vec<u8> = messages.iter().flat_map(|message| behind_length(message)).collect();
        for piece in stream.chunks(25) {
            connection.send(side, piece);
        }
        connection.send(side, &behind_length(&message(4, flags)));
    }
    capture(&connection.frames)
}

/// Messages behind something else.
pub fn dns_behind_junk() -> Capture {
    let mut connection = Conversation::open(CLIENT, (HOST, 53), 1000);
    for (side, flags) in [(0, QUERY), (1, RESPONSE), (0, QUERY)] {
        connection.send(side, &behind_length(b"junk"));
        connection.send(side, &behind_length(&message(1 + side as u8, flags)));
    }
    capture(&connection.frames)
}

fn datagrams(port: u16, payloads: &[(bool, Vec<u8>)]) -> Capture {
    let server: End = (HOST, port);
    let frame = |(to_server, payload): &(bool, Vec<u8>)| match to_server {
        true => udp(CLIENT, server, payload),
        false => udp(server, CLIENT, payload),
    };
    capture(&(0..).step_by(1000).zip(payloads.iter().map(frame)).collect::<Vec<_>>())
}

/// Datagrams, odd ones and junk among them.
pub fn dns_over_udp() -> Capture {
    odd_datagrams(53)
}

/// The same on a port that is not one of DNS.
pub fn dns_elsewhere() -> Capture {
    odd_datagrams(4000)
}

fn odd_datagrams(port: u16) -> Capture {
    datagrams(
        port,
        &[
            (true, message(1, QUERY | RESERVED)),
            (true, b"junk".to_vec()),
            (true, b"more junk than a header".to_vec()),
            (true, message(2, QUERY)),
            (false, message(2, RESPONSE)),
            (false, message(3, RESPONSE | UNKNOWN)),
            (true, message(4, QUERY | RESERVED)),
            (false, message(4, RESPONSE)[..30].to_vec()),
        ],
    )
}

/// Names of NetBIOS have the format of DNS.
pub fn netbios() -> Capture {
    datagrams(137, &[(true, message(1, QUERY))])
}

pub fn llmnr() -> Capture {
    datagrams(5355, &[(true, message(1, 0)), (false, message(1, 0x8000)), (true, message(2, RESERVED))])
}

/// Initial packets of two connections between the same ports, encrypted: the second half of a hello that asks for
/// `a.example`, another client's hello that asks for `b.example`, and the first half.
const INITIALS: [&str; 3] = [
    "c3000000010831323334353637380000404639860226c5b49839bf59d79cee2867604d6f89ddd6c4a4a75485bce2ba393b16d0efba32dc\
     08b92ddfd155fa5b1f42dea728c676006700e20587a783113a0bb8af90da14f55b",
    "c5000000010861626364656667680000405abcbdb99718bcf8ef19220fa88a4c1463c82e021d244fa0c0d56c6c7b5e7fa9a6faa2115e67\
     f91b7ee9ee9875f77f9fcac98df901651d2a0805a7aac67f1988768c0d2669d684e39d7fc5d290cb31fbc54343b60ea1d36c1be8ee",
    "c5000000010831323334353637380000402d1f9e326ac5b48c39865fd09bd42c63604d6f89ddd6c4a4a75485bce5bdab0c6849c9afa7ae\
     15ce148d1312d87d",
];

/// The hellos of two connections, one of them in halves that come in the wrong order.
pub fn quic_of_two_connections() -> Capture {
    let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
    let packets = INITIALS.map(|packet| packet.as_bytes().chunks(2).map(byte).collect());
    datagrams(443, &packets.map(|packet| (true, packet)))
}

/// The hello of a client of Google's QUIC.
pub fn quic_of_google() -> Capture {
    let hello = [&b"CHLO\x02\0\0\0SNI\0\x05\0\0\0UAID\x07\0\0\0"[..], b"a\x1borgme"].concat();
    let frame = [&[0xa0, 1, 0, hello.len() as u8][..], &hello].concat();
    let packet = [&[0xc3][..], b"Q046\x50", &[7; 8], &[0, 0, 0, 1], &[9; 12], &frame].concat();
    datagrams(443, &[(true, packet)])
}

/// A handshake message in a record.
fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let message = [&[kind][..], &(body.len() as u32).to_be_bytes()[1..], body].concat();
    [&[22, 3, 1][..], &behind_length(&message)].concat()
}

/// The hello of a client of this version that asks for `\x1bx` and offers `h2`.
fn client_hello(minor: u8) -> Vec<u8> {
    let name = behind_length(&[&[0][..], &behind_length(b"\x1bx")].concat());
    let extensions = [&[0, 0][..], &behind_length(&name), &[0, 16], &behind_length(&behind_length(b"\x02h2"))].concat();
    let fixed = [&[3, minor][..], &[7; 32], &[0], &behind_length(&[0xc0, 0x2f]), &[1, 0]].concat();
    handshake(1, &[fixed, behind_length(&extensions)].concat())
}

/// The hello of a server of this version.
fn server_hello(minor: u8) -> Vec<u8> {
    handshake(2, &[&[3, minor][..], &[7; 32], &[0, 0xc0, 0x2f, 0]].concat())
}

/// TLS behind a greeting and another protocol's words.
fn tls_behind(client: &[u8], server: &[u8], minor: u8) -> Capture {
    let mut connection = Conversation::open(CLIENT, (HOST, 4000), 1000);
    connection.send(1, b"220 ready\r\n").send(0, client).send(1, server);
    connection.send(0, &client_hello(minor)).send(1, &server_hello(minor));
    capture(&connection.frames)
}

pub fn tls_behind_starttls() -> Capture {
    tls_behind(b"STARTTLS\r\n", b"220 go ahead\r\n", 3)
}

pub fn tls_behind_an_unknown_protocol() -> Capture {
    tls_behind(b"\x01\x02\x03", b"\x04", 0)
}

pub fn tls_through_a_proxy() -> Capture {
    let mut connection = Conversation::open(CLIENT, (HOST, 3128), 1000);
    connection.send(0, b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n");
    connection.send(1, b"HTTP/1.1 200 OK\r\n\r\n").send(0, &client_hello(1)).send(1, &server_hello(1));
    capture(&connection.frames)
}

/// Its version has no name.
pub fn tls_of_an_unknown_version() -> Capture {
    let mut connection = Conversation::open(CLIENT, (HOST, 443), 1000);
    connection.send(0, &client_hello(9)).send(1, &server_hello(9));
    capture(&connection.frames)
}

/// Two shares, one of them with pipes, and a file.
pub fn smb() -> Capture {
    let message = |command: u8, id: u8, side: usize, tree: u8, body: &[u8]| {
        let mut header = [&b"\xfeSMB"[..], &[0; 60]].concat();
        (header[12], header[16], header[24], header[36]) = (command, side as u8, id, tree);
        let length = (header.len() + body.len()) as u32;
        [&length.to_be_bytes()[..], &header, body].concat()
    };
    let share = |name: u8| [9, 0, 0, 0, 72, 0, 4, 0, b'a', 0, name, 0];
    let name = [&[57, 0][..], &[0; 42], &[120, 0, 4, 0], &[0; 8], b"f\0x\0"].concat();
    let created = [&[89, 0][..], &[0; 62], &[7; 16]].concat();
    let write = [&[49, 0, 112, 0, 4, 0, 0, 0][..], &[0; 8], &[7; 16], &[0; 16], b"data"].concat();
    let mut connection = Conversation::open(CLIENT, (HOST, 445), 1000);
    for (side, bytes) in [
        (0, message(3, 1, 0, 0, &share(b'b'))),
        (1, message(3, 1, 1, 1, &[16, 0, 1, 0])),
        (0, message(3, 2, 0, 0, &share(b'c'))),
        (1, message(3, 2, 1, 2, &[16, 0, 2, 0])),
        (0, message(5, 3, 0, 1, &name)),
        (1, message(5, 3, 1, 1, &created)),
        (0, message(9, 4, 0, 1, &write)),
        (0, message(3, 5, 0, 0, &share(b'd'))),
        (1, message(3, 5, 1, 3, &[16, 0, 1, 0])),
    ] {
        bytes.chunks(60).for_each(|piece| _ = connection.send(side, piece));
    }
    capture(&connection.frames)
}

/// The answers to an upgrade and to a request behind it.
pub fn http2_behind_an_upgrade() -> Capture {
    let frame = |kind: u8, flags: u8, stream: u8, contents: &[u8]| {
        [&(contents.len() as u32).to_be_bytes()[1..], &[kind, flags, 0, 0, 0, stream], contents].concat()
    };
    let (settings, ok) = (frame(4, 0, 0, b""), |stream| frame(1, 5, stream, &[0x88]));
    let mut connection = Conversation::open(CLIENT, (HOST, 80), 1000);
    connection.send(0, b"GET /old HTTP/1.1\r\nHost: a.example\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n");
    let switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    connection.send(1, &[&switch[..], &settings].concat());
    connection.send(0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").send(0, &settings).send(1, &ok(1));
    connection.send(0, &frame(1, 5, 3, b"\x82\x84\x41\x01b")).send(1, &ok(3));
    capture(&connection.frames)
}

/// Messages through a tunnel; one begins in the segment that ends the handshake.
pub fn websocket_through_a_proxy() -> Capture {
    let mut connection = Conversation::open(CLIENT, (HOST, 3128), 1000);
    connection.send(0, b"CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\n");
    connection.send(1, b"HTTP/1.1 200 OK\r\n\r\n");
    connection.send(0, b"GET /chat HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\n\r\n");
    connection.send(1, b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n\x82\x02ok");
    connection.send(0, b"\x81\x85\0\0\0\x07hello").send(1, b"\x89\0\x83\x01x");
    capture(&connection.frames)
}
