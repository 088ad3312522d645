//! Who masters which block, as one instance knows it.
//!
//! **Invariants**
//! 1. Hash buckets are mastered by what the epoch's plan says, the same for everybody.
//! 2. Granules that an instance took are its, under a term. Members may know different terms for a moment; whatever is said about
//!    a block says under which term (README, *Moving a granule*).

use super::bucket_of;
use crate::ids::{Bucket, Granule, Term};
use block::ids::{Dba, InstanceId};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Blocks of a granule, as a power of two: 1 MiB. A segment's extents are of this size from its second megabyte on, belong to
/// one instance each, and follow from the address alone: nobody has to look up what a block he does not have belongs to.
pub const GRANULE_SHIFT: u32 = 7;
pub const GRANULE_BLOCKS: u32 = 1 << GRANULE_SHIFT;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Masters {
    /// Of each hash bucket.
    by_hash: Vec<InstanceId>,
    taken: BTreeMap<Granule, Term>,
    shift: u32,
}

impl Masters {
    pub fn new() -> Self {
        Masters {
            by_hash: Vec::new(),
            taken: BTreeMap::new(),
            shift: GRANULE_SHIFT,
        }
    }

    #[cfg(test)]
    pub fn with_granules_of(&mut self, shift: u32) {
        self.shift = shift;
    }

    /// Hash buckets in all.
    pub fn buckets(&self) -> u16 {
        self.by_hash.len() as u16
    }

    /// Takes over the masters of hash buckets; returns the former ones.
    pub fn plan(&mut self, by_hash: Vec<InstanceId>) -> Vec<InstanceId> {
        std::mem::replace(&mut self.by_hash, by_hash)
    }

    pub fn of_bucket(&self, bucket: u16) -> InstanceId {
        self.by_hash[usize::from(bucket)]
    }

    pub fn master(&self, block: Dba) -> InstanceId {
        match self.term_of_block(block) {
            Term::BY_HASH => self.of_bucket(bucket_of(block, self.buckets())),
            term => term.master,
        }
    }

    pub fn granule(&self, block: Dba) -> Granule {
        Granule(block.0 >> self.shift)
    }

    pub fn blocks(&self, granule: Granule) -> RangeInclusive<Dba> {
        let first = granule.0 << self.shift;
        Dba(first)..=Dba(first + ((1 << self.shift) - 1))
    }

    pub fn term(&self, granule: Granule) -> Term {
        self.taken.get(&granule).copied().unwrap_or_default()
    }

    pub fn term_of_block(&self, block: Dba) -> Term {
        match self.taken.is_empty() {
            true => Term::BY_HASH,
            false => self.term(self.granule(block)),
        }
    }

    pub fn set_term(&mut self, granule: Granule, term: Term) {
        self.taken.insert(granule, term);
    }

    /// All that are taken, by address, behind `after`.
    pub fn taken(&self) -> &BTreeMap<Granule, Term> {
        &self.taken
    }

    /// Those of masters that are no longer there have the masters of their hash buckets again. Returns them.
    pub fn return_those_of(&mut self, gone: impl Fn(InstanceId) -> bool) -> Vec<(Granule, Term)> {
        let mut returned = Vec::new();
        self.taken.retain(|&granule, term| {
            let stays = !gone(term.master);
            if !stays {
                returned.push((granule, *term));
            }
            stays
        });
        returned
    }

    /// What a block's part of the directory may be rebuilt with.
    pub fn rebuilt_with(&self, block: Dba) -> [Option<Bucket>; 2] {
        let granule = self.granule(block);
        let term = self.term(granule);
        let hash = || Bucket::Hash(bucket_of(block, self.buckets()));
        [
            Some(Bucket::Granule(granule, term)),
            term.is_by_hash().then(hash),
        ]
    }
}
