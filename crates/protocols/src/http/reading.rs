//! Other readings of a message, for rules: where clients disagree about a head, each of them takes other bytes for the
//! body. The filter `http` gives one body; a rule holds if it holds for the body of any client.
//!
//! A reading sees the same bytes as [`Body`](super::body::Body), from the end of the head to the end of that body. It does
//! not keep them.

use super::Fact;
use super::chunks::{Chunks, Next};
use super::coded::Coded;
use super::framing::Framing;
use super::head::{Coding, Codings, Head, says};
use super::shared::Shared;
use super::start::StartLine;
use crate::conversation::{Ear, Id};
use base::limits::{HTTP_READINGS, RULES_BODY_BYTES};
use memchr::memmem;

/// Bytes of a head that ends later than that of `http`.
const LATE_HEAD_BYTES: usize = 16 << 10;

/// How one kind of client reads a body.
#[derive(Debug)]
pub struct Reading {
    /// The head so far, if this reading's head goes on.
    head: Option<Vec<u8>>,
    framing: Framing,
    /// Codings in the order in which they are undone, until the first byte.
    codings: Vec<Coding>,
    coded: Option<Coded>,
    /// Bytes still given.
    left: usize,
}

/// The readings of one message besides that of `http`, each once.
#[derive(Debug, Default)]
pub struct Readings {
    list: Vec<Reading>,
    /// The number of the one whose body begins in the head, and where.
    early: Option<(usize, usize)>,
    /// Memory charged for them.
    charged: usize,
}

impl Readings {
    /// The readings of a message with this head, of which `http` reads `own`. `text` is the head.
    pub fn of(head: &Head<'_>, text: &[u8], own: Framing) -> Readings {
        let is_response = matches!(head.start, StartLine::Response { .. });
        let mut readings = Readings::default();
        let mut framings = vec![own];
        if head.doubts_chunks() {
            framings.push(Framing::unchunked(head, !is_response));
        } else if !head.chunked && says(text, b"chunked") {
            framings.push(Framing::Chunked(Chunks::START));
        }
        let mut codings = undone(&head.transfer, &head.content);
        let mut chains = vec![codings.clone()];
        if let Some(at) = codings.iter().position(|coding| *coding == Coding::Lzma) {
            codings.truncate(at);
            chains.insert(0, codings.clone());
        }
        if head.odd_content || !head.transfer.list().is_empty() {
            chains.push(Vec::new());
            chains.push(undone(&Codings::default(), &head.content));
            let known = head.content.list().iter().chain(head.transfer.list()).flatten();
            chains.extend(known.filter(|coding| **coding != Coding::Unknown).map(|coding| vec![*coding]));
            chains.push(codings.iter().rev().copied().collect());
        } else if is_response && codings.is_empty() {
            let named = [(&b"gzip"[..], Coding::Gzip), (b"deflate", Coding::Deflate)];
            chains.extend(named.into_iter().filter(|(word, _)| says(text, word)).map(|(_, coding)| vec![coding]));
        }
        // A client is odd in one way, rather than in two.
        chains.iter().skip(1).for_each(|chain| readings.add(own, chain));
        framings.iter().skip(1).for_each(|framing| chains.iter().for_each(|chain| readings.add(*framing, chain)));
        readings.list.retain(|reading| reading.framing != own || reading.codings != codings);
        readings.add_ends(text, is_response);
        readings
    }

    /// The readings of a message whose framing is clear: of a client that knows LZMA.
    pub fn of_codings(head: &Head<'_>, own: Framing) -> Readings {
        let (codings, mut readings) = (undone(&Codings::default(), &head.content), Readings::default());
        if codings.contains(&Coding::Lzma) {
            readings.add(own, &codings);
        }
        readings
    }

    /// Adds readings of clients whose heads end elsewhere: before a line of one CR, or not at a line of one blank.
    fn add_ends(&mut self, text: &[u8], is_response: bool) {
        const CR_LINE: &[u8] = b"\n\r\r\n";
        if let Some(at) = memmem::find(text, CR_LINE)
            && let Some(head) = Head::parse(&text[..at])
        {
            self.early = Some((self.list.len(), at + CR_LINE.len()));
            let codings = undone(&head.transfer, &head.content);
            self.list.push(Reading::new(Framing::of(&head, !is_response), &codings));
        }
        let goes_on = text.ends_with(b"\n \n") || text.ends_with(b"\n\t\n");
        if goes_on && text.len() < LATE_HEAD_BYTES {
            self.list.push(Reading { head: Some(text.to_vec()), ..Reading::new(Framing::Close, &[]) });
        }
    }

    /// Reads the part of a head that is the body of a reading.
    pub fn take_head(&mut self, text: &[u8], id: Id, shared: &mut Shared, ear: &mut impl Ear<Fact>) {
        if let Some((number, from)) = self.early {
            self.list[number].take((number, id), &text[from..], &mut self.charged, shared, ear);
        }
    }

    /// Adds a reading, unless there is one like it.
    pub fn add(&mut self, framing: Framing, codings: &[Coding]) {
        let like = |other: &Reading| other.framing == framing && other.codings == codings;
        if framing != Framing::None && self.list.len() < HTTP_READINGS && !self.list.iter().any(like) {
            self.list.push(Reading::new(framing, codings));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether one of them may read further bytes.
    pub fn go_on(&self) -> bool {
        self.list.iter().any(|reading| reading.framing != Framing::None)
    }

    /// Reads bytes of the message.
    pub fn take(&mut self, bytes: &[u8], id: Id, shared: &mut Shared, ear: &mut impl Ear<Fact>) {
        for (number, reading) in self.list.iter_mut().enumerate() {
            reading.take((number, id), bytes, &mut self.charged, shared, ear);
        }
    }

    /// Gives back what was charged for them.
    pub fn end(self, shared: &mut Shared) {
        shared.give_back(self.charged);
    }
}

impl Reading {
    fn new(framing: Framing, codings: &[Coding]) -> Reading {
        Reading { head: None, framing, codings: codings.to_vec(), coded: None, left: RULES_BODY_BYTES }
    }

    /// Reads on in its head; returns how many bytes belong to that.
    fn take_head(&mut self, bytes: &[u8]) -> usize {
        let Some(head) = &mut self.head else { return 0 };
        let before = head.len();
        head.extend_from_slice(&bytes[..bytes.len().min(LATE_HEAD_BYTES.saturating_sub(before))]);
        // No end is in the bytes that were there before, but the end may begin in the last two of them.
        let from = before.saturating_sub(2);
        let ends =
            [&b"\n\r\n"[..], b"\n\n"].map(|end| memmem::find(&head[from..], end).map(|at| from + at + end.len()));
        let Some(end) = ends.into_iter().flatten().min() else {
            if head.len() >= LATE_HEAD_BYTES {
                self.framing = Framing::None;
            }
            return bytes.len();
        };
        if let Some(head) = Head::parse(&head[..end]) {
            let is_request = matches!(head.start, StartLine::Request { .. });
            (self.framing, self.codings) = (Framing::of(&head, is_request), undone(&head.transfer, &head.content));
        }
        self.head = None;
        end - before
    }

    fn take(
        &mut self,
        to: (usize, Id),
        mut bytes: &[u8],
        charged: &mut usize,
        shared: &mut Shared,
        ear: &mut impl Ear<Fact>,
    ) {
        bytes = &bytes[self.take_head(bytes)..];
        while !bytes.is_empty() {
            let (skip, most) = match &mut self.framing {
                Framing::None => return,
                Framing::Close => (0, u64::MAX),
                Framing::Length(left) => (0, *left),
                Framing::Chunked(chunks) => match chunks.next(bytes) {
                    Next::Framing(_) => return,
                    Next::Data(used) => (used, chunks.data_left()),
                    Next::End(_) | Next::Broken(_) => return self.framing = Framing::None,
                },
            };
            bytes = &bytes[skip..];
            let (data, rest) = bytes.split_at(bytes.len().min(usize::try_from(most).unwrap_or(usize::MAX)));
            self.data(to, data, charged, shared, ear);
            bytes = rest;
            if self.left == 0 {
                self.framing = Framing::None;
            }
            match &mut self.framing {
                Framing::Length(left) if *left <= data.len() as u64 => self.framing = Framing::None,
                Framing::Length(left) => *left -= data.len() as u64,
                Framing::Chunked(chunks) => chunks.took(data.len() as u64),
                Framing::None | Framing::Close => {}
            }
        }
    }

    /// Gives bytes of the body, decoded.
    fn data(
        &mut self,
        (number, id): (usize, Id),
        data: &[u8],
        charged: &mut usize,
        shared: &mut Shared,
        ear: &mut impl Ear<Fact>,
    ) {
        if let Some(first) = data.first()
            && !self.codings.is_empty()
        {
            let coded = Coded::of(&std::mem::take(&mut self.codings), *first, RULES_BODY_BYTES);
            if !shared.charge(coded.bytes()) {
                ear.lost(id, "bodies not decoded for want of memory");
                return self.left = 0;
            }
            *charged += coded.bytes();
            self.coded = Some(coded);
        }
        let left = &mut self.left;
        let mut give = |bytes: &[u8]| {
            let bytes = &bytes[..bytes.len().min(*left)];
            *left -= bytes.len();
            ear.reading(id, number, bytes);
        };
        match &mut self.coded {
            Some(coded) => {
                if !coded.take(data, give) {
                    self.left = 0;
                }
            }
            None => give(data),
        }
    }
}

/// The codings of a head in the order in which they are undone; those before an unknown one are left.
pub fn undone(transfer: &Codings, content: &Codings) -> Vec<Coding> {
    let outermost_first = transfer.list().iter().rev().chain(content.list().iter().rev()).flatten();
    outermost_first.copied().take_while(|coding| *coding != Coding::Unknown).collect()
}
