//! Both sides of a WebSocket. A message is an exchange, whatever number of frames it has; a control frame is a message.
//!
//! The conversation copies no contents that have neither mask nor coding. It unmasks and decodes others into the ear's room.

use super::{COMPRESSED, Fact, Header};
use crate::carry::Carried;
use crate::conversation::{Body, Ear, Fed, How, Id, Run, Side};
use crate::http::decode::Spent;
use base::limits::{DECODED_BLOCK_BYTES, INFLATE_BYTES};
use flate2::{Decompress, FlushDecompress, Status};

/// Most bytes kept of a frame for an ear that wants frames.
const FRAME_BYTES: usize = 100 << 10;
/// Most bytes that the messages of a side may give for each of their coded bytes, beyond [`FREE_BYTES`].
const MAX_RATIO: u64 = 100;
/// Bytes that the messages of a side may give before this counts.
const FREE_BYTES: u64 = 1 << 20;
/// Bytes that are freed from their mask at once, before they are decoded.
const UNMASKED_BYTES: usize = 4 << 10;
/// The bytes that the sender removes from the end of a compressed message (RFC 7692, 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// Most bytes kept of one connection.
pub const KEPT_BYTES: usize = 2 * (2 * Header::MOST_BYTES + FRAME_BYTES + INFLATE_BYTES);

/// Names of losses. A message is not decoded, since it refers to bytes that are missing or damaged.
pub const UNSEEN: &str = "websocket messages that cannot be decoded";
const LOST: &str = "websocket directions lost to a gap";
const NO_ROOM: &str = "websocket bytes not read for want of memory";
const TOO_LARGE: &str = "websocket messages that grow too large";

/// A connection, from behind the handshake on (RFC 6455, 4).
#[derive(Debug, Default)]
pub struct Conversation {
    sides: [Half; 2],
    /// Messages so far.
    messages: u64,
}

#[derive(Debug, Default)]
struct Half {
    phase: Phase,
    /// The start of a header.
    head: Vec<u8>,
    /// The message whose last frame has not come.
    open: Option<Message>,
    inflate: Inflate,
    /// Memory that is counted for `inflate`.
    counted: usize,
    /// Coded bytes and those that came of them.
    spent: Spent,
    /// The decoder may have more to give.
    is_pending: bool,
    /// The current frame, if the ear wants frames.
    frame: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    #[default]
    Header,
    /// Contents of a frame of this message: how many bytes of them are left.
    Contents(Header, Id, u64),
    /// The end of a compressed message: how many bytes of [`TAIL`] were decoded.
    Tail(Id, usize),
    /// Where a frame begins is unknown.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    exchange: u64,
    is_compressed: bool,
    /// Why the rest of it is not told.
    cut: Option<How>,
}

/// The decoder, which goes on from message to message.
#[derive(Debug, Default)]
enum Inflate {
    #[default]
    Fresh,
    Open(Box<Decompress>),
    /// Bytes are missing or damaged, so later messages cannot be decoded.
    Lost,
}

/// What a call needs.
struct Talk<'a, E> {
    side: Side,
    kept: &'a Carried,
    ear: &'a mut E,
}

impl Conversation {
    /// Reads the next bytes of a side, from `offset` on.
    pub fn feed(
        &mut self,
        side: Side,
        run: Run<'_>,
        mut offset: usize,
        kept: &Carried,
        ear: &mut impl Ear<Fact>,
    ) -> Fed {
        let half = &mut self.sides[side.index()];
        let mut talk = Talk { side, kept, ear };
        while !half.is_read(offset, run.bytes.len()) {
            offset += half.step(run.bytes, offset, &mut self.messages, &mut talk);
            if talk.ear.is_full() {
                return Fed::Full { used: offset };
            }
        }
        if let Phase::Lost = half.phase { Fed::NotMine } else { Fed::Mine }
    }

    /// `missing` bytes of a side are missing before its next run. Those of contents are missing in the message; behind
    /// others nothing more is read of the side, since frames have no mark by which the next one is found.
    pub fn gap(&mut self, side: Side, missing: u32, kept: &Carried, ear: &mut impl Ear<Fact>) {
        let half = &mut self.sides[side.index()];
        let mut talk = Talk { side, kept, ear };
        match half.phase {
            Phase::Lost => {}
            _ if missing == 0 => {}
            Phase::Contents(header, id, left) if u64::from(missing) <= left => {
                half.phase = Phase::Contents(header, id, left - u64::from(missing));
                if half.is_compressed(header) {
                    half.give_up(How::Gap, &mut talk);
                } else if !half.is_cut(header) {
                    talk.ear.body(id, Body::Missing(missing));
                }
                half.settle(header, id, &mut talk);
            }
            _ => {
                talk.ear.lost(Id { exchange: self.messages, side }, LOST);
                half.end(How::Gap, &mut talk);
            }
        }
    }

    /// Nothing more comes.
    pub fn end(&mut self, kept: &Carried, ear: &mut impl Ear<Fact>) {
        for side in [Side::Client, Side::Server] {
            self.sides[side.index()].end(How::Cut, &mut Talk { side, kept, ear });
        }
    }
}

impl Half {
    /// Whether the side has read all of these bytes.
    fn is_read(&self, offset: usize, len: usize) -> bool {
        match self.phase {
            Phase::Lost => true,
            Phase::Tail(..) => false,
            Phase::Contents(_, _, left) => left > 0 && offset >= len && !self.is_pending,
            Phase::Header => offset >= len,
        }
    }

    /// Reads some of the bytes; returns how many.
    fn step(&mut self, bytes: &[u8], offset: usize, messages: &mut u64, talk: &mut Talk<'_, impl Ear<Fact>>) -> usize {
        let rest = bytes.get(offset..).unwrap_or_default();
        match self.phase {
            Phase::Lost => rest.len(),
            Phase::Header => self.header(rest, messages, talk),
            Phase::Contents(header, id, left) => {
                let most = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let used = self.contents(&header, id, &rest[..most], (offset, header.length - left), talk);
                self.keep_frame(&rest[..used], talk);
                self.phase = Phase::Contents(header, id, left - used as u64);
                self.settle(header, id, talk);
                used
            }
            Phase::Tail(id, done) => {
                let used = self.decode(id, &TAIL[done..], talk);
                self.phase = Phase::Tail(id, done + used);
                if done + used == TAIL.len() && !self.is_pending {
                    self.end_message(id, talk);
                }
                0
            }
        }
    }

    /// Reads a header or the start of one; returns how many bytes it took.
    fn header(&mut self, rest: &[u8], messages: &mut u64, talk: &mut Talk<'_, impl Ear<Fact>>) -> usize {
        let had = self.head.len();
        let taken = rest.len().min(Header::MOST_BYTES - had);
        if !talk.kept.keep(&mut self.head, &rest[..taken]) {
            talk.ear.lost(Id { exchange: *messages, side: talk.side }, NO_ROOM);
            self.end(How::Limit, talk);
            return rest.len();
        }
        let Some(header) = Header::parse(&self.head) else { return taken };
        let id = self.begin(&header, messages, talk);
        let mut head = std::mem::take(&mut self.head);
        self.keep_frame(&head[..header.bytes], talk);
        talk.kept.clear(&mut head);
        self.phase = Phase::Contents(header, id, header.length);
        self.settle(header, id, talk);
        header.bytes - had
    }

    /// A frame begins, and with it a message unless one goes on.
    fn begin(&mut self, header: &Header, messages: &mut u64, talk: &mut Talk<'_, impl Ear<Fact>>) -> Id {
        let goes_on = self.open.filter(|_| !header.is_control());
        let exchange = goes_on.map_or(*messages, |message| message.exchange);
        let id = Id { exchange, side: talk.side };
        if goes_on.is_none() {
            *messages += 1;
            talk.ear.begin(id);
        }
        talk.ear.number(id, Fact::Opcode, header.opcode.into());
        talk.ear.number(id, Fact::Flags, header.flags.into());
        if let Some(mask) = header.mask {
            talk.ear.number(id, Fact::Mask, u32::from_be_bytes(mask).into());
        }
        if goes_on.is_some() {
            return id;
        }
        let is_compressed = header.flags & COMPRESSED != 0 && !header.is_control();
        if is_compressed {
            talk.ear.fact(id, Fact::Coding, b"deflate");
        }
        talk.ear.head_done(id);
        if !header.is_control() {
            self.open = Some(Message { exchange, is_compressed, cut: None });
        }
        if is_compressed {
            self.prepare(talk);
        }
        id
    }

    /// Makes a decoder, if there is none.
    fn prepare(&mut self, talk: &mut Talk<'_, impl Ear<Fact>>) {
        match self.inflate {
            Inflate::Fresh if talk.kept.recount(&mut self.counted, INFLATE_BYTES) => {
                self.inflate = Inflate::Open(Box::new(Decompress::new(false)));
            }
            Inflate::Open(_) => {}
            Inflate::Fresh | Inflate::Lost => self.give_up(How::Cut, talk),
        }
    }

    /// Whether this frame's message is compressed.
    fn is_compressed(&self, header: Header) -> bool {
        !header.is_control() && self.open.is_some_and(|message| message.is_compressed)
    }

    /// Whether the rest of this frame's message is not told.
    fn is_cut(&self, header: Header) -> bool {
        !header.is_control() && self.open.is_some_and(|message| message.cut.is_some())
    }

    /// Nothing more is told of the current message, nor of compressed ones behind it.
    fn give_up(&mut self, how: How, talk: &mut Talk<'_, impl Ear<Fact>>) {
        let Some(message) = self.open.as_mut().filter(|message| message.cut.is_none()) else { return };
        message.cut = Some(how);
        match how {
            How::Limit => talk.ear.count(TOO_LARGE, 1),
            _ => talk.ear.lost(Id { exchange: message.exchange, side: talk.side }, UNSEEN),
        }
        (self.inflate, self.is_pending) = (Inflate::Lost, false);
        _ = talk.kept.recount(&mut self.counted, 0);
    }

    /// Tells contents, which stand at `at` in the run and at `place` in the frame. Returns how many bytes it took.
    fn contents(
        &mut self,
        header: &Header,
        id: Id,
        bytes: &[u8],
        (at, place): (usize, u64),
        talk: &mut Talk<'_, impl Ear<Fact>>,
    ) -> usize {
        if self.is_cut(*header) {
            return bytes.len();
        }
        if self.is_compressed(*header) {
            let mut space = [0; UNMASKED_BYTES];
            let space = &mut space[..bytes.len().min(UNMASKED_BYTES)];
            header.unmask_copy(place, bytes, space);
            return self.decode(id, space, talk);
        }
        if header.mask.is_none() {
            if !bytes.is_empty() {
                talk.ear.body(id, Body::Range(at..at + bytes.len()));
            }
            return bytes.len();
        }
        let mut used = 0;
        talk.ear.room(id, bytes.len().min(DECODED_BLOCK_BYTES), &mut |space| {
            used = space.len().min(bytes.len());
            header.unmask_copy(place, bytes, &mut space[..used]);
            used
        });
        if used == 0 && !bytes.is_empty() {
            talk.ear.lost(id, NO_ROOM);
            return bytes.len();
        }
        used
    }

    /// Decodes some of these bytes into the ear's room. Returns how many were read.
    fn decode(&mut self, id: Id, coded: &[u8], talk: &mut Talk<'_, impl Ear<Fact>>) -> usize {
        let Inflate::Open(inflate) = &mut self.inflate else { return coded.len() };
        let budget = self.spent.left(FREE_BYTES, MAX_RATIO, coded.len());
        let most = DECODED_BLOCK_BYTES.min(usize::try_from(budget).unwrap_or(usize::MAX));
        let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
        let (mut result, mut is_full) = (Ok(Status::Ok), false);
        if most > 0 {
            talk.ear.room(id, most, &mut |space| {
                result = inflate.decompress(coded, space, FlushDecompress::Sync);
                let made = (inflate.total_out() - before_out) as usize;
                is_full = made == space.len();
                made
            });
        }
        let (used, made) = ((inflate.total_in() - before_in) as usize, inflate.total_out() - before_out);
        self.spent.add(used, made);
        self.is_pending = is_full;
        match result {
            _ if most == 0 => {
                self.give_up(How::Limit, talk);
                coded.len()
            }
            // The message ends the coded stream: the next byte begins another one.
            Ok(Status::StreamEnd) => {
                inflate.reset(false);
                self.is_pending = false;
                used
            }
            Ok(_) if used > 0 || made > 0 || coded.is_empty() => used,
            Ok(_) | Err(_) => {
                self.give_up(How::Cut, talk);
                coded.len()
            }
        }
    }

    /// Goes on behind contents that are complete.
    fn settle(&mut self, header: Header, id: Id, talk: &mut Talk<'_, impl Ear<Fact>>) {
        let Phase::Contents(_, _, 0) = self.phase else { return };
        if self.is_pending {
            return;
        }
        self.phase = Phase::Header;
        if header.is_control() {
            self.end_frame(id, talk);
            end(id, How::Complete, talk);
        } else if !header.is_last() {
            self.end_frame(id, talk);
        } else if self.is_compressed(header) && !self.is_cut(header) {
            self.phase = Phase::Tail(id, 0);
        } else {
            self.end_message(id, talk);
        }
    }

    fn end_message(&mut self, id: Id, talk: &mut Talk<'_, impl Ear<Fact>>) {
        self.phase = Phase::Header;
        self.end_frame(id, talk);
        let message = self.open.take();
        end(id, message.and_then(|message| message.cut).unwrap_or(How::Complete), talk);
    }

    fn end_frame(&mut self, id: Id, talk: &mut Talk<'_, impl Ear<Fact>>) {
        if talk.ear.wants().frames {
            talk.ear.frame(id, &self.frame);
            talk.kept.clear(&mut self.frame);
        }
    }

    /// Keeps bytes of the frame, if the ear wants frames.
    fn keep_frame(&mut self, bytes: &[u8], talk: &mut Talk<'_, impl Ear<Fact>>) {
        if talk.ear.wants().frames {
            let room = (Header::MOST_BYTES + FRAME_BYTES).saturating_sub(self.frame.len());
            // The ear hears less of the frame if there is no memory.
            _ = talk.kept.keep(&mut self.frame, &bytes[..bytes.len().min(room)]);
        }
    }

    /// Ends what is open, and reads no more.
    fn end(&mut self, how: How, talk: &mut Talk<'_, impl Ear<Fact>>) {
        let control = match self.phase {
            Phase::Contents(header, id, _) if header.is_control() => Some(id),
            _ => None,
        };
        let message = self.open.take().map(|message| Id { exchange: message.exchange, side: talk.side });
        control.into_iter().chain(message).for_each(|id| end(id, how, talk));
        (self.phase, self.inflate, self.is_pending) = (Phase::Lost, Inflate::Lost, false);
        talk.kept.clear(&mut self.head);
        talk.kept.clear(&mut self.frame);
        _ = talk.kept.recount(&mut self.counted, 0);
    }
}

fn end(id: Id, how: How, talk: &mut Talk<'_, impl Ear<Fact>>) {
    talk.ear.end(id, how);
    talk.ear.over(id.exchange);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Wants;
    use flate2::{Compress, Compression, FlushCompress};
    use proptest::prelude::*;

    /// Notes messages: facts, contents and ends, in words.
    #[derive(Debug, Default)]
    struct Listener {
        said: Vec<String>,
        bytes: Vec<u8>,
        /// Contents of each exchange.
        contents: std::collections::BTreeMap<u64, Vec<u8>>,
        frames: bool,
    }

    impl Ear<Fact> for Listener {
        fn wants(&self) -> Wants {
            Wants { frames: self.frames, ..Wants::default() }
        }

        fn fact(&mut self, _id: Id, fact: Fact, _value: &[u8]) {
            self.said.push(format!("{fact:?}"));
        }

        fn number(&mut self, _id: Id, fact: Fact, value: u64) {
            if fact == Fact::Opcode {
                self.said.push(format!("frame {value}"));
            }
        }

        fn body(&mut self, id: Id, piece: Body<'_>) {
            match piece {
                Body::Range(range) => self.contents.entry(id.exchange).or_default().extend(&self.bytes[range]),
                Body::Kept(..) => panic!("contents are in the run or in the room"),
                Body::Missing(count) => self.said.push(format!("missing {count}")),
            }
        }

        fn room(&mut self, id: Id, max: usize, fill: &mut dyn FnMut(&mut [u8]) -> usize) {
            let mut room = vec![0; max.min(1000)];
            let made = fill(&mut room);
            self.contents.entry(id.exchange).or_default().extend(&room[..made]);
        }

        fn frame(&mut self, _id: Id, bytes: &[u8]) {
            self.said.push(format!("{} bytes", bytes.len()));
        }

        fn lost(&mut self, _id: Id, what: &'static str) {
            self.said.push(format!("lost {what}"));
        }

        fn count(&mut self, what: &'static str, _times: u64) {
            self.said.push(what.into());
        }

        fn end(&mut self, id: Id, how: How) {
            let contents = self.contents.remove(&id.exchange).unwrap_or_default();
            self.said.push(match contents.len() {
                0..100 => format!("{:?} {how:?}", String::from_utf8_lossy(&contents)),
                length => format!("{length} {how:?}"),
            });
        }
    }

    /// A frame of a client.
    fn frame(first: u8, contents: &[u8]) -> Vec<u8> {
        let masked = contents.iter().zip([1, 2, 3, 4].into_iter().cycle()).map(|(byte, mask)| byte ^ mask);
        [first, 0x80 | contents.len() as u8, 1, 2, 3, 4].into_iter().chain(masked).collect()
    }

    fn long(first: u8, contents: &[u8]) -> Vec<u8> {
        [&[first, 0x7f][..], &(contents.len() as u64).to_be_bytes(), contents].concat()
    }

    /// What is said of these bytes, with `gap` bytes missing behind the first ones.
    fn said_of(bytes: &[u8], size: usize, ear: Listener, gap: Option<(usize, u32)>) -> Vec<String> {
        let (mut conversation, kept, mut ear) = (Conversation::default(), Carried::new(KEPT_BYTES), ear);
        let (before, behind) = bytes.split_at(gap.map_or(bytes.len(), |gap| gap.0));
        for (part, gap) in [(before, 0), (behind, gap.map_or(0, |gap| gap.1))] {
            conversation.gap(Side::Client, gap, &kept, &mut ear);
            for bytes in part.chunks(size) {
                ear.bytes = bytes.to_vec();
                conversation.feed(Side::Client, Run { bytes, time: 0 }, 0, &kept, &mut ear);
            }
        }
        conversation.end(&kept, &mut ear);
        assert_eq!(kept.bytes(), 0);
        ear.said
    }

    fn check(bytes: &[u8], expected: &[&str]) {
        for size in [1, 5, usize::MAX] {
            assert_eq!(said_of(bytes, size, Listener::default(), None), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn messages_of_several_frames_with_control_frames_in_between() {
        let bytes = [frame(0x01, b"one "), frame(0x89, b"ping"), frame(0x80, b"two"), b"\x82\x02ok".to_vec()].concat();
        let said = ["frame 1", "frame 9", r#""ping" Complete"#, "frame 0", r#""one two" Complete"#];
        check(&bytes, &[&said[..], &["frame 2", r#""ok" Complete"#]].concat());
        check(&bytes[..bytes.len() - 1], &[&said[..], &["frame 2", r#""o" Cut"#]].concat());
        check(b"\x89\0\x88\0", &["frame 9", r#""" Complete"#, "frame 8", r#""" Complete"#]);
    }

    fn deflated(compress: &mut Compress, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(20_000);
        compress.compress_vec(text, &mut out, FlushCompress::Sync).unwrap();
        out.truncate(out.len() - TAIL.len());
        out
    }

    #[test]
    fn compressed_messages_refer_to_those_before() {
        let mut compress = Compress::new(Compression::best(), false);
        let text = b"a text that comes twice, a text that comes twice";
        let [one, other] = [(); 2].map(|()| deflated(&mut compress, text));
        let (start, rest) = other.split_at(2);
        let bytes = [frame(0xc1, &one), frame(0x41, start), frame(0x80, rest)].concat();
        let end = format!("{:?} Complete", String::from_utf8_lossy(text));
        check(&bytes, &["frame 1", "Coding", &end, "frame 1", "Coding", "frame 0", &end]);
        let lost = "lost websocket messages that cannot be decoded";
        // Without a byte of the first one, neither can be decoded.
        let said = said_of(&[&bytes[..10], &bytes[11..]].concat(), usize::MAX, Listener::default(), Some((10, 1)));
        let behind = ["frame 1", "Coding", lost, "frame 0", r#""" Cut"#];
        assert_eq!((said[2].as_str(), &said[4..]), (lost, &behind.map(String::from)[..]));
    }

    /// A message that inflates without end is cut, and those behind it cannot be decoded.
    #[test]
    fn a_bomb_ends_decoding() {
        let mut compress = Compress::new(Compression::best(), false);
        let bomb = deflated(&mut compress, &vec![b'a'; 5 << 18]);
        let bytes = [long(0xc2, &bomb), frame(0xc1, &deflated(&mut compress, b"evil")), b"\x81\x01x".to_vec()].concat();
        let made = FREE_BYTES + MAX_RATIO * bomb.len() as u64;
        let said = said_of(&bytes, usize::MAX, Listener::default(), None);
        let lost = "lost websocket messages that cannot be decoded";
        let behind = ["frame 1", "Coding", lost, r#""" Cut"#, "frame 1", r#""x" Complete"#];
        assert_eq!(said[..4], ["frame 2", "Coding", TOO_LARGE, &format!("{made} Limit")]);
        assert_eq!(said[4..], behind);
    }

    #[test]
    fn gaps() {
        let bytes = [b"\x81\x0612".to_vec(), b"56\x81\x01x".to_vec()].concat();
        let said = |at, gap| said_of(&bytes, usize::MAX, Listener::default(), Some((at, gap)));
        assert_eq!(said(4, 2), ["frame 1", "missing 2", r#""1256" Complete"#, "frame 1", r#""x" Complete"#]);
        assert_eq!(said(4, 5), ["frame 1", "lost websocket directions lost to a gap", r#""12" Gap"#]);
        assert_eq!(said(1, 1), ["lost websocket directions lost to a gap"]);
    }

    #[test]
    fn frames_are_kept_up_to_a_limit() {
        let bytes = [long(0x02, &[7; 2 * FRAME_BYTES]), frame(0x80, b"x")].concat();
        for size in [5000, usize::MAX] {
            let said = said_of(&bytes, size, Listener { frames: true, ..Listener::default() }, None);
            let most = format!("{} bytes", Header::MOST_BYTES + FRAME_BYTES);
            assert_eq!(said, ["frame 2", &most, "frame 0", "7 bytes", &format!("{} Complete", 2 * FRAME_BYTES + 1)]);
        }
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), size in 1usize..50, frames: bool,
            gap in proptest::option::of((0usize..200, 1u32..100))) {
            let gap = gap.map(|(at, gap)| (at.min(bytes.len()), gap));
            said_of(&bytes, size, Listener { frames, ..Listener::default() }, gap);
        }
    }
}
