#!/usr/bin/env python3
"""Short statements of applications on PostgreSQL and on one instance of Braid, in one run.

    bench/statements.py --binary target/release/braid [--base OLD-BINARY] [--only select,update,join2,join4,exists,sysbench]
                        [--clients 4] [--seconds 3] [--rounds 5]

  select    a row by its key, of 100,000; prepared, and by the simple protocol
  update    the same changed
  join2     the ten lines of an order, each with its item
  join4     an order with its customer, and its ten lines, each with its item
  exists    EXISTS, NOT EXISTS, NOT IN and sums by row (of 1,000) of 20,000 rows without an index to go by: seconds
  sysbench  oltp_read_only and oltp_read_write, 8 threads, of one table of 100,000 rows (Debian: sysbench)

Sides take turns, `--rounds` times; told are medians and the median of the rounds' ratios to PostgreSQL, above 1 if Braid is faster, and with --base to
the program of before. Needs pgbench, psql, PostgreSQL's server binaries.
"""
import argparse
import pathlib
import re
import shutil
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bench import ROOT, Postgres, pgbench, seconds_of, sh  # noqa: E402
from cluster import Cluster  # noqa: E402

TABLES = """
create table shared (id int primary key, v int not null, filler text);
insert into shared select i, i, 'filler of some length' from generate_series(1, 100000) i;
create table customer (id int primary key, name text not null);
insert into customer select i, 'customer ' || i from generate_series(1, 1000) i;
create table item (id int primary key, name text not null, price numeric(8, 2) not null);
insert into item select i, 'item ' || i, i from generate_series(1, 10000) i;
create table orders (id int primary key, customer int not null, day date not null);
insert into orders select i, i % 1000 + 1, date '2020-01-01' + i % 1000 from generate_series(1, 20000) i;
create table line (orders int, n int, item int not null, quantity int not null, primary key (orders, n));
insert into line select o, n, (o * 7 + n * 31) % 10000 + 1, n from generate_series(1, 20000) o, generate_series(1, 10) n;
create table loose (k int, v int);
insert into loose select i % 7000, i from generate_series(1, 20000) i;
analyze shared; analyze customer; analyze item; analyze orders; analyze line; analyze loose;
"""
KEYED = {
    "select": (100_000, "select v from shared where id = :k;"),
    "update": (100_000, "update shared set v = v + 1 where id = :k;"),
    "join2": (20_000, "select l.n, l.quantity, i.name, i.price from line l join item i on i.id = l.item where l.orders = :k;"),
    "join4": (20_000, "select o.day, c.name, l.n, l.quantity, i.name, i.price from orders o join customer c on c.id = o.customer "
                      "join line l on l.orders = o.id join item i on i.id = l.item where o.id = :k;"),
}
EXISTS = {
    "exists": "select count(*) from shared s where id <= 20000 and exists (select 1 from loose l where l.k = s.v)",
    "not exists": "select count(*) from shared s where id <= 20000 and not exists (select 1 from loose l where l.k = s.v and l.v > 100)",
    "not in": "select count(*) from shared s where id <= 20000 and id not in (select l.v from loose l where l.k = s.v)",
    "sum by row": "select sum(c) from (select (select sum(l.v) from loose l where l.k = s.v) c from shared s where id <= 1000) x",
}


class Side:
    def __init__(self, name, server, port, user, db, psql):
        self.name, self.server, self.port, self.user, self.db, self.psql = name, server, port, user, db, psql


def sysbench(side, what, args, *command):
    return sh(["sysbench", f"oltp_{what}", "--db-driver=pgsql", "--pgsql-host=127.0.0.1", f"--pgsql-port={side.port}", f"--pgsql-user={side.user}",
               f"--pgsql-db={side.db}", "--table-size=100000", "--tables=1", "--threads=8", "--report-interval=0", f"--time={args.seconds}", *command])


def sysbench_rate(side, what, args):
    return float(re.search(r"transactions:\s+\d+\s+\(([\d.]+) per sec", sysbench(side, what, args, "run")).group(1))


class Run:
    def __init__(self, sides, args):
        self.sides, self.args = sides, args

    def compare(self, what, measure, faster_is_more=True):
        found = {s.name: [] for s in self.sides}
        for n in range(self.args.rounds):
            for s in self.sides if n % 2 == 0 else list(reversed(self.sides)):
                found[s.name].append(measure(s))
        cells = [f"{statistics.median(found[s.name]):.4g}" for s in self.sides]

        def ratios(other):
            each = [a / b if faster_is_more else b / a for a, b in zip(found["Braid"], found[other])]
            spread = statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else 0
            return f"{statistics.median(each):.2f} +- {spread:.2f}"
        cells += [ratios(s.name) for s in self.sides if s.name != "Braid"]
        print(f"| {what} | " + " | ".join(cells) + " |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/braid")
    p.add_argument("--base", type=pathlib.Path, help="a program of before")
    p.add_argument("--only", default="select,update,join2,join4,exists,sysbench")
    p.add_argument("--clients", type=int, default=4)
    p.add_argument("--seconds", type=int, default=3)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--buffers", default="1GB")
    p.add_argument("--port", type=int, default=7950)
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/var/tmp/braid-statements"))
    p.add_argument("--braid-arg", action="append", default=[], help="passed on to `braid up`")
    args = p.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    (args.work / "tables.sql").write_text(TABLES)
    sides = []
    try:
        pg = Postgres(args.work, args.buffers)
        sides.append(Side("PostgreSQL", pg, pg.port, pg.user, pg.db, pg.psql))
        for n, (name, binary) in enumerate((("Braid", args.binary), ("before", args.base))):
            if binary:
                c = Cluster(binary, args.work, name, 1, args.port + 20 * n, ["--buffer-cache", args.buffers, *args.braid_arg])
                sides.append(Side(name, c, args.port + 20 * n + 1, c.user, c.db, lambda sql, c=c: c.psql(1, sql)))
        for s in sides:
            sh(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(s.port), "-U", s.user, "-d", s.db, "-f", str(args.work / "tables.sql")])
        names = [s.name for s in sides]
        print("| work | " + " | ".join(names) + " | " + " | ".join(f"to {n}" for n in names if n != "Braid") + " |")
        print("|---|" + "---|" * (2 * len(names) - 1))
        run = Run(sides, args)
        for what in args.only.split(","):
            if what in KEYED:
                most, sql = KEYED[what]
                script = args.work / f"{what}.sql"
                script.write_text(f"\\set k random(1, {most})\n{sql}\n")
                for mode in ("prepared", "simple"):
                    flags = ["-M", mode, "-c", str(args.clients), "-j", "2", "-f", str(script)]
                    run.compare(f"{what}, {mode}, tps", lambda s: pgbench(s, flags, args.seconds))
            elif what == "exists":
                for name, sql in EXISTS.items():
                    answers = {s.psql(sql) for s in sides}
                    if len(answers) != 1:
                        raise SystemExit(f"different answers to {sql}: {answers}")
                    run.compare(f"{name}, s", lambda s: seconds_of(lambda: s.psql(sql)), False)
            elif what == "sysbench":
                for s in sides:
                    sysbench(s, "read_write", args, "prepare")
                    s.psql("analyze sbtest1")
                for kind in ("read_only", "read_write"):
                    run.compare(f"sysbench {kind}, 8 threads, tps", lambda s: sysbench_rate(s, kind, args))
            else:
                raise SystemExit(f"no such work: {what}")
    finally:
        for s in sides:
            s.server.stop()


if __name__ == "__main__":
    main()
