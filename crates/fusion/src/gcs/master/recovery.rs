//! Notices of holders (released, written), and what becomes of blocks whose owner died.

use super::*;

impl Master {
    pub(in crate::gcs) fn released(
        &mut self,
        block: Dba,
        from: InstanceId,
        turn: Turn,
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        if entry.holders.get(&from).is_none_or(|h| h.turn != turn) {
            return;
        }
        let let_go = entry.holders.remove(&from).expect("looked up above");
        let served = entry.service.is_some();
        if let_go.duty && !served {
            self.disk_is_newest(block, out); // what is dirty is written before it is let go
        }
        match served {
            true => self.tidy(block),
            // A request of the instance that let go may have overtaken this notice.
            false => self.pump(block, out),
        }
    }

    pub(in crate::gcs) fn stepped_down(
        &mut self,
        block: Dba,
        from: InstanceId,
        turn: Turn,
        out: &mut Vec<Effect>,
    ) {
        let holding = self
            .entries
            .get_mut(&block)
            .and_then(|e| e.holders.get_mut(&from));
        if let Some(holding) = holding.filter(|h| h.turn == turn) {
            holding.mode = Mode::Shared;
            self.pump(block, out);
        }
    }

    /// Notes that this version of the block is on disk.
    pub(in crate::gcs) fn wrote(&mut self, block: Dba, version: Scn, out: &mut Vec<Effect>) {
        self.unwritten.remove(&block);
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        entry.images.retain(|&to, image| {
            let older = *image <= version;
            if older {
                let message = Message::Written { block, version };
                out.push(Effect::Send { to, message });
            }
            !older
        });
        self.tidy(block);
    }

    /// Forgets every past image: nobody owes a write, so what is on disk supersedes them.
    pub(super) fn disk_is_newest(&mut self, block: Dba, out: &mut Vec<Effect>) {
        self.unwritten.remove(&block);
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        for (to, version) in std::mem::take(&mut entry.images) {
            let message = Message::Written { block, version };
            out.push(Effect::Send { to, message });
        }
    }

    /// Has the newest version written, because a checkpoint or a recovery waits for it.
    pub(in crate::gcs) fn write_wanted(&mut self, block: Dba, out: &mut Vec<Effect>) {
        let halted = self.halted(block);
        let Some(entry) = self.entries.get_mut(&block) else {
            if !halted {
                self.unwritten.remove(&block); // nobody holds it: disk is the newest version (R4)
            }
            return;
        };
        if entry.service.is_some() || halted {
            entry.write_wanted = true;
            return;
        }
        match entry.holders.iter().find(|(_, h)| h.duty) {
            Some((&to, holding)) => {
                let turn = holding.turn;
                let message = Message::WriteOrder { block, turn };
                out.push(Effect::Send { to, message });
            }
            None => self.disk_is_newest(block, out),
        }
    }

    /// Has a block written for a past image that the directory does not know of, because the notice
    /// of the image was lost.
    pub(in crate::gcs) fn image_waits(
        &mut self,
        block: Dba,
        from: InstanceId,
        version: Scn,
        out: &mut Vec<Effect>,
    ) {
        let entry = self.entry_for_later(block);
        let image = entry.images.entry(from).or_insert(version);
        *image = version.max(*image);
        self.write_wanted(block, out);
        self.tidy(block);
    }

    // ---- recovery ----

    /// Rebuilds a block's entry when all its declarations are in. `lost`: the dead may have held
    /// the block, or their redo names it.
    pub(in crate::gcs) fn rebuilt(
        &mut self,
        block: Dba,
        declared: &BTreeMap<InstanceId, Declaration>,
        lost: bool,
        recoverer: InstanceId,
        out: &mut Vec<Effect>,
    ) {
        self.rebuilding.remove(&block);
        let entry = self.entries.entry(block).or_default();
        entry.service = None;
        entry.holders.clear();
        entry.images.clear();
        let is_there = those_that_are_there(declared);
        for (&from, declaration) in declared {
            if let Some(held) = declaration.held.filter(&is_there) {
                let holding = Holding {
                    mode: held.mode,
                    turn: held.turn,
                    id: held.id,
                    duty: held.duty,
                };
                entry.holders.insert(from, holding);
            }
            entry.images.extend(declaration.image.map(|v| (from, v)));
        }
        let owed = lost || !entry.images.is_empty();
        if owed && entry.holders.values().all(|h| !h.duty) {
            self.inherit(block, recoverer, out);
        }
        if lost {
            self.keep_threads_for(block, out);
        }
        self.pump(block, out);
    }

    pub(super) fn recover(&mut self, block: Dba, executor: InstanceId, out: &mut Vec<Effect>) {
        let turn = self.turn(block);
        let entry = self.entries.get_mut(&block).expect("being rebuilt");
        entry.service = Some(Service::unasked(executor, None, turn, Phase::Recovering));
        self.drive(block, out);
    }

    /// Lets the first shared holder owe the write from now on (17b). If no holder is left, the
    /// block is recovered.
    pub(super) fn inherit(&mut self, block: Dba, recoverer: InstanceId, out: &mut Vec<Effect>) {
        if self.planted.breaks(Mutation::NoInheritedDuty) {
            return;
        }
        let turn = self.turn(block);
        let entry = self.entries.get_mut(&block).expect("being rebuilt");
        let Some((&heir, holding)) = entry.holders.iter().next() else {
            let newest = entry.images.iter().max_by_key(|(_, version)| **version);
            let executor = newest.map_or(recoverer, |(&i, _)| i);
            self.recover(block, executor, out);
            return;
        };
        let have = Some(holding.turn);
        entry.service = Some(Service::unasked(heir, have, turn, Phase::Inheriting));
        self.drive(block, out);
    }

    pub(in crate::gcs) fn inherited(&mut self, block: Dba, turn: Turn, out: &mut Vec<Effect>) {
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        let current = |s: &&Service| s.turn == turn && s.phase == Phase::Inheriting;
        let Some(heir) = entry
            .service
            .as_ref()
            .filter(current)
            .map(|s| s.request.from)
        else {
            return;
        };
        entry.service = None;
        if let Some(holding) = entry.holders.get_mut(&heir) {
            holding.duty = true;
        }
        self.pump(block, out);
    }

    /// Keeps the dead threads until this block is on disk.
    pub(in crate::gcs) fn keep_threads_for(&mut self, block: Dba, out: &mut Vec<Effect>) {
        if self.entries.contains_key(&block) {
            self.unwritten.insert(block);
            self.write_wanted(block, out);
        }
    }

    pub(in crate::gcs) fn recovered(
        &mut self,
        block: Dba,
        from: InstanceId,
        (turn, id, served, holds): (Turn, RequestId, Option<RequestId>, bool),
        out: &mut Vec<Effect>,
    ) {
        let done = &mut self.served.entry(from).or_default().done;
        done.extend(served);
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        let current = |s: &&mut Service| s.turn == turn && s.phase == Phase::Recovering;
        if entry.service.as_mut().filter(current).is_none() {
            return;
        }
        entry.service = None;
        if !holds {
            self.disk_is_newest(block, out);
            self.pump(block, out);
            return;
        }
        entry.queue.retain(|r| r.from != from || r.id > id);
        let holding = Holding {
            mode: Mode::Exclusive,
            turn,
            id,
            duty: true,
        };
        entry.holders.insert(from, holding);
        self.pump(block, out);
    }

    /// Removes the dead from the directory. Returns the blocks that are to be declared anew.
    pub(in crate::gcs) fn bury(&mut self, living: &BTreeSet<InstanceId>) -> Vec<Dba> {
        let unfinished = std::mem::take(&mut self.rebuilding);
        let mut anew: BTreeSet<Dba> = unfinished.into_keys().collect();
        self.entries.retain(|&block, entry| {
            entry.queue.clear(); // driven again by their requesters
            entry.reads.clear();
            let dead_owner = |(i, h): (&InstanceId, &Holding)| h.duty && !living.contains(i);
            let served = entry.service.take().is_some(); // what it was about is declared anew
            if served || entry.holders.iter().any(dead_owner) {
                anew.insert(block);
            }
            if !anew.contains(&block) {
                entry.holders.retain(|i, _| living.contains(i));
                entry.images.retain(|i, _| living.contains(i));
            }
            *entry != Entry::default()
        });
        anew.into_iter().collect()
    }

    pub(in crate::gcs) fn forget_requests_of(&mut self, instance: InstanceId) {
        self.served.remove(&instance);
    }

    pub(in crate::gcs) fn tidy(&mut self, block: Dba) {
        if self.entries.get(&block) == Some(&Entry::default()) {
            self.entries.remove(&block);
        }
    }
}

/// Which of the declared copies are still there.
///
/// A notice that a copy was let go means nothing to a master that is still asked for declarations.
/// A master that takes a granule waits for members that have not heard of the term. One of them, as
/// master of the hash bucket, may have served the block meanwhile. So two declared copies may
/// contradict each other.
///
/// Turns decide: when a holder was served under a turn, an exclusive copy of an earlier turn was
/// gone, and so was everything that an exclusive grant took back (R1).
fn those_that_are_there(
    declared: &BTreeMap<InstanceId, Declaration>,
) -> impl Fn(&DeclaredHold) -> bool + use<> {
    let held = || declared.values().filter_map(|d| d.held);
    let exclusive = |h: &DeclaredHold| h.mode == Mode::Exclusive;
    let latest = held().map(|h| h.turn).max();
    let latest_exclusive = held().filter(exclusive).map(|h| h.turn).max();
    move |h| {
        let turn = Some(h.turn);
        turn >= latest_exclusive && (!exclusive(h) || turn == latest)
    }
}
