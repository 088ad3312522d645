//! What of a plan's groups is computed over batches, and whether it is.

use std::collections::HashMap;
use std::sync::Arc;

use block::value::{Datum, DatumRef};

use super::Stop;
use super::batch::Type;
use super::compile::{ColumnType, Compiler};
use super::decode::Decoder;
use super::expr::Value;
use super::join::{Build, Join, Kept, Side};
use super::pipeline::{Pipeline, Stage};
use super::semi::{self, SubqueryTest};
use super::source::{Source, Step, source, types_of};
use super::state::Call;
use crate::error::Error;
use crate::exec::profile::StepKey;
use crate::expr::Expr;
use crate::plan::path::conjuncts;
use crate::query::aggregate::{Aggregate, AggregateCall};
use crate::query::plan::{Group, HashJoin, JoinKind, Subquery};
use crate::query::run::Frame;
use crate::session::{Core, Vectorized};

/// Blocks from which on batches are faster than rows, what it takes to begin included.
const LARGE_BLOCKS: u64 = 32;
/// Blocks of each thread at least: what it takes to start one is made up for.
const THREAD_BLOCKS: u64 = 256;

/// The aggregation of one opening.
pub struct Program {
    pub pipeline: Pipeline,
    pub groups: Grouping,
    /// Bytes that the groups may take, and the table of each join.
    pub memory: usize,
}

/// Keys and aggregates.
pub struct Grouping {
    pub keys: Vec<Value>,
    pub calls: Vec<Call>,
}

pub enum Choice {
    Vectors(Box<Program>),
    /// Row by row; and why, if it was tried.
    Rows(Option<&'static str>),
}

/// What groups are over, if all is of a form that batches have.
fn grouped(group: &Group) -> Option<Source<'_>> {
    let all: Vec<usize> = (0..group.keys.len()).collect();
    let plain = |a: &AggregateCall| !a.distinct && a.order.is_empty() && a.args.len() <= 1;
    if group.sets != [all] || !group.grouping.is_empty() || !group.aggregates.iter().all(plain) {
        return None;
    }
    source(&group.input)
}

/// Whether a plan's groups may be computed over batches, as far as its form says.
pub fn is_vectorized(group: &Group) -> bool {
    grouped(group).is_some()
}

/// Decides how groups are computed, with the registers as they are.
pub fn choose(plan: &Arc<Group>, core: &mut Core, registers: &[Datum]) -> Result<Choice, Error> {
    let vectorized = core.settings.hot().vectorized;
    let Some(source) = grouped(plan) else {
        return Ok(Choice::Rows(None));
    };
    if vectorized == Vectorized::Off {
        return Ok(Choice::Rows(None));
    }
    if !is_large(&source, core)? {
        return Ok(Choice::Rows(None));
    }
    match compile(plan, &source, core, registers) {
        Ok(program) => Ok(Choice::Vectors(Box::new(program))),
        Err(Stop::Failed(e)) => Err(e),
        Err(stop) => Ok(Choice::Rows(stop.why())),
    }
}

fn blocks(source: &Source<'_>, core: &mut Core) -> Result<u64, Error> {
    let table = source.scan.access.table.engine();
    Ok(core.engine.scan(table).blocks()?)
}

/// Whether what is read is large enough, or what is small is to be tried too.
fn is_large(source: &Source<'_>, core: &mut Core) -> Result<bool, Error> {
    let always = core.settings.hot().vectorized != Vectorized::Auto;
    Ok(always || blocks(source, core)? >= LARGE_BLOCKS)
}

/// The session's own thread, and as many workers as it may have.
fn threads(core: &Core, blocks: u64) -> usize {
    let workers: usize = core
        .settings
        .get("max_parallel_workers_per_gather")
        .parse()
        .unwrap_or(0);
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    let parts = usize::try_from(blocks / THREAD_BLOCKS).unwrap_or(usize::MAX);
    (workers + 1).min(processors).min(parts).max(1)
}

fn compile(
    plan: &Arc<Group>,
    source: &Source<'_>,
    core: &mut Core,
    registers: &[Datum],
) -> Result<Program, Stop> {
    let memory = core.settings.hot().work_mem_bytes;
    let begun = Begun::new(source, core, registers)?;
    let (mut compiler, parts) = begun.compiled(source, core, registers)?;
    let mut keys = Vec::new();
    for (key, _) in plan.keys.iter().chain(&plan.decided) {
        keys.push(compiler.stored(&source.over_columns(key))?);
    }
    if keys.len() > u64::BITS as usize {
        return Err(Stop::Refused("many keys"));
    }
    let mut calls = Vec::new();
    for call in &plan.aggregates {
        if let Some(call) = or_zero(call, source, &mut compiler)? {
            calls.push(call);
            continue;
        }
        let argument = match call.args.first() {
            Some(e) if call.function == Aggregate::Count => {
                Some(compiler.stored(&source.over_columns(e))?)
            }
            Some(e) => Some(compiler.value(&source.over_columns(e))?),
            None => None,
        };
        let filter = match &call.filter {
            Some(e) => Some(compiler.condition(&source.over_columns(e))?),
            None => None,
        };
        calls.push(Call::new(call.function, argument, filter)?);
    }
    Ok(Program {
        pipeline: parts.finish(compiler, source)?,
        groups: Grouping { keys, calls },
        memory,
    })
}

/// `sum(case when .. then .. else 0 end)` of decimals, whose zeros have another scale than the
/// rest.
fn or_zero(
    call: &AggregateCall,
    source: &Source<'_>,
    compiler: &mut Compiler<'_>,
) -> Result<Option<Call>, Stop> {
    let e = call.args.first().map(|e| source.over_columns(e));
    let (
        Some(Expr::Case {
            branches,
            otherwise,
        }),
        None,
    ) = (e, &call.filter)
    else {
        return Ok(None);
    };
    let ([(condition, value)], Some(Expr::Const(zero))) =
        (branches.as_slice(), otherwise.as_deref())
    else {
        return Ok(None);
    };
    match zero.borrow() {
        DatumRef::Numeric(zero) if zero.to_i128() == Some((0, 0)) => {}
        _ => return Ok(None),
    }
    let (condition, value) = (compiler.condition(condition)?, compiler.value(value)?);
    Ok(Call::or_zero(call.function, value, condition))
}

/// The build sides of a source's joins, and the types of its columns.
struct Begun<'p> {
    semis: Vec<(SubqueryTest, Build, Vec<Type>)>,
    builds: Vec<(&'p Arc<HashJoin>, Build, Vec<Type>)>,
    types: Vec<Option<ColumnType>>,
    threads: usize,
    /// The scan's conditions without those on subqueries.
    filter: Vec<Expr>,
}

/// What a source's steps become.
struct Parts {
    filter: Vec<super::condition::Condition>,
    stages: Vec<Stage>,
    /// Of each join the number of its first column, and how many it has.
    firsts: Vec<(usize, usize)>,
    threads: usize,
}

impl<'p> Begun<'p> {
    fn new(source: &Source<'p>, core: &mut Core, registers: &[Datum]) -> Result<Begun<'p>, Stop> {
        let table = &source.scan.access.table;
        let columns = table.columns.iter();
        let mut types: Vec<Option<ColumnType>> =
            columns.map(|c| ColumnType::of(c.ty(), c.typmod)).collect();
        let mut builds = Vec::new();
        for step in &source.steps {
            if let Step::Join(join) = step {
                let side = Side {
                    node: join.build.clone(),
                    keys: join.build_keys.clone(),
                    registers: join.build_registers.clone(),
                };
                let built = build(side, core, registers)?;
                types.extend(built.kept);
                builds.push((*join, built.build, built.keys));
            }
        }
        let (mut semis, mut filter) = (Vec::new(), Vec::new());
        for condition in conjuncts(source.scan.access.filter.clone()) {
            let Some(found) = semi::of(&condition) else {
                filter.push(condition);
                continue;
            };
            let (mut test, side) = semi::test(found, source.scan.access.rows, core)?;
            let number = test.number;
            let inner = |core: &mut Core, _: &Subquery, frame: &mut Frame| {
                let registers = frame.registers.clone();
                build(side, core, &registers)
            };
            let built = core.with_subquery(number, inner)?;
            test.first = types.len();
            types.extend(built.kept);
            semis.push((test, built.build, built.keys));
        }
        let blocks = blocks(source, core)?;
        let threads = threads(core, blocks);
        Ok(Begun {
            semis,
            builds,
            types,
            threads,
            filter,
        })
    }

    fn compiled<'c>(
        self,
        source: &Source<'_>,
        core: &'c mut Core,
        registers: &'c [Datum],
    ) -> Result<(Compiler<'c>, Parts), Stop> {
        let own = source.scan.access.table.columns.len();
        let mut parts = Parts {
            filter: Vec::new(),
            stages: Vec::new(),
            firsts: Vec::new(),
            threads: self.threads,
        };
        let mut compiler = Compiler {
            core,
            types: self.types,
            registers,
            columns: Vec::new(),
            stage: 0,
            touched: Vec::new(),
        };
        for condition in &self.filter {
            compiler.conjuncts(condition, &mut parts.filter)?;
        }
        for (test, build, key_types) in self.semis {
            compiler.stage = parts.stages.len() + 1;
            let (first, registers) = (test.first, test.registers.len());
            let semi = test.compiled(build, &key_types, &mut compiler)?;
            parts.stages.push(Stage::Semi(Box::new(semi)));
            parts.firsts.push((first, registers));
        }
        let mut builds = self.builds.into_iter();
        let mut first = own;
        for step in &source.steps {
            compiler.stage = parts.stages.len() + 1;
            match step {
                Step::Check(condition) => {
                    let mut conditions = Vec::new();
                    compiler.conjuncts(condition, &mut conditions)?;
                    parts.stages.push(Stage::Filter(conditions));
                }
                Step::Join(_) => {
                    let Some((plan, build, key_types)) = builds.next() else {
                        return Err(Error::internal("a join without its build side").into());
                    };
                    let keys = plan.probe_keys.iter().map(|k| source.over_columns(k));
                    let keys = joined_keys(keys, &key_types, &mut compiler)?;
                    let mut join = Join::new(keys, build, StepKey::of(&**plan));
                    join.outer = plan.kind == JoinKind::Left;
                    join.matched = (plan.kind == JoinKind::Right).then(Vec::new);
                    parts.stages.push(Stage::Join(Box::new(join)));
                    let registers = plan.build_registers.len();
                    parts.firsts.push((first, registers));
                    first += registers;
                }
            }
        }
        compiler.stage = usize::MAX;
        Ok((compiler, parts))
    }
}

impl Parts {
    /// With the places that all columns have by now.
    fn finish(mut self, compiler: Compiler<'_>, source: &Source<'_>) -> Result<Pipeline, Stop> {
        let columns = compiler.columns;
        let mut firsts = self.firsts.into_iter();
        for (at, stage) in (1..).zip(&mut self.stages) {
            let (join, reads) = match stage {
                Stage::Filter(_) => continue,
                Stage::Join(join) => (&mut **join, None),
                Stage::Semi(semi) => (&mut semi.join, Some(&semi.reads)),
            };
            let (first, registers) = firsts.next().unwrap_or((usize::MAX, 0));
            for (place, column) in columns.iter().enumerate() {
                if column.number >= first && column.number - first < registers {
                    join.kept.push(Kept {
                        number: column.number - first,
                        ty: column.ty,
                        place,
                    });
                }
                // What goes on is a semi join's batch itself.
                let dropped = match reads {
                    Some(reads) => !reads.contains(&place),
                    None => column.last_read <= at,
                };
                if dropped {
                    join.dropped.push(place);
                }
            }
        }
        let table = source.scan.access.table.engine();
        let wanted: Vec<(usize, Type)> = columns.iter().map(|c| (c.number, c.ty)).collect();
        Ok(Pipeline {
            decoder: Decoder::new(table, &wanted),
            table: table.clone(),
            scanned: StepKey::of(&source.scan.access),
            filter: self.filter,
            stages: self.stages,
            threads: self.threads,
        })
    }
}

/// The keys of rows that look for partners.
pub fn joined_keys(
    keys: impl Iterator<Item = Expr>,
    types: &[Type],
    compiler: &mut Compiler<'_>,
) -> Result<Vec<Value>, Stop> {
    let mut found = Vec::new();
    for (key, ty) in keys.zip(types) {
        let key = compiler.value(&key)?;
        if !are_joined(key.ty, *ty) {
            return Err(Stop::Refused("a key of a join"));
        }
        found.push(key);
    }
    Ok(found)
}

/// Whether words of two types can be compared.
fn are_joined(a: Type, b: Type) -> bool {
    use super::batch::Layout::Int;
    let integers = a.range().is_some() && b.range().is_some();
    integers || a == b && a.layout() == Int
}

/// How a build side comes about, with the types of its keys and of what is kept of it.
struct Built {
    build: Build,
    keys: Vec<Type>,
    kept: Vec<Option<ColumnType>>,
}

fn build(side: Side, core: &mut Core, registers: &[Datum]) -> Result<Built, Stop> {
    if let Some(source) = source(&side.node)
        && is_large(&source, core)?
    {
        match batches(&side, &source, core, registers) {
            Err(Stop::Refused(_)) => {}
            done => return done,
        }
    }
    let mut types = HashMap::new();
    types_of(&side.node, &mut types);
    let of = |r: &usize| {
        types
            .get(r)
            .and_then(|(ty, typmod)| ColumnType::of(*ty, *typmod))
    };
    let kept = side.registers.iter().map(of).collect();
    let key = |e: &Expr| match e {
        Expr::Param(r) => of(r).map(|c| c.ty).ok_or(Stop::Refused("a key of a join")),
        _ => Err(Stop::Refused("a key of a join")),
    };
    let keys = side.keys.iter().map(key);
    let keys = keys.collect::<Result<Vec<Type>, Stop>>()?;
    let build = Build::Rows(side);
    Ok(Built { build, keys, kept })
}

fn batches(
    side: &Side,
    source: &Source<'_>,
    core: &mut Core,
    registers: &[Datum],
) -> Result<Built, Stop> {
    let begun = Begun::new(source, core, registers)?;
    let (mut compiler, parts) = begun.compiled(source, core, registers)?;
    let (mut keys, mut values, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for key in &side.keys {
        keys.push(compiler.value(&source.over_columns(key))?);
    }
    for register in &side.registers {
        let e = source.over_columns(&Expr::Param(*register));
        let value = match compiler.stored(&e) {
            Err(Stop::Refused(_)) => None,
            value => Some(value?),
        };
        let padded = compiler.is_padded(&e);
        kept.push(value.as_ref().map(|v| ColumnType { ty: v.ty, padded }));
        values.push(value);
    }
    let types = keys.iter().map(|k| k.ty).collect();
    let pipeline = parts.finish(compiler, source)?;
    Ok(Built {
        build: Build::Batches(Box::new(pipeline), keys, values),
        keys: types,
        kept,
    })
}

impl Grouping {
    pub fn key_types(&self) -> Vec<Type> {
        self.keys.iter().map(|k| k.ty).collect()
    }

    /// Whether what each thread reads decides on last digits.
    pub fn is_ordered(&self) -> bool {
        self.calls.iter().any(Call::is_ordered)
    }
}
