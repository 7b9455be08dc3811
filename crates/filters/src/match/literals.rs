//! Searches for texts: one text in a block by memory search, and any number across the pieces of a stream with the automaton
//! of Aho and Corasick.

use super::{Matcher, Search};
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};
use filter::prelude::*;
use memchr::memmem::Finder;

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

/// Texts that may begin in one piece of a stream and end in a later piece.
///
/// `reach` is the length of the longest text, less one. The automaton's state depends only on the last `reach` bytes. So it
/// walks the last `reach` bytes of a piece, and the first `reach` bytes if the piece before left a text begun. `search`
/// covers the whole piece.
pub(super) struct Across<S> {
    search: S,
    automaton: NFA,
    start: StateID,
    reach: usize,
}

impl<S: Search> Across<S> {
    /// Looks for `texts`. `search` finds them in a block by itself.
    pub fn new(search: S, texts: &[String], ignore_case: bool) -> Result<Across<S>, ParamError> {
        let built = NFA::builder().match_kind(MatchKind::Standard).ascii_case_insensitive(ignore_case).build(texts);
        let wrong = |error: &dyn std::error::Error| ParamError::new("text", format!("too much to look for: {error}"));
        let automaton = built.map_err(|error| wrong(&error))?;
        let start = automaton.start_state(Anchored::No).map_err(|error| wrong(&error))?;
        let reach = automaton.max_pattern_len().saturating_sub(1);
        Ok(Across { search, automaton, start, reach })
    }

    /// Walks through `bytes`. `true`: a text ends in them.
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
    type Cursor = StateID;

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
