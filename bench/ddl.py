#!/usr/bin/env python3
"""What definitions cost in a database of many tables, on two instances over one database.

    bench/ddl.py --binary target/release/braid [--tables 10000] [--every 100] [--port 6400] [--work DIR]

Instance 1 makes `--tables` tables of five columns, each with a primary key and a second index; every statement is a transaction of its own.
After every `--every` tables a row is printed:

  create   the median time of CREATE TABLE among these, in ms
  index    the median time of CREATE INDEX among these
  other    on instance 2, the first statement (a select by key of an old table) after a CREATE TABLE on instance 1: median of ten
  idle     the same statement there, when nothing has changed: what it costs without a change of definitions
  \\d       on instance 2, all queries that psql sends for `\\d table`, of the newest table

Needs psql and Python's psycopg.
"""
import argparse
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cluster import Cluster  # noqa: E402

SAMPLES = 10


def timed(work):
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def queries_of_describe(cluster, table):
    """The queries that psql sends for \\d of a table, as it shows them itself."""
    url = cluster.url(2)
    said = subprocess.run(["psql", "-X", "-E", "-d", url, "-c", f"\\d {table}"], capture_output=True, text=True, check=True).stdout
    parts = said.split("********* QUERY **********\n")[1:]
    return [part.split("**************************")[0] for part in parts]


class Run:
    def __init__(self, args, cluster):
        import psycopg
        self.args, self.cluster, self.made = args, cluster, 0
        self.one, self.two = (psycopg.connect(cluster.url(k), autocommit=True) for k in (1, 2))
        # No statement is prepared on the server: psql prepares none.
        self.two.prepare_threshold = None
        self.one.execute("create table old (id int primary key, v int)")
        self.one.execute("insert into old values (1, 1)")

    def create(self):
        n = self.made
        self.made += 1
        create = timed(lambda: self.one.execute(f"create table t{n} (id int primary key, a int not null, b text, c timestamp default now(), d numeric)"))
        index = timed(lambda: self.one.execute(f"create index on t{n} (a)"))
        return create, index

    def select(self):
        return timed(lambda: self.two.execute("select v from old where id = 1").fetchall())

    def batch(self):
        figures = {"create": [], "index": [], "other": [], "idle": []}
        for n in range(self.args.every):
            create, index = self.create()
            figures["create"].append(create)
            figures["index"].append(index)
            if n >= self.args.every - SAMPLES:
                figures["other"].append(self.select())
                figures["idle"].append(self.select())
        row = {name: statistics.median(values) for name, values in figures.items()}
        table = f"t{self.made - 1}"
        queries = queries_of_describe(self.cluster, table)
        run = lambda: [self.two.execute(q).fetchall() for q in queries]
        row["\\d"] = statistics.median(timed(run) for _ in range(3))
        return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=pathlib.Path("target/release/braid"))
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--port", type=int, default=6400)
    parser.add_argument("--work", type=pathlib.Path)
    args = parser.parse_args()
    work = args.work or pathlib.Path(tempfile.mkdtemp(prefix="braid-ddl-"))
    work.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(args.binary.resolve(), work, "ddl", 2, args.port, [])
    try:
        run = Run(args, cluster)
        names = ["create", "index", "other", "idle", "\\d"]
        print(" ".join(["tables".rjust(7)] + [f"{n} ms".rjust(10) for n in names]), flush=True)
        while run.made < args.tables:
            row = run.batch()
            print(" ".join([str(run.made).rjust(7)] + [f"{row[n]:.2f}".rjust(10) for n in names]), flush=True)
    finally:
        cluster.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
