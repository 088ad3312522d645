//! The log files of a thread: a ring of files of fixed size, addressed by log position, on one or
//! two members.
//!
//! Invariants:
//! - Files are written with zeros in full when they are created. So a later write changes no
//!   metadata of the filesystem and cannot find the disk full.
//! - Position p stands in file `(p / payload) mod files` at byte `LOG_BLOCK + p mod payload`, where
//!   `payload` is the file's size less its first block, which holds the file's header. Batches
//!   cross from file to file.
//! - A member whose write failed is not written again until the thread is opened anew, which
//!   repairs it. The log goes on while one member is left.

use crate::batch::{LOG_BLOCK, ThreadIdentity};
use crate::{Error, Result};
use block::ThreadId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::{AlignedBuf, File, FileKind, Storage};
use wait::Event;

const MAGIC: u64 = u64::from_le_bytes(*b"BRAIDLOG");
const HEADER_BYTES: usize = 44;

/// The size and the number of a thread's log files. The control file keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub files: u32,
    /// The bytes of one file, its header block included.
    pub file_bytes: u64,
}

impl Geometry {
    /// Bytes of log that one file holds.
    pub fn payload(&self) -> u64 {
        self.file_bytes - LOG_BLOCK as u64
    }
    /// Bytes of log that all files hold.
    pub fn capacity(&self) -> u64 {
        self.payload() * self.files as u64
    }
    fn check(&self, thread: ThreadId) -> Result<()> {
        if self.files < 2
            || self.file_bytes < 64 * LOG_BLOCK as u64
            || !self.file_bytes.is_multiple_of(LOG_BLOCK as u64)
        {
            let what = format!(
                "{} files of {} bytes: at least 2 of 256 KiB, in whole blocks",
                self.files, self.file_bytes
            );
            return Err(Error::Files {
                thread: thread.0,
                what,
            });
        }
        Ok(())
    }
}

struct Member {
    files: Vec<Arc<dyn File>>,
    /// False after a failed write. The one thread that leads a flush reads and writes it; it is
    /// atomic for observers.
    written: AtomicBool,
}

/// The log files of one thread.
pub struct LogFiles {
    identity: ThreadIdentity,
    geometry: Geometry,
    members: Vec<Member>,
}

/// The name of a log file below a member's directory. Files are numbered from 1.
fn name(thread: ThreadId, file: u32) -> String {
    format!("redo/thread{}_{}.log", thread.0, file + 1)
}

impl LogFiles {
    /// Names of a thread's files below each member's directory.
    pub fn names(thread: ThreadId, files: u32) -> impl Iterator<Item = String> {
        (0..files).map(move |n| name(thread, n))
    }

    /// Creates the files, on one directory per member. `progress` is told the bytes done.
    pub fn create(
        members: &[Arc<dyn Storage>],
        identity: ThreadIdentity,
        geometry: Geometry,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        geometry.check(identity.thread)?;
        for storage in members {
            for n in 0..geometry.files {
                let file = storage.create(&name(identity.thread, n), FileKind::Log)?;
                file.allocate(geometry.file_bytes, true, progress)?;
                file.write_at(0, &encode_header(identity, geometry, n))?;
                file.sync()?;
            }
        }
        Ok(())
    }

    /// Opens the files and checks that they belong to this thread and have this shape.
    pub fn open(
        members: &[Arc<dyn Storage>],
        identity: ThreadIdentity,
        geometry: Geometry,
    ) -> Result<LogFiles> {
        geometry.check(identity.thread)?;
        assert!(!members.is_empty(), "a redo thread has at least one member");
        let members = members
            .iter()
            .map(|s| open_member(&**s, identity, geometry))
            .collect::<Result<_>>()?;
        Ok(LogFiles {
            identity,
            geometry,
            members,
        })
    }

    pub fn identity(&self) -> ThreadIdentity {
        self.identity
    }
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }
    pub fn members(&self) -> usize {
        self.members.len()
    }
    /// The number of members that are still written.
    pub fn healthy_members(&self) -> usize {
        self.members
            .iter()
            .filter(|m| m.written.load(Ordering::Relaxed))
            .count()
    }

    /// Reads whole log blocks at `pos` from one member. At most [`Geometry::capacity`] bytes.
    pub fn read(&self, member: usize, pos: u64, buf: &mut [u8]) -> Result<()> {
        let p = [self.identity.thread.0 as u64, pos, buf.len() as u64];
        wait::during(Event::LogFileRead, p, || {
            let mut done = 0;
            for (file, offset, len) in self.pieces(pos, buf.len()) {
                self.members[member].files[file].read_at(offset, &mut buf[done..done + len])?;
                done += len;
            }
            Ok(())
        })
    }

    /// Makes durable what can be read. A writer that was killed may not have come to that, and what
    /// others do from now on rests on it.
    pub fn sync(&self) -> Result<()> {
        let mut files = self.members.iter().flat_map(|m| &m.files);
        let p = [self.identity.thread.0 as u64, 0, 0];
        wait::during(Event::LogFileParallelWrite, p, || {
            files.try_for_each(|f| Ok(f.sync()?))
        })
    }

    /// Writes whole log blocks at `pos` to every healthy member. They are durable when it returns.
    /// It fails if no member has them.
    pub(crate) fn write(&self, pos: u64, bufs: &[&[u8]]) -> Result<()> {
        let mut last = None;
        let mut good = 0;
        for member in self
            .members
            .iter()
            .filter(|m| m.written.load(Ordering::Relaxed))
        {
            match self.write_member(member, pos, bufs) {
                Ok(()) => good += 1,
                Err(e) => {
                    member.written.store(false, Ordering::Relaxed);
                    last = Some(e);
                }
            }
        }
        match (good, last) {
            (0, Some(e)) => Err(e),
            (0, None) => Err(Error::WriteFailed("no member is left".to_string())),
            _ => Ok(()),
        }
    }

    fn write_member(&self, member: &Member, pos: u64, bufs: &[&[u8]]) -> Result<()> {
        let mut at = pos;
        for buf in bufs {
            let mut done = 0;
            for (file, offset, len) in self.pieces(at, buf.len()) {
                member.files[file].write_at(offset, &buf[done..done + len])?;
                done += len;
            }
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Writes to one member, whether it is healthy or not: the repair at an opening.
    pub(crate) fn repair(&self, member: usize, pos: u64, buf: &[u8]) -> Result<()> {
        self.write_member(&self.members[member], pos, &[buf])
    }

    /// The places of `[pos, pos + len)`: file, byte in it, number of bytes.
    fn pieces(&self, pos: u64, len: usize) -> impl Iterator<Item = (usize, u64, usize)> + use<> {
        debug_assert!(pos.is_multiple_of(LOG_BLOCK as u64) && len.is_multiple_of(LOG_BLOCK));
        let (payload, files) = (self.geometry.payload(), self.geometry.files as u64);
        let (mut pos, mut left) = (pos, len as u64);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let within = pos % payload;
            let n = left.min(payload - within);
            let piece = (
                (pos / payload % files) as usize,
                LOG_BLOCK as u64 + within,
                n as usize,
            );
            (pos, left) = (pos + n, left - n);
            Some(piece)
        })
    }
}

fn open_member(
    storage: &dyn Storage,
    identity: ThreadIdentity,
    geometry: Geometry,
) -> Result<Member> {
    let mut files = Vec::new();
    for n in 0..geometry.files {
        let file = storage.open(&name(identity.thread, n), FileKind::Log)?;
        let bad = |what: &str| Error::Files {
            thread: identity.thread.0,
            what: format!("{}: {what}", file.path()),
        };
        if file.len()? != geometry.file_bytes {
            return Err(bad("its size is not the one in the control file"));
        }
        let mut header = AlignedBuf::zeroed(LOG_BLOCK);
        file.read_at(0, &mut header)?;
        let version = u16::from_le_bytes([header[18], header[19]]);
        if header[..8] == MAGIC.to_le_bytes() && version != crate::batch::FORMAT_VERSION {
            return Err(Error::Storage(storage::Error::OtherFormat {
                path: file.path().to_string(),
                what: "the redo file",
                found: version.into(),
                known: crate::batch::FORMAT_VERSION.into(),
            }));
        }
        if header[..HEADER_BYTES] != encode_header(identity, geometry, n)[..HEADER_BYTES] {
            return Err(bad("it is not this file of this thread of this database"));
        }
        files.push(file);
    }
    Ok(Member {
        files,
        written: AtomicBool::new(true),
    })
}

/// The header's layout is `magic u64 | database u64 | thread u16 | format version u16 | file number
/// u32 | files u32 | file bytes u64 | reserved | CRC32C u32`.
fn encode_header(identity: ThreadIdentity, geometry: Geometry, n: u32) -> AlignedBuf {
    let mut h = AlignedBuf::zeroed(LOG_BLOCK);
    h[0..8].copy_from_slice(&MAGIC.to_le_bytes());
    h[8..16].copy_from_slice(&identity.database.to_le_bytes());
    h[16..18].copy_from_slice(&identity.thread.0.to_le_bytes());
    h[18..20].copy_from_slice(&crate::batch::FORMAT_VERSION.to_le_bytes());
    h[20..24].copy_from_slice(&n.to_le_bytes());
    h[24..28].copy_from_slice(&geometry.files.to_le_bytes());
    h[28..36].copy_from_slice(&geometry.file_bytes.to_le_bytes());
    let crc = crc32c::crc32c(&h[..HEADER_BYTES - 4]);
    h[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    h
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::SimStorage;

    fn identity() -> ThreadIdentity {
        ThreadIdentity {
            database: 1,
            database_incarnation: 1,
            thread: ThreadId(1),
        }
    }

    #[test]
    fn positions_go_round_the_ring() {
        let geometry = Geometry {
            files: 2,
            file_bytes: 65 * 4096,
        };
        geometry.check(ThreadId(1)).unwrap();
        let members: Vec<Arc<dyn Storage>> = vec![Arc::new(SimStorage::new())];
        LogFiles::create(&members, identity(), geometry, &mut |_| ()).unwrap();
        let files = LogFiles::open(&members, identity(), geometry).unwrap();
        assert_eq!(geometry.capacity(), 128 * 4096);
        let pieces: Vec<_> = files.pieces((128 * 5 + 63) * 4096, 66 * 4096).collect();
        assert_eq!(
            pieces,
            [(0, 64 * 4096, 4096), (1, 4096, 64 * 4096), (0, 4096, 4096)]
        );
        let mut buf = AlignedBuf::zeroed(66 * 4096);
        buf.fill(9);
        files.write((128 * 5 + 63) * 4096, &[&buf]).unwrap();
        let mut back = AlignedBuf::zeroed(66 * 4096);
        files.read(0, (128 * 5 + 63) * 4096, &mut back).unwrap();
        assert!(back[..] == buf[..]);
        assert!(
            LogFiles::open(&members, identity(), geometry).is_ok(),
            "headers of the files are not overwritten"
        );
        let other = Geometry {
            files: 2,
            file_bytes: 64 * 4096,
        };
        assert!(matches!(
            LogFiles::open(&members, identity(), other),
            Err(Error::Files { .. })
        ));
    }

    #[test]
    fn another_format_is_named_and_not_taken_for_an_empty_thread() {
        let geometry = Geometry {
            files: 2,
            file_bytes: 65 * 4096,
        };
        let storage = SimStorage::new();
        let members: Vec<Arc<dyn Storage>> = vec![Arc::new(storage.clone())];
        LogFiles::create(&members, identity(), geometry, &mut |_| ()).unwrap();
        let file = storage
            .open(&name(identity().thread, 0), FileKind::Log)
            .unwrap();
        let mut header = AlignedBuf::zeroed(LOG_BLOCK);
        file.read_at(0, &mut header).unwrap();
        header[18] = 1;
        file.write_at(0, &header).unwrap();
        let Err(e) = LogFiles::open(&members, identity(), geometry) else {
            panic!("a thread of another format was opened");
        };
        assert!(e.to_string().contains("the redo file has format 1"), "{e}");
    }
}
