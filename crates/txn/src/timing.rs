//! Takes apart the time of a question to another instance about a transaction, a lock or a commit.
//! Each instance that serves the question measures by its own clock. The figures stand behind the
//! answer.
//!
//! The machines of `fusion` know of no clock, so this stands beside them, as `cache::gcs::timing`
//! does for blocks. The waiting session takes its wait apart with the figures (`wait::remote`).
//!
//! **Invariants.**
//! - Nothing depends on the figures. A figure that is lost shows as time of the messages, never as
//!   a wrong sum.
//! - The memory is bounded ([`NOTED_MAX`]).

use block::InstanceId;
use redo::Known;
use seam::HashMap;
use std::hash::Hash;
use wait::remote::Served;

/// The most things that are noted of one kind. Each session waits for one at a time, so there are
/// few. At this number all are forgotten.
const NOTED_MAX: usize = 4096;

/// What it took to serve a question. `messages` counts those on the way from the question to the
/// answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AnswerCost {
    /// The instance that was waited for: the one that answered, or the one whose use of a lock had
    /// to end first.
    pub by: InstanceId,
    pub messages: u8,
    /// The time until a thread came to the question, and that behind others' requests.
    pub queue_ns: u64,
    /// The time until the users there let go.
    pub in_use_ns: u64,
    /// The time for the log, if the transaction was committing.
    pub flush_ns: u64,
}

impl AnswerCost {
    /// The cost of a question to `by` and its answer, if neither had to wait for anything.
    pub fn by(by: InstanceId) -> AnswerCost {
        AnswerCost {
            by,
            messages: 2,
            queue_ns: 0,
            in_use_ns: 0,
            flush_ns: 0,
        }
    }

    /// The cost of an answer that was given as soon as this thread had come to the question.
    pub fn at_once(by: InstanceId) -> AnswerCost {
        AnswerCost {
            queue_ns: since(received_ns()),
            ..AnswerCost::by(by)
        }
    }

    fn served(&self) -> Served {
        Served {
            instance: self.by.0,
            messages: self.messages,
            queue_ns: self.queue_ns,
            in_use_ns: self.in_use_ns,
            flush_ns: self.flush_ns,
            ..Served::default()
        }
    }
}

wire::fields! { impl AnswerCost { by, messages, queue_ns, in_use_ns, flush_ns } }

/// An answer that has arrived: what it took, and when it arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answered {
    pub spent: AnswerCost,
    pub at_ns: u64,
}

impl Answered {
    /// The answer in the message that this thread handles.
    pub fn now(spent: AnswerCost) -> Answered {
        Answered {
            spent,
            at_ns: received_ns(),
        }
    }

    /// The figures for a wait that ends now and began at `since_ns` by [`wait::timestamp_ns`],
    /// perhaps as several waits.
    pub fn served(&self, since_ns: u64) -> Served {
        Served {
            wake_ns: since(self.at_ns),
            since_ns: Some(since_ns),
            ..self.spent.served()
        }
    }

    /// The figures for a session that waits for a commit to be known.
    pub fn known(&self) -> Known {
        Known {
            by: self.spent.served(),
            at_ns: wait::timestamp_ns().saturating_sub(since(self.at_ns)),
        }
    }
}

/// When the message that this thread handles arrived. Without one, now.
pub(crate) fn received_ns() -> u64 {
    interconnect::handled_message_received_ns().unwrap_or_else(interconnect::now_ns)
}

/// The time that has passed since `at_ns`, by [`interconnect::now_ns`].
pub(crate) fn since(at_ns: u64) -> u64 {
    interconnect::now_ns().saturating_sub(at_ns)
}

/// When this thread came to a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Begun {
    pub at_ns: u64,
    /// How long the question had been here by then.
    pub queue_ns: u64,
}

impl Begun {
    pub fn now() -> Begun {
        let (received_ns, at_ns) = (received_ns(), interconnect::now_ns());
        Begun {
            at_ns,
            queue_ns: at_ns.saturating_sub(received_ns),
        }
    }

    /// The cost of an answer that leaves now, if it waited since then for nothing but users.
    pub fn answered(&self, by: InstanceId) -> AnswerCost {
        AnswerCost {
            queue_ns: self.queue_ns,
            in_use_ns: since(self.at_ns),
            ..AnswerCost::by(by)
        }
    }
}

/// For each thing that is not over, when it began.
pub(crate) struct Noted<K, V>(HashMap<K, V>);

impl<K, V> Default for Noted<K, V> {
    fn default() -> Self {
        Noted(HashMap::default())
    }
}

impl<K: Hash + Eq, V: Copy> Noted<K, V> {
    /// Notes when `key` began. An earlier note stays: a question that is repeated began with the
    /// first one.
    pub fn note(&mut self, key: K, begun: V) {
        if self.0.len() >= NOTED_MAX {
            self.0.clear();
        }
        self.0.entry(key).or_insert(begun);
    }

    pub fn take(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    pub fn get(&self, key: &K) -> Option<V> {
        self.0.get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_comes_back_and_strangers_are_refused() {
        let spent = AnswerCost {
            by: InstanceId(3),
            messages: 4,
            queue_ns: 1,
            in_use_ns: u64::MAX,
            flush_ns: 2,
        };
        let mut bytes = Vec::new();
        wire::Writer::new(&mut bytes).put(&spent);
        let read = wire::decode::<AnswerCost>;
        assert_eq!(read(&bytes).unwrap(), spent);
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_err(), "{cut}");
        }
        bytes[0] = 0;
        assert!(read(&bytes).is_err(), "there is no instance 0");
    }

    #[test]
    fn notes_keep_the_first_time_and_stay_bounded() {
        let mut noted: Noted<usize, u64> = Noted::default();
        noted.note(7, 10);
        noted.note(7, 20);
        assert_eq!(
            (noted.get(&7), noted.take(&7), noted.take(&7)),
            (Some(10), Some(10), None)
        );
        for n in 0..3 * NOTED_MAX {
            noted.note(n, 1);
            assert!(noted.0.len() <= NOTED_MAX);
        }
    }
}
