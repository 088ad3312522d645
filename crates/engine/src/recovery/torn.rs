//! Torn blocks: brings home, from the double-write files, the blocks that a crash cut off in the
//! middle of writing.

use super::{Apply, HeldFiles};
use crate::Result;
use crate::files::{double_write, status_double_write};
use storage::{DoubleWrite, restore_all};

/// The double-write files of an instance.
pub(super) struct DoubleWrites {
    pub of_blocks: DoubleWrite,
    /// The double-write file of the instance's transaction status.
    pub of_status: DoubleWrite,
}

impl DoubleWrites {
    fn open(of: &HeldFiles<'_>) -> Result<DoubleWrites> {
        let storage = &*of.places.storage;
        Ok(DoubleWrites {
            of_blocks: DoubleWrite::open(storage, &double_write(of.instance))?,
            of_status: DoubleWrite::open(storage, &status_double_write(of.instance))?,
        })
    }

    fn both(&mut self) -> [&mut DoubleWrite; 2] {
        [&mut self.of_blocks, &mut self.of_status]
    }
}

/// Brings home the torn ones of the blocks that are to be recovered, from the double-write files of
/// all dead instances. Returns this instance's own files. A thread that was closed left nothing
/// torn.
pub(super) fn bring_home(own: &HeldFiles<'_>, others: &[HeldFiles<'_>]) -> Result<DoubleWrites> {
    let mut of_own = DoubleWrites::open(own)?;
    let mut of_others = others
        .iter()
        .map(DoubleWrites::open)
        .collect::<Result<Vec<_>>>()?;
    if own.apply != Apply::Nothing {
        let mut all = Vec::from(of_own.both());
        all.extend(of_others.iter_mut().flat_map(DoubleWrites::both));
        restore_all(&all, &own.data_files, |dba| {
            own.apply.takes(dba, own.instance)
        })?;
        sync_files_of_the_dead(own, others)?;
    }
    Ok(of_own)
}

/// Syncs the files of the dead. From here on, what a killed process has written and not synced
/// counts as being on disk.
fn sync_files_of_the_dead(own: &HeldFiles<'_>, others: &[HeldFiles<'_>]) -> Result<()> {
    let is_dead = |k| k == own.instance || others.iter().any(|o| o.instance == k);
    let files = own.data_files.ids().into_iter();
    own.data_files
        .sync(files.filter(|f| f.owner().is_none_or(is_dead)))?;
    Ok(())
}
