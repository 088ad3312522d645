//! The FROM clause of direct plans: tables, series, and joins of two by index.

use std::sync::Arc;

use sqlparser::ast::{self, JoinConstraint, JoinOperator, TableFactor};

use super::path::{Path, Wish, conjoin, conjuncts};
use super::policies::refuse_read;
use super::select::{SortKey, Source};
use super::{IndexPart, Planner, TableAccess};
use crate::bind::{Binder, Scope, ScopeColumn, call_of, common_type, names};
use crate::dict::Table;
use crate::dict::acl::Privileges;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
use crate::query::optimize::conditions::carry_constants;
use crate::query::record_function::of_record;
use crate::types::SqlType;

/// Loops read the inner table once per outer row: only a lookup by key, and only if the outer side is expected to be
/// small, or both are tiny.
const MAX_LOOP_OUTER_ROWS: f64 = 20_000.0;
const MAX_LOOP_PAIRS: f64 = 20_000.0;

/// One FROM item.
pub enum Item {
    /// With the name that it has here.
    Table(Arc<Table>, String),
    Source(Box<Source>),
}

impl Planner<'_> {
    /// The FROM clause: items, the columns they bring, the join's conditions, and whether it is a left join.
    #[allow(clippy::wrong_self_convention, reason = "FROM is the clause it plans")]
    pub(super) fn from_clause(
        &self,
        from: &[ast::TableWithJoins],
    ) -> Result<(Vec<Item>, Scope, Vec<Expr>, bool)> {
        let mut items = Vec::new();
        let mut scope = Scope::default();
        let mut width = 0;
        let mut joins = Vec::new();
        let mut left = false;
        for twj in from {
            self.add_item(&twj.relation, &mut items, &mut scope, &mut width)?;
            for join in &twj.joins {
                self.add_item(&join.relation, &mut items, &mut scope, &mut width)?;
                let constraint = match &join.join_operator {
                    JoinOperator::Join(c) | JoinOperator::Inner(c) | JoinOperator::CrossJoin(c) => {
                        c
                    }
                    JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => {
                        left = true;
                        c
                    }
                    _ => return Err(Error::unsupported("this join in a direct plan")),
                };
                check_constraint(&join.join_operator, constraint)?;
                match constraint {
                    JoinConstraint::None => {}
                    JoinConstraint::On(e) => {
                        let binder = Binder::new(&scope, self.params, "JOIN/ON");
                        joins.extend(conjuncts(Some(binder.condition(e)?)));
                    }
                    _ => return Err(Error::unsupported("USING in a direct plan")),
                }
            }
        }
        if items.len() > 2 || items.len() == 2 && items.iter().any(|i| matches!(i, Item::Source(_)))
        {
            return Err(Error::unsupported("this many FROM items in a direct plan"));
        }
        Ok((items, scope, joins, left))
    }

    fn add_item(
        &self,
        factor: &TableFactor,
        items: &mut Vec<Item>,
        scope: &mut Scope,
        width: &mut usize,
    ) -> Result<()> {
        match factor {
            TableFactor::Table {
                name,
                alias,
                args: None,
                version: None,
                with_ordinality: false,
                sample: None,
                ..
            } => {
                let table = self.known_table(name)?;
                if table.live_columns().next().is_none() {
                    let what = "a table without columns in a direct plan";
                    return Err(Error::unsupported(what));
                }
                let alias = match alias {
                    Some(a) if a.columns.is_empty() => names::ident(&a.name),
                    Some(_) => return Err(Error::unsupported("column aliases in a direct plan")),
                    None => table.name.clone(),
                };
                // Two of a name may be of two schemas.
                if scope.has_table(&alias) {
                    return Err(Error::unsupported("a name twice in a direct plan"));
                }
                scope.add_table(&table, &alias, *width);
                *width += table.columns.len();
                items.push(Item::Table(table, alias));
                Ok(())
            }
            TableFactor::Table {
                name,
                alias,
                args: Some(args),
                with_ordinality: false,
                sample: None,
                ..
            } => self.series(name, &args.args, alias.as_ref(), items, scope, width),
            TableFactor::Function {
                lateral: false,
                name,
                args,
                with_ordinality: false,
                alias,
            } => self.series(name, args, alias.as_ref(), items, scope, width),
            _ => Err(Error::unsupported("this FROM item in a direct plan")),
        }
    }

    /// A user's table; anything else may be a catalog or a view, which the tree lane knows.
    fn known_table(&self, name: &ast::ObjectName) -> Result<Arc<Table>> {
        let q = names::Qualified::new(name)?;
        let table = self.dict.table(&q).cloned();
        let table = table.ok_or_else(|| Error::unsupported("this relation in a direct plan"))?;
        self.params.needs.relation(table.oid, Privileges::SELECT);
        refuse_read(self.params, self.dict, &table)?;
        Ok(table)
    }

    fn series(
        &self,
        name: &ast::ObjectName,
        args: &[ast::FunctionArg],
        alias: Option<&ast::TableAlias>,
        items: &mut Vec<Item>,
        scope: &mut Scope,
        width: &mut usize,
    ) -> Result<()> {
        // Its arguments may name what stands before it.
        if !items.is_empty() {
            return Err(Error::unsupported("this many FROM items in a direct plan"));
        }
        let given = alias.map_or(&[][..], |a| a.columns.as_slice());
        if given.len() > 1 || given.iter().any(|column| column.data_type.is_some()) {
            return Err(Error::unsupported("a list of columns in a direct plan"));
        }
        let function = names::Qualified::new(name)?.name;
        if of_record(&function).is_some() {
            return Err(Error::unsupported(format!("{function} in a direct plan")));
        }
        if function != "generate_series" {
            return self.call(name, args, alias, items, scope, width);
        }
        if !(2..=3).contains(&args.len()) {
            return Err(Error::unsupported(format!("function {name} in FROM")));
        }
        let none = Scope::default();
        let binder = Binder::new(&none, self.params, "FROM");
        let mut bound = Vec::new();
        for a in args {
            match a {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e)) => {
                    bound.push(binder.expr(e)?)
                }
                _ => return Err(Error::unsupported(format!("arguments of {name}"))),
            }
        }
        let ty = common_type(
            &bound.iter().map(|b| b.ty).collect::<Vec<_>>(),
            "generate_series",
        )
        .map_err(|_| Error::unsupported("generate_series of several types in a direct plan"))?;
        let ty = if ty == SqlType::Text {
            SqlType::Int4
        } else {
            ty
        };
        if !matches!(ty, SqlType::Int4 | SqlType::Int8) {
            return Err(Error::unsupported(format!(
                "generate_series of {}",
                ty.name()
            )));
        }
        let mut exprs = bound
            .into_iter()
            .map(|b| Ok(binder.coerce(b, ty, -1, CastContext::Implicit)?.expr))
            .collect::<Result<Vec<_>>>()?;
        let step = if exprs.len() == 3 { exprs.pop() } else { None };
        let (Some(stop), Some(start)) = (exprs.pop(), exprs.pop()) else {
            return Err(Error::internal("series without bounds"));
        };
        let table = alias.map_or("generate_series".to_string(), |a| names::ident(&a.name));
        let column = alias
            .and_then(|a| a.columns.first())
            .map_or(table.clone(), |c| names::ident(&c.name));
        scope.columns.push(ScopeColumn {
            table,
            name: column,
            ty,
            typmod: -1,
            collation: Default::default(),
            slot: *width,
            table_oid: 0,
            attnum: 0,
            hidden: false,
        });
        *width += 1;
        let step = step.unwrap_or(Expr::Const(block::value::Datum::Int8(1)));
        items.push(Item::Source(Box::new(Source::Series {
            start,
            stop,
            step,
            ty,
        })));
        Ok(())
    }

    /// A function that gives one value: a table of one row and one column, which has the name of the alias, or of the function.
    fn call(
        &self,
        name: &ast::ObjectName,
        args: &[ast::FunctionArg],
        alias: Option<&ast::TableAlias>,
        items: &mut Vec<Item>,
        scope: &mut Scope,
        width: &mut usize,
    ) -> Result<()> {
        let none = Scope::default();
        let binder = Binder::new(&none, self.params, "FROM");
        let bound = binder.expr(&call_of(name, args))?;
        // A row as a value has columns here.
        if matches!(bound.ty, SqlType::Unknown | SqlType::Composite(_)) {
            return Err(Error::unsupported(format!("function {name} in FROM")));
        }
        let function = names::Qualified::new(name)?.name;
        let table = alias.map_or(function, |a| names::ident(&a.name));
        let columns = alias.map_or(&[][..], |a| a.columns.as_slice());
        if columns.len() > 1 {
            let message = format!(
                "table \"{table}\" has 1 columns available but {} columns specified",
                columns.len()
            );
            return Err(Error::new("42P10", message));
        }
        scope.columns.push(ScopeColumn {
            name: columns
                .first()
                .map_or(table.clone(), |c| names::ident(&c.name)),
            table,
            ty: bound.ty,
            typmod: bound.typmod,
            collation: bound.collation.of_column(),
            slot: *width,
            table_oid: 0,
            attnum: 0,
            hidden: false,
        });
        *width += 1;
        items.push(Item::Source(Box::new(Source::Values(vec![vec![
            bound.expr,
        ]]))));
        Ok(())
    }

    /// Access paths for the items; `most`: how many rows LIMIT lets the query give, if it has one. Returns the source, the filter left for the
    /// combined row, and whether rows come in the wanted order.
    pub(super) fn source(
        &self,
        mut items: Vec<Item>,
        terms: Vec<Expr>,
        on: Vec<Expr>,
        left: bool,
        wish: Wish<'_>,
        most: Option<f64>,
    ) -> Result<(Source, Option<Expr>, bool)> {
        let order = wish.order;
        let last = items.pop();
        match (items.pop(), last) {
            (None, None) => Ok((Source::One, conjoin(terms), order.is_empty())),
            (None, Some(Item::Source(s))) => Ok((*s, conjoin(terms), order.is_empty())),
            (None, Some(Item::Table(t, _))) => {
                let (access, ordered) = self.access(&t, 0, terms, wish);
                Ok((Source::Table(Box::new(access)), None, ordered))
            }
            (Some(Item::Table(a, _)), Some(Item::Table(b, _))) => {
                self.join(&a, &b, terms, on, left, order, most)
            }
            _ => Err(Error::unsupported("this join in a direct plan")),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn join(
        &self,
        a: &Arc<Table>,
        b: &Arc<Table>,
        terms: Vec<Expr>,
        on: Vec<Expr>,
        left: bool,
        order: &[SortKey],
        most: Option<f64>,
    ) -> Result<(Source, Option<Expr>, bool)> {
        let split = a.columns.len();
        let mut terms = terms;
        if !left {
            carry_constants(&mut terms, &(0..split + b.columns.len()).collect());
        }
        let (outer_terms, rest): (Vec<Expr>, Vec<Expr>) = terms
            .into_iter()
            .partition(|t| t.columns_needed() <= split && !t.is_volatile());
        // Conditions of WHERE on the inner side of a left join apply after NULLs were filled in.
        let (inner_terms, filter) = if left { (on, rest) } else { (rest, Vec::new()) };
        let outer_wish = Wish {
            order,
            limited: most.is_some(),
            batched: false,
        };
        let (outer, ordered) = self.access(a, 0, outer_terms, outer_wish);
        let (inner, _) = self.access(b, split, inner_terms, Wish::default());
        // One outer row is in any order of its own columns, its partners are not in one of theirs.
        let ordered = ordered && order.iter().all(|k| k.expr.columns_needed() <= split);
        // A whole table of which few rows pass may be better as the inner side, or hashed: only the
        // tree lane compares.
        if matches!(outer.path, Path::Full) && outer.filter.is_some() {
            return Err(Error::unsupported("a join in this order in a direct plan"));
        }
        let by_key = !matches!(inner.path, Path::Full);
        let mut pairs = outer.rows * inner.rows;
        if !by_key && ordered && inner.filter.is_none() && filter.is_empty() {
            // No pair is refused, so LIMIT ends the loop.
            pairs = pairs.min(most.unwrap_or(f64::INFINITY));
        }
        if !(by_key && outer.rows <= MAX_LOOP_OUTER_ROWS) && pairs > MAX_LOOP_PAIRS {
            return Err(Error::unsupported("a join of this size in a direct plan"));
        }
        Ok((
            Source::Loop {
                outer: Box::new(outer),
                inner: Box::new(inner),
                left,
            },
            conjoin(filter),
            ordered,
        ))
    }
}

impl Source {
    /// Settles how many columns of each table must be decoded, given what the rest of the plan uses.
    pub(super) fn decode(&mut self, needed: usize) {
        match self {
            Source::Table(t) => t.decode(needed),
            Source::Loop { outer, inner, .. } => {
                let keys = inner.key_columns();
                outer.decode(
                    needed
                        .max(keys)
                        .max(inner.filter.as_ref().map_or(0, Expr::columns_needed)),
                );
                inner.decode(needed);
            }
            _ => {}
        }
    }

    pub fn accesses(&self) -> Vec<&TableAccess> {
        match self {
            Source::Table(t) => vec![t],
            Source::Loop { outer, inner, .. } => vec![outer, inner],
            _ => Vec::new(),
        }
    }

    pub fn tables(&self) -> Vec<&Arc<Table>> {
        self.accesses().into_iter().map(|a| &a.table).collect()
    }

    /// Columns of the combined row of its tables.
    pub fn width(&self) -> usize {
        self.tables().iter().map(|t| t.columns.len()).sum()
    }
}

impl TableAccess {
    pub fn decode(&mut self, needed: usize) {
        let own = self.filter.as_ref().map_or(0, Expr::columns_needed);
        self.needed = needed
            .max(own)
            .saturating_sub(self.offset)
            .min(self.table.columns.len());
    }

    /// Columns of the combined row that the path's keys use.
    fn key_columns(&self) -> usize {
        let widest = |keys: &mut dyn Iterator<Item = &Expr>| {
            keys.map(Expr::columns_needed).max().unwrap_or(0)
        };
        match &self.path {
            Path::Full => 0,
            Path::Keys { keys, .. } => widest(&mut keys.iter().flatten()),
            Path::Inverted { terms, .. } => widest(&mut terms.iter().flat_map(|t| &t.values)),
            Path::Common { parts, .. } => widest(&mut parts.iter().flat_map(IndexPart::values)),
            Path::Index {
                equal,
                any_of,
                low,
                high,
                ..
            } => {
                let bounds = low.iter().chain(high).map(|b| &b.value);
                widest(&mut equal.iter().chain(any_of).chain(bounds))
            }
        }
    }
}

/// Refuses a join without a condition that is no CROSS JOIN: the parser reads it.
pub fn check_constraint(operator: &JoinOperator, constraint: &JoinConstraint) -> Result<()> {
    match (operator, constraint) {
        (JoinOperator::CrossJoin(_), _) => Ok(()),
        (_, JoinConstraint::None) => Err(Error::new(
            "42601",
            "syntax error: a JOIN without ON or USING",
        )),
        _ => Ok(()),
    }
}
