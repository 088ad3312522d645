//! What an expression means in the query it stands in: columns of any level, subqueries, rows of
//! values, aggregates, window functions, functions that give several rows.

use std::cell::RefCell;

use sqlparser::ast::{self, BinaryOperator, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::Analyzer;
use super::functions::is_series;
use super::group::Groups;
use super::hypothetical::{self, is_hypothetical};
use super::scope::{Row, Scope};
use super::tree::Series;
use super::with::Known;
use crate::bind::{self, Binder, Typed, names};
use crate::error::{Error, Result};
use crate::expr::{CmpOp, Expr};
use crate::plan::supply;
use crate::query::aggregate;
use crate::types::SqlType;

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
                let function = i.quote_style.is_none()
                    && matches!(
                        name.as_str(),
                        "current_user"
                            | "session_user"
                            | "user"
                            | "current_role"
                            | "current_catalog"
                            | "current_schema"
                            | "current_date"
                            | "current_timestamp"
                            | "localtimestamp"
                    );
                if function {
                    return Ok(None);
                }
                if let Some((value, depth)) = self.scope.function_value(&name)? {
                    self.analyzer.note_level(depth);
                    return Ok(Some(value));
                }
                match self.names_a_row(&name) {
                    true => Err(Error::unsupported(format!("the whole row {name}"))),
                    false => Err(e),
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
        if !params.sight.has_variables() || self.analyzer.is_in_view() {
            return column;
        }
        let names: Vec<String> = path.iter().map(names::ident).collect();
        match column {
            // The binder goes on, and asks for variables itself.
            Ok(None) => Ok(None),
            Ok(Some(found)) => params.or_variable(&names, Ok(found)).map(Some),
            Err(e) => params.or_variable(&names, Err(e)).map(Some),
        }
    }

    fn names_a_row(&self, name: &str) -> bool {
        let mut at = Some(self.scope);
        while let Some(scope) = at {
            if scope.has_table(name) {
                return true;
            }
            at = scope.parent;
        }
        false
    }

    fn path(&self, path: &[ast::Ident]) -> Result<Option<Typed>> {
        self.analyzer.note_schema(path);
        let path: Vec<String> = path.iter().map(names::ident).collect();
        let (table, name) = match path.as_slice() {
            [table, name] => (table, name),
            [schema, table, name] if self.analyzer.dict.schema(schema).is_some() => (table, name),
            _ => return Err(Error::unsupported(format!("name {}", path.join(".")))),
        };
        self.column(Some(table), name)
    }

    /// Two rows of values, compared.
    fn rows(&self, left: &[Typed], op: &BinaryOperator, right: &[Typed]) -> Result<Typed> {
        if left.len() != right.len() {
            return Err(Error::new(
                "42601",
                "unequal number of entries in row expressions",
            ));
        }
        let binder = self.binder();
        let pairs = || left.iter().cloned().zip(right.iter().cloned());
        let compared = |op| {
            pairs()
                .map(|(l, r)| Ok(binder.compare(op, l, r)?.expr))
                .collect::<Result<Vec<_>>>()
        };
        let expr = match bind::comparison(op) {
            Some(CmpOp::Eq) => Expr::And(compared(CmpOp::Eq)?),
            Some(CmpOp::Ne) => Expr::Or(compared(CmpOp::Ne)?),
            Some(order) => {
                refuse_volatile(left.iter().chain(right))?;
                // The first pair that differs decides; only the last may be equal.
                let strict = match order {
                    CmpOp::Lt | CmpOp::Le => CmpOp::Lt,
                    _ => CmpOp::Gt,
                };
                let mut all = compared(strict)?;
                let (equal, last) = (compared(CmpOp::Eq)?, compared(order)?);
                let places = all.len();
                let Some(mut expr) = last.into_iter().next_back() else {
                    return Err(Error::new("0A000", "cannot compare rows of zero length"));
                };
                all.truncate(places.saturating_sub(1));
                for (decides, equal) in all.into_iter().zip(equal).rev() {
                    expr = Expr::Or(vec![decides, Expr::And(vec![equal, expr])]);
                }
                expr
            }
            None => return Err(Error::unsupported(format!("operator {op} between rows"))),
        };
        Ok(Typed::new(expr, SqlType::Bool))
    }

    /// The values of a row constructor; `None`: it is none.
    fn row_of(&self, e: &ast::Expr) -> Result<Option<Vec<Typed>>> {
        let list: Vec<&ast::Expr> = match e {
            ast::Expr::Tuple(list) => list.iter().collect(),
            ast::Expr::Nested(inner) => return self.row_of(inner),
            ast::Expr::Function(f) if is_row_constructor(f) => match &f.args {
                FunctionArguments::List(list) => self.plain_args(&list.args)?,
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let binder = self.binder();
        list.into_iter()
            .map(|e| binder.expr(e))
            .collect::<Result<Vec<_>>>()
            .map(Some)
    }

    fn row_in(&self, e: &ast::Expr, list: &[ast::Expr], negated: bool) -> Result<Option<Typed>> {
        let Some(left) = self.row_of(e)? else {
            return Ok(None);
        };
        if list.len() > 1 {
            refuse_volatile(left.iter())?;
        }
        let mut any = Vec::with_capacity(list.len());
        for item in list {
            let Some(right) = self.row_of(item)? else {
                return Err(Error::unsupported("IN of a row and what is no row"));
            };
            any.push(self.rows(&left, &BinaryOperator::Eq, &right)?.expr);
        }
        let expr = match any.len() {
            1 => any.remove(0),
            _ => Expr::Or(any),
        };
        let expr = match negated {
            true => Expr::Not(Box::new(expr)),
            false => expr,
        };
        Ok(Some(Typed::new(expr, SqlType::Bool)))
    }

    fn row_is_null(&self, e: &ast::Expr, negated: bool) -> Result<Option<Typed>> {
        let values: Vec<Expr> = match (self.whole_row(e)?, self.row_of(e)?) {
            (Some(row), _) => row.columns,
            (None, Some(row)) => {
                let binder = self.binder();
                let values = row.into_iter().map(|v| Ok(binder.settle(v)?.expr));
                values.collect::<Result<_>>()?
            }
            (None, None) => return Ok(None),
        };
        let all = values.into_iter().map(|value| Expr::IsNull {
            expr: Box::new(value),
            negated,
        });
        let expr = Expr::And(all.collect());
        Ok(Some(Typed::new(expr, SqlType::Bool)))
    }

    /// The whole row that a name is, if it is that of a table and no column's.
    pub(super) fn whole_row(&self, e: &ast::Expr) -> Result<Option<Row>> {
        let ast::Expr::Identifier(name) = e else {
            return Ok(None);
        };
        let name = names::ident(name);
        match self.scope.resolve(None, &name) {
            Err(e) if e.sqlstate() == "42703" => self.row_named(&name),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// A whole row as json; NULL if an outer join has none.
    pub(super) fn row_json(&self, row: Row, binary: bool) -> Result<Typed> {
        let fields = row.fields.into_iter().zip(row.columns);
        let columns = fields.map(|((name, ty), e)| (name, Typed::new(e, ty)));
        let object = self.binder().row_as_json(columns.collect(), binary)?;
        let is_there = Expr::IsNull {
            expr: Box::new(row.there),
            negated: true,
        };
        let expr = Expr::Case {
            branches: vec![(is_there, object.expr)],
            otherwise: None,
        };
        Ok(Typed::new(expr, object.ty))
    }

    pub(super) fn row_named(&self, table: &str) -> Result<Option<Row>> {
        let row = self.scope.row(table)?;
        if let Some(row) = &row {
            self.analyzer.note_level(row.depth);
            for (relation, number) in &row.origins {
                self.analyzer.params.needs.read(*relation, *number);
            }
        }
        Ok(row)
    }

    fn row_distinct(&self, l: &ast::Expr, r: &ast::Expr, negated: bool) -> Result<Option<Typed>> {
        let (Some(left), Some(right)) = (self.row_of(l)?, self.row_of(r)?) else {
            return Ok(None);
        };
        if left.len() != right.len() {
            return Err(Error::new(
                "42601",
                "unequal number of entries in row expressions",
            ));
        }
        let binder = self.binder();
        let mut parts = Vec::new();
        for (left, right) in left.into_iter().zip(right) {
            let (left, right) = binder.unify(left, right, "IS DISTINCT FROM")?;
            parts.push(Expr::Distinct {
                left: Box::new(left.expr),
                right: Box::new(right.expr),
                negated,
            });
        }
        let expr = match negated {
            true => Expr::And(parts),
            false => Expr::Or(parts),
        };
        Ok(Some(Typed::new(expr, SqlType::Bool)))
    }

    fn function(&self, f: &ast::Function) -> Result<Option<Typed>> {
        let q = names::Qualified::new(&f.name)?;
        if q.schema.as_deref() == Some(supply::TARGET_SCHEMA) {
            return self.of_merge(&q.name, f).map(Some);
        }
        let name = q.name.as_str();
        let is_known = match q.schema.as_deref() {
            Some("information_schema") => name.starts_with("_pg_") && is_series(name),
            schema => schema.is_none_or(|s| s == "pg_catalog"),
        };
        if !is_known {
            return Ok(None);
        }
        if is_row_constructor(f) {
            return Err(Error::unsupported("a row as a value"));
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
        if let ("row_to_json" | "to_json" | "to_jsonb", FunctionArguments::List(list)) =
            (name, &f.args)
            && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(e))] = list.args.as_slice()
            && let Some(row) = self.whole_row(e)?
        {
            return self.row_json(row, name == "to_jsonb").map(Some);
        }
        if is_series(name) {
            if super::functions::gives_rows(name) {
                return Err(Error::unsupported(format!("{name} as a value of a row")));
            }
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
            let value = Typed::new(Expr::Column(made.into), made.ty);
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

    fn binary(
        &self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
    ) -> Result<Option<Typed>> {
        if bind::comparison(op).is_none() {
            return Ok(None);
        }
        match (self.row_of(left)?, self.row_of(right)?) {
            (Some(l), Some(r)) => self.rows(&l, op, &r).map(Some),
            (Some(_), None) if subquery_in(right).is_some() => {
                Err(Error::unsupported("a row compared with that of a subquery"))
            }
            (Some(_), None) | (None, Some(_)) => {
                Err(Error::unsupported("a row beside what is no row"))
            }
            (None, None) => Ok(None),
        }
    }
}

/// Refuses what would be computed more than once, though it gives something else each time.
fn refuse_volatile<'t>(mut values: impl Iterator<Item = &'t Typed>) -> Result<()> {
    match values.any(|t| t.expr.is_volatile()) {
        true => Err(Error::unsupported(
            "a comparison of rows of volatile values",
        )),
        false => Ok(()),
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

fn is_row_constructor(f: &ast::Function) -> bool {
    matches!(names::Qualified::new(&f.name), Ok(q) if q.name == "row" && q.schema.is_none())
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
                self.in_subquery(&left, subquery, *negated).map(Some)
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
            ast::Expr::Tuple(_) => Err(Error::unsupported("a row as a value")),
            _ => Ok(None),
        }
    }
}
