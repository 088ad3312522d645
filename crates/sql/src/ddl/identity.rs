//! `ALTER COLUMN .. ADD GENERATED`, `SET GENERATED` and `DROP IDENTITY`.

use std::sync::Arc;

use sqlparser::ast::DataType;

use super::{Core, already_exists, sequence};
use crate::bind::names::Qualified;
use crate::dict::{DefaultName, Identity, Object, Sequence, Table};
use crate::error::{Error, Result};
use crate::parse::identity::IdentityChange;
use crate::parse::utility::SequenceOption;
use crate::types::SqlType;

pub fn change(core: &mut Core, table: &mut Table, at: usize, what: &IdentityChange) -> Result<()> {
    match what {
        IdentityChange::Add { always, options } => add(core, table, at, *always, options),
        IdentityChange::Drop { if_exists } => drop(core, table, at, *if_exists),
        IdentityChange::Set { always, options } => {
            let owned = existing(core, table, at)?;
            if let Some(always) = always {
                table.columns[at].identity = Some(kind(*always));
            }
            if options.is_empty() {
                return Ok(());
            }
            sequence::alter(core, &named(core, &owned), false, options).map(|_| ())
        }
    }
}

fn named(core: &Core, owned: &Sequence) -> Qualified {
    Qualified {
        schema: Some(core.dict().schema_name(owned.schema).to_string()),
        name: owned.name.clone(),
    }
}

/// Gives the sequence of an identity column the column's new type.
pub(super) fn follow_type(core: &mut Core, table: &Table, at: usize, ty: SqlType) -> Result<()> {
    let owned = existing(core, table, at)?;
    let ty = match ty {
        SqlType::Int2 => DataType::SmallInt(None),
        SqlType::Int4 => DataType::Integer(None),
        _ => DataType::BigInt(None),
    };
    let options = [SequenceOption::Type(ty)];
    sequence::alter(core, &named(core, &owned), false, &options).map(|_| ())
}

pub(super) fn kind(always: bool) -> Identity {
    match always {
        true => Identity::Always,
        false => Identity::ByDefault,
    }
}

/// The column in words of messages.
fn described(table: &Table, at: usize) -> String {
    let column = &table.columns[at].name;
    format!("column \"{column}\" of relation \"{}\"", table.name)
}

fn not_identity(table: &Table, at: usize) -> String {
    format!("{} is not an identity column", described(table, at))
}

/// The sequence of an identity column.
fn existing(core: &Core, table: &Table, at: usize) -> Result<Arc<Sequence>> {
    let c = &table.columns[at];
    let found = c.identity.and(c.sequence);
    let found = found.and_then(|oid| core.dict().sequence_by_oid(oid).cloned());
    found.ok_or_else(|| Error::new("55000", not_identity(table, at)))
}

fn add(
    core: &mut Core,
    table: &mut Table,
    at: usize,
    always: bool,
    options: &[SequenceOption],
) -> Result<()> {
    let c = table.columns[at].clone();
    if !matches!(c.ty(), SqlType::Int2 | SqlType::Int4 | SqlType::Int8) {
        let message = "identity column type must be smallint, integer, or bigint";
        return Err(Error::new("22023", message));
    }
    let column = described(table, at);
    let refused = match () {
        () if !c.not_null => Some(format!(
            "{column} must be declared NOT NULL before identity can be added"
        )),
        () if c.identity.is_some() => Some(format!("{column} is already an identity column")),
        () if c.default.is_some() => Some(format!("{column} already has a default value")),
        () => None,
    };
    if let Some(message) = refused {
        return Err(Error::new("55000", message));
    }
    let name = sequence_name(core, table, &c.name, options)?;
    let mut made = sequence::define(core, table.schema, name, c.ty(), options)?;
    made.owner = Some((table.oid, at));
    made.role = table.owner;
    table.columns[at].identity = Some(kind(always));
    table.columns[at].sequence = Some(made.oid);
    core.define(Object::Sequence(Arc::new(made)))
}

/// The name of the sequence of a new serial or identity column, claimed: the one that is given, or
/// a free one.
pub(super) fn sequence_name(
    core: &mut Core,
    table: &Table,
    column: &str,
    options: &[SequenceOption],
) -> Result<String> {
    let given = options.iter().find_map(|o| match o {
        SequenceOption::Name(name) => Some(name),
        _ => None,
    });
    match given {
        Some(given) => {
            let schema = match &given.schema {
                Some(_) => core.creation_schema(given)?,
                None => table.schema,
            };
            if schema != table.schema {
                let message = "sequence must be in same schema as table it is linked to";
                return Err(Error::new("55000", message));
            }
            core.claim_relation_name(schema, &given.name)?;
            if core.dict().is_taken(schema, &given.name) {
                return Err(already_exists(&given.name));
            }
            Ok(given.name.clone())
        }
        None => {
            let base = DefaultName {
                first: &table.name,
                second: Some(column),
                suffix: "seq",
            };
            core.claim_free_name(table.schema, base, &|n| n == table.name)
        }
    }
}

/// The column keeps its values, and may not be NULL.
fn drop(core: &mut Core, table: &mut Table, at: usize, if_exists: bool) -> Result<()> {
    if table.columns[at].identity.is_none() && if_exists {
        let message = format!("{}, skipping", not_identity(table, at));
        core.notice("NOTICE", "00000", message);
        return Ok(());
    }
    let owned = existing(core, table, at)?;
    table.columns[at].identity = None;
    table.columns[at].sequence = None;
    sequence::drop_one(core, owned.oid)
}
