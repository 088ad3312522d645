//! Several caches over one data file, each with a log of its own, speak through a network in memory
//! that delays. The increments of all are counted, readers never see less than was there when they
//! asked, and disk with everybody's redo gives the same.

mod ahead;
mod cancelled;
mod deaths;
mod defer;
mod room;
mod stamped;
mod unwritten;

use crate::common::*;
use block::{BlockBuf, Dba, FileId, InstanceId, Op, Scn};
use cache::{Cache, Change, Reconfiguration, RecordHeader};
use interconnect::{Parcel, Post};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use storage::{FileKind, SimStorage, Storage};

pub struct Mail {
    clock: Scn,
    epoch: u64,
    kind: u16,
    body: Vec<u8>,
    block: Option<Box<BlockBuf>>,
}

/// One instance's connections: a queue to each other instance, in order.
struct Network {
    me: InstanceId,
    cache: Mutex<Option<Arc<Cache>>>,
    to: Mutex<HashMap<InstanceId, Sender<Mail>>>,
    /// The number of messages sent, and of those of them that had a block.
    sent: [AtomicU64; 2],
}

impl Post for Network {
    fn me(&self) -> InstanceId {
        self.me
    }
    fn send(&self, to: InstanceId, p: Parcel<'_>) {
        assert_ne!(to, self.me);
        // It is `None` when the test is over. `dbw0` may still be at work then.
        let Some(clock) = self
            .cache
            .lock()
            .unwrap()
            .as_ref()
            .map(|c| c.redo().clock().now())
        else {
            return;
        };
        self.sent[0].fetch_add(1, SeqCst);
        self.sent[1].fetch_add(p.block.is_some().into(), SeqCst);
        let mail = Mail {
            clock,
            epoch: p.epoch,
            kind: p.kind,
            body: p.body.to_vec(),
            block: p.block.map(|b| Box::new(b.clone())),
        };
        if let Some(queue) = self.to.lock().unwrap().get(&to) {
            // The receiver is gone when the test ends.
            let _ = queue.send(mail);
        }
    }
}

struct Node {
    instance: Instance,
    network: Arc<Network>,
}

struct Cluster {
    /// The number of shards of each instance.
    shards: u8,
    data: SimStorage,
    nodes: Vec<Node>,
}

fn id(n: usize) -> InstanceId {
    InstanceId(n as u16 + 1)
}

impl Cluster {
    fn new(n: usize, seed: u64) -> Cluster {
        let data = create();
        let mut nodes: Vec<Node> = Vec::new();
        for at in 0..n {
            let own = create();
            let file = data.open("data", FileKind::Data).unwrap();
            let instance = Instance::open_paused(&own, file).unwrap();
            instance.gate.open.store(true, Release);
            let network = Arc::new(Network {
                me: id(at),
                cache: Mutex::new(Some(instance.cache.clone())),
                to: Mutex::default(),
                sent: Default::default(),
            });
            nodes.push(Node { instance, network });
        }
        for from in 0..n {
            for to in (0..n).filter(|to| *to != from) {
                let (out, queue) = channel();
                nodes[from].network.to.lock().unwrap().insert(id(to), out);
                let cache = nodes[to].instance.cache.clone();
                let rng = Rng(seed ^ (from * 17 + to) as u64);
                let deliver = move || deliver(&cache, id(from), &queue, rng);
                wait::thread::spawn_named("deliver", deliver).unwrap();
            }
        }
        // The seed decides whether there are one, two or three shards.
        let shards = (seed % 3) as u8 + 1;
        Cluster {
            shards,
            data,
            nodes,
        }
    }

    fn cache(&self, n: usize) -> &Arc<Cache> {
        &self.nodes[n].instance.cache
    }

    fn enter(&self, epoch: u64, members: &[usize]) {
        let list: Vec<_> = members.iter().map(|&n| (id(n), 1)).collect();
        for &n in members {
            self.cache(n).reconfigure(&Reconfiguration {
                epoch,
                members: list.clone(),
                dead: Vec::new(),
                in_limbo: Vec::new(),
                recoverer: list[0].0,
            });
        }
    }

    fn join(&self, n: usize) {
        let network = self.nodes[n].network.clone();
        self.cache(n).join_cluster(network, self.shards).unwrap();
    }

    fn end(self) -> SimStorage {
        for node in &self.nodes {
            node.instance.cache.leave_cluster();
            node.network.to.lock().unwrap().clear();
            node.network.cache.lock().unwrap().take();
        }
        for node in self.nodes {
            node.instance.stop();
        }
        self.data
    }
}

fn deliver(cache: &Cache, from: InstanceId, queue: &Receiver<Mail>, mut rng: Rng) {
    while let Ok(mail) = queue.recv() {
        if rng.often(5) {
            std::thread::sleep(Duration::from_micros(rng.below(300)));
        }
        cache.redo().clock().lift(mail.clock).unwrap();
        cache
            .message(
                from,
                mail.epoch,
                mail.kind,
                &mail.body,
                mail.block.as_deref(),
            )
            .unwrap();
    }
}

fn change(cache: &Cache, guard: &mut cache::WriteGuard<'_>, op: Op, payload: &[u8]) {
    let change = Change {
        guard,
        op,
        object: OBJECT,
        payload,
    };
    cache.change(RecordHeader::NONE, &mut [change], |_, _| ());
}

fn load(cache: &Arc<Cache>, blocks: std::ops::RangeInclusive<u32>) {
    for b in blocks {
        cache.reserve().unwrap();
        let pin = cache.pin_new(dba(b)).unwrap();
        let mut guard = pin.write();
        change(cache, &mut guard, Op::HeapFormat, &[]);
        change(cache, &mut guard, Op::HeapInsert, &row(0, 0));
    }
}

/// Adds one to a block's counter. `look_first` says whether the block is looked at before it is
/// changed, as a statement does.
fn increment(cache: &Arc<Cache>, block: u32, look_first: bool) {
    cache.reserve().unwrap();
    if look_first {
        let guard = cache.read_to_change(dba(block)).unwrap();
        assert_eq!((guard.dba(), guard.is_copy()), (dba(block), false));
    }
    let mut guard = cache.write(dba(block)).unwrap();
    assert_eq!(guard.dba(), dba(block));
    let value = rows(&guard).unwrap()[0];
    change(cache, &mut guard, Op::HeapOverwrite, &row(0, value + 1));
}

/// The value of the block, current or as of now.
fn value(cache: &Arc<Cache>, block: u32, current: bool) -> u64 {
    let guard = match current {
        true => cache.read(dba(block)).unwrap(),
        false => {
            let snapshot = cache.redo().clock().now();
            cache.read_as_of(dba(block), snapshot).unwrap()
        }
    };
    rows(&guard).unwrap()[0]
}

/// The values that disk and everybody's redo give, put together as in a recovery of all.
fn recovered(data: &SimStorage, logs: &[SimStorage]) -> Vec<u64> {
    let file = data.open("data", FileKind::Data).unwrap();
    let mut changes: Vec<LoggedChange> = logs
        .iter()
        .flat_map(|s| logged_changes(s).unwrap())
        .collect();
    changes.sort_by_key(|c| c.scn);
    let mut values = vec![0];
    for b in 1..=BLOCKS {
        let mut block = BlockBuf::zeroed();
        file.read_at(u64::from(b) * block::BLOCK_SIZE as u64, &mut block.0)
            .unwrap();
        for c in changes.iter().filter(|c| c.dba == dba(b)) {
            c.apply(&mut block).unwrap();
        }
        values.push(rows(&block).map_or(0, |r| r[0]));
    }
    values
}

struct Load {
    instances: usize,
    /// The number of blocks that are used, and the number of those of them that are hot.
    blocks: u64,
    hot: u64,
    steps: u64,
}

fn run(load_of: &Load, seed: u64) {
    let cluster = Cluster::new(load_of.instances, seed);
    // The first instance is alone at the beginning, so what it has cached is not registered
    // anywhere.
    load(cluster.cache(0), 1..=BLOCKS / 2);
    for n in 0..load_of.instances {
        cluster.join(n);
    }
    let all: Vec<usize> = (0..load_of.instances).collect();
    cluster.enter(1, &all);
    load(
        cluster.cache(load_of.instances - 1),
        BLOCKS / 2 + 1..=BLOCKS,
    );
    let counts: Vec<AtomicU64> = (0..=BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !done.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(50));
                all.iter().for_each(|&n| cluster.cache(n).tick());
            }
        });
        let (cluster, counts) = (&cluster, &counts);
        let sessions: Vec<_> = (0..load_of.instances * 3)
            .map(|i| {
                s.spawn(move || {
                    let mut rng = Rng(seed * 1000 + i as u64);
                    let cache = cluster.cache(i % load_of.instances);
                    for _ in 0..load_of.steps {
                        let n = match rng.often(50) {
                            true => load_of.hot,
                            false => load_of.blocks,
                        };
                        let block = 1 + rng.below(n) as u32;
                        if rng.often(50) {
                            increment(cache, block, rng.often(50));
                            // The broadcast of a commit does this before anybody may rest on the
                            // commit.
                            let now = cache.redo().clock().now();
                            for n in 0..load_of.instances {
                                cluster.cache(n).redo().clock().lift(now).unwrap();
                            }
                            counts[block as usize].fetch_add(1, SeqCst);
                        } else if rng.often(20) {
                            let before = counts.iter().map(|c| c.load(SeqCst)).collect();
                            let blocks = (0..8).map(|_| 1 + rng.below(load_of.blocks) as u32);
                            ahead::read_several(cache, blocks.collect(), before);
                        } else {
                            let before = counts[block as usize].load(SeqCst);
                            let seen = value(cache, block, rng.often(50));
                            assert!(seen >= before, "block {block}: {seen} seen, {before} there");
                        }
                    }
                })
            })
            .collect();
        let results: Vec<_> = sessions.into_iter().map(|t| t.join()).collect();
        done.store(true, Relaxed);
        assert!(results.iter().all(Result::is_ok));
    });
    let expected: Vec<u64> = counts.iter().map(|c| c.load(SeqCst)).collect();
    for b in 1..=BLOCKS {
        let cache = cluster.cache(b as usize % load_of.instances);
        assert_eq!(value(cache, b, true), expected[b as usize], "block {b}");
    }
    let logs: Vec<SimStorage> = cluster
        .nodes
        .iter()
        .map(|n| n.instance.storage.clone())
        .collect();
    for n in 0..load_of.instances {
        let redo = cluster.cache(n).redo();
        redo.flush_to(redo.end()).unwrap();
    }
    let data = cluster.end();
    assert_eq!(recovered(&data, &logs), expected);
}

/// One instance lets go of everything and leaves while the others go on. Then an instance with
/// another number joins, and takes over buckets that are in use.
#[test]
fn members_leave_and_join_while_the_others_work() {
    for seed in seeds(3) {
        let cluster = Cluster::new(4, seed);
        load(cluster.cache(0), 1..=BLOCKS);
        (0..4).for_each(|n| cluster.join(n));
        cluster.enter(1, &[0, 1, 2]);
        let counts: Vec<AtomicU64> = (0..=BLOCKS).map(|_| AtomicU64::new(0)).collect();
        let work = |n: usize, seed: u64, steps: u64| {
            let mut rng = Rng(seed);
            for _ in 0..steps {
                let block = 1 + rng.below(40) as u32;
                increment(cluster.cache(n), block, n == 0);
                counts[block as usize].fetch_add(1, SeqCst);
            }
        };
        std::thread::scope(|s| {
            let work = &work;
            let staying: Vec<_> = (0..4)
                .map(|i| s.spawn(move || work(i % 2, seed * 100 + i as u64, 3_000)))
                .collect();
            work(2, seed * 100 + 50, 300);
            let leaver = cluster.cache(2);
            leaver.checkpoint().unwrap();
            while leaver.past_images() + leaver.release_everything() > 0 {
                leaver.tick();
                leaver.checkpoint().unwrap();
            }
            cluster.enter(2, &[0, 1]);
            cluster.enter(3, &[0, 1, 3]);
            work(3, seed * 100 + 60, 300);
            staying.into_iter().for_each(|t| t.join().unwrap());
        });
        let expected: Vec<u64> = counts.iter().map(|c| c.load(SeqCst)).collect();
        for b in 1..=40 {
            for n in [0, 1, 3] {
                assert_eq!(value(cluster.cache(n), b, true), expected[b as usize]);
            }
        }
        for n in 0..4 {
            let redo = cluster.cache(n).redo();
            redo.flush_to(redo.end()).unwrap();
        }
        let logs: Vec<SimStorage> = cluster
            .nodes
            .iter()
            .map(|n| n.instance.storage.clone())
            .collect();
        assert_eq!(recovered(&cluster.end(), &logs), expected);
    }
}

/// How often any thread of this process has slept at a frame's latch.
fn sleeps_at_buffers() -> u64 {
    let classes = wait::views::latches();
    let buffers = classes.iter().filter(|row| row.name == "buffer");
    buffers.map(|row| row.sleeps).sum()
}

/// A lone instance needs frames for its own undo while another instance joins. Its blocks become
/// known to their shards before there is a first plan. In between nobody could be told that one of
/// the blocks is gone. A latch that a session holds stops the thread that makes the blocks known,
/// at one end of the frames or the other.
#[test]
fn frames_are_needed_while_the_first_epoch_begins() {
    for held in [1, 100] {
        let cluster = Cluster::new(2, 1);
        let cache = cluster.cache(0);
        load(cache, 1..=100);
        cache.checkpoint().unwrap();
        (0..2).for_each(|n| cluster.join(n));
        cache.reserve().unwrap();
        let guard = cache.write(dba(held)).unwrap();
        let before = sleeps_at_buffers();
        let (taken, done) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|s| {
            let entering = s.spawn(|| cluster.enter(1, &[0, 1]));
            // The thread has come to the latch. (Or a thread of another test has come to a latch of
            // its own. Then frames may be taken too early to show anything.)
            while sleeps_at_buffers() == before && !entering.is_finished() {
                std::thread::yield_now();
            }
            let taking = s.spawn(|| {
                for b in 0.. {
                    let own = Dba::new(FileId::undo(id(0)), b);
                    drop(cache.pin_new(own).unwrap());
                    taken.fetch_add(1, SeqCst);
                    if done.load(SeqCst) {
                        break;
                    }
                }
            });
            // This waits until frames are taken, or cannot be had.
            let until = std::time::Instant::now() + Duration::from_millis(200);
            while taken.load(SeqCst) < 500 && std::time::Instant::now() < until {
                std::thread::yield_now();
            }
            drop(guard);
            entering.join().unwrap();
            done.store(true, SeqCst);
            taking.join().unwrap();
        });
        (1..=100).for_each(|b| assert_eq!(value(cluster.cache(1), b, true), 0, "block {b}"));
        cluster.end();
    }
}

/// A session that asked for a block in order to change it keeps the block until it has changed it,
/// or waits for anything. Nobody else gets the block in between. Then the next one gets it at once.
#[test]
fn what_was_looked_at_to_be_changed_stays_until_it_is_changed_or_waited() {
    let cluster = Cluster::new(2, 1);
    load(cluster.cache(0), 1..=BLOCKS);
    (0..2).for_each(|n| cluster.join(n));
    cluster.enter(1, &[0, 1]);
    let (here, there) = (cluster.cache(0), cluster.cache(1));
    let give_back: [fn(&Arc<Cache>); 4] = [
        |cache| increment(cache, 1, false),
        |cache| drop(cache.read(dba(2)).unwrap()),
        |_| wait::during(wait::Event::PmonTimer, [0; 3], || ()),
        |_| cache::give_back_kept(),
    ];
    for give_back in give_back {
        increment(there, 1, true);
        drop(here.read_to_change(dba(1)).unwrap());
        std::thread::scope(|s| {
            let other = s.spawn(|| increment(there, 1, true));
            let until = std::time::Instant::now() + Duration::from_millis(30);
            while std::time::Instant::now() < until {
                assert!(here.try_read(dba(1)).is_some() && !other.is_finished());
                drop(here.read_to_change(dba(1)).unwrap());
                std::thread::yield_now();
            }
            give_back(here);
            other.join().unwrap();
        });
    }
    // The end of a thread gives the block back, too.
    increment(there, 1, false);
    std::thread::scope(|s| {
        s.spawn(|| drop(here.read_to_change(dba(1)).unwrap()));
    });
    increment(there, 1, false);
    cluster.end();
}

/// A block that came dirty is dirty from the end of the log on. Perhaps nothing is ever logged
/// behind that, and an instance that leaves waits for the block to be written.
#[test]
fn a_block_that_came_dirty_and_is_not_changed_here_is_written_by_a_checkpoint() {
    let cluster = Cluster::new(2, 1);
    load(cluster.cache(0), 1..=BLOCKS);
    (0..2).for_each(|n| cluster.join(n));
    cluster.enter(1, &[0, 1]);
    let (here, there) = (cluster.cache(0), cluster.cache(1));
    here.checkpoint().unwrap();
    increment(there, 1, true);
    drop(here.write(dba(1)).unwrap());
    assert_eq!(here.dirty_frames(), 1, "the duty to write came with it");
    here.checkpoint().unwrap();
    assert_eq!(here.dirty_frames(), 0);
    cluster.end();
}

/// A read fails, and its session goes away with the error, so nobody here asks again. Another
/// instance gets the block. If it cannot be read there either, that instance gets the same error.
#[test]
fn a_block_that_cannot_be_read_is_let_go() {
    let cluster = Cluster::new(2, 1);
    load(cluster.cache(0), 1..=1);
    (0..2).for_each(|n| cluster.join(n));
    cluster.enter(1, &[0, 1]);
    let (here, there) = (cluster.cache(0), cluster.cache(1));
    here.checkpoint().unwrap();
    while here.release_everything() > 0 {
        here.tick();
    }
    for failing in [1, 2] {
        cluster.data.set_faults(storage::Faults {
            fail_from_read: Some(cluster.data.reads() + 1),
            fail_reads: failing,
            ..Default::default()
        });
        assert!(here.write(dba(1)).is_err(), "the device has failed");
        let asking = there.clone();
        let (told, answer) = channel();
        std::thread::spawn(move || told.send(asking.write(dba(1)).map(drop).is_ok()));
        let read = answer.recv_timeout(Duration::from_secs(20));
        assert_eq!(read, Ok(failing == 1), "{failing} reads fail");
        while there.release_everything() > 0 {
            there.tick();
        }
    }
    increment(here, 1, false);
    assert_eq!(value(there, 1, true), 1);
    cluster.end();
}

/// The first `n` seeds. `BRAID_CACHE_SEED` replays one.
fn seeds(n: u64) -> impl Iterator<Item = u64> {
    testkit::seeds::seeds("BRAID_CACHE_SEED", 1..=n)
}

#[test]
fn two_instances_count_everything() {
    for seed in seeds(3) {
        run(
            &Load {
                instances: 2,
                blocks: u64::from(BLOCKS),
                hot: 5,
                steps: 1_500,
            },
            seed,
        );
    }
}

#[test]
fn three_instances_over_few_blocks_count_everything() {
    for seed in seeds(3) {
        run(
            &Load {
                instances: 3,
                blocks: 20,
                hot: 2,
                steps: 1_000,
            },
            seed,
        );
    }
}
