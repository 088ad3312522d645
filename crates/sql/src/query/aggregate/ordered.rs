//! Aggregates that take a group's rows in an order of their own, or each value once, or that keep
//! all they are given. Their arguments go to a sort by the group's key and that order.

use std::collections::HashSet;

use block::key::Order;
use block::value::{Datum, DatumRef};

use super::{AggregateCall, State, ordered_set};
use crate::error::Result;
use crate::exec::sort::{push_key, read_row, write_row};
use crate::expr::{Env, Val};
use crate::session::Core;

/// Bytes that an entry in a set of keys takes, beside the key.
pub const SET_ENTRY: usize = 2 * size_of::<Box<[u8]>>();

/// What stands behind a group's key in the records of a call whose rows are counted: those that are
/// counted come before the values.
pub(super) const COUNT: u8 = 0;
pub(super) const VALUE: u8 = 1;

/// Whether a call needs its rows in an order of their own.
pub fn is_ordered(call: &AggregateCall) -> bool {
    let distinct = call.distinct && !call.function.ignores_repeats();
    distinct || !call.order.is_empty() || call.function.grows()
}

/// The arguments of such a call, while rows come.
pub struct OrderedInput {
    sorter: engine::Sorter,
    /// What orders a group's rows: each argument or key of the order, and how.
    columns: Vec<(Column, Order)>,
    distinct: bool,
    /// Rows are counted before they are read: each has a record before all values of its group.
    counted: bool,
    /// Keys known to be in the sort, as many as there is memory for: such rows need not be sorted.
    seen: HashSet<Box<[u8]>>,
    seen_bytes: usize,
    memory: usize,
    /// The part of a record's key that orders rows within a group, and a whole key.
    tail: Vec<u8>,
    key: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Column {
    Argument(usize),
    /// Of ORDER BY.
    Key(usize),
}

impl OrderedInput {
    pub fn new(call: &AggregateCall, core: &Core, memory: usize) -> OrderedInput {
        let mut columns: Vec<_> = call
            .order
            .iter()
            .enumerate()
            .map(|(at, key)| {
                let order = Order {
                    descending: key.descending,
                    nulls_first: key.nulls_first,
                };
                match call
                    .args
                    .iter()
                    .position(|a| *a == key.expr && key.by.is_none())
                {
                    Some(argument) => (Column::Argument(argument), order),
                    None => (Column::Key(at), order),
                }
            })
            .collect();
        // What json takes in is told apart by what it was before, which the order has.
        if call.distinct && !call.function.is_json() {
            for at in 0..call.args.len() {
                let same = |c: &(Column, _)| matches!(c.0, Column::Argument(a) if a == at);
                if !columns.iter().any(same) {
                    columns.push((Column::Argument(at), Order::ASC));
                }
            }
        }
        let sorter_memory = if call.distinct { memory / 2 } else { memory };
        OrderedInput {
            sorter: core.engine.sorter(sorter_memory),
            columns,
            distinct: call.distinct,
            counted: ordered_set::is_counted(call.function),
            seen: HashSet::new(),
            seen_bytes: 0,
            memory: memory / 2,
            tail: Vec::new(),
            key: Vec::new(),
        }
    }

    /// Takes in a row of the groups with these keys.
    pub fn add<'g>(
        &mut self,
        call: &AggregateCall,
        groups: impl Iterator<Item = &'g [u8]>,
        core: &mut Core,
        env: &Env<'_>,
    ) -> Result<()> {
        if let Some(filter) = &call.filter
            && filter.test(env, core)? != Some(true)
        {
            return Ok(());
        }
        let args = call
            .args
            .iter()
            .map(|e| e.eval(env, core))
            .collect::<Result<Vec<Val<'_>>>>()?;
        self.tail.clear();
        for (column, order) in &self.columns {
            match *column {
                Column::Argument(at) => push_key(args[at].get(), *order, &mut self.tail),
                Column::Key(at) => {
                    let value = call.order[at].eval(env, core)?;
                    push_key(value.get(), *order, &mut self.tail);
                }
            }
        }
        let skipped = match call.function.is_strict() {
            true => args.iter().any(Val::is_null),
            false => !call.function.keeps_nulls() && args.first().is_some_and(Val::is_null),
        };
        if skipped {
            return Ok(());
        }
        let values: Vec<DatumRef<'_>> = args.iter().map(Val::get).collect();
        for group in groups {
            self.key.clear();
            self.key.extend_from_slice(group);
            if self.counted {
                self.key.push(COUNT);
                let key = &self.key;
                self.sorter.push(
                    |out| out.extend_from_slice(key),
                    |out| write_row(&values[1..], out),
                )?;
                self.key.pop();
                self.key.push(VALUE);
            }
            self.key.extend_from_slice(&self.tail);
            if self.distinct && self.is_seen() {
                continue;
            }
            let key = &self.key;
            self.sorter.push(
                |out| out.extend_from_slice(key),
                |out| write_row(&values, out),
            )?;
        }
        Ok(())
    }

    fn is_seen(&mut self) -> bool {
        if self.seen.contains(self.key.as_slice()) {
            return true;
        }
        if self.seen_bytes < self.memory {
            self.seen_bytes += self.key.len() + SET_ENTRY;
            self.seen.insert(self.key.as_slice().into());
        }
        false
    }

    pub fn finish(self) -> Result<OrderedOutput> {
        let distinct = self.distinct;
        drop(self.seen);
        let mut records = Records::new(self.sorter.finish()?);
        records.advance()?;
        Ok(OrderedOutput {
            records,
            distinct,
            last: Vec::new(),
        })
    }
}

/// The arguments of such a call by group, in the order of the groups' keys.
pub struct OrderedOutput {
    pub(super) records: Records,
    distinct: bool,
    /// Of DISTINCT: the key of the row before.
    last: Vec<u8>,
}

impl OrderedOutput {
    /// Takes in the rows of a group. Groups come in the order of their keys.
    pub fn take_group(&mut self, group: &[u8], state: &mut State) -> Result<()> {
        let mut first = true;
        // Keys of groups delimit themselves, so that none begins with another.
        while self.records.is_at(group) {
            let key = self.records.key();
            if !self.distinct || first || self.last != key {
                let row = read_row(self.records.rest())?;
                add(state, &row)?;
            }
            if self.distinct {
                self.last.clear();
                self.last.extend_from_slice(self.records.key());
            }
            first = false;
            self.records.advance()?;
        }
        Ok(())
    }
}

/// Takes in a row of arguments that was stored.
pub fn add(state: &mut State, args: &[Datum]) -> Result<()> {
    match args {
        [] => state.add(&[]),
        [a] => state.add(&[a.borrow()]),
        [a, b] => state.add(&[a.borrow(), b.borrow()]),
        more => state.add(&more.iter().map(Datum::borrow).collect::<Vec<_>>()),
    }
}

/// Sorted records with a look at the next.
pub struct Records {
    sorted: engine::Sorted,
    key: Vec<u8>,
    rest: Vec<u8>,
    there: bool,
    passed: u64,
}

/// So many records pass between two looks at a cancel request.
const CANCEL_EVERY: u64 = 1024;

impl Records {
    pub fn new(sorted: engine::Sorted) -> Records {
        Records {
            sorted,
            key: Vec::new(),
            rest: Vec::new(),
            there: false,
            passed: 0,
        }
    }

    /// Goes to the next record; false if there is none.
    pub fn advance(&mut self) -> Result<bool> {
        self.passed += 1;
        if self.passed.is_multiple_of(CANCEL_EVERY) {
            wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        }
        self.key.clear();
        self.rest.clear();
        self.there = match self.sorted.next_record()? {
            Some((key, rest)) => {
                self.key.extend_from_slice(key);
                self.rest.extend_from_slice(rest);
                true
            }
            None => false,
        };
        Ok(self.there)
    }

    pub fn is_there(&self) -> bool {
        self.there
    }

    /// Whether there is a record whose key begins so.
    pub fn is_at(&self, prefix: &[u8]) -> bool {
        self.there && self.key.starts_with(prefix)
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }

    pub fn rest(&self) -> &[u8] {
        &self.rest
    }
}
