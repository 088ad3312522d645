//! The log buffer: appending records, closing batches, and the room left. [`crate::write`] writes
//! the batches.
//!
//! Invariants:
//! - Under the log latch: SCN, position and the group a commit record is in are settled together.
//! - `checkpoint <= durable <= end`; `end - durable <= buffer size`; `end - checkpoint <= capacity
//!   of the log files`.
//! - Nobody waits under the log latch.

use crate::batch::{
    BATCH_HEADER, LOG_BLOCK, MAX_BATCH, MAX_BATCH_RECORDS, MAX_EVIDENCE, MAX_EVIDENCE_BYTES,
    block_up,
};
use crate::buffer::Buffer;
use crate::files::LogFiles;
use crate::flush::{FlushQueue, Wish};
use crate::gather::Gathering;
use crate::interface::{
    Appended, GroupList, GroupSink, LogEvents, RedoConfig, RestartPoint, WantSink,
};
use crate::space::Space;
use crate::write::{Closed, Writer};
use crate::{BatchNo, Clock, Error, GroupEvidence, Result, ThreadEnd};
use block::record::{MAX_RECORD, set_scn};
use block::{LastGroups, LogPos};
use seam::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use wait::{Event, Latch, LatchClass, Stat};

/// The state that the log latch guards.
pub(crate) struct Open {
    pub batch: BatchNo,
    pub start: u64,
    /// The position of the next record. It equals `start` while the batch is empty: its header
    /// comes with the first record.
    pub end: u64,
    group: GroupList,
    /// Full batches not issued yet, oldest first.
    pub closed: VecDeque<Closed>,
    /// Emptied lists, to be used again.
    pub spare: Vec<GroupList>,
}

impl Open {
    pub fn close(&mut self, evidence: &[GroupEvidence]) -> Closed {
        assert!(
            evidence.len() <= MAX_EVIDENCE,
            "invariant: of each other thread the last groups are evidence"
        );
        let mut bytes = Vec::new();
        evidence.iter().for_each(|e| e.put(&mut bytes));
        let group = std::mem::replace(&mut self.group, self.spare.pop().unwrap_or_default());
        let closed = Closed {
            batch: self.batch,
            start: self.start,
            end: self.end,
            group,
            evidence: bytes,
        };
        self.start = closed.padded();
        self.end = self.start;
        self.batch = self.batch.next();
        closed
    }
}

/// How much waits in the buffer when `lgwr` is woken (or a quarter of the buffer, if that is less).
const WAKE_LGWR_BYTES: usize = 1 << 20;

static REDO_ALLOCATION: LatchClass = LatchClass {
    name: "redo allocation",
    event: Event::LatchRedo,
};

/// A redo thread open for appending.
pub struct Redo {
    pub(crate) clock: Arc<Clock>,
    pub(crate) files: LogFiles,
    config: RedoConfig,
    pub(crate) incarnation: u32,
    pub(crate) buffer: Buffer,
    pub(crate) open: Latch<Open>,
    /// A copy of `Open::end`, stored under the log latch.
    pub(crate) end: AtomicU64,
    /// The position below which everything is on disk and announced.
    pub(crate) durable: AtomicU64,
    /// The position below which everything is durable or being written.
    pub(crate) issued: AtomicU64,
    pub(crate) queue: FlushQueue,
    pub(crate) writer: Mutex<Writer>,
    /// Locked by a leader that has not issued its batch yet. There is at most one such leader.
    pub(crate) gathering: Mutex<Gathering>,
    pub(crate) space: Space,
    pub(crate) sink: OnceLock<Arc<dyn GroupSink>>,
    pub(crate) wants: OnceLock<Arc<dyn WantSink>>,
    pub(crate) events: Arc<dyn LogEvents>,
    failed: AtomicBool,
    pub(crate) lgwr: crate::lgwr::Bell,
}

impl Redo {
    /// Opens the thread for appending where `end` says that it ends, after invalidating what a
    /// crash left there.
    ///
    /// `last_groups` are the SCNs at which the commits of the last durable batches take effect
    /// ([`ThreadEnd::last_groups`]). They and the new incarnation are durable when this returns, so
    /// another recovery cannot decide otherwise.
    pub fn open(
        files: LogFiles,
        config: RedoConfig,
        clock: Arc<Clock>,
        events: Arc<dyn LogEvents>,
        end: &ThreadEnd,
        last_groups: LastGroups,
        incarnation: u32,
    ) -> Result<Arc<Redo>> {
        assert!(
            config.buffer_bytes >= 4 * MAX_BATCH,
            "the log buffer holds at least four batches"
        );
        if incarnation <= end.incarnation {
            let what = format!(
                "incarnation {} was met, the control file says {incarnation} is new",
                end.incarnation
            );
            return Err(Error::Files {
                thread: files.identity().thread.0,
                what,
            });
        }
        let with_record = MAX_RECORD + LOG_BLOCK + BATCH_HEADER + MAX_EVIDENCE_BYTES;
        let reserve = config.max_appenders as u64 * with_record as u64 + MAX_BATCH as u64;
        let capacity = files.geometry().capacity();
        if capacity < 2 * reserve {
            let what = format!(
                "{capacity} bytes of log are too few for {} sessions: {} are needed",
                config.max_appenders,
                2 * reserve
            );
            return Err(Error::Files {
                thread: files.identity().thread.0,
                what,
            });
        }
        crate::tail::invalidate(&files, end)?;
        let pos = end.next.pos.0;
        let redo = Redo {
            clock,
            config,
            incarnation,
            buffer: Buffer::new(config.buffer_bytes),
            open: Latch::new(
                &REDO_ALLOCATION,
                Open {
                    batch: end.next.batch,
                    start: pos,
                    end: pos,
                    group: GroupList::default(),
                    closed: VecDeque::new(),
                    spare: Vec::new(),
                },
            ),
            end: AtomicU64::new(pos),
            durable: AtomicU64::new(pos),
            issued: AtomicU64::new(pos),
            queue: FlushQueue::default(),
            writer: Mutex::new(Writer::new(end, last_groups)),
            gathering: Mutex::default(),
            space: Space::new(end.start.pos.0, capacity, reserve),
            sink: OnceLock::new(),
            wants: OnceLock::new(),
            events,
            failed: AtomicBool::new(false),
            lgwr: Default::default(),
            files,
        };
        redo.write_opening_batch()?;
        Ok(Arc::new(redo))
    }

    /// Writes a batch without records: its header makes the last groups' SCNs and the incarnation
    /// durable.
    fn write_opening_batch(&self) -> Result<()> {
        let mut open = self.open.lock();
        let (batch, start, end) = (open.batch, open.start, open.start + BATCH_HEADER as u64);
        if end > self.space.limit() {
            let what = "no room is left to open the thread".to_string();
            return Err(Error::Files {
                thread: self.files.identity().thread.0,
                what,
            });
        }
        open.start = block_up(end);
        open.end = open.start;
        open.batch = batch.next();
        self.end.store(open.end, Ordering::Release);
        drop(open);
        let opening = Closed {
            batch,
            start,
            end,
            group: GroupList::default(),
            evidence: Vec::new(),
        };
        let issued = self.issue(opening, &mut self.writer.lock());
        self.write_issued(issued).map(|_| ())
    }

    pub fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    pub fn files(&self) -> &LogFiles {
        &self.files
    }

    pub fn config(&self) -> &RedoConfig {
        &self.config
    }

    /// Sets the sink that hears of durable groups: once, before the first commit. Until then e(n)
    /// is drawn from the clock alone.
    pub fn set_group_sink(&self, sink: Arc<dyn GroupSink>) {
        assert!(
            self.sink.set(sink).is_ok(),
            "invariant: the group sink is set once"
        );
    }

    /// Sets the sink that hears what became of [wants](Redo::want): once, before there are any.
    pub fn set_want_sink(&self, sink: Arc<dyn WantSink>) {
        assert!(
            self.wants.set(sink).is_ok(),
            "invariant: the sink of wants is set once"
        );
    }

    /// Puts a finished record into the log buffer. It draws the record's SCN under the log latch,
    /// patches the SCN in, copies the record, and calls `under_latch` before it lets the latch go.
    ///
    /// [`Redo::wait_for_space`] must have been called before, once per record. Then this does not
    /// wait for I/O, except in the rare case that very many appenders filled the buffer at once. It
    /// then waits for (or does) a write, which needs no latch that a caller may hold.
    ///
    /// After a failed write records go nowhere: nothing can become durable any more, and the
    /// instance is about to stop.
    pub fn append(
        &self,
        record: &mut [u8],
        under_latch: impl FnOnce(Appended, &mut GroupList),
    ) -> Appended {
        assert!(
            record.len() <= MAX_RECORD,
            "invariant: a redo record has at most {MAX_RECORD} bytes"
        );
        let len = record.len() as u64;
        let (appended, waiting) = loop {
            let mut open = self.open.lock();
            if open.end + len - open.start > MAX_BATCH_RECORDS as u64 {
                let closed = open.close(&self.evidence());
                open.closed.push_back(closed);
                self.end.store(open.end, Ordering::Release);
            }
            let pos = if open.end == open.start {
                open.start + BATCH_HEADER as u64
            } else {
                open.end
            };
            let end = pos + len;
            let durable = self.durable.load(Ordering::Acquire);
            let room = self.buffer.size() - MAX_EVIDENCE_BYTES;
            if end - durable > room as u64 && !self.has_failed() {
                let until = open.start.min(durable + MAX_BATCH as u64);
                drop(open);
                // The next turn sees a failure, in `failed`.
                let _ = self.flush_under(until.max(durable + 1), Event::LogBufferSpace);
                continue;
            }
            if end > self.space.limit() && !self.has_failed() {
                drop(open);
                self.fail(Error::WriteFailed(
                    "the log files overflowed: appenders did not reserve room".to_string(),
                ));
                continue;
            }
            let scn = self.clock.tick();
            set_scn(record, scn);
            if !self.has_failed() {
                // SAFETY: the log latch is held. The range starts in the open batch and ends within
                // a buffer's size of the durable position.
                unsafe { self.buffer.put(pos, record) };
            }
            open.end = end;
            let appended = Appended {
                pos: LogPos(pos),
                end: LogPos(end),
                scn,
                batch: open.batch,
            };
            under_latch(appended, &mut open.group);
            // This store is last: a thread that sees this end and closes the batch finds all of the
            // above.
            self.end.store(end, Ordering::Release);
            break (appended, end - durable);
        };
        wait::stat::add(Stat::RedoEntries, 1);
        wait::stat::add(Stat::RedoSize, len);
        if waiting > self.wake_bytes() {
            self.lgwr.ring();
        }
        appended
    }

    fn wake_bytes(&self) -> u64 {
        WAKE_LGWR_BYTES.min(self.buffer.size() / 4) as u64
    }

    /// Waits until log files and buffer have room for a record of [`MAX_RECORD`] bytes from every
    /// appender. Callers hold no latch and call it once before each record. It costs a few atomic
    /// loads if there is room, and fails only if the log has failed.
    ///
    /// Background threads on which checkpoints depend do not call it: part of the reserve is
    /// theirs.
    #[inline]
    pub fn wait_for_space(&self) -> Result<()> {
        match self.has_space() {
            true => Ok(()),
            false => self.wait_for_space_slowly(),
        }
    }

    /// Whether [`Redo::wait_for_space`] would return at once: for threads that must not wait.
    #[inline]
    pub fn has_space(&self) -> bool {
        let end = self.end.load(Ordering::Acquire);
        let unwritten = end - self.durable.load(Ordering::Acquire).min(end);
        unwritten <= self.buffer.size() as u64 / 2 && !self.space.is_short(end)
    }

    #[cold]
    fn wait_for_space_slowly(&self) -> Result<()> {
        loop {
            let end = self.end.load(Ordering::Acquire);
            let durable = self.durable.load(Ordering::Acquire);
            if end.saturating_sub(durable) > self.buffer.size() as u64 / 2 {
                self.flush_under((durable + 1).min(end), Event::LogBufferSpace)?;
                continue;
            }
            if let Some(why) = self.queue.failure() {
                return Err(why);
            }
            if self.space.wants_checkpoint(end) {
                self.events.checkpoint_wanted();
            }
            if !self.space.is_full(end) {
                return Ok(());
            }
            wait::during(Event::LogFileSwitchCheckpoint, [0; 3], || {
                self.space.wait(end, || self.has_failed())
            });
        }
    }

    /// A position at or below that of the next record.
    #[inline]
    pub fn end(&self) -> LogPos {
        LogPos(self.end.load(Ordering::Acquire))
    }

    /// The position below which everything is durable and all groups have been announced.
    #[inline]
    pub fn durable(&self) -> LogPos {
        LogPos(self.durable.load(Ordering::Acquire))
    }

    /// Returns once everything below `pos` is durable and its groups have been announced. A caller
    /// that finds nobody writing writes itself (`log file parallel write`); the others wait for it
    /// (`log file sync`). The wait cannot be cancelled.
    pub fn flush_to(&self, pos: LogPos) -> Result<()> {
        self.flush_under(pos.0, Event::LogFileSync)
    }

    /// Makes a commit durable, and perhaps others with it. If `to_be_known`, other instances must
    /// know of the commit. A caller that has to wait for another thread's write then waits for both
    /// at once ([`GroupSink::wake_when_known`]). False if it did not, and the sink has still to be
    /// asked.
    pub fn flush_commit(&self, commit: Appended, to_be_known: bool) -> Result<bool> {
        self.flush_wish(&Wish {
            pos: commit.end.0,
            event: Event::LogFileSync,
            group: to_be_known.then_some(commit.batch),
        })
    }

    /// Wants everything below `pos` durable, for a caller that must not wait;
    /// [`Redo::set_want_sink`] has named whom to tell. False if nobody is writing just now, or if
    /// it is durable already. Then nothing is noted, and one of the caller's threads has to call
    /// [`Redo::flush_to`].
    pub fn want(&self, pos: LogPos) -> bool {
        self.wants.get().is_some() && self.queue.want(pos.0, self)
    }

    fn flush_under(&self, pos: u64, event: Event) -> Result<()> {
        let wish = Wish {
            pos,
            event,
            group: None,
        };
        self.flush_wish(&wish).map(|_| ())
    }

    fn flush_wish(&self, wish: &Wish) -> Result<bool> {
        let pos = wish.pos;
        if self.durable.load(Ordering::Acquire) >= pos {
            return Ok(false);
        }
        assert!(
            pos <= self.end.load(Ordering::Acquire),
            "nothing beyond the end of the log can be flushed"
        );
        wait::stat::add(Stat::RedoSyncs, 1);
        self.queue.flush(wish, self)
    }

    /// The evidence of what the records that are in the log now may rest on.
    pub(crate) fn evidence(&self) -> Vec<GroupEvidence> {
        let mut evidence = Vec::new();
        if let Some(sink) = self.sink.get() {
            sink.evidence(&mut evidence);
        }
        evidence
    }

    /// The end of the records that are in no closed batch, if there are any. When the log is
    /// durable up to there, it is so with a header that was made after this call.
    pub fn end_of_open_batch(&self) -> Option<LogPos> {
        let open = self.open.lock();
        (open.end > open.start).then_some(LogPos(open.end))
    }

    /// The newest batch boundary at or below `pos` at which a reader can start, or the checkpoint
    /// if `pos` is below it. The control file must hold it before [`Redo::set_checkpoint`].
    pub fn restart_point(&self, pos: LogPos) -> RestartPoint {
        let writer = self.writer.lock();
        let after = writer.starts.partition_point(|s| s.pos <= pos);
        writer.starts[after.saturating_sub(1)]
    }

    /// The newest durable batches whose groups have been announced, and when those took effect. For
    /// all older groups that stands in the log. If a group is being announced just now, this waits
    /// for the end of the announcement.
    pub fn last_groups(&self) -> LastGroups {
        self.writer.lock().last
    }

    /// Frees the log below `point`, which came from [`Redo::restart_point`] and is durable in the
    /// control file. A point below the present checkpoint changes nothing.
    pub fn set_checkpoint(&self, point: RestartPoint) {
        let mut writer = self.writer.lock();
        if point.pos <= self.checkpoint() {
            return;
        }
        while writer.starts.front().is_some_and(|s| s.pos <= point.pos) {
            writer.starts.pop_front();
        }
        // Thinning may have dropped the point meanwhile. The front is always the checkpoint.
        writer.starts.push_front(point);
        self.space.advance(point.pos.0);
    }

    /// The checkpoint, from which on the log is kept.
    pub fn checkpoint(&self) -> LogPos {
        LogPos(self.space.checkpoint())
    }

    /// The bytes of log that can be written before appenders wait for a checkpoint.
    pub fn space_left(&self) -> u64 {
        self.space.left(self.end.load(Ordering::Acquire))
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Takes note that nothing will become durable any more: tells the instance, once, and wakes
    /// all threads that wait.
    pub(crate) fn fail(&self, why: Error) -> Error {
        let why = match why {
            Error::WriteFailed(_) => why,
            other => Error::WriteFailed(other.to_string()),
        };
        if !self.failed.swap(true, Ordering::SeqCst) {
            self.events.log_failed(&why);
        }
        if let Error::WriteFailed(text) = &why {
            self.queue.fail(text.clone());
        }
        self.space.wake_all();
        why
    }
}
