//! Unique keys that are checked after the fact: deferrable ones.
//!
//! The entry of such a key is made as if the index was not unique. Right after, the writer looks
//! whether the key has another entry ([`Session::may_have_several_rows`]), and if so has to ask,
//! at the end of its statement or transaction, whether several rows have the key
//! ([`Session::has_several_rows`]).
//!
//! **Invariant.** Of two rows that have a key, the writer whose entry came last sees the other's
//! entry: an entry is there before the look for others, and is not removed while its row may be
//! alive. So one of two transactions always asks, and it waits for the other to end.

use crate::table::RowKey;
use crate::write::Verdict;
use crate::{IndexDef, Result, Session, TableDef};
use block::key::push_column;
use block::value::DatumRef;

impl Session {
    /// Whether the key of a row that was just written has other entries in a deferrable index.
    pub fn may_have_several_rows(
        &mut self,
        table: &TableDef,
        index: &IndexDef,
        row: &[DatumRef<'_>],
    ) -> Result<bool> {
        let Some(key) = index.key_of(table, row)?.filter(|key| !key.has_null) else {
            return Ok(false);
        };
        let mut entries = Vec::new();
        let tree = self.engine.tree(index.object, index.header);
        tree.lookup(&key.bytes, &mut entries)?;
        Ok(entries.len() > 1)
    }

    /// Whether more than one row has a key, given as the values of the index's columns, once all
    /// transactions that are changing rows with it have ended.
    pub fn has_several_rows(
        &mut self,
        table: &TableDef,
        index: &IndexDef,
        values: &[DatumRef<'_>],
    ) -> Result<bool> {
        let mut key = RowKey {
            bytes: Vec::with_capacity(32),
            has_null: false,
        };
        for (at, (c, value)) in index.columns.iter().zip(values).enumerate() {
            let ty = index.type_of(&table.columns, at);
            push_column(&mut key.bytes, ty, c.order(), *value);
        }
        let several = self.several(table, index, &key);
        self.txn.leave_key();
        several
    }

    pub(crate) fn several(
        &mut self,
        table: &TableDef,
        index: &IndexDef,
        key: &RowKey,
    ) -> Result<bool> {
        let tree = self.engine.tree(index.object, index.header);
        let heap = self.engine.heap(table.object, table.header);
        loop {
            wait::check_cancel().map_err(txn::Error::from)?;
            let mut entries = Vec::new();
            tree.lookup(&key.bytes, &mut entries)?;
            let rows = || entries.iter().map(|(rid, _)| *rid);
            let first = match self.judge(table, &heap, index, &key.bytes, rows())? {
                Verdict::AllDead => return Ok(false),
                Verdict::Duplicate(rid) => rid,
                Verdict::WaitFor(holder, place) => {
                    self.wait_for_key(holder, place)?;
                    continue;
                }
            };
            let others = rows().filter(|rid| *rid != first);
            match self.judge(table, &heap, index, &key.bytes, others)? {
                Verdict::AllDead => return Ok(false),
                Verdict::Duplicate(_) => return Ok(true),
                Verdict::WaitFor(holder, place) => self.wait_for_key(holder, place)?,
            }
        }
    }
}
