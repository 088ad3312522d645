//! ALTER of what relations have in common: name, schema, owner.

use std::sync::Arc;

use sqlparser::ast;

use super::{Core, already_exists, no_relation, skipping, storage};
use crate::api::Tag;
use crate::bind::names::{self, Qualified};
use crate::dict::{Object, Relation, Sequence, Table, View};
use crate::error::{Error, Result};
use crate::parse::alter_constraint;
use crate::parse::define::{Change, Kind, ViewChange};
use crate::parse::storage::{StorageChange, WHOLE_TABLE};
use crate::parse::utility::{SequenceOption, TableLock};
use crate::parse::view::Given;

pub fn alter(
    core: &mut Core,
    command: &'static str,
    kind: Kind,
    name: &Qualified,
    if_exists: bool,
    change: &Change,
) -> Result<Tag> {
    let tag = Tag::Plain(command);
    let rights = core.rights();
    let wanted = |found: &Relation| match (kind, found) {
        (Kind::Sequence, Relation::Sequence(_))
        | (Kind::View, Relation::View(_))
        | (Kind::Index, Relation::Index(..))
        // ALTER TABLE is for the others too.
        | (Kind::Table, _) => rights.check_owner_of(found).map(|()| Some(found.clone())),
        (Kind::MaterializedView, Relation::Table(t)) if t.materialized.is_some() => {
            rights.check_owner_of(found).map(|()| Some(found.clone()))
        }
        _ => Err(Error::new("42809", format!("\"{}\" is not {}", name.name, word(kind)))),
    };
    let Some(found) = core.locked_relation(name, TableLock::AccessExclusive, false, wanted)? else {
        if if_exists {
            skipping(core, "relation", name);
            return Ok(tag);
        }
        return Err(no_relation(core, name));
    };
    match change {
        Change::Rename(to) => rename(core, &found, to)?,
        Change::RenameColumn(from, to) => rename_column(core, &found, from, to)?,
        Change::Owner(to) => match &found {
            Relation::View(view) => {
                let mut next = View::clone(view);
                next.owner =
                    core.new_owner(to, view.owner, view.schema, &format!("view {}", view.name))?;
                core.define(Object::View(Arc::new(next)))?;
            }
            Relation::Sequence(_) => {
                let options = [SequenceOption::Owner(to.clone())];
                super::sequence::alter(core, name, false, &options)?;
            }
            Relation::Table(table) if table.materialized.is_some() => {
                let mut next = Table::clone(table);
                let what = format!("{} {}", table.word(), table.name);
                next.owner = core.new_owner(to, table.owner, table.schema, &what)?;
                core.define(Object::Table(Arc::new(next.finish()?)))?;
            }
            Relation::Index(table, at) => {
                let index = table.indexes[*at].name.clone();
                let what = format!("index {index}");
                let to = core.new_owner(to, table.owner, table.schema, &what)?;
                if to != table.owner {
                    let message = format!("cannot change owner of index \"{index}\"");
                    core.notice("WARNING", "42809", message);
                }
            }
            _ => {
                return Err(Error::unsupported(format!(
                    "{command} OWNER TO of this relation"
                )));
            }
        },
        Change::Schema(to) => set_schema(core, &found, to)?,
        Change::Logged(logged) => set_logged(core, &found, name, *logged)?,
        Change::Options { given, reset } => set_options(core, &found, given, *reset)?,
        Change::OfIndexColumn { reset } => {
            let action = if *reset { "RESET" } else { "SET" };
            let message = format!(
                "ALTER action ALTER COLUMN ... {action} cannot be performed on relation \"{}\"",
                name.name
            );
            let detail = "This operation is not supported for indexes.";
            return Err(Error::new("42809", message).detail(detail));
        }
        Change::Attributes(_) => return Err(Error::internal("a change that no relation has")),
        Change::OfView(change) => {
            let Relation::View(view) = &found else {
                return Err(Error::internal("a change that only views have"));
            };
            match change {
                ViewChange::Default(column, text) => {
                    super::view::set_default(core, view, column, text.as_deref())?;
                }
                ViewChange::SetOptions(given) => {
                    super::view_options::alter(core, view, given, false)?;
                }
                ViewChange::ResetOptions(given) => {
                    super::view_options::alter(core, view, given, true)?;
                }
            }
        }
    }
    Ok(tag)
}

/// ALTER TABLE of a view, in what views have too.
pub fn alter_view(core: &mut Core, name: &Qualified, a: &ast::AlterTable) -> Result<Tag> {
    use ast::{AlterColumnOperation, AlterTableOperation as Operation};
    let tag = Tag::Plain("ALTER TABLE");
    let default = |column, text| Change::OfView(ViewChange::Default(column, text));
    let changes = a.operations.iter().map(|operation| {
        Ok(match operation {
            Operation::RenameTable {
                table_name: ast::RenameTableNameKind::To(to) | ast::RenameTableNameKind::As(to),
            } => Change::Rename(super::name_of(to)?.name),
            Operation::RenameColumn {
                old_column_name,
                new_column_name,
            } => Change::RenameColumn(names::ident(old_column_name), names::ident(new_column_name)),
            Operation::OwnerTo { new_owner } => Change::Owner(super::alter::owner_named(new_owner)),
            Operation::AlterColumn { column_name, .. }
                if let Some(change) = super::alter::stored(operation) =>
            {
                match change {
                    StorageChange::Options { given, reset }
                        if names::ident(column_name) == WHOLE_TABLE =>
                    {
                        Change::Options { given, reset }
                    }
                    change => return Err(not_of_views(name, &change)),
                }
            }
            Operation::AlterColumn {
                column_name,
                op: AlterColumnOperation::SetDefault { value },
            } if alter_constraint::change_of(value).is_none() => {
                default(names::ident(column_name), Some(value.to_string()))
            }
            Operation::AlterColumn {
                column_name,
                op: AlterColumnOperation::DropDefault,
            } => default(names::ident(column_name), None),
            _ => {
                let message = format!("\"{}\" is not a table", name.name);
                return Err(Error::new("42809", message));
            }
        })
    });
    for change in changes.collect::<Result<Vec<_>>>()? {
        alter(core, "ALTER TABLE", Kind::View, name, false, &change)?;
    }
    Ok(tag)
}

fn not_of_views(name: &Qualified, change: &StorageChange) -> Error {
    let action = match change {
        StorageChange::Statistics(_) => "SET STATISTICS",
        StorageChange::Storage(_) => "SET STORAGE",
        StorageChange::Options { reset: true, .. } => "RESET",
        StorageChange::Options { .. } | StorageChange::Nothing => "SET",
    };
    let message = format!(
        "ALTER action ALTER COLUMN ... {action} cannot be performed on relation \"{}\"",
        name.name
    );
    Error::new("42809", message).detail("This operation is not supported for views.")
}

/// SET or RESET of storage parameters.
fn set_options(core: &mut Core, found: &Relation, given: &[Given], reset: bool) -> Result<()> {
    let mut next = match found {
        Relation::Table(table) | Relation::Index(table, _) => Table::clone(table),
        Relation::View(view) => return super::view_options::alter(core, view, given, reset),
        Relation::Sequence(sequence) => {
            let action = if reset { "RESET" } else { "SET" };
            let name = &sequence.name;
            let message =
                format!("ALTER action {action} cannot be performed on relation \"{name}\"");
            let detail = "This operation is not supported for sequences.";
            return Err(Error::new("42809", message).detail(detail));
        }
    };
    match found {
        Relation::Index(_, at) => {
            let index = &mut next.indexes[*at];
            let of = storage::Of::Index(index.method);
            storage::change(of, &mut index.options, given, reset)?;
        }
        _ => storage::change(storage::Of::Table, &mut next.options, given, reset)?,
    }
    core.define(Object::Table(Arc::new(next.finish()?)))
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Table => "a table",
        Kind::Sequence => "a sequence",
        Kind::View => "a view",
        Kind::MaterializedView => "a materialized view",
        Kind::Index => "an index",
    }
}

fn rename(core: &mut Core, found: &Relation, to: &str) -> Result<()> {
    let schema = found.schema();
    core.claim_relation_name(schema, to)?;
    if core.dict().is_taken(schema, to) {
        return Err(already_exists(to));
    }
    match found {
        Relation::View(view) => {
            let mut next = View::clone(view);
            next.name = to.to_string();
            core.define(Object::View(Arc::new(next)))
        }
        Relation::Index(table, at) => {
            let mut next = Table::clone(table);
            next.indexes[*at].name = to.to_string();
            core.define(Object::Table(Arc::new(next.finish()?)))
        }
        Relation::Table(table) if table.materialized.is_some() => {
            let mut next = Table::clone(table);
            next.name = to.to_string();
            core.define(Object::Table(Arc::new(next.finish()?)))
        }
        Relation::Sequence(s) => {
            let name = Qualified {
                schema: Some(core.dict().schema_name(s.schema).to_string()),
                name: s.name.clone(),
            };
            let options = [SequenceOption::Rename(to.to_string())];
            super::sequence::alter(core, &name, false, &options).map(|_| ())
        }
        Relation::Table(_) => Err(Error::internal("a rename that is read elsewhere")),
    }
}

fn rename_column(core: &mut Core, found: &Relation, from: &str, to: &str) -> Result<()> {
    if let Relation::Table(table) = found {
        let mut next = Table::clone(table);
        super::alter::rename_column(&mut next, from, to.to_string())?;
        return core.define(Object::Table(Arc::new(next.finish()?)));
    }
    let Relation::View(view) = found else {
        return Err(Error::internal("a rename that is read elsewhere"));
    };
    let mut next = View::clone(view);
    let at = next.column(from);
    let at = at.ok_or_else(|| Error::new("42703", format!("column \"{from}\" does not exist")))?;
    if next.column(to).is_some() {
        let message = format!(
            "column \"{to}\" of relation \"{}\" already exists",
            view.name
        );
        return Err(Error::new("42701", message));
    }
    next.columns[at].name = to.to_string();
    core.define(Object::View(Arc::new(next)))
}

/// SET LOGGED and SET UNLOGGED: what the catalogs say of a table or sequence.
fn set_logged(core: &mut Core, found: &Relation, name: &Qualified, logged: bool) -> Result<()> {
    let kind = match found {
        Relation::Table(table) if table.materialized.is_none() => {
            refuse_if_temporary(core, table.schema, &table.name)?;
            for sequence in core.dict().owned_sequences(table.oid) {
                set_persistence(core, &sequence, None)?;
            }
            let mut next = Table::clone(table);
            next.unlogged = !logged;
            return core.define(Object::Table(Arc::new(next.finish()?)));
        }
        Relation::Sequence(sequence) => {
            refuse_if_temporary(core, sequence.schema, &sequence.name)?;
            return set_persistence(core, sequence, Some(!logged));
        }
        Relation::Table(_) => "materialized views",
        Relation::View(_) => "views",
        Relation::Index(..) => "indexes",
    };
    let set = if logged { "LOGGED" } else { "UNLOGGED" };
    let name = &name.name;
    let message = format!("ALTER action SET {set} cannot be performed on relation \"{name}\"");
    let detail = format!("This operation is not supported for {kind}.");
    Err(Error::new("42809", message).detail(detail))
}

fn set_persistence(core: &mut Core, sequence: &Sequence, unlogged: Option<bool>) -> Result<()> {
    match sequence.unlogged == unlogged {
        true => Ok(()),
        false => core.define(Object::Sequence(Arc::new(Sequence {
            unlogged,
            ..sequence.clone()
        }))),
    }
}

fn refuse_if_temporary(core: &Core, schema: u32, name: &str) -> Result<()> {
    match core.dict().is_temporary(schema) {
        false => Ok(()),
        true => {
            let message =
                format!("cannot change logged status of table \"{name}\" because it is temporary");
            Err(Error::new("42P16", message))
        }
    }
}

/// Puts a relation into another schema, and with a table its indexes and the sequences of its
/// columns.
fn set_schema(core: &mut Core, found: &Relation, to: &str) -> Result<()> {
    let target = Qualified {
        schema: Some(to.to_string()),
        name: String::new(),
    };
    if core.dict().schema(to).is_none() {
        return Err(names::no_schema(to));
    }
    match found {
        Relation::Index(..) => {
            return Err(Error::new("42809", "cannot change schema of an index"));
        }
        Relation::Sequence(s) => {
            if let Some((table, _)) = s.owner {
                let message = "cannot move an owned sequence into another schema";
                let dict = core.dict();
                let table = dict.table_by_oid(table).map_or("", |t| &t.name);
                let detail = format!("Sequence \"{}\" is linked to table \"{table}\".", s.name);
                return Err(Error::new("0A000", message).detail(detail));
            }
        }
        Relation::Table(_) | Relation::View(_) => {}
    }
    let to = core.creation_schema(&target)?;
    if to == found.schema() {
        return Ok(());
    }
    match found {
        Relation::Table(table) => {
            let mut next = Table::clone(table);
            next.schema = to;
            claim(core, to, &next.name)?;
            for index in &next.indexes {
                claim(core, to, &index.name)?;
            }
            core.define(Object::Table(Arc::new(next.finish()?)))?;
            for s in core.dict().owned_sequences(table.oid) {
                move_sequence(core, &s, to)?;
            }
            Ok(())
        }
        Relation::Sequence(s) => move_sequence(core, s, to),
        Relation::View(view) => {
            let mut next = View::clone(view);
            next.schema = to;
            claim(core, to, &next.name)?;
            core.define(Object::View(Arc::new(next)))
        }
        Relation::Index(..) => Ok(()),
    }
}

fn move_sequence(core: &mut Core, s: &Sequence, to: u32) -> Result<()> {
    claim(core, to, &s.name)?;
    core.lock_table(s.oid, TableLock::AccessExclusive, false)?;
    let schema = core.dict().schema_name(to).to_string();
    super::sequence::rename_in_defaults(core, s, (&schema, &s.name))?;
    let mut next = Sequence::clone(s);
    next.schema = to;
    core.define(Object::Sequence(Arc::new(next)))
}

fn claim(core: &mut Core, schema: u32, name: &str) -> Result<()> {
    core.claim_relation_name(schema, name)?;
    if core.dict().is_taken(schema, name) {
        let schema = core.dict().schema_name(schema).to_string();
        let message = format!("relation \"{name}\" already exists in schema \"{schema}\"");
        return Err(Error::new("42P07", message));
    }
    Ok(())
}
