//! Segments of tables, indexes and sequences. A transaction creates them, and drops them at its
//! commit.

use crate::table::RowKey;
use crate::{
    Engine, Error, IndexDef, Records, Result, SequenceDef, Session, Snapshot, Sorted, Sorter,
    TableDef,
};
use access::sequence::{Alone, Draw, Logged, Sequence};
use block::index::{ROW_ID_LEN, push_row_id, split_key};
use block::sequence::{SequenceParams, SequenceState};
use block::space::SegmentKind;
use block::{Dba, LogPos, ObjectId, Scn};
use fusion::sequences::Mark;
use std::sync::Arc;
use wait::longop::{LongOp, Target};

/// Entries put into a new index between two checks of whether the statement is cancelled.
const CANCEL_CHECK_KEYS: u64 = 10_000;

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

    /// A sorter that uses so much memory, and temporary files for what does not fit.
    pub fn sorter(&self, memory_bytes: usize) -> Sorter {
        Sorter::new(self.engine.temp.clone(), memory_bytes)
    }

    /// Room for records that are read in the order in which they come, with so much memory before
    /// they go to a temporary file.
    pub fn records(&self, memory_bytes: usize) -> Records {
        Records::new(self.engine.temp.clone(), memory_bytes)
    }

    /// Fills an empty index from the table's rows. The caller has locked the table, so nobody
    /// changes it meanwhile. Returns the SCN from which on snapshots may use the index.
    pub fn build_index(
        &mut self,
        table: &TableDef,
        index: &IndexDef,
        memory_bytes: usize,
    ) -> Result<Scn> {
        let snapshot = self.newest_snapshot()?;
        let (mut sorted, count) = self.sorted_keys(table, index, &snapshot, memory_bytes)?;
        let work = index_build(index, count);
        let tree = self.engine.tree(index.object, index.header);
        let mut builder = tree.build();
        let (mut last, mut done) = (Vec::new(), 0u64);
        while let Some((full, checked)) = sorted.next_record()? {
            let columns = &full[..full.len() - ROW_ID_LEN];
            if checked == [1] {
                if last == columns {
                    return Err(Error::UniqueViolation {
                        index: index.name.clone(),
                        table: table.object,
                        index_object: index.object,
                        row: split_key(full).map(|(_, rid)| rid),
                    });
                }
                last.clear();
                last.extend_from_slice(columns);
            }
            builder.push(full)?;
            done += 1;
            if done.is_multiple_of(CANCEL_CHECK_KEYS) {
                work.set(done);
                wait::check_cancel().map_err(txn::Error::from)?;
            }
        }
        work.set(done);
        builder.finish()?;
        Ok(self.engine.scn())
    }

    /// The whole keys of the rows that a snapshot sees, in their order. Each has a flag beside it:
    /// whether no other row may have the same columns.
    pub(crate) fn sorted_keys(
        &mut self,
        table: &TableDef,
        index: &IndexDef,
        snapshot: &Snapshot,
        memory_bytes: usize,
    ) -> Result<(Sorted, u64)> {
        let mut sorter = self.sorter(memory_bytes);
        let mut scan = self.scan(&Arc::new(table.clone()));
        let mut failure = None;
        loop {
            wait::check_cancel().map_err(txn::Error::from)?;
            let more = scan.next_block(self, snapshot, &mut |rid, row| {
                let mut add = |key: RowKey| {
                    let checked = index.unique && !key.has_null;
                    let full = |out: &mut Vec<u8>| {
                        out.extend_from_slice(&key.bytes);
                        push_row_id(out, rid);
                    };
                    sorter.push(full, |out| out.push(u8::from(checked)))
                };
                let keys = index.keys_of_stored(table, row);
                let added = keys.and_then(|keys| keys.each(&mut add));
                if let Err(e) = added {
                    failure.get_or_insert(e);
                }
            })?;
            if let Some(e) = failure.take() {
                return Err(e);
            }
            if !more {
                break;
            }
        }
        let count = sorter.count();
        Ok((sorter.finish()?, count))
    }

    /// Notes that the object is dropped: its space is given back when the transaction commits.
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

    /// Draws the next value. The draw is durable before the end of this transaction is reported,
    /// even if the transaction changes nothing else. If another instance drew the value, the draw
    /// is durable before the transaction commits.
    pub fn sequence_next(&mut self, def: &SequenceDef) -> Result<i64> {
        let sequence = self.engine.sequence(def.object, def.header);
        let drawn = match self.engine.cluster() {
            Some(cluster) => cluster.sequences().draw(&sequence, def.object, def.header),
            None => drawn_alone(&sequence),
        };
        let draw = drawn.map_err(|e| match e {
            Error::Access(access::Error::SequenceLimit { ascending, .. }) => Error::SequenceLimit {
                object: def.object,
                descending: !ascending,
            },
            e => e,
        })?;
        match draw.logged {
            Logged::Here(pos) => self.durable = self.durable.max(pos),
            Logged::There(mark) => self.rests_on(def, mark),
        }
        wait::stat::add(wait::Stat::SequenceDraws, 1);
        Ok(draw.value)
    }

    /// The parameters of a sequence and its present state.
    pub fn sequence_state(&self, def: &SequenceDef) -> Result<(SequenceParams, SequenceState)> {
        self.engine.sequence_state(def)
    }

    /// Sets a sequence (`setval`). That takes effect at once for everybody, and rollback does not
    /// undo it.
    pub fn sequence_set(&mut self, def: &SequenceDef, value: i64, is_called: bool) -> Result<()> {
        let sequence = self.engine.sequence(def.object, def.header);
        let to = (value, is_called);
        let durable = match self.engine.cluster() {
            Some(cluster) => cluster.sequences().set(&sequence, def.object, to)?,
            None => set_alone(&sequence, to)?,
        };
        self.durable = self.durable.max(durable);
        Ok(())
    }

    /// Notes the mark that this transaction rests on. The newest mark of a sequence is behind all
    /// that came before.
    fn rests_on(&mut self, def: &SequenceDef, mark: Mark) {
        match self.marks.iter_mut().find(|(d, _)| d.object == def.object) {
            Some((_, known)) if known.state.draw >= mark.state.draw => {}
            Some((_, known)) => *known = mark,
            None => self.marks.push((*def, mark)),
        }
    }

    /// Returns once the marks behind values that other instances have drawn for this transaction
    /// are durable. Called before the transaction commits; after an error it cannot commit.
    pub fn secure_draws(&mut self) -> Result<()> {
        for (def, mark) in std::mem::take(&mut self.marks) {
            let Some(cluster) = self.engine.cluster() else {
                continue;
            };
            let sequence = self.engine.sequence(def.object, def.header);
            if cluster.sequences().secure(&sequence, def.object, &mark)? {
                self.durable = self.engine.redo.end();
            }
        }
        Ok(())
    }
}

impl Engine {
    /// The parameters of a sequence and its present state. Values in the caches of instances count
    /// as drawn.
    pub fn sequence_state(&self, def: &SequenceDef) -> Result<(SequenceParams, SequenceState)> {
        Ok(self.sequence(def.object, def.header).state()?)
    }
}

fn drawn_alone(sequence: &Sequence) -> Result<Draw> {
    let draw = sequence.draw(&Alone)?;
    Ok(draw.expect("invariant: nobody else knows anything of an instance that is alone"))
}

fn set_alone(sequence: &Sequence, (value, is_called): (i64, bool)) -> Result<LogPos> {
    let end = sequence.set(value, is_called, &Alone)?;
    Ok(end.expect("invariant: nobody else knows anything of an instance that is alone"))
}

/// The long operation that fills an index, of so many entries.
pub(crate) fn index_build(index: &IndexDef, entries: u64) -> LongOp {
    let target = Target::Named(index.name.clone());
    LongOp::begin("Index Build", target, entries, "Entries")
}
