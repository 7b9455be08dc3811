//! The steps of one rule over one buffer, one after the other. A content or an expression whose next step is relative to it
//! is tried at one place after the other until all steps behind it hold.

use crate::bytes::{ByteExtract, ByteJump, ByteMath, ByteTest, DataAt, VARIABLES};
use crate::content::Content;
use crate::number::Compare;
use crate::pcre::{Pcre, Search};
use crate::transform::{Mode64, decode64};

/// A step.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Content(Box<Content>),
    Pcre(Box<Pcre>),
    Test(Box<ByteTest>),
    Jump(Box<ByteJump>),
    Extract(Box<ByteExtract>),
    Math(Box<ByteMath>),
    DataAt(DataAt),
    /// The size of the buffer.
    Size(Compare),
    /// Decodes base64 for the steps of [`Step::Decoded`].
    Decode64 {
        bytes: usize,
        offset: usize,
        relative: bool,
    },
    /// Steps over what was decoded.
    Decoded(Vec<Step>),
}

impl Step {
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
            Step::Size(_) | Step::Decoded(_) => false,
        }
    }
}

/// Work that is left for the packet under way. A rule whose work is not done has not matched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub steps: u32,
    /// A limit was met.
    pub spent: bool,
}

impl Budget {
    fn take(&mut self) -> bool {
        match self.steps.checked_sub(1) {
            Some(left) => self.steps = left,
            None => self.spent = true,
        }
        !self.spent
    }
}

/// One look into a buffer.
pub(crate) struct Look<'a> {
    pub buffer: &'a [u8],
    /// Where the buffer begins in its stream.
    pub start: u64,
    pub variables: [u64; VARIABLES],
    pub budget: &'a mut Budget,
    /// More will come behind the buffer: what must not be there, and what is said about its end, cannot be told.
    pub grows: bool,
    /// The farthest byte that any step looked at.
    pub reach: usize,
    decoded: Vec<u8>,
}

impl<'a> Look<'a> {
    pub fn new(buffer: &'a [u8], start: u64, grows: bool, budget: &'a mut Budget) -> Look<'a> {
        Look { buffer, start, variables: [0; VARIABLES], budget, grows, reach: 0, decoded: Vec::new() }
    }

    /// Do all steps hold? `from` is where the step before ended.
    pub fn holds(&mut self, steps: &[Step], from: usize) -> bool {
        let Some((step, rest)) = steps.split_first() else { return true };
        if !self.budget.take() {
            return false;
        }
        match step {
            Step::Content(content) => self.content(content, rest, from),
            Step::Pcre(pcre) => self.pcre(pcre, rest, from),
            Step::Test(test) => test.holds(self.buffer, from, &self.variables) && self.holds(rest, from),
            Step::Jump(jump) => match jump.end(self.buffer, from, &self.variables) {
                Some(end) => self.holds(rest, end),
                None => false,
            },
            Step::Extract(extract) => match extract.take(self.buffer, from, &self.variables) {
                Some((value, end)) => self.set(extract.variable, value, end, rest),
                None => false,
            },
            Step::Math(math) => match math.take(self.buffer, from, &self.variables) {
                Some((value, end)) => self.set(math.variable, value, end, rest),
                None => false,
            },
            Step::DataAt(at) => {
                !(at.negated && self.grows) && at.holds(self.buffer, from, &self.variables) && self.holds(rest, from)
            }
            Step::Size(size) => !self.grows && size.holds(self.buffer.len() as u64) && self.holds(rest, from),
            Step::Decode64 { bytes, offset, relative } => {
                let base = if *relative { from } else { 0 };
                let Some(coded) = self.buffer.get(base + offset..) else { return false };
                let coded = if *bytes == 0 { coded } else { &coded[..coded.len().min(*bytes)] };
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
                let holds = Look::new(&decoded, 0, false, self.budget).holds(steps, 0);
                self.decoded = decoded;
                holds && self.holds(rest, from)
            }
        }
    }

    fn set(&mut self, variable: u8, value: u64, end: usize, rest: &[Step]) -> bool {
        self.variables[usize::from(variable) % VARIABLES] = value;
        self.holds(rest, end)
    }

    /// The part of the buffer in which a content may lie.
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
            return content.negated && self.holds(rest, from);
        };
        let size = content.bytes.len();
        if content.ends {
            if self.grows {
                return false;
            }
            let Some(tail) = self.buffer.len().checked_sub(size) else {
                return content.negated && self.holds(rest, from);
            };
            // Where it may not end there, it does not.
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
            return content.find(&self.buffer[low..high]).is_none() && self.holds(rest, from);
        }
        while let Some(at) = content.find(&self.buffer[low..high]) {
            let end = low + at + size;
            self.reach = self.reach.max(end);
            if self.holds(rest, end) {
                return true;
            }
            if !content.relative_next || !self.budget.take() {
                return false;
            }
            low += at + 1;
        }
        false
    }

    fn pcre(&mut self, pcre: &Pcre, rest: &[Step], from: usize) -> bool {
        let mut low = if pcre.relative { from } else { 0 };
        loop {
            let Some(bytes) = self.buffer.get(low..) else { return pcre.negated && self.holds(rest, from) };
            match pcre.find(bytes) {
                Search::Found(..) if pcre.negated => return false,
                Search::None if pcre.negated => return !self.grows && self.holds(rest, from),
                Search::None => return false,
                Search::TooLong => {
                    self.budget.spent = true;
                    return false;
                }
                Search::Found(start, end) => {
                    self.reach = self.reach.max(low + end);
                    if self.holds(rest, low + end) {
                        return true;
                    }
                    if !pcre.relative_next || !self.budget.take() {
                        return false;
                    }
                    low += start + 1;
                }
            }
        }
    }
}
