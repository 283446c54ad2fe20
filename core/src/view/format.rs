//! Times, spans and counts, the same in text and on a page.

/// `2026-01-01 00:01:14.005 UTC` of epoch milliseconds (proleptic Gregorian).
pub(super) fn date_time(ms: i64) -> String {
    // Days of the era of 400 years that begins on a 1st of March, so that the leap day comes last.
    let days = ms.div_euclid(86_400_000) + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {} UTC", clock(ms))
}

/// `00:01:14.005` of epoch milliseconds.
pub(super) fn clock(ms: i64) -> String {
    let of_day = ms.rem_euclid(86_400_000);
    let (hours, minutes, seconds) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{:03}", of_day % 1000)
}

/// A span of milliseconds in the largest unit that says it well. Clocks go backwards, spans do not (REC-01).
pub(super) fn span(ms: i64) -> String {
    let ms = ms.max(0);
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms / 1000 % 60),
        3_600_000..86_400_000 => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
        _ => format!("{} d {} h", ms / 86_400_000, ms / 3_600_000 % 24),
    }
}

/// A number in groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 message`, `2 messages`.
pub(super) fn count(number: u64, of_what: &str) -> String {
    format!("{} {of_what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(date_time(0), "1970-01-01 00:00:00.000 UTC");
        assert_eq!(date_time(951_782_400_000), "2000-02-29 00:00:00.000 UTC");
        assert_eq!(date_time(1_767_225_674_005), "2026-01-01 00:01:14.005 UTC");
        assert_eq!(date_time(-1), "1969-12-31 23:59:59.999 UTC");
    }

    #[test]
    fn spans_and_counts_are_short() {
        assert_eq!([span(-5), span(999), span(1500)], ["0 ms", "999 ms", "1.5 s"]);
        assert_eq!([span(61_000), span(3_660_000), span(90_000_000)], ["1 min 1 s", "1 h 1 min", "1 d 1 h"]);
        assert_eq!([grouped(999), grouped(1000), grouped(1_234_567)], ["999", "1,000", "1,234,567"]);
        assert_eq!([count(1, "turn"), count(0, "turn")], ["1 turn", "0 turns"]);
    }
}
