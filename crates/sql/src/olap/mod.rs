//! The general lane: queries that no direct plan expresses, planned and executed by DataFusion over our tables.
//!
//! A query's syntax tree passes the gate, is rewritten into what DataFusion takes, and is planned: once to learn its
//! columns, and again at each execution, with the parameters' values and the tables at the statement's snapshot.
//! The session's own thread runs the plan and passes rows on as they come; threads of their own scan the heaps.
//!
//! **Invariants.**
//! - Only queries are planned here, and no provider takes writes.
//! - While rows go to the sink nothing is held but the snapshot and what the plan has in memory, which has a limit.
//! - What is planned has a limit ([`size`], [`optimize`]), and its planning can be cancelled.

mod arrow;
mod bound;
mod build;
mod builder;
mod calls;
mod choices;
mod error;
mod extremes;
mod filters;
mod forms;
mod functions;
mod gate;
mod interrupt;
mod keyed;
mod lists;
mod locked;
mod lookup;
mod members;
mod operators;
mod optimize;
mod planner;
mod recursive;
mod renamed;
mod rewrite;
mod scan;
mod size;
mod structure;
mod tables;
pub mod target;
mod through;
mod united;

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};
use std::task::{Poll, Wake, Waker};

use block::value::{Datum, DatumRef};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::sqlparser::ast;
use engine::Snapshot;
use futures::StreamExt;
use wait::{Event, WaitResult, Waiter};

use crate::api::{ColumnDesc, RowSink};
use crate::bind::ParamTypes;
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::plan::SelectPlan;
use crate::session::Core;
use crate::types::SqlType;
use crate::views::Context;
use error::from_datafusion;
pub use gate::is_general_aggregate;
pub use lists::compact;
pub use structure::call_of;
use tables::Opened;
pub use tables::WITH_ROW_IDS;
pub use target::ROW_ID;

/// A query whose columns are known.
#[derive(Debug)]
pub struct Query {
    query: Box<ast::Query>,
    params: Vec<SqlType>,
    columns: Vec<ColumnDesc>,
    /// Subqueries that lock rows, taken out of the query.
    locked: Vec<locked::Locked>,
    /// The tables that it reads itself.
    tables: Vec<Arc<Table>>,
}

/// An execution under way.
pub struct Run {
    stream: SendableRecordBatchStream,
    schema: SchemaRef,
    descs: Vec<ColumnDesc>,
    waiter: Arc<Waiter>,
    /// What the query's functions work in.
    context: Arc<Context>,
    /// The batch being sent, its columns made readable, and the next row of it.
    batch: Option<(RecordBatch, Vec<arrow::Column>)>,
    row: usize,
}

/// Where DataFusion's own tasks run, and the blocking threads that scan.
static RUNTIME: LazyLock<std::result::Result<tokio::runtime::Runtime, String>> =
    LazyLock::new(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder
            .worker_threads(WORKERS)
            .max_blocking_threads(MAX_SCANS)
            .thread_name("px");
        builder.build().map_err(|e| e.to_string())
    });

const WORKERS: usize = 2;
/// Scans at a time in the whole instance; more wait for their turn.
const MAX_SCANS: usize = 256;

/// Memory of a part of a plan that is run before the rest.
const MAX_PART_BYTES: usize = 16 << 20;

fn runtime() -> Result<&'static tokio::runtime::Runtime> {
    RUNTIME
        .as_ref()
        .map_err(|e| Error::internal(format!("the general lane cannot start: {e}")))
}

/// Plans a query that the direct lane refused for the reason given.
pub fn plan(
    core: &Core,
    q: &ast::Query,
    params: &ParamTypes,
    refused: Error,
) -> Result<(Query, Vec<ColumnDesc>)> {
    let mut q = q.clone();
    lists::compact(&mut q);
    forms::rewrite(&mut q);
    let context = Arc::new(Context::new(core));
    crate::plan::merged::write_out(&mut q, &context.dict)?;
    renamed::write_out(&mut q, &context.dict);
    let locked = locked::extract(&mut q, &context.dict, params)?;
    let q = &q;
    gate::check(q)?;
    size::check(q)?;
    let stand_ins = locked::empty(&locked)?;
    let types = parameter_types(q, params, &context, &stand_ins)?;
    let mut tables = Vec::new();
    let mut rewritten = q.clone();
    rewrite::rewrite(
        &mut rewritten,
        &|n| {
            Ok(build::typed(
                None,
                types.get(n - 1).copied().unwrap_or(SqlType::Text),
            ))
        },
        &rewrite::stable(&mut |_, _| Ok(None))?,
    )?;
    let planned = guarded(|| {
        let mut name = |table: &Arc<Table>| {
            tables.push(table.clone());
            Ok(Opened::Named)
        };
        let logical = planner::logical(&rewritten, &context, &mut name, &stand_ins);
        let state = planner::state()?;
        logical
            .and_then(|plan| optimize::optimize(state, plan))
            .map_err(from_datafusion)
    });
    let optimized = planned.map_err(|e| choose(e, refused))?;
    let fields = optimized.schema().fields();
    let columns = fields
        .iter()
        .map(|f| arrow::describe(f))
        .collect::<Result<Vec<_>>>()?;
    let query = Query {
        query: Box::new(q.clone()),
        params: types,
        columns: columns.clone(),
        locked,
        tables,
    };
    Ok((query, columns))
}

/// Which of two refusals tells the client more: that of the direct lane, unless it only said that the query is not its
/// kind.
fn choose(general: Error, direct: Error) -> Error {
    let final_word = matches!(general.sqlstate(), "42P01" | "0A000" | "54001" | "57014");
    if direct.sqlstate() == "0A000" || final_word {
        general
    } else {
        direct
    }
}

/// The number of a parameter, from 1.
fn placeholder(e: &ast::Expr) -> Option<usize> {
    let ast::Expr::Value(v) = e else { return None };
    let ast::Value::Placeholder(p) = &v.value else {
        return None;
    };
    p.strip_prefix('$')?.parse().ok().filter(|n| *n > 0)
}

/// Types of the parameters: as declared, as their uses tell, or else text.
fn parameter_types(
    q: &ast::Query,
    params: &ParamTypes,
    context: &Arc<Context>,
    locked: &locked::Tables,
) -> Result<Vec<SqlType>> {
    let mut numbers = Vec::new();
    let mut learnt = Vec::new();
    let _ = ast::visit_expressions(q, |e| {
        match e {
            ast::Expr::Cast {
                expr, data_type, ..
            } => {
                if let (Some(n), Ok((ty, _))) =
                    (placeholder(expr), crate::bind::parts::data_type(data_type))
                {
                    learnt.push((n, ty));
                }
            }
            other => numbers.extend(placeholder(other)),
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
    if let Some(ast::LimitClause::LimitOffset { limit, offset, .. }) = &q.limit_clause {
        let counts = limit.iter().chain(offset.iter().map(|o| &o.value));
        learnt.extend(counts.filter_map(|e| Some((placeholder(e)?, SqlType::Int8))));
    }
    for (n, ty) in learnt {
        params.infer(n - 1, ty)?;
    }
    let mut open = false;
    for n in &numbers {
        open |= params.known(n - 1)?.is_none();
    }
    if open {
        // Where this fails, the planning to come says why.
        for (n, ty) in inferred(q, params, context, locked).unwrap_or_default() {
            params.infer(n - 1, ty)?;
        }
    }
    let mut types = Vec::new();
    for n in numbers {
        types.resize(types.len().max(n), SqlType::Text);
        types[n - 1] = params.settle(n - 1)?;
    }
    Ok(types)
}

/// What DataFusion finds out about parameters without a type from what they are compared and computed with.
fn inferred(
    q: &ast::Query,
    params: &ParamTypes,
    context: &Arc<Context>,
    locked: &locked::Tables,
) -> Result<Vec<(usize, SqlType)>> {
    let mut query = q.clone();
    let parameter = |n: usize| {
        Ok(match params.known(n - 1)? {
            Some(ty) => build::typed(None, ty),
            None => ast::Expr::Value(ast::Value::Placeholder(format!("${n}")).into()),
        })
    };
    rewrite::rewrite(
        &mut query,
        &parameter,
        &rewrite::stable(&mut |_, _| Ok(None))?,
    )?;
    let fields = guarded(|| {
        planner::logical(&query, context, &mut |_| Ok(Opened::Named), locked)
            .and_then(|plan| plan.get_parameter_fields())
            .map_err(from_datafusion)
    })?;
    let mut types = Vec::new();
    for (name, field) in fields {
        let number = name.strip_prefix('$').and_then(|n| n.parse::<usize>().ok());
        if let (Some(n), Some(field)) = (number.filter(|n| *n > 0), field) {
            types.push((n, arrow::describe(&field)?.ty));
        }
    }
    Ok(types)
}

/// Begins an execution at a snapshot.
pub fn start(query: &Query, core: &mut Core, params: &[Datum], snapshot: Snapshot) -> Result<Run> {
    let io = core.io;
    let mut rewritten = query.query.clone();
    let text = |ty: SqlType, value: DatumRef<'_>| {
        let mut text = Vec::new();
        crate::pgtype::text_out(ty, value, &io, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    };
    let stable = rewrite::stable(&mut |func, ty| {
        let value = crate::expr::Calls::call(core, func, &[])?;
        Ok(Some(text(ty, value.get())))
    })?;
    let parameter = |n: usize| {
        let ty = query.params.get(n - 1).copied().unwrap_or(SqlType::Text);
        let value = params.get(n - 1).filter(|v| !v.is_null());
        Ok(build::typed(value.map(|v| text(ty, v.borrow())), ty))
    };
    rewrite::rewrite(&mut rewritten, &parameter, &stable)?;
    let profiled = core.profile.is_some();
    let context = Arc::new(Context::new(core));
    let locked = locked::run(&query.locked, core, params, snapshot)?;
    let large = Cell::new(false);
    let mut open = |table: &Arc<Table>| {
        core.lock_table(
            table.oid,
            crate::parse::utility::TableLock::AccessShare,
            false,
        )?;
        let held = core.engine.hold_snapshot(&snapshot)?;
        let scan = core.engine.scan(table.engine());
        large.set(large.get() || scan.blocks()? >= tables::LARGE_BLOCKS);
        Ok(Opened::Read(tables::Reading {
            scan,
            snapshot: held,
        }))
    };
    let _entered = runtime()?.enter();
    let waiter = Waiter::new();
    let mut parts = Vec::new();
    let (stream, profiled) = guarded(|| {
        let logical =
            planner::logical(&rewritten, &context, &mut open, &locked).map_err(from_datafusion)?;
        let state = match large.get() {
            true => planner::parallel_state()?,
            false => planner::state()?,
        };
        let logical = optimize::optimize(state, logical).map_err(from_datafusion)?;
        let mut part = |plan: &LogicalPlan, most| {
            let plan = physical(plan, state, &waiter)?;
            parts.extend(profiled.then(|| plan.clone()));
            run_part(plan, state, &waiter, most)
        };
        let logical = lookup::restrict(logical, state, &mut part)?;
        let plan = physical(&logical, state, &waiter)?;
        let profiled = profiled.then(|| plan.clone());
        datafusion::physical_plan::execute_stream(plan, state.task_ctx())
            .map(|stream| (stream, profiled))
            .map_err(from_datafusion)
    })?;
    warn(&context, core);
    if let (Some(profile), Some(plan)) = (&mut core.profile, profiled) {
        profile.general = Some(Box::new(move || {
            let mut all = lines(&*plan);
            for part in &parts {
                all.push("Run before, for its rows:".to_string());
                all.extend(lines(&**part));
            }
            all
        }));
    }
    wait::stat::add(wait::Stat::OlapPlans, 1);
    Ok(Run {
        schema: stream.schema(),
        stream,
        context,
        descs: query.columns.clone(),
        waiter,
        batch: None,
        row: 0,
    })
}

/// Tells the client what views and functions have to say.
fn warn(context: &Context, core: &mut Core) {
    for warning in context.take_warnings() {
        core.notice("WARNING", "01000", warning);
    }
}

fn physical(
    plan: &LogicalPlan,
    state: &SessionState,
    waiter: &Arc<Waiter>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let planner = state.query_planner();
    block_on(waiter, planner.create_physical_plan(plan, state))?
        .and_then(keyed::with_lookups)
        .and_then(interrupt::interruptible)
        .map_err(from_datafusion)
}

/// All rows of a part of a plan, if they are few enough.
fn run_part(
    plan: Arc<dyn ExecutionPlan>,
    state: &SessionState,
    waiter: &Arc<Waiter>,
    most: usize,
) -> Result<Option<Vec<RecordBatch>>> {
    let mut stream = datafusion::physical_plan::execute_stream(plan, state.task_ctx())
        .map_err(from_datafusion)?;
    let mut batches: Vec<RecordBatch> = Vec::new();
    let (mut rows, mut bytes) = (0, 0);
    while let Some(batch) = block_on(waiter, stream.next())? {
        let batch = batch.map_err(from_datafusion)?;
        (rows, bytes) = (
            rows + batch.num_rows(),
            bytes + batch.get_array_memory_size(),
        );
        if rows > most || bytes > MAX_PART_BYTES {
            return Ok(None);
        }
        batches.push(batch);
    }
    Ok(Some(batches))
}

/// A line of a plan without the functions that say only of what type their argument is, which the names of columns keep.
fn without_helpers(mut line: String) -> String {
    const HELPERS: [&str; 4] = [
        functions::MIN_ARGUMENT,
        functions::MAX_ARGUMENT,
        functions::WIDEN,
        functions::FLOAT_ONLY,
    ];
    for helper in HELPERS {
        while let Some(start) = line.find(&format!("{helper}(")) {
            let open = start + helper.len();
            let mut depth = 0usize;
            let close = line[open..].find(|c| {
                match c {
                    '(' => depth += 1,
                    ')' => depth -= 1,
                    _ => {}
                }
                depth == 0
            });
            let Some(close) = close else { return line };
            line.replace_range(open + close..open + close + 1, "");
            line.replace_range(start..open + 1, "");
        }
    }
    line
}

/// The lines of a plan, with what its operators took if it has run.
fn lines(plan: &dyn ExecutionPlan) -> Vec<String> {
    fn add(plan: &dyn ExecutionPlan, depth: usize, lines: &mut Vec<String>) {
        if let (interrupt::NAME | keyed::NAME, [input]) = (plan.name(), plan.children().as_slice())
        {
            return add(&***input, depth, lines);
        }
        let shown = datafusion::physical_plan::displayable(plan).one_line();
        let shown = without_helpers(shown.to_string());
        let mut line = format!("{}{}", "  ".repeat(depth), shown.trim_end());
        let metrics = plan.metrics().unwrap_or_default();
        if let Some(rows) = metrics.output_rows() {
            let time = metrics.elapsed_compute().unwrap_or(0) as f64 / 1e6;
            line += &format!("  (actual rows={rows} time={time:.3} ms");
            for name in [scan::GETS, scan::LOOKUPS] {
                if let Some(count) = metrics.sum_by_name(name) {
                    line += &format!(" {name}={}", count.as_usize());
                }
            }
            line.push(')');
        }
        lines.push(line);
        for child in plan.children() {
            add(&**child, depth + 1, lines);
        }
    }
    let mut lines = Vec::new();
    add(plan, 0, &mut lines);
    lines
}

/// The lines of the plan that a query would run by.
pub fn explain(query: &Query, core: &mut Core) -> Result<Vec<String>> {
    let mut rewritten = query.query.clone();
    let parameter = |n: usize| {
        let ty = query.params.get(n - 1).copied().unwrap_or(SqlType::Text);
        Ok(build::typed(None, ty))
    };
    let stable = rewrite::stable(&mut |_, _| Ok(None))?;
    rewrite::rewrite(&mut rewritten, &parameter, &stable)?;
    let context = Arc::new(Context::new(core));
    let locked = locked::empty(&query.locked)?;
    let large = Cell::new(false);
    let mut open = |table: &Arc<Table>| {
        let lock = crate::parse::utility::TableLock::AccessShare;
        core.lock_table(table.oid, lock, false)?;
        let blocks = core.engine.scan(table.engine()).blocks()?;
        large.set(large.get() || blocks >= tables::LARGE_BLOCKS);
        Ok(Opened::Shown { blocks })
    };
    let _entered = runtime()?.enter();
    guarded(|| {
        let logical =
            planner::logical(&rewritten, &context, &mut open, &locked).map_err(from_datafusion)?;
        let state = match large.get() {
            true => planner::parallel_state()?,
            false => planner::state()?,
        };
        let logical = optimize::optimize(state, logical).map_err(from_datafusion)?;
        let plan = physical(&logical, state, &Waiter::new())?;
        Ok(lines(&*plan))
    })
}

thread_local! {
    /// Whether a panic of this thread is going to be a statement's error.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Keeps such panics out of the log, where they would look like those that end the instance: the client is told.
static HOOK: LazyLock<()> = LazyLock::new(|| {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !GUARDED.get() {
            others(panic);
        }
    }));
});

/// Runs a part of DataFusion. A panic in there breaks none of our invariants, for it is given nothing of ours that it
/// could leave half done: it is the statement's error.
fn guarded<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    LazyLock::force(&HOOK);
    let before = GUARDED.replace(true);
    let done = std::panic::catch_unwind(AssertUnwindSafe(f));
    GUARDED.set(before);
    done.unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("a panic");
        Err(Error::internal(format!(
            "the vectorized lane failed: {what}"
        )))
    })
}

struct Bell(Arc<Waiter>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

/// Runs a future on this thread; the waits in between are the session's, and can be cancelled.
fn block_on<F: Future>(waiter: &Arc<Waiter>, future: F) -> Result<F::Output> {
    let waker = Waker::from(Arc::new(Bell(waiter.clone())));
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return Ok(done);
        }
        // A signal wins over a cancellation, and busy workers signal all the time.
        let woken = waiter.wait(Event::PxDeqMessage, [0; 3], None);
        if woken == WaitResult::Cancelled || wait::check_cancel().is_err() {
            return Err(crate::session::cancelled());
        }
    }
}

impl Query {
    /// The same, for a caller who knows that the values of each numeric column have all the same number of digits: they keep it.
    pub fn with_all_digits(mut self) -> Query {
        let numerics = self.columns.iter_mut().filter(|c| c.ty == SqlType::Numeric);
        // Any declared scale says that; which it is, the values' own type does.
        numerics.for_each(|c| c.typmod = arrow::SOME_SCALE);
        self
    }

    /// The tables that it reads, and the direct plans in it, which lock rows.
    pub fn reads(&self) -> (&[Arc<Table>], impl Iterator<Item = &SelectPlan>) {
        (&self.tables, self.locked.iter().map(locked::Locked::plan))
    }
}

impl Run {
    /// Sends up to `max_rows` rows (0: all). Returns how many, and whether there may be more.
    pub fn run(
        &mut self,
        core: &mut Core,
        max_rows: usize,
        sink: &mut dyn RowSink,
    ) -> Result<(u64, bool)> {
        let _entered = runtime()?.enter();
        let most = if max_rows == 0 {
            u64::MAX
        } else {
            max_rows as u64
        };
        let mut sent = 0;
        loop {
            if let Some((batch, columns)) = &self.batch {
                while self.row < batch.num_rows() && sent < most {
                    let values: Vec<DatumRef<'_>> =
                        columns.iter().map(|c| c.get(self.row)).collect();
                    sink.row(&values)?;
                    self.row += 1;
                    sent += 1;
                }
                if self.row < batch.num_rows() {
                    return Ok((sent, true));
                }
                self.batch = None;
            }
            wait::check_cancel().map_err(|_| crate::session::cancelled())?;
            let next = guarded(|| block_on(&self.waiter, self.stream.next()))?;
            warn(&self.context, core);
            let Some(batch) = next else {
                return Ok((sent, false));
            };
            self.take(batch.map_err(from_datafusion)?)?;
            if sent == most {
                return Ok((sent, true));
            }
        }
    }

    fn take(&mut self, batch: RecordBatch) -> Result<()> {
        let described = batch
            .columns()
            .iter()
            .zip(self.schema.fields())
            .zip(&self.descs);
        let columns = described
            .map(|((array, field), desc)| arrow::Column::new(array, field, desc))
            .collect::<Result<Vec<_>>>()?;
        (self.batch, self.row) = (Some((batch, columns)), 0);
        Ok(())
    }
}
