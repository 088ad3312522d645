//! Aggregate functions, GROUP BY and DISTINCT.

mod group;

use super::plan::Register;
use crate::expr::Expr;
use crate::plan::SortKey;
use crate::types::SqlType;

pub use group::{DistinctRun, GroupRun};

/// An aggregate function with the types it works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aggregate {
    /// count(*)
    CountRows,
    Count,
}

/// A call of an aggregate function.
#[derive(Clone, PartialEq, Debug)]
pub struct AggregateCall {
    pub function: Aggregate,
    /// Over the input, of the types that the function takes.
    pub args: Vec<Expr>,
    pub distinct: bool,
    /// The order in which rows are taken in; empty: as they come.
    pub order: Vec<SortKey>,
    pub filter: Option<Expr>,
    pub into: Register,
}

/// What a name and the types of its arguments lead to.
pub struct Found {
    pub function: Aggregate,
    /// The types that the arguments are to be converted to.
    pub args: Vec<SqlType>,
    pub result: SqlType,
}

/// Whether a function of the name works on groups.
pub fn is_aggregate(name: &str) -> bool {
    matches!(name, "count")
}

/// The aggregate function of a name for arguments of these types; `None`: there is none.
pub fn find(name: &str, args: &[SqlType]) -> Option<Found> {
    let found = |function, args: &[SqlType], result| {
        Some(Found {
            function,
            args: args.to_vec(),
            result,
        })
    };
    match (name, args) {
        ("count", []) => found(Aggregate::CountRows, &[], SqlType::Int8),
        ("count", [any]) => found(Aggregate::Count, &[*any], SqlType::Int8),
        _ => None,
    }
}
