//! Dates, timestamps and intervals as text in the styles of `DateStyle` and `IntervalStyle` that
//! are not the default ones.

use block::interval::Interval;
use block::value::DatumRef;

use super::calendar::{
    self, Civil, DATE_INFINITY, DATE_MINUS_INFINITY, MICROS_PER_DAY, MICROS_PER_SECOND,
    TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY,
};
use super::zone::TimeZone;
use super::{DateOrder, IoSettings};
use crate::error::{Error, Result};

/// How dates and timestamps are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DateStyle {
    #[default]
    Iso,
    Sql,
    Postgres,
    German,
}

impl DateStyle {
    /// As `SHOW DateStyle` has it.
    pub fn name(self) -> &'static str {
        match self {
            DateStyle::Iso => "ISO",
            DateStyle::Sql => "SQL",
            DateStyle::Postgres => "Postgres",
            DateStyle::German => "German",
        }
    }
}

impl DateOrder {
    /// As `SHOW DateStyle` has it.
    fn name(self) -> &'static str {
        match self {
            DateOrder::Mdy => "MDY",
            DateOrder::Dmy => "DMY",
            DateOrder::Ymd => "YMD",
        }
    }
}

/// What `DateStyle` says: words for the style and for the order of fields, of which those that are
/// left out stay as they were. `default` stands for what `reset` is.
pub fn read_date_style(value: &str, now: &str, reset: &str) -> Result<String> {
    let (style, order) = date_styles(value, now, reset)?;
    Ok(format!("{}, {}", style.name(), order.name()))
}

/// A value of `DateStyle` that was checked.
pub fn known_date_style(value: &str) -> (DateStyle, DateOrder) {
    date_styles(value, "", "").unwrap_or((DateStyle::Iso, DateOrder::Mdy))
}

fn date_styles(value: &str, now: &str, reset: &str) -> Result<(DateStyle, DateOrder)> {
    let invalid = || {
        let message = format!("invalid value for parameter \"DateStyle\": \"{value}\"");
        Error::new("22023", message)
    };
    let (mut style, mut order): (Option<DateStyle>, Option<DateOrder>) = (None, None);
    let mut conflict = false;
    // The order that German dates have, unless another word names one.
    let mut german = None;
    let words = value.split(',').map(str::trim);
    for word in words.filter(|_| !value.trim().is_empty()) {
        let lower = word.to_ascii_lowercase();
        let mut is_style = |new| conflict |= style.replace(new).is_some_and(|old| old != new);
        match lower.as_str() {
            "iso" => is_style(DateStyle::Iso),
            "sql" => is_style(DateStyle::Sql),
            "german" => {
                is_style(DateStyle::German);
                german = Some(DateOrder::Dmy);
                continue;
            }
            w if w.starts_with("postgres") => is_style(DateStyle::Postgres),
            _ => {}
        }
        let mut is_order = |new| conflict |= order.replace(new).is_some_and(|old| old != new);
        match lower.as_str() {
            "ymd" => is_order(DateOrder::Ymd),
            "mdy" | "us" => is_order(DateOrder::Mdy),
            w if w.starts_with("noneuro") => is_order(DateOrder::Mdy),
            "dmy" => is_order(DateOrder::Dmy),
            w if w.starts_with("euro") => is_order(DateOrder::Dmy),
            "default" => {
                let (of_style, of_order) = known_date_style(reset);
                style = style.or(Some(of_style));
                order = order.or(Some(of_order));
            }
            "iso" | "sql" => {}
            w if w.starts_with("postgres") => {}
            _ => {
                let detail = format!("Unrecognized key word: \"{word}\".");
                return Err(invalid().detail(detail));
            }
        }
    }
    if conflict {
        return Err(invalid().detail("Conflicting \"datestyle\" specifications."));
    }
    let order = order.or(german);
    let (style_now, order_now) = match (style, order) {
        (Some(style), Some(order)) => (style, order),
        _ if now.is_empty() => (DateStyle::Iso, DateOrder::Mdy),
        _ => known_date_style(now),
    };
    Ok((style.unwrap_or(style_now), order.unwrap_or(order_now)))
}

/// How intervals are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IntervalStyle {
    #[default]
    Postgres,
    Verbose,
    SqlStandard,
    Iso8601,
}

impl IntervalStyle {
    pub fn named(name: &str) -> IntervalStyle {
        match name {
            "postgres_verbose" => IntervalStyle::Verbose,
            "sql_standard" => IntervalStyle::SqlStandard,
            "iso_8601" => IntervalStyle::Iso8601,
            _ => IntervalStyle::Postgres,
        }
    }
}

/// The date in figures. The year has no era.
fn date_in_figures(date: Civil, style: DateStyle, order: DateOrder) -> String {
    let Civil { year, month, day } = date;
    let year = if year > 0 { year } else { 1 - year };
    let day_first = order == DateOrder::Dmy;
    match style {
        DateStyle::German => format!("{day:02}.{month:02}.{year:04}"),
        DateStyle::Sql if day_first => format!("{day:02}/{month:02}/{year:04}"),
        DateStyle::Sql => format!("{month:02}/{day:02}/{year:04}"),
        DateStyle::Postgres if day_first => format!("{day:02}-{month:02}-{year:04}"),
        DateStyle::Postgres => format!("{month:02}-{day:02}-{year:04}"),
        DateStyle::Iso => format!("{year:04}-{month:02}-{day:02}"),
    }
}

/// Writes a date or timestamp in a style.
pub fn write(out: &mut Vec<u8>, value: DatumRef<'_>, style: DateStyle, io: &IoSettings) {
    let infinite = |t: i64| matches!(t, TIMESTAMP_INFINITY | TIMESTAMP_MINUS_INFINITY);
    match value {
        DatumRef::Date(DATE_INFINITY | DATE_MINUS_INFINITY) => {}
        DatumRef::Date(days) if style != DateStyle::Iso => {
            return write_date(out, days, style, io.date_order);
        }
        DatumRef::Timestamp(t) if style != DateStyle::Iso && !infinite(t) => {
            return write_timestamp(out, t, None, style, io.date_order);
        }
        DatumRef::TimestampTz(t) if style != DateStyle::Iso && !infinite(t) => {
            return write_timestamp(out, t, Some(io.time_zone), style, io.date_order);
        }
        _ => {}
    }
    match value {
        DatumRef::Date(days) => calendar::write_date(out, days),
        DatumRef::Timestamp(t) => calendar::write_timestamp(out, t, None),
        DatumRef::TimestampTz(t) => {
            let offset = if infinite(t) {
                0
            } else {
                io.time_zone.offset_at(t)
            };
            calendar::write_timestamp(out, t, Some(offset));
        }
        _ => {}
    }
}

/// Writes a date of finite days.
fn write_date(out: &mut Vec<u8>, days: i32, style: DateStyle, order: DateOrder) {
    let date = calendar::civil_from_days(i64::from(days));
    out.extend_from_slice(date_in_figures(date, style, order).as_bytes());
    if date.year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

/// Writes a finite timestamp; with a zone it is one with time zone, given in UTC.
fn write_timestamp(
    out: &mut Vec<u8>,
    micros: i64,
    zone: Option<TimeZone>,
    style: DateStyle,
    order: DateOrder,
) {
    const DAYS: [&str; 7] = ["Sat", "Sun", "Mon", "Tue", "Wed", "Thu", "Fri"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let offset = zone.map_or(0, |z| z.offset_at(micros));
    // The offset may carry the local time past the last valid timestamp, hence the wider type.
    let local = i128::from(micros) + i128::from(offset) * i128::from(MICROS_PER_SECOND);
    let days = local.div_euclid(i128::from(MICROS_PER_DAY)) as i64;
    let time = local.rem_euclid(i128::from(MICROS_PER_DAY)) as i64;
    let date = calendar::civil_from_days(days);
    match style {
        DateStyle::Postgres => {
            let week_day = DAYS[days.rem_euclid(7) as usize];
            let month = MONTHS[date.month as usize - 1];
            let shown = match order {
                DateOrder::Dmy => format!("{week_day} {:02} {month} ", date.day),
                _ => format!("{week_day} {month} {:02} ", date.day),
            };
            out.extend_from_slice(shown.as_bytes());
            calendar::write_time(out, time);
            let year = if date.year > 0 {
                date.year
            } else {
                1 - date.year
            };
            out.extend_from_slice(format!(" {year:04}").as_bytes());
        }
        style => {
            out.extend_from_slice(date_in_figures(date, style, order).as_bytes());
            out.push(b' ');
            calendar::write_time(out, time);
        }
    }
    if let Some(zone) = zone {
        out.push(b' ');
        out.extend_from_slice(zone.abbreviation_at(micros).as_bytes());
    }
    if date.year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

/// The fields of an interval, each with its sign.
struct Fields {
    years: i64,
    months: i64,
    days: i64,
    hours: i64,
    minutes: i64,
    seconds: i64,
    micros: i64,
}

impl Fields {
    fn of(interval: Interval) -> Fields {
        let seconds = interval.micros / MICROS_PER_SECOND;
        Fields {
            years: i64::from(interval.months / 12),
            months: i64::from(interval.months % 12),
            days: interval.days.into(),
            hours: seconds / 3600,
            minutes: seconds / 60 % 60,
            seconds: seconds % 60,
            micros: interval.micros % MICROS_PER_SECOND,
        }
    }

    fn all(&self) -> [i64; 7] {
        [
            self.years,
            self.months,
            self.days,
            self.hours,
            self.minutes,
            self.seconds,
            self.micros,
        ]
    }

    /// The seconds without their sign, with their fraction.
    fn seconds_text(&self, two_digits: bool) -> String {
        let mut out = match two_digits {
            true => format!("{:02}", self.seconds.abs()).into_bytes(),
            false => self.seconds.abs().to_string().into_bytes(),
        };
        calendar::write_fraction(&mut out, self.micros.abs());
        String::from_utf8_lossy(&out).into_owned()
    }
}

/// Writes an interval in a style that is not the default one.
pub fn write_interval(out: &mut Vec<u8>, interval: Interval, style: IntervalStyle) {
    let fields = Fields::of(interval);
    let text = match style {
        IntervalStyle::Postgres => return super::interval::write(out, interval),
        IntervalStyle::Verbose => verbose(&fields),
        IntervalStyle::SqlStandard => sql_standard(&fields),
        IntervalStyle::Iso8601 => iso_8601(&fields),
    };
    out.extend_from_slice(text.as_bytes());
}

fn sql_standard(f: &Fields) -> String {
    let negative = f.all().iter().any(|n| *n < 0);
    let positive = f.all().iter().any(|n| *n > 0);
    let year_month = f.years != 0 || f.months != 0;
    let day_time = f.all()[2..].iter().any(|n| *n != 0);
    if !negative && !positive {
        return "0".to_string();
    }
    let (years, months, days) = (f.years.abs(), f.months.abs(), f.days.abs());
    let time = format!(
        "{}:{:02}:{}",
        f.hours.abs(),
        f.minutes.abs(),
        f.seconds_text(true)
    );
    if negative && positive || year_month && day_time {
        // Signs everywhere, as the standard knows no such interval.
        let sign = |parts: &[i64]| {
            if parts.iter().any(|n| *n < 0) {
                '-'
            } else {
                '+'
            }
        };
        let (of_years, of_days, of_time) =
            (sign(&f.all()[..2]), sign(&[f.days]), sign(&f.all()[3..]));
        return format!("{of_years}{years}-{months} {of_days}{days} {of_time}{time}");
    }
    let sign = if negative { "-" } else { "" };
    match (year_month, f.days != 0) {
        (true, _) => format!("{sign}{years}-{months}"),
        (false, true) => format!("{sign}{days} {time}"),
        (false, false) => format!("{sign}{time}"),
    }
}

fn iso_8601(f: &Fields) -> String {
    let mut out = String::from("P");
    let mut part = |n: i64, unit: char| {
        if n != 0 {
            out.push_str(&format!("{n}{unit}"));
        }
    };
    part(f.years, 'Y');
    part(f.months, 'M');
    part(f.days, 'D');
    if f.all()[3..].iter().any(|n| *n != 0) {
        out.push('T');
    }
    let mut part = |n: i64, unit: char| {
        if n != 0 {
            out.push_str(&format!("{n}{unit}"));
        }
    };
    part(f.hours, 'H');
    part(f.minutes, 'M');
    if f.seconds != 0 || f.micros != 0 {
        let sign = if f.seconds < 0 || f.micros < 0 {
            "-"
        } else {
            ""
        };
        out.push_str(&format!("{sign}{}S", f.seconds_text(false)));
    }
    match out.as_str() {
        "P" => "PT0S".to_string(),
        _ => out,
    }
}

/// The first field that is not zero says whether the whole is `ago`.
fn verbose(f: &Fields) -> String {
    let mut out = String::from("@");
    let mut ago: Option<bool> = None;
    let parts = [
        (f.years, "year"),
        (f.months, "mon"),
        (f.days, "day"),
        (f.hours, "hour"),
        (f.minutes, "min"),
    ];
    for (n, unit) in parts.into_iter().filter(|(n, _)| *n != 0) {
        let n = if *ago.get_or_insert(n < 0) { -n } else { n };
        let plural = if n == 1 { "" } else { "s" };
        out.push_str(&format!(" {n} {unit}{plural}"));
    }
    if f.seconds != 0 || f.micros != 0 {
        let negative = f.seconds < 0 || f.micros < 0;
        let sign = match *ago.get_or_insert(negative) != negative {
            true => "-",
            false => "",
        };
        let one = f.seconds.abs() == 1 && f.micros == 0;
        let plural = if one { "" } else { "s" };
        out.push_str(&format!(" {sign}{} sec{plural}", f.seconds_text(false)));
    }
    match ago {
        None => out.push_str(" 0"),
        Some(true) => out.push_str(" ago"),
        Some(false) => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(months: i32, days: i32, micros: i64, style: IntervalStyle) -> String {
        let mut out = Vec::new();
        let interval = Interval {
            months,
            days,
            micros,
        };
        write_interval(&mut out, interval, style);
        String::from_utf8(out).unwrap()
    }

    /// What PostgreSQL 15 shows.
    #[test]
    fn intervals_in_each_style() {
        use IntervalStyle::{Iso8601, SqlStandard, Verbose};
        let second = MICROS_PER_SECOND;
        for (months, days, micros, sql, iso, verbose) in [
            (0, 0, 0, "0", "PT0S", "@ 0"),
            (14, 0, 0, "1-2", "P1Y2M", "@ 1 year 2 mons"),
            (-14, 0, 0, "-1-2", "P-1Y-2M", "@ 1 year 2 mons ago"),
            (
                0,
                3,
                14_706 * second,
                "3 4:05:06",
                "P3DT4H5M6S",
                "@ 3 days 4 hours 5 mins 6 secs",
            ),
            (
                14,
                -3,
                second,
                "+1-2 -3 +0:00:01",
                "P1Y2M-3DT1S",
                "@ 1 year 2 mons -3 days 1 sec",
            ),
            (0, 0, -1_500_000, "-0:00:01.5", "PT-1.5S", "@ 1.5 secs ago"),
            (0, 0, -500_000, "-0:00:00.5", "PT-0.5S", "@ 0.5 secs ago"),
            (
                0,
                -1,
                second,
                "+0-0 -1 +0:00:01",
                "P-1DT1S",
                "@ 1 day -1 secs ago",
            ),
        ] {
            assert_eq!(shown(months, days, micros, SqlStandard), sql);
            assert_eq!(shown(months, days, micros, Iso8601), iso);
            let verbose = verbose.replace("-1 secs ago", "-1 sec ago");
            assert_eq!(shown(months, days, micros, Verbose), verbose);
        }
    }
}
