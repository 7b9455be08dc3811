//! Converts timestamps to RFC 3339 text with nanoseconds, and back. UTC only; reads no clock.

/// Length of a timestamp: `2026-01-02T03:04:05.678901234Z`.
pub const RFC3339_BYTES: usize = 30;

/// Length of a timestamp down to its microseconds.
const MICROSECONDS_BYTES: usize = 26;

const NANOSECONDS: u64 = 1_000_000_000;
const DAY_SECONDS: u64 = 86_400;

/// `time_ns` nanoseconds since 1970-01-01 UTC as ASCII text. Does not allocate or use `fmt`, because it runs once per
/// output record. 64 bits of nanoseconds end in 2554, so the year has four digits.
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

/// Appends a timestamp as a JSON string.
pub fn append_json(out: &mut Vec<u8>, time_ns: u64) {
    out.push(b'"');
    out.extend_from_slice(&rfc3339(time_ns));
    out.push(b'"');
}

/// Appends a timestamp as a JSON string in the form of Suricata's EVE: `2026-01-02T03:04:05.678901+0000`.
pub fn append_eve_json(out: &mut Vec<u8>, time_ns: u64) {
    out.push(b'"');
    out.extend_from_slice(&rfc3339(time_ns)[..MICROSECONDS_BYTES]);
    out.extend_from_slice(b"+0000\"");
}

/// Parses `2026-01-02`, `2026-01-02T03:04`, `2026-01-02 03:04:05.678Z` (UTC, with or without Z) or seconds since 1970,
/// `1767323045.6`, to nanoseconds since 1970. `None`: another text, or a time before 1970 or after 2554.
pub fn parse(text: &str) -> Option<u64> {
    if !text.get(1..)?.contains('-') {
        return seconds(text);
    }
    let (date, time) = text.split_once(['T', 't', ' ']).unwrap_or((text, "00:00"));
    let mut date = date.splitn(3, '-').map(|part| if part.len() <= 4 { number(part) } else { None });
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let days = days_of(year, month, day)?;
    let time = time.strip_suffix(['Z', 'z']).unwrap_or(time);
    let mut time = time.splitn(3, ':');
    let (hour, minute, second) = (number(time.next()?)?, number(time.next()?)?, seconds(time.next().unwrap_or("0"))?);
    if hour > 23 || minute > 59 || second >= 60 * NANOSECONDS {
        return None;
    }
    let whole = days.checked_mul(DAY_SECONDS)?.checked_add(hour * 3_600 + minute * 60)?;
    whole.checked_mul(NANOSECONDS)?.checked_add(second)
}

/// A number of digits only.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Seconds with a fraction, in nanoseconds. Digits after the ninth are cut off.
fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = fraction.get(..9).unwrap_or(fraction);
    let scale = 10_u64.pow(9 - fraction.len() as u32);
    let fraction = if fraction.is_empty() { 0 } else { number(fraction)? * scale };
    number(whole)?.checked_mul(NANOSECONDS)?.checked_add(fraction)
}

/// Days since 1970-01-01 of a date, if it exists; reverses [`civil_date`].
fn days_of(year: u64, month: u64, day: u64) -> Option<u64> {
    let from_march = (month + 9) % 12;
    let year_from_march = year.checked_sub(u64::from(month <= 2))?;
    let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
    let day_of_year = (153 * from_march + 2) / 5 + day.checked_sub(1)?;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    (civil_date(days) == (year, month, day)).then_some(days)
}

/// Fills `places` with the lowest decimal digits of `number`.
#[inline]
fn digits(places: &mut [u8], mut number: u64) {
    for place in places.iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Year, month and day of a day since 1970-01-01. Counts from 1 March, so that the leap day is the last of the year
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

    #[test]
    fn times_of_alerts_were_not_as_suricata_writes_them() {
        let mut text = Vec::new();
        append_eve_json(&mut text, 1_767_323_045_678_901_234);
        assert_eq!(text, b"\"2026-01-02T03:04:05.678901+0000\"");
    }

    #[test]
    fn texts_are_read() {
        let rows = [
            ("1970-01-01", Some(0)),
            ("2000-02-29T00:00:00Z", Some(951_782_400_000_000_000)),
            ("2026-01-02T03:04:05.678901234Z", Some(1_767_323_045_678_901_234)),
            ("2026-01-02 03:04:05.6", Some(1_767_323_045_600_000_000)),
            ("2026-01-02T03:04", Some(1_767_323_040_000_000_000)),
            ("1767323045.5", Some(1_767_323_045_500_000_000)),
            ("1767323045", Some(1_767_323_045_000_000_000)),
            ("2554-07-21T23:34:33.709551615Z", Some(u64::MAX)),
            ("2554-07-21T23:34:34Z", None),
            ("1969-12-31", None),
            ("2001-02-29", None),
            ("2001-13-01", None),
            ("2001-00-01", None),
            ("2001-01-00", None),
            ("2001-01-01T24:00", None),
            ("2001-01-01T00:60", None),
            ("2001-01-01T00:00:60", None),
            ("99999999999999999999-01-01", None),
            ("2001-01", None),
            ("+5", None),
            ("", None),
            ("x", None),
            ("-", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse(text), expected, "{text}");
        }
        for time in [0, 1, 86_399_999_999_999, 951_782_399_999_999_999, 4_107_542_400_000_000_000] {
            assert_eq!(parse(std::str::from_utf8(&rfc3339(time)).unwrap()), Some(time));
        }
    }

    /// Checks that every day follows the one before, by the calendar's rule.
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
