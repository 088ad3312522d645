//! Calls of functions that Oracle has and PostgreSQL has not.
//!
//! **Invariant.** A name with so many arguments is looked at here only if PostgreSQL has no such
//! function, and only after the functions of users.

use std::ops::ControlFlow;

use block::value::Datum;
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::names::Qualified;
use super::{Binder, Typed};
use crate::error::{Error, Result};
use crate::expr::func::{PureFunc, Signature};
use crate::expr::oracle::OracleFunc;
use crate::expr::{ArithOp, Expr, Func, cast::CastContext};
use crate::pgtype::calendar::MICROS_PER_DAY;
use crate::types::SqlType;

const fn signature(func: OracleFunc, args: &'static [SqlType], result: SqlType) -> Signature {
    Signature {
        func: Func::Pure(PureFunc::Oracle(func)),
        args,
        result,
    }
}

/// The expressions that a plain call is given.
fn given(f: &ast::Function) -> Option<Vec<&ast::Expr>> {
    let FunctionArguments::List(list) = &f.args else {
        return None;
    };
    if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        return None;
    }
    let each = list.args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e),
        _ => None,
    });
    each.collect()
}

impl Binder<'_> {
    /// A call of one of Oracle's functions. `None`: it is none.
    pub(super) fn oracle_call(&self, name: &Qualified, f: &ast::Function) -> Result<Option<Typed>> {
        if name.schema.is_some() {
            return Ok(None);
        }
        let Some(args) = given(f) else {
            return Ok(None);
        };
        let bound = || {
            args.iter()
                .map(|e| self.expr(e))
                .collect::<Result<Vec<Typed>>>()
        };
        let text = |s: &str| Typed::literal(Datum::Text(s.to_string()), SqlType::Text);
        let found = match (name.name.as_str(), args.as_slice()) {
            ("nvl", [_, _]) => self.call("coalesce", bound()?)?,
            ("nvl2", [value, other, null]) => self.expr(&nvl2(value, other, null))?,
            ("decode", [value, _, _, ..]) => {
                self.check_decoded(value)?;
                self.expr(&decode(value, &args[1..]))?
            }
            ("lnnvl", [condition]) => {
                let condition = Box::new(ast::Expr::Nested(Box::new((*condition).clone())));
                self.expr(&ast::Expr::IsNotTrue(condition))?
            }
            ("bitand", [a, b]) => self.expr(&bit_and(a, b))?,
            ("lengthb", [_]) => self.call("octet_length", bound()?)?,
            ("replace", [_, _]) => {
                let mut args = bound()?;
                args.push(text(""));
                self.call("replace", args)?
            }
            ("to_number", [value]) => self.explicit(self.expr(value)?, SqlType::Numeric)?,
            ("to_char", [value]) => self.explicit(self.expr(value)?, SqlType::Text)?,
            ("instr", [_, _] | [_, _, _] | [_, _, _, _]) => self.instr(bound()?)?,
            ("trunc", [_] | [_, _]) => self.trunc(bound()?)?,
            ("add_months", [time, months]) => {
                let months = self.whole(self.expr(months)?)?;
                self.of_time(OracleFunc::AddMonths, self.expr(time)?, Some(months))?
            }
            ("last_day", [time]) => self.of_time(OracleFunc::LastDay, self.expr(time)?, None)?,
            ("months_between", [later, earlier]) => {
                self.months_between(self.expr(later)?, self.expr(earlier)?)?
            }
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    /// Refuses what DECODE cannot look at in each of its branches.
    fn check_decoded(&self, value: &ast::Expr) -> Result<()> {
        // One DECODE in each branch of another would grow without bounds.
        let nested = ast::visit_expressions(value, |e| match e {
            ast::Expr::Function(f) if is_decode(f) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        if nested.is_break() {
            return Err(Error::unsupported("DECODE of what another DECODE gives"));
        }
        let value = self.expr(value)?.expr;
        let mut subquery = false;
        value.visit(&mut |e| subquery |= matches!(e, Expr::Subquery { .. }));
        if subquery {
            return Err(Error::unsupported("DECODE of a subquery"));
        }
        match value.is_volatile() {
            true => Err(Error::unsupported("DECODE of a volatile value")),
            false => Ok(()),
        }
    }

    fn explicit(&self, value: Typed, ty: SqlType) -> Result<Typed> {
        self.coerce(value, ty, -1, CastContext::Explicit)
    }

    /// A number as an integer, without its fraction.
    fn whole(&self, value: Typed) -> Result<Typed> {
        let value = match value.ty.is_number() && value.ty != SqlType::Int4 {
            true => self.call("trunc", vec![self.explicit(value, SqlType::Numeric)?])?,
            false => value,
        };
        self.explicit(value, SqlType::Int4)
    }

    fn instr(&self, args: Vec<Typed>) -> Result<Typed> {
        const ARGS: &[SqlType] = &[SqlType::Text, SqlType::Text, SqlType::Int4, SqlType::Int4];
        let of = |count: usize| signature(OracleFunc::Instr, &ARGS[..count], SqlType::Int4);
        let each = args.into_iter().enumerate();
        let each = each.map(|(at, arg)| match at {
            0 | 1 => Ok(arg),
            _ => self.whole(arg),
        });
        let args = each.collect::<Result<Vec<_>>>()?;
        self.call_one_of("instr", &[of(args.len())], args)
    }

    /// A time as one without a zone: dates stay what they are if the function takes them.
    fn without_zone(&self, time: Typed) -> Result<Typed> {
        match time.ty {
            SqlType::TimestampTz => self.explicit(time, SqlType::Timestamp),
            _ => Ok(time),
        }
    }

    fn of_time(&self, func: OracleFunc, time: Typed, months: Option<Typed>) -> Result<Typed> {
        use SqlType::{Date, Int4, Timestamp};
        let (name, signatures) = match func {
            OracleFunc::AddMonths => (
                "add_months",
                [
                    signature(func, &[Date, Int4], Date),
                    signature(func, &[Timestamp, Int4], Timestamp),
                ],
            ),
            _ => (
                "last_day",
                [
                    signature(func, &[Date], Date),
                    signature(func, &[Timestamp], Timestamp),
                ],
            ),
        };
        let args = [self.without_zone(time)?].into_iter().chain(months);
        self.call_one_of(name, &signatures, args.collect())
    }

    fn months_between(&self, later: Typed, earlier: Typed) -> Result<Typed> {
        const TIMES: &[SqlType] = &[SqlType::Timestamp, SqlType::Timestamp];
        let parts = signature(OracleFunc::MonthsBetween, TIMES, SqlType::Int8);
        let args = vec![self.without_zone(later)?, self.without_zone(earlier)?];
        let parts = self.call_one_of("months_between", &[parts], args)?;
        let parts = self.explicit(parts, SqlType::Numeric)?;
        let month = Typed::new(Expr::Const(Datum::Int8(31 * MICROS_PER_DAY)), SqlType::Int8);
        let month = self.explicit(month, SqlType::Numeric)?;
        let months = self.arith(ArithOp::Div, parts, month)?;
        self.call("trim_scale", vec![months])
    }

    /// `trunc` of a time, to its day or to what the second argument says; of a number it is
    /// PostgreSQL's.
    fn trunc(&self, mut args: Vec<Typed>) -> Result<Typed> {
        let ty = args[0].ty;
        if !matches!(
            ty,
            SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz
        ) {
            return self.call("trunc", args);
        }
        let unit = match args.get(1).map(|a| &a.expr) {
            None => "day",
            Some(Expr::Const(Datum::Text(format))) => unit(format)?,
            Some(_) => {
                return Err(Error::unsupported(
                    "TRUNC of a time with a format that is no literal",
                ));
            }
        };
        args.truncate(1);
        let time = match (args.pop(), ty) {
            (Some(time), SqlType::Date) => self.explicit(time, SqlType::Timestamp)?,
            (Some(time), _) => time,
            (None, _) => return Err(Error::internal("TRUNC of nothing")),
        };
        let unit = Typed::literal(Datum::Text(unit.to_string()), SqlType::Text);
        let cut = self.call("date_trunc", vec![unit, time])?;
        match ty {
            SqlType::Date => self.explicit(cut, ty),
            _ => Ok(cut),
        }
    }
}

/// What a format of TRUNC stands for in `date_trunc`.
fn unit(format: &str) -> Result<&'static str> {
    Ok(match format.to_uppercase().as_str() {
        "CC" | "SCC" => "century",
        "SYYYY" | "YYYY" | "YEAR" | "SYEAR" | "YYY" | "YY" | "Y" => "year",
        "Q" => "quarter",
        "MONTH" | "MON" | "MM" | "RM" => "month",
        "IW" => "week",
        "DDD" | "DD" | "J" => "day",
        "HH" | "HH12" | "HH24" => "hour",
        "MI" => "minute",
        _ => {
            let message = format!("TRUNC of a time to \"{format}\"");
            return Err(Error::unsupported(message));
        }
    })
}

fn nvl2(value: &ast::Expr, other: &ast::Expr, null: &ast::Expr) -> ast::Expr {
    let value = Box::new(ast::Expr::Nested(Box::new(value.clone())));
    case(
        vec![(ast::Expr::IsNotNull(value), other.clone())],
        Some(null.clone()),
    )
}

/// Whether a call is one of Oracle's DECODE; PostgreSQL's has two arguments.
fn is_decode(f: &ast::Function) -> bool {
    let name = Qualified::new(&f.name);
    let is_one = name.is_ok_and(|name| name.schema.is_none() && name.name == "decode");
    is_one && given(f).is_some_and(|args| args.len() > 2)
}

/// `decode(value, search, result, .., default)` as a CASE, in which NULL is NULL. The value stands
/// in each branch.
fn decode(value: &ast::Expr, rest: &[&ast::Expr]) -> ast::Expr {
    let nested = |e: &ast::Expr| Box::new(ast::Expr::Nested(Box::new(e.clone())));
    let (mut branches, mut otherwise) = (Vec::new(), None);
    for pair in rest.chunks(2) {
        match pair {
            [search, result] => {
                let same = ast::Expr::IsNotDistinctFrom(nested(value), nested(search));
                branches.push((same, (*result).clone()));
            }
            [default] => otherwise = Some((*default).clone()),
            _ => {}
        }
    }
    case(branches, otherwise)
}

fn case(branches: Vec<(ast::Expr, ast::Expr)>, otherwise: Option<ast::Expr>) -> ast::Expr {
    let token = sqlparser::ast::helpers::attached_token::AttachedToken::empty;
    let branch = |(condition, result)| ast::CaseWhen { condition, result };
    ast::Expr::Case {
        case_token: token(),
        end_token: token(),
        operand: None,
        conditions: branches.into_iter().map(branch).collect(),
        else_result: otherwise.map(Box::new),
    }
}

fn bit_and(a: &ast::Expr, b: &ast::Expr) -> ast::Expr {
    let integer = |e: &ast::Expr| ast::Expr::Cast {
        kind: ast::CastKind::DoubleColon,
        expr: Box::new(ast::Expr::Nested(Box::new(e.clone()))),
        data_type: ast::DataType::BigInt(None),
        array: false,
        format: None,
    };
    ast::Expr::Nested(Box::new(ast::Expr::BinaryOp {
        left: Box::new(integer(a)),
        op: ast::BinaryOperator::BitwiseAnd,
        right: Box::new(integer(b)),
    }))
}
