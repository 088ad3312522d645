//! A granule of blocks that gets another master while the epoch goes on: an epoch of its own for these blocks alone.
//!
//! Whoever is to master a granule takes it: it draws a higher term, freezes the granule and asks all members to declare what they have of it, as a master does at a change
//! of epoch. From the moment a member hears of the term, by whatever message, nothing that was said about these blocks under a lower one counts for it any more; its requests go to the new master. The
//! new master serves when everybody has declared, and thereby heard. Everything else goes on (20).
//!
//! **Invariants**
//! 1. A message about a block is looked at only under the term in which it was sent. An older one is answered by what is newer; from a newer one the receiver
//!    learns.
//! 2. Within an epoch what a member knows of a granule's term only rises. A master serves under a term when all members of its epoch have declared under it, and so know it or a
//!    later one.
//! 3. A granule stays its master's over changes of epoch. When its master is gone, it is its hash buckets' masters' again, each of whom has its part declared anew who had known of the term.
//!    Who had not has never given it up, and nobody else has served it.
//! 4. Who comes asks for declarations of what it is to master when everybody has told it what he has taken: otherwise it would serve blocks by hash that are somebody's.
//! 5. While redo of the dead is recovered nothing is taken. What was being taken goes on: its master has heard all names in the dead threads, as everybody has.

use super::*;

/// Granules that one instance may take: a map of a few MB for each member, and 128 GiB of blocks.
pub const GRANULES_PER_MASTER: usize = 1 << 17;

impl Lane {
    /// The granule of a block.
    pub fn granule_of(&self, block: Dba) -> Granule {
        self.master.masters.granule(block)
    }

    /// Its blocks.
    pub fn blocks_of(&self, granule: Granule) -> RangeInclusive<Dba> {
        self.master.masters.blocks(granule)
    }

    /// Who masters a block, as far as this instance knows.
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

    /// The term under which a message leaves. To be asked in the step that sends it.
    pub fn term_of(&self, message: &Message) -> Term {
        let block = message.block();
        block.map_or(Term::BY_HASH, |b| self.master.masters.term_of_block(b))
    }

    /// That of a block's granule.
    pub fn term_of_block(&self, block: Dba) -> Term {
        self.master.masters.term_of_block(block)
    }

    /// Whether a block waits for declarations here.
    pub fn is_frozen(&self, block: Dba) -> bool {
        self.master.is_frozen(block)
    }

    /// Makes this instance the granule's master. False if that cannot be begun now, or is so already.
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

    /// Whether a message about a block was sent under the term that is known here, afterwards.
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

    /// The granule has a higher term than was known here. False if its master is nobody.
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

    /// Granules whose declarations are to be collected in a new epoch: those that this instance had not finished with, and those that are by hash again.
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

    // ---- who comes ----

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
