//! Redo records and change vectors, as bytes in a batch.
//!
//! ```text
//! record:  length u32 (whole record) | vectors u16 | reserved u16 | SCN u64 | transaction u64
//!          | undo head u64 | vectors ...
//! vector:  block address u64 | object u32 | op u16 | payload length u16 | before u64 | payload ...
//! ```
//!
//! The *undo head* is the address of the transaction's newest undo record once this record is
//! applied. Instance recovery finds in it where to start rolling a transaction back. A rollback
//! step logs the head it leaves behind, so no step is ever undone twice.
//!
//! *before* is the block's SCN before the change. A vector that formats the block has [`FORMAT`]
//! there, and applies to any block with a lower SCN. A vector whose block address is zero is a
//! *marker*: it changes no block (commit, rollback end, list of active transactions).

use crate::{BlockError, Dba, LogPos, ObjectId, Op, Result, Scn, TxnId, UndoPtr};

/// The value of a vector's *before* field for a vector that formats the block.
pub const FORMAT: u64 = u64::MAX;
pub const RECORD_HEADER: usize = 32;
pub const VECTOR_HEADER: usize = 32 - 8;
/// The upper bound of one record's bytes: a formatting of both blocks of a split with full images,
/// plus undo and headers.
pub const MAX_RECORD: usize = 4 * crate::BLOCK_SIZE;

const SCN_AT: usize = 8;

/// Builds one record in a reusable buffer. The log buffer patches the SCN in under its latch
/// ([`set_scn`]).
pub struct RecordWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    vectors: u16,
}

impl<'a> RecordWriter<'a> {
    pub fn new(out: &'a mut Vec<u8>, txn: TxnId, undo_head: UndoPtr) -> RecordWriter<'a> {
        let start = out.len();
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&txn.0.to_le_bytes());
        out.extend_from_slice(&undo_head.0.to_le_bytes());
        RecordWriter {
            out,
            start,
            vectors: 0,
        }
    }

    /// Adds a vector. `before` is None for a vector that formats the block.
    pub fn vector(
        &mut self,
        dba: Dba,
        object: ObjectId,
        op: Op,
        before: Option<Scn>,
        payload: &[u8],
    ) {
        let len =
            u16::try_from(payload.len()).expect("invariant: a payload is smaller than 64 KiB");
        self.out.extend_from_slice(&dba.0.to_le_bytes());
        self.out.extend_from_slice(&object.0.to_le_bytes());
        self.out.extend_from_slice(&(op as u16).to_le_bytes());
        self.out.extend_from_slice(&len.to_le_bytes());
        self.out
            .extend_from_slice(&before.map_or(FORMAT, |scn| scn.0).to_le_bytes());
        self.out.extend_from_slice(payload);
        self.vectors += 1;
    }

    /// Adds a marker, which is a vector of no block.
    pub fn marker(&mut self, op: Op, payload: &[u8]) {
        self.vector(Dba::NONE, ObjectId::NONE, op, Some(Scn::ZERO), payload);
    }

    pub fn finish(self) {
        let len = self.out.len() - self.start;
        assert!(
            len <= MAX_RECORD,
            "invariant: a redo record is at most {MAX_RECORD} bytes, this one has {len}"
        );
        self.out[self.start..self.start + 4].copy_from_slice(&(len as u32).to_le_bytes());
        self.out[self.start + 4..self.start + 6].copy_from_slice(&self.vectors.to_le_bytes());
    }
}

/// Writes the SCN into a finished record.
pub fn set_scn(record: &mut [u8], scn: Scn) {
    record[SCN_AT..SCN_AT + 8].copy_from_slice(&scn.0.to_le_bytes());
}

/// A record that was read back, borrowed from the batch it stands in.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The position where the record starts.
    pub pos: LogPos,
    pub scn: Scn,
    pub txn: TxnId,
    pub undo_head: UndoPtr,
    vectors: u16,
    body: &'a [u8],
}

/// A change vector that was read back.
#[derive(Clone, Copy, Debug)]
pub struct Vector<'a> {
    pub dba: Dba,
    pub object: ObjectId,
    pub op: Op,
    /// The block's SCN before the change. None for a vector that formats the block.
    pub before: Option<Scn>,
    pub payload: &'a [u8],
}

impl<'a> Record<'a> {
    /// Takes the record at the start of `bytes`, and returns it with its length. Every vector has
    /// been checked to lie within the record.
    pub fn parse(bytes: &'a [u8], pos: LogPos) -> Result<(Record<'a>, usize)> {
        let bad = |what: &str| BlockError::corrupt(format!("redo record at {}: {what}", pos.0));
        if bytes.len() < RECORD_HEADER {
            return Err(bad("header is cut short"));
        }
        let len = u32_at(bytes, 0) as usize;
        if !(RECORD_HEADER..=MAX_RECORD).contains(&len) || len > bytes.len() {
            return Err(bad("length is out of range"));
        }
        let record = Record {
            pos,
            scn: Scn(u64_at(bytes, SCN_AT)),
            txn: TxnId(u64_at(bytes, 16)),
            undo_head: UndoPtr(u64_at(bytes, 24)),
            vectors: u16::from_le_bytes([bytes[4], bytes[5]]),
            body: &bytes[RECORD_HEADER..len],
        };
        let mut rest = record.body;
        for _ in 0..record.vectors {
            rest = parse_vector(rest).map_err(|e| bad(&e.to_string()))?.1;
        }
        if !rest.is_empty() {
            return Err(bad("bytes are left after the last vector"));
        }
        Ok((record, len))
    }

    pub fn vectors(&self) -> impl Iterator<Item = Vector<'a>> + use<'a> {
        let mut rest = self.body;
        (0..self.vectors).map(move |_| {
            let (vector, tail) =
                parse_vector(rest).expect("invariant: vectors were checked by parse");
            rest = tail;
            vector
        })
    }
}

fn parse_vector(bytes: &[u8]) -> Result<(Vector<'_>, &[u8])> {
    if bytes.len() < VECTOR_HEADER {
        return Err(BlockError::corrupt("vector header is cut short"));
    }
    let len = u16::from_le_bytes([bytes[14], bytes[15]]) as usize;
    let Some(payload) = bytes[VECTOR_HEADER..].get(..len) else {
        return Err(BlockError::corrupt("vector payload is cut short"));
    };
    let before = u64_at(bytes, 16);
    let vector = Vector {
        dba: Dba(u64_at(bytes, 0)),
        object: ObjectId(u32_at(bytes, 8)),
        op: Op::from_u16(u16::from_le_bytes([bytes[12], bytes[13]]))?,
        before: (before != FORMAT).then_some(Scn(before)),
        payload,
    };
    Ok((vector, &bytes[VECTOR_HEADER + len..]))
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"))
}
fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileId;

    fn sample() -> Vec<u8> {
        let mut out = Vec::new();
        let mut w = RecordWriter::new(&mut out, TxnId(7), UndoPtr(8));
        w.vector(
            Dba::new(FileId(1), 5),
            ObjectId(3),
            Op::HeapInsert,
            Some(Scn(10)),
            b"payload",
        );
        w.marker(Op::Commit, b"");
        w.finish();
        set_scn(&mut out, Scn(11));
        out
    }

    #[test]
    fn a_record_reads_back() {
        let bytes = sample();
        let (r, len) = Record::parse(&bytes, LogPos(0)).unwrap();
        assert_eq!(
            (len, r.scn, r.txn, r.undo_head),
            (bytes.len(), Scn(11), TxnId(7), UndoPtr(8))
        );
        let v: Vec<_> = r.vectors().collect();
        assert_eq!(
            (v[0].before, v[0].payload),
            (Some(Scn(10)), &b"payload"[..])
        );
        assert!(v[1].dba.is_none());
    }

    #[test]
    fn no_damaged_record_panics() {
        let bytes = sample();
        for cut in 0..bytes.len() {
            assert!(Record::parse(&bytes[..cut], LogPos(0)).is_err());
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut b = bytes.clone();
                b[at] ^= 1 << bit;
                if let Ok((r, _)) = Record::parse(&b, LogPos(0)) {
                    r.vectors().for_each(drop);
                }
            }
        }
    }
}
