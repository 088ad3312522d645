#!/usr/bin/env python3
"""Draws tables, rows and statements, runs them on Braid and on PostgreSQL, and compares.

    fuzz_queries.py --braid target/debug/braid [--seed S] [--queries N] [--seconds T] [--out DIR]

Everything follows from the seed: `--seed S --only N` draws statement N again. A statement that is
answered differently is made smaller and printed with its tables. A crash, a hang and an internal
error (XX000) are always errors of Braid. Errors of evaluation (class 22, and 21 of a subquery with
too many rows) depend on what is evaluated first: if either side has one, nothing is concluded.
Ends with 1 if anything differed.
"""

import argparse
import collections
import random
import re
import signal
import sys
import time
from pathlib import Path

import psycopg

import fuzz_reduce
import fuzz_schema
import fuzz_statements
import peer_compare
import peer_servers
import peer_session

INTERNAL = "internal error"
EVALUATION = "evaluation"
UNANSWERED = "no answer of PostgreSQL"
BUGS = (
    peer_compare.CRASH,
    peer_compare.HANG,
    INTERNAL,
    peer_compare.DIFFERENT,
    peer_compare.OTHER_CODE,
)
KINDS = [
    peer_compare.SAME,
    peer_compare.SAME_ERROR,
    peer_compare.REFUSED,
    EVALUATION,
    UNANSWERED,
    *BUGS,
]
NUMERIC_TYPES = (700, 701, 1700)
# Statements over one set of tables.
PER_SCHEMA = 100
# So many findings with one error are made smaller. Several causes may have one message.
OF_ONE_KIND = 3
# A constant with a cast, without quotes or backslashes in it.
CONSTANT = re.compile(r"'([^'\\]*)'::([a-z]+\d?)(?![\w(])")
# Every so many statements go by the extended protocol.
EXTENDED_EVERY = 3


def evaluates(answer):
    return answer.kind == "error" and answer.sqlstate[:2] in ("22", "21")


def plain_number(text):
    """A number without what equal numbers may differ in: zeros at the end, a zero's sign."""
    if text and "." in text and "e" not in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def normal(answer):
    numeric = [type in NUMERIC_TYPES for type in answer.types]
    return [tuple(plain_number(v) if n else v for v, n in zip(row, numeric)) for row in answer.rows]


def judge(left, right, text):
    """(kind, what) of two answers to one statement."""
    kind, what = peer_compare.verdict(left, right, text)
    if right.kind in (peer_compare.HANG, peer_compare.CRASH) or right.sqlstate == "57014":
        return UNANSWERED, str(right)
    if left.kind == "error" and left.sqlstate in peer_compare.INTERNAL_ERRORS:
        return INTERNAL, left.message
    if kind in (peer_compare.OTHER_CODE, peer_compare.DIFFERENT) and (
        evaluates(left) or evaluates(right)
    ):
        return EVALUATION, ""
    if kind == peer_compare.DIFFERENT and what == "order":
        items = peer_compare.sql_text.order_by(text)
        if not all(item[0].isdigit() for item in items if item):
            return peer_compare.SAME, ""
    if kind == peer_compare.DIFFERENT and what in ("rows", "order"):
        rows = [peer_compare.sorted_rows(normal(answer)) for answer in (left, right)]
        if rows[0] == rows[1]:
            # Of equal numbers that are written differently, PostgreSQL leaves open which is taken.
            return (peer_compare.SAME, "") if may_take_any(text) else (kind, "scale")
    return kind, what


def may_take_any(text):
    words = (
        "distinct|group|union|intersect|except|partition|min|max|greatest|least|order|using|natural"
    )
    return re.search(rf"\b({words})\b", text) is not None


def with_parameters(text):
    """The statement with parameters in the place of constants with casts, and their values."""
    values = []

    def parameter(found):
        if found.group(1) not in values:
            values.append(found.group(1))
        return f"${values.index(found.group(1)) + 1}::{found.group(2)}"

    # A constant has one number wherever it stands, but one type, too.
    types = {}
    for value, type in CONSTANT.findall(text):
        types.setdefault(value, set()).add(type)
    several = {value for value, found in types.items() if len(found) > 1}
    replace = lambda found: found.group() if found.group(1) in several else parameter(found)
    return CONSTANT.sub(replace, text), values


class Peers:
    """Both servers, with the same tables."""

    def __init__(self, options):
        self.options = options
        program = options.braid
        self.braid_server = None if "=" in program else peer_servers.Braid(program)
        place = options.postgres
        self.postgres_server = None if "=" in place else peer_servers.Postgres(place)
        self.braid_at = self.braid_server.conninfos[0] if self.braid_server else program
        self.postgres_at = self.postgres_server.conninfo if self.postgres_server else place
        self.loaded = None
        self.extended = False
        self.connect()

    def connect(self):
        seconds = self.options.statement_seconds
        parameters = {"timezone": "UTC"}
        self.braid = peer_session.Session(self.braid_at, seconds, parameters)
        self.postgres = peer_session.Session(self.postgres_at, seconds, parameters)
        self.loaded = None

    def stop(self):
        for server in (self.braid_server, self.postgres_server):
            if server:
                server.stop()

    def load(self, tables):
        """Makes the tables on both sides, unless they are there."""
        texts = [text for table in tables for text in table.statements()]
        if texts == self.loaded:
            return
        drop = [f"drop table if exists {name}" for name in ("t1", "t2", "t3", "t4")]
        for session in (self.braid, self.postgres):
            for text in drop + texts:
                answer = session.one(text)
                if not answer.succeeded():
                    self.loaded = None
                    raise SystemExit(f"{text};\n{answer}")
        self.loaded = texts

    def revive(self):
        """After a crash or a hang. Returns Braid's last words if it was dead."""
        for session in (self.braid, self.postgres):
            session.close()
        try:
            peer_session.Session(self.braid_at, 5).close()
            words = ""
        except psycopg.OperationalError:
            if not self.braid_server:
                raise
            words = self.braid_server.restart()
        self.connect()
        return words

    def compare(self, statement, tables):
        """(kind, what, Braid's answer, PostgreSQL's)."""
        self.load(tables)
        text = str(statement)
        if statement.sort == "query" and not re.search(r"\b(insert|update|delete)\b", text):
            left, right = self.both(text)
            kind, what = judge(left, right, text)
        else:
            kind, what, left, right = self.compare_change(text, tables)
        if kind in (peer_compare.CRASH, peer_compare.HANG):
            left.message += "\n" + self.revive()
        return kind, what, left, right

    def both(self, text):
        parameters = None
        if self.extended:
            text, parameters = with_parameters(text)
        return [session.one(text, None, parameters) for session in (self.braid, self.postgres)]

    def compare_change(self, text, tables):
        """A statement that changes rows, in a transaction: its answer, then the tables."""
        for session in (self.braid, self.postgres):
            session.one("begin")
        left, right = self.both(text)
        kind, what = judge(left, right, text)
        if kind == peer_compare.SAME:
            for table in tables:
                query = f"select * from {table.name}"
                ours, theirs = self.braid.one(query), self.postgres.one(query)
                found, what = judge(ours, theirs, query)
                if found != peer_compare.SAME:
                    kind, what, left, right = found, f"{table.name} afterwards", ours, theirs
                    break
        for session in (self.braid, self.postgres):
            if not session.broken():
                session.one("rollback")
        return kind, what, left, right


def signature(kind, what, left, right):
    """What findings of one cause mostly have in common. Rows that differ say nothing."""
    if left.kind != "error" and what in ("rows", "order"):
        return None
    message = re.sub(r"\"[^\"]*\"|'[^']*'|\d+|\b[a-z]\d*\.\w+", "?", left.message.split("\n")[0])
    return kind, what if left.kind != "error" else "", left.sqlstate, message[:70], right.sqlstate


def shape(text):
    """The statement without its names and constants."""
    text = re.sub(r"'[^']*'|\b\d+(\.\d+)?\b", "?", text)
    return re.sub(r"\b[a-z]\d+\b", "_", text)


def script(tables, statement):
    texts = [text for table in tables for text in table.statements()] + [str(statement)]
    return ";\n".join(texts) + ";"


class Fuzzer:
    def __init__(self, options):
        self.options = options
        self.peers = Peers(options)
        self.counts = collections.Counter()
        self.refusals = collections.Counter()
        self.rows = 0
        # How often each kind of finding was met, and the shapes of reduced statements.
        self.seen = collections.Counter()
        self.shapes = collections.Counter()

    def one(self, number):
        seed = self.options.seed
        tables = fuzz_schema.draw_schema(random.Random(f"{seed} tables {number // PER_SCHEMA}"))
        statement = fuzz_statements.Statements(
            random.Random(f"{seed} {number}"), tables
        ).statement()
        self.peers.extended = number % EXTENDED_EVERY == 0
        kind, what, left, right = self.peers.compare(statement, tables)
        self.counts[kind] += 1
        self.rows += kind == peer_compare.SAME and bool(left.rows)
        if kind == peer_compare.REFUSED:
            self.refusals[re.sub(r"\d+", "?", left.message)[:90]] += 1
        if kind in BUGS:
            self.found(number, statement, tables, (kind, what, left, right))

    def found(self, number, statement, tables, outcome):
        kind, what, left, right = outcome
        mark = signature(*outcome)
        self.seen[mark] += 1
        if mark and self.seen[mark] > OF_ONE_KIND and not self.options.all:
            return
        if kind != peer_compare.HANG or self.options.all:
            same = self.same_finding(kind, what, left, right)
            statement, tables = fuzz_reduce.reduce(
                statement, tables, same, self.options.reduce_seconds
            )
            again = self.peers.compare(statement, tables)
            if again[0] == kind:
                kind, what, left, right = again
        self.shapes[shape(str(statement))] += 1
        if self.shapes[shape(str(statement))] > 1 and not self.options.all:
            return
        way = ", extended protocol" if self.peers.extended else ""
        text = f"-- seed {self.options.seed}, statement {number}{way}: {kind} ({what})\n"
        text += script(tables, statement)
        if self.peers.extended:
            sent, values = with_parameters(str(statement))
            text += f"\n-- sent as: {sent}\n-- with: {values}" if values else ""
        for name, answer in (("Braid", left), ("PostgreSQL", right)):
            text += f"\n-- {name}: " + str(answer).replace("\n", "\n--     ")
        print(f"\n{text}", flush=True)
        if self.options.out:
            path = Path(self.options.out, f"{self.options.seed}-{number}.sql")
            path.write_text(text + "\n", encoding="utf-8")

    def same_finding(self, kind, what, left, right):
        """Whether a smaller statement shows the same finding."""

        def fails(statement, tables):
            try:
                found, found_what, ours, theirs = self.peers.compare(statement, tables)
            except SystemExit:
                # Tables that cannot be made, such as a key without its column.
                return False
            if found != kind or ours.sqlstate != left.sqlstate or theirs.sqlstate != right.sqlstate:
                return False
            return left.kind == "error" or found_what == what

        return fails

    def summary(self):
        total = sum(self.counts.values())
        print(f"\nseed {self.options.seed}: {total} statements, {self.rows} the same with rows")
        for kind in KINDS:
            if self.counts[kind]:
                print(f"{self.counts[kind]:8} {kind}")
        for message, count in self.refusals.most_common(20):
            print(f"{count:8} refused: {message}")
        for mark, count in self.seen.most_common(40):
            if mark:
                print(f"{count:8} {' | '.join(part for part in mark if part)}")


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--braid", required=True, help="the program, or where it listens")
    parser.add_argument(
        "--postgres", default="/usr/lib/postgresql/15/bin", help="the same of PostgreSQL"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--queries", type=int, default=1_000_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--only", type=int, help="draw this statement alone")
    parser.add_argument("--all", action="store_true", help="print each finding, not one of a kind")
    parser.add_argument("--out", help="directory for a script of each finding")
    parser.add_argument("--reduce-seconds", type=float, default=20)
    parser.add_argument("--statement-seconds", type=int, default=10)
    options = parser.parse_args()
    if (
        options.queries == 1_000_000_000
        and options.seconds == float("inf")
        and options.only is None
    ):
        options.seconds = 60
    return options


def main():
    options = read_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    if options.out:
        Path(options.out).mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}", flush=True)
    fuzzer = Fuzzer(options)
    deadline = time.monotonic() + options.seconds
    try:
        numbers = range(options.queries) if options.only is None else [options.only]
        for number in numbers:
            if time.monotonic() > deadline:
                break
            fuzzer.one(number)
    finally:
        fuzzer.summary()
        fuzzer.peers.stop()
    return 1 if any(fuzzer.counts[kind] for kind in BUGS) else 0


if __name__ == "__main__":
    sys.exit(main())
