//! DCE/RPC for rules: each call is a transaction, with its fragments joined. Calls arrive over TCP, in datagrams, and
//! through SMB pipes.

use super::transactions::Transactions;
use base::limits::RULES_BODY_BYTES;
use packet::dcerpc::{Body, Datagram, FIRST, Header, Interface, LAST, kind};
use rules::Transaction;
use rules::names::{App, Buffer, Number};

/// Most interfaces kept per connection.
const INTERFACES: usize = 64;
/// Most calls that may wait for a response.
const CALLS: usize = 64;

const FRAMES: [Buffer; 3] = [Buffer::FRAME_DCERPC_HDR, Buffer::FRAME_DCERPC_DATA, Buffer::FRAME_DCERPC_PDU];

/// A TCP connection or an SMB pipe.
#[derive(Debug)]
pub(super) struct Calls {
    app: App,
    /// By side: the start of an incomplete message.
    waiting: [Vec<u8>; 2],
    lost: [bool; 2],
    /// Interfaces by context number; `true`: the server accepted it.
    interfaces: Vec<(u16, Interface, bool)>,
    /// Index of the first interface of the current bind.
    bind_from: usize,
    /// Calls and their transactions.
    open: Vec<(u32, u64)>,
}

/// Does a stream begin with a DCE/RPC message?
pub(super) fn begins_stream(bytes: &[u8]) -> super::application::Says {
    use super::application::Says;
    let fits = |at: usize, fits: &dyn Fn(u8) -> bool| bytes.get(at).is_none_or(|byte| fits(*byte));
    let begins = fits(0, &|byte| byte == 5) && fits(1, &|byte| byte == 0) && fits(2, &|byte| byte <= 20);
    match begins && fits(4, &|byte| byte & 0xee == 0) && fits(6, &|byte| byte == 0) && fits(7, &|byte| byte == 0) {
        false => Says::No,
        true if bytes.len() < Header::BYTES => Says::More,
        true if Header::parse(bytes).is_some() => Says::Is(App::Dcerpc),
        true => Says::No,
    }
}

impl Calls {
    pub fn new(app: App) -> Calls {
        Calls {
            app,
            waiting: Default::default(),
            lost: [false; 2],
            interfaces: Vec::new(),
            bind_from: 0,
            open: Vec::new(),
        }
    }

    pub fn kept_bytes(&self) -> usize {
        self.waiting.iter().map(Vec::capacity).sum()
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
        let known = self.open.iter().position(|open| open.0 == call);
        if let Some(at) = known {
            let id = self.open[at].1;
            if !begins && to.get(id).is_some() {
                return id;
            }
            self.open.remove(at);
        }
        if self.open.len() >= CALLS {
            self.open.remove(0);
        }
        let one = to.begin(self.app);
        // The request of a response may have been missed.
        one.complete[0] = !to_server;
        self.open.push((call, one.id));
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
        let mut stub = None;
        match body {
            Body::Request { context, operation, stub: bytes } if to_server => {
                if one.numbers(Number::DCERPC_OPNUM, true).next().is_none() {
                    let known = self.interfaces.iter().rfind(|known| known.0 == context && known.2);
                    put_call(one, operation, known.map(|known| &known.1));
                }
                stub = Some(bytes);
            }
            Body::Response { stub: bytes } if !to_server => stub = Some(bytes),
            // Only a first fragment carries valid interfaces.
            Body::Bind(contexts) if is_first && to_server => {
                self.interfaces.drain(..self.interfaces.len().saturating_sub(INTERFACES));
                self.bind_from = self.interfaces.len();
                self.interfaces.extend(contexts.map(|(context, interface)| (context, interface, false)));
            }
            Body::Bound(results) if !to_server => {
                let from = self.bind_from.min(self.interfaces.len());
                for (known, is_accepted) in self.interfaces[from..].iter_mut().zip(results) {
                    known.2 = is_accepted;
                }
            }
            _ => {}
        }
        if let Some(bytes) = stub {
            put_stub(one, to_server, bytes);
        }
        one.growing[usize::from(!to_server)] = header.flags & LAST == 0;
        to.change(id, to_server);
        if header.flags & LAST != 0 {
            to.complete(id, to_server);
            if !to_server {
                self.open.retain(|open| open.1 != id);
            }
        }
    }
}

/// Sets what rules test on either side of a call.
fn put_call(one: &mut Transaction, operation: u16, interface: Option<&Interface>) {
    for side in [true, false] {
        one.put_number(Number::DCERPC_OPNUM, side, operation.into());
        if let Some(interface) = interface {
            let bytes = [&interface.uuid[..], &interface.version.to_be_bytes()].concat();
            one.put_copy(Buffer::DCERPC_INTERFACE, side, &bytes);
        }
    }
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
    // A flow has one call at a time, with fragments in order.
    let open = to.last().filter(|one| one.numbers(Number::DCERPC_CALL, true).next() == Some(datagram.call.into()));
    let id = match open.map(|one| one.id) {
        Some(id) => id,
        None => {
            let one = to.begin(App::Dcerpc);
            one.complete[0] = !asks;
            one.put_number(Number::DCERPC_CALL, true, datagram.call.into());
            put_call(one, datagram.operation, Some(&datagram.interface));
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
