//! Tables as DataFusion scans them: heaps at the statement's snapshot, and virtual tables.
//!
//! A heap's blocks are divided among the scan's partitions; each is read by a thread of its own, a session of the wait
//! interface, that sends batches through a bounded channel. It holds the snapshot registered itself, so that it may
//! outlive the statement by the batch it is at.

use std::fmt;
use std::sync::Arc;

use block::row::RowReader;
use block::value::{ColType, DatumRef};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Statistics};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result as DfResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
};
use engine::{HeapScan, HeldSnapshot};
use parking_lot::Mutex;

use super::arrow::{Builder, field};
use super::functions::arrays;
use crate::dict::Table;
use crate::error::Result;
use crate::types::SqlType;
use crate::views::{Context, VirtualTable};

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;
/// Batches a scan may be ahead of its consumer.
const BATCHES_AHEAD: usize = 3;
/// Tables from this size on are read by several threads.
const PARALLEL_BLOCKS: u64 = 512;
/// Threads of one scan.
const PARTITIONS: usize = 2;
/// Rows in a block of a table without statistics: of rows of about a hundred bytes.
const ROWS_PER_BLOCK: u64 = 64;

/// What a scan reads by.
pub struct Reading {
    pub scan: HeapScan,
    pub snapshot: HeldSnapshot,
}

/// A user's table. `reading` is there when the statement is executed, not when it is only planned.
pub struct HeapTable {
    table: Arc<Table>,
    schema: SchemaRef,
    rows: usize,
    reading: Option<Mutex<Reading>>,
}

impl fmt::Debug for HeapTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table.name)
    }
}

impl HeapTable {
    pub fn new(
        table: &Arc<Table>,
        rows: Option<f64>,
        reading: Option<Reading>,
    ) -> Result<HeapTable> {
        let mut fields = Vec::new();
        for (at, c) in table.live_columns() {
            fields.push(field(
                &c.name,
                c.ty(),
                c.typmod,
                (table.oid, at as i16 + 1),
            )?);
        }
        let blocks = reading.as_ref().map_or(Ok(1), |r| r.scan.blocks())?;
        let rows = rows.map_or(blocks * ROWS_PER_BLOCK, |n| n as u64) as usize;
        Ok(HeapTable {
            table: table.clone(),
            schema: Arc::new(Schema::new(fields)),
            rows,
            reading: reading.map(Mutex::new),
        })
    }
}

#[async_trait::async_trait]
impl TableProvider for HeapTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn table_type(&self) -> TableType {
        TableType::Base
    }
    fn statistics(&self) -> Option<Statistics> {
        Some(Statistics::new_unknown(&self.schema).with_num_rows(Precision::Inexact(self.rows)))
    }
    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let live: Vec<usize> = self.table.live_columns().map(|(at, _)| at).collect();
        let wanted: Vec<usize> = match projection {
            Some(p) => p.clone(),
            None => (0..live.len()).collect(),
        };
        let Some(reading) = &self.reading else {
            return Err(crate::Error::internal("a scan of a plan that is not executed").into());
        };
        let reading = reading.lock();
        let blocks = reading.scan.blocks().map_err(crate::Error::from)?;
        let parts = if blocks >= PARALLEL_BLOCKS {
            PARTITIONS
        } else {
            1
        };
        let mut partitions = Vec::new();
        for scan in reading.scan.split(parts).map_err(crate::Error::from)? {
            let snapshot = reading
                .snapshot
                .another()
                .map_err(engine::Error::from)
                .map_err(crate::Error::from)?;
            partitions.push(Mutex::new(Some(Reading { scan, snapshot })));
        }
        let schema = Arc::new(self.schema.project(&wanted)?);
        let columns = Arc::new(Columns::new(
            &self.table.engine().columns,
            wanted.iter().map(|w| live[*w]).collect(),
        ));
        Ok(Arc::new(HeapExec::new(
            self.table.name.clone(),
            schema,
            columns,
            partitions,
            self.rows,
        )))
    }
}

/// Which columns of a stored row go where.
struct Columns {
    /// Types of the columns up to the last wanted one, with the wanted ones' place in the batch.
    steps: Vec<(ColType, Option<usize>)>,
    /// A column wanted several times cannot be: projections name each once.
    count: usize,
}

impl Columns {
    fn new(types: &[ColType], wanted: Vec<usize>) -> Columns {
        let last = wanted.iter().max().map_or(0, |w| w + 1);
        let steps = types[..last]
            .iter()
            .enumerate()
            .map(|(at, ty)| (*ty, wanted.iter().position(|w| *w == at)));
        Columns {
            steps: steps.collect(),
            count: wanted.len(),
        }
    }

    #[inline]
    fn decode(&self, row: &[u8], builders: &mut [Builder]) -> Result<()> {
        let damaged =
            |e: block::BlockError| crate::Error::new("XX001", format!("damaged row: {e}"));
        let mut reader = RowReader::new(row).map_err(damaged)?;
        for (ty, place) in &self.steps {
            match place {
                None => reader.skip(*ty).map_err(damaged)?,
                Some(at) => builders[*at].push(
                    reader
                        .value(*ty)
                        .map_err(damaged)?
                        .unwrap_or(DatumRef::Null),
                )?,
            }
        }
        Ok(())
    }
}

/// The scan of a heap.
struct HeapExec {
    name: String,
    columns: Arc<Columns>,
    partitions: Vec<Mutex<Option<Reading>>>,
    rows: usize,
    properties: Arc<PlanProperties>,
}

impl HeapExec {
    fn new(
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
        builder.spawn_blocking(move || {
            let _session = wait::session::register(
                wait::session::Kind::Background,
                &format!("p{partition:03}"),
            );
            let send = |batch: RecordBatch| sender.blocking_send(Ok(batch)).is_ok();
            read(reading, &schema, &columns, send)
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
    let new = || {
        schema
            .fields()
            .iter()
            .map(|f| Builder::new(f.data_type(), BATCH_ROWS + 1024))
            .collect::<Result<Vec<_>>>()
    };
    let mut builders = new()?;
    let mut rows = 0;
    let mut failed = Ok(());
    loop {
        let more = reading.scan.next_block_of(&snapshot, &mut |_, row| {
            rows += 1;
            if columns.count > 0 && failed.is_ok() {
                failed = columns.decode(row, &mut builders);
            }
        });
        let more = more.map_err(crate::Error::from)?;
        std::mem::replace(&mut failed, Ok(()))?;
        if rows >= BATCH_ROWS || !more && rows > 0 {
            let arrays = builders.iter_mut().map(Builder::finish).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?;
            rows = 0;
            if !send(batch) {
                return Ok(());
            }
        }
        if !more {
            return Ok(());
        }
    }
}

/// A virtual table, read when it is scanned.
#[derive(Debug)]
pub struct ViewTable {
    view: &'static VirtualTable,
    schema: SchemaRef,
    context: Arc<Context>,
}

impl ViewTable {
    pub fn new(view: &'static VirtualTable, context: &Arc<Context>) -> Result<ViewTable> {
        let fields = view
            .columns
            .iter()
            .map(|(name, ty)| field(name, *ty, -1, (0, 0)))
            .collect::<Result<Vec<_>>>()?;
        Ok(ViewTable {
            view,
            schema: Arc::new(Schema::new(fields)),
            context: context.clone(),
        })
    }
}

#[async_trait::async_trait]
impl TableProvider for ViewTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn table_type(&self) -> TableType {
        TableType::View
    }
    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let rows = (self.view.rows)(&self.context)?;
        let types: Vec<SqlType> = self.view.columns.iter().map(|c| c.1).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let batch = RecordBatch::try_new_with_options(
            self.schema.clone(),
            arrays(&rows, &types)?,
            &options,
        )?;
        let exec = MemorySourceConfig::try_new_exec(
            &[vec![batch]],
            self.schema.clone(),
            projection.cloned(),
        );
        exec.map(|e| e as Arc<dyn ExecutionPlan>)
            .map_err(|e: DataFusionError| e)
    }
}
