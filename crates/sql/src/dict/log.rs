//! Which definitions the last commits changed, so that another instance reads those and no others.
//!
//! Among several instances a commit that changes definitions writes a row more into the
//! dictionary's table: its number, one more than that of the commit before, and the keys of what it
//! changed. The rows are a ring of [`SLOTS`]. An instance whose picture has everything up to commit
//! `n` reads the rows of `n + 1` and on, and then the definitions that they name. It reads
//! everything again only if the ring has gone past it.
//!
//! **Invariants.**
//! - Numbers have no gaps and are not given twice: who draws one has the dictionary exclusively
//!   until its commit is published, and a transaction that is rolled back takes its row with it.
//! - A row and the definitions that it names are of one transaction: who sees one sees the others.
//!
//! An instance that is alone writes none, as nobody reads them; who opens the database later reads
//! everything, and with it the number of the last commit that was logged.

use block::value::{Datum, DatumRef};
use engine::{Engine, Session, Snapshot};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::object::kind;
use super::{Change, Dict, store};
use crate::error::{Error, Result};
use crate::exec::row::decode;
use crate::session::Core;

/// Commits that are remembered: an instance that asked for nothing while so many were made reads
/// the whole dictionary, which costs as much as reading some hundreds of definitions apart.
const SLOTS: u64 = 1024;
/// Keys that a row names at most, of up to twelve bytes: it stays below a block and a half. What
/// changes more is read as a whole.
const MOST_KEYS: usize = 1000;

/// A row of the log.
#[derive(Serialize, Deserialize)]
pub(super) struct Logged {
    pub number: u64,
    /// `None`: more than [`MOST_KEYS`].
    keys: Option<Vec<i64>>,
}

/// The key of the row that has the commit of a number.
fn slot_of(number: u64) -> i32 {
    i32::MIN + (number % SLOTS) as i32
}

/// Whether a definition's key is one of the log's rows.
pub(super) fn is_slot(key: i32) -> bool {
    key < i32::MIN + SLOTS as i32
}

impl Logged {
    pub fn read(definition: &[u8]) -> Result<Logged> {
        serde_json::from_slice(definition).map_err(|e| {
            let message = format!("damaged row of changes in the dictionary: {e}");
            Error::new("XX001", message)
        })
    }

    fn row(&self) -> Result<[Datum; store::COLUMNS]> {
        let text = serde_json::to_vec(self);
        let text = text.map_err(|e| Error::internal(format!("encoding changes: {e}")))?;
        Ok([
            Datum::Int4(slot_of(self.number)),
            Datum::Int2(kind::CHANGES),
            Datum::Text(String::new()),
            Datum::Bytea(text),
        ])
    }
}

/// A row of the dictionary's table by its key: where it is, and its definition.
pub(super) fn row_of(
    session: &mut Session,
    snapshot: &Snapshot,
    key: i32,
) -> Result<Option<(block::RowId, Vec<u8>)>> {
    let table = session.engine().dictionary();
    let mut bytes = Vec::new();
    let ahead = Default::default();
    let found = session.get_unique(&table, 0, &[Datum::Int4(key)], snapshot, &ahead, &mut bytes)?;
    let Some(row) = found else { return Ok(None) };
    let mut values = Vec::with_capacity(store::COLUMNS);
    decode(&bytes, &table, store::COLUMNS, &mut values)?;
    match values.get(3) {
        Some(DatumRef::Bytea(definition)) => Ok(Some((row, definition.to_vec()))),
        _ => Err(store::no_definition()),
    }
}

/// The row of the slot that the commit of a number is in, or was, or will be.
fn logged(
    session: &mut Session,
    snapshot: &Snapshot,
    number: u64,
) -> Result<Option<(block::RowId, Logged)>> {
    let found = row_of(session, snapshot, slot_of(number))?;
    let read = |(row, definition): (_, Vec<u8>)| Ok((row, Logged::read(&definition)?));
    found.map(read).transpose()
}

/// What was changed since a picture was read, and by which commit last. `None`: that is not known,
/// or too much.
pub fn changes_since(engine: &Arc<Engine>, before: &Dict) -> Result<Option<(Vec<Change>, u64)>> {
    let mut session = engine.session()?;
    session.begin(engine::Isolation::ReadCommitted)?;
    let snapshot = session.snapshot()?;
    let found = read_since(&mut session, &snapshot, before);
    session.end_statement();
    session.commit()?;
    found
}

fn read_since(
    session: &mut Session,
    snapshot: &Snapshot,
    before: &Dict,
) -> Result<Option<(Vec<Change>, u64)>> {
    let mut last = before.read;
    let mut keys = std::collections::BTreeSet::new();
    while let Some((_, logged)) = logged(session, snapshot, last + 1)? {
        if logged.number <= last {
            break;
        }
        let Some(changed) = logged.keys.filter(|_| logged.number == last + 1) else {
            return Ok(None);
        };
        keys.extend(changed);
        last = logged.number;
    }
    let changes = store::read_keys(session, snapshot, keys, before)?;
    Ok(Some((changes, last)))
}

impl Core {
    /// Writes the row of this transaction's changes, and gives its number. The transaction has the
    /// dictionary exclusively.
    pub(crate) fn log_changes(&mut self, changes: &[Change]) -> Result<u64> {
        let snapshot = self.engine.newest_snapshot()?;
        let mut last = self.database.with_dict(|dict| dict.read);
        // What the slot of the next commit has is of that commit, of one that many rounds later, or
        // of one before, which is overwritten.
        let old = loop {
            match logged(&mut self.engine, &snapshot, last + 1)? {
                Some((_, logged)) if logged.number > last => last = logged.number,
                old => break old.map(|(row, _)| row),
            }
        };
        let mut keys: Vec<i64> = changes.iter().map(|c| c.key).collect();
        keys.sort_unstable();
        keys.dedup();
        let logged = Logged {
            number: last + 1,
            keys: (keys.len() <= MOST_KEYS).then_some(keys),
        };
        let values = logged.row()?;
        self.write_row(old, &values)?;
        Ok(logged.number)
    }
}
