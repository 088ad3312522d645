//! A table's rows on their way: through the scan's filter, conditions and joins, in batches.
//!
//! Batches are pushed: each stage gives what it makes of a batch to the next, and the last to
//! whoever collects. A stage keeps nothing between two batches.

use std::sync::Arc;

use engine::TableDef;

use super::Stop;
use super::batch::Batch;
use super::condition::{Condition, TRUE};
use super::decode::Decoder;
use super::join::{Join, Semi};
use crate::exec::profile::StepKey;

pub struct Pipeline {
    pub decoder: Decoder,
    pub table: Arc<TableDef>,
    /// By which EXPLAIN knows the scan.
    pub scanned: StepKey,
    /// The scan's: all must hold, in this order.
    pub filter: Vec<Condition>,
    pub stages: Vec<Stage>,
    pub threads: usize,
}

pub enum Stage {
    /// All must hold, in this order.
    Filter(Vec<Condition>),
    Join(Box<Join>),
    Semi(Box<Semi>),
}

impl Pipeline {
    pub fn joins(&self) -> impl Iterator<Item = &Join> {
        self.stages.iter().filter_map(|s| match s {
            Stage::Join(join) => Some(&**join),
            Stage::Filter(_) | Stage::Semi(_) => None,
        })
    }

    pub fn joins_mut(&mut self) -> impl Iterator<Item = &mut Join> {
        self.stages.iter_mut().filter_map(|s| match s {
            Stage::Join(join) => Some(&mut **join),
            Stage::Filter(_) | Stage::Semi(_) => None,
        })
    }

    pub fn semis_mut(&mut self) -> impl Iterator<Item = &mut Semi> {
        self.stages.iter_mut().filter_map(|s| match s {
            Stage::Semi(semi) => Some(&mut **semi),
            Stage::Filter(_) | Stage::Join(_) => None,
        })
    }

    /// Whether no row can pass: it would need a partner where there is none.
    pub fn is_barren(&self) -> bool {
        self.joins().any(Join::is_barren)
    }

    /// Gives what the stages make of a batch that has passed the scan's filter.
    pub fn push(
        &self,
        batch: &mut Batch,
        to: &mut dyn FnMut(&mut Batch) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        push(&self.stages, batch, to)
    }

    /// Gives what comes when all batches are through: rows of build sides without a partner.
    pub fn rest(&self, to: &mut dyn FnMut(&mut Batch) -> Result<(), Stop>) -> Result<(), Stop> {
        let empty = self.decoder.batch();
        for (at, stage) in self.stages.iter().enumerate() {
            if let Stage::Join(join) = stage {
                join.rest(&empty, &mut |batch| push(&self.stages[at + 1..], batch, to))?;
            }
        }
        Ok(())
    }
}

fn push(
    stages: &[Stage],
    batch: &mut Batch,
    to: &mut dyn FnMut(&mut Batch) -> Result<(), Stop>,
) -> Result<(), Stop> {
    if batch.rows == 0 {
        return Ok(());
    }
    match stages.split_first() {
        None => to(batch),
        Some((Stage::Filter(conditions), rest)) => {
            filter(conditions, batch)?;
            push(rest, batch, to)
        }
        Some((Stage::Semi(semi), rest)) => {
            semi.filter(batch)?;
            push(rest, batch, to)
        }
        Some((Stage::Join(join), rest)) => join.probe(batch, &mut |batch| push(rest, batch, to)),
    }
}

/// Leaves the rows of a batch for which all conditions hold.
pub fn filter(mut conditions: &[Condition], batch: &mut Batch) -> Result<(), Stop> {
    while let Some((first, rest)) = conditions.split_first() {
        let mut truth = first.eval(batch)?;
        conditions = rest;
        // What cannot stop is looked at together.
        while let Some((next, rest)) = conditions.split_first()
            && !next.can_stop()
        {
            let more = next.eval(batch)?;
            truth.iter_mut().zip(more).for_each(|(t, m)| *t = m.min(*t));
            conditions = rest;
        }
        if truth.iter().any(|t| *t != TRUE) {
            let keep: Vec<bool> = truth.iter().map(|t| *t == TRUE).collect();
            batch.keep(&keep);
        }
    }
    Ok(())
}
