//! Classes of flows, and the text of a guarantee: `4ms/100ms`, `4ms/100ms+slack`.

use std::fmt;
use std::str::FromStr;

/// The longest period: an hour, in ns.
pub const LONGEST_PERIOD_NS: u64 = 3_600_000_000_000;

/// The units of a time, the largest first.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// A slice of wire time in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guarantee {
    /// Wire time a period in ns: at least 1, at most the period.
    pub slice_ns: u64,
    /// The period in ns, at most [`LONGEST_PERIOD_NS`].
    pub period_ns: u64,
    /// Whether the flow may also use time that is left over. Its weight there is [`Options::slack_weight`](crate::Options).
    pub slack: bool,
}

/// The class of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A slice in each period.
    Guaranteed(Guarantee),
    /// A share of the time that slices leave over.
    Fair {
        /// The share, relative to the other flows; at least 1.
        weight: u32,
    },
    /// Only the time that no other flow wants.
    Background,
}

/// The reason why a guarantee cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuaranteeError {
    /// The text has no `/`.
    NoPeriod,
    /// A time that is no number with a unit.
    Time(String),
    /// Something other than `slack` behind the `+`.
    Suffix(String),
    /// A slice of no time.
    NoSlice,
    /// The slice is longer than the period.
    SliceOverPeriod,
    /// The period is longer than [`LONGEST_PERIOD_NS`].
    LongPeriod,
}

/// The whole wire, in the unit of [`Guarantee::share`].
pub const WHOLE: u64 = 1 << 40;

impl Guarantee {
    /// The part of the wire that it takes, in parts of [`WHOLE`], rounded down.
    pub fn share(&self) -> u64 {
        // A slice is at most its period, and a share at most WHOLE.
        ((u128::from(self.slice_ns) << 40) / u128::from(self.period_ns.max(1))) as u64
    }

    /// Checks the numbers against each other.
    ///
    /// # Errors
    /// [`GuaranteeError`] if there is no slice, or one of the times is too long.
    pub fn check(&self) -> Result<(), GuaranteeError> {
        match self {
            Guarantee { period_ns, .. } if *period_ns > LONGEST_PERIOD_NS => Err(GuaranteeError::LongPeriod),
            Guarantee { slice_ns: 0, .. } => Err(GuaranteeError::NoSlice),
            Guarantee { slice_ns, period_ns, .. } if slice_ns > period_ns => Err(GuaranteeError::SliceOverPeriod),
            _ => Ok(()),
        }
    }
}

impl FromStr for Guarantee {
    type Err = GuaranteeError;

    fn from_str(text: &str) -> Result<Guarantee, GuaranteeError> {
        let (slice, rest) = text.split_once('/').ok_or(GuaranteeError::NoPeriod)?;
        let (period, slack) = match rest.split_once('+') {
            None => (rest, false),
            Some((period, "slack")) => (period, true),
            Some((_, other)) => return Err(GuaranteeError::Suffix(other.into())),
        };
        let guarantee = Guarantee { slice_ns: time_ns(slice)?, period_ns: time_ns(period)?, slack };
        guarantee.check().map(|()| guarantee)
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slack = if self.slack { "+slack" } else { "" };
        write!(f, "{}/{}{slack}", Time(self.slice_ns), Time(self.period_ns))
    }
}

/// A time in ns that prints with the largest unit that needs no fraction.
pub(crate) struct Time(pub(crate) u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |unit: &&(&str, u64)| self.0 != 0 && self.0.is_multiple_of(unit.1);
        let (name, ns) = UNITS.iter().find(whole).unwrap_or(&UNITS[3]);
        write!(f, "{}{name}", self.0 / ns)
    }
}

fn time_ns(text: &str) -> Result<u64, GuaranteeError> {
    let error = || GuaranteeError::Time(text.into());
    let digits = text.find(|one: char| !one.is_ascii_digit()).ok_or_else(error)?;
    let (number, unit) = text.split_at(digits);
    let (_, ns) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(*ns)).ok_or_else(error)
}

impl fmt::Display for GuaranteeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuaranteeError::NoPeriod => write!(f, "a guarantee has a slice and a period, as in 4ms/100ms"),
            GuaranteeError::Time(text) => {
                write!(f, "{text:?} is no time; write a whole number with ns, us, ms or s, as in 1500us")
            }
            GuaranteeError::Suffix(text) => {
                write!(f, "\"+{}\" is unknown; only +slack may follow", text.escape_debug())
            }
            GuaranteeError::NoSlice => write!(f, "a slice has at least 1ns"),
            GuaranteeError::SliceOverPeriod => write!(f, "the slice is longer than its period"),
            GuaranteeError::LongPeriod => write!(f, "a period has at most {}", Time(LONGEST_PERIOD_NS)),
        }
    }
}

impl std::error::Error for GuaranteeError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_guarantees() {
        let rows: [(&str, Result<&str, &str>); 12] = [
            ("4ms/100ms", Ok("4ms/100ms")),
            ("4000us/1s+slack", Ok("4ms/1s+slack")),
            ("1500us/100ms", Ok("1500us/100ms")),
            ("4ms", Err("a guarantee has a slice and a period, as in 4ms/100ms")),
            ("4/100ms", Err("\"4\" is no time; write a whole number with ns, us, ms or s, as in 1500us")),
            ("1.5ms/100ms", Err("\"1.5ms\" is no time; write a whole number with ns, us, ms or s, as in 1500us")),
            ("/100ms", Err("\"\" is no time; write a whole number with ns, us, ms or s, as in 1500us")),
            (
                "99999999999s/1s",
                Err("\"99999999999s\" is no time; write a whole number with ns, us, ms or s, as in 1500us"),
            ),
            ("4ms/100ms+luck", Err("\"+luck\" is unknown; only +slack may follow")),
            ("0ms/100ms", Err("a slice has at least 1ns")),
            ("5ms/4ms", Err("the slice is longer than its period")),
            ("1s/3601s", Err("a period has at most 3600s")),
        ];
        for (text, expected) in rows {
            let found = text.parse::<Guarantee>().map(|one| one.to_string()).map_err(|error| error.to_string());
            assert_eq!(found, expected.map(String::from).map_err(String::from), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_is_read_as_it_was_written(slice_ns in 1..=LONGEST_PERIOD_NS, more in 0..LONGEST_PERIOD_NS, slack: bool) {
            let guarantee = Guarantee { slice_ns, period_ns: (slice_ns + more).min(LONGEST_PERIOD_NS), slack };
            prop_assert_eq!(guarantee.to_string().parse(), Ok(guarantee));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,30}") {
            let _ = text.parse::<Guarantee>().map_err(|error| error.to_string());
        }
    }
}
