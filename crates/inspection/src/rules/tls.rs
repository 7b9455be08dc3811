//! TLS for rules: one transaction per connection, from the hellos and the unencrypted certificates, which
//! `protocols::tls` finds, as it does for the filter `tls`.

use super::exchanges::Names;
use super::transactions::Transactions;
use protocols::carry::Carried;
use protocols::conversation::{Ear, Fact as _, How, Id};
use protocols::tls::HELLO_LIMIT;
use protocols::tls::facts::Fact;
use protocols::tls::odd::Records;
use protocols::tls::opening::Opening;
use rules::Transaction;
use rules::names::App;

pub(super) const NAMES: &Names = &Names::new(Fact::ALL);

/// Most bytes kept of both sides until their hellos and certificates are complete, with record headers.
const KEPT_BYTES: usize = 2 * (HELLO_LIMIT + (32 << 10));

/// The openings of both sides.
#[derive(Debug)]
pub(super) struct Openings {
    sides: [Opening; 2],
    kept: Carried,
    scratch: Vec<u8>,
}

impl Default for Openings {
    fn default() -> Openings {
        Openings { sides: Default::default(), kept: Carried::new(KEPT_BYTES), scratch: Vec::new() }
    }
}

impl Openings {
    /// Reads the next bytes of a side, before which `gap` are missing.
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: u32, to: &mut Transactions) {
        let Openings { sides, kept, scratch } = self;
        let opening = &mut sides[usize::from(!to_server)];
        let mut ear = Listener { to_server, to };
        if gap > 0 {
            opening.gap(kept, &mut ear);
        }
        opening.feed(bytes, gap.saturating_add(bytes.len() as u32), kept, scratch, &mut ear);
    }

    /// Whether later bytes of both sides are passed over.
    pub fn are_over(&self) -> bool {
        self.sides.iter().all(Opening::is_over)
    }

    pub fn kept_bytes(&self) -> usize {
        self.kept.bytes() + self.scratch.capacity()
    }
}

/// Puts the facts of a side into the only transaction.
struct Listener<'a> {
    /// Who speaks.
    to_server: bool,
    to: &'a mut Transactions,
}

impl Listener<'_> {
    fn put(&mut self, put: impl FnOnce(&mut Transaction)) {
        let one = self.to.only(App::Tls);
        let id = one.id;
        put(one);
        self.to.change(id, self.to_server);
    }

    /// Whether the speaker has the role of which a fact is: buffers belong to a side.
    fn is_own(&self, id: Id) -> bool {
        id.side.is_client() == self.to_server
    }
}

impl Ear<Fact> for Listener<'_> {
    fn fact(&mut self, id: Id, fact: Fact, value: &[u8]) {
        let to_server = self.to_server;
        if self.is_own(id) {
            self.put(|one| NAMES.put(one, fact.number(), to_server, value));
        }
    }

    fn number(&mut self, id: Id, fact: Fact, value: u64) {
        let to_server = self.to_server;
        if self.is_own(id) {
            self.put(|one| NAMES.put_number(one, fact.number(), to_server, value));
        }
    }

    fn odd(&mut self, _id: Id, event: &'static str) {
        let to_server = self.to_server;
        self.put(|one| one.put_event(event, to_server));
    }

    fn lost(&mut self, _id: Id, _what: &'static str) {
        self.to.given_up += 1;
        self.to.unseen = true;
    }

    fn count(&mut self, _what: &'static str, times: u64) {
        self.to.given_up += times;
    }

    fn end(&mut self, _id: Id, _how: How) {}
}

/// A connection that begins with TLS: openings, and what is odd about records.
#[derive(Debug, Default)]
pub(super) struct Stream {
    openings: Openings,
    records: Records,
}

impl Stream {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: u32, to: &mut Transactions) {
        let mut odd = Vec::new();
        self.records.feed(bytes, to_server, gap > 0, &mut odd);
        if !odd.is_empty() {
            let one = to.only(App::Tls);
            let id = one.id;
            odd.into_iter().for_each(|event| one.put_event(event, to_server));
            to.change(id, to_server);
        }
        self.openings.feed(bytes, to_server, gap, to);
    }

    pub fn kept_bytes(&self) -> usize {
        self.openings.kept_bytes() + self.records.kept_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind], &(body.len() as u32).to_be_bytes()[1..], body].concat()
    }

    fn record(body: &[u8]) -> Vec<u8> {
        [&[22, 3, 3], &(body.len() as u16).to_be_bytes()[..], body].concat()
    }

    fn server_hello() -> Vec<u8> {
        message(2, &[&[3, 3][..], &[7; 32], &[0, 0, 5, 0]].concat())
    }

    fn events(stream: &[u8], to_server: bool) -> Vec<&'static str> {
        let of = |size: usize| {
            let (mut tls, mut to) = (Stream::default(), Transactions::default());
            stream.chunks(size).for_each(|piece| tls.feed(piece, to_server, 0, &mut to));
            to.only(App::Tls).events.iter().map(|(event, _)| *event).collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(stream.len()), "byte by byte");
        of(1)
    }

    #[test]
    fn odd_messages_are_said_once() {
        const INVALID: [&str; 2] = ["tls.invalid_certificate", "tls.invalid_handshake_message"];
        let behind = |more: &[u8]| [record(&server_hello()), record(more)].concat();
        let check = |stream: &[u8], expected: &[&str]| assert_eq!(events(stream, false), expected, "{stream:x?}");
        check(&behind(&message(11, &[0, 0, 0])), &[]);
        check(&behind(&message(14, &[])), &[]);
        check(&record(&message(2, &[3, 3])), &["tls.invalid_handshake_message"]);
        check(&behind(&[11, 2, 0, 0]), &["tls.handshake_invalid_length"]);
        check(&behind(&[12, 2, 0, 0]), &["tls.handshake_invalid_length"]);
        let (cut, wrong) = ("tls.certificate_invalid_length", "tls.certificate_unknown_element");
        check(&behind(&message(11, &[0, 0, 4, 0, 0, 2, 1])), &[cut, INVALID[0], INVALID[1]]);
        check(&behind(&message(11, &[0, 0, 5, 0, 0, 3, 1, 2])), &[cut, INVALID[0], INVALID[1]]);
        let two = [0, 0, 10, 0, 0, 2, 4, 0, 0, 0, 2, 4, 0];
        check(&behind(&message(11, &two)), &[wrong, INVALID[0], INVALID[1]]);
        assert_eq!(events(&record(&message(1, &[3, 3])), true), ["tls.invalid_handshake_message"]);
    }

    #[test]
    fn openings_given_up_are_counted() {
        let feed = |mut tls: Stream, pieces: &[(&[u8], u32)]| {
            let mut to = Transactions::default();
            pieces.iter().for_each(|(bytes, gap)| tls.feed(bytes, false, *gap, &mut to));
            (to.given_up, to.unseen)
        };
        let (hello, small) = (record(&server_hello()), || {
            let openings = Openings { kept: Carried::new(4), ..Openings::default() };
            Stream { openings, ..Stream::default() }
        });
        assert_eq!(feed(Stream::default(), &[(&hello, 0), (&hello, 5)]), (0, false), "the gap is behind the hello");
        assert_eq!(
            feed(Stream::default(), &[(&hello[..9], 0), (&hello[12..], 3)]),
            (1, false),
            "no limit is the cause"
        );
        assert_eq!(feed(small(), &[(&hello[..9], 0)]), (1, true), "there is no room for the hello");
        assert_eq!(feed(small(), &[(&[&hello[..], &[22, 3, 3, 0, 9]].concat(), 0)]), (1, true), "nor for certificates");
    }

    #[test]
    fn what_records_keep_is_counted() {
        let (mut tls, mut to) = (Stream::default(), Transactions::default());
        tls.feed(&[22, 3, 3], true, 0, &mut to);
        assert!(tls.kept_bytes() >= 6, "the bytes, and the header of the record");
        tls.feed(&[], true, 1, &mut to);
        assert!(tls.records.kept_bytes() > 0 && tls.kept_bytes() == tls.records.kept_bytes());
    }
}
