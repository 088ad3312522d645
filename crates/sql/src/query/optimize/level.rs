//! What stands above FROM: groups, windows, DISTINCT, order, LIMIT.

use std::sync::Arc;

use super::{Built, Planner};
use crate::error::Result;
use crate::expr::Expr;
use crate::plan::SortKey;
use crate::query::aggregate::AggregateCall;
use crate::query::analyze::tree::{Body, Grouping, Level, RowLock, Select, Series, Windows};
use crate::query::plan::{
    Compute, Distinct, Group, Limit, Lock, LockedTable, Node, SetOperation, Sort, Values, Window,
    With,
};
use crate::query::window::{Bound, WindowCall};
use crate::session::Vectorized;

impl Planner<'_> {
    pub(super) fn level(&mut self, level: Level) -> Result<(Built, Vec<Expr>)> {
        self.level_ref(&level)
    }

    /// The plan of a level, and its columns over the registers.
    pub(super) fn level_ref(&mut self, level: &Level) -> Result<(Built, Vec<Expr>)> {
        let limited = level.limit.is_some();
        let (mut built, ordered) = match &level.body {
            Body::Select(select) => self.select(select, &level.order, limited)?,
            body => (self.rows(body)?, level.order.is_empty()),
        };
        if !ordered {
            let bounded = level.locks.is_empty() && !level.with_ties;
            built = self.sorted(built, level, bounded);
        }
        if !level.locks.is_empty() {
            built = self.locked(built, &level.locks);
        }
        if level.limit.is_some() || level.offset.is_some() {
            let keys = level.order.iter().map(|k| k.expr.clone());
            let limit = Limit {
                input: built.node,
                limit: level.limit.clone().map(|e| self.lower(e)),
                offset: level.offset.clone().map(|e| self.lower(e)),
                ties: level.with_ties.then(|| self.lower_all(keys)),
            };
            built.node = Node::Limit(Arc::new(limit));
            built.rows = constant(level.limit.as_ref()).map_or(built.rows, |n| n.min(built.rows));
        }
        if !level.shared.is_empty() {
            let inputs = |list: &[(usize, usize)]| {
                let both = list.iter().map(|(a, b)| (self.at(*a), self.at(*b)));
                both.collect()
            };
            let with = With {
                input: built.node,
                numbers: level.shared.iter().map(|(n, _)| *n).collect(),
                inputs: level.shared.iter().map(|(_, i)| inputs(i)).collect(),
            };
            built.node = Node::With(Arc::new(with));
        }
        let outputs = level.outputs.iter().map(|o| o.value.expr.clone());
        Ok((built, self.lower_all(outputs)))
    }

    /// VALUES and set operations.
    fn rows(&mut self, body: &Body) -> Result<Built> {
        Ok(match body {
            Body::Select(select) => self.select(select, &[], false)?.0,
            Body::Values { rows, into } => {
                let count = rows.len() as f64;
                let values = Values {
                    rows: rows
                        .iter()
                        .map(|row| self.lower_all(row.iter().cloned()))
                        .collect(),
                    into: into.iter().map(|r| self.at(*r)).collect(),
                };
                Built {
                    node: Node::Values(Arc::new(values)),
                    registers: into.clone(),
                    rows: count,
                    cost: count,
                }
            }
            Body::Set {
                kind,
                all,
                left,
                left_columns,
                right,
                right_columns,
                padded,
                into,
            } => {
                let (left, _) = self.level_ref(left)?;
                let (right, _) = self.level_ref(right)?;
                let operation = SetOperation {
                    kind: *kind,
                    all: *all,
                    left: left.node,
                    left_columns: self.lower_all(left_columns.iter().cloned()),
                    right: right.node,
                    right_columns: self.lower_all(right_columns.iter().cloned()),
                    padded: padded.clone(),
                    into: into.iter().map(|r| self.at(*r)).collect(),
                };
                Built {
                    node: Node::SetOperation(Arc::new(operation)),
                    registers: into.clone(),
                    rows: left.rows + right.rows,
                    cost: left.cost + right.cost,
                }
            }
        })
    }

    fn select(&mut self, s: &Select, order: &[SortKey], limited: bool) -> Result<(Built, bool)> {
        let plain = s.group.is_none()
            && s.windows.is_empty()
            && s.series.is_empty()
            && s.distinct.is_none()
            && s.columns.is_empty();
        let wanted = if plain { order } else { &[] };
        let batched = match &s.group {
            Some(_) => self.is_batched(s),
            // What only selects hands its rows on to the groups around it.
            None => {
                let plain = s.windows.is_empty() && s.distinct.is_none() && order.is_empty();
                self.batches && plain && !limited
            }
        };
        let around = std::mem::replace(&mut self.batches, batched);
        // The one group of a HAVING without aggregates and GROUP BY is there whatever the rows are.
        let from = match s.group.as_ref().is_some_and(Grouping::is_alone) {
            true => self.from(&[], &[], wanted, limited),
            false => self.from(&s.from, &s.conditions, wanted, limited),
        };
        self.batches = around;
        let (mut built, ordered) = from?;
        if let Some(g) = &s.group {
            built = self.grouped(built, g);
        }
        if let Some(having) = &s.having {
            built = self.filtered(built, vec![having.clone()]);
        }
        for w in &s.windows {
            built = self.windowed(built, w);
        }
        if !s.columns.is_empty() || !s.series.is_empty() {
            built = self.computed(built, s);
        }
        let Some(distinct) = &s.distinct else {
            return Ok((built, ordered && plain || order.is_empty()));
        };
        let mut sorted = order.is_empty();
        if distinct.on {
            let mut keys = order.to_vec();
            for e in &distinct.keys {
                if !keys.iter().any(|k| k.expr == *e) {
                    keys.push(SortKey {
                        expr: e.clone(),
                        descending: false,
                        nulls_first: false,
                        by: None,
                    });
                }
            }
            built = self.sorted_by(built, &keys);
            sorted = true;
        }
        let rows = built.rows;
        let node = Distinct {
            registers: self.kept(&built.registers),
            keys: self.lower_all(distinct.keys.iter().cloned()),
            sorted: distinct.on,
            input: built.node,
        };
        built.node = Node::Distinct(Arc::new(node));
        built.rows = (rows * 0.5).max(1.0);
        Ok((built, sorted))
    }

    /// Whether rows are grouped in a way that batches have, so that they may be read and joined so.
    fn is_batched(&self, s: &Select) -> bool {
        let off = self.core.settings.hot().vectorized == Vectorized::Off;
        let grouped = |g: &Grouping| {
            let plain = |a: &AggregateCall| !a.distinct && a.order.is_empty();
            g.sets.len() == 1 && g.grouping.is_empty() && g.aggregates.iter().all(plain)
        };
        !off && s.group.as_ref().is_some_and(grouped)
    }

    fn grouped(&self, built: Built, g: &Grouping) -> Built {
        let pairs = |list: &[(Expr, usize)]| {
            let lowered = list
                .iter()
                .map(|(e, r)| (self.lower(e.clone()), self.at(*r)));
            lowered.collect::<Vec<_>>()
        };
        let group = Group {
            keys: pairs(&g.keys),
            sets: g.sets.clone(),
            aggregates: g.aggregates.iter().map(|a| self.aggregate(a)).collect(),
            grouping: g
                .grouping
                .iter()
                .map(|(r, keys)| (self.at(*r), keys.clone()))
                .collect(),
            decided: pairs(&g.decided),
            input: built.node,
        };
        let registers = g
            .keys
            .iter()
            .chain(&g.decided)
            .map(|(_, r)| *r)
            .chain(g.aggregates.iter().map(|a| a.into))
            .chain(g.grouping.iter().map(|(r, _)| *r));
        let rows = match g.keys.is_empty() {
            true => 1.0,
            false => self.groups(&g.keys, built.rows) * g.sets.len() as f64,
        };
        Built {
            node: Node::Group(Arc::new(group)),
            registers: registers.collect(),
            rows,
            cost: built.cost + built.rows * 2.0,
        }
    }

    fn aggregate(&self, a: &AggregateCall) -> AggregateCall {
        AggregateCall {
            function: a.function,
            args: self.lower_all(a.args.iter().cloned()),
            distinct: a.distinct,
            order: self.keys(&a.order),
            filter: a.filter.clone().map(|e| self.lower(e)),
            into: self.at(a.into),
        }
    }

    fn keys(&self, keys: &[SortKey]) -> Vec<SortKey> {
        keys.iter()
            .map(|k| SortKey {
                expr: self.lower(k.expr.clone()),
                ..k.clone()
            })
            .collect()
    }

    fn windowed(&self, built: Built, w: &Windows) -> Built {
        let mut order: Vec<SortKey> = w
            .partition
            .iter()
            .map(|e| SortKey {
                expr: e.clone(),
                descending: false,
                nulls_first: false,
                by: None,
            })
            .collect();
        order.extend(w.order.iter().cloned());
        let mut built = match order.is_empty() {
            true => built,
            false => self.sorted_by(built, &order),
        };
        let window = Window {
            input: built.node,
            partition: self.lower_all(w.partition.iter().cloned()),
            order: self.keys(&w.order),
            calls: w.calls.iter().map(|c| self.window_call(c)).collect(),
            registers: self.kept(&built.registers),
        };
        built.node = Node::Window(Arc::new(window));
        built.registers.extend(w.calls.iter().map(|c| c.into));
        built.cost += built.rows * 2.0;
        built
    }

    fn window_call(&self, c: &WindowCall) -> WindowCall {
        let bound = |b: &Bound| match b {
            Bound::Preceding(e) => Bound::Preceding(self.lower(e.clone())),
            Bound::Following(e) => Bound::Following(self.lower(e.clone())),
            other => other.clone(),
        };
        let mut frame = c.frame.clone();
        (frame.start, frame.end) = (bound(&c.frame.start), bound(&c.frame.end));
        WindowCall {
            function: c.function,
            args: self.lower_all(c.args.iter().cloned()),
            filter: c.filter.clone().map(|e| self.lower(e)),
            frame,
            into: self.at(c.into),
        }
    }

    fn computed(&self, mut built: Built, s: &Select) -> Built {
        let compute = Compute {
            input: built.node,
            columns: s
                .columns
                .iter()
                .map(|(r, e)| (self.at(*r), self.lower(e.clone())))
                .collect(),
            series: s.series.iter().map(|s| Arc::new(self.series(s))).collect(),
        };
        built.node = Node::Compute(Arc::new(compute));
        built.registers.extend(s.columns.iter().map(|(r, _)| *r));
        built
            .registers
            .extend(s.series.iter().flat_map(Series::registers));
        built
    }

    fn sorted(&self, built: Built, level: &Level, bounded: bool) -> Built {
        let mut built = self.sorted_by(built, &level.order);
        if bounded && let Node::Sort(sort) = &built.node {
            let lower = |e: &Option<Expr>| e.clone().map(|e| self.lower(e));
            let bounded = Sort {
                input: sort.input.clone(),
                keys: sort.keys.clone(),
                registers: sort.registers.clone(),
                limit: lower(&level.limit),
                offset: lower(&level.offset),
            };
            built.node = Node::Sort(Arc::new(bounded));
        }
        built
    }

    fn sorted_by(&self, mut built: Built, keys: &[SortKey]) -> Built {
        let sort = Sort {
            keys: self.keys(keys),
            registers: self.kept(&built.registers),
            limit: None,
            offset: None,
            input: built.node,
        };
        built.node = Node::Sort(Arc::new(sort));
        built.cost += built.rows * built.rows.max(2.0).log2() * 0.2;
        built
    }

    fn locked(&self, mut built: Built, locks: &[RowLock]) -> Built {
        let lock = Lock {
            input: built.node,
            tables: locks
                .iter()
                .map(|l| LockedTable {
                    table: l.table.clone(),
                    row_id: self.at(l.row_id),
                    wanted: l.wanted,
                })
                .collect(),
        };
        built.node = Node::Lock(Arc::new(lock));
        built
    }
}

fn constant(e: Option<&Expr>) -> Option<f64> {
    match e {
        Some(Expr::Const(block::value::Datum::Int8(n))) => Some(*n as f64),
        _ => None,
    }
}
