//! Values of domains: converted to the base type, then checked.

use super::{Binder, ParamTypes, Scope, ScopeColumn, Typed};
use crate::error::Result;
use crate::expr::Expr;
use crate::expr::domain::DomainCheck;
use crate::parse;
use crate::types::SqlType;

/// As what the conditions of a domain know its value.
const VALUE: &str = "value";

/// The scope of a domain's conditions.
pub fn scope_of_value(base: SqlType, typmod: i32) -> Scope {
    let column = ScopeColumn {
        table: String::new(),
        name: VALUE.to_string(),
        ty: base,
        typmod,
        collation: Default::default(),
        slot: 0,
        table_oid: 0,
        attnum: 0,
        hidden: false,
    };
    Scope {
        columns: vec![column],
        system: Vec::new(),
    }
}

/// What values of a declared type have to meet; `None`: it is no domain, or one without rules.
pub fn domain_check(declared: SqlType, params: &ParamTypes) -> Result<Option<DomainCheck>> {
    let (domain, elements) = match declared {
        SqlType::Domain(d) => (d, false),
        SqlType::Array(element) => match element.ty() {
            SqlType::Domain(d) => (d, true),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    params.sight.note_type(declared);
    let def = domain.def();
    let own = params.of_stored();
    let mut checks = Vec::with_capacity(def.checks.len());
    let scope = scope_of_value(def.base.base(), def.typmod);
    let binder = Binder::new(&scope, &own, "CHECK");
    for (name, text) in &def.checks {
        let condition = binder.condition(&parse::expression(text)?)?;
        checks.push((name.clone(), condition));
    }
    params.note_called(&own);
    let found = DomainCheck {
        domain,
        checks,
        elements,
    };
    Ok(domain.has_rules().then_some(found))
}

impl Binder<'_> {
    /// A value of the base type as one of the domain.
    pub(super) fn checked(&self, value: Typed, declared: SqlType) -> Result<Typed> {
        let mut value = value;
        // The elements of what is below come first.
        if let SqlType::Domain(d) = declared
            && let below @ SqlType::Array(_) = d.def().base
            && let Some(check) = domain_check(below, self.params)?
        {
            value.expr = Expr::Domain(Box::new(check), Box::new(value.expr));
        }
        if let Some(check) = domain_check(declared, self.params)? {
            value.expr = Expr::Domain(Box::new(check), Box::new(value.expr));
        }
        Ok(value)
    }
}
