//! Window functions by name and argument types.

use super::WindowFunction;
use crate::bind::chosen_type;
use crate::types::SqlType;

/// What a name and the types of its arguments lead to.
pub struct Found {
    pub function: WindowFunction,
    /// The types that the arguments are to be converted to.
    pub args: Vec<SqlType>,
    pub result: SqlType,
}

/// Whether a function of the name, not an aggregate, needs an OVER clause.
pub fn is_window_function(name: &str) -> bool {
    matches!(
        name,
        "row_number"
            | "rank"
            | "dense_rank"
            | "percent_rank"
            | "cume_dist"
            | "ntile"
            | "lag"
            | "lead"
            | "first_value"
            | "last_value"
            | "nth_value"
    )
}

impl WindowFunction {
    pub fn name(self) -> &'static str {
        match self {
            WindowFunction::RowNumber => "row_number",
            WindowFunction::Rank => "rank",
            WindowFunction::DenseRank => "dense_rank",
            WindowFunction::PercentRank => "percent_rank",
            WindowFunction::CumeDist => "cume_dist",
            WindowFunction::Ntile => "ntile",
            WindowFunction::Lag => "lag",
            WindowFunction::Lead => "lead",
            WindowFunction::FirstValue => "first_value",
            WindowFunction::LastValue => "last_value",
            WindowFunction::NthValue => "nth_value",
            WindowFunction::Aggregate(function) => function.name(),
        }
    }
}

/// The window function of a name (not an aggregate) for arguments of these types; `None`: there is
/// none.
pub fn find(name: &str, args: &[SqlType]) -> Option<Found> {
    use WindowFunction as F;
    let function = match (name, args.len()) {
        ("row_number", 0) => F::RowNumber,
        ("rank", 0) => F::Rank,
        ("dense_rank", 0) => F::DenseRank,
        ("percent_rank", 0) => F::PercentRank,
        ("cume_dist", 0) => F::CumeDist,
        ("ntile", 1) => F::Ntile,
        ("lag", 1..=3) => F::Lag,
        ("lead", 1..=3) => F::Lead,
        ("first_value", 1) => F::FirstValue,
        ("last_value", 1) => F::LastValue,
        ("nth_value", 2) => F::NthValue,
        _ => return None,
    };
    let (args, result) = match (function, args) {
        (F::PercentRank | F::CumeDist, _) => (Vec::new(), SqlType::Float8),
        (F::Ntile, [buckets]) => (vec![as_int4(*buckets)?], SqlType::Int4),
        // Of a value of any type, so that a literal without one has none to take.
        (_, [SqlType::Unknown]) | (_, [SqlType::Unknown, _]) => return None,
        (_, [value]) => (vec![*value], *value),
        (_, [value, place]) => (vec![*value, as_int4(*place)?], *value),
        (_, [value, place, default]) => {
            let common = chosen_type(&[*value, *default], "lag").ok()?;
            (vec![common, as_int4(*place)?, common], common)
        }
        _ => (Vec::new(), SqlType::Int8),
    };
    Some(Found {
        function,
        args,
        result,
    })
}

/// int4, if the type converts to it by itself.
fn as_int4(ty: SqlType) -> Option<SqlType> {
    matches!(ty, SqlType::Int2 | SqlType::Int4 | SqlType::Unknown).then_some(SqlType::Int4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(name: &str, args: &[SqlType]) -> Option<SqlType> {
        find(name, args).map(|f| f.result)
    }

    #[test]
    fn arguments_decide_the_type() {
        use SqlType::*;
        assert_eq!(result("row_number", &[]), Some(Int8));
        assert_eq!(result("row_number", &[Int4]), None);
        assert_eq!(result("ntile", &[Int2]), Some(Int4));
        assert_eq!(result("ntile", &[Int8]), None);
        assert_eq!(result("lag", &[Text]), Some(Text));
        assert_eq!(result("lag", &[Unknown]), None);
        assert_eq!(result("lag", &[Int4, Int4, Numeric]), Some(Numeric));
        assert_eq!(result("lead", &[Varchar, Int4, Unknown]), Some(Varchar));
        assert_eq!(result("lead", &[Int4, Int4, Text]), None);
        assert_eq!(result("lead", &[Int4, Int8]), None);
        assert_eq!(result("nth_value", &[Date, Int4]), Some(Date));
        assert_eq!(result("cume_dist", &[]), Some(Float8));
        let functions = ["rank", "ntile", "lag", "sum"];
        assert_eq!(functions.map(is_window_function), [true, true, true, false]);
    }
}
