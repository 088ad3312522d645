//! Joins by index lookup: where a hash join's first side turns out to give few keys, its other side reads its table by an index that fits them, and not
//! all of it.
//!
//! In a plan that is ready to run, each join's other side is followed down to the scan of a table. If an index of that table fits what the join equates, the
//! scan becomes one by keys, which waits for them, and the first side is tapped: its rows pass as ever, and their keys are noted. Nobody has to guess
//! how many there will be. The join itself stays as it is.
//!
//! **Invariants.**
//! - By keys at least those rows are read that have a partner; the join, and the filters below it, look at each as ever.
//! - Only joins are concerned that do not give rows of the other side without a partner, and between join and table are only steps that look at each row
//!   of the table by itself.
//! - Whether a table is read by keys or as a whole is decided once, for all partitions of its scan, before it has given a row.
//! - What is held before that is decided has a limit, [`filters::INDEX_BYTES`].

mod lookup;
mod read;
mod tap;

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, NullEquality};
use datafusion::error::Result as DfResult;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

use super::scan::{HeapExec, ID};
pub use lookup::{Lookup, Task};
pub use read::Keyed;
pub use tap::NAME;
use tap::{Keys, Tap};

type Plan = Arc<dyn ExecutionPlan>;
type PhysicalRef = Arc<dyn PhysicalExpr>;

/// The plan with such lookups.
pub fn with_lookups(plan: Plan) -> DfResult<Plan> {
    // What is below a recursive query runs many times over; keys are told once.
    if plan.name() == "RecursiveQueryExec" {
        return Ok(plan);
    }
    let plan = plan
        .map_children(|input| {
            let new = with_lookups(input.clone())?;
            let changed = !Arc::ptr_eq(&new, &input);
            Ok(Transformed::new(new, changed, TreeNodeRecursion::Continue))
        })?
        .data;
    let looked_up = plan.downcast_ref::<HashJoinExec>().map(looked_up);
    Ok(looked_up.transpose()?.flatten().unwrap_or(plan))
}

/// The join with a lookup on its other side, if one is of use there.
fn looked_up(join: &HashJoinExec) -> DfResult<Option<Plan>> {
    use JoinType::{Inner, Left, LeftAnti, LeftMark, LeftSemi, RightSemi};
    let drops = matches!(
        join.join_type(),
        Inner | Left | LeftSemi | LeftAnti | LeftMark | RightSemi
    );
    if !drops || join.null_aware || join.null_equality() != NullEquality::NullEqualsNothing {
        return Ok(None);
    }
    let mut heap = None;
    let mut pairs = Vec::new();
    for (value, own) in join.on() {
        let Some((of, at)) = origin(own, join.right()) else {
            continue;
        };
        let first: &HeapExec = heap.get_or_insert(of);
        if std::ptr::eq(first, of) && of.part.wanted[at] != ID {
            pairs.push((of.part.wanted[at], value.clone()));
        }
    }
    let Some(heap) = heap.filter(|h| h.is_scan()) else {
        return Ok(None);
    };
    let Some(lookup) = Lookup::new(heap, pairs, join.left())? else {
        return Ok(None);
    };
    let lookup = Arc::new(lookup);
    let by_keys: Plan = Arc::new(heap.by_keys(lookup.clone()));
    let swap = |node: Plan| {
        let here = node.downcast_ref::<HeapExec>();
        Ok(match here.is_some_and(|h| std::ptr::eq(h, heap)) {
            true => Transformed::new(by_keys.clone(), true, TreeNodeRecursion::Jump),
            false => Transformed::no(node),
        })
    };
    let right = join.right().clone().transform_down(swap)?.data;
    let input = join.left().clone();
    let passing = Keys(lookup);
    let left = Arc::new(Tap { input, passing });
    let with = join.builder().with_new_children(vec![left, right])?;
    with.build_exec().map(Some)
}

/// The scan that an expression over a plan's rows is a column of, be it compared as a wider integer, and that column's place there. `None` also where
/// the plan does not look at each row of the scan by itself.
fn origin<'p>(e: &PhysicalRef, plan: &'p Plan) -> Option<(&'p HeapExec, usize)> {
    if let Some(cast) = e.downcast_ref::<CastExpr>() {
        let integers = [DataType::Int16, DataType::Int32, DataType::Int64];
        let size = |t: &DataType| integers.iter().position(|i| i == t);
        let narrow = cast.expr().data_type(&plan.schema()).ok()?;
        let widened = size(&narrow)? < size(cast.cast_type())?;
        return widened.then(|| origin(cast.expr(), plan))?;
    }
    let at = e.downcast_ref::<Column>()?.index();
    if plan.fetch().is_some() {
        return None;
    }
    if let Some(heap) = plan.downcast_ref::<HeapExec>() {
        return Some((heap, at));
    }
    let column = |at: usize, input: &'p Plan| {
        let name = input.schema().field(at).name().clone();
        let column: PhysicalRef = Arc::new(Column::new(&name, at));
        origin(&column, input)
    };
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let projection = filter.projection().as_ref();
        let at = projection.map_or(Some(at), |p| p.get(at).copied())?;
        return column(at, filter.input());
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return origin(&projection.expr().get(at)?.expr, projection.input());
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let at = match &join.projection {
            Some(p) => *p.get(at)?,
            None => at,
        };
        let (left, at) = side(join, at)?;
        return column(at, if left { join.left() } else { join.right() });
    }
    let passes = plan.is::<SortExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<Tap>();
    match plan.children().as_slice() {
        [input] if passes => column(at, input),
        _ => None,
    }
}

/// Whether a column of a join is one of its left side, and its place there; if the join gives for each row of that side what it would were it the only one.
fn side(join: &HashJoinExec, at: usize) -> Option<(bool, usize)> {
    use JoinType::{
        Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark, RightSemi,
    };
    let split = match join.join_type() {
        RightSemi | RightAnti | RightMark => 0,
        LeftSemi | LeftAnti => usize::MAX,
        _ => join.left().schema().fields().len(),
    };
    let left = at < split;
    let by_row = match left {
        true => matches!(
            join.join_type(),
            Inner | Left | LeftSemi | LeftAnti | LeftMark
        ),
        false => matches!(
            join.join_type(),
            Inner | Right | RightSemi | RightAnti | RightMark
        ),
    };
    by_row.then(|| (left, if left { at } else { at - split }))
}
