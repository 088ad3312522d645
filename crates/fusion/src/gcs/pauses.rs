//! Measures how long a change of epoch keeps a shard busy. The shard's driver runs one step at a
//! time, so local sessions and other instances wait for each step.

use super::*;
use crate::ids::{Epoch, Incarnation, Member, Term};
use block::ids::{FileId, InstanceId, LogPos, Scn};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

const BUCKETS: u16 = 256;

/// Processor time of this thread. Other work on the machine does not count.
fn processor_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// What one instance's shard was busy with: the number of steps, their time in all, the longest.
#[derive(Default, Clone, Copy)]
struct Busy {
    steps: usize,
    total: Duration,
    longest: Duration,
}

type Step<'a> = Box<dyn FnOnce(&mut Shard, &mut Vec<Effect>) + 'a>;

struct Cluster {
    shards: BTreeMap<InstanceId, Shard>,
    mail: VecDeque<(InstanceId, InstanceId, Message)>,
    busy: BTreeMap<InstanceId, Busy>,
    recovered: usize,
}

impl Cluster {
    fn step(&mut self, i: InstanceId, input: impl FnOnce(&mut Shard, &mut Vec<Effect>)) {
        self.take_step(i, Box::new(input));
    }

    fn take_step(&mut self, i: InstanceId, input: Step<'_>) {
        let shard = self.shards.get_mut(&i).expect("it is there");
        let mut out = Vec::new();
        let began = processor_time();
        input(shard, &mut out);
        let took = processor_time() - began;
        let busy = self.busy.entry(i).or_default();
        busy.steps += 1;
        busy.total += took;
        busy.longest = busy.longest.max(took);
        for effect in out {
            match effect {
                Effect::Send { to, message } => self.mail.push_back((i, to, message)),
                Effect::Recover { block, generation } => {
                    self.recovered += 1;
                    self.step(i, |shard, out| {
                        shard.installed(block, Scn(9), generation, out)
                    });
                }
                Effect::Write { block } => {
                    self.take_step(i, Box::new(move |l, out| l.wrote(block, Scn(9), out)));
                }
                Effect::FlushLog { upto } => {
                    self.take_step(i, Box::new(move |l, out| l.flushed(upto, out)));
                }
                Effect::Close {
                    block, generation, ..
                } => {
                    let found = Closed {
                        version: Scn(8),
                        dirty: true,
                        redo: LogPos(0),
                    };
                    let done = move |shard: &mut Shard, out: &mut Vec<Effect>| {
                        shard.closed(block, generation, found, out);
                    };
                    self.take_step(i, Box::new(done));
                }
                _ => {}
            }
        }
    }

    fn deliver_all(&mut self) {
        while let Some((from, to, message)) = self.mail.pop_front() {
            if self.shards.contains_key(&to) {
                self.step(to, |shard, out| {
                    shard.message(from, Term::BY_HASH, message, out)
                });
            }
        }
    }

    fn enter(&mut self, epoch: u64, members: &[u16], dead: &[u16]) {
        let member = |&i: &u16| Member {
            instance: InstanceId(i),
            incarnation: Incarnation(1),
        };
        let masters = |b: u16| InstanceId(members[usize::from(b) % members.len()]);
        // As few buckets as possible move.
        let whole: Vec<u16> = (1..=3).collect();
        let of_all = |b: u16| whole[usize::from(b) % 3];
        let keeps = |b: u16| members.contains(&of_all(b)).then(|| InstanceId(of_all(b)));
        let plan = Plan {
            epoch: Epoch(epoch),
            members: members.iter().map(member).collect(),
            masters: (0..BUCKETS)
                .map(|b| keeps(b).unwrap_or_else(|| masters(b / 3)))
                .collect(),
            recovering: dead.iter().map(member).collect(),
            recoverer: InstanceId(members[0]),
        };
        for &m in members {
            let plan = plan.clone();
            self.step(InstanceId(m), |shard, out| shard.reconfigure(plan, out));
        }
        self.deliver_all();
    }

    fn tell(&mut self, what: &str) {
        println!("{what}");
        for (i, b) in std::mem::take(&mut self.busy) {
            let (total, longest) = (b.total.as_micros(), b.longest.as_micros());
            println!(
                "  instance {}: {} steps, {total} us in all, the longest {longest} us",
                i.0, b.steps
            );
        }
    }
}

/// Measures a death in a cluster of three instances.
///
/// Each instance has `blocks` blocks exclusively, a tenth of which the others have changed. One
/// instance dies, and its redo names `named` blocks, half of which nobody else has.
fn measure(blocks: u32, named: u32) {
    let mut cluster = Cluster {
        shards: BTreeMap::new(),
        mail: VecDeque::new(),
        busy: BTreeMap::new(),
        recovered: 0,
    };
    for i in 1..=3u16 {
        let mut shard = Shard::new(InstanceId(i));
        for b in 0..blocks {
            shard.adopt(Dba::new(FileId::DATA, u32::from(i) * 10_000_000 + b));
        }
        cluster.shards.insert(InstanceId(i), shard);
    }
    cluster.enter(1, &[1, 2, 3], &[]);
    cluster.tell(&format!(
        "{blocks} blocks each: all are declared for the first time"
    ));
    // Past images: the third instance takes a tenth of what the others have.
    for i in 1..=2u32 {
        for b in 0..blocks / 10 {
            let block = Dba::new(FileId::DATA, i * 10_000_000 + b);
            cluster.step(InstanceId(3), |shard, out| {
                shard.request(block, Want::Exclusive, crate::ids::Waiter(1), out);
            });
            cluster.deliver_all();
        }
    }
    cluster.tell("a tenth of two caches went to the third");
    let began = processor_time();
    cluster.shards.remove(&InstanceId(3));
    cluster.enter(2, &[1, 2], &[3]);
    cluster.tell("the third dies: declarations");
    let of_dead = (0..named).map(|n| match n % 2 {
        0 => Dba::new(FileId::DATA, 30_000_000 + n),
        _ => Dba::new(FileId::DATA, 10_000_000 + n),
    });
    let of_dead: BTreeSet<Dba> = of_dead.collect();
    cluster.step(InstanceId(1), |shard, out| shard.pass_one(of_dead, out));
    cluster.deliver_all();
    let all = (processor_time() - began).as_millis();
    let recovered = cluster.recovered;
    cluster.tell(&format!("its redo names {named} blocks, {recovered} were brought back; {all} ms in all on one processor"));
}

#[test]
#[ignore = "a measurement"]
fn pauses_of_a_death() {
    measure(100_000, 20_000);
}

/// Runs the measurement on few blocks, small enough for every test run. Nothing about it may depend
/// on the number of blocks.
#[test]
fn a_death_with_many_blocks() {
    measure(6_000, 2_500);
}
