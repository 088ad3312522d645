//! Rules that tests may break on purpose. A model or simulation that does not notice a broken rule
//! proves nothing about it. So each rule has a mutation here and a test that expects the mutation
//! to be noticed.
//!
//! Outside this crate's own tests the type is empty and [`Planted::breaks`] is always false.

/// A rule to leave out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "some rules are the driver's: the tests' worlds break them"
    )
)]
pub(crate) enum Mutation {
    /// Replies that show a group's data do not wait until every member has heard of the group.
    Gate,
    /// The commit itself is answered before every member has heard of the group.
    AcknowledgedBroadcast,
    /// Recovery of a last group ignores what survivors heard.
    SurvivorEvidence,
    /// Recovery of a last group ignores the evidence in the batch headers of the other dead
    /// threads.
    HeaderEvidence,
    /// The header of a batch has the newest unstable group of each other thread only.
    OneGroupInEvidence,
    /// Of each thread only the newest group is remembered for recovery and for joiners.
    OneGroupRemembered,
    /// A group that is heard of after a newer one of its thread is taken for stable.
    LateGroupsIgnored,
    /// An instance that is asked for a transaction's status does not lift its clock to the asker's
    /// snapshot.
    Lift,
    /// The SCN of a group is drawn without marking the group pending first.
    PendingMark,
    /// Messages carry no evidence of groups that rest on other instances.
    EvidenceInMessages,
    /// Recovery takes an SCN that is not above the survivors' clocks.
    Floor,
    /// A joiner is not told of the groups that took effect before.
    JoinersAreNotTold,
    /// A member dies before it has told a joiner of its groups, and the joiner takes snapshots
    /// before it is decided when the member's last group took effect.
    JoinBesideTheDead,
    /// A group that stands in one member's memory counts as known to all.
    MemoryTakenForStable,
    /// Snapshots are taken without looking at what others have put into this instance's memory.
    MemoryUnreadBySnapshots,
    /// SCNs of groups are drawn without looking at what others have put into this instance's
    /// memory.
    MemoryUnreadByDraws,
    /// An instance that enters an epoch reports what it knows without looking at what others have
    /// put into its memory.
    MemoryUnreadByReports,
    /// An instance that wants to hear when a group is known to all is not told.
    StableUntold,
    /// R1: exclusive ownership is granted without taking shared copies back.
    NoInvalidation,
    /// R2: a current copy leaves before its redo is durable.
    ShipUnflushed,
    /// R3: a past image is copied for readers as if it were current.
    CopyFromPastImage,
    /// R4: a reader is sent to disk while another instance holds the block.
    GrantDiskBesideExclusive,
    /// R5: a dirty block is given away without keeping its past image and redo.
    NoPastImage,
    /// R6: messages of older epochs are looked at.
    AdmitOldEpochs,
    /// R6: the latest request is served first.
    ServeTheLatest,
    /// R6: an exclusive holder that only serves readers stays one.
    NeverStepDown,
    /// R7: a grant is recalled before the sessions it was made for have latched it.
    RecallFromGuests,
    /// 9: an order that overtakes the installation is answered at once.
    AnswerBeforeInstallation,
    /// 13: a master forgets a request when its service ends.
    ForgetRequests,
    /// 17b: nobody inherits the dead owner's duty to write.
    NoInheritedDuty,
    /// 8: a session compares the mode after latching, and does not compare the ownership
    /// generation.
    ModeWithoutGeneration,
    /// 11: what was read before the grant is used.
    ReadBeforeGrant,
    /// 5: a frame is given away while a write of it is in flight.
    CloseDuringWrite,
    /// R8: a reader's request stands behind a transfer that waits for the log.
    ReadersWaitForFlush,
    /// Enqueues: a recall is answered while an owner still uses the lock.
    RecallFromUsers,
    /// Enqueues: owners are granted a lock that is recalled.
    GrantDuringRecall,
    /// Enqueues: a value is believed after the death of an instance that may have changed it.
    ValueOutlivesWriter,
    /// Enqueues: a lock that a dead instance had is granted before it is decided when the dead
    /// instance's last commits took effect.
    GrantInDoubt,
    /// Enqueues: a joiner is not told which implied modes others have taken away from everybody.
    NewcomersTakeAll,
    /// Enqueues: a recall is answered without asking who uses the implied mode.
    IgnoreImplied,
    /// Enqueues: an owner that has a lock, and asks for it again or wants it stronger, waits behind
    /// recalls and requests that wait for this owner's end.
    ConvertersQueue,
    /// Enqueues: holders are told what the first request in the queue wants, and nothing of the
    /// others.
    QueueUntold,
    /// Enqueues: what is recalled is given up although an owner waits here that came before.
    RecallFromWaiters,
    /// Orders of a service long ended are carried out.
    IgnoreTurns,
    /// Moved granules: messages of older terms are looked at.
    AdmitOldTerms,
    /// Moved granules: the new master serves before everybody has declared.
    OpenUndeclared,
    /// Moved granules: a joiner serves before it knows which granules were taken.
    NewcomerUntaught,
    /// Moved granules: when a granule's master is gone, the masters of the hash buckets go on with
    /// the entries they know.
    KeepEntriesOfTheGone,
    /// Moved granules: the recoverer tells the names in dead threads only to the instances that it
    /// believes to be the masters.
    NamesByBelief,
    /// Sequences: values are taken before every member has declared what it was given.
    DrawUndeclared,
    /// Sequences: what others were given is not remembered.
    ForgetDeclarations,
    /// Sequences: a transaction commits without waiting for the log that has the mark.
    CommitUnsecured,
    /// Sequences: values also go to sessions that came after the request was sent.
    ShareWithLateComers,
    /// Sequences: an instance that sets a sequence keeps the values that were on their way to it.
    KeepAfterSet,
}

/// The rule left out in this machine, if any.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Planted {
    #[cfg(test)]
    pub(crate) mutation: Option<Mutation>,
}

impl Planted {
    #[cfg(test)]
    pub(crate) fn breaks(self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
    #[cfg(not(test))]
    #[inline(always)]
    pub(crate) fn breaks(self, _mutation: Mutation) -> bool {
        false
    }
}
