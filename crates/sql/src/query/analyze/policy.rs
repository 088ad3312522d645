//! Row-level security of a table that a query reads: the conditions that its rows must meet before
//! anything else is asked of them.
//!
//! **Invariants.**
//! - The conditions stand with the table, whatever the query around it is, and are looked at before
//!   every other condition that could tell of a row (`query::optimize::access`).
//! - Names in a policy are those of its own table and of its sources; nothing of the query around
//!   is seen, and no variable.
//! - The columns of the policy's own table need no privilege, but those that its subqueries read
//!   do.

use std::ops::ControlFlow;
use std::sync::Arc;

use sqlparser::ast;

use super::Analyzer;
use super::expression::Clause;
use super::scope::{Column, File, Scope};
use super::with::Known;
use crate::bind::needs::Text;
use crate::bind::{ParamTypes, Typed, names};
use crate::dict::policy::{Clause as Asked, Policy, PolicyFor, Which};
use crate::dict::role::FIRST_SUPERUSER;
use crate::dict::{Dict, Table};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::parse::{self, Command};
use crate::query::plan::Register;

/// What errors call the clause that an expression of a policy stands in.
pub const CLAUSE: &str = "policy expressions";

/// A table of FROM as row-level security sees it.
#[derive(Debug, Default)]
pub struct Security {
    /// All of them must hold, the first ones first.
    pub conditions: Vec<Expr>,
    /// The policies that hold for the role; `None`: its rows are kept from nobody here.
    policies: Option<Vec<u32>>,
    /// Whose text names the table.
    text: Text,
    /// The groups of policies that are among the conditions.
    asked: Vec<Vec<u32>>,
}

/// What is done with the rows of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// They are found in order to be updated or deleted.
    pub write: Option<PolicyFor>,
    /// The query reads columns of them.
    pub reads: bool,
}

impl Use {
    pub const READ: Use = Use {
        write: None,
        reads: true,
    };

    /// As the name of a write's target has it: `w` or `d` for what is done with the rows, and `r`
    /// if they are read.
    pub fn letters(self) -> &'static str {
        match (self.write, self.reads) {
            (Some(PolicyFor::Update), true) => "wr",
            (Some(PolicyFor::Update), false) => "w",
            (Some(PolicyFor::Delete), true) => "dr",
            (Some(PolicyFor::Delete), false) => "d",
            _ => "r",
        }
    }

    pub fn of_letters(letters: &str) -> Use {
        let write = match letters.chars().next() {
            Some('w') => Some(PolicyFor::Update),
            Some('d') => Some(PolicyFor::Delete),
            _ => None,
        };
        Use {
            write,
            reads: letters.ends_with('r'),
        }
    }
}

/// Registers of a table's columns, and of its row id.
#[derive(Clone, Copy)]
pub(super) struct Registers<'r> {
    pub columns: &'r [Register],
    pub row_id: Register,
}

impl Analyzer<'_> {
    /// What rows of a table must meet for a use by the role that the query is for.
    pub(super) fn security(
        &self,
        table: &Arc<Table>,
        at: Registers<'_>,
        used: Use,
        scope: &Scope<'_>,
    ) -> Result<Security> {
        let needs = &self.params.needs;
        let mut security = Security {
            policies: needs.policies_of(self.dict, table)?,
            text: needs.text(),
            ..Security::default()
        };
        let commands = [used.write, used.reads.then_some(PolicyFor::Select)];
        for command in commands.into_iter().flatten() {
            self.secure(&mut security, table, at, command, scope)?;
        }
        Ok(security)
    }

    /// Adds that the rows are locked: only what the role may update.
    pub(super) fn secure_locked(
        &self,
        security: &mut Security,
        table: &Arc<Table>,
        at: Registers<'_>,
        scope: &Scope<'_>,
    ) -> Result<()> {
        let around = self.params.needs.enter(security.text);
        let done = self.secure(security, table, at, PolicyFor::Update, scope);
        self.params.needs.leave(around);
        done
    }

    fn secure(
        &self,
        security: &mut Security,
        table: &Arc<Table>,
        at: Registers<'_>,
        command: PolicyFor,
        scope: &Scope<'_>,
    ) -> Result<()> {
        let Some(holding) = &security.policies else {
            return Ok(());
        };
        let clauses = table.clauses(holding, command, Which::Using);
        // The restrictive ones come first, as in PostgreSQL.
        for clause in clauses.iter().skip(1).chain(clauses.first()) {
            let group: Vec<u32> = clause.any_of.iter().map(|(p, _)| p.oid).collect();
            if security.asked.contains(&group) {
                continue;
            }
            let condition = self.clause(clause, table, at, scope)?;
            security.conditions.push(condition);
            security.asked.push(group);
        }
        Ok(())
    }

    fn clause(
        &self,
        clause: &Asked<'_>,
        table: &Arc<Table>,
        at: Registers<'_>,
        scope: &Scope<'_>,
    ) -> Result<Expr> {
        let each = clause.any_of.iter();
        let each = each.map(|(policy, text)| self.policy(policy, text, table, at, scope));
        let mut each = each.collect::<Result<Vec<_>>>()?;
        Ok(match each.len() {
            0 => Expr::Const(block::value::Datum::Bool(false)),
            1 => each.remove(0),
            _ => Expr::Or(each),
        })
    }

    /// An expression of a policy over the columns of its table.
    fn policy(
        &self,
        policy: &Policy,
        text: &str,
        table: &Arc<Table>,
        at: Registers<'_>,
        scope: &Scope<'_>,
    ) -> Result<Expr> {
        self.may_nest()?;
        let written = Written::of(text)?;
        let needs = &self.params.needs;
        if written.has_subquery() && needs.is_securing(table.oid) {
            let message = format!(
                "infinite recursion detected in policy for relation \"{}\"",
                table.name
            );
            return Err(Error::new("42P17", message));
        }
        let mut inside = scope.beside();
        inside.columns = columns(policy, table, &written.alias, at.columns);
        inside.tables = vec![written.alias.clone()];
        inside.rows = vec![(written.alias.clone(), Expr::Column(at.row_id))];
        self.nested.set(self.nested.get() + 1);
        needs.begin_securing(table.oid);
        let known = Known::of_statement(&[]);
        let clause = Clause::new(self, &inside, &known, CLAUSE);
        // Places in its text are none in the statement's.
        let around = self.params.sight.reads_stored(true);
        let bound = self.unnoted(|| clause.binder().condition(&written.expression));
        self.params.sight.reads_stored(around);
        needs.end_securing();
        self.nested.set(self.nested.get() - 1);
        bound.map_err(Error::without_place)
    }
}

/// The columns that a policy can name of its own table, by the names that it has for them.
fn columns(policy: &Policy, table: &Table, alias: &str, registers: &[Register]) -> Vec<Column> {
    let column = |(at, name): (usize, &str)| {
        let c = &table.columns[at];
        Column {
            table: alias.to_string(),
            name: name.to_string(),
            value: Typed {
                expr: Expr::Column(registers[at]),
                ty: c.ty(),
                typmod: c.typmod,
                collation: c.collation(),
            },
            origin: (0, 0),
            merged: false,
            whole: false,
        }
    };
    named_columns(policy, table).map(column).collect()
}

/// Places of the columns of a policy's own table, with the policy's names for them.
pub fn named_columns<'p>(
    policy: &'p Policy,
    table: &'p Table,
) -> impl Iterator<Item = (usize, &'p str)> {
    let own = policy.sources.iter().find(|s| s.oid == table.oid);
    let columns = own.into_iter().flat_map(|s| &s.columns);
    let places = columns.map(|(number, name)| (usize::from(number.unsigned_abs()) - 1, name));
    let live = places.filter(|(at, _)| table.columns.get(*at).is_some_and(|c| !c.dropped));
    live.map(|(at, name)| (at, name.as_str()))
}

/// The text of a policy's expression, taken apart.
pub struct Written {
    pub expression: ast::Expr,
    /// What it calls its own table.
    pub alias: String,
}

impl Written {
    fn has_subquery(&self) -> bool {
        struct Queries;
        impl ast::Visitor for Queries {
            type Break = ();
            fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
                ControlFlow::Break(())
            }
        }
        ast::Visit::visit(&self.expression, &mut Queries).is_break()
    }

    pub fn of(text: &str) -> Result<Written> {
        let damaged = || Error::internal("the text of a policy that is none");
        let Command::Sql(statement) = parse::statement(text)? else {
            return Err(damaged());
        };
        let ast::Statement::Query(query) = *statement else {
            return Err(damaged());
        };
        let ast::SetExpr::Select(mut select) = *query.body else {
            return Err(damaged());
        };
        let (Some(item), Some(from)) = (select.projection.pop(), select.from.pop()) else {
            return Err(damaged());
        };
        let (
            ast::SelectItem::UnnamedExpr(expression),
            ast::TableFactor::Table {
                alias: Some(alias), ..
            },
        ) = (item, from.relation)
        else {
            return Err(damaged());
        };
        Ok(Written {
            expression,
            alias: names::ident(&alias.name),
        })
    }
}

/// Whether the expressions of a policy, which is defined by now, can be used as they are kept.
pub fn check(dict: &Dict, table: u32, policy: u32) -> Result<()> {
    let Some((table, policy)) = dict.policy_by_oid(policy).filter(|(t, _)| t.oid == table) else {
        return Err(Error::internal("a policy that was defined is not there"));
    };
    for text in [&policy.using, &policy.check].into_iter().flatten() {
        bind_alone(dict, policy, text, table)?;
    }
    Ok(())
}

fn bind_alone(dict: &Dict, policy: &Policy, text: &str, table: &Arc<Table>) -> Result<()> {
    let params = ParamTypes::none(dict);
    // What policies of other tables keep from whom is asked when this one is used.
    params.needs.run_by(FIRST_SUPERUSER, true);
    let analyzer = Analyzer::new(dict, &params);
    let file = File::new(None);
    let outermost = Scope::new(None, &file);
    let registers = file.registers(table.columns.len());
    let at = Registers {
        columns: &registers,
        row_id: file.register(),
    };
    let bound = analyzer.policy(policy, text, table, at, &outermost);
    drop(analyzer);
    bound?;
    match params.finish().is_empty() {
        true => Ok(()),
        false => Err(Error::new("42P02", "there is no parameter $1")),
    }
}
