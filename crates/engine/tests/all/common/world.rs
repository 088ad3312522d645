//! A workload over everything that a transaction can do, with checks of what it must leave behind.
//! It has rows long and short with two indexes, savepoints, a sequence, tables that come and go,
//! and transactions that a crash or an error leaves unfinished.

use super::*;
use block::sequence::SequenceParams;
use std::collections::BTreeSet;

/// Ids of the rows that transactions change at random.
const IDS: u64 = 40;
/// The row that each transaction changes, so that the transaction's outcome shows.
const MARK: i64 = -1;

/// The objects that are there from the start.
#[derive(Clone)]
pub struct Base {
    pub table: Arc<TableDef>,
    pub sequence: SequenceDef,
}

/// A database with an empty table and a sequence, cleanly stopped.
pub fn create_world() -> (SimStorage, Base) {
    let (storage, table) = create();
    let engine = open(&storage).unwrap();
    let object = engine.allocate_object_id().unwrap();
    let mut s = engine.session().unwrap();
    s.begin(Isolation::ReadCommitted).unwrap();
    let params = SequenceParams {
        cache: 3,
        ..SequenceParams::default()
    };
    let header = s.create_sequence(object, &params).unwrap();
    s.insert(&table, &row(MARK, 0, "")).unwrap();
    s.commit().unwrap();
    drop(s);
    engine.stop(&Quiet).unwrap();
    let sequence = SequenceDef { object, header };
    (storage, Base { table, sequence })
}

#[derive(Clone, Default)]
pub struct World {
    pub rows: Model,
    /// Tables besides the first, by object id.
    pub tables: BTreeMap<ObjectId, (Arc<TableDef>, Model)>,
    /// The greatest value drawn by a transaction whose end was acknowledged.
    pub drawn: i64,
}

impl World {
    pub fn new() -> World {
        World {
            rows: [(MARK, (0, String::new()))].into(),
            ..World::default()
        }
    }
}

/// The content that must be there: the acknowledged state, or the state after the commit that was
/// under way.
#[derive(Clone)]
pub struct Expected {
    pub acknowledged: World,
    pub under_way: Option<World>,
}

impl Expected {
    pub fn new() -> Expected {
        Expected {
            acknowledged: World::new(),
            under_way: None,
        }
    }
}

/// Does one transaction. `Ok`: what is expected has been brought up to date. After an error the
/// transaction is still there, and must be rolled back.
pub fn step(
    engine: &Arc<Engine>,
    s: &mut Session,
    base: &Base,
    expected: &mut Expected,
    rng: &mut Rng,
) -> Result<()> {
    let mut world = expected.acknowledged.clone();
    s.begin(match rng.one_in(2) {
        true => Isolation::ReadCommitted,
        false => Isolation::RepeatableRead,
    })?;
    let t = &base.table;
    let n = 1 + rng.below(4);
    changes(s, t, &mut world.rows, rng, n, IDS)?;
    if rng.one_in(3) {
        let (savepoint, mut inner) = (s.savepoint()?, world.clone());
        changes(s, t, &mut inner.rows, rng, n, IDS)?;
        s.rollback_to(&savepoint)?;
    }
    if rng.one_in(3) {
        let value = s.sequence_next(&base.sequence)?;
        assert!(value > world.drawn, "{value} drawn after {}", world.drawn);
        world.drawn = value;
    }
    if rng.one_in(4) {
        tables(engine, s, &mut world, rng)?;
    }
    mark(s, t, &mut world)?;
    if rng.one_in(5) {
        return s.rollback();
    }
    expected.under_way = Some(world.clone());
    s.commit()?;
    expected.acknowledged = world;
    expected.under_way = None;
    Ok(())
}

/// Changes the mark. Each transaction that commits does that.
fn mark(s: &mut Session, t: &TableDef, world: &mut World) -> Result<()> {
    let snap = s.snapshot()?;
    let (rid, grp, _) = find(s, t, &snap, MARK)?.expect("the mark is there");
    let done = s.update(t, rid, &row(MARK, grp + 1, ""), Some(&snap))?;
    assert_eq!(done, WriteOutcome::Done);
    s.end_statement();
    world.rows.insert(MARK, (grp + 1, String::new()));
    Ok(())
}

/// Creates a table and fills it, changes one, adds an index to one, or drops one.
fn tables(engine: &Arc<Engine>, s: &mut Session, world: &mut World, rng: &mut Rng) -> Result<()> {
    let some = |world: &World, rng: &mut Rng| {
        let at = rng.below(world.tables.len() as u64) as usize;
        *world
            .tables
            .keys()
            .nth(at)
            .expect("it is below their number")
    };
    match rng.below(4) {
        0 | 1 if world.tables.len() < 3 => {
            let t = Arc::new(new_table(engine, s)?);
            let mut rows = Model::new();
            for id in 0..rng.below(30) as i64 {
                let text = pad(rng);
                s.insert(&t, &row(id, id as i32 % 5, &text))?;
                rows.insert(id, (id as i32 % 5, text));
            }
            if rng.one_in(2) {
                add_index(engine, s, &t)?;
            }
            world.tables.insert(t.object, (t, rows));
        }
        2 if !world.tables.is_empty() => {
            let object = some(world, rng);
            let (t, _) = world.tables.remove(&object).expect("it is there");
            for o in objects(&t) {
                s.drop_segment_at_commit(o, block::Dba::NONE)?;
            }
        }
        _ if !world.tables.is_empty() => {
            let object = some(world, rng);
            let (t, rows) = world.tables.get_mut(&object).expect("it is there");
            let t = t.clone();
            changes(s, &t, rows, rng, 3, 30)?;
        }
        _ => {}
    }
    Ok(())
}

fn new_table(engine: &Arc<Engine>, s: &mut Session) -> Result<TableDef> {
    let (heap, index) = (engine.allocate_object_id()?, engine.allocate_object_id()?);
    Ok(TableDef {
        missing: Vec::new(),
        object: heap,
        header: s.create_heap(heap)?,
        columns: vec![ColType::Int8, ColType::Int4, ColType::Text],
        indexes: vec![index_on(s, index, 0, true)?],
    })
}

fn index_on(s: &mut Session, object: ObjectId, column: usize, unique: bool) -> Result<IndexDef> {
    Ok(IndexDef {
        object,
        header: s.create_index_segment(object)?,
        columns: vec![IndexColumn {
            column,
            descending: false,
            nulls_first: false,
        }],
        unique,
        name: format!("index_{column}"),
        created: block::Scn::ZERO,
        rules: Default::default(),
    })
}

/// Builds an index over rows that are there. Nothing keeps its definition, so its segment is
/// dropped at the commit.
fn add_index(engine: &Arc<Engine>, s: &mut Session, t: &TableDef) -> Result<()> {
    let object = engine.allocate_object_id()?;
    let index = index_on(s, object, 1, false)?;
    s.build_index(t, &index, 1 << 20)?;
    s.end_statement();
    s.drop_segment_at_commit(object, index.header)
}

fn objects(t: &TableDef) -> impl Iterator<Item = ObjectId> + '_ {
    std::iter::once(t.object).chain(t.indexes.iter().map(|i| i.object))
}

/// The rest of a life: one session does transactions while another keeps one open, with checkpoints
/// in between.
pub fn work(
    engine: &Arc<Engine>,
    base: &Base,
    expected: &mut Expected,
    rng: &mut Rng,
    steps: u64,
) -> Result<()> {
    let mut loser = engine.session()?;
    loser.begin(Isolation::ReadCommitted)?;
    let mut s = engine.session()?;
    for n in 0..steps {
        lose(engine, &mut loser, base, rng)?;
        step(engine, &mut s, base, expected, rng)?;
        if n % 16 == 15 {
            engine.checkpoint()?;
            loser.rollback()?;
            loser.begin(Isolation::ReadCommitted)?;
        }
    }
    Ok(())
}

/// Does a part of a transaction that never commits: rows, much undo, a table.
pub fn lose(engine: &Arc<Engine>, s: &mut Session, base: &Base, rng: &mut Rng) -> Result<()> {
    let id = 1_000_000 + rng.below(1 << 40) as i64;
    match rng.below(6) {
        0 | 1 => {
            s.insert(&base.table, &row(id, 3, &pad(rng)))?;
        }
        2 => {
            let text = "u".repeat(6000);
            let rid = s.insert(&base.table, &row(id, 3, &text))?;
            for n in 0..rng.below(30) as i32 {
                let done = s.update(&base.table, rid, &row(id, n, &text), None)?;
                assert_eq!(done, WriteOutcome::Done);
            }
        }
        3 => {
            let t = new_table(engine, s)?;
            for id in 0..20 {
                s.insert(&t, &row(id, 3, &pad(rng)))?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Compares everything with what is expected, by every way to it, and verifies the database.
/// Settles the commit that was under way.
pub fn check(engine: &Arc<Engine>, base: &Base, expected: &mut Expected, what: &str) -> Result<()> {
    let rows = contents(engine, &base.table)?;
    let marked = |w: &World| w.rows[&MARK].0;
    let settled = match expected.under_way.take() {
        Some(w) if rows.get(&MARK).map(|r| r.0) == Some(marked(&w)) => w,
        _ => expected.acknowledged.clone(),
    };
    assert_same(&rows, &settled.rows, what);
    expected.acknowledged = settled.clone(); // stays also if a crash cuts off what follows
    for (t, rows) in settled.tables.values() {
        let what = format!("{what}: table {}", t.object.0);
        assert_same(&contents(engine, t)?, rows, &what);
    }
    let mut known: BTreeSet<ObjectId> = objects(&base.table).collect();
    known.insert(base.sequence.object);
    known.extend(settled.tables.values().flat_map(|(t, _)| objects(t)));
    engine.drop_orphans(&known)?;
    for object in engine.space().owners()? {
        let own = object < ObjectId::FIRST_USER || known.contains(&object);
        assert!(own, "{what}: {object:?} has space but belongs to nobody");
    }
    let mut all: Vec<Arc<TableDef>> = vec![base.table.clone()];
    all.extend(settled.tables.values().map(|(t, _)| t.clone()));
    let mut problems = Vec::new();
    check_all(engine, &Quiet, &mut |p| problems.push(p), &|_| {
        Ok(all.clone())
    })?;
    assert!(problems.is_empty(), "{what}: {problems:#?}");
    Ok(())
}
