//! Reading a thread back: batch by batch from a restart point to the thread's end.
//!
//! Rules:
//! - The thread ends at the first position where its next batch is not whole on any member. A write
//!   of several log blocks can be torn anywhere, its last blocks on disk and its first ones not:
//!   that is an ordinary crash.
//! - It is *damage*, and an error, if a whole batch further on says that the log was durable beyond
//!   that position. Required is a look at all the rest of the ring. Enforced is a look at the next
//!   [`DAMAGE_WINDOW`] bytes, which a start can afford: decaying disks or misdirected writes do not
//!   leave a hole of that size in files that are otherwise readable.
//! - A thread that was closed is read without that look ([`RedoReader::of_closed`]): all that it
//!   logged is in the data files, so there is nothing to lose.
//! - A second reading ends where the first one found the end ([`RedoReader::again`]), whatever
//!   stands behind that end by now.
//! - A read error is an error, never the end, unless the other member has the batch.
//!
//! The SCN e(n) at which the commits of batch n took effect stands in the header of one of the next
//! [`LAST_GROUPS`] batches. So the reader looks so many batches ahead. For the thread's last groups
//! it may stand nowhere; the caller decides those.

use crate::batch::{
    BATCH_HEADER, BatchHeader, GroupEvidence, LOG_BLOCK, MAX_BATCH, block_up, checksum,
    stored_checksum,
};
use crate::{Error, LogFiles, RestartPoint, Result};
use block::record::Record;
use block::{LAST_GROUPS, LastGroups, LogPos, Scn, ThreadId};
use std::collections::{BTreeMap, VecDeque};
use storage::AlignedBuf;

/// How far behind the end a batch that proves damage is looked for.
pub const DAMAGE_WINDOW: u64 = 32 * MAX_BATCH as u64;
/// The number of bytes read at once.
const READ_BYTES: u64 = MAX_BATCH as u64;

/// A batch read back, whole and of the right place.
#[derive(Default)]
pub struct Batch {
    header: Option<BatchHeader>,
    /// The bytes of header and records.
    bytes: Vec<u8>,
    evidence: Vec<GroupEvidence>,
    group: Option<Scn>,
}

impl Batch {
    pub fn header(&self) -> &BatchHeader {
        self.header
            .as_ref()
            .expect("invariant: a batch handed out has been loaded")
    }

    /// The SCN e(n) at which the commits in this batch took effect. None if no header says, as for
    /// the thread's last batch.
    pub fn group(&self) -> Option<Scn> {
        self.group
    }

    /// The groups of other threads that the records may rest on, and when they took effect.
    pub fn evidence(&self) -> &[GroupEvidence] {
        &self.evidence
    }

    /// The records in the order of their positions. An error ends the iteration: a record cannot be
    /// read though the batch's checksum is right.
    pub fn records(&self) -> impl Iterator<Item = Result<Record<'_>>> {
        let mut at = BATCH_HEADER;
        std::iter::from_fn(move || {
            let next = self.record_at(at).transpose()?;
            match next {
                Ok((record, len)) => {
                    at += len;
                    Some(Ok(record))
                }
                Err(e) => {
                    at = self.bytes.len();
                    Some(Err(e))
                }
            }
        })
    }

    /// The record at byte `at` of the batch, and its length. None at the end.
    pub(crate) fn record_at(&self, at: usize) -> Result<Option<(Record<'_>, usize)>> {
        if at >= self.bytes.len() {
            return Ok(None);
        }
        let header = self.header();
        let pos = LogPos(header.pos.0 + at as u64);
        Record::parse(&self.bytes[at..], pos)
            .map(Some)
            .map_err(|e| Error::Damaged {
                thread: header.identity.thread.0,
                pos,
                what: e.to_string(),
            })
    }
}

/// The end of a thread, and what reading it found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadEnd {
    /// The position where reading started.
    pub start: RestartPoint,
    /// The position of the next batch.
    pub next: RestartPoint,
    /// The highest incarnation met. Zero if there was no batch.
    pub incarnation: u32,
    /// The highest SCN met, in records and headers.
    pub max_scn: Scn,
    /// What the thread's headers say of its own last groups.
    pub groups: LastGroups,
    /// The newest groups of each other thread that there was evidence of, and when they took
    /// effect.
    pub evidence: BTreeMap<ThreadId, LastGroups>,
    /// When the last batch was issued, in microseconds since 1970. Zero if there was none.
    pub wall_clock_us: u64,
    /// Why nothing more could be read, for the notice that a start prints.
    pub reason: String,
    /// Ranges that one of two members does not hold whole. When the thread is opened for appending,
    /// they are mended from the other member.
    pub repairs: Vec<Repair>,
}

impl ThreadEnd {
    /// When each of the thread's last groups took effect: as the thread's headers say; otherwise as
    /// is known `elsewhere`; otherwise at `decided`, which is above all that anybody may have seen.
    pub fn last_groups(&self, elsewhere: LastGroups, decided: Scn) -> LastGroups {
        let newest = self.next.batch.0 - 1;
        let oldest = self.next.batch.0.saturating_sub(LAST_GROUPS as u64).max(1);
        let scn = |batch| self.groups.scn_of(batch).or(elsewhere.scn_of(batch));
        (oldest..=newest)
            .map(|batch| (batch, scn(batch).unwrap_or(decided)))
            .collect()
    }
}

/// A range of log blocks that `member` lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    pub member: usize,
    pub from: u64,
    pub to: u64,
}

/// Log blocks of one member read ahead.
struct Window {
    member: usize,
    from: u64,
    to: u64,
    buf: AlignedBuf,
}

impl Window {
    /// The bytes of `[from, to)`, which are whole log blocks. It reads ahead to `limit` at most.
    fn get(&mut self, files: &LogFiles, from: u64, to: u64, limit: u64) -> Result<&[u8]> {
        if from < self.from || to > self.to {
            let end = (from + READ_BYTES).max(to).min(limit);
            self.to = self.from; // nothing is left if the read fails
            self.buf.resize((end - from) as usize);
            files.read(self.member, from, &mut self.buf)?;
            (self.from, self.to) = (from, end);
        }
        Ok(&self.buf[(from - self.from) as usize..(to - self.from) as usize])
    }
}

/// How a reader recognizes the thread's end.
#[derive(Clone, Copy)]
enum Until {
    /// A batch that is not whole, unless something further on proves damage.
    Torn { damage_window: u64 },
    /// This position, which was found before.
    Known(RestartPoint),
}

/// Reads one thread. See the module for the rules.
pub struct RedoReader<'a> {
    files: &'a LogFiles,
    until: Until,
    windows: Vec<Window>,
    current: Batch,
    /// The next batches, at most [`LAST_GROUPS`], unless the thread ends before.
    ahead: VecDeque<Batch>,
    started: bool,
    ended: bool,
    /// What is known of the end so far. `next` is where the batch after `ahead` is expected.
    end: ThreadEnd,
}

impl<'a> RedoReader<'a> {
    /// A reader of a thread whose instance may have died, from `start` to an end that is still to
    /// be found.
    pub fn new(files: &'a LogFiles, start: RestartPoint) -> RedoReader<'a> {
        let damage_window = DAMAGE_WINDOW;
        RedoReader::with(files, start, Until::Torn { damage_window })
    }

    /// A reader of a thread that was closed: nobody needs what it logged.
    pub fn of_closed(files: &'a LogFiles, start: RestartPoint) -> RedoReader<'a> {
        RedoReader::with(files, start, Until::Torn { damage_window: 0 })
    }

    /// A second reader of a thread that has been read to `end`. A batch that is no longer whole is
    /// damage.
    pub fn again(files: &'a LogFiles, end: &ThreadEnd) -> RedoReader<'a> {
        RedoReader::with(files, end.start, Until::Known(end.next))
    }

    fn with(files: &'a LogFiles, start: RestartPoint, until: Until) -> RedoReader<'a> {
        let window = |member| Window {
            member,
            from: 0,
            to: 0,
            buf: AlignedBuf::default(),
        };
        RedoReader {
            files,
            until,
            windows: (0..files.members()).map(window).collect(),
            current: Batch::default(),
            ahead: VecDeque::new(),
            started: false,
            ended: false,
            end: ThreadEnd {
                start,
                next: start,
                incarnation: 0,
                max_scn: Scn::ZERO,
                groups: LastGroups::default(),
                evidence: BTreeMap::new(),
                wall_clock_us: 0,
                reason: String::new(),
                repairs: Vec::new(),
            },
        }
    }

    /// The next batch. None at the end of the thread.
    pub fn next_batch(&mut self) -> Result<Option<&Batch>> {
        if !self.started {
            self.started = true;
            for _ in 0..LAST_GROUPS {
                self.look_ahead(Batch::default())?;
            }
        }
        let Some(next) = self.ahead.pop_front() else {
            return Ok(None);
        };
        let spare = std::mem::replace(&mut self.current, next);
        self.look_ahead(spare)?;
        let said = |(back, ahead): (usize, &Batch)| ahead.header().previous[back];
        let group = self.ahead.iter().enumerate().map(said);
        self.current.group = group.into_iter().find(|scn| *scn != Scn::ZERO);
        Ok(Some(&self.current))
    }

    /// Loads one more batch, unless the end has been met.
    fn look_ahead(&mut self, spare: Batch) -> Result<()> {
        if !self.ended {
            match self.load(spare)? {
                Some(batch) => self.ahead.push_back(batch),
                None => self.ended = true,
            }
        }
        Ok(())
    }

    pub(crate) fn current(&self) -> &Batch {
        &self.current
    }

    /// Reads on to the end, and says where it is.
    pub fn finish(mut self) -> Result<ThreadEnd> {
        while self.next_batch()?.is_some() {}
        Ok(self.end)
    }

    pub fn thread(&self) -> block::ThreadId {
        self.files.identity().thread
    }

    /// The end of this reading's part of the ring: no log block at or beyond it is part of the
    /// reading.
    fn limit(&self) -> u64 {
        self.end.start.pos.0 + self.files.geometry().capacity()
    }

    /// Loads the batch at `end.next` into `spare`.
    fn load(&mut self, mut spare: Batch) -> Result<Option<Batch>> {
        if matches!(self.until, Until::Known(end) if end == self.end.next) {
            return Ok(None);
        }
        let mut bad = Vec::new();
        let mut failure = None;
        let mut reason = String::new();
        let mut found = false;
        for member in 0..self.windows.len() {
            match self.try_member(member, &mut spare) {
                Ok(Ok(())) => {
                    found = true;
                    // The other member is looked at, too, so that it can be mended.
                }
                Ok(Err(why)) => {
                    reason = why.to_string();
                    bad.push(member);
                }
                Err(e) => {
                    bad.push(member);
                    failure = Some(e);
                }
            }
        }
        if !found {
            if let Some(e) = failure {
                return Err(e);
            }
            self.end.reason = reason;
            self.look_for_damage()?;
            return Ok(None);
        }
        let header = *spare.header();
        for member in bad {
            self.note_repair(member, header.pos.0, header.next_pos().0);
        }
        self.end.next = RestartPoint {
            pos: header.next_pos(),
            batch: header.batch.next(),
        };
        self.end.incarnation = header.incarnation;
        self.end.wall_clock_us = header.wall_clock_us;
        for (batch, scn) in header.groups() {
            self.end.max_scn = self.end.max_scn.max(scn);
            self.end.groups.note(batch, scn);
        }
        for e in &spare.evidence {
            self.end.max_scn = self.end.max_scn.max(e.scn);
            let newest = self.end.evidence.entry(e.thread).or_default();
            newest.note(e.batch.0, e.scn);
        }
        if let Some(last) = spare.records().last() {
            self.end.max_scn = self.end.max_scn.max(last?.scn);
        }
        spare.group = None;
        Ok(Some(spare))
    }

    fn note_repair(&mut self, member: usize, from: u64, to: u64) {
        match self
            .end
            .repairs
            .iter_mut()
            .rev()
            .find(|r| r.member == member)
        {
            Some(r) if r.to == from => r.to = to,
            _ => self.end.repairs.push(Repair { member, from, to }),
        }
    }

    /// The expected batch from one member, or why it is not there.
    fn try_member(
        &mut self,
        member: usize,
        into: &mut Batch,
    ) -> Result<std::result::Result<(), &'static str>> {
        let (pos, limit) = (self.end.next.pos.0, self.limit());
        let (header, bytes) = match whole_batch(self.files, &mut self.windows[member], pos, limit)?
        {
            Ok(whole) => whole,
            Err(why) => return Ok(Err(why)),
        };
        if header.batch != self.end.next.batch {
            return Ok(Err("the batch has another number"));
        }
        if header.incarnation < self.end.incarnation {
            return Ok(Err("the batch is of an earlier incarnation"));
        }
        into.header = Some(header);
        into.bytes.clear();
        let (records, evidence) = bytes.split_at(header.records_end());
        into.bytes.extend_from_slice(records);
        into.evidence.clear();
        into.evidence.extend(GroupEvidence::all(evidence));
        Ok(Ok(()))
    }

    /// Takes `end.next` for the thread's end, unless more is known of it.
    fn look_for_damage(&mut self) -> Result<()> {
        let damage_window = match self.until {
            Until::Torn { damage_window } => damage_window,
            Until::Known(end) => {
                let known = format!("the thread was read to {} before", end.pos.0);
                return Err(self.damaged(known));
            }
        };
        let end = self.end.next.pos.0;
        let limit = self.limit();
        let until = limit.min(end + damage_window);
        for member in 0..self.windows.len() {
            let mut pos = end + LOG_BLOCK as u64;
            while pos < until {
                if let Ok((header, _)) =
                    whole_batch(self.files, &mut self.windows[member], pos, limit)?
                    && header.incarnation >= self.end.incarnation
                    && header.durable.0 > end
                {
                    let proof = format!(
                        "batch {} at {pos} was issued when the log was durable up to {}",
                        header.batch.0, header.durable.0
                    );
                    return Err(self.damaged(proof));
                }
                pos += LOG_BLOCK as u64;
            }
        }
        Ok(())
    }

    fn damaged(&self, proof: String) -> Error {
        Error::Damaged {
            thread: self.files.identity().thread.0,
            pos: self.end.next.pos,
            what: format!("{}, but {proof}", self.end.reason),
        }
    }
}

type Whole<'w> = std::result::Result<(BatchHeader, &'w [u8]), &'static str>;

/// The batch at `pos`, if it is whole and belongs to this thread and this position.
fn whole_batch<'w>(
    files: &LogFiles,
    window: &'w mut Window,
    pos: u64,
    limit: u64,
) -> Result<Whole<'w>> {
    if pos + LOG_BLOCK as u64 > limit {
        return Ok(Err("the log files are full"));
    }
    let header = match BatchHeader::decode(window.get(files, pos, pos + LOG_BLOCK as u64, limit)?) {
        Ok(header) => header,
        Err(why) => return Ok(Err(why)),
    };
    if header.identity != files.identity() {
        return Ok(Err("the batch is another database's or thread's"));
    }
    if header.pos.0 != pos || header.durable.0 > pos {
        return Ok(Err("the batch belongs to another position"));
    }
    let end = block_up(pos + header.length as u64);
    if end > limit {
        return Ok(Err("the batch reaches beyond the log files"));
    }
    let bytes = &window.get(files, pos, end, limit)?[..header.length as usize];
    if checksum([bytes]) != stored_checksum(bytes) {
        return Ok(Err("the batch is torn: its checksum is wrong"));
    }
    Ok(Ok((header, bytes)))
}
