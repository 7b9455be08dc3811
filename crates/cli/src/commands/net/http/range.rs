//! One range of bytes (RFC 9110 14.1.2): the requested bytes, and those that the file has.

/// The meaning of a field `Range` for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Part {
    /// The whole file: the field is no single range of bytes, and a server may ignore it (RFC 9110 14.2).
    Whole,
    /// `len` bytes from `first` on; `len` is at least 1.
    Some { first: u64, len: u64 },
    /// No byte: the range lies outside the file.
    None,
}

/// Reads a field `Range` for a file of `len` bytes.
pub(in super::super) fn part(value: &str, len: u64) -> Part {
    let range = match value.split_once('=') {
        Some((unit, range)) if unit.trim().eq_ignore_ascii_case("bytes") => range.trim(),
        _ => return Part::Whole,
    };
    match bounds(range) {
        Some((Some(first), last)) => {
            if first >= len {
                return Part::None;
            }
            Part::Some { first, len: last.unwrap_or(u64::MAX).min(len - 1) - first + 1 }
        }
        Some((None, Some(last))) => match last.min(len) {
            0 => Part::None,
            asked => Part::Some { first: len - asked, len: asked },
        },
        _ => Part::Whole,
    }
}

/// The numbers of `1-2`, `1-` or `-2`. `None` for any other text. The second number is not less than the first.
pub(in super::super) fn bounds(range: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (first, last) = range.split_once('-')?;
    // A number beyond 64 bits lies behind the end of every file.
    let number = |text: &str| match text {
        "" => Some(None),
        _ if text.bytes().all(|byte| byte.is_ascii_digit()) => Some(Some(text.parse().unwrap_or(u64::MAX))),
        _ => None,
    };
    match (number(first)?, number(last)?) {
        (None, None) => None,
        (Some(first), Some(last)) if last < first => None,
        bounds => Some(bounds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_what_there_is() {
        let some = |first, len| Part::Some { first, len };
        for (value, len, expected) in [
            ("bytes=0-0", 10, some(0, 1)),
            ("bytes=2-5", 10, some(2, 4)),
            ("BYTES=2-", 10, some(2, 8)),
            ("bytes=9-100", 10, some(9, 1)),
            ("bytes=-3", 10, some(7, 3)),
            ("bytes=-30", 10, some(0, 10)),
            ("bytes=0-18446744073709551615", 10, some(0, 10)),
            ("bytes=0-99999999999999999999999", 10, some(0, 10)),
            ("bytes=10-", 10, Part::None),
            ("bytes=10-12", 10, Part::None),
            ("bytes=99999999999999999999999-", 10, Part::None),
            ("bytes=-0", 10, Part::None),
            ("bytes=0-", 0, Part::None),
            ("bytes=-1", 0, Part::None),
            ("bytes=5-2", 10, Part::Whole),
            ("bytes=-", 10, Part::Whole),
            ("bytes=", 10, Part::Whole),
            ("bytes=0-1,3-4", 10, Part::Whole),
            ("bytes=+1-2", 10, Part::Whole),
            ("bytes=1--2", 10, Part::Whole),
            ("lines=1-2", 10, Part::Whole),
            ("", 10, Part::Whole),
        ] {
            assert_eq!(part(value, len), expected, "{value} of {len}");
        }
    }
}
