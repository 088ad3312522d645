//! Names of aggregate functions, and which of several an argument's type leads to.

use super::{Aggregate, Found, OrderedSet, Pairs, Spread};
use crate::expr::cast::{CastContext, castable};
use crate::types::SqlType;

/// Whether a function of the name works on groups.
pub fn is_aggregate(name: &str) -> bool {
    let plain = [
        "count",
        "sum",
        "avg",
        "min",
        "max",
        "bool_and",
        "bool_or",
        "every",
        "bit_and",
        "bit_or",
        "bit_xor",
        "string_agg",
        "array_agg",
        "range_agg",
        "range_intersect_agg",
        "json_agg",
        "jsonb_agg",
        "json_object_agg",
        "jsonb_object_agg",
    ];
    let other = spread(name).is_some() || pairs(name).is_some() || ordered_set(name).is_some();
    plain.contains(&name) || other
}

/// Whether PostgreSQL has an aggregate of the name that Braid does not have.
pub fn is_unsupported(name: &str) -> bool {
    name == "xmlagg"
}

/// The aggregate of a name that takes WITHIN GROUP.
pub fn ordered_set(name: &str) -> Option<OrderedSet> {
    Some(match name {
        "mode" => OrderedSet::Mode,
        "percentile_disc" => OrderedSet::Discrete,
        "percentile_cont" => OrderedSet::Continuous,
        _ => return None,
    })
}

fn spread(name: &str) -> Option<Spread> {
    let (sample, deviation) = match name {
        "variance" | "var_samp" => (true, false),
        "stddev" | "stddev_samp" => (true, true),
        "var_pop" => (false, false),
        "stddev_pop" => (false, true),
        _ => return None,
    };
    Some(Spread { sample, deviation })
}

fn pairs(name: &str) -> Option<Pairs> {
    Some(match name {
        "regr_count" => Pairs::Count,
        "regr_avgx" => Pairs::AvgX,
        "regr_avgy" => Pairs::AvgY,
        "regr_sxx" => Pairs::Sxx,
        "regr_syy" => Pairs::Syy,
        "regr_sxy" => Pairs::Sxy,
        "covar_pop" => Pairs::CovarPop,
        "covar_samp" => Pairs::CovarSamp,
        "corr" => Pairs::Corr,
        "regr_r2" => Pairs::R2,
        "regr_slope" => Pairs::Slope,
        "regr_intercept" => Pairs::Intercept,
        _ => return None,
    })
}

impl Aggregate {
    /// The name of the function; one of its names, if it has several.
    pub fn name(self) -> &'static str {
        match self {
            Aggregate::CountRows | Aggregate::Count => "count",
            Aggregate::Sum(_) => "sum",
            Aggregate::Avg(_) => "avg",
            Aggregate::Min(_) => "min",
            Aggregate::Max(_) => "max",
            Aggregate::BoolAnd => "bool_and",
            Aggregate::BoolOr => "bool_or",
            Aggregate::BitAnd => "bit_and",
            Aggregate::BitOr => "bit_or",
            Aggregate::BitXor => "bit_xor",
            Aggregate::StringAgg(_) => "string_agg",
            Aggregate::ArrayAgg(_) => "array_agg",
            Aggregate::JsonAgg { binary: false, .. } => "json_agg",
            Aggregate::JsonAgg { binary: true, .. } => "jsonb_agg",
            Aggregate::JsonObjectAgg { binary: false } => "json_object_agg",
            Aggregate::JsonObjectAgg { binary: true } => "jsonb_object_agg",
            Aggregate::Ranges {
                intersect: false, ..
            } => "range_agg",
            Aggregate::Ranges {
                intersect: true, ..
            } => "range_intersect_agg",
            Aggregate::Spread(spread, _) => match (spread.sample, spread.deviation) {
                (true, false) => "variance",
                (true, true) => "stddev",
                (false, false) => "var_pop",
                (false, true) => "stddev_pop",
            },
            Aggregate::Pairs(pairs) => pairs.name(),
            Aggregate::OrderedSet(set) => match set {
                OrderedSet::Mode => "mode",
                OrderedSet::Discrete | OrderedSet::DiscreteList(_) => "percentile_disc",
                OrderedSet::Continuous | OrderedSet::ContinuousList(_) => "percentile_cont",
            },
        }
    }
}

impl Pairs {
    fn name(self) -> &'static str {
        match self {
            Pairs::Count => "regr_count",
            Pairs::AvgX => "regr_avgx",
            Pairs::AvgY => "regr_avgy",
            Pairs::Sxx => "regr_sxx",
            Pairs::Syy => "regr_syy",
            Pairs::Sxy => "regr_sxy",
            Pairs::CovarPop => "covar_pop",
            Pairs::CovarSamp => "covar_samp",
            Pairs::Corr => "corr",
            Pairs::R2 => "regr_r2",
            Pairs::Slope => "regr_slope",
            Pairs::Intercept => "regr_intercept",
        }
    }
}

/// The aggregate function of a name for arguments of these types, `Unknown` being that of quoted
/// literals.
///
/// `None`: there is none, or several fit equally well ([`is_ambiguous`]).
pub fn find(name: &str, args: &[SqlType]) -> Option<Found> {
    use SqlType::{Bool, Bytea, Float4, Float8, Int2, Int4, Int8, Numeric, Text, Unknown};
    let found = |function, args: &[SqlType], result| {
        Some(Found {
            function,
            args: args.to_vec(),
            result,
        })
    };
    let averaged = |ty| match ty {
        Float4 | Float8 => Float8,
        SqlType::Interval => SqlType::Interval,
        _ => Numeric,
    };
    if let (Some(spread), [ty]) = (spread(name), args) {
        let ty = spread_type(*ty)?;
        return found(Aggregate::Spread(spread, ty), &[ty], averaged(ty));
    }
    if let (Some(pairs), [y, x]) = (pairs(name), args) {
        let fits = |ty| castable(ty, Float8) == Some(CastContext::Implicit);
        let result = if pairs == Pairs::Count { Int8 } else { Float8 };
        return match fits(*y) && fits(*x) {
            true => found(Aggregate::Pairs(pairs), &[Float8, Float8], result),
            false => None,
        };
    }
    match (name, args) {
        ("count", []) => found(Aggregate::CountRows, &[], Int8),
        ("count", [any]) => found(Aggregate::Count, &[*any], Int8),
        ("sum", [ty]) => {
            let ty = summed_type(*ty)?;
            let result = match ty {
                Int2 | Int4 => Int8,
                Int8 => Numeric,
                same => same,
            };
            found(Aggregate::Sum(ty), &[ty], result)
        }
        // There is no average of money.
        ("avg", [SqlType::Money]) => None,
        ("avg", [ty]) => summed_type(*ty).and_then(|t| found(Aggregate::Avg(t), &[t], averaged(t))),
        ("min", [ty]) => ordered_type(*ty).and_then(|t| found(Aggregate::Min(t), &[t], t)),
        ("max", [ty]) => ordered_type(*ty).and_then(|t| found(Aggregate::Max(t), &[t], t)),
        ("bool_and" | "every", [Bool | Unknown]) => found(Aggregate::BoolAnd, &[Bool], Bool),
        ("bool_or", [Bool | Unknown]) => found(Aggregate::BoolOr, &[Bool], Bool),
        ("bit_and", [ty]) => bits_type(*ty).and_then(|t| found(Aggregate::BitAnd, &[t], t)),
        ("bit_or", [ty]) => bits_type(*ty).and_then(|t| found(Aggregate::BitOr, &[t], t)),
        ("bit_xor", [ty]) => bits_type(*ty).and_then(|t| found(Aggregate::BitXor, &[t], t)),
        ("array_agg", [ty @ SqlType::Array(_)]) => found(Aggregate::ArrayAgg(*ty), &[*ty], *ty),
        ("array_agg", [ty]) => {
            let ty = if *ty == Unknown { Text } else { *ty };
            let array = ty.array()?;
            found(Aggregate::ArrayAgg(ty), &[ty], array)
        }
        (
            "range_agg" | "range_intersect_agg",
            [ty @ (SqlType::Range(of) | SqlType::Multirange(of))],
        ) => {
            let intersect = name == "range_intersect_agg";
            let result = if intersect {
                *ty
            } else {
                SqlType::Multirange(*of)
            };
            let function = Aggregate::Ranges {
                result,
                of: *of,
                intersect,
            };
            found(function, &[*ty], result)
        }
        ("json_agg" | "jsonb_agg", [ty]) => {
            let ty = if *ty == Unknown { Text } else { *ty };
            let binary = name == "jsonb_agg";
            let lines = matches!(ty, SqlType::Array(_) | SqlType::Composite(_));
            let result = if binary {
                SqlType::Jsonb
            } else {
                SqlType::Json
            };
            found(Aggregate::JsonAgg { binary, lines }, &[ty], result)
        }
        ("json_object_agg" | "jsonb_object_agg", [key, value]) => {
            let known = |ty| if ty == Unknown { Text } else { ty };
            let binary = name == "jsonb_object_agg";
            let result = if binary {
                SqlType::Jsonb
            } else {
                SqlType::Json
            };
            let args = [known(*key), known(*value)];
            found(Aggregate::JsonObjectAgg { binary }, &args, result)
        }
        ("string_agg", [value, delimiter]) => {
            let bytes = |ty| matches!(ty, Bytea | Unknown);
            let ty = match (*value, *delimiter) {
                (v, d) if v.is_string() && d.is_string() => Text,
                (v, d) if bytes(v) && bytes(d) => Bytea,
                _ => return None,
            };
            found(Aggregate::StringAgg(ty), &[ty, ty], ty)
        }
        _ => None,
    }
}

/// Whether a call has no function because several fit its quoted literal equally well: 42725, and
/// not 42883.
pub fn is_ambiguous(name: &str, args: &[SqlType]) -> bool {
    args == [SqlType::Unknown] && matches!(name, "sum" | "avg" | "bit_and" | "bit_or" | "bit_xor")
}

fn summed_type(ty: SqlType) -> Option<SqlType> {
    match ty {
        SqlType::Int2 | SqlType::Int4 | SqlType::Int8 => Some(ty),
        SqlType::Numeric | SqlType::Float4 | SqlType::Float8 | SqlType::Interval => Some(ty),
        SqlType::Money => Some(ty),
        // By its implicit conversion.
        SqlType::Time => Some(SqlType::Interval),
        _ => None,
    }
}

fn spread_type(ty: SqlType) -> Option<SqlType> {
    match ty {
        // All candidates are numbers, of which double precision is preferred.
        SqlType::Unknown => Some(SqlType::Float8),
        ty if ty.is_number() => summed_type(ty),
        _ => None,
    }
}

fn bits_type(ty: SqlType) -> Option<SqlType> {
    match ty {
        SqlType::Int2 | SqlType::Int4 | SqlType::Int8 => Some(ty),
        SqlType::Bit | SqlType::Varbit => Some(SqlType::Bit),
        _ => None,
    }
}

/// PostgreSQL 15 has no `min` and `max` of boolean, uuid and bytea.
pub fn ordered_type(ty: SqlType) -> Option<SqlType> {
    use SqlType::*;
    match ty {
        Int2 | Int4 | Int8 | Oid | Numeric | Float4 | Float8 => Some(ty),
        Date | Timestamp | TimestampTz | Time | Interval | Char | Tid | Enum(_) => Some(ty),
        Text | Varchar | Name | Unknown => Some(Text),
        Array(_) | TimeTz | Money | PgLsn => Some(ty),
        Inet | Cidr => Some(Inet),
        // By their implicit conversions.
        Reg(_) => Some(Oid),
        InternalChar => Some(Text),
        OidVector => Some(ty),
        Int2Vector | Xid | Expanded | Composite(_) => None,
        Domain(_) => ordered_type(ty.base()),
        Own(_) => ty.is_citext().then_some(ty),
        Bool | Uuid | Bytea | Void | Json | Jsonb | Refcursor => None,
        JsonPath | Bit | Varbit | MacAddr | MacAddr8 | Range(_) | Multirange(_) => None,
        Point | Rectangle => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SqlType::*;

    fn types(name: &str, args: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
        find(name, args).map(|f| (f.args, f.result))
    }

    #[test]
    fn a_function_is_found_by_its_name() {
        let one = [Int4, Bool, Text].map(|ty| vec![ty]);
        let two = [[Text, Text], [Float8, Float8]].map(|types| types.to_vec());
        let names = "count sum avg min max bool_and bool_or bit_and bit_or bit_xor string_agg \
                     array_agg json_agg jsonb_agg json_object_agg jsonb_object_agg variance stddev \
                     var_pop stddev_pop regr_count regr_avgx regr_avgy regr_sxx regr_syy regr_sxy \
                     covar_pop covar_samp corr regr_r2 regr_slope regr_intercept";
        for name in names.split_whitespace() {
            assert!(is_aggregate(name), "{name}");
            let mut found = one.iter().chain(&two).filter_map(|types| find(name, types));
            assert_eq!(found.next().unwrap().function.name(), name);
        }
        for name in ["mode", "percentile_disc", "percentile_cont"] {
            let set = ordered_set(name).unwrap();
            assert_eq!(Aggregate::OrderedSet(set).name(), name);
        }
    }

    /// What `pg_typeof` says in PostgreSQL 15.
    #[test]
    fn types_are_those_of_postgres() {
        let one = |name, arg| types(name, &[arg]).map(|(args, result)| (args[0], result));
        assert_eq!(one("sum", Int4), Some((Int4, Int8)));
        assert_eq!(one("sum", Int8), Some((Int8, Numeric)));
        assert_eq!(one("max", Oid), Some((Oid, Oid)));
        assert_eq!(one("sum", Float4), Some((Float4, Float4)));
        assert_eq!(one("avg", Float4), Some((Float4, Float8)));
        assert_eq!(one("min", Varchar), Some((Text, Text)));
        assert_eq!(one("max", Char), Some((Char, Char)));
        assert_eq!(one("max", Unknown), Some((Text, Text)));
        assert_eq!(one("stddev", Unknown), Some((Float8, Float8)));
        assert_eq!(one("stddev", Int8), Some((Int8, Numeric)));
        for none in [Bool, Uuid, Bytea] {
            assert_eq!(one("min", none), None);
        }
        // An oid becomes no integer without a cast.
        for name in ["sum", "avg", "stddev", "bit_or"] {
            assert_eq!(one(name, Oid), None);
        }
        assert_eq!(one("sum", Unknown), None);
        assert!(is_ambiguous("sum", &[Unknown]) && !is_ambiguous("sum", &[Text]));
        let text = Some((vec![Text, Text], Text));
        assert_eq!(types("string_agg", &[Name, Unknown]), text);
        let bytes = Some((vec![Bytea, Bytea], Bytea));
        assert_eq!(types("string_agg", &[Unknown, Bytea]), bytes);
        assert_eq!(types("string_agg", &[Int4, Text]), None);
        let pair = Some((vec![Float8, Float8], Int8));
        assert_eq!(types("regr_count", &[Int4, Numeric]), pair);
        assert_eq!(types("corr", &[Oid, Float8]), None);
    }
}
