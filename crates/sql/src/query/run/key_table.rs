//! A hash table of keys and what goes with them, both as bytes, in one piece of memory.
//!
//! Keys may come several times; [`KeyTable::first`] and [`KeyTable::next`] give all entries of one,
//! the newest first.

use std::hash::{BuildHasher, RandomState};

/// The end of a chain.
const NONE: u32 = u32::MAX;

pub struct KeyTable {
    hasher: RandomState,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Newest entry of each chain. Their number is a power of two.
    heads: Vec<u32>,
}

struct Entry {
    hash: u64,
    /// Where the key begins. The rest follows up to the next entry's key.
    from: usize,
    key_length: u32,
    next: u32,
}

impl KeyTable {
    pub fn new() -> KeyTable {
        KeyTable {
            hasher: RandomState::new(),
            bytes: Vec::new(),
            entries: Vec::new(),
            heads: vec![NONE; 64],
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.bytes.len()
            + self.entries.len() * size_of::<Entry>()
            + self.heads.len() * size_of::<u32>()
    }

    /// Whether no further entry can be numbered.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= NONE as usize
    }

    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Adds an entry. `hash` is the key's.
    pub fn add(&mut self, hash: u64, key: &[u8], rest: impl FnOnce(&mut Vec<u8>)) -> usize {
        if self.entries.len() == self.heads.len() {
            self.grow();
        }
        let number = self.entries.len();
        let chain = hash as usize & (self.heads.len() - 1);
        self.entries.push(Entry {
            hash,
            from: self.bytes.len(),
            key_length: u32::try_from(key.len()).expect("invariant: a key is smaller than 4 GiB"),
            next: self.heads[chain],
        });
        self.heads[chain] = number as u32;
        self.bytes.extend_from_slice(key);
        rest(&mut self.bytes);
        number
    }

    fn grow(&mut self) {
        let chains = self.heads.len() * 2;
        self.heads.clear();
        self.heads.resize(chains, NONE);
        for (number, entry) in self.entries.iter_mut().enumerate() {
            let chain = entry.hash as usize & (chains - 1);
            entry.next = self.heads[chain];
            self.heads[chain] = number as u32;
        }
    }

    /// The newest entry of a key.
    pub fn first(&self, hash: u64, key: &[u8]) -> Option<usize> {
        self.find(
            self.heads[hash as usize & (self.heads.len() - 1)],
            hash,
            key,
        )
    }

    /// The next older entry of the key of an entry.
    pub fn next(&self, number: usize) -> Option<usize> {
        let entry = &self.entries[number];
        self.find(entry.next, entry.hash, self.key(number))
    }

    fn find(&self, mut at: u32, hash: u64, key: &[u8]) -> Option<usize> {
        while at != NONE {
            let entry = &self.entries[at as usize];
            if entry.hash == hash && self.key(at as usize) == key {
                return Some(at as usize);
            }
            at = entry.next;
        }
        None
    }

    pub fn key(&self, number: usize) -> &[u8] {
        let entry = &self.entries[number];
        &self.bytes[entry.from..entry.from + entry.key_length as usize]
    }

    /// What goes with the key of an entry.
    pub fn rest(&self, number: usize) -> &[u8] {
        let entry = &self.entries[number];
        let end = self.entries.get(number + 1);
        let end = end.map_or(self.bytes.len(), |next| next.from);
        &self.bytes[entry.from + entry.key_length as usize..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_entries_of_a_key_are_found_the_newest_first() {
        let mut table = KeyTable::new();
        for i in 0..1000u32 {
            let key = (i % 300).to_le_bytes();
            let number = table.add(table.hash(&key), &key, |out| {
                out.extend_from_slice(&vec![i as u8; i as usize % 5])
            });
            assert_eq!(number, i as usize);
        }
        for key in 0..400u32 {
            let bytes = key.to_le_bytes();
            let mut found = Vec::new();
            let mut at = table.first(table.hash(&bytes), &bytes);
            while let Some(number) = at {
                assert_eq!(table.key(number), bytes);
                assert_eq!(table.rest(number), vec![number as u8; number % 5]);
                found.push(number as u32);
                at = table.next(number);
            }
            let wanted: Vec<u32> = (0..1000).rev().filter(|i| i % 300 == key).collect();
            assert_eq!(found, wanted);
        }
    }
}
