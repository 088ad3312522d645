//! The thread `rcfg`: moves this instance from epoch to epoch, and finds out whether members that
//! do not answer are dead.

use super::members::{Members, list};
use super::setup::Contact;
use super::state::{Cluster, LOCK_PATIENCE, LOOK_INTERVAL};
use crate::{Result, files};
use interconnect::{Member, PeerAddress};
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::lease::{self, Attempt, MemberState, Proof, Takeover};
use storage::{ReadOnly, Storage};
use wait::Event;

/// How often a peer's locks are tried after a connection broke, and for how long. A process that is
/// killed takes a while to let go of all its locks.
const EAGER_INTERVAL: Duration = Duration::from_millis(20);
const EAGER_TIME: Duration = Duration::from_secs(2);

/// How often the log mentions a peer that does not answer and cannot be proved dead.
const TELL_INTERVAL: Duration = Duration::from_secs(10);
/// How long this instance waits for the connections of joiners before it enters an epoch without
/// them. That is longer than any pause between two attempts to connect.
const MEETING_PATIENCE: Duration = Duration::from_secs(3);
impl Cluster {
    pub(super) fn reconfigurations(self: &Arc<Self>) {
        // The message logged last, and since when no look has gone without an error.
        let mut trouble: Option<(String, Instant)> = None;
        while self.wait_for_work() {
            let Err(e) = self.look() else {
                trouble = None;
                continue;
            };
            let (said, since) = trouble.take().unwrap_or((String::new(), seam::now()));
            let now = e.to_string();
            if now != said {
                tracing::warn!("a look at the members fails and is tried again: {now}");
            }
            self.end_if_hopeless("see to the members", &e, since);
            trouble = Some((now, since));
        }
    }

    /// Waits until there is work. False when it is time to end.
    fn wait_for_work(&self) -> bool {
        let mut state = self.state.lock();
        state
            .broken
            .retain(|_, since| seam::elapsed(*since) < EAGER_TIME);
        let interval = match state.broken.is_empty() {
            true => LOOK_INTERVAL,
            false => EAGER_INTERVAL,
        };
        let until = seam::now() + interval;
        wait::during(
            Event::RdbmsIpcMessage,
            [interval.as_millis() as u64, 0, 0],
            || {
                while !state.rung && !state.stopping {
                    if self.changed.wait_until(&mut state, until).timed_out() {
                        break;
                    }
                }
            },
        );
        state.rung = false;
        !state.stopping
    }

    fn look(self: &Arc<Self>) -> Result<()> {
        let found = self.file.read()?;
        if !self.members().is_alone() && self.obeys(self.orders()?)? {
            return Ok(());
        }
        if found.epoch > self.members().epoch && !self.is_meeting_joiners(&found)? {
            self.enter(&found)?;
        }
        self.read_the_dead()?;
        self.settle();
        self.finish_recovery()?;
        self.forget_leavers();
        self.stand_in_for_the_lost()?;
        self.try_the_silent()
    }

    /// Whether this instance still waits to enter an epoch because its joiners are not connected
    /// yet. From the beginning of the epoch the joiners, too, acknowledge all commits, so commits
    /// would wait for the connections. No member dies or leaves in such an epoch, so only the
    /// joiner waits.
    fn is_meeting_joiners(&self, found: &lease::Cluster) -> Result<bool> {
        let (old, new) = (self.members(), Members::of(found));
        let only_joins = old.up.iter().all(|m| new.up.contains(m));
        if old.epoch == 0 || !only_joins {
            return Ok(false);
        }
        let coming: Vec<Member> = new
            .others(self.me)
            .filter(|m| !old.up.contains(m))
            .collect();
        for &come in &coming {
            self.meet(come, found)?;
        }
        let is_connected = |m: &Member| {
            let interconnect = self.interconnect.get();
            interconnect.is_none_or(|i| i.connected(m.instance) == Some(*m))
        };
        let all = coming.iter().all(is_connected);
        let mut state = self.state.lock();
        let met = coming.iter().filter(|m| !state.met.contains(m));
        let met: Vec<Member> = met.copied().collect();
        state.met.extend(met);
        let since = match state.meeting {
            Some((epoch, since)) if epoch == found.epoch => since,
            _ => seam::now(),
        };
        state.meeting = Some((found.epoch, since));
        Ok(!all && seam::elapsed(since) < MEETING_PATIENCE)
    }

    /// Enters the epoch that the control file names.
    fn enter(self: &Arc<Self>, found: &lease::Cluster) -> Result<()> {
        let mine = found.member(self.me.instance);
        if mine.is_none_or(|m| m.state != MemberState::Up || m.incarnation != self.me.incarnation) {
            if !self.state.lock().leaving {
                self.end(&format!(
                    "the control file says that {} is not up: {mine:?}",
                    self.me
                ));
            }
            return Ok(());
        }
        let new = Members::of(found);
        if !self.layers.are_ready(&new) {
            return Ok(());
        }
        let old = self.members();
        let gone: Vec<Member> = old
            .others(self.me)
            .filter(|m| !new.up.contains(m))
            .collect();
        let came_back = |m: &&Member| new.up.iter().any(|n| n.instance == m.instance);
        if let Some(m) = gone.iter().find(came_back) {
            self.end(&format!(
                "instance {} has left and come back before this instance knew that it was gone",
                m.instance.0
            ));
            return Ok(());
        }
        let (dead, left): (Vec<_>, Vec<_>) = gone
            .into_iter()
            .partition(|m| new.in_limbo.contains(&m.instance));
        dead.into_iter().for_each(|m| self.forget(m));
        self.state.lock().leavers.extend(&left);
        self.take_ceiling()?;
        // An instance that enters an epoch in which dead instances are recovered sees what they had
        // committed.
        for (_, scn) in found.members.iter().flat_map(|m| m.last_groups.iter()) {
            self.clock.lift(scn)?;
        }
        self.open_new_files()?;
        let met = self.state.lock().met.clone();
        let gone_again = met.into_iter().filter(|m| !new.up.contains(m));
        gone_again.for_each(|m| self.forget(m));
        for come in new.others(self.me).filter(|m| !old.up.contains(m)) {
            self.meet(come, found)?;
        }
        let new = Arc::new(new);
        *self.members.write() = new.clone();
        self.state.lock().met.clear();
        // An instance may have come and died since the last look. It has to be recovered, though
        // this instance never met another.
        let nobody = |m: &Members| m.is_alone() && m.in_limbo.is_empty();
        let always_alone = nobody(&old) && nobody(&new);
        if !always_alone && let Err(e) = self.layers.members_changed(&new) {
            self.end(&format!("epoch {} cannot be entered: {e}", new.epoch));
            return Ok(());
        }
        self.state.lock().entered = new.epoch;
        self.tell_space();
        for peer in new.others(self.me).chain(left) {
            self.say_epoch(peer, new.epoch);
        }
        Ok(())
    }

    /// Forgets leavers that have hung up.
    fn forget_leavers(&self) {
        let hung_up: Vec<Member> = {
            let state = self.state.lock();
            let hung_up = |m: &&Member| state.is_silent(m.instance);
            state.leavers.iter().filter(hung_up).copied().collect()
        };
        hung_up.into_iter().for_each(|m| self.forget(m));
    }

    fn forget(&self, gone: Member) {
        if let Some(interconnect) = self.interconnect.get() {
            // The leaver may not have been met yet.
            let _ = interconnect.remove_peer(gone.instance);
        }
        let mut state = self.state.lock();
        state.reached.remove(&(gone.instance.0, gone.incarnation));
        state.leavers.retain(|m| *m != gone);
        state.met.retain(|m| *m != gone);
        state.suspicion.remove(&gone.instance.0);
        state.told.remove(&gone.instance.0);
        state.broken.remove(&gone.instance.0);
    }

    fn meet(&self, come: Member, found: &lease::Cluster) -> Result<()> {
        let Some(interconnect) = self.interconnect.get() else {
            return Ok(());
        };
        let is_known = |m: &Member| m.instance == come.instance && *m != come;
        let former: Vec<Member> = {
            let state = self.state.lock();
            let known = state.leavers.iter().chain(&state.met);
            known.filter(|m| is_known(m)).copied().collect()
        };
        former.into_iter().for_each(|life| self.forget(life));
        let recorded = found
            .member(come.instance)
            .map_or("", |m| m.address.as_str());
        let address = match self.peers.get(&come.instance.0) {
            Some(address) => *address,
            None => Contact::parse(recorded)?.address,
        };
        interconnect
            .add_peer(PeerAddress {
                instance: come.instance,
                address,
            })
            .map_err(|e| crate::Error::Cluster(e.to_string()))
    }

    /// Opens the data files of instances that have come since.
    fn open_new_files(&self) -> Result<()> {
        let plain: Arc<dyn Storage> = Arc::new(ReadOnly(self.places.storage.clone()));
        files::open_data_files(&self.control.get(), &|_| plain.clone(), self.cache.files())
    }

    /// Finds out whether all members have entered the epoch. If not, tells them again.
    fn settle(&self) {
        let members = self.members();
        let late: Vec<Member> = {
            let state = self.state.lock();
            let late = |m: &Member| !state.is_in(*m, members.epoch);
            members.others(self.me).filter(late).collect()
        };
        for peer in &late {
            self.say_epoch(*peer, members.epoch);
        }
        if !late.is_empty() || self.state.lock().settled >= members.epoch {
            return;
        }
        if !(members.is_alone() && members.in_limbo.is_empty()) {
            self.layers.each(|l| l.settled(members.epoch));
        }
        self.state.lock().settled = members.epoch;
        self.changed.notify_all();
    }

    /// Tries the locks of members that have been silent or not connected for a while, or whose
    /// connection has just broken.
    fn try_the_silent(self: &Arc<Self>) -> Result<()> {
        let members = self.members();
        let suspects: Vec<(Member, bool)> = {
            let state = self.state.lock();
            members
                .others(self.me)
                .map(|m| (m, state.is_silent(m.instance)))
                .filter(|(m, silent)| *silent || state.broken.contains_key(&m.instance.0))
                .collect()
        };
        suspects
            .into_iter()
            .try_for_each(|(m, silent)| self.examine(m, silent))
    }

    /// Tries the locks of one member. It does so under the control file's lock: otherwise a
    /// starting instance could find locks taken that are taken only for a moment.
    fn examine(self: &Arc<Self>, suspect: Member, silent: bool) -> Result<()> {
        let overdue = silent && self.is_overdue(suspect);
        let Some(turn) = self.file.lock(Some(seam::now() + LOCK_PATIENCE))? else {
            // The silent member itself may have the lock.
            return match overdue {
                true => self.evict(suspect),
                false => Ok(()),
            };
        };
        if turn.read()?.epoch != self.members().epoch {
            return Ok(turn.release()?);
        }
        let claims = self.places.claims(&self.control.get(), suspect.instance);
        let attempt = Takeover::attempt(suspect.instance, self.fatal.clone(), &claims)?;
        match attempt {
            Attempt::Dead(takeover) => {
                turn.declare_dead(&[Proof::Locks(&takeover)])?;
                self.state.lock().rung = true;
            }
            Attempt::Held(_) if overdue => self.evict(suspect)?,
            Attempt::Held(path) if silent => self.tell(suspect, &path),
            Attempt::Held(_) => {}
        }
        Ok(turn.release()?)
    }

    fn tell(&self, silent: Member, path: &str) {
        let now = seam::now();
        let mut state = self.state.lock();
        let told = state.told.get(&silent.instance.0);
        if told.is_some_and(|t| now - *t < TELL_INTERVAL) {
            return;
        }
        state.told.insert(silent.instance.0, now);
        drop(state);
        tracing::warn!(
            "{} does not answer, but it lives: it has locked {path}. Whatever needs it waits",
            list(&[silent.instance])
        );
    }
}
