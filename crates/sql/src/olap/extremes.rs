//! `min` and `max` whose result is of their argument's SQL type where Arrow's says less: of a blank-padded string they are blank-padded. DataFusion's
//! own, which do the work, give the data type alone.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    Signature, StatisticsArgs,
};

use super::arrow;
use crate::types::SqlType;

/// The aggregate, if it is one of the two, as one that keeps that type.
pub fn typed(aggregate: &Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    match aggregate.name() {
        "min" | "max" => Arc::new(AggregateUDF::from(Extreme(aggregate.clone()))),
        _ => aggregate.clone(),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme(Arc<AggregateUDF>);

impl AggregateUDFImpl for Extreme {
    fn return_field(&self, args: &[FieldRef]) -> DfResult<FieldRef> {
        let padded = |f: &FieldRef| arrow::describe(f).is_ok_and(|known| known.ty == SqlType::Char);
        match args {
            [of] if padded(of) => {
                let field = arrow::field(self.name(), SqlType::Char, -1, (0, 0))?;
                Ok(Arc::new(field))
            }
            _ => self.0.return_field(args),
        }
    }

    fn name(&self) -> &str {
        self.0.name()
    }
    fn signature(&self) -> &Signature {
        self.0.signature()
    }
    fn return_type(&self, args: &[DataType]) -> DfResult<DataType> {
        self.0.return_type(args)
    }
    fn coerce_types(&self, args: &[DataType]) -> DfResult<Vec<DataType>> {
        self.0.coerce_types(args)
    }
    fn state_fields(&self, args: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        self.0.state_fields(args)
    }
    fn accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        self.0.accumulator(args)
    }
    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.0.groups_accumulator_supported(args)
    }
    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> DfResult<Box<dyn GroupsAccumulator>> {
        self.0.create_groups_accumulator(args)
    }
    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        self.0.create_sliding_accumulator(args)
    }
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.order_sensitivity()
    }
    fn reverse_expr(&self) -> ReversedUDAF {
        self.0.reverse_udf()
    }
    fn is_descending(&self) -> Option<bool> {
        self.0.is_descending()
    }
    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        self.0.value_from_stats(args)
    }
    fn set_monotonicity(&self, ty: &DataType) -> SetMonotonicity {
        self.0.inner().set_monotonicity(ty)
    }
}
