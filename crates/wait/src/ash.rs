//! Active session history: every second, what each active session does. A ring in memory of fixed size.

use crate::remote::RemoteWait;
use crate::session::{self, Kind};
use crate::{Class, Event};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

/// Rows kept: an hour of a hundred sessions that are always active; about 110 MB at most, and nothing while idle.
const CAPACITY: usize = 360_000;

/// One sample of one session. `event` is `None` for a session on CPU.
#[derive(Clone, Debug)]
pub struct AshRow {
    pub sample_id: u64,
    pub sample_time: SystemTime,
    pub sid: u32,
    pub serial: u32,
    pub kind: Kind,
    pub program: Arc<str>,
    pub event: Option<Event>,
    pub params: [u64; 3],
    /// Microseconds the wait had lasted.
    pub time_waited_us: u64,
    /// The instance asked, of a wait for another.
    pub asked: Option<u16>,
    /// Number of waits of the session that were over.
    pub wait_seq: u64,
    /// The last wait that another instance served, with its number: what the sampled one will look like is not known before it is over.
    pub remote: Option<(u64, RemoteWait)>,
    pub sql: Option<Arc<str>>,
    pub transaction: u64,
}

static RING: Mutex<VecDeque<AshRow>> = Mutex::new(VecDeque::new());

/// Takes the samples; owned by `mmon`, which calls it each second.
#[derive(Default)]
pub struct AshSampler {
    sample_id: u64,
}

impl AshSampler {
    pub fn sample(&mut self) {
        self.sample_id += 1;
        let now = seam::wall_clock();
        let rows: Vec<AshRow> = session::list()
            .into_iter()
            .filter_map(|s| self.row(&s, now))
            .collect();
        let mut ring = RING.lock();
        let excess = (ring.len() + rows.len()).saturating_sub(CAPACITY);
        let excess = excess.min(ring.len());
        ring.drain(..excess);
        ring.extend(rows);
    }

    /// `None` for an idle session.
    fn row(&self, s: &session::Session, now: SystemTime) -> Option<AshRow> {
        let waiting = s.waiting();
        let idle = match &waiting {
            Some(w) => w.event.class() == Class::Idle,
            None => !s.is_active() || s.kind == Kind::Background,
        };
        let program = || {
            let named = s.identity().program;
            if named.is_empty() {
                s.name.as_str().into()
            } else {
                named.into()
            }
        };
        (!idle).then(|| AshRow {
            sample_id: self.sample_id,
            sample_time: now,
            sid: s.sid,
            serial: s.serial,
            kind: s.kind,
            program: program(),
            event: waiting.map(|w| w.event),
            params: waiting.map_or([0; 3], |w| w.params),
            time_waited_us: waiting.map_or(0, |w| w.for_ns / 1000),
            asked: waiting.and_then(|w| w.asked),
            wait_seq: s.wait_seq(),
            remote: s.last_remote(),
            sql: s.sql(),
            transaction: s.transaction.load(std::sync::atomic::Ordering::Relaxed),
        })
    }
}

pub(crate) fn rows() -> Vec<AshRow> {
    RING.lock().iter().cloned().collect()
}
