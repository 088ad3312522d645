//! Takes apart the time of a request for a lock, as its master and the instance that has it see it
//! (see [`crate::timing`]).
//!
//! ```text
//! requester ── Request ──► master: queue, behind other requests
//! master ── Recall ──► holder: in use, until its users let go
//! holder ── Recalled ──► master ── Grant ──► requester
//! ```
//!
//! The instance that answers its recall last has kept the requester waiting. If the master's own
//! sessions use the lock, the master has.

use crate::timing::{AnswerCost, Answered, Begun, Noted, received_ns, since};
use block::InstanceId;
use fusion::ges::{Message, Resource};
use fusion::{RequestId, Turn};

/// The message that is being looked at, if it answers a question from here.
#[derive(Clone, Copy)]
struct Answer {
    how: Answered,
    /// When this instance, as the master, sent the recall that it answers.
    recalled_ns: Option<u64>,
}

/// The times of requests and recalls that are under way; see the module. Guarded by the machine's
/// latch.
#[derive(Default)]
pub(super) struct Timing {
    /// When others' requests came.
    requests: Noted<(InstanceId, RequestId), u64>,
    /// When this instance, as a master, sent its recalls.
    recalls: Noted<Turn, u64>,
    /// When recalls came from a master.
    recalled: Noted<(InstanceId, Turn), Begun>,
    /// Since when sessions of this instance, as the master, keep others waiting.
    used: Noted<Resource, u64>,
    answer: Option<Answer>,
}

impl Timing {
    /// Forgets all times, because the members have changed and everything is asked again.
    pub(super) fn forget(&mut self) {
        *self = Timing::default();
    }

    /// Notes a message that is about to be looked at. `used` says that sessions of this instance
    /// keep others waiting for its lock.
    pub(super) fn arrived(
        &mut self,
        from: InstanceId,
        message: &Message,
        spent: Option<AnswerCost>,
        used: bool,
    ) {
        let at_ns = received_ns();
        match *message {
            Message::Request { resource, id, .. } => {
                self.requests.note((from, id), at_ns);
                if !used {
                    self.used.take(&resource);
                }
            }
            Message::Recall { turn, wanted, .. } if !wanted.is_empty() => {
                self.recalled.note((from, turn), Begun::now());
            }
            _ => {}
        }
        let recalled_ns = match *message {
            Message::Recalled { turn, .. } => self.recalls.get(&turn),
            _ => None,
        };
        self.answer = spent.map(|spent| Answer {
            how: Answered { spent, at_ns },
            recalled_ns,
        });
    }

    /// Notes that the message about this lock has been looked at, and that what came of it has
    /// left.
    pub(super) fn step_is_over(&mut self, resource: Resource, used: bool) {
        self.answer = None;
        match used {
            true => self.used.note(resource, interconnect::now_ns()),
            false => drop(self.used.take(&resource)),
        }
    }

    /// What is said behind a message of `me` that leaves.
    pub(super) fn leaving(
        &mut self,
        me: InstanceId,
        to: InstanceId,
        message: &Message,
    ) -> Option<AnswerCost> {
        match *message {
            Message::Recall { turn, wanted, .. } if !wanted.is_empty() => {
                self.recalls.note(turn, interconnect::now_ns());
                None
            }
            // A recall may have several answers, for one request after the other.
            Message::Recalled { turn, .. } => {
                let begun = self.recalled.get(&(to, turn));
                Some(begun.map_or(AnswerCost::by(me), |b| b.answered(me)))
            }
            Message::Grant { resource, id, .. } | Message::Denied { resource, id } => {
                Some(self.served(me, resource, (to, id)))
            }
            _ => None,
        }
    }

    /// As the master, the cost of a request that is answered now.
    fn served(
        &mut self,
        me: InstanceId,
        resource: Resource,
        of: (InstanceId, RequestId),
    ) -> AnswerCost {
        let Some(asked_ns) = self.requests.take(&of) else {
            return AnswerCost::by(me);
        };
        if let Some(Answer {
            recalled_ns: Some(recalled_ns),
            how: Answered { spent, .. },
        }) = self.answer
        {
            let waited_ns = recalled_ns.saturating_sub(asked_ns);
            return AnswerCost {
                messages: 4,
                queue_ns: spent.queue_ns.saturating_add(waited_ns),
                ..spent
            };
        }
        let in_use_ns = self
            .used
            .get(&resource)
            .map_or(0, |at| since(at.max(asked_ns)));
        AnswerCost {
            in_use_ns,
            queue_ns: since(asked_ns).saturating_sub(in_use_ns),
            ..AnswerCost::by(me)
        }
    }

    /// The answer for which a session of this instance has waited that is let go in this step.
    /// `None` if no other instance kept it waiting.
    pub(super) fn answer(&self) -> Option<Answered> {
        self.answer.map(|a| a.how)
    }
}
