//! Direct plans: statements compiled once into steps over the engine, and run without planning.
//!
//! A plan holds the definitions it was made from; the executor locks the tables, then checks that
//! these are still the dictionary's. What a direct plan cannot express answers 0A000 here, upon
//! which the tree lane takes it.

pub mod aggregate;
mod alternatives;
mod arbiters;
mod assign;
pub mod call;
mod common;
pub mod conflict;
pub mod dml;
pub mod estimate;
mod from;
pub mod indexed;
mod insert;
pub mod inverted;
mod keys;
pub mod lockable;
pub mod locking;
pub mod merge;
pub mod merged;
mod output;
pub mod path;
pub mod policies;
mod returned;
pub mod returning;
pub mod select;
pub mod supply;
pub mod through;
pub mod updatable;
pub mod with;

use std::sync::Arc;

use crate::api::ColumnDesc;
use crate::bind::{ParamTypes, Typed};
use crate::dict::{Dict, Table};
use crate::error::Result;
use crate::exec::returning::Returning;
use crate::expr::Expr;
use crate::query::WithItem;

pub use aggregate::{AggFunc, Aggregate, finds_call};
pub use conflict::{Conflict, ConflictUpdate};
pub use dml::{DeletePlan, RowRules, UpdatePlan};
pub use from::check_constraint;
pub use insert::{InsertPlan, InsertSource};
pub use output::{column_name, position, within_parentheses};
pub use path::{IndexPart, KeyBound, Path};
pub use select::{LockRows, SelectPlan, SortKey, Source};
pub use supply::SuppliedWrite;

/// One table and how its rows are found.
#[derive(Clone, Debug)]
pub struct TableAccess {
    pub table: Arc<Table>,
    /// First column of this table's part of the combined row.
    pub offset: usize,
    pub path: Path,
    /// How many columns must be decoded; the rest are passed as NULL.
    pub needed: usize,
    /// What remains to be checked of each row, over the combined row.
    pub filter: Option<Expr>,
    /// Rows expected, for EXPLAIN and the choice of a join's outer side.
    pub rows: f64,
}

/// What planning works with.
pub struct Planner<'p> {
    pub dict: &'p Dict,
    pub params: &'p ParamTypes,
    /// Items of the statement's WITH that are in sight. What names one is no direct plan.
    pub items: &'p [WithItem],
}

impl<'p> Planner<'p> {
    /// For what stands outside of a statement with WITH: defaults, checks, keys of indexes.
    pub fn alone(dict: &'p Dict, params: &'p ParamTypes) -> Planner<'p> {
        Planner {
            dict,
            params,
            items: &[],
        }
    }
}

/// Columns of a result with the expressions that make them.
pub struct Output {
    pub columns: Vec<ColumnDesc>,
    pub exprs: Vec<Expr>,
}

impl Output {
    /// The same as RETURNING of rows that have `width` values before the system columns.
    fn of_rows(&self, width: usize) -> Returning {
        let needed = self.exprs.iter().map(Expr::columns_needed).max();
        Returning {
            exprs: self.exprs.clone(),
            system: needed.filter(|n| *n > width).map(|_| width),
        }
    }

    /// The same over the rows that are written, of what the statement sees of them.
    fn lowered(mut self, written: &through::Written) -> Result<Output> {
        let exprs = self.exprs.into_iter().map(|e| written.lower(e));
        self.exprs = exprs.collect::<Result<_>>()?;
        Ok(self)
    }

    fn push(&mut self, name: String, value: Typed, origin: Option<(u32, i16)>) {
        let (table_oid, attnum) = origin.unwrap_or((0, 0));
        self.columns.push(ColumnDesc {
            name,
            table_oid,
            attnum,
            ty: value.ty,
            typmod: value.typmod,
            collation: value.collation.of_column(),
        });
        self.exprs.push(value.expr);
    }

    fn append(&mut self, other: Output) {
        self.columns.extend(other.columns);
        self.exprs.extend(other.exprs);
    }
}
