//! The order of joins, and how each is done: dynamic programming over the sets of relations of an
//! inner join, up to ten; beyond that one by one, the cheapest next. Left joins wait for what is
//! around them if they can ([`super::delayed`]); other outer joins are one item of it.

use std::collections::HashSet;
use std::sync::Arc;

use super::access::LOOKUP;
use super::conditions::{carry_constants, equality, is_never, registers, take_alternatives_apart};
use super::delayed::{Delayed, delay};
use super::items::{Item, Kind, Parts, flatten, needs_of, own_of, subqueries_of};
use super::{Built, Planner};
use crate::error::{Error, Result};
use crate::expr::{CmpOp, Expr};
use crate::plan::SortKey;
use crate::plan::path::conjoin;
use crate::query::analyze::tree::{From, Relation, RelationKind};
use crate::query::plan::{HashJoin, JoinKind, Keep, LoopJoin, Node, Register};
use crate::views::lookup;

/// Relations whose best order is found by trying all.
const MOST_TRIED: usize = 10;
/// Cost of a row put into a hash table, and of one looked up there.
const BUILD_ROW: f64 = 2.0;
const PROBE_ROW: f64 = 1.0;
/// The same of rows in batches.
const BUILD_BATCHED: f64 = 0.4;
const PROBE_BATCHED: f64 = 0.1;

/// The best way to join a set of items.
#[derive(Clone)]
struct Way {
    built: Built,
    members: Vec<usize>,
}

impl Planner<'_> {
    /// Joins the items of FROM under conditions. Says whether rows come in the wanted order.
    pub(super) fn from(
        &mut self,
        items: &[From],
        conditions: &[Expr],
        order: &[SortKey],
        limited: bool,
    ) -> Result<(Built, bool)> {
        let mut conditions = conditions.to_vec();
        let mut list = Vec::new();
        for item in items {
            flatten(item, &mut list, &mut conditions);
        }
        let all: HashSet<Register> = list.iter().flat_map(|i| i.own.iter().copied()).collect();
        let delayed = delay(&mut list, &mut conditions);
        let own: HashSet<Register> = list.iter().flat_map(|i| i.own.iter().copied()).collect();
        for item in &mut list {
            item.needs
                .retain(|r| own.contains(r) && !item.own.contains(r));
        }
        if conditions.iter().any(is_never) {
            let built = Built {
                node: Node::Nothing,
                registers: all.into_iter().collect(),
                rows: 1.0,
                cost: 0.0,
            };
            return Ok((built, true));
        }
        let items: Vec<&HashSet<Register>> = list.iter().map(|i| &i.own).collect();
        take_alternatives_apart(&mut conditions, &items);
        carry_constants(&mut conditions, &own);
        // What may give something else each time is checked at the end, once for each row.
        let (last, conditions): (Vec<Expr>, Vec<Expr>) =
            conditions.into_iter().partition(Expr::is_volatile);
        // What needs no relation is checked before any is read.
        let (first, conditions): (Vec<Expr>, Vec<Expr>) = conditions
            .into_iter()
            .partition(|c| registers(c).is_disjoint(&own) && !list.is_empty());
        let (built, ordered) = match list.as_slice() {
            [] => {
                let one = Built {
                    node: Node::One,
                    registers: Vec::new(),
                    rows: 1.0,
                    cost: 0.0,
                };
                (self.filtered(one, conditions), order.is_empty())
            }
            [only] => self.item(only, conditions, order, limited)?,
            _ => (self.join(&list, &conditions)?, order.is_empty()),
        };
        let built = self.gated(built, first);
        let built = self.delayed(built, own, delayed)?;
        Ok((self.filtered(built, last), ordered))
    }

    /// Joins to what was joined the left joins that have waited for it.
    fn delayed(
        &mut self,
        mut built: Built,
        mut own: HashSet<Register>,
        delayed: Vec<Delayed<'_>>,
    ) -> Result<Built> {
        for join in delayed {
            built = self.left(built, join.right, join.on, &own, &join.own)?;
            own.extend(join.own);
        }
        Ok(built)
    }

    /// Opens a part only if conditions hold that need none of its rows.
    fn gated(&self, built: Built, conditions: Vec<Expr>) -> Built {
        let Some(condition) = conjoin(self.lower_all(conditions)) else {
            return built;
        };
        let gate = crate::query::plan::Filter {
            input: Node::One,
            condition,
        };
        let join = LoopJoin {
            outer: Node::Filter(Arc::new(gate)),
            inner: built.node,
            kind: JoinKind::Inner,
            on: None,
            inner_registers: Vec::new(),
        };
        Built {
            node: Node::Loop(Arc::new(join)),
            ..built
        }
    }

    /// One item under conditions that need no other but those that are known by then.
    fn item(
        &mut self,
        item: &Item<'_>,
        conditions: Vec<Expr>,
        order: &[SortKey],
        limited: bool,
    ) -> Result<(Built, bool)> {
        match &item.kind {
            Kind::Relation(relation) => self.relation(relation, conditions, order, limited),
            Kind::Outer {
                full,
                left,
                right,
                on,
            } => {
                let built = self.outer(*full, left, right, on, conditions)?;
                Ok((built, order.is_empty()))
            }
        }
    }

    fn join(&mut self, items: &[Item<'_>], conditions: &[Expr]) -> Result<Built> {
        let needed: Vec<Vec<usize>> = conditions
            .iter()
            .map(|c| {
                let read = registers(c);
                let of = |i: &usize| !read.is_disjoint(&items[*i].own);
                (0..items.len()).filter(of).collect()
            })
            .collect();
        let mut join = Join {
            items,
            conditions,
            needed,
            sides: Vec::new(),
            fixed: fixed(conditions, items),
        };
        for (at, item) in items.iter().enumerate() {
            let (side, _) = self.item(item, join.of_one(at), &[], false)?;
            join.sides.push(side);
        }
        let way = match items.len() <= MOST_TRIED {
            true => self.best_of_all(&join)?,
            false => self.one_by_one(&join)?,
        };
        Ok(way.built)
    }

    fn best_of_all(&mut self, join: &Join<'_>) -> Result<Way> {
        let count = join.items.len();
        let mut best: Vec<Option<Way>> = vec![None; 1 << count];
        for at in 0..count {
            if join.items[at].needs.is_empty() {
                best[1 << at] = Some(join.alone(at));
            }
        }
        for set in 1usize..1 << count {
            let Some(way) = best[set].clone() else {
                continue;
            };
            // Relations that nothing ties to those joined wait until nothing else is left.
            let open: Vec<usize> = (0..count)
                .filter(|at| set >> at & 1 == 0 && join.can_follow(&way, *at))
                .collect();
            let tied: Vec<usize> = open
                .iter()
                .copied()
                .filter(|at| join.is_tied(&way, *at))
                .collect();
            for at in if tied.is_empty() { open } else { tied } {
                let next = self.with(join, &way, at)?;
                let place = &mut best[set | 1 << at];
                if place
                    .as_ref()
                    .is_none_or(|known| next.built.cost < known.built.cost)
                {
                    *place = Some(next);
                }
            }
        }
        best.pop()
            .flatten()
            .ok_or_else(|| Error::internal("relations that cannot be joined in any order"))
    }

    fn one_by_one(&mut self, join: &Join<'_>) -> Result<Way> {
        let mut way: Option<Way> = None;
        for at in 0..join.items.len() {
            if join.items[at].needs.is_empty() {
                let alone = join.alone(at);
                if way.as_ref().is_none_or(|w| alone.built.rows < w.built.rows) {
                    way = Some(alone);
                }
            }
        }
        let mut way =
            way.ok_or_else(|| Error::internal("relations that cannot be joined in any order"))?;
        while way.members.len() < join.items.len() {
            let mut best: Option<Way> = None;
            let open = (0..join.items.len()).filter(|at| join.can_follow(&way, *at));
            let open: Vec<usize> = open.collect();
            let any_tied = open.iter().any(|at| join.is_tied(&way, *at));
            for at in open {
                if any_tied && !join.is_tied(&way, at) {
                    continue;
                }
                let next = self.with(join, &way, at)?;
                if best.as_ref().is_none_or(|b| next.built.cost < b.built.cost) {
                    best = Some(next);
                }
            }
            way = best
                .ok_or_else(|| Error::internal("relations that cannot be joined in any order"))?;
        }
        Ok(way)
    }

    /// A way with one more item.
    fn with(&mut self, join: &Join<'_>, way: &Way, at: usize) -> Result<Way> {
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        let (item, side) = (&join.items[at], &join.sides[at]);
        let (alone, between) = (join.of_one(at), join.between(way, at));
        let mut members = way.members.clone();
        members.push(at);
        // The inner side opened for each row, by what is known of it.
        let inner = match item.kind {
            Kind::Relation(relation) if is_table(relation) => {
                let all = alone.iter().chain(&between).cloned().collect();
                self.item(item, all, &[], false)?.0
            }
            _ => self.filtered(side.clone(), between.clone()),
        };
        let known: HashSet<Register> = way.built.registers.iter().copied().collect();
        let matched = self.matched(&between, (&known, &item.own), &join.fixed);
        let rows = match matched {
            Some(share) => (way.built.rows * side.rows * share).max(1.0),
            None => (way.built.rows * inner.rows).max(1.0),
        };
        let looped =
            way.built.cost + way.built.rows * inner.cost + self.lost_batches(&way.built.node)?;
        let mut registers = way.built.registers.clone();
        registers.extend(&item.own);
        let built = |node, cost| Built {
            node,
            registers,
            rows,
            cost,
        };
        let lateral = !item.needs.is_empty();
        let keys: Vec<(&Expr, &Expr)> = between
            .iter()
            .filter_map(|c| equality(c, &known, &item.own))
            .collect();
        let hashed = self.hash_cost(&way.built, side);
        if !lateral && !keys.is_empty() && hashed < looped {
            let rest = rest(&between, &known, &item.own);
            let node = self.hash(&way.built, side, &keys, rest, JoinKind::Inner);
            let built = built(node, hashed);
            return Ok(Way { built, members });
        }
        // Without an index to go by, the inner side's rows are kept and gone through.
        let kept = way.built.cost + side.cost + way.built.rows * side.rows * 0.5;
        let depends = match !lateral && kept < looped {
            true => self.depends(&item.parts, &alone),
            false => None,
        };
        let outer = way.built.node.clone();
        let built = match depends {
            Some(depends) => {
                let keep = self.keep(side, depends);
                built(self.inner_loop(outer, keep, between), kept)
            }
            None => built(self.inner_loop(outer, inner.node, Vec::new()), looped),
        };
        Ok(Way { built, members })
    }

    fn keep(&self, side: &Built, depends: Vec<Register>) -> Node {
        Node::Keep(Arc::new(Keep {
            input: side.node.clone(),
            registers: self.kept(&side.registers),
            depends,
        }))
    }

    fn inner_loop(&self, outer: Node, inner: Node, on: Vec<Expr>) -> Node {
        Node::Loop(Arc::new(LoopJoin {
            outer,
            inner,
            kind: JoinKind::Inner,
            on: conjoin(self.lower_all(on)),
            inner_registers: Vec::new(),
        }))
    }

    /// Registers that a side's rows depend on; `None` if they cannot be kept.
    fn depends(&self, parts: &Parts, conditions: &[Expr]) -> Option<Vec<Register>> {
        let mut subqueries = parts.subqueries.clone();
        let mut reads = parts.reads.clone();
        for c in conditions {
            super::uses::of_expr(c, &mut reads);
            subqueries_of(c, &mut subqueries);
        }
        let stable = |n: &usize| self.subqueries.get(*n).is_some_and(|s| s.stable);
        if parts.shared || !subqueries.iter().all(stable) {
            return None;
        }
        let outside = reads.difference(&parts.sets);
        let mut depends: Vec<Register> = outside.map(|r| self.at(*r)).collect();
        depends.sort_unstable();
        Some(depends)
    }

    /// A hash join of two sides, of which the smaller is built if the kind leaves the choice.
    fn hash(
        &self,
        left: &Built,
        right: &Built,
        keys: &[(&Expr, &Expr)],
        on: Vec<Expr>,
        kind: JoinKind,
    ) -> Node {
        let left_keys = self.lower_all(keys.iter().map(|(l, _)| (*l).clone()));
        let right_keys = self.lower_all(keys.iter().map(|(_, r)| (*r).clone()));
        let swap = left.rows < right.rows;
        let kind = match (kind, swap) {
            (JoinKind::Left, true) => JoinKind::Right,
            (kind, _) => kind,
        };
        let (probe, probe_keys, build, build_keys) = match swap {
            true => (right, right_keys, left, left_keys),
            false => (left, left_keys, right, right_keys),
        };
        Node::Hash(Arc::new(HashJoin {
            probe: probe.node.clone(),
            build: build.node.clone(),
            kind,
            probe_keys,
            build_keys,
            on: conjoin(self.lower_all(on)),
            probe_registers: self.kept(&probe.registers),
            build_registers: self.kept(&build.registers),
        }))
    }

    /// An outer join, under conditions on its result.
    fn outer(
        &mut self,
        full: bool,
        left: &From,
        right: &From,
        on: &[Expr],
        conditions: Vec<Expr>,
    ) -> Result<Built> {
        let (left_own, right_own) = (own_of(left), own_of(right));
        // What is about the left side alone goes there; what is about the right side waits until
        // rows without a partner have their NULLs.
        let (pushed, above): (Vec<Expr>, Vec<Expr>) = conditions
            .into_iter()
            .partition(|c| !full && registers(c).is_disjoint(&right_own));
        let (left, _) = self.from(std::slice::from_ref(left), &pushed, &[], false)?;
        let built = match full {
            true => self.full(left, right, on, &left_own, &right_own)?,
            false => self.left(left, right, on, &left_own, &right_own)?,
        };
        Ok(self.filtered(built, above))
    }

    fn full(
        &mut self,
        left: Built,
        right: &From,
        on: &[Expr],
        left_own: &HashSet<Register>,
        right_own: &HashSet<Register>,
    ) -> Result<Built> {
        let (right, _) = self.from(std::slice::from_ref(right), &[], &[], false)?;
        let keys: Vec<(&Expr, &Expr)> = on
            .iter()
            .filter_map(|c| equality(c, left_own, right_own))
            .collect();
        let rest = rest(on, left_own, right_own);
        let mut registers = left.registers.clone();
        registers.extend(&right.registers);
        Ok(Built {
            node: self.hash(&left, &right, &keys, rest, JoinKind::Full),
            registers,
            rows: left.rows + right.rows,
            cost: self.hash_cost(&left, &right),
        })
    }

    fn left(
        &mut self,
        left: Built,
        right: &From,
        on: &[Expr],
        left_own: &HashSet<Register>,
        right_own: &HashSet<Register>,
    ) -> Result<Built> {
        let lateral = !needs_of(right).is_disjoint(left_own);
        let (of_left, others): (Vec<Expr>, Vec<Expr>) = on
            .iter()
            .cloned()
            .partition(|c| c.is_volatile() || registers(c).is_disjoint(right_own));
        let side = std::slice::from_ref(right);
        let (right_only, between): (Vec<Expr>, Vec<Expr>) = others
            .iter()
            .cloned()
            .partition(|c| registers(c).is_disjoint(left_own));
        let (alone, _) = self.from(side, &right_only, &[], false)?;
        // By what the left row says, the right side opened for each.
        let inner = match right {
            From::Relation(relation) if is_table(relation) => {
                self.from(side, &others, &[], false)?.0
            }
            _ => self.filtered(alone.clone(), between.clone()),
        };
        let looped = left.cost + left.rows * inner.cost.max(LOOKUP);
        // Every row of the left side stays.
        let rows = match self.matched(&between, (left_own, right_own), &HashSet::new()) {
            Some(share) => (left.rows * alone.rows * share).max(left.rows),
            None => left.rows * inner.rows.max(1.0),
        };
        let mut registers = left.registers.clone();
        registers.extend(&inner.registers);
        let keys: Vec<(&Expr, &Expr)> = between
            .iter()
            .filter_map(|c| equality(c, left_own, right_own))
            .collect();
        let hashed = self.hash_cost(&left, &alone);
        if !lateral && !keys.is_empty() && hashed < looped {
            let mut on = rest(&between, left_own, right_own);
            on.extend(of_left);
            return Ok(Built {
                node: self.hash(&left, &alone, &keys, on, JoinKind::Left),
                registers,
                rows,
                cost: hashed,
            });
        }
        let kept = left.cost + alone.cost + left.rows * alone.rows * 0.5;
        if !lateral
            && kept < looped
            && let Some(depends) = self.depends(&Parts::of(right), &right_only)
        {
            let keep = self.keep(&alone, depends);
            let on = between.into_iter().chain(of_left);
            return Ok(self.left_loop(left, keep, on, &registers, kept));
        }
        let mut built = self.left_loop(left, inner.node, of_left, &registers, looped);
        built.rows = rows;
        Ok(built)
    }

    fn left_loop(
        &self,
        left: Built,
        inner: Node,
        on: impl IntoIterator<Item = Expr>,
        registers: &[Register],
        cost: f64,
    ) -> Built {
        let inner_registers = &registers[left.registers.len()..];
        let join = LoopJoin {
            outer: left.node,
            inner,
            kind: JoinKind::Left,
            on: conjoin(self.lower_all(on)),
            inner_registers: inner_registers.iter().map(|r| self.at(*r)).collect(),
        };
        Built {
            node: Node::Loop(Arc::new(join)),
            registers: registers.to_vec(),
            rows: left.rows,
            cost,
        }
    }
}

/// The parts of an inner join of several items.
struct Join<'j> {
    items: &'j [Item<'j>],
    conditions: &'j [Expr],
    /// The items that each condition needs.
    needed: Vec<Vec<usize>>,
    /// Each item under the conditions on it alone.
    sides: Vec<Built>,
    /// Registers that conditions say to equal a constant.
    fixed: HashSet<Register>,
}

impl Join<'_> {
    fn alone(&self, at: usize) -> Way {
        Way {
            built: self.sides[at].clone(),
            members: vec![at],
        }
    }

    /// Conditions on one item alone.
    fn of_one(&self, at: usize) -> Vec<Expr> {
        let each = self.conditions.iter().zip(&self.needed);
        each.filter(|(_, needed)| needed.as_slice() == [at])
            .map(|(c, _)| c.clone())
            .collect()
    }

    /// Conditions that can be checked once the item is there, and could not before.
    fn between(&self, way: &Way, at: usize) -> Vec<Expr> {
        let each = self.conditions.iter().zip(&self.needed);
        each.filter(|(_, needed)| {
            needed.len() > 1
                && needed.contains(&at)
                && needed.iter().all(|n| *n == at || way.members.contains(n))
        })
        .map(|(c, _)| c.clone())
        .collect()
    }

    fn is_tied(&self, way: &Way, at: usize) -> bool {
        !self.items[at].needs.is_empty() || !self.between(way, at).is_empty()
    }

    /// Whether all that the item needs of others is there.
    fn can_follow(&self, way: &Way, at: usize) -> bool {
        let there = |r: &Register| way.members.iter().any(|m| self.items[*m].own.contains(r));
        !way.members.contains(&at) && self.items[at].needs.iter().all(there)
    }
}

fn fixed(conditions: &[Expr], items: &[Item<'_>]) -> HashSet<Register> {
    let own: HashSet<Register> = items.iter().flat_map(|i| i.own.iter().copied()).collect();
    let constant = |e: &Expr| registers(e).is_disjoint(&own);
    let each = conditions.iter().filter_map(|c| {
        let Expr::Compare(CmpOp::Eq, left, right) = c else {
            return None;
        };
        match (&**left, &**right) {
            (Expr::Column(r), e) | (e, Expr::Column(r)) if constant(e) => Some(*r),
            _ => None,
        }
    });
    each.collect()
}

/// Whether its rows may be looked up by what is known of a row of others.
fn is_table(relation: &Relation) -> bool {
    match &relation.kind {
        RelationKind::Table { .. } => true,
        RelationKind::View { view, .. } => lookup::has_keys(view),
        _ => false,
    }
}

/// What is left of conditions besides the keys of a hash join.
fn rest(conditions: &[Expr], left: &HashSet<Register>, right: &HashSet<Register>) -> Vec<Expr> {
    let is_key = |c: &&Expr| equality(c, left, right).is_none();
    conditions.iter().filter(is_key).cloned().collect()
}

impl Planner<'_> {
    fn hash_cost(&self, a: &Built, b: &Built) -> f64 {
        let (small, large) = (a.rows.min(b.rows), a.rows.max(b.rows));
        let (build, probe) = match self.batches {
            true => (BUILD_BATCHED, PROBE_BATCHED),
            false => (BUILD_ROW, PROBE_ROW),
        };
        a.cost + b.cost + small * build + large * probe
    }
}
