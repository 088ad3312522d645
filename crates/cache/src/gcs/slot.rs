//! A session's place to wait for a block, and what it is told there.

use super::timing::BlockCost;
use block::{BlockBuf, Dba, InstanceId, ObjectId};
use seam::{Condvar, Mutex};
use std::sync::Arc;
use wait::Event;
use wait::remote::{Served, Transfer};
use wait::session::{Interrupt, Session};

/// What a waiting session is told.
pub(super) enum Told {
    /// The block is here in the mode asked for, and stays until the session has latched it once.
    Run,
    /// The block is granted: read it from disk.
    Read,
    /// A copy made by another instance.
    Copy(Arc<BlockBuf>),
    /// By its own statement, which is cancelled. Whoever asked may be told otherwise all the same,
    /// until it has withdrawn.
    GiveUp,
}

/// What a wait turned out to be.
pub(super) struct How {
    event: Event,
    /// What those said who served it, and when their answer was read here.
    served: Option<(Served, u64)>,
}

impl How {
    /// Nobody was asked, or not for this session.
    pub fn local(event: Event) -> How {
        How {
            event,
            served: None,
        }
    }

    /// `came`: of which object a block came, and whether it is the current one.
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

    /// The way a block came, under another event's name.
    pub fn named(self, event: Event) -> How {
        How { event, ..self }
    }
}

/// A session that waits for a block of the shard.
pub(super) struct Waiting {
    pub dba: Dba,
    pub slot: Arc<Slot>,
    pub asked_ns: u64,
    /// The session came to read.
    pub copy_would_do: bool,
    /// Whether another session had asked already.
    pub joined: bool,
    /// The block was here, and on its way to another instance.
    pub releasing: bool,
    /// The block's granule was getting another master meanwhile.
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

/// Whom a session has asked, and when, by the clock of waits.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub of: InstanceId,
    pub at_ns: u64,
}

impl Slot {
    /// A wait begins: to be called before anybody can be told of its number.
    pub fn begin(&self, waiter: u64) {
        *self.place.lock() = Place { waiter, told: None };
    }

    /// Without effect if the wait of that number is over, or its session has been told to go on:
    /// this was said late.
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

    /// Waits, shown under `event`; charged to what it turned out to be, with its parts.
    /// `cancellable`: the session whose statement may be cancelled meanwhile. A request to other
    /// instances is not taken back then: somebody else may be served by it.
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
        // A waiter has looked before this, or looks after it.
        drop(self.place.lock());
        self.changed.notify_one();
    }
}
