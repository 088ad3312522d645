//! Cursors: DECLARE, FETCH, MOVE, CLOSE, those that bodies open, and the view `pg_cursors`.
//!
//! A session's cursors have one space of names, whoever has made them: a client fetches from what a
//! function has opened, and the other way round.
//!
//! A cursor runs its query as far as it is asked to. One declared with SCROLL keeps the rows that
//! it has passed, in memory up to `work_mem` and beyond that in a temporary file, and moves among
//! them. Others keep nothing. Where PostgreSQL lets them move back all the same, the query is run
//! again with its snapshot, and from then on they keep their rows, too.
//!
//! **Invariant.** A cursor never gives a row for another that it has given before: a query that is
//! run again must give the rows that were passed once more, in their order. It need not: functions
//! may be volatile, and a scan meets the old version of a row that was changed meanwhile elsewhere.
//! Then the cursor does not move back.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use block::RowId;
use block::value::{Datum, DatumRef};
use engine::{HeldSnapshot, Snapshot};

use super::backward::is_scanned;
use super::opened::{Opened, ToOpen};
use super::statement::{Portal, Run};
use super::{Core, Kind, SqlSession};
use crate::api::{ColumnDesc, Completion, RowSink, Tag};
use crate::error::{Error, Result};
use crate::exec::sort::{Rows, Spool, read_row, write_row};
use crate::parse::Utility;
use crate::parse::cursor::{CursorOptions, Direction, Scroll};
use crate::plan::TableAccess;
use crate::query::run::store::{self, RowStore};

/// Cursors a session may have open: each keeps a plan and a place in it.
const MAX_CURSORS: usize = 1000;

/// A cursor as `pg_cursors` shows it.
#[derive(Clone)]
pub struct Declared {
    /// The text of DECLARE.
    pub text: Arc<str>,
    pub hold: bool,
    pub scroll: bool,
    pub binary: bool,
    /// When it was declared, in microseconds from 2000.
    pub since: i64,
}

struct Cursor {
    declared: Declared,
    /// [`Portal::mark`] of its query.
    mark: u64,
    /// `None` while it is moved.
    open: Option<Open>,
}

/// The query of a cursor, under way.
pub(super) enum Source {
    /// Of DECLARE.
    Declared(Box<Portal>),
    /// Of a body.
    Opened(Box<Opened>),
}

impl Source {
    fn kind(&self) -> &Kind {
        match self {
            Source::Declared(portal) => &portal.statement().kind,
            Source::Opened(opened) => opened.kind(),
        }
    }

    fn run(&self) -> &Run {
        match self {
            Source::Declared(portal) => &portal.run,
            Source::Opened(opened) => &opened.run,
        }
    }

    fn columns(&self) -> Option<&[ColumnDesc]> {
        match self {
            Source::Declared(portal) => portal.columns(),
            Source::Opened(opened) => opened.columns(),
        }
    }
}

/// Who runs queries of cursors.
trait Runner {
    fn core(&mut self) -> &mut Core;

    /// Runs a query up to so many rows more (0: all); whether it has ended.
    fn pull(&mut self, of: &mut Source, most: usize, sink: &mut dyn RowSink) -> Result<bool>;
}

impl Runner for SqlSession {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn pull(&mut self, of: &mut Source, most: usize, sink: &mut dyn RowSink) -> Result<bool> {
        match of {
            Source::Declared(portal) => {
                let done = self.execute(portal, most, sink)?;
                Ok(!matches!(done, Completion::Suspended))
            }
            Source::Opened(opened) => self.core.pull_opened(opened, most, sink),
        }
    }
}

impl Runner for Core {
    fn core(&mut self) -> &mut Core {
        self
    }

    fn pull(&mut self, of: &mut Source, most: usize, sink: &mut dyn RowSink) -> Result<bool> {
        match of {
            Source::Declared(portal) => self.pull_portal(portal, most, sink),
            Source::Opened(opened) => self.pull_opened(opened, most, sink),
        }
    }
}

/// What moves.
struct Open {
    source: Source,
    /// The rows that the query has given so far, if the cursor can go back to them.
    passed: Option<RowStore>,
    /// The number of the row where it is, from 1; zero before the first, and one more than there
    /// are behind the last.
    at: u64,
    /// How many rows there are, once that is known.
    total: Option<u64>,
    failed: bool,
    /// Set if a declared query may be run again to move back.
    again: Option<Again>,
    /// What the rows are known by that a cursor has passed whose query may be run again.
    given: Given,
}

impl Open {
    fn may_begin_again(&self) -> bool {
        match &self.source {
            Source::Declared(_) => self.again.is_some(),
            Source::Opened(opened) => opened.may_begin_again(),
        }
    }
}

/// Rows as a number and a hash of them in their order.
#[derive(Clone, Default)]
struct Given {
    rows: u64,
    hasher: DefaultHasher,
}

impl Given {
    fn add(&mut self, row: &[u8]) {
        self.rows += 1;
        self.hasher.write_usize(row.len());
        self.hasher.write(row);
    }

    fn is(&self, other: &Given) -> bool {
        self.rows == other.rows && self.hasher.finish() == other.hasher.finish()
    }
}

/// The snapshot that a declared query reads, and what keeps it for another run.
pub(super) struct Again {
    pub snapshot: Snapshot,
    pub hold: HeldSnapshot,
}

#[derive(Default)]
pub struct Cursors {
    list: BTreeMap<String, Cursor>,
    /// How many have got a name of the session's own making.
    unnamed: u64,
    /// Large objects that are open, which end as cursors do.
    pub large: crate::large::Descriptors,
}

impl Cursors {
    fn check_new(&self, name: &str) -> Result<()> {
        if self.list.contains_key(name) {
            return Err(Error::new(
                "42P03",
                format!("cursor \"{name}\" already exists"),
            ));
        }
        self.check_room()
    }

    /// Like [`Cursors::check_new`], as PL/pgSQL says it.
    fn check_free(&self, name: &str) -> Result<()> {
        if self.list.contains_key(name) {
            let message = format!("cursor \"{name}\" already in use");
            return Err(Error::new("42P03", message));
        }
        self.check_room()
    }

    /// A name that no cursor has.
    pub fn new_name(&mut self) -> String {
        loop {
            self.unnamed += 1;
            let name = format!("<unnamed portal {}>", self.unnamed);
            if !self.list.contains_key(&name) {
                return name;
            }
        }
    }

    fn check_room(&self) -> Result<()> {
        if self.list.len() >= MAX_CURSORS {
            return Err(Error::new(
                "54000",
                format!("a session can have {MAX_CURSORS} cursors"),
            ));
        }
        Ok(())
    }

    /// Takes a cursor's run, to be moved and put back.
    fn take(&mut self, name: &str) -> Result<Open> {
        let cursor = self.list.get_mut(name).ok_or_else(|| unknown(name))?;
        cursor.open.take().ok_or_else(|| cannot_run(name))
    }

    fn put(&mut self, name: &str, open: Open) {
        if let Some(cursor) = self.list.get_mut(name) {
            cursor.open = Some(open);
        }
    }

    pub fn is_open(&self, name: &str) -> bool {
        self.list.contains_key(name)
    }

    pub fn close(&mut self, name: &str) -> Result<()> {
        match self.list.remove(name) {
            Some(_) => Ok(()),
            None => Err(unknown(name)),
        }
    }

    /// The row of a table at which a cursor is, of which its row was made.
    pub fn current_row(&self, name: &str, table: u32, called: &str) -> Result<RowId> {
        let cursor = self.list.get(name).ok_or_else(|| unknown(name))?;
        let open = cursor.open.as_ref().ok_or_else(|| cannot_run(name))?;
        let state = |what: String| Error::new("24000", what);
        let simple = || {
            state(format!(
                "cursor \"{name}\" is not a simply updatable scan of table \"{called}\""
            ))
        };
        let plan = match open.source.kind() {
            Kind::Select(plan) => plan,
            Kind::Tree(_) => {
                let what = "WHERE CURRENT OF a cursor of more than a scan of its table";
                return Err(Error::unsupported(what));
            }
            _ => return Err(simple()),
        };
        let reads = |a: &&TableAccess| a.table.oid == table;
        let referenced = |message: &str| {
            let table = format!("table \"{called}\"");
            state(format!(
                "cursor \"{name}\" {message} FOR UPDATE/SHARE reference to {table}"
            ))
        };
        let accesses = plan.source.accesses();
        let locked = plan
            .locks
            .iter()
            .filter(|l| accesses.get(l.place).is_some_and(reads));
        match (plan.locks.is_empty(), locked.count()) {
            (true, _) | (false, 1) => {}
            (false, 0) => return Err(referenced("does not have a")),
            (false, _) => {
                return Err(state(format!(
                    "cursor \"{name}\" has multiple FOR UPDATE/SHARE references to table \"{called}\""
                )));
            }
        }
        let is_scan = accesses.len() == 1 && plan.order.is_empty() || !plan.locks.is_empty();
        if plan.aggregate.is_some() || !is_scan || !accesses.iter().any(reads) {
            return Err(simple());
        }
        if cursor.declared.hold || open.passed.is_some() {
            let what = "WHERE CURRENT OF a cursor WITH HOLD or SCROLL";
            return Err(Error::unsupported(what));
        }
        if open.at == 0 || open.total.is_some_and(|total| open.at > total) {
            return Err(state(format!(
                "cursor \"{name}\" is not positioned on a row"
            )));
        }
        match open.source.run() {
            Run::Select(run) => run.row_of(plan, table).ok_or_else(simple),
            _ => Err(simple()),
        }
    }

    pub fn columns(&self, name: &str) -> Option<Vec<ColumnDesc>> {
        let open = self.list.get(name)?.open.as_ref()?;
        open.source.columns().map(<[ColumnDesc]>::to_vec)
    }

    pub fn close_all(&mut self) {
        self.list.clear();
    }

    /// Those declared at these marks end.
    pub fn forget(&mut self, lost: &std::ops::Range<u64>) {
        self.list.retain(|_, c| !lost.contains(&c.mark));
        self.large.forget(lost);
    }

    /// Cursors without hold end with their transaction; held ones are rows by then, and survive a
    /// commit.
    pub fn end_transaction(&mut self, committed: bool) {
        self.large.clear();
        if !self.list.is_empty() {
            self.list.retain(|_, c| committed && c.declared.hold);
        }
    }

    /// Names and definitions, in the order of the names.
    pub fn list(&self) -> impl Iterator<Item = (&str, &Declared)> {
        self.list
            .iter()
            .map(|(name, c)| (name.as_str(), &c.declared))
    }
}

fn unknown(name: &str) -> Error {
    Error::new("34000", format!("cursor \"{name}\" does not exist"))
}

fn cannot_run(name: &str) -> Error {
    Error::new("55000", format!("portal \"{name}\" cannot be run"))
}

fn forward_only() -> Error {
    Error::new("55000", "cursor can only scan forward")
        .hint("Declare it with SCROLL option to enable backward scan.")
}

/// Rows by number, and where the cursor is after them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Movement {
    /// The first row that is given.
    first: u64,
    count: u64,
    backward: bool,
    at: u64,
}

impl Movement {
    fn none(at: u64) -> Movement {
        Movement {
            first: 0,
            count: 0,
            backward: false,
            at,
        }
    }

    /// To one row, which is there, if it is 1 or more, and before the first row otherwise.
    fn to(row: u64) -> Movement {
        Movement {
            first: row,
            count: u64::from(row > 0),
            backward: false,
            at: row,
        }
    }
}

/// What a direction comes to from row `at`. `reach` runs the query until it has given so many rows
/// or has ended, and returns how many it has given: fewer than asked for are all that there are.
fn movement(
    direction: Direction,
    at: u64,
    reach: &mut dyn FnMut(u64) -> Result<u64>,
) -> Result<Movement> {
    let onto = |row: u64, reach: &mut dyn FnMut(u64) -> Result<u64>| {
        let there = reach(row)?;
        Ok(match row <= there {
            true => Movement::to(row),
            false => Movement::none(there + 1),
        })
    };
    match direction {
        Direction::Forward(Some(0)) | Direction::Backward(Some(0)) | Direction::Relative(0) => {
            match at > 0 && at <= reach(at)? {
                true => Ok(Movement::to(at)),
                false => Ok(Movement::none(at)),
            }
        }
        Direction::Forward(rows) => {
            let wanted = rows.map_or(u64::MAX, |rows| at.saturating_add(rows));
            let there = reach(wanted)?;
            Ok(Movement {
                first: at + 1,
                count: wanted.min(there).saturating_sub(at),
                backward: false,
                at: if wanted <= there { wanted } else { there + 1 },
            })
        }
        Direction::Backward(rows) => {
            let left = rows.map_or(0, |rows| at.saturating_sub(rows));
            Ok(Movement {
                first: at.saturating_sub(1),
                count: at.saturating_sub(left.max(1)),
                backward: true,
                at: left,
            })
        }
        Direction::Absolute(row) if row >= 0 => match row.unsigned_abs() {
            0 => Ok(Movement::none(0)),
            row => onto(row, reach),
        },
        Direction::Absolute(from_end) => {
            let there = reach(u64::MAX)?;
            Ok(Movement::to(
                (there + 1).saturating_sub(from_end.unsigned_abs()),
            ))
        }
        Direction::Relative(rows) if rows > 0 => {
            onto(at.saturating_add(rows.unsigned_abs()), reach)
        }
        Direction::Relative(rows) => Ok(Movement::to(at.saturating_sub(rows.unsigned_abs()))),
    }
}

/// Keeps the rows that pass.
struct Passing<'p>(&'p mut RowStore);

impl RowSink for Passing<'_> {
    fn row(&mut self, row: &[DatumRef<'_>]) -> Result<()> {
        let mut bytes = Vec::new();
        write_row(row, &mut bytes);
        self.0.push_bytes(&bytes)
    }
}

/// Counts the rows that pass, and gives those on that the cursor is to show.
struct Counting<'c> {
    passed: u64,
    /// The number of the first row that is shown.
    from: u64,
    shown: &'c mut Spool,
    /// Where the rows are noted if their query may be run again.
    given: Option<&'c mut Given>,
    bytes: Vec<u8>,
}

impl RowSink for Counting<'_> {
    fn row(&mut self, row: &[DatumRef<'_>]) -> Result<()> {
        self.passed += 1;
        if let Some(given) = &mut self.given {
            self.bytes.clear();
            write_row(row, &mut self.bytes);
            given.add(&self.bytes);
        }
        match self.passed >= self.from {
            true => self.shown.row(row),
            false => Ok(()),
        }
    }
}

impl SqlSession {
    /// The statement of a cursor that is declared so, with the values of its parameters.
    pub(crate) fn declared(
        &mut self,
        text: &str,
        options: CursorOptions,
        (param_types, values): (&[u32], &[Datum]),
    ) -> Result<Arc<super::Statement>> {
        let statement = self.parse(text, param_types)?;
        let statement = self.with_arrays(&statement, values)?;
        let locks = match &statement.kind {
            super::Kind::Select(plan) => !plan.locks.is_empty(),
            super::Kind::Tree(plan) => plan.locks_rows(),
            super::Kind::With(plan) if plan.told().target().is_none() => {
                let what = "DECLARE CURSOR must not contain data-modifying statements in WITH";
                return Err(Error::new("0A000", what));
            }
            _ => return Err(Error::new("42601", "a cursor is for SELECT or VALUES only")),
        };
        if locks {
            refuse_with_locks(options)?;
        }
        Ok(statement)
    }

    /// `declaration` is DECLARE with the values of its parameters; `text`: that of its query.
    pub(super) fn declare(
        &mut self,
        name: &str,
        options: CursorOptions,
        (declaration, values): (&super::Statement, &[Datum]),
        text: &str,
    ) -> Result<Tag> {
        self.ensure_transaction()?;
        let given = (declaration.param_types(), values);
        let statement = self.declared(text, options, given)?;
        if !options.hold && !self.is_in_block() {
            return Err(Error::new(
                "25P01",
                "DECLARE CURSOR can only be used in transaction blocks",
            ));
        }
        self.core.cursors.check_new(name)?;
        let scroll = options.scroll == Scroll::Yes;
        let scans = options.scroll == Scroll::Unsaid && is_scanned(&statement.kind);
        let mut again = None;
        let mut portal = Portal::new(&statement, values.to_vec());
        if options.hold {
            // A held cursor outlives its transaction's snapshot: its rows are made now.
            let mut kept = Spool::new(&self.core);
            self.execute(&mut portal, 0, &mut kept)?;
            portal.run = Run::Rows(kept.finish()?, Tag::Rows("FETCH", 0));
        } else {
            // Its snapshot is this moment's: the execution begins, and sends no row.
            again = self.begin_portal(&mut portal, scans)?;
        }
        let keeps = scroll || scans && options.hold;
        let cursor = Cursor {
            declared: Declared {
                text: declaration.text().clone(),
                hold: options.hold,
                scroll: scroll || scans,
                binary: options.binary,
                since: self.core.statement_start,
            },
            mark: portal.mark,
            open: Some(Open {
                source: Source::Declared(Box::new(portal)),
                passed: keeps.then(|| RowStore::new(&self.core)),
                at: 0,
                total: None,
                failed: false,
                again,
                given: Given::default(),
            }),
        };
        self.core.cursors.list.insert(name.to_string(), cursor);
        Ok(Tag::Plain("DECLARE CURSOR"))
    }

    /// Whether the rows that a statement gives are those of a BINARY cursor.
    pub fn gives_binary(&self, portal: &Portal) -> bool {
        match &portal.statement.kind {
            Kind::Utility(Utility::Fetch { cursor, .. }) => {
                let cursor = self.core.cursors.list.get(cursor);
                cursor.is_some_and(|c| c.declared.binary)
            }
            _ => false,
        }
    }

    /// The rows of FETCH; those that MOVE, which discards them, passes.
    pub(super) fn fetch(
        &mut self,
        name: &str,
        direction: Direction,
        discard: bool,
    ) -> Result<Rows> {
        fetch(self, name, direction, discard)
    }
}

impl Core {
    /// FETCH, or MOVE, within a body.
    pub fn fetch_within(
        &mut self,
        name: &str,
        direction: Direction,
        discard: bool,
    ) -> Result<Rows> {
        fetch(self, name, direction, discard)
    }

    /// Opens a cursor for a body.
    pub fn open_for_body(&mut self, name: &str, cursor: ToOpen) -> Result<()> {
        self.cursors.check_free(name)?;
        let (text, mark) = (cursor.nested.text.clone(), self.mark);
        let declared = Declared {
            text,
            hold: false,
            scroll: cursor.scroll != Some(false),
            binary: false,
            since: self.statement_start,
        };
        let (opened, is_whole) = self.begin_opened(cursor)?;
        let scrolls = opened.scroll == Some(true) || is_whole && opened.scroll.is_none();
        let cursor = Cursor {
            declared,
            mark,
            open: Some(Open {
                source: Source::Opened(Box::new(opened)),
                passed: scrolls.then(|| RowStore::new(self)),
                at: 0,
                total: None,
                failed: false,
                again: None,
                given: Given::default(),
            }),
        };
        self.cursors.list.insert(name.to_string(), cursor);
        Ok(())
    }
}

fn fetch<R: Runner>(r: &mut R, name: &str, direction: Direction, discard: bool) -> Result<Rows> {
    let mut open = r.core().cursors.take(name)?;
    let moved = move_open(r, &mut open, name, direction, discard);
    // What could not be moved can not be moved again.
    open.failed |= moved.is_err();
    r.core().cursors.put(name, open);
    moved
}

fn move_open<R: Runner>(
    r: &mut R,
    open: &mut Open,
    name: &str,
    direction: Direction,
    discard: bool,
) -> Result<Rows> {
    if open.failed {
        return Err(cannot_run(name));
    }
    if open.passed.is_none() && goes_back(direction, open.at) && begin_again(r, open)? {
        pass_again(r, open)?;
    }
    match open.passed.is_some() {
        true => scroll(r, open, direction),
        false => advance(r, open, direction, discard),
    }
}

/// Passes the rows again that a cursor has passed, and keeps them; an error if they are others.
fn pass_again<R: Runner>(r: &mut R, open: &mut Open) -> Result<()> {
    open.passed = Some(RowStore::new(r.core()));
    open.total = None;
    reach(r, open, open.given.rows)?;
    let passed = (open.passed.as_ref())
        .ok_or_else(|| Error::internal("a cursor that keeps no rows goes back"))?;
    let (mut again, mut place) = (Given::default(), store::Cursor::default());
    while again.rows < open.given.rows
        && let Some(row) = passed.next_bytes(&mut place)?
    {
        again.add(row);
    }
    if !again.is(&open.given) {
        return Err(forward_only().detail("The rows that it has passed, or their order, changed."));
    }
    reach(r, open, open.at).map(|_| ())
}

/// Runs the query of a cursor from its first row again; false if that is not for it.
fn begin_again<R: Runner>(r: &mut R, open: &mut Open) -> Result<bool> {
    match (&mut open.source, open.again.take()) {
        (Source::Opened(opened), _) => r.core().begin_again(opened),
        (Source::Declared(portal), Some(again)) => {
            r.core().restart_portal(portal, again)?;
            Ok(true)
        }
        (Source::Declared(_), None) => Ok(false),
    }
}

/// Whether a cursor needs rows that it has passed.
fn goes_back(direction: Direction, at: u64) -> bool {
    match direction {
        Direction::Forward(Some(0)) | Direction::Relative(0) => true,
        Direction::Forward(_) => false,
        Direction::Backward(_) => true,
        Direction::Absolute(row) => row < 0 || row.unsigned_abs() <= at,
        Direction::Relative(rows) => rows < 0,
    }
}

/// Moves a cursor that keeps the rows it has passed.
fn scroll<R: Runner>(r: &mut R, open: &mut Open, direction: Direction) -> Result<Rows> {
    let at = open.at;
    let moved = movement(direction, at, &mut |rows| reach(r, open, rows))?;
    let passed = (open.passed.as_ref())
        .ok_or_else(|| Error::internal("a cursor that keeps no rows goes back"))?;
    let mut shown = Spool::new(r.core());
    let mut place = store::Cursor::default();
    for n in 0..moved.count {
        let row = match moved.backward {
            true => moved.first - n,
            false => moved.first + n,
        };
        passed.seek(&mut place, row - 1)?;
        let bytes = passed.next_bytes(&mut place)?;
        let row = read_row(bytes.ok_or_else(store::damaged)?)?;
        let refs: Vec<DatumRef<'_>> = row.iter().map(Datum::borrow).collect();
        shown.row(&refs)?;
    }
    open.at = moved.at;
    shown.finish()
}

/// Runs the query until it has given so many rows. Returns how many it has given.
fn reach<R: Runner>(r: &mut R, open: &mut Open, rows: u64) -> Result<u64> {
    let passed = (open.passed.as_mut())
        .ok_or_else(|| Error::internal("a cursor that keeps no rows goes back"))?;
    let there = passed.count();
    if open.total.is_none() && there < rows {
        let missing = usize::try_from(rows - there).unwrap_or(usize::MAX);
        let most = if rows == u64::MAX { 0 } else { missing };
        if r.pull(&mut open.source, most, &mut Passing(passed))? {
            open.total = Some(passed.count());
        }
    }
    Ok(passed.count())
}

/// Moves a cursor that goes forward only.
fn advance<R: Runner>(
    r: &mut R,
    open: &mut Open,
    direction: Direction,
    discard: bool,
) -> Result<Rows> {
    let at = open.at;
    // The row up to which it runs, and the first that is given.
    let (to, from) = match direction {
        Direction::Forward(Some(0)) | Direction::Backward(Some(0)) | Direction::Relative(0) => {
            let on_row = at > 0 && open.total.is_none_or(|total| at <= total);
            return match (on_row, discard) {
                (false, _) => Ok(Vec::new().into()),
                (true, true) => Ok(vec![Vec::new()].into()),
                (true, false) => Err(forward_only()),
            };
        }
        Direction::Forward(None) => (u64::MAX, at + 1),
        Direction::Forward(Some(rows)) => (at.saturating_add(rows), at + 1),
        Direction::Absolute(0) if at == 0 => return Ok(Vec::new().into()),
        Direction::Absolute(row) if row > 0 && row.unsigned_abs() > at => {
            (row.unsigned_abs(), row.unsigned_abs())
        }
        Direction::Relative(rows) if rows > 0 => {
            let row = at.saturating_add(rows.unsigned_abs());
            (row, row)
        }
        _ => return Err(forward_only()),
    };
    let mut shown = Spool::new(r.core());
    if let Some(total) = open.total {
        open.at = total + 1;
        return shown.finish();
    }
    let notes = open.may_begin_again();
    let mut counting = Counting {
        passed: at,
        from,
        shown: &mut shown,
        given: notes.then_some(&mut open.given),
        bytes: Vec::new(),
    };
    let most = match to {
        u64::MAX => 0,
        to => usize::try_from(to - at).unwrap_or(0),
    };
    let done = r.pull(&mut open.source, most, &mut counting);
    let passed = counting.passed;
    // The query may have ended with the last row that was asked for: then it is there still.
    let ended = done?;
    open.at = if passed < to { passed + 1 } else { to };
    if ended {
        open.total = Some(passed);
    }
    shown.finish()
}

fn refuse_with_locks(options: CursorOptions) -> Result<()> {
    let refused = |code, what: &str, detail| Err(Error::new(code, what).detail(detail));
    if options.hold {
        let what = "DECLARE CURSOR WITH HOLD ... FOR UPDATE is not supported";
        return refused("0A000", what, "Holdable cursors must be READ ONLY.");
    }
    if options.scroll == Scroll::Yes {
        let what = "DECLARE SCROLL CURSOR ... FOR UPDATE is not supported";
        return refused("0A000", what, "Scrollable cursors must be READ ONLY.");
    }
    if options.insensitive {
        let what = "DECLARE INSENSITIVE CURSOR ... FOR UPDATE is not valid";
        return refused("42P11", what, "Insensitive cursors must be READ ONLY.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows that a direction gives of a query of five, and where the cursor is then.
    fn go(direction: Direction, at: u64) -> (Vec<u64>, u64) {
        let m = movement(direction, at, &mut |rows| Ok(rows.min(5))).unwrap();
        let row = |n| match m.backward {
            true => m.first - n,
            false => m.first + n,
        };
        ((0..m.count).map(row).collect(), m.at)
    }

    #[test]
    fn a_cursor_moves_as_in_postgresql() {
        use Direction::*;
        assert_eq!(go(Forward(Some(2)), 0), (vec![1, 2], 2));
        assert_eq!(go(Forward(Some(2)), 3), (vec![4, 5], 5));
        assert_eq!(go(Forward(Some(2)), 4), (vec![5], 6));
        assert_eq!(go(Forward(None), 2), (vec![3, 4, 5], 6));
        assert_eq!(go(Forward(Some(1)), 6), (vec![], 6));
        assert_eq!(go(Forward(Some(0)), 3), (vec![3], 3));
        assert_eq!(go(Forward(Some(0)), 6), (vec![], 6));
        assert_eq!(go(Forward(Some(0)), 0), (vec![], 0));
        assert_eq!(go(Backward(Some(2)), 6), (vec![5, 4], 4));
        assert_eq!(go(Backward(Some(2)), 2), (vec![1], 0));
        assert_eq!(go(Backward(None), 4), (vec![3, 2, 1], 0));
        assert_eq!(go(Backward(Some(1)), 1), (vec![], 0));
        assert_eq!(go(Backward(Some(1)), 0), (vec![], 0));
        assert_eq!(go(Absolute(4), 1), (vec![4], 4));
        assert_eq!(go(Absolute(9), 1), (vec![], 6));
        assert_eq!(go(Absolute(0), 3), (vec![], 0));
        assert_eq!(go(Absolute(-1), 0), (vec![5], 5));
        assert_eq!(go(Absolute(-5), 0), (vec![1], 1));
        assert_eq!(go(Absolute(-6), 3), (vec![], 0));
        assert_eq!(go(Relative(2), 1), (vec![3], 3));
        assert_eq!(go(Relative(2), 5), (vec![], 6));
        assert_eq!(go(Relative(-2), 6), (vec![4], 4));
        assert_eq!(go(Relative(-2), 2), (vec![], 0));
        assert_eq!(go(Relative(0), 2), (vec![2], 2));
    }
}
