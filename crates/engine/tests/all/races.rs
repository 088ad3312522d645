//! Races of docs/design.md that hardly any schedule meets. Each is staged with whole instances in
//! one process. The test cuts and delays the interconnect, and that decides who hears what.

use crate::common::lives::*;
use crate::common::*;
use engine::*;
use interconnect::Fault;
use std::sync::Arc;
use std::time::Duration;
use testkit::seeds::number;
use testkit::waiting::until;

/// The content of a row that fills a block of its own.
fn wide(letter: char) -> String {
    letter.to_string().repeat(5000)
}

fn load(node: &Node, t: &TableDef, ids: std::ops::Range<i64>) {
    let mut s = node.engine.session().unwrap();
    s.begin(Isolation::ReadCommitted).unwrap();
    for id in ids {
        s.insert(t, &row(id, 0, &wide('o'))).unwrap();
    }
    s.commit().unwrap();
}

/// Changes a row that nobody else changes. The transaction goes on.
fn change(s: &mut Session, t: &TableDef, id: i64, letter: char) -> block::RowId {
    let snap = s.snapshot().unwrap();
    let (rid, ..) = find(s, t, &snap, id).unwrap().expect("rows stay");
    let done = s.update(t, rid, &row(id, 0, &wide(letter)), None).unwrap();
    assert_eq!(done, WriteOutcome::Done, "row {id}");
    s.end_statement();
    rid
}

/// Reads the first letter of a row.
fn letter(s: &mut Session, t: &TableDef, snap: &Snapshot, id: i64) -> Result<char> {
    let (_, _, pad) = find(s, t, snap, id)?.expect("rows stay");
    Ok(pad.chars().next().expect("it is not empty"))
}

fn set_fault(from: &Node, to: u16, fault: Fault) {
    let interconnect = from.engine.cluster().unwrap().interconnect().unwrap();
    interconnect
        .set_fault(block::InstanceId(to), fault)
        .unwrap();
}

/// Commits in a thread of its own. The commit is not answered as long as a member has not
/// acknowledged it. Returns once the commit is published.
fn commit_unanswered(node: &Node, mut s: Session) -> block::TxnId {
    let txn = s.transaction_id().unwrap();
    let committing = std::thread::spawn(move || {
        // Its instance dies before the commit is answered.
        let _ = s.commit();
        std::mem::forget(s);
    });
    until("the commit is published", || {
        committed_at(node, txn).is_some()
    });
    assert!(!committing.is_finished(), "nobody has acknowledged it");
    txn
}

fn committed_at(node: &Node, txn: block::TxnId) -> Option<block::Scn> {
    match node.engine.transactions().state(txn) {
        txn::TxnState::Committed(e) => Some(e),
        _ => None,
    }
}

/// V6 (4). The last group of instance 1 has a commit that instance 2 has heard of. The last commit
/// of instance 2 but one comes after that commit, and the header of instance 2's last batch has its
/// SCN. Both instances die, and instance 3 has heard of neither commit. Instance 3 finds the SCN of
/// the second commit in the thread of instance 2. It finds the SCN of the first only because the
/// same header has it, as evidence. Otherwise it would put the first commit above its own clock,
/// and a snapshot from before would see the second commit without the first.
#[test]
fn v6_two_die_and_the_survivor_has_heard_of_neither_commit() {
    let (s, t) = create();
    let [one, two, three] = [1, 2, 3].map(|k| start_with(&s, k, k.into(), true));
    load(&one, &t, 0..5);
    // Each instance has the block of its own row, and has read the index.
    for (node, id) in [(&one, 0), (&two, 1), (&two, 2), (&three, 3)] {
        let mut s = node.engine.session().unwrap();
        s.begin(Isolation::ReadCommitted).unwrap();
        change(&mut s, &t, id, 'o');
        s.commit().unwrap();
    }
    let opened = |node: &Node, id| {
        let mut s = node.engine.session().unwrap();
        s.begin(Isolation::ReadCommitted).unwrap();
        change(&mut s, &t, id, 'n');
        s
    };
    let (first, second, third) = (opened(&one, 0), opened(&two, 1), opened(&two, 2));
    let mut beside = three.engine.session().unwrap();
    beside.begin(Isolation::ReadCommitted).unwrap();
    let rid = change(&mut beside, &t, 3, 'n');

    let cut = Fault {
        cut: true,
        ..Fault::default()
    };
    set_fault(&one, 3, cut);
    set_fault(&two, 3, cut);
    let first = commit_unanswered(&one, first);
    until("instance 2 has heard of it", || {
        committed_at(&two, first).is_some()
    });
    let second = commit_unanswered(&two, second);
    commit_unanswered(&two, third);
    let (e1, e2) = (committed_at(&one, first), committed_at(&two, second));
    assert!(e1.is_some() && e1 < e2);
    assert!(committed_at(&three, first).is_none() && committed_at(&three, second).is_none());
    // Instance 3's clock goes on by itself.
    while Some(three.engine.scn()) <= e2 {
        let done = beside.update(&t, rid, &row(3, 0, &wide('n')), None);
        assert_eq!(done.unwrap(), WriteOutcome::Done);
    }
    let mut reader = three.engine.session().unwrap();
    reader.begin(Isolation::RepeatableRead).unwrap();
    let between = reader.snapshot().unwrap();
    one.kill(&s);
    two.kill(&s);

    let sees = |s: &mut Session, snap: &Snapshot| [0, 1].map(|id| letter(s, &t, snap, id).unwrap());
    assert_eq!(
        sees(&mut reader, &between),
        ['n', 'n'],
        "both commits lie below the snapshot, at {e1:?} and {e2:?}"
    );
    beside.rollback().unwrap();
    reader.commit().unwrap();
    drop((beside, reader));
    three.engine.stop(&Quiet).unwrap();
    let engine = open(&s).unwrap();
    verify_all(&engine, &t, "v6").unwrap();
    engine.stop(&Quiet).unwrap();
}

/// R3. A reader has a copy of a block with changes that are in no log. It is about to ask how their
/// transaction stands, or for the undo that they point to. Then the instance dies that has all of
/// that, and copy and undo are worthless from then on. The reader starts over and finds what was
/// committed. This holds for reads by row and by scan; the death comes at different moments of the
/// reading.
#[test]
fn r3_a_reader_of_a_copy_outlives_the_undo_that_was_lost_with_its_maker() {
    const DELAY: Duration = Duration::from_millis(40);
    let (s, t) = create();
    let reader = start_with(&s, 1, 1, true);
    load(&reader, &t, 0..4);
    for life in 0..number("BRAID_KILLS", 8) as u32 {
        let writer = start_with(&s, 2, 20 + life, true);
        let mut changing = writer.engine.session().unwrap();
        changing.begin(Isolation::ReadCommitted).unwrap();
        for id in 0..4 {
            change(&mut changing, &t, id, 'n');
        }
        let delay = Fault {
            delay: DELAY,
            ..Fault::default()
        };
        set_fault(&writer, 1, delay);
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| read_all(&reader, &t, life % 2 == 0));
            std::thread::park_timeout(DELAY / 2 * (1 + life / 2 * 2));
            std::mem::forget(changing);
            writer.kill(&s);
            let letters = reading.join().unwrap();
            assert_eq!(letters, ['o'; 4], "death {life}");
        });
        until("the stand-in has left", || {
            let members = reader.engine.cluster().unwrap().members();
            members.in_limbo.is_empty() && members.is_alone()
        });
    }
    reader.engine.stop(&Quiet).unwrap();
    let engine = open(&s).unwrap();
    verify_all(&engine, &t, "r3").unwrap();
    engine.stop(&Quiet).unwrap();
}

fn read_all(node: &Node, t: &Arc<TableDef>, by_scan: bool) -> Vec<char> {
    let mut s = node.engine.session().unwrap();
    s.begin(Isolation::ReadCommitted).unwrap();
    let snap = s.snapshot().unwrap();
    let letters = match by_scan {
        true => scan(&mut s, t, &snap)
            .unwrap()
            .values()
            .map(|(_, pad)| pad.chars().next().expect("it is not empty"))
            .collect(),
        false => (0..4)
            .map(|id| letter(&mut s, t, &snap, id).unwrap())
            .collect(),
    };
    s.end_statement();
    s.commit().unwrap();
    letters
}
