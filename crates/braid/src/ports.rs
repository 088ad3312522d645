//! Ports for the instances that `lab` and `demo` start.

use std::net::TcpListener;

use crate::Failure;

/// The range in which ports are looked for. It is above the ports of `braid up`, and below those
/// that the system gives to connections by itself.
const RANGE: std::ops::Range<u16> = 5_701..32_000;

/// The first of `n` ports in a row that no program on this machine listens on now.
pub fn free(n: u16) -> Result<u16, Failure> {
    let is_unused = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Programs that run side by side begin at different places.
    let spread = (std::process::id() % 1000) as u16 * 8;
    let first = (RANGE.start + spread..RANGE.end - n)
        .step_by(usize::from(n))
        .find(|first| (*first..first + n).all(is_unused));
    first.ok_or_else(|| {
        Failure(format!(
            "no {n} free ports in a row; name the first with --port"
        ))
    })
}
