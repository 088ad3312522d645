//! Rules that tests may break on purpose. A model or simulation that does not notice a broken rule proves nothing about
//! it, so for every rule there is a mutation here and a test that expects it to be found. Outside this crate's own
//! tests the type is empty and [`Planted::breaks`] is always false.

/// A rule to leave out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Mutation {
    /// Replies that show a group's data do not wait until every member has heard of the group.
    Gate,
    /// The commit itself is answered before every member has heard of the group.
    AcknowledgedBroadcast,
    /// Recovery of a last group ignores what survivors heard.
    SurvivorEvidence,
    /// Recovery of a last group ignores the evidence in the batch headers of the other dead threads.
    HeaderEvidence,
    /// Who is asked for a transaction's status does not lift its clock to the asker's snapshot.
    Lift,
    /// The SCN of a group is drawn without marking the group pending first.
    PendingMark,
    /// Messages carry no evidence of groups that rest on other instances.
    EvidenceInMessages,
    /// Recovery takes an SCN that is not above the survivors' clocks.
    Floor,
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
