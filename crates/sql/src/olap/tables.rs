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
use super::scan::{By, Columns, HeapExec, ID, Part};
use super::target::ROW_ID;
use crate::dict::Table;
use crate::error::Result;
use crate::plan::Path;
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

impl Reading {
    /// The same for one more scan.
    pub fn another(&self) -> Result<Reading> {
        let snapshot = self.snapshot.another().map_err(engine::Error::from)?;
        Ok(Reading {
            scan: self.scan.clone(),
            snapshot,
        })
    }
}

/// What a query's tables are opened for.
pub enum Opened {
    /// Only to learn the query's columns.
    Named,
    /// To show the plan, in which a table's blocks count.
    Shown { blocks: u64 },
    /// To be read.
    Read(Reading),
}

impl Opened {
    fn blocks(&self) -> Result<u64> {
        match self {
            Opened::Named => Ok(1),
            Opened::Shown { blocks } => Ok(*blocks),
            Opened::Read(reading) => Ok(reading.scan.blocks()?),
        }
    }
}

/// A user's table.
pub struct HeapTable {
    table: Arc<Table>,
    schema: SchemaRef,
    context: Arc<Context>,
    rows: usize,
    opened: Mutex<Opened>,
}

impl fmt::Debug for HeapTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table.name)
    }
}

/// Schema under which a query finds tables with their row ids, as the last column. No user can have one of that name.
pub const WITH_ROW_IDS: &str = "braid$rows";

impl HeapTable {
    /// Also gives the ids of the rows.
    pub fn with_row_ids(
        table: &Arc<Table>,
        context: &Arc<Context>,
        opened: Opened,
    ) -> Result<HeapTable> {
        let mut heap = HeapTable::new(table, context, opened)?;
        let mut fields = heap.schema.fields().to_vec();
        fields.push(Arc::new(field(ROW_ID, SqlType::Int8, -1, (0, 0))?));
        heap.schema = Arc::new(Schema::new(fields));
        Ok(heap)
    }

    pub fn new(table: &Arc<Table>, context: &Arc<Context>, opened: Opened) -> Result<HeapTable> {
        let mut fields = Vec::new();
        for (at, c) in table.live_columns() {
            fields.push(field(
                &c.name,
                c.ty(),
                c.typmod,
                (table.oid, at as i16 + 1),
            )?);
        }
        let rows = expected_rows(table, context, &opened)?;
        Ok(HeapTable {
            table: table.clone(),
            schema: Arc::new(Schema::new(fields)),
            context: context.clone(),
            rows,
            opened: Mutex::new(opened),
        })
    }

    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Rows that it has, about.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// What filters say that the direct lane understands.
    pub fn terms(&self, filters: &[Expr]) -> Vec<crate::expr::Expr> {
        let term = |f| filters::term(f, &self.table, &self.schema);
        filters.iter().filter_map(term).collect()
    }

    /// The rows that indexes lead to for any of the sets of terms, or how all are read. `part` says what is wanted.
    fn by(
        &self,
        part: &Part,
        sets: &[Vec<crate::expr::Expr>],
        schema: &SchemaRef,
        opened: &Opened,
    ) -> DfResult<By> {
        let Some(first) = sets.first() else {
            // Of none of the keys there can be a row.
            let (name, batches, gets) = ("nothing".to_string(), Vec::new(), 0);
            return Ok(By::Index {
                name,
                batches,
                gets,
            });
        };
        if first.is_empty() {
            return Ok(By::Scan);
        }
        let access = filters::access(&self.context, &self.table, first.clone());
        let Path::Index { index, .. } = access.path else {
            return Ok(By::Scan);
        };
        let name = self.table.indexes[index].name.clone();
        let Opened::Read(reading) = opened else {
            let few = access.rows <= filters::most_rows(self.rows) as f64;
            let (batches, gets) = (Vec::new(), 0);
            return Ok(match few {
                true => By::Index {
                    name,
                    batches,
                    gets,
                },
                false => By::Scan,
            });
        };
        let columns = Columns::new(self.table.engine(), part.wanted.clone());
        let gets = || {
            let counted = |s: &wait::session::Session| s.counters.stat(wait::Stat::ConsistentGets);
            wait::session::with(counted).unwrap_or(0)
        };
        let before = gets();
        let found = filters::by_index(
            &self.context,
            &self.table,
            sets,
            &reading.snapshot.snapshot(),
            (schema, &columns),
            self.rows,
        )?;
        Ok(found.map_or(By::Scan, |batches| By::Index {
            name,
            batches,
            gets: (gets() - before) as usize,
        }))
    }
}

/// About how many rows a table has: as its statistics say, or as many as fit its blocks.
pub fn expected_rows(table: &Table, context: &Context, opened: &Opened) -> Result<usize> {
    let known = context.dict.stats(table.oid).map(|s| s.rows as u64);
    let rows = match known {
        Some(rows) => rows,
        None => opened.blocks()? * ROWS_PER_BLOCK,
    };
    Ok(rows as usize)
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
        let known = self.terms(filters);
        self.read(projection, known.clone(), &[known])
    }
}

impl HeapTable {
    /// A plan that reads the rows for which the terms that are known hold, and those of any of the sets; it may give others as well.
    pub fn read(
        &self,
        projection: Option<&Vec<usize>>,
        known: Vec<crate::expr::Expr>,
        sets: &[Vec<crate::expr::Expr>],
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let live: Vec<usize> = self.table.live_columns().map(|(at, _)| at).collect();
        let wanted: Vec<usize> = match projection {
            Some(p) => p.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let opened = self.opened.lock();
        let schema = Arc::new(self.schema.project(&wanted)?);
        let part = Part {
            table: self.table.clone(),
            context: self.context.clone(),
            wanted: wanted
                .iter()
                .map(|w| live.get(*w).copied().unwrap_or(ID))
                .collect(),
            known,
            rows: self.rows,
        };
        let by = self.by(&part, sets, &schema, &opened)?;
        let mut partitions = Vec::new();
        if let (By::Scan, Opened::Read(reading)) = (&by, &*opened) {
            let blocks = reading.scan.blocks().map_err(crate::Error::from)?;
            let parts = match blocks >= LARGE_BLOCKS {
                true => PARTITIONS,
                false => 1,
            };
            for scan in reading.scan.split(parts).map_err(crate::Error::from)? {
                let snapshot = reading.another()?.snapshot;
                partitions.push(Some(Mutex::new(Reading { scan, snapshot })));
            }
        } else if opened.blocks()? >= LARGE_BLOCKS {
            // Shown as it would be divided.
            partitions.extend((0..PARTITIONS).map(|_| None));
        }
        let expected = match (&by, &*opened) {
            (By::Index { batches, .. }, Opened::Read(_)) => {
                batches.iter().map(RecordBatch::num_rows).sum()
            }
            _ if part.known.is_empty() => self.rows,
            _ => filters::access(&self.context, &self.table, part.known.clone()).rows as usize,
        };
        let (part, partitions) = (Arc::new(part), Arc::new(partitions));
        Ok(Arc::new(HeapExec::new(
            part, by, schema, partitions, expected,
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
