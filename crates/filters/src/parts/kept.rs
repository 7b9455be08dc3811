//! Limits the message metadata that sinks keep while messages are open. Peers choose its length and the number of open
//! messages. So each text is cut to a fixed length, and all texts are charged to one budget.

use base::limits::META_TEXT_BYTES;
use filter::Counters;
use filter::prelude::*;
use filter::record::{FieldValue, schema_id};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit on the bytes kept by all open messages of one filter.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    taken: Arc<AtomicUsize>,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Budget {
        Budget { limit, taken: Arc::default() }
    }

    /// Charges `bytes` to the budget. `None`: fewer than `bytes` are left; the refusal is counted.
    pub(crate) fn take(&self, bytes: usize, counters: &mut Counters) -> Option<Charge> {
        // Relaxed and without compare-exchange: only the thread of the filter that owns the budget takes from it.
        let taken = self.taken.load(Ordering::Relaxed);
        if bytes > self.limit.saturating_sub(taken) {
            counters.events.add("metadata left out", 1);
            return None;
        }
        self.taken.store(taken + bytes, Ordering::Relaxed);
        Some(Charge { bytes, taken: Arc::clone(&self.taken) })
    }
}

/// Bytes charged to a budget; dropping it returns the bytes.
#[derive(Debug)]
pub(crate) struct Charge {
    bytes: usize,
    taken: Arc<AtomicUsize>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Appends at most [`META_TEXT_BYTES`] of a text. A longer text ends in a note with the number of bytes left out.
pub(crate) fn append_text(out: &mut Vec<u8>, text: &[u8], counters: &mut Counters) {
    if text.len() <= META_TEXT_BYTES {
        out.extend_from_slice(text);
        return;
    }
    // Do not cut inside a UTF-8 character: at most three bytes follow its first.
    let is_start = |place: &usize| text[*place] & 0xc0 != 0x80;
    let end = (META_TEXT_BYTES - 3..=META_TEXT_BYTES).rev().find(is_start).unwrap_or(META_TEXT_BYTES);
    out.extend_from_slice(&text[..end]);
    out.extend_from_slice(b"...[");
    out.extend_from_slice(itoa::Buffer::new().format(text.len() - end).as_bytes());
    out.extend_from_slice(b" bytes more]");
    counters.events.add("metadata texts shortened", 1);
}

/// Cuts the long texts in rows.
#[derive(Debug)]
pub(crate) struct Shortener {
    schemas: Arc<[&'static Schema]>,
    writer: Option<RowWriter>,
    text: Vec<u8>,
}

impl Shortener {
    /// `env` gives the schemas of the rows that can arrive.
    pub(crate) fn new(env: &Env) -> Shortener {
        Shortener { schemas: Arc::clone(&env.schemas), writer: None, text: Vec::new() }
    }

    pub(crate) fn schema(&self, row: &[u8]) -> Option<&'static Schema> {
        let id = schema_id(row)?;
        self.schemas.iter().copied().find(|schema| schema.id() == id)
    }

    /// Returns the row with its long texts cut. Almost every row is returned as it is.
    #[inline]
    pub(crate) fn shorten<'a>(&'a mut self, row: &'a [u8], counters: &mut Counters) -> &'a [u8] {
        if row.len() <= META_TEXT_BYTES { row } else { self.rewrite(row, counters) }
    }

    #[cold]
    fn rewrite<'a>(&'a mut self, bytes: &'a [u8], counters: &mut Counters) -> &'a [u8] {
        let Some(row) = self.schema(bytes).and_then(|schema| Row::new(schema, bytes)) else { return bytes };
        let mut short = RowWriter::new(row.schema());
        for (place, field) in row.schema().fields.iter().enumerate() {
            match row.get(place) {
                Some(FieldValue::Text(text)) => {
                    self.text.clear();
                    append_text(&mut self.text, text, counters);
                    short.text(field.name, &self.text);
                }
                // Lists are not cut, only left out.
                Some(FieldValue::Rows(_)) => counters.events.add("metadata texts shortened", 1),
                Some(value) => drop(short.copy(field.name, &value)),
                None => {}
            }
        }
        self.writer.insert(short).row()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_never_overdrawn_and_gets_back_what_is_dropped() {
        let (budget, mut counters) = (Budget::new(100), Counters::default());
        let mut take = |bytes| budget.take(bytes, &mut counters);
        let sixty = take(60);
        assert!(sixty.is_some() && take(41).is_none());
        let forty = take(40);
        assert!(forty.is_some() && take(1).is_none());
        drop(sixty);
        assert!(take(61).is_none() && take(60).is_some());
        assert_eq!(counters.events.get("metadata left out"), 3);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let check = |text: &[u8], kept: usize, suffix: &str| {
            let (mut out, mut counters) = (Vec::new(), Counters::default());
            append_text(&mut out, text, &mut counters);
            assert_eq!((&out[..kept], &out[kept..]), (&text[..kept], suffix.as_bytes()));
            assert_eq!(counters.events.get("metadata texts shortened"), u64::from(!suffix.is_empty()));
        };
        const MAX: usize = META_TEXT_BYTES;
        check(&[b'a'; MAX], MAX, "");
        check(&[b'a'; MAX + 1], MAX, "...[1 bytes more]");
        check(&[0xff; MAX + 9], MAX, "...[9 bytes more]");
        // Continuation bytes only: not UTF-8, so the cut may fall anywhere.
        check(&[0x80; MAX + 9], MAX, "...[9 bytes more]");
        for (before, kept) in [(0, MAX), (1, MAX - 3), (2, MAX - 2), (3, MAX - 1)] {
            let text = ["a".repeat(before), "\u{1f980}".repeat(MAX / 4)].concat() + "b";
            check(text.as_bytes(), kept, &format!("...[{} bytes more]", text.len() - kept));
        }
    }
}
