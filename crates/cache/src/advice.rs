//! How many blocks would come from disk if the cache were larger or smaller: `v$db_cache_advice`.
//!
//! A block that is looked at again after n other blocks is found in a cache of more than n blocks
//! that keeps those used last. So the distances tell of all sizes at once. They are taken of a
//! sample: of the blocks whose hash falls into one of [`Advice::rate`] parts, as SHARDS does
//! (Waldspurger and others, 2015). A distance among these stands for one that is `rate` times as
//! long.
//!
//! **Invariants.**
//! - Nobody waits: a look that finds the sample in use is left out, and counted.
//! - At most [`TRACKED`] blocks are known, those of twice the cache.
//!
//! It costs one comparison for each block looked at, and for one of `rate` about 200 ns; the known
//! blocks take 200 KB.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use block::Dba;
use seam::{HashMap, Mutex};

/// Blocks that are known at most.
const TRACKED: usize = 4096;
/// One block of so many is in the sample, at least: more often would cost more than it tells.
const LEAST_RATE: usize = 16;
/// Sizes that are told, in tenths of the cache.
pub const SIZES: usize = 20;
/// Blocks that a thread has just looked at, whose next look tells nothing of a size.
const RECENT: usize = 4;

thread_local! {
    static LAST: Cell<[u64; RECENT]> = const { Cell::new([u64::MAX; RECENT]) };
}

/// What is known of looks at sampled blocks.
pub(crate) struct Advice {
    /// A power of two.
    rate: usize,
    /// Frames of the cache.
    frames: usize,
    reuse: Mutex<Reuse>,
    /// Looks that found the sample in use.
    left_out: AtomicU64,
}

/// What a cache of a size would read.
#[derive(Clone, Copy, Debug)]
pub struct AdviceRow {
    pub blocks: usize,
    /// The size in tenths of this cache's.
    pub tenths: usize,
    pub reads: u64,
}

impl Advice {
    pub fn new(frames: usize) -> Advice {
        let rate = (2 * frames / TRACKED).next_power_of_two().max(LEAST_RATE);
        Advice {
            rate,
            frames,
            reuse: Mutex::new(Reuse::new((2 * frames / rate).max(SIZES))),
            left_out: AtomicU64::new(0),
        }
    }

    /// A block is looked at.
    #[inline]
    pub fn looked(&self, dba: Dba) {
        // Other bits than those by which its chain is found.
        let hash = dba.0.wrapping_mul(0xd6e8_feb8_6659_fd93);
        if (hash >> 40) as usize & (self.rate - 1) == 0 {
            self.sampled(dba);
        }
    }

    #[cold]
    fn sampled(&self, dba: Dba) {
        let mut last = LAST.get();
        if last.contains(&dba.0) {
            return;
        }
        last.rotate_right(1);
        last[0] = dba.0;
        LAST.set(last);
        match self.reuse.try_lock() {
            Some(mut reuse) => reuse.look(dba.0),
            None => {
                self.left_out.fetch_add(1, Relaxed);
            }
        }
    }

    /// What caches of a tenth to twice the size would have read since the instance was started.
    pub fn rows(&self) -> Vec<AdviceRow> {
        let reuse = self.reuse.lock();
        let (known, left_out) = (reuse.looks, self.left_out.load(Relaxed));
        let row = |tenths: usize| {
            // Those left out are taken to be like the others.
            let missed = reuse.missed(tenths) as f64;
            let all = missed * self.rate as f64 * (known + left_out) as f64 / known.max(1) as f64;
            AdviceRow {
                blocks: self.frames * tenths / 10,
                tenths,
                reads: all as u64,
            }
        };
        (1..=SIZES).map(row).collect()
    }
}

/// Sampled blocks in the order in which they were looked at last.
struct Reuse {
    /// As many as a cache of twice the size has of the sample.
    capacity: usize,
    /// The place of each block in the order.
    places: HashMap<u64, usize>,
    /// Blocks by place; none where a block has moved on.
    order: Vec<Option<u64>>,
    /// Below it no block stands.
    first: usize,
    /// Sums over `order`, as a Fenwick tree: how many blocks stand below a place.
    tree: Vec<u32>,
    /// Looks by distance, in twentieths of the capacity.
    distances: [u64; SIZES],
    /// Looks at blocks that were not known, or not any more.
    unknown: u64,
    looks: u64,
}

impl Reuse {
    fn new(capacity: usize) -> Reuse {
        Reuse {
            capacity,
            places: HashMap::default(),
            order: Vec::with_capacity(2 * capacity),
            first: 0,
            tree: vec![0; 2 * capacity + 1],
            distances: [0; SIZES],
            unknown: 0,
            looks: 0,
        }
    }

    fn look(&mut self, block: u64) {
        self.looks += 1;
        match self.places.remove(&block) {
            None => {
                self.unknown += 1;
                if self.places.len() == self.capacity {
                    self.forget_oldest();
                }
            }
            Some(place) => {
                let above = self.places.len() + 1 - self.below(place + 1);
                let at = (above * SIZES / self.capacity).min(SIZES - 1);
                self.distances[at] += 1;
                self.order[place] = None;
                self.add(place, false);
            }
        }
        if self.order.len() == 2 * self.capacity {
            self.close_up();
        }
        let place = self.order.len();
        self.order.push(Some(block));
        self.add(place, true);
        self.places.insert(block, place);
    }

    fn forget_oldest(&mut self) {
        while self.first < self.order.len() {
            let place = self.first;
            self.first += 1;
            if let Some(block) = self.order[place].take() {
                self.places.remove(&block);
                self.add(place, false);
                return;
            }
        }
    }

    /// Takes the empty places out of the order.
    fn close_up(&mut self) {
        self.order.retain(Option::is_some);
        self.first = 0;
        self.tree.fill(0);
        for place in 0..self.order.len() {
            if let Some(block) = self.order[place] {
                self.places.insert(block, place);
                self.add(place, true);
            }
        }
    }

    fn add(&mut self, place: usize, is_there: bool) {
        let mut at = place + 1;
        while at < self.tree.len() {
            match is_there {
                true => self.tree[at] += 1,
                false => self.tree[at] -= 1,
            }
            at += at & at.wrapping_neg();
        }
    }

    /// How many blocks stand below a place.
    fn below(&self, place: usize) -> usize {
        let (mut at, mut sum) = (place, 0);
        while at > 0 {
            sum += self.tree[at] as usize;
            at &= at - 1;
        }
        sum
    }

    /// Looks that a cache of so many tenths would have read for.
    fn missed(&self, tenths: usize) -> u64 {
        self.distances[tenths.min(SIZES)..].iter().sum::<u64>() + self.unknown
    }
}

impl crate::Cache {
    /// What caches of other sizes would have read since the instance was started.
    pub fn advice(&self) -> Vec<AdviceRow> {
        self.advice.rows()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks that are looked at in a circle are found by a cache that holds the circle, and by no
    /// smaller one.
    #[test]
    fn a_circle_is_found_where_it_has_room() {
        let mut reuse = Reuse::new(200);
        for round in 0..50 {
            for block in 0..120 {
                reuse.look(block);
                assert_eq!(
                    reuse.places.len(),
                    if round == 0 { block as usize + 1 } else { 120 }
                );
            }
        }
        // The capacity is twice the cache's: a tenth of the cache is ten blocks.
        assert_eq!(reuse.missed(11), 49 * 120 + 120);
        assert_eq!(reuse.missed(12), 120, "only the first looks");
        assert_eq!(reuse.missed(20), 120);
    }

    #[test]
    fn what_is_used_often_is_found_in_a_small_cache_too() {
        let mut reuse = Reuse::new(100);
        for round in 0..1000u64 {
            reuse.look(7);
            reuse.look(1000 + round);
        }
        assert_eq!(reuse.missed(1), 1001, "all but the looks at 7");
        assert_eq!(reuse.places.len(), 100);
        assert!(reuse.order.len() <= 200);
    }

    #[test]
    fn a_larger_cache_never_reads_more() {
        let advice = Advice::new(50_000);
        assert_eq!(advice.rate, 32);
        let mut seed = 1u64;
        for _ in 0..200_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let block = (seed >> 33) % 40_000;
            advice.looked(Dba::new(block::FileId(1), block as u32));
        }
        let rows = advice.rows();
        assert_eq!(rows.len(), SIZES);
        assert!(
            rows.windows(2)
                .all(|w| w[0].reads >= w[1].reads && w[0].blocks < w[1].blocks)
        );
        // All blocks have room in the whole cache: each is read once.
        let whole = rows[9].reads;
        assert!((30_000..50_000).contains(&whole), "{whole}");
        // Half of them in a cache for half of them.
        let half = rows[3].reads;
        assert!((80_000..130_000).contains(&half), "{half}");
    }
}
