//! This instance among others. Drives [`fusion::visibility`], and keeps what others said about
//! their transactions.
//!
//! **Alone**, with no other member up, this module costs one flag per commit, which is loaded after
//! the clock's tick, and one word per reply.
//!
//! **Invariants.**
//! - *Clock.* There is one, [`redo::Clock`]. Before the machine sees an SCN from outside, the clock
//!   is lifted to it, or the message is refused. The machine's own value is never sent.
//! - *Commit.* The clock's tick draws a group's SCN while the group is marked pending. The group is
//!   registered as unstable before any of its transactions reads "committed" (V3). So a thread that
//!   has seen one of them finds [`Cluster::oldest_unstable`] at or below its SCN, or the group is
//!   stable.
//! - *Change of members.* The flag is set before the clock is read that a joiner starts above. A
//!   commit looks at the flag after its tick. So a group that was not announced lies at or below
//!   that clock.
//! - *Questions* are answered from the status words after the clock was lifted to the asker's
//!   snapshot (V2). The asked instance waits for nothing, and the asker holds no latch.
//! - *Messages* leave with the machine's latch free, because the post takes its header from here.
//!   Their order does not matter: the protocol is checked with a network that reorders.
//! - *Batches without commits* are no groups. Nothing can rest on such a batch, so it is neither
//!   registered nor announced. If it is the newest batch of this thread when an epoch begins, it
//!   stands for all before it, whose SCNs are in the log.
//! - *Memory* (see [`memory`]). A thread that reads the clock for a snapshot or a group's SCN has
//!   called [`Cluster::look`] before.
//! - *Strangers.* A message from an instance that is not a member is dropped, unless its epoch is
//!   one that this instance has yet to enter.

mod commit_cache;
mod commits;
mod deadlock;
mod memory;
pub(crate) mod messages;
mod sharers;
mod status;
mod turns;
mod waits;

use crate::timing::{AnswerCost, Answered, Begun, Noted};
use crate::{Error, Result};
use block::{InstanceId, LastGroups, Scn, TxnId};
use commit_cache::CommitCache;
use commits::Parked;
pub(crate) use deadlock::Check;
use deadlock::Walks;
use fusion::GroupNo;
use fusion::visibility::{Effect, Evidence, Header, Message, ReplyId, Status, Visibility};
use interconnect::{Parcel, Post, Route};
use messages::{Answer, Front, TxnMessage};
use redo::Clock;
use seam::HashMap;
use seam::{Mutex, MutexGuard};
use sharers::SharersAsked;
pub(crate) use status::{Down, Questions};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use turns::Turns;
pub(crate) use waits::{ToTell, is_over};
use wire::{Reader, Wire, Writer};

/// A message to be sent once the latch is free.
pub(crate) struct Letter {
    to: InstanceId,
    kind: u16,
    body: Vec<u8>,
}

impl Letter {
    pub(crate) fn new(to: InstanceId, message: &TxnMessage<'_>) -> Letter {
        let mut body = Vec::new();
        message.encode(&mut body);
        let kind = message.kind();
        Letter { to, kind, body }
    }
}

struct Machine {
    visibility: Visibility,
    parked: HashMap<ReplyId, Parked>,
    next_reply: u64,
    out: Vec<Effect>,
    outboxes: memory::Outboxes,
    /// The answer in the message that is being looked at. A session that it wakes has waited for
    /// its sender.
    answer: Option<Answered>,
    /// Since when other instances want to be told that a group is stable.
    wanted: Noted<(InstanceId, InstanceId, GroupNo), Begun>,
}

/// The horizons that the other members last announced.
struct Others {
    /// By member; `Scn::ZERO` as long as that member has not been heard.
    horizons: HashMap<InstanceId, Scn>,
}

/// This instance among others; see the module.
pub(crate) struct Cluster {
    me: InstanceId,
    clock: Arc<Clock>,
    post: OnceLock<Arc<dyn Post>>,
    /// Whether more than one member is up.
    active: AtomicBool,
    epoch: AtomicU64,
    machine: Mutex<Machine>,
    /// SCN of the oldest group not known to be stable; `u64::MAX` if there is none. Stored under
    /// the machine's latch.
    oldest_unstable: AtomicU64,
    /// Members, this instance included.
    members: arc_swap::ArcSwap<BTreeSet<InstanceId>>,
    /// Dead instances for which nobody answers until their next life. Questions about their
    /// transactions wait.
    in_limbo: arc_swap::ArcSwap<BTreeSet<InstanceId>>,
    others: Mutex<Others>,
    /// The least of the others' horizons; `u64::MAX` when alone. Computing the horizon reads it.
    others_horizon: Arc<AtomicU64>,
    /// What others said of their transactions. Made when the instance joins.
    pub(crate) learnt: OnceLock<CommitCache>,
    pub(crate) down: Down,
    pub(crate) questions: Questions,
    pub(crate) to_tell: ToTell,
    pub(crate) turns: Turns,
    sharers_asked: SharersAsked,
    pub(crate) walks: Walks,
    inboxes: memory::Inboxes,
    /// Reads the durable ceiling of all clocks.
    durable_ceiling: OnceLock<Box<dyn Fn() -> Result<Scn> + Send + Sync>>,
}

impl Cluster {
    pub(crate) fn new(
        me: InstanceId,
        clock: Arc<Clock>,
        others_horizon: Arc<AtomicU64>,
    ) -> Arc<Cluster> {
        Arc::new(Cluster {
            me,
            post: OnceLock::new(),
            active: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            machine: Mutex::new(Machine {
                visibility: Visibility::new(me, clock.now(), [me]),
                parked: HashMap::default(),
                next_reply: 0,
                out: Vec::new(),
                outboxes: memory::Outboxes::default(),
                answer: None,
                wanted: Noted::default(),
            }),
            clock,
            oldest_unstable: AtomicU64::new(u64::MAX),
            members: arc_swap::ArcSwap::from_pointee([me].into()),
            in_limbo: arc_swap::ArcSwap::default(),
            others: Mutex::new(Others {
                horizons: HashMap::default(),
            }),
            others_horizon,
            learnt: OnceLock::new(),
            down: Down::default(),
            questions: Questions::default(),
            to_tell: ToTell::default(),
            turns: Turns::new(me),
            sharers_asked: SharersAsked::default(),
            walks: Walks::default(),
            inboxes: memory::Inboxes::default(),
            durable_ceiling: OnceLock::new(),
        })
    }

    /// Whether others are up. A commit must ask after the tick that drew its group's SCN.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::SeqCst)
    }

    /// Whether this instance could have others beside it.
    pub(crate) fn is_joined(&self) -> bool {
        self.post.get().is_some()
    }

    pub(crate) fn is_up(&self, instance: InstanceId) -> bool {
        self.members.load().contains(&instance)
    }

    /// Whether an instance was closed. If so, what its files say of its transactions is complete
    /// and final.
    pub(crate) fn is_down(&self, instance: InstanceId) -> bool {
        // Members are looked at before limbo and once more after it. The two are changed in the
        // other order, so an instance that moves from one to the other is never taken for down.
        !self.is_up(instance) && !self.in_limbo.load().contains(&instance) && !self.is_up(instance)
    }

    pub(crate) fn others(&self) -> Vec<InstanceId> {
        let members = self.members.load();
        members.iter().copied().filter(|&i| i != self.me).collect()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    // ---- members ----

    pub(crate) fn join(
        &self,
        post: Arc<dyn Post>,
        durable_ceiling: Box<dyn Fn() -> Result<Scn> + Send + Sync>,
    ) {
        self.durable_ceiling.get_or_init(|| durable_ceiling);
        assert!(
            self.post.set(post).is_ok(),
            "invariant: an instance joins once"
        );
        self.learnt.get_or_init(CommitCache::new);
    }

    pub(crate) fn members_changed(
        &self,
        epoch: u64,
        members: &[InstanceId],
        (in_limbo, in_doubt): (&[InstanceId], bool),
    ) {
        let members: BTreeSet<InstanceId> = members.iter().copied().chain([self.me]).collect();
        assert!(
            members.len() == 1 || self.post.get().is_some(),
            "invariant: an instance among others has joined"
        );
        // An instance that is no member any more writes nothing now. What it has put here is known
        // in the new epoch.
        self.look_everywhere();
        let doubtful = in_limbo;
        let in_limbo: BTreeSet<InstanceId> = in_limbo.iter().copied().collect();
        // An instance that dies is put into limbo before it stops being a member. One that comes
        // back becomes a member before it leaves limbo. So it is at no moment taken for down.
        if in_doubt {
            self.sharers_in_doubt(doubtful); // before they stop being members, too
        }
        let parted = self.in_limbo.load_full();
        self.in_limbo.store(Arc::new(&*parted | &in_limbo));
        let before = self.members.swap(Arc::new(members.clone()));
        self.in_limbo.store(Arc::new(in_limbo.clone()));
        self.set_members_of_horizon(&members);
        self.down
            .forget(|i| members.contains(&i) || in_limbo.contains(&i));
        let mut m = self.machine.lock();
        m.outboxes.clear();
        self.epoch.store(epoch, Ordering::Release);
        self.active.store(members.len() > 1, Ordering::SeqCst);
        let Machine {
            visibility, out, ..
        } = &mut *m;
        for &instance in before.difference(&members) {
            // Other instances may know groups of the dead that this one does not know, until all
            // have spoken in this epoch.
            if !in_limbo.contains(&instance) {
                visibility.left(instance, out);
            }
        }
        visibility.members_changed(members, [], out);
        self.carry_out(m);
        self.questions.of_the_down(|i| self.is_down(i));
        self.forget_waiters_of_the_gone();
        self.sharers_of_the_gone(if in_doubt { doubtful } else { &[] });
        self.offer_memory();
    }

    /// Notes that every member has heard a message that every other one sent in this epoch. What
    /// any of them knows of the groups of the dead, all know.
    pub(crate) fn settled(&self) {
        let in_limbo = self.in_limbo.load_full();
        if in_limbo.is_empty() {
            return;
        }
        let mut m = self.machine.lock();
        let Machine {
            visibility, out, ..
        } = &mut *m;
        for &instance in in_limbo.iter() {
            visibility.left(instance, out);
        }
        self.carry_out(m);
    }

    /// Takes in the newest groups of this instance's thread. Nobody may have been told of any of
    /// them so far.
    pub(crate) fn own_groups(&self, last: LastGroups) {
        let mut m = self.machine.lock();
        for (batch, scn) in last.iter() {
            m.visibility.told(Evidence {
                instance: self.me,
                group: GroupNo(batch),
                scn,
            });
        }
    }

    /// The newest groups of an instance's thread that this instance has heard of, and when they
    /// took effect.
    pub(crate) fn last_groups_of(&self, instance: InstanceId) -> LastGroups {
        self.machine.lock().visibility.last_groups_of(instance)
    }

    // ---- messages ----

    /// Appends the front of a message that leaves now. `horizon` is this instance's own.
    pub(crate) fn header_into(&self, horizon: Scn, out: &mut Vec<u8>) {
        let header = self.machine.lock().visibility.header();
        let front = Front {
            clock: self.clock.now(),
            newest: header.newest,
            horizon,
            evidence: header.evidence.into(),
        };
        front.put(&mut Writer::new(out));
    }

    /// Takes in the front of a message and returns its length.
    ///
    /// If the sender is no member, only its clock counts. The others have been told what this
    /// instance had heard of the dead, and wait for no more.
    pub(crate) fn header_arrived(
        &self,
        from: InstanceId,
        epoch: u64,
        bytes: &[u8],
    ) -> Result<usize> {
        let mut r = Reader::new(bytes);
        let Front {
            clock,
            newest,
            horizon,
            evidence,
        } = r.get().map_err(|why| Error::BadMessage {
            from,
            why: Box::new(why),
        })?;
        let header = Header {
            clock,
            newest,
            evidence: evidence.into_owned(),
        };
        let newest = header.evidence.iter().map(|e| e.scn);
        let highest = newest.chain([header.clock, horizon]).max();
        self.lift(highest.unwrap_or_default())?;
        self.horizon_heard(from, horizon);
        // Mostly there is nothing to say: both sides have nothing unstable.
        if !header.evidence.is_empty() || self.oldest_unstable.load(Ordering::Acquire) != u64::MAX {
            // This is the latch under which an epoch is entered. So the evidence counts before
            // that, and is told to others, or it does not count at all.
            let mut m = self.machine.lock();
            if self.admits(from, epoch) {
                let Machine {
                    visibility, out, ..
                } = &mut *m;
                visibility.received(from, &header, out);
            }
            self.carry_out(m);
        }
        Ok(r.offset())
    }

    fn lift(&self, to: Scn) -> Result<()> {
        Ok(self.clock.lift(to)?)
    }

    /// Whether a message of this sender and epoch may be looked at.
    pub(crate) fn admits(&self, from: InstanceId, epoch: u64) -> bool {
        self.is_up(from) || epoch > self.epoch()
    }

    /// Takes the announcement of a group by another instance, with these transactions.
    pub(crate) fn announced(
        &self,
        from: InstanceId,
        evidence: Evidence,
        committed: &[TxnId],
    ) -> Result<()> {
        let is_foreign = |txn: &TxnId| txn.instance() != evidence.instance;
        if committed.iter().any(is_foreign) {
            return Err(Error::bad_message(
                from,
                "a group has another instance's transaction",
            ));
        }
        self.look(); // the sender may have put earlier ones there
        self.lift(evidence.scn)?;
        self.group_message(from, Message::Announce(evidence), None, committed);
        Ok(())
    }

    /// Takes in a message about groups. `cost` is that of an answer, `committed` those of an
    /// announcement.
    pub(crate) fn group_message(
        &self,
        from: InstanceId,
        message: Message,
        cost: Option<AnswerCost>,
        committed: &[TxnId],
    ) {
        let answer = cost.map(Answered::now);
        let mut m = self.machine.lock();
        m.answer = answer;
        if let Message::StableWanted { instance, group } = message {
            m.wanted.note((from, instance, group), Begun::now());
        }
        let Machine {
            visibility, out, ..
        } = &mut *m;
        visibility.message(from, message, |_| Status::None, out);
        // The group is registered. A thread that finds one of its commits in the cache finds the
        // group unstable, or the group is stable.
        if let (Message::Announce(evidence), Some(learnt)) = (message, self.learnt.get()) {
            for &txn in committed {
                learnt.put(txn, Answer::Committed(evidence.scn));
            }
        }
        self.carry_out(m);
    }

    /// Says again what may have been lost when messages both ways were lost.
    pub(crate) fn reconnected(&self, peer: InstanceId) {
        let mut m = self.machine.lock();
        let Machine {
            visibility, out, ..
        } = &mut *m;
        visibility.reconnected(peer, out);
        self.carry_out(m);
        self.ask_peer_again(peer);
    }

    /// Repeats every open question.
    pub(crate) fn ask_again(&self) {
        self.others()
            .into_iter()
            .for_each(|peer| self.ask_peer_again(peer));
    }

    fn ask_peer_again(&self, peer: InstanceId) {
        self.questions
            .of(peer)
            .into_iter()
            .for_each(|(txn, snapshot)| self.ask(txn, snapshot));
        self.ask_for_sharers_again(peer);
    }

    /// Repeats everything that somebody may have missed, and says the horizon.
    pub(crate) fn tick(&self) {
        self.walks.forget();
        for peer in self.others() {
            self.reconnected(peer);
            self.send(Letter::new(peer, &TxnMessage::Heartbeat));
        }
        self.offer_memory();
    }

    /// Carries out what the machine asks for. The latch is let go before anything is sent.
    fn carry_out(&self, m: MutexGuard<'_, Machine>) {
        self.carry_out_with(m, &[]);
    }

    /// Carries out what the machine asks for. If that includes an announcement, its group has the
    /// transactions `committed`.
    fn carry_out_with(&self, mut m: MutexGuard<'_, Machine>, committed: &[TxnId]) {
        let (mut letters, mut free) = (Vec::new(), Vec::new());
        for effect in std::mem::take(&mut m.out) {
            match effect {
                Effect::Send { to, message, .. } => {
                    let spent = self.spent(&mut m, to, message);
                    letters.push(letter(to, message, committed, spent));
                }
                Effect::Release(reply) => free.extend(m.parked.remove(&reply)),
                Effect::MarkPending(_) | Effect::Publish(_) | Effect::Learned { .. } => {
                    unreachable!(
                        "groups are marked and published, and answers kept, by this driver"
                    )
                }
            }
        }
        let oldest = m.visibility.oldest_unstable().map_or(u64::MAX, |scn| scn.0);
        self.oldest_unstable.store(oldest, Ordering::Release);
        let Machine {
            visibility,
            outboxes,
            ..
        } = &mut *m;
        outboxes.set_stable(visibility.stable_up_to());
        let how = m.answer.take();
        drop(m);
        letters.into_iter().for_each(|l| self.send(l));
        free.into_iter().for_each(|parked| parked.wake(how));
    }

    /// The cost that is said behind a message about groups, if the message is an answer.
    fn spent(&self, m: &mut Machine, to: InstanceId, message: Message) -> Option<AnswerCost> {
        match message {
            Message::Acknowledge { .. } => Some(AnswerCost::at_once(self.me)),
            Message::Stable { instance, group } => {
                let begun = m.wanted.take(&(to, instance, group));
                Some(begun.map_or(AnswerCost::by(self.me), |b| b.answered(self.me)))
            }
            _ => None,
        }
    }

    /// Sends a message. The caller must hold no latch of this module.
    pub(crate) fn send(&self, letter: Letter) {
        self.send_in_epoch(letter, self.epoch());
    }

    /// Sends a message that was made in `epoch` and holds in no other.
    pub(crate) fn send_in_epoch(&self, letter: Letter, epoch: u64) {
        // Without a post there are no other instances, so the message has lost its addressee.
        if let Some(post) = self.post.get() {
            let parcel = Parcel {
                route: Route::Control,
                kind: letter.kind,
                epoch,
                body: &letter.body,
                block: None,
            };
            post.send(letter.to, parcel);
        }
    }

    // ---- the horizon ----

    fn set_members_of_horizon(&self, members: &BTreeSet<InstanceId>) {
        let mut others = self.others.lock();
        others.horizons.retain(|i, _| members.contains(i));
        for &i in members.iter().filter(|&&i| i != self.me) {
            others.horizons.entry(i).or_insert(Scn::ZERO);
        }
        self.store_horizon(&others);
    }

    fn horizon_heard(&self, from: InstanceId, horizon: Scn) {
        let mut others = self.others.lock();
        if let Some(known) = others.horizons.get_mut(&from)
            && *known < horizon
        {
            *known = horizon;
            self.store_horizon(&others);
        }
    }

    fn store_horizon(&self, others: &Others) {
        let least = others.horizons.values().map(|scn| scn.0).min();
        self.others_horizon
            .store(least.unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

/// A message about groups. An announcement has `committed`, an answer has `cost`.
fn letter(
    to: InstanceId,
    message: Message,
    committed: &[TxnId],
    cost: Option<AnswerCost>,
) -> Letter {
    let message = match (message, cost) {
        (Message::Announce(evidence), None) => TxnMessage::Announce {
            evidence,
            committed: committed.into(),
        },
        (Message::Acknowledge { instance, group }, Some(cost)) => TxnMessage::Acknowledge {
            instance,
            group,
            cost,
        },
        (Message::StableWanted { instance, group }, None) => {
            TxnMessage::StableWanted { instance, group }
        }
        (Message::Stable { instance, group }, Some(cost)) => TxnMessage::Stable {
            instance,
            group,
            cost,
        },
        (Message::Ask { .. } | Message::Answer { .. }, _) => {
            unreachable!("questions are asked and answered by this driver")
        }
        (message, _) => unreachable!("invariant: {message:?} has a cost if it is an answer"),
    };
    Letter::new(to, &message)
}
