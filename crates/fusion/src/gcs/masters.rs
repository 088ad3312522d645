//! The master of each block, as one instance knows it.
//!
//! **Invariants**
//! 1. The epoch's plan gives the masters of hash buckets, the same to everybody.
//! 2. A granule that an instance took belongs to that instance, under a term. Members may know
//!    different terms for a moment; every message about a block says under which term it was sent
//!    (README, *Moving a granule*).

use super::bucket_of;
use crate::ids::{Bucket, Granule, Term};
use block::ids::{Dba, InstanceId};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The number of blocks in a granule, as a power of two: 1 MiB.
///
/// A segment's extents have this size from its second megabyte on, and belong to one instance each.
/// A granule follows from the address alone: nobody has to look up the segment of a block that he
/// does not have.
pub const GRANULE_SHIFT: u32 = 7;
pub const GRANULE_BLOCKS: u32 = 1 << GRANULE_SHIFT;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Masters {
    /// The master of each hash bucket.
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

    /// The number of hash buckets.
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

    /// All granules that are taken, by address.
    pub fn taken(&self) -> &BTreeMap<Granule, Term> {
        &self.taken
    }

    /// Gives the granules of masters that are gone back to the masters of their hash buckets.
    /// Returns those granules with their terms.
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

    /// The buckets whose rebuilding may bring a block's directory entry back.
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
