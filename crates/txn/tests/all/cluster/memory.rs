//! Commits announced in memory to instances on the same machine (`txn::cluster::memory`, V10).
//! `BRAID_TXN_SEED` replays a seed.

use super::*;

const ACKNOWLEDGE: u16 = 101;
const MEMORY_OFFERED: u16 = 115;

fn commit(db: &Db, k: usize, session: &mut Transaction, n: u16) -> (TxnId, Scn) {
    let row = of(k, n);
    db.node(k).add(session, row, 1, LockWait::NoWait).unwrap();
    (session.id(), session.commit().unwrap())
}

/// A commit is seen without a question, because its announcement names the transaction.
fn sees(m: &TxnManager, txn: TxnId, snapshot: &Snapshot) -> bool {
    if m.verdict(Stamp::txn(txn), snapshot) == Verdict::Ask(txn) {
        m.learn(txn, snapshot.scn).unwrap();
    }
    m.verdict(Stamp::txn(txn), snapshot) == Verdict::Visible
}

#[test]
fn a_commit_is_announced_without_a_message_and_seen_by_the_next_snapshot() {
    let db = Db::over(Net::with_together([1, 2]), 2);
    db.net.run(seed(), || {
        let mut sessions = [db.node(1).session(), db.node(2).session()];
        let before = [ANNOUNCE, ACKNOWLEDGE, ASK].map(|kind| db.net.sent(kind));
        for n in 0..2000 {
            let (k, other) = (1 + n % 2, 2 - n % 2);
            let (txn, e) = commit(&db, k, &mut sessions[k - 1], n as u16);
            let snapshot = sessions[other - 1].statement();
            assert!(snapshot.scn >= e, "it looks before it takes the clock");
            assert!(sees(db.manager(other), txn, &snapshot));
            sessions[other - 1].end_statement();
        }
        let after = [ANNOUNCE, ACKNOWLEDGE, ASK].map(|kind| db.net.sent(kind));
        assert_eq!(after, before, "announcements, acknowledgements, questions");
    });
    db.stop();
}

/// The memory of an instance that does nothing fills up. Then the instance is told by messages, and
/// looks.
#[test]
fn nothing_is_lost_on_an_instance_that_does_not_look() {
    let db = Db::over(Net::with_together([1, 2]), 2);
    db.net.run(seed(), || {
        let mut writer = db.node(1).session();
        let before = db.net.sent(ANNOUNCE);
        let mut commits = Vec::new();
        // The loop writes half of 16,352 words, in records of four, unless the reader's own threads
        // look now and then.
        while db.net.sent(ANNOUNCE) == before {
            assert!(commits.len() < 100_000, "it does not fill up");
            commits.push(commit(&db, 1, &mut writer, commits.len() as u16));
        }
        assert!(commits.len() > 2000);
        let mut reader = db.node(2).session();
        let snapshot = reader.statement();
        let asked = db.net.sent(ASK);
        for (txn, e) in commits.into_iter().rev().take(100) {
            assert!(snapshot.scn >= e && sees(db.manager(2), txn, &snapshot));
        }
        assert_eq!(db.net.sent(ASK), asked);
    });
    db.stop();
}

/// An instance that died had written into another's memory. The other knows that when it enters the
/// epoch without the dead one.
#[test]
fn what_the_dead_have_put_here_is_known_in_the_next_epoch() {
    let db = Db::over(Net::with_together([1, 2]), 3);
    db.net.run(seed(), || {
        let mut writer = db.node(1).session();
        db.net.cut(1, 2);
        db.net.cut(1, 3);
        // Instance 3, on another machine, has heard nothing, so no client is told of this commit.
        let announced = db.net.sent(ANNOUNCE);
        std::thread::scope(|s| {
            s.spawn(|| {
                commit(&db, 1, &mut writer, 0);
            });
            // The announcement that 3 does not get is sent after 2 has it.
            until("announcement", || db.net.sent(ANNOUNCE) > announced);
            let newest = db.manager(1).last_groups_of(InstanceId(1)).newest();
            assert_ne!(db.manager(3).last_groups_of(InstanceId(1)).newest(), newest);
            let ids = [2, 3].map(InstanceId);
            db.manager(2)
                .members_changed(
                    2,
                    &ids,
                    Departed {
                        in_limbo: &[InstanceId(1)],
                        in_doubt: false,
                    },
                )
                .unwrap();
            assert_eq!(db.manager(2).last_groups_of(InstanceId(1)).newest(), newest);
            // Its evidence reaches instance 3 with the first message of the epoch.
            db.manager(3)
                .members_changed(
                    2,
                    &ids,
                    Departed {
                        in_limbo: &[InstanceId(1)],
                        in_doubt: false,
                    },
                )
                .unwrap();
            db.manager(2).tick();
            until("evidence", || {
                db.manager(3).last_groups_of(InstanceId(1)).newest() == newest
            });
            // Nobody has died in this test, so the writer must be let go.
            db.manager(1)
                .members_changed(2, &[InstanceId(1)], Departed::default())
                .unwrap();
        });
    });
    // The instances' books differ now, so there is no clean stop.
    std::mem::forget(db);
}

/// A region is written in the epoch in which it was offered. In the next epoch announcements are
/// messages until the region is offered again.
#[test]
fn memory_is_offered_again_in_every_epoch() {
    let db = Db::over(Net::with_together([1, 2]), 2);
    db.net.run(seed(), || {
        let mut writer = db.node(1).session();
        let ids = [1, 2].map(InstanceId);
        db.net.hold(MEMORY_OFFERED);
        for k in 1..=2 {
            db.manager(k)
                .members_changed(2, &ids, Departed::default())
                .unwrap();
        }
        let before = db.net.sent(ANNOUNCE);
        commit(&db, 1, &mut writer, 0);
        assert_eq!(db.net.sent(ANNOUNCE), before + 1);
        // The offers of this epoch come after the next one has begun, and are not taken.
        for k in 1..=2 {
            db.manager(k)
                .members_changed(3, &ids, Departed::default())
                .unwrap();
        }
        db.net.deliver_held(MEMORY_OFFERED, 2);
        commit(&db, 1, &mut writer, 1);
        assert_eq!(db.net.sent(ANNOUNCE), before + 2);
        db.net.heal();
        db.manager(2).tick();
        db.settle();
        let (txn, e) = commit(&db, 1, &mut writer, 2);
        assert_eq!(db.net.sent(ANNOUNCE), before + 2);
        let mut reader = db.node(2).session();
        let snapshot = reader.statement();
        assert!(snapshot.scn >= e && sees(db.manager(2), txn, &snapshot));
    });
    db.stop();
}

/// The announcer's ceiling is durable and younger than the one that the other instance knows. A
/// message would be refused, and come again.
#[test]
fn an_announcement_above_the_ceiling_known_here_finds_the_durable_one() {
    let db = Db::over(Net::with_together([1, 2]), 2);
    db.net.run(seed(), || {
        let clocks = [db.manager(1).clock(), db.manager(2).clock()];
        let old = clocks[1].ceiling();
        let new = Scn(clocks[0].ceiling().max(old).0 + (1 << 32));
        let control = &db.node(1).control;
        control.update(|c| c.scn_ceiling = new.0).unwrap();
        clocks[0].raise_ceiling(new);
        clocks[0].lift(Scn(old.0 + 5)).unwrap();
        let mut writer = db.node(1).session();
        let before = db.net.sent(ANNOUNCE);
        let (txn, e) = commit(&db, 1, &mut writer, 0);
        assert!(e > old && db.net.sent(ANNOUNCE) == before);
        let mut reader = db.node(2).session();
        let snapshot = reader.statement();
        assert!(snapshot.scn >= e && sees(db.manager(2), txn, &snapshot));
        assert!(clocks[1].ceiling() >= new);
    });
    db.stop();
}
