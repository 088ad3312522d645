//! Reading a table by the keys that it was told.

use std::sync::Arc;

use block::RowId;
use block::value::Datum;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::Result as DfResult;
use datafusion::physical_plan::metrics::Count;
use engine::Snapshot;

use super::lookup::Lookup;
use crate::exec::source::{as_slice, key_ranges};
use crate::expr::Env;
use crate::olap::bound::Settings;
use crate::olap::filters;
use crate::olap::scan::{Batches, Columns, Part};

/// By how much more rows than expected may be found before the table is scanned instead.
const SLACK: usize = 4;
/// Rows that may be found in whatever table.
const LEAST_ROWS: usize = 1000;

/// The keys to be looked up, by one partition of the scan for all. The others wait for what it decides, or for its end.
pub struct Keyed {
    pub lookup: Arc<Lookup>,
    pub keys: Arc<Vec<Vec<Datum>>>,
}

impl Drop for Keyed {
    fn drop(&mut self) {
        self.decide(false);
    }
}

impl Keyed {
    /// Decides, unless that was done.
    fn decide(&self, by_keys: bool) {
        let decide = |decided: &mut Option<bool>| match decided {
            None => {
                *decided = Some(by_keys);
                true
            }
            Some(_) => false,
        };
        self.lookup.decided.send_if_modified(decide);
    }

    /// Sends the rows that the keys lead to; false, and no row, if they are too many.
    pub fn read(
        &self,
        snapshot: &Snapshot,
        part: &Part,
        (schema, columns): (&SchemaRef, &Columns),
        send: &dyn Fn(RecordBatch) -> bool,
        count: &Count,
    ) -> DfResult<bool> {
        let mut found = Found {
            batches: Batches::new(schema, columns)?,
            held: Some(Vec::new()),
            bytes: 0,
            rows: 0,
            send,
        };
        let most = LEAST_ROWS.max(part.rows / filters::INDEX_SHARE * SLACK);
        let access = &self.lookup.access;
        let engine = part.context.database.engine();
        let mut row = Vec::new();
        for (done, key) in self.keys.iter().enumerate() {
            count.add(1);
            let env = Env {
                row: &[],
                params: key,
            };
            let ranges = key_ranges(access, &mut Settings(part.context.io), &env)?;
            let (index, ranges) = ranges.unwrap_or_default();
            for (low, high) in &ranges {
                let (low, high) = (as_slice(low), as_slice(high));
                let scan = engine.index_range(access.table.engine(), index, low, high, false);
                let mut scan = scan.map_err(crate::Error::from)?;
                while let Some(id) = scan
                    .next_of(snapshot, &mut row)
                    .map_err(crate::Error::from)?
                {
                    if !found.add(id, &row)? {
                        return Ok(true);
                    }
                    if found.held.is_none() {
                        continue;
                    }
                    if found.rows > most {
                        return Ok(false);
                    }
                    if found.bytes > filters::INDEX_BYTES {
                        let all = match done {
                            0 => access.rows as usize * self.keys.len(),
                            _ => found.rows / done * self.keys.len(),
                        };
                        if all > most {
                            return Ok(false);
                        }
                        self.decide(true);
                        if !found.release()? {
                            return Ok(true);
                        }
                    }
                }
            }
        }
        self.decide(true);
        found.release()?;
        found.end()?;
        wait::stat::add(wait::Stat::OlapIndexReads, 1);
        Ok(true)
    }
}

/// Rows that were found, on their way.
struct Found<'f> {
    batches: Batches<'f>,
    /// Until it is decided that they are what is wanted.
    held: Option<Vec<RecordBatch>>,
    bytes: usize,
    rows: usize,
    send: &'f dyn Fn(RecordBatch) -> bool,
}

impl Found<'_> {
    /// Takes a row. False if nobody wants any more.
    fn add(&mut self, id: RowId, row: &[u8]) -> DfResult<bool> {
        self.batches.add_one(id, row)?;
        (self.rows, self.bytes) = (self.rows + 1, self.bytes + row.len());
        match self.batches.is_full() {
            true => self.end(),
            false => Ok(true),
        }
    }

    /// Ends the batch.
    fn end(&mut self) -> DfResult<bool> {
        let Some(batch) = self.batches.take()? else {
            return Ok(true);
        };
        Ok(match &mut self.held {
            Some(held) => {
                held.push(batch);
                true
            }
            None => (self.send)(batch),
        })
    }

    /// Sends what was held, and holds no more.
    fn release(&mut self) -> DfResult<bool> {
        let held = self.held.take().unwrap_or_default();
        Ok(held.into_iter().all(|batch| (self.send)(batch)))
    }
}
