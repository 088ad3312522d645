//! What a session's wait turned out to be, judged by what came and from where.

use super::slot::{How, Waiting};
use super::state::Cause;
use super::timing::BlockCost;
use wait::Event;

/// What the wait for a block that may be used now turned out to be.
pub(super) fn how_it_came(w: &Waiting, cause: &Cause<'_>) -> How {
    match w.remastered {
        true => how_the_block_came(w, cause).named(Event::GcRemaster),
        false => how_the_block_came(w, cause),
    }
}

fn how_the_block_came(w: &Waiting, cause: &Cause<'_>) -> How {
    let Some(from) = cause.from else {
        // Another session of this instance ended the wait.
        return How::local(match w.releasing {
            true => Event::GcBufferBusyRelease,
            false => Event::GcBufferBusyAcquire,
        });
    };
    if w.joined {
        return How::local(Event::GcBufferBusyAcquire);
    }
    let spent = cause.spent.unwrap_or(BlockCost {
        messages: 2,
        // This instance itself granted the block, once the others had given it up.
        busy: true,
        ..BlockCost::default()
    });
    let event = match (cause.block.is_some(), w.copy_would_do) {
        (true, _) => match spent {
            BlockCost {
                congested: true, ..
            } => Event::GcCurrentBlockCongested,
            BlockCost { busy: true, .. } => Event::GcCurrentBlockBusy,
            BlockCost { messages: 3.., .. } => Event::GcCurrentBlock3Way,
            _ => Event::GcCurrentBlock2Way,
        },
        (false, true) => Event::GcCrGrant2Way,
        (false, false) if spent.busy => Event::GcCurrentGrantBusy,
        (false, false) => Event::GcCurrentGrant2Way,
    };
    let object = cause.block.map(|b| b.object());
    How::remote(
        event,
        (from, spent, cause.received_ns),
        object.map(|o| (o, true)),
    )
}

/// What the wait for a copy turned out to be.
pub(super) fn copy_came(cause: &Cause<'_>, joined: bool) -> How {
    let (Some(from), Some(spent), false) = (cause.from, cause.spent, joined) else {
        return How::local(Event::GcBufferBusyAcquire);
    };
    let event = match spent {
        BlockCost {
            congested: true, ..
        } => Event::GcCrBlockCongested,
        BlockCost { busy: true, .. } => Event::GcCrBlockBusy,
        BlockCost { messages: 3.., .. } => Event::GcCrBlock3Way,
        _ => Event::GcCrBlock2Way,
    };
    let object = cause.block.map(|b| b.object());
    How::remote(
        event,
        (from, spent, cause.received_ns),
        object.map(|o| (o, false)),
    )
}
