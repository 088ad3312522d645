#!/usr/bin/env python3
"""Sort, hash join and aggregation of more than fits into work_mem, on PostgreSQL and on one instance of Braid, in one run.

    bench/spill.py --binary target/release/braid [--megabytes 3000] [--work-mem 64MB] [--rounds 2] [--only sort,join,aggregate] [--limit 600]

The table has rows of 120 bytes; each is sorted, joined or grouped as a whole, by a key that comes in random order. Each query runs once in each round, in
turn; told are the medians, their ratio (above 1 Braid is slower), and by how much the memory of Braid's process grew in its first round, sampled fifty times a
second, beyond what it had after loading (its buffers are filled by then). Results are compared. Needs psycopg, psql, PostgreSQL's server binaries.
"""
import argparse
import pathlib
import shutil
import statistics
import sys
import threading
import time

import psycopg

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bench import ROOT, Postgres  # noqa: E402
from cluster import Cluster  # noqa: E402

ROW_BYTES = 120
QUERIES = {
    # OFFSET gives the last rows only, once all are sorted.
    "sort": "select * from big order by r offset {last}",
    "join": "select count(*), sum(length(a.pad) + length(b.pad)), min(b.pad) from big a join big b on a.k = b.r",
    "aggregate": "select count(*), sum(n), min(p) from (select r, count(*) n, max(pad) p from big group by r) g",
}


def anonymous(directory):
    """Megabytes of private memory of the process that works on this directory."""
    for p in pathlib.Path("/proc").iterdir():
        try:
            if p.name.isdigit() and str(directory) in (p / "cmdline").read_text() and "instance" in (p / "cmdline").read_text():
                for line in (p / "status").read_text().splitlines():
                    if line.startswith("RssAnon"):
                        return int(line.split()[1]) // 1024
        except (OSError, PermissionError):
            pass
    return 0


class Side:
    def __init__(self, name, server, url, args):
        self.name, self.server, self.times, self.grown = name, server, {}, {}
        self.c = psycopg.connect(url, autocommit=True)
        begun = time.monotonic()
        rows = args.megabytes * 1_000_000 // ROW_BYTES
        self.c.execute("create table big (k int, r int, pad text)")
        # A permutation of 1..rows: 611,953 is a prime that does not divide their number.
        step = 1_000_000
        for first in range(1, rows + 1, step):
            last = min(first + step - 1, rows)
            self.c.execute(f"insert into big select i, (i * 611953 % {rows} + 1)::int, repeat(chr(97 + (i % 26)::int), 80) || i "
                           f"from generate_series({first}::bigint, {last}::bigint) i")
        self.c.execute("analyze big")
        self.c.execute(f"set work_mem = '{args.work_mem}'")
        self.c.execute(f"set statement_timeout = '{args.limit}s'")
        print(f"{name}: loaded in {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)

    def run(self, what, sql, watched):
        before, peak, done = anonymous(watched) if watched else 0, 0, threading.Event()

        def watch():
            nonlocal peak
            while not done.wait(0.02):
                peak = max(peak, anonymous(watched))

        watcher = threading.Thread(target=watch) if watched else None
        if watcher:
            watcher.start()
        begun = time.monotonic()
        try:
            found = self.c.execute(sql).fetchall()
            self.times.setdefault(what, []).append(time.monotonic() - begun)
        except psycopg.Error as e:
            found = f"{e.sqlstate} {str(e).splitlines()[0]}"
        done.set()
        if watcher:
            watcher.join()
            self.grown[what] = max(peak - before, 0)
        return found


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/braid")
    p.add_argument("--megabytes", type=int, default=3000)
    p.add_argument("--work-mem", default="64MB")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--only", default=",".join(QUERIES))
    p.add_argument("--limit", type=int, default=600, help="seconds that a query may take")
    p.add_argument("--buffers", default="1GB", help="of each server")
    p.add_argument("--port", type=int, default=7970)
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/var/tmp/braid-spill"))
    args = p.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    sides = []
    try:
        pg = Postgres(args.work, args.buffers)
        sides.append(Side("PostgreSQL", pg, pg.url(), args))
        c = Cluster(args.binary, args.work, "braid", 1, args.port, ["--buffer-cache", args.buffers])
        sides.append(Side("Braid", c, c.url(1), args))
        last = args.megabytes * 1_000_000 // ROW_BYTES - 10
        print("| work | PostgreSQL, s | Braid, s | ratio | Braid's memory grew by, MB | |\n|---|---|---|---|---|---|")
        for what in args.only.split(","):
            sql, notes = QUERIES[what].format(last=last), []
            for n in range(args.rounds):
                answers = {}
                for s in sides if n % 2 == 0 else reversed(sides):
                    watched = args.work / "braid" if s is sides[1] and n == 0 else None
                    answers[s.name] = s.run(what, sql, watched)
                    if isinstance(answers[s.name], str):
                        notes.append(f"{s.name}: {answers[s.name]}")
                if not notes and answers["PostgreSQL"] != answers["Braid"]:
                    notes.append("they differ")
            times = [statistics.median(s.times[what]) if what in s.times else None for s in sides]
            shown = [f"{t:.1f}" if t else "" for t in times]
            ratio = f"{times[1] / times[0]:.2f}" if all(times) else ""
            print(f"| {what} | {shown[0]} | {shown[1]} | {ratio} | {sides[1].grown.get(what, '')} | {'; '.join(notes)} |", flush=True)
    finally:
        for s in sides:
            s.c.close()
            s.server.stop()


if __name__ == "__main__":
    main()
