//! Whether rows that are written meet what row-level security asks of them.

use block::value::{Datum, DatumRef};

use super::drive::Flow;
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::expr::Env;
use crate::plan::policies::{Condition, PolicyCheck};
use crate::query;
use crate::session::Core;

/// What a row is that is judged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// One that the statement makes.
    New,
    /// The one that ON CONFLICT is about to change.
    Conflicting,
    /// The one that MERGE is about to change or to delete.
    Target,
}

pub fn check(
    table: &Table,
    checks: &[PolicyCheck],
    core: &mut Core,
    row: &[DatumRef<'_>],
    what: Row,
) -> Result<()> {
    for check in checks {
        if !is_met(check, core, row)? {
            return Err(violation(table, check.policy.as_deref(), what));
        }
    }
    Ok(())
}

fn is_met(check: &PolicyCheck, core: &mut Core, row: &[DatumRef<'_>]) -> Result<bool> {
    for condition in check.any_of() {
        let holds = match condition {
            Condition::Expr(e) => e.holds(&Env { row, params: &[] }, core)?,
            Condition::Query(plan) => {
                let params: Vec<Datum> = row.iter().map(DatumRef::to_datum).collect();
                core.framed(engine::Sees::Around, |core| holds_by(plan, core, &params))?
            }
        };
        if holds {
            return Ok(true);
        }
    }
    Ok(false)
}

fn holds_by(plan: &std::sync::Arc<query::Plan>, core: &mut Core, params: &[Datum]) -> Result<bool> {
    let snapshot = core.engine.snapshot()?;
    let mut holds = false;
    query::Run::start(plan, core, params, snapshot)?.each(core, &mut |_, row| {
        holds = matches!(row, [DatumRef::Bool(true)]);
        Ok(Flow::Stop)
    })?;
    Ok(holds)
}

fn violation(table: &Table, policy: Option<&str>, what: Row) -> Error {
    let row = match what {
        Row::New | Row::Conflicting => "new row",
        Row::Target => "target row",
    };
    let policy = policy.map_or(String::new(), |name| format!(" \"{name}\""));
    let by = match what {
        Row::New => "",
        Row::Conflicting | Row::Target => " (USING expression)",
    };
    let message = format!(
        "{row} violates row-level security policy{policy}{by} for table \"{}\"",
        table.name
    );
    Error::new("42501", message)
}
