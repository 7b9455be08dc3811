//! The contract between conversations and their ears.
//!
//! A *conversation* reads both sides of one connection, piece by piece, without I/O and without a clock. It tells facts,
//! bodies and oddities to an [`Ear`]. Each protocol has one conversation and two ears: a filter's makes records and
//! messages, that of rules fills the buffers of transactions. So records and alerts agree.
//!
//! A protocol whose exchanges are records as they stand implements [`Talk`]: its filter and its part of rules are made
//! from [`Protocol`] and the table of its facts.
//!
//! Memory is charged to a [`Carried`] before it is kept, and every limit is a constant.

pub use crate::how::How;

use crate::app::App;
use crate::carry::Carried;
use crate::first::First;
use crate::fit::Fit;
use crate::mime::Found;
use crate::tls::append_name;
use packet::Flow;
use std::borrow::Cow;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::ops::Range;

/// A peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It opened the connection.
    Client,
    /// It was called.
    Server,
}

impl Side {
    /// The sender of bytes to the server (`true`) or to the client.
    pub const fn to_server(to_server: bool) -> Side {
        if to_server { Side::Client } else { Side::Server }
    }

    /// Whether it speaks to the server.
    pub const fn is_client(self) -> bool {
        matches!(self, Side::Client)
    }

    /// Its peer.
    pub const fn other(self) -> Side {
        Side::to_server(!self.is_client())
    }

    /// 0: the client.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What one side says in one exchange of a connection, such as a mail or a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id {
    /// Exchanges count from 0.
    pub exchange: u64,
    /// Who says it.
    pub side: Side,
}

/// Bytes of a side that follow the ones before, or a gap.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// When they were captured.
    pub time: u64,
}

/// Whose bytes a run had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fed {
    /// The conversation's.
    Mine,
    /// Another protocol's, or bytes that the conversation passes over.
    NotMine,
    /// The conversation's up to `used`. One call has read enough: the caller calls again with the rest. So a bomb never
    /// inflates in one call.
    Full {
        /// Bytes that were read.
        used: usize,
    },
    /// The conversation's, but a part is in no message.
    LeftOut {
        /// The limit or the fault, as counters name it.
        why: &'static str,
    },
    /// The conversation's up to `used`. Behind it the connection speaks another protocol.
    HandsOn {
        /// Bytes that were read.
        used: usize,
        /// The other protocol; `None`: its first bytes show it.
        to: Option<App>,
    },
}

/// A piece of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Bytes of the run that is being read, by their place in it.
    Range(Range<usize>),
    /// Bytes that were kept, and when the run came in which they began.
    Kept(&'a [u8], u64),
    /// The number of bytes that are missing here.
    Missing(u32),
}

/// The wishes of an ear, beside facts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wants {
    /// The protocol's records, as they are on the wire.
    pub frames: bool,
    /// Bodies at once. The conversation takes back those that the peer refuses ([`Ear::retract`]). Without it, a body waits for the
    /// reply that decides.
    pub at_once: bool,
    /// The files in mails ([`Ear::part`]).
    pub parts: bool,
    /// Bodies also as other receivers read them ([`Ear::reading`]), and those that a status rules out.
    pub readings: bool,
    /// Fields of heads as they were sent ([`Ear::field`]).
    pub fields: bool,
}

/// What a fact is called, by the client and by the server; empty: this side does not say it.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The field of records, and of objects in alerts.
    pub field: [&'static str; 2],
    /// The buffer of rules.
    pub buffer: [&'static str; 2],
    /// Its form in records.
    pub kind: Kind,
}

/// The form of a fact in records.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A text.
    Text,
    /// A text whose unprintable bytes are escaped, as in [`append_name`].
    Name,
    /// A text that records show as this function appends it. Its buffer is as it was said.
    Shown(fn(&mut Vec<u8>, &[u8])),
    /// One of a list of texts.
    Item,
    /// One of a list of names.
    NameItem,
    /// A number ([`Ear::number`]).
    Number,
    /// A number that has a name in records and in rules.
    Word(Words),
    /// One of a list of such numbers.
    WordItem(Words),
    /// A part of a frame, for an ear that wants frames. No record has it, and rules keep it until they have seen it.
    Frame,
}

/// Names of numbers.
pub type Words = &'static [(&'static str, u64)];

impl Kind {
    /// Whether the fact is a number.
    pub const fn is_number(self) -> bool {
        matches!(self, Kind::Number | Kind::Word(_) | Kind::WordItem(_))
    }

    /// Whether a record has a list of such facts. Of others it has the first one.
    pub const fn is_item(self) -> bool {
        matches!(self, Kind::Item | Kind::NameItem | Kind::WordItem(_))
    }

    /// The names of its numbers.
    pub const fn words(self) -> Words {
        match self {
            Kind::Word(words) | Kind::WordItem(words) => words,
            _ => &[],
        }
    }

    /// The name of a number; one without a name is written in digits.
    pub fn word(self, number: u64) -> String {
        self.words().iter().find(|word| word.1 == number).map_or_else(|| number.to_string(), |word| word.0.into())
    }

    /// A text as records show it.
    pub fn shown(self, value: &[u8]) -> Cow<'_, [u8]> {
        let show = match self {
            Kind::Name | Kind::NameItem => append_name,
            Kind::Shown(show) => show,
            _ => return value.into(),
        };
        let mut text = Vec::with_capacity(value.len());
        show(&mut text, value);
        text.into()
    }
}

impl About {
    /// A fact that either side says by the same names.
    pub const fn both(field: &'static str, buffer: &'static str, kind: Kind) -> About {
        About { field: [field; 2], buffer: [buffer; 2], kind }
    }

    /// A fact that the client says.
    pub const fn client(field: &'static str, buffer: &'static str, kind: Kind) -> About {
        About { field: [field, ""], buffer: [buffer, ""], kind }
    }

    /// A fact that the server says.
    pub const fn server(field: &'static str, buffer: &'static str, kind: Kind) -> About {
        About { field: ["", field], buffer: ["", buffer], kind }
    }
}

/// The facts of a protocol: an enum without fields whose numbers are places in `ALL`.
pub trait Fact: Copy + Debug + 'static {
    /// The names of the facts.
    const ALL: &'static [About];

    /// Its place in `ALL`.
    fn number(self) -> usize;

    /// Its name.
    fn about(self) -> &'static About {
        &Self::ALL[self.number()]
    }
}

/// Hears a conversation.
pub trait Ear<F> {
    /// Its wishes.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// The message that begins next began at this time, perhaps before the run.
    fn since(&mut self, _id: Id, _time: u64) {}

    /// An exchange begins.
    fn begin(&mut self, _id: Id) {}

    /// A fact of the exchange.
    fn fact(&mut self, id: Id, fact: F, value: &[u8]);

    /// A fact that is a number.
    fn number(&mut self, _id: Id, _fact: F, _value: u64) {}

    /// A connection to this address will carry what the exchange transfers, or a later one.
    fn address(&mut self, _id: Id, _address: SocketAddr) {}

    /// A head as it was sent, perhaps the beginning of one; of HTTP/2 as HTTP/1 writes it.
    fn head(&mut self, _id: Id, _bytes: &[u8]) {}

    /// A field of a head or a trailer, as it was sent.
    fn field(&mut self, _id: Id, _name: &[u8], _value: &[u8]) {}

    /// The fields of a head or a trailer are complete.
    fn fields_done(&mut self, _id: Id) {}

    /// A record of the protocol, if it wants frames.
    fn frame(&mut self, _id: Id, _bytes: &[u8]) {}

    /// The head is complete: a body comes next.
    fn head_done(&mut self, _id: Id) {}

    /// The head is complete, and so is the message: it has no body.
    fn bare(&mut self, id: Id, how: How) {
        self.head_done(id);
        self.end(id, how);
    }

    /// A piece of the body.
    fn body(&mut self, _id: Id, _piece: Body<'_>) {}

    /// Something of a file in the body, if it wants parts.
    fn part(&mut self, _id: Id, _found: &Found<'_>) {}

    /// The last piece of the body: the message is complete.
    fn last(&mut self, id: Id, piece: Body<'_>) {
        self.body(id, piece);
        self.end(id, How::Complete);
    }

    /// Gives `fill` room for at most `max` bytes of the body, which are decoded into it without a copy. `fill` returns how
    /// many it wrote. Without room it is not called.
    fn room(&mut self, _id: Id, _max: usize, _fill: &mut dyn FnMut(&mut [u8]) -> usize) {}

    /// Bytes of the body as receivers of kind `number` read it.
    fn reading(&mut self, _id: Id, _number: usize, _bytes: &[u8]) {}

    /// Whether the ear takes no more in this call.
    fn is_full(&self) -> bool {
        false
    }

    /// The peer refused the body, and no byte of it counts.
    fn retract(&mut self, _id: Id) {}

    /// Something is odd, by the name that rules have for it.
    fn odd(&mut self, _id: Id, _event: &'static str) {}

    /// Whether the connection was joined midway.
    fn is_midstream(&self) -> bool {
        false
    }

    /// A limit left something out; `what` names it.
    fn lost(&mut self, _id: Id, _what: &'static str) {}

    /// So many messages are damaged, or bytes of them are missing, and they are not read; `what` names them.
    fn count(&mut self, _what: &'static str, _times: u64) {}

    /// The message is over.
    fn end(&mut self, id: Id, how: How);

    /// Both sides of the exchange are over.
    fn over(&mut self, _exchange: u64) {}

    /// The exchange was none of the protocol, and nothing that was said of it counts.
    fn forget(&mut self, _exchange: u64) {}
}

/// What carries a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// TCP.
    Streams,
    /// UDP. A run is a datagram.
    Datagrams,
    /// Both.
    Both,
}

/// A protocol, for its filter and for rules.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// Its name, in rules and as a filter.
    pub app: App,
    /// What carries it.
    pub over: Over,
    /// Its facts.
    pub facts: &'static [About],
    /// The fields of its records that people read, besides the time and the addresses. Empty: all.
    pub summary: &'static [&'static str],
    /// A record's source is the sender of its first message, and not the client.
    pub is_of_sender: bool,
    /// Both sides of an exchange are one transaction to rules, which ask both for each of their options.
    pub is_one: bool,
    /// Whether the first bytes of a side, or a datagram, are the protocol's. `None`: a row of [`probe`](crate::probe) tells
    /// rules, and to the filter the conversation tells.
    pub probe: Option<fn(&First<'_>) -> Fit>,
    /// The purpose of the filter, in a line.
    pub does: &'static str,
    /// Its description.
    pub help: &'static str,
    /// A request with a bundled capture, and what it writes.
    pub example: (&'static str, &'static str),
}

impl Protocol {
    /// A protocol by its name, what carries it, and its facts. Its records are of the client, and it has no probe and no
    /// description yet.
    pub const fn of(app: App, over: Over, facts: &'static [About]) -> Protocol {
        let (is_of_sender, is_one, probe) = (false, false, None);
        let summary = &[];
        Protocol { app, over, facts, summary, is_of_sender, is_one, probe, does: "", help: "", example: ("", "") }
    }
}

/// Tells a message that is an exchange by itself; `next` is its number.
pub fn message<F>(next: &mut u64, side: Side, ear: &mut dyn Ear<F>, tell: impl FnOnce(Id, &mut dyn Ear<F>)) {
    let id = Id { exchange: *next, side };
    *next += 1;
    ear.begin(id);
    tell(id, ear);
    ear.end(id, How::Complete);
    ear.over(id.exchange);
}

/// A conversation whose exchanges are records as they stand.
pub trait Talk: Debug + Sized + Send + 'static {
    /// Its facts.
    type Fact: Fact + Send;

    /// Its protocol.
    const PROTOCOL: Protocol;

    /// A new connection, or a flow of datagrams.
    fn new(flow: &Flow) -> Self;

    /// The side that sends these first bytes. `None`: they do not tell, and the client opened the connection.
    fn sender(_bytes: &[u8]) -> Option<Side> {
        None
    }

    /// Reads the next bytes of a side, or a datagram.
    fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Ear<Self::Fact>) -> Fed;

    /// This many bytes of a side are missing.
    fn gap(&mut self, _side: Side, _missing: u32, _kept: &Carried, _ear: &mut dyn Ear<Self::Fact>) {}

    /// The connection has ended: ends exchanges, and gives memory back.
    fn end(&mut self, _kept: &Carried, _ear: &mut dyn Ear<Self::Fact>) {}
}

#[cfg(test)]
pub(crate) mod heard {
    use super::*;
    use packet::frame::protocol;

    /// Checks what is said of a connection, read whole and in pieces.
    pub(crate) fn check_talk<T: Talk>(runs: &[(Side, &[u8])], expected: &[&str]) {
        for size in [1, 7, usize::MAX] {
            check_runs::<T>(protocol::TCP, runs, size, expected);
        }
    }

    /// Checks what is said of datagrams.
    pub(crate) fn check_datagrams<T: Talk>(runs: &[(Side, &[u8])], expected: &[&str]) {
        check_runs::<T>(protocol::UDP, runs, usize::MAX, expected);
    }

    fn check_runs<T: Talk>(protocol: u8, runs: &[(Side, &[u8])], size: usize, expected: &[&str]) {
        let [source, target] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(Into::into);
        let flow = Flow { source, target, source_port: 40000, target_port: 9, protocol };
        let (mut talk, kept, mut ear) = (T::new(&flow), Carried::new(1 << 20), Heard::default());
        for (side, bytes) in runs {
            for bytes in bytes.chunks(size) {
                talk.feed(*side, Run { bytes, time: 0 }, &kept, &mut ear);
            }
        }
        talk.end(&kept, &mut ear);
        assert_eq!(ear.said, expected, "by {size}");
        assert_eq!(kept.bytes(), 0);
    }

    /// Notes what it hears, in words.
    #[derive(Debug, Default)]
    pub(crate) struct Heard {
        pub(crate) said: Vec<String>,
        pub(crate) wants: Wants,
    }

    impl<F: Debug> Ear<F> for Heard {
        fn wants(&self) -> Wants {
            self.wants
        }

        fn fact(&mut self, _id: Id, fact: F, value: &[u8]) {
            self.said.push(format!("{fact:?}={}", String::from_utf8_lossy(value)));
        }

        fn frame(&mut self, _id: Id, bytes: &[u8]) {
            self.said.push(format!("frame {}", String::from_utf8_lossy(bytes)));
        }

        fn number(&mut self, _id: Id, fact: F, value: u64) {
            self.said.push(format!("{fact:?}={value}"));
        }

        fn address(&mut self, _id: Id, address: SocketAddr) {
            self.said.push(format!("address {address}"));
        }

        fn head_done(&mut self, _id: Id) {
            self.said.push("head".into());
        }

        fn body(&mut self, _id: Id, piece: Body<'_>) {
            self.said.push(match piece {
                Body::Range(range) => format!("bytes {range:?}"),
                Body::Kept(bytes, time) => format!("kept {} of {time}", String::from_utf8_lossy(bytes)),
                Body::Missing(count) => format!("missing {count}"),
            });
        }

        fn part(&mut self, _id: Id, found: &Found<'_>) {
            self.said.push(format!("{found:?}"));
        }

        fn retract(&mut self, _id: Id) {
            self.said.push("retract".into());
        }

        fn odd(&mut self, _id: Id, event: &'static str) {
            self.said.push(event.into());
        }

        fn lost(&mut self, _id: Id, what: &'static str) {
            self.said.push(format!("lost {what}"));
        }

        fn count(&mut self, what: &'static str, times: u64) {
            self.said.push(format!("{times} {what}"));
        }

        fn end(&mut self, _id: Id, how: How) {
            self.said.push(format!("{how:?}"));
        }
    }
}
