//! `braid verify`: reads a stopped database from end to end and reports every inconsistency.

mod undo;

use crate::table::RowKey;
use crate::{Config, Engine, IndexStage, Progress, Result, files};
use access::btree::BTree;
use access::heap::Heap;
use block::space::{SegmentKind, UNIT_BLOCKS, segment_kind};
use block::{BlockType, Dba, InstanceId, ObjectId, RowId};
use std::sync::Arc;
use storage::{DoubleWrite, ThreadState, Written};

/// Counts of what was checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verified {
    pub blocks: u64,
    pub indexes: u64,
    pub rows: u64,
}

/// Lists the tables of an open database. The dictionary above the engine knows them.
pub type TableLister<'a> = dyn Fn(&Arc<Engine>) -> Result<Vec<Arc<crate::TableDef>>> + 'a;

/// Opens the database, recovering it if need be. Checks every block of every file, every segment,
/// and every index against its table. Then stops the database. Problems go to `problem`. An error
/// means that the check could not be made.
pub fn verify(
    config: &Config,
    progress: &dyn Progress,
    problem: &mut dyn FnMut(String),
    tables: &TableLister<'_>,
) -> Result<Verified> {
    let alone = Config {
        interconnect: None,
        join_others: false,
        ..config.clone()
    };
    let engine = Engine::open(alone, progress)?;
    let found = check_all(&engine, progress, problem, tables);
    engine.stop(progress)?;
    found
}

/// Checks an open database in which nobody else works.
pub fn check_all(
    engine: &Arc<Engine>,
    progress: &dyn Progress,
    problem: &mut dyn FnMut(String),
    tables: &TableLister<'_>,
) -> Result<Verified> {
    let mut verified = Verified::default();
    check(engine, progress, problem, tables, &mut verified)?;
    Ok(verified)
}

fn check(
    engine: &Arc<Engine>,
    progress: &dyn Progress,
    problem: &mut dyn FnMut(String),
    tables: &TableLister<'_>,
    verified: &mut Verified,
) -> Result<()> {
    // What the background purges meanwhile would look like damage: a leaf on its way out of a tree,
    // for example.
    let _quiet = engine.quiet.lock();
    engine.txns.rollback_dead(&**engine)?;
    engine.checkpoint()?;
    read_all(engine, progress, problem, verified)?;
    undo::check_undo(engine, problem)?;
    for (object, header, kind) in segments(engine, problem)? {
        check_extents(engine, object, header, problem)?;
        match kind {
            SegmentKind::Heap => {
                let heap = Heap::open(engine.space.clone(), engine.txns.clone(), object, header);
                verified.rows += heap.verify(problem)?.rows;
            }
            SegmentKind::Index => {
                let report =
                    BTree::open(&engine.txns, &engine.space, object, header).verify(|_, _, _| ());
                verified.indexes += 1;
                match report {
                    Ok(r) => r
                        .problems
                        .into_iter()
                        .for_each(|p| problem(format!("index {}: {p}", object.0))),
                    Err(e) => problem(format!("index {}: {e}", object.0)),
                }
            }
            SegmentKind::Sequence => {
                if let Err(e) = engine.sequence(object, header).state() {
                    problem(format!("sequence {}: {e}", object.0));
                }
            }
        }
    }
    let tables = tables(engine)?;
    for (done, table) in tables.iter().enumerate() {
        progress.step(
            "tables compared with their indexes",
            done as u64,
            tables.len() as u64,
        );
        if let Err(e) = compare(engine, table, problem) {
            problem(format!(
                "object {} cannot be compared with its indexes: {e}",
                table.object.0
            ));
        }
    }
    Ok(())
}

/// The blocks that an instance has brought home at some time.
fn written(engine: &Engine) -> Result<Written> {
    let mut written = Written::default();
    for thread in engine.control.get().threads {
        let instance = InstanceId(thread.thread.0);
        if thread.state != ThreadState::New {
            DoubleWrite::open(&*engine.plain, &files::double_write(instance))?
                .written(&mut written)?;
        }
    }
    Ok(written)
}

/// Reads every block from disk. A block of zeros is sound unless an instance has brought it home at
/// some time.
fn read_all(
    engine: &Engine,
    progress: &dyn Progress,
    problem: &mut dyn FnMut(String),
    verified: &mut Verified,
) -> Result<()> {
    let written = written(engine)?;
    let files = engine.cache.files();
    let mut buf = storage::AlignedBuf::default();
    for id in files.ids() {
        let blocks = files.blocks(id)?;
        let mut at = 0;
        while at < blocks {
            progress.step("blocks read", u64::from(at), u64::from(blocks));
            files.read_blocks(Dba::new(id, at), 128, &mut buf, |dba, block, verdict| {
                verified.blocks += u64::from(!block.is_unformatted());
                match verdict {
                    Ok(()) if block.is_unformatted() && written.contains(dba) => problem(format!(
                        "block {dba} is zeros, and something has been written there"
                    )),
                    Ok(()) => {}
                    Err(e) => problem(e.to_string()),
                }
            })?;
            at += 128;
        }
    }
    Ok(())
}

/// Lists all segments of the data file, by the space map.
fn segments(
    engine: &Engine,
    problem: &mut dyn FnMut(String),
) -> Result<Vec<(ObjectId, Dba, SegmentKind)>> {
    let mut found = Vec::new();
    for object in engine.space.owners()? {
        let mut header = None;
        let units = engine.space.units_of(object)?;
        for &unit in &units {
            // Only the first block of an extent can be a header.
            let Ok(block) = engine.cache.read(unit) else {
                continue;
            };
            if block.object() == object
                && matches!(block.block_type(), Ok(BlockType::SegmentHeader))
            {
                header = Some((unit, segment_kind(&block)?));
                break;
            }
        }
        match header {
            Some((dba, kind)) => found.push((object, dba, kind)),
            None => problem(format!(
                "object {} owns {} blocks but has no segment header",
                object.0,
                units.len() as u32 * UNIT_BLOCKS
            )),
        }
    }
    Ok(found)
}

/// Checks that the space map gives every extent that a segment lists to that segment. (The map may
/// give it more than the segment lists, after a crash between the two.)
fn check_extents(
    engine: &Engine,
    object: ObjectId,
    header: Dba,
    problem: &mut dyn FnMut(String),
) -> Result<()> {
    let extents = match engine.space.extents(object, header) {
        Ok(extents) => extents,
        Err(e) => {
            problem(format!("object {}: its list of extents: {e}", object.0));
            return Ok(());
        }
    };
    for extent in extents {
        for i in (0..extent.blocks).step_by(UNIT_BLOCKS as usize) {
            let unit = extent.first.plus(i);
            if !engine.space.owns(object, unit)? {
                problem(format!(
                    "object {} lists an extent at {}, but by the space map the unit at {unit} is not its own",
                    object.0, extent.first
                ));
                break;
            }
        }
    }
    Ok(())
}

/// Checks that every row has its entry in every index, and every unmarked entry its row.
fn compare(
    engine: &Arc<Engine>,
    table: &Arc<crate::TableDef>,
    problem: &mut dyn FnMut(String),
) -> Result<()> {
    let mut session = engine.session()?;
    session.begin(txn::Isolation::RepeatableRead)?;
    let snapshot = session.snapshot()?;
    let mut expected: Vec<Vec<Vec<u8>>> = vec![Vec::new(); table.indexes.len()];
    let mut scan = session.scan(table);
    let mut damaged = Vec::new();
    scan.blocks()?;
    let mut key_of = |rid: RowId, row: &[u8]| {
        for (index, keys) in table.indexes.iter().zip(&mut expected) {
            let add = |key: RowKey| {
                let mut full = key.bytes;
                block::index::push_row_id(&mut full, rid);
                keys.push(full);
                Ok(())
            };
            let of_row = index.keys_of_stored(table, row);
            if let Err(e) = of_row.and_then(|of_row| of_row.each(add)) {
                damaged.push(format!("row {rid:?} of object {}: {e}", table.object.0));
            }
        }
    };
    loop {
        match scan.next_block_of(&snapshot, &mut key_of) {
            Ok(true) => {}
            Ok(false) => break,
            // The other blocks are compared all the same. What is reported of this one may be a
            // consequence.
            Err(e) => problem(format!("object {}: {e}", table.object.0)),
        }
    }
    damaged.into_iter().for_each(&mut *problem);
    for (index, mut keys) in table.indexes.iter().zip(expected) {
        // Of a partial index it is not known which entries it has.
        if index.rules.stage != IndexStage::Whole {
            continue;
        }
        keys.sort_unstable();
        let mut entries = Vec::with_capacity(keys.len());
        let report = engine
            .tree(index.object, index.header)
            .verify(|key, rid, marked| {
                if marked.is_none() {
                    let mut full = key.to_vec();
                    block::index::push_row_id(&mut full, rid);
                    entries.push(full);
                }
            });
        if report.is_err() {
            continue; // reported with the segments
        }
        entries.sort_unstable();
        for (ours, theirs, what) in [
            (&keys, &entries, "rows have no entry"),
            (&entries, &keys, "entries have no row"),
        ] {
            let lonely = || ours.iter().filter(|k| theirs.binary_search(k).is_err());
            if let Some(first) = lonely().next() {
                let rid = block::index::split_key(first).map_or(RowId(0), |(_, rid)| rid);
                problem(format!(
                    "index {} \"{}\": {} {what}, the first of them {rid:?}",
                    index.object.0,
                    index.name,
                    lonely().count()
                ));
            }
        }
    }
    session.end_statement();
    session.commit()
}
