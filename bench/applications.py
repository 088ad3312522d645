#!/usr/bin/env python3
"""What applications do beside short statements, on PostgreSQL and on one instance of Braid, in one run; foreign keys on two instances.

    bench/applications.py --binary target/release/braid [--only documents,arrays,numeric,copy,triggers,lookups,connect,introspect,dump,keys]
                          [--clients 4] [--seconds 3] [--rounds 5]

  documents   jsonb by key: parts of it read, one value of it changed; prepared
  arrays      int[] by key: elements, a slice and the length read, one element changed; prepared
  numeric     sums of 3 million numerics with and without a declared scale, all and by groups: seconds
  copy        a million rows of six types, binary COPY to and from a file of the client: seconds
  triggers    an update of 100,000 rows with a row trigger in PL/pgSQL, before that changes the row, after that writes another: seconds
  lookups     100,000 look-ups by key in a PL/pgSQL loop, and as many inserts: seconds
  connect     clients that log in with SCRAM, over TCP and over TLS, send `select 1` and go; logins per second, one and `--clients` at a time
  introspect  what Django 5.2 asks for `inspectdb` of 100 tables: seconds; needs Django
  dump        pg_dump -s of 1,000 tables: seconds
  keys        inserts with a foreign key to one of 1,000 parents, against the same without the key, on both of two instances at once; Braid alone

Sides take turns, `--rounds` times; told are medians and the median of the rounds' ratios, above 1 if Braid is faster. Needs pgbench, psql, pg_dump,
openssl, PostgreSQL's server binaries.
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bench import ROOT, Postgres, pgbench, seconds_of, sh  # noqa: E402
from cluster import Cluster, Detail, rates_of, start_pgbench  # noqa: E402
from statements import Run, Side  # noqa: E402

WORKS = "documents,arrays,numeric,copy,triggers,lookups,connect,introspect,dump,keys"
DOCUMENTS = """
create table docs (id int primary key, doc jsonb not null);
insert into docs select i, jsonb_build_object('name', 'name ' || i, 'n', 0, 'tags', jsonb_build_array('a', 'b', i), 'address',
    jsonb_build_object('city', 'city ' || i % 100, 'street', repeat('s', 60)), 'notes', repeat('n', 150)) from generate_series(1, 100000) i;
analyze docs;
"""
ARRAYS = """
create table lists (id int primary key, a int[] not null);
insert into lists select i, array(select i + n from generate_series(1, 20) n) from generate_series(1, 100000) i;
analyze lists;
"""
NUMERIC = """
create table sums (g int not null, n numeric(12, 2) not null, free numeric not null);
insert into sums select i % 100, i % 100000 / 100.0, i % 100000 / 7.0 from generate_series(1, 3000000) i;
analyze sums;
"""
COPY = """
create table wide (id int, name text, n numeric(10, 2), at timestamptz, f float8, ok bool);
insert into wide select i, 'name ' || i, i / 100.0, timestamptz '2020-01-01' + i * interval '1 second', i / 3.0, i % 2 = 0 from generate_series(1, 1000000) i;
create table again (like wide);
"""
TRIGGERS = """
create table plain (id int primary key, v int not null, w int not null);
insert into plain select i, i, i from generate_series(1, 100000) i;
create table fired_before (like plain including all);
create table fired_after (like plain including all);
create table audit (id int, old_v int, new_v int);
insert into fired_before select * from plain;
insert into fired_after select * from plain;
create function derive() returns trigger language plpgsql as $$ begin if new.v is distinct from old.v then new.w := new.v * 2 + 1; end if; return new; end $$;
create function note() returns trigger language plpgsql as $$ begin insert into audit values (old.id, old.v, new.v); return null; end $$;
create trigger b before update on fired_before for each row execute function derive();
create trigger a after update on fired_after for each row execute function note();
analyze plain; analyze fired_before; analyze fired_after;
"""
LOOKUPS = """
create table found (id int primary key, v int not null);
insert into found select i, i from generate_series(1, 100000) i;
create table made (id int, v int);
analyze found;
"""
RULES = f"access_rules=local all {Cluster.user} trust; local all all scram-sha-256"
EMPTY = "do $$ declare r record; begin for r in select tablename from pg_tables where schemaname = 'public' loop execute 'drop table ' || r.tablename || ' cascade'; end loop; end $$"
LOOP = {
    "100,000 look-ups in a loop": "do $$ declare x int; s bigint := 0; begin for i in 1..100000 loop select v into x from found where id = i; "
                                  "s := s + x; end loop; if s <> 5000050000 then raise 'wrong sum %', s; end if; end $$",
    "100,000 inserts in a loop": "do $$ begin for i in 1..100000 loop insert into made values (i, i); end loop; end $$",
    "a million steps of a loop": "do $$ declare s bigint := 0; begin for i in 1..1000000 loop if i % 3 = 0 then s := s + i; end if; end loop; end $$",
}
KEYED = {
    "documents": (DOCUMENTS, {
        "jsonb read": "select doc->>'name', doc->'address'->>'city', doc->'tags'->1 from docs where id = :k;",
        "jsonb changed": "update docs set doc = jsonb_set(doc, '{n}', to_jsonb((doc->>'n')::int + 1)) where id = :k;",
        "jsonb asked": "select count(*) from docs where id between :k and :k + 9 and doc @> '{\"n\": 0}';",
    }),
    "arrays": (ARRAYS, {
        "array read": "select a[3], a[5:8], array_length(a, 1), 7 = any(a) from lists where id = :k;",
        "array changed": "update lists set a[3] = a[3] + 1 where id = :k;",
        "array unnested": "select sum(x) from lists, unnest(a) x where id = :k;",
    }),
}


def load(side, sql, work):
    (work / "load.sql").write_text(sql)
    sh(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url(side), "-f", str(work / "load.sql")])


def url(side, user=None):
    return f"postgresql://{user or side.user}@127.0.0.1:{side.port}/{side.db}"


def keyed(run, what, args):
    tables, statements = KEYED[what]
    for s in run.sides:
        load(s, tables, args.work)
    for name, sql in statements.items():
        script = args.work / "script.sql"
        script.write_text(f"\\set k random(1, 100000)\n{sql}\n")
        flags = ["-M", "prepared", "-c", str(args.clients), "-j", "2", "-f", str(script)]
        run.compare(f"{name}, tps", lambda s: pgbench(s, flags, args.seconds))


def seconds(run, name, sql, same=False):
    """Times a statement; with `same` its answers have to be."""
    if same and len({s.psql(sql) for s in run.sides}) != 1:
        raise SystemExit(f"different answers to {sql}")
    run.compare(f"{name}, s", lambda s: seconds_of(lambda: s.psql(sql)), False)


def numeric(run, args):
    for s in run.sides:
        load(s, NUMERIC, args.work)
    seconds(run, "sum and avg of numeric(12, 2)", "select sum(n), avg(n) from sums", True)
    seconds(run, "the same of 100 groups", "select g, sum(n), avg(n) from sums group by g order by g", True)
    seconds(run, "sum of numeric without a scale", "select sum(free) from sums", True)


def copy(run, args):
    for s in run.sides:
        load(s, COPY, args.work)
    file = lambda s: args.work / f"{s.name}.copy"
    run.compare("binary COPY to the client, s", lambda s: seconds_of(lambda: s.psql(f"\\copy wide to '{file(s)}' (format binary)")), False)
    if len({file(s).read_bytes() for s in run.sides}) != 1:
        raise SystemExit("binary COPY wrote different bytes")

    def back(s):
        s.psql("truncate again")
        return seconds_of(lambda: s.psql(f"\\copy again from '{file(s)}' (format binary)"))
    run.compare("binary COPY from the client, s", back, False)


def triggers(run, args):
    for s in run.sides:
        load(s, TRIGGERS, args.work)
    seconds(run, "update of 100,000 rows without a trigger", "update plain set v = v + 1")
    seconds(run, "with a trigger before that sets a column", "update fired_before set v = v + 1")
    seconds(run, "with a trigger after that inserts", "update fired_after set v = v + 1")
    answers = {s.psql("select (select sum(w) from fired_before), (select count(*) from audit)") for s in run.sides}
    if len(answers) != 1:
        raise SystemExit(f"triggers did different things: {answers}")


def lookups(run, args):
    for s in run.sides:
        load(s, LOOKUPS, args.work)
    for name, sql in LOOP.items():
        seconds(run, name, sql)


def connect(run, args):
    os.environ["PGPASSWORD"] = "a password"
    for s in run.sides:
        s.psql("create role guest login password 'a password'")
        if s.name == "PostgreSQL":
            with_tls(s.server)
        if "password" not in sh_error(["psql", "-X", "-w", "-d", url(s, "guest"), "-c", "select 1"], PGPASSWORD="another"):
            raise SystemExit(f"{s.name} lets in whoever comes")
    script = args.work / "one.sql"
    script.write_text("select 1;\n")

    def logins(s, clients, mode):
        os.environ["PGSSLMODE"] = mode
        try:
            return pgbench(Side(s.name, s.server, s.port, "guest", s.db, s.psql), ["-C", "-c", str(clients), "-j", "2", "-f", str(script)], args.seconds)
        finally:
            os.environ["PGSSLMODE"] = "disable"
    for mode, name in (("disable", "SCRAM"), ("require", "SCRAM and TLS")):
        for clients in (1, args.clients):
            run.compare(f"logins with {name}, {clients} at a time, per s", lambda s: logins(s, clients, mode))


def sh_error(command, **environment):
    """What a command that has to fail says."""
    r = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    return r.stderr if r.returncode else ""


def with_tls(pg):
    """Starts PostgreSQL again with a certificate, as passwords are asked for of all but its superuser."""
    pg.stop()
    sh(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
        "-keyout", str(pg.dir / "server.key"), "-out", str(pg.dir / "server.crt")])
    for name in ("server.key", "server.crt"):
        (pg.dir / name).chmod(0o600)
        if pg.as_user:
            shutil.chown(pg.dir / name, "postgres", "postgres")
    (pg.dir / "pg_hba.conf").write_text("host all postgres all trust\nhost all all all scram-sha-256\n")
    pg.options += ["-c", "ssl=on"]
    pg.start()


def tables(number):
    each = ("create table made_{n} (id bigint generated by default as identity primary key, name varchar(40) not null unique, n numeric(10, 2) default 0, "
            "at timestamptz not null default now(), other bigint{ref}, check (n >= 0)); create index on made_{n} (at, n);")
    return "".join(each.format(n=n, ref=f" references made_{n - 1}" if n else "") for n in range(number))


def introspect(run, args):
    import django
    from django.conf import settings
    from django.db import connections
    databases = {s.name: {"ENGINE": "django.db.backends.postgresql", "NAME": s.db, "USER": s.user, "HOST": "127.0.0.1", "PORT": s.port} for s in run.sides}
    settings.configure(DATABASES={"default": databases["PostgreSQL"], **databases})
    django.setup()
    for s in run.sides:
        s.psql(EMPTY)
        load(s, tables(100), args.work)

    def ask(s):
        c = connections[s.name]
        with c.cursor() as cursor:
            found = [t.name for t in c.introspection.get_table_list(cursor)]
            if len(found) != 100:
                raise SystemExit(f"{s.name} has {len(found)} tables")
            for t in found:
                c.introspection.get_relations(cursor, t)
                c.introspection.get_constraints(cursor, t)
                c.introspection.get_table_description(cursor, t)
    run.compare("Django's introspection of 100 tables, s", lambda s: seconds_of(lambda: ask(s)), False)
    for s in run.sides:
        connections[s.name].close()


def dump(run, args):
    for s in run.sides:
        s.psql(EMPTY)
        load(s, tables(1000), args.work)
    run.compare("pg_dump -s of 1,000 tables, s", lambda s: seconds_of(lambda: sh(["pg_dump", "-s", "-d", url(s)])), False)


def keys(args):
    c = Cluster(args.binary, args.work, "two", 2, args.port + 40, ["--buffer-cache", args.buffers, *args.braid_arg])
    try:
        c.psql(1, "create table parent (id int primary key, name text); insert into parent select i, 'parent ' || i from generate_series(1, 1000) i; "
                  "create table child (id bigint primary key, parent int not null references parent); "
                  "create table orphan (id bigint primary key, parent int not null); analyze parent")
        found = {"child": [], "orphan": []}
        # In the round before the first each instance marks the parents that it shares.
        for n in range(-1, args.rounds):
            for table in ("child", "orphan") if n % 2 == 0 else ("orphan", "child"):
                script = args.work / f"{table}.sql"
                script.write_text(f"\\set id random(1, 1000000000000)\n\\set p random(1, 1000)\ninsert into {table} values (:id, :p);\n")
                flags = ["-c", str(args.clients), "-j", "1", "-f", str(script)]
                detail = Detail(c) if args.detail and n == 0 else None
                rate = rates_of([start_pgbench(c, k, flags, args.seconds) for k in (1, 2)])
                if n >= 0:
                    found[table].append(rate)
                if detail:
                    print(f"{table}\n{detail.report(rate * args.seconds)}", flush=True)
        each = [a / b for a, b in zip(found["child"], found["orphan"])]
        spread = statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else 0
        medians = [f"{statistics.median(found[t]):.4g}" for t in ("orphan", "child")]
        print(f"\n| two instances, tps | without the key | with it | ratio |\n|---|---|---|---|\n| inserts | {' | '.join(medians)} | "
              f"{statistics.median(each):.2f} +- {spread:.2f} |", flush=True)
    finally:
        c.stop()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/braid")
    p.add_argument("--only", default=WORKS)
    p.add_argument("--clients", type=int, default=4)
    p.add_argument("--seconds", type=int, default=3)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--buffers", default="1GB")
    p.add_argument("--port", type=int, default=7650)
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/var/tmp/braid-applications"))
    p.add_argument("--detail", action="store_true", help="says of keys what an insert took: processor time, waits, blocks, writes of the log")
    p.add_argument("--braid-arg", action="append", default=[], help="passed on to `braid up`")
    args = p.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    wanted = args.only.split(",")
    unknown = set(wanted) - set(WORKS.split(","))
    if unknown:
        raise SystemExit(f"no such work: {', '.join(unknown)}")
    works = {"numeric": numeric, "copy": copy, "triggers": triggers, "lookups": lookups, "connect": connect, "introspect": introspect, "dump": dump}
    if set(wanted) != {"keys"}:
        sides = []
        try:
            pg = Postgres(args.work, args.buffers)
            sides.append(Side("PostgreSQL", pg, pg.port, pg.user, pg.db, pg.psql))
            c = Cluster(args.binary, args.work, "braid", 1, args.port, ["--buffer-cache", args.buffers, "--set", RULES, *args.braid_arg])
            sides.append(Side("Braid", c, args.port + 1, c.user, c.db, lambda sql: c.psql(1, sql)))
            print("| work | PostgreSQL | Braid | ratio |\n|---|---|---|---|")
            run = Run(sides, args)
            for what in wanted:
                if what in KEYED:
                    keyed(run, what, args)
                elif what in works:
                    works[what](run, args)
        finally:
            for s in sides:
                s.server.stop()
    if "keys" in wanted:
        keys(args)


if __name__ == "__main__":
    main()
