//! Threads with the names a DBA expects, registered as background sessions and visible in `top -H`.

use crate::session::{self, Kind};
use seam::thread::JoinHandle;
use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Ends the process because it must not go on: what is in the log is recovered at the next start.
///
/// The log has the reason before the process ends. A process without a log, such as a test, says it
/// on standard error.
pub fn abort(why: &str) -> ! {
    if tracing::dispatcher::has_been_set() {
        tracing::error!("the instance aborts: {why}");
    } else {
        // Nobody could be told that nobody reads standard error.
        let _ = writeln!(io::stderr(), "the instance aborts: {why}");
    }
    std::process::abort()
}

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
                abort(&format!("the background thread {name} has panicked"));
            }
        })
}
