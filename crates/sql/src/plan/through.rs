//! Writes through views: a view that shows the rows of one relation is written to as that relation
//! ([decision 0087](../../../../docs/decisions/0087-views-that-are-written-to.md)).
//!
//! A write is planned over the columns of what it names, as if that were a table. Of a view each
//! column in the write's expressions then becomes what the view has for it, over the row of the
//! relation below; views upon views do so one after the other. **Invariant.** What comes out names
//! columns of the relation that is written alone. Behind the planner nothing knows of the views,
//! but for the conditions of CHECK OPTION, which are among the rules of the rows.

use std::sync::Arc;

use sqlparser::ast;

use super::Planner;
use super::dml::{RowRules, ViewCheck};
use super::path::{conjoin, conjuncts};
use super::supply::{ROW_ID, TARGET_SCHEMA};
use super::updatable::{NO_RELATION, NO_UPDATABLE_COLUMNS, Reason, Shape};
use crate::bind::needs::Text;
use crate::bind::{Binder, ParamTypes, Scope, ScopeColumn, names};
use crate::dict::acl::Privileges;
use crate::dict::trigger::Op;
use crate::dict::view::CheckOption;
use crate::dict::{Column, Dict, Source, Table, View};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::query::analyze::policy::Use;

/// The relation that a write names.
pub struct Written {
    /// What the statement sees: the table, or the view as a table of its columns.
    pub shown: Arc<Table>,
    pub alias: String,
    /// How a view is written to as the relation below it.
    through: Option<Through>,
}

/// A view as the relation that is written in its place.
struct Through {
    /// The table, or a view with an INSTEAD OF trigger.
    table: Arc<Table>,
    columns: Vec<Shown>,
    /// The conditions of all views, over the row of the table.
    condition: Result<Option<Expr>>,
    checks: Result<Vec<ViewCheck>>,
    /// What the rights of whom are asked for, from the outermost view on: the relation below each,
    /// and the columns that it has for the outermost view's.
    below: Vec<Below>,
    /// From the outermost on.
    views: Vec<Arc<View>>,
}

/// A column of the outermost view.
struct Shown {
    /// Its value, over the row of the table.
    value: Result<Expr>,
    /// The column of the table that it is; or why it is none, and the view that says so.
    column: std::result::Result<usize, Refused>,
}

#[derive(Clone)]
struct Refused {
    reason: Reason,
    view: String,
    name: String,
}

struct Below {
    text: Text,
    relation: u32,
    columns: Vec<Option<usize>>,
}

/// What a write does to columns, in the words of errors.
fn verb(op: Op) -> [&'static str; 4] {
    match op {
        Op::Insert => ["insert into", "inserting into", "INSERT", "insert into"],
        Op::Update => ["update", "updating", "UPDATE", "update"],
        _ => ["delete from", "deleting from", "DELETE", "delete from"],
    }
}

fn not_updatable(view: &View, op: Op, reason: Reason) -> Error {
    let [what, doing, event, _] = verb(op);
    let message = format!("cannot {what} view \"{}\"", view.name);
    Error::new("55000", message).detail(reason).hint(format!(
        "To enable {doing} the view, provide an INSTEAD OF {event} trigger or an unconditional ON \
         {event} DO INSTEAD rule."
    ))
}

impl Planner<'_> {
    /// A table as the target of a write.
    pub(super) fn table_written(table: Arc<Table>, alias: String) -> Written {
        Written {
            shown: table,
            alias,
            through: None,
        }
    }

    /// A view as the target of a write.
    pub(super) fn view_written(&self, view: &Arc<View>, alias: String, op: Op) -> Result<Written> {
        let (shown, through) = self.seen_through(view, op, false)?;
        Ok(Written {
            shown,
            alias,
            through,
        })
    }

    /// A view as a table of its columns, and how it is written to; `cascaded`: a view upon it has a
    /// CHECK OPTION for it too.
    fn seen_through(
        &self,
        view: &Arc<View>,
        op: Op,
        cascaded: bool,
    ) -> Result<(Arc<Table>, Option<Through>)> {
        let own = view.as_table();
        if own.has_instead(op) {
            return Ok((Arc::new(own), None));
        }
        let shape = Shape::of(self.dict, view)?;
        let shape = shape.map_err(|reason| not_updatable(view, op, reason))?;
        let gone = || Error::internal("a relation of a view is gone");
        let source = view.sources.get(shape.source).ok_or_else(gone)?;
        if op != Op::Delete && !shape.has_updatable(&source.columns) {
            return Err(not_updatable(view, op, NO_UPDATABLE_COLUMNS));
        }
        let check = match view.check_option() {
            _ if op == Op::Delete => None,
            _ if cascaded => Some(CheckOption::Cascaded),
            own => own,
        };
        let for_below = check == Some(CheckOption::Cascaded);
        let needs = &self.params.needs;
        let around = needs.enter_written(view.oid, view.is_invoker());
        let below = match self.dict.view_by_oid(source.oid) {
            Some(inner) => self.seen_through(inner, op, for_below),
            None => match self.dict.table_by_oid(source.oid) {
                Some(table) if table.materialized.is_some() => {
                    Err(not_updatable(view, op, NO_RELATION))
                }
                Some(table) => Ok((table.clone(), None)),
                None => Err(gone()),
            },
        };
        let made = below.and_then(|(relation, inner)| {
            self.joined_to((view, op), (own, &shape, source), (relation, inner), check)
        });
        needs.leave(around);
        made
    }

    /// Puts a view upon the relation below it.
    fn joined_to(
        &self,
        (view, op): (&Arc<View>, Op),
        (mut own, shape, source): (Table, &Shape, &Source),
        (relation, inner): (Arc<Table>, Option<Through>),
        check: Option<CheckOption>,
    ) -> Result<(Arc<Table>, Option<Through>)> {
        let scope = scope_of(&relation, shape, source);
        let params = self.definition_of(view);
        let binder = Binder::new(&scope, &params, "SELECT");
        let mut below = vec![Below {
            text: self.params.needs.text(),
            relation: relation.oid,
            columns: Vec::new(),
        }];
        let mut columns = Vec::with_capacity(own.columns.len());
        for (at, c) in own.columns.iter_mut().enumerate() {
            let item = shape.items.get(at);
            let item = item.ok_or_else(|| Error::internal("a column that a view has not"))?;
            let place = shape.column(at, &source.columns).map(place_of);
            below[0].columns.push(place.ok());
            if let Ok(place) = place {
                let (name, default) = (c.name.clone(), c.default.take());
                *c = relation.columns[place].clone();
                c.name = name;
                if default.is_some() {
                    (c.default, c.sequence, c.identity) = (default, None, None);
                    c.generated = false;
                } else if op == Op::Update {
                    // To an UPDATE, DEFAULT is the view's own, or NULL.
                    (c.default, c.sequence) = (None, None);
                }
            }
            let value = binder.expr(item).map(|bound| bound.expr);
            let column = match (place, &inner) {
                (Err(reason), _) => Err(Refused {
                    reason,
                    view: view.name.clone(),
                    name: c.name.clone(),
                }),
                (Ok(place), None) => Ok(place),
                (Ok(place), Some(inner)) => inner.columns[place].column.clone(),
            };
            columns.push(Shown {
                value: value.and_then(|e| lowered(inner.as_ref(), &relation, e)),
                column,
            });
        }
        let binder = Binder::new(&scope, &params, "WHERE");
        let condition = shape.condition.as_ref();
        let condition = condition.map(|e| binder.condition(e)).transpose();
        let lower = |e: Option<Expr>| e.map(|e| lowered(inner.as_ref(), &relation, e)).transpose();
        let condition = condition.and_then(lower);
        self.note_read(view, &params);
        let mut through = match inner {
            None => Through {
                table: relation,
                columns: Vec::new(),
                condition: Ok(None),
                checks: Ok(Vec::new()),
                below: Vec::new(),
                views: Vec::new(),
            },
            Some(inner) => inner,
        };
        if check.is_some() {
            through.checks = checked(view, through.checks, &condition);
        }
        through.condition = both(through.condition, condition);
        for inner in &mut through.below {
            let of = |place: &Option<usize>| inner.columns.get((*place)?).copied().flatten();
            inner.columns = below[0].columns.iter().map(of).collect();
        }
        below.append(&mut through.below);
        (through.below, through.columns) = (below, columns);
        through.views.insert(0, view.clone());
        Ok((Arc::new(own), Some(through)))
    }

    /// Parameters of a view's text: it has none, and sees no variables.
    fn definition_of(&self, view: &View) -> ParamTypes {
        let params = self.params.of_stored();
        params.needs.enter_written(view.oid, false);
        params
    }

    /// Notes what the text of a view calls and reads.
    fn note_read(&self, view: &View, params: &ParamTypes) {
        self.params.note_called(params);
        for need in params.needs.noted().relations {
            if need.written == view.oid {
                for column in need.read {
                    self.params.needs.read(need.relation, column);
                }
            }
        }
    }
}

fn place_number(place: usize) -> i16 {
    i16::try_from(place + 1).unwrap_or(i16::MAX)
}

fn place_of(number: i16) -> usize {
    usize::try_from(number - 1).unwrap_or(0)
}

/// The columns of the relation below, by the names that the view has for them.
fn scope_of(relation: &Table, shape: &Shape, source: &Source) -> Scope {
    let mut scope = Scope::default();
    for ((number, _), name) in source.columns.iter().zip(shape.names(&source.columns)) {
        let place = place_of(*number);
        let Some(c) = relation.columns.get(place).filter(|c| !c.dropped) else {
            continue;
        };
        scope.columns.push(ScopeColumn {
            table: shape.alias.clone(),
            name: name.to_string(),
            ty: c.ty(),
            typmod: c.typmod,
            collation: c.collation(),
            slot: place,
            table_oid: relation.oid,
            attnum: *number,
            hidden: false,
        });
    }
    scope
}

/// An expression over the row of a relation, over that of the table below it.
fn lowered(inner: Option<&Through>, relation: &Table, e: Expr) -> Result<Expr> {
    match inner {
        None => Ok(e),
        Some(inner) => inner.lower(e, relation.columns.len(), 1),
    }
}

fn checked(
    view: &View,
    inner: Result<Vec<ViewCheck>>,
    condition: &Result<Option<Expr>>,
) -> Result<Vec<ViewCheck>> {
    let mut checks = inner?;
    match condition {
        Ok(None) => {}
        Ok(Some(condition)) => checks.push(ViewCheck {
            view: view.name.clone(),
            condition: condition.clone(),
        }),
        Err(e) => return Err(e.clone()),
    }
    Ok(checks)
}

fn both(inner: Result<Option<Expr>>, outer: Result<Option<Expr>>) -> Result<Option<Expr>> {
    let mut all = conjuncts(inner?);
    all.extend(conjuncts(outer?));
    Ok(conjoin(all))
}

impl Through {
    /// An expression over so many rows of a view, `width` columns each, one beside the other, and
    /// what follows them, over as many rows of the table and that.
    fn lower(&self, mut e: Expr, width: usize, rows: usize) -> Result<Expr> {
        let own = self.table.columns.len();
        let mut refused = None;
        e.replace(&mut |part| {
            let Expr::Column(at) = part else {
                return None;
            };
            if *at >= width * rows {
                return Some(Expr::Column(at - width * rows + own * rows));
            }
            let (row, at) = (at / width, at % width);
            match &self.columns[at].value {
                Ok(value) => Some(shifted(value, row * own)),
                Err(e) => {
                    refused = Some(e.clone());
                    None
                }
            }
        });
        match refused {
            None => Ok(e),
            Some(e) => Err(e),
        }
    }
}

fn shifted(e: &Expr, by: usize) -> Expr {
    let mut e = e.clone();
    e.replace(&mut |part| match part {
        Expr::Column(at) => Some(Expr::Column(at + by)),
        _ => None,
    });
    e
}

impl Written {
    /// The table that is written, or the view whose triggers do it.
    pub fn table(&self) -> &Arc<Table> {
        self.through.as_ref().map_or(&self.shown, |t| &t.table)
    }

    /// Whether it is a view, or written through one.
    pub fn is_view(&self) -> bool {
        self.through.is_some() || self.shown.view.is_some()
    }

    /// Whether triggers do the write.
    pub fn is_instead(&self) -> bool {
        self.table().view.is_some()
    }

    pub fn scope(&self) -> Scope {
        Scope::of_table(&self.shown, &self.alias)
    }

    /// An expression over what the statement sees of a row, and of what follows it, over the row
    /// that is written.
    pub fn lower(&self, e: Expr) -> Result<Expr> {
        self.lower_rows(e, 1)
    }

    /// The same of two rows one beside the other.
    pub fn lower_pair(&self, e: Expr) -> Result<Expr> {
        self.lower_rows(e, 2)
    }

    fn lower_rows(&self, e: Expr, rows: usize) -> Result<Expr> {
        match &self.through {
            None => Ok(e),
            Some(through) => through.lower(e, self.shown.columns.len(), rows),
        }
    }

    /// The conditions of views, and that of the statement.
    pub fn conditions(&self, own: Option<Expr>) -> Result<Option<Expr>> {
        let Some(through) = &self.through else {
            return Ok(own);
        };
        let own = own.map(|e| self.lower(e)).transpose()?;
        both(through.condition.clone(), Ok(own))
    }

    /// The columns of the table for those that the statement writes, each once.
    pub fn targets(&self, op: Op, columns: &[usize]) -> Result<Vec<usize>> {
        let mut targets = Vec::with_capacity(columns.len());
        for &at in columns {
            let target = self.target(op, at)?;
            if self.through.is_some() && targets.contains(&target) {
                let name = &self.table().columns[target].name;
                let message = format!("multiple assignments to same column \"{name}\"");
                return Err(Error::new("42601", message));
            }
            targets.push(target);
        }
        Ok(targets)
    }

    fn target(&self, op: Op, at: usize) -> Result<usize> {
        let Some(through) = &self.through else {
            return Ok(at);
        };
        through.columns[at].column.clone().map_err(|refused| {
            let Refused { reason, view, name } = refused;
            let what = match op {
                Op::Insert => "insert into column",
                _ => "update column",
            };
            let message = format!("cannot {what} \"{name}\" of view \"{view}\"");
            Error::new("0A000", message).detail(reason)
        })
    }

    /// A SET list over what the statement sees, as one of the table.
    pub fn set(&self, op: Op, set: Vec<(usize, Expr)>) -> Result<Vec<(usize, Expr)>> {
        self.lowered_set(op, set, 1)
    }

    /// The same of one that sees the row that was to be inserted beside the one that is there.
    pub fn set_of_pair(&self, set: Vec<(usize, Expr)>) -> Result<Vec<(usize, Expr)>> {
        self.lowered_set(Op::Insert, set, 2)
    }

    fn lowered_set(
        &self,
        op: Op,
        set: Vec<(usize, Expr)>,
        rows: usize,
    ) -> Result<Vec<(usize, Expr)>> {
        if self.through.is_none() {
            return Ok(set);
        }
        let columns: Vec<usize> = set.iter().map(|(at, _)| *at).collect();
        let targets = self.targets(op, &columns)?;
        let values = set.into_iter().map(|(_, e)| self.lower_rows(e, rows));
        targets
            .into_iter()
            .zip(values)
            .map(|(at, e)| Ok((at, e?)))
            .collect()
    }

    /// The values of a new row for all columns that the statement sees, as those of the table;
    /// `default` gives that of a column that no view shows. A column that is shown twice has the
    /// value that the statement gives it.
    pub fn row(
        &self,
        values: Vec<Expr>,
        given: &[usize],
        default: &dyn Fn(&Column) -> Result<Expr>,
    ) -> Result<Vec<Expr>> {
        let Some(through) = &self.through else {
            return Ok(values);
        };
        let own = &through.table.columns;
        let mut row: Vec<Option<Expr>> = vec![None; own.len()];
        for (at, value) in values.into_iter().enumerate() {
            if let Ok(target) = through.columns[at].column
                && (row[target].is_none() || given.contains(&at))
            {
                row[target] = Some(value);
            }
        }
        let values = row.into_iter().zip(own);
        values
            .map(|(value, c)| value.map_or_else(|| default(c), Ok))
            .collect()
    }

    /// The rules of new rows, with the checks of the views.
    pub fn rules(&self, mut rules: RowRules) -> Result<RowRules> {
        if let Some(through) = &self.through {
            rules.views = through.checks.clone()?;
        }
        Ok(rules)
    }

    /// What a write that takes this privilege needs of the relations below; `columns` are those
    /// that it gives values.
    pub fn note_needs(&self, params: &ParamTypes, privilege: Privileges, columns: &[usize]) {
        for below in self.through.iter().flat_map(|t| &t.below) {
            let places = columns
                .iter()
                .filter_map(|at| below.columns.get(*at).copied().flatten());
            let needs = &params.needs;
            let around = needs.enter(below.text);
            needs.relation(below.relation, privilege);
            match privilege {
                Privileges::INSERT => needs.inserted(below.relation, places),
                Privileges::UPDATE => needs.updated(below.relation, places),
                _ => {}
            }
            needs.leave(around);
        }
    }

    /// The table with the names that the statement sees, for what looks its columns up by name.
    pub fn renamed(&self) -> Arc<Table> {
        let Some(through) = &self.through else {
            return self.shown.clone();
        };
        let mut table = Table::clone(&through.table);
        for (at, c) in table.columns.iter_mut().enumerate() {
            let shown = through
                .columns
                .iter()
                .position(|s| s.column.as_ref().ok() == Some(&at));
            c.name = match shown {
                Some(shown) => self.shown.columns[shown].name.clone(),
                // No user can have a column of that name.
                None => format!("braid$hidden{at}"),
            };
        }
        Arc::new(table)
    }

    /// What a query calls the target, in [`super::supply::TARGET_SCHEMA`].
    pub fn named(&self, used: Use) -> String {
        match self.is_view() {
            false => table_named(self.shown.oid, used),
            true => {
                let asked = self.shown.oid.to_string();
                Target::named(&asked, self.table().oid, used)
            }
        }
    }

    /// Whose text names the table that is written.
    pub fn text(&self) -> Option<Text> {
        let below = self.through.as_ref()?.below.last()?;
        Some(below.text)
    }

    /// The views that it is written through, from the outermost on.
    pub fn views(&self) -> Vec<Arc<View>> {
        let views = self.through.iter().flat_map(|t| &t.views);
        views.chain(&self.table().view).cloned().collect()
    }

    /// Notes that a column of the table is looked at, as a key in which rows may meet.
    pub fn note_key(&self, params: &ParamTypes, column: usize) {
        let Some(through) = &self.through else {
            return params.needs.read(self.shown.oid, place_number(column));
        };
        let is = |s: &Shown| s.column.as_ref().ok() == Some(&column);
        if let Some(shown) = through.columns.iter().position(is) {
            params.needs.read(self.shown.oid, place_number(shown));
        }
        if let Some(last) = through.below.last() {
            let around = params.needs.enter(last.text);
            params.needs.read(last.relation, place_number(column));
            params.needs.leave(around);
        }
    }
}

/// The expressions of an ON CONFLICT's SET list see the row that is there and the one that was to
/// be inserted.
pub fn pair_scope(written: &Written) -> Scope {
    let mut scope = written.scope();
    scope.add_table(&written.shown, "excluded", written.shown.columns.len());
    scope
}

impl View {
    /// Whether a view could be written to if it were made: the reason why not.
    pub fn why_not_updatable(&self, dict: &Dict) -> Result<Option<Reason>> {
        let shape = match Shape::of(dict, self)? {
            Ok(shape) => shape,
            Err(reason) => return Ok(Some(reason)),
        };
        let source = self.sources.get(shape.source);
        let updatable = source.is_some_and(|s| shape.has_updatable(&s.columns));
        Ok((!updatable).then_some(NO_UPDATABLE_COLUMNS))
    }
}

/// The target of a write through views, as a query names it: what is asked for, the object id of a
/// relation or a view's relation below it; and the relation whose rows are written, at which the
/// views end.
pub struct Target<'n> {
    pub asked: &'n str,
    pub written: u32,
    /// What is done with these rows.
    pub used: Use,
}

/// What a query calls a table that is the target by itself.
pub fn table_named(table: u32, used: Use) -> String {
    format!("{table}#{}", used.letters())
}

/// The name of a target, and what is done with its rows.
pub fn use_in(name: &str) -> (&str, Use) {
    let (name, letters) = name.split_once('#').unwrap_or((name, "r"));
    (name, Use::of_letters(letters))
}

impl Target<'_> {
    fn named(asked: &str, written: u32, used: Use) -> String {
        format!("{asked}@{written}#{}", used.letters())
    }

    /// Reads what [`Written::named`] has written; `None`: it is a table by itself.
    pub fn read(name: &str) -> Option<Target<'_>> {
        let (name, used) = use_in(name);
        let (asked, written) = name.split_once('@')?;
        let written = written.parse().ok()?;
        Some(Target {
            asked,
            written,
            used,
        })
    }

    /// Has the query of a view bring the row ids of the relation that is written.
    pub fn ask_below(&self, query: &mut ast::Query, view: &View) -> Result<()> {
        let unexpected = || Error::internal(format!("the view {} is not written to", view.name));
        let mut body = &mut *query.body;
        while let ast::SetExpr::Query(inner) = body {
            body = &mut inner.body;
        }
        let ast::SetExpr::Select(select) = body else {
            return Err(unexpected());
        };
        let Some(ast::TableFactor::Table { name, alias, .. }) =
            select.from.first_mut().map(|from| &mut from.relation)
        else {
            return Err(unexpected());
        };
        let quoted = |name: &str| ast::Ident::with_quote('"', name);
        let source = Target::named(&names::Qualified::new(name)?.name, self.written, self.used);
        *name = vec![quoted(TARGET_SCHEMA), quoted(&source)].into();
        let alias = alias.as_ref().ok_or_else(unexpected)?;
        let row_id = vec![alias.name.clone(), quoted(ROW_ID)];
        let row_id = ast::Expr::CompoundIdentifier(row_id);
        let item = ast::SelectItem::UnnamedExpr(row_id);
        select.projection.push(item);
        Ok(())
    }
}
