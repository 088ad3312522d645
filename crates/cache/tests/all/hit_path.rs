//! Measures what a hit costs. Run it in a release build: `cargo test --release -p cache --test all
//! hit_path -- --ignored --nocapture`.

use crate::common::*;
use cache::MIN_FRAMES;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u64 = 5_000_000;

#[test]
#[ignore = "a measurement"]
fn the_cost_of_a_hit() {
    let storage = create();
    let instance = Instance::open(&storage).unwrap();
    let cache = &instance.cache;
    let blocks = MIN_FRAMES as u64 / 2;
    let _session = wait::session::register(wait::session::Kind::User, "hit path");
    let measure = |what: &str, f: &dyn Fn(u32)| {
        let mut rng = Rng(1);
        (1..=blocks).for_each(|b| f(b as u32));
        let started = Instant::now();
        (0..ROUNDS).for_each(|_| f(1 + rng.below(blocks) as u32));
        let ns = started.elapsed().as_nanos() as f64 / ROUNDS as f64;
        println!("{what}: {ns:.1} ns");
    };
    measure("read (look up, latch shared, unlatch)", &|b| {
        black_box(cache.read(dba(b)).unwrap().0[0]);
    });
    measure("write (look up, latch exclusively, unlatch)", &|b| {
        black_box(cache.write(dba(b)).unwrap().0[0]);
    });
    measure("pin, read, unpin", &|b| {
        black_box(cache.pin(dba(b)).unwrap().read().0[0]);
    });
    instance.stop();
}
