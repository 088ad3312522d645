//! Seeded randomness for the tests of this crate.

/// The seed from the environment, or a new one. It is printed, so that a failure can be repeated.
pub fn seed(variable: &str) -> u64 {
    let given = std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |d| d.as_nanos() as u64)
    });
    println!("{variable}={seed}");
    seed
}

/// The generator xorshift64*. It is small, and good enough to choose damage.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit
    }
}
