//! Real clients against a real instance: psql, pgbench and psycopg 3. A client that is not
//! installed is skipped, and the test says so.

use std::process::{Command, Output};

use testkit::processes::Instance;

/// Runs a program, or says that it is not installed.
fn run(instance: &Instance, program: &str, args: &[&str]) -> Option<Output> {
    let connection = [
        ("PGHOST", "127.0.0.1"),
        ("PGUSER", "tester"),
        ("PGDATABASE", "braid"),
        ("PSQLRC", "/dev/null"),
    ];
    let port = instance.port.to_string();
    match Command::new(program)
        .args(args)
        .envs(connection)
        .env("PGPORT", port)
        .output()
    {
        Ok(output) => Some(output),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: {program} is not installed");
            None
        }
        Err(e) => panic!("{program}: {e}"),
    }
}

fn succeeded(what: &str, output: &Output) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{what}: {}\n{out}\n{err}",
        output.status
    );
    out.into_owned()
}

fn psql(instance: &Instance, commands: &str) -> Option<String> {
    let output = run(
        instance,
        "psql",
        &["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", commands],
    )?;
    Some(succeeded(commands, &output))
}

#[test]
fn psql_describes_tables() {
    let instance = Instance::start("clients-psql");
    let Some(_) = psql(
        &instance,
        "create table parent (id serial primary key, name varchar(20) not null default 'x', paid numeric(12,2) check (paid > 0))",
    ) else {
        return;
    };
    psql(
        &instance,
        "create unique index parent_name on parent (name desc)",
    );
    psql(
        &instance,
        "create table child (id bigint generated always as identity, parent_id int unique, seen timestamptz default now())",
    );
    let shown = |command: &str, wanted: &[&str]| {
        let out = psql(&instance, command).unwrap_or_default();
        for part in wanted {
            assert!(out.contains(part), "{command} does not show {part}:\n{out}");
        }
    };
    shown("\\d", &["parent", "parent_id_seq", "sequence"]);
    let columns = [
        "character varying(20)",
        "numeric(12,2)",
        "not null",
        "nextval('parent_id_seq'::regclass)",
        "'x'",
    ];
    let parts = [
        "\"parent_pkey\" PRIMARY KEY, btree (id)",
        "\"parent_name\" UNIQUE, btree (name DESC)",
        "\"parent_paid_check\" CHECK",
    ];
    for command in ["\\d parent", "\\d+ parent"] {
        shown(command, &columns);
        shown(command, &parts);
    }
    let unique = "\"child_parent_id_key\" UNIQUE CONSTRAINT, btree (parent_id)";
    shown(
        "\\d child",
        &["generated always as identity", "now()", unique],
    );
    shown(
        "\\d parent_name",
        &["unique, btree, for table \"public.parent\""],
    );
    shown("\\d parent_id_seq", &["Owned by: public.parent.id"]);
    shown("\\d pg_class", &["relname", "View \"pg_catalog.pg_class\""]);
    shown("\\dt", &["parent", "child"]);
    shown("\\dt+", &["permanent", "heap", "kB"]);
    shown("\\di", &["parent_pkey", "child_parent_id_key"]);
    shown("\\ds", &["child_id_seq"]);
    shown("\\dn", &["public"]);
    shown("\\l", &["braid", "UTF8"]);
    shown("\\du", &["tester", "Superuser"]);
    shown("\\df", &["List of functions"]);
    for command in ["\\dv", "\\dT", "\\db", "\\dp", "\\dx", "\\conninfo"] {
        psql(&instance, command);
    }
}

#[test]
fn pgbench_with_all_protocols() {
    let instance = Instance::start("clients-pgbench");
    let Some(output) = run(&instance, "pgbench", &["-i", "-s", "1", "-q", "braid"]) else {
        return;
    };
    succeeded("pgbench -i", &output);
    for protocol in ["simple", "extended", "prepared"] {
        for script in ["tpcb-like", "simple-update", "select-only"] {
            let args = [
                "-n", "-M", protocol, "-b", script, "-c", "4", "-j", "2", "-t", "25", "braid",
            ];
            let output = run(&instance, "pgbench", &args).expect("it was there a moment ago");
            let report = succeeded(&format!("pgbench {args:?}"), &output);
            assert!(
                report.contains("number of transactions actually processed: 100/100"),
                "{report}"
            );
            assert!(
                report.contains("number of failed transactions: 0"),
                "{report}"
            );
        }
    }
    let mut client = instance.client();
    let row = client
        .query_one(
            "select (select sum(abalance) from pgbench_accounts), (select sum(delta) from pgbench_history), \
             (select count(*) from pgbench_history)",
            &[],
        )
        .expect("sums");
    let (accounts, history, count): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    assert_eq!((accounts, count), (history, 600));
}

#[test]
fn psycopg() {
    let instance = Instance::start("clients-psycopg");
    let script = "tests/psycopg_test.py";
    let Some(output) = run(&instance, "python3", &["-c", "import psycopg"]) else {
        return;
    };
    if !output.status.success() {
        println!("skipped: psycopg is not installed");
        return;
    }
    let output = run(&instance, "python3", &[script]).expect("it was there a moment ago");
    succeeded("psycopg", &output);
}

/// The first contact of those programs in `tests/clients` that need no installation of their own
/// here.
#[test]
fn first_contact() {
    let instance = Instance::start("clients-contact");
    let clients = "../../tests/clients";
    if run(&instance, "psql", &["--version"]).is_some() {
        let script = format!("{clients}/psql/psql.sh");
        let output = run(&instance, "bash", &[&script]).expect("psql is there, so is bash");
        succeeded("psql.sh", &output);
    }
    for (module, program) in [
        ("asyncpg", "asyncpg_client.py"),
        ("psycopg2", "psycopg2_client.py"),
        ("psycopg", "psycopg3_client.py"),
    ] {
        let import = format!("import {module}");
        let Some(output) = run(&instance, "python3", &["-c", &import]) else {
            return;
        };
        if !output.status.success() {
            println!("skipped: {module} is not installed");
            continue;
        }
        let script = format!("{clients}/python/{program}");
        let output = run(&instance, "python3", &[&script]).expect("it was there a moment ago");
        succeeded(program, &output);
    }
}
