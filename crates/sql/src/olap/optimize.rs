//! Runs DataFusion's rules over a plan. The rules are DataFusion's, what drives them is ours, for two reasons:
//! - Its drivers check a plan before and after: at each node, the check visits all nodes of all subqueries below, and at each of these begins
//!   again. Each level of subqueries doubles that, so fifty levels would take for ever. Ours look at every subquery once.
//! - A statement that is cancelled, or has run out of time, must end while it is planned too.
//!
//! **Invariants.**
//! - A plan that is larger than [`MAX_NODES`] meets no rule.
//! - Before each rule at each node the session's cancellation is looked at.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as DfResult;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::logical_plan::{
    EmptyRelation, assert_expected_schema, check_subquery_expr,
};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Nodes of a plan, those of its subqueries included. So many take about two seconds to plan, and are a union of some 2,500 queries.
const MAX_NODES: usize = 10_000;

/// The plan after all rules of analysis and optimization.
pub fn optimize(state: &SessionState, plan: LogicalPlan) -> DfResult<LogicalPlan> {
    check_size(&plan)?;
    let mut plan = plan;
    for rule in &state.analyzer().rules {
        check_cancel()?;
        plan = rule.analyze(plan, state.config_options())?;
    }
    check_subqueries(&plan)?;
    let schema = plan.schema().clone();
    let mut seen = HashSet::from([signature(&plan)]);
    for _ in 0..state.config_options().optimizer.max_passes {
        for rule in &state.optimizer().rules {
            plan = apply(plan, &**rule, state)?;
        }
        if !seen.insert(signature(&plan)) {
            break;
        }
    }
    assert_expected_schema(&schema, &plan)?;
    check_subqueries(&plan)?;
    Ok(plan)
}

fn check_cancel() -> DfResult<()> {
    wait::check_cancel().map_err(|_| crate::session::cancelled().into())
}

fn check_size(plan: &LogicalPlan) -> DfResult<()> {
    let mut nodes = 0;
    plan.apply_with_subqueries(|_| {
        nodes += 1;
        Ok(match nodes > MAX_NODES {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    if nodes > MAX_NODES {
        return Err(super::size::too_complex(format!(
            "its plan would have more than {MAX_NODES} steps"
        ))
        .into());
    }
    Ok(())
}

/// Refuses subqueries where they cannot stand, and what in them depends on the query around in a way that cannot be planned.
fn check_subqueries(plan: &LogicalPlan) -> DfResult<()> {
    plan.apply_with_subqueries(|node| {
        check_cancel()?;
        node.apply_expressions(|e| {
            e.apply(|e| {
                let inner = match e {
                    Expr::Exists(e) => Some(&e.subquery),
                    Expr::InSubquery(e) => Some(&e.subquery),
                    Expr::SetComparison(e) => Some(&e.subquery),
                    Expr::ScalarSubquery(subquery) => Some(subquery),
                    _ => None,
                };
                if let Some(inner) = inner {
                    check_subquery_expr(node, &shallow(&inner.subquery)?, e)?;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// A subquery's plan with nothing in the places of the subqueries in it, which are checked by themselves: DataFusion's check of one would check
/// them all, twice.
fn shallow(plan: &LogicalPlan) -> DfResult<LogicalPlan> {
    let nothing = |inner: LogicalPlan| {
        let schema = inner.schema().clone();
        let LogicalPlan::Subquery(mut subquery) = inner else {
            return Ok(Transformed::no(inner));
        };
        subquery.subquery = Arc::new(LogicalPlan::EmptyRelation(EmptyRelation {
            produce_one_row: false,
            schema,
        }));
        Ok(Transformed::yes(LogicalPlan::Subquery(subquery)))
    };
    let done = plan
        .clone()
        .transform_down(|node| node.map_subqueries(nothing))?;
    Ok(done.data)
}

/// By which a pass that has changed nothing is known.
fn signature(plan: &LogicalPlan) -> u64 {
    let mut hasher = DefaultHasher::new();
    plan.hash(&mut hasher);
    hasher.finish()
}

fn apply(
    plan: LogicalPlan,
    rule: &dyn OptimizerRule,
    config: &dyn OptimizerConfig,
) -> DfResult<LogicalPlan> {
    check_cancel()?;
    let done = match rule.apply_order() {
        Some(order) => visit(plan, rule, order, config)?,
        // It finds its way by itself.
        None => rule.rewrite(plan, config)?,
    };
    Ok(done.data)
}

/// One rule at a node and all below it, subqueries included.
fn visit(
    plan: LogicalPlan,
    rule: &dyn OptimizerRule,
    order: ApplyOrder,
    config: &dyn OptimizerConfig,
) -> DfResult<Transformed<LogicalPlan>> {
    check_cancel()?;
    let mut changed = false;
    let mut plan = plan;
    if order == ApplyOrder::TopDown {
        let here = rule.rewrite(plan, config)?;
        (plan, changed) = (here.data, here.transformed);
        if here.tnr != TreeNodeRecursion::Continue {
            return Ok(Transformed::new_transformed(plan, changed));
        }
    }
    let subqueries = plan.map_subqueries(|q| visit(q, rule, order, config))?;
    changed |= subqueries.transformed;
    let mut stale = false;
    let children = subqueries.data.map_children(|child| {
        let before = child.schema().clone();
        let child = visit(child, rule, order, config)?;
        stale |= child.transformed && *before != **child.data.schema();
        Ok(child)
    })?;
    (plan, changed) = (children.data, changed | children.transformed);
    if stale {
        plan = plan.recompute_schema()?;
    }
    if order == ApplyOrder::BottomUp {
        let here = rule.rewrite(plan, config)?;
        (plan, changed) = (here.data, changed | here.transformed);
    }
    Ok(Transformed::new_transformed(plan, changed))
}
