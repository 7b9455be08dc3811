//! WebSockets for rules: a transaction for each frame. That of a message's last frame has the contents of the whole
//! message. The conversation is in `protocols::websocket`.

use super::exchanges::Names;
use super::transactions::Transactions;
use base::limits::RULES_BODY_BYTES;
use protocols::carry::Carried;
use protocols::conversation::{Body, Ear, Fact as _, How, Id, Run, Side, Wants};
use protocols::websocket::{Conversation, FIN, Fact, Header, KEPT_BYTES, UNSEEN};
use rules::Transaction;
use rules::names::{App, Buffer};

pub(super) const NAMES: &Names = &Names::new(Fact::ALL);

/// Most bytes that are decoded at once.
const ROOM_BYTES: usize = 4 << 10;

#[derive(Debug)]
pub(super) struct Connection {
    conversation: Conversation,
    kept: Carried,
    open: Vec<Message>,
}

impl Default for Connection {
    fn default() -> Connection {
        Connection { conversation: Conversation::default(), kept: Carried::new(KEPT_BYTES), open: Vec::new() }
    }
}

/// A message whose last frame is not over.
#[derive(Debug)]
struct Message {
    exchange: u64,
    /// The transaction of the current frame; `None` between frames.
    frame: Option<u64>,
    contents: Vec<u8>,
    /// Where those of the current frame begin.
    from: usize,
    is_last: bool,
    /// Some contents were dropped.
    is_cut: bool,
}

impl Connection {
    /// Reads the next bytes of a side, behind `gap` missing ones.
    pub fn feed(&mut self, side: Side, run: Run<'_>, gap: u32, to: &mut Transactions) {
        let Connection { conversation, kept, open } = self;
        let mut ear = Listener { open, bytes: run.bytes, to };
        conversation.gap(side, gap, kept, &mut ear);
        conversation.feed(side, run, 0, kept, &mut ear);
        to.reader_bytes = kept.bytes() + open.iter().map(|message| message.contents.capacity()).sum::<usize>();
    }
}

/// Fills the buffers of transactions.
struct Listener<'a> {
    open: &'a mut Vec<Message>,
    /// The run that is being read.
    bytes: &'a [u8],
    to: &'a mut Transactions,
}

impl Listener<'_> {
    fn find(&mut self, id: Id) -> Option<&mut Message> {
        self.open.iter_mut().find(|message| message.exchange == id.exchange)
    }

    /// The transaction of the current frame.
    fn frame_of(&mut self, id: Id) -> Option<&mut Transaction> {
        let frame = self.find(id)?.frame?;
        self.to.get(frame)
    }

    /// A frame begins.
    fn begin_frame(&mut self, id: Id) {
        let transaction = self.to.begin(App::WebSocket).id;
        self.to.change(transaction, id.side.is_client());
        let known = self.open.iter().position(|message| message.exchange == id.exchange);
        let at = known.unwrap_or_else(|| {
            let (contents, exchange) = (Vec::new(), id.exchange);
            self.open.push(Message { exchange, frame: None, contents, from: 0, is_last: false, is_cut: false });
            self.open.len() - 1
        });
        let message = &mut self.open[at];
        (message.frame, message.from) = (Some(transaction), message.contents.len());
    }

    fn append(&mut self, id: Id, bytes: &[u8]) {
        let Some(message) = self.find(id) else { return };
        let room = bytes.len().min(RULES_BODY_BYTES - message.contents.len());
        message.contents.extend_from_slice(&bytes[..room]);
        if room < bytes.len() && !std::mem::replace(&mut message.is_cut, true) {
            self.to.given_up += 1;
        }
    }

    /// The current frame of a message is over.
    fn end_frame(&mut self, id: Id, bytes: &[u8]) {
        let Listener { open, to, .. } = self;
        let Some(message) = open.iter_mut().find(|message| message.exchange == id.exchange) else { return };
        let Some(number) = message.frame.take() else { return };
        let (frames, to_server) = (to.frames, id.side.is_client());
        if let Some(one) = to.get(number) {
            let from = if message.is_last { 0 } else { message.from };
            one.put_copy(Buffer::WEBSOCKET_PAYLOAD, to_server, &message.contents[from..]);
            if let Some(header) = Header::parse(bytes).filter(|_| frames) {
                one.put_copy(Buffer::FRAME_WEBSOCKET_HEADER, to_server, &bytes[..header.bytes]);
                one.put_copy(Buffer::FRAME_WEBSOCKET_DATA, to_server, &bytes[header.bytes..]);
                one.put_copy(Buffer::FRAME_WEBSOCKET_PDU, to_server, bytes);
            }
            one.complete = [true; 2];
        }
        to.change(number, to_server);
    }
}

impl Ear<Fact> for Listener<'_> {
    fn wants(&self) -> Wants {
        Wants { frames: true, ..Wants::default() }
    }

    fn fact(&mut self, id: Id, fact: Fact, value: &[u8]) {
        if let Some(one) = self.frame_of(id) {
            NAMES.put(one, fact.number(), id.side.is_client(), value);
        }
    }

    fn number(&mut self, id: Id, fact: Fact, value: u64) {
        if fact == Fact::Opcode {
            self.begin_frame(id);
        }
        if let (Fact::Flags, Some(message)) = (fact, self.find(id)) {
            message.is_last = value & u64::from(FIN) != 0;
        }
        if let Some(one) = self.frame_of(id) {
            NAMES.put_number(one, fact.number(), id.side.is_client(), value);
        }
    }

    fn body(&mut self, id: Id, piece: Body<'_>) {
        match piece {
            Body::Range(range) => self.append(id, &self.bytes[range]),
            Body::Kept(bytes, _) => self.append(id, bytes),
            Body::Missing(_) => self.to.given_up += 1,
        }
    }

    fn room(&mut self, id: Id, max: usize, fill: &mut dyn FnMut(&mut [u8]) -> usize) {
        let mut room = [0; ROOM_BYTES];
        let made = fill(&mut room[..max.min(ROOM_BYTES)]);
        self.append(id, &room[..made]);
    }

    fn frame(&mut self, id: Id, bytes: &[u8]) {
        self.end_frame(id, bytes);
    }

    fn lost(&mut self, _id: Id, what: &'static str) {
        self.to.given_up += 1;
        self.to.unseen |= what == UNSEEN;
    }

    fn count(&mut self, _what: &'static str, times: u64) {
        self.to.given_up += times;
    }

    fn end(&mut self, id: Id, _how: How) {
        self.end_frame(id, &[]);
        self.open.retain(|message| message.exchange != id.exchange);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::names::Number;

    /// Feeds bytes of a client in pieces of `size` bytes; returns the payloads that rules inspect.
    fn payloads(bytes: &[u8], size: usize) -> Vec<Vec<u8>> {
        let (mut connection, mut to) = (Connection::default(), Transactions::default());
        for bytes in bytes.chunks(size) {
            connection.feed(Side::Client, Run { bytes, time: 0 }, 0, &mut to);
        }
        let changed = std::mem::take(&mut to.changed);
        let payload = |id| to.find(id).unwrap().first(Buffer::WEBSOCKET_PAYLOAD, true).unwrap().to_vec();
        changed.iter().map(|(id, _)| payload(*id)).collect()
    }

    #[test]
    fn the_last_frame_of_a_message_has_all_of_it() {
        let bytes = b"\x01\x04one \x89\x84\0\0\0\0ping\x80\x03two\x81\x04next";
        for size in [1, 5, 100] {
            assert_eq!(payloads(bytes, size), [&b"one "[..], b"ping", b"one two", b"next"], "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_too_long_is_cut() {
        let header = [0x82, 0x7f, 0, 0, 0, 0, 0, 3, 0, 0];
        let bytes = [&header[..], &[7; 3 << 16], &[0x81, 1, b'x']].concat();
        let found = payloads(&bytes, 5000);
        assert_eq!((found.len(), found[0].len(), &found[1][..]), (2, RULES_BODY_BYTES, &b"x"[..]));
    }

    /// Rules on what a frame is match before its contents are there, of which there may be many.
    #[test]
    fn a_frame_shows_itself_before_its_contents() {
        let (mut connection, mut to) = (Connection::default(), Transactions::default());
        let mut feed = |bytes: &[u8], gap, to: &mut Transactions| {
            connection.feed(Side::Server, Run { bytes, time: 0 }, gap, to);
        };
        feed(b"\x82\x04ev", 0, &mut to);
        let one = to.find(to.changed[0].0).unwrap();
        assert_eq!(one.numbers(Number::WEBSOCKET_OPCODE, false).collect::<Vec<_>>(), [2]);
        assert_eq!((one.first(Buffer::WEBSOCKET_PAYLOAD, false), one.complete), (None, [false; 2]));
        // What comes before a gap that ends the reading is inspected, too.
        feed(b"", 3, &mut to);
        let one = to.find(to.changed[0].0).unwrap();
        assert_eq!(one.first(Buffer::WEBSOCKET_PAYLOAD, false), Some(&b"ev"[..]));
        assert_eq!((one.complete, to.given_up, to.unseen), ([true; 2], 1, false));
        feed(b"\x82\x04evil", 0, &mut to);
        assert_eq!(to.changed.len(), 1);
    }
}
