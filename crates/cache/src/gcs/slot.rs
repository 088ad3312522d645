//! The place where a session waits for a block, and what it is told there.

use super::timing::BlockCost;
use block::{BlockBuf, Dba, InstanceId, ObjectId};
use seam::{Condvar, Mutex};
use std::sync::Arc;
use wait::Event;
use wait::remote::{self, Served, Transfer};
use wait::session::{Interrupt, Session};

/// The news for a waiting session.
pub(super) enum Told {
    /// The block is here in the mode asked for, and stays until the session has latched it once.
    Run,
    /// The block is granted: the session must read it from disk.
    Read,
    /// A copy that another instance made.
    Copy(Arc<BlockBuf>),
    /// The session's own statement says so, because it is cancelled. The request may be answered
    /// all the same, until the session has withdrawn.
    GiveUp,
}

/// How a wait turned out.
pub(super) struct How {
    event: Event,
    /// What the instances said that served the request, and when their answer was read here.
    served: Option<(Served, u64)>,
}

impl How {
    /// A wait for which nobody else was asked, or not for this session.
    pub fn local(event: Event) -> How {
        How {
            event,
            served: None,
        }
    }

    /// A wait that another instance's answer ended. If a block came, `came` has its object, and
    /// whether it is the current block.
    pub fn remote(
        event: Event,
        (from, spent, received_ns): (InstanceId, BlockCost, u64),
        came: Option<(ObjectId, bool)>,
    ) -> How {
        let mut served = spent.served(from, 0);
        served.transfer = came.map(|(object, current)| Transfer {
            object: object.0,
            current,
            busy: spent.busy || spent.congested,
        });
        How {
            event,
            served: Some((served, received_ns)),
        }
    }

    /// What the serving instances said, for a session that runs again now.
    fn served_now(&self) -> Option<Served> {
        self.served.map(|(mut served, received_ns)| {
            served.wake_ns = interconnect::now_ns().saturating_sub(received_ns);
            served
        })
    }

    /// This outcome under another event's name.
    pub fn named(self, event: Event) -> How {
        How { event, ..self }
    }
}

/// A session that waits for a block of the shard.
pub(super) struct Waiting {
    pub dba: Dba,
    pub slot: Arc<Slot>,
    pub asked_ns: u64,
    /// Whether the session came to read, so that a copy would do.
    pub copy_would_do: bool,
    /// Whether another session had asked already.
    pub joined: bool,
    /// Whether the block was here, and on its way to another instance.
    pub releasing: bool,
    /// Whether the block's granule was getting another master meanwhile.
    pub remastered: bool,
}

/// A session's place to wait: for one block, or for several at once.
#[derive(Default)]
pub(super) struct Slot {
    place: Mutex<Place>,
    changed: Condvar,
}

#[derive(Default)]
struct Place {
    /// What the session waits for now.
    waits: Vec<OneWait>,
}

struct OneWait {
    waiter: u64,
    told: Option<(Told, How)>,
}

/// The instance that a session has asked, and when, by the clock of waits.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub of: InstanceId,
    pub at_ns: u64,
}

impl Slot {
    /// Ends the waits of before, whatever is said of them later.
    pub fn clear(&self) {
        self.place.lock().waits.clear();
    }

    /// Begins a wait. Called before anybody can be told of its number.
    pub fn begin(&self, waiter: u64) {
        let wait = OneWait { waiter, told: None };
        self.place.lock().waits.push(wait);
    }

    /// Ends one of several waits, of which nobody will say anything.
    pub fn end(&self, waiter: u64) {
        self.place.lock().waits.retain(|w| w.waiter != waiter);
    }

    /// Tells the session of that wait. Without effect if the wait is over, or if its session has
    /// been told to go on: then this news comes late.
    pub fn tell(&self, waiter: u64, told: Told, how: How) {
        let mut place = self.place.lock();
        let of_this = |w: &&mut OneWait| w.waiter == waiter;
        let Some(wait) = place.waits.iter_mut().find(of_this) else {
            return;
        };
        if matches!(wait.told, Some((Told::Run | Told::Copy(_), _))) {
            return;
        }
        wait.told = Some((told, how));
        let is_due = place.is_due();
        drop(place);
        if is_due {
            self.changed.notify_one();
        }
    }

    /// Waits under the event `event`. The wait is charged to what it turned out to be, with its
    /// parts.
    ///
    /// If `cancellable` is a session, its statement may be cancelled meanwhile. A request to other
    /// instances is not taken back then, because it may serve somebody else.
    pub(super) fn wait(
        self: &Arc<Self>,
        event: Event,
        p: [u64; 3],
        asked: Asked,
        cancellable: Option<&Session>,
    ) -> Told {
        let at_once = self.place.lock().take_local();
        if let Some(told) = at_once {
            return told; // nobody else was asked
        }
        wait::during_remote(event, p, (asked.of.0, asked.at_ns), || {
            let mut told = self.until_due(cancellable);
            let (told, how) = told.pop().map_or_else(
                || (Told::GiveUp, How::local(event)),
                |(_, told, how)| (told, how),
            );
            (told, how.event, how.served_now())
        })
    }

    /// Waits for several blocks under the event `event`, until one of them needs the session or
    /// nothing is left to wait for. Returns the news by number of the wait; none if the statement
    /// is cancelled. The wait is taken apart by what is said of the answer that came last.
    pub(super) fn wait_for_any(
        self: &Arc<Self>,
        event: Event,
        p: [u64; 3],
        asked: Asked,
        cancellable: Option<&Session>,
    ) -> Vec<(u64, Told)> {
        let mut answers: Vec<Served> = Vec::new();
        let news = wait::during_remote(event, p, (asked.of.0, asked.at_ns), || {
            let news = self.until_due(cancellable);
            answers.extend(news.iter().filter_map(|(.., how)| how.served_now()));
            let last = answers.iter().min_by_key(|served| served.wake_ns);
            // All blocks are counted together, when the length of the wait is known.
            let last = last.map(|served| Served {
                transfer: None,
                ..*served
            });
            let news = news.into_iter().map(|(waiter, told, _)| (waiter, told));
            (news.collect(), event, last)
        });
        let total_ns = wait::timestamp_ns().saturating_sub(asked.at_ns);
        remote::came_together(event, total_ns, &answers);
        news
    }

    /// All news, once the session has to look at it; none if the statement is cancelled.
    fn until_due(self: &Arc<Self>, cancellable: Option<&Session>) -> Vec<(u64, Told, How)> {
        let until = |is_cancelled: &dyn Fn() -> bool| {
            let mut place = self.place.lock();
            loop {
                if place.is_due() {
                    return place.take_news();
                }
                if is_cancelled() {
                    return Vec::new();
                }
                self.changed.wait(&mut place);
            }
        };
        match cancellable {
            Some(s) => s.interruptible(self.clone(), || until(&|| s.cancel_asked())),
            None => until(&|| false),
        }
    }
}

impl Place {
    /// Whether the session is to look at its news. A copy alone can wait for the others; a block
    /// that is to be read, or that stays until the session has been here, cannot.
    fn is_due(&self) -> bool {
        let told = |w: &OneWait| w.told.is_some();
        let urgent =
            |w: &OneWait| matches!(w.told, Some((Told::Run | Told::Read | Told::GiveUp, _)));
        self.waits.iter().all(told) || self.waits.iter().any(urgent)
    }

    /// Takes all news. A wait whose block is to be read goes on.
    fn take_news(&mut self) -> Vec<(u64, Told, How)> {
        let mut news = Vec::new();
        self.waits.retain_mut(|w| {
            let Some((told, how)) = w.told.take() else {
                return true;
            };
            let goes_on = matches!(told, Told::Read);
            news.push((w.waiter, told, how));
            goes_on
        });
        news
    }

    /// The news of a single wait, if nobody else was asked.
    fn take_local(&mut self) -> Option<Told> {
        let wait = self.waits.first_mut()?;
        let (told, _) = wait.told.take_if(|(_, how)| how.served.is_none())?;
        Some(told)
    }
}

impl Interrupt for Slot {
    fn interrupt(&self) {
        // A waiter has looked before this, or it looks after this.
        drop(self.place.lock());
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news_of(slot: &Arc<Slot>) -> Vec<u64> {
        let news = slot.until_due(None);
        news.into_iter().map(|(waiter, ..)| waiter).collect()
    }

    fn copy() -> Told {
        Told::Copy(Arc::new(*BlockBuf::zeroed()))
    }

    fn local() -> How {
        How::local(Event::GcBufferBusyAcquire)
    }

    /// A reader of several blocks is not woken for one copy. It is for the last one, and for a
    /// block that it has to read. The wait for that block goes on.
    #[test]
    fn a_reader_of_several_blocks_wakes_when_it_has_something_to_do() {
        let slot = Arc::new(Slot::default());
        (1..=4).for_each(|waiter| slot.begin(waiter));
        slot.tell(1, copy(), local());
        assert!(!slot.place.lock().is_due());
        slot.tell(2, Told::Read, local());
        assert_eq!(news_of(&slot), [1, 2]);
        slot.tell(3, copy(), local());
        slot.tell(2, Told::Run, local());
        assert_eq!(news_of(&slot), [2, 3]);
        slot.tell(4, copy(), local());
        assert_eq!(news_of(&slot), [4]);
    }

    /// A statement that is cancelled withdraws some of its requests, and waits for the answers that
    /// are under way. (It waited for ever, as what was withdrawn still counted.)
    #[test]
    fn nothing_is_waited_for_that_was_withdrawn() {
        let slot = Arc::new(Slot::default());
        (1..=3).for_each(|waiter| slot.begin(waiter));
        slot.tell(1, copy(), local());
        slot.end(2);
        assert!(!slot.place.lock().is_due());
        slot.end(3);
        assert_eq!(news_of(&slot), [1]);
    }
}
