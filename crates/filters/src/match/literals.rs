//! Texts as they are: one by memory search, several at once by Aho and Corasick.

use super::{Matcher, Search};
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{AhoCorasick, Anchored, BuildError, MatchKind};
use filter::prelude::*;
use memchr::memmem::Finder;

/// One text.
pub(super) struct One {
    finder: Finder<'static>,
}

impl One {
    pub fn new(text: &str) -> One {
        One { finder: Finder::new(text).into_owned() }
    }
}

impl Search for One {
    #[inline]
    fn is_in(&mut self, bytes: &[u8]) -> bool {
        self.finder.find(bytes).is_some()
    }
}

/// Any of several texts.
pub(super) struct Any {
    searcher: AhoCorasick,
}

impl Any {
    pub fn new(texts: &[String], ignore_case: bool) -> Result<Any, ParamError> {
        // Which of them it is does not matter, but this kind of match has the faster searchers.
        let kind = MatchKind::LeftmostFirst;
        let built = AhoCorasick::builder().match_kind(kind).ascii_case_insensitive(ignore_case).build(texts);
        Ok(Any { searcher: built.map_err(too_large)? })
    }
}

impl Search for Any {
    #[inline]
    fn is_in(&mut self, bytes: &[u8]) -> bool {
        self.searcher.is_match(bytes)
    }
}

/// Texts that may begin in one piece of a stream and end in a later one.
///
/// All that the automaton can know at any byte is said by the last `reach` bytes before it, one less than the longest
/// text has. So it walks the first `reach` bytes of a piece (where the piece before left something begun) and the last
/// ones; the fast searcher does the whole piece.
pub(super) struct Across<S> {
    search: S,
    automaton: NFA,
    start: StateID,
    reach: usize,
}

impl<S: Search> Across<S> {
    /// Looks for `texts`, which `search` finds in bytes that stand for themselves.
    pub fn new(search: S, texts: &[String], ignore_case: bool) -> Result<Across<S>, ParamError> {
        let built = NFA::builder().match_kind(MatchKind::Standard).ascii_case_insensitive(ignore_case).build(texts);
        let automaton = built.map_err(too_large)?;
        let start = automaton.start_state(Anchored::No).map_err(|error| ParamError::new("text", error.to_string()))?;
        let reach = automaton.max_pattern_len().saturating_sub(1);
        Ok(Across { search, automaton, start, reach })
    }

    /// Walks through `bytes`; says whether a text ends in them.
    fn walk(&self, at: &mut StateID, bytes: &[u8]) -> bool {
        let mut found = false;
        for &byte in bytes {
            *at = self.automaton.next_state(Anchored::No, *at, byte);
            found |= self.automaton.is_match(*at);
        }
        found
    }
}

impl<S: Search> Matcher for Across<S> {
    type Place = StateID;

    fn start(&self) -> StateID {
        self.start
    }

    fn behind_gap(&self) -> StateID {
        self.start
    }

    fn advance(&mut self, at: &mut StateID, bytes: &[u8], _last: bool) -> bool {
        let Some(tail) = bytes.len().checked_sub(self.reach) else { return self.walk(at, bytes) };
        let across = *at != self.start && self.walk(&mut at.clone(), &bytes[..self.reach]);
        *at = self.start;
        self.walk(at, &bytes[tail..]);
        across || self.search.is_in(bytes)
    }
}

fn too_large(error: BuildError) -> ParamError {
    ParamError::new("text", format!("too much to look for at once: {error}"))
}
