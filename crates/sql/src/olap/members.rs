//! `x IN (list)` of many literals as one function that holds them. Each rule of the optimizer looks at each expression of a plan: of ten thousand literals
//! that takes seconds, of one function nothing.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::type_coercion::other::get_coerce_type_for_list;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

/// Tells one such function from another.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Whether a value is one of a list, as IN answers it.
#[derive(Debug)]
pub struct Members {
    name: String,
    values: ArrayRef,
    test: Test,
    signature: Signature,
}

/// Tells members from others.
#[derive(Debug)]
enum Test {
    Integers(HashSet<i64>),
    /// By their form as a key.
    Keys(RowConverter, HashSet<Box<[u8]>>),
}

impl Test {
    fn new(values: &ArrayRef) -> DfResult<Test> {
        if values.data_type().is_integer() {
            let values = cast(values, &DataType::Int64)?;
            let integers = values.as_primitive::<Int64Type>();
            return Ok(Test::Integers(integers.iter().flatten().collect()));
        }
        let converter = RowConverter::new(vec![SortField::new(values.data_type().clone())])?;
        let rows = converter.convert_columns(std::slice::from_ref(values))?;
        let known = (0..values.len()).filter(|at| !values.is_null(*at));
        let keys = known.map(|at| rows.row(at).as_ref().into()).collect();
        Ok(Test::Keys(converter, keys))
    }

    /// For each value whether it is in the list.
    fn of(&self, values: &ArrayRef, has_null: bool) -> DfResult<BooleanArray> {
        let answer = |found: bool| (found || !has_null).then_some(found);
        Ok(match self {
            Test::Integers(known) => {
                let values = cast(values, &DataType::Int64)?;
                let integers = values.as_primitive::<Int64Type>().iter();
                integers
                    .map(|v| v.and_then(|v| answer(known.contains(&v))))
                    .collect()
            }
            Test::Keys(converter, known) => {
                let rows = converter.convert_columns(std::slice::from_ref(values))?;
                let all = rows
                    .iter()
                    .enumerate()
                    .map(|(at, row)| match values.is_null(at) {
                        true => None,
                        false => answer(known.contains(row.as_ref())),
                    });
                all.collect()
            }
        })
    }
}

/// What looks for an expression's value in a list of literals, as such a function; `None` if the list has other things, or of its type some values are
/// equal that are not the same.
pub fn of_list(list: &InList, schema: &DFSchema) -> DfResult<Option<Expr>> {
    let mut values = Vec::with_capacity(list.list.len());
    for item in &list.list {
        let Expr::Literal(value, _) = item else {
            return Ok(None);
        };
        values.push(value.clone());
    }
    let found = of_values(&list.expr, values, schema)?;
    Ok(match list.negated {
        true => found.map(|e| Expr::Not(Box::new(e))),
        false => found,
    })
}

pub fn of_values(
    own: &Expr,
    mut values: Vec<ScalarValue>,
    schema: &DFSchema,
) -> DfResult<Option<Expr>> {
    let mut types: Vec<DataType> = Vec::new();
    for value in &values {
        let ty = value.data_type();
        if !types.contains(&ty) {
            types.push(ty);
        }
    }
    let Some(ty) = get_coerce_type_for_list(&own.get_type(schema)?, &types) else {
        return Ok(None);
    };
    if ty.is_floating() {
        return Ok(None);
    }
    if types.iter().any(|t| *t != ty) {
        for value in &mut values {
            match value.cast_to(&ty) {
                Ok(cast) => *value = cast,
                Err(_) => return Ok(None),
            }
        }
    }
    let values = ScalarValue::iter_to_array(values)?;
    let members = Members {
        name: format!("pg_member_{}", NEXT.fetch_add(1, Ordering::Relaxed)),
        test: Test::new(&values)?,
        values,
        signature: Signature::any(1, Volatility::Immutable),
    };
    let value = own.clone().cast_to(&ty, schema)?;
    Ok(Some(ScalarUDF::from(members).call(vec![value])))
}

/// The value that is looked for, and the list, if an expression is such a function.
pub fn called(e: &Expr) -> Option<(&Expr, &ArrayRef)> {
    let Expr::ScalarFunction(f) = e else {
        return None;
    };
    let members = f.func.inner().downcast_ref::<Members>()?;
    Some((f.args.first()?, &members.values))
}

impl PartialEq for Members {
    fn eq(&self, other: &Members) -> bool {
        self.name == other.name
    }
}
impl Eq for Members {}
impl Hash for Members {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Members {
    fn name(&self) -> &str {
        &self.name
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Boolean)
    }
    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> DfResult<FieldRef> {
        Ok(Arc::new(Field::new(&self.name, DataType::Boolean, true)))
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        // A constant comes as one row, whatever the number.
        let value = ColumnarValue::values_to_arrays(&args.args)?.remove(0);
        let has_null = self.values.null_count() > 0;
        let found: ArrayRef = Arc::new(self.test.of(&value, has_null)?);
        Ok(match &args.args[0] {
            ColumnarValue::Scalar(_) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?)
            }
            ColumnarValue::Array(_) => ColumnarValue::Array(found),
        })
    }
}
