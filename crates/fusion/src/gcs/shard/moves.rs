//! How a granule of blocks gets another master while the epoch goes on. The move is an epoch of its
//! own for these blocks alone.
//!
//! The new master takes the granule: it draws a higher term, freezes the granule and asks all
//! members to declare what they have of it, as a master does at a change of epoch. A member may
//! hear of the term by any message. From that moment nothing counts for it that was said about
//! these blocks under a lower term, and its requests go to the new master.
//!
//! The new master serves when every member has declared, and so has heard of the term. Everything
//! else goes on (20).
//!
//! **Invariants**
//! 1. A message about a block is looked at only under the term in which it was sent. An older one
//!    is answered by what is newer. A receiver learns from a newer one.
//! 2. Within an epoch a member's knowledge of a granule's term only rises. A master serves under a
//!    term when all members of its epoch have declared under it, and so know this term or a later
//!    one.
//! 3. A granule stays its master's over changes of epoch. When its master is gone, it belongs to
//!    the masters of its hash buckets again. Each of them that had known of the term has its part
//!    declared anew. A master that had not known of it has never given its part up, and nobody else
//!    has served that part.
//! 4. A joiner asks for the declarations of what it is to master only after every member has told
//!    it which granules the member has taken. Otherwise it would serve, by hash, blocks that belong
//!    to somebody.
//! 5. While redo of the dead is recovered, no granule is taken. A move that was under way goes on:
//!    its master has heard all names in the dead threads, as everybody has.

use super::*;

/// The most granules that one instance may take. They cost a map of a few MB at each member, and
/// cover 128 GiB of blocks.
pub const GRANULES_PER_MASTER: usize = 1 << 17;

impl Shard {
    /// The granule to which a block belongs.
    pub fn granule_of(&self, block: Dba) -> Granule {
        self.master.masters.granule(block)
    }

    /// The blocks of a granule.
    pub fn blocks_of(&self, granule: Granule) -> RangeInclusive<Dba> {
        self.master.masters.blocks(granule)
    }

    /// The master of a block, as far as this instance knows.
    pub fn master_of(&self, block: Dba) -> InstanceId {
        self.master.masters.master(block)
    }

    /// The term of a granule, as far as this instance knows.
    pub fn term(&self, granule: Granule) -> Term {
        self.master.masters.term(granule)
    }

    /// Granules that somebody has taken, as far as this instance knows.
    pub fn taken(&self) -> &BTreeMap<Granule, Term> {
        self.master.masters.taken()
    }

    /// The term under which a message leaves. The driver asks for it in the step that sends the
    /// message.
    pub fn term_of(&self, message: &Message) -> Term {
        let block = message.block();
        block.map_or(Term::BY_HASH, |b| self.master.masters.term_of_block(b))
    }

    /// The term of a block's granule, as far as this instance knows.
    pub fn term_of_block(&self, block: Dba) -> Term {
        self.master.masters.term_of_block(block)
    }

    /// Whether a block waits for declarations here.
    pub fn is_frozen(&self, block: Dba) -> bool {
        self.master.is_frozen(block)
    }

    /// Makes this instance the granule's master. False if the move cannot begin now, or the granule
    /// is this instance's already.
    pub fn take(&mut self, granule: Granule, out: &mut Vec<Effect>) -> bool {
        let mine = |t: &&Term| t.master == self.me;
        let known = self.term(granule);
        let room = || self.taken().values().filter(mine).count() < GRANULES_PER_MASTER;
        if !self.quiet
            || self.members.len() == 1
            || !self.untaught.is_empty()
            || known.master == self.me
            || !room()
        {
            return false;
        }
        let Some(number) = known.number.checked_add(1) else {
            return false;
        };
        let master = self.me;
        self.learn(granule, Term { number, master }, out);
        self.settle(out);
        true
    }

    /// Whether a message about a block counts: it was sent under the term that is known here once
    /// the message has been looked at.
    pub(super) fn is_of_this_term(
        &mut self,
        from: InstanceId,
        term: Term,
        message: &Message,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(block) = message.block() else {
            return true;
        };
        let granule = self.granule_of(block);
        match term.cmp(&self.term(granule)) {
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Greater => self.learn(granule, term, out),
            std::cmp::Ordering::Less if self.planted.breaks(Mutation::AdmitOldTerms) => true,
            std::cmp::Ordering::Less => {
                self.send(from, Message::Moved { block }, out);
                false
            }
        }
    }

    /// Learns that the granule has a higher term than was known here. False if the term's master is
    /// no member.
    fn learn(&mut self, granule: Granule, term: Term, out: &mut Vec<Effect>) -> bool {
        if !self.members.iter().any(|m| m.instance == term.master) {
            return false;
        }
        let from = self.term(granule);
        assert!(term > from, "terms rise");
        let blocks = self.blocks_of(granule);
        self.master.frozen.remove(&Bucket::Granule(granule, from));
        self.master.forget_blocks(&blocks);
        self.master.masters.set_term(granule, term);
        let to = term;
        out.push(Effect::MasterMoved { granule, from, to });
        let waited = self.holder.void_orders(&blocks, out);
        if term.master == self.me {
            let bucket = Bucket::Granule(granule, term);
            self.freeze(bucket);
            let members: Vec<InstanceId> = self.members.iter().map(|m| m.instance).collect();
            self.want_declarations(members, &[bucket], &[], out);
        }
        self.holder_step(out, |h, master, out| {
            h.resume(&blocks, &waited, master, out);
        });
        true
    }

    pub(super) fn declare_granule(
        &mut self,
        to: InstanceId,
        granule: Granule,
        term: Term,
        out: &mut Vec<Effect>,
    ) {
        let known = self.term(granule);
        if term < known {
            let block = *self.blocks_of(granule).start();
            self.send(to, Message::Moved { block }, out);
            return;
        }
        if term > known && !self.learn(granule, term, out) {
            return;
        }
        let bucket = Bucket::Granule(granule, term);
        let masters = &self.master.masters;
        let part = self
            .holder
            .declare_behind((bucket, None), masters, self.part);
        self.send_declaration(to, (bucket, None), part, out);
    }

    /// The granules whose declarations are to be collected in a new epoch: those that this instance
    /// had not finished with, and those that are mastered by hash again.
    pub(super) fn granules_that_came(
        &mut self,
        unfinished: &BTreeMap<Bucket, FrozenBucket>,
        survivors: &BTreeSet<InstanceId>,
        out: &mut Vec<Effect>,
    ) -> BTreeSet<Bucket> {
        let gone = |i| !survivors.contains(&i);
        let masters = &mut self.master.masters;
        let returned = masters.return_those_of(gone);
        let to = Term::BY_HASH;
        let gone = |(granule, from)| Effect::MasterMoved { granule, from, to };
        out.extend(returned.iter().map(|&r| gone(r)));
        let mut came: Vec<Granule> = returned.into_iter().map(|(granule, _)| granule).collect();
        if self.planted.breaks(Mutation::KeepEntriesOfTheGone) {
            came.clear();
        }
        came.extend(unfinished.keys().filter_map(|bucket| match bucket {
            Bucket::Granule(granule, _) => Some(*granule),
            Bucket::Hash(_) => None,
        }));
        let mine = |t: Term| t.is_by_hash() || t.master == self.me;
        let with_term = came.into_iter().map(|g| (g, self.term(g)));
        with_term
            .filter(|&(_, term)| mine(term))
            .map(|(granule, term)| Bucket::Granule(granule, term))
            .collect()
    }

    // ---- a joiner ----

    pub(super) fn ask_what_is_taken(&mut self, has_just_come: bool, out: &mut Vec<Effect>) {
        let skip = self.planted.breaks(Mutation::NewcomerUntaught);
        if (has_just_come || !self.untaught.is_empty()) && !skip {
            let others = self.members.iter().map(|m| m.instance);
            let others = others.filter(|&i| i != self.me);
            self.untaught = others.map(|i| (i, None)).collect();
        }
        for &to in self.untaught.keys() {
            self.send(to, Message::TakenWanted { after: None }, out);
        }
    }

    pub(super) fn say_taken(&self, to: InstanceId, after: Option<Granule>, out: &mut Vec<Effect>) {
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        let taken = self.taken().range((behind, Bound::Unbounded));
        let mine = taken.filter(|(_, term)| term.master == self.me);
        let mut granules: Vec<(Granule, Term)> =
            mine.take(self.part + 1).map(|(&g, &t)| (g, t)).collect();
        let more = granules.len() > self.part;
        granules.truncate(self.part);
        let message = Message::Taken {
            after,
            granules,
            more,
        };
        self.send(to, message, out);
    }

    pub(super) fn taught(
        &mut self,
        by: InstanceId,
        after: Option<Granule>,
        (granules, more): (Vec<(Granule, Term)>, bool),
        out: &mut Vec<Effect>,
    ) {
        if self.untaught.get(&by) != Some(&after) {
            return; // a late copy
        }
        let last = granules.last().map(|(granule, _)| *granule);
        for (granule, term) in granules {
            if term > self.term(granule) {
                self.learn(granule, term, out);
            }
        }
        match last {
            Some(_) if more => {
                self.untaught.insert(by, last);
                self.send(by, Message::TakenWanted { after: last }, out);
            }
            _ => {
                self.untaught.remove(&by);
                if self.untaught.is_empty() {
                    let members: Vec<InstanceId> =
                        self.members.iter().map(|m| m.instance).collect();
                    let came: Vec<Bucket> = self.master.frozen.keys().copied().collect();
                    self.want_declarations(members, &came, &[], out);
                }
            }
        }
    }
}
