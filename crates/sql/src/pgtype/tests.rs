//! Properties over all types: what is written is read back, and no bytes make a reader panic.

use proptest::prelude::*;

use super::*;
use crate::types::ranges::RangeOf;

/// Any value of a type, infinities and limits included.
fn value(ty: SqlType) -> BoxedStrategy<Datum> {
    let dates = prop_oneof![
        Just(calendar::DATE_INFINITY),
        Just(calendar::DATE_MINUS_INFINITY),
        calendar::DATE_MIN as i32..calendar::DATE_END as i32
    ];
    let instants = prop_oneof![
        Just(calendar::TIMESTAMP_INFINITY),
        Just(calendar::TIMESTAMP_MINUS_INFINITY),
        Just(calendar::TIMESTAMP_END - 1),
        calendar::TIMESTAMP_MIN..calendar::TIMESTAMP_END
    ];
    let numerics = ("-?[0-9]{1,30}", proptest::option::of("[0-9]{1,20}"));
    match ty {
        SqlType::Bool => any::<bool>().prop_map(Datum::Bool).boxed(),
        SqlType::Int2 => any::<i16>().prop_map(Datum::Int2).boxed(),
        SqlType::Int4 => any::<i32>().prop_map(Datum::Int4).boxed(),
        SqlType::Int8 => any::<i64>().prop_map(Datum::Int8).boxed(),
        SqlType::InternalChar => "[a-z]?".prop_map(Datum::Text).boxed(),
        SqlType::Int2Vector | SqlType::OidVector => proptest::collection::vec(0..9999_u16, 0..5)
            .prop_map(move |items| {
                let items: Vec<String> = items.iter().map(u16::to_string).collect();
                vectors::parse(ty, &items.join(" "), &IoSettings::default()).unwrap()
            })
            .boxed(),
        SqlType::Oid | SqlType::Reg(_) | SqlType::Xid => {
            any::<u32>().prop_map(|v| Datum::Int8(v.into())).boxed()
        }
        SqlType::Tid => (any::<u32>(), any::<u16>())
            .prop_map(|(block, slot)| Datum::Int8(i64::from(block) << 16 | i64::from(slot)))
            .boxed(),
        // Bit patterns rather than numbers: every exponent is as likely.
        SqlType::Float4 => any::<u32>()
            .prop_map(f32::from_bits)
            .prop_filter("NaN is not equal to itself", |v| !v.is_nan())
            .prop_map(Datum::Float4)
            .boxed(),
        SqlType::Float8 => any::<u64>()
            .prop_map(f64::from_bits)
            .prop_filter("NaN is not equal to itself", |v| !v.is_nan())
            .prop_map(Datum::Float8)
            .boxed(),
        SqlType::Numeric => numerics
            .prop_map(|(whole, fraction)| match fraction {
                Some(fraction) => format!("{whole}.{fraction}"),
                None => whole,
            })
            .prop_map(|text| Datum::Numeric(text.parse().unwrap()))
            .boxed(),
        SqlType::Bytea => any::<Vec<u8>>().prop_map(Datum::Bytea).boxed(),
        SqlType::Date => dates.prop_map(Datum::Date).boxed(),
        SqlType::Timestamp => instants.prop_map(Datum::Timestamp).boxed(),
        SqlType::TimestampTz => instants.prop_map(Datum::TimestampTz).boxed(),
        SqlType::Uuid => any::<[u8; 16]>().prop_map(Datum::Uuid).boxed(),
        SqlType::Time => (0..=calendar::MICROS_PER_DAY).prop_map(Datum::Int8).boxed(),
        SqlType::Interval => any::<[u8; 16]>()
            .prop_map(|b| Datum::Interval(Interval::from_bytes(b)))
            .boxed(),
        SqlType::Json | SqlType::Jsonb => documents(ty),
        SqlType::Range(of) => ranges(of)
            .prop_map(move |r| range::to_datum(of, r.as_ref()).unwrap())
            .boxed(),
        SqlType::Multirange(of) => proptest::collection::vec(ranges(of), 0..5)
            .prop_map(move |all| {
                let all = all.into_iter().flatten().collect();
                let set = crate::expr::ranges::normalized(of, all).unwrap();
                range::multirange(of, &set).unwrap()
            })
            .boxed(),
        SqlType::JsonPath => proptest::sample::select(vec![
            "$",
            "strict $.\"a\"[*]?(@ > 1.50)",
            "($.\"a b\" + -1)",
            "$?(exists (@.**{1 to last}.size()) && !(@ starts with \"\\n\"))",
        ])
        .prop_map(|path| Datum::Text(path.to_string()))
        .boxed(),
        SqlType::PgLsn => any::<i64>().prop_map(Datum::Int8).boxed(),
        SqlType::Point => (-1e9..1e9, -1e9..1e9)
            .prop_map(|(x, y)| Datum::Bytea(geometry::Point { x, y }.to_stored()))
            .boxed(),
        SqlType::Rectangle => (0.0..1e9, 0.0..1e9, -1e9..0.0, -1e9..0.0)
            .prop_map(|(x, y, a, b)| {
                let (high, low) = (geometry::Point { x, y }, geometry::Point { x: a, y: b });
                Datum::Bytea(geometry::Area::of(high, low).to_stored())
            })
            .boxed(),
        SqlType::Money => any::<i64>().prop_map(Datum::Int8).boxed(),
        SqlType::MacAddr => (0..1_i64 << 48).prop_map(Datum::Int8).boxed(),
        SqlType::MacAddr8 => any::<i64>().prop_map(Datum::Int8).boxed(),
        SqlType::TimeTz => (0..=calendar::MICROS_PER_DAY, -57_599..57_600)
            .prop_map(|(micros, east_s)| Datum::Int8(timetz::Zoned { micros, east_s }.to_stored()))
            .boxed(),
        SqlType::Bit | SqlType::Varbit => proptest::collection::vec(any::<bool>(), 0..80)
            .prop_map(|bits| Datum::Bytea(bits::Bits(bits).to_stored()))
            .boxed(),
        SqlType::Inet | SqlType::Cidr => (any::<bool>(), any::<u128>(), any::<u8>())
            .prop_map(move |(v6, address, bits)| {
                let inet = inet::Inet {
                    v6,
                    bits: 0,
                    address,
                };
                let inet = inet::Inet {
                    bits: bits % (inet.width() + 1),
                    address: address & inet.ones(),
                    ..inet
                };
                let network = ty == SqlType::Cidr;
                Datum::Bytea(if network { inet.network() } else { inet }.to_stored())
            })
            .boxed(),
        SqlType::Name => "[a-z]{0,63}".prop_map(Datum::Text).boxed(),
        _ => "[^\0]{0,40}".prop_map(Datum::Text).boxed(),
    }
}

/// Ranges whose bounds are any values of their type, unless there is no such range.
fn ranges(of: RangeOf) -> impl Strategy<Value = Option<range::Span>> {
    let bound = move || {
        (
            proptest::option::weighted(0.8, value(of.subtype())),
            any::<bool>(),
        )
    };
    (bound(), bound()).prop_map(move |((low, low_in), (high, high_in))| {
        let end = |value, inclusive, lower| range::Bound {
            value,
            inclusive,
            lower,
        };
        let made = |low, high| range::make(of, end(low, low_in, true), end(high, high_in, false));
        made(low.clone(), high.clone())
            .or_else(|_| made(high, low))
            .unwrap_or(None)
    })
}

/// Documents as text that is checked, or as they are stored.
fn documents(ty: SqlType) -> BoxedStrategy<Datum> {
    let leaf = prop_oneof![
        "null|true|-?[1-9][0-9]{0,30}([.][0-9]{1,5})?(e[1-9])?|0",
        "\"[^\0-\x1f\"\\\\]{0,5}\""
    ];
    let nested = leaf.prop_recursive(4, 24, 4, |inner| {
        let list = proptest::collection::vec(inner.clone(), 0..4);
        let pairs = proptest::collection::vec(("[a-cä]{0,2}", inner), 0..4);
        prop_oneof![
            list.prop_map(|items| format!("[{}]", items.join(" ,"))),
            pairs.prop_map(|pairs| {
                let pairs = pairs.iter().map(|(k, v)| format!("\"{k}\" :{v}"));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
            }),
        ]
    });
    let read = move |text: String| text_in(ty, &text, &IoSettings::default()).unwrap();
    nested.prop_map(read).boxed()
}

fn types() -> impl Strategy<Value = SqlType> {
    let stored: Vec<SqlType> = SqlType::ALL
        .into_iter()
        .filter(|ty| *ty != SqlType::Void)
        .collect();
    proptest::sample::select(stored)
}

fn settings() -> impl Strategy<Value = IoSettings> {
    let zones = [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Asia/Kolkata",
        "-3.5",
    ];
    (proptest::sample::select(zones.to_vec()), any::<bool>()).prop_map(|(zone, bytea_escape)| {
        IoSettings {
            time_zone: TimeZone::parse(zone).unwrap(),
            bytea_escape,
            extra_float_digits: 1,
            ..IoSettings::default()
        }
    })
}

proptest! {
    #[test]
    fn text_is_read_as_written((ty, datum) in types().prop_flat_map(|ty| (Just(ty), value(ty))), io in settings()) {
        let mut out = Vec::new();
        text_out(ty, datum.borrow(), &io, &mut out);
        let text = utf8(&out).unwrap();
        prop_assert_eq!(text_in(ty, text, &io).unwrap(), datum, "{}", text);
    }

    #[test]
    fn binary_is_read_as_written((ty, datum) in types().prop_flat_map(|ty| (Just(ty), value(ty)))) {
        let mut out = Vec::new();
        binary_out(ty, datum.borrow(), Encoding::UTF8, &mut out).unwrap();
        prop_assert_eq!(binary_in(ty, &out, Encoding::UTF8).unwrap(), datum);
    }

    #[test]
    fn no_text_and_no_bytes_panic(ty in types(), text in "\\PC{0,40}", dateish in "[-+0-9a-zT:./ ]{0,40}", bytes in any::<Vec<u8>>()) {
        let io = IoSettings::default();
        for text in [&text, &dateish] {
            if let Err(e) = text_in(ty, text, &io) {
                prop_assert_eq!(e.sqlstate().len(), 5);
            }
        }
        if let Ok(datum) = binary_in(ty, &bytes, Encoding::UTF8) {
            let mut out = Vec::new();
            text_out(ty, datum.borrow(), &io, &mut out);
        }
        // Either it is text, or it is refused with the one state for that.
        if let Err(e) = utf8(&bytes) {
            prop_assert_eq!(e.sqlstate(), "22021");
        }
    }
}

#[test]
fn modifiers_fit_strings_and_numbers() {
    let text = |t: &str| Datum::Text(t.to_string());
    let fit = |ty, n: i32, t: &str, explicit| apply_typmod(ty, n + 4, text(t), explicit);
    assert_eq!(fit(SqlType::Varchar, 3, "äöü", false).unwrap(), text("äöü"));
    assert_eq!(
        fit(SqlType::Varchar, 3, "abc  ", false).unwrap(),
        text("abc")
    );
    assert_eq!(
        fit(SqlType::Varchar, 3, "abcd", false)
            .unwrap_err()
            .sqlstate(),
        "22001"
    );
    assert_eq!(fit(SqlType::Varchar, 3, "abcd", true).unwrap(), text("abc"));
    assert_eq!(fit(SqlType::Char, 4, "äb", false).unwrap(), text("äb  "));
    let money = (5 << 16 | 2) + 4;
    let number = |t: &str| Datum::Numeric(t.parse().unwrap());
    assert_eq!(
        apply_typmod(SqlType::Numeric, money, number("1.005"), false).unwrap(),
        number("1.01")
    );
    assert_eq!(
        apply_typmod(SqlType::Numeric, money, number("999.995"), false)
            .unwrap_err()
            .sqlstate(),
        "22003"
    );
    assert_eq!(
        apply_typmod(SqlType::Numeric, money, number("NaN"), false).unwrap(),
        number("NaN")
    );
    assert_eq!(
        apply_typmod(SqlType::Numeric, money, number("-Infinity"), false)
            .unwrap_err()
            .sqlstate(),
        "22003"
    );
}
