//! Sets of numbers as requests write them: `80`, `80:90`, `"80,443,8000:8100"`, or names where a filter knows some.

use filter::prelude::*;

/// A set of numbers, as sorted ranges that do not touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    ranges: Vec<(u32, u32)>,
}

/// The meaning of the numbers.
#[derive(Clone, Copy)]
pub(crate) struct Meaning {
    /// A name with its article, for messages: "a port".
    pub what: &'static str,
    /// The largest valid number.
    pub max: u32,
    pub names: &'static [(&'static str, u32)],
}

impl Numbers {
    /// The set that parameter `key` gives; `None` without the parameter.
    pub fn from_param(params: &Params, key: &'static str, meaning: Meaning) -> Result<Option<Numbers>, ParamError> {
        let parse = |text: &str| Numbers::parse(text, meaning).map_err(|wrong| ParamError { key: Some(key), ..wrong });
        params.text(key).map(parse).transpose()
    }

    /// The ranges of parameter `key` as pairs of first and last, in a smaller type. `Some(None)`: the parameter is not
    /// given. `None`: it is invalid, or a number does not fit `T`.
    pub fn ranges_of<T: TryFrom<u32>>(
        params: &Params,
        key: &'static str,
        meaning: Meaning,
    ) -> Option<Option<Vec<(T, T)>>> {
        match Numbers::from_param(params, key, meaning).ok()? {
            None => Some(None),
            Some(numbers) => numbers.ranges().map(Some),
        }
    }

    pub fn parse(text: &str, meaning: Meaning) -> Result<Numbers, ParamError> {
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let part = part.trim();
            let (low, high) = part.split_once(':').unwrap_or((part, part));
            let (low, high) = (meaning.number(low)?, meaning.number(high)?);
            if low > high {
                return Err(wrong(format!("`{part}` ends before it begins")).with_help(format!("write {high}:{low}")));
            }
            ranges.push((low, high));
        }
        ranges.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match joined.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => joined.push((low, high)),
            }
        }
        Ok(Numbers { ranges: joined })
    }

    fn ranges<T: TryFrom<u32>>(&self) -> Option<Vec<(T, T)>> {
        let range = |&(low, high): &(u32, u32)| Some((T::try_from(low).ok()?, T::try_from(high).ok()?));
        self.ranges.iter().map(range).collect()
    }

    #[inline]
    pub fn has(&self, number: u32) -> bool {
        match self.ranges[..] {
            [(low, high)] => (low..=high).contains(&number),
            _ => self.has_among_many(number),
        }
    }

    fn has_among_many(&self, number: u32) -> bool {
        let after = self.ranges.partition_point(|(low, _)| *low <= number);
        after.checked_sub(1).is_some_and(|at| number <= self.ranges[at].1)
    }
}

impl Meaning {
    fn number(&self, text: &str) -> Result<u32, ParamError> {
        if let Some((_, number)) = self.names.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            return Ok(*number);
        }
        let parsed = match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => text.parse(),
        };
        // `str::parse` accepts `+5`; requests must not.
        match parsed {
            Ok(number) if number <= self.max && !text.starts_with('+') => Ok(number),
            _ => Err(wrong(format!("`{text}` is not {}", self.what)).with_help(self.help())),
        }
    }

    fn help(&self) -> String {
        let numbers = format!("0 to {}, ranges as 1:9, and lists in quotes as \"1,5:9\"", self.max);
        if self.names.is_empty() {
            return numbers;
        }
        let names: Vec<_> = self.names.iter().map(|(name, _)| *name).collect();
        format!("{numbers}; or: {}", names.join(", "))
    }
}

fn wrong(message: String) -> ParamError {
    ParamError::of_request(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: Meaning = Meaning { what: "a port", max: 65_535, names: &[("http", 80)] };

    #[test]
    fn lists_ranges_and_names() {
        let check = |text: &str, inside: &[u32], outside: &[u32]| {
            let numbers = Numbers::parse(text, PORT).unwrap();
            assert!(inside.iter().all(|number| numbers.has(*number)), "{text}");
            assert!(!outside.iter().any(|number| numbers.has(*number)), "{text}");
        };
        check("80", &[80], &[79, 81, 0]);
        check("0x50", &[80], &[50]);
        check("80:90", &[80, 85, 90], &[79, 91]);
        check("443,80", &[80, 443], &[0, 81, 442, 444, 65_535]);
        check("443, HTTP, 8000:8100", &[80, 443, 8000, 8100], &[7999, 8101]);
        check("0:9,5:20,21,65535", &[0, 20, 21, 65_535], &[22, 65_534]);
        assert_eq!(Numbers::parse("0:9,5:20,21", PORT).unwrap().ranges, [(0, 21)]);
    }

    #[test]
    fn refusals() {
        let check = |text: &str, message: &str| {
            assert_eq!(Numbers::parse(text, PORT).unwrap_err().message, message);
        };
        check("", "`` is not a port");
        check("80,", "`` is not a port");
        check("65536", "`65536` is not a port");
        check("+1", "`+1` is not a port");
        check("-1", "`-1` is not a port");
        check("99999999999", "`99999999999` is not a port");
        check("90:80", "`90:80` ends before it begins");
        check("80:", "`` is not a port");
        check("80:90:100", "`90:100` is not a port");
    }
}
