//! COLLATE, and which collation an expression has.

use block::value::Datum;
use sqlparser::ast::{self, ObjectName};

use super::{Binder, Typed, names};
use crate::collate::{self, Collation, Derived};
use crate::error::{Error, Result};
use crate::expr::collated::Collated;
use crate::expr::func::PureFunc;
use crate::expr::{Expr, Func};
use crate::types::SqlType;

/// The collation of a name, with or without the schema of all of them.
pub fn named(name: &ObjectName) -> Result<Collation> {
    let parts = names::parts(name)?;
    let (schema, name) = match parts.as_slice() {
        [name] => (None, name),
        [schema, name] => (Some(schema), name),
        _ => return Err(Error::unsupported(format!("name {}", parts.join(".")))),
    };
    match schema {
        Some(schema) if schema != "pg_catalog" => Err(collate::missing(&parts.join("."))),
        _ => Collation::named(name).ok_or_else(|| collate::missing(name)),
    }
}

/// Refuses a collation of what is no string.
pub fn check_collatable(ty: SqlType) -> Result<()> {
    let element = super::element_of(ty).map_or(ty, |e| e.ty());
    match element.is_string() {
        true => Ok(()),
        false => {
            let message = format!("collations are not supported by type {}", ty.name());
            Err(Error::new("42804", message))
        }
    }
}

/// What an expression that was bound has, given what its parts have.
pub(super) fn of_bound(e: &ast::Expr, bound: &mut Typed, parts: Derived) -> Option<Derived> {
    let is_own = matches!(
        e,
        ast::Expr::Identifier(_)
            | ast::Expr::CompoundIdentifier(_)
            | ast::Expr::Nested(_)
            | ast::Expr::Collate { .. }
            | ast::Expr::Subquery(_)
            | ast::Expr::Case { .. }
    );
    if !is_own {
        bound.collation = parts;
    }
    bound.has_collation().then_some(bound.collation)
}

/// The collation whose keys decide on the order of values of a type; `None`: their bytes do.
pub fn of_order(ty: SqlType, derived: Derived) -> Result<Option<Collation>> {
    if super::element_of(ty).is_some_and(|e| e.ty().is_string()) {
        let by = derived.decided("string comparison")?;
        return match by.is_by_bytes() {
            true => Ok(None),
            false => Err(Error::unsupported("the order of arrays by a collation")),
        };
    }
    if !ty.is_string() {
        return Ok(None);
    }
    let by = derived.decided("string comparison")?;
    Ok(Some(by).filter(|by| !by.is_by_bytes()))
}

/// The collation whose keys rows are sorted by, as [`of_order`]; its parts must agree.
pub fn of_sort(ty: SqlType, derived: Derived) -> Result<Option<Collation>> {
    if ty.is_string() {
        derived.agreed()?;
    }
    of_order(ty, derived)
}

/// The key of a string, as bytes.
pub fn key_of(e: Expr, by: Collation) -> Expr {
    Expr::Call(Func::Pure(PureFunc::Collated(Collated::Key(by))), vec![e])
}

/// The string of a key.
pub fn text_of(key: Expr, by: Collation) -> Expr {
    let func = Func::Pure(PureFunc::Collated(Collated::Text(by)));
    Expr::Call(func, vec![key])
}

impl Binder<'_> {
    pub(super) fn collate(&self, e: &ast::Expr, collation: &ObjectName) -> Result<Typed> {
        let mut value = self.expr(e)?;
        if value.ty != SqlType::Unknown {
            check_collatable(value.ty)?;
        }
        value.collation = Derived::explicit(named(collation)?);
        if value.ty == SqlType::Unknown {
            value.ty = SqlType::Text;
        }
        Ok(value)
    }

    /// `pg_collation_for(value)`: the name as it is written.
    pub(super) fn collation_for(&self, value: &Typed) -> Result<Typed> {
        if value.ty != SqlType::Unknown {
            check_collatable(value.ty)?;
        }
        let by = value.collation.decided("pg_collation_for() function");
        let name = match by {
            Ok(by) => Datum::Text(match crate::views::needs_quotes(&by.name()) {
                true => format!("\"{}\"", by.name()),
                false => names::quote(&by.name()),
            }),
            Err(_) => Datum::Null,
        };
        // A literal has none before it has a type.
        let name = match value.ty {
            SqlType::Unknown => Datum::Null,
            _ => name,
        };
        Ok(Typed::literal(name, SqlType::Text))
    }
}
