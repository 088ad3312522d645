//! What redo says about transactions: which committed at which SCN, and which must be rolled back
//! from which undo record.
//!
//! Feed every record of the thread, from its checkpoint position on, to [`TxnRecovery::record`],
//! and every e(n) that a batch header gives to [`TxnRecovery::group`]; then give the whole to
//! [`TxnManager::recover`](crate::TxnManager::recover).
//!
//! **Rule.** A list of active transactions counts only for transactions of which no record has been
//! seen. The list is taken at the first of the checkpoint's markers, and its parts are logged
//! later. So a record that stands before a part may carry a newer undo head than the part says. The
//! checkpoint position is at or below that first marker, hence nothing is missed.

use crate::{Error, Result, active};
use block::record::Record;
use block::{LastGroups, Op, Scn, TxnId, UndoPtr};
use redo::BatchNo;
use seam::HashMap;
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    /// The transaction's undo head after its last record.
    Active(UndoPtr),
    Ended,
}

/// Collects from redo what the module's head describes.
#[derive(Default)]
pub struct TxnRecovery {
    seen: HashMap<TxnId, Seen>,
    groups: BTreeMap<BatchNo, Vec<TxnId>>,
    committed: Vec<(TxnId, Scn)>,
}

/// The collected result.
pub(crate) struct Outcome {
    pub(crate) committed: Vec<(TxnId, Scn)>,
    pub(crate) losers: Vec<(TxnId, UndoPtr)>,
}

impl TxnRecovery {
    /// Takes the next record, which stands in `batch`.
    pub fn record(&mut self, batch: BatchNo, record: &Record<'_>) -> Result<()> {
        if !record.txn.is_none() {
            self.seen.insert(record.txn, Seen::Active(record.undo_head));
        }
        for v in record.vectors() {
            match v.op {
                Op::Commit => {
                    self.seen.insert(record.txn, Seen::Ended);
                    self.groups.entry(batch).or_default().push(record.txn);
                }
                Op::RollbackEnd => {
                    self.seen.insert(record.txn, Seen::Ended);
                }
                Op::ActiveTransactions => {
                    for (txn, head) in active::decode(v.payload)? {
                        self.seen.entry(txn).or_insert(Seen::Active(head));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Notes that the transactions of `batch` committed at `e`.
    pub fn group(&mut self, batch: BatchNo, e: Scn) {
        let txns = self.groups.remove(&batch).unwrap_or_default();
        self.committed.extend(txns.into_iter().map(|txn| (txn, e)));
    }

    /// Ends the collection. `last` says when the thread's last groups took effect, whose SCNs no
    /// header of the thread gives. It is an error if the SCN of an earlier group is missing, too.
    pub(crate) fn finish(mut self, last: LastGroups) -> Result<Outcome> {
        for batch in self.groups.keys().copied().collect::<Vec<_>>() {
            let e = last.scn_of(batch.0).ok_or_else(|| {
                let what = format!("redo does not say when batch {} took effect", batch.0);
                Error::Corrupt(what)
            })?;
            self.group(batch, e);
        }
        let losers = self.seen.into_iter().filter_map(|(txn, seen)| match seen {
            Seen::Active(head) => Some((txn, head)),
            Seen::Ended => None,
        });
        Ok(Outcome {
            committed: self.committed,
            losers: losers.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::record::RecordWriter;
    use block::{InstanceId, LogPos};

    fn feed(r: &mut TxnRecovery, batch: u64, txn: TxnId, head: u64, marker: Option<(Op, Vec<u8>)>) {
        let mut bytes = Vec::new();
        let mut w = RecordWriter::new(&mut bytes, txn, UndoPtr(head));
        if let Some((op, payload)) = marker {
            w.marker(op, &payload);
        }
        w.finish();
        r.record(BatchNo(batch), &Record::parse(&bytes, LogPos(0)).unwrap().0)
            .unwrap();
    }

    #[test]
    fn heads_commits_and_losers() {
        let t = |n| TxnId::new(InstanceId(1), n);
        let mut r = TxnRecovery::default();
        feed(&mut r, 1, t(1), 10, None);
        feed(&mut r, 1, t(2), 20, None);
        feed(&mut r, 1, t(1), 11, Some((Op::Commit, vec![])));
        // The list was taken before these records: it knows t1 and an older head of t2, and it
        // alone knows t3.
        let list = active::encode(&[
            (t(1), UndoPtr(10)),
            (t(2), UndoPtr(19)),
            (t(3), UndoPtr(30)),
        ]);
        feed(
            &mut r,
            2,
            TxnId::NONE,
            0,
            Some((Op::ActiveTransactions, list)),
        );
        feed(&mut r, 2, t(4), 40, None);
        feed(&mut r, 2, t(4), 0, Some((Op::RollbackEnd, vec![])));
        feed(&mut r, 3, t(5), 50, Some((Op::Commit, vec![])));
        r.group(BatchNo(1), Scn(100));
        r.group(BatchNo(2), Scn(101));
        let last = [(3, Scn(500))].into_iter().collect();
        let mut o = r.finish(last).unwrap();
        o.losers.sort_by_key(|(txn, _)| txn.0);
        assert_eq!(o.committed, [(t(1), Scn(100)), (t(5), Scn(500))]);
        assert_eq!(o.losers, [(t(2), UndoPtr(20)), (t(3), UndoPtr(30))]);
    }
}
