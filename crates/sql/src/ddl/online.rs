//! CREATE INDEX CONCURRENTLY and DROP INDEX CONCURRENTLY: several transactions, between which the
//! session holds nothing and waits for those of others, on all instances.
//!
//! An index is made in three steps. It is defined as invalid, which makes writers keep it; once
//! everybody who writes to the table knows it, the entries of the rows there are made from a
//! snapshot ([`engine::Session::supply_index`]); once no older snapshot is left, it is valid. It is
//! dropped in three: not read any more, not written any more, gone.
//!
//! **Invariants.**
//! - While the session waits for transactions or snapshots of others it holds no lock and no
//!   snapshot. So no circle of waits goes through it, though its wait is in no queue.
//! - An instance that does not say who uses a table may have any users: it is asked again. One that
//!   is no member any more has none; what it has committed is decided before the next lock is
//!   granted here (rule E10).
//! - After a step the table is looked up again by its number: others may have changed it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{ObjectId, Scn};
use engine::{LockMode, Missing, TableUser};
use sqlparser::ast::CreateIndex;
use wait::longop::{LongOp, Target};
use wire::{Reader, Writer};

use super::index;
use super::{Core, Error, Result, SqlSession, TableLock, name_of};
use crate::api::Tag;
use crate::bind::names::Qualified;
use crate::database::Database;
use crate::dict::{Object, Relation, Stage, Table};

/// The first byte of a question for the transactions that use a table.
pub const USERS: u8 = 4;

/// Most bytes of an answer's user.
const USER_BYTES: usize = 12;

/// How long to wait between two looks at what others hold: at first, and at most. A look costs a
/// message to each instance and back.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// A transaction of an instance.
type User = (u16, TableUser);

fn question(table: ObjectId, mode: LockMode) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    w.put(&USERS);
    w.put(&table.0);
    w.put(&u8::from(mode == LockMode::AccessExclusive));
    bytes
}

/// Answers another instance's question: the clock, and the transactions here that a mode excludes.
pub fn respond(database: &Database, question: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let mut r = Reader::new(question);
    let mut asked = || match r.get()? {
        USERS => Ok((ObjectId(r.get()?), r.get::<u8>()?)),
        _ => Err(r.bad("it does not ask for users of a table")),
    };
    let (table, all) = asked().map_err(|bad| bad.to_string())?;
    r.finish().map_err(|bad| bad.to_string())?;
    let mode = match all {
        0 => LockMode::Share,
        _ => LockMode::AccessExclusive,
    };
    let engine = database.engine();
    let users = engine.table_users(table, mode);
    let mut bytes = Vec::with_capacity(8 + users.len() * USER_BYTES);
    let mut w = Writer::new(&mut bytes);
    // Read after the users: what those committed that are not among them is below.
    w.put(&engine.scn().0);
    for user in users {
        w.put(&user.locker);
        w.put(&user.serial);
    }
    Ok(bytes)
}

fn answered(bytes: &[u8]) -> std::result::Result<(Scn, Vec<TableUser>), wire::Bad> {
    let mut r = Reader::new(bytes);
    let scn = Scn(r.get()?);
    let mut users = Vec::new();
    while !r.is_at_end() {
        users.push(TableUser {
            locker: r.get()?,
            serial: r.get()?,
        });
    }
    Ok((scn, users))
}

/// Looks at something again and again, at first often.
struct Looks {
    pause: Duration,
    deadline: Option<Instant>,
}

impl Looks {
    fn begin(core: &Core) -> Looks {
        Looks {
            pause: FIRST_PAUSE,
            deadline: core.engine.lock_deadline(),
        }
    }

    /// Waits for the time of the next look.
    fn pause(&mut self, core: &Core, table: ObjectId) -> Result<()> {
        let now = seam::now();
        if self.deadline.is_some_and(|at| at <= now) {
            return Err(engine::Error::LockNotAvailable.into());
        }
        let until = now + self.pause;
        let until = self.deadline.map_or(until, |at| at.min(until));
        core.engine.pause_for_table(table, until)?;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

impl Core {
    /// Waits for the end of the transactions that use a table now in a mode that `mode` excludes,
    /// on any instance; not for those that begin to use it meanwhile. The session is in no
    /// transaction.
    fn await_users(&mut self, table: ObjectId, mode: LockMode) -> Result<()> {
        let mut looks = Looks::begin(self);
        let mut awaited: Option<BTreeSet<User>> = None;
        let mut first: Option<(u64, LongOp)> = None;
        loop {
            if let Some(now) = self.users(table, mode)? {
                let left = match awaited {
                    None => now,
                    Some(before) => before.intersection(&now).copied().collect(),
                };
                if left.is_empty() {
                    return Ok(());
                }
                let count = left.len() as u64;
                let (total, work) = first.get_or_insert_with(|| {
                    let name = "Wait for Table Users";
                    let target = Target::Object(table.0);
                    (count, LongOp::begin(name, target, count, "Transactions"))
                });
                work.set(*total - count);
                awaited = Some(left);
            }
            looks.pause(self, table)?;
        }
    }

    /// Who uses a table on all instances. `None`: one does not say.
    fn users(&self, table: ObjectId, mode: LockMode) -> Result<Option<BTreeSet<User>>> {
        let engine = self.database.engine();
        let own = || engine.table_users(table, mode);
        let (answers, here) = match engine.cluster() {
            None => (Vec::new(), own()),
            Some(cluster) => {
                let patience = self.database.patience();
                let question = question(table, mode);
                cluster.inquiries().ask_others(&question, patience, own)?
            }
        };
        let mut users: BTreeSet<User> = here.into_iter().map(|u| (engine.instance(), u)).collect();
        for (from, answer) in answers {
            match answer.map(|bytes| answered(&bytes)) {
                Ok(Ok((scn, there))) => {
                    engine.not_before(scn)?;
                    users.extend(there.into_iter().map(|u| (from.0, u)));
                }
                Ok(Err(bad)) => return Err(Error::internal(bad.to_string())),
                Err(Missing::Gone) => {}
                Err(Missing::Silent(_) | Missing::Failed(_)) => return Ok(None),
            }
        }
        Ok(Some(users))
    }

    /// Waits until no snapshot of any instance is older than this SCN.
    fn await_snapshots(&mut self, table: ObjectId, scn: Scn) -> Result<()> {
        let mut looks = Looks::begin(self);
        let mut work: Option<LongOp> = None;
        let mut taken = 0;
        while !self.engine.is_oldest(scn) {
            let work = work.get_or_insert_with(|| {
                let name = "Wait for Older Snapshots";
                LongOp::begin(name, Target::Object(table.0), 0, "Looks")
            });
            taken += 1;
            work.set(taken);
            looks.pause(self, table)?;
        }
        Ok(())
    }

    /// The table as it is now, locked against other definitions, and the place of its index.
    pub(super) fn locked_index(
        &mut self,
        (table, index): (u32, u32),
    ) -> Result<(Arc<Table>, usize)> {
        self.lock_table(table, TableLock::ShareUpdateExclusive, false)?;
        let dict = self.dict();
        let found = dict.table_by_oid(table).and_then(|t| {
            let at = t.indexes.iter().position(|i| i.oid == index)?;
            Some((t.clone(), at))
        });
        // PostgreSQL has the table locked all the time.
        found.ok_or_else(|| Error::new("42704", "the index was dropped meanwhile"))
    }

    /// Makes the entries that an index lacks; gives its segment, and the SCN from which on
    /// snapshots may use it.
    fn supply(&mut self, which: (u32, u32)) -> Result<(u32, Scn)> {
        let (table, at) = self.locked_index(which)?;
        let index = &table.indexes[at];
        let def = Arc::clone(table.engine());
        let memory = self.settings.kilobytes("maintenance_work_mem");
        let supplied = self
            .engine
            .supply_index(&def, &index.engine(), memory)
            .map_err(|e| index::refused_by_rows(self, e, &table, index))?;
        Ok((index.segment, supplied))
    }

    /// Changes an index in its table, which is locked.
    fn change_index(
        &mut self,
        which: (u32, u32),
        change: impl FnOnce(&mut crate::dict::Index),
    ) -> Result<()> {
        let (table, at) = self.locked_index(which)?;
        let mut next = Table::clone(&table);
        change(&mut next.indexes[at]);
        self.define(Object::Table(Arc::new(next.finish()?)))
    }
}

impl SqlSession {
    /// CREATE INDEX CONCURRENTLY. If a step fails after the first, the index stays as an invalid
    /// one.
    pub(super) fn create_index_concurrently(&mut self, c: &CreateIndex) -> Result<Tag> {
        let table = name_of(&c.table_name)?;
        let is_own = |found: Relation| self.core.dict().is_temporary(found.schema());
        if self.core.dict().relation(&table).is_some_and(is_own) {
            // Nobody else uses it.
            return index::create(&mut self.core, c);
        }
        if let Some(which) = index::declare(&mut self.core, c)? {
            self.end(true)?;
            let (segment, from) = self.fill_index(which)?;
            self.core.change_index(which, |index| {
                // Another segment has other versions: TRUNCATE, or a rewrite, has made it.
                if index.segment == segment {
                    index.created = from.0;
                }
                index.stage = Stage::Valid;
            })?;
        }
        Ok(Tag::Plain("CREATE INDEX"))
    }

    /// An index could not be filled: if that is because of its rows, nobody writes to it any more,
    /// as in PostgreSQL. The session is idle afterwards.
    fn give_up(&mut self, which: (u32, u32), e: &Error) -> Result<()> {
        self.end(false)?;
        if e.sqlstate() != "23505" {
            return Ok(());
        }
        self.ensure_transaction()?;
        self.core
            .change_index(which, |index| index.stage = Stage::Leaving)?;
        self.end(true)
    }

    /// DROP INDEX CONCURRENTLY. If a step fails after the first, the index stays as an invalid one.
    pub(crate) fn drop_index_concurrently(
        &mut self,
        name: &Qualified,
        if_exists: bool,
    ) -> Result<Tag> {
        self.refuse_in_block("DROP INDEX CONCURRENTLY")?;
        self.core.refuse_if_read_only("DROP INDEX")?;
        if let Some(which) = index::begin_drop(&mut self.core, name, if_exists)? {
            self.end(true)?;
            self.finish_drop(which)?;
        }
        Ok(Tag::Plain("DROP INDEX"))
    }

    /// Drops an index that is defined as invalid, which is committed. The session is in no
    /// transaction, and is in one afterwards.
    pub(super) fn finish_drop(&mut self, which: (u32, u32)) -> Result<()> {
        let table = ObjectId(which.0);
        // Those who read it, or write to it as to a whole one.
        self.core.await_users(table, LockMode::AccessExclusive)?;
        self.ensure_transaction()?;
        self.core
            .change_index(which, |index| index.stage = Stage::Leaving)?;
        self.end(true)?;
        // Those who write to it.
        self.core.await_users(table, LockMode::AccessExclusive)?;
        self.ensure_transaction()?;
        let (table, at) = self.core.locked_index(which)?;
        index::remove(&mut self.core, &table, at)
    }

    /// Makes the entries of an invalid index, which is committed, and waits until it may be used.
    /// Gives its segment, and the SCN from which on snapshots may use it. The session is in no
    /// transaction, and is in one afterwards.
    pub(super) fn fill_index(&mut self, which: (u32, u32)) -> Result<(u32, Scn)> {
        let table = ObjectId(which.0);
        self.core.await_users(table, LockMode::Share)?;
        self.ensure_transaction()?;
        let supplied = self.core.supply(which);
        let (segment, from) = match supplied {
            Ok(supplied) => supplied,
            Err(e) => {
                self.give_up(which, &e)?;
                return Err(e);
            }
        };
        self.end(true)?;
        self.core.await_snapshots(table, from)?;
        self.ensure_transaction()?;
        Ok((segment, from))
    }
}
