//! WebSockets for rules (RFC 6455), behind their HTTP request: each frame is a transaction. The last frame of a message
//! has the contents of the whole message, decompressed if compressed (RFC 7692).

use super::transactions::Transactions;
use base::limits::{INFLATE_BYTES, RULES_BODY_BYTES};
use flate2::{Decompress, FlushDecompress, Status};
use protocols::websocket::{COMPRESSED, Header};
use rules::names::{App, Buffer, Number};

/// Most bytes decompressed beyond those that rules inspect: the next message refers back to them.
const READ_OVER_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Connection {
    sides: [Side; 2],
}

#[derive(Debug, Default)]
struct Side {
    bytes: Vec<u8>,
    /// Frame bytes beyond the limit, left to skip.
    skip: u64,
    /// A message whose last frame has not arrived.
    message: Option<Message>,
    inflate: Inflate,
    lost: bool,
}

#[derive(Debug)]
struct Message {
    contents: Vec<u8>,
    is_compressed: bool,
    /// Some contents were dropped.
    is_cut: bool,
}

/// The decompression state between messages.
#[derive(Debug, Default)]
enum Inflate {
    /// No message was decompressed yet.
    #[default]
    Fresh,
    Open(Box<Decompress>),
    /// Bytes of a message are missing, so later ones cannot be decompressed.
    Lost,
}

impl Connection {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: bool, to: &mut Transactions) {
        let side = &mut self.sides[usize::from(!to_server)];
        if gap && !side.lost {
            to.given_up += 1;
            *side = Side { lost: true, ..Side::default() };
        }
        if side.lost {
            return;
        }
        let mut waiting = std::mem::take(&mut side.bytes);
        waiting.extend_from_slice(bytes);
        let mut used = 0;
        loop {
            let rest = &waiting[used..];
            let skipped = rest.len().min(usize::try_from(side.skip).unwrap_or(usize::MAX));
            side.skip -= skipped as u64;
            used += skipped;
            let rest = &waiting[used..];
            let Some(header) = Header::parse(rest) else { break };
            let taken = usize::try_from(header.length).unwrap_or(usize::MAX).min(RULES_BODY_BYTES);
            let Some(frame) = rest.get(..header.bytes + taken) else { break };
            side.skip = header.length - taken as u64;
            side.frame(&header, frame, to_server, to);
            used += frame.len();
        }
        waiting.drain(..used);
        side.bytes = waiting;
        to.reader_bytes = self.sides.iter().map(Side::kept_bytes).sum();
    }
}

impl Side {
    fn kept_bytes(&self) -> usize {
        let inflate = if let Inflate::Open(_) = self.inflate { INFLATE_BYTES } else { 0 };
        self.bytes.capacity() + self.message.as_ref().map_or(0, |message| message.contents.capacity()) + inflate
    }

    /// Handles a frame, complete or cut at the limit.
    fn frame(&mut self, header: &Header, frame: &[u8], to_server: bool, to: &mut Transactions) {
        let is_cut = self.skip > 0;
        to.given_up += u64::from(is_cut);
        let mut contents = frame[header.bytes..].to_vec();
        header.unmask(&mut contents);
        let payload = if header.is_control() { contents } else { self.contents(header, contents, is_cut, to) };
        let frames = to.frames;
        let one = to.begin(App::WebSocket);
        let id = one.id;
        one.complete = [true; 2];
        one.put_number(Number::WEBSOCKET_OPCODE, to_server, header.opcode.into());
        one.put_number(Number::WEBSOCKET_FLAGS, to_server, header.flags.into());
        if let Some(mask) = header.mask {
            one.put_number(Number::WEBSOCKET_MASK, to_server, u32::from_be_bytes(mask).into());
        }
        one.put_copy(Buffer::WEBSOCKET_PAYLOAD, to_server, &payload);
        if frames {
            one.put_copy(Buffer::FRAME_WEBSOCKET_HEADER, to_server, &frame[..header.bytes]);
            one.put_copy(Buffer::FRAME_WEBSOCKET_DATA, to_server, &frame[header.bytes..]);
            one.put_copy(Buffer::FRAME_WEBSOCKET_PDU, to_server, frame);
        }
        to.change(id, to_server);
    }

    /// What rules inspect of a data frame: its contents, or for the last frame those of the message.
    fn contents(&mut self, header: &Header, contents: Vec<u8>, is_cut: bool, to: &mut Transactions) -> Vec<u8> {
        let message = self.message.get_or_insert_with(|| Message {
            contents: Vec::new(),
            is_compressed: header.flags & COMPRESSED != 0,
            is_cut: false,
        });
        let room = RULES_BODY_BYTES - message.contents.len();
        let kept = contents.len().min(room);
        message.contents.extend_from_slice(&contents[..kept]);
        message.is_cut |= is_cut || kept < contents.len();
        if !header.is_last() {
            return contents;
        }
        let Some(message) = self.message.take() else { return contents };
        if !message.is_compressed {
            return message.contents;
        }
        match self.decompressed(message) {
            Some(contents) => contents,
            None => {
                to.given_up += 1;
                to.unseen = true;
                Vec::new()
            }
        }
    }

    fn decompressed(&mut self, mut message: Message) -> Option<Vec<u8>> {
        let mut inflate = match std::mem::replace(&mut self.inflate, Inflate::Lost) {
            Inflate::Fresh => Box::new(Decompress::new(false)),
            Inflate::Open(inflate) => inflate,
            Inflate::Lost => return None,
        };
        // The sender omits the empty block at the end (RFC 7692, 7.2.1).
        message.contents.extend_from_slice(&[0, 0, 0xff, 0xff]);
        let (mut input, mut out, mut over) = (&message.contents[..], Vec::new(), 0);
        let mut room = [0; 4096];
        loop {
            let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
            let status = inflate.decompress(input, &mut room, FlushDecompress::Sync);
            let used = (inflate.total_in() - before_in) as usize;
            let made = (inflate.total_out() - before_out) as usize;
            input = &input[used..];
            let kept = made.min(RULES_BODY_BYTES - out.len());
            out.extend_from_slice(&room[..kept]);
            over += made - kept;
            match status {
                // The message ends the compressed stream: the next one starts a new stream.
                Ok(Status::StreamEnd) => {
                    inflate.reset(false);
                    if input.is_empty() || used == 0 {
                        break;
                    }
                }
                Ok(_) if input.is_empty() && made < room.len() => break,
                Ok(_) | Err(_) if used + made == 0 => return (!out.is_empty()).then_some(out),
                Ok(_) => {}
                Err(_) => return (!out.is_empty()).then_some(out),
            }
            if over > READ_OVER_BYTES {
                return Some(out);
            }
        }
        if !message.is_cut {
            self.inflate = Inflate::Open(inflate);
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compress, Compression, FlushCompress};
    use proptest::prelude::*;

    fn frame(first: u8, contents: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let masked = contents.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
        [first, 0x80 | contents.len() as u8].into_iter().chain(mask).chain(masked).collect()
    }

    /// Feeds client frames in pieces of `size` bytes; returns what rules inspect.
    fn payloads(bytes: &[u8], size: usize) -> Vec<Vec<u8>> {
        let (mut connection, mut to) = (Connection::default(), Transactions::default());
        for piece in bytes.chunks(size) {
            connection.feed(piece, true, false, &mut to);
        }
        let changed = std::mem::take(&mut to.changed);
        changed
            .iter()
            .map(|(id, _)| to.find(*id).unwrap().first(Buffer::WEBSOCKET_PAYLOAD, true).unwrap().to_vec())
            .collect()
    }

    #[test]
    fn a_message_of_several_frames() {
        let bytes = [frame(0x01, b"one "), frame(0x89, b"ping"), frame(0x80, b"two"), frame(0x81, b"next")].concat();
        for size in [1, 5, 100] {
            assert_eq!(payloads(&bytes, size), [&b"one "[..], b"ping", b"one two", b"next"], "in pieces of {size}");
        }
    }

    #[test]
    fn compressed_messages_refer_to_those_before() {
        let mut compress = Compress::new(Compression::best(), false);
        let mut message = |text: &[u8]| {
            let mut out = Vec::with_capacity(200);
            compress.compress_vec(text, &mut out, FlushCompress::Sync).unwrap();
            out.truncate(out.len() - 4);
            frame(0xc1, &out)
        };
        let text = b"a text that comes twice, a text that comes twice";
        let bytes = [message(text), message(text)].concat();
        assert_eq!(payloads(&bytes, 9), [text, text]);
    }

    /// A message that inflates beyond what is read: the ones behind it cannot be decompressed.
    #[test]
    fn a_message_that_cannot_be_decompressed_is_unseen() {
        let mut compress = Compress::new(Compression::best(), false);
        let mut message = |text: &[u8]| {
            let mut out = Vec::with_capacity(20_000);
            compress.compress_vec(text, &mut out, FlushCompress::Sync).unwrap();
            out.truncate(out.len() - 4);
            [&[0xc2, 0x7e][..], &(out.len() as u16).to_be_bytes(), &out].concat()
        };
        let (bomb, next) = (message(&vec![b'a'; 2 * READ_OVER_BYTES]), message(b"evil"));
        let (mut connection, mut to) = (Connection::default(), Transactions::default());
        connection.feed(&bomb, true, false, &mut to);
        assert_eq!((to.given_up, to.unseen), (0, false));
        connection.feed(&next, true, false, &mut to);
        assert_eq!((to.given_up, to.unseen), (1, true));
    }

    #[test]
    fn what_is_too_long_is_cut() {
        let header = [0x82, 0x7f, 0, 0, 0, 0, 0, 3, 0, 0];
        let bytes = [&header[..], &[7; 3 << 16], &[0x81, 1, b'x']].concat();
        let found = payloads(&bytes, 5000);
        assert_eq!((found.len(), found[0].len(), &found[1][..]), (2, RULES_BODY_BYTES, &b"x"[..]));
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), size in 1usize..50) {
            payloads(&bytes, size);
        }
    }
}
