//! Reports of traces that were written by hand after the format's documentation. `BLESS=1` writes
//! the reports anew; they are to be added up by hand before they are committed.

use std::fs::File;
use std::io::{BufReader, Cursor};
use std::path::PathBuf;

use sqltrace::{Error, Options, Profile};

/// Cargo runs tests in the folder of their crate.
fn dir() -> PathBuf {
    PathBuf::from("tests/traces")
}

fn check(expected: &str, files: &[&str], options: Options) {
    let mut profile = Profile::new(options);
    for file in files {
        let opened = File::open(dir().join(file)).unwrap();
        profile.add(file, BufReader::new(opened)).unwrap();
    }
    let mut out = Vec::new();
    profile.report(&mut out).unwrap();
    let report = String::from_utf8(out).unwrap();
    let path = dir().join(expected);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &report).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap();
    assert!(report == known, "{expected} is now:\n{report}");
}

#[test]
fn a_statement_has_its_own_share_and_recursive_ones_are_apart() {
    check("one.txt", &["one.trc"], Options::default());
}

#[test]
fn instances_are_added_up_and_named() {
    let sort = vec!["exeela".parse().unwrap(), "fchela".parse().unwrap()];
    let options = Options {
        sort,
        print: Some(3),
        ..Options::default()
    };
    check("both.txt", &["one.trc", "two.trc"], options);
}

#[test]
fn instances_and_users_are_kept_apart_if_that_is_asked_for() {
    let options = Options {
        separate: true,
        ..Options::default()
    };
    check("apart.txt", &["one.trc", "two.trc"], options);
}

#[test]
fn a_damaged_line_is_refused_or_left_out_by_name() {
    let whole = std::fs::read_to_string(dir().join("one.trc")).unwrap();
    let damaged = whole.replace("cr=70,cu=0,mis=0", "cr=7");
    let mut profile = Profile::default();
    let refused = profile.add("damaged.trc", Cursor::new(&damaged));
    let line = 1 + damaged
        .lines()
        .position(|l| l.starts_with("FETCH"))
        .unwrap() as u64;
    assert!(
        matches!(refused, Err(Error::Damaged { line: l, .. }) if l == line),
        "{refused:?}"
    );

    let mut profile = Profile::new(Options {
        skip_damaged: true,
        ..Options::default()
    });
    profile.add("damaged.trc", Cursor::new(&damaged)).unwrap();
    let mut out = Vec::new();
    profile.report(&mut out).unwrap();
    let named = format!("WARNING: damaged.trc, left out: line {line}: cu= is missing");
    assert!(String::from_utf8(out).unwrap().contains(&named));
}

#[test]
fn a_statement_that_the_files_end_cuts_off_is_refused() {
    let whole = std::fs::read_to_string(dir().join("one.trc")).unwrap();
    let cut = &whole[..whole.find("  from t1").unwrap()];
    let refused = Profile::default().add("cut.trc", Cursor::new(cut));
    let line = 1 + cut
        .lines()
        .position(|l| l.starts_with("PARSING IN CURSOR #3"))
        .unwrap() as u64;
    assert!(
        matches!(refused, Err(Error::Damaged { line: l, .. }) if l == line),
        "{refused:?}"
    );
}

#[test]
fn only_what_there_is_can_be_sorted_by() {
    for key in ["prsrow", "fchmis", "exe", "ela", "exeelapsed", "é"] {
        assert!(key.parse::<sqltrace::SortKey>().is_err(), "{key}");
    }
    for key in [
        "prscnt", "execpu", "fchdsk", "exeqry", "fchcu", "prsmis", "exerow", "userid",
    ] {
        key.parse::<sqltrace::SortKey>().unwrap();
    }
}
