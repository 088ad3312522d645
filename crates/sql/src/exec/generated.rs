//! Generated columns: their values in a new version of a row.
//!
//! **Invariant.** They are computed after the before-row triggers and before the row is checked,
//! from columns that are not generated, so that their order does not matter.

use block::value::{Datum, DatumRef};

use crate::error::Result;
use crate::expr::Env;
use crate::plan::RowRules;
use crate::session::Core;

/// Gives the generated columns of a row their values, which `made` keeps.
pub fn fill<'r>(
    rules: &RowRules,
    core: &mut Core,
    row: &mut [DatumRef<'r>],
    made: &'r mut Vec<Datum>,
) -> Result<()> {
    if rules.generated.is_empty() {
        return Ok(());
    }
    made.reserve(rules.generated.len());
    for g in &rules.generated {
        let env = Env { row, params: &[] };
        made.push(g.value.eval(&env, core)?.into_datum());
    }
    for (g, value) in rules.generated.iter().zip(made.iter()) {
        row[g.column] = value.borrow();
    }
    Ok(())
}
