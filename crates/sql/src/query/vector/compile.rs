//! From expressions to expressions over batches ([`super::expr`]): types are settled, constants are
//! computed. What has no form over batches is refused.
//!
//! Of a decimal's type its scale is part, so scales are made equal here wherever two decimals meet.

use block::value::{Datum, DatumRef};

use super::Stop;
use super::batch::{Layout, Type};
use super::condition::Condition;
use super::expr::{Constant, Operation, Value};
use crate::expr::func::PureFunc;
use crate::expr::like::Pieces;
use crate::expr::{ArithOp, Cast, Env, Expr, Func};
use crate::session::Core;
use crate::types::{SqlType, numeric_typmod};

/// Compiles the expressions over one source.
pub struct Compiler<'c> {
    pub core: &'c mut Core,
    /// Of each column of the source, as far as batches have it.
    pub types: Vec<Option<ColumnType>>,
    /// The registers, of which those that the source sets are not read.
    pub registers: &'c [Datum],
    /// Columns that are read so far, in the order of the batch.
    pub columns: Vec<Read>,
    /// Which stage is compiled: from 1 on those of the pipeline, 0 is the scan's filter.
    pub stage: usize,
    /// Places that were read since this was emptied.
    pub touched: Vec<usize>,
}

/// The type of a column of a source.
#[derive(Clone, Copy)]
pub struct ColumnType {
    pub ty: Type,
    /// It is blank-padded: text, once the blanks are off.
    pub padded: bool,
}

/// A column that is read.
pub struct Read {
    pub number: usize,
    pub ty: Type,
    /// The last stage that does.
    pub last_read: usize,
}

impl ColumnType {
    pub fn of(ty: SqlType, typmod: i32) -> Option<ColumnType> {
        match ty {
            SqlType::Char => Some(ColumnType {
                ty: Type::Text,
                padded: true,
            }),
            ty => type_of_column(ty, typmod).map(|ty| ColumnType { ty, padded: false }),
        }
    }
}

fn refused<T>(why: &'static str) -> Result<T, Stop> {
    Err(Stop::Refused(why))
}

/// Whether an expression is the same for all rows, and can be computed once.
fn is_constant(e: &Expr) -> bool {
    let mut constant = !e.is_volatile();
    e.visit(&mut |e| constant &= !matches!(e, Expr::Column(_) | Expr::Subquery { .. }));
    constant
}

fn type_of_column(ty: SqlType, typmod: i32) -> Option<Type> {
    Some(match ty {
        SqlType::Bool => Type::Bool,
        SqlType::Int2 => Type::Int2,
        SqlType::Int4 => Type::Int4,
        SqlType::Int8 => Type::Int8,
        SqlType::Date => Type::Date,
        SqlType::Timestamp => Type::Timestamp,
        SqlType::TimestampTz => Type::TimestampTz,
        SqlType::Float4 => Type::Float4,
        SqlType::Float8 => Type::Float8,
        SqlType::Text | SqlType::Varchar => Type::Text,
        // Without a modifier each value has a scale of its own.
        SqlType::Numeric if typmod >= 4 => {
            Type::Decimal(u16::try_from(numeric_typmod(typmod).1).ok()?)
        }
        _ => return None,
    })
}

impl Compiler<'_> {
    /// A key, or what is only counted: blank-padded columns are taken as they are stored.
    pub fn stored(&mut self, e: &Expr) -> Result<Value, Stop> {
        match e {
            Expr::Column(at) if self.is_padded(e) => Ok(self.text_column(*at)),
            e => self.value(e),
        }
    }

    /// Whether it is a blank-padded column.
    pub fn is_padded(&self, e: &Expr) -> bool {
        let Expr::Column(at) = e else { return false };
        self.types
            .get(*at)
            .is_some_and(|c| c.is_some_and(|c| c.padded))
    }

    /// A column of any string type.
    fn text_column(&mut self, at: usize) -> Value {
        Value::new(Type::Text, Operation::Column(self.place(at, Type::Text)))
    }

    /// The place of a column in the batch.
    fn place(&mut self, number: usize, ty: Type) -> usize {
        let known = self.columns.iter().position(|c| c.number == number);
        let place = known.unwrap_or_else(|| {
            self.columns.push(Read {
                number,
                ty,
                last_read: 0,
            });
            self.columns.len() - 1
        });
        self.touched.push(place);
        let read = &mut self.columns[place];
        read.last_read = read.last_read.max(self.stage);
        place
    }

    /// An expression over the table's columns that has a value of a known type.
    pub fn value(&mut self, e: &Expr) -> Result<Value, Stop> {
        if is_constant(e) {
            return self.constant(e);
        }
        match e {
            Expr::Column(at) => self.column(*at),
            Expr::Arith(op, ty, left, right) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                arithmetic(*op, *ty, left, right)
            }
            Expr::Negate(e) => {
                let value = self.value(e)?;
                let decimal = matches!(value.ty, Type::Decimal(_));
                let float = value.ty.layout() == Layout::Float;
                match decimal || float || value.ty.range().is_some() {
                    true => Ok(Value::new(value.ty, Operation::Negate(Box::new(value)))),
                    false => refused("a negation"),
                }
            }
            Expr::Cast(cast, e) => self.cast(cast, e),
            Expr::Call(Func::Pure(func), args) => self.call(*func, args),
            Expr::Case {
                branches,
                otherwise,
            } => self.case(branches, otherwise.as_deref()),
            Expr::Not(_)
            | Expr::And(_)
            | Expr::Or(_)
            | Expr::IsNull { .. }
            | Expr::IsBool { .. }
            | Expr::Compare(..)
            | Expr::Like { .. }
            | Expr::InList { .. } => {
                let condition = self.condition(e)?;
                Ok(Value::new(
                    Type::Bool,
                    Operation::Truth(Box::new(condition)),
                ))
            }
            _ => refused("an expression"),
        }
    }

    fn call(&mut self, func: PureFunc, args: &[Expr]) -> Result<Value, Stop> {
        match (func, args) {
            (PureFunc::Extract, [Expr::Const(Datum::Text(field)), time]) if field == "year" => {
                let time = self.value(time)?;
                match time.ty {
                    Type::Date => Ok(Value::new(
                        Type::Decimal(0),
                        Operation::Year(Box::new(time)),
                    )),
                    _ => refused("a part of a time"),
                }
            }
            (PureFunc::Substr, [text, from, length]) => {
                let text = self.value(text)?;
                match (text.ty, from, length) {
                    (
                        Type::Text,
                        Expr::Const(Datum::Int4(from @ 1..)),
                        Expr::Const(Datum::Int4(length @ 0..)),
                    ) => Ok(Value::new(
                        Type::Text,
                        Operation::Substring(Box::new(text), *from as usize - 1, *length as usize),
                    )),
                    _ => refused("a part of a string"),
                }
            }
            _ => refused("a function"),
        }
    }

    fn column(&mut self, at: usize) -> Result<Value, Stop> {
        match self.types.get(at).copied().flatten() {
            Some(ColumnType { ty, padded: false }) => {
                Ok(Value::new(ty, Operation::Column(self.place(at, ty))))
            }
            _ => refused("a column's type"),
        }
    }

    fn constant(&mut self, e: &Expr) -> Result<Value, Stop> {
        let env = Env {
            row: &[],
            params: self.registers,
        };
        // An error is the row operators' to give, if they come to the expression at all.
        let Ok(value) = e.eval(&env, self.core) else {
            return refused("a constant without a value");
        };
        constant(value.get())
    }

    fn cast(&mut self, cast: &Cast, e: &Expr) -> Result<Value, Stop> {
        if cast.typmod >= 0 {
            return refused("a conversion to a length");
        }
        if cast.from == SqlType::Char && matches!(cast.to, SqlType::Text | SqlType::Varchar) {
            return self.unpadded(e);
        }
        let value = self.value(e)?;
        let boxed = |ty, operation: fn(Box<Value>) -> Operation, value| {
            Ok(Value::new(ty, operation(Box::new(value))))
        };
        let strings = [SqlType::Text, SqlType::Varchar];
        match (value.ty, cast.to) {
            (Type::Text, to) if strings.contains(&cast.from) && strings.contains(&to) => Ok(value),
            (Type::Int2 | Type::Int4 | Type::Int8, SqlType::Float8) => {
                boxed(Type::Float8, Operation::ToFloat, value)
            }
            (Type::Int2 | Type::Int4 | Type::Int8, SqlType::Numeric) => {
                boxed(Type::Decimal(0), Operation::ToDecimal, value)
            }
            (from, to) if from.range().is_some() => {
                let to = match to {
                    SqlType::Int2 => Type::Int2,
                    SqlType::Int4 => Type::Int4,
                    SqlType::Int8 => Type::Int8,
                    _ => return refused("a conversion"),
                };
                boxed(to, Operation::Narrow, value)
            }
            (Type::Float4, SqlType::Float8) => boxed(Type::Float8, Operation::Widen, value),
            (Type::Float8, SqlType::Float8) | (Type::Decimal(_), SqlType::Numeric) => Ok(value),
            _ => refused("a conversion"),
        }
    }

    /// A blank-padded column as the text that it is compared as.
    fn unpadded(&mut self, e: &Expr) -> Result<Value, Stop> {
        let Expr::Column(at) = e else {
            return refused("a blank-padded expression");
        };
        if !self.is_padded(e) {
            return refused("a blank-padded expression");
        }
        let column = self.text_column(*at);
        Ok(Value::new(Type::Text, Operation::Trim(Box::new(column))))
    }

    fn case(&mut self, branches: &[(Expr, Expr)], otherwise: Option<&Expr>) -> Result<Value, Stop> {
        let mut ty = None;
        let mut same = |value: Option<&Value>| match (value, ty) {
            (None, _) => Ok(()),
            (Some(v), None) => {
                ty = Some(v.ty);
                Ok(())
            }
            (Some(v), Some(ty)) if v.ty == ty && ty != Type::Text => Ok(()),
            _ => refused("CASE of several types"),
        };
        let mut compiled = Vec::new();
        for (condition, result) in branches {
            let value = self.value_or_null(result)?;
            same(value.as_ref())?;
            compiled.push((self.condition(condition)?, value));
        }
        let otherwise = match otherwise {
            Some(e) => self.value_or_null(e)?,
            None => None,
        };
        same(otherwise.as_ref())?;
        match ty {
            Some(ty) if ty != Type::Text => Ok(Value::new(
                ty,
                Operation::Case(compiled, otherwise.map(Box::new)),
            )),
            _ => refused("CASE of this type"),
        }
    }

    /// None: it is NULL, whatever its type.
    fn value_or_null(&mut self, e: &Expr) -> Result<Option<Value>, Stop> {
        if is_constant(e) {
            let env = Env {
                row: &[],
                params: self.registers,
            };
            if e.eval(&env, self.core).is_ok_and(|v| v.is_null()) {
                return Ok(None);
            }
        }
        self.value(e).map(Some)
    }

    /// The parts of a filter that must all hold, in the order in which they are looked at.
    pub fn conjuncts(&mut self, e: &Expr, into: &mut Vec<Condition>) -> Result<(), Stop> {
        match e {
            Expr::And(list) => list.iter().try_for_each(|e| self.conjuncts(e, into)),
            other => {
                into.push(self.condition(other)?);
                Ok(())
            }
        }
    }

    pub fn condition(&mut self, e: &Expr) -> Result<Condition, Stop> {
        let mut all = |list: &[Expr]| {
            let all = list.iter().map(|e| self.condition(e));
            all.collect::<Result<Vec<_>, Stop>>()
        };
        Ok(match e {
            Expr::And(list) => Condition::And(all(list)?),
            Expr::Or(list) => Condition::Or(all(list)?),
            Expr::Not(e) => Condition::Not(Box::new(self.condition(e)?)),
            Expr::IsNull { expr, negated } => match self.value_or_null(expr)? {
                None => Condition::Known(Some(!*negated)),
                Some(value) => Condition::IsNull(value, *negated),
            },
            Expr::IsBool {
                expr,
                value,
                negated,
            } => Condition::Is(Box::new(self.condition(expr)?), *value, *negated),
            Expr::Compare(op, left, right) => {
                let (Some(left), Some(right)) =
                    (self.value_or_null(left)?, self.value_or_null(right)?)
                else {
                    return Ok(Condition::Known(None));
                };
                let (left, right) = comparable(left, right)?;
                Condition::Compare(*op, left, right)
            }
            Expr::InList {
                expr,
                list,
                negated,
                ..
            } => self.member(expr, list, *negated)?,
            Expr::Like {
                expr,
                pattern,
                escape,
                fold_case: false,
                negated,
            } => {
                let value = self.value(expr)?;
                let pieces = match &**pattern {
                    Expr::Const(Datum::Text(pattern)) => Pieces::new(pattern, *escape),
                    _ => None,
                };
                match (value.ty, pieces) {
                    (Type::Text, Some(pieces)) => {
                        Condition::Like(value, pieces.to_owned(), *negated)
                    }
                    _ => return refused("a pattern"),
                }
            }
            Expr::Like { .. } => return refused("a pattern"),
            other => match self.value_or_null(other)? {
                None => Condition::Known(None),
                Some(value) if value.ty == Type::Bool => Condition::Value(value),
                Some(_) => return refused("a condition"),
            },
        })
    }

    fn member(&mut self, expr: &Expr, list: &[Expr], negated: bool) -> Result<Condition, Stop> {
        let Some(value) = self.value_or_null(expr)? else {
            return Ok(Condition::Known(None));
        };
        let mut members = Vec::new();
        let mut null = false;
        for e in list {
            if !is_constant(e) {
                return refused("a list of what is not constant");
            }
            match self.value_or_null(e)? {
                None => null = true,
                Some(member) => match comparable(value.clone(), member)? {
                    (
                        same,
                        Value {
                            operation: Operation::Constant(c),
                            ..
                        },
                    ) if same.ty == value.ty => members.push(c),
                    _ => return refused("a list of other types"),
                },
            }
        }
        Ok(Condition::member(value, members, null, negated))
    }
}

fn constant(value: DatumRef<'_>) -> Result<Value, Stop> {
    let (ty, constant) = match value {
        DatumRef::Bool(v) => (Type::Bool, Constant::Int(v.into())),
        DatumRef::Int2(v) => (Type::Int2, Constant::Int(v.into())),
        DatumRef::Int4(v) => (Type::Int4, Constant::Int(v.into())),
        DatumRef::Int8(v) => (Type::Int8, Constant::Int(v)),
        DatumRef::Date(v) => (Type::Date, Constant::Int(v.into())),
        DatumRef::Timestamp(v) => (Type::Timestamp, Constant::Int(v)),
        DatumRef::TimestampTz(v) => (Type::TimestampTz, Constant::Int(v)),
        DatumRef::Float4(v) => (Type::Float4, Constant::Float(v.into())),
        DatumRef::Float8(v) => (Type::Float8, Constant::Float(v)),
        DatumRef::Numeric(n) => match n.to_i128() {
            Some((v, scale)) => (Type::Decimal(scale), Constant::Decimal(v)),
            None => return refused("a numeric of another form"),
        },
        DatumRef::Text(t) => (Type::Text, Constant::Text(t.as_bytes().into())),
        DatumRef::Null
        | DatumRef::Bytea(_)
        | DatumRef::Uuid(_)
        | DatumRef::Interval(_)
        | DatumRef::Array(_)
        | DatumRef::Composite(_)
        | DatumRef::Folded(_)
        | DatumRef::Json(_) => {
            return refused("a constant of another type");
        }
    };
    Ok(Value::new(ty, Operation::Constant(constant)))
}

/// Gives a decimal a greater scale.
fn rescaled(value: Value, scale: u16) -> Result<Value, Stop> {
    const MOST_DIGITS: u16 = 38;
    let Type::Decimal(from) = value.ty else {
        return refused("a scale of what is no decimal");
    };
    let by = scale - from;
    if by == 0 {
        return Ok(value);
    }
    if by > MOST_DIGITS {
        return refused("a scale too large");
    }
    let power = 10_i128.pow(by.into());
    let operation = match value.operation {
        Operation::Constant(Constant::Decimal(v)) => match v.checked_mul(power) {
            Some(v) => Operation::Constant(Constant::Decimal(v)),
            None => return refused("a numeric too large"),
        },
        operation => {
            let value = Value::new(value.ty, operation);
            Operation::Rescale(Box::new(value), power)
        }
    };
    Ok(Value::new(Type::Decimal(scale), operation))
}

/// Two decimals with the scale of the one that has more digits.
fn of_one_scale(left: Value, right: Value) -> Result<(Value, Value), Stop> {
    match (left.ty, right.ty) {
        (Type::Decimal(l), Type::Decimal(r)) => {
            let scale = l.max(r);
            Ok((rescaled(left, scale)?, rescaled(right, scale)?))
        }
        _ => Ok((left, right)),
    }
}

/// Integers of any width are compared, and other values of one type.
fn comparable(left: Value, right: Value) -> Result<(Value, Value), Stop> {
    let integers = left.ty.range().is_some() && right.ty.range().is_some();
    let decimals = matches!((left.ty, right.ty), (Type::Decimal(_), Type::Decimal(_)));
    match integers || decimals || left.ty == right.ty {
        true => of_one_scale(left, right),
        false => refused("a comparison of different types"),
    }
}

fn arithmetic(op: ArithOp, ty: SqlType, left: Value, right: Value) -> Result<Value, Stop> {
    const MOST_SCALE: u16 = 1000;
    use ArithOp::{Add, Div, Mod, Mul, Sub};
    let result = match (left.ty, right.ty) {
        (Type::Float8, Type::Float8) if matches!(op, Add | Sub | Mul | Div) => Type::Float8,
        (Type::Float4, Type::Float4) if matches!(op, Add | Sub | Mul | Div) => Type::Float4,
        (Type::Decimal(l), Type::Decimal(r)) => match op {
            Add | Sub => Type::Decimal(l.max(r)),
            Mul if l + r <= MOST_SCALE => Type::Decimal(l + r),
            _ => return refused("an operation on numerics"),
        },
        (l, r) if l.range().is_some() && r.range().is_some() => match (ty, op) {
            (_, op) if !matches!(op, Add | Sub | Mul | Div | Mod) => {
                return refused("an operation on integers");
            }
            (SqlType::Int2, _) => Type::Int2,
            (SqlType::Int4, _) => Type::Int4,
            (SqlType::Int8, _) => Type::Int8,
            _ => return refused("an operation on integers"),
        },
        _ => return refused("an operation"),
    };
    let (left, right) = match op {
        Add | Sub => of_one_scale(left, right)?,
        _ => (left, right),
    };
    Ok(Value::new(
        result,
        Operation::Arith(op, Box::new(left), Box::new(right)),
    ))
}
