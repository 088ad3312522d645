//! ALTER TABLE .. ADD { UNIQUE | PRIMARY KEY } USING INDEX: a unique index becomes that of a
//! constraint.

use sqlparser::ast::ConstraintUsingIndex;

use super::index::characteristics;
use super::{Core, already_exists};
use crate::bind::names;
use crate::dict::{Index, Table};
use crate::error::{Error, Result};

/// Makes the index one of a constraint; returns its columns.
pub fn add(
    core: &mut Core,
    table: &mut Table,
    syntax: &ConstraintUsingIndex,
    primary: bool,
) -> Result<Vec<usize>> {
    let index_name = names::ident(&syntax.index_name);
    let at = table.indexes.iter().position(|i| i.name == index_name);
    let at =
        at.ok_or_else(|| Error::new("42704", format!("index \"{index_name}\" does not exist")))?;
    let (deferrable, initially_deferred) = characteristics(syntax.characteristics.as_ref())?;
    refuse_unfit(&table.indexes[at])?;
    if let Some(name) = syntax.name.as_ref().map(names::ident)
        && name != index_name
    {
        core.claim_relation_name(table.schema, &name)?;
        if core.dict().is_taken(table.schema, &name) {
            return Err(already_exists(&name));
        }
        let notice = format!(
            "ALTER TABLE / ADD CONSTRAINT USING INDEX will rename index \"{index_name}\" to \
             \"{name}\""
        );
        core.notice("NOTICE", "00000", notice);
        table.indexes[at].name = name;
    }
    let constraint = core.database.engine().clone().allocate_object_id()?.0;
    let index = &mut table.indexes[at];
    index.constraint = constraint;
    index.primary = primary;
    index.deferrable = deferrable;
    index.initially_deferred = initially_deferred;
    Ok(index.keys.iter().map(|k| k.column).collect())
}

fn refuse_unfit(index: &Index) -> Result<()> {
    let name = &index.name;
    if index.constraint != 0 {
        let message = format!("index \"{name}\" is already associated with a constraint");
        return Err(Error::new("55000", message));
    }
    if !index.is_valid() {
        return Err(Error::new(
            "55000",
            format!("index \"{name}\" is not valid"),
        ));
    }
    let unfit = match () {
        () if !index.unique => Some(format!("\"{name}\" is not a unique index")),
        () if !index.expressions.is_empty() => {
            Some(format!("index \"{name}\" contains expressions"))
        }
        () if index.predicate.is_some() => Some(format!("\"{name}\" is a partial index")),
        () => None,
    };
    let detail = "Cannot create a primary key or unique constraint using such an index.";
    if let Some(message) = unfit {
        return Err(Error::new("42809", message).detail(detail));
    }
    let sorted = |at: &usize| {
        let key = &index.keys[*at];
        key.descending || key.nulls_first || !index.class(*at).is_empty()
    };
    if let Some(at) = (0..index.keys.len()).find(sorted) {
        let message = format!(
            "index \"{name}\" column number {} does not have default sorting behavior",
            at + 1
        );
        return Err(Error::new("42809", message).detail(detail));
    }
    Ok(())
}
