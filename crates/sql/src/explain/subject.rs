//! What EXPLAIN explains: a statement with a plan, or, of EXECUTE, DECLARE and CREATE TABLE AS, the
//! query within it.
//!
//! **Invariant.** What EXPLAIN runs has a plan. A statement that the wire protocol has prepared may
//! be of any kind, COMMIT and EXPLAIN itself among them: EXPLAIN of its EXECUTE runs none of those.

use std::sync::Arc;

use block::value::Datum;
use sqlparser::ast;

use super::{can_run, no_plan};
use crate::ddl;
use crate::error::{Error, Result};
use crate::parse::Utility;
use crate::session::{Kind, SqlSession, Statement};

const TABLE: &str = "CREATE TABLE AS";
const MATERIALIZED: &str = "CREATE MATERIALIZED VIEW";

/// What is explained.
pub(super) enum Subject {
    /// A statement with a plan, and the values of its parameters.
    Planned(Arc<Statement>, Vec<Datum>),
    /// The query that fills a table which the statement makes.
    Filling(Arc<Statement>, Arc<Kind>),
    /// Something without a plan.
    Bare(Bare),
}

/// What is said of something without a plan.
pub(super) struct Bare {
    /// The only line of the text, if it has one.
    pub line: Option<&'static str>,
    /// What other formats say instead of a plan.
    pub name: &'static str,
}

impl Subject {
    /// `analyze`: it is to be run.
    pub fn of(
        session: &mut SqlSession,
        (statement, values): (Arc<Statement>, &[Datum]),
        analyze: bool,
    ) -> Result<Subject> {
        match &statement.kind {
            Kind::Utility(Utility::Execute { name, args }) => {
                session.ensure_transaction()?;
                Subject::executed(session, name, args)
            }
            Kind::Utility(Utility::Declare { options, text, .. }) => {
                let whole = statement.text();
                let before = whole.rfind(&**text).unwrap_or_default();
                let before = whole[..before].chars().count() as u32;
                let given = (statement.param_types(), values);
                let declared = session.declared(text, *options, given);
                let declared = declared.map_err(|e| e.moved(before))?;
                Ok(Subject::Planned(declared, values.to_vec()))
            }
            Kind::Ddl(definition) => Subject::filling(session, &statement, definition, analyze),
            Kind::Empty | Kind::Utility(_) | Kind::Call(_) => Err(no_plan()),
            _ => Ok(Subject::Planned(statement, values.to_vec())),
        }
    }

    /// What EXECUTE would run.
    fn executed(session: &mut SqlSession, name: &str, args: &[ast::Expr]) -> Result<Subject> {
        let (statement, values) = session.executed(name, args)?;
        if can_run(&statement.kind) {
            return Ok(Subject::Planned(statement, values));
        }
        // PostgreSQL shows the plan of the query within these.
        let within = match &statement.kind {
            Kind::Utility(Utility::Execute { .. }) => Some("EXECUTE"),
            Kind::Utility(Utility::Declare { .. }) => Some("DECLARE"),
            Kind::Ddl(definition) => match &**definition {
                ast::Statement::CreateTable(c) => c.query.as_ref().map(|_| TABLE),
                ast::Statement::CreateView(v) => v.materialized.then_some(MATERIALIZED),
                _ => None,
            },
            _ => None,
        };
        if let Some(within) = within {
            let what = format!("EXPLAIN EXECUTE of a prepared {within}");
            return Err(Error::unsupported(what));
        }
        Ok(Subject::Bare(match &statement.kind {
            Kind::Empty => return Err(no_plan()),
            Kind::Utility(Utility::Notify { .. }) => Bare {
                line: Some("NOTIFY"),
                name: "Notify",
            },
            _ => Bare {
                line: Some("Utility statements have no plan structure"),
                name: "Utility Statement",
            },
        }))
    }

    fn filling(
        session: &mut SqlSession,
        statement: &Arc<Statement>,
        definition: &ast::Statement,
        analyze: bool,
    ) -> Result<Subject> {
        let (made, query) = match definition {
            ast::Statement::CreateTable(c) => {
                let made = Made {
                    command: TABLE,
                    name: &c.name,
                    temporary: c.temporary,
                    if_not_exists: c.if_not_exists,
                };
                (made, c.query.as_ref().ok_or_else(no_plan)?)
            }
            ast::Statement::CreateView(v) if v.materialized => {
                let made = Made {
                    command: MATERIALIZED,
                    name: &v.name,
                    temporary: false,
                    if_not_exists: v.if_not_exists,
                };
                (made, &v.query)
            }
            _ => return Err(no_plan()),
        };
        session.ensure_transaction()?;
        if let Some((name, args)) = crate::parse::create_as::executed(query) {
            if let Some(bare) = made.taken(session)? {
                return Ok(Subject::Bare(bare));
            }
            if analyze {
                let what = "EXPLAIN ANALYZE CREATE TABLE AS EXECUTE";
                return Err(Error::unsupported(what));
            }
            return Subject::executed(session, &name, &args);
        }
        if ddl::has_parameters(query) {
            return Err(Error::unsupported(
                "EXPLAIN CREATE TABLE AS with parameters",
            ));
        }
        let read = ast::Statement::Query(query.clone());
        let planned = session.core.analyse_part(&read, &[], true);
        let (kind, ..) = planned.map_err(|e| e.located(statement.text()))?;
        if let Some(bare) = made.taken(session)? {
            return Ok(Subject::Bare(bare));
        }
        if analyze && made.command == MATERIALIZED {
            let what = "EXPLAIN ANALYZE CREATE MATERIALIZED VIEW";
            return Err(Error::unsupported(what));
        }
        Ok(Subject::Filling(statement.clone(), Arc::new(kind)))
    }
}

/// The relation that a statement would make.
struct Made<'s> {
    command: &'static str,
    name: &'s ast::ObjectName,
    temporary: bool,
    if_not_exists: bool,
}

impl Made<'_> {
    /// What is said if a relation of the name is there and the statement passes that over. Nothing
    /// of the dictionary is locked, as the relation is not made yet.
    fn taken(&self, session: &mut SqlSession) -> Result<Option<Bare>> {
        let name = ddl::name_of(self.name)?;
        if !session.core.is_name_taken(&name, self.temporary)? {
            return Ok(None);
        }
        let name = &name.name;
        if !self.if_not_exists {
            return Err(ddl::already_exists(name));
        }
        let message = format!("relation \"{name}\" already exists, skipping");
        session.core.notice("NOTICE", "42P07", message);
        Ok(Some(Bare {
            line: None,
            name: self.command,
        }))
    }
}
