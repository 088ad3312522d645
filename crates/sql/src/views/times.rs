//! What time went to, by session and instance; rates of the last minute; the machine.

use block::value::Datum;
use wait::session::{self, Kind};
use wait::{metric, time_model};

use super::Source::Here;
use super::value::{int4, int8, text};
use super::{Context, Rows, VirtualTable};
use crate::error::Result;
use crate::types::SqlType::{Float8, Int4, Int8, Text};

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "v$sess_time_model",
        columns: &[("sid", Int4), ("stat_name", Text), ("value", Int8)],
        rows: Here(of_sessions),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$sys_time_model",
        columns: &[("stat_name", Text), ("value", Int8)],
        rows: Here(of_instance),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$osstat",
        columns: &[("stat_name", Text), ("value", Float8), ("comments", Text)],
        rows: Here(machine),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$sysmetric",
        columns: &[
            ("metric_name", Text),
            ("value", Float8),
            ("metric_unit", Text),
            ("intsize_csec", Int8),
        ],
        rows: Here(metrics),
    },
];

fn of_sessions(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for s in cx.sessions() {
        let named = time_model::named(s.kind, &time_model::of(&s), |stat| s.counters.stat(stat));
        rows.extend((named.into_iter()).map(|(name, us)| vec![int4(s.sid), text(name), int8(us)]));
    }
    Ok(rows)
}

fn of_instance(_: &Context) -> Result<Rows> {
    let (user, background) = time_model::of_instance();
    let stat = |stat| session::total(|c| c.stat(stat));
    let named = [(Kind::User, user), (Kind::Background, background)]
        .into_iter()
        .flat_map(|(kind, times)| time_model::named(kind, &times, stat));
    Ok(named.map(|(name, us)| vec![text(name), int8(us)]).collect())
}

fn machine(_: &Context) -> Result<Rows> {
    let row = |(name, value, what)| vec![text(name), Datum::Float8(value), text(what)];
    Ok(metric::host().into_iter().map(row).collect())
}

fn metrics(_: &Context) -> Result<Rows> {
    let row = |m: metric::Metric| {
        vec![
            text(m.name),
            Datum::Float8(m.value),
            text(m.unit),
            int8((m.seconds * 100.0) as u64),
        ]
    };
    Ok(metric::metrics().into_iter().map(row).collect())
}
