#!/usr/bin/env python3
"""What it costs to observe: pgbench's rate with all of it on against all of it off, in turn.

    bench/observing.py [--binary target/release/braid] [--base ../before/braid] [--clients 1,8,32] [--instances 1,2] [--seconds 10] [--rounds 5]

on     Waits are timed and kept one by one for every session (wait_timeline), slow executions are looked for (wait_timeline_slower), a snapshot of the workload is
       taken every thirty seconds, and the metrics are there to be read.
off    Waits are not timed, and nothing of that is asked for. Counters, the history of sessions and the cache's advice cannot be turned off: --base names a program
       without them, which then stands for off.

Each pair of runs is made of the same work on the same data. Told: the median of the pairs' costs, to be at most 3 %. With two instances half of the clients are at each.
Needs pgbench, psql.
"""
import argparse
import os
import pathlib
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bench import ROOT  # noqa: E402
from cluster import Cluster, rates_of, start_pgbench  # noqa: E402

ON = {"timed_statistics": "on", "wait_timeline": "on", "wait_timeline_slower": "3", "snapshot_interval": "30s"}
OFF = {"timed_statistics": "off", "snapshot_interval": "0"}
MOST = 3.0
WORK = {"select": ["-S"], "tpcb": []}


def settings(values):
    return [arg for name, value in values.items() for arg in ("--set", f"{name}={value}")]


def rate(cluster, clients, work, seconds):
    """The sum of the rates of all clients, which are spread over the instances."""
    parts = [clients // cluster.instances + (k < clients % cluster.instances) for k in range(cluster.instances)]
    running = [start_pgbench(cluster, k + 1, [*WORK[work], "-c", str(n), "-j", "1"], seconds) for k, n in enumerate(parts) if n]
    return rates_of(running)


def measure(args, instances):
    extra = ["--buffer-cache", args.buffers, *args.braid_arg]
    base = args.base or args.binary
    on = Cluster(args.binary, args.work, f"on-{instances}", instances, args.port, [*extra, *settings({**ON, "metrics_port": args.port + 50})])
    off = Cluster(base, args.work, f"off-{instances}", instances, args.port + 100, [*extra, *settings(OFF)])
    missed = 0
    try:
        for cluster in (on, off):
            cluster.pgbench_init(args.scale)
        for work in args.only.split(","):
            for clients in args.clients:
                pairs = [[rate(c, clients, work, args.seconds) for c in ((on, off) if n % 2 else (off, on))] for n in range(args.rounds)]
                pairs = [pair if n % 2 else pair[::-1] for n, pair in enumerate(pairs)]
                costs = [100 * (1 - with_it / without) for with_it, without in pairs]
                cost = statistics.median(costs)
                missed += cost > MOST
                spread = ", ".join(f"{c:.1f}" for c in sorted(costs))
                print(f"| {work}, {clients} clients, {instances} instances | {statistics.median(p[0] for p in pairs):.0f} | "
                      f"{statistics.median(p[1] for p in pairs):.0f} | {cost:.1f} % | {spread} |", flush=True)
    finally:
        on.stop()
        off.stop()
    return missed


def numbers(text):
    return [int(n) for n in text.split(",")]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    p.add_argument("--binary", type=pathlib.Path, default=target / "release" / "braid")
    p.add_argument("--base", type=pathlib.Path, help="a program of before, for off")
    p.add_argument("--only", default="select,tpcb")
    p.add_argument("--clients", type=numbers, default=[1, 8, 32])
    p.add_argument("--instances", type=numbers, default=[1, 2])
    p.add_argument("--seconds", type=int, default=10)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--scale", type=int, default=32)
    p.add_argument("--buffers", default="512MB")
    p.add_argument("--port", type=int, default=6400, help="the first of two hundred ports")
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/var/tmp/braid-observing"))
    p.add_argument("--braid-arg", action="append", default=[], help="passed on to `braid up`")
    args = p.parse_args()
    if not args.binary.exists():
        raise SystemExit(f"{args.binary} is missing: cargo build --release")
    args.work.mkdir(parents=True, exist_ok=True)
    print(f"| work | on, per second | off, per second | cost (goal: {MOST:.0f} % at most) | all pairs |\n|---|---|---|---|---|", flush=True)
    missed = sum(measure(args, instances) for instances in args.instances)
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
