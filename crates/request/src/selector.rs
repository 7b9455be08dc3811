//! Class selectors, from text and to text: `22`, `!80`, `22:23`, `!1:1023`, `!`.

use std::fmt;

use crate::diagnostic::{Diagnostic, Span};
use crate::tree::Selector;

pub(crate) fn parse(text: &str, span: Span) -> Result<Selector, Diagnostic> {
    let (invert, range) = match text.strip_prefix('!') {
        Some(range) => (true, range),
        None => (false, text),
    };
    if invert && range.is_empty() {
        return Ok(Selector::Otherwise);
    }
    let range_start = span.start + usize::from(invert);
    let (low_text, high_text) = match range.split_once(':') {
        Some((low, high)) => (low, high),
        None => (range, range),
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(low_text) || !is_number(high_text) {
        return Err(Diagnostic::new(format!("`{text}` is no class selector"), span)
            .with_label("expected a number or a range")
            .with_help("a selector is `22`, `!80`, `22:23`, `!1:1023`, or `!` for what no other edge selects, else what is rejected"));
    }
    let number = |text: &str, start: usize| {
        // The text has digits only, so parsing fails only when the number is too large.
        text.parse::<u32>().map_err(|_| {
            Diagnostic::new(format!("class {text} is too large"), Span::new(start, start + text.len()))
                .with_label(format!("at most {}", u32::MAX))
        })
    };
    let low = number(low_text, range_start)?;
    let high = number(high_text, span.end - high_text.len())?;
    if low > high {
        return Err(Diagnostic::new(
            format!("the range {low}:{high} runs backwards"),
            Span::new(range_start, span.end),
        )
        .with_label("holds no class")
        .with_help(format!("write `{high}:{low}`")));
    }
    Ok(Selector::Classes { invert, low, high })
}

impl fmt::Display for Selector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Otherwise => formatter.write_str("!"),
            Selector::Classes { invert, low, high } => {
                let bang = if *invert { "!" } else { "" };
                if low == high { write!(formatter, "{bang}{low}") } else { write!(formatter, "{bang}{low}:{high}") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::diagnostic::Span;
    use crate::tree::Selector;

    #[test]
    fn selectors_to_numbers_and_back() {
        let rows: &[(&str, Selector, &str)] = &[
            ("22", Selector::Classes { invert: false, low: 22, high: 22 }, "22"),
            ("0", Selector::Classes { invert: false, low: 0, high: 0 }, "0"),
            ("007", Selector::Classes { invert: false, low: 7, high: 7 }, "7"),
            ("!80", Selector::Classes { invert: true, low: 80, high: 80 }, "!80"),
            ("22:23", Selector::Classes { invert: false, low: 22, high: 23 }, "22:23"),
            ("5:5", Selector::Classes { invert: false, low: 5, high: 5 }, "5"),
            ("!1:4294967295", Selector::Classes { invert: true, low: 1, high: u32::MAX }, "!1:4294967295"),
            ("!", Selector::Otherwise, "!"),
        ];
        for (text, expected, printed) in rows {
            let selector = parse(text, Span::new(0, text.len())).expect("a selector");
            assert_eq!(selector, *expected, "{text}");
            assert_eq!(selector.to_string(), *printed, "{text}");
        }
    }

    #[test]
    fn errors_point_into_the_selector() {
        let rows: &[(&str, usize, usize)] = &[
            ("80x", 10, 13),
            ("!!80", 10, 14),
            ("22:", 10, 13),
            (":22", 10, 13),
            ("1:2:3", 10, 15),
            ("-1", 10, 12),
            ("4294967296", 10, 20),
            ("!1:4294967296", 13, 23),
            ("99999999999999999999999:1", 10, 33),
            ("!80:22", 11, 16),
        ];
        for (text, start, end) in rows {
            let error = parse(text, Span::new(10, 10 + text.len())).expect_err("no selector");
            assert_eq!((error.span.start, error.span.end), (*start, *end), "{text}: {}", error.message);
        }
    }
}
