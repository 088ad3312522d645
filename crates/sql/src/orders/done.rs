//! The orders of other instances that were carried out lately.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use super::messages::Answer;

/// Instance, its life, and the number of an order in it.
type Key = (u16, u64, u64);

/// Orders that are remembered. An order comes again within seconds if at all, and as many are on
/// their way as sessions give them; this is more than all sessions of all instances.
const REMEMBERED: usize = 1 << 16;

#[derive(Default)]
pub struct Done(Mutex<Known>);

#[derive(Default)]
struct Known {
    answers: HashMap<Key, Answer>,
    /// The keys, the oldest first.
    order: VecDeque<Key>,
}

impl Done {
    /// Carries out an order, or answers as before if it was carried out already.
    pub fn once(&self, key: Key, carry_out: impl FnOnce() -> Answer) -> Answer {
        let mut known = self.0.lock();
        if let Some(answer) = known.answers.get(&key) {
            return *answer;
        }
        if known.order.len() == REMEMBERED
            && let Some(oldest) = known.order.pop_front()
        {
            known.answers.remove(&oldest);
        }
        // Under the lock: the same order, on another thread, waits for the answer.
        let answer = carry_out();
        known.order.push_back(key);
        known.answers.insert(key, answer);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_comes_again_is_answered_and_not_carried_out() {
        let (done, mut times) = (Done::default(), 0);
        for _ in 0..3 {
            let answer = done.once((2, 1, 7), || {
                times += 1;
                Answer::Found
            });
            assert_eq!(answer, Answer::Found);
        }
        assert_eq!(times, 1);
        // Another one, and the same number of another life.
        for other in [(2, 1, 8), (2, 2, 7)] {
            assert_eq!(done.once(other, || Answer::NotFound), Answer::NotFound);
        }
    }

    #[test]
    fn no_more_are_remembered_than_may_come_again() {
        let done = Done::default();
        for n in 0..2 * REMEMBERED as u64 {
            done.once((1, 1, n), || Answer::Found);
        }
        let known = done.0.lock();
        assert_eq!(known.answers.len(), REMEMBERED);
        assert_eq!(known.order.len(), REMEMBERED);
        assert!(!known.answers.contains_key(&(1, 1, 0)));
    }
}
