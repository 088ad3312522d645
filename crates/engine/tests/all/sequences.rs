//! Several instances of one process draw from sequences over one simulated storage. Tested are the
//! paper's numbers, order, and what is left of the values when instances die, leave and come.
//!
//! `BRAID_KILLS` is the number of kills, `BRAID_SEED` replays the choices.

use crate::common::lives::*;
use crate::common::*;
use block::ObjectId;
use block::sequence::SequenceParams;
use engine::*;
use seam::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use testkit::seeds::{number, seeds};
use testkit::waiting::until;

impl Node {
    fn sequence(&self, object: u32, params: &SequenceParams) -> SequenceDef {
        let object = ObjectId(object);
        let mut s = self.session();
        s.begin(Isolation::ReadCommitted).unwrap();
        let header = s.create_sequence(object, params).unwrap();
        s.commit().unwrap();
        SequenceDef { object, header }
    }

    fn session(&self) -> Session {
        self.engine.session().unwrap()
    }

    /// Draws `n` values, each in a transaction of its own.
    fn draw(&self, def: &SequenceDef, n: usize) -> Vec<i64> {
        let mut s = self.session();
        let mut one = || {
            s.begin(Isolation::ReadCommitted).unwrap();
            let value = s.sequence_next(def).unwrap();
            s.commit().unwrap();
            value
        };
        (0..n).map(|_| one()).collect()
    }
}

fn from_ten(cache: u32) -> SequenceParams {
    SequenceParams {
        start: 10,
        min: 10,
        cache,
        ..SequenceParams::default()
    }
}

/// The paper's walk-through, whichever instance is the sequence's home: several sequences have
/// different homes.
#[test]
fn two_instances_have_the_papers_numbers() {
    let (s, _) = create();
    let [one, two] = [1, 2].map(|k| start(&s, k, k.into()));
    for object in 900..906 {
        let cached = one.sequence(object, &from_ten(20));
        assert_eq!(one.draw(&cached, 1), [10]);
        assert_eq!(two.draw(&cached, 2), [30, 31]);
        assert_eq!(one.draw(&cached, 20)[18..], [29, 50]);
        assert_eq!(two.draw(&cached, 1), [32]);
        let none = two.sequence(object + 100, &from_ten(1));
        let by_turns = [one.draw(&none, 1), two.draw(&none, 1), one.draw(&none, 1)];
        assert_eq!(by_turns.concat(), [10, 11, 12]);
        // A set value holds everywhere at once, whichever instance sets it.
        let mut s = one.session();
        s.begin(Isolation::ReadCommitted).unwrap();
        s.sequence_set(&none, 99, true).unwrap();
        s.commit().unwrap();
        assert_eq!(
            [two.draw(&none, 1), one.draw(&none, 1)].concat(),
            [100, 101]
        );
    }
    [two, one]
        .iter()
        .for_each(|n| n.engine.stop(&Quiet).unwrap());
}

/// After `setval`, values go on from the value that was set, also if others had been asked for
/// ahead. (Here the messages rarely come in the order that brings those others after `setval`. The
/// simulation of `fusion` has that order.)
#[test]
fn values_asked_for_ahead_do_not_outlive_setval() {
    let _counted = wait::session::register(wait::session::Kind::User, "draws");
    let (s, _) = create();
    let nodes = [1, 2].map(|k| start(&s, k, k.into()));
    let def = nodes[0].sequence(900, &from_ten(20));
    let mut to = 1_000_000;
    for round in 0..150 {
        for node in &nodes {
            // This ends with few values left. As often as not the next ones are just being asked
            // for then.
            let values = node.draw(&def, 50 + round % 15);
            assert!(values.is_sorted(), "{values:?}");
            let mut s = node.session();
            s.begin(Isolation::ReadCommitted).unwrap();
            s.sequence_set(&def, to, false).unwrap();
            s.commit().unwrap();
            assert_eq!(node.draw(&def, 1), [to]);
            to += 10_000;
        }
    }
    // One of the two instances is not the home. Each of its rounds uses up more than two ranges.
    let asked = wait::views::system_stat(wait::Stat::SequenceRequests);
    assert!(asked > 300, "{asked} requests");
    nodes.iter().for_each(|n| n.engine.stop(&Quiet).unwrap());
}

/// A value that is drawn after another was returned, on whatever instance, is greater, and no value
/// is left out. That holds also while the home moves to the instance that draws most.
#[test]
fn values_come_in_order_over_instances() {
    let (s, _) = create();
    let nodes = [1, 2, 3].map(|k| start(&s, k, k.into()));
    let def = nodes[0].sequence(900, &from_ten(1));
    let (highest, all) = (AtomicI64::new(0), Mutex::new(Vec::new()));
    for busiest in 0..3 {
        std::thread::scope(|scope| {
            for (n, node) in nodes.iter().enumerate() {
                let (highest, all, def) = (&highest, &all, &def);
                let draws = if n == busiest { 400 } else { 30 };
                for _ in 0..3 {
                    scope.spawn(move || {
                        let mut s = node.session();
                        for _ in 0..draws {
                            let before = highest.load(SeqCst);
                            s.begin(Isolation::ReadCommitted).unwrap();
                            let value = s.sequence_next(def).unwrap();
                            highest.fetch_max(value, SeqCst);
                            s.rollback().unwrap();
                            assert!(value > before, "{value} after {before}");
                            all.lock().push(value);
                        }
                    });
                }
            }
        });
    }
    let mut all = all.into_inner();
    all.sort_unstable();
    assert_eq!(all, (10..10 + all.len() as i64).collect::<Vec<_>>());
    nodes.iter().for_each(|n| n.engine.stop(&Quiet).unwrap());
}

/// What another instance has drawn is durable there before the drawer's commit returns. The limit
/// of a sequence is an error for all.
#[test]
fn a_limit_is_met_on_every_instance() {
    let (s, _) = create();
    let [one, two] = [1, 2].map(|k| start(&s, k, k.into()));
    for object in 900..904 {
        let params = SequenceParams {
            max: 14,
            ..from_ten(1)
        };
        let def = one.sequence(object, &params);
        let values = [one.draw(&def, 2), two.draw(&def, 3)].concat();
        assert_eq!(values, [10, 11, 12, 13, 14]);
        for node in [&one, &two] {
            let mut s = node.session();
            s.begin(Isolation::ReadCommitted).unwrap();
            let refused = s.sequence_next(&def);
            assert_eq!(refused.unwrap_err().sqlstate(), "2200H");
            s.sequence_set(&def, 13, true).unwrap();
            s.rollback().unwrap();
            assert_eq!(node.draw(&def, 1), [14]);
        }
    }
    [two, one]
        .iter()
        .for_each(|n| n.engine.stop(&Quiet).unwrap());
}

/// The values that clients were told, and what steers the clients.
#[derive(Default)]
struct Told {
    committed: Mutex<BTreeSet<i64>>,
    commits: AtomicU64,
    /// Transactions that may begin. Without a limit a check would never come to the end of what is
    /// inserted meanwhile.
    allowed: AtomicI64,
    stop: AtomicBool,
}

/// A client inserts rows whose keys are drawn, so a value that came twice violates the key. It goes
/// on until its node is killed or all is over, and sees no error.
fn client(
    node: &Node,
    t: &Arc<TableDef>,
    def: SequenceDef,
    told: &Arc<Told>,
    seed: u64,
) -> std::thread::JoinHandle<()> {
    let (engine, killed) = (node.engine.clone(), node.killed.clone());
    let (t, told) = (t.clone(), told.clone());
    std::thread::spawn(move || {
        let mut rng = Rng(seed);
        let mut s = engine.session().unwrap();
        while !told.stop.load(SeqCst) {
            if told.allowed.fetch_sub(1, SeqCst) <= 0 {
                told.allowed.fetch_add(1, SeqCst);
                std::thread::park_timeout(Duration::from_millis(1));
                continue;
            }
            let mut keys = Vec::new();
            let rolls_back = rng.one_in(8);
            let mut run = || {
                s.begin(Isolation::ReadCommitted)?;
                for _ in 0..1 + rng.below(4) {
                    let key = s.sequence_next(&def)?;
                    s.insert(&t, &row(key, 1, "drawn"))?;
                    s.end_statement();
                    keys.push(key);
                }
                match rolls_back {
                    true => s.rollback(),
                    false => s.commit(),
                }
            };
            match run() {
                Ok(()) if rolls_back => {}
                Ok(()) => {
                    told.committed.lock().extend(keys);
                    told.commits.fetch_add(1, SeqCst);
                }
                Err(_) if killed.load(SeqCst) => return std::mem::forget((s, engine)),
                Err(e) => panic!(
                    "seed {seed}, instance {}: {}: {e}",
                    engine.instance(),
                    e.sqlstate()
                ),
            }
        }
    })
}

fn work(told: &Told, commits: u64) {
    // More transactions are allowed than are waited for, so some are always under way.
    told.allowed.fetch_add(2 * commits as i64 + 20, SeqCst);
    let enough = told.commits.load(SeqCst) + commits;
    until("clients go on", || told.commits.load(SeqCst) >= enough);
}

fn check(engine: &Arc<Engine>, t: &Arc<TableDef>, told: &Told, what: &str) {
    let committed = told.committed.lock().clone();
    let rows = contents(engine, t).unwrap();
    let lost: Vec<_> = committed.iter().filter(|k| !rows.contains_key(k)).collect();
    assert!(lost.is_empty(), "{what}: committed and lost: {lost:?}");
}

/// Instances die, leave and come while all insert rows under drawn keys.
fn dying(instances: u16, cache: u32, seed: u64) {
    eprintln!("BRAID_SEED={seed}, cache {cache}");
    let mut rng = Rng(seed);
    let (s, t) = create();
    let mut nodes: Vec<Node> = (1..=instances).map(|k| start(&s, k, k.into())).collect();
    let def = nodes[0].sequence(900, &from_ten(cache));
    let told: Arc<Told> = Arc::default();
    let mut clients = Vec::new();
    let mut born = 0;
    let mut employ = |node: &Node, clients: &mut Vec<_>| {
        for _ in 0..2 {
            born += 1;
            let thread = client(node, &t, def, &told, seed * 100 + born);
            clients.push((node.killed.clone(), thread));
        }
    };
    nodes.iter().for_each(|n| employ(n, &mut clients));
    for life in 1..=number("BRAID_KILLS", 4) {
        work(&told, 20 + rng.below(60));
        let at = rng.below(nodes.len() as u64) as usize;
        let victim = nodes.remove(at);
        let k = victim.engine.instance();
        let what = format!("BRAID_SEED={seed}, kill {life}, of instance {k}");
        eprintln!("{what}");
        victim.kill(&s);
        if rng.one_in(2) {
            until("it is known to be dead", || {
                nodes
                    .iter()
                    .all(|n| n.engine.cluster().unwrap().members().up.len() == nodes.len())
            });
            work(&told, 10);
        }
        nodes.push(start(&s, k, k as u32 + 100 * life as u32));
        employ(nodes.last().unwrap(), &mut clients);
        work(&told, 40);
        let any = rng.below(nodes.len() as u64) as usize;
        check(&nodes[any].engine, &t, &told, &what);
    }
    told.stop.store(true, SeqCst);
    for (killed, client) in clients {
        if !killed.load(SeqCst) {
            client.join().unwrap();
        }
    }
    let what = format!("BRAID_SEED={seed}, at the end");
    nodes
        .iter()
        .for_each(|n| check(&n.engine, &t, &told, &what));
    // An instance that leaves takes no values with it.
    let last = nodes.pop().unwrap();
    nodes.iter().for_each(|n| n.engine.stop(&Quiet).unwrap());
    let highest = told.committed.lock().last().copied().unwrap_or(0);
    let next = last.draw(&def, 1 + 2 * cache as usize);
    assert!(next.last().unwrap() > &highest || cache > 1, "{what}");
    let committed = told.committed.lock().clone();
    assert!(
        next.iter().all(|v| !committed.contains(v)),
        "{what}: drawn again"
    );
    last.engine.stop(&Quiet).unwrap();
    let engine = open(&s).unwrap();
    check(&engine, &t, &told, &what);
    verify_all(&engine, &t, &what).unwrap();
    engine.stop(&Quiet).unwrap();
}

#[test]
fn no_value_is_used_twice_when_one_of_two_dies() {
    for seed in seeds("BRAID_SEED", [1, 2]) {
        dying(2, 1, seed);
    }
}

#[test]
fn no_value_is_used_twice_when_one_of_three_dies() {
    for seed in seeds("BRAID_SEED", [3]) {
        dying(3, 1, seed);
        dying(3, 20, seed);
    }
}
