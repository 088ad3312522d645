//! Aggregate functions, GROUP BY and DISTINCT.
//!
//! `find` resolves names, `state` takes in the values of one group, `group` and `distinct` are the
//! operators. `ordered` has the aggregates within a group that need their rows in an order.
//!
//! **Invariants.**
//! - A [`State`] depends on the values taken in and their order, and on nothing else. Groups and
//!   windows share it.
//! - The operators keep groups within `work_mem`. Rows of further groups go to a sort by the
//!   group's key, and are aggregated one group at a time.

mod decimal;
mod distinct;
pub mod find;
mod float;
mod group;
mod json;
mod ordered;
mod ordered_set;
mod state;
mod table;

use super::plan::Register;
use crate::expr::Expr;
use crate::plan::SortKey;

use crate::types::ranges::RangeOf;
use crate::types::{Element, SqlType};

pub use distinct::DistinctRun;
pub use find::{find, is_aggregate, is_ambiguous, is_unsupported, ordered_set};
pub use group::GroupRun;
pub use ordered_set::check_share;
pub use state::{State, Sums, takes_last};

/// An aggregate function with the type that it works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aggregate {
    /// count(*)
    CountRows,
    Count,
    Sum(SqlType),
    Avg(SqlType),
    Min(SqlType),
    Max(SqlType),
    /// `bool_and` and `every`.
    BoolAnd,
    BoolOr,
    BitAnd,
    BitOr,
    BitXor,
    /// `string_agg` of text or bytea.
    StringAgg(SqlType),
    /// Of elements, NULLs among them.
    ArrayAgg(SqlType),
    /// Of values that were made json or jsonb, of arrays and rows each on a line of its own.
    JsonAgg {
        binary: bool,
        lines: bool,
    },
    /// Of keys, which are text, and such values.
    JsonObjectAgg {
        binary: bool,
    },
    /// `range_agg` and `range_intersect_agg`, of ranges or multiranges.
    Ranges {
        result: SqlType,
        of: RangeOf,
        intersect: bool,
    },
    /// Variances and standard deviations.
    Spread(Spread, SqlType),
    /// The statistics of pairs, of which the dependent variable is the first argument.
    Pairs(Pairs),
    /// Of values in their order: the aggregates with WITHIN GROUP.
    OrderedSet(OrderedSet),
}

impl Aggregate {
    /// Whether a row with a NULL argument does not count.
    pub fn is_strict(self) -> bool {
        use Aggregate::{CountRows, StringAgg};
        !matches!(self, CountRows | StringAgg(_)) && !self.keeps_nulls()
    }

    /// Whether a row counts whose first argument is NULL.
    pub fn keeps_nulls(self) -> bool {
        use Aggregate::{ArrayAgg, JsonAgg, JsonObjectAgg};
        matches!(self, ArrayAgg(_) | JsonAgg { .. } | JsonObjectAgg { .. })
    }

    /// Whether its values are made json or jsonb before it takes them in.
    pub fn is_json(self) -> bool {
        matches!(
            self,
            Aggregate::JsonAgg { .. } | Aggregate::JsonObjectAgg { .. }
        )
    }

    /// Whether a value that comes again changes nothing.
    fn ignores_repeats(self) -> bool {
        use Aggregate::{BitAnd, BitOr, BoolAnd, BoolOr, Max, Min, Ranges};
        matches!(
            self,
            Min(_) | Max(_) | BoolAnd | BoolOr | BitAnd | BitOr | Ranges { .. }
        )
    }

    /// Whether what is kept of a group grows with its rows.
    fn grows(self) -> bool {
        matches!(self, Aggregate::StringAgg(_) | Aggregate::Ranges { .. }) || self.keeps_nulls()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderedSet {
    /// The most frequent value.
    Mode,
    /// `percentile_disc`: the value at a share of the rows, which is the second argument.
    Discrete,
    /// `percentile_cont`: the same, between two values where the share is.
    Continuous,
    /// The values at each of several shares, an array of such elements.
    DiscreteList(Element),
    ContinuousList(Element),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spread {
    /// Of a sample (divided by n - 1), not of all there is (divided by n).
    pub sample: bool,
    /// The root of the variance.
    pub deviation: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pairs {
    Count,
    AvgX,
    AvgY,
    Sxx,
    Syy,
    Sxy,
    CovarPop,
    CovarSamp,
    Corr,
    R2,
    Slope,
    Intercept,
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
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    pub function: Aggregate,
    /// The types that the arguments are to be converted to.
    pub args: Vec<SqlType>,
    pub result: SqlType,
}
