//! Membership: epochs and incarnations. The holder of the control file's exclusive lock decides
//! them and writes them there, and all follow them.
//!
//! ```text
//! control file, slot 0 at byte 65536, slot 1 at byte 86016; each:
//! magic u64 | format version u32 | payload length u32 | sequence u64
//! | CRC32C of version, sequence and payload u32 | payload:
//! epoch u64 | members u16 | each: instance u16 | incarnation u32 | state u8 | changed in epoch u64
//! | last groups, newest first, twice: batch u64, SCN u64 | address length u8 | address
//! ```
//!
//! **Invariants.**
//! - A decision is read, made and written under the lock. It never rests on what was read before
//!   the lock was taken.
//! - Every change of a member is a new epoch, exactly one above the last. An incarnation never
//!   falls and is never used twice.
//! - A member is declared dead only with a [`Proof`], and joins again only when its blocks have
//!   been recovered. Survivors recover them and leave the member's transactions to its next life.
//!   Or the instance that opens the database first recovers them and closes the member's thread.
//!   The lock of a thread marked open means recovery first, never reopening.
//! - As in the control state, a decision goes to one slot, durably, and then to the other. A
//!   decider that dies writing leaves the old state or the new, and a slot that decays does not
//!   bring back an incarnation that has been used.

use super::{
    COMING_BYTES, EXCLUSIVE_BYTE, Lease, Locked, Proof, STARTING_BYTE, Takeover, locks_of,
};
use crate::{AlignedBuf, Error, File, FileKind, Result, SECTOR, Storage};
use block::{FileId, InstanceId, LAST_GROUPS, LastGroups, Scn};
use seam::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wait::{Event, Waiter};

const MAGIC: u64 = u64::from_le_bytes(*b"BRAIDCM1");
const VERSION: u32 = 3;
/// The byte where this part begins: behind the slots of the control state, with room for those to
/// grow as far as they may.
const REGION: u64 = 64 << 10;
const SLOT: usize = 5 * SECTOR;
const HEADER: usize = 28;
const NAME: &str = "control";
/// The longest address. With the greatest number of instances, each with an address of this length,
/// the state fits a slot.
pub const MAX_ADDRESS_BYTES: usize = 120;
const _: () = assert!(
    HEADER + 10 + FileId::MAX_INSTANCES as usize * (16 + 16 * LAST_GROUPS + MAX_ADDRESS_BYTES)
        <= SLOT
);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// The instance stopped, or was recovered: its thread is closed.
    Down = 0,
    Up = 1,
    /// The instance is proved dead and not yet recovered.
    Dead = 2,
    /// The instance is dead, and survivors have brought every block that its redo names to disk.
    /// Its thread is still open: its next life rolls its transactions back. Until then nobody knows
    /// the state of those, and the instance's undo is not up to date.
    Recovered = 3,
}

/// What is known of one instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberRecord {
    pub instance: InstanceId,
    /// The incarnation of the instance's present or last life, from 1.
    pub incarnation: u32,
    pub state: MemberState,
    pub changed_in_epoch: u64,
    /// The last groups of the instance's thread, and when they took effect, as it was decided at
    /// its last death. The SCNs of the very last may stand nowhere else.
    pub last_groups: LastGroups,
    /// The address of the instance's interconnect.
    pub address: String,
}

/// A life whose blocks survivors have recovered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveredLife {
    pub instance: InstanceId,
    pub incarnation: u32,
    /// The last groups of the life's thread, as in [`MemberRecord`].
    pub last_groups: LastGroups,
}

/// The membership as of an epoch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cluster {
    /// The epoch. Zero before any instance has joined.
    pub epoch: u64,
    /// The members, by instance.
    pub members: Vec<MemberRecord>,
}

impl Cluster {
    pub fn member(&self, instance: InstanceId) -> Option<&MemberRecord> {
        self.members.iter().find(|m| m.instance == instance)
    }

    /// Begins a new epoch in which this member is changed.
    fn change(&mut self, instance: InstanceId, change: impl FnOnce(&mut MemberRecord)) {
        self.epoch += 1;
        let at = match self
            .members
            .binary_search_by_key(&instance.0, |m| m.instance.0)
        {
            Ok(at) => at,
            Err(at) => {
                let new = MemberRecord {
                    instance,
                    incarnation: 0,
                    state: MemberState::Down,
                    changed_in_epoch: 0,
                    last_groups: LastGroups::default(),
                    address: String::new(),
                };
                self.members.insert(at, new);
                at
            }
        };
        let m = &mut self.members[at];
        let before = m.incarnation;
        change(m);
        assert!(
            m.incarnation >= before,
            "invariant: incarnations do not fall"
        );
        m.changed_in_epoch = self.epoch;
    }

    fn expect(&self, instance: InstanceId, incarnation: u32) -> Result<&MemberRecord> {
        match self.member(instance) {
            Some(m) if m.incarnation == incarnation => Ok(m),
            found => Err(Error::Membership(format!(
                "instance {}.{incarnation} is no longer what the control file says: {found:?}",
                instance.0
            ))),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        w.extend(self.epoch.to_le_bytes());
        w.extend((self.members.len() as u16).to_le_bytes());
        for m in &self.members {
            w.extend(m.instance.0.to_le_bytes());
            w.extend(m.incarnation.to_le_bytes());
            w.push(m.state as u8);
            w.extend(m.changed_in_epoch.to_le_bytes());
            let none = (0, Scn::ZERO);
            for (batch, scn) in m
                .last_groups
                .iter()
                .chain([none; LAST_GROUPS])
                .take(LAST_GROUPS)
            {
                w.extend(batch.to_le_bytes());
                w.extend(scn.0.to_le_bytes());
            }
            w.push(m.address.len() as u8);
            w.extend(m.address.as_bytes());
        }
        w
    }

    fn decode(bytes: &[u8]) -> Option<Cluster> {
        let mut rest = bytes;
        let mut take = |n: usize| {
            let (head, tail) = rest.split_at_checked(n)?;
            rest = tail;
            Some(head)
        };
        let mut c = Cluster {
            epoch: u64::from_le_bytes(take(8)?.try_into().ok()?),
            members: Vec::new(),
        };
        for _ in 0..u16::from_le_bytes(take(2)?.try_into().ok()?) {
            let instance = InstanceId(u16::from_le_bytes(take(2)?.try_into().ok()?));
            let incarnation = u32::from_le_bytes(take(4)?.try_into().ok()?);
            let state = match take(1)?[0] {
                0 => MemberState::Down,
                1 => MemberState::Up,
                2 => MemberState::Dead,
                3 => MemberState::Recovered,
                _ => return None,
            };
            let changed_in_epoch = u64::from_le_bytes(take(8)?.try_into().ok()?);
            let mut last_groups = LastGroups::default();
            for _ in 0..LAST_GROUPS {
                let batch = u64::from_le_bytes(take(8)?.try_into().ok()?);
                let scn = Scn(u64::from_le_bytes(take(8)?.try_into().ok()?));
                if batch > 0 {
                    last_groups.note(batch, scn);
                }
            }
            let length = usize::from(take(1)?[0]);
            let address = String::from_utf8(take(length)?.to_vec()).ok()?;
            c.members.push(MemberRecord {
                instance,
                incarnation,
                state,
                changed_in_epoch,
                last_groups,
                address,
            });
        }
        let sorted = c.members.is_sorted_by(|a, b| a.instance.0 < b.instance.0);
        (rest.is_empty() && sorted).then_some(c)
    }
}

/// The contents of the file.
#[derive(Default)]
struct Found {
    cluster: Cluster,
    sequence: u64,
    /// The slot to write first: a torn one, otherwise the older one.
    first: u64,
}

/// The membership part of the control file, open.
pub struct ClusterFile {
    file: Arc<dyn File>,
    /// Orders the threads of this process: the lock of the file does not keep its own holder out.
    turn: Mutex<()>,
}

/// The shortest pause between attempts to get the lock; `LONGEST_PAUSE` is the longest. Nobody
/// tells a waiter on another host that the lock is free.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

impl ClusterFile {
    /// Opens the control file for this part alone, so that its lock is apart from the lease's. A
    /// control file that lacks this part gets it.
    pub fn open(storage: &dyn Storage) -> Result<ClusterFile> {
        let file = storage.open(NAME, FileKind::Control)?;
        locks_of(&*file)?;
        let c = ClusterFile {
            file,
            turn: Mutex::new(()),
        };
        let end = REGION + 2 * SLOT as u64;
        if c.file.len()? < end {
            // Only a control file grows: a file of something else stays as it is.
            crate::control::check(&*c.file)?;
            c.exclusive(None, || {
                if c.file.len()? < end {
                    c.file.allocate(end, true, &mut |_| {})?;
                }
                Ok(())
            })?;
        }
        Ok(c)
    }

    /// The membership as it is now. It may be outdated when it is returned, so nothing is decided
    /// by it.
    pub fn read(&self) -> Result<Cluster> {
        self.newest().map(|found| found.cluster)
    }

    /// Says that this process is about to be an instance, for as long as the result lives. None if
    /// another process says so already. Nothing is decided by it.
    pub fn coming(&self, instance: InstanceId) -> Result<Option<Coming>> {
        let byte = COMING_BYTES + u64::from(instance.0);
        Ok(Locked::try_get(self.file.clone(), byte)?.map(Coming))
    }

    /// Whether a process, not this one, says that it is about to be this instance.
    pub fn is_coming(&self, instance: InstanceId) -> Result<bool> {
        locks_of(&*self.file)?.held_by_other(COMING_BYTES + u64::from(instance.0))
    }

    /// Makes this process the one that opens the database for an instance. None if another process
    /// was that until the deadline. Opening takes as long as recovery does, and is seldom under the
    /// exclusive lock: the members have to decide things meanwhile.
    pub fn starting(&self, deadline: Instant) -> Result<Option<Starting>> {
        let mut held = None;
        try_until(Event::EnqDm, Some(deadline), || {
            held = Locked::try_get(self.file.clone(), STARTING_BYTE)?;
            Ok(held.is_some())
        })?;
        Ok(held.map(Starting))
    }

    /// Whether another opening of the control file has an instance's lock. The lock is seen, not
    /// held: the result is only good to be shown.
    pub fn is_held(&self, instance: InstanceId) -> Result<bool> {
        locks_of(&*self.file)?.held_by_other(super::lease_byte(instance))
    }

    /// Runs `f` under the control file's exclusive lock, for whatever else is decided under it.
    /// Waits for the lock under `enq: CF - contention` until the deadline. A holder that hangs is
    /// evicted like any other instance that hangs.
    pub fn exclusive<R>(
        &self,
        deadline: Option<Instant>,
        f: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let held = self.held(deadline)?;
        let result = f();
        held.release()?;
        result
    }

    /// Takes the control file's exclusive lock, for decisions of several steps. None if it could
    /// not be had by the deadline.
    pub fn lock(&self, deadline: Option<Instant>) -> Result<Option<Exclusive<'_>>> {
        let turn = match deadline {
            None => self.turn.lock(),
            Some(deadline) => match self.turn.try_lock_until(deadline) {
                Some(turn) => turn,
                None => return Ok(None),
            },
        };
        let locks = locks_of(&*self.file)?;
        let got = try_until(Event::EnqCf, deadline, || locks.try_lock(EXCLUSIVE_BYTE))?;
        Ok(got.then(|| Exclusive {
            cluster: self,
            _turn: turn,
            held: true,
        }))
    }

    fn held(&self, deadline: Option<Instant>) -> Result<Exclusive<'_>> {
        self.lock(deadline)?.ok_or_else(|| {
            Error::Membership(
                "another instance has held the control file's exclusive lock for too long".into(),
            )
        })
    }

    fn decided<R>(
        &self,
        deadline: Option<Instant>,
        f: impl FnOnce(&Exclusive<'_>) -> Result<R>,
    ) -> Result<R> {
        let held = self.held(deadline)?;
        let result = f(&held);
        held.release()?;
        result
    }

    /// Takes the exclusive lock for [`Exclusive::join`].
    pub fn join(
        &self,
        lease: &Lease,
        address: &str,
        deadline: Option<Instant>,
    ) -> Result<(MemberRecord, Cluster)> {
        self.decided(deadline, |held| held.join(lease, address))
    }

    /// Takes the exclusive lock for [`Exclusive::leave`].
    pub fn leave(
        &self,
        instance: InstanceId,
        incarnation: u32,
        deadline: Option<Instant>,
    ) -> Result<Cluster> {
        self.decided(deadline, |held| held.leave(instance, incarnation))
    }

    /// Takes the exclusive lock for [`Exclusive::declare_dead`].
    pub fn declare_dead(&self, proofs: &[Proof<'_>], deadline: Option<Instant>) -> Result<Cluster> {
        self.decided(deadline, |held| held.declare_dead(proofs))
    }

    /// Takes the exclusive lock for [`Exclusive::close`].
    pub fn close(&self, recovered: &Takeover, deadline: Option<Instant>) -> Result<Cluster> {
        self.decided(deadline, |held| held.close(recovered))
    }

    fn write(&self, cluster: &Cluster, sequence: u64, slot: u64) -> Result<()> {
        let payload = cluster.encode();
        let mut buf = AlignedBuf::zeroed(SLOT);
        buf[..8].copy_from_slice(&MAGIC.to_le_bytes());
        buf[8..12].copy_from_slice(&VERSION.to_le_bytes());
        buf[12..16].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        buf[16..24].copy_from_slice(&sequence.to_le_bytes());
        buf[24..HEADER].copy_from_slice(&checksum(VERSION, sequence, &payload).to_le_bytes());
        buf[HEADER..HEADER + payload.len()].copy_from_slice(&payload);
        let at = REGION + slot * SLOT as u64;
        wait::during(Event::ControlFileWrite, [1, 0, 0], || {
            self.file.write_at(at, &buf)?;
            self.file.sync()
        })
    }

    /// The newest whole state. It is empty if there never was any.
    fn newest(&self) -> Result<Found> {
        let mut found = Found::default();
        for slot in 0..2u64 {
            let mut buf = AlignedBuf::zeroed(SLOT);
            wait::during(Event::ControlFileRead, [0; 3], || {
                self.file.read_at(REGION + slot * SLOT as u64, &mut buf)
            })?;
            if let Some((cluster, sequence)) = parse(&buf, self.file.path())?
                && sequence > found.sequence
            {
                found = Found {
                    cluster,
                    sequence,
                    first: 1 - slot,
                };
            }
        }
        Ok(found)
    }
}

/// Tries until it succeeds, or until the deadline has passed.
fn try_until(
    event: Event,
    deadline: Option<Instant>,
    mut get: impl FnMut() -> Result<bool>,
) -> Result<bool> {
    let mut pause = FIRST_PAUSE;
    let waiter = Waiter::new();
    while !get()? {
        let now = seam::now();
        if deadline.is_some_and(|d| now >= d) {
            return Ok(false);
        }
        let until = deadline.map_or(now + pause, |d| d.min(now + pause));
        waiter.wait_through(event, [0; 3], Some(until));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Ok(true)
}

/// The announcement of [`ClusterFile::coming`], for as long as it lives.
#[expect(dead_code, reason = "held for its drop")]
pub struct Coming(Locked);

/// The right of [`ClusterFile::starting`], for as long as it lives.
#[expect(dead_code, reason = "held for its drop")]
pub struct Starting(Locked);

/// The control file's exclusive lock, held until dropped. What several instances decide is read,
/// decided and written under it.
pub struct Exclusive<'a> {
    cluster: &'a ClusterFile,
    _turn: MutexGuard<'a, ()>,
    held: bool,
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        if self.held
            && let Some(locks) = self.cluster.file.locks()
        {
            // If the lock cannot be let go, the closing of the file does it.
            let _ = locks.unlock(EXCLUSIVE_BYTE);
        }
    }
}

impl Exclusive<'_> {
    /// Lets the lock go. It is an error if the lock was lost meanwhile.
    pub fn release(mut self) -> Result<()> {
        self.held = false;
        locks_of(&*self.cluster.file)?.unlock(EXCLUSIVE_BYTE)
    }

    /// The membership, which stays as it is for as long as the lock is held.
    pub fn read(&self) -> Result<Cluster> {
        self.cluster.read()
    }

    /// Makes the instance that has this lease a member, in a new life and a new epoch. Its former
    /// life must have been closed, or recovered.
    pub fn join(&self, lease: &Lease, address: &str) -> Result<(MemberRecord, Cluster)> {
        let instance = lease.instance();
        if address.len() > MAX_ADDRESS_BYTES {
            return Err(Error::Membership(format!(
                "the address has {} bytes, at most {MAX_ADDRESS_BYTES} fit",
                address.len()
            )));
        }
        assert!(
            !lease.paths().is_empty(),
            "invariant: an instance joins with its locks held"
        );
        let cluster = self.decide(|c| {
            if let Some(m) = c.member(instance)
                && !matches!(m.state, MemberState::Down | MemberState::Recovered)
            {
                return Err(Error::Membership(format!(
                    "instance {}.{} was not stopped cleanly: its thread must be recovered before it joins",
                    instance.0, m.incarnation
                )));
            }
            c.change(instance, |m| {
                m.incarnation += 1;
                m.state = MemberState::Up;
                m.address = address.to_string();
            });
            Ok(())
        })?;
        let me = cluster.expect_member(instance)?.clone();
        Ok((me, cluster))
    }

    /// Notes a clean stop of an instance: its thread is closed, and its locks are about to go.
    pub fn leave(&self, instance: InstanceId, incarnation: u32) -> Result<Cluster> {
        self.decide(|c| {
            let m = c.expect(instance, incarnation)?;
            if m.state != MemberState::Up {
                return Err(Error::Membership(format!(
                    "instance {}.{incarnation} has been declared dead",
                    instance.0
                )));
            }
            c.change(instance, |m| m.state = MemberState::Down);
            Ok(())
        })
    }

    /// Declares instances dead, all in one decision. Instances that are dead already stay so,
    /// without a new epoch.
    pub fn declare_dead(&self, proofs: &[Proof<'_>]) -> Result<Cluster> {
        self.decide(|c| {
            for proof in proofs {
                let victim = proof.victim();
                let m = c.expect_member(victim)?;
                if let Proof::Fence(f) = proof
                    && f.incarnation() != m.incarnation
                {
                    return Err(Error::Membership(format!(
                        "instance {}.{} was fenced, but {} lives",
                        victim.0,
                        f.incarnation(),
                        m.incarnation
                    )));
                }
                if m.state == MemberState::Up {
                    c.change(victim, |m| m.state = MemberState::Dead);
                }
            }
            Ok(())
        })
    }

    /// Notes that survivors have recovered the blocks of dead instances, and these last groups of
    /// theirs that survivors heard of. All go into one epoch.
    pub fn recovered(&self, dead: &[RecoveredLife]) -> Result<Cluster> {
        self.decide(|c| {
            for &RecoveredLife {
                instance,
                incarnation,
                last_groups,
            } in dead
            {
                if c.expect(instance, incarnation)?.state != MemberState::Dead {
                    return Err(Error::Membership(format!(
                        "instance {}.{incarnation} is not dead, so its blocks were not recovered",
                        instance.0
                    )));
                }
                c.change(instance, |m| {
                    m.state = MemberState::Recovered;
                    m.last_groups.merge(last_groups);
                });
            }
            Ok(())
        })
    }

    /// Notes that a dead instance's thread has been recovered and closed. Only locks prove the
    /// right to do so: a fenced instance's locks must be free by then, or it could not be started
    /// again anyway.
    pub fn close(&self, recovered: &Takeover) -> Result<Cluster> {
        self.decide(|c| {
            let victim = recovered.victim();
            if !matches!(
                c.expect_member(victim)?.state,
                MemberState::Dead | MemberState::Recovered
            ) {
                return Err(Error::Membership(format!(
                    "instance {} is not dead, so it was not recovered",
                    victim.0
                )));
            }
            c.change(victim, |m| m.state = MemberState::Down);
            Ok(())
        })
    }

    fn decide(&self, f: impl FnOnce(&mut Cluster) -> Result<()>) -> Result<Cluster> {
        let found = self.cluster.newest()?;
        let mut new = found.cluster.clone();
        f(&mut new)?;
        if new != found.cluster {
            assert!(
                new.epoch > found.cluster.epoch,
                "invariant: a change is a new epoch"
            );
            self.cluster.write(&new, found.sequence + 1, found.first)?;
            self.cluster
                .write(&new, found.sequence + 2, 1 - found.first)?;
        }
        Ok(new)
    }
}

impl Cluster {
    fn expect_member(&self, instance: InstanceId) -> Result<&MemberRecord> {
        self.member(instance).ok_or_else(|| {
            Error::Membership(format!("instance {} has never been a member", instance.0))
        })
    }
}

fn checksum(version: u32, sequence: u64, payload: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&version.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &sequence.to_le_bytes());
    crc32c::crc32c_append(crc, payload)
}

/// The state in a slot of the file at `path`. None if it is torn or was never written. It is an
/// error if another version of the program wrote it.
fn parse(slot: &[u8], path: &str) -> Result<Option<(Cluster, u64)>> {
    let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| slot[at + i]));
    let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| slot[at + i]));
    let (version, length, sequence, crc) = (u32_at(8), u32_at(12), u64_at(16), u32_at(24));
    let payload = slot[HEADER..].get(..length as usize);
    let Some(payload) =
        payload.filter(|p| u64_at(0) == MAGIC && crc == checksum(version, sequence, p))
    else {
        return Ok(None);
    };
    if version != VERSION {
        return Err(Error::OtherFormat {
            path: path.to_string(),
            what: "the membership",
            found: version,
            known: VERSION,
        });
    }
    match Cluster::decode(payload) {
        Some(c) => Ok(Some((c, sequence))),
        None => Err(Error::Control(
            "membership: the checksum is right but the contents are not understood".to_string(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_pinned_and_damage_is_noticed() {
        let mut c = Cluster::default();
        c.change(InstanceId(2), |m| {
            m.incarnation = 3;
            m.state = MemberState::Dead;
            m.last_groups.note(7, Scn(8));
            m.last_groups.note(6, Scn(5));
            m.address = "h:1".to_string();
        });
        c.change(InstanceId(1), |m| m.incarnation = 9);
        let bytes = c.encode();
        let pinned = [
            2, 0, 0, 0, 0, 0, 0, 0, 2, 0, // epoch, members
            1, 0, 9, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, // instance 1
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // no last group
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // nor one before it
            0, // no address
            2, 0, 3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, // instance 2
            7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, // its last group
            6, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, // the one before
            3, b'h', b':', b'1',
        ];
        assert_eq!(bytes, pinned);
        assert_eq!(Cluster::decode(&bytes), Some(c));
        for n in 0..bytes.len() {
            assert_eq!(Cluster::decode(&bytes[..n]), None);
        }
        let mut state = pinned;
        state[16] = 4;
        assert_eq!(Cluster::decode(&state), None);
    }

    #[test]
    fn another_format_is_named_with_its_file() {
        let payload = Cluster::default().encode();
        for (found, by) in [(VERSION - 1, "an older"), (VERSION + 1, "a newer")] {
            let mut slot = vec![0; SLOT];
            slot[..8].copy_from_slice(&MAGIC.to_le_bytes());
            slot[8..12].copy_from_slice(&found.to_le_bytes());
            slot[12..16].copy_from_slice(&(payload.len() as u32).to_le_bytes());
            slot[24..HEADER].copy_from_slice(&checksum(found, 0, &payload).to_le_bytes());
            slot[HEADER..HEADER + payload.len()].copy_from_slice(&payload);
            let Err(e @ Error::OtherFormat { .. }) = parse(&slot, "db/control") else {
                panic!("format {found} was read");
            };
            let said = e.to_string();
            let wanted = format!("db/control: the membership has format {found}, ");
            assert!(said.contains(&wanted) && said.contains(by), "{said}");
            // Its version alone does not make a decayed slot one of another program.
            slot[8] ^= 0x40;
            assert!(matches!(parse(&slot, "db/control"), Ok(None)));
        }
    }
}
