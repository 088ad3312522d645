//! What calls a function: definitions whose texts do.
//!
//! A text has the name of a function, not its types: with several functions of a name, whatever
//! calls one of them counts for each.

use std::ops::ControlFlow;

use sqlparser::ast::{self, visit_expressions};

use super::Dict;
use super::depend::{Address, Dependent};
use crate::bind::names;
use crate::parse;

impl Dict {
    /// What calls a function, or is run by it.
    pub(super) fn callers(&self, function: u32) -> Vec<Dependent> {
        let Some(function) = self.function_by_oid(function) else {
            return Vec::new();
        };
        let name = function.name.as_str();
        let mut found = Vec::new();
        for t in self.tables() {
            let defaults = t.live_columns().filter(|(_, c)| {
                let text = c.default.as_deref();
                text.is_some_and(|text| expression_calls(text, name))
            });
            // What a generated column is made by takes the column with it.
            found.extend(defaults.map(|(at, c)| match c.generated {
                true => Address::Column(t.oid, at),
                false => Address::Default(t.oid, at),
            }));
            let triggers = t.triggers.iter().filter(|g| g.function == function.oid);
            found.extend(triggers.map(|g| Address::Trigger(t.oid, g.oid)));
            let checks = t.checks.iter().enumerate();
            let checks = checks.filter(|(_, c)| expression_calls(&c.text, name));
            found.extend(checks.map(|(at, _)| Address::Check(t.oid, at)));
            let indexes = t.indexes.iter().filter(|i| {
                let mut texts = i.expressions.iter().map(|e| &e.text).chain(&i.predicate);
                texts.any(|text| expression_calls(text, name))
            });
            found.extend(indexes.map(|i| Address::Index(t.oid, i.oid)));
            let policies = t.policies.iter().filter(|p| {
                let mut texts = p.using.iter().chain(&p.check);
                texts.any(|text| query_calls(text, name))
            });
            found.extend(policies.map(|p| Address::Policy(t.oid, p.oid)));
        }
        for v in self.views() {
            let triggers = v.triggers.iter().filter(|g| g.function == function.oid);
            found.extend(triggers.map(|g| Address::Trigger(v.oid, g.oid)));
        }
        let made = |t: &&std::sync::Arc<super::Table>| {
            let query = t.materialized.as_ref().map(|m| m.query.as_str());
            query.is_some_and(|query| query_calls(query, name))
        };
        found.extend(self.tables().filter(made).map(|t| Address::Table(t.oid)));
        let views = self.views().filter(|v| query_calls(&v.query, name));
        found.extend(views.map(|v| Address::View(v.oid)));
        let each = found
            .into_iter()
            .map(|what| Dependent { what, auto: false });
        each.collect()
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
            Ok(called) if called.name == name => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    visited.is_break()
}
