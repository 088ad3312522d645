//! Deaths at moments that chance seldom finds.

use super::*;

/// Two instances that have joined.
fn two(rng: &mut Rng) -> (Arc<Cluster>, [Arc<Life>; 2]) {
    let cluster = Cluster::new(1);
    for n in 0..2 {
        let own = create_of(ThreadId(id(n).0));
        cluster.start((id(n), 1), own, rng);
    }
    cluster.joined(rng);
    let living = cluster.living().try_into();
    let living = living.unwrap_or_else(|_| unreachable!("two have been started"));
    (cluster, living)
}

/// There are so many blocks that shards leave messages about many of them to themselves, to be
/// taken up in steps of their own.
#[test]
fn a_death_among_many_blocks() {
    const MANY: u32 = 9_000;
    let mut rng = Rng(1);
    let cluster = Cluster::sized(1, MANY, 6_000);
    for n in 0..3 {
        let own = create_of(ThreadId(id(n).0));
        cluster.start((id(n), 1), own, &mut rng);
    }
    cluster.joined(&mut rng);
    let living = cluster.living();
    std::thread::scope(|s| {
        for (n, life) in living.iter().enumerate() {
            let cluster = &cluster;
            s.spawn(move || {
                for b in (1..=MANY).filter(|b| *b as usize % 3 == n) {
                    cluster.format_and_increment(life, b).unwrap();
                }
                let redo = life.cache.redo();
                redo.flush_to(redo.end()).unwrap();
            });
        }
    });
    let survivor = &living[0];
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        // Measures what each kind of work waits for, by the owner of the blocks.
        for (whose, n) in [
            ("its own", 0),
            ("the other survivor's", 1),
            ("the dead's", 2),
        ] {
            let over = &over;
            s.spawn(move || {
                let mut rng = Rng(n);
                let (mut done, mut longest) = (0, Duration::ZERO);
                while !over.load(SeqCst) {
                    let b = 3 + 3 * rng.below(u64::from(MANY) / 3 - 1) + n;
                    let began = Instant::now();
                    drop(survivor.cache.write(dba(b as u32)).unwrap());
                    longest = longest.max(began.elapsed());
                    done += 1;
                }
                let us = longest.as_micros();
                println!("{whose} blocks: {done} latched, the longest wait took {us} us");
            });
        }
        std::thread::sleep(Duration::from_millis(20));
        cluster.kill(id(2), &mut rng);
        let began = Instant::now();
        let (epoch, _) = cluster.next_epoch(&mut rng);
        cluster.await_closed(epoch);
        println!("recovered in {} ms", began.elapsed().as_millis());
        over.store(true, SeqCst);
    });
    let expected = cluster.expected();
    for life in cluster.living() {
        for b in 1..=MANY {
            let found = value(&life.cache, b, true).unwrap();
            assert_eq!(
                found, expected[b as usize],
                "block {b} on {:?}",
                life.member
            );
        }
    }
}

/// A block that was only cleaned out is dirty, and no redo names it. Its owner dies while it writes
/// the block home, and leaves it torn. Nobody else has the block, or a survivor has a clean copy,
/// which it may let go of.
#[test]
fn a_home_is_torn_that_no_redo_names() {
    for copied in [false, true] {
        let mut rng = Rng(1);
        let (cluster, [survivor, dies]) = two(&mut rng);
        cluster.increment(&dies, 5).unwrap();
        dies.cache.checkpoint().unwrap();
        clean_out(&dies, 5).unwrap();
        if copied {
            assert_eq!(value(&survivor.cache, 5, true).unwrap(), 1);
        }
        // The checkpoint must pass what was cleaned out, so something is logged behind it.
        let mark = RecordHeader::NONE;
        dies.cache.mark(mark, Op::Heartbeat, &[], |_, _| ());
        dies.data.writes_left.store(1, SeqCst);
        dies.data.torn_at.store(storage::SECTOR as u64, SeqCst);
        dies.data.life.store(DYING, SeqCst);
        assert!(dies.cache.checkpoint().is_err());
        cluster.kill(id(1), &mut rng);
        let (epoch, _) = cluster.next_epoch(&mut rng);
        cluster.await_closed(epoch);
        survivor.cache.checkpoint().unwrap();
        survivor.cache.release_everything();
        assert_eq!(
            value(&survivor.cache, 5, true).unwrap(),
            1,
            "copied: {copied}"
        );
    }
}

/// The dead instance wrote a block home and let go of it before its checkpoint moved on. Its redo
/// names the block all the same, and an instance that has a copy owes the write (17b). That holds
/// also for a copy that was granted and could not be read so far.
#[test]
fn who_was_granted_a_block_and_has_not_read_it_owes_its_write() {
    const BLOCK: u32 = 5;
    let mut rng = Rng(1);
    let (cluster, [dies, survivor]) = two(&mut rng);
    cluster.increment(&dies, BLOCK).unwrap();
    let before_the_checkpoint = dies.own.after_crash(0);
    dies.cache.checkpoint().unwrap();
    assert_eq!(dies.cache.release_everything(), 0);
    survivor.data.unreadable.store(true, SeqCst);
    assert!(value(&survivor.cache, BLOCK, true).is_err());

    cluster.kill(dies.member.0, &mut rng);
    let epoch = cluster.epoch.fetch_add(1, SeqCst) + 1;
    survivor.cache.reconfigure(&Reconfiguration {
        epoch,
        members: vec![survivor.member],
        dead: vec![dies.member],
        in_limbo: vec![dies.member.0],
        recoverer: survivor.member.0,
    });
    let threads = read_dead(&[before_the_checkpoint]);
    survivor.cache.dead_redo(epoch, threads).unwrap();
    survivor.data.unreadable.store(false, SeqCst);
    assert_eq!(value(&survivor.cache, BLOCK, true).unwrap(), 1);
    cluster.await_closed(epoch);
    cluster.verify_recovery();
}
