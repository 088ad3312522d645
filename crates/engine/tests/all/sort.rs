//! Sorts and index builds that exceed their memory. The order is right whatever the memory, nothing
//! is left behind, and a full disk costs the statement only.

use crate::common::*;
use engine::*;
use storage::{Faults, Storage};
use testkit::seeds::seeds;

const TEMP: &str = "temp/instance1_0.tmp";

fn records(rng: &mut Rng, n: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut some = |most: u64| -> Vec<u8> {
        // Keys begin alike, are prefixes of each other, end in zeros, or come twice.
        let alike = [0, 17, 30][rng.below(3) as usize];
        let mut bytes = vec![7; alike];
        bytes.extend((0..rng.below(most)).map(|_| rng.below(3) as u8));
        bytes
    };
    (0..n).map(|_| (some(6), some(900))).collect()
}

#[test]
fn records_come_out_in_order_whatever_the_memory() {
    let (storage, _) = create();
    let engine = open(&storage).unwrap();
    let s = engine.session().unwrap();
    for seed in seeds("BRAID_SEED", [1, 2]) {
        let mut rng = Rng(seed);
        for (n, memory) in [
            (0, 4096),
            (3000, 64 << 20),
            (1, 1),
            (40, 1),
            (3000, 30_000),
            (3000, 400_000),
        ] {
            let mut wanted = records(&mut rng, n);
            let mut sorter = s.sorter(memory);
            for (key, rest) in &wanted {
                sorter
                    .push(
                        |out| out.extend_from_slice(key),
                        |out| out.extend_from_slice(rest),
                    )
                    .unwrap();
            }
            assert_eq!(sorter.count(), n as u64);
            wanted.sort_by(|a, b| a.0.cmp(&b.0));
            let mut sorted = sorter.finish().unwrap();
            assert_eq!(storage.exists(TEMP).unwrap(), n > 0 && memory < 1 << 20);
            for (key, rest) in &wanted {
                let found = sorted.next_record().unwrap();
                assert_eq!(
                    found,
                    Some((&key[..], &rest[..])),
                    "{n} records, {memory} bytes"
                );
            }
            assert_eq!(sorted.next_record().unwrap(), None);
            drop(sorted);
            assert!(!storage.exists(TEMP).unwrap());
        }
    }
    drop(s);
    engine.stop(&Quiet).unwrap();
}

/// What a killed instance left behind is gone once the next has started.
#[test]
fn temporary_files_do_not_outlive_their_instance() {
    let (storage, _) = create();
    let left = storage.create(TEMP, storage::FileKind::Data).unwrap();
    left.write_at(0, &storage::AlignedBuf::zeroed(storage::SECTOR))
        .unwrap();
    open(&storage).unwrap().stop(&Quiet).unwrap();
    assert!(!storage.exists(TEMP).unwrap());
}

fn fill(engine: &std::sync::Arc<Engine>, t: &TableDef, rows: i64) {
    let mut s = engine.session().unwrap();
    s.begin(Isolation::ReadCommitted).unwrap();
    let mut bulk = Bulk::new(t);
    for id in 0..rows {
        let row = row(id, (id * 7919 % 1000) as i32, "some text");
        s.insert_bulk(t, &mut bulk, &row, 0).unwrap();
    }
    s.finish_bulk(t, &mut bulk).unwrap();
    s.commit().unwrap();
}

/// Builds an index on the second column of `t`. The returned definition lacks the index that `t`
/// has on that column.
fn build(engine: &std::sync::Arc<Engine>, t: &TableDef, memory: usize) -> Result<TableDef> {
    let object = engine.allocate_object_id()?;
    let mut s = engine.session()?;
    s.begin(Isolation::ReadCommitted)?;
    let built = (|| {
        let header = s.create_index_segment(object)?;
        let index = IndexDef {
            object,
            header,
            name: "built".to_string(),
            ..t.indexes[1].clone()
        };
        s.build_index(t, &index, memory)?;
        Ok(index)
    })();
    s.end_statement();
    match built {
        Ok(index) => s.commit().map(|()| TableDef {
            indexes: vec![t.indexes[0].clone(), t.indexes[1].clone(), index],
            ..t.clone()
        }),
        Err(e) => s.rollback().and(Err(e)),
    }
}

#[test]
fn an_index_is_built_in_little_memory_or_on_a_full_disk_not_at_all() {
    let (storage, t) = create();
    let engine = open(&storage).unwrap();
    fill(&engine, &t, 20_000);
    let wanted = contents(&engine, &t).unwrap();
    let used = storage.used();
    // There is room for some runs of the sort, and for no more.
    storage.set_faults(Faults {
        capacity: Some(used + (300 << 10)),
        ..Faults::default()
    });
    let refused = build(&engine, &t, 100 << 10).unwrap_err();
    assert_eq!(refused.sqlstate(), "53100", "{refused}");
    assert!(!storage.exists(TEMP).unwrap());
    storage.set_faults(Faults::default());
    for memory in [100 << 10, 64 << 20] {
        let t = std::sync::Arc::new(build(&engine, &t, memory).unwrap());
        assert!(!storage.exists(TEMP).unwrap());
        assert_same(&contents(&engine, &t).unwrap(), &wanted, "after the build");
        verify_all(&engine, &t, "after the build").unwrap();
    }
    engine.stop(&Quiet).unwrap();
}
