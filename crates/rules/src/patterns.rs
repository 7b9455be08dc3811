//! The patterns that select rules. A search over all of them replaces a search for each rule's contents.

use crate::grams::{GRAM, Grams};
use crate::inspect::Budget;
use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind, MatchKind};
use std::collections::HashMap;

/// A pattern of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern<'a> {
    pub rule: u32,
    pub bytes: &'a [u8],
    /// The offset in the buffer at which the pattern ends at the latest.
    pub end: Option<u64>,
}

/// Patterns, and the rules that each pattern selects.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    /// Patterns that end before `near_end`.
    near: Vec<Search>,
    near_end: u64,
    far: Vec<Search>,
    /// Length of the longest pattern.
    pub longest: usize,
}

/// A search for patterns of similar length.
#[derive(Debug)]
struct Search {
    machine: Machine,
    /// Rule indexes by pattern.
    rules: Vec<Vec<u32>>,
}

#[derive(Debug)]
enum Machine {
    Short(AhoCorasick),
    Grams(Grams),
}

/// Patterns that end up to this offset have a search of their own, which looks at no more bytes.
const NEAR: u64 = 1024;

/// Offsets between the lookups of a search, by length of pattern. A longer stride looks up less often.
const STRIDES: [usize; 3] = [4, 2, 1];

/// Up to this many pattern bytes, short patterns get the faster automaton, which takes more memory.
const FAST_MACHINE_BYTES: usize = 64 << 10;

/// Bytes searched in the time that one callback takes.
const CALL_BYTES: usize = 4;
/// Callbacks between updates of the budget.
const CALLS: usize = 1024;

impl Patterns {
    pub fn new(patterns: &[Pattern<'_>]) -> Result<Patterns, String> {
        let end = |pattern: &Pattern<'_>| pattern.end.filter(|end| *end <= NEAR);
        let (near, far): (Vec<_>, Vec<_>) = patterns.iter().partition(|pattern| end(pattern).is_some());
        Ok(Patterns {
            near_end: near.iter().filter_map(end).max().unwrap_or(0),
            near: searches(&near)?,
            far: searches(&far)?,
            longest: patterns.iter().map(|pattern| pattern.bytes.len()).max().unwrap_or(0),
        })
    }

    /// Calls `found` with the rule and the offset in `bytes` of each pattern found; a rule may come several times.
    /// `start`: the offset of `bytes` in the buffer. Charges the budget, and stops when it is exhausted.
    pub fn each(&self, bytes: &[u8], start: u64, budget: &mut Budget, mut found: impl FnMut(u32, usize)) {
        let near = usize::try_from(self.near_end.saturating_sub(start)).unwrap_or(usize::MAX);
        let near = &bytes[..bytes.len().min(near)];
        for (searches, bytes) in [(&self.near, near), (&self.far, bytes)] {
            if !searches.iter().all(|search| search.each(bytes, budget, &mut found)) {
                return;
            }
        }
    }
}

/// Patterns of similar length, and the rules of each.
#[derive(Default)]
struct Class {
    texts: Vec<Vec<u8>>,
    rules: Vec<Vec<u32>>,
}

/// One search for each class of length.
fn searches(patterns: &[Pattern<'_>]) -> Result<Vec<Search>, String> {
    // The last class has the shortest patterns.
    let mut classes: [Class; STRIDES.len() + 1] = Default::default();
    let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
    for pattern in patterns {
        let lower = pattern.bytes.to_ascii_lowercase();
        let fits = |stride: &usize| lower.len() >= GRAM + stride - 1;
        let Class { texts, rules } = &mut classes[STRIDES.iter().position(fits).unwrap_or(STRIDES.len())];
        let place = *places.entry(lower.clone()).or_insert_with(|| {
            texts.push(lower);
            rules.push(Vec::new());
            rules.len() - 1
        });
        rules[place].push(pattern.rule);
    }
    let strides = STRIDES.iter().map(Some).chain([None]);
    let used = classes.into_iter().zip(strides).filter(|(class, _)| !class.texts.is_empty());
    used.map(|(Class { texts, rules }, stride)| {
        let machine = match stride {
            Some(stride) => Machine::Grams(Grams::new(texts, *stride)),
            None => Machine::Short(automaton(&texts)?),
        };
        Ok(Search { machine, rules })
    })
    .collect()
}

fn automaton(texts: &[Vec<u8>]) -> Result<AhoCorasick, String> {
    let bytes: usize = texts.iter().map(Vec::len).sum();
    let kind = (bytes <= FAST_MACHINE_BYTES).then_some(AhoCorasickKind::DFA);
    let mut builder = AhoCorasickBuilder::new();
    builder.match_kind(MatchKind::Standard).ascii_case_insensitive(true).kind(kind);
    builder.build(texts).map_err(|error| error.to_string())
}

impl Search {
    /// Calls `found` with the rule and the offset of each pattern found. Returns `false` if the budget is exhausted.
    fn each(&self, bytes: &[u8], budget: &mut Budget, mut found: impl FnMut(u32, usize)) -> bool {
        let mut calls = 0;
        let mut call = |pattern: usize, at: usize| {
            let rules = &self.rules[pattern];
            rules.iter().for_each(|rule| found(*rule, at));
            rules.len()
        };
        match &self.machine {
            Machine::Short(machine) => {
                if !budget.take_bytes(bytes.len()) {
                    return false;
                }
                for hit in machine.find_overlapping_iter(bytes) {
                    calls += call(hit.pattern().as_usize(), hit.start());
                    if calls >= CALLS && !budget.take_bytes(std::mem::take(&mut calls) * CALL_BYTES) {
                        return false;
                    }
                }
                true
            }
            Machine::Grams(grams) => {
                let compared = grams.each(bytes, |pattern, at| calls += call(pattern, at));
                budget.take_bytes(bytes.len() + (compared + calls) * CALL_BYTES)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(patterns: &Patterns, bytes: &[u8], start: u64) -> Vec<(u32, usize)> {
        let (mut all, mut budget) = (Vec::new(), Budget { steps: 1 << 20, spent: false });
        patterns.each(bytes, start, &mut budget, |rule, at| all.push((rule, at)));
        all.sort_unstable();
        all
    }

    #[test]
    fn patterns_of_every_length_are_found() {
        let text = b"0123456789abcdef";
        let of = |rule: u32| Pattern { rule, bytes: &text[..rule as usize], end: None };
        let patterns = Patterns::new(&(1..=16).map(of).collect::<Vec<_>>()).unwrap();
        for before in 0..9 {
            let bytes = [&vec![b'x'; before][..], &text.to_ascii_uppercase()].concat();
            assert_eq!(
                found(&patterns, &bytes, 0),
                (1..=16).map(|rule| (rule, before)).collect::<Vec<_>>(),
                "{before}"
            );
        }
    }

    #[test]
    fn near_patterns_are_looked_for_up_to_their_end_alone() {
        let near = Pattern { rule: 0, bytes: b"pattern", end: Some(20) };
        let far = Pattern { rule: 1, bytes: b"pattern", end: Some(NEAR + 1) };
        let patterns = Patterns::new(&[near, far]).unwrap();
        for (start, at, all) in
            [(0, 13, &[(0, 13), (1, 13)][..]), (0, 14, &[(1, 14)]), (8, 5, &[(0, 5), (1, 5)]), (30, 0, &[(1, 0)])]
        {
            let bytes = [&vec![b'x'; at][..], b"pattern"].concat();
            assert_eq!(found(&patterns, &bytes, start), all, "{start} {at}");
        }
    }
}
