//! Prepares the log files of a recovered thread for appending.
//!
//! The end of the thread has been decided. What a crash left behind the end must never be taken for
//! log again, whatever a later crash leaves there. At most [`LAST_GROUPS`] batches were being
//! written, one of which may be whole behind a torn one. So zeros over the length of so many of the
//! longest batches do it.
//!
//! Ranges that only one of two members has are copied to the other. So a batch once found whole
//! stays so when that member is lost.

use crate::batch::{LOG_BLOCK, MAX_BATCH};
use crate::{LogFiles, Result, ThreadEnd};
use block::LAST_GROUPS;
use storage::AlignedBuf;

const COPY_BYTES: u64 = MAX_BATCH as u64;

pub(crate) fn invalidate(files: &LogFiles, end: &ThreadEnd) -> Result<()> {
    for repair in &end.repairs {
        assert!(
            files.members() == 2,
            "invariant: a log has at most two members"
        );
        let source = 1 - repair.member;
        let mut at = repair.from;
        while at < repair.to {
            let mut buf = AlignedBuf::zeroed((repair.to - at).min(COPY_BYTES) as usize);
            files.read(source, at, &mut buf)?;
            files.repair(repair.member, at, &buf)?;
            at += buf.len() as u64;
        }
    }
    let from = end.next.pos.0;
    let limit = end.start.pos.0 + files.geometry().capacity();
    let in_flight = (LAST_GROUPS * MAX_BATCH) as u64;
    let zeros = AlignedBuf::zeroed(limit.min(from + in_flight).saturating_sub(from) as usize);
    debug_assert!(zeros.len().is_multiple_of(LOG_BLOCK));
    (0..files.members()).try_for_each(|member| files.repair(member, from, &zeros))
}
