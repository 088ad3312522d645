//! Which rows a statement wants of an inverted index: the values of its conditions as keys.

use block::value::DatumRef;
use engine::{RowsOfKeys, Snapshot, Wanted};

use super::source::{Fit, fit};
use crate::dict::inverted::Strategy;
use crate::error::{Error, Result};
use crate::expr::{Calls, Env};
use crate::plan::TableAccess;
use crate::plan::inverted::ElementTerm;
use crate::session::Core;
use engine::ComputedKey;

/// The rows that an inverted index leads to. `None`: all rows are to be read.
pub fn rows(
    access: &TableAccess,
    (index, terms, most): (usize, &[ElementTerm], Option<u64>),
    core: &mut Core,
    snapshot: &Snapshot,
    env: &Env<'_>,
) -> Result<Option<RowsOfKeys>> {
    let wanted = terms
        .iter()
        .map(|term| of_term(access, index, term, core, env));
    let wanted = Wanted::All(wanted.collect::<Result<_>>()?);
    let table = access.table.engine();
    let def = &table.indexes[index];
    let memory = core.settings.kilobytes("work_mem");
    let most = most.and_then(|n| usize::try_from(n).ok());
    let most = most.map_or(memory, |n| {
        memory.min(n.saturating_mul(size_of::<block::RowId>()))
    });
    Ok(core
        .engine
        .rows_of_keys(table, def, &wanted, snapshot, most)?)
}

/// What one condition wants.
fn of_term(
    access: &TableAccess,
    index: usize,
    term: &ElementTerm,
    calls: &mut dyn Calls,
    env: &Env<'_>,
) -> Result<Wanted> {
    let def = &access.table.indexes[index];
    let inverted = def.inverted.as_ref();
    let inverted = inverted.ok_or_else(|| Error::internal("an index that is not inverted"))?;
    let (class, ty) = (
        inverted.classes[term.key],
        inverted.values.types()[term.key],
    );
    let mut any = Vec::with_capacity(term.values.len());
    for e in &term.values {
        let value = e.eval(env, calls)?;
        let wanted = |value: DatumRef<'_>| class.wanted(term.key, ty, term.strategy, value);
        match (term.strategy, value.get()) {
            // No condition is true of NULL.
            (_, DatumRef::Null) => {}
            (Strategy::Equal, value) => {
                if let Fit::Key(key) = fit(&access.table, index, term.key, value)? {
                    any.push(wanted(key.borrow())?);
                }
            }
            (_, value) => any.push(wanted(value)?),
        }
    }
    Ok(Wanted::Any(any))
}
