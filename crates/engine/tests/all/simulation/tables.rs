//! Tables are created, dropped, truncated and indexed while others use them, on whatever instance.
//! That is done as `sql` does it: with locks of names and tables, and a dictionary that is looked
//! at again once the lock is held. The dictionary is a few rows of the main table, each with the
//! definition of one table. In every table the numbers sum to the same.

use super::work::Client;
use crate::common::{Rng, by_index, difference, find, row, scan};
use block::value::ColType;
use block::{Dba, ObjectId, RowId, Scn};
use engine::{
    Engine, Error, IndexColumn, IndexDef, LockMode, Result, Session, TableDef, WriteOutcome,
};
use std::sync::Arc;

pub const SLOTS: i64 = 2;
/// The id of the dictionary's first row.
pub const FIRST_SLOT: i64 = 1000;
const ROWS: i64 = 5;
const NUMBER: i32 = 40;

/// A definition as text: `object:header` of the heap, then `object:header:column:created` of each
/// index.
fn to_text(t: &TableDef) -> String {
    let mut text = format!("{}:{}", t.object.0, t.header.0);
    for i in &t.indexes {
        let column = i.columns[0].column;
        text += &format!(" {}:{}:{column}:{}", i.object.0, i.header.0, i.created.0);
    }
    text
}

fn from_text(text: &str) -> Arc<TableDef> {
    let mut parts = text.split(' ').map(|part| {
        let number = |n: &str| n.parse::<u64>().expect("a definition is of numbers");
        part.split(':').map(number).collect::<Vec<_>>()
    });
    let heap = parts.next().expect("a table has a heap");
    let indexes = parts.map(|i| index(ObjectId(i[0] as u32), Dba(i[1]), i[2] as usize, Scn(i[3])));
    Arc::new(TableDef {
        missing: Vec::new(),
        object: ObjectId(heap[0] as u32),
        header: Dba(heap[1]),
        columns: vec![ColType::Int8, ColType::Int4, ColType::Text],
        indexes: indexes.collect(),
    })
}

fn index(object: ObjectId, header: Dba, column: usize, created: Scn) -> IndexDef {
    IndexDef {
        object,
        header,
        columns: vec![IndexColumn {
            column,
            descending: false,
            nulls_first: false,
        }],
        unique: column == 0,
        name: format!("index_{column}"),
        created,
        rules: Default::default(),
    }
}

fn create(engine: &Engine, s: &mut Session) -> Result<TableDef> {
    let (heap, key) = (engine.allocate_object_id()?, engine.allocate_object_id()?);
    let header = s.create_heap(heap)?;
    let key = index(key, s.create_index_segment(key)?, 0, Scn::ZERO);
    let t = TableDef {
        missing: Vec::new(),
        object: heap,
        header,
        columns: vec![ColType::Int8, ColType::Int4, ColType::Text],
        indexes: vec![key],
    };
    for id in 0..ROWS {
        s.insert(&t, &row(id, NUMBER, "of a table"))?;
        s.end_statement();
    }
    Ok(t)
}

fn add_index(engine: &Engine, s: &mut Session, t: &mut TableDef) -> Result<()> {
    let object = engine.allocate_object_id()?;
    let header = s.create_index_segment(object)?;
    let mut added = index(object, header, 1, Scn::ZERO);
    added.created = s.build_index(t, &added, 1 << 20)?;
    s.end_statement();
    t.indexes.push(added);
    Ok(())
}

/// The table of a slot, if there is one, as of now.
fn definition(
    s: &mut Session,
    main: &TableDef,
    slot: i64,
) -> Result<Option<(RowId, Arc<TableDef>)>> {
    let snap = s.snapshot()?;
    let found = find(s, main, &snap, FIRST_SLOT + slot)?;
    s.end_statement();
    Ok(found.map(|(rid, _, text)| (rid, from_text(&text))))
}

/// All tables that there are.
pub fn all(engine: &Arc<Engine>, main: &TableDef) -> Result<Vec<Arc<TableDef>>> {
    let mut s = engine.session()?;
    s.begin(engine::Isolation::ReadCommitted)?;
    let mut tables = Vec::new();
    for slot in 0..SLOTS {
        tables.extend(definition(&mut s, main, slot)?.map(|(_, t)| t));
    }
    s.commit()?;
    Ok(tables)
}

/// Says what is wrong with the contents of a table. No other session changes the table's definition
/// meanwhile.
pub fn look_at(s: &mut Session, t: &Arc<TableDef>) -> Result<Option<String>> {
    let snap = s.snapshot()?;
    let rows = scan(s, t, &snap)?;
    let sum: i32 = rows.values().map(|(n, _)| n).sum();
    if rows.len() as i64 != ROWS || sum != NUMBER * ROWS as i32 {
        return Ok(Some(format!("{} rows, sum {sum}: {rows:?}", rows.len())));
    }
    for n in 0..t.indexes.len() {
        if snap.scn < t.indexes[n].created {
            return Ok(Some(format!("{snap:?} is older than index {n} of {t:?}")));
        }
        let by_index = by_index(s, t, n, &snap, n == 1)?;
        if let Some(d) = difference(&by_index, &rows) {
            return Ok(Some(format!("index {n} against the heap: {d}")));
        }
    }
    Ok(None)
}

impl Client<'_> {
    /// The work of one transaction at READ COMMITTED.
    pub fn tables(&mut self, engine: &Engine) -> Result<()> {
        let slot = self.rng.below(SLOTS as u64) as i64;
        let found = definition(self.s, self.t, slot)?;
        match (found, self.rng.below(12)) {
            (None, 0..6) => self.create_table(engine, slot),
            (None, _) => Ok(()),
            (Some(_), 0..3) => self.alter_table(engine, slot),
            (Some((_, t)), 3..8) => {
                let Some(t) = self.locked(slot, &t, LockMode::RowExclusive)? else {
                    return Ok(());
                };
                let some = |rng: &mut Rng| rng.below(ROWS as u64) as i64;
                let (from, to) = (some(self.rng), some(self.rng));
                self.change_in(&t, from, |n, text| (n - 1, text.to_string()))?;
                self.change_in(&t, to, |n, text| (n + 1, text.to_string()))
            }
            (Some((_, t)), _) => {
                let Some(t) = self.locked(slot, &t, LockMode::AccessShare)? else {
                    return Ok(());
                };
                if let Some(wrong) = look_at(self.s, &t)? {
                    self.shared.fail(format!("table {}: {wrong}", t.object.0));
                }
                self.s.end_statement();
                Ok(())
            }
        }
    }

    /// The definition of a table once it is locked; none if the slot has another table by then.
    fn locked(
        &mut self,
        slot: i64,
        before: &TableDef,
        mode: LockMode,
    ) -> Result<Option<Arc<TableDef>>> {
        self.s.lock_table(before.object, mode, true)?;
        let now = definition(self.s, self.t, slot)?.map(|(_, t)| t);
        Ok(now.filter(|t| t.object == before.object))
    }

    fn create_table(&mut self, engine: &Engine, slot: i64) -> Result<()> {
        self.s.lock_name(slot as u64)?;
        if definition(self.s, self.t, slot)?.is_some() {
            return Ok(());
        }
        let mut t = create(engine, self.s)?;
        if self.rng.one_in(2) {
            add_index(engine, self.s, &mut t)?;
        }
        let text = to_text(&t);
        self.s.insert(self.t, &row(FIRST_SLOT + slot, 0, &text))?;
        self.s.end_statement();
        self.shared.met("tables created");
        Ok(())
    }

    /// Drops or truncates the table, or adds or drops an index.
    fn alter_table(&mut self, engine: &Engine, slot: i64) -> Result<()> {
        self.s.lock_name(slot as u64)?;
        let Some((rid, t)) = definition(self.s, self.t, slot)? else {
            return Ok(());
        };
        if !seam::planted("tables are changed without their locks") {
            self.s
                .lock_table(t.object, LockMode::AccessExclusive, true)?;
        }
        let whole = std::iter::once((t.object, t.header));
        let whole = whole.chain(t.indexes.iter().map(|i| (i.object, i.header)));
        let (now, dropped): (Option<TableDef>, Vec<_>) = match self.rng.below(4) {
            0 => (None, whole.collect()),
            1 => (Some(create(engine, self.s)?), whole.collect()),
            _ => {
                let mut now = (*t).clone();
                match now.indexes.len() {
                    1 => {
                        add_index(engine, self.s, &mut now)?;
                        (Some(now), Vec::new())
                    }
                    _ => {
                        let dropped = now.indexes.pop().map(|i| (i.object, i.header));
                        (Some(now), dropped.into_iter().collect())
                    }
                }
            }
        };
        for (object, header) in dropped {
            self.s.drop_segment_at_commit(object, header)?;
        }
        let done = match now {
            Some(now) => {
                let text = to_text(&now);
                let new = row(FIRST_SLOT + slot, 0, &text);
                self.s.update(self.t, rid, &new, None)?
            }
            None => self.s.delete(self.t, rid, None)?,
        };
        if done != WriteOutcome::Done {
            return Err(Error::Corrupt(format!(
                "the name of table {slot} is locked, and {done:?}"
            )));
        }
        self.s.end_statement();
        self.shared.met("tables altered, truncated or dropped");
        Ok(())
    }
}
