//! CREATE, ALTER and DROP SEQUENCE, and the sequences of serial and identity columns.

use std::sync::Arc;

use sqlparser::ast::{self, SequenceOptions, UnaryOperator, Value};

use super::dependence::drop_dependents;
use super::{Core, already_exists, no_relation, skipping};
use crate::api::Tag;
use crate::bind::names::Qualified;
use crate::bind::numbered::{self, Shown};
use crate::bind::{TypeNames, names, parts};
use crate::dict::acl::Kind;
use crate::dict::depend::Address;
use crate::dict::{Column, Dict, Object, Relation, Sequence, Table};
use crate::error::{Error, Result};
use crate::parse::utility::{SequenceOption, TableLock};
use crate::session::relation_name;
use crate::types::SqlType;
use crate::types::ranges::RangeOf;

pub fn create(
    core: &mut Core,
    (name, temporary): (&Qualified, bool),
    if_not_exists: bool,
    data_type: Option<&ast::DataType>,
    options: &[SequenceOption],
) -> Result<Tag> {
    let schema = core.claim_place(name, temporary)?;
    let name = &name.name;
    if core.dict().is_taken(schema, name) {
        if !if_not_exists {
            return Err(already_exists(name));
        }
        core.notice(
            "NOTICE",
            "42P07",
            format!("relation \"{name}\" already exists, skipping"),
        );
        return Ok(Tag::Plain("CREATE SEQUENCE"));
    }
    let ty = match data_type {
        None => SqlType::Int8,
        Some(t) => parts::data_type(t, &TypeNames::default())?.0,
    };
    let sequence = define(core, schema, name.to_string(), ty, options)?;
    core.define(Object::Sequence(Arc::new(sequence)))?;
    Ok(Tag::Plain("CREATE SEQUENCE"))
}

/// Options of the SQL grammar as those of ALTER SEQUENCE.
pub fn convert(options: &[SequenceOptions]) -> Result<Vec<SequenceOption>> {
    options
        .iter()
        .map(|o| {
            Ok(match o {
                SequenceOptions::IncrementBy(e, _) => SequenceOption::Increment(integer(e)?),
                SequenceOptions::MinValue(e) => {
                    SequenceOption::Min(e.as_ref().map(integer).transpose()?)
                }
                SequenceOptions::MaxValue(e) => {
                    SequenceOption::Max(e.as_ref().map(integer).transpose()?)
                }
                SequenceOptions::StartWith(e, _) => SequenceOption::Start(integer(e)?),
                SequenceOptions::Cache(e) => SequenceOption::Cache(integer(e)?),
                // The grammar's flag is of NO CYCLE.
                SequenceOptions::Cycle(no) => SequenceOption::Cycle(!no),
            })
        })
        .collect()
}

fn integer(e: &ast::Expr) -> Result<i64> {
    let bad = || Error::new("42601", format!("syntax error at or near \"{e}\""));
    match e {
        ast::Expr::Value(v) => match &v.value {
            Value::Number(n, _) => n.parse().map_err(|_| {
                Error::new(
                    "22003",
                    format!("value \"{n}\" is out of range for type bigint"),
                )
            }),
            _ => Err(bad()),
        },
        ast::Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match &**expr {
            ast::Expr::Value(v) => format!("-{}", v.value).parse().map_err(|_| bad()),
            _ => Err(bad()),
        },
        _ => Err(bad()),
    }
}

/// Makes a sequence's block and its definition, which is not in the dictionary yet.
pub fn define(
    core: &mut Core,
    schema: u32,
    name: String,
    ty: SqlType,
    options: &[SequenceOption],
) -> Result<Sequence> {
    let role = core.owner()?;
    let object = core.database.engine().allocate_object_id()?;
    let mut sequence = Sequence {
        oid: object.0,
        schema,
        name,
        header: 0,
        type_oid: ty.oid(),
        start: 0,
        increment: 1,
        min: 0,
        max: 0,
        cache: 1,
        cycle: false,
        segment: 0,
        order: false,
        unlogged: None,
        comment: None,
        owner: None,
        role,
    };
    apply(core, &mut sequence, ty, options, true)?;
    core.give_defaults(Kind::Sequence, sequence.oid, role, schema)?;
    sequence.header = core.engine.create_sequence(object, &params(&sequence))?.0;
    Ok(sequence)
}

/// Refuses another owner of a sequence that belongs to an identity column.
fn keep_owner(core: &Core, s: &Sequence) -> Result<()> {
    let dict = core.dict();
    let owner = s.owner.and_then(|(table, column)| {
        let table = dict.table_by_oid(table)?;
        table.columns.get(column)?.identity?;
        Some(table.name.clone())
    });
    match owner {
        None => Ok(()),
        Some(table) => {
            let message = "cannot change ownership of identity sequence";
            let detail = format!("Sequence \"{}\" is linked to table \"{table}\".", s.name);
            Err(Error::new("0A000", message).detail(detail))
        }
    }
}

/// What the engine keeps in the sequence's own block.
fn params(s: &Sequence) -> block::sequence::SequenceParams {
    block::sequence::SequenceParams {
        start: s.start,
        increment: s.increment,
        min: s.min,
        max: s.max,
        // In the order of the draws, whoever draws: each from the block.
        cache: match s.order {
            true => 1,
            false => u32::try_from(s.cache).unwrap_or(u32::MAX),
        },
        cycle: s.cycle,
    }
}

fn bounds(ty: SqlType) -> Result<(i64, i64)> {
    match ty {
        SqlType::Int2 => Ok((i16::MIN.into(), i16::MAX.into())),
        SqlType::Int4 => Ok((i32::MIN.into(), i32::MAX.into())),
        SqlType::Int8 => Ok((i64::MIN, i64::MAX)),
        _ => Err(Error::new(
            "22023",
            "sequence type must be smallint, integer, or bigint",
        )),
    }
}

/// Applies options to a definition; `fresh` ones begin with the defaults of their direction.
fn apply(
    core: &mut Core,
    s: &mut Sequence,
    ty: SqlType,
    options: &[SequenceOption],
    fresh: bool,
) -> Result<()> {
    let (lowest, highest) = bounds(ty)?;
    for o in options {
        if let SequenceOption::Increment(n) = o {
            s.increment = *n;
        }
    }
    if s.increment == 0 {
        return Err(Error::new("22023", "INCREMENT must not be zero"));
    }
    let default_min = if s.increment > 0 { 1 } else { lowest };
    let default_max = if s.increment > 0 { highest } else { -1 };
    if fresh {
        (s.min, s.max) = (default_min, default_max);
    }
    let mut start = None;
    for o in options {
        match o {
            SequenceOption::Min(v) => s.min = v.unwrap_or(default_min),
            SequenceOption::Max(v) => s.max = v.unwrap_or(default_max),
            SequenceOption::Start(v) => start = Some(*v),
            SequenceOption::Cache(n) if *n < 1 => {
                return Err(Error::new(
                    "22023",
                    format!("CACHE ({n}) must be greater than zero"),
                ));
            }
            SequenceOption::Cache(n) => s.cache = *n,
            SequenceOption::Cycle(c) => s.cycle = *c,
            SequenceOption::OwnedBy(owner) => {
                keep_owner(core, s)?;
                s.owner = owner.as_ref().map(|o| find_owner(core, o)).transpose()?
            }
            SequenceOption::Order(order) => s.order = *order,
            SequenceOption::Logged(logged) => s.unlogged = Some(!logged),
            SequenceOption::Increment(_)
            | SequenceOption::Type(_)
            | SequenceOption::Restart(_)
            | SequenceOption::Name(_)
            | SequenceOption::Rename(_)
            | SequenceOption::Owner(_) => {}
        }
    }
    if s.min < lowest || s.max > highest || s.min >= s.max {
        return Err(Error::new(
            "22023",
            format!(
                "MINVALUE ({}) must be less than MAXVALUE ({})",
                s.min, s.max
            ),
        ));
    }
    if fresh || start.is_some() {
        s.start = start.unwrap_or(if s.increment > 0 { s.min } else { s.max });
    }
    if s.start < s.min {
        return Err(Error::new(
            "22023",
            format!(
                "START value ({}) cannot be less than MINVALUE ({})",
                s.start, s.min
            ),
        ));
    }
    if s.start > s.max {
        return Err(Error::new(
            "22023",
            format!(
                "START value ({}) cannot be greater than MAXVALUE ({})",
                s.start, s.max
            ),
        ));
    }
    Ok(())
}

/// The owner's table is locked, so that it is not dropped without the sequence.
fn find_owner(core: &mut Core, (table, column): &(Qualified, String)) -> Result<(u32, usize)> {
    let t = core.locked_table(table, TableLock::AccessShare)?;
    let t = t.ok_or_else(|| no_relation(core, table))?;
    let at = t
        .column(column)
        .ok_or_else(|| crate::plan::dml::no_column(column, &table.name))?;
    Ok((t.oid, at))
}

pub fn alter(
    core: &mut Core,
    name: &Qualified,
    if_exists: bool,
    options: &[SequenceOption],
) -> Result<Tag> {
    let tag = Tag::Plain("ALTER SEQUENCE");
    // A session that has drawn keeps the sequence until its transaction ends.
    let lock = TableLock::ShareRowExclusive;
    let rights = core.rights();
    let Some(sequence) = core.locked_relation(name, lock, false, |found| match found {
        Relation::Sequence(sequence) => {
            rights.check_owner_of(found)?;
            Ok(Some(sequence.clone()))
        }
        _ => Err(Error::new(
            "42809",
            format!("\"{}\" is not a sequence", name.name),
        )),
    })?
    else {
        if if_exists {
            skipping(core, "relation", name);
            return Ok(tag);
        }
        return Err(no_relation(core, name));
    };
    if options.iter().any(|o| matches!(o, SequenceOption::Name(_))) {
        let message = "invalid sequence option SEQUENCE NAME";
        return Err(Error::new("42601", message));
    }
    let mut next = Sequence::clone(&sequence);
    let mut ty = SqlType::from_oid(sequence.type_oid).unwrap_or(SqlType::Int8);
    for o in options {
        if let SequenceOption::Type(t) = o {
            retype(&mut next, ty, parts::data_type(t, &TypeNames::default())?.0)?;
            ty = SqlType::from_oid(next.type_oid).unwrap_or(SqlType::Int8);
        }
    }
    apply(core, &mut next, ty, options, false)?;
    let restart = options.iter().rev().find_map(|o| match o {
        SequenceOption::Restart(value) => Some(value.unwrap_or(next.start)),
        _ => None,
    });
    if restart.is_some() || params(&next) != params(&sequence) {
        replace(core, &sequence, &mut next, restart)?;
    }
    for o in options {
        if let SequenceOption::Owner(to) = o {
            refuse_linked(core, &next)?;
            next.role = core.new_owner(
                to,
                next.role,
                next.schema,
                &format!("sequence {}", next.name),
            )?;
        }
        if let SequenceOption::Rename(to) = o {
            core.claim_relation_name(next.schema, to)?;
            if core.dict().is_taken(next.schema, to) {
                return Err(already_exists(to));
            }
            let schema = core.dict().schema_name(next.schema).to_string();
            rename_in_defaults(core, &sequence, (&schema, to))?;
            next.name = to.clone();
        }
    }
    core.define(Object::Sequence(Arc::new(next)))?;
    Ok(tag)
}

/// A sequence of a column has the owner of the table.
fn refuse_linked(core: &Core, s: &Sequence) -> Result<()> {
    let dict = core.dict();
    let Some(table) = s.owner.and_then(|(table, _)| dict.table_by_oid(table)) else {
        return Ok(());
    };
    let message = format!("cannot change owner of sequence \"{}\"", s.name);
    let detail = format!(
        "Sequence \"{}\" is linked to table \"{}\".",
        s.name, table.name
    );
    Err(Error::new("0A000", message).detail(detail))
}

/// The default of a serial column that draws from a sequence of this full name.
pub fn serial_default(name: &str) -> String {
    format!("nextval('{}')", name.replace('\'', "''"))
}

/// The text of a default, in which the sequences that it draws from have their full names, so that
/// it means the same through any search path.
pub fn pinned(core: &Core, default: &ast::Expr) -> Result<String> {
    let dict = core.dict();
    let mut e = default.clone();
    names_of_sequences(&mut e, &mut |name| {
        if let Ok(wanted) = relation_name(name)
            && let Some(s) = dict.sequence(&wanted)
        {
            *name = dict.full_name(s.schema, &s.name);
        }
    });
    Ok(e.to_string())
}

/// The default of a column as the catalogs show it: with its sequences as they are called now, and
/// their type, by which clients know a serial column.
pub fn default_of(dict: &Dict, table: &Table, c: &Column) -> Result<Option<String>> {
    let how = Shown::AsNow(dict);
    match (&c.identity, &c.default) {
        (None, Some(text)) if c.generated => {
            Ok(Some(crate::views::definition::generation(how, table, text)))
        }
        (Some(_), _) | (_, None) => Ok(None),
        (None, Some(default)) => {
            let default = &numbered::shown(default, how)?;
            let bare = bare(crate::parse::expression(default)?);
            match (typed_literal(dict, c, &bare), &bare) {
                (Some(shown), _) => Ok(Some(shown)),
                // As in PostgreSQL it is the same as none.
                (None, ast::Expr::Value(value))
                    if matches!(value.value, Value::Null) && !c.declared().is_domain() =>
                {
                    Ok(None)
                }
                (None, ast::Expr::Value(value))
                    if matches!(value.value, Value::Number(..) | Value::Boolean(_)) =>
                {
                    Ok(Some(value.to_string()))
                }
                (None, _) => {
                    let default = crate::views::definition::default(how, default, c.ty().base());
                    shown_default(dict, &default).map(Some)
                }
            }
        }
    }
}

/// What is in the parentheses around a default.
fn bare(mut default: ast::Expr) -> ast::Expr {
    while let ast::Expr::Nested(inner) = default {
        default = *inner;
    }
    default
}

/// A string as a default, with the type that it has as PostgreSQL shows it. What is shown in
/// another form than it is written, such as times, has none here.
fn typed_literal(dict: &Dict, c: &Column, default: &ast::Expr) -> Option<String> {
    let ast::Expr::Value(value) = default else {
        return None;
    };
    let Value::SingleQuotedString(text) = &value.value else {
        return None;
    };
    let ty = match c.ty() {
        SqlType::Char => "bpchar".to_string(),
        ty @ (SqlType::Text | SqlType::Varchar | SqlType::Name | SqlType::Json) => ty.format(-1),
        SqlType::Enum(_)
        | SqlType::Own(_)
        | SqlType::Range(RangeOf::Own(_))
        | SqlType::Multirange(RangeOf::Own(_)) => {
            dict.shown_type(dict.user_type_by_oid(c.ty().oid())?)
        }
        _ => return None,
    };
    Some(format!("'{}'::{ty}", text.replace('\'', "''")))
}

fn shown_default(dict: &Dict, default: &str) -> Result<String> {
    let mut names = Vec::new();
    names_of_sequences(&mut crate::parse::expression(default)?, &mut |name| {
        names.push(name.clone());
    });
    let mut text = default.to_string();
    for name in names {
        let found = relation_name(&name).ok();
        let found = found.and_then(|n| dict.sequence(&n).cloned());
        let shown = found.map_or(name.clone(), |s| dict.shown(s.schema, &s.name));
        let (name, shown) = (name.replace('\'', "''"), shown.replace('\'', "''"));
        let shown = format!("('{shown}'::regclass)");
        for written in ["", "::text", "::regclass"] {
            text = text.replace(&format!("('{name}'{written})"), &shown);
        }
    }
    Ok(text)
}

/// The names in words that `nextval` is called with.
fn names_of_sequences(e: &mut ast::Expr, each: &mut dyn FnMut(&mut String)) {
    let _ = ast::visit_expressions_mut(e, |e| {
        if let ast::Expr::Function(f) = e
            && f.name.to_string().eq_ignore_ascii_case("nextval")
            && let ast::FunctionArguments::List(list) = &mut f.args
            && let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(arg))] =
                list.args.as_mut_slice()
        {
            // Perhaps with a cast to regclass.
            let arg = match arg {
                ast::Expr::Cast { expr, .. } => expr,
                arg => arg,
            };
            if let ast::Expr::Value(v) = arg
                && let Value::SingleQuotedString(name) = &mut v.value
            {
                each(name);
            }
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
}

/// Defaults that draw from a sequence by its name draw from it by its new one.
pub fn rename_in_defaults(
    core: &mut Core,
    s: &Sequence,
    (schema, name): (&str, &str),
) -> Result<()> {
    let full = format!("{}.{}", names::quote(schema), names::quote(name));
    for dependent in core.dict().dependents(Address::Sequence(s.oid)) {
        let Address::Default(table, at) = dependent.what else {
            continue;
        };
        core.lock_table(table, TableLock::AccessExclusive, false)?;
        let dict = core.dict();
        let Some(now) = dict.table_by_oid(table) else {
            continue;
        };
        let mut next = Table::clone(now);
        let Some(default) = &next.columns[at].default else {
            continue;
        };
        let mut e = crate::parse::expression(default)?;
        names_of_sequences(&mut e, &mut |written| {
            let of_this = relation_name(written).ok();
            let of_this = of_this.and_then(|n| dict.sequence(&n).cloned());
            if of_this.is_some_and(|found| found.oid == s.oid) {
                written.clone_from(&full);
            }
        });
        next.columns[at].default = Some(e.to_string());
        core.define(Object::Table(Arc::new(next.finish()?)))?;
    }
    Ok(())
}

/// Another type: bounds that were the old type's become the new one's.
fn retype(s: &mut Sequence, from: SqlType, to: SqlType) -> Result<()> {
    let ((old_low, old_high), (low, high)) = (bounds(from)?, bounds(to)?);
    if s.max == old_high {
        s.max = high;
    }
    if s.min == old_low {
        s.min = low;
    }
    s.type_oid = to.oid();
    Ok(())
}

/// Gives a sequence a block of its own with its new parameters, which goes on where the old one stands, or starts at `restart`. With the
/// transaction that is undone, or the old block goes.
fn replace(
    core: &mut Core,
    old: &Sequence,
    next: &mut Sequence,
    restart: Option<i64>,
) -> Result<()> {
    let (was, state) = core.engine.sequence_state(&old.engine())?;
    // The value drawn last, or the one to be drawn first.
    let (value, called) = match restart {
        Some(value) => (value, false),
        None if state.draw == 0 => (state.mark, false),
        None if state.exhausted => (state.mark, true),
        None => match state.mark.checked_sub(was.increment) {
            Some(last) if (old.min..=old.max).contains(&last) => (last, true),
            _ => (state.mark, false),
        },
    };
    let bound = |word: &str, limit: &str, bound: i64| {
        Err(Error::new(
            "22023",
            format!("RESTART value ({value}) cannot be {word} than {limit} ({bound})"),
        ))
    };
    if value < next.min {
        return bound("less", "MINVALUE", next.min);
    }
    if value > next.max {
        return bound("greater", "MAXVALUE", next.max);
    }
    let object = core.database.engine().allocate_object_id()?;
    next.header = core.engine.create_sequence(object, &params(next))?.0;
    next.segment = object.0;
    core.engine.sequence_set(&next.engine(), value, called)?;
    let gone = old.engine();
    core.engine
        .drop_sequence_at_commit(gone.object, gone.header)?;
    Ok(())
}

pub fn drop(
    core: &mut Core,
    names: &[ast::ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<Tag> {
    let own = |found: &Relation| match found {
        Relation::Sequence(s) => Some(Address::Sequence(s.oid)),
        _ => None,
    };
    let gone = super::to_drop(core, names, if_exists, "sequence", &own)?;
    for sequence in &gone {
        if let Address::Sequence(oid) = sequence
            && let Some(s) = core.dict().sequence_by_oid(*oid).cloned()
        {
            refuse_identity(core, &s)?;
        }
    }
    drop_dependents(core, &gone, cascade)?;
    for sequence in gone {
        if let Address::Sequence(oid) = sequence {
            drop_one(core, oid)?;
        }
    }
    Ok(Tag::Plain("DROP SEQUENCE"))
}

/// The sequence of an identity column goes with the column only.
fn refuse_identity(core: &Core, s: &Sequence) -> Result<()> {
    let dict = core.dict();
    let Some((table, at)) = s.owner else {
        return Ok(());
    };
    let Some(t) = dict.table_by_oid(table) else {
        return Ok(());
    };
    if t.columns[at].identity.is_none() {
        return Ok(());
    }
    let sequence = dict.describe(Address::Sequence(s.oid));
    let column = dict.describe(Address::Column(table, at));
    let message = format!("cannot drop {sequence} because {column} requires it");
    Err(Error::new("2BP01", message).hint(format!("You can drop {column} instead.")))
}

/// A sequence as it is once nobody else uses it; `None` if it was dropped before.
pub fn locked(core: &mut Core, oid: u32) -> Result<Option<Arc<Sequence>>> {
    core.lock_table(oid, TableLock::AccessExclusive, false)?;
    Ok(core.dict().sequence_by_oid(oid).cloned())
}

pub fn drop_one(core: &mut Core, oid: u32) -> Result<()> {
    let Some(s) = locked(core, oid)? else {
        return Ok(());
    };
    core.engine
        .drop_sequence_at_commit(s.engine().object, s.engine().header)?;
    core.undefine(s.oid.into())
}
