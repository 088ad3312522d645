//! An operator that gives its input's rows as they come, and does something on the way.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties,
};

/// What is done on the way.
pub trait Passing: Clone + Send + Sync + 'static {
    /// The operator's name. Plans that are shown to users leave such operators out.
    const NAME: &'static str;

    fn stream(&self, input: SendableRecordBatchStream) -> SendableRecordBatchStream;
}

pub struct Through<P> {
    pub input: Arc<dyn ExecutionPlan>,
    pub passing: P,
}

impl<P: Passing> fmt::Debug for Through<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:?})", P::NAME, self.input)
    }
}

impl<P: Passing> DisplayAs for Through<P> {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(P::NAME)
    }
}

impl<P: Passing> ExecutionPlan for Through<P> {
    fn name(&self) -> &str {
        P::NAME
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }
    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let Some(input) = children.pop().filter(|_| children.is_empty()) else {
            let message = format!("{} has one input", P::NAME);
            return Err(DataFusionError::Internal(message));
        };
        let passing = self.passing.clone();
        Ok(Arc::new(Through { input, passing }))
    }
    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        Ok(self.passing.stream(self.input.execute(partition, context)?))
    }
}
