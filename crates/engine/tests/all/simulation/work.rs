//! Clients: transfers between accounts, lists that are appended to and read, draws from sequences,
//! tables that come and go, keys that are fought for. Accounts and lists are rows of one table. The
//! balance of an account is the indexed number; the tokens of a list are its text.

use super::draws::{self, Sequences};
use super::families;
use super::keys::Change;
use super::mix::Work;
use super::node::Start;
use super::shared::{Shared, Stage, now_us, pause};
use super::tables::FIRST_SLOT;
use super::wide;
use crate::common;
use crate::common::{Rng, decode, find, row, scan};
use block::{Dba, FileId};
use engine::{
    Engine, Error, Isolation, LockOutcome, LockWait, Result, RowLock, Session, TableDef,
    WriteOutcome,
};
use std::sync::Arc;
use std::time::Duration;
use testkit::history::{List, Op, Outcome, Token};

pub const ACCOUNTS: i64 = 6;
pub const BALANCE: i32 = 100;
pub const LISTS: i64 = 3;
/// About as many blocks as the database has.
const BLOCKS: u64 = 512;
/// The id of the first list.
pub const FIRST_LIST: i64 = 100;

/// The objects of the database.
pub struct Schema {
    pub main: Arc<TableDef>,
    pub sequences: Sequences,
    pub wide: Arc<TableDef>,
    pub keys: Arc<TableDef>,
    pub families: Arc<TableDef>,
}

impl Schema {
    /// Adds the objects to a database that has the main table only.
    pub fn create(engine: &Arc<Engine>, main: Arc<TableDef>) -> Result<Schema> {
        load(engine, &main)?;
        Ok(Schema {
            main,
            sequences: draws::create(engine)?,
            wide: wide::create(engine)?,
            keys: common::create_table(engine),
            families: families::create(engine)?,
        })
    }
}

fn load(engine: &Arc<Engine>, t: &TableDef) -> Result<()> {
    let mut s = engine.session()?;
    s.begin(Isolation::ReadCommitted)?;
    for id in 0..ACCOUNTS {
        s.insert(t, &row(id, BALANCE, "account"))?;
    }
    for id in FIRST_LIST..FIRST_LIST + LISTS {
        s.insert(t, &row(id, 0, ""))?;
    }
    s.commit()
}

/// The sessions of an instance's clients.
#[derive(Default)]
pub struct Peers(std::sync::Mutex<Vec<u32>>);

impl Peers {
    fn list(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.0.lock().expect("no client panics here")
    }

    /// Has the statement of one session cancelled, whatever it is doing.
    fn cancel_one(&self, rng: &mut Rng) {
        let chosen = {
            let list = self.list();
            list[rng.below(list.len() as u64) as usize]
        };
        wait::session::cancel(chosen);
    }
}

/// Works until the instance is told to stop.
pub fn client(engine: &Arc<Engine>, start: &Start, peers: &Peers, seed: u64) {
    let mut rng = Rng(seed);
    let counted = wait::session::register(wait::session::Kind::User, "client");
    let sid = counted.session().sid;
    peers.list().push(sid);
    work(engine, start, peers, &mut rng);
    peers.list().retain(|s| *s != sid);
}

fn work(engine: &Arc<Engine>, start: &Start, peers: &Peers, rng: &mut Rng) {
    let mut session = match engine.session() {
        Ok(session) => session,
        Err(e) => return start.shared.fail(format!("no session: {e}")),
    };
    while start.shared.stage(start.process) == Stage::Open {
        let mut c = Client {
            s: &mut session,
            t: &start.schema.main,
            shared: &start.shared,
            rng: &mut *rng,
            drawn: Vec::new(),
            counted: Vec::new(),
            changes: Vec::new(),
        };
        if c.rng.one_in(start.mix.remaster) {
            // From now on this instance masters a block somewhere in the data file.
            let block = c.rng.below(BLOCKS) as u32;
            let taken = engine
                .transactions()
                .cache()
                .remaster(Dba::new(FileId::DATA, block));
            if taken {
                start.shared.met("granules taken");
            }
        }
        if c.rng.one_in(start.mix.cancel) {
            peers.cancel_one(c.rng);
        }
        if let Err(e) = c.transaction(engine, start) {
            let process = start.process;
            return start.shared.fail(format!(
                "a statement of process {process} failed: {} {e}",
                e.sqlstate()
            ));
        }
        let think = rng.below(start.mix.think_us);
        pause(Duration::from_micros(think));
    }
}

/// The tokens of a list.
pub fn tokens(text: &str) -> Vec<Token> {
    let parse = |t: &str| t.parse().expect("a token is a number");
    text.split_terminator(',').map(parse).collect()
}

const CANCELLED: &str = "57014";

/// The state before a transaction took its first snapshot.
struct Began {
    us: u64,
    stolen: u64,
}

/// How often an instance has used undo again that snapshots might have needed.
fn undo_stolen() -> u64 {
    wait::views::system_stat(wait::Stat::UndoStolen)
}

pub struct Client<'a> {
    pub s: &'a mut Session,
    pub t: &'a Arc<TableDef>,
    pub shared: &'a Shared,
    pub rng: &'a mut Rng,
    /// The values that this transaction drew from sequences, by their places in the book.
    pub drawn: Vec<usize>,
    /// The wide rows that it changed.
    pub counted: Vec<i64>,
    /// The changes that it made to keys.
    pub changes: Vec<Change>,
}

impl Client<'_> {
    /// Runs one transaction to its end. An error is one that no client may see.
    fn transaction(&mut self, engine: &Engine, start: &Start) -> Result<()> {
        let work = start.mix.work(self.rng);
        // A definition is looked up as of now, and so are children.
        let one_snapshot = !matches!(work, Work::Tables | Work::Wide | Work::Families);
        let repeatable = self.rng.one_in(2) && one_snapshot;
        let began = Began {
            us: now_us(),
            stolen: undo_stolen(),
        };
        self.s.begin(match repeatable {
            true => Isolation::RepeatableRead,
            false => Isolation::ReadCommitted,
        })?;
        let txn = self.shared.begin(repeatable);
        let done = match work {
            Work::Transfer => self.transfer(),
            Work::Sum => self.sum(),
            Work::Lists => self.lists(txn, repeatable),
            Work::Draws => self.draws(&start.schema.sequences),
            Work::Tables => self.tables(engine),
            Work::Wide => self.wide(&start.schema.wide),
            Work::Keys => self.keys(&start.schema.keys, repeatable),
            Work::Families => self.families(&start.schema.families, txn),
        };
        self.shared.letting_go(txn, 0);
        match done {
            Ok(()) if self.rng.one_in(10) => self.roll_back(txn),
            Ok(()) => match self.s.commit() {
                Ok(()) => {
                    self.shared.met(&format!("committed: {work:?}"));
                    self.committed(txn);
                    Ok(())
                }
                Err(e) if e.sqlstate() == CANCELLED => self.refused(e, txn, &began),
                Err(e) => Err(e),
            },
            Err(e) => self.refused(e, txn, &began),
        }
    }

    fn refused(&mut self, e: engine::Error, txn: usize, began: &Began) -> Result<()> {
        let Some(why) = self.may_fail(&e, began) else {
            return Err(e);
        };
        self.shared.met(why);
        if e.sqlstate() == CANCELLED {
            // The cancellation has had its effect.
            wait::session::clear_cancel();
        }
        self.roll_back(txn)
    }

    fn committed(&mut self, txn: usize) {
        self.shared.end(txn, Outcome::Committed(now_us()));
        let mut book = self.shared.book();
        for &d in &self.drawn {
            book.draws[d].committed = true;
        }
        for id in &self.counted {
            book.counts.entry(*id).or_default().committed += 1;
        }
        book.keys.committed(&self.changes);
    }

    /// Why a statement may be refused: it was cancelled, there was a deadlock, a row changed since
    /// its snapshot, the disk is full, or a device fails. Undo may also have been taken away since
    /// its snapshot, by whichever instance, because that instance's file could not grow for one of
    /// the last two reasons.
    fn may_fail(&self, e: &Error, began: &Began) -> Option<&'static str> {
        match e.sqlstate() {
            CANCELLED => Some("cancelled"),
            "40P01" => Some("deadlocks"),
            "40001" => Some("refused for a change since the snapshot"),
            "53100" if self.shared.was_full(began.us) => Some("refused for a full disk"),
            "72000" if undo_stolen() > began.stolen => {
                let why = self.shared.was_full(began.us) || self.shared.is_any_doomed();
                why.then_some("refused for undo that was stolen")
            }
            "58030" if self.shared.is_doomed(seam::sim::process()) => {
                Some("refused for an error of the device")
            }
            _ => None,
        }
    }

    fn roll_back(&mut self, txn: usize) -> Result<()> {
        while let Err(e) = self.s.rollback() {
            // What could not be read may be read the next time.
            if !self.shared.is_doomed(seam::sim::process()) {
                return Err(e);
            }
            self.shared.met("rolled back at another attempt");
            pause(Duration::from_millis(1));
        }
        for id in &self.counted {
            self.shared.book().counts.entry(*id).or_default().tried -= 1;
        }
        self.shared.book().keys.rolled_back(&self.changes);
        self.shared.end(txn, Outcome::RolledBack);
        Ok(())
    }

    /// Changes a row as an UPDATE does: locks it, and looks at it again if it had changed.
    fn change(&mut self, id: i64, to: impl Fn(i32, &str) -> (i32, String)) -> Result<()> {
        let main = self.t.clone();
        self.change_in(&main, id, to)
    }

    pub fn change_in(
        &mut self,
        t: &TableDef,
        id: i64,
        to: impl Fn(i32, &str) -> (i32, String),
    ) -> Result<()> {
        let snap = self.s.snapshot()?;
        let Some((rid, mut grp, mut text)) = find(self.s, t, &snap, id)? else {
            return Err(Error::Corrupt(format!("row {id} is not there")));
        };
        let mut body = Vec::new();
        match self
            .s
            .lock_row(t, rid, &snap, (RowLock::Update, LockWait::Wait), &mut body)?
        {
            LockOutcome::Locked => {}
            LockOutcome::Changed => (_, grp, text) = decode(t, &body),
            other => return Err(Error::Corrupt(format!("row {id} is {other:?}"))),
        }
        let (grp, text) = to(grp, &text);
        let done = self.s.update(t, rid, &row(id, grp, &text), None)?;
        if done != WriteOutcome::Done {
            return Err(Error::Corrupt(format!("row {id} is locked, and {done:?}")));
        }
        self.s.end_statement();
        Ok(())
    }

    pub fn transfer(&mut self) -> Result<()> {
        let from = self.rng.below(ACCOUNTS as u64) as i64;
        let to = self.rng.below(ACCOUNTS as u64) as i64;
        let amount = self.rng.below(20) as i32;
        self.change(from, |b, text| (b - amount, text.to_string()))?;
        self.change(to, |b, text| (b + amount, text.to_string()))?;
        Ok(())
    }

    fn sum(&mut self) -> Result<()> {
        let snap = self.s.snapshot()?;
        let mut rows = scan(self.s, self.t, &snap)?;
        self.s.end_statement();
        rows.split_off(&FIRST_SLOT);
        let sum: i32 = rows.range(..FIRST_LIST).map(|(_, (b, _))| b).sum();
        if sum != BALANCE * ACCOUNTS as i32 || rows.len() as i64 != ACCOUNTS + LISTS {
            self.shared.fail(format!(
                "{} rows, accounts sum to {sum}: {rows:?}",
                rows.len()
            ));
        }
        Ok(())
    }

    fn lists(&mut self, txn: usize, repeatable: bool) -> Result<()> {
        let mut began = now_us();
        for n in 0..1 + self.rng.below(4) {
            let list: List = FIRST_LIST + self.rng.below(LISTS as u64) as i64;
            if n > 0 && !repeatable {
                began = now_us();
            }
            if self.rng.one_in(2) {
                let token = self.shared.token();
                self.shared.op(txn, Op::Append(list, token));
                self.change(list, |grp, text| (grp, format!("{text}{token},")))?;
            } else {
                let snap = self.s.snapshot()?;
                let found = find(self.s, self.t, &snap, list)?;
                self.s.end_statement();
                let (_, _, text) =
                    found.ok_or_else(|| Error::Corrupt(format!("no list {list}")))?;
                self.shared.op(txn, Op::Read(list, tokens(&text), began));
            }
        }
        Ok(())
    }
}
