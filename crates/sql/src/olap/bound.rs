//! The direct lane's operators, casts and functions as functions of DataFusion: what they mean is decided by the one
//! binder, and they are evaluated by the one evaluator, a row at a time, or by Arrow's checked kernels where those agree
//! with it (integers, and additions of floats are worth it).
//!
//! **Invariants.**
//! - The result's type depends on the arguments' fields and constants only, so that planning again finds the same.
//! - A string literal without a type in its metadata is of type unknown, as in PostgreSQL; every other text is text.

use std::sync::Arc;

use block::value::{Datum, DatumRef};
use datafusion::arrow::array::{ArrayRef, Datum as ArrowDatum, Scalar};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::arrow::{
    self, COMPUTED_SCALE, EXACT, FREE, FREE_SCALE, MAX_PRECISION, QUOTIENT, QUOTIENT_SCALE,
};
use super::builder::Builder;
use crate::api::ColumnDesc;
use crate::bind::{Binder, ParamTypes, Scope, Typed};
use crate::error::{Error, Result};
use crate::expr::cast::CastContext;
use crate::expr::func::{Calls, Func, SessionFunc, overloads};
use crate::expr::{ArithOp, Env, Expr, Val};
use crate::pgtype::IoSettings;
use crate::types::SqlType;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    Arith(ArithOp),
    Negate,
    Concat,
    Cast(SqlType, i32),
    /// An operand of a comparison as the type in which its sides meet.
    Compared(SqlType),
    Call(String),
    /// `round` or `trunc` to a number of digits that the query says.
    Digits(&'static str, i32),
    /// `extract` of a field.
    Extract(String),
}

/// The prefix of the names of casts: type OID and modifier follow.
pub const CAST: &str = "pg_cast_";
const COMPARED: &str = "pg_compared_";
pub const NEGATE: &str = "pg_negate";

/// The same for `round` and `trunc` with a literal number of digits.
const ROUND: &str = "pg_round_";
const TRUNC: &str = "pg_trunc_";

/// The same for `extract` with its field.
pub const EXTRACT: &str = "pg_extract_";

/// The name by which `round(x, digits)` or `trunc(x, digits)` is called in a rewritten query: the type of the result
/// depends on the number, which as an argument would not be known at every planning.
pub fn digits_name(function: &str, digits: i32) -> Option<String> {
    match function {
        "round" => Some(format!("{ROUND}{digits}")),
        "trunc" => Some(format!("{TRUNC}{digits}")),
        _ => None,
    }
}

/// The name by which a cast is called in a rewritten query.
pub fn cast_name(ty: SqlType, typmod: i32) -> String {
    format!("{CAST}{}_{}", ty.oid(), i64::from(typmod) + 1)
}

/// The type that a function of that name casts to, if it is one whose text says all: neither blanks nor digits are added to it.
pub fn plain_cast(name: &str) -> Option<SqlType> {
    let (oid, modifier) = name.strip_prefix(CAST)?.split_once('_')?;
    let ty = SqlType::from_oid(oid.parse().ok()?)?;
    (modifier == "0" && !matches!(ty, SqlType::Char | SqlType::Numeric)).then_some(ty)
}

/// The function of that name, if it is one of the direct lane that needs no session.
pub fn find(name: &str, io: &IoSettings) -> Option<Arc<ScalarUDF>> {
    let op = if name == NEGATE {
        Op::Negate
    } else if let Some(rest) = name.strip_prefix(CAST) {
        let (oid, typmod) = rest.split_once('_')?;
        let typmod = typmod.parse::<i64>().ok()? - 1;
        Op::Cast(
            SqlType::from_oid(oid.parse().ok()?)?,
            i32::try_from(typmod).ok()?,
        )
    } else if let Some(digits) = name.strip_prefix(ROUND) {
        Op::Digits("round", digits.parse().ok()?)
    } else if let Some(digits) = name.strip_prefix(TRUNC) {
        Op::Digits("trunc", digits.parse().ok()?)
    } else if let Some(field) = name.strip_prefix(EXTRACT) {
        Op::Extract(field.to_string())
    } else {
        is_pure(name).then(|| Op::Call(name.to_string()))?
    };
    Some(function(op, io))
}

/// Whether a function of the direct lane depends on its arguments alone.
pub fn is_pure(name: &str) -> bool {
    matches!(name, "concat" | "concat_ws" | "greatest" | "least")
        || overloads(name)
            .first()
            .is_some_and(|s| matches!(s.func, Func::Pure(_)))
}

/// Whether a function is one of those, which takes values as they are stored.
pub fn is_ours(function: &ScalarUDF) -> bool {
    function.inner().is::<Bound>()
}

/// The operation as a function.
pub fn function(op: Op, io: &IoSettings) -> Arc<ScalarUDF> {
    let name = match &op {
        Op::Arith(a) => format!("pg_operator_{}", a.symbol()),
        Op::Negate => NEGATE.to_string(),
        Op::Concat => "pg_operator_||".to_string(),
        Op::Cast(ty, typmod) => cast_name(*ty, *typmod),
        Op::Compared(ty) => format!("{COMPARED}{}", ty.oid()),
        Op::Call(name) => name.clone(),
        Op::Digits("round", n) => format!("{ROUND}{n}"),
        Op::Digits(_, n) => format!("{TRUNC}{n}"),
        Op::Extract(field) => format!("{EXTRACT}{field}"),
    };
    let nullary = matches!(&op, Op::Call(name) if overloads(name).iter().all(|s| s.args.is_empty()) && !overloads(name).is_empty());
    let signature = match nullary {
        true => Signature::nullary(Volatility::Immutable),
        false => Signature::variadic_any(Volatility::Immutable),
    };
    Arc::new(ScalarUDF::from(Bound {
        name,
        op,
        io: *io,
        signature,
    }))
}

#[derive(Debug)]
struct Bound {
    name: String,
    op: Op,
    io: IoSettings,
    signature: Signature,
}

impl PartialEq for Bound {
    fn eq(&self, other: &Bound) -> bool {
        self.op == other.op && self.io == other.io
    }
}
impl Eq for Bound {}
impl std::hash::Hash for Bound {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.op.hash(state);
    }
}

/// Answers what depends on session settings; functions that need more never come here.
pub struct Settings(pub IoSettings);

impl Calls for Settings {
    fn call(&mut self, func: SessionFunc, _: &[Val<'_>]) -> Result<Val<'static>> {
        Err(Error::internal(format!("{func:?} in a vectorized plan")))
    }
    fn io(&self) -> &IoSettings {
        &self.0
    }
}

/// Whether a field is that of a string literal whose type its context decides.
fn is_unknown(field: &Field, constant: Option<&ScalarValue>) -> bool {
    field.data_type().is_null()
        || constant.is_some_and(|c| {
            matches!(
                c,
                ScalarValue::Utf8(_) | ScalarValue::Utf8View(_) | ScalarValue::LargeUtf8(_)
            )
        }) && !arrow::is_tagged(field)
}

/// Digits after the point of a numeric argument; `None` if its values have different numbers of them.
fn scale_of(field: &Field) -> Option<i8> {
    match field.data_type() {
        DataType::Decimal128(..) if arrow::is_free(field) => None,
        DataType::Decimal128(_, scale) => Some(*scale),
        t if t.is_integer() => Some(0),
        _ => None,
    }
}

impl Bound {
    fn bind(&self, fields: &[FieldRef], constants: &[Option<&ScalarValue>]) -> Result<Typed> {
        let mut args = Vec::with_capacity(fields.len());
        for (at, field) in fields.iter().enumerate() {
            let constant = constants.get(at).copied().flatten();
            args.push(if is_unknown(field, constant) {
                let text = constant.and_then(|c| c.try_as_str().flatten());
                let value = text.map_or(Datum::Null, |t| Datum::Text(t.to_string()));
                Typed::literal(value, SqlType::Unknown)
            } else {
                let desc = arrow::describe(field)?;
                Typed {
                    expr: Expr::Column(at),
                    ty: desc.ty,
                    typmod: desc.typmod,
                }
            });
        }
        let (scope, params) = (Scope::default(), ParamTypes::default());
        let binder = Binder::new(&scope, &params, "SELECT");
        let count = args.len();
        let mut args = args.into_iter();
        let mut next = || {
            args.next()
                .ok_or_else(|| Error::internal(format!("{} with {count} arguments", self.name)))
        };
        match &self.op {
            Op::Arith(op) => binder.arith(*op, next()?, next()?),
            Op::Concat => binder.concat(next()?, next()?),
            Op::Negate => binder.negate(next()?),
            Op::Cast(ty, typmod) => binder.coerce(next()?, *ty, *typmod, CastContext::Explicit),
            Op::Compared(ty) => binder.compared(next()?, *ty),
            Op::Call(name) => binder.call(name, args.collect()),
            Op::Digits(name, n) => {
                let digits = Typed::literal(Datum::Int4(*n), SqlType::Int4);
                binder.call(name, vec![next()?, digits])
            }
            Op::Extract(field) => {
                let field = Typed::literal(Datum::Text(field.clone()), SqlType::Text);
                binder.call("extract", vec![field, next()?])
            }
        }
    }

    fn result(&self, typed: &Typed, fields: &[FieldRef]) -> Result<Field> {
        if typed.ty != SqlType::Numeric || typed.typmod >= 4 {
            let field = arrow::field(&self.name, typed.ty, typed.typmod, (0, 0))?;
            // Only what the type of the values does not say by itself is said beside it: both terms of a recursive
            // query must agree in this, too.
            let plain = arrow::plain_type(field.data_type())? == typed.ty && typed.typmod < 0;
            return Ok(match plain && !typed.ty.is_string() {
                true => field.with_metadata(Default::default()),
                false => field,
            });
        }
        let (scale, kind) = self.numeric(fields);
        let metadata = [(kind.to_string(), String::new())].into();
        Ok(
            Field::new(&self.name, DataType::Decimal128(MAX_PRECISION, scale), true)
                .with_metadata(metadata),
        )
    }

    /// How the numeric result is held, and how many digits of it are shown.
    fn numeric(&self, fields: &[FieldRef]) -> (i8, &'static str) {
        let scales: Option<Vec<i8>> = fields.iter().map(|f| scale_of(f)).collect();
        let exact = |scale: Option<i8>| match scale {
            Some(s) if s <= MAX_PRECISION as i8 => (s, EXACT),
            _ => (COMPUTED_SCALE, FREE),
        };
        let highest = scales.as_ref().and_then(|s| s.iter().max().copied());
        match &self.op {
            Op::Arith(ArithOp::Div) => (QUOTIENT_SCALE, QUOTIENT),
            Op::Arith(ArithOp::Mul) => exact(scales.map(|s| s.iter().sum())),
            Op::Arith(ArithOp::Add | ArithOp::Sub | ArithOp::Mod) | Op::Negate | Op::Cast(..) => {
                exact(highest)
            }
            Op::Call(name) => match name.as_str() {
                "abs" | "mod" => exact(highest),
                "ceil" | "ceiling" | "floor" | "sign" => (0, EXACT),
                "round" | "trunc" if fields.len() == 1 => (0, EXACT),
                _ => (COMPUTED_SCALE, FREE),
            },
            Op::Digits(_, n) => {
                let most = i32::from(COMPUTED_SCALE);
                (i8::try_from((*n).clamp(0, most)).unwrap_or(0), EXACT)
            }
            Op::Extract(field) if field == "julian" => (COMPUTED_SCALE, FREE),
            Op::Extract(field) => {
                let digits = crate::expr::calendar::digits(field);
                (i8::try_from(digits).unwrap_or(0), EXACT)
            }
            Op::Arith(_) | Op::Concat | Op::Compared(_) => (COMPUTED_SCALE, FREE),
        }
    }

    /// The operation by a kernel that answers as the evaluator does, if there is one for the types.
    fn kernel(&self, args: &ScalarFunctionArgs) -> Option<DfResult<ColumnarValue>> {
        let ty = args.return_field.data_type();
        let number = ty.is_signed_integer() || ty.is_floating();
        match (&self.op, args.args.as_slice()) {
            (Op::Arith(op), [left, right]) if number && ty.is_signed_integer() => {
                let kernel = match op {
                    ArithOp::Add => numeric::add,
                    ArithOp::Sub => numeric::sub,
                    ArithOp::Mul => numeric::mul,
                    ArithOp::Div => numeric::div,
                    ArithOp::Mod => numeric::rem,
                    _ => return None,
                };
                let integers = [left, right]
                    .iter()
                    .all(|a| a.data_type().is_signed_integer());
                integers.then(|| self.checked(ty, left, right, kernel))
            }
            (Op::Cast(_, typmod), [value]) if *typmod < 0 => {
                let from = value.data_type();
                let widens = match (&from, ty) {
                    (a, b) if a == b => !matches!(a, DataType::Utf8 | DataType::Decimal128(..)),
                    (DataType::Int16, DataType::Int32 | DataType::Int64)
                    | (DataType::Int32, DataType::Int64)
                    | (DataType::Int16 | DataType::Int32 | DataType::Int64, DataType::Float64)
                    | (DataType::Float32, DataType::Float64) => true,
                    _ => false,
                };
                widens.then(|| value.cast_to(ty, None))
            }
            _ => None,
        }
    }

    fn checked(
        &self,
        ty: &DataType,
        left: &ColumnarValue,
        right: &ColumnarValue,
        kernel: fn(&dyn ArrowDatum, &dyn ArrowDatum) -> std::result::Result<ArrayRef, ArrowError>,
    ) -> DfResult<ColumnarValue> {
        let failed = |e: ArrowError| -> DataFusionError {
            match e {
                ArrowError::ArithmeticOverflow(_) => {
                    let what = arrow::plain_type(ty).unwrap_or(SqlType::Int8).name();
                    Error::new("22003", format!("{what} out of range")).into()
                }
                other => other.into(),
            }
        };
        let one = |v: &ColumnarValue| v.cast_to(ty, None);
        Ok(match (one(left)?, one(right)?) {
            (ColumnarValue::Array(l), ColumnarValue::Array(r)) => {
                ColumnarValue::Array(kernel(&l, &r).map_err(failed)?)
            }
            (ColumnarValue::Array(l), ColumnarValue::Scalar(r)) => {
                ColumnarValue::Array(kernel(&l, &Scalar::new(r.to_array()?)).map_err(failed)?)
            }
            (ColumnarValue::Scalar(l), ColumnarValue::Array(r)) => {
                ColumnarValue::Array(kernel(&Scalar::new(l.to_array()?), &r).map_err(failed)?)
            }
            (ColumnarValue::Scalar(l), ColumnarValue::Scalar(r)) => {
                let out = kernel(&l.to_array()?, &r.to_array()?).map_err(failed)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&out, 0)?)
            }
        })
    }

    fn by_row(&self, args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constants: Vec<Option<&ScalarValue>> = args
            .args
            .iter()
            .map(|a| match a {
                ColumnarValue::Scalar(s) => Some(s),
                ColumnarValue::Array(_) => None,
            })
            .collect();
        let typed = self.bind(&args.arg_fields, &constants)?;
        let is_scalar = constants.iter().all(Option::is_some);
        let rows = if is_scalar { 1 } else { args.number_rows };
        let mut columns = Vec::with_capacity(args.args.len());
        for ((value, field), constant) in args.args.iter().zip(&args.arg_fields).zip(&constants) {
            if is_unknown(field, *constant) {
                columns.push(None);
                continue;
            }
            let array = value
                .to_array(rows)
                .map_err(super::error::from_datafusion)?;
            let desc: ColumnDesc = arrow::describe(field)?;
            columns.push(Some(arrow::Column::new(&array, field, &desc)?));
        }
        let mut out = Builder::new(args.return_field.data_type(), rows)?;
        let mut calls = Settings(self.io);
        let mut row: Vec<DatumRef<'_>> = Vec::with_capacity(columns.len());
        for at in 0..rows {
            row.clear();
            row.extend(
                columns
                    .iter()
                    .map(|c| c.as_ref().map_or(DatumRef::Null, |c| c.get(at))),
            );
            let env = Env {
                row: &row,
                params: &[],
            };
            let value = typed.expr.eval(&env, &mut calls)?;
            out.push(value.get())?;
        }
        let array = out.finish();
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(
                ScalarValue::try_from_array(&array, 0).map_err(super::error::from_datafusion)?,
            ),
            false => ColumnarValue::Array(array),
        })
    }
}

impl ScalarUDFImpl for Bound {
    fn name(&self) -> &str {
        &self.name
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Err(Error::internal(format!("{} is typed by its fields", self.name)).into())
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let typed = self.bind(args.arg_fields, args.scalar_arguments)?;
        Ok(Arc::new(self.result(&typed, args.arg_fields)?))
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        match self.kernel(&args) {
            Some(done) => done,
            None => Ok(self.by_row(&args)?),
        }
    }
}

/// Whether DataFusion's own kernel for `+`, `-`, `*` of decimals gives PostgreSQL's digits: not where a value's number
/// of digits is its own, nor where the result's scale is one that stands for that.
pub fn decimal_kernel_fits(op: ArithOp, left: &Field, right: &Field) -> bool {
    let (Some(l), Some(r)) = (scale_of(left), scale_of(right)) else {
        return false;
    };
    let scale = match op {
        ArithOp::Add | ArithOp::Sub => l.max(r),
        ArithOp::Mul => l.saturating_add(r),
        _ => return false,
    };
    scale < COMPUTED_SCALE && scale != FREE_SCALE
}
