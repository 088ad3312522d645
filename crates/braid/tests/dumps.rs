//! Definitions and data out and in again: pg_dump, and COPY in binary. A client that
//! is not installed is skipped, and the test says so.
//!
//! `tests/peers/dumps.py` does the same with PostgreSQL at the other end.

use std::io::{Read, Write};
use std::process::Command;

use testkit::processes::Instance;

const SCHEMA: &str = include_str!("../../../tests/peers/dump_schema.sql");

/// What a client of PostgreSQL writes to its output; `None` if it is not installed.
fn run(instance: &Instance, program: &str, args: &[&str]) -> Option<String> {
    let command = Command::new(program)
        .args(args)
        .env("PGHOST", "127.0.0.1")
        .env("PGPORT", instance.port.to_string())
        .env("PGUSER", "tester")
        .env("PGDATABASE", "braid")
        .env("PSQLRC", "/dev/null")
        .output();
    let output = match command {
        Ok(output) => output,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: {program} is not installed");
            return None;
        }
        Err(e) => panic!("{program}: {e}"),
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {}: {errors}",
        args.join(" ")
    );
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A dump as text, without the lines that are random.
fn dump(instance: &Instance, args: &[&str]) -> Option<String> {
    let text = run(instance, "pg_dump", args)?;
    let random = |line: &str| line.starts_with("\\restrict") || line.starts_with("\\unrestrict");
    let kept: Vec<&str> = text.lines().filter(|line| !random(line)).collect();
    Some(kept.join("\n"))
}

/// pg_dump writes all of a schema: definitions, comments, rows, and where the sequences stand. A
/// part of it, with its rows, is restored into an empty database and dumped there as at first.
#[test]
fn a_schema_is_dumped() {
    let source = Instance::start("dumps-source");
    source.client().batch_execute(SCHEMA).expect("the schema");
    let Some(whole) = dump(&source, &[]) else {
        return;
    };
    for part in [
        "ADD GENERATED ALWAYS AS IDENTITY",
        "note text DEFAULT 'x''y'::text",
        "m public.mood DEFAULT 'ok'::public.mood",
        "CHECK ((paid >= (0)::numeric))",
        "CREATE INDEX parent_low ON public.parent USING btree (lower((name)::text))",
        "EXECUTE FUNCTION public.stamp()",
        "REFERENCES public.parent(id) ON DELETE CASCADE",
        "COMMENT ON TRIGGER stamped ON public.parent IS 'a trigger'",
        "SELECT pg_catalog.setval('public.loose', 8, true)",
        "SELECT pg_catalog.setval('public.unused', 7, false)",
        "{a,\"b c\",NULL}",
    ] {
        assert!(whole.contains(part), "{part} is not in the dump:\n{whole}");
    }
    let statements = "create table plain (id serial primary key, t text, n numeric default 2,
            check (n > 0));
        create index plain_low on plain (lower(t)) where n > 1;
        comment on table plain is 'dumped';
        insert into plain (t, n) values ('a\tb', 1.50), (null, null)";
    source.client().batch_execute(statements).expect("a table");
    for how in [
        &["--no-owner", "-t", "plain"][..],
        &["--no-owner", "-t", "plain", "--inserts"],
    ] {
        let Some(first) = dump(&source, how) else {
            return;
        };
        let target = Instance::start("dumps-target");
        let file = source.data().with_file_name("dump");
        std::fs::write(&file, &first).expect("the dump is written");
        let args = [
            "-X",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-f",
            &file.to_string_lossy(),
        ];
        if run(&target, "psql", &args).is_none() {
            return;
        }
        assert_eq!(
            dump(&target, how).as_deref(),
            Some(first.as_str()),
            "{how:?}"
        );
    }
}

/// Definitions that call functions and name types of users are dumped with schemas, so that they
/// are restored by a session without any on its path.
#[test]
fn definitions_that_call_functions_are_restored() {
    let source = Instance::start("dumps-names-source");
    let statements = "create function ok(int) returns boolean language sql immutable
            as 'select $1 > 0';
        create function next(int default 1) returns int language sql immutable
            as 'select $1 + 1';
        create type mood as enum ('sad', 'glad');
        create domain positive as int default next(2) check (ok(value));
        create function touch() returns trigger language plpgsql
            as 'begin return new; end';
        create table t (id int primary key default next(41), a int check (ok(a)),
            b int generated always as (next(a)) stored, m mood default 'glad'::mood,
            p positive, check (m <> 'sad'::mood));
        create index t_next on t (next(a)) where ok(a);
        create trigger t_touch before insert on t for each row
            when (ok(new.a)) execute function touch();
        create policy seen on t using (ok(a));
        create view v as select x.next, x.m
            from (select next(t.a), t.m::text::mood from t where ok(t.a)) x;
        create materialized view mv as select next(a) as n from t;
        insert into t (a, p) values (1, 1)";
    source.client().batch_execute(statements).expect("a schema");
    let Some(first) = dump(&source, &["--no-owner"]) else {
        return;
    };
    assert!(first.contains("CHECK (public.ok(a))"), "{first}");
    let target = Instance::start("dumps-names-target");
    let file = source.data().with_file_name("dump-names");
    std::fs::write(&file, &first).expect("the dump is written");
    let path = file.to_string_lossy();
    let args = ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", &path];
    if run(&target, "psql", &args).is_none() {
        return;
    }
    assert_eq!(dump(&target, &["--no-owner"]).as_deref(), Some(&*first));
    let refused = target.client().batch_execute(
        "set search_path = '';
         insert into public.t (id, a) values (2, 2);
         insert into public.t (a) values (-1)",
    );
    let refused = refused
        .expect_err("a check")
        .code()
        .map(|c| c.code().to_string());
    assert_eq!(refused.as_deref(), Some("23514"));
}

/// A file of COPY in binary is read back as it was written, wherever its pieces are cut; what is
/// wrong with it names the row and the column.
#[test]
fn binary_copies_go_both_ways() {
    let instance = Instance::start("dumps-binary");
    let mut c = instance.client();
    c.batch_execute(
        "create table t (i int not null, s text, v varchar(3), n numeric(6,2), b bytea,
             at timestamptz, a int[], j jsonb);
         insert into t values (1, 'é', 'abc', 12.5, '\\x00ff', '2020-01-01', '{1,NULL}', '{\"a\":1}'),
             (2, null, null, null, null, null, null, null);
         create table u (i int not null, s text, v varchar(3), n numeric(6,2), b bytea,
             at timestamptz, a int[], j jsonb)",
    )
    .expect("tables");
    let out = |c: &mut postgres::Client, query: &str| {
        let mut file = Vec::new();
        let mut reader = c.copy_out(query).expect("COPY TO");
        reader.read_to_end(&mut file).expect("the file");
        file
    };
    let file = out(&mut c, "copy t to stdout (format binary)");
    assert_eq!(&file[..11], b"PGCOPY\n\xff\r\n\0");
    assert_eq!(&file[file.len() - 2..], [255, 255]);
    for piece in [1, 7, file.len()] {
        c.batch_execute("delete from u").expect("DELETE");
        let mut writer = c
            .copy_in("copy u from stdin with binary")
            .expect("COPY FROM");
        for part in file.chunks(piece) {
            writer.write_all(part).expect("a piece");
            writer.flush().expect("a piece is sent");
        }
        assert_eq!(writer.finish().expect("the end"), 2);
        assert_eq!(out(&mut c, "copy binary u to stdout"), file, "{piece}");
    }
    let mut refused = |file: &[u8]| {
        let mut writer = c
            .copy_in("copy u (i, v) from stdin (format binary)")
            .expect("COPY");
        let sent = writer.write_all(file).map_err(|e| e.to_string());
        let error = writer.finish().expect_err("the file is wrong");
        let error = error.as_db_error().expect("the server says so").clone();
        assert!(sent.is_ok() || !error.message().is_empty());
        (
            error.code().code().to_string(),
            error.message().to_string(),
            error.where_().map(str::to_string),
        )
    };
    let mut row = file[..19].to_vec();
    row.extend([0, 2, 0, 0, 0, 4, 0, 0, 0, 9, 0, 0, 0, 4]);
    row.extend(b"abcd");
    let (code, message, place) = refused(&row);
    assert_eq!(code, "22001", "{message}");
    assert_eq!(place.as_deref(), Some("COPY u, line 1, column v"));
    let (code, message, place) = refused(&row[..row.len() - 1]);
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("22P04", "unexpected EOF in COPY data")
    );
    assert_eq!(place.as_deref(), Some("COPY u, line 1, column v"));
    let (code, message, place) = refused(b"1\tabc\n");
    assert_eq!(
        (code.as_str(), message.as_str(), place),
        ("22P04", "COPY file signature not recognized", None)
    );
}
