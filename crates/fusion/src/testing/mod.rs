//! What this crate's tests share: seeded random numbers, and the environment variables of the
//! longer campaigns.

/// SplitMix64: a small seeded generator that gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A number below `n`, which must not be zero.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// How many schedules a simulation runs: `BRAID_FUSION_SCHEDULES`, otherwise `quick`.
pub(crate) fn schedules(quick: u64) -> u64 {
    match std::env::var("BRAID_FUSION_SCHEDULES") {
        Ok(n) => n
            .parse()
            .expect("BRAID_FUSION_SCHEDULES must be a number of schedules"),
        Err(_) => quick,
    }
}

/// The seeds to run: `BRAID_FUSION_SEED` alone if it is set (to replay a failure), otherwise `n`
/// seeds from `BRAID_FUSION_FROM` or 0 on. A long run prints its progress now and then.
pub(crate) fn seeds(n: u64) -> impl Iterator<Item = u64> {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(
            text.parse::<u64>()
                .unwrap_or_else(|_| panic!("{name} must be a seed")),
        )
    };
    let range = match number("BRAID_FUSION_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let from = number("BRAID_FUSION_FROM").unwrap_or(0);
            from..from + n
        }
    };
    let from = range.start;
    range.inspect(move |seed| {
        if *seed > from && (seed - from).is_multiple_of(50_000) {
            println!("{} schedules", seed - from);
        }
    })
}

/// Whether the larger models are to be checked (`BRAID_FUSION_LARGE_MODELS`).
pub(crate) fn large_models() -> bool {
    std::env::var_os("BRAID_FUSION_LARGE_MODELS").is_some()
}
