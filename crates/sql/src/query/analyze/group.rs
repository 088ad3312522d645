//! Aggregates and GROUP BY.
//!
//! Clauses over groups are bound as if there were none; an aggregate becomes the register that it
//! will have. Then whatever equals a group's key becomes the key's register. What is left of the
//! input's columns must follow from the key: a column of a table whose primary key is grouped by
//! does, any other is 42803.

use std::cell::{Cell, RefCell};

use sqlparser::ast::{
    self, DuplicateTreatment, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments,
};

use super::expression::Clause;
use super::scope::Scope;
use super::tree::{Grouping, Windows};
use crate::bind::Typed;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
use crate::plan::SortKey;
use crate::query::aggregate::{self, AggregateCall};
use crate::query::plan::Register;
use crate::types::SqlType;

/// Aggregates and window functions met while the clauses of a level are bound.
#[derive(Default)]
pub struct Groups {
    pub aggregates: RefCell<Vec<AggregateCall>>,
    pub grouping: RefCell<Vec<(Register, Vec<Expr>)>>,
    pub windows: RefCell<Vec<Windows>>,
    pub in_aggregate: Cell<bool>,
    pub in_window: Cell<bool>,
    /// Windows of the WINDOW clause.
    pub named: RefCell<Vec<(String, ast::WindowSpec)>>,
}

impl Clause<'_> {
    pub(super) fn aggregate_call(&self, name: &str, f: &ast::Function) -> Result<Typed> {
        let Some(groups) = self.groups else {
            return Err(Error::new(
                "42803",
                format!("aggregate functions are not allowed in {}", self.name),
            ));
        };
        if groups.in_aggregate.get() {
            return Err(Error::new(
                "42803",
                "aggregate function calls cannot be nested",
            ));
        }
        groups.in_aggregate.set(true);
        let call = self.aggregate_parts(name, f);
        groups.in_aggregate.set(false);
        let (mut call, result) = call?;
        let mut all = groups.aggregates.borrow_mut();
        let same = |known: &&AggregateCall| {
            AggregateCall {
                into: 0,
                ..(*known).clone()
            } == call
        };
        let into = match all.iter().find(same) {
            Some(known) => known.into,
            None => {
                let into = self.scope.file.register();
                call.into = into;
                all.push(call);
                into
            }
        };
        Ok(Typed::new(Expr::Column(into), result))
    }

    /// The call but for its place, and the type of its value.
    pub(super) fn aggregate_parts(
        &self,
        name: &str,
        f: &ast::Function,
    ) -> Result<(AggregateCall, SqlType)> {
        if !f.within_group.is_empty() || f.null_treatment.is_some() {
            return Err(Error::unsupported(format!("{f}")));
        }
        let FunctionArguments::List(list) = &f.args else {
            return Err(Error::unsupported(format!("{f}")));
        };
        let binder = self.binder();
        let (args, order) = match list.args.as_slice() {
            [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] if name == "count" => {
                (Vec::new(), Vec::new())
            }
            [] if name == "count" => {
                return Err(Error::new(
                    "42809",
                    "count(*) must be used to call a parameterless aggregate function",
                ));
            }
            args => {
                let args = self.plain_args(args)?;
                let args = args
                    .into_iter()
                    .map(|e| binder.expr(e))
                    .collect::<Result<Vec<_>>>()?;
                (args, self.order_within(&list.clauses)?)
            }
        };
        let (function, args, result) = self.found(name, args)?;
        // Aggregates of the level itself may be what a window function is of.
        if !self.groups.is_some_and(|g| g.in_window.get()) {
            self.is_own(&args)?;
        }
        let distinct = matches!(list.duplicate_treatment, Some(DuplicateTreatment::Distinct));
        if distinct && !order.iter().all(|k: &SortKey| args.contains(&k.expr)) {
            return Err(Error::new(
                "42P10",
                "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list",
            ));
        }
        let filter = f.filter.as_ref().map(|e| binder.condition(e)).transpose()?;
        let call = AggregateCall {
            function,
            args,
            distinct,
            order,
            filter,
            into: 0,
        };
        Ok((call, result))
    }

    /// The aggregate of a name for arguments, which are converted to what it takes.
    fn found(
        &self,
        name: &str,
        args: Vec<Typed>,
    ) -> Result<(aggregate::Aggregate, Vec<Expr>, SqlType)> {
        let binder = self.binder();
        let types: Vec<SqlType> = args.iter().map(|a| a.ty).collect();
        let shown = || {
            types
                .iter()
                .map(|t| t.name())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let Some(found) = aggregate::find(name, &types) else {
            let hint = "No function matches the given name and argument types. You might need to add explicit type casts.";
            return Err(match aggregate::is_ambiguous(name, &types) {
                true => Error::new("42725", format!("function {name}({}) is not unique", shown()))
                    .hint("Could not choose a best candidate function. You might need to add explicit type casts."),
                false => Error::new("42883", format!("function {name}({}) does not exist", shown()))
                    .hint(hint),
            });
        };
        let args = args
            .into_iter()
            .zip(&found.args)
            .map(|(a, ty)| Ok(binder.coerce(a, *ty, -1, CastContext::Implicit)?.expr))
            .collect::<Result<Vec<_>>>()?;
        Ok((found.function, args, found.result))
    }

    fn order_within(&self, clauses: &[FunctionArgumentClause]) -> Result<Vec<SortKey>> {
        let mut keys = Vec::new();
        for clause in clauses {
            match clause {
                FunctionArgumentClause::OrderBy(list) => {
                    for item in list {
                        keys.push(self.sort_key(item)?);
                    }
                }
                other => return Err(Error::unsupported(format!("{other}"))),
            }
        }
        Ok(keys)
    }

    pub(super) fn sort_key(&self, item: &ast::OrderByExpr) -> Result<SortKey> {
        if item.with_fill.is_some() {
            return Err(Error::unsupported("WITH FILL"));
        }
        let binder = self.binder();
        let descending = item.options.asc == Some(false);
        Ok(SortKey {
            expr: binder.settle(binder.expr(&item.expr)?)?.expr,
            descending,
            nulls_first: item.options.nulls_first.unwrap_or(descending),
        })
    }

    /// Refuses an aggregate that is of a query further out: of its columns only.
    fn is_own(&self, args: &[Expr]) -> Result<()> {
        let own = own_registers(self.scope);
        let (mut any, mut mine) = (false, false);
        for e in args {
            e.visit(&mut |e| {
                if let Expr::Column(r) = e {
                    any = true;
                    mine |= own.contains(r);
                }
            });
        }
        match any && !mine {
            true => Err(Error::unsupported(
                "an aggregate of an outer query's columns only",
            )),
            false => Ok(()),
        }
    }

    pub(super) fn grouping_call(&self, f: &ast::Function) -> Result<Typed> {
        let (Some(groups), FunctionArguments::List(list)) = (self.groups, &f.args) else {
            return Err(Error::new(
                "42803",
                format!("grouping operations are not allowed in {}", self.name),
            ));
        };
        let binder = self.binder();
        let args = self
            .plain_args(&list.args)?
            .into_iter()
            .map(|e| Ok(binder.expr(e)?.expr))
            .collect::<Result<Vec<_>>>()?;
        let into = self.scope.file.register();
        groups.grouping.borrow_mut().push((into, args));
        Ok(Typed::new(Expr::Column(into), SqlType::Int4))
    }
}

/// Registers of the columns of a scope's own level.
pub fn own_registers(scope: &Scope<'_>) -> Vec<Register> {
    let mut own = Vec::new();
    for c in &scope.columns {
        c.value.expr.visit(&mut |e| {
            if let Expr::Column(r) = e {
                own.push(*r);
            }
        });
    }
    own
}

/// The keys of GROUP BY.
#[derive(Default)]
pub struct Keys {
    /// As written in other clauses, as grouped by, and its register.
    keys: Vec<(Expr, Expr, Register)>,
    sets: Vec<Vec<usize>>,
}

impl Keys {
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// The place of a key among all.
    pub fn place(&mut self, written: Expr, grouped: Expr, scope: &Scope<'_>) -> usize {
        match self.keys.iter().position(|(known, ..)| *known == written) {
            Some(at) => at,
            None => {
                let register = scope.file.register();
                self.keys.push((written, grouped, register));
                self.keys.len() - 1
            }
        }
    }

    /// GROUP BY `a, b` groups by all of them together; several items multiply their sets.
    pub fn set_product(&mut self, items: Vec<Vec<Vec<usize>>>) -> Result<()> {
        const MAX_SETS: usize = 4096;
        let mut sets: Vec<Vec<usize>> = vec![Vec::new()];
        for item in items {
            let mut next = Vec::new();
            for set in &sets {
                for more in &item {
                    let mut both = set.clone();
                    both.extend(more.iter().copied().filter(|k| !set.contains(k)));
                    next.push(both);
                }
            }
            if next.len() > MAX_SETS {
                return Err(Error::new(
                    "54001",
                    format!("too many grouping sets present (maximum {MAX_SETS})"),
                ));
            }
            sets = next;
        }
        self.sets = sets;
        Ok(())
    }

    /// Makes expressions over the input ones over groups, and gives the grouping.
    pub fn over_groups<'e>(
        self,
        groups: &Groups,
        scope: &Scope<'_>,
        exprs: impl Iterator<Item = &'e mut Expr>,
    ) -> Result<Grouping> {
        let own = own_registers(scope);
        let mut decided: Vec<(Expr, Register)> = Vec::new();
        for e in exprs {
            self.replace_keys(e);
            self.decide(e, &own, scope, &mut decided)?;
        }
        let mut grouping = Vec::new();
        for (into, args) in groups.grouping.take() {
            let places = args
                .iter()
                .map(|arg| {
                    let place = self.keys.iter().position(|(known, ..)| known == arg);
                    place.ok_or_else(|| {
                        Error::new(
                            "42803",
                            "arguments to GROUPING must be grouping expressions of the associated query level",
                        )
                    })
                })
                .collect::<Result<Vec<_>>>()?;
            grouping.push((into, places));
        }
        let sets = match self.sets.is_empty() {
            true => vec![Vec::new()],
            false => self.sets,
        };
        Ok(Grouping {
            keys: self.keys.into_iter().map(|(_, e, r)| (e, r)).collect(),
            sets,
            aggregates: groups.aggregates.take(),
            grouping,
            decided,
        })
    }

    fn replace_keys(&self, e: &mut Expr) {
        e.replace(&mut |e| {
            let key = self.keys.iter().find(|(known, ..)| known == e);
            key.map(|(.., register)| Expr::Column(*register))
        });
    }

    /// Columns of the input that are left must follow from the key.
    fn decide(
        &self,
        e: &mut Expr,
        own: &[Register],
        scope: &Scope<'_>,
        decided: &mut Vec<(Expr, Register)>,
    ) -> Result<()> {
        let mut failed = None;
        e.replace(&mut |e| {
            let Expr::Column(r) = e else { return None };
            if !own.contains(r) || self.keys.iter().any(|(.., key)| key == r) {
                return None;
            }
            let known = decided.iter().find(|(known, _)| known == e);
            if let Some((_, register)) = known {
                return Some(Expr::Column(*register));
            }
            let follows = scope.keys.iter().any(|(key, columns)| {
                columns.contains(r)
                    && self.sets.len() == 1
                    && key.iter().all(|k| {
                        let grouped =
                            |(known, ..): &(Expr, Expr, Register)| *known == Expr::Column(*k);
                        self.keys.iter().any(grouped)
                    })
            });
            if !follows {
                failed.get_or_insert(*r);
                return None;
            }
            let register = scope.file.register();
            decided.push((e.clone(), register));
            Some(Expr::Column(register))
        });
        let Some(register) = failed else {
            return Ok(());
        };
        let column = scope
            .columns
            .iter()
            .find(|c| c.value.expr == Expr::Column(register));
        let name = match column {
            Some(c) if c.table.is_empty() => c.name.clone(),
            Some(c) => format!("{}.{}", c.table, c.name),
            None => "?column?".to_string(),
        };
        Err(Error::new(
            "42803",
            format!(
                "column \"{name}\" must appear in the GROUP BY clause or be used in an aggregate function"
            ),
        ))
    }
}
