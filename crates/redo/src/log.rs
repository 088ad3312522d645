//! The log buffer: appending records, closing batches, writing them, and the room left.
//!
//! Invariants:
//! - Under the log latch: SCN, position and the group a commit record is in are settled together.
//! - Batches are written one at a time, in order. A batch is issued when the one before it is durable and its group has been announced,
//!   because its header carries that group's SCN.
//! - `checkpoint <= durable <= end`; `end - durable <= buffer size`; `end - checkpoint <= capacity of the log files`.
//! - Nobody waits under the log latch.

use crate::batch::{
    BATCH_HEADER, BatchHeader, LOG_BLOCK, MAX_BATCH, MAX_BATCH_RECORDS, MAX_EVIDENCE,
    MAX_EVIDENCE_BYTES, block_up, checksum, store_checksum,
};
use crate::buffer::Buffer;
use crate::files::LogFiles;
use crate::flush::{FlushQueue, Told, Wish};
use crate::gather::Gathering;
use crate::interface::{
    Appended, GroupList, GroupSink, LogEvents, RedoConfig, RestartPoint, WantSink,
};
use crate::space::Space;
use crate::{BatchNo, Clock, CommitWaiter, Error, GroupEvidence, Result, ThreadEnd};
use block::record::{MAX_RECORD, set_scn};
use block::{LogPos, Scn};
use seam::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;
use wait::{Event, Latch, LatchClass, Stat};

/// A closed batch that waits for its write.
struct Closed {
    batch: BatchNo,
    start: u64,
    /// After the last record; evidence and padding follow.
    end: u64,
    group: GroupList,
    /// As it will stand in the batch.
    evidence: Vec<u8>,
}

impl Closed {
    /// Where the next batch starts.
    fn padded(&self) -> u64 {
        block_up(self.end + self.evidence.len() as u64)
    }
}

/// What the log latch guards.
struct Open {
    batch: BatchNo,
    start: u64,
    /// Where the next record goes; equal to `start` while the batch is empty (its header comes with the first record).
    end: u64,
    group: GroupList,
    /// Full batches not issued yet, oldest first.
    closed: VecDeque<Closed>,
    /// Emptied lists to use again.
    spare: Vec<GroupList>,
}

impl Open {
    fn close(&mut self, evidence: &[GroupEvidence]) -> Closed {
        assert!(
            evidence.len() <= MAX_EVIDENCE,
            "invariant: of each other thread one group is evidence"
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

/// What the leader of the flush alone uses.
struct Writer {
    /// The last durable batch, and its e(n).
    last_batch: BatchNo,
    last_group: Scn,
    /// Batch boundaries, thinned out: the first is the checkpoint, the last the newest durable one.
    starts: VecDeque<RestartPoint>,
    gathering: Gathering,
}

/// Of the batch boundaries older than the newest, one per so many bytes is remembered as a place to restart.
const START_SPACING: u64 = 256 << 10;
/// `lgwr` is woken when so much waits in the buffer (or a quarter of the buffer, if that is less).
const WAKE_LGWR_BYTES: usize = 1 << 20;

static REDO_ALLOCATION: LatchClass = LatchClass {
    name: "redo allocation",
    event: Event::LatchRedo,
};

/// A redo thread open for appending.
pub struct Redo {
    pub(crate) clock: Arc<Clock>,
    files: LogFiles,
    config: RedoConfig,
    incarnation: u32,
    buffer: Buffer,
    open: Latch<Open>,
    /// Copy of `Open::end`, stored under the log latch.
    end: AtomicU64,
    /// Everything below is on disk and announced.
    durable: AtomicU64,
    queue: FlushQueue,
    writer: Mutex<Writer>,
    pub(crate) space: Space,
    sink: OnceLock<Arc<dyn GroupSink>>,
    wants: OnceLock<Arc<dyn WantSink>>,
    events: Arc<dyn LogEvents>,
    failed: AtomicBool,
    pub(crate) lgwr: crate::lgwr::Bell,
}

impl Redo {
    /// Opens the thread for appending where `end` says that it ends, after invalidating what a crash left there. `last_group` is the SCN at which the
    /// commits of the last durable batch take effect; it and the new incarnation are durable when this returns, so that another
    /// recovery cannot decide otherwise.
    pub fn open(
        files: LogFiles,
        config: RedoConfig,
        clock: Arc<Clock>,
        events: Arc<dyn LogEvents>,
        end: &ThreadEnd,
        last_group: Scn,
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
            queue: FlushQueue::default(),
            writer: Mutex::new(Writer {
                last_batch: BatchNo(end.next.batch.0 - 1),
                last_group,
                starts: if end.start == end.next {
                    [end.next].into()
                } else {
                    [end.start, end.next].into()
                },
                gathering: Gathering::default(),
            }),
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

    /// A batch without records: its header makes the last group's SCN and the incarnation durable.
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
        let mut writer = self.writer.lock();
        self.write_batch(
            &Closed {
                batch,
                start,
                end,
                group: GroupList::default(),
                evidence: Vec::new(),
            },
            &mut writer,
        )
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

    /// Who is told of durable groups; set once, before the first commit. Until then e(n) is drawn from the clock alone.
    pub fn set_group_sink(&self, sink: Arc<dyn GroupSink>) {
        assert!(
            self.sink.set(sink).is_ok(),
            "invariant: the group sink is set once"
        );
    }

    /// Who is told of what was [wanted](Redo::want); set once, before anything is.
    pub fn set_want_sink(&self, sink: Arc<dyn WantSink>) {
        assert!(
            self.wants.set(sink).is_ok(),
            "invariant: the sink of wants is set once"
        );
    }

    /// Puts a finished record into the log buffer: draws its SCN under the log latch, patches it in, copies it, and calls
    /// `under_latch` before the latch is let go.
    ///
    /// [`Redo::wait_for_space`] must have been called before, once per record. Then this does not wait for I/O, but for the rare case that very many
    /// appenders filled the buffer at once: it then waits for (or does) the write in progress, which needs no latch that a caller may hold.
    ///
    /// After a failed write records go nowhere: nothing can become durable any more, and the instance is about to stop.
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
                // A failure is seen at the next turn, in `failed`.
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
                // SAFETY: the log latch is held; the range starts in the open batch and ends within a buffer's size of the durable position.
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
            // Last: who sees this end and closes the batch finds all of the above.
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

    /// Waits until log files and buffer have room for a record of [`MAX_RECORD`] bytes from everybody. To be called with no latch held, once before each
    /// record. A few atomic loads when there is room. Fails only when the log has failed. Background threads on which checkpoints depend do not call it:
    /// part of the reserve is theirs.
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

    /// Everything below this position is durable, and its groups have been announced.
    #[inline]
    pub fn durable(&self) -> LogPos {
        LogPos(self.durable.load(Ordering::Acquire))
    }

    /// Returns once everything below `pos` is durable and its groups have been announced. Group commit: a caller that finds nobody
    /// writing writes itself (`log file parallel write`), the others wait for it (`log file sync`). Cannot be cancelled.
    pub fn flush_to(&self, pos: LogPos) -> Result<()> {
        self.flush_under(pos.0, Event::LogFileSync)
    }

    /// The same for a commit, which may take others along. If other instances are to know of it, a caller that has to wait for another's write waits for both at once
    /// ([`GroupSink::wake_when_known`]). False if it did not, and the sink has still to be asked.
    pub fn flush_commit(&self, commit: Appended, to_be_known: bool) -> Result<bool> {
        self.flush_wish(&Wish {
            pos: commit.end.0,
            event: Event::LogFileSync,
            group: to_be_known.then_some(commit.batch),
        })
    }

    /// Wants everything below `pos` durable, for a caller that must not wait and that [`Redo::set_want_sink`] has named. False if nobody is writing just now, or it is durable already: then
    /// nothing is noted, and a thread of the caller's has to call [`Redo::flush_to`].
    pub fn want(&self, pos: LogPos) -> bool {
        self.wants.get().is_some()
            && self
                .queue
                .want(pos.0, || self.durable.load(Ordering::Acquire))
    }

    fn tell_of_wants(&self, told: &Told) {
        let sink = self.wants.get();
        let sink = sink.expect("invariant: nothing is wanted without a sink");
        if told.reached {
            sink.durable();
        }
        if let Some(pos) = told.left {
            sink.writer_wanted(LogPos(pos));
        }
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
        self.queue.flush(
            wish,
            || self.durable.load(Ordering::Acquire),
            || self.write_next(),
            |batch, waiters| match self.sink.get() {
                Some(sink) => sink.wake_when_known(batch, waiters),
                None => waiters.into_iter().for_each(CommitWaiter::wake),
            },
            |told| self.tell_of_wants(&told),
        )
    }

    /// Makes one more batch durable; the caller leads. Others may bring their commits first.
    fn write_next(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        writer.gathering.gather();
        let mut next = {
            let mut open = self.open.lock();
            match open.closed.pop_front() {
                Some(closed) => closed,
                None if open.end == open.start => return Ok(()),
                None => {
                    let closed = open.close(&self.evidence());
                    self.end.store(open.end, Ordering::Release);
                    closed
                }
            }
        };
        self.write_batch(&next, &mut writer)?;
        next.group.0.clear();
        self.open.lock().spare.push(next.group);
        Ok(())
    }

    /// Seals, writes, announces, publishes.
    fn write_batch(&self, closed: &Closed, writer: &mut Writer) -> Result<()> {
        let healthy = self.files.healthy_members();
        let padded = closed.padded();
        // SAFETY: the batch is closed and not yet durable: its bytes are the leader's, and the writer's mutex is held.
        let [first, rest] = unsafe { self.buffer.pieces(closed.start, padded) };
        self.seal(closed, writer.last_group, first, rest);
        let p = [self.files.members() as u64, padded - closed.start, 0];
        let written = wait::during(Event::LogFileParallelWrite, p, || {
            self.files.write(closed.start, &[first, rest])
        });
        if let Err(e) = written {
            return Err(self.fail(e));
        }
        if self.files.healthy_members() < healthy {
            self.events.member_lost(self.files.healthy_members());
        }
        wait::stat::add(Stat::RedoWrites, 1);
        wait::stat::add(Stat::RedoBytesWritten, padded - closed.start);
        writer.last_group = match self.sink.get() {
            Some(sink) => sink.group_durable(closed.batch, &closed.group.0),
            None => self.clock.tick(),
        };
        writer.last_batch = closed.batch;
        remember(
            &mut writer.starts,
            RestartPoint {
                pos: LogPos(padded),
                batch: closed.batch.next(),
            },
        );
        self.durable.store(padded, Ordering::Release);
        Ok(())
    }

    /// What the records that are in the log now may rest on.
    fn evidence(&self) -> Vec<GroupEvidence> {
        let mut evidence = Vec::new();
        if let Some(sink) = self.sink.get() {
            sink.evidence(&mut evidence);
        }
        evidence
    }

    /// The end of the records that are in no closed batch, if there are any: what is durable up to there is so with a header that was made after this call.
    pub fn end_of_open_batch(&self) -> Option<LogPos> {
        let open = self.open.lock();
        (open.end > open.start).then_some(LogPos(open.end))
    }

    fn seal(&self, closed: &Closed, previous_group: Scn, first: &mut [u8], rest: &mut [u8]) {
        let records = (closed.end - closed.start) as usize;
        let length = records + closed.evidence.len();
        let header = BatchHeader {
            identity: self.files.identity(),
            incarnation: self.incarnation,
            length: length as u32,
            evidence: GroupEvidence::all(&closed.evidence).count() as u16,
            batch: closed.batch,
            pos: LogPos(closed.start),
            durable: self.durable(),
            previous_group,
            wall_clock_us: seam::wall_clock()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| d.as_micros() as u64),
        };
        assert!(
            header.durable == header.pos,
            "invariant: a batch is issued when the one before it is durable"
        );
        header.encode(first);
        let split = first.len();
        for (i, byte) in closed.evidence.iter().enumerate() {
            match (records + i).checked_sub(split) {
                None => first[records + i] = *byte,
                Some(at) => rest[at] = *byte,
            }
        }
        // The padding: what the previous round left in memory must not be written as if it were of this batch.
        first[length.min(split)..].fill(0);
        rest[length.saturating_sub(split)..].fill(0);
        let crc = checksum([
            &first[..length.min(split)],
            &rest[..length.saturating_sub(split)],
        ]);
        store_checksum(first, crc);
    }

    /// The newest batch boundary at or below `pos` at which a reader can start, or the checkpoint if `pos` is below it: what the control
    /// file must hold before [`Redo::set_checkpoint`]. May wait for the write in progress.
    pub fn restart_point(&self, pos: LogPos) -> RestartPoint {
        let writer = self.writer.lock();
        let after = writer.starts.partition_point(|s| s.pos <= pos);
        writer.starts[after.saturating_sub(1)]
    }

    /// The newest durable batch, whose group has been announced, and when that took effect: of all older ones it stands in the log. May wait for the write in progress.
    pub fn newest_group(&self) -> (BatchNo, Scn) {
        let writer = self.writer.lock();
        (writer.last_batch, writer.last_group)
    }

    /// Frees the log below `point`, which came from [`Redo::restart_point`] and is durable in the control file. A point below the present
    /// checkpoint changes nothing.
    pub fn set_checkpoint(&self, point: RestartPoint) {
        let mut writer = self.writer.lock();
        if point.pos <= self.checkpoint() {
            return;
        }
        while writer.starts.front().is_some_and(|s| s.pos <= point.pos) {
            writer.starts.pop_front();
        }
        // Thinning may have dropped it meanwhile; the front is always the checkpoint.
        writer.starts.push_front(point);
        self.space.advance(point.pos.0);
    }

    /// The checkpoint that the log is kept from.
    pub fn checkpoint(&self) -> LogPos {
        LogPos(self.space.checkpoint())
    }

    /// Bytes of log that can be written before appenders wait for a checkpoint.
    pub fn space_left(&self) -> u64 {
        self.space.left(self.end.load(Ordering::Acquire))
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Nothing will become durable any more: tells the instance, once, and wakes all who wait.
    fn fail(&self, why: Error) -> Error {
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

/// Adds the newest boundary; thins out those before it.
fn remember(starts: &mut VecDeque<RestartPoint>, point: RestartPoint) {
    let n = starts.len();
    if n >= 2 && starts[n - 1].pos.0 - starts[n - 2].pos.0 < START_SPACING {
        starts[n - 1] = point;
    } else {
        starts.push_back(point);
    }
}
