//! Members die at any moment, several at once, also during a recovery, and so does the member that
//! says when a recovery is over. They come back under a new incarnation. Of a dead member two
//! things are left: what its log had made durable, and what it had written, perhaps with a block
//! torn on its way home. The others go on. Every increment whose record was durable counts once,
//! and none that was acknowledged is lost. In the end disk and the survivors' redo give the same.
//!
//! `BRAID_CACHE_SEED` replays one seed, `BRAID_CACHE_DEATHS` sets how many there are. Threads
//! decide the order, so a seed does not repeat a run to the byte.

mod random;
mod staged;

use super::{Mail, id, recovered, seeds};
use crate::common::*;
use block::{BLOCK_SIZE, InstanceId, LogPos, Op, ThreadId};
use cache::{Cache, Change, DeadThreads, MIN_FRAMES, Reconfiguration, RecordHeader, WriteGuard};
use interconnect::{Parcel, Post};
use redo::{DeadRedo, RedoReader};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::*};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::{Duration, Instant};
use storage::{ControlFile, DoubleWrite, File, FileKind, SimStorage, Storage, TornHomes};

/// The numbers of blocks that are used. The instance that needs a block first formats it. There are
/// few blocks, or more than a cache has frames, so that blocks are let go of at every moment.
const USED: [u64; 2] = [60, 350];
const HOT: u64 = 4;
/// A session that waits longer waits for ever, however slow the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

// ---- a data file whose user may die ----

const ALIVE: u8 = 0;
/// The life ends in one of the next writes.
const DYING: u8 = 1;
const DEAD: u8 = 2;

/// The shared data file as one instance has it open.
struct Mortal {
    file: Arc<dyn File>,
    life: AtomicU8,
    /// Held while writing, because a dead instance does not write.
    writing: RwLock<()>,
    /// Once the life is dying, the number of writes up to the one in which it dies.
    writes_left: AtomicU64,
    /// The bytes of that write that get to the disk.
    torn_at: AtomicU64,
    /// Whether the reads of sessions fail.
    unreadable: AtomicBool,
    /// Whether reads of threads that bring blocks back fail now and then, and their number so far.
    reads_fail: bool,
    reads: AtomicU64,
}

impl Mortal {
    fn crashed(&self) -> storage::Result<()> {
        match self.life.load(SeqCst) {
            DEAD => Err(storage::Error::Crashed),
            _ => Ok(()),
        }
    }
    fn die(&self) {
        self.life.store(DEAD, SeqCst);
        drop(self.writing.write().unwrap());
    }
}

impl File for Mortal {
    fn path(&self) -> &str {
        self.file.path()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> storage::Result<()> {
        self.crashed()?;
        let name = std::thread::current()
            .name()
            .unwrap_or_default()
            .to_string();
        let brings_back = name.starts_with("lmr");
        if self.unreadable.load(SeqCst) && !brings_back {
            return Err(storage::Error::Crashed);
        }
        if self.reads_fail && brings_back && self.reads.fetch_add(1, SeqCst).is_multiple_of(3) {
            return Err(storage::Error::Crashed);
        }
        self.file.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> storage::Result<()> {
        let _writing = self.writing.read().unwrap();
        self.crashed()?;
        if self.life.load(SeqCst) == DYING
            && self.writes_left.fetch_sub(1, SeqCst) == 1
            && self.life.swap(DEAD, SeqCst) == DYING
        {
            self.file.write_at(
                offset,
                &buf[..buf.len().min(self.torn_at.load(SeqCst) as usize)],
            )?;
            return Err(storage::Error::Crashed);
        }
        self.file.write_at(offset, buf)
    }
    fn sync(&self) -> storage::Result<()> {
        self.crashed()?;
        self.file.sync()
    }
    fn len(&self) -> storage::Result<u64> {
        self.file.len()
    }
    fn allocate(&self, len: u64, zeroes: bool, p: &mut dyn FnMut(u64)) -> storage::Result<()> {
        self.file.allocate(len, zeroes, p)
    }
    fn punch(&self, offset: u64, len: u64) -> storage::Result<()> {
        self.file.punch(offset, len)
    }
}

// ---- one life of an instance ----

#[derive(Clone, Copy)]
struct Increment {
    block: u32,
    end: LogPos,
}

struct Life {
    member: (InstanceId, u32),
    cache: Arc<Cache>,
    own: SimStorage,
    data: Arc<Mortal>,
    alive: AtomicBool,
    to: Mutex<BTreeMap<u16, Sender<Mail>>>,
    /// The increments in the order of its log.
    increments: Mutex<Vec<Increment>>,
    instance: Mutex<Option<Instance>>,
    /// The number of sessions at work.
    working: (Mutex<u64>, Condvar),
}

impl Post for Life {
    fn me(&self) -> InstanceId {
        self.member.0
    }
    fn send(&self, to: InstanceId, p: Parcel<'_>) {
        assert_ne!(to, self.member.0);
        if !self.alive.load(SeqCst) {
            return;
        }
        let mail = Mail {
            clock: self.cache.redo().clock().now(),
            epoch: p.epoch,
            kind: p.kind,
            body: p.body.to_vec(),
            block: p.block.map(|b| Box::new(b.clone())),
        };
        if let Some(queue) = self.to.lock().unwrap().get(&to.0) {
            let _ = queue.send(mail); // the receiver may be dead
        }
    }
}

fn deliver(from: &Life, to: &Life, queue: &Receiver<Mail>, mut rng: Rng) {
    // So many messages that the dead instance has sent arrive all the same.
    let mut posthumous = rng.below(5);
    while let Ok(mail) = queue.recv() {
        if rng.often(5) {
            std::thread::sleep(Duration::from_micros(rng.below(300)));
        }
        if !to.alive.load(SeqCst) {
            return;
        }
        if !from.alive.load(SeqCst) {
            if posthumous == 0 {
                return;
            }
            posthumous -= 1;
        }
        to.cache.redo().clock().lift(mail.clock).unwrap();
        let block = mail.block.as_deref();
        to.cache
            .message(from.member.0, mail.epoch, mail.kind, &mail.body, block)
            .unwrap();
    }
}

/// A dead instance whose thread is open.
struct Open {
    member: (InstanceId, u32),
    left: SimStorage,
}

#[derive(Default)]
struct Closed {
    /// The epochs whose dead threads are needed no more.
    epochs: Vec<u64>,
}

// ---- the cluster ----

struct Cluster {
    seed: u64,
    frames: usize,
    used: u64,
    data: SimStorage,
    /// The living lives, by instance.
    up: RwLock<BTreeMap<u16, Arc<Life>>>,
    /// The increments of the dead that count, by block.
    durable: Mutex<BTreeMap<u32, u64>>,
    /// The acknowledged increments, by block.
    acknowledged: Vec<AtomicU64>,
    closed: Arc<(Mutex<Closed>, Condvar)>,
    open: Mutex<Vec<Open>>,
    /// What each dead life had left, for [`Cluster::tell`].
    graves: Mutex<Vec<((InstanceId, u32), SimStorage)>>,
    epoch: AtomicU64,
    stop: AtomicBool,
}

impl Cluster {
    fn new(seed: u64) -> Arc<Cluster> {
        Cluster::sized(seed, BLOCKS, MIN_FRAMES)
    }

    fn sized(seed: u64, blocks: u32, frames: usize) -> Arc<Cluster> {
        Arc::new(Cluster {
            seed,
            frames,
            used: USED[usize::from(seed.is_multiple_of(3))],
            data: create_sized(THREAD, blocks),
            up: RwLock::default(),
            durable: Mutex::default(),
            acknowledged: (0..=blocks).map(|_| AtomicU64::new(0)).collect(),
            closed: Arc::default(),
            open: Mutex::default(),
            graves: Mutex::default(),
            epoch: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        })
    }

    fn living(&self) -> Vec<Arc<Life>> {
        self.up.read().unwrap().values().cloned().collect()
    }

    /// Starts a new life on what is in `own`.
    fn start(self: &Arc<Self>, member: (InstanceId, u32), own: SimStorage, rng: &mut Rng) {
        let data = Arc::new(Mortal {
            file: self.data.open("data", FileKind::Data).unwrap(),
            life: AtomicU8::new(ALIVE),
            writing: RwLock::new(()),
            unreadable: AtomicBool::new(false),
            reads_fail: self.seed.is_multiple_of(2),
            reads: AtomicU64::new(0),
            writes_left: AtomicU64::new(1 + rng.below(20)),
            torn_at: AtomicU64::new(
                storage::SECTOR as u64 * (1 + rng.below(2 * (BLOCK_SIZE / storage::SECTOR) as u64)),
            ),
        });
        let instance = Instance::open_sized(&own, data.clone(), self.frames).unwrap();
        let clock = instance.cache.redo().clock();
        clock.raise_ceiling(block::Scn(1 << 40));
        // A joiner takes the highest clock of the others.
        for life in self.living() {
            clock.lift(life.cache.redo().clock().now()).unwrap();
        }
        instance.gate.open.store(true, Release);
        let life = Arc::new(Life {
            member,
            cache: instance.cache.clone(),
            own,
            data,
            alive: AtomicBool::new(true),
            to: Mutex::default(),
            increments: Mutex::default(),
            instance: Mutex::new(Some(instance)),
            working: Default::default(),
        });
        for other in self.living() {
            for (from, to) in [(&life, &other), (&other, &life)] {
                let (out, queue) = channel();
                from.to.lock().unwrap().insert(to.member.0.0, out);
                let (from, to) = (from.clone(), to.clone());
                let rng = Rng(rng.next());
                std::thread::spawn(move || deliver(&from, &to, &queue, rng));
            }
        }
        let closed = self.closed.clone();
        life.cache.on_threads_closed(Box::new(move |epoch, _| {
            closed.0.lock().unwrap().epochs.push(epoch);
            closed.1.notify_all();
        }));
        // The seed decides whether there are one, two or three shards.
        let shards = (self.seed / 2 % 3) as u8 + 1;
        life.cache.join_cluster(life.clone(), shards).unwrap();
        self.up.write().unwrap().insert(member.0.0, life);
    }

    /// Begins the next epoch, with the living as members. Each enters it, reads the dead threads
    /// and goes on, when it comes to that.
    fn next_epoch(self: &Arc<Self>, rng: &mut Rng) -> (u64, impl Iterator<Item = ()> + use<>) {
        let epoch = self.epoch.fetch_add(1, SeqCst) + 1;
        let living = self.living();
        let open = self.open.lock().unwrap();
        let new = Reconfiguration {
            epoch,
            members: living.iter().map(|l| l.member).collect(),
            dead: open.iter().map(|o| o.member).collect(),
            in_limbo: open.iter().map(|o| o.member.0).collect(),
            recoverer: living[rng.below(living.len() as u64) as usize].member.0,
        };
        let left: Vec<SimStorage> = open.iter().map(|o| o.left.clone()).collect();
        drop(open);
        let (entered, all) = channel();
        for life in &living {
            let (new, left, mut rng) = (new.clone(), left.clone(), Rng(rng.next()));
            let (life, entered) = (life.clone(), entered.clone());
            let go_on = move || {
                std::thread::sleep(Duration::from_micros(rng.below(3000)));
                life.cache.reconfigure(&new);
                let _ = entered.send(()); // nobody may wait for it
                if !new.dead.is_empty() {
                    std::thread::sleep(Duration::from_micros(rng.below(5000)));
                    let threads = read_dead(&left);
                    if let Err(e) = life.cache.dead_redo(epoch, threads) {
                        assert!(!life.alive.load(SeqCst), "{e}");
                    }
                }
            };
            std::thread::spawn(go_on);
        }
        (epoch, all.into_iter().take(living.len()))
    }

    /// Begins an epoch and waits until everybody has entered it. Joiners work only then.
    fn joined(self: &Arc<Self>, rng: &mut Rng) {
        let (_, entered) = self.next_epoch(rng);
        entered.for_each(drop);
    }

    /// Waits until the dead threads are needed no more. Nobody else may die before that.
    fn await_closed(&self, epoch: u64) {
        let (closed, rung) = &*self.closed;
        let until = Instant::now() + PATIENCE;
        let mut state = closed.lock().unwrap();
        while !state.epochs.contains(&epoch) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.tell();
                panic!("the recovery in epoch {epoch} does not end");
            }
            state = rung.wait_timeout(state, left).unwrap().0;
        }
    }

    /// Prints what disk and the logs have of each block, which shows a developer what went wrong.
    fn tell(&self) {
        let file = self.data.open("data", FileKind::Data).unwrap();
        let graves = self.graves.lock().unwrap();
        let dead = graves.iter().map(|(m, left)| (*m, "dead", left));
        let living = self.living();
        let logs: Vec<_> = dead
            .chain(living.iter().map(|l| (l.member, "up", &l.own)))
            .map(|(m, is, s)| (m, is, restart_point(s).unwrap(), logged_changes(s).unwrap()))
            .collect();
        for (member, is, from, changes) in &logs {
            println!("{member:?} {is} from {from:?}: {} changes", changes.len());
        }
        for b in 1..=self.used as u32 {
            let mut block = block::BlockBuf::zeroed();
            file.read_at(u64::from(b) * BLOCK_SIZE as u64, &mut block.0)
                .unwrap();
            println!(
                "block {b}: on disk {:?} {:?}",
                block.scn().0,
                block.check(dba(b))
            );
            let of = logs
                .iter()
                .flat_map(|(m, _, _, changes)| changes.iter().map(move |c| (m, c)));
            let mut of: Vec<_> = of.filter(|(_, c)| c.dba == dba(b)).collect();
            of.sort_by_key(|(_, c)| c.scn);
            for (m, c) in of {
                println!(
                    "  {} by {m:?} at {:?}, before {:?}",
                    c.scn.0, c.pos, c.before
                );
            }
        }
    }

    /// Ends a life. It may die while it writes a block home.
    fn kill(&self, instance: InstanceId, rng: &mut Rng) {
        let life = self.up.write().unwrap().remove(&instance.0).unwrap();
        if rng.often(50) {
            let _ = life
                .data
                .life
                .compare_exchange(ALIVE, DYING, SeqCst, SeqCst);
            let until = Instant::now() + Duration::from_millis(50);
            while life.data.life.load(SeqCst) == DYING && Instant::now() < until {
                life.cache.want_checkpoint();
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        life.data.die();
        life.own.power_off();
        life.alive.store(false, SeqCst);
        life.to.lock().unwrap().clear();
        for other in self.living() {
            other.to.lock().unwrap().remove(&instance.0);
        }
        // Nobody waits for the sessions of this life, which may wait for ever. Nothing more of it
        // is heard or written.
        std::mem::forget(life.instance.lock().unwrap().take());
        let left = life.own.after_crash(rng.next());
        let end = log_end(&left).unwrap();
        let mut durable = self.durable.lock().unwrap();
        for i in life
            .increments
            .lock()
            .unwrap()
            .iter()
            .filter(|i| i.end <= end)
        {
            *durable.entry(i.block).or_default() += 1;
        }
        let member = life.member;
        self.graves
            .lock()
            .unwrap()
            .push((member, left.after_crash(0)));
        self.open.lock().unwrap().push(Open { member, left });
    }

    fn sessions(self: &Arc<Self>, rng: &mut Rng, instance: InstanceId, n: u64) {
        let life = self.up.read().unwrap()[&instance.0].clone();
        *life.working.0.lock().unwrap() += n;
        for _ in 0..n {
            let (cluster, life, rng) = (self.clone(), life.clone(), Rng(rng.next()));
            std::thread::spawn(move || {
                let end = SessionEnd(cluster, life);
                end.0.work(&end.1, rng);
            });
        }
    }

    fn work(&self, life: &Life, mut rng: Rng) {
        while !self.stop.load(SeqCst) && life.alive.load(SeqCst) {
            let n = if rng.often(40) { HOT } else { self.used };
            let block = 1 + rng.below(n) as u32;
            let done = match rng.below(100) {
                0..45 => self.increment(life, block),
                45..65 => clean_out(life, block),
                _ => self.look(life, block, rng.often(50)),
            };
            if let Err(e) = done {
                assert!(!life.alive.load(SeqCst) || self.is_dying(life), "{e}");
                return;
            }
        }
    }

    fn is_dying(&self, life: &Life) -> bool {
        life.data.life.load(SeqCst) != ALIVE
    }

    fn increment(&self, life: &Life, block: u32) -> Tried<()> {
        let at = self.format_and_increment(life, block)?;
        let cache = &life.cache;
        cache.redo().flush_to(at)?;
        // The broadcast of a commit does this before anybody may rest on the commit.
        let now = cache.redo().clock().now();
        for other in self.living() {
            other.cache.redo().clock().lift(now)?;
        }
        if life.alive.load(SeqCst) {
            self.acknowledged[block as usize].fetch_add(1, SeqCst);
        }
        Ok(())
    }

    /// Returns the position up to which the log must be durable.
    fn format_and_increment(&self, life: &Life, block: u32) -> Tried<LogPos> {
        let cache = &life.cache;
        cache.reserve()?;
        let mut guard = cache.write(dba(block))?;
        if rows(&guard).is_none() {
            logged(cache, &mut guard, Op::HeapFormat, &[], |_| ());
        }
        let first = rows(&guard).and_then(|r| r.first().copied());
        if first.is_none() {
            logged(cache, &mut guard, Op::HeapInsert, &row(0, 0), |_| ());
        }
        let value = first.unwrap_or(0);
        let payload = row(0, value + 1);
        let mut at = LogPos(0);
        logged(cache, &mut guard, Op::HeapOverwrite, &payload, |end| {
            life.increments
                .lock()
                .unwrap()
                .push(Increment { block, end });
            at = end;
        });
        drop(guard);
        Ok(at)
    }

    fn look(&self, life: &Life, block: u32, current: bool) -> Tried<()> {
        let before = self.acknowledged[block as usize].load(SeqCst);
        let seen = value(&life.cache, block, current)?;
        assert!(
            seen >= before,
            "block {block}: {seen} seen, {before} were acknowledged"
        );
        Ok(())
    }

    /// The value that every block must have.
    fn expected(&self) -> Vec<u64> {
        let mut n = vec![0; self.acknowledged.len()];
        for (&block, &of_dead) in &*self.durable.lock().unwrap() {
            n[block as usize] += of_dead;
        }
        for life in self.living() {
            for i in &*life.increments.lock().unwrap() {
                n[i.block as usize] += 1;
            }
        }
        n
    }

    /// Waits until the sessions of the living have ended. Those of the dead may wait for ever.
    fn await_sessions(&self) {
        let until = Instant::now() + PATIENCE;
        for life in self.living() {
            let (working, rung) = &life.working;
            let mut n = working.lock().unwrap();
            while *n > 0 {
                let left = until.saturating_duration_since(Instant::now());
                let me = life.member.0.0;
                assert!(
                    !left.is_zero(),
                    "{} sessions of instance {me} wait for ever",
                    *n
                );
                n = rung.wait_timeout(n, left).unwrap().0;
            }
        }
    }
}

/// Counts a session as ended when it is dropped.
struct SessionEnd(Arc<Cluster>, Arc<Life>);

impl Drop for SessionEnd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}: a session has failed", self.0.seed);
            std::process::abort();
        }
        *self.1.working.0.lock().unwrap() -= 1;
        self.1.working.1.notify_all();
    }
}

/// Makes a change that logs nothing. The block is dirty and may be torn on its way home, and no
/// redo names it.
fn clean_out(life: &Life, block: u32) -> Tried<()> {
    life.cache.write(dba(block))?.hint(|b| {
        // The change is of free space, in the half of the block that is written last.
        if !b.is_unformatted() {
            b.0[BLOCK_SIZE / 2 + 500] = b.0[BLOCK_SIZE / 2 + 500].wrapping_add(1);
        }
    });
    Ok(())
}

fn logged(
    cache: &Cache,
    guard: &mut WriteGuard<'_>,
    op: Op,
    payload: &[u8],
    under_latch: impl FnOnce(LogPos),
) {
    let change = Change {
        guard,
        op,
        object: OBJECT,
        payload,
    };
    cache.change(RecordHeader::NONE, &mut [change], |a, _| under_latch(a.end));
}

fn value(cache: &Cache, block: u32, current: bool) -> Tried<u64> {
    let guard = match current {
        true => cache.read(dba(block))?,
        false => cache.read_as_of(dba(block), cache.redo().clock().now())?,
    };
    let first = rows(&guard).and_then(|r| r.first().copied());
    Ok(first.unwrap_or(0))
}

/// Reads the dead threads as a survivor's engine does.
fn read_dead(left: &[SimStorage]) -> DeadThreads {
    let logs: Vec<_> = left.iter().map(|s| open_log(s).unwrap()).collect();
    let readers = left.iter().zip(&logs);
    let readers = readers
        .map(|(s, log)| RedoReader::new(log, restart_point(s).unwrap()))
        .collect();
    let (redo, _) = DeadRedo::read::<redo::Error>(readers, |_| Ok(())).unwrap();
    let doubles: Vec<_> = left
        .iter()
        .map(|s| DoubleWrite::open(s, "double-write").unwrap())
        .collect();
    DeadThreads {
        redo: Arc::new(redo),
        torn: TornHomes::read(&doubles.iter().collect::<Vec<_>>()).unwrap(),
    }
}
