//! DCE/RPC for rules: each call is a transaction, with its fragments joined. The conversation is in `protocols::dcerpc`; those
//! in pipes are a part of SMB's.

use super::exchanges::{Exchanges, Names};
use super::transactions::Transactions;
use base::limits::RULES_BODY_BYTES;
use packet::Flow;
use protocols::carry::Carried;
use protocols::conversation::{Body, Ear, Fact as _, How, Id, Run, Side, Talk as _, Wants};
use protocols::dcerpc::{Conversation, Fact, Header, KEPT_BYTES, UNSEEN};
use rules::Transaction;
use rules::names::{App, Buffer, Number};

const NAMES: &Names = &Names::new(Fact::ALL);

const FRAMES: [Buffer; 3] = [Buffer::FRAME_DCERPC_HDR, Buffer::FRAME_DCERPC_DATA, Buffer::FRAME_DCERPC_PDU];

/// A TCP connection or a flow of datagrams.
#[derive(Debug)]
pub(super) struct Calls {
    conversation: Conversation,
    kept: Carried,
    exchanges: Exchanges,
}

impl Calls {
    pub fn new(flow: &Flow) -> Calls {
        let (conversation, kept) = (Conversation::new(flow), Carried::new(KEPT_BYTES));
        Calls { conversation, kept, exchanges: Exchanges::default() }
    }

    /// Reads the next bytes of a side, behind `gap` missing ones, or a datagram.
    pub fn feed(&mut self, side: Side, run: Run<'_>, gap: u32, to: &mut Transactions) {
        let Calls { conversation, kept, exchanges } = self;
        let mut ear = Listener { app: App::Dcerpc, exchanges, bytes: run.bytes, to };
        conversation.gap(side, gap, kept, &mut ear);
        conversation.feed(side, run, kept, &mut ear);
        to.reader_bytes = kept.bytes();
    }
}

/// Puts calls into transactions.
pub(super) struct Listener<'a> {
    /// What carries the calls.
    pub app: App,
    pub exchanges: &'a mut Exchanges,
    /// The bytes that are read.
    pub bytes: &'a [u8],
    pub to: &'a mut Transactions,
}

impl Listener<'_> {
    fn put(&mut self, id: Id, put: impl FnOnce(&mut Transaction, bool)) {
        if self.exchanges.find(id.exchange, self.to).is_none() {
            // The start of this call was seen, but is no longer there.
            self.to.given_up += 1;
            self.to.unseen = true;
            self.begin(id);
        }
        let one = self.exchanges.transaction(id.exchange, self.app, self.to);
        if let Some(one) = self.to.get(one) {
            put(one, id.side.is_client());
        }
        self.to.change(one, id.side.is_client());
    }
}

impl Ear<Fact> for Listener<'_> {
    fn wants(&self) -> Wants {
        Wants { frames: self.to.frames, ..Wants::default() }
    }

    fn begin(&mut self, id: Id) {
        let one = self.exchanges.transaction(id.exchange, self.app, self.to);
        if let Some(one) = self.to.get(one) {
            // The request of a response may have been missed.
            one.complete[0] = !id.side.is_client();
        }
    }

    fn fact(&mut self, id: Id, fact: Fact, value: &[u8]) {
        let app = self.app;
        self.put(id, |one, to_server| match fact {
            // Rules test the interface on either side of a call, and the operation.
            Fact::InterfaceBytes => {
                [true, false].into_iter().for_each(|side| one.put_copy(Buffer::DCERPC_INTERFACE, side, value));
            }
            // Those of a pipe have the object of SMB.
            _ if app == App::Dcerpc => NAMES.put(one, fact.number(), to_server, value),
            _ => {}
        });
    }

    fn number(&mut self, id: Id, fact: Fact, value: u64) {
        let app = self.app;
        self.put(id, |one, to_server| match fact {
            Fact::IsLittle => one.little_endian = value != 0,
            Fact::Opnum => {
                [true, false].into_iter().for_each(|side| one.put_number(Number::DCERPC_OPNUM, side, value));
            }
            _ if app == App::Dcerpc => NAMES.put_number(one, fact.number(), to_server, value),
            _ => {}
        });
    }

    fn frame(&mut self, id: Id, bytes: &[u8]) {
        if let Some(one) = self.exchanges.find(id.exchange, self.to) {
            // A call may have fragments without end. The message is a change by itself.
            self.to.forget_shown(one, id.side.is_client(), &FRAMES);
        }
        let (header, data) = bytes.split_at(bytes.len().min(Header::BYTES));
        self.put(id, |one, to_server| {
            for (buffer, bytes) in FRAMES.into_iter().zip([header, data, bytes]) {
                one.put_copy(buffer, to_server, bytes);
            }
        });
    }

    fn body(&mut self, id: Id, piece: Body<'_>) {
        let bytes = match piece {
            Body::Range(range) => &self.bytes[range],
            Body::Kept(bytes, _) => bytes,
            Body::Missing(_) => return self.to.given_up += 1,
        };
        self.put(id, |one, to_server| {
            let had = one.first(Buffer::DCERPC_STUB_DATA, to_server).map_or(0, <[u8]>::len);
            let room = bytes.len().min(RULES_BODY_BYTES.saturating_sub(had));
            if room > 0 {
                one.append_copy(Buffer::DCERPC_STUB_DATA, to_server, &bytes[..room]);
            }
            one.growing[usize::from(!to_server)] = true;
        });
    }

    fn lost(&mut self, _id: Id, what: &'static str) {
        self.to.given_up += 1;
        self.to.unseen |= what == UNSEEN;
    }

    fn count(&mut self, _what: &'static str, times: u64) {
        self.to.given_up += times;
    }

    fn end(&mut self, id: Id, _how: How) {
        if let Some(one) = self.exchanges.find(id.exchange, self.to) {
            self.to.complete(one, id.side.is_client());
        }
    }

    fn over(&mut self, exchange: u64) {
        let one = self.exchanges.find(exchange, self.to);
        if let Some(one) = one.and_then(|one| self.to.get(one)) {
            one.complete = [true; 2];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::frame::protocol;
    use proptest::prelude::*;
    use protocols::dcerpc::{FIRST, INTERFACES, LAST, kind};

    fn new(protocol: u8) -> Calls {
        let [source, target] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(Into::into);
        Calls::new(&Flow { source, target, source_port: 40000, target_port: 135, protocol })
    }

    fn feed(calls: &mut Calls, bytes: &[u8], to_server: bool, to: &mut Transactions) {
        calls.feed(Side::to_server(to_server), Run { bytes, time: 0 }, 0, to);
    }

    /// The call with all of its arguments.
    fn whole(to: &Transactions) -> Option<u64> {
        let stub = |id| to.find(id)?.first(Buffer::DCERPC_STUB_DATA, true);
        (0..100).find(|id| stub(*id) == Some(b"one two"))
    }

    fn message(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
        let length = (16 + body.len()) as u8;
        [&[5, 0, kind, flags, 0x10, 0, 0, 0, length, 0, 0, 0, 7, 0, 0, 0][..], body].concat()
    }

    /// A call in two fragments is one transaction. Its interface is the one that the server accepted.
    #[test]
    fn a_call_of_fragments() {
        let context = |id: u8| [&[id, 0, 1, 0][..], &[id; 16], &[3, 0, 0, 0], &[0; 20]].concat();
        let bind = [&[0; 8][..], &[2, 0, 0, 0], &context(1), &context(2)].concat();
        let bound = [&[0; 8][..], &[0, 0, 0, 0], &[2, 0, 0, 0], &[2], &[0; 23], &[0; 24]].concat();
        let request = |stub: &[u8]| [&[0, 0, 0, 0, 2, 0, 15, 0][..], stub].concat();
        let client = [
            message(kind::BIND, 3, &bind),
            message(kind::REQUEST, FIRST, &request(b"one ")),
            message(kind::REQUEST, LAST, &request(b"two")),
        ];
        for size in [1, 10, 1000] {
            let (mut calls, mut to) = (new(protocol::TCP), Transactions::default());
            feed(&mut calls, &client[0], true, &mut to);
            feed(&mut calls, &message(kind::BIND_ACK, 3, &bound), false, &mut to);
            for piece in client[1..].concat().chunks(size) {
                feed(&mut calls, piece, true, &mut to);
            }
            let one = to.last().unwrap();
            assert_eq!(one.first(Buffer::DCERPC_STUB_DATA, true), Some(&b"one two"[..]));
            assert_eq!(one.first(Buffer::DCERPC_INTERFACE, true), Some(&[&[2; 16][..], &[0, 3]].concat()[..]));
            assert_eq!(one.numbers(Number::DCERPC_OPNUM, false).collect::<Vec<_>>(), [15]);
        }
    }

    #[test]
    fn fragments_without_end_are_forgotten_once_seen() {
        let (mut calls, mut to) = (new(protocol::TCP), Transactions::default());
        to.frames = true;
        for _ in 0..100 {
            for _ in 0..10 {
                feed(&mut calls, &message(kind::REQUEST, 0, &[0; 8]), true, &mut to);
            }
            assert_eq!(to.last().unwrap().all(Buffer::FRAME_DCERPC_PDU, true).count(), 10, "only the new ones");
            to.changed.clear();
        }
    }

    /// A message of this call.
    fn of_call(call: u8, mut message: Vec<u8>) -> Vec<u8> {
        message[12] = call;
        message
    }

    fn bind(contexts: &[(u16, u8)]) -> Vec<u8> {
        let contexts = contexts.iter().map(|(context, id)| {
            let [low, high] = context.to_le_bytes();
            [&[low, high, 1, 0][..], &[*id; 16], &[3, 0, 0, 0], &[0; 20]].concat()
        });
        let mut all = [&[0; 8][..], &[contexts.len() as u8, 0, 0, 0]].concat();
        contexts.for_each(|context| all.extend(context));
        let mut message = message(kind::BIND, 3, b"");
        message[8..10].copy_from_slice(&(16 + all.len() as u16).to_le_bytes());
        [message, all].concat()
    }

    fn bound(results: &[u8]) -> Vec<u8> {
        let results = results.iter().flat_map(|result| [&[*result][..], &[0; 23]].concat());
        let count = results.clone().count() as u8 / 24;
        message(kind::BIND_ACK, 3, &[0; 12].into_iter().chain([count, 0, 0, 0]).chain(results).collect::<Vec<_>>())
    }

    fn request(flags: u8, context: u16, stub: &[u8]) -> Vec<u8> {
        let [low, high] = context.to_le_bytes();
        message(kind::REQUEST, flags, &[&[0, 0, 0, 0, low, high, 15, 0][..], stub].concat())
    }

    fn interfaces(to: &Transactions) -> Vec<u8> {
        to.last().unwrap().all(Buffer::DCERPC_INTERFACE, true).map(|bytes| bytes[0]).collect()
    }

    #[test]
    fn a_call_before_the_answer_to_its_bind_has_an_interface() {
        let says = |said: &[(bool, Vec<u8>)]| {
            let (mut calls, mut to) = (new(protocol::TCP), Transactions::default());
            said.iter().for_each(|(to_server, bytes)| feed(&mut calls, bytes, *to_server, &mut to));
            interfaces(&to)
        };
        let call = |number: u8| (true, of_call(number, request(3, 1, b"x")));
        assert_eq!(says(&[(true, bind(&[(1, 5)])), call(9)]), [5]);
        // One that is refused leaves the one before it; one that is not answered leaves both.
        let accepted = [(true, bind(&[(1, 5)])), (false, bound(&[0]))];
        let second = (true, of_call(8, bind(&[(1, 6)])));
        assert_eq!(says(&[&accepted[..], &[second.clone(), call(9)]].concat()), [6, 5]);
        for refusal in [bound(&[2]), message(kind::BIND_NAK, 3, b""), message(kind::FAULT, 3, b"")] {
            let refused = (false, of_call(8, refusal));
            assert_eq!(says(&[&accepted[..], &[second.clone(), refused, call(9)]].concat()), [5]);
        }
        // Two binds before the first answer: each answer is of its bind.
        let two = [(true, bind(&[(1, 5)])), second, (false, bound(&[0])), (false, of_call(8, bound(&[2])))];
        assert_eq!(says(&[&two[..], &[call(9)]].concat()), [5]);
    }

    #[test]
    fn interfaces_and_calls_that_are_pushed_out_are_counted() {
        let (mut calls, mut to) = (new(protocol::TCP), Transactions::default());
        feed(&mut calls, &bind(&[(1, 5)]), true, &mut to);
        feed(&mut calls, &bound(&[0]), false, &mut to);
        let others: Vec<_> = (2..=128).map(|context| (context, 6)).collect();
        for _ in 0..8 {
            feed(&mut calls, &bind(&others), true, &mut to);
        }
        feed(&mut calls, &of_call(9, request(3, 1, b"x")), true, &mut to);
        assert_eq!((interfaces(&to), to.given_up, to.unseen), (vec![5], 0, false));
        feed(&mut calls, &bind(&others), true, &mut to);
        assert_eq!((to.given_up, to.unseen), ((1 + 9 * 127 - INTERFACES) as u64, false));
        feed(&mut calls, &of_call(9, request(3, 1, b"x")), true, &mut to);
        assert_eq!((interfaces(&to), to.unseen), (vec![], true));
        // Calls between two fragments of one.
        let call = |first: bool, last: bool| {
            let (mut calls, mut to) = (new(protocol::TCP), Transactions::default());
            feed(&mut calls, &request(FIRST, 1, b"one "), true, &mut to);
            for number in 8..8 + 70 {
                let flags = u8::from(first) * FIRST + u8::from(last) * LAST;
                feed(&mut calls, &of_call(number, request(flags, 1, b"x")), true, &mut to);
                to.changed.clear();
            }
            feed(&mut calls, &request(LAST, 1, b"two"), true, &mut to);
            (whole(&to).is_some(), to.unseen, to.given_up)
        };
        assert_eq!(call(true, true), (true, false, 0));
        assert_eq!(call(true, false), (false, true, 1));
    }

    #[test]
    fn a_new_call_with_a_used_number_is_no_fragment() {
        let said = |flags: u8, interface: u8, activity: u8, stub: &[u8]| {
            let ids = [&[0; 16][..], &[interface; 16], &[activity; 16]].concat();
            let length = stub.len() as u8;
            let rest = [0, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 15, 0, 0xff, 0xff, 0xff, 0xff, length, 0, 0, 0, 0, 0];
            [&[4, kind::REQUEST, flags, 0, 0x10, 0, 0, 0][..], &ids, &rest, stub].concat()
        };
        let stubs = |said: &[Vec<u8>]| {
            let (mut calls, mut to) = (new(protocol::UDP), Transactions::default());
            said.iter().for_each(|bytes| feed(&mut calls, bytes, true, &mut to));
            let last = to.last().unwrap();
            (
                last.id,
                last.first(Buffer::DCERPC_INTERFACE, true).unwrap()[0],
                last.first(Buffer::DCERPC_STUB_DATA, true).unwrap().to_vec(),
            )
        };
        assert_eq!(stubs(&[said(4, 1, 1, b"one "), said(6, 1, 1, b"two")]), (0, 1, b"one two".to_vec()));
        assert_eq!(stubs(&[said(0, 1, 1, b"one "), said(0, 1, 1, b"two")]), (1, 1, b"two".to_vec()));
        assert_eq!(stubs(&[said(4, 1, 1, b"one "), said(4, 2, 1, b"two")]), (1, 2, b"two".to_vec()));
        assert_eq!(stubs(&[said(4, 1, 1, b"one "), said(4, 1, 2, b"two")]), (1, 1, b"two".to_vec()));
        // Calls of two activities in turn.
        let (mut calls, mut to) = (new(protocol::UDP), Transactions::default());
        for bytes in [said(4, 1, 1, b"one "), said(4, 1, 2, b"x"), said(6, 1, 1, b"two")] {
            feed(&mut calls, &bytes, true, &mut to);
        }
        assert_eq!(whole(&to), Some(0));
    }

    proptest! {
        #[test]
        fn any_bytes(bodies in proptest::collection::vec(
            (0u8..20, any::<u8>(), any::<bool>(), proptest::collection::vec(any::<u8>(), 0..60)), 0..20)) {
            let (mut calls, mut datagrams, mut to) = (new(protocol::TCP), new(protocol::UDP), Transactions::default());
            for (kind, flags, to_server, body) in bodies {
                feed(&mut calls, &message(kind, flags, &body), to_server, &mut to);
                feed(&mut datagrams, &body, to_server, &mut to);
                to.changed.clear();
                to.sweep();
            }
        }
    }
}
