//! What a statement needs privileges for, noted as its names are found.
//!
//! **Invariant.** Nothing is decided here: what is noted is the same for every role, and goes with
//! the plan, which sessions of other roles use too. Each execution judges it by the role of then
//! (`session::permissions`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use crate::dict::acl::Privileges;

/// What is done with a relation.
#[derive(Clone, Debug)]
pub struct Need {
    pub relation: u32,
    /// The view whose text does it: it is done by the rights of the view's owner. Zero: none.
    pub through: u32,
    pub privileges: Privileges,
    /// Columns that are read, inserted into and updated, by number from 1.
    pub read: BTreeSet<i16>,
    pub inserted: BTreeSet<i16>,
    pub updated: BTreeSet<i16>,
}

/// All that a statement needs.
#[derive(Clone, Debug, Default)]
pub struct Noted {
    pub relations: Vec<Need>,
    /// Schemas that it names before functions.
    pub schemas: BTreeSet<u32>,
}

impl Noted {
    pub fn is_empty(&self) -> bool {
        self.relations.is_empty() && self.schemas.is_empty()
    }
}

/// The needs of a statement, as far as it is analysed.
#[derive(Debug, Default)]
pub struct Needs {
    all: RefCell<Vec<Need>>,
    schemas: RefCell<BTreeSet<u32>>,
    through: Cell<u32>,
}

impl Needs {
    fn of(&self, relation: u32, note: impl FnOnce(&mut Need)) {
        let through = self.through.get();
        let mut all = self.all.borrow_mut();
        let known = all
            .iter()
            .position(|n| (n.relation, n.through) == (relation, through));
        let at = known.unwrap_or_else(|| {
            all.push(Need {
                relation,
                through,
                privileges: Privileges::NONE,
                read: BTreeSet::new(),
                inserted: BTreeSet::new(),
                updated: BTreeSet::new(),
            });
            all.len() - 1
        });
        note(&mut all[at]);
    }

    /// A relation is read or written to.
    pub fn relation(&self, relation: u32, privileges: Privileges) {
        self.of(relation, |n| n.privileges = n.privileges.and(privileges));
    }

    /// A column is read.
    pub fn read(&self, relation: u32, column: i16) {
        if relation != 0 {
            self.of(relation, |n| {
                n.privileges = n.privileges.and(Privileges::SELECT);
                n.read.insert(column);
            });
        }
    }

    /// Columns, by place from 0, are given values in new rows.
    pub fn inserted(&self, relation: u32, columns: impl IntoIterator<Item = usize>) {
        self.of(relation, |n| {
            n.privileges = n.privileges.and(Privileges::INSERT);
            n.inserted.extend(columns.into_iter().map(number));
        });
    }

    /// Columns, by place from 0, are given other values.
    pub fn updated(&self, relation: u32, columns: impl IntoIterator<Item = usize>) {
        self.of(relation, |n| {
            n.privileges = n.privileges.and(Privileges::UPDATE);
            n.updated.extend(columns.into_iter().map(number));
        });
    }

    /// A schema is named. Who made a view had to have its schemas at hand, and nobody else.
    pub fn schema(&self, schema: u32) {
        if self.through.get() == 0 {
            self.schemas.borrow_mut().insert(schema);
        }
    }

    /// The text of a view follows. What was before is to be put back by [`Needs::leave`].
    pub fn enter(&self, view: u32) -> u32 {
        self.through.replace(view)
    }

    pub fn leave(&self, before: u32) {
        self.through.set(before);
    }

    pub fn noted(&self) -> Noted {
        Noted {
            relations: self.all.borrow().clone(),
            schemas: self.schemas.borrow().clone(),
        }
    }
}

fn number(at: usize) -> i16 {
    i16::try_from(at + 1).unwrap_or(i16::MAX)
}
