//! Aggregates and GROUP BY.
//!
//! Clauses over groups are bound as if there were none; an aggregate becomes the register that it
//! will have. Then whatever equals a group's key becomes the key's register. What is left of the
//! input's columns must follow from the key: a column of a table whose primary key is grouped by
//! does, any other is 42803.

use std::cell::{Cell, RefCell};

use block::value::Datum;
use sqlparser::ast::{
    self, DuplicateTreatment, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments,
};

use super::expression::Clause;
use super::scope::Scope;
use super::tree::{Grouping, Windows};
use crate::bind::{self, Typed, collation, names};
use crate::collate::{self, Collation, Derived};
use crate::error::{Error, Result};
use crate::expr::cast::CastContext;
use crate::expr::collated::Collated;
use crate::expr::func::PureFunc;
use crate::expr::{Expr, Func};
use crate::place::Place;
use crate::plan::SortKey;
use crate::query::aggregate::{self, Aggregate, AggregateCall, OrderedSet};
use crate::query::plan::Register;
use crate::types::{Element, SqlType};

/// PostgreSQL's hint where no function takes the arguments.
const ADD_CASTS: &str = "No function matches the given name and argument types. You might need to add explicit type casts.";

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
        self.placed(
            "aggregate functions",
            &|clause| clause.aggregate_parts(name, f),
            &|(_, result)| *result,
            &|clause, groups, (mut call, result)| {
                let mut all = groups.aggregates.borrow_mut();
                let same = |known: &&AggregateCall| {
                    AggregateCall {
                        into: 0,
                        ..(*known).clone()
                    } == call
                };
                let by = collation_of_keys(&call.function, &call.args);
                let into = match all.iter().find(same) {
                    Some(known) => known.into,
                    None => {
                        call.into = clause.scope.file.register();
                        all.push(call);
                        all[all.len() - 1].into
                    }
                };
                Typed::new(of_keys(Expr::Column(into), by), result)
            },
        )
    }

    /// The call but for its place, and the type of its value.
    pub(super) fn aggregate_parts(
        &self,
        name: &str,
        f: &ast::Function,
    ) -> Result<(AggregateCall, SqlType)> {
        if f.null_treatment.is_some() {
            return Err(Error::unsupported(format!("{f}")));
        }
        if let Some(set) = aggregate::ordered_set(name) {
            return self.ordered_set(name, set, f);
        }
        if !f.within_group.is_empty() {
            return Err(self.no_function(name, f, ADD_CASTS)?);
        }
        let FunctionArguments::List(list) = &f.args else {
            return Err(Error::unsupported(format!("{f}")));
        };
        let binder = self.binder();
        let (args, (mut order, order_types)) = match list.args.as_slice() {
            [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] if name == "count" => {
                (Vec::new(), Default::default())
            }
            [] if name == "count" => {
                return Err(Error::new(
                    "42809",
                    "count(*) must be used to call a parameterless aggregate function",
                ));
            }
            [arg] if name == "count" && list.duplicate_treatment.is_none() => {
                match self.counted_row(arg)? {
                    Some(there) => (vec![there], Default::default()),
                    None => {
                        let args = self.plain_args(&list.args)?.into_iter();
                        let args = args.map(|e| binder.expr(e)).collect::<Result<Vec<_>>>()?;
                        (args, self.order_within(&list.clauses)?)
                    }
                }
            }
            args => {
                let args = args.iter().map(|arg| match arg {
                    FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(row)) => {
                        binder.star_argument(row)
                    }
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => binder.expr(e),
                    other => Err(Error::unsupported(format!("argument {other}"))),
                });
                let args = args.collect::<Result<Vec<_>>>()?;
                (args, self.order_within(&list.clauses)?)
            }
        };
        let given: Vec<SqlType> = args.iter().map(|a| a.ty).collect();
        let (function, args, result) = self.found(name, args)?;
        let distinct = matches!(list.duplicate_treatment, Some(DuplicateTreatment::Distinct));
        // A key is an argument as it is written, before it is made what the aggregate takes.
        let is_argument = |(key, ty): (&SortKey, &SqlType)| {
            let same = |(arg, given): (&Expr, &SqlType)| {
                *arg == key.expr && (given == ty || *given == SqlType::Unknown)
            };
            args.iter().zip(&given).any(same)
        };
        if distinct && !order.iter().zip(&order_types).all(is_argument) {
            return Err(Error::new(
                "42P10",
                "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list",
            ));
        }
        if distinct {
            for ty in &given {
                bind::check_comparable(*ty, "equality")?;
            }
        }
        if distinct && function.is_json() {
            self.order_by_arguments(&args, &mut order);
        }
        let (function, args) = self.json_arguments(function, args, &given)?;
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

    /// An aggregate of the values that WITHIN GROUP orders.
    fn ordered_set(
        &self,
        name: &str,
        set: OrderedSet,
        f: &ast::Function,
    ) -> Result<(AggregateCall, SqlType)> {
        let FunctionArguments::List(list) = &f.args else {
            return Err(Error::unsupported(format!("{f}")));
        };
        let direct = match set {
            OrderedSet::Mode => 0,
            _ => 1,
        };
        if f.within_group.is_empty() && list.args.len() == direct + 1 {
            let message = format!("WITHIN GROUP is required for ordered-set aggregate {name}");
            return Err(Error::new("42809", message));
        }
        let [key] = f.within_group.as_slice() else {
            return Err(self.no_function(name, f, ADD_CASTS)?);
        };
        if list.args.len() != direct {
            return Err(self.no_function(name, f, ADD_CASTS)?);
        }
        if f.over.is_some() {
            let message = format!("OVER is not supported for ordered-set aggregate {name}");
            return Err(Error::new("0A000", message));
        }
        let binder = self.binder();
        let mut value = binder.settle(binder.expr(&key.expr)?)?;
        if set == OrderedSet::Continuous && value.ty != SqlType::Interval {
            value = binder.coerce(value, SqlType::Float8, -1, CastContext::Implicit)?;
        }
        let mut order = self.sort_key(key)?;
        order.expr = value.expr.clone();
        let mut result = value.ty;
        let mut set = set;
        let mut args = vec![value.expr];
        for share in self.plain_args(&list.args)? {
            let share = self.share(share)?;
            if bind::element_of(share.ty).is_some() {
                let element = Element::of(result).ok_or_else(|| {
                    let name = result.name();
                    let message = format!("could not find array type for data type {name}");
                    Error::new("42704", message)
                })?;
                result = SqlType::Array(element);
                set = match set {
                    OrderedSet::Continuous => OrderedSet::ContinuousList(element),
                    _ => OrderedSet::DiscreteList(element),
                };
            }
            args.push(share.expr);
        }
        let filter = f.filter.as_ref().map(|e| binder.condition(e)).transpose()?;
        let call = AggregateCall {
            function: Aggregate::OrderedSet(set),
            args,
            distinct: false,
            order: vec![order],
            filter,
            into: 0,
        };
        Ok((call, result))
    }

    /// That there is no function of a name for direct and ordered arguments.
    fn no_function(&self, name: &str, f: &ast::Function, hint: &str) -> Result<Error> {
        let binder = self.binder();
        let FunctionArguments::List(list) = &f.args else {
            return Err(Error::unsupported(format!("{f}")));
        };
        let ordered = f.within_group.iter().map(|key| &key.expr);
        let args = self.plain_args(&list.args)?.into_iter().chain(ordered);
        let types = args
            .map(|e| Ok(binder.expr(e)?.ty))
            .collect::<Result<Vec<_>>>()?;
        if aggregate::find(name, &types).is_some() {
            let message =
                format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP");
            return Ok(Error::new("42809", message));
        }
        let types: Vec<&str> = types.iter().map(|ty| ty.name()).collect();
        let message = format!("function {name}({}) does not exist", types.join(", "));
        Ok(Error::new("42883", message).hint(hint))
    }

    /// Refuses a hypothetical row of more or fewer columns than the order has.
    pub(super) fn check_hypothetical(&self, name: &str, f: &ast::Function) -> Result<()> {
        let FunctionArguments::List(list) = &f.args else {
            return Ok(());
        };
        let (direct, ordered) = (list.args.len(), f.within_group.len());
        if direct == ordered {
            return Ok(());
        }
        let hint = format!(
            "To use the hypothetical-set aggregate {name}, the number of hypothetical direct arguments (here {direct}) must match the number of ordering columns (here {ordered})."
        );
        Err(self.no_function(name, f, &hint)?)
    }

    /// The share of the rows that a percentile is at: a constant, as it is that of the whole group.
    fn share(&self, e: &ast::Expr) -> Result<Typed> {
        let binder = self.binder();
        let share = binder.expr(e)?;
        let wanted = match bind::element_of(share.ty) {
            Some(_) => SqlType::FLOAT8S,
            None => SqlType::Float8,
        };
        let share = binder.coerce(share, wanted, -1, CastContext::Implicit)?;
        match &share.expr {
            Expr::Const(Datum::Float8(share)) => aggregate::check_share(*share)?,
            Expr::Const(_) | Expr::Param(_) => {}
            _ => return Err(Error::unsupported("a percentile that is no constant")),
        }
        Ok(share)
    }

    /// What `count` of a whole row counts, if that is its argument.
    fn counted_row(&self, arg: &FunctionArg) -> Result<Option<Typed>> {
        let row = match arg {
            FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) => {
                self.row_named(&names::Qualified::new(name)?.name)?
            }
            FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => self.whole_row(e)?,
            _ => None,
        };
        Ok(row.map(|row| Typed::new(row.there, SqlType::Int8)))
    }

    /// The aggregate of a name for arguments, which are converted to what it takes.
    fn found(&self, name: &str, args: Vec<Typed>) -> Result<(Aggregate, Vec<Expr>, SqlType)> {
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
            return Err(match aggregate::is_ambiguous(name, &types) {
                true => Error::new("42725", format!("function {name}({}) is not unique", shown()))
                    .hint("Could not choose a best candidate function. You might need to add explicit type casts."),
                false => Error::new("42883", format!("function {name}({}) does not exist", shown()))
                    .hint(ADD_CASTS),
            });
        };
        let derived = args.first().map_or_else(Derived::default, |a| a.collation);
        let mut args = args
            .into_iter()
            .zip(&found.args)
            .map(|(a, ty)| Ok(binder.coerce(a, *ty, -1, CastContext::Implicit)?.expr))
            .collect::<Result<Vec<_>>>()?;
        let mut function = found.function;
        if let Aggregate::Min(kept) | Aggregate::Max(kept) = &mut function
            && let Some(by) = collation::of_order(*kept, derived)?
        {
            // The keys are compared, and the text of one is the result.
            *kept = SqlType::Bytea;
            args = args.into_iter().map(|a| collation::key_of(a, by)).collect();
        }
        Ok((function, args, found.result))
    }

    /// The keys and the types of their values.
    fn order_within(
        &self,
        clauses: &[FunctionArgumentClause],
    ) -> Result<(Vec<SortKey>, Vec<SqlType>)> {
        let mut keys = (Vec::new(), Vec::new());
        for clause in clauses {
            match clause {
                FunctionArgumentClause::OrderBy(list) => {
                    for item in list {
                        let (key, ty) = self.typed_sort_key(item)?;
                        keys.0.push(key);
                        keys.1.push(ty);
                    }
                }
                other => return Err(Error::unsupported(format!("{other}"))),
            }
        }
        Ok(keys)
    }

    pub(super) fn sort_key(&self, item: &ast::OrderByExpr) -> Result<SortKey> {
        Ok(self.typed_sort_key(item)?.0)
    }

    fn typed_sort_key(&self, item: &ast::OrderByExpr) -> Result<(SortKey, SqlType)> {
        if item.with_fill.is_some() {
            return Err(Error::unsupported("WITH FILL"));
        }
        let binder = self.binder();
        let descending = item.options.asc == Some(false);
        let value = collate::apart(|| binder.expr(&item.expr))?;
        let value = binder.settle(value)?;
        bind::check_comparable(value.ty, "ordering")?;
        let key = SortKey {
            by: collation::of_sort(value.ty, value.collation)?,
            expr: value.expr,
            descending,
            nulls_first: item.options.nulls_first.unwrap_or(descending),
        };
        Ok((key, value.ty))
    }

    pub(super) fn grouping_call(&self, f: &ast::Function) -> Result<Typed> {
        let FunctionArguments::List(list) = &f.args else {
            return Err(Error::unsupported(format!("{f}")));
        };
        self.placed(
            "grouping operations",
            &|clause| {
                let binder = clause.binder();
                let args = clause.plain_args(&list.args)?.into_iter();
                args.map(|e| Ok(binder.expr(e)?.expr))
                    .collect::<Result<Vec<_>>>()
            },
            &|_| SqlType::Int4,
            &|clause, groups, args| {
                let into = clause.scope.file.register();
                groups.grouping.borrow_mut().push((into, args));
                Typed::new(Expr::Column(into), SqlType::Int4)
            },
        )
    }
}

/// The collation of the keys of which an aggregate keeps one, if it does.
pub(super) fn collation_of_keys(function: &Aggregate, args: &[Expr]) -> Option<Collation> {
    match (function, args) {
        (
            Aggregate::Min(SqlType::Bytea) | Aggregate::Max(SqlType::Bytea),
            [Expr::Call(Func::Pure(PureFunc::Collated(Collated::Key(by))), _)],
        ) => Some(*by),
        _ => None,
    }
}

/// The value of an aggregate; the text of a key, if it is one.
pub(super) fn of_keys(value: Expr, by: Option<Collation>) -> Expr {
    match by {
        Some(by) => collation::text_of(value, by),
        None => value,
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
    keys: Vec<Key>,
    sets: Vec<Vec<usize>>,
}

/// A key. Two results that are the same expression are two keys, of which a grouping set may have
/// one and not the other.
struct Key {
    /// As written in other clauses.
    written: Expr,
    grouped: Expr,
    register: Register,
    /// The result that it is.
    output: Option<usize>,
}

impl Keys {
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Whether a register is part of a key.
    pub fn uses(&self, register: Register) -> bool {
        let mut found = false;
        for key in &self.keys {
            key.written
                .visit(&mut |e| found |= *e == Expr::Column(register));
        }
        found
    }

    /// The place of a key among all.
    pub fn place(
        &mut self,
        written: Expr,
        grouped: Expr,
        output: Option<usize>,
        scope: &Scope<'_>,
    ) -> usize {
        let same = |known: &Key| known.output == output && known.written == written;
        match self.keys.iter().position(same) {
            Some(at) => at,
            None => {
                self.keys.push(Key {
                    written,
                    grouped,
                    register: scope.file.register(),
                    output,
                });
                self.keys.len() - 1
            }
        }
    }

    /// The first key that an expression is, in the order of the results.
    fn of(&self, e: &Expr) -> Option<usize> {
        let same = self
            .keys
            .iter()
            .enumerate()
            .filter(|(_, k)| k.written == *e);
        same.min_by_key(|(_, k)| k.output.unwrap_or(usize::MAX))
            .map(|(at, _)| at)
    }

    /// Of sets that have the same keys only the first remains.
    pub fn once_each(&mut self) {
        let sets = std::mem::take(&mut self.sets);
        let sorted = |set: &[usize]| {
            let mut set = set.to_vec();
            set.sort_unstable();
            set.dedup();
            set
        };
        for set in sets {
            if !self.sets.iter().any(|known| sorted(known) == sorted(&set)) {
                self.sets.push(set);
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

    /// Makes expressions over the input ones over groups, and gives the grouping. `outputs`: the
    /// results, of which each may be a key of its own.
    pub fn over_groups<'e>(
        self,
        groups: &Groups,
        scope: &Scope<'_>,
        outputs: impl Iterator<Item = &'e mut Expr>,
        others: impl Iterator<Item = &'e mut Expr>,
    ) -> Result<Grouping> {
        let own = own_registers(scope);
        let mut decided: Vec<(Expr, Register)> = Vec::new();
        let results = outputs.enumerate().map(|(at, e)| {
            if let Some(key) = self.keys.iter().find(|k| k.output == Some(at)) {
                *e = Expr::Column(key.register);
            }
            e
        });
        for e in results.chain(others) {
            self.replace_keys(e);
            self.decide(e, &own, scope, &mut decided)?;
        }
        let mut grouping = Vec::new();
        for (into, args) in groups.grouping.take() {
            let places = args
                .iter()
                .map(|arg| {
                    self.of(arg).ok_or_else(|| {
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
            keys: self
                .keys
                .into_iter()
                .map(|k| (k.grouped, k.register))
                .collect(),
            sets,
            aggregates: groups.aggregates.take(),
            grouping,
            decided,
        })
    }

    /// Whether every grouping set has a column.
    fn is_in_all_sets(&self, column: Register) -> bool {
        let written = Expr::Column(column);
        let has = |set: &Vec<usize>| set.iter().any(|at| self.keys[*at].written == written);
        !self.sets.is_empty() && self.sets.iter().all(has)
    }

    fn replace_keys(&self, e: &mut Expr) {
        e.replace(&mut |e| self.of(e).map(|at| Expr::Column(self.keys[at].register)));
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
            if !own.contains(r) || self.keys.iter().any(|k| k.register == *r) {
                return None;
            }
            let known = decided.iter().find(|(known, _)| known == e);
            if let Some((_, register)) = known {
                return Some(Expr::Column(*register));
            }
            let follows = scope.keys.iter().any(|(key, columns)| {
                columns.contains(r) && key.iter().all(|k| self.is_in_all_sets(*k))
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
        let place = column.map(|c| Place::Column {
            table: c.table.clone(),
            name: c.name.clone(),
        });
        Err(Error::new(
            "42803",
            format!(
                "column \"{name}\" must appear in the GROUP BY clause or be used in an aggregate function"
            ),
        )
        .placed(place))
    }
}
