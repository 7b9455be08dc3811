//! Facts that a conversation says, until their record is given.

use crate::parts::eve::{NAME, begin_row};
use crate::parts::outlet::Outlet;
use filter::prelude::*;
use filter::record::list_push;
use protocols::carry::Carried;
use protocols::conversation::{Ear, Fact, How, Id, Kind, Side};
use protocols::tls::append_name;

/// The facts of one record, in the order in which they were said.
#[derive(Debug)]
pub(crate) struct Facts<F> {
    /// Each fact, who said it, and where its value ends in `bytes`.
    said: Vec<(F, Side, usize)>,
    bytes: Vec<u8>,
}

impl<F> Default for Facts<F> {
    fn default() -> Facts<F> {
        Facts { said: Vec::new(), bytes: Vec::new() }
    }
}

impl<F: Fact> Facts<F> {
    /// Copies a fact, a number in network byte order; `false` if there is no room.
    #[must_use]
    pub(crate) fn keep(&mut self, fact: F, side: Side, value: &[u8], kept: &Carried) -> bool {
        let has_room = kept.keep(&mut self.bytes, value);
        if has_room {
            self.said.push((fact, side, self.bytes.len()));
        }
        has_room
    }

    /// How often the field was said in which a record has this fact of this side.
    pub(crate) fn count(&self, fact: F, side: Side) -> usize {
        let fields = &F::ALL[fact.number()].field;
        let is_it = |said: &&(F, Side, usize)| {
            said.0.number() == fact.number() && fields[said.1.index()] == fields[side.index()]
        };
        self.said.iter().filter(is_it).count()
    }

    /// Writes the facts into a row.
    pub(crate) fn write(&self, row: &mut RowWriter) {
        self.write_if(|_| true, row);
    }

    /// Writes the facts that are wanted into a row.
    pub(crate) fn write_if(&self, is_wanted: impl Fn(F) -> bool, row: &mut RowWriter) {
        let mut from = 0;
        let mut items: Vec<(&str, Vec<u8>)> = Vec::new();
        let mut item = RowWriter::new(&NAME);
        for &(fact, side, end) in &self.said {
            let value = &self.bytes[std::mem::replace(&mut from, end)..end];
            let about = &F::ALL[fact.number()];
            let field = about.field[side.index()];
            if !is_wanted(fact) {
                continue;
            }
            let number = || value.first_chunk().map_or(0, |value| u64::from_be_bytes(*value));
            let shown = match about.kind {
                Kind::Word(_) | Kind::WordItem(_) => about.kind.word(number()).into_bytes().into(),
                kind => kind.shown(value),
            };
            match about.kind {
                Kind::Text | Kind::Name | Kind::Shown(_) | Kind::Word(_) | Kind::Frame => _ = row.text(field, shown),
                Kind::Number => _ = row.number(field, number()),
                Kind::Item | Kind::NameItem | Kind::WordItem(_) => {
                    let at = items.iter().position(|item| item.0 == field).unwrap_or_else(|| {
                        items.push((field, Vec::new()));
                        items.len() - 1
                    });
                    item.begin();
                    list_push(&mut items[at].1, item.text("", shown).row());
                }
            }
        }
        for (field, list) in items {
            row.rows(field, &list);
        }
    }

    /// Releases the copies.
    pub(crate) fn clear(&mut self, kept: &Carried) {
        self.said = Vec::new();
        kept.clear(&mut self.bytes);
    }
}

/// Gives a record of each message whose head is done.
pub(crate) struct Heads<'a, 'b, F> {
    pub(crate) row: &'a mut RowWriter,
    /// The facts of the current message.
    pub(crate) facts: &'a mut Facts<F>,
    pub(crate) carried: &'a Carried,
    pub(crate) outlet: &'a mut Outlet<'b>,
    /// Of the current block.
    pub(crate) class: Class,
    pub(crate) time: u64,
}

impl<F: Fact> Ear<F> for Heads<'_, '_, F> {
    fn fact(&mut self, id: Id, fact: F, value: &[u8]) {
        let is_field = !fact.about().field[id.side.index()].is_empty();
        if is_field && !self.facts.keep(fact, id.side, value, self.carried) {
            self.outlet.count("texts left out for want of memory", 1);
        }
    }

    fn head_done(&mut self, _id: Id) {
        begin_row(self.row, self.time, self.class, self.outlet.facts(self.class));
        self.facts.write(self.row);
        self.outlet.record(self.row, self.time, self.class);
    }

    fn lost(&mut self, _id: Id, what: &'static str) {
        self.outlet.count(what, 1);
    }

    fn count(&mut self, what: &'static str, times: u64) {
        self.outlet.count(what, times);
    }

    fn end(&mut self, _id: Id, _how: How) {
        self.facts.clear(self.carried);
    }
}

/// A text that a peer chose, for a field that is a name.
pub fn escaped(value: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(value.len());
    append_name(&mut text, value);
    text
}
