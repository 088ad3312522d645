//! Ports for the processes of tests.
//!
//! The ports are below those that the system hands out to connections by itself, and no two callers
//! get the same one. A test that binds a port once to find it free, and then lets it go, owns
//! nothing: a proxy of the same test, an instance's interconnect or a client's own end can take the
//! port before the process that it is meant for comes up.
//!
//! Each claim of up to [`WIDTH`] ports in a row is a locked file. The lock is kept until the test
//! program ends, so programs that run side by side do not share a port either.

use std::fs::{File, create_dir_all};
use std::net::TcpListener;
use std::sync::Mutex;

const FIRST: u16 = 12_000;
/// Where Linux begins by default (`net.ipv4.ip_local_port_range`).
const END: u16 = 32_768;
/// Ports of one claim.
const WIDTH: u16 = 8;

static CLAIMED: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// The first of `n` ports in a row that belong to this program until it ends.
pub fn free_ports(n: u16) -> u16 {
    assert!(n <= WIDTH, "{n} ports in a row");
    let dir = std::env::temp_dir().join("braid-test-ports");
    create_dir_all(&dir).expect("a directory for claims");
    let mut claimed = CLAIMED.lock().expect("no thread has panicked");
    let claims = (END - FIRST) / WIDTH;
    // Programs begin at different places, so that few try what another has.
    let begin = (std::process::id() % u32::from(claims)) as u16;
    for k in 0..claims {
        let first = FIRST + (begin + k) % claims * WIDTH;
        let file = File::create(dir.join(first.to_string())).expect("a file for a claim");
        let unused = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        // A lock of another descriptor of this program refuses as well.
        if file.try_lock().is_ok() && (first..first + n).all(unused) {
            claimed.push(file);
            return first;
        }
    }
    panic!("all ports from {FIRST} to {END} are claimed");
}

/// One port that belongs to this program until it ends.
pub fn free_port() -> u16 {
    free_ports(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let claims: Vec<u16> = (0..4).map(|_| free_ports(3)).collect();
        let mut ports: Vec<u16> = claims.iter().flat_map(|&p| p..p + 3).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 12, "{claims:?}");
    }
}
