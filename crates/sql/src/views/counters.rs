//! What was counted: waits by event, statistics, latches.

use wait::{Event, views};

use super::Source::Here;
use super::value::{int4, int8, text};
use super::{Context, Rows, VirtualTable};
use crate::error::Result;
use crate::types::SqlType::{Int4, Int8, Text};
use block::value::Datum;

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "v$system_event",
        columns: &[
            ("event", Text),
            ("wait_class", Text),
            ("total_waits", Int8),
            ("time_waited_micro", Int8),
            ("average_wait_micro", Int8),
            ("max_wait_micro", Int8),
            ("total_waits_fg", Int8),
            ("time_waited_micro_fg", Int8),
        ],
        rows: Here(system_events),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$session_event",
        columns: &[
            ("sid", Int4),
            ("event", Text),
            ("wait_class", Text),
            ("total_waits", Int8),
            ("time_waited_micro", Int8),
            ("average_wait_micro", Int8),
            ("max_wait_micro", Int8),
        ],
        rows: Here(session_events),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$event_histogram",
        columns: &[
            ("event", Text),
            ("wait_class", Text),
            ("wait_time_below_micro", Int8),
            ("wait_count", Int8),
        ],
        rows: Here(histogram),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$event_name",
        columns: &[
            ("event#", Int4),
            ("name", Text),
            ("parameter1", Text),
            ("parameter2", Text),
            ("parameter3", Text),
            ("wait_class", Text),
        ],
        rows: Here(event_names),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$sysstat",
        columns: &[("statistic#", Int4), ("name", Text), ("value", Int8)],
        rows: Here(system_stats),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$sesstat",
        columns: &[
            ("sid", Int4),
            ("statistic#", Int4),
            ("name", Text),
            ("value", Int8),
        ],
        rows: Here(session_stats),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$latch",
        columns: &[
            ("name", Text),
            ("gets", Int8),
            ("misses", Int8),
            ("sleeps", Int8),
            ("wait_time_micro", Int8),
            ("latch#", Int8),
        ],
        rows: Here(latches),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$latch_children",
        columns: &[
            ("name", Text),
            ("child#", Int4),
            ("gets", Int8),
            ("misses", Int8),
            ("sleeps", Int8),
            ("wait_time_micro", Int8),
            ("latch#", Int8),
        ],
        rows: Here(latch_children),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$latch_misses",
        columns: &[
            ("parent_name", Text),
            ("location", Text),
            ("sleep_count", Int8),
            ("WHERE", Text),
        ],
        rows: Here(latch_misses),
    },
];

fn event_row(r: &views::EventRow) -> Vec<Datum> {
    vec![
        text(r.event.name()),
        text(r.event.class().name()),
        int8(r.waits),
        int8(r.time_us),
        int8(r.time_us / r.waits.max(1)),
        int8(r.max_us),
    ]
}

fn system_events(_: &Context) -> Result<Rows> {
    let row = |r: views::SystemEventRow| {
        let mut row = event_row(&r.all);
        row.extend([int8(r.users_waits), int8(r.users_time_us)]);
        row
    };
    Ok(views::system_events().into_iter().map(row).collect())
}

fn session_events(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for s in cx.sessions() {
        for r in views::session_events(&s) {
            let mut row = vec![int4(s.sid)];
            row.extend(event_row(&r));
            rows.push(row);
        }
    }
    Ok(rows)
}

fn histogram(_: &Context) -> Result<Rows> {
    let row = |r: views::HistogramRow| {
        vec![
            text(r.event.name()),
            text(r.event.class().name()),
            int8(r.below_us),
            int8(r.waits),
        ]
    };
    Ok(views::event_histogram().into_iter().map(row).collect())
}

fn event_names(_: &Context) -> Result<Rows> {
    let row = |(i, e): (usize, &Event)| {
        let [p1, p2, p3] = e.params();
        vec![
            int4(i),
            text(e.name()),
            text(p1),
            text(p2),
            text(p3),
            text(e.class().name()),
        ]
    };
    Ok(Event::ALL.iter().enumerate().map(row).collect())
}

fn system_stats(_: &Context) -> Result<Rows> {
    let row =
        |(stat, value): (wait::Stat, u64)| vec![int4(stat as i32), text(stat.name()), int8(value)];
    Ok(views::system_stats().into_iter().map(row).collect())
}

fn session_stats(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for s in cx.sessions() {
        for (stat, value) in views::session_stats(&s) {
            rows.push(vec![
                int4(s.sid),
                int4(stat as i32),
                text(stat.name()),
                int8(value),
            ]);
        }
    }
    Ok(rows)
}

/// The number of a class of latches: the FNV-1a hash of its name, so that it is the same on all
/// instances and after a restart, whichever classes there are by then.
fn latch_number(name: &str) -> Datum {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    int8(hash)
}

fn latches(_: &Context) -> Result<Rows> {
    let row = |r: views::LatchRow| {
        vec![
            text(r.name),
            int8(r.gets),
            int8(r.misses),
            int8(r.sleeps),
            int8(r.wait_us),
            latch_number(r.name),
        ]
    };
    Ok(views::latches().into_iter().map(row).collect())
}

fn latch_children(_: &Context) -> Result<Rows> {
    let row = |r: views::LatchRow| {
        vec![
            text(r.name),
            int4(r.child),
            int8(r.gets),
            int8(r.misses),
            int8(r.sleeps),
            int8(r.wait_us),
            latch_number(r.name),
        ]
    };
    Ok(views::latch_children().into_iter().map(row).collect())
}

fn latch_misses(_: &Context) -> Result<Rows> {
    Ok(views::latch_misses()
        .into_iter()
        .map(|r| {
            let place = text(r.location);
            vec![text(r.name), place.clone(), int8(r.sleeps), place]
        })
        .collect())
}
