//! The time zones that there are: `pg_timezone_names`.

use block::interval::Interval;
use block::value::Datum;
use chrono::Offset as _;
use chrono_tz::{OffsetComponents as _, OffsetName as _};

use super::Source::Here;
use super::value::{bool, text};
use super::{Context, Rows, VirtualTable};
use crate::error::Result;
use crate::types::SqlType::{self, Bool, Text};

pub const VIEWS: &[VirtualTable] = &[VirtualTable {
    schema: "pg_catalog",
    name: "pg_timezone_names",
    columns: &[
        ("name", Text),
        ("abbrev", Text),
        ("utc_offset", SqlType::Interval),
        ("is_dst", Bool),
    ],
    rows: Here(zones),
}];

/// The zones of the IANA database as they are now.
fn zones(_: &Context) -> Result<Rows> {
    let now = chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now());
    let row = |zone: &chrono_tz::Tz| {
        let local = now.with_timezone(zone);
        let offset = local.offset();
        let seconds: i64 = offset.fix().local_minus_utc().into();
        vec![
            text(zone.name()),
            text(match offset.abbreviation() {
                Some(name) => name.to_string(),
                None => numeric(seconds),
            }),
            Datum::Interval(Interval {
                months: 0,
                days: 0,
                micros: seconds * 1_000_000,
            }),
            bool(!offset.dst_offset().is_zero()),
        ]
    };
    Ok(chrono_tz::TZ_VARIANTS.iter().map(row).collect())
}

/// The abbreviation of a zone that has no name for it: its difference from UTC, in hours, or in
/// hours and minutes.
fn numeric(seconds: i64) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.abs() / 60;
    let (hours, minutes) = (minutes / 60, minutes % 60);
    match minutes {
        0 => format!("{sign}{hours:02}"),
        minutes => format!("{sign}{hours:02}{minutes:02}"),
    }
}
