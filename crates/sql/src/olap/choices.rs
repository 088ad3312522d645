//! CASE, COALESCE, NULLIF and lists after IN whose values have several types. While a query is planned they are functions, whose result has the type that
//! PostgreSQL gives it, so that what is compared or computed with it finds that type; afterwards each becomes DataFusion's own form, its operands converted.
//! DataFusion alone would make decimals of floats beside numerics, texts of all that meets a text, and forget that a string is blank-padded.
//!
//! **Invariant.** The data type of the function's field is that of what takes its place.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result as DfResult;
use datafusion::functions::core;
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, cast,
};

use super::arrow::{self, FREE_SCALE, MAX_PRECISION};
use super::bound::{self, Op};
use super::operators::{Operators, literal};
use crate::bind::{chosen_type, common_type, null_if_type};
use crate::error::{Error, Result};
use crate::pgtype::IoSettings;
use crate::types::SqlType;

/// Conditions and results in turn, and then what else there is.
pub const CASE: &str = "pg_case";
pub const COALESCE: &str = "pg_coalesce";
pub const NULLIF: &str = "pg_nullif";
/// What is looked for, and values that depend on no row.
pub const IN: &str = "pg_in";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Case,
    Coalesce,
    NullIf,
    In,
}

impl Kind {
    fn named(name: &str) -> Option<Kind> {
        Some(match name {
            CASE => Kind::Case,
            COALESCE => Kind::Coalesce,
            NULLIF => Kind::NullIf,
            IN => Kind::In,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Case => CASE,
            Kind::Coalesce => COALESCE,
            Kind::NullIf => NULLIF,
            Kind::In => IN,
        }
    }

    /// What messages call it.
    fn shown(self) -> &'static str {
        match self {
            Kind::Case => "CASE",
            Kind::Coalesce => "COALESCE",
            Kind::NullIf => "NULLIF",
            Kind::In => "IN",
        }
    }

    /// Which arguments decide the type, in the order in which PostgreSQL looks at them: of a CASE what else there is comes first.
    fn deciding(self, arguments: usize) -> Vec<usize> {
        match self {
            Kind::Case => {
                let otherwise = (arguments % 2 == 1).then(|| arguments - 1);
                let results = (0..arguments / 2).map(|n| 2 * n + 1);
                otherwise.into_iter().chain(results).collect()
            }
            Kind::NullIf => vec![0],
            Kind::Coalesce | Kind::In => (0..arguments).collect(),
        }
    }
}

/// The function of that name, if it is one of these.
pub fn find(name: &str) -> Option<Arc<ScalarUDF>> {
    Kind::named(name).map(|kind| {
        Arc::new(ScalarUDF::from(Choice {
            kind,
            signature: Signature::variadic_any(Volatility::Immutable),
        }))
    })
}

pub fn is_one(name: &str) -> bool {
    Kind::named(name).is_some()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Choice {
    kind: Kind,
    signature: Signature,
}

/// An argument, and what is known of its type.
struct Argument {
    field: FieldRef,
    /// `None` if it is of a type that only DataFusion has.
    ty: Option<SqlType>,
}

impl Argument {
    fn new(field: &FieldRef, is_literal: bool) -> Argument {
        let ty = match is_literal || field.data_type().is_null() {
            true => Some(SqlType::Unknown),
            false => arrow::describe(field).ok().map(|d| d.ty),
        };
        let field = field.clone();
        Argument { field, ty }
    }
}

/// The result's type; `None` if it is DataFusion's to say.
fn target(kind: Kind, arguments: &[Argument]) -> Result<Option<SqlType>> {
    if kind == Kind::Case {
        for condition in arguments.chunks_exact(2).map(|pair| &pair[0]) {
            let known = condition.ty.unwrap_or(SqlType::Bool);
            if !matches!(known, SqlType::Bool | SqlType::Unknown) {
                let message = format!(
                    "argument of CASE/WHEN must be type boolean, not type {}",
                    known.name()
                );
                return Err(Error::new("42804", message));
            }
        }
    }
    if kind == Kind::NullIf {
        return match arguments {
            [left, right] => match (left.ty, right.ty) {
                (Some(l), Some(r)) => null_if_type(l, r).map(Some),
                _ => Ok(None),
            },
            _ => Err(Error::new("42601", "NULLIF takes two arguments")),
        };
    }
    let deciding = kind.deciding(arguments.len());
    let types: Option<Vec<SqlType>> = deciding.iter().map(|at| arguments[*at].ty).collect();
    types.map(|t| chosen_type(&t, kind.shown())).transpose()
}

/// How values of that type are held: numerics with as many digits as any of them has.
fn data_type(kind: Kind, target: Option<SqlType>, arguments: &[Argument]) -> Result<DataType> {
    let deciding = kind.deciding(arguments.len());
    let fields = deciding.iter().map(|at| &arguments[*at]);
    let Some(target) = target else {
        let types: Vec<DataType> = fields.map(|a| a.field.data_type().clone()).collect();
        return type_union_resolution(&types).ok_or_else(|| {
            Error::new("42804", format!("{} types cannot be matched", kind.shown()))
        });
    };
    if target != SqlType::Numeric {
        return arrow::arrow_type(target, -1);
    }
    let (mut before, mut after) = (0, 0);
    for argument in fields {
        let (b, a) = match argument.field.data_type() {
            DataType::Decimal128(precision, scale) => {
                (*precision as i16 - i16::from(*scale), *scale)
            }
            DataType::Int16 => (5, 0),
            DataType::Int32 => (10, 0),
            DataType::Int64 => (19, 0),
            DataType::Null => (0, 0),
            // A literal without a type.
            _ => (i16::from(MAX_PRECISION as i8 - FREE_SCALE), FREE_SCALE),
        };
        (before, after) = (before.max(b), after.max(a));
    }
    let digits = before
        .saturating_add(i16::from(after))
        .clamp(1, i16::from(MAX_PRECISION));
    Ok(DataType::Decimal128(digits as u8, after))
}

/// How blank-padded strings come together in one column.
enum Padding {
    /// There are none.
    None,
    /// All have this length, and literals get it, too.
    To(usize),
    /// Of several lengths, or with others: such values are equal whatever their padding, so none keeps it.
    Dropped,
}

fn padding(kind: Kind, target: Option<SqlType>, arguments: &[Argument]) -> Padding {
    if target != Some(SqlType::Char) || kind == Kind::NullIf {
        return Padding::None;
    }
    let deciding = kind.deciding(arguments.len()).into_iter();
    let typed = deciding
        .map(|at| &arguments[at])
        .filter(|a| a.ty != Some(SqlType::Unknown));
    let mut lengths = typed.map(|a| {
        let known = arrow::describe(&a.field).ok()?;
        let length = usize::try_from(known.typmod.checked_sub(4)?).ok()?;
        (known.ty == SqlType::Char).then_some(length)
    });
    match lengths.next().flatten() {
        Some(first) if lengths.all(|l| l == Some(first)) => Padding::To(first),
        _ => Padding::Dropped,
    }
}

/// Whether it must be said beside a value's data type what its SQL type is.
fn is_tagged(target: Option<SqlType>) -> bool {
    matches!(target, Some(SqlType::Char | SqlType::Uuid))
}

impl ScalarUDFImpl for Choice {
    fn name(&self) -> &str {
        self.kind.name()
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Err(Error::internal(format!("{} is typed by its fields", self.kind.name())).into())
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let fields = args.arg_fields.iter().enumerate();
        let arguments = fields.map(|(at, field)| {
            let constant = args.scalar_arguments.get(at).copied().flatten();
            let text = matches!(constant, Some(ScalarValue::Utf8(Some(_))));
            Argument::new(field, text && field.metadata().is_empty())
        });
        let arguments: Vec<Argument> = arguments.collect();
        let target = target(self.kind, &arguments)?;
        if self.kind == Kind::In {
            return Ok(Arc::new(Field::new(IN, DataType::Boolean, true)));
        }
        let field = match target {
            Some(ty) if is_tagged(target) => arrow::field(self.name(), ty, -1, (0, 0))?,
            _ => Field::new(self.name(), data_type(self.kind, target, &arguments)?, true),
        };
        Ok(Arc::new(field))
    }
    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        Err(Error::internal(format!("{} that was not planned", self.kind.name())).into())
    }
}

fn unpadded(e: Expr, io: &IoSettings) -> Expr {
    let padded = bound::function(Op::Cast(SqlType::Char, -1), io).call(vec![e]);
    bound::function(Op::Cast(SqlType::Text, -1), io).call(vec![padded])
}

impl Operators {
    /// What takes the place of such a function.
    pub(super) fn choice(&self, mut f: ScalarFunction, schema: &DFSchema) -> DfResult<Expr> {
        let kind = Kind::named(f.name())
            .ok_or_else(|| Error::internal(format!("{} is no choice", f.name())))?;
        let mut arguments = Vec::with_capacity(f.args.len());
        for e in &f.args {
            arguments.push(Argument::new(&e.to_field(schema)?.1, literal(e).is_some()));
        }
        let to = target(kind, &arguments)?;
        let held = data_type(kind, to, &arguments)?;
        let padding = padding(kind, to, &arguments);
        if let Padding::To(length) = padding {
            for at in kind.deciding(f.args.len()) {
                if let Some(text) = literal(&f.args[at]) {
                    let padded = format!("{text:<length$}");
                    f.args[at] = Expr::Literal(ScalarValue::Utf8(Some(padded)), None);
                }
            }
        }
        let chosen = match kind {
            Kind::In => return self.found(f.args, &arguments, to),
            Kind::NullIf => self.null_if(f.args, &arguments)?,
            Kind::Coalesce => {
                let args = f.args.into_iter().zip(&arguments);
                let args = args.map(|(e, a)| self.converted(e, a, to, &held, schema));
                core::coalesce().call(args.collect::<DfResult<_>>()?)
            }
            Kind::Case => self.case(f.args, &arguments, to, &held, schema)?,
        };
        let chosen = match padding {
            Padding::Dropped => unpadded(chosen, &self.io),
            _ => chosen,
        };
        let chosen = match chosen.get_type(schema)? == held {
            true => chosen,
            false => cast(chosen, held),
        };
        // Of NULLIF the left side has lost its padding.
        let typmod = match kind {
            Kind::NullIf => arrow::describe(&arguments[0].field).map_or(-1, |d| d.typmod),
            _ => -1,
        };
        Ok(match to {
            Some(ty) if is_tagged(to) => {
                let padded = match (kind, ty) {
                    (Kind::NullIf, SqlType::Char) if typmod >= 0 => {
                        bound::function(Op::Cast(ty, typmod), &self.io).call(vec![chosen])
                    }
                    _ => chosen,
                };
                bound::function(Op::Cast(ty, -1), &self.io).call(vec![padded])
            }
            _ => chosen,
        })
    }

    fn case(
        &self,
        args: Vec<Expr>,
        arguments: &[Argument],
        to: Option<SqlType>,
        held: &DataType,
        schema: &DFSchema,
    ) -> DfResult<Expr> {
        let count = args.len();
        let mut when_then_expr = Vec::with_capacity(count / 2);
        let mut else_expr = None;
        let mut condition = None;
        for (at, (e, argument)) in args.into_iter().zip(arguments).enumerate() {
            if at % 2 == 0 && at + 1 < count {
                condition = Some(match literal(&e) {
                    Some(text) => self.parsed(text, SqlType::Bool)?,
                    None => e,
                });
                continue;
            }
            let result = Box::new(self.converted(e, argument, to, held, schema)?);
            match condition.take() {
                Some(condition) => when_then_expr.push((Box::new(condition), result)),
                None => else_expr = Some(result),
            }
        }
        Ok(Expr::Case(Case::new(None, when_then_expr, else_expr)))
    }

    /// An operand as the type of the result.
    fn converted(
        &self,
        e: Expr,
        argument: &Argument,
        to: Option<SqlType>,
        held: &DataType,
        schema: &DFSchema,
    ) -> DfResult<Expr> {
        let (Some(own), Some(to)) = (argument.ty, to) else {
            return Ok(e);
        };
        let e = match (own, e) {
            (SqlType::Unknown, Expr::Placeholder(mut p)) if p.field.is_none() => {
                p.field = Some(Arc::new(arrow::field(&p.id, to, -1, (0, 0))?));
                return Ok(Expr::Placeholder(p));
            }
            (SqlType::Unknown, e) => match literal(&e) {
                Some(text) if !to.is_string() => self.parsed(text, to)?,
                _ => e,
            },
            (own, e) if own == to => e,
            (own, e) if own.is_string() && own != SqlType::Char && to.is_string() => e,
            (own, e) if own.is_number() && to == SqlType::Numeric => e,
            (_, e) => {
                let to = match to.is_string() {
                    true => SqlType::Text,
                    false => to,
                };
                bound::function(Op::Cast(to, -1), &self.io).call(vec![e])
            }
        };
        let own = e.get_type(schema)?;
        Ok(match own.is_null() || own == *held {
            true => e,
            false => cast(e, held.clone()),
        })
    }

    /// Both sides as an operator would compare them.
    fn null_if(&self, args: Vec<Expr>, arguments: &[Argument]) -> DfResult<Expr> {
        let mut args = args.into_iter();
        let (Some(left), Some(right), [l, r]) = (args.next(), args.next(), arguments) else {
            return Err(Error::internal("NULLIF without two arguments").into());
        };
        let (left, right) = match (l.ty, r.ty) {
            (Some(l), Some(r)) => {
                common_type(&[l, r], "NULLIF")?;
                (self.side(left, l, r)?, self.side(right, r, l)?)
            }
            _ => (left, right),
        };
        Ok(core::nullif().call(vec![left, right]))
    }

    /// Values among which a `real` is looked for are one, too, if none is a double: unlike beside an operator.
    fn found(
        &self,
        args: Vec<Expr>,
        arguments: &[Argument],
        to: Option<SqlType>,
    ) -> DfResult<Expr> {
        let mut sides = args.into_iter().zip(arguments);
        let (own, argument) = sides
            .next()
            .ok_or_else(|| Error::internal("IN without a value to look for"))?;
        let all_real = to == Some(SqlType::Float4);
        let real = |e: Expr, ty: Option<SqlType>| match ty {
            Some(SqlType::Float4) => e,
            _ => bound::function(Op::Cast(SqlType::Float4, -1), &self.io).call(vec![e]),
        };
        let mut found: Vec<Expr> = Vec::new();
        for (item, member) in sides {
            found.push(match (argument.ty, member.ty) {
                _ if all_real => real(own.clone(), argument.ty).eq(real(item, member.ty)),
                (Some(l), Some(r)) => {
                    common_type(&[l, r], "IN")?;
                    self.side(own.clone(), l, r)?.eq(self.side(item, r, l)?)
                }
                _ => own.clone().eq(item),
            });
        }
        found
            .into_iter()
            .reduce(Expr::or)
            .ok_or_else(|| Error::internal("IN without values").into())
    }
}
