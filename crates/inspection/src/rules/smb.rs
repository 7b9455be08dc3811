//! SMB for rules: a transaction for each request with its response, and one for each file read or written. DCE/RPC in
//! pipes has its own transactions.

use super::dcerpc;
use super::exchanges::{Exchanges, Names};
use super::transactions::Transactions;
use protocols::carry::Carried;
use protocols::conversation::{Body, Ear, Fact as _, How, Id, Run, Side};
use protocols::smb::{Conversation, Fact, Hears, KEPT_BYTES, UNSEEN};
use rules::names::{App, Buffer};

pub(super) const NAMES: &Names = &Names::new(Fact::ALL);

#[derive(Debug)]
pub(super) struct Connection {
    conversation: Conversation,
    kept: Carried,
    exchanges: Exchanges,
    /// Calls in open pipes, by the numbers of the pipes.
    pipes: Vec<(u64, Exchanges)>,
}

impl Default for Connection {
    fn default() -> Connection {
        Connection {
            conversation: Conversation::default(),
            kept: Carried::new(KEPT_BYTES),
            exchanges: Exchanges::default(),
            pipes: Vec::new(),
        }
    }
}

/// Puts what it hears into transactions.
struct Listener<'a> {
    exchanges: &'a mut Exchanges,
    pipes: &'a mut Vec<(u64, Exchanges)>,
    /// The run that is being read.
    bytes: &'a [u8],
    to: &'a mut Transactions,
}

impl Listener<'_> {
    fn transaction(&mut self, id: Id) -> u64 {
        self.exchanges.transaction(id.exchange, App::Smb, self.to)
    }
}

impl Ear<Fact> for Listener<'_> {
    fn begin(&mut self, id: Id) {
        self.transaction(id);
    }

    fn fact(&mut self, id: Id, fact: Fact, value: &[u8]) {
        let Some(number) = self.exchanges.find(id.exchange, self.to) else { return };
        let Some(one) = self.to.get(number) else { return };
        NAMES.put(one, fact.number(), id.side.is_client(), value);
        if fact == Fact::File {
            // Either side may show it.
            [true, false].into_iter().for_each(|side| one.put_copy(Buffer::FILE_NAME, side, value));
        }
        self.to.change(number, id.side.is_client());
    }

    fn number(&mut self, id: Id, fact: Fact, value: u64) {
        let one = self.exchanges.find(id.exchange, self.to);
        if let Some(one) = one.and_then(|one| self.to.get(one)) {
            NAMES.put_number(one, fact.number(), id.side.is_client(), value);
        }
    }

    fn body(&mut self, id: Id, piece: Body<'_>) {
        let bytes = match piece {
            Body::Range(range) => &self.bytes[range],
            Body::Kept(bytes, _) => bytes,
            Body::Missing(_) => return self.to.given_up += 1,
        };
        if self.exchanges.find(id.exchange, self.to).is_none() {
            self.to.given_up += 1;
            self.to.unseen = true;
        }
        let one = self.transaction(id);
        self.to.append_body(one, Buffer::FILE_DATA, id.side.is_client(), bytes);
        self.to.change(one, id.side.is_client());
    }

    fn odd(&mut self, id: Id, event: &'static str) {
        // It is about the file, so either side may show it.
        let Some(number) = self.exchanges.find(id.exchange, self.to) else { return };
        for side in [true, false] {
            if let Some(one) = self.to.get(number) {
                one.put_event(event, side);
            }
            self.to.change(number, side);
        }
    }

    fn lost(&mut self, _id: Id, what: &'static str) {
        self.to.given_up += 1;
        self.to.unseen |= what == UNSEEN;
    }

    fn end(&mut self, id: Id, _how: How) {
        if let Some(one) = self.exchanges.find(id.exchange, self.to) {
            self.to.complete(one, id.side.is_client());
        }
    }
}

impl Hears for Listener<'_> {
    fn pipe(&mut self, pipe: u64, bytes: &[u8], tell: &mut dyn FnMut(&mut dyn Ear<protocols::dcerpc::Fact>)) {
        let at = self.pipes.iter().position(|known| known.0 == pipe).unwrap_or_else(|| {
            self.pipes.push((pipe, Exchanges::default()));
            self.pipes.len() - 1
        });
        let exchanges = &mut self.pipes[at].1;
        tell(&mut dcerpc::Listener { app: App::Smb, exchanges, bytes, to: self.to });
    }

    fn pipe_end(&mut self, pipe: u64) {
        self.pipes.retain(|known| known.0 != pipe);
    }
}

impl Connection {
    /// Takes bytes of a side; `gap` bytes before them are missing.
    pub fn feed(&mut self, side: Side, run: Run<'_>, gap: u32, to: &mut Transactions) {
        let Connection { conversation, kept, exchanges, pipes } = self;
        let mut ear = Listener { exchanges, pipes, bytes: run.bytes, to };
        if gap > 0 {
            conversation.gap(side, gap, run.time, kept, &mut ear);
        }
        conversation.feed(side, run, kept, &mut ear);
        to.reader_bytes = self.kept.bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use protocols::smb::{ASKED, KEPT};

    fn message(command: u8, id: u8, is_response: bool, body: &[u8]) -> Vec<u8> {
        let mut header = [&b"\xfeSMB"[..], &[0; 60]].concat();
        (header[12], header[16], header[24]) = (command, u8::from(is_response), id);
        let length = (header.len() + body.len()) as u32;
        [&length.to_be_bytes()[..], &header, body].concat()
    }

    fn feed(connection: &mut Connection, bytes: &[u8], to_server: bool, to: &mut Transactions) {
        connection.feed(Side::to_server(to_server), Run { bytes, time: 0 }, 0, to);
    }

    fn write(offset: u8, data: &[u8]) -> Vec<u8> {
        let length = data.len() as u8;
        [&[49, 0, 112, 0, length, 0, 0, 0, offset, 0, 0, 0, 0, 0, 0, 0][..], &[7; 16], &[0; 16], data].concat()
    }

    #[test]
    fn files_and_pipes() {
        let name = [&[57, 0][..], &[0; 42], &[120, 0, 4, 0], &[0; 8], b"f\0x\0"].concat();
        let created = [&[89, 0][..], &[0; 62], &[7; 16]].concat();
        let tree = message(3, 1, false, &[9, 0, 0, 0, 72, 0, 4, 0, b'a', 0, b'b', 0]);
        for size in [1, 50, 1000] {
            let (mut connection, mut to) = (Connection::default(), Transactions::default());
            let mut say = |bytes: &[u8], to_server: bool, to: &mut Transactions| {
                bytes.chunks(size).for_each(|piece| feed(&mut connection, piece, to_server, to));
            };
            say(&tree, true, &mut to);
            say(&message(3, 1, true, &[16, 0, 2, 0]), false, &mut to);
            let share = to.last().unwrap();
            assert_eq!(share.first(Buffer::SMB_NAMED_PIPE, true), Some(&b"ab"[..]));
            // Another share, with files.
            say(&tree, true, &mut to);
            say(&message(3, 1, true, &[16, 0, 1, 0]), false, &mut to);
            say(&message(5, 2, false, &name), true, &mut to);
            say(&message(5, 2, true, &created), false, &mut to);
            say(&message(9, 3, false, &write(0, b"one ")), true, &mut to);
            say(&message(9, 4, false, &write(2, b"e two")), true, &mut to);
            say(&message(9, 5, false, &write(2, b"e two")), true, &mut to);
            let file = to.last().unwrap();
            assert_eq!(file.first(Buffer::FILE_NAME, true), Some(&b"fx"[..]));
            assert_eq!(file.first(Buffer::FILE_DATA, true), Some(&b"one two"[..]));
            assert_eq!(file.events, [("smb.file_overlap", true), ("smb.file_overlap", false)]);
            // Rules for either side are tried, though nothing of the file comes from the server.
            let of_file = to.changed.iter().filter(|changed| changed.0 == file.id);
            assert!(of_file.map(|changed| changed.1).any(|to_server| !to_server));
        }
    }

    #[test]
    fn a_chain_that_is_too_long_counts() {
        let block = |at: u8| [&[4, 0x75, 0, at + 11, 0, 0, 0, 0, 0][..], &[0, 0]].concat();
        let mut message = [&b"\xffSMB\x75"[..], &[0; 27]].concat();
        (0..20).for_each(|number| message.extend(block(32 + 11 * number)));
        let (mut connection, mut to) = (Connection::default(), Transactions::default());
        feed(&mut connection, &[&(message.len() as u32).to_be_bytes()[..], &message].concat(), true, &mut to);
        assert_eq!((to.given_up, to.unseen), (1, true));
    }

    /// A connection with an open pipe, on whose tree files can be opened too.
    fn with_pipe() -> (Connection, Transactions) {
        let (mut connection, mut to) = (Connection::default(), Transactions::default());
        let tree = message(3, 1, false, &[9, 0, 0, 0, 72, 0, 4, 0, b'a', 0, b'b', 0]);
        feed(&mut connection, &tree, true, &mut to);
        feed(&mut connection, &message(3, 1, true, &[16, 0, 2, 0]), false, &mut to);
        open(&mut connection, 0xffff, 0, &mut to);
        let mut bytes = write(0, b"\x05");
        bytes[16..32].copy_from_slice(&file(0xffff));
        feed(&mut connection, &message(9, 3, false, &bytes), true, &mut to);
        (connection, to)
    }

    fn file(number: u16) -> Vec<u8> {
        [&number.to_le_bytes()[..], &[7; 14]].concat()
    }

    fn open(connection: &mut Connection, number: u16, tree: u8, to: &mut Transactions) {
        let name = [&[57, 0][..], &[0; 42], &[120, 0, 4, 0], &[0; 8], b"f\0x\0"].concat();
        let created = [&[89, 0][..], &[0; 62], &file(number)].concat();
        for (is_response, body) in [(false, name), (true, created)] {
            let mut message = message(5, 2, is_response, &body);
            message[4 + 36] = tree;
            feed(connection, &message, !is_response, to);
            to.changed.clear();
            to.sweep();
        }
    }

    #[test]
    fn open_files_push_out_no_pipe() {
        let (mut connection, mut to) = with_pipe();
        let is_pipe = |connection: &Connection| !connection.pipes.is_empty();
        (0..KEPT as u16 - 1).for_each(|number| open(&mut connection, number, 9, &mut to));
        assert_eq!((is_pipe(&connection), to.given_up), (true, 0));
        (0..10).for_each(|number| open(&mut connection, 5000 + number, 9, &mut to));
        assert_eq!((is_pipe(&connection), to.given_up, to.unseen), (true, 10, false));
        // A write to a file that was pushed out.
        let mut bytes = write(0, b"x");
        bytes[16..32].copy_from_slice(&file(0));
        feed(&mut connection, &message(9, 3, false, &bytes), true, &mut to);
        assert_eq!((is_pipe(&connection), to.unseen), (true, true));
    }

    /// As many reads as a server grants credits for may be unanswered.
    #[test]
    fn many_reads_wait_for_their_answers() {
        let read = |connection: &mut Connection, number: usize, to: &mut Transactions| {
            let mut message = message(8, 0, false, &[&[49, 0, 0, 0][..], &[0; 12], &file(1), &[0; 20]].concat());
            message[4 + 24..4 + 26].copy_from_slice(&(number as u16).to_le_bytes());
            feed(connection, &message, true, to);
        };
        let answer = message(8, 0, true, &[&[17, 0, 80, 0, 4, 0, 0, 0][..], &[0; 8], b"evil"].concat());
        let (mut connection, mut to) = (Connection::default(), Transactions::default());
        open(&mut connection, 1, 9, &mut to);
        (0..ASKED).for_each(|number| read(&mut connection, number, &mut to));
        feed(&mut connection, &answer, false, &mut to);
        assert_eq!(to.last().unwrap().first(Buffer::FILE_DATA, false), Some(&b"evil"[..]));
        assert_eq!((to.given_up, to.unseen), (0, false));
        // The oldest two are pushed out; then an answer to one of them comes.
        (0..3).for_each(|number| read(&mut connection, ASKED + number, &mut to));
        assert_eq!((to.given_up, to.unseen), (2, false));
        let mut late = answer.clone();
        late[4 + 24] = 1;
        feed(&mut connection, &late, false, &mut to);
        assert!(to.unseen);
    }

    proptest! {
        #[test]
        fn any_bytes(said in proptest::collection::vec(
            (0u8..12, 0u8..3, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..90)), 0..20)) {
            let (mut connection, mut to) = (Connection::default(), Transactions::default());
            for (command, id, is_response, body) in said {
                feed(&mut connection, &message(command, id, is_response, &body), !is_response, &mut to);
                to.changed.clear();
                to.sweep();
            }
        }
    }
}
