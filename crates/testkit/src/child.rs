//! Tests that need a process of their own.

use std::process::Command;

/// Says to a process that it was started by [`alone`].
const ALONE: &str = "BRAID_TEST_ALONE";

/// A command that runs one test of this program, in another process and with its output. `module`
/// is `module_path!()` where the test is.
pub fn command(module: &str, test: &str) -> Command {
    let program = std::env::current_exe().expect("a test program has a path");
    let mut command = Command::new(program);
    // The harness names a test by its path without the crate.
    let name = match module.split_once("::") {
        Some((_, path)) => format!("{path}::{test}"),
        None => test.to_string(),
    };
    command.args(["--exact", &name, "--nocapture", "--test-threads=1"]);
    command
}

/// Runs `body`, which is all of a test, in a process in which nothing else happens: for tests that
/// look at what a whole process does, such as statistics over all of its threads.
pub fn alone(module: &str, test: &str, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let output = command(module, test).env(ALONE, "1").output();
    let output = output.expect("a test program starts");
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(
        output.status.success(),
        "{}\n{stdout}{stderr}",
        output.status
    );
    // A name that is no test's succeeds as well.
    assert!(stdout.contains("1 passed"), "{stdout}{stderr}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_runs_in_another_process_only() {
        let mut ran_here = false;
        let test = "the_body_runs_in_another_process_only";
        alone(module_path!(), test, || ran_here = true);
        assert_eq!(ran_here, std::env::var_os(ALONE).is_some());
    }

    #[test]
    #[should_panic(expected = "0 passed")]
    fn a_name_that_is_no_tests_is_refused() {
        alone(module_path!(), "no_such_test", || ());
    }
}
