//! Storage in a directory of the operating system, by direct I/O.
//!
//! Shared storage is correct only with direct I/O: a page cache would go stale when another host
//! writes. Where the filesystem refuses direct I/O (tmpfs), files are opened without it, and
//! [`OsStorage::direct`] says so.

use crate::lease::{self, ByteLocks};
use crate::{Error, File, FileKind, Result, SECTOR, Storage};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::retry_on_intr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of bytes written at once when a file is filled with zeros.
const ZERO_CHUNK: usize = 4 << 20;

pub struct OsStorage {
    root: PathBuf,
    direct: AtomicBool,
}

impl OsStorage {
    /// Opens a storage in `root`, which is created if it does not exist.
    pub fn new(root: &Path) -> Result<OsStorage> {
        create_directories(root)?;
        Ok(OsStorage {
            root: root.to_path_buf(),
            direct: AtomicBool::new(true),
        })
    }

    /// Whether direct I/O is used. False once the filesystem has refused it.
    pub fn direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    fn open_with(&self, name: &str, kind: FileKind, create: bool) -> Result<Arc<dyn File>> {
        let path = self.root.join(name);
        let shown = path.display().to_string();
        let mut flags = OFlags::RDWR | OFlags::CLOEXEC;
        if create {
            flags |= OFlags::CREATE | OFlags::EXCL;
        }
        if kind != FileKind::Data {
            flags |= OFlags::DSYNC;
        }
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = match rustix::fs::open(&path, flags | OFlags::DIRECT, mode) {
            Err(rustix::io::Errno::INVAL) => {
                self.direct.store(false, Ordering::Relaxed);
                // A refused `O_DIRECT` may have created the file already.
                rustix::fs::open(&path, flags - OFlags::EXCL, mode)
            }
            other => other,
        }
        .map_err(|e| match e {
            rustix::io::Errno::EXIST => Error::Exists {
                path: shown.clone(),
            },
            e => Error::io(if create { "create" } else { "open" }, &shown, 0, e.into()),
        })?;
        Ok(Arc::new(OsFile {
            path: shown,
            file: fd.into(),
            write_through: kind != FileKind::Data,
        }))
    }
}

/// Makes the names in a directory durable.
fn sync_directory(dir: &Path) -> Result<()> {
    let shown = dir.display().to_string();
    let open = fs::File::open(dir).map_err(|e| Error::io("open directory", &shown, 0, e))?;
    open.sync_all().map_err(|e| Error::sync(&shown, e))
}

/// The directory that `path` is in.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    }
}

/// Makes a directory and the missing ones above it, each with its name durable: a file is no safer
/// than the path to it.
fn create_directories(dir: &Path) -> Result<()> {
    match fs::create_dir(dir) {
        Ok(()) => sync_directory(parent(dir)),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound && parent(dir) != dir => {
            create_directories(parent(dir))?;
            create_directories(dir)
        }
        Err(e) => Err(Error::io(
            "create directory",
            &dir.display().to_string(),
            0,
            e,
        )),
    }
}

impl Storage for OsStorage {
    fn create(&self, name: &str, kind: FileKind) -> Result<Arc<dyn File>> {
        let path = self.root.join(name);
        create_directories(parent(&path))?;
        let file = self.open_with(name, kind, true)?;
        sync_directory(parent(&path))?;
        Ok(file)
    }

    fn open(&self, name: &str, kind: FileKind) -> Result<Arc<dyn File>> {
        self.open_with(name, kind, false)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        let path = self.root.join(name);
        path.try_exists()
            .map_err(|e| Error::io("look for", &path.display().to_string(), 0, e))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.root.join(name);
        fs::remove_file(&path)
            .map_err(|e| Error::io("remove", &path.display().to_string(), 0, e))?;
        sync_directory(parent(&path))
    }

    fn describe(&self) -> String {
        self.root.display().to_string()
    }
}

struct OsFile {
    path: String,
    file: fs::File,
    /// Whether each write is durable when it returns. A write that fails may then be one whose sync
    /// has failed.
    write_through: bool,
}

impl OsFile {
    fn err(&self, what: &'static str, offset: u64, e: io::Error) -> Error {
        Error::io(what, &self.path, offset, e)
    }

    fn write_zeros(&self, from: u64, to: u64, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let zeros = crate::AlignedBuf::zeroed(ZERO_CHUNK);
        let mut at = from;
        while at < to {
            let n = ((to - at) as usize).min(ZERO_CHUNK);
            self.write_at(at, &zeros[..n])?;
            at += n as u64;
            progress(at - from);
        }
        Ok(())
    }

    /// Writes zeros at the end of a file, or leaves the file as it was: if there is not enough
    /// space, the space goes back to others.
    fn write_zeros_or_nothing(
        &self,
        from: u64,
        to: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        self.write_zeros(from, to, progress).inspect_err(|_| {
            let _ = self.file.set_len(from);
        })
    }
}

/// The whole sectors of what is done, so that the rest of a short transfer is aligned as well.
fn whole(done: usize) -> usize {
    done - done % SECTOR
}

fn assert_aligned(offset: u64, buf: &[u8]) {
    assert!(
        offset.is_multiple_of(SECTOR as u64)
            && buf.len().is_multiple_of(SECTOR)
            && (buf.as_ptr() as usize).is_multiple_of(SECTOR),
        "invariant: direct I/O is aligned"
    );
}

impl File for OsFile {
    fn path(&self) -> &str {
        &self.path
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        assert_aligned(offset, buf);
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let n = retry_on_intr(|| rustix::io::pread(&self.file, &mut buf[done..], at))
                .map_err(|e| self.err("read", at, e.into()))?;
            // Part of the file's last sector may be there: that is short, too.
            match whole(n) {
                0 => {
                    return Err(Error::Short {
                        path: self.path.clone(),
                        offset,
                        wanted: buf.len(),
                    });
                }
                n => done += n,
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        assert_aligned(offset, buf);
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let n = retry_on_intr(|| rustix::io::pwrite(&self.file, &buf[done..], at)).map_err(
                |e| match self.err("write", at, e.into()) {
                    Error::Io { source, .. } if self.write_through => Error::Sync {
                        path: self.path.clone(),
                        source,
                    },
                    e => e,
                },
            )?;
            match whole(n) {
                // Less than a sector was written: the device is at its end, and the next try would
                // say so.
                0 => return Err(self.err("write", at, io::ErrorKind::WriteZero.into())),
                n => done += n,
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        retry_on_intr(|| rustix::fs::fdatasync(&self.file))
            .map_err(|e| Error::sync(&self.path, e.into()))
    }

    fn len(&self) -> Result<u64> {
        Ok(self
            .file
            .metadata()
            .map_err(|e| self.err("inspect", 0, e))?
            .len())
    }

    fn allocate(&self, len: u64, zeroes: bool, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let old = self.len()?;
        if len <= old {
            return Ok(());
        }
        let grow = || rustix::fs::fallocate(&self.file, FallocateFlags::empty(), old, len - old);
        use rustix::io::Errno;
        match retry_on_intr(grow) {
            Ok(()) => {}
            Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {
                // Some filesystems keep what they got. It is given back so that others may have it.
                let _ = self.file.set_len(old);
                return Err(Error::Full {
                    path: self.path.clone(),
                    offset: old,
                    wanted: len - old,
                });
            }
            Err(Errno::OPNOTSUPP) => self.write_zeros_or_nothing(old, len, progress)?,
            Err(e) => return Err(self.err("allocate", old, e.into())),
        }
        if zeroes {
            self.write_zeros_or_nothing(old, len, progress)?;
        }
        retry_on_intr(|| rustix::fs::fsync(&self.file))
            .map_err(|e| Error::sync(&self.path, e.into()))
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry_on_intr(|| rustix::fs::fallocate(&self.file, flags, offset, len)) {
            // If holes cannot be made, the space stays taken and nothing else happens.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(e) => Err(self.err("punch a hole into", offset, e.into())),
        }
    }

    fn locks(&self) -> Option<&dyn ByteLocks> {
        Some(self)
    }
}

impl ByteLocks for OsFile {
    fn try_lock(&self, byte: u64) -> Result<bool> {
        lease::os::try_lock(self.file.as_fd(), byte).map_err(|e| self.err("lock", byte, e))
    }
    fn unlock(&self, byte: u64) -> Result<()> {
        lease::os::unlock(self.file.as_fd(), byte).map_err(|e| self.err("unlock", byte, e))
    }
    fn held_by_other(&self, byte: u64) -> Result<bool> {
        lease::os::held_by_other(self.file.as_fd(), byte)
            .map_err(|e| self.err("look at the locks of", byte, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuf;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("braid-storage-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn a_file_grows_reads_back_and_is_punched() {
        let root = scratch("os");
        let s = OsStorage::new(&root).unwrap();
        let f = s.create("data/f", FileKind::Data).unwrap();
        assert!(matches!(
            s.create("data/f", FileKind::Data),
            Err(Error::Exists { .. })
        ));
        f.allocate(1 << 20, true, &mut |_| {}).unwrap();
        assert_eq!(f.len().unwrap(), 1 << 20);
        let mut b = AlignedBuf::zeroed(2 * SECTOR);
        b.fill(7);
        f.write_at(SECTOR as u64, &b).unwrap();
        f.sync().unwrap();
        let mut r = AlignedBuf::zeroed(2 * SECTOR);
        s.open("data/f", FileKind::Log)
            .unwrap()
            .read_at(SECTOR as u64, &mut r)
            .unwrap();
        assert!(r.iter().all(|&b| b == 7));
        f.punch(SECTOR as u64, SECTOR as u64).unwrap();
        f.read_at(SECTOR as u64, &mut r).unwrap();
        assert!(r[..SECTOR].iter().all(|&b| b == 0) && r[SECTOR] == 7);
        assert!(matches!(
            f.read_at(1 << 20, &mut r),
            Err(Error::Short { .. })
        ));
        fs::remove_dir_all(root).unwrap();
    }
}
