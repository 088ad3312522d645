//! Functions that DataFusion does not have: those over the catalogs, and what makes sums, averages and scalar
//! subqueries come out as PostgreSQL has them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use block::value::{Datum, DatumRef};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float64Type, Int64Type,
};
use datafusion::common::ScalarValue;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::arrow::{MAX_PRECISION, QUOTIENT, QUOTIENT_SCALE, arrow_type, describe};
use super::builder::Builder;
use crate::error::Error;
use crate::types::SqlType;
use crate::views::Context;
use crate::views::functions::{self, Function};

/// The scalar function of that name, if it is one of ours.
pub fn scalar(name: &str, context: &Arc<Context>) -> Option<Arc<ScalarUDF>> {
    match name {
        WIDEN => Some(Arc::new(ScalarUDF::from(Widen {
            signature: Signature::any(1, Volatility::Immutable),
        }))),
        SERIES_BOUND => Some(Arc::new(ScalarUDF::from(SeriesBound {
            signature: Signature::any(1, Volatility::Immutable),
        }))),
        FLOAT_ONLY => Some(Arc::new(ScalarUDF::from(FloatOnly {
            signature: Signature::any(1, Volatility::Immutable),
        }))),
        MIN_ARGUMENT | MAX_ARGUMENT => Some(Arc::new(ScalarUDF::from(Ordered {
            of: if name == MIN_ARGUMENT { "min" } else { "max" },
            signature: Signature::any(1, Volatility::Immutable),
        }))),
        QUOTIENT_OF => Some(Arc::new(ScalarUDF::from(Average {
            signature: Signature::any(2, Volatility::Immutable),
        }))),
        _ => {
            let function = functions::find(name)?;
            let volatility = match function.acts {
                true => Volatility::Volatile,
                false => Volatility::Stable,
            };
            let signature = match function.args {
                (0, 0) => Signature::nullary(volatility),
                _ => Signature::variadic_any(volatility),
            };
            Some(Arc::new(ScalarUDF::from(Catalog {
                function,
                context: context.clone(),
                signature,
            })))
        }
    }
}

pub fn aggregate(name: &str) -> Option<Arc<AggregateUDF>> {
    (name == SINGLE_VALUE).then(|| {
        Arc::new(AggregateUDF::from(SingleValue {
            signature: Signature::any(1, Volatility::Immutable),
        }))
    })
}

/// Gives a sum's argument the type its sum cannot overflow in, as PostgreSQL types sums.
pub const WIDEN: &str = "pg_sum_argument";
/// An average from its sum and count.
pub const QUOTIENT_OF: &str = "pg_average";
/// The one value of a scalar subquery; an error if there are several.
pub const SINGLE_VALUE: &str = "pg_single_value";

/// Its argument, which must be a float.
pub const FLOAT_ONLY: &str = "pg_float_only";

/// Their arguments, of types that have a least and a greatest value in PostgreSQL.
pub const MIN_ARGUMENT: &str = "pg_min_argument";
pub const MAX_ARGUMENT: &str = "pg_max_argument";

/// Its argument as a bigint, which must be an integer of some size.
pub const SERIES_BOUND: &str = "pg_series_bound";

/// A function over the catalogs.
#[derive(Debug)]
struct Catalog {
    function: &'static Function,
    context: Arc<Context>,
    signature: Signature,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Catalog {
    fn eq(&self, other: &Catalog) -> bool {
        std::ptr::eq(self.function, other.function)
    }
}
impl Eq for Catalog {}
impl Hash for Catalog {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
    }
}

impl ScalarUDFImpl for Catalog {
    fn name(&self) -> &str {
        self.function.name
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, args: &[DataType]) -> DfResult<DataType> {
        let (least, most) = self.function.args;
        if !(least..=most).contains(&args.len()) {
            let message = format!(
                "function {} with {} arguments does not exist",
                self.function.name,
                args.len()
            );
            return Err(Error::new("42883", message).into());
        }
        Ok(arrow_type(self.function.returns, -1)?)
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let is_scalar = args
            .args
            .iter()
            .all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let columns = args
            .args
            .iter()
            .map(|a| argument(a, rows))
            .collect::<DfResult<Vec<_>>>()?;
        let mut out = Builder::new(&arrow_type(self.function.returns, -1)?, rows)?;
        for row in 0..rows {
            let values: Vec<Datum> = columns.iter().map(|c| c[row].clone()).collect();
            let value = match self.function.strict && values.iter().any(Datum::is_null) {
                true => Datum::Null,
                false => (self.function.call)(&self.context, &values)?,
            };
            out.push(value.borrow())?;
        }
        let array = out.finish();
        match is_scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &array, 0,
            )?)),
            false => Ok(ColumnarValue::Array(array)),
        }
    }
}

/// An argument's values: integers, booleans, and everything else as text.
fn argument(value: &ColumnarValue, rows: usize) -> DfResult<Vec<Datum>> {
    let array = value.to_array(rows)?;
    let valid = |row: usize| array.is_valid(row);
    Ok(match array.data_type() {
        DataType::Boolean => {
            let a = array.as_boolean();
            (0..rows)
                .map(|r| {
                    if valid(r) {
                        Datum::Bool(a.value(r))
                    } else {
                        Datum::Null
                    }
                })
                .collect()
        }
        t if t.is_integer() => {
            let wide = cast(&array, &DataType::Int64)?;
            let a = wide.as_primitive::<Int64Type>();
            (0..rows)
                .map(|r| {
                    if valid(r) {
                        Datum::Int8(a.value(r))
                    } else {
                        Datum::Null
                    }
                })
                .collect()
        }
        _ => {
            let texts = cast(&array, &DataType::Utf8)?;
            let a = texts.as_string::<i32>();
            (0..rows)
                .map(|r| {
                    if valid(r) {
                        Datum::Text(a.value(r).to_string())
                    } else {
                        Datum::Null
                    }
                })
                .collect()
        }
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Widen {
    signature: Signature,
}

fn widened(ty: &DataType) -> DataType {
    match ty {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 => {
            DataType::Int64
        }
        DataType::Int64 | DataType::UInt32 | DataType::UInt64 => {
            DataType::Decimal128(MAX_PRECISION, 0)
        }
        DataType::Decimal128(_, scale) => DataType::Decimal128(MAX_PRECISION, *scale),
        DataType::Null => DataType::Int64,
        other => other.clone(),
    }
}

impl ScalarUDFImpl for Widen {
    fn name(&self) -> &str {
        WIDEN
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, args: &[DataType]) -> DfResult<DataType> {
        Ok(widened(&args[0]))
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        Ok(Arc::new(Field::new(
            WIDEN,
            widened(args.arg_fields[0].data_type()),
            true,
        )))
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        args.args[0].cast_to(args.return_field.data_type(), None)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FloatOnly {
    signature: Signature,
}

impl ScalarUDFImpl for FloatOnly {
    fn name(&self) -> &str {
        FLOAT_ONLY
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, args: &[DataType]) -> DfResult<DataType> {
        match &args[0] {
            DataType::Float32 | DataType::Float64 => Ok(DataType::Float64),
            _ => Err(
                Error::unsupported("statistics over numbers that are no floats")
                    .hint("Cast the argument to double precision.")
                    .into(),
            ),
        }
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        args.args[0].cast_to(&DataType::Float64, None)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Ordered {
    of: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for Ordered {
    fn name(&self) -> &str {
        match self.of {
            "min" => MIN_ARGUMENT,
            _ => MAX_ARGUMENT,
        }
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, args: &[DataType]) -> DfResult<DataType> {
        Ok(args[0].clone())
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let of = &args.arg_fields[0];
        // A type that only DataFusion has is refused as a result, if it becomes one.
        if let Ok(known) = describe(of)
            && matches!(known.ty, SqlType::Bool | SqlType::Uuid | SqlType::Bytea)
        {
            let message = format!("function {}({}) does not exist", self.of, known.ty.name());
            return Err(Error::new("42883", message).into());
        }
        let field = Field::new(self.name(), of.data_type().clone(), of.is_nullable());
        Ok(Arc::new(field.with_metadata(of.metadata().clone())))
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        Ok(args.args[0].clone())
    }
    fn simplify(
        &self,
        mut args: Vec<datafusion::logical_expr::Expr>,
        _: &SimplifyContext,
    ) -> DfResult<ExprSimplifyResult> {
        match args.pop() {
            Some(arg) => Ok(ExprSimplifyResult::Simplified(arg)),
            None => Ok(ExprSimplifyResult::Original(args)),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SeriesBound {
    signature: Signature,
}

impl ScalarUDFImpl for SeriesBound {
    fn name(&self) -> &str {
        SERIES_BOUND
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, args: &[DataType]) -> DfResult<DataType> {
        match &args[0] {
            t if t.is_integer() || t.is_null() => Ok(DataType::Int64),
            _ => Err(Error::unsupported("generate_series of what is not an integer").into()),
        }
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        match &args.args[0] {
            // As the function that it is for has it.
            ColumnarValue::Scalar(v) if v.is_null() => Ok(ColumnarValue::Scalar(ScalarValue::Null)),
            bound => bound.cast_to(&DataType::Int64, None),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Average {
    signature: Signature,
}

/// Digits after the point of an average, of which as many are shown as PostgreSQL would give.
const AVERAGE_SCALE: i8 = QUOTIENT_SCALE;

fn average_type(sum: &DataType) -> DataType {
    match sum {
        DataType::Float32 | DataType::Float64 => DataType::Float64,
        _ => DataType::Decimal128(MAX_PRECISION, AVERAGE_SCALE),
    }
}

impl ScalarUDFImpl for Average {
    fn name(&self) -> &str {
        QUOTIENT_OF
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, args: &[DataType]) -> DfResult<DataType> {
        Ok(average_type(&args[0]))
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let ty = average_type(args.arg_fields[0].data_type());
        let field = Field::new(QUOTIENT_OF, ty.clone(), true);
        Ok(Arc::new(match ty {
            DataType::Decimal128(..) => {
                field.with_metadata([(QUOTIENT.to_string(), String::new())].into())
            }
            _ => field,
        }))
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = args.number_rows;
        let (sums, counts) = (args.args[0].to_array(rows)?, args.args[1].to_array(rows)?);
        let counts = counts.as_primitive::<Int64Type>();
        if sums.data_type().is_floating() {
            let sums = cast(&sums, &DataType::Float64)?;
            let sums = sums.as_primitive::<Float64Type>();
            let mean = |(s, n): (Option<f64>, Option<i64>)| Some(s? / n.filter(|n| *n > 0)? as f64);
            let out: Float64Array = sums.iter().zip(counts).map(mean).collect();
            return Ok(ColumnarValue::Array(Arc::new(out)));
        }
        let scale = if let DataType::Decimal128(_, s) = sums.data_type() {
            *s
        } else {
            0
        };
        let sums = cast(&sums, &DataType::Decimal128(MAX_PRECISION, scale))?;
        let sums = sums.as_primitive::<Decimal128Type>();
        let shift = u32::try_from(AVERAGE_SCALE - scale).unwrap_or(0);
        let mut out = Vec::with_capacity(rows);
        for (sum, n) in sums.iter().zip(counts) {
            out.push(match (sum, n) {
                (Some(sum), Some(n)) if n > 0 => Some(mean(sum, n.into(), shift)?),
                _ => None,
            });
        }
        let out =
            Decimal128Array::from(out).with_precision_and_scale(MAX_PRECISION, AVERAGE_SCALE)?;
        Ok(ColumnarValue::Array(Arc::new(out)))
    }
}

/// sum / n, with `shift` more digits; halves away from zero.
fn mean(sum: i128, n: i128, shift: u32) -> Result<i128, Error> {
    let refused = || Error::unsupported("an average with more than 38 digits");
    let power = 10_i128.checked_pow(shift).ok_or_else(refused)?;
    // The whole part and the rest apart: the product of the sum itself could overflow sooner.
    let whole = (sum / n).checked_mul(power).ok_or_else(refused)?;
    let rest = (sum % n).checked_mul(power).ok_or_else(refused)?;
    let rounded = (rest.abs() * 2 / n + 1) / 2 * rest.signum();
    whole.checked_add(rounded).ok_or_else(refused)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleValue {
    signature: Signature,
}

impl AggregateUDFImpl for SingleValue {
    fn name(&self) -> &str {
        SINGLE_VALUE
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, args: &[DataType]) -> DfResult<DataType> {
        Ok(args[0].clone())
    }
    fn return_field(&self, args: &[FieldRef]) -> DfResult<FieldRef> {
        let of = &args[0];
        let field = Field::new(SINGLE_VALUE, of.data_type().clone(), true);
        Ok(Arc::new(field.with_metadata(of.metadata().clone())))
    }
    fn state_fields(&self, args: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        Ok(vec![
            Arc::new(Field::new(
                "value",
                args.return_field.data_type().clone(),
                true,
            )),
            Arc::new(Field::new("count", DataType::Int64, false)),
        ])
    }
    fn accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        Ok(Box::new(Single {
            value: ScalarValue::try_from(args.return_field.data_type())?,
            count: 0,
        }))
    }
}

#[derive(Debug)]
struct Single {
    value: ScalarValue,
    count: i64,
}

impl Single {
    fn take(&mut self, values: &ArrayRef, row: usize, n: i64) -> DfResult<()> {
        if n == 0 {
            return Ok(());
        }
        self.count += n;
        if self.count > 1 {
            return Err(Error::new(
                "21000",
                "more than one row returned by a subquery used as an expression",
            )
            .into());
        }
        self.value = ScalarValue::try_from_array(values, row)?;
        Ok(())
    }
}

impl Accumulator for Single {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        (0..values[0].len()).try_for_each(|row| self.take(&values[0], row, 1))
    }
    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        Ok(self.value.clone())
    }
    fn size(&self) -> usize {
        size_of_val(self) + self.value.size()
    }
    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        Ok(vec![
            self.value.clone(),
            ScalarValue::Int64(Some(self.count)),
        ])
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        let counts = states[1].as_primitive::<Int64Type>();
        (0..counts.len()).try_for_each(|row| self.take(&states[0], row, counts.value(row)))
    }
}

/// Rows of values as one batch of arrays.
pub fn arrays(rows: &[Vec<Datum>], types: &[SqlType]) -> Result<Vec<ArrayRef>, Error> {
    let mut columns = Vec::with_capacity(types.len());
    for (at, ty) in types.iter().enumerate() {
        let mut builder = Builder::new(&arrow_type(*ty, -1)?, rows.len())?;
        for row in rows {
            builder.push(row.get(at).map_or(DatumRef::Null, Datum::borrow))?;
        }
        columns.push(builder.finish());
    }
    Ok(columns)
}
