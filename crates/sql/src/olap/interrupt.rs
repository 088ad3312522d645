//! Makes plans stop when their statement is cancelled. DataFusion's operators look at their inputs until they have a batch of their own, and an
//! aggregate over a join of a thousand million rows looks for minutes without coming back to the session, which alone would notice. So every
//! operator that can give more rows than it takes answers to the session's cancellation itself, on whatever thread it runs.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::compute::BatchCoalescer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties,
};
use futures::{Stream, StreamExt};

/// The name of the operator, which plans shown to users leave out.
pub const NAME: &str = "Interruptible";

/// Rows of a batch that small ones are put together to.
const BATCH_ROWS: usize = 8192;

/// The plan with such an operator above each that multiplies rows.
pub fn interruptible(plan: Arc<dyn ExecutionPlan>) -> DfResult<Arc<dyn ExecutionPlan>> {
    let Some(session) = wait::session::current() else {
        return Ok(plan);
    };
    let guard = |input: Arc<dyn ExecutionPlan>| {
        let name = input.name();
        let multiplies = input.children().is_empty()
            || name.ends_with("JoinExec")
            || matches!(name, "UnnestExec" | "RecursiveQueryExec");
        Ok(match multiplies {
            true => Transformed::yes(Arc::new(Interruptible {
                // It gives a batch for each row of one side. Where a join above keeps them, it is their number that takes the memory, and nobody counts that.
                coalesces: name == "CrossJoinExec",
                input,
                session: session.clone(),
            }) as Arc<dyn ExecutionPlan>),
            false => Transformed::no(input),
        })
    };
    Ok(plan.transform_up(guard)?.data)
}

struct Interruptible {
    input: Arc<dyn ExecutionPlan>,
    session: Arc<wait::session::Session>,
    coalesces: bool,
}

impl fmt::Debug for Interruptible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}({:?})", self.input)
    }
}

impl DisplayAs for Interruptible {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}

impl ExecutionPlan for Interruptible {
    fn name(&self) -> &str {
        NAME
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
            return Err(DataFusionError::Internal(format!("{NAME} has one input")));
        };
        Ok(Arc::new(Interruptible {
            input,
            session: self.session.clone(),
            coalesces: self.coalesces,
        }))
    }
    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        let schema = self.input.schema();
        let coalescer = || BatchCoalescer::new(schema.clone(), BATCH_ROWS);
        Ok(Box::pin(Batches {
            input: Some(self.input.execute(partition, context)?),
            coalescer: self.coalesces.then(coalescer),
            schema,
            session: self.session.clone(),
        }))
    }
}

struct Batches {
    /// Until its end.
    input: Option<SendableRecordBatchStream>,
    coalescer: Option<BatchCoalescer>,
    schema: SchemaRef,
    session: Arc<wait::session::Session>,
}

impl Batches {
    fn next(&mut self, context: &mut Context<'_>) -> Poll<DfResult<Option<RecordBatch>>> {
        loop {
            if self.session.cancel_asked() {
                return Poll::Ready(Err(crate::session::cancelled().into()));
            }
            let done = self
                .coalescer
                .as_mut()
                .and_then(BatchCoalescer::next_completed_batch);
            let Some(input) = self.input.as_mut().filter(|_| done.is_none()) else {
                return Poll::Ready(Ok(done));
            };
            match (ready!(input.poll_next_unpin(context)), &mut self.coalescer) {
                (Some(batch), None) => return Poll::Ready(batch.map(Some)),
                (Some(batch), Some(coalescer)) => coalescer.push_batch(batch?)?,
                (None, coalescer) => {
                    self.input = None;
                    if let Some(coalescer) = coalescer {
                        coalescer.finish_buffered_batch()?;
                    }
                }
            }
        }
    }
}

impl Stream for Batches {
    type Item = DfResult<RecordBatch>;
    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().next(context).map(DfResult::transpose)
    }
}

impl RecordBatchStream for Batches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
