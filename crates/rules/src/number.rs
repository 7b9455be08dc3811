//! Comparisons with a number: `5`, `!5`, `<5`, `>=5`, `5-10`, `5<>10`.

use crate::mistake::Read;
use crate::text::{Word, unsigned};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal(u64),
    Other(u64),
    Less(u64),
    AtMost(u64),
    More(u64),
    AtLeast(u64),
    /// Between the two, both excluded.
    Between(u64, u64),
    /// Compares the bits in `mask` with `value`; `negated` inverts the result.
    Bits {
        mask: u64,
        value: u64,
        negated: bool,
    },
}

impl Compare {
    pub fn holds(&self, number: u64) -> bool {
        match *self {
            Compare::Equal(value) => number == value,
            Compare::Other(value) => number != value,
            Compare::Less(value) => number < value,
            Compare::AtMost(value) => number <= value,
            Compare::More(value) => number > value,
            Compare::AtLeast(value) => number >= value,
            Compare::Between(low, high) => number > low && number < high,
            Compare::Bits { mask, value, negated } => (number & mask == value) != negated,
        }
    }

    /// Reads a comparison. `name` translates words into numbers, for keywords that have words.
    pub fn read(word: Word<'_>, bits: u32, name: impl Fn(&str) -> Option<u64>) -> Read<Compare> {
        let word = word.trim();
        let value = |skip: usize| {
            let rest = Word::new(&word.text[skip..], word.at + skip).trim();
            match name(rest.text) {
                Some(number) => Ok(number),
                None => unsigned(rest, bits),
            }
        };
        let text = word.text;
        if let Some(at) = text.find("<>") {
            let (low, high) = (Word::new(&text[..at], word.at), Word::new(&text[at + 2..], word.at + at + 2));
            return between(word, unsigned(low, bits)?, unsigned(high, bits)?);
        }
        if text.starts_with("&=") {
            let mask = value(2)?;
            return Ok(Compare::Bits { mask, value: mask, negated: false });
        }
        if text.starts_with("!&") || text.starts_with("-&") {
            let mask = value(2)?;
            return Ok(Compare::Bits { mask, value: mask, negated: true });
        }
        if let Some((mask, wanted)) = text.strip_prefix('&').and_then(|text| text.split_once('=')) {
            let mask = unsigned(Word::new(mask, word.at + 1).trim(), bits)?;
            let wanted = unsigned(Word::new(wanted, word.at).trim(), bits)?;
            return Ok(Compare::Bits { mask, value: wanted, negated: false });
        }
        if text.starts_with('&') {
            let mask = value(1)?;
            return Ok(Compare::Bits { mask, value: 0, negated: true });
        }
        for (sign, make) in [
            ("<=", Compare::AtMost as fn(u64) -> Compare),
            (">=", Compare::AtLeast),
            ("!=", Compare::Other),
            ("<", Compare::Less),
            (">", Compare::More),
            ("!", Compare::Other),
            ("==", Compare::Equal),
            ("=", Compare::Equal),
        ] {
            if text.starts_with(sign) {
                return Ok(make(value(sign.len())?));
            }
        }
        if let Some(number) = name(text) {
            return Ok(Compare::Equal(number));
        }
        if let Some(at) = text.find('-').filter(|at| *at > 0) {
            let (low, high) = (Word::new(&text[..at], word.at), Word::new(&text[at + 1..], word.at + at + 1));
            return between(word, unsigned(low, bits)?, unsigned(high, bits)?);
        }
        Ok(Compare::Equal(unsigned(word, bits)?))
    }
}

/// Selects among several numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Among {
    /// At least one number matches.
    Any,
    /// All numbers match. `or_none`: also holds if there are none.
    All { or_none: bool },
    /// The number at `place` matches; negative counts from the end. `or_none`: also holds if it is missing.
    At { place: i64, or_none: bool },
    /// This many numbers match.
    Count(Compare),
}

impl Among {
    /// Reads the selector behind the comma.
    pub fn read(word: Word<'_>) -> Read<Among> {
        let (text, or_none) =
            word.text.strip_prefix("or_absent ").map_or((word.text, false), |rest| (rest.trim(), true));
        Ok(match text {
            "any" => Among::Any,
            "all" => Among::All { or_none: true },
            "all1" => Among::All { or_none: false },
            _ if text.starts_with("nb") => {
                let count = Word::new(&text[2..], word.at + word.text.len() - text.len() + 2);
                Among::Count(Compare::read(count, 32, |_| None)?)
            }
            _ => {
                let number = Word::new(text, word.at + word.text.len() - text.len());
                Among::At { place: crate::text::number(number)?, or_none }
            }
        })
    }

    pub fn holds(self, compare: &Compare, mut numbers: impl Iterator<Item = u64>) -> bool {
        match self {
            Among::Any => numbers.any(|number| compare.holds(number)),
            Among::All { or_none } => {
                let (mut none, mut all) = (true, true);
                numbers.for_each(|number| {
                    none = false;
                    all &= compare.holds(number);
                });
                all && (or_none || !none)
            }
            Among::At { place, or_none } => {
                let all: Vec<u64> = numbers.collect();
                let place = if place < 0 { place + all.len() as i64 } else { place };
                let one = usize::try_from(place).ok().and_then(|place| all.get(place));
                one.map_or(or_none, |number| compare.holds(*number))
            }
            Among::Count(count) => count.holds(numbers.filter(|number| compare.holds(*number)).count() as u64),
        }
    }
}

fn between(word: Word<'_>, low: u64, high: u64) -> Read<Compare> {
    if low >= high {
        return word.wrong(format!("no number lies between {low} and {high}"));
    }
    Ok(Compare::Between(low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons() {
        let read = |text: &str| Compare::read(Word::new(text, 0), 16, |word| (word == "ten").then_some(10));
        let rows = [
            ("5", Compare::Equal(5)),
            ("!5", Compare::Other(5)),
            ("< 5", Compare::Less(5)),
            (">=5", Compare::AtLeast(5)),
            ("5-10", Compare::Between(5, 10)),
            ("5<>10", Compare::Between(5, 10)),
            ("!ten", Compare::Other(10)),
            ("0x10", Compare::Equal(16)),
        ];
        for (text, expected) in rows {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
        for text in ["", "x", "10-5", "65536", ">", "5<>5"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn one_of_several() {
        let check = |text: &str, numbers: &[u64], expected: bool| {
            let among = Among::read(Word::new(text, 0)).unwrap();
            assert_eq!(among.holds(&Compare::Equal(5), numbers.iter().copied()), expected, "{text} of {numbers:?}");
        };
        check("any", &[1, 5], true);
        check("any", &[], false);
        check("all", &[5, 5], true);
        check("all", &[5, 1], false);
        check("all", &[], true);
        check("all1", &[], false);
        check("0", &[5, 1], true);
        check("1", &[5, 1], false);
        check("-1", &[1, 5], true);
        check("2", &[5], false);
        check("or_absent 2", &[5], true);
        check("nb>1", &[5, 5], true);
        check("nb>1", &[5, 1], false);
        for wrong in ["", "some", "1.5", "nb"] {
            assert!(Among::read(Word::new(wrong, 0)).is_err(), "{wrong}");
        }
    }
}
