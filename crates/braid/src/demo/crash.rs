//! An instance is killed under load. The other one goes on, the guard starts the killed one again,
//! and no acknowledged commit is lost.

use std::time::{Duration, Instant};

use super::Demo;
use super::claims::{Balances, Payment, Recorded, balances_follow, payments_are_there};
use super::cluster::{INSTANCES, until};
use super::load::{ACCOUNTS, Acknowledged, CLIENTS, Load, Log};
use super::session::{Answer, Session};
use crate::Failure;
use crate::control::{State, Status};

/// The instance that is killed. It is the first one, which created the database.
const VICTIM: u16 = 1;
const SURVIVOR: u16 = 2;
/// The load runs at least so long before the kill. Also, each client has made so many commits by
/// then.
const BEFORE: Duration = Duration::from_secs(2);
const COMMITS_BEFORE: usize = 10;
/// The least number of commits of each client after the kill. The victim's clients make them once
/// the victim is started again.
const COMMITS_AFTER: usize = 20;

/// What the next step looks for.
pub struct Outcome {
    recorded: Recorded,
    balances_before: Balances,
}

const BALANCES: &str = "select id, balance from account order by id";

fn balances(session: &mut Session) -> Result<Balances, Failure> {
    let found = session.ask(BALANCES)?;
    Ok(found
        .numbers("id")?
        .into_iter()
        .zip(found.numbers("balance")?)
        .collect())
}

/// Runs the load, kills one instance in the middle of it, and waits until it is back.
pub fn kill_under_load(demo: &mut Demo) -> Result<Outcome, Failure> {
    demo.stage.step(
        "kill -9 an instance under load",
        &format!(
            "{CLIENTS} clients on each instance move money between {ACCOUNTS} accounts, and write \
             down each COMMIT that was answered. Then the process of instance {VICTIM}, which \
             created the database, is killed. The clients of instance {SURVIVOR} go on. Those of \
             instance {VICTIM} have lost their connections, and try to connect again until they can."
        ),
    );
    let mut survivor = demo.cluster.session(SURVIVOR)?;
    demo.show(
        &mut survivor,
        &format!("insert into account select g, 'account ' || g, 1000 from generate_series(3, {ACCOUNTS}) g"),
    )?;
    demo.do_it(
        &mut survivor,
        "create table payment (client int, n int, debited int, credited int, amount int,\n  \
           primary key (client, n))",
    )?;
    let balances_before = balances(&mut survivor)?;
    demo.stage.typed(
        &format!("{CLIENTS} clients on each>"),
        "begin;\n\
         update account set balance = balance - $amount where id = $debited;\n\
         update account set balance = balance + $amount where id = $credited;\n\
         insert into payment values ($client, $n, $debited, $credited, $amount);\n\
         commit;   -- with other accounts and amounts each time",
    );
    let mut load = Load::start(demo.cluster.clone(), VICTIM)?;
    let started = Instant::now();
    until("the load to get going", || {
        load.check()?;
        let fewest = (1..=INSTANCES).map(|k| load.fewest_since(k, started)).min();
        let is_going = fewest.is_some_and(|n| n >= COMMITS_BEFORE) && started.elapsed() >= BEFORE;
        Ok(is_going.then_some(()))
    })?;
    let old = demo.cluster.status(VICTIM)?;
    demo.stage
        .typed("$", &format!("kill -9 {}   # instance {VICTIM}", old.pid));
    load.victim_is_killed();
    let killed = Instant::now();
    demo.cluster.kill(&old)?;
    let new = until(
        "the killed instance to come back, and all clients to go on",
        || {
            load.check()?;
            let status = demo.cluster.status(VICTIM)?;
            let is_back = status.state == State::Open && status.incarnation > old.incarnation;
            let go_on = (1..=INSTANCES).all(|k| load.fewest_since(k, killed) >= COMMITS_AFTER);
            Ok((is_back && go_on).then_some(status))
        },
    )?;
    let log = load.stop()?;
    show_what_happened(demo, &log, (started, killed), (&old, &new))?;
    Ok(Outcome {
        recorded: log.recorded,
        balances_before,
    })
}

fn ms(d: Duration) -> String {
    format!("{:.0} ms", d.as_secs_f64() * 1e3)
}

/// Shows the times that the clients saw.
fn show_what_happened(
    demo: &mut Demo,
    log: &Log,
    (started, killed): (Instant, Instant),
    (old, new): (&Status, &Status),
) -> Result<(), Failure> {
    let came_back = log.came_back.ok_or_else(|| {
        Failure(format!(
            "no client of instance {VICTIM} had to connect again"
        ))
    })?;
    let of_survivor = |c: &&Acknowledged| c.instance == SURVIVOR;
    let longest = |of: &dyn Fn(&&Acknowledged) -> bool| {
        let of = log.commits.iter().filter(of_survivor).filter(of);
        of.map(|c| c.at - c.began).max().unwrap_or_default()
    };
    let longest_before = longest(&|c| c.at < killed);
    let longest_after = longest(&|c| c.at >= killed);
    let before = log.commits.iter().filter(|c| c.at < killed).count();
    // The victim may have answered a commit just before its end, and the client may have written it
    // down after the kill.
    let after = |instance: u16| {
        let since = if instance == VICTIM {
            came_back
        } else {
            killed
        };
        let of = log
            .commits
            .iter()
            .filter(|c| c.instance == instance && c.at >= since);
        of.count().to_string()
    };
    let seconds = (killed - started).as_secs_f64();
    let rate = before as f64 / seconds;
    let rows = [
        (
            "commits a second on both instances, before the kill",
            format!("{rate:.0}"),
        ),
        (
            "longest transaction of an instance 2 client, before the kill",
            ms(longest_before),
        ),
        (
            "longest transaction of an instance 2 client, after the kill",
            ms(longest_after),
        ),
        (
            "from the kill until instance 1 takes connections again",
            ms(came_back - killed),
        ),
        ("commits on instance 2 after the kill", after(SURVIVOR)),
        (
            "commits on instance 1 after it is started again",
            after(VICTIM),
        ),
    ];
    let rows = rows.map(|(what, how_much)| vec![what.to_string(), how_much]);
    demo.stage
        .table(&["what the clients saw", "how much"], &rows);
    demo.claims.hold(
        new.pid != old.pid && new.incarnation == old.incarnation + 1,
        || {
            format!(
                "instance {VICTIM} is process {}, started {} times, after process {}, started {} \
                 times",
                new.pid, new.incarnation, old.pid, old.incarnation
            )
        },
    )?;
    demo.stage.notice(&format!(
        "the longest pause on the surviving instance was {}, and none of its clients saw an error. \
         In that time instance {SURVIVOR} read the redo log of the killed instance and made its \
         blocks whole. The guard, the process of braid up, started instance {VICTIM} again by \
         itself as process {}, which rolled back what had not been committed. The next step checks \
         that no acknowledged commit is missing.",
        ms(longest_after),
        new.pid
    ));
    Ok(())
}

fn payments(found: &Answer) -> Result<Vec<Payment>, Failure> {
    let column = |name: &str| -> Result<Vec<i32>, Failure> {
        let numbers = found.numbers(name)?.into_iter().map(i32::try_from);
        Ok(numbers.collect::<Result<_, _>>()?)
    };
    let (client, n, amount) = (column("client")?, column("n")?, column("amount")?);
    let (debited, credited) = (column("debited")?, column("credited")?);
    let row = |i: usize| Payment {
        client: client[i],
        n: n[i],
        debited: debited[i],
        credited: credited[i],
        amount: amount[i],
    };
    Ok((0..client.len()).map(row).collect())
}

/// Compares the table, as each instance reads it, row by row with what the clients have written
/// down.
pub fn look_for_every_commit(demo: &mut Demo, outcome: &Outcome) -> Result<(), Failure> {
    demo.stage.step(
        "Look for every acknowledged commit",
        "The clients' notes are compared with the tables, row by row, as each instance reads them. \
         A transaction whose COMMIT was sent and not answered is in doubt: all of it may be there, \
         or nothing. If the connection broke before the COMMIT was sent, nothing may be there.",
    );
    let recorded = &outcome.recorded;
    let before = outcome.balances_before.values().sum::<i64>();
    let all = "select client, n, debited, credited, amount from payment";
    let mut rows = Vec::new();
    for instance in 1..=INSTANCES {
        let mut session = demo.cluster.session(instance)?;
        demo.stage.typed(&session.prompt, &format!("{all};"));
        let found = payments(&session.ask(all)?)?;
        demo.stage.typed(&session.prompt, &format!("{BALANCES};"));
        let balances = balances(&mut session)?;
        let came_true = demo.claims.check(payments_are_there(recorded, &found))?;
        demo.claims
            .check(balances_follow(&outcome.balances_before, &found, &balances))?;
        let after = balances.values().sum::<i64>();
        demo.claims.hold(after == before, || {
            format!("the balances sum up to {after}, and to {before} before the load")
        })?;
        rows.push(vec![
            format!("instance {instance}"),
            recorded.acknowledged.len().to_string(),
            (found.len() - came_true).to_string(),
            recorded.in_doubt.len().to_string(),
            came_true.to_string(),
            recorded.never_committed.len().to_string(),
            after.to_string(),
        ]);
    }
    let columns = [
        "read on",
        "acknowledged",
        "found",
        "in doubt",
        "found",
        "COMMIT not sent",
        "sum of balances",
    ];
    demo.stage.table(&columns, &rows);
    demo.stage.notice(&format!(
        "every acknowledged payment was found as it was sent, and none whose COMMIT was not sent. \
         Each of the {} balances is what the payments that were found make of it, and their sum is \
         {before} as before the load: no change was lost, and no transaction was applied in part.",
        outcome.balances_before.len()
    ));
    Ok(())
}
