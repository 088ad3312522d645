//! A few keys, each of which one row may have. All instances put, take away and move them at once,
//! with savepoints, with waiting, NOWAIT and SKIP LOCKED.
//!
//! A row has a token of its own. So it is known which rows must be there and which must not, that
//! none is taken twice, and whether there was a reason to refuse one as a duplicate.

use super::shared::Shared;
use super::work::Client;
use crate::common::{self, Rng, decode, find, pad, row};
use engine::{
    Engine, Error, LockOutcome, LockWait, Result, RowLock, TableDef, Upsert, WriteOutcome,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

const KEYS: u64 = 10;

/// Keys and tokens that a transaction has seen.
type Rows = Vec<(i64, usize)>;

/// The outcome of a change and when it came about, by the book's own count of moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The change is under way, or its outcome is unknown.
    Open,
    Committed(u64),
    RolledBack(u64),
}

#[derive(Debug)]
struct Token {
    key: i64,
    end: End,
    /// The takes: attempts to take the row away, by their outcomes.
    takes: Vec<End>,
}

/// A change that a transaction makes.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    Put(usize),
    /// A token, and which of its takes this is.
    Take(usize, usize),
}

#[derive(Default)]
pub struct Keys {
    moment: u64,
    tokens: Vec<Token>,
}

impl Keys {
    fn now(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    fn put(&mut self, key: i64) -> usize {
        self.tokens.push(Token {
            key,
            end: End::Open,
            takes: Vec::new(),
        });
        self.tokens.len() - 1
    }

    fn take(&mut self, token: usize) -> Change {
        let takes = &mut self.tokens[token].takes;
        takes.push(End::Open);
        Change::Take(token, takes.len() - 1)
    }

    fn end(&mut self, changes: &[Change], end: impl Fn(u64) -> End) {
        let now = self.now();
        for change in changes {
            match *change {
                Change::Put(token) => self.tokens[token].end = end(now),
                Change::Take(token, n) => self.tokens[token].takes[n] = end(now),
            }
        }
    }

    pub fn committed(&mut self, changes: &[Change]) {
        self.end(changes, End::Committed);
    }

    pub fn rolled_back(&mut self, changes: &[Change]) {
        self.end(changes, End::RolledBack);
    }

    /// Says what is wrong with the rows that a transaction saw which began at a moment and made
    /// these changes. At REPEATABLE READ a transaction that has put a row in place of one that is
    /// gone since may see both, as in PostgreSQL.
    fn judge(
        &self,
        rows: &Rows,
        (began, repeatable): (u64, bool),
        own: &[Change],
    ) -> Option<String> {
        let mut seen = BTreeSet::new();
        let mut keys = BTreeMap::new();
        for &(key, token) in rows {
            match self.tokens.get(token) {
                Some(t) if t.key == key => seen.insert(token),
                other => return Some(format!("key {key} has token {token}, which is {other:?}")),
            };
            let is_own = own
                .iter()
                .any(|c| matches!(c, Change::Put(m) if *m == token));
            if !(is_own && repeatable)
                && let Some(other) = keys.insert(key, token)
            {
                return Some(format!(
                    "key {key} is there twice, by tokens {other} and {token}"
                ));
            }
        }
        let is_put = |n: usize| own.iter().any(|c| matches!(c, Change::Put(m) if *m == n));
        let is_taken = |n: usize| {
            own.iter()
                .any(|c| matches!(c, Change::Take(m, _) if *m == n))
        };
        for (n, t) in self.tokens.iter().enumerate() {
            let was_there = match t.end {
                End::Committed(at) => at < began,
                End::Open | End::RolledBack(_) => is_put(n),
            };
            let untouched = t.takes.iter().all(|e| matches!(e, End::RolledBack(_)));
            let gone = self.is_gone(n, began) || is_taken(n);
            let wrong = match seen.contains(&n) {
                true => gone,
                false => was_there && untouched,
            };
            if wrong {
                let is = if gone { "is there" } else { "is missing" };
                return Some(format!(
                    "since {began}, token {n} {is}: {t:?}; own: {own:?}"
                ));
            }
        }
        None
    }

    /// Whether no transaction that begins at this moment, or later, can meet the token.
    fn is_gone(&self, token: usize, began: u64) -> bool {
        let t = &self.tokens[token];
        let before = |at: u64| at < began;
        matches!(t.end, End::RolledBack(at) if before(at))
            || t.takes
                .iter()
                .any(|e| matches!(e, End::Committed(at) if before(*at)))
    }

    /// Whether another row may have had the key when a row was refused.
    fn may_refuse(&self, refused: usize, began: u64, own: &[Change]) -> bool {
        let is_own_take = |n: usize| {
            own.iter()
                .any(|c| matches!(c, Change::Take(m, _) if *m == n))
        };
        let others = (0..self.tokens.len()).filter(|&n| n != refused);
        others
            .filter(|&n| self.tokens[n].key == self.tokens[refused].key)
            .any(|n| !self.is_gone(n, began) && !is_own_take(n))
    }
}

/// The check at the end.
pub fn check(engine: &Arc<Engine>, shared: &Shared, t: &Arc<TableDef>) -> Result<()> {
    let rows = common::contents(engine, t)?;
    let rows = rows
        .iter()
        .map(|(&key, (token, _))| (key, *token as usize))
        .collect();
    let mut book = shared.book();
    let now = book.keys.now();
    let mut wrong: Vec<String> = book
        .keys
        .judge(&rows, (now, false), &[])
        .into_iter()
        .collect();
    for (n, t) in book.keys.tokens.iter().enumerate() {
        let takes = t.takes.iter().filter(|e| matches!(e, End::Committed(_)));
        if takes.count() > 1 {
            wrong.push(format!("token {n} was taken twice: {t:?}"));
        }
    }
    drop(book);
    wrong.into_iter().for_each(|w| shared.fail(w));
    Ok(())
}

/// The table without its unique index, for the canary.
fn without_unique(t: &TableDef) -> TableDef {
    let mut t = t.clone();
    t.indexes.iter_mut().for_each(|i| i.unique = false);
    t
}

fn text(rng: &mut Rng) -> String {
    match rng.one_in(5) {
        true => pad(rng),
        false => "of a key".to_string(),
    }
}

impl Client<'_> {
    /// The work of one transaction.
    pub fn keys(&mut self, t: &Arc<TableDef>, repeatable: bool) -> Result<()> {
        let began = self.shared.book().keys.now();
        for _ in 0..1 + self.rng.below(5) {
            if self.rng.one_in(6) {
                let before = self.s.savepoint()?;
                let kept = self.changes.len();
                self.key(t, repeatable.then_some(began))?;
                self.key(t, repeatable.then_some(began))?;
                self.back_to(&before, kept)?;
            } else {
                self.key(t, repeatable.then_some(began))?;
            }
        }
        Ok(())
    }

    fn back_to(&mut self, before: &engine::Savepoint, kept: usize) -> Result<()> {
        self.s.rollback_to(before)?;
        let undone = self.changes.split_off(kept);
        self.shared.book().keys.rolled_back(&undone);
        self.shared.met("rolled back to a savepoint");
        Ok(())
    }

    /// The work of one statement.
    fn key(&mut self, t: &Arc<TableDef>, snapshot_of: Option<u64>) -> Result<()> {
        let key = self.rng.below(KEYS) as i64;
        match self.rng.below(10) {
            0..2 => self.put(t, key),
            2..4 => self.put_unless(t, key),
            4..7 => self.take(t, key).map(|_| ()),
            7..9 => self.move_row(t, key),
            _ => self.look_at_keys(t, snapshot_of),
        }
    }

    /// Enters a put into the book. Returns what to go back to if it is refused: a savepoint and the
    /// number of changes before it; and the put's token and beginning.
    fn begin_put(&mut self, key: i64) -> Result<(engine::Savepoint, usize, usize, u64)> {
        let before = self.s.savepoint()?;
        let (began, token) = {
            let mut book = self.shared.book();
            (book.keys.now(), book.keys.put(key))
        };
        let kept = self.changes.len();
        self.changes.push(Change::Put(token));
        Ok((before, kept, token, began))
    }

    fn put(&mut self, t: &TableDef, key: i64) -> Result<()> {
        let (before, kept, token, began) = self.begin_put(key)?;
        let text = text(self.rng);
        let done = match seam::planted("keys are put without looking for others") {
            true => self
                .s
                .insert(&without_unique(t), &row(key, token as i32, &text)),
            false => self.s.insert(t, &row(key, token as i32, &text)),
        };
        self.unless_refused(done.map(|_| ()), (&before, kept), token, began)
    }

    /// Puts a row unless one with its key is there.
    fn put_unless(&mut self, t: &TableDef, key: i64) -> Result<()> {
        let (before, kept, token, began) = self.begin_put(key)?;
        let text = text(self.rng);
        let arbiters: Vec<usize> = (0..t.indexes.len())
            .filter(|&i| t.indexes[i].unique)
            .collect();
        let new = row(key, token as i32, &text);
        if let Upsert::Conflict(_) = self.s.insert_unless(t, &new, &arbiters)? {
            return self.refused_duplicate((&before, kept), token, began);
        }
        self.shared.met("put where nothing was in the way");
        self.s.end_statement();
        Ok(())
    }

    fn refused_duplicate(
        &mut self,
        (before, kept): (&engine::Savepoint, usize),
        token: usize,
        began: u64,
    ) -> Result<()> {
        let legitimate = {
            let book = self.shared.book();
            book.keys.may_refuse(token, began, &self.changes[..kept])
        };
        if !legitimate {
            self.shared
                .fail(format!("token {token} was refused for nothing"));
        }
        self.shared.met("refused as a duplicate");
        self.back_to(before, kept)
    }

    /// The work that follows a change that may have been refused as a duplicate. A refused change
    /// leaves nothing.
    fn unless_refused(
        &mut self,
        done: Result<()>,
        (before, kept): (&engine::Savepoint, usize),
        token: usize,
        began: u64,
    ) -> Result<()> {
        match done {
            Err(Error::UniqueViolation { .. }) => {
                self.refused_duplicate((before, kept), token, began)
            }
            done => {
                done?;
                self.s.end_statement();
                Ok(())
            }
        }
    }

    /// Locks the row of a key, if there is one and no other transaction keeps it.
    fn locked_key(&mut self, t: &TableDef, key: i64) -> Result<Option<(block::RowId, usize)>> {
        let snap = self.s.snapshot()?;
        let Some((rid, token, _)) = find(self.s, t, &snap, key)? else {
            self.s.end_statement();
            return Ok(None);
        };
        let wait = match self.rng.below(4) {
            0 => LockWait::NoWait,
            1 => LockWait::SkipLocked,
            _ => LockWait::Wait,
        };
        let mut body = Vec::new();
        let token = match self
            .s
            .lock_row(t, rid, &snap, (RowLock::Update, wait), &mut body)
        {
            Ok(LockOutcome::Locked) => Some(token),
            Ok(LockOutcome::Changed) => match decode(t, &body) {
                (id, token, _) if id == key => Some(token),
                _ => None,
            },
            Ok(LockOutcome::Gone) => None,
            Ok(LockOutcome::Skipped) => {
                self.shared.met("skipped a locked row");
                None
            }
            Err(Error::LockNotAvailable) => {
                self.shared.met("refused a locked row");
                None
            }
            Err(e) => return Err(e),
        };
        self.s.end_statement();
        Ok(token.map(|token| (rid, token as usize)))
    }

    fn take(&mut self, t: &TableDef, key: i64) -> Result<()> {
        let Some((rid, token)) = self.locked_key(t, key)? else {
            return Ok(());
        };
        let change = self.shared.book().keys.take(token);
        self.changes.push(change);
        done(self.s.delete(t, rid, None)?, key)?;
        self.s.end_statement();
        Ok(())
    }

    fn move_row(&mut self, t: &TableDef, key: i64) -> Result<()> {
        let before = self.s.savepoint()?;
        let kept = self.changes.len();
        let Some((rid, old)) = self.locked_key(t, key)? else {
            return Ok(());
        };
        let to = self.rng.below(KEYS) as i64;
        let (began, new) = {
            let mut book = self.shared.book();
            let take = book.keys.take(old);
            let new = book.keys.put(to);
            self.changes.extend([take, Change::Put(new)]);
            (book.keys.now(), new)
        };
        let text = text(self.rng);
        let moved = self.s.update(t, rid, &row(to, new as i32, &text), None);
        let moved = moved.and_then(|outcome| done(outcome, key));
        self.unless_refused(moved, (&before, kept), new, began)
    }

    /// Reads all keys in one snapshot.
    fn look_at_keys(&mut self, t: &Arc<TableDef>, snapshot_of: Option<u64>) -> Result<()> {
        let began = match snapshot_of {
            Some(began) => began,
            None => self.shared.book().keys.now(),
        };
        let snap = self.s.snapshot()?;
        let (mut rows, mut scan) = (Rows::new(), self.s.scan(t));
        let add = |rows: &mut Rows, body: &[u8]| {
            let (key, token, _) = decode(t, body);
            rows.push((key, token as usize));
        };
        while scan.next_block(self.s, &snap, &mut |_, body| add(&mut rows, body))? {}
        let backward = self.rng.one_in(2);
        let index = self.rng.below(t.indexes.len() as u64) as usize;
        let (mut entries, mut body) = (Rows::new(), Vec::new());
        let mut range =
            self.s
                .index_range(t, index, Bound::Unbounded, Bound::Unbounded, backward)?;
        while range.next(self.s, &snap, &mut body)?.is_some() {
            add(&mut entries, &body);
        }
        self.s.end_statement();
        rows.sort_unstable();
        entries.sort_unstable();
        let wrong = match rows == entries {
            true => {
                self.shared
                    .book()
                    .keys
                    .judge(&rows, (began, snapshot_of.is_some()), &self.changes)
            }
            false => Some(format!("index {index} has {entries:?}, the heap {rows:?}")),
        };
        if let Some(wrong) = wrong {
            self.shared.fail(format!("keys: {wrong}"));
        }
        Ok(())
    }
}

fn done(outcome: WriteOutcome, key: i64) -> Result<()> {
    match outcome {
        WriteOutcome::Done => Ok(()),
        other => Err(Error::Corrupt(format!(
            "the row of key {key} is locked, and {other:?}"
        ))),
    }
}
