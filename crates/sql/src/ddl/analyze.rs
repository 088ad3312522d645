//! ANALYZE: statistics of a table from a sample of its rows.
//!
//! As in PostgreSQL, blocks are drawn first and rows of theirs then, so what is read and what is
//! kept is bounded whatever the table's size: 300 blocks, and rows, for each of
//! `default_statistics_target`. The same blocks and rows of the same table are drawn each time, so
//! that plans are the same as long as the table is.

use std::sync::Arc;

use block::value::DatumRef;
use block::{ObjectId, RowId};
use engine::TableDef;

use super::Core;
use super::distribution::{Cell, Sample, of_column};
use crate::autoanalyze::BLOCKS_PER_REST;
use crate::dict::{Column, Object, Stats, Table};
use crate::error::Result;
use crate::exec::row::decode;
use crate::parse::utility::TableLock;

/// Rows looked at for each entry of a list: so many make the bounds of groups as good as one wants
/// them (Chaudhuri, Motwani and Narasayya, 1998).
const ROWS_PER_ENTRY: usize = 300;

/// What `abp0` does between blocks.
pub type Rest<'r> = &'r mut dyn FnMut() -> Result<()>;

/// Reads a table, or some of its columns, and stores what it found. Nothing is done if the table
/// was dropped before its lock was granted. For `abp0`, `rest` is called after every few blocks,
/// and may end it.
pub fn table(
    core: &mut Core,
    oid: u32,
    columns: &[String],
    mut rest: Option<Rest<'_>>,
) -> Result<()> {
    core.lock_table(oid, TableLock::ShareUpdateExclusive, false)?;
    let Some(table) = core.dict().table_by_oid(oid).cloned() else {
        return Ok(());
    };
    let chosen = chosen(&table, columns)?;
    let counted = core.database.changes.of(table.segment);
    let analyzed = crate::session::now_micros();
    let default = core.settings.statistics_target();
    let target = |c: &Column| c.storing.statistics.map_or(default, usize::from);
    let live = table.live_columns().map(|(_, c)| target(c));
    let most = live.max().unwrap_or(default).max(1);
    let is_command = rest.is_none();
    let mut rest = || rest.as_mut().map_or(Ok(()), |rest| rest());
    let found = sampled(core, &table, most * ROWS_PER_ENTRY, &mut rest)?;
    let before = core.dict().stats(oid).cloned();
    let kept = |at: usize| before.as_ref().and_then(|s| s.column(at).cloned());
    let mut stats = Vec::with_capacity(table.columns.len());
    for (at, column) in table.columns.iter().enumerate() {
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        let cells = found.rows.iter().map(|(_, row)| row[at].clone());
        stats.push(match chosen[at] {
            // Of an empty table nothing is found out.
            true if found.rows.is_empty() => None,
            true if target(column) == 0 => None,
            true => {
                let sample = Sample {
                    rows: found.rows.len() as f64,
                    of: found.total,
                    target: target(column),
                };
                let mut found = of_column(column.ty(), cells, sample);
                found.distinct = column.storing.distinct().unwrap_or(found.distinct);
                Some(found)
            }
            false => kept(at),
        });
    }
    let all_analyzed = match columns.is_empty() {
        true => analyzed,
        false => before.as_ref().map_or(0, |s| s.all_analyzed),
    };
    let mut done = before.map_or_else(Default::default, |s| [s.by_command, s.by_itself]);
    let way = &mut done[usize::from(!is_command)];
    *way = way.and_at(analyzed);
    let stats = Stats {
        table: table.oid,
        segment: table.segment,
        rows: found.total,
        blocks: found.blocks,
        columns: stats,
        analyzed,
        all_analyzed,
        by_command: done[0],
        by_itself: done[1],
    };
    core.database.changes.analyzing(&stats, counted);
    core.engine.live_rows_counted(ObjectId(table.segment));
    core.define(Object::Stats(Arc::new(stats)))
}

/// Which columns are asked for.
fn chosen(table: &Table, names: &[String]) -> Result<Vec<bool>> {
    let mut chosen: Vec<bool> = table
        .columns
        .iter()
        .map(|c| names.is_empty() && !c.dropped)
        .collect();
    for name in names {
        let at = table.column(name).ok_or_else(|| {
            let (column, table) = (name, &table.name);
            let message = format!("column \"{column}\" of relation \"{table}\" does not exist");
            crate::error::Error::new("42703", message)
        })?;
        if std::mem::replace(&mut chosen[at], true) {
            let (column, table) = (name, &table.name);
            let message =
                format!("column \"{column}\" of relation \"{table}\" appears more than once");
            return Err(crate::error::Error::new("42701", message));
        }
    }
    Ok(chosen)
}

struct Found {
    /// In the order of the table.
    rows: Vec<(RowId, Vec<Cell>)>,
    /// Rows and blocks of the table.
    total: f64,
    blocks: u64,
}

/// Draws blocks, and rows out of all that they have, by Waterman's algorithm R.
fn sampled(
    core: &mut Core,
    table: &Table,
    wanted: usize,
    rest: &mut dyn FnMut() -> Result<()>,
) -> Result<Found> {
    let def = table.engine().clone();
    let snapshot = core.engine.snapshot()?;
    let whole = core.engine.scan(&def);
    let seed = u64::from(table.oid);
    let (mut scan, blocks) = whole.sampled(wanted as u64, seed)?;
    let mut draw = seam::Rng(seed);
    let mut rows: Vec<(RowId, Vec<Cell>)> = Vec::new();
    let (mut met, mut read) = (0u64, 0u64);
    let mut drawn: Vec<(Option<usize>, RowId, Vec<u8>)> = Vec::new();
    loop {
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        // Taken apart outside: the rows are given under the block's latch.
        let more = scan.next_block(&mut core.engine, &snapshot, &mut |rid, bytes| {
            met += 1;
            let place = match met as usize <= wanted {
                true => None,
                false => Some(draw.below(met) as usize),
            };
            if place.is_none_or(|p| p < wanted) {
                drawn.push((place, rid, bytes.to_vec()));
            }
        })?;
        for (place, rid, bytes) in drawn.drain(..) {
            let row = (rid, cells(&def, &bytes)?);
            match place {
                Some(place) => rows[place] = row,
                None => rows.push(row),
            }
        }
        if !more {
            break;
        }
        read += 1;
        if read.is_multiple_of(BLOCKS_PER_REST) {
            rest()?;
        }
    }
    rows.sort_by_key(|(rid, _)| *rid);
    let total = match read == blocks {
        true => met as f64,
        false => (met as f64 / read.max(1) as f64 * blocks as f64 + 0.5).floor(),
    };
    Ok(Found {
        rows,
        total,
        blocks,
    })
}

fn cells(def: &TableDef, bytes: &[u8]) -> Result<Vec<Cell>> {
    let mut values: Vec<DatumRef<'_>> = Vec::with_capacity(def.columns.len());
    decode(bytes, def, def.columns.len(), &mut values)?;
    Ok(values.into_iter().map(Cell::of).collect())
}
