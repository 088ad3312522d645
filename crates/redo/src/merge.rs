//! Several threads read as one stream of records, in the order of their SCNs.
//!
//! Within a thread SCNs rise with the position, so merging the heads is enough. Two instances may
//! draw the same SCN, but never for one block. So the order of such records does not matter, and
//! the lower thread goes first.

use crate::batch::BATCH_HEADER;
use crate::{BatchNo, RedoReader, Result, ThreadEnd};
use block::record::Record;
use block::{Scn, ThreadId};

/// A record of the merged stream.
#[derive(Clone, Copy, Debug)]
pub struct Merged<'m> {
    pub thread: ThreadId,
    pub batch: BatchNo,
    /// The SCN e(n) at which a commit in the record's batch took effect. None if no header of the
    /// thread says.
    pub group: Option<Scn>,
    pub record: Record<'m>,
}

struct Cursor<'a> {
    reader: RedoReader<'a>,
    /// The byte of the next record in the reader's current batch.
    at: usize,
    /// The SCN of the next record. None at the end of the thread.
    head: Option<Scn>,
}

impl Cursor<'_> {
    /// Finds the record at `at`, or the first one of the next batch that has any.
    fn settle(&mut self) -> Result<()> {
        loop {
            if let Some((record, _)) = self.reader.current().record_at(self.at)? {
                self.head = Some(record.scn);
                return Ok(());
            }
            self.at = BATCH_HEADER;
            if self.reader.next_batch()?.is_none() {
                self.head = None;
                return Ok(());
            }
        }
    }
}

/// The merged stream of several threads (see the module).
pub struct Merge<'a> {
    cursors: Vec<Cursor<'a>>,
    /// The cursor whose record was handed out last and is to be passed.
    taken: Option<(usize, usize)>,
}

impl<'a> Merge<'a> {
    pub fn new(readers: Vec<RedoReader<'a>>) -> Result<Merge<'a>> {
        let mut cursors: Vec<_> = readers
            .into_iter()
            .map(|reader| Cursor {
                reader,
                at: BATCH_HEADER,
                head: None,
            })
            .collect();
        cursors.sort_by_key(|c| c.reader.thread().0);
        for c in &mut cursors {
            c.settle()?;
        }
        Ok(Merge {
            cursors,
            taken: None,
        })
    }

    /// The next record of all threads. None when all have ended.
    pub fn next_record(&mut self) -> Result<Option<Merged<'_>>> {
        if let Some((cursor, len)) = self.taken.take() {
            let c = &mut self.cursors[cursor];
            c.at += len;
            c.settle()?;
        }
        let heads = self
            .cursors
            .iter()
            .enumerate()
            .filter_map(|(i, c)| Some((c.head?, i)));
        let Some((_, cursor)) = heads.min() else {
            return Ok(None);
        };
        let c = &self.cursors[cursor];
        let batch = c.reader.current();
        let (record, len) = batch
            .record_at(c.at)?
            .expect("invariant: a cursor with a head stands on a record");
        self.taken = Some((cursor, len));
        Ok(Some(Merged {
            thread: c.reader.thread(),
            batch: batch.header().batch,
            group: batch.group(),
            record,
        }))
    }

    /// The end of each thread, by thread number. It reads on to the ends.
    pub fn finish(self) -> Result<Vec<(ThreadId, ThreadEnd)>> {
        self.cursors
            .into_iter()
            .map(|c| Ok((c.reader.thread(), c.reader.finish()?)))
            .collect()
    }
}
