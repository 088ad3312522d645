//! Window functions.

mod run;

use super::aggregate::Aggregate;
use super::plan::Register;
use crate::expr::Expr;
use crate::types::SqlType;

pub use run::WindowRun;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowFunction {
    RowNumber,
    Aggregate(Aggregate),
}

/// A call of a window function.
#[derive(Clone, PartialEq, Debug)]
pub struct WindowCall {
    pub function: WindowFunction,
    /// Over the input, of the types that the function takes.
    pub args: Vec<Expr>,
    pub filter: Option<Expr>,
    pub frame: WindowFrame,
    pub into: Register,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Units {
    Rows,
    Range,
    Groups,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Bound {
    UnboundedPreceding,
    /// The distance is over the registers, and is computed once for the whole statement.
    Preceding(Expr),
    CurrentRow,
    Following(Expr),
    UnboundedFollowing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exclude {
    Nothing,
    CurrentRow,
    Group,
    Ties,
}

#[derive(Clone, PartialEq, Debug)]
pub struct WindowFrame {
    pub units: Units,
    pub start: Bound,
    pub end: Bound,
    pub exclude: Exclude,
}

/// What a name and the types of its arguments lead to.
pub struct Found {
    pub function: WindowFunction,
    /// The types that the arguments are to be converted to.
    pub args: Vec<SqlType>,
    pub result: SqlType,
}

/// The window function of a name (not an aggregate) for arguments of these types; `None`: there is
/// none.
pub fn find(name: &str, args: &[SqlType]) -> Option<Found> {
    match (name, args) {
        ("row_number", []) => Some(Found {
            function: WindowFunction::RowNumber,
            args: Vec::new(),
            result: SqlType::Int8,
        }),
        _ => None,
    }
}
