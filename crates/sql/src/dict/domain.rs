//! Domains, as they are stored.

use serde::{Deserialize, Serialize};

use super::Dict;
use super::types::UserType;
use crate::types::SqlType;
use crate::types::domains::{DomainDef, DomainType};

/// What makes a type that a user made a domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Domain {
    /// The number of the type below, which may be a domain too.
    pub base: u32,
    /// The modifier of the type below.
    pub typmod: i32,
    pub not_null: bool,
    /// SQL text.
    pub default: Option<String>,
    /// In the order of their names, in which they are checked.
    pub checks: Vec<DomainConstraint>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DomainConstraint {
    pub oid: u32,
    pub name: String,
    /// SQL text of the condition.
    pub text: String,
    /// It was found to hold for what was stored before it.
    pub validated: bool,
}

impl Domain {
    pub fn check(&self, name: &str) -> Option<usize> {
        self.checks.iter().position(|c| c.name == name)
    }
}

impl Dict {
    /// The state of a domain.
    pub(super) fn domain_state(&self, t: &UserType, of: &Domain, name: &str) -> Option<SqlType> {
        let below = self.type_of(of.base)?;
        let mut def = DomainDef {
            oid: t.oid,
            array_oid: t.array_oid,
            schema: self.schema_name(t.schema).to_string(),
            names: [name.to_string(), format!("{name}[]")],
            internal_names: [t.name.clone(), t.array_name()],
            base: below,
            typmod: of.typmod,
            base_state: below.state_number(),
            not_null: of.not_null,
            checks: Vec::new(),
            default: of.default.clone(),
        };
        if let SqlType::Domain(below) = below {
            let below = below.def();
            (def.base, def.typmod) = (below.base, below.typmod);
            def.not_null |= below.not_null;
            def.checks.clone_from(&below.checks);
            def.default = def.default.or_else(|| below.default.clone());
        }
        let own = of.checks.iter();
        def.checks
            .extend(own.map(|c| (c.name.clone(), c.text.clone())));
        Some(SqlType::Domain(DomainType::of(def)))
    }

    /// The domains over a type or over arrays of it, and those over them.
    pub fn domains_over(&self, oid: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut left = vec![oid];
        while let Some(next) = left.pop() {
            let Some(ty) = self.user_type_by_oid(next) else {
                continue;
            };
            let own = |t: &&std::sync::Arc<UserType>| {
                let base = t.domain.as_ref().map(|d| d.base);
                base == Some(ty.oid) || base == Some(ty.array_oid)
            };
            for t in self.user_types().filter(own) {
                found.push(t.oid);
                left.push(t.oid);
            }
        }
        found
    }
}
