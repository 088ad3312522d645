#!/usr/bin/env python3
"""Runs sqllogictest's files on Braid, and asks PostgreSQL where the result is not the expected one.

    logictest.py PATH .. --braid target/release/braid [--workers 2] [--seconds T] [--show N]

PATH is a file or a directory of files `*.test`. Each worker has a Braid of its own. Queries are
sent a hundred in a message, and one by one if one of a message fails. If PostgreSQL answers as
Braid does, the file is SQLite's way, and the difference is counted as explained. Ends with 1 if a
difference is not explained, or Braid crashes or hangs.
"""

import argparse
import collections
import multiprocessing
import re
import signal
import sys
import time
from pathlib import Path

import psycopg

import logictest_file
import peer_compare
import peer_servers
import peer_session
import sql_text

BATCH = 100
SAME = "as expected"
EXPLAINED = "as PostgreSQL"
REFUSED = "refused"
FOLLOWS = "follows a refusal"
# One side has an error of class 22: a matter of what is evaluated first, or folded to NULL.
EVALUATION = "evaluation"
DIFFERENT = "different"
OTHER_CODE = "other code"
KINDS = [
    SAME,
    EXPLAINED,
    REFUSED,
    FOLLOWS,
    EVALUATION,
    DIFFERENT,
    OTHER_CODE,
    peer_compare.HANG,
    peer_compare.CRASH,
]
BAD = (DIFFERENT, OTHER_CODE, peer_compare.HANG, peer_compare.CRASH)


class File:
    """One file on one worker's Braid. PostgreSQL is set up only when it is needed."""

    def __init__(self, path, worker):
        self.path = path
        self.worker = worker
        self.counts = collections.Counter()
        self.queries = 0
        self.findings = []
        # Statements that worked on Braid, for PostgreSQL to follow.
        self.done = []
        self.followed = 0
        self.postgres = None
        self.missing = set()

    def run(self):
        text = self.path.read_text(encoding="utf-8", errors="replace")
        batch = []
        for record in logictest_file.records(text):
            if record.is_query and len(batch) < BATCH:
                batch.append(record)
                continue
            self.send(batch)
            batch = [record] if record.is_query else []
            if not record.is_query:
                self.statement(record)
        self.send(batch)
        self.clear()
        return self

    def clear(self):
        """Drops what the file has made, on both sides."""
        names = set()
        for sql in self.done:
            found = re.match(r"(?i)\s*create\s+(table|view)\s+(\w+)", sql)
            if found:
                names.add((found.group(1).lower(), found.group(2)))
        # Views first: tables do not go while views of them are there.
        for kind, name in sorted(names, reverse=True):
            for session in filter(None, (self.worker.braid, self.postgres)):
                session.one(f"drop {kind} if exists {name}")
        if self.postgres:
            self.postgres.close()

    # Statements

    def statement(self, record):
        answer = self.worker.braid.one(record.sql)
        if answer.succeeded():
            self.done.append(record.sql)
        if answer.succeeded() != record.fails:
            self.counts[SAME] += 1
            return
        self.explain(record, answer)
        if not answer.succeeded():
            self.missing |= sql_text.defined(record.sql)

    # Queries

    def send(self, batch):
        """Runs queries in one message, and each by itself if one of them fails."""
        self.queries += len(batch)
        if not batch:
            return
        answers = self.worker.braid.run(";\n".join(record.sql for record in batch))
        if len(answers) != len(batch) or not all(a.succeeded() for a in answers):
            if answers[-1].kind in (peer_compare.CRASH, peer_compare.HANG):
                self.worker.revive()
            answers = [self.alone(record) for record in batch]
        for record, answer in zip(batch, answers):
            if answer.succeeded() and logictest_file.matches(record, answer.rows):
                self.counts[SAME] += 1
            else:
                self.explain(record, answer)

    def alone(self, record):
        answer = self.worker.braid.one(record.sql)
        if answer.kind in (peer_compare.CRASH, peer_compare.HANG):
            answer.message += "\n" + self.worker.revive()
        return answer

    def explain(self, record, answer):
        """Counts an answer that is not the expected one as what it is."""
        theirs = None
        if answer.kind in (peer_compare.CRASH, peer_compare.HANG):
            kind = answer.kind
        elif sql_text.mentioned(record.sql) & self.missing:
            kind = FOLLOWS
        elif answer.sqlstate == "0A000":
            kind = REFUSED
        else:
            theirs = self.ask(record)
            kind = self.judge(record, answer, theirs)
        self.counts[kind] += 1
        if kind in BAD or kind in (REFUSED, EVALUATION):
            self.findings.append(
                (self.path.name, record.line, kind, record.sql, str(answer), str(theirs))
            )

    def ask(self, record):
        """PostgreSQL's answer, after all statements that Braid has carried out up to here."""
        if self.postgres is None:
            self.postgres = self.worker.postgres()
        for sql in self.done[self.followed :]:
            if sql is not record.sql:
                self.postgres.one(sql)
        self.followed = len(self.done)
        return self.postgres.one(record.sql)

    def judge(self, record, ours, theirs):
        if ours.sqlstate != theirs.sqlstate and "22" in (ours.sqlstate[:2], theirs.sqlstate[:2]):
            return EVALUATION
        if not ours.succeeded():
            return EXPLAINED if ours.sqlstate == theirs.sqlstate else OTHER_CODE
        if not theirs.succeeded():
            return DIFFERENT
        if not record.is_query:
            return EXPLAINED
        same = logictest_file.values(record, ours.rows) == logictest_file.values(
            record, theirs.rows
        )
        return EXPLAINED if same else DIFFERENT


class Worker:
    """A process's Braid and its database of PostgreSQL."""

    def __init__(self, program, options, postgres_at, number, seconds):
        self.server = peer_servers.Braid(program, 1, options)
        self.postgres_at = postgres_at
        self.database = f"worker{number}"
        self.seconds = seconds
        self.braid = self.connect()
        with psycopg.connect(f"{postgres_at} dbname=postgres", autocommit=True) as connection:
            connection.execute(f"create database {self.database}")

    def connect(self):
        return peer_session.Session(self.server.conninfos[0], self.seconds)

    def postgres(self):
        return peer_session.Session(f"{self.postgres_at} dbname={self.database}", self.seconds)

    def revive(self):
        """After a crash or a hang. Returns Braid's last words if it was dead."""
        self.braid.close()
        words = ""
        try:
            self.braid = self.connect()
        except psycopg.OperationalError:
            words = self.server.restart()
            self.braid = self.connect()
        return words


def work(options, postgres_at, number, paths, results):
    """A worker's process: takes paths until there is None, and puts what came of each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    worker = Worker(
        options.braid, options.braid_options, postgres_at, number, options.statement_seconds
    )
    try:
        while (path := paths.get()) is not None:
            begun = time.monotonic()
            file = File(path, worker).run()
            seconds = time.monotonic() - begun
            results.put((path, file.queries, file.counts, file.findings, seconds))
    finally:
        worker.server.stop()
        results.put(None)


def mark(finding):
    """What findings of one cause mostly have in common."""
    _, _, kind, sql, ours, _ = finding
    if kind in (REFUSED, OTHER_CODE):
        return kind, re.sub(r"\"[^\"]*\"|'[^']*'|\d+", "?", ours.split("\n")[0])[:90]
    return kind, re.sub(r"\d+|\b\w+\.", "?", sql)[:60]


def files_of(paths):
    found = []
    for path in paths:
        found += sorted(path.rglob("*.test")) if path.is_dir() else [path]
    return found


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--braid", required=True, help="the program")
    parser.add_argument("--braid-options", nargs="*", default=[], help="for `braid instance`")
    parser.add_argument("--postgres", default="/usr/lib/postgresql/15/bin", help="its programs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no file after this"
    )
    parser.add_argument("--show", type=int, default=2, help="findings to print of each kind")
    parser.add_argument("--statement-seconds", type=int, default=30)
    return parser.parse_args()


def summary(queries, counts, seen, seconds):
    rate = queries / max(seconds, 1)
    print(f"\n{queries} queries in {seconds:.0f} s ({rate:.0f} a second); of all records:")
    for kind in KINDS:
        if counts[kind]:
            print(f"{counts[kind]:9} {kind}")
    for (kind, text), count in seen.most_common(30):
        print(f"{count:9} {kind}: {text}")


def run(options, postgres):
    paths, results = multiprocessing.Queue(), multiprocessing.Queue()
    files = files_of(options.paths)
    workers = [
        multiprocessing.Process(target=work, args=(options, postgres.address, n, paths, results))
        for n in range(options.workers)
    ]
    for process in workers:
        process.start()
    begun = time.monotonic()
    counts, seen, queries = collections.Counter(), collections.Counter(), 0
    # As many files at once as there are workers, so that the time limit holds.
    waiting = iter(files)
    for _ in workers:
        paths.put(next(waiting, None))
    living = len(workers)
    while living:
        result = results.get()
        if result is None:
            living -= 1
            continue
        path, of_file, of_kind, findings, seconds = result
        late = time.monotonic() - begun > options.seconds
        paths.put(None if late else next(waiting, None))
        queries += of_file
        counts += of_kind
        bad = {kind: of_kind[kind] for kind in KINDS if of_kind[kind] and kind != SAME}
        print(
            f"{path.parent.name}/{path.name} {of_file} queries, {seconds:.1f} s {bad or ''}",
            flush=True,
        )
        for finding in findings:
            seen[mark(finding)] += 1
            if seen[mark(finding)] <= options.show:
                name, line, kind, sql, ours, theirs = finding
                print(f"  {name}:{line}: {kind}\n    {sql}\n    Braid: {ours}")
                print(f"    PostgreSQL: {theirs}")
    for process in workers:
        process.join()
    summary(queries, counts, seen, time.monotonic() - begun)
    return 1 if any(counts[kind] for kind in BAD) or any(p.exitcode for p in workers) else 0


def main():
    options = read_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    postgres = peer_servers.Postgres(options.postgres)
    try:
        return run(options, postgres)
    finally:
        postgres.stop()


if __name__ == "__main__":
    sys.exit(main())
