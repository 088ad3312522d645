//! Which rows a statement wants of several indexes: the ranges of each.

use std::ops::Bound;

use engine::{Entries, RowsOfKeys, Snapshot};

use super::source::{KeyRange, equal_key, listed_keys, range};
use crate::error::Result;
use crate::expr::{Calls, Env};
use crate::plan::{IndexPart, TableAccess};
use crate::session::Core;

/// The rows that all of the indexes lead to. `None`: all rows are to be read.
pub fn rows(
    access: &TableAccess,
    parts: &[IndexPart],
    core: &mut Core,
    snapshot: &Snapshot,
    env: &Env<'_>,
) -> Result<Option<RowsOfKeys>> {
    let mut entries = Vec::with_capacity(parts.len());
    for part in parts {
        entries.push(Entries {
            index: part.index,
            ranges: ranges(access, part, core, env)?,
        });
    }
    let memory = core.settings.kilobytes("work_mem");
    let table = access.table.engine();
    Ok(core
        .engine
        .rows_in_common(table, &entries, snapshot, memory)?)
}

/// None if no row can meet the conditions.
fn ranges(
    access: &TableAccess,
    part: &IndexPart,
    calls: &mut dyn Calls,
    env: &Env<'_>,
) -> Result<Vec<KeyRange>> {
    let Some(key) = equal_key(access, part.index, &part.equal, calls, env)? else {
        return Ok(Vec::new());
    };
    if !part.any_of.is_empty() {
        let keys = listed_keys(access, part.index, key, &part.any_of, calls, env)?;
        let at = |key: Vec<_>| (Bound::Included(key.clone()), Bound::Included(key));
        return Ok(keys.into_iter().map(at).collect());
    }
    let (low, high) = (part.low.as_ref(), part.high.as_ref());
    let range = range(access, part.index, key, low, high, calls, env)?;
    Ok(range.into_iter().collect())
}
