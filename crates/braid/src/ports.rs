//! Ports: free ones for the instances that `lab` and `demo` start, and whether those that a start
//! is to use are free.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use sql::params::Instance;

use crate::{Failure, advice, settings, start};

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

/// Refuses a start of an instance with these parameters if another program listens on one of its
/// ports. What else is wrong with the addresses is left to the start.
pub fn refuse_taken(params: &Instance, dir: &Path, instance: u16) -> Result<(), Failure> {
    let by_setting = |e| advice::of_setting(e, dir);
    let clients = start::server_config(params).map_err(by_setting)?.address;
    let config =
        settings::engine_config(params, dir, instance, clients.ip()).map_err(by_setting)?;
    refuse_taken_by("--port", clients)?;
    match config.interconnect {
        Some(others) => refuse_taken_by("--interconnect-port", others),
        None => Ok(()),
    }
}

/// Refuses an address on which another program listens. `flag` chooses its port.
pub fn refuse_taken_by(flag: &str, address: SocketAddr) -> Result<(), Failure> {
    match TcpListener::bind(address) {
        Err(e) if e.kind() == ErrorKind::AddrInUse => Err(advice::of_port(flag, address)),
        _ => Ok(()),
    }
}
