//! Reading tables into batches. A heap's blocks are divided among the scan's partitions; each is read by a thread of its
//! own, a session of the wait interface, that sends batches through a bounded channel. It holds the snapshot registered
//! itself, so that it may outlive the statement by the batch it is at.
//!
//! The rows of a block are taken apart column by column under the block's latch. Where the wanted columns stand at the
//! same place in every row, because those before them have a fixed length and none is NULL, they are read from there.

use std::fmt;
use std::sync::Arc;

use block::RowId;
use block::row::RowReader;
use block::value::{ColType, DatumRef};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as DfResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, Time,
};
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, EmptyRecordBatchStream, ExecutionPlan, Partitioning,
    PhysicalExpr, PlanProperties,
};
use engine::TableDef;
use futures::StreamExt;
use parking_lot::Mutex;

use super::builder::Builder;
use super::keyed::{Keyed, Lookup, Task};
use super::tables::Reading;
use super::target::ROW_ID;
use crate::dict::Table;
use crate::error::Result;
use crate::expr::Expr;
use crate::views::Context;

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;
/// Batches a scan may be ahead of its consumer.
const BATCHES_AHEAD: usize = 3;

/// Name of the metric that counts a scan's buffer gets.
pub const GETS: &str = "gets";
/// And the keys that were looked up.
pub const LOOKUPS: &str = "lookups";

/// Stands for the row's id among the places of columns in stored rows.
pub const ID: usize = usize::MAX;

/// Which columns of a stored row go where.
pub struct Columns {
    /// Types of the columns up to the last wanted one, with the wanted ones' place in the batch.
    steps: Vec<(ColType, Option<usize>)>,
    /// Knows what rows older than a column have in it.
    table: Arc<TableDef>,
    /// A column wanted several times cannot be: projections name each once.
    count: usize,
    fixed: Option<Fixed>,
    /// The place of the row's id in the batch.
    id: Option<usize>,
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
        let id = wanted.iter().position(|w| *w == ID);
        let stored = wanted.iter().filter(|w| **w != ID);
        let last = stored.max().map_or(0, |w| w + 1);
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
            id,
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

    /// Adds a row, and its id if that is wanted.
    pub fn add_one(&mut self, id: RowId, row: &[u8]) -> Result<()> {
        self.add(&[row])?;
        match self.columns.id {
            Some(at) => self.builders[at].push(DatumRef::Int8(id.0 as i64)),
            None => Ok(()),
        }
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

/// What of a table is read.
pub struct Part {
    pub table: Arc<Table>,
    pub context: Arc<Context>,
    /// The columns that are wanted, by their places in stored rows.
    pub wanted: Vec<usize>,
    /// What the filters above say of the rows.
    pub known: Vec<Expr>,
    /// Rows of the table, about.
    pub rows: usize,
}

/// How it is read.
pub enum By {
    Scan,
    /// Rows that the index of this name has led to while the plan was made, and the buffer gets that took.
    Index {
        name: String,
        batches: Vec<RecordBatch>,
        gets: usize,
    },
    /// By keys that a join's other side gives.
    Keys(Arc<Lookup>),
}

/// Reads a table, or those rows of it that an index leads to.
pub struct HeapExec {
    pub part: Arc<Part>,
    by: By,
    columns: Arc<Columns>,
    partitions: Partitions,
    /// Rows expected of it.
    expected: usize,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// Each is read by whoever executes it, and that more than once below a recursive query; `None` in a plan that is only shown.
pub type Partitions = Arc<Vec<Option<Mutex<Reading>>>>;

impl HeapExec {
    pub fn new(
        part: Arc<Part>,
        by: By,
        schema: SchemaRef,
        partitions: Partitions,
        expected: usize,
    ) -> HeapExec {
        let threads = match by {
            By::Index { .. } => 1,
            _ => partitions.len().max(1),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(threads),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let columns = Columns::new(part.table.engine(), part.wanted.clone());
        HeapExec {
            part,
            by,
            columns: Arc::new(columns),
            partitions,
            expected,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// Whether it reads all of its table, and so may read by keys instead.
    pub fn is_scan(&self) -> bool {
        matches!(self.by, By::Scan)
    }

    /// The same rows, or at least those with one of the keys.
    pub fn by_keys(&self, lookup: Arc<Lookup>) -> HeapExec {
        let (part, partitions) = (self.part.clone(), self.partitions.clone());
        HeapExec::new(
            part,
            By::Keys(lookup),
            self.schema(),
            partitions,
            self.expected,
        )
    }

    fn found(&self, batches: &[RecordBatch], gets: usize) -> DfResult<SendableRecordBatchStream> {
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        MetricBuilder::new(&self.metrics).output_rows(0).add(rows);
        MetricBuilder::new(&self.metrics).counter(GETS, 0).add(gets);
        let stream = MemoryStream::try_new(batches.to_vec(), self.schema(), None)?;
        Ok(Box::pin(stream))
    }
}

impl fmt::Debug for HeapExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.part.table.name;
        match &self.by {
            By::Scan => write!(f, "Seq Scan on {name}"),
            By::Index { name: index, .. } => write!(f, "Index Scan using {index} on {name}"),
            By::Keys(lookup) => write!(f, "Index Lookup using {} on {name}", lookup.index()),
        }
    }
}

impl DisplayAs for HeapExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<String> = self
            .schema()
            .fields()
            .iter()
            .map(|c| match c.name().as_str() {
                ROW_ID => "row id".to_string(),
                name => name.to_string(),
            })
            .collect();
        write!(f, "{self:?} (columns: {}", columns.join(", "))?;
        match &self.by {
            By::Scan => write!(f, "; threads: {})", self.partitions.len().max(1)),
            By::Index { .. } => f.write_str(")"),
            By::Keys(lookup) => write!(f, "; {lookup})"),
        }
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
        let share = match partition {
            Some(_) => self.properties.partitioning.partition_count(),
            None => 1,
        };
        let mut statistics = Statistics::new_unknown(&self.schema());
        statistics.num_rows = Precision::Inexact(self.expected / share);
        let part = &*self.part;
        if let Some(known) = part.context.dict.stats(part.table.oid) {
            for (of, column) in statistics.column_statistics.iter_mut().zip(&part.wanted) {
                if let Some(c) = known.columns.get(*column) {
                    of.distinct_count = Precision::Inexact((c.distinct as usize).max(1));
                }
            }
        }
        Ok(Arc::new(statistics))
    }
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
    fn execute(
        &self,
        partition: usize,
        _: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        if let By::Index { batches, gets, .. } = &self.by {
            return self.found(batches, *gets);
        }
        let Some(reading) = self.partitions.get(partition) else {
            // A table without blocks.
            return Ok(Box::pin(EmptyRecordBatchStream::new(self.schema())));
        };
        let Some(reading) = reading else {
            return Err(crate::Error::internal("a scan of a plan that is not executed").into());
        };
        let reading = reading.lock().another()?;
        let reader = Reader {
            reading,
            part: self.part.clone(),
            schema: self.schema(),
            columns: self.columns.clone(),
            partition,
            rows: MetricBuilder::new(&self.metrics).output_rows(partition),
            gets: MetricBuilder::new(&self.metrics).counter(GETS, partition),
            time: MetricBuilder::new(&self.metrics).elapsed_compute(partition),
        };
        let By::Keys(lookup) = &self.by else {
            return Ok(reader.start(None));
        };
        let count = MetricBuilder::new(&self.metrics).counter(LOOKUPS, partition);
        let lookup = lookup.clone();
        let begin = async move {
            match lookup.task().await {
                Task::Scan => reader.start(None),
                Task::LookUp(keyed) => reader.start(Some((keyed, count))),
                Task::Nothing => Box::pin(EmptyRecordBatchStream::new(reader.schema)),
            }
        };
        let stream = futures::stream::once(begin).flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            stream,
        )))
    }
}

/// A partition of a scan about to begin.
struct Reader {
    reading: Reading,
    part: Arc<Part>,
    schema: SchemaRef,
    columns: Arc<Columns>,
    partition: usize,
    rows: Count,
    gets: Count,
    time: Time,
}

impl Reader {
    /// Reads on a thread of its own: by keys, if there are any to read by.
    fn start(self, keyed: Option<(Keyed, Count)>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStream::builder(self.schema.clone(), BATCHES_AHEAD);
        let sender = builder.tx();
        builder.spawn_blocking(move || {
            let session = wait::session::register(
                wait::session::Kind::Background,
                &format!("p{:03}", self.partition),
            );
            let began = std::time::Instant::now();
            let send = |batch: RecordBatch| {
                self.rows.add(batch.num_rows());
                sender.blocking_send(Ok(batch)).is_ok()
            };
            let (schema, columns) = (&self.schema, &*self.columns);
            let snapshot = self.reading.snapshot.snapshot();
            let by_keys = match &keyed {
                Some((keyed, count)) => {
                    keyed.read(&snapshot, &self.part, (schema, columns), &send, count)
                }
                None => Ok(false),
            };
            // Others may begin to scan.
            drop(keyed);
            let done = match by_keys {
                Ok(false) => read(self.reading, schema, columns, send),
                other => other.map(drop),
            };
            let counters = &session.session().counters;
            self.gets
                .add(counters.stat(wait::Stat::ConsistentGets) as usize);
            self.time.add_elapsed(began);
            done
        });
        builder.build()
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
        let more = match columns.id {
            None => reading.scan.next_rows_of(&snapshot, &mut |rows| {
                if failed.is_ok() {
                    failed = batches.add(rows);
                }
            }),
            Some(_) => reading.scan.next_block_of(&snapshot, &mut |id, row| {
                if failed.is_ok() {
                    failed = batches.add_one(id, row);
                }
            }),
        };
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
