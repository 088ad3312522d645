//! Looks for living instances, under the control file's lock, until no dead instance waits to be
//! recovered by living ones.

use super::opening::{LOOK_INTERVAL, Opening};
use crate::cluster::{Contact, list};
use crate::{Error, Result};
use block::{InstanceId, ThreadId};
use std::time::Duration;
use storage::lease::{
    Attempt, ClusterFile, Exclusive, MemberRecord, MemberState, Proof, Starting, Takeover,
};
use storage::{Control, ControlFile, ThreadState};
use wait::{Event, Waiter};

/// How long a former life of this instance may take to end after it was killed, and how often this
/// process looks.
const EXIT_PATIENCE: Duration = Duration::from_secs(2);
const EXIT_INTERVAL: Duration = Duration::from_millis(20);
/// A wait for recovery that takes longer than this is remarkable: the living rarely take so long.
const RECOVERY_TIME: Duration = Duration::from_secs(120);

/// The result of a look under the control file's lock.
enum Looked {
    Found(Box<Found>),
    /// A stand-in in another instance's process lives this instance's life, and has its locks.
    HasStandIn,
    /// A lock of this very instance is held by another process. That is this instance's former
    /// life, which was killed a moment ago, or another process that runs this instance.
    InUse(String),
}

/// The instances that a look under the control file's lock found.
pub(super) struct Found {
    pub state: Control,
    pub members: storage::lease::Cluster,
    pub own: Takeover,
    /// The locks of other instances that were not stopped cleanly.
    pub dead: Vec<Takeover>,
    pub alive: Vec<InstanceId>,
}

impl Found {
    fn suspect(state: &Control, members: &storage::lease::Cluster, k: InstanceId) -> bool {
        let thread = state.thread(ThreadId(k.0));
        let member = members.member(k);
        thread.is_some_and(|t| t.state == ThreadState::Open)
            || member.is_some_and(|m| m.state != MemberState::Down)
    }

    pub fn record(&self, k: InstanceId) -> Option<MemberState> {
        self.members.member(k).map(|m| m.state)
    }

    /// Proofs of death for those dead instances that the control file still counts as members.
    pub fn undeclared(&self) -> Vec<&Takeover> {
        std::iter::once(&self.own)
            .chain(&self.dead)
            .filter(|t| self.record(t.victim()) == Some(MemberState::Up))
            .collect()
    }

    /// The instances whose blocks the living have to recover.
    pub fn to_be_recovered(&self) -> Vec<InstanceId> {
        self.members
            .members
            .iter()
            .filter(|m| m.state == MemberState::Dead)
            .map(|m| m.instance)
            .chain(self.undeclared().iter().map(|t| t.victim()))
            .collect()
    }

    pub fn takeover(&self, k: InstanceId) -> Option<&Takeover> {
        std::iter::once(&self.own)
            .chain(&self.dead)
            .find(|t| t.victim() == k)
    }

    pub fn was_member(&self, k: InstanceId) -> bool {
        self.record(k)
            .is_some_and(|state| state != MemberState::Down)
    }
}

pub(super) fn declare(turn: &Exclusive<'_>, dead: &[&Takeover]) -> Result<()> {
    turn.declare_dead(&dead.iter().map(|t| Proof::Locks(t)).collect::<Vec<_>>())?;
    Ok(())
}

impl Opening<'_> {
    /// Looks until no dead instance waits to be recovered by living ones.
    pub(super) fn settle<'c>(
        &self,
        file: &'c ClusterFile,
    ) -> Result<(Starting, Exclusive<'c>, Found)> {
        let (mut waits_since, mut in_use_since) = (None, None);
        loop {
            let starting = self.starting(file)?;
            let turn = self.turn(file)?;
            let looked = self.look(&turn)?;
            if !matches!(looked, Looked::InUse(_)) {
                in_use_since = None;
            }
            let (what, look_again) = match looked {
                Looked::Found(found) => {
                    let dead = found.to_be_recovered();
                    if found.alive.is_empty() || dead.is_empty() {
                        return Ok((starting, turn, *found));
                    }
                    declare(&turn, &found.undeclared())?;
                    let since = *waits_since.get_or_insert_with(seam::now);
                    let what = waits_for_recovery(&dead, &found.alive, seam::elapsed(since));
                    (what, LOOK_INTERVAL)
                }
                Looked::HasStandIn => {
                    let what = "another instance rolls back what this one left";
                    (what.to_string(), LOOK_INTERVAL)
                }
                Looked::InUse(path) => {
                    let since = *in_use_since.get_or_insert_with(seam::now);
                    if seam::elapsed(since) > EXIT_PATIENCE {
                        return Err(self.in_use(&path));
                    }
                    let what = format!("waiting for the end of the process that locked {path}");
                    (what, EXIT_INTERVAL)
                }
            };
            turn.release()?;
            drop(starting);
            self.waits(&what)?;
            pause(look_again);
        }
    }

    /// Waits until this process is the one that opens the database.
    fn starting(&self, file: &ClusterFile) -> Result<Starting> {
        loop {
            if let Some(starting) = file.starting(seam::now() + LOOK_INTERVAL)? {
                return Ok(starting);
            }
            self.waits("waiting for another instance that is starting")?;
        }
    }

    /// Whether another instance lives this one's life, and has its locks.
    fn has_stand_in(&self, state: &Control, members: &storage::lease::Cluster) -> Result<bool> {
        let record = members.member(self.me);
        // A leaver is down before it gives up its locks: it waits until all others have met an
        // epoch without it.
        let lives_or_leaves = |m: &&MemberRecord| {
            matches!(m.state, MemberState::Up | MemberState::Down) && !m.address.is_empty()
        };
        let Some(up) = record.filter(lives_or_leaves).filter(|_| !self.stand_in) else {
            return Ok(false);
        };
        let lives = || Ok::<_, Error>(matches!(self.attempt(state, self.me)?, Attempt::Held(_)));
        Ok(Contact::parse(&up.address)?.stand_in && lives()?)
    }

    fn in_use(&self, path: &str) -> Error {
        Error::Storage(storage::Error::InUse {
            path: self.places.storage.describe(),
            by: format!(
                "another process that runs instance {} (it has locked {path})",
                self.me.0
            ),
        })
    }

    fn look(&self, turn: &Exclusive<'_>) -> Result<Looked> {
        let state = ControlFile::open(&*self.places.storage)?.get();
        let members = turn.read()?;
        if self.has_stand_in(&state, &members)? {
            return Ok(Looked::HasStandIn);
        }
        let own = match self.attempt(&state, self.me)? {
            Attempt::Dead(own) => own,
            Attempt::Held(path) => return Ok(Looked::InUse(path)),
        };
        let mut found = Found {
            own,
            dead: Vec::new(),
            alive: Vec::new(),
            state,
            members,
        };
        let numbers = found.state.threads.iter().map(|t| InstanceId(t.thread.0));
        let mut others: Vec<_> = numbers
            .chain(found.members.members.iter().map(|m| m.instance))
            .filter(|k| *k != self.me && Found::suspect(&found.state, &found.members, *k))
            .collect();
        others.sort_unstable_by_key(|k| k.0);
        others.dedup();
        for k in others {
            match self.attempt(&found.state, k)? {
                Attempt::Dead(takeover) => found.dead.push(takeover),
                Attempt::Held(_) => found.alive.push(k),
            }
        }
        Ok(Looked::Found(Box::new(found)))
    }

    pub(super) fn attempt(&self, state: &Control, k: InstanceId) -> Result<Attempt> {
        let claims = self.places.claims(state, k);
        Ok(Takeover::attempt(k, self.fatal.clone(), &claims)?)
    }
}

fn waits_for_recovery(dead: &[InstanceId], alive: &[InstanceId], since: Duration) -> String {
    let alive = list(alive);
    let hint = match since > RECOVERY_TIME {
        true => format!(" (for {} s: if it hangs, end it)", since.as_secs()),
        false => String::new(),
    };
    format!(
        "{} died; waiting for {alive} to recover it{hint}",
        list(dead)
    )
}

fn pause(time: Duration) {
    let until = seam::now() + time;
    Waiter::new().wait(Event::EnqDm, [0; 3], Some(until));
}
