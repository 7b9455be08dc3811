//! Dates of HTTP (RFC 9110 5.6.7): seconds since 1970 as `Sun, 06 Nov 1994 08:49:37 GMT`, and back. The two obsolete
//! forms are not read: a condition with such a date is ignored.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY: u64 = 24 * 60 * 60;

/// The last second of the year 9999, the last one with a date.
const LAST: u64 = 253_402_300_799;

/// The date of a time in seconds since 1970.
pub(in super::super) fn date(seconds: u64) -> String {
    let seconds = seconds.min(LAST);
    let (days, time) = (seconds / DAY, seconds % DAY);
    let (year, month, day) = civil(days);
    let (name, month) = (DAYS[(days % 7) as usize], MONTHS[(month - 1) as usize]);
    format!("{name}, {day:02} {month} {year:04} {:02}:{:02}:{:02} GMT", time / 3600, time / 60 % 60, time % 60)
}

/// The time of a date, in seconds since 1970. `None`: this is no date since 1970.
pub(in super::super) fn seconds(text: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| -> Option<u64> {
        let digits = text.get(range)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let month = MONTHS.iter().position(|name| text.get(8..11) == Some(name))? as u64 + 1;
    let (year, day) = (number(12..16)?, number(5..7)?);
    let (hour, minute, second) = (number(17..19)?, number(20..22)?, number(23..25)?);
    if year < 1970 || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days(year, month, day) * DAY + hour * 3600 + minute * 60 + second.min(59);
    // Compare the whole text: this checks the name of the day and the characters between the numbers, too.
    let is_date = date(seconds) == text || (second == 60 && text.ends_with(":60 GMT"));
    is_date.then_some(seconds)
}

/// Year, month and day of a number of days since 1970, by the algorithm of Howard Hinnant's `civil_from_days`.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// Days from 1970 to a day: the inverse of [`civil`].
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_and_read() {
        for (moment, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (LAST, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(date(moment), text);
            assert_eq!(seconds(text), Some(moment));
        }
        assert_eq!(date(u64::MAX), date(LAST));
        for moment in (0..LAST).step_by(86_400 * 37 + 12_345) {
            assert_eq!(seconds(&date(moment)), Some(moment));
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "0",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1894 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun, 0ö Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sun, 00 Jan 1970 00:00:00 GMT",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
