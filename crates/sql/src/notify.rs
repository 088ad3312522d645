//! LISTEN and NOTIFY: which sessions of this instance listen to what, and what they have not taken
//! yet ([decision 0088](../../../docs/decisions/0088-notifications-are-bulletins.md)).
//!
//! A session notifies when its transaction has committed: the listeners of its own instance at
//! once, and those of the others by a bulletin ([`engine::Bulletins`]).
//!
//! **Invariants.**
//! - A notification is sent after its commit has taken effect on every instance. So a listener that
//!   looks then sees what was committed, and what a listener does not get, because it began to
//!   listen too late, its next snapshot sees.
//! - Commits of one instance that send are one after another ([`Notices::turn`]), and so are
//!   their notifications, to every listener of every instance.
//! - A listener's notifications are kept until its session takes them, which is between
//!   transactions. When too many are kept, commits that notify fail (54000), on this instance and
//!   on those whose bulletins find no room here. None is dropped.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use wait::Event;
use wire::{Bad, Writer, fields};

/// What is kept at most for all listeners of an instance, in bytes. It is memory; PostgreSQL keeps
/// up to 8 GB in files.
const KEPT_MAX_BYTES: usize = 64 << 20;
/// What one notification counts as beside its text.
const OVERHEAD_BYTES: usize = 64;
/// The longest name of a channel, in bytes.
pub const CHANNEL_MAX_BYTES: usize = 63;
/// A payload is shorter than this, in bytes.
pub const PAYLOAD_LIMIT_BYTES: usize = 8000;

/// A notification, as a client is told it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Notification {
    /// The process id of the session that notified.
    pub pid: i32,
    pub channel: String,
    pub payload: String,
}

/// A notification as it travels.
#[derive(PartialEq, Eq, Debug)]
struct Bulletin {
    pid: u32,
    channel: Vec<u8>,
    payload: Vec<u8>,
}

fields! { impl Bulletin { pid, channel, payload } }

/// Wakes a session that waits for its client. It may be rung by any thread, and rings do not wait.
pub trait Bell: Send + Sync {
    fn ring(&self);
}

/// Held from before a commit until what it sends is on its way.
pub type Turn<'n> = MutexGuard<'n, ()>;

/// How often one that waits for its turn looks whether it is cancelled.
const LOOK_FOR_CANCEL: Duration = Duration::from_millis(50);

/// The listening sessions of an instance.
#[derive(Default)]
pub struct Notices {
    turn: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    listeners: BTreeMap<u64, Listener>,
    /// Which listeners listen to a channel.
    channels: HashMap<String, BTreeSet<u64>>,
    /// The bytes of what all listeners have not taken.
    kept_bytes: usize,
}

#[derive(Default)]
struct Listener {
    /// In the order in which it began to listen to them.
    channels: Vec<String>,
    kept: VecDeque<Arc<Notification>>,
    bell: Option<Arc<dyn Bell>>,
}

impl Notification {
    fn bytes(&self) -> usize {
        self.channel.len() + self.payload.len() + OVERHEAD_BYTES
    }

    /// The bulletin of it.
    pub fn encode(&self) -> Arc<[u8]> {
        let mut bytes = Vec::with_capacity(self.bytes());
        Writer::new(&mut bytes).put(&Bulletin {
            pid: self.pid as u32,
            channel: self.channel.clone().into_bytes(),
            payload: self.payload.clone().into_bytes(),
        });
        bytes.into()
    }

    fn decode(bytes: &[u8]) -> Result<Notification, Bad> {
        let read: Bulletin = wire::decode(bytes)?;
        let text =
            |bytes| String::from_utf8(bytes).map_err(|_| Bad::because("its texts are not UTF-8"));
        Ok(Notification {
            pid: read.pid as i32,
            channel: text(read.channel)?,
            payload: text(read.payload)?,
        })
    }
}

impl Notices {
    /// The turn of a commit that sends; others wait for its end, unless they are cancelled.
    pub fn turn(&self) -> Result<Turn<'_>, wait::Cancelled> {
        if let Some(turn) = self.turn.try_lock() {
            return Ok(turn);
        }
        // What is waited for is another session's commit.
        wait::during(Event::LogFileSync, [0; 3], || {
            loop {
                wait::check_cancel()?;
                if let Some(turn) = self.turn.try_lock_for(LOOK_FOR_CANCEL) {
                    return Ok(turn);
                }
            }
        })
    }

    /// A session begins to listen to a channel; its number as a listener is kept.
    pub fn listen(&self, listener: &mut Option<u64>, channel: &str) {
        let state = &mut *self.state.lock();
        let number = *listener.get_or_insert_with(|| {
            state.last += 1;
            state.last
        });
        let listening = state.listeners.entry(number).or_default();
        if !listening.channels.iter().any(|c| c == channel) {
            listening.channels.push(channel.to_string());
            state
                .channels
                .entry(channel.to_string())
                .or_default()
                .insert(number);
        }
    }

    /// A session stops listening to a channel, or to all. What it has not taken yet it is still
    /// told, unless it listens to nothing any more.
    pub fn unlisten(&self, listener: &mut Option<u64>, channel: Option<&str>) {
        let Some(number) = *listener else { return };
        let state = &mut *self.state.lock();
        let Some(listening) = state.listeners.get_mut(&number) else {
            return;
        };
        let goes = |c: &String| channel.is_none_or(|channel| c == channel);
        let gone: Vec<String> = listening.channels.extract_if(.., |c| goes(c)).collect();
        let is_over = listening.channels.is_empty();
        for channel in &gone {
            if let Some(of) = state.channels.get_mut(channel) {
                of.remove(&number);
                if of.is_empty() {
                    state.channels.remove(channel);
                }
            }
        }
        if is_over && let Some(ended) = state.listeners.remove(&number) {
            state.kept_bytes -= ended.kept.iter().map(|n| n.bytes()).sum::<usize>();
            *listener = None;
        }
    }

    /// The channels of a listener.
    pub fn channels(&self, listener: u64) -> Vec<String> {
        let state = self.state.lock();
        let of = state.listeners.get(&listener);
        of.map(|l| l.channels.clone()).unwrap_or_default()
    }

    /// From now on the bell rings when there is something to take.
    pub fn ring_with(&self, listener: u64, bell: Arc<dyn Bell>) {
        if let Some(l) = self.state.lock().listeners.get_mut(&listener) {
            l.bell = Some(bell);
        }
    }

    /// What a listener has not taken yet.
    pub fn take(&self, listener: u64) -> VecDeque<Arc<Notification>> {
        let mut state = self.state.lock();
        let kept = state.listeners.get_mut(&listener);
        let kept = kept
            .map(|l| std::mem::take(&mut l.kept))
            .unwrap_or_default();
        state.kept_bytes -= kept.iter().map(|n| n.bytes()).sum::<usize>();
        kept
    }

    /// Gives a notification to the sessions here that listen to its channel.
    pub fn deliver(&self, notification: &Arc<Notification>) {
        self.state.lock().deliver(notification);
    }

    /// Hears a bulletin of another instance. False: there is no room for it.
    pub fn hear(&self, bulletin: &[u8]) -> bool {
        let notification = match Notification::decode(bulletin) {
            Ok(notification) => Arc::new(notification),
            Err(why) => {
                tracing::error!("a bulletin of another instance is no notification: {why}");
                return true;
            }
        };
        let mut state = self.state.lock();
        let is_wanted = state.channels.contains_key(&notification.channel);
        if is_wanted && state.kept_bytes >= KEPT_MAX_BYTES {
            return false;
        }
        state.deliver(&notification);
        true
    }

    /// How full the room for what listeners have not taken is: from 1 on nothing is to be sent.
    pub fn fullness(&self) -> f64 {
        self.state.lock().kept_bytes as f64 / KEPT_MAX_BYTES as f64
    }
}

impl State {
    fn deliver(&mut self, notification: &Arc<Notification>) {
        let Some(of) = self.channels.get(&notification.channel) else {
            return;
        };
        for number in of {
            let Some(listener) = self.listeners.get_mut(number) else {
                continue;
            };
            // A session takes all there is; it was rung for the first.
            let first = listener.kept.is_empty();
            listener.kept.push_back(notification.clone());
            self.kept_bytes += notification.bytes();
            if let (true, Some(bell)) = (first, &listener.bell) {
                bell.ring();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use wire::fuzz::Family;

    fn note(channel: &str, payload: &str) -> Arc<Notification> {
        Arc::new(Notification {
            pid: 10_000_007,
            channel: channel.into(),
            payload: payload.into(),
        })
    }

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Bell for Counted {
        fn ring(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_listener_takes_what_its_channels_were_told() {
        let notices = Notices::default();
        let (mut a, mut b) = (None, None);
        notices.listen(&mut a, "x");
        notices.listen(&mut a, "y");
        notices.listen(&mut a, "x");
        notices.listen(&mut b, "y");
        let (first, second) = (a.unwrap(), b.unwrap());
        assert_eq!(notices.channels(first), ["x", "y"]);
        let told = [note("x", "1"), note("y", "2"), note("z", "3")];
        told.iter().for_each(|n| notices.deliver(n));
        assert_eq!(notices.take(first), &told[..2]);
        assert_eq!(notices.take(second), &told[1..2]);
        assert!(notices.take(first).is_empty());
        assert_eq!(notices.fullness(), 0.0);
        notices.unlisten(&mut a, Some("x"));
        notices.deliver(&told[0]);
        assert!(notices.take(first).is_empty());
        notices.deliver(&told[1]);
        notices.unlisten(&mut a, None);
        notices.unlisten(&mut b, None);
        assert_eq!((a, b, notices.fullness()), (None, None, 0.0));
        assert!(notices.state.lock().channels.is_empty());
    }

    #[test]
    fn a_bell_rings_once_until_all_was_taken() {
        let notices = Notices::default();
        let (mut a, bell) = (None, Arc::new(Counted::default()));
        notices.listen(&mut a, "x");
        notices.ring_with(a.unwrap(), bell.clone());
        (0..3).for_each(|_| notices.deliver(&note("x", "")));
        assert_eq!(bell.0.load(Ordering::Relaxed), 1);
        assert_eq!(notices.take(a.unwrap()).len(), 3);
        notices.deliver(&note("x", ""));
        assert_eq!(bell.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_nobody_takes_leaves_no_room_for_others() {
        let notices = Notices::default();
        let mut a = None;
        notices.listen(&mut a, "x");
        let long = note("x", &"p".repeat(PAYLOAD_LIMIT_BYTES - 1));
        let bulletin = long.encode();
        assert!(bulletin.len() <= engine::BULLETIN_MAX_BYTES);
        let mut heard = 0;
        while notices.hear(&bulletin) {
            heard += 1;
        }
        assert!(notices.fullness() >= 1.0);
        assert!(
            notices.hear(&note("y", "").encode()),
            "nobody listens to it"
        );
        assert_eq!(notices.take(a.unwrap()).len(), heard);
        assert!(notices.hear(&bulletin));
    }

    #[test]
    fn nothing_makes_reading_a_bulletin_panic() {
        let family = Family {
            kinds: vec![(Vec::new(), "a notification")],
            encode: &|n: &Notification| n.encode().to_vec(),
            decode: &|bytes| Notification::decode(bytes),
        };
        family.check(&[(*note("channel", "payload")).clone()]);
    }
}
