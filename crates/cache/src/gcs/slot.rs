//! The place where a session waits for a block, and what it is told there.

use super::timing::BlockCost;
use block::{BlockBuf, Dba, InstanceId, ObjectId};
use seam::{Condvar, Mutex};
use std::sync::Arc;
use wait::Event;
use wait::remote::{Served, Transfer};
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

/// A session's place to wait.
#[derive(Default)]
pub(super) struct Slot {
    place: Mutex<Place>,
    changed: Condvar,
}

#[derive(Default)]
struct Place {
    /// The number under which it waits now.
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
    /// Begins a wait. Called before anybody can be told of its number.
    pub fn begin(&self, waiter: u64) {
        *self.place.lock() = Place { waiter, told: None };
    }

    /// Tells the session of that wait. Without effect if the wait is over, or if its session has
    /// been told to go on: then this news comes late.
    pub fn tell(&self, waiter: u64, told: Told, how: How) {
        let mut place = self.place.lock();
        let goes_on = matches!(place.told, Some((Told::Run | Told::Copy(_), _)));
        if place.waiter != waiter || goes_on {
            return;
        }
        place.told = Some((told, how));
        drop(place);
        self.changed.notify_one();
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
        let mut place = self.place.lock();
        let at_once = place.told.take_if(|(_, how)| how.served.is_none());
        drop(place);
        if let Some((told, _)) = at_once {
            return told; // nobody else was asked
        }
        wait::during_remote(event, p, (asked.of.0, asked.at_ns), || {
            let (told, how) = match cancellable {
                Some(s) => {
                    s.interruptible(self.clone(), || self.until_told(event, || s.cancel_asked()))
                }
                None => self.until_told(event, || false),
            };
            let served = how.served.map(|(mut served, received_ns)| {
                served.wake_ns = interconnect::now_ns().saturating_sub(received_ns);
                served
            });
            (told, how.event, served)
        })
    }

    fn until_told(&self, shown: Event, is_cancelled: impl Fn() -> bool) -> (Told, How) {
        let mut place = self.place.lock();
        loop {
            if let Some(told) = place.told.take() {
                return told;
            }
            if is_cancelled() {
                return (Told::GiveUp, How::local(shown));
            }
            self.changed.wait(&mut place);
        }
    }
}

impl Interrupt for Slot {
    fn interrupt(&self) {
        // A waiter has looked before this, or it looks after this.
        drop(self.place.lock());
        self.changed.notify_one();
    }
}
