//! Expressions of indexes as PostgreSQL writes them out: with all their parentheses, and the types
//! of strings.
//!
//! What it has no form for stays as it was written.

use sqlparser::ast::{self, BinaryOperator, DataType, Expr, UnaryOperator, Value};

use crate::bind::names::{self, quote};
use crate::bind::numbered::{self, Shown};
use crate::bind::numbered_operator;
use crate::bind::{TypeNames, is_written_row, parts};
use crate::dict::{Check, Index, Table};
use crate::error::Result;
use crate::parse;
use crate::parse::variadic::VARIADIC;
use crate::pgtype::{self, IoSettings};
use crate::types::SqlType;

/// A column of an index's key that is an expression: what is no call has parentheses around it.
pub fn key(how: Shown<'_>, table: &Table, text: &str, pretty: bool) -> String {
    let Ok(e) = parsed(how, text) else {
        return format!("({text})");
    };
    let written = Writer::of(how, table, pretty).top(&e);
    match e {
        Expr::Function(_) => written,
        _ => format!("({written})"),
    }
}

/// The expression of a generated column.
pub fn generation(how: Shown<'_>, table: &Table, text: &str) -> String {
    match parsed(how, text) {
        Ok(e) => Writer::of(how, table, false).expr(&e),
        Err(_) => format!("({text})"),
    }
}

/// All expressions of an index, as `pg_get_expr` gives them.
pub fn expressions(how: Shown<'_>, table: &Table, index: &Index) -> Option<String> {
    let written = |e: &crate::dict::IndexExpression| condition(how, table, &e.text, false);
    let all: Vec<String> = index.expressions.iter().map(written).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// The condition of a partial index.
pub fn predicate(how: Shown<'_>, table: &Table, index: &Index, pretty: bool) -> Option<String> {
    let text = index.predicate.as_ref();
    text.map(|text| condition(how, table, text, pretty))
}

/// The definition of a check.
pub fn check(how: Shown<'_>, table: &Table, check: &Check, pretty: bool) -> String {
    let not_valid = if check.unvalidated { " NOT VALID" } else { "" };
    format!(
        "CHECK ({}){not_valid}",
        condition(how, table, &check.text, pretty)
    )
}

/// An expression over the columns of a table.
pub fn of_table(how: Shown<'_>, table: &Table, e: &Expr) -> String {
    Writer::of(how, table, false).top(e)
}

/// A stored expression with the names of now.
fn parsed(how: Shown<'_>, text: &str) -> Result<Expr> {
    let mut e = parse::expression(text)?;
    numbered::show(&mut e, how);
    Ok(e)
}

fn condition(how: Shown<'_>, table: &Table, text: &str, pretty: bool) -> String {
    match parsed(how, text) {
        Ok(e) => Writer::of(how, table, pretty).top(&e),
        Err(_) => text.to_string(),
    }
}

/// The condition of a domain, in which its value is `VALUE`.
pub fn condition_of_value(how: Shown<'_>, base: SqlType, text: &str, pretty: bool) -> String {
    let writer = Writer {
        how,
        of: Of::Value(base),
        pretty,
    };
    match parsed(how, text) {
        Ok(e) => writer.top(&e),
        Err(_) => text.to_string(),
    }
}

/// The condition of a trigger, over rows of its table.
pub fn condition_of_rows(how: Shown<'_>, table: &Table, text: &str, pretty: bool) -> String {
    let writer = Writer {
        how,
        of: Of::Rows(table),
        pretty,
    };
    match parsed(how, text) {
        Ok(e) => writer.top(&e),
        Err(_) => text.to_string(),
    }
}

/// The default of a type.
pub fn default(how: Shown<'_>, text: &str, ty: SqlType) -> String {
    let writer = Writer {
        how,
        of: Of::Value(ty),
        pretty: false,
    };
    match parsed(how, text) {
        Ok(e) => writer.as_type(&e, ty),
        Err(_) => text.to_string(),
    }
}

/// What names in an expression are.
#[derive(Clone, Copy)]
enum Of<'t> {
    Columns(&'t Table),
    /// Columns of the rows `new` and `old` of a table.
    Rows(&'t Table),
    /// The value of a domain over that type.
    Value(SqlType),
}

struct Writer<'t> {
    how: Shown<'t>,
    of: Of<'t>,
    /// Without the parentheses that precedence makes needless around a whole expression, and the
    /// parts of AND, OR and NOT.
    pretty: bool,
}

/// The type of what stands behind an operator that looks up keys of a document.
fn key_type(op: &BinaryOperator) -> Option<SqlType> {
    match numbered_operator::symbol_of(op).as_str() {
        "->" | "->>" | "?" => Some(SqlType::Text),
        "#>" | "#>>" | "#-" | "?&" | "?|" => Some(SqlType::TEXTS),
        _ => None,
    }
}

impl<'t> Writer<'t> {
    fn of(how: Shown<'t>, table: &'t Table, pretty: bool) -> Writer<'t> {
        Writer {
            how,
            of: Of::Columns(table),
            pretty,
        }
    }

    /// A whole expression, or a part of AND, OR and NOT that needs no parentheses there.
    fn top(&self, e: &Expr) -> String {
        let written = self.expr(e);
        match self.pretty && has_parentheses(e) {
            true => written[1..written.len() - 1].to_string(),
            false => written,
        }
    }

    fn expr(&self, e: &Expr) -> String {
        match e {
            Expr::Identifier(name) if names::is_bare_function(name) => {
                names::ident(name).to_uppercase()
            }
            Expr::Identifier(name) => match self.of {
                Of::Columns(_) | Of::Rows(_) => quote(&names::ident(name)),
                Of::Value(_) => names::ident(name).to_uppercase(),
            },
            Expr::CompoundIdentifier(path) if matches!(self.of, Of::Rows(_)) => {
                let path: Vec<String> = path.iter().map(|n| quote(&names::ident(n))).collect();
                path.join(".")
            }
            Expr::CompoundIdentifier(path) => path
                .last()
                .map_or(String::new(), |n| quote(&names::ident(n))),
            Expr::Nested(e) => self.expr(e),
            Expr::Value(v) => self.value(&v.value, SqlType::Text),
            Expr::BinaryOp { left, op, right } => self.binary(left, op, right),
            Expr::UnaryOp { op, expr } => self.unary(op, expr),
            Expr::IsNull(e) => format!("({} IS NULL)", self.expr(e)),
            Expr::IsNotNull(e) => format!("({} IS NOT NULL)", self.expr(e)),
            Expr::IsTrue(e) => format!("({} IS TRUE)", self.expr(e)),
            Expr::IsNotTrue(e) => format!("({} IS NOT TRUE)", self.expr(e)),
            Expr::IsFalse(e) => format!("({} IS FALSE)", self.expr(e)),
            Expr::IsNotFalse(e) => format!("({} IS NOT FALSE)", self.expr(e)),
            Expr::Between {
                expr,
                negated: false,
                low,
                high,
            } => {
                let low = self.binary(expr, &BinaryOperator::GtEq, low);
                let high = self.binary(expr, &BinaryOperator::LtEq, high);
                let bare = |s: String| match self.pretty {
                    true => s[1..s.len() - 1].to_string(),
                    false => s,
                };
                format!("({} AND {})", bare(low), bare(high))
            }
            Expr::IsDistinctFrom(l, r) => {
                let (l, r) = self.operands(l, r);
                format!("({l} IS DISTINCT FROM {r})")
            }
            Expr::IsNotDistinctFrom(l, r) => {
                let (l, r) = self.operands(l, r);
                format!("(NOT ({l} IS DISTINCT FROM {r}))")
            }
            Expr::InList {
                expr,
                list,
                negated,
            } => self.in_list(expr, list, *negated),
            Expr::Like {
                negated,
                expr,
                pattern,
                escape_char: None,
                ..
            } => {
                let op = if *negated { "!~~" } else { "~~" };
                let (l, r) = self.operands(expr, pattern);
                format!("({l} {op} {r})")
            }
            Expr::Function(f) => self.call(f).unwrap_or_else(|| e.to_string()),
            Expr::Cast {
                expr, data_type, ..
            } => self.written_cast(expr, data_type),
            Expr::TypedString(typed) => {
                let value = Expr::Value(typed.value.clone());
                self.written_cast(&value, &typed.data_type)
            }
            Expr::Interval(i)
                if let Expr::Value(v) = &*i.value
                    && let Value::SingleQuotedString(s) = &v.value
                    && i.leading_field.is_none() =>
            {
                literal(s, SqlType::Interval, "interval")
            }
            Expr::Extract { field, expr, .. } => {
                let field = field.to_string().to_lowercase();
                format!("EXTRACT({field} FROM {})", self.expr(expr))
            }
            Expr::AtTimeZone {
                timestamp,
                time_zone,
            } => {
                let (time, zone) = (self.expr(timestamp), self.as_type(time_zone, SqlType::Text));
                format!("({time} AT TIME ZONE {zone})")
            }
            Expr::Array(list) => {
                let items: Vec<String> = list.elem.iter().map(|e| self.expr(e)).collect();
                format!("ARRAY[{}]", items.join(", "))
            }
            other => other.to_string(),
        }
    }

    fn value(&self, v: &Value, ty: SqlType) -> String {
        match v {
            Value::SingleQuotedString(s) => self.string(s, ty),
            Value::EscapedStringLiteral(s) if !s.contains('\\') => self.string(s, ty),
            Value::SingleQuotedByteStringLiteral(s) => format!("'{s}'::\"bit\""),
            Value::Boolean(b) => b.to_string(),
            Value::Null => match self.type_name(ty) {
                Some(name) => format!("NULL::{name}"),
                None => "NULL".to_string(),
            },
            Value::Number(n, _) => match ty {
                SqlType::Numeric if n.parse::<i64>().is_ok() => match self.pretty {
                    true => format!("{n}::numeric"),
                    false => format!("({n})::numeric"),
                },
                SqlType::Float4 | SqlType::Float8 => match self.pretty {
                    true => format!("{n}::double precision"),
                    false => format!("({n})::double precision"),
                },
                _ => n.to_string(),
            },
            other => other.to_string(),
        }
    }

    fn unary(&self, op: &UnaryOperator, e: &Expr) -> String {
        match (op, e) {
            (UnaryOperator::Not, e) if is_junction(e) => format!("(NOT {})", self.expr(e)),
            (UnaryOperator::Not, e) => format!("(NOT {})", self.top(e)),
            (UnaryOperator::Minus, Expr::Value(v)) => match &v.value {
                Value::Number(n, _) if n.parse::<i32>().is_ok() => format!("'-{n}'::integer"),
                Value::Number(n, _) => format!("'-{n}'::numeric"),
                other => format!("(- {other})"),
            },
            (op, e) => format!("({op} {})", self.expr(e)),
        }
    }

    fn binary(&self, left: &Expr, op: &BinaryOperator, right: &Expr) -> String {
        if matches!(op, BinaryOperator::And | BinaryOperator::Or) {
            let mut parts = Vec::new();
            self.flatten(left, op, &mut parts);
            self.flatten(right, op, &mut parts);
            return format!("({})", parts.join(&format!(" {op} ")));
        }
        let (l, r) = match key_type(op) {
            Some(ty) => (self.expr(left), self.as_type(right, ty)),
            None => self.operands(left, right),
        };
        format!("({l} {op} {r})")
    }

    /// The operands of a chain of ANDs or ORs.
    fn flatten(&self, e: &Expr, of: &BinaryOperator, parts: &mut Vec<String>) {
        match e {
            Expr::Nested(e) => self.flatten(e, of, parts),
            Expr::BinaryOp { left, op, right } if op == of => {
                self.flatten(left, of, parts);
                self.flatten(right, of, parts);
            }
            // Within an AND an OR keeps them.
            other @ Expr::BinaryOp {
                op: BinaryOperator::Or,
                ..
            } => parts.push(self.expr(other)),
            other => parts.push(self.top(other)),
        }
    }

    /// Two operands, of which a string takes the type of the other.
    fn operands(&self, left: &Expr, right: &Expr) -> (String, String) {
        let ty = self.type_of(left).or(self.type_of(right));
        let ty = match ty {
            None | Some(SqlType::Varchar) => SqlType::Text,
            Some(ty) => ty,
        };
        (self.as_type(left, ty), self.as_type(right, ty))
    }

    fn as_type(&self, e: &Expr, ty: SqlType) -> String {
        match e {
            Expr::Value(v) => self.value(&v.value, ty),
            Expr::Nested(e) => self.as_type(e, ty),
            e if self.type_of(e) == Some(SqlType::Varchar) => self.cast(e, "text"),
            e => self.expr(e),
        }
    }

    fn string(&self, s: &str, ty: SqlType) -> String {
        match self.type_name(ty) {
            Some(name) => literal(s, ty, &name),
            None => format!("'{}'", s.replace('\'', "''")),
        }
    }

    /// A type's name; `None`: one of a user, of which the schema is not known here.
    fn type_name(&self, ty: SqlType) -> Option<String> {
        match SqlType::from_oid(ty.oid()) {
            Some(_) => Some(ty.format(-1)),
            None => self.how.dict()?.user_type_name(ty.oid()),
        }
    }

    /// A cast as it was written.
    fn written_cast(&self, e: &Expr, to: &DataType) -> String {
        let types = self
            .how
            .dict()
            .map_or_else(TypeNames::default, TypeNames::of);
        let Ok((ty, typmod)) = parts::data_type(to, &types) else {
            return self.cast(e, &to.to_string());
        };
        let name = match SqlType::from_oid(ty.oid()) {
            Some(_) => ty.format(typmod),
            None => to.to_string(),
        };
        match (e, ty) {
            // A string is a value of the type at once.
            (Expr::Value(v), ty)
                if let Value::SingleQuotedString(s) = &v.value
                    && typmod == -1
                    && !ty.is_domain() =>
            {
                literal(s, ty, &name)
            }
            (Expr::Array(list), SqlType::Array(element)) if !list.elem.is_empty() => {
                let element = element.ty();
                let items = list.elem.iter().map(|e| self.as_type(e, element));
                format!("ARRAY[{}]", items.collect::<Vec<_>>().join(", "))
            }
            _ => self.cast(e, &name),
        }
    }

    fn cast(&self, e: &Expr, ty: &str) -> String {
        let written = self.expr(e);
        if is_written_row(e) {
            return format!("{written}::{ty}");
        }
        match self.pretty && (has_parentheses(e) || self.type_of(e).is_some()) {
            true => format!("{written}::{ty}"),
            false => format!("({written})::{ty}"),
        }
    }

    /// The type of a column.
    fn type_of(&self, e: &Expr) -> Option<SqlType> {
        let name = match e {
            Expr::Identifier(name) => name,
            Expr::CompoundIdentifier(path) => path.last()?,
            Expr::Nested(e) => return self.type_of(e),
            _ => return None,
        };
        match self.of {
            Of::Columns(table) | Of::Rows(table) => {
                let at = table.column(&names::ident(name))?;
                Some(table.columns[at].ty())
            }
            Of::Value(base) => Some(base),
        }
    }

    fn in_list(&self, e: &Expr, list: &[Expr], negated: bool) -> String {
        let ty = match self.type_of(e) {
            None | Some(SqlType::Varchar) => SqlType::Text,
            Some(ty) => ty,
        };
        let items: Vec<String> = list.iter().map(|e| self.as_type(e, ty)).collect();
        let op = if negated { "<> ALL" } else { "= ANY" };
        format!(
            "({} {op} (ARRAY[{}]))",
            self.as_type(e, ty),
            items.join(", ")
        )
    }

    /// `None`: there is more to the call than arguments.
    fn call(&self, f: &ast::Function) -> Option<String> {
        let names::Qualified { schema, name } = names::Qualified::new(&f.name).ok()?;
        if let ast::FunctionArguments::None = f.args {
            return Some(name.to_uppercase());
        }
        let ast::FunctionArguments::List(list) = &f.args else {
            return None;
        };
        if !list.clauses.is_empty() || f.filter.is_some() || list.duplicate_treatment.is_some() {
            return None;
        }
        let argument = |a: &ast::FunctionArg| match a {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e)) => {
                Some(self.as_type(e, SqlType::Text))
            }
            ast::FunctionArg::Named {
                name,
                arg: ast::FunctionArgExpr::Expr(e),
                ..
            } => {
                let e = self.as_type(e, SqlType::Text);
                Some(match name.value == VARIADIC {
                    true => format!("VARIADIC {e}"),
                    false => format!("{} => {e}", quote(&names::ident(name))),
                })
            }
            _ => None,
        };
        let args = list.args.iter().map(argument).collect::<Option<Vec<_>>>()?;
        let args = args.join(", ");
        let is_plain = f.name.0.iter().all(|part| {
            let name = part.as_ident();
            name.is_some_and(|name| name.quote_style.is_none())
        });
        Some(match (schema.as_deref(), name.as_str()) {
            (
                None,
                "coalesce" | "greatest" | "least" | "nullif" | "current_timestamp" | "current_time"
                | "localtime" | "localtimestamp",
            ) => {
                format!("{}({args})", name.to_uppercase())
            }
            (None, "row") if is_plain => format!("ROW({args})"),
            (None | Some("pg_catalog"), _) => format!("{}({args})", quote(&name)),
            (Some(schema), _) => format!("{}.{}({args})", quote(schema), quote(&name)),
        })
    }
}

/// A string that is a value of a type, as PostgreSQL writes the value.
fn literal(s: &str, ty: SqlType, name: &str) -> String {
    let text = canonical(s, ty);
    let s = text.as_deref().unwrap_or(s);
    match ty {
        SqlType::Int4 if s.parse::<i32>().is_ok_and(|n| n >= 0) => s.to_string(),
        SqlType::Numeric if s.starts_with(|c: char| c.is_ascii_digit()) => s.to_string(),
        SqlType::Bool if s == "t" => "true".to_string(),
        SqlType::Bool if s == "f" => "false".to_string(),
        SqlType::Char => format!("'{}'::bpchar", s.replace('\'', "''")),
        _ => format!("'{}'::{name}", s.replace('\'', "''")),
    }
}

/// A value's text as it is written out. `None`: it is another one at another time or in another
/// session.
fn canonical(s: &str, ty: SqlType) -> Option<String> {
    const MOVING: [&str; 4] = ["now", "today", "tomorrow", "yesterday"];
    let moves = MOVING.contains(&s.trim().to_lowercase().as_str());
    let depends = |ty: SqlType| matches!(ty, SqlType::TimestampTz | SqlType::Reg(_));
    let of_user = SqlType::from_oid(ty.oid()).is_none() && !matches!(ty, SqlType::Own(_));
    if moves || depends(ty.element().unwrap_or(ty)) || of_user {
        return None;
    }
    let io = IoSettings::default();
    let value = pgtype::text_in(ty, s, &io).ok()?;
    let mut out = Vec::new();
    pgtype::text_out(ty, value.borrow(), &io, &mut out);
    String::from_utf8(out).ok()
}

/// Whether an expression is written with parentheses around it.
fn has_parentheses(e: &Expr) -> bool {
    match e {
        Expr::Nested(e) => has_parentheses(e),
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => !matches!(**expr, Expr::Value(_)),
        Expr::BinaryOp { .. }
        | Expr::UnaryOp { .. }
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsNotTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::IsDistinctFrom(..)
        | Expr::IsNotDistinctFrom(..)
        | Expr::InList { .. } => true,
        Expr::Between { negated, .. } => !negated,
        Expr::Like { escape_char, .. } => escape_char.is_none(),
        _ => false,
    }
}

/// AND, OR, or what is written with one.
fn is_junction(e: &Expr) -> bool {
    match e {
        Expr::Nested(e) => is_junction(e),
        Expr::BinaryOp { op, .. } => matches!(op, BinaryOperator::And | BinaryOperator::Or),
        Expr::Between { negated, .. } => !negated,
        _ => false,
    }
}
