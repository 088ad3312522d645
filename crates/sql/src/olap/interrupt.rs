//! Makes plans stop when their statement is cancelled. DataFusion's operators look at their inputs until they have a batch of their own, and an
//! aggregate over a join of a thousand million rows looks for minutes without coming back to the session, which alone would notice. So every
//! operator that can give more rows than it takes answers to the session's cancellation itself, on whatever thread it runs.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::compute::BatchCoalescer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result as DfResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::physical_plan::ExecutionPlan;
use futures::{Stream, StreamExt};

use super::through::{Passing, Through};

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
            true => {
                let passing = Interruptible {
                    // It gives a batch for each row of one side. Where a join above keeps them, it is their number that takes the memory, and nobody counts that.
                    coalesces: name == "CrossJoinExec",
                    session: session.clone(),
                };
                Transformed::yes(Arc::new(Through { input, passing }) as Arc<dyn ExecutionPlan>)
            }
            false => Transformed::no(input),
        })
    };
    Ok(plan.transform_up(guard)?.data)
}

#[derive(Clone)]
struct Interruptible {
    session: Arc<wait::session::Session>,
    coalesces: bool,
}

impl Passing for Interruptible {
    const NAME: &'static str = NAME;

    fn stream(&self, input: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = input.schema();
        let coalescer = || BatchCoalescer::new(schema.clone(), BATCH_ROWS);
        Box::pin(Batches {
            coalescer: self.coalesces.then(coalescer),
            input: Some(input),
            schema,
            session: self.session.clone(),
        })
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
