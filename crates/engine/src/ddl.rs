//! Segments of tables, indexes and sequences: created in a transaction, dropped at its commit.

use crate::{Error, IndexDef, Result, Session, TableDef};
use block::index::{push_row_id, split_key};
use block::sequence::{SequenceParams, SequenceState};
use block::space::SegmentKind;
use block::{Dba, ObjectId, Scn};
use std::sync::Arc;

/// A sequence as the engine sees it. Its parameters are in its own block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceDef {
    pub object: ObjectId,
    pub header: Dba,
}

impl Session {
    /// Creates an empty heap; returns its segment header.
    pub fn create_heap(&mut self, object: ObjectId) -> Result<Dba> {
        Ok(self
            .engine
            .space
            .create_segment(&mut self.txn, object, SegmentKind::Heap)?)
    }

    /// Creates an empty tree; returns its segment header.
    pub fn create_index_segment(&mut self, object: ObjectId) -> Result<Dba> {
        let header = self
            .engine
            .space
            .create_segment(&mut self.txn, object, SegmentKind::Index)?;
        self.engine.tree(object, header).create()?;
        Ok(header)
    }

    /// Fills an empty index from the table's rows. Nobody else changes the table meanwhile: the caller has locked it. Returns the SCN from which on snapshots
    /// may use the index.
    pub fn build_index(&mut self, table: &TableDef, index: &IndexDef) -> Result<Scn> {
        let snapshot = self.snapshot()?;
        let mut keys: Vec<Vec<u8>> = Vec::new();
        // Bytes of each key that no other row may have; zero where any number may.
        let mut checked_len = Vec::new();
        let mut scan = self.scan(&Arc::new(table.clone()));
        let mut failure = None;
        loop {
            wait::check_cancel().map_err(txn::Error::from)?;
            let more = scan.next_block(self, &snapshot, &mut |rid, row| match index
                .key_of_stored(table, row)
            {
                Ok(key) => {
                    let mut full = key.bytes;
                    let len = full.len();
                    push_row_id(&mut full, rid);
                    checked_len.push(if index.unique && !key.has_null {
                        len as u32
                    } else {
                        0
                    });
                    keys.push(full);
                }
                Err(e) => failure = Some(e),
            })?;
            if let Some(e) = failure.take() {
                return Err(e);
            }
            if !more {
                break;
            }
        }
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| keys[a as usize].cmp(&keys[b as usize]));
        let tree = self.engine.tree(index.object, index.header);
        let mut builder = tree.build();
        let mut last: Option<&[u8]> = None;
        for &i in &order {
            let (full, checked) = (&keys[i as usize], checked_len[i as usize] as usize);
            if checked > 0 && last.is_some_and(|l| l == &full[..checked]) {
                return Err(Error::UniqueViolation {
                    index: index.name.clone(),
                    table: table.object,
                    index_object: index.object,
                    row: split_key(full).map(|(_, rid)| rid),
                });
            }
            last = (checked > 0).then(|| &full[..checked]);
            builder.push(full)?;
        }
        builder.finish()?;
        Ok(self.engine.scn())
    }

    /// The object's space is given back when the transaction commits.
    pub fn drop_segment_at_commit(&mut self, object: ObjectId, _header: Dba) -> Result<()> {
        self.drops.push(object);
        Ok(())
    }

    /// Creates a sequence; returns its segment header.
    pub fn create_sequence(&mut self, object: ObjectId, params: &SequenceParams) -> Result<Dba> {
        let header =
            self.engine
                .space
                .create_segment(&mut self.txn, object, SegmentKind::Sequence)?;
        self.engine.sequence(object, header).create(params)?;
        Ok(header)
    }

    pub fn drop_sequence_at_commit(&mut self, object: ObjectId, header: Dba) -> Result<()> {
        self.drop_segment_at_commit(object, header)
    }

    /// Draws the next value. The draw is durable before this transaction's end is reported, even if it changes nothing else.
    pub fn sequence_next(&mut self, def: &SequenceDef) -> Result<i64> {
        let draw = self
            .engine
            .sequence(def.object, def.header)
            .draw()
            .map_err(|e| match e {
                access::Error::SequenceLimit { ascending, .. } => Error::SequenceLimit {
                    object: def.object,
                    descending: !ascending,
                },
                e => e.into(),
            })?;
        self.durable = self.durable.max(draw.durable);
        wait::stat::add(wait::Stat::SequenceDraws, 1);
        Ok(draw.value)
    }

    /// The parameters of a sequence, and where it stands.
    pub fn sequence_state(&self, def: &SequenceDef) -> Result<(SequenceParams, SequenceState)> {
        Ok(self.engine.sequence(def.object, def.header).state()?)
    }

    /// `setval`: at once for everybody, not undone.
    pub fn sequence_set(&mut self, def: &SequenceDef, value: i64, is_called: bool) -> Result<()> {
        let durable = self
            .engine
            .sequence(def.object, def.header)
            .set(value, is_called)?;
        self.durable = self.durable.max(durable);
        Ok(())
    }
}
