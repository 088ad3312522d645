//! `kill -9` at random moments under transfers between accounts. After each restart everything is
//! counted again.
//!
//! After every restart the following must hold. Each acknowledged transfer is there. Each transfer
//! that is there is there as a whole: every balance is the initial one plus what the transfers say.
//! At most the transfers in flight at the kill are there without having been acknowledged. An index
//! and its table say the same. At the end `braid verify` finds nothing.
//!
//! If pgbench is installed it runs beside the transfers, and its balances must agree, too. Some
//! restarts are killed while they recover. Some are made by `braid verify`, which recovers and must
//! find nothing. No start replays more redo than `recovery_target` says, except for what is logged
//! between two looks at it.
//!
//! `BRAID_CRASH_ROUNDS` (default 4) sets the number of kills. `BRAID_SEED` replays the choices of a
//! run (the scheduler chooses the moments). The campaign: `BRAID_CRASH_ROUNDS=300 cargo test
//! --release -p braid --test crash -- --nocapture`.

use postgres::Client;
use seam::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::processes::Instance;
use testkit::seeds;

const ACCOUNTS: i32 = 200;
const INITIAL: i64 = 1000;
const CLIENTS: u64 = 4;
/// Redo that a restart may have to replay, in megabytes. It is a few seconds of the work here, so
/// checkpoints have to follow.
const RECOVERY_TARGET_MB: u64 = 16;
/// Redo that may be logged while a checkpoint is under way, in megabytes: seconds of work, on a
/// machine that has other work, too.
const RECOVERY_SLACK_MB: u64 = 48;

/// The knowledge of one client at the end of a round.
#[derive(Default)]
struct Told {
    acknowledged: BTreeSet<i64>,
    /// Transfers whose COMMIT was sent and not answered.
    in_doubt: Option<i64>,
}

#[test]
fn no_acknowledged_transfer_is_lost_and_none_is_half_there() {
    let seed = seeds::seed("BRAID_SEED");
    let rounds = seeds::number("BRAID_CRASH_ROUNDS", 4) as u32;
    println!("BRAID_CRASH_ROUNDS={rounds}");
    let mut rng = Rng(seed);
    let target = format!("recovery_target={RECOVERY_TARGET_MB}MB");
    let mut instance = Instance::start_with("crash", &["--set", &target]);
    create(&mut instance.client());
    let with_pgbench = pgbench(&instance, &["-i", "-q", "-s", "1"]).is_some_and(|mut c| {
        let ended = c.wait().expect("pgbench -i");
        assert!(ended.success(), "pgbench -i: {ended}");
        true
    });

    let mut acknowledged = BTreeSet::new();
    let mut next_id = 1i64;
    let mut starts = Starts::default();
    for round in 0..rounds {
        let run_for = Duration::from_millis(match rng.below(5) {
            0 => 2000 + rng.below(3000),
            _ => 50 + rng.below(700),
        });
        let beside = with_pgbench
            .then(|| pgbench(&instance, &["-n", "-M", "prepared", "-c", "4", "-T", "600"]));
        let told = transfer_until_killed(&mut instance, run_for, rng.next(), &mut next_id);
        if let Some(mut c) = beside.flatten() {
            c.wait().expect("pgbench ends with its instance");
        }
        match rng.below(6) {
            0 => {
                for _ in 0..1 + rng.below(3) {
                    instance.spawn();
                    thread::sleep(Duration::from_millis(rng.below(80))); // the moment of the kill
                    instance.kill();
                    starts.killed += 1;
                }
            }
            1 => instance.verify(),
            _ => {}
        }
        let started = Instant::now();
        instance.restart();
        starts.took(&instance, started.elapsed());
        if with_pgbench {
            check_pgbench(&mut instance.client(), round);
        }
        for t in &told {
            acknowledged.extend(&t.acknowledged);
        }
        let in_doubt: BTreeSet<i64> = told.iter().filter_map(|t| t.in_doubt).collect();
        check(&mut instance.client(), &mut acknowledged, &in_doubt, round);
    }
    println!(
        "{rounds} kills, {} transfers acknowledged, {}",
        acknowledged.len(),
        starts.summary()
    );
    assert!(
        !acknowledged.is_empty(),
        "no transfer was ever acknowledged: the test tested nothing"
    );
    instance.stop();
    instance.verify();
}

/// How long starts took, and what they replayed.
#[derive(Default)]
struct Starts {
    times: Vec<Duration>,
    redo_bytes: Vec<u64>,
    /// The number of starts that were killed on their way.
    killed: u32,
}

impl Starts {
    fn took(&mut self, instance: &Instance, time: Duration) {
        let status = instance.status();
        // There is nothing to replay if `braid verify` has recovered and stopped cleanly.
        let replayed = status["recovered"]["redo_bytes"].as_u64().unwrap_or(0);
        let limit = (RECOVERY_TARGET_MB + RECOVERY_SLACK_MB) << 20;
        assert!(
            replayed <= limit,
            "a start replayed {replayed} bytes of redo, {limit} are the limit"
        );
        self.redo_bytes.push(replayed);
        self.times.push(time);
    }

    fn summary(&self) -> String {
        let mut times = self.times.clone();
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        format!(
            "{} starts killed; starts took {:?} (median), {:?} (95 %), {:?} (slowest) and replayed up to {} KB",
            self.killed,
            at(50),
            at(95),
            at(100),
            self.redo_bytes.iter().max().unwrap_or(&0) / 1024
        )
    }
}

/// Starts pgbench against the instance; `None` if it is not installed.
fn pgbench(instance: &Instance, args: &[&str]) -> Option<Child> {
    let started = Command::new("pgbench")
        .args(args)
        .args(["-h", "127.0.0.1", "-U", "tester", "-p"])
        .args([&instance.port.to_string(), "braid"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(child) => Some(child),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            println!("pgbench is not installed: transfers only");
            None
        }
        Err(e) => panic!("pgbench: {e}"),
    }
}

/// Checks pgbench's tables. Each of its transactions adds one amount to an account, a teller, a
/// branch and the history.
fn check_pgbench(c: &mut Client, round: u32) {
    let mut sum = |what: &str, from: &str| -> i64 {
        let query = format!("select coalesce(sum({what}), 0)::bigint from {from}");
        c.query_one(&query, &[]).expect("a sum").get(0)
    };
    let sums = [
        sum("abalance", "pgbench_accounts"),
        sum("tbalance", "pgbench_tellers"),
        sum("bbalance", "pgbench_branches"),
        sum("delta", "pgbench_history"),
    ];
    assert!(
        sums.iter().all(|s| *s == sums[0]),
        "round {round}: accounts, tellers, branches, history sum to {sums:?}"
    );
}

fn create(c: &mut Client) {
    c.batch_execute(
        "create table accounts (id int primary key, balance bigint not null, note text);
         create index accounts_balance on accounts (balance, id);
         create table transfers (id bigint primary key, src int not null, dst int not null, amount bigint not null);
         create index transfers_src on transfers (src);",
    )
    .expect("schema");
    for id in 0..ACCOUNTS {
        c.execute(
            "insert into accounts values ($1, $2, 'opened')",
            &[&id, &INITIAL],
        )
        .expect("account");
    }
}

fn transfer_until_killed(
    instance: &mut Instance,
    run_for: Duration,
    seed: u64,
    next_id: &mut i64,
) -> Vec<Told> {
    let killed = AtomicBool::new(false);
    let first = *next_id;
    let told = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|k| {
                let mut client = instance.client();
                let killed = &killed;
                scope.spawn(move || {
                    let mut told = Told::default();
                    let mut rng = Rng(seed ^ (k + 1) << 32);
                    for n in 0.. {
                        let id = first + (n * CLIENTS + k) as i64;
                        if let Err(e) = transfer(&mut client, id, &mut rng, &mut told) {
                            let retry =
                                matches!(e.code().map(|c| c.code()), Some("40P01" | "40001"));
                            if !retry {
                                assert!(
                                    killed.load(Ordering::SeqCst) || client.is_closed(),
                                    "client {k}: {e:?}"
                                );
                                return (told, n);
                            }
                        }
                    }
                    unreachable!("invariant: the loop ends when the instance is killed")
                })
            })
            .collect();
        thread::sleep(run_for); // the moment of the kill, not a synchronization
        killed.store(true, Ordering::SeqCst);
        instance.kill();
        clients
            .into_iter()
            .map(|c| c.join().expect("client"))
            .collect::<Vec<_>>()
    });
    *next_id += told.iter().map(|(_, n)| n + 1).max().unwrap_or(0) as i64 * CLIENTS as i64;
    told.into_iter().map(|(t, _)| t).collect()
}

fn transfer(
    c: &mut Client,
    id: i64,
    rng: &mut Rng,
    told: &mut Told,
) -> Result<(), postgres::Error> {
    let (src, dst) = (
        rng.below(ACCOUNTS as u64) as i32,
        rng.below(ACCOUNTS as u64) as i32,
    );
    let amount = rng.below(50) as i64;
    let roll_back = rng.below(10) == 0;
    let note = "n".repeat(rng.below(300) as usize);
    let mut t = c.transaction()?;
    t.execute(
        "update accounts set balance = balance - $2, note = $3 where id = $1",
        &[&src, &amount, &note],
    )?;
    t.execute(
        "insert into transfers values ($1, $2, $3, $4)",
        &[&id, &src, &dst, &amount],
    )?;
    t.execute(
        "update accounts set balance = balance + $2 where id = $1",
        &[&dst, &amount],
    )?;
    if roll_back {
        return t.rollback();
    }
    told.in_doubt = Some(id);
    t.commit()?;
    told.in_doubt = None;
    told.acknowledged.insert(id);
    Ok(())
}

fn check(c: &mut Client, acknowledged: &mut BTreeSet<i64>, in_doubt: &BTreeSet<i64>, round: u32) {
    let mut expected: BTreeMap<i32, i64> = (0..ACCOUNTS).map(|id| (id, INITIAL)).collect();
    let mut there = BTreeSet::new();
    for row in c
        .query("select id, src, dst, amount from transfers", &[])
        .expect("transfers")
    {
        let (id, src, dst, amount): (i64, i32, i32, i64) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        assert!(
            there.insert(id),
            "round {round}: transfer {id} is there twice"
        );
        *expected.get_mut(&src).expect("source") -= amount;
        *expected.get_mut(&dst).expect("destination") += amount;
    }
    let lost: Vec<_> = acknowledged.difference(&there).collect();
    assert!(
        lost.is_empty(),
        "round {round}: acknowledged but lost: {lost:?}"
    );
    let unknown: Vec<_> = there
        .difference(acknowledged)
        .filter(|id| !in_doubt.contains(id))
        .collect();
    assert!(
        unknown.is_empty(),
        "round {round}: neither acknowledged nor in doubt, but there: {unknown:?}"
    );
    acknowledged.extend(&there);

    let balances: BTreeMap<i32, i64> = c
        .query("select id, balance from accounts", &[])
        .expect("accounts")
        .iter()
        .map(|r| (r.get(0), r.get(1)))
        .collect();
    assert_eq!(
        balances, expected,
        "round {round}: balances do not follow from the transfers"
    );
    for (id, balance) in &balances {
        let by_index = c
            .query(
                "select id from accounts where balance = $1 and id = $2",
                &[balance, id],
            )
            .expect("by index");
        assert_eq!(
            by_index.len(),
            1,
            "round {round}: account {id} is not found by its balance"
        );
    }
}
