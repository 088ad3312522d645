//! A network in memory between instances. It delays and reorders as its seed says, and loses what
//! it is told to lose.

use block::InstanceId;
use interconnect::memory::{Registry, SharedMemory};
use interconnect::{Parcel, Post};
use seam::{Condvar, Mutex, Rng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use txn::TxnManager;

#[derive(Clone, Debug)]
pub struct Letter {
    pub from: InstanceId,
    pub to: InstanceId,
    pub kind: u16,
    epoch: u64,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct State {
    letters: Vec<Letter>,
    /// Letters taken out and not wholly dealt with.
    in_hand: usize,
    /// Directions in which everything is lost.
    cut: BTreeSet<(InstanceId, InstanceId)>,
    /// Kinds that are held back.
    held: BTreeSet<u16>,
    sent: BTreeMap<u16, usize>,
    /// What is done before the next message of a kind leaves.
    before: Option<(u16, Box<dyn FnOnce() + Send>)>,
    stop: bool,
}

#[derive(Default)]
pub struct Net {
    state: Mutex<State>,
    changed: Condvar,
    managers: Mutex<BTreeMap<InstanceId, Weak<TxnManager>>>,
    /// The memory of one machine, and the instances that run there.
    memory: Arc<Registry>,
    together: BTreeSet<InstanceId>,
}

struct At {
    net: Arc<Net>,
    me: InstanceId,
}

impl Post for At {
    fn me(&self) -> InstanceId {
        self.me
    }
    fn send(&self, to: InstanceId, parcel: Parcel<'_>) {
        let manager = self.net.managers.lock()[&self.me].clone();
        let mut bytes = Vec::new();
        manager.upgrade().expect("it sends").header_into(&mut bytes);
        bytes.extend_from_slice(parcel.body);
        let before = self.net.state.lock().before.take_if(|b| b.0 == parcel.kind);
        if let Some((_, f)) = before {
            f();
        }
        let mut state = self.net.state.lock();
        *state.sent.entry(parcel.kind).or_default() += 1;
        if !state.cut.contains(&(self.me, to)) {
            state.letters.push(Letter {
                from: self.me,
                to,
                kind: parcel.kind,
                epoch: parcel.epoch,
                bytes,
            });
            self.net.changed.notify_all();
        }
    }
    fn memory(&self) -> Option<Arc<dyn SharedMemory>> {
        let here = self.net.together.contains(&self.me);
        here.then(|| self.net.memory.clone() as Arc<dyn SharedMemory>)
    }
}

impl Net {
    pub fn new() -> Arc<Net> {
        Arc::default()
    }

    /// A network in which these instances run on one machine.
    pub fn with_together(together: impl IntoIterator<Item = u16>) -> Arc<Net> {
        Arc::new(Net {
            together: together.into_iter().map(InstanceId).collect(),
            ..Net::default()
        })
    }

    pub fn connect(self: &Arc<Self>, manager: &Arc<TxnManager>) {
        let me = manager.instance();
        self.managers.lock().insert(me, Arc::downgrade(manager));
        let net = self.clone();
        manager.join_cluster(Arc::new(At { net, me }));
    }

    /// Makes the network call `f` when the next message of a kind is about to leave.
    pub fn before_next(&self, kind: u16, f: impl FnOnce() + Send + 'static) {
        self.state.lock().before = Some((kind, Box::new(f)));
    }

    /// The epochs of the messages of a kind that are under way.
    pub fn epochs_under_way(&self, kind: u16) -> Vec<u64> {
        let state = self.state.lock();
        let of = state.letters.iter().filter(|l| l.kind == kind);
        of.map(|l| l.epoch).collect()
    }

    pub fn hold(&self, kind: u16) {
        self.state.lock().held.insert(kind);
    }

    /// Delivers now what is held back of a kind and an epoch.
    pub fn deliver_held(&self, kind: u16, epoch: u64) {
        let of = |l: &mut Letter| (l.kind, l.epoch) == (kind, epoch);
        let letters: Vec<Letter> = self.state.lock().letters.extract_if(.., of).collect();
        assert!(!letters.is_empty(), "none is held back");
        letters.iter().for_each(|l| self.deliver(l));
    }

    /// Lets everything go on that was held or cut.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.held.clear();
        state.cut.clear();
        self.changed.notify_all();
    }

    /// Lets the kinds go on that were held. What is cut stays cut.
    pub fn heal_kinds(&self) {
        self.state.lock().held.clear();
        self.changed.notify_all();
    }

    /// Loses what is under way between two instances, and all that they send until the network is
    /// healed.
    pub fn cut(&self, a: u16, b: u16) {
        let (a, b) = (InstanceId(a), InstanceId(b));
        let mut state = self.state.lock();
        for way in [(a, b), (b, a)] {
            state.cut.insert(way);
            state.letters.retain(|l| (l.from, l.to) != way);
        }
    }

    /// The number of messages of a kind that were ever sent.
    pub fn sent(&self, kind: u16) -> usize {
        self.state.lock().sent.get(&kind).copied().unwrap_or(0)
    }

    pub fn is_quiet(&self) -> bool {
        let state = self.state.lock();
        state.in_hand == 0 && !state.letters.iter().any(|l| !state.held.contains(&l.kind))
    }

    fn deliver(&self, letter: &Letter) {
        let manager = self.managers.lock().get(&letter.to).and_then(Weak::upgrade);
        if let Some(manager) = manager {
            let from = letter.from;
            let header = manager.header_arrived(from, letter.epoch, &letter.bytes);
            let done = header.and_then(|h| {
                let body = &letter.bytes[h..];
                manager.message(from, letter.epoch, letter.kind, body, None)
            });
            if let Err(e) = done {
                // Otherwise the sessions would wait for ever.
                eprintln!("{letter:?} was refused: {e}");
                std::process::abort();
            }
        }
    }

    /// Runs the network until `f` returns.
    pub fn run<R>(self: &Arc<Self>, seed: u64, f: impl FnOnce() -> R) -> R {
        self.state.lock().stop = false;
        std::thread::scope(|s| {
            s.spawn(|| self.carry(seed));
            let stop = Stop(self);
            let result = f();
            drop(stop);
            result
        })
    }

    fn carry(&self, seed: u64) {
        let mut rng = Rng(seed | 1);
        let mut state = self.state.lock();
        while !state.stop {
            let State { letters, held, .. } = &mut *state;
            let ready: Vec<usize> = (0..letters.len())
                .filter(|&i| !held.contains(&letters[i].kind))
                .collect();
            if ready.is_empty() {
                self.changed.wait(&mut state);
                continue;
            }
            let letter = letters.swap_remove(ready[rng.below(ready.len() as u64) as usize]);
            state.in_hand += 1;
            drop(state);
            self.deliver(&letter);
            state = self.state.lock();
            state.in_hand -= 1;
        }
    }
}

/// Stops the carrier, also when a test fails.
struct Stop<'a>(&'a Net);
impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.state.lock().stop = true;
        self.0.changed.notify_all();
    }
}
