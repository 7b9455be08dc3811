//! The first bytes of a connection, until the probes tell its protocol. `rules` decides in the same way.

use base::limits::RULES_EARLY_BYTES;
use packet::Flow;
use packet::frame::protocol;
use protocols::app::App;
use protocols::carry::Carried;
use protocols::conversation::Side;
use protocols::probe::{self, Says};

/// First bytes of a side that decide.
const PREFIX_BYTES: usize = 256;

/// What is known behind a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It was known before.
    Known,
    /// This block told that it is the protocol.
    Now,
    /// Later blocks decide.
    More,
    /// It is another protocol.
    No,
}

/// What both sides sent first.
pub(super) struct First {
    app: App,
    flow: Flow,
    sides: [Prefix; 2],
}

#[derive(Default)]
struct Prefix {
    bytes: Vec<u8>,
    /// Number of bytes that are missing before them, and of those behind them that were not kept.
    gap: u32,
    missed: u32,
    /// How many were kept and not kept before the block that is read now.
    before: (usize, u32),
}

impl First {
    pub(super) fn new(app: App, flow: Flow) -> First {
        First { app, flow, sides: Default::default() }
    }

    /// Adds bytes of a side, with so many missing before them.
    pub(super) fn add(&mut self, side: Side, bytes: &[u8], gap: u32, carried: &Carried) -> Found {
        if self.flow.protocol == protocol::UDP {
            let wire_len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let says = probe::datagram(bytes, wire_len, &self.flow);
            return match says {
                App::Unknown => Found::More,
                app if app == self.app => Found::Now,
                _ => Found::No,
            };
        }
        let other_is_new = self.sides[1 - side.index()].bytes.is_empty();
        let prefix = &mut self.sides[side.index()];
        if gap > 0 {
            // No receiver joins what is on both sides of a gap.
            carried.clear(&mut prefix.bytes);
            *prefix = Prefix { gap, ..Prefix::default() };
        }
        prefix.before = (prefix.bytes.len(), prefix.missed);
        let room = if prefix.missed > 0 { 0 } else { RULES_EARLY_BYTES.saturating_sub(prefix.before.0) };
        let fits = bytes.len() <= room && carried.keep(&mut prefix.bytes, bytes);
        if !fits {
            prefix.missed = prefix.missed.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        }
        let is_long = self.sides.iter().all(|prefix| prefix.bytes.len() >= PREFIX_BYTES);
        let bytes = &self.sides[side.index()].bytes;
        let front = &bytes[..bytes.len().min(PREFIX_BYTES)];
        let first = probe::First { bytes: front, to_server: side.is_client(), flow: &self.flow };
        match probe::stream(&first) {
            Says::Is(app) if app == self.app => Found::Now,
            Says::Is(_) => self.give_up(carried),
            Says::No if !other_is_new => self.give_up(carried),
            Says::No | Says::More if is_long => self.give_up(carried),
            Says::No | Says::More => Found::More,
        }
    }

    fn give_up(&mut self, carried: &Carried) -> Found {
        self.clear(carried);
        Found::No
    }

    /// Gives back what came before the block of this `side` that told the protocol: first the other side's. `read` takes the
    /// bytes, and how many are missing before them.
    pub(super) fn replay(&mut self, side: Side, carried: &Carried, mut read: impl FnMut(Side, &[u8], u32)) {
        let other = Side::to_server(!side.is_client());
        let (theirs, own) = (&self.sides[other.index()], &self.sides[side.index()]);
        for (of, prefix, (end, missed)) in
            [(other, theirs, (theirs.bytes.len(), theirs.missed)), (side, own, own.before)]
        {
            for (bytes, gap) in [(&prefix.bytes[..end], prefix.gap), (&[], missed)] {
                if !bytes.is_empty() || gap > 0 {
                    read(of, bytes, gap);
                }
            }
        }
        self.clear(carried);
    }

    pub(super) fn clear(&mut self, carried: &Carried) {
        self.sides.iter_mut().for_each(|prefix| carried.clear(&mut prefix.bytes));
    }
}
