//! The ear of rules for protocols whose exchanges are transactions as they stand. Facts become buffers and numbers by the
//! protocol's own table; the same table fills objects of alerts.

use super::exchanges::{Exchanges, Names};
use super::transactions::Transactions;
use packet::Flow;
use protocols::app::App;
use protocols::carry::Carried;
use protocols::conversation::{Ear, Fact as _, How, Id, Kind, Run, Side, Talk, Wants};
use rules::Transaction;
use rules::names::Buffer;
use std::fmt::Debug;

/// Most bytes kept of unfinished messages of one connection.
const KEPT_BYTES: usize = 256 << 10;

/// The static part of a protocol.
struct Of<T>(std::marker::PhantomData<T>);

impl<T: Talk> Of<T> {
    const NAMES: &'static Names = &Names::new(T::PROTOCOL.facts);
}

/// A connection, or a flow of datagrams, of any such protocol.
pub(super) trait Stream: Debug + Send {
    /// Reads the next bytes of a side, or a datagram. `gap`: the number of bytes missing before them.
    fn feed(&mut self, side: Side, run: Run<'_>, gap: u32, to: &mut Transactions);

    /// Bytes of unfinished messages.
    fn kept_bytes(&self) -> usize;
}

#[derive(Debug)]
struct Heard<T> {
    conversation: T,
    kept: Carried,
    exchanges: Exchanges,
}

/// Puts facts into transactions.
struct Listener<'a, T> {
    exchanges: &'a mut Exchanges,
    to: &'a mut Transactions,
    talk: std::marker::PhantomData<T>,
}

impl<T: Talk> Listener<'_, T> {
    fn put(&mut self, id: Id, put: impl FnOnce(&mut Transaction, bool)) {
        let one = self.exchanges.transaction(id.exchange, T::PROTOCOL.app, self.to);
        if let Some(one) = self.to.get(one) {
            one.is_one = T::PROTOCOL.is_one;
            put(one, id.side.is_client());
        }
        self.to.change(one, id.side.is_client());
    }

    /// Forgets the frames that rules have seen: a peer may send them without end.
    fn forget_frames(&mut self, id: Id) {
        let Names { facts, buffers, .. } = Of::<T>::NAMES;
        let frames = facts.iter().zip(buffers).filter(|(about, _)| matches!(about.kind, Kind::Frame));
        let frames: Vec<Buffer> = frames.filter_map(|(_, buffers)| buffers[id.side.index()]).collect();
        if let Some(one) = self.exchanges.find(id.exchange, self.to) {
            self.to.forget_shown(one, id.side.is_client(), &frames);
        }
    }
}

impl<T: Talk> Ear<T::Fact> for Listener<'_, T> {
    fn wants(&self) -> Wants {
        Wants { frames: self.to.frames, ..Wants::default() }
    }

    fn begin(&mut self, id: Id) {
        self.put(id, |_, _| {});
    }

    fn fact(&mut self, id: Id, fact: T::Fact, value: &[u8]) {
        if matches!(fact.about().kind, Kind::Frame) {
            self.forget_frames(id);
        }
        self.put(id, |one, to_server| Of::<T>::NAMES.put(one, fact.number(), to_server, value));
    }

    fn number(&mut self, id: Id, fact: T::Fact, value: u64) {
        self.put(id, |one, to_server| Of::<T>::NAMES.put_number(one, fact.number(), to_server, value));
    }

    fn odd(&mut self, id: Id, event: &'static str) {
        self.put(id, |one, to_server| one.put_event(event, to_server));
    }

    fn lost(&mut self, _id: Id, _what: &'static str) {
        self.to.given_up += 1;
        self.to.unseen = true;
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
        let Some(number) = self.exchanges.find(exchange, self.to) else { return };
        if T::PROTOCOL.is_one {
            [true, false].into_iter().for_each(|to_server| self.to.complete(number, to_server));
        } else if let Some(one) = self.to.get(number) {
            one.complete = [true; 2];
        }
    }
}

impl<T: Talk> Stream for Heard<T> {
    fn feed(&mut self, side: Side, run: Run<'_>, gap: u32, to: &mut Transactions) {
        let Heard { conversation, kept, exchanges } = self;
        let mut ear = Listener::<T> { exchanges, to, talk: Default::default() };
        if gap > 0 {
            conversation.gap(side, gap, kept, &mut ear);
        }
        if !run.bytes.is_empty() {
            conversation.feed(side, run, kept, &mut ear);
        }
    }

    fn kept_bytes(&self) -> usize {
        self.kept.bytes()
    }
}

/// Declares functions of the protocol.
macro_rules! protocols {
    (; $($module:ident $app:ident)*) => {
        /// A connection of this protocol; `None`: it has a reader of its own.
        pub(super) fn stream(app: App, flow: &Flow) -> Option<Box<dyn Stream>> {
            match app {
                $(App::$app => Some(Box::new(Heard {
                    conversation: <protocols::$module::Conversation as Talk>::new(flow),
                    kept: Carried::new(KEPT_BYTES),
                    exchanges: Exchanges::default(),
                })),)*
                _ => None,
            }
        }

        /// The names of its facts.
        pub(super) fn names(app: App) -> Option<&'static Names> {
            match app {
                $(App::$app => Some(Of::<protocols::$module::Conversation>::NAMES),)*
                _ => None,
            }
        }
    };
}

protocols::talks! { protocols {} }

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader, and where it puts what rules see.
    fn reading(app: App) -> (Box<dyn Stream>, Transactions) {
        let [source, target] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(Into::into);
        let flow = Flow { source, target, source_port: 9, target_port: 9, protocol: 6 };
        (stream(app, &flow).unwrap(), Transactions::default())
    }

    /// Checks the URIs and receivers of SIP that rules see.
    fn check(sent: &[u8], expected: &[&str]) {
        for size in [1, 5, sent.len()] {
            let (mut reader, mut to) = reading(App::Sip);
            for bytes in sent.chunks(size) {
                reader.feed(Side::Client, Run { bytes, time: 0 }, 0, &mut to);
                assert!(reader.kept_bytes() <= 2 * base::limits::SIP_HEAD_BYTES);
            }
            let seen = (0..9).filter_map(|id| to.find(id));
            let names = ["sip.uri", "sip.to"].map(|name| Buffer::of_name(name).unwrap());
            let seen = seen.flat_map(|one| names.into_iter().flat_map(|name| one.all(name, true)));
            let seen: Vec<_> = seen.map(String::from_utf8_lossy).collect();
            assert_eq!(seen, expected, "by {size}");
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

    #[test]
    fn frames_without_end_are_forgotten_once_seen() {
        let (mut ssh, mut to) = reading(App::Ssh);
        to.frames = true;
        let mut feed = |bytes: &[u8], gap: u32, to: &mut Transactions| {
            ssh.feed(Side::Client, Run { bytes, time: 0 }, gap, to);
            ssh.kept_bytes()
        };
        feed(b"SSH-2.0-a\r\n", 0, &mut to);
        let pdus = |to: &Transactions| to.find(0).unwrap().all(Buffer::FRAME_SSH_PDU, true).count();
        for _ in 0..100 {
            feed(&b"\0\0\0\x02\0\x1e".repeat(233), 0, &mut to);
            assert_eq!(pdus(&to), 233, "only the new ones");
            assert_eq!(to.find(0).unwrap().first(Buffer::SSH_SOFTWARE, true), Some(&b"a"[..]));
            assert!(to.kept_bytes() < 64 << 10);
            to.changed.clear();
        }
        // They end at a gap.
        assert!(feed(b"\0\0\0\x04\0", 0, &mut to) > 0);
        assert_eq!((feed(b"\x1eab", 1, &mut to), pdus(&to)), (0, 233));
    }
}
