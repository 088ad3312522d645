//! What the instance calls when others are up: members, messages, headers, the gate on replies, and
//! the question how others' transactions stand.

use crate::cluster::Check;
use crate::cluster::messages::TxnMessage;
use crate::local_enqueues::Hop;
use crate::local_enqueues::Want;
use crate::manager::TxnManager;
use crate::sharers::Told;
use crate::status::{CHUNK, StatusArray};
use crate::timing::Answered;
use crate::{Error, Result, Ring, TxnState, status_file};
use block::{BlockBuf, FileId, InstanceId, LastGroups, ObjectId, Scn, ThreadId, TxnId};
use fusion::visibility::Message;
use interconnect::Post;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The instances that were members and are dead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Departed<'a> {
    /// The dead that have not lived again. Only their next lives know how their transactions stand.
    pub in_limbo: &'a [InstanceId],
    /// Whether it is undecided for some of them when their last groups took effect. Until that is
    /// decided nobody gets what they had locked.
    pub in_doubt: bool,
}

impl TxnManager {
    /// Makes this instance one among others that it reaches through `post`. It is called once,
    /// before the first [`TxnManager::members_changed`]. Until that call says who is up, the
    /// instance counts as alone.
    pub fn join_cluster(self: &Arc<Self>, post: Arc<dyn Post>) {
        let control = self.control.clone();
        self.cluster.join(
            post,
            Box::new(move || Ok(Scn(control.refresh()?.scn_ceiling))),
        );
    }

    /// Enters an epoch with these members. An instance that is gone and not named as departed left
    /// cleanly, after [`TxnManager::leave`].
    ///
    /// Before a joiner takes its first snapshot or changes anything, all of this must be done:
    ///
    /// - All others have made this call.
    /// - The joiner has heard a header that each of them sent after it. Its clock is then above
    ///   every commit that was not announced to it and every horizon computed without it.
    /// - The joiner has heard each member's [`TxnManager::last_groups_of`] from that member itself.
    ///   If a member dies, the joiner knows when its last groups took effect (`fusion::visibility`,
    ///   V9).
    ///
    /// The joiner makes this call before [`TxnManager::recover`] and everything that follows.
    /// Otherwise it would compute a horizon of its snapshots alone. It makes the call after it has
    /// put its clock's ceiling into the control file. All members take over the highest ceiling
    /// from there, and a joiner starts beyond the ceilings that the others know.
    pub fn members_changed(
        &self,
        epoch: u64,
        members: &[InstanceId],
        departed: Departed<'_>,
    ) -> Result<()> {
        self.clock
            .raise_ceiling(Scn(self.control.refresh()?.scn_ceiling));
        self.cluster
            .members_changed(epoch, members, (departed.in_limbo, departed.in_doubt));
        // This includes groups that no other instance was told of, because there was none. Once the
        // log has said this, no such group is on its way.
        self.cluster.own_groups(self.cache.redo().last_groups());
        self.forget_turns_of_the_gone();
        self.drive_waits(|_| true);
        let me = self.config.instance;
        let members = members.iter().copied().chain([me]).collect();
        self.ges.members_changed(epoch, &members, departed.in_doubt);
        Ok(())
    }

    /// Goes on after all members have said that they are in the epoch, in messages with a header. A
    /// member that came in this epoch may have dropped what it was asked before. So the statements
    /// that wait for the next life of a dead instance go on here, rather than at some tick.
    pub fn settled(&self) {
        self.cluster.settled();
        self.cluster.ask_again();
        self.drive_waits(|_| true);
        self.ges.tick(); // says again what members dropped that had not entered
    }

    /// The newest groups of an instance's thread that this instance has heard of, and when they
    /// took effect. Its own are known from the beginning of the epoch on.
    pub fn last_groups_of(&self, instance: InstanceId) -> LastGroups {
        self.cluster.last_groups_of(instance)
    }

    /// Returns once this instance knows which locks the others have taken away from everybody. It
    /// is called before the first session. Returns false if that is not known at `until`.
    pub fn wait_established(&self, until: Instant) -> bool {
        self.ges.wait_established(until)
    }

    /// A flag that is set as long as this instance's picture of the dictionary need not be checked.
    /// `None` if there are no other instances that could change the dictionary.
    pub fn dictionary_flag(&self) -> Option<Arc<AtomicBool>> {
        let joined = self.cluster.is_joined();
        joined.then(|| self.ges.dictionary_flag())
    }

    /// Calls `read` if another instance has changed the dictionary since `read` was last called. A
    /// transaction that is about to commit a change of its own must not call this.
    pub fn refresh_dictionary<E>(
        &self,
        read: impl FnOnce() -> std::result::Result<(), E>,
    ) -> Result<std::result::Result<(), E>> {
        match self.cluster.is_joined() {
            true => self.ges.refresh_dictionary(&self.clock, read),
            false => Ok(Ok(())),
        }
    }

    /// Keeps nothing for the lock of a table any more, because the table is gone for good.
    pub fn forget_lock(&self, table: ObjectId) {
        self.ges.forget(table);
    }

    /// Returns when all commits of this instance are acknowledged. It is called when the instance
    /// has stopped its sessions and is about to leave.
    pub fn leave(&self) {
        self.gate(self.clock.now());
    }

    /// Appends to `out` what must stand in front of every message of every layer that leaves now:
    /// the clock, the commits not acknowledged by all, and the horizon. Takes a latch for a moment.
    pub fn header_into(&self, out: &mut Vec<u8>) {
        self.cluster.header_into(self.horizon.own(), out);
    }

    /// Takes in the front of a message that was sent in `epoch`, before the rest is looked at.
    /// Returns the length of the front.
    pub fn header_arrived(&self, from: InstanceId, epoch: u64, bytes: &[u8]) -> Result<usize> {
        self.cluster.header_arrived(from, epoch, bytes)
    }

    /// Handles a message of a kind in [`interconnect::kinds::TXN`], which stood behind its header.
    /// Waits for nothing.
    pub fn message(
        &self,
        from: InstanceId,
        epoch: u64,
        kind: u16,
        body: &[u8],
        block: Option<&BlockBuf>,
    ) -> Result<()> {
        if block.is_some() {
            return Err(Error::bad_message(
                from,
                "no message of transactions carries a block",
            ));
        }
        let cluster = &self.cluster;
        if !cluster.admits(from, epoch) {
            return Ok(());
        }
        let message = TxnMessage::decode(kind, body).map_err(|why| Error::BadMessage {
            from,
            why: Box::new(why),
        })?;
        match message {
            TxnMessage::Announce {
                evidence,
                committed,
            } => cluster.announced(from, evidence, &committed)?,
            TxnMessage::Acknowledge {
                instance,
                group,
                cost,
            } => {
                let message = Message::Acknowledge { instance, group };
                cluster.group_message(from, message, Some(cost), &[]);
            }
            TxnMessage::StableWanted { instance, group } => {
                let message = Message::StableWanted { instance, group };
                cluster.group_message(from, message, None, &[]);
            }
            TxnMessage::Stable {
                instance,
                group,
                cost,
            } => {
                let message = Message::Stable { instance, group };
                cluster.group_message(from, message, Some(cost), &[]);
            }
            TxnMessage::Ask { txn, snapshot } => {
                let state = |txn| self.visibility.own_state(txn);
                cluster.asked(from, (txn, snapshot), state)?;
            }
            TxnMessage::Answer { txn, answer, cost } => {
                cluster.answered(from, (txn, answer, cost))?;
            }
            TxnMessage::TxnWait {
                txn,
                looked,
                place,
                waited_us,
            } => {
                let now = seam::now();
                let since = now.checked_sub(Duration::from_micros(waited_us));
                let want = Want {
                    place,
                    looked,
                    since: since.unwrap_or(now),
                };
                self.end_wanted(from, txn, &want)?;
            }
            TxnMessage::TxnEnded {
                txn,
                answer,
                cost,
                turns,
            } => {
                self.turns_given(from, &turns);
                let how = cluster.answered(from, (txn, answer, cost))?;
                self.enqueues.let_go(txn, Some(how));
            }
            TxnMessage::TxnUndone { txn, cost, turns } => {
                if txn.instance() != from {
                    let why = "the transaction is not the sender's";
                    return Err(Error::bad_message(from, why));
                }
                self.turns_given(from, &turns);
                self.enqueues.let_go(txn, Some(Answered::now(cost)));
            }
            TxnMessage::TurnOver { place } => self.turn_over(from, place),
            TxnMessage::SharersWanted {
                question,
                row,
                lock,
            } => {
                let is_active = |txn| self.visibility.own_state(txn) == TxnState::Active;
                let told = self.sharers.look((row, lock), TxnId::NONE, is_active);
                cluster.sharers_wanted(from, question, told);
            }
            TxnMessage::Sharers {
                question,
                holder,
                open,
                cost,
            } => cluster.sharers_told(from, (question, Told { holder, open }, cost))?,
            TxnMessage::Heartbeat => {}
            TxnMessage::MemoryOffered { key } => cluster.memory_offered(from, epoch, key),
            TxnMessage::Walk { number, txn, path } => {
                self.walk_arrived(from, (number, txn), path.into_owned());
            }
            TxnMessage::Check {
                at,
                via,
                path,
                passing,
                told,
            } => {
                let (path, told) = (path.into_owned(), told.into_owned());
                let check = Check::new(path, at.into(), passing, told);
                self.check_arrived(from, check, via)?;
            }
            TxnMessage::Victim {
                locker,
                serial,
                waits,
                told,
            } => self.doom(locker, serial, Ring::new(told.into_owned(), waits as usize)),
            TxnMessage::LockWalk {
                number,
                lock,
                stage,
                path,
            } => self.lock_walk_arrived(number, (lock, stage), path.into_owned()),
            TxnMessage::LockCheck {
                at,
                lock,
                stage,
                path,
                passing,
                told,
            } => {
                let (path, told) = (path.into_owned(), told.into_owned());
                let check = Check::new(path, at.into(), passing, told);
                self.lock_check_arrived(from, check, (lock, stage))?;
            }
            TxnMessage::LetPass {
                locker,
                serial,
                by,
                lock,
                request,
            } => self.let_pass(Hop { locker, serial }, (lock, by, request)),
            TxnMessage::Ges(timed) => {
                self.ges.message(from, epoch, timed)?;
            }
        }
        Ok(())
    }

    /// Says again what `peer` may have missed, because messages from and to it may have been lost.
    pub fn reconnected(&self, peer: InstanceId) {
        self.cluster.reconnected(peer);
        self.ges.tick();
        self.drive_waits(|instance| instance == peer);
    }

    /// Asks once more to be told of ends. A session that waits for a transaction of an instance
    /// that is gone is let go, to look where that transaction's status is now.
    fn drive_waits(&self, of: impl Fn(InstanceId) -> bool) {
        for (txn, want) in self.enqueues.awaited_elsewhere(self.config.instance) {
            if self.cluster.is_down(txn.instance()) {
                self.enqueues.let_go(txn, None);
            } else if of(txn.instance()) {
                self.cluster.want_end(txn, &want);
            }
        }
    }

    /// Computes and reports the horizon, and drives again what may have been lost. It is called
    /// about once a second.
    pub fn tick(&self) {
        if !self.cluster.is_active() {
            // A joiner has not entered yet: it must not compute a horizon without the others.
            return;
        }
        self.cluster.look(); // lest the horizon of an instance without work stay behind
        self.horizon();
        self.cluster.tick();
        self.expire_turns();
        self.drive_waits(|_| true);
        self.ges.tick();
    }

    /// The highest SCN of a commit that this thread's snapshots showed, by [`TxnManager::verdict`],
    /// before its group was acknowledged by all members. [`TxnManager::gate`] must wait for it
    /// before a reply of this thread leaves. A thread that lets others read for it takes their
    /// snapshot's SCN instead.
    #[inline]
    pub fn shown(&self) -> Scn {
        self.cluster.shown()
    }

    /// Returns once every commit at or below `snapshot` that this instance knows of has been
    /// acknowledged by all members. It is called before a reply leaves that shows what this
    /// snapshot sees. It costs one load if there is nothing to wait for, as on a lone instance. The
    /// caller must hold no latch.
    #[inline]
    pub fn gate(&self, snapshot: Scn) {
        self.cluster.gate(snapshot);
    }

    /// Finds out how another instance's transaction stands for `snapshot`, and keeps it. Waits for
    /// that instance: the caller must hold no latch.
    ///
    /// Afterwards [`TxnManager::verdict`] knows the answer, unless so much was learnt since that it
    /// was forgotten. "Active" holds for snapshots up to now, so a scan asks once.
    pub fn learn(&self, txn: TxnId, snapshot: Scn) -> Result<TxnState> {
        assert_eq!(
            cache::latches_held(),
            0,
            "invariant R7: nobody asks another instance with a latch held"
        );
        if txn.instance() == self.config.instance {
            return Ok(self.visibility.own_state(txn));
        }
        loop {
            self.cluster.look(); // where its instance may have said it
            let known = self.cluster.state(txn, Some(snapshot));
            if known != TxnState::Unknown {
                return Ok(known);
            }
            if !self.cluster.is_down(txn.instance()) {
                let told = self
                    .cluster
                    .ask_and_wait(txn, snapshot.max(self.clock.now()))?;
                if told != TxnState::Unknown {
                    return Ok(told);
                }
            } else {
                self.load_down(txn.instance())?;
            }
        }
    }

    /// How a transaction of any instance stands now. May wait: the caller must hold no latch.
    pub fn state_now(&self, txn: TxnId) -> Result<TxnState> {
        match self.state(txn) {
            TxnState::Active | TxnState::Unknown if txn.instance() != self.config.instance => {
                self.learn(txn, self.clock.now())
            }
            state => Ok(state),
        }
    }

    /// Reads the status words of an instance that is down.
    fn load_down(&self, instance: InstanceId) -> Result<()> {
        let down = || self.cluster.is_down(instance);
        self.cluster.down.ensure(instance, down, || {
            // The control file is read again. What the thread's last owner wrote counts, not what
            // this instance remembers.
            let state = self.control.refresh()?;
            let thread = state.thread(ThreadId(instance.0)).ok_or_else(|| {
                Error::Corrupt(format!(
                    "a transaction of instance {} was met, which is not in the control file",
                    instance.0
                ))
            })?;
            let words = StatusArray::new(thread.txn_truncated / CHUNK);
            let end = thread.txn_reserved.div_ceil(CHUNK);
            let file = FileId::status(instance);
            status_file::load(self.cache.files(), file, &words, end)?;
            Ok(words)
        })
    }
}
