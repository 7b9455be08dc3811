//! QUIC for rules: each Initial packet is a transaction, with the values of its hello.

use super::exchanges::Names;
use super::transactions::Transactions;
use protocols::carry::Carried;
use protocols::conversation::{Ear, Fact as _, How, Id, Side};
use protocols::quic::conversation::{Conversation, Fact, KEPT_BYTES};
use rules::names::App;

pub(super) const NAMES: &Names = &Names::new(Fact::ALL);

/// The connections of a pair of ports.
#[derive(Debug)]
pub(super) struct Flow {
    conversation: Conversation,
    kept: Carried,
}

impl Default for Flow {
    fn default() -> Flow {
        Flow { conversation: Conversation::default(), kept: Carried::new(KEPT_BYTES) }
    }
}

/// Puts what it hears into transactions.
struct Listener<'a> {
    /// The transaction of the packet.
    one: u64,
    to: &'a mut Transactions,
}

impl Ear<Fact> for Listener<'_> {
    fn begin(&mut self, id: Id) {
        let one = self.to.begin(App::Quic);
        one.complete = [true; 2];
        self.one = one.id;
        self.to.change(self.one, id.side.is_client());
    }

    fn fact(&mut self, id: Id, fact: Fact, value: &[u8]) {
        if let Some(one) = self.to.get(self.one) {
            NAMES.put(one, fact.number(), id.side.is_client(), value);
        }
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

impl Flow {
    pub fn feed(&mut self, payload: &[u8], to_server: bool, to: &mut Transactions) {
        let Flow { conversation, kept } = self;
        conversation.feed(Side::to_server(to_server), payload, kept, &mut Listener { one: 0, to });
        to.reader_bytes = kept.bytes() + conversation.own_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::names::Buffer;

    /// A client's packet of Google's QUIC.
    fn packet() -> Vec<u8> {
        let hello = [&b"CHLO\x02\0\0\0SNI\0\x05\0\0\0UAID\x07\0\0\0"[..], b"a.orgme"].concat();
        let frame = [&[0xa0, 1, 0, hello.len() as u8][..], &hello].concat();
        [&[0xc3][..], b"Q046\x50", &[7; 8], &[0, 0, 0, 1], &[9; 12], &frame].concat()
    }

    #[test]
    fn each_packet_is_a_transaction() {
        let (mut flow, mut to) = (Flow::default(), Transactions::default());
        [true, false].into_iter().for_each(|to_server| flow.feed(&packet(), to_server, &mut to));
        assert_eq!(to.changed, [(0, true), (1, true)], "who says hello is the client");
        let one = to.last().unwrap();
        let said = [Buffer::QUIC_VERSION, Buffer::QUIC_SNI, Buffer::QUIC_UA].map(|buffer| one.first(buffer, true));
        assert_eq!(said, [&b"Q046"[..], b"a.org", b"me"].map(Some));
    }

    #[test]
    fn what_no_key_decrypts_is_given_up() {
        let (mut flow, mut to) = (Flow::default(), Transactions::default());
        let initial = [&[0xc3, 0, 0, 0, 1, 1, 7, 0, 0, 30][..], &[9; 30]].concat();
        flow.feed(&initial, true, &mut to);
        assert_eq!((to.given_up, to.unseen, to.last().is_some()), (1, false, false));
        flow.feed(&initial.repeat(5), true, &mut to);
        assert_eq!((to.given_up, to.unseen), (6, true), "the keys of a datagram are bounded");
    }
}
