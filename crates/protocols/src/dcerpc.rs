//! Messages of DCE/RPC (C706, 12): version 5 over connections, version 4 in datagrams. The arguments of a call are not
//! decoded, because their format depends on the interface. The [`Conversation`] joins fragments and knows interfaces.

mod conversation;

use crate::app::App;
use crate::carry::Carried;
use crate::conversation::{About, Ear, Fact as _, Fed, Kind, Over, Protocol, Run, Side, Talk, Words};
use crate::fit::Fit;
pub use conversation::{CALLS, Conversation, INTERFACES, KEPT_BYTES, UNSEEN};
use packet::Flow;
use packet::frame::protocol;

/// A fact about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The type of the client's first message.
    Request,
    /// The type of the server's first message.
    Response,
    /// The number of the call.
    Call,
    /// An interface that is bound, or that the call may be of.
    Interface,
    /// The same for rules, of a call: its UUID and its version.
    InterfaceBytes,
    /// The number of the operation in the interface.
    Opnum,
    /// How many messages a side's part of the call has.
    Fragments,
    /// How many bytes of arguments or results.
    StubBytes,
    /// Whether numbers of a message are little-endian.
    IsLittle,
}

impl crate::conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About::client("dcerpc.request", "", Kind::Word(KINDS)),
        About::server("dcerpc.response", "", Kind::Word(KINDS)),
        About::both("dcerpc.call_id", "", Kind::Number),
        About::client("dcerpc.interfaces", "", Kind::Item),
        About::both("", "", Kind::Text),
        About::client("dcerpc.req.opnum", "dcerpc.opnum", Kind::Number),
        About { field: ["dcerpc.req.frag_cnt", "dcerpc.res.frag_cnt"], buffer: [""; 2], kind: Kind::Number },
        About {
            field: ["dcerpc.req.stub_data_size", "dcerpc.res.stub_data_size"],
            buffer: [""; 2],
            kind: Kind::Number,
        },
        About::both("", "", Kind::Number),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// The names of types of messages, as EVE has them.
const KINDS: Words = &[
    ("REQUEST", 0),
    ("PING", 1),
    ("RESPONSE", 2),
    ("FAULT", 3),
    ("WORKING", 4),
    ("NOCALL", 5),
    ("REJECT", 6),
    ("ACK", 7),
    ("CL_CANCEL", 8),
    ("FACK", 9),
    ("CANCEL_ACK", 10),
    ("BIND", 11),
    ("BINDACK", 12),
    ("BINDNAK", 13),
    ("ALTER_CONTEXT", 14),
    ("ALTER_CONTEXT_RESP", 15),
    ("AUTH3", 16),
    ("SHUTDOWN", 17),
    ("CO_CANCEL", 18),
    ("ORPHANED", 19),
    ("RTS", 20),
];

impl Talk for Conversation {
    type Fact = Fact;

    const PROTOCOL: Protocol = Protocol {
        probe: Some(|first| match first.flow.protocol {
            protocol::UDP => Fit::of(Datagram::parse(first.bytes).is_some()),
            _ => probe(first.bytes),
        }),
        summary: &["dcerpc.request", "dcerpc.response", "dcerpc.call_id", "dcerpc.req.opnum"],
        does: "reads calls of DCE/RPC and gives a record of each with its result",
        help: "Finds DCE/RPC over TCP and in datagrams by its messages, on any port; calls in pipes of SMB are records of `smb`. \
               A record has a call with its result, or a bind with its answer: `dcerpc.request` and `dcerpc.response` (the types of \
               the first messages, as EVE names them), `dcerpc.call_id`, `dcerpc.interfaces` (UUID and version: those bound, or \
               those that the call may be of while the server has not answered), `dcerpc.req.opnum`, and of both sides \
               `frag_cnt` and `stub_data_size`: how many fragments, and how many bytes of arguments or results, which are not \
               decoded.\n\n\
               Up to 256 calls of a connection wait for their results, and 1024 interfaces are known. A gap ends the calls that it \
               cuts; behind it the rest of a message is passed over, or the next segment that begins with a message counts.",
        example: ("pcap talks.pcap | dcerpc", EXAMPLE),
        ..Protocol::of(App::Dcerpc, Over::Both, Fact::ALL)
    };

    fn new(flow: &Flow) -> Conversation {
        Conversation::of(flow.protocol == protocol::UDP)
    }

    /// Requests come from clients.
    fn sender(bytes: &[u8]) -> Option<Side> {
        let kind =
            Header::parse(bytes).map(|header| header.kind).or_else(|| Datagram::parse(bytes).map(|it| it.kind))?;
        let answers = matches!(
            kind,
            kind::RESPONSE | kind::FAULT | kind::BIND_ACK | kind::BIND_NAK | kind::ALTER_CONTEXT_RESPONSE
        );
        Some(Side::to_server(!answers))
    }

    fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        self.feed(side, run, kept, ear)
    }

    fn gap(&mut self, side: Side, missing: u32, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.gap(side, missing, kept, ear);
    }

    fn end(&mut self, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.end(kept, ear);
    }
}

const EXAMPLE: &str = r#"{"timestamp":"2026-05-28T20:26:41.239999000Z","flow_id":4564727655676835,"event_type":"dcerpc","src_ip":"192.0.2.1","src_port":40101,"dest_ip":"192.0.2.2","dest_port":135,"proto":"TCP","dcerpc":{"request":"BIND","response":"BINDACK","call_id":1,"interfaces":["e1af8308-5d1f-11c9-91a4-08002b14a0fa v3"],"req":{"frag_cnt":1,"stub_data_size":0},"res":{"frag_cnt":1,"stub_data_size":0}}}
{"timestamp":"2026-05-28T20:26:41.269999000Z","flow_id":4564727655676835,"event_type":"dcerpc","src_ip":"192.0.2.1","src_port":40101,"dest_ip":"192.0.2.2","dest_port":135,"proto":"TCP","dcerpc":{"request":"REQUEST","response":"RESPONSE","call_id":2,"interfaces":["e1af8308-5d1f-11c9-91a4-08002b14a0fa v3"],"req":{"opnum":3,"frag_cnt":2,"stub_data_size":40},"res":{"frag_cnt":1,"stub_data_size":12}}}
{"timestamp":"2026-05-28T20:26:41.289999000Z","flow_id":4564727655676835,"event_type":"dcerpc","src_ip":"192.0.2.1","src_port":40101,"dest_ip":"192.0.2.2","dest_port":135,"proto":"TCP","dcerpc":{"request":"REQUEST","response":"FAULT","call_id":3,"interfaces":["e1af8308-5d1f-11c9-91a4-08002b14a0fa v3"],"req":{"opnum":99,"frag_cnt":1,"stub_data_size":0},"res":{"frag_cnt":1,"stub_data_size":0}}}
"#;

/// Types of messages.
pub mod kind {
    /// A call.
    pub const REQUEST: u8 = 0;
    /// The result of a call.
    pub const RESPONSE: u8 = 2;
    /// The reason why a call failed.
    pub const FAULT: u8 = 3;
    /// A client assigns numbers to interfaces.
    pub const BIND: u8 = 11;
    /// The server accepts or refuses each interface.
    pub const BIND_ACK: u8 = 12;
    /// The server refuses a bind as a whole.
    pub const BIND_NAK: u8 = 13;
    /// A client adds interfaces.
    pub const ALTER_CONTEXT: u8 = 14;
    /// The answer to `ALTER_CONTEXT`.
    pub const ALTER_CONTEXT_RESPONSE: u8 = 15;
}

/// Flag of the first fragment of a call.
pub const FIRST: u8 = 1;
/// Flag of the last fragment of a call.
pub const LAST: u8 = 2;
/// Flag of a call that names an object.
const OBJECT: u8 = 0x80;

/// The header of a message over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// One of [`kind`], or another.
    pub kind: u8,
    /// [`FIRST`], [`LAST`] and others.
    pub flags: u8,
    /// Numbers are little-endian.
    pub is_little: bool,
    /// Bytes of the message, including its header.
    pub length: usize,
    /// The number of the call.
    pub call: u32,
}

/// An interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its UUID, in the byte order of its text.
    pub uuid: [u8; 16],
    /// The major version.
    pub version: u16,
}

/// The contents of a message.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// A call, or a later fragment of one.
    Request {
        /// The number that a bind gave to its interface.
        context: u16,
        /// The number of the operation in the interface.
        operation: u16,
        /// Its arguments.
        stub: &'a [u8],
    },
    /// The result of a call, or a later fragment of it.
    Response {
        /// The coded result.
        stub: &'a [u8],
    },
    /// Interfaces and their numbers.
    Bind(Contexts<'a>),
    /// Answers, in the order of the interfaces.
    Bound(Results<'a>),
    /// Another message, or a damaged one.
    Other,
}

/// Reads numbers in either byte order.
#[derive(Clone, Copy, Debug)]
struct Reader<'a> {
    rest: &'a [u8],
    is_little: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).and_then(|bytes| bytes.first()).copied()
    }

    fn short(&mut self) -> Option<u16> {
        let bytes = *self.take(2)?.first_chunk()?;
        Some(if self.is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }

    fn long(&mut self) -> Option<u32> {
        let bytes = *self.take(4)?.first_chunk()?;
        Some(if self.is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    /// The first three parts of a UUID are numbers.
    fn uuid(&mut self) -> Option<[u8; 16]> {
        let mut uuid: [u8; 16] = *self.take(16)?.first_chunk()?;
        if self.is_little {
            uuid[..4].reverse();
            uuid[4..6].reverse();
            uuid[6..8].reverse();
        }
        Some(uuid)
    }
}

impl Header {
    /// Length of a header.
    pub const BYTES: usize = 16;

    /// Reads the header of a message; `None` if there are too few bytes or it is not DCE/RPC.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; Header::BYTES] = bytes.first_chunk()?;
        let [version, minor, kind, flags, order, floats, ..] = *bytes;
        let is_little = order & 0x10 != 0;
        let mut rest = Reader { rest: &bytes[8..], is_little };
        let (length, _auth, call) = (rest.short()?, rest.short()?, rest.long()?);
        let fits = version == 5 && minor <= 1 && kind <= 20 && order & 0xee == 0 && floats <= 3;
        (fits && usize::from(length) >= Header::BYTES).then_some(Header {
            kind,
            flags,
            is_little,
            length: usize::from(length),
            call,
        })
    }

    /// Reads the contents of a message; `message` has all its bytes.
    pub fn body<'a>(&self, message: &'a [u8]) -> Body<'a> {
        self.read_body(message).unwrap_or(Body::Other)
    }

    fn read_body<'a>(&self, message: &'a [u8]) -> Option<Body<'a>> {
        let mut rest = Reader { rest: message.get(Header::BYTES..)?, is_little: self.is_little };
        match self.kind {
            kind::REQUEST => {
                let (_hint, context, operation) = (rest.long()?, rest.short()?, rest.short()?);
                if self.flags & OBJECT != 0 {
                    rest.take(16)?;
                }
                Some(Body::Request { context, operation, stub: rest.rest })
            }
            kind::RESPONSE => {
                rest.take(8)?;
                Some(Body::Response { stub: rest.rest })
            }
            kind::BIND | kind::ALTER_CONTEXT => {
                rest.take(8)?;
                let left = rest.byte()?;
                rest.take(3)?;
                Some(Body::Bind(Contexts { rest, left }))
            }
            kind::BIND_ACK | kind::ALTER_CONTEXT_RESPONSE => {
                rest.take(8)?;
                let address = usize::from(rest.short()?);
                // The next part is aligned to four bytes.
                rest.take(address + (4 - (2 + address) % 4) % 4)?;
                let left = rest.byte()?;
                rest.take(3)?;
                Some(Body::Bound(Results { rest, left }))
            }
            _ => None,
        }
    }
}

/// Interfaces of a bind, with their numbers.
#[derive(Clone, Copy, Debug)]
pub struct Contexts<'a> {
    rest: Reader<'a>,
    left: u8,
}

impl Iterator for Contexts<'_> {
    type Item = (u16, Interface);

    fn next(&mut self) -> Option<(u16, Interface)> {
        self.left = self.left.checked_sub(1)?;
        let rest = &mut self.rest;
        let (context, codings, _) = (rest.short()?, rest.byte()?, rest.byte()?);
        let (uuid, version, _minor) = (rest.uuid()?, rest.short()?, rest.short()?);
        rest.take(20 * usize::from(codings))?;
        Some((context, Interface { uuid, version }))
    }
}

/// Answers to a bind: whether each interface is accepted.
#[derive(Clone, Copy, Debug)]
pub struct Results<'a> {
    rest: Reader<'a>,
    left: u8,
}

impl Iterator for Results<'_> {
    type Item = bool;

    fn next(&mut self) -> Option<bool> {
        self.left = self.left.checked_sub(1)?;
        let result = self.rest.short()?;
        self.rest.take(22)?;
        Some(result == 0)
    }
}

/// A message in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// [`kind::REQUEST`], [`kind::RESPONSE`], or another.
    pub kind: u8,
    /// It is the last fragment of its call, or the only one.
    pub is_last: bool,
    /// Numbers are little-endian.
    pub is_little: bool,
    /// The interface of the call.
    pub interface: Interface,
    /// The activity of the client that the call is a part of.
    pub activity: [u8; 16],
    /// The number of the operation in the interface.
    pub operation: u16,
    /// The client's sequence number of the call.
    pub call: u32,
    /// Coded arguments or results.
    pub stub: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Length of a header.
    pub const BYTES: usize = 80;

    /// Reads a datagram; `None` if it is not DCE/RPC.
    pub fn parse(bytes: &'a [u8]) -> Option<Datagram<'a>> {
        let &[4, kind, flags, second, order, floats, _, _, ..] = bytes else { return None };
        let fits = kind <= 10 && second & 0xfc == 0 && order & 0xee == 0 && floats <= 3;
        let is_little = order & 0x10 != 0;
        let mut rest = Reader { rest: bytes.get(8..)?, is_little };
        let (_object, uuid, activity) = (rest.uuid()?, rest.uuid()?, rest.uuid()?);
        let (_boot, version, call) = (rest.long()?, rest.long()?, rest.long()?);
        let (operation, _, _, length) = (rest.short()?, rest.short()?, rest.short()?, rest.short()?);
        rest.take(4)?;
        let stub = rest.rest.get(..usize::from(length)).filter(|_| fits)?;
        // A call in a single datagram has neither bit set.
        let is_last = flags & 0x04 == 0 || flags & 0x02 != 0;
        let interface = Interface { uuid, version: version as u16 };
        Some(Datagram { kind, is_last, is_little, interface, activity, operation, call, stub })
    }
}

/// Whether a stream begins with a DCE/RPC message.
pub fn probe(bytes: &[u8]) -> Fit {
    let fits = |at: usize, fits: &dyn Fn(u8) -> bool| bytes.get(at).is_none_or(|byte| fits(*byte));
    let begins = fits(0, &|byte| byte == 5) && fits(1, &|byte| byte == 0) && fits(2, &|byte| byte <= 20);
    match begins && fits(4, &|byte| byte & 0xee == 0) && fits(6, &|byte| byte == 0) && fits(7, &|byte| byte == 0) {
        true if bytes.len() < Header::BYTES => Fit::More,
        begins => Fit::of(begins && Header::parse(bytes).is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: [u8; 16] = [0x36, 0x7a, 0xbb, 0x81, 0x98, 0x44, 0x35, 0xf1, 0xad, 0x32, 0x98, 0xf0, 0x38, 0, 0x10, 3];
    const WIRE: [u8; 16] = [0x81, 0xbb, 0x7a, 0x36, 0x44, 0x98, 0xf1, 0x35, 0xad, 0x32, 0x98, 0xf0, 0x38, 0, 0x10, 3];

    fn message(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
        let length = (16 + body.len()) as u8;
        [&[5, 0, kind, flags, 0x10, 0, 0, 0, length, 0, 0, 0, 7, 0, 0, 0][..], body].concat()
    }

    #[test]
    fn messages() {
        let request = message(kind::REQUEST, FIRST | LAST, &[9, 0, 0, 0, 1, 0, 15, 0, b'a', b'b']);
        let header = Header::parse(&request).unwrap();
        assert_eq!((header.kind, header.length, header.call, header.is_little), (kind::REQUEST, 26, 7, true));
        let Body::Request { context: 1, operation: 15, stub: b"ab" } = header.body(&request) else { panic!() };
        let context = [&[1, 0, 1, 0][..], &WIRE, &[1, 0, 0, 0], &[0; 20]].concat();
        let bind = message(kind::BIND, FIRST | LAST, &[&[0; 8][..], &[1, 0, 0, 0], &context].concat());
        let Body::Bind(contexts) = Header::parse(&bind).unwrap().body(&bind) else { panic!() };
        assert_eq!(contexts.collect::<Vec<_>>(), [(1, Interface { uuid: UUID, version: 1 })]);
        let results = [&[0; 8][..], &[5, 0], b"x-y-z", &[0], &[2, 0, 0, 0], &[0; 24], &[2], &[0; 23]].concat();
        let bound = message(kind::BIND_ACK, FIRST | LAST, &results);
        let Body::Bound(results) = Header::parse(&bound).unwrap().body(&bound) else { panic!() };
        assert_eq!(results.collect::<Vec<_>>(), [true, false]);
        for (place, byte) in [(0, 4), (1, 2), (2, 30), (4, 2), (8, 15)] {
            let mut wrong = request.clone();
            wrong[place] = byte;
            wrong[9] = 0;
            assert_eq!(Header::parse(&wrong), None);
        }
    }

    #[test]
    fn datagrams() {
        let ids = [&[0; 16][..], &WIRE, &[0; 16]].concat();
        let bytes = [
            &[4, 0, 0x08, 0, 0x10, 0, 0, 0][..],
            &ids,
            &[0; 4],
            &[1, 0, 0, 0, 9, 0, 0, 0, 15, 0, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 0],
            b"ab",
        ]
        .concat();
        let datagram = Datagram::parse(&bytes).unwrap();
        assert_eq!(datagram.interface, Interface { uuid: UUID, version: 1 });
        assert_eq!((datagram.operation, datagram.call, datagram.stub, datagram.is_last), (15, 9, &b"ab"[..], true));
        assert_eq!(Datagram::parse(&bytes[..bytes.len() - 1]), None);
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..120), like: bool, kind in 0u8..20) {
            let bytes = if like { message(kind, 3, &bytes) } else { bytes };
            Datagram::parse(&bytes);
            if let Some(header) = Header::parse(&bytes) {
                match header.body(&bytes) {
                    Body::Bind(contexts) => prop_assert!(contexts.count() * 24 <= bytes.len()),
                    Body::Bound(results) => prop_assert!(results.count() * 24 <= bytes.len()),
                    _ => {}
                }
            }
        }
    }
}
