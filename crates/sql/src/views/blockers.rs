//! Whom a session waits for: the session that has the lock, here or on another instance.
//!
//! A wait for a row is one for the transaction that has locked it, and a transaction's number says which instance it is of. Which session there runs it only that instance knows, so it is asked,
//! when there is such a wait at all. So are all, about their locks, if a session waits for a table or an advisory lock that nobody here holds.

use std::collections::HashMap;

use block::value::Datum;
use block::{InstanceId, TxnId};
use txn::{LockMode, LockRow};
use wait::Event;
use wait::session::Session;

use super::value::{NULL, int4};
use super::{Context, Rows, activity, everywhere};
use crate::error::Result;

/// The columns that this fills, in this order.
#[cfg(test)]
pub const COLUMNS: [&str; 3] = [
    "blocking_instance",
    "blocking_session",
    "blocking_transaction",
];

/// Instance, session and transaction that `s` waits for; the session is left out if it is of another instance.
pub fn of(s: &Session, me: InstanceId, locks: &[LockRow]) -> [Datum; 3] {
    let Some(w) = s.waiting() else {
        return [NULL; 3];
    };
    let kind = match w.event {
        Event::EnqTx | Event::EnqTxIndex => "TX",
        Event::EnqTm => "TM",
        Event::EnqUl => "UL",
        Event::GcTransactionTable => {
            let [instance, transaction, _] = w.params;
            return [int4(instance), NULL, Datum::Int8(transaction as i64)];
        }
        _ => return [NULL; 3],
    };
    let [_, id1, id2] = w.params;
    let holds = |r: &&LockRow| {
        (r.kind, r.id1, r.id2) == (kind, id1, id2) && r.held != LockMode::Null && r.sid != s.sid
    };
    let owner = TxnId(id1);
    match locks.iter().find(holds) {
        Some(r) => [int4(me.0), int4(r.sid), NULL],
        None if kind == "TX" && id2 == 0 && owner.instance() != me => {
            [int4(owner.instance().0), NULL, Datum::Int8(id1 as i64)]
        }
        None => [NULL; 3],
    }
}

/// Puts in the sessions of other instances. `first`: place of the column of the blocking instance.
pub fn find_sessions(cx: &Context, rows: &mut Rows, first: usize) -> Result<()> {
    find_holders_of_rows(cx, rows, first)?;
    find_holders_of_enqueues(cx, rows, first)
}

fn find_holders_of_rows(cx: &Context, rows: &mut Rows, first: usize) -> Result<()> {
    let is_open = |row: &[Datum]| row[first + 1].is_null() && !row[first + 2].is_null();
    if !rows.iter().any(|row| is_open(row)) {
        return Ok(());
    }
    let sessions: HashMap<i64, Datum> = everywhere::rows_of("v$transaction", cx)?
        .into_iter()
        .filter_map(|row| match &row[..] {
            [_, sid, Datum::Int8(xid), ..] => Some((*xid, sid.clone())),
            _ => None,
        })
        .collect();
    for row in rows.iter_mut().filter(|row| is_open(row)) {
        if let Datum::Int8(xid) = row[first + 2]
            && let Some(sid) = sessions.get(&xid)
        {
            row[first + 1] = sid.clone();
        }
    }
    Ok(())
}

/// A lock by kind and numbers.
type LockName = (&'static str, i64, i64);

/// The lock that a session waits for without knowing of a holder.
fn open_enqueue(row: &[Datum], first: usize) -> Option<LockName> {
    let column = |at: usize| &row[first - activity::BLOCKERS + at];
    let Datum::Text(event) = column(activity::EVENT) else {
        return None;
    };
    let kind = match &**event {
        e if e == Event::EnqTm.name() => "TM",
        e if e == Event::EnqUl.name() => "UL",
        _ => return None,
    };
    match (&row[first], column(activity::P2), column(activity::P3)) {
        (blocker, Datum::Int8(id1), Datum::Int8(id2)) if blocker.is_null() => {
            Some((kind, *id1, *id2))
        }
        _ => None,
    }
}

fn find_holders_of_enqueues(cx: &Context, rows: &mut Rows, first: usize) -> Result<()> {
    if !rows.iter().any(|row| open_enqueue(row, first).is_some()) {
        return Ok(());
    }
    // Instance and session of those who hold it.
    let mut holders: HashMap<(String, i64, i64), Vec<[Datum; 2]>> = HashMap::new();
    for row in everywhere::rows_of("v$lock", cx)? {
        let [
            instance,
            sid,
            Datum::Text(kind),
            Datum::Int8(id1),
            Datum::Int8(id2),
            Datum::Int4(held),
            ..,
        ] = &row[..]
        else {
            continue;
        };
        if *held > LockMode::Null as i32 {
            let name = (kind.to_string(), *id1, *id2);
            let of_lock = holders.entry(name).or_default();
            of_lock.push([instance.clone(), sid.clone()]);
        }
    }
    let me = int4(cx.database.engine().instance());
    for row in rows.iter_mut() {
        let Some((kind, id1, id2)) = open_enqueue(row, first) else {
            continue;
        };
        // Behind the number of its instance, if that stands there.
        let waiter = match first - activity::BLOCKERS {
            0 => [me.clone(), row[0].clone()],
            sid => [row[0].clone(), row[sid].clone()],
        };
        let of_lock = holders.get(&(kind.to_string(), id1, id2));
        let others = of_lock.into_iter().flatten().filter(|h| **h != waiter);
        if let Some([instance, sid]) = others.into_iter().next() {
            (row[first], row[first + 1]) = (instance.clone(), sid.clone());
        }
    }
    Ok(())
}
