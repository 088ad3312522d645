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
    /// The view that is written to by whose text it is read, so that it is read only if the
    /// statement reads the view. Zero: none.
    pub written: u32,
    pub privileges: Privileges,
    /// Columns that are read, inserted into and updated, by number from 1.
    pub read: BTreeSet<i16>,
    pub inserted: BTreeSet<i16>,
    pub updated: BTreeSet<i16>,
}

/// Whose text needs what follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Text {
    /// As of [`Need::through`].
    through: u32,
    /// As of [`Need::written`].
    written: u32,
    /// It is a view's.
    of_view: bool,
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
    text: Cell<Text>,
}

impl Needs {
    fn of(&self, relation: u32, note: impl FnOnce(&mut Need)) {
        let Text {
            through, written, ..
        } = self.text.get();
        let mut all = self.all.borrow_mut();
        let known = all
            .iter()
            .position(|n| (n.relation, n.through, n.written) == (relation, through, written));
        let at = known.unwrap_or_else(|| {
            all.push(Need {
                relation,
                through,
                written,
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
        if !self.text.get().of_view {
            self.schemas.borrow_mut().insert(schema);
        }
    }

    /// The text of a view follows, which with `invoker` has the rights of who reads it. What was
    /// before is to be put back by [`Needs::leave`].
    pub fn enter_view(&self, view: u32, invoker: bool) -> Text {
        let before = self.text.get();
        self.enter(Text {
            through: if invoker { before.through } else { view },
            written: before.written,
            of_view: true,
        })
    }

    /// The same of a view that is written to.
    pub fn enter_written(&self, view: u32, invoker: bool) -> Text {
        let before = self.enter_view(view, invoker);
        let written = view;
        self.text.set(Text {
            written,
            ..self.text.get()
        });
        before
    }

    /// A text follows that was entered before.
    pub fn enter(&self, text: Text) -> Text {
        self.text.replace(text)
    }

    pub fn leave(&self, before: Text) {
        self.text.set(before);
    }

    pub fn text(&self) -> Text {
        self.text.get()
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
