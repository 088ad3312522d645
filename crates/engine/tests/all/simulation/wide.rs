//! Rows that fill a block each. Their table has nearly as many blocks as an instance's cache has
//! frames. So what is changed here leaves caches for the disk and comes back. Each row counts its
//! changes. A reader of a row sees every change that was acknowledged before, and none that no
//! transaction has tried.

use super::shared::Shared;
use super::work::Client;
use crate::common::{self, find, row};
use engine::{Engine, Error, Isolation, Result, Session, TableDef};
use std::sync::Arc;

const ROWS: i64 = 100;
const BYTES: usize = 7000;

fn text(id: i64) -> String {
    format!("{id:07}").repeat(BYTES / 7)
}

pub fn create(engine: &Arc<Engine>) -> Result<Arc<TableDef>> {
    let t = common::create_table(engine);
    let mut s = engine.session()?;
    for ids in (0..ROWS).collect::<Vec<_>>().chunks(10) {
        s.begin(Isolation::ReadCommitted)?;
        for &id in ids {
            s.insert(&t, &row(id, 0, &text(id)))?;
        }
        s.commit()?;
    }
    Ok(t)
}

/// Reads a row's count. It must have all changes that are acknowledged by now, and not more than
/// were ever tried.
fn look(s: &mut Session, shared: &Shared, t: &TableDef, id: i64) -> Result<()> {
    let before = shared.book().counts.get(&id).copied().unwrap_or_default();
    let snap = s.snapshot()?;
    let found = find(s, t, &snap, id)?;
    s.end_statement();
    let (_, count, contents) = found.ok_or_else(|| Error::Corrupt(format!("no wide row {id}")))?;
    let after = shared.book().counts.get(&id).copied().unwrap_or_default();
    let possible = before.committed..=after.tried;
    if contents != text(id) || !possible.contains(&count) {
        shared.fail(format!("wide row {id} counts {count}, not {possible:?}"));
    }
    Ok(())
}

/// The check at the end.
pub fn check(engine: &Arc<Engine>, shared: &Shared, t: &TableDef) -> Result<()> {
    let mut s = engine.session()?;
    s.begin(Isolation::ReadCommitted)?;
    (0..ROWS).try_for_each(|id| look(&mut s, shared, t, id))?;
    s.commit()
}

impl Client<'_> {
    /// The work of one transaction at READ COMMITTED.
    pub fn wide(&mut self, t: &TableDef) -> Result<()> {
        for _ in 0..1 + self.rng.below(6) {
            let id = self.rng.below(ROWS as u64) as i64;
            if self.rng.one_in(2) {
                look(self.s, self.shared, t, id)?;
            } else if !self.counted.contains(&id) {
                self.shared.book().counts.entry(id).or_default().tried += 1;
                self.counted.push(id);
                self.change_in(t, id, |n, text| (n + 1, text.to_string()))?;
            }
        }
        Ok(())
    }
}
