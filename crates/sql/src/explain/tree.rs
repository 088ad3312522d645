//! EXPLAIN of the tree lane's plans.

use super::{Lines, Names, shown};
use crate::error::Result;
use crate::exec::profile::Vectors;
use crate::expr::Expr;
use crate::plan::{Path, TableAccess};
use crate::query::Plan;
use crate::query::plan::{JoinKind, Node, Part, SetKind};
use crate::query::vector;
use crate::session::Core;

impl Lines<'_> {
    pub(super) fn tree(&mut self, plan: &Plan, depth: usize, core: &mut Core) -> Result<()> {
        self.file(&plan.root, depth, core)?;
        for (number, shared) in plan.shared.iter().enumerate() {
            if shared.name.is_empty() {
                continue;
            }
            self.note(depth, format!("CTE {} [{number}]", shared.name));
            self.file(&shared.root, depth + 1, core)?;
            if let Some(recursive) = &shared.recursive {
                self.file(&recursive.root, depth + 1, core)?;
            }
        }
        for (number, subquery) in plan.subqueries.iter().enumerate() {
            if matches!(subquery.root, Node::Nothing) {
                continue;
            }
            self.note(depth, format!("SubPlan {number}"));
            self.file(&subquery.root, depth + 1, core)?;
            if let Some(keyed) = &subquery.keyed {
                let after = keyed.after;
                self.note(
                    depth,
                    format!("SubPlan {number}, hashed after {after} runs"),
                );
                self.file(&keyed.root, depth + 1, core)?;
            }
        }
        Ok(())
    }

    /// The steps of one register file.
    fn file(&mut self, root: &Node, depth: usize, core: &mut Core) -> Result<()> {
        self.names.clear();
        name_registers(root, &mut self.names);
        self.node(root, depth, core)
    }

    fn node(&mut self, node: &Node, depth: usize, core: &mut Core) -> Result<()> {
        let took = self.took(node.key());
        let step = |lines: &mut Self, name: &str| lines.step(depth, format!("{name}{took}"));
        let below = depth + 1;
        match node {
            Node::One => step(self, "Result"),
            Node::Nothing => step(self, "Result (no rows)"),
            Node::Values(v) => {
                step(self, &format!("Values Scan  (rows={})", v.rows.len()));
            }
            Node::Series(_) => step(self, "Function Scan on generate_series"),
            Node::Table(t) => {
                let scan = match &t.part {
                    Part::Whole => super::SEQUENTIAL,
                    Part::Tids(_) => "Tid Scan",
                    Part::TidsOf { .. } => "Tid Scan, or Seq Scan,",
                    Part::Sample(_) => "Sample Scan",
                };
                self.access_as(&t.access, &t.alias, scan, depth);
                if let Some(listed) = &t.listed {
                    let index = match &listed.access.path {
                        Path::Keys { index, .. } => &t.access.table.indexes[*index].name,
                        _ => &t.access.table.name,
                    };
                    let (number, most) = (listed.subquery, listed.most);
                    let text =
                        format!("Or by {index}, if SubPlan {number} gives up to {most} keys");
                    self.note(depth, text);
                }
            }
            Node::View(v) => {
                let name = v.of.as_ref().map_or(v.view.name, |s| s.name.as_str());
                step(self, &scan("View Scan", name, &v.alias));
            }
            Node::Shared(s) => {
                let name = match s.last_round {
                    true => "WorkTable Scan",
                    false => "CTE Scan",
                };
                step(self, &scan(name, &s.name, &s.alias));
            }
            Node::With(w) => self.node(&w.input, depth, core)?,
            Node::Filter(f) => {
                step(self, "Filter");
                self.removed(node.key(), depth);
                self.node(&f.input, below, core)?;
            }
            Node::Compute(c) => {
                step(
                    self,
                    match c.series.is_empty() {
                        true => "Compute",
                        false => "ProjectSet",
                    },
                );
                self.node(&c.input, below, core)?;
            }
            Node::Loop(j) => {
                step(self, &format!("Nested Loop{}", kind_of(j.kind)));
                self.node(&j.outer, below, core)?;
                self.node(&j.inner, below, core)?;
            }
            Node::Hash(j) => {
                step(
                    self,
                    &format!("Hash{} Join", kind_of(j.kind).trim_end_matches(" Join")),
                );
                self.node(&j.probe, below, core)?;
                self.step(below, "Hash".to_string());
                self.node(&j.build, below + 1, core)?;
            }
            Node::Keep(k) => {
                step(self, "Materialize");
                self.node(&k.input, below, core)?;
            }
            Node::Group(g) => {
                let name = match (g.keys.is_empty(), g.sets.len()) {
                    (true, _) => "Aggregate",
                    (false, 1) => "HashAggregate",
                    _ => "MixedAggregate",
                };
                let vectors = match self.measured {
                    Some(m) => m.profile.vectors(node.key()),
                    None => vector::vectors(g, core)?,
                };
                match vectors {
                    Vectors::Threads(threads) => {
                        step(self, &format!("Vectorized {name}"));
                        self.note(depth, format!("Threads: {threads}"));
                    }
                    Vectors::Refused(why) => {
                        step(self, name);
                        self.note(depth, format!("Not Vectorized: {why}"));
                    }
                    Vectors::No => step(self, name),
                }
                self.node(&g.input, below, core)?;
            }
            Node::Distinct(d) => {
                step(
                    self,
                    match d.sorted {
                        true => "Unique",
                        false => "HashAggregate",
                    },
                );
                self.node(&d.input, below, core)?;
            }
            Node::Sort(s) => {
                step(self, "Sort");
                self.node(&s.input, below, core)?;
            }
            Node::Window(w) => {
                step(self, "WindowAgg");
                self.node(&w.input, below, core)?;
            }
            Node::SetOperation(s) => {
                let all = if s.all { " All" } else { "" };
                step(
                    self,
                    &match s.kind {
                        SetKind::Union if s.all => "Append".to_string(),
                        SetKind::Union => "HashSetOp Union".to_string(),
                        SetKind::Intersect => format!("HashSetOp Intersect{all}"),
                        SetKind::Except => format!("HashSetOp Except{all}"),
                    },
                );
                self.node(&s.left, below, core)?;
                self.node(&s.right, below, core)?;
            }
            Node::Zip(z) => {
                step(self, "Function Scan of several functions");
                for (part, _) in &z.parts {
                    self.node(part, below, core)?;
                }
            }
            Node::Append(a) => {
                step(self, "Append");
                for part in &a.parts {
                    self.node(part, below, core)?;
                }
            }
            Node::Limit(l) => {
                step(self, "Limit");
                self.node(&l.input, below, core)?;
            }
            Node::Lock(l) => {
                step(self, "LockRows");
                self.node(&l.input, below, core)?;
            }
        }
        Ok(())
    }
}

/// Names the registers that columns of relations go to, and keys of groups that are columns.
fn name_registers(node: &Node, names: &mut Names) {
    match node {
        Node::One
        | Node::Nothing
        | Node::Values(_)
        | Node::Series(_)
        | Node::Shared(_)
        | Node::SetOperation(_) => {}
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
        Node::Compute(n) => name_registers(&n.input, names),
        Node::Keep(n) => name_registers(&n.input, names),
        Node::Distinct(n) => name_registers(&n.input, names),
        Node::Sort(n) => name_registers(&n.input, names),
        Node::Window(n) => name_registers(&n.input, names),
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
                if let Expr::Param(from) = key
                    && let Some(name) = names.get(from).cloned()
                {
                    names.insert(*register, name);
                }
            }
            for a in &g.aggregates {
                names.insert(a.into, format!("{:?}", a.function).to_lowercase());
            }
        }
    }
}

fn kind_of(kind: JoinKind) -> &'static str {
    match kind {
        JoinKind::Inner => "",
        JoinKind::Left => " Left Join",
        JoinKind::Right => " Right Join",
        JoinKind::Full => " Full Join",
    }
}

fn scan(kind: &str, name: &str, alias: &str) -> String {
    match name == alias {
        true => format!("{kind} on {name}"),
        false => format!("{kind} on {name} {alias}"),
    }
}

/// The keys by which an index is entered several times.
pub(super) fn whole_keys(
    a: &TableAccess,
    index: usize,
    keys: &[Vec<Expr>],
    names: &Names,
) -> String {
    let index = &a.table.indexes[index];
    let width = keys.first().map_or(0, Vec::len);
    let columns: Vec<String> = (0..width).map(|at| index.key_text(&a.table, at)).collect();
    let keys: Vec<String> = keys
        .iter()
        .map(|key| {
            let values: Vec<String> = key.iter().map(|e| shown(e, a, names)).collect();
            format!("({})", values.join(", "))
        })
        .collect();
    format!("({}) IN ({})", columns.join(", "), keys.join(", "))
}
