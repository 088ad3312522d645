//! How a shard deals with the blocks that dead threads name. The recoverer tells the names to
//! everybody, part by part. It hears from every master when that master needs the threads no more.

use super::*;

impl Shard {
    /// Takes the result of the recoverer's first pass: it has read the dead threads and found these
    /// blocks in them.
    pub fn pass_one(&mut self, blocks: BTreeSet<Dba>, out: &mut Vec<Effect>) {
        assert_eq!(self.recoverer, self.me, "only the recoverer reads");
        self.pass_one = Some(blocks);
        for to in self.members.iter().map(|m| m.instance).collect::<Vec<_>>() {
            self.send_dead_redo(to, None, out);
        }
        self.settle(out);
    }

    pub(super) fn send_dead_redo(&self, to: InstanceId, after: Option<Dba>, out: &mut Vec<Effect>) {
        let Some(pass_one) = &self.pass_one else {
            return;
        };
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        // Every member is told all names. Only the new master of a granule on the move knows which
        // of the blocks are its own.
        let believed = self.planted.breaks(Mutation::NamesByBelief);
        let his = |b: &&Dba| !believed || self.master.masters.master(**b) == to;
        let range = pass_one.range((behind, Bound::Unbounded));
        let mut blocks: Vec<Dba> = range.filter(his).take(self.part + 1).copied().collect();
        let more = blocks.len() > self.part;
        blocks.truncate(self.part);
        let message = Message::DeadRedo {
            after,
            blocks,
            more,
        };
        self.send(to, message, out);
    }

    pub(super) fn dead_redo(
        &mut self,
        after: Option<Dba>,
        (blocks, more): (Vec<Dba>, bool),
        out: &mut Vec<Effect>,
    ) {
        if self.dead_redo.is_some() || self.named.last() != after.as_ref() {
            return; // a late copy
        }
        for &block in &blocks {
            let bucket = bucket_of(block, self.master.masters.buckets());
            if self.master.frozen.contains_key(&Bucket::Hash(bucket)) {
                self.of_frozen.entry(bucket).or_default().push(block);
            }
            if !self.master.is_frozen(block) {
                self.master.keep_threads_for(block, out);
            }
        }
        self.named.extend(blocks);
        if more {
            self.ask_for_more_dead_redo(out);
            return;
        }
        self.dead_redo = Some(std::mem::take(&mut self.of_frozen));
        // Blocks that waited for the names go on, a part at a time.
        let waits = |r: &&Dba| self.master.rebuilding[r].missing.is_empty();
        let rebuilding: Vec<Dba> = self
            .master
            .rebuilding
            .keys()
            .filter(waits)
            .copied()
            .collect();
        for blocks in rebuilding.chunks(self.part) {
            let nothing_new = |&block: &Dba| (block, Declaration::default());
            let blocks = blocks.iter().map(nothing_new).collect();
            self.send(self.me, Message::DeclareBlocks { blocks }, out);
        }
        self.remind_of_the_declared(out);
    }

    /// Reminds this shard to go on with buckets that all members have declared, each in a step of
    /// its own.
    pub(super) fn remind_of_the_declared(&self, out: &mut Vec<Effect>) {
        let all_declared = |f: &(&Bucket, &FrozenBucket)| f.1.missing.is_empty();
        let declared = self.master.frozen.iter().filter(all_declared);
        for (&bucket, _) in declared {
            self.send_declaration(self.me, (bucket, None), Part::default(), out);
        }
    }

    pub(super) fn ask_for_more_dead_redo(&self, out: &mut Vec<Effect>) {
        if let Some(&after) = self.named.last() {
            self.send(self.recoverer, Message::DeadRedoMore { after }, out);
        }
    }

    /// Tells the recoverer when the dead threads are not needed here any more.
    pub(super) fn report(&mut self, out: &mut Vec<Effect>) {
        if self.recovering.is_empty() || self.reported || self.dead_redo.is_none() {
            return;
        }
        let m = &self.master;
        if m.frozen.is_empty() && m.rebuilding.is_empty() && m.unwritten.is_empty() {
            self.reported = true;
            self.send(self.recoverer, Message::RecoveryDone, out);
        }
    }
}
