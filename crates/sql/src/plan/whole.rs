//! Aggregates of a whole table, as the vectorized lane computes them if the table is large: what that is given is a query of the groups' keys and of what
//! their aggregates are made of. Whatever is made of those (averages, HAVING, the select list, ORDER BY, LIMIT) stays with the direct lane.
//!
//! **Invariant.** A table's size decides on the time that a statement takes, not on its answer: where values would come out of the other lane with digits or
//! blanks of another number, there is no such query.

use block::value::Datum;
use datafusion::sql::sqlparser::ast::{
    self, GroupByExpr, Ident, ObjectName, Query, Select, SelectItem, SetExpr,
};

use super::aggregate::{AggFunc, Call};
use crate::bind::{Scope, Typed};
use crate::expr::func::PureFunc;
use crate::expr::{ArithOp, Cast, Expr, Func, number};
use crate::types::{SqlType, numeric_typmod};

/// The groups of a query as a query.
#[derive(Clone, Debug)]
pub struct WholeTable {
    /// Gives the keys, and of each aggregate the count, sum, least or greatest value; of an average the sum and the count.
    pub query: Box<Query>,
    /// The types of its columns by which they are those values.
    pub types: Vec<SqlType>,
}

/// How values of an expression are written.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// By the value alone.
    Plain,
    /// A blank-padded string.
    Padded,
    /// A numeric; all values have so many digits after the point.
    Digits(i64),
    /// Numerics with digits of another number each, or what is made of them.
    Own,
}

/// The groups' query, if the other lane gives the same values.
pub fn groups(
    scope: &Scope,
    keys: &[(ast::Expr, Typed)],
    calls: &[Call],
    s: &Select,
    q: &Query,
) -> Option<WholeTable> {
    if s.from.len() != 1 || s.from.iter().any(|f| !f.joins.is_empty()) {
        return None;
    }
    let (mut columns, mut types) = (Vec::new(), Vec::new());
    for (written, key) in keys {
        // It would be the number of a column.
        let is_literal = matches!(written, ast::Expr::Value(_));
        if is_literal || form(&key.expr, scope) == Form::Own {
            return None;
        }
        columns.push(written.clone());
        types.push(key.ty);
    }
    for (written, func, arg, result) in calls {
        let counts = matches!(func, AggFunc::CountRows | AggFunc::Count);
        if !counts && arg.as_ref().is_none_or(|e| form(e, scope) == Form::Own) {
            return None;
        }
        match func {
            AggFunc::Sum(of) | AggFunc::Avg(of) => {
                columns.push(renamed(written, "sum")?);
                types.push(sum_type(*of));
            }
            _ => {
                columns.push(written.clone());
                types.push(result.ty);
            }
        }
        if let AggFunc::Avg(_) = func {
            columns.push(renamed(written, "count")?);
            types.push(SqlType::Int8);
        }
    }
    let mut select = s.clone();
    select.projection = columns.into_iter().map(SelectItem::UnnamedExpr).collect();
    select.having = None;
    let keys = keys.iter().map(|(written, _)| written.clone()).collect();
    select.group_by = GroupByExpr::Expressions(keys, Vec::new());
    let query = Query {
        body: Box::new(SetExpr::Select(Box::new(select))),
        order_by: None,
        limit_clause: None,
        ..q.clone()
    };
    Some(WholeTable {
        query: Box::new(query),
        types,
    })
}

/// In which a sum cannot overflow.
fn sum_type(of: SqlType) -> SqlType {
    match of {
        SqlType::Int2 | SqlType::Int4 => SqlType::Int8,
        SqlType::Int8 => SqlType::Numeric,
        SqlType::Float4 => SqlType::Float8,
        other => other,
    }
}

/// A call of another aggregate with the same argument.
fn renamed(call: &ast::Expr, name: &str) -> Option<ast::Expr> {
    let ast::Expr::Function(f) = call else {
        return None;
    };
    let mut f = f.clone();
    f.name = ObjectName::from(vec![Ident::new(name)]);
    Some(ast::Expr::Function(f))
}

fn form(e: &Expr, scope: &Scope) -> Form {
    let of = |e: &Expr| form(e, scope);
    match e {
        Expr::Column(slot) => match scope.columns.iter().find(|c| c.slot == *slot) {
            Some(c) => form_of_type(c.ty, c.typmod),
            None => Form::Own,
        },
        Expr::Const(Datum::Numeric(n)) => match n.to_bigdecimal() {
            Some(n) => Form::Digits(number::scale(&n)),
            None => Form::Own,
        },
        // It comes to the other lane as text.
        Expr::Param(_) | Expr::Subquery { .. } => Form::Own,
        // Values are compared alike however they are written.
        Expr::Const(_)
        | Expr::Not(_)
        | Expr::And(_)
        | Expr::Or(_)
        | Expr::IsNull { .. }
        | Expr::IsBool { .. }
        | Expr::Compare(..)
        | Expr::Distinct { .. }
        | Expr::Like { .. }
        | Expr::InList { .. } => Form::Plain,
        Expr::Negate(e) => of(e),
        Expr::Arith(op, SqlType::Numeric, l, r) => match (op, of(l), of(r)) {
            (ArithOp::Add | ArithOp::Sub | ArithOp::Mod, Form::Digits(l), Form::Digits(r)) => {
                Form::Digits(l.max(r))
            }
            (ArithOp::Mul, Form::Digits(l), Form::Digits(r)) => Form::Digits(l + r),
            _ => Form::Own,
        },
        Expr::Arith(_, _, l, r) | Expr::Concat(l, r) => made_of([&**l, &**r], scope),
        Expr::Cast(cast, e) => cast_form(cast, of(e)),
        Expr::Case {
            branches,
            otherwise,
        } => {
            let results = branches.iter().map(|(_, result)| result);
            chosen(results.chain(otherwise.as_deref()), scope)
        }
        Expr::Coalesce(list) => chosen(list, scope),
        Expr::NullIf(e, _) => chosen([&**e], scope),
        Expr::Call(func, args) => match (func, args.as_slice()) {
            (Func::Pure(PureFunc::Abs), [e]) => of(e),
            _ if args.iter().any(|e| matches!(of(e), Form::Digits(_))) => Form::Own,
            // The one field of a time that has digits of another number each.
            (Func::Pure(PureFunc::Extract), [Expr::Const(Datum::Text(field)), _])
                if field == "julian" =>
            {
                Form::Own
            }
            _ => made_of(args, scope),
        },
    }
}

fn form_of_type(ty: SqlType, typmod: i32) -> Form {
    match ty {
        SqlType::Numeric if typmod < 4 => Form::Own,
        SqlType::Numeric => Form::Digits(numeric_typmod(typmod).1.into()),
        SqlType::Char => Form::Padded,
        _ => Form::Plain,
    }
}

fn cast_form(cast: &Cast, from: Form) -> Form {
    match (from, cast.to) {
        (Form::Own, _) => Form::Own,
        (_, SqlType::Numeric) if cast.typmod < 0 && cast.from.is_integer() => Form::Digits(0),
        (_, SqlType::Char) if cast.typmod < 0 => Form::Own,
        (_, to) => form_of_type(to, cast.typmod),
    }
}

/// Of something else that is made of these.
fn made_of<'e>(of: impl IntoIterator<Item = &'e Expr>, scope: &Scope) -> Form {
    match of.into_iter().any(|e| form(e, scope) == Form::Own) {
        true => Form::Own,
        false => Form::Plain,
    }
}

/// Of one of several values: numerics must all be of the same form, and of blank-padded strings the other lane drops the padding.
fn chosen<'e>(of: impl IntoIterator<Item = &'e Expr>, scope: &Scope) -> Form {
    let values = of.into_iter().filter(|e| !is_null(e));
    let mut forms = values.map(|e| form(e, scope));
    let first = forms.next().unwrap_or(Form::Plain);
    match first != Form::Padded && forms.all(|f| f == first) {
        true => first,
        false => Form::Own,
    }
}

fn is_null(e: &Expr) -> bool {
    matches!(e, Expr::Const(Datum::Null))
}
