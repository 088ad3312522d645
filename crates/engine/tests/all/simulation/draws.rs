//! Values drawn from sequences on all instances. A value is settled if it is in an acknowledged
//! transaction, or was given to an instance that is still up. A settled value does not come again.
//! If the sequence is ordered, no lower value follows it.

use super::shared::{Drawn, Shared, Stage};
use super::work::Client;
use block::ObjectId;
use block::sequence::SequenceParams;
use engine::{Engine, Isolation, Result, SequenceDef, Session};
use std::sync::Arc;

/// A sequence without a cache, which is ordered, and one with a cache.
pub type Sequences = [SequenceDef; 2];
const ORDERED: usize = 0;
const CACHES: [u32; 2] = [1, 20];

pub fn create(engine: &Arc<Engine>) -> Result<Sequences> {
    let mut s = engine.session()?;
    s.begin(Isolation::ReadCommitted)?;
    let mut made = Vec::new();
    for cache in CACHES {
        let object: ObjectId = engine.allocate_object_id()?;
        let params = SequenceParams {
            cache,
            ..SequenceParams::default()
        };
        let header = s.create_sequence(object, &params)?;
        made.push(SequenceDef { object, header });
    }
    s.commit()?;
    Ok([made[0], made[1]])
}

/// Draws a value. Returns its place in the book.
fn draw(s: &mut Session, shared: &Shared, sequences: &Sequences, n: usize) -> Result<usize> {
    let before = shared.book().draws.len();
    let value = s.sequence_next(&sequences[n])?;
    let process = seam::sim::process();
    let mut wrong = None;
    let at = {
        let mut book = shared.book();
        let counts = |d: &&(usize, Drawn)| {
            d.1.sequence == n && (d.1.committed || book.lives[&d.1.process] == Stage::Open)
        };
        let all = book.draws.iter().copied().enumerate();
        for (m, d) in all.collect::<Vec<_>>().iter().filter(counts) {
            let is_late = n == ORDERED && *m < before && d.value > value;
            if d.value == value || is_late {
                wrong = Some(format!(
                    "sequence {n} gave {value} to process {process} after {d:?}"
                ));
            }
        }
        book.draws.push(Drawn {
            sequence: n,
            value,
            process,
            committed: false,
        });
        book.draws.len() - 1
    };
    if let Some(wrong) = wrong {
        shared.fail(wrong);
    }
    Ok(at)
}

/// The check at the end: whatever is drawn now is new.
pub fn check(engine: &Arc<Engine>, shared: &Shared, sequences: &Sequences) -> Result<()> {
    let mut s = engine.session()?;
    s.begin(Isolation::ReadCommitted)?;
    for (n, cache) in CACHES.into_iter().enumerate() {
        for _ in 0..=cache {
            draw(&mut s, shared, sequences, n)?;
        }
    }
    s.commit()
}

impl Client<'_> {
    /// The work of one transaction.
    pub fn draws(&mut self, sequences: &Sequences) -> Result<()> {
        for _ in 0..1 + self.rng.below(3) {
            let n = self.rng.below(sequences.len() as u64) as usize;
            let drawn = draw(self.s, self.shared, sequences, n)?;
            self.drawn.push(drawn);
        }
        match self.rng.one_in(2) {
            true => self.transfer(),
            false => Ok(()),
        }
    }
}
