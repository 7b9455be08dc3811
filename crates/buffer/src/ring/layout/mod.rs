//! The four kinds of data ring: where a block's bytes and its header lie. Arithmetic only: [`writer`](super::writer)
//! decides when to write, [`reader`](super::reader) when to read.
//!
//! | kind | units | header | for |
//! |---|---|---|---|
//! | [`Stream`] (c) | bytes | none: there are no blocks | byte streams |
//! | [`Slots`] (p) | slots of fixed size | in an array | frames of a driver |
//! | [`Inline`] (v) | bytes | before the bytes | messages: touches one cache line less |
//! | [`Described`] (d) | descriptors | the descriptor, in an array | everything else; also blocks of other rings |
//!
//! A new kind is one file here that implements [`Layout`], one line in [`AnyLayout`], and one in the conformance suite.

mod described;
mod inline;
mod slots;
mod stream;

pub use described::{Described, DescriptorSlot};
pub use inline::Inline;
pub use slots::{SlotHeader, Slots};
pub use stream::Stream;

use super::words::RingWords;
use crate::descriptor::Descriptor;
use crate::shared::payload::Payload;
use base::atomic::{AtomicU64, Ordering};

/// A kind of data ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum RingKind {
    /// A stream of bytes without blocks.
    C = 1,
    /// Slots of one size.
    P = 2,
    /// Blocks with their length before them.
    V = 3,
    /// Blocks with their descriptors in a second ring.
    #[default]
    D = 4,
}

impl RingKind {
    /// All kinds.
    pub const ALL: [RingKind; 4] = [RingKind::C, RingKind::P, RingKind::V, RingKind::D];

    /// Code in shared memory.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Decodes a word from shared memory; `None` for an unknown code.
    pub fn from_code(code: u32) -> Option<RingKind> {
        RingKind::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Name in requests and messages.
    pub const fn name(self) -> &'static str {
        match self {
            RingKind::C => "c",
            RingKind::P => "p",
            RingKind::V => "v",
            RingKind::D => "d",
        }
    }
}

impl std::str::FromStr for RingKind {
    type Err = String;

    fn from_str(text: &str) -> Result<RingKind, String> {
        RingKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            format!("no kind `{text}`: there are c (stream of bytes), p (slots), v (length inline) and d (descriptors)")
        })
    }
}

/// The room for a block that is about to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Units written once the block is.
    pub head_after: u64,
    /// Position of its bytes.
    pub pos: u64,
    /// Bytes of payload used up once the block is written.
    pub bytes_after: u64,
}

/// A block found in a ring: a local copy of its header, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The unit it begins at.
    pub position: u64,
    /// Units it takes.
    pub units: u64,
    /// Its descriptor.
    pub block: Descriptor,
    /// Whether its payload is in another ring.
    pub elsewhere: bool,
    /// Number of blocks written before it, modulo 2^32, if the ring's blocks are [numbered](Layout::numbered).
    pub number: u32,
}

/// The writer's words contradict each other: the writer is broken or hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// A block is longer than the ring can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Where the blocks of one kind of ring lie.
pub trait Layout: Send {
    /// The kind.
    fn kind(&self) -> RingKind;

    /// Units of a whole ring.
    fn units(&self) -> u64;

    /// Most bytes of one block.
    fn block_bytes(&self) -> u64;

    /// Claims room for a block of `len` bytes after `head` units and `bytes` bytes of payload.
    fn claim(&self, head: u64, bytes: u64, len: u64) -> Result<Claim, TooLong>;

    /// Shortens a claim to a block of only `len` bytes.
    fn shorten(&self, claim: &Claim, len: u64) -> Claim;

    /// Whether the claim may be written while a reader still needs everything from unit `holder` (at most `head`) on.
    fn fits(&self, claim: &Claim, holder: u64, head: u64) -> bool;

    /// Tells readers not to rely on what the claim overwrites. The payload may be written afterwards.
    fn begin(&self, claim: &Claim, words: &RingWords);

    /// Writes the header of a block whose bytes are in place.
    fn finish(&mut self, claim: &Claim, head: u64, block: &Descriptor, payload: &Payload);

    /// Bytes of payload in use, and bytes of all of it. `None` for a kind that always uses the whole payload.
    fn window(&self) -> Option<(u64, u64)> {
        None
    }

    /// Uses only the first `bytes` bytes of the payload from now on, rounded up to a power of two. Does nothing for a
    /// kind that always uses the whole payload.
    fn cut_window(&mut self, _bytes: u64) {}

    /// Reads the header of the block at unit `position`; everything before `head` is published.
    fn look(&self, position: u64, head: u64, payload: &Payload) -> Result<Seen, Damaged>;

    /// Whether no part of the block is overwritten so far. Called behind a fence that keeps all reads before it.
    fn intact(&self, seen: &Seen, words: &RingWords) -> bool;

    /// Whether these `len` bytes of payload at `pos` were written, and no part of them is overwritten so far. For readers that
    /// have a descriptor from another ring. Called behind a fence that keeps all reads before it.
    fn payload_intact(&self, pos: u64, len: u64, words: &RingWords) -> bool;

    /// Whether blocks carry numbers, because units do not count blocks.
    fn numbered(&self) -> bool {
        false
    }

    /// The unit at which an overtaken reader may go on: the first intact one at or after `wanted`; `head` where there
    /// is none, because the writer died before it published the block that overwrote the rest.
    fn boundary(&self, wanted: u64, head: u64, words: &RingWords) -> u64 {
        wanted.max(overwritten_to(words.writer.0.intent.load(Ordering::Relaxed), self.units())).min(head)
    }
}

/// First unit that is still reliable in a ring of `units` units after `begun` units were begun.
#[inline]
fn overwritten_to(begun: u64, units: u64) -> u64 {
    begun.saturating_sub(units)
}

/// Whether `len` bytes at `pos` lie in the part that was begun, and in its last `bytes` bytes.
#[inline]
fn lies_in(pos: u64, len: u64, begun: u64, bytes: u64) -> bool {
    overwritten_to(begun, bytes) <= pos && pos.checked_add(len).is_some_and(|end| end <= begun)
}

/// Tells readers that everything before `to - units` may be overwritten from now on. The word never goes back: a block
/// that was begun and given up may have overwritten something already.
#[inline]
fn begin_units(to: u64, intent: &AtomicU64) {
    if to > intent.load(Ordering::Relaxed) {
        intent.store(to, Ordering::Relaxed);
    }
}

/// Any of the four kinds, where the kind is known only at run time.
#[derive(Debug)]
pub enum AnyLayout {
    /// c
    Stream(Stream),
    /// p
    Slots(Slots),
    /// v
    Inline(Inline),
    /// d
    Described(Described),
}

/// A ring is of another kind than was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherKind;

macro_rules! known {
    ($($layout:ident)*) => {$(
        impl TryFrom<AnyLayout> for $layout {
            type Error = OtherKind;

            fn try_from(any: AnyLayout) -> Result<$layout, OtherKind> {
                if let AnyLayout::$layout(layout) = any { Ok(layout) } else { Err(OtherKind) }
            }
        }
    )*};
}

known!(Stream Slots Inline Described);

macro_rules! each {
    ($self:expr, $layout:ident => $do:expr) => {
        match $self {
            AnyLayout::Stream($layout) => $do,
            AnyLayout::Slots($layout) => $do,
            AnyLayout::Inline($layout) => $do,
            AnyLayout::Described($layout) => $do,
        }
    };
}

impl Layout for AnyLayout {
    fn kind(&self) -> RingKind {
        each!(self, layout => layout.kind())
    }

    fn window(&self) -> Option<(u64, u64)> {
        each!(self, layout => layout.window())
    }

    fn cut_window(&mut self, bytes: u64) {
        each!(self, layout => layout.cut_window(bytes));
    }

    #[inline]
    fn units(&self) -> u64 {
        each!(self, layout => layout.units())
    }

    #[inline]
    fn block_bytes(&self) -> u64 {
        each!(self, layout => layout.block_bytes())
    }

    #[inline]
    fn claim(&self, head: u64, bytes: u64, len: u64) -> Result<Claim, TooLong> {
        each!(self, layout => layout.claim(head, bytes, len))
    }

    #[inline]
    fn shorten(&self, claim: &Claim, len: u64) -> Claim {
        each!(self, layout => layout.shorten(claim, len))
    }

    #[inline]
    fn fits(&self, claim: &Claim, holder: u64, head: u64) -> bool {
        each!(self, layout => layout.fits(claim, holder, head))
    }

    #[inline]
    fn begin(&self, claim: &Claim, words: &RingWords) {
        each!(self, layout => layout.begin(claim, words));
    }

    #[inline]
    fn finish(&mut self, claim: &Claim, head: u64, block: &Descriptor, payload: &Payload) {
        each!(self, layout => layout.finish(claim, head, block, payload));
    }

    #[inline]
    fn look(&self, position: u64, head: u64, payload: &Payload) -> Result<Seen, Damaged> {
        each!(self, layout => layout.look(position, head, payload))
    }

    #[inline]
    fn intact(&self, seen: &Seen, words: &RingWords) -> bool {
        each!(self, layout => layout.intact(seen, words))
    }

    #[inline]
    fn payload_intact(&self, pos: u64, len: u64, words: &RingWords) -> bool {
        each!(self, layout => layout.payload_intact(pos, len, words))
    }

    #[inline]
    fn numbered(&self) -> bool {
        each!(self, layout => layout.numbered())
    }

    fn boundary(&self, wanted: u64, head: u64, words: &RingWords) -> u64 {
        each!(self, layout => layout.boundary(wanted, head, words))
    }
}
