//! SMB for rules: a transaction for each request with its response, and one for each file read or written. DCE/RPC in
//! pipes has its own transactions.

use super::dcerpc::Calls;
use super::transactions::Transactions;
use base::limits::RULES_BODY_BYTES;
use protocols::smb::{Body, File, Header, PENDING, PREFIX_BYTES, prefix};
use rules::names::{App, Buffer, Number};
use std::collections::VecDeque;

/// Most bytes kept of a message: file data that rules inspect, and the headers.
const MESSAGE_BYTES: usize = RULES_BODY_BYTES + (4 << 10);
/// Most shares of pipes, and most open files, of one connection.
const KEPT: usize = 1024;
/// Most requests that may wait for a response: servers grant 8192 credits at most.
const ASKED: usize = 8192;
/// Most bytes of names in these requests.
const NAMES_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Connection {
    sides: [Side; 2],
    /// Shares of pipes.
    pipes: Vec<u32>,
    files: Vec<(File, Open)>,
    asked: VecDeque<Asked>,
    /// Bytes of the names in `asked`.
    names: usize,
    /// A share, an open file, or a request was pushed out of its table.
    pushed_out: [bool; 3],
}

#[derive(Debug, Default)]
struct Side {
    bytes: Vec<u8>,
    /// Message bytes left to skip.
    skip: usize,
    lost: bool,
}

/// An open file or pipe.
#[derive(Debug)]
enum Open {
    /// A file: name, transaction, and by side the end of the bytes seen.
    File {
        name: Vec<u8>,
        transaction: Option<u64>,
        ends: [u64; 2],
    },
    Pipe(Box<Calls>),
}

/// A request waiting for its response.
#[derive(Debug)]
struct Asked {
    version: u8,
    command: u16,
    message: u64,
    transaction: Option<u64>,
    /// The file, and an offset in it.
    file: Option<(File, u64)>,
    /// The name to open, or the share.
    name: Vec<u8>,
}

impl Connection {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: bool, to: &mut Transactions) {
        let at = usize::from(!to_server);
        if gap && !self.sides[at].lost {
            to.given_up += 1;
            self.sides[at] = Side { lost: true, ..Side::default() };
        }
        if self.sides[at].lost {
            return;
        }
        let mut waiting = std::mem::take(&mut self.sides[at].bytes);
        waiting.extend_from_slice(bytes);
        let mut used = 0;
        loop {
            let side = &mut self.sides[at];
            let skipped = side.skip.min(waiting.len() - used);
            side.skip -= skipped;
            used += skipped;
            let Some(start) = waiting[used..].first_chunk::<PREFIX_BYTES>() else { break };
            let (length, is_message) = prefix(start);
            let kept = length.min(MESSAGE_BYTES);
            let Some(message) = waiting.get(used + PREFIX_BYTES..used + PREFIX_BYTES + kept) else { break };
            side.skip = length - kept;
            to.given_up += u64::from(kept < length);
            if is_message {
                self.messages(message, to_server, to);
            }
            used += PREFIX_BYTES + kept;
        }
        waiting.drain(..used);
        self.sides[at].bytes = waiting;
        to.reader_bytes = self.kept_bytes();
    }

    fn kept_bytes(&self) -> usize {
        let open = |(_, open): &(File, Open)| match open {
            Open::File { name, .. } => name.capacity(),
            Open::Pipe(calls) => calls.kept_bytes(),
        };
        self.sides.iter().map(|side| side.bytes.capacity()).sum::<usize>()
            + self.files.iter().map(open).sum::<usize>()
            + self.asked.capacity() * size_of::<Asked>()
            + self.names
    }

    /// Handles the messages behind one length prefix: version 2 may chain them.
    fn messages(&mut self, mut message: &[u8], to_server: bool, to: &mut Transactions) {
        while let Some(header) = Header::parse(message) {
            let next = header.next;
            let own = if next > 0 { &message[..message.len().min(next)] } else { message };
            if header.is_response == to_server {
                return;
            }
            let mut bodies = Vec::new();
            if !header.bodies(own, |body| bodies.push(body)) {
                to.given_up += 1;
                to.unseen = true;
            }
            if to_server {
                bodies.into_iter().for_each(|body| self.request(&header, body, to));
            } else {
                self.response(&header, &bodies, to);
            }
            match message.get(next..) {
                Some(rest) if next > 0 => message = rest,
                _ => return,
            }
        }
    }

    fn request(&mut self, header: &Header, body: Body<'_>, to: &mut Transactions) {
        let (mut file, mut name) = (None, Vec::new());
        // Pipe data and file writes have their own transactions.
        let has_own = match body {
            Body::Write { file, offset, data } => {
                self.bytes(file, Some(offset), data, true, to);
                true
            }
            Body::Read { file: of, offset } => {
                file = Some((of, offset));
                true
            }
            Body::Transact { file: of, data } => {
                file = Some((of, 0));
                self.bytes(of, None, data, true, to);
                true
            }
            Body::Create { name: text } | Body::TreeConnect { path: text } => {
                name = plain(text, header.is_unicode);
                false
            }
            Body::Close { file } => {
                self.close(file, to);
                false
            }
            _ => false,
        };
        let mut transaction = None;
        if !has_own {
            let one = to.begin(App::Smb);
            one.put_number(Number::SMB_VERSION, true, header.version.into());
            transaction = Some(one.id);
            let id = one.id;
            to.complete(id, true);
        }
        self.names += name.capacity();
        let Header { version, command, message, .. } = *header;
        self.asked.push_back(Asked { version, command, message, transaction, file, name });
        while self.asked.len() > ASKED || self.names > NAMES_BYTES {
            let Some(oldest) = self.asked.pop_front() else { break };
            self.names -= oldest.name.capacity();
            self.pushed_out[2] = true;
            to.given_up += 1;
        }
    }

    fn response(&mut self, header: &Header, bodies: &[Body<'_>], to: &mut Transactions) {
        let is_pending = header.version == 2 && header.status == PENDING;
        let known = |asked: &Asked| {
            let same = (asked.version, asked.message) == (header.version, header.message);
            // Version 2 may answer a version 1 negotiation, if the client offered both.
            same || header.command == 0 && header.version == 2 && (asked.version, asked.command) == (1, 0x72)
        };
        let tells =
            |body: &Body<'_>| matches!(body, Body::TreeConnected { .. } | Body::Created { .. } | Body::Data { .. });
        if self.pushed_out[2] && bodies.iter().any(tells) && !self.asked.iter().any(known) {
            to.unseen = true;
        }
        let mut bodies = bodies.iter();
        // Responses are chained as their requests were.
        while let Some(at) = self.asked.iter().position(known) {
            let Some(body) = bodies.next() else { return };
            if is_pending {
                return;
            }
            let Some(asked) = self.asked.remove(at) else { return };
            self.names -= asked.name.capacity();
            self.answer(header, &asked, body, to);
            if let Some(id) = asked.transaction {
                if let Some(one) = to.get(id) {
                    one.put_number(Number::SMB_VERSION, false, asked.version.into());
                }
                to.complete(id, false);
            }
            if header.version == 2 {
                return;
            }
        }
    }

    fn answer(&mut self, header: &Header, asked: &Asked, body: &Body<'_>, to: &mut Transactions) {
        match *body {
            Body::TreeConnected { is_pipe } => {
                self.pipes.retain(|tree| *tree != header.tree);
                if is_pipe {
                    let over = self.pipes.len().saturating_sub(KEPT - 1);
                    self.pipes.drain(..over);
                    self.pushed_out[0] |= over > 0;
                    to.given_up += over as u64;
                    self.pipes.push(header.tree);
                }
                // Only the response tells a pipe from a share.
                if let Some(one) = asked.transaction.and_then(|id| to.get(id)) {
                    let buffer = if is_pipe { Buffer::SMB_NAMED_PIPE } else { Buffer::SMB_SHARE };
                    one.put_copy(buffer, true, &asked.name);
                    let id = one.id;
                    to.change(id, true);
                }
            }
            Body::Created { file } => {
                let open = match self.pipes.contains(&header.tree) {
                    true => Open::Pipe(Box::new(Calls::new(App::Smb))),
                    false => Open::File { name: asked.name.clone(), transaction: None, ends: [0; 2] },
                };
                to.unseen |= self.pushed_out[0] && matches!(open, Open::File { .. });
                self.close(file, to);
                self.open(file, open, to);
            }
            Body::Data { data } => {
                if let Some((file, offset)) = asked.file {
                    self.bytes(file, Some(offset), data, false, to);
                }
            }
            // The share is disconnected.
            _ if header.status == 0 && matches!((asked.version, asked.command), (2, 4) | (1, 0x71)) => {
                self.pipes.retain(|tree| *tree != header.tree);
            }
            _ => {}
        }
    }

    /// Adds an open file. If there are too many, closes the oldest that is no pipe: pipes know their interfaces.
    fn open(&mut self, file: File, open: Open, to: &mut Transactions) {
        if self.files.len() >= KEPT {
            let oldest = self.files.iter().position(|(_, open)| matches!(open, Open::File { .. })).unwrap_or(0);
            self.close(self.files[oldest].0, to);
            self.pushed_out[1] = true;
            to.given_up += 1;
        }
        self.files.push((file, open));
    }

    /// Handles bytes of a file or a pipe.
    fn bytes(&mut self, file: File, offset: Option<u64>, data: &[u8], to_server: bool, to: &mut Transactions) {
        let at = match self.files.iter().position(|open| open.0 == file) {
            Some(at) => at,
            None => {
                // The open request is unknown or unanswered: DCE/RPC messages reveal a pipe.
                let open = match protocols::dcerpc::Header::parse(data) {
                    Some(_) => Open::Pipe(Box::new(Calls::new(App::Smb))),
                    None => Open::File { name: Vec::new(), transaction: None, ends: [0; 2] },
                };
                to.unseen |= self.pushed_out[1];
                self.open(file, open, to);
                self.files.len() - 1
            }
        };
        match &mut self.files[at].1 {
            Open::Pipe(calls) => calls.feed(data, to_server, false, to),
            Open::File { name, transaction, ends } => {
                let known = transaction.filter(|id| to.find(*id).is_some());
                if transaction.is_some() && known.is_none() {
                    to.given_up += 1;
                    to.unseen = true;
                }
                let id = known.unwrap_or_else(|| {
                    let one = to.begin(App::Smb);
                    if !name.is_empty() {
                        one.put_copy(Buffer::FILE_NAME, true, name);
                        one.put_copy(Buffer::FILE_NAME, false, name);
                    }
                    one.id
                });
                *transaction = Some(id);
                let end = &mut ends[usize::from(!to_server)];
                let offset = offset.unwrap_or(*end);
                let known = end.saturating_sub(offset);
                if known > 0
                    && let Some(one) = to.get(id)
                {
                    // The event is about the file, so either side may show it.
                    [true, false].into_iter().for_each(|side| one.put_event("smb.file_overlap", side));
                }
                to.given_up += u64::from(offset > *end && *end > 0);
                let new = data.get(usize::try_from(known).unwrap_or(usize::MAX)..).unwrap_or_default();
                *end = offset.saturating_add(data.len() as u64).max(*end);
                to.append_body(id, Buffer::FILE_DATA, to_server, new);
                to.change(id, to_server);
            }
        }
    }

    fn close(&mut self, file: File, to: &mut Transactions) {
        let Some(at) = self.files.iter().position(|open| open.0 == file) else { return };
        if let Open::File { transaction: Some(id), .. } = self.files.remove(at).1 {
            to.complete(id, true);
            to.complete(id, false);
        }
    }
}

/// Converts a text to UTF-8.
fn plain(text: &[u8], is_unicode: bool) -> Vec<u8> {
    if !is_unicode {
        return text.to_vec();
    }
    let units: Vec<u16> = text.as_chunks().0.iter().map(|pair| u16::from_le_bytes(*pair)).collect();
    String::from_utf16_lossy(&units).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(command: u8, id: u8, is_response: bool, body: &[u8]) -> Vec<u8> {
        let mut header = [&b"\xfeSMB"[..], &[0; 60]].concat();
        (header[12], header[16], header[24]) = (command, u8::from(is_response), id);
        let length = (header.len() + body.len()) as u32;
        [&length.to_be_bytes()[..], &header, body].concat()
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
                bytes.chunks(size).for_each(|piece| connection.feed(piece, to_server, false, to));
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
        }
    }

    #[test]
    fn a_chain_that_is_too_long_counts() {
        let block = |at: u8| [&[4, 0x75, 0, at + 11, 0, 0, 0, 0, 0][..], &[0, 0]].concat();
        let mut message = [&b"\xffSMB\x75"[..], &[0; 27]].concat();
        (0..20).for_each(|number| message.extend(block(32 + 11 * number)));
        let (mut connection, mut to) = (Connection::default(), Transactions::default());
        connection.feed(&[&(message.len() as u32).to_be_bytes()[..], &message].concat(), true, false, &mut to);
        assert_eq!((to.given_up, to.unseen, connection.asked.len()), (1, true, 16));
    }

    /// A connection with an open pipe, on whose tree files can be opened too.
    fn with_pipe() -> (Connection, Transactions) {
        let (mut connection, mut to) = (Connection::default(), Transactions::default());
        let tree = message(3, 1, false, &[9, 0, 0, 0, 72, 0, 4, 0, b'a', 0, b'b', 0]);
        connection.feed(&tree, true, false, &mut to);
        connection.feed(&message(3, 1, true, &[16, 0, 2, 0]), false, false, &mut to);
        open(&mut connection, 0xffff, 0, &mut to);
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
            connection.feed(&message, !is_response, false, to);
            to.changed.clear();
            to.sweep();
        }
    }

    #[test]
    fn open_files_push_out_no_pipe() {
        let (mut connection, mut to) = with_pipe();
        let is_pipe = |connection: &Connection| {
            let of_pipe = |known: &&(File, Open)| known.0[..] == file(0xffff)[..];
            matches!(connection.files.iter().find(of_pipe), Some((_, Open::Pipe(_))))
        };
        (0..KEPT as u16 - 1).for_each(|number| open(&mut connection, number, 9, &mut to));
        assert_eq!((is_pipe(&connection), to.given_up), (true, 0));
        (0..10).for_each(|number| open(&mut connection, 5000 + number, 9, &mut to));
        assert_eq!((is_pipe(&connection), to.given_up, to.unseen), (true, 10, false));
        // A write to a file that was pushed out.
        let mut bytes = write(0, b"x");
        bytes[16..32].copy_from_slice(&file(0));
        connection.feed(&message(9, 3, false, &bytes), true, false, &mut to);
        assert_eq!((is_pipe(&connection), to.unseen), (true, true));
    }

    /// As many reads as a server grants credits for may be unanswered.
    #[test]
    fn many_reads_wait_for_their_answers() {
        let read = |connection: &mut Connection, number: usize, to: &mut Transactions| {
            let mut message = message(8, 0, false, &[&[49, 0, 0, 0][..], &[0; 12], &file(1), &[0; 20]].concat());
            message[4 + 24..4 + 26].copy_from_slice(&(number as u16).to_le_bytes());
            connection.feed(&message, true, false, to);
        };
        let answer = message(8, 0, true, &[&[17, 0, 80, 0, 4, 0, 0, 0][..], &[0; 8], b"evil"].concat());
        let (mut connection, mut to) = (Connection::default(), Transactions::default());
        open(&mut connection, 1, 9, &mut to);
        (0..ASKED).for_each(|number| read(&mut connection, number, &mut to));
        connection.feed(&answer, false, false, &mut to);
        assert_eq!(to.last().unwrap().first(Buffer::FILE_DATA, false), Some(&b"evil"[..]));
        assert_eq!((to.given_up, to.unseen), (0, false));
        // The oldest two are pushed out; then an answer to one of them comes.
        (0..3).for_each(|number| read(&mut connection, ASKED + number, &mut to));
        assert_eq!((to.given_up, to.unseen), (2, false));
        let mut late = answer.clone();
        late[4 + 24] = 1;
        connection.feed(&late, false, false, &mut to);
        assert!(to.unseen);
    }

    proptest! {
        #[test]
        fn any_bytes(said in proptest::collection::vec(
            (0u8..12, 0u8..3, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..90)), 0..20)) {
            let (mut connection, mut to) = (Connection::default(), Transactions::default());
            for (command, id, is_response, body) in said {
                connection.feed(&message(command, id, is_response, &body), !is_response, false, &mut to);
                to.changed.clear();
                to.sweep();
            }
        }
    }
}
