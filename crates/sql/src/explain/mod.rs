//! EXPLAIN [ANALYZE]: the steps of a plan; with ANALYZE, rows, buffer gets and time.

mod traced;
mod tree;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use block::value::{Datum, DatumRef};
use sqlparser::ast;

use crate::api::{Completion, RowSink, Tag};
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::exec::profile::{Mark, Profile, StepKey, Took};
use crate::expr::Expr;
use crate::parse::Utility;
use crate::pgtype::{IoSettings, text_out};
use crate::plan::supply::Change;
use crate::plan::with::Part;
use crate::plan::{
    DeletePlan, InsertPlan, InsertSource, Path, SelectPlan, Source, SuppliedWrite, TableAccess,
    UpdatePlan,
};
use crate::session::{Core, Kind, Portal, SqlSession, Statement};
use crate::types::SqlType;

pub(crate) use traced::{TracedStep, hash_of, plan_hash, plan_lines, steps};

/// The lines of the answer, as rows of one text column.
pub fn run(session: &mut SqlSession, analyze: bool, text: &str) -> Result<Vec<Vec<Datum>>> {
    let mut statement = session.parse(text, &[])?;
    let measured = match analyze {
        true => Some(measure(session, &mut statement)?),
        false => None,
    };
    if !analyze {
        session.ensure_transaction()?;
        session.check_permitted(&statement)?;
    }
    let mut lines = Lines::new(measured.as_ref());
    lines.statement(&statement, &mut session.core)?;
    let mut lines = lines.lines;
    if let Some(m) = &measured {
        lines.push(format!(
            "Buffers: gets={} reads={}",
            m.total.gets + m.profile.of_workers.gets,
            m.total.reads + m.profile.of_workers.reads
        ));
        lines.push(format!("Execution Time: {}", milliseconds(m.total.time)));
    }
    Ok(lines.into_iter().map(|l| vec![Datum::Text(l)]).collect())
}

/// A statement that was run.
struct Measured {
    profile: Box<Profile>,
    total: Took,
    /// Rows sent or changed.
    rows: u64,
}

/// Runs the statement, which afterwards is what was run: its tables may have changed.
fn measure(session: &mut SqlSession, statement: &mut Arc<Statement>) -> Result<Measured> {
    if !can_run(&statement.kind) {
        return Err(no_plan(&statement.kind));
    }
    let mut count = Count(0);
    let mut portal = Portal::new(statement, Vec::new());
    session.core.profile = Some(Box::default());
    let mark = Mark::now();
    let done = session.execute(&mut portal, 0, &mut count);
    let total = mark.took();
    let profile = session.core.profile.take().unwrap_or_default();
    let rows = match done? {
        Completion::Complete(Tag::Rows(_, n) | Tag::Insert(n)) => n,
        _ => count.0,
    };
    *statement = portal.statement().clone();
    Ok(Measured {
        profile,
        total,
        rows,
    })
}

pub(crate) fn can_run(kind: &Kind) -> bool {
    !matches!(
        kind,
        Kind::Empty | Kind::Utility(_) | Kind::Ddl(_) | Kind::Call(_)
    )
}

fn no_plan(kind: &Kind) -> Error {
    let creates =
        |d: &ast::Statement| matches!(d, ast::Statement::CreateTable(c) if c.query.is_some());
    match kind {
        Kind::Utility(Utility::Execute { .. }) => Error::unsupported("EXPLAIN EXECUTE"),
        Kind::Utility(Utility::Declare { .. }) => Error::unsupported("EXPLAIN DECLARE"),
        Kind::Ddl(d) if creates(d) => Error::unsupported("EXPLAIN CREATE TABLE AS"),
        _ => Error::new(
            "42601",
            "EXPLAIN is for SELECT, VALUES, INSERT, UPDATE and DELETE",
        ),
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

/// What a step took, behind its name.
fn actual(rows: u64, loops: u64, took: Took) -> String {
    let mut text = format!("  (actual rows={rows}");
    if loops > 1 {
        text += &format!(" loops={loops}");
    }
    text + &format!(
        " time={} gets={} reads={})",
        milliseconds(took.time),
        took.gets,
        took.reads
    )
}

struct Count(u64);

impl RowSink for Count {
    fn row(&mut self, _: &[DatumRef<'_>]) -> Result<()> {
        self.0 += 1;
        Ok(())
    }
}

/// Registers by number, with what they are called.
type Names = HashMap<usize, String>;

/// The lines of a plan as they are put together.
struct Lines<'m> {
    lines: Vec<String>,
    /// What the registers of the tree lane's plan are.
    names: Names,
    measured: Option<&'m Measured>,
    /// The steps apart, if they are for a trace.
    steps: Option<traced::Steps>,
}

impl<'m> Lines<'m> {
    fn new(measured: Option<&'m Measured>) -> Lines<'m> {
        Lines {
            lines: Vec::new(),
            names: Names::new(),
            measured,
            steps: None,
        }
    }
}

impl Lines<'_> {
    fn statement(&mut self, statement: &Statement, core: &mut Core) -> Result<()> {
        match &statement.kind {
            Kind::Select(plan) => self.select(plan, 0, true),
            Kind::Insert(plan) => self.insert(plan, 0, core)?,
            Kind::Update(plan) => self.update(plan, 0),
            Kind::Delete(plan) => self.delete(plan, 0),
            Kind::Supplied(plan) => self.supplied(plan, 0, core)?,
            Kind::Tree(plan) => self.tree(plan, 0, core)?,
            Kind::With(plan) => {
                self.part(&plan.main, 0, core)?;
                for item in &plan.items {
                    self.note(0, format!("CTE {}", item.name));
                    self.part(&item.part, 1, core)?;
                }
            }
            kind @ (Kind::Empty | Kind::Utility(_) | Kind::Ddl(_) | Kind::Call(_)) => {
                return Err(no_plan(kind));
            }
        }
        Ok(())
    }

    /// A part of a statement whose WITH writes.
    fn part(&mut self, part: &Part, depth: usize, core: &mut Core) -> Result<()> {
        match part {
            Part::Query(plan) => self.tree(plan, depth, core)?,
            Part::Insert(plan) => self.insert(plan, depth, core)?,
            Part::Update(plan) => self.update(plan, depth),
            Part::Delete(plan) => self.delete(plan, depth),
            Part::Supplied(plan) => self.supplied(plan, depth, core)?,
            Part::Transition(_) => self.step(depth, "Transition table".to_string()),
        }
        Ok(())
    }

    fn insert(&mut self, plan: &InsertPlan, depth: usize, core: &mut Core) -> Result<()> {
        self.write("Insert", &plan.table, depth);
        let below = depth + 1;
        match &plan.source {
            InsertSource::Rows(rows) => {
                self.step(below, format!("Values  (rows={})", rows.len()));
            }
            InsertSource::Query(q, _) => self.select(q, below, false),
            InsertSource::Fed(q, _) => self.tree(q, below, core)?,
        }
        Ok(())
    }

    fn update(&mut self, plan: &UpdatePlan, depth: usize) {
        self.write("Update", &plan.access.table, depth);
        self.access(&plan.access, depth + 1);
    }

    fn delete(&mut self, plan: &DeletePlan, depth: usize) {
        self.write("Delete", &plan.access.table, depth);
        self.access(&plan.access, depth + 1);
    }

    fn supplied(&mut self, plan: &SuppliedWrite, depth: usize, core: &mut Core) -> Result<()> {
        let verb = match plan.change {
            Change::Update(_) => "Update",
            Change::Delete => "Delete",
            Change::Merge(_) => "Merge",
        };
        self.write(verb, &plan.table, depth);
        self.tree(&plan.query, depth + 1, core)
    }

    /// A step of the plan at its depth: the first bare, the others behind an arrow.
    fn step(&mut self, depth: usize, text: String) {
        if let Some(steps) = &mut self.steps {
            return steps.step(depth, text);
        }
        self.lines.push(match depth {
            0 => text,
            n => format!("{}->  {text}", "  ".repeat(n * 3 - 2)),
        });
    }

    fn note(&mut self, depth: usize, text: String) {
        self.lines
            .push(format!("{}{text}", "  ".repeat(depth * 3 + 1)));
    }

    /// What the whole statement took, for its topmost step.
    fn total(&self) -> String {
        let Some(m) = self.measured else {
            return String::new();
        };
        match &self.steps {
            Some(steps) => steps.took(m.rows, 1, m.total),
            None => actual(m.rows, 1, m.total),
        }
    }

    /// What a step took.
    fn took(&self, key: StepKey) -> String {
        let Some(s) = self.measured.map(|m| m.profile.step(key)) else {
            return String::new();
        };
        match &self.steps {
            Some(steps) => steps.took(s.rows, s.loops, s.took),
            None => actual(s.rows, s.loops, s.took),
        }
    }

    fn write(&mut self, verb: &str, table: &Table, depth: usize) {
        let took = match depth {
            0 => self.total(),
            _ => String::new(),
        };
        self.step(depth, format!("{verb} on {}{took}", table.name));
    }

    /// What stands above the source of rows, whose depth is returned. `top`: its rows are those of the statement.
    fn above_source(&mut self, plan: &SelectPlan, mut depth: usize, top: bool) -> usize {
        let outermost = if top { self.total() } else { String::new() };
        if plan.limit.is_some() || plan.offset.is_some() {
            self.step(depth, format!("Limit{outermost}"));
            depth += 1;
        }
        if !plan.locks.is_empty() {
            self.step(depth, "LockRows".into());
            depth += 1;
        }
        if !plan.order.is_empty() {
            let took = self.took(StepKey::of(&plan.order));
            self.step(depth, format!("Sort{took}"));
            depth += 1;
        }
        if let Some(a) = &plan.aggregate {
            let took = self.took(StepKey::of(a));
            self.step(depth, format!("Aggregate{took}"));
            if a.having.is_some() {
                self.removed(StepKey::of(a), depth);
            }
            depth += 1;
        }
        depth
    }

    /// `top`: its rows are those of the statement.
    fn select(&mut self, plan: &SelectPlan, depth: usize, top: bool) {
        let depth = self.above_source(plan, depth, top);
        match &plan.source {
            Source::One => {
                let took = if top { self.total() } else { String::new() };
                self.step(depth, format!("Result{took}"));
            }
            Source::Values(rows) => {
                self.step(depth, format!("Values Scan  (rows={})", rows.len()));
            }
            Source::Series { .. } => self.step(depth, "Function Scan on generate_series".into()),
            Source::Table(t) => self.access(t, depth),
            Source::Loop { outer, inner, left } => {
                let kind = if *left {
                    "Nested Loop Left Join"
                } else {
                    "Nested Loop"
                };
                self.step(depth, kind.into());
                self.access(outer, depth + 1);
                self.access(inner, depth + 1);
            }
        }
        if plan.filter.is_some() {
            self.note(depth, "Filter: of the joined row".into());
        }
    }

    fn removed(&mut self, key: StepKey, depth: usize) {
        if let Some(m) = self.measured {
            let removed = m.profile.step(key).removed;
            self.note(depth, format!("Rows Removed by Filter: {removed}"));
        }
    }

    fn access(&mut self, a: &TableAccess, depth: usize) {
        self.access_as(a, &a.table.name, SEQUENTIAL, depth);
    }

    /// A table's access, under the name that the query gives the table.
    /// `scan` is what a scan of the table itself is called.
    fn access_as(&mut self, a: &TableAccess, alias: &str, scan: &str, depth: usize) {
        let took = self.took(StepKey::of(a));
        let name = match alias == a.table.name {
            true => alias.to_string(),
            false => format!("{} {alias}", a.table.name),
        };
        let rows = format!("  (rows={:.0})", a.rows);
        match &a.path {
            Path::Full => self.step(depth, format!("{scan} on {name}{rows}{took}")),
            Path::Keys { index, keys, .. } => {
                let def = &a.table.indexes[*index];
                let text = format!("Index Scan using {} on {name}{rows}{took}", def.name);
                self.step(depth, text);
                let keys = tree::whole_keys(a, *index, keys, &self.names);
                self.note(depth, format!("Index Cond: {keys}"));
            }
            Path::Index {
                index, backward, ..
            } => {
                let def = &a.table.indexes[*index];
                let way = if *backward { " Backward" } else { "" };
                self.step(
                    depth,
                    format!("Index Scan{way} using {} on {name}{rows}{took}", def.name),
                );
                let terms = index_terms(a, &self.names);
                if !terms.is_empty() {
                    self.note(depth, format!("Index Cond: ({})", terms.join(" AND ")));
                }
                if let Some(m) = self.measured {
                    let step = m.profile.step(StepKey::of(a));
                    let (walk, all) = (step.index, step.took);
                    self.note(
                        depth,
                        format!(
                            "Index Range Scan: entries={} gets={} time={}",
                            walk.entries,
                            walk.gets,
                            milliseconds(walk.time)
                        ),
                    );
                    self.note(
                        depth,
                        format!(
                            "Table Access by Row Id: rows={} gets={} time={}",
                            step.rows,
                            all.gets.saturating_sub(walk.gets),
                            milliseconds(all.time.saturating_sub(walk.time))
                        ),
                    );
                }
            }
        }
        if let Some(f) = &a.filter {
            self.note(depth, format!("Filter: {}", shown(f, a, &self.names)));
            self.removed(StepKey::of(a), depth);
        }
    }
}

/// What a scan of a whole table is called.
const SEQUENTIAL: &str = "Seq Scan";

/// The conditions that an index is entered by.
fn index_terms(a: &TableAccess, names: &Names) -> Vec<String> {
    let Path::Index {
        index,
        equal,
        any_of,
        low,
        high,
        ..
    } = &a.path
    else {
        return Vec::new();
    };
    let def = &a.table.indexes[*index];
    let column = |i: usize| def.key_text(&a.table, i);
    let mut terms: Vec<String> = equal
        .iter()
        .enumerate()
        .map(|(i, e)| format!("{} = {}", column(i), shown(e, a, names)))
        .collect();
    if !any_of.is_empty() {
        let list: Vec<String> = any_of.iter().map(|e| shown(e, a, names)).collect();
        terms.push(format!("{} IN ({})", column(equal.len()), list.join(", ")));
    }
    for (bound, operators) in [(low, [">", ">="]), (high, ["<", "<="])] {
        if let Some(b) = bound {
            let operator = operators[usize::from(b.inclusive)];
            let value = shown(&b.value, a, names);
            terms.push(format!("{} {operator} {value}", column(equal.len())));
        }
    }
    terms
}

/// A constant in the form that each session reads the same way.
fn text_of(ty: SqlType, value: &Datum) -> String {
    let mut text = Vec::new();
    text_out(ty, value.borrow(), &IoSettings::default(), &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// An expression, roughly as it was written.
fn shown(e: &Expr, a: &TableAccess, names: &Names) -> String {
    let column = |i: usize, t: &Table| {
        t.columns
            .get(i)
            .map_or(format!("outer.{i}"), |c| c.name.clone())
    };
    match e {
        Expr::Const(Datum::Text(t)) => format!("'{t}'"),
        Expr::Const(Datum::Null) => "NULL".into(),
        Expr::Const(Datum::Int4(i)) => i.to_string(),
        Expr::Const(Datum::Int8(i)) => i.to_string(),
        Expr::Const(d @ Datum::Date(_)) => format!("'{}'::date", text_of(SqlType::Date, d)),
        Expr::Const(d @ Datum::Timestamp(_)) => {
            format!("'{}'::timestamp", text_of(SqlType::Timestamp, d))
        }
        Expr::Const(d @ Datum::Numeric(_)) => text_of(SqlType::Numeric, d),
        Expr::Const(Datum::Bool(b)) => b.to_string(),
        Expr::Const(d) => format!("{d:?}"),
        Expr::Param(i) => match names.get(i) {
            Some(name) => name.clone(),
            None => format!("${}", i + 1),
        },
        Expr::Subquery { number, .. } => format!("(SubPlan {number})"),
        Expr::Column(i) => match i.checked_sub(a.offset) {
            Some(own) => column(own, &a.table),
            None => format!("outer.{}", i + 1),
        },
        Expr::Compare(op, l, r) => format!(
            "({} {} {})",
            shown(l, a, names),
            op.symbol(),
            shown(r, a, names)
        ),
        Expr::And(list) => list
            .iter()
            .map(|e| shown(e, a, names))
            .collect::<Vec<_>>()
            .join(" AND "),
        Expr::Or(list) => format!(
            "({})",
            list.iter()
                .map(|e| shown(e, a, names))
                .collect::<Vec<_>>()
                .join(" OR ")
        ),
        Expr::Not(e) => format!("NOT {}", shown(e, a, names)),
        Expr::Coalesce(list) => format!(
            "COALESCE({})",
            list.iter()
                .map(|e| shown(e, a, names))
                .collect::<Vec<_>>()
                .join(", ")
        ),
        Expr::IsNull { expr, negated } => format!(
            "({} IS {}NULL)",
            shown(expr, a, names),
            if *negated { "NOT " } else { "" }
        ),
        Expr::Arith(op, _, l, r) => format!(
            "({} {} {})",
            shown(l, a, names),
            op.symbol(),
            shown(r, a, names)
        ),
        Expr::Cast(c, e) => format!("({})::{}", shown(e, a, names), c.to.format(c.typmod)),
        _ => "...".into(),
    }
}
