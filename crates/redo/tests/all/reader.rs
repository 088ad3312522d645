//! The end of a thread: torn tails, damage, stale batches, hostile bytes; two members; the merge of
//! threads.

use crate::common::*;
use block::Scn;
use proptest::prelude::*;
use redo::*;
use storage::{FileKind, SimStorage, Storage};

/// Overwrites a log block of thread 1 on the first file; `pos` lies within it.
fn overwrite(storage: &SimStorage, pos: u64, change: impl Fn(&mut [u8])) {
    let file = storage.open("redo/thread1_1.log", FileKind::Log).unwrap();
    let mut block = storage::AlignedBuf::zeroed(LOG_BLOCK);
    file.read_at(pos + LOG_BLOCK as u64, &mut block).unwrap();
    change(&mut block);
    file.write_at(pos + LOG_BLOCK as u64, &block).unwrap();
}

/// A thread with the opening batch at 0 and, from 4096 on, `n` batches of one record with `payload`
/// bytes.
fn thread_of(n: u64, payload: usize) -> SimStorage {
    let storage = SimStorage::new();
    create(&[&storage], 1);
    let t = open(&[&storage], 1, RestartPoint::FIRST, &clock()).unwrap();
    for number in 1..=n {
        let put = t.redo.append(&mut record(number, payload), |_, _| ());
        t.redo.flush_to(put.end).unwrap();
    }
    storage
}

#[test]
fn a_torn_tail_is_an_ordinary_end_whichever_of_its_blocks_is_missing() {
    for missing in 0..5 {
        let storage = thread_of(3, 4 * 4096);
        let last = 4096 + 2 * 5 * 4096;
        overwrite(&storage, last + missing * 4096, |b| b.fill(0));
        let (found, _, end) = read_all(&files(&[&storage], 1), RestartPoint::FIRST).unwrap();
        assert_eq!(
            (found.len(), end.next.pos.0, end.next.batch),
            (2, last, BatchNo(4)),
            "block {missing}"
        );
    }
}

#[test]
fn a_bad_batch_before_the_durable_end_is_damage() {
    for bad in 0..2 {
        let storage = thread_of(3, 4 * 4096);
        overwrite(&storage, 4096 + bad * 5 * 4096 + 4096, |b| b[100] ^= 1);
        let error = read_all(&files(&[&storage], 1), RestartPoint::FIRST).unwrap_err();
        assert!(
            matches!(error, Error::Damaged { pos, .. } if pos.0 == 4096 + bad * 5 * 4096),
            "{error}"
        );
    }
}

#[test]
fn two_damaged_batches_in_a_row_are_damage_too() {
    let storage = thread_of(4, 100);
    overwrite(&storage, 4096, |b| b.fill(0));
    overwrite(&storage, 2 * 4096, |b| b.fill(0));
    assert!(matches!(
        read_all(&files(&[&storage], 1), RestartPoint::FIRST),
        Err(Error::Damaged { .. })
    ));
}

/// The first of two readings decides where a thread ends. The second does not go on to what was
/// appended since, and does not take a missing batch for an end.
#[test]
fn read_again_a_thread_ends_where_it_did_before() {
    let storage = thread_of(2, 100);
    let logs = files(&[&storage], 1);
    let end = RedoReader::new(&logs, RestartPoint::FIRST)
        .finish()
        .unwrap();
    let t = open(&[&storage], 1, RestartPoint::FIRST, &clock()).unwrap();
    let put = t.redo.append(&mut record(3, 100), |_, _| ());
    t.redo.flush_to(put.end).unwrap();
    let newer = RedoReader::new(&logs, RestartPoint::FIRST)
        .finish()
        .unwrap();
    let again = RedoReader::again(&logs, &end).finish().unwrap();
    assert!(newer.next.pos > end.next.pos);
    assert_eq!((again.next, again.max_scn), (end.next, end.max_scn));

    // This is the last batch of the first reading. Alone it could have been torn.
    overwrite(&storage, 2 * 4096, |b| b.fill(0));
    let error = RedoReader::again(&logs, &end).finish().unwrap_err();
    assert!(
        matches!(error, Error::Damaged { pos, .. } if pos.0 == 2 * 4096),
        "{error}"
    );
}

#[test]
fn a_closed_thread_is_not_looked_at_beyond_its_end() {
    let storage = thread_of(3, 100);
    overwrite(&storage, 4096, |b| b.fill(0));
    let logs = files(&[&storage], 1);
    let end = RedoReader::of_closed(&logs, RestartPoint::FIRST).finish();
    assert_eq!(end.unwrap().next.pos.0, 4096);
    let torn = RedoReader::new(&logs, RestartPoint::FIRST).finish();
    assert!(matches!(torn, Err(Error::Damaged { .. })));
}

/// A batch that was torn by a crash must not come back to life. Its blocks that did reach the disk
/// are wiped before the thread goes on.
#[test]
fn the_tail_is_invalidated_before_the_thread_goes_on() {
    let storage = thread_of(2, 4 * 4096);
    let torn = 4096 + 5 * 4096;
    let mut saved = storage::AlignedBuf::zeroed(LOG_BLOCK);
    let file = storage.open("redo/thread1_1.log", FileKind::Log).unwrap();
    file.read_at(torn + 4096, &mut saved).unwrap();
    overwrite(&storage, torn, |b| b.fill(0));
    let t = open(&[&storage], 1, RestartPoint::FIRST, &clock()).unwrap();
    drop(t);
    // The missing block turns up, and the batch stays dead.
    file.write_at(torn + 4096, &saved).unwrap();
    let (found, _, end) = read_all(&files(&[&storage], 1), RestartPoint::FIRST).unwrap();
    assert_eq!((found.len(), end.next.pos.0), (1, torn));
}

#[test]
fn every_opening_is_a_new_incarnation_and_tells_the_last_groups_scn() {
    let storage = thread_of(2, 10);
    let clock = clock();
    clock.lift(Scn(1000)).unwrap();
    let t = open(&[&storage], 1, RestartPoint::FIRST, &clock).unwrap();
    let (_, groups, end) = read_all(&files(&[&storage], 1), RestartPoint::FIRST).unwrap();
    assert_eq!(end.incarnation, 2);
    assert_eq!(
        groups[2],
        (BatchNo(3), Some(Scn(1001))),
        "decided at the second opening"
    );
    assert_eq!(groups[3], (BatchNo(4), None));
    drop(t);
}

#[test]
fn a_lost_member_is_mended_and_can_then_carry_the_log_alone() {
    let (a, b) = (SimStorage::new(), SimStorage::new());
    create(&[&a, &b], 1);
    let clock = clock();
    let t = open(&[&a, &b], 1, RestartPoint::FIRST, &clock).unwrap();
    let faults = |s: &SimStorage| storage::Faults {
        fail_from_write: Some(s.writes() + 3),
        fail_writes: 1,
        ..Default::default()
    };
    b.set_faults(faults(&b));
    for number in 1..=9 {
        let put = t.redo.append(&mut record(number, 5000), |_, _| ());
        t.redo.flush_to(put.end).unwrap();
    }
    assert_eq!(
        (
            t.events.lost.load(std::sync::atomic::Ordering::SeqCst),
            t.redo.files().healthy_members()
        ),
        (1, 1)
    );
    drop(t);
    assert!(
        read_all(&files(&[&b], 1), RestartPoint::FIRST)
            .unwrap()
            .0
            .len()
            < 9
    );
    let (found, _, end) = read_all(&files(&[&a, &b], 1), RestartPoint::FIRST).unwrap();
    assert_eq!((found.len(), end.repairs.len()), (9, 1));
    drop(open(&[&a, &b], 1, RestartPoint::FIRST, &clock).unwrap());
    assert_eq!(
        read_all(&files(&[&b], 1), RestartPoint::FIRST).unwrap().0,
        found
    );
}

#[test]
fn threads_are_merged_by_scn() {
    let storage = SimStorage::new();
    create(&[&storage], 1);
    create(&[&storage], 2);
    let clock = clock();
    let threads = [1, 2].map(|n| open(&[&storage], n, RestartPoint::FIRST, &clock).unwrap());
    let mut rng = Rng(4);
    let mut wanted = Vec::new();
    for number in 1..500 {
        let t = rng.below(2) as usize;
        let put = threads[t]
            .redo
            .append(&mut record(number, rng.below(2000) as usize), |_, _| ());
        wanted.push((t as u16 + 1, put.scn, put.pos, put.batch));
        if rng.below(9) == 0 {
            threads[t].redo.flush_to(put.end).unwrap();
        }
    }
    for t in &threads {
        t.redo.flush_to(t.redo.end()).unwrap();
    }
    let (f1, f2) = (files(&[&storage], 1), files(&[&storage], 2));
    let readers = [&f2, &f1].map(|f| RedoReader::new(f, RestartPoint::FIRST));
    let mut merge = Merge::new(readers.into()).unwrap();
    let mut found = Vec::new();
    while let Some(m) = merge.next_record().unwrap() {
        found.push((m.thread.0, m.record.scn, m.record.pos, m.batch));
    }
    assert_eq!(found, wanted);
    let ends = merge.finish().unwrap();
    assert_eq!(ends[1].1.next.pos, threads[1].redo.end());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Whatever bytes stand in the log, reading ends with a prefix of what was written, or says
    /// damage. It never panics.
    #[test]
    fn hostile_bytes_never_panic(
        at in 0u64..20, bytes in prop::collection::vec((0usize..4096, any::<u8>()), 1..40), header_only in any::<bool>()
    ) {
        let storage = thread_of(12, 3000);
        overwrite(&storage, at * 4096, |b| {
            for (offset, value) in &bytes {
                b[if header_only { offset % BATCH_HEADER } else { *offset }] = *value;
            }
        });
        if let Ok((found, _, end)) = read_all(&files(&[&storage], 1), RestartPoint::FIRST) {
            prop_assert!(found.len() <= 12 && end.next.pos.0 <= 13 * 4096);
        }
    }
}

/// Evidence may have any number of pieces, however full the last log block of the records is. It
/// does not stand in a record's way, and in the end the newest piece of each thread is known.
#[test]
fn evidence_stands_behind_the_records() {
    for seed in 1..=20 {
        let mut rng = Rng(seed);
        let storage = SimStorage::new();
        create(&[&storage], 1);
        let t = open(&[&storage], 1, RestartPoint::FIRST, &clock()).unwrap();
        let (mut written, mut expected) = (Vec::new(), Vec::new());
        for number in 1..=40u64 {
            let n = match rng.below(3) {
                0 => 0,
                1 => rng.below(4),
                _ => MAX_EVIDENCE as u64,
            };
            let others = (0..n).map(|i| GroupEvidence {
                thread: block::ThreadId(i as u16 + 2),
                batch: BatchNo(number * 10 + i),
                scn: Scn(5_000 + number * 10 + i),
            });
            *t.sink.others.lock().unwrap() = others.collect();
            for _ in 0..1 + rng.below(3) {
                let payload = 1 + rng.below(6_000) as usize;
                let put = t.redo.append(&mut record(number, payload), |_, _| ());
                written.push((put.pos, put.scn, payload));
            }
            t.redo.flush_to(t.redo.end()).unwrap();
            expected.push(t.sink.others.lock().unwrap().clone());
        }
        let files = files(&[&storage], 1);
        let (records, _, end) = read_all(&files, RestartPoint::FIRST).unwrap();
        let found = records.iter().map(|r| (r.pos, r.scn, r.payload.len()));
        assert!(found.eq(written), "seed {seed}");
        let mut reader = RedoReader::new(&files, RestartPoint::FIRST);
        let mut batches = Vec::new();
        while let Some(batch) = reader.next_batch().unwrap() {
            batches.push(batch.evidence().to_vec());
        }
        // Before them stands the batch that opened the thread.
        assert_eq!(batches[1..], expected, "seed {seed}");
        for (thread, newest) in &end.evidence {
            let all = expected.iter().flatten().filter(|e| e.thread == *thread);
            assert_eq!(*newest, all.map(|e| (e.batch.0, e.scn)).collect());
        }
        assert_eq!(end.max_scn.max(Scn(5_400)), end.max_scn);
    }
}

/// Two threads change one block in turns. What a block has already is passed over, and what it
/// lacks is put on top.
#[test]
fn dead_redo_brings_a_block_forward_whatever_it_has() {
    let storages = [SimStorage::new(), SimStorage::new()];
    let clock = clock();
    let dba = block::Dba::new(block::FileId(1), 7);
    let object = block::ObjectId(20_000);
    let change = |t: &Thread, op, before, payload: &[u8]| {
        let mut out = Vec::new();
        let mut w =
            block::record::RecordWriter::new(&mut out, block::TxnId::NONE, block::UndoPtr::NONE);
        w.vector(dba, object, op, before, payload);
        w.finish();
        let put = t.redo.append(&mut out, |_, _| ());
        t.redo.flush_to(put.end).unwrap();
        put.scn
    };
    let threads: Vec<Thread> = (0..2)
        .map(|n| {
            create(&[&storages[n]], n as u16 + 1);
            open(&[&storages[n]], n as u16 + 1, RestartPoint::FIRST, &clock).unwrap()
        })
        .collect();
    let mut versions = vec![block::BlockBuf::zeroed()];
    let mut scn = change(&threads[0], block::Op::HeapFormat, None, &[]);
    let head = block::heap::RowHead {
        flags: 0,
        stamp: block::Stamp::committed(Scn(1)),
        undo: block::UndoPtr::NONE,
    };
    let mut apply = |before: Option<Scn>, scn, op, payload: &[u8]| {
        let mut next = versions.last().unwrap().clone();
        let vector = block::record::Vector {
            dba,
            object,
            op,
            before,
            payload,
        };
        assert_eq!(apply_vector(&mut next, scn, &vector), Ok(true));
        versions.push(next);
    };
    apply(None, scn, block::Op::HeapFormat, &[]);
    for i in 0..6u16 {
        let mut payload = Vec::new();
        block::heap::row_payload(i, head, &[i as u8; 20], &mut payload);
        let before = Some(scn);
        let t = &threads[usize::from(i) % 2];
        scn = change(t, block::Op::HeapInsert, before, &payload);
        apply(before, scn, block::Op::HeapInsert, &payload);
    }
    let logs = [0, 1].map(|n| files(&[&storages[n]], n as u16 + 1));
    let readers = logs.iter().map(|l| RedoReader::new(l, RestartPoint::FIRST));
    let (dead, _) = DeadRedo::read::<Error>(readers.collect(), |_| Ok(())).unwrap();
    assert_eq!(dead.blocks().collect::<Vec<_>>(), [dba]);
    let newest = versions.last().unwrap().clone();
    for (n, version) in versions.iter().enumerate() {
        let mut block = version.clone();
        let lacks = n + 1 < versions.len();
        assert_eq!(dead.apply(dba, &mut block).unwrap(), lacks);
        assert!(block.0 == newest.0, "from version {n}");
    }
    // A version whose SCN is none of theirs rests on nothing that is there.
    let mut stray = versions[3].clone();
    stray.set_scn(Scn(versions[3].scn().0 + 1));
    let error = dead.apply(dba, &mut stray).unwrap_err();
    assert!(
        matches!(error, Error::Replay { dba: at, .. } if at == dba),
        "{error}"
    );
}
