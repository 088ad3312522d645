//! What a statement needs privileges for, noted as its names are found.
//!
//! **Invariant.** Nothing is decided here: what is noted is the same for every role, and goes with
//! the plan, which sessions of other roles use too. Each execution judges it by the role of then
//! (`session::permissions`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use crate::dict::acl::Privileges;
use crate::dict::{Dict, Table};
use crate::error::{Error, Result};

/// What is done with a relation.
#[derive(Clone, Debug)]
pub struct Need {
    pub relation: u32,
    /// The view whose text does it: it is done by the rights of the view's owner. Zero: none.
    pub through: u32,
    /// The view that is written to by whose text it is read, so that it is read only if the
    /// statement reads the view. Zero: none.
    pub written: u32,
    /// The statement itself names it, so that its schema must be at hand: who made a view or a
    /// policy had to have its schemas at hand, and nobody else.
    pub named: bool,
    pub privileges: Privileges,
    /// Columns that are read, inserted into and updated, by number from 1.
    pub read: BTreeSet<i16>,
    pub inserted: BTreeSet<i16>,
    pub updated: BTreeSet<i16>,
}

/// A use of a table that has row-level security, with what that has made of the plan: which
/// policies are in it. For a role for which others hold the statement is planned again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Secured {
    pub table: u32,
    /// As of [`Need::through`].
    pub through: u32,
    /// The policies that hold; `None`: rows are kept from nobody here.
    pub policies: Option<Vec<u32>>,
}

/// Whether plans that are made so are good for a role: the same policies hold for it.
/// `row_security`: its parameter of that name. A plan with policies is none for a session that has
/// it off, whose analysis says so.
pub fn are_good_for(secured: &[Secured], dict: &Dict, role: u32, row_security: bool) -> bool {
    secured.iter().all(|used| {
        let Some(table) = dict.table_by_oid(used.table) else {
            return false;
        };
        let role = acting(dict, used.through, role);
        (row_security || used.policies.is_none()) && dict.policies_for(role, table) == used.policies
    })
}

/// The role by whose rights what stands in a view is done; zero for the view: in none.
pub fn acting(dict: &Dict, through: u32, role: u32) -> u32 {
    match through {
        0 => role,
        view => dict.view_by_oid(view).map_or(0, |v| v.owner),
    }
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
    pub secured: Vec<Secured>,
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
    /// The role that the plan is made for, and its parameter `row_security`.
    by: Cell<(u32, bool)>,
    secured: RefCell<Vec<Secured>>,
    /// Tables whose policies are being analysed, one within the other.
    securing: RefCell<Vec<u32>>,
}

impl Needs {
    /// Whether the text is the statement's own.
    fn is_own(&self) -> bool {
        !self.text.get().of_view && self.securing.borrow().is_empty()
    }

    fn of(&self, relation: u32, note: impl FnOnce(&mut Need)) {
        self.of_named(relation, self.is_own(), note);
    }

    fn of_named(&self, relation: u32, named: bool, note: impl FnOnce(&mut Need)) {
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
                named: false,
                privileges: Privileges::NONE,
                read: BTreeSet::new(),
                inserted: BTreeSet::new(),
                updated: BTreeSet::new(),
            });
            all.len() - 1
        });
        all[at].named |= named;
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

    /// A schema is named: of a function, as of [`Need::named`].
    pub fn schema(&self, schema: u32) {
        if self.is_own() {
            self.schemas.borrow_mut().insert(schema);
        }
    }

    /// Says for whom the statement is planned.
    pub fn run_by(&self, role: u32, row_security: bool) {
        self.by.set((role, row_security));
    }

    /// The policies of a table that hold for the role that uses it here, which the plan depends on
    /// from now on.
    pub fn policies_of(&self, dict: &Dict, table: &Table) -> Result<Option<Vec<u32>>> {
        if !table.row_security {
            return Ok(None);
        }
        let (role, row_security) = self.by.get();
        let role = acting(dict, self.text.get().through, role);
        let policies = dict.policies_for(role, table);
        if policies.is_some() && !row_security {
            return Err(would_be_affected(dict, table, role));
        }
        let used = Secured {
            table: table.oid,
            through: self.text.get().through,
            policies: policies.clone(),
        };
        let mut secured = self.secured.borrow_mut();
        if !secured.contains(&used) {
            secured.push(used);
        }
        Ok(policies)
    }

    /// The policies of a table are analysed until [`Needs::end_securing`].
    pub fn begin_securing(&self, table: u32) {
        self.securing.borrow_mut().push(table);
    }

    pub fn end_securing(&self) {
        self.securing.borrow_mut().pop();
    }

    pub fn is_securing(&self, table: u32) -> bool {
        self.securing.borrow().contains(&table)
    }

    /// These are the needs of a policy's expression that is planned by itself, in a statement with
    /// other needs.
    pub fn follow(&self, others: &Needs, table: u32) {
        self.by.set(others.by.get());
        self.text.set(others.text.get());
        self.begin_securing(table);
    }

    /// Takes in the needs of a part that was analysed by itself.
    pub fn absorb(&self, part: &Needs) {
        let around = self.text.get();
        for need in part.all.borrow().iter() {
            self.text.set(Text {
                through: need.through,
                written: need.written,
                of_view: around.of_view,
            });
            self.of_named(need.relation, need.named, |n| {
                n.privileges = n.privileges.and(need.privileges);
                n.read.extend(&need.read);
                n.inserted.extend(&need.inserted);
                n.updated.extend(&need.updated);
            });
        }
        self.text.set(around);
        self.schemas
            .borrow_mut()
            .extend(part.schemas.borrow().iter());
        let mut secured = self.secured.borrow_mut();
        for used in part.secured.borrow().iter() {
            if !secured.contains(used) {
                secured.push(used.clone());
            }
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
            secured: self.secured.borrow().clone(),
            schemas: self.schemas.borrow().clone(),
        }
    }
}

fn would_be_affected(dict: &Dict, table: &Table, role: u32) -> Error {
    let message = format!(
        "query would be affected by row-level security policy for table \"{}\"",
        table.name
    );
    let e = Error::new("42501", message);
    match dict.has_rights_of(role, table.owner) {
        true => e.hint(
            "To disable the policy for the table's owner, use ALTER TABLE NO FORCE ROW LEVEL \
             SECURITY.",
        ),
        false => e,
    }
}

fn number(at: usize) -> i16 {
    i16::try_from(at + 1).unwrap_or(i16::MAX)
}
