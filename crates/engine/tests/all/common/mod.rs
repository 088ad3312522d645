//! An instance on simulated storage, a table with a unique and a non-unique index, and a model of
//! the table.

use block::value::{ColType, Datum, DatumRef};
use block::{ObjectId, Op, RowId};
use cache::RecordHeader;
use engine::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock, Weak};
use storage::{SimStorage, Storage};

pub mod family;
pub mod lives;
pub mod world;

pub use seam::Rng;

pub struct Quiet;
impl Progress for Quiet {
    fn step(&self, _: &str, _: u64, _: u64) {}
}

pub fn config() -> Config {
    Config {
        buffer_bytes: 128 * 8192,
        redo_file_bytes: 1 << 20,
        redo_files: 4,
        undo_cap_bytes: 4 << 20,
        recovery_target_bytes: 256 << 10,
        preallocate_bytes: 0,
        max_sessions: 12,
        ..Config::new("/nowhere")
    }
}

fn host(s: &SimStorage) -> (Host, Arc<OnceLock<Weak<Engine>>>) {
    let engine: Arc<OnceLock<Weak<Engine>>> = Arc::default();
    let stopping = engine.clone();
    let machine = s.clone();
    let storage: Arc<dyn Storage> = Arc::new(s.clone());
    let host = Host {
        members: vec![storage.clone()],
        storage,
        // A real instance ends here. This one loses its power, and must find that its log fails.
        // Otherwise sessions would wait for ever for a writer that does nothing more.
        fatal: Arc::new(move |why| {
            machine.power_off();
            // If the log itself reports this, it has failed already, and this runs within its
            // flush.
            if why.starts_with("the redo log") {
                return;
            }
            if let Some(e) = stopping.get().and_then(Weak::upgrade) {
                let at = e
                    .cache()
                    .mark(RecordHeader::NONE, Op::ActiveTransactions, &[], |_, _| ());
                let _ = e.redo().flush_to(at.end);
            }
        }),
        cluster: None,
    };
    (host, engine)
}

pub fn open_with(config: Config, s: &SimStorage) -> Result<Arc<Engine>> {
    let (host, cell) = host(s);
    let engine = Engine::open_on(config, host, &Quiet)?;
    let _ = cell.set(Arc::downgrade(&engine));
    Ok(engine)
}

/// Opens an instance that meets others over a real interconnect.
pub fn open_meeting(config: Config, s: &SimStorage) -> Result<Arc<Engine>> {
    let (mut host, cell) = host(s);
    let bound = interconnect::Bound::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let secret = interconnect::Secret::new(b"the secret of all tests").unwrap();
    host.cluster = Some(engine::cluster::ClusterHost {
        lms: 2,
        ..engine::cluster::ClusterHost::new(bound, secret)
    });
    let engine = Engine::open_on(config, host, &Quiet)?;
    let _ = cell.set(Arc::downgrade(&engine));
    Ok(engine)
}

pub fn open(s: &SimStorage) -> Result<Arc<Engine>> {
    open_with(config(), s)
}

/// A database with an empty table, cleanly stopped.
pub fn create() -> (SimStorage, Arc<TableDef>) {
    let s = SimStorage::new();
    Engine::create_on(&config(), host(&s).0, &Quiet).unwrap();
    let engine = open(&s).unwrap();
    let table = create_table(&engine);
    engine.stop(&Quiet).unwrap();
    (s, table)
}

/// Creates a table with columns id bigint, grp integer, pad text. The index on id is unique, the
/// index on grp is not.
pub fn create_table(engine: &Arc<Engine>) -> Arc<TableDef> {
    let ids: Vec<ObjectId> = (0..3)
        .map(|_| engine.allocate_object_id().unwrap())
        .collect();
    let mut session = engine.session().unwrap();
    session.begin(Isolation::ReadCommitted).unwrap();
    let header = session.create_heap(ids[0]).unwrap();
    let mut index = |object, column, unique| IndexDef {
        object,
        header: session.create_index_segment(object).unwrap(),
        columns: vec![IndexColumn {
            column,
            descending: false,
            nulls_first: false,
        }],
        unique,
        name: format!("index_{column}"),
        created: block::Scn::ZERO,
        rules: Default::default(),
    };
    let indexes = vec![index(ids[1], 0, true), index(ids[2], 1, false)];
    session.commit().unwrap();
    Arc::new(TableDef {
        missing: Vec::new(),
        object: ids[0],
        header,
        columns: vec![ColType::Int8, ColType::Int4, ColType::Text],
        indexes,
    })
}

/// The content of the table: id -> (grp, pad).
pub type Model = BTreeMap<i64, (i32, String)>;

pub fn row<'a>(id: i64, grp: i32, pad: &'a str) -> [DatumRef<'a>; 3] {
    [DatumRef::Int8(id), DatumRef::Int4(grp), DatumRef::Text(pad)]
}

pub fn decode(table: &TableDef, body: &[u8]) -> (i64, i32, String) {
    let at = |k| {
        block::row::column(body, &table.columns, k)
            .unwrap()
            .unwrap()
    };
    match (at(0), at(1), at(2)) {
        (DatumRef::Int8(id), DatumRef::Int4(grp), DatumRef::Text(pad)) => {
            (id, grp, pad.to_string())
        }
        other => panic!("a row is {other:?}"),
    }
}

pub fn find(
    s: &mut Session,
    t: &TableDef,
    snap: &Snapshot,
    id: i64,
) -> Result<Option<(RowId, i32, String)>> {
    let mut body = Vec::new();
    let rid = s.get_unique(
        t,
        0,
        &[Datum::Int8(id)],
        snap,
        &AskedAhead::default(),
        &mut body,
    )?;
    Ok(rid.map(|rid| {
        let (_, grp, pad) = decode(t, &body);
        (rid, grp, pad)
    }))
}

pub fn scan(s: &mut Session, t: &Arc<TableDef>, snap: &Snapshot) -> Result<Model> {
    let (mut found, mut scan) = (Model::new(), s.scan(t));
    while scan.next_block(s, snap, &mut |rid, body| {
        let (id, grp, pad) = decode(t, body);
        let twice = found.insert(id, (grp, pad));
        assert!(twice.is_none(), "row {id} twice, at {rid:?} for one");
    })? {}
    Ok(found)
}

pub fn by_index(
    s: &mut Session,
    t: &Arc<TableDef>,
    index: usize,
    snap: &Snapshot,
    backward: bool,
) -> Result<Model> {
    let mut found = Model::new();
    let mut range = s.index_range(t, index, Bound::Unbounded, Bound::Unbounded, backward)?;
    let mut body = Vec::new();
    while range.next(s, snap, &mut body)?.is_some() {
        let (id, grp, pad) = decode(t, &body);
        assert!(
            found.insert(id, (grp, pad)).is_none(),
            "row {id} twice by index {index}"
        );
    }
    Ok(found)
}

/// The content of the table as a new session sees it. Every way to it must give the same.
pub fn contents(engine: &Arc<Engine>, t: &Arc<TableDef>) -> Result<Model> {
    let mut s = engine.session()?;
    s.begin(Isolation::RepeatableRead)?;
    let snap = s.snapshot()?;
    let found = scan(&mut s, t, &snap)?;
    for index in 0..t.indexes.len() {
        for backward in [false, true] {
            assert_same(
                &by_index(&mut s, t, index, &snap, backward)?,
                &found,
                &format!("index {index}, backward: {backward}, against the heap"),
            );
        }
    }
    s.end_statement();
    s.commit()?;
    Ok(found)
}

pub fn difference(found: &Model, wanted: &Model) -> Option<String> {
    let ids: std::collections::BTreeSet<_> = found.keys().chain(wanted.keys()).collect();
    let show = |r: Option<&(i32, String)>| r.map(|(g, p)| format!("grp {g}, pad of {}", p.len()));
    let lines: Vec<String> = ids
        .into_iter()
        .filter(|id| found.get(id) != wanted.get(id))
        .map(|id| {
            format!(
                "{id}: {:?} instead of {:?}",
                show(found.get(id)),
                show(wanted.get(id))
            )
        })
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

pub fn assert_same(found: &Model, wanted: &Model, what: &str) {
    if let Some(d) = difference(found, wanted) {
        panic!("{what}:\n{d}");
    }
}

/// Checks everything that `braid verify` checks.
pub fn verify_all(engine: &Arc<Engine>, t: &Arc<TableDef>, what: &str) -> Result<()> {
    let mut problems = Vec::new();
    check_all(engine, &Quiet, &mut |p| problems.push(p), &|_| {
        Ok(vec![t.clone()])
    })?;
    assert!(problems.is_empty(), "{what}: {problems:#?}");
    Ok(())
}

/// A text whose content tells its length and origin.
pub fn pad(rng: &mut Rng) -> String {
    let len = match rng.below(12) {
        0..6 => rng.below(60),
        6..9 => rng.below(1500),
        9 | 10 => 3000 + rng.below(4000),
        _ => 8000 + rng.below(15000),
    };
    let letter = char::from(b'a' + rng.below(26) as u8);
    std::iter::repeat_n(letter, len as usize).collect()
}

/// Makes some changes of rows with ids below `ids`, in the session's transaction and in `state`
/// alike.
pub fn changes(
    s: &mut Session,
    t: &TableDef,
    state: &mut Model,
    rng: &mut Rng,
    n: u64,
    ids: u64,
) -> Result<()> {
    for _ in 0..n {
        let id = rng.below(ids) as i64;
        let before = s.savepoint()?;
        let snap = s.snapshot()?;
        let there = find(s, t, &snap, id)?;
        assert_eq!(
            there.as_ref().map(|(_, g, p)| (*g, p.clone())),
            state.get(&id).cloned(),
            "row {id} as its own transaction sees it"
        );
        let grp = rng.below(7) as i32;
        match there {
            None => {
                let pad = pad(rng);
                s.insert(t, &row(id, grp, &pad))?;
                state.insert(id, (grp, pad));
            }
            Some((rid, ..)) if rng.one_in(4) => {
                assert_eq!(s.delete(t, rid, Some(&snap))?, WriteOutcome::Done);
                state.remove(&id);
            }
            Some(_) if rng.one_in(8) => {
                let refused = s.insert(t, &row(id, grp, "double"));
                match refused {
                    Err(Error::UniqueViolation { .. }) => s.rollback_to(&before)?,
                    Err(e) => return Err(e),
                    Ok(rid) => panic!("row {id} inserted twice, at {rid:?}"),
                }
            }
            Some((rid, _, old)) => {
                let to = if rng.one_in(4) {
                    rng.below(ids) as i64
                } else {
                    id
                };
                let pad = if rng.one_in(3) { old } else { pad(rng) };
                match s.update(t, rid, &row(to, grp, &pad), Some(&snap)) {
                    Ok(outcome) => {
                        assert_eq!(outcome, WriteOutcome::Done);
                        state.remove(&id);
                        let hit = state.insert(to, (grp, pad));
                        assert!(hit.is_none(), "two rows {to}");
                    }
                    Err(Error::UniqueViolation { .. }) if to != id => {
                        assert!(state.contains_key(&to), "no row {to} to be violated");
                        s.rollback_to(&before)?;
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        s.end_statement();
    }
    Ok(())
}
