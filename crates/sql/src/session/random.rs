//! The numbers of `random()`: those of PostgreSQL after the same `setseed`. Not for secrets.

/// The generator xoroshiro128**, whose state is never zero.
pub struct Random(u64, u64);

impl Random {
    pub fn of(seed: u64) -> Random {
        let mut state = seed;
        // SplitMix64 fills the state. Two of its numbers are never zero at once.
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut bits = state;
            bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            bits ^ bits >> 31
        };
        Random(next(), next())
    }

    /// After `setseed` of a number from -1 to 1.
    pub fn seeded(seed: f64) -> Random {
        let whole = ((1u64 << 52) - 1) as f64;
        Random::of((whole * seed) as i64 as u64)
    }

    pub fn bits(&mut self) -> u64 {
        let Random(s0, s1) = *self;
        let mixed = s0 ^ s1;
        *self = Random(
            s0.rotate_left(24) ^ mixed ^ mixed << 16,
            mixed.rotate_left(37),
        );
        s0.wrapping_mul(5).rotate_left(7).wrapping_mul(9)
    }

    /// From 0 up to 1.
    pub fn share(&mut self) -> f64 {
        (self.bits() >> 12) as f64 / (1u64 << 52) as f64
    }
}
