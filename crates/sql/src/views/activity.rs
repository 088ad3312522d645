//! Who there is, and what each does and waits for now or did in the last hour.

use block::value::Datum;
use wait::priority::Priority;
use wait::session::{Kind, Session};
use wait::views;

use super::Source::Here;
use super::value::{NULL, int4, int8, optional, text, time};
use super::{Context, Rows, VirtualTable, backends, blockers, remote, segments, services};
use crate::error::Result;
use crate::session::now_micros;
use crate::trace::SqlId;
use crate::types::SqlType::{self, Int4, Int8, Text, TimestampTz};

pub const SESSION: &str = "v$session";
/// Place in it of the first column about who blocks.
pub const BLOCKERS: usize = 26;
/// Places of what it waits for.
pub const EVENT: usize = 12;
pub const P2: usize = 17;
pub const P3: usize = 19;

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: SESSION,
        columns: &[
            ("sid", Int4),
            ("serial#", Int8),
            ("username", Text),
            ("status", Text),
            ("type", Text),
            ("program", Text),
            ("machine", Text),
            ("database", Text),
            ("spid", Int4),
            ("logon_time", TimestampTz),
            ("sql_text", Text),
            ("transaction_id", Int8),
            ("event", Text),
            ("wait_class", Text),
            ("p1text", Text),
            ("p1", Int8),
            ("p2text", Text),
            ("p2", Int8),
            ("p3text", Text),
            ("p3", Int8),
            ("state", Text),
            ("wait_time_micro", Int8),
            ("seconds_in_wait", Int8),
            ("time_since_last_wait_micro", Int8),
            ("seq#", Int8),
            ("service_name", Text),
            ("blocking_instance", Int4),
            ("blocking_session", Int4),
            ("blocking_transaction", Int8),
            ("pid", Int4),
            ("sql_trace", Text),
            ("sql_trace_waits", Text),
            ("sql_trace_binds", Text),
            ("tracefile", Text),
            ("transaction_start", TimestampTz),
            ("sql_exec_start", TimestampTz),
            ("last_call_et", Int8),
            ("osuser", Text),
        ],
        rows: Here(sessions),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$session_wait",
        columns: &[
            ("sid", Int4),
            ("seq#", Int8),
            ("event", Text),
            ("p1text", Text),
            ("p1", Int8),
            ("p2text", Text),
            ("p2", Int8),
            ("p3text", Text),
            ("p3", Int8),
            ("wait_class", Text),
            ("state", Text),
            ("wait_time_micro", Int8),
            ("seconds_in_wait", Int8),
            ("time_since_last_wait_micro", Int8),
            ("remote_instance", Int4),
            ("last_remote_seq#", Int8),
            ("last_remote_event", Text),
            ("last_remote_instance", Int4),
            ("last_remote_micro", Int8),
            ("message_out_micro", Int8),
            ("queue_micro", Int8),
            ("in_use_micro", Int8),
            ("build_micro", Int8),
            ("flush_micro", Int8),
            ("other_micro", Int8),
            ("message_back_micro", Int8),
            ("wakeup_micro", Int8),
        ],
        rows: Here(session_waits),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$active_session_history",
        columns: &[
            ("sample_id", Int8),
            ("sample_time", TimestampTz),
            ("session_id", Int4),
            ("session_serial#", Int8),
            ("session_type", Text),
            ("program", Text),
            ("session_state", Text),
            ("event", Text),
            ("wait_class", Text),
            ("p1", Int8),
            ("p2", Int8),
            ("p3", Int8),
            ("time_waited", Int8),
            ("sql_text", Text),
            ("transaction_id", Int8),
            ("seq#", Int8),
            ("remote_instance", Int4),
            ("last_remote_seq#", Int8),
            ("last_remote_event", Text),
            ("last_remote_instance", Int4),
            ("last_remote_micro", Int8),
            ("message_out_micro", Int8),
            ("queue_micro", Int8),
            ("in_use_micro", Int8),
            ("build_micro", Int8),
            ("flush_micro", Int8),
            ("other_micro", Int8),
            ("message_back_micro", Int8),
            ("wakeup_micro", Int8),
            ("sql_id", Text),
            ("blocking_instance", Int4),
            ("current_obj#", Int8),
            ("object_name", Text),
            ("blocking_session", Int4),
            ("sql_plan_hash_value", Int8),
            ("sql_plan_line_id", Int4),
            ("sql_plan_operation", Text),
        ],
        rows: Here(history),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$process",
        columns: PROCESS,
        rows: Here(processes),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$bgprocess",
        columns: PROCESS,
        rows: Here(background_processes),
    },
];

const PROCESS: &[(&str, SqlType)] = &[
    ("sid", Int4),
    ("spid", Int4),
    ("pname", Text),
    ("background", Text),
    ("cpu_used_micro", Int8),
    ("runnable_micro", Int8),
    ("priority", Text),
    ("cpus", Text),
    ("priority_refused", Text),
    ("state", Text),
];

/// How the wait of a session stands: event and its parameters, or, on CPU, the state alone.
struct Wait {
    event: Datum,
    class: Datum,
    /// Name and value of each parameter.
    params: [Datum; 6],
    state: Datum,
    time_us: Datum,
    seconds: Datum,
    since_us: Datum,
}

fn wait_of(s: &Session) -> Wait {
    match s.waiting() {
        Some(w) => {
            let names = w.event.params();
            let name = |i: usize| {
                if names[i].is_empty() {
                    NULL
                } else {
                    text(names[i])
                }
            };
            Wait {
                event: text(w.event.name()),
                class: text(w.event.class().name()),
                params: [
                    name(0),
                    Datum::Int8(w.params[0] as i64),
                    name(1),
                    Datum::Int8(w.params[1] as i64),
                    name(2),
                    Datum::Int8(w.params[2] as i64),
                ],
                state: text("WAITING"),
                time_us: int8(w.for_ns / 1000),
                seconds: int8(w.for_ns / 1_000_000_000),
                since_us: int8(0),
            }
        }
        None => Wait {
            event: NULL,
            class: NULL,
            params: [NULL; 6],
            state: text("WAITED KNOWN TIME"),
            time_us: int8(0),
            seconds: int8(0),
            since_us: int8(s.since_ns() / 1000),
        },
    }
}

fn non_empty(s: String) -> Datum {
    if s.is_empty() { NULL } else { text(s) }
}

/// A value of a session, for those who may see what its role does.
fn shown(cx: &Context, role: u32, value: Datum) -> Datum {
    match cx.authority.may_watch(&cx.dict, role) {
        true => value,
        false => NULL,
    }
}

pub(super) fn kind(kind: Kind) -> Datum {
    text(if kind == Kind::User {
        "USER"
    } else {
        "BACKGROUND"
    })
}

fn sessions(cx: &Context) -> Result<Rows> {
    let transactions = cx.database.engine().transactions();
    let (me, locks) = (transactions.instance(), transactions.locks());
    let rows = views::sessions().into_iter().map(|s| {
        let [blocking_instance, blocking_session, blocking_transaction] =
            blockers::of(&s, me, &locks);
        let who = s.identity();
        let w = wait_of(&s);
        let active = s.kind == Kind::Background || s.is_active();
        let program = if who.program.is_empty() {
            s.name.clone()
        } else {
            who.program
        };
        let [p1text, p1, p2text, p2, p3text, p3] = w.params;
        let transaction = s.transaction.load(std::sync::atomic::Ordering::Relaxed);
        let [trace, trace_waits, trace_binds] = trace_of(s.trace_level());
        let pid = wait::pid::of(me.0, s.sid);
        vec![
            int4(s.sid),
            int8(s.serial),
            non_empty(who.user),
            text(if active { "ACTIVE" } else { "INACTIVE" }),
            kind(s.kind),
            text(program),
            shown(cx, who.role, non_empty(who.client)),
            non_empty(who.database.clone()),
            int4(s.tid),
            time(s.logon),
            cx.shown_statement(who.role, s.sql().as_deref()),
            if transaction == 0 {
                NULL
            } else {
                Datum::Int8(transaction as i64)
            },
            w.event,
            w.class,
            p1text,
            p1,
            p2text,
            p2,
            p3text,
            p3,
            w.state,
            w.time_us,
            w.seconds,
            w.since_us,
            int8(s.wait_seq()),
            optional(services::of_session(s.kind, &who.database)),
            blocking_instance,
            blocking_session,
            blocking_transaction,
            int4(pid),
            text(trace),
            text(trace_waits),
            text(trace_binds),
            match s.kind {
                Kind::User => optional(crate::trace::path(cx.database.params(), me.0, pid)),
                Kind::Background => NULL,
            },
            backends::noted(s.transaction_began()),
            match s.is_active() {
                true => backends::noted(s.query_start()),
                false => NULL,
            },
            last_call(&s),
            // PostgreSQL's protocol does not tell a client's user of its operating system.
            NULL,
        ]
    });
    let mut rows = rows.collect();
    if !cx.for_another {
        blockers::find_sessions(cx, &mut rows, BLOCKERS)?;
    }
    Ok(rows)
}

/// For how many seconds a session has worked on its call, or has been idle since the last one; for
/// a thread of the instance, since it was started.
fn last_call(s: &Session) -> Datum {
    let since_logon = || s.logon.elapsed().unwrap_or_default().as_secs();
    match (s.kind, s.is_active(), s.waiting()) {
        (Kind::Background, ..) => int8(since_logon()),
        (Kind::User, false, Some(idle)) => int8(idle.for_ns / 1_000_000_000),
        (Kind::User, ..) => match s.query_start() {
            0 => int8(since_logon()),
            start => int8((now_micros() - start).max(0) / 1_000_000),
        },
    }
}

/// Whether a session is traced, with waits, and with bind values, in the field's words.
fn trace_of(level: u8) -> [&'static str; 3] {
    let word = |on: bool| if on { "TRUE" } else { "FALSE" };
    [
        if level == 0 { "DISABLED" } else { "ENABLED" },
        word(level & wait::trace::WAITS != 0),
        word(level & wait::trace::BINDS != 0),
    ]
}

fn session_waits(_: &Context) -> Result<Rows> {
    let rows = views::sessions().into_iter().map(|s| {
        let asked = s.waiting().and_then(|w| w.asked);
        let w = wait_of(&s);
        let [p1text, p1, p2text, p2, p3text, p3] = w.params;
        let mut row = vec![
            int4(s.sid),
            int8(s.wait_seq()),
            w.event,
            p1text,
            p1,
            p2text,
            p2,
            p3text,
            p3,
            w.class,
            w.state,
            w.time_us,
            w.seconds,
            w.since_us,
        ];
        row.extend(remote::of_session(asked, s.last_remote()));
        row
    });
    Ok(rows.collect())
}

fn history(cx: &Context) -> Result<Rows> {
    let names = segments::named(cx);
    let row = |r: wait::AshRow| {
        let [p1, p2, p3] = r.params;
        let transaction = if r.transaction == 0 {
            NULL
        } else {
            Datum::Int8(r.transaction as i64)
        };
        let mut row = vec![
            int8(r.sample_id),
            time(r.sample_time),
            int4(r.sid),
            int8(r.serial),
            kind(r.kind),
            text(&*r.program),
            text(if r.event.is_some() {
                "WAITING"
            } else {
                "ON CPU"
            }),
            optional(r.event.map(|e| e.name())),
            optional(r.event.map(|e| e.class().name())),
            int8(p1),
            int8(p2),
            int8(p3),
            int8(r.time_waited_us),
            cx.shown_statement(r.role, r.sql.as_deref()),
            transaction,
            int8(r.wait_seq),
        ];
        row.extend(remote::of_session(r.asked, r.remote));
        let id = r.sql.as_deref().map(|text| SqlId::of(text).to_string());
        row.push(optional(id));
        // The transaction that is waited for says whose it is.
        let awaited = r.awaited().map(|txn| block::TxnId(txn).instance().0);
        row.push(awaited.map_or(NULL, int4));
        row.push(r.object.map_or(NULL, int8));
        row.push(optional(r.object.map(|o| segments::name_of(&names, o))));
        row.push(r.blocker.map_or(NULL, int4));
        row.push(r.in_plan.as_ref().map_or(NULL, |p| int8(p.plan_hash)));
        let step = r.in_plan.as_ref().and_then(|p| p.step.as_ref());
        row.push(step.map_or(NULL, |(line, _)| int4(*line)));
        row.push(optional(step.map(|(_, name)| &**name)));
        row
    };
    Ok(views::active_session_history()
        .into_iter()
        .map(row)
        .collect())
}

fn processes(_: &Context) -> Result<Rows> {
    Ok(views::sessions().iter().map(|s| process(s)).collect())
}

/// The threads of the instance itself. What the kernel says of a thread are files, which are not
/// read here for sessions of clients.
fn background_processes(_: &Context) -> Result<Rows> {
    let all = views::sessions();
    let own = all.iter().filter(|s| s.kind == Kind::Background);
    Ok(own.map(|s| process(s)).collect())
}

fn process(s: &Session) -> Vec<Datum> {
    let used = views::schedule(s.tid);
    let got = s.priority();
    let cpus = views::cpus(s.tid);
    let refused = got.filter(|g| !g.refused.is_empty());
    let refused = refused.map(|g| g.refused.join("; "));
    let background = if s.kind == Kind::Background {
        text("1")
    } else {
        NULL
    };
    vec![
        int4(s.sid),
        int4(s.tid),
        text(&*s.name),
        background,
        int8(used.cpu_us),
        int8(used.runnable_us),
        text(
            got.as_ref()
                .map_or(Priority::Ordinary, |g| g.priority)
                .to_string(),
        ),
        optional(cpus),
        optional(refused),
        optional(views::state(s.tid).map(String::from)),
    ]
}
