//! Operators that keep rows, driven over rows in memory, with memory enough and with so little that
//! they spill. What they give is compared with the plainest way to compute it.

use std::sync::Arc;

use block::value::Datum;
use engine::{Config, Progress};

use super::{Frame, Running, operator};
use crate::database::Database;
use crate::expr::{ArithOp, CmpOp, Expr};
use crate::params::Instance;
use crate::query::Plan;
use crate::query::plan::*;
use crate::session::Core;
use crate::types::SqlType;

struct Quiet;

impl Progress for Quiet {
    fn step(&self, _: &str, _: u64, _: u64) {}
}

type Row = Vec<Datum>;

fn with_core(name: &str, test: impl FnOnce(&mut Core)) {
    let dir = std::env::temp_dir().join(format!("braid-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let mut config = Config::new(&dir);
    config.buffer_bytes = 16 << 20;
    config.redo_file_bytes = 8 << 20;
    config.max_sessions = 100;
    config.preallocate_bytes = 1 << 20;
    engine::Engine::create(&config, &Quiet).unwrap();
    let engine = engine::Engine::open(config, &Quiet).unwrap();
    let params = Instance::new(None);
    params.state("superuser", "tester".into());
    let database = Database::open(engine.clone(), Arc::new(params)).unwrap();
    let mut core = Core::new(&database, "tester", "braid").unwrap();
    test(&mut core);
    drop(core);
    drop(database);
    engine.stop(&Quiet).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}

fn set_memory(core: &mut Core, kilobytes: &str) {
    core.settings
        .set("work_mem", Some(kilobytes), false)
        .unwrap();
}

/// The values of some registers in the rows that a node gives, at most so many, each time that it is
/// opened.
fn run(
    core: &mut Core,
    root: &Node,
    shared: Vec<Arc<Shared>>,
    registers: &[Register],
    most: usize,
    openings: usize,
) -> Vec<Vec<Row>> {
    let snapshot = core.engine.snapshot().unwrap();
    let plan = Plan {
        root: root.clone(),
        shared,
        ..empty_plan()
    };
    core.running = Running::new(&plan, &[], snapshot, false);
    let mut frame = Frame::new(&[], plan.width, snapshot);
    let mut operator = operator(root, false);
    let all = (0..openings)
        .map(|_| {
            operator.open(core, &mut frame).unwrap();
            let mut rows = Vec::new();
            while rows.len() < most && operator.next(core, &mut frame).unwrap() {
                rows.push(frame.take_copy(registers));
            }
            rows
        })
        .collect();
    core.running = Running::default();
    all
}

fn ints(values: impl IntoIterator<Item = i64>, into: Register) -> Node {
    let rows = values
        .into_iter()
        .map(|v| vec![Expr::Const(Datum::Int8(v))])
        .collect();
    Node::Values(Arc::new(Values {
        rows,
        into: vec![into],
    }))
}

fn values(rows: &[Row], into: &[Register]) -> Node {
    Node::Values(Arc::new(Values {
        rows: rows
            .iter()
            .map(|row| row.iter().cloned().map(Expr::Const).collect())
            .collect(),
        into: into.to_vec(),
    }))
}

/// Rows of a key, now and then NULL or one that many have, and a text that takes room.
fn rows(n: u64, keys: u64, seed: u64) -> Vec<Row> {
    let mut state = seed;
    let mut below = |most: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % most
    };
    (0..n)
        .map(|i| {
            let key = match below(10) {
                0 => Datum::Null,
                1 => Datum::Int8(0),
                _ => Datum::Int8(below(keys) as i64),
            };
            vec![
                key,
                Datum::Text(format!("{i:0200}")),
                Datum::Int8(below(100) as i64),
            ]
        })
        .collect()
}

fn sorted(rows: Vec<Row>) -> Vec<String> {
    let mut rows: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
    rows.sort_unstable();
    rows
}

fn param(register: Register) -> Expr {
    Expr::Param(register)
}

#[test]
fn hash_joins_of_all_kinds_with_and_without_memory() {
    with_core("hash-joins", |core| {
        let (left, right) = (rows(700, 90, 1), rows(900, 120, 2));
        let none: Vec<Row> = Vec::new();
        for (left, right) in [(&left, &right), (&left, &none), (&none, &right)] {
            for kind in [
                JoinKind::Inner,
                JoinKind::Left,
                JoinKind::Right,
                JoinKind::Full,
            ] {
                for with_on in [false, true] {
                    let wanted = sorted(joined(left, right, kind, with_on));
                    for (memory, kept) in [("64", false), ("64", true), ("65536", true)] {
                        set_memory(core, memory);
                        let mut build = values(right, &[3, 4, 5]);
                        if kept {
                            build = Node::Keep(Arc::new(Keep {
                                input: build,
                                registers: vec![3, 4, 5],
                                depends: Vec::new(),
                            }));
                        }
                        let less =
                            || Expr::Compare(CmpOp::Lt, Box::new(param(2)), Box::new(param(5)));
                        let join = Node::Hash(Arc::new(HashJoin {
                            probe: values(left, &[0, 1, 2]),
                            build,
                            kind,
                            probe_keys: vec![param(0)],
                            build_keys: vec![param(3)],
                            on: with_on.then(less),
                            probe_registers: vec![0, 1, 2],
                            build_registers: vec![3, 4, 5],
                        }));
                        for found in run(core, &join, vec![], &[0, 1, 2, 3, 4, 5], usize::MAX, 2) {
                            assert!(
                                sorted(found) == wanted,
                                "{kind:?}, on {with_on}, {memory} kB, kept {kept}, {} and {} rows",
                                left.len(),
                                right.len()
                            );
                        }
                    }
                }
            }
        }
    });
}

fn joined(left: &[Row], right: &[Row], kind: JoinKind, with_on: bool) -> Vec<Row> {
    let nulls = || vec![Datum::Null; 3];
    let mut matched = vec![false; right.len()];
    let mut out = Vec::new();
    for l in left {
        let before = out.len();
        for (r, matched) in right.iter().zip(&mut matched) {
            let less = matches!((&l[2], &r[2]), (Datum::Int8(a), Datum::Int8(b)) if a < b);
            if !l[0].is_null() && l[0] == r[0] && (!with_on || less) {
                *matched = true;
                out.push([l.clone(), r.clone()].concat());
            }
        }
        if out.len() == before && matches!(kind, JoinKind::Left | JoinKind::Full) {
            out.push([l.clone(), nulls()].concat());
        }
    }
    for (r, matched) in right.iter().zip(matched) {
        if !matched && matches!(kind, JoinKind::Right | JoinKind::Full) {
            out.push([nulls(), r.clone()].concat());
        }
    }
    out
}

#[test]
fn set_operations_count_with_and_without_memory() {
    with_core("set-operations", |core| {
        let short = |rows: Vec<Row>| -> Vec<Row> {
            let text = Datum::Text("x".repeat(300));
            rows.into_iter()
                .map(|row| vec![row[0].clone(), text.clone()])
                .collect()
        };
        let (left, right) = (short(rows(900, 500, 3)), short(rows(800, 600, 4)));
        for kind in [SetKind::Union, SetKind::Intersect, SetKind::Except] {
            for all in [false, true] {
                let mut counts = std::collections::HashMap::<String, (Row, usize, usize)>::new();
                for row in &left {
                    counts
                        .entry(format!("{row:?}"))
                        .or_insert((row.clone(), 0, 0))
                        .1 += 1;
                }
                for row in &right {
                    counts
                        .entry(format!("{row:?}"))
                        .or_insert((row.clone(), 0, 0))
                        .2 += 1;
                }
                let wanted = counts.into_values().flat_map(|(row, l, r)| {
                    let n = match (kind, all) {
                        (SetKind::Union, true) => l + r,
                        (SetKind::Union, false) => 1,
                        (SetKind::Intersect, true) => l.min(r),
                        (SetKind::Intersect, false) => l.min(r).min(1),
                        (SetKind::Except, true) => l.saturating_sub(r),
                        (SetKind::Except, false) => usize::from(l > 0 && r == 0),
                    };
                    vec![row; n]
                });
                let wanted = sorted(wanted.collect());
                for memory in ["64", "65536"] {
                    set_memory(core, memory);
                    let node = Node::SetOperation(Arc::new(SetOperation {
                        kind,
                        all,
                        left: values(&left, &[0, 1]),
                        left_columns: vec![param(0), param(1)],
                        right: values(&right, &[2, 3]),
                        right_columns: vec![param(2), param(3)],
                        padded: Vec::new(),
                        into: vec![4, 5],
                    }));
                    for found in run(core, &node, vec![], &[4, 5], usize::MAX, 2) {
                        assert!(sorted(found) == wanted, "{kind:?} {all} {memory} kB");
                    }
                }
            }
        }
    });
}

fn arithmetic(op: ArithOp, a: Expr, b: i64) -> Expr {
    let b = Expr::Const(Datum::Int8(b));
    Expr::Arith(op, SqlType::Int8, Box::new(a), Box::new(b))
}

/// `with recursive r as (select 1 union [all] select (n * factor + added) % modulus from r)` for each
/// pair of factor and summand.
fn recursive(pairs: &[(i64, i64)], modulus: i64, distinct: bool) -> Arc<Shared> {
    let pairs: Vec<Row> = pairs
        .iter()
        .map(|(factor, added)| vec![Datum::Int8(*factor), Datum::Int8(*added)])
        .collect();
    let last = Node::Shared(Arc::new(SharedScan {
        number: 0,
        of_statement: false,
        name: "r".to_string(),
        alias: "r".to_string(),
        columns: vec![(0, 1)],
        last_round: true,
    }));
    let product = Expr::Arith(
        ArithOp::Mul,
        SqlType::Int8,
        Box::new(param(1)),
        Box::new(param(2)),
    );
    let sum = Expr::Arith(
        ArithOp::Add,
        SqlType::Int8,
        Box::new(product),
        Box::new(param(3)),
    );
    Arc::new(Shared {
        name: "r".to_string(),
        root: ints([1], 0),
        width: 8,
        output: vec![param(0)],
        recursive: Some(Recursive {
            root: Node::Loop(Arc::new(LoopJoin {
                outer: last,
                inner: values(&pairs, &[2, 3]),
                kind: JoinKind::Inner,
                on: None,
                inner_registers: vec![2, 3],
            })),
            output: vec![arithmetic(ArithOp::Mod, sum, modulus)],
            distinct,
        }),
    })
}

fn read_of(shared: &Arc<Shared>, inputs: Vec<(Register, Register)>, into: Register) -> Node {
    Node::With(Arc::new(With {
        input: Node::Shared(Arc::new(SharedScan {
            number: 0,
            of_statement: false,
            name: shared.name.clone(),
            alias: shared.name.clone(),
            columns: vec![(0, into)],
            last_round: false,
        })),
        numbers: vec![0],
        inputs: vec![inputs],
    }))
}

/// Each row once, in many rounds of one row and in few rounds of many, in memory and beyond it.
#[test]
fn recursive_unions_give_each_row_once() {
    with_core("recursive", |core| {
        for (pairs, modulus) in [(vec![(1, 1)], 3001), (vec![(2, 0), (2, 1), (3, 5)], 20_011)] {
            let r = recursive(&pairs, modulus, true);
            for memory in ["64", "65536"] {
                set_memory(core, memory);
                for found in run(
                    core,
                    &read_of(&r, vec![], 0),
                    vec![r.clone()],
                    &[0],
                    usize::MAX,
                    2,
                ) {
                    let mut numbers: Vec<i64> = found
                        .iter()
                        .map(|row| match row[0] {
                            Datum::Int8(n) => n,
                            _ => panic!("{row:?}"),
                        })
                        .collect();
                    assert_eq!(numbers[0], 1);
                    numbers.sort_unstable();
                    assert!(
                        numbers == (0..modulus).collect::<Vec<_>>(),
                        "{pairs:?} {memory} kB"
                    );
                }
            }
        }
    });
}

/// An endless recursion ends when nobody asks for more, and its rows are kept by the `With` as long
/// as what it depends on is the same.
#[test]
fn recursion_goes_as_far_as_it_is_read() {
    with_core("endless", |core| {
        let r = recursive(&[(1, 1)], i64::MAX, false);
        let found = run(core, &read_of(&r, vec![], 0), vec![r.clone()], &[0], 10, 2);
        let wanted: Vec<Row> = (1..=10).map(|n| vec![Datum::Int8(n)]).collect();
        assert_eq!(found, [wanted.clone(), wanted]);
    });
}

/// A WITH query that reads a register around it is computed anew when that has changed.
#[test]
fn with_queries_follow_what_is_around() {
    with_core("lateral-with", |core| {
        let q = Arc::new(Shared {
            name: "q".to_string(),
            root: ints([10, 20], 1),
            width: 8,
            output: vec![Expr::Arith(
                ArithOp::Add,
                SqlType::Int8,
                Box::new(param(1)),
                Box::new(param(0)),
            )],
            recursive: None,
        });
        let node = Node::Loop(Arc::new(LoopJoin {
            outer: ints([1, 1, 2], 0),
            inner: read_of(&q, vec![(0, 0)], 5),
            kind: JoinKind::Inner,
            on: None,
            inner_registers: vec![5],
        }));
        let found = run(core, &node, vec![q], &[5], usize::MAX, 1);
        let wanted: Vec<Row> = [11, 21, 11, 21, 12, 22]
            .map(|n| vec![Datum::Int8(n)])
            .to_vec();
        assert_eq!(found, [wanted]);
    });
}

/// Rows are given again from the first on, also if the reader stopped early before.
#[test]
fn kept_rows_are_given_again() {
    with_core("kept", |core| {
        set_memory(core, "64");
        let all = rows(1000, 50, 5);
        let keep = Node::Keep(Arc::new(Keep {
            input: values(&all, &[0, 1, 2]),
            registers: vec![0, 1, 2],
            depends: Vec::new(),
        }));
        // Each outer row reads one row more than the one before, by a limit over its register.
        let part = Node::Limit(Arc::new(Limit {
            input: keep.clone(),
            limit: Some(param(3)),
            offset: None,
            ties: None,
        }));
        let node = Node::Loop(Arc::new(LoopJoin {
            outer: ints([1, 400, 3, 2000, 1000], 3),
            inner: part,
            kind: JoinKind::Inner,
            on: None,
            inner_registers: vec![0, 1, 2],
        }));
        let found = run(core, &node, vec![], &[0, 1, 2], usize::MAX, 1);
        let parts = [&all[..1], &all[..400], &all[..3], &all[..], &all[..]];
        assert!(found == [parts.concat()]);
    });
}

/// Rows that depend on a register are made anew when it changes, and only then.
#[test]
fn kept_rows_follow_what_they_depend_on() {
    with_core("depends", |core| {
        let series = Node::Series(Arc::new(Series {
            of: SeriesOf::Numbers,
            args: vec![Expr::Const(Datum::Int4(1)), param(3)],
            ty: SqlType::Int4,
            into: 0,
            more: Vec::new(),
            columns: Vec::new(),
            ordinality: None,
        }));
        let node = Node::Loop(Arc::new(LoopJoin {
            outer: ints([2, 2, 1, 3], 3),
            inner: Node::Keep(Arc::new(Keep {
                input: series,
                registers: vec![0],
                depends: vec![3],
            })),
            kind: JoinKind::Inner,
            on: None,
            inner_registers: vec![0],
        }));
        let found = run(core, &node, vec![], &[0], usize::MAX, 1);
        let wanted = [1, 2, 1, 2, 1, 1, 2, 3].map(|n| vec![Datum::Int4(n)]);
        assert!(found == [wanted.to_vec()], "{found:?}");
    });
}

/// Rows are found by their number, in memory and in a file.
#[test]
fn stored_rows_are_found_by_number() {
    with_core("stored", |core| {
        let all = rows(2000, 50, 6);
        for memory in [1 << 30, 1000] {
            let mut store = super::store::RowStore::with_memory(core, memory);
            let mut frame = Frame::new(&[], 3, core.engine.snapshot().unwrap());
            for row in &all {
                frame.restore(&[0, 1, 2], row.iter().cloned());
                store.push_registers(&frame, &[0, 1, 2]).unwrap();
            }
            let mut cursor = super::store::Cursor::default();
            for i in 0..6000u64 {
                let at = i * 7919 % 2003;
                let there = store.seek(&mut cursor, at).unwrap()
                    && store
                        .next_into(&mut cursor, &mut frame, &[0, 1, 2])
                        .unwrap();
                let found = there.then(|| frame.take_copy(&[0, 1, 2]));
                assert_eq!(found.as_ref(), all.get(at as usize));
            }
        }
    });
}

fn empty_plan() -> Plan {
    Plan {
        root: Node::Nothing,
        output: Vec::new(),
        columns: Vec::new(),
        width: 8,
        parameters: 0,
        subqueries: Vec::new(),
        shared: Vec::new(),
        tables: Vec::new(),
        views: Vec::new(),
    }
}
