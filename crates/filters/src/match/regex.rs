//! Regular expressions on bytes. The fastest engine searches independent blocks. A deterministic automaton searches streams,
//! which need to keep only its state between two blocks.

use super::{Matcher, Search};
use filter::prelude::*;
use regex_automata::dfa::{Automaton, dense};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::prefilter::Prefilter;
use regex_automata::util::primitives::StateID;
use regex_automata::util::{start, syntax};
use regex_automata::{Anchored, Input, MatchKind, meta};
use regex_syntax::hir::{Hir, Look, LookSet};

/// Limit of the non-deterministic automaton, in bytes. Repetitions multiply its states.
const NFA_BYTES: usize = 8 << 20;
/// Limit of a deterministic automaton and of its construction, in bytes.
const DFA_BYTES: usize = 16 << 20;
/// Limit of the states of a lazily built automaton, in bytes.
const LAZY_DFA_BYTES: usize = 2 << 20;

/// Searches independent blocks.
pub(super) struct Alone {
    engine: meta::Regex,
    cache: meta::Cache,
}

impl Alone {
    pub fn new(expressions: &[String], texts: &[String], ignore_case: bool) -> Result<Alone, ParamError> {
        let config = meta::Config::new()
            .utf8_empty(false)
            .which_captures(WhichCaptures::Implicit)
            .nfa_size_limit(Some(NFA_BYTES))
            .hybrid_cache_capacity(LAZY_DFA_BYTES);
        let parsed = parse(expressions, texts, ignore_case)?;
        let engine = meta::Builder::new().configure(config).build_many_from_hir(&parsed).map_err(|error| {
            too_large(error.size_limit().map_or_else(|| error.to_string(), |limit| format!("over {limit} bytes")))
        })?;
        let cache = engine.create_cache();
        Ok(Alone { engine, cache })
    }
}

impl Search for Alone {
    #[inline]
    fn is_in(&mut self, bytes: &[u8]) -> bool {
        self.engine.search_half_with(&mut self.cache, &Input::new(bytes).earliest(true)).is_some()
    }
}

/// Searches bytes that come piece by piece.
///
/// The automaton reports a match one byte after its end, because that byte can matter (`$`, `\b`). Where it cannot matter,
/// the matcher asks at the end of each piece what the automaton would report.
pub(super) struct Across {
    automaton: dense::DFA<Vec<u32>>,
    start: StateID,
    behind_gap: StateID,
    /// The byte behind a match can matter.
    looks_ahead: bool,
    /// From a state without a begun match, finds where a match can begin.
    prefilter: Option<Prefilter>,
}

impl Across {
    pub fn new(expressions: &[String], texts: &[String], ignore_case: bool) -> Result<Across, ParamError> {
        let parsed = parse(expressions, texts, ignore_case)?;
        let looks = parsed.iter().fold(LookSet::empty(), |all, one| all.union(one.properties().look_set()));
        let looks_ahead = looks.iter().any(|look| !matches!(look, Look::Start | Look::StartLF));
        let prefilter = Prefilter::from_hirs_prefix(MatchKind::LeftmostFirst, &parsed)
            .filter(|prefilter| prefilter.is_fast() && looks.is_empty());
        let nfa =
            thompson::Config::new().utf8(false).which_captures(WhichCaptures::None).nfa_size_limit(Some(NFA_BYTES));
        let nfa = thompson::Compiler::new().configure(nfa).build_many_from_hir(&parsed).map_err(too_large)?;
        let dfa = dense::Config::new()
            // Report every place where a match ends.
            .match_kind(MatchKind::All)
            .start_kind(regex_automata::dfa::StartKind::Unanchored)
            .specialize_start_states(prefilter.is_some())
            .dfa_size_limit(Some(DFA_BYTES))
            .determinize_size_limit(Some(DFA_BYTES));
        let automaton = dense::Builder::new().configure(dfa).build_from_nfa(&nfa).map_err(too_large)?;
        let start_behind = |byte| {
            let config = start::Config::new().anchored(Anchored::No).look_behind(byte);
            automaton.start_state(&config).map_err(too_large)
        };
        // The missing bytes are unknown. Assume a byte that is neither a letter nor a line end.
        let (start, behind_gap) = (start_behind(None)?, start_behind(Some(0))?);
        Ok(Across { automaton, start, behind_gap, looks_ahead, prefilter })
    }

    /// The first place from `from` on where a match can begin, or where too few bytes are left to rule that out.
    #[inline]
    fn skip(prefilter: &Prefilter, bytes: &[u8], from: usize) -> usize {
        let unsure = bytes.len().saturating_sub(prefilter.max_needle_len().saturating_sub(1)).max(from);
        prefilter.find(bytes, (from..bytes.len()).into()).map_or(unsure, |found| found.start.min(unsure))
    }
}

impl Matcher for Across {
    type Cursor = StateID;

    fn start(&self) -> StateID {
        self.start
    }

    fn behind_gap(&self) -> StateID {
        self.behind_gap
    }

    fn advance(&mut self, at: &mut StateID, bytes: &[u8], last: bool) -> bool {
        let automaton = &self.automaton;
        let (mut state, mut next, mut found) = (*at, 0, false);
        loop {
            if automaton.is_special_state(state) {
                if automaton.is_dead_state(state) || automaton.is_quit_state(state) {
                    break;
                } else if automaton.is_match_state(state) {
                    // After the first byte: this match ended in the piece before, which reported it unless the expression
                    // looks ahead.
                    found |= next > 1 || next == 1 && self.looks_ahead;
                } else if let Some(prefilter) = self.prefilter.as_ref().filter(|_| automaton.is_start_state(state)) {
                    next = Across::skip(prefilter, bytes, next);
                }
            }
            let Some(&byte) = bytes.get(next) else { break };
            state = automaton.next_state(state, byte);
            next += 1;
        }
        *at = state;
        let ends_here = if self.looks_ahead { last } else { !bytes.is_empty() };
        found || ends_here && automaton.is_match_state(automaton.next_eoi_state(state))
    }
}

/// Parses expressions, and texts as expressions.
fn parse(expressions: &[String], texts: &[String], ignore_case: bool) -> Result<Vec<Hir>, ParamError> {
    let config = syntax::Config::new().unicode(false).utf8(false).case_insensitive(ignore_case);
    let texts = texts.iter().map(|text| regex_syntax::escape(text));
    let mut parsed = Vec::with_capacity(expressions.len() + texts.len());
    for pattern in expressions.iter().cloned().chain(texts) {
        let one = syntax::parse_with(&pattern, &config).map_err(|error| wrong(&pattern, &error))?;
        if one.properties().minimum_len() == Some(0) {
            return Err(ParamError::new("regex", format!("`{pattern}` matches the empty text, and so everything"))
                .with_help("`+` instead of `*` wants one at least"));
        }
        parsed.push(one);
    }
    Ok(parsed)
}

fn wrong(pattern: &str, error: &regex_syntax::Error) -> ParamError {
    let (what, place) = match error {
        regex_syntax::Error::Parse(error) => (error.kind().to_string(), Some(error.span().start.offset)),
        regex_syntax::Error::Translate(error) => (error.kind().to_string(), Some(error.span().start.offset)),
        other => (other.to_string(), None),
    };
    let place = place.map_or(String::new(), |offset| format!(" at byte {offset}"));
    ParamError::new("regex", format!("`{pattern}` is no regular expression: {what}{place}"))
}

fn too_large(error: impl std::fmt::Display) -> ParamError {
    ParamError::new("regex", format!("the automaton of the patterns cannot be built: {error}"))
        .with_help("fewer or smaller repetitions; classes in ASCII, which is what they are without (?u)")
}
