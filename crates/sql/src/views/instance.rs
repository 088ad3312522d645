//! The instance's state beside its sessions: locks, transactions, cached statements, caches, parameters.

use std::time::{Duration, SystemTime};

use block::value::Datum;
use engine::cluster::{Cluster, MemberState};
use txn::LockMode;

use super::Source::Here;
use super::value::{NULL, int4, int8, optional, text, texts, time};
use super::{Context, Rows, VirtualTable};
use crate::error::Result;
use crate::params::{Context as Settable, Effect};
use crate::types::SqlType::{self, Bool, Int4, Int8, Text, TimestampTz};

pub const INSTANCE: &str = "v$instance";

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "v$lock",
        columns: &[
            ("sid", Int4),
            ("type", Text),
            ("id1", Int8),
            ("id2", Int8),
            ("lmode", Int4),
            ("request", Int4),
            ("mode_held", Text),
            ("mode_requested", Text),
            ("ctime_micro", Int8),
            ("block", Int4),
        ],
        rows: Here(locks),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$transaction",
        columns: &[
            ("sid", Int4),
            ("xid", Int8),
            ("instance", Int4),
            ("xidnum", Int8),
            ("start_time", TimestampTz),
            ("used_urec", Int8),
        ],
        rows: Here(transactions),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$undostat",
        columns: &[("statistic", Text), ("value", Int8)],
        rows: Here(undo),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$rowcache",
        columns: &[
            ("parameter", Text),
            ("count", Int8),
            ("gets", Int8),
            ("getmisses", Int8),
            ("modifications", Int8),
            ("cache#", Int4),
            ("type", Text),
            ("subordinate#", Int4),
        ],
        rows: Here(row_cache),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "x$kqrst",
        columns: &[("kqrstcid", Int4), ("kqrstcln", Int4)],
        rows: Here(row_cache_latches),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$parameter",
        columns: &[
            ("name", Text),
            ("value", Text),
            ("display_value", Text),
            ("default_value", Text),
            ("isdefault", Bool),
            ("ismodifiable", Text),
            ("has_effect", Bool),
            ("description", Text),
        ],
        rows: Here(parameters),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: INSTANCE,
        columns: &[
            ("instance_number", Int4),
            ("instance_name", Text),
            ("host_name", Text),
            ("version", Text),
            ("startup_time", TimestampTz),
            ("status", Text),
            ("spid", Int4),
            ("incarnation", Int8),
            ("epoch", Int8),
            ("interconnect", Text),
            ("host_time", TimestampTz),
            ("uptime_micro", Int8),
        ],
        rows: Here(instance),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_settings",
        columns: SETTINGS,
        rows: Here(settings),
    },
];

/// Tables that functions give, under the functions' names.
pub const FUNCTIONS: &[VirtualTable] = &[VirtualTable {
    schema: super::FUNCTIONS,
    name: "pg_show_all_settings",
    columns: SETTINGS,
    rows: Here(settings),
}];

const SETTINGS: &super::codec::Columns = &[
    ("name", Text),
    ("setting", Text),
    ("unit", Text),
    ("category", Text),
    ("short_desc", Text),
    ("extra_desc", Text),
    ("context", Text),
    ("vartype", Text),
    ("source", Text),
    ("min_val", Text),
    ("max_val", Text),
    ("enumvals", SqlType::TEXTS),
    ("boot_val", Text),
    ("reset_val", Text),
    ("sourcefile", Text),
    ("sourceline", Int4),
    ("pending_restart", Bool),
];

fn locks(cx: &Context) -> Result<Rows> {
    let cluster = cx.database.engine().cluster();
    let is_shared = cluster.is_some_and(|c| !c.members().is_alone());
    let row = |r: txn::LockRow| {
        let held_us = u64::try_from(r.held_or_waited.as_micros()).unwrap_or(u64::MAX);
        vec![
            int4(r.sid),
            text(r.kind),
            Datum::Int8(r.id1 as i64),
            Datum::Int8(r.id2 as i64),
            int4(r.held as i32),
            int4(r.requested as i32),
            text(format!("{:?}", r.held)),
            text(format!("{:?}", r.requested)),
            int8(held_us),
            int4(match r.blocking {
                true => 1,
                // Nobody here waits for it; whether somebody does elsewhere only they know.
                false if is_shared && r.kind == "TX" && r.held == LockMode::X => 2,
                false => 0,
            }),
        ]
    };
    Ok(shown_locks(cx).into_iter().map(row).collect())
}

/// The locks of this instance, and the requests for some.
pub fn shown_locks(cx: &Context) -> Vec<txn::LockRow> {
    let locks = cx.database.engine().transactions().locks();
    // Who waits until its instance has the lock is granted it among the sessions here already: that is no lock held.
    let waiting = |w: &&txn::LockRow| w.held == LockMode::Null;
    let waiting: Vec<&txn::LockRow> = locks.iter().filter(waiting).collect();
    let is_granted_here_only = |r: &txn::LockRow| {
        let waits_for = |w: &&txn::LockRow| {
            let same = (w.sid, w.kind, w.id1, w.id2) == (r.sid, r.kind, r.id1, r.id2);
            same && w.requested == r.held
        };
        r.held != LockMode::Null && waiting.iter().any(waits_for)
    };
    let shown = locks.iter().filter(|r| !is_granted_here_only(r));
    shown.cloned().collect()
}

fn transactions(cx: &Context) -> Result<Rows> {
    let row = |r: txn::TransactionRow| {
        let started = SystemTime::UNIX_EPOCH + Duration::from_millis(r.started_ms);
        vec![
            int4(r.sid),
            Datum::Int8(r.txn.0 as i64),
            int4(r.txn.instance().0),
            int8(r.txn.number()),
            time(started),
            int8(r.undo_records),
        ]
    };
    Ok(cx
        .database
        .engine()
        .transactions()
        .transactions()
        .into_iter()
        .map(row)
        .collect())
}

fn undo(cx: &Context) -> Result<Rows> {
    let s = cx.database.engine().transactions().statistics();
    let row = |name: &str, value: u64| vec![text(name), int8(value)];
    Ok(vec![
        row("transaction statuses", s.statuses),
        row("transaction status bytes", s.status_bytes as u64),
        row("registered snapshots", s.registered_snapshots as u64),
        row("purge hints waiting", s.purge_hints as u64),
        row("horizon (SCN)", s.horizon.0),
    ])
}

fn row_cache(cx: &Context) -> Result<Rows> {
    let d = &cx.dict;
    let (tables, sequences) = (d.tables().count(), d.sequences().count());
    let indexes: usize = d.tables().map(|t| t.indexes.len()).sum();
    let total = |stat| wait::session::total(|c| c.stat(stat));
    let (gets, misses) = (total(wait::Stat::ParseCount), total(wait::Stat::ParseHard));
    // Definitions are all in memory: what a statement needs of them is found when its plan is, and never read from disk.
    let row = |number: usize, count: usize, gets: u64, misses: u64| {
        vec![
            text(ROW_CACHES[number]),
            int8(count),
            int8(gets),
            int8(misses),
            int8(d.version()),
            int4(number),
            text("PARENT"),
            NULL,
        ]
    };
    Ok(vec![
        row(0, tables, misses, 0),
        row(1, indexes, misses, 0),
        row(2, sequences, misses, 0),
        row(3, cx.database.plans.all().len(), gets, misses),
    ])
}

/// The caches of `v$rowcache`. Their numbers there, `cache#`, are their places here.
const ROW_CACHES: [&str; 4] = ["dc_tables", "dc_indexes", "dc_sequences", "dc_statements"];

/// The child of the latch `row cache objects` for each cache, as `x$kqrst` has it. Definitions are
/// read in a picture of the dictionary that does not change, so that no latch is on the way to them
/// and the child's number is NULL.
fn row_cache_latches(_: &Context) -> Result<Rows> {
    Ok((0..ROW_CACHES.len()).map(|n| vec![int4(n), NULL]).collect())
}

fn parameters(cx: &Context) -> Result<Rows> {
    let row = |(p, value): &(&'static crate::params::Param, String)| {
        let modifiable = match p.context {
            Settable::Internal => "never",
            Settable::Start => "at start",
            Settable::System => "by system",
            Settable::Superuser | Settable::Session => "by session",
        };
        vec![
            text(p.name),
            text(value.clone()),
            text(p.show(value)),
            text(p.default),
            Datum::Bool(value == p.default),
            text(modifiable),
            Datum::Bool(p.effect == Effect::Works),
            text(p.description),
        ]
    };
    Ok(cx.settings.iter().map(row).collect())
}

fn instance(cx: &Context) -> Result<Rows> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let engine = cx.database.engine();
    let number = engine.instance();
    let interconnect = engine.cluster().map(|c| c.address().to_string());
    Ok(vec![vec![
        int4(number),
        text(instance_name(number)),
        text(host.trim()),
        text(env!("CARGO_PKG_VERSION")),
        Datum::TimestampTz(cx.database.started_micros()),
        text("OPEN"),
        int4(std::process::id()),
        int8(engine.incarnation()),
        int8(engine.epoch()),
        optional(interconnect),
        time(SystemTime::now()),
        int8(cx.database.up_micros()),
    ]])
}

fn instance_name(number: u16) -> String {
    format!("braid{number}")
}

/// An instance that says nothing of itself.
pub struct Silent {
    pub instance: u16,
    /// What is known of it.
    pub status: &'static str,
    /// Its row of [`INSTANCE`].
    pub row: Vec<Datum>,
}

/// Those who are up according to the control file, or dead and not recovered yet, and have not been heard.
pub fn silent(cluster: &Cluster, heard: &[u16]) -> Result<Vec<Silent>> {
    let known = cluster.records()?;
    let silent = known
        .members
        .iter()
        .filter(|m| !heard.contains(&m.instance.0));
    let silent = silent.filter_map(|m| {
        let (in_view, status) = match m.state {
            MemberState::Up => ("NOT RESPONDING", "it is joining, or leaving"),
            MemberState::Dead => (
                "DEAD, TO BE RECOVERED",
                "it has died, and its blocks are being recovered",
            ),
            MemberState::Recovered => (
                "DEAD, TO BE ROLLED BACK",
                "it has died, and its transactions are to be rolled back",
            ),
            MemberState::Down => return None,
        };
        let instance = m.instance.0;
        let row = vec![
            int4(instance),
            text(instance_name(instance)),
            NULL,
            NULL,
            NULL,
            text(in_view),
            NULL,
            int8(m.incarnation),
            int8(m.changed_in_epoch),
            text(m.address.clone()),
            NULL,
            NULL,
        ];
        Some(Silent {
            instance,
            status,
            row,
        })
    });
    Ok(silent.collect())
}

fn settings(cx: &Context) -> Result<Rows> {
    use crate::params::Kind;
    let row = |(p, value): &(&'static crate::params::Param, String)| {
        let (kind, min, max, words, unit) = match p.kind {
            Kind::Bool => ("bool", None, None, None, None),
            Kind::Int { min, max, unit } => (
                "integer",
                Some(min.to_string()),
                Some(max.to_string()),
                None,
                unit.name(),
            ),
            Kind::Real { min, max } => (
                "real",
                Some(min.to_string()),
                Some(max.to_string()),
                None,
                None,
            ),
            Kind::Word(words) => (
                "enum",
                None,
                None,
                Some(texts(words.iter().map(|w| (*w).to_string()))),
                None,
            ),
            Kind::Encoding | Kind::Text => ("string", None, None, None, None),
        };
        let context = match p.context {
            Settable::Internal => "internal",
            Settable::Start => "postmaster",
            Settable::System => "sighup",
            Settable::Superuser => "superuser",
            Settable::Session => "user",
        };
        let source = if value == p.default {
            "default"
        } else {
            "session"
        };
        let instance = cx.database.params().value(p);
        vec![
            text(p.name),
            text(value.clone()),
            optional(unit),
            NULL,
            text(p.description),
            NULL,
            text(context),
            text(kind),
            text(source),
            optional(min),
            optional(max),
            words.unwrap_or(NULL),
            text(p.default),
            text(instance),
            NULL,
            NULL,
            Datum::Bool(false),
        ]
    };
    Ok(cx.settings.iter().map(row).collect())
}
