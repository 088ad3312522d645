//! Plans of statements whose WITH has a part that writes. Each part, the main statement among them,
//! is a plan of its own; those that read an item of WITH find its rows with the execution
//! ([`crate::exec::with`]).

use std::sync::Arc;

use super::{DeletePlan, InsertPlan, SuppliedWrite, UpdatePlan};
use crate::dict::Table;
use crate::query;

/// A statement and the items of its WITH, in the order in which they may read each other.
pub struct WithPlan {
    pub items: Vec<Item>,
    pub main: Part,
    /// The main part only reads what the last item, a write, returns: that item gives the tag.
    pub reads_written: bool,
}

impl WithPlan {
    /// The part whose command the statement is for the client.
    pub fn told(&self) -> &Part {
        match self.items.last() {
            Some(item) if self.reads_written => &item.part,
            _ => &self.main,
        }
    }
}

impl WithPlan {
    /// Whether any part writes.
    pub fn writes(&self) -> bool {
        let items = self.items.iter().map(|item| &item.part);
        let mut parts = items.chain([&self.main]);
        parts.any(|part| part.target().is_some())
    }
}

/// An item of WITH.
pub struct Item {
    pub name: String,
    pub part: Part,
}

/// A statement within a statement.
pub enum Part {
    Query(Arc<query::Plan>),
    Insert(Box<InsertPlan>),
    Update(Box<UpdatePlan>),
    Delete(Box<DeletePlan>),
    Supplied(Box<SuppliedWrite>),
    /// The rows of this one of the transition tables that the running trigger has.
    Transition(usize),
}

impl Part {
    /// The table that it writes to.
    pub fn target(&self) -> Option<&Arc<Table>> {
        match self {
            Part::Query(_) | Part::Transition(_) => None,
            Part::Insert(plan) => Some(&plan.table),
            Part::Update(plan) => Some(&plan.access.table),
            Part::Delete(plan) => Some(&plan.access.table),
            Part::Supplied(plan) => Some(&plan.table),
        }
    }

    /// The command's name, as in its tag.
    pub fn command(&self) -> &'static str {
        match self {
            Part::Query(_) | Part::Transition(_) => "SELECT",
            Part::Insert(_) => "INSERT",
            Part::Update(_) => "UPDATE",
            Part::Delete(_) => "DELETE",
            Part::Supplied(plan) => plan.command(),
        }
    }

    /// Whether it gives rows.
    pub fn returns_rows(&self) -> bool {
        match self {
            Part::Query(_) | Part::Transition(_) => true,
            Part::Insert(plan) => plan.returning.is_some(),
            Part::Update(plan) => plan.returning.is_some(),
            Part::Delete(plan) => plan.returning.is_some(),
            Part::Supplied(plan) => plan.returning.is_some(),
        }
    }
}
