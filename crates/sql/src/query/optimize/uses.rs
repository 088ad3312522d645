//! Which registers are read.

use std::collections::HashSet;

use crate::expr::Expr;
use crate::query::analyze::tree::{Body, From, Level, Relation, RelationKind, Series};
use crate::query::plan::Register;
use crate::query::window::Bound;

pub fn of_expr(e: &Expr, uses: &mut HashSet<Register>) {
    e.visit(&mut |e| {
        if let Expr::Column(r) = e {
            uses.insert(*r);
        }
    });
}

/// Registers that a level reads, those of the levels in its FROM included.
pub fn of_level(level: &Level, uses: &mut HashSet<Register>) {
    each_expr(level, &mut |e| of_expr(e, uses));
    each_level(level, &mut |level| {
        uses.extend(level.locks.iter().map(|l| l.row_id));
        let shared = level.shared.iter().flat_map(|(_, inputs)| inputs);
        uses.extend(shared.map(|(outer, _)| *outer));
    });
}

pub fn each_level(level: &Level, f: &mut dyn FnMut(&Level)) {
    f(level);
    match &level.body {
        Body::Select(select) => {
            for item in &select.from {
                each_level_of(item, f);
            }
        }
        Body::Values { .. } => {}
        Body::Set { left, right, .. } => {
            each_level(left, f);
            each_level(right, f);
        }
    }
}

pub fn each_level_of(item: &From, f: &mut dyn FnMut(&Level)) {
    match item {
        From::Relation(Relation {
            kind: RelationKind::Level { level, .. },
            ..
        }) => each_level(level, f),
        From::Relation(_) => {}
        From::Merged { items, .. } => items.iter().for_each(|i| each_level_of(i, f)),
        From::Join { left, right, .. } => {
            each_level_of(left, f);
            each_level_of(right, f);
        }
    }
}

/// Every expression of a level and of those in its FROM.
pub fn each_expr(level: &Level, f: &mut dyn FnMut(&Expr)) {
    for e in level
        .outputs
        .iter()
        .map(|o| &o.value.expr)
        .chain(level.order.iter().map(|k| &k.expr))
        .chain(&level.limit)
        .chain(&level.offset)
    {
        f(e);
    }
    match &level.body {
        Body::Values { rows, .. } => rows.iter().flatten().for_each(f),
        Body::Set {
            left,
            left_columns,
            right,
            right_columns,
            ..
        } => {
            each_expr(left, f);
            each_expr(right, f);
            left_columns.iter().chain(right_columns).for_each(f);
        }
        Body::Select(s) => {
            s.from.iter().for_each(|item| of_item(item, f));
            s.conditions.iter().chain(&s.having).for_each(&mut *f);
            if let Some(g) = &s.group {
                g.keys.iter().chain(&g.decided).for_each(|(e, _)| f(e));
                for a in &g.aggregates {
                    let order = a.order.iter().map(|k| &k.expr);
                    a.args
                        .iter()
                        .chain(order)
                        .chain(&a.filter)
                        .for_each(&mut *f);
                }
            }
            for w in &s.windows {
                let order = w.order.iter().map(|k| &k.expr);
                w.partition.iter().chain(order).for_each(&mut *f);
                for c in &w.calls {
                    c.args.iter().chain(&c.filter).for_each(&mut *f);
                    for bound in [&c.frame.start, &c.frame.end] {
                        if let Bound::Preceding(e) | Bound::Following(e) = bound {
                            f(e);
                        }
                    }
                }
            }
            s.columns.iter().for_each(|(_, e)| f(e));
            s.series.iter().for_each(|s| of_series(s, f));
            if let Some(d) = &s.distinct {
                d.keys.iter().for_each(f);
            }
        }
    }
}

fn of_series(s: &Series, f: &mut dyn FnMut(&Expr)) {
    s.args.iter().for_each(f);
}

/// Every expression of an item of FROM.
pub fn of_item(item: &From, f: &mut dyn FnMut(&Expr)) {
    match item {
        From::Relation(relation) => of_relation(relation, f),
        From::Merged {
            items, conditions, ..
        } => {
            items.iter().for_each(|i| of_item(i, f));
            conditions.iter().for_each(f);
        }
        From::Join {
            left, right, on, ..
        } => {
            of_item(left, f);
            of_item(right, f);
            on.iter().for_each(f);
        }
    }
}

fn of_relation(relation: &Relation, f: &mut dyn FnMut(&Expr)) {
    match &relation.kind {
        RelationKind::Level {
            level, computed, ..
        } => {
            each_expr(level, f);
            computed.iter().for_each(|(_, e)| f(e));
        }
        RelationKind::Series(s) => of_series(s, f),
        RelationKind::Row(row) => row.iter().for_each(|(_, e)| f(e)),
        RelationKind::Zip { parts, .. } => parts.iter().for_each(|part| of_relation(part, f)),
        RelationKind::Table {
            sample, security, ..
        } => {
            if let Some(sample) = sample {
                f(&sample.percent);
                sample.seed.iter().for_each(&mut *f);
            }
            security.conditions.iter().for_each(f);
        }
        RelationKind::View { .. } | RelationKind::Shared { .. } => {}
    }
}

/// Registers that an item of FROM sets, those inside of its levels included.
pub fn all_set_by(item: &From, set: &mut HashSet<Register>) {
    match item {
        From::Relation(relation) => {
            set.extend(&relation.registers);
            match &relation.kind {
                RelationKind::Level {
                    level, computed, ..
                } => {
                    all_set_in(level, set);
                    set.extend(computed.iter().map(|(r, _)| *r));
                }
                RelationKind::Table { .. }
                | RelationKind::View { .. }
                | RelationKind::Series(_)
                | RelationKind::Row(_)
                | RelationKind::Zip { .. }
                | RelationKind::Shared { .. } => {}
            }
        }
        From::Merged { items, .. } => items.iter().for_each(|i| all_set_by(i, set)),
        From::Join { left, right, .. } => {
            all_set_by(left, set);
            all_set_by(right, set);
        }
    }
}

/// Registers that a level sets.
pub fn all_set_in(level: &Level, set: &mut HashSet<Register>) {
    match &level.body {
        Body::Values { into, .. } => set.extend(into),
        Body::Set {
            left, right, into, ..
        } => {
            all_set_in(left, set);
            all_set_in(right, set);
            set.extend(into);
        }
        Body::Select(s) => {
            s.from.iter().for_each(|item| all_set_by(item, set));
            if let Some(g) = &s.group {
                set.extend(g.keys.iter().chain(&g.decided).map(|(_, r)| *r));
                set.extend(g.aggregates.iter().map(|a| a.into));
                set.extend(g.grouping.iter().map(|(r, _)| *r));
            }
            let calls = s.windows.iter().flat_map(|w| &w.calls);
            set.extend(calls.map(|c| c.into));
            set.extend(s.columns.iter().map(|(r, _)| *r));
            for series in &s.series {
                set.extend(series.registers());
            }
        }
    }
}

/// WITH queries that an item of FROM reads.
pub fn shared_of(item: &From, found: &mut HashSet<usize>) {
    match item {
        From::Relation(relation) => match &relation.kind {
            RelationKind::Shared {
                number,
                last_round,
                of_statement: false,
                ..
            } => {
                found.insert(match last_round {
                    // It changes from round to round.
                    true => usize::MAX,
                    false => *number,
                });
            }
            RelationKind::Level { level, .. } => shared_in(level, found),
            _ => {}
        },
        From::Merged { items, .. } => items.iter().for_each(|i| shared_of(i, found)),
        From::Join { left, right, .. } => {
            shared_of(left, found);
            shared_of(right, found);
        }
    }
}

/// WITH queries that a level reads, `usize::MAX` for the last round of a recursive one.
pub fn shared_in(level: &Level, found: &mut HashSet<usize>) {
    match &level.body {
        Body::Values { .. } => {}
        Body::Set { left, right, .. } => {
            shared_in(left, found);
            shared_in(right, found);
        }
        Body::Select(s) => s.from.iter().for_each(|item| shared_of(item, found)),
    }
}

/// Registers that an item of FROM sets.
pub fn set_by(item: &From, registers: &mut Vec<Register>) {
    match item {
        From::Relation(relation) => registers.extend(&relation.registers),
        From::Merged { items, .. } => items.iter().for_each(|i| set_by(i, registers)),
        From::Join { left, right, .. } => {
            set_by(left, registers);
            set_by(right, registers);
        }
    }
}
