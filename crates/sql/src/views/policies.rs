//! Policies of row-level security in the catalogs: `pg_policy` and `pg_policies`.

use block::value::Datum;
use sqlparser::ast;

use super::Source::Here;
use super::value::{NULL, bool, oid, oids, optional, text, texts};
use super::{Context, Rows, VirtualTable, definition, viewdef};
use crate::bind::names;
use crate::bind::numbered::Shown;
use crate::dict::acl::EVERYBODY;
use crate::dict::policy::Policy;
use crate::dict::{Dict, Table};
use crate::error::Result;
use crate::query::analyze::policy::{Written, named_columns};
use crate::types::SqlType::{self, Bool, InternalChar, Name, Oid, Text};

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_policy",
        columns: &[
            ("oid", Oid),
            ("polname", Name),
            ("polrelid", Oid),
            ("polcmd", InternalChar),
            ("polpermissive", Bool),
            ("polroles", SqlType::OIDS),
            ("polqual", Text),
            ("polwithcheck", Text),
        ],
        rows: Here(|cx| each(cx, &stored)),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_policies",
        columns: &[
            ("schemaname", Name),
            ("tablename", Name),
            ("policyname", Name),
            ("permissive", Text),
            ("roles", SqlType::NAMES),
            ("cmd", Text),
            ("qual", Text),
            ("with_check", Text),
        ],
        rows: Here(|cx| each(cx, &shown)),
    },
];

/// Makes the row of a policy.
type RowOf<'f> = dyn Fn(&Context, &Table, &Policy) -> Result<Vec<Datum>> + 'f;

fn each(cx: &Context, row: &RowOf<'_>) -> Result<Rows> {
    let tables = cx.tables();
    let policies = tables.flat_map(|t| t.policies.iter().map(move |p| (t, p)));
    policies
        .map(|(table, policy)| row(cx, table, policy))
        .collect()
}

/// An expression as PostgreSQL writes it out.
fn written(cx: &Context, table: &Table, policy: &Policy, kept: &Option<String>) -> Result<Datum> {
    match kept {
        Some(kept) => Ok(text(expression(&cx.dict, table, policy, kept)?)),
        None => Ok(NULL),
    }
}

fn stored(cx: &Context, table: &Table, policy: &Policy) -> Result<Vec<Datum>> {
    Ok(vec![
        oid(policy.oid),
        text(&policy.name),
        oid(table.oid),
        text(policy.command.letter().to_string()),
        bool(policy.permissive),
        oids(policy.roles.iter().copied()),
        written(cx, table, policy, &policy.using)?,
        written(cx, table, policy, &policy.check)?,
    ])
}

fn shown(cx: &Context, table: &Table, policy: &Policy) -> Result<Vec<Datum>> {
    let mut roles: Vec<String> = (policy.roles.iter())
        .map(|role| match *role {
            EVERYBODY => "public".to_string(),
            role => cx.role_name(role),
        })
        .collect();
    roles.sort();
    Ok(vec![
        text(cx.dict.schema_name(table.schema)),
        text(&table.name),
        text(&policy.name),
        text(match policy.permissive {
            true => "PERMISSIVE",
            false => "RESTRICTIVE",
        }),
        texts(roles),
        optional(Some(policy.command.name())),
        written(cx, table, policy, &policy.using)?,
        written(cx, table, policy, &policy.check)?,
    ])
}

/// An expression of a policy with the names that everything has now.
fn expression(dict: &Dict, table: &Table, policy: &Policy, kept: &str) -> Result<String> {
    let mut written = Written::of(kept)?;
    viewdef::name_relations(dict, &policy.sources, &mut written.expression)?;
    let mut own = Own {
        table,
        policy,
        alias: &written.alias,
        depth: 0,
    };
    let std::ops::ControlFlow::Continue(()) =
        ast::VisitMut::visit(&mut written.expression, &mut own);
    Ok(definition::of_table(
        Shown::AsNow(dict),
        table,
        &written.expression,
    ))
}

/// Gives the columns of the policy's own table their names of now, without the table's name where
/// no other is in sight.
struct Own<'p> {
    table: &'p Table,
    policy: &'p Policy,
    alias: &'p str,
    /// Queries around.
    depth: usize,
}

impl ast::VisitorMut for Own<'_> {
    type Break = std::convert::Infallible;

    fn pre_visit_query(
        &mut self,
        _: &mut ast::Query,
    ) -> std::ops::ControlFlow<std::convert::Infallible> {
        self.depth += 1;
        std::ops::ControlFlow::Continue(())
    }

    fn post_visit_query(
        &mut self,
        _: &mut ast::Query,
    ) -> std::ops::ControlFlow<std::convert::Infallible> {
        self.depth -= 1;
        std::ops::ControlFlow::Continue(())
    }

    fn pre_visit_expr(
        &mut self,
        e: &mut ast::Expr,
    ) -> std::ops::ControlFlow<std::convert::Infallible> {
        if let ast::Expr::CompoundIdentifier(path) = e
            && let [table, column] = path.as_slice()
            && names::ident(table) == self.alias
        {
            let name = names::ident(column);
            let known = named_columns(self.policy, self.table).find(|(_, known)| *known == name);
            if let Some((at, _)) = known {
                let column = viewdef::plain(&self.table.columns[at].name);
                *e = match self.depth {
                    0 => ast::Expr::Identifier(column),
                    _ => {
                        let table = viewdef::plain(&self.table.name);
                        ast::Expr::CompoundIdentifier(vec![table, column])
                    }
                };
            }
        }
        std::ops::ControlFlow::Continue(())
    }
}
