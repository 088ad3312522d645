//! Writing batches, at most [`LAST_GROUPS`] at once.
//!
//! A commit that comes while a batch is being written need not wait until that is done: the disk
//! takes two small writes at once at nearly the price of one.
//!
//! The limit comes from e(n), the SCN that is drawn when batch n is durable and that has to stand
//! in the log. The header of batch n+[`LAST_GROUPS`] carries it at the latest. An earlier header
//! carries it if it is known when that batch is issued.
//!
//! Invariants:
//! - Batches are issued in order, each when the batch [`LAST_GROUPS`] before it is durable and its
//!   group has been announced.
//! - Batches become durable in order, whichever is on disk first: to a reader a batch behind one
//!   that is not on disk is nothing. The thread that finishes the oldest batch being written also
//!   finishes all that follow it and are on disk.
//! - e(n) is drawn, published and noted under the lock that issuing takes. So a thread that sees a
//!   commit of batch n gets a header that says e(n), or one behind such a header
//!   (`fusion::visibility`, V6).

use crate::batch::{BatchHeader, block_up, checksum, store_checksum};
use crate::flush::{Told, Writes};
use crate::interface::{GroupList, RestartPoint};
use crate::{BatchNo, CommitWaiter, GroupEvidence, Redo, Result, ThreadEnd};
use block::{LAST_GROUPS, LastGroups, LogPos, Scn};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;
use wait::{Event, Stat};

/// The spacing of remembered restart points, in bytes: of the batch boundaries older than the
/// newest, one per so many bytes is remembered.
const START_SPACING: u64 = 256 << 10;

/// A closed batch that waits for its write.
pub(crate) struct Closed {
    pub batch: BatchNo,
    pub start: u64,
    /// The position after the last record. Evidence and padding follow.
    pub end: u64,
    pub group: GroupList,
    /// The evidence as it will stand in the batch.
    pub evidence: Vec<u8>,
}

impl Closed {
    /// The position where the next batch starts.
    pub fn padded(&self) -> u64 {
        block_up(self.end + self.evidence.len() as u64)
    }
}

/// A batch that its leader writes now, as the leader sees it.
pub(crate) struct Issued {
    header: BatchHeader,
    records: usize,
    evidence: Vec<u8>,
    padded: u64,
}

/// A batch that is being written, as all threads see it.
struct InFlight {
    batch: BatchNo,
    padded: u64,
    group: GroupList,
    on_disk: bool,
}

/// The batches that have been issued, and what is durable. It is locked for moments, except for the
/// announcement of a group.
pub(crate) struct Writer {
    /// The newest durable batches, and when their groups took effect.
    pub last: LastGroups,
    /// The batches being written, oldest first, one behind the other.
    in_flight: VecDeque<InFlight>,
    /// Batch boundaries, thinned out. The first is the checkpoint, the last the newest durable one.
    pub starts: VecDeque<RestartPoint>,
}

impl Writer {
    pub fn new(end: &ThreadEnd, last: LastGroups) -> Writer {
        let newest = last.newest().map_or(0, |(batch, _)| batch);
        assert!(
            newest + 1 == end.next.batch.0,
            "invariant: it is decided when the last groups took effect before a thread is opened"
        );
        Writer {
            last,
            in_flight: VecDeque::new(),
            starts: if end.start == end.next {
                [end.next].into()
            } else {
                [end.start, end.next].into()
            },
        }
    }

    /// The SCNs e(n-1), e(n-2) and so on for batch n.
    fn previous(&self, batch: BatchNo) -> [Scn; LAST_GROUPS] {
        let of = |back: u64| {
            let earlier = batch.0.checked_sub(back).filter(|batch| *batch > 0);
            earlier.map(|batch| self.last.scn_of(batch))
        };
        assert!(
            of(LAST_GROUPS as u64) != Some(None),
            "invariant: a batch is issued when it is known when the one that was written {LAST_GROUPS} before it took effect"
        );
        std::array::from_fn(|i| of(i as u64 + 1).flatten().unwrap_or_default())
    }
}

impl Redo {
    /// Takes the batch that a leader has to write to come nearer to `pos`. None if another leader
    /// has taken it.
    fn next_batch(&self, pos: u64) -> Option<Issued> {
        self.gathering.lock().gather();
        let mut writer = self.writer.lock();
        if self.issued.load(Ordering::Acquire) >= pos {
            return None;
        }
        let closed = {
            let mut open = self.open.lock();
            open.closed.pop_front().unwrap_or_else(|| {
                let closed = open.close(&self.evidence());
                self.end.store(open.end, Ordering::Release);
                closed
            })
        };
        Some(self.issue(closed, &mut writer))
    }

    /// Issues a closed batch. From here on its bytes are its leader's.
    pub(crate) fn issue(&self, closed: Closed, writer: &mut Writer) -> Issued {
        assert!(
            writer.in_flight.len() < LAST_GROUPS,
            "invariant: at most {LAST_GROUPS} batches are written at once"
        );
        let padded = closed.padded();
        let records = (closed.end - closed.start) as usize;
        let header = BatchHeader {
            identity: self.files.identity(),
            incarnation: self.incarnation,
            length: (records + closed.evidence.len()) as u32,
            evidence: GroupEvidence::all(&closed.evidence).count() as u16,
            batch: closed.batch,
            pos: LogPos(closed.start),
            durable: self.durable(),
            previous: writer.previous(closed.batch),
            wall_clock_us: seam::wall_clock()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| d.as_micros() as u64),
        };
        writer.in_flight.push_back(InFlight {
            batch: closed.batch,
            padded,
            group: closed.group,
            on_disk: false,
        });
        self.issued.store(padded, Ordering::Release);
        Issued {
            header,
            records,
            evidence: closed.evidence,
            padded,
        }
    }

    /// Seals and writes a batch, and says how many batches became durable thereby.
    pub(crate) fn write_issued(&self, issued: Issued) -> Result<usize> {
        let healthy = self.files.healthy_members();
        let start = issued.header.pos.0;
        // SAFETY: the batch is issued and not yet durable: its bytes are its leader's.
        let [first, rest] = unsafe { self.buffer.pieces(start, issued.padded) };
        issued.seal(first, rest);
        let bytes = issued.padded - start;
        let p = [self.files.members() as u64, bytes, 0];
        let delay = self.config().write_delay;
        let written = wait::during(Event::LogFileParallelWrite, p, || {
            if !delay.is_zero() {
                seam::thread::sleep(delay);
            }
            self.files.write(start, &[first, rest])
        });
        if let Err(e) = written {
            return Err(self.fail(e));
        }
        if self.files.healthy_members() < healthy {
            self.events.member_lost(self.files.healthy_members());
        }
        wait::stat::add(Stat::RedoWrites, 1);
        wait::stat::add(Stat::RedoBytesWritten, bytes);
        Ok(self.on_disk(issued.header.batch))
    }

    /// Notes that a batch is on disk. Announces and publishes all batches up to the first that is
    /// not, and says how many.
    fn on_disk(&self, batch: BatchNo) -> usize {
        let mut writer = self.writer.lock();
        let this = writer.in_flight.iter_mut().find(|b| b.batch == batch);
        let this = this.expect("invariant: a batch is in flight until it is durable");
        this.on_disk = true;
        let mut durable = 0;
        while let Some(mut done) = writer.in_flight.pop_front_if(|b| b.on_disk) {
            let scn = match self.sink.get() {
                Some(sink) => sink.group_durable(done.batch, &done.group.0),
                None => self.clock.tick(),
            };
            writer.last.note(done.batch.0, scn);
            let next = RestartPoint {
                pos: LogPos(done.padded),
                batch: done.batch.next(),
            };
            remember(&mut writer.starts, next);
            self.durable.store(done.padded, Ordering::Release);
            done.group.0.clear();
            self.open.lock().spare.push(done.group);
            durable += 1;
        }
        durable
    }
}

impl Issued {
    /// Puts header, evidence and padding around the records, the checksum last.
    fn seal(&self, first: &mut [u8], rest: &mut [u8]) {
        self.header.encode(first);
        let split = first.len();
        for (i, byte) in self.evidence.iter().enumerate() {
            match (self.records + i).checked_sub(split) {
                None => first[self.records + i] = *byte,
                Some(at) => rest[at] = *byte,
            }
        }
        // The padding is zeroed: what the previous round left in memory must not be written as if
        // it was of this batch.
        let length = self.header.length as usize;
        first[length.min(split)..].fill(0);
        rest[length.saturating_sub(split)..].fill(0);
        let crc = checksum([
            &first[..length.min(split)],
            &rest[..length.saturating_sub(split)],
        ]);
        store_checksum(first, crc);
    }
}

impl Writes for Redo {
    fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    fn issued(&self) -> u64 {
        self.issued.load(Ordering::Acquire)
    }

    fn write(&self, pos: u64) -> Result<Option<usize>> {
        let Some(issued) = self.next_batch(pos) else {
            return Ok(None);
        };
        self.queue.issued(self);
        self.write_issued(issued).map(Some)
    }

    fn pass_on(&self, batch: BatchNo, waiters: Vec<CommitWaiter>) {
        match self.sink.get() {
            Some(sink) => sink.wake_when_known(batch, waiters),
            None => waiters.into_iter().for_each(CommitWaiter::wake_at_once),
        }
    }

    fn tell(&self, told: Told) {
        let sink = self.wants.get();
        let sink = sink.expect("invariant: nothing is wanted without a sink");
        if told.reached {
            sink.durable();
        }
        if let Some(pos) = told.left {
            sink.writer_wanted(LogPos(pos));
        }
    }
}

/// Adds the newest boundary, and thins out those before it.
fn remember(starts: &mut VecDeque<RestartPoint>, point: RestartPoint) {
    let n = starts.len();
    if n >= 2 && starts[n - 1].pos.0 - starts[n - 2].pos.0 < START_SPACING {
        starts[n - 1] = point;
    } else {
        starts.push_back(point);
    }
}
