//! States of aggregates, with the answers of PostgreSQL 15.

use super::*;
use crate::pgtype::{self, IoSettings};
use crate::query::aggregate::find;

fn value(ty: SqlType, text: &str) -> Datum {
    match text {
        "null" => Datum::Null,
        text => pgtype::text_in(ty, text, &IoSettings::default()).unwrap(),
    }
}

fn shown(value: Datum) -> String {
    match value {
        Datum::Float8(f) => format!("{f}"),
        Datum::Float4(f) => format!("{f}"),
        Datum::Numeric(n) => n.to_string(),
        Datum::Int8(i) => i.to_string(),
        Datum::Text(t) => t,
        other => format!("{other:?}"),
    }
}

fn state(name: &str, types: &[SqlType]) -> State {
    State::new(&find(name, types).unwrap().function)
}

fn computed(name: &str, ty: SqlType, values: &[&str]) -> Result<String> {
    let mut state = state(name, &[ty]);
    for text in values {
        state.add(&[value(ty, text).borrow()])?;
    }
    // As texts, for NaN equals nothing.
    let result = shown(state.result()?);
    assert_eq!(shown(state.into_result()?), result);
    Ok(result)
}

fn check(ty: SqlType, values: &[&str], results: &[(&str, &str)]) {
    for (name, expected) in results {
        let result = computed(name, ty, values).unwrap();
        // Of two shortest ways to write a float, PostgreSQL may take the other.
        let same = match (result.parse::<f64>(), expected.parse::<f64>()) {
            (Ok(a), Ok(b)) if ty == SqlType::Float8 => a == b || a.is_nan() && b.is_nan(),
            _ => result == *expected,
        };
        assert!(same, "{name} of {values:?}: {result}, not {expected}");
    }
}

/// The answers are those of PostgreSQL 15.
#[test]
fn exact_statistics() {
    use SqlType::{Int4, Int8, Numeric};
    let results = [
        ("var_pop", "1874999900000002.5000"),
        ("var_samp", "2499999866666670.0000"),
        ("stddev_pop", "43301269.0345"),
        ("stddev", "49999998.6667"),
    ];
    check(Numeric, &["100000003", "4", "6", "7"], &results);
    let results = [
        ("var_pop", "1.5555555555555556"),
        ("stddev", "1.5275252316519467"),
        ("avg", "2.3333333333333333"),
        ("sum", "7"),
    ];
    check(Int4, &["1", "2", "null", "4"], &results);
    let most = i64::MAX.to_string();
    let results = [
        ("variance", "28356863910078205276316721236840983212"),
        ("stddev", "5325116328314171699"),
        ("avg", "6148914691236517205"),
        ("sum", "18446744073709551615"),
    ];
    check(Int8, &[&most, &most, "1"], &results);
    let results = [
        ("variance", "1.3137503333333333"),
        ("stddev", "1.1461894840441232"),
        ("avg", "1.24966666666666666667"),
        ("sum", "3.749"),
    ];
    check(Numeric, &["1.5", "2.25", "-0.001"], &results);
    let results = [
        (
            "variance",
            "7620789376619418375247675781098155788984148760460829142103.449340815875095261",
        ),
        ("stddev", "87297132694146480627842041895.941487737752365050"),
    ];
    let long = "123456789012345678901234567890.123456789";
    check(Numeric, &[long, "1.5"], &results);
    let results = [
        ("stddev", "0.0001040832999733066367639548"),
        ("variance", "0.0000000108333333333333333333"),
    ];
    check(Numeric, &["0.0001", "0.0003", "0.00025"], &results);
    check(
        Numeric,
        &["5.00"],
        &[("var_pop", "0"), ("stddev_pop", "0"), ("stddev", "Null")],
    );
    let results = [("variance", "NaN"), ("avg", "NaN"), ("sum", "NaN")];
    check(Numeric, &["inf", "-inf"], &results);
    check(
        Numeric,
        &["inf", "1"],
        &[("avg", "Infinity"), ("sum", "Infinity")],
    );
    check(
        Numeric,
        &["null"],
        &[("avg", "Null"), ("sum", "Null"), ("count", "0")],
    );
    check(
        Numeric,
        &["1.0", "1.00", "1.000"],
        &[("min", "1.000"), ("max", "1.000")],
    );
}

#[test]
fn floats() {
    use SqlType::{Float4, Float8};
    let results = [
        ("var_pop", "1874999900000002.2"),
        ("stddev", "49999998.66666668"),
        ("avg", "25000005"),
    ];
    check(Float8, &["100000003", "4", "6", "7"], &results);
    let results = [("var_pop", "NaN"), ("avg", "inf"), ("sum", "inf")];
    check(Float8, &["inf", "4"], &results);
    check(Float8, &["0", "-0"], &[("min", "-0"), ("max", "-0")]);
    let results = [("sum", "1"), ("avg", "0.3333333308498065")];
    check(Float4, &["0.1", "0.2", "0.7"], &results);
    for (name, ty, values) in [
        ("sum", Float8, ["1.5e308", "1.5e308"]),
        ("avg", Float8, ["1e200", "-1e200"]),
        ("sum", Float4, ["3e38", "3e38"]),
    ] {
        let e = computed(name, ty, &values).unwrap_err();
        assert_eq!(
            e.to_string(),
            "value out of range: overflow (22003)",
            "{name}"
        );
    }
}

#[test]
fn pairs() {
    let rows = [("1", "2"), ("2.5", "3"), ("7", "11"), ("null", "1")];
    for (name, expected) in [
        ("corr", "0.9900718965708232"),
        ("covar_pop", "10.166666666666666"),
        ("covar_samp", "15.25"),
        ("regr_slope", "0.6267123287671234"),
        ("regr_intercept", "0.15753424657534212"),
        ("regr_r2", "0.9802423603793466"),
        ("regr_sxx", "48.666666666666664"),
        ("regr_syy", "19.5"),
        ("regr_sxy", "30.5"),
        ("regr_avgx", "5.333333333333333"),
        ("regr_avgy", "3.5"),
        ("regr_count", "3"),
    ] {
        let mut state = state(name, &[SqlType::Float8, SqlType::Float8]);
        for (y, x) in rows {
            let (y, x) = (value(SqlType::Float8, y), value(SqlType::Float8, x));
            state.add(&[y.borrow(), x.borrow()]).unwrap();
        }
        assert_eq!(shown(state.result().unwrap()), expected, "{name}");
    }
}

#[test]
fn bits_truth_and_strings() {
    let bits = [
        ("bit_and", "Int2(12)"),
        ("bit_or", "Int2(-1)"),
        ("bit_xor", "Int2(-13)"),
    ];
    check(SqlType::Int2, &["-1", "12", "null"], &bits);
    let truth = [
        ("bool_and", "Bool(false)"),
        ("every", "Bool(false)"),
        ("bool_or", "Bool(true)"),
    ];
    check(SqlType::Bool, &["t", "null", "f"], &truth);
    check(
        SqlType::Bool,
        &["null"],
        &[("bool_and", "Null"), ("bool_or", "Null")],
    );
    // The first of strings that differ by spaces.
    check(SqlType::Char, &["a ", "a"], &[("max", "a "), ("min", "a ")]);
    let mut state = state("string_agg", &[SqlType::Text, SqlType::Text]);
    for (v, d) in [("null", "+"), ("b", "+"), ("a", "-"), ("c", "null")] {
        let (v, d) = (value(SqlType::Text, v), value(SqlType::Text, d));
        state.add(&[v.borrow(), d.borrow()]).unwrap();
    }
    assert_eq!(shown(state.result().unwrap()), "b-ac");
}

/// Taking a value back leaves what the others alone would give, digits included, or says that it
/// cannot.
#[test]
fn values_taken_back() {
    let long = "170000000000000000000000000000000000001";
    let finite = ["1.50", "2", "-3.25", long, "-0.01"];
    let special = ["1.50", "NaN", "inf", "-2.25", "-inf"];
    for (name, numbers) in ["sum", "avg", "variance", "count"]
        .into_iter()
        .flat_map(|name| [(name, finite), (name, special)])
    {
        for gone in 0..numbers.len() {
            let mut state = state(name, &[SqlType::Numeric]);
            for n in numbers {
                state.add(&[value(SqlType::Numeric, n).borrow()]).unwrap();
            }
            let back = value(SqlType::Numeric, numbers[gone]);
            assert!(state.remove(&[back.borrow()]).unwrap(), "{name}");
            let mut others = numbers.to_vec();
            others.remove(gone);
            let alone = computed(name, SqlType::Numeric, &others).unwrap();
            let left = shown(state.result().unwrap());
            assert_eq!(left, alone, "{name} without {}", numbers[gone]);
        }
    }
    let mut sum = state("sum", &[SqlType::Numeric]);
    for n in ["1", "2.50"] {
        sum.add(&[value(SqlType::Numeric, n).borrow()]).unwrap();
    }
    let last_of_scale = value(SqlType::Numeric, "2.50");
    assert!(!sum.remove(&[last_of_scale.borrow()]).unwrap());
    assert_eq!(shown(sum.result().unwrap()), "3.50");
    assert!(
        sum.remove(&[value(SqlType::Numeric, "1").borrow()])
            .unwrap()
    );
    assert!(sum.remove(&[last_of_scale.borrow()]).unwrap());
    assert!(sum.result().unwrap().is_null());
}
