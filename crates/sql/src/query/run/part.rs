//! Scans of a part of a table: the blocks of some `ctid`s, TABLESAMPLE.
//!
//! A sample is drawn as PostgreSQL draws it: a block or a row is in it by a hash of its place and
//! of the seed, so that one seed gives one sample of a table that has not changed.

use std::collections::BTreeSet;

use block::RowId;
use block::value::Datum;
use engine::HeapScan;

use super::Frame;
use crate::error::{Error, Result};
use crate::query::analyze::system::block_of;
use crate::query::plan::{Part, Sample, TableScan};
use crate::session::Core;

/// What is in a sample.
pub struct Drawn {
    seed: u64,
    /// Hashes below it are.
    below: u128,
}

impl Drawn {
    fn new(sample: &Sample, core: &mut Core, frame: &Frame) -> Result<Drawn> {
        let percent = match frame.eval(&sample.percent, core)? {
            Datum::Float8(p) if (0.0..=100.0).contains(&p) => p,
            Datum::Null => {
                return Err(Error::new("2202H", "TABLESAMPLE parameter cannot be null"));
            }
            _ => {
                let what = "sample percentage must be between 0 and 100";
                return Err(Error::new("2202H", what));
            }
        };
        let seed = match &sample.seed {
            None => core.random_bits(),
            Some(seed) => match frame.eval(seed, core)? {
                Datum::Float8(seed) => seed.to_bits(),
                _ => {
                    let what = "TABLESAMPLE REPEATABLE parameter cannot be null";
                    return Err(Error::new("2202G", what));
                }
            },
        };
        let below = (percent / 100.0 * (u64::MAX as f64 + 1.0)) as u128;
        Ok(Drawn { seed, below })
    }

    fn has(&self, place: u64) -> bool {
        let mut hash = seam::Rng(self.seed ^ place.rotate_left(32));
        u128::from(hash.next()) < self.below
    }

    pub fn has_row(&self, rid: RowId) -> bool {
        self.has(rid.0)
    }
}

/// What a scan reads of its table, if it is a part of it, and which of those rows.
pub fn part(
    plan: &TableScan,
    core: &mut Core,
    frame: &Frame,
) -> Result<Option<(HeapScan, Option<Drawn>)>> {
    let whole = |core: &mut Core| core.engine.scan(plan.access.table.engine());
    let tids = match &plan.part {
        Part::Whole => return Ok(None),
        Part::Sample(sample) => {
            let drawn = Drawn::new(sample, core, frame)?;
            let all = whole(core);
            return Ok(Some(match sample.blocks {
                true => {
                    let picked = all.picked(&mut |dba| drawn.has(u64::from(dba.block())))?;
                    (picked.counted(), None)
                }
                false => (all, Some(drawn)),
            }));
        }
        Part::Tids(list) => {
            let values = list.iter().map(|e| frame.eval(e, core));
            values.collect::<Result<Vec<_>>>()?
        }
        Part::TidsOf { subquery, most } => match core.subquery_rows(*subquery, *most)? {
            Some(rows) => rows.into_iter().flatten().collect(),
            None => return Ok(None),
        },
    };
    let blocks: BTreeSet<u32> = (tids.iter())
        .filter_map(|tid| match tid {
            Datum::Int8(tid) => block_of(*tid),
            _ => None,
        })
        .collect();
    Ok(Some((whole(core).of_blocks(&blocks)?, None)))
}
