//! Instances as processes change the same rows: transfers, and lists that are appended to, with
//! `kill -9` of one instance in the middle. No statement of the others fails. Sums are conserved at
//! every snapshot. What was acknowledged on one instance is seen at once on the others, and
//! survives. Nothing is there twice.
//!
//! `BRAID_SHARED_ROUNDS` is the number of kills (1 by default), `BRAID_SHARED_INSTANCES` that of
//! instances (2 by default). `BRAID_SHARED_SEED` replays the choices.

use seam::Rng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testkit::processes::{Database, signal, succeeds};
use testkit::seeds;

const ACCOUNTS: i64 = 12;
const START: i64 = 1000;
const LISTS: i64 = 4;
const SESSIONS: usize = 6;
/// A guard whose instances die too often gives up. It is replaced before that.
const DEATHS_PER_GUARD: u64 = 4;
const WORK: Duration = Duration::from_secs(3);

/// Options of `braid up`, also when a guard is replaced.
const SMALL: [&str; 4] = ["--buffer-cache", "16MB", "--set", "redo_file_size=32MB"];

/// The history of what has been acknowledged.
#[derive(Default)]
struct History {
    appended: Mutex<Vec<(i64, String)>>,
    transfers: AtomicU64,
    /// The instance that was killed: only its sessions may fail. 0 if there is none.
    killed: AtomicU64,
    /// The number of statements that others have answered since, and the longest time that one of
    /// them took, in microseconds.
    survived: AtomicU64,
    longest: AtomicU64,
    stop: AtomicBool,
}

impl History {
    fn of(&self, list: i64) -> Vec<String> {
        let appended = self.appended.lock().expect("no thread has panicked");
        let mine = appended.iter().filter(|(k, _)| *k == list);
        mine.map(|(_, token)| token.clone()).collect()
    }
}

fn tokens(client: &mut postgres::Client, list: i64) -> Result<Vec<String>, postgres::Error> {
    let row = client.query_one("select v from list where k = $1", &[&list])?;
    let text: String = row.get(0);
    Ok(text.split_terminator(';').map(str::to_string).collect())
}

fn assert_all_there(known: &[String], seen: &[String], what: &str) {
    let set: std::collections::HashSet<&String> = seen.iter().collect();
    assert_eq!(set.len(), seen.len(), "{what}: something is there twice");
    let lost: Vec<_> = known.iter().filter(|t| !set.contains(t)).collect();
    assert!(lost.is_empty(), "{what}: acknowledged, not seen: {lost:?}");
}

fn step(
    client: &mut postgres::Client,
    rng: &mut Rng,
    history: &History,
    token: &str,
) -> Result<(), postgres::Error> {
    let list = rng.below(LISTS as u64) as i64;
    match rng.below(10) {
        0..4 => {
            // The rows are changed in the order of their numbers, so no two transfers wait for each
            // other.
            let a = rng.below(ACCOUNTS as u64 - 1) as i64;
            let b = a + 1 + rng.below((ACCOUNTS - a - 1) as u64) as i64;
            let mut t = client.transaction()?;
            t.execute(
                "update account set balance = balance - 1 where id = $1",
                &[&a],
            )?;
            t.execute(
                "update account set balance = balance + 1 where id = $1",
                &[&b],
            )?;
            t.commit()?;
            history.transfers.fetch_add(1, Relaxed);
        }
        4..7 => {
            let changed = client.execute(
                "update list set v = v || $2::text where k = $1",
                &[&list, &format!("{token};")],
            )?;
            assert_eq!(changed, 1);
            let mut appended = history.appended.lock().expect("no thread has panicked");
            appended.push((list, token.to_string()));
        }
        7..9 => {
            let known = history.of(list);
            let seen = tokens(client, list)?;
            assert_all_there(&known, &seen, "while working");
        }
        _ => {
            let row =
                client.query_one("select sum(balance)::bigint, count(*) from account", &[])?;
            let (sum, count): (i64, i64) = (row.get(0), row.get(1));
            assert_eq!((sum, count), (ACCOUNTS * START, ACCOUNTS));
        }
    }
    Ok(())
}

fn session(database: &Database, history: &History, number: usize, seed: u64) {
    let mut rng = Rng(seed ^ (number as u64) << 32);
    let instance = number as u16 % database.instances() + 1;
    let may_fail = || history.killed.load(SeqCst) == u64::from(instance);
    let mut client = match database.try_client(instance) {
        Ok(client) => client,
        Err(e) => return assert!(may_fail(), "session {number}: {e}"),
    };
    let mut done = 0;
    while !history.stop.load(SeqCst) {
        done += 1;
        let token = format!("{seed}.{number}.{done}");
        let began = Instant::now();
        if let Err(e) = step(&mut client, &mut rng, history, &token) {
            assert!(may_fail(), "session {number} of instance {instance}: {e}");
            return;
        }
        if history.killed.load(SeqCst) != 0 && !may_fail() {
            history.survived.fetch_add(1, SeqCst);
            let took = began.elapsed().as_micros() as u64;
            history.longest.fetch_max(took, SeqCst);
        }
    }
}

fn create(database: &Database) {
    let mut client = database.client_when_open(1);
    client
        .batch_execute(
            "create table account (id bigint primary key, balance bigint not null);
             create table list (k bigint primary key, v text not null);",
        )
        .expect("tables");
    // This comes from the other instance, which has read the dictionary anew.
    let mut client = database.client_when_open(2);
    for id in 0..ACCOUNTS {
        client
            .execute("insert into account values ($1, $2)", &[&id, &START])
            .expect("an account");
    }
    for k in 0..LISTS {
        client
            .execute("insert into list values ($1, '')", &[&k])
            .expect("a list");
    }
}

fn check(database: &Database, history: &History, what: &str) {
    for instance in 1..=database.instances() {
        let mut client = database.client_when_open(instance);
        for k in 0..LISTS {
            let seen = tokens(&mut client, k).expect("a list");
            assert_all_there(&history.of(k), &seen, what);
        }
        let row = client
            .query_one("select sum(balance)::bigint from account", &[])
            .expect("a sum");
        assert_eq!(row.get::<_, i64>(0), ACCOUNTS * START, "{what}");
    }
}

#[test]
fn instances_change_the_same_rows_through_crashes() {
    let seed = seeds::number("BRAID_SHARED_SEED", std::process::id().into());
    let rounds = seeds::number("BRAID_SHARED_ROUNDS", 1);
    let instances = seeds::number("BRAID_SHARED_INSTANCES", 2) as u16;
    println!(
        "BRAID_SHARED_SEED={seed} BRAID_SHARED_ROUNDS={rounds} BRAID_SHARED_INSTANCES={instances}"
    );
    let database = Arc::new(Database::up("shared", instances, &SMALL));
    create(&database);
    let history = Arc::new(History::default());
    let mut rng = Rng(seed);
    for round in 0..=rounds {
        let killing = round < rounds;
        if round > 0 && round % DEATHS_PER_GUARD == 0 {
            succeeds(&["down", "--data", &database.data()]);
            assert!(database.start(&SMALL).status.success(), "round {round}");
        }
        history.killed.store(0, SeqCst);
        history.stop.store(false, SeqCst);
        (1..=instances).for_each(|k| drop(database.client_when_open(k)));
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|i| {
                let (database, history) = (database.clone(), history.clone());
                let seed = seed + round * 1000;
                std::thread::spawn(move || session(&database, &history, i, seed))
            })
            .collect();
        std::thread::park_timeout(WORK);
        if killing {
            let victim = rng.below(u64::from(instances)) as u16 + 1;
            let pid = database.pid(victim);
            history.killed.store(victim.into(), SeqCst);
            signal("-9", pid);
            std::thread::park_timeout(WORK);
        }
        history.stop.store(true, SeqCst);
        let ended: Vec<_> = sessions.into_iter().map(|s| s.join()).collect();
        assert!(ended.iter().all(Result::is_ok), "round {round}");
        check(&database, &history, &format!("after round {round}"));
    }
    let appended = history
        .appended
        .lock()
        .expect("no thread has panicked")
        .len();
    let transfers = history.transfers.load(SeqCst);
    let survived = history.survived.load(SeqCst);
    let longest = history.longest.load(SeqCst) / 1000;
    println!(
        "{appended} appended, {transfers} transfers; after kills {survived} steps of survivors, the longest {longest} ms"
    );
    assert!(appended > 0 && transfers > 0 && (rounds == 0 || survived > 0));
    database.verify();
}
