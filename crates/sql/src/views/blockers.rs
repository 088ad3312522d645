//! Whom a session waits for: the session that has the lock, here or on another instance.
//!
//! A wait for a row is one for the transaction that has locked it, and a transaction's number says which instance it is of. Which session there runs it only that instance knows, so it is asked,
//! when there is such a wait at all.

use std::collections::HashMap;

use block::value::Datum;
use block::{InstanceId, TxnId};
use txn::{LockMode, LockRow};
use wait::Event;
use wait::session::Session;

use super::value::{NULL, int4};
use super::{Context, Rows, everywhere};
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
