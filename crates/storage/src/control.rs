//! The control file: what an instance must know before it can read anything else.
//!
//! ```text
//! slot 0 at byte 0, slot 1 at byte 32768; each:
//! magic u64 | format version u32 | payload length u32 | sequence u64
//! | CRC32C of version, sequence and payload u32 | payload ...
//! ```
//!
//! **Invariants.**
//! - An update goes to one slot, durably, and then to the other, with a sequence of its own each
//!   time. So one whole state survives a crash at any moment. Between updates both slots hold one
//!   state, so damage to one of them loses nothing. (If an update went to one slot only, a decayed
//!   newest slot would bring back the state before. Numbers would be given out twice, and recovery
//!   would start in log that has been overwritten.)
//! - A slot whose writing failed may be torn. The next update goes there first, while the other
//!   slot is whole.
//! - The newest whole slot is the state. An unknown format version is refused, not guessed at.

use crate::lease::ClusterFile;
use crate::{AlignedBuf, Error, File, FileKind, Result, SECTOR, Storage};
use block::{FileId, LogPos, ThreadId};
use seam::Mutex;
use std::sync::{Arc, OnceLock};
use wait::Event;

const MAGIC: u64 = u64::from_le_bytes(*b"BRAIDCF1");
const VERSION: u32 = 2;
const SLOT: usize = 8 * SECTOR;
const HEADER: usize = 28;
const NAME: &str = "control";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThreadState {
    /// The instance stopped cleanly: everything it logged is in the data files.
    Closed = 0,
    /// The thread is in use, or its instance died. An instance that takes it must recover it first.
    Open = 1,
    /// The thread is named here, but its files are not all there yet. Nobody has written anything
    /// to them that counts.
    New = 2,
}

/// One redo thread, and what else belongs to its instance alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadInfo {
    pub thread: ThreadId,
    pub state: ThreadState,
    /// Rises at each opening of the thread.
    pub incarnation: u32,
    pub log_files: u32,
    pub log_file_bytes: u64,
    /// The position where recovery starts reading, with this batch.
    pub checkpoint: LogPos,
    pub checkpoint_batch: u64,
    /// Transaction numbers below this may have been used.
    pub txn_reserved: u64,
    /// Transactions below this are committed: their status is no longer kept.
    pub txn_truncated: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataFileInfo {
    pub id: FileId,
    /// The path, relative to the database directory.
    pub path: String,
}

/// The state of the database as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Control {
    /// A random number, chosen at creation, that stands in every redo batch.
    pub database_id: u64,
    /// The incarnation of the database. It rises when the database's history is rewound.
    pub incarnation: u32,
    /// No instance's clock was ever at or above this.
    pub scn_ceiling: u64,
    /// Object ids below this may have been used.
    pub object_ceiling: u32,
    /// Numbers that the engine keeps at creation, such as the addresses of the dictionary's
    /// segments.
    pub bootstrap: Vec<u64>,
    pub threads: Vec<ThreadInfo>,
    pub files: Vec<DataFileInfo>,
}

impl Control {
    pub fn thread(&self, thread: ThreadId) -> Option<&ThreadInfo> {
        self.threads.iter().find(|t| t.thread == thread)
    }
    pub fn thread_mut(&mut self, thread: ThreadId) -> Option<&mut ThreadInfo> {
        self.threads.iter_mut().find(|t| t.thread == thread)
    }

    fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        w.extend(self.database_id.to_le_bytes());
        w.extend(self.incarnation.to_le_bytes());
        w.extend(self.scn_ceiling.to_le_bytes());
        w.extend(self.object_ceiling.to_le_bytes());
        w.extend((self.bootstrap.len() as u32).to_le_bytes());
        self.bootstrap
            .iter()
            .for_each(|v| w.extend(v.to_le_bytes()));
        w.extend((self.threads.len() as u32).to_le_bytes());
        for t in &self.threads {
            w.extend(t.thread.0.to_le_bytes());
            w.push(t.state as u8);
            w.extend(t.incarnation.to_le_bytes());
            w.extend(t.log_files.to_le_bytes());
            w.extend(t.log_file_bytes.to_le_bytes());
            w.extend(t.checkpoint.0.to_le_bytes());
            w.extend(t.checkpoint_batch.to_le_bytes());
            w.extend(t.txn_reserved.to_le_bytes());
            w.extend(t.txn_truncated.to_le_bytes());
        }
        w.extend((self.files.len() as u32).to_le_bytes());
        for f in &self.files {
            w.extend(f.id.0.to_le_bytes());
            w.extend((f.path.len() as u32).to_le_bytes());
            w.extend(f.path.as_bytes());
        }
        w
    }

    fn decode(bytes: &[u8]) -> Option<Control> {
        let mut r = Reader(bytes);
        let mut c = Control {
            database_id: r.u64()?,
            incarnation: r.u32()?,
            scn_ceiling: r.u64()?,
            object_ceiling: r.u32()?,
            ..Control::default()
        };
        for _ in 0..r.u32()? {
            c.bootstrap.push(r.u64()?);
        }
        for _ in 0..r.u32()? {
            c.threads.push(ThreadInfo {
                thread: ThreadId(r.u16()?),
                state: match r.u8()? {
                    0 => ThreadState::Closed,
                    1 => ThreadState::Open,
                    2 => ThreadState::New,
                    _ => return None,
                },
                incarnation: r.u32()?,
                log_files: r.u32()?,
                log_file_bytes: r.u64()?,
                checkpoint: LogPos(r.u64()?),
                checkpoint_batch: r.u64()?,
                txn_reserved: r.u64()?,
                txn_truncated: r.u64()?,
            });
        }
        for _ in 0..r.u32()? {
            let id = FileId(r.u16()?);
            let len = r.u32()? as usize;
            let path = String::from_utf8(r.take(len)?.to_vec()).ok()?;
            c.files.push(DataFileInfo { id, path });
        }
        r.0.is_empty().then_some(c)
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }
    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }
    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }
    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

/// The open control file.
pub struct ControlFile {
    file: Arc<dyn File>,
    /// The state. It is also locked while a new state is written, so that updates come one after
    /// the other.
    state: Mutex<State>,
    shared: OnceLock<Arc<ClusterFile>>,
}

struct State {
    control: Control,
    /// The newest sequence that was ever written, or tried.
    sequence: u64,
    /// The slot that is written first: the torn one, if one is torn.
    first: u64,
}

impl ControlFile {
    pub fn exists(storage: &dyn Storage) -> Result<bool> {
        storage.exists(NAME)
    }

    pub fn create(storage: &dyn Storage, control: Control) -> Result<ControlFile> {
        let file = storage.create(NAME, FileKind::Control)?;
        file.allocate(2 * SLOT as u64, true, &mut |_| {})?;
        let c = ControlFile {
            file,
            state: Mutex::new(State {
                control: Control::default(),
                sequence: 0,
                first: 0,
            }),
            shared: OnceLock::new(),
        };
        c.update(|to| *to = control)?;
        Ok(c)
    }

    pub fn open(storage: &dyn Storage) -> Result<ControlFile> {
        let file = storage.open(NAME, FileKind::Control)?;
        check(&*file)?;
        let state = read_state(&*file)?;
        Ok(ControlFile {
            file,
            state: Mutex::new(state),
            shared: OnceLock::new(),
        })
    }

    pub fn get(&self) -> Control {
        self.state.lock().control.clone()
    }

    /// Shares the file: from now on other instances may write it as well. So every update is made
    /// under the file's exclusive lock, from what is in the file by then. Before this call, the
    /// process that has it open is the only one.
    pub fn share(&self, cluster: Arc<ClusterFile>) {
        let _between_updates = self.state.lock();
        assert!(
            self.shared.set(cluster).is_ok(),
            "invariant: a control file is shared once"
        );
    }

    /// Reads the state that is in the file now. From then on it is also the state of
    /// [`ControlFile::get`].
    pub fn refresh(&self) -> Result<Control> {
        let mut state = self.state.lock();
        *state = read_state(&*self.file)?;
        Ok(state.control.clone())
    }

    /// Changes the state. The change is durable when this returns. After an error the state in
    /// memory is the old one, and the state in the file may be either.
    pub fn update(&self, change: impl FnOnce(&mut Control)) -> Result<()> {
        let Some(cluster) = self.shared.get() else {
            return self.write_changed(&mut self.state.lock(), change);
        };
        cluster.exclusive(None, || {
            let mut state = self.state.lock();
            *state = read_state(&*self.file)?;
            self.write_changed(&mut state, change)
        })
    }

    fn write_changed(&self, state: &mut State, change: impl FnOnce(&mut Control)) -> Result<()> {
        let mut control = state.control.clone();
        change(&mut control);
        if state.sequence > 0 && control == state.control {
            return Ok(());
        }
        for slot in [state.first, 1 - state.first] {
            // A sequence that was tried is not used again: what stands in the slot with it may be
            // whole.
            state.sequence += 1;
            state.first = slot;
            let sequence = state.sequence;
            wait::during(Event::ControlFileWrite, [1, 0, 0], || {
                self.write(&control, slot, sequence)
            })?;
        }
        // Both slots are whole; the older goes first next time.
        state.first = 1 - state.first;
        state.control = control;
        Ok(())
    }

    fn write(&self, control: &Control, slot: u64, sequence: u64) -> Result<()> {
        let payload = control.encode();
        if HEADER + payload.len() > SLOT {
            return Err(Error::Control(format!(
                "the state has {} bytes, {} fit",
                payload.len(),
                SLOT - HEADER
            )));
        }
        let mut buf = AlignedBuf::zeroed(SLOT);
        buf[..8].copy_from_slice(&MAGIC.to_le_bytes());
        buf[8..12].copy_from_slice(&VERSION.to_le_bytes());
        buf[12..16].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        buf[16..24].copy_from_slice(&sequence.to_le_bytes());
        buf[24..28].copy_from_slice(&checksum(VERSION, sequence, &payload).to_le_bytes());
        buf[HEADER..HEADER + payload.len()].copy_from_slice(&payload);
        self.file.write_at(slot * SLOT as u64, &buf)?;
        self.file.sync()
    }
}

/// Refuses a file that is no control file of a database. It is read only.
pub(crate) fn check(file: &dyn File) -> Result<()> {
    let len = file.len()?;
    if len < 2 * SLOT as u64 {
        return Err(Error::Control(format!(
            "{}: a file of {len} bytes is no control file: no database was made here",
            file.path()
        )));
    }
    read_state(file).map(|_| ())
}

/// The newest whole state in the file, and the slot that is to be written first.
fn read_state(file: &dyn File) -> Result<State> {
    let slots = [0, 1]
        .into_iter()
        .map(|slot| read_slot(file, slot))
        .collect::<Result<Vec<_>>>()?;
    // A torn slot is rewritten first. If both are whole, the older one is.
    let sequences: Vec<_> = slots
        .iter()
        .map(|s| s.as_ref().map_or(0, |(_, sequence)| *sequence))
        .collect();
    let first = u64::from(sequences[1] < sequences[0]);
    let (control, sequence) = slots
        .into_iter()
        .flatten()
        .max_by_key(|(_, sequence)| *sequence)
        .ok_or_else(|| Error::Control(format!("{}: neither copy is whole", file.path())))?;
    Ok(State {
        control,
        sequence,
        first,
    })
}

/// The checksum of a slot. It covers the version: a decayed slot must not pass for one that a newer
/// program wrote.
fn checksum(version: u32, sequence: u64, payload: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&version.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, &sequence.to_le_bytes()), payload)
}

/// The state in a slot. None if the slot is torn or was never written. It is an error if another
/// version of the program wrote it.
fn read_slot(file: &dyn File, slot: u64) -> Result<Option<(Control, u64)>> {
    let mut buf = AlignedBuf::zeroed(SLOT);
    wait::during(Event::ControlFileRead, [0; 3], || {
        file.read_at(slot * SLOT as u64, &mut buf)
    })?;
    let mut r = Reader(&buf);
    let parsed = (|| Some((r.u64()?, r.u32()?, r.u32()? as usize, r.u64()?, r.u32()?)))();
    let Some((MAGIC, version, len, sequence, crc)) = parsed else {
        return Ok(None);
    };
    let Some(payload) = buf.get(HEADER..HEADER + len) else {
        return Ok(None);
    };
    // Format 1 did not cover its version.
    let of_format_1 = || crc32c::crc32c_append(crc32c::crc32c(&sequence.to_le_bytes()), payload);
    let whole = crc == checksum(version, sequence, payload) || version == 1 && crc == of_format_1();
    if !whole {
        return Ok(None);
    }
    if version != VERSION {
        return Err(Error::OtherFormat {
            path: file.path().to_string(),
            what: "the control file",
            found: version,
            known: VERSION,
        });
    }
    match Control::decode(payload) {
        Some(control) => Ok(Some((control, sequence))),
        None => Err(Error::Control(
            "the checksum is right but the contents are not understood".to_string(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Faults, SimStorage};

    fn sample() -> Control {
        Control {
            database_id: 77,
            incarnation: 1,
            scn_ceiling: 1 << 30,
            object_ceiling: 16384,
            bootstrap: vec![1, 2, 3],
            threads: vec![ThreadInfo {
                thread: ThreadId(1),
                state: ThreadState::Open,
                incarnation: 3,
                log_files: 4,
                log_file_bytes: 1 << 20,
                checkpoint: LogPos(4096),
                checkpoint_batch: 9,
                txn_reserved: 1000,
                txn_truncated: 10,
            }],
            files: vec![DataFileInfo {
                id: FileId::DATA,
                path: "data/0001.dbf".to_string(),
            }],
        }
    }

    /// Each of two instances changes something of its own. Neither undoes the other's change,
    /// whichever read the file first.
    #[test]
    fn instances_do_not_undo_each_others_updates() {
        let s = SimStorage::new();
        ControlFile::create(&s, sample()).unwrap();
        let open = |client| {
            let s = s.as_client(client);
            let control = ControlFile::open(&s).unwrap();
            control.share(Arc::new(ClusterFile::open(&s).unwrap()));
            control
        };
        let (a, b) = (open(1), open(2));
        for n in 1..=5u32 {
            let raise = |c: &mut Control| c.scn_ceiling += 1;
            a.update(raise).unwrap();
            let draw = |c: &mut Control| c.object_ceiling += 1;
            b.update(draw).unwrap();
            let now = ControlFile::open(&s).unwrap().get();
            assert_eq!(now, b.get());
            assert_ne!(now, a.get(), "not read again yet");
            assert_eq!(now, a.refresh().unwrap());
            assert_eq!(now.scn_ceiling, sample().scn_ceiling + u64::from(n));
            assert_eq!(now.object_ceiling, sample().object_ceiling + n);
        }
    }

    #[test]
    fn it_reads_back() {
        let s = SimStorage::new();
        ControlFile::create(&s, sample()).unwrap();
        assert_eq!(ControlFile::open(&s).unwrap().get(), sample());
    }

    /// Pins the diagram at the head of this file.
    #[test]
    fn the_format_is_pinned() {
        let s = SimStorage::new();
        ControlFile::create(&s, sample()).unwrap();
        let bytes = s.contents(NAME).unwrap();
        assert_eq!(bytes.len(), 2 * 32768);
        for (slot, sequence) in [(0, 1u64), (32768, 2)] {
            let (h, payload) = bytes[slot..slot + 32768].split_at(28);
            assert_eq!(&h[..8], b"BRAIDCF1");
            assert_eq!(h[8..12], 2u32.to_le_bytes());
            let len = u32::from_le_bytes(h[12..16].try_into().unwrap()) as usize;
            assert_eq!(payload[..len], sample().encode());
            assert_eq!(h[16..24], sequence.to_le_bytes());
            let covered = [&h[8..12], &h[16..24], &payload[..len]].concat();
            assert_eq!(h[24..28], crc32c::crc32c(&covered).to_le_bytes());
            assert!(payload[len..].iter().all(|&b| b == 0));
        }
    }

    #[test]
    fn a_crash_at_any_update_leaves_the_old_state_or_the_new() {
        for seed in 0..200 {
            let s = SimStorage::new();
            let c = ControlFile::create(&s, sample()).unwrap();
            let writes = seed % 9;
            s.set_faults(Faults {
                crash_at_write: Some(s.writes() + writes + 1),
                ..Faults::default()
            });
            let mut done = 0;
            while c.update(|c| c.scn_ceiling += 1).is_ok() {
                done += 1;
            }
            assert_eq!(done, writes / 2, "two writes an update");
            let s = s.after_crash(seed);
            let ceiling = |c: &ControlFile| c.get().scn_ceiling - sample().scn_ceiling;
            let c = ControlFile::open(&s).unwrap();
            let found = ceiling(&c);
            assert!(
                found == done || found == done + 1,
                "seed {seed}: {found} after {done}"
            );
            // A second crash comes in the first update of the second life. The torn slot is the one
            // that is written then.
            s.set_faults(Faults {
                crash_at_write: Some(1),
                ..Faults::default()
            });
            c.update(|c| c.scn_ceiling += 1).unwrap_err();
            let again = ceiling(&ControlFile::open(&s.after_crash(seed + 1)).unwrap());
            assert!(
                again == found || again == found + 1,
                "seed {seed}: {again} after {found}"
            );
        }
    }

    /// Damage to the newest slot does not bring back the state before the last update.
    #[test]
    fn damage_to_either_copy_loses_nothing_and_never_panics() {
        let s = SimStorage::new();
        let c = ControlFile::create(&s, sample()).unwrap();
        c.update(|c| c.scn_ceiling = 5).unwrap();
        for byte in (0..200).flat_map(|b| [b, SLOT + b]) {
            let damaged = s.after_crash(0);
            damaged.flip_bit(NAME, byte, 2);
            let c = ControlFile::open(&damaged).unwrap();
            assert_eq!(c.get().scn_ceiling, 5, "byte {byte}");
        }
        let damaged = s.after_crash(0);
        damaged.flip_bit(NAME, 30, 2);
        damaged.flip_bit(NAME, SLOT + 30, 2);
        assert!(matches!(
            ControlFile::open(&damaged),
            Err(Error::Control(_))
        ));
    }

    /// A database of format 1, whose checksum did not cover the version, is named as such and not
    /// reported as damaged.
    #[test]
    fn another_format_is_named() {
        for version in [1u32, 3] {
            let s = SimStorage::new();
            ControlFile::create(&s, sample()).unwrap();
            let file = s.open(NAME, FileKind::Control).unwrap();
            for slot in [0, SLOT] {
                let mut bytes = AlignedBuf::zeroed(SLOT);
                bytes.copy_from_slice(&s.contents(NAME).unwrap()[slot..slot + SLOT]);
                let payload_bytes = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
                let payload = &bytes[HEADER..HEADER + payload_bytes];
                let sequence = u64::from_le_bytes(bytes[16..24].try_into().unwrap());
                let crc = match version {
                    1 => crc32c::crc32c(&[&bytes[16..24], payload].concat()),
                    newer => checksum(newer, sequence, payload),
                };
                bytes[8..12].copy_from_slice(&version.to_le_bytes());
                bytes[24..28].copy_from_slice(&crc.to_le_bytes());
                file.write_at(slot as u64, &bytes).unwrap();
            }
            let said = ControlFile::open(&s).err().unwrap().to_string();
            let expected = format!("has format {version}, this braid reads {VERSION}");
            assert!(said.contains(&expected), "{said}");
        }
    }

    /// A write that failed may have torn its slot. The other slot, which is whole, must not be the
    /// next that is written.
    #[test]
    fn an_update_after_a_failed_one_spares_the_whole_copy() {
        for seed in 0..40 {
            for failed in 1..=2 {
                let s = SimStorage::new();
                let c = ControlFile::create(&s, sample()).unwrap();
                s.set_faults(Faults {
                    fail_from_sync: Some(s.syncs() + failed),
                    fail_syncs: 1,
                    ..Faults::default()
                });
                c.update(|c| c.scn_ceiling = 5).unwrap_err();
                s.set_faults(Faults {
                    crash_at_write: Some(s.writes() + 1),
                    ..Faults::default()
                });
                c.update(|c| c.scn_ceiling = 6).unwrap_err();
                let found = ControlFile::open(&s.after_crash(seed))
                    .unwrap_or_else(|e| panic!("seed {seed}, failed {failed}: {e}"))
                    .get();
                assert!([1 << 30, 5, 6].contains(&found.scn_ceiling), "seed {seed}");
            }
        }
    }
}
