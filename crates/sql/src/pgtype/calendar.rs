//! Calendar arithmetic as PostgreSQL counts: proleptic Gregorian, days and microseconds from 2000-01-01, infinities at
//! the ends of the integers. Years are astronomical inside (1 BC is year 0) and get their era only in text.

use crate::types::MICROSECOND_DIGITS;

/// `infinity` and `-infinity` of a date.
pub const DATE_INFINITY: i32 = i32::MAX;
pub const DATE_MINUS_INFINITY: i32 = i32::MIN;
/// `infinity` and `-infinity` of a timestamp, with time zone or without.
pub const TIMESTAMP_INFINITY: i64 = i64::MAX;
pub const TIMESTAMP_MINUS_INFINITY: i64 = i64::MIN;

/// First valid day: 4714-11-24 BC, Julian day 0.
pub const DATE_MIN: i64 = -JULIAN_OF_EPOCH;
/// First day beyond the valid ones: 5874898-06-04.
pub const DATE_END: i64 = 2_147_483_494 - JULIAN_OF_EPOCH;
/// First valid timestamp, 4714-11-24 00:00:00 BC.
pub const TIMESTAMP_MIN: i64 = -211_813_488_000_000_000;
/// First timestamp beyond the valid ones, 294277-01-01 00:00:00.
pub const TIMESTAMP_END: i64 = 9_223_371_331_200_000_000;

pub const MICROS_PER_SECOND: i64 = 1_000_000;
pub const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
/// Days from 1970-01-01 to 2000-01-01.
pub const UNIX_TO_PG_DAYS: i64 = 10_957;
/// Julian day number of 2000-01-01.
pub const JULIAN_OF_EPOCH: i64 = 2_451_545;

/// A calendar date; `year` is astronomical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    pub year: i64,
    pub month: u32,
    pub day: u32,
}

/// Days from 2000-01-01 of a date. The fields must be a real date.
pub fn days_from_civil(date: Civil) -> i64 {
    // Years counted from March, so that the leap day is the last of its year.
    let year = date.year - i64::from(date.month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month = i64::from(if date.month > 2 {
        date.month - 3
    } else {
        date.month + 9
    });
    let day_of_year = (153 * month + 2) / 5 + i64::from(date.day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468 - UNIX_TO_PG_DAYS
}

/// The date `days` after 2000-01-01.
pub fn civil_from_days(days: i64) -> Civil {
    let z = days + 719_468 + UNIX_TO_PG_DAYS;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    } as u32;
    Civil {
        year: year_of_era + era * 400 + i64::from(month <= 2),
        month,
        day: (day_of_year - (153 * shifted + 2) / 5 + 1) as u32,
    }
}

pub fn is_leap(year: i64) -> bool {
    year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0)
}

pub fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Whether a finite timestamp is one PostgreSQL can hold.
pub fn timestamp_is_valid(micros: i64) -> bool {
    (TIMESTAMP_MIN..TIMESTAMP_END).contains(&micros)
}

/// A timestamp with so many digits of its seconds; half a unit is rounded away from 2000.
pub fn rounded(micros: i64, digits: i32) -> i64 {
    let places = (MICROSECOND_DIGITS - digits.clamp(0, MICROSECOND_DIGITS)) as u32;
    let unit = 10_i64.pow(places);
    match micros {
        TIMESTAMP_INFINITY | TIMESTAMP_MINUS_INFINITY => micros,
        // Timestamps end days before their integers do.
        _ => (micros + micros.signum() * (unit / 2)) / unit * unit,
    }
}

/// Text of a date in ISO style, with ` BC` for years before 1.
pub fn write_date(out: &mut Vec<u8>, days: i32) {
    match days {
        DATE_INFINITY => out.extend_from_slice(b"infinity"),
        DATE_MINUS_INFINITY => out.extend_from_slice(b"-infinity"),
        _ => {
            let date = civil_from_days(i64::from(days));
            write_civil(out, date);
            write_era(out, date);
        }
    }
}

/// Text of a timestamp in ISO style. With `offset_seconds` (east of Greenwich) it is a `timestamptz`, given in UTC.
pub fn write_timestamp(out: &mut Vec<u8>, micros: i64, offset_seconds: Option<i32>) {
    match micros {
        TIMESTAMP_INFINITY => return out.extend_from_slice(b"infinity"),
        TIMESTAMP_MINUS_INFINITY => return out.extend_from_slice(b"-infinity"),
        _ => {}
    }
    // The offset may carry the local time past the last valid timestamp, hence the wider type.
    let local = i128::from(micros)
        + i128::from(offset_seconds.unwrap_or(0)) * i128::from(MICROS_PER_SECOND);
    let date = civil_from_days(local.div_euclid(i128::from(MICROS_PER_DAY)) as i64);
    let time = local.rem_euclid(i128::from(MICROS_PER_DAY)) as i64;
    write_civil(out, date);
    out.push(b' ');
    let seconds = time / MICROS_PER_SECOND;
    write_two(out, seconds / 3600);
    out.push(b':');
    write_two(out, seconds / 60 % 60);
    out.push(b':');
    write_two(out, seconds % 60);
    write_fraction(out, time % MICROS_PER_SECOND);
    if let Some(offset) = offset_seconds {
        write_offset(out, offset);
    }
    write_era(out, date);
}

/// `+01`, `+05:30` or `-00:53:28`.
pub fn write_offset(out: &mut Vec<u8>, offset_seconds: i32) {
    out.push(if offset_seconds < 0 { b'-' } else { b'+' });
    let seconds = i64::from(offset_seconds).abs();
    write_two(out, seconds / 3600);
    if seconds % 3600 != 0 {
        out.push(b':');
        write_two(out, seconds / 60 % 60);
    }
    if seconds % 60 != 0 {
        out.push(b':');
        write_two(out, seconds % 60);
    }
}

fn write_civil(out: &mut Vec<u8>, date: Civil) {
    let year = if date.year > 0 {
        date.year
    } else {
        1 - date.year
    };
    if year < 10_000 {
        write_two(out, year / 100);
        write_two(out, year % 100);
    } else {
        out.extend_from_slice(year.to_string().as_bytes());
    }
    out.push(b'-');
    write_two(out, i64::from(date.month));
    out.push(b'-');
    write_two(out, i64::from(date.day));
}

fn write_era(out: &mut Vec<u8>, date: Civil) {
    if date.year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

fn write_two(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&[b'0' + (value / 10) as u8, b'0' + (value % 10) as u8]);
}

/// `23:59:59.5`; the end of a day is `24:00:00`.
pub fn write_time(out: &mut Vec<u8>, micros: i64) {
    let seconds = micros / MICROS_PER_SECOND;
    write_two(out, seconds / 3600);
    out.push(b':');
    write_two(out, seconds / 60 % 60);
    out.push(b':');
    write_two(out, seconds % 60);
    write_fraction(out, micros % MICROS_PER_SECOND);
}

/// Microseconds without trailing zeros, nothing at all for none.
pub fn write_fraction(out: &mut Vec<u8>, micros: i64) {
    if micros == 0 {
        return;
    }
    out.push(b'.');
    let (mut rest, mut unit) = (micros, 100_000);
    while rest > 0 {
        out.push(b'0' + (rest / unit) as u8);
        rest %= unit;
        unit /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(days: i32) -> String {
        let mut out = Vec::new();
        write_date(&mut out, days);
        String::from_utf8(out).unwrap()
    }
    fn timestamp(micros: i64, offset: Option<i32>) -> String {
        let mut out = Vec::new();
        write_timestamp(&mut out, micros, offset);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn days_and_dates_are_inverse_over_the_whole_range() {
        let mut previous = civil_from_days(DATE_MIN - 1);
        for days in (DATE_MIN..200_000).chain(DATE_END - 200_000..DATE_END) {
            let civil = civil_from_days(days);
            assert_eq!(days_from_civil(civil), days);
            assert_ne!(civil, previous);
            assert!((1..=days_in_month(civil.year, civil.month)).contains(&civil.day));
            previous = civil;
        }
    }

    #[test]
    fn text_is_as_postgresql_writes_it() {
        assert_eq!(date(0), "2000-01-01");
        assert_eq!(date(DATE_MIN as i32), "4714-11-24 BC");
        assert_eq!(date(DATE_END as i32 - 1), "5874897-12-31");
        assert_eq!(date(i32::MAX), "infinity");
        assert_eq!(timestamp(TIMESTAMP_MIN, None), "4714-11-24 00:00:00 BC");
        assert_eq!(
            timestamp(TIMESTAMP_END - 1, None),
            "294276-12-31 23:59:59.999999"
        );
        assert_eq!(
            timestamp(TIMESTAMP_END - 1, Some(3600)),
            "294277-01-01 00:59:59.999999+01"
        );
        assert_eq!(
            timestamp(1_500_000, Some(19_800)),
            "2000-01-01 05:30:01.5+05:30"
        );
        assert_eq!(timestamp(0, Some(-3208)), "1999-12-31 23:06:32-00:53:28");
        assert_eq!(timestamp(-1, None), "1999-12-31 23:59:59.999999");
    }
}
