//! Runs one rule's steps over one buffer, in order. If the steps after a content or expression are relative to it, each
//! of its matches is tried until they hold.

use crate::bytes::{ByteExtract, ByteJump, ByteMath, ByteTest, DataAt, LITTLE, VARIABLES};
use crate::content::{Content, Num};
use crate::dataset::{Change, Dataset, Verb};
use crate::entropy::Entropy;
use crate::number::Compare;
use crate::pcre::{Pcre, Search};
use crate::transform::{Mode64, decode64};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Content(Box<Content>),
    Pcre(Box<Pcre>),
    Test(Box<ByteTest>),
    Jump(Box<ByteJump>),
    Extract(Box<ByteExtract>),
    Math(Box<ByteMath>),
    DataAt(DataAt),
    /// Compares the size of the buffer.
    Size(Compare),
    /// Compares the buffer, read as a big-endian number.
    Value(Compare),
    /// Looks up the buffer in a data set. A rule that matches may add or remove it.
    Member(Arc<Dataset>, Verb),
    Entropy(Entropy),
    /// Decodes base64 as input for [`Step::Decoded`].
    Decode64 {
        bytes: usize,
        offset: usize,
        relative: bool,
    },
    /// Runs steps over the decoded bytes.
    Decoded(Vec<Step>),
}

impl Step {
    /// Whether later relative steps are relative to the end of this step.
    pub fn moves(&self) -> bool {
        match self {
            Step::Content(content) => !content.negated,
            Step::Pcre(pcre) => !pcre.negated,
            Step::Jump(_) | Step::Extract(_) | Step::Math(_) => true,
            Step::Test(_) | Step::DataAt(_) | Step::Size(_) | Step::Decode64 { .. } | Step::Decoded(_) => false,
            Step::Value(_) | Step::Member(..) | Step::Entropy(_) => false,
        }
    }

    /// Whether it is a content with `depth`, `offset` or `startswith`.
    pub fn names_its_place(&self) -> bool {
        matches!(self, Step::Content(content) if content.depth.is_some() || content.offset.is_some() || content.starts)
    }

    /// Whether it is a content that must be present.
    pub fn is_plain_content(&self) -> bool {
        matches!(self, Step::Content(content) if !content.negated)
    }

    /// Whether it can hold only at the end of a growing buffer.
    pub fn waits_for_the_end(&self) -> bool {
        match self {
            Step::Content(content) => {
                content.ends || content.negated && content.depth.is_none() && content.within.is_none()
            }
            Step::Pcre(pcre) => pcre.negated,
            Step::DataAt(at) => at.negated,
            Step::Size(_) | Step::Entropy(_) | Step::Member(..) => true,
            _ => false,
        }
    }

    /// The variable that the step sets.
    pub fn sets(&self) -> Option<u8> {
        match self {
            Step::Extract(extract) => Some(extract.variable),
            Step::Math(math) => Some(math.variable),
            _ => None,
        }
    }

    /// The variables that the step uses.
    pub fn uses(&self) -> impl Iterator<Item = u8> {
        let numbers = match self {
            Step::Content(content) => [content.offset, content.depth, content.distance, content.within],
            Step::Test(test) => [test.source.offset, test.count, Some(test.value), None],
            Step::Jump(jump) => [jump.source.offset, jump.count, Some(jump.post_offset), None],
            Step::Extract(extract) => [extract.source.offset, None, None, None],
            Step::Math(math) => [math.source.offset, math.count, Some(math.right), None],
            Step::DataAt(at) => [Some(at.at), None, None, None],
            _ => [None; 4],
        };
        numbers.into_iter().filter_map(|number| match number {
            Some(Num::Variable(variable)) => Some(variable),
            _ => None,
        })
    }

    pub fn is_relative(&self) -> bool {
        match self {
            Step::Content(content) => content.is_relative(),
            Step::Pcre(pcre) => pcre.relative,
            Step::Test(test) => test.source.relative,
            Step::Jump(jump) => jump.source.relative,
            Step::Extract(extract) => extract.source.relative,
            Step::Math(math) => math.source.relative,
            Step::DataAt(at) => at.relative,
            Step::Decode64 { relative, .. } => *relative,
            Step::Size(_) | Step::Entropy(_) | Step::Decoded(_) | Step::Value(_) | Step::Member(..) => false,
        }
    }
}

/// The remaining work for the current packet. A rule cut short has not matched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub steps: u32,
    /// The budget is exhausted.
    pub spent: bool,
}

/// Bytes searched at the price of one step.
const BYTES_PER_STEP: usize = 64;

impl Budget {
    fn take(&mut self) -> bool {
        self.take_many(1)
    }

    pub fn take_many(&mut self, steps: u32) -> bool {
        match self.steps.checked_sub(steps) {
            Some(left) => self.steps = left,
            None => self.spent = true,
        }
        !self.spent
    }

    /// Takes one step, plus the steps for searching `bytes` bytes.
    pub fn take_bytes(&mut self, bytes: usize) -> bool {
        self.take_many(u32::try_from(1 + bytes / BYTES_PER_STEP).unwrap_or(u32::MAX))
    }
}

/// Whether there is a match of the content that ends behind the first `seen` bytes.
pub(crate) fn has_new(step: &Step, buffer: &[u8], seen: usize, budget: &mut Budget) -> bool {
    let Step::Content(content) = step else { return false };
    let new = buffer.get((seen + 1).saturating_sub(content.bytes.len())..).unwrap_or_default();
    budget.take_bytes(new.len());
    content.find(new).is_some()
}

/// Most stale matches that one inspection follows.
const STALE_WAYS: u32 = 1 << 10;

/// One inspection of a buffer.
pub(crate) struct Look<'a> {
    pub buffer: &'a [u8],
    /// Offset of the buffer in its stream.
    pub start: u64,
    pub variables: [u64; LITTLE + 1],
    pub budget: &'a mut Budget,
    /// More bytes will follow: conditions on absence or on the end cannot be decided yet.
    pub grows: bool,
    /// Rules have seen the first `seen` bytes: a match must reach beyond them. 0: all bytes are new.
    pub seen: usize,
    /// The end of the farthest byte that the steps so far needed.
    reach: usize,
    /// All steps held, but only within bytes seen before.
    stale: bool,
    /// Stale matches left to follow. A stale match has alerted before, and there may be many.
    stale_left: u32,
    /// The changes that the steps make to data sets, if the rule matches.
    pub changes: Vec<Change>,
    decoded: Vec<u8>,
    /// The buffer as text, for the backtracking engine.
    text: String,
}

impl<'a> Look<'a> {
    pub fn new(buffer: &'a [u8], start: u64, grows: bool, budget: &'a mut Budget) -> Look<'a> {
        Look {
            buffer,
            start,
            variables: [0; LITTLE + 1],
            budget,
            grows,
            seen: 0,
            reach: 0,
            stale: false,
            stale_left: STALE_WAYS,
            changes: Vec::new(),
            decoded: Vec::new(),
            text: String::new(),
        }
    }

    /// Records that a step needed the bytes up to `end`.
    fn reaches(&mut self, end: usize) {
        self.reach = self.reach.max(end);
    }

    /// Whether all steps hold. `from`: the end of the previous step.
    pub fn holds(&mut self, steps: &[Step], from: usize) -> bool {
        let Some((step, rest)) = steps.split_first() else {
            let is_new = self.seen == 0 || self.reach > self.seen;
            if !is_new {
                self.stale = true;
                self.stale_left = self.stale_left.saturating_sub(1);
            }
            return is_new;
        };
        if !self.budget.take() {
            return false;
        }
        match step {
            Step::Content(content) => self.content(content, rest, from),
            Step::Pcre(pcre) => self.pcre(pcre, rest, from),
            Step::Test(test) => {
                self.reaches(test.reach(self.buffer, from, &self.variables));
                test.holds(self.buffer, from, &self.variables, self.grows) && self.holds(rest, from)
            }
            Step::Jump(jump) => match jump.end(self.buffer, from, &self.variables) {
                Some(end) => {
                    self.reaches(jump.reach(from, &self.variables).max(end));
                    self.holds(rest, end)
                }
                None => false,
            },
            Step::Extract(extract) => match extract.take(self.buffer, from, &self.variables) {
                Some((value, end)) => {
                    self.reaches(extract.source.reach(from, extract.source.count, &self.variables));
                    self.set(extract.variable, value, end, rest)
                }
                None => false,
            },
            Step::Math(math) => match math.take(self.buffer, from, &self.variables) {
                Some((value, end)) => {
                    self.reaches(end);
                    self.set(math.variable, value, end, rest)
                }
                None => false,
            },
            Step::DataAt(at) => {
                if !at.negated {
                    self.reaches(at.reach(from, &self.variables));
                }
                !(at.negated && self.grows) && at.holds(self.buffer, from, &self.variables) && self.holds(rest, from)
            }
            Step::Size(size) => {
                self.reaches(self.buffer.len());
                !self.grows && size.holds(self.buffer.len() as u64) && self.holds(rest, from)
            }
            Step::Value(compare) => {
                let number = self.buffer.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
                compare.holds(number) && self.holds(rest, from)
            }
            Step::Member(set, verb) => {
                self.reaches(self.buffer.len());
                let may = !self.grows && self.budget.take_bytes(self.buffer.len());
                let holds = may && set.holds(*verb, self.buffer) && self.holds(rest, from);
                if holds && verb.changes() {
                    self.changes.push(Change { set: Arc::clone(set), verb: *verb, value: self.buffer.into() });
                }
                holds
            }
            Step::Entropy(entropy) => {
                self.reaches(self.buffer.len());
                // Counting a byte takes longer than searching it.
                let work = u32::try_from(self.buffer.len() / 8).unwrap_or(u32::MAX);
                !self.grows && self.budget.take_many(work) && entropy.holds(self.buffer) && self.holds(rest, from)
            }
            Step::Decode64 { bytes, offset, relative } => {
                let base = if *relative { from } else { 0 };
                let Some(coded) = self.buffer.get(base + offset..) else { return false };
                let coded = if *bytes == 0 { coded } else { &coded[..coded.len().min(*bytes)] };
                if !self.budget.take_bytes(coded.len()) {
                    return false;
                }
                self.reaches(base + offset + coded.len());
                let mut decoded = Vec::new();
                decode64(coded, Mode64::Rfc2045, &mut decoded);
                if decoded.is_empty() {
                    return false;
                }
                self.decoded = decoded;
                self.holds(rest, from)
            }
            Step::Decoded(steps) => {
                let decoded = std::mem::take(&mut self.decoded);
                let mut look = Look::new(&decoded, 0, false, self.budget);
                let (holds, mut changes) = (look.holds(steps, 0), look.changes);
                self.decoded = decoded;
                let holds = holds && self.holds(rest, from);
                if holds {
                    self.changes.append(&mut changes);
                }
                holds
            }
        }
    }

    /// Returns whether all steps hold, and whether they held only within bytes seen before.
    fn holds_or_stale(&mut self, steps: &[Step], from: usize) -> (bool, bool) {
        let before = std::mem::take(&mut self.stale);
        let holds = self.holds(steps, from);
        let stale = self.stale;
        self.stale |= before;
        (holds, stale)
    }

    fn set(&mut self, variable: u8, value: u64, end: usize, rest: &[Step]) -> bool {
        self.variables[usize::from(variable) % VARIABLES] = value;
        self.holds(rest, end)
    }

    /// The range of the buffer in which the content must lie.
    fn bounds(&self, content: &Content, from: usize) -> Option<(usize, usize)> {
        let length = self.buffer.len() as i64;
        let (mut low, mut high) = (0, length);
        if content.is_relative() {
            low = from as i64;
            let distance = content.distance.map_or(0, |distance| distance.of(&self.variables));
            low = low.saturating_add(distance).max(0);
            if let Some(within) = content.within {
                high = (from as i64).saturating_add(within.of(&self.variables)).saturating_add(distance);
            }
        }
        if content.offset.is_some() || content.depth.is_some() {
            let start = self.start as i64;
            let offset = content.offset.map_or(0, |offset| offset.of(&self.variables));
            low = low.max(offset.saturating_sub(start));
            if let Some(depth) = content.depth {
                high = high.min(offset.saturating_add(depth.of(&self.variables)).saturating_sub(start));
            }
        }
        let (low, high) = (usize::try_from(low).ok()?, usize::try_from(high.min(length)).ok()?);
        (low <= high).then_some((low, high))
    }

    fn content(&mut self, content: &Content, rest: &[Step], from: usize) -> bool {
        let Some((mut low, high)) = self.bounds(content, from) else {
            return content.negated && !self.grows && self.holds(rest, from);
        };
        let size = content.bytes.len();
        if content.ends {
            if self.grows {
                return false;
            }
            let Some(tail) = self.buffer.len().checked_sub(size) else {
                return content.negated && self.holds(rest, from);
            };
            // The end of the buffer is outside the allowed range: no match.
            if high < self.buffer.len() || tail < low {
                return content.negated && self.holds(rest, from);
            }
            low = tail;
        }
        if content.negated {
            let bounded = content.depth.is_some() || content.within.is_some();
            if self.grows && !(bounded && high < self.buffer.len()) {
                return false;
            }
            let there = content.find(&self.buffer[low..high]).is_some();
            return self.budget.take_bytes(high - low) && !there && self.holds(rest, from);
        }
        let before = self.reach;
        while let Some(part) = self.buffer.get(low..high) {
            let found = content.find(part);
            let looked = found.map_or(part.len(), |at| at + size);
            let (true, Some(at)) = (self.budget.take_bytes(looked), found) else { return false };
            let end = low + at + size;
            self.reach = before.max(end);
            let (holds, stale) = self.holds_or_stale(rest, end);
            if holds {
                return true;
            }
            if self.stale_left == 0 {
                return false;
            }
            self.reach = before;
            low += at + 1;
            if !content.relative_next {
                // Later steps do not depend on this match. Only a match that reaches new bytes can help.
                if !stale {
                    return false;
                }
                low = low.max((self.seen + 1).saturating_sub(size));
            }
        }
        false
    }

    fn pcre(&mut self, pcre: &Pcre, rest: &[Step], from: usize) -> bool {
        let from = if pcre.relative { from } else { 0 };
        let before = self.reach;
        let mut low = from;
        loop {
            if low > self.buffer.len() {
                return low == from && pcre.negated && !self.grows && self.holds(rest, from);
            }
            let found = pcre.find(self.buffer, from, low, &mut self.text);
            let looked = match found {
                Search::Found(_, end) => end - low,
                _ => self.buffer.len() - low,
            };
            if !self.budget.take_bytes(looked) || !self.budget.take_many(pcre.steps(self.buffer.len())) {
                return false;
            }
            match found {
                Search::Found(..) if pcre.negated => return false,
                Search::None if pcre.negated => return !self.grows && self.holds(rest, from),
                Search::None => return false,
                Search::TooLong => {
                    self.budget.spent = true;
                    return false;
                }
                Search::Found(start, end) => {
                    self.reach = before.max(end);
                    let (holds, stale) = self.holds_or_stale(rest, end);
                    if holds {
                        return true;
                    }
                    self.reach = before;
                    if !pcre.relative_next && !stale || self.stale_left == 0 {
                        return false;
                    }
                    low = if pcre.relative_next { start + 1 } else { end.max(start + 1) };
                }
            }
        }
    }
}
