//! Views in FROM, and what CREATE VIEW has to know of a query.
//!
//! A view is a subquery of FROM, so that its conditions and those on it meet in one plan. **Invariant.**
//! Nothing of the query around it is seen inside: its relations are object ids, its columns those
//! of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sqlparser::ast::{self, Ident, TableAlias};
use sqlparser::tokenizer::{Location, Span};

use super::Analyzer;
use super::from::{Item, rename};
use super::scope::{Column, File, Scope};
use super::with::Known;
use crate::bind::numbered;
use crate::bind::{self, ParamTypes, names};
use crate::dict::acl::Privileges;
use crate::dict::{Source, View, ViewColumn};
use crate::error::{Error, Result};
use crate::parse::{self, Command};
use crate::plan::supply;
use crate::plan::through::Target;
use crate::session::Core;

/// Views upon views: each takes its part of the stack.
const MAX_NESTED: usize = 64;

/// What a query of CREATE VIEW was found to name, each with its place in the text.
#[derive(Default)]
pub struct Notes {
    pub relations: Vec<NotedRelation>,
    pub stars: Vec<NotedStar>,
    /// Columns without the name of their table: where, and that.
    pub bare: Vec<(Location, String)>,
    /// Names of columns with a schema: from where to where that stands.
    pub schemas: Vec<(Location, Location)>,
    /// Columns that are used, by relation.
    pub used: BTreeMap<u32, BTreeSet<i16>>,
    /// Names of functions and types of users, and operators of extensions.
    pub numbers: numbered::OfText,
}

/// A `*`, and the columns that it is: the name of their table, if it has one, and theirs.
pub struct NotedStar {
    pub place: Span,
    pub columns: Vec<(Option<String>, String)>,
}

pub struct NotedRelation {
    pub place: Span,
    /// Its name, if it has no alias.
    pub alias: Option<String>,
    pub what: Noted,
}

pub enum Noted {
    /// A table or a view, with its columns by number.
    Stored(u32, Vec<(i16, String)>),
    /// A catalog, or another relation of the system.
    System(&'static str, &'static str),
}

/// The columns of a query, and what it names.
pub fn describe(core: &Core, q: &ast::Query) -> Result<(Vec<ViewColumn>, Notes)> {
    let dict = core.dict();
    let params = ParamTypes::none(&dict);
    params.needs.run_by(core.roles.current, true);
    let analyzer = Analyzer::new(&dict, &params);
    *analyzer.notes.borrow_mut() = Some(Notes::default());
    params.names.note_in(Some(Vec::new()));
    let file = File::new(None);
    let outermost = Scope::new(None, &file);
    let mut level = analyzer.query(q, &outermost, &Known::of_statement(&[]))?;
    analyzer.settle(&mut level)?;
    let column = |o: &super::tree::Output| ViewColumn {
        name: o.name.clone(),
        type_oid: o.value.ty.oid(),
        known: Some(o.value.ty),
        typmod: o.value.typmod,
        default: None,
    };
    let columns = level.outputs.iter().map(column).collect();
    let mut notes = analyzer.notes.take().unwrap_or_default();
    drop(analyzer);
    let noted = params.names.note_in(None).unwrap_or_default();
    notes.numbers = numbered::of_query(&dict, q, &noted);
    if !params.finish().is_empty() {
        return Err(Error::new("42P02", "there is no parameter $1"));
    }
    Ok((columns, notes))
}

/// The row of a view whose triggers write it, in the place of a row id.
fn row_of(columns: &[Column]) -> Result<Column> {
    let fields = columns.iter().map(|c| (c.name.clone(), c.value.clone()));
    Ok(Column {
        table: String::new(),
        name: supply::ROW_ID.to_string(),
        value: bind::record(fields.collect())?,
        origin: (0, 0),
        merged: false,
        whole: false,
    })
}

impl Analyzer<'_> {
    /// Notes that a column is used.
    pub(super) fn note_used(&self, (relation, number): (u32, i16)) {
        self.params.needs.read(relation, number);
        if relation != 0
            && let Some(notes) = self.notes.borrow_mut().as_mut()
        {
            notes.used.entry(relation).or_default().insert(number);
        }
    }

    /// Notes that a column stands without the name of its table.
    pub(super) fn note_bare(&self, name: &Ident, column: &Column) {
        if let Some(notes) = self.notes.borrow_mut().as_mut()
            && !column.table.is_empty()
        {
            notes.bare.push((name.span.start, column.table.clone()));
        }
    }

    pub(super) fn note_schema(&self, path: &[Ident]) {
        if let [schema, table, _] = path
            && let Some(notes) = self.notes.borrow_mut().as_mut()
        {
            notes.schemas.push((schema.span.start, table.span.start));
        }
    }

    /// Notes what a `*` is.
    pub(super) fn note_star<'c>(&self, place: Span, columns: impl Iterator<Item = &'c Column>) {
        if let Some(notes) = self.notes.borrow_mut().as_mut() {
            let name = |c: &Column| {
                let table = (!c.table.is_empty()).then(|| c.table.clone());
                (table, c.name.clone())
            };
            notes.stars.push(NotedStar {
                place,
                columns: columns.map(name).collect(),
            });
        }
    }

    pub(super) fn note_relation(
        &self,
        name: &ast::ObjectName,
        alias: Option<&TableAlias>,
        what: Noted,
    ) -> Result<()> {
        if let Some(notes) = self.notes.borrow_mut().as_mut() {
            let (Some(first), Some(last)) = (name.0.first(), name.0.last()) else {
                return Ok(());
            };
            let span = |part: &ast::ObjectNamePart| match part {
                ast::ObjectNamePart::Identifier(i) => i.span,
                ast::ObjectNamePart::Function(_) => Span::empty(),
            };
            notes.relations.push(NotedRelation {
                place: Span::new(span(first).start, span(last).end),
                alias: match alias {
                    Some(_) => None,
                    None => Some(names::Qualified::new(name)?.name),
                },
                what,
            });
        }
        Ok(())
    }

    /// A relation that the text of a view names, or that of a policy.
    pub(super) fn source(&self, name: &str) -> Result<Source> {
        let gone = || Error::internal(format!("the relation {name} of a view is gone"));
        let (view, at) = name.split_once('.').ok_or_else(gone)?;
        let oid = view.parse().map_err(|_| gone())?;
        let policy = || self.dict.policy_by_oid(oid).map(|(_, p)| &p.sources);
        let made = || Some(&self.dict.table_by_oid(oid)?.materialized.as_ref()?.sources);
        let sources = match self.dict.view_by_oid(oid) {
            Some(view) => &view.sources,
            None => policy().or_else(made).ok_or_else(gone)?,
        };
        let source = at.parse().ok().and_then(|at: usize| sources.get(at));
        source.cloned().ok_or_else(gone)
    }

    /// Refuses to go into yet another text within a text, of a view or a policy.
    pub(super) fn may_nest(&self) -> Result<()> {
        if self.nested.get() < MAX_NESTED {
            return Ok(());
        }
        let hint = format!("Views and policies upon others go {MAX_NESTED} levels deep.");
        Err(Error::new("54001", "stack depth limit exceeded").hint(hint))
    }

    /// A view as an item of FROM; `columns` are those that it had when a view upon it was made. Of
    /// the target of a write it brings the row ids, or is itself what triggers write.
    pub(super) fn stored_view(
        &self,
        view: &Arc<View>,
        target: Option<&Target<'_>>,
        columns: Option<&[(i16, String)]>,
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
        nullable: bool,
    ) -> Result<Item> {
        self.may_nest()?;
        self.note_view(view);
        let Command::Sql(statement) = parse::statement(&view.query)? else {
            return Err(Error::internal("the query of a view that is none"));
        };
        let ast::Statement::Query(mut query) = *statement else {
            return Err(Error::internal("the query of a view that is none"));
        };
        let through = target.filter(|t| t.written != view.oid);
        if let Some(target) = through {
            target.ask_below(&mut query, view)?;
        }
        self.nested.set(self.nested.get() + 1);
        let needs = &self.params.needs;
        if target.is_none() {
            needs.relation(view.oid, Privileges::SELECT);
        }
        let around = match through {
            Some(_) => needs.enter_written(view.oid, view.is_invoker()),
            None => needs.enter_view(view.oid, view.is_invoker()),
        };
        // Places in its text are none in the statement's.
        let known = Known::of_statement(&[]);
        let around_text = self.params.sight.reads_stored(true);
        let level = self.unnoted(|| self.query(&query, &scope.beside(), &known));
        self.params.sight.reads_stored(around_text);
        needs.leave(around);
        self.nested.set(self.nested.get() - 1);
        let mut level = level?;
        self.settle(&mut level)?;
        let own = TableAlias {
            explicit: true,
            name: Ident::with_quote(
                '"',
                alias.map_or(view.name.clone(), |a| names::ident(&a.name)),
            ),
            columns: Vec::new(),
            at: None,
        };
        let (from, mut found) =
            self.level_in_from(level, (Some(&own), view.is_barrier()), scope, nullable)?;
        for (at, (column, stored)) in found.columns.iter_mut().zip(&view.columns).enumerate() {
            column.name.clone_from(&stored.name);
            column.origin = (view.oid, at as i16 + 1);
        }
        let row_id = match (target, through) {
            (None, _) => None,
            (Some(_), Some(_)) => found.columns.pop(),
            (Some(_), None) => Some(row_of(&found.columns)?),
        };
        if let Some(columns) = columns {
            found.columns.truncate(columns.len());
            for (column, (_, name)) in found.columns.iter_mut().zip(columns) {
                column.name.clone_from(name);
            }
        }
        found.columns.extend(row_id);
        if let Some(alias) = alias {
            rename(&mut found, alias)?;
        }
        Ok((from, found))
    }

    fn note_view(&self, view: &Arc<View>) {
        let mut views = self.views.borrow_mut();
        if !views.iter().any(|v| v.oid == view.oid) {
            views.push(view.clone());
        }
    }
}
