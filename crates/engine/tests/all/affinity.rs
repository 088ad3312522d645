//! Masters of blocks follow their users. A table that one instance works on alone is mastered
//! there. That saves the instance the messages of its misses, while others go on.

use crate::common::*;
use engine::cluster::ClusterHost;
use engine::*;
use interconnect::{Bound, Secret};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use storage::{SimStorage, Storage};
use wait::Stat;

/// Longer than anything here takes on a loaded machine. Only a failing test waits for so long.
const PATIENCE: Duration = Duration::from_secs(120);
/// Rows of the large table: about 700 blocks, of which a cache has room for less than a third.
const ROWS: i64 = 1400;

const OFF: Affinity = Affinity {
    window: Duration::ZERO,
    minimum: 1,
    percent: 51,
};

fn start(s: &SimStorage, k: u16) -> Arc<Engine> {
    let storage: Arc<dyn Storage> = Arc::new(s.as_client(k.into()));
    let bound = Bound::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let host = Host {
        members: vec![storage.clone()],
        storage,
        fatal: Arc::new(move |why| panic!("instance {k} ends: {why}")),
        cluster: Some(ClusterHost {
            heartbeat: Duration::from_millis(20),
            lms: 2,
            ..ClusterHost::new(bound, Secret::new(b"the secret of this test").unwrap())
        }),
    };
    let config = Config {
        instance: k,
        join_others: true,
        buffer_bytes: 200 * 8192,
        affinity: OFF,
        ..config()
    };
    Engine::open_on(config, host, &Quiet).unwrap()
}

fn fill(engine: &Arc<Engine>, t: &TableDef, pad: &str) {
    let mut s = engine.session().unwrap();
    for batch in 0..ROWS / 100 {
        s.begin(Isolation::ReadCommitted).unwrap();
        for id in batch * 100..(batch + 1) * 100 {
            s.insert(t, &row(id, 0, pad)).unwrap();
        }
        s.commit().unwrap();
    }
}

/// Reads every row by its key.
fn read_all(engine: &Arc<Engine>, t: &TableDef) {
    let mut s = engine.session().unwrap();
    for id in 0..ROWS {
        s.begin(Isolation::ReadCommitted).unwrap();
        let snap = s.snapshot().unwrap();
        assert!(find(&mut s, t, &snap, id).unwrap().is_some());
        s.end_statement();
        s.commit().unwrap();
    }
}

fn count(stat: Stat) -> u64 {
    let all = wait::views::system_stats();
    all.iter().find(|(s, _)| *s == stat).map_or(0, |(_, n)| *n)
}

/// The number of messages about blocks and of blocks asked for in one pass over the table.
fn pass(engine: &Arc<Engine>, t: &TableDef) -> (u64, u64) {
    let now = || {
        let asked = count(Stat::GcOwnRequests) + count(Stat::GcRemoteRequests);
        (count(Stat::GcMessagesSent), asked)
    };
    let before = now();
    read_all(engine, t);
    let after = now();
    (after.0 - before.0, after.1 - before.1)
}

/// Starts a user who works on a table of his own all the time.
fn keep_busy(
    engine: &Arc<Engine>,
    t: &Arc<TableDef>,
    stop: &Arc<AtomicBool>,
    done: &Arc<AtomicU64>,
) -> std::thread::JoinHandle<()> {
    let (engine, t, stop, done) = (engine.clone(), t.clone(), stop.clone(), done.clone());
    std::thread::spawn(move || {
        let mut s = engine.session().unwrap();
        let mut id = 0;
        while !stop.load(Ordering::SeqCst) {
            s.begin(Isolation::ReadCommitted).unwrap();
            s.insert(&t, &row(id, 1, "the other's")).unwrap();
            s.commit().unwrap();
            id += 1;
            done.fetch_add(1, Ordering::SeqCst);
        }
    })
}

/// This test runs alone in its process, because the statistics are those of all instances there.
#[test]
fn a_table_that_one_instance_uses_is_mastered_there_and_costs_no_messages() {
    let test = "a_table_that_one_instance_uses_is_mastered_there_and_costs_no_messages";
    testkit::child::alone(module_path!(), test, mastered_where_it_is_used);
}

fn mastered_where_it_is_used() {
    // Statistics are a session's.
    let _session = wait::session::register(wait::session::Kind::User, "affinity");
    let (s, of_one) = create();
    let one = start(&s, 1);
    let two = start(&s, 2);
    let of_two = create_table(&two);
    fill(&two, &of_two, &"p".repeat(3800));
    read_all(&two, &of_two);
    let (messages_before, asked_before) = pass(&two, &of_two);
    assert!(asked_before > 300, "{asked_before} blocks were asked for");

    let (stop, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let busy = keep_busy(&one, &of_one, &stop, &done);
    let began = Instant::now();
    let follow = Affinity {
        window: Duration::from_millis(500),
        minimum: 20,
        percent: 70,
    };
    one.transactions().cache().set_affinity(follow);
    two.transactions().cache().set_affinity(follow);
    // The blocks of the table's rows that the instance masters.
    let mastered = || {
        let all = two.transactions().cache().granules_taken();
        let of_table = all.iter().filter(|g| g.master.0 == 2);
        of_table.map(|g| g.blocks).sum::<u32>()
    };
    while mastered() < 500 {
        read_all(&two, &of_two);
        assert!(began.elapsed() < PATIENCE, "{} blocks moved", mastered());
    }
    let others = done.load(Ordering::SeqCst);
    read_all(&two, &of_two);
    while done.load(Ordering::SeqCst) == others {
        assert!(began.elapsed() < PATIENCE, "the other stands still");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    stop.store(true, Ordering::SeqCst);
    busy.join().unwrap();

    let (messages, asked) = pass(&two, &of_two);
    eprintln!(
        "{messages_before} messages for {asked_before} blocks before, {messages} for {asked} after"
    );
    assert!(asked > 300, "{asked} blocks were asked for");
    assert!(
        messages * asked_before * 4 < messages_before * asked,
        "{messages_before} messages for {asked_before} blocks before, {messages} for {asked} after"
    );
    // Both instances know the same masters. The instance that decided says why.
    let by = |e: &Arc<Engine>| {
        let all = e.transactions().cache().granules_taken();
        let rows = all.into_iter().map(|g| (g.first, g.master));
        rows.collect::<Vec<_>>()
    };
    while by(&one) != by(&two) {
        assert!(began.elapsed() < PATIENCE, "{:?} {:?}", by(&one), by(&two));
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let rows = two.transactions().cache().granules_taken();
    let told = rows.iter().filter(|g| g.master.0 == 2);
    for g in told {
        assert!(
            g.reason.is_some() && g.moved.is_some() && g.moves > 0,
            "{g:?}"
        );
    }
    let history = two.transactions().cache().policy_history();
    let of_table = |r: &&PolicyRow| r.object == Some(of_two.object);
    assert!(history.iter().filter(of_table).count() > 1, "{history:?}");

    // The other instance begins to use the table, so the mastership goes there.
    read_all(&one, &of_two);
    let now_mine = || {
        let all = one.transactions().cache().granules_taken();
        all.iter()
            .any(|g| g.master.0 == 1 && g.previous == Some(block::InstanceId(2)))
    };
    while !now_mine() {
        read_all(&one, &of_two);
        assert!(began.elapsed() < PATIENCE, "it stays");
    }
    // When the master leaves, the others go on with what is on disk.
    two.stop(&Quiet).unwrap();
    read_all(&one, &of_two);
    one.stop(&Quiet).unwrap();
}
