//! What a new version of a row must meet: row-level security, NOT NULL, CHECK, and the CHECK
//! OPTIONs of views.

use block::value::DatumRef;

use super::policies;
use super::told::{of_table, with_row};
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::expr::Env;
use crate::plan::RowRules;
use crate::session::Core;

/// Whether a new version is allowed: row-level security, NOT NULL and CHECK, in this order.
pub fn check_row(
    table: &Table,
    rules: &RowRules,
    core: &mut Core,
    row: &[DatumRef<'_>],
) -> Result<()> {
    policies::check(table, &rules.policies, core, row, policies::Row::New)?;
    check_constraints(table, rules, core, row)
}

/// NOT NULL and CHECK of a new version.
pub fn check_constraints(
    table: &Table,
    rules: &RowRules,
    core: &mut Core,
    row: &[DatumRef<'_>],
) -> Result<()> {
    for (column, domain) in &rules.domains {
        domain.check(row[*column], core)?;
    }
    for &column in &rules.not_null {
        if matches!(row[column], DatumRef::Null) {
            let name = &table.columns[column].name;
            let message = format!(
                "null value in column \"{name}\" of relation \"{}\" violates not-null constraint",
                table.name
            );
            let e = of_table(Error::new("23502", message), table, core).column(name);
            return Err(with_row(e, (table, &rules.given), core, row));
        }
    }
    for (name, condition) in &rules.checks {
        // Unknown is not a violation.
        if condition.test(&Env { row, params: &[] }, core)? == Some(false) {
            let message = format!(
                "new row for relation \"{}\" violates check constraint \"{name}\"",
                table.name
            );
            let e = of_table(Error::new("23514", message), table, core).constraint(name);
            return Err(with_row(e, (table, &rules.given), core, row));
        }
    }
    Ok(())
}

/// The CHECK OPTIONs of the views that a row is written through.
pub fn check_views(
    table: &Table,
    rules: &RowRules,
    core: &mut Core,
    row: &[DatumRef<'_>],
) -> Result<()> {
    for check in &rules.views {
        let env = Env { row, params: &[] };
        if check.condition.test(&env, core)? != Some(true) {
            let message = format!("new row violates check option for view \"{}\"", check.view);
            let e = Error::new("44000", message);
            return Err(with_row(e, (table, &rules.given), core, row));
        }
    }
    Ok(())
}
