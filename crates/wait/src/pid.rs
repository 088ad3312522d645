//! Process ids of sessions, as PostgreSQL's clients and views have them: unique among the sessions
//! of all instances of a database.
//!
//! A process id is a decimal number. Its last seven digits are the session number (`sid`), and what
//! stands before them is the number of the instance: 20000042 is session 42 of instance 2. It is a
//! positive number of 31 bits, because clients keep it in a signed integer of 32 bits.

/// The highest session number. The session numbers of an instance are used in turn, so one that a
/// session had is not used again soon.
pub const MAX_SID: u32 = SESSIONS - 1;

/// Process ids of each instance.
const SESSIONS: u32 = 10_000_000;
/// The highest number of an instance whose process ids are numbers of 31 bits.
const MAX_INSTANCE: u16 = ((i32::MAX as u32 - MAX_SID) / SESSIONS) as u16;

/// The process id of a session.
pub fn of(instance: u16, sid: u32) -> i32 {
    assert!(
        instance <= MAX_INSTANCE && sid <= MAX_SID,
        "invariant: numbers of instances and sessions are small"
    );
    (u32::from(instance) * SESSIONS + sid) as i32
}

/// The instance and the session number that a process id stands for. None if no session can have
/// it.
pub fn parts(pid: i32) -> Option<(u16, u32)> {
    let pid = u32::try_from(pid).ok()?;
    let (instance, sid) = ((pid / SESSIONS) as u16, pid % SESSIONS);
    (instance > 0 && sid > 0).then_some((instance, sid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_id_says_which_session_of_which_instance() {
        assert_eq!(of(2, 42), 20_000_042);
        for (instance, sid) in [(1, 1), (1, MAX_SID), (100, 7), (MAX_INSTANCE, MAX_SID)] {
            let pid = of(instance, sid);
            assert!(pid > 0);
            assert_eq!(parts(pid), Some((instance, sid)));
        }
        for nobody in [0, -1, i32::MIN, 42, 20_000_000] {
            assert_eq!(parts(nobody), None, "{nobody}");
        }
    }
}
