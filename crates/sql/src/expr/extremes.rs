//! Every operation on the values at the ends of its types: an answer or an error, whatever they are, and an answer that its type can hold. A panic in a session
//! ends the instance, and in a build without checks an overflow would be an answer.

use block::value::{Datum, DatumRef};

use super::cast::castable;
use super::func::{Calls, Func, SessionFunc, overloads};
use super::moments;
use super::{ArithOp, CmpOp, Env, Expr, Val};
use crate::bind::{Binder, ParamTypes, Scope, Typed};
use crate::error::Result;
use crate::expr::cast::CastContext;
use crate::pgtype::{self, IoSettings, calendar, zone::TimeZone};
use crate::types::SqlType;
use crate::types::ranges::RangeOf;

/// Names of pure functions, all that [`overloads`] knows.
const FUNCTIONS: &[&str] = &[
    "lower",
    "upper",
    "md5",
    "encode",
    "decode",
    "initcap",
    "length",
    "char_length",
    "octet_length",
    "substr",
    "btrim",
    "ltrim",
    "rtrim",
    "left",
    "right",
    "repeat",
    "replace",
    "reverse",
    "strpos",
    "split_part",
    "lpad",
    "rpad",
    "ascii",
    "chr",
    "starts_with",
    "abs",
    "sign",
    "round",
    "trunc",
    "ceil",
    "floor",
    "sqrt",
    "exp",
    "ln",
    "log",
    "sin",
    "cos",
    "tan",
    "cot",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "degrees",
    "radians",
    "pi",
    "mod",
    "power",
    "date_part",
    "extract",
    "date_trunc",
    "timezone",
];

/// First arguments of the functions of times.
const FIELDS: &[&str] = &[
    "microseconds",
    "milliseconds",
    "second",
    "minute",
    "hour",
    "day",
    "month",
    "quarter",
    "year",
    "decade",
    "century",
    "millennium",
    "dow",
    "isodow",
    "doy",
    "week",
    "isoyear",
    "epoch",
    "julian",
    "timezone",
    "timezone_hour",
    "timezone_minute",
    "nosuch",
];

const OPERATORS: [ArithOp; 11] = [
    ArithOp::Add,
    ArithOp::Sub,
    ArithOp::Mul,
    ArithOp::Div,
    ArithOp::Mod,
    ArithOp::Pow,
    ArithOp::BitAnd,
    ArithOp::BitOr,
    ArithOp::BitXor,
    ArithOp::ShiftLeft,
    ArithOp::ShiftRight,
];

struct Session(IoSettings);

impl Calls for Session {
    fn call(&mut self, func: SessionFunc, _: &[Val<'_>]) -> Result<Val<'static>> {
        panic!("{func:?} is not pure")
    }
    fn io(&self) -> &IoSettings {
        &self.0
    }
}

fn texts(ty: SqlType) -> &'static [&'static str] {
    match ty {
        SqlType::Bool => &["true", "false"],
        SqlType::Int2 => &["-32768", "-1", "0", "1", "32767"],
        SqlType::Int4 => &["-2147483648", "-1", "0", "1", "3", "2147483647"],
        SqlType::Int8 => &[
            "-9223372036854775808",
            "-1",
            "0",
            "1",
            "9223372036854775807",
        ],
        SqlType::Oid => &["0", "4294967295"],
        SqlType::Float4 => &[
            "NaN",
            "-Infinity",
            "-3.4028235e38",
            "-0",
            "1e-45",
            "0.5",
            "3.4028235e38",
            "Infinity",
        ],
        SqlType::Float8 => &[
            "NaN",
            "-Infinity",
            "-1.7976931348623157e308",
            "-0",
            "5e-324",
            "0.5",
            "9.3e18",
            "1.7976931348623157e308",
            "Infinity",
        ],
        SqlType::Numeric => &[
            "NaN",
            "-Infinity",
            "-1e300",
            "-1.5",
            "0.000",
            "1e-300",
            "2.50",
            "9223372036854775807.5",
            "1e300",
            "Infinity",
        ],
        SqlType::Text
        | SqlType::Varchar
        | SqlType::Char
        | SqlType::Name
        | SqlType::Refcursor
        | SqlType::Unknown => &[
            "",
            " ",
            "äöü€𝄞ß",
            "abc  ",
            "%",
            "\\",
            "hex",
            "infinity",
            "5874897-12-31",
            "Pacific/Kiritimati",
        ],
        SqlType::Bytea => &["\\x", "\\x00ff80"],
        SqlType::Date => &[
            "-infinity",
            "4714-11-24 BC",
            "0001-01-01 BC",
            "2000-02-29",
            "294276-12-31",
            "294277-01-01",
            "5874897-12-31",
            "infinity",
        ],
        SqlType::Timestamp | SqlType::TimestampTz => &[
            "-infinity",
            "4714-11-25 00:00:00 BC",
            "1999-12-31 23:59:59.999999",
            "2000-02-29 12:00",
            "294276-12-30 23:59:59.999999",
            "infinity",
        ],
        SqlType::Time => &["00:00", "12:34:56.789", "24:00"],
        SqlType::Interval => &[
            "0",
            "-178956970 years -8 mons",
            "2147483647 days",
            "-2562047788:00:54.775807",
            "1 mon -30 days",
        ],
        SqlType::Uuid => &["00000000-0000-0000-0000-000000000000"],
        SqlType::Void | SqlType::Expanded => &[],
        SqlType::Reg(_) | SqlType::Xid => &["0", "4294967295"],
        SqlType::Tid => &["(0,0)", "(4294967295,65535)"],
        SqlType::InternalChar => &["", "a"],
        SqlType::Int2Vector | SqlType::OidVector => &["", "1 2"],
        SqlType::Json => &["null", " { \"a\" : [1.50, \"\\u00e4\"] } "],
        SqlType::Jsonb => &[
            "null",
            "[]",
            "{\"a\": [1.50, 1e20, null, true, {\"\": \"x\"}]}",
        ],
        SqlType::Bit | SqlType::Varbit => &["", "1", "0000000", "10110011100011110000"],
        SqlType::Inet => &[
            "0.0.0.0",
            "255.255.255.255",
            "10.1.2.3/8",
            "::",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "::1/64",
            "0.0.0.0/0",
        ],
        SqlType::Cidr => &["0.0.0.0/0", "255.255.255.255/32", "::/0", "fe80::/10"],
        SqlType::MacAddr => &["00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"],
        SqlType::MacAddr8 => &["00:00:00:ff:fe:00:00:00", "ff:ff:ff:ff:ff:ff:ff:ff"],
        SqlType::TimeTz => &["00:00+15:59:59", "24:00-15:59:59", "12:34:56.789+00"],
        SqlType::JsonPath => &["$", "strict $.a[*] ? (@ > 1)"],
        SqlType::Point => &["(0,0)", "(-1.5,1e300)"],
        SqlType::Rectangle => &["(1,1),(0,0)", "(1e300,2),(-1e300,-2)"],
        SqlType::PgLsn => &["0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"],
        SqlType::Money => &["-92233720368547758.08", "0", "92233720368547758.07"],
        SqlType::Range(of) => match of {
            RangeOf::Own(_) => &["empty", "(,)"],
            RangeOf::Int4 => &["empty", "(,)", "[-2147483648,2147483647)", "[1,5)"],
            RangeOf::Int8 => &[
                "empty",
                "(,5)",
                "[-9223372036854775808,9223372036854775807)",
            ],
            RangeOf::Numeric => &["empty", "[1.50,2]", "(NaN,)", "(-Infinity,1e300]"],
            RangeOf::Date => &[
                "empty",
                "[-infinity,infinity]",
                "[4714-11-24 BC,5874897-12-31)",
            ],
            _ => &[
                "empty",
                "[-infinity,infinity]",
                "(2000-01-01,2000-02-29 12:00]",
            ],
        },
        SqlType::Multirange(of) => match of {
            RangeOf::Own(_) => &["{}", "{(,)}"],
            RangeOf::Int4 | RangeOf::Int8 | RangeOf::Numeric => &["{}", "{(,)}", "{[1,2),[5,)}"],
            _ => &["{}", "{(,)}", "{[2000-01-01,2000-01-02),[2001-01-01,)}"],
        },
        SqlType::Array(_) => &["{}", "{NULL}"],
        // Of no labels that all enums have.
        SqlType::Enum(_) | SqlType::Own(_) => &[],
        // No value is of a domain.
        SqlType::Domain(_) => &[],
        // Of what fields depends on the type.
        SqlType::Composite(_) => &[],
    }
}

/// The last microseconds of all are made rather than read: in some zones they have no text.
fn values(ty: SqlType) -> Vec<Datum> {
    let read = |t: &&str| pgtype::text_in(ty, t, &IoSettings::default()).expect("a good value");
    let mut all: Vec<Datum> = texts(ty).iter().map(read).collect();
    let (first, last) = (calendar::TIMESTAMP_MIN, calendar::TIMESTAMP_END - 1);
    match ty {
        SqlType::Timestamp => all.extend([first, last].map(Datum::Timestamp)),
        SqlType::TimestampTz => all.extend([first, last].map(Datum::TimestampTz)),
        _ => {}
    }
    all.push(Datum::Null);
    all
}

/// In zones ahead of and behind UTC, if one of the types depends on them.
fn sessions(types: &[SqlType]) -> Vec<Session> {
    let of_time = |t: &SqlType| {
        t.is_string() || matches!(t, SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz)
    };
    let zones = ["UTC", "Pacific/Kiritimati", "America/Anchorage"];
    let zones = match types.iter().any(of_time) {
        true => &zones[..],
        false => &zones[..1],
    };
    zones
        .iter()
        .map(|zone| {
            Session(IoSettings {
                time_zone: TimeZone::named(zone).expect("a zone"),
                ..IoSettings::default()
            })
        })
        .collect()
}

/// Evaluates what was bound, if it was; the answer must be one that can be stored and shown.
fn evaluate(what: &str, bound: Result<Typed>, row: &[DatumRef<'_>], session: &mut Session) {
    let Ok(bound) = bound else { return };
    let env = Env { row, params: &[] };
    let Ok(value) = bound.expr.eval(&env, session) else {
        return;
    };
    let held = match value.get() {
        DatumRef::Date(d) => {
            let day = i64::from(d);
            // The first moment of all is on the day before where clocks are behind UTC.
            (calendar::DATE_MIN - 1..calendar::DATE_END).contains(&day)
                || matches!(d, calendar::DATE_INFINITY | calendar::DATE_MINUS_INFINITY)
        }
        DatumRef::Timestamp(t) | DatumRef::TimestampTz(t) => moments::in_range(t).is_ok(),
        _ => true,
    };
    assert!(held, "{what} of {row:?} gives {:?}", value.get());
    let mut shown = Vec::new();
    pgtype::text_out(bound.ty, value.get(), &session.0, &mut shown);
    let encoding = session.0.encoding;
    pgtype::binary_out(bound.ty, value.get(), encoding, &mut shown)
        .unwrap_or_else(|e| panic!("{what} of {row:?}: {e}"));
}

fn column(at: usize, ty: SqlType) -> Typed {
    Typed::new(Expr::Column(at), ty)
}

/// All rows of values of these types.
fn rows(types: &[SqlType]) -> Vec<Vec<Datum>> {
    types.iter().fold(vec![Vec::new()], |rows, ty| {
        let with = |row: &Vec<Datum>| {
            let longer = |v: Datum| row.iter().cloned().chain([v]).collect();
            values(*ty).into_iter().map(longer).collect::<Vec<_>>()
        };
        rows.iter().flat_map(with).collect()
    })
}

fn each(what: &str, types: &[SqlType], bind: impl Fn(&Binder<'_>) -> Result<Typed>) {
    let (scope, params) = (Scope::default(), ParamTypes::default());
    let binder = Binder::new(&scope, &params, "SELECT");
    for mut session in sessions(types) {
        for row in rows(types) {
            let refs: Vec<DatumRef<'_>> = row.iter().map(Datum::borrow).collect();
            evaluate(what, bind(&binder), &refs, &mut session);
        }
    }
}

#[test]
fn of_every_cast() {
    for from in SqlType::ALL {
        for to in SqlType::ALL {
            if castable(from, to).is_none() {
                continue;
            }
            for typmod in [-1, 0, 3, 5, 4 + (5 << 16 | 2)] {
                each(&format!("{from:?}::{to:?} ({typmod})"), &[from], |b| {
                    b.coerce(column(0, from), to, typmod, CastContext::Explicit)
                });
            }
        }
    }
}

#[test]
fn of_every_operator() {
    for left in SqlType::ALL {
        each(&format!("- {left:?}"), &[left], |b| {
            b.negate(column(0, left))
        });
        for right in SqlType::ALL {
            let sides = || (column(0, left), column(1, right));
            for op in OPERATORS {
                let what = format!("{left:?} {} {right:?}", op.symbol());
                each(&what, &[left, right], |b| {
                    let (l, r) = sides();
                    b.arith(op, l, r)
                });
            }
            let what = format!("{left:?} < {right:?}");
            each(&what, &[left, right], |b| {
                let (l, r) = sides();
                b.compare(CmpOp::Lt, l, r)
            });
            let what = format!("{left:?} || {right:?}");
            each(&what, &[left, right], |b| {
                let (l, r) = sides();
                b.concat(l, r)
            });
        }
    }
}

#[test]
fn of_every_function() {
    for name in FUNCTIONS {
        let known = overloads(name);
        assert!(!known.is_empty(), "{name}");
        for signature in known {
            assert!(matches!(signature.func, Func::Pure(_)), "{name}");
            let of_time = matches!(*name, "date_part" | "extract" | "date_trunc");
            if !of_time {
                each(name, signature.args, |b| {
                    let args = signature.args.iter().enumerate();
                    b.call(name, args.map(|(at, ty)| column(at, *ty)).collect())
                });
                continue;
            }
            for field in FIELDS {
                let time = signature.args[1];
                each(&format!("{name} {field}"), &[time], |b| {
                    let field = Datum::Text(field.to_string());
                    b.call(
                        name,
                        vec![Typed::literal(field, SqlType::Text), column(0, time)],
                    )
                });
            }
        }
    }
}
