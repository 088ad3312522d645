//! Rolling back: decides which layer puts a change back.

use crate::Engine;
use access::heap::{Heap, is_heap_undo, undo_block};
use access::space::UNDO_SEGMENT_CREATE;
use block::{Dba, ObjectId, UndoPtr};
use txn::{HandlerError, Transaction, UndoHandler, UndoRecord};

impl UndoHandler for Engine {
    fn undo(
        &self,
        txn: &mut Transaction,
        record: &UndoRecord,
        at: UndoPtr,
    ) -> Result<(), HandlerError> {
        if is_heap_undo(record.kind) {
            let block = undo_block(record).ok_or("undo of a row is cut short")?;
            if self.is_dropped(record.object, block)? {
                return Ok(());
            }
            let known = self.open_heap(record.object);
            // Undo needs no segment. After a restart nothing says where the segment's header is.
            let heap = match &known {
                Some(heap) => heap,
                None => &Heap::open(
                    self.space.clone(),
                    self.txns.clone(),
                    record.object,
                    Dba::NONE,
                )
                .into(),
            };
            return Ok(heap.undo(txn, record, at)?);
        }
        if access::btree::is_index_undo(record.kind) {
            let header = access::btree::undo_header(&record.payload)
                .ok_or("undo of an index entry is cut short")?;
            if self.is_dropped(record.object, header)? {
                return Ok(());
            }
            let tree = self.tree(record.object, header);
            return Ok(tree.undo(txn, &record.prev, record.kind, &record.payload)?);
        }
        if record.kind == UNDO_SEGMENT_CREATE {
            self.forget(record.object);
            return Ok(self.space.drop_segment(record.object)?);
        }
        Err(format!("undo record {at:?} has the unknown kind {}", record.kind).into())
    }
}

impl Engine {
    /// Whether the block no longer belongs to the object. Transactions that a restart found dead
    /// hold no table locks. So their tables can be dropped, and the space be given to others,
    /// before they are rolled back. Then there is nothing to put back. (If the space goes between
    /// this look and the change, the change fails and is tried again.)
    fn is_dropped(&self, object: ObjectId, block: Dba) -> access::Result<bool> {
        Ok(!self.space.owns(object, block)?)
    }
}
