//! Parents and children in one table, as foreign keys have them. A child is made while its parent
//! is held by a shared lock; a parent is deleted while it is locked against all, if it has no child
//! or its children go with it. Parents change meanwhile in what is no key.
//!
//! A child names its parent as group. The ids of parents are below [`FIRST_CHILD`].

use super::{Model, Rng, find, row, scan};
use block::RowId;
use engine::*;
use std::sync::Arc;

pub const PARENTS: i64 = 4;
pub const FIRST_CHILD: i64 = 100;
/// The group of a child is this and its parent.
const OF_PARENT: i32 = 1000;

/// Hears of the locks that a transaction has.
pub trait Watch {
    fn locked(&mut self, rid: RowId, lock: RowLock);
    /// The locks from now on may be let go by a rollback to here.
    fn savepoint(&mut self) -> usize;
    /// The locks since then are about to be let go.
    fn letting_go(&mut self, since: usize);
}

pub fn load(s: &mut Session, t: &TableDef) -> Result<()> {
    (0..PARENTS).try_for_each(|id| s.insert(t, &row(id, 1, "parent")).map(drop))
}

/// What is wrong with the rows that a snapshot sees.
pub fn judge(rows: &Model) -> Option<String> {
    let orphan = |(id, (grp, _)): &(&i64, &(i32, String))| {
        **id >= FIRST_CHILD && !rows.contains_key(&i64::from(*grp - OF_PARENT))
    };
    let found = rows.iter().find(orphan);
    found.map(|(id, (grp, _))| format!("child {id} is without its parent {}", grp - OF_PARENT))
}

/// What a transaction has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Did {
    Nothing,
    /// Made a child.
    Child,
    /// Changed a parent, but for its key.
    Changed,
    /// Deleted a parent, or brought one back.
    Parent,
}

/// The work of a transaction at READ COMMITTED. `child`: an id that no row has had.
pub fn work(
    s: &mut Session,
    t: &Arc<TableDef>,
    rng: &mut Rng,
    child: i64,
    watch: &mut impl Watch,
) -> Result<Did> {
    let parent = rng.below(PARENTS as u64) as i64;
    let snap = s.snapshot()?;
    let Some((rid, grp, _)) = find(s, t, &snap, parent)? else {
        s.end_statement();
        let savepoint = s.savepoint()?;
        return match s.insert(t, &row(parent, 1, "parent")) {
            Ok(_) => Ok(Did::Parent),
            // Another session was first. The statement is undone.
            Err(Error::UniqueViolation { .. }) => {
                s.rollback_to(&savepoint)?;
                Ok(Did::Nothing)
            }
            Err(e) => Err(e),
        };
    };
    match rng.below(10) {
        0..6 => make_child(s, t, rng, (rid, parent, child), &snap, watch),
        6..8 => {
            let done = s.update(t, rid, &row(parent, grp + 1, "parent"), Some(&snap))?;
            if done == WriteOutcome::Done {
                watch.locked(rid, RowLock::NoKeyUpdate);
            }
            s.end_statement();
            Ok(Did::Changed)
        }
        _ => delete_parent(s, t, rng, (rid, parent), &snap, watch),
    }
}

fn make_child(
    s: &mut Session,
    t: &TableDef,
    rng: &mut Rng,
    (rid, parent, child): (RowId, i64, i64),
    snap: &Snapshot,
    watch: &mut impl Watch,
) -> Result<Did> {
    let (savepoint, mark) = (s.savepoint()?, watch.savepoint());
    let lock = match rng.one_in(4) {
        true => RowLock::Share,
        false => RowLock::KeyShare,
    };
    let wait = match rng.below(8) {
        0 => LockWait::NoWait,
        1 => LockWait::SkipLocked,
        _ => LockWait::Wait,
    };
    match s.lock_row(t, rid, snap, (lock, wait), &mut Vec::new()) {
        Ok(LockOutcome::Locked | LockOutcome::Changed) => watch.locked(rid, lock),
        Ok(LockOutcome::Gone | LockOutcome::Skipped) | Err(Error::LockNotAvailable) => {
            s.end_statement();
            return Ok(Did::Nothing);
        }
        Err(e) => return Err(e),
    }
    s.end_statement();
    let group = OF_PARENT + parent as i32;
    if rng.one_in(4) {
        // A child that is unmade, and with it the lock.
        s.insert(t, &row(child, group, "unmade"))?;
        watch.letting_go(mark);
        s.rollback_to(&savepoint)?;
        return Ok(Did::Nothing);
    }
    s.insert(t, &row(child, group, "child"))?;
    Ok(Did::Child)
}

fn delete_parent(
    s: &mut Session,
    t: &Arc<TableDef>,
    rng: &mut Rng,
    (rid, parent): (RowId, i64),
    snap: &Snapshot,
    watch: &mut impl Watch,
) -> Result<Did> {
    let how = (RowLock::Update, LockWait::Wait);
    let locked = s.lock_row(t, rid, snap, how, &mut Vec::new())?;
    s.end_statement();
    if locked == LockOutcome::Gone {
        return Ok(Did::Nothing);
    }
    watch.locked(rid, RowLock::Update);
    // With the parent locked, a new snapshot sees all the children that there are.
    let snap = s.snapshot()?;
    let rows = scan(s, t, &snap)?;
    let group = OF_PARENT + parent as i32;
    let mut children = Vec::new();
    for (id, _) in rows
        .iter()
        .filter(|r| *r.0 >= FIRST_CHILD && r.1.0 == group)
    {
        children.extend(find(s, t, &snap, *id)?.map(|found| found.0));
    }
    if !children.is_empty() && rng.one_in(2) {
        s.end_statement();
        return Ok(Did::Nothing);
    }
    for child in children {
        s.delete(t, child, Some(&snap))?;
    }
    let done = s.delete(t, rid, None)?;
    s.end_statement();
    match done {
        WriteOutcome::Done => Ok(Did::Parent),
        other => Err(Error::Corrupt(format!(
            "parent {parent} is locked, and {other:?}"
        ))),
    }
}
