//! Times as text: two formats going out (they are not interchangeable), a handful coming in. Always UTC.

use jiff::civil::{Date, Time};
use jiff::tz::Offset;
use tidegate_core::time::Timestamp;

/// `YYYY-MM-DDTHH:MM:SS.ffffffZ`: messages and leases.
pub(crate) fn micros(time: Timestamp) -> String {
    let (second, nanos) = to_second(time);
    format!("{second}.{:06}Z", nanos / 1_000)
}

/// `YYYY-MM-DDTHH:MM:SS.mmmZ`: queues, partitions, lag, dead letters, seeks.
pub(crate) fn millis(time: Timestamp) -> String {
    let (second, nanos) = to_second(time);
    format!("{second}.{:03}Z", nanos / 1_000_000)
}

/// The text up to the second, and the nanoseconds in it. What lies outside the years a text can name is moved to the
/// nearest end: a lease of two billion seconds still has an expiry to show.
fn to_second(time: Timestamp) -> (String, i32) {
    let nearest = if time < Timestamp::EPOCH { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    let at = Offset::UTC.to_datetime(jiff::Timestamp::from_microsecond(time.as_micros()).unwrap_or(nearest));
    let text = format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        at.year(),
        at.month(),
        at.day(),
        at.hour(),
        at.minute(),
        at.second()
    );
    (text, at.subsec_nanosecond())
}

/// What `parse` accepts, for error texts.
pub(crate) const ACCEPTED: &str = "a timestamp such as 2026-11-30T12:00:00Z, 2026-11-30 12:00:00.5+02:00 or 2026-11-30 (UTC unless it says otherwise)";

/// Reads `DATE`, `DATE TIME` or `DATETTIME`, with seconds, a fraction and an offset if there are any; UTC where no offset
/// is given. None for anything else.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let date = Reader(text.get(..10)?.as_bytes()).date()?;
    let mut rest = Reader(&text.as_bytes()[10..]);
    let midnight = Offset::UTC.to_timestamp(date.to_datetime(Time::midnight())).ok()?.as_microsecond();
    if rest.0.is_empty() {
        return Some(Timestamp::from_micros(midnight));
    }
    if !(rest.take(b'T') || rest.take(b't') || rest.take(b' ')) {
        return None;
    }
    let of_day = rest.time()?;
    let east = rest.offset()?;
    rest.0.is_empty().then(|| Timestamp::from_micros(midnight + of_day - east))
}

const MINUTE: i64 = 60_000_000;

/// The bytes not yet read.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, byte: u8) -> bool {
        match self.0.split_first() {
            Some((&first, rest)) if first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    /// Exactly `n` digits.
    fn digits(&mut self, n: usize) -> Option<i16> {
        let (digits, rest) = self.0.split_at_checked(n)?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        self.0 = rest;
        Some(digits.iter().fold(0, |value, digit| value * 10 + i16::from(digit - b'0')))
    }

    fn two(&mut self, most: i16) -> Option<i64> {
        self.digits(2).filter(|&value| value <= most).map(i64::from)
    }

    fn date(&mut self) -> Option<Date> {
        let year = self.digits(4)?;
        let month = self.take(b'-').then(|| self.digits(2))??;
        let day = self.take(b'-').then(|| self.digits(2))??;
        Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
    }

    /// Microseconds since midnight.
    fn time(&mut self) -> Option<i64> {
        let hour = self.two(23)?;
        let minute = self.take(b':').then(|| self.two(59))??;
        let mut of_day = (hour * 60 + minute) * MINUTE;
        if self.take(b':') {
            // A leap second is the first of the next minute.
            of_day += self.two(60)? * 1_000_000;
            if self.take(b'.') {
                of_day += self.fraction()?;
            }
        }
        Some(of_day)
    }

    /// At least one digit; those beyond the sixth are cut off.
    fn fraction(&mut self) -> Option<i64> {
        let length = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(length);
        self.0 = rest;
        let value =
            digits.iter().chain([b'0'; 6].iter()).take(6).fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
        (length > 0).then_some(value)
    }

    /// Microseconds east of Greenwich.
    fn offset(&mut self) -> Option<i64> {
        if self.0.is_empty() || self.take(b'Z') || self.take(b'z') {
            return Some(0);
        }
        // In a query string an unescaped + reads as a space: `…T12:00:00+02:00` arrives as `…T12:00:00 02:00`.
        let spaced = self.take(b' ');
        let sign = match self.0.first()? {
            b'+' | b'-' => {
                if self.take(b'-') {
                    -1
                } else {
                    i64::from(self.take(b'+'))
                }
            }
            _ if spaced => 1,
            _ => return None,
        };
        let hours = self.two(23)?;
        let minutes = if self.take(b':') || !self.0.is_empty() { self.two(59)? } else { 0 };
        Some(sign * (hours * 60 + minutes) * MINUTE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(parse(text).map(micros).as_deref(), expected, "{text:?}");
    }

    #[test]
    fn reads_what_postgres_clients_write() {
        let noon = Some("2026-11-30T12:00:00.000000Z");
        check("2026-11-30T12:00:00Z", noon);
        check("2026-11-30t12:00:00z", noon);
        check("2026-11-30 12:00", noon);
        check("2026-11-30 12:00:00", noon);
        check(" 2026-11-30 14:00:00+02 ", noon);
        check("2026-11-30 14:00+02:00", noon);
        check("2026-11-30 14:00 02:00", noon);
        check("2026-11-30T06:30:00-0530", noon);
        check("2026-11-30", Some("2026-11-30T00:00:00.000000Z"));
        check("2026-11-30T12:00:00.5Z", Some("2026-11-30T12:00:00.500000Z"));
        check("2026-11-30 12:00:00.123456789", Some("2026-11-30T12:00:00.123456Z"));
        check("2026-12-31T23:59:60Z", Some("2027-01-01T00:00:00.000000Z"));
        check("1969-12-31T23:59:59.999Z", Some("1969-12-31T23:59:59.999000Z"));
        check("0001-01-01", Some("0001-01-01T00:00:00.000000Z"));
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "",
            "now",
            "garbage",
            "2026",
            "2026-13-01",
            "2026-02-30",
            "2026-11-30T",
            "2026-11-30T12",
            "2026-11-30T24:00",
            "2026-11-30T12:60",
            "2026-11-30T12:00:00.",
            "2026-11-30T12:00:00Z!",
            "2026-11-30T12:00:00+",
            "2026-11-30x12:00",
            "2026-11-30T12:00:00+2",
            "2026-11-30T12:00:00 UTC",
            "2026-11-3\u{e9}",
            "+026-11-30",
            "2026-11-30T12:00:00\u{0}",
            "99999-01-01",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn writes_two_formats() {
        let time = Timestamp::from_micros(1_764_504_000_123_456);
        assert_eq!(micros(time), "2025-11-30T12:00:00.123456Z");
        assert_eq!(millis(time), "2025-11-30T12:00:00.123Z");
        assert_eq!(micros(Timestamp::from_micros(-1)), "1969-12-31T23:59:59.999999Z");
        assert!(micros(Timestamp::MAX).starts_with("9999-"));
        assert!(millis(Timestamp::MIN).starts_with("-"));
    }
}
