//! DCE/RPC for rules: each call is a transaction, with its fragments joined. Calls arrive over TCP, in datagrams, and
//! through SMB pipes.

use super::transactions::Transactions;
use base::limits::RULES_BODY_BYTES;
use protocols::dcerpc::{Body, Datagram, FIRST, Header, Interface, LAST, kind};
use rules::Transaction;
use rules::names::{App, Buffer, Number};

/// Most interfaces kept per connection.
const INTERFACES: usize = 1024;
/// Most interfaces that a call may have while the server has not answered.
const CANDIDATES: usize = 8;
/// Most calls that may wait for a response.
const CALLS: usize = 256;

const FRAMES: [Buffer; 3] = [Buffer::FRAME_DCERPC_HDR, Buffer::FRAME_DCERPC_DATA, Buffer::FRAME_DCERPC_PDU];

/// A TCP connection or an SMB pipe.
#[derive(Debug)]
pub(super) struct Calls {
    app: App,
    /// By side: the start of an incomplete message.
    waiting: [Vec<u8>; 2],
    lost: [bool; 2],
    interfaces: Vec<Bound>,
    open: Vec<Open>,
    /// An interface, or a call, was pushed out of its table.
    pushed_out: [bool; 2],
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

/// A call and its transaction.
#[derive(Debug)]
struct Open {
    call: u32,
    transaction: u64,
    is_asked: bool,
}

impl Calls {
    pub fn new(app: App) -> Calls {
        Calls {
            app,
            waiting: Default::default(),
            lost: [false; 2],
            interfaces: Vec::new(),
            open: Vec::new(),
            pushed_out: [false; 2],
        }
    }

    pub fn kept_bytes(&self) -> usize {
        self.waiting.iter().map(Vec::capacity).sum::<usize>()
            + self.interfaces.capacity() * size_of::<Bound>()
            + self.open.capacity() * size_of::<Open>()
    }

    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: bool, to: &mut Transactions) {
        let side = usize::from(!to_server);
        if gap && !self.lost[side] {
            to.given_up += 1;
            (self.lost[side], self.waiting[side]) = (true, Vec::new());
        }
        if self.lost[side] {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting[side]);
        waiting.extend_from_slice(bytes);
        let mut used = 0;
        while waiting.len() - used >= Header::BYTES {
            let rest = &waiting[used..];
            let Some(header) = Header::parse(rest) else {
                to.given_up += 1;
                self.lost[side] = true;
                return;
            };
            let Some(message) = rest.get(..header.length) else { break };
            self.message(&header, message, to_server, to);
            used += header.length;
        }
        waiting.drain(..used);
        self.waiting[side] = waiting;
    }

    /// The transaction of a call. `begins`: the number may be reused, so start a new transaction.
    fn call(&mut self, call: u32, begins: bool, to_server: bool, to: &mut Transactions) -> u64 {
        let known = self.open.iter().position(|open| open.call == call);
        if let Some(at) = known {
            let id = self.open[at].transaction;
            if !begins && to.get(id).is_some() {
                return id;
            }
            self.open.remove(at);
        }
        // The start of this call was seen, but is no longer there.
        if !begins && (known.is_some() || self.pushed_out[1]) {
            to.given_up += 1;
            to.unseen = true;
        }
        if self.open.len() >= CALLS {
            let idle = self.open.iter().position(|open| open.is_asked);
            self.open.remove(idle.unwrap_or(0));
            self.pushed_out[1] = true;
            to.given_up += 1;
        }
        let one = to.begin(self.app);
        // The request of a response may have been missed.
        one.complete[0] = !to_server;
        self.open.push(Open { call, transaction: one.id, is_asked: false });
        one.id
    }

    fn message(&mut self, header: &Header, message: &[u8], to_server: bool, to: &mut Transactions) {
        let is_first = header.flags & FIRST != 0;
        let body = header.body(message);
        let asks = matches!(header.kind, kind::REQUEST | kind::BIND | kind::ALTER_CONTEXT);
        let id = self.call(header.call, asks && is_first, to_server, to);
        let frames = to.frames;
        if frames {
            // A call may have fragments without end.
            to.forget_shown(id, to_server, &FRAMES);
        }
        let Some(one) = to.get(id) else { return };
        one.little_endian = header.is_little;
        if frames {
            one.put_copy(Buffer::FRAME_DCERPC_HDR, to_server, &message[..Header::BYTES]);
            one.put_copy(Buffer::FRAME_DCERPC_DATA, to_server, &message[Header::BYTES..]);
            one.put_copy(Buffer::FRAME_DCERPC_PDU, to_server, message);
        }
        let (mut stub, mut given_up, mut is_missed) = (None, 0, false);
        match body {
            Body::Request { context, operation, stub: bytes } if to_server => {
                if one.numbers(Number::DCERPC_OPNUM, true).next().is_none() {
                    // The newest may still be refused: then the one before it counts.
                    let of_context = self.interfaces.iter().rev().filter(|known| known.context == context);
                    let mut count = 0;
                    put_operation(one, operation);
                    for known in of_context {
                        if count >= CANDIDATES {
                            (given_up, is_missed) = (1, true);
                            break;
                        }
                        count += 1;
                        put_interface(one, &known.interface);
                        if known.accepted == Some(true) {
                            break;
                        }
                    }
                    is_missed |= count == 0 && self.pushed_out[0];
                }
                stub = Some(bytes);
            }
            Body::Response { stub: bytes } if !to_server => stub = Some(bytes),
            // Only a first fragment carries valid interfaces.
            Body::Bind(contexts) if is_first && to_server => {
                let call = header.call;
                let bound = contexts.map(|(context, interface)| Bound { context, interface, call, accepted: None });
                self.interfaces.extend(bound);
                let over = self.interfaces.len().saturating_sub(INTERFACES);
                self.interfaces.drain(..over);
                self.pushed_out[0] |= over > 0;
                given_up = over as u64;
            }
            Body::Bound(results) if !to_server => {
                let unanswered = |known: &&mut Bound| known.call == header.call && known.accepted.is_none();
                for (known, is_accepted) in self.interfaces.iter_mut().filter(unanswered).zip(results) {
                    known.accepted = Some(is_accepted);
                }
                self.interfaces.retain(|known| known.accepted != Some(false));
            }
            _ if !to_server && matches!(header.kind, kind::BIND_NAK | kind::FAULT) => {
                self.interfaces.retain(|known| known.call != header.call || known.accepted.is_some());
            }
            _ => {}
        }
        if let Some(bytes) = stub {
            put_stub(one, to_server, bytes);
        }
        one.growing[usize::from(!to_server)] = header.flags & LAST == 0;
        to.given_up += given_up;
        to.unseen |= is_missed;
        to.change(id, to_server);
        if header.flags & LAST != 0 {
            to.complete(id, to_server);
            if to_server {
                self.open.iter_mut().filter(|open| open.transaction == id).for_each(|open| open.is_asked = true);
            } else {
                self.open.retain(|open| open.transaction != id);
            }
        }
    }
}

/// Rules test the operation on either side of a call.
fn put_operation(one: &mut Transaction, operation: u16) {
    [true, false].into_iter().for_each(|side| one.put_number(Number::DCERPC_OPNUM, side, operation.into()));
}

/// Rules test the interface on either side of a call.
fn put_interface(one: &mut Transaction, interface: &Interface) {
    let bytes = bytes_of(interface);
    [true, false].into_iter().for_each(|side| one.put_copy(Buffer::DCERPC_INTERFACE, side, &bytes));
}

/// The interface as rules see it.
fn bytes_of(interface: &Interface) -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(&interface.uuid);
    bytes[16..].copy_from_slice(&interface.version.to_be_bytes());
    bytes
}

fn put_stub(one: &mut Transaction, to_server: bool, bytes: &[u8]) {
    let had = one.first(Buffer::DCERPC_STUB_DATA, to_server).map_or(0, <[u8]>::len);
    let room = bytes.len().min(RULES_BODY_BYTES.saturating_sub(had));
    if room > 0 {
        one.append_copy(Buffer::DCERPC_STUB_DATA, to_server, &bytes[..room]);
    }
}

pub(super) fn datagram(payload: &[u8], to_server: bool, to: &mut Transactions) {
    let Some(datagram) = Datagram::parse(payload) else { return };
    let asks = datagram.kind == kind::REQUEST;
    // A call is its number in an activity, whose two halves are numbers here.
    let [high, low] =
        [0, 8].map(|at| datagram.activity[at..].first_chunk().map_or(0, |half| u64::from_be_bytes(*half)));
    let call = [datagram.call.into(), high, low];
    let interface = bytes_of(&datagram.interface);
    // A request continues one that is not complete, with the same interface. Fragments come in order.
    let goes_on =
        |one: &Transaction| !one.complete[0] && one.first(Buffer::DCERPC_INTERFACE, true) == Some(&interface[..]);
    let open = to.newest(|one| one.numbers(Number::DCERPC_CALL, true).eq(call) && (!asks || goes_on(one)));
    let id = match open.map(|one| one.id) {
        Some(id) => id,
        None => {
            let one = to.begin(App::Dcerpc);
            one.complete[0] = !asks;
            call.into_iter().for_each(|number| one.put_number(Number::DCERPC_CALL, true, number));
            put_operation(one, datagram.operation);
            put_interface(one, &datagram.interface);
            one.id
        }
    };
    if let Some(one) = to.get(id) {
        one.little_endian = datagram.is_little;
        put_stub(one, to_server, datagram.stub);
    }
    to.change(id, to_server);
    if datagram.is_last {
        to.complete(id, to_server);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
            let (mut calls, mut to) = (Calls::new(App::Dcerpc), Transactions::default());
            calls.feed(&client[0], true, false, &mut to);
            calls.feed(&message(kind::BIND_ACK, 3, &bound), false, false, &mut to);
            for piece in client[1..].concat().chunks(size) {
                calls.feed(piece, true, false, &mut to);
            }
            let one = to.last().unwrap();
            assert_eq!(one.first(Buffer::DCERPC_STUB_DATA, true), Some(&b"one two"[..]));
            assert_eq!(one.first(Buffer::DCERPC_INTERFACE, true), Some(&[&[2; 16][..], &[0, 3]].concat()[..]));
            assert_eq!(one.numbers(Number::DCERPC_OPNUM, false).collect::<Vec<_>>(), [15]);
        }
    }

    #[test]
    fn fragments_without_end_are_forgotten_once_seen() {
        let (mut calls, mut to) = (Calls::new(App::Dcerpc), Transactions::default());
        to.frames = true;
        for _ in 0..100 {
            for _ in 0..10 {
                calls.feed(&message(kind::REQUEST, 0, &[0; 8]), true, false, &mut to);
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
            let (mut calls, mut to) = (Calls::new(App::Dcerpc), Transactions::default());
            said.iter().for_each(|(to_server, bytes)| calls.feed(bytes, *to_server, false, &mut to));
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
        let (mut calls, mut to) = (Calls::new(App::Dcerpc), Transactions::default());
        calls.feed(&bind(&[(1, 5)]), true, false, &mut to);
        calls.feed(&bound(&[0]), false, false, &mut to);
        let others: Vec<_> = (2..=128).map(|context| (context, 6)).collect();
        for _ in 0..8 {
            calls.feed(&bind(&others), true, false, &mut to);
        }
        calls.feed(&of_call(9, request(3, 1, b"x")), true, false, &mut to);
        assert_eq!((interfaces(&to), to.given_up, to.unseen), (vec![5], 0, false));
        calls.feed(&bind(&others), true, false, &mut to);
        assert_eq!((to.given_up, to.unseen), ((1 + 9 * 127 - INTERFACES) as u64, false));
        calls.feed(&of_call(9, request(3, 1, b"x")), true, false, &mut to);
        assert_eq!((interfaces(&to), to.unseen), (vec![], true));
        // Calls between two fragments of one.
        let call = |first: bool, last: bool| {
            let (mut calls, mut to) = (Calls::new(App::Dcerpc), Transactions::default());
            calls.feed(&request(FIRST, 1, b"one "), true, false, &mut to);
            for number in 8..8 + 70 {
                let flags = u8::from(first) * FIRST + u8::from(last) * LAST;
                calls.feed(&of_call(number, request(flags, 1, b"x")), true, false, &mut to);
                to.changed.clear();
            }
            calls.feed(&request(LAST, 1, b"two"), true, false, &mut to);
            let whole = to.newest(|one| one.first(Buffer::DCERPC_STUB_DATA, true) == Some(b"one two")).is_some();
            (whole, to.unseen, to.given_up)
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
            let mut to = Transactions::default();
            said.iter().for_each(|bytes| datagram(bytes, true, &mut to));
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
        let mut to = Transactions::default();
        for bytes in [said(4, 1, 1, b"one "), said(4, 1, 2, b"x"), said(6, 1, 1, b"two")] {
            datagram(&bytes, true, &mut to);
        }
        let whole = to.newest(|one| one.first(Buffer::DCERPC_STUB_DATA, true) == Some(b"one two"));
        assert_eq!(whole.map(|one| one.id), Some(0));
    }

    proptest! {
        #[test]
        fn any_bytes(bodies in proptest::collection::vec(
            (0u8..20, any::<u8>(), any::<bool>(), proptest::collection::vec(any::<u8>(), 0..60)), 0..20)) {
            let (mut calls, mut to) = (Calls::new(App::Dcerpc), Transactions::default());
            for (kind, flags, to_server, body) in bodies {
                calls.feed(&message(kind, flags, &body), to_server, false, &mut to);
                datagram(&body, to_server, &mut to);
                to.changed.clear();
                to.sweep();
            }
        }
    }
}
