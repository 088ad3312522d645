#!/usr/bin/env python3
"""What clients of several hosts see when one of two instances under `braid up` ends, under load.

    tests/clients/failover/failover.py --braid target/debug/braid --rounds 3 \\
        --client 'libpq=python3 tests/clients/failover/libpq_client.py'

Two programs of each client run at once: "there" asks the hosts in the order of the instances, so
that it is connected to instance 1, which ends; "elsewhere" in the other order. Each has WORKERS
workers, each with one connection. A worker commits its rows one after another, each with a change
to one of 100 rows that all have in common; after an error it connects again by the list of hosts if
the connection is broken, and begins the same row anew. Instance 1 ends by a signal that cannot be
caught ("killed") or by `braid stop` ("stopped"). Told are the SQLSTATE of errors (or, of those that
have none, what the client calls them) and the longest time between two commits of a worker. At the
end each row that a client was told to be committed must be there, and no other.
"""

import argparse
import collections
import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "peers"))
from peer_servers import DATABASE, SUPERUSER, free_ports  # noqa: E402

WORKERS = 4
HOST = "127.0.0.1"
# Rows that each program has committed before the instance ends, and once more afterwards.
ROWS = 400
LIMIT_S = 120


class Cluster:
    """Two instances under `braid up`, in a directory of their own."""

    def __init__(self, braid):
        self.braid, self.data = braid, tempfile.mkdtemp(prefix="braid-failover-")
        first = free_ports(2)
        self.ports = [first, first + 1]
        options = ["--instances", "2", "--port", str(first), "--set", f"superuser={SUPERUSER}"]
        self.run("up", *options, "--buffer-cache", "64MB", "--detach")

    def run(self, command, *arguments):
        asked = [self.braid, command, *arguments, "--data", f"{self.data}/db"]
        return subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout

    def first(self):
        """What `braid status` says of instance 1."""
        return json.loads(self.run("status", "--json"))[0]

    def connect(self):
        """A connection to instance 2, which lives."""
        asked = {"host": HOST, "port": self.ports[1], "user": SUPERUSER, "dbname": DATABASE}
        return psycopg.connect(**asked, autocommit=True)

    def end(self):
        self.run("down")
        shutil.rmtree(self.data)


def begin(command, name, ports):
    hosts = {"FAILOVER_HOSTS": f"{HOST},{HOST}", "FAILOVER_PORTS": ",".join(map(str, ports))}
    asked = {"FAILOVER_NAME": name, "FAILOVER_WORKERS": str(WORKERS)}
    asked |= {"PGUSER": SUPERUSER, "PGDATABASE": DATABASE, "PGSSLMODE": "disable"}
    # Those are in the list.
    asked |= hosts | {"PGHOST": HOST, "PGPORT": str(ports[0])}
    both = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(shlex.split(command), env=os.environ | asked, **both)


def wait_for(what, condition):
    """Returns when the condition holds. There is nothing to be woken by."""
    limit = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > limit:
            raise SystemExit(f"{what}: not within {LIMIT_S} s")
        time.sleep(0.05)


def rows(connection):
    asked = "select name, count(*) from failover_row group by name"
    return collections.Counter(dict(connection.execute(asked).fetchall()))


def committed(connection, programs, count):
    """Waits until each program has committed so many rows more."""
    before = rows(connection)

    def done():
        now = rows(connection)
        dead = [name for name, program in programs.items() if program.poll() is not None]
        if dead:
            raise SystemExit(f"{', '.join(dead)}: ended by itself")
        return all(now[name] - before[name] >= count for name in programs)

    wait_for("rows", done)


def round_of(cluster, command, how):
    """Runs both programs of a client through one end of instance 1."""
    with cluster.connect() as connection:
        connection.execute("drop table if exists failover_row, failover_account")
        connection.execute(
            "create table failover_row "
            "(name text, worker int, n int, primary key (name, worker, n))"
        )
        connection.execute("create table failover_account (id int primary key, n int)")
        connection.execute("insert into failover_account select i, 0 from generate_series(0, 99) i")
        programs = {
            "there": begin(command, "there", cluster.ports),
            "elsewhere": begin(command, "elsewhere", cluster.ports[::-1]),
        }
        try:
            committed(connection, programs, ROWS)
            life = cluster.first()["incarnation"]
            if how == "killed":
                os.kill(cluster.first()["pid"], signal.SIGKILL)
                wait_for("instance 1", lambda: again(cluster, life))
            else:
                cluster.run("stop", "1")
            committed(connection, programs, ROWS)
            told = {name: finish(name, program) for name, program in programs.items()}
        finally:
            for program in programs.values():
                program.kill()
                program.wait()
        if how == "stopped":
            cluster.run("start", "1")
        found = rows(connection)
        for name, one in told.items():
            if found[name] != one["committed"]:
                raise SystemExit(f"{name}: {found[name]} rows, {one['committed']} commits")
        done = connection.execute("select sum(n) from failover_account").fetchone()[0]
        if done != sum(found.values()):
            raise SystemExit(f"{done} changes, {sum(found.values())} rows")
    return told


def again(cluster, life):
    now = cluster.first()
    return now["state"] == "open" and now["incarnation"] != life


def finish(name, program):
    told = program.communicate(timeout=LIMIT_S)[0]
    if program.returncode:
        raise SystemExit(f"{name}: exit code {program.returncode}")
    return json.loads(told)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", required=True, help="the program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--client", action="append", required=True, help="name=command")
    args = parser.parse_args()
    cluster = Cluster(args.braid)
    try:
        print("client, end, program: commits, doubtful; errors; longest ms median, max")
        for client in args.client:
            name, command = client.split("=", 1)
            for how in ["killed", "stopped"]:
                told = [round_of(cluster, command, how) for _ in range(args.rounds)]
                for program in ["there", "elsewhere"]:
                    ones = [one[program] for one in told]
                    errors = collections.Counter()
                    for one in ones:
                        errors.update(one["errors"])
                    longest = [time for one in ones for time in one["longest_ms"]]
                    print(
                        f"{name}, {how}, {program}: {sum(one['committed'] for one in ones)}, "
                        f"{sum(one['doubtful'] for one in ones)}; {dict(errors)}; "
                        f"{statistics.median(longest):.0f}, {max(longest)}",
                        flush=True,
                    )
    finally:
        cluster.end()


if __name__ == "__main__":
    main()
