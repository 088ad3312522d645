//! Making types meet: literals and parameters take the type of their context, numbers are promoted, the rest is cast.

use block::value::Datum;

use super::simplify::simplified;
use super::{Binder, Typed};
use crate::error::{Error, Result};
use crate::expr::cast::{CastContext, castable};
use crate::expr::func::NoCalls;
use crate::expr::{Cast, Conversion, Env, Expr};
use crate::place::Place;
use crate::types::SqlType;
use crate::types::composite::CompositeType;

impl Binder<'_> {
    /// Converts to a type, as far as the context allows it.
    pub fn coerce(
        &self,
        value: Typed,
        to: SqlType,
        typmod: i32,
        context: CastContext,
    ) -> Result<Typed> {
        let how = match context {
            CastContext::Explicit => Conversion::Explicit,
            _ => Conversion::Implied,
        };
        self.convert(value, to, typmod, context, how)
    }

    /// An operand of a comparison as the type in which its sides meet.
    pub fn compared(&self, value: Typed, to: SqlType) -> Result<Typed> {
        self.convert(value, to, -1, CastContext::Implicit, Conversion::Compared)
    }

    fn convert(
        &self,
        value: Typed,
        to: SqlType,
        typmod: i32,
        context: CastContext,
        how: Conversion,
    ) -> Result<Typed> {
        if !to.holds_domains() {
            return self.convert_unchecked(value, (to, typmod), context, how);
        }
        let (base, is_domain) = (to.base(), to.is_domain());
        let typmod = if is_domain {
            to.domain_typmod()
        } else {
            typmod
        };
        // A row of the type met the rules of its fields when it became one.
        let is_one = !is_domain && value.ty == to && !matches!(value.expr, Expr::Param(_));
        let value = self.convert_unchecked(value, (base, typmod), context, how)?;
        match is_one {
            true => Ok(value),
            false => self.checked(value, to),
        }
    }

    /// Converts to a type, whatever the rules of domains in it say.
    fn convert_unchecked(
        &self,
        value: Typed,
        (to, typmod): (SqlType, i32),
        context: CastContext,
        how: Conversion,
    ) -> Result<Typed> {
        let value = self.settle_parameter(value, to)?;
        if value.ty == to && (typmod < 0 || typmod == value.typmod) {
            return Ok(value);
        }
        if let Some(row) = self.convert_row(&value, to, context)? {
            return Ok(row);
        }
        if let Some(made) = self.by_user_cast(&value, (to, typmod), context)? {
            return Ok(made);
        }
        self.convert_built_in(value, (to, typmod), context, how)
    }

    /// Converts as PostgreSQL does by itself.
    pub(super) fn convert_built_in(
        &self,
        value: Typed,
        (to, typmod): (SqlType, i32),
        context: CastContext,
        how: Conversion,
    ) -> Result<Typed> {
        if value.ty == SqlType::Void && to.is_string() && context == CastContext::Explicit {
            // Its text form, which is empty.
            let text = Typed::new(value.expr, SqlType::Text);
            return self.convert_built_in(text, (to, typmod), context, how);
        }
        match castable(value.ty, to) {
            Some(weakest) if weakest <= context => {}
            _ => return Err(cannot_cast(value.ty, to, context)),
        }
        // Strings without a length are stored alike: such a conversion must not hide a column from the indexes.
        let plain = |t: SqlType| matches!(t, SqlType::Text | SqlType::Varchar | SqlType::Unknown);
        if typmod < 0 && plain(value.ty) && plain(to) {
            return Ok(Typed {
                expr: value.expr,
                ty: to,
                typmod,
                collation: value.collation,
            });
        }
        let cast = Cast {
            from: value.ty,
            to,
            typmod,
            how,
        };
        let literal = match (&value.expr, value.ty) {
            (Expr::Const(Datum::Text(text)), SqlType::Unknown) => Some(text.clone()),
            _ => None,
        };
        let expr = fold(Expr::Cast(cast, Box::new(value.expr)))
            .map_err(|e| e.placed(literal.map(Place::Literal)))?;
        Ok(Typed {
            expr,
            ty: to,
            typmod,
            collation: value.collation,
        })
    }

    /// To the type of a column, or 42804 in PostgreSQL's words.
    pub fn assign(&self, value: Typed, to: SqlType, typmod: i32, column: &str) -> Result<Typed> {
        let from = value.ty;
        self.coerce(value, to, typmod, CastContext::Assignment)
            .map_err(|e| match e.sqlstate() {
                // What of a row does not fit is told by itself.
                "42846" if e.fields().detail.is_some() => e,
                "42846" => Error::new(
                    "42804",
                    format!(
                        "column \"{column}\" is of type {} but expression is of type {}",
                        to.name(),
                        from.name()
                    ),
                )
                .hint("You will need to rewrite or cast the expression."),
                _ => e,
            })
    }

    /// A parameter that has no type yet takes the wanted one; one that got a type from another use has that.
    fn settle_parameter(&self, value: Typed, wanted: SqlType) -> Result<Typed> {
        let (Expr::Param(i), SqlType::Unknown) = (&value.expr, value.ty) else {
            return Ok(value);
        };
        let i = *i;
        let ty = match self.params.get(i)? {
            Some(ty) => ty,
            None => {
                let ty = if wanted == SqlType::Unknown {
                    SqlType::Text
                } else {
                    wanted
                };
                self.params.set(i, ty);
                ty
            }
        };
        Ok(Typed::new(value.expr, ty))
    }

    /// Both sides of a comparison as one type; literals and parameters follow the other side.
    pub fn unify(&self, left: Typed, right: Typed, what: &str) -> Result<(Typed, Typed)> {
        // Rows of any types are compared as they are, by the types of their fields.
        if let (SqlType::Composite(_), SqlType::Composite(_)) = (left.ty, right.ty) {
            return Ok((left, right));
        }
        let ty = match left.ty.is_number() && right.ty.is_number() {
            true => promote(left.ty, right.ty),
            // An operator converts a time of day, of another category than an interval.
            false if is_time_and_interval(left.ty, right.ty) => SqlType::Interval,
            // Both convert to the preferred one of their category.
            false if is_internal_char_and_varchar(left.ty, right.ty) => SqlType::Text,
            false => common_type(&[left.ty, right.ty], what)?,
        };
        Ok((self.compared(left, ty)?, self.compared(right, ty)?))
    }

    /// A literal that nothing gave a type is text.
    pub fn settle(&self, value: Typed) -> Result<Typed> {
        if value.ty == SqlType::Unknown {
            self.coerce(value, SqlType::Text, -1, CastContext::Implicit)
        } else {
            Ok(value)
        }
    }

    pub fn boolean(&self, value: Typed, what: &str) -> Result<Expr> {
        let from = value.ty;
        if from != SqlType::Bool && from != SqlType::Unknown {
            return Err(Error::new(
                "42804",
                format!(
                    "argument of {what} must be type boolean, not type {}",
                    from.name()
                ),
            ));
        }
        Ok(self
            .coerce(value, SqlType::Bool, -1, CastContext::Implicit)?
            .expr)
    }
}

/// The type that CASE, COALESCE, VALUES and the like give to expressions of several types.
pub fn common_type(types: &[SqlType], what: &str) -> Result<SqlType> {
    let mut common = SqlType::Unknown;
    for &ty in types {
        common = match (common, ty) {
            (SqlType::Unknown, t) | (t, SqlType::Unknown) => t,
            (a, b) if a == b => a,
            (a, b) => wider(a, b).ok_or_else(|| {
                Error::new(
                    "42804",
                    format!(
                        "{what} types {} and {} cannot be matched",
                        a.name(),
                        b.name()
                    ),
                )
            })?,
        };
    }
    Ok(if common == SqlType::Unknown {
        SqlType::Text
    } else {
        common
    })
}

/// The type of a CASE or COALESCE: that of [`common_type`], but of strings the first one's, as each of their types converts to the others.
pub fn chosen_type(types: &[SqlType], what: &str) -> Result<SqlType> {
    let common = common_type(types, what)?;
    let mut known = types.iter().copied().filter(|t| *t != SqlType::Unknown);
    Ok(match known.next() {
        Some(first) if common.is_string() && first != SqlType::Name && !first.is_citext() => first,
        _ => common,
    })
}

/// The length to which all of them are padded with blanks, if all are to the same one.
pub fn common_padding(all: &[Typed]) -> i32 {
    let padding = |t: &Typed| match t.ty {
        SqlType::Char => t.typmod,
        _ => -1,
    };
    let first = all.first().map_or(-1, padding);
    match all.iter().all(|t| padding(t) == first) {
        true => first,
        false => -1,
    }
}

/// The type of NULLIF: the left side's, as the operator takes it that compares the two.
pub fn null_if_type(left: SqlType, right: SqlType) -> Result<SqlType> {
    use SqlType::{Char, Date, Float4, Text, Timestamp, TimestampTz, Unknown, Varchar};
    let common = common_type(&[left, right], "NULLIF")?;
    let moment = |t| matches!(t, Date | Timestamp | TimestampTz);
    Ok(match (left, right) {
        // Strings are compared as text.
        (Varchar, r) if r != Char => Text,
        (Unknown, Varchar) => Text,
        (Unknown, _) | (_, Unknown) => common,
        (l, r) if l.is_integer() && r.is_integer() || moment(l) && moment(r) => l,
        (Float4, r) if r.is_number() => Float4,
        (l, r) if l.is_number() && r.is_number() => promote(l, r),
        (Char, Text) => Text,
        (Char, _) | (Varchar, Char) => Char,
        (l, _) if common.is_string() => l,
        _ => common,
    })
}

fn is_time_and_interval(a: SqlType, b: SqlType) -> bool {
    use SqlType::{Interval, Time};
    matches!((a, b), (Time, Interval) | (Interval, Time))
}

fn is_internal_char_and_varchar(a: SqlType, b: SqlType) -> bool {
    use SqlType::{InternalChar, Varchar};
    matches!((a, b), (InternalChar, Varchar) | (Varchar, InternalChar))
}

fn wider(a: SqlType, b: SqlType) -> Option<SqlType> {
    if let (SqlType::Composite(l), SqlType::Composite(r)) = (a, b) {
        let records = l.is_record() && r.is_record();
        return records.then(|| SqlType::Composite(CompositeType::any()));
    }
    let arrays = a.element().is_some() || b.element().is_some();
    if arrays || is_time_and_interval(a, b) {
        return None;
    }
    if a.is_number() && b.is_number() {
        return Some(match higher(a, b) {
            SqlType::Oid => SqlType::Int8,
            ty => ty,
        });
    }
    if a.is_string() && b.is_string() {
        return Some(SqlType::Text);
    }
    if let (SqlType::Bit | SqlType::Varbit, SqlType::Bit | SqlType::Varbit) = (a, b) {
        return Some(SqlType::Varbit);
    }
    // Of one category, in which oid is preferred; a string is not of it, though it converts.
    match (a, b) {
        (SqlType::Oid, SqlType::Reg(_)) | (SqlType::Reg(_), SqlType::Oid) => {
            return Some(SqlType::Oid);
        }
        (SqlType::Reg(_), t) | (t, SqlType::Reg(_)) if t.is_string() => return None,
        _ => {}
    }
    if castable(a, b) == Some(CastContext::Implicit) {
        return Some(b);
    }
    (castable(b, a) == Some(CastContext::Implicit)).then_some(a)
}

fn higher(a: SqlType, b: SqlType) -> SqlType {
    if a.number_rank() >= b.number_rank() {
        a
    } else {
        b
    }
}

/// The type in which an operator takes two numbers: the higher in rank, but `real` meets only itself without becoming double.
pub fn promote(a: SqlType, b: SqlType) -> SqlType {
    if a == b {
        return a;
    }
    match higher(a, b) {
        SqlType::Float4 => SqlType::Float8,
        SqlType::Oid => SqlType::Int8,
        other => other,
    }
}

/// Computes what needs no row, no parameter and no session. An error is left for the execution to meet: the row that
/// would raise it may never come.
pub fn fold(expr: Expr) -> Result<Expr> {
    let expr = simplified(expr);
    if matches!(expr, Expr::Const(_)) || !expr.is_constant() {
        return Ok(expr);
    }
    let literal = matches!(&expr, Expr::Cast(c, inner) if c.from == SqlType::Unknown && matches!(**inner, Expr::Const(_)));
    let value: Result<Datum> = expr
        .eval(&Env::EMPTY, &mut NoCalls::default())
        .map(|v| v.into_datum());
    match value {
        Ok(value) => Ok(Expr::Const(value)),
        // A malformed literal is the statement's error, as in PostgreSQL.
        Err(e) if literal => Err(e),
        Err(_) => Ok(expr),
    }
}

pub(super) fn cannot_cast(from: SqlType, to: SqlType, context: CastContext) -> Error {
    let how = if context == CastContext::Explicit {
        "cannot cast type"
    } else {
        "cannot convert type"
    };
    Error::new("42846", format!("{how} {} to {}", from.name(), to.name()))
}
