//! Bulletins: what an instance tells all others, in order, each bulletin once. `NOTIFY` travels so.
//!
//! Bulletins are bytes here. Only who tells and who hears them know what they mean.
//!
//! ```text
//! session ── TELL life, number, bytes ──► receiving thread ──► the hearer
//!            (kept until heard)                │
//!        ◄── HEARD life, number ───────────────┘
//! ```
//!
//! **Invariants.**
//! - To each other life of an instance there is a way with numbers of its own, without gaps from 1
//!   on. A bulletin is kept until that life says that it has heard its number.
//! - A bulletin is heard when all before it were. One that comes again is not heard again.
//! - A receiving thread does not wait. A hearer that has no room says so; the bulletin then counts
//!   as lost on the way, and comes again with the next tick.
//! - What is told while an instance is no member is not for it: nobody there asks for it yet.
//! - The bulletins of a dead instance that it had not sent are lost with it.
//! - A way does not grow without limit: its teller asks [`Bulletins::fullness`] first.

mod messages;

use crate::cluster::{Layer, Members};
use crate::{Progress, Result};
use block::{BlockBuf, InstanceId};
use interconnect::{Parcel, Post, Route};
use messages::Message;
use seam::{HashMap, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use wait::{Event, Waiter};

/// Kinds of messages, within [`interconnect::kinds::ENGINE`].
pub(crate) const BULLETIN_KINDS: RangeInclusive<u16> = 260..=261;

/// Most bytes of one bulletin: a channel and a payload of `NOTIFY`, with room to spare.
pub const BULLETIN_MAX_BYTES: usize = 16 << 10;
/// Bytes that are on their way to an instance at a time. The rest follows as it is heard, so that
/// bulletins do not hold up what shares their lane.
const WINDOW_BYTES: usize = 1 << 20;
/// Bytes that are kept for one instance at most, as far as tellers ask: more than an instance takes
/// in a second, and little beside a buffer cache.
const KEPT_MAX_BYTES: usize = 64 << 20;
/// How often a leaver looks whether all has been heard.
const LEAVE_LOOK: Duration = Duration::from_millis(20);
/// How long a leaver waits for an instance that has no room: longer than a tick, after which all
/// comes again, and not so long that a listener that never reads keeps it.
const LEAVE_PATIENCE: Duration = Duration::from_secs(10);

/// Hears a bulletin. False: there is no room for it now. Called on a receiving thread.
pub type Hearer = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// The bulletins for one life of another instance.
#[derive(Default)]
struct Way {
    incarnation: u32,
    /// What it has not heard yet.
    kept: VecDeque<Arc<[u8]>>,
    kept_bytes: usize,
    /// The number of the first of these.
    first: u64,
    /// How many of these are on their way, and their bytes.
    sent: usize,
    sent_bytes: usize,
    /// Whether it has said anything since the last tick.
    heard: bool,
}

/// The bulletins of an instance and those of others; the module's head says more.
pub struct Bulletins {
    post: OnceLock<Arc<dyn Post>>,
    hearer: OnceLock<Hearer>,
    /// The life of this instance.
    life: u32,
    ways: Mutex<BTreeMap<InstanceId, Way>>,
    /// Of each other instance: its life, and the last number heard of that.
    heard: Mutex<HashMap<InstanceId, (u32, u64)>>,
}

impl Bulletins {
    /// Makes the layer of one life, whose number is `incarnation`.
    pub(crate) fn new(incarnation: u32) -> Arc<Bulletins> {
        Arc::new(Bulletins {
            post: OnceLock::new(),
            hearer: OnceLock::new(),
            life: incarnation,
            ways: Mutex::default(),
            heard: Mutex::default(),
        })
    }

    /// Sets the function that hears the others' bulletins. Called once. What comes before that is
    /// for nobody.
    pub fn hear_with(&self, hearer: Hearer) {
        assert!(
            self.hearer.set(hearer).is_ok(),
            "invariant: one hearer hears for an instance"
        );
    }

    /// Tells all other members. Bulletins arrive in the order of the calls. The call does not wait.
    pub fn tell(&self, bulletin: &Arc<[u8]>) {
        assert!(
            bulletin.len() <= BULLETIN_MAX_BYTES,
            "invariant: bulletins are short"
        );
        for (to, way) in self.ways.lock().iter_mut() {
            way.kept.push_back(bulletin.clone());
            way.kept_bytes += bulletin.len();
            self.send_on(*to, way);
        }
    }

    /// How full the fullest way is: from 1 on nothing should be told.
    pub fn fullness(&self) -> f64 {
        let ways = self.ways.lock();
        let most = ways.values().map(|way| way.kept_bytes).max();
        most.unwrap_or(0) as f64 / KEPT_MAX_BYTES as f64
    }

    /// Sends what has room on the way.
    fn send_on(&self, to: InstanceId, way: &mut Way) {
        while let Some(bulletin) = way.kept.get(way.sent)
            && way.sent_bytes < WINDOW_BYTES
        {
            let (life, number) = (self.life, way.first + way.sent as u64);
            self.send(to, Message::Tell { life, number }, bulletin);
            way.sent += 1;
            way.sent_bytes += bulletin.len();
        }
    }

    fn send(&self, to: InstanceId, message: Message, behind: &[u8]) {
        if let Some(post) = self.post.get() {
            let parcel = Parcel {
                route: Route::Hash(0),
                kind: message.kind(),
                epoch: 0,
                body: &message.encode(behind),
                block: None,
            };
            post.send(to, parcel);
        }
    }

    /// Sends again what was on its way.
    fn send_again(&self, to: InstanceId, way: &mut Way) {
        (way.sent, way.sent_bytes) = (0, 0);
        self.send_on(to, way);
    }

    // ---- for the receiving threads ----

    fn was_told(&self, from: InstanceId, life: u32, number: u64, bulletin: &[u8]) {
        let mut heard = self.heard.lock();
        let known = heard.entry(from).or_insert((life, 0));
        if life > known.0 {
            *known = (life, 0);
        }
        if life != known.0 {
            return;
        }
        if number == known.1 + 1 && self.hearer.get().is_none_or(|hear| hear(bulletin)) {
            known.1 = number;
        }
        // Also of one that came again: what said so the first time may have been lost.
        if number <= known.1 {
            let number = known.1;
            self.send(from, Message::Heard { life, number }, &[]);
        }
    }

    fn was_heard(&self, by: InstanceId, number: u64) -> std::result::Result<(), String> {
        let mut ways = self.ways.lock();
        let Some(way) = ways.get_mut(&by) else {
            return Ok(());
        };
        if number >= way.first + way.kept.len() as u64 {
            return Err(format!("bulletin {number} was not told"));
        }
        while way.first <= number
            && let Some(bulletin) = way.kept.pop_front()
        {
            way.first += 1;
            way.kept_bytes -= bulletin.len();
            // One that is to be sent again may be heard before that.
            if way.sent > 0 {
                way.sent -= 1;
                way.sent_bytes -= bulletin.len();
            }
        }
        way.heard = true;
        self.send_on(by, way);
        Ok(())
    }
}

impl Layer for Bulletins {
    fn join(&self, post: Arc<dyn Post>) -> Result<()> {
        assert!(
            self.post.set(post).is_ok(),
            "invariant: a cluster is joined once"
        );
        Ok(())
    }

    fn message(
        &self,
        from: InstanceId,
        _: u64,
        kind: u16,
        body: &[u8],
        _: Option<&BlockBuf>,
    ) -> std::result::Result<(), String> {
        let (message, behind) = Message::decode(kind, body)
            .map_err(|why| format!("no bulletin and no answer to one: {why}"))?;
        match message {
            Message::Tell { life, number } => {
                self.was_told(from, life, number, behind);
                Ok(())
            }
            // What is for an earlier life of this instance does not arrive.
            Message::Heard { life, number } if life == self.life => self.was_heard(from, number),
            Message::Heard { .. } => Ok(()),
        }
    }

    fn reconnected(&self, peer: InstanceId) {
        if let Some(way) = self.ways.lock().get_mut(&peer) {
            self.send_again(peer, way);
        }
    }

    fn tick(&self) {
        for (to, way) in self.ways.lock().iter_mut() {
            if !std::mem::take(&mut way.heard) && !way.kept.is_empty() {
                self.send_again(*to, way);
            }
        }
    }

    fn members_changed(&self, members: &Members) -> Result<()> {
        let up = members.numbers();
        self.heard.lock().retain(|from, _| up.contains(from));
        let me = self.post.get().map(|post| post.me());
        let mut ways = self.ways.lock();
        ways.retain(|to, _| up.contains(to));
        for other in members.up.iter().filter(|m| Some(m.instance) != me) {
            let way = ways.entry(other.instance).or_default();
            if way.incarnation != other.incarnation {
                *way = Way {
                    incarnation: other.incarnation,
                    first: 1,
                    ..Way::default()
                };
            }
        }
        Ok(())
    }

    /// Waits until all has been heard.
    fn leaving(&self, progress: &dyn Progress) -> Result<()> {
        let began = seam::now();
        loop {
            let left: usize = self.ways.lock().values().map(|way| way.kept.len()).sum();
            if left == 0 {
                return Ok(());
            }
            if seam::elapsed(began) >= LEAVE_PATIENCE {
                tracing::warn!("{left} notifications are lost: other instances had no room");
                return Ok(());
            }
            progress.step(
                "leaving: notifications that are not heard yet",
                0,
                left as u64,
            );
            let until = seam::now() + LEAVE_LOOK;
            Waiter::new().wait(Event::RdbmsIpcMessage, [0; 3], Some(until));
        }
    }
}

#[cfg(test)]
mod tests;
