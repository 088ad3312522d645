//! Tables as DataFusion finds them: heaps at the statement's snapshot, and virtual tables.
//!
//! Filters that an index fits are used to read through it, if that brings few enough rows to be read at once, when the
//! plan is made; all others, and these again, are checked by DataFusion's own filters over the batches.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use engine::{HeapScan, HeldSnapshot};
use parking_lot::Mutex;

use super::arrow::field;
use super::filters;
use super::functions::arrays;
use super::scan::{Columns, HeapExec};
use crate::dict::Table;
use crate::error::Result;
use crate::types::SqlType;
use crate::views::{Context, VirtualTable};

/// Tables from this size on are read by several threads.
pub const LARGE_BLOCKS: u64 = 512;
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
    context: Arc<Context>,
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
        context: &Arc<Context>,
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
        let rows = expected_rows(table, context, reading.as_ref())?;
        Ok(HeapTable {
            table: table.clone(),
            schema: Arc::new(Schema::new(fields)),
            context: context.clone(),
            rows,
            reading: reading.map(Mutex::new),
        })
    }
}

/// About how many rows a table has: as its statistics say, or as many as fit its blocks.
pub fn expected_rows(table: &Table, context: &Context, reading: Option<&Reading>) -> Result<usize> {
    let blocks = reading.map_or(Ok(1), |r| r.scan.blocks())?;
    let known = context.dict.stats(table.oid).map(|s| s.rows as u64);
    Ok(known.unwrap_or(blocks * ROWS_PER_BLOCK) as usize)
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
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> DfResult<Vec<TableProviderFilterPushDown>> {
        Ok(filters::pushed(filters, &self.table, &self.schema))
    }
    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
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
        let schema = Arc::new(self.schema.project(&wanted)?);
        let columns = Arc::new(Columns::new(
            self.table.engine(),
            wanted.iter().map(|w| live[*w]).collect(),
        ));
        let terms = filters
            .iter()
            .filter_map(|f| filters::term(f, &self.table, &self.schema))
            .collect();
        let found = filters::by_index(
            &self.context,
            &self.table,
            terms,
            &reading.snapshot.snapshot(),
            (&schema, &columns),
            self.rows,
        )?;
        if let Some(batches) = found {
            let exec = MemorySourceConfig::try_new_exec(&[batches], schema, None);
            return exec.map(|e| e as Arc<dyn ExecutionPlan>);
        }
        let blocks = reading.scan.blocks().map_err(crate::Error::from)?;
        let parts = if blocks >= LARGE_BLOCKS {
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
        Ok(Arc::new(HeapExec::new(
            self.table.name.clone(),
            schema,
            columns,
            partitions,
            self.rows,
        )))
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
        let rows = self.view.read(&self.context)?;
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
    }
}
