//! Window functions.
//!
//! `find` resolves names, `run` is the operator. It holds the rows of one partition (`rows`), of
//! which each frame is a range (`frame`, with distances by `distance`) that only moves forward from
//! row to row; an aggregate follows it by what comes in and what goes out (`sliding`).

mod call;
mod distance;
mod find;
mod frame;
mod rows;
mod run;
mod sliding;

use super::aggregate::Aggregate;
use super::plan::Register;
use crate::expr::Expr;

pub use find::{find, is_window_function};
pub use run::WindowRun;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowFunction {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    /// Of a number of buckets.
    Ntile,
    /// Of a value, by so many rows (1), or else a default (NULL).
    Lag,
    Lead,
    FirstValue,
    LastValue,
    /// Of a value, and its place in the frame from 1.
    NthValue,
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

impl Bound {
    fn distance(&self) -> Option<&Expr> {
        match self {
            Bound::Preceding(e) | Bound::Following(e) => Some(e),
            _ => None,
        }
    }
}

/// EXCLUDE, which the parser does not read yet.
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

impl WindowFrame {
    /// Whether its bounds are found by the values of the order's key.
    fn has_range_distance(&self) -> bool {
        self.units == Units::Range
            && (self.start.distance().is_some() || self.end.distance().is_some())
    }
}
