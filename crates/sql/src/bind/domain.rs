//! Values of domains: converted to the base type, then checked.

use super::{Binder, ParamTypes, Scope, ScopeColumn, Typed};
use crate::error::Result;
use crate::expr::Expr;
use crate::expr::domain::{DomainCheck, Rule, Rules};
use crate::parse;
use crate::types::SqlType;
use crate::types::domains::DomainType;

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

/// What values of a declared type have to meet; `None`: no rules.
pub fn domain_check(declared: SqlType, params: &ParamTypes) -> Result<Option<DomainCheck>> {
    let rule = match declared {
        SqlType::Domain(domain) => rules(domain, params)?.map(Rule::Domain),
        SqlType::Array(element) => {
            let of = domain_check(element.ty(), params)?;
            of.map(|of| Rule::Elements(Box::new(of)))
        }
        SqlType::Composite(row) => {
            let mut found = Vec::new();
            for (at, field) in row.fields().unwrap_or_default().iter().enumerate() {
                found.extend(domain_check(field.declared, params)?.map(|of| (at, of)));
            }
            (!found.is_empty()).then_some(Rule::Fields(found))
        }
        _ => None,
    };
    Ok(rule.map(|rule| DomainCheck { declared, rule }))
}

/// The rules of a domain; `None`: it has none.
fn rules(domain: DomainType, params: &ParamTypes) -> Result<Option<Rules>> {
    params.sight.note_type(SqlType::Domain(domain));
    let def = domain.def();
    let within = domain_check(def.base, params)?;
    let own = params.of_stored();
    let mut checks = Vec::with_capacity(def.checks.len());
    let scope = scope_of_value(def.base.base(), def.typmod);
    let binder = Binder::new(&scope, &own, "CHECK");
    for (name, text) in &def.checks {
        let condition = binder.condition(&parse::expression(text)?)?;
        checks.push((name.clone(), condition));
    }
    params.note_called(&own);
    let found = Rules {
        domain,
        within: within.map(Box::new),
        checks,
    };
    Ok((domain.has_rules() || found.within.is_some()).then_some(found))
}

impl Binder<'_> {
    /// A value of the base type as one of the declared type.
    pub(super) fn checked(&self, value: Typed, declared: SqlType) -> Result<Typed> {
        let mut value = value;
        if let Some(check) = domain_check(declared, self.params)? {
            value.expr = Expr::Domain(Box::new(check), Box::new(value.expr));
        }
        Ok(value)
    }
}
