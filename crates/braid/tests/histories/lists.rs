//! Sessions that append to lists and read them, for the checker.

use crate::work::{Failed, Lost, Seat, Work, Worker, finish};
use postgres::{Client, IsolationLevel, Statement, Transaction};
use seam::Rng;
use std::collections::BTreeMap;
use testkit::history::{List, Op, Outcome, Token, Txn};

/// The number of lists in use at a time.
const LISTS: u64 = 6;
/// About how many tokens a list gets before new lists are begun. A read is as long as its list.
const TOKENS: u64 = 50;
/// The tokens of every sixth list are written so long that the list's row needs several blocks.
const WIDE: usize = 400;

pub fn create(client: &mut Client) {
    client
        .batch_execute("create table list (k bigint primary key, v text not null)")
        .expect("a table");
}

/// The contents of all lists.
pub fn read_all(client: &mut Client) -> BTreeMap<List, Vec<Token>> {
    let rows = client.query("select k, v from list", &[]).expect("lists");
    rows.iter().map(|r| (r.get(0), parse(r.get(1)))).collect()
}

fn parse(text: &str) -> Vec<Token> {
    let tokens = text.split_terminator(',');
    tokens.map(|t| t.parse().expect("a token")).collect()
}

struct Statements {
    read: Statement,
    read_range: Statement,
    append: Statement,
    append_or_begin: Statement,
}

pub struct Lists {
    rng: Rng,
    statements: Option<Statements>,
    pub done: Vec<Txn>,
}

impl Worker for Lists {
    fn connected(&mut self, client: &mut Client) -> Result<(), postgres::Error> {
        let mut prepare = |sql| client.prepare(sql);
        self.statements = Some(Statements {
            read: prepare("select v from list where k = $1")?,
            read_range: prepare("select k, v from list where k between $1 and $2")?,
            append: prepare("update list set v = v || $2::text where k = $1")?,
            append_or_begin: prepare(
                "insert into list values ($1, $2) on conflict (k) do update set v = list.v || excluded.v",
            )?,
        });
        Ok(())
    }

    fn transaction(&mut self, client: &mut Client, seat: &Seat<'_>) -> Result<(), Lost> {
        let mut run = Run {
            work: seat.work,
            statements: self.statements.as_ref().expect("it is connected"),
            rng: &mut self.rng,
            ops: Vec::new(),
            undone: Vec::new(),
        };
        // A statement by itself has one snapshot, as a transaction under REPEATABLE READ has.
        let alone = run.rng.below(8) == 0;
        let repeatable = alone || run.rng.below(2) == 0;
        let done = match alone {
            true => run.one_statement(client),
            false => run.transaction(client, repeatable),
        };
        let (outcome, connection) = seat.judge(done);
        let Run { ops, undone, .. } = run;
        let rolled_back = Txn {
            repeatable,
            ops: undone,
            outcome: Outcome::RolledBack,
        };
        let txn = Txn {
            repeatable,
            ops,
            outcome,
        };
        let any = |t: &Txn| !t.ops.is_empty();
        self.done.extend([txn, rolled_back].into_iter().filter(any));
        connection
    }
}

impl Lists {
    pub fn new(seed: u64) -> Lists {
        Lists {
            rng: Rng(seed),
            statements: None,
            done: Vec::new(),
        }
    }
}

struct Run<'a> {
    work: &'a Work,
    statements: &'a Statements,
    rng: &'a mut Rng,
    ops: Vec<Op>,
    /// Tokens that were rolled back to a savepoint.
    undone: Vec<Op>,
}

impl Run<'_> {
    /// The generation of lists to use: that of now, or one of a while ago.
    fn generation(&mut self) -> u64 {
        let now = self.work.token() / (LISTS * TOKENS);
        match self.rng.below(8) {
            0 => now.saturating_sub(1),
            _ => now,
        }
    }

    fn text(&self, list: List, token: Token) -> String {
        let width = match list as u64 % LISTS {
            0 => WIDE,
            _ => 0,
        };
        format!("{token:0width$},")
    }

    fn one_statement(&mut self, client: &mut Client) -> Result<bool, Failed> {
        let first = (self.generation() * LISTS) as List;
        let began = self.work.now();
        let last = first + LISTS as List - 1;
        let rows = client.query(&self.statements.read_range, &[&first, &last])?;
        self.note_range(first, &rows, began);
        Ok(true)
    }

    fn note_range(&mut self, first: List, rows: &[postgres::Row], began: u64) {
        let found: BTreeMap<List, Vec<Token>> =
            rows.iter().map(|r| (r.get(0), parse(r.get(1)))).collect();
        if found.len() < rows.len() {
            self.work.find(format!(
                "a list is there twice: {} rows, {found:?}",
                rows.len()
            ));
        }
        for list in first..first + LISTS as List {
            let tokens = found.get(&list).cloned().unwrap_or_default();
            self.ops.push(Op::Read(list, tokens, began));
        }
    }

    fn transaction(&mut self, client: &mut Client, repeatable: bool) -> Result<bool, Failed> {
        let level = match repeatable {
            true => IsolationLevel::RepeatableRead,
            false => IsolationLevel::ReadCommitted,
        };
        let mut t = client.build_transaction().isolation_level(level).start()?;
        let mut snapshot = None;
        let first = self.generation() * LISTS;
        // The lists are mostly taken in order. Some deadlocks are wanted, too.
        let mut lists: Vec<List> = (0..1 + self.rng.below(4))
            .map(|_| (first + self.rng.below(LISTS)) as List)
            .collect();
        if self.rng.below(4) > 0 {
            lists.sort_unstable();
        }
        for list in lists {
            let began = self.work.now();
            let began = match repeatable {
                true => *snapshot.get_or_insert(began),
                false => began,
            };
            match self.rng.below(16) {
                0..7 => {
                    let row = t.query_opt(&self.statements.read, &[&list])?;
                    let tokens = row.map(|r| parse(r.get(0))).unwrap_or_default();
                    self.ops.push(Op::Read(list, tokens, began));
                }
                7 => {
                    let (first, last) = (first as List, (first + LISTS - 1) as List);
                    let rows = t.query(&self.statements.read_range, &[&first, &last])?;
                    self.note_range(first, &rows, began);
                }
                8 => {
                    let mut inner = t.savepoint("s")?;
                    let token = self.work.token();
                    self.undone.push(Op::Append(list, token));
                    self.append(&mut inner, list, token)?;
                    inner.rollback()?;
                }
                _ => {
                    let token = self.work.token();
                    // The append counts as done. If it is never found, it was not done.
                    self.ops.push(Op::Append(list, token));
                    self.append(&mut t, list, token)?;
                }
            }
        }
        let keep = self.rng.below(8) > 0;
        finish(t, keep)
    }

    fn append(
        &mut self,
        t: &mut Transaction<'_>,
        list: List,
        token: Token,
    ) -> Result<(), postgres::Error> {
        let text = self.text(list, token);
        if self.rng.below(2) == 0 && t.execute(&self.statements.append, &[&list, &text])? == 1 {
            return Ok(());
        }
        let changed = t.execute(&self.statements.append_or_begin, &[&list, &text])?;
        if changed != 1 {
            self.work
                .find(format!("an upsert of list {list} changed {changed} rows"));
        }
        Ok(())
    }
}
