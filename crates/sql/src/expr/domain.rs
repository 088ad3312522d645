//! What a value of a domain has to meet, by itself or within an array or a row.
//!
//! **Invariant.** A condition is over a row of its own, whose one column is the value: who walks
//! through an expression does not find the columns of these conditions in it.

use block::value::DatumRef;

use super::{Calls, Env, Expr};
use crate::error::{Error, Result};
use crate::types::SqlType;
use crate::types::domains::DomainType;

/// The rules of a state of a type, bound.
#[derive(Clone, Debug)]
pub struct DomainCheck {
    /// A domain, or arrays or rows with values of one.
    pub declared: SqlType,
    pub rule: Rule,
}

#[derive(Clone, Debug)]
pub enum Rule {
    Domain(Rules),
    /// Each element of an array meets this.
    Elements(Box<DomainCheck>),
    /// Fields of a row, by their places, meet these.
    Fields(Vec<(usize, DomainCheck)>),
}

/// The rules of a domain and of those that it is over.
#[derive(Clone, Debug)]
pub struct Rules {
    pub domain: DomainType,
    /// What elements or fields of the value meet, which come first.
    pub within: Option<Box<DomainCheck>>,
    /// Name and condition.
    pub checks: Vec<(String, Expr)>,
}

impl PartialEq for DomainCheck {
    fn eq(&self, other: &DomainCheck) -> bool {
        self.declared.is_state(other.declared)
    }
}

impl DomainCheck {
    /// An error if the value is none of the type.
    pub fn check(&self, value: DatumRef<'_>, calls: &mut dyn Calls) -> Result<()> {
        match (&self.rule, value) {
            (Rule::Domain(rules), value) => rules.check(value, calls),
            (Rule::Elements(of), DatumRef::Array(a)) => {
                a.values().try_for_each(|v| of.check(v, calls))
            }
            (Rule::Fields(fields), DatumRef::Composite(row)) => fields
                .iter()
                .try_for_each(|(at, of)| of.check(row.value(*at).unwrap_or_default(), calls)),
            // NULL has no parts.
            (Rule::Elements(_) | Rule::Fields(_), _) => Ok(()),
        }
    }

    /// Whether a condition may differ between two evaluations.
    pub fn is_volatile(&self) -> bool {
        match &self.rule {
            Rule::Domain(rules) => {
                rules.within.as_ref().is_some_and(|w| w.is_volatile())
                    || rules.checks.iter().any(|(_, c)| c.is_volatile())
            }
            Rule::Elements(of) => of.is_volatile(),
            Rule::Fields(fields) => fields.iter().any(|(_, of)| of.is_volatile()),
        }
    }
}

impl Rules {
    fn check(&self, value: DatumRef<'_>, calls: &mut dyn Calls) -> Result<()> {
        if let Some(within) = &self.within {
            within.check(value, calls)?;
        }
        let def = self.domain.def();
        let of_domain = |e: Error| e.schema(&def.schema).datatype(&def.internal_names[0]);
        if def.not_null && matches!(value, DatumRef::Null) {
            let message = format!("domain {} does not allow null values", def.names[0]);
            return Err(of_domain(Error::new("23502", message)));
        }
        let row = [value];
        let env = Env {
            row: &row,
            params: &[],
        };
        for (name, condition) in &self.checks {
            // Unknown is not a violation.
            if condition.test(&env, calls)? == Some(false) {
                let message = format!(
                    "value for domain {} violates check constraint \"{name}\"",
                    def.names[0]
                );
                return Err(of_domain(Error::new("23514", message)).constraint(name));
            }
        }
        Ok(())
    }
}
