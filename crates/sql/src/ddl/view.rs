//! CREATE VIEW and DROP VIEW.
//!
//! A view is kept as the text of its query, in which relations stand by object id, `*` is written
//! out, and columns have their tables' names ([`crate::dict::view`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use sqlparser::ast;

use super::dependence::drop_dependents;
use super::{Core, already_exists, name_of, view_options, wrong_kind};
use crate::api::Tag;
use crate::bind::names::{self, quote};
use crate::bind::numbered_operator;
use crate::dict::acl;
use crate::dict::depend::Address;
use crate::dict::view::SOURCES;
use crate::dict::{Dict, Object, Relation, Source, View, ViewColumn};
use crate::error::{Error, Result};
use crate::parse::utility::TableLock;
use crate::parse::view::options_of;
use crate::parse::{self, Command};
use crate::plan::dml::no_column;
use crate::query::analyze::view::{Noted, NotedStar, Notes, describe};

pub fn create(core: &mut Core, v: &ast::CreateView, text: &str) -> Result<Tag> {
    let tag = Tag::Plain("CREATE VIEW");
    refuse_unknown(v)?;
    let options = view_options::checked(&options_of(&v.options)?)?;
    // The tables that are read are locked before the new name is claimed.
    core.analyse_part(&ast::Statement::Query(v.query.clone()), &[], false)?;
    let name = name_of(&v.name)?;
    let temporary = v.temporary || reads_temporary(core, &v.query)?;
    if temporary && !v.temporary {
        let message = format!("view \"{}\" will be a temporary view", name.name);
        core.notice("NOTICE", "00000", message);
    }
    let schema = core.claim_place(&name, temporary)?;
    let (mut columns, notes) = described(core, &v.query)?;
    rename_columns(&mut columns, v)?;
    for column in &columns {
        super::composite::check_column(&column.name, column.ty())?;
    }
    let old = match core.dict().table_or_view(schema, &name.name) {
        None if core.dict().is_taken(schema, &name.name) => return Err(already_exists(&name.name)),
        None => None,
        Some(Relation::View(old)) if v.or_replace => Some(old),
        Some(found) if v.or_replace => {
            let found = wrong_kind(&name, &found, "a view");
            return Err(Error::new("42809", found.message()));
        }
        Some(_) => return Err(already_exists(&name.name)),
    };
    let (oid, owner) = match &old {
        Some(old) => (old.oid, old.owner),
        None => (
            core.database.engine().allocate_object_id()?.0,
            core.owner()?,
        ),
    };
    core.lock_table(oid, TableLock::AccessExclusive, false)?;
    // Its comments, too, are those that it has under the lock.
    let old = core.dict().view_by_oid(oid).cloned();
    let kept = old.iter().flat_map(|v| &v.columns);
    for (column, old) in columns.iter_mut().zip(kept) {
        column.default.clone_from(&old.default);
    }
    let (query, sources) = pinned(text, oid, notes)?;
    let view = View {
        oid,
        schema,
        name: name.name,
        owner,
        columns,
        query,
        sources,
        comments: old.as_ref().map_or(Vec::new(), |v| v.comments.clone()),
        options,
        triggers: old.as_ref().map_or(Vec::new(), |v| v.triggers.clone()),
    };
    view_options::check_updatable(&core.dict(), &view)?;
    if old.is_none() {
        core.give_defaults(acl::Kind::Table, oid, owner, schema)?;
    }
    if let Some(old) = core.dict().view_by_oid(oid) {
        core.check_owner(old.owner, format!("view {}", old.name))?;
        check_replacement(&core.dict(), old, &view)?;
    }
    core.define(Object::View(Arc::new(view)))?;
    let made = core.dict().view_by_oid(oid).cloned();
    let gone = || Error::internal("a view that was defined is not there");
    verify(core, made.as_ref().ok_or_else(gone)?)?;
    Ok(tag)
}

fn refuse_unknown(v: &ast::CreateView) -> Result<()> {
    let what = match v {
        _ if v.or_alter
            || v.secure
            || v.if_not_exists
            || v.with_no_schema_binding
            || v.copy_grants
            || v.to.is_some()
            || v.comment.is_some()
            || v.params.is_some()
            || !v.cluster_by.is_empty() =>
        {
            "this form of CREATE VIEW"
        }
        _ => return Ok(()),
    };
    Err(Error::unsupported(what))
}

/// The columns of a query, and what it names, which is locked and stays until the transaction ends.
pub(super) fn described(core: &mut Core, query: &ast::Query) -> Result<(Vec<ViewColumn>, Notes)> {
    loop {
        let version = core.dict().version();
        let (columns, notes) = describe(core, query)?;
        for relation in &notes.relations {
            if let Noted::Stored(oid, _) = relation.what {
                core.lock_table(oid, TableLock::AccessShare, false)?;
            }
        }
        let dict = core.dict();
        let names = notes.numbers.names.iter().map(|name| name.number);
        let operators = notes.numbers.operators.iter().map(|o| o.number);
        for number in names.chain(operators) {
            let holder = super::numbers::holder(&dict, number);
            core.lock_table(holder, TableLock::AccessShare, false)?;
        }
        if core.dict().version() == version {
            return Ok((columns, notes));
        }
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
    }
}

/// Whether a query reads a temporary relation.
pub(super) fn reads_temporary(core: &mut Core, query: &ast::Query) -> Result<bool> {
    let (_, notes) = described(core, query)?;
    let dict = core.dict();
    let of = |oid: u32| {
        let table = dict.table_by_oid(oid).map(|t| t.schema);
        table.or_else(|| dict.view_by_oid(oid).map(|v| v.schema))
    };
    let temporary = |what: &Noted| match what {
        Noted::Stored(oid, _) => of(*oid).is_some_and(|schema| dict.is_temporary(schema)),
        Noted::System(..) => false,
    };
    Ok(notes.relations.iter().any(|r| temporary(&r.what)))
}

fn rename_columns(columns: &mut [ViewColumn], v: &ast::CreateView) -> Result<()> {
    if v.columns.len() > columns.len() {
        let message = "CREATE VIEW specifies more column names than columns";
        return Err(Error::new("42601", message));
    }
    for (column, given) in columns.iter_mut().zip(&v.columns) {
        if given.data_type.is_some() || given.options.is_some() {
            return Err(Error::unsupported("a type or an option of a view's column"));
        }
        column.name = names::ident(&given.name);
    }
    for (at, column) in columns.iter().enumerate() {
        if columns[..at].iter().any(|c| c.name == column.name) {
            let message = format!("column \"{}\" specified more than once", column.name);
            return Err(Error::new("42701", message));
        }
    }
    Ok(())
}

/// OR REPLACE keeps the columns, and may add some.
fn check_replacement(dict: &Dict, old: &View, new: &View) -> Result<()> {
    let invalid = |message: String| Err(Error::new("42P16", message));
    if new.columns.len() < old.columns.len() {
        return invalid("cannot drop columns from view".to_string());
    }
    for (was, is) in old.columns.iter().zip(&new.columns) {
        if was.name != is.name {
            let message = format!(
                "cannot change name of view column \"{}\" to \"{}\"",
                was.name, is.name
            );
            let hint =
                "Use ALTER VIEW ... RENAME COLUMN ... to change name of view column instead.";
            return Err(Error::new("42P16", message).hint(hint));
        }
        if (was.type_oid, was.typmod) != (is.type_oid, is.typmod) {
            return invalid(format!(
                "cannot change data type of view column \"{}\" from {} to {}",
                was.name,
                was.ty().format(was.typmod),
                is.ty().format(is.typmod)
            ));
        }
    }
    if reaches(dict, new, new.oid) {
        let message = format!(
            "infinite recursion detected in rules for relation \"{}\"",
            new.name
        );
        return Err(Error::new("42P17", message));
    }
    Ok(())
}

/// Whether a view reads another one, perhaps through others.
fn reaches(dict: &Dict, view: &View, wanted: u32) -> bool {
    let mut views = view.sources.iter().map(|s| s.oid);
    views.any(|oid| {
        oid == wanted
            || dict
                .view_by_oid(oid)
                .is_some_and(|v| reaches(dict, v, wanted))
    })
}

/// The text of a view's query, from that of its statement.
pub(super) fn pinned(text: &str, view: u32, notes: Notes) -> Result<(String, Vec<Source>)> {
    let place =
        parse::view::query(text).ok_or_else(|| Error::internal("a CREATE VIEW without a query"))?;
    let mut sources = Vec::new();
    let query = pinned_between((text, place), view, notes, &mut sources)?;
    Ok((query, sources))
}

/// The text of a view's query, or of a policy's, which stands between two bytes of a statement's
/// text. What it reads is added to the sources.
pub(super) fn pinned_between(
    (text, (begin, end)): (&str, (usize, usize)),
    view: u32,
    notes: Notes,
    sources: &mut Vec<Source>,
) -> Result<String> {
    // By place, so that what was analysed twice is written once.
    let mut edits: BTreeMap<usize, (usize, String)> = BTreeMap::new();
    for relation in notes.relations {
        let name = match relation.what {
            Noted::System(schema, name) => format!("{}.{}", quote(schema), quote(name)),
            Noted::Stored(oid, columns) => {
                let known = sources.iter().position(|s| s.oid == oid);
                let at = known.unwrap_or(sources.len());
                let used = notes.used.get(&oid).into_iter().flatten().copied();
                match sources.get_mut(at) {
                    Some(source) => {
                        source.used.extend(used);
                        source.used.sort_unstable();
                        source.used.dedup();
                    }
                    None => sources.push(Source {
                        oid,
                        columns,
                        used: used.collect(),
                    }),
                }
                format!("\"{SOURCES}\".\"{view}.{at}\"")
            }
        };
        let alias = relation
            .alias
            .map_or(String::new(), |a| format!(" AS {}", quoted(&a)));
        let (from, to) = bytes(text, relation.place.start, relation.place.end);
        edits.insert(from, (to, name + &alias));
    }
    for NotedStar { place, columns } in notes.stars {
        let (from, to) = bytes(text, place.start, place.end);
        let names = columns.into_iter().map(|(table, name)| match table {
            Some(table) => format!("{}.{}", quoted(&table), quoted(&name)),
            None => quoted(&name),
        });
        let names = names.collect::<Vec<_>>().join(", ");
        let names = match text.get(from..to) {
            Some(star) if star.ends_with('*') => names,
            // `TABLE t` was read as `SELECT * FROM t`.
            Some(word) if word.eq_ignore_ascii_case("table") => format!("SELECT {names} FROM"),
            _ => return Err(Error::unsupported("this query in a view")),
        };
        edits.insert(from, (to, names));
    }
    for (place, table) in notes.bare {
        let (from, _) = bytes(text, place, place);
        edits.insert(from, (from, format!("{}.", quoted(&table))));
    }
    for (start, end) in notes.schemas {
        let (from, to) = bytes(text, start, end);
        edits.insert(from, (to, String::new()));
    }
    if notes.numbers.elsewhere {
        return Err(Error::unsupported("this query in a view"));
    }
    for name in notes.numbers.names {
        let (from, to) = bytes(text, name.place.start, name.place.end);
        // Only where it stands as it was read.
        if !text
            .get(from..to)
            .is_some_and(|t| t.to_lowercase().contains(&name.name.to_lowercase()))
        {
            return Err(Error::unsupported("this query in a view"));
        }
        edits.insert(from, (to, name.text()));
    }
    let mut query = String::with_capacity(text.len());
    let mut at = begin;
    for (from, (to, new)) in edits {
        if from < at || to < from {
            return Err(Error::unsupported("this query in a view"));
        }
        query.push_str(&text[at..from]);
        query.push_str(&new);
        at = to;
    }
    query.push_str(text.get(at..end).unwrap_or_default());
    let query = query.trim().trim_end_matches(';').trim_end();
    numbered_operator::in_query(query, &notes.numbers.operators)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn bytes(
    text: &str,
    start: sqlparser::tokenizer::Location,
    end: sqlparser::tokenizer::Location,
) -> (usize, usize) {
    (parse::byte_of(text, start), parse::byte_of(text, end))
}

/// Whether a view's text means what its statement did: where it does not, the view is refused.
pub(super) fn verify(core: &Core, view: &View) -> Result<()> {
    let refused = || Error::unsupported("this query in a view");
    let Ok(Command::Sql(statement)) = parse::statement(&view.query) else {
        return Err(refused());
    };
    let ast::Statement::Query(query) = *statement else {
        return Err(refused());
    };
    let Ok((columns, notes)) = describe(core, &query) else {
        return Err(refused());
    };
    let types = |columns: &[ViewColumn]| -> Vec<(u32, i32)> {
        columns.iter().map(|c| (c.type_oid, c.typmod)).collect()
    };
    let all_pinned = !notes
        .relations
        .iter()
        .any(|r| matches!(r.what, Noted::Stored(..)));
    let left = &notes.numbers;
    let all_pinned = all_pinned && left.names.is_empty() && left.operators.is_empty();
    let all_pinned = all_pinned && !left.elsewhere;
    match types(&columns) == types(&view.columns) && all_pinned {
        true => Ok(()),
        false => Err(refused()),
    }
}

/// ALTER VIEW .. ALTER COLUMN .. SET or DROP DEFAULT.
pub fn set_default(core: &mut Core, view: &View, column: &str, text: Option<&str>) -> Result<()> {
    let mut next = View::clone(view);
    let at = next
        .column(column)
        .ok_or_else(|| no_column(column, &view.name))?;
    next.columns[at].default = match text {
        Some(text) => Some(super::sequence::pinned(core, &parse::expression(text)?)?),
        None => None,
    };
    let shown = Arc::new(next.clone()).as_table();
    super::table::check_defaults(&core.dict(), &shown.columns[at..=at])?;
    core.define(Object::View(Arc::new(next)))
}

pub fn drop(
    core: &mut Core,
    names: &[ast::ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<Tag> {
    let own = |found: &Relation| match found {
        Relation::View(view) => Some(Address::View(view.oid)),
        _ => None,
    };
    let gone = super::to_drop(core, names, if_exists, "view", &own)?;
    drop_dependents(core, &gone, cascade)?;
    for view in gone {
        if let Address::View(oid) = view {
            core.undefine(oid.into())?;
        }
    }
    Ok(Tag::Plain("DROP VIEW"))
}
