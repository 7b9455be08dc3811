//! SSH for rules: banners, and fingerprints of the offered algorithms (HASSH). One transaction per connection.

use super::exchanges::Buffers;
use super::transactions::Transactions;
use protocols::carry::Carried;
use protocols::conversation::{Ear, Fact as _, How, Id, Run, Side, Talk, Wants};
use protocols::ssh::{Conversation, Fact};
use rules::Transaction;
use rules::names::{App, Buffer, of_facts};

pub(super) const BUFFERS: Buffers<4> = of_facts(Fact::ALL);

const FRAMES: [Buffer; 3] = [Buffer::FRAME_SSH_HDR, Buffer::FRAME_SSH_DATA, Buffer::FRAME_SSH_PDU];

#[derive(Debug)]
pub(super) struct Stream {
    conversation: Conversation,
    kept: Carried,
}

impl Default for Stream {
    fn default() -> Stream {
        Stream { conversation: Conversation::default(), kept: Carried::new(usize::MAX) }
    }
}

/// Puts what it hears into the only transaction.
struct Listener<'a>(&'a mut Transactions);

impl Listener<'_> {
    fn put(&mut self, id: Id, put: impl FnOnce(&mut Transaction, bool)) {
        let (one, to_server) = (self.0.only(App::Ssh), id.side.is_client());
        put(one, to_server);
        let id = one.id;
        self.0.change(id, to_server);
    }
}

impl Ear<Fact> for Listener<'_> {
    fn wants(&self) -> Wants {
        Wants { frames: self.0.frames, ..Wants::default() }
    }

    fn fact(&mut self, id: Id, fact: Fact, value: &[u8]) {
        let Some(buffer) = BUFFERS[fact.number()][id.side.index()] else { return };
        self.put(id, |one, to_server| one.put_copy(buffer, to_server, value));
    }

    fn frame(&mut self, id: Id, bytes: &[u8]) {
        self.put(id, |one, to_server| {
            for (buffer, part) in FRAMES.into_iter().zip([&bytes[..6], &bytes[6..], bytes]) {
                one.put_copy(buffer, to_server, part);
            }
        });
    }

    fn odd(&mut self, id: Id, event: &'static str) {
        self.put(id, |one, to_server| one.put_event(event, to_server));
    }

    fn end(&mut self, _id: Id, _how: How) {}
}

impl Stream {
    pub fn feed(&mut self, side: Side, run: Run<'_>, gap: bool, to: &mut Transactions) {
        if gap {
            self.conversation.gap(side, 1, &self.kept, &mut Listener(to));
        }
        if !self.conversation.is_over(side) {
            let id = to.only(App::Ssh).id;
            // The transaction never ends, and a peer may send records without end.
            to.forget_shown(id, side.is_client(), &FRAMES);
            self.conversation.feed(side, run, &self.kept, &mut Listener(to));
        }
    }

    pub fn kept_bytes(&self) -> usize {
        self.kept.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_frames() -> (Stream, Transactions) {
        let mut to = Transactions::default();
        to.frames = true;
        (Stream::default(), to)
    }

    fn feed(stream: &mut Stream, bytes: &[u8], gap: bool, to: &mut Transactions) {
        stream.feed(Side::Client, Run { bytes, time: 0 }, gap, to);
    }

    #[test]
    fn records_without_end_are_forgotten_once_seen() {
        let (mut ssh, mut to) = with_frames();
        feed(&mut ssh, b"SSH-2.0-a\r\n", false, &mut to);
        let record = b"\0\0\0\x02\0\x1e";
        for _ in 0..100 {
            feed(&mut ssh, &record.repeat(233), false, &mut to);
            let one = to.find(0).unwrap();
            assert_eq!(one.all(Buffer::FRAME_SSH_PDU, true).count(), 233, "only the new ones");
            assert_eq!(one.first(Buffer::SSH_SOFTWARE, true), Some(&b"a"[..]));
            assert!(to.kept_bytes() < 64 << 10);
            to.changed.clear();
        }
    }

    #[test]
    fn records_end_at_a_gap() {
        let (mut ssh, mut to) = with_frames();
        feed(&mut ssh, b"SSH-2.0-a\r\n\0\0\0\x04\0", false, &mut to);
        assert!(ssh.kept_bytes() > 0);
        feed(&mut ssh, b"\x1eab", true, &mut to);
        assert_eq!((ssh.kept_bytes(), to.find(0).unwrap().first(Buffer::FRAME_SSH_PDU, true)), (0, None));
    }
}
