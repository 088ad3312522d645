//! CREATE, ALTER and DROP SEQUENCE, and the sequences of serial and identity columns.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{self, SequenceOptions, UnaryOperator, Value};

use super::{Core, already_exists, missing, name_of, skipping, wrong_kind};
use crate::api::Tag;
use crate::bind::{names, parts};
use crate::dict::{Object, Relation, Sequence};
use crate::error::{Error, Result};
use crate::parse::utility::{SequenceOption, TableLock};
use crate::types::SqlType;

pub fn create(
    core: &mut Core,
    name: &str,
    if_not_exists: bool,
    data_type: Option<&ast::DataType>,
    options: &[SequenceOption],
) -> Result<Tag> {
    core.claim_name(name)?;
    if core.dict().relation(name).is_some() {
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
        Some(t) => parts::data_type(t)?.0,
    };
    let sequence = define(core, name.to_string(), ty, options)?;
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
    name: String,
    ty: SqlType,
    options: &[SequenceOption],
) -> Result<Sequence> {
    let object = core.database.engine().allocate_object_id()?;
    let mut sequence = Sequence {
        oid: object.0,
        name,
        header: 0,
        type_oid: ty.oid(),
        start: 0,
        increment: 1,
        min: 0,
        max: 0,
        cache: 1,
        cycle: false,
        owner: None,
    };
    apply(core, &mut sequence, ty, options, true)?;
    sequence.header = core.engine.create_sequence(object, &params(&sequence))?.0;
    Ok(sequence)
}

/// What the engine keeps in the sequence's own block.
fn params(s: &Sequence) -> block::sequence::SequenceParams {
    block::sequence::SequenceParams {
        start: s.start,
        increment: s.increment,
        min: s.min,
        max: s.max,
        cache: u32::try_from(s.cache).unwrap_or(u32::MAX),
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
                s.owner = owner.as_ref().map(|o| find_owner(core, o)).transpose()?
            }
            SequenceOption::Increment(_)
            | SequenceOption::Restart(_)
            | SequenceOption::Rename(_) => {}
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

fn find_owner(core: &Core, (table, column): &(String, String)) -> Result<(u32, usize)> {
    let dict = core.dict();
    let t = dict.table(table).ok_or_else(|| names::no_relation(table))?;
    let at = t
        .column(column)
        .ok_or_else(|| crate::plan::dml::no_column(column, table))?;
    Ok((t.oid, at))
}

pub fn alter(
    core: &mut Core,
    name: &str,
    if_exists: bool,
    options: &[SequenceOption],
) -> Result<Tag> {
    let tag = Tag::Plain("ALTER SEQUENCE");
    let Some(sequence) = core.dict().sequence(name).cloned() else {
        if if_exists {
            skipping(core, "relation", name);
            return Ok(tag);
        }
        return Err(names::no_relation(name));
    };
    core.lock_table(sequence.oid, TableLock::ShareRowExclusive, false)?;
    let mut next = Sequence::clone(&sequence);
    let ty = SqlType::from_oid(sequence.type_oid).unwrap_or(SqlType::Int8);
    apply(core, &mut next, ty, options, false)?;
    if params(&next) != params(&sequence) {
        return Err(Error::unsupported(
            "changing the parameters of a sequence (drop and create it)",
        ));
    }
    for o in options {
        match o {
            SequenceOption::Rename(to) => {
                core.claim_name(to)?;
                if core.dict().relation(to).is_some() {
                    return Err(already_exists(to));
                }
                next.name = to.clone();
            }
            SequenceOption::Restart(value) => {
                let value = value.unwrap_or(next.start);
                if !(next.min..=next.max).contains(&value) {
                    return Err(Error::new(
                        "22023",
                        format!(
                            "RESTART value ({value}) is outside of MINVALUE ({}) and MAXVALUE ({})",
                            next.min, next.max
                        ),
                    ));
                }
                core.engine.sequence_set(&next.engine(), value, false)?;
            }
            _ => {}
        }
    }
    core.define(Object::Sequence(Arc::new(next)))?;
    Ok(tag)
}

pub fn drop(
    core: &mut Core,
    names: &[ast::ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<Tag> {
    for name in names {
        let name = name_of(name)?;
        match core.dict().relation(&name) {
            Some(Relation::Sequence(s)) => {
                let used = core
                    .dict()
                    .tables()
                    .any(|t| t.columns.iter().any(|c| c.sequence == Some(s.oid)));
                if used && !cascade {
                    return Err(Error::new(
                        "2BP01",
                        format!("cannot drop sequence {name} because other objects depend on it"),
                    )
                    .hint("Use DROP ... CASCADE to drop the dependent objects too."));
                }
                if used {
                    return Err(Error::unsupported(
                        "DROP SEQUENCE ... CASCADE of a sequence that a column uses",
                    ));
                }
                drop_one(core, &s)?;
            }
            Some(other) => return Err(wrong_kind(&name, &other, "a sequence")),
            None if if_exists => skipping(core, "sequence", &name),
            None => return Err(missing("sequence", &name)),
        }
    }
    Ok(Tag::Plain("DROP SEQUENCE"))
}

pub fn drop_one(core: &mut Core, s: &Sequence) -> Result<()> {
    core.lock_table(s.oid, TableLock::AccessExclusive, false)?;
    core.engine
        .drop_sequence_at_commit(block::ObjectId(s.oid), block::Dba(s.header))?;
    core.undefine(s.oid.into())
}
