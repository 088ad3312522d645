//! What a value of a domain has to meet.
//!
//! **Invariant.** A condition is over a row of its own, whose one column is the value: who walks
//! through an expression does not find the columns of these conditions in it.

use block::value::DatumRef;

use super::{Calls, Env, Expr};
use crate::error::{Error, Result};
use crate::types::domains::DomainType;

/// The rules of a state of a domain, bound.
#[derive(Clone, Debug)]
pub struct DomainCheck {
    pub domain: DomainType,
    /// Name and condition.
    pub checks: Vec<(String, Expr)>,
    /// The value is an array of values of the domain.
    pub elements: bool,
}

impl PartialEq for DomainCheck {
    fn eq(&self, other: &DomainCheck) -> bool {
        self.domain.is_state(other.domain) && self.elements == other.elements
    }
}

impl DomainCheck {
    /// An error if the value is none of the domain.
    pub fn check(&self, value: DatumRef<'_>, calls: &mut dyn Calls) -> Result<()> {
        match (self.elements, value) {
            (true, DatumRef::Array(a)) => a.values().try_for_each(|v| self.check_one(v, calls)),
            (true, _) => Ok(()),
            (false, value) => self.check_one(value, calls),
        }
    }

    fn check_one(&self, value: DatumRef<'_>, calls: &mut dyn Calls) -> Result<()> {
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
