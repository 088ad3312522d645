//! What is written is read as the same; what is damaged is an error, and never a panic.

use std::io::Cursor as Bytes;

use proptest::prelude::*;
use sqltrace::*;

fn word() -> impl Strategy<Value = String> {
    "[a-zA-Z][a-zA-Z0-9_$]{0,12}"
}

fn sentence() -> impl Strategy<Value = String> {
    // With quotes, brackets and signs that mean something elsewhere in the format.
    "[a-zA-Zäß#*=:,;()'\"-]{1,12}( [a-zA-Z#*=:,()'\"-]{1,12}){0,5}"
        .prop_filter("what ends the field", |s| {
            !s.contains("' ela=") && !s.contains(" (cr=") && !s.contains("' us=")
        })
}

fn counts() -> impl Strategy<Value = Counts> {
    any::<[u32; 5]>().prop_map(|[c, e, p, cr, cu]| Counts {
        cpu_us: c.into(),
        elapsed_us: e.into(),
        disk: p.into(),
        query: cr.into(),
        current: cu.into(),
    })
}

fn cursor() -> impl Strategy<Value = Record> {
    let numbers = (any::<u64>(), any::<[u32; 4]>(), any::<u64>(), any::<u32>());
    (numbers, word(), "[0-9a-z]{0,13}", "(\\PC|\n){0,200}").prop_map(
        |((number, [depth, user, command, lid], tim, hash), address, sql_id, text)| {
            Record::Cursor(Cursor {
                number,
                depth,
                user,
                command,
                parsing_user: lid,
                tim,
                hash: hash.into(),
                address,
                sql_id,
                text: line_end_of_statement(&text),
            })
        },
    )
}

fn call() -> impl Strategy<Value = Record> {
    let kind = prop::sample::select(CallKind::ALL.to_vec());
    let more = any::<(u32, u32, u32, u8, u64, u64)>();
    (kind, any::<u64>(), counts(), more).prop_map(
        |(kind, cursor, counts, (misses, rows, depth, goal, plan_hash, tim))| {
            Record::Call(Call {
                kind,
                cursor,
                counts,
                misses: misses.into(),
                rows: rows.into(),
                depth,
                goal: goal.into(),
                plan_hash,
                tim,
            })
        },
    )
}

fn wait() -> impl Strategy<Value = Record> {
    let name = prop::sample::select(vec!["file#", "driver id", "#bytes", "name|mode", "p3"]);
    let params = prop::collection::vec((name.prop_map(String::from), any::<i64>()), 0..4);
    let tail = any::<(Option<i64>, Option<u32>)>();
    (any::<u64>(), sentence(), any::<u64>(), params, tail).prop_map(
        |(cursor, event, elapsed_us, params, (object, tim))| {
            Record::Wait(Wait {
                cursor,
                event,
                elapsed_us,
                params,
                object,
                tim: tim.map(u64::from),
            })
        },
    )
}

fn served() -> impl Strategy<Value = Record> {
    let name = prop::sample::select(vec!["message out", "queue", "log flush"]);
    let parts = prop::collection::vec((name.prop_map(String::from), any::<u64>()), 0..4);
    (any::<u64>(), any::<u32>(), sentence(), any::<u64>(), parts).prop_map(
        |(cursor, instance, event, elapsed_us, parts_ns)| {
            Record::Served(Served {
                cursor,
                instance,
                event,
                elapsed_us,
                parts_ns,
            })
        },
    )
}

fn stat() -> impl Strategy<Value = Record> {
    let times = (any::<[u32; 4]>(), any::<[Option<u32>; 4]>());
    let times = times.prop_map(|([cr, pr, pw, us], [starts, cost, size, rows])| OpTimes {
        query: cr.into(),
        disk: pr.into(),
        written: pw.into(),
        time_us: us.into(),
        starts: starts.map(u64::from),
        cost: cost.map(u64::from),
        size: size.map(u64::from),
        rows: rows.map(u64::from),
    });
    let numbers = any::<(u64, u32, u64, u32, u32, i64)>();
    (numbers, sentence(), prop::option::of(times)).prop_map(
        |((cursor, id, rows, parent, position, object), operation, times)| {
            Record::Stat(Stat {
                cursor,
                id,
                rows,
                parent,
                position,
                object,
                operation,
                times,
            })
        },
    )
}

fn binds() -> impl Strategy<Value = Record> {
    let value = prop_oneof![
        Just(None),
        "-?[0-9]{1,12}".prop_map(Some),
        "[a-zA-Z0-9 =#*:]{0,20}".prop_map(|s| Some(format!("\"{s}\""))),
    ];
    let bind = (0u32..200, 0u64..4000, value).prop_map(|(datatype, length, value)| Bind {
        datatype,
        length,
        value,
    });
    (any::<u64>(), prop::collection::vec(bind, 0..5))
        .prop_map(|(cursor, binds)| Record::Binds { cursor, binds })
}

fn other() -> impl Strategy<Value = Record> {
    const TIME: &str = "2026-11-26T09:00:00.000001+00:00";
    prop_oneof![
        Just(Record::Separator),
        Just(Record::Time(TIME.to_string())),
        ("[A-Z]{2,8}( ID)?", "[a-z().0-9 ]{0,12}").prop_map(|(name, value)| Record::Star {
            name,
            value,
            time: TIME.to_string(),
        }),
        "[a-z][a-z =]{0,20}[a-z]".prop_map(Record::Comment),
        "[a-z][a-z =]{0,20}[a-z]".prop_map(Record::Text),
        ("Instance name|Node name|Release", word())
            .prop_map(|(name, value)| Record::Header { name, value }),
        any::<(bool, bool, u64)>().prop_map(|(rolled_back, read_only, tim)| {
            Record::TransactionEnd {
                rolled_back,
                read_only,
                tim,
            }
        }),
        any::<(u64, u64, u64)>().prop_map(|(cursor, err, tim)| Record::Error { cursor, err, tim }),
        any::<(u64, u32, u32, u32, u32, u64)>().prop_map(
            |(cursor, cpu, elapsed, depth, kind, tim)| Record::Close(Close {
                cursor,
                cpu_us: cpu.into(),
                elapsed_us: elapsed.into(),
                depth,
                kind,
                tim,
            })
        ),
        ("LOBREAD|LOBWRITE", any::<u64>(), counts(), any::<u64>()).prop_map(
            |(kind, bytes, counts, tim)| Record::Lob(Lob {
                kind,
                of: "TEMPORARY LOB".to_string(),
                bytes,
                counts,
                tim,
            })
        ),
        (
            any::<(u64, u32, u32, u32, u32, u64, u64)>(),
            "[a-z]{1,9} [a-z]{1,9}"
        )
            .prop_map(
                |((cursor, depth, user, command, parsing_user, tim, err), text)| {
                    Record::ParseError(ParseError {
                        cursor,
                        depth,
                        user,
                        command,
                        parsing_user,
                        tim,
                        err,
                        text,
                    })
                }
            ),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        3 => other(), 2 => cursor(), 2 => call(), 2 => wait(), 1 => served(), 2 => stat(),
        1 => binds(),
    ]
}

fn has_no_quote(record: &Record) -> bool {
    !matches!(record, Record::Stat(s) if s.operation.contains('\''))
}

fn written(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        write(&mut out, record).unwrap();
    }
    out
}

proptest! {
    #[test]
    fn written_records_are_read_as_the_same(mut records in prop::collection::vec(record(), 0..30)) {
        // One that cannot come from elsewhere: a file without any is refused.
        records.insert(0, Record::Error { cursor: 1, err: 2, tim: 3 });
        // A text behind a statement that failed to parse would be taken as its text.
        let mut before_text = false;
        records.retain(|r| {
            let goes_on = before_text && matches!(r, Record::Text(_) | Record::Header { .. });
            before_text = goes_on || matches!(r, Record::ParseError(_));
            !goes_on
        });
        let bytes = written(&records);
        let read: Result<Vec<Entry>, Error> = Reader::new(Bytes::new(&bytes)).collect();
        let read: Vec<Record> = read.unwrap().into_iter().map(|e| e.record).collect();
        // A star line within bind values is told before these.
        let has_binds = records.iter().any(|r| matches!(r, Record::Binds { .. }));
        if has_binds {
            prop_assert_eq!(read.len(), records.len());
            for r in &records {
                prop_assert!(read.contains(r), "{:?} is lost", r);
            }
        } else {
            prop_assert_eq!(read, records);
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_or_a_report_but_no_panic(
        records in prop::collection::vec(record(), 1..20),
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..10),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = written(&records);
        for (at, byte) in damages {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        for skip_damaged in [false, true] {
            let mut profile = Profile::new(Options { skip_damaged, ..Options::default() });
            if profile.add("damaged.trc", Bytes::new(&bytes)).is_ok() {
                profile.report(&mut Vec::new()).unwrap();
            }
        }
    }

    #[test]
    fn a_line_that_is_cut_off_is_refused_with_its_number(
        record in prop_oneof![call(), stat().prop_filter("a quote may end it", has_no_quote)],
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = written(&[Record::Error { cursor: 1, err: 2, tim: 3 }, record]);
        let line = whole.iter().position(|b| *b == b'\n').unwrap() + 1;
        // At least the keyword stands, and at least what ends the last field is missing. A number
        // that lost its last digits is a number, so the cut is before it.
        let end = whole.len() - 1;
        let last = whole.iter().rposition(|b| *b == b'=').unwrap();
        let at = line + 7 + cut.index(last.min(end) - line - 7);
        let read: Vec<_> = Reader::new(Bytes::new(&whole[..at])).collect();
        let is_damaged = matches!(read[1], Err(Error::Damaged { line: 2, .. }));
        prop_assert!(is_damaged, "{:?}", read[1]);
    }
}

#[test]
fn what_is_no_trace_is_refused() {
    for foreign in [
        "",
        "hello\nworld\n",
        "\u{0}\u{1}\u{2}",
        "Version 19\n=====================\n",
    ] {
        let read: Vec<_> = Reader::new(Bytes::new(foreign)).collect();
        assert!(
            matches!(read.last(), Some(Err(Error::Foreign { .. }))),
            "{read:?}"
        );
    }
}
