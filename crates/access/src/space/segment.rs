//! A segment as an instance uses it: its extents, and the next block that nobody has used.
//!
//! **Invariants.**
//! - Blocks of an extent are given out in order, once, by the instance that the extent belongs to; the next extent is made when the last is
//!   given out. So after a restart only the last extent can have blocks that were never formatted, and the end of its formatted blocks is where giving out goes on.
//!   A block that was given out but not formatted before a crash lies below that end: it stays unused, and readers pass it by.
//! - A block that belongs to another object, or is not formatted, is no block of the segment: extents are not wiped when they change hands.

use crate::space::Space;
use crate::{Error, Result};
use block::space::{self, Extent};
use block::{Dba, ObjectId};
use parking_lot::Mutex;
use wait::{Event, Latch, LatchClass};

static SEGMENT: LatchClass = LatchClass {
    name: "segment space",
    event: Event::LatchSpace,
};

/// Size of a segment's next extent in blocks, by how many it has: 64 KiB, 1 MiB, 8 MiB, then 64 MiB.
pub fn extent_blocks(extents: usize) -> u32 {
    match extents {
        0..16 => 8,
        16..79 => 128,
        79..200 => 1024,
        _ => 8192,
    }
}

pub struct Segment {
    object: ObjectId,
    header: Dba,
    /// Blocks at the start of the first extent that are given out with the segment: its header, and whatever else has a fixed place.
    fixed: u32,
    state: Latch<State>,
    /// Held while the extents are read or one is added, with no latch.
    growing: Mutex<()>,
}

#[derive(Default)]
struct State {
    /// `None` until the header was read.
    extents: Option<Vec<Extent>>,
    /// Blocks not given out yet.
    next: Dba,
    left: u32,
}

impl Segment {
    /// The segment whose header is at `header`. Nothing is read before it is needed.
    pub fn new(object: ObjectId, header: Dba, fixed: u32) -> Segment {
        Segment {
            object,
            header,
            fixed,
            state: Latch::new(&SEGMENT, State::default()),
            growing: Mutex::new(()),
        }
    }

    pub fn object(&self) -> ObjectId {
        self.object
    }
    pub fn header(&self) -> Dba {
        self.header
    }

    /// All extents.
    pub fn extents(&self, space: &Space) -> Result<Vec<Extent>> {
        loop {
            if let Some(extents) = &self.state.lock().extents {
                return Ok(extents.clone());
            }
            self.open(space)?;
        }
    }

    /// Runs of blocks that may hold rows: extents without the fixed blocks, and without what was never given out.
    pub fn used(&self, space: &Space) -> Result<Vec<(Dba, u32)>> {
        let extents = self.extents(space)?;
        let state = self.state.lock();
        let runs = extents.iter().map(|e| {
            let skip = if e.first == self.header {
                self.fixed
            } else {
                0
            };
            let unused = if state.left > 0 && e.first.plus(e.blocks) == state.next.plus(state.left)
            {
                state.left
            } else {
                0
            };
            (e.first.plus(skip), e.blocks - skip - unused)
        });
        Ok(runs.filter(|r| r.1 > 0).collect())
    }

    /// Whether the next block needs another extent.
    pub fn is_exhausted(&self, space: &Space) -> Result<bool> {
        self.extents(space)?;
        Ok(self.state.lock().left == 0)
    }

    /// A block that nobody has used, for the caller to format. Called with no latch held.
    pub fn next_block(&self, space: &Space) -> Result<Dba> {
        loop {
            let opened = {
                let mut state = self.state.lock();
                if state.left > 0 {
                    let dba = state.next;
                    state.next = dba.plus(1);
                    state.left -= 1;
                    return Ok(dba);
                }
                state.extents.is_some()
            };
            if opened {
                self.grow(space)?
            } else {
                self.open(space)?
            }
        }
    }

    /// Adds an extent, unless another session just did.
    fn grow(&self, space: &Space) -> Result<()> {
        let _one_at_a_time = wait::during(Event::EnqHw, [u64::from(self.object.0), 0, 0], || {
            self.growing.lock()
        });
        let count = {
            let state = self.state.lock();
            if state.left > 0 {
                return Ok(());
            }
            state.extents.as_ref().map_or(0, Vec::len)
        };
        let extent = space.add_extent(self.object, self.header, extent_blocks(count))?;
        let mut state = self.state.lock();
        (state.next, state.left) = (extent.first, extent.blocks);
        state.extents.get_or_insert_default().push(extent);
        Ok(())
    }

    fn open(&self, space: &Space) -> Result<()> {
        let _one_at_a_time = wait::during(Event::EnqHw, [u64::from(self.object.0), 0, 0], || {
            self.growing.lock()
        });
        if self.state.lock().extents.is_some() {
            return Ok(());
        }
        let extents: Vec<Extent> = {
            let header = space.cache().read(self.header)?;
            if header.object() != self.object {
                return Err(Error::WrongSegment {
                    header: self.header,
                    object: self.object,
                });
            }
            space::extents(&header).collect()
        };
        let mut end = (Dba::NONE, 0);
        if let Some(last) = extents
            .iter()
            .rev()
            .find(|e| e.instance == space.instance())
        {
            let fixed = if last.first == self.header {
                self.fixed
            } else {
                0
            };
            let used = self.formatted(space, *last, fixed)?;
            end = (last.first.plus(used), last.blocks - used);
        }
        let mut state = self.state.lock();
        (state.next, state.left) = end;
        state.extents = Some(extents);
        Ok(())
    }

    /// Blocks of the extent up to and with the last that is this segment's; `fixed` at least.
    fn formatted(&self, space: &Space, extent: Extent, fixed: u32) -> Result<u32> {
        let mut used = fixed;
        for i in fixed..extent.blocks {
            if i % 64 == 0 {
                space
                    .cache()
                    .prefetch(extent.first.plus(i), 64.min(extent.blocks - i));
            }
            let block = space.cache().read(extent.first.plus(i))?;
            if !block.is_unformatted() && block.object() == self.object {
                used = i + 1;
            }
        }
        Ok(used)
    }
}
