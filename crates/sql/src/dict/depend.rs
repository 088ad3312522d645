//! What depends on what: the graph that DROP follows, and that `pg_depend` shows.
//!
//! It is not stored, but read from the definitions, which name what they need by object id. So no
//! edge can be missing, or be left over. **Invariant:** who makes a definition that needs another
//! one holds a lock on that until its transaction ends, and who drops something looks for what
//! depends on it under the exclusive lock: neither misses the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::path::PUBLIC;
use super::trigger::Trigger;
use super::{Dict, ForeignKey, Object, Sequence, Table, View};
use crate::bind::names::quote;
use crate::ddl::trigger_condition;

/// A thing that can depend, or be depended on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    Table(u32),
    View(u32),
    Sequence(u32),
    Schema(u32),
    Type(u32),
    /// A column by its place, from 0.
    Column(u32, usize),
    /// An attribute of a composite type, by its place.
    Attribute(u32, usize),
    /// A column's default.
    Default(u32, usize),
    /// Of a table, by their own object ids.
    Index(u32, u32),
    ForeignKey(u32, u32),
    /// A table's check, by its place.
    Check(u32, usize),
    /// Of a domain, by its own object id.
    DomainCheck(u32, u32),
    Function(u32),
    Extension(u32),
    /// Of a table, by its own object id.
    Trigger(u32, u32),
    /// Of a table, by its own object id.
    Policy(u32, u32),
    Cast(u32),
}

impl Address {
    /// By which dependents are put in order: as in PostgreSQL, the newest goes first.
    fn age(self) -> (u32, usize) {
        match self {
            Address::Table(oid)
            | Address::View(oid)
            | Address::Sequence(oid)
            | Address::Schema(oid)
            | Address::Function(oid)
            | Address::Extension(oid)
            | Address::Type(oid)
            | Address::Cast(oid)
            | Address::Index(_, oid)
            | Address::Trigger(_, oid)
            | Address::Policy(_, oid)
            | Address::DomainCheck(_, oid)
            | Address::ForeignKey(_, oid) => (oid, 0),
            Address::Column(oid, at)
            | Address::Attribute(oid, at)
            | Address::Default(oid, at)
            | Address::Check(oid, at) => (oid, at + 1),
        }
    }
}

/// A dependent. One that goes with what it depends on without a word is `auto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dependent {
    pub what: Address,
    pub auto: bool,
}

impl Dict {
    /// What depends on a thing directly, the newest first.
    pub fn dependents(&self, of: Address) -> Vec<Dependent> {
        let mut found = match of {
            Address::Table(oid) => {
                let mut found = self.readers(oid, None);
                found.extend(self.policies_reading(oid, None));
                found.extend(self.owned(oid, None));
                found.extend(self.foreign_keys(oid, &|_| true));
                found.extend(self.of_rows(oid));
                found.extend(self.constrained_from(oid));
                found.extend(self.trigger_bodies(oid, None));
                found.extend(self.giving_rows_of(oid));
                let own = self.table_by_oid(oid).map(|t| t.row_type);
                let numbers = own.unwrap_or_default().into_iter().filter(|n| *n != 0);
                let naming = numbers.flat_map(|number| self.naming(number));
                found.extend(naming.filter(|d| self.table_of(d.what).is_none_or(|t| t.oid != oid)));
                found.extend(self.definitions_with_rows(oid));
                found
            }
            Address::View(oid) => {
                let mut found = self.readers(oid, None);
                found.extend(self.policies_reading(oid, None));
                found.extend(self.trigger_bodies(oid, None));
                found
            }
            Address::Column(oid, at) => {
                let mut found = self.readers(oid, Some(at));
                found.extend(self.policies_reading(oid, Some(at)));
                found.extend(self.owned(oid, Some(at)));
                found.extend(self.made_of(oid, at));
                found.extend(self.fired_by(oid, at));
                found.extend(self.foreign_keys(oid, &|k| k.parent_columns.contains(&at)));
                found
            }
            Address::Index(table, oid) => self.foreign_keys(table, &|k| k.index == oid),
            Address::Sequence(oid) => self.drawing(oid),
            Address::Schema(oid) => self.members(oid),
            Address::Function(oid) => {
                let mut found = self.callers(oid);
                found.extend(self.casts_needing(&[oid]));
                found.extend(self.ranges_measured_by(oid));
                found
            }
            Address::Type(oid) => self.of_type(oid),
            Address::Extension(oid) => self.extension_members(oid),
            Address::Default(..)
            | Address::Attribute(..)
            | Address::ForeignKey(..)
            | Address::Check(..)
            | Address::DomainCheck(..)
            | Address::Cast(_)
            | Address::Policy(..) => Vec::new(),
            Address::Trigger(oid, trigger) => self.trigger_bodies(oid, Some(trigger)),
        };
        found.sort_by_key(|d| std::cmp::Reverse(d.what.age()));
        found
    }

    /// Views that read a relation, or a column of it.
    fn readers(&self, oid: u32, column: Option<usize>) -> Vec<Dependent> {
        let column = column.map(|at| at as i16 + 1);
        let views = self.maps.needing(oid).filter_map(|o| match o {
            Object::View(v) if v.reads(oid, column) => Some(Address::View(v.oid)),
            Object::Table(t) => {
                let made = t.materialized.as_ref()?;
                made.reads(oid, column).then_some(Address::Table(t.oid))
            }
            _ => None,
        });
        let each = views.map(|what| Dependent { what, auto: false });
        each.collect()
    }

    /// Policies that read a relation, or a column of it. Those of the table itself go with it.
    fn policies_reading(&self, oid: u32, column: Option<usize>) -> Vec<Dependent> {
        let own = self.table_by_oid(oid).filter(|_| column.is_some());
        let others = self.maps.needing(oid).filter_map(|o| match o {
            Object::Table(t) if t.oid != oid => Some(t),
            _ => None,
        });
        let column = column.map(|at| at as i16 + 1);
        let policies = own.into_iter().chain(others);
        let policies = policies.flat_map(|t| t.policies.iter().map(|p| (t.oid, p)));
        let policies = policies.filter(|(_, p)| p.reads(oid, column));
        let each = policies.map(|(table, p)| Dependent {
            what: Address::Policy(table, p.oid),
            auto: false,
        });
        each.collect()
    }

    /// Functions that are bodies of triggers of a relation, or of one of them.
    fn trigger_bodies(&self, oid: u32, only: Option<u32>) -> Vec<Dependent> {
        let relation = self.with_triggers(oid);
        let triggers = relation.iter().flat_map(|t| &t.triggers);
        let triggers = triggers.filter(|g| only.is_none_or(|only| g.oid == only));
        let is_part = |f: &u32| {
            let function = self.function_by_oid(*f);
            function.is_some_and(|f| f.trigger_of.is_some())
        };
        let bodies = triggers.map(|g| g.function).filter(is_part);
        let each = bodies.map(|oid| Dependent {
            what: Address::Function(oid),
            auto: true,
        });
        each.collect()
    }

    /// Functions with the row type of a table as result, or of a parameter.
    fn giving_rows_of(&self, table: u32) -> Vec<Dependent> {
        let row_types = self.table_by_oid(table).map_or([0; 2], |t| t.row_type);
        let has = |oid: u32| oid != 0 && row_types.contains(&oid);
        let takes = |f: &super::Function| {
            let arguments = f.arguments.iter().map(|a| a.type_oid);
            let mut all = arguments.chain(f.parameters.iter().map(|p| p.type_oid));
            all.any(has) || has(f.result)
        };
        let functions = self.functions();
        let functions = functions.filter(|f| f.row_of == Some(table) || takes(f));
        let each = functions.map(|f| Dependent {
            what: Address::Function(f.oid),
            auto: false,
        });
        each.collect()
    }

    /// Casts of the type of a table's rows, and functions that have parameters of it.
    fn definitions_with_rows(&self, table: u32) -> Vec<Dependent> {
        let numbers = self.table_by_oid(table).map(|t| t.row_type);
        let numbers = numbers.unwrap_or_default();
        let mut found = self.casts_needing(&numbers);
        let all = self.of_type_numbers(&numbers);
        let functions = all.iter().filter_map(|o| match o {
            Object::Function(f) => Some(Address::Function(f.oid)),
            _ => None,
        });
        found.extend(functions.map(|what| Dependent { what, auto: false }));
        found
    }

    /// Casts from or to one of these types, or by one of these functions.
    fn casts_needing(&self, oids: &[u32]) -> Vec<Dependent> {
        let all = self.of_type_numbers(oids);
        let casts = all.iter().filter_map(|o| match o {
            Object::Cast(c) => Some(Address::Cast(c.oid)),
            _ => None,
        });
        let each = casts.map(|what| Dependent { what, auto: false });
        each.collect()
    }

    /// Range types whose bounds a function tells the distance of.
    fn ranges_measured_by(&self, function: u32) -> Vec<Dependent> {
        let types = self.maps.needing(function).filter_map(|o| match o {
            Object::Type(t) if t.range.as_ref()?.difference == function => {
                Some(Address::Type(t.oid))
            }
            _ => None,
        });
        types.map(|what| Dependent { what, auto: false }).collect()
    }

    /// Generated columns that are made of a column.
    fn made_of(&self, table: u32, at: usize) -> Vec<Dependent> {
        let Some(t) = self.table_by_oid(table) else {
            return Vec::new();
        };
        // A definition whose text cannot be read was refused when it was made.
        let made = crate::ddl::generated::made_of(t, at).unwrap_or_default();
        let each = made.into_iter().map(|made| Dependent {
            what: Address::Column(table, made),
            auto: false,
        });
        each.collect()
    }

    /// Constraint triggers that say FROM a table.
    fn constrained_from(&self, from: u32) -> Vec<Dependent> {
        let tables = self.maps.needing(from).filter_map(|o| match o {
            Object::Table(t) => Some(t),
            _ => None,
        });
        let triggers = tables.flat_map(|t| t.triggers.iter().map(move |g| (t.oid, g)));
        let says = |g: &Trigger| g.constraint.as_ref().is_some_and(|c| c.from == from);
        let triggers = triggers.filter(|(_, g)| says(g));
        let each = triggers.map(|(table, g)| Dependent {
            what: Address::Trigger(table, g.oid),
            auto: true,
        });
        each.collect()
    }

    /// Triggers that a change of a column fires, or whose conditions name it.
    fn fired_by(&self, table: u32, at: usize) -> Vec<Dependent> {
        let Some(t) = self.table_by_oid(table) else {
            return Vec::new();
        };
        let column = &t.columns[at].name;
        // A condition that cannot be read was refused when it was made.
        let names = |text: &String| trigger_condition::names_column(text, column).unwrap_or(false);
        let uses = |g: &&Trigger| g.columns.contains(&at) || g.when.as_ref().is_some_and(names);
        let triggers = t.triggers.iter().filter(uses);
        let each = triggers.map(|g| Dependent {
            what: Address::Trigger(table, g.oid),
            auto: false,
        });
        each.collect()
    }

    /// Sequences that go with a table, or a column of it.
    fn owned(&self, table: u32, column: Option<usize>) -> Vec<Dependent> {
        let own = |owner: (u32, usize)| owner.0 == table && column.is_none_or(|c| c == owner.1);
        let sequences = self.owned_sequences(table).into_iter();
        let sequences = sequences.filter(|s| s.owner.is_some_and(own));
        let each = sequences.map(|s| Dependent {
            what: Address::Sequence(s.oid),
            auto: true,
        });
        each.collect()
    }

    /// Foreign keys that reference a table.
    fn foreign_keys(&self, parent: u32, wanted: &dyn Fn(&ForeignKey) -> bool) -> Vec<Dependent> {
        let keys = self.referencing(parent).into_iter();
        let keys = keys.filter(|(_, key)| wanted(key));
        let each = keys.map(|(child, key)| Dependent {
            what: Address::ForeignKey(child, key.oid),
            auto: false,
        });
        each.collect()
    }

    /// Defaults that draw from a sequence.
    fn drawing(&self, sequence: u32) -> Vec<Dependent> {
        let Some(s) = self.sequence_by_oid(sequence) else {
            return Vec::new();
        };
        let written = self.written_names(s).into_iter();
        let mut tables: BTreeMap<u32, &Arc<Table>> = BTreeMap::new();
        let named = written.flat_map(|text| self.maps.drawing(&text).collect::<Vec<_>>());
        for o in self.maps.needing(sequence).chain(named) {
            if let Object::Table(t) = o {
                tables.insert(t.oid, t);
            }
        }
        let mut found = Vec::new();
        for t in tables.into_values() {
            let draws = |(at, c): (usize, &super::Column)| {
                let own = c.sequence == Some(sequence);
                let own = own && c.identity.is_some();
                let named = c.default.as_deref();
                let named = named.is_some_and(|d| self.draws_from(d, sequence));
                (own || named).then_some(Dependent {
                    what: Address::Default(t.oid, at),
                    auto: false,
                })
            };
            found.extend(t.live_columns().filter_map(draws));
        }
        found
    }

    /// Whether the text of a default names a sequence, as [`crate::ddl`] writes it.
    fn draws_from(&self, default: &str, sequence: u32) -> bool {
        let Some(s) = self.sequence_by_oid(sequence) else {
            return false;
        };
        // Most defaults name none, and are not looked at closer.
        let plain = !s.name.contains(['\'', '"']);
        if !default.contains("nextval(") || plain && !default.contains(&s.name) {
            return false;
        }
        let mut forms = self.draws(s).into_iter();
        forms.any(|form| default.contains(form.trim_end_matches(')')))
    }

    /// Whether a default draws from a sequence and does nothing else.
    pub fn is_serial_default(&self, default: &str, sequence: u32) -> bool {
        let s = self.sequence_by_oid(sequence);
        s.is_some_and(|s| self.draws(s).iter().any(|form| form == default))
    }

    /// A sequence's name as literals in defaults have it.
    fn written_names(&self, s: &Sequence) -> Vec<String> {
        let mut names = vec![self.full_name(s.schema, &s.name)];
        if s.schema == PUBLIC {
            // Older definitions, which knew no schema.
            names.push(quote(&s.name));
        }
        let written = |name: String| name.replace('\'', "''");
        names.into_iter().map(written).collect()
    }

    /// The calls that draw from a sequence.
    fn draws(&self, s: &Sequence) -> Vec<String> {
        let names = self.written_names(s).into_iter();
        names.map(|name| format!("nextval('{name}')")).collect()
    }

    /// Columns of a type, of arrays of it, or of domains over these: the table and the place of
    /// each.
    pub fn columns_of_type(&self, oid: u32) -> Vec<(u32, usize)> {
        let mut numbers = Vec::new();
        for oid in std::iter::once(oid).chain(self.domains_over(oid)) {
            let ty = self.user_type_by_oid(oid);
            numbers.extend(ty.into_iter().flat_map(|t| [t.oid, t.array_oid]));
        }
        if numbers.is_empty() {
            return Vec::new();
        }
        self.columns_of_numbers(&numbers)
    }

    pub(super) fn columns_of_numbers(&self, numbers: &[u32]) -> Vec<(u32, usize)> {
        let of_table = |t: &Arc<Table>| {
            let columns = t.live_columns();
            let columns = columns.filter(|(_, c)| numbers.contains(&c.type_oid));
            columns.map(|(at, _)| (t.oid, at)).collect::<Vec<_>>()
        };
        self.of_type_numbers(numbers)
            .iter()
            .filter_map(|o| match o {
                Object::Table(t) => Some(t),
                _ => None,
            })
            .flat_map(of_table)
            .collect()
    }

    /// What needs one of these types, by object id.
    fn of_type_numbers(&self, numbers: &[u32]) -> Vec<&Object> {
        let all = numbers.iter().flat_map(|oid| self.maps.needing(*oid));
        let by_key: BTreeMap<i64, &Object> = all.map(|o| (o.key(), o)).collect();
        by_key.into_values().collect()
    }

    /// Columns of tables, functions, domains, and views that have a column of it by themselves.
    fn of_type(&self, oid: u32) -> Vec<Dependent> {
        let numbers = self.user_type_by_oid(oid).map(|t| [t.oid, t.array_oid]);
        let numbers = numbers.unwrap_or_default();
        let own = |(table, at): &(u32, usize)| {
            let table = self.table_by_oid(*table);
            table.is_some_and(|t| numbers.contains(&t.columns[*at].type_oid))
        };
        let columns = self.columns_of_type(oid).into_iter().filter(own);
        let columns = columns.map(|(table, at)| Address::Column(table, at));
        let has = |v: &View| v.columns.iter().any(|c| numbers.contains(&c.type_oid));
        let attributes = self.attributes_of_type(oid).into_iter();
        let attributes = attributes.map(|(ty, at)| Address::Attribute(ty, at));
        let all = self.of_type_numbers(&numbers);
        let others = all.iter().filter_map(|o| match o {
            Object::View(v) if has(v) => Some(Address::View(v.oid)),
            Object::Function(f) => Some(Address::Function(f.oid)),
            Object::Type(t) => {
                let base = t.domain.as_ref().map(|d| d.base);
                let base = base.or(t.range.as_ref().map(|r| r.subtype));
                base.filter(|base| numbers.contains(base))
                    .map(|_| Address::Type(t.oid))
            }
            Object::Cast(c) => Some(Address::Cast(c.oid)),
            _ => None,
        });
        let all = columns.chain(attributes).chain(others);
        let mut found: Vec<Dependent> = all.map(|what| Dependent { what, auto: false }).collect();
        // Multiranges go with their ranges.
        let range = self.user_type_by_oid(oid).and_then(|t| t.range.as_ref());
        found.extend(range.map(|r| Dependent {
            what: Address::Type(r.multirange),
            auto: true,
        }));
        for naming in numbers.iter().flat_map(|number| self.naming(*number)) {
            if !found.contains(&naming) {
                found.push(naming);
            }
        }
        found
    }

    /// Columns and attributes of the type of a table's rows.
    fn of_rows(&self, table: u32) -> Vec<Dependent> {
        let Some(table) = self.table_by_oid(table) else {
            return Vec::new();
        };
        let (columns, attributes) = self.uses_of_rows(table);
        let others = columns.into_iter().filter(|(of, _)| *of != table.oid);
        let columns = others.map(|(table, at)| Address::Column(table, at));
        let attributes = attributes.into_iter();
        let all = columns.chain(attributes.map(|(ty, at)| Address::Attribute(ty, at)));
        all.map(|what| Dependent { what, auto: false }).collect()
    }

    fn members(&self, schema: u32) -> Vec<Dependent> {
        let all = self.maps.needing(schema).filter_map(|o| match o {
            Object::Table(t) => Some((Address::Table(t.oid), false)),
            Object::View(v) => Some((Address::View(v.oid), false)),
            Object::Extension(e) => Some((Address::Extension(e.oid), false)),
            // What an extension has made is found by it.
            Object::Type(t) if t.extension.is_some() => None,
            Object::Function(f) if f.extension.is_some() => None,
            Object::Type(t) => Some((Address::Type(t.oid), false)),
            // A sequence that goes with its table is not told of.
            Object::Sequence(s) => Some((Address::Sequence(s.oid), s.owner.is_some())),
            Object::Function(f) => Some((Address::Function(f.oid), f.trigger_of.is_some())),
            _ => None,
        });
        all.map(|(what, auto)| Dependent { what, auto }).collect()
    }

    /// What a DROP names: an index that makes a constraint is one.
    pub fn describe_root(&self, what: Address) -> String {
        let Address::Index(oid, index) = what else {
            return self.describe(what);
        };
        let found = self.table_by_oid(oid).and_then(|t| {
            let found = t.indexes.iter().find(|i| i.oid == index)?;
            (found.constraint != 0).then(|| (t, found.name.clone()))
        });
        match found {
            Some((t, name)) => {
                let table = self.shown(t.schema, &t.name);
                format!("constraint {name} on table {table}")
            }
            None => self.describe(what),
        }
    }

    /// A thing in the words of PostgreSQL's messages, where names of relations, types and functions
    /// are quoted, if they must be, and others are not.
    pub fn describe(&self, what: Address) -> String {
        let table = |oid: u32| match self.table_by_oid(oid) {
            Some(t) => format!("{} {}", t.word(), self.shown(t.schema, &t.name)),
            None => match self.view_by_oid(oid) {
                Some(v) => format!("view {}", self.shown(v.schema, &v.name)),
                None => format!("table {oid}"),
            },
        };
        let column = |oid: u32, at: usize| {
            let name = self.table_by_oid(oid).and_then(|t| t.columns.get(at));
            let name = name.map(|c| &c.name);
            let of_view = || Some(&self.view_by_oid(oid)?.columns.get(at)?.name);
            let name = name.or_else(of_view).map_or(String::new(), String::clone);
            format!("column {name} of {}", table(oid))
        };
        match what {
            Address::Table(oid) | Address::View(oid) => table(oid),
            Address::Sequence(oid) => match self.sequence_by_oid(oid) {
                Some(s) => format!("sequence {}", self.shown(s.schema, &s.name)),
                None => format!("sequence {oid}"),
            },
            Address::Schema(oid) => format!("schema {}", self.schema_name(oid)),
            Address::Extension(oid) => match self.extension_by_oid(oid) {
                Some(e) => format!("extension {}", e.name),
                None => format!("extension {oid}"),
            },
            Address::Type(oid) => match self.user_type_by_oid(oid) {
                Some(t) => format!("type {}", self.shown_type(t)),
                None => format!("type {oid}"),
            },
            Address::Cast(oid) => {
                let cast = self.cast_by_oid(oid);
                let name = |oid: u32| self.type_of(oid).map_or("???", |ty| ty.name());
                cast.map_or_else(
                    || format!("cast {oid}"),
                    |c| format!("cast from {} to {}", name(c.source), name(c.target)),
                )
            }
            Address::Column(oid, at) => column(oid, at),
            Address::Attribute(oid, at) => match self.user_type_by_oid(oid) {
                Some(t) => crate::ddl::composite::described(t, at, &self.shown_type(t)),
                None => format!("type {oid}"),
            },
            Address::Default(oid, at) => format!("default value for {}", column(oid, at)),
            Address::Index(oid, index) => {
                let found = self.table_by_oid(oid).and_then(|t| {
                    let found = t.indexes.iter().find(|i| i.oid == index)?;
                    Some((t.schema, &found.name))
                });
                let name = found.map_or(String::new(), |(schema, name)| self.shown(schema, name));
                format!("index {name}")
            }
            Address::ForeignKey(oid, key) => {
                let found = self.table_by_oid(oid).and_then(|t| t.foreign_key(key));
                let name = found.map_or(String::new(), |k| k.name.clone());
                format!("constraint {name} on {}", table(oid))
            }
            Address::Check(oid, at) => {
                let found = self.table_by_oid(oid).and_then(|t| t.checks.get(at));
                let name = found.map_or(String::new(), |c| c.name.clone());
                format!("constraint {name} on {}", table(oid))
            }
            Address::DomainCheck(oid, check) => {
                let domain = self.user_type_by_oid(oid).and_then(|t| t.domain.as_ref());
                let found = domain.and_then(|d| d.checks.iter().find(|c| c.oid == check));
                let name = found.map_or(String::new(), |c| c.name.clone());
                format!("constraint {name}")
            }
            Address::Trigger(oid, trigger) => {
                let found = self.with_triggers(oid);
                let mut triggers = found.iter().flat_map(|t| &t.triggers);
                let found = triggers.find(|g| g.oid == trigger);
                let name = found.map_or(String::new(), |g| g.name.clone());
                format!("trigger {name} on {}", table(oid))
            }
            Address::Policy(oid, policy) => {
                let found = self.table_by_oid(oid);
                let found = found.and_then(|t| t.policies.iter().find(|p| p.oid == policy));
                let name = found.map_or(String::new(), |p| p.name.clone());
                format!("policy {name} on {}", table(oid))
            }
            Address::Function(oid) => match self.function_by_oid(oid) {
                Some(f) => {
                    let signature = f.signature();
                    let types = signature.get(f.name.len()..).unwrap_or_default();
                    let signature = format!("{}{types}", quote(&f.name));
                    match crate::views::is_function_visible(self, f) {
                        true => format!("function {signature}"),
                        false => {
                            let schema = quote(self.schema_name(f.schema));
                            format!("function {schema}.{signature}")
                        }
                    }
                }
                None => format!("function {oid}"),
            },
        }
    }

    /// The table that has a part.
    pub fn table_of(&self, what: Address) -> Option<&Arc<Table>> {
        match what {
            Address::Table(oid)
            | Address::Column(oid, _)
            | Address::Default(oid, _)
            | Address::Index(oid, _)
            | Address::Check(oid, _)
            | Address::Trigger(oid, _)
            | Address::Policy(oid, _)
            | Address::ForeignKey(oid, _) => self.table_by_oid(oid),
            _ => None,
        }
    }
}
