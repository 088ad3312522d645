//! COLLATE: strings are compared by their bytes, so only the collations that do so are there.

use sqlparser::ast::{self, ObjectName};

use super::{Binder, Typed, names};
use crate::error::{Error, Result};
use crate::types::SqlType;

impl Binder<'_> {
    pub(super) fn collate(&self, e: &ast::Expr, collation: &ObjectName) -> Result<Typed> {
        let value = self.expr(e)?;
        if !value.ty.is_string() && value.ty != SqlType::Unknown {
            return Err(Error::new(
                "42804",
                format!("collations are not supported by type {}", value.ty.name()),
            ));
        }
        let name = names::parts(collation)?.pop().unwrap_or_default();
        match name.as_str() {
            "C" | "POSIX" | "default" | "ucs_basic" => Ok(value),
            _ => Err(Error::unsupported(format!("collation {collation}"))),
        }
    }
}
