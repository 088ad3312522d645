//! A segment as an instance uses it: its extents, and the next block that nobody has used.
//!
//! **Invariants.**
//! - The extents are in the header block and the extent maps that follow it, and all instances add
//!   to them. Questions about them are answered there. Memory holds a hint of which instance has
//!   which extent, and the place in this instance's own last extent, of which nobody else gives out
//!   blocks.
//! - The instance that an extent belongs to gives out the extent's blocks in order, once. The next
//!   extent is made when the last is given out. So of each instance only the last extent can have
//!   blocks that were never formatted. After a restart, or when an instance joins again under its
//!   number, giving out goes on at the end of the formatted blocks. A block that was given out but
//!   not formatted before a crash lies below that end and stays unused. So nobody ever sees a block
//!   unformatted that was formatted once: an instance that uses the block again leaves its contents
//!   until then.
//! - A block that belongs to another object, or is not formatted, is no block of the segment:
//!   extents are not wiped when they change hands. Readers pass it by. In that way they also come
//!   through what another instance has not given out yet.

use crate::Result;
use crate::space::Space;
use block::space::Extent;
use block::{Dba, InstanceId, ObjectId};
use seam::Mutex;
use wait::{Event, Latch, LatchClass};

static SEGMENT: LatchClass = LatchClass {
    name: "segment space",
    event: Event::LatchSpace,
};

/// The size of a segment's next extent in blocks, by how many extents it has: 64 KiB, 1 MiB, 8 MiB,
/// then 64 MiB.
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
    /// The blocks at the start of the first extent that are given out with the segment: its header,
    /// and whatever else has a fixed place.
    fixed: u32,
    state: Latch<State>,
    /// Held, with no latch, while the place in the last extent is looked for or an extent is added.
    growing: Mutex<()>,
}

#[derive(Default)]
struct State {
    /// Whether the place in this instance's last extent is known.
    opened: bool,
    /// The next block that is not given out yet.
    next: Dba,
    left: u32,
    /// The extents as the header last had them, by address. They are a hint.
    owners: Vec<Extent>,
}

impl State {
    fn end(&self) -> Dba {
        self.next.plus(self.left)
    }
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

    /// All extents, whichever instance added them. It is called with no latch held.
    pub fn extents(&self, space: &Space) -> Result<Vec<Extent>> {
        let extents = space.extents(self.object, self.header)?;
        // Extents are only added, so the longer list is the newer.
        if extents.len() > self.state.lock().owners.len() {
            let mut by_address = extents.clone();
            by_address.sort_unstable_by_key(|e| e.first);
            let mut state = self.state.lock();
            if by_address.len() > state.owners.len() {
                state.owners = by_address;
            }
        }
        Ok(extents)
    }

    /// Runs of blocks that may hold rows: the extents without the fixed blocks, and without what
    /// this instance has not given out.
    pub fn used(&self, space: &Space) -> Result<Vec<(Dba, u32)>> {
        self.ensure_open(space)?;
        let extents = self.extents(space)?;
        Ok(self.used_of(extents.iter()))
    }

    /// The runs of [`used`](Segment::used) in extents whose room is this instance's to use, and the
    /// number of extents in all.
    pub fn used_by_us(&self, space: &Space) -> Result<(Vec<(Dba, u32)>, usize)> {
        self.ensure_open(space)?;
        let extents = self.extents(space)?;
        let ours = extents.iter().filter(|e| is_ours(space, e.instance));
        Ok((self.used_of(ours), extents.len()))
    }

    fn used_of<'e>(&self, extents: impl Iterator<Item = &'e Extent>) -> Vec<(Dba, u32)> {
        let state = self.state.lock();
        let runs = extents.map(|e| {
            let skip = if e.first == self.header {
                self.fixed
            } else {
                0
            };
            let unused = if state.left > 0 && e.first.plus(e.blocks) == state.end() {
                state.left
            } else {
                0
            };
            (e.first.plus(skip), e.blocks - skip - unused)
        });
        runs.filter(|r| r.1 > 0).collect()
    }

    /// Whether the block's room is this instance's to use, as far as is known: it is in an extent
    /// of its own, or of an instance that is down. False for a block that is another's, or that
    /// nothing is known of.
    pub fn is_ours(&self, space: &Space, dba: Dba) -> bool {
        if space.members().is_alone() {
            return true;
        }
        let state = self.state.lock();
        let after = state.owners.partition_point(|e| e.first <= dba);
        let Some(extent) = after.checked_sub(1).and_then(|at| state.owners.get(at)) else {
            return false;
        };
        dba < extent.first.plus(extent.blocks) && is_ours(space, extent.instance)
    }

    /// Whether the next block needs another extent.
    pub fn is_exhausted(&self, space: &Space) -> Result<bool> {
        self.ensure_open(space)?;
        Ok(self.state.lock().left == 0)
    }

    /// A block that nobody has used, for the caller to format. It is called with no latch held.
    pub fn next_block(&self, space: &Space) -> Result<Dba> {
        self.ensure_open(space)?;
        loop {
            {
                let mut state = self.state.lock();
                if state.left > 0 {
                    let dba = state.next;
                    state.next = dba.plus(1);
                    state.left -= 1;
                    return Ok(dba);
                }
            }
            self.grow(space)?;
        }
    }

    /// Adds an extent, unless another session has just done so.
    fn grow(&self, space: &Space) -> Result<()> {
        let _one_at_a_time = wait::during(Event::EnqHw, [u64::from(self.object.0), 0, 0], || {
            self.growing.lock()
        });
        if self.state.lock().left > 0 {
            return Ok(());
        }
        let count = self.extents(space)?.len();
        let blocks = extent_blocks(count);
        let (extent, taken) = space.add_extent(self.object, self.header, blocks)?;
        space
            .cache()
            .master_run(self.object, extent.first, extent.blocks);
        let mut state = self.state.lock();
        (state.next, state.left) = (extent.first.plus(taken), extent.blocks - taken);
        let at = state.owners.partition_point(|e| e.first < extent.first);
        if state.owners.get(at) != Some(&extent) {
            state.owners.insert(at, extent);
        }
        Ok(())
    }

    /// Finds the place in this instance's last extent, once.
    fn ensure_open(&self, space: &Space) -> Result<()> {
        if self.state.lock().opened {
            return Ok(());
        }
        let _one_at_a_time = wait::during(Event::EnqHw, [u64::from(self.object.0), 0, 0], || {
            self.growing.lock()
        });
        if self.state.lock().opened {
            return Ok(());
        }
        let extents = self.extents(space)?;
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
        state.opened = true;
        Ok(())
    }

    /// The number of blocks of the extent up to and with the last that is this segment's; `fixed`
    /// at least.
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

/// Whether room in an extent of `owner` is for this instance to use: no other instance that is up
/// uses it.
fn is_ours(space: &Space, owner: InstanceId) -> bool {
    owner == space.instance() || !space.members().is_other_up(owner)
}
