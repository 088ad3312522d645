//! Definitions that are stored have the numbers of the functions and types of users that their
//! texts name ([`crate::bind::numbered`]).
//!
//! **Invariants.**
//! - Every expression passes here on its way into the dictionary ([`Core::define`]); texts of
//!   queries, which views and policies are kept as, get their numbers where these are analysed
//!   ([`super::view`]).
//! - What a new text names is locked until the transaction ends, so that nobody drops it meanwhile.
//! - A text that was stored before stays as it is.

use std::collections::HashSet;
use std::sync::Arc;

use super::Core;
use crate::bind::domain::scope_of_value;
use crate::bind::{Scope, numbered};
use crate::dict::{Dict, Function, Object, Table, UserType, View};
use crate::error::Result;
use crate::parse::utility::TableLock;

/// A definition with numbers in the texts that are new in it.
pub fn given(core: &mut Core, object: Object) -> Result<Object> {
    loop {
        let dict = core.dict();
        let mut found = Numbers::of(&dict, &object);
        let next = found.of_object(&object)?;
        let Some(next) = next.filter(|_| !found.numbers.is_empty()) else {
            return Ok(object);
        };
        for number in &found.numbers {
            core.lock_table(holder(&dict, *number), TableLock::AccessShare, false)?;
        }
        if core.dict().version() == dict.version() {
            return Ok(next);
        }
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
    }
}

/// What is locked for the sake of a number: arrays go with their type, and rows with their table.
pub(super) fn holder(dict: &Dict, number: u32) -> u32 {
    let ty = dict.user_type_by_oid(number).map(|t| t.oid);
    let table = || dict.table_of_row_type(number).map(|t| t.oid);
    ty.or_else(table).unwrap_or(number)
}

struct Numbers<'d> {
    dict: &'d Dict,
    /// Texts that were stored before.
    known: HashSet<String>,
    /// What the new ones name.
    numbers: Vec<u32>,
}

impl Numbers<'_> {
    fn of<'d>(dict: &'d Dict, object: &Object) -> Numbers<'d> {
        let before = dict.entry(object.key());
        let known = before.iter().flat_map(|e| e.object.texts());
        Numbers {
            dict,
            known: known.map(|(_, text)| text.to_string()).collect(),
            numbers: Vec::new(),
        }
    }

    /// `None`: it has no texts of expressions.
    fn of_object(&mut self, object: &Object) -> Result<Option<Object>> {
        Ok(match object {
            Object::Table(t) if !object.texts().is_empty() => {
                let mut next = Table::clone(t);
                self.of_table(&mut next)?;
                Some(Object::Table(Arc::new(next)))
            }
            Object::View(v) => {
                let mut next = View::clone(v);
                let table = v.as_table();
                for column in &mut next.columns {
                    self.text(column.default.as_mut(), &Scope::default())?;
                }
                for trigger in &mut next.triggers {
                    self.text(trigger.when.as_mut(), &of_rows(&table))?;
                }
                Some(Object::View(Arc::new(next)))
            }
            Object::Function(f) => {
                let mut next = Function::clone(f);
                for argument in &mut next.arguments {
                    self.text(argument.default.as_mut(), &Scope::default())?;
                }
                Some(Object::Function(Arc::new(next)))
            }
            Object::Type(t) if t.domain.is_some() => {
                let mut next = UserType::clone(t);
                if let Some(domain) = &mut next.domain
                    && let Some(base) = self.dict.type_of(domain.base)
                {
                    let scope = scope_of_value(base.base(), base.domain_typmod());
                    self.text(domain.default.as_mut(), &Scope::default())?;
                    for check in &mut domain.checks {
                        self.text(Some(&mut check.text), &scope)?;
                    }
                }
                Some(Object::Type(Arc::new(next)))
            }
            _ => None,
        })
    }

    fn of_table(&mut self, table: &mut Table) -> Result<()> {
        let mut scope = Scope::of_table(table, &table.name);
        scope.add_system(&table.name, table.columns.len(), false);
        let rows = of_rows(table);
        for column in table.columns.iter_mut().filter(|c| !c.dropped) {
            let row = Scope::default();
            let scope = if column.generated { &scope } else { &row };
            self.text(column.default.as_mut(), scope)?;
        }
        for check in &mut table.checks {
            self.text(Some(&mut check.text), &scope)?;
        }
        for index in &mut table.indexes {
            let texts = index.expressions.iter_mut().map(|e| &mut e.text);
            for text in texts.chain(&mut index.predicate) {
                self.text(Some(text), &scope)?;
            }
        }
        for trigger in &mut table.triggers {
            self.text(trigger.when.as_mut(), &rows)?;
        }
        Ok(())
    }

    fn text(&mut self, text: Option<&mut String>, scope: &Scope) -> Result<()> {
        let Some(text) = text.filter(|text| !self.known.contains(*text)) else {
            return Ok(());
        };
        if let Some((next, numbers)) = numbered::of_expression(self.dict, scope, text)? {
            *text = next;
            self.numbers.extend(numbers);
        }
        Ok(())
    }
}

/// The rows that the condition of a trigger names.
fn of_rows(table: &Table) -> Scope {
    let mut scope = Scope::of_table(table, "new");
    scope.add_table(table, "old", table.columns.len());
    scope
}
