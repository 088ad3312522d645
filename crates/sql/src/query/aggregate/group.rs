//! GROUP BY, with grouping sets, and aggregates of all rows.
//!
//! Each row is taken in at once: every grouping set has a table of its own in memory. When the
//! tables have no more room, rows of further groups go to a sort by key, with the values of the key
//! and of the arguments, and these groups are made one after the other from the sorted rows.
//! Aggregates that need an order have a sort each ([`super::ordered`]); then groups are given in
//! the order of their keys, so that these sorts are read in step.

use std::sync::Arc;

use block::value::{Datum, DatumRef};
use wait::longop::{Counted, Target};

use super::ordered::{self, OrderedInput, OrderedOutput, Records, is_ordered};
use super::table::Table;
use super::{Aggregate, AggregateCall, State};
use crate::error::{Error, Result};
use crate::exec::aggregate::encode;
use crate::exec::sort::{read_row, write_row};
use crate::expr::{Env, Expr, Val};
use crate::query::plan::Group;
use crate::query::run::{Frame, Operator, operator};
use crate::session::Core;

/// So many rows pass between two looks at a cancel request.
const CANCEL_EVERY: u64 = 1024;

pub struct GroupRun {
    plan: Arc<Group>,
    input: Box<dyn Operator>,
    output: Option<Output>,
}

impl GroupRun {
    pub fn new(plan: &Arc<Group>, measured: bool) -> GroupRun {
        GroupRun {
            plan: plan.clone(),
            input: operator(&plan.input, measured),
            output: None,
        }
    }
}

impl Operator for GroupRun {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        self.output = None;
        self.input.open(core, frame)
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        let output = match &mut self.output {
            Some(output) => output,
            none => {
                let mut groups = Groups::new(&self.plan, core);
                let mut rows = 0_u64;
                let mut taken = Counted::new("Group Input", Target::Nothing, 0, "Rows");
                while self.input.next(core, frame)? {
                    rows += 1;
                    taken.step();
                    if rows.is_multiple_of(CANCEL_EVERY) {
                        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
                    }
                    groups.add(core, frame)?;
                }
                none.insert(groups.finish()?)
            }
        };
        output.next(frame)
    }
}

/// What the operators of both phases know of the plan.
struct Layout {
    plan: Arc<Group>,
    /// Aggregates that take rows in as they come, by number.
    plain: Vec<usize>,
    /// The others.
    ordered: Vec<usize>,
}

impl Layout {
    fn new(plan: &Arc<Group>) -> Layout {
        let (ordered, plain) =
            (0..plan.aggregates.len()).partition(|n| is_ordered(&plan.aggregates[*n]));
        Layout {
            plan: plan.clone(),
            plain,
            ordered,
        }
    }

    fn states(&self) -> impl Iterator<Item = State> {
        let plain = self.plain.iter();
        plain.map(|n| State::new(&self.plan.aggregates[*n].function))
    }

    fn plain_calls(&self) -> impl Iterator<Item = &AggregateCall> {
        self.plain.iter().map(|n| &self.plan.aggregates[*n])
    }

    /// Values that are kept of a group of a set.
    fn values_of(&self, set: usize) -> usize {
        self.plan.sets[set].len() + self.plan.decided.len()
    }

    /// Begins a group's key: with the number of its set, if there are several.
    fn begin_key(&self, set: usize, key: &mut Vec<u8>) {
        key.clear();
        if self.plan.sets.len() > 1 {
            // The analysis bounds their number to far less.
            key.extend_from_slice(&(set as u16).to_be_bytes());
        }
    }

    fn set_of_key(&self, key: &[u8]) -> Result<usize> {
        match (self.plan.sets.len(), key) {
            (1, _) => Ok(0),
            (_, [high, low, ..]) => Ok(u16::from_be_bytes([*high, *low]).into()),
            _ => Err(Error::internal("a group's key without its set")),
        }
    }
}

/// Groups while rows come.
struct Groups {
    layout: Layout,
    tables: Vec<Table>,
    bytes: usize,
    memory: usize,
    spilled: Option<engine::Sorter>,
    spill_memory: usize,
    ordered: Vec<OrderedInput>,
    /// Computing a key twice gives the same.
    repeatable: bool,
    row: Row,
}

/// Of the row that is being taken in.
struct Row {
    /// The encoded keys one after the other, and where each ends.
    pieces: Vec<u8>,
    ends: Vec<usize>,
    /// The keys, if they must not be computed again.
    keys: Vec<Datum>,
    /// Of each set the group's key, and its place if it is in memory.
    groups: Vec<Vec<u8>>,
    places: Vec<Option<usize>>,
}

/// Whether computing an expression twice for a row gives the same, at little cost.
fn is_repeatable(e: &Expr) -> bool {
    let mut subquery = false;
    e.visit(&mut |e| subquery |= matches!(e, Expr::Subquery { .. }));
    !subquery && !e.is_volatile()
}

impl Groups {
    fn new(plan: &Arc<Group>, core: &Core) -> Groups {
        let layout = Layout::new(plan);
        let sets = plan.sets.len();
        let share = core.settings.hot().work_mem_bytes / (1 + layout.ordered.len());
        let tables = (0..sets).map(|set| Table::new(layout.values_of(set), layout.plain.len()));
        let ordered = layout
            .ordered
            .iter()
            .map(|n| OrderedInput::new(&plan.aggregates[*n], core, share));
        Groups {
            tables: tables.collect(),
            bytes: 0,
            memory: share / 4 * 3,
            spilled: None,
            spill_memory: share / 4,
            ordered: ordered.collect(),
            repeatable: plan.keys.iter().all(|(e, _)| is_repeatable(e)),
            row: Row {
                pieces: Vec::new(),
                ends: Vec::new(),
                keys: Vec::new(),
                groups: vec![Vec::new(); sets],
                places: vec![None; sets],
            },
            layout,
        }
    }

    /// Takes in the row in the registers.
    fn add(&mut self, core: &mut Core, frame: &Frame) -> Result<()> {
        self.set_keys(core, frame)?;
        let mut all = true;
        for set in 0..self.tables.len() {
            let place = self.place(set, core, frame)?;
            self.row.places[set] = place;
            all &= place.is_some();
        }
        match all {
            true => self.add_in_memory(core, &frame.env())?,
            false => self.add_and_spill(core, frame)?,
        }
        for (input, n) in self.ordered.iter_mut().zip(&self.layout.ordered) {
            let groups = self.row.groups.iter().map(Vec::as_slice);
            input.add(&self.layout.plan.aggregates[*n], groups, core, &frame.env())?;
        }
        Ok(())
    }

    /// Computes the row's keys, and those of its groups.
    fn set_keys(&mut self, core: &mut Core, frame: &Frame) -> Result<()> {
        let row = &mut self.row;
        row.pieces.clear();
        row.ends.clear();
        row.keys.clear();
        for (e, _) in &self.layout.plan.keys {
            let env = frame.env();
            let key = e.eval(&env, core)?;
            encode(key.get(), &mut row.pieces);
            row.ends.push(row.pieces.len());
            if !self.repeatable {
                row.keys.push(key.into_datum());
            }
        }
        for (set, key) in row.groups.iter_mut().enumerate() {
            self.layout.begin_key(set, key);
            for k in &self.layout.plan.sets[set] {
                let from = if *k == 0 { 0 } else { row.ends[*k - 1] };
                key.extend_from_slice(&row.pieces[from..row.ends[*k]]);
            }
        }
        Ok(())
    }

    /// The place of the row's group of a set, unless there is no room for it.
    fn place(&mut self, set: usize, core: &mut Core, frame: &Frame) -> Result<Option<usize>> {
        let only = self.layout.plan.sets[set].is_empty() && self.tables[set].len() == 1;
        if only {
            return Ok(Some(0));
        }
        if let Some(at) = self.tables[set].find(&self.row.groups[set]) {
            return Ok(Some(at));
        }
        if self.spilled.is_some() {
            return Ok(None);
        }
        if self.bytes > self.memory {
            self.spilled = Some(core.engine.sorter(self.spill_memory));
            return Ok(None);
        }
        let values = self.group_values(set, core, frame)?;
        let states = self.layout.states();
        let (at, bytes) = self.tables[set].insert(&self.row.groups[set], values, states);
        self.bytes += bytes;
        Ok(Some(at))
    }

    /// What is kept of the row's group of a set: its keys, and what follows from them.
    fn group_values(&self, set: usize, core: &mut Core, frame: &Frame) -> Result<Vec<Datum>> {
        let plan = &self.layout.plan;
        let mut values = Vec::with_capacity(self.layout.values_of(set));
        for k in &plan.sets[set] {
            values.push(match self.repeatable {
                true => frame.eval(&plan.keys[*k].0, core)?,
                false => self.row.keys[*k].clone(),
            });
        }
        for (e, _) in &plan.decided {
            values.push(frame.eval(e, core)?);
        }
        Ok(values)
    }

    /// Gives the row's arguments to the aggregates of its groups, all of which are in memory.
    fn add_in_memory(&mut self, core: &mut Core, env: &Env<'_>) -> Result<()> {
        for (number, call) in self.layout.plain_calls().enumerate() {
            if let Some(filter) = &call.filter
                && filter.test(env, core)? != Some(true)
            {
                continue;
            }
            let (tables, places) = (&mut self.tables, &self.row.places);
            let mut take = |args: &[DatumRef<'_>]| -> Result<()> {
                for (table, place) in tables.iter_mut().zip(places) {
                    if let Some(at) = place {
                        self.bytes += add_measured(table.state(*at, number), args)?;
                    }
                }
                Ok(())
            };
            match call.args.as_slice() {
                [] => take(&[])?,
                [a] => take(&[a.eval(env, core)?.get()])?,
                [a, b] => {
                    let a = a.eval(env, core)?;
                    take(&[a.get(), b.eval(env, core)?.get()])?;
                }
                more => return Err(Error::internal(format!("an aggregate of {}", more.len()))),
            }
        }
        Ok(())
    }

    /// Gives the row's arguments to its groups in memory, and puts them aside for the others.
    ///
    /// What is put aside: the group's values, then of each aggregate whether its filter holds (if
    /// it has one), and its arguments.
    fn add_and_spill(&mut self, core: &mut Core, frame: &Frame) -> Result<()> {
        let env = frame.env();
        let mut values: Vec<Val<'_>> = Vec::new();
        for (number, call) in self.layout.plain_calls().enumerate() {
            let mut counts = true;
            if let Some(filter) = &call.filter {
                counts = filter.test(&env, core)? == Some(true);
                values.push(Val::bool(counts));
            }
            let from = values.len();
            for e in &call.args {
                values.push(if counts {
                    e.eval(&env, core)?
                } else {
                    Val::NULL
                });
            }
            if counts {
                let args: Vec<DatumRef<'_>> = values[from..].iter().map(Val::get).collect();
                for (table, place) in self.tables.iter_mut().zip(&self.row.places) {
                    if let Some(at) = place {
                        self.bytes += add_measured(table.state(*at, number), &args)?;
                    }
                }
            }
        }
        for set in 0..self.tables.len() {
            if self.row.places[set].is_some() {
                continue;
            }
            let of_group = self.group_values(set, core, frame)?;
            let group = of_group.iter().map(Datum::borrow);
            let row: Vec<DatumRef<'_>> = group.chain(values.iter().map(Val::get)).collect();
            let key = &self.row.groups[set];
            if let Some(spilled) = &mut self.spilled {
                spilled.push(|out| out.extend_from_slice(key), |out| write_row(&row, out))?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Output> {
        // A set of no keys is one group even of no rows.
        for (set, keys) in self.layout.plan.sets.iter().enumerate() {
            if keys.is_empty() && self.tables[set].len() == 0 && self.spilled.is_none() {
                let mut key = Vec::new();
                self.layout.begin_key(set, &mut key);
                let nothing = self.layout.plan.decided.iter().map(|_| Datum::Null);
                self.tables[set].insert(&key, nothing, self.layout.states());
            }
        }
        let spilled = match self.spilled {
            Some(sorter) => {
                let mut records = Records::new(sorter.finish()?);
                records.advance()?.then_some(records)
            }
            None => None,
        };
        let ordered = self.ordered.into_iter().map(OrderedInput::finish);
        Ok(Output {
            sizes: self.tables.iter().map(Table::len).collect(),
            ordered: ordered.collect::<Result<_>>()?,
            layout: self.layout,
            tables: self.tables,
            set: 0,
            at: 0,
            keys: None,
            spilled,
        })
    }
}

/// Takes in arguments; returns how many bytes the state has grown by.
fn add_measured(state: &mut State, args: &[DatumRef<'_>]) -> Result<usize> {
    let before = state.heap_size();
    state.add(args)?;
    Ok(state.heap_size().saturating_sub(before))
}

/// Groups while they are given.
struct Output {
    layout: Layout,
    tables: Vec<Table>,
    sizes: Vec<usize>,
    ordered: Vec<OrderedOutput>,
    /// The next group in memory: of the set, the number in order.
    set: usize,
    at: usize,
    /// With ordered aggregates, the keys of the set's groups in order.
    keys: Option<Vec<(Box<[u8]>, usize)>>,
    /// Rows of groups that found no room.
    spilled: Option<Records>,
}

impl Output {
    /// Puts the next group into the registers; false if there is none.
    fn next(&mut self, frame: &mut Frame) -> Result<bool> {
        while self.set < self.tables.len() && self.at == self.sizes[self.set] {
            self.tables[self.set] = Table::new(0, 0);
            (self.set, self.at, self.keys) = (self.set + 1, 0, None);
        }
        let in_memory = self.set < self.tables.len();
        if in_memory && !self.ordered.is_empty() && self.keys.is_none() {
            self.keys = Some(self.tables[self.set].take_keys());
        }
        let next_key = || self.keys.as_ref()?.get(self.at).map(|(key, _)| &**key);
        let from_memory = match (in_memory, &self.spilled, next_key()) {
            (true, Some(spilled), Some(key)) if spilled.is_there() => key < spilled.key(),
            (memory, ..) => memory,
        };
        if from_memory {
            self.group_in_memory(frame)?;
            return Ok(true);
        }
        self.spilled_group(frame)
    }

    fn group_in_memory(&mut self, frame: &mut Frame) -> Result<()> {
        let key: Option<(&[u8], usize)> = match &self.keys {
            Some(keys) => keys.get(self.at).map(|(key, at)| (&**key, *at)),
            None => None,
        };
        let place = key.map_or(self.at, |(_, at)| at);
        if let Some((key, _)) = key {
            take_ordered(&self.layout, &mut self.ordered, key, frame)?;
        }
        let (values, states) = self.tables[self.set].group(place);
        give(&self.layout, self.set, values, states, frame)?;
        self.at += 1;
        Ok(())
    }

    /// The next group of the rows that were put aside.
    fn spilled_group(&mut self, frame: &mut Frame) -> Result<bool> {
        let Some(records) = &mut self.spilled else {
            return Ok(false);
        };
        if !records.is_there() {
            return Ok(false);
        }
        let key = records.key().to_vec();
        let set = self.layout.set_of_key(&key)?;
        let of_group = self.layout.values_of(set);
        let mut states: Vec<State> = self.layout.states().collect();
        let mut values = read_row(records.rest())?;
        let damaged = || Error::internal("a row of a group came back as another");
        let mut row = values.split_off(of_group.min(values.len()));
        loop {
            let mut rest = row.as_slice();
            for (call, state) in self.layout.plain_calls().zip(&mut states) {
                let mut counts = true;
                if call.filter.is_some() {
                    let (filter, more) = rest.split_first().ok_or_else(damaged)?;
                    counts = *filter == Datum::Bool(true);
                    rest = more;
                }
                let (args, more) = rest.split_at_checked(call.args.len()).ok_or_else(damaged)?;
                if counts {
                    ordered::add(state, args)?;
                }
                rest = more;
            }
            if !records.advance()? || records.key() != key {
                break;
            }
            row = read_row(records.rest())?;
            row.drain(..of_group.min(row.len()));
        }
        take_ordered(&self.layout, &mut self.ordered, &key, frame)?;
        give(&self.layout, set, &mut values, &mut states, frame)?;
        Ok(true)
    }
}

/// Sets the registers of the aggregates that need an order, for a group.
fn take_ordered(
    layout: &Layout,
    ordered: &mut [OrderedOutput],
    key: &[u8],
    frame: &mut Frame,
) -> Result<()> {
    for (rows, n) in ordered.iter_mut().zip(&layout.ordered) {
        let call = &layout.plan.aggregates[*n];
        let value = match call.function {
            Aggregate::OrderedSet(set) => rows.ordered_set(set, key)?,
            _ => {
                let mut state = State::new(&call.function);
                rows.take_group(key, &mut state)?;
                state.into_result()?
            }
        };
        frame.set(call.into, value);
    }
    Ok(())
}

/// Sets the other registers of a group.
fn give(
    layout: &Layout,
    set: usize,
    values: &mut [Datum],
    states: &mut [State],
    frame: &mut Frame,
) -> Result<()> {
    let (plan, keys) = (&layout.plan, &layout.plan.sets[set]);
    for (_, register) in &plan.keys {
        frame.set(*register, Datum::Null);
    }
    let registers = keys.iter().map(|k| plan.keys[*k].1);
    let decided = plan.decided.iter().map(|(_, register)| *register);
    for (register, value) in registers.chain(decided).zip(values) {
        frame.set(register, std::mem::take(value));
    }
    for (call, state) in layout.plain_calls().zip(states) {
        frame.set(call.into, state.result()?);
    }
    for (register, places) in &plan.grouping {
        let bits = places
            .iter()
            .fold(0, |bits, k| bits << 1 | i32::from(!keys.contains(k)));
        frame.set(*register, Datum::Int4(bits));
    }
    Ok(())
}
