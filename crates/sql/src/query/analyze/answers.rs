//! Functions of the system that give rows for one argument: each is a query, which names the
//! argument `asked.of`.

use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, Ident, TableAlias, TableFactor};

use super::Analyzer;
use super::from::Item;
use super::scope::Scope;
use super::with::Known;
use crate::bind::names;
use crate::error::{Error, Result};
use crate::parse::{self, Command};

/// The function that says how far commands of a kind are.
const PROGRESS: &str = "pg_stat_get_progress_info";

/// The kinds of commands that it knows.
const COMMANDS: [&str; 6] = [
    "VACUUM",
    "ANALYZE",
    "CLUSTER",
    "CREATE INDEX",
    "BASEBACKUP",
    "COPY",
];

/// The name and the query of each function. The first item of FROM is the argument.
const QUERIES: &[(&str, &str)] = &[
    (
        "pg_ls_tmpdir",
        "select f.name, f.size, f.modification from (select 0 as of) as asked, pg_ls_tmpdir() as f \
         where asked.of::oid = 1663",
    ),
    (
        "pg_sequence_parameters",
        "select s.seqstart as start_value, s.seqmin as minimum_value, s.seqmax as maximum_value, \
         s.seqincrement as increment, s.seqcycle as cycle_option, s.seqcache as cache_size, \
         s.seqtypid as data_type from (select 0 as of) as asked, pg_catalog.pg_sequence as s \
         where s.seqrelid = asked.of::oid",
    ),
    (
        PROGRESS,
        "select p.pid, p.datid, p.relid, p.param1, p.param2, p.param3, p.param4, p.param5, \
         p.param6, p.param7, p.param8, p.param9, p.param10, p.param11, p.param12, p.param13, \
         p.param14, p.param15, p.param16, p.param17, 0::bigint as param18, 0::bigint as param19, \
         0::bigint as param20 from (select 0 as of) as asked, \
         (select 'ANALYZE' as command, a.pid, a.datid, a.relid, 1::bigint as param1, \
         a.sample_blks_total as param2, a.sample_blks_scanned as param3, \
         a.ext_stats_total as param4, a.ext_stats_computed as param5, \
         a.child_tables_total as param6, a.child_tables_done as param7, 0::bigint as param8, \
         0::bigint as param9, 0::bigint as param10, 0::bigint as param11, 0::bigint as param12, \
         0::bigint as param13, 0::bigint as param14, 0::bigint as param15, 0::bigint as param16, \
         0::bigint as param17 from pg_catalog.pg_stat_progress_analyze as a union all \
         select 'COPY', c.pid, c.datid, c.relid, c.bytes_processed, c.bytes_total, \
         c.tuples_processed, c.tuples_excluded, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
         from pg_catalog.pg_stat_progress_copy as c union all \
         select 'CREATE INDEX', i.pid, i.datid, i.relid, case i.command when 'CREATE INDEX' then 1 \
         when 'CREATE INDEX CONCURRENTLY' then 2 when 'REINDEX' then 3 else 4 end, 0, 0, \
         i.lockers_total, i.lockers_done, i.current_locker_pid, i.index_relid::bigint, 0, 403, 2, \
         4, i.tuples_total, i.tuples_done, i.partitions_total, i.partitions_done, i.blocks_total, \
         i.blocks_done from pg_catalog.pg_stat_progress_create_index as i) as p \
         where pg_catalog.upper(asked.of::text) = p.command",
    ),
];

/// The query of a function of so many arguments, if it is one of these.
pub fn query_of(q: &names::Qualified, arguments: usize) -> Option<&'static str> {
    let of_system = q.schema.as_deref().is_none_or(|s| s == "pg_catalog");
    let found = QUERIES.iter().find(|(name, _)| *name == q.name);
    found
        .filter(|_| of_system && arguments == 1)
        .map(|(_, text)| *text)
}

impl Analyzer<'_> {
    /// A function's query as an item of FROM.
    pub(super) fn answer(
        &self,
        text: &str,
        name: &str,
        args: &[FunctionArg],
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
        known: &Known<'_>,
    ) -> Result<Item> {
        let [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] = args else {
            return Err(Error::unsupported(format!("arguments of {name}")));
        };
        if self.notes.borrow().is_some() {
            return Err(Error::unsupported(format!("{name} in a view")));
        }
        if name == PROGRESS
            && let ast::Expr::Value(value) = argument
            && let ast::Value::SingleQuotedString(command) = &value.value
            && !COMMANDS.contains(&command.to_ascii_uppercase().as_str())
        {
            let message = format!("invalid command name: \"{command}\"");
            return Err(Error::new("22023", message));
        }
        let query = with_argument(text, argument);
        let query = query.ok_or_else(|| Error::internal(format!("the query of {name} is none")))?;
        let called = TableAlias {
            explicit: true,
            name: Ident::with_quote('"', name),
            columns: Vec::new(),
            at: None,
        };
        // A level of its own, so that its names and those of the argument are apart.
        let mut level = self.query(&query, scope, known)?;
        self.settle(&mut level)?;
        self.level_in_from(level, (Some(alias.unwrap_or(&called)), false), scope, false)
    }
}

/// The query with an expression for its argument.
fn with_argument(text: &str, argument: &ast::Expr) -> Option<ast::Query> {
    let Ok(Command::Sql(statement)) = parse::statement(text) else {
        return None;
    };
    let ast::Statement::Query(mut query) = *statement else {
        return None;
    };
    let ast::SetExpr::Select(select) = query.body.as_mut() else {
        return None;
    };
    let TableFactor::Derived { subquery, .. } = &mut select.from.first_mut()?.relation else {
        return None;
    };
    let ast::SetExpr::Select(inner) = subquery.body.as_mut() else {
        return None;
    };
    let ast::SelectItem::ExprWithAlias { expr, .. } = inner.projection.first_mut()? else {
        return None;
    };
    *expr = argument.clone();
    Some(*query)
}
