//! How a shard enters an epoch. The directory of what came to this master is rebuilt from all
//! members' declarations, part by part; everything else goes on.

use super::*;

impl Shard {
    /// The connection to `peer` broke and is back: messages either way may have been lost.
    pub fn reconnected(&mut self, peer: InstanceId, out: &mut Vec<Effect>) {
        self.drive_again(out);
        let misses = |r: &&Dba| self.master.rebuilding[r].missing.contains(&peer);
        let blocks: Vec<Dba> = self
            .master
            .rebuilding
            .keys()
            .filter(misses)
            .copied()
            .collect();
        let mut buckets = Vec::new();
        for (&bucket, frozen) in &self.master.frozen {
            match frozen.missing.get(&peer) {
                Some(None) => buckets.push(bucket),
                Some(&Some(after)) => self.send(peer, Message::DeclareMore { bucket, after }, out),
                None => {}
            }
        }
        match self.untaught.get(&peer) {
            Some(&after) => self.send(peer, Message::TakenWanted { after }, out),
            None if self.untaught.is_empty() => {
                self.want_declarations([peer], &buckets, &blocks, out);
            }
            None => {}
        }
        if self.pass_one.is_some() {
            self.send_dead_redo(peer, None, out);
        }
        if peer == self.recoverer {
            self.ask_for_more_dead_redo(out);
        }
        self.reported = false;
        self.settle(out);
    }

    /// Drives this instance's requests, and its services for others, again.
    pub(super) fn drive_again(&mut self, out: &mut Vec<Effect>) {
        self.holder_step(out, |h, master, out| h.ask_again(&ALL, master, out));
        for block in self.master.in_service() {
            self.master.drive(block, out);
        }
        for block in self.master.unwritten.clone() {
            self.master.write_wanted(block, out);
        }
    }

    /// Enters a new epoch.
    pub fn reconfigure(&mut self, plan: Plan, out: &mut Vec<Effect>) {
        assert!(plan.epoch > self.epoch, "epochs rise");
        assert!(
            plan.members.iter().any(|m| m.instance == self.me),
            "an instance that is no member ends"
        );
        for gone in self.members.difference(&plan.members) {
            self.master.forget_requests_of(gone.instance);
            out.push(Effect::DropCopies {
                supplier: gone.instance,
            });
        }
        let old_masters = self.master.masters.plan(plan.masters);
        let has_just_come = self.epoch == Epoch(0);
        let survivors: BTreeSet<InstanceId> = self
            .members
            .intersection(&plan.members)
            .map(|m| m.instance)
            .collect();
        self.epoch = plan.epoch;
        self.members = plan.members;
        self.quiet = plan.recovering.is_empty();
        self.recovering = plan.recovering;
        self.recoverer = plan.recoverer;
        self.dead_redo = self.recovering.is_empty().then(BTreeMap::new);
        self.named.clear();
        self.of_frozen.clear();
        self.reported = false;
        self.pass_one = None;
        self.finished.clear();
        let waited = self.holder.void_orders(&ALL, out);
        self.ask_what_is_taken(has_just_come, out);
        self.rebuild_directory(&old_masters, &survivors, out);
        self.holder_step(out, |h, master, out| h.resume(&ALL, &waited, master, out));
        self.settle(out);
    }

    fn rebuild_directory(
        &mut self,
        old_masters: &[InstanceId],
        survivors: &BTreeSet<InstanceId>,
        out: &mut Vec<Effect>,
    ) {
        let members: BTreeSet<InstanceId> = self.members.iter().map(|m| m.instance).collect();
        self.master.epoch = self.epoch;
        self.master.unwritten.clear();
        let unfinished = std::mem::take(&mut self.master.frozen);
        let mut came = self.granules_that_came(&unfinished, survivors, out);
        for at in 0..self.master.masters.buckets() {
            let bucket = Bucket::Hash(at);
            let mine_before = old_masters.get(usize::from(at)) == Some(&self.me)
                && !unfinished.contains_key(&bucket);
            if self.master.masters.of_bucket(at) == self.me && !mine_before {
                came.insert(bucket);
            }
        }
        for &bucket in &came {
            self.freeze(bucket);
        }
        let came: Vec<Bucket> = came.into_iter().collect();
        let (m, me) = (&self.master, self.me);
        let stays = |block: &Dba| m.masters.master(*block) == me && !m.is_frozen(*block);
        let known = m.entries.keys().chain(m.rebuilding.keys());
        let goes: Vec<Dba> = known.copied().filter(|b| !stays(b)).collect();
        for block in goes {
            self.master.entries.remove(&block);
            self.master.rebuilding.remove(&block);
        }
        let anew = self.master.bury(survivors);
        for &block in &anew {
            let missing = members.clone();
            let declared = BTreeMap::new();
            let rebuilding = Rebuilding { missing, declared };
            self.master.rebuilding.insert(block, rebuilding);
        }
        if self.untaught.is_empty() {
            self.want_declarations(members, &came, &anew, out);
        }
    }

    /// Freezes a bucket that came to this master until every member has declared what it has of the
    /// bucket.
    pub(super) fn freeze(&mut self, bucket: Bucket) {
        let frozen = FrozenBucket {
            missing: self.members.iter().map(|m| (m.instance, None)).collect(),
            ..FrozenBucket::default()
        };
        self.master.frozen.insert(bucket, frozen);
    }

    pub(super) fn want_declarations(
        &self,
        of: impl IntoIterator<Item = InstanceId>,
        buckets: &[Bucket],
        blocks: &[Dba],
        out: &mut Vec<Effect>,
    ) {
        for to in of {
            for buckets in buckets.chunks(BUCKETS_PER_STEP) {
                let buckets = buckets.to_vec();
                let blocks = Vec::new();
                self.send(to, Message::DeclareWanted { buckets, blocks }, out);
            }
            for blocks in blocks.chunks(self.part) {
                let blocks = blocks.to_vec();
                let buckets = Vec::new();
                self.send(to, Message::DeclareWanted { buckets, blocks }, out);
            }
        }
    }

    pub(super) fn declare(
        &mut self,
        to: InstanceId,
        buckets: &[Bucket],
        blocks: &[Dba],
        out: &mut Vec<Effect>,
    ) {
        let mut by_hash = BTreeSet::new();
        for &bucket in buckets {
            match bucket {
                Bucket::Hash(bucket) => {
                    by_hash.insert(bucket);
                }
                Bucket::Granule(granule, term) => self.declare_granule(to, granule, term, out),
            }
        }
        if !by_hash.is_empty() {
            let masters = &self.master.masters;
            let parts = self.holder.declare_buckets(&by_hash, masters, self.part);
            for (bucket, part) in parts {
                self.send_declaration(to, (Bucket::Hash(bucket), None), part, out);
            }
        }
        if !blocks.is_empty() {
            let declare = |&block: &Dba| (block, self.holder.declare_block(block));
            let blocks = blocks.iter().map(declare).collect();
            self.send(to, Message::DeclareBlocks { blocks }, out);
        }
    }

    pub(super) fn declare_more(
        &mut self,
        to: InstanceId,
        bucket: Bucket,
        after: Dba,
        out: &mut Vec<Effect>,
    ) {
        let from = (bucket, Some(after));
        let part = self
            .holder
            .declare_behind(from, &self.master.masters, self.part);
        self.send_declaration(to, from, part, out);
    }

    pub(super) fn send_declaration(
        &self,
        to: InstanceId,
        (bucket, after): (Bucket, Option<Dba>),
        (blocks, more): Part,
        out: &mut Vec<Effect>,
    ) {
        let message = Message::Declare {
            bucket,
            after,
            blocks,
            more,
        };
        self.send(to, message, out);
    }

    pub(super) fn declared(
        &mut self,
        from: InstanceId,
        (bucket, after): (Bucket, Option<Dba>),
        (blocks, more): (Vec<(Dba, Declaration)>, bool),
        out: &mut Vec<Effect>,
    ) {
        let Some(frozen) = self.master.frozen.get_mut(&bucket) else {
            return;
        };
        if frozen.missing.get(&from) != Some(&after) {
            self.open_bucket(bucket, out); // a late copy, or this shard's own reminder
            return;
        }
        let last = blocks.last().map(|(block, _)| *block);
        for (block, declaration) in blocks {
            let block = frozen.declared.entry(block).or_default();
            block.insert(from, declaration);
        }
        match last {
            Some(after) if more => {
                frozen.missing.insert(from, Some(after));
                self.send(from, Message::DeclareMore { bucket, after }, out);
            }
            _ => {
                frozen.missing.remove(&from);
                self.open_bucket(bucket, out);
            }
        }
    }

    pub(super) fn blocks_declared(
        &mut self,
        from: InstanceId,
        blocks: Vec<(Dba, Declaration)>,
        out: &mut Vec<Effect>,
    ) {
        for (block, declaration) in blocks {
            let Some(rebuilding) = self.master.rebuilding.get_mut(&block) else {
                continue;
            };
            if rebuilding.missing.remove(&from) {
                rebuilding.declared.insert(from, declaration);
            }
            self.rebuild(block, out);
        }
    }

    /// Rebuilds a single block's entry when everything is known.
    ///
    /// If a member owes a block's write, its version is the newest. Of any other block that holds
    /// only if no image of it was declared and the dead threads do not name it. So for such a block
    /// this waits for the names in the dead threads.
    fn rebuild(&mut self, block: Dba, out: &mut Vec<Effect>) {
        let Some(rebuilding) = self.master.rebuilding.get_mut(&block) else {
            return;
        };
        let owed = |d: &Declaration| d.held.is_some_and(|h| h.duty);
        let owed = rebuilding.declared.values().any(owed);
        if !rebuilding.missing.is_empty() || !owed && self.dead_redo.is_none() {
            return;
        }
        let declared = std::mem::take(&mut rebuilding.declared);
        let lost = self.named.contains(&block);
        self.master
            .rebuilt(block, &declared, lost, self.recoverer, out);
    }

    /// Opens a frozen bucket when everything is known.
    fn open_bucket(&mut self, bucket: Bucket, out: &mut Vec<Effect>) {
        let (Some(frozen), Some(dead_redo)) =
            (self.master.frozen.get(&bucket), &mut self.dead_redo)
        else {
            return;
        };
        let hasty =
            self.planted.breaks(Mutation::OpenUndeclared) && matches!(bucket, Bucket::Granule(..));
        if !frozen.missing.is_empty() && !hasty {
            return;
        }
        let lost: BTreeSet<Dba> = match bucket {
            Bucket::Hash(bucket) => {
                let lost = dead_redo.remove(&bucket).unwrap_or_default();
                lost.into_iter().collect()
            }
            Bucket::Granule(granule, _) => {
                let blocks = self.master.masters.blocks(granule);
                self.named.range(blocks).copied().collect()
            }
        };
        let frozen = self.master.frozen.remove(&bucket).expect("just seen");
        let recoverer = self.recoverer;
        let blocks: BTreeSet<Dba> = frozen.declared.keys().chain(&lost).copied().collect();
        let nothing = BTreeMap::new();
        for &block in &blocks {
            // A block may belong to another master's granule, or to a granule that is frozen for
            // itself and opens later.
            let masters = &self.master.masters;
            let rebuilt_with = masters.rebuilt_with(block).contains(&Some(bucket));
            if !rebuilt_with || masters.master(block) != self.me || self.master.is_frozen(block) {
                continue;
            }
            let declared = frozen.declared.get(&block).unwrap_or(&nothing);
            let lost = lost.contains(&block);
            self.master.rebuilt(block, declared, lost, recoverer, out);
        }
        for block in frozen.asked {
            self.master.pump(block, out);
        }
        if let Bucket::Granule(granule, _) = bucket {
            out.push(Effect::GranuleOpened { granule });
        }
    }
}
