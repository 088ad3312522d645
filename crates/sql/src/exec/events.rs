//! Row events: what a changed row leaves to be done once the statement, or the transaction, is
//! over.
//!
//! The operators that write rows queue them; the end of the statement fires them in their order
//! ([`super::foreign::fire`]). What an event itself writes queues more, behind the others.
//!
//! **Invariants.**
//! - An event of a foreign key names a key, not a row: it asks about the rows that have the key when it is fired.
//!   So it may be fired more than once, and one event stands for all rows of a key.
//! - The statement's queue is empty between statements. A deferred check stays queued until the
//!   transaction, or the savepoint after which it came, ends; SET CONSTRAINTS .. IMMEDIATE fires
//!   it and leaves it there, as the rollback of a savepoint may make it matter again. The event of
//!   a constraint trigger is fired once, unless such a rollback has undone that.

use std::collections::{HashMap, HashSet, VecDeque};

use block::value::{Datum, DatumRef};

use super::transitions::{Reached, Transitions};
use super::triggers;
use crate::dict::trigger::Op;
use crate::dict::{ForeignKey, Table};
use crate::error::Result;
use crate::session::Core;

/// What fires triggers: what was done, and to which columns an UPDATE gives values. These are known
/// only of tables with triggers that ask for them.
#[derive(Clone, Copy)]
pub struct Cause<'c> {
    pub op: Op,
    pub columns: &'c [usize],
}

impl Cause<'static> {
    /// A cause that is about no columns.
    pub fn of(op: Op) -> Cause<'static> {
        Cause { op, columns: &[] }
    }
}

impl<'c> Cause<'c> {
    /// An UPDATE that gives values to these columns, and to those that are made of them.
    pub fn update(columns: &'c [usize]) -> Cause<'c> {
        Cause {
            op: Op::Update,
            columns,
        }
    }
}

#[derive(Clone)]
pub struct Event {
    /// The table that has the constraint, which is the referencing one of a foreign key.
    pub table: u32,
    pub constraint: u32,
    pub what: What,
}

#[derive(Clone)]
pub enum What {
    /// The referencing table got a row with this key.
    Referencing(Vec<Datum>),
    /// The referenced table lost the row with this key.
    Deleted(Vec<Datum>),
    /// A row of the referenced table got another key.
    Updated { old: Vec<Datum>, new: Vec<Datum> },
    /// A deferrable unique key has had several entries.
    Shared(Vec<Datum>),
    /// An after trigger is to be fired, for a row with its columns, or for the statement.
    Trigger {
        op: Op,
        /// To which an UPDATE gave values.
        columns: Vec<usize>,
        old: Option<Vec<Datum>>,
        new: Option<Vec<Datum>>,
    },
}

/// Which constraints SET CONSTRAINTS has made deferred in this transaction.
#[derive(Clone, Default)]
pub struct Modes {
    pub all: Option<bool>,
    pub named: HashMap<u32, bool>,
}

impl Modes {
    fn are_initial(&self) -> bool {
        self.all.is_none() && self.named.is_empty()
    }
}

/// How far the events of a transaction had come at a savepoint.
#[derive(Clone)]
pub struct Mark {
    deferred: usize,
    fired: usize,
    modes: Modes,
}

/// How far those of a statement had come.
pub struct StatementMark {
    events: usize,
    transitions: Reached,
}

/// The events of a statement, while another one runs within it.
pub struct PutAway {
    events: VecDeque<Event>,
    transitions: Transitions,
}

#[derive(Default)]
pub struct RowEvents {
    pub statement: VecDeque<Event>,
    pub deferred: Vec<Event>,
    /// The places of deferred events of triggers that have been fired, in that order.
    fired: Vec<usize>,
    /// The same, to be looked up.
    is_fired: HashSet<usize>,
    pub transitions: Transitions,
    pub modes: Modes,
    /// Keys of which the statement's queue has a check.
    queued: HashSet<(u32, Vec<u8>)>,
    /// The same of the deferred ones, since the last that were taken away.
    queued_deferred: HashSet<(u32, Vec<u8>)>,
}

impl RowEvents {
    pub fn queue(&mut self, event: Event) {
        if let Some(key) = same_as(&event)
            && !self.queued.insert(key)
        {
            return;
        }
        self.statement.push_back(event);
    }

    pub fn defer(&mut self, event: Event) {
        if let Some(key) = same_as(&event)
            && !self.queued_deferred.insert(key)
        {
            return;
        }
        self.deferred.push(event);
    }

    /// Takes the statement's queue away while another statement runs within it.
    pub fn put_away(&mut self) -> PutAway {
        self.queued.clear();
        PutAway {
            events: std::mem::take(&mut self.statement),
            transitions: std::mem::take(&mut self.transitions),
        }
    }

    /// Puts back what was taken away. An event may stand twice in it from now on.
    pub fn put_back(&mut self, away: PutAway) {
        self.queued.clear();
        self.statement = away.events;
        self.transitions = away.transitions;
    }

    pub fn statement_mark(&self) -> StatementMark {
        StatementMark {
            events: self.statement.len(),
            transitions: self.transitions.reached(),
        }
    }

    /// Forgets the statement's events since then: it begins again.
    pub fn back_to(&mut self, mark: &StatementMark) {
        self.statement.truncate(mark.events);
        self.transitions.back_to(&mark.transitions);
        self.queued.clear();
    }

    /// The next event of the statement.
    pub fn next(&mut self) -> Option<Event> {
        let event = self.statement.pop_front()?;
        // From now on it stands for no other: what follows it may make the same check necessary
        // again.
        if let Some(key) = same_as(&event) {
            self.queued.remove(&key);
        }
        Some(event)
    }

    /// After an error or the rollback of a savepoint: what came since is as if it had not been.
    pub fn rolled_back(&mut self, mark: &Mark) {
        self.statement.clear();
        self.transitions.clear();
        self.queued.clear();
        self.deferred.truncate(mark.deferred);
        for undone in self.fired.drain(mark.fired.min(self.fired.len())..) {
            self.is_fired.remove(&undone);
        }
        self.queued_deferred.clear();
        self.modes = mark.modes.clone();
    }

    /// The transaction has ended.
    #[inline]
    pub fn end(&mut self) {
        if self.is_untouched() {
            return;
        }
        self.rolled_back(&Mark {
            deferred: 0,
            fired: 0,
            modes: Modes::default(),
        });
    }

    /// Whether there is nothing to forget, as in most transactions.
    fn is_untouched(&self) -> bool {
        self.statement.is_empty()
            && self.deferred.is_empty()
            && self.fired.is_empty()
            && self.transitions.is_empty()
            && self.queued.is_empty()
            && self.queued_deferred.is_empty()
            && self.modes.are_initial()
    }

    pub fn mark(&self) -> Mark {
        Mark {
            deferred: self.deferred.len(),
            fired: self.fired.len(),
            modes: self.modes.clone(),
        }
    }

    /// The first deferred event from a place on that is to be fired, and its place. One of a
    /// trigger is not fired again, unless the rollback of a savepoint has undone that.
    pub fn next_deferred(
        &mut self,
        from: usize,
        wanted: &dyn Fn(&Event) -> bool,
    ) -> Option<(usize, Event)> {
        let mut rest = self.deferred.iter().enumerate().skip(from);
        let (at, event) = rest.find(|(at, e)| wanted(e) && !self.is_fired.contains(at))?;
        let event = event.clone();
        // A row that comes while the transaction ends asks for a check of its own.
        if let Some(key) = same_as(&event) {
            self.queued_deferred.remove(&key);
        }
        if let What::Trigger { .. } = event.what {
            self.fired.push(at);
            self.is_fired.insert(at);
        }
        Some((at, event))
    }

    /// Whether the checks of a deferrable constraint wait for the end of the transaction.
    pub fn is_deferred(&self, constraint: u32, initially: bool) -> bool {
        let named = self.modes.named.get(&constraint).copied();
        named.or(self.modes.all).unwrap_or(initially)
    }
}

/// What two checks of a key have in common if one is enough.
fn same_as(event: &Event) -> Option<(u32, Vec<u8>)> {
    let (What::Referencing(key) | What::Shared(key)) = &event.what else {
        return None;
    };
    let mut bytes = Vec::new();
    let refs: Vec<DatumRef<'_>> = key.iter().map(Datum::borrow).collect();
    block::row::encode(&refs, &mut bytes);
    Some((event.constraint, bytes))
}

pub fn values(row: &[DatumRef<'_>], columns: &[usize]) -> Vec<Datum> {
    columns.iter().map(|&c| row[c].to_datum()).collect()
}

/// Whether a row with this key has to have a referenced one, or is wrong by itself.
pub fn matters(key: &ForeignKey, row: &[DatumRef<'_>]) -> bool {
    let is_null = |c: &usize| matches!(row[*c], DatumRef::Null);
    let nulls = key.columns.iter().filter(|c| is_null(c)).count();
    nulls == 0 || key.full && nulls < key.columns.len()
}

/// A row was inserted.
pub fn inserted(core: &mut Core, table: &Table, row: &[DatumRef<'_>]) -> Result<()> {
    for key in &table.foreign_keys {
        if matters(key, row) {
            core.events.queue(Event {
                table: table.oid,
                constraint: key.oid,
                what: What::Referencing(values(row, &key.columns)),
            });
        }
    }
    super::deferrable::written(core, table, None, row)?;
    triggers::after_row(core, table, Cause::of(Op::Insert), None, Some(row))
}

/// A row was replaced by another version; these columns were given values.
pub fn updated(
    core: &mut Core,
    table: &Table,
    columns: &[usize],
    old: &[DatumRef<'_>],
    new: &[DatumRef<'_>],
) -> Result<()> {
    for key in &table.foreign_keys {
        if matters(key, new) && !super::foreign_rows::same_key(table, &key.columns, old, new) {
            core.events.queue(Event {
                table: table.oid,
                constraint: key.oid,
                what: What::Referencing(values(new, &key.columns)),
            });
        }
    }
    for (child, key) in core.referencing(table.oid) {
        let parts = &key.parent_columns;
        // A key that is equal but looks different, as 1.00 for 1.0, is another one here: ON UPDATE
        // CASCADE brings it to the rows that reference it.
        if has_nulls(old, parts) || parts.iter().all(|&c| old[c].is_identical(new[c])) {
            continue;
        }
        core.events.queue(Event {
            table: child,
            constraint: key.oid,
            what: What::Updated {
                old: values(old, parts),
                new: values(new, parts),
            },
        });
    }
    super::deferrable::written(core, table, Some(old), new)?;
    triggers::after_row(core, table, Cause::update(columns), Some(old), Some(new))
}

/// A row was deleted.
pub fn deleted(core: &mut Core, table: &Table, old: &[DatumRef<'_>]) -> Result<()> {
    for (child, key) in core.referencing(table.oid) {
        if has_nulls(old, &key.parent_columns) {
            continue;
        }
        core.events.queue(Event {
            table: child,
            constraint: key.oid,
            what: What::Deleted(values(old, &key.parent_columns)),
        });
    }
    triggers::after_row(core, table, Cause::of(Op::Delete), Some(old), None)
}

fn has_nulls(row: &[DatumRef<'_>], columns: &[usize]) -> bool {
    columns.iter().any(|&c| matches!(row[c], DatumRef::Null))
}

impl Core {
    /// The foreign keys that reference a table, and the tables that have them. Whoever writes to
    /// the table has locked it, so that none is added or taken away meanwhile.
    fn referencing(&self, table: u32) -> Vec<(u32, ForeignKey)> {
        match self.has_own_dict() {
            true => self.dict().referencing(table),
            false => self.database.with_dict(|dict| dict.referencing(table)),
        }
    }
}
