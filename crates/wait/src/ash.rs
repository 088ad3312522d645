//! Active session history: what each active session does, every second. It is a ring in memory of
//! fixed size.
//!
//! When a wait for another instance is sampled, it is not known yet on what its time is spent. A
//! later sample puts that into the row, once the wait is over.

use crate::remote::RemoteWait;
use crate::session::{self, Kind, Session};
use crate::step::InPlan;
use crate::{Class, Event, activity, metric};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

/// The number of rows kept: an hour of a hundred sessions that are always active. They take about
/// 110 MB at most, and nothing while idle.
const CAPACITY: usize = 360_000;

/// One sample of one session. `event` is None for a session on CPU.
#[derive(Clone, Debug)]
pub struct AshRow {
    pub sample_id: u64,
    pub sample_time: SystemTime,
    pub sid: u32,
    pub serial: u32,
    pub kind: Kind,
    pub program: Arc<str>,
    /// Object id of the session's role; zero: of none.
    pub role: u32,
    pub event: Option<Event>,
    pub params: [u64; 3],
    /// The microseconds that the wait had lasted.
    pub time_waited_us: u64,
    /// The instance that was asked, for a wait for another instance.
    pub asked: Option<u16>,
    /// The number of waits of the session that were over.
    pub wait_seq: u64,
    /// The last wait that another instance served, with its number. If another instance served the
    /// sampled wait, that wait stands here once it is over; its number is higher than `wait_seq`.
    pub remote: Option<(u64, RemoteWait)>,
    pub sql: Option<Arc<str>>,
    /// Where in its plan the session was, if its statement has one.
    pub in_plan: Option<InPlan>,
    pub transaction: u64,
    /// The object that the session worked on.
    pub object: Option<u32>,
    /// The session of this instance whose transaction is waited for.
    pub blocker: Option<u32>,
}

impl AshRow {
    /// The transaction that the session waited for.
    pub fn awaited(&self) -> Option<u64> {
        match self.event {
            Some(Event::EnqTx | Event::EnqTxIndex) => Some(self.params[1]).filter(|t| *t != 0),
            _ => None,
        }
    }
}

/// The most samples of one wait whose rows get the wait's parts. If a session is in a wait for more
/// samples, the earlier rows stay without them.
const OPEN_MAX: usize = 3600;

#[derive(Default)]
struct Ring {
    rows: VecDeque<AshRow>,
    /// The number of rows that are not there any more, which is the number of the first one that
    /// is.
    dropped: u64,
}

impl Ring {
    fn push(&mut self, row: AshRow) -> u64 {
        if self.rows.len() >= CAPACITY {
            self.rows.pop_front();
            self.dropped += 1;
        }
        self.rows.push_back(row);
        self.dropped + self.rows.len() as u64 - 1
    }

    fn get(&mut self, number: u64) -> Option<&mut AshRow> {
        let at = number.checked_sub(self.dropped)?;
        self.rows.get_mut(at as usize)
    }
}

static RING: Mutex<Option<Ring>> = Mutex::new(None);

fn ring<R>(f: impl FnOnce(&mut Ring) -> R) -> R {
    f(RING.lock().get_or_insert_with(Ring::default))
}

/// The samples of a session that waited, by their rows' numbers and when they were taken.
struct Open {
    session: Arc<Session>,
    samples: VecDeque<(u64, u64)>,
}

/// Takes the samples. `mmon` owns it and calls it each second.
#[derive(Default)]
pub struct AshSampler {
    sample_id: u64,
    open: Vec<Open>,
}

impl AshSampler {
    pub fn sample(&mut self) {
        self.sample_id += 1;
        metric::tick(self.sample_id);
        self.complete();
        let now = seam::wall_clock();
        let mut found = Vec::new();
        let all = session::list();
        let holder = |transaction: u64| {
            let holds = |s: &&Arc<Session>| s.transaction.load(Relaxed) == transaction;
            all.iter().find(holds).map(|s| s.sid)
        };
        for s in &all {
            let Some(mut row) = self.row(s, now) else {
                continue;
            };
            row.blocker = row.awaited().and_then(holder);
            found.push(activity::Group::of(&row));
            let looked = row.event.is_some().then(|| s.look());
            let number = ring(|ring| ring.push(row));
            if let Some(at_ns) = looked {
                self.keep_open(s.clone(), (number, at_ns));
            }
        }
        activity::sampled(now, found);
    }

    fn keep_open(&mut self, session: Arc<Session>, sample: (u64, u64)) {
        let known = |o: &&mut Open| Arc::ptr_eq(&o.session, &session);
        if let Some(open) = self.open.iter_mut().find(known) {
            open.samples.push_back(sample);
            if open.samples.len() > OPEN_MAX {
                open.samples.pop_front();
            }
            return;
        }
        self.open.push(Open {
            session,
            samples: [sample].into(),
        });
    }

    /// Puts waits that are over into the rows of the samples that they cover.
    fn complete(&mut self) {
        self.open.retain_mut(|open| {
            if let Some(seen) = open.session.seen() {
                let covered = |(_, at_ns): &(u64, u64)| *at_ns >= seen.began_ns;
                ring(|ring| {
                    for &(number, _) in open.samples.iter().filter(|s| covered(s)) {
                        if let Some(row) = ring.get(number) {
                            row.remote = Some((seen.number, seen.wait));
                        }
                    }
                });
                open.samples.retain(|s| !covered(s));
            }
            // A session that waits for nothing was served by no other instance.
            open.session.waiting().is_some() && !open.samples.is_empty()
        });
    }

    /// The sample of a session. None for an idle session.
    fn row(&self, s: &session::Session, now: SystemTime) -> Option<AshRow> {
        let waiting = s.waiting();
        let idle = match &waiting {
            Some(w) => w.event.class() == Class::Idle,
            None => !s.is_active() || s.kind == Kind::Background,
        };
        if idle {
            return None;
        }
        let who = s.identity();
        Some(AshRow {
            sample_id: self.sample_id,
            sample_time: now,
            sid: s.sid,
            serial: s.serial,
            kind: s.kind,
            program: match who.program.is_empty() {
                true => s.name.as_str().into(),
                false => who.program.into(),
            },
            role: who.role,
            event: waiting.map(|w| w.event),
            params: waiting.map_or([0; 3], |w| w.params),
            time_waited_us: waiting.map_or(0, |w| w.for_ns / 1000),
            asked: waiting.and_then(|w| w.asked),
            wait_seq: s.wait_seq(),
            remote: s.last_remote(),
            sql: s.sql(),
            in_plan: s.in_plan(),
            transaction: s.transaction.load(Relaxed),
            object: s.object(),
            blocker: None,
        })
    }
}

pub(crate) fn rows() -> Vec<AshRow> {
    ring(|ring| ring.rows.iter().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::{Part, Served};
    use std::sync::mpsc::channel;

    /// A sample tells what its session waited for, once the wait is over, also if the wait is
    /// sampled twice. Other waits do not get there. A sampler sees every session of the process:
    /// this is the one test of it that may take samples.
    #[test]
    fn a_sampled_wait_gets_its_parts_when_it_is_over() {
        let (go, gone) = (channel::<()>(), channel::<()>());
        let thread = std::thread::spawn(move || {
            let _guard = session::register(Kind::User, "sampled");
            session::set_active();
            let wait = |flush_ns| {
                let since = crate::timestamp_ns();
                crate::during_remote(Event::GcCurrentRequest, [0; 3], (6, since), || {
                    gone.0.send(()).unwrap();
                    go.1.recv().unwrap();
                    let served = Served {
                        instance: 6,
                        messages: 2,
                        flush_ns,
                        ..Served::default()
                    };
                    ((), Event::GcCurrentBlockBusy, Some(served))
                });
            };
            wait(10);
            wait(20);
            gone.0.send(()).unwrap();
            go.1.recv().unwrap();
        });
        let mut sampler = AshSampler::default();
        let flushes = || {
            let mine = rows().into_iter().filter(|r| &*r.program == "sampled");
            let own = mine.map(|r| r.remote.filter(|(n, _)| *n > r.wait_seq));
            own.map(|w| w.map(|(_, w)| w.part_ns(Part::Flush)))
                .collect::<Vec<_>>()
        };
        gone.1.recv().unwrap();
        sampler.sample();
        sampler.sample();
        assert_eq!(flushes(), [None, None]);
        go.0.send(()).unwrap();
        gone.1.recv().unwrap();
        sampler.sample();
        assert_eq!(flushes(), [Some(10), Some(10), None]);
        go.0.send(()).unwrap();
        gone.1.recv().unwrap();
        sampler.sample();
        let all = flushes();
        assert_eq!(all[..3], [Some(10), Some(10), Some(20)]);
        go.0.send(()).unwrap();
        thread.join().unwrap();
        sampler.sample();
        assert!(sampler.open.iter().all(|o| o.session.name != "sampled"));
    }

    #[test]
    fn rows_that_are_gone_are_not_written_to() {
        let mut ring = Ring {
            dropped: 5,
            ..Ring::default()
        };
        assert!(ring.get(4).is_none() && ring.get(5).is_none());
    }
}
