//! A mail (RFC 5322) as it comes: its head becomes facts, and its body waits for them. An ear that wants parts hears
//! the files in it, too.

use super::Fact;
use crate::carry::Carried;
use crate::conversation::{Body, Ear, How, Id};
use crate::mime::{Found, Mime};

/// Most bytes of a mail that wait for the end of its head; what the head says behind them is no fact.
pub(super) const HEAD_BYTES: usize = 64 << 10;

/// Memory of a gap.
const GAP_BYTES: usize = size_of::<(usize, u32)>();

/// Names of losses: a mail that is not read for want of memory, or fields that are left out.
const NO_ROOM: &str = "smtp mails not read for want of memory";
const MORE: &str = "smtp fields of mails left out";

/// A mail that was announced.
#[derive(Debug, Default)]
pub(super) struct Mail {
    /// `None`: nothing more is read of it.
    mime: Option<Box<Mime>>,
    is_head_done: bool,
    /// Bytes that came, and the memory of gaps.
    came: usize,
    /// Bytes that wait for the end of the head, and the gaps in them: place and missing bytes.
    held: Vec<u8>,
    gaps: Vec<(usize, u32)>,
    /// When the first of them came.
    time: u64,
    /// Memory of the reader that is counted.
    counted: usize,
}

/// Who hears of a mail.
pub(super) struct Talk<'a> {
    pub(super) id: Id,
    pub(super) time: u64,
    pub(super) kept: &'a Carried,
    pub(super) ear: &'a mut dyn Ear<Fact>,
}

impl Mail {
    /// A mail begins.
    pub(super) fn new() -> Mail {
        Mail { mime: Some(Box::default()), ..Mail::default() }
    }

    /// Whether nothing of it came.
    pub(super) fn is_empty(&self) -> bool {
        self.came == 0
    }

    /// Reads a piece of the mail in the run `bytes`.
    pub(super) fn read(&mut self, bytes: &[u8], piece: Body<'_>, talk: &mut Talk<'_>) {
        let data = match &piece {
            Body::Range(range) => &bytes[range.clone()],
            Body::Kept(bytes, _) => bytes,
            Body::Missing(_) => b"",
        };
        let room = HEAD_BYTES.saturating_sub(self.came);
        if !self.is_head_done && data.len() > room {
            // The facts do not depend on how the mail was cut.
            let (first, second) = split(piece, room);
            self.read(bytes, first, talk);
            return self.read(bytes, second, talk);
        }
        self.came = self.came.saturating_add(if data.is_empty() { GAP_BYTES } else { data.len() });
        self.parse(talk, |mime, see| match piece {
            Body::Missing(missing) => mime.gap(missing, see),
            _ => mime.feed(data, see),
        });
        let is_too_long = !self.is_head_done && self.came >= HEAD_BYTES;
        if is_too_long {
            talk.ear.lost(talk.id, MORE);
        }
        if self.is_head_done || is_too_long || !self.hold(data, &piece, talk) {
            self.head_done(talk);
            talk.ear.body(talk.id, piece);
        }
    }

    /// The mail is over.
    pub(super) fn end(mut self, how: How, talk: &mut Talk<'_>) {
        self.parse(talk, |mime, see| mime.cut(how, see));
        self.head_done(talk);
        self.clear(talk.kept);
    }

    /// Releases what is kept.
    pub(super) fn clear(&mut self, kept: &Carried) {
        self.stop(kept);
        kept.clear(&mut self.held);
    }

    /// Lets the reader take a step.
    fn parse(&mut self, talk: &mut Talk<'_>, step: impl FnOnce(&mut Mime, &mut dyn FnMut(Found<'_>))) {
        let Some(mime) = &mut self.mime else { return };
        let (id, wants_parts) = (talk.id, talk.ear.wants().parts);
        let is_head_done = &mut self.is_head_done;
        step(mime, &mut |found| match found {
            Found::Field(name, value) if !*is_head_done => {
                fact_of(name).into_iter().for_each(|it| talk.ear.fact(id, it, value))
            }
            Found::Field(..) => {}
            Found::Head(name) if !*is_head_done => {
                name.into_iter().for_each(|name| talk.ear.fact(id, Fact::Attachment, name));
                *is_head_done = true;
                talk.ear.head_done(id);
            }
            Found::Head(_) => {}
            Found::More => talk.ear.lost(id, MORE),
            found if wants_parts => talk.ear.part(id, &found),
            _ => {}
        });
        let bytes = mime.kept_bytes();
        if self.is_head_done && !wants_parts {
            self.stop(talk.kept);
        } else if !talk.kept.recount(&mut self.counted, bytes) {
            talk.ear.lost(id, NO_ROOM);
            if let (true, Some(mut mime)) = (wants_parts, self.mime.take()) {
                mime.cut(How::Cut, &mut |found| talk.ear.part(id, &found));
            }
            self.stop(talk.kept);
        }
    }

    /// Reads no more of the mail.
    fn stop(&mut self, kept: &Carried) {
        self.mime = None;
        _ = kept.recount(&mut self.counted, 0);
    }

    /// Keeps a piece until the head is over; `false`: there is no room.
    fn hold(&mut self, data: &[u8], piece: &Body<'_>, talk: &Talk<'_>) -> bool {
        if self.held.is_empty() {
            self.time = if let Body::Kept(_, time) = piece { *time } else { talk.time };
        }
        if let Body::Missing(missing) = piece {
            self.gaps.push((self.held.len(), *missing));
        }
        talk.kept.keep(&mut self.held, data)
    }

    /// The head is over, or nothing more of it counts: what waited for it is heard.
    fn head_done(&mut self, talk: &mut Talk<'_>) {
        if !std::mem::replace(&mut self.is_head_done, true) {
            talk.ear.head_done(talk.id);
        }
        let (mut held, mut from) = (std::mem::take(&mut self.held), 0);
        let gaps = std::mem::take(&mut self.gaps);
        for (at, missing) in gaps.into_iter().map(|(at, missing)| (at, Some(missing))).chain([(held.len(), None)]) {
            if at > from {
                talk.ear.body(talk.id, Body::Kept(&held[from..at], self.time));
            }
            from = at;
            missing.into_iter().for_each(|missing| talk.ear.body(talk.id, Body::Missing(missing)));
        }
        talk.kept.clear(&mut held);
    }
}

/// Cuts bytes in two.
fn split(piece: Body<'_>, at: usize) -> (Body<'_>, Body<'_>) {
    match piece {
        Body::Range(range) => {
            let middle = range.start + at;
            (Body::Range(range.start..middle), Body::Range(middle..range.end))
        }
        Body::Kept(bytes, time) => (Body::Kept(&bytes[..at], time), Body::Kept(&bytes[at..], time)),
        Body::Missing(missing) => (Body::Missing(0), Body::Missing(missing)),
    }
}

/// The fact that a field of the head is.
fn fact_of(name: &[u8]) -> Option<Fact> {
    Some(match name {
        b"from" => Fact::From,
        b"to" => Fact::To,
        b"cc" => Fact::Cc,
        b"subject" => Fact::Subject,
        b"date" => Fact::Date,
        b"message-id" => Fact::MessageId,
        b"x-mailer" => Fact::XMailer,
        _ => return None,
    })
}
