//! What an expression means in the query it stands in: columns of any level, subqueries, rows of
//! values, aggregates, window functions, functions that give several rows.

use std::cell::RefCell;

use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::Analyzer;
use super::functions::{is_series, several_columns};
use super::group::Groups;
use super::hypothetical::{self, is_hypothetical};
use super::scope::{Column, Scope};
use super::tree::Series;
use super::with::Known;
use crate::bind::{self, Binder, Typed, names};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::place::Place;
use crate::plan::supply;
use crate::query::aggregate;
use crate::query::plan::Register;

/// A clause of a query, whose expressions are bound alike.
pub struct Clause<'c> {
    pub analyzer: &'c Analyzer<'c>,
    pub scope: &'c Scope<'c>,
    pub known: &'c Known<'c>,
    pub name: &'static str,
    /// Where aggregates and window functions go; without, none are allowed.
    pub groups: Option<&'c Groups>,
    /// Where functions of the select list that give several rows go.
    pub series: Option<&'c RefCell<Vec<Series>>>,
    empty: bind::Scope,
}

impl<'c> Clause<'c> {
    pub fn new(
        analyzer: &'c Analyzer<'c>,
        scope: &'c Scope<'c>,
        known: &'c Known<'c>,
        name: &'static str,
    ) -> Clause<'c> {
        Clause {
            analyzer,
            scope,
            known,
            name,
            groups: None,
            series: None,
            empty: bind::Scope::default(),
        }
    }

    /// The same with aggregates.
    pub fn grouped(mut self, groups: &'c Groups) -> Clause<'c> {
        self.groups = Some(groups);
        self
    }

    pub fn with_series(mut self, series: &'c RefCell<Vec<Series>>) -> Clause<'c> {
        self.series = Some(series);
        self
    }

    pub fn binder(&self) -> Binder<'_> {
        Binder {
            scope: &self.empty,
            params: self.analyzer.params,
            clause: self.name,
            groups: Some(self),
        }
    }

    /// Arguments that are neither named nor `*`.
    pub fn plain_args<'a>(&self, args: &'a [FunctionArg]) -> Result<Vec<&'a ast::Expr>> {
        args.iter()
            .map(|a| match a {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Ok(e),
                other => Err(Error::unsupported(format!("argument {other}"))),
            })
            .collect()
    }

    fn column(&self, table: Option<&str>, name: &str) -> Result<Option<Typed>> {
        let (column, depth) = self.scope.resolve(table, name)?;
        self.analyzer.note_level(depth);
        self.analyzer.note_used(column.origin);
        Ok(Some(column.value))
    }

    fn identifier(&self, i: &ast::Ident) -> Result<Option<Typed>> {
        let name = names::ident(i);
        let found = self.column(None, &name);
        if found.is_ok() {
            let (column, _) = self.scope.resolve(None, &name)?;
            self.analyzer.note_bare(i, &column);
        }
        match found {
            Err(e) if e.sqlstate() == "42703" => {
                // The binder knows the functions that are called without parentheses.
                if names::is_bare_function(i) {
                    return Ok(None);
                }
                if let Some((value, depth)) = self.scope.function_value(&name)? {
                    self.analyzer.note_level(depth);
                    return Ok(Some(value));
                }
                match self.row_named(&name)? {
                    Some(row) => self.row_value(row).map(Some),
                    None => Err(e),
                }
            }
            found => found,
        }
    }

    /// What a name means: a column, or else a variable of the body that the query stands in. The
    /// text of a view knows no variables.
    fn or_variable(
        &self,
        path: &[ast::Ident],
        column: Result<Option<Typed>>,
    ) -> Result<Option<Typed>> {
        let params = self.analyzer.params;
        let pseudo = |e| {
            let found = self.binder().pseudo_column(path, e);
            found
                .or_else(|e| self.binder().call_by_dot(path, e))
                .map(Some)
        };
        if !params.sight.has_variables() || self.analyzer.is_in_view() {
            return column.or_else(pseudo);
        }
        let names: Vec<String> = path.iter().map(names::ident).collect();
        match column {
            // The binder goes on, and asks for variables itself.
            Ok(None) => Ok(None),
            Ok(Some(found)) => params.or_variable(&names, Ok(found)).map(Some),
            Err(e) => params.or_variable(&names, Err(e)).map(Some).or_else(pseudo),
        }
    }

    fn path(&self, path: &[ast::Ident]) -> Result<Option<Typed>> {
        self.analyzer.note_schema(path);
        let path: Vec<String> = path.iter().map(names::ident).collect();
        let (table, name) = match path.as_slice() {
            [table, name] => (table, name),
            [schema, table, name] => {
                if let Some((column, depth)) = self.of_relation(schema, table, name)? {
                    self.analyzer.note_level(depth);
                    self.analyzer.note_used(column.origin);
                    return Ok(Some(column.value));
                }
                let (column, _) = self.scope.resolve(Some(table), name)?;
                let oid = column.origin.0;
                if !names::is_in_schema(self.analyzer.dict, schema, table, oid) {
                    return Err(names::in_no_schema(table));
                }
                (table, name)
            }
            _ => return Err(Error::unsupported(format!("name {}", path.join(".")))),
        };
        self.column(Some(table), name)
    }

    /// The column of a relation by its schema, if it stands in a FROM without an alias.
    fn of_relation(
        &self,
        schema: &str,
        table: &str,
        name: &str,
    ) -> Result<Option<(Column, usize)>> {
        let q = names::Qualified {
            schema: Some(schema.to_string()),
            name: table.to_string(),
        };
        match self.analyzer.dict.relation(&q) {
            Some(relation) => self.scope.resolve_in((table, relation.lock_oid()), name),
            None => Ok(None),
        }
    }

    fn function(&self, f: &ast::Function) -> Result<Option<Typed>> {
        let q = names::Qualified::new(&f.name)?;
        if q.schema.as_deref() == Some(supply::TARGET_SCHEMA) {
            return self.of_merge(&q.name, f).map(Some);
        }
        if f.over.is_none()
            && let Some(called) = self.binder().user_rows(&q, f)?
        {
            return match called.function.returns_set {
                true => self.user_values(called).map(Some),
                false => self.binder().value_of_call(called).map(Some),
            };
        }
        let name = q.name.as_str();
        let is_known = match q.schema.as_deref() {
            Some("information_schema") => name.starts_with("_pg_") && is_series(name),
            schema => schema.is_none_or(|s| s == "pg_catalog"),
        };
        if !is_known {
            return Ok(None);
        }
        if bind::row_constructor(f).is_some() {
            return Ok(None);
        }
        if !f.within_group.is_empty() && is_hypothetical(name) {
            self.check_hypothetical(name, f)?;
            let written_out = hypothetical::written_out(name, f)?;
            return self.binder().expr(&written_out).map(Some);
        }
        if f.over.is_some() {
            return self.window_call(name, f).map(Some);
        }
        if name == "grouping" {
            return self.grouping_call(f).map(Some);
        }
        if aggregate::is_aggregate(name) {
            return self.aggregate_call(name, f).map(Some);
        }
        if crate::query::window::is_window_function(name) {
            return Err(Error::new(
                "42809",
                format!("window function {name} requires an OVER clause"),
            ));
        }
        if is_series(name) {
            let Some(series) = self.series else {
                return Err(Error::new(
                    "0A000",
                    format!("set-returning functions are not allowed in {}", self.name),
                ));
            };
            let FunctionArguments::List(list) = &f.args else {
                return Ok(None);
            };
            let made = self.analyzer.series(self, name, &list.args)?;
            let (made, value) = self.as_value(name, made)?;
            series.borrow_mut().push(made);
            return Ok(Some(value));
        }
        if let ("array", FunctionArguments::Subquery(q)) = (name, &f.args) {
            return self.array_of(q).map(Some);
        }
        if aggregate::is_unsupported(name) {
            return Err(Error::unsupported(format!("function {name}")));
        }
        if f.filter.is_some() {
            return Err(Error::new(
                "42809",
                format!("FILTER specified, but {name} is not an aggregate function"),
            ));
        }
        Ok(None)
    }

    /// What a function that gives several rows is in an expression: of those whose rows have
    /// several columns the row.
    fn as_value(&self, name: &str, mut made: Series) -> Result<(Series, Typed)> {
        let first = Typed::new(Expr::Column(made.into), made.ty);
        let Some((called, others)) = several_columns(name) else {
            return Ok((made, first));
        };
        let mut fields = vec![(called.to_string(), first)];
        for (name, ty) in others {
            let register = self.scope.file.register();
            made.more.push(register);
            fields.push((name.to_string(), Typed::new(Expr::Column(register), ty)));
        }
        // Where the function has given less rows than another beside it, there is none.
        let is_there = self.scope.file.register();
        made.ordinality = Some(is_there);
        let mut value = bind::record(fields)?;
        value.expr = Expr::Case {
            branches: vec![(is_set(is_there), value.expr)],
            otherwise: None,
        };
        Ok((made, value))
    }

    /// CASE whose operand must be computed once.
    fn case(&self, e: &ast::Expr) -> Result<Option<Typed>> {
        let ast::Expr::Case {
            operand: Some(operand),
            ..
        } = e
        else {
            return Ok(None);
        };
        let value = self.binder().expr(operand)?;
        let mut subquery = false;
        value
            .expr
            .visit(&mut |e| subquery |= matches!(e, Expr::Subquery { .. }));
        match value.expr.is_volatile() || subquery {
            true => Err(Error::unsupported("CASE of a volatile operand")),
            false => Ok(None),
        }
    }
}

/// The query in parentheses that an expression is.
pub fn subquery_in(e: &ast::Expr) -> Option<&ast::Query> {
    match e {
        ast::Expr::Subquery(q) => Some(q),
        ast::Expr::Nested(inner) => subquery_in(inner),
        _ => None,
    }
}

impl bind::Groups for Clause<'_> {
    fn lookup(&self, e: &ast::Expr) -> Result<Option<Typed>> {
        match e {
            ast::Expr::Identifier(i) => {
                self.or_variable(std::slice::from_ref(i), self.identifier(i))
            }
            ast::Expr::CompoundIdentifier(path) => self.or_variable(path, self.path(path)),
            ast::Expr::Function(f) => self.function(f),
            ast::Expr::Subquery(q) => self.scalar(q).map(Some),
            ast::Expr::Exists { subquery, negated } => self.exists(subquery, *negated).map(Some),
            ast::Expr::InSubquery {
                expr,
                subquery,
                negated,
            } => {
                let left = match self.row_of(expr)? {
                    Some(row) => row,
                    None => vec![self.binder().expr(expr)?],
                };
                let place = Place::of_operator_after(expr);
                self.in_subquery(&left, subquery, *negated, place).map(Some)
            }
            ast::Expr::AnyOp {
                left,
                compare_op,
                right,
                ..
            } => self.quantified(left, compare_op, right, false),
            ast::Expr::AllOp {
                left,
                compare_op,
                right,
            } => self.quantified(left, compare_op, right, true),
            ast::Expr::BinaryOp { left, op, right } => self.binary(left, op, right),
            ast::Expr::InList {
                expr,
                list,
                negated,
            } => self.row_in(expr, list, *negated),
            ast::Expr::IsNull(e) => self.row_is_null(e, false),
            ast::Expr::IsNotNull(e) => self.row_is_null(e, true),
            ast::Expr::IsDistinctFrom(l, r) => self.row_distinct(l, r, false),
            ast::Expr::IsNotDistinctFrom(l, r) => self.row_distinct(l, r, true),
            ast::Expr::Case { .. } => self.case(e),
            _ => Ok(None),
        }
    }

    fn whole_row(&self, table: &str) -> Result<Option<Typed>> {
        if let Some(row) = self.row_named(table)? {
            return self.row_value(row).map(Some);
        }
        // Of a function that gives no rows that is the value.
        Ok(self.scope.function_value(table)?.map(|(value, depth)| {
            self.analyzer.note_level(depth);
            value
        }))
    }
}

/// Whether a function that gives several rows has set a register: in the select list it sets
/// whether there is a row, and in FROM, where there always is one, the row's number.
pub(super) fn is_set(register: Register) -> Expr {
    Expr::IsNull {
        expr: Box::new(Expr::Column(register)),
        negated: true,
    }
}
