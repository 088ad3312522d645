//! Becoming a member: the check whether this instance may join those that live, and its record in
//! the control file.

use super::looks::{Found, declare};
use super::opening::Opening;
use crate::cluster::{ClusterHost, Contact};
use crate::instance::Membership;
use crate::{Error, Result};
use interconnect::Member;
use std::sync::{Arc, OnceLock};
use storage::lease::{Claim, ClusterFile, MemberState, Starting, canary};

impl Opening<'_> {
    /// Waits until this process is the one that opens the database, and may take part beside the
    /// instances that live.
    pub(super) fn admitted(
        &self,
        file: &ClusterFile,
        host: Option<&ClusterHost>,
    ) -> Result<(Starting, Found, Option<Contact>)> {
        let mut doubted = Vec::new();
        loop {
            let (starting, turn, mut found) = self.settle(file)?;
            let contact = host.map(|h| Contact::of(h, found.state.database_id, self.stand_in));
            match self.may_join(&found, contact) {
                Ok(()) => {
                    match found.alive.is_empty() {
                        true => declare(&turn, &found.undeclared())?,
                        // The living see to the next lives of the dead; this instance does not.
                        false => found.dead.clear(),
                    }
                    turn.release()?;
                    return Ok((starting, found, contact));
                }
                // The locks of a peer can be taken also if the peer has died since the look. If so,
                // the next look finds it dead.
                Err(Error::Storage(storage::Error::LocksAreLocal { peer, .. }))
                    if !doubted.contains(&peer) =>
                {
                    doubted.push(peer);
                    drop(found);
                    turn.release()?;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Whether this instance can take part beside the instances that live.
    fn may_join(&self, found: &Found, mine: Option<Contact>) -> Result<()> {
        for peer in &found.alive {
            let refuse = |why: &str| {
                let place = self.places.storage.describe();
                let text = format!("{place} is in use by instance {}{why}", peer.0);
                Err(Error::NotSupported(text))
            };
            if !self.config.join_others {
                return refuse("");
            }
            let record = found.members.member(*peer).map_or("", |m| &m.address);
            let (Some(mine), false) = (mine, record.is_empty()) else {
                return refuse(", and one of the two has no interconnect");
            };
            let theirs = Contact::parse(record)?;
            if theirs.key != mine.key {
                return refuse(", which has another cluster secret");
            }
            let is_told = self.config.peers.iter().any(|p| p.instance == *peer);
            if let (false, Some(why)) = (is_told, mine.cannot_meet(&theirs)) {
                return refuse(why);
            }
            let claims = self.places.claims(&found.state, *peer);
            for claim in &claims {
                canary(&*claim.storage, *peer, &present(claim)?)?;
            }
        }
        Ok(())
    }

    /// Makes this instance a member. None if it was opened for another situation than the present
    /// one. It was opened beside others, and one of them is dead and not recovered, or none of them
    /// is up any more.
    pub(super) fn become_member(
        &self,
        file: &Arc<ClusterFile>,
        found: &Found,
        contact: Option<Contact>,
    ) -> Result<Option<Membership>> {
        let turn = self.turn(file)?;
        if found.alive.is_empty() {
            if found.was_member(self.me) {
                turn.close(&found.own)?;
            }
        } else {
            let members = turn.read()?.members;
            let is_any = |state| members.iter().any(|m| m.state == state);
            if is_any(MemberState::Dead) || !is_any(MemberState::Up) {
                turn.release()?;
                return Ok(None);
            }
        }
        let lease = found.own.lease().clone();
        let address = contact.map_or(String::new(), Contact::to_text);
        let (me, joined) = turn.join(&lease, &address)?;
        turn.release()?;
        Ok(Some(Membership {
            file: file.clone(),
            lease,
            me: Member {
                instance: self.me,
                incarnation: me.incarnation,
            },
            epoch: joined.epoch,
            cluster: OnceLock::new(),
        }))
    }
}

/// The files of a claim that exist.
fn present(claim: &Claim) -> Result<Vec<(String, storage::FileKind)>> {
    let mut there = Vec::new();
    for (name, kind) in &claim.files {
        if claim.storage.exists(name)? {
            there.push((name.clone(), *kind));
        }
    }
    Ok(there)
}
