//! CREATE, ALTER and DROP TYPE: of enums, and what composite types have in common with them.
//!
//! **Invariant.** Who makes a column of a type holds a shared lock on the type until its transaction
//! ends, and who changes or drops the type an exclusive one, and one on every table that has such a
//! column: whoever reads rows of a table, under its lock, knows all labels that they have.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use sqlparser::ast;

use super::Core;
use super::dependence::drop_dependents;
use super::extension::Making;
use crate::api::Tag;
use crate::bind::names::{self, Qualified};
use crate::dict::acl;
use crate::dict::composite::Composite;
use crate::dict::depend::Address;
use crate::dict::range::Range;
use crate::dict::{Domain, Label, Object, Table, UserType};
use crate::error::{Error, Result};
use crate::parse::define::Change;
use crate::parse::types::{TypeChange, TypeDefinition};
use crate::parse::utility::TableLock;
use crate::types::enums::{MAX_LABEL_BYTES, MAX_LABELS, first_position, position_between};
use crate::types::own::Kind;

pub fn define(core: &mut Core, definition: &TypeDefinition) -> Result<Tag> {
    match definition {
        TypeDefinition::CreateEnum { name, labels } => {
            create(core, name, labels)?;
            Ok(Tag::Plain("CREATE TYPE"))
        }
        TypeDefinition::CreateComposite { name, attributes } => {
            super::composite::create(core, name, attributes)?;
            Ok(Tag::Plain("CREATE TYPE"))
        }
        TypeDefinition::CreateRange { name, attributes } => {
            super::range::create(core, name, attributes)?;
            Ok(Tag::Plain("CREATE TYPE"))
        }
        TypeDefinition::Alter { name, change } => {
            alter(core, name, change)?;
            Ok(Tag::Plain("ALTER TYPE"))
        }
    }
}

fn create(core: &mut Core, name: &Qualified, labels: &[String]) -> Result<()> {
    let schema = core.creation_schema(name)?;
    claim(core, schema, &name.name)?;
    if labels.len() > MAX_LABELS {
        let message = format!("an enum cannot have more than {MAX_LABELS} labels");
        return Err(Error::new("54000", message));
    }
    let mut made: Vec<Label> = Vec::with_capacity(labels.len());
    let oid = core.database.engine().allocate_object_id()?.0;
    for (at, label) in labels.iter().enumerate() {
        check_label(label)?;
        if labels[..at].contains(label) {
            // In PostgreSQL's words, which are those of its catalog.
            let message = "duplicate key value violates unique constraint \
                           \"pg_enum_typid_label_index\"";
            return Err(Error::new("23505", message).detail(format!(
                "Key (enumtypid, enumlabel)=({oid}, {label}) already exists."
            )));
        }
        made.push(Label {
            oid: core.database.engine().allocate_object_id()?.0,
            name: label.clone(),
            position: first_position(at),
            sort: (at + 1) as f32,
        });
    }
    make(core, schema, &name.name, oid, Made::Enum(made))
}

/// What a new type is.
pub(super) enum Made {
    Enum(Vec<Label>),
    Domain(Domain),
    Composite(Composite),
    Range(Range),
    /// Of the range type of this number.
    Multirange(u32),
}

/// Defines a new type of this number, with the role of now as its owner and what is granted on
/// types by default.
pub(super) fn make(core: &mut Core, schema: u32, name: &str, oid: u32, made: Made) -> Result<()> {
    let array_oid = core.database.engine().allocate_object_id()?.0;
    core.lock_table(oid, TableLock::AccessExclusive, false)?;
    let owner = core.owner()?;
    core.give_defaults(acl::Kind::Type, oid, owner, schema)?;
    let mut defined = UserType {
        oid,
        array_oid,
        schema,
        name: name.to_string(),
        owner,
        comment: None,
        labels: Vec::new(),
        domain: None,
        composite: None,
        range: None,
        multirange_of: None,
        own: None,
        extension: None,
    };
    match made {
        Made::Enum(labels) => defined.labels = labels,
        Made::Domain(domain) => defined.domain = Some(domain),
        Made::Composite(composite) => defined.composite = Some(composite),
        Made::Range(range) => defined.range = Some(range),
        Made::Multirange(range) => defined.multirange_of = Some(range),
    }
    core.define(Object::Type(Arc::new(defined)))
}

/// Claims a name that no type of a schema has, nor a relation, whose rows have a type of its name.
pub fn claim(core: &mut Core, schema: u32, name: &str) -> Result<()> {
    core.claim_name(&format!("type {schema} {name}"))?;
    core.claim_relation_name(schema, name)?;
    let dict = core.dict();
    let is_relation = dict.table_or_view(schema, name).is_some();
    match is_relation || dict.type_in(schema, name).is_some() {
        false => Ok(()),
        true => Err(already_exists(name)),
    }
}

/// Refuses a relation of a type's name.
pub fn refuse_taken(core: &Core, schema: u32, name: &str) -> Result<()> {
    match core.dict().type_in(schema, name) {
        None => Ok(()),
        Some(_) => Err(already_exists(name).hint(
            "A relation has an associated type of the same name, so you must use a name that \
             doesn't conflict with any existing type.",
        )),
    }
}

fn already_exists(name: &str) -> Error {
    Error::new("42710", format!("type \"{name}\" already exists"))
}

fn check_label(label: &str) -> Result<()> {
    if label.len() <= MAX_LABEL_BYTES {
        return Ok(());
    }
    let message = format!("invalid enum label \"{label}\"");
    Err(Error::new("42602", message)
        .detail(format!("Labels must be {MAX_LABEL_BYTES} bytes or less.")))
}

pub(super) fn no_type(core: &Core, name: &Qualified) -> Error {
    match super::missing_schema(core, name) {
        Some(schema) => names::no_schema(schema),
        None => Error::new("42704", format!("type \"{name}\" does not exist")),
    }
}

/// A type, locked with all tables that have a column of it, as it is then.
pub fn locked(core: &mut Core, name: &Qualified) -> Result<Option<Arc<UserType>>> {
    loop {
        let Some(oid) = core.dict().user_type(name).map(|t| t.oid) else {
            return Ok(None);
        };
        let mark = core.engine.table_locks();
        core.lock_table(oid, TableLock::AccessExclusive, false)?;
        let mut held = BTreeSet::new();
        loop {
            let tables = tables_with(core, oid);
            let missing: Vec<u32> = tables.difference(&held).copied().collect();
            if missing.is_empty() {
                break;
            }
            for table in missing {
                core.lock_table(table, TableLock::AccessExclusive, false)?;
                held.insert(table);
            }
        }
        match core.dict().user_type(name) {
            Some(now) if now.oid == oid => return Ok(Some(now.clone())),
            _ => core.engine.unlock_table(block::ObjectId(oid), mark),
        }
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
    }
}

/// The tables that have a column of a type, or of arrays of it.
fn tables_with(core: &Core, oid: u32) -> BTreeSet<u32> {
    let dict = core.dict();
    let types = dict.types_with(oid).into_iter();
    let columns = types.flat_map(|ty| dict.columns_of_type(ty));
    columns.map(|(table, _)| table).collect()
}

fn alter(core: &mut Core, name: &Qualified, change: &TypeChange) -> Result<()> {
    let found = locked(core, name)?;
    let found = found.ok_or_else(|| no_type(core, name))?;
    core.check_owner(found.owner, format!("type {}", found.name))?;
    let mut next = UserType::clone(&found);
    let of_labels = matches!(
        change,
        TypeChange::AddValue { .. } | TypeChange::RenameValue(..)
    );
    let others = next.composite.is_some() || next.own.is_some();
    if of_labels && (others || next.range.is_some() || next.multirange_of.is_some()) {
        let message = format!("{} is not an enum", next.name);
        return Err(Error::new("42809", message));
    }
    if of_labels && next.domain.is_some() {
        return Err(Error::new("42809", format!("{name} is not an enum")));
    }
    match change {
        TypeChange::Attribute(change) => super::composite::alter(core, &mut next, change)?,
        TypeChange::AddValue {
            label,
            if_not_exists,
            place,
        } => {
            let place = place.as_ref().map(|(before, at)| (*before, at.as_str()));
            if !add_value(core, &mut next, label, *if_not_exists, place)? {
                return Ok(());
            }
        }
        TypeChange::RenameValue(from, to) => {
            rename_value(&mut next, from, to)?;
            rename_in_definitions(core, next.oid, from, to)?;
        }
        TypeChange::Common(common) => self::change(core, &mut next, common)?,
    }
    if let (TypeChange::Common(Change::Owner(_)), Some(range)) = (change, &next.range)
        && let Some(set) = core.dict().user_type_by_oid(range.multirange)
    {
        let mut set = UserType::clone(set);
        set.owner = next.owner;
        core.define(Object::Type(Arc::new(set)))?;
    }
    core.define(Object::Type(Arc::new(next)))
}

/// Defines a type of an extension.
pub(super) fn make_own(
    core: &mut Core,
    schema: &str,
    name: &str,
    kind: Kind,
    making: &Making,
) -> Result<()> {
    let schema = core.creation_schema(&Qualified {
        schema: Some(schema.to_string()),
        name: name.to_string(),
    })?;
    claim(core, schema, name)?;
    let oid = core.database.engine().allocate_object_id()?.0;
    let array_oid = core.database.engine().allocate_object_id()?.0;
    core.lock_table(oid, TableLock::AccessExclusive, false)?;
    core.define(Object::Type(Arc::new(UserType {
        oid,
        array_oid,
        schema,
        name: name.to_string(),
        owner: making.owner,
        comment: None,
        labels: Vec::new(),
        domain: None,
        composite: None,
        range: None,
        multirange_of: None,
        own: Some(kind),
        extension: Some(making.oid),
    })))
}

/// Moves a type of an extension to another schema.
pub(super) fn move_to(core: &mut Core, ty: &UserType, schema: u32) -> Result<()> {
    let name = Qualified {
        schema: Some(core.dict().schema_name(ty.schema).to_string()),
        name: ty.name.clone(),
    };
    let found = locked(core, &name)?.ok_or_else(|| no_type(core, &name))?;
    claim(core, schema, &ty.name)?;
    let mut next = UserType::clone(&found);
    next.schema = schema;
    core.define(Object::Type(Arc::new(next)))
}

/// What types have in common with relations.
pub(super) fn change(core: &mut Core, next: &mut UserType, change: &Change) -> Result<()> {
    match change {
        Change::Rename(to) => {
            claim(core, next.schema, to)?;
            next.name.clone_from(to);
        }
        Change::Owner(to) => {
            next.owner =
                core.new_owner(to, next.owner, next.schema, &format!("type {}", next.name))?;
        }
        Change::Schema(to) => {
            let target = Qualified {
                schema: Some(to.clone()),
                name: next.name.clone(),
            };
            let schema = core.creation_schema(&target)?;
            if schema != next.schema {
                claim(core, schema, &next.name)?;
                next.schema = schema;
            }
        }
        Change::RenameColumn(..)
        | Change::Logged(_)
        | Change::OfView(_)
        | Change::Options { .. }
        | Change::OfIndexColumn { .. }
        | Change::Attributes(_) => {
            return Err(Error::internal("a change that no type has"));
        }
    }
    Ok(())
}

/// False if there is such a label, and that is no error.
fn add_value(
    core: &mut Core,
    ty: &mut UserType,
    label: &str,
    if_not_exists: bool,
    place: Option<(bool, &str)>,
) -> Result<bool> {
    check_label(label)?;
    if ty.label(label).is_some() {
        let exists = format!("enum label \"{label}\" already exists");
        if !if_not_exists {
            return Err(Error::new("42710", exists));
        }
        core.notice("NOTICE", "42710", format!("{exists}, skipping"));
        return Ok(false);
    }
    if ty.labels.len() >= MAX_LABELS {
        let message = format!("an enum cannot have more than {MAX_LABELS} labels");
        return Err(Error::new("54000", message));
    }
    let at = match place {
        None => ty.labels.len(),
        Some((before, neighbour)) => {
            let found = ty.label(neighbour);
            let found = found.ok_or_else(|| no_label(neighbour))?;
            found + usize::from(!before)
        }
    };
    let before = at.checked_sub(1).map(|at| &ty.labels[at]);
    let after = ty.labels.get(at);
    let position = position_between(before.map(|l| l.position), after.map(|l| l.position));
    let position = position.ok_or_else(|| {
        let message = format!("no more labels fit between these two of type {}", ty.name);
        Error::new("54000", message).hint("Make another type, and convert the columns.")
    })?;
    let sort = match (before.map(|l| l.sort), after.map(|l| l.sort)) {
        (None, None) => 1.0,
        (Some(last), None) => last + 1.0,
        (None, Some(first)) => first - 1.0,
        (Some(a), Some(b)) => (a + b) / 2.0,
    };
    let oid = core.database.engine().allocate_object_id()?.0;
    let name = label.to_string();
    ty.labels.insert(
        at,
        Label {
            oid,
            name,
            position,
            sort,
        },
    );
    // As PostgreSQL does once its numbers are too close.
    let close = ty.labels.windows(2).any(|two| two[0].sort >= two[1].sort);
    if close {
        for (at, label) in ty.labels.iter_mut().enumerate() {
            label.sort = (at + 1) as f32;
        }
    }
    Ok(true)
}

fn rename_value(ty: &mut UserType, from: &str, to: &str) -> Result<()> {
    check_label(to)?;
    let at = ty.label(from).ok_or_else(|| no_label(from))?;
    if ty.label(to).is_some() {
        let message = format!("enum label \"{to}\" already exists");
        return Err(Error::new("42710", message));
    }
    ty.labels[at].name = to.to_string();
    Ok(())
}

/// Gives a label its new name in the defaults of columns of its type. Checks and views, of which it
/// cannot be told what a text in them is, refuse the new name.
fn rename_in_definitions(core: &mut Core, ty: u32, from: &str, to: &str) -> Result<()> {
    for oid in tables_with(core, ty) {
        let dict = core.dict();
        let Some(table) = dict.table_by_oid(oid) else {
            continue;
        };
        for check in &table.checks {
            if renamed(&check.text, from, to)?.is_some() {
                return Err(Error::unsupported(format!(
                    "a new name of label \"{from}\", which constraint \"{}\" of table \"{}\" has",
                    check.name, table.name
                )));
            }
        }
        let quoted = format!("'{}'", from.replace('\'', "''"));
        if let Some(view) = dict
            .views()
            .find(|v| v.reads(oid, None) && v.query.contains(&quoted))
        {
            return Err(Error::unsupported(format!(
                "a new name of label \"{from}\", which view \"{}\" has",
                view.name
            )));
        }
        let mut next = Table::clone(table);
        let mut changed = false;
        for (_, at) in dict
            .columns_of_type(ty)
            .into_iter()
            .filter(|(t, _)| *t == oid)
        {
            let default = next.columns[at].default.as_deref();
            if let Some(text) = default.map(|d| renamed(d, from, to)).transpose()?.flatten() {
                next.columns[at].default = Some(text);
                changed = true;
            }
        }
        if changed {
            core.define(Object::Table(Arc::new(next.finish()?)))?;
        }
    }
    Ok(())
}

/// An expression with another text in the place of one; `None` if it does not have it.
fn renamed(text: &str, from: &str, to: &str) -> Result<Option<String>> {
    let mut e = crate::parse::expression(text)?;
    let mut found = false;
    let _ = ast::visit_expressions_mut(&mut e, |e| {
        if let ast::Expr::Value(v) = e
            && let ast::Value::SingleQuotedString(s) = &mut v.value
            && s == from
        {
            *s = to.to_string();
            found = true;
        }
        ControlFlow::<()>::Continue(())
    });
    Ok(found.then(|| e.to_string()))
}

fn no_label(label: &str) -> Error {
    Error::new(
        "22023",
        format!("\"{label}\" is not an existing enum label"),
    )
}

pub fn drop(
    core: &mut Core,
    names: &[ast::ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<Tag> {
    let names = names
        .iter()
        .map(super::name_of)
        .collect::<Result<Vec<_>>>()?;
    drop_named(core, &names, if_exists, cascade, false)?;
    Ok(Tag::Plain("DROP TYPE"))
}

/// Drops types, or refuses those that are no domains.
pub(super) fn drop_named(
    core: &mut Core,
    names: &[Qualified],
    if_exists: bool,
    cascade: bool,
    domains: bool,
) -> Result<()> {
    let mut gone = Vec::with_capacity(names.len());
    for name in names {
        match locked(core, name)? {
            Some(found) if domains && found.domain.is_none() => {
                return Err(super::domain::not_a_domain(name));
            }
            Some(found) => {
                core.check_owner(found.owner, format!("type {}", found.name))?;
                refuse_part(core, &found, names)?;
                let member = Address::Type(found.oid);
                super::extension::refuse_member(core, found.extension, member)?;
                gone.push(Address::Type(found.oid));
            }
            None if if_exists => {
                let what = match super::missing_schema(core, name) {
                    Some(schema) => format!("schema \"{schema}\""),
                    None => format!("type \"{name}\""),
                };
                core.notice(
                    "NOTICE",
                    "00000",
                    format!("{what} does not exist, skipping"),
                );
            }
            None => return Err(no_type(core, name)),
        }
    }
    drop_dependents(core, &gone, cascade)?;
    for ty in gone {
        if let Address::Type(oid) = ty {
            core.undefine(oid.into())?;
        }
    }
    Ok(())
}

/// Refuses a type of multiranges without that of their ranges.
fn refuse_part(core: &Core, found: &UserType, names: &[Qualified]) -> Result<()> {
    let dict = core.dict();
    let range = found
        .multirange_of
        .and_then(|oid| dict.user_type_by_oid(oid));
    let Some(range) = range else { return Ok(()) };
    let goes = |name: &Qualified| dict.user_type(name).is_some_and(|t| t.oid == range.oid);
    if names.iter().any(goes) {
        return Ok(());
    }
    let (part, whole) = (dict.shown_type(found), dict.shown_type(range));
    let message = format!("cannot drop type {part} because type {whole} requires it");
    let hint = format!("You can drop type {whole} instead.");
    Err(Error::new("2BP01", message).hint(hint))
}

/// COMMENT ON TYPE.
pub fn comment(core: &mut Core, name: &Qualified, text: Option<&str>) -> Result<()> {
    let found = locked(core, name)?;
    let mut next = UserType::clone(&*found.ok_or_else(|| no_type(core, name))?);
    core.check_owner(next.owner, format!("type {}", next.name))?;
    next.comment = text.map(str::to_string);
    core.define(Object::Type(Arc::new(next)))
}
