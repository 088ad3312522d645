//! The races of docs/design.md, each told as a story. The numbers in the tests' names are that
//! list's.

use super::tests::{READ, model};
use super::world::{Action, Config, Letter, World, dba};
use super::*;
use crate::ids::{Bucket, Epoch, Incarnation, Member, Term};
use crate::planted::{Mutation, Planted};
use block::ids::{Dba, InstanceId};

/// A world in which only what the story says happens.
struct Story(World);

impl Story {
    fn of(nodes: usize, blocks: u32, mutation: Option<Mutation>) -> Self {
        let config = Config {
            planted: Planted { mutation },
            crashes: 9,
            rejoins: 9,
            evictions: 9,
            takes: 9,
            ..model(nodes, blocks, &[READ, Want::Shared, Want::Exclusive], 99)
        };
        Story(World::new(config))
    }

    fn go(&mut self, action: Action) {
        assert!(
            self.0.actions().contains(&action),
            "{action:?} cannot happen"
        );
        self.0.apply(&action);
    }

    /// Lets everything go on until nothing is left to do, except the actions held back.
    fn settle_without(&mut self, held_back: impl Fn(&Action) -> bool) {
        // After a broken rule the world need not come to an end.
        while let Some(action) = self.0.helpful_actions().into_iter().find(|a| !held_back(a))
            && self.fine()
        {
            self.0.apply(&action);
        }
    }

    /// Lets everything go on until nothing is left to do, with these letters held back.
    fn settle_holding(&mut self, held_back: impl Fn(&Letter) -> bool) {
        loop {
            let world = &self.0;
            let held =
                |a: &Action| matches!(*a, Action::Deliver(l) if held_back(&world.letters[l]));
            let Some(action) = world.helpful_actions().into_iter().find(|a| !held(a)) else {
                return;
            };
            self.0.apply(&action);
        }
    }

    /// Delivers the first letter of this kind.
    fn deliver(&mut self, wanted: impl Fn(&Letter) -> bool) {
        let letter = self.0.letters.iter().position(wanted);
        self.go(Action::Deliver(letter.expect("it is on its way")));
    }

    fn settle(&mut self) {
        self.settle_without(|_| false);
        for n in 0..self.0.nodes.len() {
            if self.0.recovering() && self.0.nodes[n].is_some() {
                self.0.with(n, 0, |shard, out| shard.timer(out));
                self.settle_without(|_| false);
            }
        }
        assert!(
            !self.fine() || !self.0.pending(),
            "a session is left waiting"
        );
    }

    /// Lets node `n` become the master of the block's granule.
    fn take(&mut self, n: usize, block: Dba) {
        let node = self.0.nodes[n].as_ref().expect("it lives");
        let granule = node.shard.granule_of(block);
        self.go(Action::Take(n, granule));
    }

    fn master_of(&self, n: usize, block: Dba) -> usize {
        let node = self.0.nodes[n].as_ref().expect("it lives");
        usize::from(node.shard.master_of(block).0) - 1
    }

    fn fine(&self) -> bool {
        self.0.violation.is_none()
    }

    /// The block with the lowest address whose bucket this node masters.
    fn block_of(&self, node: usize) -> Dba {
        let blocks = (0..self.0.config.blocks).map(dba);
        let mut his = blocks.filter(|&b| self.0.bucket(b) % self.0.config.nodes == node);
        his.next()
            .expect("some block falls into a bucket of each node")
    }
}

/// A changes a block and commits. C takes the block exclusively, changes nothing and dies. C's redo
/// does not name the block, and disk is old. Only A's declared past image says that something is
/// missing.
#[test]
fn c17a_the_last_owner_died_without_changing_the_block() {
    let mut story = Story::of(3, 1, None);
    let block = dba(0);
    story.go(Action::Start(0, block, Want::Exclusive));
    story.settle();
    story.go(Action::Start(2, block, Want::Exclusive));
    story.settle_without(|a| matches!(a, Action::Execute(2, _)));
    story.go(Action::Crash(2, false));
    story.go(Action::Start(1, block, Want::Shared));
    story.settle();
    assert_eq!(story.0.violation, None);
}

/// A changes a block and steps down; B holds it shared and clean; A dies. The block is pruned
/// because B has it. If B could let go of its copy, C would read the old version from disk.
#[test]
fn c17b_a_clean_copy_lets_the_block_be_pruned_and_is_evicted() {
    let run = |mutation| {
        let mut story = Story::of(3, 1, mutation);
        let block = dba(0);
        story.go(Action::Start(0, block, Want::Exclusive));
        story.settle();
        story.go(Action::Start(1, block, Want::Shared));
        story.settle();
        story.go(Action::Crash(0, false));
        story.settle_without(|a| matches!(a, Action::BeginWrite(..)));
        if story.0.actions().contains(&Action::Evict(1, block)) {
            story.go(Action::Evict(1, block));
        }
        story.go(Action::Start(2, block, Want::Shared));
        story.settle();
        story.fine()
    };
    assert!(run(None));
    assert!(!run(Some(Mutation::NoInheritedDuty)));
}

/// The recoverer dies before it has finished. The next recoverer starts again, with both threads.
#[test]
fn c18_the_recoverer_dies() {
    for steps in 0..12 {
        let mut story = Story::of(3, 2, None);
        for n in [0, 1] {
            story.go(Action::Start(n, dba(n as u32), Want::Exclusive));
            story.settle();
            story.go(Action::Start(n, dba(1 - n as u32), Want::Exclusive));
            story.settle();
        }
        story.go(Action::Crash(0, false));
        for _ in 0..steps {
            if let Some(action) = story.0.helpful_actions().into_iter().next() {
                story.0.apply(&action);
            }
        }
        story.go(Action::Crash(1, false));
        story.go(Action::Start(2, dba(0), Want::Exclusive));
        story.settle();
        story.go(Action::Start(2, dba(1), Want::Exclusive));
        story.settle();
        assert_eq!(story.0.violation, None, "second death after {steps} steps");
        assert!(!story.0.recovering(), "the dead threads stay open");
    }
}

/// An instance dies and is back before any other noticed. What it mastered is declared again before
/// it serves.
#[test]
fn c16_a_master_that_came_back_with_an_empty_directory() {
    let mut story = Story::of(3, 3, None);
    let block = story.block_of(1);
    story.go(Action::Start(0, block, Want::Exclusive));
    story.settle();
    story.go(Action::Crash(1, false));
    story.go(Action::Rejoin(1));
    story.go(Action::Start(2, block, Want::Exclusive));
    story.settle();
    assert_eq!(story.0.violation, None);
}

/// While no member has declared anything yet, blocks whose master did not change are served.
#[test]
fn c20_only_moved_buckets_are_frozen() {
    let mut story = Story::of(3, 8, None);
    let (kept, moved) = (story.block_of(0), story.block_of(2));
    story.go(Action::Crash(2, false));
    story.go(Action::Decide);
    story.go(Action::Enter(0));
    story.go(Action::Enter(1));
    story.go(Action::Start(0, kept, Want::Exclusive));
    story.go(Action::Start(0, moved, Want::Exclusive));
    story.settle_without(|a| matches!(a, Action::Deliver(_) | Action::ReadRedo(_)));
    assert_eq!(
        story.0.finished(),
        1,
        "the kept bucket serves, the moved one does not"
    );
    story.settle();
    assert_eq!(story.0.finished(), 2);
}

/// While no member has declared anything yet of a granule that moves, everything else is served. A
/// request that was on its way to the old master is served by the new one.
#[test]
fn c20_only_the_granule_that_moves_is_frozen() {
    let mut story = Story::of(3, 8, None);
    let moves = story.block_of(1);
    let stays = dba((0..8).find(|&b| dba(b) != moves).expect("there are more"));
    story.go(Action::Start(2, moves, Want::Exclusive));
    story.take(0, moves);
    story.go(Action::Start(0, moves, Want::Exclusive));
    story.go(Action::Start(0, stays, Want::Exclusive));
    story.go(Action::Start(1, stays, Want::Exclusive));
    let asks = |l: &Letter| l.to == 1 && matches!(l.message, Message::DeclareWanted { .. });
    story.deliver(asks);
    story.settle_holding(|l| matches!(l.message, Message::Declare { .. }));
    assert_eq!(
        story.0.finished(),
        2,
        "what stays is served, what moves is not"
    );
    story.settle();
    assert_eq!(story.0.finished(), 4);
    assert_eq!(story.0.violation, None);
    for n in 0..3 {
        assert_eq!(story.master_of(n, moves), 0);
    }
}

/// Two instances take one granule before they hear of each other. In the end all agree on one of
/// them.
#[test]
fn c20_two_take_a_granule_at_once() {
    let mut story = Story::of(3, 2, None);
    let block = dba(0);
    story.go(Action::Start(1, block, Want::Exclusive));
    story.settle();
    story.take(0, block);
    story.take(2, block);
    for n in 0..3 {
        story.go(Action::Start(n, block, Want::Exclusive));
    }
    story.settle();
    assert_eq!(story.0.violation, None);
    let masters: Vec<_> = (0..3).map(|n| story.master_of(n, block)).collect();
    assert_eq!(masters, [2, 2, 2]);
}

/// A granule stays its master's when others die. When its master dies, it belongs to the masters of
/// its hash buckets again.
#[test]
fn c20_a_granule_that_was_taken_and_deaths() {
    let run = |mutation| {
        let mut story = Story::of(3, 3, mutation);
        let block = story.block_of(1);
        story.take(0, block);
        story.settle();
        story.go(Action::Start(1, block, Want::Exclusive));
        story.settle();
        story.go(Action::Crash(2, false));
        story.settle();
        let kept = [0, 1].map(|n| story.master_of(n, block)) == [0, 0];
        story.go(Action::Rejoin(2));
        story.settle();
        let heard = story.master_of(2, block) == 0;
        story.go(Action::Start(2, block, Want::Exclusive));
        story.settle();
        story.go(Action::Crash(0, false));
        story.go(Action::Start(1, block, Want::Exclusive));
        story.settle();
        let returned = story.master_of(1, block) != 0;
        kept && heard && returned && story.fine()
    };
    assert!(run(None));
    assert!(!run(Some(Mutation::KeepEntriesOfTheGone)));
}

/// Two exclusive copies are declared to a master, and only the one of the later turn is there.
///
/// Node 2 takes a granule in the epoch in which its hash bucket comes to node 1, which is not told
/// of the move yet. Node 0 declares its copy to node 2, then lets go of it. That notice means
/// nothing to a master that is still asked for declarations. Node 0 declares nothing to node 1, and
/// node 1 serves the block itself.
#[test]
fn c20_a_copy_that_was_let_go_after_it_was_declared() {
    for released_is_lost in [false, true] {
        let mut story = Story::of(3, 2, None);
        (story.0.config.background, story.0.config.remasters) = (true, 1);
        let block = story.block_of(0);
        story.go(Action::Start(0, block, Want::Exclusive));
        story.settle();
        story.go(Action::Remaster(story.0.bucket(block), 1));
        for n in 0..3 {
            story.go(Action::Enter(n));
        }
        let asks = |from, to| {
            move |l: &Letter| {
                let asks = matches!(l.message, Message::DeclareWanted { .. });
                asks && (l.from, l.to) == (from, to)
            }
        };
        story.take(2, block);
        story.deliver(asks(2, 0));
        story.deliver(|l| matches!(l.message, Message::Declare { .. }) && (l.from, l.to) == (0, 2));
        story.go(Action::Evict(0, block));
        let lets_go = |l: &Letter| matches!(l.message, Message::Released { .. });
        match released_is_lost {
            true => story.0.letters.retain(|l| !lets_go(l)),
            false => story.deliver(lets_go),
        }
        story.deliver(asks(1, 0));
        story.0.config.background = false; // what node 1 changes is not written by itself
        story.go(Action::Start(1, block, Want::Exclusive));
        story.settle_holding(asks(2, 1));
        assert_eq!(story.0.finished(), 2, "node 1 has not heard of the term");
        for n in [2, 0, 1] {
            story.go(Action::Start(n, block, Want::Exclusive));
        }
        story.settle();
        assert_eq!(story.0.violation, None);
    }
}

/// A joiner masters a hash bucket with a block of a granule that was taken. It has asked every
/// member what it holds; then the granule's master gives that block to another instance.
#[test]
fn c16_a_newcomer_hears_what_is_taken_before_it_serves() {
    let run = |mutation| {
        let mut story = Story::of(3, 3, mutation);
        story.go(Action::Crash(1, false));
        story.settle();
        story.go(Action::Decide);
        story.settle();
        story.take(0, dba(0));
        story.take(0, dba(1));
        story.take(0, dba(2));
        story.settle();
        story.go(Action::Rejoin(1));
        story.settle();
        let block = story.block_of(1);
        story.go(Action::Start(2, block, Want::Exclusive));
        story.settle();
        story.go(Action::Start(1, block, Want::Exclusive));
        story.settle_without(|a| matches!(a, Action::Execute(2, _)));
        story.fine()
    };
    assert!(run(None));
    assert!(!run(Some(Mutation::NewcomerUntaught)));
}

/// Messages of a reconfiguration that another death overtook have no effect.
#[test]
fn c20_messages_of_an_abandoned_reconfiguration_are_ignored() {
    let mut story = Story::of(4, 1, None);
    let block = dba(0);
    story.go(Action::Start(2, block, Want::Exclusive));
    story.settle();
    story.go(Action::Crash(0, false));
    story.go(Action::Decide);
    for n in 1..4 {
        story.go(Action::Enter(n));
    }
    // The questions and declarations of this epoch are still on their way when the next instance
    // dies.
    let late = story.0.letters.len();
    assert!(late > 0);
    story.go(Action::Crash(3, false));
    story.go(Action::Decide);
    story.go(Action::Enter(1));
    story.go(Action::Enter(2));
    story.go(Action::Start(1, block, Want::Exclusive));
    story.settle();
    assert_eq!(story.0.violation, None);
}

/// A reader is served while the holder waits for its log before it may ship the block (R3, R8).
#[test]
fn r3_a_reader_does_not_wait_for_the_flush_that_a_transfer_waits_for() {
    let run = |mutation| {
        let mut story = Story::of(3, 1, mutation);
        let block = dba(0);
        story.go(Action::Start(0, block, Want::Exclusive));
        story.settle_without(|a| matches!(a, Action::Flush(_)));
        let no_flush = |a: &Action| matches!(a, Action::Flush(_));
        story.go(Action::Start(1, block, Want::Exclusive));
        story.settle_without(no_flush);
        story.go(Action::Start(2, block, READ));
        story.settle_without(no_flush);
        story.fine() && story.0.finished() == 2 // the block's writer and the reader
    };
    assert!(run(None));
    assert!(!run(Some(Mutation::ReadersWaitForFlush)));
}

/// Requests for one block are served in the order in which they came to the master (R6).
#[test]
fn r6_requests_are_served_in_order() {
    let run = |mutation| {
        let mut story = Story::of(4, 1, mutation);
        let block = dba(0);
        story.go(Action::Start(0, block, Want::Exclusive));
        story.settle();
        let no_flush = |a: &Action| matches!(a, Action::Flush(_));
        for n in 1..4 {
            story.go(Action::Start(n, block, Want::Exclusive));
            story.settle_without(no_flush);
        }
        let mut order = Vec::new();
        while let Some(action) = story.0.helpful_actions().into_iter().next() {
            if let Action::Execute(n, _) = action {
                order.push(n);
            }
            story.0.apply(&action);
        }
        order
    };
    // The first transfer waits for the log of instance 1's changes. The other requests come
    // meanwhile.
    assert_eq!(run(None), [1, 2, 3]);
    assert_eq!(run(Some(Mutation::ServeTheLatest)), [1, 3, 2]);
}

/// A holder that only serves readers steps down (R6).
///
/// A writer's block is read elsewhere, as copies, because its redo is not durable. A holder that
/// does nothing but make copies gives up its right to change the block, and readers get shared
/// copies to keep.
#[test]
fn r6_a_holder_that_only_serves_readers_steps_down() {
    let run = |mutation| {
        let mut story = Story::of(3, 1, mutation);
        let block = dba(0);
        story.go(Action::Start(0, block, Want::Exclusive));
        let no_flush = |a: &Action| matches!(a, Action::Flush(_));
        story.settle_without(no_flush);
        for _ in 0..STEP_DOWN_AFTER_COPIES {
            story.go(Action::Start(1, block, READ));
            story.settle_without(no_flush);
        }
        let mode = |story: &Story, n: usize| {
            let node = story.0.nodes[n].as_ref().expect("it lives");
            node.shard.mode(block).map(|(mode, _)| mode)
        };
        assert_eq!(mode(&story, 1), None, "it has had copies only");
        story.settle();
        let holder = mode(&story, 0);
        story.go(Action::Start(1, block, READ));
        story.settle();
        assert!(story.fine());
        (holder, mode(&story, 1))
    };
    let shared = Some(Mode::Shared);
    assert_eq!(run(None), (shared, shared));
    let (holder, _) = run(Some(Mutation::NeverStepDown));
    assert_eq!(holder, Some(Mode::Exclusive));
}

/// A lone instance sends nothing.
#[test]
fn a_lone_instance_sends_no_messages() {
    let mut story = Story::of(1, 4, None);
    for b in 0..4 {
        for want in [READ, Want::Shared, Want::Exclusive] {
            story.go(Action::Start(0, dba(b), want));
            assert!(story.0.letters.is_empty());
            story.settle();
            assert!(story.0.letters.is_empty());
        }
    }
    assert!(story.fine());
}

/// A block that leaves the cache before the first epoch is not declared.
///
/// What an instance cached alone becomes known to its shard when others come. Some of it leaves the
/// cache before the epoch has begun, when there is no master to be told.
#[test]
fn what_left_the_cache_before_the_first_epoch_is_not_declared() {
    let [kept, gone] = [0, 1].map(dba);
    let [me, other] = [1, 2].map(|i| Member {
        instance: InstanceId(i),
        incarnation: Incarnation(1),
    });
    let mut shard = Shard::new(me.instance);
    shard.adopt(kept);
    shard.adopt(gone);
    shard.disown(gone);
    let plan = Plan {
        epoch: Epoch(1),
        members: [me, other].into(),
        masters: vec![other.instance],
        recovering: Default::default(),
        recoverer: me.instance,
    };
    let mut out = Vec::new();
    shard.reconfigure(plan, &mut out);
    assert!(shard.mode(kept).is_some() && shard.mode(gone).is_none());
    let all = Message::DeclareWanted {
        buckets: vec![Bucket::Hash(0)],
        blocks: Vec::new(),
    };
    out.clear();
    shard.message(other.instance, Term::BY_HASH, all, &mut out);
    let said = format!("{out:?}");
    let names = |block: Dba| said.contains(&format!("{block:?}"));
    assert!(names(kept) && !names(gone), "{said}");
}
