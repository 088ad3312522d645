#!/usr/bin/env python3
"""Who gets a row that sessions of two instances want.

    bench/fair.py --binary target/release/braid [--base OLD-BINARY] [--only row,key,rows,uniform] [--seconds 10] [--rounds 3] [--history]
                  [--beside many,lone,both]

row      One row. Four clients on instance 1 change it in transactions of 10 ms, one on instance 2 changes it in transactions of one statement. Told:
         what the one on instance 2 gets of its share, which is a fifth of all transactions, and the longest time that it waited for one. Then with the
         sides changed.
key      One key of a primary key. Four clients on instance 1 put a row with it, keep it for 10 ms and roll back, one on instance 2 puts it and rolls
         back at once. Told: the same as for a row, and beside it PostgreSQL, where all five are clients of one server.
rows     100 rows side by side, four clients on each instance change one of them in each transaction. Told: transactions a second, the 99th percentile
         of their times, and what the slowest client gets of the mean. With --base each figure stands beside the program's of before, in turn.
uniform  The same with 100,000 rows.

--history    Before anything is measured tables are filled, changed by both instances and dropped, and each instance is killed under load and recovered.
--beside     `row` is measured again while two clients change other rows of the row's block and two others rows of a large table: on the instance of the
             four (many), on that of the one (lone), or on both. Where they are decides what the one got before rows had turns.

Each round has its row in another table, so it is in another block, whose master is drawn by its number. From pgbench's log of each client. Needs
pgbench, psql.
"""
import argparse
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bench import ROOT, Postgres  # noqa: E402
from cluster import Cluster  # noqa: E402

SLOW = "begin;\nupdate {t} set v = v + 1 where id = 1;\n\\sleep 10 ms\ncommit;\n"
QUICK = "update {t} set v = v + 1 where id = 1;\n"
SLOW_KEY = "begin;\ninsert into {t} values (0, 0);\n\\sleep 10 ms\nrollback;\n"
QUICK_KEY = "begin;\ninsert into {t} values (0, 0);\nrollback;\n"
ANY = "\\set k random({low}, {high})\nupdate {t} set v = v + 1 where id = :k;\n"
# Tables of 100 rows, one for each round in turn, and one of many rows.
SMALL, LARGE, LARGE_ROWS = [f"t{n}" for n in range(8)], "large", 100_000


class Peer(Postgres):
    """PostgreSQL, with one server in the place of all instances."""

    def url(self, _k=1):
        return super().url()

    def psql(self, _k, sql):
        return super().psql(sql)


class Clients:
    """pgbench on one instance, with a log of each client's transactions."""

    def __init__(self, cluster, k, work, script, clients, seconds, name=""):
        self.dir = work / f"on{k}{name}"
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)
        (self.dir / "script.sql").write_text(script)
        self.process = subprocess.Popen(
            ["pgbench", "-n", "-M", "prepared", "-T", str(seconds), "-c", str(clients), "-j", "1", "-f", "script.sql", "--log", "--log-prefix=log",
             cluster.url(k)],
            cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.count = clients

    def times(self):
        """Microseconds of each transaction, by client."""
        said = self.process.communicate()[0]
        if self.process.returncode != 0:
            raise SystemExit(f"pgbench failed:\n{said}")
        times = {n: [] for n in range(self.count)}
        for log in self.dir.glob("log.*"):
            for line in log.read_text().splitlines():
                f = line.split()
                times[int(f[0])].append(int(f[2]))
        return times


def make_history(cluster, work):
    """What a database has behind it: tables that came and went, changes by either instance, and the death of each."""
    for n in range(6):
        cluster.psql(1 + n % 2, f"create table gone{n} (id int primary key, v int, pad text); create index on gone{n} (v)")
        cluster.psql(1 + n % 2, f"insert into gone{n} select i, 0, repeat('x', 100) from generate_series(1, 5000) i")
        cluster.psql(2 - n % 2, f"update gone{n} set v = v + id; delete from gone{n} where id % 3 = 0")
        if n % 2 == 0:
            cluster.psql(2 - n % 2, f"drop table gone{n}")
    for k in (1, 2):
        pid = cluster.pids()[k - 1]
        load = [Clients(cluster, on, work, ANY.format(t=LARGE, low=1, high=LARGE_ROWS), 4, 3, "-history") for on in (1, 2)]
        time.sleep(1.5)
        os.kill(pid, signal.SIGKILL)
        for side in load:
            side.process.communicate()
        while cluster.pids()[k - 1] in (pid, None) or not answers(cluster, k):
            time.sleep(0.1)
    for n in (1, 3, 5):
        cluster.psql(1, f"drop table gone{n}")


def answers(cluster, k):
    return subprocess.run(["psql", "-X", "-q", "-d", cluster.url(k), "-c", "select 1"], capture_output=True).returncode == 0


def work_beside(cluster, work, table, instances, args):
    """Clients that change other rows while the row's are measured."""
    scripts = {"block": ANY.format(t=table, low=2, high=100), "large": ANY.format(t=LARGE, low=1, high=LARGE_ROWS)}
    return [Clients(cluster, k, work, script, 2, args.seconds, f"-beside-{name}") for k in instances for name, script in scripts.items()]


def row(cluster, work, n, args):
    found = {}
    for beside in ["", *args.beside]:
        for many, one in ((1, 2), (2, 1)):
            said = f", beside work on {beside}" if beside else ""
            instances = {"": [], "many": [many], "lone": [one], "both": [many, one]}[beside]
            for what, value in row_once(cluster, work, SMALL[n % len(SMALL)], (many, one), instances, args).items():
                found[f"{what} on instance {one}{said}"] = value
    return found


def row_once(cluster, work, table, where, instances, args):
    beside = work_beside(cluster, work, table, instances, args)
    found = four_and_one(cluster, work, [SLOW.format(t=table), QUICK.format(t=table)], where, args)
    for side in beside:
        side.times()
    return found


def key(cluster, work, n, args):
    table = SMALL[n % len(SMALL)]
    found = {}
    for where in (1, 2), (2, 1):
        scripts = [SLOW_KEY.format(t=table), QUICK_KEY.format(t=table)]
        for what, value in four_and_one(cluster, work, scripts, where, args).items():
            found[f"{what} on instance {where[1]}"] = value
    return found


def four_and_one(cluster, work, scripts, where, args):
    counts = [4, 1]
    clients = [Clients(cluster, k, work, script, count, args.seconds) for k, script, count in zip(where, scripts, counts)]
    four, single = (c.times() for c in clients)
    single = single[0]
    total = sum(len(t) for t in four.values()) + len(single)
    return {
        "share of the one": len(single) / (total / 5),
        "longest wait, s, of the one": max(single, default=args.seconds * 1e6) / 1e6,
        "least share of the four, the one": min(len(t) for t in four.values()) / (total / 5),
        "longest wait, s, of the four, the one": max((max(t, default=args.seconds * 1e6) for t in four.values())) / 1e6,
    }


def of_all(cluster, work, args, table, rows):
    script = ANY.format(t=table, low=1, high=rows)
    sides = [Clients(cluster, k, work, script, 4, args.seconds) for k in (1, 2)]
    clients = [t for side in sides for t in side.times().values()]
    everything = sorted(t for client in clients for t in client)
    mean = len(everything) / len(clients)
    return {
        "transactions a second": len(everything) / args.seconds,
        "99th percentile, ms": everything[int(len(everything) * 0.99)] / 1000,
        "slowest client, of the mean": min(len(t) for t in clients) / mean,
    }


def rows(cluster, work, n, args):
    return of_all(cluster, work, args, SMALL[n % len(SMALL)], 100)


def uniform(cluster, work, n, args):
    return of_all(cluster, work, args, LARGE, LARGE_ROWS)


def fill(server):
    for table in SMALL:
        server.psql(1, f"create table {table} (id int primary key, v int not null)")
        server.psql(1, f"insert into {table} select i, 0 from generate_series(1, 100) i")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/braid")
    p.add_argument("--base", type=pathlib.Path, help="a program of before")
    p.add_argument("--only", default="row,rows")
    p.add_argument("--seconds", type=int, default=10)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--history", action="store_true")
    p.add_argument("--beside", type=lambda text: text.split(","), default=[])
    p.add_argument("--port", type=int, default=7600, help="the first of some hundred ports")
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/braid-fair"))
    p.add_argument("--braid-arg", action="append", default=[], help="passed on to `braid up`")
    args = p.parse_args()
    kinds = {"row": row, "key": key, "rows": rows, "uniform": uniform}
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    programs = {"now": args.binary, **({"before": args.base} if args.base else {})}
    clusters, peer = {}, None
    try:
        for n, (name, binary) in enumerate(programs.items()):
            cluster = clusters[name] = Cluster(binary, args.work, name, 2, args.port + 50 * n, args.braid_arg)
            cluster.psql(1, f"create table {LARGE} (id int primary key, v int not null)")
            cluster.psql(1, f"insert into {LARGE} select i, 0 from generate_series(1, {LARGE_ROWS}) i")
            if args.history:
                make_history(cluster, args.work / f"history-{name}")
            fill(cluster)
        if "key" in args.only.split(","):
            peer = Peer(args.work, "256MB")
            fill(peer)
        servers = [*clusters, *(["PostgreSQL"] if peer else [])]
        print("| work | figure | " + " | ".join(servers) + " | rounds |")
        print("|---|---|" + "---|" * (len(servers) + 1))
        for kind in args.only.split(","):
            if kind not in kinds:
                raise SystemExit(f"no such work: {kind}")
            measured = {**clusters, **({"PostgreSQL": peer} if kind == "key" else {})}
            found = {name: [] for name in measured}
            for n in range(args.rounds):
                order = list(measured) if n % 2 == 0 else list(reversed(measured))
                for name in order:
                    found[name].append(kinds[kind](measured[name], args.work / f"clients-{name}", n, args))
            for what in found["now"][0]:
                medians = [f"{statistics.median(r[what] for r in found[name]):.2f}" if name in found else "" for name in servers]
                each = "; ".join(f"{name} " + "/".join(f"{r[what]:.2f}" for r in found[name]) for name in found)
                print(f"| {kind} | {what} | " + " | ".join(medians) + f" | {each} |", flush=True)
    finally:
        for server in [*clusters.values(), *([peer] if peer else [])]:
            server.stop()


if __name__ == "__main__":
    main()
