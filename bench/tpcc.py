#!/usr/bin/env python3
"""TPC-C by go-tpc on PostgreSQL, on one instance of Braid and on two, in one run.

    bench/tpcc.py --go-tpc PATH --binary target/release/braid [--base OLD-BINARY] [--only postgres,one,two]
                  [--warehouses 4] [--threads 8] [--seconds 60] [--rounds 3] [--statements] [--detail]

Servers are started here in fresh directories under --work, with the same amount of buffers and durable commits, and each gets its own data, analyzed. The
sides take turns, `--rounds` times; told are the medians of tpmC and their ratios, and of each kind of transaction the mean time. On two instances each has
half of the threads. `count(*)`s that TPC-C's consistency conditions compare are looked at in the end.

--detail says of the first round on Braid what a transaction took: CPU time of all server processes, the longest waits, blocks and messages, and the tables and
indexes that were waited for.
--statements tells where PostgreSQL's time went, by statement (pg_stat_statements), and Braid's, by `explain analyze` of the same statements.
go-tpc: github.com/pingcap/go-tpc, a version with `-d postgres`. Needs psql, PostgreSQL's server binaries.
"""
import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bench import ROOT, Postgres, sh  # noqa: E402
from cluster import Cluster, Detail  # noqa: E402

TABLES = ("warehouse", "district", "customer", "history", "new_order", "orders", "order_line", "stock", "item")
KINDS = ("NEW_ORDER", "PAYMENT", "ORDER_STATUS", "DELIVERY", "STOCK_LEVEL")
# Conditions 2 to 4 of TPC-C 3.3.2, as queries without rows.
CONSISTENT = (
    "select d_w_id, d_id from district where d_next_o_id - 1 <> (select max(o_id) from orders where o_w_id = d_w_id and o_d_id = d_id)",
    "select no_w_id, no_d_id from new_order group by no_w_id, no_d_id having max(no_o_id) - min(no_o_id) + 1 <> count(*)",
    "select d_w_id, d_id from district where (select sum(o_ol_cnt) from orders where o_w_id = d_w_id and o_d_id = d_id) <> "
    "(select count(*) from order_line where ol_w_id = d_w_id and ol_d_id = d_id)",
)


class Side:
    """A database, and the ports that its clients are spread over."""

    def __init__(self, name, server, ports, user, db, psql):
        self.name, self.server, self.ports, self.user, self.db, self.psql = name, server, ports, user, db, psql

    def command(self, args, port, threads, *what):
        return [str(args.go_tpc), "tpcc", "-d", "postgres", "-H", "127.0.0.1", "-P", str(port), "-U", self.user, "-D", self.db,
                "--conn-params", "sslmode=disable", "--warehouses", str(args.warehouses), "-T", str(threads), *what]

    def prepare(self, args):
        sh(self.command(args, self.ports[0], min(args.warehouses, 4), "prepare", "--no-check"))
        for table in TABLES:
            self.psql(f"analyze {table}")

    def run(self, args, seconds):
        """tpmC, and the mean time of each kind of transaction in milliseconds."""
        threads = max(args.threads // len(self.ports), 1)
        running = [subprocess.Popen(self.command(args, p, threads, "run", "--time", f"{seconds}s", "--interval", "1h"),
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for p in self.ports]
        said = [p.communicate()[0] for p in running]
        rates, times = 0.0, {}
        for p, text in zip(running, said):
            if p.returncode or "execute run failed" in text:
                raise SystemExit(f"go-tpc on {self.name} failed:\n{text}")
            rates += float(re.search(r"tpmC: ([\d.]+)", text).group(1))
            for kind in KINDS:
                m = re.search(rf"\[Summary\] {kind} - .*?Avg\(ms\): ([\d.]+)", text)
                if m:
                    times.setdefault(kind, []).append(float(m.group(1)))
        return rates, {k: statistics.mean(v) for k, v in times.items()}


def postgres(args):
    s = Postgres(args.work, args.buffers)
    if args.statements:
        s.stop()
        s.options += ["-c", "shared_preload_libraries=pg_stat_statements"]
        s.start()
        s.psql("create extension pg_stat_statements")
    return Side("PostgreSQL", s, [s.port], s.user, s.db, s.psql)


def braid(name, binary, instances, port, args):
    c = Cluster(binary, args.work, name.replace(" ", "-"), instances, port, ["--buffer-cache", args.buffers, *args.braid_arg])
    ports = [port + k for k in range(1, instances + 1)]
    return Side(name, c, ports, c.user, c.db, lambda sql: c.psql(1, sql))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--go-tpc", type=pathlib.Path, default=shutil.which("go-tpc"))
    p.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/braid")
    p.add_argument("--base", type=pathlib.Path, help="a program of before, with one instance")
    p.add_argument("--only", default="postgres,one,two")
    p.add_argument("--warehouses", type=int, default=4)
    p.add_argument("--threads", type=int, default=8)
    p.add_argument("--seconds", type=int, default=60)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--buffers", default="1GB", help="of each server")
    p.add_argument("--port", type=int, default=7900)
    p.add_argument("--statements", action="store_true")
    p.add_argument("--detail", action="store_true")
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/var/tmp/braid-tpcc"))
    p.add_argument("--braid-arg", action="append", default=[], help="passed on to `braid up`")
    args = p.parse_args()
    if not args.go_tpc:
        raise SystemExit("no go-tpc: --go-tpc PATH")
    os.environ["GOMAXPROCS"] = "2"
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    makers = {
        "postgres": lambda: postgres(args),
        "base": lambda: braid("one before", args.base, 1, args.port + 20, args),
        "one": lambda: braid("one", args.binary, 1, args.port, args),
        "two": lambda: braid("two", args.binary, 2, args.port + 10, args),
    }
    wanted = args.only.split(",") + (["base"] if args.base else [])
    sides, found = [], {}
    try:
        for name in wanted:
            sides.append(makers[name]())
            sides[-1].prepare(args)
            print(f"{sides[-1].name}: loaded", file=sys.stderr, flush=True)
        for n in range(args.rounds):
            for side in sides if n % 2 == 0 else reversed(sides):
                detail = Detail(side.server) if args.detail and n == 0 and isinstance(side.server, Cluster) else None
                found.setdefault(side.name, []).append(side.run(args, args.seconds))
                if detail:
                    print(detail.report(), flush=True)
                print(f"{side.name}: {found[side.name][-1][0]:.0f} tpmC", file=sys.stderr, flush=True)
        print("| side | tpmC | to the first | rounds | " + " | ".join(f"{k.lower()}, ms" for k in KINDS) + " |")
        print("|---|---|---|---|" + "---|" * len(KINDS))
        first = statistics.median(r for r, _ in found[sides[0].name])
        for side in sides:
            rates = [r for r, _ in found[side.name]]
            times = [statistics.median(t[k] for _, t in found[side.name] if k in t) for k in KINDS]
            print(f"| {side.name} | {statistics.median(rates):.0f} | {statistics.median(rates) / first:.2f} | "
                  + "/".join(f"{r:.0f}" for r in rates) + " | " + " | ".join(f"{t:.1f}" for t in times) + " |")
        for side in sides:
            for sql in CONSISTENT:
                if side.psql(sql).strip():
                    raise SystemExit(f"{side.name} is not consistent: {sql}")
            if args.statements and side.name == "PostgreSQL":
                print(side.psql("select round(total_exec_time) ms, calls, round(1000 * mean_exec_time) us, left(query, 90) "
                                "from pg_stat_statements order by 1 desc limit 25"))
    finally:
        for side in sides:
            side.server.stop()


if __name__ == "__main__":
    main()
