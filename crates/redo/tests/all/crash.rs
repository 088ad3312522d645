//! Crashes at every write of a workload that goes round the ring several times, over and over on
//! one set of files.

use crate::common::*;
use block::{LAST_GROUPS, LogPos};
use redo::*;
use std::sync::Arc;
use storage::{Faults, SimStorage};

/// What the workload knows when the machine stops.
struct Model {
    /// Every record appended, in order.
    appended: Vec<Seen>,
    /// The position below which everything was said to be durable.
    durable: LogPos,
    checkpoint: RestartPoint,
    groups: Vec<(BatchNo, block::Scn)>,
    next_number: u64,
}

impl Model {
    /// Forgets the records that are gone for good: the last start found fewer than were appended.
    fn forget_beyond(&mut self, end: LogPos) {
        self.appended.retain(|r| r.pos < end);
        let checkpoint = self.checkpoint.pos;
        self.appended.retain(|r| r.pos >= checkpoint);
    }

    /// Appends and flushes until something fails or `steps` are over.
    fn run(&mut self, t: &Thread, rng: &mut Rng, steps: usize) -> Result<()> {
        let result = self.steps(t, rng, steps);
        self.durable = self.durable.max(t.redo.durable());
        let groups = t.sink.groups.lock().unwrap();
        self.groups
            .extend(groups.iter().map(|(batch, _, e)| (*batch, *e)));
        result
    }

    fn steps(&mut self, t: &Thread, rng: &mut Rng, steps: usize) -> Result<()> {
        for _ in 0..steps {
            let number = self.next_number;
            self.next_number += 1;
            let payload = match rng.below(4) {
                0 => rng.below(32_000),
                1 => rng.below(5_000),
                _ => rng.below(300),
            } as usize;
            let mut bytes = record(number, payload);
            t.redo.wait_for_space()?;
            let put = t
                .redo
                .append(&mut bytes, |_, group| group.push(txn(number)));
            let (r, _) = block::record::Record::parse(&bytes, put.pos).unwrap();
            let payload = r.vectors().next().unwrap().payload.to_vec();
            self.appended.push(Seen {
                pos: put.pos,
                scn: put.scn,
                txn: r.txn,
                payload,
            });
            if rng.below(3) == 0 {
                t.redo.flush_to(put.end)?;
            }
            if t.redo.space_left() < 700 << 10 || rng.below(50) == 0 {
                t.redo.flush_to(t.redo.end())?;
                let point = t.redo.restart_point(LogPos(
                    t.redo.end().0
                        - rng
                            .below(100_000)
                            .min(t.redo.end().0 - t.redo.checkpoint().0),
                ));
                self.checkpoint = point;
                t.redo.set_checkpoint(point);
            }
        }
        Ok(())
    }

    /// Reads the surviving log and compares it with the model.
    fn check(&mut self, storage: &SimStorage, what: &str) {
        let files = files(&[storage], 1);
        let (found, groups, end) =
            read_all(&files, self.checkpoint).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(
            end.next.pos >= self.durable,
            "{what}: lost what was durable: {} < {}",
            end.next.pos.0,
            self.durable.0
        );
        let start = self.checkpoint.pos;
        let wanted: Vec<_> = self
            .appended
            .iter()
            .filter(|r| r.pos >= start && r.pos < end.next.pos)
            .collect();
        assert_eq!(found.len(), wanted.len(), "{what}: number of records");
        assert!(
            found.iter().zip(wanted).all(|(a, b)| a == b),
            "{what}: records differ"
        );
        for (batch, e) in groups {
            if let (Some(e), Some((_, told))) = (e, self.groups.iter().find(|(b, _)| *b == batch)) {
                assert_eq!(e, *told, "{what}: e(n) of batch {}", batch.0);
            }
        }
        self.forget_beyond(end.next.pos);
        // The last groups' SCNs may have been in memory only. The next opening decides them anew.
        self.groups
            .retain(|(b, _)| b.0 + (LAST_GROUPS as u64) < end.next.batch.0);
    }
}

fn crash_chain(seed: u64, crashes: impl Iterator<Item = u64>, steps: usize) {
    let mut storage = SimStorage::new();
    create(&[&storage], 1);
    let mut rng = Rng(seed);
    let mut model = Model {
        appended: Vec::new(),
        durable: LogPos(0),
        checkpoint: RestartPoint::FIRST,
        groups: Vec::new(),
        next_number: 1,
    };
    let clock: Arc<Clock> = clock();
    for (round, crash) in crashes.enumerate() {
        let what = format!("seed {seed}, round {round}, crash at write {crash} of the round");
        storage.set_faults(Faults {
            crash_at_write: Some(storage.writes() + crash),
            ..Faults::default()
        });
        // The crash may happen while the thread is being opened.
        let outcome = open(&[&storage], 1, model.checkpoint, &clock)
            .and_then(|t| model.run(&t, &mut rng, steps));
        assert!(outcome.is_err() == storage.crashed(), "{what}: {outcome:?}");
        storage = storage.after_crash(rng.next());
        model.check(&storage, &what);
    }
}

#[test]
fn nothing_durable_is_lost_and_nothing_else_invented() {
    crash_chain(1, 1..200, 300);
}

#[test]
fn crashes_follow_each_other_closely() {
    for seed in 2..6 {
        let mut rng = Rng(seed * 1000);
        let crashes: Vec<u64> = (0..150).map(|_| 1 + rng.below(6)).collect();
        crash_chain(seed, crashes.into_iter(), 100);
    }
}

#[test]
fn the_ring_is_gone_round_many_times() {
    let storage = SimStorage::new();
    create(&[&storage], 1);
    let mut model = Model {
        appended: Vec::new(),
        durable: LogPos(0),
        checkpoint: RestartPoint::FIRST,
        groups: Vec::new(),
        next_number: 1,
    };
    let clock = clock();
    let mut rng = Rng(9);
    for _ in 0..5 {
        let t = open(&[&storage], 1, model.checkpoint, &clock).unwrap();
        model.run(&t, &mut rng, 600).unwrap();
        drop(t);
        model.check(&storage, "clean stop");
    }
    assert!(model.checkpoint.pos.0 > 3 * GEOMETRY.capacity());
}
