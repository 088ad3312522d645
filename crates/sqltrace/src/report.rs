//! Prints a profile as `tkprof` does.

use std::io::{self, Write};

use crate::profile::{Plan, Profile, Source, Statement, Sum, Waits};
use crate::record::CallKind;

const RULE: &str = "*******************************************************************************\
                    *";

const LEGEND: &str = "\
count    = number of times the call was made
cpu      = seconds of processor time in the calls
elapsed  = seconds that the calls took
disk     = blocks read from disk
query    = blocks gotten as of a snapshot
current  = blocks gotten in their current version, as for a change
rows     = rows fetched, or changed by the execution
The figures of a statement are without those of statements that it caused (recursive ones).";

impl Profile {
    /// Prints the report.
    pub fn report(&self, out: &mut dyn Write) -> io::Result<()> {
        for source in &self.sources {
            writeln!(
                out,
                "Trace file: {}{}",
                source.name,
                of_instance(&source.instance)
            )?;
        }
        let sorted = &self.options.sort;
        let order = if sorted.is_empty() {
            "in order of appearance"
        } else {
            "as asked for"
        };
        writeln!(out, "Sort options: {order}")?;
        for source in &self.sources {
            warnings(out, source)?;
        }
        writeln!(out, "\n{RULE}\n{LEGEND}\n{RULE}\n")?;
        let shown = self.shown();
        for statement in &shown {
            self.print_statement(out, statement)?;
            writeln!(out, "\n{RULE}\n")?;
        }
        if shown.len() < self.statements.len() {
            let left = self.statements.len() - shown.len();
            writeln!(
                out,
                "{left} more statements are in the totals only (--print).\n"
            )?;
        }
        self.totals(out)?;
        self.sources(out)
    }

    fn shown(&self) -> Vec<&Statement> {
        let mut shown: Vec<&Statement> = self.statements.iter().collect();
        let keys = &self.options.sort;
        if !keys.is_empty() {
            let sum = |s: &&Statement| keys.iter().fold(0u64, |sum, k| sum.saturating_add(k.of(s)));
            shown.sort_by_key(|s| std::cmp::Reverse(sum(s)));
        }
        shown.truncate(self.options.print.unwrap_or(usize::MAX));
        shown
    }

    fn print_statement(&self, out: &mut dyn Write, s: &Statement) -> io::Result<()> {
        if !s.sql_id.is_empty() {
            write!(out, "SQL ID: {}", s.sql_id)?;
            let hashes: Vec<String> = s.plan_hashes.iter().map(u64::to_string).collect();
            match hashes.is_empty() {
                true => writeln!(out, "\n")?,
                false => writeln!(out, "  Plan Hash: {}\n", hashes.join(", "))?,
            }
        }
        let unknown = "(the trace begins after this statement was parsed: its text is not there)";
        writeln!(out, "{}\n\n", s.text.as_deref().unwrap_or(unknown))?;
        calls(out, &s.calls)?;
        writeln!(out)?;
        misses(out, &s.calls)?;
        for goal in &s.goals {
            if let Some(goal) = goal_name(*goal) {
                writeln!(out, "Optimizer goal: {goal}")?;
            }
        }
        write!(out, "Parsing user id: {}", s.user)?;
        match s.depth {
            0 => writeln!(out)?,
            depth => writeln!(out, "   (recursive depth: {depth})")?,
        }
        let named = s.instances.iter().filter(|(name, _)| !name.is_empty());
        let instances: Vec<String> = named.map(|(name, n)| format!("{name} ({n})")).collect();
        if !instances.is_empty() {
            writeln!(out, "Executions by instance: {}", instances.join(", "))?;
        }
        for (error, times) in &s.errors {
            writeln!(out, "Error {error}: {times} times")?;
        }
        for plan in &s.plans {
            row_sources(out, plan)?;
        }
        waits(out, &s.waits)
    }

    fn totals(&self, out: &mut dyn Write) -> io::Result<()> {
        for (recursive, title) in [(false, "NON-RECURSIVE"), (true, "RECURSIVE")] {
            let mut sums = [Sum::default(); 3];
            let mut waited = Waits::default();
            if !recursive {
                waited.add(&self.outside);
            }
            for s in self
                .statements
                .iter()
                .filter(|s| (s.depth > 0) == recursive)
            {
                for (to, from) in sums.iter_mut().zip(&s.calls) {
                    to.add(from);
                }
                waited.add(&s.waits);
            }
            writeln!(out, "OVERALL TOTALS FOR ALL {title} STATEMENTS\n")?;
            calls(out, &sums)?;
            writeln!(out)?;
            misses(out, &sums)?;
            waits(out, &waited)?;
            writeln!(out)?;
        }
        let recursive = self.statements.iter().filter(|s| s.depth > 0).count();
        let all = self.statements.len();
        writeln!(out, "{:>6}  statements of clients", all - recursive)?;
        writeln!(out, "{recursive:>6}  recursive statements")?;
        writeln!(out, "{all:>6}  statements in all\n{RULE}")
    }

    fn sources(&self, out: &mut dyn Write) -> io::Result<()> {
        for s in &self.sources {
            writeln!(out, "Trace file: {}{}", s.name, of_instance(&s.instance))?;
            writeln!(out, "{:>8}  sessions", s.sessions.len())?;
            writeln!(out, "{:>8}  transactions committed", s.commits)?;
            writeln!(out, "{:>8}  transactions rolled back", s.rollbacks)?;
            writeln!(out, "{:>8}  lines", s.lines)?;
            writeln!(
                out,
                "{:>8}  elapsed seconds from first to last",
                seconds(s.elapsed_us)
            )?;
        }
        Ok(())
    }
}

fn of_instance(name: &str) -> String {
    match name {
        "" => String::new(),
        name => format!("  (instance {name})"),
    }
}

fn warnings(out: &mut dyn Write, source: &Source) -> io::Result<()> {
    if let Some(why) = &source.incomplete {
        writeln!(out, "WARNING: {} is not complete: {why}", source.name)?;
    }
    for damaged in &source.damaged {
        writeln!(out, "WARNING: {}, left out: {damaged}", source.name)?;
    }
    Ok(())
}

fn seconds(us: u64) -> String {
    // In whole hundredths, rounded, as sums of what is shown are compared by eye.
    let hundredths = us.saturating_add(5_000) / 10_000;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn calls(out: &mut dyn Write, sums: &[Sum; 3]) -> io::Result<()> {
    let rule = "------- ------  -------- ---------- ---------- ---------- ----------  ----------";
    writeln!(
        out,
        "{:<7} {:>6}  {:>8} {:>10} {:>10} {:>10} {:>10}  {:>10}\n{rule}",
        "call", "count", "cpu", "elapsed", "disk", "query", "current", "rows"
    )?;
    let mut total = Sum::default();
    for (kind, sum) in CallKind::ALL.iter().zip(sums) {
        let name = match kind {
            CallKind::Parse => "Parse",
            CallKind::Exec => "Execute",
            CallKind::Fetch => "Fetch",
        };
        call(out, name, sum)?;
        total.add(sum);
    }
    writeln!(out, "{rule}")?;
    call(out, "total", &total)
}

fn call(out: &mut dyn Write, name: &str, sum: &Sum) -> io::Result<()> {
    let c = &sum.counts;
    writeln!(
        out,
        "{name:<7} {:>6}  {:>8} {:>10} {:>10} {:>10} {:>10}  {:>10}",
        sum.count,
        seconds(c.cpu_us),
        seconds(c.elapsed_us),
        c.disk,
        c.query,
        c.current,
        sum.rows
    )
}

fn misses(out: &mut dyn Write, sums: &[Sum; 3]) -> io::Result<()> {
    let [parse, execute, _] = sums;
    writeln!(
        out,
        "Misses in library cache during parse: {}",
        parse.misses
    )?;
    match execute.misses {
        0 => Ok(()),
        n => writeln!(out, "Misses in library cache during execute: {n}"),
    }
}

fn goal_name(goal: u32) -> Option<&'static str> {
    match goal {
        1 => Some("ALL_ROWS"),
        2 => Some("FIRST_ROWS"),
        3 => Some("RULE"),
        4 => Some("CHOOSE"),
        _ => None,
    }
}

fn row_sources(out: &mut dyn Write, plan: &Plan) -> io::Result<()> {
    writeln!(
        out,
        "Number of plan statistics captured: {}\n\n\
         Rows (1st) Rows (avg) Rows (max)  Row Source Operation\n\
         ---------- ---------- ----------  ---------------------------------------------------",
        plan.captured
    )?;
    for at in in_plan_order(plan) {
        let (depth, s) = (at.0, &plan.steps[at.1]);
        let n = plan.captured;
        let average = |sum: u64| sum.saturating_add(n / 2) / n;
        write!(
            out,
            "{:>10} {:>10} {:>10}  {:indent$}{}",
            s.first_rows,
            average(s.rows),
            s.max_rows,
            "",
            s.operation.trim_end(),
            indent = depth
        )?;
        let t = &s.times;
        if s.has_times {
            write!(
                out,
                " (cr={} pr={} pw={} time={} us",
                average(t.query),
                average(t.disk),
                average(t.written),
                average(t.time_us)
            )?;
            for (name, value) in [("cost", t.cost), ("size", t.size), ("card", t.rows)] {
                if let Some(value) = value {
                    write!(out, " {name}={value}")?;
                }
            }
            write!(out, ")")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The steps with their depths, children after their parents by position. A step whose parent is
/// missing stands at the top.
fn in_plan_order(plan: &Plan) -> Vec<(usize, usize)> {
    let steps = &plan.steps;
    let is_root = |at: &usize| {
        let s = &steps[*at];
        s.parent == 0 || s.parent >= s.id || !steps.iter().any(|p| p.id == s.parent)
    };
    let mut stack: Vec<(usize, usize)> = (0..steps.len())
        .filter(is_root)
        .map(|at| (0, at))
        .rev()
        .collect();
    let mut order = Vec::new();
    while let Some((depth, at)) = stack.pop() {
        order.push((depth, at));
        let id = steps[at].id;
        let child = |c: &usize| steps[*c].parent == id && !is_root(c);
        let mut children: Vec<usize> = (0..steps.len()).filter(child).collect();
        children.sort_by_key(|c| std::cmp::Reverse(steps[*c].position));
        stack.extend(children.into_iter().map(|c| (depth + 1, c)));
    }
    order
}

fn waits(out: &mut dyn Write, waits: &Waits) -> io::Result<()> {
    if waits.events.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nElapsed times include waiting on following events:\n  \
         Event waited on                             Times   Max. Wait  Total Waited\n  \
         ----------------------------------------   Waited  ----------  ------------"
    )?;
    let mut events: Vec<_> = waits.events.iter().collect();
    events.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.total_us));
    for (event, sum) in events {
        writeln!(
            out,
            "  {event:<40} {:>8}  {:>10}  {:>12}",
            sum.count,
            seconds(sum.max_us),
            seconds(sum.total_us)
        )?;
    }
    for ((event, instance), sum) in &waits.served {
        let parts = sum.parts_ns.iter().filter(|(_, ns)| *ns > 0);
        let parts: Vec<String> = parts
            .map(|(name, ns)| format!("{name} {:.3}", *ns as f64 / 1e6))
            .collect();
        writeln!(
            out,
            "  {event}, served by instance {instance}: {} times, {:.3} ms: {}",
            sum.count,
            sum.total_us as f64 / 1e3,
            parts.join(", ")
        )?;
    }
    Ok(())
}
