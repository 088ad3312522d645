//! What a session of a user does between and during the calls of its client.

/// The state of a user's session, as views show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// The session works on a call of its client.
    Active,
    /// The session waits for its client, without a transaction.
    Idle,
    /// The session waits for its client in the middle of a transaction.
    InTransaction,
    /// The session waits for its client in the middle of a transaction that has failed.
    Failed,
}

impl State {
    pub(crate) fn of(number: u8) -> State {
        match number {
            0 => State::Active,
            1 => State::Idle,
            2 => State::InTransaction,
            _ => State::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::State::{self, *};

    #[test]
    fn a_state_comes_back_from_its_number() {
        for state in [Active, Idle, InTransaction, Failed] {
            assert_eq!(State::of(state as u8), state);
        }
    }
}
