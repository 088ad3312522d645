//! What the tests of several instances as processes share.
#![allow(dead_code, reason = "each test program uses its part")]

#[path = "../ports/mod.rs"]
mod ports;

pub use ports::free_ports;
use std::ffi::OsString;
use std::process::{Command, Output};

/// splitmix64.
#[derive(Clone)]
pub struct Rng(u64);
impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

pub fn environment(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().expect("a number"),
        Err(_) => default,
    }
}

/// The `braid` just built, or another one that `BRAID_TEST_PROGRAM` names: a campaign goes on with a copy while others are built.
pub fn program() -> OsString {
    std::env::var_os("BRAID_TEST_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_braid").into())
}

pub fn braid(args: &[&str]) -> Output {
    Command::new(program())
        .args(args)
        .output()
        .expect("braid runs")
}

pub fn succeeds(args: &[&str]) {
    let output = braid(args);
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "braid {args:?}: {said}");
}
