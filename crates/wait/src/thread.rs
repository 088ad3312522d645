//! Threads with the names a DBA expects, registered as background sessions and visible in `top -H`.

use crate::session::{self, Kind};
use std::io;
use std::thread::JoinHandle;

/// Starts a background thread named `name` (at most 15 bytes, or the kernel cuts it) that is a session of its own.
pub fn spawn_named<F>(name: &str, f: F) -> io::Result<JoinHandle<()>>
where
    F: FnOnce() + Send + 'static,
{
    let name = name.to_string();
    std::thread::Builder::new()
        .name(name.clone())
        .spawn(move || {
            let _session = session::register(Kind::Background, &name);
            f();
        })
}
