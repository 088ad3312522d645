//! How far long work has come (`v$session_longops`): scans, joins, groups, writes, index builds,
//! sorts on disk, COPY, rollbacks, recovery.
//!
//! **Invariants.**
//! - The thread that works writes how far it is, without a lock; readers may see a value a moment
//!   old.
//! - Work that is over stays to be seen if it took [`LEAST_NS`] or longer, the last [`KEPT`] of it.
//!   So short work leaves nothing behind.

use crate::session::{self, now_ns};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Work that took less is no long one.
const LEAST_NS: u64 = 1_000_000_000;
/// Long work that is over, of which so much is kept.
const KEPT: usize = 500;

/// What the work is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    Nothing,
    /// The segment of an object.
    Object(u32),
    Named(String),
}

struct Work {
    sid: u32,
    serial: u32,
    role: u32,
    sql: Option<Arc<str>>,
    name: &'static str,
    target: Target,
    units: &'static str,
    began: SystemTime,
    began_ns: u64,
    done: AtomicU64,
    /// Zero: nobody knows it.
    total: AtomicU64,
    /// When `done` was written last.
    updated_ns: AtomicU64,
    /// Zero: it is under way.
    ended_ns: AtomicU64,
}

static ALL: Mutex<VecDeque<Arc<Work>>> = Mutex::new(VecDeque::new());

/// Long work of this thread's session. Dropping it ends it.
pub struct LongOp(Arc<Work>);

impl LongOp {
    /// Begins; `total` is in `units`, and zero if nobody knows it.
    pub fn begin(name: &'static str, target: Target, total: u64, units: &'static str) -> LongOp {
        let (sid, serial, role, sql) = session::with(|s| {
            let role = s.identity().role;
            (s.sid, s.serial, role, s.sql())
        })
        .unwrap_or_default();
        LongOp::put(Work {
            sid,
            serial,
            role,
            sql,
            name,
            target,
            units,
            began: seam::wall_clock(),
            began_ns: now_ns(),
            done: AtomicU64::new(0),
            total: AtomicU64::new(total),
            updated_ns: AtomicU64::new(now_ns()),
            ended_ns: AtomicU64::new(0),
        })
    }

    fn put(work: Work) -> LongOp {
        let work = Arc::new(work);
        ALL.lock().push_back(work.clone());
        LongOp(work)
    }

    /// So much is done by now. It costs a look at the clock: to be called at every so many units.
    pub fn set(&self, done: u64) {
        self.0.done.store(done, Relaxed);
        self.0.updated_ns.store(now_ns(), Relaxed);
    }

    pub fn set_total(&self, total: u64) {
        self.0.total.store(total, Relaxed);
    }
}

/// Units of counted work from which on it is told how far it is: less is over in a moment.
const COUNTED_LEAST: u64 = 4096;
/// So often it is told anew.
const COUNTED_EVERY: u64 = 1024;

/// Work that is counted unit by unit, and is long work once there are enough of them.
pub struct Counted {
    name: &'static str,
    target: Target,
    units: &'static str,
    total: u64,
    done: u64,
    work: Option<LongOp>,
}

impl Counted {
    /// `total` is zero if nobody knows it.
    pub fn new(name: &'static str, target: Target, total: u64, units: &'static str) -> Counted {
        Counted {
            name,
            target,
            units,
            total,
            done: 0,
            work: None,
        }
    }

    /// Notes that one more unit is done.
    #[inline]
    pub fn step(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(COUNTED_EVERY) {
            self.tell();
        }
    }

    #[cold]
    fn tell(&mut self) {
        match &self.work {
            Some(work) => work.set(self.done),
            None if self.done < COUNTED_LEAST => {}
            None => {
                let target = self.target.clone();
                let work = LongOp::begin(self.name, target, self.total, self.units);
                work.set(self.done);
                self.work = Some(work);
            }
        }
    }

    /// The work is over; what comes next is counted anew.
    pub fn end(&mut self) {
        if let Some(work) = self.work.take() {
            work.set(self.done);
        }
        self.done = 0;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.end();
    }
}

impl Drop for LongOp {
    fn drop(&mut self) {
        let now = now_ns().max(1);
        self.0.ended_ns.store(now, Relaxed);
        let is_long = now.saturating_sub(self.0.began_ns) >= LEAST_NS;
        let mut all = ALL.lock();
        if !is_long {
            all.retain(|w| !Arc::ptr_eq(w, &self.0));
            return;
        }
        let over = |w: &Arc<Work>| w.ended_ns.load(Relaxed) != 0;
        if all.iter().filter(|w| over(w)).count() > KEPT
            && let Some(oldest) = all.iter().position(over)
        {
            all.remove(oldest);
        }
    }
}

/// A row of `v$session_longops`.
#[derive(Clone, Debug)]
pub struct LongOpRow {
    pub sid: u32,
    pub serial: u32,
    /// Object id of the role of the session that works; zero: of none.
    pub role: u32,
    pub sql: Option<Arc<str>>,
    pub name: &'static str,
    pub target: Target,
    pub units: &'static str,
    pub done: u64,
    pub total: u64,
    pub began: SystemTime,
    pub elapsed: Duration,
    /// From the beginning until the work last said how far it was.
    pub updated: Duration,
    /// What is left, at the pace so far; none if nobody knows the total, or if it is over.
    pub remaining: Option<Duration>,
    pub is_over: bool,
}

/// Long work that is under way, and the last that was.
pub fn rows() -> Vec<LongOpRow> {
    let all: Vec<Arc<Work>> = ALL.lock().iter().cloned().collect();
    all.iter().map(|w| w.row()).collect()
}

impl Work {
    fn row(&self) -> LongOpRow {
        let (done, total) = (self.done.load(Relaxed), self.total.load(Relaxed));
        let ended_ns = self.ended_ns.load(Relaxed);
        let until_ns = if ended_ns == 0 { now_ns() } else { ended_ns };
        let elapsed_ns = until_ns.saturating_sub(self.began_ns);
        let left = total.saturating_sub(done);
        let is_known = ended_ns == 0 && total > 0 && done > 0;
        let remaining = u128::from(elapsed_ns) * u128::from(left) / u128::from(done.max(1));
        let remaining = u64::try_from(remaining).unwrap_or(u64::MAX);
        LongOpRow {
            sid: self.sid,
            serial: self.serial,
            role: self.role,
            sql: self.sql.clone(),
            name: self.name,
            target: self.target.clone(),
            units: self.units,
            done,
            total,
            began: self.began,
            elapsed: Duration::from_nanos(elapsed_ns),
            updated: Duration::from_nanos(
                self.updated_ns.load(Relaxed).saturating_sub(self.began_ns),
            ),
            remaining: is_known.then(|| Duration::from_nanos(remaining)),
            is_over: ended_ns != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Option<LongOpRow> {
        let target = Target::Named(name.to_string());
        rows().into_iter().find(|r| r.target == target)
    }

    #[test]
    fn short_work_is_seen_only_while_it_lasts() {
        let work = LongOp::begin("Test", Target::Named("short".to_string()), 100, "Rows");
        work.set(40);
        let row = named("short").unwrap();
        assert_eq!((row.done, row.total, row.is_over), (40, 100, false));
        let (left, so_far) = (row.remaining.unwrap(), row.elapsed);
        assert_eq!(left.as_nanos(), so_far.as_nanos() * 60 / 40);
        drop(work);
        assert!(named("short").is_none());
    }

    #[test]
    fn counted_work_is_told_once_there_is_enough() {
        let target = Target::Named("counted".to_string());
        let mut work = Counted::new("Test", target, 0, "Rows");
        for _ in 1..COUNTED_LEAST {
            work.step();
        }
        assert!(named("counted").is_none());
        for _ in 0..COUNTED_EVERY {
            work.step();
        }
        let row = named("counted").unwrap();
        assert_eq!(
            (row.done, row.total, row.remaining),
            (COUNTED_LEAST, 0, None)
        );
        work.end();
        assert!(named("counted").is_none());
    }

    #[test]
    fn long_work_stays_and_makes_room_for_younger() {
        // As if it had begun long ago.
        let began_ns = now_ns().saturating_sub(2 * LEAST_NS);
        while now_ns() < LEAST_NS {
            std::thread::yield_now();
        }
        let long = |name: String| {
            drop(LongOp::put(Work {
                sid: 0,
                serial: 0,
                role: 0,
                sql: None,
                name: "Test",
                target: Target::Named(name),
                units: "Rows",
                began: seam::wall_clock(),
                began_ns,
                done: AtomicU64::new(0),
                total: AtomicU64::new(0),
                updated_ns: AtomicU64::new(began_ns),
                ended_ns: AtomicU64::new(0),
            }));
        };
        for n in 0..KEPT + 10 {
            long(format!("long {n}"));
        }
        assert!(named("long 3").is_none());
        let last = named(&format!("long {}", KEPT + 9)).unwrap();
        assert!(last.is_over && last.remaining.is_none());
    }
}
