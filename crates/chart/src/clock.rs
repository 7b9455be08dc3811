//! Steps and labels of an axis by the clock, in seconds since 1970, UTC.

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

const STEPS: [u64; 22] = [
    1,
    2,
    5,
    10,
    15,
    30,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
    28 * DAY,
];

/// From steps of this length on, dates have their year.
const YEARS_FROM: f64 = (14 * DAY) as f64;

/// The shortest step of a clock that is not shorter than this.
pub(crate) fn step(least: f64) -> u64 {
    let longest = STEPS[STEPS.len() - 1];
    let found = STEPS.into_iter().find(|step| *step as f64 >= least);
    found.unwrap_or_else(|| (least as u64 + 1).next_multiple_of(longest))
}

/// The date at midnight (`05-13`, with the year where steps are long), else the time (`10:17`, `10:17:30`).
pub(crate) fn label(seconds: u64, step: f64) -> String {
    let (day, rest) = (seconds / DAY, seconds % DAY);
    let (hour, minute, second) = (rest / HOUR, rest % HOUR / MINUTE, rest % MINUTE);
    match (rest, second) {
        (0, _) => {
            let (year, month, day) = date(day);
            let year = if step >= YEARS_FROM { format!("{year}-") } else { String::new() };
            format!("{year}{month:02}-{day:02}")
        }
        (_, 0) => format!("{hour:02}:{minute:02}"),
        _ => format!("{hour:02}:{minute:02}:{second:02}"),
    }
}

/// Year, month and day of a day since 1970 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days).
fn date(days: u64) -> (u64, u64, u64) {
    let (era, of_era) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let from_march = era * 400 + year;
    let day = of_year - (153 * month + 2) / 5 + 1;
    if month < 10 { (from_march, month + 3, day) } else { (from_march + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_times_and_dates() {
        let rows = [
            (0, "01-01"),
            (1_084_443_420, "10:17"),
            (1_084_443_429, "10:17:09"),
            (951_782_400, "02-29"),
            (1_078_012_800, "02-29"),
            (1_735_603_200, "12-31"),
        ];
        rows.into_iter().for_each(|(seconds, expected)| assert_eq!(label(seconds, 60.0), expected, "{seconds}"));
        assert_eq!(label(1_735_603_200, 30e6), "2024-12-31");
        assert_eq!(label(951_782_400, 30e6), "2000-02-29");
    }

    #[test]
    fn steps_are_those_of_a_clock() {
        let rows =
            [(0.1, 1), (11.0, 15), (61.0, 120), (7000.0, 2 * HOUR), (90e6, 90_000_001_u64.next_multiple_of(28 * DAY))];
        rows.into_iter().for_each(|(least, expected)| assert_eq!(step(least), expected, "{least}"));
    }
}
