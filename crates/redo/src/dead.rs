//! The redo of instances that have died, kept in memory by block. Survivors bring blocks back with
//! it.
//!
//! All open threads of the dead are read once, as one stream by SCN. A block is then made of the
//! newest version that is on disk, or kept as a survivor's past image, and of what the dead have
//! logged since ([`DeadRedo::apply`]).
//!
//! **Invariants.**
//! - The vectors of a block stand in the order of their SCNs, whichever of the dead logged them. If
//!   two instances changed the block in turns, their vectors are one sequence.
//! - Nothing is dropped: the threads stay open until everything is on disk. So if a survivor dies
//!   meanwhile, the next recovery finds the same redo there again.
//!
//! Memory: each thread from its checkpoint to its end, and 56 bytes for each vector. A vector's
//! header in the log has 24 bytes, so this is less than four times what is read. What is read is at
//! most the size of the dead's log files, and mostly little more than their recovery target.

use crate::{Error, Merge, Merged, RedoReader, Result, ThreadEnd, apply_vector};
use block::record::Vector;
use block::{BlockBuf, Dba, LastGroups, LogPos, ObjectId, Op, Scn, ThreadId};
use std::collections::BTreeMap;

/// A vector, with its payload in [`DeadRedo::payloads`].
#[derive(Clone, Copy)]
struct Logged {
    dba: Dba,
    scn: Scn,
    before: Option<Scn>,
    pos: LogPos,
    payload_at: usize,
    object: ObjectId,
    payload_len: u16,
    op: Op,
    thread: ThreadId,
}

const _: () = assert!(size_of::<Logged>() <= 64);

/// The redo of the dead (see the module).
#[derive(Default)]
pub struct DeadRedo {
    /// The vectors, by block, then by SCN.
    vectors: Vec<Logged>,
    payloads: Vec<u8>,
    evidence: BTreeMap<ThreadId, LastGroups>,
}

impl DeadRedo {
    /// Reads the threads to their ends. `each` sees every record on the way, markers too, in the
    /// order of their SCNs.
    pub fn read<E: From<Error>>(
        readers: Vec<RedoReader<'_>>,
        mut each: impl FnMut(&Merged<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(DeadRedo, Vec<(ThreadId, ThreadEnd)>), E> {
        let mut dead = DeadRedo::default();
        let mut merge = Merge::new(readers)?;
        while let Some(merged) = merge.next_record()? {
            dead.add(&merged);
            each(&merged)?;
        }
        // The sort is stable: within a block the order of SCNs stays.
        dead.vectors.sort_by_key(|v| v.dba);
        let ends = merge.finish()?;
        for (&thread, &groups) in ends.iter().flat_map(|(_, end)| &end.evidence) {
            dead.evidence.entry(thread).or_default().merge(groups);
        }
        Ok((dead, ends))
    }

    fn add(&mut self, merged: &Merged<'_>) {
        for v in merged.record.vectors().filter(|v| !v.dba.is_none()) {
            self.vectors.push(Logged {
                dba: v.dba,
                scn: merged.record.scn,
                before: v.before,
                pos: merged.record.pos,
                payload_at: self.payloads.len(),
                object: v.object,
                payload_len: u16::try_from(v.payload.len())
                    .expect("invariant: the length of a payload is logged in 16 bits"),
                op: v.op,
                thread: merged.thread,
            });
            self.payloads.extend_from_slice(v.payload);
        }
    }

    /// The addresses of the blocks that the dead have logged changes of, each once, in ascending
    /// order.
    pub fn blocks(&self) -> impl Iterator<Item = Dba> + '_ {
        self.vectors
            .chunk_by(|a, b| a.dba == b.dba)
            .map(|of_block| of_block[0].dba)
    }

    /// The newest groups of a thread that the dead knew of, and when they took effect.
    ///
    /// They may be that thread's last durable groups, with no survivor that knows of them. What is
    /// left of the dead still rests on them, so they took effect then and at no other time
    /// (`fusion::visibility`, V6).
    pub fn groups_of(&self, thread: ThreadId) -> LastGroups {
        self.evidence.get(&thread).copied().unwrap_or_default()
    }

    /// The number of vectors read.
    pub fn vectors(&self) -> usize {
        self.vectors.len()
    }

    fn of(&self, dba: Dba) -> &[Logged] {
        let from = self.vectors.partition_point(|v| v.dba < dba);
        let to = from + self.vectors[from..].partition_point(|v| v.dba == dba);
        &self.vectors[from..to]
    }

    /// Brings a block forward over everything that the dead have logged of it, and says whether it
    /// lacked anything. What stands before the last formatting is not looked at. An error leaves
    /// the block in between.
    pub fn apply(&self, dba: Dba, block: &mut BlockBuf) -> Result<bool> {
        let vectors = self.of(dba);
        let begin = vectors.iter().rposition(|v| v.before.is_none());
        let mut changed = false;
        for v in &vectors[begin.unwrap_or(0)..] {
            let payload = &self.payloads[v.payload_at..][..usize::from(v.payload_len)];
            let vector = Vector {
                dba,
                object: v.object,
                op: v.op,
                before: v.before,
                payload,
            };
            changed |= apply_vector(block, v.scn, &vector).map_err(|what| Error::Replay {
                thread: v.thread.0,
                pos: v.pos,
                dba,
                what,
            })?;
        }
        Ok(changed)
    }
}
