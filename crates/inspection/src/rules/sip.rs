//! SIP for rules: each message is a transaction of the side that sent it.

use super::exchanges::Buffers;
use super::transactions::Transactions;
use protocols::app::App;
use protocols::carry::Carried;
use protocols::conversation::{Ear, Fact as _, How, Id, Run, Side};
use protocols::sip::{Conversation, Fact, KEPT_BYTES};
use rules::names::of_facts;

const BUFFERS: Buffers<14> = of_facts(Fact::ALL);

#[derive(Debug)]
pub(super) struct Stream {
    conversation: Conversation,
    kept: Carried,
}

impl Default for Stream {
    fn default() -> Stream {
        Stream { conversation: Conversation::default(), kept: Carried::new(KEPT_BYTES) }
    }
}

/// Puts what it hears into transactions.
struct Listener<'a> {
    /// The transaction of the message.
    one: u64,
    to: &'a mut Transactions,
}

impl Ear<Fact> for Listener<'_> {
    fn begin(&mut self, id: Id) {
        let one = self.to.begin(App::Sip);
        one.complete = [true; 2];
        self.one = one.id;
        self.to.change(self.one, id.side.is_client());
    }

    fn fact(&mut self, id: Id, fact: Fact, value: &[u8]) {
        if let (Some(one), Some(buffer)) = (self.to.get(self.one), BUFFERS[fact.number()][id.side.index()]) {
            one.put_copy(buffer, id.side.is_client(), value);
        }
    }

    fn lost(&mut self, _id: Id, _what: &'static str) {
        self.to.given_up += 1;
        self.to.unseen = true;
    }

    fn end(&mut self, _id: Id, _how: How) {}
}

impl Stream {
    pub fn feed(&mut self, side: Side, run: Run<'_>, gap: u32, to: &mut Transactions) {
        if gap > 0 {
            self.conversation.gap(side, gap, &self.kept);
        }
        self.conversation.feed(side, run, &self.kept, &mut Listener { one: 0, to });
    }

    pub fn kept_bytes(&self) -> usize {
        self.kept.bytes()
    }
}

pub(super) fn datagram(bytes: &[u8], to_server: bool, to: &mut Transactions) {
    Conversation::default().datagram(Side::to_server(to_server), bytes, &mut Listener { one: 0, to });
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::names::Buffer;

    /// Checks the URIs and receivers that rules see.
    fn check(stream: &[u8], expected: &[&str]) {
        for size in [1, 5, stream.len()] {
            let (mut reader, mut to) = (Stream::default(), Transactions::default());
            stream.chunks(size).for_each(|bytes| reader.feed(Side::Client, Run { bytes, time: 0 }, 0, &mut to));
            let seen = (0..9).filter_map(|id| to.find(id));
            let seen = seen.flat_map(|one| one.all(Buffer::SIP_URI, true).chain(one.all(Buffer::SIP_TO, true)));
            let seen: Vec<_> = seen.map(String::from_utf8_lossy).collect();
            assert_eq!(seen, expected, "by {size}");
            assert!(reader.kept_bytes() <= KEPT_BYTES);
        }
    }

    #[test]
    fn messages_of_a_stream() {
        check(
            b"INVITE sip:a SIP/2.0\r\nt: x\r\nl: 4\r\n\r\nbody\r\n\r\nBYE sip:b SIP/2.0\nTo: y\n\n",
            &["sip:a", "x", "sip:b", "y"],
        );
        let long = [&b"INVITE sip:a SIP/2.0\r\nt: x\r\n"[..], &b"v: z\r\n".repeat(20_000), b"\r\n"].concat();
        check(&long, &["sip:a", "x"]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(bytes: Vec<u8>, size in 1usize..20) {
            let (mut reader, mut to) = (Stream::default(), Transactions::default());
            let bytes = [b"INVITE sip:a SIP/2.0\r\nl: ", &bytes[..]].concat();
            bytes.chunks(size).for_each(|bytes| reader.feed(Side::Client, Run { bytes, time: 0 }, 0, &mut to));
        }
    }
}
