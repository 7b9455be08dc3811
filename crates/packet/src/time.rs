//! Timestamps as RFC 3339 text with nanoseconds. Not clocks, not calendars other than UTC's, and no parsing.

/// Bytes of a timestamp: `2026-01-02T03:04:05.678901234Z`.
pub const RFC3339_BYTES: usize = 30;

const NANOSECONDS: u64 = 1_000_000_000;
const DAY_SECONDS: u64 = 86_400;

/// `time_ns` nanoseconds since 1970-01-01 UTC as text, all ASCII. No allocation and no formatting machinery: this runs
/// once per record of output. 64 bits of nanoseconds end in 2554, so the year has four digits.
pub fn rfc3339(time_ns: u64) -> [u8; RFC3339_BYTES] {
    let (seconds, nanoseconds) = (time_ns / NANOSECONDS, time_ns % NANOSECONDS);
    let (days, second_of_day) = (seconds / DAY_SECONDS, seconds % DAY_SECONDS);
    let (year, month, day) = civil_date(days);
    let mut text = *b"0000-00-00T00:00:00.000000000Z";
    digits(&mut text[0..4], year);
    digits(&mut text[5..7], month);
    digits(&mut text[8..10], day);
    digits(&mut text[11..13], second_of_day / 3_600);
    digits(&mut text[14..16], second_of_day / 60 % 60);
    digits(&mut text[17..19], second_of_day % 60);
    digits(&mut text[20..29], nanoseconds);
    text
}

/// Appends a timestamp in quotation marks: a JSON string.
pub fn append_json(out: &mut Vec<u8>, time_ns: u64) {
    out.push(b'"');
    out.extend_from_slice(&rfc3339(time_ns));
    out.push(b'"');
}

/// Writes the lowest digits of `number`, as many as there are places.
#[inline]
fn digits(places: &mut [u8], mut number: u64) {
    for place in places.iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Year, month and day of a day since 1970-01-01, by counting from 1 March so that the leap day comes last in the year
/// (Hinnant, "chrono-compatible low-level date algorithms").
#[inline]
fn civil_date(days: u64) -> (u64, u64, u64) {
    const ERA_DAYS: u64 = 146_097;
    // Days from 1 March of the year 0 to 1970-01-01.
    let days = days + 719_468;
    let (era, day_of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let check = |time_ns: u64, expected: &str| {
            assert_eq!(std::str::from_utf8(&rfc3339(time_ns)), Ok(expected));
        };
        check(0, "1970-01-01T00:00:00.000000000Z");
        check(1, "1970-01-01T00:00:00.000000001Z");
        check(951_782_399_999_999_999, "2000-02-28T23:59:59.999999999Z");
        check(951_782_400_000_000_000, "2000-02-29T00:00:00.000000000Z");
        check(951_868_800_000_000_000, "2000-03-01T00:00:00.000000000Z");
        check(1_767_323_045_678_901_234, "2026-01-02T03:04:05.678901234Z");
        check(4_107_542_400_000_000_000, "2100-03-01T00:00:00.000000000Z");
        check(u64::MAX, "2554-07-21T23:34:33.709551615Z");
    }

    /// Every day of the range follows the one before: the calendar's own rule against the arithmetic above.
    #[test]
    fn days_follow_each_other() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..u64::MAX / NANOSECONDS / DAY_SECONDS {
            assert_eq!(civil_date(days), (year, month, day));
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 if leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }

    #[test]
    fn json() {
        let mut out = Vec::new();
        append_json(&mut out, 0);
        assert_eq!(out, b"\"1970-01-01T00:00:00.000000000Z\"");
    }
}
