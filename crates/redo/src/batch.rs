//! The batch: the unit in which redo is written, and its header. Byte diagram in `README.md`.
//!
//! Behind a batch's records stands *evidence*: groups of other threads that not every instance was
//! known to have heard of and that the records may rest on, with the SCNs at which they took
//! effect. If all instances die that heard of such a group, what rests on the group says when it
//! took effect (`fusion`, rule V6).
//!
//! Invariants:
//! - A batch starts on a fresh log block and is padded with zeros to the end of its last one.
//! - Everything in it is covered by one CRC32C, so that a batch torn anywhere is recognized.
//! - A batch names its own position. So a batch of an earlier round of the ring, or one written to
//!   the wrong place, is not taken for one that belongs there.

use block::{LAST_GROUPS, LogPos, Scn, ThreadId};

/// The unit of log I/O; every batch starts on such a boundary.
pub const LOG_BLOCK: usize = 4096;
/// Bytes of a batch's header, directly followed by its records.
pub const BATCH_HEADER: usize = 96;
/// The largest batch, header included and padding not. It bounds what a crash can tear, what
/// recovery holds in memory, and the time for which a commit may stand behind a bulk load's write
/// (about a millisecond).
pub const MAX_BATCH: usize = 1 << 20;
/// Version of the batch format.
pub const FORMAT_VERSION: u16 = 4;
/// Bytes of one piece of evidence: thread, batch, SCN.
const EVIDENCE: usize = 18;
/// The most evidence in one batch: the newest groups of each other thread.
pub const MAX_EVIDENCE: usize = block::FileId::MAX_INSTANCES as usize * LAST_GROUPS;
pub(crate) const MAX_EVIDENCE_BYTES: usize = MAX_EVIDENCE * EVIDENCE;
/// The most bytes of a batch's header and records.
pub(crate) const MAX_BATCH_RECORDS: usize = MAX_BATCH - MAX_EVIDENCE_BYTES;

const MAGIC: u32 = u32::from_le_bytes(*b"BRDB");
const CRC_AT: usize = 80;
const LENGTH_AT: usize = 20;
/// The bytes at which e(n-1) and e(n-2) stand in the header.
const PREVIOUS_AT: [usize; LAST_GROUPS] = [48, 72];

const _: () = assert!(CRC_AT + 4 <= BATCH_HEADER && MAX_BATCH.is_multiple_of(LOG_BLOCK));
const _: () = assert!(block::record::MAX_RECORD + BATCH_HEADER <= MAX_BATCH_RECORDS);

/// The number of a batch within its redo thread, from 1. It rises by one from batch to batch,
/// across restarts too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BatchNo(pub u64);

impl BatchNo {
    pub fn next(self) -> BatchNo {
        BatchNo(self.0 + 1)
    }
}

/// Evidence that batch `batch` of thread `thread` took effect at `scn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupEvidence {
    pub thread: ThreadId,
    pub batch: BatchNo,
    pub scn: Scn,
}

impl GroupEvidence {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.thread.0.to_le_bytes());
        out.extend_from_slice(&self.batch.0.to_le_bytes());
        out.extend_from_slice(&self.scn.0.to_le_bytes());
    }

    /// All pieces of evidence in these bytes. What is left over behind the last whole piece is
    /// ignored.
    pub(crate) fn all(bytes: &[u8]) -> impl Iterator<Item = GroupEvidence> {
        bytes.as_chunks::<EVIDENCE>().0.iter().map(|b| {
            let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| b[at + i]));
            GroupEvidence {
                thread: ThreadId(u16::from_le_bytes([b[0], b[1]])),
                batch: BatchNo(u64_at(2)),
                scn: Scn(u64_at(10)),
            }
        })
    }
}

/// The identity of a redo thread, which all its batches carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadIdentity {
    pub database: u64,
    /// Rises when a database is opened anew after an incomplete recovery. Redo from before is not
    /// the database's own then.
    pub database_incarnation: u32,
    pub thread: ThreadId,
}

/// A batch's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub identity: ThreadIdentity,
    /// Rises with every opening of the thread for writing.
    pub incarnation: u32,
    /// The bytes of header, records and evidence, without the padding.
    pub length: u32,
    /// The number of pieces of evidence behind the records.
    pub evidence: u16,
    pub batch: BatchNo,
    /// The position of the batch itself.
    pub pos: LogPos,
    /// The position below which everything was durable when this batch was issued.
    pub durable: LogPos,
    /// The SCNs e(n-1), e(n-2) and so on, at which the commits of the batches before this one took
    /// effect. An SCN is zero if it was not known when this batch was issued; that cannot be so of
    /// the last.
    pub previous: [Scn; LAST_GROUPS],
    /// When the batch was issued, in microseconds since 1970 (UTC). It is for people and for
    /// point-in-time recovery; no decision rests on it.
    pub wall_clock_us: u64,
}

impl BatchHeader {
    /// Where the records end and the evidence begins.
    pub fn records_end(&self) -> usize {
        self.length as usize - usize::from(self.evidence) * EVIDENCE
    }

    /// The groups before this batch of which it says when they took effect, newest first.
    pub fn groups(&self) -> impl Iterator<Item = (u64, Scn)> {
        let batch = self.batch.0;
        let back = self.previous.into_iter().zip(1..);
        let known = back.filter(move |&(scn, back)| scn != Scn::ZERO && back < batch);
        known.map(move |(scn, back)| (batch - back, scn))
    }

    /// Position after the padding: where the next batch starts.
    pub fn next_pos(&self) -> LogPos {
        LogPos(block_up(self.pos.0 + self.length as u64))
    }

    /// Writes everything but the checksum into the first [`BATCH_HEADER`] bytes of `out`.
    pub fn encode(&self, out: &mut [u8]) {
        let h = &mut out[..BATCH_HEADER];
        h.fill(0);
        h[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        h[4..6].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        h[6..8].copy_from_slice(&self.identity.thread.0.to_le_bytes());
        h[8..16].copy_from_slice(&self.identity.database.to_le_bytes());
        h[16..20].copy_from_slice(&self.identity.database_incarnation.to_le_bytes());
        h[LENGTH_AT..24].copy_from_slice(&self.length.to_le_bytes());
        h[24..32].copy_from_slice(&self.batch.0.to_le_bytes());
        h[32..40].copy_from_slice(&self.pos.0.to_le_bytes());
        h[40..48].copy_from_slice(&self.durable.0.to_le_bytes());
        h[56..64].copy_from_slice(&self.wall_clock_us.to_le_bytes());
        h[64..68].copy_from_slice(&self.incarnation.to_le_bytes());
        h[68..70].copy_from_slice(&self.evidence.to_le_bytes());
        for (at, scn) in PREVIOUS_AT.into_iter().zip(self.previous) {
            h[at..at + 8].copy_from_slice(&scn.0.to_le_bytes());
        }
    }

    /// Reads a header, or says why there is none. The checksum is not checked: that takes the whole
    /// batch.
    pub fn decode(bytes: &[u8]) -> Result<BatchHeader, &'static str> {
        let Some(h) = bytes.get(..BATCH_HEADER) else {
            return Err("header is cut short");
        };
        let u16_at = |at: usize| u16::from_le_bytes([h[at], h[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
        let u64_at = |at: usize| u32_at(at) as u64 | (u32_at(at + 4) as u64) << 32;
        if u32_at(0) != MAGIC {
            return Err("no batch starts here");
        }
        if u16_at(4) != FORMAT_VERSION {
            return Err("unknown format version");
        }
        let header = BatchHeader {
            identity: ThreadIdentity {
                database: u64_at(8),
                database_incarnation: u32_at(16),
                thread: ThreadId(u16_at(6)),
            },
            incarnation: u32_at(64),
            length: u32_at(LENGTH_AT),
            evidence: u16_at(68),
            batch: BatchNo(u64_at(24)),
            pos: LogPos(u64_at(32)),
            durable: LogPos(u64_at(40)),
            previous: PREVIOUS_AT.map(|at| Scn(u64_at(at))),
            wall_clock_us: u64_at(56),
        };
        if !(BATCH_HEADER..=MAX_BATCH).contains(&(header.length as usize)) {
            return Err("length is out of range");
        }
        if BATCH_HEADER + usize::from(header.evidence) * EVIDENCE > header.length as usize {
            return Err("there is more evidence than batch");
        }
        // These bounds make an overflow further on impossible, whatever the bytes say.
        if header.pos.0 > u64::MAX / 2
            || header.batch.0 > u64::MAX / 2
            || header.previous.iter().any(|scn| *scn > Scn::MAX)
        {
            return Err("position, number or SCN is out of range");
        }
        Ok(header)
    }
}

/// The CRC32C over a batch given in pieces (its memory may wrap around the end of the log buffer).
/// The checksum field counts as zero. The first piece holds at least the header.
pub fn checksum<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut crc = 0;
    for (i, piece) in pieces.into_iter().enumerate() {
        if i == 0 {
            crc = crc32c::crc32c(&piece[..CRC_AT]);
            crc = crc32c::crc32c_append(crc, &[0; 4]);
            crc = crc32c::crc32c_append(crc, &piece[CRC_AT + 4..]);
        } else {
            crc = crc32c::crc32c_append(crc, piece);
        }
    }
    crc
}

pub fn stored_checksum(header: &[u8]) -> u32 {
    u32::from_le_bytes([
        header[CRC_AT],
        header[CRC_AT + 1],
        header[CRC_AT + 2],
        header[CRC_AT + 3],
    ])
}

pub fn store_checksum(header: &mut [u8], crc: u32) {
    header[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

/// `pos` rounded up to a log block.
pub fn block_up(pos: u64) -> u64 {
    pos.next_multiple_of(LOG_BLOCK as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> BatchHeader {
        BatchHeader {
            identity: ThreadIdentity {
                database: 0x1122,
                database_incarnation: 3,
                thread: ThreadId(4),
            },
            incarnation: 5,
            length: 200,
            evidence: 2,
            batch: BatchNo(6),
            pos: LogPos(7 * 4096),
            durable: LogPos(6 * 4096),
            previous: [Scn(8), Scn(10)],
            wall_clock_us: 9,
        }
    }

    #[test]
    fn the_header_is_pinned() {
        let mut out = [0xffu8; BATCH_HEADER];
        sample().encode(&mut out);
        store_checksum(&mut out, 0xa1b2_c3d4);
        let mut want = [0u8; BATCH_HEADER];
        want[..4].copy_from_slice(b"BRDB");
        for (at, byte) in [
            (4, 4),
            (6, 4),
            (8, 0x22),
            (9, 0x11),
            (16, 3),
            (20, 200),
            (24, 6),
            (33, 0x70),
            (41, 0x60),
        ] {
            want[at] = byte;
        }
        for (at, byte) in [
            (48, 8),
            (56, 9),
            (64, 5),
            (68, 2),
            (72, 10),
            (80, 0xd4),
            (81, 0xc3),
            (82, 0xb2),
            (83, 0xa1),
        ] {
            want[at] = byte;
        }
        assert_eq!(out, want);
        assert_eq!(BatchHeader::decode(&out), Ok(sample()));
        assert_eq!(sample().next_pos(), LogPos(8 * 4096));
    }

    #[test]
    fn the_checksum_covers_all_but_itself() {
        let mut bytes = vec![7u8; 5000];
        sample().encode(&mut bytes);
        let crc = checksum([&bytes[..]]);
        store_checksum(&mut bytes, crc);
        assert_eq!(
            checksum([&bytes[..4096], &bytes[4096..]]),
            stored_checksum(&bytes)
        );
        for at in [0, 30, 79, 84, 96, 4999] {
            bytes[at] ^= 1;
            assert_ne!(checksum([&bytes[..]]), crc, "byte {at}");
            bytes[at] ^= 1;
        }
    }

    #[test]
    fn no_bytes_make_decode_panic() {
        let mut out = [0u8; BATCH_HEADER];
        sample().encode(&mut out);
        for cut in 0..BATCH_HEADER {
            assert!(BatchHeader::decode(&out[..cut]).is_err());
        }
        for at in 0..BATCH_HEADER {
            let mut b = out;
            b[at] = 0xff;
            if let Ok(h) = BatchHeader::decode(&b) {
                let _ = h.next_pos();
            }
        }
    }
}
