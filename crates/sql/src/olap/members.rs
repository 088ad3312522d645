//! `x IN (list)` of many literals as one function that holds them. Each rule of the optimizer looks at each expression of a plan: of ten thousand literals
//! that takes seconds, of one function nothing.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::type_coercion::other::get_coerce_type_for_list;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, InListExpr};

/// Tells one such function from another.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Whether a value is one of a list, as IN answers it.
#[derive(Debug)]
pub struct Members {
    name: String,
    values: ArrayRef,
    test: InListExpr,
    signature: Signature,
}

/// The list as such a function; `None` if it has other things than literals.
pub fn of_list(list: &InList, schema: &DFSchema) -> DfResult<Option<Expr>> {
    let mut values = Vec::with_capacity(list.list.len());
    let mut types: Vec<DataType> = Vec::new();
    for item in &list.list {
        let Expr::Literal(value, _) = item else {
            return Ok(None);
        };
        let ty = value.data_type();
        if !types.contains(&ty) {
            types.push(ty);
        }
        values.push(value.clone());
    }
    let own = list.expr.get_type(schema)?;
    let Some(ty) = get_coerce_type_for_list(&own, &types) else {
        return Ok(None);
    };
    if types.iter().any(|t| *t != ty) {
        for value in &mut values {
            match value.cast_to(&ty) {
                Ok(cast) => *value = cast,
                Err(_) => return Ok(None),
            }
        }
    }
    let values = ScalarValue::iter_to_array(values)?;
    let test = {
        let schema = Schema::new(vec![Field::new("value", ty.clone(), true)]);
        let column = Arc::new(Column::new("value", 0));
        InListExpr::try_new_from_array(column, values.clone(), false, &schema)?
    };
    let members = Members {
        name: format!("pg_member_{}", NEXT.fetch_add(1, Ordering::Relaxed)),
        values,
        test,
        signature: Signature::any(1, Volatility::Immutable),
    };
    let value = list.expr.as_ref().clone().cast_to(&ty, schema)?;
    let found = ScalarUDF::from(members).call(vec![value]);
    Ok(Some(match list.negated {
        true => Expr::Not(Box::new(found)),
        false => found,
    }))
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
        let value = ColumnarValue::values_to_arrays(&args.args)?.remove(0);
        let field = Field::new("value", value.data_type().clone(), true);
        // A constant comes as one row, whatever the number.
        let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![value])?;
        let found = self.test.evaluate(&batch)?.into_array(batch.num_rows())?;
        Ok(match &args.args[0] {
            ColumnarValue::Scalar(_) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?)
            }
            ColumnarValue::Array(_) => ColumnarValue::Array(found),
        })
    }
}
