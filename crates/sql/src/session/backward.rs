//! Which cursors move backward without SCROLL: those whose rows come from a scan, or sorted, as in
//! PostgreSQL (`ExecSupportsBackwardScan`). Their queries are run again for that.

use super::Kind;
use crate::plan::{SelectPlan, Source};
use crate::query::plan::{Node, Part, SetKind};

pub fn is_scanned(kind: &Kind) -> bool {
    match kind {
        Kind::Select(plan) => is_direct_scan(plan),
        Kind::Tree(plan) => !plan.locks_rows() && is_scan(&plan.root),
        _ => false,
    }
}

fn is_direct_scan(plan: &SelectPlan) -> bool {
    if !plan.locks.is_empty() {
        return false;
    }
    if !plan.order.is_empty() {
        return true;
    }
    let scanned = match &plan.source {
        Source::One | Source::Loop { .. } => false,
        Source::Values(_) | Source::Series { .. } | Source::Table(_) => true,
    };
    scanned && plan.aggregate.is_none()
}

fn is_scan(node: &Node) -> bool {
    match node {
        Node::Values(_)
        | Node::Series(_)
        | Node::Zip(_)
        | Node::View(_)
        | Node::Shared(_)
        | Node::Sort(_) => true,
        Node::Table(scan) => !matches!(scan.part, Part::Sample(_)),
        Node::Filter(filter) => is_scan(&filter.input),
        Node::Compute(compute) => compute.series.is_empty() && is_scan(&compute.input),
        Node::With(with) => is_scan(&with.input),
        Node::Limit(limit) => is_scan(&limit.input),
        Node::Append(append) => append.parts.iter().all(is_scan),
        Node::SetOperation(set) => {
            set.kind == SetKind::Union && set.all && is_scan(&set.left) && is_scan(&set.right)
        }
        _ => false,
    }
}
