//! Simulated storage for tests. It is deterministic from a seed. It loses what was not synced,
//! tears writes at 512 bytes, fails, and fills up.
//!
//! The model is the harshest that a disk may do. Of the writes to a file since its last sync any
//! subset survives a crash, in any mixture of their 512-byte pieces. Names, lengths and holes are
//! durable when the call returns. A write to a log or control file is durable when it returns.
//!
//! In a simulation of `seam` every call takes time, and other threads go on meanwhile. The lock of
//! the machine is a real one: nobody holds it while a thread may be stopped.

#![allow(
    clippy::disallowed_types,
    reason = "the processes of a simulation have it in common"
)]

use crate::lease::ByteLocks;
use crate::lease::sim::{OpenId, SimLocks};
use crate::{Error, File, FileKind, Result, SECTOR, Storage};
use parking_lot::{Mutex, MutexGuard};
use seam::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What goes wrong, and when. Writes are counted over all files, from 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The only client whose calls fail. A full storage is full for every client.
    pub client: Option<u32>,
    /// The machine loses power during this write.
    pub crash_at_write: Option<u64>,
    /// This write and the `fail_writes` - 1 after it fail with an I/O error and do nothing.
    pub fail_from_write: Option<u64>,
    pub fail_writes: u64,
    /// Whether those writes fail for want of room, as a write over existing data can on a
    /// copy-on-write file system.
    pub fail_for_room: bool,
    /// This read and the `fail_reads` - 1 after it fail with an I/O error. Counted over all files,
    /// from 1.
    pub fail_from_read: Option<u64>,
    pub fail_reads: u64,
    /// This sync and the `fail_syncs` - 1 after it fail: any part of what was written before is
    /// lost for good, whatever later syncs say. Syncs are counted over all files, from 1; writes
    /// that are durable when they return count as well.
    pub fail_from_sync: Option<u64>,
    pub fail_syncs: u64,
    /// Whether a failed sync loses nothing for good: the next one that succeeds makes everything
    /// durable.
    pub syncs_can_be_repeated: bool,
    /// Syncs of files whose names begin with this say that they succeed, and do nothing.
    pub lying_files: Option<&'static str>,
    /// From this write on no file grows.
    pub full_from_write: Option<u64>,
    /// The most bytes that all files together may have.
    pub capacity: Option<u64>,
}

const PIECE: usize = 512;

#[derive(Default)]
struct Machine {
    files: BTreeMap<String, FileState>,
    faults: Faults,
    writes: u64,
    reads: u64,
    syncs: u64,
    crashed: bool,
    locks: SimLocks,
}

#[derive(Default, Clone)]
struct FileState {
    current: Vec<u8>,
    durable: Vec<u8>,
    /// The writes since the last sync, in order.
    pending: Vec<(usize, Vec<u8>)>,
    /// The writes from the first failed sync on, in order: what that sync may have lost, and what
    /// later syncs made durable over it.
    since_failure: Vec<Settled>,
}

/// A write that a sync has dealt with after an earlier sync had failed.
#[derive(Clone)]
struct Settled {
    at: usize,
    data: Vec<u8>,
    durable: bool,
}

impl FileState {
    /// Takes in a write, which is not durable yet.
    fn write(&mut self, at: usize, data: &[u8]) {
        let end = at + data.len();
        self.grow(end);
        self.current[at..end].copy_from_slice(data);
        self.pending.push((at, data.to_vec()));
    }

    /// Makes the file `len` bytes long, if it is shorter. A new file's memory comes as zeroes and
    /// costs nothing until it is written: otherwise a simulation would spend most of its memory on
    /// whole logs.
    fn grow(&mut self, len: usize) {
        for bytes in [&mut self.current, &mut self.durable] {
            match bytes.len() {
                0 => *bytes = vec![0; len],
                old if old < len => bytes.resize(len, 0),
                _ => {}
            }
        }
    }

    fn sync(&mut self) {
        for (at, data) in self.pending.drain(..) {
            match self.since_failure.is_empty() {
                true => self.durable[at..at + data.len()].copy_from_slice(&data),
                false => self.since_failure.push(Settled {
                    at,
                    data,
                    durable: true,
                }),
            }
        }
    }
    fn sync_fails(&mut self) {
        let lost = self.pending.drain(..).map(|(at, data)| Settled {
            at,
            data,
            durable: false,
        });
        self.since_failure.extend(lost);
    }
}

/// A simulated directory. Clones share it.
#[derive(Clone, Default)]
pub struct SimStorage {
    machine: Arc<Mutex<Machine>>,
    /// The client whose openings of files these are.
    client: u32,
}

impl SimStorage {
    pub fn new() -> SimStorage {
        SimStorage::default()
    }

    pub fn set_faults(&self, faults: Faults) {
        self.machine.lock().faults = faults;
    }

    /// The number of writes so far.
    pub fn writes(&self) -> u64 {
        self.machine.lock().writes
    }

    /// The number of reads so far.
    pub fn reads(&self) -> u64 {
        self.machine.lock().reads
    }

    /// The number of syncs so far, those of writes that are durable when they return included.
    pub fn syncs(&self) -> u64 {
        self.machine.lock().syncs
    }

    /// The number of bytes that all files have together.
    pub fn used(&self) -> u64 {
        self.machine.lock().used()
    }

    /// The bytes of one file as they are now. Tests plant damage in them with
    /// [`SimStorage::overwrite`].
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        Some(self.machine.lock().files.get(name)?.current.clone())
    }

    /// Puts bytes into a file, durably, without anybody's knowledge.
    pub fn overwrite(&self, name: &str, at: usize, bytes: &[u8]) {
        let mut machine = self.machine.lock();
        if let Some(f) = machine.files.get_mut(name) {
            f.current[at..at + bytes.len()].copy_from_slice(bytes);
            f.durable[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Whether the requested crash has happened. Every call fails from then on.
    pub fn crashed(&self) -> bool {
        self.machine.lock().crashed
    }

    /// Loses power now: every call fails from here on.
    pub fn power_off(&self) {
        self.machine.lock().crashed = true;
    }

    /// What a machine finds that starts again after losing power now: a new storage without faults.
    /// `seed` decides which unsynced pieces survive.
    pub fn after_crash(&self, seed: u64) -> SimStorage {
        let mut rng = Rng(seed);
        let machine = self.machine.lock();
        let files = machine
            .files
            .iter()
            .map(|(name, f)| (name.clone(), survive(f, &mut rng)))
            .collect();
        SimStorage {
            client: 0,
            machine: Arc::new(Mutex::new(Machine {
                files,
                ..Machine::default()
            })),
        }
    }

    /// Flips one bit of a file, as a decaying disk does.
    pub fn flip_bit(&self, name: &str, byte: usize, bit: u32) {
        let mut machine = self.machine.lock();
        if let Some(f) = machine.files.get_mut(name) {
            f.current[byte] ^= 1 << bit;
            f.durable[byte] ^= 1 << bit;
        }
    }

    /// This storage as another client sees it: another process or host, whose openings of files
    /// live and die apart from the others'. The caller chooses the numbers of clients, each for one
    /// life.
    pub fn as_client(&self, client: u32) -> SimStorage {
        SimStorage {
            machine: self.machine.clone(),
            client,
        }
    }

    /// Kills a client's process between two calls. Its locks are free, unless a write of it is in
    /// flight, and its calls fail.
    pub fn kill_client(&self, client: u32) {
        self.machine.lock().locks.kill(client);
    }

    /// Kills a client's process during its next write, which the device has still to do. The
    /// client's locks stay until [`SimStorage::settle`].
    pub fn kill_client_writing(&self, client: u32) {
        self.machine.lock().locks.die_writing(client);
    }

    /// Lets the device do the write that a killed client left behind; then the client's locks go.
    /// False if there is none.
    pub fn settle(&self, client: u32) -> bool {
        let mut m = self.machine.lock();
        let Some((name, offset, data)) = m.locks.settle(client) else {
            return false;
        };
        if let Some(f) = m.files.get_mut(&name) {
            f.write(offset as usize, &data);
        }
        true
    }

    /// Lets the file server give a client up: its locks are free, and its calls fail with an I/O
    /// error.
    pub fn revoke_client(&self, client: u32) {
        self.machine.lock().locks.revoke(client);
    }

    /// Lets a lock vanish without telling anybody. False if nobody had it.
    pub fn lose_lock(&self, name: &str, byte: u64) -> bool {
        self.machine.lock().locks.lose(name, byte)
    }

    fn file(&self, name: &str) -> Arc<dyn File> {
        let open = self.machine.lock().locks.open(self.client);
        Arc::new(SimFile {
            machine: self.machine.clone(),
            name: name.to_string(),
            client: self.client,
            open,
        })
    }
}

/// The file after a crash. Every pending write may leave each of its pieces behind or not. Whole
/// writes survive or vanish more often than they tear.
fn survive(f: &FileState, rng: &mut Rng) -> FileState {
    let mut durable = f.durable.clone();
    for Settled {
        at,
        data,
        durable: whole,
    } in &f.since_failure
    {
        match whole {
            true => durable[*at..*at + data.len()].copy_from_slice(data),
            false => leave(&mut durable, *at, data, rng),
        }
    }
    for (at, data) in &f.pending {
        leave(&mut durable, *at, data, rng);
    }
    FileState {
        current: durable.clone(),
        durable,
        ..FileState::default()
    }
}

fn leave(durable: &mut [u8], at: usize, data: &[u8], rng: &mut Rng) {
    let fate = rng.next() % 4;
    for (i, piece) in data.chunks(PIECE).enumerate() {
        let kept = match fate {
            0 => false,
            1 => true,
            _ => rng.next().is_multiple_of(2),
        };
        if kept {
            durable[at + i * PIECE..at + i * PIECE + piece.len()].copy_from_slice(piece);
        }
    }
}

impl Machine {
    fn check(&self) -> Result<()> {
        if self.crashed {
            Err(Error::Crashed)
        } else {
            Ok(())
        }
    }
    fn get(&mut self, name: &str) -> Result<&mut FileState> {
        self.check()?;
        self.files
            .get_mut(name)
            .ok_or_else(|| Error::io("open", name, 0, std::io::ErrorKind::NotFound.into()))
    }
    fn used(&self) -> u64 {
        self.files.values().map(|f| f.current.len() as u64).sum()
    }
    fn has_room(&self, wanted: u64) -> bool {
        let full = self
            .faults
            .full_from_write
            .is_some_and(|n| self.writes >= n);
        let fits = self
            .faults
            .capacity
            .is_none_or(|c| self.used() + wanted <= c);
        wanted == 0 || (fits && !full)
    }
    fn sync(&mut self, client: u32, name: &str) -> Result<()> {
        self.check()?;
        self.syncs += 1;
        if self.faults.lying_files.is_some_and(|f| name.starts_with(f)) {
            return Ok(());
        }
        let (from, count) = (self.faults.fail_from_sync, self.faults.fail_syncs);
        let fails = self.faults.hit(client, from, count, self.syncs);
        let loses = !self.faults.syncs_can_be_repeated;
        let f = self.get(name)?;
        if fails {
            if loses {
                f.sync_fails();
            }
            return Err(Error::sync(name, std::io::Error::other("injected")));
        }
        f.sync();
        Ok(())
    }
}

impl Faults {
    /// Whether call number `n` of a client is one of the `count` calls that fail from `from` on.
    fn hit(&self, client: u32, from: Option<u64>, count: u64, n: u64) -> bool {
        self.client.is_none_or(|c| c == client)
            && from.is_some_and(|from| (from..from.saturating_add(count)).contains(&n))
    }
}

impl Storage for SimStorage {
    fn create(&self, name: &str, _kind: FileKind) -> Result<Arc<dyn File>> {
        let mut m = self.machine.lock();
        m.check()?;
        m.locks.check(self.client, "create", name)?;
        if m.files.contains_key(name) {
            return Err(Error::Exists {
                path: name.to_string(),
            });
        }
        m.files.insert(name.to_string(), FileState::default());
        drop(m);
        self.open(name, _kind)
    }

    fn open(&self, name: &str, kind: FileKind) -> Result<Arc<dyn File>> {
        {
            let mut m = self.machine.lock();
            m.locks.check(self.client, "open", name)?;
            m.get(name)?;
        }
        let inner = self.file(name);
        Ok(if kind == FileKind::Data {
            inner
        } else {
            Arc::new(WriteThrough { inner })
        })
    }

    fn exists(&self, name: &str) -> Result<bool> {
        let m = self.machine.lock();
        m.check()?;
        Ok(m.files.contains_key(name))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut m = self.machine.lock();
        m.locks.check(self.client, "remove", name)?;
        m.get(name)?;
        m.files.remove(name);
        Ok(())
    }

    fn describe(&self) -> String {
        "simulated storage".to_string()
    }
}

/// A file whose writes are durable when they return.
struct WriteThrough {
    inner: Arc<dyn File>,
}

impl File for WriteThrough {
    fn path(&self) -> &str {
        self.inner.path()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        // As in the real storage, it cannot be told whether it was the sync that failed.
        self.inner.write_at(offset, buf).map_err(|e| match e {
            Error::Io { path, source, .. } => Error::Sync { path, source },
            e => e,
        })?;
        self.inner.sync()
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn allocate(&self, len: u64, zeroes: bool, progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.inner.allocate(len, zeroes, progress)
    }
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.punch(offset, len)
    }
    fn locks(&self) -> Option<&dyn ByteLocks> {
        self.inner.locks()
    }
}

struct SimFile {
    machine: Arc<Mutex<Machine>>,
    name: String,
    client: u32,
    open: OpenId,
}

impl SimFile {
    /// Locks the machine for one call of this client. It is an error if the client is no more.
    fn machine(&self, what: &'static str) -> Result<MutexGuard<'_, Machine>> {
        seam::device();
        let m = self.machine.lock();
        m.locks.check(self.client, what, &self.name)?;
        Ok(m)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.machine.lock().locks.close(self.open);
    }
}

impl ByteLocks for SimFile {
    fn try_lock(&self, byte: u64) -> Result<bool> {
        let mut m = self.machine("lock")?;
        m.check()?;
        Ok(m.locks.try_lock(self.open, &self.name, byte))
    }
    fn unlock(&self, byte: u64) -> Result<()> {
        let mut m = self.machine("unlock")?;
        m.locks.unlock(self.open, &self.name, byte);
        Ok(())
    }
    fn held_by_other(&self, byte: u64) -> Result<bool> {
        let m = self.machine("look at the locks of")?;
        Ok(m.locks.held_by_other(self.open, &self.name, byte))
    }
}

fn assert_aligned(offset: u64, buf: &[u8]) {
    assert!(
        offset.is_multiple_of(SECTOR as u64)
            && buf.len().is_multiple_of(SECTOR)
            && (buf.as_ptr() as usize).is_multiple_of(SECTOR),
        "invariant: direct I/O is aligned"
    );
}

impl File for SimFile {
    fn path(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        assert_aligned(offset, buf);
        let mut m = self.machine("read")?;
        m.check()?;
        m.reads += 1;
        let (n, faults) = (m.reads, m.faults);
        if faults.hit(self.client, faults.fail_from_read, faults.fail_reads, n) {
            let e = std::io::Error::other("injected");
            return Err(Error::io("read", &self.name, offset, e));
        }
        let f = m.get(&self.name)?;
        let at = offset as usize;
        match f.current.get(at..at + buf.len()) {
            Some(from) => buf.copy_from_slice(from),
            None => {
                return Err(Error::Short {
                    path: self.name.clone(),
                    offset,
                    wanted: buf.len(),
                });
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        assert_aligned(offset, buf);
        let mut m = self.machine("write")?;
        m.check()?;
        m.writes += 1;
        let (n, faults) = (m.writes, m.faults);
        if faults.hit(self.client, faults.fail_from_write, faults.fail_writes, n) {
            let why = match faults.fail_for_room {
                true => std::io::ErrorKind::StorageFull.into(),
                false => std::io::Error::other("injected"),
            };
            return Err(Error::io("write", &self.name, offset, why));
        }
        let end = offset as usize + buf.len();
        let grows = end.saturating_sub(m.get(&self.name)?.current.len()) as u64;
        if !m.has_room(grows) {
            return Err(Error::Full {
                path: self.name.clone(),
                offset,
                wanted: buf.len() as u64,
            });
        }
        if m.locks
            .stays_in_flight(self.client, &self.name, offset, buf)
        {
            return Err(Error::Crashed);
        }
        // In a simulation others sometimes see a write that is half done. The file may also stay
        // like that, if the writer's process is killed now.
        let pieces = (buf.len() / PIECE) as u64;
        let done = PIECE * seam::drawn(4 * pieces).filter(|n| *n < pieces).unwrap_or(0) as usize;
        if done > 0 {
            m.get(&self.name)?.write(offset as usize, &buf[..done]);
            drop(m);
            m = self.machine("write")?;
            m.check()?;
        }
        m.get(&self.name)?
            .write(offset as usize + done, &buf[done..]);
        if faults.crash_at_write == Some(n) {
            m.crashed = true;
            return Err(Error::Crashed);
        }
        drop(m);
        seam::device();
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.machine("sync")?.sync(self.client, &self.name)?;
        seam::device();
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.machine("inspect")?.get(&self.name)?.current.len() as u64)
    }

    fn allocate(&self, len: u64, _zeroes: bool, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let mut m = self.machine("allocate")?;
        let old = m.get(&self.name)?.current.len() as u64;
        let wanted = len.saturating_sub(old);
        if !m.has_room(wanted) {
            return Err(Error::Full {
                path: self.name.clone(),
                offset: old,
                wanted,
            });
        }
        m.get(&self.name)?.grow(len as usize);
        drop(m);
        progress(wanted);
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let mut m = self.machine("punch a hole into")?;
        let f = m.get(&self.name)?;
        f.sync();
        let end = ((offset + len) as usize).min(f.current.len());
        let range = (offset as usize).min(end)..end;
        f.current[range.clone()].fill(0);
        f.durable[range].fill(0);
        Ok(())
    }

    fn locks(&self) -> Option<&dyn ByteLocks> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuf;

    fn filled(v: u8) -> AlignedBuf {
        let mut b = AlignedBuf::zeroed(SECTOR);
        b.fill(v);
        b
    }

    fn image(s: &SimStorage) -> Vec<u8> {
        let mut b = AlignedBuf::zeroed(2 * SECTOR);
        s.open("f", FileKind::Data)
            .unwrap()
            .read_at(0, &mut b)
            .unwrap();
        b.to_vec()
    }

    #[test]
    fn synced_writes_survive_and_others_may_not() {
        let s = SimStorage::new();
        let f = s.create("f", FileKind::Data).unwrap();
        f.allocate(2 * SECTOR as u64, false, &mut |_| {}).unwrap();
        f.write_at(0, &filled(1)).unwrap();
        f.sync().unwrap();
        f.write_at(SECTOR as u64, &filled(2)).unwrap();
        let images: Vec<_> = (0..64).map(|seed| image(&s.after_crash(seed))).collect();
        assert!(images.iter().all(|i| i[..SECTOR].iter().all(|&b| b == 1)));
        let survivors: Vec<usize> = images
            .iter()
            .map(|i| i[SECTOR..].iter().filter(|&&b| b == 2).count())
            .collect();
        assert!(
            survivors.contains(&0) && survivors.contains(&SECTOR),
            "lost and kept"
        );
        assert!(survivors.iter().any(|&n| n > 0 && n < SECTOR), "torn");
    }

    #[test]
    fn the_same_seed_gives_the_same_image() {
        let s = SimStorage::new();
        let f = s.create("f", FileKind::Data).unwrap();
        f.write_at(0, &filled(1)).unwrap();
        f.write_at(SECTOR as u64, &filled(2)).unwrap();
        assert_eq!(image(&s.after_crash(5)), image(&s.after_crash(5)));
    }

    #[test]
    fn a_crash_ends_everything_and_a_full_disk_does_not() {
        let s = SimStorage::new();
        s.set_faults(Faults {
            crash_at_write: Some(2),
            capacity: Some(SECTOR as u64),
            ..Faults::default()
        });
        let f = s.create("f", FileKind::Log).unwrap();
        f.write_at(0, &filled(1)).unwrap();
        assert!(
            f.allocate(2 * SECTOR as u64, false, &mut |_| {})
                .unwrap_err()
                .is_full()
        );
        assert!(matches!(f.write_at(0, &filled(2)), Err(Error::Crashed)));
        assert!(matches!(f.sync(), Err(Error::Crashed)));
        assert!(s.crashed());
    }
}
