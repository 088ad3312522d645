#!/usr/bin/env python3
"""What definitions cost those who read and write the table meanwhile, on two instances and on PostgreSQL.

    bench/online.py --binary target/release/braid [--rows 300000] [--writers 2] [--readers 1] [--only validate,concurrently] [--braid-only]

Each instance has --writers clients that update rows of a table by key, and insert children of them, and --readers clients that read rows by key. While they
do, instance 1 makes one definition after the other, with --pause seconds between them. PostgreSQL, with the clients of both, does the same in turn.

Told for each definition: how long it took; the longest time that a client of each server waited for one statement, in the pause before it, and from its
beginning until 200 ms after its end; and the rate of all clients during it to that in the pause before, if it took longer than half a second. CREATE INDEX
and a change of a column's type, which stop writers in PostgreSQL too, are there for comparison. A client's failed statements are told, and there should be none.

Needs Python's psycopg, psql and PostgreSQL's server binaries.
"""
import argparse
import multiprocessing
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bench import ROOT, Postgres  # noqa: E402
from cluster import Cluster  # noqa: E402

# Name, and the statement; those that only prepare for a later one are told, too.
DEFINITIONS = [
    ("add column", "alter table t add column c1 int"),
    ("add column with a default", "alter table t add column c2 int not null default 7"),
    ("set default", "alter table t alter column v set default 1"),
    ("check, not valid", "alter table t add constraint v_check check (v > -1000000000) not valid"),
    ("validate check", "alter table t validate constraint v_check"),
    ("foreign key, not valid", "alter table child add constraint child_t foreign key (t) references t not valid"),
    ("validate foreign key", "alter table child validate constraint child_t"),
    ("create index concurrently", "create index concurrently t_pad on t (pad, id)"),
    ("reindex concurrently", "reindex index concurrently t_pad"),
    ("drop index concurrently", "drop index concurrently t_pad"),
    ("drop column", "alter table t drop column c1"),
    ("create index (stops writers)", "create index t_pad on t (pad, id)"),
    ("change of type (stops all)", "alter table t alter column c2 type bigint"),
]
WRITE = ("update t set v = v + 1 where id = %s", "insert into child (t) values (%s)")
READ = ("select v from t where id = %s",)


class Postgres1:
    """PostgreSQL as a cluster of one."""

    name, instances = "PostgreSQL", 1

    def __init__(self, work, buffers):
        self.server = Postgres(work, buffers)
        self.psql = lambda _, sql: self.server.psql(sql)
        self.url = lambda _: self.server.url()
        self.stop = self.server.stop


def client(url, statements, rows, seed, stopping, found):
    """Runs statements until told to stop; gives the times at which each ended, and the errors."""
    import psycopg
    draw, ends, errors = random.Random(seed), [], []
    with psycopg.connect(url, autocommit=True) as c:
        c.prepare_threshold = 1
        while not stopping.is_set():
            for statement in statements:
                try:
                    c.execute(statement, [draw.randint(1, rows)])
                except psycopg.Error as e:
                    errors.append(str(e))
                    if c.closed:
                        stopping.set()
                ends.append(time.time())
    found.put((ends, errors))


def longest(clients, begin, end):
    """The longest that one client waited for a statement between two moments, in ms."""
    worst = 0.0
    for ends in clients:
        for a, b in zip(ends, ends[1:]):
            worst = max(worst, min(b, end) - max(a, begin))
    return worst * 1000


def rate(clients, begin, end):
    return sum(begin <= t < end for ends in clients for t in ends) / (end - begin)


def fill(cluster, rows):
    cluster.psql(1, "create table t (id int primary key, v int, pad text)")
    cluster.psql(1, f"insert into t select g, 0, md5(g::text) || repeat('x', 200) from generate_series(1, {rows}) g")
    cluster.psql(1, "create table child (id bigint generated always as identity primary key, t int not null)")
    cluster.psql(1, f"insert into child (t) select g from generate_series(1, {rows}) g")
    cluster.psql(1, "create index on child (t)")


def define(cluster, pause):
    """Makes the definitions; gives when each began and ended."""
    import psycopg
    moments = []
    with psycopg.connect(cluster.url(1), autocommit=True) as c:
        time.sleep(pause)
        for name, statement in DEFINITIONS:
            time.sleep(pause)
            began = time.time()
            c.execute(statement)
            moments.append((name, began, time.time()))
        time.sleep(pause)
    return moments


def run(args, cluster, wanted):
    """For each definition its time, and the ends of the statements of the clients of each instance."""
    fill(cluster, args.rows)
    stopping, queues, processes = multiprocessing.Event(), [], []
    each = 2 // cluster.instances
    for k in range(1, cluster.instances + 1):
        found = multiprocessing.Queue()
        kinds = [WRITE] * (args.writers * each) + [READ] * (args.readers * each)
        for n, kind in enumerate(kinds):
            work = (cluster.url(k), kind, args.rows, 100 * k + n, stopping, found)
            processes.append(multiprocessing.Process(target=client, args=work, daemon=True))
        queues.append((found, len(kinds)))
    for p in processes:
        p.start()
    try:
        moments = define(cluster, args.pause)
    finally:
        stopping.set()
    clients, errors = [], []
    for found, count in queues:
        got = [found.get() for _ in range(count)]
        clients.append([ends for ends, _ in got])
        errors += [e for _, own in got for e in own]
    for p in processes:
        p.join()
    rows = {}
    for name, began, ended in moments:
        if not any(word in name for word in wanted):
            continue
        everyone = [c for own in clients for c in own]
        before = rate(everyone, began - args.pause, began)
        rows[name] = {
            "took": (ended - began) * 1000,
            "before": [longest(own, began - args.pause, began) for own in clients],
            "during": [longest(own, began, ended + 0.2) for own in clients],
            "rate": rate(everyone, began, ended) / before if ended - began > 0.5 else None,
        }
    return rows, errors


def middle(rounds, name, of):
    """The median over rounds, and the greatest."""
    values = [of(r[name]) for r in rounds]
    return f"{statistics.median(values):.0f} ({max(values):.0f})"


def table(title, rounds):
    print(f"\n{title}: ms, the median of {len(rounds)} rounds (the greatest)\n")
    count = len(next(iter(rounds[0].values()))["during"])
    heads = [f"{what}, server {k + 1}" for k in range(count) for what in ("longest wait before", "during")]
    print("| definition | took | " + " | ".join(heads) + " | rate during |\n|" + "---|" * (len(heads) + 3))
    for name in rounds[0]:
        cells = [middle(rounds, name, lambda r: r["took"])]
        for k in range(count):
            cells += [middle(rounds, name, lambda r, k=k, what=what: r[what][k]) for what in ("before", "during")]
        rates = [r[name]["rate"] for r in rounds if r[name]["rate"] is not None]
        cells.append(f"{statistics.median(rates):.2f}" if rates else "")
        print(f"| {name} | " + " | ".join(cells) + " |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    p.add_argument("--binary", type=pathlib.Path, default=target / "release" / "braid")
    p.add_argument("--rows", type=int, default=300_000)
    p.add_argument("--writers", type=int, default=2)
    p.add_argument("--readers", type=int, default=1)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--pause", type=float, default=2.0)
    p.add_argument("--only", default="")
    p.add_argument("--braid-only", action="store_true")
    p.add_argument("--buffers", default="1GB")
    p.add_argument("--port", type=int, default=6700)
    p.add_argument("--work", type=pathlib.Path)
    args = p.parse_args()
    wanted = args.only.split(",")
    work = args.work or pathlib.Path(tempfile.mkdtemp(prefix="braid-online-"))
    work.mkdir(parents=True, exist_ok=True)
    makers = [("Braid, two instances", lambda n: Cluster(args.binary, work, f"online-{n}", 2, args.port, ["--buffer-cache", args.buffers]))]
    if not args.braid_only:
        makers.append(("PostgreSQL", lambda _: Postgres1(work, args.buffers)))
    found = {title: [] for title, _ in makers}
    failed = 0
    for n in range(args.rounds):
        for title, make in makers if n % 2 else makers[::-1]:
            cluster = make(n)
            try:
                rows, errors = run(args, cluster, wanted)
            finally:
                cluster.stop()
            found[title].append(rows)
            failed += len(errors)
            for e in errors[:3]:
                print(f"{title}: {e}", file=sys.stderr)
    for title, rounds in found.items():
        table(title, rounds)
    print(f"\nfailed statements: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
