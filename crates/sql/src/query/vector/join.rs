//! Hash joins over batches: the rows of the build side as columns, found by keys that are whole
//! numbers.
//!
//! **Invariants.**
//! - Partners of a row come in the order in which the row operators give them: the newest first.
//! - A table is made before the workers begin, and does not change while they read it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Stop;
use super::batch::{Batch, Column, NOWHERE, Type, whole};
use super::condition::{Condition, TRUE};
use super::expr::{Operand, Source, Value};
use super::keys::Mix;
use super::pipeline::Pipeline;
use crate::exec::profile::StepKey;
use crate::expr::Expr;
use crate::query::plan::{Node, Register};
use crate::query::run::{Frame, operator};
use crate::session::{Core, cancelled};

/// Pairs of rows that are put into a batch at once.
const PAIRS: usize = 8192;
/// Rows that are put into a table between two looks at whether the statement is cancelled.
const CANCEL_ROWS: usize = 1 << 16;

/// A join with rows that are found by hash.
pub struct Join {
    /// Of the rows at hand, over the batch.
    pub keys: Vec<Value>,
    /// Rows without a partner come once, with NULLs.
    pub outer: bool,
    pub build: Build,
    /// What is kept of a row of the build side: its type, and its place in the batch.
    pub kept: Vec<Kept>,
    /// Columns of the batch that nobody reads any more.
    pub dropped: Vec<usize>,
    pub table: Table,
    /// Which rows of the table had a partner, if those that had none come too, at the end.
    pub matched: Option<Vec<AtomicBool>>,
    /// A NULL among the keys of the build side has a say.
    pub null_counts: bool,
    /// Of each key one row is enough.
    pub one_each: bool,
    /// By which EXPLAIN knows the join.
    pub step: StepKey,
    /// Rows that came of it.
    pub given: AtomicU64,
}

#[derive(Clone)]
pub struct Kept {
    /// Which of the build side's registers.
    pub number: usize,
    pub ty: Type,
    pub place: usize,
}

/// A build side for the row operators.
pub struct Side {
    pub node: Node,
    pub keys: Vec<Expr>,
    pub registers: Vec<Register>,
}

/// How the rows of the build side come about.
pub enum Build {
    /// By the row operators.
    Rows(Side),
    /// Over batches: the keys, and a value for each register that has one.
    Batches(Box<Pipeline>, Vec<Value>, Vec<Option<Value>>),
    /// They are in the table.
    Read,
}

/// Rows of a build side, and where those of a key are.
pub struct Table {
    columns: Vec<Column>,
    /// Words of a key.
    width: usize,
    keys: Vec<i64>,
    index: Index,
    /// The next older row with the same hash.
    next: Vec<u32>,
}

enum Index {
    None,
    /// The newest row of each key from the least on.
    Dense(i64, Vec<u32>),
    Hashed(Mix, Vec<u32>),
}

/// Rows of a build side as they come.
pub struct Collected {
    pub keys: Vec<i64>,
    pub columns: Vec<Column>,
}

impl Collected {
    pub fn new(kept: &[Kept]) -> Collected {
        Collected {
            keys: Vec::new(),
            columns: kept.iter().map(|k| Column::new(k.ty.layout())).collect(),
        }
    }

    pub fn memory(&self) -> usize {
        self.keys.len() * 8 + self.columns.iter().map(Column::memory).sum::<usize>()
    }

    pub fn append(&mut self, other: Collected) -> Result<(), Stop> {
        self.keys.extend(other.keys);
        let both = self.columns.iter_mut().zip(other.columns);
        both.into_iter()
            .try_for_each(|(own, more)| own.append(more))
    }

    /// Takes in the rows of a batch whose keys are known, or stops if there are others and all are
    /// wanted.
    pub fn add(
        &mut self,
        keys: &[Value],
        values: &[Value],
        (keep_all, one_each): (bool, bool),
        batch: &mut Batch,
    ) -> Result<(), Stop> {
        let mut known = vec![true; batch.rows];
        for key in keys {
            let key = key.eval(batch)?;
            let both = known.iter_mut().zip(key.nulls());
            both.for_each(|(known, null)| *known &= !null);
        }
        if known.contains(&false) {
            if keep_all {
                return Err(Stop::Refused("a NULL among the keys of a join"));
            }
            batch.keep(&known);
        }
        let rows = batch.rows;
        let operands = keys.iter().map(|k| k.eval(batch));
        let operands = operands.collect::<Result<Vec<_>, Stop>>()?;
        let words = operands.iter().map(|o| o.ints());
        let words = words.collect::<Result<Vec<Source<'_, i64>>, Stop>>()?;
        match words.as_slice() {
            // Rows of one key often lie together.
            [Source::Each(one)] if one_each => {
                let mut last = self.keys.last().copied();
                for word in *one {
                    if last != Some(*word) {
                        self.keys.push(*word);
                        last = Some(*word);
                    }
                }
            }
            [Source::Each(one)] => self.keys.extend_from_slice(one),
            words => {
                for row in 0..rows {
                    self.keys.extend(words.iter().map(|w| w.get(row)));
                }
            }
        }
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.append(value.eval(batch)?.into_column(rows))?;
        }
        Ok(())
    }
}

impl Table {
    /// Of no rows, before they are read.
    pub fn new(width: usize) -> Table {
        Table {
            columns: Vec::new(),
            width,
            keys: Vec::new(),
            index: Index::None,
            next: Vec::new(),
        }
    }

    pub fn of(collected: Collected, width: usize, memory: usize) -> Result<Table, Stop> {
        let rows = collected.keys.len() / width;
        let used = collected.memory() + rows * 4;
        if rows >= NOWHERE as usize / 4 || used > memory {
            return Err(Stop::Full);
        }
        let mut table = Table {
            columns: collected.columns,
            width,
            keys: collected.keys,
            index: Index::None,
            next: vec![NOWHERE; rows],
        };
        if rows == 0 {
            return Ok(table);
        }
        table.index = table.empty_index(rows);
        let heads = match &table.index {
            Index::None => 0,
            Index::Dense(_, heads) | Index::Hashed(_, heads) => heads.len(),
        };
        if used + heads * 4 > memory {
            return Err(Stop::Full);
        }
        for row in 0..rows {
            if row % CANCEL_ROWS == 0 {
                wait::check_cancel().map_err(|_| cancelled())?;
            }
            let place = table.place(&table.keys[row * width..(row + 1) * width]);
            let (Index::Dense(_, heads) | Index::Hashed(_, heads), Some(place)) =
                (&mut table.index, place)
            else {
                return Err(crate::Error::internal("a key without a place").into());
            };
            table.next[row] = std::mem::replace(&mut heads[place], row as u32);
        }
        Ok(table)
    }

    /// Keys close to each other are places themselves.
    fn empty_index(&self, rows: usize) -> Index {
        let range = (self.width == 1)
            .then(|| self.keys.iter().min().zip(self.keys.iter().max()))
            .flatten();
        if let Some((least, most)) = range
            && let Some(span) = most.checked_sub(*least)
            && (span as u64) < rows as u64 * 8 + 1024
        {
            return Index::Dense(*least, vec![NOWHERE; span as usize + 1]);
        }
        Index::Hashed(Mix::new(), vec![NOWHERE; (rows * 2).next_power_of_two()])
    }

    #[inline]
    fn place(&self, key: &[i64]) -> Option<usize> {
        match &self.index {
            Index::None => None,
            Index::Dense(least, heads) => {
                let at = key[0].wrapping_sub(*least) as u64;
                (at < heads.len() as u64).then_some(at as usize)
            }
            Index::Hashed(mix, heads) => Some(mix.integers(key) as usize & (heads.len() - 1)),
        }
    }

    /// The newest row that may have a key.
    #[inline]
    fn first(&self, key: &[i64]) -> u32 {
        match (&self.index, self.place(key)) {
            (Index::Dense(_, heads) | Index::Hashed(_, heads), Some(place)) => heads[place],
            _ => NOWHERE,
        }
    }

    #[inline]
    fn is_of(&self, row: u32, key: &[i64]) -> bool {
        let from = row as usize * self.width;
        matches!(self.index, Index::Dense(..)) || &self.keys[from..from + self.width] == key
    }

    pub fn is_empty(&self) -> bool {
        self.next.is_empty()
    }

    pub fn rows(&self) -> usize {
        self.next.len()
    }
}

/// Pairs of a row of the batch and one of the table.
#[derive(Default)]
struct Pairs {
    probe: Vec<u32>,
    build: Vec<u32>,
}

/// The keys of a batch's rows.
struct Words<'b> {
    operands: Vec<Operand<'b>>,
}

impl<'b> Words<'b> {
    fn new(keys: &'b [Value], batch: &'b Batch) -> Result<Words<'b>, Stop> {
        let operands = keys.iter().map(|k| k.eval(batch));
        Ok(Words {
            operands: operands.collect::<Result<_, Stop>>()?,
        })
    }

    /// Puts together the key of a row; false if there is a NULL in it.
    #[inline]
    fn put(&self, row: usize, key: &mut [i64]) -> Result<bool, Stop> {
        for (word, operand) in key.iter_mut().zip(&self.operands) {
            if operand.nulls().get(row).copied().unwrap_or(false) {
                return Ok(false);
            }
            *word = operand.ints()?.get(row);
        }
        Ok(true)
    }
}

/// A condition that rows have a partner in a subquery, or that they have none.
pub struct Semi {
    pub join: Join,
    /// Its number in the statement.
    pub subquery: usize,
    /// What else makes two rows partners.
    pub condition: Option<Condition>,
    /// Places of the batch that the condition reads.
    pub reads: Vec<usize>,
    pub anti: bool,
}

impl Semi {
    /// Leaves the rows of a batch for which it holds.
    pub fn filter(&self, batch: &mut Batch) -> Result<(), Stop> {
        wait::check_cancel().map_err(|_| cancelled())?;
        let (known, found) = self.join.found(batch, self.condition.as_ref())?;
        // `NOT IN` of a NULL is not known, but among no rows it is none.
        let unknown_passes = !self.join.null_counts || self.join.table.is_empty();
        let keep: Vec<bool> = known
            .iter()
            .zip(&found)
            .map(|(known, found)| match self.anti {
                true => !found && (*known || unknown_passes),
                false => *found,
            })
            .collect();
        if keep.contains(&false) {
            batch.keep(&keep);
        }
        Ok(())
    }
}

impl Join {
    /// An inner join, without what is kept.
    pub fn new(keys: Vec<Value>, build: Build, step: StepKey) -> Join {
        Join {
            table: Table::new(keys.len()),
            keys,
            outer: false,
            build,
            kept: Vec::new(),
            dropped: Vec::new(),
            matched: None,
            null_counts: false,
            one_each: false,
            step,
            given: AtomicU64::new(0),
        }
    }

    /// Reads the build side by the row operators.
    pub fn rows(
        &self,
        side: &Side,
        memory: usize,
        core: &mut Core,
        frame: &mut Frame,
        measured: bool,
    ) -> Result<Collected, Stop> {
        const CHECK_ROWS: usize = 1024;
        let mut collected = Collected::new(&self.kept);
        let keep_all = self.keeps_all();
        let mut build = operator(&side.node, measured);
        build.open(core, frame)?;
        let mut count = 0_usize;
        'rows: while build.next(core, frame)? {
            let known = collected.keys.len();
            for key in &side.keys {
                let value = frame.eval(key, core)?;
                if value.is_null() {
                    if keep_all {
                        return Err(Stop::Refused("a NULL among the keys of a join"));
                    }
                    collected.keys.truncate(known);
                    continue 'rows;
                }
                collected.keys.push(whole(value.borrow())?);
            }
            for (column, kept) in collected.columns.iter_mut().zip(&self.kept) {
                let register = side.registers[kept.number];
                column.push_one(frame.registers[register].borrow(), kept.ty)?;
            }
            count += 1;
            if count.is_multiple_of(CHECK_ROWS) && collected.memory() > memory {
                return Err(Stop::Full);
            }
        }
        Ok(collected)
    }

    /// Gives the rows of a batch with their partners to `then`, in batches.
    pub fn probe(
        &self,
        batch: &Batch,
        then: &mut dyn FnMut(&mut Batch) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if self.is_barren() {
            return Ok(());
        }
        let words = Words::new(&self.keys, batch)?;
        let mut pairs = Pairs::default();
        let mut key = vec![0; self.keys.len()];
        for row in 0..batch.rows {
            let mut at = match words.put(row, &mut key)? {
                true => self.table.first(&key),
                false => NOWHERE,
            };
            let mut alone = self.outer;
            while at != NOWHERE {
                if self.table.is_of(at, &key) {
                    alone = false;
                    if let Some(matched) = &self.matched {
                        matched[at as usize].store(true, Ordering::Relaxed);
                    }
                    self.pair(&mut pairs, (row as u32, at), batch, then)?;
                }
                at = self.table.next[at as usize];
            }
            if alone {
                self.pair(&mut pairs, (row as u32, NOWHERE), batch, then)?;
            }
        }
        match pairs.probe.is_empty() {
            true => Ok(()),
            false => self.give(&mut pairs, batch, then),
        }
    }

    pub fn keeps_all(&self) -> bool {
        self.matched.is_some() || self.null_counts
    }

    /// Whether no row of the other side can pass.
    pub fn is_barren(&self) -> bool {
        self.table.is_empty() && !self.outer
    }

    /// Gives the rows of the table that had no partner, with NULLs for the columns of `empty`, a
    /// batch without rows.
    pub fn rest(
        &self,
        empty: &Batch,
        then: &mut dyn FnMut(&mut Batch) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let Some(matched) = &self.matched else {
            return Ok(());
        };
        let alone = |row: &u32| !matched[*row as usize].load(Ordering::Relaxed);
        let alone: Vec<u32> = (0..matched.len() as u32).filter(alone).collect();
        for rows in alone.chunks(PAIRS) {
            let mut pairs = Pairs {
                probe: vec![NOWHERE; rows.len()],
                build: rows.to_vec(),
            };
            self.give(&mut pairs, empty, then)?;
        }
        Ok(())
    }

    #[inline]
    fn pair(
        &self,
        pairs: &mut Pairs,
        (probe, build): (u32, u32),
        batch: &Batch,
        then: &mut dyn FnMut(&mut Batch) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        pairs.probe.push(probe);
        pairs.build.push(build);
        match pairs.probe.len() < PAIRS {
            true => Ok(()),
            false => self.give(pairs, batch, then),
        }
    }

    fn is_dropped(&self, place: usize) -> bool {
        self.dropped.contains(&place) || self.kept.iter().any(|k| k.place == place)
    }

    /// Which rows of a batch have a key without a NULL, and a partner that the condition accepts.
    pub fn found(
        &self,
        batch: &Batch,
        condition: Option<&Condition>,
    ) -> Result<(Vec<bool>, Vec<bool>), Stop> {
        let mut found = vec![false; batch.rows];
        let mut known = vec![true; batch.rows];
        let words = Words::new(&self.keys, batch)?;
        let mut pairs = Pairs::default();
        let mut key = vec![0; self.keys.len()];
        for row in 0..batch.rows {
            if !words.put(row, &mut key)? {
                known[row] = false;
                continue;
            }
            let mut at = self.table.first(&key);
            while at != NOWHERE {
                if self.table.is_of(at, &key) {
                    if condition.is_none() {
                        found[row] = true;
                        break;
                    }
                    pairs.probe.push(row as u32);
                    pairs.build.push(at);
                    if pairs.probe.len() >= PAIRS {
                        self.test(&mut pairs, batch, condition, &mut found)?;
                    }
                }
                at = self.table.next[at as usize];
            }
        }
        if !pairs.probe.is_empty() {
            self.test(&mut pairs, batch, condition, &mut found)?;
        }
        Ok((known, found))
    }

    /// Notes the rows of the batch that are in a pair for which the condition holds.
    fn test(
        &self,
        pairs: &mut Pairs,
        batch: &Batch,
        condition: Option<&Condition>,
        found: &mut [bool],
    ) -> Result<(), Stop> {
        let probe = pairs.probe.clone();
        self.give(pairs, batch, &mut |batch| {
            if let Some(condition) = condition {
                let truth = condition.eval(batch)?;
                for (row, truth) in probe.iter().zip(truth) {
                    found[*row as usize] |= truth == TRUE;
                }
            }
            Ok(())
        })
    }

    /// Makes a batch of pairs.
    fn give(
        &self,
        pairs: &mut Pairs,
        batch: &Batch,
        then: &mut dyn FnMut(&mut Batch) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        wait::check_cancel().map_err(|_| cancelled())?;
        let rows = pairs.probe.len();
        self.given.fetch_add(rows as u64, Ordering::Relaxed);
        // Most joins by a foreign key leave the rows as they are.
        let all = rows == batch.rows && (0..).zip(&pairs.probe).all(|(at, p)| at == *p);
        let mut columns: Vec<Column> = Vec::with_capacity(batch.columns.len());
        for (place, column) in batch.columns.iter().enumerate() {
            columns.push(
                match column.len() == batch.rows && !self.is_dropped(place) {
                    true if all => column.clone(),
                    true => column.take(&pairs.probe),
                    false => column.emptied(),
                },
            );
        }
        for (kept, column) in self.kept.iter().zip(&self.table.columns) {
            columns[kept.place] = column.take(&pairs.build);
        }
        pairs.probe.clear();
        pairs.build.clear();
        then(&mut Batch { rows, columns })
    }
}
