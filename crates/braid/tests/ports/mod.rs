//! Ports for the processes of tests: below those that the system hands out to connections by itself, and no two
//! alike, whoever asks. A port that was bound once to find it free and then let go is anybody's: a proxy of the same
//! test, an instance's interconnect or a client's own end took it before the process that it was meant for came up.
//!
//! Each claim of up to [`WIDTH`] ports in a row is a locked file, kept until this test program ends, so that programs
//! side by side do not share one either.

use std::fs::{File, create_dir_all};
use std::net::TcpListener;
use std::sync::Mutex;

const FIRST: u16 = 12_000;
/// Where Linux begins by default (`net.ipv4.ip_local_port_range`).
const END: u16 = 32_768;
const WIDTH: u16 = 8;

static CLAIMED: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// The first of so many ports in a row that are this program's until it ends.
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

pub fn free_port() -> u16 {
    free_ports(1)
}
