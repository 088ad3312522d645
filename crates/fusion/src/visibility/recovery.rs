//! When the last groups of dead threads took effect.

use super::Evidence;
use crate::ids::GroupNo;
use crate::planted::{Mutation, Planted};
use block::ids::{InstanceId, Scn};

/// What a survivor knows: its clock, and the newest groups it heard of from every thread.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Report {
    pub clock: Scn,
    pub evidence: Vec<Evidence>,
}

/// What the dead threads themselves say.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct RedoFindings {
    /// Durable groups with commits whose SCN stands in no header of their own thread.
    pub undecided: Vec<(InstanceId, GroupNo)>,
    /// Evidence in the batch headers of all dead threads.
    pub evidence: Vec<Evidence>,
    /// The highest SCN of any record or header in the dead threads.
    pub highest: Scn,
}

/// Gives every undecided group its SCN: the one that a survivor or another dead thread knows of,
/// otherwise one above every survivor's clock and everything in the dead threads. Groups decided in
/// the second way share their SCN: nothing that is left depends on one of them without the other.
///
/// Of two groups of one thread the older may come out above the younger. That happens if a survivor
/// has heard of the younger one alone: it stood in the survivor's memory while the older one was
/// still on its way in a message. Nothing is then seen without what it rests on. The older group is
/// undecided, so the younger one's batch was issued before the older took effect, and rests on
/// nothing of it. Whatever else rests on the older group has it as evidence.
pub fn decide(findings: &RedoFindings, survivors: &[Report]) -> Vec<Evidence> {
    decide_with(findings, survivors, Planted::default())
}

pub(crate) fn decide_with(
    findings: &RedoFindings,
    survivors: &[Report],
    planted: Planted,
) -> Vec<Evidence> {
    let floor = survivors
        .iter()
        .map(|s| s.clock)
        .chain([findings.highest])
        .max()
        .unwrap_or_default();
    let above = if planted.breaks(Mutation::Floor) {
        Scn(findings.highest.0 + 1)
    } else {
        Scn(floor.0 + 1)
    };
    let heard = survivors
        .iter()
        .flat_map(|s| &s.evidence)
        .filter(|_| !planted.breaks(Mutation::SurvivorEvidence));
    let written = findings
        .evidence
        .iter()
        .filter(|_| !planted.breaks(Mutation::HeaderEvidence));
    let known: Vec<&Evidence> = heard.chain(written).collect();
    findings
        .undecided
        .iter()
        .map(|&(instance, group)| Evidence {
            instance,
            group,
            scn: known
                .iter()
                .find(|e| (e.instance, e.group) == (instance, group))
                .map_or(above, |e| e.scn),
        })
        .collect()
}
