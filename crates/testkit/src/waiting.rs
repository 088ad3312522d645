//! Waiting for what another thread or process does.

use std::time::{Duration, Instant};

/// Longer than anything that tests wait for takes on a loaded machine: only a failing test waits so
/// long.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The pause after the first look. Each pause is twice the one before it, up to `LONGEST_PAUSE`:
/// what comes soon is seen soon, and looks that start a process do not load the machine.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Asks until there is an answer. After [`PATIENCE`] the test fails with what `said` makes of the
/// last error.
#[track_caller]
pub fn answer<T, E>(mut ask: impl FnMut() -> Result<T, E>, said: impl Fn(E) -> String) -> T {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = FIRST_PAUSE;
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(e) => assert!(Instant::now() < deadline, "{}", said(e)),
        }
        std::thread::park_timeout(pause);
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Waits until `is_so`. After [`PATIENCE`] the test fails and names `what` it waited for.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    answer(
        || is_so().then_some(()).ok_or(()),
        |()| format!("waited in vain: {what}"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answer_ends_the_waiting() {
        let mut asked = 0;
        let answered = answer(
            || {
                asked += 1;
                if asked == 5 {
                    Ok(asked)
                } else {
                    Err("not yet")
                }
            },
            |e| e.to_string(),
        );
        assert_eq!(answered, 5);
    }
}
