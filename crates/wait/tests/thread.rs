//! What ends a process can only be tested in a process of its own. So this file starts itself
//! again.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

const CHILD: &str = "BRAID_TEST_CHILD";
const SIGABRT: i32 = 6;

/// A panic in a thread like `mmon` ends the process. The instance does not go on without the
/// thread.
#[test]
fn a_panic_in_a_background_thread_ends_the_process() {
    if std::env::var_os(CHILD).is_some() {
        let thread = wait::thread::spawn_named("mmon", || panic!("an invariant is broken"));
        let _ = thread.unwrap().join();
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_panic_in_a_background_thread_ends_the_process"])
        .args(["--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(SIGABRT), "{said}");
    assert!(
        said.contains("background thread mmon has panicked"),
        "{said}"
    );
}
