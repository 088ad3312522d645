//! Direct plans of UPDATE and DELETE, and what all writes have in common.

use std::sync::Arc;

use block::value::Datum;
use sqlparser::ast::{self, Delete, FromTable, SelectItem, TableFactor, TableWithJoins, Update};

use super::assign::{Assigned, Given, Part};
use super::path::{Wish, conjuncts};
use super::policies::{PolicyCheck, refuse_direct};
use super::through::Written;
use super::{Output, Planner, TableAccess};
use crate::bind::domain::domain_check;
use crate::bind::{Binder, ParamTypes, Scope, Typed, names};
use crate::ddl::generated::EXPRESSION;
use crate::dict::acl::Privileges;
use crate::dict::trigger::Op;
use crate::dict::{Column, Identity, Relation, Table, View};
use crate::error::{Error, Result};
use crate::exec::profile::StepKey;
use crate::exec::returning::Returning;
use crate::expr::Expr;
use crate::expr::domain::DomainCheck;
use crate::expr::func::{Func, SessionFunc};
use crate::parse;
use crate::types::SqlType;

/// What every new version of a row must meet.
#[derive(Clone, Debug, Default)]
pub struct RowRules {
    /// Columns that must not be NULL.
    pub not_null: Vec<usize>,
    /// Name and condition over the new row.
    pub checks: Vec<(String, Expr)>,
    /// Columns that were declared as domains, with what these ask of a value.
    pub domains: Vec<(usize, DomainCheck)>,
    /// Columns that are computed from the others of the new row.
    pub generated: Vec<Generated>,
    /// What row-level security asks of the new row.
    pub policies: Vec<PolicyCheck>,
    /// The CHECK OPTIONs of the views that it is written through, the innermost first. They are
    /// checked once the row is written.
    pub views: Vec<ViewCheck>,
    /// Columns whose values the statement gives, which its errors may show to whoever wrote it.
    pub given: Vec<usize>,
}

/// A condition that rows which are written through a view must meet.
#[derive(Clone, Debug)]
pub struct ViewCheck {
    pub view: String,
    pub condition: Expr,
}

/// How a generated column gets its value.
#[derive(Clone, Debug)]
pub struct Generated {
    pub column: usize,
    pub value: Expr,
    /// The columns that it is made of.
    of: Vec<usize>,
}

impl RowRules {
    /// What a column's domain asks of its values.
    pub fn of_column(self, column: usize) -> Vec<DomainCheck> {
        let own = self.domains.into_iter().filter(|(at, _)| *at == column);
        own.map(|(_, check)| check).collect()
    }

    pub fn is_empty(&self) -> bool {
        let none = self.not_null.is_empty() && self.checks.is_empty();
        none && self.domains.is_empty() && self.policies.is_empty()
    }

    /// Without the domains of columns that stay: these values were checked when they came.
    pub fn for_set(mut self, set: &[usize]) -> RowRules {
        let changed = self.changed(set);
        self.domains.retain(|(column, _)| changed.contains(column));
        self.given_columns(set)
    }

    /// With the columns whose values the statement gives.
    pub fn given_columns(mut self, columns: &[usize]) -> RowRules {
        self.given = columns.to_vec();
        self
    }

    /// The columns that change with those that are set.
    pub fn changed(&self, set: &[usize]) -> Vec<usize> {
        let made = self.generated.iter();
        let made = made.filter(|g| g.of.iter().any(|c| set.contains(c)));
        set.iter().copied().chain(made.map(|g| g.column)).collect()
    }
}

#[derive(Clone, Debug)]
pub struct UpdatePlan {
    pub access: TableAccess,
    /// The whole condition, for rows that changed since they were found.
    pub condition: Option<Expr>,
    /// Column and its new value over the old row.
    pub set: Vec<(usize, Expr)>,
    pub rules: RowRules,
    pub returning: Option<Returning>,
    /// Those that it is written through.
    pub views: Vec<Arc<View>>,
}

#[derive(Clone, Debug)]
pub struct DeletePlan {
    pub access: TableAccess,
    pub condition: Option<Expr>,
    pub returning: Option<Returning>,
    /// Those that it is deleted through.
    pub views: Vec<Arc<View>>,
}

impl UpdatePlan {
    /// The step that writes what the access finds.
    pub fn step(&self) -> StepKey {
        StepKey::of(&self.set)
    }
}

impl DeletePlan {
    /// The step that deletes what the access finds.
    pub fn step(&self) -> StepKey {
        StepKey::of(&self.condition)
    }
}

impl Planner<'_> {
    /// The relation that a write names.
    pub(super) fn target(
        &self,
        name: &ast::ObjectName,
        alias: Option<String>,
        op: Op,
    ) -> Result<Written> {
        let wanted = names::of_user(name).map_err(|e| e.at_name(name))?;
        match self.dict.relation(&wanted) {
            Some(Relation::Table(table)) if table.materialized.is_some() => {
                let message = format!("cannot change materialized view \"{}\"", table.name);
                Err(Error::new("42809", message))
            }
            Some(Relation::Table(table)) => {
                let alias = alias.unwrap_or_else(|| table.name.clone());
                Ok(Planner::table_written(table, alias))
            }
            Some(Relation::View(view)) => {
                let alias = alias.unwrap_or_else(|| view.name.clone());
                self.view_written(&view, alias, op)
            }
            _ => Err(names::no_relation(&wanted).at_name(name)),
        }
    }

    /// The value of a column that is not given.
    pub fn default(&self, c: &Column) -> Result<Expr> {
        // A generated column is computed once the rest of the row is known.
        if c.dropped || c.generated {
            return Ok(Expr::Const(Datum::Null));
        }
        if let (Some(_), Some(sequence)) = (c.identity, c.sequence) {
            return self.next_value(sequence, c, true);
        }
        let Some(text) = c.default_text() else {
            return Ok(Expr::Const(Datum::Null));
        };
        // A serial column knows its sequence by number, whatever its name is by now.
        if let Some(sequence) = c.sequence
            && self.dict.is_serial_default(text, sequence)
        {
            return self.next_value(sequence, c, false);
        }
        let (scope, params) = (Scope::default(), self.params.of_stored());
        let binder = Binder::new(&scope, &params, "DEFAULT");
        let e = parse::expression(text)?;
        let value = binder.assign(binder.expr(&e)?, c.ty(), c.typmod, &c.name)?;
        self.params.note_called(&params);
        Ok(value.expr)
    }

    fn next_value(&self, sequence: u32, c: &Column, is_identity: bool) -> Result<Expr> {
        let s = self
            .dict
            .sequence_by_oid(sequence)
            .ok_or_else(|| Error::internal(format!("sequence {sequence} is gone")))?;
        let scope = Scope::default();
        let binder = Binder::new(&scope, self.params, "DEFAULT");
        let mut args = vec![Expr::Const(Datum::Int8(s.oid.into()))];
        // The privilege on the table is enough.
        args.extend(is_identity.then_some(Expr::Const(Datum::Bool(true))));
        let draw = Expr::Call(Func::Session(SessionFunc::NextVal), args);
        Ok(binder
            .assign(Typed::new(draw, SqlType::Int8), c.ty(), c.typmod, &c.name)?
            .expr)
    }

    pub fn rules(&self, table: &Table) -> Result<RowRules> {
        let not_null = table
            .live_columns()
            .filter(|(_, c)| c.not_null)
            .map(|(i, _)| i)
            .collect();
        let scope = Scope::of_table(table, &table.name);
        let params = self.params.of_stored();
        let binder = Binder::new(&scope, &params, "CHECK");
        let mut checks = Vec::new();
        for check in &table.checks {
            checks.push((
                check.name.clone(),
                binder.condition(&parse::expression(&check.text)?)?,
            ));
        }
        let domains = self.domains(table, |ty| ty.is_domain())?;
        let generated = generated(table, &scope, &params)?;
        self.params.note_called(&params);
        Ok(RowRules {
            not_null,
            checks,
            domains,
            generated,
            policies: Vec::new(),
            views: Vec::new(),
            given: Vec::new(),
        })
    }

    /// The rules for rows that are read from outside: the fields of their values were not checked
    /// when these became rows of a type.
    pub fn rules_of_input(&self, table: &Table) -> Result<RowRules> {
        let mut rules = self.rules(table)?;
        let of_fields = |ty: SqlType| !ty.is_domain() && ty.holds_domains();
        rules.domains.extend(self.domains(table, of_fields)?);
        Ok(rules)
    }

    /// What columns with such types ask of their values.
    fn domains(
        &self,
        table: &Table,
        of: impl Fn(SqlType) -> bool,
    ) -> Result<Vec<(usize, DomainCheck)>> {
        let params = self.params.of_stored();
        let mut domains = Vec::new();
        for (at, c) in table.live_columns().filter(|(_, c)| of(c.declared())) {
            let check = domain_check(c.declared(), &params)?;
            domains.extend(check.map(|check| (at, check)));
        }
        self.params.note_called(&params);
        Ok(domains)
    }

    pub(super) fn returning(
        &self,
        written: &Written,
        items: Option<&[SelectItem]>,
        inserted: bool,
    ) -> Result<Option<Output>> {
        let mut scope = written.scope();
        if !written.is_view() {
            scope.add_system(&written.alias, written.shown.columns.len(), inserted);
        }
        let output = items.map(|items| self.projection(&scope, items));
        output.transpose()?.map(|o| o.lowered(written)).transpose()
    }

    pub fn update(&self, u: &Update) -> Result<(UpdatePlan, Option<Output>)> {
        if u.from.is_some() || u.or.is_some() || !u.order_by.is_empty() || u.limit.is_some() {
            return Err(Error::unsupported("UPDATE ... FROM"));
        }
        let written = self.written_table(&u.table, Op::Update)?;
        refuse_current_of(&written, u.selection.as_ref())?;
        let (table, scope) = (written.table(), written.scope());
        self.params
            .needs
            .relation(written.shown.oid, Privileges::UPDATE);
        refuse_direct(self.params, self.dict, &written)?;
        let set = self.set_list(&written.shown, &scope, &u.assignments)?;
        let columns: Vec<usize> = set.iter().map(|(at, _)| *at).collect();
        written.note_needs(self.params, Privileges::UPDATE, &columns);
        let set = written.set(Op::Update, set)?;
        let (access, condition) = self.found_rows(&written, u.selection.as_ref())?;
        let returning = self.returning(&written, u.returning.as_deref(), false)?;
        let columns: Vec<usize> = set.iter().map(|(at, _)| *at).collect();
        let rules = written.rules(self.rules(table)?.for_set(&columns))?;
        let table_width = table.columns.len();
        Ok((
            UpdatePlan {
                access,
                condition,
                set,
                rules,
                returning: returning.as_ref().map(|o| o.of_rows(table_width)),
                views: written.views(),
            },
            returning,
        ))
    }

    /// Notes that the columns of a SET list are updated.
    pub(super) fn note_assigned(&self, table: &Table, assigned: &Assigned<'_>) {
        let columns = assigned.columns.iter().map(|(at, _)| *at);
        self.params.needs.updated(table.oid, columns);
    }

    /// Column and new value of each assignment, the values over the scope's row.
    pub(super) fn set_list(
        &self,
        table: &Table,
        scope: &Scope,
        list: &[ast::Assignment],
    ) -> Result<Vec<(usize, Expr)>> {
        let assigned = self.assigned(table, list)?;
        self.note_assigned(table, &assigned);
        let value = |(at, value): (usize, Given)| match value {
            Given::Value(value) => Ok((at, self.assignment(table, scope, at, &value)?)),
            Given::Parts(parts) => Ok((at, self.assigned_parts(table, scope, at, &parts)?)),
            Given::OfRow(..) => Err(Error::unsupported("SET (columns) = (SELECT ..) here")),
        };
        assigned.columns.into_iter().map(value).collect()
    }

    /// The new value of a column.
    pub(super) fn assignment(
        &self,
        table: &Table,
        scope: &Scope,
        at: usize,
        value: &ast::Expr,
    ) -> Result<Expr> {
        let c = &table.columns[at];
        if is_default(value) {
            return self.default(c);
        }
        refuse_always(c)?;
        let binder = Binder::new(scope, self.params, "UPDATE");
        let assigned = binder.assign(binder.expr(value)?, c.ty(), c.typmod, &c.name);
        Ok(assigned.map_err(|e| e.in_expr(value))?.expr)
    }

    /// The new value of a column of which parts are given values.
    pub(super) fn assigned_parts(
        &self,
        table: &Table,
        scope: &Scope,
        at: usize,
        parts: &[Part],
    ) -> Result<Expr> {
        let c = &table.columns[at];
        refuse_always(c)?;
        let binder = Binder::new(scope, self.params, "UPDATE");
        let mut column = Typed {
            expr: Expr::Column(at),
            ty: c.ty(),
            typmod: c.typmod,
            collation: Default::default(),
        };
        for Part { path, value } in parts {
            if is_default(value) {
                return Err(no_default_of_part(column.ty));
            }
            let assigned = binder.assign_part(column, path, binder.expr(value)?, &c.name);
            column = assigned.map_err(|e| e.in_expr(value))?;
        }
        Ok(column.expr)
    }

    pub fn delete(&self, d: &Delete) -> Result<(DeletePlan, Option<Output>)> {
        if d.using.is_some() || !d.tables.is_empty() || !d.order_by.is_empty() || d.limit.is_some()
        {
            return Err(Error::unsupported("DELETE ... USING"));
        }
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &d.from;
        let [from] = from.as_slice() else {
            return Err(Error::unsupported("DELETE from several tables"));
        };
        let written = self.written_table(from, Op::Delete)?;
        refuse_current_of(&written, d.selection.as_ref())?;
        let needs = &self.params.needs;
        needs.relation(written.shown.oid, Privileges::DELETE);
        written.note_needs(self.params, Privileges::DELETE, &[]);
        refuse_direct(self.params, self.dict, &written)?;
        let (access, condition) = self.found_rows(&written, d.selection.as_ref())?;
        let returning = self.returning(&written, d.returning.as_deref(), false)?;
        let table_width = written.table().columns.len();
        Ok((
            DeletePlan {
                access,
                condition,
                returning: returning.as_ref().map(|o| o.of_rows(table_width)),
                views: written.views(),
            },
            returning,
        ))
    }

    pub(super) fn written_table(&self, t: &TableWithJoins, op: Op) -> Result<Written> {
        let TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } = &t.relation
        else {
            return Err(Error::unsupported("this target of a write"));
        };
        if !t.joins.is_empty() {
            return Err(Error::unsupported("a join as target of a write"));
        }
        let alias = alias.as_ref().map(|a| names::ident(&a.name));
        self.target(name, alias, op)
    }

    /// How the rows to be written are found: whole rows, since a new version is made from the old one.
    fn found_rows(
        &self,
        written: &Written,
        selection: Option<&ast::Expr>,
    ) -> Result<(TableAccess, Option<Expr>)> {
        let (table, scope) = (written.table(), written.scope());
        let binder = Binder::new(&scope, self.params, "WHERE");
        let condition = selection.map(|w| binder.condition(w)).transpose()?;
        if written.is_instead() {
            return Err(Error::unsupported("a view in a direct plan"));
        }
        let condition = written.conditions(condition)?;
        let (mut access, _) = self.access(table, 0, conjuncts(condition.clone()), Wish::default());
        if self.is_better_apart(&access, LARGE) {
            return Err(Error::unsupported(
                "a table by several indexes in a direct plan",
            ));
        }
        access.needed = table.columns.len();
        Ok((access, condition))
    }
}

fn generated(table: &Table, scope: &Scope, params: &ParamTypes) -> Result<Vec<Generated>> {
    let binder = Binder::new(scope, params, EXPRESSION);
    let mut all = Vec::new();
    for (column, c) in table.live_columns().filter(|(_, c)| c.generated) {
        let Some(text) = &c.default else { continue };
        let bound = binder.expr(&parse::expression(text)?)?;
        let value = binder.assign(bound, c.ty(), c.typmod, &c.name)?.expr;
        let mut of = Vec::new();
        value.visit(&mut |e| {
            if let Expr::Column(at) = e {
                of.push(*at);
            }
        });
        all.push(Generated { column, value, of });
    }
    Ok(all)
}

/// Refuses the row of a cursor as one of a view.
pub(super) fn refuse_current_of(written: &Written, selection: Option<&ast::Expr>) -> Result<()> {
    match written.is_view() && parse::current_of::is_in(selection) {
        true => Err(Error::new(
            "0A000",
            "WHERE CURRENT OF on a view is not implemented",
        )),
        false => Ok(()),
    }
}

/// Rows of a table from which on it is worth it that a query finds those to be written.
const LARGE: f64 = 10_000.0;

/// Refuses to give a column a value that only its sequence may give.
pub(super) fn refuse_always(c: &Column) -> Result<()> {
    if c.identity != Some(Identity::Always) && !c.generated {
        return Ok(());
    }
    let name = &c.name;
    let message = format!("column \"{name}\" can only be updated to DEFAULT");
    if c.generated {
        let detail = format!("Column \"{name}\" is a generated column.");
        return Err(Error::new("428C9", message).detail(detail));
    }
    Err(Error::new("428C9", message).detail(format!(
        "Column \"{name}\" is an identity column defined as GENERATED ALWAYS."
    )))
}

pub(super) fn no_default_of_part(ty: SqlType) -> Error {
    let message = match ty {
        SqlType::Jsonb => "cannot set a subfield to DEFAULT",
        _ => "cannot set an array element to DEFAULT",
    };
    Error::new("0A000", message)
}

pub(super) fn is_default(e: &ast::Expr) -> bool {
    matches!(e, ast::Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"))
}

pub fn no_column(name: &str, table: &str) -> Error {
    Error::new(
        "42703",
        format!("column \"{name}\" of relation \"{table}\" does not exist"),
    )
}
