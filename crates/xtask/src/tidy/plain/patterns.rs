//! Turns of phrase that have to be read twice, as regular expressions, and the limit of a sentence's length.

use regex_automata::meta::Regex;

/// The most words between two of `.`, `!`, `?`, `;` and `:`.
const MOST_WORDS: usize = 32;

/// A reason and its pattern; case does not matter. Without a reason: good English that a later pattern would find.
/// Of the matches that begin at the same character, the first row wins.
const PATTERNS: &[(Option<&str>, &str)] = &[
    (
        None,
        r"\b(?:users?|people|persons?|developers?|programmers?|maintainers?|operators?|administrators?|attackers?) who\b",
    ),
    (None, r"\bthe others (?:are|were|have|had|can|may|need|wait|read)\b"),
    (None, r"(?:^|[.:;] +)What [^.:;!?]*\?"),
    (Some("no actor"), r"\bwhoever\b"),
    (
        Some("no actor"),
        r"\bwho (?:is|was|were|has|had|asks?|reads?|wants?|wishes|sends?|takes?|gets?|may|can|comes?|came|shares?|looks?|connects?|parses?|made|makes|lets?|does|did|begins?|goes|listens|watches|wrote|writes|died|dies?|knows|there)\b",
    ),
    (Some("no actor"), r"\b(?:for|to|of|by|from|with|than|as) whom?\b"),
    (Some("no actor"), r"\b(?:nobody|somebody|everybody|anybody)\b"),
    (
        Some("no actor"),
        r"\b(?:others'?|nothing|none) (?:is|are|was|were|has|have|had|can|may|wants?|reads?|looks?|that|who|knows?|comes?|asks?|waits?|needs?|goes)\b",
    ),
    (Some("which amount?"), r"\bso (?:many|much)\b"),
    (
        Some("noun missing"),
        r"(?:^|[.:;] +)What (?:is|was|are|were|it|they|he|comes?|came|has|had|does|can|may|must|both|only|all|the)\b",
    ),
    (Some("noun missing"), r"\b(?:of|from|to|than|by|with|for|in) what\b|\ball that\b|\bthat which\b"),
    (
        Some("dated"),
        r"\b(?:is had|there is to|for it is|but for|thereby|hereby|whereby|wherein|therein|thereof|thence|whence)\b",
    ),
    (Some("dated"), r"\b(?:hence it|lest|anew|ere|dear|dearer|albeit|unto)\b"),
    (Some("archaic order"), r"\b(?:are|is|was|were) s?he who\b|\bhe takes\b|\bhas (?:a |an |the )?\w+ not\b"),
];

#[derive(Debug)]
pub(super) struct Patterns(Regex);

impl Patterns {
    pub fn new() -> Patterns {
        let patterns: Vec<String> = PATTERNS.iter().map(|(_, pattern)| format!("(?i){pattern}")).collect();
        Patterns(Regex::new_many(&patterns).expect("the patterns above are regular expressions"))
    }

    /// The places in a passage: where each begins in `words`, and the reason with the words that match.
    pub fn find(&self, words: &str) -> impl Iterator<Item = (usize, String)> {
        let matches = self.0.find_iter(words).filter_map(|found| {
            let text = words[found.range()].trim_start_matches(['.', ':', ';', ' ']);
            let reason = PATTERNS[found.pattern()].0?;
            Some((found.end() - text.len(), format!("{reason}: \"{text}\"")))
        });
        let long = sentences(words).filter(|(_, sentence)| sentence.split_whitespace().count() > MOST_WORDS);
        let long = long.map(|(at, sentence)| {
            let opening: Vec<&str> = sentence.split_whitespace().take(6).collect();
            (at, format!("over {MOST_WORDS} words: \"{} ...\"", opening.join(" ")))
        });
        matches.chain(long)
    }
}

/// The parts of a passage between stops, with where each begins.
fn sentences(words: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    words
        .split_inclusive([' '])
        .scan(None::<usize>, move |open, word| {
            let begin = *open.get_or_insert(at);
            at += word.len();
            let stops = word.trim_end().ends_with(['.', '!', '?', ';', ':']) || at == words.len();
            if stops {
                *open = None;
            }
            Some(stops.then(|| (begin, &words[begin..at])))
        })
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &str, expected: &[(usize, &str)]) {
        let found: Vec<(usize, String)> = Patterns::new().find(words).collect();
        let found: Vec<(usize, &str)> = found.iter().map(|(at, reason)| (*at, reason.as_str())).collect();
        assert_eq!(found, expected, "{words}");
    }

    #[test]
    fn odd_turns_are_found() {
        check("Whoever reads waits.", &[(0, "no actor: \"Whoever\"")]);
        check("Frees who waits: who reads is told.", &[(17, "no actor: \"who reads\"")]);
        check("Users who read and people who write.", &[]);
        check("It is nobody's, and none is kept.", &[(6, "no actor: \"nobody\""), (20, "no actor: \"none is\"")]);
        check("None of them; nothing else; the others are kept.", &[]);
        check("Waits so many seconds.", &[(6, "which amount?: \"so many\"")]);
        check("Ends. What was read is kept.", &[(6, "noun missing: \"What was\"")]);
        check("What is it? The length of a header.", &[]);
        check(
            "The length of what follows, for it is kept.",
            &[(11, "noun missing: \"of what\""), (28, "dated: \"for it is\"")],
        );
        check("The reader has it not.", &[(11, "archaic order: \"has it not\"")]);
    }

    #[test]
    fn sentences_have_a_longest_length() {
        let words = |count: usize| vec!["word"; count].join(" ");
        check(&words(32), &[]);
        check(&format!("{}; {}.", words(20), words(20)), &[]);
        check(&format!("One. {}", words(33)), &[(5, "over 32 words: \"word word word word word word ...\"")]);
    }
}
