#!/usr/bin/env python3
"""Two instances over one database against one instance, in one run.

    bench/cluster.py --binary target/release/braid [--only lone,gc,select,own,uniform,hot,batch] [--seconds 5] [--rounds 5]
                     [--base OLD-BINARY] [--peer galera] [--detail]

Two databases are started here, one with one instance and one with two, in fresh directories under --work. Every figure is measured on both in turn,
the order changing with every round, `--rounds` times; the table gives the medians and their ratio, two instances against one. Eight clients in all: four
and four on two instances, twice four on one, with the same scripts.

  lone     pgbench -S and TPC-B on one instance of --binary and one of --base (a binary of before): what clustering costs who does not use it; rates, and
           processor time of the server, which says more on a machine with other work
  gc       idle: one session changes a row on one instance and then on the other; p50 of the waits for the block, beside the round trip of 64 bytes
           out and 8 KiB back over TCP between two processes, measured here; one after the other, and both with pauses between them
  select   select by key over 100,000 rows
  own      update by key, each half of the clients its own half of the rows
  uniform  update by key over all 100,000 rows
  hot      update by key of 100 rows side by side (two blocks)
  batch    `braid lab batch-isolation` for a time instead of once over: 20,000 lines of two organizations by turns, each half of the clients updates lines
           of its own organization, in blocks that both have lines in

--apart, with lone and select, keeps servers on one processor and clients on another: left to itself, the scheduler puts them on the same or on
different ones for as long as a round lasts, which makes a third of difference.
--detail adds what a transaction took of each: CPU time of all server processes, the longest waits, blocks sent and writes of the log.
--peer galera does uniform, hot and batch on MariaDB with Galera as well, in turn with ours: two nodes over loopback, and one server without Galera.
Needs pgbench, psql, Python's psycopg; a C compiler for the round trip (cc); for galera Debian's mariadb-server, galera-4, sysbench and rsync.
"""
import argparse
import contextlib
import getpass
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bench import ROOT, pgbench_rate, sh, wait_port  # noqa: E402

ROWS = 100_000
LINES_TABLE = "create table interface_lines (line_id bigint primary key, organization_id int not null, processed int not null, amount bigint not null, note text)"
CLIENTS = 8
# Between the waits of an idle machine that are measured the second time: long enough for its processors to go to sleep.
PAUSE_US = 3000
LINES = 20_000
GOALS = {"select": 0.95, "own": 0.9, "uniform": 0.6, "hot": 0.4, "batch": None}
AGAINST_PEER = {"uniform": 1, "hot": 3, "batch": 1}
# The peer's servers that the two halves of the clients are at: one without Galera, or the two nodes.
NODES = ((0, 0), (1, 2))

UPDATE = "update shared set v = v + 1 where id = {key}"
STATEMENTS = {
    "select": "select v from shared where id = {key}",
    "own": UPDATE,
    "uniform": UPDATE,
    "hot": UPDATE,
    "batch": "update interface_lines set processed = processed + 1, amount = amount + 1 where line_id = {key} and organization_id = {organization}",
}


def keys_of(what, half):
    """What each half of the clients draws its keys from: `factor` times one of low .. high, less `less`."""
    factor, low, high, less = 1, 1, ROWS, 0
    if what == "hot":
        high = 100
    elif what == "own":
        low, high = (1, ROWS // 2) if half == 0 else (ROWS // 2 + 1, ROWS)
    elif what == "batch":
        factor, high, less = 2, LINES // 2, half
    return {"factor": factor, "low": low, "high": high, "less": less}


def statement_of(what, half, key):
    """Line 2r - half is of organization half + 1."""
    return STATEMENTS[what].format(key=key, organization=half + 1)


class Cluster:
    """`braid up` with so many instances, instance k on port + k."""

    user, db = getpass.getuser(), "braid"

    def __init__(self, binary, work, name, instances, port, extra):
        self.binary, self.dir, self.instances, self.port = pathlib.Path(binary), work / name, instances, port
        self.name = name
        shutil.rmtree(self.dir, ignore_errors=True)
        several = ["--instances", str(instances)] if instances > 1 else []
        self.log = open(work / f"{name}.log", "w")
        self.process = subprocess.Popen([str(self.binary), "up", "--data", str(self.dir), *several, "--port", str(port + 1), *extra],
                                        stdout=self.log, stderr=subprocess.STDOUT)
        for k in range(1, instances + 1):
            wait_port(port + k, self.process, 300)
            while subprocess.run(["psql", "-X", "-q", "-d", self.url(k), "-c", "select 1"], capture_output=True).returncode:
                time.sleep(0.02)

    def url(self, k):
        return f"postgresql://{self.user}@127.0.0.1:{self.port + k}/{self.db}"

    def psql(self, k, sql):
        return sh(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.url(k), "-c", sql])

    def pids(self):
        status = json.loads(sh([str(self.binary), "status", "--data", str(self.dir), "--json"]))
        return [i["pid"] for i in (status["instances"] if isinstance(status, dict) else status)]

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(300)

    def pgbench_init(self, scale):
        sh(["pgbench", "-h", "127.0.0.1", "-p", str(self.port + 1), "-U", self.user, "-i", "-q", "-s", str(scale), self.db])


def start_pgbench(cluster, k, args, seconds):
    return subprocess.Popen(["pgbench", "-h", "127.0.0.1", "-p", str(cluster.port + k), "-U", cluster.user, "-n", "-M", "prepared",
                             "-T", str(seconds), *args, cluster.db], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rates_of(processes):
    """The sum of the rates; a failed statement or a client that ended is an error, as the goals allow none."""
    total = 0.0
    for p in processes:
        out, err = p.communicate()
        failed = re.search(r"number of failed transactions: (\d+)", out)
        if p.returncode or "aborted" in err or (failed and int(failed.group(1))):
            raise SystemExit(f"pgbench failed:\n{out}\n{err}")
        total += pgbench_rate(out)
    return total


def cpu_of(cluster):
    """Processor time that the server processes have taken, in microseconds: of user code, and of the kernel."""
    tick_us = 1e6 / os.sysconf("SC_CLK_TCK")
    user = kernel = 0.0
    for pid in cluster.pids():
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        user += int(fields[11]) * tick_us
        kernel += int(fields[12]) * tick_us
    return user, kernel


class Detail:
    """What the server processes used, what their sessions waited for, and for which tables and indexes, between two looks."""

    OF_OBJECTS = ("gc waits", "gc wait time (microseconds)", "gc current blocks received", "gc cr blocks received", "row lock waits")

    def __init__(self, cluster):
        self.cluster = cluster
        self.before = self.look()

    def look(self):
        cpu_us = sum(cpu_of(self.cluster))
        waits, stats, parts, objects = {}, {}, {}, {}
        for k in range(1, self.cluster.instances + 1):
            for line in self.cluster.psql(k, "select event, total_waits, time_waited_micro from v$system_event").splitlines():
                event, n, us = line.split("|")
                old = waits.get(event, (0, 0))
                waits[event] = (old[0] + int(n), old[1] + int(us))
            for line in self.cluster.psql(k, "select name, value from v$sysstat").splitlines():
                name, value = line.rsplit("|", 1)
                stats[name] = stats.get(name, 0) + float(value)
            for line in self.cluster.psql(k, "select event, part, waits, time_waited_micro from v$gc_latency").splitlines():
                event, part, n, us = line.split("|")
                old = parts.get((event, part), (0, 0))
                parts[event, part] = (old[0] + int(n), old[1] + int(us))
            for line in self.cluster.psql(k, "select object_name, statistic_name, value from v$segment_statistics").splitlines():
                *name, value = line.rsplit("|", 2)
                objects[tuple(name)] = objects.get(tuple(name), 0) + int(value)
        return cpu_us, waits, stats, parts, objects

    def parts_of(self, event, after):
        """What a remote wait consisted of, since the first look."""
        for (of, part), (n, us) in after.items():
            before = self.before[3].get((of, part), (0, 0))
            if of == event and n > before[0]:
                yield part, n - before[0], us - before[1]

    def objects_of(self, after, transactions):
        """The objects that most waits for other instances were for."""
        def of(name, statistic):
            return (after.get((name, statistic), 0) - self.before[4].get((name, statistic), 0)) / transactions
        names = sorted({name for name, _ in after}, key=lambda name: -of(name, self.OF_OBJECTS[0]))
        for name in names[:16]:
            values = [of(name, statistic) for statistic in self.OF_OBJECTS]
            if values[0] > 0.01:
                yield f"      {name:40} " + ", ".join(f"{statistic} {v:.3f}" for statistic, v in zip(self.OF_OBJECTS, values))

    def report(self, transactions=None):
        """Of so many transactions; of those that were committed meanwhile."""
        after = self.look()
        transactions = transactions or after[2]["user commits"] - self.before[2]["user commits"]
        out = [f"    {self.cluster.name}: {(after[0] - self.before[0]) / transactions:.0f} us CPU per transaction"]
        grown = {e: (n - self.before[1].get(e, (0, 0))[0], us - self.before[1].get(e, (0, 0))[1]) for e, (n, us) in after[1].items()}
        for event, (n, us) in sorted(grown.items(), key=lambda i: -i[1][1])[:16]:
            if n:
                out.append(f"      {event:40} {n / transactions:8.3f} per transaction, {us / n:9.0f} us each, {us / transactions:8.0f} us per transaction")
                for part, n, us in self.parts_of(event, after[3]):
                    out.append(f"        {part:38} {us / n:27.0f} us each")
        for name, value in sorted(after[2].items()):
            d = value - self.before[2].get(name, 0)
            if d > transactions / 1000 and name.startswith(("gc ", "redo ")):
                out.append(f"      {name:40} {d / transactions:8.3f} per transaction")
        out += self.objects_of(after[4], transactions)
        return "\n".join(out)


class Bench:
    def __init__(self, args):
        self.args = args
        self.work = args.work
        self.one = self.two = self.maria = None
        self.processors = sorted(os.sched_getaffinity(0))

    @contextlib.contextmanager
    def starting_servers(self):
        """With --apart, what is started within runs on the second processor, and what is started afterwards on the first."""
        if self.args.apart:
            os.sched_setaffinity(0, self.processors[1:2])
        yield
        if self.args.apart:
            os.sched_setaffinity(0, self.processors[:1])

    # ---- two against one ----

    def databases(self):
        if self.one is None:
            extra = ["--buffer-cache", self.args.buffers, *self.args.braid_arg]
            with self.starting_servers():
                self.one = Cluster(self.args.binary, self.work, "one", 1, self.args.port, extra)
                self.two = Cluster(self.args.binary, self.work, "two", 2, self.args.port + 10, extra)
            for c in (self.one, self.two):
                c.psql(1, "create table shared (id int primary key, v int, filler char(84))")
                c.psql(1, f"insert into shared select g, 0, '' from generate_series(1, {ROWS}) g")
                c.psql(1, LINES_TABLE)
                c.psql(1, f"insert into interface_lines select g, 1 + g % 2, 0, g, 'line of an interface table' from generate_series(1, {LINES}) g")
        return self.one, self.two

    def scripts(self, what):
        paths = []
        for half in (0, 1):
            keys = "{factor} * random({low}, {high}) - {less}".format(**keys_of(what, half))
            path = self.work / f"{what}{half}.sql"
            path.write_text(f"\\set k {keys}\n{statement_of(what, half, ':k')};\n")
            paths.append(str(path))
        return paths

    def round(self, cluster, what, seconds):
        args = ["-c", str(CLIENTS // 2), "-j", "1"]
        runs = [start_pgbench(cluster, 1 + half * (cluster.instances - 1), [*args, "-f", path], seconds)
                for half, path in enumerate(self.scripts(what))]
        return rates_of(runs)

    def ratio(self, what):
        """Rounds in turn: one instance, two, and the peer's one server and two nodes if it is asked for, forwards and backwards."""
        pair = self.databases()
        peer = self.galera() if self.args.peer and what in AGAINST_PEER else None
        warm = max(2, self.args.seconds // 2)
        for c in pair:
            self.round(c, what, warm)
        for nodes in NODES if peer else ():
            peer.round(nodes, what, warm)
        rates = {"one": [], "two": []}
        of_peer = {nodes: [] for nodes in NODES}
        for n in range(self.args.rounds):
            for c in pair if n % 2 == 0 else reversed(pair):
                detail = Detail(c) if self.args.detail and n == 0 else None
                rate = self.round(c, what, self.args.seconds)
                rates[c.name].append(rate)
                if detail:
                    print(detail.report(rate * self.args.seconds), flush=True)
            for nodes in (NODES if n % 2 == 0 else reversed(NODES)) if peer else ():
                of_peer[nodes].append(peer.round(nodes, what, self.args.seconds))
        one, two = (statistics.median(rates[n]) for n in ("one", "two"))
        pairs = list(zip(rates["one"], rates["two"]))
        print(f"| {what} | {one:.0f} tps | {two:.0f} tps | {two / one:.2f}; {mean_and_spread(pairs, GOALS[what])} |", flush=True)
        if peer:
            self.beside(what, rates["two"], of_peer)

    def beside(self, what, two, of_peer):
        alone, nodes = (statistics.median(rate for rate, _ in of_peer[n]) for n in NODES)
        failed = statistics.median(share for _, share in of_peer[NODES[1]])
        print(f"| {what}, MariaDB with Galera | {alone:.0f} tps | {nodes:.0f} tps, {100 * failed:.1f} % failed | {nodes / alone:.2f} |  |  |", flush=True)
        ratio = statistics.median(two) / nodes
        spread = "/".join(f"{b / g:.2f}" for b, (g, _) in zip(two, of_peer[NODES[1]]))
        print(f"| {what}, two instances against two nodes |  |  | {ratio:.2f} | {AGAINST_PEER[what]} | {spread} |", flush=True)

    # ---- one instance, before and after ----

    def lone(self):
        if not self.args.base:
            raise SystemExit("--only lone needs --base, a binary of before")
        extra = ["--buffer-cache", self.args.buffers, *self.args.braid_arg]
        with self.starting_servers():
            pair = [Cluster(b, self.work, n, 1, self.args.port + p, extra)
                    for b, n, p in ((self.args.base, "before", 20), (self.args.binary, "after", 30))]
        try:
            for c in pair:
                c.pgbench_init(10)
            for title, args in (("pgbench -S, 4 clients", ["-S", "-c", "4", "-j", "2"]), ("pgbench TPC-B, 8 clients", ["-c", "8", "-j", "2"])):
                measured = {"tps": [], "us of user code a transaction": [], "us of the kernel a transaction": []}
                for n in range(self.args.rounds + 1):
                    figures = {}
                    for c in pair if n % 2 == 0 else reversed(pair):
                        begun = cpu_of(c)
                        rate = rates_of([start_pgbench(c, 1, args, self.args.seconds)])
                        spent = [(b - a) / (rate * self.args.seconds) for a, b in zip(begun, cpu_of(c))]
                        figures[c.name] = rate, *spent
                    if n > 0:  # the first one warms
                        for pairs, before, after in zip(measured.values(), figures["before"], figures["after"]):
                            pairs.append((before, after))
                for what, pairs in measured.items():
                    before, after = (statistics.median(r) for r in zip(*pairs))
                    ratio = statistics.median(b / a for a, b in pairs)
                    goal = 0.99 if what == "tps" else None
                    print(f"| lone, {title} | {before:.0f} {what} before | {after:.0f} | {ratio:.2f}; {mean_and_spread(pairs, goal)} |", flush=True)
        finally:
            for c in pair:
                c.stop()

    # ---- single waits ----

    def gc(self):
        import psycopg
        _, two = self.databases()
        for pause_us, goal in ((0, 2), (PAUSE_US, None)):
            raw = self.round_trip_us(pause_us)
            waits = {}
            # On an idle machine a wait is the wake-ups of three threads, and what these take goes by where the scheduler has put them: so several pairs of sessions.
            for _ in range(self.args.rounds):
                with psycopg.connect(two.url(1), autocommit=True) as a, psycopg.connect(two.url(2), autocommit=True) as b:
                    self.transfers([a, b], waits, pause_us)
            how = "idle" if pause_us == 0 else f"idle, {pause_us / 1000:.0f} ms between"
            for event in ("gc current block 2-way", "gc cr block 2-way"):
                got = waits.get(event)
                if not got:
                    print(f"| {event}, {how} | no such wait was met: {sorted(waits)} |")
                    continue
                p50, p95 = percentile(got, 50), percentile(got, 95)
                print(f"| {event}, {how} | {raw:.0f} us raw round trip | {p50:.0f} us p50, {p95:.0f} us p95, {sum(got.values())} waits | {p50 / raw:.2f} "
                      f"| {f'at most {goal}' if goal else ''} |  |", flush=True)

    def transfers(self, sides, waits, pause_us):
        """A row goes to and fro, then is changed on one side and read on the other; nothing else is done meanwhile. Adds the waits met to `waits`."""
        trips = self.args.trips // self.args.rounds
        update, select = "update shared set v = v + 1 where id = %s", "select v from shared where id = %s"

        def run(n, sql, key):
            sides[n].execute(sql, (key,), prepare=True)
            time.sleep(pause_us / 1e6)

        # The commit flushes the block's redo; the first look at it elsewhere makes the index blocks shared.
        to_and_fro = [lambda: run(0, update, 77), lambda: run(1, update, 77)]
        read_there = [lambda: run(0, update, 177), lambda: run(1, select, 177)]
        for steps in (to_and_fro, read_there):
            for _ in range(10):
                for step in steps:
                    step()
            before = [histograms(side) for side in sides]
            for _ in range(trips // 2):
                for step in steps:
                    step()
            for earlier, side in zip(before, sides):
                for (event, below), n in histograms(side).items():
                    of_event = waits.setdefault(event, {})
                    of_event[below] = of_event.get(below, 0) + n - earlier.get((event, below), 0)

    def round_trip_us(self, pause_us):
        """p50 of 64 bytes out and 8 KiB back between two processes, in C, so that it is the system's time and not Python's. Each has a processor of its own, as two
        instances have: left to themselves on an idle machine both are put on one, where a round trip takes a third (20 us)."""
        source, binary = self.work / "roundtrip.c", self.work / "roundtrip"
        source.write_text(ROUND_TRIP)
        sh(["cc", "-O2", "-o", str(binary), str(source)])
        trips = 20_000 if pause_us == 0 else 500
        return statistics.median(float(sh([str(binary), str(trips), str(pause_us)])) for _ in range(5))

    # ---- the peer ----

    def galera(self):
        if self.maria is None:
            self.maria = Galera(self.work, self.args.port + 40)
            self.maria.begin()
        return self.maria

    def stop(self):
        for c in (self.one, self.two, self.maria):
            if c is not None:
                c.stop()


class Galera:
    """MariaDB with Galera: two nodes over loopback and, as the one to compare with, a server without it. The same durability: every commit synced."""

    def __init__(self, work, port):
        self.work, self.port, self.processes = work, port, []

    def begin(self):
        work, port = self.work, self.port
        for tool in ("mariadbd", "mariadb", "mariadb-install-db", "sysbench", "rsync"):
            if not shutil.which(tool):
                raise SystemExit(f"--peer galera needs {tool}: apt install mariadb-server galera-4 sysbench rsync")
        providers = list(pathlib.Path("/usr/lib").glob("**/libgalera_smm.so"))
        if not providers:
            raise SystemExit("--peer galera needs libgalera_smm.so: apt install galera-4")
        self.script = work / "update.lua"
        self.script.write_text(SYSBENCH)
        gcs = port + 10
        for k in (0, 1, 2):
            wsrep = []
            if k:
                own = gcs + 10 * k
                wsrep = ["--wsrep-on=1", f"--wsrep-provider={providers[0]}", f"--wsrep-node-name=n{k}", "--wsrep-sst-method=rsync",
                         f"--wsrep-node-address=127.0.0.1:{own}", f"--wsrep-sst-receive-address=127.0.0.1:{own + 2}",
                         f"--wsrep-cluster-address=gcomm://{'' if k == 1 else f'127.0.0.1:{gcs + 10}'}",
                         f"--wsrep-provider-options=base_port={own};ist.recv_addr=127.0.0.1:{own + 1}"]
            self.start(k, wsrep)
            if k < 2:
                self.sql(k, "create database b; create table b.shared (id int primary key, v int, filler char(84)) engine=innodb")
                self.sql(k, f"use b; insert into shared select seq, 0, '' from seq_1_to_{ROWS}")
                self.sql(k, f"use b; {LINES_TABLE}; insert into interface_lines select seq, 1 + seq % 2, 0, seq, 'line of an interface table' from seq_1_to_{LINES}")
        end = time.time() + 60
        while self.sql(1, "show status like 'wsrep_cluster_size'").split()[-1:] != ["2"]:
            if time.time() > end:
                raise SystemExit(f"Galera's second node does not join: see {work}/maria2.log")
            time.sleep(0.2)

    def start(self, k, wsrep):
        directory = self.work / f"maria{k}"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        # A state transfer of root's does not get through: rsync's daemon is nobody then.
        as_user = []
        if os.geteuid() == 0:
            as_user = ["runuser", "-u", "mysql", "--"]
            shutil.chown(directory, "mysql")
            self.work.chmod(0o755)
        sh([*as_user, "mariadb-install-db", "--no-defaults", f"--datadir={directory}", "--auth-root-authentication-method=normal",
            "--skip-test-db"], cwd="/")
        log = open(self.work / f"maria{k}.log", "w")
        self.processes.append(subprocess.Popen(
            [*as_user, "mariadbd", "--no-defaults", f"--datadir={directory}", f"--port={self.port + k}", f"--socket={directory}/s",
             "--bind-address=127.0.0.1", "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--innodb-buffer-pool-size=512M",
             "--innodb-flush-log-at-trx-commit=1", "--innodb-log-file-size=512M", *wsrep], stdout=log, stderr=log, cwd="/"))
        end = time.time() + 120
        while subprocess.run([*self.client(k), "select 1"], capture_output=True).returncode:
            if self.processes[-1].poll() is not None or time.time() > end:
                raise SystemExit(f"MariaDB does not start: see {log.name}")
            time.sleep(0.1)

    def client(self, k):
        return ["mariadb", "--no-defaults", "-u", "root", "-S", str(self.work / f"maria{k}" / "s"), "-N", "-B", "-e"]

    def sql(self, k, text):
        return sh([*self.client(k), text])

    def round(self, nodes, what, seconds):
        """Statements that were done each second, and the share that failed. Half of the clients on each of the nodes, over TCP as pgbench's are."""
        runs = [subprocess.Popen(["sysbench", str(self.script), f"--statement={statement_of(what, half, '?')}",
                                  *(f"--{name}={value}" for name, value in keys_of(what, half).items()), "--db-driver=mysql", "--mysql-user=root", "--mysql-db=b",
                                  "--mysql-host=127.0.0.1", f"--mysql-port={self.port + k}", "--mysql-ignore-errors=all", f"--threads={CLIENTS // 2}",
                                  f"--time={seconds}", "run"], stdout=subprocess.PIPE, text=True) for half, k in enumerate(nodes)]
        done = failed = 0
        for run in runs:
            out, _ = run.communicate()
            if run.returncode:
                raise SystemExit(f"sysbench failed:\n{out}")
            done += int(re.search(r"total number of events:\s+(\d+)", out).group(1))
            failed += int(re.search(r"ignored errors:\s+(\d+)", out).group(1))
        return done / seconds, failed / max(1, done + failed)

    def stop(self):
        for k in reversed(range(len(self.processes))):
            subprocess.run([*self.client(k), "shutdown"], capture_output=True)
        for p in self.processes:
            p.wait(120)


SYSBENCH = """
sysbench.cmdline.options = {
   statement = { "to execute", "" }, factor = { "of keys", 1 }, low = { "lowest", 1 }, high = { "highest", 1 }, less = { "taken off keys", 0 }
}
function thread_init()
   connection = sysbench.sql.driver():connect()
   statement = connection:prepare(sysbench.opt.statement)
   key = statement:bind_create(sysbench.sql.type.INT)
   statement:bind_param(key)
end
function event()
   key:set(sysbench.opt.factor * sysbench.rand.uniform(sysbench.opt.low, sysbench.opt.high) - sysbench.opt.less)
   statement:execute()
end
function thread_done()
   statement:close()
   connection:disconnect()
end
"""


def histograms(session):
    """Waits for other instances so far, by event and upper end of the bucket in microseconds."""
    sql = "select event, wait_time_below_micro, sum(wait_count) from v$gc_latency_histogram where part = 'total' group by 1, 2"
    return {(event, below): int(n) for event, below, n in session.execute(sql, prepare=True).fetchall()}


def percentile(histogram, percent):
    """Those of a bucket are taken to lie evenly in it; a bucket is an eighth of a power of two."""
    rank, seen = sum(histogram.values()) * percent / 100, 0
    for below, n in sorted(histogram.items()):
        if n and seen + n >= rank:
            width = max(1, 1 << max(0, (below - 1).bit_length() - 4))
            return below - width + width * (rank - seen) / n
        seen += n
    raise ValueError("an empty histogram has no percentiles")


ROUND_TRIP = r"""
#define _GNU_SOURCE
#include <sched.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
enum { OUT = 64, BACK = 8192 };
static void full(int fd, char *to, int n) { while (n > 0) { int r = read(fd, to, n); if (r <= 0) exit(1); to += r; n -= r; } }
static void all(int fd, const char *from, int n) { while (n > 0) { int r = write(fd, from, n); if (r <= 0) exit(1); from += r; n -= r; } }
static int less(const void *a, const void *b) { double x = *(double *)a, y = *(double *)b; return x < y ? -1 : x > y; }
static void alone_on(int cpu) { cpu_set_t one; CPU_ZERO(&one); CPU_SET(cpu, &one); sched_setaffinity(0, sizeof one, &one); }
int main(int argc, char **argv) {
    int trips = atoi(argv[1]), pause = atoi(argv[2]);
    static char out[OUT], back[BACK];
    double *took = calloc(trips, sizeof *took);
    int on = 1, l = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    if (bind(l, (void *)&at, n) || listen(l, 1) || getsockname(l, (void *)&at, &n)) return 1;
    pid_t child = fork();
    alone_on(child == 0);
    if (child == 0) {
        int s = accept(l, 0, 0);
        setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        for (int i = 0; i < trips; i++) { full(s, out, OUT); all(s, back, BACK); }
        return 0;
    }
    int c = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c, (void *)&at, n)) return 1;
    setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (int i = 0; i < trips; i++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        all(c, out, OUT);
        full(c, back, BACK);
        clock_gettime(CLOCK_MONOTONIC, &b);
        usleep(pause);
        took[i] = (b.tv_sec - a.tv_sec) * 1e6 + (b.tv_nsec - a.tv_nsec) / 1e3;
    }
    waitpid(child, 0, 0);
    qsort(took, trips, sizeof *took, less);
    printf("%.1f\n", took[trips / 2]);
    return 0;
}
"""


def mean_and_spread(pairs, goal):
    """The rest of a row: how much more the second of each pair is, as geometric mean with its standard error; what is to be reached; every round."""
    ratios = [after / before for before, after in pairs]
    error = statistics.stdev(map(math.log, ratios)) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
    return f"mean {statistics.geometric_mean(ratios):.3f} +- {error:.3f} | {goal or ''} | {'/'.join(f'{r:.2f}' for r in ratios)}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    p.add_argument("--binary", type=pathlib.Path, default=target / "release" / "braid")
    p.add_argument("--base", type=pathlib.Path, help="a binary of before, for --only lone")
    p.add_argument("--apart", action="store_true", help="lone, select: servers on one processor, clients on another")
    p.add_argument("--only", default="gc,select,own,uniform,hot")
    p.add_argument("--seconds", type=int, default=5)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--trips", type=int, default=500)
    p.add_argument("--buffers", default="512MB")
    p.add_argument("--port", type=int, default=6200, help="the first of some hundred ports")
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/var/tmp/braid-cluster"))
    p.add_argument("--peer", choices=["galera"])
    p.add_argument("--detail", action="store_true")
    p.add_argument("--braid-arg", action="append", default=[], help="passed on to `braid up`")
    args = p.parse_args()
    if not args.binary.exists():
        raise SystemExit(f"{args.binary} is missing: cargo build --release")
    if args.apart and not {"lone", "select"}.issuperset(args.only.split(",")):
        raise SystemExit("--apart is for lone and select alone: what writes needs both processors")
    args.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(args)
    print("| work | one instance | two instances | ratio | to reach | rounds |\n|---|---|---|---|---|---|", flush=True)
    try:
        for part in args.only.split(","):
            if part == "lone":
                bench.lone()
            elif part == "gc":
                bench.gc()
            elif part in GOALS:
                bench.ratio(part)
            else:
                raise SystemExit(f"no such part: {part}")
    finally:
        bench.stop()


if __name__ == "__main__":
    main()
