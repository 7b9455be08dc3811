//! QUIC for rules: each Initial packet is a transaction, with the fields of the ClientHello. Google's QUIC sends the
//! hello in plain text. IETF QUIC encrypts it with keys derived from the packet.

use super::transactions::Transactions;
use base::limits::QUIC_PIECES;
use protocols::fingerprint::{Transport, append_ja3, append_ja4, append_md5, ja4};
use protocols::gquic::Long;
use protocols::quic::keys::{Keys, Side};
use protocols::quic::{Crypto, Initial};
use protocols::tls::{ClientHello, HELLO_LIMIT};
use rules::Transaction;
use rules::names::{App, Buffer};

/// Most connections kept of one pair of ports, and most keys derived for one datagram.
const CONNECTIONS: usize = 4;

#[derive(Default)]
pub(super) struct Flow {
    /// Clients may begin several connections, each with an identifier of its own.
    connections: Vec<Connection>,
    frames: Vec<u8>,
    /// Keys that may still be derived for this datagram.
    tries: usize,
}

struct Connection {
    /// The keys of both sides, from the identifier in the client's first packet.
    keys: [Keys; 2],
    /// By side: the hello is complete, or was given up.
    done: [bool; 2],
    /// The contiguous start of the hello; `pieces` has parts behind a gap.
    hello: Vec<u8>,
    pieces: Vec<(usize, Vec<u8>)>,
}

impl Flow {
    pub fn feed(&mut self, payload: &[u8], to_server: bool, to: &mut Transactions) {
        if let Some(long) = Long::parse(payload) {
            return google(&long, to_server, to);
        }
        let mut rest = payload;
        self.tries = CONNECTIONS;
        while let Some((initial, end)) = Initial::parse(rest) {
            rest = &rest[end..];
            self.initial(&initial, to_server, to);
        }
        to.reader_bytes = self.connections.iter().map(Connection::kept_bytes).sum();
    }

    fn initial(&mut self, initial: &Initial<'_>, to_server: bool, to: &mut Transactions) {
        let side = usize::from(!to_server);
        let Flow { connections, frames, .. } = self;
        let known = connections.iter().rposition(|known| known.keys[side].decrypt(initial, frames));
        let Some(at) = known.or_else(|| to_server.then(|| self.begin(initial, to))?) else {
            to.given_up += u64::from(to_server);
            return;
        };
        let Flow { connections, frames, .. } = self;
        let connection = &mut connections[at];
        if connection.done[side] {
            return;
        }
        let one = to.begin(App::Quic);
        one.complete = [true; 2];
        one.put_copy(Buffer::QUIC_VERSION, to_server, &initial.version.number.to_be_bytes());
        let id = one.id;
        let is_read = match to_server {
            true => connection.gather(frames) && connection.put(one),
            false => {
                connection.done[1] = Crypto::new(frames).next().is_some();
                true
            }
        };
        if !is_read {
            connection.done[0] = true;
            to.given_up += 1;
            to.unseen = true;
        }
        if connection.done[side] {
            (connection.hello, connection.pieces) = (Vec::new(), Vec::new());
        }
        to.change(id, to_server);
    }

    /// Begins the connection of a client's first packet, or of its first after a Retry; returns its place.
    fn begin(&mut self, initial: &Initial<'_>, to: &mut Transactions) -> Option<usize> {
        let Some(left) = self.tries.checked_sub(1) else {
            to.unseen = true;
            return None;
        };
        self.tries = left;
        let keys = |side| Keys::of(initial.version, initial.target, side);
        let keys = [keys(Side::Client)?, keys(Side::Server)?];
        if !keys[0].decrypt(initial, &mut self.frames) {
            return None;
        }
        if self.connections.len() >= CONNECTIONS {
            let oldest = self.connections.iter().position(|known| known.done[0]).unwrap_or(0);
            let is_lost = !self.connections.remove(oldest).done[0];
            to.given_up += u64::from(is_lost);
            to.unseen |= is_lost;
        }
        self.connections.push(Connection { keys, done: [false; 2], hello: Vec::new(), pieces: Vec::new() });
        Some(self.connections.len() - 1)
    }
}

impl Connection {
    fn kept_bytes(&self) -> usize {
        size_of::<Connection>()
            + self.hello.capacity()
            + self.pieces.iter().map(|piece| piece.1.capacity()).sum::<usize>()
    }

    /// Joins the pieces in `frames` with the hello; returns false if they exceed a limit.
    fn gather(&mut self, frames: &[u8]) -> bool {
        for (offset, bytes) in Crypto::new(frames) {
            let fits = offset.saturating_add(bytes.len() as u64) <= HELLO_LIMIT as u64;
            if !fits || self.pieces.len() >= QUIC_PIECES {
                return false;
            }
            self.pieces.push((offset as usize, bytes.to_vec()));
        }
        // Each iteration removes a piece.
        while let Some(at) = self.pieces.iter().position(|piece| piece.0 <= self.hello.len()) {
            let (offset, piece) = self.pieces.swap_remove(at);
            self.hello.extend_from_slice(piece.get(self.hello.len() - offset..).unwrap_or_default());
        }
        true
    }

    /// Adds the fields of the hello if it is complete; returns false if it is none.
    fn put(&mut self, one: &mut Transaction) -> bool {
        let Some((&[kind, high, middle, low], body)) = self.hello.split_first_chunk() else { return true };
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let is_hello = kind == 1 && length <= HELLO_LIMIT;
        if is_hello && body.len() < length {
            return true;
        }
        self.done[0] = true;
        let Some(hello) = body.get(..length).filter(|_| is_hello).and_then(ClientHello::parse) else { return false };
        if let Some(name) = hello.server_name() {
            one.put_copy(Buffer::QUIC_SNI, true, name);
        }
        let (mut text, mut digest) = (Vec::new(), Vec::new());
        append_ja3(&mut text, &hello);
        append_md5(&mut digest, &text);
        one.put_copy(Buffer::JA3_STRING, true, &text);
        one.put_copy(Buffer::JA3_HASH, true, &digest);
        if let Some(ja4) = ja4(&hello, Transport::Quic) {
            text.clear();
            append_ja4(&mut text, &ja4);
            one.put_copy(Buffer::JA4_HASH, true, &text);
        }
        true
    }
}

/// Handles a packet of Google's QUIC. The fingerprint of the client is its version and the names of all values.
fn google(long: &Long<'_>, to_server: bool, to: &mut Transactions) {
    let one = to.begin(App::Quic);
    one.complete = [true; 2];
    let id = one.id;
    one.put_copy(Buffer::QUIC_VERSION, to_server, &long.version);
    if let Some(hello) = long.hello().filter(|_| long.is_initial && to_server) {
        let mut text = [&long.version[2..], b","].concat();
        for (place, (name, value)) in hello.enumerate() {
            if place > 0 {
                text.push(b'-');
            }
            text.extend_from_slice(name);
            match name {
                b"SNI" => one.put_copy(Buffer::QUIC_SNI, true, value),
                b"UAID" => one.put_copy(Buffer::QUIC_UA, true, value),
                _ => {}
            }
        }
        let mut digest = Vec::new();
        append_md5(&mut digest, &text);
        one.put_copy(Buffer::QUIC_CYU_STRING, true, &text);
        one.put_copy(Buffer::QUIC_CYU_HASH, true, &digest);
    }
    to.change(id, to_server);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use protocols::quic::keys::encrypt;

    fn crypto(offset: usize, bytes: &[u8]) -> Vec<u8> {
        [&[6, 0x40, offset as u8, 0x40, bytes.len() as u8][..], bytes].concat()
    }

    fn hello(name: &[u8]) -> Vec<u8> {
        let prefixed = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
        let name = prefixed(&[&[0][..], &prefixed(name)].concat());
        let extensions = [[0, 0].to_vec(), prefixed(&name)].concat();
        let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &prefixed(&extensions)].concat();
        [&[1][..], &(body.len() as u32).to_be_bytes()[1..], &body].concat()
    }

    /// Each identifier begins a connection of its own, also behind one that never says hello.
    #[test]
    fn each_connection_of_a_pair_of_ports_has_its_hello() {
        let good = hello(b"good.example");
        let firsts = [crypto(0, &good), crypto(0, b"\x09\0\0\x01x"), crypto(20, &good[20..])];
        for (first, given_up) in firsts.iter().zip([0, 1, 0]) {
            let (mut flow, mut to) = (Flow::default(), Transactions::default());
            flow.feed(&encrypt(b"12345678", first), true, &mut to);
            flow.feed(&encrypt(b"abcdefgh", &crypto(0, &hello(b"evil.example"))), true, &mut to);
            assert_eq!(to.last().unwrap().first(Buffer::QUIC_SNI, true), Some(&b"evil.example"[..]));
            assert_eq!((to.given_up, to.unseen), (given_up, given_up > 0));
            // The first one goes on.
            flow.feed(&encrypt(b"12345678", &crypto(0, &good[..20])), true, &mut to);
            assert_eq!(flow.connections.iter().filter(|known| known.done[0]).count(), 2);
        }
        let (mut flow, mut to) = (Flow::default(), Transactions::default());
        for number in 0..=CONNECTIONS as u8 {
            flow.feed(&encrypt(&[number; 8], &crypto(20, &good[20..])), true, &mut to);
        }
        assert_eq!((flow.connections.len(), to.given_up, to.unseen), (CONNECTIONS, 1, true));
        let (mut flow, mut to) = (Flow::default(), Transactions::default());
        let pieces: Vec<u8> = (0..=QUIC_PIECES).flat_map(|number| crypto(1 + 2 * number, b"x")).collect();
        flow.feed(&encrypt(b"12345678", &pieces), true, &mut to);
        assert_eq!((to.given_up, to.unseen), (1, true));
    }

    /// A hello in two packets, in reverse order.
    #[test]
    fn a_hello() {
        let hello = hello(b"a.example");
        let (mut flow, mut to) = (Flow::default(), Transactions::default());
        for frames in [crypto(20, &hello[20..]), crypto(0, &hello[..20])] {
            let datagram = encrypt(b"12345678", &frames);
            assert!(Initial::parse(&datagram).is_some());
            flow.feed(&datagram, true, &mut to);
        }
        let one = to.last().unwrap();
        assert_eq!(one.first(Buffer::QUIC_VERSION, true), Some(&[0, 0, 0, 1][..]));
        assert_eq!(one.first(Buffer::QUIC_SNI, true), Some(&b"a.example"[..]));
        assert_eq!(one.first(Buffer::JA3_STRING, true), Some(&b"771,4865,0,,"[..]));
        assert_eq!(to.changed.len(), 2);
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..80), to_server: bool, sort in 0u8..3) {
            let datagram = match sort {
                0 => bytes,
                1 => [&b"\xc3Q046\x50"[..], &bytes].concat(),
                _ => encrypt(b"12345678", &bytes),
            };
            Flow::default().feed(&datagram, to_server, &mut Transactions::default());
        }
    }
}
