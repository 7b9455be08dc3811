//! Both sides of DCE/RPC: calls over TCP, in datagrams, and in pipes of SMB. A call with its result is an exchange, and so
//! is a bind with its answer. Fragments are joined by their call.
//!
//! A message inside one run is read where it lies; one that spans runs is kept until it is whole.

use super::{Body, Datagram, FIRST, Fact, Header, Interface, LAST, kind};
use crate::carry::Carried;
use crate::conversation::{self, Ear, Fed, How, Id, Run, Side};
use std::fmt::Write as _;

/// Most interfaces kept of a connection.
pub const INTERFACES: usize = 1024;
/// Most interfaces that a call may have while the server has not answered.
const CANDIDATES: usize = 8;
/// Most calls that may wait for a response.
pub const CALLS: usize = 256;

/// Most bytes kept of one connection.
pub const KEPT_BYTES: usize = 2 * (u16::MAX as usize + INTERFACES * size_of::<Bound>() + CALLS * size_of::<Call>());

/// Names of losses: something that a limit pushed out, and messages that needed it.
const PUSHED_OUT: &str = "dcerpc calls and interfaces no longer known";
/// A call's start or its interface is not known.
pub const UNSEEN: &str = "dcerpc calls whose start or interface is no longer known";
const LOST: &str = "dcerpc directions lost to a gap";
const DAMAGED: &str = "dcerpc directions whose rest is not read";
const NO_ROOM: &str = "dcerpc messages not read for want of memory";

/// A connection, a pipe, or a flow of datagrams.
#[derive(Debug, Default)]
pub struct Conversation {
    sides: [Stream; 2],
    interfaces: Vec<Bound>,
    open: Vec<Call>,
    /// An interface, or a call, was pushed out of its table.
    pushed_out: [bool; 2],
    /// Exchanges so far.
    exchanges: u64,
    /// Memory that is counted for the tables.
    counted: usize,
    is_of_datagrams: bool,
}

/// A side of a connection.
#[derive(Debug, Default)]
struct Stream {
    /// The start of a message.
    bytes: Vec<u8>,
    /// Bytes of a message with a gap that are left to pass over.
    skip: usize,
    /// Where a message begins is unknown.
    is_lost: bool,
}

/// An interface that a client has bound. Those that the server refused are removed.
#[derive(Debug)]
struct Bound {
    context: u16,
    interface: Interface,
    /// The call that bound it.
    call: u32,
    /// The server's answer; `None`: it has not answered.
    accepted: Option<bool>,
}

/// The numbers by which messages name their call. Calls of connections have no activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    call: u32,
    activity: [u8; 16],
}

/// A call that is not over.
#[derive(Debug)]
struct Call {
    key: Key,
    exchange: u64,
    /// The interface in datagrams, which each of them names.
    interface: Option<Interface>,
    sides: [Half; 2],
}

/// What a side said of a call.
#[derive(Clone, Copy, Debug, Default)]
struct Half {
    fragments: u64,
    stub_bytes: u64,
    is_over: bool,
}

/// What a call needs.
struct Talk<'a, 'b> {
    side: Side,
    time: u64,
    kept: &'a Carried,
    ear: &'a mut (dyn Ear<Fact> + 'b),
}

/// A message, and where it stands in the run; `None`: it was kept.
#[derive(Clone, Copy)]
struct Message<'a> {
    bytes: &'a [u8],
    at: Option<usize>,
}

impl Conversation {
    /// A flow of datagrams, or a connection.
    pub(super) fn of(is_of_datagrams: bool) -> Conversation {
        Conversation { is_of_datagrams, ..Conversation::default() }
    }

    /// Reads the next bytes of a side, or a datagram.
    pub fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        let mut talk = Talk { side, time: run.time, kept, ear };
        let is_mine = match self.is_of_datagrams {
            true => self.datagram(run.bytes, &mut talk),
            false => self.stream(run.bytes, &mut talk),
        };
        let tables = self.interfaces.capacity() * size_of::<Bound>() + self.open.capacity() * size_of::<Call>();
        if !kept.recount(&mut self.counted, tables) {
            talk.ear.lost(Id { exchange: self.exchanges, side }, NO_ROOM);
            self.end(kept, talk.ear);
        }
        if is_mine { Fed::Mine } else { Fed::NotMine }
    }

    /// Bytes of a side are missing. The rest of a message is passed over; otherwise the next run that begins with one counts.
    pub fn gap(&mut self, side: Side, missing: u32, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        let (stream, missing) = (&mut self.sides[side.index()], missing as usize);
        if missing == 0 || stream.is_lost || self.is_of_datagrams {
            return;
        }
        let left = match Header::parse(&stream.bytes) {
            Some(header) => header.length - stream.bytes.len(),
            None => stream.skip,
        };
        kept.clear(&mut stream.bytes);
        (stream.skip, stream.is_lost) = (left.saturating_sub(missing), missing > left);
        ear.count(LOST, 1);
        // The bytes behind the gap do not continue the message in front of it.
        for at in (0..self.open.len()).rev() {
            let half = self.open[at].sides[side.index()];
            if half.fragments > 0 && !half.is_over {
                let exchange = self.open.remove(at).exchange;
                ear.end(Id { exchange, side }, How::Gap);
                ear.over(exchange);
            }
        }
    }

    /// Nothing more comes.
    pub fn end(&mut self, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        for Call { exchange, sides, .. } in std::mem::take(&mut self.open) {
            for (side, half) in [Side::Client, Side::Server].into_iter().zip(sides) {
                if half.fragments > 0 && !half.is_over {
                    ear.end(Id { exchange, side }, How::Cut);
                }
            }
            ear.over(exchange);
        }
        self.interfaces = Vec::new();
        for stream in &mut self.sides {
            kept.clear(&mut stream.bytes);
        }
        _ = kept.recount(&mut self.counted, 0);
    }

    /// Reads bytes of a connection; `false`: they are no messages.
    fn stream(&mut self, bytes: &[u8], talk: &mut Talk<'_, '_>) -> bool {
        let at_side = talk.side.index();
        let stream = &mut self.sides[at_side];
        if stream.is_lost && Header::parse(bytes).is_none() {
            return false;
        }
        stream.is_lost = false;
        let mut at = stream.skip.min(bytes.len());
        stream.skip -= at;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let stream = &mut self.sides[at_side];
            let used = match (stream.bytes.is_empty(), Header::parse(rest)) {
                (true, None) if rest.len() >= Header::BYTES => return self.lose(talk),
                (true, Some(header)) if rest.len() >= header.length => {
                    let message = Message { bytes: &rest[..header.length], at: Some(at) };
                    self.message(&header, message, talk);
                    header.length
                }
                _ => match self.gather(rest, talk) {
                    Some(used) => used,
                    None => return self.lose(talk),
                },
            };
            at += used;
        }
        true
    }

    /// Keeps the start of a message, and reads it when it is whole. Returns how many bytes it took; `None`: it is none.
    fn gather(&mut self, rest: &[u8], talk: &mut Talk<'_, '_>) -> Option<usize> {
        let part = &mut self.sides[talk.side.index()].bytes;
        let mut used = 0;
        let mut need = Header::BYTES;
        loop {
            let taken = need.saturating_sub(part.len()).min(rest.len() - used);
            if !talk.kept.keep(part, &rest[used..used + taken]) {
                talk.ear.lost(Id { exchange: self.exchanges, side: talk.side }, NO_ROOM);
                return None;
            }
            used += taken;
            if part.len() < need {
                return Some(used);
            }
            let header = Header::parse(part)?;
            if part.len() >= header.length {
                let mut message = std::mem::take(part);
                self.message(&header, Message { bytes: &message, at: None }, talk);
                talk.kept.clear(&mut message);
                return Some(used);
            }
            need = header.length;
        }
    }

    /// The next bytes begin no message.
    fn lose(&mut self, talk: &mut Talk<'_, '_>) -> bool {
        let stream = &mut self.sides[talk.side.index()];
        talk.kept.clear(&mut stream.bytes);
        stream.is_lost = true;
        talk.ear.count(DAMAGED, 1);
        false
    }

    fn message(&mut self, header: &Header, message: Message<'_>, talk: &mut Talk<'_, '_>) {
        let (is_first, is_last) = (header.flags & FIRST != 0, header.flags & LAST != 0);
        let body = header.body(message.bytes);
        let asks = matches!(header.kind, kind::REQUEST | kind::BIND | kind::ALTER_CONTEXT);
        let key = Key { call: header.call, activity: [0; 16] };
        let (at, id) = self.call(key, asks && is_first, talk);
        if talk.ear.wants().frames {
            talk.ear.frame(id, message.bytes);
        }
        self.tell_message(at, header.kind, header.is_little, talk);
        match body {
            Body::Request { context, operation, stub } if talk.side.is_client() => {
                if self.open[at].sides[0].fragments == 1 {
                    talk.ear.number(id, Fact::Opnum, operation.into());
                    self.candidates(context, id, talk);
                }
                self.stub(at, stub, message, talk);
            }
            Body::Response { stub } if !talk.side.is_client() => self.stub(at, stub, message, talk),
            // Only a first fragment carries valid interfaces.
            Body::Bind(contexts) if is_first && talk.side.is_client() => {
                for (context, interface) in contexts {
                    talk.ear.fact(id, Fact::Interface, text(&interface).as_bytes());
                    self.interfaces.push(Bound { context, interface, call: header.call, accepted: None });
                }
                let over = self.interfaces.len().saturating_sub(INTERFACES);
                self.interfaces.drain(..over);
                self.pushed_out[0] |= over > 0;
                (0..over).for_each(|_| talk.ear.lost(id, PUSHED_OUT));
            }
            Body::Bound(results) if !talk.side.is_client() => {
                let unanswered = |known: &&mut Bound| known.call == header.call && known.accepted.is_none();
                for (known, is_accepted) in self.interfaces.iter_mut().filter(unanswered).zip(results) {
                    known.accepted = Some(is_accepted);
                }
                self.interfaces.retain(|known| known.accepted != Some(false));
            }
            _ if !talk.side.is_client() && matches!(header.kind, kind::BIND_NAK | kind::FAULT) => {
                self.interfaces.retain(|known| known.call != header.call || known.accepted.is_some());
            }
            _ => {}
        }
        if is_last {
            self.complete(at, talk);
        }
    }

    /// Tells the interfaces of a call. The newest one may still be refused: then the one before it counts.
    fn candidates(&self, context: u16, id: Id, talk: &mut Talk<'_, '_>) {
        let mut count = 0;
        for known in self.interfaces.iter().rev().filter(|known| known.context == context) {
            if count >= CANDIDATES {
                return talk.ear.lost(id, UNSEEN);
            }
            count += 1;
            tell_interface(&known.interface, id, talk);
            if known.accepted == Some(true) {
                return;
            }
        }
        if count == 0 && self.pushed_out[0] {
            talk.ear.lost(id, UNSEEN);
        }
    }

    /// Reads a datagram; `false`: it is of another protocol.
    fn datagram(&mut self, bytes: &[u8], talk: &mut Talk<'_, '_>) -> bool {
        let Some(datagram) = Datagram::parse(bytes) else { return false };
        let Datagram { interface, activity, operation, call, stub, .. } = datagram;
        let key = Key { call, activity };
        // A request continues one that is not complete, with the same interface. Fragments come in order.
        let goes_on = |call: &Call| !call.sides[0].is_over && call.interface == Some(interface);
        let known = self.open.iter().find(|call| call.key == key);
        let begins = datagram.kind == kind::REQUEST && known.is_some_and(|call| !goes_on(call));
        let is_new = known.is_none() || begins;
        let (at, id) = self.call(key, begins, talk);
        self.open[at].interface = Some(interface);
        self.tell_message(at, datagram.kind, datagram.is_little, talk);
        if is_new {
            let of_client = Id { side: Side::Client, ..id };
            talk.ear.number(of_client, Fact::Opnum, operation.into());
            tell_interface(&interface, of_client, talk);
        }
        self.stub_at(at, stub, Some(Datagram::BYTES), talk);
        if datagram.is_last {
            self.complete(at, talk);
        }
        true
    }

    /// The place of a call, and its identity. `begins`: the number may be used again, so it is a new one.
    fn call(&mut self, key: Key, begins: bool, talk: &mut Talk<'_, '_>) -> (usize, Id) {
        let side = talk.side;
        if let Some(at) = self.open.iter().position(|call| call.key == key) {
            if !begins {
                return (at, Id { exchange: self.open[at].exchange, side });
            }
            let old = self.open.remove(at).exchange;
            talk.ear.over(old);
        } else if !begins && self.pushed_out[1] {
            talk.ear.lost(Id { exchange: self.exchanges, side }, UNSEEN);
        }
        if self.open.len() >= CALLS {
            let idle = self.open.iter().position(|call| call.sides[0].is_over).unwrap_or(0);
            let exchange = self.open.remove(idle).exchange;
            self.pushed_out[1] = true;
            talk.ear.lost(Id { exchange, side }, PUSHED_OUT);
            talk.ear.over(exchange);
        }
        let id = Id { exchange: self.exchanges, side };
        self.exchanges += 1;
        self.open.push(Call { key, exchange: id.exchange, interface: None, sides: Default::default() });
        talk.ear.begin(id);
        talk.ear.number(id, Fact::Call, key.call.into());
        (self.open.len() - 1, id)
    }

    /// Tells what each message says, and the type of a side's first one.
    fn tell_message(&mut self, at: usize, kind: u8, is_little: bool, talk: &mut Talk<'_, '_>) {
        let call = &mut self.open[at];
        let id = Id { exchange: call.exchange, side: talk.side };
        let half = &mut call.sides[talk.side.index()];
        if half.fragments == 0 {
            let fact = if talk.side.is_client() { Fact::Request } else { Fact::Response };
            talk.ear.number(id, fact, kind.into());
        }
        half.fragments += 1;
        talk.ear.number(id, Fact::IsLittle, is_little.into());
    }

    fn stub(&mut self, at: usize, stub: &[u8], message: Message<'_>, talk: &mut Talk<'_, '_>) {
        let start = message.at.map(|from| from + message.bytes.len() - stub.len());
        self.stub_at(at, stub, start, talk);
    }

    /// Tells coded arguments or results, which stand there in the run.
    fn stub_at(&mut self, at: usize, stub: &[u8], start: Option<usize>, talk: &mut Talk<'_, '_>) {
        let call = &mut self.open[at];
        call.sides[talk.side.index()].stub_bytes += stub.len() as u64;
        if stub.is_empty() {
            return;
        }
        let piece = match start {
            Some(start) => conversation::Body::Range(start..start + stub.len()),
            None => conversation::Body::Kept(stub, talk.time),
        };
        talk.ear.body(Id { exchange: call.exchange, side: talk.side }, piece);
    }

    /// A side said all of a call.
    fn complete(&mut self, at: usize, talk: &mut Talk<'_, '_>) {
        let call = &mut self.open[at];
        let id = Id { exchange: call.exchange, side: talk.side };
        let half = &mut call.sides[talk.side.index()];
        half.is_over = true;
        talk.ear.number(id, Fact::Fragments, half.fragments);
        talk.ear.number(id, Fact::StubBytes, half.stub_bytes);
        talk.ear.end(id, How::Complete);
        if !talk.side.is_client() {
            self.open.remove(at);
            talk.ear.over(id.exchange);
        }
    }
}

fn tell_interface(interface: &Interface, id: Id, talk: &mut Talk<'_, '_>) {
    let version = interface.version.to_be_bytes();
    talk.ear.fact(id, Fact::Interface, text(interface).as_bytes());
    talk.ear.fact(id, Fact::InterfaceBytes, &[&interface.uuid[..], &version].concat());
}

/// An interface in records.
fn text(interface: &Interface) -> String {
    let mut text = String::new();
    for (at, byte) in interface.uuid.iter().enumerate() {
        let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
        _ = write!(text, "{dash}{byte:02x}");
    }
    _ = write!(text, " v{}", interface.version);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::{Heard, check_datagrams, check_talk};
    use proptest::prelude::*;

    fn message(kind: u8, flags: u8, call: u8, body: &[u8]) -> Vec<u8> {
        let length = (Header::BYTES + body.len()) as u8;
        [&[5, 0, kind, flags, 0x10, 0, 0, 0, length, 0, 0, 0, call, 0, 0, 0][..], body].concat()
    }

    fn bind(call: u8, contexts: &[(u8, u8)]) -> Vec<u8> {
        let context = |(id, uuid): &(u8, u8)| [&[*id, 0, 1, 0][..], &[*uuid; 16], &[3, 0, 0, 0], &[0; 20]].concat();
        let contexts = [&[contexts.len() as u8, 0, 0, 0][..], &contexts.iter().flat_map(context).collect::<Vec<_>>()];
        message(kind::BIND, FIRST | LAST, call, &[&[0; 8][..], &contexts.concat()].concat())
    }

    fn bound(call: u8, results: &[u8]) -> Vec<u8> {
        let results: Vec<u8> = results.iter().flat_map(|result| [&[*result][..], &[0; 23]].concat()).collect();
        let count = [results.len() as u8 / 24, 0, 0, 0];
        message(kind::BIND_ACK, FIRST | LAST, call, &[&[0; 12][..], &count, &results].concat())
    }

    fn request(flags: u8, call: u8, context: u8, stub: &[u8]) -> Vec<u8> {
        message(kind::REQUEST, flags, call, &[&[0, 0, 0, 0, context, 0, 15, 0][..], stub].concat())
    }

    fn response(flags: u8, call: u8, stub: &[u8]) -> Vec<u8> {
        message(kind::RESPONSE, flags, call, &[&[0; 8][..], stub].concat())
    }

    const TWOS: &str = "Interface=02020202-0202-0202-0202-020202020202 v3";

    /// What is said, without what each message says. Contents do not depend on how they came.
    fn said(runs: &[(Side, u32, Vec<u8>)], size: usize) -> Vec<String> {
        let (mut conversation, kept, mut ear) = (Conversation::default(), Carried::new(1 << 20), Heard::default());
        for (side, gap, bytes) in runs {
            conversation.gap(*side, *gap, &kept, &mut ear);
            for bytes in bytes.chunks(size) {
                conversation.feed(*side, Run { bytes, time: 0 }, &kept, &mut ear);
            }
        }
        conversation.end(&kept, &mut ear);
        assert_eq!(kept.bytes(), 0);
        let is_wanted = |said: &String| {
            let others = ["IsLittle", "bytes", "kept", "InterfaceBytes", "Call"];
            !others.iter().any(|other| said.starts_with(other))
        };
        ear.said.into_iter().filter(is_wanted).collect()
    }

    fn check(runs: &[(Side, u32, Vec<u8>)], expected: &[&str]) {
        for size in [1, 20, usize::MAX] {
            assert_eq!(said(runs, size), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn a_call_of_fragments_and_its_result() {
        let (client, server) = (Side::Client, Side::Server);
        let calls = [request(FIRST, 8, 2, b"one "), request(LAST, 8, 2, b"two")].concat();
        check(
            &[
                (client, 0, bind(7, &[(1, 1), (2, 2)])),
                (server, 0, bound(7, &[2, 0])),
                (client, 0, calls),
                (server, 0, response(FIRST | LAST, 8, b"result")),
            ],
            &[
                "Request=11",
                "Interface=01010101-0101-0101-0101-010101010101 v3",
                TWOS,
                "Fragments=1",
                "StubBytes=0",
                "Complete",
                "Response=12",
                "Fragments=1",
                "StubBytes=0",
                "Complete",
                "Request=0",
                "Opnum=15",
                TWOS,
                "Fragments=2",
                "StubBytes=7",
                "Complete",
                "Response=2",
                "Fragments=1",
                "StubBytes=6",
                "Complete",
            ],
        );
    }

    /// Behind a gap nothing is joined to what came before it.
    #[test]
    fn gaps() {
        let (first, last) = (request(FIRST, 8, 2, b"one "), request(LAST, 8, 2, b"two"));
        let next = request(FIRST | LAST, 9, 2, b"");
        let start = ["Request=0", "Opnum=15"];
        let cut = |at: usize, gap: u32, rest: &[u8]| {
            said(
                &[(Side::Client, 0, [&first[..], &last[..at]].concat()), (Side::Client, gap, rest.to_vec())],
                usize::MAX,
            )
        };
        let behind = ["Request=0", "Opnum=15", "Fragments=1", "StubBytes=0", "Complete"];
        let lost = "1 dcerpc directions lost to a gap";
        let expected = [&start[..], &[lost, "Gap"], &behind].concat();
        // A gap within a message, one up to its end, and one beyond it.
        assert_eq!(cut(20, 2, &[&last[22..], &next].concat()), expected);
        assert_eq!(cut(20, 7, &next), expected);
        assert_eq!(cut(20, 9, &next), expected);
        assert_eq!(cut(20, 9, &next[1..]), expected[..4]);
        let between = ["Request=0", "Opnum=15", "Fragments=1", "StubBytes=3", "Complete"];
        let between = [&start[..], &[lost, "Gap"], &between].concat();
        assert_eq!(cut(0, 5, &last), between);
    }

    #[test]
    fn calls_that_wait_are_bounded() {
        let calls: Vec<u8> = (0..=255).flat_map(|call| request(FIRST | LAST, call, 1, b"")).collect();
        let mut more = request(FIRST | LAST, 0, 1, b"");
        more[13] = 1;
        let said = said(&[(Side::Client, 0, [calls, more].concat())], usize::MAX);
        assert_eq!(said.iter().filter(|said| *said == &format!("lost {PUSHED_OUT}")).count(), 1);
    }

    #[test]
    fn datagrams_of_a_call() {
        let datagram = |kind: u8, flags: u8, stub: &[u8]| {
            let rest = [0, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 15, 0, 0xff, 0xff, 0xff, 0xff, stub.len() as u8, 0];
            let ids = [&[0; 16][..], &[2; 16], &[7; 16]].concat();
            [&[4, kind, flags, 0, 0x10, 0, 0, 0][..], &ids, &rest, &[0; 4], stub].concat()
        };
        check_datagrams::<Conversation>(
            &[
                (Side::Client, &datagram(kind::REQUEST, 4, b"one ")),
                (Side::Client, &datagram(kind::REQUEST, 6, b"two")),
                (Side::Server, &datagram(kind::RESPONSE, 0, b"x")),
                (Side::Server, b"junk"),
            ],
            &[
                "Call=9",
                "Request=0",
                "IsLittle=1",
                "Opnum=15",
                "Interface=02020202-0202-0202-0202-020202020202 v1",
                "InterfaceBytes=\u{2}\u{2}\u{2}\u{2}\u{2}\u{2}\u{2}\u{2}\u{2}\u{2}\u{2}\u{2}\u{2}\u{2}\u{2}\u{2}\0\u{1}",
                "bytes 80..84",
                "IsLittle=1",
                "bytes 80..83",
                "Fragments=2",
                "StubBytes=7",
                "Complete",
                "Response=2",
                "IsLittle=1",
                "bytes 80..81",
                "Fragments=1",
                "StubBytes=1",
                "Complete",
            ],
        );
    }

    #[test]
    fn what_is_damaged_is_not_read() {
        let bytes = [request(FIRST | LAST, 8, 2, b""), b"junk that is longer than a header".to_vec()].concat();
        check_talk::<Conversation>(&[(Side::Client, &bytes[..8])], &[]);
        assert_eq!(said(&[(Side::Client, 0, bytes)], usize::MAX).len(), 6);
    }

    proptest! {
        #[test]
        fn any_bytes(said_of in proptest::collection::vec(
            (0u8..20, any::<u8>(), any::<bool>(), 0u32..3, proptest::collection::vec(any::<u8>(), 0..60)), 0..20), size in 1usize..90) {
            let runs: Vec<_> = said_of
                .into_iter()
                .map(|(kind, flags, to_server, gap, body)| (Side::to_server(to_server), gap, message(kind, flags, 1, &body)))
                .collect();
            said(&runs, size);
        }
    }
}
