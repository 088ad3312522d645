//! Sessions that move money between accounts, and look at sums. Each transfer has a row that tells
//! of it.

use crate::work::{Failed, Lost, Seat, Work, Worker, finish, two_below};
use postgres::{Client, IsolationLevel, Statement, Transaction};
use seam::Rng;
use std::collections::{BTreeMap, BTreeSet};
use testkit::history::Outcome;

const BALANCE: i64 = 1000;
/// Accounts that all sessions fight for, in a block or two.
const HOT: u64 = 40;
/// Accounts that have a block each. They are more than a cache holds.
const WIDE: u64 = 2200;
/// If masters follow users, each instance works mostly with a part of the wide branch of its own,
/// for so many seconds.
const STAY: u64 = 8;

#[derive(Clone, Copy)]
struct Branch {
    first: i64,
    accounts: u64,
}

const BRANCHES: [Branch; 2] = [
    Branch {
        first: 0,
        accounts: HOT,
    },
    Branch {
        first: 10_000,
        accounts: WIDE,
    },
];

pub fn create(client: &mut Client) {
    client
        .batch_execute(
            "create table account (id bigint primary key, balance bigint not null, pad text);
             create sequence transfer_id;
             create table transfer (id bigint primary key default nextval('transfer_id'), token bigint not null,
                                    a bigint not null, b bigint not null, amount bigint not null);
             create index on transfer (a);
             create index on transfer (b);",
        )
        .expect("tables");
    for Branch { first, accounts } in BRANCHES {
        let width = if accounts == WIDE { 7000 } else { 10 };
        let last = first + accounts as i64 - 1;
        let sql = format!(
            "insert into account select g, {BALANCE}, repeat('x', {width}) from generate_series({first}, {last}) as t(g)"
        );
        client.batch_execute(&sql).expect("accounts");
    }
}

#[derive(Clone, Debug)]
pub struct Transfer {
    token: i64,
    from: i64,
    to: i64,
    amount: i64,
    outcome: Outcome,
}

struct Statements {
    add: Statement,
    look: Statement,
    put: Statement,
    take_away: Statement,
    put_back: Statement,
    tell: Statement,
    sum: Statement,
    balance: Statement,
    went: Statement,
    came: Statement,
}

pub struct Bank {
    rng: Rng,
    statements: Option<Statements>,
    pub done: Vec<Transfer>,
}

impl Bank {
    pub fn new(seed: u64) -> Bank {
        Bank {
            rng: Rng(seed),
            statements: None,
            done: Vec::new(),
        }
    }
}

impl Worker for Bank {
    fn connected(&mut self, client: &mut Client) -> Result<(), postgres::Error> {
        let mut prepare = |sql| client.prepare(sql);
        self.statements = Some(Statements {
            add: prepare("update account set balance = balance + $2 where id = $1")?,
            look: prepare("select balance from account where id = $1 for update")?,
            put: prepare("update account set balance = $2 where id = $1")?,
            take_away: prepare("delete from account where id = $1 returning balance, pad")?,
            put_back: prepare("insert into account values ($1, $2, $3)")?,
            tell: prepare("insert into transfer (token, a, b, amount) values ($1, $2, $3, $4)")?,
            sum: prepare(
                "select sum(balance)::bigint, count(*) from account where id between $1 and $2",
            )?,
            balance: prepare("select balance from account where id = $1")?,
            went: prepare("select coalesce(sum(amount), 0)::bigint from transfer where a = $1")?,
            came: prepare("select coalesce(sum(amount), 0)::bigint from transfer where b = $1")?,
        });
        Ok(())
    }

    fn transaction(&mut self, client: &mut Client, seat: &Seat<'_>) -> Result<(), Lost> {
        let mut teller = Teller {
            work: seat.work,
            statements: self.statements.as_ref().expect("it is connected"),
            rng: &mut self.rng,
            k: seat.k,
        };
        let branch = BRANCHES[usize::from(teller.rng.below(4) == 0)];
        match teller.rng.below(40) {
            0 => seat.judge(teller.sum(client, branch)).1,
            1..5 => seat.judge(teller.account(client, branch)).1,
            _ => {
                let branch = teller.part_of(branch);
                let mut transfer = teller.draw(branch);
                let done = teller.transfer(client, &transfer);
                let (outcome, connection) = seat.judge(done);
                transfer.outcome = outcome;
                self.done.push(transfer);
                connection
            }
        }
    }
}

struct Teller<'a> {
    work: &'a Work,
    statements: &'a Statements,
    rng: &'a mut Rng,
    k: u16,
}

impl Teller<'_> {
    /// The part where an instance works mostly now.
    fn part_of(&mut self, branch: Branch) -> Branch {
        let cluster = &self.work.cluster;
        if !cluster.remasters || branch.accounts != WIDE || self.rng.below(8) == 0 {
            return branch;
        }
        let parts = u64::from(cluster.instances);
        let turn = self.work.now() / 1_000_000 / STAY + u64::from(self.k);
        let accounts = branch.accounts / parts;
        Branch {
            first: branch.first + (turn % parts * accounts) as i64,
            accounts,
        }
    }

    fn draw(&mut self, branch: Branch) -> Transfer {
        let (a, b) = two_below(self.rng, branch.accounts);
        Transfer {
            token: self.work.token() as i64,
            from: branch.first + a,
            to: branch.first + b,
            amount: 1 + self.rng.below(20) as i64,
            outcome: Outcome::RolledBack,
        }
    }

    fn transfer(&mut self, client: &mut Client, of: &Transfer) -> Result<bool, Failed> {
        let level = match self.rng.below(2) {
            0 => IsolationLevel::RepeatableRead,
            _ => IsolationLevel::ReadCommitted,
        };
        let mut t = client.build_transaction().isolation_level(level).start()?;
        let told_first = self.rng.below(2) == 0;
        if told_first {
            self.tell(&mut t, of)?;
        }
        for (account, amount) in [(of.from, -of.amount), (of.to, of.amount)] {
            // Another transaction has put an account in again. The account did not exist in this
            // transaction's snapshot.
            if !self.add(&mut t, account, amount)? {
                return finish(t, false);
            }
        }
        if !told_first {
            self.tell(&mut t, of)?;
        }
        let keep = self.rng.below(8) > 0;
        finish(t, keep)
    }

    fn tell(&self, t: &mut Transaction<'_>, of: &Transfer) -> Result<(), postgres::Error> {
        let values: [&(dyn postgres::types::ToSql + Sync); 4] =
            [&of.token, &of.from, &of.to, &of.amount];
        t.execute(&self.statements.tell, &values).map(|_| ())
    }

    /// Changes a balance in one of three ways. False if the account is not there.
    fn add(
        &mut self,
        t: &mut Transaction<'_>,
        account: i64,
        amount: i64,
    ) -> Result<bool, postgres::Error> {
        let s = self.statements;
        let changed = match self.rng.below(8) {
            0 => {
                let Some(row) = t.query_opt(&s.take_away, &[&account])? else {
                    return Ok(false);
                };
                let (balance, pad): (i64, String) = (row.get(0), row.get(1));
                t.execute(&s.put_back, &[&account, &(balance + amount), &pad])?
            }
            1 | 2 => {
                let Some(row) = t.query_opt(&s.look, &[&account])? else {
                    return Ok(false);
                };
                let balance: i64 = row.get(0);
                t.execute(&s.put, &[&account, &(balance + amount)])?
            }
            _ => {
                let changed = t.execute(&s.add, &[&account, &amount])?;
                if changed == 0 {
                    return Ok(false);
                }
                changed
            }
        };
        if changed != 1 {
            self.work
                .find(format!("{changed} rows of account {account} were changed"));
        }
        Ok(true)
    }

    /// Checks all money of a branch, as one statement sees it.
    fn sum(&self, client: &mut Client, branch: Branch) -> Result<bool, Failed> {
        let (first, last) = (branch.first, branch.first + branch.accounts as i64 - 1);
        let row = client.query_one(&self.statements.sum, &[&first, &last])?;
        let found: (Option<i64>, i64) = (row.get(0), row.get(1));
        let n = branch.accounts as i64;
        if found != (Some(n * BALANCE), n) {
            self.work.find(format!(
                "{found:?} is the sum and number of {n} accounts of {BALANCE} each"
            ));
        }
        Ok(true)
    }

    /// Checks an account and the rows that tell of it, as one snapshot sees them.
    fn account(&mut self, client: &mut Client, branch: Branch) -> Result<bool, Failed> {
        let id = branch.first + self.rng.below(branch.accounts) as i64;
        let level = IsolationLevel::RepeatableRead;
        let mut t = client.build_transaction().isolation_level(level).start()?;
        let s = self.statements;
        let balance = t.query_opt(&s.balance, &[&id])?.map(|r| r.get::<_, i64>(0));
        let went: i64 = t.query_one(&s.went, &[&id])?.get(0);
        let came: i64 = t.query_one(&s.came, &[&id])?.get(0);
        if balance != Some(BALANCE + came - went) {
            self.work.find(format!(
                "account {id} has {balance:?}; {went} went and {came} came"
            ));
        }
        finish(t, true)
    }
}

/// Says what is wrong in the end: transfers that are lost, doubled, or there though they were
/// rolled back, and balances that do not follow from them.
pub fn check(client: &mut Client, done: &[Transfer]) -> Vec<String> {
    let mut found = Vec::new();
    let rows = client
        .query("select token, a, b, amount from transfer", &[])
        .expect("transfers");
    let mut balances: BTreeMap<i64, i64> = BRANCHES
        .iter()
        .flat_map(|b| b.first..b.first + b.accounts as i64)
        .map(|id| (id, BALANCE))
        .collect();
    let mut there = BTreeSet::new();
    for row in &rows {
        let (token, from, to, amount): (i64, i64, i64, i64) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        if !there.insert(token) {
            found.push(format!("transfer {token} is there twice"));
        }
        *balances.entry(from).or_default() -= amount;
        *balances.entry(to).or_default() += amount;
    }
    for t in done {
        match (t.outcome, there.contains(&t.token)) {
            (Outcome::Committed(_), false) => found.push(format!("acknowledged and lost: {t:?}")),
            (Outcome::RolledBack, true) => found.push(format!("rolled back and there: {t:?}")),
            _ => {}
        }
    }
    let rows = client.query("select id, balance from account", &[]);
    let rows = rows.expect("accounts");
    let is: BTreeMap<i64, i64> = rows.iter().map(|r| (r.get(0), r.get(1))).collect();
    if rows.len() != is.len() {
        found.push(format!("{} rows of {} accounts", rows.len(), is.len()));
    }
    for (id, balance) in &balances {
        if is.get(id) != Some(balance) {
            let is = is.get(id);
            found.push(format!("account {id} has {is:?}, its transfers {balance}"));
        }
    }
    let strange = is.keys().filter(|id| !balances.contains_key(id));
    found.extend(strange.map(|id| format!("account {id} is there")));
    found
}
