//! What the tests of several instances as processes share.
#![allow(dead_code, reason = "each test program uses its part")]

#[path = "../ports/mod.rs"]
mod ports;

pub use ports::free_ports;
use std::ffi::OsString;
use std::process::{Command, Output};

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
