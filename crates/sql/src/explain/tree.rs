//! EXPLAIN of the tree lane's plans.

use super::{Lines, shown};
use crate::error::Result;
use crate::expr::Expr;
use crate::plan::TableAccess;
use crate::query::Plan;
use crate::query::plan::{JoinKind, Node, SetKind};

impl Lines<'_> {
    pub(super) fn tree(&mut self, plan: &Plan, depth: usize) -> Result<()> {
        self.node(&plan.root, depth);
        for (number, shared) in plan.shared.iter().enumerate() {
            if shared.name.is_empty() {
                continue;
            }
            self.note(depth, format!("CTE {} [{number}]", shared.name));
            self.node(&shared.root, depth + 1);
            if let Some(recursive) = &shared.recursive {
                self.node(&recursive.root, depth + 1);
            }
        }
        for (number, subquery) in plan.subqueries.iter().enumerate() {
            if matches!(subquery.root, Node::Nothing) {
                continue;
            }
            self.note(depth, format!("SubPlan {number}"));
            self.node(&subquery.root, depth + 1);
        }
        Ok(())
    }

    fn node(&mut self, node: &Node, depth: usize) {
        let took = self.took(node.key());
        let mut step = |lines: &mut Self, name: &str| lines.step(depth, format!("{name}{took}"));
        let below = depth + 1;
        match node {
            Node::One => step(self, "Result"),
            Node::Nothing => step(self, "Result (no rows)"),
            Node::Values(v) => {
                step(self, &format!("Values Scan  (rows={})", v.rows.len()));
            }
            Node::Series(_) => step(self, "Function Scan on generate_series"),
            Node::Table(t) => self.access_as(&t.access, &t.alias, depth),
            Node::View(v) => step(self, &scan("View Scan", v.view.name, &v.alias)),
            Node::Shared(s) => {
                let name = match s.last_round {
                    true => "WorkTable Scan",
                    false => "CTE Scan",
                };
                step(self, &scan(name, &s.name, &s.alias));
            }
            Node::With(w) => self.node(&w.input, depth),
            Node::Filter(f) => {
                step(self, "Filter");
                self.removed(node.key(), depth);
                self.node(&f.input, below);
            }
            Node::Compute(c) => {
                step(
                    self,
                    match c.series.is_empty() {
                        true => "Compute",
                        false => "ProjectSet",
                    },
                );
                self.node(&c.input, below);
            }
            Node::Loop(j) => {
                step(self, &format!("Nested Loop{}", kind_of(j.kind)));
                self.node(&j.outer, below);
                self.node(&j.inner, below);
            }
            Node::Hash(j) => {
                step(self, &format!("Hash{} Join", kind_of(j.kind).trim_end_matches(" Join")));
                self.node(&j.probe, below);
                self.step(below, "Hash".to_string());
                self.node(&j.build, below + 1);
            }
            Node::Keep(k) => {
                step(self, "Materialize");
                self.node(&k.input, below);
            }
            Node::Group(g) => {
                step(
                    self,
                    match (g.keys.is_empty(), g.sets.len()) {
                        (true, _) => "Aggregate",
                        (false, 1) => "HashAggregate",
                        _ => "MixedAggregate",
                    },
                );
                self.node(&g.input, below);
            }
            Node::Distinct(d) => {
                step(
                    self,
                    match d.sorted {
                        true => "Unique",
                        false => "HashAggregate",
                    },
                );
                self.node(&d.input, below);
            }
            Node::Sort(s) => {
                step(self, "Sort");
                self.node(&s.input, below);
            }
            Node::Window(w) => {
                step(self, "WindowAgg");
                self.node(&w.input, below);
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
                self.node(&s.left, below);
                self.node(&s.right, below);
            }
            Node::Limit(l) => {
                step(self, "Limit");
                self.node(&l.input, below);
            }
            Node::Lock(l) => {
                step(self, "LockRows");
                self.node(&l.input, below);
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
pub(super) fn whole_keys(a: &TableAccess, index: usize, keys: &[Vec<Expr>]) -> String {
    let columns = &a.table.indexes[index].keys;
    let width = keys.first().map_or(0, Vec::len);
    let names: Vec<&str> = columns
        .iter()
        .take(width)
        .map(|k| a.table.columns[k.column].name.as_str())
        .collect();
    let keys: Vec<String> = keys
        .iter()
        .map(|key| {
            let values: Vec<String> = key.iter().map(|e| shown(e, a)).collect();
            format!("({})", values.join(", "))
        })
        .collect();
    format!("({}) IN ({})", names.join(", "), keys.join(", "))
}
