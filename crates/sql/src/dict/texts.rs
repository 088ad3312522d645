//! The SQL texts of definitions, which name functions and types of users by number
//! ([`crate::bind::numbered`]).

use super::depend::{Address, Dependent};
use super::object::kind;
use super::trigger::Trigger;
use super::{Dict, Object, Table, View};
use crate::bind::numbered;

impl Object {
    /// The SQL texts of the object, each with what depends on the objects that it names.
    pub fn texts(&self) -> Vec<(Address, &str)> {
        match self {
            Object::Table(t) => t.texts(),
            Object::View(v) => v.texts(),
            Object::Function(f) => {
                let defaults = f.arguments.iter().filter_map(|a| a.default.as_deref());
                defaults
                    .map(|text| (Address::Function(f.oid), text))
                    .collect()
            }
            Object::Type(t) => {
                let Some(domain) = &t.domain else {
                    return Vec::new();
                };
                let default = domain.default.iter();
                let default = default.map(|text| (Address::Type(t.oid), text.as_str()));
                let check = |c: &'_ super::DomainConstraint| Address::DomainCheck(t.oid, c.oid);
                let checks = domain.checks.iter();
                default
                    .chain(checks.map(|c| (check(c), c.text.as_str())))
                    .collect()
            }
            Object::Sequence(_) | Object::Stats(_) | Object::Role(_) | Object::Door(_) => {
                Vec::new()
            }
            Object::Schema(_) | Object::Acl(_) | Object::DefaultPrivileges(_) => Vec::new(),
            Object::Cast(_) | Object::Extension(_) => Vec::new(),
        }
    }

    /// The functions and types of users that its texts name by number.
    pub(super) fn named_by_number(&self) -> Vec<u32> {
        let texts = self.texts().into_iter();
        texts.flat_map(|(what, text)| numbers(what, text)).collect()
    }
}

/// The numbers that a text of an object names.
fn numbers(what: Address, text: &str) -> Vec<u32> {
    match what {
        Address::View(_) | Address::Table(_) | Address::Policy(..) => numbered::in_query(text),
        _ => numbered::in_expression(text),
    }
}

fn conditions(relation: u32, triggers: &[Trigger]) -> impl Iterator<Item = (Address, &str)> {
    let conditions = triggers
        .iter()
        .filter_map(|g| Some((g.oid, g.when.as_deref()?)));
    conditions.map(move |(oid, text)| (Address::Trigger(relation, oid), text))
}

impl Table {
    fn texts(&self) -> Vec<(Address, &str)> {
        let oid = self.oid;
        let defaults = self.live_columns().filter_map(|(at, c)| {
            // What a generated column is made by takes the column with it.
            let what = match c.generated {
                true => Address::Column(oid, at),
                false => Address::Default(oid, at),
            };
            Some((what, c.default.as_deref()?))
        });
        let checks = self.checks.iter().enumerate();
        let checks = checks.map(|(at, c)| (Address::Check(oid, at), c.text.as_str()));
        let indexes = self.indexes.iter().flat_map(|i| {
            let texts = i.expressions.iter().map(|e| &e.text).chain(&i.predicate);
            texts.map(|text| (Address::Index(oid, i.oid), text.as_str()))
        });
        let policies = self.policies.iter().flat_map(|p| {
            let texts = p.using.iter().chain(&p.check);
            texts.map(|text| (Address::Policy(oid, p.oid), text.as_str()))
        });
        let made = self.materialized.iter();
        let made = made.map(|m| (Address::Table(oid), m.query.as_str()));
        let all = defaults.chain(checks).chain(indexes).chain(policies);
        all.chain(conditions(oid, &self.triggers))
            .chain(made)
            .collect()
    }
}

impl View {
    fn texts(&self) -> Vec<(Address, &str)> {
        let oid = self.oid;
        let query = std::iter::once((Address::View(oid), self.query.as_str()));
        let columns = self.columns.iter().enumerate();
        let defaults =
            columns.filter_map(|(at, c)| Some((Address::Default(oid, at), c.default.as_deref()?)));
        query
            .chain(defaults)
            .chain(conditions(oid, &self.triggers))
            .collect()
    }
}

impl Dict {
    /// All that names functions or types of users by number in its texts, with these numbers.
    pub fn named_by_texts(&self) -> Vec<(Address, u32)> {
        let kinds = [kind::TABLE, kind::VIEW, kind::FUNCTION, kind::TYPE];
        let objects = kinds.into_iter().flat_map(|kind| self.maps.of_kind(kind));
        let mut found = Vec::new();
        for (what, text) in objects.flat_map(Object::texts) {
            let numbers = numbers(what, text).into_iter();
            found.extend(numbers.map(|number| (what, number)));
        }
        found
    }

    /// What names a function or a type of users by number in its text.
    pub(super) fn naming(&self, number: u32) -> Vec<Dependent> {
        let mut found: Vec<Dependent> = Vec::new();
        for object in self.maps.needing(number) {
            for (what, text) in object.texts() {
                let is_known = |found: &[Dependent]| found.iter().any(|d| d.what == what);
                if !is_known(&found) && numbers(what, text).contains(&number) {
                    found.push(Dependent { what, auto: false });
                }
            }
        }
        found
    }
}
