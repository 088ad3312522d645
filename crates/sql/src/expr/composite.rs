//! Rows as values: making them, taking a field, testing for NULL, comparing.

use std::cmp::Ordering;

use block::composite::CompositeRef;
use block::value::{Datum, DatumRef};

use super::cast::CastContext;
use super::{Calls, Cast, Conversion, Env, Expr, Val, compare};
use crate::error::{Error, Result};
use crate::pgtype::{self, IoSettings};
use crate::types::SqlType;
use crate::types::composite::CompositeType;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowFunc {
    /// Of the values of its fields.
    Make(CompositeType),
    /// The field at a place; NULL of NULL.
    Field(usize),
    /// A row with the field at a place given another value; NULL is a row of NULLs.
    Assign(CompositeType, usize),
    /// IS NULL and IS NOT NULL: whether all fields are, not looking into rows within.
    IsNull { negated: bool },
}

pub fn call<'a>(
    func: RowFunc,
    args: &'a [Expr],
    env: &Env<'a>,
    calls: &mut dyn Calls,
) -> Result<Val<'a>> {
    let mut values = Vec::with_capacity(args.len());
    for arg in args {
        values.push(arg.eval(env, calls)?);
    }
    match func {
        RowFunc::Make(row) => {
            let values: Vec<DatumRef<'_>> = values.iter().map(Val::get).collect();
            pgtype::composite::make(row, &values).map(Val::Own)
        }
        RowFunc::Field(at) => match values.into_iter().next() {
            Some(Val::Ref(DatumRef::Composite(row))) => {
                Ok(Val::Ref(row.value(at).unwrap_or_default()))
            }
            Some(Val::Own(Datum::Composite(row))) => {
                let field = row.borrow().value(at).unwrap_or_default();
                Ok(Val::Own(field.to_datum()))
            }
            Some(value) if value.is_null() => Ok(Val::NULL),
            other => Err(Error::internal(format!("a field of {other:?}"))),
        },
        RowFunc::Assign(row, at) => assigned(row, at, &values).map(Val::Own),
        RowFunc::IsNull { negated } => match values.first().map(Val::get) {
            Some(DatumRef::Composite(row)) => {
                Ok(Val::bool(row.values().all(|v| v.is_null() != negated)))
            }
            Some(DatumRef::Null) => Ok(Val::bool(!negated)),
            other => Err(Error::internal(format!("{other:?} as a row"))),
        },
    }
}

fn assigned(row: CompositeType, at: usize, values: &[Val<'_>]) -> Result<Datum> {
    let [base, value] = values else {
        return Err(Error::internal("a field that is assigned no value"));
    };
    let count = row.fields().map_or(0, <[_]>::len);
    let mut fields = match base.get() {
        DatumRef::Composite(base) => base.values().collect(),
        _ => vec![DatumRef::Null; count],
    };
    fields[at] = value.get();
    pgtype::composite::make(row, &fields)
}

/// The order of two rows, as PostgreSQL's `record_cmp` has it: a NULL is above all else, and equal
/// to another. Rows of other types of fields, or of another number of them, do not compare.
pub fn compared(left: CompositeRef<'_>, right: CompositeRef<'_>) -> Result<Ordering> {
    let lefts = left.kinds().zip(left.values());
    let rights = right.kinds().zip(right.values());
    for (at, ((lk, l), (rk, r))) in lefts.zip(rights).enumerate() {
        if lk != rk {
            let any = CompositeType::any();
            let name = |n: u32| any.field_type(at, n).map_or("unknown", SqlType::name);
            let message = format!(
                "cannot compare dissimilar column types {} and {} at record column {}",
                name(lk.number),
                name(rk.number),
                at + 1
            );
            return Err(Error::new("42804", message));
        }
        let order = match (l.is_null(), r.is_null()) {
            (false, false) => compare(l, r)?,
            (l, r) => l.cmp(&r),
        };
        if order.is_ne() {
            return Ok(order);
        }
    }
    match left.count() == right.count() {
        true => Ok(Ordering::Equal),
        false => Err(Error::new(
            "42804",
            "cannot compare record types with different numbers of columns",
        )),
    }
}

/// A row of any type is a record. To another type rows are converted where their fields are seen,
/// by the binder.
pub fn castable(to: CompositeType) -> Option<CastContext> {
    to.fields().is_none().then_some(CastContext::Implicit)
}

/// A row as one of another type, field by field.
pub fn cast(
    from: CompositeType,
    to: CompositeType,
    value: CompositeRef<'_>,
    how: Conversion,
    io: &IoSettings,
) -> Result<Datum> {
    let Some(fields) = to.fields() else {
        return Ok(Datum::Composite(value.to_composite()));
    };
    let refuse = |detail: &str| {
        let message = format!(
            "cannot cast type {} to {}",
            from.def().names[0],
            to.def().names[0]
        );
        Error::new("42846", message).detail(detail)
    };
    match value.count().cmp(&fields.len()) {
        Ordering::Less => return Err(refuse("Input has too few columns.")),
        Ordering::Greater => return Err(refuse("Input has too many columns.")),
        Ordering::Equal => {}
    }
    let mut values = Vec::with_capacity(fields.len());
    for (at, (field, (kind, v))) in (fields.iter())
        .zip(value.kinds().zip(value.values()))
        .enumerate()
    {
        let cast = Cast {
            from: from.field_type(at, kind.number).unwrap_or(SqlType::Text),
            to: field.ty,
            typmod: field.typmod,
            how,
        };
        if super::cast::castable(cast.from, cast.to).is_none() {
            let detail = format!(
                "Cannot cast type {} to {} in column {}.",
                cast.from.name(),
                cast.to.name(),
                at + 1
            );
            return Err(refuse(&detail));
        }
        values.push(cast.apply(Val::Ref(v), io)?.into_datum());
    }
    let values: Vec<DatumRef<'_>> = values.iter().map(Datum::borrow).collect();
    pgtype::composite::make(to, &values)
}
