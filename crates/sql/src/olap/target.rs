//! The table that a write changes, as the query that supplies the write's rows reads it: with the row id as a column more.

use std::fmt;
use std::sync::Arc;

use block::value::DatumRef;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::Result as DfResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::streaming::PartitionStream;
use parking_lot::Mutex;
use tokio::sync::mpsc::Sender;

use super::arrow::{Builder, field};
use super::tables::Reading;
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::types::SqlType;

/// Schema under which a query finds tables with their row ids. No user can have one of that name.
pub const SCHEMA: &str = "braid$target";
/// Name of the column, after all others.
pub const ROW_ID: &str = "braid$row";

/// Rows of a batch. Blocks are not divided, so some more may come.
const BATCH_ROWS: usize = 4096;
const BATCHES_AHEAD: usize = 2;

struct Target {
    table: Arc<Table>,
    schema: SchemaRef,
    /// Taken by the one execution.
    reading: Mutex<Option<Reading>>,
}

/// `reading` is there when the statement is executed, not when it is only planned.
pub fn provider(table: &Arc<Table>, reading: Option<Reading>) -> Result<Arc<dyn TableProvider>> {
    let mut fields = Vec::new();
    for (at, c) in table.live_columns() {
        let origin = (table.oid, at as i16 + 1);
        fields.push(field(&c.name, c.ty(), c.typmod, origin)?);
    }
    fields.push(field(ROW_ID, SqlType::Int8, -1, (0, 0))?);
    let schema = Arc::new(Schema::new(fields));
    let target = Target {
        table: table.clone(),
        schema: schema.clone(),
        reading: Mutex::new(reading),
    };
    let provider = StreamingTable::try_new(schema, vec![Arc::new(target)])
        .map_err(super::error::from_datafusion)?;
    Ok(Arc::new(provider))
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seq Scan on {}", self.table.name)
    }
}

impl PartitionStream for Target {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStream::builder(self.schema.clone(), BATCHES_AHEAD);
        let reading = self.reading.lock().take();
        let (schema, table, sender) = (self.schema.clone(), self.table.clone(), builder.tx());
        builder.spawn_blocking(move || {
            let reading =
                reading.ok_or_else(|| Error::internal("the target of a write is scanned once"))?;
            let _session = wait::session::register(wait::session::Kind::Background, "p000");
            read(reading, &schema, &table, &sender)
        });
        builder.build()
    }
}

/// Sends all rows, until nobody wants them any more.
fn read(
    mut reading: Reading,
    schema: &SchemaRef,
    table: &Table,
    sender: &Sender<DfResult<RecordBatch>>,
) -> DfResult<()> {
    let snapshot = reading.snapshot.snapshot();
    let types = &table.engine().columns;
    let live: Vec<usize> = table.live_columns().map(|(at, _)| at).collect();
    let mut builders = schema
        .fields()
        .iter()
        .map(|f| Builder::new(f.data_type(), BATCH_ROWS + 1024))
        .collect::<Result<Vec<_>>>()?;
    let mut rows = 0;
    let mut failed = Ok(());
    loop {
        let more = reading.scan.next_block_of(&snapshot, &mut |rid, row| {
            rows += 1;
            if failed.is_ok() {
                failed = (|| {
                    let mut values = Vec::with_capacity(types.len());
                    crate::exec::row::decode(row, table.engine(), types.len(), &mut values)?;
                    let id = DatumRef::Int8(rid.0 as i64);
                    let wanted = live.iter().map(|at| values[*at]).chain([id]);
                    builders
                        .iter_mut()
                        .zip(wanted)
                        .try_for_each(|(b, v)| b.push(v))
                })();
            }
        });
        let more = more.map_err(Error::from)?;
        std::mem::replace(&mut failed, Ok(()))?;
        if rows >= BATCH_ROWS || !more && rows > 0 {
            let arrays = builders.iter_mut().map(Builder::finish).collect();
            rows = 0;
            let batch = RecordBatch::try_new(schema.clone(), arrays)?;
            if sender.blocking_send(Ok(batch)).is_err() {
                return Ok(());
            }
        }
        if !more {
            return Ok(());
        }
    }
}
