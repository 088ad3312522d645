//! Session time zones: a fixed offset or a zone of the IANA database, asked for offsets at instants PostgreSQL can hold.

use chrono::{NaiveDate, NaiveDateTime, Offset, TimeZone as _};
use chrono_tz::OffsetName as _;

use super::calendar::{self, Civil, MICROS_PER_DAY, MICROS_PER_SECOND};
use super::posix_zone::PosixZone;

/// PostgreSQL refuses displacements of more than this, either way.
pub const MAX_OFFSET_SECONDS: i32 = 16 * 3600 - 1;

/// A session's time zone. Cheap to copy: a session keeps one and hands it to every conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeZone {
    /// Seconds east of Greenwich.
    Fixed(i32),
    Posix(PosixZone),
    Named(chrono_tz::Tz),
}

impl TimeZone {
    pub const UTC: TimeZone = TimeZone::Named(chrono_tz::Tz::UTC);

    /// What `SET TIME ZONE` takes: a name in any case, `UTC`, an abbreviation, hours east of
    /// Greenwich, or a POSIX zone. `None`: not known.
    pub fn parse(text: &str) -> Option<TimeZone> {
        let text = text.trim();
        if let Ok(hours) = text.parse::<f64>() {
            let seconds = (hours * 3600.0) as i32;
            return Self::fixed(seconds).filter(|_| hours.is_finite());
        }
        Self::of_name(text)
    }

    /// A zone by a name in any case, an abbreviation, or what POSIX has for a zone, which counts
    /// hours west of Greenwich. `None`: not known.
    pub fn of_name(text: &str) -> Option<TimeZone> {
        let named = Self::named(text);
        let named = named.or_else(|| abbreviation(text).map(TimeZone::Fixed));
        named.or_else(|| PosixZone::parse(text).map(TimeZone::Posix))
    }

    /// So many seconds east of Greenwich; `None`: further than PostgreSQL goes.
    pub fn fixed(seconds: i32) -> Option<TimeZone> {
        let known = -MAX_OFFSET_SECONDS..=MAX_OFFSET_SECONDS;
        known.contains(&seconds).then_some(TimeZone::Fixed(seconds))
    }

    /// A zone of the IANA database, in any case.
    pub fn named(text: &str) -> Option<TimeZone> {
        if text.eq_ignore_ascii_case("z") {
            return Some(Self::UTC);
        }
        chrono_tz::TZ_VARIANTS
            .iter()
            .find(|zone| zone.name().eq_ignore_ascii_case(text))
            .copied()
            .map(TimeZone::Named)
    }

    /// What `SHOW TimeZone` answers; a fixed offset in PostgreSQL's POSIX spelling (`<+05>-05`).
    pub fn name(&self) -> String {
        match self {
            TimeZone::Named(zone) => zone.name().to_string(),
            TimeZone::Posix(zone) => zone.name(),
            TimeZone::Fixed(seconds) => {
                let (mut east, mut west) = (Vec::new(), Vec::new());
                calendar::write_offset(&mut east, *seconds);
                calendar::write_offset(&mut west, -*seconds);
                let west = match seconds {
                    0 => "-00".to_string(),
                    _ => String::from_utf8_lossy(&west).into_owned(),
                };
                format!("<{}>{}", String::from_utf8_lossy(&east), west)
            }
        }
    }

    /// Seconds east of Greenwich at a finite instant (microseconds from 2000-01-01 UTC).
    pub fn offset_at(&self, micros: i64) -> i32 {
        match self {
            TimeZone::Fixed(seconds) => *seconds,
            TimeZone::Posix(zone) => zone.east_s,
            TimeZone::Named(zone) => zone
                .offset_from_utc_datetime(&in_table_range(micros))
                .fix()
                .local_minus_utc(),
        }
    }

    /// What the zone calls its offset at a finite instant: `CET`, `+05`.
    pub fn abbreviation_at(&self, micros: i64) -> String {
        match self {
            TimeZone::Fixed(seconds) => {
                let mut out = Vec::new();
                calendar::write_offset(&mut out, *seconds);
                String::from_utf8_lossy(&out).into_owned()
            }
            TimeZone::Posix(zone) => zone.label().to_string(),
            TimeZone::Named(zone) => {
                let offset = zone.offset_from_utc_datetime(&in_table_range(micros));
                match offset.abbreviation() {
                    Some(name) => name.to_string(),
                    None => digits(offset.fix().local_minus_utc()),
                }
            }
        }
    }

    /// Seconds east of Greenwich for a local time. Of a time that occurs twice the later (standard) one is taken; a
    /// time that is skipped is read with the offset before the gap.
    pub fn offset_at_local(&self, local_micros: i64) -> i32 {
        match self {
            TimeZone::Fixed(seconds) => *seconds,
            TimeZone::Posix(zone) => zone.east_s,
            TimeZone::Named(zone) => {
                let local = in_table_range(local_micros);
                match zone.offset_from_local_datetime(&local) {
                    chrono::LocalResult::Single(offset) => offset.fix().local_minus_utc(),
                    chrono::LocalResult::Ambiguous(_, later) => later.fix().local_minus_utc(),
                    chrono::LocalResult::None => {
                        let before = local
                            .checked_sub_signed(chrono::Duration::days(1))
                            .unwrap_or(local);
                        zone.offset_from_utc_datetime(&before)
                            .fix()
                            .local_minus_utc()
                    }
                }
            }
        }
    }
}

/// What a zone without letters calls an offset: `+0545`.
fn digits(seconds: i32) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let (hours, minutes) = (seconds.abs() / 3600, seconds.abs() / 60 % 60);
    match minutes {
        0 => format!("{sign}{hours:02}"),
        _ => format!("{sign}{hours:02}{minutes:02}"),
    }
}

/// The zone tables end in 2099 and the library's dates in the year 262143. Rules repeat for ever, so a later year is
/// read as the year of 2072..=2099 that starts on the same weekday and is as long; an earlier one than the library's as its first.
fn in_table_range(micros: i64) -> NaiveDateTime {
    let days = micros.div_euclid(MICROS_PER_DAY);
    let time = micros.rem_euclid(MICROS_PER_DAY);
    let mut date = calendar::civil_from_days(days);
    if date.year > 2099 {
        date.year = (2072..2100)
            .find(|&year| same_calendar(year, date.year))
            .unwrap_or(2099);
    }
    let year = date.year.max(-200_000) as i32;
    NaiveDate::from_ymd_opt(year, date.month, date.day)
        .unwrap_or(NaiveDate::MIN)
        .and_hms_micro_opt(
            (time / MICROS_PER_SECOND / 3600) as u32,
            (time / MICROS_PER_SECOND / 60 % 60) as u32,
            (time / MICROS_PER_SECOND % 60) as u32,
            (time % MICROS_PER_SECOND) as u32,
        )
        .unwrap_or(NaiveDateTime::MIN)
}

fn same_calendar(a: i64, b: i64) -> bool {
    let weekday = |year| {
        calendar::days_from_civil(Civil {
            year,
            month: 1,
            day: 1,
        })
        .rem_euclid(7)
    };
    calendar::is_leap(a) == calendar::is_leap(b) && weekday(a) == weekday(b)
}

/// Offsets of the abbreviations in PostgreSQL's default set that are in wide use, in seconds east of Greenwich.
pub fn abbreviation(text: &str) -> Option<i32> {
    const QUARTERS: &[(&str, i32)] = &[
        ("utc", 0),
        ("uct", 0),
        ("ut", 0),
        ("gmt", 0),
        ("z", 0),
        ("zulu", 0),
        ("wet", 0),
        ("bst", 4),
        ("cet", 4),
        ("met", 4),
        ("mez", 4),
        ("west", 4),
        ("wetdst", 4),
        ("cest", 8),
        ("mesz", 8),
        ("eet", 8),
        ("sast", 8),
        ("ist", 8),
        ("cetdst", 8),
        ("eest", 12),
        ("msk", 12),
        ("eetdst", 12),
        ("msd", 16),
        ("pkt", 20),
        ("uzt", 20),
        ("hkt", 32),
        ("sgt", 32),
        ("awst", 32),
        ("pht", 32),
        ("jst", 36),
        ("kst", 36),
        ("acst", 38),
        ("aest", 40),
        ("acdt", 42),
        ("aedt", 44),
        ("nzst", 48),
        ("nzt", 48),
        ("nzdt", 52),
        ("nst", -14),
        ("ndt", -10),
        ("art", -12),
        ("brt", -12),
        ("adt", -12),
        ("ast", -16),
        ("edt", -16),
        ("cdt", -20),
        ("est", -20),
        ("cst", -24),
        ("mdt", -24),
        ("mst", -28),
        ("pdt", -28),
        ("pst", -32),
        ("akdt", -32),
        ("akst", -36),
        ("hst", -40),
    ];
    QUARTERS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text))
        .map(|(_, quarters)| quarters * 900)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(year: i64, month: u32, day: u32, hour: i64, minute: i64) -> i64 {
        let days = calendar::days_from_civil(Civil { year, month, day });
        days * MICROS_PER_DAY + (hour * 60 + minute) * 60 * MICROS_PER_SECOND
    }

    #[test]
    fn offsets_at_and_around_transitions() {
        let berlin = TimeZone::parse("europe/berlin").unwrap();
        assert_eq!(berlin.name(), "Europe/Berlin");
        assert_eq!(berlin.offset_at(micros(2024, 1, 1, 0, 0)), 3600);
        assert_eq!(berlin.offset_at(micros(2024, 7, 1, 0, 0)), 7200);
        // Far beyond the tables the rules of today go on.
        assert_eq!(berlin.offset_at(micros(2524, 7, 1, 0, 0)), 7200);
        assert_eq!(berlin.offset_at(micros(294_276, 7, 1, 0, 0)), 7200);
        assert_eq!(berlin.offset_at(micros(294_276, 1, 1, 0, 0)), 3600);
        // 02:30 on these days is skipped, or comes twice.
        assert_eq!(berlin.offset_at_local(micros(2024, 3, 31, 2, 30)), 3600);
        assert_eq!(berlin.offset_at_local(micros(2024, 10, 27, 2, 30)), 3600);
        assert_eq!(berlin.offset_at(calendar::TIMESTAMP_MIN), 3208);
    }

    #[test]
    fn names_and_fixed_offsets() {
        assert_eq!(TimeZone::parse("utc"), Some(TimeZone::UTC));
        assert_eq!(TimeZone::parse("5").unwrap().name(), "<+05>-05");
        assert_eq!(TimeZone::parse("-3.5").unwrap().name(), "<-03:30>+03:30");
        assert_eq!(TimeZone::parse("Mars/Olympus"), None);
        assert_eq!(TimeZone::parse("99"), None);
        let offset = |zone| TimeZone::parse(zone).map(|z| z.offset_at(0));
        assert_eq!(offset("+02:00"), Some(-7200));
        assert_eq!(offset("UTC-3"), Some(10_800));
        assert_eq!(offset("<+05>-05"), Some(18_000));
    }
}
