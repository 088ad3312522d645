//! Harm that is done to the instances while sessions work: one thing after the other, sometimes two
//! at once.

use crate::cluster::{Cluster, MISSCOUNT};
use crate::proxy::Fault;
use crate::work::Work;
use seam::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testkit::processes::braid;

/// How long an instance without a process is left to its guard, before the test asks for it. A
/// guard leaves an instance down that dies too often.
const DOWN: Duration = Duration::from_secs(3);

struct Harm<'a> {
    work: &'a Arc<Work>,
    enough: &'a AtomicBool,
    rng: Rng,
    /// Since when each instance has had no process.
    down: BTreeMap<u16, Instant>,
    /// Commands that run without anybody waiting for them.
    commands: Vec<JoinHandle<()>>,
    counts: BTreeMap<&'static str, u64>,
}

/// Does harm until it is told to stop, and says what. Afterwards no fault is left, and all
/// instances have been started.
pub fn harm(work: &Arc<Work>, enough: &AtomicBool, seed: u64) -> BTreeMap<&'static str, u64> {
    let mut harm = Harm {
        work,
        enough,
        rng: Rng(seed),
        down: BTreeMap::new(),
        commands: Vec::new(),
        counts: BTreeMap::new(),
    };
    while !harm.is_over() {
        harm.pause(200, 2500);
        harm.start_who_is_down();
        let what = harm.once();
        *harm.counts.entry(what).or_default() += 1;
        println!("{:>7} ms: {what}", work.now() / 1000);
    }
    std::mem::take(&mut harm.counts)
}

/// Starts what is down. True if all are open for good. To be called again and again.
pub fn mend(work: &Work) -> bool {
    let c = &work.cluster;
    let state: Vec<_> = (1..=c.instances).map(|k| (k, c.process(k))).collect();
    for &(k, process) in &state {
        match process {
            Some(_) => {
                c.signal("-CONT", k);
            }
            None => c.start(k),
        }
    }
    state.iter().all(|(_, p)| p.is_some_and(|(_, open)| open))
}

impl Harm<'_> {
    /// Pauses for so many milliseconds, or until all is over.
    fn pause(&mut self, least: u64, most: u64) {
        let until = Instant::now() + Duration::from_millis(least + self.rng.below(most - least));
        while Instant::now() < until && !self.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            std::thread::park_timeout(left.min(Duration::from_millis(50)));
        }
    }

    fn is_over(&self) -> bool {
        self.enough.load(SeqCst) || self.work.stop.load(SeqCst)
    }

    fn somebody(&mut self) -> u16 {
        1 + self.rng.below(self.work.cluster.instances.into()) as u16
    }

    fn other_than(&mut self, k: u16) -> u16 {
        let n = self.work.cluster.instances;
        1 + (k + self.rng.below(u64::from(n - 1)) as u16) % n
    }

    fn start_who_is_down(&mut self) {
        self.commands.retain(|c| !c.is_finished());
        for k in 1..=self.work.cluster.instances {
            if self.work.cluster.process(k).is_some() {
                self.down.remove(&k);
            } else if self.down.entry(k).or_insert_with(Instant::now).elapsed() > DOWN {
                self.down.remove(&k);
                self.command(move |c| c.start(k));
            }
        }
    }

    /// Runs a command without waiting for it. It may take as long as a fault that is still to be
    /// healed.
    fn command(&mut self, command: impl FnOnce(&Cluster) + Send + 'static) {
        let work = self.work.clone();
        let thread = std::thread::spawn(move || command(&work.cluster));
        self.commands.push(thread);
    }

    fn kill(&mut self, k: u16) {
        self.work.begin_harm(k);
        self.work.cluster.signal("-9", k);
        self.work.end_harm(k);
    }

    fn leave(&mut self, k: u16) {
        self.work.begin_harm(k);
        self.command(move |c| {
            // The command is refused if the instance does not run now.
            braid(&["stop", &k.to_string(), "--data", &c.data()]);
        });
        self.work.end_harm(k);
    }

    fn once(&mut self) -> &'static str {
        let k = self.somebody();
        let other = self.other_than(k);
        let kinds = match self.work.cluster.has_links() {
            true => 16,
            false => 12,
        };
        match self.rng.below(kinds) {
            0..3 => {
                self.kill(k);
                "killed"
            }
            3 => {
                self.kill(k);
                self.kill(other);
                "two killed"
            }
            4 => {
                self.kill(k);
                self.pause(1, 2000);
                self.kill(other);
                "killed, and another while it was recovered"
            }
            5 => {
                (1..=self.work.cluster.instances).for_each(|k| self.kill(k));
                "all killed"
            }
            6 => {
                self.leave(k);
                "left and came back"
            }
            7 => {
                self.leave(k);
                self.pause(1, 1000);
                self.kill(other);
                "left while another was killed"
            }
            8 | 9 => {
                self.work.cluster.signal("-STOP", k);
                self.pause(100, 2000);
                self.work.cluster.signal("-CONT", k);
                "stopped for a while"
            }
            10 => {
                self.work.cluster.signal("-STOP", k);
                self.pause(1, 1000);
                self.kill(other);
                self.pause(1, 1000);
                self.work.cluster.signal("-CONT", k);
                "stopped while another was killed"
            }
            11 => {
                self.work.begin_harm(k);
                self.work.cluster.signal("-STOP", k);
                self.pause(1000, MISSCOUNT.as_millis() as u64 * 2);
                self.work.cluster.signal("-CONT", k);
                self.work.end_harm(k);
                "stopped for long"
            }
            12 | 13 => self.link(k, other),
            14 => self.isolate(k),
            _ => self.cut_for_long(k, other),
        }
    }

    fn fault(&mut self) -> (Fault, &'static str) {
        match self.rng.below(6) {
            0 => (Fault::Delay(20), "a slow link"),
            1 => (Fault::Delay(200), "a very slow link"),
            2 => (Fault::Stall, "a stalled link"),
            3 => (Fault::StallUp, "a link stalled one way"),
            4 => (Fault::StallDown, "a link stalled the other way"),
            _ => (Fault::Break, "a broken link"),
        }
    }

    fn link(&mut self, a: u16, b: u16) -> &'static str {
        let (fault, what) = self.fault();
        self.work.cluster.set_fault(a, b, Some(fault));
        self.pause(100, 1500);
        self.work.cluster.set_fault(a, b, None);
        what
    }

    fn isolate(&mut self, k: u16) -> &'static str {
        let (fault, _) = self.fault();
        let others = (1..=self.work.cluster.instances).filter(|&o| o != k);
        let others: Vec<u16> = others.collect();
        let set = |fault| {
            let cluster = &self.work.cluster;
            others.iter().for_each(|&o| cluster.set_fault(k, o, fault));
        };
        set(Some(fault));
        self.pause(100, 1500);
        let cluster = &self.work.cluster;
        others.iter().for_each(|&o| cluster.set_fault(k, o, None));
        "all links of one"
    }

    /// Cuts two instances apart for so long that one of them has to go.
    fn cut_for_long(&mut self, k: u16, other: u16) -> &'static str {
        let all = 1..=self.work.cluster.instances;
        let alone = self.rng.below(2) == 0;
        let fault = match self.rng.below(2) {
            0 => Fault::Stall,
            _ => Fault::Break,
        };
        let others: Vec<u16> = match alone {
            true => all.clone().filter(|&o| o != k).collect(),
            false => vec![other],
        };
        all.clone().for_each(|k| self.work.begin_harm(k));
        let cluster = &self.work.cluster;
        others
            .iter()
            .for_each(|&o| cluster.set_fault(k, o, Some(fault)));
        self.pause(1000, MISSCOUNT.as_millis() as u64 * 3);
        let cluster = &self.work.cluster;
        others.iter().for_each(|&o| cluster.set_fault(k, o, None));
        all.for_each(|k| self.work.end_harm(k));
        match alone {
            true => "one cut off for long",
            false => "two cut apart for long",
        }
    }
}
