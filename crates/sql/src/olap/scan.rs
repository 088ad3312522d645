//! Reading heaps into batches. A heap's blocks are divided among the scan's partitions; each is read by a thread of its
//! own, a session of the wait interface, that sends batches through a bounded channel. It holds the snapshot registered
//! itself, so that it may outlive the statement by the batch it is at.
//!
//! The rows of a block are taken apart column by column under the block's latch. Where the wanted columns stand at the
//! same place in every row, because those before them have a fixed length and none is NULL, they are read from there.

use std::fmt;
use std::sync::Arc;

use block::row::RowReader;
use block::value::ColType;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as DfResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
};
use engine::TableDef;
use parking_lot::Mutex;

use super::arrow::Builder;
use super::tables::Reading;
use crate::error::Result;

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;
/// Batches a scan may be ahead of its consumer.
const BATCHES_AHEAD: usize = 3;

/// Name of the metric that counts a scan's buffer gets.
pub const GETS: &str = "gets";

/// Which columns of a stored row go where.
pub struct Columns {
    /// Types of the columns up to the last wanted one, with the wanted ones' place in the batch.
    steps: Vec<(ColType, Option<usize>)>,
    /// Knows what rows older than a column have in it.
    table: Arc<TableDef>,
    /// A column wanted several times cannot be: projections name each once.
    count: usize,
    fixed: Option<Fixed>,
}

/// Where the wanted columns are in a row that has all the table's columns and no NULL.
struct Fixed {
    /// Columns of the row, as its first two bytes have them.
    columns: [u8; 2],
    /// Bytes of the bitmap of NULLs, which come next.
    bitmap: usize,
    /// Bytes that a row has at least.
    least: usize,
    /// Place of a value in the row, its type, and its place in the batch.
    values: Vec<(usize, ColType, usize)>,
}

impl Fixed {
    fn new(types: &[ColType], steps: &[(ColType, Option<usize>)]) -> Option<Fixed> {
        let bitmap = types.len().div_ceil(8);
        let mut at = 2 + bitmap;
        let mut values = Vec::new();
        for (ty, place) in steps {
            if let Some(place) = place {
                values.push((at, *ty, *place));
            }
            at += ty.fixed_len()?;
        }
        Some(Fixed {
            columns: u16::try_from(types.len()).ok()?.to_le_bytes(),
            bitmap,
            least: at,
            values,
        })
    }

    #[inline]
    fn fits(&self, row: &[u8]) -> bool {
        row.len() >= self.least
            && row[..2] == self.columns
            && row[2..2 + self.bitmap].iter().all(|b| *b == 0)
    }
}

impl Columns {
    /// Of a table the wanted ones.
    pub fn new(table: &Arc<TableDef>, wanted: Vec<usize>) -> Columns {
        let types = &table.columns;
        let last = wanted.iter().max().map_or(0, |w| w + 1);
        let steps: Vec<_> = types[..last]
            .iter()
            .enumerate()
            .map(|(at, ty)| (*ty, wanted.iter().position(|w| *w == at)))
            .collect();
        Columns {
            fixed: Fixed::new(types, &steps),
            steps,
            table: table.clone(),
            count: wanted.len(),
        }
    }

    /// Adds the rows to the columns being built.
    pub fn decode(&self, rows: &[&[u8]], builders: &mut [Builder]) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        match &self.fixed {
            Some(fixed) if rows.iter().all(|r| fixed.fits(r)) => {
                for (at, ty, place) in &fixed.values {
                    builders[*place].gather(*ty, rows, *at)?;
                }
                Ok(())
            }
            _ => rows.iter().try_for_each(|r| self.decode_one(r, builders)),
        }
    }

    fn decode_one(&self, row: &[u8], builders: &mut [Builder]) -> Result<()> {
        let damaged =
            |e: block::BlockError| crate::Error::new("XX001", format!("damaged row: {e}"));
        let mut reader = RowReader::new(row).map_err(damaged)?;
        for (column, (ty, place)) in self.steps.iter().enumerate() {
            match place {
                None => reader.skip(*ty).map_err(damaged)?,
                Some(at) => builders[*at].push(
                    reader
                        .value(*ty)
                        .map_err(damaged)?
                        .unwrap_or_else(|| self.table.missing(column)),
                )?,
            }
        }
        Ok(())
    }
}

/// Rows on their way into batches.
pub struct Batches<'c> {
    schema: &'c SchemaRef,
    columns: &'c Columns,
    builders: Vec<Builder>,
    rows: usize,
}

impl<'c> Batches<'c> {
    pub fn new(schema: &'c SchemaRef, columns: &'c Columns) -> Result<Batches<'c>> {
        let builders = schema
            .fields()
            .iter()
            .map(|f| Builder::new(f.data_type(), BATCH_ROWS + 1024))
            .collect::<Result<Vec<_>>>()?;
        Ok(Batches {
            schema,
            columns,
            builders,
            rows: 0,
        })
    }

    pub fn add(&mut self, rows: &[&[u8]]) -> Result<()> {
        self.rows += rows.len();
        self.columns.decode(rows, &mut self.builders)
    }

    pub fn is_full(&self) -> bool {
        self.rows >= BATCH_ROWS
    }

    /// What came together since the last batch.
    pub fn take(&mut self) -> DfResult<Option<RecordBatch>> {
        if self.rows == 0 {
            return Ok(None);
        }
        let arrays = self.builders.iter_mut().map(Builder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?;
        Ok(Some(batch))
    }
}

/// The scan of a heap.
pub struct HeapExec {
    name: String,
    columns: Arc<Columns>,
    partitions: Vec<Mutex<Option<Reading>>>,
    rows: usize,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl HeapExec {
    pub fn new(
        name: String,
        schema: SchemaRef,
        columns: Arc<Columns>,
        partitions: Vec<Mutex<Option<Reading>>>,
        rows: usize,
    ) -> HeapExec {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions.len().max(1)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        HeapExec {
            name,
            columns,
            partitions,
            rows,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

impl fmt::Debug for HeapExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seq Scan on {}", self.name)
    }
}

impl DisplayAs for HeapExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<String> = self
            .schema()
            .fields()
            .iter()
            .map(|c| c.name().clone())
            .collect();
        write!(
            f,
            "Seq Scan on {} (columns: {}; threads: {})",
            self.name,
            columns.join(", "),
            self.partitions.len()
        )
    }
}

impl ExecutionPlan for HeapExec {
    fn name(&self) -> &str {
        "Seq Scan"
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }
    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }
    fn partition_statistics(&self, partition: Option<usize>) -> DfResult<Arc<Statistics>> {
        let share = if partition.is_some() {
            self.partitions.len().max(1)
        } else {
            1
        };
        Ok(Arc::new(
            Statistics::new_unknown(&self.schema())
                .with_num_rows(Precision::Inexact(self.rows / share)),
        ))
    }
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
    fn execute(
        &self,
        partition: usize,
        _: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        let mut builder = RecordBatchReceiverStream::builder(self.schema(), BATCHES_AHEAD);
        let Some(slot) = self.partitions.get(partition) else {
            return Ok(builder.build());
        };
        let reading = slot
            .lock()
            .take()
            .ok_or_else(|| crate::Error::internal("a scan was executed twice"))?;
        let (schema, columns, sender) = (self.schema(), self.columns.clone(), builder.tx());
        let rows = MetricBuilder::new(&self.metrics).output_rows(partition);
        let gets = MetricBuilder::new(&self.metrics).counter(GETS, partition);
        let time = MetricBuilder::new(&self.metrics).elapsed_compute(partition);
        builder.spawn_blocking(move || {
            let session = wait::session::register(
                wait::session::Kind::Background,
                &format!("p{partition:03}"),
            );
            let began = std::time::Instant::now();
            let send = |batch: RecordBatch| {
                rows.add(batch.num_rows());
                sender.blocking_send(Ok(batch)).is_ok()
            };
            let done = read(reading, &schema, &columns, send);
            let counters = &session.session().counters;
            gets.add(counters.stat(wait::Stat::ConsistentGets) as usize);
            time.add_elapsed(began);
            done
        });
        Ok(builder.build())
    }
}

/// Reads all rows and sends them on in batches, until nobody wants them any more.
fn read(
    mut reading: Reading,
    schema: &SchemaRef,
    columns: &Columns,
    send: impl Fn(RecordBatch) -> bool,
) -> DfResult<()> {
    let snapshot = reading.snapshot.snapshot();
    let mut batches = Batches::new(schema, columns)?;
    let mut failed = Ok(());
    loop {
        let more = reading.scan.next_rows_of(&snapshot, &mut |rows| {
            if failed.is_ok() {
                failed = batches.add(rows);
            }
        });
        let more = more.map_err(crate::Error::from)?;
        std::mem::replace(&mut failed, Ok(()))?;
        if (batches.is_full() || !more)
            && let Some(batch) = batches.take()?
            && !send(batch)
        {
            return Ok(());
        }
        if !more {
            return Ok(());
        }
    }
}
