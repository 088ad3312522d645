//! Domains: types that are another type with constraints.
//!
//! A domain is what a column, a variable, an argument or a cast is *declared* as. Its values are
//! stored, compared and sent as those of its base type, and an expression has the base type: only
//! what is given a value of a domain checks it (`expr::domain`).
//!
//! **Invariant.** As with enums, a definition is never changed: another state of a domain is
//! another definition of the same object id. A state holds the rules of all domains below it.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use parking_lot::Mutex;

use super::SqlType;

/// One state of a domain.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct DomainDef {
    pub oid: u32,
    pub array_oid: u32,
    /// The name of its schema, for the fields of errors.
    pub schema: String,
    /// As messages have it, and its arrays.
    pub names: [String; 2],
    /// As the catalog has it, and its arrays.
    pub internal_names: [String; 2],
    /// No domain, but perhaps an array of one.
    pub base: SqlType,
    /// The modifier of the base type.
    pub typmod: i32,
    /// Tells states of the base type apart.
    pub base_state: usize,
    pub not_null: bool,
    /// Name and SQL text of each check: those of the domains below come first.
    pub checks: Vec<(String, String)>,
    /// SQL text.
    pub default: Option<String>,
}

/// A state of a domain. Those of one object id are the same type.
#[derive(Clone, Copy)]
pub struct DomainType(pub(super) &'static DomainDef);

static STATES: LazyLock<Mutex<HashSet<&'static DomainDef>>> = LazyLock::new(Mutex::default);

impl DomainType {
    pub fn of(def: DomainDef) -> DomainType {
        let mut states = STATES.lock();
        if let Some(known) = states.get(&def) {
            return DomainType(known);
        }
        let state: &'static DomainDef = Box::leak(Box::new(def));
        states.insert(state);
        DomainType(state)
    }

    pub fn def(self) -> &'static DomainDef {
        self.0
    }

    /// Whether it is the very same state.
    pub fn is_state(self, other: DomainType) -> bool {
        std::ptr::eq(self.0, other.0)
    }

    /// Whether a value has anything to meet.
    pub fn has_rules(self) -> bool {
        self.0.not_null || !self.0.checks.is_empty()
    }
}

impl PartialEq for DomainType {
    fn eq(&self, other: &DomainType) -> bool {
        self.0.oid == other.0.oid
    }
}

impl Eq for DomainType {}

impl Hash for DomainType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.oid.hash(state);
    }
}

impl fmt::Debug for DomainType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "domain {}", self.0.names[0])
    }
}

impl SqlType {
    /// The type of a declaration's values: that below a domain.
    pub fn base(self) -> SqlType {
        match self {
            SqlType::Domain(d) => d.def().base.base(),
            SqlType::Array(element) => match element.ty() {
                SqlType::Domain(d) => d.def().base.array().unwrap_or(self),
                _ => self,
            },
            ty => ty,
        }
    }

    /// The modifier that a declaration's values have by their domain.
    pub fn domain_typmod(self) -> i32 {
        match self {
            SqlType::Domain(d) => d.def().typmod,
            SqlType::Array(element) => element.ty().domain_typmod(),
            _ => -1,
        }
    }

    /// Whether it is a domain, or arrays of one.
    pub fn is_domain(self) -> bool {
        match self {
            SqlType::Domain(_) => true,
            SqlType::Array(element) => matches!(element.ty(), SqlType::Domain(_)),
            _ => false,
        }
    }

    /// Whether values of it have rules to meet: those of a domain, also of elements and fields.
    pub fn holds_domains(self) -> bool {
        match self {
            SqlType::Domain(_) => true,
            SqlType::Array(element) => element.ty().holds_domains(),
            SqlType::Composite(row) => {
                let mut fields = row.fields().unwrap_or_default().iter();
                fields.any(|f| f.declared.holds_domains())
            }
            _ => false,
        }
    }

    /// Which state of a type that a user made it is: a number that no other state has.
    pub fn state_number(self) -> usize {
        match self {
            SqlType::Enum(e) => std::ptr::from_ref(e.def()).addr(),
            SqlType::Own(o) => std::ptr::from_ref(o.def()).addr(),
            SqlType::Domain(d) => std::ptr::from_ref(d.def()).addr(),
            SqlType::Composite(c) => std::ptr::from_ref(c.def()).addr(),
            SqlType::Range(of) | SqlType::Multirange(of) => {
                of.own().map_or(0, |r| std::ptr::from_ref(r.def()).addr())
            }
            SqlType::Array(element) => element.ty().state_number(),
            _ => 0,
        }
    }
}
