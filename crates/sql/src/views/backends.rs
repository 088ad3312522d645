//! PostgreSQL's views of sessions and locks, with those of all instances: `pg_stat_activity`,
//! `pg_locks`, and `pg_blocking_pids`. They have the columns of PostgreSQL 15, and the number of
//! the instance, `inst_id`, as the last one.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use block::RowId;
use block::value::Datum;
use txn::{LockMode, LockRow};
use wait::session::{HIDDEN, Kind, Session, State};
use wait::{Class, Event, pid};

use super::Source::Cluster;
use super::describe::DATABASE;
use super::value::{NULL, bool, int2, int4, oid, optional, text, time};
use super::{Context, Rows, VirtualTable, everywhere, instance};
use crate::dict::PG_CLASS;
use crate::dict::membership::READ_ALL_STATS;
use crate::error::Result;
use crate::session::NOBODY;
use crate::types::SqlType::{
    Bool, Inet, Int2, Int4, Int8, Name, Numeric, Oid, Text, TimestampTz, Xid,
};

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_stat_activity",
        columns: &[
            ("datid", Oid),
            ("datname", Name),
            ("pid", Int4),
            ("leader_pid", Int4),
            ("usesysid", Oid),
            ("usename", Name),
            ("application_name", Text),
            ("client_addr", Inet),
            ("client_hostname", Text),
            ("client_port", Int4),
            ("backend_start", TimestampTz),
            ("xact_start", TimestampTz),
            ("query_start", TimestampTz),
            ("state_change", TimestampTz),
            ("wait_event_type", Text),
            ("wait_event", Text),
            ("state", Text),
            ("backend_xid", Int8),
            ("backend_xmin", Xid),
            ("query_id", Int8),
            ("query", Text),
            ("backend_type", Text),
            ("inst_id", Int4),
        ],
        rows: Cluster(activity),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_locks",
        columns: &[
            ("locktype", Text),
            ("database", Oid),
            ("relation", Oid),
            ("page", Int4),
            ("tuple", Int2),
            ("virtualxid", Text),
            ("transactionid", Int8),
            ("classid", Oid),
            ("objid", Oid),
            ("objsubid", Int2),
            ("virtualtransaction", Text),
            ("pid", Int4),
            ("mode", Text),
            ("granted", Bool),
            ("fastpath", Bool),
            ("waitstart", TimestampTz),
            ("inst_id", Int4),
        ],
        rows: Cluster(locks),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_stat_ssl",
        columns: &[
            ("pid", Int4),
            ("ssl", Bool),
            ("version", Text),
            ("cipher", Text),
            ("bits", Int4),
            ("client_dn", Text),
            ("client_serial", Numeric),
            ("issuer_dn", Text),
            ("inst_id", Int4),
        ],
        rows: Cluster(encrypted),
    },
];

/// Of each client that the role may watch whether its connection is encrypted. No other version of
/// TLS is spoken; what a client's certificate says is not kept.
fn encrypted(cx: &Context) -> Result<Rows> {
    let here = cx.database.engine().instance();
    let row = |s: Arc<Session>| {
        let who = s.identity();
        let is_client = s.kind == Kind::User && who.role != NOBODY;
        if !is_client || !cx.authority.may_watch(&cx.dict, who.role) {
            return None;
        }
        let cipher = who.cipher;
        let bits = cipher.as_deref().map(|c| match c.contains("AES_128") {
            true => 128,
            false => 256,
        });
        Some(vec![
            int4(pid::of(here, s.sid)),
            bool(cipher.is_some()),
            optional(cipher.as_ref().map(|_| "TLSv1.3")),
            optional(cipher),
            bits.map_or(NULL, Datum::Int4),
            NULL,
            NULL,
            NULL,
            int4(here),
        ])
    };
    Ok(wait::views::sessions()
        .into_iter()
        .filter_map(row)
        .collect())
}

/// PostgreSQL's type of a wait, by which programs made for it count those for locks. The event has
/// the name that it has everywhere here.
fn wait_event_type(event: Event) -> &'static str {
    match (event, event.class()) {
        (Event::EnqTx | Event::EnqTxIndex | Event::EnqTm | Event::EnqUl, _) => "Lock",
        (
            Event::NetFromClient
            | Event::NetToClient
            | Event::NetMoreToClient
            | Event::NetMoreFromClient,
            _,
        ) => "Client",
        (Event::Sleep, _) => "Timeout",
        (_, Class::UserIo | Class::SystemIo | Class::Commit) => "IO",
        (_, Class::Concurrency) => "LWLock",
        (_, Class::Idle) => "Activity",
        _ => "IPC",
    }
}

fn ago(ns: u64) -> Datum {
    time(SystemTime::now() - Duration::from_nanos(ns))
}

/// A point in time as sessions note it; zero is none.
pub fn noted(micros: i64) -> Datum {
    match micros {
        0 => NULL,
        micros => Datum::TimestampTz(micros),
    }
}

fn activity(cx: &Context) -> Result<Rows> {
    let here = cx.database.engine().instance();
    let sessions = wait::views::sessions().into_iter();
    let rows = sessions.filter_map(|s| match s.kind {
        Kind::Background => Some(background(cx, &s, here)),
        // A connection that has not said yet who it is is no session.
        Kind::User => client(cx, &s, here),
    });
    Ok(rows.collect())
}

fn background(cx: &Context, s: &Arc<Session>, here: u16) -> Vec<Datum> {
    let mut row = vec![NULL; 22];
    row[2] = int4(pid::of(here, s.sid));
    row[6] = text("");
    if !cx.authority.has_rights_of(&cx.dict, READ_ALL_STATS) {
        row[20] = text(HIDDEN);
        row.push(int4(here));
        return row;
    }
    let waiting = s.waiting();
    row[10] = time(s.logon);
    row[14] = optional(waiting.map(|w| wait_event_type(w.event)));
    row[15] = optional(waiting.map(|w| w.event.name()));
    row[20] = text("");
    row[21] = text(&*s.name);
    row.push(int4(here));
    row
}

fn client(cx: &Context, s: &Arc<Session>, here: u16) -> Option<Vec<Datum>> {
    let who = s.identity();
    if who.role == NOBODY {
        return None;
    }
    let role = cx.dict.role_by_oid(who.role);
    let transaction = s.transaction.load(std::sync::atomic::Ordering::Relaxed);
    let mut row = vec![NULL; 22];
    row[0] = oid(DATABASE);
    row[1] = text(who.database);
    row[2] = int4(pid::of(here, s.sid));
    row[4] = oid(who.role);
    row[5] = optional(role.map(|role| role.name.clone()));
    row[6] = text(who.program);
    row[17] = match transaction {
        0 => NULL,
        xid => Datum::Int8(xid as i64),
    };
    match cx.authority.may_watch(&cx.dict, who.role) {
        true => show_activity(s, &who.client, &mut row),
        false => row[20] = text(HIDDEN),
    }
    row.push(int4(here));
    Some(row)
}

/// Fills in what only a session's own role and superusers may see.
fn show_activity(s: &Session, client: &str, row: &mut [Datum]) {
    let address: Option<SocketAddr> = client.parse().ok();
    let (state, waiting) = (s.state(), s.waiting());
    let query_start = s.query_start();
    let state_change = match (state, waiting) {
        (State::Active, _) | (_, None) => noted(query_start),
        (_, Some(w)) => ago(w.for_ns),
    };
    row[7] = super::inspect::address(address);
    row[9] = address.map_or(NULL, |a| int4(a.port()));
    row[10] = time(s.logon);
    row[11] = noted(s.transaction_began());
    row[12] = noted(query_start);
    row[13] = state_change;
    row[14] = optional(waiting.map(|w| wait_event_type(w.event)));
    row[15] = optional(waiting.map(|w| w.event.name()));
    row[16] = text(match state {
        State::Active => "active",
        State::Idle => "idle",
        State::InTransaction => "idle in transaction",
        State::Failed => "idle in transaction (aborted)",
    });
    row[20] = text(s.sql().map_or(String::new(), |sql| sql.to_string()));
    row[21] = text("client backend");
}

fn locks(cx: &Context) -> Result<Rows> {
    let here = cx.database.engine().instance();
    let shown = instance::shown_locks(cx);
    Ok(shown.iter().map(|r| lock(r, here)).collect())
}

fn lock(r: &LockRow, here: u16) -> Vec<Datum> {
    let granted = r.held != LockMode::Null;
    let mode = if granted { r.held } else { r.requested };
    let mut row = vec![NULL; 10];
    row[1] = oid(DATABASE);
    let kind = match r.kind {
        "TM" => {
            row[2] = oid(r.id1 as u32);
            "relation"
        }
        "TX" if r.id1 == 0 => {
            let row_id = RowId(r.id2);
            (row[3], row[4]) = (int4(row_id.dba().block()), int2(row_id.slot()));
            "tuple"
        }
        // The line for a key of an index.
        "TX" if r.id2 != 0 => {
            (row[7], row[8], row[9]) = (oid(PG_CLASS), oid(r.id1 as u32), int2(0));
            "object"
        }
        "TX" => {
            row[1] = NULL;
            row[6] = Datum::Int8(r.id1 as i64);
            "transactionid"
        }
        "UL" => {
            (row[7], row[8]) = (oid((r.id1 >> 32) as u32), oid(r.id1 as u32));
            row[9] = int2(r.id2 + 1);
            "advisory"
        }
        _ => {
            (row[7], row[8], row[9]) = (oid((r.id1 >> 32) as u32), oid(r.id1 as u32), int2(0));
            "object"
        }
    };
    row[0] = text(kind);
    row.extend([
        text(format!("{here}/{}", r.sid)),
        match r.sid {
            0 => NULL,
            sid => int4(pid::of(here, sid)),
        },
        text(mode_name(kind, mode)),
        bool(granted),
        bool(granted && kind == "relation" && r.held_or_waited.is_zero()),
        match granted {
            true => NULL,
            false => time(SystemTime::now() - r.held_or_waited),
        },
        int4(here),
    ]);
    row
}

/// PostgreSQL's name of a mode.
fn mode_name(kind: &str, mode: LockMode) -> &'static str {
    match mode {
        // Whoever waits for a transaction to end shares the wait with others.
        _ if kind == "transactionid" && mode != LockMode::X => "ShareLock",
        LockMode::Null => "",
        _ => mode.postgres_name(kind == "relation"),
    }
}

/// A lock or a request of `gv$lock`.
struct Entry {
    session: (i64, i64),
    name: (String, i64, i64),
    held: LockMode,
    requested: LockMode,
    /// Since when, in microseconds before now.
    micros: i64,
}

impl Entry {
    fn of(row: &[Datum]) -> Option<Entry> {
        let number = |at: usize| match row.get(at) {
            Some(Datum::Int4(n)) => Some(i64::from(*n)),
            Some(Datum::Int8(n)) => Some(*n),
            _ => None,
        };
        let mode = |at| {
            LockMode::ALL
                .get(usize::try_from(number(at)?).ok()?)
                .copied()
        };
        let Some(Datum::Text(kind)) = row.get(2) else {
            return None;
        };
        Some(Entry {
            session: (number(0)?, number(1)?),
            name: (kind.to_string(), number(3)?, number(4)?),
            held: mode(5)?,
            requested: mode(6)?,
            micros: number(9)?,
        })
    }

    /// Whether this keeps `waiter` waiting: what is held, or asked for by who has waited longer.
    fn blocks(&self, waiter: &Entry) -> bool {
        let is_in_the_way = |mode: LockMode| match &*waiter.name.0 {
            // The holder of a row's transaction, or whoever is first in line for the row.
            "TX" => mode != LockMode::Null,
            _ => mode.conflicts(waiter.requested),
        };
        self.name == waiter.name
            && self.session != waiter.session
            && (is_in_the_way(self.held)
                || (is_in_the_way(self.requested)
                    && self.name.0 != "TX"
                    && self.micros > waiter.micros))
    }
}

/// The process ids of the sessions that keep one from a lock. None are for a process that does not
/// wait, or that is none.
pub fn blocking_pids(cx: &Context, of: i32) -> Result<BTreeSet<i32>> {
    let Some((instance, sid)) = pid::parts(of) else {
        return Ok(BTreeSet::new());
    };
    let rows = everywhere::rows_of("v$lock", cx)?;
    let entries: Vec<Entry> = rows.iter().filter_map(|row| Entry::of(row)).collect();
    let session = (i64::from(instance), i64::from(sid));
    Ok(blockers(&entries, session))
}

fn blockers(entries: &[Entry], session: (i64, i64)) -> BTreeSet<i32> {
    let waits = |e: &&Entry| e.session == session && e.requested != LockMode::Null;
    let mut pids = BTreeSet::new();
    for waiter in entries.iter().filter(waits) {
        let blocking = entries.iter().filter(|e| e.blocks(waiter));
        pids.extend(blocking.filter_map(|e| {
            let (instance, sid) = e.session;
            Some(pid::of(
                u16::try_from(instance).ok()?,
                u32::try_from(sid).ok()?,
            ))
        }));
    }
    pids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(session: (i64, i64), name: (&str, i64), held: LockMode, requested: LockMode) -> Entry {
        Entry {
            session,
            name: (name.0.to_string(), name.1, 0),
            held,
            requested,
            micros: 10,
        }
    }

    #[test]
    fn who_blocks_is_who_holds_and_who_waits_longer() {
        use LockMode::{Null, S, SX, X};
        let table = ("TM", 7);
        let mut entries = vec![
            entry((1, 3), table, SX, Null),
            entry((2, 3), table, SX, Null),
            entry((2, 4), table, Null, X),
            entry((1, 5), table, Null, S),
            entry((1, 6), ("TM", 8), X, Null),
        ];
        let pids = |entries: &[Entry], session| {
            let pids = blockers(entries, session);
            pids.into_iter().collect::<Vec<_>>()
        };
        let pid = pid::of;
        assert_eq!(pids(&entries, (2, 4)), [pid(1, 3), pid(2, 3)]);
        entries[2].micros = 20;
        assert_eq!(pids(&entries, (1, 5)), [pid(1, 3), pid(2, 3), pid(2, 4)]);
        assert_eq!(pids(&entries, (1, 3)), [0; 0], "it does not wait");
        assert_eq!(pids(&entries, (9, 9)), [0; 0], "there is no such session");
    }

    #[test]
    fn whoever_wants_a_row_waits_for_its_transaction_only() {
        use LockMode::{Null, X};
        let row = ("TX", 99);
        let mut entries = vec![
            entry((1, 3), row, X, Null),
            entry((2, 4), row, Null, X),
            entry((2, 5), row, Null, X),
        ];
        entries[1].micros = 20;
        assert_eq!(blockers(&entries, (2, 5)), BTreeSet::from([pid::of(1, 3)]));
    }
}
