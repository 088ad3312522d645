//! The operator below a join's first side that notes the keys of its rows.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{Stream, StreamExt};

use super::lookup::Lookup;
use super::{PhysicalRef, Plan};

/// Its name, by which plans shown to users leave it out.
pub const NAME: &str = "Keys";

/// Notes the keys of rows that pass.
pub struct Tap {
    pub input: Plan,
    pub lookup: Arc<Lookup>,
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}({:?})", self.input)
    }
}

impl DisplayAs for Tap {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}

impl ExecutionPlan for Tap {
    fn name(&self) -> &str {
        NAME
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }
    fn children(&self) -> Vec<&Plan> {
        vec![&self.input]
    }
    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&PhysicalRef) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn with_new_children(self: Arc<Self>, mut children: Vec<Plan>) -> DfResult<Plan> {
        let Some(input) = children.pop().filter(|_| children.is_empty()) else {
            return Err(DataFusionError::Internal(format!("{NAME} has one input")));
        };
        let lookup = self.lookup.clone();
        Ok(Arc::new(Tap { input, lookup }))
    }
    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        Ok(Box::pin(Tapped {
            input: self.input.execute(partition, context)?,
            lookup: self.lookup.clone(),
            ended: false,
        }))
    }
}

struct Tapped {
    input: SendableRecordBatchStream,
    lookup: Arc<Lookup>,
    ended: bool,
}

impl Stream for Tapped {
    type Item = DfResult<RecordBatch>;
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.input.poll_next_unpin(context));
        Poll::Ready(match next {
            Some(Ok(batch)) => Some(self.lookup.note(&batch).map(|()| batch)),
            None if !std::mem::replace(&mut self.ended, true) => {
                self.lookup.ended();
                None
            }
            other => other,
        })
    }
}

impl RecordBatchStream for Tapped {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}

impl Drop for Tapped {
    fn drop(&mut self) {
        if !self.ended {
            self.lookup.given_up();
        }
    }
}
