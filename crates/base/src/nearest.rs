//! "Did you mean": the known word closest to a mistyped one.

use crate::limits::NEAREST_BYTES_MAX;

/// The candidate that `word` was most likely meant to be. `None`: no candidate is close.
///
/// A candidate is close if one of these holds, in this order:
/// - it differs only in case;
/// - it has few typing mistakes (one in three letters; swapped neighbours count once);
/// - `word` is its beginning (three letters or more).
///
/// Among equally close candidates, those with the same first letter win, since that is seldom mistyped; then the first
/// one.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > NEAREST_BYTES_MAX {
        return None;
    }
    let lower = word.to_lowercase();
    let letters = lower.chars().count();
    let mistakes_max = (letters / 3).max(1);
    let mut best: Option<((usize, bool), &str)> = None;
    for candidate in candidates {
        if candidate.len() > NEAREST_BYTES_MAX {
            continue;
        }
        let candidate_lower = candidate.to_lowercase();
        let mistakes = strsim::damerau_levenshtein(&lower, &candidate_lower);
        // A short word must have something in common with the candidate: `x` is not a mistyped `y`.
        let rank = if mistakes <= mistakes_max && mistakes < letters {
            mistakes
        } else if letters >= 3 && candidate_lower.starts_with(&lower) {
            mistakes_max.saturating_add(1)
        } else {
            continue;
        };
        let rank = (rank, lower.chars().next() != candidate_lower.chars().next());
        if best.is_none_or(|(best_rank, _)| rank < best_rank) {
            best = Some((rank, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    const KNOWN: &[&str] = &["http", "https", "tcp", "udp", "ethernet", "files", "port", "count", "dns"];

    #[test]
    fn close_words_are_found_and_far_ones_are_not() {
        let rows: &[(&str, Option<&str>)] = &[
            ("htttp", Some("http")),
            ("htpt", Some("http")),
            ("HTTP", Some("http")),
            ("htps", Some("https")),
            ("tpc", Some("tcp")),
            ("eth", Some("ethernet")),
            ("ethernt", Some("ethernet")),
            ("file", Some("files")),
            ("prot", Some("port")),
            ("x", None),
            ("", None),
            ("cheese", None),
            ("ud", Some("udp")),
        ];
        for (word, expected) in rows {
            assert_eq!(nearest(word, KNOWN.iter().copied()), *expected, "nearest to {word:?}");
        }
    }

    #[test]
    fn the_first_letter_decides_where_mistakes_do_not() {
        assert_eq!(nearest("htp", ["ftp", "http"]), Some("http"));
        assert_eq!(nearest("xtp", ["ftp", "ntp"]), Some("ftp"));
    }

    #[test]
    fn long_words_cost_nothing() {
        let long = "h".repeat(100_000);
        assert_eq!(nearest(&long, KNOWN.iter().copied()), None);
        assert_eq!(nearest("h", [long.as_str()]), None);
    }
}
