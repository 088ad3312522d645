//! Readers in the world: what they ask, what they are told, and which verdicts cannot stand
//! together.

use super::*;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Reader {
    pub(super) node: usize,
    pub(super) scn: Scn,
    /// The transactions, as bits, that had been shown to a client before this snapshot was taken.
    pub(super) required: u8,
    pub(super) asked: u8,
    pub(super) verdicts: Vec<Option<bool>>,
    pub(super) replied: bool,
}

impl World {
    pub(super) fn reader_actions(&self, all: &mut Vec<Action>) {
        for (r, reader) in self.readers.iter().enumerate() {
            if self.cut_off(reader.node) || self.nodes[reader.node].is_none() {
                continue;
            }
            for t in 0..self.config.owners.len() {
                let again = self.config.asks_again && reader.verdicts[t].is_some();
                let unasked = reader.asked & (1 << t) == 0;
                if (unasked || again) && self.who_answers(reader.node, t).is_some() {
                    all.push(Action::Ask(r, t));
                }
                if self.disk_stamp[t].is_some()
                    && reader.verdicts[t].is_none()
                    && self.who_answers(reader.node, t).is_some()
                {
                    all.push(Action::GrantDisk(r, t));
                }
            }
            if !reader.replied && reader.verdicts.contains(&Some(true)) {
                all.push(Action::Reply(r));
            }
        }
    }

    /// The instance that answers questions about a transaction: its owner, or after the owner's
    /// death the one that took over its undo. Until then questions wait.
    pub(super) fn who_answers(&self, asker: usize, t: usize) -> Option<usize> {
        let owner = self.config.owners[t];
        if self.nodes[owner].is_some() {
            return Some(owner);
        }
        let entered = self.nodes[asker].as_ref();
        let entered = entered.is_some_and(|n| n.epoch == self.epoch);
        (self.recovered && entered).then(|| self.heir())
    }

    pub(super) fn snapshot(&mut self, n: usize) {
        self.look_unless(Mutation::MemoryUnreadBySnapshots, n);
        let node = self.nodes[n].as_ref().expect("enabled");
        self.readers.push(Reader {
            node: n,
            scn: node.machine.clock(),
            required: self.shown,
            asked: 0,
            verdicts: vec![None; self.config.owners.len()],
            replied: false,
        });
    }

    pub(super) fn ask(&mut self, r: usize, t: usize) {
        let (from, snapshot) = (self.readers[r].node, self.readers[r].scn);
        self.readers[r].asked |= 1 << t;
        let to = self.who_answers(from, t).expect("enabled");
        if to == from {
            self.with(from, |node, out| {
                let status = node.status.clone();
                let look = |txn: TxnId| status[txn.0 as usize - 1];
                node.machine
                    .asked(instance(from), txn_id(t), snapshot, look, out);
            });
        } else {
            let txn = txn_id(t);
            self.post(from, to, Body::Commit(Message::Ask { txn, snapshot }));
        }
    }

    pub(super) fn reply(&mut self, r: usize) {
        self.readers[r].replied = true;
        let reader = self.readers[r].clone();
        let node = self.nodes[reader.node].as_ref().expect("enabled");
        let shown = (0..reader.verdicts.len())
            .filter(|&t| reader.verdicts[t] == Some(true))
            .filter_map(|t| node.known[t].or(self.disk_stamp[t]))
            .max()
            .expect("something is visible");
        self.with(reader.node, |node, out| {
            let id = ReplyId(100 + r as u64);
            node.machine.gate(id, Shown::UpTo(shown), out);
        });
    }

    pub(super) fn learn(&mut self, n: usize, t: usize, verdict: Verdict, from_row: bool) {
        if let (Verdict::Committed(scn), Some(node)) = (verdict, self.nodes[n].as_mut()) {
            node.known[t] = Some(scn);
        }
        for r in 0..self.readers.len() {
            let reader = &self.readers[r];
            if reader.node != n || (!from_row && reader.asked & (1 << t) == 0) {
                continue;
            }
            match verdict {
                Verdict::Committed(scn) => self.conclude(r, t, scn <= reader.scn),
                Verdict::ActiveTo(limit) if reader.scn <= limit => self.conclude(r, t, false),
                Verdict::ActiveTo(_) => {}
            }
        }
    }

    pub(super) fn conclude(&mut self, r: usize, t: usize, visible: bool) {
        let reader = &mut self.readers[r];
        if reader.verdicts[t].is_some_and(|v| v != visible) {
            self.violation = Some("a snapshot changed its mind");
        }
        reader.verdicts[t] = Some(visible);
        if reader.required & (1 << t) != 0 && !visible {
            self.violation = Some("what a client had been shown is not seen by a later snapshot");
        }
        let last = reader.verdicts.last().copied().flatten();
        if (reader.verdicts[self.config.rests_on], last) == (Some(false), Some(true)) {
            self.violation = Some("a transaction is seen without the one that it rests on");
        }
    }
}
