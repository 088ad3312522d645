//! Redo threads in the world: groups that are issued, durable, drawn and published, and the
//! contents of their batch headers.

use super::*;

/// A redo thread.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Thread {
    /// Batches that were issued and are not durable, oldest first. An instance that dies leaves
    /// nothing of them: a batch that is on disk behind a missing one counts for nothing.
    in_flight: Vec<Batch>,
    /// The last group that is durable.
    pub(super) durable: GroupNo,
    /// The contents of the durable batches, together.
    pub(super) on_disk: Batch,
}

/// The contents of a batch: what its instance knew when the batch was closed, however late it is
/// durable.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Batch {
    /// When groups of the batch's own thread took effect.
    pub(super) own: BTreeMap<GroupNo, Scn>,
    pub(super) evidence: BTreeSet<Evidence>,
    /// The highest SCN in the batch.
    pub(super) highest: Scn,
}

impl Thread {
    fn issued(&self) -> GroupNo {
        GroupNo(self.durable.0 + self.in_flight.len() as u64)
    }

    fn write(&mut self, mut batch: Batch) {
        self.on_disk.own.append(&mut batch.own);
        self.on_disk.evidence.append(&mut batch.evidence);
        self.on_disk.highest = self.on_disk.highest.max(batch.highest);
    }

    /// Durable groups whose SCN stands in no durable header.
    pub(super) fn undecided(&self) -> impl Iterator<Item = GroupNo> {
        let durable = (1..=self.durable.0).map(GroupNo);
        durable.filter(|group| !self.on_disk.own.contains_key(group))
    }
}

impl World {
    pub(super) fn txn_actions(&self, t: usize, all: &mut Vec<Action>) {
        let owner = self.config.owners[t];
        let Some(node) = &self.nodes[owner] else {
            return;
        };
        let (thread, group) = (&self.threads[owner], self.config.group_of(t));
        let last = t + 1 == self.config.owners.len() && t != self.config.rests_on;
        let first = self.config.rests_on;
        let first_is_known = node.known[first].is_some() || self.shown & (1 << first) != 0;
        if thread.issued().0 + 1 == group.0
            && self.may_issue(owner, group)
            && (first_is_known || !last)
        {
            all.push(Action::Log(t));
        }
        if thread.durable.0 + 1 == group.0 && !thread.in_flight.is_empty() {
            all.push(Action::Flush(t));
        }
        let published = node.known[t].is_some();
        let may_write = thread.on_disk.own.contains_key(&group) || self.config.early_cleanout;
        if self.config.cleanouts && published && may_write && self.disk_stamp[t].is_none() {
            all.push(Action::CleanToDisk(t));
        }
    }

    pub(super) fn thread_actions(&self, n: usize, all: &mut Vec<Action>) {
        let Some(node) = &self.nodes[n] else { return };
        if node.drawing.is_some() {
            all.push(Action::Mark(n));
        }
        if node.publishing.is_some() {
            all.push(Action::Publish(n));
        }
        let thread = &self.threads[n];
        let to_say = thread
            .undecided()
            .any(|group| self.own_scn(n, group).is_some());
        if to_say && thread.in_flight.is_empty() {
            all.push(Action::Heartbeat(n));
        }
    }

    /// Whether a group may be issued. Batch n carries the SCN of group n - [`LAST_GROUPS`], which
    /// must have been drawn.
    fn may_issue(&self, owner: usize, group: GroupNo) -> bool {
        let carried = group.0.saturating_sub(LAST_GROUPS as u64);
        carried == 0 || self.own_scn(owner, GroupNo(carried)).is_some()
    }

    /// When a group of the instance's own thread took effect, as far as the instance has drawn it.
    fn own_scn(&self, n: usize, group: GroupNo) -> Option<Scn> {
        let node = self.nodes[n].as_ref().expect("the living are asked");
        node.known[self.config.txn_in(n, group)]
    }

    /// Closes a batch with what its instance knows now.
    fn close(&self, n: usize) -> Batch {
        let node = self.nodes[n].as_ref().expect("the living write");
        let issued = (1..=self.threads[n].issued().0).map(GroupNo);
        let own = issued.filter_map(|group| Some((group, self.own_scn(n, group)?)));
        Batch {
            own: own.collect(),
            evidence: node.machine.evidence_for_redo().collect(),
            highest: node.machine.clock(),
        }
    }

    /// Puts a commit record into the log, and closes and issues its batch at once, with as little
    /// knowledge as possible.
    pub(super) fn log(&mut self, t: usize) {
        let owner = self.config.owners[t];
        let node = self.nodes[owner].as_mut().expect("enabled");
        let record = Scn(node.machine.clock().0 + 1);
        node.machine.lift(record);
        let batch = self.close(owner);
        self.threads[owner].in_flight.push(batch);
    }

    pub(super) fn flush(&mut self, t: usize) {
        let owner = self.config.owners[t];
        let thread = &mut self.threads[owner];
        let batch = thread.in_flight.remove(0);
        thread.write(batch);
        thread.durable = self.config.group_of(t);
        self.begin_draw(owner);
    }

    /// Begins to draw the next group's SCN. Groups take effect one by one: a group that is durable
    /// before the last one has been published waits.
    fn begin_draw(&mut self, n: usize) {
        let node = self.nodes[n].as_ref().expect("the living draw");
        let next = GroupNo(node.machine.header().newest.0 + 1);
        let busy = node.drawing.is_some() || node.publishing.is_some();
        if !busy && next <= self.threads[n].durable {
            self.with(n, |node, out| node.machine.group_durable(next, out));
        }
    }

    /// Issues an empty batch, which waits for nothing.
    pub(super) fn heartbeat(&mut self, n: usize) {
        let batch = self.close(n);
        self.threads[n].write(batch);
    }

    /// Announces a group to every instance: through memory if the instance has offered it and is in
    /// this epoch, otherwise by message. An instance that died has memory until its death is known.
    /// The committing client waits at the gate from then on.
    pub(super) fn publish(&mut self, n: usize) {
        let mut out = Vec::new();
        let node = self.nodes[n].as_mut().expect("enabled");
        let group = node.publishing.take().expect("enabled");
        let t = self.config.txn_in(n, group);
        node.status[t] = Status::Committed(node.known[t].expect("drawn"));
        let (status, epoch) = (node.status.clone(), node.epoch);
        let look = |txn: TxnId| status[txn.0 as usize - 1];
        node.machine.published(group, look, &mut out);
        for effect in out {
            match effect {
                Effect::Send {
                    to,
                    message: Message::Announce(evidence),
                    ..
                } if self.has_memory(node_of(to), epoch) => {
                    self.posted.push(((n, node_of(to)), evidence));
                    let Evidence {
                        instance, group, ..
                    } = evidence;
                    let heard = Message::Acknowledge { instance, group };
                    self.with(n, |node, out| node.machine.message(to, heard, look, out));
                }
                other => self.effect(n, other),
            }
        }
        self.posted.sort();
        let shown = Shown::Commit(instance(n), group);
        self.with(n, |node, out| {
            node.machine.gate(ReplyId(t as u64), shown, out)
        });
        self.begin_draw(n);
    }
}
