//! Keys order as values do, whatever the type, direction and place of NULLs, and keys read back.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;
use crate::composite::{Composite, CompositeRef, FieldKind};

const ORDERS: [Order; 4] = [
    Order::ASC,
    Order::DESC,
    Order {
        descending: true,
        nulls_first: false,
    },
    Order {
        descending: false,
        nulls_first: true,
    },
];

/// Order of two values of one type as SQL has it; NULL is above everything.
fn compare(ty: ColType, a: &Datum, b: &Datum) -> Ordering {
    let float = |a: f64, b: f64| match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(&b).unwrap(),
        (a, b) => a.cmp(&b),
    };
    match (a, b) {
        (Datum::Null, Datum::Null) => Ordering::Equal,
        (Datum::Bool(a), Datum::Bool(b)) => a.cmp(b),
        (Datum::Int2(a), Datum::Int2(b)) => a.cmp(b),
        (Datum::Int4(a), Datum::Int4(b)) | (Datum::Date(a), Datum::Date(b)) => a.cmp(b),
        (Datum::Int8(a), Datum::Int8(b)) => a.cmp(b),
        (Datum::Timestamp(a), Datum::Timestamp(b))
        | (Datum::TimestampTz(a), Datum::TimestampTz(b)) => a.cmp(b),
        (Datum::Float4(a), Datum::Float4(b)) => float(*a as f64, *b as f64),
        (Datum::Float8(a), Datum::Float8(b)) => float(*a, *b),
        (Datum::Numeric(a), Datum::Numeric(b)) => a.cmp(b),
        (Datum::Text(a), Datum::Text(b)) if ty == ColType::Char => {
            a.trim_end_matches(' ').cmp(b.trim_end_matches(' '))
        }
        (Datum::Text(a), Datum::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Datum::Bytea(a), Datum::Bytea(b)) => a.cmp(b),
        (Datum::Uuid(a), Datum::Uuid(b)) => a.cmp(b),
        (Datum::Interval(a), Datum::Interval(b)) => a.cmp(b),
        (Datum::Array(a), Datum::Array(b)) => {
            let order = elements(a, b);
            assert_eq!(order, a.borrow().compare(b.borrow()), "{a:?} {b:?}");
            order
        }
        (Datum::Composite(a), Datum::Composite(b)) => {
            let order = fields(a.borrow(), b.borrow());
            assert_eq!(order, a.borrow().compare(b.borrow()), "{a:?} {b:?}");
            order
        }
        (Datum::Folded(a), Datum::Folded(b)) => a.to_lowercase().cmp(&b.to_lowercase()),
        (Datum::Json(a), Datum::Json(b)) => documents(a.borrow(), b.borrow(), true),
        _ => panic!("{a:?} and {b:?} are of different types"),
    }
}

/// As PostgreSQL's `record_cmp` has them, and by kinds where it refuses to compare.
fn fields(a: CompositeRef<'_>, b: CompositeRef<'_>) -> Ordering {
    let both = a.kinds().zip(a.values()).zip(b.kinds().zip(b.values()));
    for ((ka, va), (kb, vb)) in both {
        let order = (ka.ty as u8).cmp(&(kb.ty as u8)).then_with(|| {
            let nulls = va.is_null().cmp(&vb.is_null());
            match va.is_null() || vb.is_null() {
                true => nulls,
                false => compare(ka.ty, &va.to_datum(), &vb.to_datum()),
            }
        });
        if order.is_ne() {
            return order;
        }
    }
    a.count().cmp(&b.count())
}

/// As PostgreSQL's `compareJsonbContainers` has them.
fn documents(a: JsonRef<'_>, b: JsonRef<'_>, whole: bool) -> Ordering {
    let rank = |v: View<'_>| match v {
        View::Array(items) if whole && items.is_empty() => 0,
        View::Null => 1,
        View::String(_) => 2,
        View::Number(_) => 3,
        View::Bool(_) => 4,
        View::Array(_) => 5,
        View::Object(_) => 6,
    };
    match (a.view(), b.view()) {
        (View::String(a), View::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        (View::Number(a), View::Number(b)) => a.cmp(&b),
        (View::Bool(a), View::Bool(b)) => a.cmp(&b),
        (View::Array(a), View::Array(b)) => a.len().cmp(&b.len()).then_with(|| {
            let mut orders = a.iter().zip(b.iter()).map(|(a, b)| documents(a, b, false));
            orders.find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
        }),
        (View::Object(a), View::Object(b)) => a.len().cmp(&b.len()).then_with(|| {
            let pairs = a.iter().zip(b.iter());
            let mut orders = pairs.map(|((k, v), (l, w))| {
                k.as_bytes()
                    .cmp(l.as_bytes())
                    .then_with(|| documents(v, w, false))
            });
            orders.find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
        }),
        (a, b) => rank(a).cmp(&rank(b)),
    }
}

/// Arrays of integers, as PostgreSQL's `array_cmp` has them.
fn elements(a: &Array, b: &Array) -> Ordering {
    let (a, b) = (a.borrow(), b.borrow());
    let values = |a: ArrayRef<'_>| a.values().map(|v| v.to_datum()).collect::<Vec<_>>();
    for (x, y) in values(a).iter().zip(&values(b)) {
        match compare_in(ColType::Int4, Order::ASC, x, y) {
            Ordering::Equal => {}
            order => return order,
        }
    }
    let shape = |a: ArrayRef<'_>| {
        let all: Vec<Dimension> = a.dimensions().collect();
        let lengths: Vec<i32> = all.iter().map(|d| d.length).collect();
        let lowers: Vec<i32> = all.iter().map(|d| d.lower).collect();
        (a.count(), all.len(), lengths, lowers)
    };
    shape(a).cmp(&shape(b))
}

fn array() -> impl Strategy<Value = Array> {
    let element = prop_oneof![1 => Just(Datum::Null), 4 => (-2..3i32).prop_map(Datum::Int4)];
    let values = proptest::collection::vec(element, 0..5);
    (values, -1..3i32, any::<bool>()).prop_map(|(values, lower, flat)| {
        let length = values.len() as i32;
        let one = Dimension {
            length: 1,
            lower: 1,
        };
        let all = Dimension { length, lower };
        match flat {
            true => Array::new(ColType::Int4, &[all], &values),
            false => Array::new(ColType::Int4, &[one, all], &values),
        }
    })
}

fn compare_in(ty: ColType, order: Order, a: &Datum, b: &Datum) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (false, false) if order.descending => compare(ty, b, a),
        (false, false) => compare(ty, a, b),
        (a, b) if order.nulls_first => b.cmp(&a),
        (a, b) => a.cmp(&b),
    }
}

fn numeric() -> impl Strategy<Value = Numeric> {
    let digits = proptest::collection::vec(0u8..10, 1..30);
    let finite = (any::<bool>(), digits, -25i64..40).prop_map(|(negative, digits, scale)| {
        let int = BigInt::from_biguint(
            if negative { Sign::Minus } else { Sign::Plus },
            BigUint::from_radix_be(&digits, 10).unwrap(),
        );
        Numeric::from_bigdecimal(BigDecimal::new(int, scale))
    });
    prop_oneof![
        20 => finite,
        6 => (-2000i64..2000).prop_map(|v| Numeric::from_bigdecimal(BigDecimal::new(v.into(), 2))),
        1 => Just(Numeric::nan()),
        1 => Just(Numeric::infinity()),
        1 => Just(Numeric::neg_infinity()),
    ]
}

/// Any interval, and many whose parts differ and whose spans do not.
fn interval() -> impl Strategy<Value = Interval> {
    let near = (-2i32..3, -31i32..32, -2i64..3).prop_map(|(months, days, hours)| Interval {
        months,
        days,
        micros: hours * 12 * 3_600_000_000,
    });
    prop_oneof![any::<[u8; 16]>().prop_map(Interval::from_bytes), near]
}

fn datum(ty: ColType) -> BoxedStrategy<Datum> {
    let few_bytes = proptest::collection::vec(
        prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()],
        0..6,
    );
    let some = match ty {
        ColType::Bool => any::<bool>().prop_map(Datum::Bool).boxed(),
        ColType::Int2 => any::<i16>().prop_map(Datum::Int2).boxed(),
        ColType::Int4 => any::<i32>().prop_map(Datum::Int4).boxed(),
        ColType::Int8 => prop_oneof![any::<i64>(), -3..3i64]
            .prop_map(Datum::Int8)
            .boxed(),
        ColType::Float4 => any::<u32>()
            .prop_map(|b| Datum::Float4(f32::from_bits(b)))
            .boxed(),
        ColType::Float8 => prop_oneof![
            any::<u64>().prop_map(f64::from_bits),
            Just(0.0),
            Just(-0.0),
            Just(f64::NAN),
            -2.0..2.0f64
        ]
        .prop_map(Datum::Float8)
        .boxed(),
        ColType::Numeric => numeric().prop_map(Datum::Numeric).boxed(),
        ColType::Text | ColType::Varchar => "[a-c\u{e4}]{0,4}".prop_map(Datum::Text).boxed(),
        ColType::Char => "[ab !]{0,3} {0,2}".prop_map(Datum::Text).boxed(),
        ColType::Bytea => few_bytes.prop_map(Datum::Bytea).boxed(),
        ColType::Date => any::<i32>().prop_map(Datum::Date).boxed(),
        ColType::Timestamp => any::<i64>().prop_map(Datum::Timestamp).boxed(),
        ColType::TimestampTz => any::<i64>().prop_map(Datum::TimestampTz).boxed(),
        ColType::Uuid => any::<[u8; 16]>().prop_map(Datum::Uuid).boxed(),
        ColType::Interval => interval().prop_map(Datum::Interval).boxed(),
        ColType::Array => array().prop_map(Datum::Array).boxed(),
        ColType::Json => crate::json::tests::node()
            .prop_map(|n| Datum::Json(Json::new(&n)))
            .boxed(),
        ColType::Composite => composite().prop_map(Datum::Composite).boxed(),
        ColType::Folded => "[aAbBäÄ]{0,4}".prop_map(Datum::Folded).boxed(),
    };
    prop_oneof![1 => Just(Datum::Null), 9 => some].boxed()
}

fn composite() -> impl Strategy<Value = Composite> {
    let field = (1u8..=18).prop_flat_map(|ty| {
        let ty = ColType::from_u8(ty).unwrap();
        datum(ty).prop_map(move |v| (FieldKind { ty, number: 7 }, v))
    });
    proptest::collection::vec(field, 0..4).prop_map(|fields| {
        let (kinds, values): (Vec<FieldKind>, Vec<Datum>) = fields.into_iter().unzip();
        let values: Vec<DatumRef<'_>> = values.iter().map(Datum::borrow).collect();
        Composite::new(&kinds, &values).unwrap()
    })
}

fn key(columns: &[(ColType, Order)], values: &[Datum]) -> Vec<u8> {
    let mut out = Vec::new();
    columns
        .iter()
        .zip(values)
        .for_each(|(&(ty, order), v)| push_column(&mut out, ty, order, v.borrow()));
    out
}

/// Columns, and two rows of them whose first columns are often equal.
fn rows() -> impl Strategy<Value = (Vec<(ColType, Order)>, Vec<Datum>, Vec<Datum>)> {
    let column = (1u8..=19, 0usize..4).prop_map(|(t, o)| (ColType::from_u8(t).unwrap(), ORDERS[o]));
    proptest::collection::vec(column, 1..4).prop_flat_map(|columns| {
        let row = || columns.iter().map(|c| datum(c.0)).collect::<Vec<_>>();
        (Just(columns.clone()), row(), row(), 0..columns.len()).prop_map(
            |(columns, a, mut b, same)| {
                b[..same].clone_from_slice(&a[..same]);
                (columns, a, b)
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]

    #[test]
    fn keys_compare_as_rows_do((columns, a, b) in rows()) {
        let expected = columns.iter().zip(a.iter().zip(&b))
            .map(|(&(ty, order), (a, b))| compare_in(ty, order, a, b))
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal);
        let (ka, kb) = (key(&columns, &a), key(&columns, &b));
        prop_assert_eq!(ka.cmp(&kb), expected);
        prop_assert!(expected.is_eq() || !ka.starts_with(&kb), "a key begins with another");
    }

    #[test]
    fn keys_read_back((columns, a, _) in rows()) {
        let k = key(&columns, &a);
        let back = decode(&k, &columns).unwrap();
        for (i, (ty, _)) in columns.iter().enumerate() {
            prop_assert!(compare_in(*ty, Order::ASC, &a[i], &back[i]).is_eq());
            prop_assert!(!is_lossless(*ty) || a[i] == back[i]);
        }
    }

    #[test]
    fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40), t in 1u8..=19, o in 0usize..4) {
        let _ = decode(&bytes, &[(ColType::from_u8(t).unwrap(), ORDERS[o])]);
    }

    #[test]
    fn the_end_of_a_prefix_is_above_all_its_keys(prefix in proptest::collection::vec(prop_oneof![any::<u8>(), Just(255)], 0..5), more: Vec<u8>) {
        let longer = [&prefix[..], &more].concat();
        match after_prefix(&prefix) {
            Some(end) => prop_assert!(longer < end && end > prefix),
            None => prop_assert!(prefix.iter().all(|&b| b == 0xff)),
        }
    }
}

#[test]
fn the_format_is_pinned() {
    let asc = |ty, v: Datum| key(&[(ty, Order::ASC)], &[v]);
    assert_eq!(
        asc(ColType::Int8, Datum::Int8(1)),
        [1, 0x80, 0, 0, 0, 0, 0, 0, 1]
    );
    assert_eq!(
        asc(ColType::Text, Datum::Text("a\0".into())),
        [1, b'a', 0, 0xff, 0, 0]
    );
    assert_eq!(
        asc(ColType::Numeric, Datum::Numeric(Numeric::from(1205))),
        [1, 0x30, 0x80, 0, 0, 2, 13, 6, 0]
    );
    assert_eq!(asc(ColType::Bool, Datum::Null), [2]);
    assert_eq!(
        key(&[(ColType::Int2, Order::DESC)], &[Datum::Int2(-1)]),
        [1, 0x80, 0]
    );
}
