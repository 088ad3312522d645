//! Names that Oracle's SQL knows besides columns: `SYSDATE`, `SYSTIMESTAMP`, `sequence.NEXTVAL` and
//! `.CURRVAL`; its names of types; and `DBMS_RANDOM.VALUE`.
//!
//! **Invariant.** A name means this only where it would mean nothing to PostgreSQL, in which no
//! column, variable, function or type has it. So no statement of PostgreSQL's has another meaning.

use std::ops::ControlFlow;

use sqlparser::ast::{self, VisitMut};

use super::names::{self, Qualified};
use super::{Binder, Typed, parts};
use crate::error::{Error, Result};
use crate::expr::ArithOp;
use crate::expr::cast::CastContext;
use crate::parse;
use crate::types::SqlType;

impl Binder<'_> {
    /// What a name means of which no column was found, with the error that says so.
    pub fn pseudo_column(&self, path: &[ast::Ident], missing: Error) -> Result<Typed> {
        if !matches!(missing.sqlstate(), "42703" | "42P01" | "0A000") {
            return Err(missing);
        }
        match path {
            [name] if name.quote_style.is_none() => match names::ident(name).as_str() {
                // The clock's time at the start of the statement, in whole seconds.
                "sysdate" => self.written("pg_catalog.statement_timestamp()::timestamp(0)"),
                "systimestamp" => self.written("pg_catalog.statement_timestamp()"),
                "rownum" => Err(Error::unsupported(
                    "ROWNUM but in a condition of WHERE, as ROWNUM <= 10",
                )),
                _ => Err(missing),
            },
            [package, function]
                if names::ident(package) == "dbms_random" && names::ident(function) == "value" =>
            {
                let name = Qualified {
                    schema: Some("dbms_random".to_string()),
                    name: "value".to_string(),
                };
                self.dbms_random(&name, &[])?.ok_or(missing)
            }
            [before @ .., last] if !before.is_empty() && last.quote_style.is_none() => {
                let function = match names::ident(last).as_str() {
                    "nextval" => "nextval",
                    "currval" => "currval",
                    _ => return Err(missing),
                };
                let Some(sequence) = self.sequence_named(before) else {
                    return Err(missing);
                };
                let sequence = sequence.replace('\'', "''");
                self.written(&format!("pg_catalog.{function}('{sequence}')"))
            }
            _ => Err(missing),
        }
    }

    fn written(&self, text: &str) -> Result<Typed> {
        self.expr(&parse::expression(text)?)
    }

    /// A sequence, as it is to be named to `nextval`.
    fn sequence_named(&self, path: &[ast::Ident]) -> Option<String> {
        let path: Vec<String> = path.iter().map(names::ident).collect();
        let (schema, name) = match path.as_slice() {
            [name] => (None, name),
            [schema, name] => (Some(schema.clone()), name),
            _ => return None,
        };
        let quoted: Vec<String> = path.iter().map(|part| names::quote(part)).collect();
        let name = Qualified {
            schema,
            name: name.clone(),
        };
        let dict = self.params.sight.dict()?;
        dict.sequence(&name).map(|_| quoted.join("."))
    }

    /// `DBMS_RANDOM.VALUE`, with or without bounds, of which the upper one is never reached.
    pub(super) fn dbms_random(&self, name: &Qualified, args: &[Typed]) -> Result<Option<Typed>> {
        if name.schema.as_deref() != Some("dbms_random") || name.name != "value" {
            return Ok(None);
        }
        let random = self.call("random", Vec::new())?;
        let random = self.to_numeric(random)?;
        match args {
            [] => Ok(Some(random)),
            [low, high] => {
                let (low, high) = (
                    self.to_numeric(low.clone())?,
                    self.to_numeric(high.clone())?,
                );
                let width = self.arith(ArithOp::Sub, high, low.clone())?;
                let above = self.arith(ArithOp::Mul, random, width)?;
                self.arith(ArithOp::Add, low, above).map(Some)
            }
            _ => Err(Error::new(
                "42883",
                "dbms_random.value takes no arguments, or two bounds",
            )),
        }
    }

    fn to_numeric(&self, value: Typed) -> Result<Typed> {
        self.coerce(value, SqlType::Numeric, -1, CastContext::Explicit)
    }

    /// An argument of `lpad` or `rpad` that is a number, which Oracle takes as its text.
    pub(super) fn as_padded(&self, name: &str, args: &mut [Typed]) -> Result<()> {
        if let ("lpad" | "rpad", Some(first)) = (name, args.first_mut())
            && first.ty.is_number()
        {
            *first = self.coerce(first.clone(), SqlType::Text, -1, CastContext::Explicit)?;
        }
        Ok(())
    }

    /// The operands of an operator, as they are written and bound: of a time and a number of days,
    /// which Oracle adds and subtracts, the days are an interval.
    pub(super) fn with_days(
        &self,
        op: &ast::BinaryOperator,
        (left, l): (&ast::Expr, Typed),
        (right, r): (&ast::Expr, Typed),
    ) -> Result<(Typed, Typed)> {
        use ast::BinaryOperator::{Minus, Plus};
        let is_time = |t: &Typed| matches!(t.ty, SqlType::Timestamp | SqlType::TimestampTz);
        match op {
            Plus | Minus if is_time(&l) && r.ty.is_number() => Ok((l, self.as_days(right, r)?)),
            Plus if is_time(&r) && l.ty.is_number() => Ok((self.as_days(left, l)?, r)),
            _ => Ok((l, r)),
        }
    }

    /// A number of days as an interval. Integers in it are divided as Oracle's numbers, so that
    /// `1/24` is an hour, if it is a computation from names and numbers alone. What calls functions
    /// is taken as it is: bound a second time, each within the other, calls would take time
    /// exponential in their depth.
    fn as_days(&self, written: &ast::Expr, bound: Typed) -> Result<Typed> {
        let days = match quotient(written) {
            Some(true) => {
                let mut days = written.clone();
                let _ = days.visit(&mut Quotients);
                self.expr(&days)?
            }
            _ => bound,
        };
        let days = self.coerce(days, SqlType::Float8, -1, CastContext::Explicit)?;
        let day = self.written("'1 day'::interval")?;
        self.arith(ArithOp::Mul, day, days)
    }
}

/// Whether a computation from names and numbers alone divides; `None`: it is something else.
fn quotient(e: &ast::Expr) -> Option<bool> {
    use ast::BinaryOperator::{Divide, Minus, Multiply, Plus};
    match e {
        ast::Expr::Nested(inner) => quotient(inner),
        ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_) | ast::Expr::Value(_) => {
            Some(false)
        }
        ast::Expr::UnaryOp {
            op: ast::UnaryOperator::Minus,
            expr,
        } => quotient(expr),
        ast::Expr::BinaryOp {
            left,
            op: op @ (Plus | Minus | Multiply | Divide),
            right,
        } => {
            let (left, right) = (quotient(left)?, quotient(right)?);
            Some(*op == Divide || left || right)
        }
        _ => None,
    }
}

/// Makes the dividends of an expression numeric.
struct Quotients;

impl ast::VisitorMut for Quotients {
    type Break = ();

    fn post_visit_expr(&mut self, e: &mut ast::Expr) -> ControlFlow<()> {
        if let ast::Expr::BinaryOp {
            left,
            op: ast::BinaryOperator::Divide,
            ..
        } = e
        {
            let dividend = std::mem::replace(left, Box::new(ast::Expr::Tuple(Vec::new())));
            **left = ast::Expr::Cast {
                kind: ast::CastKind::DoubleColon,
                expr: dividend,
                data_type: ast::DataType::Numeric(ast::ExactNumberInfo::None),
                array: false,
                format: None,
            };
        }
        ControlFlow::Continue(())
    }
}

/// A type by one of Oracle's names, which no type of the dictionary has: what it is here.
pub fn type_named(name: &Qualified, modifiers: &[String]) -> Option<Result<(SqlType, i32)>> {
    if name.schema.is_some() {
        return None;
    }
    let numbers = modifiers.join(",");
    // VARCHAR2(10 CHAR) and (10 BYTE): lengths are in characters here.
    let length = numbers.split_whitespace().next().unwrap_or_default();
    let written = match (name.name.as_str(), modifiers) {
        ("number", []) => "numeric".to_string(),
        ("number", _) => format!("numeric({numbers})"),
        ("varchar2" | "nvarchar2", []) => "varchar".to_string(),
        ("varchar2" | "nvarchar2", _) => format!("varchar({length})"),
        ("clob" | "nclob" | "long", []) => "text".to_string(),
        ("blob", []) => "bytea".to_string(),
        ("raw", [_]) => "bytea".to_string(),
        ("sys_refcursor", []) => "refcursor".to_string(),
        ("pls_integer" | "binary_integer" | "simple_integer", []) => "integer".to_string(),
        ("binary_float", []) => "real".to_string(),
        ("binary_double", []) => "double precision".to_string(),
        _ => return None,
    };
    let ty = parse::data_type(&written);
    Some(ty.and_then(|ty| parts::data_type(&ty, &super::TypeNames::default())))
}
