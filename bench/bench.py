#!/usr/bin/env python3
"""Braid against PostgreSQL on one machine, in one run.

    bench/bench.py [--only select,tpcb,copy,agg,stream,start,waits] [--seconds 10] [--rounds 3] [--scale 10] [--buffers 4GB]

Both servers are started here with the same amount of buffers and durable commits, in fresh directories under --work.
Every figure is measured on both in turn (A B A B ...), `--rounds` times; the table gives the medians and their ratio. A ratio
above 1 means that Braid is faster. Needs pgbench, psql and PostgreSQL's server binaries (Debian: postgresql, postgresql-contrib).
"""
import argparse
import getpass
import json
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

# libpq would encrypt where the server offers it; what is compared is the servers.
os.environ.setdefault("PGSSLMODE", "disable")

ROOT = pathlib.Path(__file__).resolve().parent.parent


def sh(cmd, **kw):
    r = subprocess.run(cmd, capture_output=True, text=True, **kw)
    if r.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, cmd))}\nfailed ({r.returncode}):\n{r.stdout}\n{r.stderr}")
    return r.stdout


def wait_port(port, process, seconds=60):
    end = time.time() + seconds
    while time.time() < end:
        if process.poll() is not None:
            raise SystemExit(f"the server on port {port} ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.01)
    raise SystemExit(f"nothing listens on port {port} after {seconds} s")


class Server:
    """A running server: name, port, database, user, and the pids whose memory counts."""

    def url(self):
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/{self.db}"

    def psql(self, sql):
        return sh(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.url(), "-c", sql])


class Postgres(Server):
    name, port, db, user = "PostgreSQL", 5599, "postgres", "postgres"

    def __init__(self, work, buffers):
        self.dir = work / "pg"
        bins = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
        if not bins:
            raise SystemExit("no PostgreSQL server binaries under /usr/lib/postgresql")
        self.bin = bins[-1]
        self.as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)
        if self.as_user:
            shutil.chown(self.dir, "postgres")
            work.chmod(0o755)
        sh([*self.as_user, str(self.bin / "initdb"), "-D", str(self.dir), "-U", "postgres", "-A", "trust"], cwd="/")
        self.options = ["-c", f"shared_buffers={buffers}", "-c", f"port={self.port}", "-c", "listen_addresses=127.0.0.1",
                        "-c", "max_wal_size=8GB", "-c", "unix_socket_directories=/tmp", "-c", "max_connections=200"]
        self.start()

    def start(self):
        self.process = subprocess.Popen([*self.as_user, str(self.bin / "postgres"), "-D", str(self.dir), *self.options],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
        wait_port(self.port, self.process)
        while subprocess.run(["psql", "-X", "-q", "-d", self.url(), "-c", "select 1"], capture_output=True).returncode:
            time.sleep(0.05)

    def stop(self):
        pid = int((self.dir / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGINT)
        self.process.wait(120)


class Braid(Server):
    name, port, db, user = "Braid", 5501, "braid", getpass.getuser()

    def __init__(self, work, buffers, extra, directory="braid", port=5501):
        self.dir, self.port = work / directory, port
        self.buffers, self.extra = buffers, extra
        shutil.rmtree(self.dir, ignore_errors=True)
        self.binary = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "braid"
        if not self.binary.exists():
            raise SystemExit(f"{self.binary} is missing: cargo build --release")
        self.start()

    def start(self):
        self.process = subprocess.Popen([str(self.binary), "up", "--data", str(self.dir), "--buffer-cache", self.buffers,
                                         "--port", str(self.port), *self.extra],
                                        stdout=subprocess.DEVNULL, stderr=open(self.dir.parent / "braid.log", "a"))
        wait_port(self.port, self.process, 300)
        while subprocess.run(["psql", "-X", "-q", "-d", self.url(), "-c", "select 1"], capture_output=True).returncode:
            time.sleep(0.02)

    def resident(self):
        """Resident memory of the instance: what it holds of its own, and its share of the binary's pages."""
        status = json.loads(sh([str(self.binary), "status", "--data", str(self.dir), "--json"]))
        pid = (status["instances"] if isinstance(status, dict) else status)[0]["pid"]
        lines = pathlib.Path(f"/proc/{pid}/status").read_text()
        return ", ".join(" ".join(m) for m in re.findall(r"(VmRSS|RssAnon|RssFile):\s+(\d+ kB)", lines))

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(300)


def pgbench(server, args, seconds):
    out = sh(["pgbench", "-h", "127.0.0.1", "-p", str(server.port), "-U", server.user, "-n", "-T", str(seconds), *args, server.db])
    failed = re.search(r"number of failed transactions: (\d+)", out)
    if failed and int(failed.group(1)):
        print(f"  {server.name}: {failed.group(0)}", file=sys.stderr)
    return pgbench_rate(out)


def pgbench_rate(out):
    return float(re.search(r"tps = ([\d.]+)", out).group(1))


def seconds_of(f):
    t = time.monotonic()
    f()
    return time.monotonic() - t


class Bench:
    def __init__(self, args, servers):
        self.args, self.servers, self.rows = args, servers, []

    def compare(self, what, goal, measure, higher_is_better=True, prepare=None, unit=""):
        """measure(server) -> figure. Prints and keeps one row."""
        figures = {s.name: [] for s in self.servers}
        for _ in range(self.args.rounds):
            for s in self.servers:
                if prepare:
                    prepare(s)
                figures[s.name].append(measure(s))
        m = {n: statistics.median(v) for n, v in figures.items()}
        a, b = m["Braid"], m.get("PostgreSQL", float("nan"))
        ratio = a / b if higher_is_better else b / a
        spread = "/".join(f"{v:.4g}" for v in sorted(figures["Braid"]))
        row = f"| {what} | {b:.4g}{unit} | {a:.4g}{unit} | {ratio:.2f} | {goal} | {spread} |"
        self.rows.append(row)
        print(row, flush=True)

    def init_pgbench(self):
        for s in self.servers:
            sh(["pgbench", "-h", "127.0.0.1", "-p", str(s.port), "-U", s.user, "-i", "-q", "-s", str(self.args.scale), s.db])

    def select(self):
        for c in (1, 4, 16):
            self.compare(f"pgbench -S -M prepared, {c} clients, tps", "1.1 (1.4)",
                         lambda s: pgbench(s, ["-S", "-M", "prepared", "-c", str(c), "-j", str(min(c, 2))], self.args.seconds))

    def tpcb(self):
        for c in (1, 8, 32):
            self.compare(f"pgbench TPC-B -M prepared, {c} clients, tps", "1.0 (1.5)",
                         lambda s: pgbench(s, ["-M", "prepared", "-c", str(c), "-j", str(min(c, 2))], self.args.seconds))

    def copy_file(self):
        path = self.args.work / "rows.tsv"
        if not path.exists():
            with open(path, "w") as f:
                for i in range(3_000_000):
                    f.write(f"{i % 1000}\t{1_600_000_000_000 + i * 17}\t{(i * 7919 % 100003) / 7}\t{i % 64}\n")
        return path

    def create(self, s, table, index):
        s.psql(f"drop table if exists {table}")
        s.psql(f"create table {table} (element_id bigint, ts bigint, value double precision, status int)")
        if index:
            s.psql(f"create index {table}_i on {table} (element_id, ts)")

    def load(self, s, table):
        sh(["psql", "-X", "-q", "-d", s.url(), "-c", f"\\copy {table} from '{self.copy_file()}'"])

    def copy(self):
        self.copy_file()
        for index, goal in ((True, "2"), (False, "0.7")):
            self.compare(f"COPY of 3 million rows, {'index on two columns' if index else 'no index'}, s", goal,
                         lambda s: seconds_of(lambda: self.load(s, "events")), False,
                         lambda s: self.create(s, "events", index))

    def agg(self):
        for s in self.servers:
            self.create(s, "facts", False)
            self.load(s, "facts")
            s.psql("vacuum analyze facts")
        for what, sql in (("count/avg/max", "select count(*), avg(value), max(ts) from facts"),
                          ("the same grouped by element_id % 10",
                           "select element_id % 10, count(*), avg(value), max(ts) from facts group by 1"),
                          ("sums of a third of them, grouped by two columns",
                           "select element_id, status, sum(ts), min(value) from facts where value < 5000 and status <> 7 group by 1, 2")):
            self.compare(f"{what} over 3 million rows, s", "3" if "group" in what else "2", lambda s: min(seconds_of(lambda: s.psql(sql)) for _ in range(3)), False)

    def stream(self):
        def run(s):
            p = subprocess.Popen(["psql", "-X", "-q", "-A", "-t", "-d", s.url(), "-v", "FETCH_COUNT=0", "-c",
                                  "copy (select a.element_id, a.ts, a.value, a.status from wide a) to stdout"], stdout=subprocess.PIPE)
            n = 0
            while chunk := p.stdout.read(1 << 20):
                n += chunk.count(b"\n")
            if p.wait() or n != 10_000_000:
                raise SystemExit(f"{s.name}: {n} rows, exit {p.returncode}")

        for s in self.servers:
            self.create(s, "wide", False)
            s.psql("insert into wide select g % 1000, g, g * 0.5, g % 64 from generate_series(1, 10000000) g")
        self.compare("10 million rows streamed to a client, s", "1.0", lambda s: seconds_of(lambda: run(s)), False)

    def waits(self):
        """What the wait interface costs: the same server with and without timing its waits."""
        untimed = Braid(self.args.work, self.args.buffers, [*self.args.braid_arg, "--set", "timed_statistics=off"], "untimed", 5511)
        timed = next(s for s in self.servers if s.name == "Braid")
        try:
            for s in (timed, untimed):
                sh(["pgbench", "-h", "127.0.0.1", "-p", str(s.port), "-U", s.user, "-i", "-q", "-s", str(self.args.scale), s.db])
            for what, args in (("-S, 1 client", ["-S", "-c", "1"]), ("-S, 4 clients", ["-S", "-c", "4", "-j", "2"]),
                               ("TPC-B, 8 clients", ["-c", "8", "-j", "2"])):
                pairs = []
                for _ in range(max(self.args.rounds, 5)):
                    pairs.append([pgbench(s, ["-M", "prepared", *args], self.args.seconds) for s in (timed, untimed)])
                cost = statistics.median(1 - with_it / without for with_it, without in pairs)
                rates = [statistics.median(rates) for rates in zip(*pairs)]
                print(f"wait interface on pgbench {what}: {rates[0]:.0f} tps with, {rates[1]:.0f} without; median cost {100 * cost:.1f} %", flush=True)
        finally:
            untimed.stop()

    def start(self):
        def restart(s):
            s.stop()
            return seconds_of(s.start)

        self.compare("start on an existing database, s", "< 1 s", restart, False)
        braid = next(s for s in self.servers if s.name == "Braid")
        print("memory of the instance at rest, just started:", braid.resident())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="select,tpcb,copy,agg,stream,start")
    p.add_argument("--seconds", type=int, default=10)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--scale", type=int, default=10)
    p.add_argument("--buffers", default="4GB")
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/var/tmp/braid-bench"))
    p.add_argument("--braid-only", action="store_true", help="no PostgreSQL: figures without ratios")
    p.add_argument("--braid-arg", action="append", default=[], help="passed on to `braid up`")
    args = p.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    servers = [] if args.braid_only else [Postgres(args.work, args.buffers)]
    servers.append(Braid(args.work, args.buffers, args.braid_arg))
    bench = Bench(args, servers)
    print("| work | PostgreSQL | Braid | ratio | to reach (goal) | Braid's rounds |\n|---|---|---|---|---|---|", flush=True)
    try:
        parts = args.only.split(",")
        if {"select", "tpcb"} & set(parts):
            bench.init_pgbench()
        for part in parts:
            getattr(bench, part)()
    finally:
        for s in servers:
            s.stop()


if __name__ == "__main__":
    main()
