//! Built-in scalar functions: names, signatures, and which part of the system answers them.

use block::value::{Datum, DatumRef};

use super::array::ArrayFunc;
use super::bytes::{self, BytesFunc};
use super::collated::{self, Collated};
use super::composite::RowFunc;
use super::json::JsonFunc;
use super::linked::LinkedFunc;
use super::made::{self, MadeFunc};
use super::matches::{self, MatchFunc};
use super::oracle::OracleFunc;
use super::ranges::RangeFunc;
use super::routines::{self, Routine};
use super::sizes::{self, SizeFunc};
use super::stored::{self, Compared, Stored};
use super::trigonometry::Angle;
use super::variadic::Spread;
use super::words::{self, WordFunc};
use super::{Env, Expr, Val, arith, number, text};
use crate::dict::function::Volatility;
use crate::error::{Error, Result};
use crate::large::{self, LargeFunc};
use crate::pgtype::IoSettings;
use crate::types::call_types::CallTypes;
use crate::types::ranges::RangeOf;
use crate::types::{Reg, SqlType};

/// Answers functions whose value is not a matter of their arguments alone.
pub trait Calls {
    fn call(&mut self, func: SessionFunc, args: &[Val<'_>]) -> Result<Val<'static>>;
    /// The value of a subquery of the statement that is running.
    fn subquery(&mut self, number: usize, _inputs: Vec<Datum>) -> Result<Val<'static>> {
        Err(Error::internal(format!(
            "subquery {number} outside its statement"
        )))
    }
    /// The value of a function of users.
    fn user(&mut self, function: UserFunc, _args: Vec<Datum>) -> Result<Datum> {
        Err(Error::internal(format!("{function:?} without a session")))
    }
    /// What text forms of values depend on.
    fn io(&self) -> &IoSettings;
}

/// Where there is no session: folding constants.
#[derive(Default)]
pub struct NoCalls(IoSettings);

impl Calls for NoCalls {
    fn io(&self) -> &IoSettings {
        &self.0
    }

    fn call(&mut self, func: SessionFunc, _: &[Val<'_>]) -> Result<Val<'static>> {
        Err(Error::internal(format!("{func:?} without a session")))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Func {
    Pure(PureFunc),
    Session(SessionFunc),
    User(UserFunc),
    /// A function in C of an extension.
    Linked(LinkedFunc),
}

/// A function that a user has defined, by its object id, with what plans must know of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserFunc {
    pub oid: u32,
    pub volatile: bool,
    pub strict: bool,
    /// The types that the call has settled, if the function leaves some open.
    pub types: Option<CallTypes>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PureFunc {
    Lower,
    Upper,
    Initcap,
    Length,
    OctetLength,
    ByteaLength,
    Md5,
    Encode,
    Decode,
    Substr,
    Trim,
    LTrim,
    RTrim,
    Left,
    Right,
    Repeat,
    Replace,
    Reverse,
    Position,
    SplitPart,
    LPad,
    RPad,
    Ascii,
    Chr,
    StartsWith,
    Translate,
    ToHex,
    BitLength,
    Overlay,
    /// Whether it matches a regular expression, with case and without.
    Regex,
    RegexFolded,
    RegexReplace,
    /// NULLs count as empty; every argument is text by then.
    Concat,
    ConcatWs,
    Abs,
    Sign,
    Round,
    RoundTo,
    Trunc,
    TruncTo,
    Ceil,
    Floor,
    Sqrt,
    Cbrt,
    Exp,
    Ln,
    Log10,
    Angle(Angle),
    Atan2,
    Atan2Degrees,
    Pi,
    Mod,
    Power,
    Greatest,
    Least,
    DatePart,
    Extract,
    DateTrunc,
    /// AT TIME ZONE.
    AtZone,
    /// A point in time, moved by an interval forth and back.
    MoveBy,
    MoveBack,
    Age,
    JustifyHours,
    JustifyDays,
    JustifyInterval,
    MakeInterval,
    Array(ArrayFunc),
    /// Rows as values.
    Row(RowFunc),
    /// Of an array of arguments of a type.
    Spread(Spread, SqlType),
    /// What regular expressions find.
    Match(MatchFunc),
    Oracle(OracleFunc),
    Format,
    ToChar,
    /// Times made of their fields, bins and buckets.
    Made(MadeFunc),
    /// How many of any arguments are NULL, or are not.
    CountNulls,
    CountOthers,
    Json(JsonFunc),
    Bytes(BytesFunc),
    /// Of ranges or multiranges of a type.
    Range(RangeFunc, RangeOf),
    /// An entry of the tables.
    Routine(Routine),
    Word(WordFunc),
    Collated(Collated),
    Size(SizeFunc),
    Stored(Stored),
    /// The order of two values of a type, as a number.
    Order(Compared),
    /// Two spans of time, by their ends.
    Overlaps,
    /// `log(base, number)`.
    LogBase,
    Factorial,
    IsFinite,
    QuoteLiteral,
    SimilarToEscape,
    QuoteIdent,
    Div,
    Scale,
    MinScale,
    TrimScale,
    Gcd,
    Lcm,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionFunc {
    Now,
    StatementTimestamp,
    ClockTimestamp,
    CurrentDate,
    LocalTimestamp,
    Random,
    SetSeed,
    TimeOfDay,
    CurrentQuery,
    ClientEncoding,
    TriggerDepth,
    GenRandomUuid,
    NextVal,
    CurrVal,
    LastVal,
    /// The `ctid` of a table's row at which a cursor is.
    CurrentOf,
    SetVal,
    Version,
    CurrentUser,
    SessionUser,
    CurrentDatabase,
    CurrentSchema,
    BackendPid,
    CancelBackend,
    TerminateBackend,
    BlockingPids,
    SafeSnapshotBlockingPids,
    /// `pg_notify`.
    Notify,
    ListeningChannels,
    NotificationUsage,
    TraceEnable,
    TraceDisable,
    TimelineEnable,
    TimelineDisable,
    AdvisoryLock {
        shared: bool,
        transaction: bool,
        try_only: bool,
    },
    AdvisoryUnlock {
        shared: bool,
    },
    AdvisoryUnlockAll,
    TxidCurrent,
    IsInRecovery,
    CurrentSetting,
    SetConfig,
    Sleep,
    PostmasterStart,
    /// One of those of large objects.
    Large(LargeFunc),
    /// The one that [`crate::views::functions::at`] gives.
    Catalog(usize),
}

impl Func {
    pub fn is_immutable(self) -> bool {
        use PureFunc::{Made, ToChar};
        match self {
            // They depend on the session's time zone.
            Func::Pure(ToChar | Made(MadeFunc::TimestampTz | MadeFunc::MomentFromText)) => false,
            // PostgreSQL calls them stable, as names and signs may be those of a locale.
            Func::Pure(Made(MadeFunc::DateFromText | MadeFunc::NumberFromText)) => false,
            Func::Pure(PureFunc::Json(func)) => func.is_immutable(),
            Func::Pure(PureFunc::Routine(routine)) => !routine.is_stable(),
            Func::Pure(PureFunc::Stored(func)) => func.is_immutable(),
            Func::Pure(PureFunc::Spread(_, of)) => {
                !of.has_styles() && !matches!(of, SqlType::Reg(_) | SqlType::Composite(_))
            }
            Func::Pure(PureFunc::Array(ArrayFunc::ToString(element))) => {
                let of = element.ty();
                !of.has_styles() && !matches!(of, SqlType::Reg(_) | SqlType::Composite(_))
            }
            Func::Pure(_) => true,
            Func::Session(_) | Func::User(_) => false,
            Func::Linked(f) => f.volatility == Volatility::Immutable,
        }
    }

    /// Whether two evaluations in one statement may differ or act.
    pub fn is_volatile(self) -> bool {
        use SessionFunc::*;
        match self {
            Func::Pure(_) => false,
            Func::User(f) => f.volatile,
            Func::Linked(f) => f.volatility == Volatility::Volatile,
            Func::Session(f) => !matches!(
                f,
                Now | StatementTimestamp
                    | CurrentDate
                    | LocalTimestamp
                    | Version
                    | CurrentUser
                    | SessionUser
                    | CurrentDatabase
                    | CurrentSchema
                    | BackendPid
                    | CurrentOf
                    | CurrentSetting
                    | IsInRecovery
                    | PostmasterStart
                    | ClientEncoding
                    | TriggerDepth
                    | Catalog(_)
            ),
        }
    }

    /// Whether an argument that is NULL makes it NULL, whatever the others are.
    pub fn is_strict(self) -> bool {
        match self {
            Func::Pure(f) => f.is_strict(),
            Func::User(f) => f.strict,
            Func::Linked(f) => f.strict,
            Func::Session(f) => !matches!(
                f,
                SessionFunc::SetConfig | SessionFunc::Notify | SessionFunc::Catalog(_)
            ),
        }
    }

    pub fn call<'a>(
        self,
        args: &'a [Expr],
        env: &Env<'a>,
        calls: &mut dyn Calls,
    ) -> Result<Val<'a>> {
        match self {
            Func::Pure(f) => f.call(args, env, calls),
            Func::Session(f) => {
                let mut values = Vec::with_capacity(args.len());
                for a in args {
                    values.push(a.eval(env, calls)?);
                }
                if self.is_strict() && values.iter().any(Val::is_null) {
                    return Ok(Val::NULL);
                }
                calls.call(f, &values)
            }
            Func::Linked(f) => {
                let mut values = Vec::with_capacity(args.len());
                for a in args {
                    values.push(a.eval(env, calls)?);
                }
                if f.strict && values.iter().any(Val::is_null) {
                    return Ok(Val::NULL);
                }
                f.call(&values, calls.io()).map(Val::Own)
            }
            Func::User(f) => {
                let mut values = Vec::with_capacity(args.len());
                for a in args {
                    values.push(a.eval(env, calls)?.into_datum());
                }
                if f.strict && values.iter().any(Datum::is_null) {
                    return Ok(Val::NULL);
                }
                calls.user(f, values).map(Val::Own)
            }
        }
    }
}

impl PureFunc {
    /// Functions of arrays say each by itself what NULL means to it.
    fn is_strict(self) -> bool {
        use PureFunc::{
            Array, Concat, ConcatWs, CountNulls, CountOthers, Format, Greatest, Least, Overlaps,
            Row, Spread,
        };
        if let PureFunc::Json(func) = self {
            return !func.takes_nulls();
        }
        let counts = matches!(self, CountNulls | CountOthers);
        let makes_range = matches!(self, PureFunc::Range(RangeFunc::Make, _));
        !counts
            && !makes_range
            && !matches!(
                self,
                Greatest
                    | Least
                    | Concat
                    | ConcatWs
                    | Format
                    | Array(_)
                    | Row(_)
                    | Spread(..)
                    | Overlaps
            )
    }

    fn call<'a>(self, args: &'a [Expr], env: &Env<'a>, calls: &mut dyn Calls) -> Result<Val<'a>> {
        match self {
            PureFunc::Greatest | PureFunc::Least => return self.extreme(args, env, calls),
            PureFunc::Concat => return text::concat(args, env, calls),
            PureFunc::ConcatWs => return text::concat_ws(args, env, calls),
            PureFunc::MakeInterval => return super::spans::make(args, env, calls),
            PureFunc::Array(func) => return super::array::call(func, args, env, calls),
            PureFunc::Spread(spread, of) => {
                return super::variadic::call(spread, of, args, env, calls);
            }
            PureFunc::Row(func) => return super::composite::call(func, args, env, calls),
            PureFunc::Match(func) => return super::matches::call(func, args, env, calls),
            PureFunc::Format => return super::format::call(args, env, calls),
            PureFunc::Made(func) => return super::made::call(func, args, env, calls),
            PureFunc::CountNulls | PureFunc::CountOthers => {
                let mut found = 0;
                for arg in args {
                    let is_null = arg.eval(env, calls)?.is_null();
                    found += i32::from(is_null == (self == PureFunc::CountNulls));
                }
                return Ok(Val::int4(found));
            }
            PureFunc::Json(func) => return super::json::call(func, args, env, calls),
            PureFunc::Range(func, of) => return super::ranges::call(func, of, args, env, calls),
            PureFunc::Overlaps => return super::overlaps::call(args, env, calls),
            _ => debug_assert!(self.is_strict(), "{self:?} is called without its NULLs"),
        }
        let mut values: [Val<'a>; 4] = [Val::NULL, Val::NULL, Val::NULL, Val::NULL];
        for (slot, a) in values.iter_mut().zip(args) {
            *slot = a.eval(env, calls)?;
            if slot.is_null() {
                return Ok(Val::NULL);
            }
        }
        let values = &values[..args.len()];
        if let PureFunc::Bytes(func) = self {
            return bytes::call(func, values);
        }
        if let PureFunc::Oracle(func) = self {
            return super::oracle::call(func, values);
        }
        if let PureFunc::Collated(func) = self {
            return collated::call(func, values);
        }
        if let PureFunc::Routine(routine) = self {
            return routines::call(routine, values, calls.io());
        }
        if let PureFunc::Word(func) = self {
            return words::call(func, values);
        }
        if let PureFunc::Size(func) = self {
            return sizes::call(func, values);
        }
        if let PureFunc::Order(how) = self {
            return stored::order(values[0].get(), values[1].get(), how).map(Val::int4);
        }
        if let PureFunc::Stored(func) = self {
            return stored::call(func, values[0].get(), calls.io());
        }
        if let PureFunc::ToChar = self {
            return super::to_char::call(values, calls.io());
        }
        if let PureFunc::AtZone = self {
            return super::calendar::at_zone(values);
        }
        if self.is_of_spans() {
            return super::spans::call(self, values, calls.io());
        }
        if let PureFunc::IsFinite = self {
            return super::calendar::is_finite(values);
        }
        if let PureFunc::DatePart | PureFunc::Extract | PureFunc::DateTrunc = self {
            return super::calendar::call(self, values, calls);
        }
        match values {
            [] => Ok(Val::Ref(DatumRef::Float8(std::f64::consts::PI))),
            [first, ..] => match first.get() {
                DatumRef::Text(_) | DatumRef::Bytea(_) => text::call(self, values),
                _ if matches!(self, PureFunc::Chr | PureFunc::ToHex) => text::call(self, values),
                _ => self.numeric(values),
            },
        }
    }

    fn is_of_spans(self) -> bool {
        use PureFunc::*;
        matches!(
            self,
            MoveBy | MoveBack | Age | JustifyHours | JustifyDays | JustifyInterval
        )
    }

    fn extreme<'a>(
        self,
        args: &'a [Expr],
        env: &Env<'a>,
        calls: &mut dyn Calls,
    ) -> Result<Val<'a>> {
        let mut best = Val::NULL;
        for a in args {
            let v = a.eval(env, calls)?;
            if v.is_null() {
                continue;
            }
            let better = best.is_null() || {
                let order = super::compare(v.get(), best.get())?;
                if self == PureFunc::Greatest {
                    order.is_gt()
                } else {
                    order.is_lt()
                }
            };
            if better {
                best = v;
            }
        }
        Ok(best)
    }

    fn numeric(self, values: &[Val<'_>]) -> Result<Val<'static>> {
        let first = values[0].get();
        let second = values.get(1).map(Val::get);
        match (self, second) {
            (PureFunc::Gcd | PureFunc::Lcm, Some(r)) => return self.common(first, r),
            (PureFunc::Div, Some(DatumRef::Numeric(r))) => {
                if let DatumRef::Numeric(l) = first {
                    let whole = number::whole_quotient(l, r)?;
                    return Ok(Val::Own(Datum::Numeric(whole)));
                }
            }
            (PureFunc::LogBase, Some(DatumRef::Numeric(r))) => {
                if let DatumRef::Numeric(l) = first {
                    return Ok(Val::Own(Datum::Numeric(number::log_base(l, r)?)));
                }
            }
            (PureFunc::Factorial, None) => {
                let n = arith::integer(first).unwrap_or_default();
                return Ok(Val::Own(Datum::Numeric(number::factorial(n)?)));
            }
            (PureFunc::Scale | PureFunc::MinScale, None) => {
                if let DatumRef::Numeric(n) = first {
                    let digits = number::digits_after_point(self, n);
                    return Ok(digits.map_or(Val::NULL, Val::int4));
                }
            }
            (PureFunc::Mod, Some(r)) => {
                return arith::apply(arith::ArithOp::Mod, type_of(first), first, r);
            }
            (PureFunc::Power, Some(r)) => {
                return arith::apply(arith::ArithOp::Pow, type_of(first), first, r);
            }
            (PureFunc::Atan2Degrees, Some(DatumRef::Float8(r))) => {
                if let DatumRef::Float8(l) = first {
                    return Ok(Val::Ref(DatumRef::Float8(super::degrees::atan2(l, r))));
                }
            }
            (PureFunc::Atan2, Some(DatumRef::Float8(r))) => {
                if let DatumRef::Float8(l) = first {
                    return Ok(Val::Ref(DatumRef::Float8(l.atan2(r))));
                }
            }
            _ => {}
        }
        match first {
            DatumRef::Float8(f) => Ok(Val::Ref(DatumRef::Float8(self.float(f)?))),
            DatumRef::Float4(f) => Ok(Val::Ref(DatumRef::Float4(self.float(f.into())? as f32))),
            DatumRef::Numeric(n) => {
                let places = second.and_then(arith::integer).unwrap_or(0);
                Ok(Val::Own(Datum::Numeric(number::function(self, n, places)?)))
            }
            _ => {
                let i = arith::integer(first)
                    .ok_or_else(|| Error::internal(format!("{self:?} of {first:?}")))?;
                let ty = type_of(first);
                match self {
                    PureFunc::Abs => {
                        arith::narrow(ty, i.checked_abs().ok_or_else(|| arith::out_of_range(ty))?)
                    }
                    _ => Err(Error::internal(format!("{self:?} of an integer"))),
                }
            }
        }
    }

    /// The greatest common divisor, or the least common multiple.
    fn common(self, first: DatumRef<'_>, second: DatumRef<'_>) -> Result<Val<'static>> {
        if let (DatumRef::Numeric(l), DatumRef::Numeric(r)) = (first, second) {
            return Ok(Val::Own(Datum::Numeric(number::common(self, l, r)?)));
        }
        let integer = |d| {
            let i = arith::integer(d).map(i128::from);
            i.ok_or_else(|| Error::internal(format!("{self:?} of {d:?}")))
        };
        let (l, r) = (integer(first)?, integer(second)?);
        let (mut divisor, mut rest) = (l.abs(), r.abs());
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        let result = match self {
            PureFunc::Gcd => divisor,
            _ if l == 0 || r == 0 => 0,
            _ => l.abs() / divisor * r.abs(),
        };
        let ty = type_of(first);
        let result = i64::try_from(result).map_err(|_| arith::out_of_range(ty))?;
        arith::narrow(ty, result)
    }

    pub(super) fn float(self, f: f64) -> Result<f64> {
        Ok(match self {
            PureFunc::Abs => f.abs(),
            PureFunc::Sign if f == 0.0 || f.is_nan() => 0.0,
            PureFunc::Sign => f.signum(),
            PureFunc::Round => f.round_ties_even(),
            PureFunc::Trunc => f.trunc(),
            PureFunc::Ceil => f.ceil(),
            PureFunc::Floor => f.floor(),
            PureFunc::Sqrt if f < 0.0 => {
                return Err(Error::new(
                    "2201F",
                    "cannot take square root of a negative number",
                ));
            }
            PureFunc::Sqrt => f.sqrt(),
            PureFunc::Cbrt => super::libm::cbrt(f),
            PureFunc::Exp => arith::computed(f.exp(), f.is_finite())?,
            PureFunc::Ln | PureFunc::Log10 if f == 0.0 => {
                return Err(Error::new("2201E", "cannot take logarithm of zero"));
            }
            PureFunc::Ln | PureFunc::Log10 if f < 0.0 => {
                return Err(Error::new(
                    "2201E",
                    "cannot take logarithm of a negative number",
                ));
            }
            PureFunc::Ln => f.ln(),
            PureFunc::Log10 => f.log10(),
            PureFunc::Angle(angle) => angle.of(f)?,
            other => return Err(Error::internal(format!("{other:?} of a float"))),
        })
    }
}

fn type_of(d: DatumRef<'_>) -> SqlType {
    match d {
        DatumRef::Int2(_) => SqlType::Int2,
        DatumRef::Int4(_) => SqlType::Int4,
        DatumRef::Int8(_) => SqlType::Int8,
        DatumRef::Float4(_) => SqlType::Float4,
        DatumRef::Float8(_) => SqlType::Float8,
        _ => SqlType::Numeric,
    }
}

/// One overload: what the arguments must be (or become), and the result.
pub struct Signature {
    pub func: Func,
    pub args: &'static [SqlType],
    pub result: SqlType,
}

const RELATION: SqlType = SqlType::Reg(Reg::Class);

/// The overloads of a function by name, in the order in which they are tried. Variadic functions are the binder's.
pub fn overloads(name: &str) -> Vec<Signature> {
    let mut all = plain_overloads(name);
    all.extend(routines::overloads(name));
    all.extend(large::overloads(name));
    all
}

/// The overloads that are no entries of the tables of routines.
fn plain_overloads(name: &str) -> Vec<Signature> {
    use PureFunc::*;
    use SqlType::{
        Bool, Bytea, Char, Date, Float4, Float8, Int2, Int4, Int8, Interval, Name, Numeric, Text,
        Time, Timestamp, TimestampTz, Uuid, Void,
    };
    let pure = |f: PureFunc, args: &'static [SqlType], result: SqlType| Signature {
        func: Func::Pure(f),
        args,
        result,
    };
    let session = |f: SessionFunc, args: &'static [SqlType], result: SqlType| Signature {
        func: Func::Session(f),
        args,
        result,
    };
    let pids = |f: SessionFunc| {
        let result = Int4.array().into_iter();
        result.map(|pids| session(f, &[Int4], pids)).collect()
    };
    // Those of texts, and then those of bytes.
    let with_bytes = |mut all: Vec<Signature>| {
        all.extend(bytes::overloads(name));
        all
    };
    let float_and_numeric =
        |f: PureFunc| vec![pure(f, &[Float8], Float8), pure(f, &[Numeric], Numeric)];
    match name {
        "lower" => vec![pure(Lower, &[Text], Text)],
        "upper" => vec![pure(Upper, &[Text], Text)],
        "md5" => vec![pure(Md5, &[Text], Text), pure(Md5, &[Bytea], Text)],
        "encode" => vec![pure(Encode, &[Bytea, Text], Text)],
        "decode" => vec![pure(Decode, &[Text, Text], Bytea)],
        "initcap" => vec![pure(Initcap, &[Text], Text)],
        "length" => vec![
            pure(Length, &[Text], Int4),
            pure(ByteaLength, &[Bytea], Int4),
        ],
        "char_length" | "character_length" => vec![pure(Length, &[Text], Int4)],
        "octet_length" => vec![
            pure(OctetLength, &[Text], Int4),
            // With its padding.
            pure(OctetLength, &[Char], Int4),
            pure(ByteaLength, &[Bytea], Int4),
        ],
        "substr" | "substring" => {
            let mut all = vec![
                pure(Substr, &[Text, Int4], Text),
                pure(Substr, &[Text, Int4, Int4], Text),
                pure(Substr, &[Bytea, Int4], Bytea),
                pure(Substr, &[Bytea, Int4, Int4], Bytea),
            ];
            if name == "substring" {
                // Of literals, the second is a pattern.
                let part = Match(MatchFunc::SimilarPart);
                all.insert(0, pure(part, &[Text, Text, Text], Text));
                all.insert(0, pure(Match(MatchFunc::Part), &[Text, Text], Text));
            }
            all
        }
        "similar_to_escape" => vec![
            pure(SimilarToEscape, &[Text], Text),
            pure(SimilarToEscape, &[Text, Text], Text),
        ],
        "quote_literal" => vec![pure(QuoteLiteral, &[Text], Text)],
        "quote_ident" => vec![pure(QuoteIdent, &[Text], Text)],
        "date_bin" | "to_date" | "to_number" | "to_timestamp" | "width_bucket" => {
            made::overloads(name)
        }
        "to_char" => vec![
            pure(ToChar, &[TimestampTz, Text], Text),
            pure(ToChar, &[Timestamp, Text], Text),
            pure(ToChar, &[Interval, Text], Text),
            pure(ToChar, &[Int4, Text], Text),
            pure(ToChar, &[Int8, Text], Text),
            pure(ToChar, &[Numeric, Text], Text),
            pure(ToChar, &[Float8, Text], Text),
        ],
        "isfinite" => vec![
            pure(IsFinite, &[Date], Bool),
            pure(IsFinite, &[Timestamp], Bool),
            pure(IsFinite, &[TimestampTz], Bool),
            pure(IsFinite, &[Interval], Bool),
        ],
        "div" => vec![pure(Div, &[Numeric, Numeric], Numeric)],
        "scale" => vec![pure(Scale, &[Numeric], Int4)],
        "min_scale" => vec![pure(MinScale, &[Numeric], Int4)],
        "trim_scale" => vec![pure(TrimScale, &[Numeric], Numeric)],
        "gcd" | "lcm" => {
            let f = if name == "gcd" { Gcd } else { Lcm };
            vec![
                pure(f, &[Int4, Int4], Int4),
                pure(f, &[Int8, Int8], Int8),
                pure(f, &[Numeric, Numeric], Numeric),
            ]
        }
        "btrim" | "trim" => with_bytes(vec![
            pure(Trim, &[Text], Text),
            pure(Trim, &[Text, Text], Text),
        ]),
        "ltrim" => with_bytes(vec![
            pure(LTrim, &[Text], Text),
            pure(LTrim, &[Text, Text], Text),
        ]),
        "rtrim" => with_bytes(vec![
            pure(RTrim, &[Text], Text),
            pure(RTrim, &[Text, Text], Text),
        ]),
        "left" => vec![pure(Left, &[Text, Int4], Text)],
        "right" => vec![pure(Right, &[Text, Int4], Text)],
        "repeat" => vec![pure(Repeat, &[Text, Int4], Text)],
        "replace" => vec![pure(Replace, &[Text, Text, Text], Text)],
        "reverse" => vec![pure(Reverse, &[Text], Text)],
        "strpos" | "position" => with_bytes(vec![pure(Position, &[Text, Text], Int4)]),
        "split_part" => vec![pure(SplitPart, &[Text, Text, Int4], Text)],
        "lpad" => vec![
            pure(LPad, &[Text, Int4], Text),
            pure(LPad, &[Text, Int4, Text], Text),
        ],
        "rpad" => vec![
            pure(RPad, &[Text, Int4], Text),
            pure(RPad, &[Text, Int4, Text], Text),
        ],
        "ascii" => vec![pure(Ascii, &[Text], Int4)],
        "chr" => vec![pure(Chr, &[Int4], Text)],
        "starts_with" => vec![pure(StartsWith, &[Text, Text], Bool)],
        "translate" => vec![pure(Translate, &[Text, Text, Text], Text)],
        "to_hex" => vec![pure(ToHex, &[Int4], Text), pure(ToHex, &[Int8], Text)],
        "bit_length" => vec![
            pure(BitLength, &[Text], Int4),
            pure(BitLength, &[Bytea], Int4),
        ],
        "overlay" => with_bytes(vec![
            pure(Overlay, &[Text, Text, Int4], Text),
            pure(Overlay, &[Text, Text, Int4, Int4], Text),
        ]),
        "regexp_replace" => {
            let mut all = vec![
                pure(RegexReplace, &[Text, Text, Text], Text),
                pure(RegexReplace, &[Text, Text, Text, Text], Text),
            ];
            all.extend(matches::overloads(name));
            all
        }
        "abs" => vec![
            pure(Abs, &[Int4], Int4),
            pure(Abs, &[Int2], Int2),
            pure(Abs, &[Int8], Int8),
            pure(Abs, &[Float8], Float8),
            pure(Abs, &[Float4], Float4),
            pure(Abs, &[Numeric], Numeric),
        ],
        "sign" => float_and_numeric(Sign),
        "round" => vec![
            pure(Round, &[Float8], Float8),
            pure(Round, &[Numeric], Numeric),
            pure(RoundTo, &[Numeric, Int4], Numeric),
        ],
        "trunc" => vec![
            pure(Trunc, &[Float8], Float8),
            pure(Trunc, &[Numeric], Numeric),
            pure(TruncTo, &[Numeric, Int4], Numeric),
        ],
        "ceil" | "ceiling" => float_and_numeric(Ceil),
        "floor" => float_and_numeric(Floor),
        "sqrt" => float_and_numeric(Sqrt),
        "cbrt" => vec![pure(Cbrt, &[Float8], Float8)],
        "exp" => float_and_numeric(Exp),
        "ln" => float_and_numeric(Ln),
        "log10" => float_and_numeric(Log10),
        "log" => {
            let mut all = float_and_numeric(Log10);
            all.push(pure(LogBase, &[Numeric, Numeric], Numeric));
            all
        }
        "factorial" => vec![pure(Factorial, &[Int8], Numeric)],
        "atan2" => vec![pure(Atan2, &[Float8, Float8], Float8)],
        "atan2d" => vec![pure(Atan2Degrees, &[Float8, Float8], Float8)],
        "pi" => vec![pure(Pi, &[], Float8)],
        "mod" => vec![
            pure(Mod, &[Int4, Int4], Int4),
            pure(Mod, &[Int2, Int2], Int2),
            pure(Mod, &[Int8, Int8], Int8),
            pure(Mod, &[Numeric, Numeric], Numeric),
        ],
        "power" | "pow" => vec![
            pure(Power, &[Float8, Float8], Float8),
            pure(Power, &[Numeric, Numeric], Numeric),
        ],
        // Of a date, the part of its midnight; `extract` has parts of dates of its own.
        "date_part" => vec![
            pure(DatePart, &[Text, Timestamp], Float8),
            pure(DatePart, &[Text, TimestampTz], Float8),
            pure(DatePart, &[Text, Interval], Float8),
            pure(DatePart, &[Text, Time], Float8),
        ],
        "extract" => vec![
            pure(Extract, &[Text, Date], Numeric),
            pure(Extract, &[Text, Timestamp], Numeric),
            pure(Extract, &[Text, TimestampTz], Numeric),
            pure(Extract, &[Text, Interval], Numeric),
            pure(Extract, &[Text, Time], Numeric),
        ],
        "date_trunc" => vec![
            pure(DateTrunc, &[Text, TimestampTz], TimestampTz),
            pure(DateTrunc, &[Text, Timestamp], Timestamp),
            pure(DateTrunc, &[Text, Interval], Interval),
            pure(DateTrunc, &[Text, TimestampTz, Text], TimestampTz),
        ],
        "age" => vec![
            pure(Age, &[TimestampTz, TimestampTz], Interval),
            pure(Age, &[Timestamp, Timestamp], Interval),
        ],
        "justify_hours" => vec![pure(JustifyHours, &[Interval], Interval)],
        "justify_days" => vec![pure(JustifyDays, &[Interval], Interval)],
        "justify_interval" => vec![pure(JustifyInterval, &[Interval], Interval)],
        "make_interval" => vec![pure(
            MakeInterval,
            &[Int4, Int4, Int4, Int4, Int4, Int4, Float8],
            Interval,
        )],
        "timezone" => vec![
            pure(AtZone, &[Text, TimestampTz], Timestamp),
            pure(AtZone, &[Text, Timestamp], TimestampTz),
            pure(AtZone, &[Interval, TimestampTz], Timestamp),
            pure(AtZone, &[Interval, Timestamp], TimestampTz),
        ],
        "now" | "current_timestamp" | "transaction_timestamp" => {
            vec![session(SessionFunc::Now, &[], TimestampTz)]
        }
        "statement_timestamp" => vec![session(SessionFunc::StatementTimestamp, &[], TimestampTz)],
        "clock_timestamp" => vec![session(SessionFunc::ClockTimestamp, &[], TimestampTz)],
        "localtimestamp" => vec![session(SessionFunc::LocalTimestamp, &[], Timestamp)],
        "current_date" => vec![session(SessionFunc::CurrentDate, &[], Date)],
        "random" => vec![session(SessionFunc::Random, &[], Float8)],
        "setseed" => vec![session(SessionFunc::SetSeed, &[Float8], Void)],
        "timeofday" => vec![session(SessionFunc::TimeOfDay, &[], Text)],
        "current_query" => vec![session(SessionFunc::CurrentQuery, &[], Text)],
        "pg_client_encoding" => vec![session(SessionFunc::ClientEncoding, &[], Name)],
        "pg_trigger_depth" => vec![session(SessionFunc::TriggerDepth, &[], Int4)],
        "gen_random_uuid" => vec![session(SessionFunc::GenRandomUuid, &[], Uuid)],
        "nextval" => vec![
            session(SessionFunc::NextVal, &[Text], Int8),
            session(SessionFunc::NextVal, &[RELATION], Int8),
        ],
        "currval" => vec![
            session(SessionFunc::CurrVal, &[Text], Int8),
            session(SessionFunc::CurrVal, &[RELATION], Int8),
        ],
        crate::parse::current_of::CURRENT_OF => {
            vec![session(
                SessionFunc::CurrentOf,
                &[Text, RELATION],
                SqlType::Tid,
            )]
        }
        "lastval" => vec![session(SessionFunc::LastVal, &[], Int8)],
        "setval" => vec![
            session(SessionFunc::SetVal, &[Text, Int8], Int8),
            session(SessionFunc::SetVal, &[Text, Int8, Bool], Int8),
            session(SessionFunc::SetVal, &[RELATION, Int8], Int8),
            session(SessionFunc::SetVal, &[RELATION, Int8, Bool], Int8),
        ],
        "version" => vec![session(SessionFunc::Version, &[], Text)],
        "current_user" | "user" | "current_role" => {
            vec![session(SessionFunc::CurrentUser, &[], Name)]
        }
        "session_user" => vec![session(SessionFunc::SessionUser, &[], Name)],
        "current_database" | "current_catalog" => {
            vec![session(SessionFunc::CurrentDatabase, &[], Name)]
        }
        "current_schema" => vec![session(SessionFunc::CurrentSchema, &[], Name)],
        "pg_backend_pid" => vec![session(SessionFunc::BackendPid, &[], Int4)],
        "pg_cancel_backend" => vec![session(SessionFunc::CancelBackend, &[Int4], Bool)],
        "pg_terminate_backend" => vec![
            session(SessionFunc::TerminateBackend, &[Int4], Bool),
            session(SessionFunc::TerminateBackend, &[Int4, Int8], Bool),
        ],
        "pg_blocking_pids" => pids(SessionFunc::BlockingPids),
        "pg_safe_snapshot_blocking_pids" => pids(SessionFunc::SafeSnapshotBlockingPids),
        "pg_notify" => vec![session(SessionFunc::Notify, &[Text, Text], Void)],
        "pg_notification_queue_usage" => {
            vec![session(SessionFunc::NotificationUsage, &[], Float8)]
        }
        "session_trace_enable" => vec![
            session(SessionFunc::TraceEnable, &[Int4, Int8], Void),
            session(SessionFunc::TraceEnable, &[Int4, Int8, Bool, Bool], Void),
            session(
                SessionFunc::TraceEnable,
                &[Int4, Int8, Bool, Bool, Int4],
                Void,
            ),
        ],
        "session_trace_disable" => vec![
            session(SessionFunc::TraceDisable, &[Int4, Int8], Void),
            session(SessionFunc::TraceDisable, &[Int4, Int8, Int4], Void),
        ],
        "session_timeline_enable" => vec![
            session(SessionFunc::TimelineEnable, &[Int4, Int8], Void),
            session(SessionFunc::TimelineEnable, &[Int4, Int8, Int4], Void),
        ],
        "session_timeline_disable" => vec![
            session(SessionFunc::TimelineDisable, &[Int4, Int8], Void),
            session(SessionFunc::TimelineDisable, &[Int4, Int8, Int4], Void),
        ],
        "pg_is_in_recovery" => vec![session(SessionFunc::IsInRecovery, &[], Bool)],
        "pg_postmaster_start_time" => vec![session(SessionFunc::PostmasterStart, &[], TimestampTz)],
        "txid_current" | "pg_current_xact_id" => vec![session(SessionFunc::TxidCurrent, &[], Int8)],
        "current_setting" => vec![
            session(SessionFunc::CurrentSetting, &[Text], Text),
            session(SessionFunc::CurrentSetting, &[Text, Bool], Text),
        ],
        "set_config" => vec![session(SessionFunc::SetConfig, &[Text, Text, Bool], Text)],
        "pg_sleep" => vec![session(SessionFunc::Sleep, &[Float8], Void)],
        "pg_sleep_for" => vec![session(SessionFunc::Sleep, &[Interval], Void)],
        "pg_sleep_until" => vec![session(SessionFunc::Sleep, &[TimestampTz], Void)],
        "pg_advisory_unlock_all" => vec![session(SessionFunc::AdvisoryUnlockAll, &[], Void)],
        _ => match crate::expr::trigonometry::Angle::named(name) {
            Some(angle) => vec![pure(PureFunc::Angle(angle), &[Float8], Float8)],
            None if name.starts_with("regexp_") => matches::overloads(name),
            None if name.starts_with("make_") => made::overloads(name),
            None if name.starts_with("pg_size_") => sizes::overloads(name),
            None if name.starts_with("pg_") => advisory(name),
            None => {
                let mut all = bytes::overloads(name);
                all.extend(words::overloads(name));
                all
            }
        },
    }
}

/// What `pg_listening_channels` takes apart: the channels of the session as an array.
pub fn listening_channels() -> Vec<Signature> {
    vec![Signature {
        func: Func::Session(SessionFunc::ListeningChannels),
        args: &[],
        result: SqlType::TEXTS,
    }]
}

fn advisory(name: &str) -> Vec<Signature> {
    use SqlType::{Bool, Int4, Int8, Void};
    let (func, result) = match name {
        "pg_advisory_unlock" => (SessionFunc::AdvisoryUnlock { shared: false }, Bool),
        "pg_advisory_unlock_shared" => (SessionFunc::AdvisoryUnlock { shared: true }, Bool),
        _ => {
            let (try_only, rest) = match name.strip_prefix("pg_try_advisory_") {
                Some(rest) => (true, rest),
                None => match name.strip_prefix("pg_advisory_") {
                    Some(rest) => (false, rest),
                    None => return Vec::new(),
                },
            };
            let (transaction, shared) = match rest {
                "lock" => (false, false),
                "lock_shared" => (false, true),
                "xact_lock" => (true, false),
                "xact_lock_shared" => (true, true),
                _ => return Vec::new(),
            };
            (
                SessionFunc::AdvisoryLock {
                    shared,
                    transaction,
                    try_only,
                },
                if try_only { Bool } else { Void },
            )
        }
    };
    vec![
        Signature {
            func: Func::Session(func),
            args: &[Int8],
            result,
        },
        Signature {
            func: Func::Session(func),
            args: &[Int4, Int4],
            result,
        },
    ]
}
