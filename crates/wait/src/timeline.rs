//! The waits of a session one by one, with their parts, as long as somebody wants them
//! (`v$wait_timeline`): by hand, for a statement, or by a rule that keeps what a slow execution
//! waited for.
//!
//! **Invariants.**
//! - A session whose waits nobody wants pays one load of its own memory for each wait.
//! - Memory is bounded. A session has a ring, [`LARGE`] entries by hand for at most [`LARGE_RINGS`]
//!   sessions, [`SMALL`] otherwise; [`KEPT`] timelines are kept. What a ring has lost is counted.

use crate::Class;
use crate::session::{self, Session, now_ns};
use crate::trace::TracedWait;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// Entries of a session whose waits are wanted by hand: about 190 bytes each.
pub const LARGE: usize = 4096;
/// Sessions that have so many.
const LARGE_RINGS: u64 = 64;
/// Entries of a session that is looked at by rule, or beyond [`LARGE_RINGS`].
pub const SMALL: usize = 256;
/// Timelines that are kept.
const KEPT: usize = 64;

/// A reason for which a session's waits are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Wanted {
    /// The session itself, by its setting.
    Setting = 1,
    /// An order of another session.
    Order = 2,
    /// A statement that it runs.
    Statement = 4,
    /// The rule about slow executions.
    Rule = 8,
}

/// An entry of a timeline.
#[derive(Clone, Debug)]
pub enum Noted {
    /// A statement began then, by [`crate::timestamp_ns`].
    Statement {
        text: Arc<str>,
        at_ns: u64,
    },
    Wait(TracedWait),
}

impl Noted {
    /// When it ended.
    pub fn ended_ns(&self) -> u64 {
        match self {
            Noted::Statement { at_ns, .. } => *at_ns,
            Noted::Wait(wait) => wait.ended_ns,
        }
    }
}

#[derive(Default)]
struct Ring {
    entries: VecDeque<Noted>,
    is_large: bool,
    lost: u64,
    /// The statement under way. It is told when its locks are taken, and again when it runs.
    statement: Option<Arc<str>>,
}

/// A session's part.
#[derive(Default)]
pub(crate) struct Timeline {
    /// Bits of [`Wanted`].
    wanted: AtomicU8,
    ring: Mutex<Ring>,
}

static LARGE_NOW: AtomicU64 = AtomicU64::new(0);

impl Timeline {
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed) != 0
    }

    #[cold]
    pub fn note(&self, noted: Noted) {
        let mut ring = self.ring.lock();
        match &noted {
            Noted::Statement { text, .. } if ring.statement.as_ref() == Some(text) => return,
            Noted::Statement { text, .. } => ring.statement = Some(text.clone()),
            // The client has its answer: what comes is another one, also if it has the same text.
            Noted::Wait(w) if w.event.class() == Class::Idle => ring.statement = None,
            Noted::Wait(_) => {}
        }
        let most = if ring.is_large { LARGE } else { SMALL };
        if ring.entries.len() >= most {
            ring.entries.pop_front();
            ring.lost += 1;
        }
        ring.entries.push_back(noted);
    }

    /// Begins, or goes on for one more reason.
    pub fn want(&self, why: Wanted) {
        let before = self.wanted.fetch_or(why as u8, SeqCst);
        let mut ring = self.ring.lock();
        if before == 0 {
            *ring = Ring::default();
        }
        if why != Wanted::Rule && !ring.is_large && LARGE_NOW.fetch_add(1, SeqCst) < LARGE_RINGS {
            ring.is_large = true;
        } else if why != Wanted::Rule && !ring.is_large {
            LARGE_NOW.fetch_sub(1, SeqCst);
        }
    }

    /// A reason is gone. With the last one the ring is emptied: its entries are returned.
    pub fn leave(&self, why: Wanted) -> Option<(Vec<Noted>, u64)> {
        let before = self.wanted.fetch_and(!(why as u8), SeqCst);
        (before == why as u8).then(|| self.close())
    }

    fn close(&self) -> (Vec<Noted>, u64) {
        let ring = std::mem::take(&mut *self.ring.lock());
        if ring.is_large {
            LARGE_NOW.fetch_sub(1, SeqCst);
        }
        (ring.entries.into(), ring.lost)
    }

    fn copy(&self, since_ns: u64) -> (Vec<Noted>, u64) {
        let ring = self.ring.lock();
        let wanted = ring.entries.iter().filter(|n| n.ended_ns() >= since_ns);
        (wanted.cloned().collect(), ring.lost)
    }
}

/// What a session waited for, one by one.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Zero: it goes on.
    pub number: u64,
    pub sid: u32,
    pub serial: u32,
    /// Object id of the session's role; zero: of none.
    pub role: u32,
    pub program: String,
    /// Why it was kept, or for what it goes on.
    pub why: String,
    /// When it began, by [`crate::timestamp_ns`].
    pub from_ns: u64,
    pub to_ns: u64,
    pub entries: Vec<Noted>,
    /// Older entries that the ring had no room for.
    pub lost: u64,
}

#[derive(Default)]
struct Store {
    last: u64,
    kept: VecDeque<Arc<Kept>>,
}

static STORE: Mutex<Option<Store>> = Mutex::new(None);

fn keep(mut kept: Kept) {
    let mut guard = STORE.lock();
    let store = guard.get_or_insert_with(Store::default);
    store.last += 1;
    kept.number = store.last;
    if store.kept.len() >= KEPT {
        store.kept.pop_front();
    }
    store.kept.push_back(Arc::new(kept));
}

impl Session {
    fn timeline_of(&self, why: String, from_ns: u64, (entries, lost): (Vec<Noted>, u64)) -> Kept {
        let who = self.identity();
        let first = entries.first().map_or(from_ns, |n| match n {
            Noted::Statement { at_ns, .. } => *at_ns,
            Noted::Wait(w) => w.ended_ns.saturating_sub(w.elapsed_ns),
        });
        Kept {
            number: 0,
            sid: self.sid,
            serial: self.serial,
            role: who.role,
            program: who.program,
            why,
            from_ns: first.max(from_ns),
            to_ns: now_ns(),
            entries,
            lost,
        }
    }

    /// Somebody wants this session's waits from now on.
    pub fn want_timeline(&self, why: Wanted) {
        self.timeline.want(why);
    }

    /// Nobody wants them for this reason any more. What they were is kept, if it was for a reason
    /// of somebody's.
    pub fn leave_timeline(&self, why: Wanted) {
        if let Some(taken) = self.timeline.leave(why)
            && why != Wanted::Rule
            && !taken.0.is_empty()
        {
            keep(self.timeline_of("asked for".to_string(), 0, taken));
        }
    }

    /// Nobody wants them for this reason any more, and nothing is kept.
    pub fn forget_timeline(&self, why: Wanted) {
        self.timeline.leave(why);
    }

    /// Whether the session's waits are wanted for this reason.
    pub fn timeline_wanted(&self, why: Wanted) -> bool {
        self.timeline.wanted.load(Relaxed) & why as u8 != 0
    }

    /// The session ends.
    pub(crate) fn end_timeline(&self) {
        let wanted = self.timeline.wanted.swap(0, SeqCst);
        if wanted == 0 {
            return;
        }
        let taken = self.timeline.close();
        if wanted != Wanted::Rule as u8 && !taken.0.is_empty() {
            keep(self.timeline_of("the session ended".to_string(), 0, taken));
        }
    }
}

/// Keeps what this thread's session has waited for since then: an execution was slow.
pub fn keep_since(since_ns: u64, why: String) {
    session::with(|s| {
        let taken = s.timeline.copy(since_ns);
        keep(s.timeline_of(why, since_ns, taken));
    });
}

/// Timelines that were kept, and those of sessions whose waits are wanted by somebody now.
pub fn all() -> Vec<Arc<Kept>> {
    let mut all: Vec<Arc<Kept>> = {
        let guard = STORE.lock();
        guard.iter().flat_map(|s| s.kept.iter().cloned()).collect()
    };
    for s in session::list() {
        let wanted = s.timeline.wanted.load(Relaxed);
        if wanted & !(Wanted::Rule as u8) != 0 {
            let taken = s.timeline.copy(0);
            all.push(Arc::new(s.timeline_of("goes on".to_string(), 0, taken)));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;
    use crate::session::{Kind, register};

    fn on_a_session(name: &'static str, test: impl FnOnce(&Arc<Session>) + Send + 'static) -> u32 {
        std::thread::spawn(move || {
            let guard = register(Kind::User, name);
            test(guard.session());
            guard.session().serial
        })
        .join()
        .unwrap()
    }

    fn of(serial: u32) -> Vec<Arc<Kept>> {
        all().into_iter().filter(|k| k.serial == serial).collect()
    }

    fn wait(p1: u64) {
        crate::during(Event::EnqUl, [p1, 0, 0], || ());
    }

    #[test]
    fn waits_are_noted_while_they_are_wanted_and_kept_at_the_end() {
        let serial = on_a_session("timeline", |s| {
            wait(1);
            s.want_timeline(Wanted::Setting);
            wait(2);
            s.want_timeline(Wanted::Order);
            s.leave_timeline(Wanted::Setting);
            wait(3);
            assert_eq!(
                of(s.serial)[0].entries.len(),
                2,
                "it goes on for the other reason"
            );
            s.leave_timeline(Wanted::Order);
            wait(4);
            assert!(!s.timeline.is_wanted());
        });
        let kept = of(serial);
        let waits: Vec<u64> = kept[0]
            .entries
            .iter()
            .map(|n| match n {
                Noted::Wait(w) => w.params[0],
                Noted::Statement { .. } => 0,
            })
            .collect();
        assert_eq!((kept.len(), waits), (1, vec![2, 3]));
        assert!(kept[0].number > 0 && kept[0].from_ns <= kept[0].to_ns);
    }

    #[test]
    fn a_statement_is_told_once_for_each_time_that_a_client_sends_it() {
        on_a_session("statements", |s| {
            s.want_timeline(Wanted::Setting);
            let text: Arc<str> = "update t".into();
            for _ in 0..2 {
                session::set_sql(text.clone(), 5);
                wait(1);
                session::set_sql(text.clone(), 6);
                crate::during(Event::NetFromClient, [0; 3], || ());
            }
            let entries = &of(s.serial)[0].entries;
            let statements = entries
                .iter()
                .filter(|n| matches!(n, Noted::Statement { .. }));
            assert_eq!(statements.count(), 2, "{entries:?}");
        });
    }

    #[test]
    fn a_slow_execution_keeps_its_own_waits_and_a_ring_counts_what_it_loses() {
        let serial = on_a_session("rule", |s| {
            s.want_timeline(Wanted::Rule);
            wait(1);
            let since = crate::timestamp_ns();
            (0..SMALL as u64 + 5).for_each(wait);
            keep_since(since, "slow".to_string());
        });
        let kept = of(serial);
        // The session's end keeps nothing that only the rule wanted.
        assert_eq!(kept.len(), 1);
        assert_eq!((kept[0].entries.len(), kept[0].lost), (SMALL, 6));
        assert_eq!(kept[0].why, "slow");
    }
}
