//! What a session has said with LISTEN, UNLISTEN and NOTIFY in its transaction, and its end.
//!
//! **Invariant.** Nothing of it takes effect before the commit. What a rollback takes back, of the
//! transaction or to a savepoint, never happened.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::SqlSession;
use super::core::{Core, cancelled};
use super::transaction::State;
use crate::error::{Error, Result};
use crate::notify::{Bell, CHANNEL_MAX_BYTES, Notices, Notification, PAYLOAD_LIMIT_BYTES, Turn};

/// What LISTEN and UNLISTEN do at the commit.
enum Act {
    Listen(String),
    /// `None`: to nothing any more.
    Unlisten(Option<String>),
}

/// What the transaction has said so far.
#[derive(Default)]
pub struct Pending {
    acts: Vec<Act>,
    sent: Vec<Arc<Notification>>,
    /// The same: what is said twice is sent once.
    known: HashSet<Arc<Notification>>,
    /// The session's number as a listener.
    listener: Option<u64>,
}

/// How much had been said at a savepoint.
#[derive(Clone, Copy)]
pub struct Said {
    acts: usize,
    sent: usize,
}

impl Pending {
    pub fn said(&self) -> Said {
        Said {
            acts: self.acts.len(),
            sent: self.sent.len(),
        }
    }

    /// Takes back what was said since.
    pub fn rolled_back(&mut self, said: Said) {
        self.acts.truncate(said.acts);
        for taken in self.sent.drain(said.sent.min(self.sent.len())..) {
            self.known.remove(&taken);
        }
    }

    /// The transaction is over.
    #[inline]
    pub fn end(&mut self) {
        self.acts.clear();
        self.sent.clear();
        // What a commit has sent is known until here: the next transaction may say it again.
        self.known.clear();
    }

    fn is_empty(&self) -> bool {
        self.acts.is_empty() && self.sent.is_empty()
    }
}

impl Core {
    pub fn listen(&mut self, channel: &str) {
        self.notices.acts.push(Act::Listen(channel.to_string()));
    }

    /// `None`: to nothing any more.
    pub fn unlisten(&mut self, channel: Option<&str>) {
        let nothing = self.notices.listener.is_none() && self.notices.acts.is_empty();
        if !nothing {
            let channel = channel.map(str::to_string);
            self.notices.acts.push(Act::Unlisten(channel));
        }
    }

    pub fn notify(&mut self, channel: &str, payload: &str) -> Result<()> {
        let bad = |why| Err(Error::new("22023", why));
        if channel.is_empty() {
            return bad("channel name cannot be empty");
        }
        if channel.len() > CHANNEL_MAX_BYTES {
            return bad("channel name too long");
        }
        if payload.len() >= PAYLOAD_LIMIT_BYTES {
            return bad("payload string too long");
        }
        let notification = Arc::new(Notification {
            pid: self.database.own_pid(),
            channel: channel.to_string(),
            payload: payload.to_string(),
        });
        if self.notices.known.insert(notification.clone()) {
            self.notices.sent.push(notification);
        }
        Ok(())
    }

    /// The channels that the session listens to.
    pub fn listening_channels(&self) -> Vec<String> {
        let notices = &self.database.notices;
        let of = self.notices.listener.map(|l| notices.channels(l));
        of.unwrap_or_default()
    }

    /// How full the fullest room is that a notification has to go through.
    pub fn notification_usage(&self) -> f64 {
        let here = self.database.notices.fullness();
        let cluster = self.database.engine().cluster();
        let others = cluster.map_or(0.0, |c| c.bulletins().fullness());
        here.max(others)
    }

    /// Whether the transaction has something to send.
    pub(super) fn sends_notifications(&self) -> bool {
        !self.notices.sent.is_empty()
    }

    /// The turn of a commit that sends notifications. Refuses it if there is no room for them.
    pub(super) fn turn_to_notify<'n>(&self, notices: &'n Notices) -> Result<Turn<'n>> {
        if self.notification_usage() >= 1.0 {
            return Err(Error::new(
                "54000",
                "too many notifications in the NOTIFY queue",
            ));
        }
        notices.turn().map_err(|_| cancelled())
    }

    /// Commits, and then does what LISTEN, UNLISTEN and NOTIFY said. What is sent has its turn.
    pub(super) fn commit_and_notify(&mut self, turn: Option<Turn<'_>>) -> Result<()> {
        self.engine.commit()?;
        self.database.changes.committed(self.engine.written());
        if self.notices.is_empty() {
            return Ok(());
        }
        debug_assert!(turn.is_some() || self.notices.sent.is_empty());
        let database = self.database.clone();
        let (notices, listener) = (&database.notices, &mut self.notices.listener);
        for act in self.notices.acts.drain(..) {
            match act {
                Act::Listen(channel) => notices.listen(listener, &channel),
                Act::Unlisten(channel) => notices.unlisten(listener, channel.as_deref()),
            }
        }
        let bulletins = database.engine().cluster().map(|c| c.bulletins());
        for notification in self.notices.sent.drain(..) {
            notices.deliver(&notification);
            if let Some(bulletins) = bulletins {
                bulletins.tell(&notification.encode());
            }
        }
        drop(turn);
        Ok(())
    }

    /// The session ends.
    pub(super) fn stop_listening(&mut self) {
        let database = self.database.clone();
        database.notices.unlisten(&mut self.notices.listener, None);
    }
}

impl SqlSession {
    /// Whether the client may be told of notifications: it listens, and is in no transaction.
    pub fn may_be_notified(&self) -> bool {
        self.core.notices.listener.is_some() && self.state == State::Idle
    }

    /// From now on the bell rings when there are notifications to be taken.
    pub fn ring_with(&self, bell: Arc<dyn Bell>) {
        if let Some(listener) = self.core.notices.listener {
            self.core.database.notices.ring_with(listener, bell);
        }
    }

    /// Notifications since the last call.
    pub fn take_notifications(&mut self) -> VecDeque<Arc<Notification>> {
        match self.core.notices.listener {
            Some(listener) => self.core.database.notices.take(listener),
            None => VecDeque::new(),
        }
    }
}
