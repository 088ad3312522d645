//! From a rewritten query to DataFusion's plans.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    AggregateUDF, Expr, ExprSchemable, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource,
    WindowUDF,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::prelude::SessionConfig;
use datafusion::sql::planner::{ParserOptions, SqlToRel};
use datafusion::sql::sqlparser::ast;

use super::lists;
use super::operators::{self, Operators};
use super::tables::{HeapTable, Opened, ViewTable};
use super::target::Target;
use super::{extremes, functions, recursive, united};
use crate::bind::names;
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::views::{self, Context};

/// Memory of all queries of the general kind together, beyond which sorts and aggregates go to disk.
const MEMORY_BYTES: usize = 256 << 20;

/// Tasks into which a plan over large tables is divided.
const PARALLEL: usize = 2;

/// What all queries share: functions, rules, memory. One for plans that are not divided, one for those that are.
type States = (SessionState, SessionState);
static STATES: LazyLock<std::result::Result<States, String>> = LazyLock::new(|| {
    let runtime: RuntimeEnv = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(MEMORY_BYTES)))
        .with_disk_manager_builder(DiskManagerBuilder::default())
        .build()
        .map_err(|e| e.to_string())?;
    let runtime = Arc::new(runtime);
    Ok((new_state(&runtime, 1), new_state(&runtime, PARALLEL)))
});

fn new_state(runtime: &Arc<RuntimeEnv>, partitions: usize) -> SessionState {
    let mut config = SessionConfig::new()
        .with_target_partitions(partitions)
        .with_batch_size(8192);
    let options = config.options_mut();
    options.sql_parser.parse_float_as_decimal = true;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.execution.time_zone = Some("+00:00".to_string());
    options.execution.collect_statistics = true;
    // Its optimizer finds that a grouped expression is never null, after the aggregate's schema was made, and then refuses its own plan.
    options.execution.skip_physical_aggregate_schema_check = true;
    SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime.clone())
        .with_default_features()
        .build()
}

/// The shared state.
pub fn state() -> Result<&'static SessionState> {
    Ok(&states()?.0)
}

/// The state for plans over large tables.
pub fn parallel_state() -> Result<&'static SessionState> {
    Ok(&states()?.1)
}

fn states() -> Result<&'static States> {
    STATES
        .as_ref()
        .map_err(|e| Error::internal(format!("the general lane cannot start: {e}")))
}

/// How tables are opened.
pub type OpenHeap<'p> = dyn FnMut(&Arc<Table>) -> Result<Opened> + 'p;

/// Finds the tables and functions that a query names.
struct Names<'p> {
    state: &'static SessionState,
    context: Arc<Context>,
    open: RefCell<&'p mut OpenHeap<'p>>,
    locked: &'p super::locked::Tables,
    planners: Vec<Arc<dyn ExprPlanner>>,
    /// A table named twice is opened once.
    known: RefCell<HashMap<String, Arc<dyn TableSource>>>,
}

/// The logical plan of a query.
pub fn logical<'p>(
    query: &ast::Query,
    context: &Arc<Context>,
    open: &'p mut OpenHeap<'p>,
    locked: &'p super::locked::Tables,
) -> DfResult<LogicalPlan> {
    let state = state()?;
    let operators: Arc<dyn ExprPlanner> = Arc::new(Operators { io: context.io });
    let others = state.expr_planners().iter().cloned();
    let names = Names {
        state,
        planners: std::iter::once(operators).chain(others).collect(),
        context: context.clone(),
        open: RefCell::new(open),
        locked,
        known: RefCell::default(),
    };
    let options = ParserOptions::new()
        .with_parse_float_as_decimal(true)
        .with_map_string_types_to_utf8view(false);
    let planner = SqlToRel::new_with_options(&names, options);
    let plan = planner.sql_statement_to_plan(ast::Statement::Query(Box::new(query.clone())))?;
    let plan = operators::comparable_members(plan, &context.io)?;
    let plan = united::of_one_type(plan, &context.io)?;
    check_values(&plan)?;
    Ok(plan)
}

/// VALUES of floats and numerics are decimals of fifteen digits in DataFusion, which are other values.
fn check_values(plan: &LogicalPlan) -> DfResult<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Values(values) = node {
            let empty = DFSchema::empty();
            let is_float = |e: &Expr| match e {
                Expr::Cast(cast) => cast.expr.get_type(&empty).is_ok_and(|t| t.is_floating()),
                _ => false,
            };
            for (at, field) in values.schema.fields().iter().enumerate() {
                let mut column = values.values.iter().filter_map(|row| row.get(at));
                if field.data_type().is_decimal() && column.any(is_float) {
                    return Err(Error::unsupported("VALUES of floats and numerics")
                        .hint("Cast one to the type of the other.")
                        .into());
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

impl Names<'_> {
    fn find(&self, name: &TableReference) -> Result<Arc<dyn TableSource>> {
        let schema = name.schema();
        let in_public = schema.is_none_or(|s| s == "public");
        if let Some(table) = self.context.dict.table(name.table()).filter(|_| in_public) {
            let opened = (*self.open.borrow_mut())(table)?;
            let heap = HeapTable::new(table, &self.context, opened)?;
            return Ok(provider_as_source(Arc::new(heap)));
        }
        if schema == Some(super::WITH_ROW_IDS) {
            let table = self.context.dict.table(name.table());
            let table = table.ok_or_else(|| names::no_relation(name.table()))?;
            let opened = (*self.open.borrow_mut())(table)?;
            let heap = HeapTable::with_row_ids(table, &self.context, opened)?;
            return Ok(provider_as_source(Arc::new(heap)));
        }
        if schema == Some(super::target::SCHEMA) {
            let table = self.context.dict.table(name.table());
            let table = table.ok_or_else(|| names::no_relation(name.table()))?;
            let opened = (*self.open.borrow_mut())(table)?;
            let target = Target::new(table, &self.context, opened)?;
            return Ok(provider_as_source(Arc::new(target)));
        }
        if schema == Some(super::locked::SCHEMA) {
            let mut tables = self.locked.iter();
            let table = tables.find(|(known, _)| known == name.table());
            let (_, table) = table.ok_or_else(|| names::no_relation(name.table()))?;
            return Ok(provider_as_source(table.clone()));
        }
        match views::find(schema, name.table()) {
            Some(view) => Ok(provider_as_source(Arc::new(ViewTable::new(
                view,
                &self.context,
            )?))),
            None => Err(names::no_relation(name.table())),
        }
    }
}

impl ContextProvider for Names<'_> {
    fn get_table_source(&self, name: TableReference) -> DfResult<Arc<dyn TableSource>> {
        let key = name.to_string();
        if let Some(known) = self.known.borrow().get(&key) {
            return Ok(known.clone());
        }
        let found = self.find(&name)?;
        self.known.borrow_mut().insert(key, found.clone());
        Ok(found)
    }

    fn get_table_function_source(
        &self,
        name: &str,
        args: Vec<Expr>,
    ) -> DfResult<Arc<dyn TableSource>> {
        let missing = || {
            DataFusionError::from(Error::new(
                "42883",
                format!("function {name} does not exist"),
            ))
        };
        let function = self.state.table_functions().get(name).ok_or_else(missing)?;
        let context = SimplifyContext::builder()
            .with_config_options(Arc::clone(self.state.config_options()))
            .build();
        let simplifier = ExprSimplifier::new(context);
        let schema = DFSchema::empty();
        let simple = |arg: Expr| {
            simplifier
                .coerce(arg, &schema)
                .and_then(|e| simplifier.simplify(e))
        };
        let args = args.into_iter().map(simple).collect::<DfResult<Vec<_>>>()?;
        let args = datafusion::catalog::TableFunctionArgs::new(&args, self.state);
        Ok(provider_as_source(
            function.create_table_provider_with_args(args)?,
        ))
    }

    fn create_cte_work_table(
        &self,
        name: &str,
        schema: SchemaRef,
    ) -> DfResult<Arc<dyn TableSource>> {
        let table = Arc::new(datafusion::catalog::cte_worktable::CteWorkTable::new(
            name, schema,
        ));
        Ok(provider_as_source(table))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.planners
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        if name == lists::NAME {
            return Some(lists::FUNCTION.clone());
        }
        functions::scalar(name, &self.context)
            .or_else(|| super::choices::find(name))
            .or_else(|| (name == recursive::NAME).then(recursive::function))
            .or_else(|| super::bound::find(name, &self.context.io))
            .or_else(|| self.state.scalar_functions().get(name).cloned())
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.state.higher_order_functions().get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        let theirs = || self.state.aggregate_functions().get(name);
        functions::aggregate(name).or_else(|| theirs().map(extremes::typed))
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.state.window_functions().get(name).cloned()
    }

    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        self.state.config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        self.state.scalar_functions().keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.state.aggregate_functions().keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.state.window_functions().keys().cloned().collect()
    }
}
