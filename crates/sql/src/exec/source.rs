//! Cursors over one table: a scan, or entries of an index. They hold no latch and no pin between rows, so a client may
//! take its time.

use std::cmp::Ordering;
use std::ops::Bound;

use block::RowId;
use block::value::{Datum, DatumRef};
use engine::{AskedAhead, HeapScan, IndexScan, RowsOfKeys, Sight, Snapshot};

use super::profile::StepKey;
use super::{common, inverted};
use crate::dict::Table;
use crate::error::Result;
use crate::expr::{Calls, Env, Expr, cast, compare};
use crate::plan::{KeyBound, Path, TableAccess};
use crate::session::Core;
use crate::types::SqlType;

/// Newer snapshots that a statement takes for one row before it has the version before made from undo instead.
const MOST_RENEWALS: u32 = 3;

/// Where a cursor stands. `row` is the current row as stored.
pub struct TableCursor {
    state: State,
    /// Of [`State::Index`]; kept so that the next one takes its place in memory.
    scan: Option<Box<IndexScan>>,
    row: Vec<u8>,
    /// The rows are about to be changed.
    to_change: bool,
    /// Of those: nothing has been read yet, and the cursor can be placed again with a newer snapshot.
    may_renew: bool,
    /// Keys of an IN list still to be entered, last first.
    keys: Vec<Vec<Datum>>,
    /// Copies of other instances' blocks, for this many of the next keys.
    ahead: AskedAhead,
    covered: usize,
}

enum State {
    /// The rows of one block at a time, copied out of it.
    Scan {
        scan: Box<HeapScan>,
        rows: Vec<(RowId, usize, usize)>,
        at: usize,
    },
    Index,
    /// Of an inverted index, or of several indexes.
    Rows(Box<RowsOfKeys>),
    /// A unique key: its row is fetched already, if there is one.
    One(Option<RowId>),
    /// A unique key whose row has been changed since the snapshot.
    Newer,
    Done,
}

/// A key value as the column can hold it.
pub enum Fit {
    Key(Datum),
    /// Below or above every value of the column's type.
    Below,
    Above,
    Null,
}

impl TableCursor {
    /// A cursor that uses the given memory for rows.
    pub fn with_buffer(row: Vec<u8>) -> TableCursor {
        TableCursor {
            state: State::Done,
            scan: None,
            row,
            to_change: false,
            may_renew: false,
            keys: Vec::new(),
            ahead: AskedAhead::default(),
            covered: 0,
        }
    }

    /// The same for rows that are about to be changed: what a whole unique key leads to is asked of other instances to be changed, not for reading first.
    pub fn to_change(row: Vec<u8>) -> TableCursor {
        TableCursor {
            to_change: true,
            ..TableCursor::with_buffer(row)
        }
    }

    /// Places a cursor of rows to be changed, with a snapshot just taken. If a whole unique key leads to a row that has been changed since, which is likely when its block has been waited for, another snapshot is taken: nothing has been
    /// read by the former. It saves the version before, whose undo may be another instance's, and that the row is looked at again once it is locked.
    pub fn open_to_change(
        &mut self,
        access: &TableAccess,
        core: &mut Core,
        snapshot: &mut Snapshot,
        env: &Env<'_>,
    ) -> Result<()> {
        for renewals in 0..=MOST_RENEWALS {
            self.may_renew = renewals < MOST_RENEWALS;
            self.open(access, core, snapshot, env)?;
            if !matches!(self.state, State::Newer) {
                break;
            }
            wait::stat::add(wait::Stat::StatementRestarts, 1);
            *snapshot = core.engine.snapshot()?;
        }
        self.may_renew = false;
        Ok(())
    }

    pub fn into_buffer(self) -> Vec<u8> {
        self.row
    }

    /// Places the cursor before its first row. `env` gives parameters and, on the inner side of a loop, the outer row.
    pub fn open(
        &mut self,
        access: &TableAccess,
        core: &mut Core,
        snapshot: &Snapshot,
        env: &Env<'_>,
    ) -> Result<()> {
        let mark = core.mark();
        if mark.is_none() {
            return self.place(access, core, snapshot, env);
        }
        core.engine.time_indexes();
        let placed = self.place(access, core, snapshot, env);
        let index = core.engine.index_times();
        core.measured(StepKey::of(access), mark, |step| {
            step.loops += 1;
            step.index += index;
        });
        placed
    }

    /// Places the cursor before the first row of a scan of a part of the table.
    pub fn open_scan(&mut self, access: &TableAccess, scan: HeapScan, core: &mut Core) {
        self.keys.clear();
        self.covered = 0;
        self.state = State::Scan {
            scan: Box::new(scan),
            rows: Vec::new(),
            at: 0,
        };
        let mark = core.mark();
        if mark.is_some() {
            core.measured(StepKey::of(access), mark, |step| step.loops += 1);
        }
    }

    /// Places the cursor before the first row of these keys, whose order is descending, of an
    /// access by [`Path::Keys`].
    pub fn open_at(
        &mut self,
        access: &TableAccess,
        keys: Vec<Vec<Datum>>,
        core: &mut Core,
        snapshot: &Snapshot,
    ) -> Result<()> {
        self.state = State::Done;
        (self.keys, self.covered) = (keys, 0);
        self.enter_next(access, core, snapshot).map(|_| ())
    }

    /// A value as a key of the first column of an index; `None` if no row can have it.
    pub fn first_key(access: &TableAccess, value: DatumRef<'_>) -> Result<Option<Datum>> {
        let Path::Keys { index, .. } = &access.path else {
            return Ok(None);
        };
        Ok(match fit(&access.table, *index, 0, value)? {
            Fit::Key(key) => Some(key),
            _ => None,
        })
    }

    /// Places the cursor before its first row.
    fn place(
        &mut self,
        access: &TableAccess,
        core: &mut Core,
        snapshot: &Snapshot,
        env: &Env<'_>,
    ) -> Result<()> {
        self.state = State::Done;
        self.keys.clear();
        self.covered = 0;
        if let Path::Keys { index, keys, .. } = &access.path {
            self.keys = whole_keys(access, *index, keys, core, env)?;
            return self.enter_next(access, core, snapshot).map(|_| ());
        }
        if let Path::Inverted { index, terms, most } = &access.path
            && let Some(rows) = inverted::rows(access, (*index, terms, *most), core, snapshot, env)?
        {
            self.state = State::Rows(Box::new(rows));
            return Ok(());
        }
        if let Path::Common { parts, .. } = &access.path
            && let Some(rows) = common::rows(access, parts, core, snapshot, env)?
        {
            self.state = State::Rows(Box::new(rows));
            return Ok(());
        }
        let Path::Index {
            index,
            equal,
            any_of,
            low,
            high,
            backward,
            ..
        } = &access.path
        else {
            self.state = State::Scan {
                scan: Box::new(core.engine.scan(access.table.engine())),
                rows: Vec::new(),
                at: 0,
            };
            return Ok(());
        };
        let Some(key) = equal_key(access, *index, equal, core, env)? else {
            return Ok(());
        };
        if !any_of.is_empty() {
            self.keys = listed_keys(access, *index, key, any_of, core, env)?;
            return self.enter_next(access, core, snapshot).map(|_| ());
        }
        if low.is_none() && high.is_none() && !key.is_empty() {
            return self.enter(access, key, core, snapshot);
        }
        if let Some((low, high)) =
            range(access, *index, key, low.as_ref(), high.as_ref(), core, env)?
        {
            let [low, high] = [&low, &high].map(|bound| bound.as_ref().map(Vec::as_slice));
            let table = access.table.engine();
            let scan = core
                .engine
                .index_range(table, *index, low, high, *backward)?;
            self.state = self.at(scan);
        }
        Ok(())
    }

    fn at(&mut self, scan: IndexScan) -> State {
        match &mut self.scan {
            Some(former) => **former = scan,
            None => self.scan = Some(Box::new(scan)),
        }
        State::Index
    }

    /// Enters the index at one key, or prefix of keys.
    fn enter(
        &mut self,
        access: &TableAccess,
        key: Vec<Datum>,
        core: &mut Core,
        snapshot: &Snapshot,
    ) -> Result<()> {
        let (index, several, backward, unique) = match &access.path {
            Path::Full | Path::Inverted { .. } | Path::Common { .. } => return Ok(()),
            Path::Keys { index, unique, .. } => (index, true, &false, unique),
            Path::Index {
                index,
                any_of,
                backward,
                unique,
                ..
            } => (index, !any_of.is_empty(), backward, unique),
        };
        let may_renew = self.may_renew && !several;
        let table = access.table.engine();
        self.state = if !*unique {
            let end = Bound::Included(key.as_slice());
            let engine = &mut core.engine;
            let scan = engine.index_range(table, *index, end, end, *backward)?;
            self.at(scan)
        } else if self.to_change {
            let (engine, row) = (&mut core.engine, &mut self.row);
            match engine.get_unique_to_change(table, *index, &key, snapshot, may_renew, row)? {
                Sight::Row(rid) => State::One(Some(rid)),
                Sight::Nothing => State::Done,
                Sight::Newer => State::Newer,
            }
        } else {
            let (engine, ahead) = (&mut core.engine, &self.ahead);
            let row = &mut self.row;
            State::One(engine.get_unique(table, *index, &key, snapshot, ahead, row)?)
        };
        Ok(())
    }

    /// Enters the index at the next key of the list; false if there is none.
    fn enter_next(
        &mut self,
        access: &TableAccess,
        core: &mut Core,
        snapshot: &Snapshot,
    ) -> Result<bool> {
        self.ask_ahead(access, core, snapshot)?;
        match self.keys.pop() {
            None => Ok(false),
            Some(key) => {
                self.enter(access, key, core, snapshot)?;
                Ok(true)
            }
        }
    }

    /// Asks for the blocks of the next keys at once, if each leads to one row and those of before
    /// are through.
    fn ask_ahead(
        &mut self,
        access: &TableAccess,
        core: &mut Core,
        snapshot: &Snapshot,
    ) -> Result<()> {
        self.covered = self.covered.saturating_sub(1);
        if self.covered > 0 || self.keys.len() < 2 || !core.engine.asks_ahead() {
            return Ok(());
        }
        let (Path::Keys {
            index,
            unique: true,
            ..
        }
        | Path::Index {
            index,
            unique: true,
            ..
        }) = &access.path
        else {
            return Ok(());
        };
        let keys = self.keys.iter().rev().map(Vec::as_slice);
        let as_of = (!self.to_change).then_some(snapshot);
        let (table, ahead) = (access.table.engine(), &mut self.ahead);
        let asked = core.engine.ask_ahead(table, *index, keys, as_of, ahead)?;
        self.covered = asked;
        Ok(())
    }

    /// Asks at once for the blocks of the rows that one key each leads to.
    pub fn ask_ahead_for(
        &mut self,
        access: &TableAccess,
        index: usize,
        keys: &[Vec<Datum>],
        core: &mut Core,
        snapshot: &Snapshot,
    ) -> Result<()> {
        let keys = keys.iter().map(Vec::as_slice);
        let (table, ahead) = (access.table.engine(), &mut self.ahead);
        core.engine
            .ask_ahead(table, index, keys, Some(snapshot), ahead)?;
        Ok(())
    }

    /// Steps to the next row.
    #[inline]
    pub fn next(
        &mut self,
        access: &TableAccess,
        core: &mut Core,
        snapshot: &Snapshot,
    ) -> Result<Option<RowId>> {
        if core.profile.is_none() {
            return self.advance(access, core, snapshot);
        }
        let mark = core.mark();
        core.engine.time_indexes();
        let next = self.advance(access, core, snapshot);
        let index = core.engine.index_times();
        core.measured(StepKey::of(access), mark, |step| {
            step.rows += u64::from(matches!(next, Ok(Some(_))));
            step.index += index;
        });
        next
    }

    fn advance(
        &mut self,
        access: &TableAccess,
        core: &mut Core,
        snapshot: &Snapshot,
    ) -> Result<Option<RowId>> {
        loop {
            if let Some(rid) = self.step(core, snapshot)? {
                return Ok(Some(rid));
            }
            if !self.enter_next(access, core, snapshot)? {
                return Ok(None);
            }
        }
    }

    fn step(&mut self, core: &mut Core, snapshot: &Snapshot) -> Result<Option<RowId>> {
        match &mut self.state {
            State::Done | State::Newer => Ok(None),
            State::One(found) => {
                let found = found.take();
                self.state = State::Done;
                Ok(found)
            }
            State::Index => match &mut self.scan {
                Some(scan) => Ok(scan.next(&mut core.engine, snapshot, &mut self.row)?),
                None => Ok(None),
            },
            State::Rows(rows) => Ok(rows.next(&mut core.engine, snapshot, &mut self.row)?),
            State::Scan { scan, rows, at } => loop {
                if let Some((rid, ..)) = rows.get(*at) {
                    *at += 1;
                    return Ok(Some(*rid));
                }
                wait::check_cancel().map_err(|_| crate::session::cancelled())?;
                rows.clear();
                self.row.clear();
                *at = 0;
                let buffer = &mut self.row;
                let more = scan.next_block(&mut core.engine, snapshot, &mut |rid, bytes| {
                    let from = buffer.len();
                    buffer.extend_from_slice(bytes);
                    rows.push((rid, from, buffer.len()));
                })?;
                if !more {
                    self.state = State::Done;
                    return Ok(None);
                }
            },
        }
    }

    /// The current row as stored.
    pub fn row(&self) -> &[u8] {
        match &self.state {
            State::Scan { rows, at, .. } => match at.checked_sub(1).and_then(|i| rows.get(i)) {
                Some((_, from, to)) => &self.row[*from..*to],
                None => &[],
            },
            _ => &self.row,
        }
    }
}

/// The values of the key's equal columns; `None` if one of them can equal nothing.
pub fn equal_key(
    access: &TableAccess,
    index: usize,
    equal: &[Expr],
    calls: &mut dyn Calls,
    env: &Env<'_>,
) -> Result<Option<Vec<Datum>>> {
    let mut key = Vec::with_capacity(equal.len() + 1);
    for (i, e) in equal.iter().enumerate() {
        match fit(&access.table, index, i, e.eval(env, calls)?.get())? {
            Fit::Key(value) => key.push(value),
            _ => return Ok(None),
        }
    }
    Ok(Some(key))
}

pub fn fit(table: &Table, index: usize, position: usize, value: DatumRef<'_>) -> Result<Fit> {
    let ty = table.indexes[index].type_of(table, position);
    let narrow = |value: i64, low: i64, high: i64, make: fn(i64) -> Datum| match value {
        v if v < low => Fit::Below,
        v if v > high => Fit::Above,
        v => Fit::Key(make(v)),
    };
    Ok(match (value, ty) {
        (DatumRef::Null, _) => Fit::Null,
        (d, SqlType::Int2 | SqlType::Int4 | SqlType::Int8 | SqlType::Oid) => {
            let value = cast::integer(d).ok_or_else(|| {
                crate::Error::internal(format!("{d:?} as key of an integer column"))
            })?;
            match ty {
                SqlType::Int2 => narrow(value, i16::MIN.into(), i16::MAX.into(), |v| {
                    Datum::Int2(v as i16)
                }),
                SqlType::Int4 => narrow(value, i32::MIN.into(), i32::MAX.into(), |v| {
                    Datum::Int4(v as i32)
                }),
                _ => Fit::Key(Datum::Int8(value)),
            }
        }
        (d, _) => Fit::Key(d.to_datum()),
    })
}

/// The keys of an IN list, each once, in descending order: they are taken from the end.
pub fn listed_keys(
    access: &TableAccess,
    index: usize,
    prefix: Vec<Datum>,
    list: &[Expr],
    calls: &mut dyn Calls,
    env: &Env<'_>,
) -> Result<Vec<Vec<Datum>>> {
    let mut values = Vec::with_capacity(list.len());
    for e in list {
        if let Fit::Key(value) = fit(
            &access.table,
            index,
            prefix.len(),
            e.eval(env, calls)?.get(),
        )? {
            values.push(value);
        }
    }
    values.sort_by(|a, b| compare(b.borrow(), a.borrow()).unwrap_or(Ordering::Equal));
    values.dedup_by(|a, b| compare(a.borrow(), b.borrow()).is_ok_and(Ordering::is_eq));
    let key = |value| {
        prefix
            .iter()
            .cloned()
            .chain(std::iter::once(value))
            .collect()
    };
    Ok(values.into_iter().map(key).collect())
}

/// Keys that are given as a whole, each once, in descending order of the index's columns.
fn whole_keys(
    access: &TableAccess,
    index: usize,
    keys: &[Vec<Expr>],
    calls: &mut dyn Calls,
    env: &Env<'_>,
) -> Result<Vec<Vec<Datum>>> {
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        found.extend(equal_key(access, index, key, calls, env)?);
    }
    let order = |a: &Vec<Datum>, b: &Vec<Datum>| {
        let each = a.iter().zip(b);
        let mut each = each.map(|(a, b)| compare(b.borrow(), a.borrow()));
        each.find_map(|o| o.ok().filter(|o| o.is_ne()))
            .unwrap_or(Ordering::Equal)
    };
    found.sort_by(order);
    found.dedup_by(|a, b| order(a, b).is_eq());
    Ok(found)
}

/// A range of an index, in its own order.
pub type KeyRange = engine::Bounds;

/// The range of an index, in its own order: the equal prefix, then the bounds of the next column. NULLs meet no bound
/// but may lie inside the range at its open end; the filter refuses them.
pub fn range(
    access: &TableAccess,
    index: usize,
    key: Vec<Datum>,
    low: Option<&KeyBound>,
    high: Option<&KeyBound>,
    calls: &mut dyn Calls,
    env: &Env<'_>,
) -> Result<Option<KeyRange>> {
    let next = key.len();
    let whole = || {
        if key.is_empty() {
            Bound::Unbounded
        } else {
            Bound::Included(key.clone())
        }
    };
    let mut ends = [whole(), whole()];
    for (side, bound) in [(0, low), (1, high)] {
        let Some(bound) = bound else { continue };
        let value = bound.value.eval(env, calls)?;
        let end = match fit(&access.table, index, next, value.get())? {
            Fit::Null => return Ok(None),
            Fit::Below if side == 1 => return Ok(None),
            Fit::Above if side == 0 => return Ok(None),
            Fit::Below | Fit::Above => continue,
            Fit::Key(value) => {
                let mut full = key.clone();
                full.push(value);
                if bound.inclusive {
                    Bound::Included(full)
                } else {
                    Bound::Excluded(full)
                }
            }
        };
        ends[side] = end;
    }
    let [low, high] = ends;
    let descending = access.table.indexes[index]
        .keys
        .get(next)
        .is_some_and(|k| k.descending);
    Ok(Some(if descending { (high, low) } else { (low, high) }))
}
