//! Everybody works and dies at random.

use super::*;

fn run(seed: u64) {
    let mut rng = Rng(seed);
    let instances = 2 + rng.below(3) as usize;
    println!("seed {seed}: {instances} instances");
    let cluster = Cluster::new(seed);
    for n in 0..instances {
        let own = create_of(ThreadId(id(n).0));
        cluster.start((id(n), 1), own, &mut rng);
    }
    cluster.joined(&mut rng);
    for n in 0..instances {
        cluster.sessions(&mut rng, id(n), 3);
    }
    // Ticks go on until the last session has ended, because failed reads are tried again at a tick.
    let ended = Arc::new(AtomicBool::new(false));
    let (ticking, over) = (cluster.clone(), ended.clone());
    let ticks = std::thread::spawn(move || {
        while !over.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
            ticking.living().iter().for_each(|l| l.cache.tick());
        }
    });
    for _ in 0..1 + rng.below(3) {
        cluster.a_recovery(&mut rng);
    }
    std::thread::sleep(Duration::from_millis(rng.below(20)));
    cluster.stop.store(true, SeqCst);
    cluster.await_sessions();
    cluster.verify_blocks();
    ended.store(true, SeqCst);
    ticks.join().unwrap();
    cluster.verify_recovery();
}

impl Cluster {
    /// Somebody dies, perhaps somebody else before the recovery is over, and perhaps they come
    /// back.
    fn a_recovery(self: &Arc<Self>, rng: &mut Rng) {
        let pause = |rng: &mut Rng, ms: u64| {
            std::thread::sleep(Duration::from_micros(rng.below(ms * 1000)))
        };
        pause(rng, 60);
        let mut epoch = 0;
        while self.living().len() > 1 {
            let n = 1 + rng.below(self.living().len() as u64 - 1);
            for _ in 0..n {
                let living = self.living();
                let dies = living[rng.below(living.len() as u64) as usize].member.0;
                self.kill(dies, rng);
                pause(rng, 2);
            }
            epoch = self.next_epoch(rng).0;
            if rng.often(60) {
                break;
            }
            pause(rng, 15);
        }
        if epoch == 0 {
            return;
        }
        self.await_closed(epoch);
        let recovered = std::mem::take(&mut *self.open.lock().unwrap());
        pause(rng, 20);
        if rng.often(70) {
            for Open { member, left } in recovered {
                let control = ControlFile::open(&left).unwrap();
                control.update(|c| c.scn_ceiling = 1 << 32).unwrap();
                self.start((member.0, member.1 + 1), left, rng);
                self.joined(rng);
                self.sessions(rng, member.0, 3);
                pause(rng, 10);
            }
        }
    }

    fn verify_blocks(&self) {
        let expected = self.expected();
        for life in self.living() {
            for b in 1..=self.used as u32 {
                let found = value(&life.cache, b, true).unwrap();
                assert_eq!(
                    found, expected[b as usize],
                    "block {b} on {:?}",
                    life.member
                );
            }
        }
    }

    /// Checks that disk and the survivors' redo give the expected values.
    pub(super) fn verify_recovery(&self) {
        let expected = self.expected();
        let living = self.living();
        for life in &living {
            let redo = life.cache.redo();
            redo.flush_to(redo.end()).unwrap();
        }
        for life in &living {
            life.cache.leave_cluster();
            life.to.lock().unwrap().clear();
        }
        for life in &living {
            life.instance.lock().unwrap().take().unwrap().stop();
        }
        let logs: Vec<SimStorage> = living.iter().map(|l| l.own.clone()).collect();
        assert_eq!(recovered(&self.data, &logs), expected);
    }
}

#[test]
fn survivors_bring_back_what_the_dead_had() {
    let n = testkit::seeds::number("BRAID_CACHE_DEATHS", 8);
    seeds(n).for_each(run);
}
