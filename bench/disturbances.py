#!/usr/bin/env python3
"""What a join, a leave and a death of one of two instances cost the other's sessions.

    bench/disturbances.py --binary target/release/braid [--only join,death] [--rounds 3] [--blocks 100000] [--redo-mb 100] [--keep-log]

join   Instance 1 has --blocks blocks in its cache and eight clients that update rows of all of them by key. Instance 2 is started, gets four such clients
       of its own, and leaves again. Told: the longest time that a client of instance 1 waited for one statement, before, while instance 2
       joined (from `braid start` until two seconds after it is open), while both worked, and while it left.
death  Four clients on each of two instances update rows of their own; a ninth changes rows of instance 2's half until instance 2 has written --redo-mb of redo that its
       checkpoint has not passed. Then instance 2 is killed (-9). Told: the longest wait of a client of instance 1 on its own rows; how long after the kill
       every row of instance 2 has been read, and a sample of them changed, on instance 1; statements of instance 1 that failed.

A client's wait is the longest time between two ends of its statements, from pgbench's log of each. Needs pgbench, psql.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bench import ROOT, sh  # noqa: E402
from cluster import Cluster  # noqa: E402

UPDATE = "\\set k random({low}, {high})\nupdate t set v = v + 1 where id = :k;\n"
# Rows of this many bytes; so many in a block.
PAD, ROWS_PER_BLOCK = 700, 10


class Clients:
    """pgbench with a log of each client's transactions."""

    def __init__(self, cluster, k, work, name, clients, low, high, seconds):
        self.dir, self.name, self.clients = work, name, clients
        for old in work.glob(f"{name}.*"):
            old.unlink()
        script = work / f"{name}.sql"
        script.write_text(UPDATE.format(low=low, high=high))
        self.process = subprocess.Popen(
            ["pgbench", "-h", "127.0.0.1", "-p", str(cluster.port + k), "-U", cluster.user, "-n", "-M", "prepared", "-T", str(seconds), "-c", str(clients), "-j", "1",
             "-f", str(script), "--log", f"--log-prefix={name}", "braid"],
            cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait(self):
        """All ended well? The ends of each client's transactions."""
        said = self.process.communicate()[0]
        ends = {}
        for log in self.dir.glob(f"{self.name}.[0-9]*"):
            for line in log.read_text().splitlines():
                f = line.split()
                if len(f) >= 6:
                    ends.setdefault(int(f[0]), []).append(int(f[4]) + int(f[5]) / 1e6)
        failed = re.search(r"number of failed transactions: (\d+)", said)
        self.failed = int(failed.group(1)) if failed else 0
        if self.process.returncode or "aborted" in said:
            self.failed += 1
            self.said = said
        return ends


def longest(ends, begin, end):
    """The longest wait of a client, in seconds, of those that were going on in a time."""
    worst = 0.0
    for times in ends.values():
        for a, b in zip(times, times[1:]):
            if b > begin and a < end:
                worst = max(worst, b - a)
    return worst


def fill(cluster, rows):
    cluster.psql(1, "create table t (id int primary key, v int, pad text)")
    step = 100_000
    for low in range(1, rows + 1, step):
        high = min(low + step - 1, rows)
        cluster.psql(1, f"insert into t select g, 0, repeat('x', {PAD}) from generate_series({low}, {high}) g")


def join(args, work):
    rows = args.blocks * ROWS_PER_BLOCK
    cluster = Cluster(args.binary, work, "join", 2, args.port, ["--buffer-cache", args.buffers, "--no-restart", *args.braid_arg])
    braid = lambda *a: sh([str(args.binary), *a, "--data", str(cluster.dir)])
    try:
        braid("stop", "2")
        fill(cluster, rows)
        cluster.psql(1, "select count(*), sum(v) from t")
        found = []
        for _ in range(args.rounds):
            clients = Clients(cluster, 1, work, "one", 8, 1, rows, args.seconds * 4 + 10)
            time.sleep(args.seconds)
            began = time.time()
            braid("start", "2")
            opened = time.time()
            both = Clients(cluster, 2, work, "two", 4, 1, rows, args.seconds)
            both_ends = both.wait()
            left = time.time()
            braid("stop", "2")
            stopped = time.time()
            ends = clients.wait()
            found.append({
                "before": longest(ends, began - args.seconds + 1, began),
                "join": longest(ends, began, opened + 2),
                "both": longest(ends, opened + 2, left),
                "leave": longest(ends, left, stopped + 1),
                "joiner": longest(both_ends, 0, left),
                "join took": opened - began,
                "leave took": stopped - left,
                "failed": clients.failed + both.failed,
            })
            print(f"join: {describe(found[-1])}", flush=True)
        return found
    finally:
        finish(args, cluster)


def describe(figures):
    text = [f"{k} {v}" if isinstance(v, int) else f"{k} {v * 1000:.0f} ms" for k, v in figures.items()]
    return ", ".join(text)


def redo_of(cluster, k):
    return int(cluster.psql(k, "select value from v$sysstat where name = 'redo size (bytes)'"))


def death(args, work):
    rows = 400_000
    half = rows // 2
    extra = ["--set", "recovery_target=2GB", "--set", "redo_file_size=512MB", "--buffer-cache", args.buffers, *args.braid_arg]
    cluster = Cluster(args.binary, work, "death", 2, args.port, extra)
    try:
        fill(cluster, rows)
        found = []
        for _ in range(args.rounds):
            cluster.psql(1, "checkpoint")
            cluster.psql(2, "checkpoint")
            seconds = 300
            own = Clients(cluster, 1, work, "one", 4, 1, half, seconds)
            dying = Clients(cluster, 2, work, "two", 4, half + 1, rows, seconds)
            before, low = redo_of(cluster, 2), half + 1
            while redo_of(cluster, 2) - before < args.redo_mb << 20:
                cluster.psql(2, f"update t set v = v + 1, pad = repeat('y', {PAD}) where id between {low} and {low + 999}")
                low = low + 1000 if low + 2000 < rows else half + 1
            redo = redo_of(cluster, 2) - before
            status = json.loads(sh([str(args.binary), "status", "--data", str(cluster.dir), "--json"]))
            read, change = {}, {}
            asks = [(read, f"select count(*), sum(v) from t where id > {half}"), (change, f"update t set v = v + 1 where id > {half} and id % 1000 = 0")]
            waiting = [threading.Thread(target=timed, args=(cluster, out, sql)) for out, sql in asks]
            killed = time.time()
            os.kill(status[1]["pid"], 9)
            for w in waiting:
                w.start()
            for w in waiting:
                w.join()
            end = time.time() + 3
            dying.process.kill()
            dying.process.communicate()
            while time.time() < end:
                time.sleep(0.1)
            own.process.terminate()
            ends = own.wait()
            while json.loads(sh([str(args.binary), "status", "--data", str(cluster.dir), "--json"]))[1]["state"] != "open":
                time.sleep(0.05)
            again = json.loads(sh([str(args.binary), "status", "--data", str(cluster.dir), "--json"]))[1]
            found.append({
                "before": longest(ends, 0, killed),
                "own rows": longest(ends, killed, end),
                "read": read["at"] - killed,
                "changed": change["at"] - killed,
                "redo MB": redo >> 20,
                "failed": len(read.get("failed", "")) + len(change.get("failed", "")) + (0 if stops_only(own) else own.failed),
            })
            print(f"death: {describe(found[-1])}; its next start recovered {again['recovered']}", flush=True)
        return found
    finally:
        finish(args, cluster)


def stops_only(clients):
    """pgbench was ended by us, and by nothing else."""
    return "ERROR" not in getattr(clients, "said", "") and "aborted" not in getattr(clients, "said", "")


def timed(cluster, out, sql):
    r = subprocess.run(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", cluster.url(1), "-c", sql], capture_output=True, text=True)
    out["at"] = time.time()
    if r.returncode:
        out["failed"] = r.stderr
        print(r.stderr, file=sys.stderr)


def finish(args, cluster):
    cluster.stop()
    if not args.keep_log:
        shutil.rmtree(cluster.dir, ignore_errors=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    p.add_argument("--binary", type=pathlib.Path, default=target / "release" / "braid")
    p.add_argument("--only", default="join,death")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=int, default=5)
    p.add_argument("--blocks", type=int, default=100_000)
    p.add_argument("--redo-mb", type=int, default=100)
    p.add_argument("--buffers", default="1200MB")
    p.add_argument("--port", type=int, default=6300, help="the first of some ports")
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/var/tmp/braid-disturbances"))
    p.add_argument("--keep-log", action="store_true", help="leave the database directories")
    p.add_argument("--braid-arg", action="append", default=[], help="passed on to `braid up`")
    args = p.parse_args()
    if not args.binary.exists():
        raise SystemExit(f"{args.binary} is missing: cargo build --release")
    args.work.mkdir(parents=True, exist_ok=True)
    parts = {"join": join, "death": death}
    found = {}
    for part in args.only.split(","):
        if part not in parts:
            raise SystemExit(f"no such part: {part}")
        found[part] = parts[part](args, args.work)
    goals = {("join", "join"): 0.5, ("join", "both"): 0.5, ("death", "own rows"): 1.0, ("death", "changed"): 3.0, ("death", "read"): 3.0, ("death", "failed"): 0, ("join", "failed"): 0}
    print("\n| disturbance | longest | median | worst | to reach |\n|---|---|---|---|---|")
    for part, rounds in found.items():
        for what in rounds[0]:
            values = [r[what] for r in rounds]
            show = (lambda v: str(v)) if isinstance(values[0], int) else (lambda v: f"{v:.2f} s")
            goal = goals.get((part, what))
            print(f"| {part} | {what} | {show(statistics.median(values))} | {show(max(values))} | {'' if goal is None else goal} |")


if __name__ == "__main__":
    main()
