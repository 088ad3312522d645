//! From a tree to a plan: where conditions are checked, how relations are read, and in which order
//! they are joined.
//!
//! Estimates rest on what ANALYZE found out, and on the size of the file of a table that was never
//! analyzed.

mod access;
pub mod conditions;
mod delayed;
mod items;
mod joins;
mod keyed;
mod level;
mod part;
mod selectivity;
pub mod uses;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use super::analyze::scope::File;
use super::analyze::tree::{self, Level};
use super::analyze::{Analyzer, tree::Kind};
use super::plan::{self, Node, Plan, Register, SubqueryKind};
use crate::api::ColumnDesc;
use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::session::Core;

/// Makes the plan of an analysed query.
pub fn plan(core: &Core, analyzer: Analyzer<'_>, file: &Rc<File>, level: Level) -> Result<Plan> {
    let base = analyzer.params.count();
    let columns = level.outputs.iter().map(|o| ColumnDesc {
        name: o.name.clone(),
        table_oid: o.origin.0,
        attnum: o.origin.1,
        ty: o.value.ty,
        typmod: o.value.typmod,
        collation: o.value.collation.of_column(),
    });
    let columns = columns.collect();
    let mut subqueries = Vec::new();
    let made = analyzer.subqueries.into_inner();
    let with = analyzer.shared.into_inner();
    let changing = changing_shared(&level, &made, &with);
    let volatile = volatile_subqueries(&made, &changing);
    for (number, subquery) in made.into_iter().enumerate() {
        subqueries.push(Arc::new(match subquery {
            Some(s) => {
                let around = Around {
                    core,
                    dict: analyzer.dict,
                    base,
                    subqueries: &subqueries,
                };
                plan_subquery(&around, s, volatile.contains(&number))?
            }
            None => unused_subquery(base),
        }));
    }
    let around = Around {
        core,
        dict: analyzer.dict,
        base,
        subqueries: &subqueries,
    };
    let mut shared = Vec::new();
    for query in with {
        shared.push(Arc::new(match query {
            Some(s) => plan_shared(&around, s)?,
            None => unused_shared(base),
        }));
    }
    let mut uses = HashSet::new();
    uses::of_level(&level, &mut uses);
    let mut planner = Planner::new(&around, uses);
    let (built, output) = planner.level(level)?;
    Ok(Plan {
        root: built.node,
        parameters: base,
        output,
        columns,
        width: base + file.width(),
        subqueries,
        shared,
        tables: analyzer.tables.into_inner(),
        views: analyzer.views.into_inner(),
    })
}

/// What the planning of each file works with.
struct Around<'p> {
    core: &'p Core,
    dict: &'p Dict,
    base: usize,
    /// Those planned so far: what a query names comes before it.
    subqueries: &'p [Arc<plan::Subquery>],
}

/// Plans the levels of one file.
struct Planner<'p> {
    core: &'p Core,
    dict: &'p Dict,
    /// Parameters of the statement, which are the first registers.
    base: usize,
    /// Registers that any expression of the file reads.
    uses: HashSet<Register>,
    /// Subqueries of the statement that its expressions may name.
    subqueries: &'p [Arc<plan::Subquery>],
    /// The level at hand groups rows that batches may have.
    batches: bool,
    /// The columns that registers are of, of the tables met so far.
    origins: HashMap<Register, selectivity::Origin>,
}

/// A part of a plan.
#[derive(Clone)]
struct Built {
    node: Node,
    /// What it sets, not counting parameters.
    registers: Vec<Register>,
    rows: f64,
    cost: f64,
}

impl<'p> Planner<'p> {
    fn new(around: &Around<'p>, uses: HashSet<Register>) -> Planner<'p> {
        Planner {
            core: around.core,
            dict: around.dict,
            base: around.base,
            uses,
            subqueries: around.subqueries,
            batches: false,
            origins: HashMap::new(),
        }
    }

    /// An expression over the registers as the operators have them.
    fn lower(&self, mut e: Expr) -> Expr {
        e.replace(&mut |e| match e {
            Expr::Column(r) => Some(Expr::Param(self.base + r)),
            _ => None,
        });
        e
    }

    fn lower_all(&self, list: impl IntoIterator<Item = Expr>) -> Vec<Expr> {
        list.into_iter().map(|e| self.lower(e)).collect()
    }

    fn at(&self, register: Register) -> Register {
        self.base + register
    }

    /// Of what a part sets, what is read anywhere: what an operator above has to keep.
    fn kept(&self, registers: &[Register]) -> Vec<Register> {
        let mut kept: Vec<Register> = registers
            .iter()
            .filter(|r| self.uses.contains(r))
            .map(|r| self.at(*r))
            .collect();
        kept.sort_unstable();
        kept.dedup();
        kept
    }
}

/// WITH queries whose rows are not the same throughout the statement: they take something from
/// around them, or read one that does. The last round of a recursive one is always among them.
fn changing_shared(
    level: &Level,
    subqueries: &[Option<tree::Subquery>],
    with: &[Option<tree::Shared>],
) -> HashSet<usize> {
    let mut changing = HashSet::from([usize::MAX]);
    let with_levels = with.iter().flatten().flat_map(|s| {
        let again = s.recursive.as_ref().map(|r| &r.level);
        std::iter::once(&s.level).chain(again)
    });
    let levels = std::iter::once(level)
        .chain(subqueries.iter().flatten().map(|s| &s.level))
        .chain(with_levels);
    for level in levels {
        uses::each_level(level, &mut |level| {
            let taking = level.shared.iter().filter(|(_, inputs)| !inputs.is_empty());
            changing.extend(taking.map(|(number, _)| *number));
        });
    }
    loop {
        let before = changing.len();
        for (number, shared) in with.iter().enumerate() {
            let Some(s) = shared else { continue };
            let mut reads = HashSet::new();
            uses::shared_in(&s.level, &mut reads);
            if !reads.is_disjoint(&changing) {
                changing.insert(number);
            }
        }
        if changing.len() == before {
            return changing;
        }
    }
}

/// Subqueries that may give something else each time, by themselves or by those in them. As in
/// PostgreSQL, one that takes nothing from around it is computed once, also if its functions would
/// give something else the next time.
fn volatile_subqueries(
    all: &[Option<tree::Subquery>],
    changing: &HashSet<usize>,
) -> HashSet<usize> {
    let reads_changing = closed_over(all, &|s| {
        let mut shared = HashSet::new();
        uses::shared_in(&s.level, &mut shared);
        !shared.is_disjoint(changing)
    });
    // One that locks rows does so once, as far as nothing that it depends on changes: what it locks
    // first decides what is locked.
    let mut volatile = closed_over(all, &|s| {
        let mut found = false;
        uses::each_expr(&s.level, &mut |e| found |= e.is_volatile());
        found
    });
    volatile.retain(|number| all[*number].as_ref().is_some_and(|s| !s.inputs.is_empty()));
    volatile.extend(reads_changing);
    volatile
}

/// The subqueries of which something holds, and those that have such a one in them.
fn closed_over(
    all: &[Option<tree::Subquery>],
    holds: &dyn Fn(&tree::Subquery) -> bool,
) -> HashSet<usize> {
    let mut found = HashSet::new();
    // What a subquery has in it comes before it.
    for (number, subquery) in all.iter().enumerate() {
        let Some(s) = subquery else { continue };
        let mut within = false;
        uses::each_expr(&s.level, &mut |e| {
            e.visit(&mut |e| {
                if let Expr::Subquery { number, .. } = e {
                    within |= found.contains(number);
                }
            });
        });
        if within || holds(s) {
            found.insert(number);
        }
    }
    found
}

fn plan_subquery(around: &Around<'_>, s: tree::Subquery, volatile: bool) -> Result<plan::Subquery> {
    let mut uses = HashSet::new();
    uses::of_level(&s.level, &mut uses);
    // Before the test is counted: what the rows depend on.
    let depends: HashSet<Register> = uses.clone();
    if let Kind::Compared { test, .. } = &s.kind {
        uses::of_expr(test, &mut uses);
    }
    let mut planner = Planner::new(around, uses);
    let (built, output) = planner.level_ref(&s.level)?;
    let inputs: Vec<Register> = s.inputs.iter().map(|r| planner.at(*r)).collect();
    let mut width = s.width;
    let mut keyed = None;
    if !volatile && !s.inputs.is_empty() {
        let (mut level, inputs) = (s.level, s.inputs.iter().copied().collect());
        if let Some(split) = keyed::split(&mut level, &s.kind, &inputs, s.width) {
            width += split.new_registers().len();
            keyed = Some(planner.keyed(&level, split, &built)?);
        }
    }
    let kind = match s.kind {
        Kind::Exists => SubqueryKind::Exists,
        Kind::Scalar => {
            let value = output.into_iter().next();
            SubqueryKind::Scalar(value.ok_or_else(|| Error::internal("a value of no column"))?)
        }
        Kind::Compared { test, all, hashed } => {
            // Rows that no input changes are hashed once.
            let fixed = !volatile && s.inputs.iter().all(|r| !depends.contains(r));
            let hashed = hashed.filter(|h| fixed && h.inputs.len() == s.inputs.len());
            let hashed = hashed.map(|h| plan::Hashed {
                inputs: h
                    .inputs
                    .iter()
                    .filter_map(|r| s.inputs.iter().position(|i| i == r))
                    .collect(),
                rows: planner.lower_all(h.rows),
            });
            SubqueryKind::Compared {
                test: planner.lower(test),
                all,
                hashed,
            }
        }
    };
    Ok(plan::Subquery {
        root: built.node,
        width: around.base + width,
        inputs,
        kind,
        cost: built.cost,
        stable: !volatile,
        keyed,
    })
}

/// In the place of a subquery whose query was analysed again elsewhere.
fn unused_subquery(base: usize) -> plan::Subquery {
    plan::Subquery {
        root: Node::Nothing,
        width: base,
        inputs: Vec::new(),
        kind: SubqueryKind::Exists,
        cost: 0.0,
        stable: true,
        keyed: None,
    }
}

fn plan_shared(around: &Around<'_>, s: tree::Shared) -> Result<plan::Shared> {
    let mut uses = HashSet::new();
    uses::of_level(&s.level, &mut uses);
    if let Some(r) = &s.recursive {
        uses::of_level(&r.level, &mut uses);
        r.columns.iter().for_each(|e| uses::of_expr(e, &mut uses));
    }
    s.columns.iter().for_each(|e| uses::of_expr(e, &mut uses));
    let mut planner = Planner::new(around, uses);
    let (built, _) = planner.level(s.level)?;
    let output = planner.lower_all(s.columns);
    let recursive = match s.recursive {
        None => None,
        Some(r) => {
            let (built, _) = planner.level(r.level)?;
            Some(plan::Recursive {
                root: built.node,
                output: planner.lower_all(r.columns),
                distinct: r.distinct,
            })
        }
    };
    Ok(plan::Shared {
        name: s.name,
        root: built.node,
        width: around.base + s.width,
        output,
        recursive,
    })
}

/// In the place of a WITH query that became part of the query that names it.
fn unused_shared(base: usize) -> plan::Shared {
    plan::Shared {
        name: String::new(),
        root: Node::Nothing,
        width: base,
        output: Vec::new(),
        recursive: None,
    }
}
