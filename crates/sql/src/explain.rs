//! EXPLAIN [ANALYZE]: the steps of a plan; with ANALYZE, rows, buffer gets and time.

use std::fmt::Write;
use std::time::Instant;

use block::value::{Datum, DatumRef};
use wait::Stat;

use crate::api::RowSink;
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::plan::{InsertSource, Path, SelectPlan, Source, TableAccess};
use crate::session::{Kind, Portal, SqlSession};

/// The lines of the answer, as rows of one text column.
pub fn run(session: &mut SqlSession, analyze: bool, text: &str) -> Result<Vec<Vec<Datum>>> {
    let statement = session.parse(text, &[])?;
    let mut lines = Vec::new();
    let vectorized = statement.vectorized(&mut session.core)?;
    match (&statement.kind, vectorized) {
        (_, Some(query)) => lines.extend(query.explain()),
        (Kind::Select(plan), _) => select(plan, 0, &mut lines),
        (Kind::Insert(plan), _) => {
            lines.push(format!("Insert on {}", plan.table.name));
            match &plan.source {
                InsertSource::Rows(rows) => {
                    lines.push(format!("  ->  Values  (rows={})", rows.len()))
                }
                InsertSource::Query(q, _) => select(q, 1, &mut lines),
                InsertSource::General(q, _) => lines.extend(q.explain()),
            }
        }
        (Kind::Update(plan), _) => {
            lines.push(format!("Update on {}", plan.access.table.name));
            access(&plan.access, 1, &mut lines);
        }
        (Kind::Delete(plan), _) => {
            lines.push(format!("Delete on {}", plan.access.table.name));
            access(&plan.access, 1, &mut lines);
        }
        (Kind::Supplied(plan), _) => {
            let verb = if plan.set.is_some() {
                "Update"
            } else {
                "Delete"
            };
            lines.push(format!("{verb} on {}", plan.table.name));
            lines.extend(plan.query.explain());
        }
        (Kind::General(query), _) => lines.extend(query.explain()),
        _ => {
            return Err(Error::new(
                "42601",
                "EXPLAIN is for SELECT, VALUES, INSERT, UPDATE and DELETE",
            ));
        }
    }
    if analyze {
        measure(session, &statement, &mut lines)?;
    }
    Ok(lines.into_iter().map(|l| vec![Datum::Text(l)]).collect())
}

/// Runs the statement and says what it took.
fn measure(
    session: &mut SqlSession,
    statement: &std::sync::Arc<crate::Statement>,
    lines: &mut Vec<String>,
) -> Result<()> {
    let mut count = Count(0);
    let before = gets();
    let started = Instant::now();
    let mut portal = Portal::new(statement, Vec::new());
    let done = session.execute(&mut portal, 0, &mut count)?;
    let elapsed = started.elapsed();
    let (consistent, current, reads) = gets();
    let affected = match done {
        crate::Completion::Complete(crate::Tag::Rows(_, n) | crate::Tag::Insert(n)) => n,
        _ => count.0,
    };
    if let Some(first) = lines.first_mut() {
        write!(
            first,
            "  (actual rows={affected} time={:.3} ms)",
            elapsed.as_secs_f64() * 1e3
        )
        .map_err(|e| Error::internal(e.to_string()))?;
    }
    lines.push(format!(
        "Buffers: consistent gets={} current gets={} reads={}",
        consistent - before.0,
        current - before.1,
        reads - before.2
    ));
    lines.push(format!(
        "Execution Time: {:.3} ms",
        elapsed.as_secs_f64() * 1e3
    ));
    Ok(())
}

fn gets() -> (u64, u64, u64) {
    let read = |s: Stat| wait::session::with(|session| session.counters.stat(s)).unwrap_or(0);
    (
        read(Stat::ConsistentGets),
        read(Stat::DbBlockGets),
        read(Stat::PhysicalReads),
    )
}

struct Count(u64);

impl RowSink for Count {
    fn row(&mut self, _: &[DatumRef<'_>]) -> Result<()> {
        self.0 += 1;
        Ok(())
    }
    fn copy_data(&mut self, _: &[u8]) -> Result<()> {
        Err(Error::internal("COPY under EXPLAIN"))
    }
    fn copy_out_begin(&mut self, _: &[i16]) -> Result<()> {
        Err(Error::internal("COPY under EXPLAIN"))
    }
}

/// A step of the plan at its depth: the first bare, the others behind an arrow.
fn step(depth: usize, text: String, lines: &mut Vec<String>) {
    lines.push(match depth {
        0 => text,
        n => format!("{}->  {text}", "  ".repeat(n * 3 - 2)),
    });
}

fn note(depth: usize, text: String, lines: &mut Vec<String>) {
    lines.push(format!("{}{text}", "  ".repeat(depth * 3 + 1)));
}

fn select(plan: &SelectPlan, mut depth: usize, lines: &mut Vec<String>) {
    if plan.limit.is_some() || plan.offset.is_some() {
        step(depth, "Limit".into(), lines);
        depth += 1;
    }
    if plan.lock.is_some() {
        step(depth, "LockRows".into(), lines);
        depth += 1;
    }
    if !plan.order.is_empty() {
        step(depth, "Sort".into(), lines);
        depth += 1;
    }
    if let Some(a) = &plan.aggregate {
        step(
            depth,
            if a.keys.is_empty() {
                "Aggregate"
            } else {
                "HashAggregate"
            }
            .into(),
            lines,
        );
        depth += 1;
    }
    match &plan.source {
        Source::One => step(depth, "Result".into(), lines),
        Source::Values(rows) => step(depth, format!("Values Scan  (rows={})", rows.len()), lines),
        Source::Series { .. } => step(depth, "Function Scan on generate_series".into(), lines),
        Source::Table(t) => access(t, depth, lines),
        Source::Loop { outer, inner, left } => {
            let kind = if *left {
                "Nested Loop Left Join"
            } else {
                "Nested Loop"
            };
            step(depth, kind.into(), lines);
            access(outer, depth + 1, lines);
            access(inner, depth + 1, lines);
        }
    }
    if plan.filter.is_some() {
        note(depth, "Filter: of the joined row".into(), lines);
    }
}

fn access(a: &TableAccess, depth: usize, lines: &mut Vec<String>) {
    let name = &a.table.name;
    match &a.path {
        Path::Full => step(
            depth,
            format!("Seq Scan on {name}  (rows={:.0})", a.rows),
            lines,
        ),
        Path::Index {
            index,
            equal,
            any_of,
            low,
            high,
            backward,
            ..
        } => {
            let def = &a.table.indexes[*index];
            let way = if *backward { " Backward" } else { "" };
            step(
                depth,
                format!(
                    "Index Scan{way} using {} on {name}  (rows={:.0})",
                    def.name, a.rows
                ),
                lines,
            );
            let column = |i: usize| a.table.columns[def.keys[i].column].name.as_str();
            let mut terms: Vec<String> = equal
                .iter()
                .enumerate()
                .map(|(i, e)| format!("{} = {}", column(i), shown(e, a)))
                .collect();
            if !any_of.is_empty() {
                let list: Vec<String> = any_of.iter().map(|e| shown(e, a)).collect();
                terms.push(format!("{} IN ({})", column(equal.len()), list.join(", ")));
            }
            if let Some(b) = low {
                terms.push(format!(
                    "{} {} {}",
                    column(equal.len()),
                    if b.inclusive { ">=" } else { ">" },
                    shown(&b.value, a)
                ));
            }
            if let Some(b) = high {
                terms.push(format!(
                    "{} {} {}",
                    column(equal.len()),
                    if b.inclusive { "<=" } else { "<" },
                    shown(&b.value, a)
                ));
            }
            if !terms.is_empty() {
                note(
                    depth,
                    format!("Index Cond: ({})", terms.join(" AND ")),
                    lines,
                );
            }
        }
    }
    if let Some(f) = &a.filter {
        note(depth, format!("Filter: {}", shown(f, a)), lines);
    }
}

/// An expression, roughly as it was written.
fn shown(e: &Expr, a: &TableAccess) -> String {
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
        Expr::Const(d) => format!("{d:?}"),
        Expr::Param(i) => format!("${}", i + 1),
        Expr::Column(i) => match i.checked_sub(a.offset) {
            Some(own) => column(own, &a.table),
            None => format!("outer.{}", i + 1),
        },
        Expr::Compare(op, l, r) => format!("({} {} {})", shown(l, a), op.symbol(), shown(r, a)),
        Expr::And(list) => list
            .iter()
            .map(|e| shown(e, a))
            .collect::<Vec<_>>()
            .join(" AND "),
        Expr::Or(list) => format!(
            "({})",
            list.iter()
                .map(|e| shown(e, a))
                .collect::<Vec<_>>()
                .join(" OR ")
        ),
        Expr::Not(e) => format!("NOT {}", shown(e, a)),
        Expr::IsNull { expr, negated } => format!(
            "({} IS {}NULL)",
            shown(expr, a),
            if *negated { "NOT " } else { "" }
        ),
        Expr::Arith(op, _, l, r) => format!("({} {} {})", shown(l, a), op.symbol(), shown(r, a)),
        Expr::Cast(c, e) => format!("({})::{}", shown(e, a), c.to.format(c.typmod)),
        _ => "...".into(),
    }
}
