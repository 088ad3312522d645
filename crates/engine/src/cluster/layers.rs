//! The layers below the cluster, as it knows them.

use super::members::{Kinds, Layer, Members};
use super::setup::Evidence;
use crate::bulletin::{BULLETIN_KINDS, Bulletins};
use crate::inquiry::{INQUIRY_KINDS, Inquiries};
use crate::sequences::{SEQUENCE_KINDS, Sequences};
use crate::{Progress, Result};
use block::{BlockBuf, InstanceId, LastGroups};
use cache::{Cache, Reconfiguration};
use interconnect::{Member, Post, kinds};
use std::sync::Arc;
use std::time::Duration;
use txn::{Departed, TxnManager};
use wait::{Event, Waiter};

/// How often a leaver looks whether the others have taken over what it had.
const LEAVE_LOOK: Duration = Duration::from_millis(20);

/// The protocols of an instance's own layers, in the order in which they hear of changes. `lms` is
/// the number of connections for blocks to each other instance.
///
/// Transactions come first, for two reasons: blocks are sent with evidence that knows the members,
/// and a leaver's commits are acknowledged before it gives its blocks away. Sequences come before
/// blocks: after a death, no value is drawn from a recovered block with knowledge from before the
/// death.
pub(crate) fn of_core(
    txns: &Arc<TxnManager>,
    (inquiries, bulletins): (&Arc<Inquiries>, &Arc<Bulletins>),
    sequences: &Arc<Sequences>,
    lms: u8,
) -> Vec<(Kinds, Arc<dyn Layer>)> {
    let blocks = Blocks {
        cache: txns.cache().clone(),
        lms,
    };
    vec![
        (kinds::TXN, Arc::new(Transactions(txns.clone()))),
        (SEQUENCE_KINDS, sequences.clone()),
        (kinds::CACHE, Arc::new(blocks)),
        (INQUIRY_KINDS, inquiries.clone()),
        (BULLETIN_KINDS, bulletins.clone()),
    ]
}

/// The layer of commits, status, horizon, waits for transactions, and locks.
struct Transactions(Arc<TxnManager>);

impl Layer for Transactions {
    fn join(&self, post: Arc<dyn Post>) -> Result<()> {
        self.0.join_cluster(post);
        Ok(())
    }
    fn message(
        &self,
        from: InstanceId,
        epoch: u64,
        kind: u16,
        body: &[u8],
        block: Option<&BlockBuf>,
    ) -> std::result::Result<(), String> {
        self.0
            .message(from, epoch, kind, body, block)
            .map_err(|e| e.to_string())
    }
    fn reconnected(&self, peer: InstanceId) {
        self.0.reconnected(peer);
    }
    fn tick(&self) {
        self.0.tick();
    }
    fn members_changed(&self, members: &Members) -> Result<()> {
        let departed = Departed {
            in_limbo: &members.in_limbo,
            in_doubt: !members.dead.is_empty(),
        };
        Ok(self
            .0
            .members_changed(members.epoch, &members.numbers(), departed)?)
    }
    fn settled(&self, _: u64) {
        self.0.settled();
    }
    fn leaving(&self, _: &dyn Progress) -> Result<()> {
        self.0.leave();
        Ok(())
    }
}

/// The [`Evidence`] of group commits that stands in front of every message.
pub(crate) struct Commits(pub Arc<TxnManager>);

impl Evidence for Commits {
    fn header_into(&self, out: &mut Vec<u8>) {
        self.0.header_into(out);
    }
    fn header_arrived(
        &self,
        from: InstanceId,
        epoch: u64,
        bytes: &[u8],
    ) -> std::result::Result<usize, String> {
        self.0
            .header_arrived(from, epoch, bytes)
            .map_err(|e| e.to_string())
    }
    fn last_groups_of(&self, instance: InstanceId) -> LastGroups {
        self.0.last_groups_of(instance)
    }
}

/// The layer of the buffer cache.
struct Blocks {
    cache: Arc<Cache>,
    /// Shards of the blocks; each has a connection to each other instance.
    lms: u8,
}

impl Layer for Blocks {
    fn join(&self, post: Arc<dyn Post>) -> Result<()> {
        Ok(self.cache.join_cluster(post, self.lms)?)
    }
    fn message(
        &self,
        from: InstanceId,
        epoch: u64,
        kind: u16,
        body: &[u8],
        block: Option<&BlockBuf>,
    ) -> std::result::Result<(), String> {
        self.cache
            .message(from, epoch, kind, body, block)
            .map_err(|e| e.to_string())
    }
    fn reconnected(&self, peer: InstanceId) {
        self.cache.reconnected(peer);
    }
    fn tick(&self) {
        self.cache.tick();
    }
    fn members_changed(&self, members: &Members) -> Result<()> {
        let lives = |of: &[Member]| of.iter().map(|m| (m.instance, m.incarnation)).collect();
        self.cache.reconfigure(&Reconfiguration {
            epoch: members.epoch,
            members: lives(&members.up),
            dead: lives(&members.dead),
            in_limbo: members.in_limbo.clone(),
            recoverer: members.recoverer(),
        });
        Ok(())
    }

    /// Writes and lets go of every block. It also waits until others have written the blocks that
    /// they got from here and have changed since; otherwise their redo would need this thread's.
    fn leaving(&self, progress: &dyn Progress) -> Result<()> {
        let mut at_first = None;
        loop {
            self.cache.checkpoint()?;
            let left = self.cache.release_everything() + self.cache.past_images();
            if left == 0 {
                return Ok(());
            }
            let total = *at_first.get_or_insert(left);
            let done = total.saturating_sub(left) as u64;
            progress.step("leaving: blocks let go", done, total as u64);
            Waiter::new().wait(
                Event::RdbmsIpcMessage,
                [0; 3],
                Some(seam::now() + LEAVE_LOOK),
            );
        }
    }
    fn stopped(&self) {
        self.cache.leave_cluster();
    }
}
