//! Threads with the names a DBA expects, registered as background sessions and visible in `top -H`.

use crate::session::{self, Kind};
use seam::thread::JoinHandle;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Starts a background thread named `name` (at most 15 bytes, or the kernel cuts it) that is a
/// session of its own.
///
/// A panic in it ends the process. The thread has broken an invariant of the whole instance,
/// perhaps with a record in the log whose change is in no block, and nobody may write from there
/// on. The next start recovers what is in the log.
pub fn spawn_named<F>(name: &str, f: F) -> io::Result<JoinHandle<()>>
where
    F: FnOnce() + Send + 'static,
{
    let name = name.to_string();
    seam::thread::Builder::new()
        .name(name.clone())
        .spawn(move || {
            let _session = session::register(Kind::Background, &name);
            if catch_unwind(AssertUnwindSafe(f)).is_err() {
                // The panic hook has said what broke.
                eprintln!("braid: background thread {name} has panicked; the instance ends");
                std::process::abort();
            }
        })
}
