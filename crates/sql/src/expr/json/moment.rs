//! Dates and times in paths: what `.datetime()` makes of a text, how two of them compare, and how
//! one is written.

use std::cmp::Ordering;
use std::fmt::Write;

use block::json::{Json, Node};

use crate::error::{Error, Result};
use crate::expr::from_char::{self, Standard};
use crate::expr::moments::to_utc;
use crate::pgtype::IoSettings;
use crate::pgtype::calendar::{MICROS_PER_DAY, MICROS_PER_SECOND, TIMESTAMP_END, civil_from_days};
use crate::pgtype::timetz::Zoned;

/// The forms that are tried where a path has no template.
const FORMS: [&str; 19] = [
    "yyyy-mm-dd",
    "HH24:MI:SS.USTZH:TZM",
    "HH24:MI:SS.USTZH",
    "HH24:MI:SSTZH:TZM",
    "HH24:MI:SSTZH",
    "HH24:MI:SS.US",
    "HH24:MI:SS",
    "yyyy-mm-dd HH24:MI:SS.USTZH:TZM",
    "yyyy-mm-dd HH24:MI:SS.USTZH",
    "yyyy-mm-dd HH24:MI:SSTZH:TZM",
    "yyyy-mm-dd HH24:MI:SSTZH",
    "yyyy-mm-dd\"T\"HH24:MI:SS.USTZH:TZM",
    "yyyy-mm-dd\"T\"HH24:MI:SS.USTZH",
    "yyyy-mm-dd\"T\"HH24:MI:SSTZH:TZM",
    "yyyy-mm-dd\"T\"HH24:MI:SSTZH",
    "yyyy-mm-dd HH24:MI:SS.US",
    "yyyy-mm-dd HH24:MI:SS",
    "yyyy-mm-dd\"T\"HH24:MI:SS.US",
    "yyyy-mm-dd\"T\"HH24:MI:SS",
];

/// A date or time, with the text that it is in a document.
#[derive(Clone)]
pub struct Moment {
    what: Standard,
    pub text: Json,
}

impl Moment {
    pub fn read(text: &str, template: Option<&str>) -> Result<Moment> {
        let what = match template {
            Some(template) => from_char::standard(text, template)?,
            None => {
                let found = FORMS
                    .iter()
                    .find_map(|form| from_char::standard(text, form).ok());
                found.ok_or_else(|| {
                    let message = format!("datetime format is not recognized: \"{text}\"");
                    Error::new("22031", message)
                        .hint("Use a datetime template argument to specify the input data format.")
                })?
            }
        };
        Ok(Moment {
            what,
            text: Json::new(&Node::String(written(what))),
        })
    }

    pub fn type_name(&self) -> &'static str {
        type_name(self.what)
    }
}

fn type_name(what: Standard) -> &'static str {
    match what {
        Standard::Date(_) => "date",
        Standard::Time(_) => "time without time zone",
        Standard::TimeTz(_) => "time with time zone",
        Standard::Timestamp(_) => "timestamp without time zone",
        Standard::TimestampTz { .. } => "timestamp with time zone",
    }
}

/// As messages about conversions call it.
fn short_name(what: Standard) -> &'static str {
    match what {
        Standard::Date(_) => "date",
        Standard::Time(_) => "time",
        Standard::TimeTz(_) => "timetz",
        Standard::Timestamp(_) => "timestamp",
        Standard::TimestampTz { .. } => "timestamptz",
    }
}

/// The order of two moments; `None`: they do not compare. `zone`: where a time without a zone is
/// one; without it such a comparison is an error.
pub fn compared(l: &Moment, r: &Moment, zone: Option<&IoSettings>) -> Result<Option<Ordering>> {
    use Standard::{Date, Time, TimeTz, Timestamp, TimestampTz};
    let zoned = |from: Standard, to: Standard| {
        zone.ok_or_else(|| {
            let (from, to) = (short_name(from), short_name(to));
            let message =
                format!("cannot convert value from {from} to {to} without time zone usage");
            Error::new("0A000", message).hint("Use *_tz() function for time zone support.")
        })
    };
    // Dates go further than timestamps do: `None` is behind all of them.
    let midnight = |day: i32| {
        let begins = i64::from(day).checked_mul(MICROS_PER_DAY);
        begins.filter(|t| *t < TIMESTAMP_END)
    };
    Ok(match (l.what, r.what) {
        (Date(l), Date(r)) => Some(l.cmp(&r)),
        (Time(l), Time(r)) | (Timestamp(l), Timestamp(r)) => Some(l.cmp(&r)),
        (TimeTz(l), TimeTz(r)) => Some(l.to_stored().cmp(&r.to_stored())),
        (TimestampTz { utc: l, .. }, TimestampTz { utc: r, .. }) => Some(l.cmp(&r)),
        (Date(l), Timestamp(r)) => Some(midnight(l).map_or(Ordering::Greater, |l| l.cmp(&r))),
        (Time(time), TimeTz(r)) => {
            let l = Zoned::of_time(time, zoned(l.what, TimeTz(r))?);
            Some(l.to_stored().cmp(&r.to_stored()))
        }
        (Date(day), to @ TimestampTz { utc, .. }) => {
            let zone = zoned(l.what, to)?;
            match midnight(day) {
                Some(begins) => Some(to_utc(begins, zone)?.cmp(&utc)),
                None => Some(Ordering::Greater),
            }
        }
        (Timestamp(local), to @ TimestampTz { utc, .. }) => {
            Some(to_utc(local, zoned(l.what, to)?)?.cmp(&utc))
        }
        (Timestamp(_), Date(_)) | (TimeTz(_), Time(_)) => {
            compared(r, l, zone)?.map(Ordering::reverse)
        }
        (TimestampTz { .. }, Date(_) | Timestamp(_)) => {
            compared(r, l, zone)?.map(Ordering::reverse)
        }
        _ => None,
    })
}

/// As documents have it, by ISO 8601.
fn written(what: Standard) -> String {
    let mut out = String::new();
    let mut era = "";
    match what {
        Standard::Date(day) => era = date(day.into(), &mut out),
        Standard::Time(micros) => time(micros, &mut out),
        Standard::TimeTz(zoned) => {
            time(zoned.micros, &mut out);
            offset(zoned.east_s.into(), &mut out);
        }
        Standard::Timestamp(local) => era = timestamp(local, &mut out),
        Standard::TimestampTz { utc, east_s } => {
            era = timestamp(utc + east_s * MICROS_PER_SECOND, &mut out);
            offset(east_s, &mut out);
        }
    }
    out.push_str(era);
    out
}

/// Writes a date; what stands behind all of it.
fn date(days: i64, out: &mut String) -> &'static str {
    let civil = civil_from_days(days);
    let (year, era) = match civil.year {
        year if year > 0 => (year, ""),
        year => (1 - year, " BC"),
    };
    // Writing to a string cannot fail.
    let _ = write!(out, "{year:04}-{:02}-{:02}", civil.month, civil.day);
    era
}

fn time(micros: i64, out: &mut String) {
    let (seconds, fraction) = (micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let _ = write!(out, "{hour:02}:{minute:02}:{second:02}");
    if fraction != 0 {
        let digits = format!("{fraction:06}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
}

fn timestamp(local: i64, out: &mut String) -> &'static str {
    let era = date(local.div_euclid(MICROS_PER_DAY), out);
    out.push('T');
    time(local.rem_euclid(MICROS_PER_DAY), out);
    era
}

fn offset(east_s: i64, out: &mut String) {
    let west = east_s.unsigned_abs();
    let sign = if east_s < 0 { '-' } else { '+' };
    let _ = write!(out, "{sign}{:02}:{:02}", west / 3600, west / 60 % 60);
    if !west.is_multiple_of(60) {
        let _ = write!(out, ":{:02}", west % 60);
    }
}
