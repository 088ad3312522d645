//! Bulk inserts. Every row has its entries, a key that is there already is refused together with
//! its row, and NULLs refuse nothing.

use crate::common::*;
use block::value::DatumRef;
use engine::*;
use std::ops::Bound;
use std::sync::Arc;
use testkit::seeds::seeds;

fn bulk(s: &mut Session, t: &TableDef, rows: &[(i64, i32, String)]) -> Result<()> {
    let mut bulk = Bulk::new(t);
    for (id, grp, pad) in rows {
        s.insert_bulk(t, &mut bulk, &row(*id, *grp, pad), *id as u64)?;
    }
    s.finish_bulk(t, &mut bulk)
}

/// Makes `count` rows, in no order, whose ids are not in `model`.
fn fresh_rows(rng: &mut Rng, model: &Model, count: usize) -> Vec<(i64, i32, String)> {
    let mut ids = std::collections::HashSet::new();
    while ids.len() < count {
        let id = rng.below(100_000) as i64 - 50_000;
        if !model.contains_key(&id) {
            ids.insert(id);
        }
    }
    ids.into_iter()
        .map(|id| (id, rng.below(5) as i32, pad(rng)))
        .collect()
}

#[test]
fn bulks_leave_heap_and_indexes_in_agreement() {
    for seed in seeds("BRAID_SEED", [1, 2]) {
        let mut rng = Rng(seed);
        let (storage, t) = create();
        let engine = open(&storage).unwrap();
        let mut model = Model::new();
        for round in 0..8 {
            let count = 1 + rng.below(400) as usize;
            let rows = fresh_rows(&mut rng, &model, count);
            let mut s = engine.session().unwrap();
            s.begin(Isolation::ReadCommitted).unwrap();
            bulk(&mut s, &t, &rows).unwrap();
            if rng.one_in(3) {
                s.rollback().unwrap();
            } else {
                s.commit().unwrap();
                model.extend(rows.into_iter().map(|(id, grp, pad)| (id, (grp, pad))));
            }
            let found = contents(&engine, &t).unwrap();
            assert_same(&found, &model, &format!("after round {round}"));
        }
        verify_all(&engine, &t, "after the bulks").unwrap();
        engine.stop(&Quiet).unwrap();
    }
}

#[test]
fn a_duplicate_is_refused_with_its_row() {
    let (storage, t) = create();
    let engine = open(&storage).unwrap();
    let mut s = engine.session().unwrap();
    let line = |id| (id, 1, format!("row {id}"));
    s.begin(Isolation::ReadCommitted).unwrap();
    bulk(&mut s, &t, &[line(500)]).unwrap();
    s.commit().unwrap();
    for (rows, refused) in [
        ((0..1000).map(line).collect::<Vec<_>>(), 500),
        (vec![line(7), line(8), line(7)], 7),
    ] {
        s.begin(Isolation::ReadCommitted).unwrap();
        match bulk(&mut s, &t, &rows) {
            Err(Error::UniqueViolation { row: Some(rid), .. }) => {
                let mut body = Vec::new();
                assert!(s.fetch_current(&t, rid, &mut body).unwrap());
                assert_eq!(decode(&t, &body).0, refused);
            }
            other => panic!("{refused} was not refused: {other:?}"),
        }
        s.rollback().unwrap();
    }
    assert_eq!(contents(&engine, &t).unwrap().len(), 1);
    verify_all(&engine, &t, "after the refusals").unwrap();
    engine.stop(&Quiet).unwrap();
}

#[test]
fn any_number_of_rows_may_have_null_for_a_unique_key() {
    let (storage, t) = create();
    let engine = open(&storage).unwrap();
    let mut s = engine.session().unwrap();
    s.begin(Isolation::ReadCommitted).unwrap();
    let mut b = Bulk::new(&t);
    for i in 0..300 {
        let id = match i % 3 {
            0 => DatumRef::Null,
            _ => DatumRef::Int8(i),
        };
        let row = [id, DatumRef::Int4(1), DatumRef::Text("")];
        s.insert_bulk(&t, &mut b, &row, 0).unwrap();
    }
    s.finish_bulk(&t, &mut b).unwrap();
    let snap = s.snapshot().unwrap();
    let t = Arc::clone(&t);
    let mut all = s
        .index_range(&t, 0, Bound::Unbounded, Bound::Unbounded, false)
        .unwrap();
    let (mut rows, mut body) = (0, Vec::new());
    while all.next(&mut s, &snap, &mut body).unwrap().is_some() {
        rows += 1;
    }
    assert_eq!(rows, 300);
    s.commit().unwrap();
    verify_all(&engine, &t, "with NULLs").unwrap();
    engine.stop(&Quiet).unwrap();
}
