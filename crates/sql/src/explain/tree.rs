//! EXPLAIN of the tree lane's plans.

use std::sync::Arc;

use super::expression::{
    Names, named_after, named_after_call, named_after_window, over_registers, sorted_by,
};
use super::outline::{Outline, SEQUENTIAL};
use super::step::Value;
use crate::error::Result;
use crate::exec::profile::{StepKey, Vectors};
use crate::expr::Expr;
use crate::plan::{Path, SortKey};
use crate::query::Plan;
use crate::query::plan::{Group, JoinKind, Node, Part, Register, SeriesOf, SetKind, TableScan};
use crate::query::vector;
use crate::session::Core;

impl Outline<'_> {
    pub(super) fn tree(&mut self, plan: &Plan, depth: usize, core: &mut Core) -> Result<()> {
        let parameters = plan.parameters;
        self.file(&plan.root, (parameters, &[]), depth, core)?;
        for (number, shared) in plan.shared.iter().enumerate() {
            if shared.name.is_empty() {
                continue;
            }
            let name = format!("CTE {}", shared.name);
            let text = format!("{name} [{number}]");
            self.heading(depth, Some(text), name.clone(), "InitPlan");
            self.file(&shared.root, (parameters, &[]), depth + 1, core)?;
            if let Some(recursive) = &shared.recursive {
                self.heading(depth, None, name, "InitPlan");
                self.file(&recursive.root, (parameters, &[]), depth + 1, core)?;
            }
        }
        for (number, subquery) in plan.subqueries.iter().enumerate() {
            if matches!(subquery.root, Node::Nothing) {
                continue;
            }
            let name = format!("SubPlan {number}");
            self.heading(depth, Some(name.clone()), name, "SubPlan");
            let known = (parameters, subquery.inputs.as_slice());
            self.file(&subquery.root, known, depth + 1, core)?;
            if let Some(keyed) = &subquery.keyed {
                let after = keyed.after;
                let name = format!("SubPlan {number}, hashed after {after} runs");
                self.heading(depth, Some(name.clone()), name, "SubPlan");
                self.file(&keyed.root, known, depth + 1, core)?;
            }
        }
        Ok(())
    }

    /// The steps of one register file, which begins with parameters, of which it knows the number,
    /// and inputs.
    fn file(
        &mut self,
        root: &Node,
        (parameters, inputs): (usize, &[Register]),
        depth: usize,
        core: &mut Core,
    ) -> Result<()> {
        self.names.begin(parameters, inputs);
        if self.names.are_wanted() {
            name_registers(root, &mut self.names);
        }
        self.node(root, depth, core)
    }

    fn node(&mut self, node: &Node, depth: usize, core: &mut Core) -> Result<()> {
        let took = self.took(node.key());
        // Without a label of its own the text calls a step what PostgreSQL does.
        let named = |outline: &mut Self, label: &str, kind, facts: &[(&'static str, &str)]| {
            let step = outline.step(depth, label, kind);
            step.placed(node.key()).actual = took;
            for (key, value) in facts {
                step.fact(key, *value);
            }
        };
        let plain = |outline: &mut Self, kind| named(outline, kind, kind, &[]);
        let below = depth + 1;
        match node {
            Node::One => plain(self, "Result"),
            Node::Nothing => {
                let never = [("One-Time Filter", "false")];
                named(self, "Result (no rows)", "Result", &never);
            }
            Node::Values(v) => {
                let step = self.step(depth, "Values Scan", "Values Scan");
                step.placed(node.key()).rows(v.rows.len() as f64).actual = took;
            }
            Node::Series(series) => {
                let facts: &[_] = match series.of {
                    SeriesOf::Numbers | SeriesOf::Times => &[("Function Name", "generate_series")],
                    _ => &[],
                };
                let label = "Function Scan on generate_series";
                named(self, label, "Function Scan", facts);
            }
            Node::Table(t) => self.table(t, depth),
            Node::View(v) => {
                let name = v.of.as_ref().map_or(v.view.name, |s| s.name.as_str());
                let facts = [("Relation Name", name), ("Alias", &*v.alias)];
                let label = scan("View Scan", name, &v.alias);
                named(self, &label, "View Scan", &facts);
                let column =
                    |(at, _): &(usize, _)| format!("{}.{}", v.alias, v.view.columns[*at].0);
                self.output(depth, v.columns.iter().map(column));
            }
            Node::Shared(s) => {
                let kind = match s.last_round {
                    true => "WorkTable Scan",
                    false => "CTE Scan",
                };
                let facts = [("CTE Name", &*s.name), ("Alias", &*s.alias)];
                named(self, &scan(kind, &s.name, &s.alias), kind, &facts);
            }
            Node::With(w) => self.node(&w.input, depth, core)?,
            Node::Filter(f) => {
                plain(self, "Filter");
                let text = self.text_of(&f.condition);
                self.condition(depth, "Filter", text);
                self.removed(node.key(), depth);
                self.node(&f.input, below, core)?;
            }
            Node::Compute(c) => {
                let kind = match c.series.is_empty() {
                    true => "Compute",
                    false => "ProjectSet",
                };
                plain(self, kind);
                self.node(&c.input, below, core)?;
            }
            Node::Loop(j) => {
                let (text, join) = kind_of(j.kind);
                let label = format!("Nested Loop{text}");
                named(self, &label, "Nested Loop", &[("Join Type", join)]);
                self.join_filter(j.on.as_ref(), depth);
                self.node(&j.outer, below, core)?;
                self.node(&j.inner, below, core)?;
            }
            Node::Hash(j) => {
                let (text, join) = kind_of(j.kind);
                let label = format!("Hash{} Join", text.trim_end_matches(" Join"));
                named(self, &label, "Hash Join", &[("Join Type", join)]);
                let pair = |(probe, build): (&Expr, &Expr)| {
                    format!("({} = {})", self.text_of(probe), self.text_of(build))
                };
                let pairs: Vec<String> = j.probe_keys.iter().zip(&j.build_keys).map(pair).collect();
                let text = match pairs.as_slice() {
                    [one] => one.clone(),
                    several => format!("({})", several.join(" AND ")),
                };
                self.condition(depth, "Hash Cond", text);
                self.join_filter(j.on.as_ref(), depth);
                self.node(&j.probe, below, core)?;
                self.step(below, "Hash", "Hash");
                self.node(&j.build, below + 1, core)?;
            }
            Node::Keep(k) => {
                plain(self, "Materialize");
                self.node(&k.input, below, core)?;
            }
            Node::Group(g) => {
                self.group(g, node.key(), depth, core)?;
                self.node(&g.input, below, core)?;
            }
            Node::Distinct(d) => {
                match d.sorted {
                    true => plain(self, "Unique"),
                    false => {
                        let hashed = [("Strategy", "Hashed")];
                        named(self, "HashAggregate", "Aggregate", &hashed);
                        let keys = d.keys.iter().map(|e| self.text_of(e)).collect();
                        self.keys(depth, "Group Key", keys);
                    }
                }
                self.node(&d.input, below, core)?;
            }
            Node::Sort(s) => {
                plain(self, "Sort");
                let key = |k: &SortKey| sorted_by(k, self.text_of(&k.expr));
                let keys = s.keys.iter().map(key).collect();
                self.keys(depth, "Sort Key", keys);
                self.node(&s.input, below, core)?;
            }
            Node::Window(w) => {
                plain(self, "WindowAgg");
                self.node(&w.input, below, core)?;
            }
            Node::SetOperation(s) => {
                let command = match s.kind {
                    SetKind::Union if s.all => "",
                    SetKind::Union => "Union",
                    SetKind::Intersect if s.all => "Intersect All",
                    SetKind::Intersect => "Intersect",
                    SetKind::Except if s.all => "Except All",
                    SetKind::Except => "Except",
                };
                match command {
                    "" => plain(self, "Append"),
                    _ => {
                        let facts = [("Strategy", "Hashed"), ("Command", command)];
                        named(self, &format!("HashSetOp {command}"), "SetOp", &facts);
                    }
                }
                self.node(&s.left, below, core)?;
                self.node(&s.right, below, core)?;
            }
            Node::Zip(z) => {
                let label = "Function Scan of several functions";
                named(self, label, "Function Scan", &[]);
                for (part, _) in &z.parts {
                    self.node(part, below, core)?;
                }
            }
            Node::Append(a) => {
                plain(self, "Append");
                for part in &a.parts {
                    self.node(part, below, core)?;
                }
            }
            Node::Limit(l) => {
                plain(self, "Limit");
                self.node(&l.input, below, core)?;
            }
            Node::Lock(l) => {
                plain(self, "LockRows");
                self.node(&l.input, below, core)?;
            }
        }
        Ok(())
    }

    fn table(&mut self, t: &TableScan, depth: usize) {
        let scan = match &t.part {
            Part::Whole => (SEQUENTIAL, SEQUENTIAL),
            Part::Tids(_) => ("Tid Scan", "Tid Scan"),
            Part::TidsOf { .. } => ("Tid Scan, or Seq Scan,", "Tid Scan"),
            Part::Sample(_) => ("Sample Scan", "Sample Scan"),
        };
        let table = &t.access.table;
        self.access_as(&t.access, Some(&t.alias), scan, depth);
        let column = |(at, _): &(usize, _)| format!("{}.{}", t.alias, table.columns[*at].name);
        self.output(depth, t.columns.iter().map(column));
        self.conditions(&t.access, depth);
        if let Some(listed) = &t.listed {
            let index = match &listed.access.path {
                Path::Keys { index, .. } => &table.indexes[*index].name,
                _ => &table.name,
            };
            let (number, most) = (listed.subquery, listed.most);
            let text = format!("by {index}, if SubPlan {number} gives up to {most} keys");
            self.note(depth, format!("Or {text}")).fact("Or", text);
        }
    }

    fn group(&mut self, g: &Arc<Group>, key: StepKey, depth: usize, core: &mut Core) -> Result<()> {
        let (name, strategy) = match (g.keys.is_empty(), g.sets.len()) {
            (true, _) => ("Aggregate", "Plain"),
            (false, 1) => ("HashAggregate", "Hashed"),
            _ => ("MixedAggregate", "Mixed"),
        };
        let vectors = match self.measured {
            Some(m) => m.profile.vectors(key),
            None => vector::vectors(g, core)?,
        };
        let took = self.took(key);
        let label = match vectors {
            Vectors::Threads(_) => format!("Vectorized {name}"),
            Vectors::Refused(_) | Vectors::No => name.to_string(),
        };
        let step = self.step(depth, label, "Aggregate");
        step.placed(key).actual = took;
        step.fact("Strategy", strategy);
        match vectors {
            Vectors::Threads(threads) => {
                let note = self.note(depth, format!("Threads: {threads}"));
                note.fact("Vectorized", true);
                note.fact("Threads", Value::from(threads as u64));
            }
            Vectors::Refused(why) => {
                let note = self.note(depth, format!("Not Vectorized: {why}"));
                note.fact("Vectorized", false).fact("Not Vectorized", why);
            }
            Vectors::No => {}
        }
        let key = |at: &usize| g.keys.get(*at).map(|(e, _)| self.text_of(e));
        let sets: Vec<Vec<String>> = g
            .sets
            .iter()
            .map(|s| s.iter().filter_map(key).collect())
            .collect();
        match sets.as_slice() {
            [keys] if !keys.is_empty() => self.keys(depth, "Group Key", keys.clone()),
            [_] | [] => {}
            sets => {
                for keys in sets {
                    let text = match keys.as_slice() {
                        [] => "Group Key: ()".to_string(),
                        keys => format!("Hash Key: {}", keys.join(", ")),
                    };
                    self.note(depth, text);
                }
            }
        }
        Ok(())
    }

    /// An expression over the registers of the file at hand.
    fn text_of(&self, e: &Expr) -> String {
        over_registers(e, &self.names)
    }

    /// What else makes two rows partners.
    fn join_filter(&mut self, on: Option<&Expr>, depth: usize) {
        if let Some(on) = on {
            let text = self.text_of(on);
            self.condition(depth, "Join Filter", text);
        }
    }
}

/// Names the registers after the columns of relations, and the expressions, that go to them.
fn name_registers(node: &Node, names: &mut Names) {
    match node {
        Node::One | Node::Nothing | Node::Series(_) | Node::Shared(_) => {}
        Node::Values(v) => {
            for (number, register) in (1..).zip(&v.into) {
                names.insert(*register, format!("\"*VALUES*\".column{number}"));
            }
        }
        Node::Table(t) => {
            for (column, register) in &t.columns {
                let name = &t.access.table.columns[*column].name;
                names.insert(*register, format!("{}.{name}", t.alias));
            }
        }
        Node::View(v) => {
            for (column, register) in &v.columns {
                let (name, _) = v.view.columns[*column];
                names.insert(*register, format!("{}.{name}", v.alias));
            }
        }
        Node::With(n) => name_registers(&n.input, names),
        Node::Filter(n) => name_registers(&n.input, names),
        Node::Compute(n) => {
            name_registers(&n.input, names);
            for (register, e) in &n.columns {
                names.insert(*register, named_after(e, names));
            }
        }
        Node::Keep(n) => name_registers(&n.input, names),
        Node::Distinct(n) => name_registers(&n.input, names),
        Node::Sort(n) => name_registers(&n.input, names),
        Node::Window(n) => {
            name_registers(&n.input, names);
            for call in &n.calls {
                names.insert(call.into, named_after_window(call, names));
            }
        }
        Node::SetOperation(n) => {
            name_registers(&n.left, names);
            // PostgreSQL names them after the first query as well.
            let columns = n.left_columns.iter().map(|e| named_after(e, names));
            let columns: Vec<String> = columns.collect();
            name_registers(&n.right, names);
            for (register, name) in n.into.iter().zip(columns) {
                names.insert(*register, name);
            }
        }
        Node::Limit(n) => name_registers(&n.input, names),
        Node::Zip(n) => n
            .parts
            .iter()
            .for_each(|(part, _)| name_registers(part, names)),
        Node::Append(n) => n.parts.iter().for_each(|part| name_registers(part, names)),
        Node::Lock(n) => name_registers(&n.input, names),
        Node::Loop(n) => {
            name_registers(&n.outer, names);
            name_registers(&n.inner, names);
        }
        Node::Hash(n) => {
            name_registers(&n.probe, names);
            name_registers(&n.build, names);
        }
        Node::Group(g) => {
            name_registers(&g.input, names);
            for (key, register) in g.keys.iter().chain(&g.decided) {
                names.insert(*register, named_after(key, names));
            }
            for call in &g.aggregates {
                names.insert(call.into, named_after_call(call, names));
            }
        }
    }
}

/// A join's kind in the text, and as PostgreSQL's other formats have it.
fn kind_of(kind: JoinKind) -> (&'static str, &'static str) {
    match kind {
        JoinKind::Inner => ("", "Inner"),
        JoinKind::Left => (" Left Join", "Left"),
        JoinKind::Right => (" Right Join", "Right"),
        JoinKind::Full => (" Full Join", "Full"),
    }
}

fn scan(kind: &str, name: &str, alias: &str) -> String {
    match name == alias {
        true => format!("{kind} on {name}"),
        false => format!("{kind} on {name} {alias}"),
    }
}
