//! Takes away what no snapshot needs: deleted rows below the horizon, and room that committed rows
//! do not use.

use super::{Heap, WORTHWHILE_BYTES};
use crate::Result;
use block::Dba;
use block::Op;
use block::heap;
use cache::{Change, RecordHeader};
use wait::{Stat, stat};

impl Heap {
    /// Prunes a block, and remembers it if it has room worth it. It is called with no latch held,
    /// and does nothing to a block that is not the heap's.
    pub fn prune(&self, dba: Dba) -> Result<()> {
        self.free.lock().visited(dba, |stamp| self.fate(stamp));
        let room = self.prune_block(dba)?;
        self.remember_room(dba, room);
        Ok(())
    }

    /// Prunes a block, and returns the bytes that rows can have in it now.
    pub(super) fn prune_block(&self, dba: Dba) -> Result<usize> {
        self.cache().reserve()?;
        let mut guard = self.cache().write(dba)?;
        if !self.is_ours(&guard) {
            return Ok(0);
        }
        let (mut free, mut trim) = (Vec::new(), Vec::new());
        for slot in 0..heap::slots(&guard) {
            let Some(row) = heap::row(&guard, slot)? else {
                continue;
            };
            if row.head.is_deleted() && self.txns.is_below_horizon(row.head.stamp) {
                free.push(slot);
            } else if heap::slack(&guard, slot) > 0 && self.txns.is_committed(row.head.stamp) {
                trim.push(slot);
            }
        }
        if !free.is_empty() || !trim.is_empty() {
            let mut payload = Vec::new();
            heap::prune_payload(&free, &trim, &mut payload);
            let change = Change {
                guard: &mut guard,
                op: Op::HeapPrune,
                object: self.object(),
                payload: &payload,
            };
            self.cache()
                .change(RecordHeader::NONE, &mut [change], |_, _| {});
            stat::add(Stat::RowsPurged, free.len() as u64);
        }
        Ok(heap::free_bytes(&guard))
    }

    /// Remembers a block that has `room` free bytes, if that is worth it and the room is this
    /// instance's to use.
    pub(super) fn remember_room(&self, dba: Dba, room: usize) {
        if room >= WORTHWHILE_BYTES && self.segment.is_ours(&self.space, dba) {
            self.free.lock().push(dba, room);
        }
    }
}
