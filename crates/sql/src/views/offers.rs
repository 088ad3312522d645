//! What the server offers: time zones and extensions (`pg_timezone_names`,
//! `pg_available_extensions`).

use block::interval::Interval;
use block::value::Datum;
use chrono::Offset as _;
use chrono_tz::{OffsetComponents as _, OffsetName as _};

use super::Source::Here;
use super::value::{NULL, bool, text};
use super::{Context, Rows, VirtualTable};
use crate::error::Result;
use crate::types::SqlType::{self, Bool, Name, Text};

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_timezone_names",
        columns: &[
            ("name", Text),
            ("abbrev", Text),
            ("utc_offset", SqlType::Interval),
            ("is_dst", Bool),
        ],
        rows: Here(zones),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_available_extensions",
        columns: &[
            ("name", Name),
            ("default_version", Text),
            ("installed_version", Text),
            ("comment", Text),
        ],
        rows: Here(|_| {
            let version = || text("1.0");
            Ok(vec![vec![
                text("plpgsql"),
                version(),
                version(),
                text(PLPGSQL),
            ]])
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_available_extension_versions",
        columns: &[
            ("name", Name),
            ("version", Text),
            ("installed", Bool),
            ("superuser", Bool),
            ("trusted", Bool),
            ("relocatable", Bool),
            ("schema", Name),
            ("requires", SqlType::NAMES),
            ("comment", Text),
        ],
        rows: Here(|_| {
            Ok(vec![vec![
                text("plpgsql"),
                text("1.0"),
                bool(true),
                bool(true),
                bool(true),
                bool(false),
                text("pg_catalog"),
                NULL,
                text(PLPGSQL),
            ]])
        }),
    },
];

const PLPGSQL: &str = "PL/pgSQL procedural language";

/// The zones of the IANA database as they are now.
fn zones(_: &Context) -> Result<Rows> {
    let now = chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now());
    let row = |zone: &chrono_tz::Tz| {
        let local = now.with_timezone(zone);
        let offset = local.offset();
        let seconds: i64 = offset.fix().local_minus_utc().into();
        vec![
            text(zone.name()),
            text(offset.abbreviation().unwrap_or_default()),
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
