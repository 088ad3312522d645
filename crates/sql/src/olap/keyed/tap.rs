//! The operator below a join's first side that notes the keys of its rows.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::Result as DfResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures::{Stream, StreamExt};

use super::lookup::Lookup;
use crate::olap::through::{Passing, Through};

/// Its name, by which plans shown to users leave it out.
pub const NAME: &str = "Keys";

/// Notes the keys of rows that pass.
#[derive(Clone)]
pub struct Keys(pub Arc<Lookup>);

pub type Tap = Through<Keys>;

impl Passing for Keys {
    const NAME: &'static str = NAME;

    fn stream(&self, input: SendableRecordBatchStream) -> SendableRecordBatchStream {
        Box::pin(Tapped {
            input,
            lookup: self.0.clone(),
            ended: false,
        })
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
