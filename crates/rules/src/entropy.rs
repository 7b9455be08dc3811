//! The keyword `entropy`: Shannon entropy of a buffer, in bits per byte (0 to 8).

use crate::mistake::Read;
use crate::text::{Opt, Word, unsigned};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entropy {
    offset: usize,
    /// 0: the rest of the buffer.
    bytes: usize,
    test: Test,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Test {
    Equal(f64),
    Other(f64),
    Less(f64),
    AtMost(f64),
    More(f64),
    AtLeast(f64),
    Within(f64, f64),
    Beyond(f64, f64),
}

impl Entropy {
    /// Reads an option; `value` with a comparison is required.
    pub fn read(option: &Opt<'_>) -> Read<Entropy> {
        let value = option.needed()?;
        let (mut offset, mut bytes, mut test) = (0, 0, None);
        for word in value.split(',') {
            let (name, rest) = word.text.split_once(' ').unwrap_or((word.text, ""));
            let rest = Word::new(rest, word.at + name.len() + 1).trim();
            match name {
                "offset" => offset = unsigned(rest, 32)? as usize,
                "bytes" => bytes = unsigned(rest, 32)? as usize,
                "value" => test = Some(Test::read(rest)?),
                other => return word.wrong(format!("entropy does not know \u{201c}{other}\u{201d}")),
            }
        }
        match test {
            Some(test) => Ok(Entropy { offset, bytes, test }),
            None => value.wrong("entropy needs a value"),
        }
    }

    pub fn holds(&self, buffer: &[u8]) -> bool {
        let part = buffer.get(self.offset..).unwrap_or_default();
        let part = if self.bytes == 0 { part } else { &part[..part.len().min(self.bytes)] };
        !part.is_empty() && self.test.holds(of(part))
    }
}

impl Test {
    fn read(word: Word<'_>) -> Read<Test> {
        let number = |text: &str| match text.trim().parse::<f64>() {
            Ok(number) if (0.0..=8.0).contains(&number) => Ok(number),
            _ => word.wrong(format!("\u{201c}{}\u{201d} is no number from 0 to 8", text.trim())),
        };
        let text = word.text;
        for (sign, make) in [
            ("<=", Test::AtMost as fn(f64) -> Test),
            (">=", Test::AtLeast),
            ("!=", Test::Other),
            ("<", Test::Less),
            (">", Test::More),
            ("=", Test::Equal),
        ] {
            if let Some(rest) = text.strip_prefix(sign) {
                return Ok(make(number(rest)?));
            }
        }
        let (negated, range) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        match (range.split_once('-'), negated) {
            (Some((low, high)), false) => Ok(Test::Within(number(low)?, number(high)?)),
            (Some((low, high)), true) => Ok(Test::Beyond(number(low)?, number(high)?)),
            (None, false) => Ok(Test::Equal(number(range)?)),
            (None, true) => Ok(Test::Other(number(range)?)),
        }
    }

    fn holds(self, found: f64) -> bool {
        match self {
            Test::Equal(value) => found == value,
            Test::Other(value) => found != value,
            Test::Less(value) => found < value,
            Test::AtMost(value) => found <= value,
            Test::More(value) => found > value,
            Test::AtLeast(value) => found >= value,
            Test::Within(low, high) => found > low && found < high,
            Test::Beyond(low, high) => found < low || found > high,
        }
    }
}

/// Bits per byte.
fn of(bytes: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let all = bytes.len() as f64;
    let part = |count: &u32| f64::from(*count) / all;
    -counts.iter().filter(|count| **count > 0).map(part).map(|part| part * part.log2()).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropies() {
        let check = |value: &str, buffer: &[u8], expected: bool| {
            let option = Opt { name: Word::new("entropy", 0), value: Some(Word::new(value, 0)) };
            assert_eq!(Entropy::read(&option).unwrap().holds(buffer), expected, "{value} of {buffer:?}");
        };
        check("value = 0", b"aaaa", true);
        check("value = 1", b"abab", true);
        check("value >= 2", b"abcd", true);
        check("value > 2", b"abcd", false);
        check("value 1-3", b"abcd", true);
        check("value !1-3", b"abcd", false);
        check("value != 2", b"abcd", false);
        check("offset 2, value = 0", b"abcc", true);
        check("bytes 2, value = 1", b"abcc", true);
        check("value < 8", b"", false);
        for wrong in ["", "value", "value >9", "value x", "offset 1", "size 1, value >1"] {
            let option = Opt { name: Word::new("entropy", 0), value: Some(Word::new(wrong, 0)) };
            assert!(Entropy::read(&option).is_err(), "{wrong}");
        }
    }
}
