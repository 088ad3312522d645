//! Temporary files of an instance. They are private and unlogged, and a restart has no use for
//! them.
//!
//! **Invariant.** A file's name belongs to one use at a time, and the file is removed at the end of
//! the use. The next start removes the files that a crash left behind, once it is known that no
//! other process is the same instance.

use crate::{Error, Result};
use seam::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::{File, FileKind, Storage};
use wait::{Event, Stat};

/// The most files at a time. The start of an instance looks for as many names.
const MAX_FILES: u32 = 1024;

/// The place of an instance's temporary files.
pub(crate) struct TempSpace {
    storage: Arc<dyn Storage>,
    instance: u16,
    /// Files in use, by their numbers; nothing while a file is being made.
    used: Mutex<BTreeMap<u32, Option<Arc<dyn File>>>>,
}

impl TempSpace {
    /// Opens the place, and removes the files that an earlier life left.
    pub(crate) fn open(storage: Arc<dyn Storage>, instance: u16) -> Result<Arc<TempSpace>> {
        let space = TempSpace {
            storage,
            instance,
            used: Mutex::default(),
        };
        for number in 0..MAX_FILES {
            let name = space.name(number);
            if space.storage.exists(&name)? {
                space.storage.remove(&name)?;
            }
        }
        Ok(Arc::new(space))
    }

    fn name(&self, number: u32) -> String {
        format!("temp/instance{}_{number}.tmp", self.instance)
    }

    /// Names and bytes of the files in use.
    pub(crate) fn list(&self) -> Result<Vec<(String, u64)>> {
        let used = self.used.lock().clone();
        let files = used.into_iter().filter_map(|(n, file)| Some((n, file?)));
        let told = files.map(|(n, file)| Ok((self.name(n), file.len()?)));
        told.collect()
    }

    pub(crate) fn create(self: &Arc<Self>) -> Result<TempFile> {
        let number = {
            let mut used = self.used.lock();
            let free = (0..MAX_FILES).find(|n| !used.contains_key(n));
            let number = free.ok_or(Error::TooManyTempFiles(MAX_FILES))?;
            used.insert(number, None);
            number
        };
        let created = self.storage.create(&self.name(number), FileKind::Data);
        match created {
            Ok(file) => {
                wait::stat::add(Stat::TempFiles, 1);
                self.used.lock().insert(number, Some(file.clone()));
                Ok(TempFile {
                    file,
                    number,
                    space: self.clone(),
                })
            }
            Err(e) => {
                self.used.lock().remove(&number);
                Err(e.into())
            }
        }
    }
}

pub(crate) struct TempFile {
    pub(crate) file: Arc<dyn File>,
    pub(crate) number: u32,
    space: Arc<TempSpace>,
}

impl TempFile {
    /// Writes bytes of whole sectors.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> storage::Result<()> {
        let p = temp_parameters(self, offset, bytes.len());
        wait::during(Event::DirectPathWriteTemp, p, || {
            self.file.write_at(offset, bytes)
        })?;
        wait::stat::add(Stat::TempBytes, bytes.len() as u64);
        Ok(())
    }
}

/// What a wait for a temporary file is about.
pub(crate) fn temp_parameters(file: &TempFile, offset: u64, len: usize) -> [u64; 3] {
    let block = block::BLOCK_SIZE as u64;
    [u64::from(file.number), offset / block, len as u64 / block]
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let name = self.space.name(self.number);
        match self.space.storage.remove(&name) {
            Ok(()) => _ = self.space.used.lock().remove(&self.number),
            // The name stays taken until the next start removes the file.
            Err(e) => tracing::warn!(
                "temporary file {name} cannot be removed: {e}; the next start removes it"
            ),
        }
    }
}
