//! What calls a function: definitions whose texts do.
//!
//! A text names what it calls by number ([`super::texts`]). Those that were stored when texts had
//! names only have that alone, and not the types: with several functions of a name, whatever calls
//! one of them so counts for each.

use std::ops::ControlFlow;

use sqlparser::ast::{self, visit_expressions};

use super::depend::{Address, Dependent};
use super::trigger::Trigger;
use super::{Dict, Function, Object};
use crate::bind::names;
use crate::expr::func::overloads;
use crate::parse;

impl Dict {
    /// What calls a function, or is run by it.
    pub(super) fn callers(&self, function: u32) -> Vec<Dependent> {
        let Some(function) = self.function_by_oid(function) else {
            return Vec::new();
        };
        let mut found = self.naming(function.oid);
        found.extend(self.calling_by_name(function));
        let run_by = |relation: u32, triggers: &[Trigger]| -> Vec<Address> {
            let triggers = triggers.iter().filter(|g| g.function == function.oid);
            triggers
                .map(|g| Address::Trigger(relation, g.oid))
                .collect()
        };
        for object in self.maps.needing(function.oid) {
            let triggers = match object {
                Object::Table(t) => run_by(t.oid, &t.triggers),
                Object::View(v) => run_by(v.oid, &v.triggers),
                _ => Vec::new(),
            };
            found.extend(
                triggers
                    .into_iter()
                    .map(|what| Dependent { what, auto: false }),
            );
        }
        found
    }

    /// What calls a function in a text that has its name, not its number.
    pub fn calling_by_name(&self, function: &Function) -> Vec<Dependent> {
        let name = function.name.as_str();
        // A name without a number is that of a built-in function, if there is one.
        if !overloads(name).is_empty() {
            return Vec::new();
        }
        let tables = self.tables().map(|t| Object::Table(t.clone()));
        let views = self.views().map(|v| Object::View(v.clone()));
        let mut found: Vec<Dependent> = Vec::new();
        for object in tables.chain(views) {
            for (what, text) in object.texts() {
                let calls = match what {
                    Address::View(_) | Address::Table(_) | Address::Policy(..) => query_calls,
                    _ => expression_calls,
                };
                if calls(text, name) && !found.iter().any(|d| d.what == what) {
                    found.push(Dependent { what, auto: false });
                }
            }
        }
        found
    }
}

/// Most texts do not have the name at all, and are not looked at closer.
fn expression_calls(text: &str, name: &str) -> bool {
    text.contains(name) && parse::expression(text).is_ok_and(|e| calls(&e, name))
}

fn query_calls(text: &str, name: &str) -> bool {
    let parsed = || match parse::statement(text) {
        Ok(parse::Command::Sql(statement)) => calls(&*statement, name),
        _ => false,
    };
    text.contains(name) && parsed()
}

fn calls(tree: &impl ast::Visit, name: &str) -> bool {
    let visited = visit_expressions(tree, |e| {
        let ast::Expr::Function(f) = e else {
            return ControlFlow::Continue(());
        };
        match names::Qualified::new(&f.name) {
            Ok(called) if called.name == name && called.number().is_none() => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    });
    visited.is_break()
}
