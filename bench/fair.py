#!/usr/bin/env python3
"""Who gets a row that sessions of two instances want.

    bench/fair.py --binary target/release/braid [--base OLD-BINARY] [--only row,rows] [--seconds 10] [--rounds 3]

row   One row. Four clients on instance 1 change it in transactions of 10 ms, one on instance 2 changes it in transactions of one statement. Told: what
      the one on instance 2 gets of its share, which is a fifth of all transactions, and the longest time that it waited for one. Then with the sides changed.
rows  100 rows side by side, four clients on each instance change one of them in each transaction. Told: transactions a second, the 99th percentile of
      their times, and what the slowest client gets of the mean. With --base each figure stands beside the program's of before, in turn.

From pgbench's log of each client. Needs pgbench, psql.
"""
import argparse
import pathlib
import shutil
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bench import ROOT  # noqa: E402
from cluster import Cluster  # noqa: E402

SLOW = "begin;\nupdate t set v = v + 1 where id = 1;\n\\sleep 10 ms\ncommit;\n"
QUICK = "update t set v = v + 1 where id = 1;\n"
ANY = "\\set k random(1, 100)\nupdate t set v = v + 1 where id = :k;\n"


class Clients:
    """pgbench on one instance, with a log of each client's transactions."""

    def __init__(self, cluster, k, work, script, clients, seconds):
        self.dir = work / f"on{k}"
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)
        (self.dir / "script.sql").write_text(script)
        self.process = subprocess.Popen(
            ["pgbench", "-h", "127.0.0.1", "-p", str(cluster.port + k), "-U", cluster.user, "-n", "-M", "prepared", "-T", str(seconds), "-c", str(clients), "-j", "1",
             "-f", "script.sql", "--log", "--log-prefix=log", "braid"],
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


def row(cluster, work, seconds):
    found = {}
    for many, one in ((1, 2), (2, 1)):
        four, single = Clients(cluster, many, work, SLOW, 4, seconds), Clients(cluster, one, work, QUICK, 1, seconds)
        four, single = four.times(), single.times()[0]
        total = sum(len(t) for t in four.values()) + len(single)
        found[f"the one on instance {one}, of its share"] = len(single) / (total / 5)
        found[f"the one on instance {one}, longest wait, s"] = max(single, default=seconds * 1e6) / 1e6
        found[f"the slowest of four on instance {many}, of its share"] = min(len(t) for t in four.values()) / (total / 5)
    return found


def rows(cluster, work, seconds):
    sides = [Clients(cluster, k, work, ANY, 4, seconds) for k in (1, 2)]
    clients = [t for side in sides for t in side.times().values()]
    everything = sorted(t for client in clients for t in client)
    mean = len(everything) / len(clients)
    return {
        "transactions a second": len(everything) / seconds,
        "99th percentile, ms": everything[int(len(everything) * 0.99)] / 1000,
        "slowest client, of the mean": min(len(t) for t in clients) / mean,
    }


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/braid")
    p.add_argument("--base", type=pathlib.Path, help="a program of before")
    p.add_argument("--only", default="row,rows")
    p.add_argument("--seconds", type=int, default=10)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--port", type=int, default=7600, help="the first of some hundred ports")
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/braid-fair"))
    p.add_argument("--braid-arg", action="append", default=[], help="passed on to `braid up`")
    args = p.parse_args()
    kinds = {"row": row, "rows": rows}
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    programs = {"now": args.binary, **({"before": args.base} if args.base else {})}
    clusters = {}
    try:
        for n, (name, binary) in enumerate(programs.items()):
            cluster = clusters[name] = Cluster(binary, args.work, name, 2, args.port + 50 * n, args.braid_arg)
            cluster.psql(1, "create table t (id int primary key, v int not null)")
            cluster.psql(1, "insert into t select i, 0 from generate_series(1, 100) i")
        print("| work | figure | " + " | ".join(clusters) + " | rounds |")
        print("|---|---|" + "---|" * (len(clusters) + 1))
        for kind in args.only.split(","):
            if kind not in kinds:
                raise SystemExit(f"no such work: {kind}")
            found = {name: [] for name in clusters}
            for n in range(args.rounds):
                order = list(clusters) if n % 2 == 0 else list(reversed(clusters))
                for name in order:
                    found[name].append(kinds[kind](clusters[name], args.work / f"clients-{name}", args.seconds))
            for what in found["now"][0]:
                medians = [f"{statistics.median(r[what] for r in found[name]):.2f}" for name in clusters]
                each = "; ".join(f"{name} " + "/".join(f"{r[what]:.2f}" for r in found[name]) for name in clusters)
                print(f"| {kind} | {what} | " + " | ".join(medians) + f" | {each} |", flush=True)
    finally:
        for cluster in clusters.values():
            cluster.stop()


if __name__ == "__main__":
    main()
