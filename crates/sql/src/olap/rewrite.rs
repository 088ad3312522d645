//! Turns PostgreSQL's forms into those DataFusion knows, or knows with the same meaning: names of output columns, casts to
//! `oid` and the `reg` types, qualified functions and operators, sums and averages, parameters.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, ArrayElemTypeDef, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, Ident, ObjectName, ObjectNamePart, OrderByKind, Query,
    SelectItem, SetExpr, TableAlias, TableFactor, Value, VisitMut, VisitorMut, WindowType,
};

use super::functions::{QUOTIENT_OF, WIDEN};
use super::structure;
use crate::bind::names;
use crate::error::{Error, Result};
use crate::plan::column_name;
use crate::types::SqlType;
use crate::views::functions::{
    REGCLASS_NAME, REGCLASS_OID, REGNAMESPACE_NAME, REGNAMESPACE_OID, REGTYPE_OID,
};

/// What stands for parameter `$n` (from 1).
pub type Parameter<'p> = dyn Fn(usize) -> Result<Expr> + 'p;

/// Rewrites a query for planning.
pub fn rewrite(query: &mut Query, parameter: &Parameter<'_>) -> Result<()> {
    let mut rewriter = Rewriter {
        parameter,
        failed: None,
    };
    let _ = VisitMut::visit(query, &mut rewriter);
    match rewriter.failed {
        Some(e) => Err(e),
        None => Ok(()),
    }
}

struct Rewriter<'p> {
    parameter: &'p Parameter<'p>,
    failed: Option<Error>,
}

/// Stands for a number that must stay a plain literal: a position in ORDER BY or GROUP BY, a LIMIT.
const PLAIN: &str = "plain:";

impl VisitorMut for Rewriter<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        structure::simplify(query);
        each_select(&mut query.body, &mut |select| {
            name_columns(&mut select.projection);
            if let ast::GroupByExpr::Expressions(keys, _) = &mut select.group_by {
                keys.iter_mut().for_each(protect);
            }
        });
        order_and_limit(query, &mut protect);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        each_select(&mut query.body, &mut |select| {
            if let ast::GroupByExpr::Expressions(keys, _) = &mut select.group_by {
                keys.iter_mut().for_each(unprotect);
            }
        });
        order_and_limit(query, &mut unprotect);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        name_function_column(factor);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<()> {
        if let Expr::BinaryOp {
            left,
            op: BinaryOperator::StringConcat,
            right,
        } = e
            && (structure::is_array(left) || structure::is_array(right))
        {
            let (left, right) = (
                std::mem::replace(&mut **left, null()),
                std::mem::replace(&mut **right, null()),
            );
            *e = call("pg_array_cat", vec![left, right]);
        }
        if let Expr::Function(f) = e
            && let Some(WindowType::WindowSpec(spec)) = &mut f.over
            && let Some(frame) = &mut spec.window_frame
        {
            frame_bound(&mut frame.start_bound, &mut protect);
            if let Some(end) = &mut frame.end_bound {
                frame_bound(end, &mut protect);
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<()> {
        match expression(e, self.parameter) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                self.failed = Some(e);
                ControlFlow::Break(())
            }
        }
    }
}

pub fn each_select(body: &mut SetExpr, f: &mut dyn FnMut(&mut ast::Select)) {
    match body {
        SetExpr::Select(s) => f(s),
        SetExpr::SetOperation { left, right, .. } => {
            each_select(left, f);
            each_select(right, f);
        }
        _ => {}
    }
}

fn order_and_limit(query: &mut Query, f: &mut dyn FnMut(&mut Expr)) {
    if let Some(order) = &mut query.order_by
        && let OrderByKind::Expressions(list) = &mut order.kind
    {
        list.iter_mut().for_each(|o| f(&mut o.expr));
    }
    if let Some(ast::LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
        limit.iter_mut().for_each(&mut *f);
        offset.iter_mut().for_each(|o| f(&mut o.value));
    }
}

fn frame_bound(bound: &mut ast::WindowFrameBound, f: &mut dyn FnMut(&mut Expr)) {
    match bound {
        ast::WindowFrameBound::Preceding(Some(e)) | ast::WindowFrameBound::Following(Some(e)) => {
            f(e)
        }
        _ => {}
    }
}

fn protect(e: &mut Expr) {
    if let Expr::Value(v) = e
        && let Value::Number(n, _) = &v.value
    {
        v.value = Value::Placeholder(format!("{PLAIN}{n}"));
    }
}

fn unprotect(e: &mut Expr) {
    if let Expr::Value(v) = e
        && let Value::Placeholder(p) = &v.value
        && let Some(n) = p.strip_prefix(PLAIN)
    {
        v.value = Value::Number(n.to_string(), false);
    }
}

/// Gives output columns the names PostgreSQL gives them. DataFusion wants names to differ, so a repeated one gets a mark
/// that [`super::arrow::describe`] takes off again.
fn name_columns(items: &mut [SelectItem]) {
    let mut seen: Vec<String> = Vec::new();
    for item in items {
        let (expr, name) = match item {
            SelectItem::UnnamedExpr(e) => (e.clone(), column_name(e)),
            SelectItem::ExprWithAlias { expr, alias } => (expr.clone(), names::ident(alias)),
            _ => continue,
        };
        let plain = matches!(
            &*item,
            SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        );
        let times = seen.iter().filter(|s| **s == name).count();
        seen.push(name.clone());
        if plain && times == 0 {
            continue;
        }
        let marked = if times == 0 {
            name
        } else {
            format!("{name}\u{1}{times}")
        };
        *item = SelectItem::ExprWithAlias {
            expr,
            alias: Ident::with_quote('"', marked),
        };
    }
}

/// `generate_series(..) AS g` has a column `g`.
fn name_function_column(factor: &mut TableFactor) {
    let (name, alias) = match factor {
        TableFactor::Table {
            name,
            alias,
            args: Some(_),
            ..
        }
        | TableFactor::Function { name, alias, .. } => (name, alias),
        _ => return,
    };
    strip_schema(name);
    let function = name.to_string();
    let alias = alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: Ident::new(&function),
        columns: Vec::new(),
        at: None,
    });
    if alias.columns.is_empty() {
        alias.columns.push(ast::TableAliasColumnDef {
            name: alias.name.clone(),
            data_type: None,
        });
    }
}

/// Functions of pg_catalog are named without it.
pub fn strip_schema(name: &mut ObjectName) {
    let is_catalog = matches!(name.0.first(), Some(ObjectNamePart::Identifier(i)) if i.value.eq_ignore_ascii_case("pg_catalog"));
    if is_catalog && name.0.len() == 2 {
        name.0.remove(0);
    }
}

fn expression(e: &mut Expr, parameter: &Parameter<'_>) -> Result<()> {
    match e {
        Expr::Value(v) => match &v.value {
            Value::Number(n, _) if n.parse::<i32>().is_ok() => {
                *e = cast(e.clone(), DataType::Int(None));
            }
            Value::Placeholder(p) if !p.starts_with(PLAIN) => {
                let number = p
                    .strip_prefix('$')
                    .and_then(|n| n.parse::<usize>().ok())
                    .filter(|n| *n > 0);
                *e = parameter(number.ok_or_else(|| {
                    Error::new("42601", format!("syntax error at or near \"{p}\""))
                })?)?;
            }
            _ => {}
        },
        Expr::Collate { expr, .. } => *e = std::mem::replace(expr, null()),
        Expr::BinaryOp { op, .. } => {
            if let BinaryOperator::PGCustomBinaryOperator(path) = op {
                *op = custom_operator(path)?;
            }
        }
        Expr::Cast {
            expr,
            data_type,
            kind: CastKind::Cast | CastKind::DoubleColon,
            ..
        } => {
            let inner = std::mem::replace(&mut **expr, null());
            *e = cast_expression(inner, data_type.clone());
        }
        Expr::Function(f) => {
            strip_schema(&mut f.name);
            if let Some(new) = function(f)? {
                *e = new;
            }
        }
        Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => {}
        _ => {}
    }
    Ok(())
}

pub fn null() -> Expr {
    Expr::Value(Value::Null.into())
}

pub fn string(s: impl Into<String>) -> Expr {
    Expr::Value(Value::SingleQuotedString(s.into()).into())
}

pub fn cast(e: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(e),
        data_type,
        array: false,
        format: None,
    }
}

fn custom_operator(path: &[String]) -> Result<BinaryOperator> {
    Ok(match path.last().map(String::as_str) {
        Some("~") => BinaryOperator::PGRegexMatch,
        Some("~*") => BinaryOperator::PGRegexIMatch,
        Some("!~") => BinaryOperator::PGRegexNotMatch,
        Some("!~*") => BinaryOperator::PGRegexNotIMatch,
        Some("=") => BinaryOperator::Eq,
        Some("<>") => BinaryOperator::NotEq,
        Some("<") => BinaryOperator::Lt,
        Some(">") => BinaryOperator::Gt,
        Some("<=") => BinaryOperator::LtEq,
        Some(">=") => BinaryOperator::GtEq,
        Some("+") => BinaryOperator::Plus,
        Some("-") => BinaryOperator::Minus,
        Some("*") => BinaryOperator::Multiply,
        Some("/") => BinaryOperator::Divide,
        Some("||") => BinaryOperator::StringConcat,
        other => {
            return Err(Error::unsupported(format!(
                "operator {}",
                other.unwrap_or_default()
            )));
        }
    })
}

fn is_string(e: &Expr) -> bool {
    matches!(e, Expr::Value(v) if matches!(v.value, Value::SingleQuotedString(_)))
}

/// The name of a type that is not one of SQL's own.
fn custom_type(t: &DataType) -> Option<String> {
    match t {
        DataType::Custom(name, _) => match name.0.last() {
            Some(ObjectNamePart::Identifier(i)) => Some(i.value.to_lowercase()),
            _ => None,
        },
        DataType::Regclass => Some("regclass".to_string()),
        _ => None,
    }
}

/// A cast, with the types of the catalogs expressed by functions. What was made a `reg` type by an inner cast is known by
/// the function it became: to text it is the name, to oid the number.
fn cast_expression(inner: Expr, to: DataType) -> Expr {
    // The catalog's arrays are lists already.
    if let DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) = &to
        && custom_type(element).is_some()
    {
        return inner;
    }
    let Some(name) = custom_type(&to) else {
        return match (&to, reg_number(&inner)) {
            (DataType::Text | DataType::Varchar(_), Some(number)) => {
                call(REGCLASS_NAME, vec![number])
            }
            (DataType::Int(_) | DataType::BigInt(_), Some(number)) => number,
            (DataType::Char(None) | DataType::Character(None), _) => cast(inner, DataType::Text),
            _ => cast(inner, to),
        };
    };
    match name.as_str() {
        "regclass" if is_string(&inner) => call(REGCLASS_OID, vec![inner]),
        "regclass" => call(REGCLASS_NAME, vec![inner]),
        "regtype" if is_string(&inner) => call(REGTYPE_OID, vec![inner]),
        "regtype" => call("format_type", vec![inner, null()]),
        "regnamespace" if is_string(&inner) => call(REGNAMESPACE_OID, vec![inner]),
        "regnamespace" => call(REGNAMESPACE_NAME, vec![inner]),
        "regproc" | "regprocedure" | "regoper" | "regoperator" | "regrole" => {
            cast(inner, DataType::Text)
        }
        "oid" | "xid" | "cid" => {
            reg_number(&inner).unwrap_or_else(|| cast(inner, DataType::BigInt(None)))
        }
        "text" | "name" | "char" | "bpchar" | "cstring" | "int2vector" | "oidvector"
        | "aclitem" => match reg_number(&inner) {
            Some(number) => call(REGCLASS_NAME, vec![number]),
            None => cast(inner, DataType::Text),
        },
        "int2" => cast(inner, DataType::SmallInt(None)),
        "int4" => cast(inner, DataType::Int(None)),
        "int8" => cast(inner, DataType::BigInt(None)),
        "float4" => cast(inner, DataType::Real),
        "float8" => cast(inner, DataType::DoublePrecision),
        "bool" => cast(inner, DataType::Boolean),
        _ => cast(inner, to),
    }
}

/// The number behind what a cast to regclass became.
fn reg_number(e: &Expr) -> Option<Expr> {
    let Expr::Function(f) = e else { return None };
    match f.name.to_string().as_str() {
        REGCLASS_OID => Some(e.clone()),
        REGCLASS_NAME => match &f.args {
            FunctionArguments::List(list) => match list.args.first() {
                Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(inner))) => Some(inner.clone()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

pub fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args
        .into_iter()
        .map(|a| FunctionArg::Unnamed(FunctionArgExpr::Expr(a)))
        .collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(ast::FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Functions that become others.
fn function(f: &mut Function) -> Result<Option<Expr>> {
    let name = names::Qualified::new(&f.name)?.name;
    match name.as_str() {
        "sum" => {
            widen(f);
            Ok(None)
        }
        "avg" => {
            let mut sum = f.clone();
            sum.name = ObjectName::from(vec![Ident::new("sum")]);
            widen(&mut sum);
            let mut count = f.clone();
            count.name = ObjectName::from(vec![Ident::new("count")]);
            Ok(Some(call(
                QUOTIENT_OF,
                vec![Expr::Function(sum), Expr::Function(count)],
            )))
        }
        "array" => match &f.args {
            FunctionArguments::Subquery(q) => Ok(Some(structure::array_of(q))),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

fn widen(f: &mut Function) {
    if let FunctionArguments::List(list) = &mut f.args
        && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))] = list.args.as_mut_slice()
    {
        *arg = call(WIDEN, vec![std::mem::replace(arg, null())]);
    }
}

/// A value of a type as it is written in SQL for DataFusion.
pub fn typed(text: Option<String>, ty: SqlType) -> Expr {
    let value = text.map_or_else(null, string);
    let to = match ty {
        SqlType::Bool => DataType::Boolean,
        SqlType::Int2 => DataType::SmallInt(None),
        SqlType::Int4 => DataType::Int(None),
        SqlType::Int8 | SqlType::Oid => DataType::BigInt(None),
        SqlType::Float4 => DataType::Real,
        SqlType::Float8 => DataType::DoublePrecision,
        SqlType::Numeric => DataType::Numeric(ast::ExactNumberInfo::PrecisionAndScale(
            38,
            i64::from(super::arrow::FREE_SCALE),
        )),
        SqlType::Bytea => DataType::Bytea,
        SqlType::Date => DataType::Date,
        SqlType::Timestamp => DataType::Timestamp(None, ast::TimezoneInfo::None),
        SqlType::TimestampTz => DataType::Timestamp(None, ast::TimezoneInfo::Tz),
        _ => DataType::Text,
    };
    cast(value, to)
}
