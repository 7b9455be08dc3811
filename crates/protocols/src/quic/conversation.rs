//! The readable beginning of QUIC: the hello of each client. It stands in Initial packets, which any observer can
//! decrypt, or in the plain text of Google's QUIC.
//!
//! An exchange is such a packet. The one that completes a hello says what stands in it, and then that its head is done.
//! Each connection of a flow has keys of its own, and so has one behind a Retry, whose client says its hello again.

use super::keys::Keys;
use super::{Crypto, Initial, VERSION_2};
use crate::carry::Carried;
use crate::conversation::{self, About, Ear, Fed, How, Id, Kind, Side};
use crate::fingerprint::{Transport, say_client, say_hashed};
use crate::gquic;
use crate::tls::{ClientHello, HELLO_LIMIT, Hello, Stop, append_name, message};
use base::limits::QUIC_PIECES;
use packet::bytes::u32_at;

/// Most connections kept of one pair of ports, and most keys derived for one datagram.
pub const CONNECTIONS: usize = 4;

/// Most bytes kept of the hellos of one pair of ports.
pub const KEPT_BYTES: usize = 2 * CONNECTIONS * HELLO_LIMIT;

const UNREADABLE: &str = "quic packets without a known key";
const TOO_MANY: &str = "quic packets behind too many keys in a datagram";
const DISPLACED: &str = "quic hellos given up for newer connections";
const TOO_LONG: &str = "quic hellos with too many pieces or too long";
const NO_ROOM: &str = "quic hellos given up for want of memory";
const MALFORMED: &str = "malformed quic hellos";
const CUT: &str = "quic hellos whose rest is missing";

/// A fact about a packet, or about the hello that it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The version, in four bytes.
    Version,
    /// The host that the client asks for.
    Sni,
    /// An application protocol that it offers.
    Alpn,
    /// MD5 of the next one, in hexadecimal.
    Ja3Hash,
    /// Versions and numbers that the client offers.
    Ja3String,
    /// JA4.
    Ja4,
    /// The client's program, as Google's QUIC names it.
    UserAgent,
    /// MD5 of the next one, in hexadecimal.
    CyuHash,
    /// Version and names of the values in a hello of Google's QUIC.
    CyuString,
}

impl conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About::both("quic.version", "quic.version", Kind::Shown(show_version)),
        About::client("quic.sni", "quic.sni", Kind::Name),
        About::client("quic.client_alpns", "", Kind::NameItem),
        About::client("quic.ja3.hash", "ja3.hash", Kind::Text),
        About::client("quic.ja3.string", "ja3.string", Kind::Text),
        About::client("quic.ja4", "ja4.hash", Kind::Text),
        About::client("quic.ua", "quic.ua", Kind::Name),
        About::client("quic.cyu.hash", "quic.cyu.hash", Kind::Text),
        About::client("quic.cyu.string", "quic.cyu.string", Kind::Name),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// Appends a version's name: `1`, `2`, `draft-29`, `Q046`.
fn show_version(out: &mut Vec<u8>, version: &[u8]) {
    match u32_at(version, 0) {
        Some(1) => out.push(b'1'),
        Some(VERSION_2) => out.push(b'2'),
        Some(draft @ 0xff00_0000..=0xff00_00ff) => out.extend_from_slice(format!("draft-{}", draft & 0xff).as_bytes()),
        _ => append_name(out, version),
    }
}

/// The connections of one pair of ports.
#[derive(Debug, Default)]
pub struct Conversation {
    connections: Vec<Connection>,
    /// Packets so far.
    packets: u64,
}

/// A connection, which begins with the first packet that a client's own identifier decrypts.
#[derive(Debug)]
struct Connection {
    client: Side,
    /// The keys of both sides, from the identifier in the client's first packet.
    keys: [Keys; 2],
    /// The hello of the client is complete, or was given up, and that of the server has begun.
    done: [bool; 2],
    /// The beginning of the hello.
    hello: Vec<u8>,
    /// Later pieces behind missing bytes, with their offsets.
    pieces: Vec<(usize, Vec<u8>)>,
}

impl Conversation {
    /// Reads a datagram of a side. It is the conversation's if it may have a part of a hello. The side that says a hello is the
    /// client of that connection, and facts are of this role.
    pub fn feed(&mut self, side: Side, datagram: &[u8], kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        if let Some(long) = gquic::Long::parse(datagram) {
            return self.google(&long, side, ear);
        }
        let (mut rest, mut tries, mut fed, mut frames) = (datagram, CONNECTIONS, Fed::NotMine, Vec::new());
        while let Some((initial, end)) = Initial::parse(rest) {
            rest = &rest[end..];
            if let Some(at) = self.find(&initial, side, &mut tries, &mut frames, kept, ear)
                && self.packet(at, &initial, side, &frames, kept, ear) == Fed::Mine
            {
                fed = Fed::Mine;
            }
        }
        fed
    }

    /// The flow has ended.
    pub fn end(&mut self, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        for mut connection in self.connections.drain(..) {
            if !connection.done[0] {
                ear.count(CUT, 1);
            }
            connection.clear(kept);
        }
    }

    /// Bytes of memory beside those that are charged.
    pub fn own_bytes(&self) -> usize {
        self.connections.capacity() * size_of::<Connection>()
    }

    fn begin(&mut self, side: Side, ear: &mut dyn Ear<Fact>) -> Id {
        let id = Id { exchange: self.packets, side };
        self.packets += 1;
        ear.begin(id);
        id
    }

    /// Decrypts a packet into `frames`, and returns the place of its connection, which may begin with it. `tries`: the
    /// keys that may still be derived.
    fn find(
        &mut self,
        initial: &Initial<'_>,
        side: Side,
        tries: &mut usize,
        frames: &mut Vec<u8>,
        kept: &Carried,
        ear: &mut dyn Ear<Fact>,
    ) -> Option<usize> {
        let decrypts = |known: &Connection| known.keys[known.role(side).index()].decrypt(initial, frames);
        let known = self.connections.iter().rposition(decrypts);
        if known.is_some() {
            return known;
        }
        let id = Id { exchange: self.packets, side };
        let Some(left) = tries.checked_sub(1) else {
            ear.lost(id, TOO_MANY);
            return None;
        };
        *tries = left;
        let [client, server] = [Side::Client, Side::Server].map(|role| Keys::of(initial.version, initial.target, role));
        let Some(client) = client.filter(|keys| keys.decrypt(initial, frames)) else {
            // Without its client's first packet, that of a server is none.
            if side.is_client() {
                ear.count(UNREADABLE, 1);
            }
            return None;
        };
        if self.connections.len() == CONNECTIONS {
            let oldest = self.connections.iter().position(|known| known.done[0]).unwrap_or(0);
            let mut oldest = self.connections.remove(oldest);
            if !oldest.done[0] {
                ear.lost(id, DISPLACED);
            }
            oldest.clear(kept);
        }
        let keys = [client, server?];
        let (done, hello, pieces) = ([false; 2], Vec::new(), Vec::new());
        self.connections.push(Connection { client: side, keys, done, hello, pieces });
        Some(self.connections.len() - 1)
    }

    /// Reads the frames of a connection's packet.
    fn packet(
        &mut self,
        at: usize,
        initial: &Initial<'_>,
        side: Side,
        frames: &[u8],
        kept: &Carried,
        ear: &mut dyn Ear<Fact>,
    ) -> Fed {
        let role = self.connections[at].role(side);
        if self.connections[at].done[role.index()] {
            return Fed::NotMine;
        }
        let id = self.begin(role, ear);
        ear.fact(id, Fact::Version, &initial.version.number.to_be_bytes());
        let connection = &mut self.connections[at];
        if !role.is_client() {
            connection.done[1] = Crypto::new(frames).next().is_some();
            ear.end(id, How::Complete);
            return Fed::NotMine;
        }
        let mut how = How::Complete;
        let read = connection.gather(frames, kept).and_then(|()| connection.say(id, ear));
        if let Err(what) = read {
            ear.lost(id, what);
            (connection.done[0], how) = (true, How::Cut);
        }
        if connection.done[0] {
            connection.clear(kept);
        }
        ear.end(id, how);
        Fed::Mine
    }

    /// Reads a packet of Google's QUIC. A client's fingerprint is its version and the names of all values.
    fn google(&mut self, long: &gquic::Long<'_>, side: Side, ear: &mut dyn Ear<Fact>) -> Fed {
        let hello = long.hello().filter(|_| long.is_initial);
        let id = self.begin(if hello.is_some() { Side::Client } else { side }, ear);
        ear.fact(id, Fact::Version, &long.version);
        if let Some(hello) = hello {
            let mut text = [&long.version[2..], b","].concat();
            for (place, (name, value)) in hello.enumerate() {
                if place > 0 {
                    text.push(b'-');
                }
                text.extend_from_slice(name);
                match name {
                    b"SNI" => ear.fact(id, Fact::Sni, value),
                    b"UAID" => ear.fact(id, Fact::UserAgent, value),
                    _ => {}
                }
            }
            say_hashed([Fact::CyuString, Fact::CyuHash], id, ear, |out| out.append(&mut text));
            ear.head_done(id);
        }
        ear.end(id, How::Complete);
        if hello.is_some() { Fed::Mine } else { Fed::NotMine }
    }
}

impl Connection {
    /// The role of a side of the flow.
    fn role(&self, side: Side) -> Side {
        if side == self.client { Side::Client } else { Side::Server }
    }

    /// Adds the pieces in `frames` to the hello. The error names what stopped it.
    fn gather(&mut self, frames: &[u8], kept: &Carried) -> Result<(), &'static str> {
        for (offset, bytes) in Crypto::new(frames) {
            let end = offset.saturating_add(bytes.len() as u64);
            if end > HELLO_LIMIT as u64 || self.pieces.len() == QUIC_PIECES {
                return Err(TOO_LONG);
            }
            let offset = offset as usize;
            let has_room = if offset <= self.hello.len() {
                let new = bytes.get(self.hello.len() - offset..).unwrap_or_default();
                kept.keep(&mut self.hello, new)
            } else {
                let mut piece = Vec::new();
                let has_room = kept.keep(&mut piece, bytes);
                self.pieces.push((offset, piece));
                has_room
            };
            if !has_room {
                return Err(NO_ROOM);
            }
        }
        // Earlier pieces that now fit. Each turn removes one.
        while let Some(at) = self.pieces.iter().position(|(offset, _)| *offset <= self.hello.len()) {
            let (offset, mut piece) = self.pieces.swap_remove(at);
            let passed = piece.len().min(self.hello.len() - offset);
            kept.pass(&mut piece, passed);
            self.hello.append(&mut piece);
        }
        Ok(())
    }

    /// Says what the hello says if it is complete. The error names what is wrong.
    fn say(&mut self, id: Id, ear: &mut dyn Ear<Fact>) -> Result<(), &'static str> {
        match message(&self.hello) {
            Ok(Hello::Client(hello)) => say(&hello, id, ear),
            Err(Stop::Incomplete { .. }) => return Ok(()),
            _ => return Err(MALFORMED),
        }
        self.done[0] = true;
        Ok(())
    }

    fn clear(&mut self, kept: &Carried) {
        kept.clear(&mut self.hello);
        std::mem::take(&mut self.pieces).iter_mut().for_each(|(_, piece)| kept.clear(piece));
    }
}

fn say(hello: &ClientHello<'_>, id: Id, ear: &mut dyn Ear<Fact>) {
    if let Some(name) = hello.server_name() {
        ear.fact(id, Fact::Sni, name);
    }
    hello.application_protocols().for_each(|protocol| ear.fact(id, Fact::Alpn, protocol));
    say_client(hello, Transport::Quic, [Fact::Ja3String, Fact::Ja3Hash, Fact::Ja4], id, ear);
    ear.head_done(id);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::Heard;
    use crate::quic::keys::encrypt;
    use proptest::prelude::*;

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

    /// The hosts that are heard, what is lost, and what ends.
    fn heard(limit: usize, datagrams: &[(Side, Vec<u8>)]) -> Vec<String> {
        let (mut conversation, kept, mut ear) = (Conversation::default(), Carried::new(limit), Heard::default());
        for (side, datagram) in datagrams {
            let begins = crate::quic::begins(datagram);
            let fed = conversation.feed(*side, datagram, &kept, &mut ear);
            assert!(begins || fed == Fed::NotMine);
            assert!(conversation.connections.len() <= CONNECTIONS);
        }
        conversation.end(&kept, &mut ear);
        assert_eq!(kept.bytes(), 0);
        let is_news = |said: &String| ["Sni", "lost", "1 ", "UserAgent", "Cyu"].iter().any(|it| said.starts_with(it));
        ear.said.into_iter().filter(is_news).collect()
    }

    fn check(datagrams: &[&[u8]], expected: &[&str]) {
        for side in [Side::Client, Side::Server] {
            let datagrams: Vec<_> = datagrams.iter().map(|datagram| (side, datagram.to_vec())).collect();
            assert_eq!(heard(KEPT_BYTES, &datagrams), expected);
        }
    }

    #[test]
    fn each_connection_of_a_pair_of_ports_has_its_hello() {
        let good = hello(b"good.example");
        let evil = encrypt(b"abcdefgh", &crypto(0, &hello(b"evil.example")));
        let (front, back) = (crypto(0, &good[..20]), crypto(20, &good[20..]));
        let [front, back, whole] = [front, back, crypto(0, &good)].map(|frames| encrypt(b"12345678", &frames));
        check(&[&whole, &evil, &whole], &["Sni=good.example", "Sni=evil.example"]);
        check(&[&back, &evil, &front], &["Sni=evil.example", "Sni=good.example"]);
        check(&[&back, &evil], &["Sni=evil.example", &format!("1 {CUT}")]);
        let other = encrypt(b"12345678", &crypto(0, b"\x09\0\0\x01x"));
        check(&[&other, &evil, &whole], &[&format!("lost {MALFORMED}"), "Sni=evil.example"]);
    }

    #[test]
    fn connections_and_tries_are_bounded() {
        let good = hello(b"good.example");
        let of = |number: u8| encrypt(&[number; 8], &crypto(20, &good[20..]));
        let many: Vec<_> = (0..=CONNECTIONS as u8).map(of).collect();
        let cut = format!("1 {CUT}");
        let expected = [&[format!("lost {DISPLACED}")][..], &vec![cut.clone(); CONNECTIONS]].concat();
        let of_client =
            |datagrams: Vec<Vec<u8>>| datagrams.into_iter().map(|it| (Side::Client, it)).collect::<Vec<_>>();
        assert_eq!(heard(KEPT_BYTES, &of_client(many.clone())), expected);
        let expected = [&[format!("lost {TOO_MANY}")][..], &vec![cut; CONNECTIONS]].concat();
        assert_eq!(heard(KEPT_BYTES, &[(Side::Client, many.concat())]), expected);
        assert_eq!(heard(10, &[(Side::Client, of(1))]), [format!("lost {NO_ROOM}")]);
        let pieces: Vec<u8> = (0..=QUIC_PIECES).flat_map(|number| crypto(1 + 2 * number, b"x")).collect();
        check(&[&encrypt(b"12345678", &pieces)], &[&format!("lost {TOO_LONG}")]);
        let in_order: Vec<u8> = good.iter().enumerate().flat_map(|(at, byte)| crypto(at, &[*byte])).collect();
        check(&[&encrypt(b"12345678", &in_order)], &["Sni=good.example"]);
    }

    #[test]
    fn a_packet_that_no_key_decrypts_is_counted_for_a_client() {
        let mut damaged = encrypt(b"12345678", &crypto(0, &hello(b"a")));
        damaged[60] ^= 1;
        assert_eq!(heard(KEPT_BYTES, &[(Side::Client, damaged.clone())]), [format!("1 {UNREADABLE}")]);
        assert!(heard(KEPT_BYTES, &[(Side::Server, damaged)]).is_empty());
    }

    #[test]
    fn googles_hello() {
        let hello = [&b"CHLO\x02\0\0\0SNI\0\x05\0\0\0UAID\x07\0\0\0"[..], b"a.orgme"].concat();
        let frame = [&[0xa0, 1, 0, hello.len() as u8][..], &hello].concat();
        let packet = [&[0xc3][..], b"Q046\x50", &[7; 8], &[0, 0, 0, 1], &[9; 12], &frame].concat();
        let cyu = ["CyuString=46,SNI-UAID", "CyuHash=3ee85c355061ebe189ec4ca49623e324"];
        check(&[&packet], &["Sni=a.org", "UserAgent=me", cyu[0], cyu[1]]);
    }

    #[test]
    fn versions() {
        let check = |version: u32, expected: &str| {
            let shown = Kind::Shown(show_version).shown(&version.to_be_bytes()).into_owned();
            assert_eq!(String::from_utf8(shown).unwrap(), expected);
        };
        check(1, "1");
        check(VERSION_2, "2");
        check(0xff00_001d, "draft-29");
        check(u32::from_be_bytes(*b"Q046"), "Q046");
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..80), is_client: bool, sort in 0u8..3) {
            let datagram = match sort {
                0 => bytes,
                1 => [&b"\xc3Q046\x50"[..], &bytes].concat(),
                _ => encrypt(b"12345678", &bytes),
            };
            heard(KEPT_BYTES, &[(Side::to_server(is_client), datagram)]);
        }
    }
}
