//! ANALYZE: row count, and per column the number of distinct values, share of NULLs, least and greatest value.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use block::value::{Datum, DatumRef};

use super::Core;
use crate::dict::{ColumnStats, Object, Stats};
use crate::error::Result;
use crate::exec::row::decode;
use crate::expr::compare;
use crate::parse::utility::TableLock;
use crate::pgtype;

/// Rows looked at for values; all rows are counted. A power of two, thinned by halves, keeps the sample even over a
/// table whose size is not known beforehand.
const SAMPLE_ROWS: usize = 30_000;

/// Reads a table and stores what it found. Nothing is done if the table was dropped before its lock
/// was granted.
pub fn table(core: &mut Core, oid: u32) -> Result<()> {
    core.lock_table(oid, TableLock::ShareUpdateExclusive, false)?;
    let Some(table) = core.dict().table_by_oid(oid).cloned() else {
        return Ok(());
    };
    let def = table.engine().clone();
    let snapshot = core.engine.snapshot()?;
    let mut scan = core.engine.scan(&def);
    let (mut rows, mut blocks, mut step) = (0u64, 0u64, 1u64);
    let mut sample: Vec<Vec<u8>> = Vec::new();
    loop {
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        let more = scan.next_block(&mut core.engine, &snapshot, &mut |_, bytes| {
            if rows % step == 0 {
                sample.push(bytes.to_vec());
            }
            rows += 1;
        })?;
        if sample.len() >= SAMPLE_ROWS * 2 {
            let mut at = 0;
            sample.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            step *= 2;
        }
        if !more {
            break;
        }
        blocks += 1;
    }
    let mut columns = vec![Found::default(); def.columns.len()];
    for row in &sample {
        let mut values: Vec<DatumRef<'_>> = Vec::with_capacity(columns.len());
        decode(row, &def, def.columns.len(), &mut values)?;
        for (found, value) in columns.iter_mut().zip(&values) {
            found.add(*value)?;
        }
    }
    let columns = columns
        .iter()
        .zip(&table.columns)
        .map(|(f, c)| f.stats(c.ty(), core, sample.len() as f64, rows as f64))
        .collect();
    let stats = Stats {
        table: table.oid,
        rows: rows as f64,
        blocks,
        columns,
    };
    core.define(Object::Stats(Arc::new(stats)))
}

#[derive(Clone, Default)]
struct Found {
    nulls: u64,
    /// Hashes of the values seen once, and of those seen more often.
    once: HashSet<u64>,
    often: HashSet<u64>,
    min: Datum,
    max: Datum,
}

impl Found {
    fn add(&mut self, value: DatumRef<'_>) -> Result<()> {
        if value.is_null() {
            self.nulls += 1;
            return Ok(());
        }
        let mut hasher = DefaultHasher::new();
        format!("{value:?}").hash(&mut hasher);
        let hash = hasher.finish();
        if !self.often.contains(&hash) && !self.once.insert(hash) {
            self.once.remove(&hash);
            self.often.insert(hash);
        }
        if self.min.is_null() || compare(value, self.min.borrow())?.is_lt() {
            self.min = value.to_datum();
        }
        if self.max.is_null() || compare(value, self.max.borrow())?.is_gt() {
            self.max = value.to_datum();
        }
        Ok(())
    }

    /// The number of distinct values by the estimator of Haas and Stokes, which PostgreSQL uses too:
    /// n*d / (n - f1 + f1*n/N), with f1 the values seen exactly once.
    fn stats(&self, ty: crate::SqlType, core: &Core, sampled: f64, total: f64) -> ColumnStats {
        let seen_once = self.once.len() as f64;
        let distinct = seen_once + self.often.len() as f64;
        let n = (sampled - self.nulls as f64).max(0.0);
        let estimate = if n == 0.0 {
            0.0
        } else {
            n * distinct / (n - seen_once + seen_once * n / total.max(n))
        };
        let text = |d: &Datum| {
            if d.is_null() {
                return None;
            }
            let mut out = Vec::new();
            pgtype::text_out(ty, d.borrow(), &core.io, &mut out);
            String::from_utf8(out).ok().filter(|s| s.len() <= 1000)
        };
        ColumnStats {
            distinct: estimate.max(distinct).min(total),
            null_fraction: if sampled > 0.0 {
                self.nulls as f64 / sampled
            } else {
                0.0
            },
            min: text(&self.min),
            max: text(&self.max),
        }
    }
}
